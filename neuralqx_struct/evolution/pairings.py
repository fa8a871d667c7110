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
from itertools import permutations, product
from typing import Any

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.evolution import steps as build
from neuralqx_struct.evolution.differences import probable_renames
from neuralqx_struct.evolution.sizes import equations, readable_as, same_type
from neuralqx_struct.evolution.steps import apply_to_document, step_text
from neuralqx_struct.evolution.steps.arrays import plain_size
from neuralqx_struct.expressions import Expression
from neuralqx_struct.schema.migration import Step
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.types.records import NO_VALUE, Array, Type
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
    """The declaration after the suggestions so far, with the first answer to each question."""

    have: Document
    want: Document
    found: list[Suggestion] = field(default_factory=list)

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
                document = apply_to_document(document, step, self.want)
        except SchemaError:
            return None
        return document

    def applying(self, steps: Iterable[Step]) -> list[Step]:
        """Those of some steps that apply."""
        return [step for step in steps if self.after([step]) is not None]

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
        self.found.append(Suggestion(tuple(about), tuple(sound), question))
        if sound:
            self.have = self.after(sound[0].steps) or self.have


def place_of(struct: str, name: str) -> Place:
    """The place of a field."""
    return ("structs", struct, "fields", name)


def values_for(declaration: FieldDeclaration, document: Document) -> Iterator[Any]:
    """Yields the declared default, then a neutral value of the type, as far as there are such."""
    if declaration.has_default:
        yield declaration.default
    declared = declaration.declared
    value = declared.record.neutral(declared, document)
    if value is not NO_VALUE:
        yield value


# ---------------------------------------------------------------------------------------------------------------------
# Fields that only one version has.


@dataclass(slots=True)
class Pairing:
    """A struct of both versions, and its stored fields that only one of them has, as far as no step is known."""

    name: str
    within: str | None
    gone: dict[str, FieldDeclaration]
    come: dict[str, FieldDeclaration]

    @classmethod
    def of(cls, name: str, work: Work) -> Pairing:
        """The fields of a struct that differ."""
        old, new = work.have.structs[name].stored, work.want.structs[name].stored
        gone = {field: d for field, d in old.items() if field not in new}
        come = {field: d for field, d in new.items() if field not in old}
        return cls(name, work.within(name), gone, come)

    def settle(self, gone: Sequence[str], come: Sequence[str]) -> list[Place]:
        """Removes fields for which there is a suggestion, and returns their places."""
        for name in gone:
            del self.gone[name]
        for name in come:
            del self.come[name]
        return [place_of(self.name, name) for name in (*gone, *come)]


def pair_fields(name: str, work: Work) -> None:
    """Adds suggestions for the fields of a struct that only one version has."""
    pairing = Pairing.of(name, work)
    gone, come = pairing.gone, pairing.come
    for b, declaration in list(come.items()):
        for a in [alias for alias in declaration.aliases if alias in gone][:1]:
            renaming = build.rename(field=a, to=b, within=pairing.within)
            if work.after([renaming]) is not None:
                work.take(pairing.settle([a], [b]), renaming)
    for a, b, _ in probable_renames(work.have.structs[name], work.want.structs[name], work.known):
        _ask_renamed(pairing, a, b, work)
    for removed, made, step, words in _combined(pairing, work):
        question = f"{are(removed)} gone and {are(made)} new: is {words}?"
        _ask_one(question, [step], pairing, removed, made, work)
    for a, b in [*_only_partners(pairing, work, same_dtype=True)]:
        _ask_renamed(pairing, a, b, work)
    for a, b in [*_only_partners(pairing, work, same_dtype=False)]:
        _ask_renamed(pairing, a, b, work)
    # Additions first: only an array that goes may show a size that a new one has.
    for b in come:
        _ask_added(pairing, b, work)
    for a in gone:
        _ask_removed(pairing, a, work)


