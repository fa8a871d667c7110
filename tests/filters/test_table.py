"""What is said of filters that match nothing: what they looked for, and what was probably meant."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neuralqx_struct as s
from neuralqx_struct.errors import SerializationError
from neuralqx_struct.fieldspec import field
from neuralqx_struct.filters import (
    All,
    DType,
    FilterError,
    Kind,
    Not,
    OfType,
    PathContains,
    PathGlob,
    PathIn,
    TypeName,
    WithTag,
    parse,
    to_predicate,
)
from neuralqx_struct.filters.partition import Selection
from neuralqx_struct.filters.predicates import dtype_name, innermost_kind, tags_of
from neuralqx_struct.filters.table import type_names, unmatched_parts
from neuralqx_struct.paths import FieldName
from tests.builders import (
    OPAQUE,
    PLAIN,
    STATIC,
    TRAINED,
    UNKNOWN,
    VALUES,
    State,
    Tagged,
    every,
    refused,
)


def is_big(path, value):
    return False


TREE = [
    (("params", "layers", 0, "kernel"), np.ones(2, np.float32)),
    (("params", "layers", 0, "bias"), np.ones(2, np.float32)),
    ((FieldName("step", field(metadata={"tags": ["trainable", "counter"]})),), np.int32(3)),
]


@every(
    ("given_as", "expected", "hint"),
    [
        ("trainabel", "a leaf with the tag 'trainabel'", "did you mean 'trainable'?"),
        ("xyz", "a leaf with the tag 'xyz'", "there are the tags counter, trainable"),
        (
            "kernel",
            "a leaf with the tag 'kernel'",
            "a tag is not a key of the path: for that write PathContains('kernel'), or path:**/kernel in text",
        ),
        (
            "a & b",
            "a leaf with the tag 'a & b'",
            "a str is one tag: for text with & | ! write filters.parse('a & b')",
        ),
        (parse("tag:trainabel"), "a leaf with the tag 'trainabel'", "did you mean 'trainable'?"),
        (
            PathGlob("bias"),
            "a leaf whose path matches 'bias'",
            "did you mean '**/bias'? ** is any number of keys",
        ),
        (
            PathGlob("params"),
            "a leaf whose path matches 'params'",
            "did you mean 'params/**'? ** is any number of keys",
        ),
        (
            PathGlob("layers/0"),
            "a leaf whose path matches 'layers/0'",
            "did you mean '**/layers/0/**'? ** is any number of keys",
        ),
        (
            PathGlob("**/kernal"),
            "a leaf whose path matches '**/kernal'",
            "did you mean '**/kernel'?",
        ),
        (
            PathGlob("parms/*/0/kernal"),
            "a leaf whose path matches 'parms/*/0/kernal'",
            "did you mean 'params/*/0/kernel'?",
        ),
        (
            PathGlob("x/?"),
            "a leaf whose path matches 'x/?'",
            "there are the paths params/layers/0/kernel, params/layers/0/bias, step",
        ),
        (PathContains("kernal"), "a leaf with 'kernal' in its path", "did you mean 'kernel'?"),
        (PathContains("0"), "a leaf with '0' in its path", "did you mean 0?"),
        (
            PathContains(7),
            "a leaf with 7 in its path",
            "there are the keys 0, bias, kernel, layers, params, step",
        ),
        (PathIn(("stepp",)), "a leaf at $['stepp']", "did you mean '$.step'?"),
        (
            PathIn(("a",), ("b",)),
            "a leaf at $['a'] or $['b']",
            "there are the paths $['params']['layers'][0]['kernel']",
        ),
        (PathIn(), "a leaf at no path", "there are the paths"),
        (Kind("static"), "a leaf with the kind 'static'", "there is the kind node"),
        (
            DType("float64"),
            "a leaf with the dtype 'float64'",
            "there are the dtypes float32, int32",
        ),
        (DType("bool"), "a leaf with the dtype 'bool'", "there are the dtypes float32, int32"),
        (TypeName("ndaray"), "a leaf with the type 'ndaray'", "did you mean 'ndarray'?"),
        (OfType(dict), "a leaf with the type 'dict'", "there are the types"),
        (is_big, "a leaf for which is_big is true", "look at what it asks"),
    ],
)
def test_what_was_looked_for_and_what_there_is(given_as, expected, hint):
    [part] = unmatched_parts(to_predicate(given_as), TREE)
    assert part.expected == expected and part.hint.startswith(hint)


@pytest.mark.parametrize(
    ("text", "missed"),
    [
        ("tag:trainable", []),
        ("tag:trainable | tag:x", ["tag 'x'"]),
        ("tag:y | path:**/bias & tag:x", ["tag 'y'", "tag 'x'", "as they"]),
        ("tag:trainable & path:**/bias", ["tag:trainable & path:**/bias matches"]),
        ("tag:trainable & !path:step", ["tag:trainable & !path:step matches"]),
        ("all | none", []),
    ],
)
def test_each_part_is_judged_by_itself(text, missed):
    found = [part.expected for part in unmatched_parts(parse(text), TREE)]
    for part, shown in zip(missed, found, strict=False):
        assert part in shown or part == "as they"
    assert len(found) == len([part for part in missed if part != "as they"])


def test_parts_that_are_excluded_are_told_apart():
    assert [
        (part.expected, part.excluded)
        for part in unmatched_parts(parse("!tag:x & !(!tag:y)"), TREE)
    ] == [
        ("a leaf with the tag 'x'", True),
        ("a leaf with the tag 'y'", False),
    ]


def test_of_many_names_the_first_are_told():
    tree = [((i,), 1.0) for i in range(1000)]
    [part] = unmatched_parts(PathGlob("x*"), tree)
    assert part.hint == "there are the paths 0, 1, 2, 3, 4, 5, 6, 7 and 992 more"
    assert next(unmatched_parts(WithTag("x"), tree)).hint == "no leaf here has a tag"


PARTS = st.lists(
    st.sampled_from([TRAINED, STATIC, OPAQUE, PLAIN, UNKNOWN, "a", 0]), max_size=3
).map(tuple)
LEAVES = st.one_of(
    VALUES,
    st.sampled_from(
        [
            types.SimpleNamespace(tags=["x", "y"], dtype="float32"),
            types.SimpleNamespace(tags="x", tag="y", dtype=np.float32),
            types.SimpleNamespace(tags=3, tag=np.arange(2), dtype=3),
            State(dict),
            Tagged("x"),
        ]
    ),
)


@given(PARTS, LEAVES)
def test_the_names_that_are_told_are_those_that_match(path, leaf):
    tags, names = set(tags_of(path, leaf)), set(type_names(path, leaf))
    for tag in {"x", "y", "a", "b", "trainable", "big"}:
        assert WithTag(tag)(path, leaf) == (tag in tags)
    for name in {"dict", "int", "ndarray", "Param", "Variable", "State", "Tagged", "str"}:
        assert TypeName(name)(path, leaf) == (name in names)
    for kind in ("node", "static", "opaque"):
        assert Kind(kind)(path, leaf) == (innermost_kind(path) == kind)
    for dtype in ("float32", "float64"):
        assert DType(dtype)(path, leaf) == (dtype_name(leaf) == dtype)


# --- partial loads -------------------------------------------------------------------------------------------------


class Net(s.Struct):
    w: object = s.field(metadata={"tags": ["trainable"]})
    mask: object = None
    name: str = s.field(static=True, default="net")


@pytest.fixture
def ckpt(tmp_path):
    return Net(w=jnp.ones(2), mask={"bias": np.ones(3, np.int8)}).export(tmp_path / "ckpt")


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        (
            "tag:trainabel",
            "'trainabel'",
        ),
        ("path:bias", "'**/bias'"),
        ("dtype:float64", "float32, int8"),
        (jax.Array, "ShapeDtypeStruct"),
        (lambda path, leaf: False, "true"),
        ("tag:trainable & dtype:int8", "tag:trainable & dtype:int8"),
        ("tag:a & tag:b", "'b'"),
    ],
)
def test_a_partial_load_of_nothing_is_an_error(ckpt, select, expected):
    for load in (
        lambda: Net.load(ckpt, select=select),
        lambda: s.load(ckpt, select=select, abstract=True),
    ):
        with pytest.raises(FilterError) as caught:
            load()
        assert expected in str(caught.value)
        assert str(caught.value).startswith(f"{ckpt}: select=: ")
        assert {d.code for d in caught.value.diagnostics} == {"NQX426"} and isinstance(
            caught.value, ValueError
        )
    with refused(FilterError, "NQX426"):
        s.from_state_dict(
            s.to_state_dict(Net(w=jnp.ones(2), mask=jnp.zeros(1, jnp.int8))), select=select
        )


@pytest.mark.parametrize("select", [False, "none", s.filters.Nothing()])
def test_nothing_can_be_asked_for(ckpt, select):
    part = Net.load(ckpt, select=select)
    assert part.w is None and part.name == "net"


def test_where_there_is_no_array_none_is_missed(tmp_path):
    assert Net.load(Net(w=1.0).export(tmp_path / "ckpt"), select="tag:x").w == 1.0


def test_parts_in_vain_are_reported(ckpt):
    report = []
    part = Net.load(ckpt, select="tag:trainable & !tag:frozn | path:x", report=report)
    assert part.w is not None and part.mask["bias"] is None
    assert [(d.code, d.severity, d.path) for d in report] == [("NQX426", "info", "select=")] * 2
    assert "'frozn'" in report[0].message and "'x'" in report[1].message
    report.clear()
    Net.load(ckpt, select="tag:trainable", report=report)
    assert report == []


# --- inspect -------------------------------------------------------------------------------------------------------


def test_inspecting_nothing_is_an_error(ckpt):
    with pytest.raises(FilterError) as caught:
        s.inspect(ckpt, "path:msk/*")
    assert str(caught.value) == (
        f"{ckpt}: filter: expected a leaf whose path matches 'msk/*', got none among 3 [NQX426]\n  did you mean 'mask/*'?"
    )
    with refused(FilterError, "NQX426", "filter", "trainable"):
        s.inspect(ckpt, "tag:trainable")
    report = []
    assert len(s.inspect(ckpt, "path:w | path:v", report=report).rows) == 1
    assert [(d.severity, d.file) for d in report] == [("info", str(ckpt))]
    assert len(s.inspect(ckpt, "path:w | path:v").rows) == 1
    with pytest.raises(SerializationError):
        s.inspect(ckpt / "nothing", "path:w")


# --- on request ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [
        lambda tree, f, report: s.partition(tree, f, report=report),
        lambda tree, f, report: s.map_where(tree, f, lambda leaf: leaf, report=report),
        lambda tree, f, report: s.split(tree, f, ..., report=report),
        lambda tree, f, report: s.filters.axes(tree, {f: 0, ...: None}, report=report),
    ],
    ids=["partition", "map_where", "split", "axes"],
)
def test_functions_on_trees_report_on_request(ask):
    net, report = Net(w=1.0, mask=2.0), []
    ask(net, "trainable", report)
    assert report == []
    ask(net, "trainabel", report)
    assert [(d.code, d.severity, d.hint) for d in report] == [
        ("NQX426", "warning", "did you mean 'trainable'?")
    ]
    ask(net, None, report)
    assert len(report) == 1


def test_selections_choose_as_their_filter_does():
    selection = Selection(All(Not("a"), int))
    assert [selection((), value) for value in (1, 2.0, Tagged("a"))] == [True, False, False]
    assert [d.severity for d in selection.findings("x")] == []
    assert Selection("a").findings("x") == []
