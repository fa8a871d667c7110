"""Ranges of files behind ``http://`` and ``https://``, within bounds that hold whatever a server sends.

fsspec takes the whole answer of a server into memory, also of one that ignores the range or sends without end.
"""

from __future__ import annotations

import re
from typing import Any, Final

_PIECE: Final = 256 << 10  # bytes that are taken at a time
_FIRST: Final = re.compile(r"bytes (\d{1,18})-")
_NOT_FOUND: Final = 404


def is_http(files: Any) -> bool:
    """True for the file system of fsspec for these URLs."""
    return "http" in files.protocol and hasattr(files, "set_session")


def body(files: Any, url: str, start: int, end: int) -> bytes:
    """The bytes of a file from one place to another, at most; none if the server sends others.

    Raises:
        FileNotFoundError: There is no such file.
        OSError: The server refused.
    """
    from fsspec.asyn import sync

    found: bytes = sync(files.loop, _body, files, url, start, end)
    return found


async def _body(files: Any, url: str, start: int, end: int) -> bytes:
    headers = {**files.kwargs.get("headers", {}), "Range": f"bytes={start}-{end - 1}"}
    session = await files.set_session()
    asked = session.get(files.encode_url(url), **{**files.kwargs, "headers": headers})
    found = bytearray()
    async with asked as answer:
        if answer.status == _NOT_FOUND:
            raise FileNotFoundError(url)
        answer.raise_for_status()
        if _first_byte(answer) != start:
            return b""
        async for piece in answer.content.iter_chunked(_PIECE):
            found += piece[: end - start - len(found)]
            if len(found) == end - start:
                break
    return bytes(found)


def _first_byte(answer: Any) -> int | None:
    """The place of the first byte of an answer: of one without a range, the start of the file."""
    given = answer.headers.get("Content-Range")
    match = _FIRST.match(given or "bytes 0-")
    return None if match is None else int(match[1])
