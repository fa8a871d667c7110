"""The npz store: every dtype bit by bit, other tools read it, foreign files are read, damage and lies are found."""

import io
import subprocess
import sys
import tracemalloc
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from neuralqx_struct.errors import IntegrityError, SerializationError, StructError, UntrustedError
from neuralqx_struct.formats import archive, archive_writer
from neuralqx_struct.formats.npz import NPZ_STORE as npz
from neuralqx_struct.formats.store import Access
from neuralqx_struct.manifest.payload import StoredArrays
from tests.builders import EXOTIC, NUMPY, OTHERS, SHAPES, cases, every, random_array, refused, same


def written(arrays, **options):
    file = io.BytesIO()
    records = npz.write(file, arrays, **options)
    return file.getvalue(), records


@every("name", [*NUMPY, *OTHERS, *EXOTIC])
@every("compress", [False, True])
def test_every_dtype_survives_bit_by_bit(name, compress):
    array = random_array(name)
    data, records = written({"x": array}, compress=compress)
    assert records["x"]["dtype"] == name
    assert same(npz.read(memoryview(data), records)["x"], array)
    with np.load(io.BytesIO(data)) as loaded:
        assert loaded["x"].tobytes() == array.tobytes()


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("compress", [True, False])
def test_every_shape_and_layout(tmp_path, mmap, compress):
    path = tmp_path / "arrays.npz"
    records = npz.write(path, SHAPES, compress=compress)
    arrays = npz.read(path, records, Access(mmap=mmap))
    assert isinstance(arrays, StoredArrays)
    assert list(arrays) == list(SHAPES)
    for name, array in SHAPES.items():
        assert same(arrays[name], array), name
        assert not arrays[name].flags.writeable
        assert records[name]["crc32"] == zlib.crc32(array.tobytes())
    assert npz.verify(path, records) == []


def test_other_tools_read_it(tmp_path):
    path = tmp_path / "arrays.npz"
    arrays = {
        "a/b": np.arange(5),
        "é": np.arange(400_000.0),
        "../up": np.zeros(2),
        "/": np.ones(1),
        "a\\b:\n": np.ones(3),
    }
    records = npz.write(path, arrays)
    assert subprocess.run(
        [sys.executable, "-m", "zipfile", "-t", str(path)], check=True, capture_output=True
    ).stdout.startswith(b"Done")
    with np.load(path) as loaded:
        assert np.array_equal(loaded["a/b"], arrays["a/b"])
        assert np.array_equal(loaded["é"], arrays["é"])
        assert len(loaded.files) == 5
        assert not any(
            ".." in name.split("/") or name.startswith("/") or "\\" in name for name in loaded.files
        )
    read = npz.read(path, records)
    assert all(same(read[name], array) for name, array in arrays.items())


def test_data_are_aligned():
    data, records = written({f"n{'x' * i}": np.arange(i + 1, dtype=np.int8) for i in range(70)})
    assert {record["offset"] % archive.ALIGNMENT for record in records.values()} == {0}
    assert all(data[r["offset"]] == 0 for r in records.values())


def test_the_bytes_are_always_the_same_and_need_no_wide_records():
    first, second = (written(SHAPES)[0] for _ in range(2))
    assert first == second
    assert b"PK\6\6" not in first[-100:]


@pytest.mark.parametrize("count", [110, pytest.param(66_000, marks=pytest.mark.slow)])
def test_more_members_than_a_plain_zip_holds(count, monkeypatch):
    if count < 66_000:
        for module in (archive, archive_writer):
            monkeypatch.setattr(module, "MAX16", 100)
    arrays = dict.fromkeys(map(str, range(count)), np.int8(1).reshape(()))
    data, records = written(arrays)
    assert b"PK\6\6" in data[-100:]
    assert len(npz.read(memoryview(data), records)) == count
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        assert len(file.namelist()) == count


