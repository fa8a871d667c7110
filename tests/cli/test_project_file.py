"""The project file and the forms of schema arguments in commands: defaults, overrides, trust and errors."""

import shutil
import sys

import numpy as np
import pytest

import neuralqx_struct as s
from tests.builders import POINT_V1, POINT_V2, invoke, report

STEP = """migrations:
  - from: 1
    steps:
      - python: {function: lab.count, reads: [step], writes: [count]}
      - remove: {field: step, undo_default: 0}
"""
FUNCTION = """
import neuralqx_struct as s

@s.steps.function("lab.count")
def count(values):
    return {"count": values["step"]}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder ``lab`` with the schema lab.point in ``models``, and a bundle of its version 1 in ``runs``."""
    top = tmp_path / "lab"
    point = top / "models" / "point"
    point.mkdir(parents=True)
    (point / "v1.yaml").write_text(POINT_V1)
    (point / "v2.yaml").write_text(POINT_V2)
    (top / "runs").mkdir()
    s.example(s.load_schema(point / "v1.yaml").root).export(top / "runs" / "ckpt")
    (top / "neuralqx-struct.toml").write_text('schemas = "models"\n')
    monkeypatch.chdir(top)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    yield top
    for name in [name for name in sys.modules if name.startswith("lab_")]:
        del sys.modules[name]


def set_project(project, text):
    (project / "neuralqx-struct.toml").write_text(f'schemas = "models"\n{text}')


def with_python_step(project):
    file = project / "models" / "point" / "v2.yaml"
    file.write_text(POINT_V2.partition("migrations:")[0] + STEP)


# --- names of schemas ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("validate", "runs/ckpt", "--schema"),
        ("migrate", "runs/ckpt", "--dry-run", "--schema"),
        ("diff", "runs/ckpt"),
        ("schema", "lint"),
        ("schema", "fmt", "--check"),
        ("schema", "show"),
        ("schema", "stub"),
        ("schema", "history"),
        ("schema", "freeze"),
        ("schema", "json-schema"),
        ("breaking", "--against", "models"),
    ],
)
def test_commands_take_identities(project, words):
    for name in ("lab.point", "lab.point@2", "models/point@2"):
        done = invoke(*words, name)
        assert done.exit_code in (0, 1), done.output
        assert "NQX400" not in done.output and "did you mean" not in done.output
    for name in ("lab.pont", "lab.point@3"):
        done = invoke(*words, name)
        assert done.exit_code in (1, 2)
        assert "did you mean" in done.output


def test_a_version_is_its_file(project):
    assert report("schema", "show", "lab.point@1")[1]["schema_version"] == 1
    changes = report("diff", "lab.point@1", "lab.point@2")[1]["changes"]
    assert any(change["path"] == "$.structs.Point.fields.count" for change in changes)
    assert invoke("breaking", "lab.point", "--against", "lab.point@1").exit_code == 0
    assert invoke("schema", "revision", "lab.pont").exit_code == 2


def test_all_names_that_are_wrong_are_reported(project):
    result, data = report("schema", "lint", "lab.a", "models", "lab.b")
    assert (result.exit_code, [d["code"] for d in data["diagnostics"]]) == (2, ["NQX400"] * 2)


# --- keys ----------------------------------------------------------------------------------------------------------


def test_bundles_are_read_with_the_schemas_of_the_project(project, monkeypatch):
    assert invoke("migrate", "runs/ckpt", "--out", "new").exit_code == 0
    assert invoke("migrate", "new", "--out", "same").exit_code == 0  # the project has no newer one
    monkeypatch.chdir(project / "runs")
    assert report("migrate", "ckpt", "--dry-run")[1]["plan"]["to"] == 2
    assert report("migrate", ".", "--dry-run", "--out", "../all")[1]["plans"][0]["to"] == 2
    monkeypatch.chdir(project)
    point = project / "models" / "point" / "v1.yaml"
    point.write_text(POINT_V1.replace("step: int", "step: str"))
    assert report("validate", "runs/ckpt")[1]["diagnostics"][0]["code"] == "NQX405"
    point.write_text(POINT_V1.replace("lab.point", "lab.other"))
    (project / "models" / "point" / "v2.yaml").unlink()
    assert invoke("validate", "runs/ckpt").exit_code == 0  # by its own document
    done = invoke("migrate", "runs/ckpt", "--out", "other")
    assert done.exit_code == 2 and "--schema SCHEMA" in done.stderr


def test_an_option_overrides_the_project(project, tmp_path):
    (tmp_path / "v1.yaml").write_text(POINT_V1)
    words = ("migrate", "runs/ckpt", "--dry-run", "--schema", tmp_path)
    assert report(*words)[1]["plan"]["to"] == 1


def test_the_folder_of_schemas(project):
    assert [s["id"] for s in report("schema", "list")[1]["schemas"]] == ["lab.point"]
    assert report("schema", "new", "lab.net")[1]["file"] == "models/net/v1.yaml"
    assert invoke("breaking", "--against", "models").exit_code == 0
    assert report("schema", "lint")[1]["paths"] == report("schema", "lint", "models")[1]["paths"]
    assert invoke("schema", "fmt", "--check").exit_code in (0, 1)
    (project / "neuralqx-struct.toml").unlink()
    done = invoke("schema", "lint")  # there is no folder named schemas
    assert done.exit_code == 2 and "schemas = 'FOLDER'" in done.stderr


