"""neuralqx_struct.container: every sentence of the document that it follows, then laws and edges."""

import collections
import dataclasses
import pickle
import threading
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuralqx_struct import checkpoint, container
from neuralqx_struct.container import derive
from neuralqx_struct.errors import SerializationError, ValidationError
from neuralqx_struct.fieldspec import field
from neuralqx_struct.struct import Struct
from neuralqx_struct.struct.registration import register_attrs_type, register_pytree_type
from tests.builders import every, refused


@derive(containers=["mean", "spread"], keep=["name"])
class Estimate:
    def __init__(self, mean=0.0, spread=1.0, name="energy"):
        self.mean, self.spread, self.name = mean, spread, name
        self.history = []


@derive(containers=["x"])
@dataclasses.dataclass
class Point:
    x: Any
    label: str = "origin"


class State(Struct):
    w: Any
    moments: Any = None
    step: int = field(static=True, default=0)
    logger: Any = field(pytree=False, default=None)
    cache: Any = field(pytree=False, default_factory=dict, reset=True)


class Pair(NamedTuple):
    first: Any
    second: Any


class Edge:
    def __init__(self, flux, source):
        self.flux, self.source = flux, source


register_attrs_type(Edge, node_fields=["flux"], static_fields=["source"])


def count(value, acc):
    return value, acc + 1


def collect(value, acc):
    return [*acc, value]


# --- what data structures ------------------------------------------------------------------------------------------


@every(
    ("obj", "inside"),
    [
        ((1, [2, 3]), [1, [2, 3]]),
        ([1, 2], [1, 2]),
        ({"b": 2, "a": 1}, [1, 2]),
        ({2: "x", "a": 1, (1, 2): 3}, ["x", 1, 3]),
        (collections.OrderedDict(b=2, a=1), [2, 1]),
        (Pair(1, 2), [1, 2]),
        (Estimate(1.5), [1.5, 1.0]),
        (State(1, moments=2, step=3), [1, 2]),
        (State(1), [1]),
        (Edge(4, "here"), [4]),
        ((None, 1), [1]),
        ((), []),
        (None, []),
        (7, [7]),
        ("text", ["text"]),
    ],
)
def test_reduce_calls_fun_with_each_tensor_or_container_one_level_deep(obj, inside):
    assert container.reduce(obj, [], collect) == inside


def test_traverse_gives_the_updated_container_and_the_accumulator():
    obj = State((1, 2), moments=3, step=5)
    new, acc = container.traverse(obj, "", lambda value, acc: (str(value), acc + str(value)))
    assert (new.w, new.moments, new.step) == ("(1, 2)", "3", 5)
    assert acc == "(1, 2)3"


def test_keys_of_a_registered_class_may_be_of_any_kind():
    class Sided:
        def __init__(self, left, right):
            self.left, self.right = left, right

    jax.tree_util.register_pytree_with_keys(
        Sided,
        lambda sided: ([(frozenset("l"), sided.left), (("r",), sided.right)], None),
        lambda _, children: Sided(*children),
    )
    new, acc = container.traverse(Sided(1, 2), 0, lambda value, acc: (-value, acc + value))
    assert (new.left, new.right, acc) == (-1, -2, 3)


def test_traverse_of_a_dict_keeps_the_order_of_its_keys_and_walks_sorted_ones():
    new, acc = container.traverse({"b": 1, "a": 2}, [], lambda value, acc: (-value, [*acc, value]))
    assert list(new.items()) == [("b", -1), ("a", -2)]
    assert acc == [2, 1]


def test_traverse_is_not_recursive_and_traverse_deep_is():
    obj = {"a": (1, [2, 3]), "b": State(4)}
    assert container.traverse(obj, 0, count)[1] == 2
    new, acc = container.traverse_deep(obj, 0, lambda value, acc: (10 * value, acc + value))
    assert acc == 10
    assert new["a"] == (10, [20, 30])
    assert new["b"].w == 40
    assert container.reduce_deep(obj, 0, lambda value, acc: acc + value) == 10


