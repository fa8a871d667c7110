"""The table of dtypes agrees with numpy and ml_dtypes."""

import math

import ml_dtypes
import numpy as np
import pytest

from neuralqx_struct.dtypes import DTYPES
from tests.builders import every


@every("name", sorted(DTYPES))
def test_properties_are_those_of_the_libraries(name):
    known = DTYPES[name]
    dtype = np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)
    if known.family == "bool":
        return
    if known.family in ("integer", "unsigned"):
        info = ml_dtypes.iinfo(dtype)
        assert info.bits == known.bits
        assert info.max == 2**known.significand - 1
        return
    info = ml_dtypes.finfo(dtype)
    assert known.significand == info.nmant + 1
    low, high = known.exponents
    assert math.frexp(float(info.max))[1] - 1 == high
    smallest = (
        float(getattr(info, "smallest_subnormal", info.tiny))
        if name != "float8_e8m0fnu"
        else float(info.tiny)
    )
    assert smallest == 2.0**low


def _dtype(name):
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


FLOATING = [name for name, known in DTYPES.items() if known.family == "floating"]
NUMBERS = [
    0,
    -0.0,
    1,
    -1,
    0.1,
    5,
    7,
    15.5,
    30,
    240,
    448,
    464,
    480,
    57344,
    65504,
    65520,
    1e5,
    1e10,
    1e-3,
    1e-8,
]
NUMBERS += [3.4e38, 3.5e38, 1e-50, 2**70, 10**400, 5e-324, math.nan, math.inf, -math.inf]


@every("name", FLOATING)
def test_a_number_that_a_floating_dtype_holds_keeps_its_kind(name):
    """Rounding is no loss; zero, infinity and NaN in place of a number are, and saturation is one."""
    for number in NUMBERS:
        try:
            with np.errstate(all="ignore"):
                wide = np.float64(number)
                made = float(
                    wide.astype(np.float32).astype(_dtype(name)) if name != "float64" else wide
                )
        except OverflowError:
            assert not DTYPES[name].holds(number)
            continue
        same_kind = (made == 0, math.isfinite(made), math.isnan(made)) == (
            wide == 0,
            math.isfinite(wide),
            math.isnan(wide),
        )
        near = not math.isfinite(made) or abs(made - wide) <= abs(wide) * 0.35
        if DTYPES[name].holds(number):
            assert same_kind and near, number
        elif math.isfinite(wide) and wide:
            low, high = DTYPES[name].range
            assert not same_kind or not low <= abs(number) <= high or number < 0, number
        else:
            assert not same_kind, number


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("int8", [-128, 127], [-129, 128, 1.0, True, None, "1"]),
        ("uint4", [0, 15], [-1, 16]),
        ("int2", [-2, 1], [2, -3]),
        ("uint64", [2**64 - 1], [2**64]),
        ("bool", [True, False], [0, 1, 1.0]),
        (
            "complex64",
            [1, 1.5, 1 + 2j, complex(math.nan, math.inf)],
            [1e39, complex(0, 1e39), True],
        ),
        ("float32", [1, 0.1], [1j, False, "0.1", [1]]),
    ],
)
def test_numbers_inside_and_outside_of_a_dtype(name, inside, outside):
    assert all(map(DTYPES[name].holds, inside))
    assert not any(map(DTYPES[name].holds, outside))


@every("name", [name for name in FLOATING if DTYPES[name].bits <= 16])
def test_the_range_is_that_of_all_values(name):
    bits = DTYPES[name].bits
    bytes_of_all = np.arange(2**bits, dtype="u2" if bits > 8 else "u1")
    with np.errstate(all="ignore"):
        every = bytes_of_all.view(_dtype(name)).astype(float)
    finite = abs(every[np.isfinite(every)])
    assert (finite[finite > 0].min(), finite.max()) == DTYPES[name].range
    present = {
        "inf": np.isinf(every).any(),
        "nan": np.isnan(every).any(),
        "zero": (every == 0).any(),
        "negative zero": ((every == 0) & np.signbit(every)).any(),
        "negative": (every < 0).any(),
    }
    assert {value for value, there in present.items() if not there} == DTYPES[name].lacks
