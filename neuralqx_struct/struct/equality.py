"""Equality: keys of static values, and equality and hash of trees.

Static values become part of the jit cache key, which compares with ``==``: there 1, True and 1.0 are equal, as are 0.0 and
-0.0, and NaN is never found again. :func:`static_key` distinguishes them, deep inside tuples and frozensets.
:func:`same_value` is the ``==`` of Structs: arrays by dtype, shape and value, NaN equal to NaN.

Example:
    >>> static_key(1)[1] == static_key(True)[1]
    False
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from neuralqx_struct.fieldspec import is_struct

#: Types whose ``==`` is exact among values of the type, which have a hash and cannot hold an array.
EXACT_TYPES: frozenset[type] = frozenset(
    {int, bool, str, bytes, type(None), type(...), type}
    | {types.FunctionType, types.BuiltinFunctionType}
)


class OpaqueRef:
    """Carries an opaque object through the treedef: equal only to a reference to the same object."""

    __slots__ = ("name", "value")

    def __init__(self, value: Any, name: str = "") -> None:
        self.value = value
        self.name = name  # for the message of JAX about structures that do not match

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpaqueRef) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)

    def __repr__(self) -> str:
        field = f"field {self.name!r}: " if self.name else ""
        kind = type(self.value).__name__
        return f"<opaque {field}{kind}; two of them never match, reset=True drops them>"


def is_array(value: Any) -> bool:
    """True for numpy and JAX arrays, tracers among them."""
    return isinstance(value, (np.ndarray, jax.Array))


def is_key_array(value: Any) -> bool:
    """True for typed PRNG keys."""
    if not isinstance(value, jax.Array):
        return False
    # Their dtype is none of numpy's; that is far cheaper to check first.
    dtype: Any = value.dtype
    return not isinstance(dtype, np.dtype) and jnp.issubdtype(dtype, jax.dtypes.prng_key)


def static_key(value: Any, whole: bool = True) -> tuple[Any, Any]:
    """A static value in canonical form, and a key that differs for values that merely compare equal.

    Args:
        value: Must be hashable and hold no array.
        whole: Compare Structs by all their fields, as a treedef must; False leaves them to their own ``==``, which skips
            fields with ``compare=False``.

    Returns:
        The value, with every NaN replaced by one NaN object so that it is found again, and its key.

    Raises:
        TypeError: The value has no hash or holds an array; the message names it.
    """
    kind = type(value)
    if kind in EXACT_TYPES:
        return value, kind
    if kind is float:
        if math.isnan(value):
            return math.nan, (float, "nan")
        return value, (kind if value else (float, math.copysign(1.0, value)))
    if kind is complex:
        parts = static_key(value.real), static_key(value.imag)
        return _one_nan(value), (complex, parts[0][1], parts[1][1])
    if isinstance(value, np.generic):
        return _one_nan(value), (kind, _bits(value))
    if isinstance(value, tuple):
        return _tuple_key(value, whole)
    if kind is frozenset:
        items = [static_key(item, whole) for item in value]
        # With the values, because {1, 2.0} has the keys of {1.0, 2}.
        return frozenset(item[0] for item in items), (kind, frozenset(items))
    if getattr(
        kind, "__nqx_exact__", False
    ):  # a class of this package that is as exact as those above
        return value, kind
    _check_static(value)
    if whole and _is_struct(value):
        leaves, structure = jax.tree_util.tree_flatten(value)
        return value, (kind, structure, *(static_key(leaf)[::-1] for leaf in leaves))
    return value, kind


def _tuple_key(value: tuple[Any, ...], whole: bool) -> tuple[Any, Any]:
    kind = type(value)
    if kind.__hash__ is None:
        raise TypeError(f"a {kind.__name__}, which has no hash")
    items = [static_key(item, whole) for item in value]
    # Only a NaN inside makes a new tuple; a subclass's own __new__ must not run for it.
    changed = any(item[0] is not before for item, before in zip(items, value, strict=True))
    same = tuple.__new__(kind, [item[0] for item in items]) if changed else value
    return same, (kind, *(item[1] for item in items))


def _check_static(value: Any) -> None:
    kind = type(value).__name__
    if isinstance(value, Tracer):
        raise TypeError("a tracer, which has no value while JAX traces")
    if is_array(value):
        raise TypeError(f"an array ({kind})")
    try:
        hash(value)
    except TypeError:
        raise TypeError(f"a {kind}, which has no hash") from None
    if holds_array(value):
        raise TypeError(f"a {kind} that holds an array")


# NaN is equal to nothing, so a treedef finds it again only as the same object: one for each bit pattern.
_NANS: dict[tuple[type, bytes | str], Any] = {}


def _one_nan(value: Any) -> Any:
    if value == value:  # noqa: PLR0124 - false for whatever has a NaN in it
        return value
    return _NANS.setdefault((type(value), _bits(value)), value)


def _bits(value: Any) -> bytes | str:
    """The bits of a numpy scalar or a complex number."""
    if isinstance(value, (np.longdouble, np.clongdouble)):
        return repr(value)  # their bytes have undefined padding; the shortest text is exact
    return np.asarray(value).tobytes()


# Not searched for arrays. A mesh holds an array of devices, and meshes and shardings compare by value.
_LEAF_TYPES = (
    *(str, bytes, int, float, complex, type),
    *(types.ModuleType, types.FunctionType, types.BuiltinFunctionType),
    *(jax.sharding.Mesh, jax.sharding.Sharding),
)


def holds_array(value: Any) -> bool:
    """True if an array can be reached from ``value`` through containers and attributes."""
    seen: set[int] = set()
    todo: list[Any] = [value]
    while todo and len(seen) < 10_000:
        here = todo.pop()
        if is_array(here):
            return True
        if isinstance(here, _LEAF_TYPES) or id(here) in seen:
            continue
        seen.add(id(here))
        todo += _held(here)
    return False


def _held(value: Any) -> list[Any]:
    """The values directly inside a container or an object."""
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    if isinstance(value, (tuple, list, set, frozenset)):
        return [*value]
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, types.MethodType):
        return [value.__self__]
    slots = getattr(type(value), "__slots__", ())
    held = [getattr(value, slot, None) for slot in slots if isinstance(slot, str)]
    return [getattr(value, "__dict__", None), *held]


def same_static(a: Any, b: Any) -> bool:
    """True if two values of a static field are equal for the ``==`` of their Structs."""
    if a is b:
        return True
    if type(a) in EXACT_TYPES:
        return type(a) is type(b) and bool(a == b)
    try:
        # Keys first: the == of values of different types may raise.
        return static_key(a, False)[::-1] == static_key(b, False)[::-1]
    except TypeError:  # no valid static value
        return same_value(a, b)


def same_value(a: Any, b: Any) -> bool:
    """True if two trees have equal structures and equal leaves.

    Arrays are compared by dtype, shape and value, NaN equal to NaN at the same place; a tracer equals only itself;
    Python scalars must have one type.
    """
    if a is b:
        return True
    if _is_leaf(a):
        return _same_leaf(a, b)
    structure_a: Any
    structure_b: Any
    try:
        leaves_a, structure_a = jax.tree_util.tree_flatten(a, is_leaf=_is_struct)
        leaves_b, structure_b = jax.tree_util.tree_flatten(b, is_leaf=_is_struct)
    except ValueError:  # a dict with keys that have no order, which is no pytree
        return _same_items(a, b)
    return structure_a == structure_b and all(map(_same_leaf, leaves_a, leaves_b))


def _same_items(a: Any, b: Any) -> bool:
    """As :func:`same_value`, one level at a time, for containers that JAX cannot flatten."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Mapping):
        # 1 and True are one key, as in any dict.
        return a.keys() == b.keys() and all(same_value(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same_value, a, b))
    return same_object(a, b)


