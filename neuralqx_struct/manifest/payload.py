"""Payloads: a manifest together with its arrays, and the check that both agree.

Readers and writers of files (``stores/``, ``bundle/``) call :func:`check`; codecs make values of a payload.

Example:
    >>> import numpy as np
    >>> node = {"__kind__": "array", "name": "w", "dtype": "float32", "shape": [2]}
    >>> document = {"version": 1, "manifest": node, "arrays": {"w": {"dtype": "float32", "shape": [2]}}}
    >>> [d.code for d in check(Payload(document, {"w": np.zeros(3, "float32")}))]
    ['NQX412']
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Final, NoReturn

from neuralqx_struct.dtypes import DTYPES, dtype_name, dtype_named
from neuralqx_struct.errors import (
    Diagnostic,
    IntegrityError,
    SerializationError,
    UntrustedError,
    did_you_mean,
    has_errors,
)
from neuralqx_struct.manifest.arrays import StoredArrays
from neuralqx_struct.manifest.check import DEFAULT_LIMITS, MOST_FINDINGS, Limits, check_manifest
from neuralqx_struct.manifest.kinds import (
    ARRAY,
    BIGINT,
    FULL,
    NUMPY_SCALAR,
    iter_nodes,
    nodes_below,
    show,
)
from neuralqx_struct.paths import FieldName, format_path
from neuralqx_struct.printing import read_decimal

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Payload:
    """The content of a bundle.

    Attributes:
        document: The manifest document.
        arrays: The arrays by name; may be lazy and read a file on access.
    """

    document: dict[str, Any]
    arrays: Mapping[str, np.ndarray[Any, Any]]


def _sized_nodes(root: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The nodes that have a dtype, in any order: those of stored arrays, and the others."""
    stored: list[dict[str, Any]] = []
    described: list[dict[str, Any]] = []
    level = [root]
    while level:
        for node in level:
            if ARRAY.matches(node):
                stored.append(node)
            elif FULL.matches(node) or NUMPY_SCALAR.matches(node):
                described.append(node)
        level, _ = nodes_below(level)
    return stored, described


def check(payload: Payload, limits: Limits = DEFAULT_LIMITS) -> list[Diagnostic]:
    """Checks a payload: the manifest by itself, then nodes, records and arrays together.

    Args:
        payload: The payload that was read or will be written.
        limits: Largest tree that is accepted.

    Returns:
        All findings; arrays left unused by a migration are ``info``.
    """
    found = check_manifest(payload.document, limits=limits)
    return found if has_errors(found) else found + check_arrays(payload, limits)


