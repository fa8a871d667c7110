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

import threading
from collections import OrderedDict
from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Generic, TypeAlias, TypeVar, overload

import jax
from jax.tree_util import DictKey

from neuralqx_struct.display import Displayed
from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.fieldspec import FieldSpec, tagged
from neuralqx_struct.filters import Filter, to_predicate
from neuralqx_struct.identity import same_value
from neuralqx_struct.leaves import Selection, combine_leaves, match_leaves, merge_leaves, partition_leaves, split_leaves
from neuralqx_struct.path_keys import path_parts
from neuralqx_struct.paths import FieldName, Path, format_path
from neuralqx_struct.printing import Text, brief

__all__ = ["Definition", "State", "axes", "combine", "leaves_with_paths", "map_where", "merge", "partition", "split"]

_SHOWN = 40
T = TypeVar("T")
Report: TypeAlias = list[Diagnostic] | None


@dataclass(frozen=True, slots=True, repr=False)
class Definition(Generic[T]):
    """What is left of an object without its leaves; hashable, so it can be a static argument of ``jax.jit``.

    Attributes:
        treedef: The structure.
        paths: The path of each leaf, in the order of the structure.
    """

    treedef: Any
    paths: tuple[Path, ...] = field(compare=False)  # the structure fixes them

    def __repr__(self) -> str:
        return f"<Definition of {len(self.paths):,} leaves>"


@jax.tree_util.register_pytree_with_keys_class
class State(Displayed, Mapping[Path, Any]):
    """Some leaves of an object by their paths; a pytree, and like all of them not to be changed in place.

    A state equals a mapping with equal leaves at the same paths, arrays by dtype, shape and value. They pickle, and so do
    definitions, of everything whose class and static values do.
    """

    __slots__ = ("_by_path", "_leaves", "_paths")

    def __init__(self, paths: tuple[Path, ...], leaves: tuple[Any, ...]) -> None:
        self._paths = paths
        self._leaves = leaves
        self._by_path: dict[Path, Any] | None = None  # made when first asked for: JAX rebuilds states and never asks

    def _held(self) -> dict[Path, Any]:
        if self._by_path is None:
            self._by_path = dict(zip(self._paths, self._leaves, strict=True))
        return self._by_path

    def __getitem__(self, path: Path) -> Any:
        return self._held()[path]

    def __iter__(self) -> Iterator[Path]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return self._held().keys() == other.keys() and all(same_value(leaf, other[path]) for path, leaf in self.items())

    __hash__ = None  # type: ignore[assignment]  # as of all mappings

    def __reduce__(self) -> tuple[Any, ...]:
        return State, (self._paths, self._leaves)

    def items(self) -> ItemsView[Path, Any]:
        """The paths with their leaves, without looking each of them up."""
        return self._held().items()

    def values(self) -> ValuesView[Any]:
        """The leaves."""
        return self._held().values()

    def __nqx_shown__(self) -> tuple[str, Iterator[tuple[str, Any]]]:
        """The leaves by their paths, for ``repr`` and notebooks."""
        pairs = zip(map(format_path, self._paths), self._leaves, strict=False)
        more = len(self._paths) - _SHOWN
        return "State", chain(islice(pairs, _SHOWN), [("...", Text(f"{more:,} more"))] if more > 0 else [])

    def __repr__(self) -> str:
        shown = ", ".join(f"{path}: {brief(leaf)}" for path, leaf in self.__nqx_shown__()[1])
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
    leaves, _, paths = _opened(obj)
    return list(zip(paths, leaves, strict=True))


_KEPT_PATHS = 16
_paths_of: OrderedDict[Any, tuple[Path, ...]] = OrderedDict()
_keeping = threading.Lock()


def _opened(obj: Any) -> tuple[list[Any], Any, tuple[Path, ...]]:
    """The leaves, the structure, and the path of each leaf, which is worked out once for each structure.

    Training loops take objects of one structure apart again and again, and making the paths costs ten times what
    flattening does.
    """
    leaves, treedef = jax.tree_util.tree_flatten(obj)
    try:
        with _keeping:
            paths = _paths_of.get(treedef)
            if paths is not None:
                _paths_of.move_to_end(treedef)
                return leaves, treedef, paths
    except TypeError:  # a registered class has auxiliary data without a hash
        return leaves, treedef, tuple(_paths(obj))
    paths = tuple(_paths(obj))
    with _keeping:
        _paths_of[treedef] = paths
        while len(_paths_of) > _KEPT_PATHS:
            _paths_of.popitem(last=False)
    return leaves, treedef, paths