def test_the_store_of_converted_bundles(project):
    set_project(project, 'store = "safetensors"\n')
    assert report("convert", "runs/ckpt", "--out", "a")[1]["store"] == "safetensors"
    assert report("convert", "runs/ckpt", "--out", "b", "--store", "npz")[1]["store"] == "npz"


def test_mode_and_waivers_of_breaking(project):
    (project / "models" / "point" / "v2.yaml").unlink()
    (project / "old").mkdir()
    (project / "old" / "v1.yaml").write_text(POINT_V1)
    (project / "models" / "point" / "v1.yaml").write_text(
        POINT_V1.replace("step: int", "step: str")
    )
    words = ("breaking", "lab.point", "--against", "old")
    assert invoke(*words).exit_code == 1
    set_project(project, 'waivers = "accepted.yaml"\n')
    waivers = "".join(
        f"- {{code: {code}, reason: known}}\n" for code in ("NQX290", "NQX291", "NQX210", "NQX211")
    )
    (project / "accepted.yaml").write_text(f"waivers:\n{waivers}")
    done = invoke(*words)
    assert "known" in done.output, done.output
    set_project(project, 'mode = "none"\n')
    assert "NQX210" not in invoke(*words).output
    assert invoke(*words, "--mode", "full").exit_code == 1


@pytest.mark.parametrize("words", [("--golden",), ()])
def test_golden(project, words):
    if not words:
        set_project(project, "golden = true\n")
    assert "NQX314" in invoke("schema", "lint", "models", *words).stdout
    assert "NQX314" not in invoke("schema", "lint", "models", "--no-golden").stdout
    assert len(report("schema", "freeze", "lab.point", *words)[1]["golden"]) == 2
    assert "NQX314" not in invoke("schema", "lint", "models", *words).stdout


# --- trust ---------------------------------------------------------------------------------------------------------


def test_trusted_modules_come_from_the_folder_of_the_file(project, monkeypatch):
    with_python_step(project)
    set_project(project, 'trust = ["lab_steps"]\n')
    (project / "lab_steps.py").write_text(FUNCTION)
    below = project / "runs"
    (below / "lab_steps.py").write_text("raise RuntimeError('a module of a download ran')")
    monkeypatch.chdir(below)
    monkeypatch.setattr(sys, "path", ["", *sys.path])  # as `python -m` does
    done = invoke("migrate", "ckpt", "--out", "../new")
    assert done.exit_code == 0, done.output
    assert "importing lab_steps, which ../neuralqx-struct.toml trusts" in done.stderr
    again = invoke("migrate", "ckpt", "--out", "../again", "--quiet")
    assert "importing" not in again.stderr


def test_trust_is_shown_before_a_module_runs(project):
    with_python_step(project)
    set_project(project, 'trust = ["lab_package.steps"]\n')
    package = project / "lab_package"
    package.mkdir()
    (package / "__init__.py").write_text("import sys\nprint('the package runs', file=sys.stderr)")
    (package / "steps.py").write_text(FUNCTION)
    done = invoke("migrate", "runs/ckpt", "--out", "new")
    assert done.exit_code == 0, done.output
    notice, runs = (
        done.stderr.index(text) for text in ("importing lab_package.steps", "the package runs")
    )
    assert notice < runs
    del sys.modules["lab_package.steps"], sys.modules["lab_package"]


def test_modules_of_the_working_directory_are_not_those_of_the_project(project, monkeypatch):
    with_python_step(project)
    set_project(project, 'trust = ["lab_steps"]\n')
    below = project / "runs"
    (below / "lab_steps.py").write_text("raise RuntimeError('a module of a download ran')")
    monkeypatch.chdir(below)
    monkeypatch.setattr(sys, "path", [str(below), *sys.path])
    done = invoke("migrate", "ckpt", "--out", "../new")
    assert done.exit_code == 1 and "a module of a download" not in done.output
    assert "expected a registered function 'lab.count'" in done.output
    named = invoke("migrate", "ckpt", "--out", "../new", "--trust", "lab_steps")
    assert "a module of a download ran" in named.output


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\nfrom json import nothing\n", "ImportError: cannot import name 'nothing' from 'json'"),
        ("\nimport jax.nothing\n", "ModuleNotFoundError: No module named 'jax.nothing'"),
        ("\nraise ImportError('no jax', name='jax')\n", "ImportError: no jax"),
    ],
)
def test_import_errors_of_trusted_modules_are_shown_as_they_are(project, text, shown):
    with_python_step(project)
    (project / "lab_broken.py").write_text(text)
    words = ("migrate", "runs/ckpt", "--out", "new", "--trust", "lab_broken")
    result, data = report(*words)
    (found,) = data["diagnostics"]
    assert result.exit_code == 2
    assert found["message"].startswith(shown)
    assert "raised in the module lab_broken" in found["message"]
    assert (found["file"], found["line"]) == (str(project / "lab_broken.py"), 2)
    assert f"{project / 'lab_broken.py'}:2:1: NQX400 {shown}" in invoke(*words).stderr


