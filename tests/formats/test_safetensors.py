"""Foreign safetensors files, as the package writes them."""

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from neuralqx_struct import formats
from neuralqx_struct.errors import SerializationError
from tests.builders import same

ARRAYS = {
    "b.w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a.b": np.arange(3, dtype=np.int64),
    "c": np.array([True, False, True]),
    "d": np.zeros((0, 2), np.float16),
    "f": np.arange(4).astype(ml_dtypes.bfloat16),
    "g": np.arange(5).astype(ml_dtypes.float8_e4m3fn),
    "h": np.arange(5).astype(ml_dtypes.float8_e5m2),
}


def saved(path, arrays=ARRAYS, metadata=None):
    safetensors.numpy.save_file(arrays, path, metadata)
    return path


def test_files_of_the_package_are_read(tmp_path):
    path = saved(tmp_path / "m.safetensors", metadata={"format": "pt"})
    with formats.opened(path) as file:
        assert (file.format, file.metadata) == ("safetensors", {"format": "pt"})
        assert sorted(file.arrays) == sorted(ARRAYS)
        assert file.arrays["f"][:2] == ("bfloat16", (4,))
        found = {name: array.read() for name, array in file.arrays.items()}
    assert all(same(found[name], array) for name, array in ARRAYS.items())
    assert not any(array.flags.writeable for array in found.values())
    assert formats.verify(path) == []


def test_a_kind_is_found_without_its_suffix(tmp_path):
    data = safetensors.numpy.save({"w": np.ones(2)})
    (tmp_path / "m.bin").write_bytes(data)
    assert formats.recognised(tmp_path / "m.bin").name == "safetensors"


def test_another_kind_is_an_error_that_names_the_kinds(tmp_path):
    (tmp_path / "m.bin").write_bytes(b"nothing")
    assert formats.recognised(tmp_path / "m.bin") is None
    with pytest.raises(SerializationError, match=r"of a known kind.*NQX620.*\n.*safetensors"):
        formats.opened(tmp_path / "m.bin")
