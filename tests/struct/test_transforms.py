"""Structs under JAX's transformations: what JAX does with a tuple of the same leaves, it does with a Struct.

The law of the first part: a transformed function gives for a Struct the leaves that it gives for the bare tuple of its
leaves, and the Struct comes back as what it was. The kinds of Structs are those that could go wrong: with hooks that bear
nothing but real arrays, with derived fields, with opaque ones. The second part is what only a Struct can be asked.
"""

import functools
import operator
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import neuralqx_struct as s
from tests.builders import every, refused

T = TypeVar("T")
HANDLE = object()


def only_arrays(value):
    """A converter that fails on whatever JAX may put in a leaf's place."""
    assert type(value) in (np.ndarray, type(jnp.zeros(1))), f"a hook got {value!r}"
    return jnp.asarray(value)


def never_again(value):
    """A validator that fails on results: gradients, differences, zeros."""
    assert type(value) is type(jnp.zeros(1)), f"a hook got {value!r}"
    return bool((value > 0).all())


class Plain(s.Struct):
    w: Any
    b: Any


class Labelled(s.Struct):
    name: str = s.field(static=True)
    w: Any
    rate: float = s.field(static=True, default=-0.0)
    b: Any = s.field(kw_only=True)


class Strict(s.Struct):
    w: Any = s.field(converter=only_arrays, validator=never_again)
    b: Any = s.field(
        converter=only_arrays, validator=[never_again, lambda self, v: float(self.w.sum()) > 0]
    )

    def __post_init__(self):
        never_again(self.w)


class Norm(s.Struct):
    w: Any
    b: Any
    norm: float = s.field(static=True, derived=lambda self: float(jnp.sum(self.w**2)))
    twice: float = s.field(pytree=False, derived=lambda self: 2 * self.norm)


class Cached(s.Struct):
    w: Any
    b: Any
    cache: dict = s.field(pytree=False, reset=True, default_factory=dict)


class Handled(s.Struct):
    w: Any
    b: Any
    handle: object = s.field(pytree=False, default=HANDLE)


class Nested(s.Struct):
    layers: list
    extra: dict
    head: Strict
    depth: int = s.field(static=True, default=2)
    n: int = s.field(static=True, derived=lambda self: len(self.layers))


class Alone(s.Struct):
    w: Any


class Box(s.Struct, Generic[T]):
    value: T
    rest: tuple


@s.register_class
class Promoted:
    w: Any
    b: Any = None


SCHEMA = s.load_schema("""
language: "1"
schema: test.transforms
version: 1
root: Model
structs:
  Model:
    fields:
      w: "float32[n]"
      b: "float32[n]"
      n_params: {type: int, kind: static, derived: "size(w) + size(b)"}
""")

W, B = jnp.array([1.0, 2.0, 3.0]), jnp.array([0.5, 0.25, 4.0])


def kinds():
    return {
        "plain": Plain(W, B),
        "statics": Labelled("x", W, b=B),
        "hooks": Strict(W, B),
        "derived": Norm(W, B),
        "reset": Cached(W, B, {"filled": [1]}),
        "opaque": Handled(W, B),
        "nested": Nested([Norm(W, B), Labelled("y", B, b=W)], {"k": (W, None)}, Strict(B, W)),
        "one node": Alone(W),
        "generic": Box[Any](Plain(W, B), (B, [W])),
        "promoted": Promoted(W, B),
        "promoted with None": Promoted(W),
        "schema": SCHEMA.Model(w=W, b=B),
    }


@pytest.fixture(params=kinds())
def tree(request):
    return kinds()[request.param]


class Everything(s.Struct):
    parts: tuple
    name: str = s.field(static=True, default="all")


def everything():
    """One tree with a Struct of each kind, so that each transformation is compiled once and not a dozen times."""
    return Everything(tuple(kinds().values()))


def double(x):
    return jax.tree.map(lambda v: 2 * v, x)


def loss(x):
    return sum(jnp.sum(v**3) for v in jax.tree.leaves(x))


def structure(x):
    return jax.tree.structure(x)


def stacked(x):
    return jax.tree.map(lambda v: jnp.stack([v, 3 * v, -v]), x)