def test_none_is_left_alone():
    assert container.traverse((None, 1), 0, count) == ((None, 1), 1)
    assert container.traverse_deep({"a": [None, (None, 1)]}, 0, count) == (
        {"a": [None, (None, 1)]},
        1,
    )


trees = st.recursive(
    st.integers() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2) | st.integers(0, 3), inner, max_size=3)
        | st.builds(Pair, inner, inner)
        | st.builds(State, inner)
        | st.builds(Estimate, inner, inner)
    ),
    max_leaves=12,
)


def spell(tree):
    """A tree as something that compares: Estimate has no __eq__."""
    inside = container.reduce(tree, [], collect)
    return (
        tree
        if len(inside) == 1 and inside[0] is tree
        else (type(tree), [spell(value) for value in inside])
    )


def rebuilt(tree):
    inside = container.reduce(tree, [], collect)
    if tree is None or (len(inside) == 1 and inside[0] is tree):
        return tree
    cls, items, metadata = container.serialize(tree)
    return container.deserialize(cls, [(key, rebuilt(value)) for key, value in items], metadata)


@given(trees)
def test_serialize_and_deserialize_are_inverse_all_the_way_down(tree):
    assert spell(rebuilt(tree)) == spell(tree)


@given(trees)
def test_traverse_deep_with_the_identity_changes_nothing_and_agrees_with_reduce_deep(tree):
    new, seen = container.traverse_deep(tree, [], lambda value, acc: (value, [*acc, value]))
    assert spell(new) == spell(tree)
    assert seen == container.reduce_deep(tree, [], collect)


@every(
    ("walk", "name"), [(container.traverse, "traverse"), (container.traverse_deep, "traverse_deep")]
)
@every(
    ("returned", "got"),
    [
        (None, "NoneType"),
        (3, "int"),
        ("ab", "str"),
        ([1, 2], "list"),
        (np.ones(2), "ndarray"),
        ((1, 2, 3), "tuple"),
    ],
)
def test_functions_that_return_no_pair_are_named(walk, name, returned, got):
    def forgetful(value, acc):
        return returned

    for obj in ((1, 2), 1):
        with refused(TypeError, f"{name}()", "forgetful", got):
            walk(obj, 0, forgetful)


@pytest.mark.parametrize("name", ["traverse", "traverse_deep", "reduce", "reduce_deep"])
def test_what_is_no_function_is_refused_before_anything_is_walked(name):
    with pytest.raises(TypeError) as caught:
        getattr(container, name)((1, 2), count, 0)
    assert str(caught.value) == (
        f"{name}(): expected a function as the third argument, got a int\n  the order is {name}(obj, acc, fun)"
    )


# --- derive --------------------------------------------------------------------------------------------------------


def test_containers_are_converted_inside_transformations():
    seen = []

    @jax.jit
    def f(estimate):
        seen.append((estimate.mean, estimate.name))
        return estimate

    out = f(Estimate(jnp.ones(2)))
    assert isinstance(seen[0][0], jax.core.Tracer)
    assert seen[0][1] == "energy"
    assert isinstance(out.mean, jax.Array)


def test_all_other_fields_are_reset_to_their_default():
    estimate = Estimate(1.0)
    estimate.history.append(3)
    point = Point(1.0, label="here")
    assert jax.tree.map(lambda x: x, estimate).history == []
    assert container.traverse(point, None, lambda v, a: (v, a))[0].label == "origin"
    assert estimate.history == [3], "the object itself is not touched"


def test_kept_fields_keep_their_value_and_are_part_of_the_cache_key():
    traces = []

    @jax.jit
    def f(estimate):
        traces.append(estimate.name)
        return estimate.mean

    for name in ("a", "a", "b", "a"):
        f(Estimate(1.0, name=name))
    assert traces == ["a", "b"]


def test_fields_that_are_not_kept_are_not_part_of_the_cache_key():
    traces = []

    @jax.jit
    def f(point):
        traces.append(point.label)
        return point.x

    f(Point(1.0, "a"))
    f(Point(1.0, "b"))
    assert traces == ["origin"]


