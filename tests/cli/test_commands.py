"""The command line: exit codes, the three formats, messages, and what is not imported."""

import io
import json
import os
import platform
import re
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.cli import demo
from neuralqx_struct.cli.commands import schema_show
from neuralqx_struct.cli.crash import hidden
from neuralqx_struct.cli.formats import FORMATS
from neuralqx_struct.cli.report import Report, could_not_run
from neuralqx_struct.cli.terminal import progress_bar
from neuralqx_struct.errors import Diagnostic, SerializationError
from neuralqx_struct.manifest.payload import Payload
from neuralqx_struct.schema.lock import payload_fingerprint
from neuralqx_struct.schema.reading import parse_document
from neuralqx_struct.schema.text.loader import read_text
from tests.builders import POINT_V1, POINT_V2, ROOT, every, invoke, report

VALID = "valid (arrays not read: verify reads them)"
SCHEMAS = ROOT / "schemas"


@pytest.fixture
def schema(tmp_path):
    folder = tmp_path / "schema"
    folder.mkdir()
    (folder / "v1.yaml").write_text(POINT_V1)
    (folder / "v2.yaml").write_text(POINT_V2)
    return folder


def write_bundle(path, **members):
    document = parse_document(read_text(POINT_V1))
    node = {"__kind__": "array", "name": "x", "dtype": "float32", "shape": [3], "leaf": "numpy"}
    data = {
        "version": 1,
        "schema": {"id": document.id, "version": 1, "fingerprint": payload_fingerprint(document)},
        "schemas": [document.to_data()],
        "manifest": {
            "__kind__": "struct",
            "type": "lab.point@1:Point",
            "fields": {"x": node, "step": 7},
        },
        "arrays": {"x": {"dtype": "float32", "shape": [3]}},
        "writer": {"name": "neuralqx-struct", "version": "0.1.0"},
        **members,
    }
    return bundle.write(path, Payload(data, {"x": np.arange(3, dtype="float32")}))


@pytest.fixture
def ckpt(tmp_path):
    return write_bundle(tmp_path / "ckpt")


def edit(ckpt, old, new):
    file = ckpt / "manifest.json"
    file.write_bytes(file.read_bytes().replace(old, new))
    bundle.seal(ckpt)


# ---------------------------------------------------------------------------------------------------------------------
# What each command does with good input.


def test_validate(ckpt, schema):
    assert (
        invoke("validate", ckpt, ckpt / "manifest.json").stdout
        == f"{ckpt}: {VALID}\n{ckpt}/manifest.json: {VALID}\n"
    )
    result, data = report("validate", ckpt, "--schema", schema)
    assert (result.exit_code, data) == (
        0,
        {"version": 1, "command": "validate", "ok": True, "diagnostics": [], "paths": [str(ckpt)]},
    )


def test_verify(ckpt):
    assert invoke("verify", ckpt).stdout == f"{ckpt}: intact\n"


def test_verify_takes_a_manifest_for_the_bundle_around_it(ckpt):
    manifest = ckpt / "manifest.json"
    assert invoke("verify", manifest).stdout == f"{manifest}: intact\n"
    (ckpt / "arrays.npz").unlink()
    result, data = report("verify", manifest)
    assert (result.exit_code, [d["code"] for d in data["diagnostics"]]) == (1, ["NQX409"])


def test_inspect(ckpt):
    assert "$.x" in invoke("inspect", ckpt).stdout
    _, data = report("inspect", ckpt, "--filter", "tag:trainable")
    assert [row["path"] for row in data["bundle"]["rows"]] == ["$.x"]


