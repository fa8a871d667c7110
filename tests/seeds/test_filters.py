"""Every code block and every row of the table of the document that filters follow, with objects of flax nnx as it has them.

Then the same splits by both libraries on random trees.
"""

import re
import types
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

import neuralqx_struct as s
from tests.builders import cases, every, refused

f = s.filters


class Foo(nnx.Module):
    def __init__(self):
        self.a = nnx.Param(0)
        self.b = nnx.BatchStat(True)


class VariableState:
    """What NNX has called so: a value that says in an attribute what it is the state of."""

    def __init__(self, type, value, **metadata):  # noqa: A002 - NNX's word
        self.type, self.value = type, value
        vars(self).update(metadata)


def plain(state):
    """A state of ours by NNX's paths: the variable, not its value, is the leaf there."""
    return {tuple(path[:-1]): leaf for path, leaf in state.items()}


def theirs(state):
    return {path: variable.get_value() for path, variable in nnx.to_flat_state(state)}


# --- the first block -----------------------------------------------------------------------------------------------


def test_split_into_params_and_batch_stats():
    foo = Foo()
    definition, params, batch_stats = s.split(foo, nnx.Param, nnx.BatchStat)
    assert plain(params) == {("a",): 0}
    assert plain(batch_stats) == {("b",): True}
    merged = s.merge(definition, params, batch_stats)
    assert (type(merged), merged.a.get_value(), type(merged.b)) == (Foo, 0, nnx.BatchStat)


# --- the filter protocol -------------------------------------------------------------------------------------------


def is_param(path, value):
    return isinstance(value, nnx.Param) or (
        hasattr(value, "type") and issubclass(value.type, nnx.Param)
    )


@pytest.mark.parametrize("predicate", [is_param, f.OfType(nnx.Param), f.to_predicate(nnx.Param)])
def test_a_type_is_a_predicate_on_the_value_or_its_type_attribute(predicate):
    assert predicate((), nnx.Param(0))
    assert predicate((), VariableState(type=nnx.Param, value=0))
    assert not predicate((), VariableState(type=nnx.BatchStat, value=0))
    assert not predicate((), 0)


# --- the table -----------------------------------------------------------------------------------------------------

PARAM, STAT, DROPOUT = (
    nnx.Param(0),
    nnx.BatchStat(True),
    VariableState(nnx.RngKey, 0, tag="dropout"),
)
VALUES = {("a",): PARAM, ("b", "c"): STAT, ("rng",): DROPOUT}


@every(
    ("literal", "callable_", "matched"),
    [
        (..., f.Everything(), ["a", "b", "rng"]),
        (True, f.Everything(), ["a", "b", "rng"]),
        (None, f.Nothing(), []),
        (False, f.Nothing(), []),
        (nnx.Param, f.OfType(nnx.Param), ["a"]),
        (nnx.Variable, f.OfType(nnx.Variable), ["a", "b", "rng"]),
        (f.PathContains("c"), f.PathContains("c"), ["b"]),
        ("dropout", f.WithTag("dropout"), ["rng"]),
        ((nnx.Param, "dropout"), f.Any(nnx.Param, "dropout"), ["a", "rng"]),
        ([nnx.Param, "dropout"], f.Any(nnx.Param, "dropout"), ["a", "rng"]),
        (f.All(nnx.Variable, f.PathContains("b")), f.All(nnx.Variable, f.PathContains("b")), ["b"]),
        (f.Not(nnx.Param), f.Not(nnx.Param), ["b", "rng"]),
    ],
)
def test_each_row_of_the_table(literal, callable_, matched):
    predicate = f.to_predicate(literal)
    assert predicate == callable_
    assert [path[0] for path, value in VALUES.items() if predicate(path, value)] == matched


# --- state_axes ----------------------------------------------------------------------------------------------------


def test_axes_by_filters_for_vmap():
    class Model(nnx.Module):
        def __init__(self):
            self.w = nnx.Param(jnp.arange(6.0).reshape(3, 2))
            self.scale = nnx.BatchStat(jnp.float32(2.0))
            self.key = nnx.RngKey(jax.random.split(jax.random.key(0), 3), tag="dropout")

    model, x = Model(), jnp.ones(2)
    state_axes = f.axes(model, {(nnx.Param, "dropout"): 0, ...: None})

    @partial(jax.vmap, in_axes=(state_axes, None))
    def forward(model, x):
        noise = 0 * jax.random.normal(model.key.get_value())
        return model.w.get_value() @ x * model.scale.get_value() + noise

    assert forward(model, x).tolist() == [2.0, 10.0, 18.0]
    theirs = nnx.StateAxes({(nnx.Param, "dropout"): 0, ...: None})
    assert jax.tree.structure(f.axes(model, theirs)) == jax.tree.structure(state_axes)
    assert jax.tree.leaves(f.axes(model, theirs)) == jax.tree.leaves(state_axes) == [0, 0]


