"""Options of every command: formats and their schemas, colours, standard input, modules of the working directory."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct import cli
from neuralqx_struct.cli import inputs
from neuralqx_struct.cli.commands import COMMANDS
from neuralqx_struct.cli.commands.schema_json_schema import report_schema
from neuralqx_struct.cli.formats import FORMATS
from neuralqx_struct.cli.printing import show
from neuralqx_struct.cli.report import Report
from neuralqx_struct.cli.terminal import Output, progress_bar
from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.tools import formatting
from neuralqx_struct.tools.formatting import format_schema
from tests.builders import ROOT, bounded, invoke

SCHEMA = ROOT / "schemas" / "vmc_state"
GOLDEN = ROOT / "tests" / "golden" / "format-1" / "vmc_state_1"
PUBLISHED = ROOT / "schemas" / "report" / "1.json"
V1 = """language: "1"
schema: lab.point
version: 1
root: Point
structs:
  Point:
    fields: {x: "float32[n]", step: int}
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


# --- JSON and SARIF ------------------------------------------------------------------------------------------------


def test_the_published_schema_is_that_of_the_commands():
    assert json.loads(PUBLISHED.read_text()) == report_schema()
    jsonschema.Draft202012Validator.check_schema(report_schema())
    printed = json.loads(invoke("schema", "json-schema", "report").stdout)
    assert printed == report_schema()


@pytest.mark.parametrize("which", ["language", "layout", "manifest", "report"])
def test_published_schemas_are_made_without_the_published_files(monkeypatch, which):
    opened = Path.open

    def checked(self, *args, **options):  # a shell empties the file that it writes them into
        assert not self.is_relative_to(ROOT / "schemas")
        return opened(self, *args, **options)

    monkeypatch.setattr(Path, "open", checked)
    assert invoke("schema", "json-schema", which).exit_code == 0


class State(s.Struct):
    w: np.ndarray


