"""What importing costs, said in modules and not in seconds."""

import ast
import subprocess
import sys

import pytest

import neuralqx_struct
from tests.builders import every


def modules_after(code):
    script = f"{code}\nimport sys\nprint('\\n'.join(sys.modules))"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(out.stdout.split())


@every("name", neuralqx_struct.__all__)
def test_every_public_name_is_there(name):
    assert getattr(neuralqx_struct, name) is not None and name in dir(neuralqx_struct)


def test_unknown_names():
    with pytest.raises(AttributeError, match="nope"):
        neuralqx_struct.nope


def test_the_stub_has_the_public_names(root):
    """It is read by a regular expression, as the parser of Python 3.11 fails where two threads use it."""
    tree = ast.parse((root / "neuralqx_struct/__init__.pyi").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    names = {alias.asname for node in imports for alias in node.names}
    assert names | {"__version__"} == set(neuralqx_struct.__all__)


def test_an_error_names_the_package_that_is_missing():
    code = """
import sys
sys.modules["jax"] = None
import neuralqx_struct as s
try:
    s.Struct
except ModuleNotFoundError as error:
    print(error)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = "neuralqx_struct.Struct needs jax, which is not installed: pip install jax\n"
    assert out.stdout == expected


LIGHT = {
    "the package": ("import neuralqx_struct", {"jax", "numpy", "pydantic", "yaml"}),
    "schemas": (
        "import neuralqx_struct.schema.series, neuralqx_struct.tools.linting",
        {"jax", "numpy", "jsonschema"},
    ),
    "reading a schema": (
        "import neuralqx_struct as s; s.load_schema('schemas/vmc_state').document",
        {"jax", "jsonschema"},
    ),
    "validating": (
        "import neuralqx_struct as s; s.validate",
        {"jax", "numpy", "jsonschema", "http.server"},
    ),
    "evolution": ("import neuralqx_struct as s; s.migrate, s.diff, s.steps", {"jax", "jsonschema"}),
    "writing about schemas": (
        """
from neuralqx_struct.schema import series; from neuralqx_struct.schema import language as drafts; from neuralqx_struct.schema import export, stubs
head = series.load_series("schemas/vmc_state").head
export.payload_schema(head), stubs.stub_module(head, "x")""",
        {"jax", "numpy", "jsonschema", "rich"},
    ),
    "versions of schemas": (
        "from neuralqx_struct.tools import history as releases; releases.history('schemas/vmc_state')",
        {"jax", "numpy", "jsonschema", "rich"},
    ),
    "inference": ("import neuralqx_struct as s; s.infer", {"jax", "numpy", "jsonschema"}),
    "the command": ("import neuralqx_struct.cli", {"jax", "numpy", "jsonschema"}),
}


@every("case", LIGHT)
def test_what_stays_unimported(case, root, monkeypatch):
    monkeypatch.chdir(root)
    code, absent = LIGHT[case]
    assert not modules_after(code) & absent


def test_no_module_bears_the_name_of_a_public_function(root):
    modules = {path.stem for path in (root / "neuralqx_struct").iterdir()}
    functions = {n for n in neuralqx_struct.__all__ if callable(getattr(neuralqx_struct, n))}
    assert not modules & functions


def test_a_valid_bundle_is_validated_with_pydantic_alone(tmp_path, root, monkeypatch):
    from neuralqx_struct import bundle
    from neuralqx_struct.manifest.payload import Payload

    monkeypatch.chdir(root)
    path = bundle.write(tmp_path / "ckpt", Payload({"version": 1, "manifest": 5, "arrays": {}}, {}))
    code = f"import neuralqx_struct.tools.validation as v; assert v.validate({str(path)!r}) == []"
    assert not modules_after(code) & {"jax", "numpy", "yaml", "jsonschema"}
