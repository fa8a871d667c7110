"""The files of a checkpoint of Orbax behind a URL, for tensorstore.

Tensorstore reads folders and HTTP servers, and none of the other file systems of fsspec. So a server on this machine,
of the loopback interface alone, passes its requests on: tensorstore asks for the ranges that hold the wanted parts of
arrays, in OCDBT too, and nothing else is fetched. The paths of that server begin with a secret, so that other users of the
machine cannot read through it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, Final
from urllib.parse import unquote
from weakref import finalize

from neuralqx_struct.bundle.urls import RemotePath
from neuralqx_struct.errors import StructError
from neuralqx_struct.stores.orbax_layout import Files

_RANGE: Final = re.compile(r"bytes=([0-9]{1,18})-([0-9]{0,18})")
_SMALL: Final = 64 << 10  # bytes of an answer that is kept: each array reads the nodes of OCDBT
_MOST_KEPT: Final = 1024  # answers
_POLL: Final = 0.02  # seconds until a server that is closed has ended


class FarFiles(Files):
    """The files in a folder behind a URL, which a server on this machine sends on while this object is used.

    Args:
        place: The folder.
        replaced: Returns the error for files that another program has replaced, or removed.
    """

    def __init__(
        self, place: RemotePath, replaced: Callable[[], StructError | None] = lambda: None
    ) -> None:
        self._place, self._replaced = place, replaced
        self._sent = _Sent(place)
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self._sent))
        Thread(target=server.serve_forever, args=(_POLL,), daemon=True).start()
        self._url = f"http://127.0.0.1:{server.server_port}"
        # Arrays are read after their bundle is closed, too.
        self._stop = finalize(self, _stop, server)

    def __fspath__(self) -> str:
        return f"{self._url}{self._sent.secret}"

    def __str__(self) -> str:
        return f"{self._place}/"

    @property
    def stored(self) -> int:
        """The size of all files."""
        return sum(self._sent.sizes.values())

    def has(self, name: str) -> bool:
        """True if there was such a file when the folder was listed."""
        return name in self._sent.sizes

    def content(self, name: str, most: int) -> bytes:
        """The bytes of a file, of a large one the first so many."""
        return self._sent.read(name, 0, min(self._sent.sizes[name], most))

    def driver(self, place: str) -> dict[str, Any]:
        """The description of a folder in it for tensorstore."""
        return {"driver": "http", "base_url": self._url, "path": f"{self._sent.secret}{place}"}

    def require_same(self, *, failed: bool) -> None:
        """Raises the error of the server behind the URL, if there is one, in place of that of tensorstore."""
        if failed:
            fault, self._sent.fault = self._sent.fault, None
            error = self._replaced() or fault
            if error is not None:
                raise error from None

    def close(self) -> None:
        """Stops the server."""
        self._stop()


def _stop(server: ThreadingHTTPServer) -> None:
    server.shutdown()
    server.server_close()


class _Sent:
    """The answers to requests for the files of a folder behind a URL."""

    def __init__(self, place: RemotePath) -> None:
        self._place = place
        found = place.files_below()
        self.sizes = {name: int(facts.get("size") or 0) for name, facts in found.items()}
        self.fault: StructError | None = None
        self.secret = f"/{secrets.token_urlsafe(16)}/"
        self._kept: dict[tuple[str, int, int], bytes] = {}
        self._lock = Lock()

    def answer(self, path: str, asked: str | None) -> tuple[int, Mapping[str, str], bytes]:
        """The status, the headers and the body for a path and a range."""
        name = unquote(path).removeprefix(self.secret)
        size = self.sizes.get(name)
        if not path.startswith(self.secret) or size is None:
            return 404, {}, b""
        match = _RANGE.fullmatch(asked or "bytes=0-")
        start = size if match is None else int(match[1])
        end = size if match is None or not match[2] else min(int(match[2]) + 1, size)
        if start >= end and (asked or size):
            return 416, {"Content-Range": f"bytes */{size}"}, b""
        try:
            data = self.read(name, start, end)
        except StructError as error:
            self.fault = error
            return 403, {}, b""  # tensorstore would ask again after errors of servers
        if asked is None:
            return 200, {}, data
        return 206, {"Content-Range": f"bytes {start}-{end - 1}/{size}"}, data

    def read(self, name: str, start: int, end: int) -> bytes:
        key = name, start, end
        held = self._kept.get(key)
        if held is not None:
            return held
        data = bytes((self._place / name).fetched(start, end)) if start < end else b""
        if len(data) <= _SMALL and len(self._kept) < _MOST_KEPT:
            with self._lock:
                self._kept[key] = data
        return data


def _handler(sent: _Sent) -> type[BaseHTTPRequestHandler]:
    """The class that answers the requests of a server."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, headers, body = sent.answer(self.path, self.headers.get("Range"))
            self.send_response(status)
            for name, text in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Prints nothing."""

    return Handler
