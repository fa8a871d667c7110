"""Validation and inspection of bundles, without JAX and without array bytes."""

import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from neuralqx_struct import bundle, formats
from neuralqx_struct.bundle import BundleMissingError
from neuralqx_struct.errors import Diagnostic, SchemaError, SerializationError
from neuralqx_struct.filters import FilterError
from neuralqx_struct.manifest.payload import Payload
from neuralqx_struct.manifest.text import format_manifest
from neuralqx_struct.schema.lock import payload_fingerprint
from neuralqx_struct.schema.reading import parse_document
from neuralqx_struct.schema.series import load_series
from neuralqx_struct.schema.text.loader import read_text
from neuralqx_struct.tools.inspection import inspect
from neuralqx_struct.tools.validation import validate
from tests.builders import ARRAY, EVERY_KIND, bounded, every, refused

V1 = """
language: "1"
schema: lab.point
version: 1
root: Point
dims: {n: {min: 1}}
enums: {Colour: [red, green]}
structs:
  Inner: {fields: {key: "prng_key[threefry2x32]", b: {type: "float32[n]", tags: [trainable, small]}}}
  Point:
    fields:
      x: {type: "float32[n]", tags: [trainable]}
      step: int
      colour: {type: Colour, kind: static}
      inner: Inner
"""
V2 = V1.replace("version: 1", "version: 2").replace(
    "step: int", "step: int\n      lr: {type: float, default: 0.1}"
)


def document_of(text):
    return parse_document(read_text(text))


def array(name, dtype="float32", shape=(3,)):
    return {
        "__kind__": "array",
        "name": name,
        "dtype": dtype,
        "shape": list(shape),
        "leaf": "numpy",
    }


def tree():
    ref = "lab.point@1:"
    key = {"__kind__": "prng-key", "impl": "threefry2x32", "data": array("key", "uint32", (2,))}
    inner = {"__kind__": "struct", "type": f"{ref}Inner", "fields": {"key": key, "b": array("b")}}
    fields = {"x": array("x"), "step": 7, "colour": "red", "inner": inner}
    return {"__kind__": "struct", "type": f"{ref}Point", "fields": fields}


ARRAYS = {
    "x": np.arange(3, dtype="float32"),
    "b": np.ones(3, "float32"),
    "key": np.zeros(2, "uint32"),
}


def document(root=None, schema=V1, *, carried=True, **members):
    root = tree() if root is None else root
    written = document_of(schema)
    identity = {
        "id": written.id,
        "version": written.version,
        "fingerprint": payload_fingerprint(written),
    }
    records = {name: {"dtype": str(a.dtype), "shape": list(a.shape)} for name, a in ARRAYS.items()}
    travelling = {"schemas": [written.to_data()]} if carried else {}
    data = {"version": 1, "schema": identity, **travelling, "manifest": root, "arrays": records}
    return {
        **data,
        "metadata": {"run": 7},
        "writer": {"name": "neuralqx-struct", "version": "0.1.0"},
        **members,
    }


@pytest.fixture
def ckpt(tmp_path):
    return bundle.write(tmp_path / "ckpt", Payload(document(), ARRAYS))


def edited(path, change, *, seal=True):
    """Edit a manifest by hand."""
    file = path / "manifest.json"
    data = json.loads(file.read_text())
    change(data)
    file.write_text(json.dumps(data))
    if seal:
        body = format_manifest({k: v for k, v in data.items() if k != "digest"})
        file.write_bytes(body)
    return path


def codes(findings):
    return sorted({d.code for d in findings})


def test_a_sound_bundle_has_no_findings(ckpt, tmp_path):
    (tmp_path / "v1.yaml").write_text(V1)
    (tmp_path / "v2.yaml").write_text(V2)
    assert validate(ckpt) == []
    assert validate(str(ckpt)) == []
    assert validate(ckpt / "manifest.json") == []
    assert validate(ckpt, tmp_path / "v1.yaml") == []
    assert validate(ckpt, load_series(V1)) == []


def test_a_zip_is_validated_like_a_folder(tmp_path):
    path = bundle.write(tmp_path / "ckpt.zip", Payload(document(), ARRAYS))
    assert validate(path) == []
    assert inspect(path).arrays == 3


