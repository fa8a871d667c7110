"""Files of flax.serialization: read lazily, written again with the same bytes, refused in bounded time."""

import jax.numpy as jnp
import ml_dtypes
import msgpack
import numpy as np
import optax
import pytest
from flax import linen
from flax import serialization as flax_files
from flax.core import meta
from flax.training.train_state import TrainState
from hypothesis import given, settings
from hypothesis import strategies as st

from neuralqx_struct import formats
from neuralqx_struct.errors import IntegrityError, SerializationError
from neuralqx_struct.formats.msgpack_tree import Codes
from neuralqx_struct.manifest import Limits
from tests.builders import bounded, cases, every, refused, same


def opened(folder, data, name="model.msgpack", **options):
    path = folder / name
    path.write_bytes(data)
    return formats.opened(path, **options)


def rewritten(file, folder):
    path = formats.write(folder / "again", "msgpack", file.arrays, form=file.form(), overwrite=True)
    return path.read_bytes()


PARAMS = {
    "dense": {"kernel": jnp.arange(6.0).reshape(2, 3), "bias": jnp.ones(3, jnp.bfloat16)},
    "a.b": [jnp.zeros(2), jnp.int32(4)],
    "none": {},
}
LEAVES = {
    "numbers": [0, 1, -1, -32, -33, 127, 128, 255, 256, 2**16, 2**32, 2**64 - 1, -(2**63), -129],
    "float": 1.5,
    "nan": float("nan"),
    "text": "text:é" * 50,
    "true": True,
    "none": None,
    "complex": 1 + 2j,
    "scalar": np.float32(3),
    "bytes": b"xyz",
    "zero": np.zeros((0, 3)),
    "nested": [[], {}, [np.array(5)]],
    "float8": np.ones(2, ml_dtypes.float8_e4m3fn),
    "complex64": np.array([1 + 2j], np.complex64),
    "box": {"value": {"value": np.ones(1)}},
    **{f"size {size}": np.arange(size, dtype=np.uint8) for size in (1, 16, 300, 70_000)},
}


def test_a_train_state_of_flax(tmp_path):
    state = TrainState.create(apply_fn=None, params=PARAMS, tx=optax.adam(1e-3))
    data = flax_files.to_bytes(state)
    with opened(tmp_path, data, "checkpoint_10") as file:
        assert file.format == "msgpack"
        assert file.values == {"step": 0}
        assert list(file.arrays)[:3] == [
            "params.dense.kernel",
            "params.dense.bias",
            r"params.a\.b.0",
        ]
        assert "opt_state.0.mu.dense.kernel" in file.arrays
        kernel, bias = (file.arrays[f"params.dense.{name}"] for name in ("kernel", "bias"))
        assert (kernel.dtype, kernel.shape) == ("float32", (2, 3))
        assert same(kernel.read(), np.asarray(PARAMS["dense"]["kernel"]))
        assert same(bias.read(), np.asarray(PARAMS["dense"]["bias"]))
        assert not kernel.read().flags.writeable
        assert rewritten(file, tmp_path) == data
    assert formats.verify(tmp_path / "checkpoint_10") == []


def test_plain_parameters_need_no_form(tmp_path):
    file = opened(tmp_path, flax_files.to_bytes({"b": {"w": np.ones(2)}, "a": np.ones(1)}))
    assert file.form() == {}


@pytest.mark.parametrize("value", [np.ones(3), 5, "x", [1], {}], ids=repr)
def test_a_leaf_alone_is_written_again(tmp_path, value):
    data = flax_files.msgpack_serialize(value)
    file = opened(tmp_path, data)
    assert rewritten(file, tmp_path) == data


def test_every_leaf_is_written_again(tmp_path):
    """Scalars of numpy, complex numbers and bytes become arrays."""
    file = opened(tmp_path, flax_files.msgpack_serialize(LEAVES))
    again = opened(tmp_path, rewritten(file, tmp_path), "again")
    assert [*again.arrays] == [*file.arrays]
    assert all(same(again.arrays[name].read(), file.arrays[name].read()) for name in file.arrays)
    assert repr(again.values) == repr(file.values)
    assert again.form() == file.form()


def test_names_that_look_like_boxes(tmp_path):
    formats.write(tmp_path / "x.msgpack", "msgpack", {"a.value": np.ones(2)})
    assert (
        flax_files.msgpack_restore((tmp_path / "x.msgpack").read_bytes())["a"]["value"].sum() == 2
    )


