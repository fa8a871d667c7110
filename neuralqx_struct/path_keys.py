"""How JAX sees a tree by path: one flat node, whose keys are printed as those of the nested dicts that it stands for.

Owns the registration of :class:`~neuralqx_struct.path_tree.PathTree` with JAX, and the keys of JAX as our paths. One flat
node however deep the paths are, because JAX visits every level of nested dicts, and sorts it, whenever it takes a tree apart.

Example:
    >>> import jax
    >>> pairs, _ = jax.tree_util.tree_flatten_with_path(PathTree({("net", "w"): 1.5}))
    >>> jax.tree_util.keystr(pairs[0][0]), path_parts(pairs[0][0])
    ("['net']['w']", ('net', 'w'))
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Iterable
from functools import lru_cache
from typing import Any

from jax.tree_util import DictKey, register_pytree_with_keys

from neuralqx_struct.path_tree import PathTree
from neuralqx_struct.paths import Path
from neuralqx_struct.pytree import path_part

__all__ = ["PathKey", "path_parts"]


class PathKey(DictKey):  # type: ignore[misc]  # JAX types its keys as Any
    """JAX's key of a leaf that stands several dicts deep, but is a child of what holds them all.

    Tools that take a key for one name get the names with slashes between them.
    """

    def __init__(self, parts: Path) -> None:
        name = "/".join(map(str, parts))
        if "%" in name or name.count("/") >= len(parts):
            name = "/".join([str(part).replace("%", "%25").replace("/", "%2F") for part in parts])
        super().__init__(name)
        self.parts = parts

    def __str__(self) -> str:
        return "".join([f"[{part!r}]" for part in self.parts])


def path_parts(keys: Iterable[Any]) -> Path:
    """Keys of JAX as one of our paths."""
    parts: list[Hashable] = []
    for key in keys:
        if isinstance(key, PathKey):
            parts += key.parts
        else:
            parts.append(path_part(key))
    return tuple(parts)


@lru_cache(maxsize=16)
def _keys(paths: tuple[tuple[str, ...], ...]) -> tuple[PathKey, ...]:
    return tuple(map(PathKey, PathTree.of(paths, paths).places()))


def _flatten_with_keys(tree: PathTree) -> tuple[Iterable[tuple[Any, Any]], Any]:
    leaves, paths = tree.pair
    return tuple(zip(_keys(paths), leaves, strict=True)), paths


register_pytree_with_keys(PathTree, _flatten_with_keys, PathTree.of, operator.attrgetter("pair"))
