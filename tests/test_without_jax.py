"""The package where JAX is not installed: everything above the JAX line, and the command line."""

import os
import subprocess
import sys

import pytest

BLOCK = """
import sys


class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("jax", "jaxlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Blocked())
"""


@pytest.fixture
def python(tmp_path, root):
    """Runs Python without JAX in a folder that holds the example schema and one bundle of it."""
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas/vmc_state").symlink_to(root / "schemas/vmc_state")
    (tmp_path / "ckpt").symlink_to(root / "tests/golden/format-1/vmc_state_1")
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked/sitecustomize.py").write_text(BLOCK)
    path = os.pathsep.join([str(tmp_path / "blocked"), str(root)])
    environment = {**os.environ, "PYTHONPATH": path, "NO_COLOR": "1"}

    def run(*arguments):
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


COMMANDS = [
    "validate ckpt",
    "validate ckpt --schema schemas/vmc_state",
    "inspect ckpt --filter tag:trainable",
    "verify ckpt",
    "inspect ckpt/arrays.npz",
    "verify ckpt/arrays.npz",
    "diff schemas/vmc_state/v1.yaml schemas/vmc_state/v3.yaml",
    "convert ckpt --out copy.zip",
    "convert ckpt --out copy --store safetensors",
    "infer ckpt",
    "infer ckpt/arrays.npz --out drafts",
    "migrate ckpt --to head --out new --schema schemas/vmc_state",
    "breaking schemas --against schemas",
    "explain NQX301",
    "schema lint schemas/vmc_state",
    "schema show schemas/vmc_state",
    "schema new lab.x",
    "schema freeze schemas/vmc_state",
    "schema history schemas/vmc_state",
    "schema stub schemas/vmc_state",
    "schema json-schema schemas/vmc_state",
]
#: Runs commands one after the other; tells those that fail.
RUN = """
import sys
from neuralqx_struct.cli import call
failed = [words for words in sys.argv[1:] if call(words.split()) != 0]
sys.exit(f"failed: {failed}" if failed else 0)
"""


def test_commands_run(python):
    done = python("-c", RUN, *COMMANDS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_foreign_files_become_bundles_and_files_again(python, tmp_path):
    layout = "layout: x\nof: neuralqx.vmc_state@1\n"
    (tmp_path / "x.yaml").write_text(f'language: "1"\n{layout}values: {{n_iter: 3}}\n')
    options = "--schema schemas/vmc_state/v1.yaml --layout x.yaml"
    done = python("-m", "neuralqx_struct", *f"convert ckpt --out a.npz {options}".split())
    assert done.returncode == 0, done.stdout + done.stderr
    back = python(
        "-c",
        "import neuralqx_struct as s, json; from neuralqx_struct.bundle import read_manifest;"
        "fields = read_manifest('ckpt')['manifest']['fields'];"
        "values = {k: v for k, v in fields.items() if not isinstance(v, dict)};"
        "s.convert('a.npz', 'again', schema='schemas/vmc_state/v1.yaml', layout='x.yaml', values=values);"
        "assert s.validate('again') == [], s.validate('again')",
    )
    assert back.returncode == 0, back.stderr


@pytest.mark.parametrize("command", ["demo", "schema export m:State"])
def test_commands_that_need_jax_name_it(python, command):
    done = python("-m", "neuralqx_struct", *command.split())
    assert done.returncode == 2
    assert "expected the package jax" in done.stderr and "pip install jax" in done.stderr
    assert "NQX400" in done.stderr


CONVERTED = """
import numpy as np
import neuralqx_struct as s
from neuralqx_struct import formats

arrays = {f"h.{i}.w": np.arange(6, dtype="float32").reshape(2, 3) + i for i in range(2)}
for kind in ("safetensors", "npz", "msgpack"):
    formats.write(f"m.{kind}", kind, arrays)
    draft = s.infer(f"m.{kind}", schema="lab.net")
    schema = s.load_schema(draft)
    assert s.inspect(f"m.{kind}").arrays == 2 and s.verify(f"m.{kind}") == []
    s.convert(f"m.{kind}", f"{kind}-bundle", schema=schema, layout=draft.layout)
    s.convert(f"{kind}-bundle", f"again.{kind}", schema=schema, layout=draft.layout)
    assert open(f"m.{kind}", "rb").read() == open(f"again.{kind}", "rb").read()
    assert s.diff_values(f"m.{kind}", f"again.{kind}").equal
    for call in (schema.from_layout, schema.to_layout):
        try:
            call(f"m.{kind}", draft.layout)
        except s.SerializationError as error:
            assert error.code == "NQX615" and "pip install jax" in str(error), error
        else:
            raise AssertionError(call)
draft.write("schemas/net")
"""


def test_foreign_files_of_every_written_kind(python):
    done = python("-c", CONVERTED)
    assert done.returncode == 0, done.stderr
    layout = "schemas/net/layouts/msgpack.yaml"
    done = python("-m", "neuralqx_struct", "schema", "lint", layout, "--file", "m.msgpack")
    assert done.returncode == 0, done.stdout + done.stderr


def test_names_that_need_jax_name_it(python):
    done = python("-c", "import neuralqx_struct as s; s.Struct")
    assert (
        "neuralqx_struct.Struct needs jax, which is not installed: pip install jax" in done.stderr
    )


def test_schemas_and_migrations_in_python(python):
    done = python(
        "-c",
        "import neuralqx_struct as s;"
        "assert s.load_schema('schemas/vmc_state').document.version == 3;"
        "assert s.validate('ckpt') == [] and s.verify('ckpt') == [];"
        "s.migrate('ckpt', 'new', to=3, schema='schemas/vmc_state'); assert s.validate('new') == [];"
        "s.diff('schemas/vmc_state/v1.yaml', 'schemas/vmc_state/v2.yaml');"
        "s.infer('ckpt'); s.inspect('ckpt'); s.convert('new', 'copy.zip');"
        "s.steps.rename(field='a', to='b'); s.filters.parse('tag:x'); s.Diagnostic",
    )
    assert done.returncode == 0, done.stderr
