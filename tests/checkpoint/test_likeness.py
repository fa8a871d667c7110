"""Loads with ``like=``: missing values, the structure to compare with, and shardings."""

import collections
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import neuralqx_struct as s
from neuralqx_struct.manifest import Limits
from neuralqx_struct.references import class_ref
from tests.builders import bounded, every, refused


class Part(s.Struct):
    w: jax.Array
    cache: object = s.field(default=None, serialize=False)


class Whole(s.Struct):
    parts: list[Part]
    table: dict[str, jax.Array]
    key: jax.Array
    step: int = 0
    logger: object = s.field(pytree=False, serialize=False, kw_only=True)


Pair = collections.namedtuple("Pair", "a b")


def whole(size=8, logger="a logger", **changes):
    parts = [Part(jnp.arange(float(size)), cache=np.ones(2)), Part(jnp.ones(2))]
    given = {"parts": parts, "table": {"a": jnp.zeros(3)}, "key": jax.random.key(0)}
    return Whole(**(given | changes), step=3, logger=logger)


@pytest.fixture
def ckpt(tmp_path):
    return whole().export(tmp_path / "ckpt")


def test_missing_values_are_those_of_the_object(ckpt):
    with refused(s.SerializationError, "NQX414", "$.logger"):
        Whole.load(ckpt)
    loaded = s.load(ckpt, like=whole())
    assert loaded == whole()
    assert loaded.parts[0].cache.tolist() == [1, 1]
    assert s.load(ckpt, like=whole(), fill={"logger": "mine"}).logger == "mine"
    held = whole().to_state_dict()
    assert s.from_state_dict(held, like=whole()) == whole()


def test_a_value_for_a_saved_field_is_reported(tmp_path):
    held = s.to_state_dict(whole())
    del held["manifest"]["fields"]["step"]
    report = []
    assert s.from_state_dict(held, like=whole(), report=report).step == 3
    assert [str(each) for each in report] == [
        "$.step: took the value of like=, the payload has none [NQX425]"
    ]


def test_what_the_object_lacks_too_takes_its_default(ckpt):
    fewer = whole().replace(parts=[Part(jnp.zeros(8), cache=np.zeros(2))])
    with pytest.raises(s.SerializationError) as error:
        s.load(ckpt, like=fewer)
    assert [each.path for each in error.value.diagnostics] == ["$.parts[1]"]


def test_all_differences_are_reported_at_once(ckpt):
    other = whole(9, table={"b": jnp.zeros(3)}, key=jnp.zeros(2, "uint32")).replace(step="x")
    with pytest.raises(s.SerializationError) as error:
        s.load(ckpt, like=other)
    found = [(each.code, each.path, each.message) for each in error.value.diagnostics]
    assert found == [
        ("NQX412", "$.parts[0].w", "expected float32[9], as in like=, got float32[8]"),
        ("NQX414", "$.table['b']", "expected float32[3], as in like=, got nothing"),
        ("NQX415", "$.table['a']", "expected nothing, as in like=, got float32[3]"),
        ("NQX411", "$.key", "expected uint32[2], as in like=, got key<fry>[]"),
        ("NQX411", "$.step", "expected 'x', as in like=, got 3"),
    ]


@pytest.mark.parametrize(
    ("saved", "like", "code"),
    [
        ([1.0], (1.0,), "NQX411"),
        (Pair(1, 2), (1, 2), "NQX411"),
        ({"a": jnp.zeros(2)}, {"a": jnp.zeros(2, "int32")}, "NQX411"),
        ([jnp.zeros(2)], [2.0], "NQX411"),
        ([None], [1.0], "NQX411"),
        ([1, 2], [1], "NQX415"),
    ],
)
def test_other_trees_differ(tmp_path, saved, like, code):
    path = s.export(saved, tmp_path / "tree")
    with refused(s.SerializationError, code):
        s.load(path, like=like, trust=[__name__])


def test_numbers_and_the_kind_of_arrays_may_differ(tmp_path):
    path = s.export([jnp.zeros(2), 1, True], tmp_path / "tree")
    assert s.load(path, like=[np.ones(2, "float32"), 7, False])[1] == 1
    assert s.load(path, like=jax.eval_shape(lambda: [jnp.zeros(2), 1, True]))[1] == 1


