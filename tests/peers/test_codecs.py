"""What the published struct package does to arrays, numbers and containers when it saves them, and what happens here instead.

One test for each line of the list of its observed behaviour.
"""

import collections
import datetime as dt
import enum
import json
import math
import pathlib
import types
from dataclasses import dataclass
from typing import Any, NamedTuple

import flax.core
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import neuralqx_struct as s
from tests.builders import refused


class Box(s.Struct):
    x: Any
    n: Any = s.field(static=True, default=0)


class Word(enum.StrEnum):
    A = "a"


class Level(enum.IntEnum):
    LOW = 1


@dataclass
class Plain:
    a: int


def memory(value):
    return s.from_state_dict(s.to_state_dict(value))


@pytest.fixture(params=["memory", "disk"])
def again(request, tmp_path):
    """Saves and loads a value."""
    if request.param == "memory":
        return memory
    return lambda value, **options: s.load(
        s.export(value, tmp_path / "ckpt", overwrite=True), **options
    )


def bits(array):
    return str(array.dtype), array.shape, np.asarray(array).tobytes()


SMALL = [
    "bfloat16",
    "float8_e4m3fn",
    "float8_e4m3b11fnuz",
    "float4_e2m1fn",
    "int4",
    "uint4",
    "int2",
    "float8_e5m2",
]


@pytest.mark.parametrize("name", SMALL)
def test_small_number_formats_are_readable(name, again):
    for array in (
        np.array([0, 1, 1]).astype(getattr(ml_dtypes, name)),
        jnp.asarray([0, 1, 1], name),
    ):
        held = again(Box(array)).x
        assert type(held) is type(array) and bits(held) == bits(array)


def test_random_keys_are_saved_printed_and_equal(again):
    box = Box(jax.random.key(3))
    held = again(box)
    assert held == box and box == box and "key" in repr(box)  # noqa: PLR0124
    assert jax.random.bits(held.x) == jax.random.bits(box.x)


def test_64_bits_are_never_cut(again):
    values = [
        np.array([2**40]),
        np.array([2**63 + 1], np.uint64),
        np.array([1e300]),
        np.array([1e300j]),
    ]
    assert [bits(a) for a in again(values)] == [bits(a) for a in values]


def test_64_bit_jax_arrays_without_x64_are_an_error_with_two_remedies(tmp_path):
    with jax.enable_x64(True):
        s.export({"a": jnp.asarray([2**40]), "b": jnp.asarray([1e300])}, tmp_path / "wide")
    with refused(s.SerializationError, "NQX417", "jax_enable_x64", "as_numpy=True") as caught:
        s.load(tmp_path / "wide")
    assert [(d.code, d.path) for d in caught.value.diagnostics] == [
        ("NQX417", "$['a']"),
        ("NQX417", "$['b']"),
    ]
    assert s.load(tmp_path / "wide", as_numpy=True)["a"].tolist() == [2**40]
    with jax.enable_x64(True):
        assert s.load(tmp_path / "wide")["a"].dtype == "int64"


def test_numpy_arrays_come_back_as_numpy(again):
    assert type(again(np.ones(2, "float32"))) in (np.ndarray, np.memmap)


def test_layouts_and_common_dtypes(again):
    whole = np.arange(12.0).reshape(3, 4)
    arrays = [
        np.array(1.5),
        whole[:0],
        whole[:, ::2],
        np.asfortranarray(whole),
        *(whole.astype(t) for t in ("f2", "c8", "?")),
    ]
    assert [bits(a) for a in again(arrays)] == [bits(a) for a in arrays]


def test_empty_shapes_are_checked():
    held = s.to_state_dict(np.zeros(()))
    held["array_data"]["value"] = np.zeros(5)
    with refused(s.SerializationError, "NQX412"):
        s.from_state_dict(held)


def test_weak_types_are_kept(again):
    assert again(Box(jnp.asarray(1.0))).x.weak_type and not again(Box(jnp.ones(()))).x.weak_type


def test_arrays_that_jax_does_not_have_load_as_numpy(again):
    arrays = [
        np.arange(3, dtype=">i4"),
        np.array(["a", "bc"]),
        np.array([b"x"]),
        np.array(["2026-01-01"], "M8[D]"),
    ]
    assert [bits(a) for a in again(arrays)] == [bits(a) for a in arrays]


