"""Every kind of foreign file behind a URL: the bytes that describe its arrays are fetched, then those that are read."""

import threading
from types import SimpleNamespace

import equinox
import flax.serialization
import h5py
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry

import neuralqx_struct as s
from neuralqx_struct import formats
from neuralqx_struct.formats import orbax_remote as orbax_files
from neuralqx_struct.places.urls import RemotePath
from tests.builders import invoke, refused, same

BIG = np.arange(300_000, dtype=np.float32).reshape(3, 100_000)
ARRAYS = {"big": BIG, "small": np.arange(4, dtype=np.int8), "fortran": np.asfortranarray(BIG.T)}
TREE = {"big": BIG, "small": ARRAYS["small"]}


def written_hdf5(path):
    with h5py.File(path, "w") as file:
        for name, array in TREE.items():
            file[name] = array


def written_torch(path):
    import torch

    torch.save({name: torch.tensor(array) for name, array in TREE.items()}, path)


#: How each kind is written.
WRITERS = {
    "m.safetensors": lambda path: formats.write(path, "safetensors", TREE),
    "m.npz": lambda path: np.savez(path, **ARRAYS),
    "packed.npz": lambda path: np.savez_compressed(path, **ARRAYS),
    "m.npy": lambda path: np.save(path, BIG),
    "m.msgpack": lambda path: path.write_bytes(flax.serialization.to_bytes(TREE)),
    "m.eqx": lambda path: equinox.tree_serialise_leaves(path, list(TREE.values())),
    "m.h5": written_hdf5,
    "m.pt": written_torch,
    "orbax": lambda path: ocp.PyTreeCheckpointer().save(path, {"big": jnp.asarray(BIG)}),
}


class FakeHub(MemoryFileSystem):
    """A file system that stands for that of Hugging Face, and takes a token; it lists the ranges that are asked for."""

    protocol = "hf"
    store = {}
    pseudo_dirs = [""]
    asked = []
    files = []
    tokens = []

    def __init__(self, token=None, **options):
        super().__init__(**options)
        self.tokens.append(token)

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.removeprefix("hf://"))

    def cat_file(self, path, start=None, end=None, **options):
        self.asked.append((start, end))
        self.files.append((path, start))
        return super().cat_file(path, start=start, end=end, **options)


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.setitem(_registry, "hf", FakeHub)
    files = FakeHub(skip_instance_cache=True)
    yield files
    for held in (FakeHub.store, FakeHub.asked, FakeHub.files, FakeHub.tokens):
        held.clear()
    FakeHub.pseudo_dirs[:] = [""]


#: Few have torch.
SLOW = {"m.pt": pytest.mark.slow}


@pytest.fixture(params=[pytest.param(each, marks=SLOW.get(each, ())) for each in WRITERS])
def both(request, tmp_path, hub):
    """A file on this disk, and its URL."""
    path = tmp_path / request.param
    WRITERS[request.param](path)
    hub.put(str(path), f"/lab/{path.name}", recursive=path.is_dir())
    del hub.asked[:]
    return path, f"hf://lab/{path.name}"


def test_every_kind_is_read_from_a_url(both):
    path, url = both
    with formats.opened(path) as file, formats.opened(url) as remote:
        assert remote.format == file.format
        assert [*remote.arrays] == [*file.arrays]
        assert remote.values == file.values
        for name, array in file.arrays.items():
            there = remote.arrays[name]
            assert (there.dtype, there.shape) == (array.dtype, array.shape)
            assert same(there.read(), array.read())
            region = tuple(slice(1, None, 2) for _ in array.shape)
            assert same(np.ascontiguousarray(there.part(region)), array.read()[region].copy())
        assert remote.form() == file.form()
    assert s.verify(url) == []
    assert s.inspect(url).rows == s.inspect(path).rows
    assert s.diff_values(path, url).equal
    assert s.infer(url, schema="lab.net") == s.infer(path, schema="lab.net")


RANGED = ["m.npz", "m.npy", "m.msgpack", "m.eqx", "m.safetensors", "m.h5"]


@pytest.mark.parametrize("name", RANGED)
def test_the_ranges_that_are_needed_are_fetched(tmp_path, hub, name):
    path = tmp_path / name
    WRITERS[name](path)
    hub.put_file(str(path), f"/{name}")
    del hub.asked[:]
    with formats.opened(f"hf://{name}") as file:
        assert sum(end - start for start, end in hub.asked) <= 6 << 16
        array = next(each for each in file.arrays.values() if each.shape == BIG.shape)
        del hub.asked[:]
        assert same(array.part((slice(2, 3), slice(10, 20))), BIG[2:3, 10:20].copy())
        assert sum(end - start for start, end in hub.asked) == 40
        del hub.asked[:]
        array.read()
        assert sum(end - start for start, end in hub.asked) <= BIG.nbytes + 200


