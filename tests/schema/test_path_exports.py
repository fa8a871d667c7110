"""Exports of schemas whose expressions have paths: stubs, JSON Schemas, diagrams, outlines and dumps."""

import json

import jsonschema
import pytest

import neuralqx_struct as s
from neuralqx_struct.schema.export import outline, payload_schema
from neuralqx_struct.schema.stubs import stub_module

TEXT = """
language: "1"
schema: lab.paths
version: 1
root: State
dims:
  n: {equals: "config.width * extent[0]"}
structs:
  Config: {fields: {width: {type: int, kind: static, ge: 1, le: 3}}}
  Adam: {fields: {step: {type: int, kind: static}, mu: "float32[n]"}}
  State:
    fields:
      config: Config
      extent: {type: "tuple[int, int]", kind: static, examples: [[2, 3]]}
      adam: Adam
      layers: "list[Config]"
      step: {type: int, kind: static}
      area: {type: int, kind: static, derived: "extent[0] * extent[1]"}
      widths: {kind: static, derived: "layers.width"}
      sites: {type: int, kind: static, derived: "n + shape(adam.mu)[0]"}
    constraints:
      - {expr: adam.step <= step}
      - {expr: all(layers.width == config.width)}
      - {expr: "shape(adam.mu)[0] == n"}
"""


@pytest.fixture
def schema():
    return s.load_schema(TEXT)


def test_stubs_are_modules_with_the_derived_fields(schema, tmp_path):
    text = stub_module(schema.document, "schemas/paths")
    compile(text, "stub.py", "exec")
    for name in ("area", "sites"):
        assert f"{name}: int" in text


def test_json_schemas_take_payloads_and_refuse_others(schema, tmp_path):
    path = s.example(schema.State).export(tmp_path / "ckpt")
    manifest = json.loads((path / "manifest.json").read_text())
    jsonschema.validate(manifest, payload_schema(schema.document))
    assert {"area", "widths", "sites"}.isdisjoint(manifest["manifest"]["fields"])
    manifest["manifest"]["fields"]["config"]["fields"]["width"] = 0
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(manifest, payload_schema(schema.document))


def test_outlines_have_every_field(schema):
    listed = "\n".join(outline(schema.document))
    for name in schema.document.structs["State"].fields:
        assert name in listed


def test_dumps_are_the_same_schema(schema):
    again = s.load_schema(s.dump_schema(schema.document))
    assert again.document == schema.document
    assert again.State.load is not None