def test_an_older_bundle_is_held_to_its_own_version(ckpt, tmp_path):
    folder = tmp_path / "schema"
    folder.mkdir()
    (folder / "v1.yaml").write_text(V1)
    (folder / "v2.yaml").write_text(V2)
    assert validate(ckpt, folder) == []
    (finding,) = validate(ckpt, load_series(V2))  # version 1 travels inside, but was not asked for
    assert (finding.code, finding.path) == ("NQX404", "$.schema.version")
    assert "(2)" in finding.message and finding.hint


def test_plain_python_objects_need_no_schema(tmp_path):
    node = {"__kind__": "list", "items": [1, array("x")]}
    data = {"version": 1, "manifest": node, "arrays": {"x": {"dtype": "float32", "shape": [3]}}}
    path = bundle.write(tmp_path / "plain", Payload(data, {"x": ARRAYS["x"]}))
    assert validate(path) == []
    (finding,) = validate(path, load_series(V1))
    assert (finding.code, finding.path) == ("NQX404", "$.schema")


WRONG = [
    ("NQX411", "$.x", "got float64[3]", lambda d: [n.update(dtype="float64") for n in (d["manifest"]["fields"]["x"], d["arrays"]["x"])]),
    ("NQX413", "$.inner.b", "n=4", lambda d: [n.update(shape=[4]) for n in (d["manifest"]["fields"]["x"], d["arrays"]["x"])]),
    ("NQX411", "$.step", "expected int", lambda d: d["manifest"]["fields"].update(step="7")),
    ("NQX421", "$.colour", "red, green", lambda d: d["manifest"]["fields"].update(colour="blue")),
    ("NQX414", "$.step", "got none", lambda d: d["manifest"]["fields"].pop("step")),
    ("NQX415", "$.extra", "'extra'", lambda d: d["manifest"]["fields"].update(extra=1)),
    ("NQX411", "$", "lab.point@1:Point", lambda d: d.update(manifest={"__kind__": "list", "items": []})),
    ("NQX411", "$", "lab.point@1:Point", lambda d: d["manifest"].update(type="other.mod:Thing")),
    ("NQX411", "$", "'Gone'", lambda d: d["manifest"].update(type="lab.point@1:Gone")),
    ("NQX412", "$.x", "in the record", lambda d: d["arrays"]["x"].update(shape=[4])),
    ("NQX411", "$.arrays['x'].dtype", "flaot32", lambda d: [n.update(dtype="flaot32") for n in (d["manifest"]["fields"]["x"], d["arrays"]["x"])]),
    ("NQX405", "$.schema.fingerprint", "own document", lambda d: d["schema"].update(fingerprint="sha256:" + "0" * 64)),
    ("NQX404", "$.schema.version", "got 3", lambda d: d["schema"].update(version=3)),
    ("NQX404", "$.schema.version", "none", lambda d: d.update(schemas=[])),
    ("NQX009", "$.schemas[0].strutcs", "strutcs", lambda d: d["schemas"][0].update(strutcs={})),
    ("NQX303", "$.schemas", "version 1", lambda d: d["schemas"].append(d["schemas"][0])),
    ("NQX101", "$.schemas", "got 'intt'", lambda d: d["schemas"][0]["structs"]["Point"]["fields"].update(step="intt")),
    ("NQX610", "$", "'manifest'", lambda d: d.pop("manifest")),
    ("NQX402", "$.version", "upgrade", lambda d: d.update(version=2)),
    ("NQX613", "$.manifest.fields.x.__kind__", "arrray", lambda d: d["manifest"]["fields"]["x"].update(__kind__="arrray")),
]  # fmt: skip


@pytest.mark.parametrize("case", WRONG, ids=lambda case: f"{case[0]}-{case[2]}"[:30])
def test_everything_wrong_is_found_at_its_place(ckpt, case):
    code, place, part, change = case
    findings = validate(edited(ckpt, change))
    mine = [d for d in findings if d.code == code]
    assert mine, "\n".join(map(str, findings))
    assert any(d.path.startswith(place) and part in f"{d.message}\n{d.hint}" for d in mine), (
        "\n".join(map(str, mine))
    )
    assert {d.file for d in findings} == {str(ckpt)}


