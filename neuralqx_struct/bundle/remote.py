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
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, TypeVar, cast

from neuralqx_struct.bundle.disk import BundleMissingError, BundleReplacedError, copy_region
from neuralqx_struct.bundle.steps import Contents, contents
from neuralqx_struct.bundle.storage import MANIFEST, Opened, Zip
from neuralqx_struct.bundle.urls import RemotePath
from neuralqx_struct.dtypes import dtype_named
from neuralqx_struct.errors import (
    Diagnostic,
    IntegrityError,
    StructError,
    UntrustedError,
)
from neuralqx_struct.manifest.payload import StoredArrays
from neuralqx_struct.stores.checksums import checksum, write_all
from neuralqx_struct.stores.store import (
    Access,
    Records,
    Source,
    about_each,
    checksum_finding,
    require_nbytes,
    require_possible,
)

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    import numpy as np

    Array = np.ndarray[Any, Any]

_T = TypeVar("_T")
_AT_ONCE: Final = 8  # requests
_AHEAD: Final = 256 << 20  # bytes that are fetched before anybody asks for them
_GROUP: Final = 8 << 20  # bytes of neighbouring arrays that one request fetches
_GAP: Final = 4 << 10  # bytes between two of them, such as headers, that are fetched too
_ELSEWHERE: Final = {"", ".", ".."}
_PIECE: Final = 16 << 20  # bytes of a whole file in one request


@cache
def _pool() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(_AT_ONCE, "requests")


def _downloaded(place: RemotePath, size: int) -> tuple[BinaryIO, int, int]:
    """A region of a temporary file with the bytes of a whole file, fetched in pieces."""
    from tempfile import TemporaryFile

    file = cast("BinaryIO", TemporaryFile(buffering=0))  # noqa: SIM115 - the caller closes it
    try:
        for piece in _several(place, range(0, size, _PIECE), size):
            write_all(file, piece)
    except BaseException:
        file.close()
        raise
    return file, 0, size


def _several(place: RemotePath, starts: Iterable[int], size: int) -> Iterator[memoryview]:
    """Yields the pieces of a file in their order; fetches several at a time."""
    waiting: deque[Future[memoryview]] = deque()
    for start in starts:
        waiting.append(_pool().submit(place.fetched, start, min(start + _PIECE, size)))
        if len(waiting) == _AT_ONCE:
            yield waiting.popleft().result()
    for future in waiting:
        yield future.result()


def download_tree(place: RemotePath, target: Path, without: Collection[str] = ()) -> None:
    """Downloads the files of a folder into a new or empty one, but for those at or below some names in it.

    Raises:
        UntrustedError: The name of a file leads elsewhere.
    """
    target.mkdir(exist_ok=True)
    for name, facts in place.files_below().items():
        parts = name.split("/")
        if not _ELSEWHERE.isdisjoint(parts) or any(Path(part).name != part for part in parts):
            message = f"expected the name of a file in the folder, got {name!r}"
            raise UntrustedError(message, code="NQX503", file=str(place))
        if parts[0] in without:
            continue
        file, size = target.joinpath(*parts), int(facts.get("size") or 0)
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("xb", buffering=0) as out:
            for piece in _several(place / name, range(0, size, _PIECE), size):
                write_all(cast("BinaryIO", out), piece)
            os.fsync(out.fileno())


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
        return sorted(self._sizes)

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
            from neuralqx_struct.bundle.orbax_files import FarFiles  # imports a server

            return FarFiles(self.path / name, self._replaced)
        size = self._sizes.get(name)
        if size is None:
            raise self.missing(name)
        region = self.reading(name, lambda: _downloaded(self.path / name, size))
        self._files.append(region[0])
        return region

    def ranged(self, file: str, records: Records, access: Access) -> StoredArrays | None:
        """The arrays of a file, if all have a place in it; others come with the whole file."""
        located = {"offset", "nbytes", "crc32"}
        if all(located <= record.keys() for record in records.values()):
            return RangedArrays(self, file, records, access)
        return None

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


class _Wanted(NamedTuple):
    """Neighbouring arrays of a file that one request fetches."""

    names: tuple[str, ...]
    start: int
    end: int


