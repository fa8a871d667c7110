"""Literals of every kind: text, bytes, numbers of all kinds and booleans, from a file to a manifest and back."""

import json
import math
import typing

import jsonschema
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import neuralqx_struct as s
from neuralqx_struct.schema.conformance import see_node
from neuralqx_struct.schema.export import payload_schema
from neuralqx_struct.types import LiteralOf
from neuralqx_struct.types.builders import LiveBuilder, NodeBuilder
from neuralqx_struct.types.text import format_type, parse_type, plain_value, read_value
from tests.builders import cases, every, refused

TEXT = r'literal["a", b"a\xff", 1, 1.5, true, 1+2j, inf, -inf, nan, 1-infj]'
VALUES = ["a", b"a\xff", 1, 1.5, True, 1 + 2j, math.inf, -math.inf, math.nan, complex(1, -math.inf)]
#: As files write them.
WRITTEN = ["a", {"base64": "Yf8="}, 1, 1.5, True, "1+2j", ".inf", "-.inf", ".nan", "1-.infj"]


def schema(version=1, **members):
    data = {"language": "1", "schema": "tests.literals", "version": version, "root": "A"}
    field = {"type": TEXT, "kind": "static", **members}
    return s.load_schema(json.dumps(data | {"structs": {"A": {"fields": {"x": field}}}}, indent=1))


def alike(a, b):
    return type(a) is type(b) and repr(a) == repr(b)


def test_the_text_of_a_type_has_every_value():
    declared = parse_type(TEXT)
    assert all(map(alike, declared.values, VALUES))
    assert format_type(parse_type(format_type(declared))) == format_type(declared)


@every(("value", "written"), [*zip(VALUES, WRITTEN, strict=True)])
def test_values_are_constructed_saved_validated_and_written(tmp_path, value, written):
    made = schema(default=written)
    assert alike(made.A().x, value)
    assert alike(made.A(x=value).x, value)
    path = made.A().export(tmp_path / "ckpt")
    assert s.validate(path) == []
    assert alike(made.load(path).x, value)
    manifest = json.loads((path / "manifest.json").read_text())
    jsonschema.validate(manifest, payload_schema(made.document))
    again = s.load_schema(s.dump_schema(made.A))
    assert alike(again.A().x, value)


@every("value", ["b", b"a", 2, 1.0, 2.5, False, 1 + 3j, complex(math.inf), None])
def test_other_values_are_refused(value):
    with refused(s.ValidationError, "NQX411", "$.x", "b"):
        schema().A(x=value)


@pytest.mark.parametrize("written", ["b", {"base64": "YQ=="}, 2, "1+3j", None, [1], {"a": 1}])
def test_defaults_of_other_values_are_refused(written):
    with refused(s.SchemaError, "NQX107"):
        schema(default=written)


def test_annotations_give_bytes():
    class Magic(s.Struct, schema="tests.magic", version=1):
        head: typing.Literal[b"\x00", "none"] = s.field(default="none", static=True)

    assert "literal[b'" in s.schema_of(Magic).structs["Magic"].fields["head"].text
    assert s.load_schema(s.dump_schema(Magic)).Magic(head=b"\x00").head == b"\x00"


WRONG = [
    "literal[infinity]",
    "literal[]",
    "literal",
    'literal["a" "b"]',
    "literal[1e400]",
    "literal[1, -1e400j]",
    f"literal[1{'0' * 400}+1j]",
    "literal[-(1+2j)]",
]


@pytest.mark.parametrize("text", WRONG)
def test_text_that_is_no_literal_is_refused(text):
    with refused(s.SchemaError, "NQX101", repr(text)):
        parse_type(text)


VALUE = st.one_of(
    st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=4),
    st.binary(max_size=4),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.complex_numbers(),
    st.booleans(),
)


@settings(max_examples=cases(60), deadline=None)
@given(st.lists(VALUE, min_size=1, max_size=4), VALUE)
@example([complex(0, -0.0), complex(-0.0, -math.inf), complex(math.nan, -0.0)], "")
def test_law_every_value_is_written_read_and_stored(values, other):
    declared = LiteralOf(tuple(values))
    assert [*map(repr, parse_type(format_type(declared)).values)] == [*map(repr, values)]
    for value in values:
        plain = plain_value(value)
        live, node = (
            read_value(plain, declared, make(None)) for make in (LiveBuilder, NodeBuilder)
        )
        assert alike(live, value) or live == value
        assert declared.accepts(None, see_node(node))
        jsonschema.validate(node, declared.rule(None))
    known = {(type(value), repr(value)) for value in values}
    if (type(other), repr(other)) not in known and other not in values:
        node = read_value(plain_value(other), LiteralOf((other,)), NodeBuilder(None))
        assert not declared.accepts(None, see_node(node))


def test_defaults_of_opaque_fields_with_a_type_are_checked():
    with refused(s.SchemaError, "NQX107", "b"):
        schema(kind="opaque", default="b")
    assert schema(kind="opaque", default=1).A().x == 1


def test_a_default_that_is_the_name_of_a_number_names_how_to_write_it():
    with refused(s.SchemaError, "NQX107", "inf", ".inf") as error:
        schema(default="inf")
    assert error.value.diagnostics[0].code == "NQX107"
    assert schema(default=".inf").A().x == float("inf")
