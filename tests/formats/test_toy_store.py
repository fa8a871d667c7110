"""A store that is added as one record takes part in every operation, and no other code names stores."""

import ast
import json
from pathlib import Path

import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.bundle.conversion import convert
from neuralqx_struct.formats import store as stores
from neuralqx_struct.formats.entries import FileFormat
from neuralqx_struct.formats.files import file_store
from neuralqx_struct.formats.npz import NPZ_STORE as NPZ
from neuralqx_struct.formats.orbax_store import ORBAX_STORE
from neuralqx_struct.formats.ranges import StoredArray
from neuralqx_struct.formats.safetensors import SAFETENSORS_STORE as SAFETENSORS
from neuralqx_struct.formats.store import Store, logical_dtype, require_nbytes
from neuralqx_struct.places.checksums import crc32
from neuralqx_struct.places.requests import Range
from tests.builders import refused, write_linked

PACKAGE = Path(s.__file__).parent

VERSION_1 = """\
language: "1"
schema: lab.toy
version: 1
root: State
structs:
  State:
    fields:
      w: {type: array, dtype: float32, shape: [3]}
      b: {type: array, dtype: float32, shape: [2]}
      n: {type: int}
"""
VERSION_2 = VERSION_1.replace("version: 1", "version: 2").replace("n: {", "count: {")
VERSION_2 += """\
migrations:
  - from: 1
    steps:
      - rename: {field: n, to: count}
"""
VERSION_3 = VERSION_1.replace("version: 1", "version: 3").replace("n: {", "count: {")
VERSION_3 = VERSION_3.replace("w: {type: array, dtype: float32", "w: {type: array, dtype: float64")
VERSION_3 += """\
migrations:
  - from: 2
    steps:
      - cast: {field: w, dtype: float64}
"""


def write(file, arrays, compress, tick):
    records, index, position = {}, {}, 0
    for name, array in arrays.items():
        data = array.tobytes()
        file.write(data)
        index[name] = [position, len(data)]
        records[name] = {
            "dtype": logical_dtype(name, array.dtype),
            "shape": list(array.shape),
            "crc32": crc32(data),
            "nbytes": len(data),
        }
        position += len(data)
        if tick is not None:
            tick(len(data))
    text = json.dumps(index).encode()
    file.write(text + len(text).to_bytes(8, "little"))
    return records


def read_index(view):
    size = int.from_bytes(view[-8:], "little")
    return json.loads(bytes(view[len(view) - 8 - size : -8]))


def agreed(view, place, record):
    start, nbytes = place
    require_nbytes(record, nbytes, nbytes)
    shape, where = tuple(record["shape"]), Range(start, start + nbytes)
    return StoredArray(record["dtype"], shape, where, record["crc32"])


@pytest.fixture
def toy():
    """The toy store, in the table for one test."""
    store = file_store(
        FileFormat(write=write, index=read_index, agreed=agreed),
        name="toy",
        suffix="flat",
        compression="never",
    )
    stores.STORES["toy"] = store
    yield store
    del stores.STORES["toy"]


@pytest.fixture
def schema(tmp_path):
    folder = tmp_path / "schema"
    folder.mkdir()
    for version, text in enumerate((VERSION_1, VERSION_2, VERSION_3), 1):
        (folder / f"v{version}.yaml").write_text(text)
    return s.load_schema(folder)


@pytest.fixture
def state(schema):
    return schema.at(1).State(w=np.arange(3, dtype="f4"), b=np.ones(2, "f4"), n=7)


@pytest.fixture(params=["a", "a.zip"])
def saved(request, toy, state, tmp_path):
    return state.export(tmp_path / request.param, store="toy")


def files_of(path):
    return {record.get("file") for record in bundle.read_manifest(path)["arrays"].values()}


def test_the_record_names_its_file(toy):
    assert toy.file == "arrays.flat"
    assert stores.store_named("toy") is stores.store_of_file("arrays-2.flat") is toy


def test_save_load_and_look(saved, schema, state):
    assert files_of(saved) == {"arrays.flat"}
    assert s.validate(saved) == s.verify(saved) == []
    assert "float32[3]" in str(s.inspect(saved))
    assert schema.at(1).State.load(saved) == state
    for options in ({"mmap": False}, {"verify": False}):
        assert schema.at(1).State.load(saved, **options) == state
    seen = []
    assert s.load(saved, progress=lambda *done: seen.append(done)).n == 7
    assert seen[-1] == (20, 20)


def test_select_reads_the_selected_arrays(saved, schema):
    data = bytearray((saved if saved.suffix else saved / "arrays.flat").read_bytes())
    place = data.index(np.arange(3, dtype="f4").tobytes())
    data[place] ^= 1
    if not saved.suffix:
        (saved / "arrays.flat").write_bytes(data)
        assert [d.code for d in s.verify(saved)] == ["NQX407"]
        with refused(s.IntegrityError, "NQX407", "w", "crc32"):
            s.load(saved)
    assert s.load(saved, select="path:b").w is None
    assert np.array_equal(s.load(saved, select="path:b").b, [1, 1])


