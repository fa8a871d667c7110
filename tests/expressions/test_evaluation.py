"""Evaluation: the values of expressions, what has none, and what it may cost."""

from __future__ import annotations

import ast
import enum
import math
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import from_ast, parse
from neuralqx_struct.expressions.evaluation import evaluate
from neuralqx_struct.fieldspec import field
from neuralqx_struct.struct import Struct
from tests.builders import cases, every, refused


def codes(text, names=None):
    with pytest.raises(SchemaError) as caught:
        expression = parse(text)
        evaluate(expression, names or {})
    return [d.code for d in caught.value.diagnostics]


def value(text, /, **names):
    return evaluate(parse(text), names)


# ---------------------------------------------------------------------------------------------------------------------
# Values

VALUES = [
    "1 + 2 * 3 - 4 / 2",
    "7 // 2 + 7 % 4",
    "-7 // 2, -7 % 4",
    "2 ** 10 ** 1",
    "-2 ** 2",
    "1 < 2 < 3, 1 < 2 > 3, 3 > 2 == 2",
    "1 and 0, 1 or 2, 0 or '', not 1",
    "1 if 0 else 2",
    "'a' in ('a', 'b'), 3 not in [1, 2], -1 in (1, -1), None in (None,)",
    "'a' + 'b', (1,) + (2,), [1] + [2]",
    "1 == 1.0 == True, 'a' == 1, 'a' != 1, (1, 'a') == (1, 'a'), [1] < [2]",
    "min(3, 1, 2), max((3, 1, 2)), min('bca'), max([1.5, 2])",
    "abs(-3), abs(-3.5), sum((1, 2, 3)), sum([]), all((1, 0)), any([0, 2]), all(()), any('')",
    "len('abc'), len((1, 2))",
    "None == None, None != 1, None == 0",
    "1e10 ** 2, 0.1 + 0.2",
    "+True, -True, True + True",
]


@every("text", VALUES)
def test_values_are_those_of_python(text):
    assert repr(value(text)) == repr(eval(text))


@every(
    ("text", "expected"),
    [
        ("size(3)", 1),
        ("shape(2.5)", ()),
        ("ndim(True)", 0),
        ("size('abc')", 3),
        ("shape([1, 2])", (2,)),
        ("ndim((1,))", 1),
        ("isfinite(3)", True),
        ("isfinite(2.5)", True),
        ("isfinite(nan)", False),
        ("isfinite(z)", False),
        ("isfinite(huge)", True),
        ("size(d)", 2),
        ("len(d)", 2),
        ("d or 1", {"a": 1, "b": 2}),
        ("not empty", True),
        ("len(data)", 3),
        ("data == data", True),
        ("data + data", b"abcabc"),
        ("z != 1", True),
    ],
)
def test_values_beyond_python(text, expected):
    names = {
        "nan": math.nan,
        "z": complex(1, math.inf),
        "huge": 10**400,
        "d": {"a": 1, "b": 2},
        "empty": frozenset(),
    }
    assert evaluate(parse(text), names | {"data": b"abc"}) == expected


def test_and_or_if_do_not_evaluate_the_other_side():
    assert value("n == 0 or 1 // n > 1", n=0) is True
    assert value("n != 0 and 1 // n > 1", n=0) is False
    assert value("1 // n if n else 5", n=0) == 5
    assert value("1 < 0 < missing") is False


@every(
    ("text", "code", "message"),
    [
        ("alpga + 1", "NQX116", "`alpga`"),
        ("1 / n", "NQX115", "`1 / n`"),
        ("1 % n", "NQX115", "`1 % n`"),
        ("1.0 // n", "NQX115", "`1.0 // n`"),
        ("n ** -1", "NQX115", "`n ** -1`"),
        ("'a' + 1", "NQX115", "str and int"),
        (
            "'a' < 1",
            "NQX115",
            "`'a' < 1`",
        ),
        ("1 + 'a'", "NQX115", "int and str"),
        ("1 + None", "NQX115", "int and None"),
        ("None < 1", "NQX115", "None and int"),
        ("-'a'", "NQX115", "`-'a'`"),
        ("1e300 ** 10", "NQX115", "`1e+300 ** 10`"),
        ("abs('a')", "NQX115", "`abs('a')`"),
        ("len(1)", "NQX115", "`len(1)`"),
        ("len(None)", "NQX115", "None"),
        ("min(())", "NQX115", "`min(())`"),
        ("sum(1)", "NQX115", "`sum(1)`"),
        ("sum(('a', 'b'))", "NQX115", "int and str"),
        ("min(1, 'a')", "NQX115", "str and int"),
        ("shape(3)[0]", "NQX115", "0 axes"),
        ("shape('abc')[-2]", "NQX115", "axis -2"),
        ("isfinite('a')", "NQX115", "`isfinite('a')`"),
    ],
)
def test_errors_of_evaluation(text, code, message):
    with pytest.raises(SchemaError) as caught:
        evaluate(parse(text), {"n": 0, "alpha": 1})
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == code
    assert message in diagnostic.message
    if "alpga" in text:
        assert diagnostic.hint == "did you mean 'alpha'?"


