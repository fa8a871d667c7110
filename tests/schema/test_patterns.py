"""Patterns of text fields: which are accepted, and that matching agrees with Python's engine in bounded time."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.schema.patterns import LONGEST_TEXT, matches, objection_to
from tests.builders import bounded


@pytest.mark.parametrize(
    "pattern",
    [
        r"[a-z]+",
        r"\w+\.\w+",
        r"[^/]+/[^/]+",
        r"\d{4}-\d{2}",
        r"(cat|dog)s?",
        r"a{0,5}b{1,3}",
        r".*",
        "^x$",
        r"\S*\s\D*",
        r"[a-z]\w*(\.[a-z]\w*)*",
        r"(?:\d{2}:)+",
        r"(v\d+)?",
        r"(-(a|bc)+)*",
        r"(?:ab){2,3}",
    ],
)
def test_ordinary_patterns_are_taken(pattern):
    assert objection_to(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "code"),
    [
        (r"(a+)+", "NQX117"),
        (r"(a|b+)*", "NQX117"),
        (r"(a?){2}", "NQX117"),
        (r"((a*)b?)*", "NQX117"),
        (r"(ab)*+", "NQX117"),
        ("(ab){0,400}", "NQX117"),
        ("((ab){30}c){30}", "NQX117"),
        ("(" * 110 + "a" + ")*" * 110, "NQX117"),
        ("(" + "ab|" * 60 + "c)*", "NQX117"),
        (r"(a)\1", "NQX117"),
        (r"(?=a)b", "NQX117"),
        (r"(?i:a)", "NQX117"),
        (r"(?i)a", "NQX114"),
        ("a" * 1001, "NQX117"),
        ("[", "NQX114"),
        ("(" * 500 + ")" * 500, "NQX114"),
    ],
)
def test_patterns_that_cannot_be_bounded_are_refused(pattern, code):
    objection = objection_to(pattern)
    assert objection is not None
    assert objection[0] == code


_ITEMS = st.sampled_from(
    [
        "a",
        "b",
        r"\.",
        ".",
        "[ab]",
        "[^a]",
        r"\w",
        r"\s",
        r"\D",
        r"\x61",
        "]",
        "-",
        "[]a]",
        "(?:a)",
        r"\n",
        "ß",
        "{",
    ]
)
_REPEATS = st.sampled_from(
    [
        "",
        "*",
        "+",
        "?",
        "{2}",
        "{0,2}",
        "{1,}",
        "{,2}",
        "{,}",
        "*?",
        "+?",
        "??",
        "*+",
        "++",
        "?+",
        "{1,2}+",
        "{2,5000}",
    ]
)
_PARTS = st.tuples(_ITEMS, _REPEATS).map("".join) | st.sampled_from(
    ["^", "$", r"\b", r"\B", r"\A", r"\Z", "{a", "{}", "()"]
)
_PATTERNS = st.recursive(
    st.lists(_PARTS, max_size=5).map("".join),
    lambda inner: st.builds(
        "{}{}{}){}{}".format,
        inner,
        st.sampled_from(["(", "(?:", "(?P<name>"]),
        st.lists(inner, min_size=1, max_size=3).map("|".join),
        _REPEATS,
        inner,
    ),
    max_leaves=6,
)


@given(_PATTERNS, st.text("ab.- \nß]{}", max_size=8))
def test_matching_agrees_with_the_engine_of_python(pattern, text):
    if objection_to(pattern) is None:
        assert matches(pattern, text) == (re.fullmatch(pattern, text) is not None)


@pytest.mark.parametrize(
    "pattern",
    [
        "a*a*b" * 100,
        "a*" * 500,
        "(a|a)" * 200,
        "(a|ab|b)" * 100,
        "(" * 90 + "a*" + "|a*)" * 90,
        "a{0,4096}" * 110,
        "a{0,4096}+" * 100,
        "".join(f"[a{chr(256 + n)}]*" for n in range(190)),
        r"\b" * 500,
        "(a|aa*c" + "|aa*c" * 6 + ")*",
        "(a|b|(aa*c|a{0,4095}ab)*x" + "|a{1,4000}c" * 4 + ")*",
        "(a|b|(a|b|(a|b)*c)*c)*",
        "(){4000}" * 120,
    ],
)
@pytest.mark.parametrize("text", ["a" * LONGEST_TEXT, "ab" * (LONGEST_TEXT // 2)])
def test_the_worst_patterns_are_matched_in_bounded_time(pattern, text):
    assert objection_to(pattern) is None
    with bounded():
        matches(pattern, text)


@pytest.mark.parametrize("pattern", ["(?:|a)", "(?:a?)b", "(?:a{0,2}b){2}", "(?:|a)*"])
@pytest.mark.parametrize("text", ["", "a", "b", "aab", "abab"])
def test_groups_of_one_character(pattern, text):
    assert matches(pattern, text) is (re.fullmatch(pattern, text) is not None)


def test_a_pattern_that_lint_refuses_matches_nothing():
    with pytest.raises(SchemaError, match="NQX117"):
        matches("(a+)+b", "a" * 100)
