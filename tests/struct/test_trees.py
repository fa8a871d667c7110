import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neuralqx_struct as s
from neuralqx_struct.trees import beside, leaves_with_paths
from tests.builders import every, refused


class Net(s.Struct):
    w: object = s.field(metadata={"tags": ["trainable"]})
    stats: object = s.field(metadata={"tags": "batch"})
    layers: object = ()
    name: str = s.field(static=True, default="net")


def net():
    return Net(
        w=jnp.arange(2.0), stats=jnp.ones(2), layers=[{"b": jnp.zeros(1)}, Net(w=1.0, stats=2.0)]
    )


def test_paths_carry_the_declarations():
    paths = [path for path, _ in leaves_with_paths(net())]
    assert paths == [
        ("w",),
        ("stats",),
        ("layers", 0, "b"),
        ("layers", 1, "w"),
        ("layers", 1, "stats"),
    ]
    assert paths[0][0].spec is Net.fields()["w"]


def test_split_and_merge():
    definition, train, batch, rest = s.split(net(), "trainable", "batch", ...)
    assert list(train) == [("w",), ("layers", 1, "w")] and len(batch) == 2 and len(rest) == 1
    assert s.merge(definition, rest, batch, train) == net()
    assert hash(definition) == hash(s.split(net(), ...)[0]) and "$.w" in repr(train)
    with pytest.raises(KeyError):
        train[("nope",)]


def test_train_only_what_is_tagged():
    definition, train, rest = s.split(net(), s.filters.parse("tag:trainable"), ...)

    @jax.jit
    def loss(train, rest):
        a = s.merge(definition, train, rest)
        return jnp.sum(a.w**2) * a.layers[1].w

    grads = jax.grad(loss)(train, rest)
    assert grads[("w",)].tolist() == [0.0, 2.0] and list(grads) == list(train)


def test_combine_takes_many_parts_and_keeps_common_holes():
    parts = [1, None, None, None], [None, 2, None, None], [None, None, 3, None]
    assert s.combine(*parts) == [1, 2, 3, None]
    assert s.combine([0, None], [None, False]) == [0, False]
    with refused(ValueError, "NQX429", "$[1]"):
        s.combine([None, 1], [None, 2])


def test_partition_and_combine():
    kept, rest = s.partition(net(), "trainable")
    assert kept.stats is None and rest.w is None and kept.layers[1].w == 1.0
    assert s.combine(kept, rest) == net()


def test_errors_name_the_path():
    definition, train, rest = s.split(net(), "trainable", ...)
    with refused(ValueError, "NQX428", "$.stats"):
        s.split(net(), "trainable")
    with refused(ValueError, "merge()", "$.w"):
        s.merge(definition, rest)
    with refused(ValueError, "NQX429", "$.w"):
        s.merge(definition, train, rest, train)
    with refused(ValueError, "merge()", "x"):
        s.merge(definition, train, rest, {("x",): 1})
    with refused(ValueError, "combine()"):
        s.combine({"a": 1}, {"b": 1})
    with refused(ValueError, "combine()"):
        s.combine()


def test_map_where():
    doubled = s.map_where(net(), "trainable", lambda leaf: leaf * 2)
    assert (
        doubled.w.tolist() == [0.0, 2.0]
        and doubled.layers[1].w == 2.0
        and doubled.stats.tolist() == [1.0, 1.0]
    )
    assert jax.jit(lambda a: s.map_where(a, "batch", jnp.zeros_like))(net()).stats.tolist() == [
        0.0,
        0.0,
    ]
    assert s.map_where(net(), None, lambda leaf: 1 / 0) == net()


