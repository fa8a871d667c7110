"""The arrays of a payload that are made of those of a file, one at a time or in parts.

Several arrays can be parts of one array of the file, which is read once for all of them if it is not mapped: the
parts follow each other, or are kept until they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from neuralqx_struct.dtypes import dtype_named
from neuralqx_struct.dtypes.casts import cast
from neuralqx_struct.evolution.values import compact
from neuralqx_struct.formats.table import ForeignArray
from neuralqx_struct.layouts.places import Leaf, item_of, layers, lead_axes, stacked
from neuralqx_struct.layouts.plans import KeptArrays, Numbers, out_of_memory
from neuralqx_struct.layouts.regions import Part, bounded, reshaped
from neuralqx_struct.manifest.payload import Region, StoredArrays

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

Order = Literal["file", "all", "some"]
"""Which arrays are asked for: all in the order of the file, all in any order, or some of them."""
Claims = Mapping[str, Sequence[tuple[Leaf, int]]]


class AdoptedArrays(StoredArrays):
    """The arrays of a payload; one without operations stays a map of the file.

    Args:
        leaves: The arrays by name.
        files: The arrays of the file.
        numbers: The numbers of each array.
        claims: The arrays that each array of the file is in, with the place of its name among theirs.

    Attributes:
        leaves: The arrays by name.
        order: Which arrays are asked for. With ``all``, parts of an array that was read are kept until then; with
            ``file`` too, those behind the next array in a temporary file; with ``some`` no more is read than they
            need, where the file allows that.
    """

    __slots__ = (
        "__weakref__",
        "_claims",
        "_files",
        "_kept",
        "_numbers",
        "_parts",
        "leaves",
        "order",
    )

    def __init__(
        self,
        leaves: Mapping[str, Leaf],
        files: Mapping[str, ForeignArray],
        numbers: Mapping[Leaf, Numbers],
        claims: Claims,
    ) -> None:
        super().__init__(leaves)
        self.leaves = leaves
        self.order: Order = "file"
        self._files, self._numbers, self._claims = files, numbers, claims
        self._parts: dict[tuple[Leaf, int], Array] = {}
        self._kept = KeptArrays()

    def verify(self, name: str) -> None:
        """Foreign files have no checksums of their arrays."""

    def __getitem__(self, name: str) -> Array:
        import numpy as np

        leaf = self.leaves[name]
        if leaf.form.plain and not leaf.place.frames:
            return self._files[leaf.names[0]].read()
        count = len(leaf.form.files)
        places = layers(leaf)
        one = len(places) == 1 and count == len(leaf.names)
        if one and all(frame.axis is not None for frame in stacked(leaf)):
            return compact(self._item(leaf, 0))
        result = np.empty(leaf.shape, dtype_named(leaf.dtype))
        for number, place in enumerate(places):
            result[place] = self._item(leaf, number * count)
        return result

    def _item(self, leaf: Leaf, first: int) -> Array:
        """The array of one layer, whose names begin at a place, or of all where the file has them in one array."""
        import numpy as np

        form, numbers, lead = leaf.form, self._numbers[leaf], lead_axes(leaf)
        if form.merged:
            around = zip(leaf.shape, stacked(leaf), strict=False)
            shape = [size for size, frame in around if frame.axis is not None]
            dtype = dtype_named(self._files[leaf.names[first]].dtype)
            whole = np.empty((*shape, *numbers.whole), dtype)
            for number, window in enumerate(numbers.windows, first):
                view = window.of(whole, lead)
                view[...] = self._piece(leaf, number).reshape(view.shape)
        else:
            whole = self._piece(leaf, first)
            whole = whole.reshape((*whole.shape[:lead], *numbers.whole))
        return self._converted(leaf, form.forward(whole, numbers.inner, lead))

    @staticmethod
    def _converted(leaf: Leaf, array: Array) -> Array:
        rule = leaf.place.rule
        if rule.cast is None:
            return array
        return cast(compact(array), leaf.dtype, exact=rule.exact, path=leaf.place.text)

    # --- the arrays of the file ------------------------------------------------------------------------------------

    def _piece(self, leaf: Leaf, number: int) -> Array:
        """The part of one array of the file that an array of the payload has; axes of stacked structs are in front."""
        for held in (self._parts, self._kept):
            kept = held.pop((leaf, number), None)
            if kept is not None:
                return kept
        name = leaf.names[number]
        array, claims = self._files[name], self._claims[name]
        part = self._part(leaf, name)
        if self.order == "some" and array.slices is not None and part is not None:
            return part.take(array.slices)
        if not array.cheap:
            self._drop()
        whole = array.read()
        if not array.cheap and self.order == "file":
            whole = out_of_memory(whole)
        if not array.cheap:
            self._keep(whole, [claim for claim in claims if claim != (leaf, number)])
        return self._view(leaf, whole, part)

    def _keep(self, whole: Array, claims: Iterable[tuple[Leaf, int]]) -> None:
        """Keeps the other parts of an array; copies of them, if the array would be in memory beside them."""
        for leaf, number in claims:
            view = self._view(leaf, whole, self._part(leaf, leaf.names[number]))
            self._parts[leaf, number] = compact(view) if self.order == "all" else view

    def _drop(self) -> None:
        """Drops the array that was read last, before another one is read."""
        if self.order == "all":
            return
        while self._parts:
            key, part = self._parts.popitem()
            if self.order == "file":
                self._kept.keep(key, part)

    def _part(self, leaf: Leaf, name: str) -> Part | None:
        """The part of an array of the file; None if it has several blocks."""
        part, lead = Part.of(self._files[name].shape), 0
        for frame in leaf.place.frames:
            if frame.axis is None:
                continue
            axis = lead + frame.axis % (len(part.axes) - lead)
            if frame.index is not None:
                part = part.at(axis, frame.index)
            else:
                part = part.moved(axis, lead)
                lead += 1
        for window in () if leaf.form.merged else self._numbers[leaf].windows:
            if window.blocks != 1:
                return None
            part = part.of_window(window, lead)
        return part

    def _view(self, leaf: Leaf, whole: Array, part: Part | None) -> Array:
        """The part of an array that was read."""
        if part is not None:
            return part.take(whole.__getitem__)
        lead = lead_axes(leaf)
        item = item_of(whole, leaf.place.frames)
        found = self._numbers[leaf].windows[0].of(item, lead)
        return found.reshape((*found.shape[:lead], *self._numbers[leaf].whole))

    # --- parts of the arrays ---------------------------------------------------------------------------------------

    def parts(self, name: str, regions: Iterable[Region]) -> Iterator[Array]:
        """Yields parts of one array; no more is read than these need, where the file allows that."""
        leaf = self.leaves[name]
        held: dict[int, Array] = {}
        whole: Array | None = None
        for region in regions:
            made = self._region(leaf, region, held) if whole is None else whole[region]
            if made is None:
                whole = self[name]
                made = whole[region]
            yield made

    def _region(self, leaf: Leaf, region: Region, held: dict[int, Array]) -> Array | None:
        """A part of one array; None if it needs all of it.

        Args:
            leaf: The array.
            region: The part.
            held: Pieces that were read for other parts, by the places of their names.
        """
        import numpy as np

        form, numbers, frames = leaf.form, self._numbers[leaf], stacked(leaf)
        ranges = bounded(region, leaf.shape) if all(leaf.shape) else None
        if ranges is None or any(window.blocks != 1 for window in numbers.windows):
            return None
        outer, inner = ranges[: len(frames)], form.disordered(ranges[len(frames) :])
        there: Region | None = inner
        if leaf.place.rule.reshape is not None:
            there = reshaped(inner, numbers.inner, numbers.whole)
        if there is None:
            return None
        lead = [each for each, frame in zip(outer, frames, strict=True) if frame.axis is not None]
        result: Array | None = None
        for number, place in enumerate(layers(leaf)):
            target = _inside(place, outer)
            if target is None:
                continue
            item = self._part_of_item(leaf, number * len(form.files), lead, there, held)
            item = self._converted(leaf, form.forward(item, _sizes(inner), len(lead)))
            if len(lead) == len(frames):
                return item
            if result is None:
                result = np.empty(_sizes(ranges), dtype_named(leaf.dtype))
            result[target] = item
        return result

    def _part_of_item(
        self,
        leaf: Leaf,
        first: int,
        lead: Sequence[slice],
        ranges: Region,
        held: dict[int, Array],
    ) -> Array:
        """The part of the array of one layer, before it is reshaped."""
        import numpy as np

        if not leaf.form.merged:
            return self._cut(leaf, first, (*lead, *ranges), held)
        dtype = dtype_named(self._files[leaf.names[first]].dtype)
        made = np.empty(_sizes((*lead, *ranges)), dtype)
        for number, window in enumerate(self._numbers[leaf].windows, first):
            axis, wanted = window.axis, ranges[window.axis]
            end = window.start + (1 if window.length is None else window.length)
            low, high = max(wanted.start, window.start), min(wanted.stop, end)
            if low >= high:
                continue
            own = () if window.length is None else (slice(low - window.start, high - window.start),)
            piece = self._cut(
                leaf, number, (*lead, *ranges[:axis], *own, *ranges[axis + 1 :]), held
            )
            before: tuple[Any, ...] = (slice(None),) * (len(lead) + axis)
            target = made[(*before, slice(low - wanted.start, high - wanted.start))]
            target[...] = piece.reshape(target.shape)
        return made

    def _cut(self, leaf: Leaf, number: int, ranges: Region, held: dict[int, Array]) -> Array:
        """A part of a piece: read by itself if the file allows that, else of the piece, which is read once."""
        array = self._files[leaf.names[number]]
        part = self._part(leaf, leaf.names[number])
        if array.slices is not None and part is not None:
            return part.within(ranges).take(array.slices)
        if number not in held:
            held[number] = self._piece(leaf, number)
        return held[number][ranges]


def _sizes(ranges: Iterable[slice]) -> tuple[int, ...]:
    return tuple(each.stop - each.start for each in ranges)


def _inside(place: Sequence[Any], outer: Sequence[slice]) -> tuple[Any, ...] | None:
    """The index of a layer in a part; None if it is not in the part."""
    found: list[Any] = []
    for index, wanted in zip(place, outer, strict=True):
        if isinstance(index, slice):
            found.append(index)
        elif wanted.start <= index < wanted.stop:
            found.append(index - wanted.start)
        else:
            return None
    return tuple(found)
