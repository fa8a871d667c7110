"""The subset of Python that expressions may have, with a hint for everything else."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neuralqx_struct.errors import did_you_mean
from neuralqx_struct.expressions.functions import FUNCTIONS
from neuralqx_struct.expressions.operators import (
    MAX_BITS,
    MAX_EXPONENT,
    OPERATORS,
    TreeWalk,
    operator_of,
    spine,
)

# Syntax of Python or C that people try; the rest is named by its node type.
_FORBIDDEN: Mapping[type[ast.AST], str] = {
    ast.Attribute: "attribute access",
    ast.Await: "await",
    ast.Dict: "a dict",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.JoinedStr: "an f-string",
    ast.Lambda: "a lambda",
    ast.ListComp: "a comprehension",
    ast.NamedExpr: "an assignment",
    ast.Set: "a set",
    ast.SetComp: "a comprehension",
    ast.Slice: "a slice",
    ast.Starred: "unpacking with *",
    ast.Subscript: "a subscript",
    ast.Yield: "yield",
    ast.YieldFrom: "yield",
    ast.Is: "is",
    ast.IsNot: "is not",
}
ADVICE: Mapping[str, str] = {
    "=": "compare with ==",
    "is": "compare with == or !=, also with None",
    "is not": "compare with == or !=, also with None",
    "&": "write `and`",
    "|": "write `or`",
    "!": "write `not`",
    "^": "powers are written **",
    ".": "attributes are not available; shape(x), size(x) and ndim(x) are functions",
    "attribute access": "attributes are not available; shape(x), size(x) and ndim(x) are functions",
    "a subscript": "only shapes have subscripts, with a number: shape(kernel)[0]",
}


def subset() -> str:
    """A list of everything that expressions may have."""
    return (
        "use numbers, strings, names, + - * / // % **, comparisons, and/or/not, `x if c else y` and "
        f"the functions {' '.join(FUNCTIONS)}"
    )


_CONSTANTS = (bool, int, float, str, type(None))


#: Code, message and hint.
_Objection = tuple[str, str, str | None]


@dataclass(frozen=True, slots=True)
class _Checked:
    """One node of a tree that is not checked yet.

    Attributes:
        parts: The node; of a chain of operations each of them, as a sum of 200 terms is long, not deep.
        children: The nodes inside.
        objections: Returns the problems of a part, those of the nodes inside left out.
    """

    parts: Sequence[ast.AST]
    children: Sequence[ast.AST]
    objections: Callable[[Any], Iterable[_Objection]]


def _none(_: ast.AST) -> Iterable[_Objection]:
    return ()


def _one(node: ast.AST, children: Sequence[ast.AST], objections: Any = _none) -> _Checked:
    return _Checked((node,), children, objections)


class _Check(TreeWalk):
    """Returns the parts, the children and the problems of a node."""

    def visit(self, node: ast.AST) -> _Checked:
        try:
            found: _Checked = super().visit(node)
        except KeyError:
            return _one(node, (), _foreign)
        return found

    def constant(self, node: ast.Constant) -> _Checked:
        return _one(node, (), _constant_objections)

    def name(self, node: ast.Name) -> _Checked:
        return _one(node, (), _name_objections)

    def operation(self, node: ast.BinOp) -> _Checked:
        if type(node.op) not in OPERATORS:
            return _one(node, (), _operator_objections)
        first, steps = spine(node)
        return _Checked(steps, [first, *(step.right for step in steps)], _power_objections)

    def unary(self, node: ast.UnaryOp) -> _Checked:
        return _one(node, (node.operand,), _operator_objections)

    def boolean(self, node: ast.BoolOp) -> _Checked:
        return _one(node, node.values)

    def comparison(self, node: ast.Compare) -> _Checked:
        return _one(node, [node.left, *node.comparators], _comparison_objections)

    def choice(self, node: ast.IfExp) -> _Checked:
        return _one(node, (node.test, node.body, node.orelse))

    def sequence(self, node: ast.Tuple | ast.List) -> _Checked:
        return _one(node, node.elts)

    def call(self, node: ast.Call) -> _Checked:
        return _one(node, node.args, _call_objections)

    def item(self, node: ast.Subscript) -> _Checked:
        return _one(node, (node.value,), _item_objections)


CHECK = _Check()


def _foreign(node: ast.AST) -> Iterable[_Objection]:
    found = _FORBIDDEN.get(type(node), type(node).__name__)
    hint = ADVICE.get(found, subset())
    yield "NQX114", f"expected an expression of the subset, got {found}", hint


def _constant_objections(node: ast.Constant) -> Iterable[_Objection]:
    value = node.value
    if type(value) not in _CONSTANTS:
        message = f"expected a number, string, True, False or None, got {type(value).__name__}"
        yield "NQX114", message, subset()
    elif type(value) is float and not math.isfinite(value):
        yield "NQX114", "expected a finite number, got one that is too large for a float", None
    elif type(value) is int and value.bit_length() > MAX_BITS:
        bits = value.bit_length()
        yield "NQX117", f"expected numbers of at most {MAX_BITS} bits, got {bits} bits", None


def _name_objections(node: ast.Name) -> Iterable[_Objection]:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", node.id):
        yield "NQX114", f"expected a name of letters, digits and _, got {node.id!r}", None


def _operator_objections(node: ast.BinOp | ast.UnaryOp) -> Iterable[_Objection]:
    if type(node.op) not in OPERATORS:
        found = type(node.op).__name__
        yield "NQX114", f"expected an operator of the subset, got {found}", subset()


def _power_objections(node: ast.BinOp) -> Iterable[_Objection]:
    exponent = getattr(node.right, "value", None)
    if operator_of(node).powers and type(exponent) is int and exponent > MAX_EXPONENT:
        yield "NQX117", f"expected an exponent of at most {MAX_EXPONENT}, got a larger one", None


def _comparison_objections(node: ast.Compare) -> Iterable[_Objection]:
    for relation, right in zip(node.ops, node.comparators, strict=True):
        record = OPERATORS.get(type(relation))
        if record is None:
            found = _FORBIDDEN[type(relation)]
            yield "NQX114", f"expected a comparison, got `{found}`", ADVICE[found]
        elif record.member and not _is_list_of_constants(right):
            wanted = f"a tuple or list of constants after `{record.symbol}`"
            hint = "write the choices out: x in ('a', 'b')"
            yield "NQX114", f"expected {wanted}, got another expression", hint


def _item_objections(node: ast.Subscript) -> Iterable[_Objection]:
    called = node.value.func if isinstance(node.value, ast.Call) else None
    if not isinstance(called, ast.Name) or called.id != "shape":
        yield from _foreign(node)
        return
    index = getattr(node.slice, "operand", node.slice)
    if type(getattr(index, "value", None)) is not int or not _is_constant(node.slice):
        message = "expected one whole number as subscript of a shape, got another"
        yield "NQX114", message, "write shape(x)[0]"


def _call_objections(node: ast.Call) -> Iterable[_Objection]:
    known = f"functions: {', '.join(FUNCTIONS)}"
    if not isinstance(node.func, ast.Name):
        yield "NQX114", "expected the name of a function before (, got another expression", known
        return
    name, count = node.func.id, len(node.args)
    record = FUNCTIONS.get(name)
    if record is None:
        hint = did_you_mean(name, FUNCTIONS) or known
        yield "NQX116", f"expected a known function, got {name!r}", hint
    elif node.keywords:
        yield "NQX114", f"expected arguments without names for {name}(), got name=value", None
    elif not count or (record.single and count > 1):
        wanted = "one argument" if record.single else "at least one argument"
        yield "NQX114", f"expected {wanted} for {name}(), got {count}", None


def _is_list_of_constants(node: ast.expr) -> bool:
    return isinstance(node, ast.Tuple | ast.List) and all(map(_is_constant, node.elts))


def _is_constant(node: ast.expr) -> bool:
    """True for a constant, also with a minus."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant)
