"""Scalars: what text without quotes means, and what other tools make of it."""

from __future__ import annotations

import re

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from neuralqx_struct.schema import text as scalars
from neuralqx_struct.schema.text.loader import Mark, read_text
from tests.builders import cases, every


@every(
    ("text", "value"),
    [
        ("~", None),
        ("null", None),
        ("NULL", None),
        ("true", True),
        ("FALSE", False),
        ("0", 0),
        ("-12", -12),
        ("+7", 7),
        ("0o10", 8),
        ("0x1F", 31),
        ("0.5", 0.5),
        ("1.", 1.0),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("-1.5E-2", -0.015),
        ("00.5", 0.5),
        ("'0.5'", "0.5"),
        ('"null"', "null"),
        ("no", "no"),
        ("on", "on"),
        ("Yes", "Yes"),
        ("n", "n"),
        ("nUll", "nUll"),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("-0x1F", "-0x1F"),
        ("12:30:45", "12:30:45"),
        ("2020-01-01", "2020-01-01"),
        ("=", "="),
        ("e3", "e3"),
        (".inf", ".inf"),
        ("+.Inf", ".inf"),
        ("-.INF", "-.inf"),
        (".NaN", ".nan"),
        ("1+2j", "1+2j"),
        ("1e", "1e"),
        ("\N{ARABIC-INDIC DIGIT ONE}", "\N{ARABIC-INDIC DIGIT ONE}"),
        ("complex64[n]", "complex64[n]"),
        ("|\n    two\n    lines\n", "two\nlines\n"),
        (">-\n    one\n    line\n", "one line"),
        ('"\\u00e9\\x41\\\n    \\U0001F600"', "éA\N{GRINNING FACE}"),
    ],
)
def test_plain_scalars_mean_what_yaml_1_2_says(parser, text, value):
    found = read_text(f"a: {text}").data["a"]
    assert found == value
    assert type(found) is type(value)


def test_an_empty_value_is_null_and_stands_after_its_colon(parser):
    source = read_text("a:\nb: {c: }\n")
    assert source.data == {"a": None, "b": {"c": None}}
    assert source.mark(("a",)) == Mark(1, 3)
    assert source.mark(("b", "c")) == Mark(2, 7)


def legacy_kind(text):
    """What YAML 1.1 as PyYAML resolves it makes of a plain scalar."""
    found = yaml.SafeLoader("").resolve(yaml.ScalarNode, text, (True, False)).rpartition(":")[2]
    return {"null": "NoneType", "str": "str"}.get(found, found)


plain_like = st.one_of(
    st.text("0123456789+-._:eExobaAF", min_size=1, max_size=8),
    st.sampled_from(
        [
            "yes",
            "Yes",
            "YES",
            "no",
            "No",
            "NO",
            "on",
            "On",
            "off",
            "OFF",
            "true",
            "null",
            "~",
            "<<",
            "=",
            "y",
            "n",
            ".inf",
            ".nan",
            "2020-01-01",
            "2020-1-1",
        ]
    ),
    st.sampled_from(
        [
            "2020-01-01 10:00:00",
            "2020-01-01T10:00:00.5Z",
            "1:30",
            "1:30.5",
            "0b1",
            "0o7",
            "0777",
            "1_0",
            "oN",
        ]
    ),
)


@settings(max_examples=cases(600))
@given(plain_like)
def test_a_scalar_is_flagged_exactly_if_yaml_1_1_reads_another_type(text):
    value, finding = scalars.plain(text)
    flagged = finding is not None
    if flagged and finding.severity == "error":
        assert re.fullmatch(r"[-+]?0[0-9]+|.*[eE].*", text)
    elif text in {".inf", ".nan"}:  # no value of JSON: types read the text as a number
        assert value == text and not flagged
    else:
        assert flagged == (legacy_kind(text) != type(value).__name__)


def test_a_warning_says_what_to_write_instead(parser):
    source = read_text("a: {no: 1e3, b: 2020-01-01}\n", "s.yaml")
    assert [(w.code, w.severity, w.line, w.column, w.path) for w in source.warnings] == [
        ("NQX007", "warning", 1, 5, "$.a.no"),
        ("NQX007", "warning", 1, 9, "$.a.no"),
        ("NQX007", "warning", 1, 17, "$.a.b"),
    ]
    assert [w.hint for w in source.warnings] == ['write "no"', "write 1000.0", 'write "2020-01-01"']
    assert source.data == {"a": {"no": 1000.0, "b": "2020-01-01"}}
