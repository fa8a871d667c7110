"""Walks: change or fold what a container holds, one level deep or down to the leaves, with an accumulator.

Owns what one level of a container is.

Example:
    >>> traverse((1, [2, 3]), 0, lambda x, n: (x, n + 1)), traverse_deep((1, [2, 3]), 0, lambda x, n: (x, n + 1))
    (((1, [2, 3]), 2), ((1, [2, 3]), 3))
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple, TypeVar

from jax.tree_util import tree_flatten_with_path

from neuralqx_struct.trees import is_without_order

__all__ = ["open_level", "reduce", "reduce_deep", "traverse", "traverse_deep"]

A = TypeVar("A")
Items = list[tuple[Hashable, Any]]


class _Opened(NamedTuple):
    """One level of a container: what is in it, and how to make it again from as many values."""

    items: Items
    close: Callable[[list[Any]], Any]


def open_level(obj: Any) -> _Opened | None:
    """One level of a container, or None for a leaf."""
    if type(obj) is dict:  # JAX refuses keys that cannot be sorted, and gives them back in another order
        items = _in_order(obj)
        return _Opened(items, lambda values: obj | {key: v for (key, _), v in zip(items, values, strict=True)})
    structure: Any
    pairs, structure = tree_flatten_with_path(obj, is_leaf=lambda value: value is not obj)
    if len(pairs) == 1 and pairs[0][0] == ():
        return None
    return _Opened([(_plain_key(path[0]), value) for path, value in pairs], structure.unflatten)


def _in_order(mapping: Mapping[Any, Any]) -> Items:
    """The items by key, so that equal dicts are walked alike; in their own order where the keys have none."""
    try:
        return [(key, mapping[key]) for key in sorted(mapping)]
    except TypeError:
        return list(mapping.items())


def sortable(obj: Any) -> Any:
    """The object as JAX can flatten it: dicts whose keys have no order become ordered dicts, equal ones equal."""
    if is_without_order(obj):
        in_order = sorted(obj.items(), key=lambda item: (type(item[0]).__name__, repr(item[0])))
        return OrderedDict((key, sortable(value)) for key, value in in_order)
    if open_level(obj) is None:
        return obj
    return _traverse(obj, None, lambda value, acc: (sortable(value), acc))[0]


def _plain_key(key: Any) -> Hashable:
    """The plain key behind one of JAX's: a position, a dict key, the name of a field."""
    for attribute in ("name", "key", "idx"):
        if hasattr(key, attribute):
            plain: Hashable = getattr(key, attribute)
            return plain
    return str(key)


def _called(name: str, fun: Any) -> None:
    """Refuse what is no function, before anything is walked.

    Raises:
        TypeError: ``fun`` cannot be called.
    """
    if not callable(fun):
        raise TypeError(
            f"{name}(): expected a function as the third argument, got a {type(fun).__name__}\n"
            f"  the order is {name}(obj, acc, fun)"
        )


def _pair(name: str, fun: Callable[[Any, A], tuple[Any, A]], value: Any, acc: A) -> tuple[Any, A]:
    """What ``fun`` makes of a value and the accumulator.

    Raises:
        TypeError: It gives something else than two values.
    """
    made: Any = fun(value, acc)
    if isinstance(made, tuple) and len(made) == 2:
        return made
    got = f"a tuple of {len(made)}" if isinstance(made, tuple) else f"a {type(made).__name__}"
    raise TypeError(
        f"{name}(): expected a pair (new value, new acc) of {getattr(fun, '__qualname__', repr(fun))}, got {got} for a "
        f"{type(value).__name__}\n  return both, also where one of them has not changed; to fold without changing, use reduce"
    )


def traverse(obj: Any, acc: A, fun: Callable[[Any, A], tuple[Any, A]]) -> tuple[Any, A]:
    """Change what a container holds, one level deep, and carry an accumulator along.

    Args:
        obj: The container; a leaf is handed to ``fun`` itself.
        acc: The accumulator at the start.
        fun: ``fun(value, acc) -> (new value, new acc)``, called with each leaf or container inside; None is left alone.

    Returns:
        The container with the new values, and the final accumulator.

    Raises:
        TypeError: ``fun`` cannot be called, or returns no pair.

    Example:
        >>> traverse((1, [2, 3]), 0, lambda x, n: (x, n + 1))
        ((1, [2, 3]), 2)
    """
    _called("traverse", fun)
    return _traverse(obj, acc, lambda value, acc: _pair("traverse", fun, value, acc))


def _traverse(obj: Any, acc: A, fun: Callable[[Any, A], tuple[Any, A]]) -> tuple[Any, A]:
    opened = open_level(obj)
    if opened is None:
        return fun(obj, acc)
    values: list[Any] = []
    for _, value in opened.items:
        if value is not None:
            value, acc = fun(value, acc)  # noqa: PLW2901 - a fold
        values.append(value)
    return opened.close(values), acc


def reduce(obj: Any, acc: A, fun: Callable[[Any, A], A]) -> A:
    """Fold what a container holds, one level deep.

    Args:
        obj: The container; a leaf is handed to ``fun`` itself.
        acc: The accumulator at the start.
        fun: ``fun(value, acc) -> new acc``, called with each leaf or container inside; None is left out.

    Returns:
        The final accumulator.

    Raises:
        TypeError: ``fun`` cannot be called.

    Example:
        >>> reduce({"a": 1, "b": 2}, 0, lambda x, total: total + x)
        3
    """
    _called("reduce", fun)
    opened = open_level(obj)
    for value in [obj] if opened is None else [value for _, value in opened.items if value is not None]:
        acc = fun(value, acc)
    return acc


def traverse_deep(obj: Any, acc: A, fun: Callable[[Any, A], tuple[Any, A]]) -> tuple[Any, A]:
    """As :func:`traverse`, down to the leaves: ``fun`` never sees a container.

    Example:
        >>> traverse_deep((1, [2, 3]), 0, lambda x, total: (10 * x, total + x))
        ((10, [20, 30]), 6)
    """
    _called("traverse_deep", fun)

    def below(value: Any, acc: A) -> tuple[Any, A]:
        if open_level(value) is None:
            return _pair("traverse_deep", fun, value, acc)
        return _traverse(value, acc, below)

    return below(obj, acc)


def reduce_deep(obj: Any, acc: A, fun: Callable[[Any, A], A]) -> A:
    """As :func:`reduce`, down to the leaves: ``fun`` never sees a container.

    Example:
        >>> reduce_deep((1, [2, 3]), 0, lambda x, total: total + x)
        6
    """
    _called("reduce_deep", fun)
    if open_level(obj) is None:
        return fun(obj, acc)
    return reduce(obj, acc, lambda value, acc: reduce_deep(value, acc, fun))
