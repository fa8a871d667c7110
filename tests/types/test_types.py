import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuralqx_struct.dtypes import DTYPES
from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import parse
from neuralqx_struct.types import (
    TYPES,
    Array,
    DictOf,
    Key,
    ListOf,
    LiteralOf,
    Named,
    Null,
    PyTree,
    TupleOf,
    Union,
    walk_type,
)
from neuralqx_struct.types.text import format_type, parse_type
from tests.builders import every, refused

READ = [
    ("int", TYPES["int"]),
    ("null", Null()),
    ("None", Null()),
    ("pytree", PyTree()),
    ("float | null", Union((TYPES["float"], Null()))),
    ("int | (float | null) | int", Union((TYPES["int"], TYPES["float"], Null()))),
    ("float32[]", Array("float32", ())),
    ("float32[...]", Array("float32")),
    ("complex64[n, 2*m]", Array("complex64", (parse("n"), parse("2 * m")))),
    ("int8[..., 3]", Array("int8", (..., parse("3")))),
    ("prng_key", Key()),
    ("prng_key[threefry2x32, n]", Key("threefry2x32", (parse("n"),))),
    ("prng_key[_, n]", Key(None, (parse("n"),))),
    ("list[Layer]", ListOf(Named("Layer"))),
    ("dict[str, Dense[d, ff]]", DictOf(Named("Dense", (parse("d"), parse("ff"))))),
    ("tuple[int, str]", TupleOf((TYPES["int"], TYPES["str"]))),
    ("tuple[int, ...]", TupleOf((TYPES["int"],), variadic=True)),
    ('literal["a", 1, True]', LiteralOf(("a", 1, True))),
    ("literal[true, false, 1]", LiteralOf((True, False, 1))),
]


@every(("text", "declared"), READ)
def test_reading(text, declared):
    assert parse_type(text) == declared
    assert parse_type(format_type(declared)) == declared


WRONG = [
    ("float32", "float32[]"),
    ("float[n]", "'float[n]'"),
    ("list", "list[...]"),
    ("list[int, int]", "list[T]"),
    ("dict[int, str]", "dict[str, T]"),
    ("literal[a]", "literal[...]"),
    ("prng_key[3]", "prng_key[impl]"),
    ("int +", "'int +'"),
    ("f()", "'f()'"),
    ("", "''"),
    ("x" * 2000, "1000"),
    ("[" * 900, "[[["),
    ("a." * 490 + "b", "levels"),
    ("float32[" + "n." * 490 + "n]", "levels"),
    ("literal[" + "-" * 900 + "1]", "levels"),
]


@every(("text", "named"), WRONG)
def test_what_is_no_type(text, named):
    with refused(SchemaError, "NQX101", named):
        parse_type(text)


MEANT = [
    ("float?", "write float | null"),
    ("float32[n]?", "write float32[n] | null"),
    ("float32(n, m)", "write float32[n, m]"),
    ("list<Layer>", "write list[Layer]"),
    ("list[Layer", "close every [ with a ]"),
]


@pytest.mark.parametrize(("text", "hint"), MEANT)
def test_types_of_other_languages_are_answered_with_ours(text, hint):
    with pytest.raises(SchemaError) as caught:
        parse_type(text)
    assert caught.value.diagnostics[0].hint == hint


NAMES = st.sampled_from(["Layer", "Expert", "Mode"])
SIZES = st.sampled_from(["n", "2 * n", "3", "n + m"]).map(parse)
LEAVES = st.one_of(
    st.sampled_from(["bool", "int", "float", "complex", "str", "bytes", "path", "dtype"]).map(
        TYPES.get
    ),
    st.builds(
        Array,
        st.sampled_from(sorted(DTYPES)),
        st.lists(st.one_of(SIZES, st.just(...)), max_size=3).map(tuple),
    ),
    st.builds(Key, st.sampled_from([None, "rbg"]), st.lists(SIZES, max_size=2).map(tuple)),
    st.builds(Named, NAMES, st.lists(SIZES, max_size=2).map(tuple)),
    st.just(PyTree()),
    st.lists(
        st.one_of(st.text(max_size=4), st.integers(-9, 9), st.booleans()), min_size=1, max_size=3
    ).map(lambda values: LiteralOf(tuple(values))),
)


def _extend(inner):
    return st.one_of(
        inner.map(ListOf),
        inner.map(DictOf),
        st.lists(inner, min_size=1, max_size=3).map(lambda items: TupleOf(tuple(items))),
        inner.map(lambda item: TupleOf((item,), variadic=True)),
        st.lists(inner, min_size=2, max_size=3, unique=True).map(_union),
    )


def _union(options):
    flat = dict.fromkeys(
        o
        for option in options
        for o in (option.options if isinstance(option, Union) else (option,))
    )
    return Union(tuple(flat)) if len(flat) > 1 else next(iter(flat))


@given(st.recursive(LEAVES, _extend, max_leaves=6))
def test_parse_inverts_format(declared):
    assert parse_type(format_type(declared)) == declared


def test_walk_type_sees_everything():
    assert Named("A") in list(walk_type(parse_type("list[tuple[int, dict[str, A | null]]]")))
