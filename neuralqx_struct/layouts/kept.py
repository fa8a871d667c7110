"""Arrays that are needed again: small ones stay in memory, others in a temporary file.

A file of another program has the fields of one layer after those of another, and a schema can have all layers in one
array. Whatever is read of the source for a layer that is not written yet is kept here, so that nothing is read twice.

Example:
    >>> import numpy as np
    >>> kept = KeptArrays()
    >>> kept.keep("w", np.arange(6.0).reshape(2, 3))
    >>> "w" in kept, kept["w"].tolist(), kept.pop("w").shape, kept.pop("w")
    (True, [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], (2, 3), None)
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Hashable
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Final

from neuralqx_struct.stores.store import bytes_of

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

#: Bytes that stay in memory, and the largest array among them.
_MOST_HELD: Final = 16 << 20
_MOST_EACH: Final = 1 << 20


class KeptArrays:
    """Arrays by key; those in the file are maps of it."""

    def __init__(self) -> None:
        self._left = _MOST_HELD
        self._held: dict[Hashable, Array] = {}
        self._mapped: dict[Hashable, Array] = {}
        self._file: IO[bytes] | None = None

    def __contains__(self, key: Hashable) -> bool:
        return key in self._held or key in self._mapped

    def __getitem__(self, key: Hashable) -> Array:
        return self._held[key] if key in self._held else self._mapped[key]

    def keep(self, key: Hashable, array: Array) -> None:
        """Adds an array; of a part of a larger one, a copy."""
        if array.nbytes <= min(_MOST_EACH, self._left):
            self._left -= array.nbytes
            self._held[key] = array if array.base is None else array.copy()
        else:
            self._mapped[key] = self._written(array)

    def pop(self, key: Hashable, default: Array | None = None) -> Array | None:
        """Removes an array, and returns it."""
        array = self._held.pop(key, None)
        if array is None:
            return self._mapped.pop(key, default)
        self._left += array.nbytes
        return array

    def _written(self, array: Array) -> Array:
        if self._file is None:
            self._file = TemporaryFile(buffering=0)  # noqa: SIM115 - for as long as the arrays
            weakref.finalize(self, self._file.close)
        return _mapped(array, self._file)


def out_of_memory(array: Array) -> Array:
    """A large array as a map of a temporary file, so that what is computed of it is alone in memory."""
    if array.nbytes <= _MOST_EACH:
        return array
    with TemporaryFile(buffering=0) as file:
        return _mapped(array, file)


def _mapped(array: Array, file: IO[bytes]) -> Array:
    """Appends an array to a file, and maps it there."""
    import numpy as np

    start = -(-file.seek(0, 2) // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
    file.seek(start)
    data = memoryview(bytes_of(array))
    while data:
        data = data[file.write(data) :]
    held = mmap.mmap(file.fileno(), array.nbytes, access=mmap.ACCESS_READ, offset=start)
    return np.ndarray(array.shape, array.dtype, held)