def test_sizes_beyond_32_bits(monkeypatch):
    """The wide records are tried with a lower border: nobody wants 4 GiB in a test."""
    for module in (archive, archive_writer):
        monkeypatch.setattr(module, "MAX32", 3000)
    arrays = {
        "small": np.arange(5),
        "large": np.arange(1000),
        "late": np.arange(5),
        "huge": np.arange(200_000),
    }
    data, records = written(arrays)
    found = npz.read(memoryview(data), records)
    assert all(same(found[name], array) for name, array in arrays.items())


@pytest.mark.slow
def test_an_array_of_more_than_4_gib(tmp_path):
    path = tmp_path / "arrays.npz"
    arrays = {"large": np.zeros((1 << 32) + 5, np.uint8), "after": np.arange(3)}
    records = npz.write(path, arrays)
    assert np.array_equal(npz.read(path, records)["after"], [0, 1, 2])
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None


@settings(max_examples=cases(60), deadline=None)
@given(
    arrays=st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        hnp.arrays(
            hnp.scalar_dtypes().filter(
                lambda d: d.str[1:] not in ("f16", "c32", "g") and d.itemsize and d.kind not in "mM"
            ),
            hnp.array_shapes(min_dims=0, min_side=0),
        ),
        max_size=4,
    ),
    compress=st.booleans(),
)
def test_what_is_written_is_read(arrays, compress):
    try:
        data, records = written(arrays, compress=compress)
    except SerializationError as error:
        assert error.code == "NQX509"  # two names that become one member, such as '' and '%00'
        return
    found = npz.read(memoryview(data), records)
    assert list(found) == list(arrays)
    assert all(same(found[name], array) for name, array in arrays.items())


# -- foreign files


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_files_of_numpy_are_read(save):
    arrays = {
        "f": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "i": np.arange(3),
        "s": np.array(1j),
        "e": np.zeros((0, 2)),
    }
    file = io.BytesIO()
    save(file, **arrays)
    records = {name: {"dtype": str(a.dtype), "shape": list(a.shape)} for name, a in arrays.items()}
    found = npz.read(memoryview(file.getvalue()), records)
    assert all(same(found[name], array) for name, array in arrays.items())
    assert npz.verify(memoryview(file.getvalue()), records) == []


@every("name", EXOTIC)
def test_raw_descriptors_are_read_with_the_dtype_of_the_record(name):
    array = random_array(name)
    file = io.BytesIO()
    np.savez(file, x=array)
    records = {"x": {"dtype": name, "shape": [3, 5]}}
    assert same(npz.read(memoryview(file.getvalue()), records)["x"], array)


def test_without_a_record_of_the_checksum_zips_own_is_taken():
    file = io.BytesIO()
    np.savez(file, x=np.arange(50))
    records = {"x": {"dtype": "int64", "shape": [50]}}
    data = bytearray(file.getvalue())
    data[data.index(np.arange(50).tobytes()) + 8] ^= 1
    with refused(IntegrityError, "NQX407"):
        npz.read(memoryview(data), records)["x"]
    assert [d.code for d in npz.verify(memoryview(data), records)] == ["NQX407"]


# -- damage


ARRAYS = {"w": np.arange(3, dtype=np.int16), "b": np.array([1.5])}


@pytest.mark.parametrize("compress", [True, False])
def test_a_flipped_bit_is_an_error_or_has_no_effect(compress):
    data, records = written(ARRAYS, compress=compress)
    for bit in range(8 * len(data)):
        broken = bytearray(data)
        broken[bit >> 3] ^= 1 << (bit & 7)
        try:
            found = dict(npz.read(memoryview(broken), records))
        except StructError:
            continue
        assert all(same(found[name], array) for name, array in ARRAYS.items()), bit