# Leaves of JAX, independent of registrations.
_SCALARS = frozenset({int, float, bool, complex, str, bytes})


def _is_leaf(value: Any) -> bool:
    return type(value) in _SCALARS or is_array(value) or _is_struct(value)


def _same_leaf(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if is_array(a) and is_array(b):
        return _same_array(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, np.generic):
        return _same_array(a, b)
    if type(a) in _SCALARS:
        return bool(static_key(a)[::-1] == static_key(b)[::-1])
    if not _is_struct(a):
        with suppress(TypeError):  # without a hash: compared by == alone
            a, b = static_key(a)[::-1], static_key(b)[::-1]
    return same_object(a, b)


def same_object(a: Any, b: Any) -> bool:
    """True if two objects that are no trees are equal: arrays as above, others by their own ``==``.

    An ``==`` that returns an array or raises means False.
    """
    if a is b:
        return True
    if is_array(a) and is_array(b):
        return _same_array(a, b)
    try:
        return bool(a == b)
    except (TypeError, ValueError):
        return False


def _same_array(a: Any, b: Any) -> bool:
    if isinstance(a, Tracer) or isinstance(b, Tracer):
        return False
    are_keys = is_key_array(a)
    if are_keys != is_key_array(b) or a.dtype != b.dtype or a.shape != b.shape:
        return False
    if are_keys:
        a, b = jax.random.key_data(a), jax.random.key_data(b)
    left, right = np.asarray(a), np.asarray(b)
    if left.dtype.hasobject:  # may hold arrays, whose == is an array
        return all(map(same_value, left.ravel().tolist(), right.ravel().tolist()))
    equal = left == right
    if left.dtype.kind not in "biuSUO":
        equal = equal | ((left != left) & (right != right))  # noqa: PLR0124 - NaN at the same place
    return bool(np.all(equal))


def _is_struct(value: Any) -> bool:
    """True for Structs, which compare by their own ``==`` inside a tree, because of ``compare=False``."""
    return not isinstance(value, type) and is_struct(value)


def _leaf_mark(leaf: Any) -> Any:
    if type(leaf) in _SCALARS:
        return type(leaf)
    if is_array(leaf):
        return leaf.shape, leaf.dtype
    return hash(leaf) if _is_struct(leaf) else type(leaf)


def value_hash(value: Any) -> int:
    """A hash that agrees with :func:`same_value`: of structure, shapes and dtypes, not of array contents."""
    if type(value) in _SCALARS:
        return hash(type(value))
    if _is_leaf(value):
        return hash(_leaf_mark(value))
    try:
        leaves, structure = jax.tree_util.tree_flatten(value, is_leaf=_is_struct)
    except ValueError:  # as in same_value
        return hash(type(value))
    return hash((structure, *map(_leaf_mark, leaves)))


def static_hash(value: Any) -> int:
    """A hash that agrees with :func:`same_static`."""
    kind = type(value)
    return hash((value, kind) if kind in EXACT_TYPES else static_key(value, whole=False))
