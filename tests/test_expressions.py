"""Expressions: what is of the subset, what is not, the canonical text, values, and the solving for one unknown."""

from __future__ import annotations

import ast
import copy
import enum
import math
import pickle
import re
import sys
import time
import warnings
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.schema.expressions import evaluate, from_ast, linear_form, linear_unknown, parse


def codes(text, names=None):
    with pytest.raises(SchemaError) as caught:
        expression = parse(text)
        evaluate(expression, names or {})
    return [d.code for d in caught.value.diagnostics]


def value(text, /, **names):
    return evaluate(parse(text), names)


# ---------------------------------------------------------------------------------------------------------------------
# Canonical text

CANONICAL = {
    "  2*n+1 ": "2 * n + 1",
    "((a))+(b*c)": "a + b * c",
    "(a+b)*c": "(a + b) * c",
    "a-(b-c)": "a - (b - c)",
    "(a-b)-c": "a - b - c",
    "a*(b/c)": "a * (b / c)",
    "(a**b)**c": "(a ** b) ** c",
    "a**(b**c)": "a ** b ** c",
    "(-a)**2": "(-a) ** 2",
    "-(a**2)": "-a ** 2",
    "2**(-1)": "2 ** -1",
    "(a**2)*b": "a ** 2 * b",
    "- - a": "--a",
    "not(not a)": "not not a",
    "not (a==b)": "not a == b",
    "(not a)==b": "(not a) == b",
    "-(not a)": "-(not a)",
    "a and(b and c)": "a and b and c",
    "(a or b)and c": "(a or b) and c",
    "(a and b)or c": "a and b or c",
    "0<a<=8": "0 < a <= 8",
    "(a<b)<c": "(a < b) < c",
    "a if b else(c if d else e)": "a if b else c if d else e",
    "(a if b else c)if d else e": "(a if b else c) if d else e",
    "a if(b if c else d)else e": "a if (b if c else d) else e",
    "x not   in ('a',)": "x not in ('a',)",
    "x in['a',\"b'c\"]": "x in ['a', 'b\\'c']",
    "a, b": "(a, b)",
    "()": "()",
    "shape( kernel )[ 0 ]": "shape(kernel)[0]",
    "shape(kernel)[-1]": "shape(kernel)[-1]",
    "max(a,b,(c))": "max(a, b, c)",
    "0x10 + 1_000 + 1e3 + .5": "16 + 1000 + 1000.0 + 0.5",
    "True or None": "True or None",
    "'tab\\t\\u202e ä \\x00'": "'tab\\x09\\u202e ä \\x00'",
    "a +\n  b": "a + b",
    "size + shape(size)[0]": "size + shape(size)[0]",
}


@pytest.mark.parametrize(("text", "canonical"), CANONICAL.items())
def test_canonical_text_is_minimal_and_a_fixpoint(text, canonical):
    expression = parse(text)
    assert expression.text == str(expression) == canonical
    assert parse(canonical) == expression
    assert parse(canonical).text == canonical


def test_an_expression_is_a_record():
    expression = parse("size(kernel) + shape(bias)[0] * n")
    assert expression.names == {"kernel", "bias", "n"}
    assert repr(expression) == "Expression(text='size(kernel) + shape(bias)[0] * n')"
    assert {expression: 1}[parse("size(kernel)+(shape(bias)[0]*n)")] == 1
    assert expression != parse("n")
    for twin in (copy.deepcopy(expression), pickle.loads(pickle.dumps(expression))):
        assert twin == expression
        assert evaluate(twin, {"kernel": [1, 2], "bias": np.ones(3), "n": 4}) == 14
    with pytest.raises(AttributeError):
        expression.text = "other"


