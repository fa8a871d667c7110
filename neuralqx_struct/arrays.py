"""Arrays by name, wherever they are: mappings that read, fetch or compute an array when it is asked for.

Owns what every source of arrays can do (:class:`StoredArrays`), arrays that others have (:class:`HeldArrays`) and names that
stand for arrays (:class:`ListedArrays`). Arrays of files are the stores', what belongs to a manifest is ``payload.py``'s.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from neuralqx_struct.errors import Diagnostic, IntegrityError

if TYPE_CHECKING:
    import numpy as np

__all__ = ["HeldArrays", "ListedArrays", "Region", "StoredArrays"]

Region = tuple[slice, ...]
"""A part of an array: a slice of each of its dimensions."""


class StoredArrays(Mapping[str, "np.ndarray[Any, Any]"]):
    """Arrays that lie in a file and are read on access, in the order of their names.

    Their dtypes and shapes were compared with the records when the file was opened: looking at an array again only to
    learn its shape would read its bytes.
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
        """Compare the stored bytes of one array with its checksum."""

    def parts(self, name: str, regions: Iterable[Region]) -> Iterator[np.ndarray[Any, Any]]:
        """Parts of one array, one after the other; a store that can reads no more of the array than these."""
        whole = self[name]
        for region in regions:
            yield whole[region]


class HeldArrays(StoredArrays):
    """Arrays that others hold, in memory, on devices or in a bundle, or that are made of those; fetched when asked for, not kept.

    Args:
        held: What there is, by name; it may be lazy too.
        fetch: Makes a numpy array of one of them, where they are anything else.
        made: Arrays that are computed, each time anew, by name.
        names: Which of all these are meant, in their order; without it all that are held.

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
        """What is held under a name, for stores that write it from where it is.

        Raises:
            KeyError: Nothing of this name is meant.
        """
        if name not in self._names:
            raise KeyError(name)
        return self._made[name]() if name in self._made else self._held[name]

    def fetch(self, original: Any) -> np.ndarray[Any, Any]:
        """A numpy array of what is held, or of a part of it."""
        return original if self._fetch is None else self._fetch(original)

    def verify(self, name: str) -> Diagnostic | None:
        """Compare the stored bytes of an array that lies in a bundle with its checksum."""
        return self._held.verify(name) if name not in self._made and isinstance(self._held, StoredArrays) else None

    def parts(self, name: str, regions: Iterable[Region]) -> Iterator[np.ndarray[Any, Any]]:
        """Parts of one array, read as whoever has it reads them."""
        if name in self._names and name not in self._made and isinstance(self._held, StoredArrays):
            return self._held.parts(name, regions)
        return super().parts(name, regions)


class ListedArrays(StoredArrays):
    """The names of arrays that are looked at elsewhere or not at all, where only their agreement with a manifest matters.

    Example:
        >>> list(ListedArrays(["a", "b"]))
        ['a', 'b']
    """

    __slots__ = ()

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        raise IntegrityError(f"expected a stored array, got its name {name!r} alone", code="NQX409")

    def verify(self, name: str) -> Diagnostic | None:  # noqa: ARG002 - there is nothing to compare
        """Nothing is read here."""
        return None
