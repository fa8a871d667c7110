"""The files of a checkpoint of Orbax, on a disk or behind a URL, for tensorstore.

Tensorstore reads folders and HTTP servers, and none of the other file systems of fsspec. So a server on this machine,
of the loopback interface alone, passes its requests on: tensorstore asks for the ranges that hold the wanted parts of
arrays, in OCDBT too, and nothing else is fetched. The paths of that server begin with a secret, so that other users of the
machine cannot read through it.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Final, Protocol
from urllib.parse import unquote

from neuralqx_struct.bundle.urls import Place, RemotePath
from neuralqx_struct.errors import IntegrityError, StructError
from neuralqx_struct.formats.table import mapped
from neuralqx_struct.stores.orbax_layout import driver_path, faults_named, require_plain_files

_RANGE: Final = re.compile(r"bytes=([0-9]{1,18})-([0-9]{0,18})")
_SMALL: Final = (
    64 << 10
)  # bytes of an answer that is kept: the nodes of OCDBT are read for each array
_MOST_KEPT: Final = 1024  # answers
_POLL: Final = 0.02  # seconds until a server that is closed has ended


class Files(Protocol):
    """The files of a checkpoint.

    Attributes:
        stored: The size of all.
    """

    stored: int

    def has(self, name: str) -> bool:
        """True if there is such a file."""

    def content(self, name: str, most: int) -> bytes:
        """The bytes of a file, of a large one the first so many."""

    def driver(self, place: str) -> dict[str, Any]:
        """The description of a folder in it for tensorstore."""

    def faults(self, name: str | None) -> AbstractContextManager[None]:
        """Raises errors of tensorstore as errors about an array."""

    def close(self) -> None:
        """Ends their use."""


def files_of(place: Place) -> Files:
    """The files of a checkpoint at a place."""
    return _FarFiles(place) if isinstance(place, RemotePath) else _DiskFiles(place)


class _DiskFiles:
    """The files in a folder on a disk."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.stored = require_plain_files(root)

    def has(self, name: str) -> bool:
        return (self._root / name).is_file()

    def content(self, name: str, most: int) -> bytes:
        return bytes(mapped(self._root / name)[:most])

    def driver(self, place: str) -> dict[str, Any]:
        return {"driver": "file", "path": f"{driver_path(self._root)}/{place}"}

    def faults(self, name: str | None) -> AbstractContextManager[None]:
        return faults_named(self._root, name)

    def close(self) -> None:
        """Nothing is held."""


class _FarFiles(os.PathLike[str]):
    """The files in a folder behind a URL, which a server on this machine sends on."""

    def __init__(self, place: RemotePath) -> None:
        self._place = place
        found = place.files_below()
        self._sizes = {name: int(facts.get("size") or 0) for name, facts in found.items()}
        self.stored = sum(self._sizes.values())
        self._fault: StructError | None = None
        self._kept: dict[tuple[str, int, int], bytes] = {}
        self._lock = Lock()
        self._secret = f"/{secrets.token_urlsafe(16)}/"
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        Thread(target=self._server.serve_forever, args=(_POLL,), daemon=True).start()
        self._url = f"http://127.0.0.1:{self._server.server_port}"

    def __fspath__(self) -> str:
        return f"{self._url}{self._secret}"

    def __str__(self) -> str:
        return f"{self._place}/"

    def has(self, name: str) -> bool:
        return name in self._sizes

    def content(self, name: str, most: int) -> bytes:
        size = min(self._sizes[name], most)
        return self._bytes(name, 0, size)

    def driver(self, place: str) -> dict[str, Any]:
        return {"driver": "http", "base_url": self._url, "path": f"{self._secret}{place}"}

    @contextmanager
    def faults(self, name: str | None) -> Iterator[None]:
        """Raises the error of the server behind the URL, if there is one, in place of that of tensorstore."""
        self._fault = None
        try:
            with faults_named(self, name):
                yield
        except IntegrityError:
            fault = self._fault
            if fault is None:
                raise
            raise fault from None

    def close(self) -> None:
        """Stops the server."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, asked: str | None) -> tuple[int, Mapping[str, str], bytes]:
        """The status, the headers and the body for a path and a range."""
        name = unquote(path).removeprefix(self._secret)
        size = self._sizes.get(name)
        if not path.startswith(self._secret) or size is None:
            return 404, {}, b""
        match = _RANGE.fullmatch(asked or "bytes=0-")
        start = size if match is None else int(match[1])
        end = size if match is None or not match[2] else min(int(match[2]) + 1, size)
        if start >= end and (asked or size):
            return 416, {"Content-Range": f"bytes */{size}"}, b""
        try:
            data = self._bytes(name, start, end)
        except StructError as error:
            self._fault = error
            return 403, {}, b""  # tensorstore would ask again after errors of servers
        if asked is None:
            return 200, {}, data
        return 206, {"Content-Range": f"bytes {start}-{end - 1}/{size}"}, data

    def _bytes(self, name: str, start: int, end: int) -> bytes:
        key = name, start, end
        held = self._kept.get(key)
        if held is not None:
            return held
        data = bytes((self._place / name).fetched(start, end)) if start < end else b""
        if len(data) <= _SMALL and len(self._kept) < _MOST_KEPT:
            with self._lock:
                self._kept[key] = data
        return data


def _handler(files: _FarFiles) -> type[BaseHTTPRequestHandler]:
    """The class that answers the requests of a server."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, headers, body = files.answer(self.path, self.headers.get("Range"))
            self.send_response(status)
            for name, text in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Prints nothing."""

    return Handler
