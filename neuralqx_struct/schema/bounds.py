"""Bounds of fields: checks of numbers, text and lengths against ``ge``, ``pattern``, ``max_length`` and the like.

Owns the judgement of one value by one declaration, for defaults in schema files and for payloads alike. Whether the bounds
themselves make sense is decided by ``lint/values.py``.
"""

from __future__ import annotations

import ast
import contextlib
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any, TypeVar

from neuralqx_struct.dtypes import DTYPES
from neuralqx_struct.errors import Diagnostic, SchemaError
from neuralqx_struct.expressions.evaluation import evaluate_tree
from neuralqx_struct.expressions.exact import compared
from neuralqx_struct.expressions.functions import calls, is_array
from neuralqx_struct.expressions.grammar import head_of, steps_of
from neuralqx_struct.printing import brief_scalar
from neuralqx_struct.schema.model import Document, FieldDeclaration, StructDeclaration
from neuralqx_struct.schema.patterns import LONGEST_TEXT, matches, objection_to
from neuralqx_struct.schema.text import path_text
from neuralqx_struct.types.scalars import Scalar
from neuralqx_struct.types.text import Builder, plain_value

__all__ = [
    "check_limits",
    "ends_of",
    "field_limits",
    "is_limited",
    "length_misses",
    "live_value",
    "plain_misses",
    "scalar_misses",
    "unchecked_patterns",
    "whole_range",
]

#: The members of a field that limit its values.
_LIMITS = (
    *("ge", "gt", "le", "lt", "min_length", "max_length", "finite"),
    *("pattern", "validator", "multiple_of", "choices"),
)


def field_limits(declaration: FieldDeclaration) -> dict[str, Any]:
    """The limits of a field by member."""
    return {name: getattr(declaration, name) for name in _LIMITS}


def is_limited(declaration: FieldDeclaration) -> bool:
    """True if a value of the type of a field may be refused."""
    given = field_limits(declaration).values()
    return any(limit is not None and limit is not False for limit in given)


#: The limits that compare a number, with their words in messages.
_ORDERS: tuple[tuple[str, str, Callable[[Any, Any], Any]], ...] = (
    ("ge", ">=", operator.ge),
    ("gt", ">", operator.gt),
    ("le", "<=", operator.le),
    ("lt", "<", operator.lt),
)


def ends_of(declaration: FieldDeclaration) -> list[float]:
    """The numbers at which the values of a field begin or end."""
    given = (getattr(declaration, name) for name, *_ in _ORDERS)
    return [each for each in given if each is not None]


def whole_range(bounds: Mapping[str, float | None]) -> tuple[float, float]:
    """The least and the greatest whole number within bounds by member; infinite where there is none."""
    ge, gt, le, lt = (bounds.get(name) for name, *_ in _ORDERS)
    low = -math.inf if ge is None else math.ceil(ge)
    high = math.inf if le is None else math.floor(le)
    low = low if gt is None else max(low, math.floor(gt) + 1)
    return low, high if lt is None else min(high, math.ceil(lt) - 1)


def _is_multiple(value: Any, bound: float) -> bool:
    """Whether the quotient is whole: exactly for integers, up to the rounding of both for other numbers."""
    bits = 53
    if is_array(value):
        bits = DTYPES[value.dtype.name].significand
        if not float(bound).is_integer():
            bound = type(value)(bound).item() or bound
        value = value.item()
    if not math.isfinite(bound) or (isinstance(value, float) and not math.isfinite(value)):
        return False
    step = abs(Fraction(bound))
    rest = Fraction(value) % step
    if rest == 0 or (isinstance(value, int) and step.denominator == 1):
        return rest == 0
    return bool(min(rest, step - rest) <= abs(Fraction(value)) / 2 ** (bits - 2))


def length_misses(declaration: FieldDeclaration, length: int, what: str) -> list[str]:
    """The length constraints of a field that a length violates; ``what`` is its unit."""
    found: list[str] = []
    if declaration.min_length is not None and length < declaration.min_length:
        found.append(f"expected at least {declaration.min_length} {what}, got {length}")
    if declaration.max_length is not None and length > declaration.max_length:
        found.append(f"expected at most {declaration.max_length} {what}, got {length}")
    return found