def test_the_defaults_come_from_one_instance_made_when_first_needed():
    made = []

    @derive(containers=["x"])
    class Counted:
        def __init__(self, x=0.0):
            made.append(x)
            self.x, self.table, self.handle = x, {"n": [1], "m": ([], np.zeros(1))}, object()

    one = Counted(1.0)
    leaves, structure = jax.tree.flatten(one)
    assert made == [1.0], "flattening needs no default"
    first, second = structure.unflatten(leaves), structure.unflatten(leaves)
    assert made == [1.0, 0.0]
    assert first.handle is second.handle
    first.table["n"].append(2)
    first.table["m"][0].append(3)
    first.table["m"][1][0] = 4
    first.table["k"] = 5
    third = structure.unflatten(leaves)
    for other in (second, third):
        assert other.table["n"] == [1] and other.table["m"] == ([], [0.0]), (
            "what can be changed in place is not shared"
        )


def test_threads_make_one_default_instance():
    made = []

    @derive(containers=["x"])
    class Slow:
        def __init__(self, x=0.0):
            made.append(x)
            self.x = x

    structure = jax.tree.structure(Slow(1.0))
    start = threading.Barrier(4)
    threads = [
        threading.Thread(target=lambda: (start.wait(), structure.unflatten([1.0])))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1.0, 0.0]


def test_a_default_made_under_tracing_holds_no_tracer():
    @derive(containers=["x"])
    class Scaled:
        def __init__(self, x=0.0):
            self.x, self.scale = x, jnp.ones(2) * 2

    jax.jit(lambda s: s.x * s.scale)(Scaled(1.0))
    assert not isinstance(jax.tree.map(lambda x: x, Scaled(1.0)).scale, jax.core.Tracer)


def test_a_class_whose_constructor_needs_arguments_works_where_nothing_is_reset():
    @derive(containers=["a"], keep=["b"])
    class Pure:
        def __init__(self, a, b):
            self.a, self.b = a, b

    out = jax.tree.map(lambda x: x + 1, Pure(1, "b"))
    assert (out.a, out.b) == (2, "b")


def test_a_class_whose_constructor_needs_arguments_cannot_reset():
    @derive(containers=["a"])
    class Needy:
        def __init__(self, a):
            self.a, self.other = a, 1

    with refused(ValidationError, "NQX414", "Needy()"):
        jax.tree.leaves(Needy(1))


def test_a_dataclass_with_required_containers_resets_to_what_it_declares():
    @derive(containers=["x"])
    @dataclasses.dataclass(frozen=True, slots=True)
    class Frozen:
        x: Any
        tags: list = dataclasses.field(default_factory=lambda: ["a"])
        note: str = "none"

    out = jax.tree.map(lambda x: x, Frozen(1.0, ["b"], "changed"))
    assert (out.x, out.tags, out.note) == (1.0, ["a"], "none")


def test_slots_and_properties_are_attributes_too():
    @derive(containers=["x"])
    class Slotted:
        __slots__ = ("_x", "other")

        def __init__(self, x=1.0):
            self._x, self.other = x, 0

        @property
        def x(self):
            return self._x

        @x.setter
        def x(self, value):
            self._x = value

    slotted = Slotted(2.0)
    slotted.other = 5
    out = jax.tree.map(lambda x: x + 1, slotted)
    assert (out.x, out.other) == (3.0, 0)


def test_paths_of_derived_classes_name_their_fields():
    (path, _), *_ = jax.tree_util.tree_flatten_with_path({"e": Estimate(1.0)})[0]
    assert jax.tree_util.keystr(path) == "['e'].mean"


def test_containers_are_required_and_must_be_a_list():
    with refused(TypeError, "derive()", "containers"):
        derive()
    with refused(TypeError, "Point", "derive()"):
        derive(Point)
    with refused(TypeError, "derive()", "mean"):
        derive(containers="mean")
    with refused(TypeError, "derive()", "3"):
        derive(containers=["a"], keep=3)
    with refused(TypeError, "derive()", "[1]"):
        derive(containers=[1])


