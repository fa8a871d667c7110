"""Plain values in files and stored values of collections: every reader of them agrees."""

import json
import math
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.schema.text.loader import read_text
from neuralqx_struct.schema.text.yaml_writer import dump_yaml
from neuralqx_struct.types import TYPES
from neuralqx_struct.types.builders import LiveBuilder, NodeBuilder
from neuralqx_struct.types.text import number_of, number_text, parse_type, plain_value, read_value
from tests.builders import every, refused

HEAD = 'language: "1"\nschema: lab.values\nversion: %d\nroot: A\n'


def series(tmp_path, old, new, steps, enums=("", "")):
    """The schema with two versions of the fields of one struct."""
    folder = tmp_path / "values"
    folder.mkdir()
    for version, fields, declared in ((1, old, enums[0]), (2, new, enums[1])):
        text = HEAD % version + declared + f"structs:\n  A:\n    fields: {{{fields}}}\n"
        text += f"migrations:\n  - from: 1\n    steps: [{steps}]\n" if version == 2 else ""
        (folder / f"v{version}.yaml").write_text(text)
    return s.load_schema(folder)


@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_map_enum_in_dicts_of_both_kinds(tmp_path, kind):
    fields = 'modes: {type: "dict[str, Mode]", kind: opaque, serialize: true}'
    enums = ("enums: {Mode: [slow, fast]}\n", "enums: {Mode: [careful, fast]}\n")
    step = "map_enum: {enum: Mode, values: {slow: careful}}"
    schema = series(tmp_path, fields, fields, f"{{{step}}}", enums)
    path = schema.at(1).A(modes=kind(a="slow", b="fast")).export(tmp_path / "ckpt")
    loaded = schema.load(path).modes
    assert type(loaded) is kind and loaded == {"a": "careful", "b": "fast"}
    s.migrate(path, tmp_path / "new", schema=schema)
    s.migrate(tmp_path / "new", tmp_path / "back", schema=schema, to=1)
    assert s.load(tmp_path / "back", load_cls=schema.at(1).A).modes == {"a": "slow", "b": "fast"}


@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_cast_and_sizes_in_dicts_of_both_kinds(tmp_path, kind):
    old = 'tables: "dict[str, float64[n]]"'
    new = 'tables: "dict[str, float32[n]]", bias: "float32[n]"'
    steps = "{cast: {field: tables, dtype: float32}}, {add: {field: bias, default: 0}}"
    schema = series(tmp_path, old, new, steps)
    path = schema.at(1).A(tables=kind(a=np.ones(3))).export(tmp_path / "ckpt")
    loaded = schema.load(path)
    assert loaded.tables["a"].dtype == "float32" and loaded.bias.shape == (3,)


def test_the_default_of_an_enum_in_an_ordered_dict(tmp_path):
    fields = 'modes: {type: "dict[str, Mode]", kind: opaque, serialize: true}'
    other = fields + ", n: {type: int, default: 0}"
    enums = ("enums: {Mode: [slow, fast]}\n", "enums: {Mode: {members: [fast], default: fast}}\n")
    schema = series(tmp_path, fields, other, "{add: {field: n, default: 1}}", enums[:1] * 2)
    (tmp_path / "values" / "v2.yaml").write_text(
        (tmp_path / "values" / "v2.yaml").read_text().replace(enums[0], enums[1])
    )
    old = schema.at(1)
    path = old.A(modes=OrderedDict(a="slow", b="fast")).export(tmp_path / "ckpt")
    try:
        new = s.load_schema(tmp_path / "values")
    except s.SchemaError as error:  # members may not go without a step
        assert error.code == "NQX305"
        return
    assert new.load(path).modes == {"a": "fast", "b": "fast"}


@pytest.mark.parametrize(
    ("declared", "value"),
    [("dtype", "nonsense"), ("int8[2]", "[300, 1]"), ("int8[2]", "[1.5, 1]"), ("bytes", "3")],
)
def test_a_default_of_another_type_does_not_lint(tmp_path, declared, value):
    fields, steps = "n: int", f"{{add: {{field: d, default: {value}}}}}"
    with refused(s.SchemaError, "NQX107", declared, value):
        series(
            tmp_path,
            fields,
            f'n: int, d: {{type: "{declared}", kind: opaque, serialize: true}}',
            steps,
        )
    text = (
        HEAD % 1 + f'structs:\n  A:\n    fields: {{d: {{type: "{declared}", default: {value}}}}}\n'
    )
    with refused(s.SchemaError, "NQX107", declared, value):
        s.load_schema(text)


