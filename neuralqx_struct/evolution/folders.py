"""Migrating a folder of bundles: the checkpoints of a run, or of all runs, one after the other.

Finds the bundles, skips those that are done, and reports the result of each. A bad bundle does not stop the others, a
full disk does. Each output is written as :func:`~.migrations.migrate` writes it, whole or not at all,
so that a call which was interrupted is repeated to go on.

Example:
    >>> done = migrate_all("tests/golden/format-1", "nowhere", schema="schemas/vmc_state", dry_run=True)
    >>> {item.path.name: item.state for item in done.items}["vmc_state_1"]
    'planned'
"""

from __future__ import annotations

import errno
import os
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal

from neuralqx_struct import bundle
from neuralqx_struct.bundle.storage import names_at
from neuralqx_struct.bundle.uploads import copy_tree
from neuralqx_struct.errors import Diagnostic, StructError, has_errors
from neuralqx_struct.evolution.migrations import migrate, target_version
from neuralqx_struct.evolution.plans import Plan
from neuralqx_struct.formats.orbax_layout import STEP_METADATA
from neuralqx_struct.manifest import DEFAULT_FILE, MANIFEST, Limits
from neuralqx_struct.places.atomic import staged
from neuralqx_struct.places.names import entries, is_hidden
from neuralqx_struct.places.steps import UNFINISHED
from neuralqx_struct.places.urls import Options, Place, place_of
from neuralqx_struct.schema.catalogue import Catalogue, schemas_given, series_for
from neuralqx_struct.schema.series import Series
from neuralqx_struct.schema.stamping import under_schema

#: ``planned`` by a dry run, ``migrated`` now, ``skipped`` because the output was complete, ``failed``, or ``waiting``
#: after a failure that stopped everything, or its step of Orbax.
State = Literal["planned", "migrated", "skipped", "failed", "waiting"]

#: The files by which a folder is taken for a bundle, sound or not.
_MARKS: Final = frozenset({MANIFEST, DEFAULT_FILE})
#: Errors of the output folder that will happen for every bundle.
_STOPS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM})


@dataclass(frozen=True, slots=True)
class Item:
    """One bundle of a folder.

    Attributes:
        path: The bundle.
        out: Where the new one is, or would be.
        state: Its result.
        plan: The hops, unless it was skipped or failed.
        report: Values that were defaulted, dropped and cast; for a failure, its errors.
    """

    path: Path
    out: Path
    state: State
    plan: Plan | None = None
    report: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True)
class MigratedFolder:
    """The result of :func:`migrate_all`; ``str()`` has the plans and how many bundles each is for.

    Attributes:
        items: The bundles, by path.
        stopped: True if the target took nothing more, so that some bundles were not tried.
    """

    items: tuple[Item, ...]
    stopped: bool = False

    @property
    def failed(self) -> tuple[Item, ...]:
        """The bundles that have no output."""
        return tuple(item for item in self.items if item.state == "failed")

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """All reports; equal ones of many bundles are merged, with their names."""
        same: dict[Diagnostic, list[Path]] = {}
        for item in self.items:
            for found in item.report:
                own = found.file in (None, str(item.path))
                same.setdefault(replace(found, file=None) if own else found, []).append(item.path)
        return tuple(_merged(found, paths) for found, paths in same.items())

    def __str__(self) -> str:
        plans: dict[str, int] = {}
        for item in self.items:
            if item.plan is not None:
                plans[str(item.plan)] = plans.get(str(item.plan), 0) + 1
        lines = [_numbered(text, count) for text, count in plans.items()]
        states = ("planned", "migrated", "skipped", "failed", "waiting")
        counts = {state: sum(item.state == state for item in self.items) for state in states}
        words = [f"{count} {_WORDS[state]}" for state, count in counts.items() if count]
        return "\n".join([*lines, f"{len(self.items)} bundles: {', '.join(words)}"])


_WORDS = {
    "planned": "to migrate",
    "migrated": "migrated",
    "skipped": "complete already",
    "failed": "failed",
    "waiting": "not tried",
}
_SHOWN = 3


def _merged(found: Diagnostic, paths: list[Path]) -> Diagnostic:
    file = found.file or str(paths[0])
    if len(paths) == 1:
        return replace(found, file=file)
    others = ", ".join(path.name for path in paths[1 : _SHOWN + 1])
    more = f" and {len(paths) - 1 - _SHOWN} more" if len(paths) - 1 > _SHOWN else ""
    return replace(found, file=file, message=f"{found.message}\nlikewise in {others}{more}")


