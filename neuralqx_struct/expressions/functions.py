"""Functions of expressions: one record each.

To add a function, put a record into :data:`FUNCTIONS`; parser, evaluation, static typing and messages take it from there.

Owns the sorts of values in expressions, too, and the rules by which functions combine them before any value is known. Only
expressions that fail for every value of their names are problems: ``x > 0`` with ``x: int | null`` is none, because
no expression is evaluated while a name of it is null.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from neuralqx_struct.expressions.operators import shown
from neuralqx_struct.fieldspec import FieldKind, is_struct

#: The sorts that a value may have; None where nothing is known.
Sorts = frozenset[str] | None

SORT_NAMES: dict[str, str] = {
    "bool": "a bool",
    "int": "an int",
    "float": "a float",
    "complex": "a complex number",
    "text": "text",
    "bytes": "bytes",
    "null": "null",
    "tuple": "a tuple",
    "list": "a list",
    "dict": "a dict",
    "array": "an array",
    "key": "a random key",
    "struct": "a struct",
    "path": "a path",
    "dtype": "a dtype",
}

NUMBERS = ("bool", "int", "float", "complex")
#: Sorts that JAX takes as leaves or looks into.
JAX_SORTS = frozenset({*NUMBERS, "null", "tuple", "list", "dict", "array", "key", "struct"})
SEQUENCES = frozenset({"text", "bytes", "tuple", "list"})
SIZED = frozenset({*SEQUENCES, "dict", "array", "key"})
ORDERED = frozenset({*SEQUENCES, "bool", "int", "float", "array"})
ITERABLE = frozenset({"tuple", "list", "array"})


class Problem(NamedTuple):
    """An error for all values of the names."""

    code: str
    message: str
    hint: str | None = None


#: Sorts of a call: (node, sorts of the arguments, problems) -> sorts.
Rule = Callable[[ast.Call, list[Sorts], list[Problem]], Sorts]


def named(sorts: Iterable[str]) -> str:
    """Returns sorts in words: ``an int or text``."""
    return " or ".join(SORT_NAMES.get(sort, sort) for sort in sorted(sorts))


def unfit(
    node: ast.AST, wanted: str, *found: Sorts, problems: list[Problem], hint: str | None = None
) -> None:
    """Adds the problem NQX115: operands of other sorts."""
    got = " and ".join(named(sorts or ()) for sorts in found)
    message = f"expected {wanted}, got {got} in `{shown(node)}`"
    problems.append(Problem("NQX115", message, hint))


def either(options: Iterable[Sorts]) -> Sorts:
    """All sorts of some alternatives; None if one is unknown."""
    found: frozenset[str] = frozenset()
    for sorts in options:
        if sorts is None:
            return None
        found |= sorts
    return found


def kept(node: ast.AST, inner: Sorts, numbers: Mapping[str, str], problems: list[Problem]) -> Sorts:
    """The sorts of an operation on a number, or on each number of an array."""
    if inner is None:
        return None
    rules = {**numbers, "array": "array"}
    if not inner & rules.keys():
        unfit(node, "a number or an array", inner, problems=problems)
        return None
    return frozenset(rules[sort] for sort in inner if sort in rules)


def takes(accepted: frozenset[str], words: str, result: str) -> Rule:
    """The rule of a function of one argument whose result has one sort."""

    def rule(node: ast.Call, found: list[Sorts], problems: list[Problem]) -> Sorts:
        (inner,) = found
        if inner is not None and not inner & accepted:
            unfit(node, words, inner, problems=problems)
        return frozenset({result})

    return rule


def maps(numbers: Mapping[str, str]) -> Rule:
    """The rule of a function of one number, or of each number of an array."""

    def rule(node: ast.Call, found: list[Sorts], problems: list[Problem]) -> Sorts:
        return kept(node, found[0], numbers, problems)

    return rule


def reduces(number: str | None) -> Rule:
    """The rule of a function of all items; ``number`` is the sort of the result for a sequence."""

    def rule(node: ast.Call, found: list[Sorts], problems: list[Problem]) -> Sorts:
        (inner,) = found
        if inner is None:
            return None
        if not inner & ITERABLE:
            unfit(node, "an array, a tuple or a list", inner, problems=problems)
            return None
        if number is None and inner - {"array"}:
            return None
        return frozenset("array" if sort == "array" else number or "array" for sort in inner)

    return rule


def extreme(node: ast.Call, found: list[Sorts], problems: list[Problem]) -> Sorts:
    """The rule of ``min`` and ``max``."""
    if len(found) == 1:
        return reduces(None)(node, found, problems)
    for inner in found:
        if inner is not None and not inner & ORDERED:
            unfit(node, "values that have an order", inner, problems=problems)
            return None
    return either(found)


@dataclass(frozen=True, kw_only=True)
class Function:
    """One function.

    Attributes:
        evaluate: Computes it: (evaluation, node, values of the arguments) -> value.
        sorts: Returns the sorts of the result before any value is known.
        single: True if it takes exactly one argument.
        shown: True if messages about a failed condition show its result.
        of_shape: The same for the shape of an array, for generated code.
        of_numbers: The same for plain numbers, for generated code.
    """

    evaluate: Callable[..., Any]
    sorts: Rule
    single: bool = True
    shown: bool = False
    of_shape: Callable[[tuple[int, ...]], Any] | None = None
    of_numbers: Callable[..., Any] | None = None


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


_MEASURED = frozenset({*SIZED, *NUMBERS})
_MEASURABLE = "an array, a sequence or a number"

FUNCTIONS: dict[str, Function] = {
    "len": Function(
        evaluate=_length,
        sorts=takes(SIZED, "something with a length", "int"),
        shown=True,
        of_shape=operator.itemgetter(0),
    ),
    "size": Function(
        evaluate=_size,
        sorts=takes(_MEASURED | {"struct"}, "an array, a struct, a sequence or a number", "int"),
        shown=True,
        of_shape=math.prod,
    ),
    "shape": Function(
        evaluate=lambda run, node, value: run.shape(node, value),
        sorts=takes(_MEASURED, _MEASURABLE, "tuple"),
        shown=True,
        of_shape=tuple,
    ),
    "ndim": Function(
        evaluate=lambda run, node, value: len(run.shape(node, value)),
        sorts=takes(_MEASURED, _MEASURABLE, "int"),
        shown=True,
        of_shape=len,
    ),
    "min": Function(
        evaluate=_extreme(operator.lt, "min"),
        sorts=extreme,
        single=False,
        shown=True,
        of_numbers=min,
    ),
    "max": Function(
        evaluate=_extreme(operator.gt, "max"),
        sorts=extreme,
        single=False,
        shown=True,
        of_numbers=max,
    ),
    "abs": Function(
        evaluate=lambda run, node, value: run.elementwise(node, operator.abs, value),
        sorts=maps({"bool": "int", "int": "int", "float": "float", "complex": "float"}),
        of_numbers=abs,
    ),
    "sum": Function(evaluate=_reduction("sum", _total), sorts=reduces(None), shown=True),
    "all": Function(evaluate=_reduction("all", _all), sorts=reduces("bool")),
    "any": Function(evaluate=_reduction("any", _any), sorts=reduces("bool")),
    "isfinite": Function(evaluate=_finite, sorts=maps(dict.fromkeys(NUMBERS, "bool"))),
}
