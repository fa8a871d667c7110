"""Array stores: how named arrays lie in one file, behind one protocol.

Owns the protocol (:class:`ArrayStore`), the table of stores by name, imported when first used, and what stores of one
mappable file have in common (:class:`FileArrays`). Each store is a module with the protocol's functions. A store knows
arrays and records; manifests and bundles are the business of ``payload.py`` and ``bundle/``.

Example:
    >>> store_named("npz").FILE, store_of_file("arrays-1.safetensors").FILE
    ('arrays.npz', 'arrays.safetensors')
"""

from __future__ import annotations

import importlib
import mmap as mmap_module
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal, NamedTuple, Protocol, cast

from neuralqx_struct.arrays import StoredArrays
from neuralqx_struct.errors import Diagnostic, IntegrityError, SerializationError, did_you_mean
from neuralqx_struct.manifest_grammar import MOST_DIMS
from neuralqx_struct.paths import FieldName, format_path
from neuralqx_struct.stores.archive import inflated
from neuralqx_struct.stores.checksums import checksum, crc32

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

__all__ = [
    "FOLDERS",
    "STORES",
    "WHOLE",
    "Access",
    "ArrayStore",
    "Entry",
    "FileArrays",
    "Progress",
    "Records",
    "Source",
    "Tick",
    "about",
    "checksum_finding",
    "opened",
    "require_possible",
    "store_named",
    "store_of_file",
]

_PREADV: Callable[[int, list[memoryview], int], int] | None = getattr(os, "preadv", None)
Records = Mapping[str, Mapping[str, Any]]
Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""
Tick = Callable[[int], None]
"""Called with how many further bytes were read."""
Source = Path | tuple[BinaryIO, int, int] | memoryview
"""Where an array file is: a path, a region (file, first byte, length) of an open file, or bytes in memory."""


@dataclass(frozen=True, slots=True)
class Access:
    """How an array file is read.

    Attributes:
        verify: Compare every byte that is read with its checksum.
        mmap: Give read-only views of the mapped file; otherwise copies in private memory.
        superseded: Arrays that the file may hold although another file's are meant; its own may be among them.
        tick: Called often while bytes are being verified.
    """

    verify: bool = True
    mmap: bool = True
    superseded: Collection[str] = frozenset()
    tick: Tick | None = None


WHOLE: Final = Access()


class ArrayStore(Protocol):
    """What a store module offers.

    Attributes:
        FILE: The name of its file in a bundle.
        FOLDER: True if that is a folder: it is then given as a path, and has no place in a zip.
    """

    FILE: str
    FOLDER: bool

    def write(
        self,
        target: Path | BinaryIO,
        arrays: Mapping[str, Array],
        *,
        compress: bool = False,
        tick: Tick | None = None,
    ) -> dict[str, dict[str, Any]]:
        """Write a new file (or into an open one, at its position), flush it to the disk, return a record per array."""

    def read(self, source: Source, records: Records, access: Access = WHOLE) -> StoredArrays:
        """The arrays that ``records`` describe, each read and verified on access.

        Args:
            source: The file.
            records: What the manifest says is in it: all of its arrays.
            access: How.

        Raises:
            IntegrityError: The file and the records do not agree.
            UntrustedError: The file holds pickles, bombs, duplicates or names that lead out of it.
        """

    def verify(self, source: Source, records: Records, access: Access = WHOLE) -> list[Diagnostic]:
        """Everything that is wrong with the file, every byte compared, whatever ``access`` says of that."""

    def members(self, source: Source) -> tuple[str, ...]:
        """The names of the arrays in the file, as it says by itself."""


STORES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "npz": "neuralqx_struct.stores.npz",
        "safetensors": "neuralqx_struct.stores.safetensors",
        "orbax": "neuralqx_struct.stores.orbax",
    }
)


#: Stores that keep a folder in the place of a file; told without importing the store, for those who only look.
FOLDERS: Final = frozenset({"orbax"})


def store_named(name: str) -> ArrayStore:
    """The store of this name.

    Raises:
        SerializationError: There is no such store.
    """
    if name not in STORES:
        hint = did_you_mean(str(name), STORES)
        raise SerializationError(f"expected a store among {', '.join(STORES)}, got {name!r}", code="NQX614", hint=hint)
    return cast("ArrayStore", importlib.import_module(STORES[name]))


