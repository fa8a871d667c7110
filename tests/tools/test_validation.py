"""Validation of bundles: agreement of readers, and JSON Schemas of the user."""

import json

import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.manifest.text import format_manifest
from tests.builders import ROOT, document

PUBLISHED = ROOT / "schemas" / "manifest" / "1.json"
DIGITS = "1" * 5000
INTEGER = {"__kind__": "bigint", "value": DIGITS}


def bundle_of(folder, node):
    """A bundle of one node, as another program could have written it."""
    folder.mkdir()
    (folder / "manifest.json").write_bytes(format_manifest(document(node)))
    np.savez(folder / "arrays.npz")
    return folder


def finding_of(look, path):
    with pytest.raises(s.SerializationError) as caught:
        look(path)
    [found] = caught.value.diagnostics
    return found.code, found.path, found.message


@pytest.mark.parametrize(
    ("node", "code", "path"),
    [
        (
            {"__kind__": "struct", "type": f"lab.x@{DIGITS}:A", "fields": {}},
            "NQX501",
            "$.manifest.type",
        ),
        (
            {"__kind__": "struct", "type": "lab.x@0:A", "fields": {}},
            "NQX501",
            "$.manifest.type",
        ),
        (
            {"__kind__": "full", "dtype": "float32", "shape": [2], "value": INTEGER},
            "NQX612",
            "$",
        ),
        ({"__kind__": "full", "dtype": "<U5", "shape": [2], "value": INTEGER}, "NQX612", "$"),
        ({"__kind__": "numpy-scalar", "dtype": "float64", "value": INTEGER}, "NQX612", "$"),
        ({"__kind__": "numpy-scalar", "dtype": "int8", "value": 128}, "NQX612", "$"),
        ({"__kind__": "numpy-scalar", "dtype": "uint8", "value": -1}, "NQX612", "$"),
    ],
)
def test_numbers_that_are_too_large_are_the_same_finding_everywhere(tmp_path, node, code, path):
    bundle = bundle_of(tmp_path / "ckpt", node)
    [found] = s.validate(bundle)
    assert (found.code, found.path) == (code, path)
    assert finding_of(s.load, bundle) == (code, path, found.message)
    assert finding_of(lambda p: s.load(p, abstract=True), bundle)[0] == code


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("int8", -128), ("uint8", 255), ("float32", 2**100), ("float64", 10**300), ("bool", True)],
)
def test_numbers_that_fit_are_read(tmp_path, dtype, value):
    node = {"__kind__": "numpy-scalar", "dtype": dtype, "value": value}
    if not -(2**63) <= value < 2**63:
        node["value"] = {"__kind__": "bigint", "value": str(value)}
    bundle = bundle_of(tmp_path / "ckpt", node)
    assert s.validate(bundle) == []
    assert s.load(bundle) == np.dtype(dtype).type(value)


# -- JSON Schemas of the user


def test_a_bundle_matches_the_published_schema(tmp_path):
    bundle = bundle_of(tmp_path / "ckpt", 5)
    assert s.validate(bundle, json_schema=PUBLISHED) == []


def test_messages_are_those_of_jsonschema(tmp_path):
    bundle = bundle_of(tmp_path / "ckpt", {"__kind__": "float", "value": "nan"})
    text = (bundle / "manifest.json").read_text().replace('"nan"', '"none"')
    (bundle / "manifest.json").write_text(text)
    found = s.validate(bundle, json_schema=PUBLISHED)
    assert ("NQX616", "$.manifest.value", "'none' is not one of ['nan', 'inf', '-inf']") in [
        (d.code, d.path, d.message) for d in found
    ]
    assert "NQX614" in {d.code for d in found}


def test_the_json_schema_of_a_schema(tmp_path, vmc_folder):
    from neuralqx_struct.schema.export import payload_schema
    from neuralqx_struct.schema.series import load_series

    file = tmp_path / "payload.json"
    file.write_text(json.dumps(payload_schema(load_series(vmc_folder).head)))
    bundle = bundle_of(tmp_path / "ckpt", {"__kind__": "list", "items": []})
    found = s.validate(bundle, json_schema=file)
    assert found and {d.code for d in found} == {"NQX616"}
    assert all(d.file == str(bundle) for d in found)


@pytest.mark.parametrize("text", ["{", '{"type": 5}', None])
def test_a_file_that_is_no_json_schema(tmp_path, text):
    file = tmp_path / "schema.json"
    if text is not None:
        file.write_text(text)
    bundle = bundle_of(tmp_path / "ckpt", 5)
    with pytest.raises(s.SchemaError, match="expected a JSON Schema") as caught:
        s.validate(bundle, json_schema=file)
    assert caught.value.code == "NQX616" and caught.value.diagnostics[0].file == str(file)


def test_nothing_is_fetched_from_the_net(tmp_path):
    file = tmp_path / "schema.json"
    file.write_text(json.dumps({"$ref": "https://example.org/schema.json"}))
    bundle = bundle_of(tmp_path / "ckpt", 5)
    with pytest.raises(s.SchemaError, match=r"example\.org"):
        s.validate(bundle, json_schema=file)
