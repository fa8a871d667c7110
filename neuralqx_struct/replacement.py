"""Atomic replacement: something new takes the place of what stands at a path, at once or not at all.

A new file or folder is made beside the target under a name of its own, locked as long as its writer lives, then takes the
target's name: by an exchange of names where the system has one, else by two renames. What a writer that was killed left
behind is unlocked, and the next one removes it, or puts back what it had moved away. Owns names, locks, renames and
flushes of folders, but not what is written (``bundle/forms.py``).

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
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from neuralqx_struct.errors import SerializationError

__all__ = ["BundleExistsError", "BundleWriteError", "numbered", "refusals_named", "staged", "standing", "sync_folder"]

_E = TypeVar("_E", bound=OSError)


class BundleExistsError(SerializationError, FileExistsError):
    """The target of a write exists."""

    default_code = "NQX431"


class BundleWriteError(SerializationError, OSError):
    """The system refused a write: the disk is full, say, or the folder read-only. What stood at the target stands."""

    default_code = "NQX406"


def numbered(error: _E, number: int | None, path: Path) -> _E:
    """The error with what callers look for in an OSError."""
    error.errno, error.filename = number, str(path)
    error.strerror = None if number is None else os.strerror(number)
    return error


def standing(path: Path) -> Path | None:
    """Where to read what belongs at a path, None if nothing does.

    That is the path itself, or what stood there, if a writer was stopped between the two renames that replace it.
    """
    for _ in range(_LOOKS):
        if os.path.lexists(path):
            return path
        if kept := _siblings(path, "old"):
            return kept[0]
        # Nothing is there, or a writer came between the two looks: one more tells.
    return None


_LOOKS = 4


@contextmanager
def staged(target: Path, *, folder: bool, overwrite: bool, foreign: Callable[[Path], str | None]) -> Iterator[Path]:
    """A new empty folder or file to be filled; on success it becomes the target, else it is removed.

    Args:
        target: The path to be taken, which is no link.
        folder: Make a folder, not a file.
        overwrite: Replace what stands at the target.
        foreign: Told a path that is there, says why it must not be replaced all the same; None if it may.

    Raises:
        BundleExistsError: The target exists, and is not to be overwritten.
        BundleWriteError: The system refused something on the way.
    """
    if "\0" in str(target):
        raise BundleWriteError(f"expected a path that the system takes, got {str(target)!r}")
    with refusals_named(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _clean_up(target)
        _refuse(target, overwrite=overwrite, foreign=foreign)
        stage, lock = _new_stage(target, folder=folder)
        try:
            yield stage
            if folder:
                sync_folder(stage)
            while not _took(stage, target, overwrite=overwrite, foreign=foreign):
                pass
            sync_folder(target.parent)
        finally:
            _remove(stage)  # after an exchange, this is what stood at the target before
            os.close(lock)


@contextmanager
def refusals_named(target: Path) -> Iterator[None]:
    """Errors of the system, which name a temporary file or none at all, as errors about the target.

    Raises:
        BundleWriteError: In place of any other OSError.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, SerializationError):
            raise
        message = f"expected to write the bundle, got: {error.strerror or error}"
        if error.filename is not None and os.fspath(error.filename) != os.fspath(target):
            message += f"\nthe system refused {os.fsdecode(error.filename)}"
        hint = (
            "what stood at the path before is untouched; free space or choose a folder that can be written, then retry"
        )
        raise numbered(BundleWriteError(message, file=str(target), hint=hint), error.errno, target) from error


def _refuse(target: Path, *, overwrite: bool, foreign: Callable[[Path], str | None]) -> None:
    """Raise if the target may not be written."""
    while (seen := _state(target)) is not None:
        if not overwrite:
            raise _existing(target)
        if (why := foreign(target)) is None:
            return
        if _state(target) == seen:  # else another writer replaced it meanwhile, and took away what was looked at
            message = f"expected a bundle to overwrite, got {why}"
            error = BundleExistsError(message, file=str(target), hint="choose another path, or remove it yourself")
            raise numbered(error, errno.EEXIST, target)


def _state(path: Path) -> tuple[int, int, int] | None:
    """What tells that a path is what it was; None if nothing is there."""
    try:
        seen = path.lstat()
    except FileNotFoundError:
        return None
    return seen.st_dev, seen.st_ino, seen.st_ctime_ns


