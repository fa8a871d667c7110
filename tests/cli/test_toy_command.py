"""A command that the package does not have, added as one record: call, formats, help and completion know it."""

import json

import pytest
import typer
from typer.testing import CliRunner

from neuralqx_struct.cli.arguments import Argument, choice
from neuralqx_struct.cli.commands import Command, plain_values, run_plain
from neuralqx_struct.cli.parser import build_app
from neuralqx_struct.cli.results import Report
from neuralqx_struct.cli.table import COMMANDS, find_command
from neuralqx_struct.errors import Diagnostic


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
    arguments=(Argument("path", "A file.", "PATH"), choice("unit", "The unit.", "bytes", "lines")),
    examples=("schema count data.txt",),
    members=("number",),
)


@pytest.fixture(autouse=True)
def app(monkeypatch):
    monkeypatch.setitem(COMMANDS, TOY.name, TOY)
    return build_app()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"a\nb\n")
    return path


def invoke(app, *words, **environment):
    return CliRunner().invoke(app, [str(word) for word in words], env=environment)


def test_text(app, file, capsys):
    done = invoke(app, "schema", "count", file, "--unit", "lines")
    assert (done.exit_code, done.stdout) == (0, "2 lines\n")
    assert run_plain(*find_command(["schema", "count", str(file)])) == 0
    assert capsys.readouterr().out == "4 bytes\n"


def test_json(app, file):
    data = json.loads(invoke(app, "schema", "count", file, "--format", "json").stdout)
    assert data == {
        "version": 1,
        "command": "schema count",
        "ok": True,
        "diagnostics": [],
        "number": 4,
    }


def test_annotations_and_exit_codes(app, file, tmp_path):
    file.write_bytes(b"")
    done = invoke(app, "schema", "count", file, "--format", "github")
    assert (done.exit_code, done.stdout.startswith("::error file=")) == (1, True)
    assert invoke(app, "schema", "count", tmp_path / "nothing").exit_code == 2
    refused = invoke(app, "schema", "count", file, "--unit", "pages")
    assert refused.exit_code == 2
    assert "expected bytes or lines, got 'pages'" in refused.stderr
    assert plain_values(TOY, ["x", "--unit", "pages"]) is None


def test_help(app):
    shown = invoke(app, "schema", "--help").stdout
    assert "count" in shown and TOY.help in shown
    shown = invoke(app, "schema", "count", "--help").stdout
    assert "--unit bytes|lines" in shown and "A file." in shown
    assert shown.startswith("Usage: neuralqx-struct schema count PATH [--unit bytes|lines]\n")
    assert shown.endswith("Examples:\n  neuralqx-struct schema count data.txt\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [("neuralqx-struct schema co", "count"), ("neuralqx-struct schema count x --unit l", "lines")],
)
def test_completion(app, words, expected):
    typer.completion.completion_init()
    environment = {
        "_NEURALQX_STRUCT_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    done = CliRunner().invoke(app, [], env=environment, prog_name="neuralqx-struct")
    assert expected in done.stdout.split()


def test_a_missing_member_is_an_error_at_import():
    with pytest.raises(TypeError, match="examples.*members"):
        Command(name="x", function="x", run=count, help="x", arguments=())
