"""The JAX guide on custom pytree nodes, block by block: what it builds by hand is a Struct or a registered class here.

Each test is one block of code of the guide, with imports and names changed. Where the guide shows a failure, the class
written as in the guide fails in the same way, and the Struct of the same fields works.
"""

import functools
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import tree_flatten, tree_unflatten

import neuralqx_struct as s

# --- a class that JAX does not know ----------------------------------------------------------------------------------


class Special:
    def __init__(self, x, y):
        self.x = x
        self.y = y


class SpecialStruct(s.Struct):
    x: object
    y: object


def test_an_unknown_class_is_a_leaf_and_a_struct_is_a_node():
    specials = [Special(0, 1), Special(2, 4)]
    assert jax.tree.leaves(specials) == specials
    assert jax.tree.leaves([SpecialStruct(0, 1), SpecialStruct(2, 4)]) == [0, 1, 2, 4]


def test_mapping_over_an_unknown_class_fails_and_over_a_struct_works():
    with pytest.raises(TypeError, match="'Special' and 'int'"):
        jax.tree.map(lambda x: x + 1, [Special(0, 1), Special(2, 4)])
    mapped = jax.tree.map(lambda x: x + 1, [SpecialStruct(0, 1), SpecialStruct(2, 4)])
    assert mapped == [SpecialStruct(1, 2), SpecialStruct(3, 5)]


# --- registered by hand ----------------------------------------------------------------------------------------------


class RegisteredSpecial(Special):
    def __repr__(self):
        return f"RegisteredSpecial(x={self.x}, y={self.y})"


def special_flatten(v):
    children = (v.x, v.y)
    aux_data = None
    return (children, aux_data)


def special_unflatten(aux_data, children):
    return RegisteredSpecial(*children)


s.register_pytree_type(RegisteredSpecial, flatten=special_flatten, unflatten=special_unflatten)


class PromotedSpecial(Special):
    __repr__ = RegisteredSpecial.__repr__


s.register_attrs_type(PromotedSpecial, node_fields=("x", "y"))


@pytest.mark.parametrize("cls", [RegisteredSpecial, PromotedSpecial])
def test_a_registered_class_is_traversed(cls):
    mapped = jax.tree.map(lambda x: x + 1, [cls(0, 1), cls(2, 4)])
    assert repr(mapped) == "[RegisteredSpecial(x=1, y=2), RegisteredSpecial(x=3, y=5)]"
    assert all(type(item) is cls for item in mapped)


class RegisteredSpecial2(Special):
    def __repr__(self):
        return f"RegisteredSpecial2(x={self.x}, y={self.y})"

    def tree_flatten(self):
        children = (self.x, self.y)
        aux_data = None
        return (children, aux_data)

    @classmethod
    def tree_unflatten(cls, aux_data, children):
        return cls(*children)


s.register_pytree_type(
    RegisteredSpecial2,
    flatten=RegisteredSpecial2.tree_flatten,
    unflatten=RegisteredSpecial2.tree_unflatten,
)


def test_methods_of_the_class_may_be_what_is_registered():
    structured = RegisteredSpecial2(1.0, 2.0)
    flat, tree = structured.tree_flatten()
    unflattened = RegisteredSpecial2.tree_unflatten(tree, flat)
    assert f"{structured=}\n  {flat=}\n  {tree=}\n  {unflattened=}" == (
        "structured=RegisteredSpecial2(x=1.0, y=2.0)\n"
        "  flat=(1.0, 2.0)\n"
        "  tree=None\n"
        "  unflattened=RegisteredSpecial2(x=1.0, y=2.0)"
    )
    assert repr(jax.tree.map(lambda x: x + 1, structured)) == "RegisteredSpecial2(x=2.0, y=3.0)"


# --- namedtuples and dataclasses ---------------------------------------------------------------------------------------


class MyOtherContainer(NamedTuple):
    name: str
    a: Any
    b: Any
    c: Any


