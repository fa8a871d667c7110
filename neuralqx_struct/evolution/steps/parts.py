"""Steps between one field and several: split and merge, inverse to each other.

``ways.py`` has what depends on ``how:``; here are the records, and the candidates: which fields may have become one.

Example:
    >>> step = split(field="bias_all", into={"visible_bias": "n_sites", "hidden_bias": "n_hidden"})
    >>> SPLIT.declare(step, Scope.of(step, v2, v3)).structs["VMCState"].fields["visible_bias"].text
    'complex64[n_sites]'
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import islice
from typing import Any

from neuralqx_struct.evolution.sizes import constant, same_type
from neuralqx_struct.evolution.steps.joints import Joint, Known, joints, subsets
from neuralqx_struct.evolution.steps.operations import (
    Candidate,
    Edit,
    Fields,
    Gap,
    Scope,
    StepKind,
    builder,
    refuse,
)
from neuralqx_struct.evolution.steps.ways import ARRAYS, COLLECTIONS, WAYS
from neuralqx_struct.evolution.values import PART_OF
from neuralqx_struct.expressions.polynomials import polynomial
from neuralqx_struct.schema.migration import Merge, Split, Step
from neuralqx_struct.schema.model import Document
from neuralqx_struct.types import Type

split = builder(Split, axis=0, how="concat")
SPLIT = StepKind(
    model=Split,
    declare=lambda step, scope: WAYS[step.how].split(step, scope),
    rewrite=lambda step, place: WAYS[step.how].split_nodes(step, place),
    inverse=lambda step, scope, _: [WAYS[step.how].unsplit(step, scope)],
    cost="streaming",
    spares_arrays=lambda step: WAYS[step.how].spares_arrays,
    places=lambda step: {
        to: path for path, to in WAYS[step.how].places([*step.into], step.field).items()
    },
    review=lambda step, scope: WAYS[step.how].review_split(step, scope),
)

merge = builder(Merge, axis=0)


def _merge(step: Merge, scope: Scope) -> Document:
    if len(set(step.fields)) != len(step.fields):
        refuse("NQX304", "fields", f"expected distinct fields, got {step.fields}")
    return WAYS[step.how].merge(step, scope)


def _suggest_parts(gap: Gap) -> Iterator[Sequence[Step]]:
    """Yields the steps from a complex array to its two parts along an axis, and back."""
    taken = gap.old.structs[gap.within or gap.old.root].fields
    names = [f"{gap.field}_{part}" for part in ("real", "imag")]
    while not taken.keys().isdisjoint(names):
        names = [f"{name}_" for name in names]
    for have, want in zip(gap.have.solid, gap.want.solid, strict=False):
        parts = have.element in PART_OF
        if not (have.element and want.element) or parts == (want.element in PART_OF):
            continue
        for axis, size in enumerate((want if parts else have).extents):
            if size is not ... and constant(size) == 2:
                split_how: Any = {"how": "complex"} if parts else {"how": "stack", "axis": axis}
                merge_how: Any = {"how": "stack", "axis": axis} if parts else {"how": "complex"}
                yield (
                    split(field=gap.field, into=names, **split_how, within=gap.within),
                    merge(fields=names, into=gap.field, **merge_how, within=gap.within),
                )


def _candidates(edit: Edit, *, named: bool) -> Iterator[Candidate]:
    yield from _array_merges(edit, named=named)
    yield from _collection_merges(edit, named=named)


MERGE = StepKind(
    model=Merge,
    declare=_merge,
    rewrite=lambda step, place: WAYS[step.how].merge_nodes(step, place),
    inverse=lambda step, scope, after: [WAYS[step.how].unmerge(step, scope, after)],
    cost="streaming",
    spares_arrays=lambda step: WAYS[step.how].spares_arrays,
    suggest=_suggest_parts,
    candidates=_candidates,
    is_undone=True,
    question=lambda _: "does its axis of 2 hold the real and then the imaginary part?",
    places=lambda step: WAYS[step.how].places(step.fields, step.into),
    review=lambda step, scope: WAYS[step.how].review_merge(step, scope),
)

# ---------------------------------------------------------------------------------------------------------------------
# Candidates: arrays.


def _array_merges(edit: Edit, *, named: bool) -> Iterator[Candidate]:
    """Yields merges of arrays into a new one: with ``named`` those of ``w_re`` and ``w_im``, else all others."""
    if not edit.is_small:
        return
    for whole, declaration in edit.come.items():
        for parts in subsets(declaration.declared, edit.gone, edit.known):
            if _are_named(parts) == named:
                yield from _merged(edit, whole, parts)


def _merged(edit: Edit, whole: str, parts: tuple[str, ...]) -> Iterator[Candidate]:
    """Yields merges of parts as they are, whose result other steps change, and of parts that are changed before."""
    wanted = edit.come[whole]
    types = [edit.gone[name].declared for name in parts]
    for joint in joints(wanted.declared, types, edit.known):
        options = [*_changed_behind(edit, whole, parts, joint)]
        options += _changed_before(edit, whole, parts, joint)
        for steps in sorted(options, key=len)[:1]:
            cost = _cost(whole, parts, len(steps) - 1)
            axis = next(step.axis for step in steps if isinstance(step, Merge))
            words = ARRAYS[joint.how].words(whole, parts, axis)
            yield Candidate(parts, (whole,), steps, cost, f": is {words}?")


def _changed_behind(
    edit: Edit, whole: str, parts: tuple[str, ...], joint: Joint
) -> Iterator[tuple[Step, ...]]:
    """Yields the merge along any axis, and steps that change the whole array without mixing its parts."""
    wanted = edit.come[whole]
    axes = ARRAYS[joint.how].axes(len(wanted.declared.extents))
    for axis in dict.fromkeys((joint.axis, *axes)):
        step = _joined(edit, whole, parts, joint, axis)
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


def _joined(edit: Edit, whole: str, parts: tuple[str, ...], joint: Joint, axis: int) -> Merge:
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
    yield (*steps, _joined(edit, whole, parts, joint, joint.axis))


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


# ---------------------------------------------------------------------------------------------------------------------
# Candidates: collections.


def _collection_merges(edit: Edit, *, named: bool) -> Iterator[Candidate]:
    """Yields merges of fields into a new collection: with ``named`` numbered fields, else those of one type."""
    if not named and not edit.is_small:
        return
    found: dict[tuple[bool, str], list[tuple[str, ...]]] = {}
    for whole, declaration in edit.come.items():
        for how in _hows(declaration.declared):
            # Arrays that are parts of another one are those above.
            is_array = bool(declaration.declared.element)
            if (is_array, how) not in found:
                some = {n: d for n, d in edit.gone.items() if not (is_array and d.declared.element)}
                groups = numbered(some) if named else _of_one_type(how, some, edit)
                found[is_array, how] = [*groups]
            for parts in found[is_array, how]:
                if whole not in parts:
                    yield from _collected(edit, whole, parts, how, 0.1 if named else 0.8)


def _collected(
    edit: Edit, whole: str, parts: Sequence[str], how: Any, cost: float
) -> Iterator[Candidate]:
    """Yields the steps that gather values and give the collection its type."""
    step = Merge(fields=[*parts], into=whole, how=how, **edit.place)
    question = f": are they its values, {COLLECTIONS[how].order}?"
    for more in islice(edit.change(whole, edit.come[whole], (step,)), 1):
        yield Candidate(tuple(parts), (whole,), (step, *more), cost, question)


def _hows(declared: Type) -> Iterator[str]:
    """Yields the collections that a type is, or is made of."""
    for option in declared.solid[:1]:
        if option.sort in COLLECTIONS:
            yield option.sort
        elif option.listed is not None:
            yield option.listed.sort


_NUMBERED = re.compile(r"(.*?)_?(\d{1,9})")


def numbered(names: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yields the names that differ in a number at their end alone, in the order of the numbers.

    Example:
        >>> [*numbered(["layer_1", "norm", "layer_0", "layer_10"])]
        [('layer_0', 'layer_1', 'layer_10')]
    """
    groups: dict[str, dict[int, str]] = {}
    for name in names:
        found = _NUMBERED.fullmatch(name)
        if found:
            groups.setdefault(found[1], {}).setdefault(int(found[2]), name)
    for group in groups.values():
        if len(group) > 1:
            yield tuple(group[number] for number in sorted(group))


def _of_one_type(how: str, fields: Fields, edit: Edit) -> Iterator[tuple[str, ...]]:
    """Yields the fields of one type, in the order of their declarations; all of them where types may differ."""
    groups: list[list[str]] = []
    for name, declaration in fields.items():
        for group in groups:
            first = fields[group[0]].declared
            alike = same_type(first, declaration.declared, edit.known)
            if alike or COLLECTIONS[how].mixed:
                group.append(name)
                break
        else:
            groups.append([name])
    for group in groups:
        declared = fields[group[0]].declared
        # A number or a text alone shows too little.
        shown = declared.refers or declared.axes or declared.key_impl
        if len(group) > 1 or (COLLECTIONS[how].alone and shown and len(groups) == 1):
            yield tuple(group)
