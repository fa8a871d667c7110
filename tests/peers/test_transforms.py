"""What goes wrong with other containers under JAX, each line as a test of what happens here.

The observations are of neuraLQX 1.1.2: hooks that run when JAX rebuilds a tree, derived fields in the treedef, opaque
objects that trace again, statics that share traces. Each test says in its name what holds here.
"""

import copy
import gc
import math
import types
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import neuralqx_struct as s
from tests.builders import every, refused

W = jnp.array([1.0, 2.0])


# --- converters and validators -------------------------------------------------------------------------------------------


class Seen(s.Struct):
    """A Struct whose hooks write down what they get."""

    w: Any = s.field(
        converter=lambda v: Seen.converted.append(v) or v,
        validator=lambda v: Seen.validated.append(v),
    )


Seen.converted, Seen.validated = [], []


@pytest.fixture
def seen():
    tree = Seen(W)
    Seen.converted.clear(), Seen.validated.clear()
    return tree


@jax.custom_vjp
def squared(tree):
    return jnp.sum(tree.w**2)


squared.defvjp(lambda t: (squared(t), t), lambda t, g: (jax.tree.map(lambda v: 2 * g * v, t),))

REBUILDS = {
    "tracers": lambda t: jax.jit(lambda v: v)(t),
    "gradients": lambda t: jax.grad(lambda v: jnp.sum(v.w**2))(t),
    "batches": lambda t: jax.vmap(lambda v: v)(t),
    "axes": lambda t: jax.vmap(lambda v: v, in_axes=(jax.tree.map(lambda _: 0, t),))(t),
    "shapes": lambda t: jax.eval_shape(lambda v: v, t),
    "None": lambda t: jax.tree.map(lambda _: None, t),
    "object()": lambda t: jax.tree.map(lambda _: object(), t),
    "int, bool, str, list": lambda t: [jax.tree.map(lambda _, x=x: x, t) for x in (1, True, "x", [1, 2])],
    "PartitionSpec": lambda t: jax.tree.map(lambda _: P("x"), t),
    "sharding": lambda t: jax.device_put(t, jax.tree.map(lambda _: SingleDeviceSharding(jax.devices()[0]), t)),
    "ArgInfo": lambda t: jax.jit(lambda v: v).lower(t).args_info,
    "ShapedArray": lambda t: jax.make_jaxpr(lambda v: v, return_shape=True)(t),
    "ndarray": lambda t: jax.device_get(t),
    "nested Struct": lambda t: jax.jacobian(lambda v: v)(t),
    "jacfwd": lambda t: jax.jacfwd(lambda v: v)(t),
    "hessian": lambda t: jax.hessian(lambda v: jnp.sum(v.w**2))(t),
    "custom_vjp": lambda t: jax.grad(squared)(t),
    "scan": lambda t: jax.lax.scan(lambda c, _: (c, c), t, None, length=2),
    "checkpoint": lambda t: jax.grad(jax.checkpoint(lambda v: jnp.sum(v.w**2)))(t),
    "negated, zeros": lambda t: jax.tree.map(jnp.zeros_like, jax.tree.map(jnp.negative, t)),
    "copies": lambda t: copy.deepcopy(copy.copy(t)),
}  # fmt: skip


@pytest.mark.parametrize("name", REBUILDS)
def test_hooks_see_nothing_that_jax_rebuilds_with(name, seen):
    REBUILDS[name](seen)
    assert Seen.converted == [] and Seen.validated == []


def test_saving_runs_validators_alone(seen):
    seen.to_state_dict(check=False)
    assert Seen.converted == [] and Seen.validated == []
    seen.to_state_dict()
    assert Seen.converted == [] and len(Seen.validated) == 1


