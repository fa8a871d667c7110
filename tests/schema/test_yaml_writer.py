"""Writing YAML: every reader reads back what was written."""

from __future__ import annotations

import json
import math
import textwrap

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.paths import format_path
from neuralqx_struct.schema import text as limits
from neuralqx_struct.schema.text import yaml_reader
from neuralqx_struct.schema.text.loader import dump_yaml, read_text
from tests.builders import cases, every, refused

NASTY = [
    "yes",
    "no",
    "on",
    "off",
    "y",
    "n",
    "null",
    "~",
    "true",
    "010",
    "0o10",
    "0x1F",
    "1e3",
    "1_000",
    ".inf",
    ".nan",
    "12:30:45",
    "2020-01-01",
    "<<",
    "=",
    "-",
    "?",
    ":",
    "[",
    "]",
    "{",
    "}",
    ",",
    "#",
    "&",
    "*",
    "!",
    "|",
    ">",
    "'",
    '"',
    "%",
    "@",
    "`",
    "-a",
    "a:",
    ":a",
    "a:b",
    "#a",
    "a#",
    "&a",
    "*a",
    "!a",
    ",a",
    "a,",
    "[a",
    "a]",
    "{a}",
    "'a'",
    '"a"',
    "a\\b",
    "3",
    "3.0",
    "-1",
    "+1",
    ".",
    "..",
    "...",
    "---",
    "---",
    "é",
    "😀",
    "a.b",
    "a/b",
    "a@b",
    "a|b",
]
NASTY += [
    "",
    " ",
    "\n",
    "\t",
    "a ",
    " a",
    "a  b",
    "a b",
    "a: b",
    "a #b",
    "a\nb",
    "a\nb\n",
    "a\n\nb",
    "a\n b",
    "\na",
    "a\n\n",
    "a \nb",
]
NASTY += [
    "a\tb",
    "a\r\nb",
    "a\rb",
    "\0",
    "\x7f",
    "\x85",
    "\u2028",
    "\u2029",
    "\ufeff",
    "\ufffe",
    "\uffff",
    "\xa0a",
    "a\xa0b",
    "- a",
    "? a",
]
NASTY += [
    "word " * 60,
    "word " * 60 + "end",
    "x" * 2000,
    "# " * 100 + "#",
    "a: " * 100 + "a",
    "line\n" * 50,
    "- x\n- y",
    "a\n---\nb",
    "%a\nb",
]
NASTY += ["a\u2028b\nc", ("wörd " * 60).strip(), "a\n\tb", "a\n  b\n c"]

texts = st.one_of(
    st.sampled_from(NASTY),
    st.text(st.characters(codec="utf-8"), max_size=30),
    st.text("ab :#-\n'\",[]{}?|>&*!%@`\t ", max_size=12),
)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), texts
)
plain_values = st.recursive(
    scalars,
    lambda inside: st.lists(inside, max_size=5) | st.dictionaries(texts, inside, max_size=5),
    max_leaves=25,
)


def same(left, right):
    """Equal, with equal types, signs of zero and order of keys."""
    return left == right and json.dumps(left) == json.dumps(right)


@settings(max_examples=cases(300), deadline=None)
@given(plain_values)
def test_reading_what_was_written_is_the_identity(data):
    text = dump_yaml(data)
    source = read_text(text) if data is not None else None
    assert source is None or (same(source.data, data) and source.warnings == ())
    assert text.endswith("\n")
    assert dump_yaml(data) == text


@settings(max_examples=cases(150), deadline=None)
@given(plain_values.filter(lambda data: data is not None))
def test_yaml_1_1_tools_and_the_python_parser_read_the_same(data):
    text = dump_yaml(data)
    assert same(yaml.load(text, yaml.SafeLoader), data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml_reader, "yaml_parser", lambda: yaml.SafeLoader)
        assert same(read_text(text).data, data)


INDICATORS = "-?:,[]{}#&*!|>'\"%@`=~<"


@pytest.mark.parametrize("loader", ["SafeLoader", "CSafeLoader"])
@settings(max_examples=cases(200), deadline=None)
@example("A?")
@example("a ?b")
@given(st.text(st.sampled_from(f"{INDICATORS}Ay0 "), min_size=1, max_size=6))
def test_every_indicator_survives_in_brackets_and_braces_whatever_the_loader(loader, text):
    loader = getattr(yaml, loader, yaml.SafeLoader)  # where PyYAML was built without C
    data = {"z": [text, "w"], "y": {"k": text}, text: [{text: text}]}
    assert same(yaml.load(dump_yaml(data), loader), data)


