"""A payload: a manifest together with its arrays, and the one check that every reader passes.

Owns :class:`Payload`, the agreement of nodes, records and arrays (:func:`check`), the walk over nodes with their key
paths (:func:`iter_nodes`) and the names of logical dtypes (:func:`dtype_named`, :func:`dtype_name`). Does not read or
write files (``stores/``, ``bundle/``) and builds no values (``nodes.py``).

Example:
    >>> import numpy as np
    >>> node = {"__kind__": "array", "name": "w", "dtype": "float32", "shape": [2]}
    >>> document = {"version": 1, "manifest": node, "arrays": {"w": {"dtype": "float32", "shape": [2]}}}
    >>> [d.code for d in check(Payload(document, {"w": np.zeros(3, "float32")}))]
    ['NQX412']
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Final, NoReturn

from neuralqx_struct.arrays import StoredArrays
from neuralqx_struct.errors import (
    Diagnostic,
    IntegrityError,
    SerializationError,
    UntrustedError,
    did_you_mean,
    has_errors,
)
from neuralqx_struct.manifest import DEFAULT_LIMITS, MOST_FINDINGS, Limits, check_manifest
from neuralqx_struct.manifest_rules import node_children
from neuralqx_struct.paths import FieldName, Path, format_path

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "ML_DTYPES",
    "Payload",
    "check",
    "check_arrays",
    "dtype_name",
    "dtype_named",
    "iter_nodes",
    "raise_findings",
    "storage_dtype",
]

# The number formats that ml_dtypes adds to numpy. Several bear a numpy kind that .npy files cannot express.
ML_DTYPES: Final = frozenset(
    [
        "bfloat16",
        "float8_e3m4",
        "float8_e4m3",
        "float8_e4m3b11fnuz",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
        "float6_e2m3fn",
        "float6_e3m2fn",
        "float4_e2m1fn",
        "int1",
        "uint1",
        "int2",
        "uint2",
        "int4",
        "uint4",
        "complex32",
        "bcomplex32",
    ]
)
_NUMPY_DTYPES: Final = frozenset(
    [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ]
)
_CODED = re.compile(
    r"[<>=](?:[iu][248]|f[248]|c8|c16|U\d{1,8})|[|<>=]?(?:b1|[iu]1|S\d{1,8})"
    r"|(?:datetime64|timedelta64|[<>=]?[mM]8)(?:\[\d{0,9}(?:Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?"
)


@dataclass(frozen=True, slots=True)
class Payload:
    """What a bundle holds.

    Attributes:
        document: The manifest document.
        arrays: The arrays by name; may be lazy, its items then come from a file when they are asked for.
    """

    document: dict[str, Any]
    arrays: Mapping[str, np.ndarray[Any, Any]]


@lru_cache(maxsize=4096)
def dtype_named(name: str) -> np.dtype[Any]:
    """The dtype that a manifest names, numpy's and ml_dtypes' alike.

    Knows full names (``float32``, ``bfloat16``, ``int4``), names with a byte order (``>f4``), text (``<U5``, ``|S3``) and
    dates; nothing else, whatever numpy would make of it.

    Raises:
        SerializationError: The name is unknown, or names objects, records or a platform's long double.

    Example:
        >>> dtype_named(">f4").newbyteorder("=") == dtype_named("float32")
        True
    """
    import numpy as np

    if name in _NUMPY_DTYPES or _CODED.fullmatch(name):
        found: np.dtype[Any] = np.dtype(name)
        return found
    if name in ML_DTYPES:
        import ml_dtypes

        if (scalar := getattr(ml_dtypes, name, None)) is not None:
            extended: np.dtype[Any] = np.dtype(scalar)
            return extended
    refused = ("object", "void", "float96", "float128", "complex192", "complex256", "longdouble", "clongdouble")
    why = "it differs between platforms or holds Python objects" if name in refused else "no such dtype is stored"
    hint = (
        did_you_mean(name, _NUMPY_DTYPES | ML_DTYPES) if name not in refused else "convert the array before saving it"
    )
    raise SerializationError(f"expected a dtype that can be stored, got {name[:60]!r}\n{why}", code="NQX411", hint=hint)


@lru_cache(maxsize=4096)
def dtype_name(dtype: np.dtype[Any]) -> str:
    """The name of a dtype in a manifest; the byte order stays in it. The inverse of :func:`dtype_named`.

    Raises:
        SerializationError: Arrays of this dtype cannot be stored.
    """
    name = str(dtype)
    if dtype_named(name) != dtype:
        raise SerializationError(f"expected a dtype that can be stored, got {name[:60]!r}", code="NQX411")
    return name


@lru_cache(maxsize=4096)
def storage_dtype(name: str) -> str:
    """How the bytes of a logical dtype are described in a file that knows only numpy's own: a ``.npy`` descriptor."""
    dtype = dtype_named(name)
    if name in ML_DTYPES:
        return "|u1" if dtype.itemsize == 1 else f"<u{dtype.itemsize}"
    return dtype.str