def test_diff(saved, toy, state, tmp_path):
    assert s.diff(saved, state.export(tmp_path / "npz")) == []


@pytest.mark.parametrize("other", ["npz", "safetensors", "orbax"])
def test_convert_to_it_and_back(toy, state, tmp_path, other):
    first = state.export(tmp_path / "first", store=other)
    second = convert(first, tmp_path / "second", store="toy")
    assert (second.store, second.linked) == ("toy", False)
    third = convert(second.out, tmp_path / "third", store=other)
    for path in (second.out, third.out):
        assert type(state).load(path) == state
        assert s.verify(path) == []
    assert convert(second.out, tmp_path / "again").linked


def test_migrate_keeps_the_store(saved, schema, tmp_path):
    renamed = s.migrate(saved, tmp_path / f"v2{saved.suffix}", to=2, schema=schema)
    assert renamed.linked == (not saved.suffix)
    assert files_of(renamed.out) == {"arrays.flat"}
    cast = s.migrate(saved, tmp_path / f"v3{saved.suffix}", schema=schema)
    assert {Path(str(file)).suffix for file in files_of(cast.out)} == {".flat"}
    for done in (renamed, cast):
        assert {d.severity for d in s.verify(done.out)} <= {"info"}
        assert s.validate(done.out) == []
        loaded = schema.State.load(done.out)
        assert (loaded.count, loaded.w.tolist(), str(loaded.w.dtype)) == (7, [0, 1, 2], "float64")


def test_arrays_of_a_migration_stay_in_the_store(toy, schema, tmp_path):
    """Most bytes are unchanged, so the old file is linked and the cast array goes into a file beside it."""
    state = schema.at(1).State(w=np.arange(3, dtype="f4"), b=np.ones(2, "f4"), n=7)
    saved = state.export(tmp_path / "a", store="toy")
    document = bundle.read_manifest(saved)
    record = {"dtype": "float64", "shape": [3]}
    document["arrays"]["w"] = record
    document["manifest"]["fields"]["w"]["dtype"] = "float64"
    out = write_linked(saved, tmp_path / "b", document, changed={"w": np.arange(3.0)})
    assert files_of(out) == {"arrays.flat", "arrays-1.flat"}
    assert {d.severity for d in s.verify(out)} <= {"info"}


def test_it_refuses_as_its_record_says(toy, tmp_path):
    with refused(s.SerializationError, "NQX614", "compress=False", "toy"):
        s.export({"w": np.ones(2)}, tmp_path / "a", store="toy", compress=True)
    with refused(s.SerializationError, "NQX614", "nonsense"):
        s.export({"w": np.ones(2)}, tmp_path / "a", store="nonsense")


def test_it_is_written_in_the_background(toy, tmp_path):
    pending = s.export({"w": np.ones(2)}, tmp_path / "a", store="toy", asynchronous=True)
    assert s.load(pending.wait())["w"].tolist() == [1, 1]


def test_it_writes_what_the_manifest_describes(toy, tmp_path):
    """Else nobody could load it."""

    def other(file, arrays, compress, tick):
        return write(
            file, {name: each.astype("f8") for name, each in arrays.items()}, compress, tick
        )

    stores.STORES["toy"] = file_store(
        FileFormat(write=other, index=read_index, agreed=agreed),
        name="toy",
        suffix="flat",
        compression="never",
    )
    with refused(s.SerializationError, "NQX430", "float32[2]", "float64") as info:
        s.export({"w": np.ones(2, "f4")}, tmp_path / "a", store="toy")
    assert (info.value.code, info.value.diagnostics[0].path) == ("NQX430", "$.arrays.w")
    assert not (tmp_path / "a").exists()


def test_a_missing_member_is_an_error_at_once():
    with pytest.raises(TypeError, match="folder"):
        Store(name="toy", suffix="flat")
    with pytest.raises(TypeError, match="suffix"):
        file_store(FileFormat(write=write, index=read_index, agreed=agreed), name="toy")


def test_no_other_code_names_stores():
    """Names of stores are in their own modules, the default of ``store=`` and the default file; formats have their own."""
    known = {name for store in (NPZ, SAFETENSORS, ORBAX_STORE) for name in (store.name, store.file)}
    found = set()
    for file in PACKAGE.rglob("*.py"):
        if file.parent.name == "formats":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and node.value in known:
                found.add((file.relative_to(PACKAGE).as_posix(), node.value))
    found -= {("manifest/__init__.py", "arrays.npz"), ("manifest/models.py", "arrays.npz")}
    assert found == {("bundle/writing.py", "npz"), ("checkpoint/__init__.py", "npz")}
