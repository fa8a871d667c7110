"""Filters by place: what a leaf's path has to be.

Example:
    >>> PathGlob("params/**/bias")(("params", "layers", 0, "bias"), 1.0)
    True
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from neuralqx_struct.filters.algebra import Matcher, Term, type_error
from neuralqx_struct.paths import Path, match_glob

__all__ = ["PathContains", "PathGlob", "PathIn"]


@dataclass(frozen=True, slots=True, repr=False)
class PathContains(Matcher):
    """Leaves with ``key`` in their path; with ``exact=False``, with ``str(key)`` inside the text of one part."""

    key: Hashable
    exact: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.key, Hashable):
            raise type_error("PathContains", "one path key (hashable)", self.key)

    def _matches(self, path: Path, _value: object, /) -> bool:
        return self.key in path if self.exact else any(str(self.key) in str(part) for part in path)

    def __repr__(self) -> str:
        return f"PathContains({self.key!r}, exact={self.exact})"


@dataclass(frozen=True, slots=True, repr=False, init=False)
class PathIn(Matcher):
    """Leaves at exactly these paths: ``PathIn(("params", "w"), ("step",))``.

    Raises:
        TypeError: A path is not a tuple of hashable keys.
    """

    paths: frozenset[Path]

    def __init__(self, *paths: Path) -> None:
        for path in paths:
            if not isinstance(path, tuple):
                raise type_error("PathIn", "paths as tuples of keys", path, "as in PathIn(('params', 'w'))")
            for key in path:
                if not isinstance(key, Hashable):
                    raise type_error("PathIn", "hashable keys in a path", key)
        object.__setattr__(self, "paths", frozenset(paths))

    def _matches(self, path: Path, _value: object, /) -> bool:
        return path in self.paths

    def __repr__(self) -> str:
        return f"PathIn({', '.join(sorted(map(repr, self.paths)))})"


@dataclass(frozen=True, slots=True, repr=False)
class PathGlob(Term):
    """Leaves whose path matches a glob of :func:`~neuralqx_struct.paths.match_glob`, such as ``params/**/bias``."""

    word: ClassVar = "path"
    glob: str

    def __post_init__(self) -> None:
        if not isinstance(self.glob, str):
            raise type_error("PathGlob", "a glob (str)", self.glob, "for whole paths use PathIn")

    def _matches(self, path: Path, _value: object, /) -> bool:
        return match_glob(self.glob, path)
