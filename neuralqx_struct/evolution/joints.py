"""Arrays that are parts of another one, as their types show: side by side along an axis, stacked, or real and imaginary.

A split of the whole array and a merge of its parts have the same joints. The sizes of the parts follow from the numbers of
elements, so a part may still have another shape, dtype or order of axes than the joint wants; other steps change that.

Example:
    >>> from neuralqx_struct.types.text import format_type, parse_type
    >>> whole, part = parse_type("float32[d, 3 * h * k]"), parse_type("float32[d, h, k]")
    >>> (joint,) = joints(whole, [part] * 3, {})
    >>> joint.how, joint.axis, joint.sizes[0], format_type(joint.parts[0])
    ('concat', 1, 'h * k', 'float32[d, h * k]')
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.evolution.sizes import extent, total
from neuralqx_struct.evolution.steps.arrays import plain_size
from neuralqx_struct.evolution.values import PART_OF
from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.polynomials import (
    Polynomial,
    divided,
    polynomial,
    polynomial_text,
    summed,
)
from neuralqx_struct.schema.sizes import ANY
from neuralqx_struct.types import Array, Type

Known = Mapping[str, Expression]


@dataclass(frozen=True, slots=True)
class Joint:
    """How parts make up an array.

    Attributes:
        how: As in the steps merge and split.
        axis: Likewise.
        parts: The types that the parts have there.
        sizes: The lengths of the parts along the axis, as a step writes them.
    """

    how: Literal["complex", "concat", "stack"]
    axis: int
    parts: tuple[Array, ...]
    sizes: tuple[int | str, ...] = ()


def elements(declared: Type, known: Known) -> Polynomial | None:
    """The number of elements of an array; None for other types, and for arrays of any rank or with any size."""
    sizes = [size for size in declared.extents if size is not ... and ANY not in size.names]
    if not declared.element or len(sizes) < len(declared.extents):
        return None
    return polynomial(total(sizes, "*"), known)


def joints(whole: Type, parts: Sequence[Type], known: Known) -> Iterator[Joint]:
    """Yields the ways in which arrays may make up another one, in the order that they have.

    Args:
        whole: The type of the array.
        parts: Those of its parts.
        known: Expressions that names of sizes are equal to.
    """
    if not isinstance(whole, Array) or ... in whole.shape:
        return
    numbers = [elements(part, known) for part in parts]
    all_of_it = elements(whole, known)
    part_dtype = PART_OF.get(whole.dtype, "")
    if len(parts) == 2 and all(part.element == part_dtype for part in parts):
        if numbers == [all_of_it, all_of_it]:
            yield Joint("complex", 0, (Array(part_dtype, whole.shape),) * 2)
        return
    if None in numbers or summed(number or {} for number in numbers) != all_of_it:
        return
    for axis in range(len(whole.shape)):
        yield from _along(axis, whole, parts, numbers, known)


def _along(
    axis: int, whole: Array, parts: Sequence[Type], numbers: Sequence[Any], known: Known
) -> Iterator[Joint]:
    """Yields the joints along one axis."""
    before, behind = whole.shape[:axis], whole.shape[axis + 1 :]
    rest: list[Any] = [*before, *behind]
    slab = polynomial(total(rest, "*"), known)
    lengths = [divided(number, slab) for number in numbers]
    if None in lengths:
        return
    sizes = [
        _size(form or {}, part, whole, known) for form, part in zip(lengths, parts, strict=True)
    ]
    pieces = tuple(replace(whole, shape=(*before, size, *behind)) for size in sizes)
    if all(form == {(): 1} for form in lengths):
        layer = replace(whole, shape=(*before, *behind))
        yield Joint("stack", axis, (layer,) * len(parts))
    yield Joint("concat", axis, pieces, tuple(map(plain_size, sizes)))


def _size(form: Polynomial, part: Type, whole: Array, known: Known) -> Expression:
    """A size with a polynomial, in the words of the two types if they have some."""
    own = [size for size in part.extents if size is not ...]
    products = [
        own[start:end] for start in range(len(own)) for end in range(start + 2, len(own) + 1)
    ]
    spelled = [*own, *whole.extents, *(total(sizes, "*") for sizes in products)]
    spelled += [extent(name) for name, size in known.items() if size.text in map(str, spelled)]
    for size in sorted(
        spelled, key=lambda size: size is not ... and not known.keys().isdisjoint(size.names)
    ):
        if size is not ... and polynomial(size, known) == form:
            return size
    try:
        return extent(polynomial_text(form))
    except SchemaError:  # an atom that is no expression of its own
        return extent("0")
