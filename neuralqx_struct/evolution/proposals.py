"""Suggestions: their record, the declaration after those that were found so far, and the steps between two types.

Example:
    >>> work = Work(v1, v1)
    >>> work.found, work.within("VMCState")
    ([], None)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.evolution import steps as build
from neuralqx_struct.evolution.sizes import equations, readable_as
from neuralqx_struct.evolution.steps import apply_to_document, copied_fields, kind, step_text
from neuralqx_struct.evolution.steps.operations import Gap
from neuralqx_struct.expressions import Expression
from neuralqx_struct.schema.bounds import scalar_misses
from neuralqx_struct.schema.migration import Step
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.types import NO_VALUE

#: The place of a difference, as keys from the document.
Place = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """One way to answer a question: words, and the steps to write then."""

    words: str
    steps: tuple[Step, ...]

    @property
    def is_lossy(self) -> bool:
        """True if a step removes stored values."""
        return any(kind(step).drops_values for step in self.steps)

    @property
    def label(self) -> str:
        """The words, with a mark if values are lost."""
        return f"{self.words}, lossy" if self.is_lossy else self.words


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
        ways = [f"{answer.label}: {_shown(answer.steps)}" for answer in self.answers]
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
        """Adds a question, with those answers that apply; those that lose values are labelled and come last."""
        sound = [
            Answer(words, tuple(steps)) for words, steps in answers if self.after(steps) is not None
        ]
        sound.sort(key=lambda answer: answer.is_lossy)
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


def ways_to(
    name: str,
    each: str,
    wanted: FieldDeclaration,
    work: Work,
    *,
    have: Document | None = None,
    most: int = 2,
) -> Iterator[list[Step]]:
    """Yields the shortest chains of steps that turn the type of a field into another; one of each sort.

    Args:
        name: The struct.
        each: The field.
        wanted: The declaration that it shall have.
        work: Both versions.
        have: The declaration to start from, if not that of ``work``.
        most: The number of steps in the longest chain.
    """
    values = tuple(values_for(wanted, work.want))
    within, want = work.within(name), wanted.declared

    def tried(steps: list[Step], document: Document) -> Iterator[tuple[list[Step], Document]]:
        now = document.structs[name].fields[each].declared
        known = equations(work.want, document)
        gap = Gap(each, now, want, document, work.want, known, within, values)
        for step in build.suggestions(gap):
            after = work.after([step], document)
            if after is not None:
                yield [*steps, step], after

    chains: list[tuple[list[Step], Document]] = [([], have or work.have)]
    for _ in range(most):
        chains = [longer for chain in chains for longer in tried(*chain)]
        ways: dict[tuple[str, ...], list[Step]] = {}
        for steps, after in chains:
            made = after.structs[name].stored[each].declared
            if readable_as(made, want, equations(work.want, after)):
                ways.setdefault(tuple(sorted(step.name for step in steps)), steps)
        yield from ways.values()
        if ways:
            return
