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

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import combinations, islice, permutations
from typing import Any, Literal, NamedTuple

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.evolution.sizes import extent, total
from neuralqx_struct.evolution.steps.operations import Candidate, Edit, Fields
from neuralqx_struct.evolution.values import PART_OF
from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.polynomials import (
    Polynomial,
    divided,
    polynomial,
    polynomial_text,
    summed,
)
from neuralqx_struct.schema.migration import Merge, Step
from neuralqx_struct.schema.sizes import ANY
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


# ---------------------------------------------------------------------------------------------------------------------
# Candidates.


def array_merges(edit: Edit, *, named: bool) -> Iterator[Candidate]:
    """Yields merges of arrays into a new one: with ``named`` those of ``w_re`` and ``w_im``, else all others."""
    if not edit.is_small:
        return
    for whole, declaration in edit.come.items():
        for parts in _subsets(declaration.declared, edit.gone, edit.known):
            if _are_named(parts) == named:
                yield from _merged(edit, whole, parts)


def _subsets(whole: Type, others: Fields, known: Known) -> Iterator[tuple[str, ...]]:
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


def _merged(edit: Edit, whole: str, parts: tuple[str, ...]) -> Iterator[Candidate]:
    """Yields merges of parts as they are, whose result other steps change, and of parts that are changed before."""
    wanted = edit.come[whole]
    types = [edit.gone[name].declared for name in parts]
    for joint in joints(wanted.declared, types, edit.known):
        options = [*_changed_behind(edit, whole, parts, joint)]
        options += _changed_before(edit, whole, parts, joint)
        for steps in sorted(options, key=len)[:1]:
            cost = _cost(whole, parts, len(steps) - 1)
            words = _words(whole, parts, next(s for s in steps if isinstance(s, Merge)))
            yield Candidate(parts, (whole,), steps, cost, f": is {words}?")


def _changed_behind(
    edit: Edit, whole: str, parts: tuple[str, ...], joint: Joint
) -> Iterator[tuple[Step, ...]]:
    """Yields the merge along any axis, and steps that change the whole array without mixing its parts."""
    wanted = edit.come[whole]
    axes = range(1 if joint.how == "complex" else len(wanted.declared.extents))
    for axis in dict.fromkeys((joint.axis, *axes)):
        step = _merge(edit, whole, parts, joint, axis)
        after = edit.apply((step,))
        if after is None:
            continue
        made = after.structs[edit.name].stored[whole].declared
        if _sizes_of(made, edit.known) == _sizes_of(wanted.declared, edit.known):
            yield from ((step, *more) for more in islice(edit.change(whole, wanted, (step,)), 1))


def _sizes_of(declared: Type, known: Known) -> Counter[frozenset[Any]]:
    """The sizes of the axes in any order: other axes than these are parts of several, which a reshape mixes."""
    sizes = [size for size in declared.extents if size is not ...]
    return Counter(frozenset(polynomial(size, known).items()) for size in sizes)


def _merge(edit: Edit, whole: str, parts: tuple[str, ...], joint: Joint, axis: int) -> Merge:
    return Merge(fields=[*parts], into=whole, how=joint.how, axis=axis, **edit.place)


def _changed_before(
    edit: Edit, whole: str, parts: tuple[str, ...], joint: Joint
) -> Iterator[tuple[Step, ...]]:
    """Yields the steps that give each part the type that it has in the joint, and the merge."""
    steps: list[Step] = []
    for name, declared in zip(parts, joint.parts, strict=True):
        chain = next(edit.change(name, edit.gone[name].with_type(declared), steps), None)
        if chain is None:
            return
        steps += chain
    yield (*steps, _merge(edit, whole, parts, joint, joint.axis))


def _words(whole: str, parts: Sequence[str], step: Merge) -> str:
    if step.how == "complex":
        return f"{parts[0]} the real and {parts[1]} the imaginary part of {whole}"
    made = "joined from" if step.how == "concat" else "stacked of"
    return f"{whole} {made} {' and then '.join(parts)}, along axis {step.axis}"


#: Words in names of the parts of a complex array.
_PART = re.compile(r"_?(re|im|real|imag)$|^(re|im|real|imag)_")


def _are_named(parts: Sequence[str]) -> bool:
    """True for ``w_re`` and ``w_im``."""
    stems = {_PART.sub("", name) for name in parts}
    return len(stems) == 1 and all(_PART.search(name) for name in parts)


def _cost(whole: str, parts: Sequence[str], changes: int) -> float:
    """Fewer steps and similar names before others; the real part before the imaginary one."""
    unlike = [1 - SequenceMatcher(None, part, whole).ratio() for part in parts]
    first = _PART.search(parts[0])
    reversed_parts = first is not None and "im" in first.group()
    base = 0.4 if _are_named(parts) else 0.5
    shown = 0.05 * (changes > 0) + 0.04 * sum(unlike) / len(unlike)
    return base + shown + 0.0005 * changes + 0.0001 * reversed_parts
