import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neuralqx_struct as s
from neuralqx_struct.errors import SerializationError, ValidationError
from neuralqx_struct.struct.pytree import Layout
from neuralqx_struct.struct.registration import pytree_spec
from tests.builders import refused


def node_class():
    class Node:
        def __init__(self, data, tag):
            self.data, self.tag = data, tag

    return Node


def test_register_pytree_type():
    Node = node_class()
    functions = {
        "flatten": lambda n: ([n.data], n.tag),
        "unflatten": lambda aux, children: Node(children[0], aux),
    }
    assert not s.is_registered_pytree_type(Node)
    assert s.register_pytree_type(Node, **functions) is Node
    assert s.is_registered_pytree_type(Node)
    doubled = jax.tree.map(lambda x: 2 * x, Node(jnp.ones(3), "x"))
    assert doubled.tag == "x" and float(doubled.data[0]) == 2
    spec = s.resolve_pytree_spec(s.class_ref(Node))
    assert (
        spec.cls is Node
        and spec.flatten is functions["flatten"]
        and spec.unflatten is functions["unflatten"]
    )
    s.register_pytree_type(Node, **functions)
    with refused(ValueError, "Node"):
        s.register_pytree_type(
            Node, flatten=lambda n: ([], None), unflatten=lambda aux, children: None
        )


def test_keys_show_in_paths():
    Node = node_class()
    s.register_pytree_type(
        Node,
        flatten=lambda n: ([n.data], n.tag),
        unflatten=lambda aux, children: Node(children[0], aux),
        flatten_with_keys=lambda n: ([(jax.tree_util.GetAttrKey("data"), n.data)], n.tag),
    )
    ((path, _),) = jax.tree_util.tree_leaves_with_path(Node(1.0, "x"))
    assert jax.tree_util.keystr(path) == ".data"


@pytest.mark.parametrize(
    ("deserializer", "two"),
    [(None, False), (lambda p: p, False), (lambda p, c: p, True), (dict, False)],
)
def test_arity_of_deserializers(deserializer, two):
    Node = node_class()
    s.register_pytree_type(
        Node, flatten=lambda n: ([], 0), unflatten=lambda a, c: None, deserializer=deserializer
    )
    assert pytree_spec(Node).deserializer_takes_children is two


def test_structs_need_no_registration():
    class A(s.Struct):
        x: int

    with refused(ValueError, "A"):
        s.register_pytree_type(A, flatten=lambda n: ([], 0), unflatten=lambda a, c: None)


