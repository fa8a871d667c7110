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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from neuralqx_struct.errors import SerializationError

_E = TypeVar("_E", bound=OSError)
_Foreign = Callable[[Path], str | None]
_LOOKS = 4
_PAUSES = 64
_NO_SYNC: Final = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)


class BundleExistsError(SerializationError, FileExistsError):
    """The target of a write exists."""

    default_code = "NQX431"


class BundleWriteError(SerializationError, OSError):
    """The system refused a write, such as for a full disk or a read-only folder."""

    default_code = "NQX406"


def numbered(error: _E, number: int | None, path: Path) -> _E:
    """The error with the attributes that callers expect of an OSError."""
    error.errno, error.filename = number, str(path)
    error.strerror = None if number is None else os.strerror(number)
    return error


def current(path: Path) -> Path | None:
    """The place of the bundle that belongs at a path; None if there is none.

    That is the path itself, or the old bundle beside it if a writer was stopped between the two renames
    that replace it.
    """
    for _ in range(_LOOKS):  # a writer may finish between the two looks
        if os.path.lexists(path):
            return path
        if kept := _siblings(path, "old"):
            return kept[0]
    return None


@contextmanager
def staged(
    target: Path, *, folder: bool, overwrite: bool, foreign: _Foreign, kind: str = "bundle"
) -> Iterator[Path]:
    """Yields a new empty folder or file; on success it becomes the target, else it is removed.

    Args:
        target: The path, which is no link.
        folder: Make a folder, not a file.
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
        refuse = partial(_refuse, target, overwrite=overwrite, foreign=foreign, kind=kind)
        refuse()
        stage = _Stage(target)
        try:
            stage.make(folder=folder)
            yield stage.path
            if folder:
                sync_folder(stage.path)
            _place(stage.path, target, refuse, overwrite=overwrite)
            stage.unlock()
            _sync_place(target)
        finally:
            _completed(stage.close)


@contextmanager
def refusals_named(target: Path, kind: str = "bundle") -> Iterator[None]:
    """Raises errors of the system, which name a temporary file or none, as errors about the target.

    Raises:
        BundleWriteError: In place of any other OSError.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, SerializationError):
            raise
        message = f"expected to write the {kind}, got: {error.strerror or error}"
        if error.filename is not None and os.fspath(error.filename) != os.fspath(target):
            message += f"\nthe system refused {os.fsdecode(error.filename)}"
        hint = f"the old {kind} is untouched; free space or choose a folder that can be written, then retry"
        refused = BundleWriteError(message, file=str(target), hint=hint)
        raise numbered(refused, error.errno, target) from error


def _refuse(target: Path, *, overwrite: bool, foreign: _Foreign, kind: str) -> None:
    """Raises if the target may not be written."""
    while (seen := _state(target)) is not None:
        message = "expected a path where nothing is, got an existing one"
        hint = "pass overwrite=True to replace it"
        if overwrite:
            reason = foreign(target)
            if reason is None:
                return
            if _state(target) != seen:  # another writer replaced it during the look
                continue
            message = f"expected a {kind} to overwrite, got {reason}"
            hint = "choose another path, or remove it yourself"
        error = BundleExistsError(message, file=str(target), hint=hint)
        raise numbered(error, errno.EEXIST, target)


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


def _siblings(target: Path, kind: str) -> list[Path]:
    ours = re.compile(re.escape(_prefix(target, kind)) + "[0-9a-f]{12}")
    try:
        names = os.listdir(target.parent)  # noqa: PTH208 - names alone
    except OSError:
        return []
    return [target.parent / name for name in sorted(names) if ours.fullmatch(name)]


def _sibling(target: Path, kind: str) -> Path:
    return target.parent / f"{_prefix(target, kind)}{os.urandom(6).hex()}"


# Locks


def lock(descriptor: int, *, shared: bool = False) -> bool | None:
    """Locks an open file or folder until its descriptor is closed.

    Returns:
        False if another process has a lock that excludes this one; None if the system has no locks.
    """
    try:
        import fcntl

        how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None
    return True


