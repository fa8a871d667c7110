"""Bundles behind URLs: read in ranges, and written so that the manifest is the commit.

A reader fetches the manifest, and of the array files the ranges of the arrays that are wanted, several at a
time. A writer uploads array files under names that nobody has used, then the manifest, and then removes the
files that the old manifest named: whenever it stops, the old bundle or the new one is there. A zip is one file,
uploaded and downloaded whole.

Example:
    >>> import fsspec
    >>> from neuralqx_struct.bundle.urls import located
    >>> place = located("memory://docs/remote/ckpt")
    >>> with new_remote(place, overwrite=True) as new:
    ...     new.finish(b"{}")
    >>> Remote(place, 100).names()
    ['manifest.json']
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache, cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, TypeVar, cast

from neuralqx_struct.bundle.disk import BundleExistsError, BundleMissingError, BundleWriteError
from neuralqx_struct.bundle.members import OURS, NewBundle, foreign_names
from neuralqx_struct.bundle.steps import Contents, listed, numbers_of
from neuralqx_struct.bundle.storage import MANIFEST, Opened, Zip, copy_region
from neuralqx_struct.bundle.urls import RemotePath
from neuralqx_struct.dtypes import dtype_named
from neuralqx_struct.errors import (
    Diagnostic,
    IntegrityError,
    SerializationError,
    StructError,
)
from neuralqx_struct.manifest import DEFAULT_LIMITS
from neuralqx_struct.manifest.payload import StoredArrays
from neuralqx_struct.manifest.text import parse_manifest
from neuralqx_struct.stores.store import (
    Access,
    BundleReadError,
    Records,
    Source,
    Store,
    Target,
    about_each,
    checksum,
    checksum_finding,
    file_of,
    require_nbytes,
    require_possible,
    write_all,
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
_MOST: Final = DEFAULT_LIMITS.manifest_bytes
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
        self._files: list[BinaryIO] = []

    @cached_property
    def _sizes(self) -> Mapping[str, int | None]:
        try:
            found = self.path.listing()
        except BundleMissingError:
            return {}
        return {name: facts.get("size") for name, facts in found.items()}

    def names(self) -> list[str]:
        """The names of the files."""
        return sorted(self._sizes)

    def hold(self, name: str, *, folder: bool = False) -> int | None:
        """Fetches the manifest; the size of other files is not known, nor whether they are there."""
        if folder:
            raise _folder_refused(self.path, name)
        if name != MANIFEST:
            return sys.maxsize
        try:
            self._manifest = (self.path / MANIFEST).opening(self._most + 1)
        except BundleMissingError:
            return None
        return len(self._manifest)

    def measured(self, name: str, held: int) -> int | None:  # noqa: ARG002
        """The size of a file, of all files by one request."""
        return self._sizes.get(name)

    def source(self, name: str, most: Callable[[], int]) -> Source:  # noqa: ARG002
        """The manifest, or a whole file, which is downloaded."""
        if name == MANIFEST:
            return memoryview(self._manifest)
        size = self._sizes.get(name)
        if size is None:
            raise self.missing(name)
        region = self.reading(name, lambda: _downloaded(self.path / name, size))
        self._files.append(region[0])
        return region

    def arrays(
        self,
        file: str,
        store: Store,
        records: Records,
        access: Access,
        most: Callable[[], int],
    ) -> StoredArrays:
        """The arrays of a file: those with a place in it are fetched one by one, others with the whole file."""
        located = {"offset", "nbytes", "crc32"}
        if all(located <= record.keys() for record in records.values()):
            return RangedArrays(self, file, records, access)
        return super().arrays(file, store, records, access, most)

    def reading(self, file: str, read: Callable[[], _T]) -> _T:
        """The result of reading an array file; finds the reason if it is not there.

        Raises:
            BundleReadError: Another program has replaced the bundle.
            IntegrityError: The bundle has no such file.
        """
        try:
            return read()
        except BundleMissingError:
            raise self.missing(file) from None

    def missing(self, file: str) -> StructError:
        """The error for an array file that is not there."""
        now = b""
        with suppress(BundleMissingError):
            now = (self.path / MANIFEST).opening(self._most + 1)
        if now == self._manifest:
            message = f"expected the array file {file}, got none"
            return IntegrityError(message, code="NQX409", file=str(self.path))
        message = "expected the bundle to stay while it is read, got it replaced or removed"
        return BundleReadError(message, file=str(self.path), hint="read it again")

    def contents(self) -> Contents | None:
        """The folders in it with the names of steps; whether they are bundles is not asked."""
        steps = numbers_of(self._sizes)
        if not steps:
            return None
        text = f"a series of the steps {listed(steps)}"
        return Contents(text, self.path / str(steps[-1]), series=True)

    def close(self) -> None:
        """Closes files that were downloaded; maps of them stay."""
        for file in self._files:
            file.close()


def _folder_refused(place: RemotePath, file: str) -> SerializationError:
    message = f"expected {file} in a bundle on a disk, got it behind a URL"
    hint = "copy the bundle to a disk with the tool of the server; or save it with store='npz'"
    return SerializationError(message, code="NQX614", file=str(place), hint=hint)


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
            raise IntegrityError(problem)
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


# Writing


@contextmanager
def new_remote(place: RemotePath, *, overwrite: bool) -> Iterator[NewBundle]:
    """Yields a new bundle behind a URL; :meth:`NewRemote.finish` lets it replace an old one."""
    _refuse(place, _present(place), overwrite=overwrite)
    with _folder() as stage:
        new = NewRemote(place, Path(stage), overwrite=overwrite)
        try:
            yield new
        finally:
            new.withdraw()


@contextmanager
def new_remote_zip(place: RemotePath, *, overwrite: bool) -> Iterator[NewBundle]:
    """Yields a new zip behind a URL, which is uploaded when it is complete."""
    _refuse_file(place, overwrite=overwrite)
    with _folder() as folder:
        stage = Path(folder, "bundle.zip")
        stage.touch()
        with NewBundle(stage, folder=False) as new:
            yield new
        _refuse_file(place, overwrite=overwrite)
        place.put(stage)


def _folder() -> AbstractContextManager[str]:
    """A temporary folder on the disk."""
    from tempfile import TemporaryDirectory  # few bundles are remote

    return TemporaryDirectory()


def _present(place: RemotePath) -> Mapping[str, Mapping[str, Any]]:
    try:
        return place.listing()
    except BundleMissingError:
        return {}


def _refuse(
    place: RemotePath, present: Mapping[str, Mapping[str, Any]], *, overwrite: bool
) -> None:
    """Raises if a folder may not be written."""
    leftovers = all(OURS.fullmatch(name) for name in present) and MANIFEST not in present
    if leftovers:  # nothing, or array files of a writer that was stopped
        return
    if not overwrite:
        message = "expected a path where nothing is, got an existing one"
        raise BundleExistsError(message, file=str(place), hint="pass overwrite=True to replace it")
    reason = foreign_names(present, lambda: (place / MANIFEST).opening(_MOST))
    if reason is not None:
        message = f"expected a bundle to overwrite, got {reason}"
        hint = "choose another path, or remove it yourself"
        raise BundleExistsError(message, file=str(place), hint=hint)


def _refuse_file(place: RemotePath, *, overwrite: bool) -> None:
    """Raises if a zip may not be written."""
    present = _present(place)
    if not present:
        return
    message, hint = "expected a path where nothing is, got an existing one", "pass overwrite=True"
    if overwrite:
        if place.opening(2) == b"PK":
            return
        message, hint = "expected a bundle to overwrite, got another file", "choose another path"
    raise BundleExistsError(message, file=str(place), hint=hint)


class NewRemote(NewBundle):
    """The files of a new bundle behind a URL: each is written on the disk first, and then uploaded.

    Args:
        place: The bundle.
        stage: A folder on the disk.
        overwrite: Replace an existing bundle.
    """

    def __init__(self, place: RemotePath, stage: Path, *, overwrite: bool) -> None:
        super().__init__(stage, folder=True)
        self._place, self._overwrite = place, overwrite
        self._begun: list[str] = []

    def named(self, file: str) -> str:
        """A name for an array file that no file has: readers of the old manifest go on."""
        return f"arrays-{os.urandom(6).hex()}.{file.rpartition('.')[2]}"

    def take(self, held: Opened, file: str) -> str:
        """Takes over a file of another bundle; the server copies it if it has it."""
        if not isinstance(held, Remote) or held.path.files is not self._place.files:
            return super().take(held, file)
        named = self.named(file)
        self._begun.append(named)
        held.reading(file, lambda: (self._place / named).copy(held.path / file))
        return named

    def put(self, file: str, fill: Callable[[Target], _T]) -> _T:
        """Uploads a file that ``fill`` writes, if there is an array in it; returns its result."""
        stage = self._stage / file
        with stage.open("x+b", buffering=0) as out:
            result = fill(cast("BinaryIO", out))
        if result == {}:
            return result
        self._begun.append(file)
        (self._place / file).put(stage)
        stage.unlink()
        return result

    def finish(self, manifest: bytes) -> None:
        """Replaces the manifest, and removes the array files of the old one."""
        target = self._place / MANIFEST
        old = b""
        with suppress(BundleMissingError):
            old = target.opening(_MOST)
        if old and not self._overwrite:
            _refuse(self._place, {MANIFEST: {}}, overwrite=False)
        begun, self._begun = self._begun, []
        try:
            target.pipe(manifest, new=not self._overwrite)
        except BundleExistsError:
            self._begun = begun
            raise
        except BundleWriteError as error:
            self._require_written(manifest, error)
        for name in _array_files(old) - set(begun):
            self._remove(name)

    def _require_written(self, manifest: bytes, error: BundleWriteError) -> None:
        """Raises the error of a commit, unless the server has done it all the same.

        The array files stay: the server may do it yet.
        """
        with suppress(StructError):
            if (self._place / MANIFEST).opening(len(manifest) + 1) == manifest:
                return
        hint = "the old bundle or the new one is there, whole: write it again"
        message = error.diagnostics[0].message
        raise BundleWriteError(message, file=str(self._place), hint=hint) from None

    def withdraw(self) -> None:
        """Removes the files of a bundle that was given up."""
        for name in self._begun:
            self._remove(name)

    def _remove(self, name: str) -> None:
        try:
            (self._place / name).remove()
        except BundleMissingError:
            return
        except StructError as error:
            import logging

            log, found = logging.getLogger("neuralqx_struct"), error.diagnostics[0].message
            log.warning("%s: expected to remove it, got: %s", self._place / name, found)


def remove_remote(place: RemotePath) -> None:
    """Removes a bundle: first the manifest, then the array files that it names.

    Raises:
        BundleMissingError: There is none.
        BundleWriteError: The server refused.
    """
    target = place / MANIFEST
    files = _array_files(target.opening(_MOST))
    target.remove()
    for name in files:
        (place / name).remove()


def _array_files(manifest: bytes) -> set[str]:
    """The array files that a manifest names, none outside of its folder."""
    try:
        records = parse_manifest(manifest, limits=DEFAULT_LIMITS)["arrays"] if manifest else {}
        names = {file_of(record) for record in records.values()}
    except (StructError, AttributeError, KeyError, TypeError):  # damaged: its files are left alone
        return set()
    return {name for name in names if name != MANIFEST and OURS.fullmatch(name)}
