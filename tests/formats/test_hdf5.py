"""HDF5 files as h5py writes them: names, values, and everything that is refused."""

import random
import sys
from pathlib import Path

import h5py
import ml_dtypes
import numpy as np
import pytest

from neuralqx_struct import formats
from neuralqx_struct.errors import IntegrityError, SerializationError, UntrustedError
from neuralqx_struct.formats import hdf5, hdf5_reader
from neuralqx_struct.manifest import Limits
from tests.builders import bounded, cases, refused, same

ARRAYS = {
    "model/dense.1/kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
    "model/dense.1/bias": np.ones(3, ">f8"),
    "model/on": np.array([True, False]),
    "model/phase": np.array([1 + 2j], np.complex64),
    "zero": np.zeros((0, 3)),
    "step": np.array(5),
    "done": np.array(True),
    "text": np.array([b"abc", b"d"]),
}


def written(path, fill=None):
    with h5py.File(path, "w", track_order=True) as file:
        if fill is not None:
            fill(file)
            return path
        for name, array in ARRAYS.items():
            file.create_dataset(name, data=array)
        file.create_dataset("packed", data=np.zeros(10_000), chunks=(100,), compression="gzip")
    return path


def test_groups_are_names(tmp_path):
    with formats.opened(written(tmp_path / "m.h5")) as file:
        assert file.format == "hdf5"
        names = {name.replace(".", r"\.").replace("/", "."): name for name in ARRAYS}
        assert set(file.arrays) == {*names, "packed"}
        for name, place in names.items():
            array = ARRAYS[place]
            assert same(file.arrays[name].read(), array.astype(array.dtype.newbyteorder("=")))
        bias = file.arrays[r"model.dense\.1.bias"]
        assert same(bias.part((slice(0, 2),)), np.ones(2))
        assert file.arrays["packed"].read().sum() == 0
        kernel = file.arrays[r"model.dense\.1.kernel"]
        assert kernel.part((slice(1, 2), slice(0, 2))).tolist() == [[3, 4]]
        assert not kernel.read().flags.writeable
    assert kernel.read().shape == (2, 3)
    assert formats.verify(tmp_path / "m.h5") == []


def test_attributes_and_texts_are_values(tmp_path):
    def fill(file):
        file.attrs.update(n=5, rate=0.5, on=np.bool_(True), name="é", raw=np.bytes_(b"q"))
        file.attrs["list"] = [1, 2]
        file.attrs["reference"] = file.ref
        file.create_group("a").attrs["n"] = 7
        file["a/text"] = "hello"
        file["a/none"] = h5py.Empty("f4")

    with formats.opened(written(tmp_path / "m.h5", fill)) as file:
        plain = {"n": 5, "rate": 0.5, "on": True, "name": "é", "raw": "q"}
        assert file.values == plain | {"a.n": 7, "a.text": "hello", "a.none": None}
        assert {name: type(value) for name, value in file.values.items() if name == "on"} == {
            "on": bool
        }
        assert file.arrays == {}


def test_links_inside_a_file_are_passed_over(tmp_path):
    def fill(file):
        file["a/w"] = np.ones(2)
        file["soft"] = h5py.SoftLink("/a/w")
        file["dangling"] = h5py.SoftLink("/nothing")
        file["a/loop"] = file["a"]
        file["tied"] = file["a/w"]

    with formats.opened(written(tmp_path / "m.h5", fill)) as file:
        assert sorted(file.arrays) == ["a.w", "tied"]


def test_dtypes_that_cannot_be_read(tmp_path):
    def fill(file):
        file["b"] = np.ones(2, ml_dtypes.bfloat16)
        file["r"] = np.zeros(1, [("a", "i4")])
        file.create_dataset("o", data=["a", "bc"])

    path = written(tmp_path / "m.h5", fill)
    with formats.opened(path) as file:
        for name in file.arrays:
            with refused(SerializationError, "NQX411", f"$.arrays.{name}"):
                file.arrays[name].read()
    assert {d.code for d in formats.verify(path)} == {"NQX411"}


def external_link(file):
    file["w"] = h5py.ExternalLink("/etc/other.h5", "/w")


def external_data(file):
    file.create_dataset("w", (4,), "u1", external=[("/etc/passwd", 0, 4)])


def virtual(file):
    layout = h5py.VirtualLayout((4,), "f4")
    layout[:] = h5py.VirtualSource("other.h5", "w", (4,))
    file.create_virtual_dataset("w", layout)


