"""Comparison of a loaded object with one that it has to be like: the argument ``like=`` of a load.

Example:
    >>> import numpy as np
    >>> [found.message for found in differences({"w": np.zeros(3)}, {"w": np.zeros(4)}, whole=True)]
    ['expected float64[4], as in like=, got float64[3]']
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax

from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.paths import Path, format_path
from neuralqx_struct.printing import brief
from neuralqx_struct.references import class_ref
from neuralqx_struct.struct.pytree import path_parts
from neuralqx_struct.trees import leaves_with_paths

_HINT = "pass an object of the structure that was saved, or migrate the payload"


def differences(value: Any, like: Any, *, whole: bool, at: Path = ()) -> Iterator[Diagnostic]:
    """Yields the differences in structure between an object and another, leaf by leaf.

    Args:
        value: The object.
        like: The other.
        whole: Whether the object has all of its leaves; else None matches any.
        at: The path of both.
    """
    if value is None and not whole:
        return
    here, there = _children(value), _children(like)
    if type(value) is not type(like) and not (_is_number(value, like) or _is_number(like, value)):
        yield _different("NQX411", at, like, value)
        return
    if here is None or there is None:
        yield from _leaves(value, like, at)
        return
    for part, other in there.items():
        if part not in here:
            yield _different("NQX414", (*at, *part), other, None)
        else:
            yield from differences(here[part], other, whole=whole, at=(*at, *part))
    for part, each in here.items():
        if part not in there:
            yield _different("NQX415", (*at, *part), None, each)


def _leaves(value: Any, like: Any, at: Path) -> Iterator[Diagnostic]:
    if _is_array(value) and _is_array(like):
        if str(value.dtype) != str(like.dtype):
            yield _different("NQX411", at, like, value)
        elif tuple(value.shape) != tuple(like.shape):
            yield _different("NQX412", at, like, value)


def _different(code: str, at: Path, wanted: Any, got: Any) -> Diagnostic:
    message = f"expected {_shown(wanted)}, as in like=, got {_shown(got)}"
    dtypes = code == "NQX411" and _is_array(wanted) and _is_array(got)
    hint = "pass dtype= to convert it, or another like=" if dtypes else _HINT
    return Diagnostic(code, "error", message, format_path(at), hint=hint)


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if _is_array(value):
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    return brief(value) if _children(value) is None else class_ref(type(value))


def _is_array(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "shape")


def _is_number(value: Any, other: Any) -> bool:
    """True for an array beside another, or one without axes beside the Python number that JAX makes it of."""
    if not _is_array(value):
        return False
    return _is_array(other) or (
        value.shape == () and isinstance(other, (bool, int, float, complex))
    )


def _children(value: Any) -> dict[Path, Any] | None:
    """The parts of a pytree node by their paths; None for a leaf."""
    pairs, _ = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda each: each is not value)
    if len(pairs) == 1 and pairs[0][1] is value:
        return None
    return {path_parts(keys): child for keys, child in pairs}


def shardings_of(like: Any) -> Callable[[Path, Any], Any] | None:
    """A function of path and array that returns the sharding of the array at that path; None if there is none.

    Arrays that JAX placed by itself may lie anywhere.
    """
    found = {path: leaf.sharding for path, leaf in leaves_with_paths(like) if _is_placed(leaf)}
    return (lambda path, _: found.get(tuple(path))) if found else None


def _is_placed(leaf: Any) -> bool:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf.sharding is not None
    return isinstance(leaf, jax.Array) and leaf.committed
