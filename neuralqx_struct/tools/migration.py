"""Migration of checkpoints: bundles, and runs of them, written in another version.

``evolution/migrations.py`` brings their payloads there. Each output is written whole or not at all, so that a call which was
interrupted is repeated to go on.

Example:
    >>> done = migrate_all("tests/golden/format-1", "nowhere", schema="schemas/vmc_state", dry_run=True)
    >>> {item.path.name: item.state for item in done.items}["vmc_state_1"]
    'planned'
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, cast

from neuralqx_struct import bundle
from neuralqx_struct.bundle.forms import form_of
from neuralqx_struct.bundle.runs import Item, RunResult, bundles_of, each_checkpoint, is_there
from neuralqx_struct.dtypes import dtype_named
from neuralqx_struct.errors import Diagnostic, MigrationError, StructError, has_errors
from neuralqx_struct.evolution.migrations import resolve_by_plan, target_version
from neuralqx_struct.evolution.payload_tree import free_name
from neuralqx_struct.evolution.plans import Plan
from neuralqx_struct.evolution.steps import kind
from neuralqx_struct.formats.store import store_of
from neuralqx_struct.manifest import Limits, collector_paused
from neuralqx_struct.manifest.kinds import ARRAY
from neuralqx_struct.manifest.lazy_reading import MigratedArrays
from neuralqx_struct.manifest.payload import HeldArrays, Payload
from neuralqx_struct.places.urls import Options, Place, place_of
from neuralqx_struct.schema.catalogue import Catalogue, schemas_given, series_for
from neuralqx_struct.schema.conformance import conform_node
from neuralqx_struct.schema.series import Series, carried_series
from neuralqx_struct.schema.stamping import under_schema


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


# ---------------------------------------------------------------------------------------------------------------------
# Runs.


def migrate_all(
    folder: str | Place,
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
) -> RunResult:
    """Migrates every bundle in a folder and below it into another folder, under the same names; the inputs stay as they are.

    Calling it again goes on where it was interrupted: an output that is complete and of the wanted version is left alone.
    In the folder of a manager of Orbax, the other items of each step, such as metrics, are kept (on a disk as hard links),
    and a step appears when all of it is complete.

    Args:
        folder: Where the bundles are, a path or a URL.
        out: The folder for the new ones, a path or a URL, outside of ``folder``; it may exist.
        to: A version, ``"head"``, or a negative number of versions to go back, counted from each bundle's own.
        schema: A Series or Schema, or the path of a schema folder or file; None for the documents inside each bundle.
        dry_run: Plan and check, but write nothing.
        overwrite: Write outputs that exist again.
        trust: Packages whose registered functions ``python`` steps may run, where the steps come out of a bundle.
        progress: Called with bundles done and bundles in all.
        limits: Sizes above which a bundle is refused, as in ``migrate``.
        storage_options: Options of fsspec for URLs, such as keys.

    Returns:
        The result of each bundle. The errors of one are reported there and do not stop the others.

    Raises:
        BundleMissingError: There is no folder, or no bundle in it.
        BundleExistsError: ``out`` is ``folder`` or inside of it.
        SchemaError: ``schema`` is none.

    Example:
        >>> done = migrate_all("tests/golden/format-1", "nowhere", schema="schemas/vmc_state", dry_run=True, to=1)
        >>> "neuralqx.vmc_state: version 1 as it is" in str(done)
        True
    """
    folder, out = place_of(folder, storage_options), place_of(out, storage_options)
    given = schemas_given(schema)
    found = bundles_of(folder)
    bundle.require_apart(folder, out, itself=False)
    if not found or not found[0].name:
        got, hint = (
            ("a bundle", "migrate() takes a single one")
            if found
            else ("none", "look for the folder that has the checkpoints")
        )
        message = f"expected a folder with bundles in it, got {got}"
        raise bundle.BundleMissingError(message, file=str(folder), hint=hint)
    work = partial(
        _migrated,
        given=given,
        to=to,
        dry_run=dry_run,
        overwrite=overwrite,
        trust=tuple(trust),
        limits=limits,
    )
    return each_checkpoint(found, folder, out, work, dry_run=dry_run, progress=progress)


def _migrated(
    path: Path,
    out: Path,
    given: Series | Catalogue | None,
    to: int | str,
    **options: Any,
) -> Item:
    if is_there(out) and not options["overwrite"]:
        document = bundle.read_manifest(path, limits=options["limits"])
        series = series_for(document, given)
        document = under_schema(document, series)
        wanted = target_version(document, series, to)
        survey = bundle.survey(out, limits=options["limits"])
        _require_complete(out, survey, document["schema"]["id"], wanted)
        return Item(path, out, "skipped")
    done = migrate(path, out, to=to, schema=given, **options)
    return Item(path, out, "migrated" if done.out else "planned", done.plan, done.report)


def _require_complete(out: Path, survey: bundle.Survey, identity: str, version: int) -> None:
    """Checks that a target is already the bundle that would be written, by its manifest and the sizes of its files."""
    document, found, _ = survey
    got = "a damaged bundle" if document is None or has_errors(found) else ""
    if document is not None and not got:
        written = document.get("schema") or {}
        if (written.get("id"), written.get("version")) == (identity, version):
            return
        got = (
            f"version {written['version']} of {written['id']}"
            if written
            else "a bundle without a schema"
        )
    message = f"expected nothing or version {version} of {identity}, got {got}"
    hint = "remove it, or choose another folder"
    raise bundle.BundleExistsError(message, file=str(out), hint=hint)
