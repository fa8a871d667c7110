"""Evaluation: what an expression is equal to, given the values of its names.

Owns the meaning of operators and functions for numbers, text, sequences and arrays, and the budget of steps. Values come
from payloads that nobody vouches for: no attribute of a value is reachable, no operator of an object that is neither
builtin nor an array is called, and steps and numbers are bounded.

Example:
    >>> from neuralqx_struct.schema.expressions import parse
    >>> evaluate(parse("2*n + 1"), {"n": 4})
    9
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from neuralqx_struct.errors import SchemaError, did_you_mean
from neuralqx_struct.fieldspec import FieldKind, is_struct
from neuralqx_struct.schema.expressions import Expression
from neuralqx_struct.schema.syntax import (
    BINARY,
    COMPARISONS,
    MAX_BITS,
    MAX_DEPTH,
    MAX_EXPONENT,
    SHORTEN,
    UNARY,
    format_tree,
    refuse,
    spine,
)

__all__ = ["evaluate", "evaluate_tree"]

MAX_BROADCAST = 65536

_NUMBERS = (bool, int, float, complex)
_SCALARS = frozenset({*_NUMBERS, str, bytes, type(None)})
_SIZED = (str, bytes, tuple, list, dict, set, frozenset)
# Subclasses (IntEnum, StrEnum, numpy's float64) become the builtin they extend, past whatever they override.
_EXACT: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (int, int.__int__),
    (float, float.__float__),
    (complex, complex.__complex__),
    (str, str.__str__),
)
# What operators of numbers and arrays raise; RuntimeWarning where warnings are errors.
_FAILURES = (ArithmeticError, TypeError, ValueError, RuntimeWarning)


def evaluate(expression: Expression, names: Mapping[str, Any], *, budget: int = 10_000) -> Any:
    """Compute the value of an expression.

    Numbers, strings, tuples, lists and arrays (objects with ``shape`` and ``dtype``) behave as in Python; a chain of
    comparisons of arrays is taken element by element. Operators of any other object are never called: such a value can
    only be compared with None.

    Args:
        expression: What to compute.
        names: The values of its names.
        budget: The most steps it may take; an element of a sequence is a step, an operation on an array also.

    Returns:
        The value; an array where arrays were combined.

    Raises:
        SchemaError: NQX115 operands of the wrong type, a division by zero, an ambiguous array; NQX116 an unknown
            name; NQX507 more steps, larger numbers or larger arrays than allowed. What an array's own operator
            raised is the ``__cause__``.

    Example:
        >>> from neuralqx_struct.schema.expressions import parse
        >>> evaluate(parse("0 < alpha <= 8 and init in ('normal', 'zeros')"), {"alpha": 2, "init": "zeros"})
        True
    """
    return evaluate_tree(expression.tree, names, budget=budget)


def evaluate_tree(tree: ast.expr, names: Mapping[str, Any], *, budget: int = 10_000) -> Any:
    """As :func:`evaluate`, for a part of an expression's tree."""
    return _Evaluation(names, budget).value(tree)


def _is_array(value: Any) -> bool:
    return not issubclass(type(value), type) and hasattr(value, "shape") and hasattr(value, "dtype")


def _describe(value: Any) -> str:
    if type(value) not in _SCALARS and _is_array(value):
        return f"{value.dtype}{list(value.shape) if isinstance(value.shape, tuple) else value.shape}"
    return "None" if value is None else type(value).__name__