def _numbered(text: str, count: int) -> str:
    first, newline, rest = text.partition("\n")
    return f"{first}, {count} bundle{'' if count == 1 else 's'}{newline}{rest}"


# ---------------------------------------------------------------------------------------------------------------------
# Finding bundles.


def is_bundle(path: Path) -> bool:
    """True for a path that looks like a bundle, sound or not: a folder with a manifest or with arrays, or a zip of such."""
    if path.is_dir():
        return not _MARKS.isdisjoint(names_at(path))
    if path.suffix != ".zip" or not path.is_file():
        return False
    try:
        with zipfile.ZipFile(path) as held:
            return "manifest.json" in held.namelist()
    except (zipfile.BadZipFile, OSError, ValueError):
        return True  # a damaged one: reading it reports the damage


def bundles_in(folder: Path) -> Iterator[Path]:
    """Yields the bundles in a folder and in the folders below it, by name; links and hidden entries are left alone."""
    for entry in entries(folder):
        if entry.is_symlink():
            continue
        if is_bundle(entry):
            yield entry
        elif entry.is_dir():
            yield from bundles_in(entry)


def holds_bundles(place: Place) -> bool:
    """True for a folder that is no bundle, so that bundles may be in it."""
    if isinstance(place, Path):
        return place.is_dir() and not is_bundle(place)
    if place.suffix in (".zip", ".json") or (place / MANIFEST).is_file():
        return False
    return bool(place.files_below())


def _found_in(folder: Place) -> list[tuple[Any, str]]:
    """The bundles in a folder with their places in it, by name; the folder itself, at no place, if it is one.

    Raises:
        BundleMissingError: There is no such folder.
    """
    if isinstance(folder, Path):
        if folder.is_dir():
            paths = [folder] if is_bundle(folder) else bundles_in(folder)
            return [(path, path.relative_to(folder).as_posix().strip(".")) for path in paths]
    else:
        files = [PurePosixPath(name) for name in folder.files_below()]
        if files:
            names = (each.parent if each.name in _MARKS else each for each in files)
            return [(folder / name, name) for name in _outermost(names, files)]
    message = "expected a folder with bundles, got no such folder"
    raise bundle.BundleMissingError(message, file=str(folder))


def _outermost(names: Iterable[PurePosixPath], files: Iterable[PurePosixPath]) -> Iterator[str]:
    """Yields the bundles among the files behind a URL and the folders of manifests; none in another one or hidden."""
    plain = set(files)
    found: set[PurePosixPath] = set()
    for name in sorted(set(names)):
        is_zip = name.suffix == ".zip"
        hidden = any(map(is_hidden, name.parts))
        if (name in plain and not is_zip) or hidden or not found.isdisjoint(name.parents):
            continue
        found.add(name)
        yield "" if name == PurePosixPath() else str(name)


def _is_there(place: Place, mark: str = MANIFEST) -> bool:
    """True if something has the path of an output; behind a URL, if it has the last file of one."""
    if isinstance(place, Path):
        return os.path.lexists(place)
    return (place if place.suffix == ".zip" else place / mark).is_file()


# ---------------------------------------------------------------------------------------------------------------------
# Migrating them.


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
) -> MigratedFolder:
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
    found = _found_in(folder)
    bundle.require_apart(folder, out, itself=False)
    if not found or not found[0][1]:
        got, hint = (
            ("a bundle", "migrate() takes a single one")
            if found
            else ("none", "look for the folder that has the checkpoints")
        )
        message = f"expected a folder with bundles in it, got {got}"
        raise bundle.BundleMissingError(message, file=str(folder), hint=hint)
    items, stopped = list[Item](), False
    options = {
        "dry_run": dry_run,
        "overwrite": overwrite,
        "trust": tuple(trust),
        "limits": limits,
    }
    steps = {name: _step_of(path, name) for path, name in found}
    for step, group in groupby(found, lambda pair: steps[pair[1]]):
        for batch in [[pair] for pair in group] if step is None else [[*group]]:
            if progress is not None:
                progress(len(items), len(found))
            pairs: list[tuple[Any, Any]] = [(path, out / name) for path, name in batch]
            if stopped:
                items += (Item(path, target, "waiting") for path, target in pairs)
                continue
            place = None if step is None else out / step
            done, failure = _migrated_together(pairs, place, given, to, **options)
            items += done
            stopped = isinstance(failure, bundle.BundleWriteError) and failure.errno in _STOPS
    if not (stopped or dry_run):
        _copy_others(steps, folder, out)
    if progress is not None:
        progress(len(found), len(found))
    return MigratedFolder(tuple(items), stopped)


