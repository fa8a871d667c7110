"""Lazy containers: types that are not meant to work inside transformations, and what they are converted to on the way in.

Example:
    >>> _ = register_lazy(memoryview, bytes.hex)
    >>> to_container([1, (2, None)])
    [1, (2, None)]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neuralqx_struct.container.walks import open_level, traverse
from neuralqx_struct.registry import class_ref

__all__ = ["register_lazy", "to_container"]

_LAZY: dict[type, Callable[[Any], Any]] = {}


def register_lazy(cls: type, convert: Callable[[Any], Any]) -> type:
    """Say how a type that is not meant to work inside transformations becomes a container on the way in.

    Args:
        cls: The type; its subclasses are converted too, unless they have a conversion of their own.
        convert: ``convert(obj)`` gives a container or an array. All containers convert to themselves already.

    Returns:
        ``cls``.

    Raises:
        TypeError: ``cls`` is no type, or ``convert`` cannot be called.
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
        raise TypeError(f"register_lazy(): expected a function that converts {cls.__name__}, got {convert!r}")
    if _LAZY.setdefault(cls, convert) is not convert:
        raise ValueError(f"{class_ref(cls)}: expected a type without a conversion, got one that register_lazy knows")
    return cls


def to_container(obj: Any) -> Any:
    """The object with every lazy container in it converted, to be handed to a transformation.

    Raises:
        TypeError: A conversion gives its own type back.
    """
    convert = next((_LAZY[base] for base in type(obj).__mro__ if base in _LAZY), None)
    if convert is None:
        return obj if open_level(obj) is None else traverse(obj, None, lambda value, acc: (to_container(value), acc))[0]
    converted = convert(obj)
    if type(converted) is type(obj):
        raise TypeError(f"to_container(): expected a conversion into another type, got {type(obj).__name__} again")
    return to_container(converted)