def _paths(obj: Any, is_leaf: Callable[[Any], bool] | None = None) -> Iterator[Path]:
    def stops(value: Any) -> bool:
        return _is_variable(value) or (is_leaf is not None and is_leaf(value))

    pairs, _ = jax.tree_util.tree_flatten_with_path(obj, is_leaf=stops)
    for keys, value in pairs:
        path = path_parts(keys)
        if _is_variable(value):
            yield from ((*path, *below) for below in _variable_paths(value, is_leaf))
        else:
            yield path


def _is_variable(value: Any) -> bool:
    """True for the Variables of Flax, which filters know by type and tag: Flax is not asked, as it may not be here."""
    bases = type(value).__mro__
    return any(base.__name__ == "Variable" and base.__module__.partition(".")[0] == "flax" for base in bases)


def _variable_paths(variable: Any, is_leaf: Callable[[Any], bool] | None) -> Iterator[Path]:
    tag = getattr(variable, "tag", None)
    spec = tagged(FieldSpec(name="value"), [tag] if isinstance(tag, str) else [])
    for keys, _ in jax.tree_util.tree_flatten_with_path(variable, is_leaf=is_leaf)[0]:
        yield (FieldName("value", spec, type(variable)), *path_parts(keys[1:]))


# One overload for each number of states: mypy does not let a tuple of open length be unpacked into names.
@overload
def split(obj: T, a: Filter, /, *, report: Report = None) -> tuple[Definition[T], State]: ...
@overload
def split(obj: T, a: Filter, b: Filter, /, *, report: Report = None) -> tuple[Definition[T], State, State]: ...
@overload
def split(
    obj: T, a: Filter, b: Filter, c: Filter, /, *, report: Report = None
) -> tuple[Definition[T], State, State, State]: ...
@overload
def split(obj: Any, *filters: Filter, report: Report = None) -> tuple[Any, ...]: ...
def split(obj: Any, *filters: Filter, report: Report = None) -> tuple[Any, ...]:
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
    leaves, treedef, paths = _opened(obj)
    definition: Definition[Any] = Definition(treedef, paths)
    groups = split_leaves(zip(paths, leaves, strict=True), *filters, report=report)
    states = [State(tuple(path for path, _ in group), tuple(leaf for _, leaf in group)) for group in groups]
    return (definition, *states)


def merge(definition: Definition[T], *states: Mapping[Path, Any]) -> T:
    """The inverse of :func:`split`: the object with the leaves of all its states.

    Raises:
        ValueError: A leaf is in no state or in two; names its path.
        TypeError: What stands first is no definition, or something behind it is no state.
    """
    if not isinstance(definition, Definition):
        raise TypeError(f"merge(): expected the definition that split() gives first, got a {type(definition).__name__}")
    for state in states:
        if not isinstance(state, Mapping):
            raise TypeError(f"merge(): expected states, which are mappings by path, got a {type(state).__name__}")
    held: dict[Path, Any] = {}
    for state in states:
        held.update(state.items())
    if len(held) == len(definition.paths) == sum(map(len, states)):
        with suppress(KeyError):
            merged: T = jax.tree_util.tree_unflatten(definition.treedef, [held[path] for path in definition.paths])
            return merged
    merge_leaves(*(state.items() for state in states))
    missing = [path for path in definition.paths if path not in held]
    known = set(definition.paths)
    extra = [path for path in held if path not in known]
    what = [f"none for {', '.join(map(format_path, missing))}"] if missing else []
    what += [f"one too many at {', '.join(map(format_path, extra))}"] if extra else []
    raise ValueError(f"merge(): expected one leaf for every path of the definition, got {' and '.join(what)}")


