"""A command that the package does not have, added as a module and its name: call, formats, help and completion know it."""

import json
import sys
from types import SimpleNamespace

import pytest

from neuralqx_struct.cli.arguments import choice, path
from neuralqx_struct.cli.command import Command
from neuralqx_struct.cli.commands import COMMANDS
from neuralqx_struct.cli.report import Report
from neuralqx_struct.errors import Diagnostic
from tests.builders import completed, invoke


def count(path, unit):
    """Counts the bytes or lines of a file."""
    data = path.read_bytes()
    number = len(data) if unit == "bytes" else data.count(b"\n")
    found = () if data else (Diagnostic("NQX400", "error", "expected bytes", file=str(path)),)
    return Report(f"{number} {unit}", found, {"number": number})


TOY = Command(
    name="schema count",
    function="tests.cli.test_toy_command.count",
    run=count,
    help="Count the bytes of a file.",
    arguments=(path("path", "A file.", "PATH"), choice("unit", "The unit.", "bytes", "lines")),
    examples=("schema count data.txt",),
    members=("number",),
)


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    module = f"{COMMANDS.__module__}.schema_count"
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(COMMAND=TOY))
    monkeypatch.setattr(COMMANDS, "names", [*COMMANDS.names, TOY.name])


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"a\nb\n")
    return path


def test_text(file):
    done = invoke("schema", "count", file, "--unit", "lines")
    assert (done.exit_code, done.stdout) == (0, "2 lines\n")
    assert invoke("schema", "count", file).stdout == "4 bytes\n"


def test_json(file):
    data = json.loads(invoke("schema", "count", file, "--format", "json").stdout)
    assert data == {
        "version": 1,
        "command": "schema count",
        "ok": True,
        "diagnostics": [],
        "number": 4,
    }


def test_annotations_and_exit_codes(file, tmp_path):
    file.write_bytes(b"")
    done = invoke("schema", "count", file, "--format", "github")
    assert (done.exit_code, done.stdout.startswith("::error file=")) == (1, True)
    assert invoke("schema", "count", tmp_path / "nothing").exit_code == 2
    refused = invoke("schema", "count", file, "--unit", "pages")
    assert refused.exit_code == 2
    assert "expected bytes or lines, got 'pages'" in refused.stderr


def test_help():
    shown = invoke("schema", "--help").stdout
    assert "count" in shown and TOY.help in shown
    shown = invoke("schema", "count", "--help").stdout
    assert "--unit bytes|lines" in shown and "A file." in shown
    assert shown.startswith("usage: neuralqx-struct schema count PATH [--unit bytes|lines]\n")
    assert shown.endswith("Examples:\n  neuralqx-struct schema count data.txt\n")


def test_completion(file):
    assert completed("bash", "schema co", file.parent) == ["count"]
    assert completed("bash", "schema count x --unit l", file.parent) == ["lines"]
    assert completed("bash", "schema count f", file.parent) == ["file"]


def test_a_missing_member_is_an_error_at_import():
    with pytest.raises(TypeError, match="examples"):
        Command(name="x", function="x", run=count, help="x", arguments=())
