"""Field types: the table of their records, one for each sort of type.

A record is an instance of a class of :class:`~neuralqx_struct.types.records.TypeRecord`, whose members are all that the
package knows of the type: parsing and printing, the types inside, checks of live and stored values, children and sizes
of manifest nodes, reading of plain values, suggestions, lint, JSON Schema, stubs and examples. Code outside of this
package never compares the name or the class of a type: it asks ``declared.record``, or one of the short forms
``declared.parts``, ``.branches``, ``.solid``, ``.nullable``, ``.extents``, ``.arguments`` and ``.refers``.

To add a type, write a record and put it into :data:`RECORDS`. A Python scalar is one row of data::

    DECIMAL = ScalarRecord(name="decimal", plain=(str,), ...)

Example:
    >>> [record.name for record in RECORDS if record.bounds == ("number",)]
    ['int', 'float', 'literal']
"""

from __future__ import annotations

from neuralqx_struct.types.arrays import ArrayRecord, KeyRecord
from neuralqx_struct.types.collections import DictRecord, ListRecord, TupleRecord
from neuralqx_struct.types.literals import LiteralRecord, NullRecord, PyTreeRecord
from neuralqx_struct.types.records import TYPES, TypeRecord
from neuralqx_struct.types.scalars import (
    BOOL,
    BYTES,
    COMPLEX,
    DTYPE,
    FLOAT,
    INT,
    PATH,
    STR,
)
from neuralqx_struct.types.unions import NamedRecord, UnionRecord

RECORDS: tuple[TypeRecord, ...] = (
    BOOL,
    INT,
    FLOAT,
    COMPLEX,
    STR,
    BYTES,
    PATH,
    DTYPE,
    NullRecord(name="null"),
    PyTreeRecord(name="pytree"),
    KeyRecord(name="prng_key"),
    ArrayRecord(name="array"),
    ListRecord(name="list", kinds=("list",)),
    TupleRecord(name="tuple", kinds=("tuple",)),
    DictRecord(name="dict", kinds=("dict", "ordered-dict")),
    LiteralRecord(name="literal"),
    UnionRecord(name="union"),
    NamedRecord(name="struct"),
)
TYPES.update({record.name: record for record in RECORDS})
