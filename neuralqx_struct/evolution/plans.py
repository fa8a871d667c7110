"""Plans: the hops between two versions of a schema, and their application to a payload.

A hop has the steps between two neighbouring versions: its declared ones, always, or where none are declared those of aliases,
defaults and exact promotion. A downgrade is the inverse of declared steps; without them the old declaration reads the payload by
the same rules. The wanted version, and the documents to use, are chosen in ``migrations.py``.

Example:
    >>> [hop.old.version for hop in plan(series, 1, 3).hops]
    [1, 2]
    >>> hop = plan(series, 1, 3).hops[0]
    >>> hop.direction, hop.declared
    ('upgrade', True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from neuralqx_struct.errors import Diagnostic, MigrationError, SchemaError, Severity
from neuralqx_struct.evolution.chains import Hop, Unknown, highest, hop_between
from neuralqx_struct.evolution.differences import Difference
from neuralqx_struct.evolution.payload_tree import Workspace, map_texts, require_bounded
from neuralqx_struct.evolution.steps import apply_to_workspace, step_text
from neuralqx_struct.evolution.steps.operations import Cost, Stage
from neuralqx_struct.evolution.steps.python import find_function
from neuralqx_struct.manifest.kinds import ARRAY, STRUCT
from neuralqx_struct.manifest.lazy_reading import MigratedArrays
from neuralqx_struct.manifest.payload import HeldArrays, Payload
from neuralqx_struct.matching import unknown_field
from neuralqx_struct.paths import FieldName, Path, format_path
from neuralqx_struct.printing import escaped, notebook_table
from neuralqx_struct.references import SchemaRef
from neuralqx_struct.schema.conformance import see_node
from neuralqx_struct.schema.lock import payload_fingerprint
from neuralqx_struct.schema.migration import Step
from neuralqx_struct.schema.model import Document, once
from neuralqx_struct.schema.series import Series
from neuralqx_struct.schema.text import Source
from neuralqx_struct.types import Type, walk_type

#: Returns differences between two declarations with hints about steps that resolve them.
Explain = Callable[[Document, Document, list[Difference]], list[Difference]]


def unexplained(_old: Document, _new: Document, left: list[Difference]) -> list[Difference]:
    """The differences themselves."""
    return left


def _require_sound(hop: Hop, explain: Explain) -> None:
    """Checks that the steps lead to the new version.

    Raises:
        MigrationError: They leave differences.
    """
    start = hop.result if hop.declared else hop.old
    problems = explain(start, hop.new, [*hop.left]) if hop.left else ()
    other, missing, extra = ("NQX305",) * 3 if hop.declared else ("NQX301", "NQX414", "NQX415")
    found = []
    for problem in problems:
        code = missing if problem.missing else other
        found.append(problem.to_diagnostic(extra if problem.extra else code))
    if found:
        raise MigrationError(found)


class Plan(NamedTuple):
    """The hops from one version to another; ``str()`` lists their steps.

    Attributes:
        id: The schema.
        from_version: Where it starts.
        to_version: Where it leads.
        hops: The hops in order; none if the versions are the same.
        explain: As it was given to :func:`plan`, for the plans of used schemas.
    """

    id: str
    from_version: int
    to_version: int
    hops: tuple[Hop, ...]
    explain: Explain = unexplained

    @property
    def cost(self) -> Cost:
        """The highest cost of a hop."""
        return highest(hop.cost for hop in self.hops)

    def __str__(self) -> str:
        if not self.hops:
            return f"{self.id}: version {self.from_version} as it is"
        return "\n".join(
            [f"{self.id}: version {self.from_version} -> {self.to_version}", *map(str, self.hops)]
        )

    def _repr_html_(self) -> str:
        rows = (
            (
                f"{hop.old.version} → {hop.new.version}",
                escaped(hop.cost),
                escaped(step_text(step).removeprefix("- ")),
            )
            for hop in self.hops
            for step in hop.steps or ()
        )
        return notebook_table(("hop", "cost", "step"), rows, str(self).partition("\n")[0])


# ---------------------------------------------------------------------------------------------------------------------
# Planning


def plan(
    series: Series,
    from_version: int,
    to_version: int,
    *,
    unknown: Unknown = "error",
    explain: Explain = unexplained,
) -> Plan:
    """The hops from one version of a schema to another.

    Args:
        series: The known versions.
        from_version: The version of the payload.
        to_version: The version that is wanted; a smaller one is reached by the inverse steps.
        unknown: The treatment of stored fields that a hop without declared steps would lose.
        explain: Adds hints to the differences in errors, such as ``suggestions.explained``.

    Raises:
        MigrationError: NQX422 a version on the way is unknown; NQX301 or NQX305 the steps do not lead there; NQX415 a
            stored field would be lost; NQX307 or NQX423 a downgrade is impossible. All differences of a hop at once.
        SchemaError: NQX404: one of the two versions is unknown.

    Example:
        >>> print(plan(series, 2, 3).cost)
        streaming
    """
    low, high = sorted((from_version, to_version))
    series.at(low), series.at(high)
    hops: list[Hop] = []
    while low < high:
        new = _next(series, low, high)
        with _located(series.sources.get(new.version)):
            here = series.at(low)
            downgrade = to_version < from_version
            undoes = downgrade and new.migration_from(low) is not None
            # Without steps to undo, the old declaration reads the payload itself.
            ends = (new, here) if downgrade and not undoes else (here, new)
            hop = hop_between(*ends, drop=unknown != "error")
            _require_sound(hop, explain)
            if undoes:
                hop = replace(hop, old=new, new=here, stages=hop.back)
            stages = tuple(_with_used(stage, hop.new) for stage in hop.stages)
        own = new.version not in series.carried
        hops.append(replace(hop, stages=stages, own=own, unknown=unknown))
        low = new.version
    if to_version < from_version:
        hops.reverse()
    return Plan(series.id, from_version, to_version, tuple(hops), explain)


def _with_used(stage: Stage, new: Document) -> Stage:
    """A step with declarations that use what the end of its hop uses: payloads hold those versions before the first step."""
    found = []
    for document in (stage.before, stage.after):
        used = {**document.used, **new.used}
        same = used.keys() == document.used.keys() and all(
            used[identity] is each for identity, each in document.used.items()
        )
        found.append(document if same else document.linked(used, document.unusable))
    return Stage(stage.step, stage.record, *found)


@contextmanager
def _located(source: Source | None) -> Iterator[None]:
    """Raises errors about the steps of a version as MigrationError, with positions in its file."""
    try:
        yield
    except (MigrationError, SchemaError) as error:
        found = error.diagnostics
        raise MigrationError(map(source.located, found) if source else found) from None


def _next(series: Series, version: int, last: int) -> Document:
    """The next version: the smallest known one, unless only a later one declares a migration from here."""
    ahead = [series.documents[v] for v in series.versions if version < v <= last]
    for document in ahead:
        if document.migration_from(version) is not None:
            return document
    nearest = ahead[0]
    if nearest.migrations:
        starts = ", ".join(str(m.from_version) for m in nearest.migrations)
        wanted = f"a migration of {series.id} from version {version} to {nearest.version}"
        hint = (
            f"add the file of version {starts}, which neither the schema folder nor the bundle has"
        )
        raise MigrationError(f"expected {wanted}, got one from {starts}", code="NQX422", hint=hint)
    return nearest


# ---------------------------------------------------------------------------------------------------------------------
# Applying


def apply(
    payload: Payload,
    plan: Plan,
    *,
    others: Mapping[str, Series] | None = None,
    report: list[Diagnostic] | None = None,
    trust: Iterable[str] = (),
) -> Payload:
    """A payload of another version.

    Args:
        payload: Is not changed.
        plan: The hops, as :func:`plan` returns them.
        others: The schemas that this one uses; their own hops are applied before the hop that moves to a newer one.
        report: Receives a diagnostic for every value that is defaulted, dropped or cast.
        trust: Packages whose functions ``python`` steps may run even where a bundle brought the steps.

    Returns:
        A payload that shares all arrays that no step touches and computes the others when they are read.

    Raises:
        MigrationError: The payload does not hold the fields that its version declares; NQX321 for a plan with more
            steps than the size of the payload allows.
    """
    report = [] if report is None else report
    require_bounded(payload.document["manifest"], sum(1 + len(hop.stages) for hop in plan.hops))
    for hop in plan.hops:
        for used in _used_plans(payload, hop, others or {}, plan.explain):
            payload = apply(payload, used, others=others, report=report, trust=trust)
        enum_steps = [*_enum_steps(hop, others or {}, plan.explain)]
        payload = _applied(payload, hop, enum_steps, report, trust)
    identity = payload.document.get("schema") or {}
    if not plan.hops or identity.get("id") != plan.id:
        return payload
    last = plan.hops[-1].new
    identity = {**identity, "version": last.version, "fingerprint": payload_fingerprint(last)}
    return replace(payload, document=with_members(payload.document, schema=identity))


def with_members(document: Mapping[str, Any], **members: Any) -> dict[str, Any]:
    """The manifest with some members replaced, and without its digest, which is of the bytes that were read."""
    replaced = {**document, **members}
    replaced.pop("digest", None)
    return replaced


def _used_plans(
    payload: Payload, hop: Hop, others: Mapping[str, Series], explain: Explain
) -> list[Plan]:
    """The plans for instances of used schemas whose versions the hop changes."""
    wanted = hop.new.used_versions
    found: set[tuple[str, int]] = set()
    for _, node in STRUCT.within(payload.document["manifest"]) if wanted else ():
        ref = SchemaRef.parse(node["type"])
        if ref is not None and wanted.get(ref.id, ref.version) != ref.version:
            found.add((ref.id, ref.version))
    plans = []
    for identity, version in sorted(found):
        if identity not in others:
            message = f"expected the schema {identity}, which {hop.new.id} uses, got neither its files nor its documents"
            raise MigrationError(message, code="NQX404")
        ends = version, wanted[identity]
        plans.append(plan(others[identity], *ends, unknown=hop.unknown, explain=explain))
    return plans


def _enum_steps(
    hop: Hop, others: Mapping[str, Series], explain: Explain
) -> Iterator[tuple[Step, Document]]:
    """Yields the steps of used schemas on enums that fields of this schema name, each with the document it starts from."""
    ends = hop.new.used_versions
    for identity, start in hop.old.used.items():
        end = ends.get(identity, start.version)
        if end == start.version or identity not in others:
            continue
        versions = start.version, end
        way = plan(others[identity], *versions, unknown=hop.unknown, explain=explain)
        for each in way.hops:
            for stage in each.stages:
                step = stage.record.in_enum(stage.step, identity)
                if step is not None:
                    used = {**hop.old.used, identity: stage.before}
                    yield step, hop.old.linked(used, hop.old.unusable)


def _applied(
    payload: Payload,
    hop: Hop,
    enum_steps: Iterable[tuple[Step, Document]],
    report: list[Diagnostic],
    trust: Iterable[str],
) -> Payload:
    functions = {
        name: find_function(name, own=hop.own, trust=trust)
        for stage in hop.stages
        for name in stage.record.functions(stage.step)
    }
    manifest, find = payload.document["manifest"], functions.__getitem__
    given = payload.arrays
    held = given if isinstance(given, MigratedArrays) else MigratedArrays(given)
    workspace = Workspace(hop.old, manifest, held, hop.new, report, find)
    for step, before in enum_steps:
        apply_to_workspace(workspace, step, before, before)
    for stage in hop.stages:
        start = len(report)
        apply_to_workspace(workspace, stage.step, stage.before, stage.after)
        if not hop.declared and stage.record.drops_values:  # no file declares it, only `unknown=`
            severity: Severity = "warning" if hop.unknown == "warn" else "info"
            changed = [replace(d, code="NQX415", severity=severity) for d in report[start:]]
            report[start:] = changed
    documents = hop.result, hop.new
    prefix = f"{hop.old.id}@{hop.old.version}:"
    for path, node in workspace.structs():
        if node["type"].startswith(prefix):
            name = node["type"].removeprefix(prefix)
            node["type"] = hop.new.ref(name)
            if name in hop.new.structs:
                node["fields"] = _finished_fields(node["fields"], name, documents, path, report)
    found = ARRAY.within(workspace.tree)
    kept = {node["name"] for _, node in found} - workspace.made.keys()
    arrays: dict[str, Any] = {}
    for path, node in found:
        if node["name"] in workspace.made:
            node["name"] = workspace.final_name(node["name"], path, kept)
        arrays[node["name"]] = {"dtype": node["dtype"], "shape": node["shape"]}
    stored = payload.document["arrays"]
    arrays |= {name: stored[name] for name in arrays if name in kept}
    document = with_members(payload.document, manifest=workspace.tree, arrays=arrays)
    return Payload(document, workspace.results(arrays))


def _finished_fields(
    fields: Mapping[str, Any],
    struct: str,
    documents: tuple[Document, Document],
    path: Path,
    report: list[Diagnostic],
) -> dict[str, Any]:
    """Returns fields in the order of their declaration, with the default of an enum for unknown members.

    Args:
        fields: The fields of an instance.
        struct: The name of its struct.
        documents: The declaration that the values have, and the one that they get.
        path: The path of the instance.
        report: Receives a diagnostic for each member that became a default.

    Raises:
        MigrationError: NQX421: a member is unknown, and its enum has no default.
    """
    stored = documents[1].structs[struct].stored
    ordered = {name: fields[name] for name in stored if name in fields} | dict(fields)

    def known(text: str, declared: Type, at: Path) -> str:
        return _known_member(text, declared, documents, at, report)

    for name in _fields_with_enums(documents[1])[struct]:
        if name in ordered:
            at = (*path, FieldName(name))
            ordered[name] = map_texts(ordered[name], stored[name].declared, known, at)
    return ordered


@once
def _fields_with_enums(document: Document) -> dict[str, list[str]]:
    """The stored fields of each struct whose values may be members of an enum."""
    return {
        name: [
            key
            for key, each in struct.stored.items()
            if any(document.members_of(part.refers) for part in walk_type(each.declared))
        ]
        for name, struct in document.structs.items()
    }


def _known_member(
    text: str,
    declared: Type,
    documents: tuple[Document, Document],
    at: Path,
    report: list[Diagnostic],
) -> str:
    """The text, or the default of the first enum that has lost it as a member."""
    before, document = documents
    names = [branch.refers for branch in declared.branches if document.members_of(branch.refers)]
    if not names or declared.accepts(document, see_node(text)):
        return text
    names = [name for name in names if text in (before.members_of(name) or ())] or names
    places = [document.place_of(name) for name in names]
    enums = [owner.enums[name] for owner, name in places]
    path, enum = format_path(at), enums[0]
    if enum.default is None or any(each.default is None for each in enums):
        members = [member for each in enums for member in each.members]
        message = f"expected one of {', '.join(members)}, got {text!r}"
        raise MigrationError(message, code="NQX421", path=path)
    message = f"{text!r} is no member of {names[0]}, its default {enum.default!r} was taken"
    report.append(Diagnostic("NQX425", "info", message, path=path))
    return enum.default


def without_unknown(
    payload: Payload, document: Document, unknown: Unknown, report: list[Diagnostic]
) -> Payload:
    """Refuses or drops stored fields that the wanted version does not declare, as the caller asks."""
    manifest, prefix = payload.document["manifest"], f"{document.id}@{document.version}:"
    strays = []
    for path, node in STRUCT.within(manifest):
        struct = document.structs.get(node["type"].removeprefix(prefix))
        declared = node["fields"] if struct is None else struct.stored
        for name in [name for name in node["fields"] if name not in declared]:
            hint = "pass unknown='drop' to leave it out, or add a `remove` step to the schema"
            where = format_path((*path, FieldName(name)))
            strays.append(unknown_field(where, name, f"version {document.version}", hint))
            del node["fields"][name]
    if not strays:
        return payload
    if unknown == "error":
        raise MigrationError(strays)
    severity: Severity = "warning" if unknown == "warn" else "info"
    for found in strays:
        message = f"{found.message}; it was dropped"
        report.append(replace(found, severity=severity, message=message, hint=None))
    named = {node["name"] for _, node in ARRAY.within(manifest)}
    records = {name: record for name, record in payload.document["arrays"].items() if name in named}
    made = with_members(payload.document, arrays=records)
    return Payload(made, HeldArrays(payload.arrays, names=records))
