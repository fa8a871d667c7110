"""What type checkers tell users of the stubs of their schemas. Of the package, `.ci/run` asks them about `tests/typing`."""

import json
import subprocess
import sys

import pytest

from neuralqx_struct.schema.series import load_series
from neuralqx_struct.schema.stubs import stub_module
from tests.builders import SHIPPED


def mypy(root, folder, files):
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--output",
        "json",
        "--config-file",
        str(root / "pyproject.toml"),
        *files,
    ]
    out = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
    assert out.returncode in (0, 1), out.stderr + out.stdout
    found = [json.loads(line) for line in out.stdout.splitlines() if line.startswith("{")]
    return {
        (e["file"], e["line"], e["code"], e["message"]) for e in found if e["severity"] == "error"
    }


def basedpyright(root, folder, files):
    """With all its rules: those that are strict, and those that it warns of by default."""
    options = {
        "include": ["."],
        "extraPaths": [str(root)],
        "typeCheckingMode": "recommended",
        "pythonVersion": "3.11",
        "reportUnusedExpression": False,
        "reportUnusedCallResult": False,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(options))
    command = [
        sys.executable,
        "-m",
        "basedpyright",
        "--outputjson",
        "--pythonpath",
        sys.executable,
        "-p",
        str(folder),
    ]
    out = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert out.returncode in (0, 1), out.stderr + out.stdout
    found = json.loads(out.stdout)["generalDiagnostics"]
    return {
        (e["file"], e["range"]["start"]["line"] + 1, e.get("rule", "syntax"), e["message"])
        for e in found
    }


ODD = """language: "1"
schema: lab.odd
version: 1
root: Any
enums:
  Phase: [warm, cold]
  E: [a, b]
structs:
  Any:
    doc: 'Ends with a quote"'
    fields:
      int: {type: int, default: 3}
      self: {type: float, doc: 'a \\ b \"\"\" c'}
      list: "list[int]"
      typing: {type: E, default: a}
      jax: "float32[n]"
      np: {type: "float32[n] | null", default: null}
      Box: {type: "Box | null", default: null}
      boxes: {type: "dict[str, Box]", default: {}}
      phase: {type: Phase, default: warm}
      p: {type: path, default: a/b}
      d: {type: dtype, default: float32}
      t: {type: "tuple[int, str]", default: [1, x]}
      u: "tuple[]"
      v: "tuple[int, ...]"
      lit: {type: "literal['x', 2, 2.5, True]", default: 2.5}
      w: {type: "float32[3]", default: zeros}
      SCHEMA: bytes
      tree: pytree
      lg: {kind: opaque, default: null}
      c: {type: complex, default: 1.5}
      DEFAULT: {type: int, kind: static, derived: "int + 1"}
  Box:
    fields: {x: "prng_key[threefry2x32]"}
  Empty:
    fields: {}
"""
USE = """
import jax
import numpy as np
from odd import Any as State, Box, Empty
from vmc import Optimizer, Sampler, VMCState

key = jax.random.key(0)
sampler = Sampler(sigma=np.array([[1, 1]], dtype=np.int8), key=key)
Empty()
Box(x=key)
State(self=1.0, list=[1], jax=key, u=(), v=(1, 2), SCHEMA=b"", tree=3, boxes={"a": Box(x=key)})


def run(state: VMCState, optimizer: Optimizer) -> float:
    later: VMCState = state.replace(step=state.step + 1)
    assert optimizer != later
    again: VMCState = VMCState.load("ckpt")
    return later.learning_rate + again.kernel.size + again.sampler.sigma.size + state.n_parameters


Sampler(sigma="text", key=key)  # wrong: type
Sampler(sigma=key)  # wrong: missing
Sampler(sigma=key, key=key, kay=1)  # wrong: unknown
Sampler(key, key)  # wrong: by position
sampler.sigma = key  # wrong: frozen
sampler.sigme  # wrong: no such field
State(self=1.0, list=[1], jax=key, u=(), v=(), SCHEMA=b"", tree=3, phase="hot")  # wrong: no member
State(self=1.0, list=["a"], jax=key, u=(), v=(), SCHEMA=b"", tree=3)  # wrong: item
State(self=1.0, list=[1], jax=key, u=(), v=(), SCHEMA=b"", tree=3, DEFAULT=4)  # wrong: derived
Empty(x=1)  # wrong: no fields
"""


def written_stubs(root, folder):
    """Modules of the shipped schemas and of an odd one, and the names of their files."""
    (folder / "v1.yaml").write_text(ODD)
    modules = {
        "odd.py": stub_module(load_series(folder / "v1.yaml").head, "v1.yaml"),
        "vmc.py": stub_module(load_series(root / "schemas/vmc_state").head, "schemas/vmc_state"),
    }
    for name in SHIPPED:
        modules[f"{name}.py"] = stub_module(load_series(root / "schemas" / name).head, name)
    for name, text in modules.items():
        (folder / name).write_text(text)
    return [str(folder / name) for name in modules]


@pytest.mark.parametrize("checker", [mypy, basedpyright])
def test_stubs_make_classes_of_schemas_known_to_editors(checker, root, tmp_path):
    files = written_stubs(root, tmp_path)
    (tmp_path / "use.py").write_text(USE)
    said = checker(root, tmp_path, [*files, str(tmp_path / "use.py")])
    places = {
        (file.replace("\\", "/").rpartition("/")[2], line): f"{code}: {message}"
        for file, line, code, message in said
    }
    wrong = {
        ("use.py", number) for number, line in enumerate(USE.splitlines(), 1) if "# wrong" in line
    }
    assert places.keys() == wrong, places


def test_the_package_says_that_it_is_typed(root):
    assert (root / "neuralqx_struct/py.typed").is_file()