def test_a_long_expression_is_shortened_in_messages():
    with pytest.raises(SchemaError) as caught:
        value("+".join(["1"] * 100) + "+ 'a'")
    assert max(map(len, caught.value.diagnostics[0].message.splitlines())) < 120


def test_the_budget_counts_steps():
    expression = parse("+".join(["1"] * 50))
    assert evaluate(expression, {}, budget=99) == 50
    with refused(SchemaError, "NQX507"):
        evaluate(expression, {}, budget=98)
    assert evaluate(parse("max(x)"), {"x": list(range(5000))}) == 4999
    with refused(SchemaError, "NQX507"):
        evaluate(parse("max(x)"), {"x": list(range(10**6))})
    with refused(SchemaError, "NQX507"):
        evaluate(parse("all(x)"), {"x": "a" * 20_000})


class Trap:
    """Every operator of it is a way out."""

    calls: list[str] = []

    def _sprung(self, *_):
        Trap.calls.append("sprung")
        return self

    __add__ = __radd__ = __mul__ = __rmul__ = __pow__ = __neg__ = __abs__ = __eq__ = __ne__ = (
        __lt__
    ) = _sprung
    __gt__ = __le__ = __ge__ = __bool__ = __len__ = __iter__ = __contains__ = __getitem__ = (
        __mod__
    ) = _sprung
    __and__ = __index__ = __int__ = __float__ = __call__ = __invert__ = _sprung
    __hash__ = None


TRAPPED = [
    "x + 1",
    "1 + x",
    "x * 2",
    "2 ** x",
    "-x",
    "abs(x)",
    "x == 1",
    "1 == x",
    "x != x",
    "x < 1",
    "x and 1",
    "not x",
    "1 if x else 2",
    "x in (1, 2)",
    "len(x)",
    "size(x)",
    "sum(x)",
    "all(x)",
    "min(x)",
    "max(x, 1)",
    "isfinite(x)",
    "(x,) == (1,)",
    "[x] + [1]",
    "sum((x,))",
    "any([x])",
    "nested == nested",
    "max(nested)",
    "'%s' % x",
    "objects + 1",
    "objects == 1",
    "sum(objects)",
    "isfinite(objects)",
    "all(objects)",
    "not objects",
    "type_ + 1",
]


@every("text", TRAPPED)
def test_no_operator_of_an_arbitrary_object_is_called(text):
    Trap.calls.clear()
    objects = np.empty(1, object)
    objects[0] = Trap()
    names = {"x": Trap(), "nested": [(Trap(),)], "objects": objects, "type_": np.ndarray}
    assert codes(text, names) == ["NQX115"]
    assert Trap.calls == []


def test_any_object_may_be_compared_with_none():
    Trap.calls.clear()
    names = {"x": Trap(), "array": np.ones(3)}
    assert evaluate(parse("x != None and not x == None and None != array"), names) is True
    assert evaluate(parse("x in (None,)"), names) is False
    assert Trap.calls == []


def test_subclasses_of_builtins_are_the_builtin():
    class Colour(enum.StrEnum):
        RED = "red"

    class Level(enum.IntEnum):
        LOW = 3

    class Liar(int):
        def __eq__(self, other):
            return True

        __hash__ = int.__hash__

        def __add__(self, other):
            return 99

    class Text(str):
        __slots__ = ()

        def __len__(self):
            return 5

    class Items(list):
        def __iter__(self):
            return iter([99])

    names = {
        "c": Colour.RED,
        "level": Level.LOW,
        "liar": Liar(1),
        "t": Text("ab"),
        "items": Items([1, 2]),
        "z": 1j,
    }
    assert evaluate(parse("c in ('red', 'blue') and level + 1 == 4 and z * z == -1"), names) is True
    assert evaluate(
        parse("(liar + 1, liar == 5, len(t), sum(items), len(items), [liar] == [2])"), names
    ) == (
        2,
        False,
        2,
        3,
        2,
        False,
    )
    assert type(evaluate(parse("x"), {"x": np.float64(2)})) is float


