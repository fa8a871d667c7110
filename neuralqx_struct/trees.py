"""Whole objects by filters: split and merge into states, partition and combine with None in place of missing leaves.

Flattens an object to ``(path, leaf)`` pairs whose struct fields carry their declarations, and builds it again. States
are pytrees, so one of them can be differentiated alone.

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
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, overload

from jax.tree_util import tree_flatten, tree_flatten_with_path, tree_unflatten

from neuralqx_struct.errors import Diagnostic, within_stack
from neuralqx_struct.fieldspec import FieldSpec, tagged
from neuralqx_struct.filters.partition import (
    SHOWN_PROBLEMS,
    all_problems,
    matches,
    merge_leaves,
    split_leaves,
)
from neuralqx_struct.filters.records import Filter, FilterError
from neuralqx_struct.matching import Form, Verdict, compared, match, unfit
from neuralqx_struct.paths import FieldName, Path, format_path
from neuralqx_struct.printing import Text, brief_leaf
from neuralqx_struct.references import class_ref, defined_again
from neuralqx_struct.states import Definition, State
from neuralqx_struct.struct.pytree import path_parts

__all__ = ["Definition", "State", "combine", "map_where", "merge", "partition", "split"]

T = TypeVar("T")
Report: TypeAlias = list[Diagnostic] | None
_ABSENT: Final = Text("nothing")


def leaves_with_paths(obj: Any) -> list[tuple[Path, Any]]:
    """The leaves of an object with their key paths, in the order in which JAX flattens it."""
    leaves, _, paths = _flattened_with_paths(obj)
    return list(zip(paths, leaves, strict=True))


_KEPT_PATHS = 16
_paths_of: OrderedDict[Any, tuple[Path, ...]] = OrderedDict()
_lock = threading.Lock()


@within_stack
def _flattened_with_paths(obj: Any) -> tuple[list[Any], Any, tuple[Path, ...]]:
    """The leaves, the structure and the path of each leaf.

    Paths are kept for the last structures: training loops flatten objects of one structure again and again, and making
    the paths costs ten times as much as flattening.
    """
    leaves, treedef = flattened(obj)
    try:
        with _lock:
            paths = _paths_of.pop(treedef, None)
            if paths is not None:
                _paths_of[treedef] = paths
    except TypeError:  # a registered class has auxiliary data without a hash
        return leaves, treedef, tuple(paths_of(obj))
    if paths is None:
        paths = tuple(paths_of(obj))
        with _lock:
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
        if is_leaf is not None:
            # Too deep an object fails here: from a walk with is_leaf, JAX never gives the thread its stack back.
            tree_flatten(obj)
        return tree_flatten(obj, is_leaf)
    except ValueError:
        pairs, _ = tree_flatten_with_path(obj, is_leaf=is_without_order)
        problems = [_unsorted(keys, value) for keys, value in pairs if is_without_order(value)]
        if not problems:
            raise
        raise FilterError(problems) from None


def is_without_order(value: Any) -> bool:
    """True for dicts whose keys JAX cannot sort; ordered ones are not sorted."""
    if not isinstance(value, dict) or isinstance(value, OrderedDict):
        return False
    try:
        sorted(value)
    except TypeError:
        return True
    return False


def _unsorted(keys: Any, value: dict[Any, Any]) -> Diagnostic:
    types = " and ".join(sorted({type(key).__name__ for key in value}))
    return Diagnostic(
        "NQX010",
        "error",
        f"expected keys that can be sorted, as JAX demands of dicts, got {types}",
        path=format_path(path_parts(keys)),
        hint="use keys of one kind, or an OrderedDict, which is not sorted",
    )


def paths_of(obj: Any, is_leaf: Callable[[Any], bool] | None = None) -> Iterator[Path]:
    """Yields the path of each leaf; Variables of Flax are leaves with their type and tag."""

    def stops(value: Any) -> bool:
        return _is_variable(value) or (is_leaf is not None and is_leaf(value))

    for keys, value in tree_flatten_with_path(obj, is_leaf=stops)[0]:
        path = path_parts(keys)
        if not _is_variable(value):
            yield path
            continue
        tag = getattr(value, "tag", None)
        spec = tagged(FieldSpec(name="value"), [tag] if isinstance(tag, str) else [])
        field = FieldName("value", spec, type(value))
        for inner, _ in tree_flatten_with_path(value, is_leaf=is_leaf)[0]:
            yield (*path, field, *path_parts(inner[1:]))


def _is_variable(value: Any) -> bool:
    """True for Variables of Flax, known by name: filters see their type and tag without importing Flax."""
    return any(
        base.__name__ == "Variable" and base.__module__.partition(".")[0] == "flax"
        for base in type(value).__mro__
    )


def children_of(value: Any) -> dict[Path, Any] | None:
    """The values directly inside a pytree node by their paths; None for a leaf."""
    pairs, _ = tree_flatten_with_path(value, is_leaf=lambda each: each is not value)
    if len(pairs) == 1 and pairs[0][1] is value:
        return None
    return {path_parts(keys): child for keys, child in pairs}


class Beside(NamedTuple):
    """The values of two pytrees at one place.

    Attributes:
        path: The place.
        have: The value of the first.
        want: That of the other.
        verdict: Whether they are alike: of one class, or arrays of one dtype and shape.
    """

    path: Path
    have: Any
    want: Any
    verdict: Verdict

    def finding(
        self, origin: str, hint: str, *, where: str = "", code: str | None = None
    ) -> Diagnostic:
        """The finding about values that are not alike.

        Args:
            origin: The name of the other pytree.
            hint: The fix, but for a class that was defined again.
            where: The place of the first.
            code: The code, if it is that of no verdict.
        """
        hint = defined_again(type(self.have), type(self.want)) or hint
        wanted, got = _leaf_or_class(self.want), f"{_leaf_or_class(self.have)}{where}"
        at = format_path(self.path)
        return unfit(self.verdict, at, wanted, got, origin=origin, hint=hint, code=code)


def beside(have: Any, want: Any, path: Path = ()) -> Iterator[Beside]:
    """Yields the values of two pytrees at each place; nothing inside those that are not alike."""
    here, there = children_of(have), children_of(want)
    if type(have) is not type(want) and not (_is_number(have, want) or _is_number(want, have)):
        yield Beside(path, have, want, "mistyped")
    elif here is None or there is None:
        forms = Form.of(have), Form.of(want)
        yield Beside(path, have, want, "fits" if None in forms else compared(*forms))
    else:
        yield Beside(path, have, want, "fits")
        for part, verdict in match(here, there).items():
            inner = (*path, *part)
            if verdict == "fits":
                yield from beside(here[part], there[part], inner)
            else:
                yield Beside(inner, here.get(part, _ABSENT), there.get(part, _ABSENT), verdict)


def _is_number(value: Any, other: Any) -> bool:
    """True for an array beside another, or one without axes beside the Python number that JAX makes it of."""
    form = Form.of(value)
    if form is None:
        return False
    is_plain = isinstance(other, (bool, int, float, complex))
    return Form.of(other) is not None or (form.shape == () and is_plain)


def _leaf_or_class(value: Any) -> str:
    is_leaf = value is None or children_of(value) is None
    return brief_leaf(value) if is_leaf else class_ref(type(value))


# One overload for each number of states: mypy does not let a tuple of open length be unpacked into names.
@overload
def split(obj: T, a: Filter, /, *, report: Report = None) -> tuple[Definition[T], State]: ...
@overload
def split(
    obj: T, a: Filter, b: Filter, /, *, report: Report = None
) -> tuple[Definition[T], State, State]: ...
@overload
def split(
    obj: T, a: Filter, b: Filter, c: Filter, /, *, report: Report = None
) -> tuple[Definition[T], State, State, State]: ...
@overload
def split(obj: Any, *filters: Filter, report: Report = None) -> tuple[Any, ...]: ...
def split(obj: Any, *filters: Filter, report: Report = None) -> tuple[Any, ...]:
    """Splits an object into its definition and one state for each filter; the first filter that matches wins.

    Args:
        obj: A Struct or any pytree.
        *filters: See :mod:`neuralqx_struct.filters`; ``...`` last takes the rest.
        report: Gets filters that matched nothing and filters that overlap.

    Returns:
        The definition, then a :class:`State` for each filter.

    Raises:
        ValueError: A leaf matches no filter; names its path.
    """
    leaves, treedef, paths = _flattened_with_paths(obj)
    groups = split_leaves(zip(paths, leaves, strict=True), *filters, report=report)
    states = [State(tuple(p for p, _ in group), tuple(x for _, x in group)) for group in groups]
    return (Definition(treedef, paths), *states)


def merge(definition: Definition[T], *states: Mapping[Path, Any]) -> T:
    """Builds an object from its definition and the leaves of all its states; the inverse of :func:`split`.

    Raises:
        ValueError: A leaf is in no state or in two; names its path.
        TypeError: The first argument is not a definition, or another one is not a state.
    """
    if not isinstance(definition, Definition):
        raise TypeError(
            f"merge(): expected the definition that split() gives first, got a {type(definition).__name__}"
        )
    held: dict[Path, Any] = {}
    for state in states:
        if not isinstance(state, Mapping):
            raise TypeError(
                f"merge(): expected states, which are mappings by path, got a {type(state).__name__}"
            )
        held.update(state.items())
    paths = definition.paths
    if len(held) == len(paths) == sum(map(len, states)):
        with suppress(KeyError):
            merged: T = tree_unflatten(definition.treedef, [held[path] for path in paths])
            return merged
    merge_leaves(*(state.items() for state in states))
    names = match(held, paths)
    alone = {"none for": names.having("missing"), "one too many at": names.having("extra")}
    problems = [
        f"{words} {', '.join(map(format_path, some))}" for words, some in alone.items() if some
    ]
    raise ValueError(
        f"merge(): expected one leaf for every path of the definition, got {' and '.join(problems)}"
    )


def partition(obj: T, filter: Filter, *, report: Report = None) -> tuple[T, T]:  # noqa: A002 - the word of the field
    """Splits an object into two of its structure: the leaves that match and the others, None in place of the rest.

    Args:
        obj: A Struct or any pytree.
        filter: See :mod:`neuralqx_struct.filters`.
        report: Gets the parts of the filter that match no leaf.

    Returns:
        The object with the leaves that match, and the one with the others.
    """
    pairs, treedef = _matched(obj, filter, report)
    kept = [leaf if hit else None for leaf, hit in pairs]
    rest = [None if hit else leaf for leaf, hit in pairs]
    return tree_unflatten(treedef, kept), tree_unflatten(treedef, rest)


def _matched(obj: Any, wanted: Filter, report: Report) -> tuple[list[tuple[Any, bool]], Any]:
    """The leaves with whether they match a filter, and the structure."""
    leaves, treedef, paths = _flattened_with_paths(obj)
    hits = matches(zip(paths, leaves, strict=True), wanted, report)
    return list(zip(leaves, hits, strict=True)), treedef


@within_stack
def combine(*parts: T) -> T:
    """Joins objects of one structure, at each place the leaf that is not None; the inverse of :func:`partition`.

    Raises:
        ValueError: Two parts have a leaf at one place, or the parts have different structures.
    """
    if not parts:
        raise ValueError("combine(): expected parts of one structure, got none")
    flat = [flattened(part, is_none) for part in parts]
    treedef = flat[0][1]
    for number, (_, other) in enumerate(flat):
        if other != treedef:
            raise ValueError(
                f"combine(): expected parts of one structure, got another one as part {number + 1}\n"
                f"  {_difference(parts[0], parts[number])}"
            )
    filled: list[Any] = []
    clashes: list[int] = []
    for place, candidates in enumerate(zip(*(leaves for leaves, _ in flat), strict=True)):
        present = [leaf for leaf in candidates if leaf is not None]
        filled.append(present[0] if present else None)
        if len(present) > 1:
            clashes.append(place)
    if clashes:
        paths = list(paths_of(parts[0], is_none))
        message = "expected a leaf in one part and None in the others, got several leaves"
        raise all_problems(
            "NQX429",
            [(format_path(paths[place]), message) for place in clashes[:SHOWN_PROBLEMS]],
            len(clashes),
            "combine parts that come from one partition, each of them once",
        )
    combined: T = tree_unflatten(treedef, filled)
    return combined


def _difference(first: Any, other: Any) -> str:
    """A place where two objects of different structures differ, in words."""
    here, there = (dict.fromkeys(paths_of(part, is_none)) for part in (first, other))
    alone = match(there, here).having("missing", "extra")
    if not alone:
        return "their leaves are at the same paths: classes, static fields or kinds of containers differ"
    more = f", and {len(alone) - 1} more" if len(alone) > 1 else ""
    return f"{format_path(alone[0])} is in one of them only{more}"


def is_none(leaf: Any) -> bool:
    """True for None, which JAX takes for a node without leaves."""
    return leaf is None


def map_where(
    obj: T,
    filter: Filter,  # noqa: A002 - the word of the field
    function: Callable[[Any], Any],
    *,
    report: Report = None,
) -> T:
    """Applies a function to the leaves that match a filter; the others are kept.

    Args:
        obj: A Struct or any pytree.
        filter: See :mod:`neuralqx_struct.filters`.
        function: Called with each leaf that matches.
        report: Gets the parts of the filter that match no leaf.

    Returns:
        An object of the same structure.

    Raises:
        TypeError: ``function`` cannot be called, or ``filter`` is no filter.

    Example:
        >>> map_where({"w": 1.5, "n": 2}, float, lambda leaf: leaf * 2)
        {'n': 2, 'w': 3.0}
    """
    if not callable(function):
        raise TypeError(
            f"map_where(): expected a function of a leaf as the third argument, got a {type(function).__name__}"
        )
    pairs, treedef = _matched(obj, filter, report)
    leaves = [function(leaf) if hit else leaf for leaf, hit in pairs]
    changed: T = tree_unflatten(treedef, leaves)
    return changed