@pytest.mark.parametrize(
    ("decorate", "error", "named"),
    [
        (lambda: derive(containers=["a"], keep=["a"]), ValueError, "a"),
        (lambda: derive(containers=["x"])(Point), ValueError, "Point"),
        (lambda: derive(containers=["w"])(State), TypeError, "State"),
        (lambda: derive(containers=["w"])(3), TypeError, 3),
        (
            lambda: derive(containers=["kernal"])(
                dataclasses.make_dataclass("K", [("kernel", Any, 0)])
            ),
            ValueError,
            "kernal",
        ),
        (
            lambda: derive(containers=["name"], serialize=1, deserialize=2),
            TypeError,
            "serialize",
        ),
    ],
)
def test_misuse_of_derive_is_refused(decorate, error, named):
    with refused(error, named):
        decorate()


class Named:
    def __init__(self, name="a"):
        self.name = name


def test_a_name_that_the_class_does_not_have_is_an_error_of_its_first_instance():
    made = derive(containers=["zz"])(type("Misspelt", (Named,), {}))
    with refused(ValidationError, "NQX414", "derive", "zz"):
        jax.tree.leaves(made())


def test_a_container_that_is_not_there_is_named():
    broken = object.__new__(Estimate)
    broken.mean = 1.0
    with refused(ValidationError, "NQX414", "Estimate", "spread", "name"):
        jax.tree.leaves(broken)


def test_kept_values_must_be_static():
    with refused(ValidationError, "NQX110", "Estimate.name", "list"):
        jax.tree.leaves(Estimate(1.0, name=["a"]))