@pytest.mark.parametrize(
    "converter",
    [jnp.asarray, lambda v: jnp.asarray(v), np.asarray, jnp.array],
    ids=["jnp.asarray", "lambda", "np.asarray", "jnp.array"],
)
def test_a_converter_to_arrays_goes_with_every_transformation(converter):
    class C(s.Struct):
        w: Any = s.field(converter=converter)

    tree = C([1.0, 2.0])
    np.testing.assert_array_equal(jax.jacobian(lambda v: v)(tree).w.w, np.eye(2))
    np.testing.assert_array_equal(jax.jacfwd(lambda v: v)(tree).w.w, np.eye(2))
    np.testing.assert_array_equal(jax.hessian(lambda v: jnp.sum(v.w**2))(tree).w.w, 2 * np.eye(2))
    assert (
        jax.tree.map(lambda _: None, tree).w is None and jax.tree.map(lambda _: "x", tree).w == "x"
    )
    assert jax.eval_shape(lambda v: v, tree).w == jax.ShapeDtypeStruct((2,), jnp.float32)
    axes = jax.tree.map(lambda _: 0, tree)
    assert axes.w == 0 and type(axes.w) is int
    assert jax.vmap(lambda v: v.w, in_axes=(axes,))(tree).shape == (2,)
    np.testing.assert_array_equal(jax.grad(lambda t: squared(t))(tree).w, [2.0, 4.0])


def test_a_converter_to_float_goes_with_jit():
    class C(s.Struct):
        w: float = s.field(converter=float)

    assert float(jax.jit(lambda c: c)(C("1.5")).w) == 1.5
    assert float(jax.grad(lambda c: c.w**2)(C(3)).w) == 6.0
    with pytest.raises(jax.errors.ConcretizationTypeError) as caught:
        jax.jit(lambda x: C(x))(1.0)
    assert "while converting C.w" in caught.value.__notes__


def test_a_validator_does_not_judge_results():
    class Rate(s.Struct):
        w: Any = s.field(validator=lambda v: jnp.all(v > 0))

    tree = Rate(W)
    assert float(jax.grad(lambda r: -jnp.sum(r.w))(tree).w[0]) == -1.0
    assert float(jax.tree.map(jnp.negative, tree).w[0]) == -1.0
    assert float(jax.tree.map(jnp.zeros_like, tree).w[0]) == 0.0
    assert jax.vmap(lambda r: -r.w)(jax.tree.map(lambda v: jnp.stack([v, -v]), tree)).shape == (
        2,
        2,
    )
    assert jax.eval_shape(lambda r: r, tree).w.shape == (2,)
    with refused(s.ValidationError, "NQX416", "Rate.w"):
        Rate(-W)


def test_a_validator_is_skipped_under_tracing_in_the_constructor_and_replace_too():
    class Rate(s.Struct):
        w: Any = s.field(validator=lambda v: bool(jnp.all(v > 0)))
        tracing: Any = s.field(validator=lambda v: v > 0, default=1.0)

    made = jax.jit(lambda x: Rate(x, x[0]).replace(w=-x))(W)
    assert float(made.w[0]) == -1.0
    with pytest.raises(s.ValidationError):
        made.replace(tracing=2.0)


# --- derived fields ---------------------------------------------------------------------------------------------------------


class Norm(s.Struct):
    w: Any
    norm: float = s.field(static=True, derived=lambda self: float(np.linalg.norm(self.w)))


def test_gradients_have_the_treedef_of_the_parameters_with_a_derived_norm():
    tree = Norm(jnp.array([3.0, 4.0]))
    grads = jax.grad(lambda p: 0.5 * jnp.sum(p.w**2))(tree)
    stepped = jax.tree.map(lambda p, g: p - g, tree, grads)
    assert (tree.norm, grads.norm, stepped.norm) == (5.0, 5.0, 0.0)


def test_a_derived_norm_does_not_trace_again():
    traced = []
    run = jax.jit(lambda p: traced.append(1) or p.w)
    for i in range(3):
        run(Norm(W * i))
    assert traced == [1]


def test_transformed_functions_return_replace_and_shape_structs_with_a_derived_norm():
    tree = Norm(jnp.array([3.0, 4.0]))
    assert jax.jit(lambda p: p)(tree).norm == 5.0
    assert jax.jit(lambda p: p.replace(w=2 * p.w))(tree).norm == 10.0
    assert jax.jit(lambda w: Norm(w))(tree.w).norm == 5.0
    assert jax.vmap(lambda p: p)(Norm(jnp.ones((2, 2)))).norm == 2.0
    _, out = jax.lax.scan(lambda c, _: (c, c), tree, None, length=4)
    assert out.norm == 10.0
    shapes = jax.eval_shape(lambda p: p.replace(w=p.w), tree)
    assert shapes.w.shape == (2,) and "norm" not in repr(shapes)


