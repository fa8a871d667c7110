"""The text of manifests: strict parsing, formatting, sealing."""

import gc
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuralqx_struct.errors import SerializationError
from neuralqx_struct.manifest import Limits
from neuralqx_struct.manifest import text as m
from neuralqx_struct.manifest.check import check_manifest
from tests.builders import ARRAY, GOOD, RECORD, bounded, document, every, refused


def test_format_and_parse_are_inverse_and_deterministic():
    data = m.format_manifest(GOOD)
    parsed = m.parse_manifest(data)
    assert {**parsed, "digest": 0} == {**GOOD, "digest": 0}
    assert m.format_manifest(parsed) == data
    assert m.format_manifest(dict(reversed(GOOD.items()))).count(b"\n") == data.count(b"\n")
    assert m.check_digest(data) is None
    assert check_manifest(parsed) == []


def test_the_layout_is_for_people():
    lines = (
        m.format_manifest(
            document(
                {"__kind__": "list", "items": [ARRAY, {"a": []}]}, arrays={"w": RECORD, "v": RECORD}
            )
        )
        .decode()
        .splitlines()
    )
    assert lines[0] == "{"
    assert '      {"__kind__": "array", "name": "w", "dtype": "float32", "shape": [2, 3]},' in lines
    assert (
        '    "w": {"dtype": "float32", "shape": [2, 3], "crc32": 7, "offset": 64, "nbytes": 24},'
        in lines
    )
    assert lines[-2].startswith('  "digest": "sha256:')
    assert lines[-1] == "}"


def test_a_short_item_of_a_dict_is_one_line():
    items = [["w", ARRAY], ["deep", {"__kind__": "list", "items": [ARRAY]}]]
    text = m.format_manifest(document({"__kind__": "dict", "items": items})).decode()
    assert f'\n      ["w", {json.dumps(ARRAY)}],\n' in text
    assert '\n      [\n        "deep",\n' in text


def test_the_text_of_a_deep_nest_grows_as_its_depth():
    def size(depth):
        node = ARRAY
        for _ in range(depth):
            node = {"__kind__": "list", "items": [node, ARRAY]}
        return len(m.format_manifest(document(node)))

    assert size(150) - size(100) == size(100) - size(50)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda v: st.lists(v, max_size=4) | st.dictionaries(st.text(), v, max_size=4),
    max_leaves=20,
)


@given(value=json_values)
def test_any_json_survives(value):
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    data = m.format_manifest(document(metadata={"x": value}))
    assert m.parse_manifest(data)["metadata"]["x"] == value
    assert m.check_digest(data) is None


marks = st.text('a:"[]{}\\\\,\u00e9 \n', max_size=4)
pair_trees = st.recursive(
    marks | st.integers(),
    lambda v: (
        st.lists(v, max_size=3)
        | st.lists(st.tuples(marks, v), max_size=3).map(lambda pairs: {"pairs": pairs})
    ),
    max_leaves=12,
)


def text_of(value, ensure_ascii):
    """JSON in which members stand as often as there are pairs."""
    if isinstance(value, dict):
        pairs = (
            f"{json.dumps(k, ensure_ascii=ensure_ascii)} : {text_of(v, ensure_ascii)}"
            for k, v in value["pairs"]
        )
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(text_of(item, ensure_ascii) for item in value) + "]"
    return json.dumps(value, ensure_ascii=ensure_ascii)


def has_duplicates(value):
    if isinstance(value, dict):
        keys = [key for key, _ in value["pairs"]]
        return len(set(keys)) < len(keys) or any(
            has_duplicates(child) for _, child in value["pairs"]
        )
    return isinstance(value, list) and any(map(has_duplicates, value))


@given(value=pair_trees, ensure_ascii=st.booleans())
def test_a_member_that_stands_twice_is_found_anywhere(value, ensure_ascii):
    text = f'{{"x": {text_of(value, ensure_ascii)}}}'
    if has_duplicates(value):
        with pytest.raises(SerializationError) as caught:
            m.parse_manifest(text.encode())
        assert {d.code for d in caught.value.diagnostics} == {"NQX014"}
    else:
        assert m.parse_manifest(text.encode()) == json.loads(text)


