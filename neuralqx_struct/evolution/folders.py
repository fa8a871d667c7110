"""Migrating a run: every bundle of a folder in another version, one after the other.

Each output is written as :func:`~.migrations.migrate` writes it, whole or not at all, so that a call which was interrupted
is repeated to go on.

Example:
    >>> done = migrate_all("tests/golden/format-1", "nowhere", schema="schemas/vmc_state", dry_run=True)
    >>> {item.path.name: item.state for item in done.items}["vmc_state_1"]
    'planned'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from neuralqx_struct import bundle
from neuralqx_struct.bundle.runs import Item, RunResult, bundles_of, each_checkpoint, is_there
from neuralqx_struct.errors import has_errors
from neuralqx_struct.evolution.migrations import migrate, target_version
from neuralqx_struct.manifest import Limits
from neuralqx_struct.places.urls import Options, Place, place_of
from neuralqx_struct.schema.catalogue import Catalogue, schemas_given, series_for
from neuralqx_struct.schema.series import Series
from neuralqx_struct.schema.stamping import under_schema


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