def _step_of(path: Place, name: str) -> str | None:
    """The place in the folder of the step of Orbax's manager that a bundle is an item of; None if it is none."""
    return name.rpartition("/")[0] if (path.parent / STEP_METADATA).is_file() else None


def _migrated_together(
    pairs: list[tuple[Any, Any]],
    place: Place | None,
    given: Series | Catalogue | None,
    to: int | str,
    **options: Any,
) -> tuple[list[Item], Exception | None]:
    """Migrates a bundle, or all of a step of Orbax to a place, with its other items.

    Returns:
        The results, and the error that stopped them.
    """
    done: list[Item] = []
    try:
        if place is None or options["dry_run"] or _is_there(place, STEP_METADATA):
            for path, target in pairs:
                done.append(_migrated(path, target, given, to, **options))
            return done, None
        step = pairs[0][0].parent
        with _copied(step, place, [path.name for path, _ in pairs]) as stage:
            for path, target in pairs:
                new = stage / path.name
                done.append(replace(_migrated(path, new, given, to, **options), out=target))
    except (StructError, OSError) as error:
        path, target = pairs[len(done)] if len(done) < len(pairs) else pairs[-1]
        failed = Item(path, target, "failed", report=_why(error, path))
        kept = [] if isinstance(place, Path) else done
        others = [Item(*pair, "waiting") for pair in pairs[len(kept) :] if pair[0] != path]
        return [*kept, failed, *others], error
    return done, None


@contextmanager
def _copied(source: Place, place: Place, without: Collection[str] = ()) -> Iterator[Place]:
    """Yields a new folder with the files of another one, but for those at or below some names, which the caller adds.

    On a disk it appears when all is complete; behind a URL the files are copied at the end, of a step ``STEP_METADATA`` last.
    """
    if not isinstance(place, Path):
        yield place
        copy_tree(source, place, without)
        return
    with staged(place, folder=True, overwrite=False, foreign=lambda _: None, kind="step") as stage:
        copy_tree(source, stage, without)
        yield stage


def _copy_others(steps: Mapping[str, str | None], folder: Place, out: Place) -> None:
    """Copies the folders without bundles beside the steps of managers; those that exist on a disk are left alone."""
    inside = {
        str(each) for name in steps for each in (PurePosixPath(name), *PurePosixPath(name).parents)
    }
    for root in sorted({step.rpartition("/")[0] for step in steps.values() if step}):
        found: list[Any] = [*(folder / root).iterdir()]
        for entry in sorted(found, key=lambda entry: str(entry.name)):
            name = f"{root}/{entry.name}".strip("/")
            place = out / name
            hidden = is_hidden(entry.name) or UNFINISHED in entry.name
            there = isinstance(place, Path) and os.path.lexists(place)
            if not (name in inside or hidden or there) and entry.is_dir():
                with _copied(entry, place):
                    pass


def _migrated(
    path: Path,
    out: Path,
    given: Series | Catalogue | None,
    to: int | str,
    **options: Any,
) -> Item:
    if _is_there(out) and not options["overwrite"]:
        document = bundle.read_manifest(path, limits=options["limits"])
        series = series_for(document, given)
        document = under_schema(document, series)
        wanted = target_version(document, series, to)
        _require_complete(out, document["schema"]["id"], wanted, options["limits"])
        return Item(path, out, "skipped")
    done = migrate(path, out, to=to, schema=given, **options)
    return Item(path, out, "migrated" if done.out else "planned", done.plan, done.report)


def _require_complete(out: Path, identity: str, version: int, limits: Limits | None) -> None:
    """Checks that a target is already the bundle that would be written, by its manifest and the sizes of its files."""
    document, found, _ = bundle.survey(out, limits=limits)
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


def _why(error: StructError | OSError, path: Path) -> tuple[Diagnostic, ...]:
    if isinstance(error, StructError):
        return error.in_file(str(path)).diagnostics
    message = f"expected a bundle that can be read, got: {error.strerror or error}"
    return (Diagnostic("NQX400", "error", message, file=str(path)),)
