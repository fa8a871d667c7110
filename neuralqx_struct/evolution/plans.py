"""Plans: the hops between two versions of a schema, and their application to a payload.

Owns :class:`Plan`, :func:`plan` and :func:`apply`. Each hop applies its declared steps, always, and resolves by aliases,
defaults and exact promotion only where none are declared; the way down is the inverse of the way up. Which version is
wanted, and whose documents count, is decided in ``migrations.py``.

Example:
    >>> [hop.old.version for hop in plan(series, 1, 3).hops]
    [1, 2]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from neuralqx_struct.arrays import HeldArrays
from neuralqx_struct.errors import Diagnostic, MigrationError, SchemaError, Severity, StructError
from neuralqx_struct.evolution.differences import differences
from neuralqx_struct.evolution.edits import Cost
from neuralqx_struct.evolution.proof import Stage, resolved, stages_of, undone
from neuralqx_struct.evolution.python_steps import find_function
from neuralqx_struct.evolution.steps import apply_to_workspace, cost, step_text
from neuralqx_struct.evolution.tree import Workspace
from neuralqx_struct.paths import FieldName, format_path, parse_path
from neuralqx_struct.payload import Payload, iter_nodes
from neuralqx_struct.schema.fingerprint import payload_fingerprint
from neuralqx_struct.schema.migration import Python, Remove, Step
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.series import Series
from neuralqx_struct.schema.source import Source
from neuralqx_struct.schema.types import DictOf, ListOf, Named, TupleOf, Type, Union

__all__ = ["Hop", "Plan", "Unknown", "apply", "plan", "with_member"]

#: What happens to stored fields that the reader's version lacks.
Unknown = Literal["error", "warn", "drop"]


@dataclass(frozen=True, slots=True)
class Hop:
    """The way from one version to the next, up or down.

    Attributes:
        old: The version that it starts from.
        new: The version that it leads to.
        stages: Its steps, each with the declarations around it.
        declared: True if a schema file declares the steps; else they follow from aliases, defaults and promotion.
        own: True if the reader brought the steps along, False if they come out of a bundle.
        unknown: What the caller wants of stored fields that the new version lacks, where no steps are declared.
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
    def cost(self) -> Cost:
        """``manifest`` if no array is read."""
        return _dearest(cost(step) for step in self.steps)

    def __str__(self) -> str:
        how = "" if self.declared else ", by aliases, defaults and exact promotion"
        lines = [f"{self.direction} {self.old.version} -> {self.new.version} ({self.cost}{how})"]
        return "\n".join([*lines, *(f"  {step_text(step)}" for step in self.steps)])


def _dearest(costs: Iterable[Cost]) -> Cost:
    order: tuple[Cost, ...] = ("manifest", "streaming", "opaque")
    return max(costs, key=order.index, default="manifest")


@dataclass(frozen=True, slots=True)
class Plan:
    """The hops from one version to another; ``str()`` lists their steps.

    Attributes:
        id: The schema.
        from_version: Where it starts.
        to_version: Where it leads.
        hops: The hops in order; none if the versions are the same.
    """

    id: str
    from_version: int
    to_version: int
    hops: tuple[Hop, ...]

    @property
    def cost(self) -> Cost:
        """The cost of the dearest hop."""
        return _dearest(hop.cost for hop in self.hops)

    def __str__(self) -> str:
        if not self.hops:
            return f"{self.id}: version {self.from_version} as it is"
        return "\n".join([f"{self.id}: version {self.from_version} -> {self.to_version}", *map(str, self.hops)])


# ---------------------------------------------------------------------------------------------------------------------
# Planning