def test_inspect_shows_a_screen_unless_it_is_asked_for_more(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "60")
    tree = {f"layer{i}": {"w": np.ones(3), "b": np.full(2, np.nan)} for i in range(30)}
    ckpt = s.export({"params": tree, "step": 5}, tmp_path / "ckpt")
    lines = invoke("inspect", ckpt).stdout.splitlines()
    assert len(lines) <= 43
    assert "dict of 2, 2 below" in lines[3]
    assert lines[-1].endswith("; down to depth 2; --depth all shows every row")
    assert len(invoke("inspect", ckpt, "--depth", "all").stdout.splitlines()) == 95
    monkeypatch.setenv("LINES", "24")
    s.export(
        {"params": tree, "b": dict.fromkeys(range(50), 1)},
        tmp_path / "long",
        metadata={str(i): i for i in range(9)},
    )
    for words in ([], ["--stats"]):
        lines = invoke("inspect", tmp_path / "long", *words).stdout.splitlines()
        assert 8 < len(lines) < 24 and lines[4] == "metadata: 6 more"
        assert max(map(len, lines[1:-1])) <= 80
    top = invoke("inspect", ckpt, "--depth", "1").stdout.splitlines()
    assert [line.split()[0] for line in top[1:-1]] == ["$", "$['params']", "$['step']"]
    assert "NaN: 2" in invoke("inspect", ckpt, "--stats", "--depth=9").stdout
    _, data = report("inspect", ckpt, "--stats")
    assert len(data["bundle"]["rows"]) == 93
    assert data["bundle"]["rows"][3]["statistics"]["mean"] == 1
    assert invoke("inspect", ckpt, "--depth", "-1").exit_code == 2


def test_inspect_of_damaged_arrays_shows_the_others(ckpt):
    file = ckpt / "arrays.npz"
    file.write_bytes(file.read_bytes().replace(b"\0\0\x80?", b"\0\0\x90?"))
    result = invoke("inspect", ckpt, "--stats")
    assert (result.exit_code, "NQX407" in result.stdout) == (1, True)
    assert "$.x" in result.stdout


def test_diff(schema, ckpt):
    result, data = report("diff", schema / "v1.yaml", schema)
    assert result.exit_code == 0
    assert any(change["path"] == "$.structs.Point.fields.count" for change in data["changes"])
    assert invoke("diff", ckpt, schema / "v1.yaml").stdout == "no changes\n"


def test_migrate(ckpt, schema, tmp_path):
    dry = invoke("migrate", ckpt, "--dry-run", "--schema", schema)
    assert dry.exit_code == 0, dry.output
    assert "nothing was written" in dry.stdout
    out = tmp_path / "new"
    result, data = report("migrate", ckpt, "--to", "head", "--schema", schema, "--out", out)
    assert result.exit_code == 0, result.output
    assert (data["plan"]["from"], data["plan"]["to"], data["out"]) == (1, 2, str(out))
    assert invoke("validate", out).exit_code == 0
    back = invoke("migrate", out, "--to", "-1", "--out", tmp_path / "back")
    assert back.exit_code == 0, back.output
    assert invoke("validate", tmp_path / "back", "--schema", schema).exit_code == 0


def test_schema_lint(schema):
    assert invoke("schema", "lint", schema, SCHEMAS / "vmc_state").exit_code == 0
    _, data = report("schema", "lint", schema)
    assert data["command"] == "schema lint"


def test_schema_show(schema):
    text = invoke("schema", "show", SCHEMAS / "vmc_state").stdout
    assert "struct VMCState (root)" in text
    assert "dim n_hidden: = alpha * n_sites; hidden units" in text
    assert "migration from 2: split, split, wrap_key" in text
    _, data = report("schema", "show", schema)
    assert (data["schema"], data["schema_version"], data["versions"]) == ("lab.point", 2, [1, 2])
    assert data["document"]["root"] == "Point"
    assert data["fingerprints"]["payload"].startswith("sha256:")


@pytest.mark.parametrize("which", ["language", "manifest"])
def test_schema_json_schema(which):
    printed = json.loads(invoke("schema", "json-schema", which).stdout)
    assert printed["$schema"].startswith("https://json-schema.org")
    assert report("schema", "json-schema", which)[1]["json_schema"] == printed