@jax.custom_vjp
def with_vjp(x):
    return loss(x)


with_vjp.defvjp(lambda x: (loss(x), x), lambda x, g: (jax.tree.map(lambda v: g * v, x),))


@jax.custom_jvp
def with_jvp(x):
    return double(x)


with_jvp.defjvp(lambda x, t: (double(x[0]), jax.tree.map(lambda v: 5 * v, t[0])))


def one(x):
    return jax.tree.map(lambda v: jnp.ones_like(v), x)


TRANSFORMS = {
    "jit": lambda x: jax.jit(double)(x),
    "jit, returned inside containers": lambda x: jax.jit(lambda v: {"a": [v], "b": (double(v), None)})(x),
    "jit twice": lambda x: jax.jit(jax.jit(double))(jax.jit(double)(x)),
    "grad": lambda x: jax.grad(loss)(x),
    "value_and_grad": lambda x: jax.value_and_grad(loss)(x),
    "grad with aux": lambda x: jax.grad(lambda v: (loss(v), double(v)), has_aux=True)(x),
    "grad of grad": lambda x: jax.grad(lambda v: loss(jax.grad(loss)(v)))(x),
    "vmap": lambda x: jax.vmap(double)(stacked(x)),
    "vmap over the last axis": lambda x: jax.vmap(double, in_axes=1, out_axes=1)(stacked(x)),
    "vmap, axes as a tree": lambda x: jax.vmap(double, in_axes=(jax.tree.map(lambda _: 1, x),))(stacked(x)),
    "vmap, axes out as a tree": lambda x: jax.vmap(double, out_axes=jax.tree.map(lambda _: 1, x))(stacked(x)),
    "vmap of grad": lambda x: jax.vmap(jax.grad(loss))(stacked(x)),
    "jacobian": lambda x: jax.jacobian(double)(x),
    "jacfwd": lambda x: jax.jacfwd(double)(x),
    "jacrev": lambda x: jax.jacrev(double)(x),
    "jacrev of grad": lambda x: jax.jacrev(jax.grad(loss))(x),
    "hessian": lambda x: jax.hessian(loss)(x),
    "custom_vjp": lambda x: jax.value_and_grad(with_vjp)(x),
    "custom_vjp in jit and vmap": lambda x: jax.jit(jax.vmap(jax.grad(with_vjp)))(stacked(x)),
    "custom_jvp": lambda x: jax.jvp(with_jvp, (x,), (one(x),)),
    "custom_jvp, reverse": lambda x: jax.grad(lambda v: loss(with_jvp(v)))(x),
    "scan, as carry": lambda x: jax.lax.scan(lambda c, _: (double(c), c), x, None, length=3),
    "scan, over it": lambda x: jax.lax.scan(lambda c, v: (c + loss(v), double(v)), 0.0, stacked(x)),
    "cond": lambda x: [jax.lax.cond(jnp.asarray(flag), double, lambda v: v, x) for flag in (True, False)],
    "switch": lambda x: [jax.lax.switch(i, [double, one, lambda v: v], x) for i in range(3)],
    "while_loop": lambda x: jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, double(c[1])), (0, x)),
    "fori_loop": lambda x: jax.lax.fori_loop(0, 3, lambda _, c: double(c), x),
    "lax.map": lambda x: jax.lax.map(double, stacked(x)),
    "associative_scan": lambda x: jax.lax.associative_scan(
        lambda a, b: jax.tree.map(operator.add, a, b), stacked(x)
    ),
    "eval_shape": lambda x: jax.eval_shape(double, x),
    "eval_shape of shapes": lambda x: jax.eval_shape(double, jax.eval_shape(double, x)),
    "checkpoint": lambda x: jax.grad(jax.checkpoint(lambda v: loss(double(v))))(x),
    "linearize": lambda x: (lambda out, lin: (out, lin(one(x))))(*jax.linearize(double, x)),
    "vjp": lambda x: (lambda out, pull: (out, pull(one(x))))(*jax.vjp(double, x)),
    "jvp": lambda x: jax.jvp(double, (x,), (one(x),)),
    "linear_transpose": lambda x: jax.linear_transpose(double, x)(one(x)),
    "pure_callback": lambda x: jax.jit(lambda v: jax.pure_callback(double, jax.eval_shape(double, v), v))(x),
    "device_put": lambda x: jax.device_put(x, jax.devices()[1]),
    "device_get": lambda x: jax.device_get(x),
    "block_until_ready": lambda x: jax.block_until_ready(x),
    "closure": lambda x: jax.jit(lambda k: jax.tree.map(lambda v: k * v, x))(3.0),
    "optimization_barrier": lambda x: jax.lax.optimization_barrier(x),
}  # fmt: skip