def test_a_derived_field_over_a_nested_struct_waits_under_jit_and_grad():
    class Outer(s.Struct):
        inner: Norm
        total: float = s.field(static=True, derived=lambda self: 2 * self.inner.norm)

    tree = Outer(Norm(jnp.array([3.0, 4.0])))
    assert jax.jit(lambda o: o)(tree).total == 10.0
    assert jax.grad(lambda o: jnp.sum(o.inner.w**2))(tree).total == 20.0
    assert jax.jit(lambda w: Outer(Norm(w)))(tree.inner.w).total == 10.0


def test_derived_fields_see_each_other_in_any_order():
    class C(s.Struct):
        w: int
        first: int = s.field(static=True, derived=lambda self: self.second + 1)
        second: int = s.field(static=True, derived=lambda self: self.third + 1)
        third: int = s.field(static=True, derived=lambda self: self.w)

    assert (C(1).first, C(1).second) == (3, 2)
    assert jax.tree.map(lambda v: v + 1, C(1)).first == 4

    class Ring(s.Struct):
        w: int
        a: int = s.field(static=True, derived=lambda self: self.b)
        b: int = s.field(static=True, derived=lambda self: self.a)

    with pytest.raises(TypeError, match=r"Ring\.[ab]"):
        Ring(1)


# --- opaque fields ----------------------------------------------------------------------------------------------------------


class Handle:
    pass


def test_fresh_reset_handles_share_a_trace_map_together_and_are_let_go():
    class C(s.Struct):
        w: Any
        handle: Any = s.field(pytree=False, reset=True, default_factory=Handle)

    traced = []
    run = jax.jit(lambda c: traced.append(1) or c)
    trees = [C(W) for _ in range(4)]
    watched = [weakref.ref(tree.handle) for tree in trees]
    for tree in trees:
        run(tree)
    assert traced == [1]
    assert float(jax.tree.map(lambda a, b: a + b, *trees[:2]).w[0]) == 2.0
    trees.clear()
    del tree
    gc.collect()
    assert [ref() for ref in watched] == [None] * 4


def test_preserved_handles_stay_what_they_are_and_their_mismatch_names_the_remedy():
    class C(s.Struct):
        w: Any
        handle: Any = s.field(pytree=False, default_factory=Handle)

    tree = C(W)
    for out in (
        jax.tree.map(lambda v: v, tree),
        jax.jit(lambda c: c)(tree),
        jax.grad(lambda c: jnp.sum(c.w))(tree),
    ):
        assert out.handle is tree.handle
    with pytest.raises(ValueError, match=r"(?s)C.*reset=True"):
        jax.tree.map(lambda a, b: a, tree, C(W))
    assert jax.tree.map(lambda a, b: a + b, tree, tree.replace(w=W)).handle is tree.handle


# --- static fields ----------------------------------------------------------------------------------------------------------


class Static(s.Struct):
    w: Any
    n: Any = s.field(static=True)


def test_a_fresh_nan_neither_traces_again_nor_keeps_trees_apart():
    traced = []
    run = jax.jit(lambda c: traced.append(1) or c)
    for _ in range(3):
        run(Static(W, float("nan")))
    assert traced == [1]
    jax.tree.map(lambda a, b: a, Static(W, float("nan")), Static(W, float("nan")))
    jax.tree.map(
        lambda a, b: a, Static(W, (1, np.float32("nan"))), Static(W, (1, np.float32("nan")))
    )


def test_statics_that_compare_equal_have_traces_of_their_own():
    kinds = [int, bool, float]
    run = jax.jit(lambda c: jnp.asarray(1 + kinds.index(type(c.n))))
    assert [int(run(Static(W, n))) for n in (True, 1, 1.0)] == [2, 1, 3]
    sign = jax.jit(lambda c: math.copysign(1, c.n))
    assert [float(sign(Static(W, n))) for n in (0.0, -0.0)] == [1.0, -1.0]
    traced = []
    count = jax.jit(lambda c: traced.append(type(c.n)) or c.w)
    count(Static(W, 3)), count(Static(W, np.int64(3))), count(Static(W, 3))
    assert traced == [int, np.int64]


