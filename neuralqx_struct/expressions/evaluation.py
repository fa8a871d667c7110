"""Evaluation: the value of an expression, given the values of its names.

Values come from untrusted payloads: no attribute of a value is reachable but the declared fields of structs, no operator of an
object that is neither builtin nor an array is called, and steps and numbers are bounded.

Example:
    >>> from neuralqx_struct.expressions import parse
    >>> evaluate(parse("2*n + 1"), {"n": 4})
    9
"""

from __future__ import annotations

import ast
import math
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from neuralqx_struct.errors import SchemaError, did_you_mean
from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.exact import (
    Exact,
    calculated,
    combined,
    compared,
    plain_number,
    reduced,
    settled,
)
from neuralqx_struct.expressions.functions import FUNCTIONS, Items, is_array, items_of
from neuralqx_struct.expressions.grammar import head_of, path_of, steps_of
from neuralqx_struct.expressions.items import MOST, SCALARS, ItemEvaluation, Steps, describe
from neuralqx_struct.expressions.operators import (
    MAX_BITS,
    MAX_DEPTH,
    MAX_EXPONENT,
    OPERATORS,
    Operator,
    format_tree,
    operator_of,
    shown,
    spine,
)

MAX_BROADCAST = 65536

_NUMBERS = (bool, int, float, complex)
_JOINED = (str, bytes, tuple, list)
_SIZED = (str, bytes, tuple, list, dict, set, frozenset)
# Subclasses (IntEnum, StrEnum, numpy's float64) become the builtin they extend, past whatever they override.
_EXACT: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (int, int.__int__),
    (float, float.__float__),
    (complex, complex.__complex__),
    (str, str.__str__),
    (bytes, bytes.__bytes__),
)
# Exceptions of operators of numbers and arrays: of random keys what JAX defines for numbers alone; RuntimeWarning where warnings
# are errors.
_FAILURES = (ArithmeticError, TypeError, ValueError, NotImplementedError, RuntimeWarning)


def evaluate(expression: Expression, names: Mapping[str, Any], *, budget: Steps = MOST) -> Any:
    """Compute the value of an expression.

    Numbers, strings, tuples, lists and arrays (objects with ``shape`` and ``dtype``) behave as in Python; a chain of
    comparisons of arrays is taken element by element, and whole numbers in arrays are exact. Operators of any other object are never called: such a value can
    only be compared with None. A path through a list or a dict has a value for each item, and so has an operation of one with
    numbers; null items give null, and functions of all items leave null out.

    Args:
        expression: The expression.
        names: The values of its names. A method ``inside`` of them returns the values inside an object of another library, such
            as an optimiser's state, or None.
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


def evaluate_tree(tree: ast.expr, names: Mapping[str, Any], *, budget: Steps = MOST) -> Any:
    """As :func:`evaluate`, for a part of an expression's tree."""
    return _delivered(_Evaluation(names, budget).visit(tree))


def _delivered(value: Any) -> Any:
    """A result with arrays of their libraries in place of exact values."""
    if type(value) is Items:
        return Items([*map(_delivered, value.values)])
    return value.delivered() if type(value) is Exact else value


