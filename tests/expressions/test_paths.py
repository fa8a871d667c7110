"""Paths: fields of structs, items of tuples and lists, and operations on all items of a collection."""

import ast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neuralqx_struct as s
from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import from_ast, parse
from neuralqx_struct.expressions.evaluation import evaluate
from neuralqx_struct.expressions.functions import Items, StructValue
from neuralqx_struct.expressions.grammar import head_of, path_of, steps_of
from tests.builders import bounded, every, refused


def layer(width, **fields):
    return StructValue({"width": width, **fields}, [*fields])


NAMES = {
    "layers": [
        layer(4, rate=None, sizes=[1, 2], w=np.ones((2, 4)), extent=(1, 2), kind="relu"),
        layer(6, rate=0.5, sizes=[], w=np.full((3, 4), 2.0), extent=(3, 4), kind="gelu"),
    ],
    "stages": [
        StructValue({"blocks": [layer(1), layer(2)]}),
        None,
        StructValue({"blocks": {"last": layer(3)}}),
        StructValue({"blocks": None}),
    ],
    "grid": [[layer(1), None], [layer(2)]],
    "optimizer": StructValue({"step": 3}),
    "nothing": None,
    "empty": [],
    "extent": (2, 3),
    "sizes": {"a": 1, "b": 2},
    "rates": [0.5, None],
    "arrays": [np.arange(3.0), np.ones(2)],
    "text": "relu",
    "d": 4,
    "step": 5,
}

VALUES = [
    ("optimizer.step <= step", True),
    ("extent[0] * extent[-1]", 6),
    ("nothing.x.y", None),
    ("nothing[0]", None),
    ("layers[-1].width", 6),
    ("layers[0].extent[1]", 2),
    ("layers.width", [4, 6]),
    ("layers.extent[0]", [1, 3]),
    ("-layers.width + 2 * d", [4, 2]),
    ("layers.width + layers.width", [8, 12]),
    ("layers.width == d", [True, False]),
    ("all(layers.width >= d)", True),
    ("all(layers.width == d)", False),
    ("any(layers.width == d)", True),
    ("all(empty.width == d)", True),
    ("sum(sizes)", 3),
    ("max(sizes)", 2),
    ("all(0 < sizes <= 2)", True),
    ("sum(sizes) / len(sizes)", 1.5),
    ("all(sizes in (1, 2))", True),
    ("all(layers.kind in ('relu', 'gelu'))", True),
    ("any(layers.kind == text)", True),
    ("sum(stages.blocks.width)", 6),
    ("stages.blocks.width", [1, 2, None, 3, None]),
    ("grid.width", [1, None, 2]),
    ("layers.rate", [None, 0.5]),
    ("layers.rate * 2", [None, 1.0]),
    ("layers.rate == 0.5", [None, True]),
    ("layers.rate == None", [True, False]),
    ("None != layers.rate", [False, True]),
    ("all(0 < layers.rate <= 1)", True),
    ("sum(layers.rate)", 0.5),
    ("min(layers.rate)", 0.5),
    ("sum(rates)", 0.5),
    ("all(rates > 0)", True),
    ("rates == None", False),
    ("all(layers.sizes > 0)", True),
    ("sum(layers.sizes)", 3),
    ("len(layers.sizes)", [2, 0]),
    ("len(layers)", 2),
    ("sum(len(layers.extent))", 4),
    ("shape(layers.w)[1]", [4, 4]),
    ("sum(size(layers.w))", 20),
    ("sum(layers.w)", 8 + 24.0),
    ("max(layers.w)", 2.0),
    ("all(layers.w > 0)", True),
    ("all(isfinite(layers.w))", True),
    ("all(abs(layers.w - d) < 4)", True),
    ("sum(arrays)", 5.0),
    ("size(layers[0])", 8),
    ("layers[5].width if len(layers) > 5 else 0", 0),
    ("extent == (2, 3)", True),
    ("layers[0].extent == (1, 2)", True),
    ("layers.extent == (1, 2)", [True, False]),
    ("extent + (4,)", (2, 3, 4)),
]


@every(("text", "expected"), VALUES)
def test_values(text, expected):
    found = evaluate(parse(text), NAMES)
    if isinstance(found, Items):
        found = found.values
    assert found == expected
    assert parse(parse(text).text) == parse(text)