def test_namedtuples_are_nodes_and_all_their_items_leaves():
    containers = [MyOtherContainer("Alice", 1, 2, 3), MyOtherContainer("Bob", 4, 5, 6)]
    assert jax.tree.leaves(containers) == ["Alice", 1, 2, 3, "Bob", 4, 5, 6]
    assert jax.tree.leaves(SpecialStruct(*containers)) == ["Alice", 1, 2, 3, "Bob", 4, 5, 6]


class MyStructContainer(s.Struct):
    name: str = s.field(static=True)
    a: Any
    b: Any
    c: Any


@s.dataclass
class MyDataclassContainer:
    name: str = s.field(static=True)
    a: Any
    b: Any
    c: Any


@functools.partial(s.register_attrs_type, node_fields=["a", "b", "c"], static_fields=["name"])
@dataclass
class MyAttrsContainer:
    name: str
    a: Any
    b: Any
    c: Any


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["a", "b", "c"], meta_fields=["name"]
)
@dataclass
class MyRegisteredContainer:
    name: str
    a: Any
    b: Any
    c: Any


CONTAINERS = [MyStructContainer, MyDataclassContainer, MyAttrsContainer, MyRegisteredContainer]


@pytest.mark.parametrize("cls", CONTAINERS)
def test_static_fields_are_no_leaves(cls):
    leaves = jax.tree.leaves(
        [
            cls("apple", 5.3, 1.2, jnp.zeros([4])),
            cls("banana", np.array([3, 4]), -1.0, 0.0),
        ]
    )
    assert (
        repr(leaves)
        == "[5.3, 1.2, Array([0., 0., 0., 0.], dtype=float32), array([3, 4]), -1.0, 0.0]"
    )


@pytest.mark.parametrize("cls", CONTAINERS)
def test_instances_go_into_jitted_functions(cls):
    @jax.jit
    def f(x):
        assert x.name == "mdc"
        return x.a + x.b

    mdc = cls("mdc", 1, 2, 3)
    assert int(f(mdc)) == 3


class AllNodes(s.Struct):
    name: str
    a: Any
    b: Any
    c: Any


@pytest.mark.parametrize("cls", [MyOtherContainer, AllNodes])
def test_a_name_among_the_leaves_fails_under_jit(cls):
    @jax.jit
    def f(x):
        return x.a + x.b

    moc = cls("moc", 1, 2, 3)
    with pytest.raises(TypeError, match=r"<class 'str'>.*x\.name\."):
        f(moc)


# --- initialization with unexpected values -----------------------------------------------------------------------------


def my_tree():
    class MyTree:
        def __init__(self, a):
            self.a = jnp.asarray(a)

    return MyTree


class ConvertingTree(s.Struct):
    a: jax.Array = s.field(
        converter=jnp.asarray, validator=lambda a: bool(a.ndim == 1) and bool((a >= 0).all())
    )


def test_a_class_that_converts_when_it_is_rebuilt_fails():
    MyTree = my_tree()
    s.register_pytree_type(
        MyTree, flatten=lambda tree: ((tree.a,), None), unflatten=lambda _, args: MyTree(*args)
    )
    assert jax.vmap(lambda x: x)(MyTree(jnp.arange(5.0))).a.shape == (5,)
    with pytest.raises(ValueError, match=r"None.*jnp\.array"):
        jax.jacobian(lambda x: x)(MyTree(jnp.arange(5.0)))


def test_a_struct_that_converts_works():
    tree = ConvertingTree(range(5))
    assert isinstance(tree.a, jax.Array)
    mapped = jax.vmap(lambda x: x)(tree)
    assert type(mapped) is ConvertingTree and mapped.a.shape == (5,)
    jacobian = jax.jacobian(lambda x: x)(ConvertingTree(jnp.arange(5.0)))
    assert type(jacobian) is ConvertingTree and type(jacobian.a) is ConvertingTree
    np.testing.assert_array_equal(jacobian.a.a, np.eye(5))


