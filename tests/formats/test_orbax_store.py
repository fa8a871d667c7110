"""The orbax store: every dtype and shape, shards of several devices, damage, and what Orbax itself sees."""

import json
import os
import pathlib
import subprocess
import sys
import tracemalloc
import zipfile
from inspect import signature

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.bundle.conversion import convert
from neuralqx_struct.dtypes import ML_DTYPES, dtype_named
from neuralqx_struct.errors import IntegrityError, SerializationError, UntrustedError
from neuralqx_struct.formats import orbax_store
from neuralqx_struct.formats.orbax_store import ORBAX_STORE as orbax
from neuralqx_struct.formats.store import Access, store_of_file
from tests.builders import ROOT, refused
from tests.preloaded import PROGRAMS, python

NUMPY = [
    "bool",
    "int8",
    "uint16",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
OTHERS = [">f4", ">i8", "<U3", "|S2", "<M8[ns]", "<m8[s]"]
EXOTIC = sorted(name for name in ML_DTYPES if hasattr(__import__("ml_dtypes"), name))

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:orbax", "ignore::DeprecationWarning")


def of_dtype(name, shape=(2, 3)):
    dtype = dtype_named(name)
    raw = np.random.default_rng(0).integers(
        0, 2 if name == "bool" else 100, (*shape, dtype.itemsize), np.uint8
    )
    return np.ascontiguousarray(raw).reshape(-1).view(dtype).reshape(shape)


@pytest.fixture(scope="module")
def every_dtype(tmp_path_factory):
    """One checkpoint of all dtypes: each costs Orbax some time."""
    arrays = {f"x/{name}": of_dtype(name) for name in [*NUMPY, *OTHERS, *EXOTIC]}
    target = tmp_path_factory.mktemp("orbax") / orbax.file
    return arrays, orbax.write(target, arrays), target


@pytest.mark.parametrize("name", [*NUMPY, *OTHERS, *EXOTIC])
def test_every_dtype_survives_bit_by_bit(every_dtype, name):
    arrays, records, target = every_dtype
    key = f"x/{name}"
    found = orbax.read(target, records)[key]
    assert found.dtype == arrays[key].dtype and found.shape == (2, 3)
    assert found.tobytes() == arrays[key].tobytes()
    assert not found.flags.writeable


def test_shapes_names_and_ticks(tmp_path):
    arrays = {
        "scalar": np.array(5.0, np.float32),
        "empty": np.zeros((0, 3), np.int8),
        "a": np.arange(3),
        "a/b": np.arange(4)[::2],
        "": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "ü.é/.zarray": np.ones(2),
        "%": np.full((2, 1, 2), 7, "bfloat16"),
    }
    ticks = []
    records = orbax.write(tmp_path / "t", arrays, tick=ticks.append)
    total = sum(a.nbytes for a in arrays.values())
    assert sum(ticks) == total and len(ticks) > len(arrays)
    ticks.clear()
    held = orbax.read(tmp_path / "t", records, Access(tick=ticks.append))
    assert list(held) == list(arrays) and len(held) == 7 and "a" in held and "b" not in held
    for name, array in arrays.items():
        assert held[name].dtype == array.dtype and np.array_equal(held[name], array), name
        assert held[name].shape == array.shape
    assert sum(ticks) >= total
    assert orbax.verify(tmp_path / "t", records) == []
    assert store_of_file(orbax.file).folder


def test_nothing_but_empty_arrays(tmp_path):
    path = s.export({"e": np.zeros((0, 2)), "n": 3}, tmp_path / "a", store="orbax")
    assert s.load(path)["e"].shape == (0, 2)
    assert s.verify(path) == s.validate(path) == []


@pytest.fixture
def ckpt(tmp_path):
    state = {
        "w": jnp.arange(12.0).reshape(4, 3),
        "n": np.arange(3),
        "h": jnp.ones(3, jnp.bfloat16),
        "step": 7,
    }
    return s.export(state, tmp_path / "ckpt", store="orbax", metadata={"run": 1})


def test_the_manifest_is_that_of_every_store(ckpt, tmp_path):
    other = s.export(s.load(ckpt), tmp_path / "npz", metadata={"run": 1})
    ours, theirs = bundle.read_manifest(ckpt), bundle.read_manifest(other)
    for document in (ours, theirs):
        document.pop("digest")
        for record in document["arrays"].values():
            record.pop("file", None), record.pop("offset", None)
    assert ours == theirs
    assert sorted(p.name for p in ckpt.iterdir()) == ["arrays.orbax", "manifest.json"]


def test_loading(ckpt):
    state = s.load(ckpt)
    assert (
        isinstance(state["w"], jax.Array)
        and isinstance(state["n"], np.ndarray)
        and state["step"] == 7
    )
    assert (
        np.array_equal(state["w"], np.arange(12.0).reshape(4, 3))
        and state["h"].dtype == jnp.bfloat16
    )
    part = s.load(ckpt, select="path:n")
    assert part["w"] is None and part["n"].tolist() == [0, 1, 2]
    assert isinstance(s.load(ckpt, as_numpy=True)["w"], np.ndarray)
    assert s.verify(ckpt) == s.validate(ckpt) == []
    assert "w" in str(s.inspect(ckpt))
    seen = []
    s.load(ckpt, progress=lambda *a: seen.append(a))
    assert seen[-1] == (48 + 24 + 6,) * 2 and len(seen) >= 3


def test_an_abstract_load_opens_no_array(ckpt, monkeypatch):
    monkeypatch.setattr(orbax_store, "_opened", None)
    shapes = s.load(ckpt, abstract=True)
    assert shapes["w"].shape == (4, 3) and isinstance(shapes["w"], jax.ShapeDtypeStruct)
    with pytest.raises(TypeError):
        s.load(ckpt)


def test_selecting_reads_what_is_selected(ckpt, monkeypatch):
    read, original = [], orbax_store._opened
    monkeypatch.setattr(
        orbax_store, "_opened", lambda root, name, *a: read.append(name) or original(root, name, *a)
    )
    s.load(ckpt, select="path:n")
    assert read == ["n"]


def test_shards_are_written_from_their_devices_and_placed_again(tmp_path):
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))
    split = NamedSharding(mesh, PartitionSpec("x", "y"))
    w = jax.device_put(jnp.arange(32.0).reshape(8, 4), split)
    b = jax.device_put(jnp.arange(4), NamedSharding(mesh, PartitionSpec("y")))
    h = jax.device_put(jnp.ones((4, 4), jnp.float8_e4m3fn), split)
    path = s.export({"w": w, "b": b, "h": h}, tmp_path / "a", store="orbax")
    state = s.load(path)
    assert np.array_equal(state["w"], w) and np.array_equal(state["b"], b)
    placed = s.load(path, shardings={"w": split, "b": None, "h": split})
    assert placed["w"].sharding == split and placed["h"].sharding == split
    assert {shard.data.shape for shard in placed["w"].addressable_shards} == {(4, 2)}
    assert s.load(path, abstract=True, select="path:w", shardings=split)["w"].sharding == split
    by_rank = s.load(path, shardings=lambda path, leaf: split if leaf.ndim == 2 else None)
    assert by_rank["h"].sharding == split and np.array_equal(by_rank["w"], w)
    with refused(ValueError, "$['b']", "shardings="):
        s.load(path, shardings=split)
    import tensorstore

    base = {"driver": "file", "path": f"{path / 'arrays.orbax'}/"}
    spec = {"driver": "zarr", "kvstore": {"driver": "ocdbt", "base": base, "path": "w/"}}
    assert tensorstore.open(spec).result().chunk_layout.read_chunk.shape == (
        4,
        2,
    )  # a chunk for each shard


