"""Values of optax, flax and equinox inside Structs: transformed by JAX, saved and read back as what they were.

Each is compared with itself after a round trip: same types, same structure, same leaves; and what trains goes on training.
"""

import dataclasses
import functools
from collections import OrderedDict, defaultdict
from typing import Any, NamedTuple

import equinox as eqx
import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from flax.core import FrozenDict
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import neuralqx_struct as s
from tests.builders import every, refused


class Box(s.Struct):
    value: Any


class Model(s.Struct):
    kernel: Any
    bias: Any
    name: str = s.field(static=True, default="m")
    norm: float = s.field(static=True, derived=lambda self: float(jnp.sum(self.kernel**2)))
    cache: dict = s.field(pytree=False, reset=True, default_factory=dict)


class Train(s.Struct):
    params: Any
    opt_state: Any
    step: Any = 0


class WithStatic(s.Struct):
    w: Any
    f: Any = s.field(static=True)


@flax.struct.dataclass
class FlaxState:
    w: Any
    inner: Any = None
    name: str = flax.struct.field(pytree_node=False, default="n")


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["w", "inner"], meta_fields=["name"]
)
@dataclasses.dataclass
class Registered:
    w: Any
    inner: Any = None
    name: str = "n"


@functools.partial(jax.tree_util.register_dataclass, data_fields=["w"], meta_fields=["n"])
@dataclasses.dataclass(frozen=True)
class Refusing:
    w: Any
    n: int = 1

    def __post_init__(self):
        assert hasattr(self.w, "dtype") or not isinstance(self.w, (int, str))


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Setting:
    n: int


class Pair(NamedTuple):
    x: Any
    y: Any


class Dense(eqx.Module):
    w: jax.Array
    scale: float
    inner: Any = None
    n: int = eqx.field(static=True, default=3)
    label: str | None = eqx.field(static=True, default=None)

    def __call__(self, x):
        return self.scale * self.w @ x


@jax.tree_util.register_pytree_node_class
class ByHand:
    def __init__(self, w, note):
        self.w, self.note = w, note

    def tree_flatten(self):
        return (self.w,), (self.note, None)

    @classmethod
    def tree_unflatten(cls, aux, children):
        made = object.__new__(cls)
        made.w, made.note = children[0], aux[0]
        return made