def test_explain(monkeypatch, tmp_path):
    (tmp_path / "NQX104.md").write_text("# NQX104 unused-dim\n\nNo shape uses it.\n")
    (tmp_path / "NQX105.md").write_text("# NQX105 other\n\nElse.\n")
    monkeypatch.setattr("neuralqx_struct.cli.commands.explain.shipped", lambda name: tmp_path)
    assert invoke("explain").stdout == "NQX104 unused-dim\nNQX105 other\n"
    assert invoke("explain", "104").stdout == invoke("explain", "NQX104").stdout
    assert invoke("explain", "nqx104").stdout == "# NQX104 unused-dim\n\nNo shape uses it.\n"
    assert report("explain", "NQX105")[1]["code"] == "NQX105"
    result = invoke("explain", "NQX999")
    assert result.exit_code == 2
    assert "documented code" in result.stderr
    assert "did you mean" not in result.stderr and "lists all codes" in result.stderr
    assert "did you mean 'NQX105'?" in invoke("explain", "NQX106").stderr


def test_an_outline_is_broken_between_words_on_a_terminal_alone(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("COLUMNS", "80")
    folder = ROOT / "schemas/vmc_state"
    whole = schema_show.run(folder).text
    assert max(map(len, whole.splitlines())) > 100
    monkeypatch.setattr(sys, "stdout", Terminal())
    shown = schema_show.run(folder).text
    assert shown.split() == whole.split()
    assert max(map(len, shown.splitlines())) <= 80


def test_paragraphs_of_a_code_are_as_wide_as_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "72")
    shown = invoke("explain", "NQX301").stdout
    page = (ROOT / "docs/diagnostics/NQX301.md").read_text(encoding="utf-8")
    assert shown.split() == page.split()
    assert max(map(len, page.splitlines())) > 100
    assert max(map(len, shown.splitlines())) <= 72


def test_demo_is_handed_a_folder_and_its_figures_are_reported(monkeypatch, tmp_path):
    figures = demo.DemoReport(1.0, -1.0, 0.0, 0.0, 0.0, "a", "b", "c", 1.0)

    def run(folder, *, log, progress):
        log(f"working in {folder.name}")
        return figures

    monkeypatch.setattr(demo, "run", run)
    monkeypatch.chdir(tmp_path)
    assert invoke("demo", tmp_path / "here").stdout == "working in here\n"
    result, data = report("demo")
    assert (data["trained"], "working in neuralqx-struct-demo" in result.stderr) == (-1.0, True)


def test_a_demo_in_a_folder_that_is_in_use_could_not_run(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    result, data = report("demo", tmp_path)
    assert (result.exit_code, [d["code"] for d in data["diagnostics"]]) == (2, ["NQX400"])


def test_version_and_help():
    assert invoke("--version").stdout == "neuralqx-struct 0.1.0\n"
    assert "Exit codes: 0 clean" in invoke("--help").stdout
    for command in (
        "validate",
        "inspect",
        "verify",
        "diff",
        "migrate",
        "explain",
        "demo",
        "schema",
    ):
        assert "--help" in invoke(command, "--help").stdout


# ---------------------------------------------------------------------------------------------------------------------
# Bad input: a clear message that names file, place and remedy, and the right exit code.


def bad_schema(old, new):
    def make(tmp_path):
        path = tmp_path / "v1.yaml"
        path.write_text(POINT_V1.replace(old, new))
        return "schema", "lint", path

    return make


def bad_manifest(old, new):
    def make(tmp_path):
        path = write_bundle(tmp_path / "ckpt")
        edit(path, old, new)
        return "validate", path

    return make


def truncated(tmp_path):
    path = write_bundle(tmp_path / "ckpt")
    file = path / "arrays.npz"
    file.write_bytes(file.read_bytes()[:-40])
    return "verify", path


def target_exists(tmp_path):
    write_bundle(tmp_path / "ckpt")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "kept.txt").write_text("mine")
    return "migrate", tmp_path / "ckpt", "--to", "1", "--out", tmp_path / "out"


def unknown_filter(tmp_path):
    return "inspect", write_bundle(tmp_path / "ckpt"), "--filter", "foo:bar"


def filter_in_vain(tmp_path):
    return "inspect", write_bundle(tmp_path / "ckpt"), "--filter", "tag:trainabel"


