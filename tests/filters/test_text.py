"""The text form of filters: what it says, and what is said about text that is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuralqx_struct.errors import StructError
from neuralqx_struct.filters import (
    All,
    Any,
    DType,
    Everything,
    FilterError,
    Kind,
    Not,
    Nothing,
    PathGlob,
    TypeName,
    WithTag,
    parse,
)
from neuralqx_struct.filters.partition import Selection
from neuralqx_struct.filters.records import quoted
from neuralqx_struct.filters.table import unmatched_parts
from tests.builders import TEXT_FILTERS, bounded, every, refused


@given(TEXT_FILTERS)
def test_parse_inverts_str(f):
    again = parse(str(f))
    assert again == f
    assert repr(again) == repr(f)
    assert f.text == str(f)


@every(
    ("text", "expected"),
    [
        ("tag:trainable & !path:*/bias", WithTag("trainable") & ~PathGlob("*/bias")),
        ("all", Everything()),
        (" none ", Nothing()),
        ("tag:a|tag:b&tag:c", Any("a", All("b", "c"))),
        ("(tag:a|tag:b)&tag:c", All(Any("a", "b"), "c")),
        ("!tag:a & tag:b", All(Not("a"), "b")),
        ("!(tag:a & tag:b)", Not(All("a", "b"))),
        ("!!tag:a", Not(Not("a"))),
        ("((tag:a))", WithTag("a")),
        ("tag:all", WithTag("all")),
        ("tag:a:b!", WithTag("a:b!")),
        ("tag:'it\\'s (a) b' | tag:\"\"", Any("it's (a) b", "")),
        ("path:layers[0]/?/**", PathGlob("layers[0]/?/**")),
        ("kind:static\n|\tdtype:complexfloating", Any(Kind("static"), DType("complexfloating"))),
        ("type:flax.nnx.Param", TypeName("flax.nnx.Param")),
        ("dtype:key<fry>", DType("key<fry>")),
    ],
)
def test_parse(text, expected):
    assert parse(text) == expected


@every(
    ("text", "named", "hint"),
    [
        ("tag:a &", ["character 8"], "as in"),
        ("tag:a && tag:b", ["character 8", "'&'"], "as in"),
        ("tag:a tag:b", ["character 7", "'tag:b'"], None),
        ("tag:a and tag:b", ["character 7", "'and'"], "write &"),
        ("not tag:a", ["character 1", "'not'"], "write !"),
        ("(tag:a", ["character 7"], None),
        ("tag:a)", ["character 6", "')'"], None),
        ("tag:", ["character 1", "'tag:'"], "needs quotes"),
        ("tag: a", ["character 1", "'tag:'"], "needs quotes"),
        ("tag:'a", ["character 1", "'tag:'"], "needs quotes"),
        ("tag:a'b", ["character 6", '"\'b"'], None),
        ("'a'", ["character 1", "\"'a'\""], "as in"),
        (
            "trainable",
            ["character 1", "'trainable'"],
            "for a tag write tag:trainable",
        ),
        ("al", ["character 1", "'al'"], "'all'"),
        (
            "pth:a",
            ["character 1", "'pth:'"],
            "'path'",
        ),
        (
            "kind:sttic",
            ["character 1", "'sttic'"],
            "'static'",
        ),
        (
            "dtype:float",
            ["character 1"],
            "'floating'",
        ),
        ("dtype:flaot32", ["'flaot32'"], "'float32'"),
        ("(" * 100_000, ["character 65", "64"], None),
        ("!" * 100_000 + "all", ["character 65", "64"], None),
    ],
)
def test_parse_says_what_is_wrong(text, named, hint):
    with refused(FilterError, "NQX010", *named) as caught:
        parse(text)
    (problem,) = caught.value.diagnostics
    assert problem.hint is None if hint is None else hint in problem.hint
    assert len(str(caught.value)) < 600


def test_parse_says_everything_at_once():
    with pytest.raises(FilterError) as caught:
        parse("kind:x & pat:y | dtype:int & (")
    assert [d.message.split(":")[0] for d in caught.value.diagnostics] == [
        f"character {n}" for n in (1, 10, 18, 31)
    ]
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, StructError)


@given(st.text(alphabet="tagpathkindall:!&|()'\"\\ ", max_size=20))
def test_parse_reads_or_refuses(text):
    try:
        f = parse(text)
    except FilterError as error:
        assert error.diagnostics
    else:
        assert parse(str(f)) == f


def test_long_text_is_read_in_linear_time():
    assert len(parse(" & ".join([f"tag:{'a' * 190}"] * 1_000)).predicates) == 1_000


@given(st.text())
def test_quotes_protect_every_name(name):
    assert parse(f"tag:{quoted(name)}") == WithTag(name)


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_an_empty_text_is_no_filter(text):
    with pytest.raises(FilterError) as caught:
        parse(text)
    assert str(caught.value) == (
        "filter: expected a filter, got an empty text [NQX010]\n"
        "  as in tag:trainable & !path:**/bias; `all` is for every leaf"
    )


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("a" * 200_001, "200,000"),
        ("path:" + "*" * 1001, "1000"),
        (" | ".join(["tag:a"] * 1_001), "1,000"),
    ],
)
def test_texts_and_globs_have_a_limit(text, most):
    with refused(FilterError, "NQX010", most):
        parse(text)


@pytest.mark.parametrize("term", ["tag:t{}", "type:a.t{}", "path:" + "**/*a*/" * 20 + "{}"])
def test_many_terms_on_many_leaves_are_bounded(term):
    leaves = [((*["a" * 20] * 10, str(n)), 1.0) for n in range(400)]
    selection = Selection(parse(" | ".join(term.format(f"b{n}") for n in range(1_000))))
    with bounded():
        assert not any(selection(path, leaf) for path, leaf in leaves)
        assert len(selection.findings("filter")) == 20
    selection.asked *= 50
    with refused(FilterError, "NQX010", "20,000,000"):
        for path, leaf in leaves:
            selection(path, leaf)


def test_unmatched_globs_are_corrected_in_bounded_time():
    leaves = [((f"layer{n}", "kernel"), 1.0) for n in range(20_000)]
    glob = PathGlob("/".join(["kernal"] * 140))
    with bounded():
        assert [part.expected for part in unmatched_parts(glob, leaves)]
        assert [part.expected for part in unmatched_parts(PathGlob("*a" * 400 + "b"), leaves)]
