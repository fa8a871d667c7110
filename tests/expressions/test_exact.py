"""Whole numbers in arrays: expressions give what Python gives for lists of ints, whatever holds the numbers."""

from __future__ import annotations

import builtins
import itertools
import operator

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neuralqx_struct as s
from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import parse
from neuralqx_struct.expressions.evaluation import evaluate
from neuralqx_struct.expressions.exact import limits_of
from tests.builders import every, refused

NUMPY = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int4",
    "uint4",
]
JAX = [name for name in NUMPY if "64" not in name]
HOLDERS = [("numpy", name) for name in NUMPY] + [("jax", name) for name in JAX]
COMPARISONS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
ARITHMETIC = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "/": operator.truediv,
}


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name) if "int4" in name else name)


def held(holder, numbers):
    library, name = holder
    array = np.array(numbers, dtype_of(name))
    return jnp.asarray(array) if library == "jax" else array


def near(limit):
    return st.integers(limit - 2, limit + 2)


@st.composite
def arrays(draw, most=4, count=None):
    holder = draw(st.sampled_from(HOLDERS))
    low, high = limits_of(dtype_of(holder[1]))
    within = st.integers(low, high) | st.sampled_from([low, high, 0, 1])
    fewest, most = (count, count) if count else (1, most)
    numbers = draw(st.lists(within, min_size=fewest, max_size=most))
    if holder[1] == "bool":
        numbers = [bool(number) for number in numbers]
    return holder, numbers


limits = [
    2**bits + shift for bits in (3, 4, 7, 8, 15, 16, 31, 32, 53, 63, 64) for shift in (-1, 0, 1)
]
numbers = st.sampled_from([*limits, *(-limit for limit in limits), 0, 1, -1]) | st.integers(
    -300, 300
)
halves = numbers.map(lambda number: number / 2) | st.sampled_from([np.inf, -np.inf])


def plain(value):
    return [item.item() if hasattr(item, "item") else item for item in np.asarray(value).tolist()]


@given(arrays(), numbers | halves, st.sampled_from([*COMPARISONS]), st.booleans())
def test_comparisons_with_a_number(array, number, symbol, first):
    holder, items = array
    text = f"c {symbol} x" if first else f"x {symbol} c"
    op = COMPARISONS[symbol]
    expected = [op(number, item) if first else op(item, number) for item in items]
    value = evaluate(parse(text), {"x": held(holder, items), "c": number})
    assert plain(value) == expected
    assert isinstance(value, jax.Array if holder[0] == "jax" else np.ndarray)
    assert evaluate(parse(f"all({text})"), {"x": held(holder, items), "c": number}) is all(expected)


@every("symbol", COMPARISONS)
def test_no_whole_number_is_a_fraction_and_no_float_a_number_between_two(symbol):
    op = COMPARISONS[symbol]
    floats = [2.0**53, -(2.0**53), 1.0, 1e300]
    for items, numbers in (
        ([5, 6], [5.5, -5.5]),
        (floats, [2**53 + 1, -(2**53) - 1, 2**53 - 1, 10**400, -(10**400)]),
    ):
        for number in numbers:
            value = evaluate(parse(f"x {symbol} c"), {"x": np.array(items), "c": number})
            assert plain(value) == [op(item, number) for item in items]


@given(
    st.integers(1, 3).flatmap(lambda n: st.tuples(arrays(count=n), arrays(count=n))),
    st.sampled_from([*COMPARISONS]),
)
def test_comparisons_of_arrays(pair, symbol):
    (holder, items), (other, more) = pair
    value = evaluate(parse(f"x {symbol} y"), {"x": held(holder, items), "y": held(other, more)})
    assert plain(value) == [COMPARISONS[symbol](a, b) for a, b in zip(items, more, strict=True)]


@given(arrays(), st.sampled_from(["sum", "min", "max", "all", "any"]))
def test_functions_of_all_elements(array, name):
    holder, items = array
    value = evaluate(parse(f"{name}(x)"), {"x": held(holder, items)})
    expected = getattr(builtins, name)(items)
    assert value == expected
    assert type(value) is type(expected)


@given(arrays(), numbers, st.sampled_from([*ARITHMETIC]), st.booleans(), numbers)
def test_arithmetic_with_a_number(array, number, symbol, first, limit):
    holder, items = array
    text = f"c {symbol} x" if first else f"x {symbol} c"
    names = {"x": held(holder, items), "c": number, "d": limit}
    op = ARITHMETIC[symbol]
    try:
        expected = [op(number, item) if first else op(item, number) for item in items]
    except ZeroDivisionError:
        with refused(SchemaError, "NQX115"):
            evaluate(parse(f"sum({text})"), names)
        return
    assert evaluate(parse(f"min({text})"), names) == min(expected)
    assert evaluate(parse(f"all({text} < d)"), names) is all(each < limit for each in expected)
    if symbol != "/":
        assert evaluate(parse(f"sum({text})"), names) == sum(expected)


