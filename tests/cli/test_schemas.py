"""The commands about schemas that write something, and those that draw."""

import os
import sys

import pytest
import yaml

from neuralqx_struct.classes.schemas import load_schema
from neuralqx_struct.tools.linting import lint
from tests.builders import POINT_V1, POINT_V2, invoke, report


@pytest.fixture
def schema(tmp_path):
    folder = tmp_path / "point"
    folder.mkdir()
    (folder / "v1.yaml").write_text(POINT_V1)
    (folder / "v2.yaml").write_text(POINT_V2)
    return folder


# --- show ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["show", "stub"])
def test_schemas_with_errors_are_not_shown(tmp_path, command):
    (tmp_path / "v1.yaml").write_text(POINT_V1.replace("step: int", "step: Int"))
    result, data = report("schema", command, tmp_path)
    assert result.exit_code == 1
    assert data["diagnostics"][0]["code"] == "NQX101"


# --- export --------------------------------------------------------------------------------------------------------

MODULE = '''"""Classes."""
from pathlib import Path
import neuralqx_struct as s

class Outer:
    class State(s.Struct):
        """A state."""
        step: int = 0
        names: set[str] = s.field(static=True, default=frozenset())

plain = 3
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "lab_export.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    yield "lab_export"
    sys.modules.pop("lab_export", None)


def test_export_writes_yaml_on_stdout_and_tells_of_the_rest_on_stderr(module):
    result = invoke("schema", "export", f"{module}:Outer.State")
    assert result.exit_code == 0
    data = yaml.safe_load(result.stdout)
    assert (data["schema"], data["structs"]["State"]["doc"]) == ("lab_export.state", "A state.")
    assert "NQX134" in result.stderr and "set[str]" in result.stderr
    assert "2 info" in result.stderr or "1 info" in result.stderr


def test_export_into_a_file(module, tmp_path):
    out = tmp_path / "v1.yaml"
    result, data = report(
        "schema", "export", f"{module}:Outer.State", "--id", "lab.state", "--out", out
    )
    assert result.exit_code == 0 and data["out"] == str(out)
    assert {d["code"] for d in data["diagnostics"]} == {"NQX134"}
    assert load_schema(out).document.id == data["schema"] == "lab.state"
    assert not [d for d in lint(out) if d.severity == "error"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lab_export", "expected MODULE:CLASS"),
        (":State", "expected MODULE:CLASS"),
        ("no_such_module:A", "'no_such_module'"),
        ("lab_leaves:A", "SystemExit: 3"),
        ("lab_export:Outer.Stat", "lab_export"),
        ("lab_export:Outer.Stat", "'State'"),
        ("lab_export:plain", "Struct"),
        ("lab_export:Outer", "Struct"),
        ("lab_export:Path", "Struct"),
    ],
)
def test_what_cannot_be_exported(module, name, said, tmp_path):
    (tmp_path / "lab_leaves.py").write_text("raise SystemExit(3)")
    result = invoke("schema", "export", name)
    assert result.exit_code == 2
    assert said in result.stderr and not result.stdout


# --- stub ----------------------------------------------------------------------------------------------------------


def test_stub_names_the_schema_from_where_the_module_lies(schema, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (
        invoke("schema", "stub", "point", "--out", "lab/classes.py").exit_code == 0
    )  # makes the folder
    text = (tmp_path / "lab/classes.py").read_text()
    assert 'pathlib.Path(__file__).parent / "../point").at(2)' in text
    assert invoke("schema", "stub", "point").stdout == text.replace("../point", "point")
    code = compile(text, os.fspath(tmp_path / "lab/classes.py"), "exec")
    module = {"__file__": os.fspath(tmp_path / "lab/classes.py"), "__name__": "classes"}
    exec(code, module)
    assert module["Point"] is load_schema(schema).Point


# --- json-schema ---------------------------------------------------------------------------------------------------


def test_json_schema_of_one_schema(schema, monkeypatch, tmp_path):
    newest = report("schema", "json-schema", schema)[1]["json_schema"]
    assert newest["properties"]["manifest"] == {"$ref": "#/definitions/lab.point@2:Point"}
    assert report("schema", "json-schema", f"{schema}@2")[1]["json_schema"] == newest
    assert (
        "lab.point@1:Point"
        in report("schema", "json-schema", schema / "v1.yaml")[1]["json_schema"]["definitions"]
    )
    (tmp_path / "schemas").mkdir()
    schema.rename(tmp_path / "schemas/point")
    monkeypatch.chdir(tmp_path)
    assert report("schema", "json-schema", "lab.point@2")[1]["json_schema"] == newest
    assert report("schema", "json-schema", "lab.point")[1]["json_schema"] == newest


@pytest.mark.parametrize(
    ("which", "code", "exit_code"),
    [("nope", "NQX400", 2), ("nope@2", "NQX400", 2), ("{}@7", "NQX404", 2)],
)
def test_json_schema_of_what_is_not_there(schema, which, code, exit_code):
    result, data = report("schema", "json-schema", which.format(schema))
    assert (result.exit_code, data["diagnostics"][0]["code"]) == (exit_code, code)


def test_json_schema_of_what_is_wrong(tmp_path):
    (tmp_path / "v1.yaml").write_text(POINT_V1.replace("step: int", "step: Int"))
    assert report("schema", "json-schema", f"{tmp_path}@1")[0].exit_code == 1


# --- lint ----------------------------------------------------------------------------------------------------------

ERRORS = POINT_V1.replace("step: int", "step: innt").replace(
    "root: Point", "root: Point\ndims: {m: {}}"
)
WARNINGS = POINT_V1.replace("root: Point", "root: Point\ndims: {m: {}}")
UNUSED = "expected a dim that some shape uses, got 'm', which none does"
NO_TYPE = "expected a type, got 'innt'"
SEEN_WARNING = f"x.yaml:5:8: NQX104 warning: {UNUSED}\n  remove it\n"
SEEN_ERROR = f"x.yaml:10:13: NQX101 {NO_TYPE}\n  did you mean 'int'?\n"
NOTED_WARNING = f"::warning file=x.yaml,line=5,col=8,title=NQX104::$.dims.m: {UNUSED}%0Aremove it\n"
NOTED_ERROR = (
    "::error file=x.yaml,line=10,col=13,title=NQX101::"
    f"$.structs.Point.fields.step.type: {NO_TYPE}%0Adid you mean 'int'?\n"
)
OPEN = "expected a value or a closing bracket, got the end of the file"
SEEN_OPEN = f"x.yaml:1:5: NQX001 {OPEN}\n  close the bracket\n"
NOTED_OPEN = f"::error file=x.yaml,line=1,col=5,title=NQX001::$: {OPEN}%0Aclose the bracket\n"
FINE = "x.yaml: no errors\n"
WARNING, ERROR = ("NQX104", "warning", 5, 8), ("NQX101", "error", 10, 13)
LINTED = {
    "clean": (POINT_V1, 0, [], FINE, FINE),
    "warnings": (WARNINGS, 0, [WARNING], SEEN_WARNING + FINE, NOTED_WARNING + FINE),
    "errors and warnings": (
        ERRORS,
        1,
        [WARNING, ERROR],
        SEEN_WARNING + SEEN_ERROR,
        NOTED_WARNING + NOTED_ERROR,
    ),
    "what cannot be read": ("a: [", 1, [("NQX001", "error", 1, 5)], SEEN_OPEN, NOTED_OPEN),
}


@pytest.mark.parametrize("case", LINTED)
def test_lint_prints_for_people_programs_and_github(case, tmp_path, monkeypatch):
    text, status, found, shown, annotations = LINTED[case]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.yaml").write_text(text)
    for_people = invoke("schema", "lint", "x.yaml")
    assert (for_people.exit_code, for_people.stdout) == (status, shown)
    for_github = invoke("schema", "lint", "x.yaml", "--format", "github")
    assert (for_github.exit_code, for_github.stdout) == (status, annotations)
    for_programs, data = report("schema", "lint", "x.yaml")
    told = [(d["code"], d["severity"], d["line"], d["column"]) for d in data["diagnostics"]]
    assert (for_programs.exit_code, data["ok"], told) == (status, status == 0, found)
    assert {d["file"] for d in data["diagnostics"]} <= {"x.yaml"}


# --- new, freeze, history ------------------------------------------------------------------------------------------


def test_new_freeze_and_history(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    made = invoke("schema", "new", "lab.train_state")
    assert made.exit_code == 0 and "schemas/train_state/v1.yaml" in made.stdout
    folder = tmp_path / "schemas/train_state"
    assert invoke("schema", "lint", "--golden", "schemas").stdout.startswith(
        "warning: schemas/train_state/v1.yaml"
    )
    data = report("schema", "freeze", folder, "--golden")[1]
    assert (data["added"], data["kept"], len(data["golden"])) == ([1], [], 1)
    assert invoke("schema", "lint", "--golden", "schemas").stdout == "schemas: no errors\n"
    assert report("schema", "freeze", folder)[1]["kept"] == [1]
    assert report("schema", "history", folder)[1]["releases"][0]["frozen"] is True
    assert invoke("schema", "history", folder).stdout.startswith("version 1  ")
    assert report("schema", "new", "lab.x", "--in", tmp_path / "other")[1]["file"].endswith(
        "other/x/v1.yaml"
    )
    assert invoke("schema", "new", "lab.train_state").exit_code == 2
    assert invoke("schema", "new", "lab train").exit_code == 2


def test_golden_payloads_of_broken_schemas_are_not_asked(schema):
    (schema / "v1.yaml").write_text(POINT_V1.replace("step: int", "step: Int"))
    codes = {d["code"] for d in report("schema", "lint", "--golden", schema)[1]["diagnostics"]}
    assert codes and not codes & {"NQX314", "NQX315"}


def test_steps_that_may_stop_are_shown_by_revision_and_afterwards_to_those_who_ask(tmp_path):
    folder, edited = tmp_path / "layers", tmp_path / "edited.yaml"
    folder.mkdir()
    text = POINT_V1.partition("structs:")[0] + "structs: {Point: {fields: {x: %s}}}\n"
    (folder / "v1.yaml").write_text(text % '"list[float32[d]]"')
    edited.write_text(text % '"float32[n, d]"')
    made = invoke("schema", "revision", folder, "--edited", edited)
    assert (made.exit_code, "NQX320 info" in made.stdout) == (0, True)
    quiet = invoke("schema", "lint", folder)
    assert "NQX320 info" not in quiet.stdout and "-v only" in quiet.stderr
    assert "NQX320 info" in invoke("schema", "lint", folder, "-v").stdout
    for name, level in {"json": '"info"', "sarif": '"note"', "github": "::notice"}.items():
        assert level in invoke("schema", "lint", folder, "--format", name).stdout
