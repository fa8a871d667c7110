"""Stacked structs as types: their text, and which structs can be stacked."""

import pytest

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.schema.export import payload_schema
from neuralqx_struct.schema.lint.types import TYPE_CHECKS
from neuralqx_struct.schema.stacks import inner_axes, layers
from neuralqx_struct.types import map_sizes
from neuralqx_struct.types.text import parse_type
from tests.builders import doc


@pytest.mark.parametrize(
    "text",
    [
        "Layer[d][n]",
        "Layer[][3]",
        "Layer[d, 2 * d][n + 1] | null",
        "list[Layer[][n], m]",
        "lab.net.Layer[][n]",
    ],
)
def test_text(text):
    declared = parse_type(text)
    assert declared.format() == text
    assert parse_type(declared.format()) == declared


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("float32[d][n]", "float32[n, ...]"),
        ("list[Layer][n]", "list[Layer, n]"),
        ("Layer[d][n][m]", "struct"),
        ("Layer[][]", "Layer[][n]"),
        ("Layer[d][n, m]", "Layer[d][n]"),
        ("list[int, int]", None),
    ],
)
def test_text_that_is_no_type(text, hint):
    with pytest.raises(SchemaError) as caught:
        parse_type(text)
    (found,) = caught.value.diagnostics
    assert found.code == "NQX101"
    assert hint is None or hint in found.hint


def test_axes_go_in_front_of_those_inside():
    (axis,) = parse_type("int8[n]").extents
    declared = parse_type("dict[str, float32[a] | Inner[a][2] | null]")
    assert (
        declared.with_axes((axis,)).format() == "dict[str, float32[n, a] | Inner[a][n, 2] | null]"
    )
    changed = map_sizes(parse_type("list[Inner[a][b], c]"), lambda size: axis)
    assert changed.format() == "list[Inner[n][n], n]"


def objections(structs):
    document = doc({"all": "L[][n]"}, structs=structs)
    found = [finding for check in TYPE_CHECKS for finding in check(document)]
    assert {each.code for each in found} <= {"NQX137"}
    return [each.message for each in found]


@pytest.mark.parametrize(
    ("structs", "fragment"),
    [
        ({"L": {"w": "float32[d]", "e": "int"}}, "got int in L.e"),
        ({"L": {"w": "float32[d]", "e": "pytree"}}, "L.e"),
        ({"L": {"w": "float32[d]", "e": "M | null"}, "M": {"x": "list[str]"}}, "got str in M.x"),
        ({"L": {"w": "float32[d] | null"}}, "instance"),
        ({"L": {"w": "list[float32[d]]"}}, "instance"),
        ({"L": {"w": "float32[d]", "more": "L[][m] | null"}}, "itself"),
    ],
)
def test_structs_that_cannot_be_stacked(structs, fragment):
    assert any(fragment in message for message in objections(structs))


@pytest.mark.parametrize(
    "structs",
    [
        {"L": {"w": "float32[]"}},
        {"L": {"w": "list[float32[d], 2]"}},
        {"L": {"w": "tuple[prng_key[rbg], float32[d] | null]"}},
        {"L": {"inner": "M", "more": "list[L]"}, "M": {"w": "float32[d]"}},
        {
            "L": {
                "w": "float32[d]",
                "e": {"type": "int", "kind": "static"},
                "o": {"type": "pytree", "kind": "opaque"},
            }
        },
    ],
)
def test_structs_that_can_be_stacked(structs):
    assert objections(structs) == []


def test_a_struct_of_another_schema_is_stacked_there():
    other = doc({"w": "float32[d]"}).model_copy(update={"id": "lab.b"})
    document = doc({"all": "lab.b.A[][n]"}, uses=["lab.b@1"]).linked({"lab.b": other}, {})
    found = [finding for check in TYPE_CHECKS for finding in check(document)]
    assert [each.code for each in found] == ["NQX137"]


def test_json_schemas_of_structs_inside_of_themselves_end():
    document = doc({"all": "L[][n]"}, structs={"L": {"w": "float32[d]", "more": "L[][m] | null"}})
    assert "lab.a@1:L.stacked16" in payload_schema(document)["definitions"]


def test_names_of_axes_inside_are_new():
    (n, any_size, two) = parse_type("int8[n, _, 2]").extents
    given, axes = inner_axes((n, any_size, two), {"n", "layers"})
    assert [*given] == ["n'", "layers'"]
    assert [axis.text for axis in axes] == ["n'", "layers'", "2"]


def test_layers_without_numbers_are_all_alike():
    assert [*layers({"x": 1}, [10**12])] == [{"x": 1}]
    assert [*layers({"x": 1}, [0])] == []


def test_enums_are_not_stacked():
    document = doc({"x": "float32[n]", "all": "Mode[][n]"}, enums={"Mode": ["a", "b"]})
    (found,) = [finding for check in TYPE_CHECKS for finding in check(document)]
    assert (found.code, found.hint) == ("NQX137", "write list[Mode, n]")
    assert "Mode" in found.message
