"""Tests of what becomes of conditions on strings that a step renames."""

from neuralqx_struct.expressions import parse
from neuralqx_struct.expressions.renamed_words import Words, reworded
from tests.builders import every

RENAMED = Words({"a": "c"}, frozenset("ab"))


@every(
    ("text", "new"),
    [
        ("x == 'a'", "x == 'c'"),
        ("'a' == x and n > 1", "'c' == x and n > 1"),
        ("x in ['a', 'b']", "x in ['c', 'b']"),
        ("x == 'c'", None),  # the new name of another
        ("x == None", "x == None"),
        ("x == x", "x == x"),
        ("x < 'b'", None),
        ("'a' == x == 'b'", "'c' == x == 'b'"),
        ("x == ('a' if n > 1 else 'b')", None),
        ("x == n", None),
        ("all(x)", None),
        ("n == 'a'", "n == 'a'"),
    ],
)
def test_a_condition_follows_the_names_of_its_strings(text, new):
    assert reworded(parse(text), {"x": RENAMED}) == new


def test_names_that_are_not_known_lose_the_condition():
    assert reworded(parse("x == 'b'"), {"x": Words({"a": "c"}, None)}) is None


def test_a_string_that_becomes_another_is_not_distinct():
    assert [RENAMED.distinct(text) for text in "abc"] == ["c", "b", None]
    assert Words({"a": "b"}, frozenset("ab")).distinct("a") is None