@settings(max_examples=cases(150))
@given(plain_values)
def test_json_and_yaml_give_the_same_data(data):
    source = read_text(json.dumps(data), format="json")
    assert same(source.data, data)
    assert same(read_text(json.dumps(data, ensure_ascii=False, indent=1), format="json").data, data)


@every("text", NASTY)
def test_nasty_text_survives_as_value_key_and_item(parser, text):
    data = {"value": text, text: [text, {text: text, "z": 1}], "list": [[text], text]}
    assert same(read_text(dump_yaml(data)).data, data)
    assert same(
        read_text(dump_yaml([text, {"k": {text: {text: [[{}]]}}}])).data,
        [text, {"k": {text: {text: [[{}]]}}}],
    )


def test_null_alone_reads_back():
    assert read_text(dump_yaml(None)).data is None


def test_the_layout_is_the_one_of_the_example_schemas():
    data = {
        "language": "1",
        "version": 3,
        "doc": "A long text about the state of a Monte Carlo simulation " * 3 + "end.",
        "notes": "first line\nsecond line",
        "dims": {"n_sites": {"min": 2, "doc": "lattice sites"}},
        "structs": {
            "A": {
                "reserved": ["W_re"],
                "fields": {
                    "kernel": {
                        "type": "array",
                        "shape": ["n_sites", 2],
                        "doc": "Couplings, complex.",
                    },
                    "b": {"type": "array", "doc": "x" * 100},
                    "none": {},
                },
                "constraints": [{"expr": "0 < alpha <= 8", "message": "out of range"}],
            }
        },
        "migrations": [
            {"from": 2, "steps": [{"split": {"field": "b", "into": {"v": "n", "h": 1e-5}}}]}
        ],
    }
    assert dump_yaml(data) == textwrap.dedent("""\
        language: "1"
        version: 3
        doc: >-
          A long text about the state of a Monte Carlo simulation A long text about the state of a Monte Carlo
          simulation A long text about the state of a Monte Carlo simulation end.
        notes: |-
          first line
          second line
        dims:
          n_sites: {min: 2, doc: lattice sites}
        structs:
          A:
            reserved: [W_re]
            fields:
              kernel: {type: array, shape: [n_sites, 2], doc: "Couplings, complex."}
              b:
                type: array
                doc: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
              none: {}
            constraints:
              - {expr: "0 < alpha <= 8", message: out of range}
        migrations:
          - from: 2
            steps:
              - split: {field: b, into: {v: "n", h: 1.0e-05}}
        """)


def deep(levels):
    data = []
    for _ in range(levels - 1):
        data = [data]
    return data


def endless():
    data = []
    data += [data, data]
    return data


@every(
    ("data", "code", "path"),
    [
        ({"a": [math.nan]}, "NQX013", ("a", 0)),
        ({"a": -math.inf}, "NQX013", ("a",)),
        ({1: 2}, "NQX006", ()),
        ({"a": (1, 2)}, "NQX010", ("a",)),
        ({"a": {1, 2}}, "NQX010", ("a",)),
        ({"a": b"x"}, "NQX010", ("a",)),
        ({"a": "\ud800"}, "NQX001", ("a",)),
        ({"\udfff": 1}, "NQX001", ()),
        ({"a": "x" * (limits.MAX_SCALAR + 1)}, "NQX005", ("a",)),
        ({"a": 10**700}, "NQX005", ("a",)),
        (deep(65), "NQX005", (0,) * 64),
        (endless(), "NQX005", (0,) * 64),
        ([0] * limits.MAX_NODES, "NQX005", ()),
    ],
)
def test_values_that_cannot_be_written(data, code, path):
    with pytest.raises(SchemaError) as caught:
        dump_yaml(data)
    (found,) = caught.value.diagnostics
    assert found.code == code
    assert found.path == format_path(path).replace("['a']", ".a")
    assert found.hint


def test_all_values_that_cannot_be_written_are_reported_at_once():
    with pytest.raises(SchemaError) as caught:
        dump_yaml({"a": math.nan, "b": [{}, {2: 3}, object()], "c": "\ud800"})
    assert [(d.code, d.path) for d in caught.value.diagnostics] == [
        ("NQX013", "$.a"),
        ("NQX006", "$.b[1]"),
        ("NQX010", "$.b[2]"),
        ("NQX001", "$.c"),
    ]


def test_what_is_too_large_to_read_is_not_written(monkeypatch):
    monkeypatch.setattr(limits, "MAX_BYTES", 1 << 20)
    with refused(SchemaError, "NQX005", "1 MiB"):
        dump_yaml(["x" * 1000] * 1100)


def test_the_limits_of_depth_are_the_same_for_reading_and_writing(parser):
    assert read_text(dump_yaml(deep(64))).data == deep(64)
    assert read_text(json.dumps(deep(64)), format="json").data == deep(64)
