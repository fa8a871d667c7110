"""Documents: what the models of one file say."""

import json

import pytest

from neuralqx_struct.schema.language import language_schema
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.reading import parse_document
from neuralqx_struct.schema.text.loader import read_text

GOOD = """\
language: "1"
schema: lab.point
version: 1
root: Point
dims: {n: {min: 1}, m: {equals: 2 * n}}
enums:
  Mode: [slow, fast]
  Kind: {members: [a, b], default: a}
structs:
  Point:
    fields:
      x: float32[n]
      y: {type: array, dtype: float32, shape: [n, 2], tags: [trainable]}
      z: {type: array, dtype: int8}
      k: {type: prng_key, impl: rbg, shape: [n]}
      mode: {type: Mode, kind: static, default: slow}
      size: {type: int, kind: static, derived: size(x)}
      handle: {kind: opaque, default: null}
    constraints:
      - {expr: size(x) > 0, message: empty}
"""


def test_what_a_document_says():
    document = parse_document(read_text(GOOD))
    fields = document.structs["Point"].fields
    assert {name: f.text for name, f in fields.items()} == {
        "x": "float32[n]", "y": "float32[n, 2]", "z": "int8[...]", "k": "prng_key[rbg, n]", "mode": "Mode", "size": "int", "handle": "pytree",
    }  # fmt: skip
    assert list(document.structs["Point"].stored) == ["x", "y", "z", "k", "mode"]
    assert fields["handle"].has_default and not fields["x"].has_default
    assert document.dims["m"].equation.names == {"n"} and document.dims["n"].equation is None
    assert (
        document.enums["Mode"].members == ["slow", "fast"] and document.enums["Kind"].default == "a"
    )
    assert document.ref("Point") == "lab.point@1:Point" and document.migration_from(1) is None
    assert repr(document).count("None") == 1


def test_with_type_keeps_the_rest():
    declaration = parse_document(read_text(GOOD)).structs["Point"].fields["y"]
    from neuralqx_struct.types.text import parse_type

    changed = declaration.with_type(parse_type("float64[n]"))
    assert changed.text == "float64[n]" and changed.tags == ["trainable"]


def test_the_published_schema_is_the_generated_one(root):
    assert json.loads((root / "schemas/struct-schema/1.json").read_text()) == language_schema()


def test_a_document_is_frozen():
    document = parse_document(read_text(GOOD))
    assert isinstance(document, Document)
    with pytest.raises(ValueError, match="frozen"):
        document.version = 3
