"""Arrays in one file that can be mapped: reading, checking and writing them.

A store of such files supplies a :class:`~neuralqx_struct.formats.entries.FileFormat`. :func:`file_store` makes the operations of a :class:`~neuralqx_struct.formats.store.Store` of it.
"""

from __future__ import annotations

import errno
import mmap as mmap_module
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from neuralqx_struct.errors import Diagnostic, IntegrityError, SerializationError, StructError
from neuralqx_struct.formats.archive import damaged, inflated
from neuralqx_struct.formats.entries import Entry, FileFormat, PartialEntries, agreeing
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
from neuralqx_struct.manifest.payload import StoredArrays
from neuralqx_struct.places.checksums import checksum, crc32
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

    def copy(self, start: int, size: int) -> memoryview:
        """A copy of some bytes."""
        out = _aligned(size)
        self._fill(out, start)
        return out

    def checked(
        self, start: int, size: int, skip: int, tick: Tick | None
    ) -> tuple[memoryview, int]:
        """A copy of some bytes, and the checksum of those after the first ``skip``."""
        out = _aligned(size)
        self._fill(out[:skip], start)

        def fill(piece: memoryview, at: int) -> None:
            self._fill(piece, start + skip + at)

        return out, checksum(out[skip:], tick, fill)

    def _fill(self, out: memoryview, start: int) -> None:
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


def _aligned(size: int) -> memoryview:
    """Returns private memory at a 64-byte boundary, so that JAX can adopt it without a copy."""
    import numpy as np

    room = np.empty(size + 64, np.uint8)
    skip = -int(room.ctypes.data) % 64
    return memoryview(room.data)[skip : skip + size]


def opened(source: Source, *, mmap: bool) -> tuple[memoryview, _PrivateBytes | None]:
    """A view of a source for its directory, and a reader if arrays must not be those of the view, as in a map.

    Raises:
        IntegrityError: The file is empty or shorter than the region.
    """
    if isinstance(source, memoryview):
        return source, None
    if isinstance(source, os.PathLike):
        with Path(source).open("rb", buffering=0) as whole:
            size = os.fstat(whole.fileno()).st_size
            return opened((cast("BinaryIO", whole), 0, size), mmap=mmap)
    file, base, length = source
    if length == 0 or os.fstat(file.fileno()).st_size < base + length:
        message = f"expected an array file of at least {max(length, 1)} bytes, got fewer"
        raise damaged(message)
    if length <= _COPIED:  # private memory already
        return _copied(file, base, length), None
    private = None if mmap else _PrivateBytes(file, base)
    try:
        mapped = mmap_module.mmap(file.fileno(), 0, access=mmap_module.ACCESS_READ, **_UNTRACKED)
    except OSError as error:
        if error.errno not in _USED_UP:
            raise
        return _copied(file, base, length), private
    return memoryview(mapped)[base : base + length], private


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


class FileArrays(StoredArrays):
    """The arrays of one file, each read and verified on access."""

    __slots__ = ("_access", "_entries", "_made", "_numpy", "_private", "_view")

    def __init__(
        self,
        view: memoryview,
        private: _PrivateBytes | None,
        entries: Mapping[str, Entry],
        access: Access,
    ) -> None:
        super().__init__(entries)
        # A reader with private memory keeps no page of the file in use.
        self._view = view if private is None else memoryview(b"")
        import numpy as np

        self._numpy = np
        self._private = private
        self._entries = entries
        self._access = access
        self._made: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        made = self._made.get(name)
        if made is not None:
            return made
        entry = self._entries[name]
        data, at, found = self._bytes(entry, self._access.tick, check=self._access.verify)
        problem = None if found is None else checksum_finding(name, found, entry.crc32)
        if problem is not None:
            raise IntegrityError(problem)
        made = self._array(entry, data, at)
        if self._private is None and entry.packed is None:
            self._made[name] = made  # a view costs nothing to keep; copies belong to the caller
        return made

    def at_hand(self, name: str) -> bool:
        """True for a map of the file."""
        return self._private is None and self._entries[name].packed is None

    def _array(self, entry: Entry, data: memoryview, at: int) -> Array:
        if entry.nbytes:
            made: Array = self._numpy.ndarray(entry.shape, entry.dtype, data, at, order=entry.order)
        else:
            made = self._numpy.empty(entry.shape, entry.dtype)
        if made.flags.writeable:  # not in a map
            made.flags.writeable = False
        return made

    def verify(self, name: str) -> Diagnostic | None:
        """Compares the stored bytes of an array with its checksum."""
        entry = self._entries[name]
        tick = self._access.tick
        try:
            if entry.packed is None:
                found = self._bytes(entry, tick, check=True)[2]
            else:
                found = self._streamed(entry, tick)
        except SerializationError as error:
            return about(error.code, name, error.diagnostics[0].message)
        return None if found is None else checksum_finding(name, found, entry.crc32)

    def _bytes(
        self, entry: Entry, tick: Tick | None, *, check: bool
    ) -> tuple[memoryview, int, int | None]:
        """Returns bytes that hold the array, its place in them, and their checksum if it is wanted and known."""
        _, _, start, nbytes, crc, lead, with_lead, _, packed = entry
        check = check and crc is not None
        private = self._private
        if packed is not None:
            data = _aligned(packed[2])
            at = 0
            for piece in self._pieces(packed):
                data[at : at + len(piece)] = piece
                at += len(piece)
        elif private is None:
            data = self._view
        elif check:
            skip = 0 if with_lead else lead
            data, found = private.checked(start - lead, lead + nbytes, skip, tick)
            return data, lead, found
        else:
            return private.copy(start - lead, lead + nbytes), lead, None
        begin = start - lead if with_lead else start
        return data, start, checksum(data[begin : start + nbytes], tick) if check else None

    def _pieces(self, packed: tuple[int, int, int]) -> Iterator[bytes]:
        """The header and the data of a deflated array, in pieces."""
        place, stored, expanded = packed
        if self._private is None:
            data = self._view[place : place + stored]
        else:
            data = self._private.copy(place, stored)
        return inflated(data, expanded)

    def _streamed(self, entry: Entry, tick: Tick | None) -> int | None:
        """The checksum of a deflated array without keeping its data."""
        crc = 0
        skip = 0 if entry.with_lead else entry.lead
        for piece in self._pieces(entry.packed or (0, 0, 0)):
            body = memoryview(piece)[skip:]
            skip = max(skip - len(piece), 0)
            crc = crc32(body, crc)
            if tick is not None:
                tick(len(body))
        return None if entry.crc32 is None else crc


def compare(
    layout: FileFormat, source: Source, records: Records, access: Access
) -> tuple[FileArrays, list[Diagnostic]]:
    """The arrays of a file that agree with their records, and findings about the others; reads no array."""
    found: list[Diagnostic] = []
    entries: Mapping[str, Entry] = {}
    view, private = memoryview(b""), None
    try:
        view, private = opened(source, mmap=access.mmap)
        if access.whole is not None and layout.locate is not None:
            entries = PartialEntries(layout, view, records, access)
        else:
            entries, found = agreeing(layout, view, records, access)
    except StructError as error:
        found += error.diagnostics
    return FileArrays(view, private, entries, access), found


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