@given(
    st.integers(1, 3).flatmap(lambda n: st.tuples(arrays(count=n), arrays(count=n))),
    st.sampled_from(["+", "-", "*"]),
)
def test_arithmetic_of_arrays(pair, symbol):
    (holder, items), (other, more) = pair
    names = {"x": held(holder, items), "y": held(other, more)}
    expected = [ARITHMETIC[symbol](a, b) for a, b in zip(items, more, strict=True)]
    assert evaluate(parse(f"sum(x {symbol} y)"), names) == sum(expected)
    assert evaluate(parse(f"max(abs(-(x {symbol} y)))"), names) == max(map(abs, expected))


@every("holder", HOLDERS)
def test_single_numbers(holder):
    low, high = map(int, limits_of(dtype_of(holder[1])))
    for value in (held(holder, high), held(holder, [high])[0]):
        names = {"x": value}
        assert evaluate(parse("x + 1000, x * 10 ** 20, x < 10 ** 30"), names) == (
            high + 1000,
            high * 10**20,
            True,
        )
    assert evaluate(parse("-x"), {"x": held(holder, low)}) == -low


def test_results_are_arrays_of_the_library_and_the_dtype():
    for array in (np.array([1, 2], np.int8), jnp.array([1, 2], jnp.int8)):
        made = evaluate(parse("2 * x + 1"), {"x": array})
        assert type(made) is type(array)
        assert made.dtype == np.int8
        assert made.tolist() == [3, 5]
        with refused(SchemaError, "NQX115", "int8", "100", "200"):
            evaluate(parse("100 * x"), {"x": array})
        assert evaluate(parse("x / 4"), {"x": array}).tolist() == [0.25, 0.5]


def test_powers():
    for x in (np.array([3, -2], np.int8), jnp.array([3, -2], jnp.int8)):
        assert evaluate(parse("sum(x ** 40)"), {"x": x}) == 3**40 + 2**40
        assert evaluate(parse("min(x ** -1)"), {"x": x}) == -0.5
        assert evaluate(parse("max(2 ** (x * 10))"), {"x": x}) == 2**30
        for text in (
            "x ** 64 ** 3",
            "(x ** 64) ** 64",
            "2 ** (x * 100)",
            "(x ** 64) * (x ** 64) * x ** 64",
        ):
            try:
                evaluate(parse(text), {"x": x})
            except SchemaError as error:
                assert error.code in ("NQX507", "NQX117", "NQX115")
            else:
                pytest.fail(text)


@pytest.mark.parametrize("convert", [np.asarray, jnp.asarray])
@pytest.mark.parametrize(
    "text",
    [
        "sum((i ** 0 + i ** 0) ** 31)",
        "sum(((i * 0 + 1) * 50000) * (i * 0 + 50000))",
        "max(i % 7 * 1000000000 - i // 2 * 300000000 + i)",
        "all((i - i) * 2147483647 + 2147483647 > i)",
        "min((i + i + i) * (i + i) * (i + i) * 100000)",
    ],
)
def test_chains_go_beyond_the_bits_that_each_step_needs(text, convert):
    numbers = np.array([-5, 0, 3, 20000], np.int32)
    whole = [int(each) for each in numbers]
    wanted = getattr(builtins, text[:3])(eval(text[3:], {}, {"i": each}) for each in whole)
    assert evaluate(parse(text), {"i": convert(numbers)}) == wanted


def test_arrays_of_floats():
    half = np.array([60000, 60000, np.inf], np.float16)
    tenth = np.array([0.1], np.float32)
    for convert in (np.asarray, jnp.asarray):
        names = {
            "h": convert(half),
            "f": convert(tenth),
            "g": convert(np.array([2**24, 1, 1], "f4")),
        }
        assert evaluate(parse("any(h >= 100000)"), names)
        assert not evaluate(parse("all(h < 100000)"), names)
        assert evaluate(parse("all(f <= 0.1) and all(f == 0.1)"), names)  # the float32 near it
        assert evaluate(parse("all(g < 16777217) and sum(g) == 16777218"), names)


def test_whole_numbers_beside_floats():
    for convert in (np.asarray, jnp.asarray):
        names = {
            "i": convert(np.array([2**24 + 1], np.int32)),
            "f": convert(np.array([2.0**24], "f4")),
        }
        assert evaluate(
            parse("all(i > f) and sum(i - f) == 1 and all(i * 0.5 == 8388608.5)"), names
        )
    big = np.array([2**53 + 1])
    assert evaluate(parse("all(i > f)"), {"i": big, "f": np.array([2.0**53])})


