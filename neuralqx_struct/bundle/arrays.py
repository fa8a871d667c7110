"""The arrays of all files of a bundle as one mapping.

Example:
    >>> from neuralqx_struct.manifest.payload import HeldArrays
    >>> arrays = BundleArrays({"w": (HeldArrays({"w": 1}), "ckpt/arrays.npz")})
    >>> [*arrays], arrays.far
    (['w'], False)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuralqx_struct.bundle.disk import refused_reading
from neuralqx_struct.errors import Diagnostic, SerializationError
from neuralqx_struct.manifest.payload import Region, StoredArrays

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


class BundleArrays(StoredArrays):
    """The arrays of all files of a bundle in one mapping; errors name the file."""

    __slots__ = ("_homes",)

    def __init__(self, homes: Mapping[str, tuple[StoredArrays, str]]) -> None:
        super().__init__(homes)
        self._homes = homes

    @property
    def far(self) -> bool:
        """True if an array is far."""
        return any(arrays.far for arrays in self._files())

    def expect(self, names: Iterable[str]) -> None:
        """Announces arrays to their files."""
        wanted = [name for name in names if name in self._homes]
        for each in self._files():
            each.expect(name for name in wanted if self._homes[name][0] is each)

    def _files(self) -> Iterable[StoredArrays]:
        return {id(arrays): arrays for arrays, _ in self._homes.values()}.values()

    def __getitem__(self, name: str) -> Array:
        arrays, file = self._homes[name]
        try:
            return arrays[name]
        except SerializationError as error:
            raise error.in_file(file) from error.__cause__
        except OSError as error:  # a broken disk, where arrays are copied
            raise refused_reading(error, Path(file)) from error

    def at_hand(self, name: str) -> bool:
        """True for an array that its file has at hand."""
        return self._homes[name][0].at_hand(name)

    def parts(self, name: str, regions: Iterable[Region]) -> Iterator[Array]:
        """Yields parts of one array."""
        arrays, file = self._homes[name]
        try:
            yield from arrays.parts(name, regions)
        except SerializationError as error:
            raise error.in_file(file) from error.__cause__

    def verify(self, name: str) -> Diagnostic | None:
        """Compares the stored bytes of one array with its checksum."""
        arrays, file = self._homes[name]
        problem = arrays.verify(name)
        return None if problem is None else problem.in_file(file)
