"""Arrays in one file that can be mapped: reading, checking and writing them.

A store of such files supplies a :class:`~neuralqx_struct.formats.entries.FileFormat`. :func:`file_store` makes the operations of a :class:`~neuralqx_struct.formats.store.Store` of it.
"""

from __future__ import annotations

import errno
import mmap as mmap_module
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from neuralqx_struct.errors import Diagnostic, IntegrityError, SerializationError, StructError
from neuralqx_struct.formats.archive import damaged
from neuralqx_struct.formats.entries import FileFormat, PartialArrays, agreeing
from neuralqx_struct.formats.ranges import Ranges, StoredArray
from neuralqx_struct.formats.store import (
    WHOLE,
    Access,
    Records,
    Store,
    Tick,
    Written,
    about,
    checksum_finding,
)
from neuralqx_struct.manifest import raise_findings
from neuralqx_struct.manifest.payload import Region, StoredArrays
from neuralqx_struct.places.disk import Source, Target

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

#: Bytes of a file that is read at once: a map would hold a descriptor of it as long as arrays are in use.
_COPIED: Final = 256 << 10
#: Since Python 3.13 maps do without a descriptor.
_UNTRACKED: Final[dict[str, Any]] = (
    {"trackfd": False} if sys.version_info >= (3, 13) and os.name == "posix" else {}
)
#: Errors of a map for which the process has no descriptor left, or no room among its maps.
_USED_UP: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_PREADV: Callable[[int, list[memoryview], int], int] | None = getattr(os, "preadv", None)


class _PrivateBytes:
    """Copies bytes of an open file into private memory; keeps a handle of its own."""

    def __init__(self, file: BinaryIO, base: int) -> None:
        self._file = os.fdopen(os.dup(file.fileno()), "rb", buffering=0)
        self._base = base
        self._lock = threading.Lock()

    def read(self, start: int, end: int) -> memoryview:
        """A copy of the bytes from one place to another."""
        out = memoryview(bytearray(end - start))
        self.fill(out, start)
        return out

    def fill(self, out: memoryview, start: int) -> None:
        """Copies the bytes at a place into memory."""
        done = 0
        size = len(out)
        while done < size:
            got = self._read(out[done:], self._base + start + done)
            if not got:
                message = f"expected {size} bytes at byte {start}, got {done}"
                raise damaged(message)
            done += got

    def _read(self, out: memoryview, place: int) -> int:
        if _PREADV is not None:
            return int(_PREADV(self._file.fileno(), [out], place))
        with self._lock:  # threads share one position in the file
            self._file.seek(place)
            return self._file.readinto(out) or 0

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()


def opened(source: Source, *, mmap: bool) -> Ranges:
    """The bytes of a source; without ``mmap``, arrays of it are copies in private memory.

    Raises:
        IntegrityError: The file is empty or shorter than the region.
    """
    if isinstance(source, memoryview):
        return Ranges.of(source)
    if isinstance(source, os.PathLike):
        with Path(source).open("rb", buffering=0) as whole:
            size = os.fstat(whole.fileno()).st_size
            return opened((cast("BinaryIO", whole), 0, size), mmap=mmap)
    file, base, length = source
    if length == 0 or os.fstat(file.fileno()).st_size < base + length:
        message = f"expected an array file of at least {max(length, 1)} bytes, got fewer"
        raise damaged(message)
    if length <= _COPIED:  # private memory already
        return Ranges.of(_copied(file, base, length))
    try:
        mapped = mmap_module.mmap(file.fileno(), 0, access=mmap_module.ACCESS_READ, **_UNTRACKED)
        view = memoryview(mapped)[base : base + length]
    except OSError as error:
        if error.errno not in _USED_UP:
            raise
        view = _copied(file, base, length)
    if mmap:
        return Ranges.of(view)
    private = _PrivateBytes(file, base)
    return Ranges(length, private.read, view, cheap=False, fill=private.fill)


def _copied(file: BinaryIO, base: int, length: int) -> memoryview:
    """The bytes of a region, read into memory that starts at a page as a map does."""
    view = memoryview(mmap_module.mmap(-1, length))
    file.seek(base)
    done = 0
    while done < length:
        got = file.readinto(view[done:])  # type: ignore[attr-defined]
        if not got:
            raise damaged(f"expected an array file of at least {length} bytes, got {done}")
        done += got
    return view.toreadonly()


def _same(error: StructError) -> StructError:
    return error


