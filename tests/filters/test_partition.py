import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuralqx_struct.errors import StructError
from neuralqx_struct.fieldspec import field
from neuralqx_struct.filters import (
    Any,
    Everything,
    FilterError,
    OfType,
    PathGlob,
    WithTag,
    parse,
    to_predicate,
)
from neuralqx_struct.filters.partition import (
    matches,
    merge_leaves,
    split_leaves,
)
from neuralqx_struct.paths import FieldName
from tests.builders import refused

PATHS = st.lists(st.sampled_from(["a", "b", "bias", 0, 1]), min_size=1, max_size=4).map(tuple)
LEAVES = st.one_of(st.integers(), st.floats(allow_nan=False), st.text(max_size=3), st.booleans())
TREES = st.dictionaries(PATHS, LEAVES, max_size=12).map(lambda tree: list(tree.items()))
FILTERS = st.recursive(
    st.sampled_from(
        [
            int,
            bool,
            float,
            str,
            None,
            "tag",
            parse("path:**/bias"),
            parse("path:a/**"),
            parse("!path:b"),
        ]
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3).map(tuple), inner.map(lambda f: ~Any(f))),
    max_leaves=4,
)
WEIGHTS = FieldName("w", field(metadata={"tags": ["trainable"]}))


def is_big(path, value):
    return value == 1000


@given(TREES, st.lists(FILTERS, max_size=4))
def test_the_first_match_wins(tree, filters):
    groups = split_leaves(tree, *filters, ...)
    assert len(groups) == len(filters) + 1
    predicates = [*map(to_predicate, filters), Everything()]
    for path, leaf in tree:
        first = next(i for i, predicate in enumerate(predicates) if predicate(path, leaf))
        assert [(path, leaf) in group for group in groups].index(True) == first
    for group in groups:
        assert [
            pair for pair in tree if pair[0] in dict(group)
        ] == group  # in the order of the input


@given(TREES, st.lists(FILTERS, max_size=4))
def test_merge_inverts_split(tree, filters):
    merged = merge_leaves(*split_leaves(tree, *filters, ...))
    assert len(merged) == len(tree)
    assert dict(merged) == dict(tree)


@given(TREES, FILTERS)
def test_matches_are_the_leaves_that_split_takes(tree, f):
    hits = matches(tree, f, None)
    taken = dict(split_leaves(tree, f, ...)[0])
    assert [path for (path, _), hit in zip(tree, hits, strict=True) if hit] == list(taken)


@given(TREES, st.lists(FILTERS, max_size=4))
def test_a_report_changes_no_group_and_tells_the_truth(tree, filters):
    report = []
    groups = split_leaves(tree, *filters, ..., report=report)
    assert groups == split_leaves(tree, *filters, ...)
    empty = {i for i, f in enumerate(filters) if f is not None and not groups[i]}
    assert {int(d.path[8:-1]) for d in report if d.code == "NQX426"} == empty
    predicates = [*map(to_predicate, filters)]
    asked = [i for i, f in enumerate(filters) if f is not None]
    overlapping = {
        later
        for n, later in enumerate(asked)
        for earlier in asked[:n]
        if any(predicates[earlier](*pair) and predicates[later](*pair) for pair in tree)
    }
    assert {int(d.path[8:-1]) for d in report if d.code == "NQX427"} == overlapping


def test_no_filter_means_everything():
    assert split_leaves([(("a",), 1)]) == ([(("a",), 1)],)
    assert split_leaves([], int, ...) == ([], [])
    assert split_leaves(iter([(("a",), 1)]), int) == ([(("a",), 1)],)


def test_tags_of_fields_split():
    tree = [((WEIGHTS, "x"), 1.0), (("step",), 3)]
    assert split_leaves(tree, "trainable", ...) == ([tree[0]], [tree[1]])


def test_unmatched_leaves_are_named_all_at_once():
    tree = [((WEIGHTS, 0), 1.0), ((WEIGHTS, 1), 2), (("step",), "x")]
    with pytest.raises(ValueError) as caught:
        split_leaves(tree, float, PathGlob("b"), is_big)
    assert str(caught.value).splitlines() == [
        "$.w[1]: expected a leaf that one of the filters matches, got a int that none does [NQX428]",
        "$['step']: expected a leaf that one of the filters matches, got a str that none does [NQX428]",
        "  the filters are OfType(<class 'float'>), path:b, is_big; add `...` behind them for the rest",
    ]
    assert isinstance(caught.value, StructError)


def test_thousands_of_unmatched_leaves_stay_readable():
    with pytest.raises(FilterError) as caught:
        split_leaves([((i,), i) for i in range(10_000)], float)
    assert len(caught.value.diagnostics) == 20
    assert "9980" in str(caught.value)


def test_the_rest_comes_last():
    with refused(ValueError, "NQX010", "filters[0]", ..., 1):
        split_leaves([], ..., int)
    with refused(TypeError, "filters[1]", "int 3"):
        split_leaves([], int, 3)
    with refused(TypeError, "filter", "int 3"):
        matches([], 3, None)


def test_report_of_the_wrong_order():
    tree = [(("a",), True), (("b",), 2), (("c",), "x")]
    report = []
    split_leaves(tree, int, bool, float, Any(str), None, ..., report=report)
    assert [(d.code, d.severity, d.path) for d in report] == [
        ("NQX426", "warning", "filters[1]"),
        ("NQX426", "warning", "filters[2]"),
        ("NQX427", "info", "filters[1]"),
    ]
    hidden, unused, overlap = map(str, report)
    assert "all that it matches (1) went to filters before it" in hidden
    assert "more specific filter first" in hidden
    assert "there are the types bool, int, str" in unused
    assert "filters[0] (OfType(<class 'int'>)) matches too" in overlap
    assert "$['a']" in overlap


def test_report_sees_what_an_earlier_everything_takes():
    report = []
    split_leaves([(("a",), 1)], Everything(), int, report=report)
    assert [(d.code, d.path) for d in report] == [("NQX426", "filters[1]")]


def test_clean_filters_leave_the_report_empty():
    report = []
    split_leaves([(("a",), 1), (("b",), 2.0)], int, float, ..., report=report)
    assert report == []


def test_report_is_written_also_when_leaves_are_left_over():
    report = []
    with pytest.raises(FilterError):
        split_leaves([(("a",), 1)], WithTag("x"), report=report)
    assert [d.code for d in report] == ["NQX426"]


def test_merge_refuses_the_same_path_twice():
    with pytest.raises(ValueError) as caught:
        merge_leaves([(("a",), 1), (("b",), 2)], [(("b",), 2)], [(("a",), 1), (("b",), 2)])
    assert [d.path for d in caught.value.diagnostics] == ["$['b']", "$['a']"]
    assert caught.value.code == "NQX429"
    assert "from one split" in str(caught.value)
    assert merge_leaves() == []


def test_leaves_are_never_compared():
    class Touchy:
        def __eq__(self, other):
            raise AssertionError

        def __bool__(self):
            raise AssertionError

        __hash__ = None

    leaf = Touchy()
    tree = [(("a",), leaf), (("b",), 1)]
    assert merge_leaves(*split_leaves(tree, OfType(Touchy), ...))[0][1] is leaf
    assert matches(tree, Touchy, None) == [True, False]
