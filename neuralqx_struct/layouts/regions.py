"""Regions: the part of an array of the file that a part of an array of the schema needs.

Example:
    >>> part = Part.of((6, 4)).at(0, 2).window(0, 1, 2)
    >>> part.region, part.shape
    ((slice(2, 3, None), slice(1, 3, None)), (2,))
    >>> reshaped([slice(0, 6), slice(1, 2), slice(0, 2)], (6, 2, 2), (6, 4))
    (slice(0, 6, None), slice(2, 4, None))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, Self

from neuralqx_struct.layouts.forms import Sizes, Window
from neuralqx_struct.manifest.payload import Region

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an array in the file, which is not read yet.

    Attributes:
        region: The range of each axis of the array.
        axes: The axes of the part, in their order; any other axis of the array has one position.
    """

    region: Region
    axes: tuple[int, ...]

    @classmethod
    def of(cls, shape: Sizes) -> Self:
        """A whole array."""
        return cls(tuple(slice(0, size) for size in shape), tuple(range(len(shape))))

    @property
    def shape(self) -> Sizes:
        """The shape of the part."""
        return tuple(self.region[axis].stop - self.region[axis].start for axis in self.axes)

    def at(self, axis: int, index: int) -> Self:
        """One position of an axis, without the axis."""
        made = self.window(axis, index, 1)
        return replace(made, axes=(*self.axes[:axis], *self.axes[axis + 1 :]))

    def window(self, axis: int, start: int, length: int) -> Self:
        """A range of an axis."""
        there = self.axes[axis]
        first = self.region[there].start + start
        region = (*self.region[:there], slice(first, first + length), *self.region[there + 1 :])
        return replace(self, region=region)

    def moved(self, axis: int, to: int) -> Self:
        """The same with an axis at another place."""
        left = [*self.axes[:axis], *self.axes[axis + 1 :]]
        return replace(self, axes=(*left[:to], self.axes[axis], *left[to:]))

    def within(self, ranges: Sequence[slice]) -> Self:
        """The part of it with a range of each axis."""
        made = self
        for axis, each in enumerate(ranges):
            made = made.window(axis, each.start, each.stop - each.start)
        return made

    def of_window(self, window: Window, lead: int) -> Self:
        """The range or the position of a window, which has one block; ``lead`` axes are in front."""
        axis = lead + window.axis
        if window.length is None:
            return self.at(axis, window.start)
        return self.window(axis, window.start, window.length)

    def take(self, read: Callable[[Region], Array]) -> Array:
        """Reads it."""
        left = sorted(self.axes)
        index = tuple(slice(None) if axis in left else 0 for axis in range(len(self.region)))
        made = read(self.region)[(*index, ...)]
        return made.transpose([left.index(axis) for axis in self.axes])


def bounded(region: Region, shape: Sizes) -> Region | None:
    """A region with numbers for the ends of its ranges; None if they have steps."""
    found = [each.indices(size) for each, size in zip(region, shape, strict=True)]
    if any(step != 1 for _, _, step in found):
        return None
    return tuple(slice(start, max(start, stop)) for start, stop, _ in found)


def reshaped(region: Sequence[slice], shape: Sizes, other: Sizes) -> Region | None:
    """The region of an array that has the same elements, in the same order, as one of its reshaped array.

    Both have elements.

    Args:
        region: The region of the reshaped array.
        shape: The shape of that.
        other: The shape of the array.

    Returns:
        None if no region has these elements alone.
    """
    found: list[slice] = []
    for mine, theirs in _groups(shape, other):
        sizes = other[theirs]
        if all(
            each == slice(0, size) for each, size in zip(region[mine], shape[mine], strict=True)
        ):
            found += [slice(0, size) for size in sizes]
            continue
        run = _run(region[mine], shape[mine])
        ranges = None if run is None else _ranges(*run, sizes)
        if ranges is None:
            return None
        found += ranges
    return tuple(found)


def _groups(shape: Sizes, other: Sizes) -> Iterator[tuple[slice, slice]]:
    """Yields the axes of two shapes that belong together: they have the same number of elements."""
    i = j = 0
    while i < len(shape) or j < len(other):
        first, there = i, j
        mine, theirs = prod(shape[i : i + 1]), prod(other[j : j + 1])
        i, j = min(i + 1, len(shape)), min(j + 1, len(other))
        while mine != theirs:
            if mine < theirs:
                mine *= shape[i]
                i += 1
            else:
                theirs *= other[j]
                j += 1
        yield slice(first, i), slice(there, j)


def _run(region: Sequence[slice], shape: Sizes) -> tuple[int, int] | None:
    """The first place and the number of the elements in a region, which follow each other; None if they do not."""
    start, length = 0, 1
    is_open = False  # an axis has several positions: those behind it have to be whole
    for each, size in zip(region, shape, strict=True):
        count = each.stop - each.start
        if is_open and count != size:
            return None
        start = start * size + each.start
        length *= count
        is_open = is_open or count != 1
    return start, length


def _ranges(start: int, length: int, shape: Sizes) -> list[slice] | None:
    """The ranges of the axes of the elements that follow a place; None if they are no region."""
    found: list[slice] = []
    for axis, size in enumerate(shape):
        row = prod(shape[axis + 1 :])
        first, inside = divmod(start, row)
        if inside == 0 and length % row == 0 and first + length // row <= size:
            found.append(slice(first, first + length // row))
            return [*found, *(slice(0, each) for each in shape[axis + 1 :])]
        found.append(slice(first, first + 1))
        start = inside
    return None
