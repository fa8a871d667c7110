"""Evaluation: the value of an expression, given the values of its names.

Values come from untrusted payloads: no attribute of a value is reachable, no operator of an object that is neither
builtin nor an array is called, and steps and numbers are bounded.

Example:
    >>> from neuralqx_struct.expressions import parse
    >>> evaluate(parse("2*n + 1"), {"n": 4})
    9
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from neuralqx_struct.errors import SchemaError, did_you_mean
from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.functions import FUNCTIONS, is_array
from neuralqx_struct.expressions.operators import (
    MAX_BITS,
    MAX_DEPTH,
    MAX_EXPONENT,
    OPERATORS,
    SHORTEN,
    format_tree,
    operator_of,
    refuse,
    shown,
    spine,
)

MAX_BROADCAST = 65536

_NUMBERS = (bool, int, float, complex)
_SCALARS = frozenset({*_NUMBERS, str, bytes, type(None)})
_JOINED = (str, bytes, tuple, list)
_SIZED = (str, bytes, tuple, list, dict, set, frozenset)
# Subclasses (IntEnum, StrEnum, numpy's float64) become the builtin they extend, past whatever they override.
_EXACT: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (int, int.__int__),
    (float, float.__float__),
    (complex, complex.__complex__),
    (str, str.__str__),
)
# Exceptions of operators of numbers and arrays; RuntimeWarning where warnings are errors.
_FAILURES = (ArithmeticError, TypeError, ValueError, RuntimeWarning)


def evaluate(expression: Expression, names: Mapping[str, Any], *, budget: int = 10_000) -> Any:
    """Compute the value of an expression.

    Numbers, strings, tuples, lists and arrays (objects with ``shape`` and ``dtype``) behave as in Python; a chain of
    comparisons of arrays is taken element by element. Operators of any other object are never called: such a value can
    only be compared with None.

    Args:
        expression: The expression.
        names: The values of its names.
        budget: The most steps it may take; an element of a sequence is a step, an operation on an array also.

    Returns:
        The value; an array where arrays were combined.

    Raises:
        SchemaError: NQX115 operands of the wrong type, a division by zero, an ambiguous array; NQX116 an unknown
            name; NQX507 more steps, larger numbers or larger arrays than allowed. The error of an array's own
            operator is the ``__cause__``.

    Example:
        >>> from neuralqx_struct.expressions import parse
        >>> evaluate(parse("0 < alpha <= 8 and init in ('normal', 'zeros')"), {"alpha": 2, "init": "zeros"})
        True
    """
    return evaluate_tree(expression.tree, names, budget=budget)


def evaluate_tree(tree: ast.expr, names: Mapping[str, Any], *, budget: int = 10_000) -> Any:
    """As :func:`evaluate`, for a part of an expression's tree."""
    return _Evaluation(names, budget).visit(tree)


def can_fail(expression: Expression) -> bool:
    """True if an expression may have no value for some values of its names; a condition around a part guards it."""
    waiting: list[ast.AST] = [expression.tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Subscript):
            return True
        if isinstance(node, ast.BinOp):
            record = operator_of(node)
            if (record.divides or record.powers) and not _is_positive(node.right):
                return True
        if not isinstance(node, ast.IfExp):
            waiting += ast.iter_child_nodes(node)
    return False


def _is_positive(node: ast.expr) -> bool:
    """True for a positive number, and for the larger of several values one of which is."""
    if isinstance(node, ast.Call) and node.func.id == "max":  # type: ignore[attr-defined]
        return len(node.args) > 1 and any(map(_is_positive, node.args))
    value = getattr(node, "value", None)
    return isinstance(value, (int, float)) and value > 0


def _describe(value: Any) -> str:
    if value is None:
        return "None"
    if type(value) in _SCALARS or not is_array(value):
        return type(value).__name__
    shape = value.shape
    return f"{value.dtype}{list(shape) if isinstance(shape, tuple) else shape}"


def _is_a(value: Any, kinds: tuple[type, ...]) -> bool:
    """As ``isinstance``, which values can fake."""
    return any(issubclass(type(value), kind) for kind in kinds)


