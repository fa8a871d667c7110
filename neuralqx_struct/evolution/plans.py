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
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

from neuralqx_struct.dtypes import promotes
from neuralqx_struct.errors import Diagnostic, MigrationError, SchemaError, Severity
from neuralqx_struct.evolution import steps as build
from neuralqx_struct.evolution.differences import Difference, differences
from neuralqx_struct.evolution.payload_tree import Workspace, map_texts, require_few_visits
from neuralqx_struct.evolution.steps import (
    apply_to_workspace,
    require_bounded,
    staged,
    stages_of,
    step_text,
    undone,
)
from neuralqx_struct.evolution.steps.operations import Cost, Stage, arrays_of
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
from neuralqx_struct.schema.sizes.scopes import start_of
from neuralqx_struct.schema.text import Source
from neuralqx_struct.types import Type, walk_type

# ---------------------------------------------------------------------------------------------------------------------
# Hops without declared steps.


@dataclass(slots=True, eq=False)
class Resolution:
    """Steps that bring payloads of one version to another where none are declared.

    Attributes:
        document: The declaration after the steps.
        target: The wanted version.
        stages: Renames from aliases (of members of enums too), additions of defaults, casts that hold every value, in the order to apply them.
        problems: The differences that are left.
    """

    document: Document
    target: Document
    stages: list[Stage] = field(default_factory=list)
    problems: list[Difference] = field(default_factory=list)

    def take(self, step: Step) -> bool:
        """Adds a step if it applies; else the difference is left, and reported."""
        try:
            self.stages.append(staged(self.document, step, self.target))
        except SchemaError:
            return False
        self.document = self.stages[-1].after
        return True


def resolution(old: Document, new: Document, *, drop: bool = False) -> Resolution:
    """Resolves a hop by aliases, defaults and exact promotion; by nothing else.

    Args:
        old: The declaration that payloads conform to.
        new: The wanted one.
        drop: Remove stored fields that the new version lacks, instead of reporting them.

    Raises:
        SchemaError: NQX321: there are too many differences for the size of the declarations.

    Example:
        >>> resolution(v1, v1).problems
        []
    """
    made = Resolution(start_of(old, new), new)
    for name, struct in new.structs.items():
        for alias in struct.aliases:
            known = made.document.structs
            if alias in known and name not in known and alias not in new.structs:
                made.take(build.rename_struct(struct=alias, to=name))
    for name in new.enums:
        _rename_members(name, made)
    found = differences(made.document, new)
    require_bounded(len(found), old, new)
    for difference in found:
        if difference.missing:
            _supply(difference, made)
    for difference in differences(made.document, new):
        if difference.field and not difference.missing and not difference.extra:
            _promote(difference, made)
    left = differences(made.document, new)
    for extra in [each for each in left if each.extra and drop]:
        declaration = made.document.structs[extra.struct].fields[extra.field]
        undo = {"undo_default": declaration.default} if declaration.has_default else {"lossy": True}
        made.take(build.remove(field=extra.field, within=extra.struct, **undo))
    made.problems = differences(made.document, new)
    if made.problems:  # a migration has to resolve every difference, these too
        listed = {each.path for each in made.problems}
        others = [each for each in differences(old, new) if not (drop and each.extra)]
        made.problems += [each for each in others if each.path not in listed]
    return made


def _rename_members(name: str, made: Resolution) -> None:
    """Gives the members of an enum their new names, where the wanted version knows the former ones."""
    old, new = made.document.enums.get(name), made.target.enums[name]
    names, kept = new.former, {*new.members}
    former = {} if old is None else {each: names.get(each) for each in old.members}
    values = {each: to for each, to in former.items() if to and each not in kept}
    if values:
        joined = len({*values.values()} - former.keys()) < len(values)
        made.take(build.map_enum(enum=name, values=values, lossy=joined))


def _supply(missing: Difference, made: Resolution) -> None:
    """Finds a missing field under a former name, or adds it with its default."""
    name, within = missing.field, missing.struct
    have, want = made.document.structs[within].stored, made.target.structs[within].stored
    for alias in want[name].aliases:
        step = build.rename(field=alias, to=name, within=within)
        if alias in have and alias not in want and made.take(step):
            return
    if want[name].has_default:
        made.take(build.add(field=name, default=want[name].default, within=within))


