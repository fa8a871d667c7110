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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar, overload

import jax

from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.fieldspec import FieldSpec, tagged
from neuralqx_struct.filters import Filter, FilterError, to_predicate
from neuralqx_struct.leaves import Selection, combine_leaves, match_leaves, merge_leaves, partition_leaves, split_leaves
from neuralqx_struct.path_keys import path_parts
from neuralqx_struct.paths import FieldName, Path, format_path
from neuralqx_struct.states import Definition, State

__all__ = ["Definition", "State", "axes", "combine", "leaves_with_paths", "map_where", "merge", "partition", "split"]

T = TypeVar("T")
Report: TypeAlias = list[Diagnostic] | None


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
    leaves, treedef = flattened(obj)
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


def flattened(obj: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], Any]:
    """The leaves and the structure of an object.

    Raises:
        ValueError: Dicts have keys that JAX cannot sort; names every such dict.
    """
    try:
        leaves, treedef = jax.tree_util.tree_flatten(obj, is_leaf)
    except ValueError:
        pairs, _ = jax.tree_util.tree_flatten_with_path(obj, is_leaf=is_without_order)
        wrong = [
            Diagnostic(
                "NQX010",
                "error",
                f"expected keys that can be sorted, as JAX demands of dicts, got {_kinds(value)}",
                path=format_path(path_parts(keys)),
                hint="use keys of one kind, or an OrderedDict, which is not sorted",
            )
            for keys, value in pairs
            if is_without_order(value)
        ]
        if not wrong:
            raise
        raise FilterError(wrong) from None
    return leaves, treedef


def is_without_order(value: Any) -> bool:
    """True for dicts whose keys JAX cannot sort; ordered ones are left as they are."""
    if not isinstance(value, dict) or isinstance(value, OrderedDict):
        return False
    try:
        sorted(value)
    except TypeError:
        return True
    return False


def _kinds(keys: Iterable[Any]) -> str:
    return " and ".join(sorted({type(key).__name__ for key in keys}))


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
    opened: list[tuple[list[Any], Any]] = [flattened(part, _is_hole) for part in parts]
    if not parts:
        raise ValueError("combine(): expected parts of one structure, got none")
    for number, (_, treedef) in enumerate(opened):
        if treedef != opened[0][1]:
            raise ValueError(
                f"combine(): expected parts of one structure, got another one as part {number + 1}\n"
                f"  {_difference(parts[0], parts[number])}"
            )
    leaves = combine_leaves(*(leaves for leaves, _ in opened), paths=lambda: list(_paths(parts[0], _is_hole)))
    combined: T = jax.tree_util.tree_unflatten(opened[0][1], leaves)
    return combined


def _difference(first: Any, other: Any) -> str:
    """Where two parts differ that should be of one structure."""
    here, there = (dict.fromkeys(_paths(part, _is_hole)) for part in (first, other))
    alone = [
        f"{format_path(path)} is in one of them only" for path in (*here, *there) if (path in here) != (path in there)
    ]
    if alone:
        more = f", and {len(alone) - 1} more" if len(alone) > 1 else ""
        return f"{alone[0]}{more}"
    return "their leaves are at the same paths: classes, static fields or kinds of containers differ"


def _is_hole(leaf: Any) -> bool:
    return leaf is None


def map_where(obj: T, filter: Filter, function: Callable[[Any], Any], *, report: Report = None) -> T:  # noqa: A002
    """An object with the leaves that match replaced by what a function makes of them; the others stay as they are.

    Args:
        obj: A Struct or any pytree.
        filter: See :mod:`neuralqx_struct.filters`.
        function: Called with each leaf that matches.
        report: Gets the parts of the filter that match no leaf.

    Raises:
        TypeError: ``function`` cannot be called, or ``filter`` is none.

    Example:
        >>> map_where({"w": 1.5, "n": 2}, float, lambda leaf: leaf * 2)
        {'n': 2, 'w': 3.0}
    """
    if not callable(function):
        raise TypeError(
            f"map_where(): expected a function of a leaf as the third argument, got a {type(function).__name__}"
        )
    leaves, treedef, paths = _opened(obj)
    predicate = to_predicate(filter) if report is None else Selection(filter)
    mapped = [function(leaf) if predicate(path, leaf) else leaf for path, leaf in zip(paths, leaves, strict=True)]
    if isinstance(predicate, Selection) and report is not None:
        report.extend(predicate.findings("filter", nothing="warning"))
    changed: T = jax.tree_util.tree_unflatten(treedef, mapped)
    return changed


def axes(obj: Any, groups: Mapping[Filter, Any] | Iterable[tuple[Filter, Any]], *, report: Report = None) -> Any:
    """What stands for an object in ``in_axes`` or ``out_axes`` of :func:`jax.vmap`: each leaf's axis by the first filter that matches.

    Args:
        obj: A Struct or any pytree, as it will be given to the mapped function.
        groups: An axis, or None for leaves that are not mapped, by filter, as a mapping or as pairs; ``...`` last is for
            the rest. For other transformations any value will do, such as a ``PartitionSpec``.
        report: Gets filters that matched nothing and filters that overlap.

    Returns:
        An object of the same structure with the axes in place of the leaves.

    Raises:
        ValueError: A leaf matches no filter; names all such paths.
        TypeError: ``groups`` is neither a mapping nor pairs.

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
    pairs = list(groups.items() if isinstance(groups, Mapping) else groups) if isinstance(groups, Iterable) else None
    if pairs is None or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise TypeError(
            "axes(): expected a mapping from filters to axes, {A: 0, ...: None}, or such pairs, "
            f"got a {type(groups).__name__}"
        )
    filters, values = [given for given, _ in pairs], [axis for _, axis in pairs]
    leaves, treedef, paths = _opened(obj)
    first = match_leaves(zip(paths, leaves, strict=True), *filters, report=report)
    return jax.tree_util.tree_unflatten(treedef, [values[i] for i in first])
