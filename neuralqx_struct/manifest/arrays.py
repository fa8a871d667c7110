"""Arrays by name: mappings that read, fetch or compute an array on access.

The arrays of files are subclasses in the stores.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from neuralqx_struct.errors import Diagnostic, IntegrityError

if TYPE_CHECKING:
    import numpy as np

Region = tuple[slice, ...]
"""A part of an array: a slice of each of its dimensions."""


class StoredArrays(Mapping[str, "np.ndarray[Any, Any]"]):
    """Arrays in a file that are read on access, in the order of their names.

    Opening the file compares their dtypes and shapes with the records; doing that later would read their bytes.
    """

    __slots__ = ("_names",)

    def __init__(self, names: Collection[str]) -> None:
        self._names = names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    @abstractmethod
    def verify(self, name: str) -> Diagnostic | None:
        """Compares the stored bytes of one array with its checksum."""

    def parts(self, name: str, regions: Iterable[Region]) -> Iterator[np.ndarray[Any, Any]]:
        """Yields parts of one array; a store reads no more than these if it can."""
        whole = self[name]
        for region in regions:
            yield whole[region]


class HeldArrays(StoredArrays):
    """Arrays in memory, on devices or in another bundle, or computed from those; fetched on access, not kept.

    Args:
        held: The arrays by name; it may be lazy.
        fetch: Returns a numpy array of another object.
        made: Functions that compute an array, by name.
        names: The names to include, in their order; those of ``held`` if left out.

    Example:
        >>> import numpy as np
        >>> arrays = HeldArrays({"a": np.ones(2), "b": np.ones(3)}, made={"c": lambda: np.zeros(1)}, names=["a", "c"])
        >>> [(name, array.tolist()) for name, array in arrays.items()]
        [('a', [1.0, 1.0]), ('c', [0.0])]
    """

    __slots__ = ("_fetch", "_held", "_made")

    def __init__(
        self,
        held: Mapping[str, Any],
        fetch: Callable[[Any], np.ndarray[Any, Any]] | None = None,
        *,
        made: Mapping[str, Callable[[], np.ndarray[Any, Any]]] = MappingProxyType({}),
        names: Iterable[str] | None = None,
    ) -> None:
        super().__init__(held if names is None else dict.fromkeys(names))
        self._held, self._fetch, self._made = held, fetch, made

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        if name in self._made and name in self._names:
            return self._made[name]()
        return self.fetch(self.original(name))

    def original(self, name: str) -> Any:
        """The object of a name, for stores that write it from its place.

        Raises:
            KeyError: The name is not included.
        """
        if name not in self._names:
            raise KeyError(name)
        return self._made[name]() if name in self._made else self._held[name]

    def fetch(self, original: Any) -> np.ndarray[Any, Any]:
        """A numpy array of an object, or of a part of it."""
        return original if self._fetch is None else self._fetch(original)

    def verify(self, name: str) -> Diagnostic | None:
        """Compares the stored bytes of an array of a bundle with its checksum."""
        return (
            self._held.verify(name)
            if name not in self._made and isinstance(self._held, StoredArrays)
            else None
        )

    def parts(self, name: str, regions: Iterable[Region]) -> Iterator[np.ndarray[Any, Any]]:
        """Yields parts of one array."""
        if name in self._names and name not in self._made and isinstance(self._held, StoredArrays):
            return self._held.parts(name, regions)
        return super().parts(name, regions)


class ListedArrays(StoredArrays):
    """Names of arrays without the arrays, to compare with a manifest.

    Example:
        >>> list(ListedArrays(["a", "b"]))
        ['a', 'b']
    """

    __slots__ = ()

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        raise IntegrityError(f"expected a stored array, got its name {name!r} alone", code="NQX409")

    def verify(self, name: str) -> Diagnostic | None:  # noqa: ARG002 - there is nothing to compare
        """None: there is nothing to compare."""
        return None