# --- to_predicate --------------------------------------------------------------------------------------------------


def test_literals_print_as_what_they_stand_for():
    assert repr(f.to_predicate(nnx.Param)) == repr(nnx.filterlib.to_predicate(nnx.Param))
    assert repr(f.to_predicate(...)) == "Everything()"
    assert repr(f.to_predicate(False)) == "Nothing()"
    params_or_dropout = f.to_predicate((nnx.Param, "dropout"))
    assert repr(params_or_dropout) == f"Any({f.OfType(nnx.Param)!r}, WithTag('dropout'))"
    assert repr(params_or_dropout) == repr(nnx.filterlib.to_predicate((nnx.Param, "dropout")))


# --- grouping ------------------------------------------------------------------------------------------------------


def rough_split(node, *filters):
    """The document's own sketch of split, with our predicates."""
    predicates = [f.to_predicate(given) for given in filters]
    flat_states = [{} for _ in predicates]
    for path, value in nnx.to_flat_state(nnx.state(node)):
        for i, predicate in enumerate(predicates):
            if predicate(path, value):
                flat_states[i][path] = value.get_value()
                break
        else:
            raise ValueError(f"No filter matched {path = } {value = }")
    return flat_states


class SpecialParam(nnx.Param):
    pass


class Bar(nnx.Module):
    def __init__(self):
        self.a = nnx.Param(0)
        self.b = SpecialParam(0)


@pytest.mark.parametrize(
    ("make", "filters", "expected"),
    [
        (Foo, (nnx.Param, nnx.BatchStat), [{("a",): 0}, {("b",): True}]),
        (Bar, (nnx.Param, SpecialParam), [{("a",): 0, ("b",): 0}, {}]),  # wrong!
        (Bar, (SpecialParam, nnx.Param), [{("b",): 0}, {("a",): 0}]),  # correct!
    ],
)
def test_the_first_filter_that_matches_keeps_the_value(make, filters, expected):
    assert [plain(state) for state in s.split(make(), *filters)[1:]] == expected
    assert rough_split(make(), *filters) == expected
    assert [theirs(state) for state in nnx.split(make(), *filters)[1:]] == expected


def test_a_value_that_no_filter_matches_is_an_error_with_its_path():
    with refused(ValueError, "NQX428", "$.b.value"):
        s.split(Foo(), nnx.Param)
    with pytest.raises(ValueError, match="Param|BatchStat"):
        nnx.split(Foo(), nnx.Param)


def test_the_rest_stands_last():
    for split in (s.split, nnx.split):
        with pytest.raises(ValueError, match=r"Ellipsis|\.\.\."):
            split(Foo(), ..., nnx.Param)


# --- both libraries on random trees --------------------------------------------------------------------------------


CLASSES = [nnx.Param, SpecialParam, nnx.BatchStat, nnx.Variable, nnx.Cache]
WORDS = st.sampled_from(["a", "b", "kernel", "bias", "0", ""])
NUMBERS = st.integers(0, 3)
VARIABLES = st.builds(
    lambda cls, value, tag: cls(value) if tag is None else cls(value, tag=tag),
    st.sampled_from(CLASSES),
    st.integers(0, 9) | st.floats(0, 1) | st.just(jax.numpy.ones(2)),
    st.sampled_from([None, "params", "dropout"]),
)
LEAVES = VARIABLES | st.builds(np.full, st.integers(1, 2), st.integers(0, 9))


def _nested(inner):
    few = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        few,
        few.map(tuple),
        st.dictionaries(WORDS, inner, min_size=1, max_size=3),
        st.dictionaries(NUMBERS, inner, min_size=1, max_size=3),
        st.dictionaries(WORDS.filter(str.isidentifier), inner, max_size=3).map(as_module),
    )


def as_module(attributes):
    module = nnx.Module()
    for name, value in attributes.items():
        setattr(module, name, nnx.data(value))
    return module


TREES = _nested(st.recursive(LEAVES, _nested, max_leaves=10))
PATHS = st.lists(WORDS | NUMBERS, max_size=3).map(tuple)


def stands_at(*paths):
    """PathIn for both: the variable is the leaf there, what it holds is the leaf here."""
    return f.PathIn(*paths, *((*path, "value") for path in paths)), nnx.filterlib.PathIn(*paths)


def starts_with_a(path, value):
    return path[:1] == ("a",)


PAIRS = st.one_of(
    st.sampled_from(
        [
            *CLASSES,
            np.ndarray,
            "params",
            "dropout",
            None,
            False,
            starts_with_a,
            nnx.OfType(nnx.Param),
        ]
    ).map(lambda given: (given, given)),
    st.builds(
        lambda key, exact: (f.PathContains(key, exact), nnx.PathContains(key, exact)),
        WORDS.filter(lambda key: key not in "value") | NUMBERS,
        st.booleans(),
    ),
    st.lists(PATHS, max_size=2).map(lambda paths: stands_at(*paths)),
)


