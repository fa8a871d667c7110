"""Suggestions for fields that only one version has: renames, splits and merges, removals and additions.

Example:
    >>> work = Work(v1, v1)
    >>> pair_fields("VMCState", work)
    >>> work.found, work.within("VMCState")
    ([], None)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import combinations, permutations, product
from typing import Any, Literal

from neuralqx_struct.evolution import steps as build
from neuralqx_struct.evolution.differences import LIKELY, MOST_PAIRS, likeness, probable_renames
from neuralqx_struct.evolution.proposals import Place, Work, place_of, values_for, ways_to
from neuralqx_struct.evolution.sizes import readable_as, same_type, total
from neuralqx_struct.evolution.steps.arrays import plain_size
from neuralqx_struct.evolution.values import PART_OF
from neuralqx_struct.schema.migration import Step
from neuralqx_struct.schema.model import FieldDeclaration
from neuralqx_struct.types import walk_type
from neuralqx_struct.types.text import format_type

Fields = Mapping[str, FieldDeclaration]


# ---------------------------------------------------------------------------------------------------------------------
# Fields that only one version has.


@dataclass(slots=True)
class Pairing:
    """A struct of both versions, and its stored fields that only one of them has, as far as no step is known."""

    name: str
    work: Work
    gone: dict[str, FieldDeclaration]
    come: dict[str, FieldDeclaration]

    def settle(self, gone: Sequence[str], come: Sequence[str]) -> list[Place]:
        """Removes fields for which there is a suggestion, and returns their places."""
        for name in gone:
            del self.gone[name]
        for name in come:
            del self.come[name]
        return [place_of(self.name, name) for name in (*gone, *come)]

    def settles(self, way: Way) -> bool:
        """True if the steps apply, and lead from fields that are gone to fields as the new version declares them."""
        if not {*way.gone} <= self.gone.keys() or not {*way.come} <= self.come.keys():
            return False
        after = self.work.after(way.steps)
        if after is None:
            return False
        made, known = after.structs[self.name].stored, self.work.known
        pairs = [(made[name].declared, self.come[name].declared) for name in way.come]
        return all(readable_as(have, want, known) for have, want in pairs)

    def removals(self, name: str) -> list[Step]:
        """The steps that remove a field, those that keep the downgrade first."""
        given: dict[str, Any] = {"field": name, "within": self.work.within(self.name)}
        values = values_for(self.gone[name], self.work.have)
        undone = [build.remove(**given, undo_default=value) for value in values]
        steps = [*undone, build.remove(**given, lossy=True)]
        return [step for step in steps if self.work.after([step]) is not None]

    def additions(self, name: str) -> list[Step]:
        """The steps that add a field."""
        given: dict[str, Any] = {"field": name, "within": self.work.within(self.name)}
        values = values_for(self.come[name], self.work.want)
        steps = [build.add(**given, default=value) for value in values]
        return [step for step in steps if self.work.after([step]) is not None]


@dataclass(frozen=True, slots=True)
class Way:
    """Steps by which fields that are gone may have become others; ``words`` is the question, empty if they are sure."""

    gone: tuple[str, ...]
    come: tuple[str, ...]
    steps: tuple[Step, ...]
    words: str = ""


def pair_fields(name: str, work: Work) -> None:
    """Adds suggestions for the fields of a struct that only one version has."""
    old, new = work.have.structs[name].stored, work.want.structs[name].stored
    gone = {field: d for field, d in old.items() if field not in new}
    come = {field: d for field, d in new.items() if field not in old}
    pairing = Pairing(name, work, gone, come)
    for way in _ways(pairing):
        if not pairing.settles(way):
            continue
        if way.words:
            _ask_one(way, pairing)
        else:
            work.take(pairing.settle(way.gone, way.come), *way.steps)
    # Additions first: only an array that goes may show a size that a new one has.
    for added in come:
        _ask_added(pairing, added)
    for removed in gone:
        _ask_removed(pairing, removed)


def _ways(pairing: Pairing) -> Iterator[Way]:
    """Yields the ways in which fields may have become others, the likely ones first; sees those that were settled."""
    work, name = pairing.work, pairing.name
    for b, declaration in list(pairing.come.items()):
        for alias in declaration.aliases:
            for way in _renamed(pairing, alias, b):
                yield replace(way, words="")  # the alias answers the question
    likely = probable_renames(work.have.structs[name], work.want.structs[name], work.known)
    for a, b, _ in likely:
        yield from _renamed(pairing, a, b)
    if max(len(pairing.gone), len(pairing.come)) <= _MOST:
        yield from sorted(filter(pairing.settles, _combined(pairing)), key=_unlikeness)
    if len(pairing.gone) * len(pairing.come) <= MOST_PAIRS:
        for a, b in _partners(pairing):
            yield from _renamed(pairing, a, b)


def _renamed(pairing: Pairing, a: str, b: str) -> Iterator[Way]:
    """Yields the steps that rename a field, and one more where the types differ."""
    if a not in pairing.gone or b not in pairing.come:
        return
    name, work, wanted = pairing.name, pairing.work, pairing.come[b]
    have = pairing.gone[a].declared
    rename = build.rename(field=a, to=b, within=work.within(name))
    after = work.after([rename])
    if after is None:
        return
    found: Iterable[list[Step]] = [[]]
    if not readable_as(have, wanted.declared, work.known):
        found = ways_to(name, b, wanted, work, have=after, most=1)
    for more in found:
        became = f", now {format_type(wanted.declared)}" if more else ""
        words = f"{a} is gone and {b} is new, of type {format_type(have)}{became}: was it renamed?"
        yield Way((a,), (b,), (rename, *more), words)


def _partners(pairing: Pairing) -> Iterator[tuple[str, str]]:
    """Yields fields that go and come of one type, then those that one more step makes of no other field."""
    known, pairs = pairing.work.known, [*product(pairing.gone.items(), pairing.come.items())]
    for (a, old), (b, new) in pairs:
        if same_type(old.declared, new.declared, known):
            yield a, b
    changed = []
    for (a, old), (b, new) in pairs if len(pairs) <= _MOST * _MOST else ():
        # Numbers and texts are common; only their names show which one it was.
        both = (old.declared, new.declared)
        structs = [{inner.refers for inner in walk_type(each)} - {""} for each in both]
        shown = all(each.axes for each in both) or not structs[0].isdisjoint(structs[1])
        alike = shown or likeness(a, old, b, new) >= LIKELY
        if alike and next(_renamed(pairing, a, b), None) is not None:
            changed.append((a, b))
    for a, b in changed:
        if sum(a in pair or b in pair for pair in changed) == 1:
            yield a, b


def _ask_one(way: Way, pairing: Pairing) -> None:
    """Asks whether the fields that go and those that come are the same data."""
    question = way.words
    apart = [pairing.additions(name)[:1] for name in way.come]
    apart += [pairing.removals(name)[:1] for name in way.gone]
    answers: list[tuple[str, Sequence[Step]]] = [("yes", way.steps)]
    if all(apart):
        answers.append(("no", [step for steps in apart for step in steps]))
    else:
        values = f"{' and '.join(way.come)} a value; no constant is one"
        question = f"{question} If not, write a step that gives {values}."
    pairing.work.ask(pairing.settle(way.gone, way.come), question, *answers)


def are(names: Sequence[str]) -> str:
    """Returns names with ``is`` or ``are``."""
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'}"


_MOST = 12  # fields that come or go at once in one struct; with more, parts of arrays are not looked for
_MOST_PARTS = 6  # arrays that may be joined along an axis; with more, only some of them are tried

#: The parts of an array, how they are joined, and the axis.
Parting = tuple[tuple[str, ...], Literal["complex", "concat", "stack"], int]


def _combined(pairing: Pairing) -> Iterator[Way]:
    """Yields arrays that became one, and arrays that became several: complex parts, or parts along an axis."""
    within = pairing.work.within(pairing.name)
    for whole, declaration in pairing.come.items():
        for parts, how, axis in _partings(declaration, pairing.gone):
            step: Step = build.merge(fields=[*parts], into=whole, how=how, axis=axis, within=within)
            words = _parted(whole, parts, how, axis)
            question = f"{are(parts)} gone and {whole} is new: is {words}?"
            yield Way(parts, (whole,), (step,), question)
    for whole, declaration in pairing.gone.items():
        for parts, how, axis in _partings(declaration, pairing.come):
            into: Any = [*parts]
            if how == "concat":
                into = {n: plain_size(pairing.come[n].declared.extents[axis]) for n in parts}
            step = build.split(field=whole, into=into, how=how, axis=axis, within=within)
            words = _parted(whole, parts, how, axis)
            question = f"{whole} is gone and {are(parts)} new: is {words}?"
            yield Way((whole,), parts, (step,), question)

    for flat, declaration in pairing.come.items():
        for names in _packings(declaration, pairing.gone):
            flatten = [
                build.reshape(field=name, shape=[_elements(pairing.gone[name])], within=within)
                for name in _with_axes(names, pairing.gone)
            ]
            step = build.merge(fields=[*names], into=flat, how="concat", axis=0, within=within)
            question = f"{are(names)} gone and {flat} is new: does it have all their numbers in this order?"
            yield Way(names, (flat,), (*flatten, step), question)
    for flat, declaration in pairing.gone.items():
        for names in _packings(declaration, pairing.come):
            into = {name: _elements(pairing.come[name]) for name in names}
            step = build.split(field=flat, into=into, how="concat", axis=0, within=within)
            back = []
            for name in _with_axes(names, pairing.come):
                shape = [*map(plain_size, pairing.come[name].declared.extents)]
                back.append(build.reshape(field=name, shape=shape, within=within))
            question = (
                f"{flat} is gone and {are(names)} new: do they have all its numbers in this order?"
            )
            yield Way((flat,), names, (step, *back), question)


def _elements(declaration: FieldDeclaration) -> int | str:
    sizes = [size for size in declaration.declared.extents if size is not ...]
    return plain_size(total(sizes, "*"))


def _with_axes(names: Iterable[str], fields: Fields) -> list[str]:
    """Those of some arrays that are no vectors."""
    return [name for name in names if len(fields[name].declared.extents) > 1]


def _packings(flat: FieldDeclaration, others: Fields) -> Iterator[tuple[str, ...]]:
    """Yields arrays with several axes whose numbers may lie one after the other in a vector."""
    dtype = flat.declared.element
    if len(flat.declared.extents) != 1 or ... in flat.declared.extents or not dtype:
        return
    alike = {n: d.declared for n, d in others.items() if d.declared.element == dtype}
    parts = [n for n, other in alike.items() if other.extents and ... not in other.extents]
    for count in range(len(parts[:_MOST_PARTS]), 1, -1):
        for names in combinations(parts[:_MOST_PARTS], count):
            if _with_axes(names, others):
                yield names


def _parted(whole: str, parts: Sequence[str], how: str, axis: int) -> str:
    if how == "complex":
        return f"{parts[0]} the real and {parts[1]} the imaginary part of {whole}"
    joined = "joined from" if how == "concat" else "stacked of"
    return f"{whole} {joined} {' and then '.join(parts)}, along axis {axis}"


def _partings(whole: FieldDeclaration, others: Fields) -> Iterator[Parting]:
    """Yields fields that may be the parts of an array, how they are joined, and the axis."""
    shape, dtype = whole.declared.extents, whole.declared.element
    if ... in shape or not dtype:
        return
    alike: dict[tuple[str, int], list[str]] = {}
    for name, other in others.items():
        sizes = other.declared.extents
        if ... not in sizes:
            alike.setdefault((other.declared.element, len(sizes)), []).append(name)
    rank = len(shape)
    for pair in permutations(alike.get((PART_OF.get(dtype, ""), rank), ()), 2):
        yield pair, "complex", 0
    parts, slices = alike.get((dtype, rank), []), alike.get((dtype, rank - 1), [])
    for axis, size in enumerate(shape):
        for count in range(2, len(parts[:_MOST_PARTS]) + 1):
            for some in combinations(parts, count):
                yield some, "concat", axis
        if str(size) == str(len(slices)):
            yield tuple(slices), "stack", axis


#: Words in names of the parts of a complex array.
_PART = re.compile(r"_?(re|im|real|imag)$|^(re|im|real|imag)_")


def _unlikeness(way: Way) -> tuple[bool, float, bool]:
    """A key that sorts ``w_re`` and ``w_im`` before other names, and similar names before those."""
    alike = sum(SequenceMatcher(None, a, b).ratio() for a in way.gone for b in way.come)
    parts = max(way.gone, way.come, key=len)
    found = [_PART.search(name) for name in parts]
    stems = {_PART.sub("", name) for name in parts}
    first = found[0].group() if found[0] else ""
    return not (all(found) and len(stems) == 1), -alike, "im" in first


def _ask_removed(pairing: Pairing, name: str) -> None:
    declaration, work = pairing.gone[name], pairing.work
    steps = pairing.removals(name)
    kept, lossy = steps[:-1], steps[-1:]
    about = [place_of(pairing.name, name)]
    if declaration.has_default and kept and work.take(about, kept[0]):
        return
    question = f"{name}, {format_type(declaration.declared)}, is gone: may its values be lost?"
    answers = [("the value that a downgrade puts in its place", [step]) for step in kept[:1]]
    work.ask(about, question, *answers, ("no downgrade", lossy))


def _ask_added(pairing: Pairing, name: str) -> None:
    declaration, work = pairing.come[name], pairing.work
    steps = pairing.additions(name)
    about = [place_of(pairing.name, name)]
    if declaration.has_default and steps and work.take(about, steps[0]):
        return
    shown = format_type(declaration.declared)
    question = f"{name}, {shown}, is new: what do old payloads get?"
    if not steps:
        question += f" No value of {shown} can be written: let it be `{shown} | null`, or write a step that computes it."
    work.ask(about, question, *(("this value, or another", [step]) for step in steps[:1]))
