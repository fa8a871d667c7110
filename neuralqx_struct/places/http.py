"""Files and folders behind ``http://`` and ``https://``, within bounds that hold whatever a server sends.

fsspec takes the whole answer of a server into memory, also of one that ignores the range or sends without end, and its
pattern for the links of a page takes time without end for some pages. So answers are read here, by the session of
fsspec. A redirect to another host does not get the headers, the cookies and the password that were given for the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urljoin

_PIECE: Final = 256 << 10  # bytes that are taken at a time
_FIRST: Final = re.compile(r"bytes (\d{1,18})-")
_NOT_FOUND: Final = 404
_PARTIAL: Final = 206
_LONGEST_PAGE: Final = 16 << 20  # bytes
_MOST_FOLDERS: Final = 20_000
_MOST_NAMES: Final = 1_000_000
_LINK: Final = re.compile(r"""href=["']([^"'<>\s]{1,2048})["']""", re.IGNORECASE)
#: The headers that another host gets: all others may be secrets.
_PUBLIC: Final = frozenset({"accept", "accept-encoding", "range", "user-agent"})


def is_http(files: Any) -> bool:
    """True for the file system of fsspec for these URLs."""
    return "http" in files.protocol and hasattr(files, "set_session")


async def client(**options: Any) -> Any:
    """A session of aiohttp that gives another host no secrets; the argument ``get_client`` of fsspec."""
    from aiohttp import ClientSession, TraceConfig

    traces = TraceConfig()
    traces.on_request_redirect.append(_redirected)
    headers = dict(options.pop("headers", None) or {})
    auth, cookies = options.pop("auth", None), options.pop("cookies", None)
    if auth is not None:  # a session sends these to every host, a request to its own
        headers["Authorization"] = auth.encode()
    if isinstance(cookies, Mapping):
        headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
    elif cookies is not None:
        options["cookies"] = cookies
    configs = [*(options.pop("trace_configs", None) or ()), traces]
    return ClientSession(
        headers=headers, trace_configs=configs, **{"auto_decompress": False, **options}
    )


async def _redirected(_: Any, __: Any, step: Any) -> None:
    """Takes the headers that may be secrets from a request that goes on at another host."""
    from yarl import URL

    same = False
    with suppress(ValueError):
        found = step.response.headers
        target = step.url.join(URL(found.get("Location") or found.get("URI") or ""))
        same = target.origin() == step.url.origin()
    for name in () if same else {*step.headers}:
        if name.lower() not in _PUBLIC:
            step.headers.popall(name, None)


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
    asked = await _asked(files, url, {"Range": f"bytes={start}-{end - 1}"})
    async with asked as answer:
        _require_found(answer, url)
        if _first_byte(answer) != start:
            return b""
        return await _taken(answer, end - start)


async def _asked(files: Any, url: str, headers: Mapping[str, str]) -> Any:
    """A request of a whole answer, which is not compressed."""
    own = files.kwargs.get("headers", {})
    session = await files.set_session()
    wanted = {**own, **headers, "Accept-Encoding": "identity"}
    return session.get(files.encode_url(url), **{**files.kwargs, "headers": wanted})


def _require_found(answer: Any, url: str) -> None:
    if answer.status == _NOT_FOUND:
        raise FileNotFoundError(url)
    answer.raise_for_status()


def _first_byte(answer: Any) -> int | None:
    """The place of the first byte of an answer: of a whole one, the start of the file."""
    given = answer.headers.get("Content-Range")
    if given is None:
        return None if answer.status == _PARTIAL else 0
    match = _FIRST.match(given)
    return None if match is None else int(match[1])


async def _taken(answer: Any, most: int) -> bytes:
    """The first bytes of an answer; no more are taken."""
    found = bytearray()
    async for piece in answer.content.iter_chunked(_PIECE):
        found += piece[: most - len(found)]
        if len(found) == most:
            break
    return bytes(found)


# Folders


def listing(files: Any, url: str) -> dict[str, Mapping[str, Any]]:
    """The files and folders that the page of a folder links to, by name; their sizes are not known.

    Raises:
        FileNotFoundError: There is no such page.
        OSError: The server refused, or the page is too long.
    """
    from fsspec.asyn import sync

    page: bytes = sync(files.loop, _page, files, url)
    if len(page) > _LONGEST_PAGE:
        message = f"a page of at most {_LONGEST_PAGE} bytes was expected, and a longer one came"
        raise OSError(message)
    return {name: {"name": name, "size": None, "type": kind} for name, kind in _linked(page, url)}


async def _page(files: Any, url: str) -> bytes:
    async with await _asked(files, url, {}) as answer:
        _require_found(answer, url)
        kind = answer.headers.get("Content-Type", "text/html")
        if kind.partition(";")[0].strip() != "text/html":
            return b""
        return await _taken(answer, _LONGEST_PAGE + 1)


def _linked(page: bytes, url: str) -> Iterator[tuple[str, str]]:
    """Yields the name and the type of what a page links to in its own folder."""
    folder = f"{url.partition('?')[0].rstrip('/')}/"
    _, _, above = folder.partition("://")
    for link in _LINK.findall(page.decode("utf-8", "ignore")):
        try:
            target = urljoin(folder, link).partition("?")[0].partition("#")[0]
        except ValueError:
            continue
        _, _, place = target.partition("://")  # http and https have the same files
        name, inside, _ = place.removeprefix(above).partition("/")
        if place.startswith(above) and name not in ("", ".", ".."):
            yield name, "directory" if inside else "file"


def files_below(files: Any, url: str) -> dict[str, Mapping[str, Any]]:
    """The files in a folder and in the folders below it, by relative path.

    Raises:
        FileNotFoundError: There is no such folder.
        OSError: The server refused, or does not end.
    """
    start, mark, query = url.partition("?")
    found: dict[str, Mapping[str, Any]] = {}
    waiting = [""]
    for asked, above in enumerate(waiting):
        for name, facts in listing(files, f"{start.rstrip('/')}/{above}{mark}{query}").items():
            if facts["type"] == "directory":
                waiting.append(f"{above}{name}/")
            else:
                found[f"{above}{name}"] = facts
        if max(asked, len(waiting)) > _MOST_FOLDERS or len(found) > _MOST_NAMES:
            message = f"at most {_MOST_FOLDERS} folders and {_MOST_NAMES} files were expected, and more came"
            raise OSError(message)
    return found
