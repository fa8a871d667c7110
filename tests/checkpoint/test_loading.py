"""What a load touches: one map for a file, only the bytes that are asked for, little memory, word of its progress."""

import json
import os
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.errors import IntegrityError, SerializationError
from neuralqx_struct.formats import files as store_files
from neuralqx_struct.formats import ranges
from neuralqx_struct.places import checksums
from tests.builders import ROOT, every, refused
from tests.preloaded import PROGRAMS, python

FORMS = ["ckpt", "ckpt.zip"]


@pytest.fixture(params=FORMS)
def ckpt(tmp_path, request):
    state = {
        "w": jnp.arange(4096.0),
        "n": np.arange(5000),
        "h": jnp.ones((3, 2), jnp.bfloat16),
        "step": 7,
    }
    return s.export(state, tmp_path / request.param)


def region(path, name):
    """First and last byte of an array in the file that has it."""
    record = bundle.read_manifest(path)["arrays"][name]
    start = record["offset"]
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as outer:
            info = outer.getinfo("arrays.npz")
            head = path.read_bytes()[info.header_offset : info.header_offset + 30]
            start += info.header_offset + 30 + int.from_bytes(head[26:28], "little")
            start += int.from_bytes(head[28:30], "little")
    return start, start + record["nbytes"]


def test_one_map_for_the_file_and_aligned_views_of_it(ckpt, monkeypatch):
    maps = []
    original = store_files.mmap_module.mmap
    monkeypatch.setattr(
        store_files.mmap_module, "mmap", lambda *a, **k: maps.append(a) or original(*a, **k)
    )
    arrays = dict(bundle.read(ckpt).arrays)
    assert len(maps) == (
        1 if ckpt.suffix != ".zip" else 2
    )  # a zip is mapped once more, for its directory
    data = (ckpt if ckpt.suffix else ckpt / "arrays.npz").read_bytes()
    for name, array in arrays.items():
        assert array.ctypes.data % 64 == 0
        first, last = region(ckpt, name)
        assert first % 64 == 0 and data[first:last] == array.tobytes()
    assert all(not array.flags.owndata and not array.flags.writeable for array in arrays.values())


def test_jax_takes_the_pages_of_the_map(ckpt):
    state = s.load(ckpt, verify=False)
    again = s.load(ckpt, verify=False)
    assert state["w"].unsafe_buffer_pointer() % 64 == 0
    assert state["w"].unsafe_buffer_pointer() != again["w"].unsafe_buffer_pointer()  # a map each
    assert np.array_equal(state["w"], again["w"])


def test_a_part_reads_its_bytes_alone(ckpt, monkeypatch):
    seen = []
    monkeypatch.setattr(
        ranges,
        "checksum",
        lambda data, tick=None: seen.append(len(data)) or checksums.checksum(data, tick),
    )
    part = s.load(ckpt, select="path:n")
    assert part["w"] is None and part["n"][-1] == 4999 and part["step"] == 7
    assert seen == [40_000]
    seen.clear()
    s.load(ckpt, verify=False)
    s.load(ckpt, abstract=True)
    assert seen == []


@every("verify", [True, False])
@every("preadv", [True, False])
@every("suffix", ["", ".zip"])
def test_large_arrays_are_read_into_private_memory_by_pieces(
    tmp_path, monkeypatch, suffix, verify, preadv
):
    """Several threads read and check at once, on systems without preadv too; damage in any piece is found."""
    if not preadv:
        monkeypatch.setattr(store_files, "_PREADV", None)
    arrays = {"a": np.arange(3 * 2**20 + 7), "b": np.arange(5, dtype="int8")}
    path = s.export(arrays, tmp_path / f"large{suffix}")
    seen = []
    loaded = s.load(
        path, mmap=False, verify=verify, progress=lambda done, total: seen.append((done, total))
    )
    assert all(
        np.array_equal(loaded[name], array) and not loaded[name].flags.writeable
        for name, array in arrays.items()
    )
    assert seen == sorted(seen) and seen[-1] == (sum(a.nbytes for a in arrays.values()),) * 2
    file = path / "arrays.npz" if path.is_dir() else path
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    file.write_bytes(damaged)
    if verify:
        with refused(IntegrityError, "NQX407", "$.arrays.a", "crc32"):
            s.load(path, mmap=False)


@pytest.mark.parametrize("name", FORMS)
def test_a_part_in_private_memory_reads_its_bytes_alone(tmp_path, monkeypatch, name):
    state = {"w": jnp.zeros(1 << 18), "n": np.arange(5000)}  # small files are read whole
    ckpt = s.export(state, tmp_path / name)
    reads = []
    original = store_files._PrivateBytes.fill
    monkeypatch.setattr(
        store_files._PrivateBytes,
        "fill",
        lambda self, out, start: reads.append(len(out)) or original(self, out, start),
    )
    state = s.load(ckpt, select="path:n", mmap=False)
    assert reads == [40_000]
    assert state["n"].ctypes.data % 64 == 0
    reads.clear()
    s.load(ckpt, abstract=True, mmap=False)
    assert reads == []


