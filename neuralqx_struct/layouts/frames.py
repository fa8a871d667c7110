"""Frames: the axes that lists and stacked structs around an array add to it, in the file and in the schema."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from neuralqx_struct.layouts.forms import Sizes
from neuralqx_struct.layouts.places import Frame, Leaf

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


def framed(shape: tuple[Any, ...], leaf: Leaf, counts: Sequence[Any]) -> tuple[Any, ...]:
    """The shape in the file with the axes of lists and stacked structs around an array.

    Args:
        shape: The shape for one item.
        leaf: The array.
        counts: The lengths of the axes, by frame.
    """
    for frame, count in reversed([*zip(leaf.place.frames, counts, strict=True)]):
        if frame.axis is not None:
            axis = frame.axis % (len(shape) + 1)
            shape = (*shape[:axis], count, *shape[axis:])
    return shape


def unframed(shape: Sizes, frames: Iterable[Frame]) -> tuple[Sizes, list[int]] | None:
    """The shape for one item, and the lengths of the axes of lists and stacked structs; None if there are too few axes."""
    counts = []
    for frame in frames:
        if frame.axis is None:
            continue
        if not -len(shape) <= frame.axis < len(shape):
            return None
        axis = frame.axis % len(shape)
        counts.append(shape[axis])
        shape = (*shape[:axis], *shape[axis + 1 :])
    return shape, counts


def item_of(array: Array, frames: Iterable[Frame]) -> Array:
    """A view of the array for one item of each list; the axes of stacked structs are in front."""
    import numpy as np

    lead = 0
    for frame in frames:
        if frame.axis is None:
            continue
        axis = lead + frame.axis % (array.ndim - lead)
        if frame.index is None:
            array = np.moveaxis(array, axis, lead)
            lead += 1
        else:
            before: tuple[Any, ...] = (slice(None),) * axis
            array = array[(*before, frame.index, ...)]
    return array


def stacked(leaf: Leaf) -> list[Frame]:
    """The stacked structs around an array, outermost first."""
    return [frame for frame in leaf.place.frames if frame.index is None]


def layers(leaf: Leaf) -> list[tuple[Any, ...]]:
    """The index of each layer in an array of the schema, whose arrays are apart in the file."""
    import itertools

    sizes = leaf.shape[: len(stacked(leaf))]
    places: list[Iterable[Any]] = []
    for frame, size in zip(stacked(leaf), sizes, strict=True):
        places.append(range(size) if frame.axis is None else [slice(None)])
    return [*itertools.product(*places)]


def lead_axes(leaf: Leaf) -> int:
    """The number of leading axes that arrays in the file have too."""
    return sum(frame.axis is not None for frame in stacked(leaf))


def length_of(frame: Frame, shape: Sizes, frames: Iterable[Frame]) -> int | None:
    """The length of the axis of a list in an array of the file; None if it has too few axes."""
    for each in frames:
        inside = unframed(shape, [each])
        if inside is None:
            return None
        if each is frame:
            return inside[1][0]
        shape = inside[0]
    return None