class _Evaluation(ast.NodeVisitor):
    """One run over a tree.

    Args:
        names: The values of names.
        steps: The budget.
    """

    __slots__ = ("names", "steps")

    def __init__(self, names: Mapping[str, Any], steps: int) -> None:
        self.names = names
        self.steps = steps

    def fail(
        self, node: ast.AST, message: str, *, code: str = "NQX115", hint: str | None = None
    ) -> NoReturn:
        refuse(code, f"{message}\nin `{shown(node)}`", hint)

    def spend(self, node: ast.AST, steps: int = 1) -> None:
        self.steps -= steps
        if self.steps < 0:
            message = "expected an expression within its budget, got more steps"
            self.fail(node, message, code="NQX507", hint=SHORTEN)

    # --- nodes -----------------------------------------------------------------------------------------------------

    def visit(self, node: ast.AST) -> Any:
        self.spend(node)
        return super().visit(node)

    def visit_Constant(self, node: ast.Constant) -> Any:
        return node.value

    def visit_Name(self, node: ast.Name) -> Any:
        try:
            value = self.names[node.id]
        except KeyError:
            known = sorted(map(str, self.names))
            listed = f"known names: {', '.join(known[:20])}" if known else None
            hint = did_you_mean(node.id, known) or listed
            self.fail(node, f"expected a known name, got {node.id!r}", code="NQX116", hint=hint)
        return self.builtin(value)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        first, steps = spine(node)
        self.spend(node, len(steps) - 1)
        left = self.visit(first)
        for step in steps:
            left = self.binary(step, left, self.visit(step.right))
        return left

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        record, value = operator_of(node), self.visit(node.operand)
        if record.negates:
            return not self.truth(node, value)
        return self.elementwise(node, record.apply, value)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        stops = operator_of(node).stops
        for inner in node.values[:-1]:
            value = self.visit(inner)
            if self.truth(node, value) is stops:
                return value
        return self.visit(node.values[-1])

    def visit_Compare(self, node: ast.Compare) -> Any:
        left = self.visit(node.left)
        result: Any = True
        for relation, comparator in zip(node.ops, node.comparators, strict=True):
            record, right = OPERATORS[type(relation)], self.visit(comparator)
            if record.member:
                found = (self.compare(node, record.apply, left, item) for item in right)
                held: Any = any(self.truth(node, same) for same in found) is not record.negates
            else:
                held = self.compare(node, record.apply, left, right)
            result = held if result is True else self.elementwise(node, operator.and_, result, held)
            if result is False:
                return False
            left = right
        return result

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        return self.visit(node.body if self.truth(node, self.visit(node.test)) else node.orelse)

    def visit_Tuple(self, node: ast.Tuple) -> Any:
        return tuple(map(self.visit, node.elts))

    def visit_List(self, node: ast.List) -> Any:
        return list(map(self.visit, node.elts))

    def visit_Call(self, node: ast.Call) -> Any:
        values = map(self.visit, node.args)
        return FUNCTIONS[node.func.id].evaluate(self, node, *values)  # type: ignore[attr-defined]

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        shape, axis = self.visit(node.value), self.visit(node.slice)
        if not -len(shape) <= axis < len(shape):
            self.fail(node, f"expected an array with an axis {axis}, got {len(shape)} axes")
        return shape[axis]

    # --- values, also for functions ----------------------------------------------------------------------------------

    @staticmethod
    def describe(value: Any) -> str:
        return _describe(value)

    @staticmethod
    def is_array(value: Any) -> bool:
        return type(value) not in _SCALARS and is_array(value)

    @staticmethod
    def builtin(value: Any) -> Any:
        """The builtin that a subclass extends; other values as they are."""
        if type(value) not in _SCALARS:
            for base, exact in _EXACT:
                if issubclass(type(value), base):
                    return exact(value)
        return value

    def apply(self, node: ast.AST, function: Callable[..., Any], *operands: Any) -> Any:
        try:
            return function(*operands)
        except ZeroDivisionError:
            self.fail(node, "expected a divisor other than zero, got 0")
        except _FAILURES as error:
            found = " and ".join(map(_describe, operands))
            message = f"expected operands that fit together, got {found}"
            raise SchemaError(
                f"{message}\nin `{format_tree(node)[:80]}`: {error}", code="NQX115"
            ) from error

    def array(self, node: ast.AST, value: Any) -> Any:
        """The array; refuses elements that are Python objects, which bring operators of their own."""
        if getattr(value.dtype, "kind", "") == "O":
            self.fail(node, "expected an array of numbers, got one of Python objects")
        return value

    def shape(self, node: ast.AST, value: Any) -> tuple[int, ...]:
        if type(value) in _NUMBERS:
            return ()
        for kind in _SIZED:
            if issubclass(type(value), kind):
                return (kind.__len__(value),)
        shape = value.shape if is_array(value) else None
        if not isinstance(shape, tuple) or not all(issubclass(type(size), int) for size in shape):
            self.fail(node, f"expected an array, a sequence or a number, got {_describe(value)}")
        return tuple(map(int.__int__, shape))

    def truth(self, node: ast.AST, value: Any) -> bool:
        if type(value) in _SCALARS:
            return bool(value)
        for kind in _SIZED:
            if issubclass(type(value), kind):
                return bool(kind.__len__(value))
        if not is_array(value):
            self.fail(node, f"expected a value that is true or false, got {_describe(value)}")
        shape = self.shape(node, value)
        if math.prod(shape) != 1:
            message = f"expected one truth value, got {_describe(value)}"
            self.fail(node, message, hint="say which elements must hold: all(...) or any(...)")
        return bool(self.apply(node, bool, self.array(node, value)))

    def plain(self, node: ast.AST, value: Any, depth: int = 0) -> Any:
        """The value as builtins all the way down, safe to compare and to join."""
        value = self.builtin(value)
        if type(value) in _SCALARS:
            return value
        kind: Any = tuple if issubclass(type(value), tuple) else list
        if not issubclass(type(value), kind) or depth >= MAX_DEPTH:
            got = _describe(value)
            self.fail(node, f"expected numbers, strings, sequences or arrays, got {got}")
        self.spend(node, 1 + kind.__len__(value))
        return kind(self.plain(node, item, depth + 1) for item in kind.__iter__(value))

    def elementwise(self, node: ast.AST, function: Callable[..., Any], *operands: Any) -> Any:
        """Applies an operator to numbers and arrays; the result may not be much larger than they are."""
        if all(type(operand) in _NUMBERS for operand in operands):
            for operand in operands:
                self.bounded(node, operand)
            return self.bounded(node, self.apply(node, function, *operands))
        shapes = []
        for operand in operands:
            if type(operand) not in _NUMBERS:
                if type(operand) in _SCALARS or not is_array(operand):
                    found = " and ".join(map(_describe, operands))
                    self.fail(node, f"expected numbers or arrays, got {found}")
                self.array(node, operand)
            shapes.append(self.shape(node, operand))
        rank = max(map(len, shapes))
        padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
        size = math.prod(map(max, zip(*padded, strict=True)))
        if size > max(MAX_BROADCAST, *map(math.prod, shapes)):
            found = " and ".join(map(_describe, operands))
            self.fail(
                node,
                f"expected arrays of one shape, got {found}, whose outer product is too large",
                code="NQX507",
            )
        return self.apply(node, function, *operands)

    def bounded(self, node: ast.AST, value: Any) -> Any:
        if type(value) is int and value.bit_length() > MAX_BITS:
            message = (
                f"expected whole numbers of at most {MAX_BITS} bits, got {value.bit_length()} bits"
            )
            self.fail(node, message, code="NQX507")
        return value

    def method(self, node: ast.AST, array: Any, name: str) -> Any:
        """The result of a method of an array, such as ``sum``."""
        return self.apply(node, getattr(self.array(node, array), name))

    def binary(self, node: ast.BinOp, left: Any, right: Any) -> Any:
        record = operator_of(node)
        if record.joins and _is_a(left, _JOINED):
            return self.joined(node, record.apply, self.plain(node, left), self.plain(node, right))
        if record.powers and type(right) is int and abs(right) > MAX_EXPONENT:
            message = f"expected an exponent of at most {MAX_EXPONENT}, got a larger one"
            self.fail(node, message, code="NQX507")
        return self.elementwise(node, record.apply, left, right)

    def joined(self, node: ast.AST, function: Callable[..., Any], left: Any, right: Any) -> Any:
        if type(left) is not type(right):
            found = f"{_describe(left)} and {_describe(right)}"
            self.fail(node, f"expected two operands of one type, got {found}")
        self.spend(node, len(left) + len(right))
        return function(left, right)

    def compare(self, node: ast.AST, op: Callable[..., Any], left: Any, right: Any) -> Any:
        if left is None or right is None:
            if op not in {operator.eq, operator.ne}:
                self.fail(
                    node,
                    f"expected two values to order, got {_describe(left)} and {_describe(right)}",
                )
            return (left is right) is (op is operator.eq)
        for value in (left, right):
            if type(value) not in _SCALARS and is_array(value):
                return self.elementwise(node, op, left, right)
        return self.apply(node, op, self.plain(node, left), self.plain(node, right))

    def items(self, node: ast.AST, value: Any) -> Sequence[Any]:
        """The items of a sequence."""
        if not _is_a(value, (str, tuple, list)):
            self.fail(node, f"expected an array or a sequence, got {_describe(value)}")
        items: Sequence[Any] = self.plain(node, value)
        if type(items) is str:
            self.spend(node, len(items))
        return items
