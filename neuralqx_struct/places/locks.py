"""Locks of files and folders between processes, and the turns of the writers of a folder.

A lock ends with the process that took it: a forked child closes the descriptors that it got of its parent. A turn
belongs to the whole process, so that a save inside another save, or in the handler of a signal, never waits for itself.
Its writer leaves a note with its process and host in the folder, which those who wait for it show.

Example:
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with turn(folder), turn(folder, timeout=0):
    ...     [path.name for path in folder.iterdir()]
    ['.writer']
    >>> [*folder.iterdir()]
    []
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from neuralqx_struct.places.disk import BundleBusyError, numbered

_NOTE: Final = ".writer"
_LONGEST: Final = 512  # bytes of a note
_PAUSE: Final = 0.02
_SAID_AFTER: Final = 5.0  # seconds of a wait before it is logged


class Descriptors(list[int]):
    """Open descriptors of locked files; a forked child closes its copies."""

    def __init__(self) -> None:
        super().__init__()
        _ALL[id(self)] = self


_ALL: Final[WeakValueDictionary[int, Descriptors]] = WeakValueDictionary()


class _Turn:
    """The lock of a folder for all writers of this process; ``writers`` has a token for each."""

    def __init__(self) -> None:
        self.writers: set[object] = set()
        self.held = Descriptors()


#: The turns by device and number of the folder.
_TURNS: Final[dict[tuple[int, int], _Turn]] = {}
# Signals come between any two instructions: the thread of the handler may take it again.
_GUARD = threading.RLock()


def _forget() -> None:
    """Closes the copies of a forked child. The locks stay those of the parent: unlocking would end them there too."""
    for held in [*_ALL.values()]:
        while held:
            os.close(held.pop())
    _TURNS.clear()
    global _GUARD  # noqa: PLW0603 - another thread of the parent may have it
    _GUARD = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


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


def unlock(held: Descriptors) -> None:
    """Unlocks and closes the descriptors."""
    with suppress(ImportError, OSError, IndexError):  # closing is not enough where others share it
        import fcntl

        fcntl.flock(held[-1], fcntl.LOCK_UN)
    while held:
        with suppress(IndexError):  # a handler of a signal came between
            os.close(held.pop())


@contextmanager
def turn(folder: Path, timeout: float | None = None) -> Iterator[None]:
    """Lets the writers of one process at a time work in a folder, where the system has locks; others wait.

    Args:
        folder: The folder.
        timeout: Seconds to wait for another process; None for any time. After five it is logged who has the turn.

    Raises:
        BundleBusyError: The time is over.
    """
    mine = object()
    try:
        _take(folder, mine, timeout)
        yield
    finally:
        _leave(folder, mine)


def _take(folder: Path, mine: object, timeout: float | None) -> None:
    taken = _joined(folder, mine)
    began, said = time.monotonic(), False
    while (done := lock(taken.held[-1]) if taken.held else None) is False:
        waited = time.monotonic() - began
        if timeout is not None and waited >= timeout:
            raise _busy(folder, waited)
        if waited >= _SAID_AFTER and not said:
            said = True
            import logging  # most saves wait for nobody

            log = logging.getLogger("neuralqx_struct")
            log.warning("%s", _busy(folder, waited).diagnostics[0])
        time.sleep(_PAUSE)
    if done:
        with suppress(OSError):
            (folder / _NOTE).write_text(f"{os.getpid()} {_host()}", encoding="utf-8")


def _joined(folder: Path, mine: object) -> _Turn:
    """The turn of this process in a folder, which a token joins."""
    with _GUARD:
        seen = folder.stat()
        key = seen.st_dev, seen.st_ino
        found: _Turn | None = None
        while found is None or _TURNS.get(key) is not found:  # a handler of a signal may end it
            found = _TURNS.setdefault(key, _Turn())
            found.writers.add(mine)
        if not found.held:
            with suppress(OSError):  # Windows opens no folders
                found.held.append(os.open(folder, os.O_RDONLY))
    return found


def _leave(folder: Path, mine: object) -> None:
    with _GUARD:
        for key, found in [*_TURNS.items()]:
            if mine not in found.writers:
                continue
            if found.writers == {mine} and found.held and lock(found.held[-1]):
                with suppress(OSError):
                    (folder / _NOTE).unlink()
            found.writers.discard(mine)
            if not found.writers:
                unlock(found.held)
            if not found.writers and _TURNS.get(key) is found:
                del _TURNS[key]


def _host() -> str:
    import socket

    return socket.gethostname()


def _busy(folder: Path, waited: float) -> BundleBusyError:
    """The error for a folder in which another process has the turn."""
    process: int | None = None
    host: str | None = None
    with suppress(OSError, ValueError), (folder / _NOTE).open("rb") as note:
        number, _, name = note.read(_LONGEST).decode("utf-8").partition(" ")
        process, host = int(number), name
    holder = "another process" if process is None else f"process {process} on host {host}"
    message = f"expected to save a step, got a folder that {holder} is writing to, still after {waited:.0f} s"
    hint = "wait for that process or end it, or one that it forked; timeout= ends the wait"
    error = BundleBusyError(message, file=str(folder), hint=hint)
    error.process, error.host = process, host
    return numbered(error, errno.ETIMEDOUT, folder)