def test_axes_are_those_of_the_first_filter():
    a = net()
    found = s.filters.axes(
        a, {("batch", s.filters.PathContains("b")): 0, "trainable": 1, ...: None}
    )
    assert (found.stats, found.w, found.layers[0]["b"], found.layers[1].w) == (0, 1, 0, 1)
    pairs = [(["batch", s.filters.PathContains("b")], 0), ("trainable", 1), (..., None)]
    assert s.filters.axes(a, pairs) == found == s.filters.axes(a, iter(pairs))
    with refused(ValueError, "NQX428", "$.stats"):
        s.filters.axes(a, {"trainable": 0})
    with pytest.raises(AttributeError, match="nope"):
        s.filters.nope


def test_axes_map_some_leaves_of_a_model():
    """The state_axes example of the filters' seed: parameters and dropout state mapped, the rest broadcast."""

    class Model(s.Struct):
        w: object = s.field(metadata={"tags": ["param"]})
        key: object = s.field(metadata={"tags": ["dropout"]})
        scale: object

    model = Model(
        w=jnp.arange(6.0).reshape(3, 2),
        key=jax.random.split(jax.random.key(0), 3),
        scale=jnp.float32(2),
    )
    axes = s.filters.axes(model, {("param", "dropout"): 0, ...: None})
    x = jnp.ones((3, 2))

    def forward(model, x):
        return jnp.dot(model.w, x) * model.scale + 0 * jax.random.normal(model.key)

    out = jax.vmap(forward, in_axes=(axes, 0))(model, x)
    assert out.tolist() == [2.0, 10.0, 18.0]
    moved = jax.vmap(lambda model: model, in_axes=(axes,), out_axes=axes)(model)
    assert moved.w.tolist() == model.w.tolist() and moved.scale == model.scale


def test_trees_with_auxiliary_data_that_has_no_hash():
    class Odd:
        def __init__(self, x, names):
            self.x, self.names = x, names

    jax.tree_util.register_pytree_node(
        Odd, lambda o: ((o.x,), o.names), lambda names, x: Odd(x[0], names)
    )
    assert s.map_where(Odd(1.0, ["a"]), float, lambda x: x + 1).x == 2.0


@pytest.mark.parametrize(
    "use",
    [
        lambda obj: s.split(obj, ...),
        lambda obj: s.partition(obj, ...),
        lambda obj: s.combine(obj, obj),
        lambda obj: s.map_where(obj, ..., lambda leaf: leaf),
        lambda obj: s.filters.axes(obj, {...: 0}),
    ],
    ids=["split", "partition", "combine", "map_where", "axes"],
)
def test_dicts_that_jax_cannot_sort_are_named_all_at_once(use):
    with pytest.raises(ValueError) as caught:
        use({"a": Net(w={1: 1.0, "b": 2.0}, stats=0), "b": [{"x": 1}, {(1,): 1, None: 2}]})
    assert str(caught.value).splitlines() == [
        "$['a'].w: expected keys that can be sorted, as JAX demands of dicts, got int and str [NQX010]",
        "  use keys of one kind, or an OrderedDict, which is not sorted",
        "$['b'][1]: expected keys that can be sorted, as JAX demands of dicts, got NoneType and tuple [NQX010]",
        "  use keys of one kind, or an OrderedDict, which is not sorted",
    ]


def test_what_else_is_wrong_with_a_tree_is_told_as_jax_tells_it():
    class Broken:
        pass

    def flatten(_):
        raise ValueError("broken")

    jax.tree_util.register_pytree_node(Broken, flatten, lambda aux, children: Broken())
    with pytest.raises(ValueError, match="^broken$"):
        s.split(Broken(), ...)


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        (({"a": 1, "b": {"c": 2}}, {"a": None, "b": {"d": 1}}), ["part 2", "$['b']['c']"]),
        (({"a": None}, {"a": 1}, {"a": 1, "b": 2}), ["part 3", "$['b']"]),
        ((Net(w=1.0, stats=2), Net(w=None, stats=2, name="x")), ["part 2"]),
        (([1], (None,)), ["part 2"]),
    ],
)
def test_parts_of_several_structures_are_told_apart(parts, named):
    with refused(ValueError, "combine()", *named):
        s.combine(*parts)


