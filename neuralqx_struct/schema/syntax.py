"""The syntax of expressions: the tables of what the language has, and the canonical text of a tree.

Owns the operators with their precedence and meaning, the names of the functions, the limits on size, and printing, the
inverse of parsing. It is not ``ast.unparse``, which differs between Python versions: fingerprints contain the text.
What may be written is checked in ``expressions.py``; every tree that gets here has passed there.

Example:
    >>> format_tree(ast.parse("(2*n)+1", mode="eval").body)
    '2 * n + 1'
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from neuralqx_struct.errors import SchemaError

__all__ = [
    "BINARY",
    "BOOLEAN",
    "COMPARISONS",
    "FUNCTIONS",
    "MAX_BITS",
    "MAX_DEPTH",
    "MAX_EXPONENT",
    "SHORTEN",
    "UNARY",
    "Operator",
    "format_tree",
    "refuse",
    "spine",
]

MAX_DEPTH = 50
MAX_BITS = 256
MAX_EXPONENT = 64

# Precedences grow with the strength of the binding.
_IF, _OR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _SIGN, _POWER, _ATOM = range(10)


class Operator(NamedTuple):
    """How an operator is written, how strongly it binds, and what it does."""

    symbol: str
    binding: int
    apply: Callable[..., Any]


BINARY: Mapping[type[ast.operator], Operator] = {
    ast.Add: Operator("+", _SUM, operator.add),
    ast.Sub: Operator("-", _SUM, operator.sub),
    ast.Mult: Operator("*", _PRODUCT, operator.mul),
    ast.Div: Operator("/", _PRODUCT, operator.truediv),
    ast.FloorDiv: Operator("//", _PRODUCT, operator.floordiv),
    ast.Mod: Operator("%", _PRODUCT, operator.mod),
    ast.Pow: Operator("**", _POWER, operator.pow),
}
UNARY: Mapping[type[ast.unaryop], Operator] = {
    ast.USub: Operator("-", _SIGN, operator.neg),
    ast.UAdd: Operator("+", _SIGN, operator.pos),
    ast.Not: Operator("not ", _NOT, operator.not_),
}
BOOLEAN: Mapping[type[ast.boolop], Operator] = {
    ast.Or: Operator("or", _OR, operator.or_),
    ast.And: Operator("and", _AND, operator.and_),
}
COMPARISONS: Mapping[type[ast.cmpop], Operator] = {
    ast.Eq: Operator("==", _COMPARISON, operator.eq),
    ast.NotEq: Operator("!=", _COMPARISON, operator.ne),
    ast.Lt: Operator("<", _COMPARISON, operator.lt),
    ast.LtE: Operator("<=", _COMPARISON, operator.le),
    ast.Gt: Operator(">", _COMPARISON, operator.gt),
    ast.GtE: Operator(">=", _COMPARISON, operator.ge),
    ast.In: Operator("in", _COMPARISON, operator.eq),
    ast.NotIn: Operator("not in", _COMPARISON, operator.eq),
}

#: The functions by name; True for those that take exactly one argument. ``evaluation.py`` says what they compute.
FUNCTIONS: Mapping[str, bool] = {
    "len": True,
    "size": True,
    "shape": True,
    "ndim": True,
    "min": False,
    "max": False,
    "abs": True,
    "sum": True,
    "all": True,
    "any": True,
    "isfinite": True,
}

SHORTEN = "split it into derived fields or several constraints"

# Escaped in strings, always the same set: controls, quotes, and what is invisible or changes the direction of text.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\xa0\xad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\\']")


def refuse(code: str, message: str, hint: str | None = None) -> NoReturn:
    """Raise one problem of an expression; callers add where the expression stands."""
    raise SchemaError(message, code=code, hint=hint)


def _escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\{found.group()}" if found.group() in "\\'" else f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def spine(node: ast.BinOp) -> tuple[ast.expr, list[ast.BinOp]]:
    """The first operand of ``a + b - c * d`` and the operations that follow it, without what needs parentheses."""
    steps = [node]
    while (
        isinstance(left := steps[-1].left, ast.BinOp)
        and not isinstance(steps[-1].op, ast.Pow)
        and type(left.op) in BINARY
        and BINARY[type(left.op)].binding >= BINARY[type(steps[-1].op)].binding
    ):
        steps.append(left)
    return steps[-1].left, steps[::-1]


def format_tree(node: ast.AST, needed: int = _IF) -> str:
    """The canonical text of a checked tree, in parentheses if it binds less strongly than ``needed``."""
    text, binding = _text(node)
    return text if binding >= needed else f"({text})"


def _text(node: ast.AST) -> tuple[str, int]:
    match node:
        case ast.Constant(value=str(value)):
            return f"'{_UNSAFE.sub(_escape, value)}'", _ATOM
        case ast.Constant(value=value):
            text = repr(value)
            return text, _SIGN if text.startswith("-") else _ATOM
        case ast.Name(id=name):
            return name, _ATOM
        case ast.BinOp():
            first, steps = spine(node)
            bottom = BINARY[type(steps[0].op)].binding
            parts = [format_tree(first, _ATOM if bottom == _POWER else bottom)]
            for step in steps:
                symbol, binding, _ = BINARY[type(step.op)]
                parts += [symbol, format_tree(step.right, _SIGN if binding == _POWER else binding + 1)]
            return " ".join(parts), BINARY[type(node.op)].binding
        case ast.UnaryOp(op=op, operand=operand):
            symbol, binding, _ = UNARY[type(op)]
            return symbol + format_tree(operand, binding), binding
        case ast.BoolOp(op=op, values=values):
            symbol, binding, _ = BOOLEAN[type(op)]
            return f" {symbol} ".join(format_tree(value, binding) for value in values), binding
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            parts = [format_tree(left, _SUM)]
            for relation, right in zip(ops, comparators, strict=True):
                parts += [COMPARISONS[type(relation)].symbol, format_tree(right, _SUM)]
            return " ".join(parts), _COMPARISON
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return f"{format_tree(body, _OR)} if {format_tree(test, _OR)} else {format_tree(orelse)}", _IF
        case ast.Tuple(elts=elements):
            return f"({', '.join(map(format_tree, elements))}{',' if len(elements) == 1 else ''})", _ATOM
        case ast.List(elts=elements):
            return f"[{', '.join(map(format_tree, elements))}]", _ATOM
        case ast.Call(func=ast.Name(id=name), args=args):
            return f"{name}({', '.join(map(format_tree, args))})", _ATOM
        case ast.Subscript(value=value, slice=index):
            return f"{format_tree(value)}[{format_tree(index)}]", _ATOM
    raise AssertionError(ast.dump(node))  # pragma: no cover - expressions.py lets no other through
