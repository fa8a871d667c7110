"""Atomic replacement: a new file or folder takes the place of the one at a path, completely or not at all.

It is made beside the target under its own name, locked while its writer lives, and then takes the
target's name: by an exchange of names if the system has one, else by two renames. The files of a killed
writer are unlocked; the next writer removes them, or moves back the old target. A replaced folder that a
reader has locked stays until a later writer finds it unlocked. Where the system has no locks, a writer
removes only its own files.

Example:
    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp(), "notes")
    >>> for word in ("old", "new"):
    ...     with staged(target, folder=False, overwrite=True, foreign=lambda path: None) as stage:
    ...         _ = stage.write_text(word)
    >>> target.read_text(), [entry.name for entry in target.parent.iterdir()]
    ('new', ['notes'])
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import Final

from neuralqx_struct.errors import OVERWRITE, SerializationError
from neuralqx_struct.places.disk import (
    BundleExistsError,
    BundleWriteError,
    numbered,
    refusals_named,
    sync_file,
    sync_folder,
    sync_place,
)
from neuralqx_struct.places.locks import Descriptors, lock, unlock
from neuralqx_struct.places.names import KEPT, is_hidden

_Foreign = Callable[[Path], str | None]
_LOOKS = 4
_PAUSES = 64
_LEFTOVER: Final = re.compile(r"\..+\.(?P<kind>gone|tmp)-[0-9a-f]{12}")


class Targets:
    """The new files or folders of a run, which share one list of leftovers and one flush of names.

    The leftovers in a folder are listed before its first target. The names of the targets are flushed at the end: a power cut
    before may take a name away, with the whole target, but leaves no part of one.

    Example:
        >>> import tempfile
        >>> folder, targets = Path(tempfile.mkdtemp()), Targets()
        >>> with targets.making(), staged(folder / "a", folder=True, overwrite=False, foreign=lambda path: None):
        ...     pass
        >>> targets.flush()
    """

    def __init__(self) -> None:
        self._looking = Lock()
        self._temporary: dict[Path, list[str]] = {}
        self._placed: dict[Path, Path] = {}

    @contextmanager
    def making(self) -> Iterator[None]:
        """Everything that this thread writes inside belongs to them."""
        token = _TARGETS.set(self)
        try:
            yield
        finally:
            _TARGETS.reset(token)

    def temporary(self, folder: Path) -> list[str]:
        """The temporary names that were in a folder before the first target."""
        with self._looking:
            if folder not in self._temporary:
                self._temporary[folder] = _temporary(folder)
            return self._temporary[folder]

    def placed(self, target: Path) -> None:
        """Notes a target that has its name."""
        self._placed[target.parent] = target

    def flush(self) -> None:
        """Flushes their names to the disk.

        Raises:
            BundleWriteError: The system refused; the targets are in place all the same.
        """
        for folder, target in self._placed.items():
            if folder.exists():  # it may have been a temporary one
                sync_place(target)


#: The targets that the present thread makes.
_TARGETS: ContextVar[Targets | None] = ContextVar("targets", default=None)


def current(path: Path) -> Path | None:
    """The place of the bundle that belongs at a path; None if there is none.

    That is the path itself, or the old bundle beside it if a writer was stopped between the two renames
    that replace it.
    """
    for _ in range(_LOOKS):  # a writer may finish between the two looks
        if os.path.lexists(path):
            return path
        if kept := _siblings(path, "old", _temporary(path.parent)):
            return kept[0]
    return None


@contextmanager
def staged(
    target: Path, *, folder: bool, overwrite: bool, foreign: _Foreign, kind: str = "bundle"
) -> Iterator[Path]:
    """Yields a new empty folder or file; on success it becomes the target, else it is removed.

    A file is flushed to the disk, and the names in a folder; who writes files into a folder flushes them.

    Args:
        target: The path, which is no link.
        folder: Make a folder, not a file. An empty one is a free place.
        overwrite: Replace the target if it exists.
        foreign: Returns the reason why an existing path must not be replaced all the same; None if it may.
        kind: The word for the target in messages.

    Raises:
        BundleExistsError: The target exists, and is not to be overwritten.
        BundleWriteError: The system refused something on the way.
    """
    if "\0" in str(target):
        raise BundleWriteError(f"expected a path that the system takes, got {str(target)!r}")
    with refusals_named(target, kind):
        target.parent.mkdir(parents=True, exist_ok=True)
        _clean_up(target)
        refuse = partial(
            _refuse, target, folder=folder, overwrite=overwrite, foreign=foreign, kind=kind
        )
        refuse()
        stage = _Stage(target)
        try:
            stage.make(folder=folder)
            yield stage.path
            sync_folder(stage.path) if folder else sync_file(stage.path)
            _place(stage, refuse, folder=folder, overwrite=overwrite)
            stage.unlock()  # before the old target is removed: readers of the new one wait for this
            targets = _TARGETS.get()
            if targets is None:
                sync_place(target)
            else:
                targets.placed(target)
        finally:
            _completed(stage.close)


def _refuse(target: Path, *, folder: bool, overwrite: bool, foreign: _Foreign, kind: str) -> None:
    """Raises if the target may not be written."""
    while (seen := _state(target)) is not None:
        if folder and is_free(target):
            return
        reason = None
        try:
            reason = foreign(target)
        except OSError:
            if overwrite:
                raise
        if overwrite and reason is None:
            return
        if _state(target) != seen:  # another writer replaced it during the look
            continue
        wanted = f"a {kind} to overwrite" if overwrite else "a path where nothing is"
        message = f"expected {wanted}, got {reason or 'an existing one'}"
        hint = "choose another path, or remove it yourself" if reason else OVERWRITE
        error = BundleExistsError(message, file=str(target), hint=hint)
        raise numbered(error, errno.EEXIST, target)


def is_free(path: Path) -> bool:
    """True for a folder that holds nothing, but files of systems and editors."""
    return _idle(path) is not None


def _idle(path: Path) -> list[str] | None:
    """The names in a folder that is free; None for any other path."""
    try:
        names = os.listdir(path)  # noqa: PTH208 - names alone
    except OSError:
        return None
    if path.is_symlink() or not all(is_hidden(name) and name not in KEPT for name in names):
        return None
    return names


def _state(path: Path) -> tuple[int, int, int] | None:
    """The identity of the file at a path; None if there is none."""
    try:
        seen = path.lstat()
    except FileNotFoundError:
        return None
    return seen.st_dev, seen.st_ino, seen.st_ctime_ns


def _prefix(target: Path, kind: str) -> str:
    """The prefix of temporary names; a digest replaces a long name, as names have a limit."""
    name = target.name
    raw = os.fsencode(name)
    if len(raw) > 100:
        name = hashlib.sha256(raw).hexdigest()[:32]
    return f".{name}.{kind}-"


_OURS = re.compile("[0-9a-f]{12}")


def _temporary(folder: Path) -> list[str]:
    """The names in a folder that may be temporary: few of what may be a long run."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names alone
    except OSError:
        return []
    return sorted(name for name in names if name.startswith("."))


