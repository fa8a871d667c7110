"""A new field type is one record in the table: every operation of the package takes the toys ``decimal`` and ``day``."""

import json
import re
from datetime import date

import jsonschema
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.schema.export import payload_schema
from neuralqx_struct.schema.stubs import stub_module
from neuralqx_struct.tools.linting import lint_series
from neuralqx_struct.types import TYPES, Scalar, Type, add_type, type_of_class
from neuralqx_struct.types.text import parse_type
from tests.builders import refused

DIGITS = r"-?[0-9]+(\.[0-9]+)?"


def is_decimal(value):
    return re.fullmatch(DIGITS, value) is not None


class DecimalRecord(Scalar):
    """Text of a decimal number, which keeps its digits."""

    def rule(self, document):
        return {"type": "string", "pattern": f"^{DIGITS}$"}


DECIMAL = DecimalRecord(
    name="decimal",
    plain=(str,),
    valid=is_decimal,
    fits=is_decimal,
    is_class=lambda cls: False,  # such text is a str
    takes=("str",),
    meaning="text",
    json=("string",),
    node=lambda value: value,
    live=lambda value: value,
    written=lambda value: value,
    source="str",
    suggestion="0.0",
    draw=lambda sample: f"{sample.between(0, 9)}.5",
)
#: A type with a Python class and a kind of node of its own.
DAY = Scalar(
    name="day",
    plain=(str,),
    valid=lambda text: re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text) is not None,
    is_class=lambda cls: cls is date,
    takes=("day",),
    meaning="day",
    kinds=("datetime",),
    node=lambda text: {"__kind__": "datetime", "type": "date", "value": text},
    live=date.fromisoformat,
    stored=lambda node: date.fromisoformat(node["value"]),
    written=date.isoformat,
    source="datetime.date",
    suggestion="2000-01-01",
    draw=lambda sample: date(2000, 1, sample.between(1, 28)),
)


def _clear():
    parse_type.cache_clear()
    type_of_class.cache_clear()


@pytest.fixture(autouse=True)
def _toys():
    toys = {record.name: record for record in (DECIMAL, DAY)}
    for toy in toys.values():
        add_type(toy)
    _clear()
    yield
    for name in toys:
        del TYPES[name]
    _clear()


V1 = """
language: "1"
schema: lab.invoice
version: 1
root: Invoice
structs:
  Invoice:
    fields:
      price: {type: decimal, kind: static, default: "1.50"}
      rates: {type: "tuple[decimal, ...]", kind: static}
      w: "float32[n]"
"""
V2 = (
    V1.replace("version: 1", "version: 2")
    .replace("price:", "cost:")
    .replace(
        '      w: "float32[n]"',
        '      w: "float32[n]"\n      tax: {type: "decimal | null", kind: static}',
    )
    + """
migrations:
  - from: 1
    steps:
      - rename: {field: price, to: cost}
      - add: {field: tax, default: "0.19"}
"""
)


@pytest.fixture
def schema(tmp_path):
    folder = tmp_path / "invoice"
    folder.mkdir()
    (folder / "v1.yaml").write_text(V1)
    (folder / "v2.yaml").write_text(V2)
    return s.load_schema(folder)


def test_lint_and_dump(schema):
    assert lint_series(schema.series) == []
    assert s.load_schema(s.dump_schema(schema)).document.to_data() == schema.document.to_data()
    with refused(s.SchemaError, "NQX107", "decimal", "'nonsense'"):
        s.load_schema(V1.replace('"1.50"', "nonsense"))
    with refused(s.SchemaError, "NQX101", "'decimel'", "'decimal'"):
        s.load_schema(V1.replace("type: decimal", "type: decimel"))


def test_construct_export_validate_load_and_inspect(schema, tmp_path):
    old = schema.at(1)
    made = old.Invoice(rates=("1.0", "2.25"), w=s.example(old.Invoice).w)
    assert made.price == "1.50"
    path = made.export(tmp_path / "ckpt")
    assert s.validate(path) == [] == s.validate(path, old)
    assert s.load(path, load_cls=old.Invoice) == made
    assert "2.25" in str(s.inspect(path))
    with refused(s.ValidationError, "NQX411", "$.price", "decimal", "'cheap'"):
        made.replace(price="cheap")


def test_migrate_up_and_down(schema, tmp_path):
    made = s.example(schema.at(1).Invoice)
    path = made.export(tmp_path / "ckpt")
    loaded = schema.load(path)
    assert (loaded.cost, loaded.tax) == (made.price, "0.19")
    s.migrate(path, tmp_path / "new", schema=schema)
    assert s.validate(tmp_path / "new", schema) == []
    s.migrate(tmp_path / "new", tmp_path / "back", schema=schema, to=1)
    assert s.load(tmp_path / "back", load_cls=schema.at(1).Invoice) == made
    wrong = V2.replace('default: "0.19"', "default: much")
    with refused(s.SchemaError, "NQX107", "decimal", "'much'"):
        (tmp_path / "invoice" / "v2.yaml").write_text(wrong)
        s.load_schema(tmp_path / "invoice")