QUADRATIC = {"jacobian", "jacfwd", "jacrev", "jacrev of grad", "hessian"}
SAME = {
    "jit",
    "grad",
    "custom_vjp",
    "eval_shape",
    "checkpoint",
    "fori_loop",
    "lax.map",
    "device_put",
    "device_get",
    "vmap",
}


@every("name", TRANSFORMS)
def test_a_transformation_gives_what_it_gives_for_the_bare_leaves(name):
    # Derivatives of trees by trees have a block for each pair of leaves.
    tree = Box(Strict(W, B), (Norm(B, W),)) if name in QUADRATIC else everything()
    out = TRANSFORMS[name](tree)
    got, expected = (
        jax.tree.leaves(out),
        jax.tree.leaves(TRANSFORMS[name](tuple(jax.tree.leaves(tree)))),
    )
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if isinstance(b, (jax.Array, np.ndarray)):
            np.testing.assert_array_equal(a, b)
    if name in SAME:
        out = out[1] if isinstance(out, tuple) else out
        assert type(out) is Everything and structure(out) == structure(tree)
        assert structure(jax.tree.map(lambda a, b: (a, b), tree, out)) == structure(
            jax.tree.map(lambda a: (a, a), tree)
        )


def test_a_jacobian_is_a_struct_of_structs():
    tree = Box(Strict(W, B), (Norm(B, W),))
    for transform in ("jacobian", "jacfwd", "jacrev"):
        out = TRANSFORMS[transform](tree)
        assert type(out) is Box and type(out.value) is Strict and type(out.value.w) is Box
        np.testing.assert_array_equal(out.rest[0].b.rest[0].b, 2 * np.eye(3))
        np.testing.assert_array_equal(out.rest[0].b.value.w, np.zeros((3, 3)))


# --- hooks never run when a tree is rebuilt -----------------------------------------------------------------------------

MESH = Mesh(np.array(jax.devices()[:4]), ("x",))
FILLERS = {
    "None": None,
    "object": object(),
    "str": "text",
    "int": 0,
    "bool": False,
    "P": P("x"),
    "sharding": NamedSharding(MESH, P("x")),
    "device sharding": SingleDeviceSharding(jax.devices()[0]),
    "shape": jax.ShapeDtypeStruct((2,), jnp.float32),
    "numpy": np.ones((7, 7), "int8"),
    "struct": Plain(1, 2),
    "list": [1, 2],
    "type": int,
    "aval": jax.typeof(jnp.ones(2)),
}


@pytest.mark.parametrize("name", FILLERS)
def test_anything_may_stand_for_a_leaf(name, tree):
    filler = FILLERS[name]
    out = jax.tree.map(lambda _: filler, tree)
    assert type(out) is type(tree) and repr(out)
    put = structure(tree).flatten_up_to(out)
    assert len(put) == tree.tree_size() and all(v is filler for v in put)
    # and back: nothing of the value was needed to rebuild it
    leaves = jax.tree.leaves(tree)
    assert structure(jax.tree.unflatten(structure(tree), leaves)) == structure(tree)


def test_strict_hooks_do_run_at_construction():
    with pytest.raises(AssertionError, match="a hook got"):
        Strict(None, B)
    with refused(s.ValidationError, "NQX416", "Strict.b"):
        Strict(W, -B)
    with pytest.raises(AssertionError, match="a hook got"):
        jax.jit(lambda w: Strict(w, B))(W)


# --- trees of something else than arrays --------------------------------------------------------------------------------


