"""Expressions: what is of the subset, what is not, and the canonical text."""

from __future__ import annotations

import ast
import copy
import pickle
import re
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import from_ast, parse
from neuralqx_struct.expressions.evaluation import evaluate
from neuralqx_struct.schema.sizes import linear_form
from neuralqx_struct.types.text import parse_type
from tests.builders import bounded, cases, every, refused, stands_in


def codes(text, names=None):
    with pytest.raises(SchemaError) as caught:
        expression = parse(text)
        evaluate(expression, names or {})
    return [d.code for d in caught.value.diagnostics]


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


@every(("text", "canonical"), CANONICAL.items())
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
    with refused(SchemaError, "NQX114", "16"):
        from_ast(subscript.elts[1])
    negative = ast.BinOp(ast.Constant(-3), ast.Pow(), ast.Constant(2))
    assert from_ast(negative).text == "(-3) ** 2"
    assert evaluate(from_ast(negative), {}) == evaluate(parse("(-3) ** 2"), {}) == 9
    with refused(SchemaError, "NQX114", "naïve"):
        from_ast(ast.Name("naïve"))
    with refused(SchemaError, "NQX114"):
        from_ast(ast.parse("f(x)(y)", mode="eval").body)
    with refused(SchemaError, "NQX114", "len()"):
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
    "(x).__y__",
    "f(x).y",
    "x.__y",
    "1 .real",
    "1..real",
    "(x + 1)[0]",
    "x[y]",
    "x[True]",
    "x[1.0]",
    "x[+1]",
    "x['a']",
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


@every("text", ESCAPES)
def test_what_is_not_of_the_subset_is_refused_while_parsing(text):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SchemaError) as caught:
            parse(text)
    assert {d.code for d in caught.value.diagnostics} <= {"NQX114", "NQX116"}
    for diagnostic in caught.value.diagnostics:
        assert re.search(r"^expected .*, got .* at column \d+$", diagnostic.message, re.DOTALL), (
            diagnostic.message
        )


def test_names_of_functions_are_only_names():
    # Nothing is looked up but in the mapping that is handed in.
    assert codes("(len)") == ["NQX116"]
    assert codes("__builtins__") == ["NQX116"]
    assert codes("print") == ["NQX116"]


@every(
    ("text", "named", "hint"),
    [
        ("a + kernel.__len__", ["column 5", "'__len__'"], "shape(x)"),
        ("a = 1", ["column 3", "'='"], "=="),
        ("a && b", ["column 3", "'&'"], "write `and`"),
        ("x is None", ["column 1", "`is`"], "== or !="),
        ("sise(x)", ["column 1", "'sise'"], "'size'"),
        ("frobnicate(x)", ["column 1", "'frobnicate'"], "len, size"),
        ("'ä' + (x + 1)[0]", ["column 7"], "shape(kernel)[0]"),
        ("  a b", ["column 5", "'b'"], "numbers"),
        ("a +", ["column 4"], "numbers"),
        ("(a", ["column 1", "'('"], None),
        ("a)", ["column 2", "')'"], None),
        ("x in y", ["`in`"], "x in ('a', 'b')"),
        ("'a' 'b'", ["column 5"], "comma"),
    ],
)
def test_messages_point_at_the_place_and_say_what_to_do(text, named, hint):
    with pytest.raises(SchemaError) as caught:
        parse(text)
    (diagnostic,) = caught.value.diagnostics
    assert all(stands_in(each, diagnostic.message) for each in named)
    assert diagnostic.hint is None if hint is None else hint in diagnostic.hint


def test_all_problems_of_one_text_at_once():
    with pytest.raises(SchemaError) as caught:
        parse("foo(a) + (b is c) + len() - [x for x in y] + 2 ** 65")
    found = [(d.code, int(d.message.rsplit(" ", 1)[1])) for d in caught.value.diagnostics]
    assert found == [("NQX116", 1), ("NQX114", 11), ("NQX114", 21), ("NQX114", 29), ("NQX117", 46)]


def test_a_text_is_expected():
    for other in (12, None, b"n", ["n"]):
        with refused(SchemaError, "NQX114"):
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