def test_a_list_that_holds_itself_is_refused():
    x = []
    x.append(x)
    assert codes("x == x", {"x": x}) == ["NQX115"]


# ---------------------------------------------------------------------------------------------------------------------
# Arrays

ARRAY = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)


@every(
    ("text", "expected"),
    [
        ("size(x)", 6),
        ("shape(x)", (2, 3)),
        ("shape(x)[-1]", 3),
        ("ndim(x)", 2),
        ("len(x)", 2),
        ("min(x)", 1.0),
        ("max(x)", 6.0),
        ("sum(x)", 21.0),
        ("all(x > 0)", True),
        ("any(x > 6)", False),
        ("all(0 < x <= 6)", True),
        ("all(0 < x <= 5)", False),
        ("all(isfinite(x))", True),
        ("all(abs(-x) == x)", True),
        ("sum(x * 2 + x / 2 - 1)", 46.5),
        ("all(x ** 2 >= x)", True),
        ("max(step, 1)", 7),
        ("min(step, 100)", 7),
        ("step > 3 and step", 7),
        ("1 if step else 2", 1),
        ("step in (1, 7)", True),
        ("not step == 7", False),
        ("all(shape(x) == (2, 3) and x > 0)", True),
        ("all(isfinite(bad))", False),
        ("sum(isfinite(bad))", 1),
        ("sum(isfinite(zbad))", 1),
        ("all(isfinite(counts))", True),
        ("size(abstract)", 12),
        ("size(empty)", 0),
        ("sum(empty)", 0),
    ],
)
def test_arrays(text, expected):
    names = {
        "x": ARRAY,
        "step": np.asarray(7),
        "bad": np.array([np.nan, np.inf, -np.inf, 1.0]),
        "zbad": np.array([complex(0, np.inf), complex(np.nan, 0), 1j]),
        "counts": np.array([-128, 127], np.int8),
        "abstract": SimpleNamespace(shape=(3, 4), dtype="float32"),
        "empty": np.ones((0, 3)),
    }
    assert evaluate(parse(text), names) == expected


def test_the_size_of_a_struct_is_that_of_all_its_arrays():
    class Inner(Struct):
        w: Any
        rate: float = 0.5
        label: str = field(default="abc", pytree=False)

    class Outer(Struct):
        first: Inner
        layers: list[Inner]
        named: dict[str, Any]
        handle: Any = field(default=None, pytree=False)
        twice: int = field(derived=lambda self: 2, pytree=False)

    inner = Inner(ARRAY)
    outer = Outer(
        inner,
        [inner, Inner(None)],
        {"a": (np.ones(4), 3), "b": SimpleNamespace(shape=(2,), dtype="int8")},
    )
    assert evaluate(parse("size(x)"), {"x": inner}) == 6
    assert evaluate(parse("size(x) + 1"), {"x": outer}) == 6 + 6 + 4 + 2 + 1
    with refused(SchemaError, "NQX115", "size"):
        evaluate(parse("size(x)"), {"x": Inner})


def test_the_size_of_very_deep_structs_is_refused():
    class Nest(Struct):
        inner: Any = None

    struct, nest = None, 1
    for _ in range(60):
        struct, nest = Nest(inner=struct), [nest]
    for deep in (struct, Nest(inner=nest), nest):
        assert codes("size(x)", {"x": deep}) == ["NQX115"]


def test_arrays_without_axes_are_numbers_in_sequences():
    pair = [np.float32(0.5), np.array(1.5)]
    assert value("pair == [0.5, 1.5]", pair=pair) and value("max(pair)", pair=pair) == 1.5


