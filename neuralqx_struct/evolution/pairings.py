"""Suggestions for fields that only one version has: renames, splits and merges, removals and additions.

:class:`Suggestion` is the record of one, :class:`Work` the declaration after those that were found so far.

Example:
    >>> work = Work(v1, v1)
    >>> pair_fields("VMCState", work)
    >>> work.found, work.within("VMCState")
    ([], None)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import combinations, permutations, product
from typing import Any, Literal

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.evolution import steps as build
from neuralqx_struct.evolution.differences import MOST_PAIRS, probable_renames
from neuralqx_struct.evolution.sizes import equations, readable_as, same_type
from neuralqx_struct.evolution.steps import apply_to_document, copied_fields, step_text
from neuralqx_struct.evolution.steps.arrays import plain_size
from neuralqx_struct.evolution.values import PART_OF
from neuralqx_struct.expressions import Expression
from neuralqx_struct.schema.bounds import scalar_misses
from neuralqx_struct.schema.migration import Step
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.types import NO_VALUE, Array
from neuralqx_struct.types.text import format_type

#: The place of a difference, as keys from the document.
Place = tuple[str, ...]
Fields = Mapping[str, FieldDeclaration]


@dataclass(frozen=True, slots=True)
class Answer:
    """One way to answer a question: words, and the steps to write then."""

    words: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Steps that resolve some differences.

    Attributes:
        about: The differences; messages show the suggestion at the first one that they name.
        answers: The ways; none where no step is known.
        question: A question to the author; empty if the steps are sure.
    """

    about: tuple[Place, ...]
    answers: tuple[Answer, ...]
    question: str = ""

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps, as far as no question is open."""
        return () if self.question else self.answers[0].steps

    def hint(self, at: Place, first: Place) -> str:
        """The suggestion as the hint of one difference; in full at the first one that is shown."""
        if at != first:
            return f"{self.question} see {'.'.join(first)}".strip()
        if not self.question:
            return f"write {_shown(self.answers[0].steps)}"
        ways = [f"{answer.words}: {_shown(answer.steps)}" for answer in self.answers]
        return f"{self.question} {'; '.join(ways)}".strip()


def _shown(steps: Sequence[Step]) -> str:
    return ", then ".join(f"`{step_text(step)}`" for step in steps)


@dataclass(slots=True)
class Work:
    """The declaration after the suggestions so far, with the first answer to each question.

    Attributes:
        budget: The fields that trying steps may copy; once it is spent, there are no further suggestions.
    """

    have: Document
    want: Document
    found: list[Suggestion] = field(default_factory=list)
    budget: int = 3_000_000

    @property
    def known(self) -> Mapping[str, Expression]:
        """Expressions that names of sizes are equal to."""
        return equations(self.want, self.have)

    def within(self, struct: str) -> str | None:
        """The ``in`` of a step on a struct; the root needs none."""
        return None if struct == self.have.root == self.want.root else struct

    def after(self, steps: Iterable[Step], have: Document | None = None) -> Document | None:
        """The declaration after some steps, or None if one of them is refused."""
        document = have or self.have
        try:
            for step in steps:
                self.budget -= copied_fields(document)
                if self.budget < 0:
                    return None
                document = apply_to_document(document, step, self.want)
        except SchemaError:
            return None
        return document

    def take(self, about: Iterable[Place], *steps: Step) -> bool:
        """Adds sure steps, if they apply."""
        after = self.after(steps)
        if after is None:
            return False
        self.have = after
        self.found.append(Suggestion(tuple(about), (Answer("", steps),)))
        return True

    def ask(
        self, about: Iterable[Place], question: str, *answers: tuple[str, Sequence[Step]]
    ) -> None:
        """Adds a question, with those answers that apply."""
        sound = [
            Answer(words, tuple(steps)) for words, steps in answers if self.after(steps) is not None
        ]
        if self.budget < 0:
            return  # steps that were not tried are missing in the answers
        self.found.append(Suggestion(tuple(about), tuple(sound), question))
        if sound:
            self.have = self.after(sound[0].steps) or self.have


def place_of(struct: str, name: str) -> Place:
    """The place of a field."""
    return ("structs", struct, "fields", name)


def values_for(declaration: FieldDeclaration, document: Document) -> Iterator[Any]:
    """Yields the declared default, then values of the type that the field's limits allow, a neutral one first."""
    if declaration.has_default:
        yield declaration.default
    neutral = declaration.declared.neutral(document)
    if neutral is None:
        yield None
    for value in (neutral, declaration.ge, declaration.le, *(declaration.choices or ())):
        if value is None or value is NO_VALUE:
            continue
        if not isinstance(value, (int, float, str)) or not scalar_misses(declaration, value):
            yield value


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
            if alias in pairing.gone:
                renaming = build.rename(field=alias, to=b, within=work.within(name))
                yield Way((alias,), (b,), (renaming,))
    likely = probable_renames(work.have.structs[name], work.want.structs[name], work.known)
    for a, b, _ in likely:
        yield from _renamed(pairing, a, b)
    if max(len(pairing.gone), len(pairing.come)) <= _MOST:
        yield from sorted(filter(pairing.settles, _combined(pairing)), key=_unlikeness)
    if len(pairing.gone) * len(pairing.come) <= MOST_PAIRS:
        for a, b in _partners(pairing):
            yield from _renamed(pairing, a, b)


def _renamed(pairing: Pairing, a: str, b: str) -> Iterator[Way]:
    """Yields the steps that rename a field, and cast it where the types differ."""
    if a not in pairing.gone or b not in pairing.come:
        return
    have, want = pairing.gone[a].declared, pairing.come[b].declared
    within = pairing.work.within(pairing.name)
    steps: list[Step] = [build.rename(field=a, to=b, within=within)]
    dtype = want.element
    if dtype and not readable_as(have, want, pairing.work.known):
        steps.append(build.cast(field=b, dtype=dtype, within=within))
    shown = format_type(have)
    words = f"{a} is gone and {b} is new, of type {shown}: was it renamed?"
    yield Way((a,), (b,), tuple(steps), words)


def _partners(pairing: Pairing) -> Iterator[tuple[str, str]]:
    """Yields fields that go and come of one type, then arrays that differ in dtype alone and have no other partner."""
    known, pairs = pairing.work.known, [*product(pairing.gone.items(), pairing.come.items())]
    for (a, old), (b, new) in pairs:
        if same_type(old.declared, new.declared, known):
            yield a, b
    recast = []
    for (a, old), (b, new) in pairs:
        have, want = old.declared, new.declared
        if not isinstance(have, Array) or not isinstance(want, Array):
            continue
        if same_type(replace(have, dtype=want.dtype), want, known):
            recast.append((a, b))
    for a, b in recast:
        if sum(a in pair or b in pair for pair in recast) == 1:
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