class Net(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(2, 3, rngs=rngs)
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.layers = nnx.List([nnx.Linear(3, 3, rngs=rngs)])

    def __call__(self, x):
        return self.layers[0](self.norm(self.first(x)))


PARAMS = {"w": jnp.array([1.0, -2.0, 3.0]), "b": jnp.array([0.5, 0.25])}

OPTIMISERS = {
    "sgd": lambda: optax.sgd(0.1),
    "sgd, momentum": lambda: optax.sgd(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: optax.adam(1e-2),
    "adamw": lambda: optax.adamw(1e-2),
    "adafactor": lambda: optax.adafactor(1e-2),
    "lion": lambda: optax.lion(1e-3),
    "chain": lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_adam(), optax.scale(-0.1)),
    "schedule": lambda: optax.adam(optax.cosine_decay_schedule(0.1, 10)),
    "masked": lambda: optax.masked(optax.adam(1e-2), {"w": True, "b": False}),
    "multi_transform": lambda: optax.multi_transform(
        {"a": optax.adam(1e-2), "z": optax.set_to_zero(), "s": optax.sgd(0.1, momentum=0.9)}, {"w": "a", "b": "s"}
    ),
    "inject_hyperparams": lambda: optax.inject_hyperparams(optax.adam)(learning_rate=0.1),
    "MultiSteps": lambda: optax.MultiSteps(optax.adam(1e-2), 2),
    "apply_if_finite": lambda: optax.apply_if_finite(optax.adam(1e-2), 3),
    "ema": lambda: optax.chain(optax.ema(0.9), optax.scale(-0.1)),
    "noise": lambda: optax.chain(optax.add_noise(0.1, 0.5, 7), optax.scale(-0.1)),
}  # fmt: skip


def nnx_state():
    return nnx.split(Net(nnx.Rngs(0)))[1]


VALUES = {
    "FrozenDict": lambda: FrozenDict({"z": {"b": jnp.ones(2)}, "a": np.ones(1), "n": 1}),
    "linen variables": lambda: nn.Dense(3).init(jax.random.key(0), jnp.ones((1, 2))),
    "linen Partitioned": lambda: nn.Partitioned(jnp.ones((2, 2)), names=("a", None)),
    "flax.struct": lambda: FlaxState(jnp.ones(2), FlaxState(np.ones(1)), "q"),
    "register_dataclass": lambda: Registered(jnp.ones(2), Registered([1.0]), "q"),
    "frozen register_dataclass": lambda: Refusing(jnp.ones(2), 7),
    "register_static": lambda: [Setting(3), jnp.ones(1)],
    "register_pytree_node_class": lambda: ByHand(jnp.ones(2), "note"),
    "namedtuple": lambda: Pair(jnp.ones(2), Pair(1, (None, {"k": 2.0}))),
    "equinox": lambda: Dense(jnp.ones((3, 2)), 2.0, Dense(jnp.ones((1, 1)), 1.0), label="inner"),
    "equinox Linear": lambda: eqx.nn.Linear(2, 3, key=jax.random.key(0)),
    "equinox in optax": lambda: optax.adam(0.1).init(eqx.filter(eqx.nn.Linear(2, 3, key=jax.random.key(0)), eqx.is_array)),
    "equinox State": lambda: eqx.nn.make_with_state(eqx.nn.BatchNorm)(2, "batch", mode="ema")[1],
    "nnx State": nnx_state,
    "nnx Param": lambda: nnx.Param(jnp.ones(2), note="q"),
    "nnx BatchStat": lambda: nnx.BatchStat(jnp.ones(2)),
    "nnx rng state": lambda: nnx.split(nnx.Rngs(0, dropout=1))[1],
    "nnx pure dict": lambda: nnx.to_pure_dict(nnx_state()),
    "nnx in optax": lambda: optax.adam(0.1).init(nnx_state()),
    "OrderedDict": lambda: OrderedDict(z=jnp.ones(1), a=2),
    "defaultdict": lambda: defaultdict(list, z=[jnp.ones(1)], a=[2]),
    "Struct in all of them": lambda: FlaxState(Registered(Dense(Model(jnp.ones(2), 1), 1.0), FrozenDict(k=Model(jnp.ones(1), 2)))),
    **{f"optax {name}": lambda make=make: make().init(PARAMS) for name, make in OPTIMISERS.items()},
    "optax over a Struct": lambda: optax.adam(0.1).init(Model(jnp.ones(2), jnp.ones(1))),
}  # fmt: skip


def raw(leaf):
    return jax.random.key_data(leaf) if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf  # fmt: skip


def assert_same(got, expected, *, numbers=True):
    assert type(got) is type(expected)
    leaves, wanted = jax.tree.leaves(got), jax.tree.leaves(expected)
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for a, b in zip(leaves, wanted, strict=True):
        if numbers:
            assert type(a) is type(b)
            assert getattr(a, "dtype", None) == getattr(b, "dtype", None)
        np.testing.assert_array_equal(raw(a), raw(b))


@every("name", VALUES)
def test_saved_and_read_back_as_what_it_was(name, tmp_path):
    value = VALUES[name]()
    assert_same(Box.from_state_dict(Box(value).to_state_dict()).value, value)
    assert_same(Box.load(Box(value).export(tmp_path / "ckpt")).value, value)
    assert s.validate(tmp_path / "ckpt") == []


@every("name", VALUES)
def test_under_transformations(name):
    box = Box(VALUES[name]())
    traced = []
    run = jax.jit(lambda b: traced.append(1) or b)
    assert_same(run(run(box)).value, box.value, numbers=False)
    mapped = jax.tree.map(lambda v: v, box)
    assert_same(mapped.value, box.value)
    assert jax.tree.structure(jax.eval_shape(lambda b: b, box)) == jax.tree.structure(box)
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(box)]
    assert len(set(paths)) == len(paths) and all(path.startswith(".value") for path in paths)
    assert_same(jax.tree.map(lambda _, b: b, box, mapped).value, box.value)
    assert repr(box).startswith("Box(value=")


def loss(params):
    return sum(jnp.sum((leaf - 1.0) ** 2) for leaf in jax.tree.leaves(params))


def trainer(optimiser):
    @jax.jit
    def step(train):
        value, grads = jax.value_and_grad(loss)(train.params)
        updates, opt_state = optimiser.update(grads, train.opt_state, train.params)
        return train.replace(
            params=optax.apply_updates(train.params, updates),
            opt_state=opt_state,
            step=train.step + 1,
        ), value

    return step


def advance(step, train, count):
    for _ in range(count):
        train, _ = step(train)
    return train