UNTRUSTED = {
    "link": (external_link, "NQX503", "m.h5"),
    "data": (external_data, "NQX503", "m.h5"),
    "virtual": (virtual, "NQX503", "m.h5"),
    "not stored": (
        lambda file: file.create_dataset("w", (10**13,), "f4", chunks=(8,)),
        "NQX505",
        40_000_000_000_000,
    ),
    "large chunk": (
        lambda file: file.create_dataset("w", (1,), "f4", chunks=(10**9,), maxshape=(None,)),
        "NQX505",
        4_000_000_000,
    ),
}


@pytest.mark.parametrize(("fill", "code", "named"), UNTRUSTED.values(), ids=UNTRUSTED)
def test_untrusted_files(tmp_path, fill, code, named):
    with bounded(), refused(UntrustedError, code, "$.arrays.w", named):
        formats.opened(written(tmp_path / "m.h5", fill))


def test_damaged_files(tmp_path):
    path = written(tmp_path / "m.h5")
    data = path.read_bytes()
    for size in (8, 100, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        with refused(IntegrityError, "NQX408", "m.h5", "h5py"):
            formats.opened(path)
        assert formats.verify(path)
    place = data.index(np.arange(6, dtype=np.float32).tobytes())
    path.write_bytes(data[: place // 2] + bytes(64) + data[place // 2 + 64 :])
    with bounded():
        formats.verify(path)


SEEDS = cases(40)


def test_no_damage_ends_the_process_or_takes_long(tmp_path):
    """Flipped bits, cut ends and bytes of another place: an error or another sound file."""
    path = written(tmp_path / "m.h5")
    data = path.read_bytes()
    draw = random.Random(5)
    found = []
    with bounded():
        for seed in range(SEEDS):
            broken = bytearray(data)
            if seed % 4 == 0:
                del broken[draw.randrange(600, len(broken)) :]
            for _ in range(seed % 4 * 3):
                broken[draw.randrange(len(broken) // 2)] ^= 1 << draw.randrange(8)
            if seed % 4 == 3:
                start = draw.randrange(len(broken) - 64)
                broken[64:128] = broken[start : start + 64]
            path.write_bytes(broken)
            found.append({each.code for each in formats.verify(path)})
    codes = set().union(*found)
    assert codes <= {"NQX408", "NQX411", "NQX412", "NQX503", "NQX505", "NQX005"}
    assert "NQX408" in codes


@pytest.mark.parametrize("harm", ["memory", "time", "crash"])
def test_the_process_is_bounded(tmp_path, monkeypatch, harm):
    """A file that made the C library take any memory or time, or end, is one error."""
    path = written(tmp_path / "m.h5")
    harms = {
        "memory": "bytearray(1 << 40)",
        "time": "exec('while True: pass')",
        "crash": "__import__('os').kill(__import__('os').getpid(), 11)",
    }
    script = tmp_path / "reader.py"
    source = Path(hdf5_reader.__file__).read_text()
    script.write_text(source.replace("walk.group(file)", harms[harm]))
    monkeypatch.setattr(hdf5_reader, "__file__", str(script))
    monkeypatch.setattr(hdf5, "_LEAST", 1)
    with bounded(), refused(IntegrityError, "NQX408", "m.h5", "h5py"):
        formats.opened(path)


def test_packed_arrays_are_read_after_the_file_was_closed(tmp_path):
    with formats.opened(written(tmp_path / "m.h5")) as file:
        packed = file.arrays["packed"]
        assert packed.part((slice(50, 10, -2),)).tolist() == [0] * 20
    assert packed.read().shape == (10_000,)


def test_damaged_chunks(tmp_path):
    path = written(
        tmp_path / "m.h5",
        lambda f: f.create_dataset("w", data=np.arange(1e4), chunks=(5000,), compression="gzip"),
    )
    data = bytearray(path.read_bytes())
    for place in range(len(data) // 2, len(data) // 2 + 2000):
        data[place] ^= 0x55
    path.write_bytes(bytes(data))
    [found] = formats.verify(path)
    assert (found.code, found.path) == ("NQX408", "$.arrays.w")


def test_limits(tmp_path):
    path = written(tmp_path / "m.h5", lambda file: file.create_group("/".join("a" * 300)))
    with refused(SerializationError, "NQX005", 200):
        formats.opened(path)
    path = written(tmp_path / "n.h5", lambda file: file.attrs.update(a="x" * 500, b="y" * 600))
    with refused(SerializationError, "NQX005", 2):
        formats.opened(path, limits=Limits(nodes=2))
    with refused(SerializationError, "NQX005", 1000):
        formats.opened(path, limits=Limits(manifest_bytes=1000))


def test_recognised_and_refused_without_h5py(tmp_path, monkeypatch):
    path = written(tmp_path / "weights")
    monkeypatch.setitem(sys.modules, "h5py", None)
    assert formats.recognised(path).name == "hdf5"
    with refused(SerializationError, "NQX615", "h5py", "[hdf5]"):
        formats.opened(path)
