"""The process that asks servers through those packages of fsspec that take whatever a server sends.

It runs apart from the package, which ``far.py`` starts. Its memory and the files that a package stores on the way are
limited. Each request is a line of JSON with pickled bytes behind it, each answer one with bytes of a file; several
requests run at a time. When its input ends it ends too, whatever it waits for.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache, partial
from hashlib import sha256
from inspect import signature
from typing import Any

if sys.platform != "win32":  # which has no such limits
    import resource

AT_ONCE = 16  # requests
#: Bytes of memory beside those that are asked for: for listings, and what a server sends too much.
MEMORY = 1 << 30
LONGEST = 128 << 20  # bytes of an answer that is no part of a file
FULL = 3  # the exit status of a process without memory
_TEXT = 10_000  # characters of an error
_PAUSE = 0.02  # seconds between two looks at the memory
_COPIES = 4  # of the bytes of a file, while they are received and put together


class Bounds:
    """The limits of this process, which grow by what is asked for and fall again when it was sent.

    A package may catch the error that there is no memory, and take what it has for the whole. So the process ends at a
    limit of its own, and that of the system, at which this error comes, is twice as high.

    Args:
        full: Ends this process.
    """

    def __init__(self, full: Callable[[], None]) -> None:
        self._full, self._changes = full, threading.Condition()
        self._running = self._asked = 0
        self._start = _used()
        self._longest = _soft(resource.RLIMIT_FSIZE) if sys.platform != "win32" else 0
        if sys.platform == "linux":
            threading.Thread(target=self._watch, daemon=True).start()

    def enter(self, size: int) -> None:
        """Begins a request that may take so many bytes."""
        with self._changes:
            self._running += 1
            self._asked += size
            if sys.platform == "linux":
                _limit(resource.RLIMIT_DATA, self._start + 2 * self._most)
            if sys.platform != "win32":  # one file does not fill a disk
                half = shutil.disk_usage(tempfile.gettempdir()).free // 2
                _limit(resource.RLIMIT_FSIZE, min(half, self._longest))
            self._changes.notify()

    def leave(self, size: int) -> None:
        """Ends a request that might take so many bytes, and no longer has them."""
        with self._changes:
            self._running -= 1
            self._asked -= size

    @property
    def worn(self) -> bool:
        """True if so much is kept of earlier answers that another process should take the next requests."""
        return _used() > self._start + self._most - MEMORY // 2

    @property
    def _most(self) -> int:
        return MEMORY + _COPIES * self._asked

    def _watch(self) -> None:
        while True:
            with self._changes:
                self._changes.wait_for(lambda: self._running)
                if _used() > self._start + self._most:
                    self._full()
            time.sleep(_PAUSE)


def _used() -> int:
    """Bytes of the memory that the limit counts; 0 where there is none."""
    with suppress(OSError), open("/proc/self/statm", "rb") as file:  # noqa: PTH123
        return int(file.read().split()[5]) * resource.getpagesize()
    return 0


def _soft(kind: int) -> int:
    soft = resource.getrlimit(kind)[0]
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    soft = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (soft, hard))


_LOCATING = threading.Lock()


@lru_cache(maxsize=256)
def _found(url: str, given: bytes) -> tuple[Any, str]:
    from fsspec.config import conf
    from fsspec.core import url_to_fs
    from fsspec.registry import known_implementations

    try:
        known, settings, options = pickle.loads(given)  # noqa: S301 - of the process that started this one
    except Exception as error:  # noqa: BLE001 - of any class of an option
        raise pickle.UnpicklingError(str(error)) from None
    for protocol, name in known.items():
        known_implementations.setdefault(protocol, {"class": name})
    conf.update(settings)
    found: tuple[Any, str] = url_to_fs(url, **options)
    return found


def done(url: str, given: bytes, work: str, *arguments: Any, **words: Any) -> Any:
    """The result of a method of the file system of a URL."""
    with _LOCATING:
        files, place = _found(url, given)
    if work == "located":  # equal texts are those of one file system
        facts = (
            type(files).__qualname__,
            files.storage_args,
            sorted(files.storage_options.items()),
        )
        return place, sha256(repr(facts).encode()).hexdigest()
    method = getattr(files, work)
    if words:
        taken = signature(method).parameters
        words = {name: value for name, value in words.items() if name in taken}
    return method(*arguments, **words)


def plain(found: Any) -> Any:
    """A result as JSON has it; of facts those that are used."""
    if isinstance(found, dict) and isinstance(found.get("name"), str):
        return {name: found.get(name) for name in ("name", "type", "size")}
    if isinstance(found, dict):
        return {str(name): plain(facts) for name, facts in found.items()}
    if isinstance(found, (list, tuple)):
        return [plain(each) for each in found]
    return found if isinstance(found, (str, int)) else None


def fault(error: BaseException) -> dict[str, Any]:
    """The answer to a request that failed."""
    known = (FileNotFoundError, FileExistsError, ImportError)
    kind = next((kind for kind in known if isinstance(error, kind)), type(error))
    return {"fault": kind.__name__, "text": str(error)[:_TEXT]}


def main() -> None:
    """Answers each request."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one decides
    source, target = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for file in (0, 1):  # of packages that ask or print
        os.dup2(null, file)
    tempfile.tempdir = folder = tempfile.mkdtemp(prefix="neuralqx-struct-")
    writing = threading.Lock()

    def end(status: int) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(status)

    bounds = Bounds(partial(end, FULL))

    def answer(number: int, most: int, request: bytes) -> None:
        data, found, arguments = b"", None, ()
        try:
            try:
                arguments, words = pickle.loads(request)  # noqa: S301 - as above
                found = done(*arguments, **words)
                if isinstance(found, bytes):
                    data, found = found[:most], ""
                head = {"found": plain(found), "nbytes": len(data)}
                if len(json.dumps(head)) > LONGEST:
                    message = f"at most {LONGEST} bytes of a listing were expected, and more came"
                    raise OSError(message)
            except MemoryError:
                raise
            except BaseException as error:  # noqa: BLE001 - of any package
                head, data = fault(error), b""
            line = json.dumps({"number": number, "worn": bounds.worn, **head}).encode()
            with writing:
                target.write(line + b"\n")
                target.write(data)
                target.flush()
        except BaseException:  # noqa: BLE001 - without memory nothing is sure to go on
            end(FULL)
        size = most + len(request)
        del data, found, arguments, request
        bounds.leave(size)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            while line := source.readline():
                number, most, size = json.loads(line)
                request = source.read(size)
                bounds.enter(most + size)
                pool.submit(answer, number, most, request)
        finally:
            end(0)


if __name__ == "__main__":
    sys.path[:] = json.loads(sys.argv[1])
    main()