def test_from_ast_makes_the_same_checks():
    subscript = ast.parse("float32[2*(n), f(x).y]", mode="eval").body.slice
    assert from_ast(subscript.elts[0]) == parse("2 * n")
    with pytest.raises(SchemaError, match="attribute access at column 16"):
        from_ast(subscript.elts[1])
    negative = ast.BinOp(ast.Constant(-3), ast.Pow(), ast.Constant(2))
    assert from_ast(negative).text == "(-3) ** 2"
    assert evaluate(from_ast(negative), {}) == evaluate(parse("(-3) ** 2"), {}) == 9
    with pytest.raises(SchemaError, match="letters, digits"):
        from_ast(ast.Name("naïve"))
    with pytest.raises(SchemaError, match=r"expected the name of a function"):
        from_ast(ast.parse("f(x)(y)", mode="eval").body)
    with pytest.raises(SchemaError, match=r"without names for len\(\)"):
        from_ast(ast.parse("len(x, obj=y)", mode="eval").body)


# ---------------------------------------------------------------------------------------------------------------------
# What is refused

ESCAPES = [
    "().__class__.__bases__[0].__subclasses__()",
    "''.__class__",
    "''.format(x)",
    "'{0.__class__}'.format(x)",
    "'%s' .join(x)",
    "f'{x.__class__}'",
    "f'{x}'",
    "rb'x'",
    "b'x'",
    "u'x'",
    "__import__('os')",
    "__import__('os').system('ls')",
    "eval('1')",
    "exec('1')",
    "compile('1', '', 'eval')",
    "open('/etc/passwd')",
    "getattr(x, 'y')",
    "globals()",
    "vars()",
    "type(x)",
    "breakpoint()",
    "(x := 1)",
    "lambda: 0",
    "(lambda x: x)(1)",
    "[x for x in y]",
    "{x for x in y}",
    "{x: 1 for x in y}",
    "(x for x in y)",
    "(x for x in y).gi_frame.f_globals",
    "sum(x for x in y)",
    "max(i for i in (1, 2))",
    "{}",
    "{1}",
    "...",
    "x.y",
    "x . y",
    "1 .real",
    "1..real",
    "x[0]",
    "x['a']",
    "shape(x)[0:1]",
    "shape(x)[y]",
    "shape(x)[0, 1]",
    "shape(x)[True]",
    "shape(x)[-(-1)]",
    "size(x)[0]",
    "(1, 2)[0]",
    "*x",
    "max(*x)",
    "max(**x)",
    "max(x, key=len)",
    "min(a, default=1)",
    "len()",
    "len(a, b)",
    "max()",
    "len(x)(y)",
    "max(1)(2)",
    "yield",
    "(yield)",
    "(yield from x)",
    "await x",
    "x is y",
    "x is not None",
    "x @ y",
    "x & y",
    "x | y",
    "x ^ y",
    "~x",
    "x << 1",
    "x >> 1",
    "x <> y",
    "x = 1",
    "x; y",
    "x == 1 # comment",
    "x \\\n y",
    "`x`",
    "x!",
    "$x",
    "x?",
    "1j",
    "1if x else 2",
    "1.if x else 2",
    "0x1for x",
    "1__0",
    "010",
    "1e",
    "1e999",
    "'a' 'b'",
    "'a''b'",
    "'''a'''",
    "'\\d'",
    "'\\N{BULLET}'",
    "'\\101'",
    "'open",
    "'new\nline'",
    "'raw\ttab'",
    "x in y",
    "x in 'abc'",
    "x in ('a', y)",
    "x in ('a', ('b', 'c'))",
    "if",
    "for",
    "a b",
    "a if b",
    "a +",
    "",
    "   ",
    "(",
    ")",
    "(]",
    "(()",
    "a) + (b",
    "\x00",
    "a\x00b",
    "'\x00'",
    "a\x0cb",
    "\ufeffa",
    "a\xa0b",
    "'\ud800'",
    "١ + ٢",
    "a²",
    "ﬁeld",
    "naïve",
    "x\u200b",
    "x\u202e",
]


@pytest.mark.parametrize("text", ESCAPES)
def test_what_is_not_of_the_subset_is_refused_while_parsing(text):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SchemaError) as caught:
            parse(text)
    assert {d.code for d in caught.value.diagnostics} <= {"NQX114", "NQX116"}
    for diagnostic in caught.value.diagnostics:
        assert re.search(r"^expected .*, got .* at column \d+$", diagnostic.message, re.DOTALL), diagnostic.message