def test_several_problems_come_at_once(ckpt):
    def change(d):
        d["manifest"]["fields"].update(step="7", colour="blue", extra=1)

    assert codes(validate(edited(ckpt, change))) == ["NQX411", "NQX415", "NQX421"]


def test_an_edit_without_a_new_digest_hides_nothing(ckpt):
    edited(ckpt, lambda d: d["manifest"]["fields"].update(step="7"), seal=False)
    assert codes(validate(ckpt)) == ["NQX407", "NQX411"]
    assert codes(validate(ckpt / "manifest.json")) == ["NQX407", "NQX411"]


def test_another_schema_than_the_wanted_one(ckpt):
    (finding,) = validate(ckpt, load_series(V1.replace("lab.point", "lab.other")))
    assert (finding.code, finding.path) == ("NQX404", "$.schema.id")


def test_the_wanted_schema_wins_over_the_one_inside(ckpt):
    (finding,) = validate(ckpt, load_series(V1.replace("step: int", "step: float")))
    assert finding.code == "NQX405"
    assert "the given schema" in finding.message


def test_a_schema_may_come_as_an_object_with_a_series(ckpt):
    class Schema:
        series = load_series(V1)

    assert validate(ckpt, Schema()) == []


def test_a_wanted_schema_that_means_nothing_is_a_finding(ckpt):
    findings = validate(ckpt, load_series(V1.replace("step: int", "step: intt")))
    assert [(d.code, d.line) for d in findings] == [("NQX101", 13)]


def test_structs_inside_plain_containers_are_held_to_their_schema(tmp_path):
    root = {"__kind__": "dict", "items": [["a", tree()]]}
    root["items"][0][1]["fields"]["step"] = "7"
    data = document(root)
    del data["schema"]
    path = bundle.write(tmp_path / "many", Payload(data, ARRAYS))
    (finding,) = validate(path)
    assert (finding.code, finding.path) == ("NQX411", "$['a'].step")


def test_a_struct_that_is_not_the_root_may_be_saved_alone(tmp_path):
    root = tree()["fields"]["inner"]
    data = document(root)
    del data["arrays"]["x"]
    path = bundle.write(
        tmp_path / "inner", Payload(data, {k: v for k, v in ARRAYS.items() if k != "x"})
    )
    assert validate(path) == []


@pytest.mark.parametrize("function", [validate, inspect])
def test_a_missing_path_is_raised(tmp_path, function):
    with pytest.raises(BundleMissingError):
        function(tmp_path / "nothing")


def test_a_schema_that_cannot_be_read_is_raised(ckpt, tmp_path):
    (tmp_path / "v1.yaml").write_text("a: [")
    with pytest.raises(SchemaError):
        validate(ckpt, tmp_path / "v1.yaml")


@pytest.mark.parametrize("wanted", [None, load_series(V1)])
@pytest.mark.parametrize(
    ("drop", "ref", "code"),
    [
        (("schema",), "lab.point@1:Point", "NQX411"),
        (("schema",), "lab.point@1:Gone", "NQX411"),
        (("schema",), "lab.point@9:Point", "NQX404"),
        (("schema",), f"lab.point@{'9' * 5000}:Point", "NQX501"),
        (("schema", "schemas"), "lab.point@1:Point", {None: "NQX404", "lab.point": "NQX411"}),
        (("schema", "schemas"), "lab.point@9:Point", "NQX404"),
        ((), "lab.point@9:Point", "NQX411"),
        ((), "os:system", "NQX411"),
    ],
)
def test_a_struct_is_found_by_its_reference_where_the_manifest_names_no_schema(
    ckpt, drop, ref, code, wanted
):
    def change(d):
        for name in drop:
            del d[name]
        d["manifest"]["type"] = ref
        d["manifest"]["fields"]["step"] = "7"

    found = codes(validate(edited(ckpt, change), wanted))
    assert found == [code[getattr(wanted, "id", None)] if isinstance(code, dict) else code]


