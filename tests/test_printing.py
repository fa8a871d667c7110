import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuralqx_struct.printing import (
    MOST_BITS,
    brief,
    brief_array,
    brief_integer,
    brief_json,
    brief_leaf,
    brief_plain,
    brief_repr,
    escaped,
    first_line,
    items,
    read_decimal,
    table,
    tag,
    write_decimal,
)
from tests.builders import ReadPage, every


class Broken:
    def __repr__(self):
        raise RuntimeError("no")


@every(
    ("value", "text"),
    [
        (1, "1"), ("a", "'a'"), (None, "None"), ([1, 2], "[1, 2]"), ((1,), "(1,)"), ((), "()"), ({"a": 1}, "{'a': 1}"),
        (list(range(9)), "[0, 1, 2, ..., 8]"), ({i: i for i in range(9)}, "{0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5, ...}"),
        (np.zeros((2, 9)), "float64[2, 9]"), (np.arange(2), "int64[2]([0, 1])"), (jnp.float32(2), "float32[](2.0)"),
        (Broken(), "<Broken whose repr fails: RuntimeError>"), (jax.ShapeDtypeStruct((3,), jnp.int8), "int8[3]"),
    ],
)  # fmt: skip
def test_brief(value, text):
    assert brief(value) == text


def test_each_kind_of_short_text():
    assert brief_leaf(np.arange(2)) == "int64[2]" and brief_leaf([1, 2]) == "[1, 2]"
    assert brief_leaf(jax.ShapeDtypeStruct((10**5000,), "int8")) == "int8[an int of 16610 bits]"
    assert brief_repr((1,) * 9) == repr((1,) * 9) and len(brief_repr("x" * 999)) == 200
    assert brief_repr(Broken()) == "<Broken whose repr fails: RuntimeError>"
    assert [*map(brief_json, (None, True, "a", [1, None]))] == ["null", "true", "'a'", "[1, null]"]
    assert [*map(brief_plain, (False, [1], {}, b""))] == ["false", "a list", "an object", "bytes"]
    assert first_line(ValueError(" one\ntwo")) == "one" and len(first_line("x" * 999)) == 300


def test_long_text_is_cut():
    assert len(brief("x" * 10_000)) == 200


def test_tracers_and_keys_have_a_text():
    texts = []
    jax.jit(lambda x: texts.append(brief(x)) or x)(jnp.ones(3))
    assert texts == ["float32[3]"]
    assert brief(jax.random.key(0)) == "key<fry>[]"
    assert brief_array(np.zeros((1, 2), "int8")) == "int8[1, 2]"


def test_deleted_arrays_have_a_text():
    array = jnp.ones(3)
    array.delete()
    assert brief(array) == "float32[3]"


@given(st.integers())
def test_small_ones_read_as_python_writes_them(value):
    assert write_decimal(value) == str(value) and read_decimal(str(value)) == value


@pytest.mark.parametrize(
    "value", [10**4000, 10**4000 - 1, -(10**8000) - 7, 2**MOST_BITS - 1], ids=int.bit_length
)
def test_large_ones(value):
    text = write_decimal(value)
    assert read_decimal(text) == value and len(text) <= 100_001 and text.lstrip("-")[0] != "0"


def test_messages():
    assert (brief_integer(-12), brief_integer(10**5000)) == ("-12", "an int of 16610 bits")


@given(st.text())
def test_no_text_becomes_markup_or_steers(value):
    found = ReadPage(tag("p", escaped(value), title=value))
    (name, attributes), *more = found.seen
    assert (name, more) == ("p", [])
    shown = "".join(found.texts)
    assert attributes.get("title", "") == shown
    assert not set(shown) & set("\x00\x1b\u202e\u2028")


def test_elements():
    assert tag("a", "x", class_="k", aria_label="l", href=None) == (
        '<a class="k" aria-label="l">x</a>'
    )
    assert items(["a", "b"]) == "<ul><li>a</li><li>b</li></ul>"
    found = ReadPage(table(["a"], [["1"], ["2"]], "of <b>"))
    assert [name for name, _ in found.seen].count("td") == 2
    assert "of <b>" in found.texts
