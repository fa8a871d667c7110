"""The checkpoints of a run, or of all runs: finds them, does one thing with each, and reports the results.

A run is a folder of bundles, such as a series, of files of other programs, or of a manager of Orbax, whose steps hold
several items. A bad checkpoint does not stop the others, a full disk does. ``tools/migration.py`` migrates runs,
``layouts/conversion.py`` brings them under a schema.

Example:
    >>> [path.name for path in bundles_in(Path("tests/golden/format-1"))]
    ['values.zip', 'vmc_state_1']
"""

from __future__ import annotations

import errno
import os
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path, PurePosixPath
from threading import Event, Lock
from typing import Any, Final, Literal, NamedTuple

from neuralqx_struct.bundle.storage import names_at
from neuralqx_struct.bundle.uploads import copy_tree
from neuralqx_struct.errors import Diagnostic, SerializationError, StructError
from neuralqx_struct.formats import Format, recognised
from neuralqx_struct.formats.orbax_layout import STEP_METADATA, TREE_METADATA
from neuralqx_struct.manifest import DEFAULT_FILE, MANIFEST
from neuralqx_struct.places.atomic import Targets, staged
from neuralqx_struct.places.disk import BundleMissingError, BundleWriteError
from neuralqx_struct.places.names import entries, is_hidden
from neuralqx_struct.places.steps import UNFINISHED
from neuralqx_struct.places.urls import Place

#: ``planned`` by a dry run, ``migrated`` or ``typed`` now, ``skipped`` because the output was complete, ``failed``, or
#: ``waiting`` after a failure that stopped everything, or its step of Orbax.
State = Literal["planned", "migrated", "typed", "skipped", "failed", "waiting"]

#: The words for each state, in the order of a report.
_WORDS: Final[Mapping[State, str]] = {
    "planned": "to migrate",
    "migrated": "migrated",
    "typed": "typed",
    "skipped": "complete already",
    "failed": "refused",
    "waiting": "not tried",
}
#: The files by which a folder is taken for a bundle, sound or not.
_MARKS: Final = frozenset({MANIFEST, DEFAULT_FILE})
#: Errors of the output folder that will happen for every checkpoint.
_STOPS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM})
_NO_ROOM: Final = "NQX406"
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Item:
    """The result of one checkpoint of a run.

    Attributes:
        path: The checkpoint.
        out: Where the new one is, or would be.
        state: Its result.
        plan: The hops of its migration, if it was migrated.
        report: Values that were defaulted, dropped and cast; for a failure, its errors.
        made: The new bundle and its sizes, if it was brought under a schema now.
    """

    path: Path
    out: Path
    state: State
    plan: Any = None
    report: tuple[Diagnostic, ...] = ()
    made: Any = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """The results of a run; ``str()`` has the plans, and how many checkpoints have which result.

    Attributes:
        items: The checkpoints, by path.
        stopped: True if the target took nothing more, so that some checkpoints were not tried.
        noun: The word for one of them.
    """

    items: tuple[Item, ...]
    stopped: bool = False
    noun: str = "bundle"

    @property
    def failed(self) -> tuple[Item, ...]:
        """The checkpoints that have no output."""
        return tuple(item for item in self.items if item.state == "failed")

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """All reports; equal ones of many checkpoints are merged, with their names."""
        same: dict[Diagnostic, list[Path]] = {}
        for item in self.items:
            for found in item.report:
                own = found.file in (None, str(item.path))
                same.setdefault(replace(found, file=None) if own else found, []).append(item.path)
        return tuple(_merged(found, paths) for found, paths in same.items())

    @property
    def findings(self) -> tuple[Diagnostic, ...]:
        """The diagnostics about the checkpoints."""
        return tuple(found for found in self.diagnostics if found.code != _NO_ROOM)

    @property
    def refusals(self) -> tuple[Diagnostic, ...]:
        """The diagnostics about the target, which the system refused to write."""
        return tuple(found for found in self.diagnostics if found.code == _NO_ROOM)

    @property
    def states(self) -> list[dict[str, Any]]:
        """Path, place and state of each checkpoint."""
        return [{"path": item.path, "out": item.out, "state": item.state} for item in self.items]

    def __str__(self) -> str:
        plans = Counter(str(item.plan) for item in self.items if item.plan is not None)
        lines = [_with_count(text, self._counted(count)) for text, count in plans.items()]
        counts = Counter(item.state for item in self.items)
        words = [f"{counts[state]} {word}" for state, word in _WORDS.items() if counts[state]]
        return "\n".join([*lines, f"{self._counted(len(self.items))}: {', '.join(words)}"])

    def _counted(self, count: int) -> str:
        return f"{count} {self.noun}{'' if count == 1 else 's'}"