def test_map_where_wants_a_function():
    with refused(TypeError, "map_where()", "int"):
        s.map_where({"a": 1}, ..., 3)


def test_states_are_merged_in_one_pass():
    class Counted(str):
        hashed = 0
        __slots__ = ()

        def __hash__(self):
            Counted.hashed += 1
            return str.__hash__(self)

    definition, floats, rest = s.split({Counted(n): n for n in range(200)}, float, ...)
    Counted.hashed = 0
    assert len(s.merge(definition, floats, rest)) == 200 and Counted.hashed < 200 * 20
    assert list(rest.values()) == [rest[path] for path in rest] and dict(rest.items()) == dict(rest)


def test_what_is_no_definition_state_or_mapping_of_axes_is_a_type_error():
    definition, state = s.split({"a": 1}, ...)
    with refused(TypeError, "merge()", "State"):
        s.merge(state, state)
    with refused(TypeError, "merge()", "list"):
        s.merge(definition, [1])
    with refused(TypeError, "axes()", "list"):
        s.filters.axes({"a": 1}, [..., 0])
    with refused(TypeError, "axes()", "int"):
        s.filters.axes({"a": 1}, 0)
    with refused(ValueError, "combine()"):
        s.combine()


class Hooked(s.Struct):
    """With hooks that do not pickle, as hooks are."""

    w: object = s.field(
        metadata={"tags": ["trainable"]}, converter=lambda w: w, validator=lambda w: True
    )
    n: int = s.field(static=True, default=2)


OBJECTS = [
    {"a": [jnp.ones(2), 1]},
    net(),
    Hooked(w=jnp.arange(3.0)),
    s.Params({("w",): s.Param(jnp.ones(2), metadata={"tags": ["lora"]})}),
    optax.adam(0.1).init({"w": jnp.ones(2)}),
]


@every("obj", OBJECTS)
@every(
    "again",
    [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy, copy.copy],
)
def test_states_and_definitions_can_be_pickled_and_copied(obj, again):
    definition, state = s.split(obj, ...)
    back = again(state)
    assert back == state and list(back) == list(state) and type(back) is type(state)
    assert again(definition) == definition
    merged = s.merge(again(definition), back)
    assert jax.tree.structure(merged) == jax.tree.structure(obj)
    tagged = s.filters.WithTag("trainable")
    kinds = [s.filters.Kind(kind) for kind in ("node", "static", "opaque")]
    for path, other in zip(state, back, strict=True):
        assert [f(path, 1.0) for f in (tagged, *kinds)] == [f(other, 1.0) for f in (tagged, *kinds)]
        assert [getattr(key, "holder", None) for key in path] == [
            getattr(key, "holder", None) for key in other
        ]


def test_states_are_trees_that_filters_see_as_the_object():
    """A state can be split again: its leaves keep their paths, tags and kinds."""
    a = net()
    definition, state = s.split(a, ...)
    again, train, rest = s.split(state, "trainable", ...)
    assert (train, rest) == s.split(a, "trainable", ...)[1:]
    assert s.merge(definition, s.merge(again, rest, train)) == a == s.merge(definition, train, rest)
    assert (
        s.map_where(state, "batch", lambda leaf: leaf * 2)
        == s.split(s.map_where(a, "batch", lambda leaf: leaf * 2), ...)[1]
    )
    assert s.filters.axes(state, {s.filters.PathContains(1): 0, ...: None})[("layers", 1, "w")] == 0
    assert list(s.split([state, {"x": 1}], s.filters.PathGlob("0/layers/0/*"), ...)[1]) == [
        (0, "layers", 0, "b")
    ]
    assert (
        jax.tree_util.keystr(jax.tree_util.tree_leaves_with_path(state)[2][0])
        == "['layers'][0]['b']"
    )


class Untagged(s.Struct):
    w: object


