"""The record of an array store, and the terms that all stores share.

A store writes named arrays to one file or folder of a bundle and reads them again. Each is one :class:`Store` record;
``formats/__init__.py`` has the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from neuralqx_struct.dtypes import dtype_name, dtype_named
from neuralqx_struct.errors import (
    Diagnostic,
    Hint,
    IntegrityError,
    Keyword,
    SerializationError,
    StructError,
    did_you_mean,
)
from neuralqx_struct.formats.archive import damaged
from neuralqx_struct.manifest import DEFAULT_FILE
from neuralqx_struct.manifest.models import MOST_DIMS
from neuralqx_struct.manifest.payload import StoredArrays
from neuralqx_struct.paths import FieldName, format_path

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_T = TypeVar("_T")
Records = Mapping[str, Mapping[str, Any]]
Written = dict[str, dict[str, Any]]
Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in all."""
Tick = Callable[[int], None]
"""Called with the number of further bytes that were read or written."""


@dataclass(frozen=True, slots=True)
class Access:
    """Options for reading an array file.

    Attributes:
        verify: Compare every byte that is read with its checksum.
        mmap: Return read-only views of the mapped file; otherwise copies in private memory.
        superseded: Arrays that the file may hold although the manifest takes them from another file.
        tick: Called while bytes are verified.
        whole: Raises every problem of the manifest. If it is given, only some arrays will be read: a record is validated
            when its array is, and the others are not compared with the file.
    """

    verify: bool = True
    mmap: bool = True
    superseded: Collection[str] = frozenset()
    tick: Tick | None = None
    whole: Callable[[], None] | None = None


WHOLE: Final = Access()


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """One array store: its operations, and the facts that other code needs about it.

    Attributes:
        name: The name for ``store=`` and ``--store``.
        suffix: The suffix of its files, by which :func:`~neuralqx_struct.formats.store.store_of_file` finds it.
        folder: True if it writes a folder; such a store has no place in a zip, and reads a path that lives as long as
            the object that it is given as source.
        compression: Whether it compresses arrays on request, always or never.
        write: Writes a new file, flushes it to the disk and returns a record per array. Arguments:
            target, arrays, ``compress=False``, ``tick=None``.
        read: Returns the arrays of a file, each read and verified on access. Arguments: source, records, access.
        verify: Returns every problem of a file; compares every byte. Arguments: those of ``read``.
        beside: Names of files that the programs which write it may leave beside its own.
        begin: Starts a write that goes on in the background and that many hosts can share; None if the
            store cannot: a thread then calls ``write`` with copies. Returns a function that waits for the records.
    """

    name: str
    suffix: str
    folder: bool
    compression: Literal["optional", "always", "never"]
    write: Callable[..., Written]
    read: Callable[..., StoredArrays]
    verify: Callable[..., list[Diagnostic]]
    beside: frozenset[str]
    begin: Callable[..., Callable[[], Written]] | None

    @property
    def file(self) -> str:
        """The name of its file in a bundle."""
        return f"arrays.{self.suffix}"

    def require_form(self, *, folder: bool, form: str = "a zip") -> None:
        """Checks that a bundle can hold the files of the store.

        Args:
            folder: It can hold folders.
            form: Its form, for the message.

        Raises:
            SerializationError: It cannot, and the store writes a folder.
        """
        if self.folder and not folder:
            message = f"expected a folder for store {self.name!r}, got {form}"
            hint = Hint("name a folder on a disk, or use ", Keyword("store", "npz"))
            raise SerializationError(message, code="NQX614", hint=hint)

    def require_compression(self, *, compress: bool) -> None:
        """Checks that it compresses arrays if that is asked for.

        Raises:
            SerializationError: It never does.
        """
        if compress and self.compression == "never":
            message = f"expected compress=False for store {self.name!r}, got True"
            hint = Hint("use ", Keyword("store", "npz"), " for compressed arrays")
            raise SerializationError(message, code="NQX614", hint=hint)

    def compressed(self, record: Mapping[str, Any]) -> bool:
        """True if an array of this store was compressed on request, so that it cannot be mapped."""
        return self.compression == "optional" and "offset" not in record


class Rows(MutableMapping[str, _T]):
    """A table of records by name; those that are functions are called when their record is first asked for.

    Example:
        >>> rows = Rows()
        >>> rows.later("one", lambda: 1)
        >>> [*rows], rows["one"]
        (['one'], 1)
    """

    def __init__(self) -> None:
        self._rows: dict[str, _T | None] = {}
        self._made: dict[str, Callable[[], _T]] = {}

    def later(self, name: str, make: Callable[[], _T]) -> None:
        """Adds a row whose record is made when it is first asked for: the import of its module."""
        self._rows[name], self._made[name] = None, make

    def __getitem__(self, name: str) -> _T:
        found = self._rows[name]
        if found is None:
            found = self._rows[name] = self._made[name]()
        return found

    def __setitem__(self, name: str, record: _T) -> None:
        self._rows[name] = record

    def __delitem__(self, name: str) -> None:
        del self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


