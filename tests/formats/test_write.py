"""Writing foreign files: all or nothing, and every refusal."""

import numpy as np

from neuralqx_struct import formats
from neuralqx_struct.bundle import BundleExistsError
from neuralqx_struct.errors import SerializationError
from tests.builders import every, refused

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
    with refused(SerializationError, "NQX412", "w", "float32[2]", "float32[3]"):
        formats.write(path, "safetensors", {"w": wrong})
    assert not list(tmp_path.iterdir())


REFUSED = {
    "kind": ({"format": "gguf"}, "NQX614", "gguf"),
    "metadata": ({"metadata": {"a": 1}}, "NQX612", "metadata"),
    "separator": ({"separator": "::"}, "NQX614", "::"),
    "shards": ({"max_shard_size": 10}, "NQX614", "m.safetensors"),
    "size": ({"max_shard_size": 0}, "NQX614", "max_shard_size", 0),
    "dtypes": (
        {"arrays": {"a": np.ones(1, complex), "b": np.ones(1, "m8[s]")}},
        "NQX411",
        "$.arrays.a",
        "complex128",
        "$.arrays.b",
        "timedelta64[s]",
    ),
    "objects": ({"arrays": {"a": np.array([None])}}, "NQX411", "$.arrays.a", "object"),
    "name": ({"arrays": {5: np.ones(1)}}, "NQX612", 5),
    "half a character": ({"arrays": {"\ud800": np.ones(1)}}, "NQX612", r"\ud800"),
    "kept name": ({"arrays": {"__metadata__": np.ones(1)}}, "NQX614", "$.arrays.__metadata__"),
}


@every("name", REFUSED)
def test_refusals_leave_nothing(tmp_path, name):
    options, *named = REFUSED[name]
    given = {"format": "safetensors", "arrays": ARRAYS, **options}
    with refused(SerializationError, *named):
        formats.write(tmp_path / "m.safetensors", **given)
    assert not list(tmp_path.iterdir())


def test_overwriting_replaces_foreign_files_alone(tmp_path):
    path = formats.write(tmp_path / "m.safetensors", "safetensors", ARRAYS)
    with refused(BundleExistsError, "NQX431", path):
        formats.write(path, "safetensors", ARRAYS)
    formats.write(path, "safetensors", {"v": np.ones(1)}, overwrite=True)
    note = tmp_path / "note"
    note.write_text("mine")
    with refused(BundleExistsError, "NQX431", note):
        formats.write(note, "safetensors", ARRAYS, overwrite=True)
    folder = formats.write(tmp_path / "m", "safetensors", ARRAYS, max_shard_size=1)
    formats.write(folder, "safetensors", {"v": np.ones(1)}, max_shard_size=1, overwrite=True)
    with formats.opened(folder) as file:
        assert list(file.arrays) == ["v"]
    (folder / "config.json").write_text("{}")
    with refused(BundleExistsError, "NQX431", "config.json"):
        formats.write(folder, "safetensors", ARRAYS, max_shard_size=1, overwrite=True)


def test_a_target_that_is_a_link_keeps_it(tmp_path):
    path = formats.write(tmp_path / "m.safetensors", "safetensors", ARRAYS)
    link = tmp_path / "link.safetensors"
    link.symlink_to(path)
    formats.write(link, "safetensors", {"v": np.ones(1)}, overwrite=True)
    assert link.is_symlink()
    with formats.opened(path) as file:
        assert list(file.arrays) == ["v"]
