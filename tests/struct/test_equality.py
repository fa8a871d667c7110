import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.struct.equality import (
    OpaqueRef,
    holds_array,
    is_key_array,
    same_static,
    same_value,
    static_key,
    value_hash,
)
from tests.builders import every, refused

DISTINCT = [
    1,
    True,
    1.0,
    0.0,
    -0.0,
    "1",
    b"1",
    None,
    1j,
    complex(0.0, -0.0),
    (1,),
    (True,),
    (1.0,),
    ((1,),),
    frozenset([1]),
    frozenset([True]),
    float("nan"),
    int,
    np.int64(1),
    np.float32(1),
    np.dtype("float32"),
    complex(float("nan"), 0),
]


def test_exact_keys_tell_apart_what_compares_equal():
    keys = [static_key(value) for value in DISTINCT]
    for i, a in enumerate(keys):
        assert all((b[1], b[0]) != (a[1], a[0]) for b in keys[i + 1 :])
        hash(a)


@pytest.mark.parametrize(
    "make", [lambda: float("nan"), lambda: (1, float("nan")), lambda: complex(float("nan"), 1)]
)
def test_nan_is_found_again(make):
    assert static_key(make()) == static_key(make())
    assert {static_key(make()): 1}[static_key(make())] == 1


def test_values_come_back_as_they_are():
    assert (
        static_key((1, -0.0))[0] == (1, -0.0)
        and math.copysign(1, static_key((1, -0.0))[0][1]) == -1
    )
    Point = dataclasses.make_dataclass("Point", ["x"], frozen=True)
    assert static_key(Point(1))[0] == Point(1)
    from collections import namedtuple

    Pair = namedtuple("Pair", "a b")
    assert type(static_key(Pair(1, 2))[0]) is Pair


class Holder:
    def __init__(self, value):
        self.value = value

    def get(self):
        return self.value


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


@every(
    ("value", "kind"),
    [
        ([1], "list"), ({}, "dict"), (np.zeros(1), "ndarray"), (jnp.zeros(1), "ArrayImpl"), ((1, [2]), "list"),
        (Holder(np.zeros(1)), "Holder"), (Slotted((1, {"a": np.zeros(1)})), "Slotted"),
        (functools.partial(max, np.zeros(1)), "partial"), (Holder(np.zeros(1)).get, "method"),
        (functools.partial(Holder(np.zeros(1)).get), "partial"), (frozenset([Holder(np.zeros(1))]), "Holder"),
    ],
)  # fmt: skip
def test_refused_statics(value, kind):
    with refused(TypeError, kind):
        static_key(value)


class Unhashable(tuple):
    __slots__ = ()
    __hash__ = None


def test_a_tuple_without_hash_is_refused():
    with refused(TypeError, "Unhashable"):
        static_key(Unhashable((1,)))


def test_a_struct_class_is_a_static_value_like_any_class():
    class Model(s.Struct):
        x: object

    class Holds(s.Struct):
        model: type = s.field(static=True)

    assert static_key(Model)[0] is Model
    assert (
        Holds(Model) == Holds(Model) != Holds(Holds)
        and jax.jit(lambda holds: holds.model(1.0))(Holds(Model)).x == 1.0
    )


@pytest.mark.parametrize("make", [np.longdouble, np.clongdouble])
def test_extended_precision_is_found_again(make):
    # Made in two ways, so that the bytes which pad them may differ.
    a, b = make("1.5"), make("0.5") * 3
    assert static_key(a) == static_key(b) and static_key(a) != static_key(
        a + make("1e-18")
    ) != static_key(-a)
    assert static_key(make("nan")) == static_key(make("nan"))
    assert static_key(make(0.0))[::-1] != static_key(make(-0.0))[::-1]


def test_holds_array_survives_cycles():
    holder = Holder(None)
    holder.value = holder
    assert not holds_array(holder)


def test_opaque_references():
    a = object()
    assert OpaqueRef(a) == OpaqueRef(a) != OpaqueRef(object()) and hash(OpaqueRef(a)) == hash(
        OpaqueRef(a)
    )
    assert "reset=True" in repr(OpaqueRef(a)) and OpaqueRef(a) != a


def objects(*items):
    array = np.empty(len(items), object)
    for place, item in enumerate(items):
        array[place] = item
    return array