def scalar_misses(declaration: FieldDeclaration, value: Any) -> list[str]:
    """The constraints of a field that a scalar violates, by the comparisons of expressions.

    Args:
        declaration: The field.
        value: A Python value, or a number as :func:`~neuralqx_struct.expressions.exact.number_of` gives it.
    """
    given, value = value, value.item() if is_array(value) else value
    found: list[str] = []
    if type(value) in (bool, int, float):
        for name, words, order in _ORDERS:
            bound = getattr(declaration, name)
            if bound is not None and not compared(order, given, bound):
                found.append(f"expected {words} {bound}, got {brief_scalar(value)}")
        step = declaration.multiple_of
        if step is not None and not _is_multiple(given, step):
            found.append(f"expected a multiple of {step}, got {brief_scalar(value)}")
        if declaration.finite and type(value) is float and not math.isfinite(value):
            found.append(f"expected a finite number, got {value!r}")
    if isinstance(value, str):
        if declaration.pattern is None or objection_to(declaration.pattern):
            pass  # an old document in a bundle may have a pattern that the engine refuses
        elif len(value) > LONGEST_TEXT:
            found.append(
                f"expected at most {LONGEST_TEXT} characters of text like {declaration.pattern!r}, got {len(value)}"
            )
        elif not matches(declaration.pattern, value):
            found.append(f"expected text like {declaration.pattern!r}, got {brief_scalar(value)}")
    if isinstance(value, (str, bytes)):
        found += length_misses(
            declaration, len(value), "characters" if isinstance(value, str) else "bytes"
        )
    choices = declaration.choices
    if choices is not None and value not in choices and not _is_among(given, value, declaration):
        found.append(f"expected one of {', '.join(map(repr, choices))}, got {brief_scalar(value)}")
    return found


def _is_among(given: Any, value: Any, declaration: FieldDeclaration) -> bool:
    """True if a choice writes the value: NaN is equal to no other, and a path to no text.

    Args:
        given: The value as comparisons take it.
        value: The same as Python has it.
        declaration: The field.
    """
    choices = [live_value(declaration, choice) for choice in declaration.choices or ()]
    if is_array(given):
        numbers = (each for each in choices if type(each) in (int, float, complex))
        if any(compared(operator.eq, given, each) for each in numbers):
            return True
    return plain_value(value) in map(plain_value, choices)


def live_value(declaration: FieldDeclaration, value: Any) -> Any:
    """The number or bytes that a plain value writes; other values as they are."""
    for option in declaration.declared.solid:
        if isinstance(option, Scalar):
            with contextlib.suppress(SchemaError):
                option.read(value, Builder(None))
                return option.live(value) if option.spelling is not None else value
    return value


def plain_misses(declaration: FieldDeclaration, value: Any) -> list[str]:
    """The constraints of a field that a value of a file violates."""
    live = live_value(declaration, value)
    found = scalar_misses(declaration, live)
    if isinstance(live, (list, dict)):
        unit = "items" if isinstance(live, list) else "entries"
        found += length_misses(declaration, len(live), unit)
    return found


def unchecked_patterns(document: Document) -> Iterator[Diagnostic]:
    """Yields a warning for each pattern that the engine refuses: no text is compared with it.

    Lint refuses it in files; a document in a bundle may be older than the engine.
    """
    for struct_name, struct in document.structs.items():
        for name, declaration in struct.fields.items():
            objection = None if declaration.pattern is None else objection_to(declaration.pattern)
            if objection is not None:
                code, message = objection
                where = ("structs", struct_name, "fields", name, "pattern")
                hint = (
                    "a new version can have a pattern that means the same; this one is not checked"
                )
                yield Diagnostic(code, "warning", message, path_text(where), hint=hint)


def check_limits(declaration: FieldDeclaration, value: Any, member: str) -> None:
    """Checks a value that a step gives to a field.

    Raises:
        SchemaError: NQX107: the bounds or choices of the field refuse it; ``member`` is where the step has it.
    """
    misses = plain_misses(declaration, value) if value is not None else []
    if misses:
        hint = "write a value within the limits of the field"
        raise SchemaError("; ".join(misses), code="NQX107", path=member, hint=hint)


# --- constraints of structs on one field alone ------------------------------------------------------------

_BOUNDS: Mapping[type[ast.cmpop], str] = {ast.GtE: "ge", ast.Gt: "gt", ast.LtE: "le", ast.Lt: "lt"}
_MIRRORED: Mapping[str, str] = {"ge": "le", "gt": "lt", "le": "ge", "lt": "gt"}