def test_leaves(tmp_path):
    file = opened(tmp_path, flax_files.msgpack_serialize(LEAVES), separator="/")
    assert file.values["numbers/11"] == 2**64 - 1
    assert (file.values["true"], file.values["none"]) == (True, None)
    assert file.arrays["complex"].read() == 1 + 2j
    assert file.arrays["bytes"].read().tobytes() == b"xyz"
    assert file.arrays["zero"].read().shape == (0, 3)
    assert file.arrays["box/value"].shape == (1,)


def test_boxes_of_linen_are_the_arrays_in_them(tmp_path):
    boxes = {
        "kernel": meta.Partitioned(jnp.ones((3, 4)), ("in", "out")),
        "scale": linen.LogicallyPartitioned(jnp.ones(4), ("out",)),
        "bias": jnp.zeros(4),
    }
    variables = {"params": {"Dense_0": boxes}}
    data = flax_files.to_bytes(variables)
    file = opened(tmp_path, data)
    assert {name: array.shape for name, array in file.arrays.items()} == {
        "params.Dense_0.bias": (4,),
        "params.Dense_0.kernel": (3, 4),
        "params.Dense_0.scale": (4,),
    }
    assert rewritten(file, tmp_path) == data


def test_arrays_in_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(flax_files, "MAX_CHUNK_SIZE", 64)
    array = np.arange(100.0, dtype=np.float32).reshape(10, 10)
    data = flax_files.msgpack_serialize({"w": array, "small": np.ones(3)})
    file = opened(tmp_path, data)
    assert file.arrays["w"].shape == (10, 10)
    assert same(file.arrays["w"].read(), array)
    monkeypatch.setattr("neuralqx_struct.formats.msgpack._MOST_CHUNK", 64)
    assert rewritten(file, tmp_path) == data


def test_large_arrays_are_written_in_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr("neuralqx_struct.formats.msgpack._MOST_CHUNK", 64)
    arrays = {"w": np.arange(40.0), "b": np.ones(2, ">f4")}
    path = formats.write(tmp_path / "x", "msgpack", arrays)
    found = flax_files.msgpack_restore(path.read_bytes())
    assert same(found["w"], arrays["w"])
    assert same(found["b"], np.ones(2, "f4"))


def test_other_arrays_than_those_of_the_form_are_nested_by_their_names(tmp_path):
    data = flax_files.msgpack_serialize({"a": {"w": np.ones(1)}, "n": 1})
    form = opened(tmp_path, data).form()
    path = formats.write(tmp_path / "x", "msgpack", {r"b\.c.w": np.ones(1)}, form=form)
    assert list(flax_files.msgpack_restore(path.read_bytes())) == ["b.c"]


def test_forms_of_other_programs(tmp_path):
    form = {"tree": {"w": "chunks:x", "f": "float:1", "n": None}}
    path = formats.write(tmp_path / "x", "msgpack", dict.fromkeys("wf", np.ones(1)), form=form)
    assert flax_files.msgpack_restore(path.read_bytes())["n"] is None


@pytest.mark.parametrize(
    ("arrays", "code", "paths"),
    [
        ({"a": np.ones(1), "a.b": np.ones(1)}, "NQX614", ["$.arrays['a.b']"]),
        (
            {"t": np.array(["a"]), "u": np.ones(1, "m8[s]")},
            "NQX411",
            ["$.arrays.t", "$.arrays.u"],
        ),
    ],
)
def test_arrays_that_cannot_be_written(tmp_path, arrays, code, paths):
    with refused(SerializationError, code, *paths):
        formats.write(tmp_path / "x", "msgpack", arrays)
    assert not list(tmp_path.iterdir())


@settings(max_examples=cases(100))
@given(st.sampled_from([bytes, str, list, dict]), st.integers(0, 70_000))
def test_heads_are_read(kind, length):
    made = {bytes: bytes(length), str: "x" * length, list: [0] * length}
    data = msgpack.packb(made.get(kind, dict.fromkeys(range(length))))
    words = {bytes: "bytes", str: "text", list: "list", dict: "map"}
    assert Codes(memoryview(data)).head() == (words[kind], length)


@given(st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False))
def test_plain_values_are_read(value):
    assert Codes(memoryview(msgpack.packb(value))).head() == ("value", value)


def test_integers_that_msgpack_has_not(tmp_path):
    form = {"tree": {"w": "array", "n": 2**64}}
    with refused(SerializationError, "NQX614", "64"):
        formats.write(tmp_path / "x", "msgpack", {"w": np.ones(1)}, form=form)


def array_of(shape, dtype, data, code=1):
    return msgpack.packb(msgpack.ExtType(code, msgpack.packb([shape, dtype, data])))


