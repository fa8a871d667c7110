"""Text of files in the output of commands: it steers no terminal, forges no line and no command of a runner."""

import json
import re

import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.cli import reports
from neuralqx_struct.errors import Diagnostic, printable
from neuralqx_struct.manifest.text import format_manifest
from tests.builders import invoke

EVIL = "x\n::error::forged ##[error]forged\x1b[31m\u200f\u202e\u2028\r[red]"
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
FORMATS = ["text", "json", "github", "sarif"]
SCHEMA = {
    "language": "1",
    "schema": "lab.a",
    "version": 1,
    "root": "A",
    "structs": {
        "A": {
            "fields": {"x": {"type": "int", "doc": "d"}},
            "constraints": [{"expr": "x > 5", "message": "m"}],
        }
    },
}


def assert_harmless(done):
    output = done.stdout + done.stderr
    assert not STEERING.search(output), output
    assert not re.search(r"(?m)^\s*(::error::forged|forged)", output), output
    assert "##[" not in output or output.startswith("{"), output


def manifests():
    """Manifests with hostile text in one place each."""
    array = {"__kind__": "array", "name": "w", "dtype": "float32", "shape": [2]}
    record = {"dtype": "float32", "shape": [2]}
    good = {
        "version": 1,
        "manifest": array,
        "arrays": {"w": record},
        "writer": {"name": "n", "version": "1"},
    }
    member = {"__kind__": "enum", "type": "m:A", "name": EVIL}
    nodes = {
        "text": EVIL,
        "key": {"__kind__": "dict", "items": [[EVIL, {"__kind__": "dict", "items": [[EVIL, 1]]}]]},
        "class": {"__kind__": "struct", "type": f"m:{EVIL}", "fields": {}},
        "field": {"__kind__": "struct", "type": "m:A", "fields": {EVIL: 1}},
        "kind": {"__kind__": EVIL},
        "dtype": {**array, "dtype": EVIL},
        "array": {**array, "name": EVIL},
        "member": member,
        "unknown member": {**member, EVIL: 1},
        "reference": {"__kind__": "reference", "name": EVIL},
        "path": {"__kind__": "path", "value": EVIL},
        "key of an implementation": {"__kind__": "prng-key", "impl": EVIL, "data": array},
    }
    for name, node in nodes.items():
        yield name, {**good, "manifest": {"__kind__": "list", "items": [node, array]}}
    yield "metadata", {**good, "metadata": {EVIL: EVIL}}
    yield "writer", {**good, "writer": {"name": EVIL, "version": EVIL}}
    yield "record", {**good, "arrays": {"w": {**record, "dtype": EVIL}, EVIL: record}}
    yield "file", {**good, "arrays": {"w": {**record, "file": EVIL}}}
    yield "identity", {**good, "schema": {"id": EVIL, "version": 1, "fingerprint": EVIL}}
    document = {**SCHEMA, "schema": EVIL}
    identity = {"id": "lab.a", "version": 1, "fingerprint": "x"}
    yield "document", {**good, "schema": identity, "schemas": [document]}


@pytest.mark.parametrize("style", FORMATS)
@pytest.mark.parametrize("command", ["inspect", "validate", "verify", "migrate"])
def test_text_of_a_manifest(tmp_path, command, style):
    for name, manifest in manifests():
        path = tmp_path / name
        path.mkdir()
        (path / "manifest.json").write_bytes(format_manifest(manifest))
        np.savez(path / "arrays.npz", w=np.zeros(2, "float32"))
        more = ["--out", tmp_path / "out", "--to", "1"] if command == "migrate" else []
        done = invoke(command, path, "--format", style, *more)
        assert done.exit_code in (0, 1, 2)
        assert_harmless(done)


def documents():
    """Schema files with hostile text in one place each."""
    fields = SCHEMA["structs"]["A"]["fields"]

    def struct(**members):
        return {**SCHEMA, "structs": {"A": {"fields": fields, **members}}}

    yield {**SCHEMA, "schema": EVIL}
    yield {**SCHEMA, "doc": EVIL}
    yield {**SCHEMA, EVIL: 1}
    yield {**SCHEMA, "root": EVIL}
    yield {**SCHEMA, "enums": {"E": [EVIL]}}
    yield {**SCHEMA, "uses": [EVIL]}
    yield struct(fields={EVIL: "int"})
    yield struct(fields={"x": EVIL})
    yield struct(fields={"x": {"type": "int", "doc": EVIL, "tags": [EVIL], "deprecated": EVIL}})
    yield struct(fields={"x": {"type": "str", "default": EVIL, "choices": ["b"]}})
    yield struct(fields={"x": {"type": "str", "pattern": f"{EVIL}("}})
    yield struct(constraints=[{"expr": EVIL, "message": EVIL}])
    yield {**SCHEMA, "version": 2, "migrations": [{"from": 1, "steps": [{EVIL: {}}]}]}
    yield {
        **SCHEMA,
        "version": 2,
        "migrations": [{"from": 1, "steps": [{"rename": {"field": EVIL, "to": EVIL}}]}],
    }


@pytest.mark.parametrize("style", FORMATS)
@pytest.mark.parametrize("command", ["lint", "show", "history"])
def test_text_of_a_schema(tmp_path, command, style):
    for number, document in enumerate(documents()):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / f"v{document['version']}.json").write_text(json.dumps(document))
        assert_harmless(invoke("schema", command, folder, "--format", style))


@pytest.mark.parametrize("style", FORMATS)
def test_the_message_of_a_constraint(tmp_path, style):
    document = json.loads(json.dumps(SCHEMA).replace('"m"', json.dumps(EVIL)))
    (tmp_path / "v1.json").write_text(json.dumps(document))
    schema = s.load_schema(tmp_path / "v1.json")
    path = schema.A(x=6).export(tmp_path / "ckpt")
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["manifest"]["fields"]["x"] = 1
    (path / "manifest.json").write_bytes(format_manifest(manifest))
    done = invoke("validate", path, "--format", style)
    assert done.exit_code == 1 and "NQX416" in done.stdout
    assert_harmless(done)


@pytest.mark.parametrize("style", FORMATS)
@pytest.mark.parametrize("command", ["inspect", "validate", "verify", "schema lint"])
def test_names_of_files(tmp_path, command, style):
    path = s.export([1, np.zeros(2)], tmp_path / EVIL.replace("/", ""))
    assert_harmless(invoke(*command.split(), path, "--format", style))
    assert_harmless(invoke(*command.split(), f"{path}-{EVIL}", "--format", style))


def test_errors_escape_text_without_a_command():
    finding = Diagnostic("NQX416", "error", EVIL, path=f"$.{EVIL}", file=EVIL, hint=EVIL)
    for each in (finding, Diagnostic("NQX101", "error", EVIL, file=EVIL, line=1, column=1)):
        assert not STEERING.search(str(s.StructError(each)))
        first, *rest = str(each).split("\n")
        assert first.startswith(printable(EVIL)) and all(line.startswith("  ") for line in rest)


@pytest.mark.parametrize("layout", ["lines", "outline", "document"])
def test_reports_escape_text(layout):
    report = reports.Report(f"a\x1b\u200f\n{EVIL}", layout=layout)
    for style in ("text", "github"):
        assert not STEERING.search(reports.FORMATS[style]("x", report))
