"""Foreign .npz and .npy files, as numpy writes them."""

import io
import zipfile

import ml_dtypes
import numpy as np
import pytest

from neuralqx_struct import formats
from neuralqx_struct.errors import SerializationError, UntrustedError
from neuralqx_struct.manifest import Limits
from tests.builders import refused, same

ARRAYS = {
    "layer:0/kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "big": np.arange(3, dtype=">i4"),
    "bool": np.array([True, False]),
    "complex": np.array(1 + 2j),
    "text": np.array(["a", "bc"]),
    "date": np.array(["2024-01-01"], "M8[D]"),
    "none": np.zeros((0, 2), np.float16),
}
#: In the byte order of this machine, as they are read.
NATIVE = {name: array.astype(array.dtype.newbyteorder("=")) for name, array in ARRAYS.items()}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_files_of_numpy_are_read(tmp_path, save):
    path = tmp_path / "m.npz"
    save(path, **ARRAYS)
    with formats.opened(path) as file:
        assert (file.format, list(file.arrays)) == ("npz", list(ARRAYS))
        assert {n: (a.dtype, a.shape) for n, a in file.arrays.items()} == {
            n: (str(a.dtype), a.shape) for n, a in NATIVE.items()
        }
        found = {name: array.read() for name, array in file.arrays.items()}
    assert all(same(found[name], array) for name, array in NATIVE.items())
    assert not found["big"].flags.writeable
    assert formats.verify(path) == []


def test_one_array_without_a_name(tmp_path):
    path = tmp_path / "m.npy"
    np.save(path, ARRAYS["fortran"])
    with formats.opened(path) as file:
        assert (file.format, list(file.arrays)) == ("npy", ["arr_0"])
        assert same(file.arrays["arr_0"].read(), ARRAYS["fortran"])
    np.savez(tmp_path / "m.npz", ARRAYS["fortran"])
    with formats.opened(tmp_path / "m.npz") as file:
        assert list(file.arrays) == ["arr_0"]


def test_kinds_are_found_without_suffixes(tmp_path):
    np.save(tmp_path / "m.npy", np.ones(1))
    np.savez(tmp_path / "m.npz", w=np.ones(1))
    for kind in ("npy", "npz"):
        (tmp_path / f"m.{kind}").rename(tmp_path / kind)
        assert formats.recognised(tmp_path / kind).name == kind


def test_written_files_are_read_by_numpy(tmp_path):
    path = formats.write(tmp_path / "m.npz", "npz", ARRAYS)
    with np.load(path) as loaded, formats.opened(path) as file:
        assert list(loaded) == list(file.arrays) == list(ARRAYS)
        for name, native in NATIVE.items():
            assert same(loaded[name], native)
            assert same(file.arrays[name].read(), native)


@pytest.mark.parametrize("name", ["../w", "/w", "a\\w", "a\0"])
def test_names_that_lead_out_of_a_folder_are_not_written(tmp_path, name):
    with refused(SerializationError, "NQX503"):
        formats.write(tmp_path / "m.npz", "npz", {name: np.ones(1)})


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "float8_e4m3fn", "int4"])
def test_dtypes_without_a_name_in_the_file(tmp_path, dtype):
    array = np.ones(2, getattr(ml_dtypes, dtype))
    with refused(SerializationError, "NQX411", "$.arrays.w", dtype):
        formats.write(tmp_path / "m.npz", "npz", {"w": array})
    np.savez(tmp_path / "m.npz", w=array, b=np.ones(1))
    with formats.opened(tmp_path / "m.npz") as file:
        assert file.arrays["b"].read().tolist() == [1]
        with refused(SerializationError, "NQX411", "$.arrays.w"):
            file.arrays["w"].read()
    [finding] = formats.verify(tmp_path / "m.npz")
    assert (finding.code, finding.severity) == ("NQX411", "warning")


def test_the_fix_for_bfloat16_works(tmp_path):
    array = np.arange(3).astype(ml_dtypes.bfloat16)
    np.savez(tmp_path / "m.npz", w=array)
    again = np.load(tmp_path / "m.npz")["w"].view("bfloat16")
    path = formats.write(tmp_path / "m.safetensors", "safetensors", {"w": again})
    with formats.opened(path) as file:
        assert same(file.arrays["w"].read(), array)


def test_damage_is_found(tmp_path):
    np.savez(tmp_path / "m.npz", w=np.arange(100.0), b=np.ones(1))
    data = bytearray((tmp_path / "m.npz").read_bytes())
    data[data.index(np.arange(100.0).tobytes())] ^= 1
    (tmp_path / "m.npz").write_bytes(data)
    assert [(d.code, d.path) for d in formats.verify(tmp_path / "m.npz")] == [
        ("NQX407", "$.arrays.w")
    ]


def npy(array, **options):
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def zipped(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return path


OBJECTS = npy(np.array([{}]))
RECORDS = npy(np.zeros(2, [("a", "f4")]))
BROKEN = {
    "objects": ({"w.npy": OBJECTS}, UntrustedError, "NQX502"),
    "records": ({"w.npy": RECORDS}, UntrustedError, "NQX502"),
    "other member": ({"w.npy": npy(np.ones(1)), "note": b"x"}, SerializationError, "NQX410"),
    "no array": ({"w.npy": b"text"}, SerializationError, "NQX408"),
    "short": ({"w.npy": npy(np.ones(9))[:-1]}, SerializationError, "NQX408"),
    "long": ({"w.npy": npy(np.ones(9)) + b"x"}, SerializationError, "NQX408"),
    "long double": (
        {"w.npy": npy(np.ones(1, "f8")).replace(b"f8", b"fx")},
        SerializationError,
        "NQX411",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files(tmp_path, name):
    members, kind, code = BROKEN[name]
    path = zipped(tmp_path / "m.npz", members)
    with pytest.raises(kind) as caught:
        formats.opened(path)
    assert [(d.code, d.file) for d in caught.value.diagnostics] == [(code, str(path))]
    assert [d.code for d in formats.verify(path)] == [code]
    if len(members) == 1:
        (tmp_path / "m.npy").write_bytes(members["w.npy"])
        assert [d.code for d in formats.verify(tmp_path / "m.npy")] == [code]


def test_an_array_that_expands_a_thousand_times_needs_limits(tmp_path):
    np.savez_compressed(tmp_path / "m.npz", w=np.zeros(1 << 16))
    with refused(UntrustedError, "NQX505", "w", "1000"):
        formats.opened(tmp_path / "m.npz", limits=Limits(full_bytes=1000))
    assert formats.verify(tmp_path / "m.npz") == []
