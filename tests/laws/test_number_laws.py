"""Laws of numbers in expressions: Python's own evaluation of each element is the model, whatever library and dtype holds it.

Numbers are drawn at the limits of every dtype and beyond them.
"""

import math
import operator

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import parse
from neuralqx_struct.expressions.evaluation import evaluate
from neuralqx_struct.expressions.exact import limits_of

WHOLE = ["bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (4, 8, 16, 32, 64))]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
LIBRARIES = {"numpy": np.asarray, "jax": jnp.asarray}
COMPARISONS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
#: Larger ones may be refused: bounds of results are those of their operands.
LARGE = 2**120


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name, name))


@pytest.fixture(autouse=True, scope="module")
def all_dtypes():
    with jax.enable_x64(True):
        yield


powers = st.sampled_from([0, 3, 4, 7, 8, 11, 15, 16, 24, 31, 32, 53, 63, 64, 70])
edges = st.builds(
    lambda bits, shift, sign: sign * (2**bits + shift),
    powers,
    st.integers(-2, 2),
    st.sampled_from([1, -1]),
)


def numbers_of(name):
    """Whole numbers of a dtype, mostly near its limits."""
    low, high = limits_of(dtype_of(name))
    near = [n for n in (low, low + 1, -1, 0, 1, 2, high - 1, high) if low <= n <= high]
    drawn = st.sampled_from(near) | st.integers(low, high)
    return drawn.map(bool) if name == "bool" else drawn


@st.composite
def arrays(draw, count):
    library, name = draw(st.sampled_from([*LIBRARIES])), draw(st.sampled_from(WHOLE))
    numbers = draw(st.lists(numbers_of(name), min_size=count, max_size=count))
    return numbers, LIBRARIES[library](np.array(numbers, dtype_of(name)))


leaves = st.sampled_from(["x", "y", "n", "m"]) | edges.map(lambda number: f"({number})")
halves = edges.map(lambda number: f"({number / 2})")


def grown(parts):
    """Expressions of whole numbers, and of truth values, of smaller ones."""
    pairs = st.tuples(parts, st.sampled_from(["+", "-", "*", "//", "%"]), parts)
    fractions = st.one_of(
        parts,
        halves,
        st.tuples(parts, st.sampled_from(["/"]), parts).map("({0[0]} / {0[2]})".format),
    )
    compared = st.tuples(fractions, st.sampled_from([*COMPARISONS]), fractions)
    return st.one_of(
        pairs.map("({0[0]} {0[1]} {0[2]})".format),
        compared.map("({0[0]} {0[1]} {0[2]})".format),
        parts.map("(-{})".format),
        parts.map("abs({})".format),
        st.tuples(parts, st.integers(0, 3)).map("({0[0]} ** {0[1]})".format),
    )


expressions = st.recursive(leaves, grown, max_leaves=6)


def by_python(text, names):
    """The values of an expression, for each element; None where Python has none, or numbers are large."""
    found = []
    for x, y in zip(names["x"], names["y"], strict=True):
        try:
            found.append(eval(text, {"abs": abs}, {**names, "x": x, "y": y}))
        except (ZeroDivisionError, OverflowError) as error:
            return type(error)
    return found


@given(
    st.integers(1, 3).flatmap(lambda n: st.tuples(arrays(n), arrays(n))), edges, edges, expressions
)
@example((([127], np.array([127], np.int8)), ([1], jnp.array([1], jnp.int8))), 0, 0, "(x + y)")
@example((([5], jnp.array([5], jnp.int16)), ([1], jnp.array([1]))), 50257, 0, "(x < n)")
def test_whole_numbers_are_those_of_python(pair, n, m, text):
    (xs, x), (ys, y) = pair
    plain = {"x": xs, "y": ys, "n": n, "m": m}
    expected = by_python(text, plain)
    names = {**plain, "x": x, "y": y, "w": np.array([1, 7, 1000][: len(xs)])}
    try:
        # Of an array in all places, with its least, largest and weighted numbers; of a number itself.
        found = evaluate(parse(f"min(w * 0 + {text}), max(w * 0 + {text}), sum(w * {text})"), names)
    except SchemaError as error:
        if error.code == "NQX507":
            return  # checked below
        assert error.code == "NQX115" and expected in (ZeroDivisionError, OverflowError), text
        return
    assert type(expected) is list, text
    weighted = sum(w * each for w, each in zip([1, 7, 1000], expected, strict=False))
    assert found == (min(expected), max(expected), weighted), text
    assert {type(each) for each in found} <= {int}