def partition(obj: T, filter: Filter, *, report: Report = None) -> tuple[T, T]:  # noqa: A002 - the word of the field
    """Two objects of the same structure: one with the leaves that match, one with the others; None in their places.

    Args:
        obj: A Struct or any pytree.
        filter: See :mod:`neuralqx_struct.filters`.
        report: Gets the parts of the filter that match no leaf.
    """
    leaves, treedef, paths = _opened(obj)
    kept, rest = partition_leaves(zip(paths, leaves, strict=True), filter, report=report)
    return jax.tree_util.tree_unflatten(treedef, kept), jax.tree_util.tree_unflatten(treedef, rest)


def combine(*parts: T) -> T:
    """The inverse of :func:`partition`: at each place the leaf that is not None.

    Raises:
        ValueError: Two parts have a leaf at one place, or the parts have different structures.
    """
    opened: list[tuple[list[Any], Any]] = [jax.tree_util.tree_flatten(part, is_leaf=_is_hole) for part in parts]
    if not parts:
        raise ValueError("combine(): expected parts of one structure, got none")
    if any(treedef != opened[0][1] for _, treedef in opened):
        raise ValueError(f"combine(): expected parts of one structure, got {len(parts)} of several")
    leaves = combine_leaves(*(leaves for leaves, _ in opened), paths=lambda: list(_paths(parts[0], _is_hole)))
    combined: T = jax.tree_util.tree_unflatten(opened[0][1], leaves)
    return combined


def _is_hole(leaf: Any) -> bool:
    return leaf is None


def map_where(obj: T, filter: Filter, function: Callable[[Any], Any], *, report: Report = None) -> T:  # noqa: A002
    """An object with the leaves that match replaced by what a function makes of them; the others stay as they are.

    Args:
        obj: A Struct or any pytree.
        filter: See :mod:`neuralqx_struct.filters`.
        function: Called with each leaf that matches.
        report: Gets the parts of the filter that match no leaf.

    Example:
        >>> map_where({"w": 1.5, "n": 2}, float, lambda leaf: leaf * 2)
        {'n': 2, 'w': 3.0}
    """
    leaves, treedef, paths = _opened(obj)
    predicate = to_predicate(filter) if report is None else Selection(filter)
    mapped = [function(leaf) if predicate(path, leaf) else leaf for path, leaf in zip(paths, leaves, strict=True)]
    if isinstance(predicate, Selection) and report is not None:
        report.extend(predicate.findings("filter", nothing="warning"))
    changed: T = jax.tree_util.tree_unflatten(treedef, mapped)
    return changed


def axes(obj: Any, groups: Mapping[Filter, Any], *, report: Report = None) -> Any:
    """What stands for an object in ``in_axes`` or ``out_axes`` of :func:`jax.vmap`: each leaf's axis by the first filter that matches.

    Args:
        obj: A Struct or any pytree, as it will be given to the mapped function.
        groups: An axis, or None for leaves that are not mapped, by filter; ``...`` last is for the rest. For other
            transformations any value will do, such as a ``PartitionSpec``.
        report: Gets filters that matched nothing and filters that overlap.

    Returns:
        An object of the same structure with the axes in place of the leaves.

    Raises:
        ValueError: A leaf matches no filter; names all such paths.
        TypeError: ``groups`` is no mapping.

    Example:
        >>> import jax.numpy as jnp
        >>> from neuralqx_struct.filters import PathContains
        >>> model = {"w": jnp.ones((3, 2)), "scale": jnp.ones(2)}
        >>> in_axes = axes(model, {PathContains("w"): 0, ...: None})
        >>> in_axes
        {'scale': None, 'w': 0}
        >>> jax.vmap(lambda m: m["w"] * m["scale"], in_axes=(in_axes,))(model).shape
        (3, 2)
    """
    if not isinstance(groups, Mapping):
        raise TypeError(
            f"axes(): expected a mapping from filters to axes, {{A: 0, ...: None}}, got a {type(groups).__name__}"
        )
    leaves, treedef, paths = _opened(obj)
    values = tuple(groups.values())
    first = match_leaves(zip(paths, leaves, strict=True), *groups, report=report)
    return jax.tree_util.tree_unflatten(treedef, [values[i] for i in first])
