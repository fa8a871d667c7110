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

from neuralqx_struct.expressions.operators import format_tree
from neuralqx_struct.expressions.values import is_a_struct, items_of, nodes_of_struct


@dataclass(frozen=True, kw_only=True)
class Function:
    """One function.

    Attributes:
        evaluate: Computes it: (evaluation, node, values of the arguments) -> value.
        single: True if it takes exactly one argument.
        shown: True if messages about a failed condition show its result.
        measures: True if nothing but the shape of an array counts.
        folds: True if it takes all items of a collection together.
    """

    evaluate: Callable[..., Any]
    single: bool = True
    shown: bool = False
    measures: bool = False
    folds: bool = False


def is_array(value: Any) -> bool:
    """True for an object with a shape and a dtype."""
    return not issubclass(type(value), type) and hasattr(value, "shape") and hasattr(value, "dtype")


def _length(run: Any, node: ast.AST, value: Any) -> int:
    shape = run.shape(node, value)
    if not shape:
        got = run.describe(value)
        run.fail(node, f"expected a sequence or an array with an axis, got {got}")
    return shape[0]  # type: ignore[no-any-return]


def _size(run: Any, node: ast.AST, value: Any) -> int:
    """The number of elements: of an array, of a sequence, of all arrays inside a struct."""
    return _elements(run, node, value) if is_a_struct(value) else math.prod(run.shape(node, value))


def _elements(run: Any, node: ast.AST, value: Any) -> int:
    if is_a_struct(value):
        return sum(_elements(run, node, inner) for inner in nodes_of_struct(value))
    if is_array(value):
        return math.prod(run.shape(node, value))
    return sum(_elements(run, node, inner) for inner in items_of(value) or ())


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
    ),
    "size": Function(
        evaluate=_size,
        shown=True,
        measures=True,
    ),
    "shape": Function(
        evaluate=lambda run, node, value: run.shape(node, value),
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
        evaluate=lambda run, node, value: run.elementwise(node, operator.abs, value),
    ),
    "sum": Function(evaluate=_reduction("sum", _total), shown=True, folds=True),
    "all": Function(evaluate=_reduction("all", _all), folds=True),
    "any": Function(evaluate=_reduction("any", _any), folds=True),
    "isfinite": Function(evaluate=_finite),
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
