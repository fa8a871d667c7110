import dataclasses
import functools
import pickle
import types
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st

from neuralqx_struct import filters
from neuralqx_struct.fieldspec import FieldKind
from neuralqx_struct.filters import (
    All,
    Any,
    DType,
    Everything,
    Kind,
    Not,
    Nothing,
    OfType,
    PathContains,
    PathGlob,
    PathIn,
    TypeName,
    WithTag,
    filters_to_predicates,
    parse,
    to_predicate,
)
from neuralqx_struct.paths import FieldName
from tests.builders import (
    FAMILIES,
    OPAQUE,
    PLAIN,
    STATIC,
    TEXT_FILTERS,
    TRAINED,
    UNKNOWN,
    VALUES,
    Param,
    SpecialParam,
    Stat,
    State,
    Tagged,
    every,
    named,
    refused,
)


@typing.runtime_checkable
class Sized(typing.Protocol):
    def __len__(self) -> int: ...


@typing.runtime_checkable
class HasScale(typing.Protocol):
    scale: float


class NotRuntime(typing.Protocol):
    scale: float


def is_zero(path, value):
    return len(path) == 0


# --- the literals and classes of NNX ------------------------------------------------------------------------------

KEYS = st.sampled_from(["a", "b", "ab", "kernel", 0, 1, 10])
PATHS = st.lists(KEYS, max_size=4).map(tuple)
CLASSES = st.sampled_from(
    [Param, SpecialParam, Stat, int, bool, float, object, str, nnx.Param, nnx.Variable, np.ndarray]
)
# Pairs of the same filter, ours and NNX's.
LITERALS = st.one_of(
    st.sampled_from([..., True, None, False, is_zero]), CLASSES, st.sampled_from(["a", "b", ""])
).map(lambda f: (f, f))
LEAF_FILTERS = st.one_of(
    LITERALS,
    CLASSES.map(lambda c: (OfType(c), nnx.OfType(c))),
    st.sampled_from(["a", "b"]).map(lambda t: (WithTag(t), nnx.WithTag(t))),
    st.tuples(KEYS, st.booleans()).map(lambda k: (PathContains(*k), nnx.PathContains(*k))),
    st.lists(PATHS, max_size=3).map(lambda p: (PathIn(*p), nnx.filterlib.PathIn(*p))),
    st.just((Everything(), nnx.Everything())),
    st.just((Nothing(), nnx.Nothing())),
)


def _both(pairs):
    return [p[0] for p in pairs], [p[1] for p in pairs]


def _grown(children):
    lists = st.lists(children, max_size=3).map(_both)
    return st.one_of(
        lists,
        lists.map(lambda both: (tuple(both[0]), tuple(both[1]))),
        lists.map(lambda both: (Any(*both[0]), nnx.Any(*both[1]))),
        lists.map(lambda both: (All(*both[0]), nnx.All(*both[1]))),
        children.map(lambda both: (Not(both[0]), nnx.Not(both[1]))),
    )


@given(st.recursive(LEAF_FILTERS, _grown, max_leaves=8), PATHS, VALUES)
def test_agrees_with_nnx(both, path, value):
    ours, theirs = to_predicate(both[0]), nnx.filterlib.to_predicate(both[1])
    assert bool(ours(path, value)) == bool(theirs(path, value))


@given(st.recursive(LEAF_FILTERS, _grown, max_leaves=6))
def test_prints_like_nnx(both):
    ours, theirs = repr(to_predicate(both[0])), repr(nnx.filterlib.to_predicate(both[1]))
    if "PathIn" not in ours:  # theirs prints a set in any order
        assert ours == theirs


@given(st.lists(st.sampled_from([..., True, None, "a", int, ()]), max_size=5))
def test_rest_comes_last_as_in_nnx(literals):
    try:
        expected = len(nnx.filterlib.filters_to_predicates(literals))
    except ValueError:
        expected = ValueError
    if expected is ValueError:
        with refused(ValueError, "NQX010"):
            filters_to_predicates(literals)
    else:
        assert filters_to_predicates(literals) == tuple(map(to_predicate, literals))
        assert len(filters_to_predicates(literals)) == expected


