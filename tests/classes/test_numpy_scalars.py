"""Numpy scalars are values wherever arrays without axes are: construction, load, validation and JSON Schema."""

import json

import jsonschema
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.schema.export import payload_schema

FIELDS = {
    "i": {"type": "int", "default": 0, "ge": 0},
    "f": {"type": "float", "default": 0.0},
    "c": {"type": "complex", "default": 0},
    "b": {"type": "bool", "default": False},
    "static": {"type": "int", "kind": "static", "default": 0},
    "a": {"type": "float32[]", "default": 0},
    "any": {"type": "int8[...] | null", "default": None},
    "family": {"type": "floating[]", "default": 0},
    "o": {"type": "float | null", "default": None},
    "items": {"type": "list[float]", "default": []},
}
VALUES = [
    ("i", np.int32(1)),
    ("i", np.uint8(1)),
    ("f", np.float32(1.5)),
    ("f", np.float64(1.5)),
    ("f", np.float32("nan")),
    ("c", np.complex64(1j)),
    ("b", np.bool_(True)),
    ("static", np.int64(2)),
    ("a", np.float32(1)),
    ("any", np.int8(1)),
    ("family", np.float16(1)),
    ("o", np.float64(2)),
    ("items", [np.float32(1), 2.0]),
]
WRONG = [
    ("i", np.float32(1)),
    ("f", np.int32(1)),
    ("a", np.float64(1)),
    ("any", np.int16(1)),
    ("family", np.int8(1)),
    ("b", np.int8(1)),
]


@pytest.fixture
def schema(tmp_path):
    data = {"language": "1", "schema": "tests.scalars", "version": 1, "root": "A"}
    folder = tmp_path / "scalars"
    folder.mkdir()
    data["structs"] = {"A": {"fields": FIELDS, "constraints": [{"expr": "i < 7"}]}}
    (folder / "v1.json").write_text(json.dumps(data))
    return s.load_schema(folder)


@pytest.mark.parametrize(("field", "value"), VALUES)
def test_numpy_scalars_are_values(schema, tmp_path, field, value):
    made = schema.A(**{field: value})
    path = made.export(tmp_path / "ckpt")
    assert s.validate(path) == []
    loaded = schema.load(path)
    assert loaded == made
    assert type(getattr(loaded, field)) is type(value)
    manifest = json.loads((path / "manifest.json").read_text())
    jsonschema.validate(manifest, payload_schema(schema.document))


@pytest.mark.parametrize(("field", "value"), WRONG)
def test_numpy_scalars_of_other_families_are_refused(schema, tmp_path, field, value):
    with pytest.raises(s.ValidationError, match=rf"\$\.{field}: expected .*, got {value.dtype}"):
        schema.A(**{field: value})
    state = schema.A().to_state_dict()
    node = {"__kind__": "numpy-scalar", "dtype": str(value.dtype), "value": value.item()}
    state["manifest"]["fields"][field] = node
    for held in ("arrays", "array_data"):
        state[held].pop(field, None)
    with pytest.raises(s.SerializationError, match=rf"\$\.{field}: expected"):
        s.from_state_dict(state, load_cls=schema.A)


def test_constraints_see_numpy_scalars(schema):
    with pytest.raises(s.ValidationError, match="expected i < 7"):
        schema.A(i=np.int64(8))