def _existing(target: Path) -> BundleExistsError:
    hint = "pass overwrite=True to replace it"
    error = BundleExistsError("expected a path where nothing is, got an existing one", file=str(target), hint=hint)
    return numbered(error, errno.EEXIST, target)


def _prefix(target: Path, kind: str) -> str:
    """How the names of temporaries begin: long names stand for themselves by a digest, as names have a limit."""
    name = os.fsencode(target.name)
    return f".{target.name if len(name) <= 100 else hashlib.sha256(name).hexdigest()[:32]}.{kind}-"


def _siblings(target: Path, kind: str) -> list[Path]:
    ours = re.compile(re.escape(_prefix(target, kind)) + "[0-9a-f]{12}")
    try:
        names = [entry.name for entry in os.scandir(target.parent) if ours.fullmatch(entry.name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [target.parent / name for name in sorted(names)]


def _sibling(target: Path, kind: str) -> Path:
    return target.parent / f"{_prefix(target, kind)}{os.urandom(6).hex()}"


def _lock(path: Path) -> int | None:
    """A descriptor that holds the lock on ``path``; None if somebody else has it or the path is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    if sys.platform == "win32":  # no locks on folders there: nothing is ever cleaned up
        return descriptor
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found, own = path.stat(), os.fstat(descriptor)
        if (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _new_stage(target: Path, *, folder: bool) -> tuple[Path, int]:
    for _ in range(100):  # another writer's cleaning may take a stage away before it is locked
        stage = _sibling(target, "tmp")
        if folder:
            stage.mkdir()
        else:
            stage.open("xb").close()
        if (lock := _lock(stage)) is not None:
            return stage, lock
        _remove(stage)
    raise SerializationError("expected to lock a temporary file, got refused", code="NQX406", file=str(target))


def _clean_up(target: Path) -> None:
    """Remove what killed writers left, and finish or undo what they were at."""
    if sys.platform == "win32":
        return
    busy = False
    for stage in _siblings(target, "tmp"):
        lock = _lock(stage)
        if lock is None:
            busy = True
            continue
        _remove(stage)
        os.close(lock)
    for kept in () if busy else _siblings(target, "old"):
        if os.path.lexists(target):
            _remove(kept)
        else:
            kept.rename(target)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        import shutil

        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def sync_folder(path: Path) -> None:
    """Flush the names in a folder to the disk, where the system can."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _took(stage: Path, target: Path, *, overwrite: bool, foreign: Callable[[Path], str | None]) -> bool:
    """Publish the stage; False if another writer was quicker to a path that was free, and may be replaced too."""
    _refuse(target, overwrite=overwrite, foreign=foreign)
    try:
        _publish(stage, target, overwrite=overwrite)
    except BundleExistsError:
        if not overwrite:
            raise
        return False
    return True


def _publish(stage: Path, target: Path, *, overwrite: bool) -> None:
    """Give the stage the name of the target; what stood there is left at the stage's name, or removed."""
    if not os.path.lexists(target):
        if not _rename(stage, target, "new"):
            stage.rename(target)
        return
    if not overwrite:
        raise _existing(target)
    if _rename(stage, target, "exchange"):
        return
    kept = _sibling(target, "old")
    target.rename(kept)
    try:
        stage.rename(target)
    except BaseException:
        kept.rename(target)
        raise
    _remove(kept)


# System, its call, whether it takes folder descriptors, and the flags.
_CALLS: Final[Mapping[str, tuple[str, bool, Mapping[str, int]]]] = {
    "linux": ("renameat2", True, {"new": 1, "exchange": 2}),
    "darwin": ("renamex_np", False, {"new": 4, "exchange": 2}),
}


def _rename(source: Path, target: Path, how: str) -> bool:
    """Rename to a name that must be free, or exchange two names, in one step; False where the system cannot.

    Raises:
        OSError: It can, but this time it could not.
    """
    if sys.platform not in _CALLS:
        return False
    import ctypes

    name, at, flags = _CALLS[sys.platform]
    call = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if call is None:
        return False
    here = [-100] if at else []  # AT_FDCWD
    if call(*here, os.fsencode(source), *here, os.fsencode(target), flags[how]) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM):
        return False
    if number == errno.EEXIST and os.path.lexists(target):
        raise _existing(target)
    raise OSError(number, os.strerror(number), str(source), None, str(target))
