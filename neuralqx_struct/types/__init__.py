"""Field types: the classes of types, and the table of them, one row for each sort.

The members of :class:`~neuralqx_struct.types.records.Type` are all that the package knows of a type: parsing and printing, the types
inside, checks of live and stored values, children and sizes of manifest nodes, reading of plain values, suggestions, lint,
JSON Schema, stubs and examples. Code outside of this package never compares the name or the class of a type: it uses
members such as ``declared.parts``, ``.branches``, ``.solid``, ``.nullable``, ``.extents``, ``.arguments``, ``.element`` and ``.refers``.

To add a type, write a subclass and put it into :data:`RECORDS`. A Python scalar is one row of data::

    DECIMAL = Scalar(name="decimal", plain=(str,), ...)

Example:
    >>> [record.sort for record in RECORDS if record.bounds == ("number",)]
    ['int', 'float', 'literal']
"""

from __future__ import annotations

import inspect
from typing import Any

from neuralqx_struct.types.arrays import Array, Key
from neuralqx_struct.types.collections import DictOf, ListOf, PyTree, TupleOf
from neuralqx_struct.types.literals import LiteralOf
from neuralqx_struct.types.records import (
    NO_VALUE,
    TYPES,
    Extent,
    Node,
    Rule,
    Type,
    map_sizes,
    map_type,
    type_names,
    type_of_class,
    walk_type,
)
from neuralqx_struct.types.scalars import (
    BOOL,
    BYTES,
    COMPLEX,
    DTYPE,
    FLOAT,
    INT,
    PATH,
    STR,
    Scalar,
)
from neuralqx_struct.types.stacked import Stacked
from neuralqx_struct.types.unions import Named, Null, Union

__all__ = [
    "INT",
    "NO_VALUE",
    "RECORDS",
    "STR",
    "TYPES",
    "Array",
    "DictOf",
    "Extent",
    "Key",
    "ListOf",
    "LiteralOf",
    "Named",
    "Node",
    "Null",
    "PyTree",
    "Rule",
    "Scalar",
    "Stacked",
    "TupleOf",
    "Type",
    "Union",
    "add_type",
    "map_sizes",
    "map_type",
    "type_names",
    "type_of_class",
    "walk_type",
]

RECORDS: tuple[Any, ...] = (
    BOOL,
    INT,
    FLOAT,
    COMPLEX,
    STR,
    BYTES,
    PATH,
    DTYPE,
    Null,
    PyTree,
    Key,
    Array,
    ListOf,
    TupleOf,
    DictOf,
    LiteralOf,
    Union,
    Named,
    Stacked,
)


def add_type(record: Any) -> None:
    """Adds a row to the table.

    Args:
        record: A subclass of :class:`Type`, or an instance of :class:`Scalar`.

    Raises:
        TypeError: The class lacks a member.
    """
    if inspect.isabstract(record):
        missing = ", ".join(sorted(record.__abstractmethods__))
        raise TypeError(f"expected a class with every member of a type, got none of {missing}")
    TYPES[record.sort] = record


for _record in RECORDS:
    add_type(_record)
