"""Forms: the shape that a rule gives the arrays of the file, as expressions, and the arrays of one side from the other's.

A rule is read from the schema to the file: the declared shape, its axes before the transposition, ``reshape``, then the
shape of each array of the file. The arrays are lazy; their operations are those of migration steps.

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
from math import prod
from typing import NoReturn

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import Expression
from neuralqx_struct.layouts import Rule
from neuralqx_struct.manifest.lazy_arrays import Joined, LazyArray, Sizes, Transposition
from neuralqx_struct.schema.sizes import ANY
from neuralqx_struct.schema.sizes.comparison import extent, same_size, total
from neuralqx_struct.types import Extent
from neuralqx_struct.types.text import format_extents

Shape = tuple[Extent, ...]
#: Returns the number of a size, or None if nothing shows it.
Measure = Callable[[Expression], int | None]

#: Members of a rule that need the number of axes of an array.
_RANKED = ("part", "reshape", "transpose")
_MOST_PARTS = 65_536  # of one array


def refuse(member: str, message: str, hint: str | None = None) -> NoReturn:
    """Raises NQX702 about one member of a rule."""
    raise SchemaError(message, code="NQX702", path=member, hint=hint)


@dataclass(frozen=True, slots=True)
class Form:
    """The shapes of one field on the way from the schema to the file; sizes are expressions.

    Attributes:
        rule: The rule.
        declared: The declared shape.
        transposition: From the axes of the file to those of the schema; None if they are the same.
        inner: The shape before the transposition.
        whole: The shape before that: of the part of an array in the file, or of several ones that were merged.
        files: The shapes of the arrays in the file; ``_`` is a size that only the file has.
        merged: True if several arrays of the file are one of the schema.
    """

    rule: Rule
    declared: Shape
    transposition: Transposition | None
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
        transposition = _transposition(rule, len(declared))
        inner = declared if transposition is None else transposition.inverse.shape(declared)
        whole = inner if rule.reshape is None else _sizes(rule.reshape, "reshape")
        if rule.part is not None:
            files: tuple[Shape, ...] = (_around(rule, whole),)
        elif count is not None:
            files = _pieces(rule, whole, count)
        else:
            files = (whole,)
        return cls(rule, declared, transposition, inner, whole, files, count is not None)

    @property
    def same(self) -> bool:
        """True if the array of the file is that of the schema, but perhaps for the dtype and the order of axes."""
        rule = self.rule
        return not self.merged and rule.part is None and rule.reshape is None

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

    # --- arrays ----------------------------------------------------------------------------------------------------
    # Axes in front of those that the rule is about, of stacked structs, have the sizes `lead`. All return None where
    # nothing shows a size that they need, or sizes do not agree.

    def whole_of(self, files: Sequence[LazyArray], lead: Sizes, size: Measure) -> LazyArray | None:
        """The part of the array in the file that the field is, or the arrays of the file merged."""
        rule = self.rule
        if rule.part is not None:
            return self._part(files[0], lead, rule.place, rule.parts, size)
        return self.joined(files, lead, size) if self.merged else files[0]

    def files_of(
        self, whole: LazyArray, lead: Sizes, count: int, size: Measure
    ) -> list[LazyArray] | None:
        """The arrays of the file that a merged one is made of; a part stays one."""
        if not self.merged:
            return [whole] if self._fits(whole.shape[len(lead) :], size) else None
        parts = [self._part(whole, lead, place, count, size) for place in range(count)]
        return None if None in parts else [part for part in parts if part is not None]

    def joined(self, parts: Sequence[LazyArray], lead: Sizes, size: Measure) -> LazyArray | None:
        """One array of its parts: that of the file, or one that is merged."""
        stacked = self._stacked
        axis = len(lead) + self.rule.axis % (len(parts[0].shape) - len(lead) + stacked)
        blocks = self._blocks(size)
        if stacked or blocks == 1:
            return Joined(parts, axis, stacked=stacked)
        if not blocks or any(part.shape[axis] % blocks for part in parts):
            return None
        made = Joined([_in_blocks(part, axis, blocks) for part in parts], axis + 1)
        return _out_of_blocks(made, axis)

    def _part(
        self, array: LazyArray, lead: Sizes, place: int, count: int, size: Measure
    ) -> LazyArray | None:
        """One part of so many of an array; together they are the inverse of :meth:`joined`."""
        axis = len(lead) + self.rule.axis % (len(array.shape) - len(lead))
        if self._stacked:
            return array.at(axis, place)
        blocks, lengths = self._blocks(size), self._lengths(size)
        if not blocks or lengths is None:
            return None
        inside, left = divmod(array.shape[axis], blocks)
        if not lengths:
            length, more = divmod(inside, count)
            start = place * length
        else:
            length, more = lengths[place], inside - sum(lengths)
            start = sum(lengths[:place])
        if left or more or min(lengths, default=0) < 0:
            return None
        if blocks == 1:
            return array.window(axis, start, length)
        part = _in_blocks(array, axis, blocks).window(axis + 1, start, length)
        return _out_of_blocks(part, axis)

    def shape_around(self, part: Sizes, lead: Sizes, size: Measure) -> Sizes:
        """The shape of the array in the file that has a part of a shape."""
        axis = len(lead) + self.rule.axis % (len(part) - len(lead) + self._stacked)
        if self._stacked:
            return (*part[:axis], self.rule.parts, *part[axis:])
        length = (self._blocks(size) or 1) * sum(self._lengths(size) or ())
        return (*part[:axis], length or part[axis] * self.rule.parts, *part[axis + 1 :])

    def _fits(self, part: Sizes, size: Measure) -> bool:
        """True if a part is as long as the rule states."""
        blocks, lengths = self._blocks(size), self._lengths(size)
        if self.rule.part is None or self._stacked or lengths == ():
            return True
        if blocks is None or lengths is None:
            return False
        return part[self.rule.axis % len(part)] == blocks * lengths[self.rule.place]

    @property
    def _stacked(self) -> bool:
        """True if parts are positions of an axis."""
        return (self.rule.merge if self.merged else self.rule.split) == "stack"

    def _blocks(self, size: Measure) -> int | None:
        return 1 if self.rule.blocks is None else size(extent(self.rule.blocks))

    def _lengths(self, size: Measure) -> Sizes | None:
        """The lengths of the parts in one block; none if they are equal."""
        lengths = [size(each) for each in _sizes(self.rule.sizes or (), "sizes")]
        return None if None in lengths else tuple(length or 0 for length in lengths)

    def inner_of(self, whole: LazyArray, lead: Sizes, size: Measure) -> LazyArray | None:
        """The array before the transposition; one size of its shape may be unknown, which is derived."""
        return self._reshaped(whole, lead, self.inner, size)

    def declared_of(self, inner: LazyArray, lead: Sizes) -> LazyArray:
        """The array of the schema."""
        if self.transposition is None:
            return inner
        return inner.changed(self.transposition.behind(lead))

    def whole_from(self, array: LazyArray, lead: Sizes, size: Measure) -> LazyArray | None:
        """The inverse of :meth:`inner_of` and :meth:`declared_of`."""
        if self.transposition is not None:
            array = array.changed(self.transposition.inverse.behind(lead))
        return self._reshaped(array, lead, self.whole, size)

    def _reshaped(
        self, array: LazyArray, lead: Sizes, shape: Shape, size: Measure
    ) -> LazyArray | None:
        if self.rule.reshape is None:
            return array
        sizes = _completed(shape, array.shape[len(lead) :], size)
        return None if sizes is None else array.reshaped((*lead, *sizes))


def _in_blocks(array: LazyArray, axis: int, blocks: int) -> LazyArray:
    """An array with its axis as two, of which the first counts blocks."""
    shape = array.shape
    return array.reshaped((*shape[:axis], blocks, shape[axis] // blocks, *shape[axis + 1 :]))


def _out_of_blocks(array: LazyArray, axis: int) -> LazyArray:
    shape = array.shape
    return array.reshaped((*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))


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


def _transposition(rule: Rule, rank: int) -> Transposition | None:
    if rule.transpose is None:
        return None
    made = Transposition.of_axes(None if rule.transpose is True else rule.transpose, rank)
    if made is None:
        refuse("transpose", f"expected {rank} axes in some order, got {rule.transpose}")
    return made


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