@every("name", OPTIMISERS)
def test_training_goes_on_from_what_was_saved(name, tmp_path):
    optimiser = OPTIMISERS[name]()
    step = trainer(optimiser)
    train = advance(step, Train(PARAMS, optimiser.init(PARAMS), jnp.asarray(0)), 3)
    train.export(tmp_path / "ckpt")
    again = Train.load(tmp_path / "ckpt")
    assert_same(again, train)
    traced = step._cache_size()
    assert_same(advance(step, again, 3), advance(step, train, 3))
    assert step._cache_size() == traced  # what was loaded is no news to the jit cache


def test_parameters_may_be_a_struct_with_derived_and_reset_fields(tmp_path):
    optimiser = optax.chain(optax.clip_by_global_norm(10.0), optax.adam(0.1))
    params = Model(jnp.arange(3.0), jnp.ones(1), "net", cache={"warm": 1})
    step = trainer(optimiser)
    train = advance(step, Train(params, optimiser.init(params), jnp.asarray(0)), 5)
    assert step._cache_size() == 1 and train.params.norm == float(jnp.sum(train.params.kernel**2))
    again = Train.load(train.export(tmp_path / "ckpt"))
    assert type(again.opt_state[1][0].mu) is Model and again.params.name == "net"
    assert_same(advance(step, again, 2), advance(step, train, 2))
    assert step._cache_size() == 1


def test_masks_and_labels_may_be_structs():
    params = Model(jnp.arange(3.0), jnp.ones(1))
    labels = jax.tree_util.tree_map_with_path(lambda path, _: path[-1].name, params)
    optimiser = optax.multi_transform(
        {"kernel": optax.sgd(0.1), "bias": optax.set_to_zero()}, labels
    )
    out = advance(trainer(optimiser), Train(params, optimiser.init(params)), 2)
    assert float(out.params.bias[0]) == 1.0 and float(out.params.kernel[2]) < 2.0
    mask = jax.tree.map(lambda v: v.ndim == 1 and v.size > 1, params)
    optimiser = optax.chain(optax.masked(optax.add_decayed_weights(1.0), mask), optax.sgd(0.1))
    out = advance(trainer(optimiser), Train(params, optimiser.init(params)), 1)
    assert type(out.params) is Model and float(out.params.bias[0]) == 1.0


# --- flax and equinox keep working after a round trip -----------------------------------------------------------------------


def test_nnx_states_merge_after_a_round_trip(tmp_path):
    graph, state = nnx.split(Net(nnx.Rngs(0)))
    box = Box.load(Box(state).export(tmp_path / "ckpt"))
    x = jnp.ones((4, 2))
    np.testing.assert_array_equal(nnx.merge(graph, box.value)(x), nnx.merge(graph, state)(x))
    model = Net(nnx.Rngs(1))
    nnx.update(model, box.value)
    np.testing.assert_array_equal(model.first.kernel[...], state["first"]["kernel"][...])

    @jax.jit
    def step(box, x):
        module = nnx.merge(graph, box.value)
        out = module(x)
        return box.replace(value=nnx.split(module)[1]), out

    after, _ = step(box, x)
    assert jax.tree.structure(after) == jax.tree.structure(box)
    assert not np.array_equal(after.value["norm"]["mean"][...], state["norm"]["mean"][...])
    grads = jax.grad(lambda b: jnp.sum(nnx.merge(graph, b.value)(x) ** 2))(box)
    assert type(grads.value) is nnx.State


def test_a_graph_definition_is_a_static_value():
    graph, state = nnx.split(Net(nnx.Rngs(0)))
    traced = []
    run = jax.jit(lambda m, x: traced.append(1) or nnx.merge(m.f, m.w)(x))
    for _ in range(2):
        run(WithStatic(state, graph), jnp.ones((4, 2)))
        run(WithStatic(nnx.split(Net(nnx.Rngs(1)))[1], graph), jnp.ones((4, 2)))
    assert len(traced) == 1


def test_equinox_modules_are_called_and_filtered_inside_structs(tmp_path):
    box = Box(Dense(jnp.ones((3, 2)), 2.0))
    assert eqx.filter_jit(lambda b, x: b.value(x))(box, jnp.ones(2)).shape == (3,)
    grads = eqx.filter_grad(lambda b: jnp.sum(b.value(jnp.ones(2))))(box)
    assert type(grads) is Box and type(grads.value) is Dense
    dynamic, static = eqx.partition(box, eqx.is_array)
    assert type(dynamic) is Box and dynamic.value.scale is None and static.value.w is None
    assert_same(eqx.combine(dynamic, static), box)
    moved = eqx.tree_at(lambda b: b.value.w, box, jnp.zeros((3, 2)))
    assert float(moved.value.w.sum()) == 0.0
    again = Box.load(box.export(tmp_path / "ckpt"))
    np.testing.assert_array_equal(again.value(jnp.ones(2)), box.value(jnp.ones(2)))