@every("text", HOSTILE)
def test_hostile_texts_are_answered_at_once(text):
    names = {
        "a": 1,
        "b": True,
        "n": 2**60,
        "s": "x" * 3000,
        "t": (1,) * 3000,
        "huge": 1 << 10_000_000,
    }
    names |= {"wide": np.ones((1, 100_000), "int8"), "tall": np.ones((100_000, 1), "int8")}
    with bounded():
        assert codes(text, names) == [HOSTILE[text]]


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
    assert linear_form(parse("+".join(["n"] * 200)), frozenset({"n"}), {}) == (200, 0)


@settings(max_examples=cases(300))
@given(st.text(st.sampled_from("ab12 '\"()[],.+-*/%<>=!:{}\\\n#é²") | st.characters(), max_size=40))
def test_any_text_is_an_expression_or_a_schema_error(text):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            expression = parse(text)
        except SchemaError:
            return
    assert parse(expression.text) == expression


@given(st.text(max_size=30))
def test_strings_survive_the_canonical_text(text):
    expression = from_ast(ast.Constant(text))
    assert evaluate(parse(expression.text), {}) == text
    assert parse(expression.text) == expression
    assert expression.text.isprintable() or not text.isprintable()


_OPERATORS = [
    "+",
    "-",
    "*",
    "//",
    "%",
    "**",
    "/",
    "<",
    "<=",
    ">",
    ">=",
    "==",
    "!=",
    " and ",
    " or ",
]
_ATOMS = st.sampled_from(
    [
        "n",
        "m",
        "0",
        "1",
        "2",
        "7",
        "-3",
        "2.5",
        "-0.5",
        "1e3",
        "not n",
        "n if m else 2",
        "min(n, 2)",
        "-n",
        "+m",
    ]
)
_TREES = st.recursive(
    _ATOMS,
    lambda inner: (
        st.builds("({}) {} ({})".format, inner, st.sampled_from(_OPERATORS), inner)
        | st.builds("-({})".format, inner)
        | st.builds("max({}, {})".format, inner, inner)
        | st.builds("({}) if ({}) else ({})".format, inner, inner, inner)
    ),
    max_leaves=6,
)


@settings(max_examples=cases(300), deadline=None)
@given(_TREES, st.integers(-4, 4), st.integers(-4, 4))
def test_canonical_text_is_read_back_to_the_same_expression_with_the_same_value(text, n, m):
    def outcome(expression):
        try:
            value = evaluate(expression, {"n": n, "m": m})
        except SchemaError as error:
            return error.diagnostics[0].code
        return type(value), repr(value)

    try:
        first = parse(text)
    except SchemaError:
        return  # such as comparisons of comparisons
    again = parse(first.text)
    assert again == first and again.text == first.text and again.names == first.names
    assert outcome(again) == outcome(first)


def test_threads_parse_one_after_the_other(monkeypatch):
    """Two at once raise SystemError in Python 3.11, now and then."""
    real, inside, most = ast.parse, [], []

    def watched(*arguments, **options):
        inside.append(1)
        time.sleep(0.002)
        most.append(len(inside))
        inside.pop()
        return real(*arguments, **options)

    monkeypatch.setattr(ast, "parse", watched)
    with ThreadPoolExecutor(4) as pool:
        [*pool.map(lambda i: (parse(f"alone_{i} + 1"), parse_type(f"int8[alone_{i}]")), range(20))]
    assert len(most) >= 40 and max(most) == 1


def test_a_thread_of_another_library_in_the_parser_of_python_does_no_harm(monkeypatch):
    """Python 3.11 counts its depth for all threads, also those that do not wait for ours."""
    real, left = ast.parse, [3]

    def disturbed(*arguments, **options):
        left[0] -= 1
        if left[0] >= 0:
            raise SystemError("AST constructor recursion depth mismatch (before=105, after=33)")
        return real(*arguments, **options)

    monkeypatch.setattr(ast, "parse", disturbed)
    assert parse("disturbed + 1").text == "disturbed + 1"
    left[0] = 10**6
    with pytest.raises(SystemError):
        parse("always + 1")
    assert left[0] > 10**6 - 20
