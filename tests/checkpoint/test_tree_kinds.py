"""Filters on trees of all kinds: Structs, Params, builtin containers, and what other libraries registered with JAX."""

import dataclasses
from collections import OrderedDict, defaultdict
from typing import NamedTuple

import chex
import equinox
import flax.core
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import neuralqx_struct as s
from neuralqx_struct import container
from neuralqx_struct.trees import leaves_with_paths
from tests.builders import cases

f = s.filters
X, Y = jnp.arange(3.0), jnp.ones((3, 2))


class Inner(s.Struct):
    bias: object = s.field(metadata={"tags": ["trainable"]})


class Outer(s.Struct):
    w: object = s.field(metadata={"tags": ["trainable"]})
    inner: Inner
    frozen: object = None
    name: str = s.field(static=True, default="outer")
    log: object = s.field(pytree=False, default=None)


class Pair(NamedTuple):
    w: object
    bias: object


class Module(nnx.Module):
    def __init__(self):
        self.w, self.bias, self.frozen = nnx.Param(X), nnx.Param(Y), nnx.BatchStat(X)


class Equinox(equinox.Module):
    w: jax.Array
    bias: jax.Array
    name: str = equinox.field(static=True, default="eqx")


@flax.struct.dataclass
class Linen:
    w: object
    bias: object
    name: str = flax.struct.field(pytree_node=False, default="linen")


@chex.dataclass
class Chex:
    w: object
    bias: object


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Plain:
    w: object
    bias: object


@container.derive(containers=["w", "bias"])
class Derived:
    def __init__(self, w=0.0, bias=0.0):
        self.w, self.bias = w, bias


class Attributes:
    def __init__(self, w, bias):
        self.w, self.bias = w, bias


s.register_attrs_type(Attributes, node_fields=["w", "bias"])

KINDS = {
    "struct": Outer(X, Inner(Y), frozen=[X, None]),
    "params": s.Params(
        {("net", "w"): s.Param(X), ("net", "bias"): s.Param(Y), ("m",): s.Param(X, trainable=False)}
    ),
    "dict": {"w": X, "bias": {"bias": Y}, "none": None},
    "numbers": {1: X, 0: {"w": Y}},
    "list": [X, {"bias": Y}, ()],
    "tuple": (X, [Y], None),
    "namedtuple": Pair(X, Pair(Y, X)),
    "ordered dict": OrderedDict(w=X, bias=OrderedDict()),
    "defaultdict": defaultdict(list, w=[X], bias=Y),
    "nnx": Module(),
    "nnx state": nnx.state(Module()),
    "equinox": Equinox(X, Y),
    "linen": Linen(X, {"w": Y}),
    "frozen dict": flax.core.FrozenDict({"w": X, "bias": {"w": Y}}),
    "chex": Chex(w=X, bias=Y),
    "optax": optax.adam(0.1).init({"w": X, "bias": Y}),
    "dataclass": Plain(X, Plain(Y, X)),
    "derived": Derived(X, (Y, Derived(X, Y))),
    "registered": Attributes(X, [Y]),
    "state": s.split(Outer(X, Inner(Y)), ...)[1],
    "train state": {
        "model": Outer(X, Inner(Y)),
        "opt": optax.sgd(0.1, momentum=0.9).init(Pair(X, Y)),
        "step": jnp.int32(3),
    },
    "leaf": X,
}
FILTERS = {
    "tag": "trainable",
    "key": f.PathContains("w"),
    "glob": f.PathGlob("**/bias/**"),
    "dtype": f.DType("floating"),
    "text": f.parse("tag:trainable & !path:**/bias/** | dtype:integer"),
    "callable": lambda path, leaf: np.ndim(leaf) == 2,
    "several": (f.PathContains("bias"), f.PathIn(("w",), ("net", "w", "value"))),
}


