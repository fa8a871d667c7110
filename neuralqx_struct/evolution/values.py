"""Values of a declaration as nodes: what a field holds that a payload lacks, from the plain value in a schema file.

Owns :func:`value_node` (a default by its declared type) and the numbers inside constant arrays (:func:`number_node` and
:func:`number_value`, inverse to each other). Values of Python programs become nodes in ``nodes.py``.

Example:
    >>> from neuralqx_struct.schema.types import parse_type
    >>> value_node(0, parse_type("float32[n] | null"), Shelf(v1, size=lambda extent: 3))
    {'__kind__': 'full', 'dtype': 'float32', 'shape': [3], 'value': 0.0}
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite, isnan, nan
from typing import TYPE_CHECKING, Any

from neuralqx_struct.errors import MigrationError
from neuralqx_struct.payload import dtype_named
from neuralqx_struct.schema.expressions import Expression
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.types import (
    DTYPES,
    Array,
    DictOf,
    Key,
    ListOf,
    LiteralOf,
    Named,
    Null,
    PyTree,
    Scalar,
    TupleOf,
    Type,
    Union,
    format_type,
)

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Node", "Shelf", "number_node", "number_value", "value_node"]

Node = Any

_NONFINITE = {"nan": nan, "inf": inf, "-inf": -inf}


def number_node(value: Any) -> Node:
    """A bool, int, float or complex as a node."""
    if isinstance(value, complex):
        return {"__kind__": "complex", "real": number_node(value.real), "imag": number_node(value.imag)}
    if isinstance(value, float) and not isfinite(value):
        return {"__kind__": "float", "value": "nan" if isnan(value) else "inf" if value > 0 else "-inf"}
    return value


def number_value(node: Node) -> complex:
    """The number that a node is; the inverse of :func:`number_node`."""
    if not isinstance(node, dict):
        return node  # type: ignore[no-any-return]
    if node["__kind__"] == "complex":
        return complex(number_value(node["real"]).real, number_value(node["imag"]).real)
    return int(node["value"]) if node["__kind__"] == "bigint" else _NONFINITE[node["value"]]


def _no_arrays(dtype: str, array: np.ndarray) -> Node:
    del dtype, array


@dataclass(frozen=True, slots=True)
class Shelf:
    """What a value may need from its payload.

    Attributes:
        document: Where struct and enum names are declared.
        size: The number that an extent is in this payload.
        store: Puts an array beside the manifest and gives its node.
    """

    document: Document
    size: Callable[[Expression], int]
    store: Callable[[str, np.ndarray], Node] = _no_arrays


def value_node(value: Any, declared: Type, shelf: Shelf) -> Node:
    """The node of a plain value under a declared type.

    Args:
        value: As YAML or JSON holds it; a number for an array fills it.
        declared: The type.
        shelf: Where sizes come from and arrays go.

    Raises:
        MigrationError: NQX107: the value is not one of the type.
    """
    match declared:
        case Null() if value is None:
            return None
        case Union(options):
            return _first(value, options, declared, shelf)
        case PyTree():
            return _tree_node(value)
        case Scalar(name) if (node := _scalar(name, value)) is not _WRONG:
            return node
        case LiteralOf(values) if any(type(v) is type(value) and v == value for v in values):
            return value
        case Array():
            return _array_node(value, declared, shelf)
        case ListOf(item) if isinstance(value, list):
            return {"__kind__": "list", "items": [value_node(v, item, shelf) for v in value]}
        case TupleOf(items, variadic) if isinstance(value, list) and (variadic or len(items) == len(value)):
            types = items * len(value) if variadic else items
            return {"__kind__": "tuple", "items": [value_node(v, t, shelf) for v, t in zip(value, types, strict=True)]}
        case DictOf(item) if isinstance(value, dict):
            return {"__kind__": "dict", "items": [[k, value_node(v, item, shelf)] for k, v in value.items()]}
        case Named(name) if value in (shelf.document.members_of(name) or ()):
            return value
        case Named(name) if name in shelf.document.structs and isinstance(value, dict):
            return _struct_node(value, name, declared, shelf)
        case Key() | _:
            raise _misfit(value, declared)


def _misfit(value: Any, declared: Type) -> MigrationError:
    return MigrationError(
        f"expected a value of type {format_type(declared)}, got {json.dumps(value, default=repr)}",
        code="NQX107",
        hint="a field may be null only where its type says `| null`" if value is None else None,
    )


def _first(value: Any, options: tuple[Type, ...], declared: Type, shelf: Shelf) -> Node:
    for option in options:
        try:
            return value_node(value, option, shelf)
        except MigrationError as error:
            if error.code != "NQX107":
                raise
    raise _misfit(value, declared)


_WRONG = object()


def _scalar(name: str, value: Any) -> Node:
    match name, value:
        case "bool", bool():
            return value
        case "int", int() if not isinstance(value, bool):
            return value
        case "float", int() | float() if not isinstance(value, bool):
            return number_node(float(value))
        case "complex", int() | float() if not isinstance(value, bool):
            return number_node(complex(value))
        case "str", str():
            return value
        case "path" | "dtype", str():
            return {"__kind__": name, "value": value}
        case "bytes", str():
            return {"__kind__": "bytes", "base64": b64encode(value.encode()).decode()}
        case _:
            return _WRONG


def _tree_node(value: Any) -> Node:
    if isinstance(value, list):
        return {"__kind__": "list", "items": [_tree_node(item) for item in value]}
    if isinstance(value, dict):
        return {"__kind__": "dict", "items": [[key, _tree_node(item)] for key, item in value.items()]}
    return number_node(value) if isinstance(value, float) else value


def _array_node(value: Any, declared: Array, shelf: Shelf) -> Node:
    if isinstance(value, list):
        return _list_array(value, declared, shelf)
    family = DTYPES[declared.dtype].family
    takes: tuple[type, ...] = {"bool": (bool,), "integer": (int,), "unsigned": (int,)}.get(family, (int, float))
    if not isinstance(value, takes) or (isinstance(value, bool) and family != "bool"):
        raise _misfit(value, declared)
    shape = [0 if extent is ... else shelf.size(extent) for extent in declared.shape]
    if ... in declared.shape:
        raise MigrationError(
            f"expected a list of numbers for {format_type(declared)}, got {value!r}\n... does not say how many axes there are",
            code="NQX107",
        )
    number: Any = {"floating": float, "complex": complex}.get(family, lambda v: v)(value)
    return {"__kind__": "full", "dtype": declared.dtype, "shape": shape, "value": number_node(number)}


def _list_array(value: list[Any], declared: Array, shelf: Shelf) -> Node:
    import numpy as np

    try:
        array = np.array(value, dtype=dtype_named(declared.dtype))
    except (TypeError, ValueError, OverflowError):
        raise _misfit(value, declared) from None
    if ... not in declared.shape:
        shape = tuple(shelf.size(extent) for extent in declared.shape if extent is not ...)
        if array.shape != shape and -1 not in shape:
            raise MigrationError(
                f"expected {declared.dtype}{list(shape)}, got a list of shape {list(array.shape)}", code="NQX107"
            )
    return shelf.store(declared.dtype, array)


def _struct_node(value: dict[str, Any], name: str, declared: Type, shelf: Shelf) -> Node:
    stored = shelf.document.structs[name].stored
    if value.keys() - stored.keys():
        raise _misfit(value, declared)
    fields = {}
    for field, declaration in stored.items():
        if field not in value and not declaration.has_default:
            raise _misfit(value, declared)
        fields[field] = value_node(value.get(field, declaration.default), declaration.declared, shelf)
    return {"__kind__": "struct", "type": shelf.document.ref(name), "fields": fields}
