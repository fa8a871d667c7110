"""Suggestions as hints of messages: each at the first message that it is about.

Example:
    >>> explained(v1, v1, [])
    []
"""

from __future__ import annotations

from collections.abc import Iterable

from neuralqx_struct.evolution.differences import Difference
from neuralqx_struct.evolution.suggestions.search import suggest
from neuralqx_struct.evolution.suggestions.work import Place, Suggestion, Work
from neuralqx_struct.schema.migration import Step
from neuralqx_struct.schema.model import Document


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
    trial = Work(old, new)
    shown = dict.fromkeys(each.path for each in found)
    given: dict[Place, list[Suggestion]] = {}  # what a message shows in full
    first: dict[Place, Place] = {}  # the message that shows what another place is about
    for suggestion in suggest(old, new):
        about = [at for at in suggestion.about if at in shown]
        fresh = [at for at in about if at not in first]
        own = [first.get(at, at) for at in (fresh or about)[:1]]
        start = _start(suggestion, own, given, trial) or next(iter(own or given or shown))
        given.setdefault(start, []).append(suggestion)
        first.update(dict.fromkeys([*fresh, start], start))
    hints = {
        at: "; then ".join(
            each.hint(at, start) for each in given[start][: None if at == start else 1]
        )
        for at, start in first.items()
    }
    return [each._replace(hint=hints.get(each.path) or each.hint) for each in found]


def _start(
    suggestion: Suggestion, own: list[Place], given: dict[Place, list[Suggestion]], trial: Work
) -> Place | None:
    """The message whose steps a suggestion can follow: its own, or the last one after which it applies.

    Each message is read alone, so steps inside of a struct that has to be renamed before follow that step.
    """
    steps = _first_steps([suggestion])
    for place in (*own, *reversed(given)):
        if trial.after([*_first_steps(given.get(place, ())), *steps]) is not None:
            return place
    return None


def _first_steps(found: Iterable[Suggestion]) -> list[Step]:
    """The steps of some suggestions, with the first answer to each question."""
    return [step for each in found for answer in each.answers[:1] for step in answer.steps]
