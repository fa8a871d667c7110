"""Walks over containers: change or fold the contents, one level deep or down to the leaves, with an accumulator.

Also conversion of lazy containers, and comparison by templates.

Example:
    >>> traverse((1, [2, 3]), 0, lambda x, n: (x, n + 1)), traverse_deep((1, [2, 3]), 0, lambda x, n: (x, n + 1))
    (((1, [2, 3]), 2), ((1, [2, 3]), 3))
"""

from __future__ import annotations

import numbers
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

import jax
from jax.tree_util import tree_flatten, tree_flatten_with_path

from neuralqx_struct.errors import within_stack
from neuralqx_struct.paths import format_path
from neuralqx_struct.references import class_ref
from neuralqx_struct.struct.equality import is_array
from neuralqx_struct.trees import is_without_order, leaves_with_paths

A = TypeVar("A")
Items = list[tuple[Hashable, Any]]
Change = Callable[[Any, A], tuple[Any, A]]

# --- one level ----------------------------------------------------------------------------------------------------


class Level(NamedTuple):
    """One level of a container: its items by key, and a function that builds it from as many values."""

    items: Items
    build: Callable[[list[Any]], Any]


def open_level(obj: Any) -> Level | None:
    """One level of a container, or None for a leaf."""
    if (
        type(obj) is dict
    ):  # JAX refuses keys that cannot be sorted, and returns them in another order
        keys = list(obj) if is_without_order(obj) else sorted(obj)
        items = [(key, obj[key]) for key in keys]
        return Level(items, lambda values: obj | dict(zip(keys, values, strict=True)))
    structure: Any
    pairs, structure = tree_flatten_with_path(obj, is_leaf=lambda value: value is not obj)
    if len(pairs) == 1 and pairs[0][0] == ():
        return None
    return Level([(_plain_key(path[0]), value) for path, value in pairs], structure.unflatten)


def _plain_key(key: Any) -> Hashable:
    """The plain key behind one of JAX's: a position, a dict key, the name of a field."""
    for attribute in ("name", "key", "idx"):
        if hasattr(key, attribute):
            plain: Hashable = getattr(key, attribute)
            return plain
    return str(key)


def sortable(obj: Any) -> Any:
    """The object with ordered dicts in place of dicts that JAX cannot sort; equal ones become equal."""
    if is_without_order(obj):
        in_order = sorted(obj.items(), key=lambda item: (type(item[0]).__name__, repr(item[0])))
        return OrderedDict((key, sortable(value)) for key, value in in_order)
    return _mapped(obj, sortable)


def _mapped(obj: Any, function: Callable[[Any], Any]) -> Any:
    """A container with a function applied one level deep; a leaf is returned itself."""
    if open_level(obj) is None:
        return obj
    return _traverse(obj, None, lambda value, acc: (function(value), acc))[0]


# --- walks --------------------------------------------------------------------------------------------------------


def _check_function(name: str, fun: Any) -> None:
    """Raises TypeError for a third argument that cannot be called, before anything is walked."""
    if not callable(fun):
        raise TypeError(
            f"{name}(): expected a function as the third argument, got a {type(fun).__name__}\n"
            f"  the order is {name}(obj, acc, fun)"
        )


def _checked(name: str, fun: Change[A]) -> Change[A]:
    """A function that raises TypeError if ``fun`` returns anything but two values."""
    _check_function(name, fun)

    def call(value: Any, acc: A) -> tuple[Any, A]:
        made: Any = fun(value, acc)
        if isinstance(made, tuple) and len(made) == 2:
            return made
        got = f"a tuple of {len(made)}" if isinstance(made, tuple) else f"a {type(made).__name__}"
        function = getattr(fun, "__qualname__", repr(fun))
        raise TypeError(
            f"{name}(): expected a pair (new value, new acc) of {function}, got {got} for a {type(value).__name__}\n"
            "  return both, also where one of them has not changed; to fold without changing, use reduce"
        )

    return call


def _traverse(obj: Any, acc: A, fun: Change[A]) -> tuple[Any, A]:
    level = open_level(obj)
    if level is None:
        return fun(obj, acc)
    values: list[Any] = []
    for _, value in level.items:
        if value is not None:
            value, acc = fun(value, acc)  # noqa: PLW2901 - a fold
        values.append(value)
    return level.build(values), acc


def traverse(obj: Any, acc: A, fun: Change[A]) -> tuple[Any, A]:
    """Changes the contents of a container, one level deep, with an accumulator.

    Args:
        obj: The container; ``fun`` is called with a leaf itself.
        acc: The accumulator at the start.
        fun: ``fun(value, acc) -> (new value, new acc)``, called with each leaf or container inside, but not with None.

    Returns:
        The container with the new values, and the final accumulator.

    Raises:
        TypeError: ``fun`` cannot be called, or returns no pair.

    Example:
        >>> traverse((1, [2, 3]), 0, lambda x, n: (x, n + 1))
        ((1, [2, 3]), 2)
    """
    return _traverse(obj, acc, _checked("traverse", fun))


@within_stack
def traverse_deep(obj: Any, acc: A, fun: Change[A]) -> tuple[Any, A]:
    """Changes the leaves of a container, as :func:`traverse`, at every level: ``fun`` never gets a container.

    Example:
        >>> traverse_deep((1, [2, 3]), 0, lambda x, total: (10 * x, total + x))
        ((10, [20, 30]), 6)
    """
    checked = _checked("traverse_deep", fun)

    def below(value: Any, acc: A) -> tuple[Any, A]:
        return _traverse(value, acc, checked if open_level(value) is None else below)

    return below(obj, acc)