def test_floats_of_several_dtypes():
    for convert in (np.asarray, jnp.asarray):
        names = {"h": convert(np.array([1.5, 2.5], "f2")), "f": convert(np.array([1.5, 0.1], "f4"))}
        assert evaluate(parse("h == f"), names).tolist() == [True, False]
        assert str(evaluate(parse("h + f"), names).dtype) == "float32"
        assert evaluate(parse("rate in [0.5, 0.1]"), {"rate": names["f"][1:].reshape(())})
    keys = jax.random.split(jax.random.key(0))
    assert evaluate(parse("all(keys == keys)"), {"keys": keys})
    for text in ("max(keys)", "sum(keys)", "all(keys)", "isfinite(keys)", "keys + 1"):
        with refused(SchemaError, "NQX115", text):
            evaluate(parse(text), {"keys": keys})


def test_results_that_no_dtype_holds_are_refused():
    x = np.array([1, 2])
    for text in ("x // 0", "x % z", "7 // z", "x / z"):
        with refused(SchemaError, "NQX115", text):
            evaluate(parse(text), {"x": x, "z": np.array([0, 1])})
    both = {"u": np.array([2**63], "uint64"), "i": np.array([-1])}
    assert evaluate(parse("u + i"), both).tolist() == [2**63 - 1]  # int64: no dtype holds both
    with refused(SchemaError, "NQX115", 2**63 + 1):
        evaluate(parse("u - i"), both)
    with refused(SchemaError, "NQX507", "10,000,000"):  # each is an object of Python
        evaluate(parse("x * 4"), {"x": np.full(10_000_001, 2**62)})


def test_under_tracing_arrays_compare_as_those_of_jax():
    x, y = jnp.array([5, -6], jnp.int8), jnp.array([300, -300], jnp.int16)
    for text in ("x < y", "x <= y", "x != y", "x == y"):
        traced = jax.jit(lambda x, y, text=text: evaluate(parse(text), {"x": x, "y": y}))(x, y)
        assert traced.tolist() == evaluate(parse(text), {"x": x, "y": y}).tolist()


class Part(s.Struct):
    x: object


def test_under_tracing_values_of_items_are_joined():
    parts = [Part(x=1.0), Part(x=2.0)]
    for text in ("all(parts.x > 0)", "all(parts.x > 1)", "any(parts.x > 1)", "any(parts.x > 2)"):
        traced = jax.jit(lambda parts, text=text: evaluate(parse(text), {"parts": parts}))(parts)
        assert bool(traced) is evaluate(parse(text), {"parts": parts})


def test_under_tracing_comparisons_with_a_number_are_exact():
    x = jnp.array([5, 6], jnp.int8)
    for text in ("x < 50257", "x >= -1000", "x < 5.5", "x == 5"):
        expression = parse(text)
        traced = jax.jit(lambda x, e=expression: evaluate(e, {"x": x}))(x)
        assert traced.tolist() == evaluate(expression, {"x": x}).tolist()
    assert jax.jit(lambda x: evaluate(parse("x * 2 + sum(x)"), {"x": x}))(x).tolist() == [21, 23]


SCHEMA = """
language: "1"
schema: test.exact
version: 1
root: R
structs:
  R:
    fields:
      tokens: "int16[n]"
      total: {type: int, kind: static, derived: 10 * sum(tokens)}
    constraints:
      - {expr: all(tokens < 50257)}
      - {expr: sum(tokens) <= 65534}
"""


def test_schemas_take_and_give_the_same_for_numpy_and_jax(tmp_path):
    schema = s.load_schema(SCHEMA)
    for convert, numbers in itertools.product((np.asarray, jnp.asarray), ([32767, 32767], [1, 2])):
        made = schema.R(tokens=convert(np.array(numbers, np.int16)))
        assert made.total == 10 * sum(numbers)
        path = made.export(tmp_path / f"{convert.__module__} {numbers[0]}")
        assert s.validate(path, schema) == []
        with refused(s.ValidationError, "NQX416", "sum(tokens) = 98301"):
            schema.R(tokens=convert(np.full(3, 32767, np.int16)))


DERIVED = """
language: "1"
schema: test.single
version: 1
root: R
structs:
  R:
    fields:
      x: "int32[n]"
      total: {type: "int32[]", kind: opaque, derived: sum(x)}
      mean: {type: "float32[]", kind: opaque, derived: sum(x) / size(x)}
      twice: {type: "int32[n]", kind: opaque, derived: 2 * x}
"""


@pytest.mark.parametrize("convert", [np.asarray, jnp.asarray])
def test_derived_arrays_have_the_declared_dtype(convert):
    schema = s.load_schema(DERIVED)
    made = schema.R(x=convert(np.array([1, 2], np.int32)))
    for read in (lambda made: made, jax.jit(lambda made: (made.total, made.mean, made.twice))):
        found = read(made)
        values = found if isinstance(found, tuple) else (made.total, made.mean, made.twice)
        assert [str(value.dtype) for value in values] == ["int32", "float32", "int32"]
        assert [value.tolist() for value in values] == [3, 1.5, [2, 4]]
    with refused(s.ValidationError, "NQX411", "int32[]", "2147483648"):
        schema.R(x=convert(np.array([2**31 - 1, 1], np.int32)))
