"""Refusals: the reasons why payloads of one version cannot be loaded by another one.

Three parts answer, each with findings of its own:

1. Structure: the declaration after the steps of the plan (``plans.py``) is compared with the declared one (``differences.py``).
2. Limits: each bound, pattern and constraint of the reader is compared with the one at the place where the values come from
   (``limits.py``).
3. Everything else is tried: payloads of the writer are brought to the reader (``trial.py``). They also settle doubts about sizes
   that the two versions declare otherwise.

Example:
    >>> refusals(series, series.at(1), series.at(3), "error", steps=True)
    []
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from neuralqx_struct.errors import Diagnostic, MigrationError, SchemaError, has_errors
from neuralqx_struct.evolution.differences import differences, doubts
from neuralqx_struct.evolution.limits import broken_limits
from neuralqx_struct.evolution.plans import Hop, Unknown, plan
from neuralqx_struct.evolution.proof import Stage, defaulted, result_of, settled
from neuralqx_struct.evolution.steps import apply_to_document, kind
from neuralqx_struct.evolution.trial import (
    IN_DOUBT,
    IN_LINT,
    IN_VERDICTS,
    Effort,
    Trial,
    place_in,
    try_payloads,
)
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.series import Series
from neuralqx_struct.schema.sizes.scopes import named_from_root, reachable, start_of
from neuralqx_struct.schema.text import path_text
from neuralqx_struct.types import walk_type


def refusals(
    known: Series, writer: Document, reader: Document, unknown: Unknown, *, steps: bool
) -> list[Diagnostic]:
    """The reasons why payloads of one version cannot be loaded by another one.

    Args:
        known: The versions with their steps.
        writer: The version that wrote.
        reader: The version that reads.
        unknown: The load policy for stored fields that the reader lacks.
        steps: Count declared steps; else the two versions are judged alone.
    """
    if not steps:
        alone = [each.model_copy(update={"migrations": []}) for each in (writer, reader)]
        documents = {each.version: each for each in sorted(alone, key=lambda each: each.version)}
        known, (writer, reader) = replace(known, documents=documents), alone
    reading = Reading(known, writer, reader, unknown)
    reading.compare()
    return [*reading.found, *reading.limits, *reading.tried(IN_VERDICTS)]


def stops(
    known: Series, older: Document, newer: Document, found: Sequence[Diagnostic]
) -> Iterator[Diagnostic]:
    """Yields what lint finds between two versions, once their structure was compared.

    Limits are warnings: waivers are those of ``breaking``, which judges against what was published. Payloads are tried only
    where ``found``, the findings about the structure, has no errors.
    """
    there, back = Reading(known, older, newer, "error"), Reading(known, newer, older, "error")
    there.compare()
    hint = "values outside are refused: keep the limit if old payloads may have some"
    for each in there.limits:
        yield replace(each, severity="warning", hint=hint)
    if has_errors(found):
        return
    for each in there.found:
        if each.code == "NQX414":
            yield replace(each, severity="warning")
    code = "NQX301" if newer.migration_from(older.version) is None else "NQX305"
    for each in there.tried(IN_LINT):
        stop = each.code == "NQX320"
        yield replace(each, severity="info") if stop else replace(each, code=code)
    back.compare()
    for each in back.tried(IN_LINT) if back.doubts else ():
        why = f"a downgrade to version {older.version} is refused where a payload makes use of the difference"
        message = f"{each.message}\n{why}"
        yield replace(each, code="NQX307", severity="warning", message=message, hint=None)


@dataclass(slots=True)
class Reading:
    """The comparison of what one version writes with what another one reads.

    Attributes:
        known: The versions with their steps.
        writer: The version that wrote.
        reader: The version that reads.
        unknown: The load policy for stored fields that the reader lacks.
        roots: The structs of the reader that payloads hold; by default its root.
        found: Differences in structure.
        limits: Limits that values may miss.
        doubts: Demands on sizes that may refuse payloads; a trial settles them.
        stages: The steps on the way.
    """

    known: Series
    writer: Document
    reader: Document
    unknown: Unknown
    roots: Iterable[str] | None = None
    found: list[Diagnostic] = field(default_factory=list)
    limits: list[Diagnostic] = field(default_factory=list)
    doubts: list[Diagnostic] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)

    @property
    def limit(self) -> str:
        """The code of sizes and bounds that the reader refuses."""
        return "NQX270" if self.reader.version > self.writer.version else "NQX271"

    def compare(self) -> None:
        """Compares structure and limits, also of used schemas."""
        try:
            hops = plan(
                self.known, self.writer.version, self.reader.version, unknown=self.unknown
            ).hops
            self.stages = [stage for hop in hops for stage in hop.stages]
            self.compare_structure(hops)
        except (MigrationError, SchemaError) as error:
            self.found += error.diagnostics
        self.limits += broken_limits(self.writer, self.reader, self.stages, self.roots)
        for identity, used in self.reader.used.items():
            start = self.writer.used.get(identity)
            known = self.known.others.get(identity)
            if start is not None and start.version != used.version and known is not None:
                held = held_structs(self.reader, used, self.roots)
                inner = Reading(known, start, used, self.unknown, held)
                inner.compare()
                self.found += _of_used(identity, inner.found)
                self.limits += _of_used(identity, inner.limits)
                self.doubts += _of_used(identity, inner.doubts)

    def compare_structure(self, hops: Iterable[Hop]) -> None:
        """Compares the declaration of payloads after all hops with that of the reader.

        Nothing is checked between two hops but the members of enums, so the declaration of the writer goes on.
        """
        have = self.writer
        for hop in hops:
            have = self.after(hop, have)
            self.found += self.located(hop, defaulted(have, hop.new))
            if hop.new is not self.reader:
                gone = (each for each in differences(have, hop.new) if each.path[0] == "enums")
                self.found += self.located(hop, (each.to_diagnostic("NQX307") for each in gone))
                have = settled(have, hop.new)
        self.add_differences(have, self.reader)
        self.found += unread_structs(have, self.reader, self.unknown, self.roots or ())
        self.found += map(self.in_file, _unsaved(have, self.reader))

    def after(self, hop: Hop, have: Document) -> Document:
        """The declaration of payloads after a hop."""
        if have is hop.old:
            return result_of(hop.stages, have)
        made = start_of(have, hop.new)
        try:
            for step in hop.steps:
                made = apply_to_document(made, step, hop.new)
        except SchemaError:  # the version that it starts from counts, and what payloads lack of it
            self.add_differences(have, hop.old)
            return result_of(hop.stages, hop.old)
        return made

    def add_differences(self, have: Document, want: Document) -> None:
        """Adds the differences of payloads from a version, and the doubts about their sizes."""
        hint = "a downgrade is refused where a payload makes use of the difference"
        for each in differences(have, want):
            found = self.doubts if each.of_sizes else self.found
            found.append(self.in_file(replace(each, hint=hint).to_diagnostic("NQX307")))
        self.doubts += (self.in_file(each.to_diagnostic(self.limit)) for each in doubts(have, want))

    def tried(self, effort: Effort) -> list[Diagnostic]:
        """The findings about payloads that are refused, and the doubts that payloads do not settle."""
        if any(each.code != "NQX250" for each in self.found) or _runs_functions(self.stages):
            return self.doubts
        effort = IN_DOUBT if self.doubts else effort
        trial = try_payloads(self.known, self.writer, self.reader, self.unknown, effort)
        return self.settled_by(trial)

    def settled_by(self, trial: Trial) -> list[Diagnostic]:
        """The findings that are left after a trial."""
        if trial.refused is None:
            return [] if trial.decides else self.doubts
        problem = trial.refused
        if self.limits and problem.code == "NQX416":
            return self.doubts  # found by the comparison
        example = f"got one that is refused\n{problem.path}: {problem.message}"
        if self.doubts and not trial.by_step:
            first, *others = self.doubts
            return [replace(first, message=f"{first.message}\n{example}"), *others]
        message = f"expected every payload to be read, {example}"
        hint = (
            problem.hint or "keep the sizes, or put those that are meant into arrays of a new name"
        )
        path = place_in(self.writer if trial.by_step else self.reader, problem)
        code = "NQX320" if trial.by_step else self.limit
        return [self.in_file(Diagnostic(code, "error", message, path, hint=hint)), *self.doubts]

    def located(self, hop: Hop, found: Iterable[Diagnostic]) -> Iterable[Diagnostic]:
        """Findings about a hop with positions in the file of the newer version."""
        source = self.known.sources.get(max(hop.old.version, hop.new.version))
        return found if source is None else map(source.located, found)

    def in_file(self, found: Diagnostic) -> Diagnostic:
        """A finding with its position in the file of the newer version."""
        source = self.known.sources.get(max(self.writer.version, self.reader.version))
        return found if source is None else source.located(found)


def _of_used(identity: str, found: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    """Yields findings about a used schema as those about its user."""
    for each in found:
        message = f"{each.path} of {identity}: {each.message}"
        yield replace(each, path="$.uses", file=None, line=None, message=message)


def _runs_functions(stages: Iterable[Stage]) -> bool:
    """True if a step runs a function: a verdict runs none."""
    return any(True for stage in stages for _ in kind(stage.step).functions(stage.step))


def _unsaved(have: Document, want: Document) -> Iterator[Diagnostic]:
    """Yields the new fields for which a load has no value: payloads do not hold them, and they have no default."""
    for name in reachable(want)[0]:
        struct = have.structs.get(name)
        before = {} if struct is None else struct.fields
        for key, declaration in want.structs[name].fields.items():
            kept = key in before and not before[key].stored
            given = declaration.stored or declaration.has_default or declaration.derived is not None
            if not kept and not given:
                message = "expected a stored value or a default, got neither"
                hint = f"give the field a default, or pass fill={{{key!r}: ...}} to each load"
                path = path_text(("structs", name, "fields", key))
                yield Diagnostic("NQX414", "error", message, path, hint=hint)


# ---------------------------------------------------------------------------------------------------------------------
# Structs of a schema that payloads of another schema hold, beside its root.


def held_structs(
    document: Document, used: Document, roots: Iterable[str] | None = None
) -> set[str]:
    """The structs of a used document that payloads of its user hold in fields; in a pytree, all."""
    found: set[str] = set()
    for holder in named_from_root(document, pytrees=True, roots=roots)[0]:
        for declaration in document.structs[holder].stored.values():
            for inner in walk_type(declaration.declared):
                owner, name = document.place_of(inner.refers)
                if inner.takes_all:
                    found |= used.structs.keys()
                elif owner is used and name in used.structs:
                    found.add(name)
    return found


def unread_structs(
    have: Document, want: Document, unknown: Unknown, held: Iterable[str]
) -> Iterator[Diagnostic]:
    """Yields the findings about structs that other schemas hold: aliases, defaults and promotion do not reach all of them.

    Args:
        have: The declaration that payloads conform to.
        want: The declaration of their reader.
        unknown: The load policy for stored fields that the reader lacks.
        held: The structs of the reader that payloads of its user hold.
    """
    seen = reachable(want)[0]
    for name in sorted({*held} & have.structs.keys() & want.structs.keys()):
        # The schema's own comparison is about the parameters that it gives, others may give other sizes.
        if name in seen and not want.structs[name].params:
            continue
        for problem in differences(_rooted(have, name), _rooted(want, name)):
            if not problem.extra or unknown == "error":
                hint = f"write a step `in: {problem.struct or name}` of {want.id}"
                yield replace(problem, hint=hint).to_diagnostic("NQX301")


def _rooted(document: Document, name: str) -> Document:
    return document.model_copy(update={"root": name})
