"""How often JAX traces: never for another node value, once for each distinct static value, never for a fresh reset handle.

Also what the jit cache holds on to, since it lives as long as the jitted function.
"""

import functools
import gc
import itertools
import math
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.struct.equality import static_key
from neuralqx_struct.struct.pytree import Layout
from tests.builders import every, refused

NAN = float("nan")


class State(s.Struct):
    w: Any
    step: Any = s.field(static=True, default=0)


class Norm(s.Struct):
    w: Any
    norm: float = s.field(static=True, derived=lambda self: float(jnp.sum(self.w**2)))
    shown: str = s.field(pytree=False, derived=lambda self: f"{self.norm}")


class Handle:
    """Something that can be watched while it is collected."""


class Fresh(s.Struct):
    w: Any
    handle: Any = s.field(pytree=False, reset=True, default_factory=Handle)


class Kept(s.Struct):
    w: Any
    handle: Any = s.field(pytree=False, default=None)


class Config(s.Struct):
    n: Any = s.field(static=True)
    note: str = s.field(static=True, compare=False, default="")
    rate: Any = 0.5


def counting(function=lambda tree: tree):
    """A jitted function, and the arguments that it was traced for."""
    traced = []

    @jax.jit
    def run(tree):
        traced.append(tree)
        return function(tree)

    return run, traced


# --- node values ----------------------------------------------------------------------------------------------------------


def test_node_values_never_trace_again():
    run, traced = counting()
    for i in range(4):
        run(State(jnp.full(3, float(i))))
        run(State(jnp.full(3, jnp.nan)))
    assert len(traced) == 1
    run(State(jnp.ones(4)))
    run(State(jnp.ones(3, "int32")))
    run(State(1.0))
    run(State(2.0))
    assert len(traced) == 4


def test_numbers_of_one_kind_share_a_trace_as_nodes():
    run, traced = counting(lambda tree: jnp.asarray(tree.w))
    for value in (0, 1, -1, 2**31 - 1, 0.0, -0.0, NAN, True, False):
        run(State(value))
    assert len(traced) == 3  # int, float, bool


def test_results_and_rebuilt_instances_never_trace_again():
    run, traced = counting(lambda tree: tree.replace(w=tree.w + 1))
    tree = State(jnp.ones(2), step=(1, NAN, -0.0))
    for _ in range(3):
        tree = run(tree)
        tree = jax.tree.map(lambda v: v, tree)
        tree = tree.replace(step=(1, float("nan"), -0.0))
    assert len(traced) == 1 and float(tree.w[0]) == 4.0


# --- static values ----------------------------------------------------------------------------------------------------------

# Each pair: a way to make a value, called anew each time; all are distinct from one another.
DISTINCT = {
    "1": lambda: 1,
    "True": lambda: True,
    "1.0": lambda: 1.0,
    "np.int64(1)": lambda: np.int64(1),
    "np.int32(1)": lambda: np.int32(1),
    "np.float64(1)": lambda: np.float64(1),
    "np.float32(1)": lambda: np.float32(1),
    "np.bool_(True)": lambda: np.bool_(True),
    "1+0j": lambda: complex(1, 0.0),
    "1-0j": lambda: complex(1, -0.0),
    "0": lambda: 0,
    "False": lambda: False,
    "0.0": lambda: 0.0,
    "-0.0": lambda: -0.0,
    "np 0.0": lambda: np.float64(0.0),
    "np -0.0": lambda: np.float64(-0.0),
    "nan": lambda: float("nan"),
    "np nan": lambda: np.float64("nan"),
    "np.float32 nan": lambda: np.float32("nan"),
    "nan+1j": lambda: complex(float("nan"), 1),
    "1+nanj": lambda: complex(1, float("nan")),
    "None": lambda: None,
    "text": lambda: "1",
    "bytes": lambda: b"1",
    "big": lambda: 2**70,
    "big, float": lambda: float(2**70),
    "(1,)": lambda: (1,),
    "(True,)": lambda: (True,),
    "(1.0,)": lambda: (1.0,),
    "(0.0,)": lambda: (0.0,),
    "(-0.0,)": lambda: (-0.0,),
    "(nan,)": lambda: (float("nan"),),
    "((nan, 1), 1)": lambda: ((float("nan"), 1), 1),
    "((nan, True), 1)": lambda: ((float("nan"), True), 1),
    "{1}": lambda: frozenset([1]),
    "{True}": lambda: frozenset([True]),
    "{0.0}": lambda: frozenset([0.0]),
    "{-0.0}": lambda: frozenset([-0.0]),
    "{1, 2.0}": lambda: frozenset([1, 2.0]),
    "{1.0, 2}": lambda: frozenset([1.0, 2]),
    "{nan}": lambda: frozenset([float("nan")]),
    "({nan},)": lambda: (frozenset([float("nan"), 1]),),
    "({nan}, True)": lambda: (frozenset([float("nan"), True]),),
    "{(1, nan)}": lambda: frozenset([(1, float("nan"))]),
    "{(True, nan)}": lambda: frozenset([(True, float("nan"))]),
    "Struct": lambda: Config(1),
    "Struct of True": lambda: Config(True),
    "Struct of nan": lambda: Config(float("nan")),
    "Struct, its uncompared note": lambda: Config(1, "another"),
    "Struct, its node": lambda: Config(1, rate=0.25),
    "Struct, its node nan": lambda: Config(1, rate=float("nan")),
    "Struct in a tuple": lambda: (Config(1), 0.0),
    "Struct in a frozenset": lambda: frozenset([Config(1)]),
    "dtype": lambda: np.dtype("float32"),
    "scalar type": lambda: np.float32,
    "int type": lambda: int,
    "range": lambda: range(3),
}


