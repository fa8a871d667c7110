"""Forms: the shape that a rule gives the arrays of the file, as expressions, and the operations between both sides.

A rule is read from the schema to the file: the declared shape, its axes before the transposition, ``reshape``, then the
shape of each array of the file. With numbers in place of expressions the same steps give the sizes of a real file.

Example:
    >>> from neuralqx_struct.types.text import parse_type
    >>> rule = Rule.model_validate({"name": "qkv", "axis": 1, "part": [0, 3], "reshape": ["d", "h * k"]})
    >>> form = Form.of(rule, parse_type("float32[d, h, k]").extents)
    >>> [extent.text for extent in form.files[0]]
    ['d', '3 * (h * k)']
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.evolution.sizes import extent, same_size, total
from neuralqx_struct.expressions import Expression
from neuralqx_struct.layouts import Rule
from neuralqx_struct.schema.sizes import ANY
from neuralqx_struct.types import Extent
from neuralqx_struct.types.text import format_extents

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_T = TypeVar("_T")
Shape = tuple[Extent, ...]
Sizes = tuple[int, ...]
#: Returns the number of a size, or None if nothing shows it.
Measure = Callable[[Expression], int | None]

#: Members of a rule that need the number of axes of an array.
_RANKED = ("part", "reshape", "transpose")
_MOST_PARTS = 65_536  # of one array


def refuse(member: str, message: str, hint: str | None = None) -> NoReturn:
    """Raises NQX702 about one member of a rule."""
    raise SchemaError(message, code="NQX702", path=member, hint=hint)


@dataclass(frozen=True, slots=True)
class Window:
    """A part of an array: a range of one axis, or one position of it.

    Attributes:
        axis: The axis.
        start: The first position.
        length: The length of the range; None for one position, which has no axis.
        blocks: The axis has so many blocks of equal length, with the range in each of them.
    """

    axis: int
    start: int
    length: int | None
    blocks: int = 1

    def of(self, array: Array, lead: int = 0) -> Array:
        """The part, as a view that can be written to; ``lead`` axes are in front of those that count."""
        axis = lead + self.axis
        before: tuple[Any, ...] = (slice(None),) * axis
        if self.length is None:
            return array[(*before, self.start, ...)]
        stop = self.start + self.length
        if self.blocks == 1:
            return array[(*before, slice(self.start, stop))]
        shape = array.shape
        split = (*shape[:axis], self.blocks, shape[axis] // self.blocks, *shape[axis + 1 :])
        return array.reshape(split)[(*before, slice(None), slice(self.start, stop))]


@dataclass(frozen=True, slots=True)
class Form:
    """The shapes of one field on the way from the schema to the file; sizes are expressions.

    Attributes:
        rule: The rule.
        declared: The declared shape.
        order: The axes of the file in the order of the schema; None if it is the same.
        inner: The shape before the transposition.
        whole: The shape before that: of the part of an array in the file, or of several ones that were merged.
        files: The shapes of the arrays in the file; ``_`` is a size that only the file has.
        merged: True if several arrays of the file are one of the schema.
    """

    rule: Rule
    declared: Shape
    order: tuple[int, ...] | None
    inner: Shape
    whole: Shape
    files: tuple[Shape, ...]
    merged: bool

    @classmethod
    def of(cls, rule: Rule, declared: Shape, count: int | None = None) -> Form:
        """The form of a field.

        Args:
            rule: The rule.
            declared: The declared shape.
            count: The number of arrays in the file that are merged; None for a single one.

        Raises:
            SchemaError: NQX702: an operation does not fit; its path is the member of the rule.
        """
        _require_members(rule, declared, count)
        order = _order(rule, len(declared))
        inner = declared
        if order is not None:
            inner = tuple(declared[order.index(axis)] for axis in range(len(order)))
        whole = inner if rule.reshape is None else _sizes(rule.reshape, "reshape")
        if rule.part is not None:
            files: tuple[Shape, ...] = (_around(rule, whole),)
        elif count is not None:
            files = _pieces(rule, whole, count)
        else:
            files = (whole,)
        return cls(rule, declared, order, inner, whole, files, count is not None)

    @property
    def plain(self) -> bool:
        """True if the array of the file is that of the schema, without any operation."""
        return self.same and self.order is None

    @property
    def same(self) -> bool:
        """True if the array of the file is that of the schema, but perhaps for the order of axes."""
        rule = self.rule
        return not self.merged and rule.part is None and rule.reshape is None and rule.cast is None

    def check(self, known: Mapping[str, Expression]) -> None:
        """Checks that sizes agree for all dims.

        Raises:
            SchemaError: NQX702: they cannot agree.
        """
        rule = self.rule
        if rule.reshape is not None:
            if self.whole == self.inner:
                shown = format_extents(self.inner)
                message = f"expected the shape in the file, got that of the field, [{shown}]"
                refuse("reshape", message, "leave `reshape` out, or write the file's sizes")
            have, want = total([*self.whole], "*"), total([*self.inner], "*")  # type: ignore[list-item]
            named = have.names <= want.names | known.keys()
            if named and ANY not in want.names and not same_size(have, want, known):
                shown = format_extents(self.inner)
                message = (
                    f"expected as many elements as [{shown}], got [{format_extents(self.whole)}]"
                )
                refuse("reshape", message, "both are the same array in C order")
        if rule.sizes is not None and rule.part is not None:
            size = _times(rule.blocks, _sizes(rule.sizes, "sizes")[rule.place])
            here = self.whole[rule.axis % len(self.whole)]
            if here is ... or not size.names <= here.names | known.keys():
                return
            if not same_size(size, here, known):
                message = f"expected a part of size {here.text}, got {size.text}"
                refuse("sizes", message, "the part has the axis of the field")

    # --- numbers ---------------------------------------------------------------------------------------------------

    def windows(self, files: Sequence[Sizes], size: Measure) -> list[Window] | None:
        """The parts of the merged array that the arrays of the file are, or the part of the file that the field is.

        Args:
            files: The shapes in the file; of a merge all of them, else one.
            size: Returns the number of a size.

        Returns:
            One window for each array of the file; none without merge and part, None if a size is unknown.
        """
        rule = self.rule
        blocks = 1 if rule.blocks is None else size(extent(rule.blocks))
        if blocks is None:
            return None
        if rule.part is not None:
            return self._part(files[0], blocks, size)
        if not self.merged:
            return []
        axis = rule.axis % (len(files[0]) + (rule.merge == "stack"))
        if rule.merge == "stack":
            return [Window(axis, place, None) for place in range(len(files))]
        if blocks < 1 or any(shape[axis] % blocks for shape in files):
            return None
        lengths = [shape[axis] // blocks for shape in files]
        starts = accumulate(lengths, initial=0)
        return [Window(axis, *each, blocks) for each in zip(starts, lengths, strict=False)]

    def _part(self, file: Sizes, blocks: int, size: Measure) -> list[Window] | None:
        rule = self.rule
        axis = rule.axis % len(file)
        if rule.split == "stack":
            return [Window(axis, rule.place, None)]
        if rule.sizes is None:
            if blocks < 1 or file[axis] % (rule.parts * blocks):
                return None
            length = file[axis] // (rule.parts * blocks)
            return [Window(axis, rule.place * length, length, blocks)]
        lengths = [size(each) for each in _sizes(rule.sizes, "sizes")]
        if None in lengths:
            return None
        known = [length or 0 for length in lengths]
        if min(known) < 0 or blocks * sum(known) != file[axis]:
            return None
        return [Window(axis, sum(known[: rule.place]), known[rule.place], blocks)]

    def whole_of(self, files: Sequence[Sizes], windows: Sequence[Window]) -> Sizes:
        """The shape of the part, or of the merged array, from those in the file."""
        shape = list(files[0])
        if not windows:
            return files[0]
        first = windows[0]
        if self.rule.part is not None:
            shape[first.axis : first.axis + 1] = _length(first)
        elif first.length is None:
            shape.insert(first.axis, len(files))
        else:
            shape[first.axis] = sum(each[first.axis] for each in files)
        return tuple(shape)

    def files_of(self, whole: Sizes, count: int, size: Measure) -> list[Sizes] | None:
        """The shapes in the file, from that of the part or of the merged array; None if a size is unknown."""
        rule = self.rule
        blocks = 1 if rule.blocks is None else size(extent(rule.blocks))
        lengths = [size(each) for each in _sizes(rule.sizes or (), "sizes")]
        if blocks is None or None in lengths:
            return None
        axis = rule.axis
        if rule.part is None and not self.merged:
            return [whole]
        if rule.part is not None and rule.split == "stack":
            axis %= len(whole) + 1
            return [(*whole[:axis], rule.parts, *whole[axis:])]
        axis %= len(whole)
        if rule.part is not None:
            length = whole[axis] * rule.parts
            if lengths:
                length = blocks * sum(each or 0 for each in lengths)
            return [(*whole[:axis], length, *whole[axis + 1 :])]
        if rule.merge == "stack":
            return [(*whole[:axis], *whole[axis + 1 :])] * count
        each = [blocks * (n or 0) for n in lengths] or [whole[axis] // count] * count
        return [(*whole[:axis], length, *whole[axis + 1 :]) for length in each]

    def inner_of(self, whole: Sizes, size: Measure) -> Sizes | None:
        """The shape before the transposition from that of the file; one size may be unknown, which is derived."""
        return whole if self.rule.reshape is None else _completed(self.inner, whole, size)

    def whole_from(self, inner: Sizes, size: Measure) -> Sizes | None:
        """The inverse of :meth:`inner_of`."""
        return inner if self.rule.reshape is None else _completed(self.whole, inner, size)

    def ordered(self, inner: Sizes) -> Sizes:
        """The declared shape from that before the transposition."""
        return inner if self.order is None else tuple(inner[axis] for axis in self.order)

    def disordered(self, declared: tuple[_T, ...]) -> tuple[_T, ...]:
        """The inverse of :meth:`ordered`."""
        if self.order is None:
            return declared
        return tuple(declared[self.order.index(axis)] for axis in range(len(declared)))

    def forward(self, whole: Array, inner: Sizes, lead: int) -> Array:
        """The array of the schema from the part of the file; ``lead`` axes in front stay."""
        array = whole if self.rule.reshape is None else whole.reshape((*whole.shape[:lead], *inner))
        if self.order is None:
            return array
        return array.transpose(*range(lead), *(lead + axis for axis in self.order))

    def back(self, array: Array, whole: Sizes, lead: int) -> Array:
        """The inverse of :meth:`forward`."""
        if self.order is not None:
            inverse = map(self.order.index, range(len(self.order)))
            array = array.transpose(*range(lead), *(lead + axis for axis in inverse))
        return array if self.rule.reshape is None else array.reshape((*array.shape[:lead], *whole))


def _length(window: Window) -> list[int]:
    return [] if window.length is None else [window.blocks * window.length]


def _completed(shape: Shape, other: Sizes, size: Measure) -> Sizes | None:
    """The sizes of a shape with as many elements as another one; None if they are not known, or do not agree."""
    sizes = [None if each is ... else size(each) for each in shape]
    known = prod(each for each in sizes if each is not None)
    unknown = sizes.count(None)
    if unknown == 1 and known > 0 and prod(other) % known == 0:
        sizes[sizes.index(None)] = prod(other) // known
    elif unknown:
        return None
    return tuple(each or 0 for each in sizes)


def _sizes(sizes: Sequence[int | str], member: str) -> tuple[Expression, ...]:
    for size in sizes:
        if type(size) is int and size < 0:
            refuse(member, f"expected sizes from 0 on, got {size}")
    try:
        return tuple(map(extent, sizes))
    except SchemaError as error:
        first = error.diagnostics[0]
        raise SchemaError(first.message, code=first.code, path=member, hint=first.hint) from None


def _times(blocks: int | str | None, size: Expression) -> Expression:
    return size if blocks is None else total([extent(blocks), size], "*")


def _require_members(rule: Rule, declared: Shape, count: int | None) -> None:
    """Checks that the members of a rule go together."""
    if type(rule.blocks) is int and rule.blocks < 1:
        refuse("blocks", f"expected a number of blocks from 1 on, got {rule.blocks}")
    if rule.part is not None:
        _require_part(rule, count)
    elif rule.sizes is not None and len(rule.sizes) != count:
        message = f"expected a size for each of {count or 'several'} names, got {len(rule.sizes)}"
        refuse("sizes", message, "`sizes` goes with `part`, or with a list of names")
    elif rule.blocks is not None and rule.sizes is None:
        refuse("blocks", "expected `part` or `sizes` beside blocks, got none")
    if ... not in declared:
        return
    for member in _RANKED:
        if getattr(rule, member) is not None:
            message = f"expected an array of known rank, got [{format_extents(declared)}]"
            refuse(member, message, "declare the shape in the schema")
    if count is not None:
        message = f"expected an array of known rank to merge, got [{format_extents(declared)}]"
        refuse("name", message, "declare the shape in the schema")


def _require_part(rule: Rule, count: int | None) -> None:
    if count is not None:
        refuse("part", "expected one name beside `part`, got several", "merge or split, not both")
    if isinstance(rule.part, list) == (rule.sizes is not None):
        message = "expected [k, n], the k-th of n equal parts, or k beside `sizes`"
        got = "both" if rule.sizes is not None else "neither"
        refuse("part", f"{message}, got {got}", "such as `part: [0, 3]`")
    if not 1 <= rule.parts <= _MOST_PARTS:
        refuse("part", f"expected 1 to {_MOST_PARTS} parts, got {rule.parts}")
    if not 0 <= rule.place < rule.parts:
        message = f"expected a part from 0 to {rule.parts - 1}, got {rule.place}"
        refuse("part", message, "parts are counted from 0")
    if rule.split == "stack" and (rule.sizes is not None or rule.blocks is not None):
        refuse("split", "expected no `sizes` and no `blocks` beside split: stack, got some")


def _order(rule: Rule, rank: int) -> tuple[int, ...] | None:
    axes = rule.transpose
    if axes is None:
        return None
    if axes is True:
        axes = [*range(rank)][::-1]
    order = tuple(axis + rank if axis < 0 else axis for axis in axes)
    if sorted(order) != [*range(rank)]:
        refuse("transpose", f"expected {rank} axes in some order, got {rule.transpose}")
    return order


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        refuse("axis", f"expected an axis of an array with {rank} axes, got {axis}")
    return axis % rank


def _around(rule: Rule, whole: Shape) -> Shape:
    """The shape of the array in the file of which the field is a part."""
    if rule.split == "stack":
        axis = _axis(rule.axis, len(whole) + 1)
        return (*whole[:axis], extent(rule.parts), *whole[axis:])
    axis = _axis(rule.axis, len(whole))
    if rule.sizes is None:
        size = extent(f"{rule.parts} * ({whole[axis]})")
    else:
        size = _times(rule.blocks, total(_sizes(rule.sizes, "sizes")))
    return (*whole[:axis], size, *whole[axis + 1 :])


def _pieces(rule: Rule, whole: Shape, count: int) -> tuple[Shape, ...]:
    """The shapes of the arrays in the file that are merged."""
    axis = _axis(rule.axis, len(whole))
    before, behind = whole[:axis], whole[axis + 1 :]
    if rule.merge == "stack":
        return ((*before, *behind),) * count
    if rule.sizes is None:
        return ((*before, extent(ANY), *behind),) * count
    sizes = (_times(rule.blocks, size) for size in _sizes(rule.sizes, "sizes"))
    return tuple((*before, size, *behind) for size in sizes)