def _is_null(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_a(value: Any, kinds: tuple[type, ...]) -> bool:
    """As ``isinstance``, which values can fake."""
    return any(issubclass(type(value), kind) for kind in kinds)


class _Evaluation(ItemEvaluation, ast.NodeVisitor):
    """One run over a tree.

    Args:
        names: The values of names.
        budget: The steps that it may take, or those that it shares with others.
    """

    def __init__(self, names: Mapping[str, Any], budget: Steps) -> None:
        super().__init__(budget)
        self.names = names

    def inside(self, value: Any) -> list[Any] | None:
        """The values inside a collection, or inside an object of another library if the names know such objects."""
        found, know = items_of(value), getattr(self.names, "inside", None)
        return know(value) if found is None and know is not None else found

    # --- nodes -----------------------------------------------------------------------------------------------------

    def visit(self, node: ast.AST) -> Any:
        self.spend(node)
        return super().visit(node)

    def visit_Constant(self, node: ast.Constant) -> Any:
        return node.value

    def visit_Name(self, node: ast.Name) -> Any:
        head = node.id if node.id in self.names else head_of(node.id)
        try:
            value = self.names[head]
        except KeyError:
            known = sorted(map(str, self.names))
            listed = f"known names: {', '.join(known[:20])}" if known else None
            hint = did_you_mean(head, known) or listed
            self.fail(node, f"expected a known name, got {head!r}", code="NQX116", hint=hint)
        if head is not node.id:
            steps = steps_of(node.id)
            for place, step in enumerate(steps):
                value = self.step(node, value, step, path_of(head, steps[:place]))
        return self.builtin(value)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        first, steps = spine(node)
        self.spend(node, len(steps) - 1)
        left, source = self.visit(first), first
        for step in steps:
            right = self.visit(step.right)
            operands = self.spread(source, left, step.right, right)
            left = self.each(step, self.binary, *operands)
            source = step
        return left

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        record, value = operator_of(node), self.visit(node.operand)
        if record.negates:
            return not self.truth(node, value)
        value = self.spread_alone(node.operand, value)
        return self.each(node, lambda at, one: self.calculated(at, record, one), value)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        stops = operator_of(node).stops
        for inner in node.values[:-1]:
            value = self.visit(inner)
            if self.truth(node, value) is stops:
                return value
        return self.visit(node.values[-1])

    def visit_Compare(self, node: ast.Compare) -> Any:
        source, left = node.left, self.visit(node.left)
        result: Any = True
        for relation, comparator in zip(node.ops, node.comparators, strict=True):
            record, right = OPERATORS[type(relation)], self.visit(comparator)
            if record.member:
                held = self.each(
                    node,
                    lambda at, one: self.member(at, record, one, right),  # noqa: B023
                    self.spread_alone(source, left),
                )
            else:
                held = self.each(
                    node,
                    lambda at, a, b: self.compare(at, record.apply, a, b),  # noqa: B023
                    *self.spread(source, left, comparator, right),
                    nulls=_is_null(source) or _is_null(comparator),
                )
            result = held if result is True else self.each(node, self.both, result, held)
            if result is False:
                return False
            source, left = comparator, right
        return result

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        return self.visit(node.body if self.truth(node, self.visit(node.test)) else node.orelse)

    def visit_Tuple(self, node: ast.Tuple) -> Any:
        return tuple(_delivered(self.visit(inner)) for inner in node.elts)

    def visit_List(self, node: ast.List) -> Any:
        return [_delivered(self.visit(inner)) for inner in node.elts]

    def visit_Call(self, node: ast.Call) -> Any:
        record = FUNCTIONS[node.func.id]  # type: ignore[attr-defined]
        values = [self.visit(argument) for argument in node.args]
        if len(values) == 1 and not record.measures:
            values = [self.spread_alone(node.args[0], values[0])]
        if not record.folds:
            deep = 0 if record.measures else MAX_DEPTH
            return self.each(
                node, lambda at, *one: record.evaluate(self, at, *one), *values, deep=deep
            )
        if len(values) > 1 and any(type(value) is Items for value in values):
            name = shown(node.func)
            hint = f"take all items first: {name}({name}(layers.width), d)"
            self.fail(node, "expected one value for each argument, got all items of one", hint=hint)
        return record.evaluate(self, node, *values)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        axis = self.visit(node.slice)
        return self.each(
            node, lambda at, shape: self.axis(at, shape, axis), self.visit(node.value), deep=0
        )

    def axis(self, node: ast.AST, shape: Any, axis: int) -> Any:
        if not -len(shape) <= axis < len(shape):
            self.fail(node, f"expected an array with an axis {axis}, got {len(shape)} axes")
        return shape[axis]

    def member(self, node: ast.AST, record: Any, value: Any, choices: Any) -> bool:
        """True if one of some constants is equal to a value."""
        found = (self.compare(node, record.apply, value, item) for item in choices)
        return any(self.truth(node, same) for same in found) is not record.negates

    def both(self, node: ast.AST, left: Any, right: Any) -> Any:
        """True where both comparisons of a chain hold."""
        return self.elementwise(node, partial(combined, operator.and_), left, right)

    # --- values, also for functions ----------------------------------------------------------------------------------

    @staticmethod
    def builtin(value: Any) -> Any:
        """The builtin that a subclass extends, and the number of a whole scalar of numpy; other values as they are."""
        if type(value) not in SCALARS:
            for base, exact in _EXACT:
                if issubclass(type(value), base):
                    return exact(value)
            numpy = sys.modules.get("numpy")  # a scalar of it exists only where it was imported
            if numpy is not None and issubclass(type(value), numpy.generic):
                return settled(value)
        return value

    def apply(self, node: ast.AST, function: Callable[..., Any], *operands: Any) -> Any:
        try:
            return function(*operands)
        except ZeroDivisionError:
            self.fail(node, "expected a divisor other than zero, got 0")
        except _FAILURES as error:
            found = " and ".join(map(describe, operands))
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
            self.fail(node, f"expected an array, a sequence or a number, got {describe(value)}")
        return tuple(map(int.__int__, shape))

    def truth(self, node: ast.AST, value: Any) -> bool:
        if type(value) in SCALARS:
            return bool(value)
        for kind in _SIZED:
            if issubclass(type(value), kind):
                return bool(kind.__len__(value))
        if type(value) is Items:
            message = "expected one truth value, got one for each item"
            self.fail(node, message, hint="write all(...) or any(...) around it")
        if not is_array(value):
            self.fail(node, f"expected a value that is true or false, got {describe(value)}")
        shape = self.shape(node, value)
        if math.prod(shape) != 1:
            message = f"expected one truth value, got {describe(value)}"
            self.fail(node, message, hint="say which elements must hold: all(...) or any(...)")
        return bool(self.apply(node, bool, self.array(node, value)))

    def plain(self, node: ast.AST, value: Any, depth: int = 0) -> Any:
        """The value as builtins all the way down, safe to compare and to join."""
        value = self.builtin(value)
        if self.is_array(value):
            value = plain_number(value)
        if type(value) in SCALARS:
            return value
        kind: Any = tuple if issubclass(type(value), tuple) else list
        if not issubclass(type(value), kind) or depth >= MAX_DEPTH:
            got = describe(value)
            self.fail(node, f"expected numbers, strings, sequences or arrays, got {got}")
        self.spend(node, 1 + kind.__len__(value))
        return kind(self.plain(node, item, depth + 1) for item in kind.__iter__(value))

    def elementwise(self, node: ast.AST, function: Callable[..., Any], *operands: Any) -> Any:
        """Applies a function to numbers and arrays; the result may not be much larger than they are."""
        operands = tuple(map(self.single_number, operands))
        if all(type(operand) in _NUMBERS for operand in operands):
            for operand in operands:
                self.bounded(node, operand)
            return self.bounded(node, self.apply(node, function, *operands))
        shapes = []
        for operand in operands:
            if type(operand) not in _NUMBERS:
                if type(operand) in SCALARS or not is_array(operand):
                    found = " and ".join(map(describe, operands))
                    self.fail(node, f"expected numbers or arrays, got {found}")
                self.array(node, operand)
            shapes.append(self.shape(node, operand))
        rank = max(map(len, shapes))
        padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
        size = math.prod(map(max, zip(*padded, strict=True)))
        if size > max(MAX_BROADCAST, *map(math.prod, shapes)):
            found = " and ".join(map(describe, operands))
            self.fail(
                node,
                f"expected arrays of one shape, got {found}, whose outer product is too large",
                code="NQX507",
            )
        return self.apply(node, function, *operands)

    def calculated(self, node: ast.AST, record: Operator, *operands: Any) -> Any:
        """The result of an operator of numbers and arrays."""
        return self.elementwise(node, partial(calculated, record), *operands)

    def single_number(self, value: Any) -> Any:
        """The number in an array without axes that holds a whole number; other values as they are."""
        return settled(value) if self.is_array(value) else value

    def bounded(self, node: ast.AST, value: Any) -> Any:
        if type(value) is int and value.bit_length() > MAX_BITS:
            message = (
                f"expected whole numbers of at most {MAX_BITS} bits, got {value.bit_length()} bits"
            )
            self.fail(node, message, code="NQX507")
        return value

    def method(self, node: ast.AST, array: Any, name: str) -> Any:
        """The result of a method of an array, such as ``sum``."""
        return self.apply(node, partial(reduced, method=name), self.array(node, array))

    def binary(self, node: ast.BinOp, left: Any, right: Any) -> Any:
        record = operator_of(node)
        if record.joins and _is_a(left, _JOINED):
            return self.joined(node, record.apply, self.plain(node, left), self.plain(node, right))
        if record.powers and type(right) is int and abs(right) > MAX_EXPONENT:
            message = f"expected an exponent of at most {MAX_EXPONENT}, got a larger one"
            self.fail(node, message, code="NQX507")
        return self.calculated(node, record, left, right)

    def joined(self, node: ast.AST, function: Callable[..., Any], left: Any, right: Any) -> Any:
        if type(left) is not type(right):
            found = f"{describe(left)} and {describe(right)}"
            self.fail(node, f"expected two operands of one type, got {found}")
        self.spend(node, len(left) + len(right))
        return function(left, right)

    def compare(self, node: ast.AST, op: Callable[..., Any], left: Any, right: Any) -> Any:
        if left is None or right is None:
            if op not in {operator.eq, operator.ne}:
                self.fail(
                    node,
                    f"expected two values to order, got {describe(left)} and {describe(right)}",
                )
            return (left is right) is (op is operator.eq)
        for value in (left, right):
            if type(value) not in SCALARS and is_array(value):
                return self.elementwise(node, partial(compared, op), left, right)
        return self.apply(node, op, self.plain(node, left), self.plain(node, right))

    def items(self, node: ast.AST, value: Any, method: str) -> Sequence[Any]:
        """The items of a sequence; of all items of a collection those that are not null, with arrays reduced by a method."""
        if type(value) is Items:
            return [*self.leaves(node, value, lambda one: self.single(node, one, method))]
        if not _is_a(value, (str, tuple, list)):
            self.fail(node, f"expected an array or a sequence, got {describe(value)}")
        items: Sequence[Any] = self.plain(node, value)
        if type(items) is str:
            self.spend(node, len(items))
        return items

    def single(self, node: ast.AST, value: Any, method: str) -> Any:
        return self.method(node, value, method) if self.is_array(value) else self.plain(node, value)