def _merged(found: Diagnostic, paths: list[Path]) -> Diagnostic:
    file = found.file or str(paths[0])
    if len(paths) == 1:
        return replace(found, file=file)
    alike = paths[0].name == paths[1].name  # items of the steps of a manager
    names = [f"{path.parent.name}/{path.name}" if alike else path.name for path in paths]
    others = ", ".join(names[1 : _SHOWN + 1])
    more = f" and {len(paths) - 1 - _SHOWN} more" if len(paths) - 1 > _SHOWN else ""
    return replace(found, file=file, message=f"{found.message}\nlikewise in {others}{more}")


def _with_count(text: str, count: str) -> str:
    first, newline, rest = text.partition("\n")
    return f"{first}, {count}{newline}{rest}"


# ---------------------------------------------------------------------------------------------------------------------
# Finding checkpoints.


class Found(NamedTuple):
    """A checkpoint of a run: its place, and its name in the folder of the run and in that of the results."""

    path: Any
    name: str
    out: str


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


def bundles_of(folder: Place) -> list[Found]:
    """The bundles in a folder, by name; the folder itself, without a name, if it is one.

    Raises:
        BundleMissingError: There is no such folder.
    """
    if isinstance(folder, Path):
        if folder.is_dir():
            paths = [folder] if is_bundle(folder) else bundles_in(folder)
            names = [(path, path.relative_to(folder).as_posix().strip(".")) for path in paths]
            return [Found(path, name, name) for path, name in names]
    else:
        files = [PurePosixPath(name) for name in folder.files_below()]
        if files:
            inside = (each.parent if each.name in _MARKS else each for each in files)
            return [Found(folder / name, name, name) for name in _outermost(inside, files)]
    message = "expected a folder with bundles, got no such folder"
    raise BundleMissingError(message, file=str(folder))


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


def checkpoints_of(folder: Path) -> list[Found]:
    """The checkpoints of a run on a disk: bundles, and what other programs wrote; none of a folder that is one itself.

    The result of a file is named as the file, without the suffix of its kind, unless two would have the same name then.
    """
    if not folder.is_dir() or is_bundle(folder):
        return []
    kind = _recognised(folder)
    if (folder / STEP_METADATA).is_file() or (kind is not None and kind.whole(names_at(folder))):
        return []
    found = [*_checkpoints_in(folder)]
    if kind is not None and [path.parent for path, _ in found] == [folder]:
        return []  # a folder with the only file of a model
    short = [_short(path.relative_to(folder).as_posix(), each) for path, each in found]
    taken = Counter(short)
    made = []
    for (path, each), name in zip(found, short, strict=True):
        whole = path.relative_to(folder).as_posix()
        alone = each is None or taken[name] == 1
        made.append(Found(path, whole, name if alone else whole.replace(".", "-")))
    return made


def _short(name: str, kind: Format | None) -> str:
    return name if kind is None or not kind.suffix else name.removesuffix(kind.suffix)


def _checkpoints_in(folder: Path) -> Iterator[tuple[Path, Format | None]]:
    """Yields the checkpoints in a folder and in those below it with their kinds, None for bundles."""
    names = names_at(folder)
    is_step = STEP_METADATA in names and TREE_METADATA not in names
    for entry in entries(folder):
        is_folder = entry.is_dir()
        if entry.is_symlink() or UNFINISHED in entry.name or (is_step and not is_folder):
            continue
        if is_bundle(entry):
            yield entry, None
            continue
        kind = _recognised(entry)
        if kind is not None and (not is_folder or kind.whole(names_at(entry))):
            yield entry, kind
        elif is_folder and not is_step:
            yield from _checkpoints_in(entry)


def _recognised(path: Path) -> Format | None:
    """The kind of a file or folder of another program; None also for one that the system does not open."""
    try:
        return recognised(path)
    except SerializationError:
        return None


def is_there(place: Place, mark: str = MANIFEST) -> bool:
    """True if something has the path of an output; behind a URL, if it has the last file of one."""
    if isinstance(place, Path):
        return os.path.lexists(place)
    return (place if place.suffix == ".zip" else place / mark).is_file()


# ---------------------------------------------------------------------------------------------------------------------
# One after the other.

Work = Callable[[Any, Any], Item]
"""Makes the result of a checkpoint at a place; errors are those of the checkpoint."""


