"""Functions of expressions: one record each.

To add a function, put a record into :data:`FUNCTIONS`; parser, evaluation and messages take it from there.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from neuralqx_struct.expressions.operators import (
    CALCULATED,
    KINDS,
    LONG,
    MAX_DEPTH,
    MEASURED,
    ORDERED,
    TRUE_OR_FALSE,
    format_tree,
)
from neuralqx_struct.expressions.values import (
    is_a_struct,
    nodes_of_struct,
    parts_of,
)


@dataclass(frozen=True, kw_only=True)
class Function:
    """One function.

    Attributes:
        evaluate: Computes it: (evaluation, node, values of the arguments) -> value.
        single: True if it takes exactly one argument.
        shown: True if messages about a failed condition show its result.
        measures: True if nothing but the shape of an array counts.
        folds: True if it takes all items of a collection together.
        takes: The kinds of its operands, or with ``folds`` of the items.
        makes: The kind of its result for single values; empty if it is that of the operand.
    """

    evaluate: Callable[..., Any]
    single: bool = True
    shown: bool = False
    measures: bool = False
    folds: bool = False
    takes: frozenset[str] = KINDS
    makes: str = ""


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
        parts = parts_of(value)
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
        result = run.elementwise(node, operator.add, result, item)
    return result


def _all(run: Any, node: ast.AST, items: Iterable[Any]) -> Any:
    return _joined(run, node, items, operator.and_, stops=False)


def _any(run: Any, node: ast.AST, items: Iterable[Any]) -> Any:
    return _joined(run, node, items, operator.or_, stops=True)


def _joined(
    run: Any, node: ast.AST, items: Iterable[Any], join: Callable[..., Any], *, stops: bool
) -> Any:
    result: Any = not stops
    for item in items:
        if run.is_array(item):  # a result for one item, perhaps traced
            result = run.elementwise(node, join, result, item)
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
    return run.apply(node, _isfinite, run.array(node, value))


def _isfinite(array: Any) -> Any:
    """The result of the array's own library if it names one, else that of comparisons."""
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__().isfinite(array)
    if getattr(array.dtype, "kind", "") == "c":
        return _isfinite(array.real) & _isfinite(array.imag)
    return (array < math.inf) & (array > -math.inf)


FUNCTIONS: dict[str, Function] = {
    "len": Function(
        evaluate=_length,
        shown=True,
        measures=True,
        takes=LONG,
    ),
    "size": Function(
        evaluate=_size,
        shown=True,
        measures=True,
        takes=MEASURED | {"struct"},
    ),
    "shape": Function(
        evaluate=lambda run, node, value: run.shape(node, value),
        shown=True,
        measures=True,
        takes=MEASURED,
    ),
    "ndim": Function(
        evaluate=lambda run, node, value: len(run.shape(node, value)),
        shown=True,
        measures=True,
        takes=MEASURED,
    ),
    "min": Function(
        evaluate=_extreme(operator.lt, "min"),
        single=False,
        shown=True,
        folds=True,
        takes=ORDERED,
    ),
    "max": Function(
        evaluate=_extreme(operator.gt, "max"),
        single=False,
        shown=True,
        folds=True,
        takes=ORDERED,
    ),
    "abs": Function(
        evaluate=lambda run, node, value: run.elementwise(node, operator.abs, value),
        takes=CALCULATED,
        makes="float",
    ),
    "sum": Function(evaluate=_reduction("sum", _total), shown=True, folds=True, takes=CALCULATED),
    "all": Function(
        evaluate=_reduction("all", _all), folds=True, takes=TRUE_OR_FALSE, makes="bool"
    ),
    "any": Function(
        evaluate=_reduction("any", _any), folds=True, takes=TRUE_OR_FALSE, makes="bool"
    ),
    "isfinite": Function(evaluate=_finite, takes=CALCULATED, makes="bool"),
}


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
        elif FUNCTIONS[node.func.id].measures and isinstance(node.args[0], ast.Name):  # type: ignore[attr-defined]
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