@pytest.fixture(params=[True, False])
def checkpoint(request, tmp_path, hub):
    """The arrays of a checkpoint of Orbax that is on this disk and on the hub, and its path."""
    random = np.random.default_rng(0)
    tree = {f"w{n}": jnp.asarray(random.random((200, 100))) for n in range(5)}
    path = tmp_path / "step"
    ocp.PyTreeCheckpointer(use_ocdbt=request.param).save(path, tree)
    hub.put(str(path), "/step", recursive=True)
    return tree, path


def test_a_checkpoint_of_orbax_is_downloaded_where_tensorstore_has_no_driver(checkpoint, hub):
    tree, _ = checkpoint
    for url in ("hf://step", "hf://step/"):
        with formats.opened(url) as file:
            del hub.asked[:]
            assert same(file.arrays["w3"].read(), np.asarray(tree["w3"]))
            assert hub.asked == []


def test_a_checkpoint_of_orbax_is_read_by_the_driver_of_tensorstore(checkpoint, hub, monkeypatch):
    tree, path = checkpoint
    driver = {"driver": "file", "path": f"{path}/"}
    monkeypatch.setitem(orbax_files._DRIVERS, "hf", lambda place: driver)
    with formats.opened("hf://step") as file:
        assert {name for name, _ in hub.files} == {"/step/_METADATA"}
        assert same(file.arrays["w3"].read(), np.asarray(tree["w3"]))
    assert s.verify("hf://step") == []


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("gs://runs/a/1", {"driver": "gcs", "bucket": "runs", "path": "a/1/"}),
        ("s3://runs/a", {"driver": "s3", "bucket": "runs", "path": "a/"}),
        (
            "https://h:8/a b/1",
            {"driver": "http", "base_url": "https://h:8", "path": "/a%20b/1/"},
        ),
        ("https://h/a?sig=1", None),
        ("az://b/run", None),
    ],
)
def test_the_drivers_of_tensorstore(url, driver):
    """Tensorstore takes the descriptions; it connects when it reads."""
    scheme, _, place = url.partition("://")
    files = SimpleNamespace(protocol=(scheme.rstrip("s") if "http" in scheme else scheme, "x"))
    files.storage_options = {}
    path = RemotePath(files, url if "http" in scheme else place, url)
    assert orbax_files.driver_of(path) == driver
    if driver is not None:
        assert tensorstore.KvStore.Spec(driver)
    files.storage_options = {"token": "x"}
    assert orbax_files.driver_of(path) is None


def test_a_server_that_fails_while_a_checkpoint_of_orbax_is_read(checkpoint, hub, monkeypatch):
    def silent(self, path, **options):
        raise TimeoutError("no answer")

    monkeypatch.setattr(FakeHub, "cat_file", silent)
    with refused(s.SerializationError, "NQX401", "TimeoutError") as caught:
        formats.opened("hf://step")
    assert len(caught.value.diagnostics) == 1


def test_headers_of_equinox_files_are_fetched_together(tmp_path, hub):
    model = {str(n): np.full((40, 1000), n, np.float32) for n in range(8)} | {"z": 3}
    equinox.tree_serialise_leaves(tmp_path / "m.eqx", model)
    hub.put_file(str(tmp_path / "m.eqx"), "/m.eqx")
    del hub.asked[:]
    with formats.opened("hf://m.eqx", like=model) as file:
        assert len(hub.asked) <= 11 and file.values == {"z": 3}
        assert sum(end - start for start, end in hub.asked[1:]) < 70_000
        assert same(file.arrays["5"].read(), model["5"])
    del hub.asked[:]
    with formats.opened("hf://m.eqx") as file:
        assert len(hub.asked) <= 11 and same(file.arrays["5"].read(), model["5"])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_headers_of_members_are_fetched_several_at_a_time(tmp_path, hub, monkeypatch, save):
    random = np.random.default_rng(0)
    arrays = {f"layers.{i}.w": random.random(20_000) for i in range(4)}
    arrays["deep"] = np.ones((1,) * 32)  # its header is longer than usual ones
    save(tmp_path / "m.npz", **arrays)
    hub.put_file(str(tmp_path / "m.npz"), "/m.npz")
    others = threading.Barrier(2, timeout=20)

    def cat_file(self, path, start=None, end=None, **options):
        if end - start < 4000:  # the first of the headers is among the first bytes of the file
            others.wait()
        self.asked.append((start, end))
        return MemoryFileSystem.cat_file(self, path, start=start, end=end, **options)

    with monkeypatch.context() as patch:
        patch.setattr(FakeHub, "cat_file", cat_file)
        file = formats.opened("hf://m.npz")
    sizes = sorted(end - start for start, end in hub.asked)
    assert len(sizes) <= 8
    assert sizes[3] < 4000 < sizes[-1] <= 1 << 16
    for name, array in arrays.items():
        assert same(file.arrays[name].read(), array)


