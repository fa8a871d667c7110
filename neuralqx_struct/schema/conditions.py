"""Conditions: the constraints of structs, and the values that their expressions see.

Values come from a walk over live instances or over manifests. Of arrays in manifests, and of tracers, only shape and dtype
are known: :class:`Shaped` takes the place of such an array, and a condition that needs its numbers is left undecided.

Example:
    >>> sorted(name for name in vars(Shaped("float32", [3])) if name != "asked")
    ['dtype', 'ndim', 'shape', 'size']
"""

from __future__ import annotations

import ast
import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from neuralqx_struct.errors import Diagnostic, SchemaError, printable
from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.evaluation import evaluate, evaluate_tree
from neuralqx_struct.expressions.functions import FUNCTIONS
from neuralqx_struct.expressions.operators import format_tree
from neuralqx_struct.paths import Path, format_path
from neuralqx_struct.printing import brief_scalar
from neuralqx_struct.schema.model import StructDeclaration
from neuralqx_struct.schema.sizes.solver import Solver
from neuralqx_struct.schema.stacks import Axes, layers

_DEEPEST = 20  # collections inside collections that expressions see

#: The unit of the length of a collection.
ENTRIES = {"list": "items", "tuple": "items", "dict": "entries"}


class NeedsDataError(Exception):
    """An expression needs the numbers of an array of which only shape and dtype are known."""


class Shaped:
    """An array in expressions of which only shape and dtype are known."""

    def __init__(self, dtype: str, shape: Iterable[int]) -> None:
        self.dtype = dtype
        self.shape = tuple(shape)
        self.ndim = len(self.shape)
        self.size = math.prod(self.shape)
        self.asked = False  # whether an expression needed its numbers

    def layer(self, axes: int) -> Shaped:
        """One of the arrays that are stacked along the first axes."""
        return _Layer(self, self.shape[axes:])


class _Layer(Shaped):
    """One of stacked arrays; whether its numbers were needed is known of all of them."""

    def __init__(self, whole: Shaped, shape: Iterable[int]) -> None:
        super().__init__(whole.dtype, shape)
        self.whole = whole


def _needs_data(*operands: Any) -> Any:
    for operand in operands:
        if isinstance(operand, Shaped):
            operand.asked = True
        if isinstance(operand, _Layer):
            operand.whole.asked = True
    raise NeedsDataError


_ARITHMETIC = "add radd sub rsub mul rmul truediv rtruediv floordiv mod pow rpow matmul rmatmul"
_OTHERS = "neg pos abs lt le gt ge eq ne bool"
for _name in f"{_ARITHMETIC} {_OTHERS}".split():
    setattr(Shaped, f"__{_name}__", _needs_data)
for _name in ("sum", "min", "max", "all", "any"):
    setattr(Shaped, _name, _needs_data)
Shaped.__hash__ = None  # type: ignore[assignment]


class Instance(NamedTuple):
    """An instance whose constraints are checked once all sizes are known."""

    declaration: StructDeclaration
    values: Mapping[str, Any]
    path: Path
    dims: Solver
    axes: Axes


def failures(instances: Iterable[Instance]) -> list[Diagnostic]:
    """The constraints that fail."""
    found: list[Diagnostic] = []
    for declaration, values, path, dims, axes in instances:
        lengths = [dims.size(axis) or 0 for axis in axes]
        sizes, at = dims.sizes(), format_path(path)
        try:
            for layer in layers(values, lengths):
                problems = [*_broken(declaration, sizes | dict(layer), at)]
                found += problems
                if problems:
                    break
        except SchemaError as error:
            found += [replace(each, path=at) for each in error.diagnostics]
    return found


def known_value(read: Callable[[Any], Any], seen: Any, depth: int = 0) -> Any:
    """A value for expressions; None where it is unknown, as for lists inside themselves."""
    if depth > _DEEPEST:
        return None
    if seen.sort in ("scalar", "array"):
        return seen.value
    if seen.sort in ("struct", "key", "other"):
        return Shaped("", seen.shape)
    if seen.sort not in ENTRIES:
        return None
    items = {key: known_value(read, read(item), depth + 1) for key, item in seen.items.items()}
    if seen.sort == "dict":
        return items
    return [*items.values()] if seen.sort == "list" else tuple(items.values())


def _broken(declaration: StructDeclaration, known: dict[str, Any], at: str) -> Iterator[Diagnostic]:
    """Yields a finding for each constraint that fails."""
    for constraint in declaration.constraints:
        expression = constraint.expression
        for name in expression.names:
            _derive(declaration, name, known)
        why = _failure(expression, known)
        if why is not None:
            compared = _compared(expression, known) or "a value that fails it"
            message = f"expected {expression.text}, got {compared}{why}"
            hint = printable(constraint.message or "") or None
            yield Diagnostic("NQX416", "error", message, path=at, hint=hint)


def _derive(declaration: StructDeclaration, name: str, known: dict[str, Any]) -> None:
    """Adds the value of a derived field, which payloads do not hold, if it can be computed."""
    field = declaration.fields.get(name)
    expression = None if field is None else field.derivation
    if expression is None or name in known:
        return
    known[name] = None  # unknown until the end, also for a field that needs itself
    for inner in expression.names:
        _derive(declaration, inner, known)
    if all(known.get(inner) is not None for inner in expression.names):
        # The field itself reports the error when it is read.
        with contextlib.suppress(NeedsDataError, SchemaError):
            known[name] = evaluate(expression, known)


def _failure(expression: Expression, known: Mapping[str, Any]) -> str | None:
    """The end of the message for a condition that fails; None if it holds or cannot be decided."""
    if any(known.get(name) is None for name in expression.names):
        return None
    try:
        verdict = evaluate(expression, known)
    except NeedsDataError:
        return None
    except SchemaError as error:
        return f"\n{error.diagnostics[0].message}"
    if getattr(verdict, "shape", ()) and verdict.size != 1:
        return f"\n{expression.text} has a result for each element; write all({expression.text})"
    try:
        return None if verdict else ""
    except NeedsDataError:
        return None


def _compared(expression: Expression, known: Mapping[str, Any]) -> str:
    """The values that a condition compared: of names, and of functions such as ``len``."""
    shown: dict[str, str] = {}
    for node in ast.walk(expression.tree):
        if isinstance(node, ast.Name) and isinstance(known.get(node.id), (int, float, str)):
            shown[node.id] = brief_scalar(known[node.id])
        if isinstance(node, ast.Call) and FUNCTIONS[node.func.id].shown:  # type: ignore[attr-defined]
            with contextlib.suppress(NeedsDataError, SchemaError):
                value = evaluate_tree(node, known)
                plain = isinstance(value, (int, float, tuple))
                shown[format_tree(node)] = brief_scalar(value) if plain else str(value)
    return ", ".join(f"{text} = {value}" for text, value in sorted(shown.items()))