#: All stores by name; ``formats/__init__.py`` has the rows.
STORES: Final[Rows[Store]] = Rows()


def store_named(name: str) -> Store:
    """The store of this name.

    Raises:
        SerializationError: There is no such store.
    """
    if name not in STORES:
        message = f"expected a store among {', '.join(STORES)}, got {name!r}"
        hint = did_you_mean(str(name), STORES) or "name one of these"
        raise SerializationError(message, code="NQX614", hint=hint)
    return STORES[name]


def store_of_file(file: str) -> Store:
    """The store that reads a file of this name, found by its suffix.

    Raises:
        SerializationError: No store does.
    """
    suffix = file.rpartition(".")[2]
    found = next((store for store in STORES.values() if store.suffix == suffix), None)
    return store_named(suffix) if found is None else found


def file_of(record: Mapping[str, Any]) -> str:
    """The array file that a record is about."""
    return str(record.get("file", DEFAULT_FILE))


def store_of(records: Records, *, folder: bool = True) -> Store:
    """The store that most of the arrays are in; for a zip, of the stores that it can hold."""
    counts = Counter(map(file_of, records.values()))
    found: Counter[str] = Counter()
    for file, count in counts.items():
        store = store_of_file(file)
        if folder or not store.folder:
            found[store.name] += count
    order = [*STORES]
    return STORES[min(found or order, key=lambda name: (-found[name], order.index(name)))]


def total_bytes(records: Records) -> int:
    """The bytes of all arrays, by their dtypes and shapes."""
    return sum(prod(r["shape"]) * dtype_named(r["dtype"]).itemsize for r in records.values())


def ticking(progress: Progress | None, records: Records) -> Tick | None:
    """A function that adds up the bytes of stores; never above all, although arrays may be read twice."""
    if progress is None:
        return None
    total, done = total_bytes(records), 0

    def tick(size: int) -> None:
        nonlocal done
        done = min(done + size, total)
        progress(done, total)

    return tick


def about(code: str, name: str, message: str, hint: str | None = None) -> Diagnostic:
    """A finding about one array."""
    path = format_path((FieldName("arrays"), FieldName(name)))
    return Diagnostic(code, "error", message, path=path, hint=hint)


def about_each(name: str, error: StructError) -> list[Diagnostic]:
    """The problems of an error as findings about one array."""
    return [about(d.code, name, d.message, d.hint) for d in error.diagnostics]


def logical_dtype(name: str, dtype: np.dtype[Any]) -> str:
    """The name of a dtype in records.

    Raises:
        SerializationError: Arrays of this dtype cannot be stored; names the array.
    """
    try:
        return dtype_name(dtype)
    except SerializationError as error:
        raise SerializationError(about_each(name, error)) from error


def unrecorded(names: Iterable[str]) -> list[Diagnostic]:
    """A finding for each of these arrays of a file, which have no record."""
    hint = "the file was changed by hand, or the manifest belongs to another one"
    message = "expected a record for every array in the file, got none"
    return [about("NQX410", name, message, hint) for name in names]


def checksum_finding(
    name: str, found: int, expected: int | None, where: str = ""
) -> Diagnostic | None:
    """A finding if the checksum of an array differs from the recorded one."""
    if expected is None or found == expected:
        return None
    message = f"expected bytes with crc32 {expected:#010x}{where}, got {found:#010x}"
    return about("NQX407", name, message, "the file was damaged or changed; restore it from a copy")


def require_possible(shape: Sequence[int], itemsize: int) -> None:
    """Checks that numpy can make an array of this shape.

    A shape with a zero can still overflow.

    Raises:
        IntegrityError: There are too many dimensions, or too large ones.
    """
    import numpy as np

    most = 32 if np.__version__.startswith("1.") else MOST_DIMS
    nonzero = prod(size or 1 for size in shape[:most])
    if len(shape) > most or nonzero * max(itemsize, 1) >= 2**63:
        message = f"expected at most {most} dimensions that fit memory, got {str(list(shape))[:80]}"
        raise IntegrityError(message, code="NQX412")


def require_nbytes(record: Mapping[str, Any], nbytes: int, stored: int | None = None) -> None:
    """Checks the size of an array in its record, and in its file if that is known.

    Raises:
        IntegrityError: They differ.
    """
    declared = record.get("nbytes", nbytes)
    if declared == nbytes and stored in (None, nbytes):
        return
    held = "" if stored is None else f"{stored} in the file and "
    message = f"expected {nbytes} bytes for {record['dtype']}{list(record['shape'])}, got {held}{declared} in the record"
    raise damaged(message)
