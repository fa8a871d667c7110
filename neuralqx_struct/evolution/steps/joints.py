"""Arrays that make up another array: side by side along an axis, stacked, or as its real and imaginary part.

The sizes of the parts follow from the numbers of elements, so a part may still have another shape, dtype or order of axes
than the whole array wants; other steps change that.

Example:
    >>> from neuralqx_struct.types.text import format_type, parse_type
    >>> whole, part = parse_type("float32[d, 3 * h * k]"), parse_type("float32[d, h, k]")
    >>> (joint,) = joints(whole, [part] * 3, {})
    >>> joint.how, joint.axis, format_type(joint.parts[0])
    ('concat', 1, 'float32[d, h * k]')
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from typing import Any, Literal, NamedTuple

from neuralqx_struct.dtypes.casts import PART_OF
from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.polynomials import (
    Polynomial,
    divided,
    polynomial,
    polynomial_text,
    summed,
)
from neuralqx_struct.schema.model import FieldDeclaration
from neuralqx_struct.schema.sizes import ANY
from neuralqx_struct.schema.sizes.comparison import extent, total
from neuralqx_struct.types import Array, Extent, Type

Known = Mapping[str, Expression]

_MOST_PARTS = 10  # arrays that may be joined; with more, only some of them are tried


class Joint(NamedTuple):
    """How parts make up an array.

    Attributes:
        how: As in the step merge.
        axis: Likewise.
        parts: The types that the parts have there.
    """

    how: Literal["complex", "concat", "stack"]
    axis: int
    parts: tuple[Array, ...]


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
    if all(form == {(): 1} for form in lengths):
        layer = replace(whole, shape=(*before, *behind))
        yield Joint("stack", axis, (layer,) * len(parts))
    sizes = [
        _size(form or {}, part, whole, known) for form, part in zip(lengths, parts, strict=True)
    ]
    pieces = tuple(replace(whole, shape=(*before, size, *behind)) for size in sizes)
    yield Joint("concat", axis, pieces)


def _size(form: Polynomial, part: Type, whole: Array, known: Known) -> Expression:
    """A size with a polynomial, in the words of the two types if they have some."""
    own = [size for size in part.extents if size is not ...]
    runs = [own[start:end] for start, end in combinations(range(len(own) + 1), 2)]
    spelled = [*own, *whole.extents, *(total(run, "*") for run in runs if len(run) > 1)]

    def is_renamed(size: Extent) -> bool:
        return size is not ... and not known.keys().isdisjoint(size.names)

    for size in sorted(spelled, key=is_renamed):
        if size is not ... and polynomial(size, known) == form:
            return size
    try:
        return extent(polynomial_text(form))
    except SchemaError:  # an atom that is no expression of its own
        return extent("0")


def subsets(
    whole: Type, others: Mapping[str, FieldDeclaration], known: Known
) -> Iterator[tuple[str, ...]]:
    """Yields the names of arrays that have together as many elements as another one."""
    size = elements(whole, known)
    if not size:
        return
    alike: dict[str, list[tuple[str, Polynomial]]] = {}
    for name, other in others.items():
        number = elements(other.declared, known)
        if number is not None:
            alike.setdefault(other.declared.element, []).append((name, number))
    for dtype, arrays in alike.items():
        names = [name for name, number in arrays if number == size]
        if dtype == PART_OF.get(whole.element):
            yield from permutations(names, 2)
            continue
        some = [each for each in arrays if each[1] != size][:_MOST_PARTS]
        for count in range(2, len(some) + 1):
            for chosen in combinations(some, count):
                if summed(number for _, number in chosen) == size:
                    yield tuple(name for name, _ in chosen)
