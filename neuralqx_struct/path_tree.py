"""Leaves by path, in sorted order: what a mapping from tuples of text to leaves and nested dicts have in common.

:class:`PathTree` reads as dicts of dicts, ``{"net": {"w": 1}}`` for 1 at ``("net", "w")``. A path may be the beginning of
another one: the leaf of the shorter stands under :data:`HERE` then. Held are two tuples, the sorted paths and their
leaves, so that a tree with other leaves shares the paths, and taking one apart makes nothing. Knows neither JAX nor what
the leaves are, but that they are no mappings.

Example:
    >>> tree = PathTree({("net", "w"): 1, ("net",): 2})
    >>> tree
    {'net': {'': 2, 'w': 1}}
    >>> list(tree.with_entry(("a",), 3).entries())
    [(('a',), 3), (('net',), 2), (('net', 'w'), 1)]
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, Final, Self

__all__ = ["HERE", "Path", "PathTree", "is_path"]

Path = tuple[str, ...]

#: The key of a leaf whose path is the beginning of another's; no name is empty.
HERE: Final = ""


def is_path(path: object) -> bool:
    """True for a tuple of names that are text and not empty."""
    return isinstance(path, tuple) and bool(path) and all(isinstance(part, str) and part for part in path)


class PathTree(Mapping[str, Any]):
    """An immutable tree of leaves; as a mapping, the names of the first level with what stands below them.

    Args:
        leaves: The leaves by path, in any order.

    Attributes:
        pair: The leaves and the paths, both sorted by path: what JAX takes the tree apart to.
    """

    __slots__ = ("pair",)
    pair: tuple[tuple[Any, ...], tuple[Path, ...]]

    def __init__(self, leaves: Mapping[Path, Any] = {}) -> None:
        paths = tuple(sorted(leaves))
        self.pair = tuple(map(leaves.__getitem__, paths)), paths

    @classmethod
    def of(cls, paths: tuple[Path, ...], leaves: Any) -> Self:
        """The tree of paths that are sorted, and their leaves; the inverse of ``pair``."""
        tree = object.__new__(cls)
        tree.pair = leaves, paths
        return tree

    # --- by path -----------------------------------------------------------------------------------------------

    def entries(self) -> Iterator[tuple[Path, Any]]:
        """Paths and leaves, sorted by path."""
        leaves, paths = self.pair
        return zip(paths, leaves, strict=True)

    def find(self, path: Path) -> Any:
        """The leaf at a path, or None; for what is no path, too."""
        leaves, paths = self.pair
        try:
            at = bisect_left(paths, path)
        except TypeError:
            return None
        return leaves[at] if at < len(paths) and paths[at] == path else None

    def with_entry(self, path: Path, leaf: Any) -> Self:
        """The tree with another leaf at a path, which may be new."""
        leaves, paths = list(self.pair[0]), self.pair[1]
        at = bisect_left(paths, path)
        if at < len(paths) and paths[at] == path:
            leaves[at] = leaf
        else:
            leaves.insert(at, leaf)
            paths = (*paths[:at], path, *paths[at:])
        return self.of(paths, tuple(leaves))

    def where(self, kept: Sequence[bool]) -> Self:
        """The leaves for which there is a True."""
        leaves, paths = self.pair
        return self.of(tuple(compress(paths, kept)), tuple(compress(leaves, kept)))

    def places(self) -> Iterator[Path]:
        """The keys that lead to each leaf in the nested dicts: its path, and :data:`HERE` if that goes on."""
        _, paths = self.pair
        # Sorted: what begins with a path stands right behind it.
        for path, following in zip(paths, (*paths[1:], ()), strict=False):
            yield (*path, HERE) if following[: len(path)] == path else path

    # --- as nested dicts ---------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Any:
        leaves, paths = self.pair
        if not isinstance(name, str):
            raise KeyError(name)
        if name == HERE:
            start, stop = 0, int(paths[:1] == ((),))
        else:  # no text stands between a name and the same with a NUL behind it
            start, stop = bisect_left(paths, (name,)), bisect_left(paths, (name + "\0",))
        if start == stop:
            raise KeyError(name)
        if stop - start == 1 and len(paths[start]) <= 1:
            return leaves[start]
        return self.of(tuple([path[1:] for path in paths[start:stop]]), leaves[start:stop])

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(path[0] if path else HERE for path in self.pair[1]))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[Any, ...]:
        leaves, paths = self.pair
        return type(self).of, (paths, leaves)
