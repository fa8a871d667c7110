"""Operators of expressions: one record each, and the canonical text of a tree.

To add an operator, put a record into :data:`OPERATORS` under its node of Python's grammar: scanner, parser, printing,
evaluation and the solver of sizes take it from there. Printing is not ``ast.unparse``, which differs
between versions of Python: fingerprints contain the text.

Example:
    >>> format_tree(ast.parse("(2*n)+1", mode="eval").body)
    '2 * n + 1'
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from threading import RLock
from typing import Any, NamedTuple, NoReturn

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.printing import cut

MAX_DEPTH = 50
MAX_BITS = 256
MAX_EXPONENT = 64
SHORTEN = "split it into derived fields or several constraints"

# Precedences grow with the strength of the binding.
_IF, _OR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _SIGN, _POWER, _ATOM = range(10)

#: ``slope * x + offset``.
Form = tuple[Fraction, Fraction]


class Operator(NamedTuple):
    """One operator.

    Attributes:
        symbol: How it is written.
        binding: Its precedence.
        apply: Its meaning for numbers and arrays.
        linear: Its meaning for two linear forms, or None where the result is not linear.
        magnitude: A bound of the magnitude of results, from those of whole numbers; by default no bound below 64 bits.
        joins: True if it joins two sequences.
        divides: True if the right operand must not be zero.
        powers: True if the right operand is an exponent, which is bounded.
        member: True for the search in a list of constants.
        negates: True for ``not`` and ``not in``.
        stops: The truth value of an operand that decides the whole: True for ``or``.
    """

    symbol: str
    binding: int
    apply: Callable[..., Any]
    linear: Callable[[Form, Form], Form | None] = lambda _left, _right: None
    magnitude: Callable[..., int] = lambda *_: 2**63
    joins: bool = False
    divides: bool = False
    powers: bool = False
    member: bool = False
    negates: bool = False
    stops: bool = False


#: Two threads in ast.parse of Python 3.11 may raise SystemError (python/cpython#106905). One of them may be in a call of
#: another library, which does not wait for this lock: such a call is repeated.
_PARSING = RLock()
_TRIES = 8


def _add(left: Form, right: Form) -> Form:
    return left[0] + right[0], left[1] + right[1]


def _multiply(left: Form, right: Form) -> Form | None:
    if left[0] and right[0]:
        return None
    return left[0] * right[1] + right[0] * left[1], left[1] * right[1]


def _divide(left: Form, right: Form) -> Form | None:
    if right[0] or not right[1]:
        return None
    return left[0] / right[1], left[1] / right[1]


def _of_numbers(function: Callable[[Fraction, Fraction], Any]) -> Any:
    """The meaning of an operator that is linear for two numbers alone."""

    def combine(left: Form, right: Form) -> Form | None:
        if left[0] or right[0] or not right[1]:
            return None
        return Fraction(0), Fraction(function(left[1], right[1]))

    return combine


def _raise(left: Form, right: Form) -> Form | None:
    base, exponent = left[1], right[1]
    if left[0] or right[0] or exponent not in range(MAX_EXPONENT + 1):
        return None
    if base.denominator != 1 or base.numerator.bit_length() > MAX_BITS:
        return None
    return Fraction(0), base ** int(exponent)


def _comparison(symbol: str, apply: Callable[..., Any], **flags: bool) -> Operator:
    return Operator(symbol=symbol, binding=_COMPARISON, apply=apply, **flags)  # type: ignore[arg-type]


OPERATORS: dict[type[ast.AST], Operator] = {
    ast.Add: Operator(
        symbol="+",
        binding=_SUM,
        apply=operator.add,
        linear=_add,
        magnitude=operator.add,
        joins=True,
    ),
    ast.Sub: Operator(
        symbol="-",
        binding=_SUM,
        apply=operator.sub,
        linear=lambda left, right: (left[0] - right[0], left[1] - right[1]),
        magnitude=operator.add,
    ),
    ast.Mult: Operator(
        symbol="*",
        binding=_PRODUCT,
        apply=operator.mul,
        linear=_multiply,
        magnitude=operator.mul,
    ),
    ast.Div: Operator(
        symbol="/",
        binding=_PRODUCT,
        apply=operator.truediv,
        linear=_divide,
        magnitude=max,
        divides=True,
    ),
    ast.FloorDiv: Operator(
        symbol="//",
        binding=_PRODUCT,
        apply=operator.floordiv,
        linear=_of_numbers(operator.floordiv),
        magnitude=max,
        divides=True,
    ),
    ast.Mod: Operator(
        symbol="%",
        binding=_PRODUCT,
        apply=operator.mod,
        linear=_of_numbers(operator.mod),
        magnitude=max,
        divides=True,
    ),
    ast.Pow: Operator(
        symbol="**",
        binding=_POWER,
        apply=operator.pow,
        linear=_raise,
        magnitude=operator.pow,
        powers=True,
    ),
    ast.USub: Operator(symbol="-", binding=_SIGN, apply=operator.neg, magnitude=operator.pos),
    ast.UAdd: Operator(symbol="+", binding=_SIGN, apply=operator.pos, magnitude=operator.pos),
    ast.Not: Operator(symbol="not ", binding=_NOT, apply=operator.not_, negates=True),
    ast.Or: Operator(symbol="or", binding=_OR, apply=operator.or_, stops=True),
    ast.And: Operator(symbol="and", binding=_AND, apply=operator.and_),
    ast.Eq: _comparison("==", operator.eq),
    ast.NotEq: _comparison("!=", operator.ne),
    ast.Lt: _comparison("<", operator.lt),
    ast.LtE: _comparison("<=", operator.le),
    ast.Gt: _comparison(">", operator.gt),
    ast.GtE: _comparison(">=", operator.ge),
    ast.In: _comparison("in", operator.eq, member=True),
    ast.NotIn: _comparison("not in", operator.eq, member=True, negates=True),
}

# Escaped in strings, always the same set: controls, quotes, and characters that are invisible or change the direction.
_UNSAFE = re.compile(
    r"[\x00-\x1f\x7f-\xa0\xad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\\']"
)


def refuse(code: str, message: str, hint: str | None = None) -> NoReturn:
    """Raises one problem of an expression; callers add its place."""
    raise SchemaError(message, code=code, hint=hint)


def operator_of(node: Any) -> Operator:
    """The record of the operator of a node."""
    return OPERATORS[type(node.op)]


def shown(node: ast.AST) -> str:
    """The text of a tree for messages, cut to a line."""
    return cut(format_tree(node))


def spine(node: ast.BinOp) -> tuple[ast.expr, list[ast.BinOp]]:
    """The first operand of ``a + b - c * d`` and the operations that follow, without those in parentheses."""
    steps = [node]
    while True:
        left, record = steps[-1].left, operator_of(steps[-1])
        if not isinstance(left, ast.BinOp) or record.powers or type(left.op) not in OPERATORS:
            break
        if operator_of(left).binding < record.binding:
            break
        steps.append(left)
    return left, steps[::-1]


def parse_tree(text: str) -> ast.expr:
    """Parses one expression of Python.

    Raises:
        SyntaxError: The text is none.
    """
    with _PARSING:
        for _ in range(_TRIES):
            with suppress(SystemError):
                return ast.parse(text, mode="eval").body
        return ast.parse(text, mode="eval").body


def format_tree(node: ast.AST, needed: int = _IF) -> str:
    """The canonical text of a checked tree, in parentheses if it binds less strongly than ``needed``."""
    text, binding = _TEXT.visit(node)
    return text if binding >= needed else f"({text})"


def _joined(nodes: list[ast.expr]) -> str:
    return ", ".join(map(format_tree, nodes))


def _escape(found: re.Match[str]) -> str:
    character = found.group()
    if character in "\\'":
        return f"\\{character}"
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


class _Text(ast.NodeVisitor):
    """Prints trees: each method returns text and precedence."""

    def visit_Constant(self, node: ast.Constant) -> tuple[str, int]:
        if isinstance(node.value, str):
            return f"'{_UNSAFE.sub(_escape, node.value)}'", _ATOM
        text = repr(node.value)
        return text, _SIGN if text.startswith("-") else _ATOM

    def visit_Name(self, node: ast.Name) -> tuple[str, int]:
        return node.id, _ATOM

    def visit_BinOp(self, node: ast.BinOp) -> tuple[str, int]:
        first, steps = spine(node)
        bottom = operator_of(steps[0])
        parts = [format_tree(first, _ATOM if bottom.powers else bottom.binding)]
        for step in steps:
            record = operator_of(step)
            needed = _SIGN if record.powers else record.binding + 1
            parts += [record.symbol, format_tree(step.right, needed)]
        return " ".join(parts), operator_of(node).binding

    def visit_UnaryOp(self, node: ast.UnaryOp) -> tuple[str, int]:
        record = operator_of(node)
        return record.symbol + format_tree(node.operand, record.binding), record.binding

    def visit_BoolOp(self, node: ast.BoolOp) -> tuple[str, int]:
        record = operator_of(node)
        parts = [format_tree(value, record.binding) for value in node.values]
        return f" {record.symbol} ".join(parts), record.binding

    def visit_Compare(self, node: ast.Compare) -> tuple[str, int]:
        parts = [format_tree(node.left, _SUM)]
        for relation, right in zip(node.ops, node.comparators, strict=True):
            parts += [OPERATORS[type(relation)].symbol, format_tree(right, _SUM)]
        return " ".join(parts), _COMPARISON

    def visit_IfExp(self, node: ast.IfExp) -> tuple[str, int]:
        body, test = format_tree(node.body, _OR), format_tree(node.test, _OR)
        return f"{body} if {test} else {format_tree(node.orelse)}", _IF

    def visit_Tuple(self, node: ast.Tuple) -> tuple[str, int]:
        comma = "," if len(node.elts) == 1 else ""
        return f"({_joined(node.elts)}{comma})", _ATOM

    def visit_List(self, node: ast.List) -> tuple[str, int]:
        return f"[{_joined(node.elts)}]", _ATOM

    def visit_Call(self, node: ast.Call) -> tuple[str, int]:
        return f"{format_tree(node.func)}({_joined(node.args)})", _ATOM

    def visit_Attribute(self, node: ast.Attribute) -> tuple[str, int]:
        return f"{format_tree(node.value)}.{node.attr}", _ATOM

    def visit_Subscript(self, node: ast.Subscript) -> tuple[str, int]:
        return f"{format_tree(node.value)}[{format_tree(node.slice)}]", _ATOM


_TEXT = _Text()