def _only_partners(pairing: Pairing, work: Work, *, same_dtype: bool) -> Iterator[tuple[str, str]]:
    """Yields fields that go and come and have no other partner of their type, or of their shape."""
    known = work.known

    def alike(a: Type, b: Type) -> bool:
        if not same_dtype and isinstance(a, Array) and isinstance(b, Array):
            a = replace(a, dtype=b.dtype)
        return same_type(a, b, known)

    only = {
        a: [b for b, new in pairing.come.items() if alike(old.declared, new.declared)]
        for a, old in pairing.gone.items()
    }
    for a, partners in only.items():
        if len(partners) == 1 and sum(partners == others for others in only.values()) == 1:
            yield a, partners[0]


def _ask_renamed(pairing: Pairing, a: str, b: str, work: Work) -> None:
    """Asks whether two fields are one, if the steps for it apply."""
    if a not in pairing.gone or b not in pairing.come:
        return
    have, want = pairing.gone[a].declared, pairing.come[b].declared
    steps: list[Step] = [build.rename(field=a, to=b, within=pairing.within)]
    if not readable_as(have, want, work.known):
        if not isinstance(want, Array):
            return
        steps.append(build.cast(field=b, dtype=want.dtype, within=pairing.within))
    if work.after(steps) is not None:
        question = f"{a} is gone and {b} is new, of type {format_type(have)}: was it renamed?"
        _ask_one(question, steps, pairing, [a], [b], work)


def _ask_one(  # noqa: PLR0917 - the fields that go, those that come, and the steps between them
    question: str,
    steps: Sequence[Step],
    pairing: Pairing,
    gone: Sequence[str],
    come: Sequence[str],
    work: Work,
) -> None:
    """Asks whether the fields that go and those that come are the same data."""
    apart = [_additions(pairing, name, work)[:1] for name in come]
    apart += [_removals(pairing, name, work)[:1] for name in gone]
    answers = [("yes", steps)]
    if all(apart):
        answers.append(("no", [step for found in apart for step in found]))
    else:
        values = f"{' and '.join(come)} a value; no constant is one"
        question = f"{question} If not, write a step that gives {values}."
    work.ask(pairing.settle(gone, come), question, *answers)


def are(names: Sequence[str]) -> str:
    """Returns names with ``is`` or ``are``."""
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'}"


_SHOWN = 4  # fields of the same type that a question lists
_MOST = 12  # fields that come or go at once in one struct; with more, pairs are not tried

#: A fields that go, those that come, the step between them, and the question in words.
Way = tuple[list[str], list[str], Step, str]


def _combined(pairing: Pairing, work: Work) -> Iterator[Way]:
    """Yields two arrays that became one, and arrays that became two: complex parts, or parts along an axis."""
    if max(len(pairing.gone), len(pairing.come)) > _MOST:
        return
    ways: list[Way] = []
    for c, (a, b) in product(pairing.come, permutations(pairing.gone, 2)):
        step: Step = build.merge(fields=[a, b], into=c, how="complex", within=pairing.within)
        ways.append(([a, b], [c], step, f"{a} the real and {b} the imaginary part of {c}"))
    for a, (b, c) in product(pairing.gone, permutations(pairing.come, 2)):
        ways += [([a], [b, c], step, words) for step, words in _splits(a, b, c, pairing)]
    fitting = [way for way in ways if _gives(way, pairing, work)]
    for way in sorted(fitting, key=_unlikeness):
        if set(way[0]) <= pairing.gone.keys() and set(way[1]) <= pairing.come.keys():
            yield way


def _splits(a: str, b: str, c: str, pairing: Pairing) -> Iterator[tuple[Step, str]]:
    """Yields the steps that may turn one array into two."""
    step = build.split(field=a, into=[b, c], how="complex", within=pairing.within)
    yield step, f"{b} the real and {c} the imaginary part of {a}"
    shapes = [pairing.come[name].declared.extents for name in (b, c)]
    if ... in (*shapes[0], *shapes[1]):
        return
    for axis, sizes in enumerate(zip(*shapes, strict=False)):
        into = dict(zip((b, c), map(plain_size, sizes), strict=True))
        step = build.split(field=a, into=into, axis=axis, within=pairing.within)
        yield step, f"{a} joined from {b} and then {c}, along axis {axis}"


