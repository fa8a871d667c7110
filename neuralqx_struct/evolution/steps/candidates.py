"""Candidates: what may have become of fields that only one of two versions has. Each kind of step brings its own.

A candidate is no more than a guess with steps: the search in ``evolution/suggestions`` applies the steps, and takes the
candidates that lead to the declaration of the new version, those of the lowest cost first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from neuralqx_struct.expressions import Expression
from neuralqx_struct.schema.migration import Step
from neuralqx_struct.schema.model import Document, FieldDeclaration

Fields = Mapping[str, FieldDeclaration]

#: The lowest score of two names of one field.
LIKELY = 0.6
#: Comparing names is slow: among more pairs of fields than this no likely ones are looked for.
MOST_PAIRS = 40_000
#: More fields that come or go at once in one struct than this are compared by their names alone.
MOST_FIELDS = 12


class Candidate(NamedTuple):
    """Steps by which fields that are gone may have become others.

    Attributes:
        gone: The fields that are gone.
        come: Those that they may have become.
        steps: The steps.
        cost: How unlikely it is, from 0 for an alias to 1.
        question: What only the author can know, behind the names of the fields; empty if the steps are sure.
    """

    gone: tuple[str, ...]
    come: tuple[str, ...]
    steps: tuple[Step, ...]
    cost: float = 0.0
    question: str = ""

    @property
    def asked(self) -> str:
        """The question with the names of the fields."""
        return f"{are(self.gone)} gone and {are(self.come)} new{self.question}"


@dataclass(slots=True, kw_only=True)
class Edit:
    """The fields of one struct that only one of two versions has, as far as no step is known.

    Attributes:
        name: The struct.
        have: The declaration that payloads have, after the steps so far.
        want: The wanted one.
        gone: The fields that only ``have`` has, or has with a type that no steps turn into the wanted one.
        come: Those that only ``want`` has, likewise.
        known: Expressions that names of sizes are equal to.
        apply: Returns the declaration after some steps, or None if one of them is refused.
        change: Yields steps that give a field another declaration after some steps, the shortest first; none at all, an
            empty list, if it has it.
    """

    name: str
    have: Document
    want: Document
    gone: dict[str, FieldDeclaration]
    come: dict[str, FieldDeclaration]
    known: Mapping[str, Expression]
    apply: Callable[[Sequence[Step]], Document | None]
    change: Callable[[str, FieldDeclaration, Sequence[Step]], Iterator[list[Step]]]

    @property
    def place(self) -> dict[str, Any]:
        """The ``in`` of steps on the struct; the root needs none."""
        root = self.name == self.have.root == self.want.root
        return {"within": None if root else self.name}

    @property
    def is_small(self) -> bool:
        """True if fields are few enough to compare their types, and not their names alone."""
        return max(len(self.gone), len(self.come)) <= MOST_FIELDS


def likeness(a: str, old: FieldDeclaration, b: str, new: FieldDeclaration) -> float:
    """The probability, roughly, that two fields are one under two names: from 0 to 1."""
    score = SequenceMatcher(None, a.lower(), b.lower()).ratio()
    if old.tags and old.tags == new.tags:
        score += 0.1
    if old.doc and old.doc == new.doc:
        score += 0.4
    return min(1.0, score)


def are(names: Iterable[str]) -> str:
    """Returns names with ``is`` or ``are``."""
    names = [*names]
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'}"