class TestAttrs:
    def edge(self, **options):
        class Edge:
            made = 0

            def __init__(self, flux, source, target):
                type(self).made += 1
                self.flux, self.source, self.target = flux, source, target

        constructor = (
            (lambda v: Edge(v["flux"], v["source"], v["target"]))
            if options.pop("constructor", False)
            else None
        )
        s.register_attrs_type(
            Edge, node_fields=("flux",), static_fields=("source", "target"), constructor=constructor
        )
        return Edge

    def test_flatten_and_rebuild_without_init(self):
        Edge = self.edge()
        edge = Edge(jnp.array(1.5), 0, 3)
        again = jax.tree.map(lambda x: x * 2, edge)
        assert (float(again.flux), again.source, again.target, Edge.made) == (3.0, 0, 3, 1)
        ((path, _),) = jax.tree_util.tree_leaves_with_path(edge)
        assert jax.tree_util.keystr(path) == ".flux"

    def test_a_constructor_is_called_once_and_its_errors_show(self):
        Edge = self.edge(constructor=True)
        jax.tree.map(lambda x: x, Edge(1.0, 0, 3))
        assert Edge.made == 2

        class Bad:
            flux = 1

        s.register_attrs_type(Bad, node_fields=("flux",), constructor=lambda values: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            jax.tree.map(lambda x: x, Bad())

    def test_statics_are_checked(self):
        Edge = self.edge()
        with refused(ValidationError, "NQX110", "Edge.source"):
            jax.tree.leaves(Edge(1.0, [1], 2))

    def test_an_attribute_named_twice(self):
        with refused(ValueError, "X", "a, a"):
            s.register_attrs_type(type("X", (), {}), node_fields=("a",), static_fields=("a",))


def test_resolving_what_is_not_registered():
    with refused(SerializationError, "NQX501", "builtins:dict"):
        s.resolve_pytree_spec("builtins:dict")


def test_layout_pairs_and_gives_back():
    layout = Layout(("a",), ("n",), ("h",))
    handle = object()
    pair = layout.pair({"a": 1, "n": -0.0, "h": handle}, "X")
    assert dict(layout.values(pair)) == {"a": 1, "n": -0.0, "h": handle}
    with pytest.raises(ValidationError) as caught:
        Layout((), ("n", "m")).pair({"n": [], "m": {}}, "X")
    assert [d.path for d in caught.value.diagnostics] == ["X.n", "X.m"]


VALUES = st.one_of(
    st.integers(-1, 1),
    st.booleans(),
    st.sampled_from([0.0, -0.0, float("nan"), None, (1, float("nan")), (True, -0.0)]),
)


@given(
    st.fixed_dictionaries(dict.fromkeys("abmn", VALUES)),
    st.dictionaries(st.sampled_from("abmn"), VALUES),
)
def test_a_changed_pair_is_the_pair_of_the_changed_values(values, changes):
    layout = Layout(("a", "b"), ("m", "n"))
    changed = layout.changed(layout.pair(values, "X"), changes, "X")
    children, aux = layout.pair(values | changes, "X")
    assert list(map(repr, changed[0])) == list(map(repr, children))
    assert (changed[1], hash(changed[1])) == (aux, hash(aux))


def test_a_changed_pair_refuses_what_a_pair_refuses():
    layout = Layout(("a",), ("m", "n"))
    with pytest.raises(ValidationError) as caught:
        layout.changed(layout.pair({"a": 1, "m": 1, "n": 2}, "X"), {"n": [], "m": np.ones(2)}, "X")
    assert [d.path for d in caught.value.diagnostics] == ["X.n", "X.m"]


def test_attributes_stay_inside_the_objects_also_when_the_first_hundred_are_not_read():
    """CPython then shares the names between instances, which getsizeof shows on every version: a lone dict is larger."""

    class State(s.Struct):
        a: object
        b: object
        c: object
        n: int = s.field(static=True, default=0)

    made = [State(1, 2, 3) for _ in range(100)]
    read = jax.tree.map(lambda x: x + 1, made[-1])
    assert (read.n, read.a) == (0, 2)
    lone = {**vars(read)}
    assert set(lone) == {"_nqx_pair", "a", "b", "c", "n"}
    assert sys.getsizeof(vars(read)) < sys.getsizeof(lone)


def test_a_class_that_cleans_up_after_its_instances_is_not_asked_to_before_there_are_any():
    ended = []

    class Handle(s.Struct):
        path: str = s.field(static=True)

        def __del__(self):
            ended.append(self.path)

    assert ended == []
    Handle("a")
    assert ended == ["a"]


@pytest.mark.parametrize(
    ("call", "argument", "got"),
    [
        (
            lambda cls: s.register_pytree_type(cls, flatten=1, unflatten=len),
            "flatten",
            1,
        ),
        (
            lambda cls: s.register_pytree_type(cls, flatten=len, unflatten=None),
            "unflatten",
            None,
        ),
        (
            lambda cls: s.register_pytree_type(cls, flatten=len, unflatten=len, serializer="s"),
            "serializer",
            "'s'",
        ),
        (
            lambda cls: s.register_attrs_type(cls, node_fields=(1,)),
            "node_fields",
            (1,),
        ),
        (
            lambda cls: s.register_attrs_type(cls, node_fields=("a",), constructor=3),
            "constructor",
            3,
        ),
    ],
)
def test_registrations_that_cannot_work(call, argument, got):
    class Fresh:
        pass

    with refused(TypeError, "Fresh", argument, got):
        call(Fresh)
    assert not s.is_registered_pytree_type(Fresh)