def reduce(obj: Any, acc: A, fun: Callable[[Any, A], A]) -> A:
    """Folds the contents of a container, one level deep.

    Args:
        obj: The container; ``fun`` is called with a leaf itself.
        acc: The accumulator at the start.
        fun: ``fun(value, acc) -> new acc``, called with each leaf or container inside, but not with None.

    Returns:
        The final accumulator.

    Raises:
        TypeError: ``fun`` cannot be called.

    Example:
        >>> reduce({"a": 1, "b": 2}, 0, lambda x, total: total + x)
        3
    """
    _check_function("reduce", fun)
    level = open_level(obj)
    if level is None:
        return fun(obj, acc)
    for _, value in level.items:
        if value is not None:
            acc = fun(value, acc)
    return acc


@within_stack
def reduce_deep(obj: Any, acc: A, fun: Callable[[Any, A], A]) -> A:
    """Folds the leaves of a container, as :func:`reduce`, at every level: ``fun`` never gets a container.

    Example:
        >>> reduce_deep((1, [2, 3]), 0, lambda x, total: total + x)
        6
    """
    _check_function("reduce_deep", fun)
    if open_level(obj) is None:
        return fun(obj, acc)
    return reduce(obj, acc, lambda value, acc: reduce_deep(value, acc, fun))


# --- lazy containers ----------------------------------------------------------------------------------------------

_LAZY: dict[type, Callable[[Any], Any]] = {}


def register_lazy(cls: type, convert: Callable[[Any], Any]) -> type:
    """Registers the conversion of a type that does not work inside transformations to a container.

    Args:
        cls: The type; its subclasses are converted too, unless they have a conversion of their own.
        convert: ``convert(obj)`` returns a container or an array. Containers need no conversion.

    Returns:
        ``cls``.

    Raises:
        TypeError: ``cls`` is not a type, or ``convert`` cannot be called.
        ValueError: The type has another conversion already.

    Example:
        >>> _ = register_lazy(range, list)
        >>> to_container({"sites": range(3)})
        {'sites': [0, 1, 2]}
    """
    given: Any = cls
    if not isinstance(given, type):
        raise TypeError(f"register_lazy(): expected a type, got {given!r}")
    if not callable(convert):
        raise TypeError(
            f"register_lazy(): expected a function that converts {cls.__name__}, got {convert!r}"
        )
    if _LAZY.setdefault(cls, convert) is not convert:
        raise ValueError(
            f"{class_ref(cls)}: expected a type without a conversion, got one that register_lazy knows"
        )
    return cls


def to_container(obj: Any) -> Any:
    """Converts every lazy container in an object, for use in a transformation.

    Raises:
        TypeError: A conversion returns its own type.
    """
    convert = next((_LAZY[base] for base in type(obj).__mro__ if base in _LAZY), None)
    if convert is None:
        return _mapped(obj, to_container)
    converted = convert(obj)
    if type(converted) is type(obj):
        name = type(obj).__name__
        raise TypeError(
            f"to_container(): expected a conversion into another type, got {name} again"
        )
    return to_container(converted)


# --- templates ----------------------------------------------------------------------------------------------------


@within_stack
def to_template(obj: Any) -> Any:
    """A container with shapes and dtypes in place of its arrays and numbers.

    Args:
        obj: A container of arrays, numbers and templates.

    Returns:
        The same structure with ``jax.ShapeDtypeStruct`` leaves; Python numbers have the dtype that JAX gives them.

    Raises:
        TypeError: A leaf is neither an array nor a number; names every such leaf.

    Example:
        >>> to_template({"n": 1})
        {'n': ShapeDtypeStruct(shape=(), dtype=int32, weak_type=True)}
    """
    wrong = [
        f"{format_path(path)} is a {type(leaf).__name__}"
        for path, leaf in leaves_with_paths(sortable(obj))
        if not isinstance(leaf, (jax.ShapeDtypeStruct, numbers.Number)) and not is_array(leaf)
    ]
    if wrong:
        raise TypeError(
            f"to_template(): expected arrays and numbers, got others: {', '.join(wrong)}"
        )
    return traverse_deep(obj, None, lambda leaf, acc: (_template(leaf), acc))[0]


def _template(leaf: Any) -> Any:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    if not hasattr(leaf, "dtype"):
        return jax.eval_shape(lambda value: value, leaf)
    weak_type = getattr(leaf, "weak_type", False)
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=weak_type)  # type: ignore[no-untyped-call]


@within_stack
def compatible(a: Any, b: Any) -> bool:
    """True if two containers have one structure, and the same shapes and dtypes in it.

    The structure includes kept attributes and static fields, so a function compiled for one container fits the other.

    Args:
        a: A container, or its template.
        b: Another one.

    Raises:
        TypeError: A leaf is neither an array nor a number.

    Example:
        >>> compatible((1, 2.0), (3, 4.0)), compatible((1, 2.0), (1, 2))
        (True, False)
    """
    flat: list[tuple[list[Any], Any]] = [tree_flatten(sortable(to_template(x))) for x in (a, b)]
    (leaves, structure), (others, other) = flat
    if structure != other:
        return False
    pairs = zip(leaves, others, strict=True)
    return all(x.shape == y.shape and x.dtype == y.dtype for x, y in pairs)
