"""Templates: containers with shapes and dtypes in place of arrays, and comparison by them.

Example:
    >>> compatible((1, 2.0), to_template((3, 4.0)))
    True
"""

from __future__ import annotations

import numbers
from typing import Any

import jax
from jax.tree_util import keystr, tree_flatten, tree_flatten_with_path

from neuralqx_struct.container.walks import sortable, traverse_deep
from neuralqx_struct.identity import is_array

__all__ = ["compatible", "to_template"]


def to_template(obj: Any) -> Any:
    """The container with its arrays and numbers replaced by their shapes and dtypes.

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
    pairs, _ = tree_flatten_with_path(sortable(obj))
    wrong = [f"${keystr(path)} is a {type(leaf).__name__}" for path, leaf in pairs if not _has_template(leaf)]
    if wrong:
        raise TypeError(f"to_template(): expected arrays and numbers, got others: {', '.join(wrong)}")
    return traverse_deep(obj, None, lambda leaf, acc: (_template(leaf), acc))[0]


def _has_template(leaf: Any) -> bool:
    return isinstance(leaf, (jax.ShapeDtypeStruct, numbers.Number)) or is_array(leaf)


def _template(leaf: Any) -> jax.ShapeDtypeStruct:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    if hasattr(leaf, "dtype"):
        weak_type = getattr(leaf, "weak_type", False)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=weak_type)  # type: ignore[no-untyped-call]
    template: jax.ShapeDtypeStruct = jax.eval_shape(lambda value: value, leaf)
    return template


def compatible(a: Any, b: Any) -> bool:
    """True if two containers have one structure, and the same shapes and dtypes in it.

    The structure includes what is kept and static, so that a function compiled for the one serves the other.

    Args:
        a: A container, or its template.
        b: Another one.

    Raises:
        TypeError: A leaf is neither an array nor a number.

    Example:
        >>> compatible((1, 2.0), (3, 4.0)), compatible((1, 2.0), (1, 2))
        (True, False)
    """
    flat: list[tuple[list[Any], Any]] = [tree_flatten(sortable(to_template(tree))) for tree in (a, b)]
    (leaves, structure), (others, other) = flat
    if structure != other:
        return False
    return all(x.shape == y.shape and x.dtype == y.dtype for x, y in zip(leaves, others, strict=True))