def test_a_static_value_traces_once_and_no_two_share_a_trace():
    run, traced = counting(lambda tree: tree.w)
    for make in DISTINCT.values():
        for _ in range(3):
            run(State(jnp.ones(1), step=make()))
    assert [static_key(t.step) for t in traced] == [
        static_key(make()) for make in DISTINCT.values()
    ]
    for make in reversed(DISTINCT.values()):
        run(State(jnp.zeros(1), step=make()))
    assert len(traced) == len(DISTINCT)


@pytest.mark.parametrize(
    ("a", "b"), [*itertools.combinations(["1", "True", "1.0", "np.int64(1)"], 2)]
)
def test_what_is_traced_sees_the_type_of_its_static(a, b):
    run = jax.jit(lambda tree: jnp.asarray([int, bool, float, np.int64].index(type(tree.step))))
    expected = {"1": 0, "True": 1, "1.0": 2, "np.int64(1)": 3}
    assert [int(run(State(1, step=DISTINCT[name]()))) for name in (a, b, a)] == [
        expected[n] for n in (a, b, a)
    ]


def test_the_sign_of_a_static_zero_is_seen():
    run = jax.jit(lambda tree: tree.w * math.copysign(1, tree.step))
    assert [float(run(State(1.0, step=z))) for z in (0.0, -0.0, 0.0)] == [1.0, -1.0, 1.0]


@every("name", DISTINCT)
def test_equality_hash_and_treedef_agree(name):
    make = DISTINCT[name]
    a, b = State(1, step=make()), State(1, step=make())
    assert a == b and hash(a) == hash(b) and {a: 1}[b] == 1
    assert jax.tree.structure(a) == jax.tree.structure(b) and hash(jax.tree.structure(a)) == hash(
        jax.tree.structure(b)
    )
    assert jax.tree.map(lambda x, y: x + y, a, b).w == 2
    assert jax.tree.map(lambda x: x, a) == a and a.replace() == a and a.replace(step=make()) == a
    others = [State(1, step=other()) for key, other in DISTINCT.items() if key != name]
    assert all(jax.tree.structure(a) != jax.tree.structure(other) for other in others)
    equal = {
        "Struct",
        "Struct, its uncompared note",
    }  # compare=False is for ==, never for the trace
    assert sum(a == other for other in others) == (1 if name in equal else 0)
    assert all(hash(a) == hash(other) for other in others if a == other)


def test_statics_are_told_apart_in_static_arguments_too():
    traced = []
    run = jax.jit(lambda cfg, x: traced.append(cfg.n) or x, static_argnums=0)
    for value in (
        1,
        True,
        1.0,
        0.0,
        -0.0,
        float("nan"),
        float("nan"),
        np.int64(1),
        (1, NAN),
        (True, NAN),
    ):
        run(Config(value), 1)
        run(Config(value), 2)
    assert len(traced) == 9


def test_the_value_of_a_static_comes_back_as_it_was():
    for make in DISTINCT.values():
        value = make()
        out = jax.jit(lambda tree: tree)(State(jnp.ones(1), step=value)).step
        assert type(out) is type(value) and static_key(out) == static_key(value)


def test_a_static_struct_is_not_traced_through():
    run, traced = counting(lambda tree: tree.w * tree.step.rate)
    assert float(run(State(2.0, step=Config(1, rate=0.5)))) == 1.0
    assert isinstance(traced[0].step.rate, float) and jax.tree.structure(traced[0]).num_leaves == 1
    with refused(s.ValidationError, "NQX110", "State.step"):
        State(1.0, step=Config(1, rate=jnp.ones(1)))


def test_hash_collisions_do_no_harm():
    class Same:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            return 7

        def __eq__(self, other):
            return isinstance(other, Same) and self.n == other.n

    run, traced = counting()
    for n in (1, 2, 1, 2):
        run(State(1.0, step=Same(n)))
    assert [t.step.n for t in traced] == [1, 2]


