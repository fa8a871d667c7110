"""Annotations of Python as types of the schema language.

Owns one function per form of annotation: builtins, generics of ``typing``, unions, literals, numpy and jaxtyping arrays,
enums and Structs. The caller gives the names of classes. An annotation without a type becomes ``pytree``, with a note.
"""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import jax
import numpy as np

from neuralqx_struct.dtypes import DTYPES, FAMILIES, dtypes_of
from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import parse
from neuralqx_struct.fieldspec import is_struct
from neuralqx_struct.types import (
    Array,
    DictOf,
    Extent,
    Key,
    ListOf,
    LiteralOf,
    Named,
    Null,
    PyTree,
    TupleOf,
    Type,
    type_of_class,
)
from neuralqx_struct.types.text import union_of


class Naming(Protocol):
    """Gives names to classes, and takes notes."""

    def name_of(self, cls: type) -> str:
        """The name of an Enum class in the document."""

    def struct(self, cls: Any) -> Type | None:
        """The type of a Struct class; None if the document cannot name it."""

    def note(self, message: str, hint: str | None = None) -> None:
        """Record a fact that the schema language cannot express."""


def type_of(hint: Any, naming: Naming) -> Type:
    """The type of an annotation; ``pytree`` if it has none, with a note unless it means just that."""
    found = _type_of(hint, naming)
    if found is not None:
        return found
    if hint not in (Any, object) and not isinstance(hint, typing.TypeVar):
        shown = hint.__qualname__ if isinstance(hint, type) else str(hint)
        # Float[Array, "n"] is of any precision.
        is_array = hasattr(hint, "dim_str") or _is_array_class(hint)
        naming.note(
            f"expected a type that the schema language has, got {shown}, which becomes pytree",
            "give dtype and shape, as in jaxtyping's Float32[Array, 'n d']" if is_array else None,
        )
    return PyTree()


def _type_of(hint: Any, naming: Naming) -> Type | None:
    if hint is None or hint is types.NoneType:
        return Null()
    if hasattr(hint, "dtypes") and hasattr(hint, "dim_str"):
        return _jaxtyping_array(hint)
    if hasattr(hint, "__supertype__"):  # NewType
        return type_of(hint.__supertype__, naming)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hasattr(hint, "__value__"):  # `type X[T] = ...`, as numpy 2.5 and later have NDArray
        return type_of(hint.__value__[args] if args else hint.__value__, naming)
    if origin in _GENERIC:
        return _GENERIC[origin](args, naming)
    bare = hint if origin is None else origin
    return _type_of_class(bare, naming) if isinstance(bare, type) else None


def _type_of_class(cls: type, naming: Naming) -> Type | None:
    if cls in _CLASSES:
        return _CLASSES[cls]
    scalar = type_of_class(cls)
    if scalar is not None:
        return scalar
    if issubclass(cls, enum.Enum) and not issubclass(cls, enum.Flag):
        return Named(naming.name_of(cls))
    if getattr(cls, "__nqx_unwritten__", False):
        return PyTree()
    return naming.struct(cls) if is_struct(cls) else None


def _is_array_class(hint: Any) -> bool:
    bare = typing.get_origin(hint) or hint
    return isinstance(bare, type) and issubclass(bare, (jax.Array, np.ndarray))


# ---------------------------------------------------------------------------------------------------------------------
# One function per generic: (args, naming).


def _first(args: tuple[Any, ...], naming: Naming) -> Type:
    return type_of(args[0], naming)


def _list(args: tuple[Any, ...], naming: Naming) -> Type:
    return ListOf(_first(args, naming))


def _tuple(args: tuple[Any, ...], naming: Naming) -> Type:
    variadic = len(args) == 2 and args[1] is ...
    items = args[:1] if variadic else args
    return TupleOf(tuple(type_of(item, naming) for item in items), variadic)


def _dict(args: tuple[Any, ...], naming: Naming) -> Type | None:
    return DictOf(type_of(args[1], naming)) if args[0] is str else None


def _union(args: tuple[Any, ...], naming: Naming) -> Type:
    options: list[Type] = []
    for arg in args:
        option = type_of(arg, naming)
        options += option.branches
    found = union_of(_widened(option, options) for option in options)
    return PyTree() if PyTree() in found.branches else found


def _widened(option: Type, options: Iterable[Type]) -> Type:
    """An array type with ``_`` for each size in which arrays of its dtype and rank differ.

    A reader could not tell them apart.
    """
    if not option.element or ... in option.extents:
        return option
    alike = [
        other.extents
        for other in options
        if other.looks_like() == option.looks_like() and ... not in other.extents
    ]
    axes = zip(*alike, strict=True)
    return Array(option.element, tuple(axis[0] if len({*axis}) == 1 else _ANY for axis in axes))


def _literal(args: tuple[Any, ...], _: Naming) -> Type | None:
    values = tuple(value for value in args if value is not None)
    if not all(type(value) in (str, bytes, int, bool, float) for value in values):
        return None
    options: list[Type] = [LiteralOf(values)] if values else []
    return union_of([*options, Null()] if None in args else options)


def _numpy_array(args: tuple[Any, ...], _: Naming) -> Type | None:
    """``np.ndarray[Any, np.dtype[np.float32]]``, the meaning of ``numpy.typing.NDArray[np.float32]``."""
    scalar = next(iter(typing.get_args(args[1])), None)
    name = getattr(scalar, "__name__", "").removesuffix("_")
    return Array(name) if name in DTYPES else None


_GENERIC: Mapping[Any, Callable[[tuple[Any, ...], Naming], Type | None]] = {
    typing.Annotated: _first,
    typing.Final: _first,
    typing.Literal: _literal,
    typing.Union: _union,
    types.UnionType: _union,
    list: _list,
    tuple: _tuple,
    dict: _dict,
    np.ndarray: _numpy_array,
}
_CLASSES: Mapping[type, Type] = {
    list: ListOf(PyTree()),
    tuple: TupleOf((PyTree(),), variadic=True),
}

# ---------------------------------------------------------------------------------------------------------------------
# Arrays as jaxtyping describes them.

_ANY = parse("_")


def _jaxtyping_array(hint: Any) -> Type | None:
    """The type of a class with ``dtypes`` and ``dim_str``, as those of jaxtyping."""
    names = hint.dtypes if isinstance(hint.dtypes, (list, tuple)) else ()
    dtypes = {name.removesuffix("_") for name in names}  # numpy's bool is also bool_
    extents = [_extent(axis) for axis in str(hint.dim_str).split()]
    if None in extents:
        return None
    shape = tuple(extent for extent in extents if extent is not None)
    if dtypes == {"prng_key"}:
        return Key(None, shape)
    words = (*dtypes, *FAMILIES) if len(dtypes) == 1 else (*FAMILIES,)
    holder = next((name for name in words if dtypes <= {*dtypes_of(name)}), None)
    return Array(holder, shape) if dtypes and holder else None


def _extent(axis: str) -> Extent | None:
    """One axis in jaxtyping's notation: ``n``, ``3``, ``n+1``, ``_``, ``rows=3``, ``*batch``, ``#n``, ``...``."""
    if axis == "..." or axis.startswith(("*", "#*", "?*")):
        return ...
    if axis.startswith(("_", "#", "?")):
        return _ANY
    try:
        return parse(axis.rpartition("=")[2])
    except SchemaError:
        return None
