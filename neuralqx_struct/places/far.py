"""Servers that a process with limits asks: all that fsspec reaches but S3, Google Cloud Storage and ``http(s)://``.

Their packages, such as those of Azure and of the Hugging Face hub, take an answer as it comes, and chains such as
``simplecache::`` store files whole. That happens in one process beside this one, see :mod:`far_process`, which gets no
more memory than requests need and hands on no more than was asked for. File systems of this machine and this process are
no servers: ``memory://``, ``file://``, and those of a class that your program registers with fsspec.
"""

from __future__ import annotations

import atexit
import json
import os
import pickle
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from itertools import count
from typing import Any, Final

from neuralqx_struct.places import far_process
from neuralqx_struct.places.apart import started

#: Protocols with bounds in this process, see :mod:`answers`, where they are no part of a chain.
_BOUNDED: Final = {"http", "https", "s3", "s3a", "gs", "gcs"}
_HERE: Final = {"memory", "file", "local", "data"}
_FAULTS: Final = {kind.__name__: kind for kind in (FileNotFoundError, FileExistsError, ImportError)}


def is_far(url: str) -> bool:
    """True for a URL that the process with limits asks for."""
    chain = _chain(url)
    if chain[-1] in (_BOUNDED | _HERE if len(chain) == 1 else _HERE):
        return False
    return not any(map(_is_own, chain))


def _chain(url: str) -> list[str]:
    """The protocols of a URL; the last one has the files."""
    return [part.partition("://")[0].lower() for part in url.split("::") if part]


def _is_own(protocol: str) -> bool:
    """True if this program registered a class of its own."""
    from fsspec.registry import registry

    made = registry.get(protocol)
    if made is None:
        return False
    module, _, name = _known(protocol).replace(":", ".").rpartition(".")
    return getattr(sys.modules.get(module), name, None) is not made


def _known(protocol: str) -> str:
    """Where fsspec finds the class of a protocol."""
    from fsspec.registry import known_implementations

    name: str = known_implementations.get(protocol, {}).get("class", "")
    return name


class FarFileSystem:
    """The file system of a URL, with the methods of fsspec that this package uses.

    Args:
        url: A URL in it.
        given: The options, pickled.
    """

    def __init__(self, url: str, given: bytes) -> None:
        self.protocol = _chain(url)[0]
        self.storage_options: Mapping[str, Any] = {}
        self._url, self._given = url, given

    def ask(self, work: str, *arguments: Any, most: int = 0, **words: Any) -> Any:
        """The result of a method, or the error."""
        request = pickle.dumps(((self._url, self._given, work, *arguments), words))
        head, data = _process().ask(request, most)
        if "fault" in head:
            kind = _FAULTS.get(head["fault"]) or type(head["fault"], (OSError,), {})
            raise kind(head["text"])
        return data if head["found"] is None else head["found"]

    def info(self, place: str) -> Mapping[str, Any]:
        """The facts about a file or folder."""
        found: Mapping[str, Any] = self.ask("info", place)
        return found

    def ls(self, place: str, *, detail: bool) -> list[Mapping[str, Any]]:
        """The facts about what is in a folder."""
        found: list[Mapping[str, Any]] = self.ask("ls", place, detail=detail)
        return found

    def find(self, place: str, *, detail: bool) -> Mapping[str, Any]:
        """The facts about the files below a folder."""
        found = self.ask("find", place, detail=detail)
        if isinstance(found, list):  # adlfs has a list where the place is a file
            return {name: {"name": name, "type": "file", "size": None} for name in found}
        return dict(found)

    def invalidate_cache(self, place: str) -> None:
        """Forgets facts."""
        self.ask("invalidate_cache", place)

    def cat_file(self, place: str, start: int, end: int) -> bytes:
        """The bytes from one place to another; no more."""
        found: bytes = self.ask("cat_file", place, start, end, most=end - start)
        return found

    def pipe_file(self, place: str, data: bytes, mode: str = "overwrite") -> None:
        """Writes a file; the mode is left out where the server has none."""
        words = {} if mode == "overwrite" else {"mode": mode}
        self.ask("pipe_file", place, data, **words)

    def put_file(self, source: str, place: str) -> None:
        """Uploads a file."""
        self.ask("put_file", os.path.abspath(source), place)  # noqa: PTH100

    def cp_file(self, source: str, place: str) -> None:
        """Copies a file on the server."""
        self.ask("cp_file", source, place)

    def rm_file(self, place: str) -> None:
        """Removes a file."""
        self.ask("rm_file", place)