def test_options_of_the_file_system_are_passed_on(tmp_path, hub):
    path = tmp_path / "m.npz"
    np.savez(path, w=np.ones(3, np.float32))
    hub.put_file(str(path), "/m.npz")
    keys = {"storage_options": {"token": "t"}}
    draft = s.infer("hf://m.npz", schema="lab.net", **keys)
    schema = s.load_schema(draft)
    model = schema.from_layout("hf://m.npz", draft.layout, **keys)
    assert model.w.tolist() == [1, 1, 1]
    assert s.inspect("hf://m.npz", **keys).nbytes == 12
    assert s.verify("hf://m.npz", **keys) == []
    assert s.diff_values(path, "hf://m.npz", **keys).equal
    made = s.convert("hf://m.npz", tmp_path / "b", schema=schema, layout=draft.layout, **keys)
    assert made.arrays == 1
    assert FakeHub.tokens.count("t") == 1  # fsspec keeps one object for the same options
    assert invoke("inspect", "hf://m.npz").exit_code == 0


@pytest.mark.parametrize("kind", ["safetensors", "npz", "msgpack"])
def test_files_are_written_to_urls(tmp_path, hub, kind):
    url = f"hf://lab/m.{kind}"
    formats.write(url, kind, TREE)
    assert hub.ls("/lab", detail=False) == [f"/lab/m.{kind}"]
    local = formats.write(tmp_path / f"m.{kind}", kind, TREE)
    assert hub.cat(f"/lab/m.{kind}") == local.read_bytes()
    with refused(FileExistsError, "NQX431", url):
        formats.write(url, kind, {"w": BIG})
    formats.write(url, kind, {"w": BIG}, overwrite=True)
    with formats.opened(url) as file:
        assert [*file.arrays] == ["w"]
    draft = s.infer(url, schema="lab.net")
    schema = s.load_schema(draft)
    s.convert(url, tmp_path / "b", schema=schema, layout=draft.layout)
    again = f"hf://lab/again.{kind}"
    s.convert(tmp_path / "b", again, schema=schema, layout=draft.layout)
    assert hub.cat(f"/lab/again.{kind}") == hub.cat(f"/lab/m.{kind}")


def test_files_that_are_not_written_to_urls(hub, monkeypatch):
    hub.pipe_file("/lab/notes.npz", b"no file of numpy")
    hub.pipe_file("/lab/folder.npz/x", b"x")
    hub.pipe_file("/lab/text.safetensors.md", b"text")
    for name in ("folder.npz", "text.safetensors.md"):
        with refused(FileExistsError, "NQX431", f"hf://lab/{name}"):
            formats.write(f"hf://lab/{name}", "npz", TREE, overwrite=True)
    with refused(s.SerializationError, "NQX614", "hf://lab/shards"):
        formats.write("hf://lab/shards", "safetensors", TREE, max_shard_size=100)
    before = hub.ls("/lab", detail=False)
    monkeypatch.setattr(FakeHub, "cp_file", lambda *given, **options: 1 / 0)
    with refused(s.SerializationError, "NQX406", "hf://lab/n.npz"):
        formats.write("hf://lab/n.npz", "npz", TREE)
    assert hub.ls("/lab", detail=False) == before


def test_a_server_that_fails_once_is_asked_again(tmp_path, hub, monkeypatch):
    array = np.random.default_rng(0).random(200_000)
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file.create_dataset("packed", data=array, chunks=(50_000,), compression="gzip")
    hub.put_file(str(tmp_path / "m.h5"), "/m.h5")
    with formats.opened("hf://m.h5") as file:
        with monkeypatch.context() as patch:
            patch.setattr(FakeHub, "cat_file", lambda *given, **options: 1 / 0)
            with refused(s.SerializationError, "NQX401", "hf://m.h5"):
                file.arrays["packed"].read()
            patch.setattr(FakeHub, "cat_file", lambda *given, **options: b"x")
            with refused(s.SerializationError, "NQX408", "1"):
                file.arrays["packed"].read()
        assert same(file.arrays["packed"].read(), array)