def each_checkpoint(
    found: Iterable[Found],
    folder: Place,
    out: Place,
    work: Work,
    *,
    noun: str = "bundle",
    dry_run: bool = False,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> RunResult:
    """Calls a function for each checkpoint of a run, and reports its results.

    In the folder of a manager of Orbax, the other items of each step, such as metrics, are kept (on a disk as hard
    links), and a step appears when all of it is complete.

    Args:
        found: The checkpoints.
        folder: The folder of the run.
        out: The folder of the results.
        work: Makes one result; one that is there and complete it leaves alone.
        noun: The word for a checkpoint.
        dry_run: Nothing is written.
        workers: How many checkpoints are under way at a time: the disk flushes the files of one while another is read.
        progress: Called with checkpoints done and checkpoints in all.

    Raises:
        SerializationError: The folder of the results is named as a zip.
    """
    if out.suffix == ".zip":
        message = "expected a folder for the results of a run, got the name of a zip"
        raise SerializationError(message, code="NQX614", file=str(out), hint="leave out .zip")
    every = [*found]
    steps = {each.name: _step_of(each) for each in every}
    batches: list[tuple[str | None, list[Found]]] = []
    for step, group in groupby(every, lambda each: steps[each.name]):
        whole = [*group]
        batches += [(step, whole)] if step is not None else [(None, [each]) for each in whole]
    full, lock, targets = Event(), Lock(), Targets()

    def made(batch: tuple[str | None, list[Found]]) -> list[Item]:
        step, group = batch
        pairs: list[tuple[Any, Any]] = [(each.path, out / each.out) for each in group]
        if full.is_set():
            return [Item(path, target, "waiting") for path, target in pairs]
        place = None if step is None else out / step
        with targets.making():
            done, failure = _together(pairs, place, work, dry_run=dry_run)
        if isinstance(failure, BundleWriteError) and failure.errno in _STOPS:
            with lock:
                reported = full.is_set()  # by another one
                full.set()
            if reported:
                done = [*map(_not_tried, done)]
        return done

    items: list[Item] = []
    with ThreadPoolExecutor(workers) as pool:
        results = pool.map(made, batches) if workers > 1 else map(made, batches)
        try:
            for _ in batches:
                if progress is not None:
                    progress(len(items), len(every))
                items += next(results)
        except BaseException:
            full.set()
            raise
    targets.flush()
    stopped = full.is_set()
    if not (stopped or dry_run):
        _copy_others(steps, folder, out)
    if progress is not None:
        progress(len(every), len(every))
    return RunResult(tuple(items), stopped, noun)


def _not_tried(item: Item) -> Item:
    return replace(item, state="waiting", report=()) if item.state == "failed" else item


def _step_of(found: Found) -> str | None:
    """The place in the folder of the step of Orbax's manager that a checkpoint is an item of; None if it is none."""
    is_item = (found.path.parent / STEP_METADATA).is_file()
    return found.name.rpartition("/")[0] if is_item else None


def _together(
    pairs: list[tuple[Any, Any]], place: Place | None, work: Work, *, dry_run: bool
) -> tuple[list[Item], Exception | None]:
    """The results of a checkpoint, or of all of a step of Orbax at a place, with its other items.

    Returns:
        The results, and the error that stopped them.
    """
    done: list[Item] = []
    try:
        if place is None or dry_run or is_there(place, STEP_METADATA):
            for path, target in pairs:
                done.append(work(path, target))
            return done, None
        step = pairs[0][0].parent
        with _copied(step, place, [path.name for path, _ in pairs]) as stage:
            for path, target in pairs:
                done.append(replace(work(path, stage / path.name), out=target))
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
    """Copies the folders without checkpoints beside the steps of managers; those that exist on a disk are left alone."""
    roots = sorted({step.rpartition("/")[0] for step in steps.values() if step})
    paths = map(PurePosixPath, steps if roots else ())
    inside = {str(each) for path in paths for each in (path, *path.parents)}
    for root in roots:
        found: list[Any] = [*(folder / root).iterdir()]
        for entry in sorted(found, key=lambda entry: str(entry.name)):
            name = f"{root}/{entry.name}".strip("/")
            place = out / name
            hidden = is_hidden(entry.name) or UNFINISHED in entry.name
            there = isinstance(place, Path) and os.path.lexists(place)
            if not (name in inside or hidden or there) and entry.is_dir():
                with _copied(entry, place):
                    pass


def _why(error: StructError | OSError, path: Path) -> tuple[Diagnostic, ...]:
    if isinstance(error, StructError):
        return error.in_file(str(path)).diagnostics
    message = f"expected a checkpoint that can be read, got: {error.strerror or error}"
    return (Diagnostic("NQX400", "error", message, file=str(path)),)