REFUSED = [
    ("extent[2]", "NQX115", "2 items", "extent[1]"),
    ("empty[0]", "NQX115", "0 items", "len(empty)"),
    ("optimizer.stpe", "NQX116", "'stpe'", "'optimizer.step'"),
    ("optimizer.xyz", "NQX116", "'xyz'", "optimizer.step"),
    ("optimzer.step", "NQX116", "'optimzer'", "'optimizer'"),
    ("text.upper", "NQX115", "`text.upper`", None),
    ("text[0]", "NQX115", "`text[0]`", None),
    ("sizes[0]", "NQX115", "`sizes[0]`", "len(sizes)"),
    ("layers[0].w[0]", "NQX115", "float64[2, 4]", None),
    ("layers.width and True", "NQX115", "`layers.width and True`", "all(...)"),
    ("1 if layers.width else 2", "NQX115", "`1 if layers.width else 2`", "all(...)"),
    ("not layers.width", "NQX115", "`not layers.width`", "all(...)"),
    ("max(layers.width, d)", "NQX115", "`max(layers.width, d)`", "max(max("),
    ("layers.width + stages.blocks.width", "NQX115", "2 and 5", None),
    ("sum(layers)", "NQX115", "`sum(layers)`", None),
    ("max(empty)", "NQX115", "`max(empty)`", None),
    ("shape(layers.extent)[1]", "NQX115", "axis 1", None),
]


@every(("text", "code", "message", "hint"), REFUSED)
def test_refused(text, code, message, hint):
    with pytest.raises(SchemaError) as caught:
        evaluate(parse(text), NAMES)
    (found,) = caught.value.diagnostics
    assert found.code == code
    assert message in found.message
    assert hint is None or hint in found.hint


# ---------------------------------------------------------------------------------------------------------------------
# Text

names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,6}", fullmatch=True).filter(
    lambda name: not name.startswith("__") and name.lower() not in {"if", "in", "is", "or", "not"}
)


@given(names, st.lists(names | st.integers(-99, 99), max_size=8))
def test_the_text_of_a_path_is_its_steps(head, steps):
    path = path_of(head, steps)
    assert (head_of(path), steps_of(path)) == (head, tuple(steps))
    try:
        expression = parse(f"2 * {path}")
    except SchemaError:  # a keyword of Python
        return
    assert expression.text == f"2 * {path}"
    assert expression.names == {path}
    assert expression.heads == {head}


def test_spaces_do_not_count():
    assert parse(" a . b [ 0 ] . c+1").text == "a.b[0].c + 1"
    assert parse("a[0x10]").text == "a[16]"


def test_sizes_of_shapes_are_names():
    for text in ("a.b", "2 * extent[0]"):
        with refused(SchemaError, "NQX114") as caught:
            from_ast(ast.parse(text, mode="eval").body)
        assert "declare a dim with `equals: " in caught.value.diagnostics[0].hint


# ---------------------------------------------------------------------------------------------------------------------
# Ways out

CLS = s.load_schema("""
language: "1"
schema: test.paths.walks
version: 1
root: A
structs: {A: {fields: {x: int, y: {type: int, derived: x + 1}}}}
""").A


class Plain(s.Struct):
    x: int
    y: int = s.field(static=True, init=False, derived=lambda self: self.x / 0)


WALKS = [
    *("a.export", "a.replace", "a.fields", "a.tree_flatten", "a.x.real", "a.x.numerator", "a._x"),
    *("p.export", "p.y", "t.count", "t.index", "d.keys", "d.items", "l.append", "n.T", "n.base"),
    *("n.ctypes", "f.func_globals", "c.x", "m.path", "a.x[0]", "n[0]", "d[0]", "l[0].mro", "f.x"),
]


@every("text", WALKS)
def test_no_attribute_of_a_value_is_reached(text):
    known = {"a": CLS(x=1), "p": Plain.__new__(Plain), "t": (1,), "d": {"a": 1}, "l": [int]}
    known |= {"n": np.ones(3), "f": len, "c": CLS, "m": ast}
    with pytest.raises(SchemaError) as caught:
        evaluate(parse(text), known)
    assert caught.value.diagnostics[0].code in {"NQX115", "NQX116"}


def test_fields_of_instances():
    assert evaluate(parse("a.x + a.y"), {"a": CLS(x=1)}) == 3


@pytest.mark.parametrize(
    "text",
    ["x" + ".y" * 60, "x" + ".y" * 1900, "x" + "[0]" * 60, "x" + "[0]" * 1300, f"x[{'9' * 80}]"],
)
def test_long_paths_are_refused(text):
    with bounded(), pytest.raises(SchemaError) as caught:
        parse(text)
    assert caught.value.diagnostics[0].code == "NQX117"


def test_work_is_bounded():
    inside = []
    inside.append(inside)
    many = [StructValue({"x": 1})] * 20_000
    wide = [[[StructValue({"x": 1})] * 50] * 50] * 50
    for text in ("a.x", "a.x[0]", "sum(a)", "all(a > 0)", "-a", "a[0][0][0].x", "max(a * a)"):
        for value in (inside, many, wide):
            if text.startswith("a[0]") and value is not inside:
                continue
            with bounded(), pytest.raises(SchemaError) as caught:
                evaluate(parse(text), {"a": value})
            assert caught.value.diagnostics[0].code in {"NQX115", "NQX507"}