def test_values_of_layouts(schema):
    layout = {"language": "1", "layout": "x", "of": "lab.invoice@2"}
    layout["values"] = {"cost": "2.50", "rates": ["0.5"], "tax": None}
    arrays = {"w": np.ones(3, "float32")}
    invoice = schema.from_layout(arrays, layout)
    assert (invoice.cost, invoice.rates, invoice.tax) == ("2.50", ("0.5",), None)
    assert [*schema.to_layout(invoice, layout)] == ["w"]
    with refused(s.SerializationError, "NQX107", "$.cost", "nonsense"):
        schema.from_layout(arrays, layout, {"cost": "nonsense"})


def test_diff(schema):
    changed = V1.replace("type: decimal", "type: int").replace('"1.50"', "1")
    codes = {change.code for change in s.diff(s.load_schema(V1), s.load_schema(changed))}
    assert "NQX210" in codes
    assert s.diff(schema.at(1), schema.at(1)) == []


def test_example_stub_and_json_schema(schema, tmp_path):
    made = s.example(schema.Invoice, key=3)
    assert is_decimal(made.cost)
    stub = stub_module(schema.document, "schemas/invoice")
    assert 'cost: str = "1.50"' in stub
    path = made.export(tmp_path / "ckpt")
    rules = jsonschema.Draft7Validator(payload_schema(schema.document))
    manifest = json.loads((path / "manifest.json").read_text())
    assert list(rules.iter_errors(manifest)) == []
    manifest["manifest"]["fields"]["cost"] = "cheap"
    assert [list(error.path)[-1] for error in rules.iter_errors(manifest)] == ["cost"]


@pytest.mark.parametrize("kind", ["node", "static", "opaque, serialize: true"])
def test_values_of_a_picking_type_are_checked_each_time(kind):
    fields = f"""
      one: {{type: decimal, kind: {kind}}}
      more: {{type: "tuple[decimal, ...]", kind: {kind}}}
      named: {{type: "dict[str, decimal]", kind: opaque, serialize: true}}"""
    cls = s.load_schema(V1.replace('\n      w: "float32[n]"', fields)).Invoice
    valid = {"rates": (), "one": "1.0", "more": ("1.0",), "named": {"a": "1.0"}}
    cls(**valid)  # the checks remember valid signatures
    wrong = {"one": "cheap", "more": ("cheap",), "named": {"a": "cheap"}}
    for name, value in wrong.items():
        with refused(s.ValidationError, "NQX411", "decimal", "'cheap'"):
            cls(**valid | {name: value})


class Diary(s.Struct):
    count: int
    when: date = s.field(static=True, default=date(2020, 1, 2))


DIARY = """
language: "1"
schema: lab.diary
version: 1
root: Diary
structs:
  Diary:
    fields:
      when: {type: day, kind: static, default: "2020-01-02"}
      many: {type: "list[day]", kind: opaque, serialize: true}
"""


def test_a_type_with_its_own_class(tmp_path):
    schema = s.load_schema(DIARY)
    made = schema.Diary(many=[date(2021, 3, 4)])
    assert made.when == date(2020, 1, 2)
    path = made.export(tmp_path / "ckpt")
    assert s.validate(path, schema) == []
    assert s.load(path, load_cls=schema.Diary) == made
    stub = stub_module(schema.document, "schemas/diary")
    assert "    import datetime\n" in stub
    assert 'when: datetime.date = "2020-01-02"' not in stub
    with refused(s.ValidationError, "NQX411", "$.when", "2020-01-02"):
        made.replace(when="2020-01-02")


def test_the_class_of_a_type_in_annotations_and_bundles(tmp_path):
    written = s.dump_schema(Diary)
    assert 'when: {type: day, kind: static, default: "2020-01-02"}' in written
    inferred = s.infer(Diary(1).export(tmp_path / "ckpt"))
    assert "when: {type: day, kind: static}" in inferred


def test_text_and_days_are_no_leaves_of_jax():
    text = DIARY.replace("kind: static", "kind: node")
    found = lint_series(s.load_schema(text).series)
    assert "NQX136" in [each.code for each in found]


def test_a_missing_member_is_an_error_at_import():
    with pytest.raises(TypeError, match="'source'"):
        Scalar(
            name="broken",
            plain=(str,),
            is_class=bool,
            takes=(),
            meaning="text",
            node=str,
            live=str,
            written=str,
            draw=print,
        )


def test_a_class_without_a_member_is_an_error_when_it_is_added():
    class Broken(Type):
        sort = "broken"

    with refused(TypeError, "annotation, example, format, read, rule"):
        add_type(Broken)
    assert "broken" not in TYPES