def test_names_of_functions_are_only_names():
    # Nothing is looked up but in the mapping that is handed in.
    assert codes("(len)") == ["NQX116"]
    assert codes("__builtins__") == ["NQX116"]
    assert codes("print") == ["NQX116"]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("a + kernel.T", "got '.' at column 11", "shape(x)"),
        ("a = 1", "got '=' at column 3", "compare with =="),
        ("a && b", "got '&' at column 3", "write `and`"),
        ("x is None", "got `is` at column 1", "== or !="),
        ("sise(x)", "got 'sise' at column 1", "did you mean 'size'?"),
        ("frobnicate(x)", "got 'frobnicate' at column 1", "functions: len, size"),
        ("'ä' + x[0]", "got a subscript at column 7", "shape(kernel)[0]"),
        ("  a b", "got 'b' at column 5", "use numbers"),
        ("a +", "got nothing more at column 4", "use numbers"),
        ("(a", "got '(' without an end at column 1", None),
        ("a)", "got ')' at column 2", None),
        ("x in y", "constants after `in`, got another", "write the choices out"),
        ("'a' 'b'", "at column 5", "put a comma"),
    ],
)
def test_messages_point_at_the_place_and_say_what_to_do(text, message, hint):
    with pytest.raises(SchemaError) as caught:
        parse(text)
    (diagnostic,) = caught.value.diagnostics
    assert message in diagnostic.message
    assert diagnostic.hint is None if hint is None else hint in diagnostic.hint


def test_all_problems_of_one_text_at_once():
    with pytest.raises(SchemaError) as caught:
        parse("foo(a) + (b is c) + len() - [x for x in y] + 2 ** 65")
    found = [(d.code, int(d.message.rsplit(" ", 1)[1])) for d in caught.value.diagnostics]
    assert found == [("NQX116", 1), ("NQX114", 11), ("NQX114", 21), ("NQX114", 29), ("NQX117", 46)]


def test_a_text_is_expected():
    for other in (12, None, b"n", ["n"]):
        with pytest.raises(SchemaError, match="expected an expression as text"):
            parse(other)


HOSTILE = {
    "(" * 100_000: "NQX117",
    "(" * 2000: "NQX117",
    "(" * 60 + "a" + ")" * 60: "NQX117",
    "[" * 2000 + "]" * 2000: "NQX117",
    "-" * 4000 + "1": "NQX117",
    "not " * 1000 + "a": "NQX117",
    "abs(" * 200 + "a" + ")" * 200: "NQX117",
    "a if b else " * 300 + "a": "NQX117",
    "2**" * 1000 + "2": "NQX117",
    "a**" * 60 + "2": "NQX117",
    "a" + "*a" * 10_000: "NQX117",
    "a" + "*a" * 2000: "NQX117",
    "a" + "<a" * 2000: "NQX117",
    "a" + " or a" * 800: "NQX117",
    "1" * 10**6: "NQX117",
    "1" * 4000: "NQX117",
    "0x" + "f" * 65: "NQX117",
    str(2**256): "NQX117",
    "[" + "1," * 2000 + "]": "NQX117",
    "'" + "\xa0" * 2000 + "'": "NQX117",
    "9**9**9**9": "NQX507",
    "(2**64)**5": "NQX507",
    "2**64**64": "NQX507",
    "*".join(["n"] * 200): "NQX507",
    "n ** (60 + 5)": "NQX507",
    "2 ** -65": "NQX507",
    "9 ** 99": "NQX117",
    "'a' * 10 ** 9": "NQX115",
    "n * 'a'": "NQX115",
    "(1, 2) * n": "NQX115",
    "[0] * 64": "NQX115",
    "'%1000000000d' % 1": "NQX115",
    "'%s' % 'a'": "NQX115",
    "s + s + s + s + s": "NQX507",
    "t + t + t + t": "NQX507",
    "sum(t + t)": "NQX507",
    "huge + 1": "NQX507",
    "-huge": "NQX507",
    "wide * tall": "NQX507",
}


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:20])
def test_hostile_texts_are_answered_at_once(text):
    names = {"a": 1, "b": True, "n": 2**60, "s": "x" * 3000, "t": (1,) * 3000, "huge": 1 << 10_000_000}
    names |= {"wide": np.ones((1, 100_000), "int8"), "tall": np.ones((100_000, 1), "int8")}
    before = time.perf_counter()
    assert codes(text, names) == [HOSTILE[text]]
    assert time.perf_counter() - before < 0.25  # milliseconds; the rest is for a busy machine