@given(st.recursive(LEAF_FILTERS, _grown, max_leaves=6))
def test_filters_of_nnx_become_ours(both):
    ours, theirs = to_predicate(both[0]), nnx.filterlib.to_predicate(both[1])
    assert to_predicate(theirs) == ours
    assert hash(to_predicate(theirs)) == hash(ours)


def test_filters_of_nnx_combine_with_ours():
    theirs = nnx.All(nnx.OfType(Param), nnx.PathContains("a"))
    assert WithTag("x") | theirs == Any("x", All(Param, PathContains("a")))
    assert (WithTag("x") | theirs)(("a",), Param())


@every(
    ("value", "matches"),
    [
        (Param(), True),
        (SpecialParam(), True),
        (State(Param), True),
        (State(SpecialParam), True),
        (State(Stat), False),
        (State("Param"), False),
        (State(Param()), False),
        (State(list[int]), False),
        (State(), False),
        (3, False),
    ],
)
def test_type_attribute_counts(value, matches):
    assert OfType(Param)((), value) is matches
    assert TypeName("Param")((), value) is matches
    assert TypeName(f"{Param.__module__}.Param")((), value) is matches
    assert not TypeName("other.Param")((), value)


def test_protocols():
    assert OfType(Sized)((), [1])
    assert not OfType(Sized)((), 1)
    scaled = types.SimpleNamespace(scale=1.0)
    assert OfType(HasScale)((), scaled)
    assert not OfType(HasScale)((), State(Param))


# --- tags, kinds, dtypes, globs -----------------------------------------------------------------------------------


ALONE = named("w", metadata={"tags": "trainable"})


@every(
    ("path", "value", "matches"),
    [
        ((TRAINED,), 1, True),
        ((ALONE,), 1, True),
        ((TRAINED, "x", PLAIN), 1, True),
        ((PLAIN, TRAINED, 0), 1, True),
        ((PLAIN,), 1, False),
        ((UNKNOWN,), 1, False),
        (("trainable", 0), 1, False),
        ((), Tagged("trainable"), True),
        ((), Tagged("train"), False),
        ((), Tagged(np.array(["trainable"])), False),
        ((), types.SimpleNamespace(tags="trainable"), True),
        ((), types.SimpleNamespace(tags="trainable, big"), False),
        ((), types.SimpleNamespace(tags=["big", "trainable"]), True),
        ((), types.SimpleNamespace(tags=frozenset({"trainable"})), True),
        ((), types.SimpleNamespace(tags=np.arange(3)), False),
        ((), types.SimpleNamespace(tags=None, tag="trainable"), True),
    ],
)
def test_tags(path, value, matches):
    assert WithTag("trainable")(path, value) is matches


@every(
    ("path", "kind"),
    [
        ((PLAIN,), "node"),
        ((STATIC,), "static"),
        ((OPAQUE, "k", 0), "opaque"),
        ((STATIC, 0, PLAIN), "node"),
        ((PLAIN, STATIC), "static"),
        ((), None),
        (("node",), None),
        ((UNKNOWN,), None),
        ((STATIC, UNKNOWN), None),
    ],
)
def test_kinds(path, kind):
    assert [k for k in ("node", "static", "opaque") if Kind(k)(path, 1)] == ([kind] if kind else [])
    assert Kind("static") == Kind(FieldKind.STATIC)


@every(
    ("dtype", "family"),
    [
        *[
            (name, "floating")
            for name in (
                "float16",
                "float32",
                "float64",
                "bfloat16",
                "float8_e4m3fn",
                "float4_e2m1fn",
            )
        ],
        *[(name, "integer") for name in ("int2", "int4", "int8", "int64", "uint8", "uint32")],
        *[(name, "complexfloating") for name in ("complex64", "complex128")],
        ("bool", "bool"),
    ],
)
def test_dtypes_of_arrays(dtype, family):
    array = jax.ShapeDtypeStruct((2,), jnp.dtype(dtype))
    named_only = types.SimpleNamespace(dtype=dtype)
    for value in (array, np.zeros(2, jnp.dtype(dtype)), named_only):
        assert [f for f in FAMILIES if DType(f)((), value)] == [family]
        assert DType(dtype)((), value)
        assert not DType("uint16")((), value)
    assert jnp.issubdtype(jnp.dtype(dtype), getattr(jnp, family, jnp.bool_)) is True
    assert jnp.issubdtype(jnp.dtype(dtype), jax.dtypes.prng_key) is False


