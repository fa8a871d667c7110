"""Frames: the lists and stacked structs around an array, which add axes to it, in the file or in the schema.

A frame with an axis is one array in the file for all items; without one, each item has an array of its own.

Example:
    >>> framed(("d", "f"), [Frame(1, 0, 12), Frame(None, None, 3)], [12, 3])
    ('d', 12, 'f')
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

from neuralqx_struct.manifest.lazy_arrays import Joined, LazyArray, Sizes

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Frame:
    """A list or a stacked struct around an array.

    Attributes:
        axis: The axis of the items in the file; None if each item has its own arrays.
        index: Of lists, the item; None for a stacked struct.
        count: The number of items; None if only arrays show it.
        slot: Of stacked structs whose layers are apart, the slot of their numbers in names.
    """

    axis: int | None
    index: int | None
    count: int | None
    slot: int | None = None


def framed(
    shape: tuple[Any, ...], frames: Sequence[Frame], counts: Sequence[Any]
) -> tuple[Any, ...]:
    """The shape in the file from that for one item.

    Args:
        shape: The shape for one item.
        frames: The frames.
        counts: The lengths of their axes.
    """
    for frame, count in reversed([*zip(frames, counts, strict=True)]):
        if frame.axis is not None:
            axis = frame.axis % (len(shape) + 1)
            shape = (*shape[:axis], count, *shape[axis:])
    return shape


def length_of(frame: Frame, shape: Sizes, outer: Iterable[Frame]) -> int | None:
    """The length of the axis of a frame inside of others; None if an array of the file has too few axes."""
    for each in (*outer, frame):
        if each.axis is None:
            continue
        if not -len(shape) <= each.axis < len(shape):
            return None
        axis = each.axis % len(shape)
        length, shape = shape[axis], (*shape[:axis], *shape[axis + 1 :])
    return length


def stacked(frames: Iterable[Frame]) -> list[Frame]:
    """The frames of stacked structs, outermost first."""
    return [frame for frame in frames if frame.index is None]


def lead_axes(frames: Iterable[Frame]) -> int:
    """The number of leading axes of an item: of stacked structs that have one array for all layers."""
    return sum(frame.index is None and frame.axis is not None for frame in frames)


def item_of(array: LazyArray, frames: Iterable[Frame]) -> LazyArray | None:
    """The array of one item of each list, its leading axes in front; None if an array of the file has too few axes."""
    lead = 0
    for frame in frames:
        if frame.axis is None:
            continue
        rank = len(array.shape) - lead
        if not -rank <= frame.axis < rank:
            return None
        axis = lead + frame.axis % rank
        if frame.index is None:
            array = array.moved(axis, lead)
            lead += 1
        else:
            array = array.at(axis, frame.index)
    return array


def with_items(items: Sequence[tuple[Sequence[Frame], LazyArray]], lead: int = 0) -> LazyArray:
    """The array of the file from those of all items of its lists; the inverse of :func:`item_of`.

    Args:
        items: The frames with an axis of each item, and its array, in the order of their indices.
        lead: The leading axes of the frames around these.
    """
    (frames, first), *_ = items
    if not frames:
        return first
    axis, index = frames[0].axis or 0, frames[0].index
    inner = [(rest, array) for (_, *rest), array in items]
    if index is None:
        made = with_items(inner, lead + 1)
        return made.moved(lead, lead + axis % (len(made.shape) - lead))
    groups = groupby(items, lambda item: item[0][0].index)
    made_of = [with_items([(rest, a) for (_, *rest), a in group], lead) for _, group in groups]
    return Joined(made_of, lead + axis % (len(made_of[0].shape) - lead + 1), stacked=True)


def layers_of(array: LazyArray, frames: Iterable[Frame]) -> Iterator[LazyArray]:
    """Yields the layers of stacked structs whose arrays are apart in the file; the inverse of :func:`with_layers`."""
    lead, arrays = 0, [array]
    for frame in stacked(frames):
        if frame.axis is None:
            arrays = [each.at(lead, index) for each in arrays for index in range(each.shape[lead])]
        else:
            lead += 1
    yield from arrays


def with_layers(layers: Sequence[LazyArray], frames: Iterable[Frame]) -> LazyArray:
    """One array of the layers of stacked structs, the last frame fastest."""
    arrays: list[LazyArray] = [*layers]
    lead = lead_axes(frames)
    for frame in reversed(stacked(frames)):
        if frame.axis is not None:
            lead -= 1
            continue
        count = frame.count or 0
        starts = range(0, len(arrays), count)
        arrays = [Joined(arrays[start : start + count], lead, stacked=True) for start in starts]
    return arrays[0]
