"""Reading YAML: what is refused where and with which advice, suppressions, and the agreement of the two parsers."""

from __future__ import annotations

import re
import textwrap

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.schema import text as limits
from neuralqx_struct.schema.text import yaml_reader
from neuralqx_struct.schema.text.loader import read_text
from tests.builders import cases, every, positions_of

PARSERS = [pytest.param(yaml.SafeLoader, id="python")]
if hasattr(yaml, "CSafeLoader"):
    PARSERS.append(pytest.param(yaml.CSafeLoader, id="c"))


def problems(text, **options):
    with pytest.raises(SchemaError) as caught:
        read_text(text, **options)
    return caught.value.diagnostics


def places(text, **options):
    return [(d.code, d.line, d.column) for d in problems(text, **options)]


YAML_PROBLEMS = [
    # text, code, line, column
    ("", "NQX001", 1, 1),
    ("# nothing\n\n", "NQX001", 1, 1),
    ("a: 1\n---\nb: 2", "NQX001", 2, 1),
    ("a: 1\n...\nb: 2", "NQX001", 3, 1),
    ("%TAG !e! tag:x\n---\na: 1", "NQX004", 1, 1),
    ("# c\n%YAML 1.1\n---\na: 1", "NQX001", 2, 1),
    ("%YAML 1.2\n%FOO\n---\na: 1", "NQX001", 2, 1),
    ("a: 1\n%b: 1", "NQX001", 2, 1),
    ("a: 1\nb: 2\na: 3", "NQX002", 3, 1),
    ("a: {b: 1, 'b': 2}", "NQX002", 1, 11),
    ("a: &x 1", "NQX003", 1, 4),
    ("a: *x", "NQX003", 1, 4),
    ("*x : 1", "NQX003", 1, 1),
    ("a: &x [1]", "NQX003", 1, 4),
    ("a: & x", "NQX003", 1, 4),
    ("a: !!str 1", "NQX004", 1, 4),
    ("a: ! 1", "NQX004", 1, 4),
    ("a: !!python/object/apply:os.system [echo]", "NQX004", 1, 4),
    ("a: !x!y 1", "NQX004", 1, 4),
    ("a: !<x", "NQX004", 1, 4),
    ("1: a", "NQX006", 1, 1),
    ("a: {true: 1}", "NQX006", 1, 5),
    (": a", "NQX001", 1, 1),
    ("{: a}", "NQX001", 1, 2),
    ("? [a]\n: b", "NQX006", 1, 3),
    ("{{a: b}: c}", "NQX006", 1, 2),
    ("<<: {a: 1}", "NQX006", 1, 1),
    ("010: a", "NQX006", 1, 1),
    ("a: 010", "NQX007", 1, 4),
    ("a: -08", "NQX007", 1, 4),
    ("a: 1e999", "NQX013", 1, 4),
    ("a: [-1e999]", "NQX013", 1, 5),
    ("a: 1e999", "NQX013", 1, 4),
    ("a: " + "9" * 641, "NQX005", 1, 4),
    ("a: 0x" + "f" * 5000, "NQX005", 1, 4),
    ("[" * 65, "NQX005", 1, 65),
    ("- " * 65 + "a", "NQX005", 1, 129),
    ("a: \x01", "NQX001", 1, 4),
    ('a: "\u2028"', "NQX001", 1, 5),
    ("a: b\ufeff", "NQX001", 1, 5),
    ('a: "\\ud800"', "NQX001", 1, 4),
    ("a: \ud800", "NQX001", 1, 4),
    ("a:\t1", "NQX001", 1, 3),
    ("\ta: 1", "NQX001", 1, 1),
    ("a:\n\tb: 1", "NQX001", 2, 1),
    ("a: b\tc", "NQX001", 1, 5),
    ("a: b#\tc", "NQX001", 1, 6),
    ("a: 1\t# c", "NQX001", 1, 5),
    ("a: 1 # b\tc\nd:\t1", "NQX001", 2, 3),
    ("a: |\n\tx", "NQX001", 2, 1),
    ("a: |\n  \tx", "NQX001", 2, 3),
    ("a: 'x\nb: 1", "NQX001", 1, 4),
    ('a: "x\n---\ny"', "NQX001", 1, 4),
    ('a: "\\q"', "NQX001", 1, 5),
    ('a: "b\\xZZ"', "NQX001", 1, 6),
    ("a: [1, 2\nb: 1", "NQX001", 1, 4),
    ("a: {x: 1", "NQX001", 1, 4),
    ("a: ['1' 'x']", "NQX001", 1, 9),
    ("a: [1, 2]]", "NQX001", 1, 10),
    ("a: [1,,2]", "NQX001", 1, 7),
    ("a:1\nb: 2", "NQX001", 1, 2),
    ("# c\na: 1\nb:2\n\n# c\nc: 3", "NQX001", 3, 2),
    ("'a':1", "NQX001", 1, 4),
    ("a: b: c", "NQX001", 1, 5),
    ("a: 'it's'", "NQX001", 1, 8),
    ("a: 1\n b: 2", "NQX001", 2, 3),
    ("a:\n  b: 1\n c: 2", "NQX001", 3, 2),
    ("a: 1\nkey\nb: 1", "NQX001", 2, 1),
    ("a: 1\n- b", "NQX001", 2, 1),
    ("a: - b", "NQX001", 1, 4),
    ("a: @x", "NQX001", 1, 4),
    ("a: |x\n  y", "NQX001", 1, 5),
    ("a: |#x\n  y", "NQX001", 1, 5),
]


