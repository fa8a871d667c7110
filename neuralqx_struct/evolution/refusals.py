"""Refusals: the reasons why payloads of one version cannot be loaded by another one.

They follow from the plans of loading (``plans.py``) and the declarations after each step. Where sizes change, payloads are
tried too (``counterexamples.py``): proofs do not find every fact that is true.

Example:
    >>> refusals(series, series.at(1), series.at(3), "error", steps=True)
    []
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from neuralqx_struct.errors import Diagnostic, MigrationError, SchemaError
from neuralqx_struct.evolution.changes import LIMITS, Direction
from neuralqx_struct.evolution.counterexamples import counterexample, sized_facts
from neuralqx_struct.evolution.diff import diff_documents
from neuralqx_struct.evolution.differences import (
    Difference,
    differ_in_sizes,
    differences,
    unproved,
)
from neuralqx_struct.evolution.held_structs import beyond_root, held_structs
from neuralqx_struct.evolution.plans import Hop, Unknown, plan
from neuralqx_struct.evolution.proof import defaulted, resolved, result_of, settled
from neuralqx_struct.evolution.steps import apply_to_document
from neuralqx_struct.evolution.value_limits import broken_limits
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.series import Series
from neuralqx_struct.schema.sizes.scopes import start_of


def refusals(
    known: Series, writer: Document, reader: Document, unknown: Unknown, *, steps: bool
) -> list[Diagnostic]:
    """The reasons why payloads of one version cannot be loaded by another one.

    Args:
        known: The versions with their steps.
        writer: The version that wrote.
        reader: The version that reads.
        unknown: The load policy for stored fields that the reader lacks.
        steps: Count declared steps.
    """
    search = _Search(known, writer, reader, unknown, steps)
    search.run()
    reasons = [*search.found, *search.unproved]
    tried = steps and (search.sized or search.unproved)
    if not tried or any(each.code != "NQX250" for each in search.found):
        return reasons
    refused = counterexample(known, writer, reader, unknown, proved=not search.unproved)
    if refused is None or (refused and search.unproved):
        return reasons
    return [*search.found, *(_of_payload(each, search.limit) for each in refused[:1])]


def _of_payload(problem: Diagnostic, code: str) -> Diagnostic:
    """The finding about a payload that is refused."""
    at = f"{problem.path}: {problem.message}"
    message = f"expected every payload to be read, got one that is refused\n{at}"
    hint = "keep the sizes, or put those that are meant into arrays of a new name"
    return Diagnostic(code, "error", message, path="$.structs", hint=hint)


@dataclass(slots=True)
class _Search:
    """The search for the reasons why payloads of one schema are not read.

    Attributes:
        known: The versions with their steps.
        writer: The version that wrote.
        reader: The version that reads.
        unknown: The load policy for stored fields that the reader lacks.
        steps: Whether declared steps count.
        roots: The structs of the reader that payloads hold; by default its root.
        found: The reasons, for some payload.
        unproved: Facts about sizes that no proof shows.
        sized: Whether sizes may have changed.
    """

    known: Series
    writer: Document
    reader: Document
    unknown: Unknown
    steps: bool
    roots: Iterable[str] | None = None
    found: list[Diagnostic] = field(default_factory=list)
    unproved: list[Diagnostic] = field(default_factory=list)
    sized: bool = False

    @property
    def limit(self) -> str:
        """The code of sizes and bounds that the reader refuses."""
        return "NQX270" if self.reader.version > self.writer.version else "NQX271"

    def run(self) -> None:
        """Collects the reasons by steps, limits and sizes, also of used schemas."""
        old, new = sorted((self.writer, self.reader), key=lambda document: document.version)
        direction: Direction = "backward" if new is self.reader else "forward"
        try:
            if self.steps:
                self.by_steps()
            else:
                self.found += _alone(self.writer, self.reader, self.unknown, self.limit)
        except (MigrationError, SchemaError) as error:
            self.found += error.diagnostics
        between = self.known.documents.values() if self.steps else ()
        self.found += broken_limits(old, new, direction, between, self.roots)
        for identity, used in self.reader.used.items():
            start = self.writer.used.get(identity)
            known = self.known.others.get(identity)
            if start is not None and start.version != used.version and known is not None:
                held = held_structs(self.reader, used, self.roots)
                inner = _Search(known, start, used, self.unknown, self.steps, held)
                inner.run()
                self.sized |= inner.sized
                self.found += _of_used(identity, inner.found)
                self.unproved += _of_used(identity, inner.unproved)
                for each in beyond_root(known, start, used, self.unknown, held):
                    found = self.unproved if each.code == inner.limit else self.found
                    found += _of_used(identity, [each])

    def by_steps(self) -> None:
        """Collects the reasons that follow from the declarations after each hop."""
        hops = plan(self.known, self.writer.version, self.reader.version, unknown=self.unknown).hops
        have = start = self.writer
        for hop, following in zip_longest(hops, hops[1:]):
            self.sized |= hop.cost != "manifest" or sized_facts(hop.old) != sized_facts(hop.new)
            # Sizes that were not checked go on.
            result = result_of(hop.stages, start) if start is hop.old else _carried(start, hop)
            last = following is None or not following.only_renames
            if following is not None and following.ignores_sizes and last:
                last = not differ_in_sizes(result, hop.new)
            have = result_of(hop.stages, have) if have is hop.old else _carried(have, hop)
            self.found += self.located(hop, defaulted(result, hop.new))
            for problem in _checked_at(result, hop.new, last=last):
                found = self.unproved if problem.of_sizes else self.found
                found += self.located(hop, [problem.to_diagnostic("NQX307")])
            start = hop.new if last else settled(result, hop.new)
            # Nothing checks the sizes before steps that none can refuse.
            if following is None or not following.ignores_sizes:
                facts = (fact.to_diagnostic(self.limit) for fact in unproved(have, hop.new))
                self.unproved += self.located(hop, facts)
                have = hop.new

    def located(self, hop: Hop, found: Iterable[Diagnostic]) -> Iterable[Diagnostic]:
        """Findings about a hop with positions in the file of the newer version."""
        source = self.known.sources.get(max(hop.old.version, hop.new.version))
        return found if source is None else map(source.located, found)


def _of_used(identity: str, found: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    """Yields findings about a used schema as those about its user."""
    for each in found:
        message = f"{each.path} of {identity}: {each.message}"
        yield replace(each, path="$.uses", file=None, line=None, message=message)


def _carried(have: Document, hop: Hop) -> Document:
    """The declaration after a hop that starts from less than its version; only sizes matter, which its steps ignore."""
    made = start_of(have, hop.new) if hop.steps else have
    for step in hop.steps:
        with suppress(SchemaError):  # it renames members that no payload has
            made = apply_to_document(made, step, hop.new)
    return made


def _checked_at(result: Document, wanted: Document, *, last: bool) -> Iterator[Difference]:
    """Yields the differences at the end of a hop that readers check, with paths in the newer of its versions."""
    # A downgrade may still be refused by the data, where the newer version allows more values. Between two hops nothing
    # checks them but for the members of enums, unless a step needs the declaration.
    for problem in differences(result, wanted):
        if last or problem.path[:1] == ("enums",):
            hint = "a downgrade is refused where a payload makes use of the difference"
            yield replace(problem, hint=hint)


def _alone(
    writer: Document, reader: Document, unknown: Unknown, limit: str
) -> Iterator[Diagnostic]:
    """Yields the findings about two documents without any steps: Avro's resolution, with exact promotion alone."""
    old, new = sorted((writer, reader), key=lambda document: document.version)
    codes: dict[str, str] = {}
    for change in diff_documents(old, new):
        if change.direction != "none" and change.code not in LIMITS:
            codes.setdefault(change.path, change.code)
    made = resolved(writer, reader, drop=unknown != "error")
    yield from defaulted(made.document, reader)
    for problem in made.problems:
        code = "NQX210"
        if problem.missing:
            code = "NQX202" if reader is new else "NQX203"
        found = problem.to_diagnostic("NQX415")
        yield found if problem.extra else replace(found, code=codes.get(found.path, code))
    for fact in unproved(made.document, reader):
        yield fact.to_diagnostic(limit)