def _locked(path: Path) -> tuple[bool | None, int | None]:
    """The result of :func:`lock` for a path, also False if it is gone; and its descriptor unless that is False."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False, None
    except OSError:  # Windows opens no folders
        return None, None
    done = lock(descriptor)
    if done is False or not _leads_to(path, descriptor):
        os.close(descriptor)
        return False, None
    return done, descriptor


def _leads_to(path: Path, descriptor: int) -> bool:
    """True if an open file or folder is the one at a path."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _unlock(descriptor: int) -> None:
    with suppress(ImportError, OSError):  # closing is not enough where forked processes share it
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


class _Stage:
    """The temporary file or folder of a writer, locked until it is closed."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._lock: int | None = None
        self.path = target

    def make(self, *, folder: bool) -> None:
        """Makes and locks it."""
        for _ in range(_LOOKS):  # another writer may clean it up before it is locked
            self.path = _sibling(self._target, "tmp")
            if folder:
                self.path.mkdir()
            else:
                self.path.open("xb").close()
            done, self._lock = _locked(self.path)
            if done is not False:
                return
            self.close()
        message = "expected to lock a temporary file, got refused"
        raise SerializationError(message, code="NQX406", file=str(self._target))

    def unlock(self) -> None:
        """Unlocks the file or folder, also if it has the name of the target now."""
        descriptor, self._lock = self._lock, None
        if descriptor is not None:
            _unlock(descriptor)

    def close(self) -> None:
        """Removes it, or the old target if that has its name now."""
        self.unlock()
        if self.path != self._target:
            _discard(self.path, own=True)


def _discard(path: Path, *, own: bool) -> bool:
    """Removes a temporary; False if a process uses it, or may use it as the system has no locks.

    ``own``: it belongs to this writer.
    """
    done, descriptor = _locked(path)
    for _ in range(_PAUSES if own else 0):  # another writer may be about to unlock it
        if done is not False or not os.path.lexists(path):
            break
        time.sleep(0.002)
        done, descriptor = _locked(path)
    free = own if done is None else done
    try:
        if free:
            _remove(path)
    finally:
        if descriptor is not None:
            _unlock(descriptor)
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
    busy = [stage for stage in _siblings(target, "tmp") if not _discard(stage, own=False)]
    for kept in () if busy else _siblings(target, "old"):
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


# Replacement


def sync_folder(path: Path) -> None:
    """Flushes the names in a folder to the disk, if the system can."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(descriptor)


def _sync_place(target: Path) -> None:
    """Flushes the name of a new bundle to the disk.

    Raises:
        BundleWriteError: The system refused; the bundle is in place all the same.
    """
    try:
        sync_folder(target.parent)
    except OSError as error:
        message = f"expected to flush the name of the new bundle to the disk, got: {error.strerror or error}"
        hint = "the new bundle is in place, but a power cut may lose it: check the disk, then write it again"
        refused = BundleWriteError(message, file=str(target), hint=hint)
        raise numbered(refused, error.errno, target) from error


def _place(stage: Path, target: Path, refuse: Callable[[], None], *, overwrite: bool) -> None:
    """Gives the stage the name of the target; the old target gets the stage's name, or is removed."""
    while True:
        refuse()
        if overwrite and os.path.lexists(target):
            _replace(stage, target)
            return
        with suppress(FileExistsError):  # another writer was faster
            if not _rename(stage, target, "new"):
                stage.rename(target)
            return


def _replace(stage: Path, target: Path) -> None:
    if _rename(stage, target, "exchange"):
        return
    kept = _sibling(target, "old")
    try:
        target.rename(kept)
        stage.rename(target)
    finally:
        if not os.path.lexists(target):
            kept.rename(target)
        _completed(lambda: _discard(kept, own=True))


# By system: its function, the folder descriptor that it takes before a path, and its flags.
_CALLS: Final[Mapping[str, tuple[str, list[int], Mapping[str, int]]]] = {
    "linux": ("renameat2", [-100], {"new": 1, "exchange": 2}),  # AT_FDCWD
    "darwin": ("renamex_np", [], {"new": 4, "exchange": 2}),
}


def _rename(source: Path, target: Path, how: str) -> bool:
    """Renames to a free name, or exchanges two names, in one step; False if the system cannot.

    Raises:
        OSError: It can, but this time it failed.
    """
    if sys.platform not in _CALLS:
        return False
    import ctypes

    name, here, flags = _CALLS[sys.platform]
    call = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if call is None:
        return False
    if call(*here, os.fsencode(source), *here, os.fsencode(target), flags[how]) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM):
        return False
    raise OSError(number, os.strerror(number), str(source), None, str(target))