@every(
    ("a", "b", "same"),
    [
        (np.float32("nan"), np.float32("nan"), True), (np.array([np.nan]), np.array([np.nan]), True), (1, 1, True), (1, 1.0, False),
        (np.array("a"), np.array("a"), True), (np.datetime64("NaT", "s"), np.datetime64("NaT", "s"), True),
        (jnp.zeros(2, jnp.bfloat16), jnp.zeros(2, jnp.bfloat16), True), ({"a": [1]}, {"a": (1,)}, False),
        (jax.random.key(1), jax.random.key(1), True), (jax.random.key(1), 3, False), (Holder(1), Holder(1), False),
        (slice(1), slice(1), True), (objects(np.ones(2), None), objects(np.ones(2), None), True),
        (objects(np.ones(2), 1), objects(np.zeros(2), 1), False), (objects(1, 2), objects(1, True), False),
    ],
)  # fmt: skip
def test_same_value(a, b, same):
    assert same_value(a, b) is same
    assert not same or value_hash(a) == value_hash(b)


def test_key_arrays():
    assert (
        is_key_array(jax.random.key(0))
        and not is_key_array(jax.random.PRNGKey(0))
        and not is_key_array(1)
    )


def test_static_fields_that_are_being_set_compare_too():
    assert (
        same_static([1], [1])
        and not same_static([1], [1.0])
        and same_static(float("nan"), float("nan"))
    )
    assert not same_static(np.float64(0.0), np.float64(-0.0))


class TestDictsWithoutOrder:
    """JAX cannot flatten a dict whose keys cannot be sorted; to compare two of them needs no order."""

    @pytest.mark.parametrize(
        ("other", "same"),
        [
            ({1: [np.ones(2), 2.0], "a": (0.0,)}, True),
            ({"a": (0.0,), 1: [np.ones(2), 2.0]}, True),
            ({1: [np.ones(2), 2.0], "a": (-0.0,)}, False),
            ({1: [np.zeros(2), 2.0], "a": (0.0,)}, False),
            ({1: [np.ones(2)], "a": (0.0,)}, False),
            ({1: [np.ones(2), 2.0]}, False),
            ({1: [np.ones(2), 2.0], "b": (0.0,)}, False),
            ([1, "a"], False),
        ],
    )
    def test_equality(self, other, same):
        value = {1: [np.ones(2), 2.0], "a": (0.0,)}
        assert same_value(value, other) is same_value(other, value) is same
        if same:
            assert value_hash(value) == value_hash(other)

    def test_inside_other_containers(self):
        assert same_value([{1: 0, "a": 0}], [{"a": 0, 1: 0}]) and value_hash(
            [{1: 0, "a": 0}]
        ) == value_hash([{"a": 0, 1: 0}])
        assert not same_value([{1: 0, "a": 0}], ({1: 0, "a": 0},))
        assert not same_value(
            {"x": {1: 0, "a": 0}, "y": {1, 2}}, {"x": {1: 0, "a": 0}, "y": {1, 3}}
        )


@every(
    ("a", "b", "same"),
    [
        (1, 1, True),
        (1, True, False),
        (1, 1.0, False),
        (0.0, -0.0, False),
        (float("nan"), float("nan"), True),
        (
            np.ones(2),
            jnp.ones(2, "float64" if jax.config.x64_enabled else "float32"),
            jax.config.x64_enabled,
        ),
        (np.ones(2, "float32"), jnp.ones(2, "float32"), True),
        (np.ones(2, "float32"), [1.0, 1.0], False),
        ("a", ["a"], False),
        (None, 0, False),
        (np.float32(1), np.float32(1), True),
    ],
)
def test_equal_leaves_hash_alike(a, b, same):
    assert same_value(a, b) is same_value(b, a) is same
    assert not same or value_hash(a) == value_hash(b)


class Held(s.Struct):
    x: object


OTHERS = [np.ones(2), np.ones(0), np.float32(1), jnp.ones(2), 1.5, "x", None, [Held(1)]]


@every(
    "other",
    OTHERS,
)
def test_a_struct_differs_from_all_else(other):
    inner = Held(np.ones(2))
    for a, b in ((inner, other), (Held(inner), Held(other)), (Held([inner]), Held([other]))):
        assert (a == b) is False and (b == a) is False
        assert (a != b) is True and (b != a) is True


def test_a_struct_is_not_iterable():
    with pytest.raises(TypeError, match="'Held'"):
        iter(Held(1))
    assert np.asarray(Held(1)).shape == ()
