"""Writing foreign files: all or nothing, and every refusal."""

import numpy as np
import pytest

from neuralqx_struct import formats
from neuralqx_struct.bundle import BundleExistsError
from neuralqx_struct.errors import SerializationError
from tests.builders import every

ARRAYS = {"w": np.arange(3.0)}


def test_lazy_arrays_are_read_one_after_the_other(tmp_path):
    read = []

    def lazy(name):
        def make():
            read.append(name)
            return np.zeros(2, np.float32)

        return formats.ForeignArray("float32", (2,), make)

    formats.write(tmp_path / "m.safetensors", "safetensors", {n: lazy(n) for n in "ba"})
    assert read == ["a", "b"]


def test_big_endian_arrays_are_written_in_the_order_of_the_format(tmp_path):
    path = formats.write(
        tmp_path / "m.safetensors", "safetensors", {"w": np.arange(3, dtype=">f4")}
    )
    with formats.opened(path) as file:
        assert file.arrays["w"].dtype == "float32"
        assert file.arrays["w"].read().tolist() == [0, 1, 2]


def test_an_array_that_differs_from_its_description_is_an_error(tmp_path):
    path = tmp_path / "m.safetensors"
    wrong = formats.ForeignArray("float32", (2,), lambda: np.zeros(3, np.float32))
    with pytest.raises(SerializationError, match=r"w: expected float32\[2\], got float32\[3\]"):
        formats.write(path, "safetensors", {"w": wrong})
    assert not list(tmp_path.iterdir())


REFUSED = {
    "kind": ({"format": "gguf"}, "expected a kind of file to write among npz, safetensors"),
    "metadata": ({"metadata": {"a": 1}}, "expected text by name as metadata"),
    "separator": ({"separator": "::"}, "expected one character but the backslash"),
    "shards": ({"max_shard_size": 10}, "expected the path of a new folder for shards"),
    "size": ({"max_shard_size": 0}, "expected a number of bytes as max_shard_size, got 0"),
    "dtypes": (
        {"arrays": {"a": np.ones(1, complex), "b": np.ones(1, "m8[s]")}},
        r"(?s)a: expected a dtype among .*got complex128.*b: .*timedelta64",
    ),
    "objects": ({"arrays": {"a": np.array([None])}}, "a: expected a dtype that can be stored"),
    "name": ({"arrays": {5: np.ones(1)}}, "expected names that are text, got 5"),
    "half a character": ({"arrays": {"\ud800": np.ones(1)}}, "expected names that are text"),
    "kept name": ({"arrays": {"__metadata__": np.ones(1)}}, "expected any other array name"),
}


@every("name", REFUSED)
def test_refusals_leave_nothing(tmp_path, name):
    options, message = REFUSED[name]
    given = {"format": "safetensors", "arrays": ARRAYS, **options}
    with pytest.raises(SerializationError, match=message):
        formats.write(tmp_path / "m.safetensors", **given)
    assert not list(tmp_path.iterdir())


def test_overwriting_replaces_foreign_files_alone(tmp_path):
    path = formats.write(tmp_path / "m.safetensors", "safetensors", ARRAYS)
    with pytest.raises(BundleExistsError, match="got an existing one"):
        formats.write(path, "safetensors", ARRAYS)
    formats.write(path, "safetensors", {"v": np.ones(1)}, overwrite=True)
    note = tmp_path / "note"
    note.write_text("mine")
    with pytest.raises(BundleExistsError, match="expected a file to overwrite, got another file"):
        formats.write(note, "safetensors", ARRAYS, overwrite=True)
    folder = formats.write(tmp_path / "m", "safetensors", ARRAYS, max_shard_size=1)
    formats.write(folder, "safetensors", {"v": np.ones(1)}, max_shard_size=1, overwrite=True)
    with formats.opened(folder) as file:
        assert list(file.arrays) == ["v"]
    (folder / "config.json").write_text("{}")
    with pytest.raises(BundleExistsError, match=r"got a folder with config.json in it"):
        formats.write(folder, "safetensors", ARRAYS, max_shard_size=1, overwrite=True)


def test_a_target_that_is_a_link_keeps_it(tmp_path):
    path = formats.write(tmp_path / "m.safetensors", "safetensors", ARRAYS)
    link = tmp_path / "link.safetensors"
    link.symlink_to(path)
    formats.write(link, "safetensors", {"v": np.ones(1)}, overwrite=True)
    assert link.is_symlink()
    with formats.opened(path) as file:
        assert list(file.arrays) == ["v"]