def check_arrays(payload: Payload, limits: Limits = DEFAULT_LIMITS) -> list[Diagnostic]:
    """Checks that the nodes, records and arrays of a valid manifest agree.

    Dtype and shape of node, record and array must be the same, also for shape ``[]``; every array node needs a record and
    an array; an array without a node is an error unless its record has ``"unused": true``. ``limits`` bounds the arrays
    that nodes describe without storing them.
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
    if any(map(_misfit, described)):
        found += _misfits(document["manifest"])
    lazy = isinstance(arrays, StoredArrays)
    held = set(arrays)
    if (
        lazy
        and held == named == records.keys()
        and not any("unused" in record for record in records.values())
    ):
        return found  # nothing is missing and nothing is left over
    for name, record in records.items():
        if name not in held:
            found.append(
                _record(
                    "NQX409", name, "expected an array of this name in the array file, got none"
                )
            )
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


def _misfit(node: Mapping[str, Any]) -> bool:
    """Returns whether a dtype cannot hold the integer of a node; numpy decides about all other values."""
    value = node["value"]
    if BIGINT.matches(value):
        value = read_decimal(value["value"])
    if type(value) is not int:
        return False
    dtype = DTYPES.get(node["dtype"])
    if dtype is None:
        return node["dtype"].lstrip("<>=|")[:1] in ("S", "U")
    if dtype.exponents is not None:
        return value.bit_length() > dtype.exponents[1] + 1
    if dtype.family == "unsigned":
        return not 0 <= value < 2**dtype.bits
    half = 2 ** (dtype.bits - 1)
    return dtype.family == "integer" and not -half <= value < half


def _misfits(root: Any) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    for path, node in iter_nodes(root):
        if (FULL.matches(node) or NUMPY_SCALAR.matches(node)) and _misfit(node):
            value = show(node["value"]).value
            message = f"expected a value of dtype {node['dtype']}, got {value}"
            found.append(Diagnostic("NQX612", "error", message, format_path(path)))
    return found[:MOST_FINDINGS]


def _record(code: str, name: str, message: str, **more: Any) -> Diagnostic:
    severity = more.pop("severity", "error")
    return Diagnostic(
        code, severity, message, path=format_path((FieldName("arrays"), FieldName(name))), **more
    )


def _unnamed(name: str, *, unused: bool) -> Diagnostic:
    if unused:
        hint = "it takes room and does no harm; load and export the checkpoint to leave it out"
        return _record(
            "NQX410", name, "an array that a migration left unused", severity="info", hint=hint
        )
    message = "expected every array to be named by a node, got one that none names"
    return _record(
        "NQX410", name, message, hint='mark its record "unused": true if it is meant to stay'
    )


def _same_dtype(first: str, second: str) -> bool:
    return first == second or dtype_named(first) == dtype_named(second)


def _described(dtype: str, shape: Iterable[int]) -> str:
    return f"{dtype}[{', '.join(map(str, shape))}]"


def _measure(described: Iterable[Mapping[str, Any]], limits: Limits) -> list[Diagnostic]:
    """Refuses constant arrays that take too much memory: a few bytes of text can describe any size."""
    total, largest = 0, (-1, "")
    for node in described:
        try:
            dtype = dtype_named(node["dtype"])
        except SerializationError:
            continue  # the decoder reports it
        shape = node.get("shape", ())
        nbytes = prod(shape) * dtype.itemsize
        total += nbytes
        largest = max(largest, (nbytes, f"{node['dtype']}{list(shape)}"[:80]))
    if total <= limits.full_bytes:
        return []
    message = f"expected at most {limits.full_bytes} bytes of arrays that are described and not stored, got more"
    why = f"\nthe largest is {largest[1]}"
    return [
        Diagnostic(
            "NQX505", "error", message + why, format_path(()), hint="pass limits= to read more"
        )
    ]


def _compare_nodes(root: Any, records: Mapping[str, Any]) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    for path, node in iter_nodes(root):
        if not ARRAY.matches(node):
            continue
        if len(found) >= MOST_FINDINGS:
            break
        where, name = format_path(path), node["name"]
        record = records.get(name)
        if record is None:
            hint = did_you_mean(name, list(records)[:1000])
            found.append(
                Diagnostic(
                    "NQX409",
                    "error",
                    f"expected a record for array {name!r}, got none",
                    where,
                    hint=hint,
                )
            )
            continue
        wanted = _described(node["dtype"], node["shape"])
        got = _described(record["dtype"], record["shape"])
        try:
            if not _same_dtype(node["dtype"], record["dtype"]):
                message = f"expected {wanted}, got {got} in the record of array {name!r}"
                found.append(Diagnostic("NQX411", "error", message, where))
        except SerializationError as error:
            found += [
                Diagnostic(d.code, "error", d.message, where, hint=d.hint)
                for d in error.diagnostics
            ]
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
    for code, agree in (
        ("NQX411", wanted == array.dtype),
        ("NQX412", record["shape"] == list(array.shape)),
    ):
        if not agree:
            shown = _described(record["dtype"], record["shape"])
            got = _described(str(array.dtype), array.shape)
            found.append(_record(code, name, f"expected {shown}, got {got}"))
    nbytes = prod(record["shape"]) * wanted.itemsize
    if record.get("nbytes", nbytes) != nbytes:
        shown = _described(record["dtype"], record["shape"])
        found.append(
            _record(
                "NQX408",
                name,
                f"expected {nbytes} bytes for {shown}, got {record['nbytes']} in the record",
            )
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
    """Raises the errors among ``findings`` in one exception, of the class of the worst.

    Raises:
        UntrustedError: A file requires an unsafe operation (NQX5xx).
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
