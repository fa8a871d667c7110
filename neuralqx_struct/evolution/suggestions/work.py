"""Suggestions and their answers, and the declaration after those that were found so far.

Example:
    >>> work = Work(v1, v1)
    >>> work.found, work.within("VMCState")
    ([], None)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.evolution import steps as build
from neuralqx_struct.evolution.declared_sizes import new_sizes
from neuralqx_struct.evolution.steps import apply_to_document, copied_fields, kind, step_text
from neuralqx_struct.evolution.steps.additions import values_for
from neuralqx_struct.evolution.steps.operations import Edit, Gap, Scope
from neuralqx_struct.expressions import Expression
from neuralqx_struct.schema.graph import graph_of
from neuralqx_struct.schema.migration import Step
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.sizes.comparison import equations, extent, readable_as
from neuralqx_struct.types import Type, walk_type

#: The place of a difference, as keys from the document.
Place = tuple[str, ...]


def loses_values(step: Step) -> bool:
    """True if a step removes stored values, or may change them."""
    return kind(step).drops_values or bool(getattr(step, "lossy", False))


class Answer(NamedTuple):
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


class Suggestion(NamedTuple):
    """Steps that resolve some differences.

    Attributes:
        about: The differences; messages show the suggestion at the first one that they name.
        answers: The ways; none where no step is known, and then the question says what the author can do.
        question: A question to the author; empty if the steps are sure.
        otherwise: Why there is one answer alone, and what the author can do if it is wrong.
    """

    about: tuple[Place, ...]
    answers: tuple[Answer, ...]
    question: str = ""
    otherwise: str = ""

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps, as far as no question is open."""
        return () if self.question else self.answers[0].steps

    def hint(self, at: Place, first: Place) -> str:
        """The suggestion as the hint of one difference; in full at the first one that is shown."""
        if at != first:
            return f"{self.question} see {'.'.join(first)}".strip()
        if not self.question:
            return f"write {_quoted(self.answers[0].steps)}"
        ways = [f"{answer.label}: {_quoted(answer.steps)}" for answer in self.answers]
        end = f". {self.otherwise}" if self.otherwise else ""
        return f"{self.question} {'; '.join(ways)}{end}".strip()


def _instead(about: Iterable[Place]) -> str:
    """What the author can do where the values of fields have nothing to do with the former ones, and later steps need these."""
    names = dict.fromkeys(at[3] for at in about if len(at) > 3)
    return (
        f"If unrelated: `remove` and `add` {' and '.join(names)} instead, and take out the steps "
        "below that change fields inside."
    )


def _quoted(steps: Sequence[Step]) -> str:
    return ", then ".join(f"`{step_text(step)}`" for step in steps)