def test_structs_inside_equinox_and_flax():
    model = Model(jnp.ones(2), jnp.ones(1))
    dense = Dense(model, 1.0)
    assert jax.jit(lambda d: d)(dense).w == model and eqx.tree_equal(dense, Dense(model, 1.0))
    state = FlaxState(model).replace(inner=model)
    assert jax.grad(lambda st: jnp.sum(st.w.kernel * st.inner.bias))(state).inner.norm == 0.0
    variable = nnx.Param(model)
    doubled = jax.jit(lambda v: jax.tree.map(lambda leaf: 2 * leaf, v))(variable)
    assert jax.tree.structure(doubled) == jax.tree.structure(variable)
    np.testing.assert_array_equal(jax.tree.leaves(doubled)[0], [2.0, 2.0])


@pytest.mark.parametrize("make", [lambda: eqx.nn.MLP(2, 3, 4, 1, key=jax.random.key(0))])
def test_modules_that_hold_functions_work(make):
    box = Box(make())
    assert eqx.filter_jit(lambda b, x: b.value(x))(box, jnp.ones(2)).shape == (3,)
    held = box.to_state_dict()
    with refused(s.SerializationError, "NQX414", "$.value.final_activation", "like="):
        Box.from_state_dict(held)
    assert eqx.tree_equal(s.from_state_dict(held, like=Box(make())).value, box.value)


# --- static fields with what such libraries have -----------------------------------------------------------------------------


class Bound:
    def __init__(self, n):
        self.n = n

    def apply(self, x):
        return self.n * x


BOUND = Bound(3)
MODULE = Dense(jnp.ones((2, 2)), 2.0)


class Scale(eqx.Module):
    n: int = eqx.field(static=True)

    def __call__(self, x):
        return self.n * x


SCALE = Scale(3)
MESH = Mesh(np.array(jax.devices()[:4]), ("x",))

# Made anew for each call where its == is by value, else one object.
STATICS = {
    "function": lambda: loss,
    "jitted function": lambda jitted=jax.jit(loss): jitted,
    "custom_jvp": lambda: jax.nn.relu,
    "jnp function": lambda: jnp.tanh,
    "ufunc": lambda: jnp.add,
    "numpy ufunc": lambda: np.add,
    "partial": lambda made=functools.partial(jnp.sum, axis=0): made,
    "bound method": lambda: BOUND.apply,
    "equinox module": lambda: Scale(3),
    "equinox bound method": lambda: SCALE.__call__,
    "equinox filter_jit": lambda made=eqx.filter_jit(loss): made,
    "linen module": lambda: nn.Dense(3),
    "linen bound method": lambda made=nn.Dense(3): made.apply,
    "optimiser": lambda made=optax.adam(0.1): made,
    "PartitionSpec": lambda: P("x", None),
    "Mesh": lambda: Mesh(np.array(jax.devices()[:4]), ("x",)),
    "NamedSharding": lambda: NamedSharding(MESH, P("x")),
    "device sharding": lambda: SingleDeviceSharding(jax.devices()[0]),
    "device": lambda: jax.devices()[0],
    "treedef": lambda: jax.tree.structure([1, (2,)]),
    "shape": lambda: jax.ShapeDtypeStruct((2,), jnp.float32),
    "precision": lambda: jax.lax.Precision.HIGHEST,
    "frozen dataclass": lambda: Setting(3),
}


@every("name", STATICS)
def test_static_values_of_other_libraries_trace_once(name):
    make = STATICS[name]
    traced = []
    run = jax.jit(lambda tree: traced.append(1) or tree)
    for i in range(3):
        out = run(WithStatic(jnp.full(1, i), make()))
        assert out.f == make()
    assert len(traced) == 1
    assert WithStatic(1, make()) == WithStatic(1, make()) and hash(WithStatic(1, make())) == hash(
        WithStatic(1, make())
    )
    assert jax.tree.map(lambda a, b: a + b, WithStatic(1, make()), WithStatic(2, make())).w == 3


@pytest.mark.parametrize(
    "value", [MODULE, MODULE.__call__, functools.partial(MODULE.__call__), (1, MODULE)], ids=str
)
def test_static_values_that_hold_arrays_are_refused(value):
    with refused(s.ValidationError, "NQX110", "WithStatic.f"):
        WithStatic(1, value)
