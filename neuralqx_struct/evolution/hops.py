"""Hops: the steps between two neighbouring versions of a schema.

Each hop has its declared steps, and resolves by aliases, defaults and exact promotion only where none are declared.

Example:
    >>> hop = kept_hop(series.at(1), series.at(2), "error")
    >>> hop.direction, hop.declared
    ('upgrade', True)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from neuralqx_struct.errors import MigrationError
from neuralqx_struct.evolution.differences import Difference, differences
from neuralqx_struct.evolution.proof import Stage, resolved, result_of, stages_of
from neuralqx_struct.evolution.steps import cost, kind, step_text
from neuralqx_struct.evolution.steps.operations import Cost
from neuralqx_struct.evolution.suggestions import explained
from neuralqx_struct.schema.migration import Step
from neuralqx_struct.schema.model import Document

#: Treatment of stored fields that the reader's version lacks.
Unknown = Literal["error", "warn", "drop"]


@dataclass(frozen=True, slots=True)
class Hop:
    """The steps from one version to the next, up or down.

    Attributes:
        old: The version that it starts from.
        new: The version that it leads to.
        stages: Its steps, each with the declarations around it.
        declared: True if a schema file declares the steps; else they follow from aliases, defaults and promotion.
        own: True if the reader has the steps, False if they come out of a bundle.
        unknown: The treatment of stored fields that the new version lacks, where no steps are declared, also of used
            schemas.
    """

    old: Document
    new: Document
    stages: tuple[Stage, ...]
    declared: bool
    own: bool = True
    unknown: Unknown = "error"

    @property
    def direction(self) -> Literal["upgrade", "downgrade"]:
        """Whether the version grows."""
        return "upgrade" if self.new.version > self.old.version else "downgrade"

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps alone."""
        return tuple(stage.step for stage in self.stages)

    @property
    def only_drops(self) -> bool:
        """True if it has no step but those that remove values, which need no sizes."""
        return all(kind(step).drops_values for step in self.steps)

    @property
    def cost(self) -> Cost:
        """``manifest`` if no array is read."""
        return highest(map(cost, self.steps))

    def __str__(self) -> str:
        how = "" if self.declared else ", by aliases, defaults and exact promotion"
        lines = [f"{self.direction} {self.old.version} -> {self.new.version} ({self.cost}{how})"]
        return "\n".join([*lines, *(f"  {step_text(step)}" for step in self.steps)])


def highest(costs: Iterable[Cost]) -> Cost:
    """The highest of several costs, ``manifest`` if there are none."""
    order: tuple[Cost, ...] = ("manifest", "streaming", "opaque")
    return max(costs, key=order.index, default="manifest")


_HOPS: dict[tuple[int, int, Unknown], Hop] = {}
_MOST_HOPS = 64


def kept_hop(old: Document, new: Document, unknown: Unknown) -> Hop:
    """The hop between two documents; the last ones are kept, as a program loads many bundles of one version."""
    key = (id(old), id(new), unknown)
    hop = _HOPS.get(key)
    if hop is None:
        hop = _hop(old, new, unknown)
        if len(_HOPS) >= _MOST_HOPS:
            _HOPS.clear()
        _HOPS[key] = hop  # it refers to both documents, so no other has their ids
    return hop


def _hop(old: Document, new: Document, unknown: Unknown) -> Hop:
    migration = new.migration_from(old.version)
    if migration is None:
        resolution = resolved(old, new, drop=unknown != "error")
        _require_none(resolution.problems, "NQX301", "NQX414", "NQX415")
        stages = stages_of(old, resolution.steps, new)
        return Hop(old, new, tuple(stages), declared=False, unknown=unknown)
    stages = stages_of(old, [item.step for item in migration.steps], new)
    result = result_of(stages, old)
    problems = explained(result, new, differences(result, new))
    _require_none(problems, "NQX305", "NQX305", "NQX305")
    return Hop(old, new, tuple(stages), declared=True, unknown=unknown)


def _require_none(problems: Iterable[Difference], other: str, missing: str, extra: str) -> None:
    """Raises differences under codes for missing fields, extra fields, and others."""
    found = []
    for problem in problems:
        code = missing if problem.missing else other
        found.append(problem.to_diagnostic(extra if problem.extra else code))
    if found:
        raise MigrationError(found)