def _comparisons(struct: StructDeclaration) -> Iterator[tuple[ast.expr, ast.cmpop, ast.expr]]:
    """Yields every comparison that all instances must satisfy."""
    todo = [constraint.expression.tree for constraint in struct.constraints]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            todo += node.values
        elif isinstance(node, ast.Call) and calls(node, "for_each"):
            todo += node.args
        elif isinstance(node, ast.Compare):
            sides = pairwise([node.left, *node.comparators])
            for op, (left, right) in zip(node.ops, sides, strict=True):
                yield left, op, right


#: Bounds by the names of the fields on the way to a number, and then by member.
Limits = dict[tuple[str, ...], dict[str, float]]


def limits_of(struct: StructDeclaration, around: Limits) -> Limits:
    """The bounds of constraints such as ``all(0 <= layers.rate <= 1)``, which chance rarely meets.

    Args:
        struct: The struct that declares them.
        around: Those of the structs around it for its own fields.
    """
    found = {path: dict(bounds) for path, bounds in around.items()}
    for left, op, right in _comparisons(struct):
        bound = _BOUNDS.get(type(op))
        if bound is None:
            continue
        for name, member, value in (
            *_bound(left, bound, right),
            *_bound(right, _MIRRORED[bound], left),
        ):
            fields = [step for step in steps_of(name) if isinstance(step, str)]
            bounds = found.setdefault((head_of(name), *fields), {})
            bounds[member] = _tighter(member, bounds.get(member), value)
    return found


def _tighter(member: str, bound: float | None, other: float) -> float:
    """The bound that refuses more values."""
    if bound is None:
        return other
    return max(bound, other) if member in ("ge", "gt") else min(bound, other)


_V = TypeVar("_V")


def inside(facts: Mapping[tuple[str, ...], _V], field: str) -> dict[tuple[str, ...], _V]:
    """Facts by the names of fields on the way, from inside of one field."""
    return {path[1:]: each for path, each in facts.items() if path[0] == field and path[1:]}


def bounded(struct: StructDeclaration, given: Limits) -> dict[str, FieldDeclaration]:
    """The fields with bounds where they have none, or looser ones."""
    fields = dict(struct.fields)
    for path, bounds in given.items():
        declared = fields.get(path[0]) if len(path) == 1 else None
        if declared is not None:
            new = {m: _tighter(m, getattr(declared, m), each) for m, each in bounds.items()}
            fields[path[0]] = declared.model_copy(update=new)
    return fields


def _bound(side: ast.expr, bound: str, other: ast.expr) -> Iterator[tuple[str, str, float]]:
    """Yields name, bound and value for the comparison of a field with a number."""
    if any(isinstance(inner, (ast.Name, ast.Tuple)) for inner in ast.walk(other)):
        return
    value = evaluate_tree(other, {})
    magnitude = calls(side, "absolute") and bound in ("le", "lt")
    inner = side.args[0] if isinstance(side, ast.Call) and magnitude else side
    if isinstance(inner, ast.Name) and isinstance(value, (int, float)):
        yield inner.id, bound, value
        if magnitude:
            yield inner.id, _MIRRORED[bound], -value


def equalities(struct: StructDeclaration) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yields both sides of each equality that all instances satisfy, in both orders, paths into fields first."""
    found = [(left, right) for left, op, right in _comparisons(struct) if isinstance(op, ast.Eq)]
    both = [*found, *((right, left) for left, right in found)]
    return iter(sorted(both, key=lambda pair: not _is_inside(pair[0])))


def _is_inside(side: ast.expr) -> bool:
    return isinstance(side, ast.Name) and bool(steps_of(side.id))


#: Sizes of axes by the names of the fields on the way to an array or a list.
Lengths = dict[tuple[str, ...], dict[int, ast.expr]]


def lengths_in(struct: StructDeclaration) -> Lengths:
    """The sizes of axes that conditions such as ``len(layers) == n`` and ``shape(links.phase)[0] == n`` demand."""
    found: Lengths = {}
    for side, other in equalities(struct):
        axis, call = 0, side
        if isinstance(side, ast.Subscript):
            axis, call = getattr(side.slice, "value", -1), side.value
        measure = "axes" if call is not side else "first_axis"
        if axis < 0 or not isinstance(call, ast.Call) or not calls(call, measure):
            continue
        (counted,) = call.args
        if isinstance(counted, ast.Name):
            steps = steps_of(counted.id)
            names = [step for step in steps if isinstance(step, str)]
            if len(names) == len(steps):
                found.setdefault((head_of(counted.id), *names), {})[axis] = other
    return found
