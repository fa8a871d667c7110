"""Attributes: what instances of a plain class hold, what they have by default, and which names they can have at all.

Example:
    >>> class Point:
    ...     def __init__(self, x):
    ...         self.x = x
    >>> attributes(Point(2.0))
    {'x': 2.0}
    >>> check_names(Point, ["x"])
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from neuralqx_struct.errors import did_you_mean
from neuralqx_struct.registry import class_ref

__all__ = ["attributes", "check_names", "declared_defaults", "fresh"]


def attributes(obj: Any) -> dict[str, Any]:
    """The state of an instance, slots included, whatever its class says about pickling."""
    state: Any = object.__getstate__(obj)
    held, slots = state if isinstance(state, tuple) else (state, None)
    return {**(held or {}), **(slots or {})}


def declared_defaults(cls: type) -> dict[str, Any]:
    """The defaults of a dataclass some of whose fields have none."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
        if field.default is not dataclasses.MISSING:
            found[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            found[field.name] = field.default_factory()
    return found


def fresh(value: Any) -> Any:
    """A default as an instance gets it: what can be changed in place, and is no object of its own, is not shared."""
    if type(value) in (list, tuple, set):
        return type(value)(map(fresh, value))
    if type(value) is dict:
        return {key: fresh(member) for key, member in value.items()}
    return value.copy() if type(value) is np.ndarray else value


#: Ways to set attributes without writing their names.
_UNNAMED = frozenset({"__dict__", "__getattr__", "__setattr__", "setattr", "vars"})


def _attribute_names(cls: type) -> Collection[str] | None:
    """The names that attributes of instances can have: those of the fields, or all that the class mentions in its code.

    None where nobody can know: the class has no ``__init__`` of its own, or one that takes any arguments, or it sets
    attributes whose names it does not write.
    """
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    bases = cls.__mro__[:-1]
    own = (inspect.unwrap(value) for base in bases for value in vars(base).values() if inspect.isfunction(value))
    codes = [function.__code__ for function in own if inspect.isfunction(function)]
    init = inspect.unwrap(vars(cls).get("__init__", object))
    if not inspect.isfunction(init) or init.__code__.co_flags & inspect.CO_VARKEYWORDS:
        return None
    mentioned: set[str] = set()
    for code in codes:  # which grows by the functions inside
        codes += [inner for inner in code.co_consts if isinstance(inner, types.CodeType)]
        mentioned.update(code.co_names, code.co_varnames)
    if mentioned & _UNNAMED:
        return None
    return mentioned.union(*(vars(base) for base in bases), *(inspect.get_annotations(base) for base in bases))


def check_names(cls: type, names: Iterable[str]) -> None:
    """Refuse names that no instance of a class can have.

    Raises:
        ValueError: The class has no such field, or nothing in its code sets such an attribute.
    """
    known = _attribute_names(cls)
    unknown = [] if known is None else [name for name in names if name not in known]
    if known is not None and unknown:
        what = "fields" if dataclasses.is_dataclass(cls) else "attributes that the class sets"
        hints = filter(None, (did_you_mean(name, known) for name in unknown))
        hint = next(hints, "look at the spelling, or declare in the class body what others set: `name: object`")
        raise ValueError(f"{class_ref(cls)}: expected {what}, got {', '.join(map(repr, unknown))}; {hint}")