def place_of(struct: str, name: str) -> Place:
    """The place of a field."""
    return ("structs", struct, "fields", name)


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

    def known_in(self, struct: str = "") -> Mapping[str, Expression]:
        """Expressions that names of sizes are equal to, with the names that a struct has to itself."""
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

    def ways_to(
        self, struct: str, name: str, wanted: FieldDeclaration, have: Document, most: int = 2
    ) -> Iterator[list[Step]]:
        """Yields the shortest chains of steps that turn the type of a field into another; one of each sort.

        Args:
            struct: The struct.
            name: The field.
            wanted: The declaration that it shall have.
            have: The declaration to start from.
            most: The number of changes in the longest chain.
        """
        chains: list[tuple[list[Step], Document]] = [([], have)]
        for _ in range(most):
            chains = [
                ([*steps, *more], after)
                for steps, document in chains
                for more, after in self._changed(struct, name, wanted, document)
            ]
            ways: dict[tuple[str, ...], list[Step]] = {}
            for steps, after in chains:
                if self.has(after, struct, name, wanted):
                    ways.setdefault(_sort(steps), steps)
            yield from sorted(ways.values(), key=lambda way: any(map(loses_values, way)))
            if ways:
                return

    def _changed(
        self, struct: str, name: str, wanted: FieldDeclaration, have: Document
    ) -> Iterator[tuple[Sequence[Step], Document]]:
        """Yields the steps that may change the type of a field, with the declaration after them."""
        if self.budget < 0:
            return
        now, known = have.structs[struct].fields[name].declared, equations(self.want, have)
        values = tuple(values_for(wanted, self.want))
        ends = (now, wanted.declared, have, self.want)
        for steps in build.suggestions(Gap(name, *ends, known, self.within(struct), values)):
            after = self.after(steps, have)
            if after is not None:
                yield steps, after

    def has(self, document: Document, struct: str, name: str, wanted: FieldDeclaration) -> bool:
        """True if a field of a declaration has the wanted type as it is."""
        declared, want = document.structs[struct].stored[name].declared, wanted.declared
        if readable_as(declared, want, {}):
            return True
        # Finding out which sizes are equal takes long, so it is left out where they do not matter.
        alike = readable_as(_of_one_size(declared), _of_one_size(want), {})
        return alike and readable_as(declared, want, self.known_after(document, struct))

    def is_reached(self, struct: str, name: str) -> bool:
        """True if a field that both versions have is of the wanted type, or steps lead there."""
        wanted = self.want.structs[struct].stored[name]
        if self.has(self.have, struct, name, wanted):
            return True
        return next(self.ways_to(struct, name, wanted, self.have), None) is not None

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

    def take(self, about: Iterable[Place], steps: Sequence[Step]) -> bool:
        """Adds sure steps, if they apply."""
        after = self.after(steps)
        if after is None:
            return False
        self.have = after
        self.found.append(Suggestion(tuple(about), (Answer("", tuple(steps)),)))
        return True

    def ask(
        self,
        about: Iterable[Place],
        question: str,
        *answers: tuple[str, Sequence[Step]],
        otherwise: str = "",
    ) -> None:
        """Adds a question, with those answers that apply; those that lose values are labelled and come last.

        Args:
            about: The places of the differences.
            question: The question.
            answers: Words and steps; one with steps that some values refuse is followed by one that rounds these.
            otherwise: Why there is one answer alone, and what the author can do if it is wrong.
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
        about = tuple(about)
        fitting = [each for each in sound if self._is_like(sound[0][1], each[1])]
        if len(fitting) < len(sound) and not otherwise:
            otherwise = _instead(about)
        self.found.append(Suggestion(about, tuple(a for a, _ in fitting), question, otherwise))
        if sound:
            self.have = sound[0][1]

    def _is_like(self, first: Document, other: Document) -> bool:
        """True if payloads have the same fields after two answers, so that the steps behind fit to both."""
        held = graph_of(first).structs
        if held != graph_of(other).structs:
            return False
        for name in held:
            fields, others = first.structs[name].stored, other.structs[name].stored
            if fields.keys() != others.keys():
                return False
            known: Mapping[str, Expression] | None = None
            for each, declaration in fields.items():
                types = declaration.declared, others[each].declared
                if declaration is not others[each] and types[0] != types[1]:
                    known = self.known_after(first, name) if known is None else known
                    # Arrays of a choice of dtypes are united behind.
                    if _dtypes(types[0]) != _dtypes(types[1]) or not readable_as(*types, known):
                        return False
        return True


def _dtypes(declared: Type) -> set[str]:
    return {dtype for inner in walk_type(declared) for dtype in inner.dtypes}


def _of_one_size(declared: Type) -> Type:
    """The type with 1 for all of its sizes."""
    parts = declared.with_parts(tuple(map(_of_one_size, declared.parts)))
    return parts.with_sizes(lambda size: size if size is ... else extent("1"))


def _sort(steps: Iterable[Step]) -> tuple[str, ...]:
    """A key that chains share which differ in details alone."""
    words = (f"{step.name} {loses_values(step)} {getattr(step, 'axis', '')}" for step in steps)
    return tuple(sorted(words))


def edit_of(name: str, work: Work, have: Document | None = None) -> Edit:
    """A struct with the fields that only one version has.

    Args:
        name: The struct.
        work: Both versions.
        have: The declaration to start from, if not that of ``work``.
    """
    start = have or work.have
    old, new = start.structs[name].stored, work.want.structs[name].stored
    gone = {field: d for field, d in old.items() if field not in new}
    come = {field: d for field, d in new.items() if field not in old}

    def change(
        field: str, wanted: FieldDeclaration, before: Sequence[Step]
    ) -> Iterator[list[Step]]:
        after = work.after(before)
        if after is None or field not in after.structs[name].stored:
            return
        if work.has(after, name, field, wanted):
            yield []
        else:
            yield from work.ways_to(name, field, wanted, after)

    return Edit(
        name=name,
        have=start,
        want=work.want,
        gone=gone,
        come=come,
        known=work.known_after(start, name),
        apply=work.after,
        change=change,
    )


def with_fields(document: Document, name: str, fields: Mapping[str, FieldDeclaration]) -> Document:
    """The declaration with other fields for a struct."""
    made = document.structs[name].model_copy(update={"fields": dict(fields)})
    return document.model_copy(update={"structs": {**document.structs, name: made}})
