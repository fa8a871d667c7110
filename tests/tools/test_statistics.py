"""Statistics of arrays: against numpy in one piece, at the ends of dtypes, in pieces, and of values without numbers."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from neuralqx_struct.tools import statistics
from neuralqx_struct.tools.statistics import statistics_of

FLOATS = st.floats(-1e6, 1e6) | st.sampled_from([np.nan, np.inf, -np.inf, 0.0])


@given(arrays("float64", array_shapes(min_side=0, max_side=5), elements=FLOATS), st.integers(1, 9))
def test_statistics_are_those_of_numpy_whatever_the_pieces(array, piece):
    whole = statistics_of(array)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "_PIECE", piece)
        found = statistics_of(array)
    finite = array[np.isfinite(array)]
    assert (found.size, found.nan) == (array.size, np.isnan(array).sum())
    assert found.infinite == np.isinf(array).sum()
    assert found.zeros == (array == 0).sum()
    assert found.counts == whole.counts
    if finite.size:
        assert (found.minimum, found.maximum) == (finite.min(), finite.max())
        assert found.mean == pytest.approx(finite.mean(), abs=1e-6)
        assert found.deviation == pytest.approx(finite.std(), rel=1e-6, abs=1e-6)
        assert sum(found.counts) == finite.size
    else:
        assert (found.mean, found.counts) == (None, ())


DTYPES = {
    "bool": (np.array([True, False, True]), 0.0, 1.0),
    "uint64": (np.array([2**64 - 1, 0], "uint64"), 0.0, 2.0**64),
    "int8": (np.array([-128, 127], "int8"), -128.0, 127.0),
    "float64": (np.array([-1.7e308, 1.7e308]), -1.7e308, 1.7e308),
    "bfloat16": (np.array([1.5, -2.0], ml_dtypes.bfloat16), -2.0, 1.5),
    "int4": (np.array([-8, 7], ml_dtypes.int4), -8.0, 7.0),
    "complex64": (np.array([3 + 4j, 0], "complex64"), 0.0, 5.0),
}


@pytest.mark.parametrize("name", DTYPES)
def test_every_family_of_dtypes(name):
    array, low, high = DTYPES[name]
    found = statistics_of(array)
    assert (found.minimum, found.maximum) == (low, high)
    assert (found.counts[0], found.counts[-1], sum(found.counts)) == (
        (array == array.min()).sum() if name != "complex64" else 1,
        (array == array.max()).sum() if name != "complex64" else 1,
        array.size,
    )


def test_the_largest_floats_overflow_into_infinity(monkeypatch):
    monkeypatch.setattr(statistics, "_PIECE", 1)
    assert statistics_of(np.array([1.7e308])).deviation == 0
    assert statistics_of(np.array([-1.7e308, 1.7e308])).deviation == np.inf


def test_values_without_numbers_have_none():
    assert statistics_of(np.array(["a"])) is None
    assert statistics_of(np.array(["2020-01-01"], "datetime64[D]")) is None
    assert str(statistics_of(np.zeros(0))) == ""
    assert str(statistics_of(np.array([np.nan, np.inf]))) == "NaN: 1, infinite: 1"