@every(
    ("data", "code", "named"),
    [
        (b"", "NQX001", ":1:1"),
        (b"{", "NQX001", ":1:2"),
        (b"[" * 100_000, "NQX005", 200),
        (b'{"a":' * 100_000, "NQX005", 200),
        (b"]" * 1000, "NQX001", ":1:1"),
        (b"[]", "NQX612", "$"),
        (b"\xff", "NQX001", "0xff"),
        ("\ufeff{}".encode(), "NQX001", ":1:1"),
        (b'{"a": "\\ud800"}', "NQX001", r"\ud800"),
        (b'{"a": 1, "b": {"c": 1, "c": 1}, "a": 2}', "NQX014", "$.b.c"),
        (b'{"a": NaN, "writer": {}}', "NQX013", "NaN"),
        (b'{"a": ' + b"1" * 5000 + b"}", "NQX612", 5000),
        (b"{}" + b" " * (1 << 20), "NQX005", 1 << 20),
        (b'{"a": 1,}', "NQX001", ":1"),
        (b"{'a': 1}", "NQX001", ":1:2"),
    ],
)
def test_strict_parsing(data, code, named):
    with refused(SerializationError, code, named):
        m.parse_manifest(data, limits=Limits(manifest_bytes=1 << 20))


def test_positions_of_what_is_wrong():
    with pytest.raises(SerializationError) as caught:
        m.parse_manifest(b'{\n  "a": nul\n}')
    assert (caught.value.diagnostics[0].line, caught.value.diagnostics[0].column) == (2, 8)
    with pytest.raises(SerializationError) as caught:
        m.parse_manifest(b'{"a": 1, "b": {"c": 1, "c": [{"d": 1, "d": 2}]}, "a": 2}')
    assert sorted(d.path for d in caught.value.diagnostics) == ["$.a", "$.b.c", "$.b.c[0].d"]


def test_brackets_in_strings_are_no_nesting():
    text = json.dumps({"a": "[" * 5000, '"[\\': "\\" + '"[' * 5000})
    assert m.parse_manifest(text.encode())["a"] == "[" * 5000


def test_neuralqx_may_write_nan():
    assert m.parse_manifest(b'{"a": [NaN, Infinity, -Infinity]}')["a"][1] == float("inf")


def test_a_stack_too_small_is_no_crash():
    data = b'{"a": ' + b"[" * 500 + b"]" * 500 + b"}"
    before, deep = sys.getrecursionlimit(), 0
    frame = sys._getframe()
    while frame is not None:
        frame, deep = frame.f_back, deep + 1
    sys.setrecursionlimit(deep + 100)
    try:
        code = parsed_or_refused(data)
    finally:
        sys.setrecursionlimit(before)
    # Before Python 3.12 the limit counts the parser's own frames in C, too.
    assert code == ("NQX005" if sys.version_info < (3, 12) else None)


def parsed_or_refused(data):
    try:
        m.parse_manifest(data)
    except SerializationError as error:
        return error.code
    return None


def test_digest():
    data = m.format_manifest(GOOD)
    at = data.index(b"neuralqx-struct", 100)
    changed = data[:at] + b"N" + data[at + 1 :]
    for wrong in (changed, data.replace(b'"digest"', b'"digset"'), data + b"x", b"{}"):
        assert m.check_digest(wrong).code == "NQX407"
    assert m.check_digest(m.reseal(changed)) is None
    assert m.reseal(data) == data
    assert m.check_digest(m.reseal(b'{"version": 1}')) is None


def test_the_collector_is_paused_and_comes_back():
    with m.collector_paused():
        assert not gc.isenabled()
        with m.collector_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_many_deep_nests_are_refused_soon():
    nest = b"[" * 600 + b"]" * 600
    text = (
        b'{"metadata": {"a": ['
        + b",".join([nest] * 2000)
        + b']}, "version": 1, "manifest": 1, "arrays": {}}'
    )
    with bounded():
        _, found = m.read_document(text)
    assert [d.code for d in found] == ["NQX005"]