def test_leaves_that_a_filter_leaves_out_are_not_compared(ckpt):
    part = s.load(ckpt, like=whole(9), select="path:table/**")
    assert part.parts[0].w is None and part.table["a"].shape == (3,)


def test_arrays_lie_where_those_of_the_object_do(ckpt):
    rows = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), PartitionSpec("x"))
    state = whole()
    first = state.parts[0].replace(w=jax.device_put(state.parts[0].w, rows))
    state = state.replace(parts=[first, state.parts[1]])
    for loaded in (s.load(ckpt, like=state), s.from_state_dict(state.to_state_dict(), like=state)):
        assert loaded.parts[0].w.sharding == rows
        assert not loaded.parts[1].w.committed, "where JAX puts it"
    shapes = jax.eval_shape(lambda: state)
    first = shapes.parts[0].replace(w=jax.ShapeDtypeStruct((8,), "float32", sharding=rows))
    shapes = shapes.replace(parts=[first, shapes.parts[1]])
    assert s.load(ckpt, like=shapes, abstract=True).parts[0].w.sharding == rows
    here = jax.sharding.SingleDeviceSharding(jax.devices()[1])
    assert s.load(ckpt, like=state, shardings=here).parts[0].w.sharding == here


def test_a_class_is_no_object(ckpt):
    with refused(TypeError, "like=", "Whole"):
        s.load(ckpt, like=Whole)


def test_the_class_is_that_of_the_object(tmp_path):
    path = Part(jnp.zeros(2)).export(tmp_path / "part")
    with refused(s.SerializationError, "NQX401", class_ref(Whole)):
        s.load(path, like=whole())


def test_raw_loads_compare_nothing(ckpt):
    assert s.load(ckpt, raw=True, like=[1])["step"] == 3


# --- objects that nobody expects ---


def nested(depth, width=1):
    value = 1
    for _ in range(depth):
        value = [value] * width
    return value


def cycle():
    value = {}
    value["w"] = value
    return value


class Odd:
    """An object whose attributes raise anything."""

    def __getattr__(self, name):
        raise RuntimeError(name)


ENDLESS = {
    "deep": (lambda: nested(5000), 200),
    "a cycle": (cycle, 200),
    "shared parts": (lambda: nested(60, 2), 1_000_000),
    "a long list": (lambda: [0] * 2_000_000, 1_000_000),
}


@every("name", ENDLESS)
@every("beside", [{}, {1: 2, "a": 3}])
def test_an_object_without_an_end_is_one_error(tmp_path, name, beside):
    """JAX would visit shared parts for each place, and cycles until its stack is full, of which it then loses a part."""
    make, most = ENDLESS[name]
    path = s.export({"w": np.zeros(3)}, tmp_path / "ckpt")
    with bounded():
        for read in (lambda **given: s.load(path, **given), from_dict_of(path)):
            with refused(s.SerializationError, "NQX005", most) as caught:
                read(like=[beside, make()] if beside else make())
            assert len(caught.value.diagnostics) == 1


def from_dict_of(path):
    held = s.to_state_dict(s.load(path))
    return lambda **given: s.from_state_dict(held, **given)


def test_larger_limits_allow_a_larger_object(tmp_path):
    path = s.export({"w": nested(150), "v": nested(150)}, tmp_path / "ckpt")
    like = {"w": nested(150), "v": nested(250)}
    with refused(s.SerializationError, "NQX005", "200"):
        s.load(path, like=like)
    with refused(s.SerializationError, "NQX411", "like=", "1"):
        s.load(path, like=like, limits=Limits(depth=300))


def test_very_many_differences_are_cut_off(tmp_path):
    path = s.export({"w": [1, 2]}, tmp_path / "ckpt")
    with bounded(), refused(s.SerializationError, "NQX414", "$['w'][2]") as caught:
        s.load(path, like={"w": [0] * 20_000})
    found = caught.value.diagnostics
    assert len(found) == 10_001
    assert "like=" in found[-1].message and "10000" in found[-1].message


def test_foreign_objects_whose_attributes_raise_are_differences(tmp_path):
    path = s.export({"w": np.zeros(3)}, tmp_path / "ckpt")
    array = SimpleNamespace(dtype="float64", shape=None)
    for like in ({"w": Odd()}, {"w": array}, Odd()):
        with refused(s.SerializationError, "NQX411", "like="):
            s.load(path, like=like)