def store_of_file(file: str) -> ArrayStore:
    """The store that reads a file of this name, told by its suffix.

    Raises:
        SerializationError: No store does.
    """
    return store_named(file.rpartition(".")[2])


def about(code: str, name: str, message: str, hint: str | None = None) -> Diagnostic:
    """A finding about one array."""
    return Diagnostic(code, "error", message, path=format_path((FieldName("arrays"), FieldName(name))), hint=hint)


class Entry(NamedTuple):
    """Where one array lies and what it is, once that has been checked.

    Attributes:
        dtype: Its logical dtype.
        shape: Its shape.
        start: Its first byte in the file; in expanded data where it is deflated.
        nbytes: Its size.
        crc32: Checksum of its bytes; None if there is none.
        lead: Size of the header right before its bytes.
        with_lead: True if ``crc32`` covers that header too, as zip's own checksum does.
        order: Memory order of the bytes.
        packed: First byte, stored and expanded size of the deflated data that hold header and array.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    nbytes: int
    crc32: int | None
    lead: int = 0
    with_lead: bool = False
    order: Literal["C", "F"] = "C"
    packed: tuple[int, int, int] | None = None


class _PrivateBytes:
    """Bytes of an open file, copied into private memory on demand; keeps a handle of its own."""

    def __init__(self, file: BinaryIO, base: int) -> None:
        self._file = os.fdopen(os.dup(file.fileno()), "rb", buffering=0)
        self._base, self._lock = base, threading.Lock()

    def copy(self, start: int, size: int) -> memoryview:
        """Some bytes of the file."""
        out = _room(size)
        self._fill(out, start)
        return out

    def checked(self, start: int, size: int, skip: int, tick: Tick | None) -> tuple[memoryview, int]:
        """Some bytes of the file, and the checksum of those after the first few; read and checked piece by piece, at once."""
        out = _room(size)
        self._fill(out[:skip], start)
        return out, checksum(out[skip:], tick, lambda piece, at: self._fill(piece, start + skip + at))

    def _fill(self, out: memoryview, start: int) -> None:
        done, size = 0, len(out)
        while done < size and (got := self._read(out[done:], self._base + start + done)):
            done += got
        if done < size:
            raise IntegrityError(f"expected {size} bytes at byte {start}, got {done}", code="NQX408")

    def _read(self, out: memoryview, place: int) -> int:
        if _PREADV is not None:
            return int(_PREADV(self._file.fileno(), [out], place))
        with self._lock:  # one place in the file for all threads
            self._file.seek(place)
            return self._file.readinto(out) or 0

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()


def _room(size: int) -> memoryview:
    """Private memory on a 64-byte border, so that JAX can take the bytes over."""
    import numpy as np

    room = np.empty(size + 64, np.uint8)
    skip = -int(room.ctypes.data) % 64
    return memoryview(room.data)[skip : skip + size]


def opened(source: Source, *, mmap: bool) -> tuple[memoryview, _PrivateBytes | None]:
    """The bytes of a source: a view for looking at its structure, and a reader where arrays must not be mapped.

    Raises:
        IntegrityError: The file is empty or shorter than the region.
    """
    if isinstance(source, memoryview):
        return source, None
    if isinstance(source, Path):
        with source.open("rb", buffering=0) as whole:
            return opened((cast("BinaryIO", whole), 0, os.fstat(whole.fileno()).st_size), mmap=mmap)
    file, base, length = source
    if length == 0 or os.fstat(file.fileno()).st_size < base + length:
        raise IntegrityError(f"expected an array file of at least {max(length, 1)} bytes, got fewer", code="NQX408")
    view = memoryview(mmap_module.mmap(file.fileno(), 0, access=mmap_module.ACCESS_READ))
    return view[base : base + length], None if mmap else _PrivateBytes(file, base)


class FileArrays(StoredArrays):
    """The arrays of one file; see :meth:`ArrayStore.read`."""

    __slots__ = ("_access", "_entries", "_made", "_numpy", "_private", "_view")

    def __init__(
        self, view: memoryview, private: _PrivateBytes | None, entries: Mapping[str, Entry], access: Access
    ) -> None:
        super().__init__(entries)
        self._view = view if private is None else memoryview(b"")  # no page of the file stays in use
        import numpy as np

        self._numpy = np
        self._private, self._entries, self._access = private, entries, access
        self._made: MutableMapping[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        made = self._made.get(name)
        if made is None:
            entry = self._entries[name]
            data, at, found = self._bytes(entry, self._access.tick, check=self._access.verify)
            if found is not None and (problem := checksum_finding(name, found, entry.crc32)) is not None:
                raise IntegrityError(problem)
            made = self._array(entry, data, at)
            if self._private is None and entry.packed is None:
                self._made[name] = made  # a view costs nothing to keep; copies belong to whoever asked
        return made

    def _array(self, entry: Entry, data: memoryview, at: int) -> Array:
        if entry.nbytes:
            made: Array = self._numpy.ndarray(entry.shape, entry.dtype, data, at, order=entry.order)
        else:
            made = self._numpy.empty(entry.shape, entry.dtype)
        if made.flags.writeable:  # not in a map
            made.flags.writeable = False
        return made

    def verify(self, name: str, header_too: int | None = None) -> Diagnostic | None:
        """Compare the stored bytes of one array with its checksum, or header and array with the one given."""
        entry = self._entries[name]
        if header_too is not None:
            entry = entry._replace(crc32=header_too, with_lead=True)
        try:
            tick = None if header_too is not None else self._access.tick
            found = self._bytes(entry, tick, check=True)[2] if entry.packed is None else self._streamed(entry, tick)
            return None if found is None else checksum_finding(name, found, entry.crc32)
        except SerializationError as error:
            return about(error.code, name, error.diagnostics[0].message)

    def _bytes(self, entry: Entry, tick: Tick | None, *, check: bool) -> tuple[memoryview, int, int | None]:
        """Bytes that hold the array, where in them it begins, and their checksum where it is wanted and known."""
        _, _, start, nbytes, crc, lead, with_lead, _, packed = entry
        check, private = check and crc is not None, self._private
        if packed is not None:
            pieces, data, at = self._pieces(entry), _room(packed[2]), 0
            for piece in pieces:
                data[at : at + len(piece)] = piece
                at += len(piece)
        elif private is None:
            data = self._view
        elif check:
            data, found = private.checked(start - lead, lead + nbytes, 0 if with_lead else lead, tick)
            return data, lead, found
        else:
            return private.copy(start - lead, lead + nbytes), lead, None
        begin = start - lead if with_lead else start
        return data, start, checksum(data[begin : start + nbytes], tick) if check else None

    def _pieces(self, entry: Entry) -> Iterator[bytes]:
        """The header and the data of a deflated array."""
        place, stored, expanded = entry.packed or (0, 0, 0)
        private = self._private
        return inflated(
            self._view[place : place + stored] if private is None else private.copy(place, stored), expanded
        )

    def _streamed(self, entry: Entry, tick: Tick | None) -> int | None:
        """The checksum of a deflated array that nobody keeps."""
        crc, skip = 0, 0 if entry.with_lead else entry.lead
        for piece in self._pieces(entry):
            body = memoryview(piece)[skip:]
            skip = max(skip - len(piece), 0)
            crc = crc32(body, crc)
            if tick is not None:
                tick(len(body))
        return crc if entry.crc32 is not None else None


def checksum_finding(name: str, found: int, expected: int | None, where: str = "") -> Diagnostic | None:
    """What is wrong with an array whose bytes have the checksum ``found``, or None."""
    if expected is None or found == expected:
        return None
    message = f"expected bytes with crc32 {expected:#010x}{where}, got {found:#010x}"
    return about("NQX407", name, message, "the file was damaged or changed; restore it from a copy")


def require_possible(shape: Sequence[int], itemsize: int) -> None:
    """Refuse a shape that numpy could not make: a zero among its sizes hides how large the others are.

    Raises:
        IntegrityError: There are too many dimensions, or too large ones.
    """
    import numpy as np

    most = 32 if np.__version__.startswith("1.") else MOST_DIMS
    if len(shape) > most or prod(size or 1 for size in shape) * max(itemsize, 1) >= 2**63:
        message = f"expected at most {most} dimensions that fit memory, got {str(list(shape))[:80]}"
        raise IntegrityError(message, code="NQX412")
