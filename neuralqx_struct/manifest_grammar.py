"""What ``manifest.json`` may hold, as tables: node kinds, records, and what their members must be.

Owns the data alone, so that a new node kind is a new row here. The tables are made into a fast check by ``manifest.py``, and
into Pydantic models and the published JSON Schema by ``manifest_schema.py``; ``nodes.py`` gives the kinds a meaning.

Example:
    >>> NODE_KINDS["array"]["shape"], PLACES["key-data"]
    ('shape', frozenset({'array'}))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = [
    "CHOICES",
    "LENGTHS",
    "MODES",
    "MOST_DIMS",
    "NODE_KINDS",
    "PATTERNS",
    "PLACES",
    "PLAIN",
    "RANGES",
    "RECORDS",
]

# A member ending in "?" may be left out. The value names what it must be: a choice, a pattern or a range of the tables
# below, a rule of manifest.py, or a structure of nodes.

NODE_KINDS: Final[Mapping[str, Mapping[str, str]]] = {
    "struct": {"type": "text", "fields": "fields"},
    "array": {"name": "text", "dtype": "text", "shape": "shape", "leaf?": "leaf", "weak_type?": "true"},
    "dict": {"items": "pairs"},
    "ordered-dict": {"items": "pairs"},
    "defaultdict": {"factory": "factory", "items": "pairs"},
    "counter": {"items": "pairs"},
    "mapping-proxy": {"items": "pairs"},
    "list": {"items": "nodes"},
    "tuple": {"items": "nodes"},
    "set": {"items": "nodes"},
    "frozenset": {"items": "nodes"},
    "deque": {"items": "nodes", "maxlen": "length"},
    "complex": {"real": "part", "imag": "part"},
    "path": {"value": "text", "pure?": "system"},
    "numpy-scalar": {"dtype": "text", "value": "scalar"},
    "registered-pytree": {"type": "text", "mode": "mode"},  # and the members of its mode, below
    "namedtuple": {"type": "text", "fields": "fields"},
    "bytes": {"base64": "base64"},
    "bytearray": {"base64": "base64"},
    "reference": {"name": "text"},
    "range": {"start": "integer", "stop": "integer", "step": "integer"},
    "float": {"value": "nonfinite"},
    "bigint": {"value": "decimal"},
    "enum": {"type": "text", "name": "text"},
    "dtype": {"value": "text"},
    "slice": {"start": "node", "stop": "node", "step": "node"},
    "datetime": {"type": "moment", "value": "text"},
    "prng-key": {"impl": "text", "data": "key-data"},
    "pytree-dataclass": {"type": "text", "fields": "fields"},
    "full": {"dtype": "text", "shape": "shape", "value": "scalar", "leaf?": "leaf", "weak_type?": "true"},
}
MODES: Final[Mapping[str, Mapping[str, str]]] = {
    "flatten": {"children": "nodes", "aux": "node"},
    "serializer": {"payload": "node"},
}
RECORDS: Final[Mapping[str, Mapping[str, str]]] = {
    "Manifest": {
        "$schema?": "text",
        "version": "version",
        "schema?": "identity",
        "schemas?": "documents",
        "manifest": "node",
        "arrays": "records",
        "metadata?": "object",
        "writer?": "writer",
        "digest?": "sha256",
    },
    "ArrayRecord": {
        "dtype": "text",
        "shape": "shape",
        "crc32?": "crc32",
        "chunk?": "shape",
        "chunk_crc32?": "checksums",
        "offset?": "count",
        "nbytes?": "count",
        "file?": "filename",
        "unused?": "true",
    },
    "SchemaIdentity": {"id": "text", "version": "ordinal", "fingerprint": "text"},
    "Writer": {"name": "text", "version": "text"},
}
PLAIN: Final[Mapping[type, str]] = {type(None): "null", bool: "boolean", int: "number", float: "number", str: "string"}
# Which nodes may stand at a place; "node" takes all of them.
PLACES: Final[Mapping[str, frozenset[str]]] = {
    "node": frozenset({*PLAIN.values(), *NODE_KINDS}),
    "part": frozenset({"number", "float"}),
    "scalar": frozenset({*PLAIN.values(), "bigint", "bytes", "complex", "float"}),
    "key-data": frozenset({"array"}),
    "length": frozenset({"null", "number"}),
    "integer": frozenset({"number", "bigint"}),
}
CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "leaf": ("jax", "numpy"),
    "mode": tuple(MODES),
    "nonfinite": ("nan", "inf", "-inf"),
    "system": ("posix", "windows"),
    "factory": (
        *("none", "list", "dict", "set", "frozenset", "tuple", "int", "float", "complex", "bool", "str", "bytes"),
        *("OrderedDict", "Counter", "deque"),
    ),
    "moment": ("datetime", "date", "time", "timedelta"),
}
PATTERNS: Final[Mapping[str, tuple[str, str]]] = {
    "base64": ("base64 text", r"^[A-Za-z0-9+/]*={0,2}$"),
    "decimal": ("an integer in at most 100,000 decimal digits", r"^-?[0-9]+$"),
    "sha256": ("'sha256:' and 64 hexadecimal digits", r"^sha256:[0-9a-f]{64}$"),
    "filename": ("the plain name of a file beside the manifest", r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$"),
}
# The most characters that text of a pattern may have: reading decimal digits takes time that grows with their square.
LENGTHS: Final[Mapping[str, int]] = {"decimal": 100_001}
# What numpy can make: work with sizes of a shape takes time that grows with the square of their number and length.
MOST_DIMS: Final = 64
RANGES: Final[Mapping[str, tuple[int, int | None]]] = {
    "count": (0, None),
    "size": (0, 2**63 - 1),
    "ordinal": (1, None),
    "crc32": (0, 2**32 - 1),
}