CALLS = {
    "validate": ("validate", GOLDEN, "nothing"),
    "verify": ("verify", GOLDEN),
    "inspect": ("inspect", GOLDEN),
    "report": ("report", GOLDEN, "--out", "report.html"),
    "replay": ("replay", GOLDEN),
    "diff": ("diff", SCHEMA / "v1.yaml", SCHEMA / "v3.yaml"),
    "breaking": ("breaking", SCHEMA, "--against", SCHEMA),
    "migrate": ("migrate", GOLDEN, "--out", "migrated", "--schema", SCHEMA),
    "migrate a folder": ("migrate", GOLDEN.parent, "--dry-run", "--schema", SCHEMA),
    "convert": ("convert", GOLDEN, "--out", "converted"),
    "infer": ("infer", GOLDEN),
    "explain": ("explain", "104"),
    "explain everything": ("explain",),
    "explain nothing": ("explain", "999"),
    "schema lint": ("schema", "lint", SCHEMA),
    "schema fmt": ("schema", "fmt", "--check", SCHEMA),
    "schema list": ("schema", "list", ROOT / "schemas"),
    "schema show": ("schema", "show", SCHEMA),
    "schema history": ("schema", "history", SCHEMA),
    "schema json-schema": ("schema", "json-schema", "manifest"),
    "schema new": ("schema", "new", "lab.state"),
    "schema freeze": ("schema", "freeze", SCHEMA),
    "schema export": ("schema", "export", "tests.cli.test_output:State"),
    "schema stub": ("schema", "stub", SCHEMA),
    "schema revision": ("schema", "revision", SCHEMA, "--dry-run"),
    "wrong arguments": ("validate",),
    "no command": ("schema", "nonsense"),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_command_prints_json_that_is_valid(here, name):
    printed = invoke(*CALLS[name], "--format", "json").stdout
    jsonschema.validate(json.loads(printed), json.loads(PUBLISHED.read_text()))


def test_all_commands_are_tested():
    assert COMMANDS.keys() - CALLS.keys() == {"demo"}


# --- closed streams ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CALLS)
def test_every_command_works_with_closed_streams(here, monkeypatch, name):
    words = [str(word) for word in CALLS[name]]
    for folder in ("open", "closed"):
        (here / folder).mkdir()
    monkeypatch.chdir(here / "open")
    expected = invoke(*words).exit_code
    monkeypatch.chdir(here / "closed")
    with monkeypatch.context() as closed:
        for stream in ("stdin", "stdout", "stderr"):
            closed.setattr(sys, stream, None)
        cli._open_streams()  # as main does
        with sys.stdin, sys.stdout, sys.stderr:
            assert cli.call(words) == expected


ONE, ALL = (">&-", "2>&-", "<&-"), ("<&- >&- 2>&-", ">&- 2>&-")


@pytest.mark.parametrize(
    ("words", "code", "closed"),
    [
        *(("schema lint -", 1, closed) for closed in ONE + ALL),
        *(("validate nope", 2, closed) for closed in ONE),
        (f"validate {GOLDEN}", 0, ONE[0]),
        (f"validate {GOLDEN}", 0, ALL[0]),
        (f"inspect {GOLDEN} --format json", 0, ONE[0]),
    ],
)
def test_the_shell_closes_streams(here, words, code, closed):
    program = shlex.join([sys.executable, "-m", "neuralqx_struct"])
    line = f"{program} {words} </dev/null {closed}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=here)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr and "NQX000" not in done.stdout


MANY = 13_000


@pytest.mark.parametrize("style", FORMATS)
def test_reports_of_very_many_findings_are_printed_in_time(style):
    finding = Diagnostic("NQX411", "error", "x, y: 100%\n" * 20, "$.a" * 40, "f:,%", 1, 1, "%" * 99)
    with bounded(8):
        text = FORMATS[style]("validate", Report("z\n" * 10**5, (finding,) * MANY))
    assert text.count("NQX411") >= MANY


# --- colours and amounts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "environment", "coloured"),
    [
        ((), {}, False),
        ((), {"FORCE_COLOR": "1"}, True),
        ((), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
        (("--color", "never"), {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colours(here, monkeypatch, options, environment, coloured):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    (here / "v1.yaml").write_text(V1.replace("int", "innt"))
    done = invoke("schema", "lint", "v1.yaml", *options)
    assert ("\x1b[31m" in done.stdout) is coloured


def test_quiet_leaves_out_verdicts_and_counts(here):
    assert invoke("validate", GOLDEN, "-q").output == ""
    (here / "v1.yaml").write_text(V1.replace("int", "innt"))
    done = invoke("schema", "lint", "v1.yaml", "--quiet")
    assert (done.exit_code, done.stderr, "NQX101" in done.stdout) == (1, "", True)
    assert "$.W_re" in invoke("inspect", GOLDEN, "-q").stdout


def test_quiet_shows_no_progress(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    seen = []

    def body():
        with progress_bar("work") as advance:
            seen.append(advance)
        return Report()

    assert show("x", Output(quiet=True), body) == 0
    assert seen == [None]


def test_verbose_prints_tracebacks_and_time(here):
    done = invoke("validate", GOLDEN, "-v")
    assert done.stderr.startswith("validate: ") and done.stderr.endswith(" s\n")
    assert "Traceback" in invoke("inspect", "nothing", "-v").stderr
    assert "Traceback" not in invoke("inspect", "nothing").stderr


@pytest.mark.parametrize(
    ("words", "text"), [(("-V",), "neuralqx-struct 0."), (("validate", "-h"), "--json-schema")]
)
def test_short_options(words, text):
    done = invoke(*words)
    assert (done.exit_code, text in done.stdout) == (0, True)


# --- standard input ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "file", "text"),
    [
        (("validate", "-"), GOLDEN / "manifest.json", "<stdin>: valid"),
        (("inspect", "-"), GOLDEN / "manifest.json", "<stdin>: format 1"),
        (("infer", "-"), GOLDEN / "manifest.json", "schema: neuralqx.vmc_state"),
        (("schema", "lint", "-"), SCHEMA / "v1.yaml", "<stdin>: no errors"),
        (("schema", "show", "-"), SCHEMA / "v1.yaml", "neuralqx.vmc_state version 1"),
        (("diff", "-", SCHEMA / "v1.yaml"), SCHEMA / "v1.yaml", "no changes"),
        (("validate", GOLDEN, "--schema", "-"), SCHEMA / "v1.yaml", "valid"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_standard_input(words, file, text):
    done = invoke(*words, input=file.read_bytes())
    assert (done.exit_code, text in done.stdout) == (0, True), done.output


def test_findings_about_standard_input_name_it(here):
    done = invoke("schema", "lint", "-", input=V1.replace("int", "innt").encode())
    assert done.stdout.startswith("<stdin>:7:37: NQX101")


def test_standard_input_has_an_end(here, monkeypatch):
    monkeypatch.setattr(inputs, "_MOST_INPUT", 10)
    done = invoke("validate", "-", input=b"x" * 11)
    assert done.exit_code == 2
    assert "expected at most 10 bytes" in done.stderr


# --- modules of the working directory ------------------------------------------------------------------------------

STEPS = """
import neuralqx_struct as s

@s.steps.function("lab.double")
def double(fields):
    return {"step": fields["step"] * 2}
"""
V2 = (
    V1.replace("version: 1", "version: 2")
    + """migrations:
  - from: 1
    steps:
      - python: {function: lab.double, reads: [step], writes: [step], lossy: true}
"""
)


@pytest.fixture
def steps(here):
    (here / "point").mkdir()
    (here / "point" / "v1.yaml").write_text(V1)
    (here / "point" / "v2.yaml").write_text(V2)
    yield "lab_steps_of_test_output"
    sys.modules.pop("lab_steps_of_test_output", None)


def test_trusted_modules_of_the_working_directory(here, steps):
    (here / f"{steps}.py").write_text(STEPS)
    done = invoke("schema", "freeze", "point", "--golden", "--trust", steps)
    assert done.exit_code == 0, done.output
    done = invoke("schema", "lint", "point", "--golden", "--trust", steps)
    assert done.exit_code == 0, done.output
    done = invoke(
        "migrate", "point/golden/v1", "--out", "new", "--schema", "point", "--trust", steps
    )
    assert done.exit_code == 0, done.output


def test_an_import_error_inside_a_trusted_module_is_shown_as_it_is(here, steps):
    s.example(s.load_schema("point").at(1).root).export("old")
    (here / f"{steps}.py").write_text("import no_module_of_this_name\n")
    done = invoke("migrate", "old", "--out", "new", "--schema", "point", "--trust", steps)
    assert done.exit_code == 2
    assert "ModuleNotFoundError: No module named 'no_module_of_this_name'" in done.stderr


# --- fmt and list --------------------------------------------------------------------------------------------------

UNTIDY = """# yaml-language-server: $schema=x

language: '1'   # the language
schema:   lab.point
version: 1
root: Point
structs:
    # the point
    Point:
        fields:
            x:   "float32[n]"  # nqx: ignore[NQX120]

            # counts
            step: {type: int,
                   doc: "a # in quotes"}
# the end
"""
TIDY = """# yaml-language-server: $schema=x

language: "1"  # the language
schema: lab.point
version: 1
root: Point
structs:
  # the point
  Point:
    fields:
      x: float32[n]  # nqx: ignore[NQX120]

      # counts
      step: {type: int, doc: "a # in quotes"}
# the end
"""


def test_fmt(here):
    (here / "v1.yaml").write_text(UNTIDY)
    done = invoke("schema", "fmt", "--check", "v1.yaml")
    assert (done.exit_code, "NQX016" in done.stdout) == (1, True)
    assert (here / "v1.yaml").read_text() == UNTIDY
    done = invoke("schema", "fmt", ".")
    assert (done.exit_code, done.stdout) == (0, "written to v1.yaml\n")
    assert (here / "v1.yaml").read_text() == TIDY
    assert invoke("schema", "fmt", "v1.yaml").stdout == "v1.yaml: in the canonical layout\n"


def test_the_shipped_schemas_have_the_layout_of_fmt():
    done = invoke("schema", "fmt", "--check", ROOT / "schemas")
    assert (done.exit_code, done.stderr) == (0, "")


def test_fmt_leaves_files_with_errors(here):
    (here / "v1.yaml").write_text(UNTIDY.replace("fields", "field"))
    done = invoke("schema", "fmt", "v1.yaml")
    assert done.exit_code == 1
    assert (here / "v1.yaml").read_text() == UNTIDY.replace("fields", "field")


HEAD = V1.partition("structs:")[0] + "structs:\n  Point:\n    fields:\n"
LARGE = {
    "fields": HEAD + "".join(f"      f{n}: int  # {n}\n" for n in range(1500)),
    "comments": "# c\n" * 30_000 + V1,
    "one comment": V1 + "# " * 60_000,
    "quotes": HEAD + "      x: {type: int, doc: '" + "# \\n" * 15_000 + "'}\n",
}


@pytest.mark.parametrize("name", LARGE)
def test_large_files_are_formatted_in_bounded_time(here, name):
    (here / "v1.yaml").write_text(LARGE[name])
    with bounded(8):
        assert invoke("schema", "fmt", "v1.yaml").exit_code == 0
    made = (here / "v1.yaml").read_text()
    assert made.count("#") == LARGE[name].count("#")
    assert invoke("schema", "fmt", "v1.yaml", "--check").exit_code == 0


def test_list(here):
    (here / "schemas" / "point").mkdir(parents=True)
    (here / "schemas" / "point" / "v1.yaml").write_text(V1)
    assert invoke("schema", "list").stdout == "lab.point  versions 1  schemas/point\n"
    assert invoke("schema", "list", "nothing").exit_code == 2


def test_another_meaning_is_never_written(here, monkeypatch):
    other = V1.replace("int", "float")
    monkeypatch.setattr(formatting, "_with_comments", lambda *_, **__: other)
    (here / "v1.yaml").write_text(V1)
    done = invoke("schema", "fmt", "v1.yaml")
    assert (done.exit_code, "expected a layout with the same meaning" in done.stdout) == (1, True)
    assert (here / "v1.yaml").read_text() == V1


def test_comments_behind_long_texts_move_above(here):
    text = V1 + "doc: |  # long\n  some\n\n  text\n"
    made = format_schema(text)
    assert "# long" in made and format_schema(made) == made
    assert format_schema(V1.replace("\n", "\r\n")) == format_schema(V1)


def test_every_schema_of_the_repository_can_be_formatted():
    formatted = 0
    for folder in ("schemas", "tests/suite"):
        for file in (ROOT / folder).rglob("*.yaml"):
            text = file.read_text()
            try:
                made = format_schema(text, str(file))
            except s.SchemaError as error:
                assert error.code != "NQX000"
                continue
            formatted += 1
            assert format_schema(made) == made
            assert made.count("#") == text.count("#")
    assert formatted > 200