def test_what_python_itself_refuses_is_reported_too(monkeypatch):
    def full(*_, **__):
        raise RecursionError

    monkeypatch.setattr(ast, "parse", full)
    assert codes("a") == ["NQX117"]


def test_the_digit_limit_of_python_does_not_leak():
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        assert codes("1" * 700) == ["NQX114"]
    finally:
        sys.set_int_max_str_digits(limit)


def test_long_is_not_deep():
    names = {f"f{i}": np.ones(3) for i in range(60)}
    expression = parse(" + ".join(f"size({name})" for name in names))
    assert evaluate(expression, names) == 180
    assert parse(expression.text) == expression
    assert evaluate(parse(" or ".join(["n == 1"] * 100 + ["n == 2"])), {"n": 2}) is True
    assert linear_unknown(parse("+".join(["n"] * 200)), "n", {}, 400) == 2


@settings(max_examples=300)
@given(st.text(st.sampled_from("ab12 '\"()[],.+-*/%<>=!:{}\\\n#é²") | st.characters(), max_size=40))
def test_any_text_is_an_expression_or_a_schema_error(text):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            expression = parse(text)
        except SchemaError:
            return
    assert parse(expression.text) == expression


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


@pytest.mark.parametrize("text", VALUES)
def test_values_are_those_of_python(text):
    assert repr(value(text)) == repr(eval(text))