def _siblings(target: Path, kind: str, names: Sequence[str]) -> list[Path]:
    """The temporary files of a kind of the writers of a target, among the names in its folder."""
    if not names:
        return []
    prefix = _prefix(target, kind)
    ours = (each for each in names if each.startswith(prefix))
    return [target.parent / each for each in ours if _OURS.fullmatch(each[len(prefix) :])]


def _sibling(target: Path, kind: str) -> Path:
    return target.parent / f"{_prefix(target, kind)}{os.urandom(6).hex()}"


# Locks


def _locked(path: Path, held: Descriptors) -> bool | None:
    """The result of :func:`~neuralqx_struct.places.locks.lock` for a path, also False if it is gone; ``held`` gets its descriptor unless that is False.

    It is no result: an interrupt before the caller stores one would keep the lock.
    """
    try:
        held.append(os.open(path, os.O_RDONLY))
    except FileNotFoundError:
        return False
    except OSError:  # Windows opens no folders
        return None
    done = lock(held[-1])
    if done is False or not _leads_to(path, held[-1]):
        unlock(held)
        return False
    return done


def _leads_to(path: Path, descriptor: int) -> bool:
    """True if an open file or folder is the one at a path."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


class _Stage:
    """The temporary file or folder of a writer, locked until it is closed."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target
        self.kept: Path | None = None  # the old target, if the system cannot exchange names
        self._held = Descriptors()  # its descriptor while it is locked

    def make(self, *, folder: bool) -> None:
        """Makes and locks it."""
        for _ in range(_LOOKS):  # another writer may clean it up before it is locked
            self.path = _sibling(self.target, "tmp")
            if folder:
                self.path.mkdir()
            else:
                self.path.open("xb").close()
            if _locked(self.path, self._held) is not False:
                return
            self.close()
        message = "expected to lock a temporary file, got refused"
        raise SerializationError(message, code="NQX406", file=str(self.target))

    def unlock(self) -> None:
        """Unlocks the file or folder, also if it has the name of the target now."""
        unlock(self._held)

    def close(self) -> None:
        """Removes it, and the old target."""
        self.unlock()
        if self.path != self.target:
            _discard(self.path, own=True, pauses=_PAUSES)
        if self.kept is not None:
            _retire(self.kept, self.target)


def _discard(path: Path, *, own: bool, pauses: int = 0) -> bool:
    """Removes a temporary; False if a process uses it, or may use it as the system has no locks.

    ``own``: it belongs to this writer. ``pauses``: how often to look again, if another writer may be about
    to unlock it.
    """
    held = Descriptors()
    if path.is_symlink():  # nobody reads a link, and a lock would be one of its target
        _remove(path)
        return True
    try:
        done = _locked(path, held)
        for _ in range(pauses):
            if done is not False or not os.path.lexists(path):
                break
            time.sleep(0.002)
            done = _locked(path, held)
        free = own if done is None else done
        if free:
            _remove(path)
    finally:
        unlock(held)
    return free


