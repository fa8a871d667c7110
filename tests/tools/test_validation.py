"""Validation of bundles: agreement of readers, and JSON Schemas of the user."""

import json
import sys

import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.bundle import BundleMissingError
from neuralqx_struct.manifest.text import format_manifest
from tests.builders import ROOT, bounded, document, edit, every, invoke, refused

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


def test_a_manifest_that_cannot_be_read_is_found_once(tmp_path):
    bundle = bundle_of(tmp_path / "ckpt", 5)
    (bundle / "manifest.json").write_text("{")
    assert s.validate(bundle, json_schema=PUBLISHED) == s.validate(bundle) != []


def test_a_bundle_that_carries_another_schema_than_its_own_is_told(tmp_path):
    text = 'language: "1"\nschema: lab.net\nversion: 1\nroot: Net\nstructs: {Net: {fields: {w: int}}}\n'
    bundle = s.load_schema(text).Net(w=1).export(tmp_path / "ckpt")
    edit(bundle, lambda manifest: manifest["schema"].update(id="lab.nets"))
    found = s.validate(bundle)
    assert [(d.code, d.path) for d in found] == [("NQX404", "$.schema.id")]
    assert "lab.net'" in found[0].hint


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
    with refused(s.SchemaError, "NQX616", file):
        s.validate(bundle, json_schema=file)


def test_nothing_is_fetched_from_the_net(tmp_path):
    file = tmp_path / "schema.json"
    file.write_text(json.dumps({"$ref": "https://example.org/schema.json"}))
    bundle = bundle_of(tmp_path / "ckpt", 5)
    with refused(s.SchemaError, "NQX616", "https://example.org/schema.json"):
        s.validate(bundle, json_schema=file)


# --- JSON Schemas that take too long ---------------------------------------------------------------------------------

BOMBS = {
    "references": {
        "definitions": {
            f"a{n}": {"anyOf": [{"$ref": f"#/definitions/a{n + 1}"}] * 2} for n in range(40)
        }
        | {"a40": {"not": {}}},
        "$ref": "#/definitions/a0",
    },
    "twice the next": {
        "definitions": {
            f"a{n}": {"allOf": [{"$ref": f"#/definitions/a{n + 1}"}] * 2} for n in range(30)
        }
        | {"a30": {"type": "object"}},
        "$ref": "#/definitions/a0",
    },
    "itself": {"$ref": "#"},
    "itself, named": {"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": "#"},
    "pattern": {"properties": {"metadata": {"properties": {"x": {"pattern": "^(a+)+$"}}}}},
    "polynomial": {"properties": {"metadata": {"properties": {"x": {"pattern": "a*" * 90 + "b"}}}}},
    "names": {"properties": {"metadata": {"patternProperties": {"^(x+)+$": {"not": {}}}}}},
    "unique": {"properties": {"manifest": {"properties": {"items": {"uniqueItems": True}}}}},
    "deep": {"allOf": []},
}
for _ in range(3000):
    BOMBS["deep"] = {"allOf": [BOMBS["deep"]]}


@every("name", BOMBS)
def test_json_schemas_take_bounded_time(tmp_path, monkeypatch, name):
    monkeypatch.setattr("neuralqx_struct.tools.json_schemas._LEAST_SECONDS", 0.5)
    monkeypatch.setattr("neuralqx_struct.tools.json_schemas._SECONDS_EACH", 0)
    items = [{"__kind__": "path", "value": str(n)} for n in range(5000)]
    data = document({"__kind__": "list", "items": items})
    data["metadata"] = {"x": "a" * 3000 + "!", "x" * 40 + "!": 1}
    path = tmp_path / "manifest.json"
    path.write_bytes(format_manifest(data))
    file = tmp_path / "schema.json"
    sys.setrecursionlimit(20_000)
    try:
        file.write_text(json.dumps(BOMBS[name]))
    finally:
        sys.setrecursionlimit(1000)
    with bounded():
        try:
            found = s.validate(path, json_schema=file)
        except s.SchemaError as error:
            found = error.diagnostics
    assert {d.code for d in found} == {"NQX616"}


def test_the_time_grows_with_the_manifest(tmp_path, monkeypatch):
    monkeypatch.setattr("neuralqx_struct.tools.json_schemas._LEAST_SECONDS", 0)
    bundle = bundle_of(tmp_path / "ckpt", {"__kind__": "list", "items": [1] * 20_000})
    assert s.validate(bundle, json_schema=PUBLISHED) == []


def test_a_member_called_schema_keeps_its_rules(tmp_path):
    path = tmp_path / "manifest.json"
    path.write_bytes(format_manifest({"$schema": "x", **document(5)}))
    file = tmp_path / "schema.json"
    rules = {"properties": {"$schema": {"const": "y"}}, "additionalProperties": True}
    file.write_text(
        json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **rules})
    )
    assert [d.path for d in s.validate(path, json_schema=file)] == ["$['$schema']"]


def test_patterns_of_json_schemas_search(tmp_path):
    path = tmp_path / "manifest.json"
    path.write_bytes(format_manifest(document(5, metadata={"x": "format"})))
    file = tmp_path / "schema.json"
    for pattern, expected in (("orma", 0), ("^orma", 1), ("at$", 0), ("at$|nothing", 0)):
        file.write_text(
            json.dumps({"properties": {"metadata": {"properties": {"x": {"pattern": pattern}}}}})
        )
        assert len(s.validate(path, json_schema=file)) == expected
    file.write_text(json.dumps({"patternProperties": {"^man": {"type": "string"}}}))
    assert [d.path for d in s.validate(path, json_schema=file)] == ["$.manifest"]


def test_foreign_files(tmp_path):
    path = tmp_path / "m.npz"
    np.savez(path, w=np.arange(100.0), b=np.ones(1))
    seen = []
    assert s.verify(path, progress=lambda *done: seen.append(done)) == []
    assert seen == [(800, 808), (808, 808)]
    assert invoke("verify", path).stdout == f"{path}: intact\n"
    path.write_bytes(path.read_bytes()[:-1])
    assert [d.code for d in s.verify(path)] == ["NQX408"]
    assert invoke("verify", path).exit_code == 1


def test_bundles_are_verified_as_bundles(tmp_path):
    path = s.export({"w": np.ones(3)}, tmp_path / "ckpt", store="safetensors")
    assert s.verify(path) == []
    file = path / "arrays.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert [d.code for d in s.verify(path)] == ["NQX407"]
    assert s.verify(file) == [], "the file alone has no checksums"


def test_nothing_and_other_files(tmp_path):
    assert [d.code for d in s.verify(tmp_path / "none")] == ["NQX401"]
    (tmp_path / "notes").write_text("text")
    [found] = s.verify(tmp_path / "notes")
    assert (found.code, "npz, safetensors" in found.message) == ("NQX620", True)
    assert invoke("verify", tmp_path / "none").exit_code == 2
    with pytest.raises(BundleMissingError):
        s.inspect(tmp_path / "none")


def test_loading_a_foreign_file_names_the_command_that_shows_it(tmp_path):
    np.save(tmp_path / "m.npy", np.ones(1))
    with refused(s.SerializationError, "NQX401", tmp_path / "m.npy", "inspect"):
        s.load(tmp_path / "m.npy")