def chunked(**members):
    return {"w": {"__msgpack_chunked_array__": True, **members}}


def packed(value):
    return msgpack.packb(
        value,
        default=lambda array: msgpack.ExtType(
            1, msgpack.packb([array.shape, array.dtype.name, array.tobytes()])
        ),
    )


DAMAGED = {
    "cut": packed({"w": np.ones(3)})[:-1],
    "more": packed({"w": np.ones(3)}) + b"\0",
    "4 GB of bytes": b"\x81\xa1w\xc6\xff\xff\xff\xff",
    "4 GB in an array": b"\x81\xa1w\xc9\xff\xff\xff\xff\x01",
    "4 billion items": b"\x81\xa1w\xdd\xff\xff\xff\xff",
    "4 billion members": b"\x81\xa1w\xdf\xff\xff\xff\xff",
    "no such code": b"\x81\xa1w\xc1",
    "no UTF-8": b"\x81\xa1w\xa1\xff",
    "a key twice": b"\x82\xa1w\x01\xa1w\x01",
    "shape": b"\x81\xa1w" + array_of([-1], "float32", b""),
    "size": b"\x81\xa1w" + array_of([4], "float32", b"1234"),
    "huge": b"\x81\xa1w" + array_of([0, 2**62, 4], "float32", b""),
    "data": b"\x81\xa1w" + array_of([1], "float32", "text"),
    "dtype": b"\x81\xa1w" + array_of([1], 5, b"1234"),
    "parts": packed({"w": msgpack.ExtType(1, msgpack.packb([1]))}),
    "more in an array": packed({"w": msgpack.ExtType(1, packed([[], "bool", b"1"]) + b"\0")}),
    "complex": packed({"w": msgpack.ExtType(2, msgpack.packb([1.0]))}),
    "no chunks": packed(chunked(shape={"0": 4}, chunks={})),
    "other chunks": packed(chunked(shape={"0": 4}, chunks={"0": np.ones(2), "1": 5})),
    "chunks that are short": packed(chunked(shape={"0": 4}, chunks={"0": np.ones(2)})),
    "chunks of shape": packed(chunked(shape=[4], chunks={"0": np.ones(4)})),
    "chunks of two dtypes": packed(
        chunked(shape={"0": 2}, chunks={"0": np.ones(1), "1": np.ones(1, "i4")})
    ),
}


@every("data", DAMAGED.values())
def test_damaged_files(tmp_path, data):
    code = "NQX412" if data == DAMAGED["huge"] else "NQX408"
    with bounded(), refused(IntegrityError, code, "model.msgpack"):
        opened(tmp_path, data)


REFUSED = {
    "deep": (b"\x91" * 100_000 + b"\x01", "NQX005", 200),
    "deep maps": (b"\x81\xa1w" * 100_000 + b"\x01", "NQX005", 200),
    "another extension": (packed({"w": msgpack.ExtType(9, b"")}), "NQX614", 9),
    "a timestamp": (b"\x81\xa1w\xd6\xff1234", "NQX614", 255),
    "objects": (b"\x81\xa1w" + array_of([1], "object", b"12345678"), "NQX411", "object"),
    "keys": (b"\x81\x91\x01\x01", "NQX612", 4),
}


@pytest.mark.parametrize(("data", "code", "named"), REFUSED.values(), ids=REFUSED)
def test_refused_files(tmp_path, data, code, named):
    with bounded(), refused(SerializationError, code, named):
        opened(tmp_path, data)


def test_counts_texts_and_names_are_limited(tmp_path):
    with refused(SerializationError, "NQX005", "50"):
        opened(tmp_path, packed([0] * 100), limits=Limits(nodes=50))
    limits = Limits(manifest_bytes=1000)
    with refused(SerializationError, "NQX005"):
        opened(tmp_path, packed(["x" * 2000]), limits=limits)
    with refused(SerializationError, "NQX005"):
        opened(tmp_path, packed({"x" * 100: list(range(20))}), limits=limits)


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("x", b"\x80", "msgpack"),
        ("x", b"\x80\x04\x95\x00", None),
        ("x", b"\x89HDF\r\n\x1a\n", "hdf5"),
        ("x", b"", None),
        ("x", b"\xde\x00\x10\xd9\x01a", "msgpack"),
        ("x.msgpack", b"\x01", "msgpack"),
    ],
)
def test_recognised(tmp_path, name, data, kind):
    (tmp_path / name).write_bytes(data)
    found = formats.recognised(tmp_path / name)
    assert (found and found.name) == kind
