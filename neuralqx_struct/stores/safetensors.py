"""The ``safetensors`` store: one file that other tools of the field read. Written and read by hand, it needs no package.

Owns the mapping of logical dtypes to the format's own: what it has no name for is stored as the nearest thing of the same
bytes (complex numbers as pairs of floats, dates as int64, text and small floats as bytes), and the record has the truth.
The format knows no gaps, so data are sorted by the size of their elements to stay aligned.

Example:
    >>> import io, numpy as np
    >>> file = io.BytesIO()
    >>> records = write(file, {"w": np.array([1 + 2j])})
    >>> read(memoryview(file.getvalue()), records)["w"]
    array([1.+2.j])
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from neuralqx_struct.errors import Diagnostic, IntegrityError, SerializationError, StructError
from neuralqx_struct.manifest import Limits
from neuralqx_struct.manifest_text import parse_manifest
from neuralqx_struct.payload import dtype_name, dtype_named, raise_findings
from neuralqx_struct.stores import (
    WHOLE,
    Access,
    Entry,
    FileArrays,
    Records,
    Source,
    Tick,
    about,
    opened,
    require_possible,
)
from neuralqx_struct.stores.checksums import write_all, write_checked
from neuralqx_struct.stores.zip_records import ALIGNMENT

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

__all__ = ["FILE", "FOLDER", "members", "read", "verify", "write"]

FILE: Final = "arrays.safetensors"
FOLDER: Final = False
_MOST_HEADER = 100_000_000  # what the reference implementation takes
_CODES: Final = {
    "bool": "BOOL",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
# dtypes without a code of their own: the code, and how many of it make one element
_PARTS: Final = {"complex64": ("F32", 2), "complex128": ("F64", 2)}


def _stored(logical: str, shape: list[int]) -> tuple[str, list[int]]:
    """The format's dtype and shape for an array; always of exactly as many bytes."""
    if logical in _CODES:
        return _CODES[logical], shape
    if logical in _PARTS:
        code, parts = _PARTS[logical]
        return code, [*shape, parts]
    dtype = dtype_named(logical)
    if dtype.kind in "mM" and dtype.isnative:
        return "I64", shape
    return ("U8", shape) if dtype.itemsize == 1 else ("U8", [*shape, dtype.itemsize])


def write(
    target: Path | BinaryIO, arrays: Mapping[str, Array], *, compress: bool = False, tick: Tick | None = None
) -> dict[str, dict[str, Any]]:
    """Write all arrays; see :class:`~neuralqx_struct.stores.ArrayStore`.

    Raises:
        SerializationError: A dtype cannot be stored, or ``compress`` was asked for, which the format does not know.
    """
    import numpy as np

    if compress:
        hint = "use store='npz' for compressed arrays"
        raise SerializationError("expected compress=False for store 'safetensors', got True", code="NQX614", hint=hint)
    if isinstance(target, Path):
        with target.open("xb", buffering=0) as file:
            records = write(cast("BinaryIO", file), arrays, tick=tick)
            os.fsync(file.fileno())
        return records
    records = {}
    sizes: dict[str, int] = {}
    for name, array in arrays.items():
        try:
            records[name] = {"dtype": dtype_name(array.dtype), "shape": list(array.shape), "crc32": 0}
        except SerializationError as error:
            raise SerializationError(about(d.code, name, d.message, d.hint) for d in error.diagnostics) from error
        sizes[name] = array.nbytes
        del array  # it may have been computed to be seen: gone before the next one is
        if name == "__metadata__":
            raise SerializationError(about("NQX614", name, "expected any other array name: the format keeps this one"))
    order = sorted(records, key=lambda name: (-_element(records[name]["dtype"]), name))
    header: dict[str, Any] = {}
    position = 0
    for name in order:
        record = records[name]
        code, shape = _stored(record["dtype"], record["shape"])
        end = position + sizes[name]
        header[name] = {"dtype": code, "shape": shape, "data_offsets": [position, end]}
        position = end
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    if len(text) > _MOST_HEADER:
        raise SerializationError(f"expected a header of at most {_MOST_HEADER} bytes, got {len(text)}", code="NQX506")
    write_all(target, memoryview(len(text).to_bytes(8, "little") + text))
    for name in order:
        flat = np.asarray(arrays[name], order="C").reshape(-1)
        body = flat.view(np.uint8).data if flat.nbytes else memoryview(b"")
        record = records[name]
        record |= {
            "crc32": write_checked(target, body, tick),
            "offset": 8 + len(text) + header[name]["data_offsets"][0],
            "nbytes": len(body),
        }
        del flat, body
    return records


def _element(logical: str) -> int:
    """The size of the format's elements for a dtype: what their place in the file must be a multiple of."""
    code, _ = _stored(logical, [])
    dtype = dtype_named(logical)
    return 1 if code == "U8" else dtype.itemsize


def read(source: Source, records: Records, access: Access = WHOLE) -> FileArrays:
    """Open the arrays of a file; see :class:`~neuralqx_struct.stores.ArrayStore`."""
    arrays, found = _survey(source, records, access)
    raise_findings(found, str(source) if isinstance(source, Path) else FILE)
    return arrays


