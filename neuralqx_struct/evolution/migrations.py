"""Migrations: bringing payloads and bundles to the version that their reader wants.

Every reader calls :func:`resolve`; :func:`migrate` writes bundles. Loading goes version by version (``plans.py``). Payloads
are never changed: results share every array that no step touches, and compute the others when they are asked for.

Example:
    >>> from neuralqx_struct import bundle
    >>> payload = resolve(bundle.read("tests/golden/format-1/vmc_state_1"), series)
    >>> payload.document["schema"]["version"]
    3
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, cast

from neuralqx_struct import bundle
from neuralqx_struct.bundle.forms import form_of
from neuralqx_struct.dtypes import dtype_named
from neuralqx_struct.errors import (
    Diagnostic,
    Hint,
    Keyword,
    MigrationError,
    StructError,
    closest_version,
    has_errors,
)
from neuralqx_struct.evolution.chains import Unknown
from neuralqx_struct.evolution.diff import edited_version
from neuralqx_struct.evolution.payload_tree import free_name
from neuralqx_struct.evolution.plans import Plan, apply, plan, without_unknown
from neuralqx_struct.evolution.proof import prove, with_hints
from neuralqx_struct.evolution.steps import kind
from neuralqx_struct.formats.store import store_of
from neuralqx_struct.manifest import Limits, collector_paused
from neuralqx_struct.manifest.kinds import ARRAY
from neuralqx_struct.manifest.lazy_reading import MigratedArrays
from neuralqx_struct.manifest.payload import HeldArrays, Payload
from neuralqx_struct.places.urls import Options, Place, place_of
from neuralqx_struct.schema.catalogue import schemas_given, series_for
from neuralqx_struct.schema.conformance import conform_node
from neuralqx_struct.schema.series import Series, carried_series
from neuralqx_struct.schema.stamping import stamped

__all__ = [
    "Migrated",
    "Plan",
    "Unknown",
    "apply",
    "migrate",
    "plan",
    "prove",
    "resolve",
    "target_version",
]

# ---------------------------------------------------------------------------------------------------------------------
# Resolving


def resolve(
    payload: Payload,
    series: Series | None = None,
    *,
    to: int | str = "head",
    unknown: Unknown = "error",
    report: list[Diagnostic] | None = None,
    others: Iterable[Series] = (),
    trust: Iterable[str] = (),
) -> Payload:
    """Brings a payload to the version that its reader wants.

    Args:
        payload: As read from a bundle; not changed. A plain tree is read by the newest version that it conforms to.
        series: The reader's versions, which win; None for those that travel in the bundle.
        to: A version, ``"head"`` (the newest of the reader), or a negative number of versions to go back.
        unknown: Treatment of stored fields that the wanted version lacks: ``error``, ``warn`` or ``drop``.
        report: Receives a diagnostic for every value that is defaulted, dropped or cast.
        others: Schemas that this one uses; those in the bundle serve versions that they lack.
        trust: Packages whose functions ``python`` steps may run even where the bundle brought the steps.

    Returns:
        The payload itself if it is of that version already.

    Raises:
        MigrationError: NQX404 the payload's schema is another or unknown; NQX405 its version number is known, but meant
            something else; and everything that :func:`plan` and :func:`apply` raise.

    Example:
        >>> from neuralqx_struct import bundle
        >>> resolve(bundle.read("tests/golden/format-1/vmc_state_1"), series, to=2).document["schema"]["version"]
        2
    """
    return resolve_by_plan(
        payload, series, to=to, unknown=unknown, report=report, others=others, trust=trust
    )[0]


def resolve_by_plan(
    payload: Payload,
    series: Series | None,
    *,
    to: int | str,
    unknown: Unknown = "error",
    report: list[Diagnostic] | None = None,
    others: Iterable[Series] = (),
    trust: Iterable[str] = (),
) -> tuple[Payload, Plan]:
    """As :func:`resolve`, with the plan."""
    report = [] if report is None else report
    if series is not None and "schema" not in payload.document:
        payload = replace(payload, document=stamped(payload.document, series, report))
    carried = carried_series(payload.document)
    known = _known(payload.document, series, carried)
    written = payload.document["schema"]
    target = _target(to, written["version"], series or known, known)
    if target == written["version"]:
        return payload, Plan(known.id, target, target, ())
    rest = {**known.others, **{other.id: other for other in others}}
    used = {i: rest[i].merged(s.documents.values()) if i in rest else s for i, s in carried.items()}
    way = plan(known, written["version"], target, unknown=unknown, explain=with_hints)
    everything = {**rest, **used}
    result = apply(payload, way, others=everything, report=report, trust=trust)
    result = without_unknown(result, known.at(target), unknown, report)
    travels = [
        d.to_data()
        for s in [known, *(s for identity, s in everything.items() if identity != known.id)]
        for d in s.documents.values()
    ]
    document = {**result.document, "schemas": travels}
    return replace(result, document=document), way


def target_version(document: Mapping[str, Any], series: Series | None, to: int | str) -> int:
    """The version that :func:`resolve` would bring a payload to.

    Raises:
        MigrationError: As :func:`resolve`.
    """
    known = _known(document, series, carried_series(document))
    return _target(to, document["schema"]["version"], series or known, known)


def _known(
    document: Mapping[str, Any], series: Series | None, carried: Mapping[str, Series]
) -> Series:
    written = document.get("schema")
    if not isinstance(written, Mapping):
        raise MigrationError(
            "expected a payload that names its schema, got one without",
            code="NQX404",
            path="$.schema",
            hint="it was saved from plain Python objects; pass the schema of its tree, or load it with the class that wrote it",
        )
    return _known_versions(written, series, carried)


def _known_versions(
    written: Mapping[str, Any], series: Series | None, carried: Mapping[str, Series]
) -> Series:
    """Every version that the reader or the bundle knows, the reader's first, and the writer's checked."""
    identity, version = written["id"], written["version"]
    if series is not None and series.id != identity:
        raise MigrationError(
            f"expected a payload of {series.id}, got one of {identity}",
            code="NQX404",
            path="$.schema.id",
            hint=f"load it with the schema {identity}",
        )
    own = carried.get(identity)
    if series is None and own is None:
        raise MigrationError(
            f"expected the documents of {identity} in the bundle, got none",
            code="NQX404",
            path="$.schemas",
            hint=Hint("pass the schema, such as ", Keyword("schema", "schemas/...")),
        )
    known = own if series is None or own is None else series.merged(own.documents.values())
    known = series if known is None else known
    assert known is not None
    if version not in known.documents:
        raise MigrationError(
            f"expected one of the versions {', '.join(map(str, known.versions))} of {identity}, got {version}",
            code="NQX404",
            path="$.schema.version",
            hint="a newer release wrote this: upgrade, or ask for a bundle that holds its schema documents",
        )
    if not known.wrote(version, written["fingerprint"]):
        raise MigrationError(edited_version(written, known, own))
    return known


def _target(to: int | str, written: int, reader: Series, known: Series) -> int:
    if isinstance(to, str) and to.lstrip("-").isdecimal():
        to = int(to)
    if to == "head":
        return reader.versions[-1]
    if isinstance(to, bool) or not isinstance(to, int) or to == 0:
        raise MigrationError(
            f"expected a version, 'head' or a negative number, got {to!r}", code="NQX422"
        )
    if to > 0:
        if to in known.documents:
            return to
        versions = ", ".join(map(str, known.versions))
        message = f"expected one of the versions {versions} of {known.id}, got {to}"
        hint = f"did you mean {closest_version(to, known.versions)}? Otherwise add its file, or upgrade"
        raise MigrationError(message, code="NQX422", hint=hint)
    older = [version for version in known.versions if version < written]
    if -to > len(older):
        message = f"expected at least {-to} versions before {written}, got {len(older)}"
        hint = f"known versions of {known.id}: {', '.join(map(str, known.versions))}"
        raise MigrationError(message, code="NQX422", hint=hint)
    return older[to]


# ---------------------------------------------------------------------------------------------------------------------
# Bundles


@dataclass(frozen=True, slots=True)
class Migrated:
    """The result of :func:`migrate`.

    Attributes:
        plan: The hops.
        report: Values that were defaulted, dropped and cast; a dry run reads no values of arrays, so casts are not checked.
        out: The new bundle, None after a dry run.
        linked: True if the arrays were not written again, but got a second name.
    """

    plan: Plan
    report: tuple[Diagnostic, ...]
    out: Path | None
    linked: bool

    def __str__(self) -> str:
        lines = [str(self.plan), *map(str, self.report)]
        if self.out is None and any(
            kind(step).checks_values for hop in self.plan.hops for step in hop.steps
        ):
            lines.append(
                "values of arrays were not read: whether casts hold all of them shows when the bundle is written"
            )
        return "\n".join(lines)


@bundle.read_again
@collector_paused()
def migrate(
    path: str | Place,
    out: str | Place,
    *,
    to: int | str = "head",
    schema: Any = None,
    dry_run: bool = False,
    overwrite: bool = False,
    trust: Iterable[str] = (),
    progress: Callable[[int, int], None] | None = None,
    limits: Limits | None = None,
    storage_options: Options | None = None,
) -> Migrated:
    """Writes a bundle of another version; the input is never touched.

    Args:
        path: The bundle, a path or a URL.
        out: Where the new one goes, a path or a URL.
        to: A version, ``"head"``, or a negative number of versions to go back.
        schema: A Series or Schema, or the path of a schema folder or file; None for the documents inside the bundle. Of a
            Catalogue the schema of the bundle is taken, if it is there.
        dry_run: Plan and check, but write nothing. Values of arrays are not read: a cast that does not hold one of them
            is found only when the bundle is written.
        overwrite: Replace a bundle at ``out``, which may not be the one that is migrated.
        trust: Packages whose registered functions ``python`` steps may run, where the steps come out of the bundle; they are
            imported if need be.
        progress: Called with bytes done and bytes in all.
        limits: Sizes above which a bundle is refused, the old one or the new one; readers need them too.
        storage_options: Options of fsspec for URLs, such as keys.

    Returns:
        The plan, and the values that were defaulted, dropped and cast.

    Raises:
        MigrationError: No steps lead there, or the payload refuses one; nothing was written.
        SerializationError: The input is no sound bundle, or the target exists.

    Example:
        >>> migrate("tests/golden/format-1/vmc_state_1", "nowhere", schema="schemas/vmc_state", dry_run=True).linked
        False
    """
    path, out = place_of(path, storage_options), place_of(out, storage_options)
    report: list[Diagnostic] = []
    given = schemas_given(schema)
    try:
        with bundle.opened(path, limits) as source:
            bundle.require_apart(source.path, out, itself=not overwrite)
            payload = source.payload()
            series = series_for(payload.document, given)
            result, way = resolve_by_plan(payload, series, to=to, report=report, trust=trust)
            _check_result(result, series)
            if isinstance(result.arrays, MigratedArrays):
                result.arrays.order = "file"  # a checkpoint can be larger than memory
            if dry_run:
                return Migrated(way, tuple(report), None, linked=False)
            writing = {"overwrite": overwrite, "progress": progress, "limits": limits}
            linked = _write(source, out, payload, result, **writing)
    except StructError as error:
        raise error.in_file(str(path)) from error.__cause__
    return Migrated(way, tuple(report), cast("Path", out), linked)


def _check_result(payload: Payload, series: Series | None) -> None:
    """Checks that the new version can read the result."""
    document = (series or Series("", {})).documents.get(payload.document["schema"]["version"])
    if document is None:
        written = payload.document["schema"]
        document = carried_series(payload.document)[written["id"]].at(written["version"])
    root = payload.document["manifest"]
    if isinstance(root, dict) and root.get("type") == document.ref(document.root):
        found = conform_node(document, root)
        if has_errors(found):
            raise MigrationError(d for d in found if d.severity == "error")


def _write(
    source: bundle.OpenBundle,
    out: Place,
    payload: Payload,
    result: Payload,
    **options: Any,
) -> bool:
    before, after = payload.document["arrays"], result.document["arrays"]
    kept = {name for name, record in after.items() if before.get(name) is record}
    left_behind = sum(_nbytes(record) for name, record in before.items() if name not in kept)
    # Linking leaves the bytes of arrays that are gone in the file: worth it while most of the file is still used.
    form = form_of(out)
    if (
        source.held.is_folder
        and not form.zipped
        and (form.folders or not store_of(before).folder)
        and left_behind <= sum(_nbytes(before[name]) for name in kept)
    ):
        document, changed = _renamed(result, [name for name in after if name not in kept], before)
        bundle.write_linked(source, out, document, changed=changed, **options)
        return True
    bundle.write(out, result, store=store_of(before, folder=form.folders).name, **options)
    return False


def _renamed(
    payload: Payload, new: Iterable[str], taken: Container[str]
) -> tuple[dict[str, Any], HeldArrays]:
    """The manifest, and its new arrays, under names that no array in the linked files has."""
    names, used = dict[str, str](), set(payload.document["arrays"])
    for name in new:
        names[name] = free_name(name, taken, used - {name})
        used.add(names[name])
    manifest = payload.document["manifest"]
    for _, node in ARRAY.within(manifest):
        node["name"] = names.get(node["name"], node["name"])
    arrays = {names.get(name, name): each for name, each in payload.document["arrays"].items()}
    made = {free: partial(payload.arrays.__getitem__, name) for name, free in names.items()}
    changed = HeldArrays({}, made=made, names=made)
    return {**payload.document, "arrays": arrays}, changed


def _nbytes(record: Mapping[str, Any]) -> int:
    return int(record.get("nbytes", prod(record["shape"]) * dtype_named(record["dtype"]).itemsize))