@every(
    ("value", "name"),
    [
        (jax.random.key(0), "key<fry>"),
        (jax.random.key(0), "key<threefry2x32>"),
        (jax.random.key(0, impl="unsafe_rbg"), "key<urbg>"),
        (types.SimpleNamespace(dtype="key<unsafe_rbg>"), "key<urbg>"),
        (np.array([None]), "object"),
        (np.array(["ab"]), "str64"),
        (np.array(["2020"], "datetime64[D]"), "datetime64[D]"),
        (types.SimpleNamespace(dtype=np.float32), "float32"),
    ],
)
def test_other_dtypes(value, name):
    assert DType(name)((), value)
    family = "prng_key" if name.startswith("key<") else "floating"
    assert [f for f in FAMILIES if DType(f)((), value)] == (
        [family] if name == "float32" or "<" in name else []
    )


@pytest.mark.parametrize(
    "value", [1.0, None, "float32", types.SimpleNamespace(dtype=3), np.zeros(0, jax.dtypes.float0)]
)
def test_values_without_such_a_dtype(value):
    assert not any(DType(f)((), value) for f in [*FAMILIES, "float32"])


def test_globs_and_paths():
    path = (FieldName("params"), "layers", 0, "bias")
    assert PathGlob("params/**/bias")(path, 1)
    assert not PathGlob("bias")(path, 1)
    assert PathIn(("params", "layers", 0, "bias"), ("step",))(path, 1)
    assert PathContains("layers")(path, 1)
    assert not PathContains("layer")(path, 1)
    assert PathContains("layer", exact=False)(path, 1)
    assert PathContains(0)(path, 1)


# --- records ------------------------------------------------------------------------------------------------------


@given(TEXT_FILTERS)
def test_records_are_values(f):
    again = pickle.loads(pickle.dumps(f))
    assert again == f
    assert hash(again) == hash(f)
    assert again != ~f
    assert eval(repr(f), vars(filters)) == f


def test_records_are_frozen():
    for f in (WithTag("a"), Any("a"), PathIn(("a",)), Not("a")):
        name = dataclasses.fields(f)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(f, name, 1)


def test_different_records_differ():
    several = [
        Everything(),
        Nothing(),
        Any(),
        All(),
        Any("a"),
        All("a"),
        WithTag("a"),
        PathGlob("a"),
        TypeName("a"),
        Not("a"),
    ]
    assert len(set(several)) == len(several)
    assert PathIn(("a",), ("b",)) == PathIn(("b",), ("a",))
    assert repr(PathIn(("b",), ("a",))) == "PathIn(('a',), ('b',))"


@given(
    TEXT_FILTERS,
    TEXT_FILTERS,
    TEXT_FILTERS,
    st.lists(st.sampled_from([TRAINED, STATIC, "a", 0]), max_size=3),
    VALUES,
)
def test_operators(f, g, h, path, value):
    path = tuple(path)
    a, b = f(path, value), g(path, value)
    assert (f & g)(path, value) == (a and b)
    assert (f | g)(path, value) == (a or b)
    assert (~f)(path, value) == (not a)
    assert (~(f & g))(path, value) == (~f | ~g)(path, value)
    assert (f & g) & h == f & (g & h)
    assert (f | g) | h == f | (g | h)


def test_operators_take_literals_on_both_sides():
    tag = WithTag("a")
    assert tag & int == All("a", int)
    assert int & tag == All(int, "a")
    assert tag | None == Any("a", None)
    assert int | tag == Any(int, "a")
    assert ("x", "y") | tag == Any(("x", "y"), "a")
    assert is_zero & tag == All(is_zero, "a")
    with refused(TypeError, "All[1]", "int 1"):
        tag & 1