LAYOUT = """language: "1"
layout: two
of: lab.point@2
structs: {Point: {x: weight}}
"""
#: The commands that run python steps; `runs` has a bundle of version 1, `foreign.npz` is a file of it.
RUNNING = {
    "migrate": ("migrate", "runs/ckpt", "--out", "new"),
    "migrate folder": ("migrate", "runs", "--out", "new"),
    "convert from": ("convert", "foreign.npz", "--out", "new", "--schema", "lab.point", "--layout", "one", "--value", "step=1"),
    "convert to": ("convert", "runs/ckpt", "--out", "new.npz", "--schema", "lab.point", "--layout", "two"),
    "lint": ("schema", "lint", "lab.point", "--golden"),
    "freeze": ("schema", "freeze", "lab.point", "--golden"),
}  # fmt: skip


@pytest.fixture(params=RUNNING)
def running(request, project):
    """The words of a command that runs the step ``lab.count`` of the module ``lab_steps``."""
    if request.param == "lint":  # it reads golden payloads
        for number, text in enumerate((POINT_V1, POINT_V2), 1):
            (project / "models" / "point" / f"v{number}.yaml").write_text(text)
        assert invoke("schema", "freeze", "lab.point", "--golden").exit_code == 0
        (project / "models" / "point" / "schema.lock").unlink()
        shutil.rmtree(project / "models" / "point" / "golden" / "v2")
    with_python_step(project)
    layouts = project / "models" / "point" / "layouts"
    layouts.mkdir()
    (layouts / "two.yaml").write_text(LAYOUT)
    (layouts / "one.yaml").write_text(LAYOUT.replace("two", "one").replace("@2", "@1"))
    np.savez(project / "foreign.npz", weight=np.zeros(2, "f4"))
    (project / "lab_steps.py").write_text(FUNCTION)
    return RUNNING[request.param]


def files(folder):
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}


@pytest.mark.parametrize("given", ["option", "project"])
def test_every_command_that_runs_steps_takes_trust(project, running, given):
    before = files(project)
    done = invoke(*running)
    assert done.exit_code == 1
    assert "such as --trust lab.migrations" in done.output and "trust=" not in done.output
    assert files(project) == before  # nothing was written
    if given == "project":
        set_project(project, 'trust = ["lab_steps"]\n')
    done = invoke(*running, *(["--trust", "lab_steps"] if given == "option" else []))
    assert done.exit_code == 0, done.output
    assert "lab_steps" in sys.modules


def test_a_trusted_module_that_ends_the_program(project, running):
    (project / "lab_steps.py").write_text("import sys\nsys.exit()\n")
    before = files(project)
    done = invoke(*running, "--trust", "lab_steps")
    assert done.exit_code == 1
    assert "expected the module 'lab_steps' to be importable, got SystemExit" in done.output
    assert "run `python -c 'import lab_steps'`" in done.output
    assert {path for path in files(project) if "__pycache__" not in str(path)} == {*before}


# --- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [("validate", "runs/ckpt"), ("schema", "lint", "models"), ("schema", "list")]
)
def test_a_project_file_with_errors_stops_commands(project, words):
    set_project(project, "gold = true\ntrust = 1\n")
    result, data = report(*words)
    assert result.exit_code == 2
    assert [(d["code"], d["line"], d["file"]) for d in data["diagnostics"]] == [
        ("NQX009", 2, "neuralqx-struct.toml"),
        ("NQX010", 3, "neuralqx-struct.toml"),
    ]
    assert invoke("inspect", "runs/ckpt").exit_code == 0  # takes nothing of it


def test_warnings_about_the_project_file_are_findings(project, monkeypatch):
    set_project(project, 'trust = ["lab_steps"]\n')
    owner = (project / "neuralqx-struct.toml").stat().st_uid
    monkeypatch.setattr("neuralqx_struct.tools.project.os.geteuid", lambda: owner + 1)
    codes = [d["code"] for d in report("schema", "lint", "models")[1]["diagnostics"]]
    assert ("NQX510" in codes) == (owner != 0)


# --- limits --------------------------------------------------------------------------------------------------------


def test_limits_of_migrations(project):
    words = ("migrate", "runs/ckpt", "--dry-run")
    assert invoke(*words, "--limits", "nodes=2_000_000", "--limits", "depth=300").exit_code == 0
    assert "nodes" in invoke(*words, "--limits", "nodes=1").output
    assert invoke("migrate", "runs", "--dry-run", "--limits", "nodes=1").exit_code == 1
    for wrong, shown in (("node=1", "did you mean 'nodes'?"), ("nodes=x", "a whole number"), ("x", "known: manifest_bytes")):  # fmt: skip
        done = invoke(*words, "--limits", wrong)
        assert done.exit_code == 2 and shown in done.stderr
