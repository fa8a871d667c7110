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
from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from neuralqx_struct.dtypes import dtype_named
from neuralqx_struct.errors import IntegrityError, SerializationError
from neuralqx_struct.manifest import Limits
from neuralqx_struct.manifest.text import parse_manifest
from neuralqx_struct.stores.archive import ALIGNMENT, damaged
from neuralqx_struct.stores.files import Entry, FileFormat, file_store
from neuralqx_struct.stores.store import (
    Tick,
    Written,
    about,
    bytes_of,
    logical_dtype,
    require_nbytes,
    require_possible,
    write_all,
    write_checked,
)

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_MOST_HEADER = 100_000_000  # the limit of the reference implementation
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
        if name == "__metadata__":
            message = "expected any other array name: the format keeps this one"
            raise SerializationError(about("NQX614", name, message))
        logical = logical_dtype(name, array.dtype)
        shape = list(array.shape)
        records[name] = {"dtype": logical, "shape": shape, "crc32": 0, "nbytes": array.nbytes}
        del array  # frees an array that is computed on access before the next one
    order = sorted(records, key=lambda name: (-_element(records[name]["dtype"]), name))
    header: dict[str, Any] = {}
    position = 0
    for name in order:
        record = records[name]
        code, shape = _stored(record["dtype"], record["shape"])
        end = position + record.pop("nbytes")
        header[name] = {"dtype": code, "shape": shape, "data_offsets": [position, end]}
        position = end
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    if len(text) > _MOST_HEADER:
        message = f"expected a header of at most {_MOST_HEADER} bytes, got {len(text)}"
        raise SerializationError(message, code="NQX506")
    write_all(file, memoryview(len(text).to_bytes(8, "little") + text))
    position = 8 + len(text)
    for name in order:
        body = bytes_of(arrays[name])
        crc = write_checked(file, body, tick)
        records[name] |= {"crc32": crc, "offset": position, "nbytes": len(body)}
        position += len(body)
        del body
    return records


class _Tensor(NamedTuple):
    """The description of a tensor in the header; ``start`` and ``end`` are places in the file."""

    code: str
    shape: list[int]
    start: int
    end: int


def _index(view: memoryview) -> dict[str, _Tensor]:
    """The tensors that the header describes, after checking every number in it."""
    size = int.from_bytes(view[:8], "little")
    if len(view) < 8 or size > len(view) - 8:
        message = "expected a whole safetensors file, got one that ends inside its header"
        raise damaged(message)
    if size > _MOST_HEADER:
        message = f"expected a header of at most {_MOST_HEADER} bytes, got {size}"
        raise IntegrityError(message, code="NQX506")
    text = bytes(view[8 : 8 + size]).rstrip(b" ")
    try:
        header = parse_manifest(text, limits=Limits(manifest_bytes=_MOST_HEADER, depth=2))
    except SerializationError as error:
        message = "expected the header of a safetensors file, got other text"
        reason = error.diagnostics[0].message
        raise damaged(f"{message}\n{reason}") from None
    header.pop("__metadata__", None)
    data = 8 + size
    tensors = {name: _tensor(name, item, data) for name, item in header.items()}
    free = data
    for name, tensor in sorted(tensors.items(), key=lambda pair: pair[1][2:]):
        if tensor.start != free or not free <= tensor.end <= len(view):
            got = f"got them from {tensor.start - data} to {tensor.end - data}"
            message = (
                f"expected data from byte {free - data} up to at most {len(view) - data}, {got}"
            )
            raise IntegrityError(about("NQX408", name, message))
        free = tensor.end
    if free != len(view):
        message = (
            f"expected {free - data} bytes of data in the safetensors file, got {len(view) - data}"
        )
        raise damaged(message)
    return tensors


def _tensor(name: str, item: Any, data: int) -> _Tensor:
    """A tensor as the header describes it; its data begin after byte ``data``."""
    if type(item) is dict and item.keys() == {"dtype", "shape", "data_offsets"}:
        code, shape, offsets = item["dtype"], item["shape"], item["data_offsets"]
        if type(code) is str and _is_sizes(shape) and _is_sizes(offsets) and len(offsets) == 2:
            return _Tensor(code, shape, data + offsets[0], data + offsets[1])
    message = "expected dtype, shape and data_offsets of a tensor, got something else"
    raise IntegrityError(about("NQX408", name, message))


def _is_sizes(value: Any) -> bool:
    return type(value) is list and all(type(n) is int and n >= 0 for n in value)


def _entry(_: memoryview, tensor: _Tensor, record: Mapping[str, Any]) -> Entry:
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
