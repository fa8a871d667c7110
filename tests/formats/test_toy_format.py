"""A kind of foreign file that is added as one record takes part in every operation, and no other code names kinds."""

import ast
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct import formats
from neuralqx_struct.errors import IntegrityError, SerializationError
from neuralqx_struct.formats.store import STORES
from neuralqx_struct.formats.table import ForeignArray, ForeignFile, Format, checked, register
from tests.builders import ROOT, invoke, refused

PACKAGE = Path(s.__file__).parent


def recognises(found):
    return found.start.startswith(b"TOY")


def opened(path, reading):
    data = path.read_bytes()[3:]
    try:
        document = json.loads(data)
    except ValueError as error:
        raise IntegrityError(f"expected JSON, got: {error}", code="NQX408") from error

    def lazy(item):
        def read():
            return np.array(item, dtype=np.float64)

        return ForeignArray("float64", (len(item),), read)

    arrays = {name: lazy(item) for name, item in document.items() if type(item) is list}
    values = {name: item for name, item in document.items() if type(item) is not list}
    return ForeignFile(path=str(path), format="toy", arrays=arrays, values=values)


def write(stage, arrays, writing):
    document = {name: checked(name, array).tolist() for name, array in arrays.items()}
    stage.write_bytes(b"TOY" + json.dumps(document).encode())


TOY = Format(
    name="toy",
    title="a toy",
    suffix=".toy",
    recognises=recognises,
    opened=opened,
    write=write,
    folder=lambda _: False,
    metadata=False,
)


@pytest.fixture
def path(tmp_path):
    """A toy file, and its kind in the table for one test."""
    register([TOY])
    yield formats.write(tmp_path / "m.toy", "toy", {"a.w": np.arange(3.0), "b": np.ones(2)})
    del formats.FORMATS["toy"]


def test_it_is_recognised_and_read(path):
    assert formats.recognised(path) is TOY
    with formats.opened(path) as file:
        assert list(file.arrays) == ["a.w", "b"]
        assert file.arrays["a.w"].part((slice(1, 2),)).tolist() == [1]


def test_inspect_and_verify(path):
    assert str(s.inspect(path)).startswith(f"{path}: a toy\n  a.w  float64[3]")
    assert s.verify(path) == []
    assert invoke("inspect", path).exit_code == invoke("verify", path).exit_code == 0
    path.write_bytes(b"TOY{")
    assert [(d.code, d.file) for d in s.verify(path)] == [("NQX408", str(path))]


def test_it_becomes_another_kind(path, tmp_path):
    with formats.opened(path) as file:
        other = formats.write(tmp_path / "m.npz", "npz", file.arrays)
    with formats.opened(other) as file:
        formats.write(path, "toy", file.arrays, overwrite=True)
    assert s.inspect(path).nbytes == 40


def test_a_kind_of_folders_takes_no_target_from_bundles(tmp_path):
    register([replace(TOY, suffix="", folder=lambda _: True)])
    try:
        source = formats.write(tmp_path / "m.npz", "npz", {"a": np.ones(2)})
        draft = s.infer(source, schema="lab.net")
        s.convert(source, tmp_path / "b", schema=s.load_schema(draft), layout=draft.layout)
        assert s.validate(tmp_path / "b") == []
    finally:
        del formats.FORMATS["toy"]


def test_it_refuses_as_its_record_says(path, tmp_path):
    with refused(SerializationError, "NQX614", "toy"):
        formats.write(tmp_path / "n.toy", "toy", {}, metadata={"a": "b"})
    with refused(SerializationError, "NQX614", "max_shard_size", "toy", "5"):
        formats.write(tmp_path / "n.toy", "toy", {}, max_shard_size=5)


def test_its_name_is_in_the_errors(path, tmp_path):
    (tmp_path / "other").write_bytes(b"other")
    with refused(SerializationError, "NQX620", "toy"):
        formats.opened(tmp_path / "other")
    with refused(SerializationError, "NQX614", "toi", "toy"):
        formats.write(tmp_path / "n", "toi", {})


def test_a_missing_member_or_a_name_twice_is_an_error_at_once():
    with pytest.raises(TypeError, match="suffix"):
        Format(name="toy", title="a toy")
    with refused(ValueError, "npz"):
        register([formats.FORMATS["npz"]])


def test_kinds_are_imported_when_they_are_used():
    """Each row has the facts that are needed before: its name, and whether it has a store."""
    code = "import sys, neuralqx_struct.bundle, neuralqx_struct.formats as f; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = {f"neuralqx_struct.formats.{module}" for _, module, _, _ in formats._ROWS}
    assert modules.isdisjoint(done.stdout.split())
    for name, _, _, has_store in formats._ROWS:
        kind = formats.FORMATS[name]
        assert kind.name == name and (kind.store is not None) == has_store
        assert kind.store is None or STORES[name] is kind.store


def test_no_other_code_names_kinds():
    """But for those that are stores too: test_toy_store.py has these."""
    known = formats.FORMATS.keys() - {"npz", "safetensors", "orbax"}
    found = set()
    for file in PACKAGE.rglob("*.py"):
        if file.parent.name == "formats":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and node.value in known:
                found.add((file.relative_to(PACKAGE).as_posix(), node.value))
    assert not found


def test_the_page_lists_every_kind_and_which_are_written():
    page = (ROOT / "docs" / "foreign-files.md").read_text()
    rows = [line.split("|")[1:] for line in page.splitlines() if line.startswith("| `")]
    listed = {name.strip(" `"): written.strip() == "yes" for name, _, written, _, _ in rows}
    assert listed == {kind.name: kind.write is not None for kind in formats.FORMATS.values()}
