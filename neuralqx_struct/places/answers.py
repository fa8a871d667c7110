"""Bounds for the answers of servers that are reached over HTTP: of S3, of Google Cloud Storage, and of all of ``http(s)://``.

The packages of fsspec take the whole answer of a server into memory, also one that is longer than the requested range,
and all pages of a listing. They call ``content.read()`` of the answer of aiohttp. The attribute ``content`` may be
replaced: :class:`Content` takes its place, and ends with an error at the bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from typing import Any, Final

from neuralqx_struct.places.http import client

#: Bytes of all answers without a range in one call, such as the pages of a listing: some 400 000 names of S3.
_MOST_FACTS: Final = 128 << 20
_ONE: Final = 8 << 10  # bytes that each of them counts beside its own: pages without names end, too
_RANGE: Final = re.compile(r"bytes=(\d{1,18})-(\d{1,18})")
_ERROR: Final = 300  # the first status of refusals


class _Left:
    """The bytes that answers may still have; all those of one call count down the same."""

    def __init__(self, most: int) -> None:
        self._most = self._count = most

    def take(self, count: int) -> None:
        self._count -= count
        if self._count < 0:
            message = f"at most {self._most} bytes were expected, and more came"
            raise OSError(message)


_CALL: Final[ContextVar[_Left | None]] = ContextVar("_CALL", default=None)


@contextmanager
def one_call() -> Iterator[None]:
    """Bounds the answers without a range together; fsspec takes the context to its own thread."""
    before = _CALL.set(_Left(_MOST_FACTS))
    try:
        yield
    finally:
        _CALL.reset(before)


class Content:
    """The content of an answer of aiohttp, which ends with an error if it is longer than it may be."""

    def __init__(self, answer: Any) -> None:
        self._stream = answer.content
        headers = answer.request_info.headers
        asked = _RANGE.fullmatch(headers.get("Range", "")) if answer.status < _ERROR else None
        if asked is None:
            self._left, self._least = _CALL.get() or _Left(_MOST_FACTS), _ONE
        else:
            self._left, self._least = _Left(max(int(asked[2]) + 1 - int(asked[1]), 0)), 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def read(self, size: int = -1) -> bytes:
        """The next bytes, at most so many, or all that are left."""
        if size >= 0:  # who asks for so many at a time has room for them
            some: bytes = await self._stream.read(size)
            return some
        self._left.take(self._least)
        found = bytearray()
        while piece := await self._stream.readany():
            self._left.take(len(piece))
            found += piece
        return bytes(found)


def bounded(url: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of fsspec for a URL, with those that bound the answers."""
    return {**options, **_own(url.partition("://")[0].lower(), options)}


def _own(protocol: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that bound the answers of a server; what options of the user say stays as it is."""
    if protocol in {"http", "https"}:
        return {"get_client": options.get("get_client", _http_client)}
    with suppress(ImportError):  # fsspec tells what to install
        if protocol in {"s3", "s3a"}:
            given = options.get("config_kwargs") or {}
            return {"config_kwargs": {"http_session_cls": _s3_session(), **given}}
        if protocol in {"gs", "gcs"}:
            given = options.get("session_kwargs") or {}
            return {"session_kwargs": {"response_class": _answer(), **given}}
    return {}


@cache
def _answer() -> type[Any]:
    """The class of answers for a session of aiohttp."""
    from aiohttp import ClientResponse

    class Answer(ClientResponse):
        async def start(self, connection: Any) -> Any:
            await super().start(connection)
            self.content = Content(self)  # type: ignore[assignment]
            return self

    return Answer


async def _http_client(**options: Any) -> Any:
    return await client(**{"response_class": _answer(), **options})


@cache
def _s3_session() -> type[Any]:
    """The class of sessions for clients of aiobotocore."""
    from aiobotocore.httpsession import AIOHTTPSession

    class Session(AIOHTTPSession):  # type: ignore[misc]
        async def send(self, request: Any) -> Any:
            streamed, request.stream_output = request.stream_output, True
            answer = await super().send(request)
            raw = answer.raw
            raw.content = Content(raw)
            if not streamed:
                try:
                    await answer.content
                except OSError:
                    raw.close()
                    raise
            return answer

    return Session
