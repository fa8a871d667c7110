"""Arrays by name that are read, fetched or computed on access.

Those of files are subclasses in ``stores/``.

Example:
    >>> import numpy as np
    >>> arrays = HeldArrays({"a": np.ones(2), "b": np.ones(3)}, names=["b"])
    >>> [*arrays], arrays.far
    (['b'], False)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from neuralqx_struct.errors import Diagnostic

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

    @property
    def far(self) -> bool:
        """True if each access waits for a server: :meth:`expect` then saves time."""
        return False

    def expect(self, names: Iterable[str]) -> None:
        """Announces the arrays that will be read next, in this order, so that several are fetched at a time."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def at_hand(self, name: str) -> bool:  # noqa: ARG002 - a store can have arrays of both kinds
        """True if reading an array again costs nothing, as in a mapped file or in memory."""
        return False

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
        found = self.original(name)
        return found if name in self._made else self.fetch(found)

    @property
    def far(self) -> bool:
        """True if the arrays that it holds are far."""
        return isinstance(self._held, StoredArrays) and self._held.far

    def expect(self, names: Iterable[str]) -> None:
        """Announces arrays to the bundle that has them."""
        if isinstance(self._held, StoredArrays):
            self._held.expect(name for name in names if self._source(name) is not None)

    def at_hand(self, name: str) -> bool:
        """True for arrays in memory, and those that are at hand in a bundle."""
        source = self._source(name)
        return name not in self._made if source is None else source.at_hand(name)

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
        source = self._source(name)
        return None if source is None else source.verify(name)

    def parts(self, name: str, regions: Iterable[Region]) -> Iterator[np.ndarray[Any, Any]]:
        """Yields parts of one array."""
        source = self._source(name)
        return super().parts(name, regions) if source is None else source.parts(name, regions)

    def _source(self, name: str) -> StoredArrays | None:
        """The stored arrays that have the array, unless it is computed or in memory."""
        stored = name in self._names and name not in self._made
        return self._held if stored and isinstance(self._held, StoredArrays) else None