def test_solution_1_convert_only_what_can_be():
    class MyTree:
        def __init__(self, a):
            # The guide names the first three; since then JAX has taken to shardings as well, which is why Structs
            # convert nothing here at all.
            if not (
                type(a) is object
                or a is None
                or isinstance(a, (MyTree, jax.sharding.PartitionSpec))
            ):
                a = jnp.asarray(a)
            self.a = a

    s.register_pytree_type(
        MyTree, flatten=lambda tree: ((tree.a,), None), unflatten=lambda _, args: MyTree(*args)
    )
    tree = MyTree(jnp.arange(5.0))
    assert jax.vmap(lambda x: x)(tree).a.shape == (5,)
    assert jax.jacobian(lambda x: x)(tree).a.a.shape == (5, 5)


def test_solution_2_rebuild_without_init():
    MyTree = my_tree()

    def tree_unflatten(aux_data, children):
        del aux_data
        obj = object.__new__(MyTree)
        obj.a = children[0]
        return obj

    s.register_pytree_type(MyTree, flatten=lambda tree: ((tree.a,), None), unflatten=tree_unflatten)
    tree = MyTree(jnp.arange(5.0))
    assert jax.vmap(lambda x: x)(tree).a.shape == (5,)
    assert jax.jacobian(lambda x: x)(tree).a.a.shape == (5, 5)


def test_solution_2_is_what_register_attrs_type_does():
    MyTree = my_tree()
    s.register_attrs_type(MyTree, node_fields=["a"])
    tree = MyTree(jnp.arange(5.0))
    assert jax.vmap(lambda x: x)(tree).a.shape == (5,)
    assert jax.jacobian(lambda x: x)(tree).a.a.shape == (5, 5)


# --- internal pytree handling --------------------------------------------------------------------------------------------


def test_flatten_transform_reconstruct():
    value_structured = [1.0, (2.0, 3.0)]
    value_flat, value_tree = tree_flatten(value_structured)
    assert (
        f"{value_flat=}\n{value_tree=}"
        == "value_flat=[1.0, 2.0, 3.0]\nvalue_tree=PyTreeDef([*, (*, *)])"
    )
    transformed_flat = [v * 2.0 for v in value_flat]
    assert transformed_flat == [2.0, 4.0, 6.0]
    assert tree_unflatten(value_tree, transformed_flat) == [2.0, (4.0, 6.0)]


def test_flatten_transform_reconstruct_with_a_struct():
    value_structured = [1.0, SpecialStruct(2.0, 3.0)]
    value_flat, value_tree = tree_flatten(value_structured)
    assert value_flat == [1.0, 2.0, 3.0] and "SpecialStruct" in repr(value_tree)
    assert tree_unflatten(value_tree, [v * 2.0 for v in value_flat]) == [
        2.0,
        SpecialStruct(4.0, 6.0),
    ]


Point = namedtuple("Point", ["x", "y"])

EXAMPLE_CONTAINERS = [
    ((1.0, [2.0, 3.0]), [1.0, 2.0, 3.0], "PyTreeDef((*, [*, *]))"),
    ((1.0, {"b": 2.0, "a": 3.0}), [1.0, 3.0, 2.0], "PyTreeDef((*, {'a': *, 'b': *}))"),
    (1.0, [1.0], "PyTreeDef(*)"),
    (None, [], "PyTreeDef(None)"),
    (jnp.zeros(2), [jnp.zeros(2)], "PyTreeDef(*)"),
    (Point(1.0, 2.0), [1.0, 2.0], "PyTreeDef(CustomNode(namedtuple[Point], [*, *]))"),
]


@pytest.mark.parametrize(("structured", "leaves", "shown"), EXAMPLE_CONTAINERS)
def test_default_containers(structured, leaves, shown):
    flat, tree = tree_flatten(structured)
    assert repr(flat) == repr(leaves) and repr(tree) == shown
    assert SpecialStruct(tree_unflatten(tree, flat), None) == SpecialStruct(structured, None)
    # The same container as the field of a Struct: same leaves, and back as what it was.
    inside, structure = tree_flatten(SpecialStruct(structured, OrderedDict(k=7)))
    assert repr(inside) == repr([*leaves, 7])
    again = tree_unflatten(structure, inside)
    assert type(again.x) is type(structured) and again == SpecialStruct(
        structured, OrderedDict(k=7)
    )