@given(arrays(2), edges, st.sampled_from(["+", "-", "*"]))
def test_results_up_to_120_bits_are_never_refused(pair, number, symbol):
    numbers, array = pair
    total = evaluate(parse(f"sum(x {symbol} n)"), {"x": array, "n": number})
    assert total == sum(eval(f"x {symbol} n", {}, {"x": x, "n": number}) for x in numbers)


@given(
    st.sampled_from([name for name in WHOLE if name != "bool"]),
    st.sampled_from([*LIBRARIES]),
    st.data(),
)
def test_results_have_the_dtype_or_are_refused(name, library, data):
    numbers = data.draw(st.lists(numbers_of(name), min_size=1, max_size=3))
    n = data.draw(st.sampled_from([1, 2, -1]))
    array = LIBRARIES[library](np.array(numbers, dtype_of(name)))
    low, high = limits_of(dtype_of(name))
    expected = [number * n + 1 for number in numbers]
    try:
        made = evaluate(parse("x * n + 1"), {"x": array, "n": n})
    except SchemaError:
        assert min(expected) < low or max(expected) > high
        return
    assert isinstance(made, jax.Array if library == "jax" else np.ndarray)
    assert made.dtype == array.dtype and np.asarray(made).astype(object).tolist() == expected


@st.composite
def floats(draw, name):
    """Numbers of a dtype of floats, also infinite ones and NaN."""
    some = st.one_of(
        edges.map(float),
        st.floats(width=16 if name in ("float16", "bfloat16") else 32 if name == "float32" else 64),
        st.sampled_from([0.1, -0.1, 0.0, -0.0, math.inf, math.nan, 1e-7, 65504.0]),
    )
    with np.errstate(all="ignore"):
        return np.array([draw(some)], np.float64).astype(dtype_of(name))


def as_held(number, dtype):
    """The number that a comparison with an array of floats sees."""
    if type(number) is int:
        return number
    with np.errstate(all="ignore"):
        rounded = float(np.array([number], np.float64).astype(dtype)[0])
    return rounded if math.isfinite(rounded) or not math.isfinite(number) else number


@given(
    st.sampled_from(FLOATS).flatmap(floats),
    edges | edges.map(lambda number: number / 3) | st.sampled_from([0.1, math.inf, 1e-9, 0.3]),
    st.sampled_from([*COMPARISONS]),
    st.booleans(),
)
def test_floats_beside_numbers(array, number, symbol, first):
    held = float(array[0])
    limit = as_held(number, array.dtype)
    op = COMPARISONS[symbol]
    expected = op(limit, held) if first else op(held, limit)
    text = f"c {symbol} x" if first else f"x {symbol} c"
    for convert in LIBRARIES.values():
        for value in (convert(array), convert(array)[0], array[0]):
            found = evaluate(
                parse(f"all({text})" if value.shape else text), {"x": value, "c": number}
            )
            assert bool(found) is expected, (array, number)


@given(st.sampled_from(FLOATS), st.data())
def test_numpy_and_jax_agree_about_floats(name, data):
    x, y = data.draw(floats(name)), data.draw(floats(name))
    for text in ("x + y", "x * 2 - y", "x / 3", "abs(-x)", "x < y", "x * y <= 0.1", "isfinite(x)"):
        made = [
            evaluate(parse(text), {"x": convert(x), "y": convert(y)})
            for convert in LIBRARIES.values()
        ]
        assert isinstance(made[1], jax.Array) and made[0].dtype == made[1].dtype
        assert np.asarray(made[0]).tobytes() == np.asarray(made[1]).tobytes(), (text, x, y)
    total = evaluate(parse("sum(x)"), {"x": np.concatenate([x, x, y])})
    with np.errstate(all="ignore"):
        expected = float(np.concatenate([x, x, y]).astype(np.float64).sum())
    assert total == expected or math.isclose(total, expected, rel_tol=1e-12) or math.isnan(total)


@pytest.mark.parametrize("name", FLOATS)
def test_nan_is_compared_without_a_warning(name):
    for convert in LIBRARIES.values():
        names = {"x": convert(np.array(["nan", "nan"], np.float64).astype(name))}
        for text in ("all(x < x)", "all(x <= 1)", "min(x) > 0", "max(x) < 0.5", "any(x == 0)"):
            assert not bool(evaluate(parse(text), names)), text