@pytest.mark.parametrize(
    ("declared", "value", "live"),
    [("bytes", "grün", "grün".encode()), ("dtype", "bfloat16", None), ("path", "a/b", None)],
)
def test_a_default_means_the_same_in_a_class_and_in_a_step(tmp_path, declared, value, live):
    old, new = "n: int", f"n: int, d: {{type: {declared}, kind: static, default: {value}}}"
    schema = series(tmp_path, old, new, f"{{add: {{field: d, default: {value}}}}}")
    path = schema.at(1).A(n=1).export(tmp_path / "ckpt")
    loaded, made = schema.load(path), schema.A(n=1)
    assert loaded == made and type(loaded.d) is type(made.d)
    assert live is None or made.d == live
    s.migrate(path, tmp_path / "new", schema=schema)
    assert s.validate(tmp_path / "new", schema) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("tuple[int, path]", [1, "a"]),
        ("dict[str, list[float]]", {"a": [1.5]}),
        ("dtype | null", "int8"),
        ('literal["a", 1] | null', 1),
        ("pytree", {"a": [1, {"b": 0.5}]}),
    ],
)
def test_plain_values_are_read_and_written(text, value):
    declared = parse_type(text)
    assert plain_value(read_value(value, declared, LiveBuilder(None))) == value
    assert read_value(value, declared, NodeBuilder(None)) is not None


def test_validate_refuses_a_dtype_that_load_refuses(tmp_path):
    schema = s.load_schema(
        HEAD % 1 + "structs:\n  A:\n    fields: {d: {type: dtype, kind: static}}\n"
    )
    path = schema.A(d=np.dtype("int8")).export(tmp_path / "ckpt")
    manifest = path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"int8"', '"nonsense"'))
    bundle.seal(path)
    assert [found.code for found in s.validate(path, schema)] == ["NQX411"]
    with pytest.raises(s.SerializationError):
        s.load(path, load_cls=schema.A)


def test_choices_of_paths_are_text(tmp_path):
    schema = s.load_schema(
        HEAD % 1 + "structs:\n  A:\n    fields: {d: {type: path, kind: static, choices: [a, b]}}\n"
    )
    made = schema.A(d=Path("a"))
    assert s.validate(made.export(tmp_path / "ckpt"), schema) == []
    with refused(s.ValidationError, "NQX416", "$.d", "'a', 'b'"):
        schema.A(d=Path("c"))


FLOATS = st.floats(allow_nan=True, allow_infinity=True)
NUMBERS = st.one_of(FLOATS, st.builds(complex, FLOATS, FLOATS))


