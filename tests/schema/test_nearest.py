"""Expressions that a text may mean; whether one fits its place is checked in tests/schema/test_expression_paths.py."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from neuralqx_struct.expressions import parse
from neuralqx_struct.schema.lint.repairs import nearest

READINGS = [
    ("a && b || !c", ["a and b or not c"]),
    ("x is not None", ["x != None"]),
    ("x => 3", ["x >= 3"]),
    ("a <> b", ["a != b"]),
    ("(a:=1)", ["a == 1"]),
    ("a = 'b = c'", ["a == 'b = c'"]),
    ("~a", ["not a"]),
    ("rate > 5%", ["rate > 5 / 100"]),
    ("x.mean()", ["sum(x) / size(x)", "sum(x) / len(x)"]),
    ("jnp.linalg.norm(x)", ["sum(abs(x) ** 2) ** 0.5"]),
    ("isclose(x, 1)", ["abs(x - 1) < 1e-06", "all(abs(x - 1) < 1e-06)"]),
    ("table['a']", ["table.a", "table"]),
    ("x['a b']", ["x"]),
    ("all(x, y)", ["all(x)", "x and y"]),
    ("shape(x)[n]", ["shape(x)"]),
    ("product((a, b, c))", ["a * b * c"]),
    ("prod(extent)", ["extent[0] * extent[1]"]),
    ("sise(x)", ["size(x)"]),
    ("[b.w for b in bs if b.w]", []),
    ("f'{a}'", []),
    ("lambda: x", []),
    ("1e999 > x", []),
    ("'a\\d' == x", []),
    ("1if x else 2", []),
    ("1 + 2)", []),  # it names nothing
    ("x" * 600, []),
]


@pytest.mark.parametrize(("text", "readings"), READINGS)
def test_readings(text, readings):
    assert [*nearest(text, lambda _: 2)] == readings


parts = st.sampled_from(
    [
        "a",
        "x.w",
        "sizes",
        "1",
        "0.5",
        "'b'",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ".",
        ",",
        ":",
        "=",
        "==",
        "=>",
        "&&",
        "||",
        "!",
        "^",
        "%",
        "@",
        "is",
        "not",
        "and",
        "or",
        "if",
        "else",
        "for",
        "in",
        "lambda",
        "mean",
        "prod",
        "sum",
        "np.f",
    ]
)


@given(st.lists(parts, max_size=12).map(" ".join) | st.text(max_size=20))
@example("((((((((((" * 20)
@example("-" * 400 + "a")
@example("\x00\ud800")
def test_every_reading_is_an_expression(text):
    for reading in nearest(text):
        assert parse(reading).text == reading