def spoil(path, name):
    file = path if path.suffix else path / "arrays.npz"
    data = bytearray(file.read_bytes())
    data[region(path, name)[0]] ^= 1
    file.write_bytes(data)


def test_damage_elsewhere_is_not_looked_at(ckpt):
    spoil(ckpt, "w")
    with refused(IntegrityError, "NQX407", "$.arrays.w"):
        s.load(ckpt)
    assert s.load(ckpt, select="path:n")["n"][3] == 3
    assert s.load(ckpt, abstract=True)["w"].shape == (4096,)
    assert s.load(ckpt, verify=False)["n"][3] == 3


def test_mapped_pages_of_what_nobody_reads_stay_on_the_disk(tmp_path):
    size = 64 << 20
    path = s.export({"a": np.ones(size // 8), "b": np.zeros(4)}, tmp_path / "big")
    code = (
        "import sys, resource; from neuralqx_struct import bundle\n"
        "import numpy\n"
        "def used(): return int(open('/proc/self/statm').read().split()[1]) * 4096\n"
        f"held = bundle.read({str(path)!r}, verify=False); held.arrays['b']; held.arrays['a']\n"
        "before = used(); a = held.arrays['a']; assert used() - before < 4 << 20\n"
        "assert a.sum() == a.size; assert used() - before > 32 << 20"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_private_memory_does_not_change_with_the_file(ckpt):
    state = s.load(ckpt, mmap=False)
    file = ckpt if ckpt.suffix else ckpt / "arrays.npz"
    with file.open("r+b") as out:
        out.write(bytes(file.stat().st_size))
    assert state["n"].tolist() == list(range(5000)) and float(state["w"][5]) == 5


def test_compressed_arrays_are_the_same(tmp_path, ckpt):
    packed = s.export(s.load(ckpt), tmp_path / f"packed{ckpt.suffix}", compress=True)
    plain, small = s.load(ckpt), s.load(packed)
    assert all(
        np.array_equal(plain[k], small[k]) and type(plain[k]) is type(small[k]) for k in plain
    )
    assert s.load(packed, select="path:n")["w"] is None and s.verify(packed) == []
    file = packed if packed.suffix else packed / "arrays.npz"
    assert file.stat().st_size < 40_000


def test_a_zip_is_read_without_unpacking(tmp_path, monkeypatch):
    path = s.export({"w": np.arange(1 << 16)}, tmp_path / "c.zip")
    written = set(tmp_path.iterdir())
    monkeypatch.setattr("tempfile.mkdtemp", None)
    array = s.load(path)["w"]
    assert not array.flags.owndata and set(tmp_path.iterdir()) == written
    with zipfile.ZipFile(path) as outer:
        assert outer.testzip() is None and {i.compress_type for i in outer.infolist()} == {
            zipfile.ZIP_STORED
        }


def test_numpy_and_unzip_read_the_arrays(tmp_path):
    path = s.export({"w": jnp.arange(3.0), "n": np.arange(1 << 18)}, tmp_path / "c")
    with np.load(path / "arrays.npz", allow_pickle=False) as file:
        assert file["w"].tolist() == [0, 1, 2] and len(file["n"]) == 1 << 18
    tool = (
        ["unzip", "-t"] if any((Path(p) / "unzip").exists() for p in os.get_exec_path()) else None
    )
    tool = tool or [sys.executable, "-m", "zipfile", "-t"]
    assert (
        subprocess.run([*tool, path / "arrays.npz"], check=True, capture_output=True).returncode
        == 0
    )


def test_abstract_leaves_are_shapes_and_kinds(ckpt):
    shapes = s.load(ckpt, abstract=True)
    assert {k: (type(v), v.shape, v.dtype) for k, v in shapes.items() if k != "step"} == {
        "w": (jax.ShapeDtypeStruct, (4096,), np.dtype("float32")),
        "n": (jax.ShapeDtypeStruct, (5000,), np.dtype("int64")),
        "h": (jax.ShapeDtypeStruct, (3, 2), jnp.dtype("bfloat16")),
    }
    assert shapes["step"] == 7


def test_numpy_leaves_where_they_are_asked_for(ckpt):
    state = s.load(ckpt, as_numpy=True)
    assert all(isinstance(state[k], np.ndarray) for k in "wnh") and state["h"].dtype == jnp.bfloat16


def test_x64_off_is_an_error_with_two_remedies(tmp_path):
    with jax.enable_x64(True):
        path = s.export({"w": jnp.arange(3.0)}, tmp_path / "c")
        assert s.load(path)["w"].dtype == np.float64
    with refused(SerializationError, "NQX417", "jax_enable_x64", "as_numpy=True"):
        s.load(path)
    assert s.load(path, as_numpy=True)["w"].dtype == np.float64


# ---------------------------------------------------------------------------------------------------------------------
# Progress, threads, memory


def test_progress_comes_often(tmp_path):
    size = 3 * (8 << 20) + 8
    path = tmp_path / "c"
    for run in (
        lambda tell: s.export({"w": np.zeros(size // 8)}, path, progress=tell),
        lambda tell: s.load(path, progress=tell),
        lambda tell: s.verify(path, progress=tell),
        lambda tell: s.convert(path, tmp_path / "d", store="safetensors", progress=tell),
        lambda tell: s.load(tmp_path / "d", progress=tell),
        lambda tell: s.convert(path, tmp_path / "z", compress=True, progress=tell),
    ):
        seen = []
        run(lambda *a, seen=seen: seen.append(a))
        assert seen[-1] == (size, size) and seen == sorted(seen) and len(seen) >= 2
        assert max(b[0] - a[0] for a, b in zip([(0, 0), *seen], seen, strict=False)) <= 16 << 20
    seen = []
    s.load(path, abstract=True, progress=lambda *a: seen.append(a))
    assert seen == [(size, size)]


def test_worker_threads_export_and_load_at_once(tmp_path):
    problems = []

    def work(number):
        try:
            state = {"w": jnp.full((3 << 20,), number, jnp.float32), "n": np.full(9, number)}
            path = s.export(state, tmp_path / f"{number}{'.zip' * (number % 2)}")
            again = s.load(path)
            assert float(again["w"][-1]) == number and again["n"].tolist() == [number] * 9
        except Exception as error:  # noqa: BLE001 - a thread's
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


MEMORY = """
import json, sys, threading, time
import numpy as np
import neuralqx_struct as s
from neuralqx_struct import bundle
import neuralqx_struct.checkpoint
folder, size, form, store, mmap = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5] == "mmap"
def status(name):
    return next(int(l.split()[1]) * 1024 for l in open("/proc/self/status") if l.startswith(name))
def peak(work):
    open("/proc/self/clear_refs", "w").write("5")  # the peak starts anew
    before = status("VmRSS")
    work()
    return status("VmHWM") - before
s.export({"w": np.zeros(4)}, folder + "/warm"); s.load(folder + "/warm")
start = status("VmRSS")
arrays = {f"x{i}": np.ones(size // 8 // 8) for i in range(8)}
path = folder + "/" + form
export = peak(lambda: s.export(arrays, path, store=store))
del arrays
held = []
load = peak(lambda: held.append(s.load(path, mmap=mmap)))
print(json.dumps([export, load]))
"""


@pytest.mark.parametrize(
    ("size", "form", "store", "mmap"),
    [
        (128 << 20, "ckpt", "npz", "mmap"),
        (128 << 20, "ckpt.zip", "npz", "private"),
        (128 << 20, "ckpt", "safetensors", "mmap"),
        pytest.param(1 << 30, "ckpt", "npz", "mmap", marks=pytest.mark.slow),
        pytest.param(1 << 30, "ckpt.zip", "npz", "private", marks=pytest.mark.slow),
    ],
)
def test_the_peak_of_memory_is_that_of_the_arrays(work, size, form, store, mmap):
    done = python(*PROGRAMS).run("-c", MEMORY, str(work), str(size), form, store, mmap)
    export, load = json.loads(done.stdout)
    assert export < 0.1 * size  # beside the arrays that the caller holds
    assert load < 1.1 * size  # the arrays themselves: pages of the file, or private memory


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
@pytest.mark.parametrize("name", ["ckpt", "ckpt.zip"])
def test_loads_of_small_bundles_hold_no_files(tmp_path, name):
    s.export({"a": np.arange(8.0)}, tmp_path / name)
    before = len([*Path("/proc/self/fd").iterdir()])
    held = [s.load(tmp_path / name) for _ in range(20)]
    assert len([*Path("/proc/self/fd").iterdir()]) == before
    assert all(each["a"].sum() == 28 for each in held)


def test_dtypes_that_jax_gives_as_others_are_refused(tmp_path):
    if not hasattr(ml_dtypes, "int1"):
        pytest.skip("this release of ml_dtypes has none")
    array = jnp.ones(3, ml_dtypes.int1)
    if np.asarray(array).dtype == array.dtype:
        pytest.skip("this release of JAX holds it")
    with refused(s.SerializationError, "NQX430", "int1"):
        s.export({"a": array}, tmp_path / "ckpt")
