"""The safetensors store: every dtype bit by bit, the package reads it, damage is found."""

import io
import json

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

from neuralqx_struct.dtypes import ML_DTYPES
from neuralqx_struct.errors import IntegrityError, SerializationError, StructError
from neuralqx_struct.formats.safetensors import SAFETENSORS_STORE as store
from neuralqx_struct.formats.store import Access
from tests.builders import EXOTIC, NUMPY, OTHERS, SHAPES, every, random_array, refused, same


def written(arrays):
    file = io.BytesIO()
    records = store.write(file, arrays)
    return file.getvalue(), records


@every("name", [*NUMPY, *OTHERS, *EXOTIC])
def test_every_dtype_survives_bit_by_bit(name):
    assert name in ML_DTYPES or name not in EXOTIC
    array = random_array(name)
    data, records = written({"x": array})
    assert records["x"]["dtype"] == name
    assert same(store.read(memoryview(data), records)["x"], array)
    [(_, loaded)] = safetensors.deserialize(data)  # raises if the file is not as the format demands
    assert bytes(loaded["data"]) == array.tobytes()


def test_the_package_sees_what_the_format_has_names_for():
    arrays = {
        "w": np.arange(6, dtype=np.float32).reshape(2, 3),
        "h": np.ones(3, ml_dtypes.bfloat16),
        "c": np.array([1 + 2j]),
    }
    data, _ = written(arrays)
    loaded = dict(safetensors.deserialize(data))
    assert {name: item["dtype"] for name, item in loaded.items()} == {
        "w": "F32",
        "h": "BF16",
        "c": "F64",
    }
    loaded = safetensors.numpy.load(written({name: arrays[name] for name in "wc"})[0])
    assert same(loaded["w"], arrays["w"])
    assert np.array_equal(loaded["c"], [[1, 2]])


@pytest.mark.parametrize("mmap", [True, False])
def test_every_shape_and_layout(tmp_path, mmap):
    path = tmp_path / "arrays.safetensors"
    records = store.write(path, SHAPES)
    arrays = store.read(path, records, Access(mmap=mmap))
    assert list(arrays) == list(SHAPES)
    assert all(same(arrays[name], array) for name, array in SHAPES.items())
    assert all(arrays[name].flags.aligned for name in SHAPES)
    assert store.verify(path, records) == []


def test_files_of_the_package_are_read():
    arrays = {"a": np.arange(3), "b": np.zeros((2, 2), np.float16)}
    data = safetensors.numpy.save(arrays, metadata={"by": "them"})
    records = {name: {"dtype": str(a.dtype), "shape": list(a.shape)} for name, a in arrays.items()}
    found = store.read(memoryview(data), records)
    assert all(same(found[name], array) for name, array in arrays.items())


ARRAYS = {"w": np.arange(3, dtype=np.int16), "b": np.array([1.5]), "z": np.zeros((0, 2))}


def test_a_flipped_bit_is_an_error_or_has_no_effect():
    data, records = written(ARRAYS)
    for bit in range(8 * len(data)):
        broken = bytearray(data)
        broken[bit >> 3] ^= 1 << (bit & 7)
        try:
            found = dict(store.read(memoryview(broken), records))
        except StructError:
            continue
        assert all(same(found[name], array) for name, array in ARRAYS.items()), bit


def test_every_truncation_is_an_error():
    data, records = written(ARRAYS)
    for length in range(len(data)):
        with pytest.raises(StructError):
            store.read(memoryview(data[:length]), records)


def test_damage_is_found_on_access_and_by_verify_all_at_once():
    data, records = written(ARRAYS)
    for name in "wb":
        records[name]["crc32"] ^= 1
    arrays = store.read(memoryview(data), records)
    with refused(IntegrityError, "NQX407", "$.arrays.w", "crc32"):
        arrays["w"]
    assert same(store.read(memoryview(data), records, Access(verify=False))["w"], ARRAYS["w"])
    assert sorted(d.path for d in store.verify(memoryview(data), records)) == [
        "$.arrays.b",
        "$.arrays.w",
    ]