def plan(series: Series, from_version: int, to_version: int, *, unknown: Unknown = "error") -> Plan:
    """Find the hops from one version of a schema to another.

    Args:
        series: The known versions.
        from_version: The version of the payload.
        to_version: The version that is wanted; a smaller one is reached by the inverse steps.
        unknown: What happens to stored fields that a hop without declared steps would lose.

    Raises:
        MigrationError: NQX422 a version on the way is unknown; NQX301 or NQX305 the steps do not lead there; NQX415 a
            stored field would be lost; NQX307 or NQX423 there is no way back. All differences of a hop at once.
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
        with _said_of(series.sources.get(new.version)):
            hop = replace(_hop(series.at(low), new, unknown), own=new.version not in series.carried)
            hops.append(hop if from_version < to_version else _reversed(hop))
        low = new.version
    if to_version < from_version:
        hops.reverse()
    return Plan(series.id, from_version, to_version, tuple(hops))


@contextmanager
def _said_of(source: Source | None) -> Iterator[None]:
    """Give findings about the steps of a version their place in its file, where it was read from one."""
    try:
        yield
    except MigrationError as error:
        if source is None:
            raise
        raise MigrationError(_placed(source, found) for found in error.diagnostics) from None


def _placed(source: Source, found: Diagnostic) -> Diagnostic:
    try:
        path = [part if isinstance(part, int) else str(part) for part in parse_path(found.path or "$")]
    except StructError:
        path = ["migrations"]
    line, column = source.mark(path) or (None, None)
    return replace(found, file=source.name, line=line, column=column)


def _next(series: Series, version: int, last: int) -> Document:
    """The version to go to next: the smallest known one, unless only a later one declares a way from here."""
    ahead = [series.documents[v] for v in series.versions if version < v <= last]
    for document in ahead:
        if document.migration_from(version) is not None:
            return document
    nearest = ahead[0]
    if nearest.migrations:
        starts = ", ".join(str(m.from_version) for m in nearest.migrations)
        raise MigrationError(
            f"expected a migration of {series.id} from version {version} to {nearest.version}, got one from {starts}",
            code="NQX422",
            hint=f"add the file of version {starts}, which neither the schema folder nor the bundle has",
        )
    return nearest


def _hop(old: Document, new: Document, unknown: Unknown) -> Hop:
    migration = new.migration_from(old.version)
    if migration is None:
        resolution = resolved(old, new, drop=unknown != "error")
        problems = [
            p.to_diagnostic("NQX415" if p.extra else "NQX414" if p.missing else "NQX301") for p in resolution.problems
        ]
        if problems:
            raise MigrationError(problems)
        return Hop(old, new, tuple(stages_of(old, resolution.steps, new)), declared=False, unknown=unknown)
    try:
        stages = tuple(stages_of(old, [item.step for item in migration.steps], new))
    except SchemaError as error:
        raise MigrationError(error.diagnostics) from None
    problems = [p.to_diagnostic("NQX305") for p in differences(stages[-1].after if stages else old, new)]
    if problems:
        raise MigrationError(problems)
    return Hop(old, new, stages, declared=True)


def _reversed(hop: Hop) -> Hop:
    try:
        return Hop(hop.new, hop.old, tuple(undone(hop.stages, hop.new)), hop.declared, hop.own)
    except SchemaError as error:
        raise MigrationError(error.diagnostics) from None


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
    """Bring a payload to another version.

    Args:
        payload: Stays as it is.
        plan: The hops, as :func:`plan` gives them.
        others: The schemas that this one uses; their own chains run before the hop that moves to a newer one.
        report: Gets what was defaulted, dropped and cast.
        trust: Packages whose functions ``python`` steps may run even where a bundle brought the steps.

    Returns:
        A payload that shares all arrays that no step touches and computes the others when they are asked for.

    Raises:
        MigrationError: The payload does not hold what its version declares.
    """
    report = [] if report is None else report
    for hop in plan.hops:
        for step in _used_plans(payload, hop, others or {}):
            payload = apply(payload, step, others=others, report=report, trust=trust)
        payload = _applied(payload, hop, report, trust)
    if not plan.hops:
        return payload
    last = plan.hops[-1].new
    identity = dict(payload.document.get("schema") or {})
    if identity.get("id") == last.id:
        identity = {"id": last.id, "version": last.version, "fingerprint": payload_fingerprint(last)}
        return replace(payload, document=with_member(payload.document, "schema", identity))
    return payload


def with_member(document: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    """The manifest document with one member replaced, and without its digest: that was of the bytes that were read."""
    return {key: value if key == name else member for key, member in document.items() if key != "digest"}


def _used_plans(payload: Payload, hop: Hop, others: Mapping[str, Series]) -> list[Plan]:
    wanted = dict(use.rsplit("@", 1) for use in hop.new.uses)
    found: set[tuple[str, int]] = set()
    if wanted:
        for _, node in iter_nodes(payload.document["manifest"]):
            if isinstance(node, dict) and node["__kind__"] == "struct":
                identity, _, version = node["type"].partition(":")[0].partition("@")
                if identity in wanted and version.isdecimal() and version != wanted[identity]:
                    found.add((identity, int(version)))
    missing = sorted(identity for identity, _ in found if identity not in others)
    if missing:
        raise MigrationError(
            f"expected the schema {missing[0]}, which {hop.new.id} uses, got neither its files nor its documents",
            code="NQX404",
        )
    return [plan(others[identity], version, int(wanted[identity])) for identity, version in sorted(found)]


def _applied(payload: Payload, hop: Hop, report: list[Diagnostic], trust: Iterable[str]) -> Payload:
    functions = {
        step.function: find_function(step.function, own=hop.own, trust=trust)
        for step in hop.steps
        if isinstance(step, Python)
    }
    workspace = Workspace(hop.old, payload.document["manifest"], payload.arrays, hop.new, report, functions.__getitem__)
    for stage in hop.stages:
        told = len(report)
        apply_to_workspace(workspace, stage.step, stage.before, stage.after)
        if (
            isinstance(stage.step, Remove) and not hop.declared and hop.direction == "upgrade"
        ):  # the caller's word alone
            severity: Severity = "warning" if hop.unknown == "warn" else "info"
            report[told:] = [replace(found, code="NQX415", severity=severity) for found in report[told:]]
    named: dict[str, Mapping[str, Any]] = {}
    kept = workspace.stored_names()
    prefix = f"{hop.old.id}@{hop.old.version}:"
    for path, node in iter_nodes(workspace.tree):
        if not isinstance(node, dict):
            continue
        if node["__kind__"] == "array":
            if node["name"] in workspace.made:
                node["name"] = workspace.final_name(node["name"], path, kept)
            named[node["name"]] = node
        elif node["__kind__"] == "struct" and node["type"].startswith(prefix):
            name = node["type"].removeprefix(prefix)
            node["type"] = hop.new.ref(name)
            if name in hop.new.structs:
                node["fields"] = _finished(node["fields"], name, hop.new, path, report)
    records = payload.document["arrays"]
    arrays = {
        name: records[name] if name in kept else {"dtype": node["dtype"], "shape": node["shape"]}
        for name, node in named.items()
    }
    document = with_member(with_member(payload.document, "manifest", workspace.tree), "arrays", arrays)
    return Payload(document, HeldArrays(payload.arrays, made=workspace.results(), names=arrays))


def _finished(
    fields: Mapping[str, Any], struct: str, document: Document, path: tuple[Any, ...], report: list[Diagnostic]
) -> dict[str, Any]:
    """Fields in the order of their declaration, unknown enum members replaced by the enum's default."""
    stored = document.structs[struct].stored
    ordered = {name: fields[name] for name in stored if name in fields} | dict(fields)
    for name, declaration in stored.items():
        if name in ordered:
            ordered[name] = _known_member(
                ordered[name], declaration.declared, document, (*path, FieldName(name)), report
            )
    return ordered


