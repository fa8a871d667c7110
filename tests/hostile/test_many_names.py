"""Schemas with very many names in each list, and conditions on very many values."""

import pytest

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.classes.schemas import Schema
from neuralqx_struct.errors import SchemaError, SerializationError
from neuralqx_struct.evolution.compatibility import verdict
from neuralqx_struct.evolution.diff import diff_documents
from neuralqx_struct.schema import conditions
from neuralqx_struct.schema.series import series_of
from neuralqx_struct.tools.linting import lint_series
from neuralqx_struct.tools.validation import validate
from tests.builders import bounded, doc, payload, refused

MANY = 8_000


def version(number, name):
    """A version whose lists have other names than those of another one, but for the choices."""
    names = [f"{name}{i}" for i in range(MANY)]
    members = [f"m{each}" for each in names]
    enums = {
        "E": {"members": members, "aliases": {m: [f"a{m}"] for m in members}},
        "F": {"members": members, "default": members[0]},
    }
    fields = {
        "e": "E",
        "f": "F",
        "choices": {"type": "int", "choices": [*range(number, number + MANY)]},
        "words": {"type": "list[int]", "choices": [[i] for i in range(number, number + MANY)]},
        "tags": {"type": "int", "tags": names},
        "aliases": {"type": "int", "aliases": [f"a{each}" for each in names]},
    }
    raw = {"B": {"fields": {"x": "int"}, "reserved": names}}
    return doc({**fields, "b": "B"}, number, raw=raw, enums=enums)


def test_versions_that_share_no_name():
    old, new = version(1, "x"), version(2, "y")
    with bounded(10):
        found = lint_series(series_of([old, new]))
        assert {d.code for d in found} >= {"NQX206", "NQX301"}
        assert len(diff_documents(old, new)) > 6 * MANY
        assert verdict(old, new, "full") != []


def test_constraints_on_very_many_values(tmp_path, monkeypatch):
    """Each is within its budget; all of them together are not."""
    monkeypatch.setattr(conditions, "_MOST_STEPS", 100_000)
    constraints = [{"expr": f"all(layers.w + {i} == w + {i})"} for i in range(300)]
    raw = {"A": {"fields": {"layers": "list[B]", "w": "int"}, "constraints": constraints}}
    document = doc({}, structs={"B": {"w": "int"}}, raw=raw)
    held = payload(document, {"layers": [("B", {"w": 1})] * 1000, "w": 1})
    path = bundle.write(tmp_path / "c", held)
    with bounded():
        assert [d.code for d in validate(path)] == ["NQX507"]
        with pytest.raises(SerializationError) as caught:
            Schema(series_of([document]), 1).load(path)
        assert [d.code for d in caught.value.diagnostics] == ["NQX507"]


def test_an_example_of_structs_that_double():
    structs = {f"S{i}": {"a": f"S{i + 1}", "b": f"S{i + 1}"} for i in range(40)}
    document = doc({"x": "S0"}, structs={**structs, "S40": {"x": "int"}})
    with bounded(), refused(SchemaError, "NQX413", "10,000"):
        s.example(Schema(series_of([document]), 1).A)


@pytest.mark.parametrize("inner", ["list[{}]", "dict[str, {}]", "tuple[{}, ...]"])
def test_an_example_of_lists_in_lists(inner):
    declared = "int"
    for _ in range(40):
        declared = inner.format(declared)
    with bounded():
        assert s.example(Schema(series_of([doc({"x": declared})]), 1).A).x
        least = doc({"x": {"type": declared, "min_length": 2}})  # of the outermost alone
        assert len(s.example(Schema(series_of([least]), 1).A).x) >= 2


def test_an_example_of_very_many_items():
    least = doc({"x": {"type": "list[int]", "min_length": 200_001}})
    with bounded(), refused(SchemaError, "NQX413", "200,000"):
        s.example(Schema(series_of([least]), 1).A)


def test_a_payload_that_shares_no_name_with_its_schema(tmp_path):
    """Thousands of missing fields, each of which may be any of as many unknown ones."""
    count = 3000
    document = doc({f"fieldname{i}": "int" for i in range(count)})
    values = {f"fieldnmae{i}": i for i in range(count)}
    path = bundle.write(tmp_path / "b", payload(document, values))
    schema = Schema(series_of([document]), 1)
    with bounded(10):
        found = [validate(path)]
        for read in (lambda: s.load(path), lambda: s.from_dict(values, schema)):
            with pytest.raises(SerializationError) as caught:
                read()
            found.append(caught.value.diagnostics)
    for problems in found:
        assert len(problems) == 2 * count
        assert 0 < sum("did you mean" in (each.hint or "") for each in problems) <= 50
