"""The plugin of pytest: its fixtures in small projects, and what it imports."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.builders import POINT_V1, POINT_V2, ROOT, invoke

PLUGIN = "neuralqx_struct.integrations.pytest_plugin"
GOLDEN_TEST = """
def test_golden(nqx_schema, nqx_golden):
    nqx_golden(nqx_schema)
"""


@pytest.fixture
def project(tmp_path):
    """A project with a schema of two versions, the first one frozen."""
    folder = tmp_path / "schemas" / "point"
    folder.mkdir(parents=True)
    (folder / "v1.yaml").write_text(POINT_V1)
    (folder / "v2.yaml").write_text(POINT_V2)
    assert invoke("schema", "freeze", folder / "v1.yaml").exit_code == 0
    (tmp_path / "test_it.py").write_text(GOLDEN_TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


OPTIONS = ["-q", "-p", "no:neuralqx_struct", "-p", PLUGIN]
#: Plugins that keep state of the process, which is that of the test.
WITHOUT = [f"-pno:{name}" for name in ("cacheprovider", "faulthandler", "xdist", "timeout")]


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs pytest in this process; returns the exit code and the output."""

    def run(folder, *words):
        monkeypatch.chdir(folder)
        sys.modules.pop("test_it", None)
        code = pytest.main([*OPTIONS, *WITHOUT, "--import-mode=importlib", *words, "test_it.py"])
        return int(code), "".join(capsys.readouterr())

    return run


def test_golden_bundles_are_written_and_then_compared(project, run):
    code, text = run(project)
    assert code == 1
    assert "NQX314" in text and "schema freeze" in text
    code, text = run(project, "--nqx-update-golden")
    assert code == 0, text
    golden = project / "schemas" / "point" / "golden"
    assert {path.name for path in golden.iterdir()} == {"v1", "v2", "head"}
    assert [path.name for path in (golden / "head").iterdir()] == ["v1"]
    code, text = run(project, "-vv")
    assert (code, "test_golden[point] PASSED" in text) == (0, True)

    # Another way from version 1 to 2 gives other values.
    newest = project / "schemas" / "point" / "v2.yaml"
    other = "remove: {field: step, undo_default: 0}}, {add: {field: count, default: 5}"
    changed = newest.read_text().replace("rename: {field: step, to: count}", other)
    changed = changed.replace("Point:\n", "Point:\n    reserved: [step]\n")
    newest.write_text(changed)
    code, text = run(project)
    assert code == 1, text
    assert "expected the values of" in text and "count" in text
    code, text = run(project, "--nqx-update-golden")
    assert code == 0, text
    code, text = run(project)
    assert code == 0, text

    shutil.rmtree(golden / "head")
    code, text = run(project)
    assert code == 1 and "run pytest --nqx-update-golden" in text
    (golden / "v1" / "arrays.npz").write_bytes(b"")
    code, text = run(project)
    assert code == 1 and "NQX315" in text


def test_schemas_without_frozen_versions_are_refused(project, run):
    (project / "schemas" / "point" / "schema.lock").unlink()
    code, text = run(project)
    assert code == 1 and "no version is frozen" in text


def test_the_folder_of_schemas_is_a_setting(project, run):
    (project / "schemas").rename(project / "declared")
    code, text = run(project)
    assert code == 2 and "set nqx_schemas in the settings" in text
    (project / "pytest.ini").write_text("[pytest]\nnqx_schemas = declared\n")
    assert "NQX314" in run(project)[1]
    (project / "pytest.ini").write_text("[pytest]\n")
    (project / "neuralqx-struct.toml").write_text('schemas = "declared"\n')
    assert "NQX314" in run(project)[1]


BUNDLES = """
import neuralqx_struct as s
import numpy as np

class State(s.Struct):
    w: np.ndarray
    step: int = 0

def test_struct(nqx_bundle):
    path = nqx_bundle(State(w=np.full(3, np.nan)))
    assert s.inspect(path).arrays == 1

def test_names_and_options(nqx_bundle):
    assert nqx_bundle({"a": np.zeros(2)}, "other", store="safetensors").name == "other"

def test_class(nqx_bundle):
    nqx_bundle(State(w=np.zeros(2)), cls=State)

def test_changed(nqx_bundle, monkeypatch):
    monkeypatch.setattr(s, "load", lambda path, **_: State(w=np.ones(3)))
    nqx_bundle(State(w=np.zeros(3)))

def test_damaged(nqx_bundle, monkeypatch):
    export = s.export
    def damage(obj, path, **options):
        made = export(obj, path, **options)
        (made / "arrays.npz").write_bytes(b"")
        return made
    monkeypatch.setattr(s, "export", damage)
    nqx_bundle(State(w=np.zeros(3)))
"""


def test_objects_come_back_from_bundles(tmp_path, run):
    (tmp_path / "test_it.py").write_text(BUNDLES)
    code, text = run(tmp_path)
    assert (code, "2 failed, 3 passed" in text) == (1, True), text
    assert "expected the values of" in text and "NQX4" in text


IMPORTS = """
import sys

def test_nothing_is_imported_early():
    loaded = {name.partition(".")[0] for name in sys.modules}
    assert not {"jax", "numpy", "pydantic", "yaml"} & loaded

def test_golden(nqx_golden):
    nqx_golden("schemas/point")
    assert "jax" not in sys.modules
"""


def test_the_plugin_imports_no_jax(project, run):
    assert run(project, "--nqx-update-golden")[0] == 0
    (project / "test_it.py").write_text(IMPORTS)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", PLUGIN],
        cwd=project,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_plugin_is_installed_for_pytest():
    import tomllib

    entries = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert entries["pytest11"] == {"neuralqx_struct": PLUGIN}