def _known_member(
    node: Any, declared: Type, document: Document, path: tuple[Any, ...], report: list[Diagnostic]
) -> Any:
    if isinstance(node, dict) and node["__kind__"] == "enum":
        return {**node, "name": _known_member(node["name"], declared, document, path, report)}
    match declared:
        case Named(name) if name in document.enums and isinstance(node, str):
            enum = document.enums[name]
            if node in enum.members:
                return node
            if enum.default is None:
                raise MigrationError(
                    f"expected one of {', '.join(enum.members)}, got {node!r}", code="NQX421", path=format_path(path)
                )
            message = f"{node!r} is no member of {name}, its default {enum.default!r} was taken"
            report.append(Diagnostic("NQX425", "info", message, path=format_path(path)))
            return enum.default
        case Union(options):
            for option in options:
                if (
                    isinstance(option, Named)
                    and option.name in document.enums
                    and len([o for o in options if o == option]) == 1
                ):
                    return _known_member(node, option, document, path, report)
            return node
        case ListOf(item) | TupleOf((item,), True) if isinstance(node, dict) and node["__kind__"] in ("list", "tuple"):
            items = [_known_member(n, item, document, (*path, i), report) for i, n in enumerate(node["items"])]
            return {**node, "items": items}
        case DictOf(item) if isinstance(node, dict) and node["__kind__"] == "dict":
            return {
                **node,
                "items": [[k, _known_member(n, item, document, (*path, k), report)] for k, n in node["items"]],
            }
        case _:
            return node
