"""Values of expressions that Python has no operators for: structs, and the values of all items of a collection.

A path through a list or a dict, such as ``layers.width``, is an :class:`Items`: one value for each item, and null for each item that is
null or reaches null. Fields are read only from structs: of instances those that the schema declares, never attributes.

Example:
    >>> field_of_struct(StructValue({"width": 3}), "width"), items_of({"a": 1, "b": None}), items_of(3)
    (3, [1, None], None)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from neuralqx_struct.fieldspec import FieldKind, is_struct


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """The values of all items of a collection, in their order; operators and comparisons take them one by one."""

    values: list[Any]


@dataclass(frozen=True, slots=True, eq=False)
class StructValue:
    """A struct that is no instance, such as one in a manifest.

    Attributes:
        fields: The values of its fields, computed when they are read.
        nodes: The names of the fields whose elements its size counts.
    """

    fields: Mapping[str, Any]
    nodes: Collection[str] = ()


def is_a_struct(value: Any) -> bool:
    """True for a struct, of either kind."""
    return type(value) is StructValue or (is_struct(value) and not isinstance(value, type))


def fields_of_struct(value: Any) -> Collection[str]:
    """The names of the fields that expressions may read; derived fields only where an expression computes them."""
    if type(value) is StructValue:
        return value.fields
    specs = type(value).__nqx_fields__.values()
    return [
        spec.name
        for spec in specs
        if not spec.is_derived or getattr(spec.derived, "__nqx_pure__", False)
    ]


def field_of_struct(value: Any, name: str) -> Any:
    """The value of one of these fields."""
    return value.fields[name] if type(value) is StructValue else getattr(value, name)


def nodes_of_struct(value: Any) -> list[Any]:
    """The values whose elements count as the size of a struct."""
    if type(value) is StructValue:
        return [value.fields[name] for name in value.nodes]
    specs = type(value).__nqx_fields__.values()
    stored = [spec for spec in specs if spec.kind is FieldKind.NODE and not spec.is_derived]
    return [getattr(value, spec.name) for spec in stored]


#: Return the values inside an object of another library, or None; the module that knows such objects adds its function.
INSIDE: list[Callable[[Any], list[Any] | None]] = []


def parts_of(value: Any) -> list[Any] | None:
    """The values inside a collection, or inside an object of another library, such as an optimiser's state."""
    found = items_of(value)
    for inside in INSIDE if found is None else ():
        found = inside(value)
        if found is not None:
            return found
    return found


def items_of(value: Any) -> list[Any] | None:
    """The values inside a list, tuple, dict or :class:`Items`; None for any other value."""
    kind = type(value)
    if kind is Items:
        return value.values  # type: ignore[no-any-return]
    if issubclass(kind, dict):
        return [*dict.values(value)]
    for sequence in (list, tuple):
        if issubclass(kind, sequence):
            return [*sequence.__iter__(value)]
    return None


def number_of_scalar(value: Any) -> Any:
    """The number of a scalar of numpy as Python has it; other values as they are."""
    numpy = sys.modules.get("numpy")  # a scalar of it exists only where it was imported
    if numpy is None or not issubclass(type(value), numpy.generic) or value.dtype.kind in "mMO":
        return value
    number = value.item()
    return number if type(number) in (bool, int, float, complex) else value
