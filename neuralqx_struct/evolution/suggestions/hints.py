"""Suggestions as hints of messages: each at the first message that it is about.

Example:
    >>> explained(v1, v1, [])
    []
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from neuralqx_struct.evolution.differences import Difference, differences
from neuralqx_struct.evolution.steps import kind
from neuralqx_struct.evolution.suggestions.search import suggest
from neuralqx_struct.evolution.suggestions.work import Place, Suggestion, Work
from neuralqx_struct.schema.migration import Step
from neuralqx_struct.schema.model import Document

_COMPARED = 10  # comparing the fields of two versions takes so many times the work of copying them


def explained(have: Document, want: Document, found: Iterable[Difference]) -> list[Difference]:
    """Returns differences with hints that resolve them.

    Args:
        have: The version that payloads have.
        want: The version of their reader. The steps of a migration lead from the older to the newer one.
        found: Differences between them, or the remaining ones.
    """
    old, new = sorted((have, want), key=lambda document: document.version)
    found = list(found)
    if not found:
        return []
    placing = _Placing(Work(old, new), [each.path for each in found])
    for suggestion in suggest(old, new):
        placing.add(suggestion)
    hints = placing.hints(len(differences(old, new)))
    return [replace(each, hint=hints.get(each.path) or each.hint) for each in found]


@dataclass(slots=True)
class _Placing:
    """The messages at which suggestions are shown.

    Attributes:
        trial: Both versions, with one budget for all steps that are tried.
        shown: The places of the messages.
        first: The place in whose message the suggestions of another place are shown in full.
        given: The suggestions that a message shows in full.
        renamed: Where a struct is renamed, by its new name.
        last: Where the suggestion before is shown.
    """

    trial: Work
    shown: list[Place]
    first: dict[Place, Place] = field(default_factory=dict)
    given: dict[Place, list[Suggestion]] = field(default_factory=dict)
    renamed: dict[str, Place] = field(default_factory=dict)
    last: Place | None = None

    def add(self, suggestion: Suggestion) -> None:
        """Gives a suggestion its place.

        One that no message is about, a difference that another suggestion leaves, and steps that need a struct to be
        renamed before follow the step that renames it, or else the last one after which they apply.
        """
        steps = _first_steps([suggestion])
        about = [at for at in suggestion.about if at in self.shown]
        fresh = [at for at in about if at not in self.first]
        before = [
            self.renamed[at[1]] for at in suggestion.about if at[1:2] and at[1] in self.renamed
        ]
        if before and self.trial.after(steps) is None:
            place = before[0]
        else:
            places = fresh or about or before or self._applied_after(steps)
            place = places[0] if places else self.last or self.shown[0]
        self.last = place
        self.first |= dict.fromkeys(fresh, place)
        start = self.first.setdefault(place, place)
        self.given.setdefault(start, []).append(suggestion)
        for step in steps:
            if kind(step).renames_struct:
                self.renamed[getattr(step, "to")] = start  # noqa: B009 - steps that rename a struct have it

    def _applied_after(self, steps: list[Step]) -> list[Place]:
        """The last place after whose steps some others can be applied, if there is one."""
        for at in (*([self.last] if self.last else self.shown[:1]), *reversed(self.given)):
            before = _first_steps(self.given.get(self.first.get(at, at), ()))
            if self.trial.after([*before, *steps]) is not None:
                return [at]
        return []

    def hints(self, remaining: int) -> dict[Place, str]:
        """The hints by place; ``remaining`` is the number of differences without any step."""
        found: dict[Place, str] = {}
        for at, start in self.first.items():
            chosen = self.given[start]
            if at == start and not self._is_nearer(chosen, remaining):
                chosen = [suggestion for suggestion in chosen if not suggestion.answers]
            shortened = chosen if at == start else chosen[:1]
            found[at] = "; then ".join(suggestion.hint(at, start) for suggestion in shortened)
        return found

    def _is_nearer(self, found: Iterable[Suggestion], remaining: int) -> bool:
        """False if suggestions that rename a struct leave as many differences as there were."""
        steps = _first_steps(found)
        if not any(kind(step).renames_struct for step in steps):
            return True
        after = self.trial.after(steps)
        fields = sum(len(struct.fields) for struct in self.trial.have.structs.values())
        self.trial.budget -= _COMPARED * fields
        return after is not None and len(differences(after, self.trial.want)) < remaining


def _first_steps(found: Iterable[Suggestion]) -> list[Step]:
    """The steps of some suggestions, with the first answer to each question."""
    return [step for each in found for answer in each.answers[:1] for step in answer.steps]