@pytest.mark.parametrize("compress", [True, False])
def test_every_truncation_is_an_error(tmp_path, compress):
    data, records = written(ARRAYS, compress=compress)
    for length in range(len(data)):
        with pytest.raises(IntegrityError):
            npz.read(memoryview(data[:length]), records)
    (tmp_path / "empty.npz").touch()
    with refused(IntegrityError, "NQX408", "empty.npz"):
        npz.read(tmp_path / "empty.npz", records)


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("mmap", [True, False])
def test_damage_is_found_on_access_and_by_verify_all_at_once(tmp_path, compress, mmap):
    path = tmp_path / "arrays.npz"
    records = npz.write(path, ARRAYS, compress=compress)
    for record in records.values():
        record["crc32"] ^= 1
    arrays = npz.read(path, records, Access(mmap=mmap))
    for name in ARRAYS:
        with refused(IntegrityError, "NQX407", f"$.arrays.{name}"):
            arrays[name]
    assert [d.path for d in npz.verify(path, records)] == ["$.arrays.w", "$.arrays.b"]
    assert same(npz.read(path, records, Access(verify=False, mmap=mmap))["w"], ARRAYS["w"])


def test_a_file_cut_while_open_is_an_error(tmp_path):
    path = tmp_path / "arrays.npz"
    records = npz.write(
        path, {"w": np.zeros(100_000)}
    )  # smaller files are read when they are opened
    arrays = npz.read(path, records, Access(mmap=False))
    path.write_bytes(b"")
    with refused(IntegrityError, "NQX408"):
        arrays["w"]
    assert arrays.verify("w").code == "NQX408"


def test_names_that_nobody_asked_for_and_superseded_ones():
    data, records = written(ARRAYS)
    view, own = memoryview(data), {"w": records["w"]}
    with pytest.raises(IntegrityError) as caught:
        npz.read(view, own)
    assert [(d.code, d.path) for d in caught.value.diagnostics] == [("NQX410", "$.arrays.b")]
    assert list(npz.read(view, own, Access(superseded={"b", "never"}))) == ["w"]
    with pytest.raises(KeyError):
        npz.read(view, records)["missing"]


def test_regions_of_a_file(tmp_path):
    path = tmp_path / "file"
    with path.open("x+b", buffering=0) as file:
        file.write(bytes(128))
        records = npz.write(file, ARRAYS)
        end = file.tell()
        file.write(b"more")
        for mmap in (True, False):
            arrays = npz.read((file, 128, end - 128), records, Access(mmap=mmap))
            assert same(arrays["b"], ARRAYS["b"])
        with pytest.raises(IntegrityError):
            npz.read((file, 128, end), records)


# -- writing


def test_what_cannot_be_stored():
    for array in (np.array([None]), np.zeros(1, np.longdouble), np.zeros(1, "i4,i4")):
        with refused(SerializationError, "NQX411", "$.arrays.bad"):
            written({"bad": array})
    with refused(SerializationError, "NQX509", "65535"):
        written({"x" * 70_000: np.zeros(1)})


def test_an_existing_file_is_never_written(tmp_path):
    path = tmp_path / "arrays.npz"
    npz.write(path, ARRAYS)
    with pytest.raises(FileExistsError):
        npz.write(path, ARRAYS)


@pytest.mark.parametrize("size", [0, 1, 100, (1 << 20) + 3])
def test_large_members_get_the_checksum_of_all_their_data(tmp_path, size):
    path = tmp_path / "a.zip"
    body = bytes(np.random.default_rng(1).integers(0, 256, size, np.uint8))
    with path.open("x+b", buffering=0) as file:
        writer = archive_writer.ArchiveWriter(file)
        writer.add("one", body, b"head")
        assert writer.add_written("two", lambda out: out.write(b"xyz")) == 3
        writer.add("three", b"end", compress=True)
        writer.close()
        with refused(SerializationError, "NQX509"):
            writer.add("one", b"")
    with zipfile.ZipFile(path) as read:
        assert read.testzip() is None
        assert read.read("one") == b"head" + body
        assert read.read("two") == b"xyz"
    assert [m.name for m in archive.read_directory(memoryview(path.read_bytes()))] == [
        "one",
        "two",
        "three",
    ]


def test_a_short_write_is_continued():
    class Slow(io.BytesIO):
        def write(self, data):
            return super().write(bytes(data[:7]))

    file = Slow()
    records = npz.write(file, ARRAYS)
    assert same(npz.read(memoryview(file.getvalue()), records)["w"], ARRAYS["w"])