@every(("text", "code", "line", "column"), YAML_PROBLEMS)
def test_yaml_problem(parser, text, code, line, column):
    assert places(text) == [(code, line, column)]
    (found,) = problems(text)
    assert re.match("expected .+, got .+", found.message)
    assert found.hint
    assert found.file == "<text>"
    assert len(found.message) < 300


def test_the_limits_on_nodes_and_lengths(parser, monkeypatch):
    monkeypatch.setattr(limits, "MAX_NODES", 6)
    monkeypatch.setattr(limits, "MAX_SCALAR", 5)
    monkeypatch.setattr(limits, "MAX_SUPPRESSIONS", 2)
    assert read_text("a: {b: [12345]}").data == {"a": {"b": [12345]}}
    assert places("a: {b: ['123456']}") == [("NQX005", 1, 9)]
    assert places("a: {b: [1, 2]}") == [("NQX005", 1, 12)]
    assert places('{"a": {"b": [1, 2]}}', format="json") == [("NQX005", 1, 17)]
    assert places("a: 1\n" + "# nqx: ignore[NQX101]\n" * 3) == [("NQX005", 4, 1)]


@every(
    ("text", "hint"),
    [
        ("a:1\nb: 2", "key: value"),
        ("a: [1, 2\nb: 1", "bracket"),
        ("a: [1,", "bracket"),
        ("a: {x: 1,\n", "bracket"),
        ("a: 'x", "quote"),
        ("a:\n\tb: 1", "tab"),
        ("a: b: c", "quotes"),
        ("a:\n  b: 1\n c: 2", "align"),
        ("a: 'it's'", "quote"),
        ("a: 1\nkey\nb: 1", "colon"),
    ],
)
def test_syntax_errors_name_the_likely_fix(parser, text, hint):
    assert hint in problems(text)[0].hint


def test_all_problems_of_a_file_are_reported_at_once_in_order(parser):
    text = "a: 010\nb: &x !!int 2\na: *x\nc: [1e999,{1: 2, no: 3, no: 4}]\nd: [1\ne: 5\n"
    assert places(text) == [
        ("NQX007", 1, 4),
        ("NQX003", 2, 4),
        ("NQX004", 2, 4),
        ("NQX002", 3, 1),
        ("NQX003", 3, 4),
        ("NQX013", 4, 5),
        ("NQX006", 4, 12),
        ("NQX002", 4, 25),
        ("NQX001", 5, 4),
    ]


def test_a_duplicate_names_the_first_place(parser):
    (found,) = problems("a:\n  b: 1\n  c: 2\n  b: 3\n", name="s.yaml")
    assert str(found).startswith("s.yaml:4:3: NQX002 expected each key once, got 'b' again\n")
    assert "line 2, column 3" in found.message
    assert found.path == "$.a.b"