def _plain_key(node: Any) -> Hashable:
    """A dict key as a part of a path: itself if it is plain, a tuple of plain keys, else its JSON."""
    if not isinstance(node, dict):
        return node  # type: ignore[no-any-return]
    if node.get("__kind__") == "tuple" and not any(isinstance(item, dict) for item in node["items"]):
        return tuple(node["items"])
    return json.dumps(node, sort_keys=True)


def iter_nodes(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every node of a sound tree with its key path, from top to bottom; without recursion.

    Fields of structs, namedtuples and dataclasses are :class:`~neuralqx_struct.paths.FieldName` parts, items of dicts
    stand under their key, items of sequences and children of pytrees under their position. A key that is itself a node
    is found at the place of its dict, under ``('key', position)``.

    Example:
        >>> [format_path(p) for p, _ in iter_nodes({"__kind__": "struct", "type": "m:A", "fields": {"x": 1}})]
        ['$', '$.x']
    """
    stack: list[tuple[Path, Any]] = [(path, node)]
    while stack:
        here, node = stack.pop()
        yield here, node
        if not isinstance(node, dict):
            continue
        below: list[tuple[Path, Any]] = []
        for member, key, child in node_children(node):
            part: Hashable
            if isinstance(key, tuple):
                index, side = key
                if side == 0 and not isinstance(child, dict):
                    continue
                part = _plain_key(node[member][index][0]) if side else ("key", index)
            elif key is None:
                part = FieldName(member)
            else:
                part = FieldName(key) if isinstance(key, str) else key
            below.append(((*here, part), child))
        stack.extend(reversed(below))


_ITEMS: Final = frozenset({"list", "tuple"})
_SIZED: Final = frozenset({"full", "numpy-scalar"})


def _sized_nodes(root: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The nodes with a dtype, those of stored arrays and the others, in no promised order: the quick walk."""
    stored: list[dict[str, Any]] = []
    described: list[dict[str, Any]] = []
    stack = [root]
    pop, push = stack.pop, stack.append
    while stack:
        node = pop()
        if type(node) is not dict:
            continue
        kind = node["__kind__"]
        if kind == "array":
            stored.append(node)
        elif kind in _SIZED:
            described.append(node)
        elif kind == "struct":
            stack.extend(node["fields"].values())
        elif kind in _ITEMS:
            stack.extend([item for item in node["items"] if type(item) is dict])
        elif kind == "dict":
            stack.extend([part for pair in node["items"] for part in pair if type(part) is dict])
        else:
            for _, _, child in node_children(node):
                push(child)
    return stored, described


def check(payload: Payload, limits: Limits = DEFAULT_LIMITS) -> list[Diagnostic]:
    """Everything that is wrong with a payload: the manifest by itself, then nodes, records and arrays together.

    Args:
        payload: What was read or is to be written.
        limits: How large a tree is taken.

    Returns:
        All findings; arrays left unused by a migration come as ``info``.
    """
    found = check_manifest(payload.document, limits=limits)
    return found if has_errors(found) else found + check_arrays(payload, limits)


def check_arrays(payload: Payload, limits: Limits = DEFAULT_LIMITS) -> list[Diagnostic]:
    """The second half of :func:`check`, for a document that :func:`~.manifest.check_manifest` has nothing against.

    Dtype and shape of node, record and array must agree, also for shape ``[]``; every array node has a record and an
    array; an array that no node names is an error unless its record says ``"unused": true``. What nodes describe without storing it is bounded by ``limits``.
    """
    document, arrays = payload.document, payload.arrays
    records = document["arrays"]
    found: list[Diagnostic] = []
    nodes, described = _sized_nodes(document["manifest"])
    named: set[str] = set()
    agree = True
    for node in nodes:
        name = node["name"]
        record = records.get(name)
        named.add(name)
        if record is None or record["shape"] != node["shape"] or record["dtype"] != node["dtype"]:
            agree = False
    if not agree:
        found += _compare_nodes(document["manifest"], records)
    if described:
        found += _measure(described, limits)
    lazy = isinstance(arrays, StoredArrays)
    held = set(arrays)
    if lazy and held == named == records.keys() and not any("unused" in record for record in records.values()):
        return found  # nothing is missing and nothing is left over
    for name, record in records.items():
        if name not in held:
            found.append(_record("NQX409", name, "expected an array of this name in the array file, got none"))
        elif not lazy:
            found += _compare_array(name, record, arrays[name])
        if name not in named:
            found.append(_unnamed(name, unused="unused" in record))
        elif "unused" in record:
            message = 'expected no node to name an array whose record says "unused": true, got one'
            found.append(_record("NQX410", name, message))
    found += [
        _record("NQX410", str(name), "expected a record for every array, got none for this one")
        for name in arrays
        if name not in records
    ]
    return found


def _record(code: str, name: str, message: str, **more: Any) -> Diagnostic:
    severity = more.pop("severity", "error")
    return Diagnostic(code, severity, message, path=format_path((FieldName("arrays"), FieldName(name))), **more)


def _unnamed(name: str, *, unused: bool) -> Diagnostic:
    if unused:
        hint = "it takes room and does no harm; load and export the checkpoint to leave it out"
        return _record("NQX410", name, "an array that a migration left unused", severity="info", hint=hint)
    message = "expected every array to be named by a node, got one that none names"
    return _record("NQX410", name, message, hint='mark its record "unused": true if it is meant to stay')


def _same_dtype(first: str, second: str) -> bool:
    return first == second or dtype_named(first) == dtype_named(second)


def _described(dtype: str, shape: Iterable[int]) -> str:
    return f"{dtype}[{', '.join(map(str, shape))}]"


def _measure(described: Iterable[Mapping[str, Any]], limits: Limits) -> list[Diagnostic]:
    """A few bytes of text can describe arrays of any size: refuse those that no memory should be given to."""
    total, largest = 0, (-1, "")
    for node in described:
        try:
            dtype = dtype_named(node["dtype"])
        except SerializationError:
            continue  # the decoder says where
        shape = node.get("shape", ())
        nbytes = prod(shape) * dtype.itemsize
        total += nbytes
        largest = max(largest, (nbytes, f"{node['dtype']}{list(shape)}"[:80]))
    if total <= limits.full_bytes:
        return []
    message = f"expected at most {limits.full_bytes} bytes of arrays that are described and not stored, got more"
    why = f"\nthe largest is {largest[1]}"
    return [Diagnostic("NQX505", "error", message + why, format_path(()), hint="pass limits= to read more")]


def _compare_nodes(root: Any, records: Mapping[str, Any]) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    for path, node in iter_nodes(root):
        if type(node) is not dict or node["__kind__"] != "array":
            continue
        if len(found) >= MOST_FINDINGS:
            break
        where, name = format_path(path), node["name"]
        record = records.get(name)
        if record is None:
            hint = did_you_mean(name, list(records)[:1000])
            found.append(
                Diagnostic("NQX409", "error", f"expected a record for array {name!r}, got none", where, hint=hint)
            )
            continue
        wanted = _described(node["dtype"], node["shape"])
        got = _described(record["dtype"], record["shape"])
        try:
            if not _same_dtype(node["dtype"], record["dtype"]):
                message = f"expected {wanted}, got {got} in the record of array {name!r}"
                found.append(Diagnostic("NQX411", "error", message, where))
        except SerializationError as error:
            found += [Diagnostic(d.code, "error", d.message, where, hint=d.hint) for d in error.diagnostics]
            continue
        if node["shape"] != record["shape"]:
            message = f"expected {wanted}, got {got} in the record of array {name!r}"
            found.append(Diagnostic("NQX412", "error", message, where))
    return found


def _compare_array(name: str, record: Mapping[str, Any], array: Any) -> list[Diagnostic]:
    import numpy as np

    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        return [_record("NQX612", name, f"expected a numpy array, got {type(array).__name__}")]
    try:
        wanted = dtype_named(record["dtype"])
        dtype_name(array.dtype)
    except SerializationError as error:
        return [_record(d.code, name, d.message, hint=d.hint) for d in error.diagnostics]
    found = []
    for code, agree in (("NQX411", wanted == array.dtype), ("NQX412", record["shape"] == list(array.shape))):
        if not agree:
            shown = _described(record["dtype"], record["shape"])
            got = _described(str(array.dtype), array.shape)
            found.append(_record(code, name, f"expected {shown}, got {got}"))
    nbytes = prod(record["shape"]) * wanted.itemsize
    if record.get("nbytes", nbytes) != nbytes:
        shown = _described(record["dtype"], record["shape"])
        found.append(
            _record("NQX408", name, f"expected {nbytes} bytes for {shown}, got {record['nbytes']} in the record")
        )
    return found


_CLASSES: Final = (
    ("NQX5", UntrustedError),
    ("NQX407", IntegrityError),
    ("NQX408", IntegrityError),
    ("NQX409", IntegrityError),
    ("NQX41", IntegrityError),
)


def raise_findings(findings: Iterable[Diagnostic], file: str | None = None) -> None:
    """Raise the errors among ``findings``, all in one exception, of the class that the worst of them asks for.

    Raises:
        UntrustedError: A file asks for something that reading must not do (NQX5xx).
        IntegrityError: Bytes, sizes, dtypes or shapes do not agree (NQX407 to NQX412).
        SerializationError: Anything else.
    """
    errors = [d.in_file(file) if file is not None else d for d in findings if d.severity == "error"]
    if errors:
        _raise(errors)


def _raise(errors: list[Diagnostic]) -> NoReturn:
    for prefix, kind in _CLASSES:
        if any(d.code.startswith(prefix) for d in errors):
            raise kind(errors)
    raise SerializationError(errors)
