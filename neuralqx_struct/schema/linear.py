"""Linear expressions: solving the equations of dims for one unknown, in exact arithmetic.

Owns the form ``slope * x + offset`` of an expression. Where an expression is not linear, not exact or cannot be computed
there is no form, and no error: ``evaluation.py`` says what is wrong where the value is needed.

Example:
    >>> from neuralqx_struct.schema.expressions import parse
    >>> linear_unknown(parse("2*n + 1"), "n", {}, 9)
    4
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.schema.evaluation import evaluate_tree
from neuralqx_struct.schema.expressions import Expression
from neuralqx_struct.schema.syntax import MAX_BITS, MAX_EXPONENT, spine

__all__ = ["linear_form", "linear_unknown"]


def linear_form(
    expression: Expression, unknown: frozenset[str], names: Mapping[str, Any]
) -> tuple[Fraction, Fraction] | None:
    """Write an expression as ``slope * x + offset``, exactly.

    Args:
        expression: A dim expression.
        unknown: The names that all stand for ``x``; empty for the exact value of a known expression.
        names: The values of its other names.

    Returns:
        Slope and offset; None where the expression is not linear, not exact (floats) or cannot be computed.

    Example:
        >>> from neuralqx_struct.schema.expressions import parse
        >>> linear_form(parse("n / 2 + k"), frozenset({"n"}), {"k": 3})
        (Fraction(1, 2), Fraction(3, 1))
    """
    return _linear(expression.tree, unknown, names)


def linear_unknown(expression: Expression, unknown: str, names: Mapping[str, Any], value: int) -> int | None:
    """Solve ``expression == value`` for one name.

    Args:
        expression: A dim expression.
        unknown: The name to solve for.
        names: The values of its other names.
        value: What the expression is equal to.

    Returns:
        The one whole number that solves it; None where there is none or the expression is not linear in the name.

    Example:
        >>> from neuralqx_struct.schema.expressions import parse
        >>> linear_unknown(parse("2*n + 1"), "n", {}, 9)
        4
    """
    form = linear_form(expression, frozenset({unknown}), names)
    if form is None or form[0] == 0:
        return None
    solution = (value - form[1]) / form[0]
    return int(solution) if solution.denominator == 1 else None


_Form = tuple[Fraction, Fraction]


def _linear(node: ast.expr, unknown: frozenset[str], names: Mapping[str, Any]) -> _Form | None:
    match node:
        case ast.Name(id=name) if name in unknown:
            return Fraction(1), Fraction(0)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            form = _linear(operand, unknown, names)
            return form and (-form[0], -form[1])
        case ast.BinOp():
            first, steps = spine(node)
            form = _linear(first, unknown, names)
            for step in steps:
                right = form and _linear(step.right, unknown, names)
                form = _LINEAR[type(step.op)](form, right) if form and right else None
            return form
    if unknown & _reads(node):
        return None
    try:
        value = evaluate_tree(node, names)
    except SchemaError:  # evaluate() says so where the value is needed
        return None
    return (Fraction(0), Fraction(value)) if type(value) is int else None


def _reads(node: ast.AST) -> frozenset[str]:
    return frozenset(inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name))


def _times(left: _Form, right: _Form) -> _Form | None:
    if left[0] and right[0]:
        return None
    return left[0] * right[1] + right[0] * left[1], left[1] * right[1]


def _whole(function: Callable[[Fraction, Fraction], Any]) -> Callable[[_Form, _Form], _Form | None]:
    """For operators that are not linear: on two known sides only."""

    def combine(left: _Form, right: _Form) -> _Form | None:
        known = not left[0] and not right[0] and right[1]
        return (Fraction(0), Fraction(function(left[1], right[1]))) if known else None

    return combine


def _power(left: _Form, right: _Form) -> _Form | None:
    base, exponent = left[1], right[1]
    if left[0] or right[0] or exponent not in range(MAX_EXPONENT + 1) or base.denominator != 1:
        return None
    return (Fraction(0), base ** int(exponent)) if base.numerator.bit_length() <= MAX_BITS else None


_LINEAR: Mapping[type[ast.operator], Callable[[_Form, _Form], _Form | None]] = {
    ast.Add: lambda left, right: (left[0] + right[0], left[1] + right[1]),
    ast.Sub: lambda left, right: (left[0] - right[0], left[1] - right[1]),
    ast.Mult: _times,
    ast.Div: lambda left, right: None if right[0] or not right[1] else (left[0] / right[1], left[1] / right[1]),
    ast.FloorDiv: _whole(operator.floordiv),
    ast.Mod: _whole(operator.mod),
    ast.Pow: _power,
}
