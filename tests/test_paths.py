import pickle
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuralqx_struct import paths
from neuralqx_struct.errors import StructError
from neuralqx_struct.paths import FieldName, array_name, format_path, match_glob, parse_path
from tests.builders import bounded, every

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]*", fullmatch=True)
TEXTS = st.text(max_size=8) | st.text("\\'\"nx0u\n\x00\ud800\u2028", max_size=8)
KEYS = st.one_of(NAMES.map(FieldName), TEXTS, st.integers(-5, 10**6))


@given(st.lists(KEYS, max_size=6).map(tuple))
def test_parse_inverts_format(path):
    again = parse_path(format_path(path))
    assert again == path
    assert [type(k) for k in again] == [type(k) for k in path]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), "$"),
        ((FieldName("a"), "b", 0), "$.a['b'][0]"),
        (("it's",), '$["it\'s"]'),
        ((FieldName("not a name"),), "$['not a name']"),
    ],
)
def test_format(path, text):
    assert format_path(path) == text


def test_the_dollar_may_be_left_out():
    assert parse_path("params['w']") == ("params", "w")


@pytest.mark.parametrize("text", ["$.", "$[", "$.a b", "$['a]", "1a", "$[a]", f"$[{'9' * 5000}]"])
def test_what_is_no_path(text):
    with pytest.raises(StructError) as caught:
        parse_path(text)
    assert caught.value.diagnostics[0].path == text


@every(
    ("path", "name"),
    [
        ((), "value"),
        (("a", 0), "a/0"),
        (("a/b", "c%"), "a%2Fb/c%25"),
        (("",), "%00"),
        (("ä",), "%C3%A4"),
        (("a",) * 32, "/".join("a" * 32)),
        (("a",) * 33, "/".join("a" * 33) + "~"),
        (("a",) * 34, "/".join("a" * 33) + "~"),
        (("a" * 1001,), "a" * 1000 + "~"),
    ],
)
def test_array_names_are_percent_encoded(path, name):
    assert array_name(path) == name


@every(
    ("glob", "path", "matches"),
    [
        ("bias", ("bias",), True),
        ("bias", ("a", "bias"), False),
        ("**/bias", ("bias",), True),
        ("**/bias", ("a", 1, "bias"), True),
        ("*/bias", ("a", "bias"), True),
        ("*/bias", ("a", "b", "bias"), False),
        ("params/**", ("params", "w", 0), True),
        ("layers/?/w", ("layers", 3, "w"), True),
        ("a.c", ("abc",), False),
        ("**", (), True),
        ("*", ("a/b",), True),
        ("é", ("é",), True),
        ('a"b', ('a"b',), True),
        ("50%", ("50%",), True),
        ("**/**/**/**/**/**/**/**/**/**/**/**/x", tuple("abcdefghijklmn"), False),
    ],
)
def test_globs(glob, path, matches):
    assert match_glob(glob, path) is matches


def by_recursion(glob, keys):
    """The meaning of a glob, without regard to time."""
    if not glob:
        return not keys
    if glob[0] == "**":
        return by_recursion(glob[1:], keys) or bool(keys and by_recursion(glob, keys[1:]))
    return bool(keys) and key_by_recursion(glob[0], keys[0]) and by_recursion(glob[1:], keys[1:])


def key_by_recursion(part, key):
    if not part:
        return not key
    if part[0] == "*":
        return key_by_recursion(part[1:], key) or bool(key and key_by_recursion(part, key[1:]))
    return bool(key) and part[0] in ("?", key[0]) and key_by_recursion(part[1:], key[1:])


words = st.text("ab", max_size=4)
globs = st.lists(st.just("**") | st.text("ab*?", max_size=5), min_size=1, max_size=5)


@given(globs, st.lists(words, max_size=5))
def test_globs_mean_the_same_as_by_recursion(parts, keys):
    # A part of several stars alone is one of any number of keys.
    parts = [part.replace("**", "*") if part != "**" else part for part in parts]
    assert match_glob("/".join(parts), tuple(keys)) is by_recursion(parts, keys)


@pytest.mark.parametrize(
    ("glob", "path"),
    [
        ("*a" * 12 + "b", ("a" * 20_000,)),
        ("*a" * 500, ("a" * 20_000 + "b",)),
        ("?*" * 500 + "b", ("a" * 20_000,)),
        ("**/a/" * 100 + "b", ("a",) * 10_000),
        ("**/*a*/" * 100 + "b", ("aa",) * 10_000),
        ("**/a/a/a/a/a/a/a/a/b/**/b", ("a",) * 10_000),
    ],
    ids=range(6),
)
def test_globs_take_bounded_time(glob, path):
    with bounded():
        assert not match_glob(glob, path)


def test_a_field_name_is_its_text_and_knows_its_spec():
    name = FieldName("w", spec := object())
    assert name == "w" and hash(name) == hash("w") and name.spec is spec
    assert pickle.loads(pickle.dumps(FieldName("w"))) == "w"


def test_a_path_and_the_globs_of_a_filter_are_prepared_once(monkeypatch):
    escaped, before = Mock(wraps=paths._escaped), paths._glob_pattern.cache_info().misses
    monkeypatch.setattr(paths, "_escaped", escaped)
    globs = [f"never/seen/{i}" for i in range(1000)]
    for path in (("never", 1), ("never", True), ["never", 1], ["never", 2]):
        assert not any(paths.match_glob(glob, path) for glob in globs)
        assert paths.match_glob(f"*/{path[1]}", path)
    assert paths._glob_pattern.cache_info().misses - before <= 1003
    assert escaped.call_count == 2 * 2 + 2 * 2 * 1001


def test_a_list_that_was_changed_is_another_path():
    path = ["a", "b"]
    assert paths.match_glob("a/b", path)
    path[1] = "c"
    assert not paths.match_glob("a/b", path) and paths.match_glob("a/c", path)