# --- serialization -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (Estimate(1.5, 0.5, "E"), (Estimate, [("mean", 1.5), ("spread", 0.5)], {"name": "E"})),
        (State(1, step=4), (State, [("w", 1), ("moments", None)], {"step": 4})),
        ((1, [2]), (tuple, [(0, 1), (1, [2])], None)),
        ([None], (list, [(0, None)], None)),
        ({"b": 1, "a": 2}, (dict, [("a", 2), ("b", 1)], None)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_serialize_gives_type_containers_and_metadata(obj, expected):
    assert container.serialize(obj) == expected
    assert spell(container.deserialize(*container.serialize(obj))) == spell(obj)


@pytest.mark.parametrize(
    "obj", [Pair(1, 2), collections.OrderedDict(b=1, a=2), collections.defaultdict(list, a=1)]
)
def test_types_that_jax_knows_come_back_as_what_they_were(obj):
    back = container.deserialize(*container.serialize(obj))
    assert type(back) is type(obj)
    assert back == obj


def test_classes_registered_by_attributes_come_back():
    cls, items, metadata = container.serialize(Edge(1, "here"))
    assert items == [("flux", 1)]
    back = container.deserialize(cls, items, metadata)
    assert (back.flux, back.source) == (1, "here")


def test_classes_registered_by_functions_come_back():
    class Node:
        def __init__(self, data, tag):
            self.data, self.tag = data, tag

    register_pytree_type(
        Node, flatten=lambda n: ([n.data], n.tag), unflatten=lambda tag, c: Node(c[0], tag)
    )
    cls, items, metadata = container.serialize(Node(1, "t"))
    assert (items, metadata) == ([(0, 1)], "t")
    assert container.deserialize(cls, items, metadata).data == 1


@pytest.mark.parametrize("leaf", [1.0, "text", None, np.ones(2)])
def test_leaves_cannot_be_serialized(leaf):
    with refused(TypeError, "serialize()"):
        container.serialize(leaf)


@pytest.mark.parametrize(
    ("cls", "items", "metadata", "got"),
    [
        (State, [("w", 1)], None, "NoneType"),
        (Estimate, [], [1], "list"),
        (dict, [1], None, 1),
        (State, [("w", 1, 2)], {}, ("w", 1, 2)),
    ],
)
def test_what_serialize_cannot_have_given_is_refused(cls, items, metadata, got):
    with refused(TypeError, cls.__name__, got):
        container.deserialize(cls, items, metadata)


def test_subclasses_of_derived_classes_are_derived_themselves():
    class Narrow(Estimate):
        pass

    with refused(TypeError, "Narrow", "Estimate"):
        container.serialize(Narrow(1.0))
    derive(containers=["mean"], keep=["name"])(Narrow)
    assert container.serialize(Narrow(1.0))[0] is Narrow


@pytest.mark.parametrize(
    ("serialize", "deserialize", "error", "named"),
    [
        (
            lambda obj: [("x", obj.x)],
            None,
            SerializationError,
            ("NQX430", "Hooked", "list"),
        ),
        (lambda obj: ([("x", obj.x)],), None, SerializationError, ("NQX430", "Hooked", "tuple")),
        (lambda obj: ([obj.x], None), None, TypeError, ("Hooked", 1.0)),
        (
            None,
            lambda items, metadata: dict(items),
            SerializationError,
            ("NQX401", "Hooked", "dict"),
        ),
    ],
)
def test_hooks_that_do_not_keep_to_the_protocol(serialize, deserialize, error, named):
    @derive(
        containers=["x"],
        serialize=serialize or (lambda obj: ([("x", obj.x)], None)),
        deserialize=deserialize or (lambda items, metadata: Hooked(dict(items)["x"])),
    )
    class Hooked:
        def __init__(self, x=1.0):
            self.x = x

    with refused(error, *named):
        container.deserialize(*container.serialize(Hooked()))


def test_what_is_no_container_type_cannot_be_deserialized():
    with refused(TypeError, "deserialize()"):
        container.deserialize(int, [], None)


@pytest.mark.parametrize(
    ("cls", "items", "metadata", "wrong"),
    [
        (Estimate, [("mean", 1.0), ("spred", 2.0)], {"name": "E"}, 1),
        (State, [("w", 1), ("v", 2)], {"step": 0, "stp": 1}, 2),
    ],
)
def test_removed_fields_are_an_error_that_names_them(cls, items, metadata, wrong):
    with refused(SerializationError, "NQX415", cls.__name__, items[-1][0]) as caught:
        container.deserialize(cls, items, metadata)
    assert len(caught.value.diagnostics) == wrong


@pytest.mark.parametrize(("cls", "items"), [(Estimate, [("mean", "x")]), (State, [("w", "x")])])
def test_a_changed_type_comes_back_as_it_was_stored(cls, items):
    back = container.deserialize(cls, items, {})
    assert (back.mean if cls is Estimate else back.w) == "x"


def test_new_fields_get_their_default():
    assert container.deserialize(Estimate, [("mean", 2.0)], {}).spread == 1.0
    assert container.deserialize(Estimate, [("mean", 2.0)], {}).name == "energy"
    assert container.deserialize(State, [("w", 1)], {}).step == 0


@pytest.mark.parametrize("cls", [Point, State])
def test_a_new_field_without_default_is_an_error(cls):
    with refused(SerializationError, "NQX414", cls.__name__):
        container.deserialize(cls, [], {})


def test_a_derived_class_is_saved_with_the_fields_it_declares():
    estimate = Estimate(jnp.arange(3.0), 2.0, "E")
    estimate.history.append("lost")
    state = checkpoint.to_state_dict({"e": estimate})
    back = checkpoint.from_state_dict(state)["e"]
    assert isinstance(back, Estimate)
    assert (back.mean.tolist(), back.spread, back.name, back.history) == (
        [0.0, 1.0, 2.0],
        2.0,
        "E",
        [],
    )


def test_a_derived_class_is_exported_and_loaded(tmp_path):
    path = checkpoint.export(Estimate(jnp.ones(2), name="E"), tmp_path / "e")
    assert checkpoint.load(path, load_cls=Estimate).name == "E"


def test_stored_derived_classes_are_checked_on_the_way_in():
    state = checkpoint.to_state_dict(Estimate(1.0))
    state["manifest"]["payload"] = 3
    with refused(SerializationError, "NQX401", "Estimate"):
        checkpoint.from_state_dict(state)


def test_derived_classes_pickle():
    assert pickle.loads(pickle.dumps(Estimate(2.0))).mean == 2.0


# --- lazy containers -----------------------------------------------------------------------------------------------


class Samples:
    def __init__(self, rows):
        self.rows = rows


class WeightedSamples(Samples):
    pass


container.register_lazy(Samples, lambda samples: {"rows": samples.rows})


def test_every_container_is_a_lazy_container_of_itself():
    obj = (1, {"a": State(2)}, None)
    assert container.to_container(obj) == obj


def test_lazy_containers_are_converted_on_the_way_in():
    batch = container.to_container([Samples(jnp.ones(2)), {"w": WeightedSamples((Samples(1), 2))}])
    assert batch[1] == {"w": {"rows": ({"rows": 1}, 2)}}
    assert jax.jit(lambda b: b[0]["rows"].sum())(batch) == 2.0


def test_conversions_are_registered_once_and_must_convert():
    with refused(ValueError, "register_lazy"):
        container.register_lazy(Samples, lambda samples: 0)

    with refused(TypeError, "x", "register_lazy()"):
        container.register_lazy("x", list)
    with refused(TypeError, "Samples", "3"):
        container.register_lazy(Samples, 3)

    class Stuck:
        pass

    container.register_lazy(Stuck, lambda stuck: stuck)
    with refused(TypeError, "Stuck", "to_container()"):
        container.to_container(Stuck())


# --- templates -----------------------------------------------------------------------------------------------------


def test_templates_hold_shapes_and_dtypes():
    template = container.to_template(
        {"s": State(np.ones((2, 3), np.float16), moments=1, step=2), "k": jax.random.key(0)}
    )
    assert template["s"].w == jax.ShapeDtypeStruct((2, 3), np.float16)
    assert template["s"].moments.dtype == jnp.int32
    assert template["s"].step == 2
    assert template["k"].dtype == jax.random.key(0).dtype
    assert container.to_template(template) == template


def test_numpy_arrays_keep_their_dtype_also_without_x64():
    assert container.to_template(np.ones(2)).dtype == np.float64


def test_templates_name_every_leaf_without_shape():
    with refused(TypeError, "$['a']", "$['b'].w"):
        container.to_template({"a": "x", "b": State(object())})


def test_templates_of_dicts_whose_keys_have_no_order():
    obj = {"s": State({2: 1.0, "a": (jnp.ones(2), None)}), (1, 2): 3, 0: 1}
    template = container.to_template(obj)
    assert list(template) == list(obj) and type(template["s"].w) is dict
    assert template["s"].w["a"][0] == jax.ShapeDtypeStruct((2,), jnp.float32)
    turned = {0: 5, (1, 2): 4, "s": State({"a": (jnp.zeros(2), None), 2: 0.5})}
    assert container.compatible(obj, turned) and container.compatible(turned, template)
    assert not container.compatible(obj, {**turned, 0: 1.5})
    with refused(TypeError, "$['x']", "to_template()"):
        container.to_template({1: 1, "x": "text"})


@every(
    ("a", "b", "expected"),
    [
        (jnp.ones(2), np.zeros(2, np.float32), True),
        (jnp.ones(2), jnp.ones(3), False),
        (jnp.ones(2), jnp.ones(2, jnp.int32), False),
        (1, jnp.int32(3), True),
        ((1, 2.0), [1, 2.0], False),
        (State(1.0, step=1), State(2.0, step=1), True),
        (State(1.0, step=1), State(2.0, step=2), False),
        (Estimate(1.0), container.to_template(Estimate(2.0)), True),
        (Estimate(1.0, name="a"), Estimate(1.0, name="b"), False),
        ({"a": 1}, {"b": 1}, False),
    ],
)
def test_compatible_containers_have_one_structure_shapes_and_dtypes(a, b, expected):
    assert container.compatible(a, b) is expected
    assert container.compatible(b, a) is expected