class FileArrays(StoredArrays):
    """The arrays of one file, each read and verified on access.

    Args:
        data: The bytes of the file.
        arrays: The arrays by name.
        access: Options for reading.
        explained: Returns another error for bytes that are damaged, if there is a reason for it.
    """

    __slots__ = ("_access", "_arrays", "_data", "_explained", "_made")

    def __init__(
        self,
        data: Ranges,
        arrays: Mapping[str, StoredArray],
        access: Access = WHOLE,
        explained: Callable[[StructError], StructError] = _same,
    ) -> None:
        super().__init__(arrays)
        self._data, self._arrays, self._access = data, arrays, access
        self._explained = explained
        self._made: dict[str, Array] = {}

    @property
    def far(self) -> bool:
        """True for a file whose ranges are fetched."""
        return self._data.expect is not None

    def expect(self, names: Iterable[str]) -> None:
        """Lets the arrays that will be read next be fetched ahead, several at a time."""
        if self._data.expect is not None:
            self._data.expect(self._arrays[name].place for name in names)

    def __getitem__(self, name: str) -> Array:
        made = self._made.get(name)
        if made is not None:
            return made
        access, stored = self._access, self._arrays[name]
        made, found = stored.checked(self._data, access.tick, verify=access.verify)
        problem = None if found is None else checksum_finding(name, found, stored.crc32)
        if problem is not None:
            raise self._explained(IntegrityError(problem))
        if self._data.cheap and stored.is_plain:
            self._made[name] = made  # a view costs nothing to keep; copies belong to the caller
        return made

    def at_hand(self, name: str) -> bool:
        """True for a map of the file."""
        return self._data.cheap and self._arrays[name].is_plain

    def divisible(self, name: str) -> bool:
        """True for an array that is not at hand, nor has to be read whole to be expanded or verified."""
        stored = self._arrays[name]
        checked = self._access.verify and stored.crc32 is not None
        return stored.is_plain and not checked and not self._data.cheap

    def parts(self, name: str, regions: Iterable[Region]) -> Iterator[Array]:
        """Yields parts of one array."""
        if not self.divisible(name):
            return super().parts(name, regions)
        return map(partial(self._arrays[name].part, self._data), regions)

    def verify(self, name: str) -> Diagnostic | None:
        """Compares the stored bytes of an array with its checksum."""
        stored = self._arrays[name]
        try:
            found = stored.checksum(self._data, self._access.tick)
        except SerializationError as error:
            return about(error.code, name, error.diagnostics[0].message)
        return None if found is None else checksum_finding(name, found, stored.crc32)


def compare(
    layout: FileFormat, source: Source, records: Records, access: Access
) -> tuple[FileArrays, list[Diagnostic]]:
    """The arrays of a file that agree with their records, and findings about the others; reads no array."""
    found: list[Diagnostic] = []
    arrays: Mapping[str, StoredArray] = {}
    data = Ranges.of(memoryview(b""))
    try:
        data = opened(source, mmap=access.mmap)
        view = cast("memoryview", data.view)
        if access.whole is not None and layout.locate is not None:
            arrays = PartialArrays(layout, view, records, access)
        else:
            arrays, found = agreeing(layout, view, records, access)
    except StructError as error:
        found += error.diagnostics
    if not data.cheap:  # private memory keeps no page of the file in use
        data = data._replace(view=memoryview(b""))
    return FileArrays(data, arrays, access), found


def file_store(layout: FileFormat, **facts: Any) -> Store:
    """The record of a store that keeps its arrays in one file of this layout.

    Args:
        layout: The layout of the file.
        facts: Members of :class:`Store` without a default here; ``verify`` replaces the usual one.
    """

    def write(
        target: Target,
        arrays: Mapping[str, Array],
        *,
        compress: bool = False,
        tick: Tick | None = None,
    ) -> Written:
        if not isinstance(target, Path):
            return layout.write(target, arrays, compress, tick)
        with target.open("xb", buffering=0) as file:
            records = layout.write(cast("BinaryIO", file), arrays, compress, tick)
            os.fsync(file.fileno())
        return records

    def read(source: Source, records: Records, access: Access = WHOLE) -> FileArrays:
        arrays, found = compare(layout, source, records, access)
        raise_findings(found, str(source) if isinstance(source, os.PathLike) else store.file)
        return arrays

    def verify(source: Source, records: Records, access: Access = WHOLE) -> list[Diagnostic]:
        whole = replace(access, verify=True, mmap=True)
        arrays, found = compare(layout, source, records, whole)
        problems = map(arrays.verify, arrays)
        return found + [problem for problem in problems if problem is not None]

    usual: dict[str, Any] = {"verify": verify, "beside": frozenset(), "begin": None}
    store = Store(folder=False, write=write, read=read, **{**usual, **facts})
    return store
