"""Functions of expressions: one record each.

To add a function, put a record into :data:`FUNCTIONS`; parser, evaluation and messages take it from there.

Functions take values that Python has no operators for: structs, and the values of all items of a collection. A path through a
list or a dict, such as ``layers.width``, is an :class:`Items`: one value for each item, and null for each item that is null or
reaches null. Fields are read only from structs: of instances those that the schema declares, never attributes.

Example:
    >>> field_of_struct(StructValue({"width": 3}), "width"), items_of({"a": 1, "b": None}), items_of(3)
    (3, [1, None], None)
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from neuralqx_struct.expressions.exact import combined, finite
from neuralqx_struct.expressions.operators import (
    MAX_DEPTH,
    OPERATORS,
    format_tree,
)
from neuralqx_struct.fieldspec import FieldKind, is_struct


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """The values of all items of a collection, in their order; operators and comparisons take them one by one."""

    values: list[Any]


@dataclass(frozen=True, slots=True, eq=False)
class StructValue:
    """A struct that is no instance, such as one in a manifest.

    Attributes:
        fields: The values of its fields, computed when they are read.
        nodes: The names of the fields whose elements its size counts.
    """

    fields: Mapping[str, Any]
    nodes: Collection[str] = ()


def is_a_struct(value: Any) -> bool:
    """True for a struct, of either kind."""
    return type(value) is StructValue or (is_struct(value) and not isinstance(value, type))


def fields_of_struct(value: Any) -> Collection[str]:
    """The names of the fields that expressions may read; derived fields only where an expression computes them."""
    if type(value) is StructValue:
        return value.fields
    specs = type(value).__nqx_fields__.values()
    return [
        spec.name
        for spec in specs
        if not spec.is_derived or getattr(spec.derived, "__nqx_pure__", False)
    ]


def field_of_struct(value: Any, name: str) -> Any:
    """The value of one of these fields."""
    return value.fields[name] if type(value) is StructValue else getattr(value, name)


def nodes_of_struct(value: Any) -> list[Any]:
    """The values whose elements count as the size of a struct."""
    if type(value) is StructValue:
        return [value.fields[name] for name in value.nodes]
    specs = type(value).__nqx_fields__.values()
    stored = [spec for spec in specs if spec.kind is FieldKind.NODE and not spec.is_derived]
    return [getattr(value, spec.name) for spec in stored]


def items_of(value: Any) -> list[Any] | None:
    """The values inside a list, tuple, dict or :class:`Items`; None for any other value."""
    kind = type(value)
    if kind is Items:
        return value.values  # type: ignore[no-any-return]
    if issubclass(kind, dict):
        return [*dict.values(value)]
    for sequence in (list, tuple):
        if issubclass(kind, sequence):
            return [*sequence.__iter__(value)]
    return None


class Function(NamedTuple):
    """One function.

    Attributes:
        evaluate: Computes it: (evaluation, node, values of the arguments) -> value.
        single: True if it takes exactly one argument.
        shown: True if messages about a failed condition show its result.
        measures: True if nothing but the shape of an array counts.
        folds: True if it takes all items of a collection together.
        for_each: True if it holds only where its argument holds everywhere.
        absolute: True if it is the magnitude of a number.
        axes: True if its result has the size of each axis.
        first_axis: True if its result is the size of the first axis.
    """

    evaluate: Callable[..., Any]
    single: bool = True
    shown: bool = False
    measures: bool = False
    folds: bool = False
    for_each: bool = False
    absolute: bool = False
    axes: bool = False
    first_axis: bool = False


def is_array(value: Any) -> bool:
    """True for an object with a shape and a dtype."""
    return not issubclass(type(value), type) and hasattr(value, "shape") and hasattr(value, "dtype")


def _length(run: Any, node: ast.AST, value: Any) -> int:
    shape = run.shape(node, value)
    if not shape:
        got = run.describe(value)
        run.fail(node, f"expected a sequence or an array with an axis, got {got}")
    return shape[0]  # type: ignore[no-any-return]


def _size(run: Any, node: ast.AST, value: Any, depth: int = 0, alone: int = 1) -> int:
    """The number of elements of an array, or of all arrays inside; outside of structs other items count too.

    Args:
        run: The evaluation.
        node: For messages.
        value: The value.
        depth: The number of values around it.
        alone: The size of a single number or text in a collection.
    """
    if depth > MAX_DEPTH:
        run.fail(node, f"expected at most {MAX_DEPTH} levels of collections, got more")
    parts: list[Any] | None
    if is_a_struct(value):
        parts, alone = nodes_of_struct(value), 0
    else:
        parts = run.inside(value)
    if parts is None and depth and not is_array(value):
        return alone
    if parts is None:
        return math.prod(run.shape(node, value))
    run.spend(node, len(parts))
    return sum(_size(run, node, part, depth + 1, alone) for part in parts if part is not None)


def _extreme(comparison: Callable[..., Any], method: str) -> Callable[..., Any]:
    def evaluate(run: Any, node: ast.AST, *values: Any) -> Any:
        if len(values) == 1:
            if run.is_array(values[0]):
                return run.method(node, values[0], method)
            values = tuple(run.items(node, values[0], method))
            if not values:
                run.fail(node, "expected at least one element, got an empty sequence")
        best = values[0]
        for value in values[1:]:
            if run.truth(node, run.compare(node, comparison, value, best)):
                best = value
        return best

    return evaluate


def _reduction(method: str, fold: Callable[..., Any]) -> Callable[..., Any]:
    def evaluate(run: Any, node: ast.AST, value: Any) -> Any:
        if run.is_array(value):
            return run.method(node, value, method)
        return fold(run, node, run.items(node, value, method))

    return evaluate


def _total(run: Any, node: ast.AST, items: Iterable[Any]) -> Any:
    result: Any = 0
    for item in items:
        result = run.calculated(node, OPERATORS[ast.Add], result, item)
    return result


def _joined(
    run: Any, node: ast.AST, items: Iterable[Any], *, join: Callable[..., Any], stops: bool
) -> Any:
    result: Any = not stops
    for item in items:
        if run.is_array(item):  # a result for one item, perhaps traced
            result = run.elementwise(node, partial(combined, join), result, item)
        elif run.truth(node, item) is stops:
            return stops
    return result


def _finite(run: Any, node: ast.AST, value: Any) -> Any:
    if type(value) in {bool, int}:
        return True
    if type(value) in {float, complex}:
        return math.isfinite(value.real) and math.isfinite(value.imag)
    if not run.is_array(value):
        run.fail(node, f"expected a number or an array, got {run.describe(value)}")
    return run.apply(node, finite, run.array(node, value))


#: The absolute value has the range of a sign.
_ABSOLUTE = OPERATORS[ast.USub]._replace(apply=operator.abs)

FUNCTIONS: dict[str, Function] = {
    "len": Function(
        evaluate=_length,
        first_axis=True,
        shown=True,
        measures=True,
    ),
    "size": Function(
        evaluate=_size,
        shown=True,
        measures=True,
    ),
    "shape": Function(
        evaluate=lambda run, node, value: run.shape(node, value),
        axes=True,
        shown=True,
        measures=True,
    ),
    "ndim": Function(
        evaluate=lambda run, node, value: len(run.shape(node, value)),
        shown=True,
        measures=True,
    ),
    "min": Function(
        evaluate=_extreme(operator.lt, "min"),
        single=False,
        shown=True,
        folds=True,
    ),
    "max": Function(
        evaluate=_extreme(operator.gt, "max"),
        single=False,
        shown=True,
        folds=True,
    ),
    "abs": Function(
        evaluate=lambda run, node, value: run.calculated(node, _ABSOLUTE, value),
        absolute=True,
    ),
    "sum": Function(evaluate=_reduction("sum", _total), shown=True, folds=True),
    "all": Function(
        evaluate=_reduction("all", partial(_joined, join=operator.and_, stops=False)),
        for_each=True,
        folds=True,
    ),
    "any": Function(
        evaluate=_reduction("any", partial(_joined, join=operator.or_, stops=True)),
        folds=True,
    ),
    "isfinite": Function(evaluate=_finite),
}


def calls(node: ast.AST, member: str) -> bool:
    """True if a part of an expression calls a function whose record has a member set.

    Example:
        >>> calls(ast.parse("len(x)").body[0].value, "measures"), calls(ast.parse("x").body[0].value, "measures")
        (True, False)
    """
    return isinstance(node, ast.Call) and bool(getattr(_record_of(node), member))


def _record_of(node: ast.Call) -> Function:
    return FUNCTIONS[node.func.id]  # type: ignore[attr-defined]


def names_read(tree: ast.AST) -> tuple[set[str], set[str]]:
    """The names of which an expression reads nothing but shapes, or counts elements, and those that it reads otherwise."""
    measured: set[str] = set()
    others: set[str] = set()
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            others.add(node.id)
        elif not isinstance(node, ast.Call):
            waiting += ast.iter_child_nodes(node)
        elif calls(node, "measures") and isinstance(node.args[0], ast.Name):
            measured.add(node.args[0].id)
        else:
            waiting += node.args
    return measured, others


class _Given(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.expr:
        record = FUNCTIONS.get(getattr(node.func, "id", ""))
        whole = record is None or record.measures or (record.folds and len(node.args) == 1)
        if whole and not isinstance(node.args[0], (ast.Tuple, ast.List)):
            return ast.copy_location(ast.Name(format_tree(node), ast.Load()), node)
        node.args = [self.visit(argument) for argument in node.args]
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        return ast.copy_location(ast.Name(format_tree(node), ast.Load()), node)


def with_given(tree: ast.expr) -> ast.expr:
    """A folded tree with one name in place of each function of a collection or a shape, such as ``sum(layers.width)``."""
    made: ast.expr = _Given().visit(tree)
    return made
