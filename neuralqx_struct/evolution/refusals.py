"""Refusals: the reasons why payloads of one version cannot be loaded by another one.

Three parts answer, each with findings of its own:

1. Structure: the declaration after the steps of the plan (``plans.py``) is compared with the declared one (``differences.py``).
2. Limits: each bound, pattern and constraint of the reader is compared with the one at the place where the values come from
   (``limits.py``).
3. Everything else is tried: payloads of the writer are brought to the reader (``trial.py``). They also settle doubts about sizes
   that the two versions declare otherwise.

Example:
    >>> reading = Reading(series, series.at(1), series.at(3), "error")
    >>> reading.compare()
    >>> reading.found, reading.limits, reading.tried(IN_LINT)
    ([], [], [])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from neuralqx_struct.errors import Diagnostic, MigrationError, SchemaError, Severity, has_errors
from neuralqx_struct.evolution.differences import defaulted, differences, doubts, settled
from neuralqx_struct.evolution.limits import broken_limits
from neuralqx_struct.evolution.plans import Explain, Hop, Plan, Unknown, plan, unexplained
from neuralqx_struct.evolution.steps import apply_to_document
from neuralqx_struct.evolution.steps.operations import Stage
from neuralqx_struct.evolution.trial import (
    IN_LINT,
    SMALLEST,
    Effort,
    Trial,
    place_in,
    try_payloads,
)
from neuralqx_struct.schema.comparisons import Comparison
from neuralqx_struct.schema.graph import graph_of
from neuralqx_struct.schema.lint import fields_without_value
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.series import Series
from neuralqx_struct.schema.sizes.scopes import start_of


def stops(
    known: Series,
    older: Document,
    newer: Document,
    found: Sequence[Diagnostic],
    effort: Effort = IN_LINT,
) -> tuple[list[Diagnostic], list[Comparison]]:
    """The findings of lint between two versions, once their structure was compared, and how they were compared.

    Limits are warnings: waivers are those of ``breaking``, which judges against what was published. Payloads are tried only
    where ``found``, the findings about the structure, has no errors.
    """
    there, back = Reading(known, older, newer, "error"), Reading(known, newer, older, "error")
    there.compare()
    hint = "values outside are refused: keep the limit if old payloads may have some"
    stopping = [replace(each, severity="warning", hint=hint) for each in there.limits]
    if has_errors(found):
        there.found += found
        return stopping, [there.comparison]
    code = "NQX301" if newer.migration_from(older.version) is None else "NQX305"
    for each in there.tried(effort) if there.needs_trial() else ():
        stop = each.code == "NQX320"
        stopping.append(replace(each, severity="warning") if stop else replace(each, code=code))
    back.compare(structure_alone=True)
    in_doubt = bool(back.doubts) or not _same_results(newer, older)
    if not (in_doubt or back.needs_trial()):
        return stopping, [there.comparison]
    # Where nothing is in doubt, a step back stops at most at what is empty.
    for each in back.tried(effort if in_doubt else SMALLEST):
        if each.code == "NQX320":
            message = f"{each.message}\non a downgrade to version {older.version}"
            stopping.append(replace(each, severity="warning", message=message))
            continue
        why = f"a downgrade to version {older.version} is refused where a payload makes use of the difference"
        message = f"{each.message}\n{why}"
        stopping.append(
            replace(each, code="NQX307", severity="warning", message=message, hint=None)
        )
    return stopping, [there.comparison, *([back.comparison] if in_doubt else [])]


#: The codes of sizes and constraints in payloads, where limits of the reader refuse a payload.
_OF_LIMITS = frozenset({"NQX412", "NQX413", "NQX416"})


@dataclass(slots=True, eq=False)
class Reading:
    """The comparison of what one version writes with what another one reads.

    Attributes:
        known: The versions with their steps.
        writer: The version that wrote.
        reader: The version that reads.
        unknown: The load policy for stored fields that the reader lacks.
        roots: The structs of the reader that payloads hold; by default its root.
        explain: Adds hints to the differences that are found, as in :func:`plan`.
        found: Differences in structure.
        limits: Limits that values may miss.
        doubts: Demands on sizes that may refuse payloads; a trial settles them.
        way: The hops, if there is a way.
        trial: The trial of payloads, if there was one.
        reason: The reason why there was none.
    """

    known: Series
    writer: Document
    reader: Document
    unknown: Unknown
    roots: Iterable[str] | None = None
    explain: Explain = unexplained
    found: list[Diagnostic] = field(default_factory=list)
    limits: list[Diagnostic] = field(default_factory=list)
    doubts: list[Diagnostic] = field(default_factory=list)
    way: Plan | None = None
    trial: Trial | None = None
    reason: str | None = None

    @property
    def stages(self) -> list[Stage]:
        """The steps on the way."""
        return [stage for hop in (self.way.hops if self.way else ()) for stage in hop.stages]

    @property
    def comparison(self) -> Comparison:
        """How the two versions were compared."""
        tried = 0 if self.trial is None else self.trial.tried
        reason = self.reason if self.trial is None else self.trial.reason
        proved = self.is_proved
        return Comparison(
            self.writer.id, self.writer.version, self.reader.version, proved, tried, reason
        )

    @property
    def is_proved(self) -> bool:
        """True if the structure agrees."""
        return self.way is not None and not has_errors(self.found)

    def needs_trial(self) -> bool:
        """True if payloads may show more: steps or differences are about sizes, containers or values."""
        records = {stage.record for stage in self.stages}
        by_name = (
            each.renames_field or each.renames_struct or each.drops_values for each in records
        )
        if self.doubts or not (all(by_name) and _same_results(self.writer, self.reader)):
            return True
        self.reason = "no step is about sizes or values"
        return False

    @property
    def limit(self) -> str:
        """The code of sizes and bounds that the reader refuses."""
        return "NQX270" if self.reader.version > self.writer.version else "NQX271"

    def compare(self, *, structure_alone: bool = False) -> None:
        """Compares structure and limits, also of used schemas."""
        try:
            versions = self.writer.version, self.reader.version
            self.way = plan(self.known, *versions, unknown=self.unknown, explain=self.explain)
            self.compare_structure(self.way.hops)
        except (MigrationError, SchemaError) as error:
            self.found += error.diagnostics
        if not structure_alone:
            self.limits += broken_limits(self.writer, self.reader, self.stages, self.roots)
        for identity, used in self.reader.used.items():
            start = self.writer.used.get(identity)
            known = self.known.others.get(identity)
            held = held_structs(self.reader, used, self.roots)
            if start is None or start.version == used.version:
                self.found += _of_used(identity, fields_without_value(used, held, "error"))
            elif known is not None:
                inner = Reading(known, start, used, self.unknown, held, self.explain)
                inner.compare(structure_alone=structure_alone)
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
        self.found += map(self.in_file, fields_without_value(self.reader, self.roots, "error"))

    def after(self, hop: Hop, have: Document) -> Document:
        """The declaration of payloads after a hop."""
        if have is hop.old:
            return hop.result
        made = start_of(have, hop.new)
        try:
            for step in hop.steps:
                made = apply_to_document(made, step, hop.new)
        except SchemaError:  # the version that it starts from counts, and what payloads lack of it
            self.add_differences(have, hop.old)
            return hop.result
        return made

    def add_differences(self, have: Document, want: Document) -> None:
        """Adds the differences of payloads from a version, and the doubts about their sizes."""
        hint = "a downgrade is refused where a payload makes use of the difference"
        for each in differences(have, want):
            found = self.doubts if each.of_sizes else self.found
            found.append(self.in_file(each._replace(hint=hint).to_diagnostic("NQX307")))
        self.doubts += (self.in_file(each.to_diagnostic(self.limit)) for each in doubts(have, want))

    def tried(self, effort: Effort) -> list[Diagnostic]:
        """The findings about payloads that are refused, and the doubts that payloads do not settle."""
        if self.way is None or not self.is_proved:
            self.reason = "payloads are tried once the structure agrees"
        elif name := next(_functions(self.stages), ""):
            self.reason = f"a step runs the function {name}, and a verdict runs none"
            return self.tried_behind(effort)
        elif not self.stages and _declares_the_same(self.writer, self.reader):
            self.reason = "both versions declare the same"
        else:
            effort = effort.in_doubt if self.doubts else effort
            self.trial = try_payloads(self.known, self.way, self.unknown, effort)
            return self.settled_by(self.trial)
        return self.doubts

    def tried_behind(self, effort: Effort) -> list[Diagnostic]:
        """As :meth:`tried`, of the hops behind the last one that runs a function."""
        hops = self.way.hops if self.way is not None else ()
        behind = [*takewhile(lambda hop: not any(_functions(hop.stages)), reversed(hops))]
        if not behind:
            return self.doubts
        way = plan(self.known, behind[-1].old.version, self.reader.version, unknown=self.unknown)
        trial = try_payloads(self.known, way, self.unknown, effort)
        return self.doubts if trial.refused is None else self.settled_by(trial)

    def settled_by(self, trial: Trial) -> list[Diagnostic]:
        """The findings that are left after a trial."""
        problem = trial.refused
        if problem is None:
            left = [] if trial.decides else self.doubts
            return [*left, *([self.stop_at(trial.stop, "warning")] if trial.stop else [])]
        if self.limits and problem.code == "NQX416":
            return self.doubts  # found by the comparison
        if trial.by_step:
            return [self.stop_at(problem, "error"), *self.doubts]
        if problem.code not in _OF_LIMITS:
            hint = "write steps that make them as the new version declares them, such as a `python` step"
            return [self.example(problem.code, "error", self.reader, problem, hint), *self.doubts]
        example = f"got one that is refused\n{problem.path}: {problem.message}"
        if self.doubts:
            first, *others = self.doubts
            return [replace(first, message=f"{first.message}\n{example}"), *others]
        hint = "keep the sizes, or put those that are meant into arrays of a new name"
        return [self.example(self.limit, "error", self.reader, problem, hint)]

    def stop_at(self, problem: Diagnostic, severity: Severity) -> Diagnostic:
        """The finding about a payload that a step refuses."""
        hint = "fine if there are none; such a load raises an error and changes nothing"
        return self.example("NQX320", severity, self.writer, problem, hint)

    def example(
        self, code: str, severity: Severity, at: Document, problem: Diagnostic, hint: str
    ) -> Diagnostic:
        """A finding with a problem of one payload."""
        message = "expected every payload to be read, got one that is refused"
        text = f"{message}\n{problem.path}: {problem.message}"
        path = place_in(at, problem)
        return self.in_file(Diagnostic(code, severity, text, path, hint=problem.hint or hint))

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


def _functions(stages: Iterable[Stage]) -> Iterator[str]:
    """Yields the functions that steps run."""
    for stage in stages:
        yield from stage.record.functions(stage.step)


def _declares_the_same(writer: Document, reader: Document) -> bool:
    """True for versions that differ in nothing that a load asks for."""
    members = "root", "structs", "enums", "dims", "dtypes"
    same = all(getattr(writer, member) == getattr(reader, member) for member in members)
    return same and writer.used_versions == reader.used_versions


def _same_results(writer: Document, reader: Document) -> bool:
    """True if no derived field of the reader is new, or another one."""
    before = {
        (name, key): (each.derivation, each.type)
        for name, struct in writer.structs.items()
        for key, each in struct.fields.items()
    }
    return all(
        each.derivation is None or before.get((name, key)) == (each.derivation, each.type)
        for name, struct in reader.structs.items()
        for key, each in struct.fields.items()
    )


# ---------------------------------------------------------------------------------------------------------------------
# Structs of a schema that payloads of another schema hold, beside its root.


def held_structs(
    document: Document, used: Document, roots: Iterable[str] | None = None
) -> set[str]:
    """The structs of a used document that payloads of its user hold in fields; in a pytree, all."""
    holders = [document.structs[name] for name in graph_of(document).reached(roots)[0]]
    fields = [field for struct in holders for field in struct.stored.values()]
    if any(field.is_open for field in fields):
        return {*used.structs}
    places = (document.place_of(name) for field in fields for name in field.refers)
    return {name for owner, name in places if owner is used and name in used.structs}


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
    seen = graph_of(want).structs
    for name in sorted({*held} & have.structs.keys() & want.structs.keys()):
        # The schema's own comparison is about the parameters that it gives, others may give other sizes.
        if name in seen and not want.structs[name].params:
            continue
        for problem in differences(_rooted(have, name), _rooted(want, name)):
            if not problem.extra or unknown == "error":
                hint = f"write a step `in: {problem.struct or name}` of {want.id}"
                yield problem._replace(hint=hint).to_diagnostic("NQX301")


def _rooted(document: Document, name: str) -> Document:
    return document.model_copy(update={"root": name})