def test_paths_are_readable():
    nested = kinds()["nested"]
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(nested)]
    assert paths == [".layers[0].w", ".layers[0].b", ".layers[1].w", ".layers[1].b", ".extra['k'][0]", ".head.w", ".head.b"]  # fmt: skip
    simple = jax.tree_util.tree_map_with_path(
        lambda p, _: jax.tree_util.keystr(p, simple=True, separator="/"), nested
    )
    assert (simple.layers[1].b, simple.extra["k"][0], simple.head.w) == (
        "layers/1/b",
        "extra/k/0",
        "head/w",
    )
    assert jax.tree_util.tree_map_with_path(lambda p, v, q: (p[-1].name, v, q), Plain(1, 2), Plain(3, 4)).b == ("b", 2, 4)  # fmt: skip
    flat, treedef = jax.tree_util.tree_flatten_with_path(nested)
    assert treedef == structure(nested) and len(flat) == nested.tree_size()
    path, _ = flat[0]
    assert path[0] == jax.tree_util.GetAttrKey("layers") and path[-1].name == "w"
    assert path[-1].spec is Norm.fields()["w"]


def test_several_trees_at_once(tree):
    other = double(tree)
    total = jax.tree.map(lambda a, b, c: a + b + c, tree, other, tree)
    for a, b in zip(jax.tree.leaves(total), jax.tree.leaves(tree), strict=True):
        np.testing.assert_array_equal(a, 4 * b)
    held = structure(tree).flatten_up_to(other)
    assert all(a is b for a, b in zip(held, jax.tree.leaves(other), strict=True))


@pytest.mark.parametrize("kind", ["derived", "reset"])
def test_several_trees_with_other_derived_and_reset_values(kind):
    a = kinds()[kind]
    b = a.replace(w=a.w * 7)
    if kind == "reset":
        b = b.replace(cache={"another": object()})
    else:
        assert a.norm != b.norm and a.twice != b.twice
    assert structure(a) == structure(b) and hash(structure(a)) == hash(structure(b))
    out = jax.tree.map(lambda p, q: q - p, a, b)
    np.testing.assert_array_equal(out.w, 6 * W)
    if kind == "derived":
        assert out.norm == float(jnp.sum((6 * W) ** 2)) and out.twice == 2 * out.norm
    else:
        assert out.cache == {}


def test_a_prefix_of_a_struct():
    sums = jax.tree.map(
        lambda n, part: n * len(jax.tree.leaves(part)), Plain(3, 5), Plain([1, 1], {"a": (1, 1, 1)})
    )
    assert sums == Plain(6, 15)
    prefix = structure(Plain(0, 0))
    subtrees = prefix.flatten_up_to(Plain({"a": 1}, Plain(2, 3)))
    assert subtrees == [{"a": 1}, Plain(2, 3)]
    broadcast = jax.tree.broadcast(Plain(1, 2), Plain({"a": W, "b": B}, (W,)))
    assert broadcast == Plain({"a": 1, "b": 1}, (2,))


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (Labelled("x", W, b=B), "Plain"),
        (Plain([W], B), "list|leaf"),
        ({"w": W, "b": B}, "Plain"),
    ],
)
def test_trees_that_do_not_match_are_refused(other, problem):
    with pytest.raises(ValueError, match=problem):
        structure(Plain([W], [B, B])).flatten_up_to(other)


def test_statics_that_differ_are_named_in_the_refusal():
    with pytest.raises(ValueError, match=r"(?s)'left'.*'right'"):  # JAX 0.10.0 names the class last
        jax.tree.map(operator.add, Labelled("left", W, b=B), Labelled("right", W, b=B))


def test_transpose():
    outer, inner = structure(Plain(0, 0)), structure({"a": 0, "b": 0})
    turned = jax.tree.transpose(outer, inner, Plain({"a": 1, "b": 2}, {"a": 3, "b": 4}))
    assert turned == {"a": Plain(1, 3), "b": Plain(2, 4)}
    assert jax.tree.transpose(inner, outer, turned) == Plain({"a": 1, "b": 2}, {"a": 3, "b": 4})
    assert jax.tree.transpose(outer, None, Plain([1, 2], [3, 4])) == [Plain(1, 3), Plain(2, 4)]