# --- derived fields ----------------------------------------------------------------------------------------------------------


def test_derived_fields_never_trace_again():
    run, traced = counting()
    for i in range(3):
        tree = Norm(jnp.full(2, float(i)))
        assert tree.norm == 2 * i * i
        assert run(tree).norm == tree.norm
    assert len(traced) == 1


def test_derived_and_reset_fields_are_in_no_treedef():
    for tree in (Norm(jnp.ones(2)), Fresh(jnp.ones(2))):
        before = jax.tree.structure(tree)
        assert "2.0" not in repr(before) and "Handle" not in repr(before)
        assert jax.tree.structure(jax.tree.map(lambda v: 5 * v, tree)) == before
        assert Layout.of(tree.fields()).places == {"w": 0}


def test_a_derived_field_that_the_trace_reads_is_computed_in_the_trace():
    class Scale(s.Struct):
        w: Any
        total: Any = s.field(pytree=False, derived=lambda self: jnp.sum(self.w))

    run, traced = counting(lambda tree: tree.w / tree.total)
    for i in (1.0, 2.0):
        np.testing.assert_allclose(run(Scale(jnp.array([i, 3 * i]))), [0.25, 0.75])
    assert len(traced) == 1
    assert "total" not in vars(traced[0])  # nothing of the trace is kept


# --- opaque fields ----------------------------------------------------------------------------------------------------------


def test_fresh_reset_handles_never_trace_again():
    run, traced = counting()
    for _ in range(4):
        run(Fresh(jnp.ones(2)))
        run(Fresh(jnp.ones(2), handle=object()))
    assert len(traced) == 1


def test_preserved_handles_trace_once_for_each_object():
    run, traced = counting()
    a, b = Handle(), Handle()
    for handle in (a, b, a, b, None, None):
        assert run(Kept(jnp.ones(2), handle)).handle is handle
    assert [t.handle for t in traced] == [a, b, None]


def test_preserved_handles_are_compared_by_identity_even_where_they_are_equal():
    run, traced = counting()
    run(Kept(jnp.ones(2), [1])), run(Kept(jnp.ones(2), [1]))
    assert len(traced) == 2
    with pytest.raises(ValueError, match=r"reset=True"):
        jax.tree.map(lambda x, y: x, Kept(1, [1]), Kept(1, [1]))


def test_the_jit_cache_keeps_no_reset_object_alive():
    run, _ = counting(lambda tree: tree.replace(w=tree.w * 2))
    tree = Fresh(jnp.ones(2))
    watched = [weakref.ref(tree.handle)]
    out = run(tree)
    jax.tree.map(lambda x, y: x + y, tree, tree)
    jax.grad(lambda t: jnp.sum(t.w))(tree)
    jax.vmap(lambda t: t)(tree)
    watched += [weakref.ref(out.handle), weakref.ref(tree), weakref.ref(out)]
    del tree, out
    gc.collect()
    assert [ref() for ref in watched] == [None] * 4
    run(Fresh(jnp.ones(2)))


def test_the_jit_cache_keeps_no_node_alive():
    run = jax.jit(lambda tree: tree)
    tree = State(jnp.ones(2))
    watched = weakref.ref(tree.w), weakref.ref(tree)
    jax.block_until_ready(run(tree))
    del tree
    gc.collect()
    assert [ref() for ref in watched] == [None, None]


# --- what the law costs nothing ----------------------------------------------------------------------------------------------


def test_donation_does_not_trace_again():
    traced = []

    @functools.partial(jax.jit, donate_argnums=0)
    def step(tree):
        traced.append(1)
        return jax.tree.map(lambda v: v + 1, tree)

    tree = Norm(jnp.zeros(2))
    for _ in range(4):
        tree = step(tree)
    assert len(traced) == 1 and tree.norm == 32.0


def test_a_loop_carries_a_struct_without_tracing_again():
    traced = []

    @jax.jit
    def train(tree, xs):
        def step(carry, x):
            traced.append(1)
            return carry.replace(w=carry.w + x), carry.w.sum()

        return jax.lax.scan(step, tree, xs)

    for i in range(3):
        train(State(jnp.full(2, float(i)), step=("adam", float("nan"))), jnp.arange(4.0))
    assert len(traced) == 1


def test_a_redefined_class_has_traces_of_its_own():
    def define():
        class Cell(s.Struct):
            w: Any

        return Cell

    run, traced = counting()
    First, Second = define(), define()
    run(First(1.0)), run(Second(1.0)), run(First(2.0)), run(Second(2.0))
    assert [type(t) for t in traced] == [First, Second]


def test_threads_share_one_cache():
    import threading

    run, traced = counting(lambda tree: tree.w)
    run(State(1.0, step=float("nan")))
    threads = [
        threading.Thread(target=lambda: [run(State(i, step=float("nan"))) for i in (1.0, 2.0)])
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(traced) == 1
