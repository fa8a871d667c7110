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

from neuralqx_struct.fieldspec import FieldKind, is_struct


@dataclass(frozen=True, kw_only=True)
class Function:
    """One function.

    Attributes:
        evaluate: Computes it: (evaluation, node, values of the arguments) -> value.
        single: True if it takes exactly one argument.
        shown: True if messages about a failed condition show its result.
        measures: True if nothing but the shape of an array counts.
    """

    evaluate: Callable[..., Any]
    single: bool = True
    shown: bool = False
    measures: bool = False


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
    whole = is_struct(value) and not isinstance(value, type)
    return _elements(run, node, value) if whole else math.prod(run.shape(node, value))


def _elements(run: Any, node: ast.AST, value: Any) -> int:
    if is_array(value):
        return math.prod(run.shape(node, value))
    return sum(_elements(run, node, inner) for inner in _inside(value))


def _inside(value: Any) -> Iterable[Any]:
    """The values inside a struct, a sequence or a dict."""
    if is_struct(value):
        specs = type(value).__nqx_fields__.values()
        stored = [spec for spec in specs if spec.kind is FieldKind.NODE and not spec.is_derived]
        return [getattr(value, spec.name) for spec in stored]
    if issubclass(type(value), dict):
        return value.values()  # type: ignore[no-any-return]
    return value if issubclass(type(value), (tuple, list)) else ()


def _extreme(comparison: Callable[..., Any], method: str) -> Callable[..., Any]:
    def evaluate(run: Any, node: ast.AST, *values: Any) -> Any:
        if len(values) == 1:
            if run.is_array(values[0]):
                return run.method(node, values[0], method)
            values = tuple(run.items(node, values[0]))
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
        return fold(run, node, run.items(node, value))

    return evaluate


def _total(run: Any, node: ast.AST, items: Iterable[Any]) -> Any:
    result: Any = 0
    for item in items:
        result = run.elementwise(node, operator.add, result, item)
    return result


def _all(run: Any, node: ast.AST, items: Iterable[Any]) -> bool:
    return all(run.truth(node, item) for item in items)


def _any(run: Any, node: ast.AST, items: Iterable[Any]) -> bool:
    return any(run.truth(node, item) for item in items)


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
    ),
    "max": Function(
        evaluate=_extreme(operator.gt, "max"),
        single=False,
        shown=True,
    ),
    "abs": Function(
        evaluate=lambda run, node, value: run.elementwise(node, operator.abs, value),
    ),
    "sum": Function(evaluate=_reduction("sum", _total), shown=True),
    "all": Function(evaluate=_reduction("all", _all)),
    "any": Function(evaluate=_reduction("any", _any)),
    "isfinite": Function(evaluate=_finite),
}
