"""The table of dtypes agrees with numpy and ml_dtypes."""

import math

import ml_dtypes
import numpy as np
import pytest

from neuralqx_struct.dtypes import DTYPES


@pytest.mark.parametrize("name", sorted(DTYPES))
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
