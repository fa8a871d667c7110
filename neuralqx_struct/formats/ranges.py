"""Ranges of bytes of a file, which is mapped or behind a URL, and the arrays in them.

Example:
    >>> data = Ranges.of(memoryview(bytes(range(12))))
    >>> array_in(data, 4, "uint8", (4, 2)).tolist()
    [[4, 5], [6, 7], [8, 9], [10, 11]]
    >>> part_in(data, 4, "uint8", (4, 2), (slice(1, 3), slice(0, 1))).tolist()
    [[6], [8]]
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from neuralqx_struct.manifest.payload import Region
from neuralqx_struct.places.requests import Blocks, Read

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike

    Array = np.ndarray[Any, Any]


class Ranges(NamedTuple):
    """The bytes of a file, read in ranges.

    Attributes:
        size: Its size.
        read: Returns the bytes from one place to another, and fetches no others.
        view: The bytes for parsers, which read many short ranges side by side.
        cheap: True if a range costs nothing until its bytes are used, as in a mapped file.
    """

    size: int
    read: Read
    view: memoryview | Blocks
    cheap: bool

    @classmethod
    def of(cls, view: memoryview) -> Self:
        """The ranges of a mapped file."""
        return cls(len(view), lambda start, end: view[start:end], view, cheap=True)


View = memoryview | Blocks
"""The bytes of a file for parsers."""


def array_in(data: Ranges, start: int, dtype: DTypeLike, shape: tuple[int, ...]) -> Array:
    """The array whose elements begin at a place, in C order."""
    import numpy as np

    kind = np.dtype(dtype)
    end = start + prod(shape) * kind.itemsize
    if start < end:
        return np.ndarray(shape, kind, data.read(start, end))
    made = np.empty(shape, kind)
    made.flags.writeable = False
    return made


def part_in(
    data: Ranges, start: int, dtype: DTypeLike, shape: tuple[int, ...], region: Region
) -> Array:
    """A part of such an array; reads the bytes from its first to its last row alone.

    A row is an item of the first axis of which the part has more than one.
    """
    import numpy as np

    kind = np.dtype(dtype)
    if not all(shape):
        return array_in(data, start, kind, shape)[region]
    before: list[int] = []
    for size, part in zip(shape, region, strict=True):
        axis = len(before)
        chosen = range(*part.indices(size))
        row = prod(shape[axis + 1 :]) * kind.itemsize
        if len(chosen) == 1:
            start += chosen[0] * row
            before.append(1)
            continue
        low, high = (min(chosen), max(chosen) + 1) if chosen else (0, 0)
        inner = (*before, high - low, *shape[axis + 1 :])
        held = array_in(data, start + low * row, kind, inner)
        whole = (slice(None),) * axis
        return held[(*whole, slice(None, None, chosen.step), *region[axis + 1 :])]
    return array_in(data, start, kind, tuple(before))