def test_states_of_other_fields_are_other_structures():
    """Names alone do not make a structure: tags and kinds of another class are not taken for those of this one."""
    tagged, plain = s.split(Hooked(w=1.0), ...)[1], s.split(Untagged(w=1.0), ...)[1]
    kept = s.split({"w": 1.0}, ...)[1]
    chosen = jax.jit(lambda state: s.map_where(state, "trainable", lambda leaf: leaf * 10))
    for _ in range(2):
        for state in (tagged, plain, kept):
            doubled = s.map_where(state, "trainable", lambda leaf: leaf * 10)
            assert doubled == chosen(state) or float(doubled[("w",)]) == float(
                chosen(state)[("w",)]
            )
            assert doubled[("w",)] == (10.0 if state is tagged else 1.0)
    structures = [jax.tree.structure(state) for state in (tagged, plain, kept)]
    assert len(set(structures)) == 3
    again = pickle.loads(pickle.dumps(tagged))
    assert jax.tree.structure(again) == structures[0] and hash(jax.tree.structure(again)) == hash(
        structures[0]
    )
    assert jax.tree.map(lambda a, b: a + b, tagged, again)[("w",)] == 2.0
    assert tagged == plain == kept  # as mappings


@every("obj", [*OBJECTS, jnp.ones(2), {}, {3: [jnp.ones(1)]}])
def test_states_are_saved_and_loaded(obj, tmp_path):
    definition, state = s.split(obj, ...)
    bundle = s.export({"state": state}, tmp_path / "ckpt")
    back = s.load(bundle)["state"]
    assert back == state and list(back) == list(state) and s.validate(bundle) == []
    assert same_leaves(s.merge(definition, back), obj)
    chosen = [dict(s.split(held, "trainable", ...)[1]) for held in (state, back)]
    assert list(chosen[0]) == list(chosen[1])
    kinds = [len(s.split(held, s.filters.Kind("node"), ...)[1]) for held in (state, back)]
    assert kinds[0] == kinds[1]


def same_leaves(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    return all(
        jnp.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


def test_a_part_of_a_saved_state_is_loaded(tmp_path):
    state = s.split(Hooked(w={"a": jnp.ones(2), "b": jnp.zeros(3)}), ...)[1]
    bundle = s.export(state, tmp_path / "ckpt")
    part = s.load(bundle, select="path:**/w/a")
    assert part[("w", "a")].shape == (2,) and part[("w", "b")] is None
    saved = s.to_state_dict(state)
    saved["manifest"]["payload"]["items"].pop()
    with refused(s.SerializationError, "NQX401", "State"):
        s.from_state_dict(saved)


def test_states_are_compared_by_their_leaves():
    state = s.split(net(), ...)[1]
    assert state == s.split(net(), ...)[1]
    assert state != s.split(s.map_where(net(), "batch", lambda leaf: leaf + 1), ...)[1]
    assert state != s.split(net(), "trainable", ...)[1] and state == dict(state) and state != [1]
    with pytest.raises(TypeError, match="'State'"):
        hash(state)


PLACES = st.recursive(
    st.sampled_from([None, 1, np.zeros(2), np.zeros(3), np.zeros(2, "int8")]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(PLACES, PLACES)
def test_trees_side_by_side_differ_where_their_structures_or_arrays_do(one, other):
    def kinds(tree):
        forms = [(np.shape(leaf), np.asarray(leaf).dtype) for leaf in jax.tree.leaves(tree)]
        return jax.tree.structure(tree), forms

    verdicts = {each.verdict for each in beside(one, other)}
    assert (verdicts == {"fits"}) == (kinds(one) == kinds(other))
    back = {each.path: each.verdict for each in beside(other, one)}
    swapped = {"missing": "extra", "extra": "missing"}
    assert back == {
        each.path: swapped.get(each.verdict, each.verdict) for each in beside(one, other)
    }
