"""The store ``safetensors``: one file that other machine learning tools read; needs no package.

Maps logical dtypes to those of the format. A dtype without a name there is stored as another one of the
same size (complex numbers as pairs of floats, dates as int64, text and small floats as bytes); the record
has the logical dtype. The format allows no gaps, so arrays are sorted by element size to stay aligned.

Example:
    >>> import io, numpy as np
    >>> file = io.BytesIO()
    >>> records = SAFETENSORS.write(file, {"w": np.array([1 + 2j])})
    >>> SAFETENSORS.read(memoryview(file.getvalue()), records)["w"]
    array([1.+2.j])
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from neuralqx_struct.dtypes import dtype_named
from neuralqx_struct.errors import IntegrityError, SerializationError
from neuralqx_struct.formats.archive import ALIGNMENT, damaged
from neuralqx_struct.formats.entries import Entry, FileFormat
from neuralqx_struct.formats.files import file_store
from neuralqx_struct.formats.store import (
    Tick,
    Written,
    about,
    bytes_of,
    logical_dtype,
    require_nbytes,
    require_possible,
)
from neuralqx_struct.manifest import Findings, Limits, collector_paused
from neuralqx_struct.manifest.text import parse_manifest
from neuralqx_struct.places.checksums import write_all, write_checked

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

METADATA: Final = "__metadata__"
_MOST_HEADER = 100_000_000  # the limit of the reference implementation
#: The dtypes of the format in its own order, which is that of data in its files, and our names; None where we have none.
CODES: Final[Mapping[str, str | None]] = {
    "BOOL": "bool",
    "F4": None,  # two in one byte, as those of six bits
    "F6_E2M3": None,
    "F6_E3M2": None,
    "U8": "uint8",
    "I8": "int8",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "C64": "complex64",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
}
#: Codes that bundles do without: older releases of the package refuse a file that has one.
_RECENT: Final = {"F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "C64"}
_CODES: Final = {name: code for code, name in CODES.items() if name and code not in _RECENT}
# dtypes without a code of their own: the code, and how many of it make one element
_PARTS: Final = {"complex64": ("F32", 2), "complex128": ("F64", 2)}


def _stored(logical: str, shape: list[int]) -> tuple[str, list[int]]:
    """The format's dtype and shape for an array, of the same number of bytes."""
    if logical in _CODES:
        return _CODES[logical], shape
    if logical in _PARTS:
        code, parts = _PARTS[logical]
        return code, [*shape, parts]
    dtype = dtype_named(logical)
    if dtype.kind in "mM" and dtype.isnative:
        return "I64", shape
    return "U8", shape if dtype.itemsize == 1 else [*shape, dtype.itemsize]


def _element(logical: str) -> int:
    """The size of the format's elements for a dtype, to which its data are aligned."""
    code, _ = _stored(logical, [])
    return 1 if code == "U8" else dtype_named(logical).itemsize


def _write(
    file: BinaryIO,
    arrays: Mapping[str, Array],
    compress: bool,  # noqa: ARG001 - refused before
    tick: Tick | None,
) -> Written:
    records: Written = {}
    for name, array in arrays.items():
        if name == METADATA:
            message = "expected any other array name: the format keeps this one"
            raise SerializationError(about("NQX614", name, message))
        logical = logical_dtype(name, array.dtype)
        shape = list(array.shape)
        records[name] = {"dtype": logical, "shape": shape, "crc32": 0, "nbytes": array.nbytes}
        del array  # frees an array that is computed on access before the next one
    order = sorted(records, key=lambda name: (-_element(records[name]["dtype"]), name))
    stored = {name: _stored(records[name]["dtype"], records[name]["shape"]) for name in order}
    sizes = (records[name].pop("nbytes") for name in order)
    tensors = ((name, *stored[name], nbytes) for name, nbytes in zip(order, sizes, strict=True))
    text = header_of(tensors, alignment=ALIGNMENT)
    write_all(file, memoryview(text))
    position = len(text)
    for name in order:
        body = bytes_of(arrays[name])
        crc = write_checked(file, body, tick)
        records[name] |= {"crc32": crc, "offset": position, "nbytes": len(body)}
        position += len(body)
        del body
    return records


