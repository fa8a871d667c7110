"""Foreign safetensors files, as the package writes them."""

import json

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from neuralqx_struct import formats
from neuralqx_struct.errors import SerializationError
from tests.builders import refused, same

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
    with refused(SerializationError, "NQX620", "safetensors"):
        formats.opened(tmp_path / "m.bin")


def made(header, data, padding=0):
    """A file with this header, which is text or is made to text."""
    text = header if isinstance(header, str) else json.dumps(header)
    body = text.encode() + b" " * padding
    return len(body).to_bytes(8, "little") + body + data


def item(code, shape, start, end):
    return {"dtype": code, "shape": shape, "data_offsets": [start, end]}


def copied(path, out):
    """Writes a file again."""
    with formats.opened(path) as file:
        return formats.write(
            out, "safetensors", file.arrays, metadata=file.metadata, form=file.form()
        )


def files_of(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_files_of_the_package_come_out_bit_by_bit(tmp_path, metadata):
    path = saved(tmp_path / "m.safetensors", metadata=metadata)
    with formats.opened(path) as file:
        assert file.form() == {}
    out = copied(path, tmp_path / "out.safetensors")
    assert out.read_bytes() == path.read_bytes()
    again = formats.write(tmp_path / "n.safetensors", "safetensors", ARRAYS, metadata=metadata)
    assert again.read_bytes() == path.read_bytes()


OTHER_FORMS = {
    "order": made({"b": item("U8", [1], 1, 2), "a": item("U8", [1], 0, 1)}, b"xy"),
    "metadata": made({"a": item("U8", [1], 0, 1), "__metadata__": {"b": "1", "a": "2"}}, b"x"),
    "padding": made({"é\n": item("F64", [0, 1 << 40], 0, 0)}, b"", padding=64),
    "F8_E8M0": made({"a": item("F8_E8M0", [2], 0, 2), "b": item("C64", [], 2, 10)}, bytes(10)),
    "nothing": made({}, b""),
}


@pytest.mark.parametrize("name", OTHER_FORMS)
def test_files_of_other_writers_come_out_bit_by_bit(tmp_path, name):
    path = tmp_path / "m.safetensors"
    path.write_bytes(OTHER_FORMS[name])
    assert formats.verify(path) == []
    out = copied(path, tmp_path / "out.safetensors")
    assert out.read_bytes() == OTHER_FORMS[name]


def test_a_form_of_other_arrays_is_left_aside(tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes(OTHER_FORMS["order"])
    with formats.opened(path) as file:
        form = file.form()
    for arrays in ({"a": ARRAYS["c"]}, {"a": np.ones(1, np.int8), "b": np.ones(1, np.int8)}):
        formats.write(path, "safetensors", arrays, form=form, overwrite=True)
        assert path.read_bytes() == safetensors.numpy.save(arrays)


def test_orders_and_names_are_kept(tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes(OTHER_FORMS["order"])
    with formats.opened(path) as file:
        assert {name: int(array.read()[0]) for name, array in file.arrays.items()} == {
            "b": ord("y"),
            "a": ord("x"),
        }
        assert list(file.arrays) == ["b", "a"]


@pytest.mark.parametrize("code", ["F4", "F6_E2M3", "Q4_K"])
def test_an_array_of_an_unknown_dtype_is_an_error_when_it_is_read(tmp_path, code):
    path = tmp_path / "m.safetensors"
    path.write_bytes(made({"w": item(code, [4], 0, 2), "b": item("U8", [1], 2, 3)}, b"abc"))
    with formats.opened(path) as file:
        assert file.arrays["w"].dtype == code
        assert file.arrays["b"].read().tolist() == [ord("c")]
        with refused(SerializationError, "NQX411", "$.arrays.w", code):
            file.arrays["w"].read()


# Shards


def sharded(folder, metadata=None):
    """A folder as Hugging Face writes it: two shards and their index."""
    folder.mkdir()
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    parts = [{"a": np.arange(4.0), "c": np.ones(2, np.int8)}, {"b": np.ones((2, 2), np.float32)}]
    files = {}
    for name, arrays in zip(names, parts, strict=True):
        saved(folder / name, arrays, metadata={"format": "pt"})
        files |= dict.fromkeys(arrays, name)
    index = {"metadata": metadata or {"total_size": 50}, "weight_map": files}
    text = json.dumps(index, indent=2, sort_keys=True) + "\n"
    (folder / "model.safetensors.index.json").write_text(text)
    return folder


@pytest.mark.parametrize("given", ["", "model.safetensors.index.json"])
def test_shards_are_read_as_one(tmp_path, given):
    folder = sharded(tmp_path / "m")
    with formats.opened(folder / given) as file:
        assert list(file.arrays) == ["a", "c", "b"]
        assert file.arrays["b"].read().shape == (2, 2)
        assert file.metadata == {"format": "pt"}
    assert formats.verify(folder / given) == []


@pytest.mark.parametrize("metadata", [None, {"total_size": 50, "total_parameters": 10}])
def test_shards_come_out_bit_by_bit(tmp_path, metadata):
    folder = sharded(tmp_path / "m", metadata)
    assert files_of(copied(folder, tmp_path / "out")) == files_of(folder)


def test_shards_become_one_file_where_the_path_is_one(tmp_path):
    out = copied(sharded(tmp_path / "m"), tmp_path / "m.safetensors")
    assert sorted(safetensors.numpy.load_file(out)) == ["a", "b", "c"]


def test_arrays_are_divided_as_hugging_face_does(tmp_path):
    """Arrays fill shards in their order; one that is too large has a shard of its own."""
    arrays = {name: np.zeros(size, np.uint8) for name, size in zip("abcde", [3, 3, 9, 2, 4])}
    out = formats.write(tmp_path / "m", "safetensors", arrays, max_shard_size=6)
    files = files_of(out)
    index = json.loads(files.pop("model.safetensors.index.json"))
    assert index["metadata"] == {"total_size": 21}
    shards = [sorted(safetensors.numpy.load(files[name])) for name in sorted(files)]
    assert shards == [["c"], ["a", "b"], ["d", "e"]]
    assert min(files) == "model-00001-of-00003.safetensors"
    assert {name: index["weight_map"][name] for name in "ab"} == dict.fromkeys(
        "ab", "model-00002-of-00003.safetensors"
    )
    with formats.opened(out) as file:
        assert sorted(file.arrays) == sorted(arrays)


def test_arrays_of_one_shard_need_no_index(tmp_path):
    out = formats.write(tmp_path / "m", "safetensors", {"a": ARRAYS["c"]}, max_shard_size=1 << 30)
    assert list(files_of(out)) == ["model.safetensors"]
    assert formats.verify(out) == []


def test_an_index_in_the_cache_of_hugging_face_leads_to_its_blobs(tmp_path):
    """There the files of a model are links to a folder of all its files."""
    folder = sharded(tmp_path / "given")
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "1234"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for file in folder.iterdir():
        file.rename(blobs / file.name.upper())
        (snapshot / file.name).symlink_to(f"../../blobs/{file.name.upper()}")
    assert formats.verify(snapshot) == []


def removed(folder):
    (folder / "model-00002-of-00002.safetensors").unlink()


def linked(folder):
    shard = folder / "model-00002-of-00002.safetensors"
    shard.rename(folder.parent / "elsewhere")
    shard.symlink_to("../elsewhere")


def reindexed(**members):
    def change(folder):
        (folder / "model.safetensors.index.json").write_text(json.dumps(members))

    return change


ONE = "model-00001-of-00002.safetensors"
TWO = "model-00002-of-00002.safetensors"
BROKEN_SHARDS = {
    "missing file": (removed, "NQX401", "model-00002-of-00002.safetensors"),
    "link": (linked, "NQX504", "model-00002-of-00002.safetensors"),
    "other text": (reindexed(weight_map=5), "NQX408", "weight_map"),
    "no map": (reindexed(), "NQX408", "weight_map"),
    "outside": (
        reindexed(weight_map={"a": "../m.safetensors"}),
        "NQX503",
        "../m.safetensors",
    ),
    "missing array": (
        reindexed(weight_map={"a": ONE, "c": ONE, "b": TWO, "z": TWO}),
        "NQX409",
        "$.arrays.z",
    ),
    "extra array": (
        reindexed(weight_map={"a": ONE, "b": TWO}),
        "NQX410",
        "$.arrays.c",
    ),
}


@pytest.mark.parametrize("name", BROKEN_SHARDS)
def test_broken_folders_of_shards(tmp_path, name):
    change, code, named = BROKEN_SHARDS[name]
    folder = sharded(tmp_path / "m")
    change(folder)
    with refused(SerializationError, code, named) as caught:
        formats.opened(folder)
    assert {d.code for d in caught.value.diagnostics} == {code}
    assert [d.code for d in formats.verify(folder)] == [code]


def test_a_folder_of_several_files_needs_the_name_of_one(tmp_path):
    for name in "ab":
        saved(tmp_path / f"{name}.safetensors")
    with refused(SerializationError, "NQX620", "a.safetensors", "b.safetensors"):
        formats.opened(tmp_path)
    assert formats.verify(tmp_path / "b.safetensors") == []
