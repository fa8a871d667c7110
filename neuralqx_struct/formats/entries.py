"""The arrays of one file, on which its directory and the records of the manifest agree.

Example:
    >>> FileFormat(write=print, index=lambda view: {"w": 8}, agreed=print).name("w")
    'w'
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from neuralqx_struct.errors import Diagnostic, StructError
from neuralqx_struct.formats.ranges import StoredArray
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


def _same_names(names: Collection[str]) -> Mapping[str, str]:
    return dict(zip(names, names, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFormat:
    """The layout of arrays in one kind of file.

    Attributes:
        write: Writes arrays to an open file and returns their records. Arguments: file, arrays,
            compress, tick.
        index: Returns a description of each array in a file, by its key there.
        agreed: Compares the description of an array with its record and returns where it lies. Arguments:
            view of the file, description, record.
        keys: Returns the keys of arrays in the file, by name.
        name: Returns the name of an array from its key.
        locate: Returns an array whose header is where its record says, without the directory; else None.
    """

    write: Callable[[BinaryIO, Mapping[str, Array], bool, Tick | None], Written]
    index: Callable[[memoryview], dict[str, Any]]
    agreed: Callable[[memoryview, Any, Mapping[str, Any]], StoredArray]
    keys: Callable[[Collection[str]], Mapping[str, str]] = _same_names
    name: Callable[[str], str] = str
    locate: Callable[[memoryview, Mapping[str, Any]], StoredArray | None] | None = None


def agreeing(
    layout: FileFormat, view: memoryview, records: Records, access: Access
) -> tuple[dict[str, StoredArray], list[Diagnostic]]:
    """The arrays of a file that agree with their records, and findings about the others; reads no array."""
    found: list[Diagnostic] = []
    arrays: dict[str, StoredArray] = {}
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
                    arrays[name] = layout.agreed(view, item, record)
                except StructError as error:
                    found += about_each(name, error)
            for key in layout.keys(access.superseded).values() if unclaimed else ():
                unclaimed.pop(key, None)
        found += unrecorded(map(layout.name, unclaimed))
    except StructError as error:
        found += error.diagnostics
    return arrays, found


class PartialArrays(Mapping[str, StoredArray]):
    """The arrays that are read, each located by its record; the others are not compared with the file.

    If an array is not where its record says, the whole file is compared, as for a reader of all arrays.
    """

    def __init__(
        self, layout: FileFormat, view: memoryview, records: Records, access: Access
    ) -> None:
        self._layout, self._view, self._records = layout, view, records
        self._access = access
        self._found: dict[str, StoredArray] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, name: str) -> StoredArray:
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

    def _compared(self) -> dict[str, StoredArray]:
        """All arrays.

        Raises:
            SerializationError: The manifest has problems, or does not agree with the file.
        """
        if self._access.whole is not None:
            self._access.whole()
        arrays, found = agreeing(self._layout, self._view, self._records, self._access)
        raise_findings(found)
        return arrays
