"""Patterns of text fields: which are accepted, and that matching agrees with Python's engine in linear time."""

import re

from hypothesis import given
from hypothesis import strategies as st

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.schema.patterns import LONGEST_TEXT, matches, objection_to, occurs, texts_of
from tests.builders import bounded, every, refused


@every(
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


@every(
    ("pattern", "code", "reason"),
    [
        ("((ab){300}c){300}" * 4, "NQX117", "fewer repeats"),
        ("a{0,4096}" * 110, "NQX117", "fewer repeats"),
        ("a" * 1001, "NQX117", "1000 characters"),
        (r"(a)\1", "NQX114", "backreferences are not supported"),
        (r"(?=a)b", "NQX114", "look-around, including"),
        (r"a\Z", "NQX114", "unrecognized escape"),
        ("a{,2}", "NQX114", "valid decimal"),
        ("[", "NQX114", "unclosed character class"),
        ("a)|(?:b", "NQX114", "unopened group"),
        ("(?x)a #", "NQX114", "unclosed group"),
        ("(" * 500 + ")" * 500, "NQX114", "nested parentheses"),
    ],
)
def test_patterns_that_the_engine_refuses(pattern, code, reason):
    objection = objection_to(pattern)
    assert objection is not None
    assert objection[0] == code
    assert reason in objection[1]
    with refused(SchemaError, code):
        matches(pattern, "a")


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
    ]
)
_REPEATS = st.sampled_from(
    ["", "*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?", "??", "{1,2}?", "{2,300}"]
)
_PARTS = st.tuples(_ITEMS, _REPEATS).map("".join) | st.sampled_from(
    ["^", "$", r"\b", r"\B", r"\A", "()"]
)
_PATTERNS = st.recursive(
    st.lists(_PARTS, max_size=5).map("".join),
    lambda inner: st.builds(
        "{}{}{}){}{}".format,
        inner,
        st.sampled_from(["(", "(?:", "(?P<name>"]),
        st.lists(inner, min_size=1, max_size=3).map("|".join),
        st.sampled_from(["", "?", "{0,2}"]),
        inner,
    ),
    max_leaves=6,
)


@given(_PATTERNS, st.text("ab.- \nß]", max_size=8))
def test_a_pattern_means_what_it_means_in_python(pattern, text):
    # In Python before 3.14, empty text has no place without a word boundary.
    if objection_to(pattern) is None and (text or r"\B" not in pattern):
        assert matches(pattern, text) == (re.fullmatch(pattern, text) is not None)


@every(
    "pattern",
    [
        "(a+)+b",
        "(a*|a)*b",
        "a*a*b" * 100,
        "a*" * 500,
        "(a|a)" * 200,
        "(a|ab|b)" * 100,
        "(" * 90 + "a*" + "|a*)" * 90,
        "".join(f"[a{chr(256 + n)}]*" for n in range(190)),
        r"\b" * 500,
        "(a|b|(aa*c|a{0,4095}ab)*x" + "|a{1,4000}c" * 4 + ")*",
        "(){4000}" * 120,
        "(a{0,100}){0,100}",
    ],
)
@every("text", ["a" * LONGEST_TEXT, "ab" * (LONGEST_TEXT // 2)])
def test_the_worst_patterns_are_matched_in_bounded_time(pattern, text):
    assert objection_to(pattern) is None
    with bounded():
        matches(pattern, text)


def test_parts_of_texts():
    assert occurs("[0-9]+", "run-17")
    assert not occurs("^[0-9]+", "run-17")


@every(
    "pattern",
    [
        r"[^a]x",
        r"[a-c]{2}",
        r"\d+\S",
        r"[\d_]+",
        r"[^\da-f]",
        r"^ab$",
        r"\bab\b",
        r"(?i:ab)",
        r"(run|trial)-\d{2,}",
        r"[^a]|.\W",
    ],
)
def test_texts_of_a_pattern_match_it(pattern):
    assert texts_of(pattern) and all(matches(pattern, text) for text in texts_of(pattern))


def test_there_are_no_texts_of_what_is_not_simple():
    for pattern in (r"(a)\1", r"(?=a)b", r"a(?!b)c", "[a"):
        assert texts_of(pattern) == ()
