"""Text of files in the output of commands: it steers no terminal, forges no line and no command of a runner."""

import json
import re
import shutil

import numpy as np
import pytest
import yaml

import neuralqx_struct as s
from neuralqx_struct import formats
from neuralqx_struct.cli.commands import COMMANDS
from neuralqx_struct.cli.formats import FORMATS as STYLES
from neuralqx_struct.cli.report import Report
from neuralqx_struct.errors import Diagnostic, printable
from neuralqx_struct.manifest.text import format_manifest
from tests.builders import every, invoke

EVIL = (
    "x\n::error::forged ##[error]forged\x1b[31m\u200f\u202e\u2028\r[red]\u200b\u2060\U000e0041<b>"
)
STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\U000e0000-\U000e007f]"
)
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


def assert_harmless(done, *, coloured=False, lines=True):
    output = done.stdout + done.stderr
    if coloured:
        output = re.sub(r"\x1b\[[0-9;]*m", "", output)
    assert not STEERING.search(output), output
    if not lines:
        return
    assert not re.search(r"(?m)^\s*(: ?:error::)?forged", output), output
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


@every("style", FORMATS)
@every("command", ["inspect", "validate", "verify", "migrate"])
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


@every("style", FORMATS)
@every("command", ["lint", "show", "history"])
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


@every("style", FORMATS)
@every("command", ["inspect", "validate", "verify", "schema lint"])
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


@pytest.mark.parametrize("layout", ["lines", "verdict", "document"])
def test_reports_escape_text(layout):
    report = Report(f"a\x1b\u200f\n{EVIL}", layout=layout)
    for style in ("text", "github"):
        assert not STEERING.search(STYLES[style]("x", report))


@every("name", COMMANDS)
def test_words_of_a_command_line(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    command = COMMANDS[name]
    for hostile in command.all_arguments:
        words = [f"{hostile.flag}={EVIL}"] if hostile.flag else []
        for each in command.arguments:
            if (each.is_required or not words) and (not each.flag or each is not hostile):
                words += filter(None, [each.flag, EVIL if each is hostile else "nowhere"])
        assert_harmless(invoke(*name.split(), *words, *(["--nonsense"] if name == "demo" else [])))


@pytest.mark.parametrize("words", [[EVIL], ["schema", EVIL], ["verify", f"--{EVIL}"]])
def test_words_that_are_no_command(words):
    for style in ([], ["--format", "github"]):
        done = invoke(*words, *style)
        assert done.exit_code == 2
        assert_harmless(done)


FOLDER = EVIL.replace("/", "") + "0" * 100


def hostile_schema(number, **members):
    step = {"rename": {"field": "x", "to": "y"}}
    field = {"type": "float32[n]", "doc": EVIL, "unit": EVIL, "tags": ["a"], "examples": []}
    return {
        "language": "1",
        "schema": "lab.a",
        "version": number,
        "doc": EVIL,
        "root": "A",
        "dims": {"n": {"doc": EVIL}},
        "structs": {
            "A": {
                "doc": EVIL,
                "fields": {
                    ("x", "y")[number - 1]: field,
                    "text": {"type": "str", "default": EVIL, "doc": EVIL},
                    "old": {"type": "int", "default": 1},
                },
                "constraints": [{"expr": "old > 0", "message": EVIL}],
            }
        },
        **({"migrations": [{"from": 1, "steps": [step]}]} if number > 1 else {}),
    }


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A schema, bundles and foreign files that have hostile text wherever it is allowed."""
    folder = tmp_path_factory.mktemp("hostile") / FOLDER
    (folder / "a").mkdir(parents=True)
    for number in (1, 2):
        text = yaml.safe_dump(hostile_schema(number), sort_keys=False)
        (folder / "a" / f"v{number}.yaml").write_text(text)
    old = s.load_schema(folder / "a").at(1)
    data = np.arange(3, dtype="float32")
    old.A(x=data, text=EVIL).export(folder / "runs" / FOLDER, metadata={EVIL: EVIL})
    state = {"w": data}
    doubled = s.replay(lambda state: {EVIL: state["w"] * 2}, state)
    s.export(state, folder / "kept", replay={EVIL: doubled})
    for name, change in (("one", 0), ("two", 1)):
        tree = {EVIL: data + change, "y" * 5000: data, "text": EVIL * (1 + change), 1: {EVIL: [2]}}
        s.export(tree, folder / name, metadata={EVIL: EVIL, "z" * 5000: 1})
        foreign = {EVIL: data + change, "y" * 5000: data}
        formats.write(
            folder / f"{name}.safetensors", "safetensors", foreign, metadata={"format": EVIL}
        )
    return folder


ABOUT_FILES = {
    "validate": ("runs", "one"),
    "validate by a schema": (f"runs/{FOLDER}", "--schema", "a"),
    "verify": ("one", "one.safetensors"),
    "inspect": ("one", "--stats"),
    "inspect all": ("one", "--stats", "--depth", "all"),
    "inspect deep": (f"runs/{FOLDER}", "--depth", "0"),
    "inspect foreign": ("one.safetensors", "--stats"),
    "report": ("one", "--out", "new/page.html"),
    "replay": ("kept",),
    "diff": ("a/v1.yaml", "a/v2.yaml"),
    "diff values": ("one", "two", "--values"),
    "diff foreign": ("one.safetensors", "two.safetensors", "--values"),
    "breaking": ("a", "--against", f"runs/{FOLDER}"),
    "migrate": (f"runs/{FOLDER}", "--out", "new/migrated", "--schema", "a"),
    "migrate all": ("runs", "--out", "new/all", "--schema", "a"),
    "convert": ("one", "--out", "new/one.zip"),
    "infer": ("one",),
    "infer foreign": ("one.safetensors", "--id", "lab.b", "--out", "new/b"),
    "schema lint": ("a", "--file", "one.safetensors"),
    "schema fmt": ("a", "--check"),
    "schema list": (".",),
    "schema show": ("a",),
    "schema history": ("a",),
    "schema stub": ("a",),
    "schema json-schema": ("a",),
    "schema new": ("lab.c", "--in", "new"),
    "schema freeze": ("a", "--golden"),
    "schema revision": ("a", "--edited", "a/v2.yaml", "--against", "a/v1.yaml", "--dry-run"),
}


@pytest.mark.parametrize("style", [("text", "--color", "always"), ("github",)], ids=lambda s: s[0])
@pytest.mark.parametrize("name", ABOUT_FILES)
def test_every_command_about_hostile_files(hostile, tmp_path, monkeypatch, name, style):
    monkeypatch.chdir(shutil.copytree(hostile, tmp_path / FOLDER))
    command = next(each for each in COMMANDS if name.startswith(each))
    done = invoke(*command.split(), *ABOUT_FILES[name], "--format", *style)
    assert done.exit_code in (0, 1) and done.stdout, done.output
    is_file = name in ("schema stub", "schema revision")  # their texts may have any lines
    assert_harmless(done, coloured="always" in style, lines=not is_file)
    if name == "inspect":
        assert max(map(len, done.stdout.splitlines())) < 500


def test_all_commands_are_tested():
    tested = {command for command in COMMANDS for name in ABOUT_FILES if name.startswith(command)}
    assert COMMANDS.keys() - tested == {"demo", "explain", "schema export"}
