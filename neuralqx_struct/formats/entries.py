"""Places of arrays in one file, as its directory and the records of the manifest agree on them.

Example:
    >>> FileFormat(write=print, index=lambda view: {"w": 8}, entry=print).name("w")
    'w'
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple

from neuralqx_struct.errors import Diagnostic, StructError
from neuralqx_struct.formats.store import (
    Access,
    Records,
    Tick,
    Written,
    about,
    about_each,
    unrecorded,
)
from neuralqx_struct.manifest import collector_paused, raise_findings
from neuralqx_struct.manifest.check import is_record

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


class Entry(NamedTuple):
    """The place and the type of one array in a file, after all checks.

    Attributes:
        dtype: Its logical dtype.
        shape: Its shape.
        start: Its first byte in the file; in the expanded data if it is deflated.
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


def _same_names(names: Collection[str]) -> Mapping[str, str]:
    return dict(zip(names, names, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFormat:
    """The layout of arrays in one kind of file.

    Attributes:
        write: Writes arrays to an open file and returns their records. Arguments: file, arrays,
            compress, tick.
        index: Returns a description of each array in a file, by its key there.
        entry: Compares the description of an array with its record and returns its entry. Arguments:
            view of the file, description, record.
        keys: Returns the keys of arrays in the file, by name.
        name: Returns the name of an array from its key.
        locate: Returns the entry of an array whose header is where its record says, without the directory; else None.
    """

    write: Callable[[BinaryIO, Mapping[str, Array], bool, Tick | None], Written]
    index: Callable[[memoryview], dict[str, Any]]
    entry: Callable[[memoryview, Any, Mapping[str, Any]], Entry]
    keys: Callable[[Collection[str]], Mapping[str, str]] = _same_names
    name: Callable[[str], str] = str
    locate: Callable[[memoryview, Mapping[str, Any]], Entry | None] | None = None


def agreeing(
    layout: FileFormat, view: memoryview, records: Records, access: Access
) -> tuple[dict[str, Entry], list[Diagnostic]]:
    """The entries of the arrays of a file that agree with their records, and findings about the others; reads no array."""
    found: list[Diagnostic] = []
    entries: dict[str, Entry] = {}
    try:
        with collector_paused():
            unclaimed = layout.index(view)
            keys = layout.keys(records)
            for name, record in records.items():
                item = unclaimed.pop(keys[name], None)
                if item is None:
                    message = "expected an array of this name in the file, got none"
                    found.append(about("NQX409", name, message))
                    continue
                try:
                    entries[name] = layout.entry(view, item, record)
                except StructError as error:
                    found += about_each(name, error)
            for key in layout.keys(access.superseded).values() if unclaimed else ():
                unclaimed.pop(key, None)
        found += unrecorded(map(layout.name, unclaimed))
    except StructError as error:
        found += error.diagnostics
    return entries, found


class PartialEntries(Mapping[str, Entry]):
    """Entries of the arrays that are read, each located by its record; the others are not compared with the file.

    If an array is not where its record says, the whole file is compared, as for a reader of all arrays.
    """

    def __init__(
        self, layout: FileFormat, view: memoryview, records: Records, access: Access
    ) -> None:
        self._layout, self._view, self._records = layout, view, records
        self._access = access
        self._found: dict[str, Entry] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, name: str) -> Entry:
        found = self._found.get(name)
        if found is not None:
            return found
        record = self._records[name]
        if is_record(record) and self._layout.locate is not None:
            found = self._layout.locate(self._view, record)
        if found is None:
            self._found = self._compared()
            return self._found[name]
        self._found[name] = found
        return found

    def _compared(self) -> dict[str, Entry]:
        """The entries of all arrays.

        Raises:
            SerializationError: The manifest has problems, or does not agree with the file.
        """
        if self._access.whole is not None:
            self._access.whole()
        entries, found = agreeing(self._layout, self._view, self._records, self._access)
        raise_findings(found)
        return entries
