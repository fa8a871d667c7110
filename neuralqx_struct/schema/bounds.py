"""Bounds of fields: what a number, a text or a length misses of ``ge``, ``pattern``, ``max_length`` and the like.

Owns the judgement of one value by one declaration, for defaults in schema files and for payloads alike. Whether the bounds
themselves make sense is ``defaults.py``'s.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from neuralqx_struct.decimals import brief_integer
from neuralqx_struct.schema.model import FieldDeclaration

__all__ = ["length_misses", "scalar_misses", "shown_scalar"]

_LONGEST_MATCHED = 4096  # a pattern is not tried on longer text: the time it takes may grow faster than the text


def _is_multiple(value: float, bound: float) -> bool:
    """Whether the quotient is whole: exactly for integers, up to the rounding of both for other numbers."""
    if not math.isfinite(bound) or (isinstance(value, float) and not math.isfinite(value)):
        return False
    step = abs(Fraction(bound))
    rest = Fraction(value) % step
    if rest == 0 or (isinstance(value, int) and step.denominator == 1):
        return rest == 0
    return min(rest, step - rest) <= abs(Fraction(value)) / 2**51


def shown_scalar(value: Any) -> str:
    """A scalar as messages name it: short, and never failing, as the ``repr`` of large integers does."""
    text = brief_integer(value) if type(value) is int else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def length_misses(declaration: FieldDeclaration, length: int, what: str) -> list[str]:
    """What a value of so many items, entries or characters misses of the field's constraints."""
    found: list[str] = []
    if declaration.min_length is not None and length < declaration.min_length:
        found.append(f"expected at least {declaration.min_length} {what}, got {length}")
    if declaration.max_length is not None and length > declaration.max_length:
        found.append(f"expected at most {declaration.max_length} {what}, got {length}")
    return found


def scalar_misses(declaration: FieldDeclaration, value: Any) -> list[str]:
    """What a scalar misses of the field's constraints."""
    tests: list[tuple[Any, str, Callable[[Any], bool]]] = [
        (declaration.ge, ">=", lambda bound: value >= bound),
        (declaration.gt, ">", lambda bound: value > bound),
        (declaration.le, "<=", lambda bound: value <= bound),
        (declaration.lt, "<", lambda bound: value < bound),
        (declaration.multiple_of, "a multiple of", lambda bound: _is_multiple(value, bound)),
    ]
    found: list[str] = []
    if isinstance(value, (int, float)):
        found += [
            f"expected {words} {bound}, got {shown_scalar(value)}"
            for bound, words, ok in tests
            if bound is not None and not ok(bound)
        ]
        if declaration.finite and isinstance(value, float) and not math.isfinite(value):
            found.append(f"expected a finite number, got {value!r}")
    if isinstance(value, str):
        if declaration.pattern is not None and len(value) > _LONGEST_MATCHED:
            found.append(
                f"expected at most {_LONGEST_MATCHED} characters of text like {declaration.pattern!r}, got {len(value)}"
            )
        elif declaration.pattern is not None and not re.fullmatch(declaration.pattern, value):
            found.append(f"expected text like {declaration.pattern!r}, got {shown_scalar(value)}")
    if isinstance(value, (str, bytes)):
        found += length_misses(declaration, len(value), "characters" if isinstance(value, str) else "bytes")
    if declaration.choices is not None and value not in declaration.choices:
        found.append(f"expected one of {', '.join(map(repr, declaration.choices))}, got {shown_scalar(value)}")
    return found
