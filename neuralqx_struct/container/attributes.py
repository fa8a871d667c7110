"""Attributes of plain classes: their values, defaults and possible names, and the fields of a stored object.

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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from neuralqx_struct.errors import Diagnostic, SerializationError, did_you_mean
from neuralqx_struct.references import class_ref


def attributes(obj: Any) -> dict[str, Any]:
    """The state of an instance, slots included, even if its class defines its own pickling."""
    state: Any = object.__getstate__(obj)
    held, slots = state if isinstance(state, tuple) else (state, None)
    return {**(held or {}), **(slots or {})}


def declared_defaults(cls: type) -> dict[str, Any]:
    """The defaults of a dataclass in which some fields have none."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
        if field.default is not dataclasses.MISSING:
            found[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            found[field.name] = field.default_factory()
    return found


def fresh(value: Any) -> Any:
    """A default for one instance: a copy of collections and numpy arrays, other objects themselves."""
    if type(value) in (list, tuple, set):
        return type(value)(map(fresh, value))
    if type(value) is dict:
        return {key: fresh(member) for key, member in value.items()}
    return value.copy() if type(value) is np.ndarray else value


#: Ways to set attributes without writing their names.
_UNNAMED = frozenset({"__dict__", "__getattr__", "__setattr__", "setattr", "vars"})


def _attribute_names(cls: type) -> Collection[str] | None:
    """The names that attributes of instances can have: the fields, or all names in the code of the class.

    None if they cannot be known: the class has no ``__init__`` of its own, or one that takes any arguments, or it sets
    attributes by computed names.
    """
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    init = inspect.unwrap(vars(cls).get("__init__", object))
    if not inspect.isfunction(init) or init.__code__.co_flags & inspect.CO_VARKEYWORDS:
        return None
    names: set[str] = set()
    codes: list[types.CodeType] = []
    mentioned: set[str] = set()
    for base in cls.__mro__[:-1]:
        names.update(vars(base), inspect.get_annotations(base))
        functions = [inspect.unwrap(v) for v in vars(base).values() if inspect.isfunction(v)]
        codes += [function.__code__ for function in functions if inspect.isfunction(function)]
    for code in codes:  # grows by the functions inside
        codes += [inner for inner in code.co_consts if isinstance(inner, types.CodeType)]
        mentioned.update(code.co_names, code.co_varnames)
    return None if mentioned & _UNNAMED else mentioned | names


def check_names(cls: type, names: Iterable[str]) -> None:
    """Checks that instances of a class can have attributes of these names.

    Raises:
        ValueError: The class has no such field, or nothing in its code sets such an attribute.
    """
    known = _attribute_names(cls)
    unknown = [] if known is None else [name for name in names if name not in known]
    if known is None or not unknown:
        return
    expected = "fields" if dataclasses.is_dataclass(cls) else "attributes that the class sets"
    hints = [hint for hint in (did_you_mean(name, known) for name in unknown) if hint]
    hints.append(
        "check the spelling, or declare in the class body attributes that others set: `name: object`"
    )
    got = ", ".join(map(repr, unknown))
    raise ValueError(f"{class_ref(cls)}: expected {expected}, got {got}; {hints[0]}")


def complete(
    cls: type,
    stored: Mapping[str, Any],
    known: Sequence[str],
    has_default: Callable[[str], bool],
    default: Callable[[str], Any],
) -> dict[str, Any]:
    """The values of all fields of a class: stored ones, and defaults of the others.

    Raises:
        SerializationError: With every stored field that is not known, and every field without a value.

    Example:
        >>> complete(complex, {"real": 1.5}, ["real", "imag"], ["imag"].__contains__, lambda name: 0.0)
        {'real': 1.5, 'imag': 0.0}
    """
    problems: list[Diagnostic] = []
    for name in [*stored, *known]:
        if name not in known:
            code, message = (
                "NQX415",
                f"expected a field of {cls.__name__}, got {name!r}, which it does not have",
            )
            hint = (
                did_you_mean(str(name), known)
                or "keep removed fields readable until no stored object has them"
            )
        elif name not in stored and not has_default(name):
            code, message = "NQX414", "expected a stored value or a default, got neither"
            hint = (
                "give the field a default: objects that were stored before it was added have none"
            )
        else:
            continue
        problems.append(
            Diagnostic(code, "error", message, path=f"{cls.__name__}.{name}", hint=hint)
        )
    if problems:
        raise SerializationError(problems)
    return {name: stored[name] if name in stored else default(name) for name in known}