class _Evaluation:
    """One run over a tree: the values of names and what is left of the budget."""

    __slots__ = ("names", "steps")

    def __init__(self, names: Mapping[str, Any], steps: int) -> None:
        self.names = names
        self.steps = steps

    def fail(self, node: ast.AST, message: str, *, code: str = "NQX115", hint: str | None = None) -> NoReturn:
        text = format_tree(node)
        refuse(code, f"{message}\nin `{text if len(text) <= 80 else text[:77] + '...'}`", hint)

    def spend(self, node: ast.AST, steps: int = 1) -> None:
        self.steps -= steps
        if self.steps < 0:
            self.fail(node, "expected an expression within its budget, got more steps", code="NQX507", hint=SHORTEN)

    def value(self, node: ast.AST) -> Any:
        self.spend(node)
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self.name(node, name)
            case ast.BinOp():
                first, steps = spine(node)
                self.spend(node, len(steps) - 1)
                left = self.value(first)
                for step in steps:
                    left = self.binary(step, left, self.value(step.right))
                return left
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self.truth(node, self.value(operand))
            case ast.UnaryOp(op=op, operand=operand):
                return self.elementwise(node, UNARY[type(op)].apply, self.value(operand))
            case ast.BoolOp(op=op, values=values):
                for inner in values[:-1]:
                    value = self.value(inner)
                    if self.truth(node, value) is isinstance(op, ast.Or):
                        return value
                return self.value(values[-1])
            case ast.Compare():
                return self.chain(node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.value(body if self.truth(node, self.value(test)) else orelse)
            case ast.Tuple(elts=elements):
                return tuple(map(self.value, elements))
            case ast.List(elts=elements):
                return list(map(self.value, elements))
            case ast.Call(func=ast.Name(id=name), args=args):
                return _FUNCTIONS[name](self, node, *map(self.value, args))
            case ast.Subscript(value=inner, slice=index):
                shape = self.value(inner)
                axis = self.value(index)
                if not -len(shape) <= axis < len(shape):
                    self.fail(node, f"expected an array with an axis {axis}, got {len(shape)} axes")
                return shape[axis]
        raise AssertionError(ast.dump(node))  # pragma: no cover - expressions.py lets no other through

    def name(self, node: ast.AST, name: str) -> Any:
        try:
            value = self.names[name]
        except KeyError:
            known = sorted(map(str, self.names))
            hint = did_you_mean(name, known) or (f"known names: {', '.join(known[:20])}" if known else None)
            self.fail(node, f"expected a known name, got {name!r}", code="NQX116", hint=hint)
        if type(value) in _SCALARS:
            return value
        return next((exact(value) for base, exact in _EXACT if issubclass(type(value), base)), value)

    def apply(self, node: ast.AST, function: Callable[..., Any], *operands: Any) -> Any:
        try:
            return function(*operands)
        except ZeroDivisionError:
            self.fail(node, "expected a divisor other than zero, got 0")
        except _FAILURES as error:
            found = " and ".join(map(_describe, operands))
            message = f"expected operands that fit together, got {found}"
            raise SchemaError(f"{message}\nin `{format_tree(node)[:80]}`: {error}", code="NQX115") from error

    def array(self, node: ast.AST, value: Any) -> Any:
        """The array itself, if its operators are its library's: elements that are Python objects bring their own."""
        if getattr(value.dtype, "kind", "") == "O":
            self.fail(node, "expected an array of numbers, got one of Python objects")
        return value

    def shape(self, node: ast.AST, value: Any) -> tuple[int, ...]:
        if type(value) in _NUMBERS:
            return ()
        for kind in _SIZED:
            if issubclass(type(value), kind):
                return (kind.__len__(value),)
        shape = value.shape if _is_array(value) else None
        if not isinstance(shape, tuple) or not all(issubclass(type(size), int) for size in shape):
            self.fail(node, f"expected an array, a sequence or a number, got {_describe(value)}")
        return tuple(map(int.__int__, shape))

    def truth(self, node: ast.AST, value: Any) -> bool:
        if type(value) in _SCALARS:
            return bool(value)
        for kind in _SIZED:
            if issubclass(type(value), kind):
                return bool(kind.__len__(value))
        if not _is_array(value):
            self.fail(node, f"expected a value that is true or false, got {_describe(value)}")
        shape = self.shape(node, value)
        if math.prod(shape) != 1:
            message = f"expected one truth value, got {_describe(value)}"
            self.fail(node, message, hint="say which elements must hold: all(...) or any(...)")
        return bool(self.apply(node, bool, self.array(node, value)))

    def plain(self, node: ast.AST, value: Any, depth: int = 0) -> Any:
        """The value as builtins all the way down, safe to compare and to join."""
        if type(value) in _SCALARS:
            return value
        for base, exact in _EXACT:
            if issubclass(type(value), base):
                return exact(value)
        kind: Any = tuple if issubclass(type(value), tuple) else list
        if not issubclass(type(value), kind) or depth >= MAX_DEPTH:
            self.fail(node, f"expected numbers, strings, sequences or arrays, got {_describe(value)}")
        self.spend(node, 1 + kind.__len__(value))
        return kind(self.plain(node, item, depth + 1) for item in kind.__iter__(value))

    def elementwise(self, node: ast.AST, function: Callable[..., Any], *operands: Any) -> Any:
        """Apply an operator to numbers and arrays only; what it makes may not be larger than what it was given."""
        if all(type(operand) in _NUMBERS for operand in operands):
            for operand in operands:
                self.bounded(node, operand)
            return self.bounded(node, self.apply(node, function, *operands))
        shapes = []
        for operand in operands:
            if type(operand) not in _NUMBERS:
                if type(operand) in _SCALARS or not _is_array(operand):
                    found = " and ".join(map(_describe, operands))
                    self.fail(node, f"expected numbers or arrays, got {found}")
                self.array(node, operand)
            shapes.append(self.shape(node, operand))
        rank = max(map(len, shapes))
        padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
        if math.prod(map(max, zip(*padded, strict=True))) > max(MAX_BROADCAST, *map(math.prod, shapes)):
            found = " and ".join(map(_describe, operands))
            self.fail(
                node, f"expected arrays of one shape, got {found}, whose outer product is too large", code="NQX507"
            )
        return self.apply(node, function, *operands)

    def bounded(self, node: ast.AST, value: Any) -> Any:
        if type(value) is int and value.bit_length() > MAX_BITS:
            message = f"expected whole numbers of at most {MAX_BITS} bits, got {value.bit_length()} bits"
            self.fail(node, message, code="NQX507")
        return value

    def binary(self, node: ast.BinOp, left: Any, right: Any) -> Any:
        joins = (str, bytes, tuple, list)
        if isinstance(node.op, ast.Add) and any(issubclass(type(left), kind) for kind in joins):
            left, right = self.plain(node, left), self.plain(node, right)
            if type(left) is not type(right):
                self.fail(node, f"expected two operands of one type, got {_describe(left)} and {_describe(right)}")
            self.spend(node, len(left) + len(right))
            return left + right
        if isinstance(node.op, ast.Pow) and type(right) is int and abs(right) > MAX_EXPONENT:
            self.fail(node, f"expected an exponent of at most {MAX_EXPONENT}, got a larger one", code="NQX507")
        return self.elementwise(node, BINARY[type(node.op)].apply, left, right)

    def compare(self, node: ast.AST, op: Callable[..., Any], left: Any, right: Any) -> Any:
        if left is None or right is None:
            if op not in {operator.eq, operator.ne}:
                self.fail(node, f"expected two values to order, got {_describe(left)} and {_describe(right)}")
            return (left is right) is (op is operator.eq)
        for value in (left, right):
            if type(value) not in _SCALARS and _is_array(value):
                return self.elementwise(node, op, left, right)
        return self.apply(node, op, self.plain(node, left), self.plain(node, right))

    def chain(self, node: ast.Compare) -> Any:
        left = self.value(node.left)
        result: Any = True
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.value(comparator)
            if isinstance(op, ast.In | ast.NotIn):
                found = any(self.truth(node, self.compare(node, operator.eq, left, item)) for item in right)
                held: Any = found is isinstance(op, ast.In)
            else:
                held = self.compare(node, COMPARISONS[type(op)].apply, left, right)
            result = held if result is True else self.elementwise(node, operator.and_, result, held)
            if result is False:
                return False
            left = right
        return result

    def items(self, node: ast.AST, value: Any) -> Sequence[Any]:
        if not any(issubclass(type(value), kind) for kind in (str, tuple, list)):
            self.fail(node, f"expected an array or a sequence, got {_describe(value)}")
        items: Sequence[Any] = self.plain(node, value)
        if type(items) is str:
            self.spend(node, len(items))
        return items

    def extreme(self, node: ast.AST, op: Callable[..., Any], method: str, *values: Any) -> Any:
        if len(values) == 1:
            if type(values[0]) not in _SCALARS and _is_array(values[0]):
                return self.apply(node, getattr(self.array(node, values[0]), method))
            values = tuple(self.items(node, values[0]))
            if not values:
                self.fail(node, "expected at least one element, got an empty sequence")
        best = values[0]
        for value in values[1:]:
            best = value if self.truth(node, self.compare(node, op, value, best)) else best
        return best

    def reduce(self, node: ast.AST, method: str, fold: Callable[[Sequence[Any]], Any], value: Any) -> Any:
        if type(value) not in _SCALARS and _is_array(value):
            return self.apply(node, getattr(self.array(node, value), method))
        return fold(self.items(node, value))

    def total(self, node: ast.AST, items: Sequence[Any]) -> Any:
        result: Any = 0
        for item in items:
            result = self.elementwise(node, operator.add, result, item)
        return result

    def finite(self, node: ast.AST, value: Any) -> Any:
        if type(value) in {bool, int}:
            return True
        if type(value) is float:
            return math.isfinite(value)
        if type(value) is complex:
            return math.isfinite(value.real) and math.isfinite(value.imag)
        if type(value) in _SCALARS or not _is_array(value):
            self.fail(node, f"expected a number or an array, got {_describe(value)}")
        return self.apply(node, _isfinite, self.array(node, value))

    def length(self, node: ast.AST, value: Any) -> int:
        shape = self.shape(node, value)
        if not shape:
            self.fail(node, f"expected a sequence or an array with an axis, got {_describe(value)}")
        return shape[0]

    def size(self, node: ast.AST, value: Any) -> int:
        """The elements of an array, the items of a sequence, the elements of all arrays inside a struct."""
        whole = is_struct(value) and not isinstance(value, type)
        return self.elements(node, value) if whole else math.prod(self.shape(node, value))

    def elements(self, node: ast.AST, value: Any) -> int:
        """The elements of all arrays inside a value of a struct."""
        if _is_array(value):
            return math.prod(self.shape(node, value))
        inside: Iterable[Any] = ()
        if is_struct(value):
            specs = type(value).__nqx_fields__.values()
            inside = (
                getattr(value, spec.name) for spec in specs if spec.kind is FieldKind.NODE and not spec.is_derived
            )
        elif issubclass(type(value), (tuple, list)):
            inside = value
        elif issubclass(type(value), dict):
            inside = value.values()
        return sum(self.elements(node, inner) for inner in inside)


def _isfinite(array: Any) -> Any:
    """By the array's own library where it says which one that is, else by comparison."""
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__().isfinite(array)
    if getattr(array.dtype, "kind", "") == "c":
        return _isfinite(array.real) & _isfinite(array.imag)
    return (array < math.inf) & (array > -math.inf)


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "len": _Evaluation.length,
    "size": _Evaluation.size,
    "shape": _Evaluation.shape,
    "ndim": lambda run, node, value: len(run.shape(node, value)),
    "min": lambda run, node, *values: run.extreme(node, operator.lt, "min", *values),
    "max": lambda run, node, *values: run.extreme(node, operator.gt, "max", *values),
    "abs": lambda run, node, value: run.elementwise(node, operator.abs, value),
    "sum": lambda run, node, value: run.reduce(node, "sum", lambda items: run.total(node, items), value),
    "all": lambda run, node, value: run.reduce(
        node, "all", lambda items: all(run.truth(node, item) for item in items), value
    ),
    "any": lambda run, node, value: run.reduce(
        node, "any", lambda items: any(run.truth(node, item) for item in items), value
    ),
    "isfinite": _Evaluation.finite,
}
