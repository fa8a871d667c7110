"""Tests of what becomes of conditions on strings that a step renames."""

import pytest

from neuralqx_struct.evolution.renamed_words import Words, reworded
from neuralqx_struct.expressions import parse

NONE = frozenset()
RENAMED = Words({"a": "c"}, {"c": "a"}, frozenset("ab"), NONE, frozenset("cb"), NONE)
OPEN = Words({"a": "c"}, {"c": "a"}, frozenset("ab"), NONE, frozenset("cb"), NONE, open=True)
BESIDE = Words({"a": "c"}, {"c": "a"}, frozenset("ab"), {"k"}, frozenset("cb"), {"k"})


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("x == 'a'", "x == 'c'"),
        ("'a' == x and n > 1", "'c' == x and n > 1"),
        ("x == 'c'", None),  # the new name of another
        ("x == None", "x == None"),
        ("x == x", "x == x"),
        ("x < 'b'", None),
        ("'a' == x == 'b'", None),
        ("x == ('a' if n > 1 else 'b')", None),
        ("all(x)", None),
        ("len(x) > 1", "len(x) > 1"),
        ("n == 'a'", "n == 'a'"),
    ],
)
def test_a_condition_follows_the_names_of_its_strings(text, new):
    known = {"x": [RENAMED]}
    assert reworded(parse(text), lambda path: known.get(path, [])) == new


def test_a_string_has_a_length_of_its_own():
    assert reworded(parse("len(x) > 1"), lambda _: [RENAMED], {"x"}) is None


def test_names_that_are_not_known_lose_the_condition():
    assert reworded(parse("x == 'b'"), lambda _: None) is None


def test_other_strings_of_a_field_may_have_the_new_name():
    assert [RENAMED.distinct(text) for text in "abz"] == ["c", "b", "z"]
    assert [OPEN.distinct(text) for text in "abz"] == [None, "b", "z"]
    assert [BESIDE.distinct(text) for text in "abk"] == ["c", "b", "k"]
    assert (RENAMED.is_reversible, OPEN.is_reversible) == (True, False)