def test_reductions_and_the_rest_of_jax_tree():
    tree = Plain(1, Plain(2, 3))
    assert jax.tree.reduce(operator.add, tree) == 6 and jax.tree.all(tree)
    assert jax.tree.leaves(tree, is_leaf=lambda v: isinstance(v, Plain) and v.w == 2) == [
        1,
        Plain(2, 3),
    ]
    assert jax.tree_util.treedef_children(structure(tree))[1] == structure(Plain(0, 0))
    assert structure(tree).num_leaves == 3 and structure(tree).num_nodes == 5
    assert structure(tree).compose(structure((0, 0))).num_leaves == 6
    flat, unravel = ravel_pytree(kinds()["nested"])
    assert flat.shape == (21,) and structure(unravel(flat)) == structure(kinds()["nested"])
    again = jax.tree_util.tree_unflatten(structure(tree), iter([4, 5, 6]))
    assert again == Plain(4, Plain(5, 6))


def test_reading_changes_nothing_in_the_treedef(tree):
    before = structure(tree)
    copy = jax.tree.map(lambda v: v, tree)
    repr(copy), hash(copy), copy.to_dict(), copy.tree_size()
    assert structure(copy) == before == structure(tree) and hash(structure(copy)) == hash(before)


# --- vmap with axes by field ----------------------------------------------------------------------------------------------


def test_axes_as_a_struct():
    batch = Plain(jnp.ones((3, 2)), jnp.arange(2.0))
    assert jax.vmap(lambda p: p.w + p.b, in_axes=(Plain(0, None),))(batch).shape == (3, 2)
    assert jax.vmap(lambda p: p.w.sum(), in_axes=(Plain(1, None),))(batch).shape == (2,)
    out = jax.vmap(lambda p: p, in_axes=(Plain(0, None),), out_axes=Plain(1, None))(batch)
    assert out.w.shape == (2, 3) and out.b.shape == (2,)
    axes = Labelled("x", 0, b=None)
    assert jax.vmap(lambda p: p.w, in_axes=(axes,))(Labelled("x", jnp.ones((3, 2)), b=B)).shape == (
        3,
        2,
    )
    strict = jax.tree.map(lambda _: 0, Strict(W, B))
    assert jax.vmap(lambda p: p.w * p.b, in_axes=(strict,))(Strict(W, B)).shape == (3,)
    derived = jax.tree.map(lambda _: 0, Norm(W, B))
    assert jax.vmap(lambda p: p.w, in_axes=(derived,))(Norm(W, B)).shape == (3,)


def test_axes_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match="in_axes"):
        jax.vmap(lambda p: p.w, in_axes=(Labelled("other", 0, b=None),))(Labelled("x", W, b=B))


# --- what jit can be told by Structs ---------------------------------------------------------------------------------------


class Config(s.Struct):
    n: int = s.field(static=True)
    kind: str = s.field(static=True, default="a")
    w: Any = None


@pytest.mark.parametrize("how", [{"static_argnums": 0}, {"static_argnames": "cfg"}])
def test_a_struct_as_static_argument(how):
    traced = []

    @functools.partial(jax.jit, **how)
    def run(cfg, x):
        traced.append(cfg)
        return x * cfg.n

    configs = [Config(3), Config(3), Config(4), Config(1), Config(True), Config(1)]
    assert [int(run(cfg=c, x=2) if "static_argnames" in how else run(c, 2)) for c in configs] == [
        6,
        6,
        8,
        2,
        2,
        2,
    ]
    assert [(type(c.n), c.n) for c in traced] == [(int, 3), (int, 4), (int, 1), (bool, True)]


def test_a_struct_that_holds_arrays_is_a_static_argument_by_value():
    traced = []
    run = jax.jit(lambda cfg, x: traced.append(cfg) or x * cfg.w[0], static_argnums=0)
    values = [Config(1, w=np.ones(2)), Config(1, w=np.ones(2)), Config(1, w=np.full(2, 5.0))]
    assert [float(run(c, 2.0)) for c in values] == [2.0, 2.0, 10.0] and len(traced) == 2


