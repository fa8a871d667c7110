"""Numbers: those that limits of fields leave, and arrays of them that are made when they are read.

Example:
    >>> from neuralqx_struct.schema.model import FieldDeclaration
    >>> open_ends(FieldDeclaration(type="int", ge=1, lt=4), 1)
    (1, 3)
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from neuralqx_struct.dtypes import DTYPES, dtype_named
from neuralqx_struct.schema.bounds import ends_of, scalar_misses
from neuralqx_struct.schema.model import FieldDeclaration

WHOLE = 1 << 53  # the largest number
_FEW = 256  # numbers in arrays that are not all the same
_CLOSE = 2**-10  # to a limit of floats


def around(number: float, least: float) -> tuple[float, ...]:
    """A limit with the numbers beside it."""
    return (number, number - least, number + least, number - _CLOSE, number + _CLOSE)


def is_empty(bounds: FieldDeclaration) -> bool:
    """True if no number is within bounds."""
    low, high = open_ends(bounds, 0)
    return low > high or (low == high and (bounds.gt == low or bounds.lt == high))


def open_ends(bounds: FieldDeclaration, least: float) -> tuple[float, float]:
    """The first and the last number within bounds, infinite without any; open ends are moved by ``least``."""
    floors = (bounds.ge, None if bounds.gt is None else bounds.gt + least)
    ceilings = (bounds.le, None if bounds.lt is None else bounds.lt - least)
    low = max((each for each in floors if each is not None), default=-math.inf)
    high = min((each for each in ceilings if each is not None), default=math.inf)
    return low, high


def ends_within(bounds: FieldDeclaration, least: float) -> tuple[float, float]:
    """As :func:`open_ends`; where the moved ends leave nothing, both are the number in the middle."""
    low, high = open_ends(bounds, least)
    return (low, high) if low <= high else (sum(open_ends(bounds, 0)) / 2,) * 2


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """The numbers of an array: small ones within the limits of a field; in large arrays, one for all elements.

    Attributes:
        declaration: The field.
        dtype: The dtype.
        shape: The sizes.
        seed: The start of the random choices.
        small: The number that all shall be near to; None for random ones.
        hints: More numbers to take.
        is_read: Whether a constraint depends on them.
    """

    declaration: FieldDeclaration
    dtype: str
    shape: tuple[int, ...]
    seed: int
    small: int | None
    hints: Sequence[float]
    is_read: bool

    def __call__(self) -> Any:
        """The array, of numpy."""
        import numpy as np

        source = random.Random(self.seed)  # noqa: S311
        options = numbers_within(self.declaration, self.dtype, self.hints, is_read=self.is_read)
        kind, count = dtype_named(self.dtype), math.prod(self.shape)
        small = self.small
        if small is not None and not self.hints:
            numbers: list[float] = [min(options, key=lambda each: abs(each - small))]
        elif count > _FEW:
            numbers = [source.choice(options)]
        else:
            form = source.randrange(5)
            numbers = [source.choice(options) for _ in range(max(1, count))]
            if form == 0:
                numbers = numbers[:1]
            elif form == 1 and {0, 1} <= {*options}:  # such numbers sum up to one
                numbers = [1, *[0] * (count - 1)]
            elif form == 2:
                numbers.sort()
        with np.errstate(all="ignore"):
            made = np.array(numbers, object if max(map(abs, numbers)) > WHOLE else None)
            made = made.astype(kind)
        return np.broadcast_to(made, self.shape) if len(made) != count else made.reshape(self.shape)


def numbers_within(
    declaration: FieldDeclaration, dtype: str, hints: Sequence[float], *, is_read: bool
) -> list[float]:
    """Numbers of a dtype within the limits of a field; the largest too, if constraints read them."""
    known = DTYPES[dtype]
    given = ends_of(declaration)
    found: list[float] = [0, 1, -1, 2, 3, *hints, *(n for each in given for n in around(each, 1))]
    is_whole = known.exponents is None
    if is_whole:
        low, high = known.range if known.family != "bool" else (0, 1)
        if is_read:
            found += [low, high]
    else:
        low, high = (0.0 if "negative" in known.lacks else -known.range[1]), known.range[1]
        found += [0.5, -0.5, 1.5, *(n for each in given for n in around(each, 0.25))]
        if len(given) == 2:
            found.append(sum(given) / 2)
    if "zero" in known.lacks:
        found = [each for each in found if each]
    fit: list[float] = [
        int(each) if is_whole else each
        for each in dict.fromkeys(found)
        if low <= each <= high
        and (not is_whole or each == int(each))
        and not scalar_misses(declaration, each)
    ]
    return fit or [1]