def header_of(
    tensors: Iterable[tuple[str, str, Sequence[int], int]],
    *,
    metadata: Mapping[str, str] = MappingProxyType({}),
    alignment: int = 8,
) -> bytes:
    """The start of a file: the header with its length, as the package writes it.

    Args:
        tensors: Name, code, shape and bytes of each tensor, in the order of their data.
        metadata: Free text by name.
        alignment: The first byte after the header is at a multiple of this.
    """
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    position = 0
    for name, code, shape, nbytes in tensors:
        end = position + nbytes
        header[name] = {"dtype": code, "shape": list(shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % alignment)
    if len(text) > _MOST_HEADER:
        message = f"expected a header of at most {_MOST_HEADER} bytes, got {len(text)}"
        raise SerializationError(message, code="NQX506")
    return len(text).to_bytes(8, "little") + text


class Tensor(NamedTuple):
    """The description of a tensor in the header; ``start`` and ``end`` are places in the file."""

    code: str
    shape: list[int]
    start: int
    end: int


class Header(NamedTuple):
    """The header of a file: its metadata, its tensors in their order, and the first byte of data."""

    metadata: dict[str, str]
    tensors: dict[str, Tensor]
    end: int


def header_end(start: bytes | memoryview, length: int) -> int:
    """The first byte after the header of a file.

    Args:
        start: At least the first eight bytes, if the file has as many.
        length: The size of the file.

    Raises:
        IntegrityError: The file ends before that, or the header is too large.
    """
    size = int.from_bytes(start[:8], "little")
    if min(len(start), length) < 8 or size > length - 8:
        message = "expected a whole safetensors file, got one that ends inside its header"
        raise damaged(message)
    if size > _MOST_HEADER:
        message = f"expected a header of at most {_MOST_HEADER} bytes, got {size}"
        raise IntegrityError(message, code="NQX506")
    return 8 + size


@collector_paused()
def read_header(start: memoryview, length: int) -> Header:
    """The header of a file, after checking every number in it.

    Args:
        start: The file, or as many of its bytes as :func:`header_end` gives.
        length: The size of the file.

    Raises:
        IntegrityError: The header cannot be read, or does not agree with the file: all problems.
    """
    data = header_end(start, length)
    text = bytes(start[8:data]).rstrip(b" ")
    try:
        header = parse_manifest(text, limits=Limits(manifest_bytes=_MOST_HEADER, depth=2))
    except SerializationError as error:
        message = "expected the header of a safetensors file, got other text"
        reason = error.diagnostics[0].message
        raise damaged(f"{message}\n{reason}") from None
    metadata = header.pop(METADATA, {})
    found = Findings()
    if type(metadata) is not dict or any(type(text) is not str for text in metadata.values()):
        message = f"expected text by name in {METADATA}, got something else"
        found.add("NQX408", "", message)
        metadata = {}
    tensors: dict[str, Tensor] = {}
    for name, item in header.items():
        tensor = _tensor(item, data)
        if tensor is None:
            message = "expected dtype, shape and data_offsets of a tensor, got something else"
            found.add("NQX408", ("arrays", name), message)
        else:
            tensors[name] = tensor
        if found.full:
            break
    free = data
    for name, tensor in sorted(tensors.items(), key=lambda pair: pair[1][2:]):
        if tensor.start != free or not free <= tensor.end <= length:
            got = f"got them from {tensor.start - data} to {tensor.end - data}"
            message = f"expected data from byte {free - data} up to at most {length - data}, {got}"
            found.add("NQX408", ("arrays", name), message)
        free = max(free, tensor.end)
        if found.full:
            break
    if free != length and not found:
        message = (
            f"expected {free - data} bytes of data in the safetensors file, got {length - data}"
        )
        found.add("NQX408", "", message)
    if found:
        raise IntegrityError(found)
    return Header(metadata, tensors, data)


def _index(view: memoryview) -> dict[str, Tensor]:
    return read_header(view, len(view)).tensors


def _tensor(item: Any, data: int) -> Tensor | None:
    """A tensor as the header describes it; its data begin after byte ``data``."""
    if type(item) is not dict or item.keys() != {"dtype", "shape", "data_offsets"}:
        return None
    code, shape, offsets = item["dtype"], item["shape"], item["data_offsets"]
    if type(code) is str and _is_sizes(shape) and _is_sizes(offsets) and len(offsets) == 2:
        return Tensor(code, shape, data + offsets[0], data + offsets[1])
    return None


def _is_sizes(value: Any) -> bool:
    return type(value) is list and all(type(n) is int and n >= 0 for n in value)


def _entry(_: memoryview, tensor: Tensor, record: Mapping[str, Any]) -> Entry:
    """The entry of a tensor that agrees with its record."""
    logical, shape = record["dtype"], record["shape"]
    dtype = dtype_named(logical)
    code, stored = _stored(logical, shape)
    if tensor.code != code:
        message = f"expected {logical} stored as {code}, got {tensor.code}"
        raise IntegrityError(message, code="NQX411")
    if tensor.shape != stored:
        message = f"expected {logical}{shape} stored as {code}{stored}, got {tensor.shape}"
        raise IntegrityError(message, code="NQX412")
    require_possible(shape, dtype.itemsize)
    nbytes = prod(shape) * dtype.itemsize
    require_nbytes(record, nbytes, tensor.end - tensor.start)
    offset = record.get("offset", tensor.start)
    if offset != tensor.start:
        message = f"expected data at byte {offset}, got them at byte {tensor.start}"
        raise damaged(message)
    return Entry(dtype, tuple(shape), tensor.start, nbytes, record.get("crc32"))


SAFETENSORS: Final = file_store(
    FileFormat(write=_write, index=_index, entry=_entry),
    name="safetensors",
    suffix="safetensors",
    compression="never",
    streams=False,
)