@pytest.mark.parametrize(
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
    names = {"nan": math.nan, "z": complex(1, math.inf), "huge": 10**400, "d": {"a": 1, "b": 2}, "empty": frozenset()}
    assert evaluate(parse(text), names | {"data": b"abc"}) == expected


def test_and_or_if_do_not_evaluate_the_other_side():
    assert value("n == 0 or 1 // n > 1", n=0) is True
    assert value("n != 0 and 1 // n > 1", n=0) is False
    assert value("1 // n if n else 5", n=0) == 5
    assert value("1 < 0 < missing") is False


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("alpga + 1", "NQX116", "expected a known name, got 'alpga'\nin `alpga`"),
        ("1 / n", "NQX115", "expected a divisor other than zero, got 0\nin `1 / n`"),
        ("1 % n", "NQX115", "divisor"),
        ("1.0 // n", "NQX115", "divisor"),
        ("n ** -1", "NQX115", "divisor"),
        ("'a' + 1", "NQX115", "expected two operands of one type, got str and int"),
        ("'a' < 1", "NQX115", "expected operands that fit together, got str and int\nin `'a' < 1`: '<' not"),
        ("1 + 'a'", "NQX115", "expected numbers or arrays, got int and str"),
        ("1 + None", "NQX115", "got int and None"),
        ("None < 1", "NQX115", "expected two values to order, got None and int"),
        ("-'a'", "NQX115", "got str"),
        ("1e300 ** 10", "NQX115", "fit together"),
        ("abs('a')", "NQX115", "got str"),
        ("len(1)", "NQX115", "expected a sequence or an array with an axis, got int"),
        ("len(None)", "NQX115", "expected an array, a sequence or a number, got None"),
        ("min(())", "NQX115", "expected at least one element"),
        ("sum(1)", "NQX115", "expected an array or a sequence, got int"),
        ("sum(('a', 'b'))", "NQX115", "expected numbers or arrays, got int and str"),
        ("min(1, 'a')", "NQX115", "fit together"),
        ("shape(3)[0]", "NQX115", "expected an array with an axis 0, got 0 axes"),
        ("shape('abc')[-2]", "NQX115", "axis -2, got 1 axes"),
        ("isfinite('a')", "NQX115", "expected a number or an array, got str"),
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
    with pytest.raises(SchemaError, match="within its budget") as caught:
        evaluate(expression, {}, budget=98)
    assert caught.value.code == "NQX507"
    assert evaluate(parse("max(x)"), {"x": list(range(5000))}) == 4999
    with pytest.raises(SchemaError, match="within its budget"):
        evaluate(parse("max(x)"), {"x": list(range(10**6))})
    with pytest.raises(SchemaError, match="within its budget"):
        evaluate(parse("all(x)"), {"x": "a" * 20_000})


class Trap:
    """Every operator of it is a way out."""

    calls: list[str] = []

    def _sprung(self, *_):
        Trap.calls.append("sprung")
        return self

    __add__ = __radd__ = __mul__ = __rmul__ = __pow__ = __neg__ = __abs__ = __eq__ = __ne__ = __lt__ = _sprung
    __gt__ = __le__ = __ge__ = __bool__ = __len__ = __iter__ = __contains__ = __getitem__ = __mod__ = _sprung
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


@pytest.mark.parametrize("text", TRAPPED)
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

    names = {"c": Colour.RED, "level": Level.LOW, "liar": Liar(1), "t": Text("ab"), "items": Items([1, 2]), "z": 1j}
    assert evaluate(parse("c in ('red', 'blue') and level + 1 == 4 and z * z == -1"), names) is True
    assert evaluate(parse("(liar + 1, liar == 5, len(t), sum(items), len(items), [liar] == [2])"), names) == (
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


@pytest.mark.parametrize(
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


def test_isfinite_asks_the_library_of_the_array_or_compares():
    class Old:
        """An array of a library without namespaces, such as numpy 1.26."""

        def __init__(self, data):
            self.data, self.shape, self.dtype = data, data.shape, data.dtype
            self.real, self.imag = (Old(data.real), Old(data.imag)) if data.dtype.kind == "c" else (self, self)

        def __lt__(self, other):
            return self.data < other

        def __gt__(self, other):
            return self.data > other

    for data in ([np.nan, np.inf, -np.inf, 1.0], [complex(0, np.inf), complex(np.nan, 0), 1j]):
        array = np.array(data)
        assert np.array_equal(evaluate(parse("isfinite(x)"), {"x": Old(array)}), np.isfinite(array))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x > 0 and y", "expected one truth value, got bool[2, 3]"),
        ("not x", "expected one truth value"),
        ("x in (1, 2)", "expected one truth value"),
        ("max(x, 1)", "expected one truth value"),
        ("x + y", "expected operands that fit together, got float32[2, 3] and int64[4]"),
        ("x + 'a'", "expected numbers or arrays, got float32[2, 3] and str"),
        ("x == 'a'", "expected numbers or arrays"),
        ("x == (1, 2)", "expected numbers or arrays, got float32[2, 3] and tuple"),
        ("max(none)", "fit together"),
        ("abstract + 1", "fit together"),
        ("size(symbolic)", "expected an array, a sequence or a number"),
        ("small + 1000", "fit together"),
    ],
)
def test_errors_of_arrays(text, message):
    names = {"x": ARRAY, "y": np.arange(4), "none": np.ones(0), "small": np.ones(2, np.int8)}
    names |= {"abstract": SimpleNamespace(shape=(3, 4), dtype="float32")}
    names |= {"symbolic": SimpleNamespace(shape=("b",), dtype="float32")}
    with pytest.raises(SchemaError) as caught:
        evaluate(parse(text), names)
    assert caught.value.code == "NQX115"
    assert message in str(caught.value)


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
    op = st.sampled_from([" + ", " - ", " * ", " // ", " % ", " < ", " <= ", " == ", " != ", " and ", " or ", "-"])
    return st.one_of(
        _join(inner, op, inner),
        st.tuples(inner, op, inner).map("".join),
        _join(st.sampled_from(["-", "+", "not "]), inner),
        _join(inner, st.just(" if "), inner, st.just(" else "), inner),
        _join(inner, st.sampled_from([" < ", " >= "]), inner, st.sampled_from([" == ", " > "]), inner),
        _join(inner, st.sampled_from([" in (1, -2, True)", " not in [0, 3]"])),
        _join(inner, st.just(" ** "), st.sampled_from(["0", "2", "3"])),
        st.tuples(st.sampled_from(["abs", "min", "max"]), _join(inner, st.sampled_from(["", " * 2"]))).map("".join),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
        st.tuples(st.sampled_from(["sum", "all", "any"]), inner, inner).map(lambda t: f"{t[0]}(({t[1]}, {t[2]}))"),
    )


TEXTS = st.recursive(st.sampled_from([*NAMES, "0", "1", "2", "5", "True", "False"]), _extend, max_leaves=12)


@settings(max_examples=500, deadline=None)
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


@given(st.text(max_size=30))
def test_strings_survive_the_canonical_text(text):
    expression = from_ast(ast.Constant(text))
    assert evaluate(parse(expression.text), {}) == text
    assert parse(expression.text) == expression
    assert expression.text.isprintable() or not text.isprintable()


# ---------------------------------------------------------------------------------------------------------------------
# Solving for one unknown


@pytest.mark.parametrize(
    ("text", "result", "solution"),
    [
        ("n", 5, 5),
        ("2*n + 1", 9, 4),
        ("2*n + 1", 8, None),
        ("k * n", 12, 4),
        ("(n - 1) * k - n", 7, 5),
        ("n / 2", 3, 6),
        ("n / 2 * 2", 3, 3),
        ("n / 3 + n / 6", 1, 2),
        ("-n + 10", 3, 7),
        ("k ** 2 * n", 18, 2),
        ("k // 2 + n % 1", 5, None),
        ("k // 2 + n", 5, 4),
        ("7 % k + n", 5, 4),
        ("n * 0 + 3", 3, None),
        ("n - n", 0, None),
        ("n * n", 9, None),
        ("n ** 1", 9, None),
        ("n // 2", 4, None),
        ("k / n", 1, None),
        ("max(n, 1)", 4, None),
        ("max(k, 1) * n", 6, 2),
        ("(k if k > 2 else 1) * n", 6, 2),
        ("n if k else 1", 6, None),
        ("0.5 * n", 6, None),
        ("n / 0", 6, None),
        ("n // 0", 6, None),
        ("k % 0 + n", 6, None),
        ("k ** -1 * n", 6, None),
        ("k ** (60 + 5) * n", 6, None),
        ("(k / 2) ** 2 * n", 6, None),
        ("missing + n", 6, None),
        ("True + n", 6, None),
        ("n + 5", 2, -3),
        ("2**60 * n", 2**61, 2),
    ],
)
def test_linear_unknown(text, result, solution):
    assert linear_unknown(parse(text), "n", {"k": 3}, result) == solution


def test_linear_form_is_exact():
    assert linear_form(parse("n / 3 + k / 7"), frozenset({"n"}), {"k": 2}) == (Fraction(1, 3), Fraction(2, 7))
    assert linear_form(parse("a + 2 * b"), frozenset({"a", "b"}), {}) == (Fraction(3), Fraction(0))
    assert linear_form(parse("k / 49 * 49"), frozenset(), {"k": 1}) == (Fraction(0), Fraction(1))
    assert linear_form(parse("7 // 2 % 2"), frozenset(), {}) == (Fraction(0), Fraction(1))


_LINEAR = st.recursive(
    st.sampled_from(["n", "k", "2", "5", "7"]),
    lambda inner: st.tuples(inner, st.sampled_from([" + ", " - ", " * "]), inner).map(lambda t: f"({''.join(t)})"),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(_LINEAR, st.integers(-50, 50), st.integers(0, 9))
def test_a_solution_solves(text, n, k):
    expression = parse(text)
    result = evaluate(expression, {"n": n, "k": k})
    form = linear_form(expression, frozenset({"n"}), {"k": k})
    if form is not None:
        assert form[0] * n + form[1] == result
    solution = linear_unknown(expression, "n", {"k": k}, result)
    assert solution == (n if form is not None and form[0] else None)
