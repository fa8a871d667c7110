"""The files of a checkpoint of Orbax behind a URL, for tensorstore.

Tensorstore reads ``gs://``, ``s3://`` and ``http(s)://`` itself: it asks for the ranges that hold the wanted parts of arrays.
It has no drivers for other URLs, and does not take the options of fsspec, such as keys: such folders are downloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final
from urllib.parse import quote
from weakref import finalize

from neuralqx_struct.errors import StructError
from neuralqx_struct.formats.orbax_layout import Files
from neuralqx_struct.places.answers import bounded
from neuralqx_struct.places.requests import downloaded
from neuralqx_struct.places.urls import RemotePath

Replaced = Callable[[], StructError | None]
"""Returns the error for files that another program has replaced, or removed."""


def far_files(place: RemotePath, replaced: Replaced = lambda: None) -> Files:
    """The files in a folder behind a URL.

    Args:
        place: The folder.
        replaced: Returns the error for files that another program has replaced, or removed.
    """
    driver = driver_of(place)
    return DownloadedFiles(place) if driver is None else FarFiles(place, driver, replaced)


def driver_of(place: RemotePath) -> dict[str, Any] | None:
    """The description of a folder for tensorstore; None where it has no driver for the URL or for its options."""
    protocols = place.files.protocol
    name = protocols if isinstance(protocols, str) else protocols[0]
    url = f"{name}://"
    of_user = bounded(url, place.files.storage_options) != bounded(url, {})
    if of_user or name not in _DRIVERS or "?" in place.place:
        return None
    return _DRIVERS[name](place.place)


def _in_bucket(driver: str) -> Callable[[str], dict[str, Any]]:
    def described(place: str) -> dict[str, Any]:
        bucket, _, path = place.partition("/")
        return {"driver": driver, "bucket": bucket, "path": f"{path}/"}

    return described


def _on_server(place: str) -> dict[str, Any]:
    scheme, _, rest = place.partition("://")
    host, _, path = rest.partition("/")
    return {"driver": "http", "base_url": f"{scheme}://{host}", "path": f"/{quote(path)}/"}


#: By the first protocol of the file system of fsspec: the driver of tensorstore.
_DRIVERS: Final[Mapping[str, Callable[[str], dict[str, Any]]]] = {
    "gs": _in_bucket("gcs"),
    "s3": _in_bucket("s3"),
    "http": _on_server,
}


class FarFiles(Files):
    """The files in a folder that tensorstore reads by a driver of its own.

    Args:
        place: The folder.
        driver: Its description for tensorstore.
        replaced: Returns the error for files that another program has replaced, or removed.
    """

    def __init__(self, place: RemotePath, driver: dict[str, Any], replaced: Replaced) -> None:
        self._place, self._driver, self._replaced = place, driver, replaced

    def __fspath__(self) -> str:
        return str(self._place)

    def __str__(self) -> str:
        return f"{self._place}/"

    @cached_property
    def _sizes(self) -> dict[str, int]:
        found = self._place.files_below()
        return {name: int(facts.get("size") or 0) for name, facts in found.items()}

    @property
    def stored(self) -> int:
        """The size of all files."""
        return sum(self._sizes.values())

    def has(self, name: str) -> bool:
        """True if there was such a file when the folder was listed."""
        return name in self._sizes

    def content(self, name: str, most: int) -> bytes:
        """The bytes of a file, of a large one the first so many."""
        return (self._place / name).content(most)

    def driver(self, place: str) -> dict[str, Any]:
        """The description of a folder in it for tensorstore."""
        return {**self._driver, "path": f"{self._driver['path']}{place}"}

    def require_same(self, *, failed: bool) -> None:
        """Raises the error for files that were replaced, in place of that of tensorstore."""
        error = self._replaced() if failed else None
        if error is not None:
            raise error from None


class DownloadedFiles(Files):
    """The files in a folder behind a URL, copied to this disk while this object is used.

    Args:
        place: The folder.
    """

    def __init__(self, place: RemotePath) -> None:
        path, remove = downloaded(place, folder=True)
        super().__init__(path)
        self._place = place
        # Arrays are read after their bundle is closed, too.
        self._remove = finalize(self, remove)

    def __str__(self) -> str:
        return f"{self._place}/"

    def close(self) -> None:
        """Removes them."""
        self._remove()
