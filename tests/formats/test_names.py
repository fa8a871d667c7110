"""Names of nested arrays: joining keys and splitting names are inverse."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuralqx_struct.errors import SerializationError
from neuralqx_struct.formats.table import joined, require_separator, split
from tests.builders import refused

KEYS = st.lists(st.text("ab./\\é", max_size=4), min_size=1, max_size=4)


@settings(max_examples=200)
@given(KEYS, st.sampled_from("./:"))
def test_split_is_the_inverse_of_joined(keys, separator):
    assert split(joined(keys, separator), separator) == keys


@settings(max_examples=200)
@given(st.text("ab.\\", max_size=6))
def test_any_name_splits(name):
    assert len(split(name)) >= 1


@pytest.mark.parametrize("separator", ["", "::", "\\"])
def test_separators_that_do_not_split(separator):
    with refused(SerializationError, "NQX614", repr(separator)):
        require_separator(separator)