def test_shards_of_more_devices_than_this_process_has(tmp_path):
    code = f"""
import jax, jax.numpy as jnp, numpy as np, neuralqx_struct as s
from jax.sharding import Mesh, NamedSharding, PartitionSpec
assert jax.device_count() == 8
split = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), PartitionSpec("x"))
s.export({{"w": jax.device_put(jnp.arange(64.0), split)}}, {str(tmp_path / "a")!r}, store="orbax")
"""
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    done = python(*PROGRAMS).run("-c", code, env=environment)
    assert done.returncode == 0, done.stderr
    assert jax.device_count() < 8
    split = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), PartitionSpec("x"))
    state = s.load(tmp_path / "a", shardings=split)
    assert np.array_equal(state["w"], np.arange(64.0)) and state["w"].sharding == split


def test_orbax_itself_reads_the_arrays(ckpt):
    import orbax.checkpoint as ocp

    with ocp.PyTreeCheckpointer() as reader:
        tree = reader.restore(ckpt / "arrays.orbax")
    assert (
        np.array_equal(tree["w"], np.arange(12.0).reshape(4, 3)) and tree["h"].dtype == jnp.bfloat16
    )


def test_reading_imports_neither_jax_nor_orbax(ckpt):
    code = (
        "import sys; from neuralqx_struct import bundle\n"
        f"held = bundle.read({str(ckpt)!r})\n"
        "assert held.arrays['n'].tolist() == [0, 1, 2]\n"
        f"assert bundle.verify({str(ckpt)!r}) == []\n"
        "assert not {'jax', 'orbax'} & {name.partition('.')[0] for name in sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def data_files(path):
    return [
        p
        for p in sorted((path / "arrays.orbax").rglob("*"))
        if p.parent.name == "d" or p.name == "manifest.ocdbt"
    ]


def test_a_flipped_bit_is_an_error_or_has_no_effect(ckpt):
    wanted = {n: a.tobytes() for n, a in bundle.read(ckpt).arrays.items()}
    refused = 0
    generator = np.random.default_rng(0)
    for file in data_files(ckpt):
        data = file.read_bytes()
        for position in generator.choice(len(data), min(len(data), 12), replace=False):
            changed = bytearray(data)
            changed[position] ^= 1 << int(generator.integers(8))
            file.write_bytes(changed)
            try:
                assert {n: a.tobytes() for n, a in bundle.read(ckpt).arrays.items()} == wanted
                assert bundle.verify(ckpt) == []
            except SerializationError as error:
                refused += 1
                assert error.code in ("NQX407", "NQX408", "NQX409", "NQX410", "NQX412")
                assert [d for d in bundle.verify(ckpt) if d.severity == "error"]
        file.write_bytes(data)
    assert refused > 20


def test_every_lost_file_is_found(ckpt):
    for file in data_files(ckpt):
        data = file.read_bytes()
        file.unlink()
        try:
            values = {n: a.tobytes() for n, a in bundle.read(ckpt).arrays.items()}
        except IntegrityError:
            assert bundle.verify(ckpt)
        else:  # the parts of each process are merged at the end, and its own list is not needed any more
            assert len(values) == 3
        file.write_bytes(data)
    __import__("shutil").rmtree(ckpt / "arrays.orbax")
    assert [d.code for d in bundle.verify(ckpt)] == ["NQX409"]
    with refused(IntegrityError, "NQX409", "arrays.orbax"):
        s.load(ckpt)


def edit(path, change):
    file = path / "manifest.json"
    document = json.loads(file.read_text())
    document.pop("digest")
    change(document)
    from neuralqx_struct.manifest.text import format_manifest

    file.write_bytes(format_manifest(document))


def test_damage_is_told_at_once_and_can_be_left_unread(ckpt):
    def spoil(document):
        for name in ("w", "n"):
            document["arrays"][name]["crc32"] ^= 1

    edit(ckpt, spoil)
    assert [(d.code, d.path) for d in bundle.verify(ckpt)] == [
        ("NQX407", "$.arrays.w"),
        ("NQX407", "$.arrays.n"),
    ]
    with refused(IntegrityError, "NQX407", "$.arrays.w", "arrays.orbax"):
        s.load(ckpt)
    assert s.load(ckpt, verify=False)["n"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda d: (d["arrays"]["n"].update(shape=[4], nbytes=32), d["manifest"]["items"][1][1].update(shape=[4])), "NQX412"),
        (lambda d: d["arrays"]["n"].update(nbytes=25), "NQX408"),
        (lambda d: (d["arrays"].update(m=d["arrays"].pop("n")), d["manifest"]["items"][1][1].update(name="m")), "NQX409"),
    ],
)  # fmt: skip
def test_records_that_do_not_fit(ckpt, change, code):
    edit(ckpt, change)
    with pytest.raises(IntegrityError) as caught:
        dict(bundle.read(ckpt).arrays)
    assert code in [d.code for d in caught.value.diagnostics]
    assert code in [d.code for d in bundle.verify(ckpt)]