def test_donated_arguments():
    step = jax.jit(double, donate_argnums=0)
    tree = jax.tree.map(jnp.array, Norm(jnp.arange(4.0), jnp.ones(4)))
    tree = jax.device_put(tree, jax.devices()[0])
    assert tree.norm == 14.0
    out = step(tree)
    assert tree.w.is_deleted() and tree.b.is_deleted() and out.norm == 56.0
    assert repr(tree) and tree.norm == 14.0  # computed before, and nothing reads the buffers again
    named = jax.jit(lambda old: double(old), donate_argnames="old")
    named(old=out)
    assert out.w.is_deleted()


def test_shardings_as_structs():
    shardings = Plain(NamedSharding(MESH, P("x")), NamedSharding(MESH, P()))
    tree = Plain(jnp.arange(8.0), jnp.ones(3))
    placed = jax.device_put(tree, shardings)
    assert placed.w.sharding == shardings.w and placed.b.sharding.is_fully_replicated
    run = jax.jit(double, in_shardings=(shardings,), out_shardings=shardings)
    out = run(tree)
    assert out.w.sharding == shardings.w and len(out.w.addressable_shards) == 4
    assert jax.tree.map(lambda v: v.sharding, out).w == shardings.w
    specs = jax.tree.map(lambda v: P("x") if v.ndim and v.shape[0] % 4 == 0 else P(), tree)
    assert (specs.w, specs.b) == (P("x"), P())
    constrained = jax.jit(lambda v: jax.lax.with_sharding_constraint(v, shardings))(tree)
    assert constrained.w.sharding.is_equivalent_to(shardings.w, 1)
    compiled = run.lower(tree).compile()
    assert float(compiled(placed).w[1]) == 2.0
    assert type(run.lower(jax.eval_shape(lambda: tree)).out_info) is Plain


def test_shardings_of_structs_with_hooks_and_derived_fields():
    tree = everything()
    shardings = jax.tree.map(lambda _: NamedSharding(MESH, P()), tree)
    placed = jax.device_put(tree, shardings)
    out = jax.jit(double, in_shardings=(shardings,), out_shardings=shardings)(placed)
    assert (
        structure(out) == structure(tree) and jax.tree.leaves(out)[0].sharding.is_fully_replicated
    )


def test_shard_map():
    specs = Plain(P("x"), P())
    tree = Plain(jnp.arange(8.0), jnp.full(1, 10.0))

    def body(part):
        assert part.w.shape == (2,) and part.b.shape == (1,)
        return part.replace(w=part.w + part.b), jax.lax.psum(part.w.sum(), "x")

    run = jax.jit(jax.shard_map(body, mesh=MESH, in_specs=(specs,), out_specs=(specs, P())))
    out, total = run(tree)
    np.testing.assert_array_equal(out.w, np.arange(8.0) + 10)
    assert float(total) == 28.0 and len(out.w.addressable_shards) == 4


def test_shard_map_of_structs_with_hooks_derived_fields_and_a_gradient():
    tree = tuple(make(jnp.arange(1.0, 9.0), jnp.ones(8)) for make in (Norm, Strict, Cached))
    specs = jax.tree.map(lambda _: P("x"), tree)
    sharded = jax.shard_map(double, mesh=MESH, in_specs=(specs,), out_specs=specs)
    grads = jax.jit(jax.grad(lambda v: loss(sharded(v))))(tree)
    assert [type(g) for g in grads] == [Norm, Strict, Cached]
    np.testing.assert_allclose(grads[0].w, 24 * np.arange(1.0, 9.0) ** 2)


def test_lowering_and_jaxprs_name_the_fields():
    lowered = jax.jit(double).lower(kinds()["nested"])
    assert "layers[1].w" in lowered.as_text(debug_info=True)
    assert lowered.args_info[0][0].head.w.shape == (3,)
    jaxpr, out = jax.make_jaxpr(double, return_shape=True)(Plain(W, B))
    assert len(jaxpr.jaxpr.invars) == 2 and out == jax.eval_shape(double, Plain(W, B))
    with pytest.raises(TypeError, match=r"at path x\.w"):
        jax.jit(double)(Plain("text", B))