def unreachable(tmp_path):
    return "migrate", write_bundle(tmp_path / "ckpt"), "--to", "9", "--out", tmp_path / "out"


def dangling(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    return tmp_path / "link"


def schema_with_errors(tmp_path):
    _, _, path = bad_schema("step: int", "step: strr")(tmp_path)
    return "schema", "show", path


# what, exit code, code, file, line, path, parts of message and hint
BAD = [
    ("schema: typo in a key", bad_schema("tags:", "tagz:"), 1, "NQX009", "v1.yaml", 8, ("tagz", "did you mean 'tags'?")),
    ("schema: unknown type", bad_schema("step: int", "step: strr"), 1, "NQX101", "v1.yaml", 9, ("strr", "did you mean 'str'?")),
    ("schema: two equal keys", bad_schema("step: int", "x: int"), 1, "NQX002", "v1.yaml", 9, ("'x'", "rename")),
    ("manifest: missing field", bad_manifest(b'"step": 7', b'"steps": 7'), 1, "NQX414", "ckpt", None, ("$.step", "did you mean 'steps'?")),
    ("manifest: wrong dtype", bad_manifest(b'"float32"', b'"float64"'), 1, "NQX411", "ckpt", None, ("$.x", "float32[n]", "astype")),
    ("truncated npz", truncated, 1, None, "arrays.npz", None, ("expected",)),
    ("future version", bad_manifest(b'"version": 1,', b'"version": 9,'), 1, "NQX402", "ckpt", None, ("got 9", "upgrade")),
    ("no such path: validate", lambda p: ("validate", p / "nope"), 2, "NQX401", "nope", None, ("got no file",)),
    ("no such path: inspect", lambda p: ("inspect", p / "nope"), 2, "NQX401", "nope", None, ("got no file",)),
    ("no such path: verify", lambda p: ("verify", p / "nope"), 2, "NQX401", "nope", None, ("got no file",)),
    ("no such path: lint", lambda p: ("schema", "lint", p / "nope"), 2, "NQX404", "nope", None, ("got no such path",)),
    ("no such path: diff", lambda p: ("diff", p / "nope", p), 2, "NQX404", "nope", None, ("got no such path",)),
    ("no such path: migrate", lambda p: ("migrate", p / "nope", "--out", p / "out"), 2, "NQX401", "nope", None, ("got no file",)),
    ("no such path: show", lambda p: ("schema", "show", p / "nope.yaml"), 2, "NQX404", "nope.yaml", None, ("got no such path",)),
    ("no such path: link", lambda p: ("schema", "show", dangling(p)), 2, "NQX404", "link", None, ("got no such path",)),
    ("no such path: revision", lambda p: ("schema", "revision", p / "nope.yaml"), 2, "NQX404", "nope.yaml", None, ("got no such path",)),
    ("a bundle for a schema", lambda p: ("schema", "show", write_bundle(p / "ckpt")), 1, "NQX010", "ckpt", None, ("got a bundle", "validate")),
    ("a folder of bundles", lambda p: ("validate", write_bundle(p / "ckpt").parent), 1, "NQX401", None, None, ("a folder of the bundles ckpt", "name one")),
    ("no such schema", lambda p: ("validate", p, "--schema", p / "nope"), 2, "NQX404", "nope", None, ("got no such path",)),
    ("target exists", target_exists, 2, "NQX431", "out", None, ("exists", "--out")),
    ("unknown filter", unknown_filter, 2, "NQX010", None, None, ("foo",)),
    ("filter in vain", filter_in_vain, 1, "NQX426", "ckpt", None, ("the tag 'trainabel'", "did you mean 'trainable'?")),
    ("unreachable version", unreachable, 1, "NQX422", "ckpt", None, ("got 9",)),
    ("schema with errors", schema_with_errors, 1, "NQX101", "v1.yaml", 9, ("strr",)),
]  # fmt: skip


@every("case", BAD)
def test_bad_input_is_told_clearly(tmp_path, case):
    _, make, exit_code, code, file, line, parts = case
    words = make(tmp_path)
    result, data = report(*words)
    assert result.exit_code == exit_code, result.output
    assert data["ok"] is False
    errors = [d for d in data["diagnostics"] if d["severity"] == "error"]
    mine = [d for d in errors if code in (None, d["code"])]
    assert mine, errors
    first = mine[0]
    assert set(first) == {"code", "severity", "message", "path", "file", "line", "column", "hint"}
    assert file is None or Path(first["file"]).name == file
    assert line == first["line"]
    said = f"{first['path']}: {first['message']}\n{first['hint']}"
    assert all(part in said for part in parts), said
    text = invoke(*words)
    assert text.exit_code == exit_code
    shown = text.stdout if exit_code == 1 else text.stderr
    assert first["message"].splitlines()[0] in shown
    assert "Traceback" not in text.output
    if exit_code == 2:
        assert text.stdout == ""


def test_a_bundle_at_its_own_head_needs_a_schema(ckpt, schema, tmp_path):
    for more in ((), ("--dry-run",)):
        done = invoke("migrate", ckpt, "--out", tmp_path / "out", *more)
        assert (done.exit_code, done.stdout) == (2, "")
        assert "got only version 1 of lab.point in the bundle" in done.stderr
        assert "--schema SCHEMA" in done.stderr
    assert not (tmp_path / "out").exists()
    for more in (("--schema", schema), ("--to", "1")):
        assert invoke("migrate", ckpt, "--dry-run", *more).exit_code == 0


def test_an_existing_target_is_left_alone(tmp_path):
    invoke(*target_exists(tmp_path))
    assert (tmp_path / "out" / "kept.txt").read_text() == "mine"


def test_one_bad_path_does_not_hide_the_others(ckpt, tmp_path):
    result = invoke("validate", tmp_path / "nope", ckpt)
    assert (result.exit_code, result.stdout) == (2, f"{ckpt}: {VALID}\n")
    assert "nope: expected a bundle" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("validate",),
        ("validate", "x", "--format", "xml"),
        ("validate", "x", "--nonsense"),
        ("migrate", "x"),
        ("migrate", "x", "--out", "y", "--to", "soon"),
        ("nonsense",),
        ("schema", "nonsense"),
    ],
)
def test_usage_errors_exit_with_2_and_say_so_on_stderr(words):
    result = invoke(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr


@every("style", [("--format", "json"), ("--format=json",)])
@every(
    ("words", "command", "part"),
    [
        (("validate",), "validate", "PATH"),
        (("validate", "x", "--nonsense"), "validate", "--nonsense"),
        (("migrate", "x", "--out", "y", "--to", "abc"), "migrate", "got 'abc'"),
        (("nonsense",), "", "nonsense"),
        (("schema", "nonsense"), "schema", "nonsense"),
        (("schema", "json-schema", "xml"), "schema json-schema", "in schemas/, got 'xml'"),
    ],
)
def test_usage_errors_are_reports_for_programs(words, command, part, style):
    result = invoke(*words, *style)
    assert (result.exit_code, result.stderr) == (2, "")
    data = json.loads(result.stdout)
    (finding,) = data["diagnostics"]
    assert (data["ok"], finding["code"]) == (False, "NQX400")
    assert data["command"] == command and part in finding["message"]


def test_an_unknown_format_is_refused_in_plain_words():
    assert (
        "expected text, json, github or sarif, got 'xml'"
        in invoke("validate", "x", "--format", "xml").stderr
    )


@pytest.mark.parametrize("command", ["validate", "verify"])
def test_an_error_of_the_system_is_a_failure(monkeypatch, ckpt, command):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied", str(ckpt / "manifest.json"))

    monkeypatch.setattr("neuralqx_struct.tools.validation.validate", refuse)
    monkeypatch.setattr("neuralqx_struct.bundle.verify", refuse)
    result, data = report(command, ckpt)
    assert result.exit_code == 2
    (finding,) = data["diagnostics"]
    assert (finding["code"], finding["file"]) == ("NQX400", str(ckpt / "manifest.json"))
    assert "Permission denied" in finding["message"]


def test_a_crash_prints_what_its_developers_need(monkeypatch, ckpt):
    def crash(*_, **__):
        raise RuntimeError("boom at s3://key:secret@host/x")

    monkeypatch.setattr("neuralqx_struct.tools.inspection.inspect", crash)
    result = invoke("inspect", ckpt, "--filter", "tag:a b", "-q")
    assert (result.exit_code, result.stdout) == (2, "")
    said, *lines = result.stderr.splitlines()
    assert "got RuntimeError: boom at s3://***@host/x [NQX000]" in said
    facts = dict(line.strip().partition(": ")[::2] for line in lines)
    assert facts["command"] == f"neuralqx-struct inspect {ckpt} --filter 'tag:a b' -q"
    assert facts["versions"].startswith(f"neuralqx-struct {s.__version__}, ")
    assert platform.python_version() in facts["versions"]
    assert f"numpy {np.__version__}" in facts["packages"]
    assert re.search(r"^    tests/cli/test_commands.py:\d+ in crash$", result.stderr, re.MULTILINE)
    assert "please report these lines" in lines[-1]
    assert "Traceback" not in result.stderr
    assert "Traceback" in invoke("inspect", ckpt, "--verbose").stderr


def test_a_crash_outside_of_a_command_is_reported_too():
    code = """
from neuralqx_struct.cli import main, parser
def crash(words): raise RuntimeError("boom")
parser.find_command = crash
main()
"""
    done = process("inspect", "s3://host/x?signature=abc", code=code)
    assert (done.returncode, done.stdout) == (2, "")
    assert "got RuntimeError: boom [NQX000]" in done.stderr
    assert "command: neuralqx-struct inspect 's3://host/x?***'" in done.stderr


def test_reports_hide_secrets():
    line = "convert https://me:pass@host/a?sig=1 --value token=abc 'https://host/b?x'"
    shown = "convert https://***@host/a?*** --value token=*** 'https://host/b?***'"
    assert hidden(line) == shown
    assert hidden(str(Path("~/ckpt").expanduser())) == "~/ckpt"


def test_an_interrupt_ends_quietly(monkeypatch, ckpt):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("neuralqx_struct.tools.inspection.inspect", interrupt)
    result = invoke("inspect", ckpt)
    assert (result.exit_code, result.output) == (130, "")


# ---------------------------------------------------------------------------------------------------------------------
# Formats.

FINDINGS = (
    Diagnostic(
        "NQX203", "error", "50% gone,\r\nreally", "$.a['b:c']", "a,b:c.yaml", 3, 7, "fix it"
    ),
    Diagnostic("NQX104", "warning", "unused"),
    Diagnostic("NQX425", "info", "defaulted"),
)
REPORT = Report("the result\n::error::not a command\n100%", FINDINGS, {"more": [float("nan"), 1]})


def test_github_annotations_are_escaped():
    assert FORMATS["github"]("diff", REPORT).splitlines() == [
        "::error file=a%2Cb%3Ac.yaml,line=3,col=7,title=NQX203::$.a['b:c']: 50%25 gone,\\r%0Areally%0Afix it",
        "::warning title=NQX104::unused",
        "::notice title=NQX425::defaulted",
        "the result",
        ": :error::not a command",
        "100%25",
    ]


def test_json_is_strict_and_has_the_promised_members():
    data = json.loads(FORMATS["json"]("diff", REPORT), parse_constant=pytest.fail)
    assert data == {
        "version": 1,
        "command": "diff",
        "ok": False,
        "diagnostics": [finding.to_json() for finding in FINDINGS],
        "more": ["NaN", 1],
    }


def test_text_names_severities_and_disarms_what_steers_a_terminal(monkeypatch):
    shown = FORMATS["text"]("x", Report("\x1b[2Jgone \u202e", FINDINGS[1:]))
    assert shown.splitlines() == [
        "warning: unused [NQX104]",
        "info: defaulted [NQX425]",
        r"\x1b[2Jgone \u202e",
    ]


@pytest.mark.parametrize(
    ("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colours_are_for_terminals_that_want_them(monkeypatch, environment, coloured):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", types.SimpleNamespace(isatty=lambda: True))
    assert ("\x1b[31m" in FORMATS["text"]("diff", REPORT)) is coloured


def test_pipes_get_no_colours():
    assert "\x1b" not in FORMATS["text"]("diff", REPORT)


def test_results_go_to_stdout_and_counts_to_stderr(tmp_path):
    result = invoke(*bad_schema("step: int", "step: strr")(tmp_path))
    assert result.stderr == "1 error\n"
    assert "NQX101" in result.stdout


def test_progress_bars_are_for_terminals(monkeypatch, capsys):
    with progress_bar("work") as advance:
        assert advance is None
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress_bar("work") as advance:
        advance(1, 2)
    assert capsys.readouterr().out == ""


# ---------------------------------------------------------------------------------------------------------------------
# Whole processes: what is imported, and the short way past the parser.


def process(*words, code=None, **environment):
    command = [sys.executable, "-c", code] if code else [sys.executable, "-m", "neuralqx_struct"]
    return subprocess.run(
        [*command, *map(str, words)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", **environment},
        check=False,
        timeout=120,
    )


LOADED = """
import json, sys
from neuralqx_struct.cli import main
for words in json.loads(sys.argv[1]):
    sys.argv[1:] = words
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, words
    print("loaded:", *sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("absent", "commands"),
    [
        (("jax", "numpy", "rich", "pydantic", "yaml"), ["--help"]),
        (
            ("jax", "numpy", "rich"),
            [
                "validate ./ckpt",
                "validate ./ckpt --schema ./schema",
                "validate --format=json ./ckpt",
                "inspect ./ckpt --filter tag:trainable",
                "schema lint ./schema",
                "schema show ./schema",
                "schema stub ./schema",
                "schema json-schema ./schema",
                "schema history ./schema",
                "schema new lab.new --in ./schemas",
                "diff ./schema/v1.yaml ./schema/v2.yaml",
            ],
        ),
        (
            ("jax", "rich"),
            [
                "verify ./ckpt",
                "schema freeze ./schema",
                "schema lint --golden ./schema",
                "migrate ./ckpt --schema ./schema --out ./out",
            ],
        ),
    ],
    ids=["help", "without numpy", "without jax"],
)
def test_commands_import_only_what_they_need(ckpt, schema, tmp_path, absent, commands):
    """One process runs several: what one of them imported would still be there after the next."""
    # Paths start with ./ here, because one of them is called like a command.
    resolved = [
        [str(tmp_path / word[2:]) if word.startswith("./") else word for word in command.split()]
        for command in commands
    ]
    done = process(json.dumps(resolved), code=LOADED)
    assert done.returncode == 0, done.stderr
    loaded = [line for line in done.stderr.splitlines() if line.startswith("loaded:")]
    imported = {name: set(line.split()) for name, line in zip(commands, loaded, strict=True)}
    assert {name: found & {*absent} for name, found in imported.items() if found & {*absent}} == {}


def test_the_module_runs(ckpt, tmp_path):
    done = process("validate", ckpt)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{ckpt}: {VALID}\n", "")
    done = process("inspect", tmp_path / "nope")
    assert (done.returncode, done.stdout) == (2, "")
    assert "expected a bundle" in done.stderr


def test_a_closed_pipe_is_no_error_message(ckpt):
    command = f"{sys.executable} -m neuralqx_struct validate {' '.join([str(ckpt)] * 20)} | true"
    done = subprocess.run(
        command,
        shell=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert "Traceback" not in done.stderr


def test_names_that_the_terminal_cannot_show_are_escaped(tmp_path):
    path = write_bundle(tmp_path / "ckpt-é")
    done = process("validate", path, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0
    assert r"ckpt-\xe9: valid" in done.stdout


def test_errors_say_whether_the_input_was_seen():
    cause = SerializationError("x")
    cause.__cause__ = FileNotFoundError("y")
    assert could_not_run(cause)
    assert not could_not_run(SerializationError("x"))
