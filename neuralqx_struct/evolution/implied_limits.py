"""Limits on the values of one field that its other declaration keeps anyway, so that they refuse nothing.

``gt: -1`` of an int means the same as ``ge: 0``, and ``choices: [2, 4]`` keeps ``multiple_of: 2``. A verdict asks for each limit of a
reader whether it refuses a value that the writer allows (:func:`refuses`).

Example:
    >>> one, other = (FieldDeclaration.model_validate({"type": "int", **limit}) for limit in ({"gt": -1}, {"ge": 0}))
    >>> refuses("gt", one, other), refuses("ge", other, one)
    (False, False)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from itertools import chain, islice
from typing import Any

from neuralqx_struct.schema.bounds import live_value, scalar_misses
from neuralqx_struct.schema.model import FieldDeclaration
from neuralqx_struct.types import Array, Type

_MOST = 256  # values that are tried one by one
_WHOLE = frozenset(("integer", "unsigned"))

#: A bound with whether values are beyond it; of two that hold, the larger one counts.
_End = tuple[float, bool]


def refuses(name: str, reader: FieldDeclaration, writer: FieldDeclaration) -> bool:
    """Whether a limit refuses a value of another declaration, as far as limits show.

    Args:
        name: The member that holds the limit.
        reader: The declaration with the limit.
        writer: The declaration whose values are judged, of the same type or a narrower one.
    """
    limit = getattr(reader, name)
    if limit is None or limit is False or limit == getattr(writer, name):
        return False
    if name in _OF_NUMBERS and all(map(_has_axes, reader.declared.solid)):
        return False  # NQX131: bounds do not check the numbers of arrays
    if name in _IMPLIED and _IMPLIED[name](limit, writer):
        return False
    values = _values(writer, name)
    if values is None:
        return True
    others = dict.fromkeys([*_IMPLIED, "pattern", "validator"], None)
    alone = reader.model_copy(update={**others, "finite": False, name: limit})
    return name == "validator" or any(scalar_misses(alone, value) for value in values)


def _has_axes(option: Type) -> bool:
    """True for an array that has an axis in any case, and so is no number."""
    return isinstance(option, Array) and option.shape not in ((), (...,))


def _values(writer: FieldDeclaration, name: str) -> list[Any] | None:
    """All values that a limit is about, null aside; None where they are not known, or too many."""
    found: Any
    listed = [option.listed_values for option in writer.declared.solid]
    if all(listed) or writer.choices is not None:
        given = chain.from_iterable(listed) if all(listed) else writer.choices or ()
        found = [*islice(given, _MOST + 1)]
        if len(found) > _MOST:
            return None
        if not all(listed):
            found = [live_value(writer, each) for each in found]
    else:
        (low, _), (high, _) = _low(writer), _high(writer)
        if not _is_about_ints(writer, name) or -math.inf in (low, high) or -high - low >= _MOST:
            return None
        found = range(int(low), int(-high) + 1)
    return [value for value in found if not scalar_misses(writer, value)]


def _is_about_ints(writer: FieldDeclaration, name: str) -> bool:
    """True if a limit is about whole numbers alone: about all values in ``choices``, about numbers in bounds."""
    solid = writer.declared.solid
    if name == "choices":  # True and False are equal to 1 and 0
        return all(option.families and {*option.families} <= _WHOLE | {"bool"} for option in solid)
    return name in _OF_NUMBERS and _is_whole(writer)


def _is_whole(declaration: FieldDeclaration) -> bool:
    """True if all numbers among the values are whole."""
    solid = declaration.declared.solid
    numbers = [option for option in solid if option.families or "number" in option.bounds]
    return all(option.families and {*option.families} <= _WHOLE | {"bool"} for option in numbers)


def _low(declaration: FieldDeclaration) -> _End:
    return _end(declaration, declaration.ge, declaration.gt)


def _high(declaration: FieldDeclaration) -> _End:
    """The upper end, as the lower end of the negative numbers."""
    upper = (declaration.le, declaration.lt)
    return _end(declaration, *(None if bound is None else -bound for bound in upper))


def _end(declaration: FieldDeclaration, closed: float | None, beyond: float | None) -> _End:
    """The lower end of numbers with two bounds; that of whole numbers is one of them."""
    ends = [(closed, False), (beyond, True)]
    end = max(
        ((bound, far) for bound, far in ends if bound is not None), default=(-math.inf, False)
    )
    if end[0] == -math.inf or not _is_whole(declaration):
        return end
    first = math.floor(end[0]) + 1 if end[1] else math.ceil(end[0])
    step = declaration.multiple_of
    if step and step == int(step):
        first = -(-first // abs(int(step))) * abs(int(step))
    return first, False


def _is_finite(writer: FieldDeclaration) -> bool:
    """True if no value is infinite or NaN, which no bound and no multiple accepts."""
    ends = (_low(writer), _high(writer))
    closed = all(bound > -math.inf for bound, _ in ends)
    return closed or _is_whole(writer) or writer.multiple_of is not None


def _is_multiple(limit: float, writer: FieldDeclaration) -> bool:
    steps: list[float] = [1] if _is_whole(writer) else []
    if writer.multiple_of is not None:
        steps.append(writer.multiple_of)
    return limit != 0 and any(Fraction(step) % Fraction(limit) == 0 for step in steps)


def _lengths(writer: FieldDeclaration) -> tuple[int, float]:
    """The least and the largest length of a value."""
    least, most = writer.min_length or 0, math.inf
    if writer.max_length is not None:
        most = writer.max_length
    counts = [option.count for option in writer.declared.solid if "length" in option.bounds]
    fixed = [count for count in counts if count is not None]
    if fixed and len(fixed) == len(counts):
        least, most = max(least, min(fixed)), min(most, max(fixed))
    return least, most


def _are_among(limit: Iterable[Any], writer: FieldDeclaration) -> bool:
    """True if all choices are among others; a search for each would take the square of the time."""
    if writer.choices is None:
        return False
    known = [*limit]
    try:
        return {*writer.choices} <= {*known}
    except TypeError:  # lists
        return {*map(repr, writer.choices)} <= {*map(repr, known)}


#: Whether a limit holds of all values of a declaration because of its other limits, by member.
_IMPLIED: Mapping[str, Callable[[Any, FieldDeclaration], bool]] = {
    "ge": lambda limit, writer: _low(writer) >= (limit, False),
    "gt": lambda limit, writer: _low(writer) >= (limit, True),
    "le": lambda limit, writer: _high(writer) >= (-limit, False),
    "lt": lambda limit, writer: _high(writer) >= (-limit, True),
    "finite": lambda _, writer: _is_finite(writer),
    "multiple_of": _is_multiple,
    "min_length": lambda limit, writer: _lengths(writer)[0] >= limit,
    "max_length": lambda limit, writer: _lengths(writer)[1] <= limit,
    "choices": _are_among,
}
_OF_NUMBERS = frozenset(("ge", "gt", "le", "lt", "finite", "multiple_of"))