def holder(value):
    made = Handle()
    made.value = value
    return made


@every(
    "value",
    [
        W,
        np.ones(1),
        (1, W),
        frozenset([holder(W)]),
        holder(W),
        holder({"deep": [(np.ones(1),)]}),
        holder(holder(W)),
        types.MappingProxyType({"a": W}),
        holder(types.MappingProxyType({"a": W})),
        [1],
        {"a": 1},
        {1},
    ],
)
def test_statics_that_hold_an_array_or_have_no_hash_are_refused_at_construction(value):
    with refused(s.ValidationError, "NQX110", "Static.n"):
        Static(W, value)


# --- inside a transformed function -----------------------------------------------------------------------------------------


def test_equality_and_repr_work_inside_jit():
    found = []

    def look(m):
        found.append((m == m, m != m, m == m.replace(w=m.w + 1), hash(m) == hash(m), repr(m)))  # noqa: PLR0124
        return m

    jax.jit(look)(Norm(W))
    jax.vmap(look)(Norm(jnp.ones((2, 3))))
    jax.grad(lambda m: jnp.sum(look(m).w))(Norm(W))
    assert [entry[:4] for entry in found] == [(True, False, False, True)] * 3
    assert all(entry[4].startswith("Norm(w=") and len(entry[4]) < 200 for entry in found)


# --- registered types ---------------------------------------------------------------------------------------------------------


def test_registering_a_type_again_with_other_functions_is_refused():
    class Node:
        def __init__(self, a, b):
            self.a, self.b = a, b

    first = {"flatten": lambda n: ([n.a], n.b), "unflatten": lambda b, c: Node(c[0], b)}
    s.register_pytree_type(Node, **first)
    with refused(ValueError, "Node"):
        s.register_pytree_type(
            Node, flatten=lambda n: ([n.a, n.b], None), unflatten=lambda _, c: Node(*c)
        )
    assert (
        len(jax.tree.leaves(Node(1, 2))) == 1
        and s.resolve_pytree_spec(s.class_ref(Node)).flatten is first["flatten"]
    )


def test_errors_of_a_constructor_of_register_attrs_type_are_not_swallowed():
    class Edge:
        def __init__(self, flux, source):
            self.flux, self.source = flux, source

    def build(values):
        if not hasattr(values["flux"], "dtype"):
            raise LookupError("no array")
        return Edge(**values)

    s.register_attrs_type(Edge, node_fields=["flux"], static_fields=["source"], constructor=build)
    assert jax.tree.map(lambda v: 2 * v, Edge(W, 1)).source == 1
    with pytest.raises(LookupError, match="no array"):
        jax.tree.map(lambda _: None, Edge(W, 1))


# --- orbax, whose trees are of its own records -------------------------------------------------------------------------------


def test_hooks_see_nothing_of_orbax(tmp_path, seen):
    import orbax.checkpoint as ocp

    handler = ocp.StandardCheckpointer()
    handler.save(tmp_path / "ckpt", seen)
    handler.wait_until_finished()
    target = jax.tree.map(ocp.utils.to_shape_dtype_struct, seen)
    again = handler.restore(tmp_path / "ckpt", target)
    handler.close()
    assert type(again) is Seen and jax.tree.structure(again) == jax.tree.structure(seen)
    np.testing.assert_array_equal(again.w, W)
    assert Seen.converted == [] and Seen.validated == []


def test_restored_shards_of_orbax_go_where_a_struct_of_shardings_says(tmp_path):
    import orbax.checkpoint as ocp

    mesh = Mesh(np.array(jax.devices()[:4]), ("x",))
    tree = Norm(jnp.arange(8.0))
    with ocp.StandardCheckpointer() as handler:
        handler.save(tmp_path / "ckpt", tree)
        handler.wait_until_finished()
        place = NamedSharding(mesh, P("x"))
        shapes = jax.tree.map(
            lambda v: jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=place), tree
        )
        again = handler.restore(tmp_path / "ckpt", shapes)
    assert again.w.sharding == place and again.norm == tree.norm