@every(
    "f",
    [
        OfType(int),
        PathIn(("a",)),
        PathContains("a"),
        Any(),
        All(),
        Any("a"),
        All("a"),
        Not(int),
        Any("a", int),
        All("a", is_zero),
    ],
)
def test_what_text_cannot_say_prints_as_python(f):
    assert f.text is None
    assert str(f) == repr(f)


# --- misuse -------------------------------------------------------------------------------------------------------


def callable_of_one(value):
    return True


class Pair(typing.NamedTuple):
    a: object
    b: object


@every(
    ("make", "named"),
    [
        (
            lambda: to_predicate("tag:decay & !path:bias"),
            ["filter", "filters.parse('tag:decay & !path:bias')"],
        ),
        (lambda: to_predicate("!(tag:a)"), ["filter", "filters.parse('!(tag:a)')"]),
        (lambda: to_predicate(1.5), ["filter", "float 1.5"]),
        (lambda: to_predicate(1), ["filter", "int 1"]),
        (lambda: to_predicate({"a"}), ["filter", "set {'a'}"]),
        (lambda: to_predicate({"a": 1}), ["filter", "dict"]),
        (lambda: to_predicate(np.arange(3)), ["filter", "ndarray"]),
        (lambda: to_predicate(("a", [2])), ["Any[0]", "int 2"]),
        (lambda: All("a", 2), ["All[1]", "int 2"]),
        (lambda: Not(2), ["Not", "int 2"]),
        (lambda: filters_to_predicates(["a", 2]), ["filters[1]", "int 2"]),
        (lambda: filters_to_predicates("ab"), ["filters", "str 'ab'"]),
        (lambda: filters_to_predicates(...), ["filters", "ellipsis"]),
        (
            lambda: to_predicate(lambda value: True),
            ["predicate(path, value)", "lambda path, value: f(value)"],
        ),
        (lambda: to_predicate(callable_of_one), ["lambda path, value: callable_of_one(value)"]),
        (lambda: to_predicate(lambda path, value, more: True), ["(path, value, more)"]),
        (lambda: to_predicate(list[int]), ["filter", "list[int]"]),
        (lambda: to_predicate(typing.Union[int, None]), ["filter", "tuple"]),  # noqa: UP007
        (lambda: to_predicate(int | str), ["filter", "tuple"]),
        (lambda: OfType("int"), ["OfType", "str 'int'"]),
        (lambda: OfType(NotRuntime), ["OfType", "isinstance()", "runtime_checkable"]),
        (lambda: TypeName(int), ["TypeName", int]),
        (lambda: WithTag({"a"}), ["WithTag", {"a"}]),
        (lambda: PathContains(["a"]), ["PathContains", ["a"]]),
        (lambda: PathIn("params"), ["PathIn", "str 'params'"]),
        (lambda: PathIn(("a", ["b"])), ["PathIn", ["b"]]),
        (lambda: PathGlob(("a",)), ["PathGlob", ("a",)]),
        (lambda: Kind(1), ["Kind", "node, static or opaque", "int 1"]),
        (lambda: DType(np.float32), ["DType", np.float32]),
        (lambda: parse(...), ["parse", "ellipsis"]),
    ],
)
def test_misuse_is_a_type_error(make, named):
    with refused(TypeError, *named):
        make()


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Kind("nod"), ["Kind", "'nod'", "'node'"]),
        (lambda: DType("complex"), ["DType", "'complex'", "'complexfloating'"]),
        (lambda: filters_to_predicates([..., "a", ...]), ["filters[0]", ..., 2]),
        (lambda: filters_to_predicates(["a", True, "a"]), ["filters[1]", True, 1]),
    ],
)
def test_misuse_is_a_value_error(make, named):
    with refused(ValueError, "NQX010", *named):
        make()


def test_predicates_without_a_signature_are_taken():
    assert to_predicate(max) is max  # a builtin without a readable signature
    assert to_predicate(functools.partial(is_zero)).func is is_zero
    assert to_predicate(Pair("a", int)) == Any("a", int)


def test_filters_imports_no_array_library(root):
    import subprocess
    import sys

    code = "import sys, neuralqx_struct.filters.partition; print([m for m in ('jax', 'numpy') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
