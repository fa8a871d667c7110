"""Every code block and every row of the table of the document that filters follow, with objects of flax nnx as it has them.

Then the same splits by both libraries on random trees.
"""

from functools import partial

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st

import neuralqx_struct as s

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
    return isinstance(value, nnx.Param) or (hasattr(value, "type") and issubclass(value.type, nnx.Param))


@pytest.mark.parametrize("predicate", [is_param, f.OfType(nnx.Param), f.to_predicate(nnx.Param)])
def test_a_type_is_a_predicate_on_the_value_or_its_type_attribute(predicate):
    assert predicate((), nnx.Param(0))
    assert predicate((), VariableState(type=nnx.Param, value=0))
    assert not predicate((), VariableState(type=nnx.BatchStat, value=0))
    assert not predicate((), 0)


# --- the table -----------------------------------------------------------------------------------------------------

PARAM, STAT, DROPOUT = nnx.Param(0), nnx.BatchStat(True), VariableState(nnx.RngKey, 0, tag="dropout")
VALUES = {("a",): PARAM, ("b", "c"): STAT, ("rng",): DROPOUT}


@pytest.mark.parametrize(
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
    with pytest.raises(ValueError, match=r"\$\.b\.value"):
        s.split(Foo(), nnx.Param)
    with pytest.raises(ValueError, match="no other filter|All filters|matched|Non-exhaustive"):
        nnx.split(Foo(), nnx.Param)


def test_the_rest_stands_last():
    for split in (s.split, nnx.split):
        with pytest.raises(ValueError, match=r"Ellipsis|\.\.\."):
            split(Foo(), ..., nnx.Param)


# --- both libraries on random trees --------------------------------------------------------------------------------

KEYS = st.sampled_from(["a", "b", "kernel", "bias"])
CLASSES = [nnx.Param, SpecialParam, nnx.BatchStat, nnx.Variable, nnx.Cache]
LEAVES = st.builds(
    lambda cls, value, tag: cls(value) if tag is None else cls(value, tag=tag),
    st.sampled_from(CLASSES),
    st.integers(0, 9) | st.floats(0, 1),
    st.sampled_from([None, "params", "dropout"]),
)
TREES = st.dictionaries(
    KEYS, st.recursive(LEAVES, lambda inner: st.dictionaries(KEYS, inner, min_size=1, max_size=3)), max_size=4
)
PAIRS = st.one_of(
    st.sampled_from([*CLASSES, "params", "dropout", None, False, lambda path, value: path[0] == "a"]).map(
        lambda given: (given, given)
    ),
    KEYS.map(lambda key: (f.PathContains(key), nnx.PathContains(key))),
)


def _grown(inner):
    several = st.lists(inner, min_size=1, max_size=3).map(lambda pairs: tuple(zip(*pairs, strict=True)))
    return st.one_of(
        several,
        several.map(lambda both: (f.All(*both[0]), nnx.All(*both[1]))),
        several.map(lambda both: (f.Any(*both[0]), nnx.Any(*both[1]))),
        inner.map(lambda both: (f.Not(both[0]), nnx.Not(both[1]))),
    )


FILTERS = st.lists(st.recursive(PAIRS, _grown, max_leaves=4), max_size=3)


@given(TREES, FILTERS)
def test_both_libraries_group_random_trees_alike(tree, pairs):
    mine = s.split(tree, *[own for own, _ in pairs], ...)[1:]
    other = nnx.split_state(nnx.State(tree), *[given for _, given in pairs], ...)
    other = other if isinstance(other, tuple) else (other,)
    assert [plain(state) for state in mine] == [theirs(state) for state in other]


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
    part = s.load(s.export({"ours": params, "array": jnp.ones(1)}, tmp_path / "ckpt"), select=s.Param)
    assert part["array"] is None
    assert part["ours"] == params