def _gives(way: Way, pairing: Pairing, work: Work) -> bool:
    """True if a step leads to fields as the new version declares them."""
    _, names, step, _ = way
    after = work.after([step])
    if after is None:
        return False
    made, known = after.structs[pairing.name].stored, work.known
    return all(same_type(made[n].declared, pairing.come[n].declared, known) for n in names)


#: Words in names of the parts of a complex array.
_PART = re.compile(r"_?(re|im|real|imag)$|^(re|im|real|imag)_")


def _unlikeness(way: Way) -> tuple[bool, float, bool]:
    """A key that sorts ``w_re`` and ``w_im`` before other names, and similar names before those."""
    gone, come, _, _ = way
    alike = sum(SequenceMatcher(None, a, b).ratio() for a in gone for b in come)
    parts = max(gone, come, key=len)
    found = [_PART.search(name) for name in parts]
    stems = {_PART.sub("", name) for name in parts}
    first = found[0].group() if found[0] else ""
    return not (all(found) and len(stems) == 1), -alike, "im" in first


def _removals(pairing: Pairing, name: str, work: Work) -> list[Step]:
    """The steps that remove a field, those that keep the downgrade first."""
    given: dict[str, Any] = {"field": name, "within": pairing.within}
    values = values_for(pairing.gone[name], work.have)
    undo: list[Step] = [build.remove(**given, undo_default=value) for value in values]
    lossy = build.remove(**given, lossy=True)
    return [*work.applying(undo), lossy]


def _additions(pairing: Pairing, name: str, work: Work) -> list[Step]:
    """The steps that add a field."""
    given: dict[str, Any] = {"field": name, "within": pairing.within}
    values = values_for(pairing.come[name], work.want)
    return work.applying(build.add(**given, default=value) for value in values)


def _ask_removed(pairing: Pairing, name: str, work: Work) -> None:
    declaration = pairing.gone[name]
    *kept, lossy = _removals(pairing, name, work)
    alike = _alike(declaration, pairing.come, work)
    about = [place_of(pairing.name, name)]
    if declaration.has_default and kept and not alike and work.take(about, kept[0]):
        return
    shown = format_type(declaration.declared)
    question = f"{name}, {shown}, is gone: may its values be lost?"
    if alike:
        question += f" (if it became {alike}, write a rename)"
    answers = [("the value that a downgrade puts in its place", [step]) for step in kept[:1]]
    work.ask(about, question, *answers, ("no downgrade", [lossy]))


def _ask_added(pairing: Pairing, name: str, work: Work) -> None:
    declaration = pairing.come[name]
    steps = _additions(pairing, name, work)
    alike = _alike(declaration, pairing.gone, work)
    about = [place_of(pairing.name, name)]
    if declaration.has_default and steps and not alike and work.take(about, steps[0]):
        return
    shown = format_type(declaration.declared)
    question = f"{name}, {shown}, is new: what do old payloads get?"
    if alike:
        question += f" (if it was {alike}, write a rename)"
    if not steps:
        question += f" No value of {shown} can be written: let it be `{shown} | null`, or write a step that computes it."
    work.ask(about, question, *(("this value, or another", [step]) for step in steps[:1]))


def _alike(declaration: FieldDeclaration, others: Fields, work: Work) -> str:
    """The fields of the same type, in words."""
    known = work.known
    names = [n for n, d in others.items() if same_type(d.declared, declaration.declared, known)]
    more = [f"one of {len(names) - _SHOWN} others"] if len(names) > _SHOWN else []
    return " or ".join([*names[:_SHOWN], *more])
