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
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

from neuralqx_struct.places import far_process
from neuralqx_struct.places.apart import started
from neuralqx_struct.places.disk import OptionsError

#: Protocols with bounds in this process, see :mod:`answers`, where they are no part of a chain.
_BOUNDED: Final = {"http", "https", "s3", "s3a", "gs", "gcs"}
_HERE: Final = {"memory", "file", "local", "data"}
_FAULTS: Final = {
    kind.__name__: kind
    for kind in (FileNotFoundError, FileExistsError, ImportError, pickle.UnpicklingError)
}


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
        head, data = _answer(request, most)
        if "fault" in head:
            kind = _FAULTS.get(head["fault"]) or type(head["fault"], (OSError,), {})
            raise kind(head["text"])
        return data if work == "cat_file" else head["found"]

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
        self.ask("pipe_file", place, data, mode=mode)

    def put_file(self, source: str, place: str) -> None:
        """Uploads a file, which some packages take into memory."""
        path = Path(source).absolute()
        self.ask("put_file", str(path), place, most=path.stat().st_size)

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
        OptionsError: An option, such as a credential object, cannot be sent to another process.
    """
    from fsspec.config import conf

    chain = _chain(url)
    known = {protocol: _known(protocol) for protocol in chain if _known(protocol)}
    settings = {protocol: conf[protocol] for protocol in chain if protocol in conf}
    try:
        given = pickle.dumps((known, settings, dict(options)))
    except Exception as error:  # noqa: BLE001 - of any class of an option
        raise OptionsError(str(error)) from None
    made = FarFileSystem(url, given)
    try:
        place, token = made.ask("located")
    except pickle.UnpicklingError as error:
        raise OptionsError(str(error)) from None
    return _SYSTEMS.setdefault(token, made), place


Answer = tuple[dict[str, Any], bytes]


class _Process:
    """The process that asks servers."""

    def __init__(self) -> None:
        self.environment = dict(os.environ)
        self.ended = self.worn = False
        self._waiting: dict[int, Future[Answer]] = {}
        self._lock, self._numbers = threading.Lock(), count()
        self._process = started(far_process.__file__)
        self._thread = threading.Thread(target=self._receive, name="far", daemon=True)
        self._thread.start()

    @property
    def old(self) -> bool:
        """True if another one should take its place: variables, such as keys, have changed since, or it keeps too much."""
        changed = self.worn or self.environment != dict(os.environ)
        return self.ended or (changed and not self._waiting)

    def send(self, request: bytes, most: int) -> Future[Answer]:
        """Sends a request; to come are the answer and the bytes of a file behind it, at most so many."""
        future: Future[Answer] = Future()
        assert self._process.stdin is not None
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = future
        try:
            head = json.dumps((number, most, len(request)))
            self._process.stdin.write(head.encode() + b"\n" + request)
            self._process.stdin.flush()
        except OSError as error:  # it ended
            self._thread.join()
            if not future.done():
                future.set_exception(error)
        return future

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
                self.worn = head["worn"]
                future = self._waiting.pop(head["number"])
            future.set_result((head, data))
        stdout.close()
        words = f"it ended with status {self._process.wait()}"
        if self._process.returncode == far_process.FULL:
            words = f"the answer needs more than {far_process.MEMORY >> 20} MiB of memory"
        with self._lock:
            self.ended = True
            left = [*self._waiting.values()]
            self._waiting.clear()
        for future in left:
            future.set_exception(OSError(f"the process that asks the server was stopped: {words}"))

    def close(self) -> None:
        """Ends it."""
        assert self._process.stdin is not None
        with suppress(OSError):  # it ended before
            self._process.stdin.close()
        self._thread.join()


_SENDING: Final = threading.Lock()
_held: Final[list[_Process]] = []


def _answer(request: bytes, most: int) -> Answer:
    """The answer to a request."""
    with _SENDING:
        if _held and _held[0].old:
            _close()
        if not _held:
            _held.append(_Process())
        future = _held[0].send(request, most)
    return future.result()


@atexit.register
def _close() -> None:
    while _held:
        _held.pop().close()


def _forked() -> None:
    """A copy of this process starts one of its own."""
    _held.clear()
    _SENDING.release()


if sys.platform != "win32":
    os.register_at_fork(
        before=_SENDING.acquire,
        after_in_parent=_SENDING.release,
        after_in_child=_forked,
    )