REFUSED = {
    "records": (np.zeros(1, [("a", "i4")]), "<i4"),
    "objects": (np.array([{}]), "object"),
    "masks": (np.ma.array([1], mask=[True]), "value.mask"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_could_not_be_read_is_not_written(case, tmp_path):
    value, named = REFUSED[case]
    with refused(s.SerializationError, "NQX430", "$.x[1]", named):
        s.export(Box([1, value]), tmp_path / "ckpt")
    assert not (tmp_path / "ckpt").exists()


def test_python_leaves_are_kept_and_integers_have_any_size(again):
    values = [1, 1.5, True, "x", None, 2**200, 10**5000]
    held = again(values)
    assert held == values and [type(v) for v in held] == [type(v) for v in values]


SCALARS = [
    np.float32(0.1),
    np.int64(3),
    ml_dtypes.bfloat16(1.5),
    np.str_("x"),
    np.complex64(1j),
    np.bytes_(b"x"),
    np.datetime64("2026-01-01"),
]


@pytest.mark.parametrize("place", ["x", "n"])
def test_numpy_scalars_are_what_they_were_in_memory_and_on_disk(place, again):
    for value in SCALARS:
        held = getattr(again(Box(**{"x": 0, place: value})), place)
        assert type(held) is type(value) and held == value
    with refused(s.SerializationError, "NQX430", "float128"):
        again(Box(**{"x": 0, place: np.longdouble(1)}))


def test_values_of_the_standard_library(again):
    values = [b"x", bytearray(b"x"), Word.A, np.dtype("int8"), slice(1, 2), dt.date(2026, 1, 1), pathlib.PurePosixPath("a"), collections.deque([1]), Plain(1), float]  # fmt: skip
    held = again(values)
    assert held == values and [type(v) for v in held] == [type(v) for v in values]
    with pytest.raises(s.SerializationError) as caught:
        again(Box({"deep": [1, len]}))
    assert caught.value.diagnostics[0].path == "$.x['deep'][1]"


def test_enums_that_are_numbers_or_text_stay_enums(again):
    held = again([Level.LOW, Word.A])
    assert held[0] is Level.LOW and held[1] is Word.A


def test_sharded_arrays_load_where_the_caller_says(tmp_path):
    sharding = NamedSharding(Mesh(np.array(jax.devices()[:4]), ("i",)), PartitionSpec("i"))
    spread = jax.device_put(jnp.arange(4.0), sharding)
    assert len(spread.devices()) == 4
    s.export(Box(spread), tmp_path / "ckpt")
    held = s.load(tmp_path / "ckpt").x
    assert held.tolist() == [0, 1, 2, 3] and len(held.devices()) == 1
    assert s.load(tmp_path / "ckpt", shardings=sharding).x.sharding == sharding


def test_an_array_met_three_times_is_stored_once_and_shared_again(tmp_path, again):
    array = np.zeros(10_000)
    held = again([array, {"b": array}, (array,)])
    assert held[0] is held[1]["b"] is held[2][0]
    path = s.export([array] * 3, tmp_path / "thrice")
    assert sum(file.stat().st_size for file in path.iterdir()) < 1.1 * array.nbytes


def test_a_state_dict_is_a_snapshot():
    array = np.zeros(3)
    held = s.to_state_dict(Box(array))
    array[:] = 7
    assert s.from_state_dict(held).x.tolist() == [0, 0, 0]


def test_containers_keep_their_classes(again):
    class_of = [
        collections.OrderedDict(b=1, a=2), collections.defaultdict(int, a=1), collections.Counter("ab"), types.MappingProxyType({"a": 1}),
        flax.core.FrozenDict({"b": 1, "a": {"c": 2}}),
    ]  # fmt: skip
    held = again(class_of)
    assert held == class_of and [type(v) for v in held] == [type(v) for v in class_of]


def test_optimiser_states_can_be_used_after_a_round_trip(again):
    params = {"w": jnp.ones(3)}
    adam = optax.adam(1e-3)
    state = adam.init(params)
    held = again(Box(state)).x
    assert jax.tree.structure(held) == jax.tree.structure(state)
    adam.update({"w": jnp.ones(3)}, held, params)


def test_sets_are_written_in_one_order_and_zips_have_one_form(tmp_path, monkeypatch):
    words = ["alpha", "beta", "gamma", "delta", "epsilon"]
    nodes = [
        s.to_state_dict(set(order))["manifest"] for order in (words, words[::-1], sorted(words))
    ]
    assert nodes[0] == nodes[1] == nodes[2]
    first = s.export({"w": np.ones(3), "s": set(words)}, tmp_path / "first.zip").read_bytes()
    monkeypatch.setattr("time.time", lambda: 2e9)
    monkeypatch.setattr("time.localtime", lambda *_: (2033, 5, 18, 3, 33, 20, 2, 138, 0))
    assert (
        s.export({"w": np.ones(3), "s": {*reversed(words)}}, tmp_path / "second.zip").read_bytes()
        == first
    )


def test_export_keeps_the_order_of_dicts_and_runs_validators_alone(tmp_path):
    ran = []

    class Hooked(s.Struct):
        x: Any = s.field(
            converter=lambda v: ran.append("converter") or v,
            validator=lambda v: ran.append("validator"),
        )
        y: Any = None

        def __post_init__(self):
            ran.append("post_init")

    value = Hooked(x={"z": np.float32(1), "a": 2, 3: 4}, y={(1, 2): 3, "b": None})
    ran.clear()
    s.export(value, tmp_path / "ckpt")
    s.to_state_dict(value)
    assert ran == ["validator", "validator"]
    held = s.load(tmp_path / "ckpt")
    assert (
        list(held.x) == ["z", "a", 3]
        and type(held.x["z"]) is np.float32
        and list(held.y) == [(1, 2), "b"]
    )


def test_a_converter_that_doubles_is_not_run_by_saving(tmp_path):
    class Doubling(s.Struct):
        x: float = s.field(converter=lambda v: v * 2)

    value = Doubling(1.0)
    assert s.to_state_dict(value)["manifest"]["fields"]["x"] == 2.0
    s.export(value, tmp_path / "ckpt")
    assert (
        json.loads((tmp_path / "ckpt" / "manifest.json").read_text())["manifest"]["fields"]["x"]
        == 2.0
    )
    assert jax.tree.map(lambda v: v, value).x == 2.0


def test_a_list_that_contains_itself_is_an_error_with_its_path():
    loop: list[Any] = [1]
    loop.append(loop)
    with refused(s.SerializationError, "NQX430", "$[1]") as caught:
        s.to_state_dict(loop)
    assert caught.value.diagnostics[0].path == "$[1]"


class Named(NamedTuple):
    x: Any


def test_named_tuples_stay_named(again):
    held = again(Named([math.inf]))
    assert type(held) is Named and held == Named([math.inf])