def test_a_bundle_without_schemas_says_what_is_missing(ckpt):
    (finding,) = validate(edited(ckpt, lambda d: [d.pop("schema"), d.pop("schemas")]))
    assert (finding.path, finding.message) == (
        "$",
        "expected a known version of lab.point, got 1 (none is known)",
    )
    assert "`schema` and `schemas`" in finding.hint


def _cut(file):
    file.write_bytes(file.read_bytes()[:100])


def _folder(file):
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    ("damage", "code", "part"),
    [
        (lambda file: file.unlink(), "NQX409", "got none"),
        (lambda file: file.write_bytes(b""), "NQX408", "got 0"),
        (_cut, "NQX408", "got 100"),
        (_folder, "NQX504", "file"),
        (
            lambda file: file.rename(file.with_name("x")) and file.symlink_to("x"),
            "NQX504",
            "file",
        ),
    ],
)
def test_array_files_must_be_there_and_long_enough(ckpt, damage, code, part):
    damage(ckpt / "arrays.npz")
    (finding,) = validate(ckpt)
    assert (finding.code, finding.file) == (code, str(ckpt / "arrays.npz"))
    assert part in finding.message
    assert validate(ckpt / "manifest.json") == []  # by itself it says nothing about files


def test_a_zip_without_its_array_file_is_found_out(tmp_path):
    path = bundle.write(tmp_path / "ckpt.zip", Payload(document(), ARRAYS))
    with zipfile.ZipFile(path) as archive:
        manifest = archive.read("manifest.json")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", manifest)
    assert codes(validate(path)) == ["NQX409"]


def test_array_bytes_are_not_read(ckpt):
    file = ckpt / "arrays.npz"
    file.write_bytes(b"\0" * file.stat().st_size)
    assert validate(ckpt) == []


def test_text_that_cannot_be_parsed_is_placed_in_the_manifest(ckpt):
    (ckpt / "manifest.json").write_text('{"version": 1,\n "manifest": }')
    for path in (ckpt, ckpt / "manifest.json"):
        (finding,) = validate(path)
        assert (finding.file, finding.line) == (str(ckpt / "manifest.json"), 2)


def test_no_bundle_is_a_finding(tmp_path):
    assert codes(validate(tmp_path)) == ["NQX401"]
    (tmp_path / "manifest.json").write_text("{")
    assert codes(validate(tmp_path)) == ["NQX001"]


# ---------------------------------------------------------------------------------------------------------------------
# Inspection.


def test_an_inspection_shows_every_value_once(ckpt):
    seen = inspect(ckpt)
    assert [(row.path, row.type) for row in seen.rows] == [
        ("$", "Point"),
        ("$.x", "float32[3]"),
        ("$.step", "int"),
        ("$.colour", "str"),
        ("$.inner", "Inner"),
        ("$.inner.key", "prng_key[threefry2x32]"),
        ("$.inner.b", "float32[3]"),
    ]
    assert (seen.arrays, seen.nbytes, seen.metadata, seen.schema["version"]) == (
        3,
        32,
        {"run": 7},
        1,
    )


def test_rows_carry_what_the_schema_says(ckpt):
    rows = {row.path: row for row in inspect(ckpt).rows}
    assert rows["$.inner.b"].tags == ("small", "trainable")
    assert rows["$.colour"].kind == "static"
    assert rows["$.step"].value == "7"


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("tag:trainable", ["$.x", "$.inner.b"]),
        ("tag:trainable & !path:inner/*", ["$.x"]),
        ("dtype:floating", ["$.x", "$.inner.b"]),
        ("kind:static", ["$.colour"]),
        ("type:int", ["$.step"]),
        ("none", []),
    ],
)
def test_a_filter_chooses_leaves(ckpt, text, paths):
    assert [row.path for row in inspect(ckpt, text).rows] == paths


def test_a_filter_may_be_a_predicate(ckpt):
    assert [row.path for row in inspect(ckpt, lambda path, _: path[-1:] == ("step",)).rows] == [
        "$.step"
    ]


def test_a_wrong_filter_is_raised(ckpt):
    with refused(ValueError, "NQX010", "foo:bar"):
        inspect(ckpt, "foo:bar")