def test_isfinite_asks_the_library_of_the_array_or_compares():
    class Old:
        """An array of a library without namespaces, such as numpy 1.26."""

        def __init__(self, data):
            self.data, self.shape, self.dtype = data, data.shape, data.dtype
            self.real, self.imag = (
                (Old(data.real), Old(data.imag)) if data.dtype.kind == "c" else (self, self)
            )

        def __lt__(self, other):
            return self.data < other

        def __gt__(self, other):
            return self.data > other

    for data in ([np.nan, np.inf, -np.inf, 1.0], [complex(0, np.inf), complex(np.nan, 0), 1j]):
        array = np.array(data)
        assert np.array_equal(evaluate(parse("isfinite(x)"), {"x": Old(array)}), np.isfinite(array))


@every(
    ("text", "named"),
    [
        ("x > 0 and y", "bool[2, 3]"),
        ("not x", "`not x`"),
        ("x in (1, 2)", "`x in (1, 2)`"),
        ("max(x, 1)", "`max(x, 1)`"),
        ("x + y", "float32[2, 3] and int64[4]"),
        ("x + 'a'", "float32[2, 3] and str"),
        ("x == 'a'", "`x == 'a'`"),
        ("x == (1, 2)", "float32[2, 3] and tuple"),
        ("max(none)", "`max(none)`"),
        ("abstract + 1", "`abstract + 1`"),
        ("size(symbolic)", "`size(symbolic)`"),
        ("small + 1000", "1001 to 1001"),
    ],
)
def test_errors_of_arrays(text, named):
    names = {"x": ARRAY, "y": np.arange(4), "none": np.ones(0), "small": np.ones(2, np.int8)}
    names |= {"abstract": SimpleNamespace(shape=(3, 4), dtype="float32")}
    names |= {"symbolic": SimpleNamespace(shape=("b",), dtype="float32")}
    with refused(SchemaError, "NQX115", named):
        evaluate(parse(text), names)


def test_what_the_array_raised_is_the_cause():
    with pytest.raises(SchemaError) as caught:
        value("x + y", x=ARRAY, y=np.arange(4))
    assert isinstance(caught.value.__cause__, ValueError)


# ---------------------------------------------------------------------------------------------------------------------
# Laws

NAMES = {"a": 3, "b": -2, "c": 0, "d": True, "e": 17}


def _join(*parts):
    return st.tuples(*parts).map(lambda found: "(" + "".join(found) + ")")


def _extend(inner):
    op = st.sampled_from(
        [" + ", " - ", " * ", " // ", " % ", " < ", " <= ", " == ", " != ", " and ", " or ", "-"]
    )
    return st.one_of(
        _join(inner, op, inner),
        st.tuples(inner, op, inner).map("".join),
        _join(st.sampled_from(["-", "+", "not "]), inner),
        _join(inner, st.just(" if "), inner, st.just(" else "), inner),
        _join(
            inner, st.sampled_from([" < ", " >= "]), inner, st.sampled_from([" == ", " > "]), inner
        ),
        _join(inner, st.sampled_from([" in (1, -2, True)", " not in [0, 3]"])),
        _join(inner, st.just(" ** "), st.sampled_from(["0", "2", "3"])),
        st.tuples(
            st.sampled_from(["abs", "min", "max"]), _join(inner, st.sampled_from(["", " * 2"]))
        ).map("".join),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(
            lambda t: f"{t[0]}({t[1]}, {t[2]})"
        ),
        st.tuples(st.sampled_from(["sum", "all", "any"]), inner, inner).map(
            lambda t: f"{t[0]}(({t[1]}, {t[2]}))"
        ),
    )


TEXTS = st.recursive(
    st.sampled_from([*NAMES, "0", "1", "2", "5", "True", "False"]), _extend, max_leaves=12
)


@settings(max_examples=cases(500), deadline=None)
@given(TEXTS)
def test_evaluation_agrees_with_python(text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = eval(text, {}, NAMES)
        except (ZeroDivisionError, TypeError, SyntaxError) as error:
            expected = error
    try:
        expression = parse(text)
        found = evaluate(expression, NAMES)
    except SchemaError as error:
        assert isinstance(expected, Exception) or error.code in {"NQX117", "NQX507"}
        return
    assert (type(found), found) == (type(expected), expected)
    again = parse(expression.text)
    assert again == expression
    assert again.text == expression.text
    assert len(expression.text.replace(" ", "")) <= len(text.replace(" ", ""))
    assert evaluate(again, NAMES) == found
    assert from_ast(ast.parse(expression.text, mode="eval").body) == expression