def test_headers_are_matched_never_evaluated():
    for text in (
        "__import__('os').system('true')",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1+1,), }",
    ):
        file = io.BytesIO()
        header = b"\x93NUMPY\1\0" + (len(text) + 1).to_bytes(2, "little") + text.encode() + b"\n"
        with zipfile.ZipFile(file, "w") as out:
            out.writestr("x.npy", header + bytes(16))
        with refused(IntegrityError, "NQX408", "$.arrays.x"):
            npz.read(memoryview(file.getvalue()), {"x": {"dtype": "float64", "shape": [2]}})


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_header_versions(version):
    body, file = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array(body, np.arange(3), version=version)
    with zipfile.ZipFile(file, "w") as out:
        out.writestr("x.npy", body.getvalue())
    assert same(
        npz.read(memoryview(file.getvalue()), {"x": {"dtype": "int64", "shape": [3]}})["x"],
        np.arange(3),
    )


def test_encrypted_members_are_refused():
    data, records = written({"w": np.arange(3)})
    broken = bytearray(data)
    broken[6] |= 1
    broken[data.index(b"PK\1\2") + 8] |= 1
    with refused(UntrustedError, "NQX508"):
        npz.read(memoryview(broken), records)


MOST_DIMS = 32 if np.__version__.startswith("1.") else 64


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("dims", [MOST_DIMS // 2 + 1, MOST_DIMS])
def test_as_many_dimensions_as_numpy_takes(dims, size):
    array = np.full((1,) * (dims - 1) + (size,), 7.0)
    file = io.BytesIO()
    records = npz.write(file, {"w": array})
    same(npz.read(memoryview(file.getvalue()), records)["w"], array)


def test_a_deflated_array_takes_its_own_memory_and_none_to_be_verified():
    array = np.tile(np.arange(1000.0), 5000)
    file = io.BytesIO()
    records = npz.write(file, {"w": array, "v": array[:3]}, compress=True)
    view = memoryview(file.getvalue())
    same(npz.read(view, records)["v"], array[:3])  # what is imported on the way
    tracemalloc.start()
    try:
        found = npz.verify(view, records)
        verified = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        held = npz.read(view, records)["w"]
        read = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == [] and np.array_equal(held, array)
    assert verified < 8 << 20 and read < array.nbytes + (8 << 20)


@given(
    st.binary(max_size=3000) | st.integers(0, 3 << 20).map(bytes),
    st.integers(0, 9),
    st.integers(-2, 2),
)
def test_deflated_data_are_expanded_to_the_size_that_they_have(data, level, wrong):
    packer = zlib.compressobj(level, zlib.DEFLATED, -15)
    packed = memoryview(packer.compress(data) + packer.flush())
    assert archive.inflate(packed, len(data)) == data
    if wrong and len(data) + wrong >= 0:
        with pytest.raises(UntrustedError if wrong < 0 else IntegrityError):
            archive.inflate(packed, len(data) + wrong)
    for other in (packed[:-1], memoryview(bytes(packed) + b"x"), packed[:0]):
        with pytest.raises(IntegrityError):
            archive.inflate(other, len(data))


def test_sizes_that_no_data_expand_to_are_refused_before_anything_is_made():
    with refused(IntegrityError, "NQX408", "1000"):
        archive.inflated(memoryview(bytes(1000)), 1 << 40)


@pytest.mark.skipif(archive_writer._ADVISE is None, reason="the system starts no write-out")
@every("size, inside, starts", [(1, False, True), (1, True, False), (6, True, True)])
def test_a_small_file_is_written_out_early_only_where_its_flush_is_waited_for(
    tmp_path, monkeypatch, size, inside, starts
):
    begun = []
    monkeypatch.setattr(archive_writer, "_ADVISE", lambda *place: begun.append(place))
    work = partial(npz.write, tmp_path / "arrays.npz", {"x": np.zeros(size << 20, "uint8")})
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result() if inside else work()
    assert bool(begun) == starts