def same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    assert all(
        np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


@pytest.fixture(params=KINDS)
def obj(request):
    return KINDS[request.param]


@pytest.fixture(params=FILTERS)
def chosen(request):
    return FILTERS[request.param]


def test_split_and_merge_partition_and_combine(obj, chosen):
    definition, some, rest = s.split(obj, chosen, ...)
    same(s.merge(definition, some, rest), obj)
    same(s.merge(definition, rest, some), obj)
    kept, others = s.partition(obj, chosen)
    same(s.combine(kept, others), obj)
    assert [id(leaf) for leaf in jax.tree.leaves(kept)] == [id(leaf) for leaf in some.values()]
    assert [id(leaf) for leaf in jax.tree.leaves(others)] == [id(leaf) for leaf in rest.values()]
    predicate = f.to_predicate(chosen)
    assert [path for path, leaf in leaves_with_paths(obj) if predicate(path, leaf)] == list(some)


NAMES = [*FILTERS]
#: By day each kind with two filters, and each filter with six kinds: JAX compiles four functions for each pair.
TRACED = [
    (kind, NAMES[(place + more) % len(NAMES)])
    for place, kind in enumerate(KINDS)
    for more in range(cases(len(NAMES)))
]


@pytest.mark.parametrize(("kind", "name"), TRACED)
def test_under_jit_and_vmap(kind, name):
    """The same leaves are chosen of what is traced."""
    obj, chosen = KINDS[kind], FILTERS[name]
    definition, some, rest = s.split(obj, chosen, ...)

    @jax.jit
    def doubled(obj):
        return s.map_where(obj, chosen, lambda leaf: leaf * 2)

    expected = s.merge(definition, jax.tree.map(lambda leaf: leaf * 2, some), rest)
    same(doubled(obj), expected)
    jitted = jax.jit(lambda obj: s.split(obj, chosen, ...)[1:])(obj)
    assert [list(state) for state in jitted] == [list(some), list(rest)]
    same(jax.jit(s.merge, static_argnums=0)(definition, some, rest), obj)
    same(jax.jit(lambda obj: s.combine(*s.partition(obj, chosen)))(obj), obj)
    mapped = {(chosen, f.Nothing()): 0, ...: None}
    if all(np.ndim(leaf) for leaf in some.values()) and len(some):
        in_axes = f.axes(obj, mapped)
        shapes = jax.vmap(
            lambda obj: [jnp.zeros(np.shape(leaf)) for leaf in jax.tree.leaves(obj)],
            in_axes=(in_axes,),
        )(obj)
        paths = [path for path, _ in leaves_with_paths(obj)]
        for path, leaf, made in zip(paths, jax.tree.leaves(obj), shapes, strict=True):
            assert made.shape == (
                (3, *np.shape(leaf)[1:]) if path in some else (3, *np.shape(leaf))
            )


def test_only_what_is_chosen_is_differentiated(obj):
    definition, some, rest = s.split(obj, (f.PathContains("w"), "trainable"), ...)

    @jax.jit
    def loss(some, rest):
        whole = s.merge(definition, some, rest)
        return sum(jnp.sum(jnp.asarray(leaf, float) ** 2) for leaf in jax.tree.leaves(whole))

    floats = all(jnp.issubdtype(jnp.result_type(leaf), jnp.floating) for leaf in some.values())
    assert floats
    gradients = jax.grad(loss)(some, rest)
    assert list(gradients) == list(some)
    assert all(np.array_equal(gradients[path], 2 * leaf) for path, leaf in some.items())
    stepped = jax.tree.map(lambda leaf, gradient: leaf - 0.5 * gradient, some, gradients)
    assert all(np.array_equal(leaf, np.zeros_like(leaf)) for leaf in stepped.values())
    same(
        s.split(s.merge(definition, stepped, rest), (f.PathContains("w"), "trainable"), ...)[2],
        rest,
    )


@pytest.mark.parametrize(
    ("kind", "trainable"),
    [
        ("struct", [("w",), ("inner", "bias")]),
        ("params", [("net", "bias", "value"), ("net", "w", "value")]),
        ("state", [("w",), ("inner", "bias")]),
        ("train state", [("model", "w"), ("model", "inner", "bias")]),
    ],
)
def test_training_only_what_is_tagged(kind, trainable):
    obj = KINDS[kind]
    some = s.split(obj, f.parse("tag:trainable"), ...)[1]
    assert [path[-len(wanted) :] for path, wanted in zip(some, trainable, strict=True)] == trainable
