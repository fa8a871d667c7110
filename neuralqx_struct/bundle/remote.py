"""Bundles behind URLs: read in ranges, and written so that the manifest is the commit.

A reader fetches the manifest, and of the array files the ranges of the arrays that are wanted, several at a
time; ``uploads.py`` writes. A zip is downloaded whole.

Example:
    >>> from neuralqx_struct.bundle import read, write
    >>> from neuralqx_struct.manifest.payload import Payload
    >>> path = write("memory://docs/remote/ckpt", Payload({"version": 1, "manifest": 5, "arrays": {}}, {}))
    >>> read(path).document["manifest"]
    5
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from neuralqx_struct.bundle.storage import Opened, Zip
from neuralqx_struct.errors import (
    Diagnostic,
    IntegrityError,
    StructError,
)
from neuralqx_struct.formats.files import FileArrays
from neuralqx_struct.formats.ranges import Ranges, StoredArray, recorded
from neuralqx_struct.formats.store import Access, Records, about_each
from neuralqx_struct.manifest import MANIFEST
from neuralqx_struct.manifest.payload import StoredArrays
from neuralqx_struct.places.disk import BundleMissingError, BundleReplacedError, Source, copy_region
from neuralqx_struct.places.names import shown_names
from neuralqx_struct.places.requests import Ahead, download_tree, downloaded_region
from neuralqx_struct.places.steps import Contents, contents
from neuralqx_struct.places.urls import RemotePath

_T = TypeVar("_T")
# Reading


class Remote(Opened):
    """An open bundle behind a URL; nothing is fetched before it is used.

    Args:
        place: The folder.
        most: The bytes above which its manifest is refused.
    """

    path: RemotePath
    has_files = True
    is_folder = True
    exclusive = False  # a writer that was stopped leaves array files

    def __init__(self, place: RemotePath, most: int) -> None:
        self.path = place
        self._most = most
        self._manifest = b""
        self._folders: set[str] = set()
        self._files: list[BinaryIO] = []

    @cached_property
    def _sizes(self) -> Mapping[str, int | None]:
        try:
            found = self.path.listing()
        except BundleMissingError:
            return {}
        return {
            name: sys.maxsize if facts.get("type") == "directory" else facts.get("size")
            for name, facts in found.items()
        }

    def names(self) -> list[str]:
        """The names of the files."""
        return shown_names(self._sizes)

    def hold(self, name: str, *, folder: bool = False) -> int | None:
        """Fetches the manifest; the size of other files is not known, nor whether they are there."""
        if folder:
            self._folders.add(name)
        if name != MANIFEST:
            return sys.maxsize
        try:
            self._manifest = (self.path / MANIFEST).opening(self._most + 1)
        except BundleMissingError:
            return None
        return len(self._manifest)

    def measured(self, name: str, held: int) -> int | None:  # noqa: ARG002
        """The size of a file, of all files by one request."""
        size = self._sizes.get(name)
        if size is None:
            raise self.missing(name)
        return size

    def source(self, name: str, most: Callable[[], int]) -> Source:  # noqa: ARG002
        """The manifest; a folder, whose files are fetched as they are used; or a whole file, which is downloaded."""
        if name == MANIFEST:
            return memoryview(self._manifest)
        if name in self._folders:
            from neuralqx_struct.formats.orbax_remote import far_files

            return self.reading(name, lambda: far_files(self.path / name, self._replaced))
        size = self._sizes.get(name)
        if size is None:
            raise self.missing(name)
        region = self.reading(name, lambda: downloaded_region(self.path / name, size))
        self._files.append(region[0])
        return region

    def ranged(self, file: str, records: Records, access: Access) -> StoredArrays | None:
        """The arrays of a file, if all have a place in it; others come with the whole file.

        Raises:
            IntegrityError: Records do not agree with themselves: all problems.
        """
        located = {"offset", "nbytes", "crc32"}
        if not all(located <= record.keys() for record in records.values()):
            return None
        found: list[Diagnostic] = []
        arrays: dict[str, StoredArray] = {}
        for name, record in records.items():
            try:
                arrays[name] = recorded(record)
            except StructError as error:
                found += about_each(name, error)
        if found:
            raise IntegrityError(found)
        ahead = Ahead((self.path / file).fetched)

        def read(start: int, end: int) -> memoryview:
            return self.reading(file, lambda: ahead.read(start, end))

        data = Ranges(sys.maxsize, read, memoryview(b""), cheap=False, expect=ahead.expect)
        return FileArrays(data, arrays, access, self.explained)

    def link(self, name: str, target: Path) -> bool:
        """Downloads a folder; False for a file, which has a source of its own."""
        if name not in self._folders:
            return False
        download_tree(self.path / name, target)
        return True

    def reading(self, file: str, read: Callable[[], _T]) -> _T:
        """The result of reading an array file; finds the reason if it is not there, or another one.

        Raises:
            BundleReplacedError: Another program has replaced the bundle.
            IntegrityError: The bundle has no such file, or the file is damaged.
            BundleReadError: The server did not send its bytes.
        """
        try:
            return read()
        except BundleMissingError:
            raise self.missing(file) from None
        except StructError as error:
            if error.code != "NQX408":
                raise
            raise self.explained(error) from None

    def missing(self, file: str) -> StructError:
        """The error for an array file that is not there."""
        message = f"expected the array file {file}, got none"
        return self.explained(IntegrityError(message, code="NQX409", file=str(self.path)))

    def explained(self, error: StructError) -> StructError:
        """The error, or another one if a writer came between."""
        return self._replaced() or error

    def _replaced(self) -> StructError | None:
        """The error for a bundle whose manifest is not the one that was read."""
        now = b""
        try:
            now = (self.path / MANIFEST).opening(self._most + 1)
        except BundleMissingError:
            pass
        except StructError:  # the server fails
            return None
        if now == self._manifest:
            return None
        message = "expected the bundle to stay while it is read, got it replaced or removed"
        return BundleReplacedError(message, file=str(self.path), hint="read it again")

    def contents(self) -> Contents | None:
        """The bundles in it, and in the folders in it."""
        return contents(self.path, MANIFEST)

    def close(self) -> None:
        """Closes files that were downloaded; maps of them stay."""
        for file in self._files:
            file.close()


class RemoteZip(Zip):
    """An open zip behind a URL, which is downloaded whole."""

    exclusive = True

    def __init__(self, place: RemotePath) -> None:
        from tempfile import mkstemp

        handle, name = mkstemp(suffix=".zip")
        os.close(handle)
        try:
            region = downloaded_region(place, place.size)
            with Path(name).open("r+b", buffering=0) as out:
                copy_region(place, region, cast("BinaryIO", out))
            region[0].close()
            super().__init__(Path(name))
        finally:
            with suppress(OSError):  # Windows removes no open files
                Path(name).unlink()
        self.path = place