def _completed(work: Callable[[], object]) -> None:
    """Does work that may be repeated; once more if an interrupt comes in between."""
    try:
        work()
    except BaseException:
        work()
        raise


def _clean_up(target: Path) -> None:
    """Removes the files of killed writers, and finishes or undoes their replacement."""
    targets = _TARGETS.get()
    names = (targets.temporary if targets else _temporary)(target.parent)
    busy = [stage for stage in _siblings(target, "tmp", names) if not _discard(stage, own=False)]
    for gone in _siblings(target, "gone", names):
        _discard(gone, own=True)
    for kept in () if busy else _siblings(target, "old", names):
        if os.path.lexists(target):
            _discard(kept, own=False)
        else:
            kept.rename(target)


def _remove(path: Path) -> None:
    import shutil

    with suppress(OSError):
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def remove(target: Path) -> None:
    """Takes a file or folder away from its path at once, and then removes it.

    A reader that has opened it keeps its data: files stay while they are open, and a folder that a reader has
    locked stays under its new name until a later :func:`clear_leftovers`.

    Raises:
        FileNotFoundError: There is nothing at the path.
    """
    _clean_up(target)
    gone = _sibling(target, "gone")
    target.rename(gone)
    _completed(lambda: _discard(gone, own=True))


def clear_leftovers(folder: Path) -> None:
    """Removes the files of killed writers in a folder, and removed ones that no reader uses any more."""
    for name in os.listdir(folder):  # noqa: PTH208 - names alone
        found = _LEFTOVER.fullmatch(name)
        if found:
            _discard(folder / name, own=found["kind"] == "gone")


# Replacement


def _place(stage: _Stage, refuse: Callable[[], None], *, folder: bool, overwrite: bool) -> None:
    """Gives the stage the name of the target; the old target gets the stage's name, or one of its own."""
    while True:
        refuse()
        if folder and is_free(stage.target):
            if not _removed_empty(stage):
                continue
        elif overwrite and os.path.lexists(stage.target):
            _replace(stage)
            return
        with suppress(FileExistsError):  # another writer was faster
            if not _rename(stage.path, stage.target, "new"):
                stage.path.rename(stage.target)
            stage.path = stage.target
            return


def _removed_empty(stage: _Stage) -> bool:
    """Removes an empty target, whose mode the stage gets; False if somebody has filled it meanwhile."""
    # Names of this look alone: the folder of the look before may be one that another writer has just replaced.
    idle = _idle(stage.target)
    if idle is None:
        return not os.path.lexists(stage.target)
    try:
        for name in idle:
            _remove(stage.target / name)
        stage.path.chmod(stat.S_IMODE(stage.target.stat().st_mode))
        stage.target.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        if is_free(stage.target):  # the system does not let it go
            raise
        return False
    return True


def _replace(stage: _Stage) -> None:
    target = stage.target
    if _rename(stage.path, target, "exchange"):
        return
    stage.kept = _sibling(target, "old")
    try:
        target.rename(stage.kept)
        stage.path.rename(target)
    finally:
        if not os.path.lexists(target):
            stage.kept.rename(target)


def _retire(kept: Path, target: Path) -> None:
    """Removes an old target; one that a reader has locked loses the name by which it could come back."""
    if _discard(kept, own=True) or not os.path.lexists(kept):
        return
    gone = _sibling(target, "gone")
    kept.rename(gone)
    _discard(gone, own=True, pauses=_PAUSES)


# By system: its function, the folder descriptor that it takes before a path, and its flags.
_CALLS: Final[Mapping[str, tuple[str, list[int], Mapping[str, int]]]] = {
    "linux": ("renameat2", [-100], {"new": 1, "exchange": 2}),  # AT_FDCWD
    "darwin": ("renamex_np", [], {"new": 4, "exchange": 2}),
}


@cache
def _function(name: str) -> Callable[..., int] | None:
    """A function of the system's library; None if it has none of this name."""
    import ctypes

    found: Callable[..., int] | None = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    return found


def _rename(source: Path, target: Path, how: str) -> bool:
    """Renames to a free name, or exchanges two names, in one step; False if the system cannot.

    Raises:
        OSError: It can, but this time it failed.
    """
    if sys.platform not in _CALLS:
        return False
    import ctypes

    name, here, flags = _CALLS[sys.platform]
    call = _function(name)
    if call is None:
        return False
    if call(*here, os.fsencode(source), *here, os.fsencode(target), flags[how]) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM):
        return False
    raise OSError(number, os.strerror(number), str(source), None, str(target))