class RangedArrays(StoredArrays):
    """The arrays of one remote file, each fetched by its place in the manifest and verified on access.

    Raises:
        IntegrityError: Records do not agree with themselves: all problems.
    """

    __slots__ = ("_access", "_fetched", "_file", "_held", "_records", "_waiting", "_wanted")

    def __init__(self, held: Remote, file: str, records: Records, access: Access) -> None:
        super().__init__(records)
        self._held, self._file, self._records, self._access = held, file, records, access
        self._wanted: deque[_Wanted] = deque()
        #: Requests that were begun, by array, with their first byte.
        self._fetched: dict[str, tuple[Future[memoryview], int]] = {}
        self._waiting: dict[Future[memoryview], int] = {}
        found: list[Diagnostic] = []
        for name, record in records.items():
            try:
                itemsize = dtype_named(record["dtype"]).itemsize
                require_possible(record["shape"], itemsize)
                require_nbytes(record, prod(record["shape"]) * itemsize)
            except StructError as error:
                found += about_each(name, error)
        if found:
            raise IntegrityError(found)

    @property
    def far(self) -> bool:
        """True: each array is behind a URL."""
        return True

    def expect(self, names: Iterable[str]) -> None:
        """Lets the arrays that will be read next be fetched ahead, several at a time."""
        self._wanted.extend(_grouped(names, self._records))

    def __getitem__(self, name: str) -> Array:
        import numpy as np

        record = self._records[name]
        data = self._bytes(name)
        problem = self._damage(name, data) if self._access.verify else None
        if problem is not None:
            raise self._held.explained(IntegrityError(problem))
        made: Array = np.ndarray(tuple(record["shape"]), dtype_named(record["dtype"]), data)
        return made

    def verify(self, name: str) -> Diagnostic | None:
        """Compares the stored bytes of an array with its checksum."""
        try:
            return self._damage(name, self._bytes(name))
        except IntegrityError as error:
            return about_each(name, error)[0]

    def _damage(self, name: str, data: memoryview) -> Diagnostic | None:
        return checksum_finding(
            name, checksum(data, self._access.tick), self._records[name]["crc32"]
        )

    def _bytes(self, name: str) -> memoryview:
        record = self._records[name]
        start, nbytes = record["offset"], record["nbytes"]
        self._request(name)
        future, first = self._fetched.pop(name, (None, start))
        if future is None:
            data = self._range(start, start + nbytes) if nbytes else memoryview(b"")
        else:
            data = self._held.reading(self._file, future.result)
            self._waiting.pop(future, None)
        return data[start - first : start - first + nbytes]

    def _range(self, start: int, end: int) -> memoryview:
        place = self._held.path / self._file
        return self._held.reading(self._file, lambda: place.fetched(start, end))

    def _request(self, name: str) -> None:
        """Begins requests up to the limits, at least that for an array that is expected."""
        place = self._held.path / self._file
        while self._wanted:
            group = self._wanted[0]
            ahead = sum(self._waiting.values()) + group.end - group.start
            full = len(self._waiting) >= _AT_ONCE or ahead > _AHEAD
            if full and name not in group.names:
                return
            self._wanted.popleft()
            future = _pool().submit(place.fetched, group.start, group.end)
            self._waiting[future] = group.end - group.start
            self._fetched.update(dict.fromkeys(group.names, (future, group.start)))


def _grouped(names: Iterable[str], records: Records) -> Iterator[_Wanted]:
    """Yields the requests that fetch arrays: small neighbours together, nothing for empty ones."""
    group: list[str] = []
    start = end = 0
    for name in names:
        record = records[name]
        first, last = record["offset"], record["offset"] + record["nbytes"]
        if first == last:
            continue
        if group and end <= first <= end + _GAP and last - start <= _GROUP:
            group.append(name)
        else:
            if group:
                yield _Wanted(tuple(group), start, end)
            group, start = [name], first
        end = last
    if group:
        yield _Wanted(tuple(group), start, end)


class RemoteZip(Zip):
    """An open zip behind a URL, which is downloaded whole."""

    exclusive = True

    def __init__(self, place: RemotePath) -> None:
        from tempfile import mkstemp

        handle, name = mkstemp(suffix=".zip")
        os.close(handle)
        try:
            region = _downloaded(place, place.size)
            with Path(name).open("r+b", buffering=0) as out:
                copy_region(place, region, cast("BinaryIO", out))
            region[0].close()
            super().__init__(Path(name))
        finally:
            with suppress(OSError):  # Windows removes no open files
                Path(name).unlink()
        self.path = place