def test_links_inside_are_refused(ckpt, tmp_path):
    (ckpt / "arrays.orbax" / "d" / "x").symlink_to(tmp_path)
    for call in (s.load, lambda path: s.verify(path)[0].code == "NQX504" and s.load(path)):
        with refused(UntrustedError, "NQX504"):
            call(ckpt)
    (ckpt / "arrays.orbax").rename(tmp_path / "elsewhere")
    (ckpt / "arrays.orbax").symlink_to(tmp_path / "elsewhere")
    with refused(UntrustedError, "NQX504"):
        s.load(ckpt)


def test_zips_and_missing_extras_are_told_clearly(tmp_path, monkeypatch):
    with refused(SerializationError, "NQX614", "orbax", "zip"):
        s.export({"w": np.zeros(2)}, tmp_path / "a.zip", store="orbax")
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    with refused(SerializationError, "NQX615", "neuralqx-struct[orbax]"):
        s.export({"w": np.zeros(2)}, tmp_path / "a", store="orbax")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_extra_is_told_on_reading(ckpt, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorstore", None)
    with refused(SerializationError, "NQX615"):
        s.load(ckpt)


def test_overwriting_converting_and_migrating(ckpt, tmp_path):
    s.export({"x": jnp.arange(2)}, ckpt, store="orbax", overwrite=True)
    assert s.load(ckpt)["x"].tolist() == [0, 1]
    packed = convert(ckpt, tmp_path / "a.zip", store="npz")
    assert s.load(packed.out)["x"].tolist() == [0, 1]
    back = convert(packed.out, tmp_path / "b", store="orbax")
    assert s.load(back.out)["x"].tolist() == [0, 1] and not back.linked
    linked = convert(back.out, tmp_path / "c")
    assert linked.linked and linked.store == "orbax"
    assert all(p.samefile(tmp_path / "c" / p.relative_to(back.out)) for p in data_files(back.out))
    assert s.load(linked.out)["x"].tolist() == [0, 1] and s.verify(linked.out) == []
    with refused(SerializationError, "NQX614", "orbax"):
        convert(ckpt, tmp_path / "d.zip")


def test_a_relative_path_is_written_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    s.export({"x": jnp.arange(2)}, "here", store="orbax")
    assert s.load("here")["x"].tolist() == [0, 1] and s.verify("here") == []
    assert convert("here", "there", store="npz").store == "npz"


def test_a_compressed_bundle_becomes_a_checkpoint_without_all_arrays_in_memory(tmp_path):
    size = 4 << 20
    arrays = {f"a{i}": np.full(size, i, np.uint8) for i in range(12)}
    source = s.export(arrays, tmp_path / "packed", compress=True)
    tracemalloc.start()
    try:
        s.convert(source, tmp_path / "ckpt", store="orbax")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Orbax before 0.12.5 copies all arrays once more.
    copies = "deepcopy_host_arrays" not in signature(ocp.type_handlers.NumpyHandler).parameters
    assert peak < (6 + 12 * copies) * size
    loaded = s.load(tmp_path / "ckpt")
    assert all(np.array_equal(loaded[name], array) for name, array in arrays.items())
    assert sorted(file.name for file in tmp_path.iterdir()) == ["ckpt", "packed"]


def test_arrays_are_read_into_memory_that_jax_takes_without_a_copy(tmp_path):
    arrays = {f"a{size}": np.arange(size, dtype=np.float32) for size in (1, 7, 1000, 100_000)}
    s.export(arrays, tmp_path / "ckpt", store="orbax")
    held = bundle.read(tmp_path / "ckpt").arrays
    for name in held:
        assert held[name].ctypes.data % 64 == 0 and not held[name].flags.writeable


def test_expected_arrays_are_requested_ahead(tmp_path, monkeypatch):
    """A few at a time, each once; arrays that are read in another order are right as well."""
    wanted = {f"w{i}": np.full(3, i) for i in range(9)} | {"none": np.zeros((0, 2))}
    records = orbax.write(tmp_path / orbax.file, wanted)
    asked, real = [], orbax_store._asked
    monkeypatch.setattr(orbax_store, "_asked", lambda *given: asked.append(given) or real(*given))
    for names, first in ([*wanted], 5), ([*reversed(wanted)], 1):
        del asked[:]
        arrays = orbax.read(tmp_path / orbax.file, records)
        arrays.expect(wanted)
        names.remove("none")
        assert np.array_equal(arrays[names[0]], wanted[names[0]]) and len(asked) == first
        for name in names[1:]:
            assert np.array_equal(arrays[name], wanted[name])
        assert len(asked) == 9
        assert arrays["none"].shape == (0, 2)
    monkeypatch.setattr(orbax_store, "_ROOM", 1)
    del asked[:]
    arrays = orbax.read(tmp_path / orbax.file, records)
    arrays.expect(wanted)
    assert arrays["w0"].tolist() == [0, 0, 0] and len(asked) == 1


def test_a_zip_of_its_folder_is_refused(tmp_path):
    folder = s.export({"w": np.ones(3)}, tmp_path / "ckpt", store="orbax")
    zipped = tmp_path / "ckpt.zip"
    with zipfile.ZipFile(zipped, "w") as made:
        for file in filter(pathlib.Path.is_file, folder.rglob("*")):
            made.write(file, file.relative_to(folder))
    with refused(SerializationError, "NQX614", zipped, orbax.file):
        s.load(zipped)
