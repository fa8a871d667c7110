"""Reading JSON: exactly what the standard library reads, less what is no schema file."""

from __future__ import annotations

import json
import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.schema import text as limits
from neuralqx_struct.schema.text.loader import read_text
from tests.builders import cases, every


def problems(text, **options):
    with pytest.raises(SchemaError) as caught:
        read_text(text, **options)
    return caught.value.diagnostics


def places(text, **options):
    return [(d.code, d.line, d.column) for d in problems(text, **options)]


JSON_PROBLEMS = [
    ("", "NQX001", 1, 1),
    (" \n", "NQX001", 1, 1),
    ('{"a": 1, "a": 2}', "NQX014", 1, 10),
    ("[NaN,\n -Infinity]", "NQX013", 1, 2),
    ("[1e999]", "NQX013", 1, 2),
    ("[" * 65, "NQX005", 1, 65),
    ("[" + "9" * 641 + "]", "NQX005", 1, 2),
    ('"' + "x" * (limits.MAX_SCALAR + 1) + '"', "NQX005", 1, 1),
    ('{"a": 1,}', "NQX001", 1, 9),
    ("[1, 2", "NQX001", 1, 1),
    ('{"a": [}', "NQX001", 1, 8),
    ("[1 2]", "NQX001", 1, 4),
    ("{'a': 1}", "NQX001", 1, 2),
    ("{a: 1}", "NQX001", 1, 2),
    ('{"a" 1}', "NQX001", 1, 6),
    ('{"a": 1} // c', "NQX001", 1, 10),
    ("[True]", "NQX001", 1, 2),
    ("[01]", "NQX001", 1, 3),
    ("[+1]", "NQX001", 1, 2),
    ("[.5]", "NQX001", 1, 2),
    ("[1.]", "NQX001", 1, 3),
    ('["a\nb"]', "NQX001", 1, 2),
    ('["a\tb"]', "NQX001", 1, 2),
    ('["\\x41"]', "NQX001", 1, 2),
    ('["a', "NQX001", 1, 2),
    ('["\\ud800"]', "NQX001", 1, 2),
    ('{"a": 1}\n{"b": 2}', "NQX001", 2, 1),
    ("[1]\x0c", "NQX001", 1, 4),
    ("[1]\xa0", "NQX001", 1, 4),
    ("nul", "NQX001", 1, 1),
    ("{1: 2}", "NQX001", 1, 2),
]


@every(("text", "code", "line", "column"), JSON_PROBLEMS)
def test_json_problem(text, code, line, column):
    found = problems(text, format="json")
    assert (found[0].code, found[0].line, found[0].column) == (code, line, column)
    assert re.match("expected .+, got .+", found[0].message)
    assert found[0].hint


@every(
    ("text", "hint"),
    [
        ('{"a": 1,}', "comma"),
        ("[1, 2", "bracket"),
        ("[True]", "true"),
        ("['a']", "double quotes"),
        ("[1] # c", "no comments"),
        ('["a', "quote"),
        ('["\\x41"]', "escape"),
        ("[+01]", "leading zeros"),
    ],
)
def test_json_errors_name_the_likely_fix(text, hint):
    assert hint in problems(text, format="json")[0].hint


def test_all_problems_of_a_json_file_are_reported_at_once():
    text = '{"a": NaN, "b": {"c": 1,\n "c": "\\udc00"}, "a": [1e400],\n "d" 1}'
    assert places(text, format="json") == [
        ("NQX013", 1, 7),
        ("NQX014", 2, 2),
        ("NQX001", 2, 7),
        ("NQX014", 2, 18),
        ("NQX013", 2, 24),
        ("NQX001", 3, 6),
    ]


json_fragments = st.sampled_from(
    [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        '"a"',
        '"b"',
        '"\\u00e9"',
        '"\\x"',
        '"',
        "1",
        "-0.5e+3",
        "01",
        "true",
        "nul",
        "null",
        "NaN",
        "Infinity",
        " ",
        "\n",
        "\t",
        "\x0c",
        "\xa0",
        "'",
        "//",
        "é",
        '{"a": 1',
        '["x", ',
        "1.",
        "-",
    ]
)


def no_duplicates(pairs):
    if len(dict(pairs)) < len(pairs):
        raise ValueError
    return dict(pairs)


def no_constants(token):
    raise ValueError


def finite(text):
    """A number; those too large for a float are no constants, but infinite."""
    if math.isinf(float(text)):
        raise ValueError
    return float(text)


@settings(max_examples=cases(600))
@given(st.lists(json_fragments, max_size=10).map("".join))
def test_json_is_read_exactly_where_the_standard_library_reads_it_strictly(text):
    try:
        data = json.loads(
            text,
            object_pairs_hook=no_duplicates,
            parse_constant=no_constants,
            parse_float=finite,
        )
    except ValueError:
        assert problems(text, format="json")
    else:
        found = read_text(text, format="json").data
        assert found == data
        assert json.dumps(found) == json.dumps(
            data
        )  # the types, signs of zero and order of keys too
