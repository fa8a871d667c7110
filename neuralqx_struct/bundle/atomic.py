"""Atomic replacement: a new file or folder takes the place of the one at a path, completely or not at all.

It is made beside the target under its own name, locked while its writer lives, and then takes the
target's name: by an exchange of names if the system has one, else by two renames. The files of a killed
writer are unlocked; the next writer removes them, or moves back the old target.

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

_E = TypeVar("_E", bound=OSError)
_Foreign = Callable[[Path], str | None]
_LOOKS = 4


class BundleExistsError(SerializationError, FileExistsError):
    """The target of a write exists."""

    default_code = "NQX431"


class BundleWriteError(SerializationError, OSError):
    """The system refused a write, such as for a full disk or a read-only folder. The target is unchanged."""

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
def staged(target: Path, *, folder: bool, overwrite: bool, foreign: _Foreign) -> Iterator[Path]:
    """Yields a new empty folder or file; on success it becomes the target, else it is removed.

    Args:
        target: The path, which is no link.
        folder: Make a folder, not a file.
        overwrite: Replace the target if it exists.
        foreign: Returns the reason why an existing path must not be replaced all the same; None if it may.

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
            _remove(stage)  # after an exchange, this is the old target
            os.close(lock)


@contextmanager
def refusals_named(target: Path) -> Iterator[None]:
    """Raises errors of the system, which name a temporary file or none, as errors about the target.

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
        hint = "the old bundle is untouched; free space or choose a folder that can be written, then retry"
        refused = BundleWriteError(message, file=str(target), hint=hint)
        raise numbered(refused, error.errno, target) from error


def _refuse(target: Path, *, overwrite: bool, foreign: _Foreign) -> None:
    """Raises if the target may not be written."""
    while (seen := _state(target)) is not None:
        if not overwrite:
            raise _existing(target)
        reason = foreign(target)
        if reason is None:
            return
        if _state(target) == seen:  # else another writer replaced it during the look
            message = f"expected a bundle to overwrite, got {reason}"
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


def _existing(target: Path) -> BundleExistsError:
    message = "expected a path where nothing is, got an existing one"
    hint = "pass overwrite=True to replace it"
    return numbered(BundleExistsError(message, file=str(target), hint=hint), errno.EEXIST, target)


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
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [target.parent / name for name in sorted(names) if ours.fullmatch(name)]


def _sibling(target: Path, kind: str) -> Path:
    return target.parent / f"{_prefix(target, kind)}{os.urandom(6).hex()}"


def _lock(path: Path) -> int | None:
    """A descriptor that holds the lock on ``path``; None if another process has it or the path is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    if sys.platform == "win32":  # no locks on folders there: nothing is ever cleaned up
        return descriptor
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(path.stat(), os.fstat(descriptor)):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _new_stage(target: Path, *, folder: bool) -> tuple[Path, int]:
    for _ in range(100):  # another writer may clean a stage up before it is locked
        stage = _sibling(target, "tmp")
        if folder:
            stage.mkdir()
        else:
            stage.open("xb").close()
        lock = _lock(stage)
        if lock is not None:
            return stage, lock
        _remove(stage)
    message = "expected to lock a temporary file, got refused"
    raise SerializationError(message, code="NQX406", file=str(target))


def _clean_up(target: Path) -> None:
    """Removes the files of killed writers, and finishes or undoes their replacement."""
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
        return
    with suppress(OSError):
        path.unlink(missing_ok=True)


def sync_folder(path: Path) -> None:
    """Flushes the names in a folder to the disk, if the system can."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _took(stage: Path, target: Path, *, overwrite: bool, foreign: _Foreign) -> bool:
    """Publishes the stage; False if another writer took a free path first, and may be replaced too."""
    _refuse(target, overwrite=overwrite, foreign=foreign)
    try:
        _publish(stage, target, overwrite=overwrite)
    except BundleExistsError:
        if not overwrite:
            raise
        return False
    return True


def _publish(stage: Path, target: Path, *, overwrite: bool) -> None:
    """Gives the stage the name of the target; the old target moves to the stage's name, or is removed."""
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
    if number == errno.EEXIST and os.path.lexists(target):
        raise _existing(target)
    raise OSError(number, os.strerror(number), str(source), None, str(target))