def test_the_table_is_readable(ckpt):
    lines = str(inspect(ckpt)).splitlines()
    assert lines[0] == f"{ckpt}: format 1, written by neuralqx-struct 0.1.0"
    assert lines[1].startswith("schema lab.point version 1 (sha256:")
    assert lines[2] == "metadata run: 7"
    assert lines[4] == "  $.x          float32[3]              12 B  trainable"
    assert lines[6] == "  $.colour     str = 'red' (static)"
    assert lines[-1] == "7 nodes, 3 arrays, 32 B"


def test_the_record_is_plain_json(ckpt):
    data = json.loads(json.dumps(inspect(ckpt).to_json()))
    assert data["rows"][1] == {
        "path": "$.x",
        "depth": 1,
        "type": "float32[3]",
        "value": "",
        "nbytes": 12,
        "tags": ["trainable"],
        "kind": "node",
        "statistics": None,
    }


def test_every_kind_of_node_is_described(tmp_path):
    nodes = {
        "null": None,
        "bool": True,
        "complex": {"__kind__": "complex", "real": 1.0, "imag": 2.0},
        "path": {"__kind__": "path", "value": "a/b"},
        "numpy float32": {"__kind__": "numpy-scalar", "dtype": "float32", "value": 1.5},
        "bytes": {"__kind__": "bytes", "base64": "AAAA"},
        "float": {"__kind__": "float", "value": "nan"},
        "int": {"__kind__": "bigint", "value": "123"},
        "Colour": {"__kind__": "enum", "type": "m:Colour", "name": "RED"},
        "dtype": {"__kind__": "dtype", "value": "float32"},
        "slice": {"__kind__": "slice", "start": None, "stop": 3, "step": None},
        "date": {"__kind__": "datetime", "type": "date", "value": "2020-01-01"},
        "float32[2, 2]": {"__kind__": "full", "dtype": "float32", "shape": [2, 2], "value": 0.0},
        "tuple of 1": {"__kind__": "tuple", "items": [1]},
        "P": {"__kind__": "namedtuple", "type": "m:P", "fields": {"a": 1}},
    }
    root = {"__kind__": "list", "items": list(nodes.values())}
    path = bundle.write(
        tmp_path / "all", Payload({"version": 1, "manifest": root, "arrays": {}}, {})
    )
    rows = [row for row in inspect(path).rows if row.depth == 1]
    assert [row.type for row in rows] == list(nodes)


def test_a_shared_array_counts_once(tmp_path):
    root = {"__kind__": "list", "items": [array("x"), array("x")]}
    data = {"version": 1, "manifest": root, "arrays": {"x": {"dtype": "float32", "shape": [3]}}}
    seen = inspect(bundle.write(tmp_path / "shared", Payload(data, {"x": ARRAYS["x"]})))
    assert (len(seen.rows), seen.arrays, seen.nbytes) == (3, 1, 12)


def test_a_bundle_of_neuralqx_is_inspected_too(tmp_path):
    records = {"a0": {"dtype": "float32", "shape": [3]}, "a1": {"dtype": "<U5", "shape": [2]}}
    items = [{"__kind__": "array", "name": n, **r} for n, r in records.items()]
    data = {"version": 1, "manifest": {"__kind__": "list", "items": items}, "arrays": records}
    folder = tmp_path / "old"
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps(data))
    seen = inspect(folder)
    assert (seen.writer, seen.nbytes) == (None, 12 + 40)
    assert "a neuraLQX bundle" in str(seen)


def test_a_broken_schema_inside_does_not_keep_anyone_from_looking(ckpt):
    seen = inspect(edited(ckpt, lambda d: d["schemas"][0].update(strutcs={})))
    assert [row.tags for row in seen.rows if row.path == "$.x"] == [()]


def test_a_damaged_manifest_is_raised(ckpt):
    edited(ckpt, lambda d: d["manifest"]["fields"].update(step="7"), seal=False)
    with refused(SerializationError, "NQX407"):
        inspect(ckpt)