def _grown(inner):
    several = st.lists(inner, min_size=0, max_size=3).map(
        lambda pairs: tuple(zip(*pairs, strict=True)) or ((), ())
    )
    return st.one_of(
        several,
        several.map(lambda both: (list(both[0]), list(both[1]))),
        several.map(lambda both: (f.All(*both[0]), nnx.All(*both[1]))),
        several.map(lambda both: (f.Any(*both[0]), nnx.Any(*both[1]))),
        inner.map(lambda both: (f.Not(both[0]), nnx.Not(both[1]))),
    )


FILTERS = st.lists(st.recursive(PAIRS, _grown, max_leaves=5), max_size=4)


def by_their_paths(state):
    """A state of ours by NNX's paths, where the variable is the leaf, not what it holds."""
    return {
        tuple(path[:-1] if getattr(path[-1], "holder", None) else path): id(leaf)
        if np.ndim(leaf)
        else leaf
        for path, leaf in state.items()
    }


def by_paths(state):
    values = (
        (path, getattr(leaf, "get_value", lambda leaf=leaf: leaf)())
        for path, leaf in nnx.to_flat_state(state)
    )
    return {tuple(path): id(leaf) if np.ndim(leaf) else leaf for path, leaf in values}


@given(TREES, FILTERS)
@settings(max_examples=cases(300))
def test_both_libraries_group_random_trees_alike(tree, pairs):
    definition, *mine = s.split(tree, *[own for own, _ in pairs], ...)
    _, *other = nnx.split(tree, *[given for _, given in pairs], ...)
    assert [by_their_paths(state) for state in mine] == [by_paths(state) for state in other]
    assert jax.tree.structure(s.merge(definition, *reversed(mine))) == jax.tree.structure(tree)


@given(TREES, FILTERS.filter(bool))
def test_both_libraries_refuse_the_same_trees(tree, pairs):
    """Without a filter for the rest, the first leaf that nobody wants is an error; here all of them are named."""
    own, given = zip(*pairs, strict=True)
    try:
        nnx.split(tree, *given)
    except ValueError:
        with refused(ValueError, "NQX428"):
            s.split(tree, *own)
    else:
        s.split(tree, *own)


class Sampler(s.Struct):
    key: object = s.field(metadata={"tags": ["dropout"]})
    model: object = None


def test_params_of_ours_and_variables_of_flax_are_known_by_their_type(tmp_path):
    params = s.Params({("w",): s.Param(jnp.ones(2)), ("v",): s.Param({"x": jnp.ones(3)})})
    obj = {"flax": Foo(), "ours": params, "array": jnp.ones(1)}
    _, ours, flax, rest = s.split(obj, s.Param, nnx.Param, ...)
    assert [path[2] for path in ours] == ["v", "w"]
    assert [path[:2] for path in flax] == [("flax", "a")]
    assert [path[0] for path in rest] == ["array", "flax"]
    assert s.split(obj, f.parse("type:BatchStat"), ...)[1] == {("flax", "b", "value"): True}
    part = s.load(
        s.export({"ours": params, "array": jnp.ones(1)}, tmp_path / "ckpt"), select=s.Param
    )
    assert part["array"] is None
    assert part["ours"] == params


# --- the guide -----------------------------------------------------------------------------------------------------

#: Modules of layers and training, which have one row together, and what is no public name.
BESIDE = (
    "flax.nnx.nn",
    "flax.nnx.training",
    "flax.linen",
    "flax.core",
    "jax",
    "typing",
    "builtins",
)
UNTOLD = {"A", "M"}


def public(module):
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and not getattr(value, "__module__", type(value).__module__).startswith(BESIDE)
    } - UNTOLD


def test_the_guide_has_every_name_of_nnx(root):
    """A user who looks for a function finds what stands for it."""
    told = set(re.findall(r"\w+", (root / "docs/from_nnx.md").read_text()))
    assert public(nnx) - told == set()
    own = {
        name
        for name in public(nnx.filterlib)
        if getattr(nnx.filterlib, name).__module__ == nnx.filterlib.__name__
    }
    assert own - told - {"HasTag"} == set()
    assert {name for name in own if hasattr(f, name)} == own - {"HasTag"}


def test_the_page_of_filters_has_every_name_of_ours(root):
    told = set(re.findall(r"\w+", (root / "docs/filters.md").read_text()))
    assert {name for name in f.__all__ if name not in told} <= {
        "Filter",
        "FilterError",
        "Matcher",
        "Predicate",
    }