def verify(source: Source, records: Records, access: Access = WHOLE) -> list[Diagnostic]:
    """Everything that is wrong with the file; see :class:`~neuralqx_struct.stores.ArrayStore`."""
    arrays, found = _survey(source, records, replace(access, verify=True, mmap=True))
    return found + [problem for name in arrays if (problem := arrays.verify(name)) is not None]


def members(source: Source) -> tuple[str, ...]:
    """The names of the tensors, as the file says by itself."""
    view, _ = opened(source, mmap=True)
    return tuple(_header(view)[0])


def _header(view: memoryview) -> tuple[dict[str, dict[str, Any]], int]:
    """The file's own description of its tensors, every number of it checked; and where the data begin."""
    size = int.from_bytes(view[:8], "little")
    if len(view) < 8 or size > len(view) - 8:
        raise IntegrityError("expected a whole safetensors file, got one that ends inside its header", code="NQX408")
    if size > _MOST_HEADER:
        raise IntegrityError(f"expected a header of at most {_MOST_HEADER} bytes, got {size}", code="NQX506")
    text = bytes(view[8 : 8 + size]).rstrip(b" ")
    try:
        header = parse_manifest(text, limits=Limits(manifest_bytes=_MOST_HEADER, depth=2))
    except SerializationError as error:
        told = error.diagnostics[0].message
        raise IntegrityError(
            f"expected the header of a safetensors file, got other text\n{told}", code="NQX408"
        ) from None
    header.pop("__metadata__", None)
    free, end = 0, len(view) - 8 - size
    for name, item in sorted(header.items(), key=_begin):
        if not _is_tensor(item):
            message = "expected dtype, shape and data_offsets of a tensor, got something else"
            raise IntegrityError(about("NQX408", name, message))
        first, last = item["data_offsets"]
        if first != free or last < first or last > end:
            message = f"expected data from byte {free} up to at most {end}, got them from {first} to {last}"
            raise IntegrityError(about("NQX408", name, message))
        free = last
    if free != end:
        raise IntegrityError(f"expected {free} bytes of data in the safetensors file, got {end}", code="NQX408")
    return header, 8 + size


def _begin(pair: tuple[str, Any]) -> tuple[int, int]:
    item = pair[1]
    return (item["data_offsets"][0], item["data_offsets"][1]) if _is_tensor(item) else (-1, -1)


def _is_tensor(item: Any) -> bool:
    return (
        type(item) is dict
        and item.keys() == {"dtype", "shape", "data_offsets"}
        and type(item["dtype"]) is str
        and all(
            type(part) is list and all(type(n) is int and n >= 0 for n in part)
            for part in (item["shape"], item["data_offsets"])
        )
        and len(item["data_offsets"]) == 2
    )


def _survey(source: Source, records: Records, access: Access) -> tuple[FileArrays, list[Diagnostic]]:
    """Compare the header of a file with the records, reading no array."""
    found: list[Diagnostic] = []
    entries: dict[str, Entry] = {}
    view, private = memoryview(b""), None
    try:
        view, private = opened(source, mmap=access.mmap)
        header, begin = _header(view)
        for name, record in records.items():
            item = header.pop(name, None)
            if item is None:
                found.append(about("NQX409", name, "expected an array of this name in the file, got none"))
                continue
            try:
                entries[name] = _entry(item, record, begin)
            except StructError as error:
                found += [about(d.code, name, d.message, d.hint) for d in error.diagnostics]
        hint = "the file was changed by hand, or the manifest belongs to another one"
        message = "expected a record for every array in the file, got none"
        found += [about("NQX410", name, message, hint) for name in header if name not in access.superseded]
    except StructError as error:
        found += error.diagnostics
    return FileArrays(view, private, entries, access), found


def _entry(item: Mapping[str, Any], record: Mapping[str, Any], begin: int) -> Entry:
    logical, shape = record["dtype"], record["shape"]
    dtype = dtype_named(logical)
    code, stored = _stored(logical, shape)
    nbytes = prod(shape) * dtype.itemsize
    first, last = item["data_offsets"]
    if item["dtype"] != code:
        raise IntegrityError(f"expected {logical} stored as {code}, got {item['dtype']}", code="NQX411")
    if item["shape"] != stored:
        raise IntegrityError(f"expected {logical}{shape} stored as {code}{stored}, got {item['shape']}", code="NQX412")
    require_possible(shape, dtype.itemsize)
    if last - first != nbytes or record.get("nbytes", nbytes) != nbytes:
        got = f"{last - first} in the file and {record.get('nbytes', nbytes)} in the record"
        raise IntegrityError(f"expected {nbytes} bytes for {logical}{shape}, got {got}", code="NQX408")
    if record.get("offset", begin + first) != begin + first:
        raise IntegrityError(
            f"expected data at byte {record['offset']}, got them at byte {begin + first}", code="NQX408"
        )
    return Entry(dtype, tuple(shape), begin + first, nbytes, record.get("crc32"))