def test_a_zip_with_a_wrong_digest_is_a_finding(tmp_path):
    path = bundle.write(tmp_path / "ckpt.zip", Payload(document(), ARRAYS))
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data.replace(b'"run": 7', b'"run": 8'))
    findings = validate(path)
    assert codes(findings) == ["NQX407"]
    assert all(isinstance(d, Diagnostic) for d in findings)


@every("node", EVERY_KIND)
def test_every_kind_of_node_has_a_row(tmp_path, node):
    arrays = {"w": np.zeros((2, 3), np.float32)}
    record = {"w": {"dtype": "float32", "shape": [2, 3]}}
    list_of_both = {"__kind__": "list", "items": [ARRAY, node]}
    path = bundle.write(
        tmp_path / "c", Payload({"version": 1, "manifest": list_of_both, "arrays": record}, arrays)
    )
    row = next(row for row in inspect(path).rows if row.path == "$[1]")
    assert row.type and str(inspect(path)).count("\n") >= 4


def test_inspections_of_deep_and_wide_bundles_take_bounded_time(tmp_path, monkeypatch):
    monkeypatch.setattr("neuralqx_struct.tools.inspection._MOST_CHARACTERS", 1_000_000)
    node = {"__kind__": "list", "items": [1] * 50_000}
    for _ in range(190):
        node = {"__kind__": "dict", "items": [["key", node]]}
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({"version": 1, "manifest": node, "arrays": {}}))
    with bounded():
        shown = inspect(path)
    assert len(shown.rows) + shown.omitted == 50_191
    assert sum(len(row.path) for row in shown.rows) < 1_010_000
    assert f"(and {shown.omitted} that are not listed)" in str(shown)


def test_foreign_files_are_named_with_their_arrays(tmp_path):
    path = tmp_path / "m.safetensors"
    arrays = {"encoder.0.w": np.zeros((2, 3), np.float32), "b": np.ones(4, np.int8)}
    formats.write(path, "safetensors", arrays, metadata={"format": "pt"})
    record = inspect(path)
    assert (record.format, record.version, record.arrays, record.nbytes) == (
        "safetensors",
        None,
        2,
        28,
    )
    assert str(record).splitlines() == [
        f"{path}: a safetensors file",
        "metadata format: 'pt'",
        "  encoder.0.w  float32[2, 3]  24 B",
        "  b            int8[4]         4 B",
        "2 nodes, 2 arrays, 28 B",
    ]
    assert record.to_json()["format"] == "safetensors"
    assert [row.path for row in inspect(path, "path:encoder/**").rows] == ["encoder.0.w"]
    assert [row.path for row in inspect(path, "dtype:int8").rows] == ["b"]
    with refused(FilterError, "NQX426"):
        inspect(path, "path:decoder/**")


def test_plain_values_of_foreign_files_are_shown(tmp_path, monkeypatch):
    def opened(path, reading):
        return formats.ForeignFile(path=str(path), format="npy", arrays={}, values={"step": 7})

    path = tmp_path / "a.npy"
    np.save(path, np.ones(1))
    monkeypatch.setitem(formats.FORMATS, "npy", replace(formats.FORMATS["npy"], opened=opened))
    assert "  step  int = 7" in str(inspect(path)).splitlines()


def test_names_of_foreign_files_are_escaped(tmp_path):
    path = formats.write(tmp_path / "m.safetensors", "safetensors", {"\x1b[2J\n::x": np.ones(1)})
    assert "\x1b" not in str(inspect(path))
    assert "\\x1b[2J\\n::x" in str(inspect(path))


def test_a_file_of_no_kind_is_an_error_that_names_the_kinds(tmp_path):
    (tmp_path / "notes").write_text("text")
    with refused(SerializationError, "NQX620", "npz, safetensors"):
        inspect(tmp_path / "notes")


@pytest.mark.parametrize("store", ["npz", "safetensors"])
def test_array_files_of_bundles_are_files_too(tmp_path, store):
    path = bundle.write(tmp_path / "ckpt", Payload(document(), ARRAYS), store=store)
    assert inspect(path).format is None
    [file] = path.glob("arrays.*")
    assert (inspect(file).format, inspect(file).arrays) == (store, 3)
