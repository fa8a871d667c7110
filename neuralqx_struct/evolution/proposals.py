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
from neuralqx_struct.evolution.declared_sizes import new_sizes
from neuralqx_struct.evolution.sizes import equations, readable_as
from neuralqx_struct.evolution.steps import apply_to_document, copied_fields, kind, step_text
from neuralqx_struct.evolution.steps.operations import Gap, Scope
from neuralqx_struct.expressions import Expression, parse
from neuralqx_struct.schema.bounds import scalar_misses
from neuralqx_struct.schema.migration import Step
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.sizes.scopes import sizes_of_struct
from neuralqx_struct.types import NO_VALUE

Fields = Mapping[str, FieldDeclaration]
#: The place of a difference, as keys from the document.
Place = tuple[str, ...]


def loses_values(step: Step) -> bool:
    """True if a step removes stored values, or may change them."""
    return kind(step).drops_values or bool(getattr(step, "lossy", False))


@dataclass(frozen=True, slots=True)
class Answer:
    """One way to answer a question: words, and the steps to write then."""

    words: str
    steps: tuple[Step, ...]

    @property
    def is_lossy(self) -> bool:
        """True if stored values are removed or may change."""
        return any(map(loses_values, self.steps))

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
        budget: The fields that trying steps may copy, each size as ten; once it is spent, there are no further
            suggestions.
    """

    have: Document
    want: Document
    found: list[Suggestion] = field(default_factory=list)
    budget: int = 3_000_000
    _known: tuple[Document, dict[str, Mapping[str, Expression]]] | None = field(
        default=None, init=False
    )

    @property
    def known(self) -> Mapping[str, Expression]:
        """Expressions that names of sizes are equal to."""
        return self.known_in("")

    def known_in(self, struct: str) -> Mapping[str, Expression]:
        """As :attr:`known`, with the names that a struct has to itself."""
        if self._known is None or self._known[0] is not self.have:
            self._known = self.have, {}
        known = self._known[1]
        if struct not in known:
            known[struct] = self.known_after(self.have, struct)
        return known[struct]

    def known_after(self, have: Document, struct: str) -> Mapping[str, Expression]:
        """As :meth:`known_in`, in the declaration after some steps."""
        own = new_sizes(have, self.want, struct) if struct else {}
        return {**new_sizes(have, self.want), **equations(self.want, have), **own}

    def within(self, struct: str) -> str | None:
        """The ``in`` of a step on a struct; the root needs none."""
        return None if struct == self.have.root == self.want.root else struct

    def after(self, steps: Iterable[Step], have: Document | None = None) -> Document | None:
        """The declaration after some steps, or None if one of them is refused."""
        document = have or self.have
        try:
            for step in steps:
                # Most of the work of a step that is tried is to find sizes, those of the whole struct.
                sizes = max(len(struct.sizes) for struct in document.structs.values())
                self.budget -= copied_fields(document) + 10 * sizes
                if self.budget < 0:
                    return None
                document = apply_to_document(document, step, self.want)
        except SchemaError:
            return None
        return document

    def rounded(self, steps: Iterable[Step]) -> list[Step]:
        """The steps with values rounded that some of them may refuse; none if no step refuses values."""
        document, found, changed = self.have, list[Step](), False
        for step in steps:
            record = kind(step)
            other = record.rounded(step)
            stops = other and any(record.review(step, Scope.of(step, document, self.want)))
            found.append(other if other and stops else step)
            changed = changed or bool(stops)
            after = self.after(found[-1:], document)
            if after is None:
                return []
            document = after
        return found if changed else []

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
        """Adds a question, with those answers that apply; those that lose values are labelled and come last.

        Args:
            about: The places of the differences.
            question: The question.
            answers: Words and steps; one with steps that some values refuse is followed by one that rounds these.
        """
        steps_of = [[*steps] for _, steps in answers]
        given: list[tuple[str, Sequence[Step]]] = []
        for words, steps in answers:
            given.append((words, steps))
            rounded = self.rounded(steps)
            if rounded and rounded not in steps_of:
                given.append((f"{words}, rounded", rounded))
        tried = [(Answer(words, tuple(steps)), self.after(steps)) for words, steps in given]
        sound = [(answer, after) for answer, after in tried if after is not None]
        sound.sort(key=lambda each: each[0].is_lossy)
        if self.budget < 0:
            return  # steps that were not tried are missing in the answers
        shown = tuple(answer for answer, _ in sound)
        self.found.append(Suggestion(tuple(about), shown, question))
        if sound:
            self.have = sound[0][1]


# ---------------------------------------------------------------------------------------------------------------------
# Fields that only one version has.


@dataclass(slots=True)
class Pairing:
    """A struct of both versions, and its stored fields that only one of them has, as far as no step is known."""

    name: str
    work: Work
    gone: dict[str, FieldDeclaration]
    come: dict[str, FieldDeclaration]
    _known: tuple[Document, dict[str, Expression]] | None = field(default=None, init=False)

    @property
    def known(self) -> dict[str, Expression]:
        """Sizes that are equal, and those that are gone as those that are new, in the order of their first places."""
        if self._known is None or self._known[0] is not self.work.have:
            self._known = self.work.have, self._find_known()
        return self._known[1]

    def _find_known(self) -> dict[str, Expression]:
        known = self.work.known_in(self.name)
        have, want = self.work.have, self.work.want
        old, new = ([*sizes_of_struct(document, self.name)] for document in (have, want))
        settled = {name for size in known.values() for name in size.names}
        taken = {*new, *want.dims, *settled}, {*old, *have.dims, *known}
        gone = [name for name in old if name not in taken[0]]
        come = [name for name in new if name not in taken[1]]
        return {**{name: parse(size) for name, size in zip(come, gone, strict=False)}, **known}

    def settle(self, gone: Sequence[str], come: Sequence[str]) -> list[Place]:
        """Removes fields for which there is a suggestion, and returns their places."""
        for name in gone:
            del self.gone[name]
        for name in come:
            del self.come[name]
        return [place_of(self.name, name) for name in (*gone, *come)]

    def has(self, gone: Iterable[str], come: Iterable[str]) -> bool:
        """True if no step is known yet for any of some fields."""
        return {*gone} <= self.gone.keys() and {*come} <= self.come.keys()

    def settles(self, way: Way) -> bool:
        """True if the steps apply, and lead from fields that are gone to fields as the new version declares them."""
        if not self.has(way.gone, way.come):
            return False
        after = self.work.after(way.steps)
        if after is None:
            return False
        made, known = after.structs[self.name].stored, self.work.known_after(after, self.name)
        pairs = [(made[name].declared, self.come[name].declared) for name in way.come]
        return all(readable_as(have, want, known) for have, want in pairs)

    def chain(
        self, name: str, wanted: FieldDeclaration, have: Document | None
    ) -> list[Step] | None:
        """The shortest steps that give a field of a declaration a type; None if there are none."""
        if have is None:
            return None
        declared = have.structs[self.name].stored[name].declared
        if readable_as(declared, wanted.declared, self.work.known_after(have, self.name)):
            return []
        return next(ways_to(self.name, name, wanted, self.work, have=have), None)

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


def are(names: Sequence[str]) -> str:
    """Returns names with ``is`` or ``are``."""
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'}"


def with_name(step: Step, old: str, new: str) -> Step:
    """A step with another name for the field that it makes or changes."""
    members = ["field", "into", *(["to"] if kind(step).renames_field else [])]
    named = [member for member in members if getattr(step, member, None) == old]
    return step.model_copy(update=dict.fromkeys(named, new))


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
        most: The number of changes in the longest chain.
    """
    if work.budget < 0:
        return
    values = tuple(values_for(wanted, work.want))
    within, want = work.within(name), wanted.declared

    def tried(steps: list[Step], document: Document) -> Iterator[tuple[list[Step], Document]]:
        now = document.structs[name].fields[each].declared
        known = equations(work.want, document)
        gap = Gap(each, now, want, document, work.want, known, within, values)
        for more in build.suggestions(gap):
            after = work.after(more, document)
            if after is not None:
                yield [*steps, *more], after

    chains: list[tuple[list[Step], Document]] = [([], have or work.have)]
    for _ in range(most):
        chains = [longer for chain in chains for longer in tried(*chain)]
        ways: dict[tuple[str, ...], list[Step]] = {}
        for steps, after in chains:
            made = after.structs[name].stored[each].declared
            if readable_as(made, want, work.known_after(after, name)):
                sort = tuple(
                    sorted(
                        f"{step.name} {loses_values(step)} {getattr(step, 'axis', '')}"
                        for step in steps
                    )
                )
                ways.setdefault(sort, steps)
        yield from sorted(ways.values(), key=lambda way: any(map(loses_values, way)))
        if ways:
            return