def test_custom_derivatives_with_a_struct_that_is_not_differentiated():
    @functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
    def scaled(cfg, x):
        return cfg.n * x

    scaled.defvjp(lambda cfg, x: (cfg.n * x, None), lambda cfg, _, g: (10 * cfg.n * g,))
    assert float(jax.grad(scaled, argnums=1)(Config(3), 1.0)) == 30.0


def test_integer_leaves_have_float0_tangents():
    tree = Plain(W, jnp.arange(3))
    grads = jax.grad(lambda p: jnp.sum(p.w * p.b), allow_int=True)(tree)
    assert grads.b.dtype == jax.dtypes.float0 and grads.w.shape == (3,)
    partial_ = jax.grad(lambda w, p: jnp.sum(p.replace(w=w).w * p.b))(tree.w, tree)
    np.testing.assert_array_equal(partial_, [0.0, 1.0, 2.0])


def test_random_keys_are_leaves():
    tree = Plain(jax.random.key(0), W)
    split = jax.vmap(lambda k: Plain(jax.random.fold_in(k, 1), 0))(jax.random.split(tree.w, 3))
    assert split.w.shape == (3,) and jnp.issubdtype(split.w.dtype, jax.dtypes.prng_key)
    assert jax.jit(lambda p: p)(tree) == tree and repr(tree)


# --- making Structs inside transformed functions -----------------------------------------------------------------------------


def test_instances_are_made_and_replaced_inside():
    class Step(s.Struct):
        w: Any = s.field(converter=jnp.asarray)
        n: int = s.field(static=True, default=0)
        size: int = s.field(static=True, derived=lambda self: self.w.size)
        total: Any = s.field(pytree=False, derived=lambda self: jnp.sum(self.w))

    @jax.jit
    def run(x):
        made = Step(x)
        later = made.replace(w=made.w[:2], n=made.n + 1)
        assert later.size == 2 and repr(later) and later == later  # noqa: PLR0124
        return later, later.total

    later, total = run(W)
    assert (later.n, later.size, float(later.total), float(total)) == (1, 2, 3.0, 3.0)
    shape = jax.eval_shape(lambda x: run(x)[0], W)
    assert shape.w.shape == (2,) and shape.n == 1
    grads = jax.grad(lambda x: run(x)[0].total)(W)
    np.testing.assert_array_equal(grads, [1.0, 1.0, 0.0])


def test_a_derived_field_over_a_nested_struct_waits_too():
    class Outer(s.Struct):
        inner: Plain
        norm: float = s.field(static=True, derived=lambda self: float(jnp.sum(self.inner.w)))

    outer = Outer(Plain(W, B))
    assert outer.norm == 6.0
    assert jax.jit(double)(outer).norm == 12.0
    assert jax.jit(lambda o: Outer(double(o.inner)))(outer).norm == 12.0
    assert jax.grad(loss)(outer).norm == float(jnp.sum(3 * W**2))
    assert jax.vmap(lambda o: o.inner.w, in_axes=(jax.tree.map(lambda _: 0, outer),))(
        outer
    ).shape == (3,)


def test_what_needs_numbers_says_so_under_tracing():
    with pytest.raises(jax.errors.ConcretizationTypeError) as caught:
        jax.jit(lambda p: p.norm)(Norm(W, B))
    assert "Norm.norm" in str(caught.value)


def test_statics_cannot_be_traced_and_say_which_field():
    with refused(s.ValidationError, "NQX110", "Config.n"):
        jax.jit(lambda n: Config(n))(3)
    with refused(s.ValidationError, "NQX110", "Config.n"):
        jax.vmap(lambda x: Config(x[0]).n)(jnp.ones((2, 2)))


def test_a_loop_that_changes_a_static_value_is_refused_by_name():
    with pytest.raises(TypeError, match=r"(?s)carry.*Config"):
        jax.lax.scan(lambda c, _: (c.replace(n=c.n + 1), None), Config(0, w=W), None, length=2)
