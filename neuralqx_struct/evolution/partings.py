"""Suggestions for arrays that became one, and for an array that became several.

Arrays that are parts of another one show it in their types: side by side along an axis, stacked, or real and imaginary
(:func:`joints`). A split of the whole array and a merge of its parts have the same joints. The sizes of the parts follow from the
numbers of elements, so a part may still have another shape, dtype or order of axes than the joint wants; other steps change that.

Example:
    >>> from neuralqx_struct.evolution.proposals import Work
    >>> old, new = v1.structs["VMCState"].stored, v2.structs["VMCState"].stored
    >>> gone, come = {name: old[name] for name in ("W_re", "W_im")}, {"kernel": new["kernel"]}
    >>> next(combined(Pairing("VMCState", Work(v1, v2), gone, come))).words
    'W_re and W_im are gone and kernel is new: is W_re the real and W_im the imaginary part of kernel?'
    >>> from neuralqx_struct.types.text import format_type, parse_type
    >>> whole, part = parse_type("float32[d, 3 * h * k]"), parse_type("float32[d, h, k]")
    >>> (joint,) = joints(whole, [part] * 3, {})
    >>> joint.how, joint.axis, joint.sizes[0], format_type(joint.parts[0])
    ('concat', 1, 'h * k', 'float32[d, h * k]')
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import combinations, permutations
from typing import Any, Literal

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.evolution import steps as build
from neuralqx_struct.evolution.proposals import Fields, Pairing, Way, are, with_name
from neuralqx_struct.evolution.sizes import extent, same_type, total
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
from neuralqx_struct.schema.migration import Step
from neuralqx_struct.schema.model import Document
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


_MOST_PARTS = 10  # arrays that may be joined; with more, only some of them are tried


@dataclass(frozen=True, slots=True)
class _Parting:
    """An array of one version, and those of the other that make it up."""

    whole: str
    parts: tuple[str, ...]
    joint: Joint
    merges: bool
    changed: int  # the parts that need further steps

    @property
    def words(self) -> str:
        """How the array is made up."""
        return _parted(self.whole, self.parts, self.joint.how, self.joint.axis)


def _partings(pairing: Pairing) -> Iterator[_Parting]:
    """Yields arrays that became one, and arrays that became several."""
    for wholes, others, merges in (
        (pairing.come, pairing.gone, True),
        (pairing.gone, pairing.come, False),
    ):
        for whole, declaration in wholes.items():
            for parts in _subsets(declaration.declared, others, pairing.known):
                types = [others[name].declared for name in parts]
                for joint in joints(declaration.declared, types, pairing.known):
                    pairs = zip(types, joint.parts, strict=True)
                    same = [same_type(a, b, pairing.known) for a, b in pairs]
                    yield _Parting(whole, parts, joint, merges, same.count(False))


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


def combined(pairing: Pairing) -> Iterator[Way]:
    """Yields the steps for arrays that became one or several, the likely ones first."""
    for parting in sorted(_partings(pairing), key=_unlikeness):
        ends = (parting.parts, (parting.whole,))
        gone, come = ends if parting.merges else ends[::-1]
        if not pairing.has(gone, come):
            continue  # another way took one of them
        way = _merged(parting, pairing) if parting.merges else _split(parting, pairing)
        if way is not None:
            yield way


def _merged(parting: _Parting, pairing: Pairing) -> Way | None:
    """The steps that give the parts the types of the joint and merge them; on the whole array where that is shorter."""
    work, joint, parts = pairing.work, parting.joint, parting.parts
    chains: list[list[Step]] = []
    after: Document | None = work.have
    for name, wanted in zip(parts, joint.parts, strict=True):
        chain = pairing.chain(name, pairing.gone[name].with_type(wanted), after)
        if chain is None:
            return None
        chains.append(chain)
        after = work.after(chain, after)
    given: Any = {"fields": [*parts], "into": parting.whole, "how": joint.how}
    within = work.within(pairing.name)
    question = f"{are(parts)} gone and {parting.whole} is new: is {parting.words}?"

    def way(axis: int, before: Iterable[Step], behind: Iterable[Step]) -> Way:
        step = build.merge(**given, axis=axis, within=within)
        return Way(parts, (parting.whole,), (*before, step, *behind), question)

    once = _once(chains, parts, parting.whole)
    ways = [way(axis, (), once) for axis in range(len(joint.parts[0].shape)) if once]
    ways.append(way(joint.axis, [step for chain in chains for step in chain], ()))
    return next(filter(pairing.settles, ways), None)


def _split(parting: _Parting, pairing: Pairing) -> Way | None:
    """The steps that split an array and give the parts their types; before it on the whole array where that is shorter."""
    work, joint, parts = pairing.work, parting.joint, parting.parts
    into: Any = [*parts]
    if joint.how == "concat":
        into = dict(zip(parts, joint.sizes, strict=True))
    given: Any = {"field": parting.whole, "into": into, "how": joint.how}
    within = work.within(pairing.name)
    question = f"{parting.whole} is gone and {are(parts)} new: is {parting.words}?"
    apart = build.split(**given, axis=joint.axis, within=within)
    after = work.after([apart])
    chains: list[list[Step]] = []
    for name in parts:
        chain = pairing.chain(name, pairing.come[name], after)
        if chain is None:
            return None
        chains.append(chain)
        after = work.after(chain, after)
    once = _once(chains, parts, parting.whole)
    ways = [
        Way(
            (parting.whole,),
            parts,
            (*once, build.split(**given, axis=axis, within=within)),
            question,
        )
        for axis in range(len(joint.parts[0].shape))
        if once
    ]
    behind = [step for chain in chains for step in chain]
    ways.append(Way((parting.whole,), parts, (apart, *behind), question))
    return next(filter(pairing.settles, ways), None)


def _once(chains: Sequence[Sequence[Step]], parts: Sequence[str], whole: str) -> list[Step]:
    """The steps of each part as steps on the whole array, if they are the same for all; else none."""
    ours = [
        [with_name(step, name, whole) for step in chain]
        for name, chain in zip(parts, chains, strict=True)
    ]
    return ours[0] if all(chain == ours[0] for chain in ours) else []


def _parted(whole: str, parts: Sequence[str], how: str, axis: int) -> str:
    if how == "complex":
        return f"{parts[0]} the real and {parts[1]} the imaginary part of {whole}"
    joined = "joined from" if how == "concat" else "stacked of"
    return f"{whole} {joined} {' and then '.join(parts)}, along axis {axis}"


#: Words in names of the parts of a complex array.
_PART = re.compile(r"_?(re|im|real|imag)$|^(re|im|real|imag)_")


def _unlikeness(parting: _Parting) -> tuple[bool, bool, float, int, bool]:
    """A key that sorts ``w_re`` and ``w_im`` before other names, then fewer steps and similar names before others."""
    parts = parting.parts
    alike = [SequenceMatcher(None, part, parting.whole).ratio() for part in parts]
    found = [_PART.search(name) for name in parts]
    stems = {_PART.sub("", name) for name in parts}
    first = found[0].group() if found[0] else ""
    named = all(found) and len(stems) == 1
    return not named, parting.changed > 0, -sum(alike) / len(alike), parting.changed, "im" in first