def forged(change, records_change=lambda records: None):
    data, records = written({"w": np.arange(4, dtype=np.int32), "b": np.arange(2, dtype=np.int32)})
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    body = change(header, data[8 + size :]) or data[8 + size :]
    text = json.dumps(header).encode()
    for record in records.values():
        del record["offset"]
    records_change(records)
    return memoryview(len(text).to_bytes(8, "little") + text + body), records


def test_a_forged_file_that_is_right_is_read():
    assert np.array_equal(store.read(*forged(lambda h, b: None))["b"], [0, 1])


@every(
    ("change", "code"),
    [
        (lambda h, b: h["b"].update(data_offsets=[8, 16]), "NQX408"),
        (lambda h, b: h["b"].update(data_offsets=[0]), "NQX408"),
        (lambda h, b: h["b"].update(data_offsets=[0, 1 << 60]), "NQX408"),
        (lambda h, b: h["b"].update(data_offsets=[-8, 0]), "NQX408"),
        (lambda h, b: h["b"].update(shape="x"), "NQX408"),
        (lambda h, b: h["b"].update(more=1), "NQX408"),
        (lambda h, b: h["b"].update(dtype="F32"), "NQX411"),
        (lambda h, b: h["b"].update(shape=[1, 2]), "NQX412"),
        (
            lambda h, b: h.update(c={"dtype": "I8", "shape": [0], "data_offsets": [24, 24]}),
            "NQX410",
        ),
        (lambda h, b: h.update(b=5), "NQX408"),
        (lambda h, b: b + b"x", "NQX408"),
        (lambda h, b: b[:-1], "NQX408"),
    ],
)
def test_forged_headers(change, code):
    with pytest.raises(IntegrityError) as caught:
        store.read(*forged(change))
    assert code in {d.code for d in caught.value.diagnostics}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda r: r.update(c={"dtype": "int8", "shape": []}), "NQX409"),
        (lambda r: r["b"].update(nbytes=7), "NQX408"),
        (lambda r: r["b"].update(offset=7), "NQX408"),
        (lambda r: r["b"].update(shape=[4]), "NQX412"),
        (lambda r: r["b"].update(dtype="float32"), "NQX411"),
        (lambda r: r["b"].update(dtype="object"), "NQX411"),
    ],
)
def test_records_that_do_not_fit(change, code):
    with pytest.raises(IntegrityError) as caught:
        store.read(*forged(lambda h, b: None, change))
    assert code in {d.code for d in caught.value.diagnostics}


def test_a_header_too_large_or_not_json():
    huge = memoryview((1 << 60).to_bytes(8, "little") + b"{}")
    with refused(IntegrityError, "NQX408", "arrays.safetensors"):
        store.read(huge, {})
    for text in (b"x", b"[]", b'{"a": 1, "a": 2}'):
        with pytest.raises(SerializationError):
            store.read(memoryview(len(text).to_bytes(8, "little") + text), {})


def test_superseded_names():
    data, records = written(ARRAYS)
    own = {"w": records["w"]}
    with refused(IntegrityError, "NQX410"):
        store.read(memoryview(data), own)
    assert list(store.read(memoryview(data), own, Access(superseded={"b", "z"}))) == ["w"]


def test_what_cannot_be_stored(tmp_path):
    with refused(SerializationError, "NQX411", "$.arrays.bad"):
        written({"bad": np.array([None])})
    with refused(SerializationError, "NQX614", "compress=False"):
        store.require_compression(compress=True)
    with refused(SerializationError, "NQX614", "$.arrays['%5F_metadata__']"):
        written({"__metadata__": np.zeros(1), "%5F_metadata__": np.ones(1)})


def test_an_array_with_the_name_of_the_metadata():
    arrays = {"__metadata__": np.arange(3.0), "w": np.ones(2)}
    data, records = written(arrays)
    assert set(safetensors.numpy.load(data)) == {"%5F_metadata__", "w"}
    found = store.read(memoryview(data), records)
    assert all(same(found[name], arrays[name]) for name in arrays)
    assert store.verify(memoryview(data), records) == []
    [problem] = store.verify(memoryview(data), {"w": records["w"]})
    assert problem.path == "$.arrays.__metadata__"