_SYSTEMS: Final[dict[str, FarFileSystem]] = {}


def url_to_fs(url: str, options: Mapping[str, Any]) -> tuple[FarFileSystem, str]:
    """The file system of a URL, one object for each, and the place in it.

    Raises:
        pickle.PicklingError: An option cannot be sent to another process.
    """
    from fsspec.config import conf

    chain = _chain(url)
    known = {protocol: _known(protocol) for protocol in chain if _known(protocol)}
    settings = {protocol: conf[protocol] for protocol in chain if protocol in conf}
    try:
        given = pickle.dumps((known, settings, dict(options)))
    except Exception as error:
        raise pickle.PicklingError(str(error)) from None
    made = FarFileSystem(url, given)
    place, token = made.ask("located")
    return _SYSTEMS.setdefault(token, made), place


class _Process:
    """The process that asks servers."""

    def __init__(self) -> None:
        self.environment, self.owner = dict(os.environ), os.getpid()
        self.ended = False
        self.waiting: dict[int, Future[tuple[dict[str, Any], bytes]]] = {}
        self._lock, self._numbers = threading.Lock(), count()
        self._process = started(far_process.__file__)
        self._thread = threading.Thread(target=self._receive, name="far", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def ask(self, request: bytes, most: int) -> tuple[dict[str, Any], bytes]:
        """The answer to a request, and the bytes of a file behind it, at most so many."""
        future: Future[tuple[dict[str, Any], bytes]] = Future()
        stdin = self._process.stdin
        assert stdin is not None
        try:
            with self._lock:
                number = next(self._numbers)
                self.waiting[number] = future
                head = json.dumps((number, most, len(request)))
                stdin.write(head.encode() + b"\n" + request)
                stdin.flush()
        except (OSError, ValueError):
            self._thread.join()
            raise self._error() from None
        return future.result()

    def _receive(self) -> None:
        """Hands on the answers until the process ends."""
        stdout = self._process.stdout
        assert stdout is not None
        while (line := stdout.readline()).endswith(b"\n"):
            head = json.loads(line)
            data = stdout.read(head.get("nbytes", 0))
            if len(data) < head.get("nbytes", 0):
                break
            with self._lock:
                future = self.waiting.pop(head["number"])
            future.set_result((head, data))
        stdout.close()
        self._process.wait()
        with self._lock:
            self.ended = True
            assert self._process.stdin is not None
            self._process.stdin.close()
            left = [*self.waiting.values()]
            self.waiting.clear()
        for future in left:
            future.set_exception(self._error())

    def _error(self) -> OSError:
        least = far_process.MEMORY >> 20
        return OSError(
            f"the process that asks the server ended: its answer needs more than {least} MiB of memory"
        )

    def close(self) -> None:
        """Ends it."""
        if self.owner == os.getpid() and not self.ended:
            with self._lock:
                assert self._process.stdin is not None
                self._process.stdin.close()
            self._thread.join()
        atexit.unregister(self.close)


_STARTING: Final = threading.Lock()
_held: list[_Process] = []


def _process() -> _Process:
    """The process of this one; another one after that has ended, or if variables such as keys have changed."""
    with _STARTING:
        if _held:
            held = _held[0]
            old = held.environment != dict(os.environ) and not held.waiting
            if held.ended or held.owner != os.getpid() or old:
                _held.clear()
                held.close()
        if not _held:
            _held.append(_Process())
        return _held[0]
