import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuralqx_struct.decimals import MOST_BITS, brief_integer, read_decimal, write_decimal


@given(st.integers())
def test_small_ones_read_as_python_writes_them(value):
    assert write_decimal(value) == str(value) and read_decimal(str(value)) == value


@pytest.mark.parametrize("value", [10**4000, 10**4000 - 1, -(10**8000) - 7, 2**MOST_BITS - 1], ids=int.bit_length)
def test_large_ones(value):
    text = write_decimal(value)
    assert read_decimal(text) == value and len(text) <= 100_001 and text.lstrip("-")[0] != "0"


def test_messages():
    assert (brief_integer(-12), brief_integer(10**5000)) == ("-12", "an int of 16610 bits")
