"""Sources: the position of every key and value."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from neuralqx_struct.schema.text.loader import Mark, Source, read_text
from tests.builders import positions_of


def test_every_value_and_key_has_its_position(parser):
    text = "a:\n  - b: 1\n    'c d': [x,\n      \"y\"]\né: {z: {}}\n"
    source = read_text(text)
    assert positions_of(source) == {
        (): (1, 1),
        ("a",): (2, 3),
        ("a", 0): (2, 5),
        ("a", 0, "b"): (2, 8),
        ("a", 0, "c d"): (3, 12),
        ("a", 0, "c d", 0): (3, 13),
        ("a", 0, "c d", 1): (4, 7),
        ("é",): (5, 4),
        ("é", "z"): (5, 8),
    }
    assert {path: source.mark(path, key=True) for path in positions_of(source)} == {
        (): (1, 1),
        ("a",): (1, 1),
        ("a", 0): (2, 5),
        ("a", 0, "b"): (2, 5),
        ("a", 0, "c d"): (3, 5),
        ("a", 0, "c d", 0): (3, 13),
        ("a", 0, "c d", 1): (4, 7),
        ("é",): (5, 1),
        ("é", "z"): (5, 5),
    }


def test_a_path_that_is_not_there_gets_its_nearest_ancestor():
    source = read_text("a:\n  b: [1, 2]\n")
    assert source.mark(("a", "b", 7, "x")) == Mark(2, 6)
    assert source.mark(("a", "x"), key=True) == Mark(1, 1)
    assert source.mark(("x",)) == Mark(1, 1)
    assert source.mark(("a", "b", 1, "x")) == Mark(2, 10)


def test_a_diagnostic_knows_file_place_and_path():
    source = read_text(
        "structs:\n  A:\n    fields:\n      w: [x]\n      'odd name': 1\n", "v1.yaml"
    )
    found = source.diagnostic(
        "NQX101", ("structs", "A", "fields", "w", 0), "expected a type, got x", hint="define it"
    )
    assert str(found) == "v1.yaml:4:11: NQX101 expected a type, got x\n  define it"
    assert found.path == "$.structs.A.fields.w[0]"
    found = source.diagnostic(
        "NQX118", ["structs", "A", "fields", "odd name"], "m", severity="warning", key=True
    )
    assert (found.line, found.column, found.severity) == (5, 7, "warning")
    assert found.path == "$.structs.A.fields['odd name']"


def test_a_document_without_file_has_findings_without_lines():
    found = Source("<manifest>", {"a": 1}).diagnostic("NQX009", ("a",), "expected x, got a")
    assert str(found) == "<manifest>: $.a: expected x, got a [NQX009]"


positions = st.recursive(
    st.sampled_from(["text", 1, None, True]),
    lambda inside: (
        st.lists(inside, max_size=4)
        | st.dictionaries(st.text("abé😀", min_size=1, max_size=3), inside, max_size=4)
    ),
    max_leaves=20,
)


@given(
    positions, st.sampled_from([None, 1, 4]), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans()
)
def test_positions_point_at_the_text_of_each_value_in_both_formats(data, indent, newline, bom):
    text = json.dumps(data, indent=indent, ensure_ascii=False).replace("\n", newline)
    lines = text.split(newline)
    first = {dict: "{", list: "[", str: '"', int: "1", bool: "t", type(None): "n"}
    sources = [read_text("\ufeff" * bom + text, format=kind) for kind in ("json", "yaml")]
    assert sources[0].data == sources[1].data == data
    positions = positions_of(sources[0])
    assert positions == positions_of(sources[1])
    for path, (line, column) in positions.items():
        value = data
        for part in path:
            value = value[part]
        assert lines[line - 1][column - 1] == first[type(value)]
        if path and isinstance(path[-1], str):
            line, column = sources[0].mark(path, key=True)
            assert lines[line - 1][column - 1 :].startswith(
                json.dumps(path[-1], ensure_ascii=False)
            )


def test_marks_are_right_in_long_texts():
    """The table of lines has one entry per 16 KiB; places on both sides of its borders."""
    rows = [f"key_{i}: [{'x' * (i % 50 + 1)}, é]" for i in range(4000)]
    for text in ("\n".join(rows), "{" + ", ".join(rows) + "}"):
        source = read_text(text)
        lines = text.split("\n")
        for i in range(4000):
            line, column = source.mark((f"key_{i}",), key=True)
            assert lines[line - 1].startswith(f"key_{i}:", column - 1)