def bits(value):
    """A value by its bits; NaN has one sign."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, complex):
        return bits(value.real), bits(value.imag)
    return "nan" if math.isnan(value) else (type(value), repr(value))


@given(st.one_of(NUMBERS, st.binary()))
def test_a_literal_is_read_as_the_value_that_it_was_written_for(value):
    declared, plain = parse_type(type(value).__name__), plain_value(value)
    read = read_value(plain, declared, LiveBuilder(None))
    assert bits(read) == bits(value)
    assert plain_value(read) == plain
    node = read_value(plain, declared, NodeBuilder(None))
    assert bits(TYPES[declared.name].stored(node) if isinstance(node, dict) else node) == bits(
        value
    )
    assert read_text(dump_yaml({"a": plain})).data == {"a": plain}
    assert read_text(json.dumps({"a": plain}, allow_nan=False), format="json").data == {"a": plain}


@given(st.text("0123456789.+-einfaj", max_size=12))
def test_text_is_a_number_only_in_its_one_spelling(text):
    number = number_of(text)
    if number is not text:
        assert bits(number_of(number_text(number))) == bits(number)
        assert isinstance(number, complex) == text.endswith("j")


@every(
    ("declared", "value", "hint"),
    [
        ("float", "inf", ".inf"),
        ("float", "1+2j", ".inf"),
        ("float", 10**400, ".inf"),
        ("complex", "1 + 2j", "1+2j"),
        ("complex", "1e999+2j", "1+2j"),
        ("complex", "1" * 100_000 + "j", "1+2j"),
        ("complex | null", "j", "1+2j"),
        ("bytes", {"base64": "/w"}, "or {base64: /wA=}"),
        ("bytes", {"base64": "/x=="}, "or {base64: /wA=}"),
        ("bytes", {"base64": "ü"}, "or {base64: /wA=}"),
        ("bytes", {"base64": ["/wA="]}, "or {base64: /wA=}"),
        ("bytes", {"base64": "/wA=", "more": 1}, "or {base64: /wA=}"),
        ("bytes", {}, "or {base64: /wA=}"),
        ("pytree", [{"a": ".nan"}], "type"),
        ("float32[2]", "1+2j", "float32 holds"),
        ("float8_e4m3fn[2]", [".inf", 1], "float8_e4m3fn holds"),
        ("int32[2]", ".nan", "int32 holds"),
        ("complex64[2]", "one", None),
    ],
)
def test_malformed_literals_are_refused_with_their_spelling(declared, value, hint):
    with pytest.raises(s.SchemaError) as caught:
        read_value(value, parse_type(declared), NodeBuilder(None))
    (found,) = caught.value.diagnostics
    assert found.code == "NQX107" and len(found.message) < 1200
    assert found.hint is None if hint is None else hint in found.hint


@pytest.mark.parametrize(
    ("text", "value", "sort"),
    [
        ("float | str", ".inf", float),
        ("str | float", ".inf", str),
        ("str | bytes", {"base64": "YQ=="}, bytes),
        ("bytes | str", "a", bytes),
        ("float | complex", "1+2j", complex),
        ("complex | float", ".nan", complex),
    ],
)
def test_the_first_option_that_takes_a_literal_has_it(text, value, sort):
    assert type(read_value(value, parse_type(text), LiveBuilder(None))) is sort


LITERALS = [
    ("float", "-.inf"),
    ("float", ".nan"),
    ("float", "-0.0"),
    ("float | null", ".inf"),
    ("complex", "-0-.infj"),
    ("complex | null", "1-2.5j"),
    ("bytes", "{base64: /wA=}"),
    ("str | bytes", "{base64: YQ==}"),
    ("float32[2]", "{fill: .inf}"),
    ("float32[2]", "[.nan, -0.0]"),
    ("complex64[2]", "{fill: 1+2j}"),
    ("complex64[n]", "-.infj"),
]


@every(("declared", "value"), LITERALS)
def test_literals_are_defaults_of_classes_and_of_steps(tmp_path, declared, value):
    kind = "node" if "[" in declared else "static"
    old, new = 'x: "float32[n]"', f'd: {{type: "{declared}", kind: {kind}, default: {value}}}'
    schema = series(tmp_path, old, f"{old}, {new}", f"{{add: {{field: d, default: {value}}}}}")
    path = schema.at(1).A(x=np.ones(3, "float32")).export(tmp_path / "ckpt")
    made = schema.A(x=np.ones(3, "float32"))
    assert schema.load(path) == made and repr(schema.load(path)) == repr(made)
    s.migrate(path, tmp_path / "new", schema=schema)
    assert s.validate(tmp_path / "new", schema) == []
    assert schema.load(tmp_path / "new") == made
    s.migrate(tmp_path / "new", tmp_path / "back", schema=schema, to=1)
    assert s.load(tmp_path / "back", load_cls=schema.at(1).A) == schema.at(1).A(x=made.x)


@every(("declared", "value"), LITERALS[:8])
def test_fill_and_undo_default_take_literals(tmp_path, declared, value):
    solid = declared.removesuffix(" | null")
    old = f'a: {{type: "{solid} | null", kind: static, default: null}}, b: {{type: "{solid}", kind: static, default: {value}}}'
    new = f'a: {{type: "{solid}", kind: static, default: {value}}}'
    steps = (
        f"{{fill: {{field: a, value: {value}}}}}, {{remove: {{field: b, undo_default: {value}}}}}"
    )
    schema = series(tmp_path, old, new, steps)
    path = schema.at(1).A().export(tmp_path / "ckpt")
    assert schema.load(path) == schema.A()
    s.migrate(path, tmp_path / "new", schema=schema)
    s.migrate(tmp_path / "new", tmp_path / "back", schema=schema, to=1)
    back = s.load(tmp_path / "back", load_cls=schema.at(1).A)
    assert repr(back.b) == repr(schema.at(1).A().b)


@pytest.mark.parametrize(
    ("declared", "choices", "good", "bad"),
    [
        ("float", "[.nan, 1]", float("nan"), float("inf")),
        ("complex", "[0, 1.0+2.0j]", 1 + 2j, 2 + 1j),
        ("bytes", "[a, {base64: /wA=}]", b"\xff\0", b"\xff"),
        ("bytes", "[a, {base64: /wA=}]", b"a", b"b"),
    ],
)
def test_choices_are_literals(declared, choices, good, bad):
    field = f"d: {{type: {declared}, kind: static, choices: {choices}}}"
    schema = s.load_schema(HEAD % 1 + f"structs: {{A: {{fields: {{{field}}}}}}}\n")
    assert repr(schema.A(d=good).d) == repr(good)
    with refused(s.ValidationError, "NQX416", "$.d"):
        schema.A(d=bad)
