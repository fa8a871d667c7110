"""Random numbers and text within the limits of a field, without any instance.

Example:
    >>> import numpy as np
    >>> draws = FieldDraws()
    >>> draws.random = np.random.default_rng(0)
    >>> draws.one_of("x"), draws.between(3, 3)
    ('x', 3)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

_T = TypeVar("_T")
_WHOLE = 1 << 53  # the largest bound of a number


class UnfitError(Exception):
    """Sizes or values that were drawn do not fit."""


class FieldDraws:
    """Random values of one field.

    Attributes:
        random: Source of all choices, a generator of numpy.
        field: The declaration of the field.
    """

    random: Any
    field: Any

    def between(self, low: int, high: int) -> int:
        """A whole number."""
        return int(self.random.integers(low, high + 1))

    def one_of(self, values: Sequence[_T]) -> _T:
        """One of some values."""
        return values[self.between(0, len(values) - 1)]

    def integer(self) -> int:
        """An int within the bounds of the field."""
        step = int(self.field.multiple_of or 1) or 1
        low, high = self.interval(1)
        first = math.ceil(low / step)
        return step * self.between(first, max(first, math.floor(high / step)))

    def floating(self) -> float:
        """A float within the bounds of the field."""
        if self.field.multiple_of:
            return float(self.field.multiple_of * self.between(0, 3))
        return float(self.random.uniform(*self.interval(0.25)))

    def interval(self, least: float) -> tuple[float, float]:
        """Bounds of a number; open ones are moved by ``least``."""
        bounds = self.field
        floors = [bounds.ge, None if bounds.gt is None else bounds.gt + least]
        ceilings = [bounds.le, None if bounds.lt is None else bounds.lt - least]
        low = max((bound for bound in floors if bound is not None), default=None)
        high = min((bound for bound in ceilings if bound is not None), default=None)
        if low is None:
            low = -3 if high is None else high - 6
        high = low + 6 if high is None else max(low, high)
        if not -_WHOLE < low <= high < _WHOLE:
            raise UnfitError
        return low, high

    def text(self) -> str:
        """Text of a length that the field allows."""
        declaration = self.field
        if declaration.pattern is not None:
            if not isinstance(declaration.default, str):
                raise UnfitError
            return declaration.default
        least = declaration.min_length or 0
        most = least + 3 if declaration.max_length is None else declaration.max_length
        return "x" * self.between(least, max(least, min(most, least + 3)))
