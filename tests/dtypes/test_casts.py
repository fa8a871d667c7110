"""Promotions between all dtypes, exact casts, and complex arrays of their parts, beside the values of each."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuralqx_struct.dtypes import DTYPES, ML_DTYPES, dtype_named, promotes
from neuralqx_struct.dtypes.casts import cast, join_complex, part_complex
from neuralqx_struct.errors import MigrationError
from tests.builders import every

PARTS = {"complex64": "float32", "complex128": "float64"}
REAL = [name for name in DTYPES if name not in {"bool", *PARTS}]
SMALL = [name for name in REAL if DTYPES[name].bits <= 8]


def values(name):
    """Every value of a dtype of at most 16 bits; of others those at the ends of ranges and of significands."""
    known, dtype = DTYPES[name], dtype_named(name)
    if known.bits <= 16 and known.exponents is not None:
        return np.arange(2**known.bits, dtype="u2" if known.bits > 8 else "u1").view(dtype)
    if known.exponents is None:
        low, high = known.range
        if known.bits <= 16:
            return np.arange(low, high + 1).astype(dtype)
        powers = {sign * 2**n + k for n in range(64) for k in (-1, 0, 1) for sign in (1, -1)}
        return np.array([n for n in {low, high, *powers} if low <= n <= high], dtype)
    info = np.finfo(dtype)
    powers = np.ldexp(np.ones(1, dtype), np.arange(known.exponents[0], known.exponents[1] + 1))
    ends = [0.0, -0.0, math.inf, -math.inf, math.nan, info.max, info.min, -1.0]
    return np.concatenate([np.array(ends, dtype), powers, powers * (1 + info.eps)])


def numbers(array):
    """The values as Python numbers, with NaN and the sign of zero as text."""
    plain = array.tolist() if array.dtype.kind in "iu" else [*map(float, array.astype("f8"))]
    if DTYPES[array.dtype.name].exponents is None:
        return [*map(int, plain)]
    return ["nan" if math.isnan(x) else f"{x}" if x == 0 else x for x in plain]


def converted(array, new):
    with np.errstate(all="ignore"):
        wide = array.astype("f4") if array.dtype.name in ML_DTYPES else array
        return wide.astype(dtype_named(new))


def kept(old, new):
    """True if each value of ``old`` is the same number in ``new``."""
    array, b = values(old), DTYPES[new]
    before = numbers(array)
    if b.exponents is None:
        low, high = b.range
        return all(type(x) is int and low <= x <= high for x in before)
    after = numbers(converted(array, new))
    return all(
        x == y or (type(x) is int and y == (f"{x}.0" if x == 0 else x))
        for x, y in zip(before, after, strict=True)
    )


@every("new", REAL)
@every("old", REAL)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_dtype_promotes_to_those_that_hold_all_its_values(old, new):
    assert promotes(old, new) is kept(old, new)


@every("old", DTYPES)
def test_complex_dtypes_promote_as_their_parts(old):
    for new, part in PARTS.items():
        assert promotes(old, new) is (old != "bool" and promotes(PARTS.get(old, old), part))
    assert not any(promotes(new, old) for new in PARTS if old not in PARTS)
    assert promotes(old, "bool") is (old == "bool") is promotes("bool", old)


@every("old", SMALL)
@every("new", REAL)
def test_an_exact_cast_changes_no_value(old, new):
    """Each alone: 6 of float4_e2m1fn once became 8 of float8_e8m0fnu."""
    for value in values(old):
        alone = np.array([value])
        try:
            made = cast(alone, new, exact=True, path="$")
        except MigrationError:
            continue
        (before,), (after,) = numbers(alone), numbers(made)
        assert before == after or float(before) == float(after)


WHOLE = {"int8": (-128, 127), "uint8": (0, 255), "int4": (-8, 7), "uint64": (0, 2**64 - 1)}


@every("name", [*WHOLE, "int64"])
@every("source", ["float32", "float64", "bfloat16"])
def test_integers_of_floats_are_the_same_on_all_processors(name, source):
    low, high = WHOLE.get(name, (-(2**63), 2**63 - 1))
    given = np.array([1.75, -1.75, -0.0, math.nan, math.inf, -math.inf, 1e30, -1e30], source)
    expected = [1, max(-1, low), 0, 0, high, low, high, low]
    assert cast(given, name, exact=False, path="$").tolist() == expected
    assert cast(np.array(math.nan, source), name, exact=False, path="$").tolist() == 0


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_complex_parts_bit_by_bit(real, imaginary):
    a, b = (np.array([bits], "u4").view("f4") for bits in (real, imaginary))
    whole = join_complex(a, b, "complex64")
    assert part_complex(whole, imaginary=False).tobytes() == a.tobytes()
    assert part_complex(whole, imaginary=True).tobytes() == b.tobytes()
