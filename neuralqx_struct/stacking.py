"""Stacked pytrees: one pytree whose arrays have a leading axis, in place of a list of pytrees of one structure.

:func:`stack` and :func:`unstack` are inverse to each other, bit by bit. A stacked struct is the ``xs`` of ``jax.lax.scan``, the argument of
``jax.vmap``, and the value of a field that a schema declares as ``Layer[d][n]``.

Example:
    >>> import jax.numpy as jnp
    >>> layers = [{"w": jnp.zeros(3)}, {"w": jnp.ones(3)}]
    >>> stacked = stack(layers)
    >>> stacked["w"].shape, unstack(stacked, 1)["w"].tolist()
    ((2, 3), [1.0, 1.0, 1.0])
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np

from neuralqx_struct.documents.instances import is_jax_array
from neuralqx_struct.errors import Diagnostic, ValidationError, within_stack
from neuralqx_struct.fieldspec import FieldKind, is_struct
from neuralqx_struct.paths import FieldName, Path, format_path
from neuralqx_struct.printing import brief, brief_array
from neuralqx_struct.struct.equality import same_static
from neuralqx_struct.trees import beside, children_of, leaves_with_paths

T = TypeVar("T")

# JAX types its structures as unknown.
_flatten: Any = jax.tree_util.tree_flatten
_structure: Any = jax.tree_util.tree_structure

_MOST_PROBLEMS = 20
_SETTING = "static and opaque fields have one value for all; what differs has to be an array"


@within_stack
def stack(items: Iterable[T]) -> T:
    """Stack pytrees of one structure: each array of the result has a leading axis, with one entry for each item.

    Arrays of numpy stay numpy's, those of JAX stay JAX's, and random keys stay keys. Static fields, keys of dicts and lengths of lists
    must be the same in all items. No hook runs; derived fields are computed from the stacked arrays when they are read. Works under ``jit``.

    Args:
        items: At least one Struct, or other pytree of arrays.

    Raises:
        TypeError: ``items`` is no list of pytrees.
        ValidationError: NQX432: the items differ in structure, static values, shapes or dtypes, or hold leaves that are no arrays; all
            places at once.

    Example:
        >>> stack([(np.zeros(2), np.int8(1)), (np.ones(2), np.int8(2))])
        (array([[0., 0.],
               [1., 1.]]), array([1, 2], dtype=int8))
    """
    if isinstance(items, (str, bytes, Mapping)) or not isinstance(items, Iterable):
        raise TypeError(f"stack(): expected a list of pytrees, got {brief(items)}")
    every = [*items]
    if not every:
        _refuse(_finding((), "expected at least one item, got none", "nothing shows the structure"))
    columns: list[list[Any]] = []
    first, treedef = _flatten(every[0])
    problems = []
    for place, item in enumerate(every):
        leaves, other = _flatten(item)
        if other != treedef:
            message = f"expected one structure, got another in item {place}"
            found = [*_differences(every[0], item, place)]
            problems += found or [_finding((), message, _SETTING)]
        columns.append(leaves)
    if not problems:
        paths = (path for path, _ in leaves_with_paths(every[0]))
        rows = zip(paths, zip(*columns, strict=True), strict=True)
        problems = [each for path, row in rows for each in _unlike(path, row)]
    _refuse(*problems)
    if not first:
        _refuse(
            _finding((), "expected pytrees with arrays, got none", "nothing shows their number")
        )
    made = [_stacked(row) for row in zip(*columns, strict=True)]
    stacked: T = treedef.unflatten(made)
    return stacked


@overload
def unstack(stacked: T) -> list[T]: ...
@overload
def unstack(stacked: T, index: Any) -> T: ...
@within_stack
def unstack(stacked: T, index: Any = None) -> list[T] | T:
    """Split a stacked pytree into the list of its items; the inverse of :func:`stack`.

    Args:
        stacked: A Struct, or other pytree of arrays, that all have a leading axis of one size. Arrays of numpy are not copied.
        index: The number of one item, from the end if it is negative. Under ``jit`` it may be traced; then one out of range
            gives the nearest item, as in JAX. A slice, an array or a list of numbers, and an array of one boolean for each item give
            the stacked pytree of their items.

    Returns:
        All items; with ``index`` that one.

    Raises:
        ValidationError: NQX432: there are no arrays, or their leading axes differ.
        IndexError: There is no such item.
        TypeError: ``index`` is none of these.
    """
    if index is not None:
        return item_of(stacked, index)
    leaves, treedef = _flatten(stacked)
    count = _count(stacked, leaves)
    return [treedef.unflatten([_item(leaf, place) for leaf in leaves]) for place in range(count)]


def item_of(stacked: T, index: Any) -> T:
    """One item of a stacked pytree, see :func:`unstack`: the subscript of structs that a schema stacks."""
    leaves, treedef = _flatten(stacked)
    count = _count(stacked, leaves)
    index = _index(index, count)
    one: T = treedef.unflatten([_item(leaf, index) for leaf in leaves])
    return one


def _index(index: Any, count: int) -> Any:
    """The subscript of one leading axis that an index of items means."""
    if isinstance(index, (slice, jax.core.Tracer)):
        return index
    try:
        place = operator.index(index)
    except TypeError:
        return _indices(index, count)
    if not -count <= place < count:
        raise IndexError(f"expected the number of one of {count} items, got {place}")
    return place % count


def _indices(index: Any, count: int) -> np.ndarray[Any, Any]:
    """The numbers of the items that an array or a list of numbers, or of one boolean for each item, means."""
    try:
        given = np.asarray(index, None if np.size(index) else np.intp)
    except (TypeError, ValueError):  # a list of lists of different lengths, or of other objects
        given = np.asarray(None)
    many = isinstance(index, (list, np.ndarray)) or is_jax_array(index)
    if not many or given.ndim == 0 or given.dtype.kind not in "biu":
        message = (
            f"expected the number of an item, a slice, or an array of numbers, got {brief(index)}"
        )
        raise TypeError(message)
    if given.dtype.kind == "b":
        if given.shape != (count,):
            shape = brief([*given.shape])
            raise IndexError(f"expected one boolean for each of {count} items, got {shape} of them")
        return np.flatnonzero(given)
    outside = given[(given < -count) | (given >= count)]
    if outside.size:
        raise IndexError(f"expected numbers of {count} items, got {int(outside.flat[0])}")
    return given % count


def _count(stacked: Any, leaves: list[Any]) -> int:
    """The size of the leading axis of all arrays."""
    sizes = {np.shape(leaf)[:1] for leaf in leaves if _kind(leaf)}
    if len(sizes) == 1 and () not in sizes and all(map(_kind, leaves)):
        return int(next(iter(sizes))[0])
    if not leaves:
        _refuse(
            _finding(
                (), "expected a pytree with arrays, got none", "nothing shows the number of items"
            )
        )
    first = next((np.shape(leaf)[0] for leaf in leaves if _kind(leaf) and np.shape(leaf)), None)
    problems = []
    for path, leaf in leaves_with_paths(stacked):
        if not _kind(leaf) or np.shape(leaf)[:1] != (first,):
            size = "n" if first is None else first
            message = f"expected an array with a leading axis of size {size}, got {brief(leaf)}"
            problems.append(_finding(path, message, "every array of a stacked pytree has it"))
    _refuse(*problems)
    raise AssertionError  # a problem was found


def _refuse(*problems: Diagnostic) -> None:
    if problems:
        raise ValidationError(problems[:_MOST_PROBLEMS])


def _finding(path: Path, message: str, hint: str) -> Diagnostic:
    return Diagnostic("NQX432", "error", message, path=format_path(path), hint=hint)


def _kind(leaf: Any) -> str:
    """The library of an array; empty for other leaves."""
    if is_jax_array(leaf):
        return "jax"
    return "numpy" if isinstance(leaf, (np.ndarray, np.generic)) else ""


def _unlike(path: Path, row: tuple[Any, ...]) -> Iterator[Diagnostic]:
    """Yields the first leaf of a row that cannot be stacked with those before it."""
    first = row[0]
    for place, leaf in enumerate(row):
        if not _kind(leaf):
            hint = "write `static=True` for a setting, or make it an array"
            yield _finding(path, f"expected an array, got {brief(leaf)} in item {place}", hint)
            return
        if _form(leaf) != _form(first):
            (here, found), hint = _difference(first, leaf)
            message = f"expected {here}, as in item 0, got {found} in item {place}"
            yield _finding(path, message, hint)
            return


def _form(leaf: Any) -> tuple[Any, ...]:
    return _kind(leaf), leaf.dtype, np.shape(leaf), getattr(leaf, "weak_type", False)


def _difference(first: Any, other: Any) -> tuple[tuple[str, str], str]:
    """The texts of two arrays that cannot be stacked, and the fix."""
    here, there = brief_array(first), brief_array(other)
    if np.shape(first) != np.shape(other):
        hint = "arrays of different shapes stay in a list, declared as list[...]; or pad them to one shape"
        return (here, there), hint
    if first.dtype != other.dtype:
        return (here, there), f"convert one of them, as with astype({str(first.dtype)!r})"
    if _kind(first) != _kind(other):
        make = "jnp.asarray" if _kind(first) == "jax" else "np.asarray"
        return (
            f"{here} of {_kind(first)}",
            f"{there} of {_kind(other)}",
        ), f"convert it with {make}"
    weak = "of a weak type"  # as of jnp.asarray(1.0)
    texts = (f"{here} {weak}", here) if first.weak_type else (here, f"{there} {weak}")
    return texts, f"give both the dtype, as in jnp.asarray(x, {str(first.dtype)!r})"


def _stacked(row: tuple[Any, ...]) -> Any:
    return jnp.stack(row) if _kind(row[0]) == "jax" else np.stack(row)


def _item(leaf: Any, index: Any) -> Any:
    if isinstance(index, jax.core.Tracer):
        return jnp.asarray(leaf)[index]
    return leaf[index] if _kind(leaf) == "jax" else leaf[index, ...]  # `...` keeps an array


# ---------------------------------------------------------------------------------------------------------------------
# Pytrees of two structures.


def _differences(first: Any, other: Any, place: int) -> Iterator[Diagnostic]:
    """Yields the places where the structures of two pytrees differ."""
    for each in beside(other, first):
        before = each.want
        if each.verdict != "fits":
            hint = "stack pytrees of one structure"
            yield each.finding("item 0", hint, where=f" in item {place}", code="NQX432")
        elif is_struct(before):
            yield from _settings(before, each.have, each.path, place)
        elif _outline(before) != _outline(each.have) and _names(before) == _names(each.have):
            message = f"expected the same {type(before).__name__}, as in item 0, got {brief(each.have)} in item {place}"
            yield _finding(each.path, message, _SETTING)


def _settings(first: Any, other: Any, path: Path, place: int) -> Iterator[Diagnostic]:
    """Yields the static and opaque fields that differ."""
    for name, spec in type(first).__nqx_fields__.items():
        if spec.kind is FieldKind.NODE or spec.is_derived or spec.reset:
            continue
        a, b = getattr(first, name), getattr(other, name)
        if a is not b and not (spec.kind is FieldKind.STATIC and same_static(a, b)):
            message = f"expected {brief(a)}, as in item 0, got {brief(b)} in item {place}"
            yield _finding((*path, FieldName(name, spec)), message, _SETTING)


def _names(value: Any) -> list[Path]:
    return [*(children_of(value) or ())]


def _outline(value: Any) -> Any:
    return _structure(value, is_leaf=lambda each: each is not value)