def test_too_many_problems_end_the_reading_and_say_so(parser):
    found = problems("[" + "*a, " * 5000 + "]")
    assert len(found) == limits.MAX_PROBLEMS + 1
    assert {d.code for d in found[:-1]} == {"NQX003"}
    assert found[-1].code == "NQX005"


def test_too_many_warnings_are_cut_and_say_so(parser):
    source = read_text("[" + "no, " * 3000 + "]")
    assert len(source.warnings) == limits.MAX_PROBLEMS + 1
    assert source.warnings[-1].code == "NQX005"
    assert len(source.data) == 3000


# ------------------------------------------------------------------------------------------------- both parsers agree

fragments = st.sampled_from(
    [
        "a",
        "b: ",
        ": ",
        "- ",
        "? ",
        "[",
        "]",
        "{",
        "}",
        ", ",
        " ",
        "\n",
        "\n  ",
        '"',
        "'",
        "#",
        " # c",
        "&x ",
        "!t ",
        "|\n",
        ">-\n",
        "*x",
        "\t",
        "1",
        "010",
        "no",
        "é",
        "\\",
        "~",
        "a: 1\n",
        "b: [1, 2]\n",
        "c: {x: y}\n",
        "- z\n",
        "---\n",
        "...\n",
        "\r\n",
        "@",
        "a:b",
        '"a":1',
        "# nqx: ignore[NQX120]\n",
        '"# nqx: ignore[NQX120]"',
        "true: 1\n",
    ]
)


@pytest.mark.skipif(len(PARSERS) < 2, reason="PyYAML was built without its C parser")
@settings(max_examples=cases(400))
@given(st.lists(fragments, max_size=12).map("".join))
def test_both_parsers_give_the_same(text):
    def read(parser):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(yaml_reader, "yaml_parser", lambda: parser)
            try:
                source = read_text(text)
            except SchemaError:
                return "refused"  # tests above compare the places; here the Python parser may see a later error first
        return source.data, positions_of(source), source.warnings, source.suppressions

    assert read(yaml.SafeLoader) == read(yaml.CSafeLoader)


def test_the_python_parser_serves_where_there_is_no_other(monkeypatch):
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    assert yaml_reader.yaml_parser() is yaml.SafeLoader


# ------------------------------------------------------------------------------------------------------- suppressions


def test_suppressions_are_comments_not_text(parser):
    text = textwrap.dedent("""\
        # nqx: ignore[NQX101]
        a: 1  # nqx: ignore[NQX120, NQX126] until the next version
        b: "# nqx: ignore[NQX102]"
        c: |
          # nqx: ignore[NQX103]
        # nqx:ignore[NQX104]
        d: '
          # nqx: ignore[NQX105]' # nqx: ignore[NQX106]
        e: x#nqx:ignore[NQX107]
        """)
    source = read_text(text)
    assert source.suppressions == {
        1: {"NQX101"},
        2: {"NQX120", "NQX126"},
        6: {"NQX104"},
        8: {"NQX106"},
    }
    assert source.warnings == ()


@every(
    "comment", ["# nqx: ignore", "# nqx: ignore NQX120", "# nqx: ignore[]", "# nqx: ignore[NQX1]"]
)
def test_a_suppression_that_suppresses_nothing_is_a_warning(parser, comment):
    source = read_text(f"a: 1 {comment}\n")
    assert source.suppressions == {}
    assert [(w.code, w.severity, w.line, w.column) for w in source.warnings] == [
        ("NQX010", "warning", 1, 6)
    ]


# ----------------------------------------------------------------------------------------------- the comment for editors


@every(
    ("text", "places"),
    [
        ("# yaml-language-server: $schema=../struct-schema/1.json\na: 1\n", []),
        ("# yaml-language-server: $schema=other.json\na: 1\n", [(1, 33)]),
        ("a: 1\n# yaml-language-server: $schema=../struct-schema/1.json\n", [(2, 33)]),
    ],
)
def test_the_comment_for_editors_is_the_first_line_and_names_a_published_schema(
    parser, text, places
):
    assert [(w.code, w.line, w.column) for w in read_text(text).warnings] == [
        ("NQX011", *place) for place in places
    ]
