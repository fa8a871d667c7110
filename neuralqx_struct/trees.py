"""Whole objects by filters: split and merge into states, partition and combine with None where a leaf went elsewhere.

The half of ``leaves.py`` that knows JAX: takes an object apart into ``(path, leaf)`` pairs, whose struct fields carry
their declarations, and puts it together again. States are pytrees, so that one of them can be differentiated alone.

Example:
    >>> definition, floats, rest = split({"w": 1.5, "n": 2}, float, ...)
    >>> dict(floats)
    {('w',): 1.5}
    >>> merge(definition, floats, rest)
    {'n': 2, 'w': 1.5}
"""

from __future__ import annotations

from collections.abc import Hashable, ItemsView, Iterator, Mapping, ValuesView
from dataclasses import dataclass
from typing import Any

import jax
from jax.tree_util import DictKey, GetAttrKey, SequenceKey

from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.filters import Filter
from neuralqx_struct.leaves import combine_leaves, merge_leaves, partition_leaves, split_leaves
from neuralqx_struct.paths import FieldName, Path, format_path
from neuralqx_struct.pytree import FieldKey

__all__ = ["Definition", "State", "combine", "leaves_with_paths", "merge", "partition", "split"]


@dataclass(frozen=True, slots=True)
class Definition:
    """What is left of an object without its leaves; hashable, so it can be a static argument of ``jax.jit``.

    Attributes:
        treedef: The structure.
        paths: The path of each leaf, in the order of the structure.
    """

    treedef: Any
    paths: tuple[Path, ...]


@jax.tree_util.register_pytree_with_keys_class
class State(Mapping[Path, Any]):
    """Some leaves of an object by their paths; a pytree, and like all of them not to be changed in place."""

    __slots__ = ("_leaves", "_paths")

    def __init__(self, paths: tuple[Path, ...], leaves: tuple[Any, ...]) -> None:
        self._paths = paths
        self._leaves = leaves

    def __getitem__(self, path: Path) -> Any:
        return dict(zip(self._paths, self._leaves, strict=True))[path]

    def __iter__(self) -> Iterator[Path]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def items(self) -> ItemsView[Path, Any]:
        """The paths with their leaves, without looking each of them up."""
        return dict(zip(self._paths, self._leaves, strict=True)).items()

    def values(self) -> ValuesView[Any]:
        """The leaves."""
        return dict(zip(self._paths, self._leaves, strict=True)).values()

    def __repr__(self) -> str:
        shown = ", ".join(f"{format_path(path)}: {leaf!r}" for path, leaf in self.items())
        return f"State({{{shown}}})"

    def tree_flatten_with_keys(self) -> tuple[list[tuple[Any, Any]], tuple[Path, ...]]:
        """The leaves, keyed by their paths, and the paths."""
        return [(DictKey(path), leaf) for path, leaf in zip(self._paths, self._leaves, strict=True)], self._paths

    @classmethod
    def tree_unflatten(cls, paths: tuple[Path, ...], leaves: Any) -> State:
        """The inverse of :meth:`tree_flatten_with_keys`."""
        return cls(paths, tuple(leaves))


def leaves_with_paths(obj: Any) -> list[tuple[Path, Any]]:
    """The leaves of an object with their key paths, in the order in which JAX flattens it."""
    pairs, _ = jax.tree_util.tree_flatten_with_path(obj)
    return [(tuple(map(_plain_key, path)), leaf) for path, leaf in pairs]


def _plain_key(key: Any) -> Hashable:
    if isinstance(key, FieldKey):
        return FieldName(key.name, key.spec)
    if isinstance(key, GetAttrKey):
        return FieldName(key.name)
    if isinstance(key, (DictKey, SequenceKey)):
        plain: Hashable = key.key if isinstance(key, DictKey) else key.idx
        return plain
    return getattr(key, "key", str(key))


def split(obj: Any, *filters: Filter, report: list[Diagnostic] | None = None) -> tuple[Any, ...]:
    """Take an object apart into its definition and one state for each filter; the first filter that matches wins.

    Args:
        obj: A Struct or any pytree.
        *filters: See :mod:`neuralqx_struct.filters`; ``...`` last takes the rest.
        report: Gets filters that matched nothing and filters that overlap.

    Returns:
        The definition, then a :class:`State` for each filter.

    Raises:
        ValueError: A leaf matches no filter; names its path.
    """
    pairs = leaves_with_paths(obj)
    definition = Definition(jax.tree_util.tree_structure(obj), tuple(path for path, _ in pairs))
    groups = split_leaves(pairs, *filters, report=report)
    states = [State(tuple(path for path, _ in group), tuple(leaf for _, leaf in group)) for group in groups]
    return (definition, *states)


def merge(definition: Definition, *states: Mapping[Path, Any]) -> Any:
    """The inverse of :func:`split`: the object with the leaves of all its states.

    Raises:
        ValueError: A leaf is in no state or in two; names its path.
    """
    held = dict(merge_leaves(*(state.items() for state in states)))
    missing = [path for path in definition.paths if path not in held]
    known = set(definition.paths)
    extra = [path for path in held if path not in known]
    if missing or extra:
        what = [f"none for {', '.join(map(format_path, missing))}"] if missing else []
        what += [f"one too many at {', '.join(map(format_path, extra))}"] if extra else []
        raise ValueError(f"merge(): expected one leaf for every path of the definition, got {' and '.join(what)}")
    return jax.tree_util.tree_unflatten(definition.treedef, [held[path] for path in definition.paths])


def partition(obj: Any, filter: Filter) -> tuple[Any, Any]:  # noqa: A002 - the word of the field
    """Two objects of the same structure: one with the leaves that match, one with the others; None in their places."""
    kept, rest = partition_leaves(leaves_with_paths(obj), filter)
    treedef = jax.tree_util.tree_structure(obj)
    return jax.tree_util.tree_unflatten(treedef, kept), jax.tree_util.tree_unflatten(treedef, rest)


def combine(*parts: Any) -> Any:
    """The inverse of :func:`partition`: at each place the leaf that is not None.

    Raises:
        ValueError: Two parts have a leaf at one place, or the parts have different structures.
    """
    opened: list[tuple[list[Any], Any]] = [
        jax.tree_util.tree_flatten_with_path(part, is_leaf=lambda leaf: leaf is None) for part in parts
    ]
    if not opened or any(treedef != opened[0][1] for _, treedef in opened):
        raise ValueError(f"combine(): expected parts of one structure, got {len(parts)} of several")
    paths = [tuple(map(_plain_key, path)) for path, _ in opened[0][0]]
    leaves = combine_leaves(*([leaf for _, leaf in pairs] for pairs, _ in opened), paths=paths)
    return jax.tree_util.tree_unflatten(opened[0][1], leaves)