def _promote(difference: Difference, made: Resolution) -> None:
    """Casts the arrays of a field to the wanted dtype, if it holds every value of theirs."""
    name, within = difference.field, difference.struct
    old, wanted = (
        {
            dtype
            for array in arrays_of(document.structs[within].fields[name].declared)
            for dtype in array.dtypes
        }
        for document in (made.document, made.target)
    )
    if len(wanted) == 1 and all(promotes(dtype, *wanted) for dtype in old):
        made.take(build.cast(field=name, dtype=wanted.pop(), within=within))


# ---------------------------------------------------------------------------------------------------------------------
# Hops.


#: Treatment of stored fields that the reader's version lacks.
Unknown = Literal["error", "warn", "drop"]


@dataclass(frozen=True, eq=False)
class Hop:
    """The steps from one version to the next, up or down: those that it declares, or those that need no declaration.

    Attributes:
        old: The version that it starts from.
        new: The version that it leads to.
        stages: Its steps, each with the declarations around it.
        declared: True if a schema file declares the steps; else they follow from aliases, defaults and promotion.
        left: The differences that the steps leave.
        own: True if the reader has the steps, False if they come out of a bundle.
        unknown: The treatment of stored fields that the new version lacks, where no steps are declared, also of used
            schemas.
    """

    old: Document
    new: Document
    stages: tuple[Stage, ...]
    declared: bool
    left: tuple[Difference, ...] = ()
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
    def result(self) -> Document:
        """The declaration after the steps."""
        return self.stages[-1].after if self.stages else self.old

    @property
    def cost(self) -> Cost:
        """``manifest`` if no array is read."""
        return highest(map(build.cost, self.steps))

    @cached_property
    def back(self) -> tuple[Stage, ...]:
        """The steps that lead back.

        Raises:
            SchemaError: As :func:`undone`.
        """
        return tuple(undone(self.stages, self.new))

    def __str__(self) -> str:
        how = "" if self.declared else ", by aliases, defaults and exact promotion"
        lines = [f"{self.direction} {self.old.version} -> {self.new.version} ({self.cost}{how})"]
        return "\n".join([*lines, *(f"  {step_text(step)}" for step in self.steps)])


def highest(costs: Iterable[Cost]) -> Cost:
    """The highest of several costs, ``manifest`` if there are none."""
    order: tuple[Cost, ...] = ("manifest", "streaming", "opaque")
    return max(costs, key=order.index, default="manifest")


_HOPS: dict[tuple[int, int, bool], Hop] = {}
_MOST_HOPS = 64


def hop_between(old: Document, new: Document, *, drop: bool = False) -> Hop:
    """The hop from one version to the next one, which may leave differences.

    The last ones are kept: lint and verdicts go both ways, and a program loads many bundles of one version.

    Args:
        old: The declaration that payloads conform to.
        new: The wanted one.
        drop: Where no steps are declared: as for :func:`resolution`.

    Raises:
        SchemaError: As :func:`stages_of` or :func:`resolution`.
    """
    migration = new.migration_from(old.version)
    key = (id(old), id(new), drop and migration is None)
    hop = _HOPS.get(key)
    if hop is None:
        if migration is None:
            made = resolution(old, new, drop=drop)
            hop = Hop(old, new, tuple(made.stages), declared=False, left=tuple(made.problems))
        else:
            stages = tuple(stages_of(old, [item.step for item in migration.steps], new))
            left = differences(stages[-1].after if stages else old, new)
            hop = Hop(old, new, stages, declared=True, left=tuple(left))
        if len(_HOPS) >= _MOST_HOPS:
            _HOPS.clear()
        _HOPS[key] = hop  # it refers to both documents, so no other has their ids
    return hop


# ---------------------------------------------------------------------------------------------------------------------
# Plans.

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
    require_few_visits(payload.document["manifest"], sum(1 + len(hop.stages) for hop in plan.hops))
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
