"""The format ``safetensors``: one file, or a folder of shards with an index, as Hugging Face writes them; needs no package.

As a store it maps logical dtypes to those of the format. A dtype without a name there is stored as another one of the same size
(complex numbers as pairs of floats, dates as int64, text and small floats as bytes); the record has the logical dtype. The
format allows no gaps, so arrays are sorted by element size to stay aligned.

Foreign files are mapped: opening one reads its header, and an array is a view. Written ones have the order and the padding that
the package ``safetensors`` gives them, so that its own files come out bit by bit;
:attr:`~neuralqx_struct.formats.table.ForeignFile.form` keeps the headers of others.

Example:
    >>> import io, numpy as np
    >>> file = io.BytesIO()
    >>> records = SAFETENSORS_STORE.write(file, {"w": np.array([1 + 2j])})
    >>> SAFETENSORS_STORE.read(memoryview(file.getvalue()), records)["w"]
    array([1.+2.j])
    >>> import tempfile
    >>> from neuralqx_struct import formats
    >>> path = formats.write(f"{tempfile.mkdtemp()}/m.safetensors", "safetensors", {"w": np.ones(2)})
    >>> with formats.opened(path) as file:
    ...     file.arrays["w"].read()
    array([1., 1.])
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, cast

from neuralqx_struct.dtypes import bytes_of, dtype_named
from neuralqx_struct.errors import Diagnostic, IntegrityError, SerializationError, StructError
from neuralqx_struct.formats.archive import ALIGNMENT, damaged
from neuralqx_struct.formats.entries import FileFormat
from neuralqx_struct.formats.files import file_store
from neuralqx_struct.formats.ranges import Ranges, StoredArray
from neuralqx_struct.formats.shards import (
    INDEX,
    SUFFIX,
    beside,
    index_of,
    read_index,
    require_small,
    single_or_index,
)
from neuralqx_struct.formats.store import (
    Tick,
    Written,
    about,
    logical_dtype,
    require_nbytes,
    require_possible,
)
from neuralqx_struct.formats.table import (
    Candidate,
    ForeignFile,
    Format,
    Reading,
    Writing,
    arrays_of,
    checked,
    ranges_of,
)
from neuralqx_struct.manifest import (
    MOST_FINDINGS,
    Findings,
    Limits,
    collector_paused,
    raise_findings,
)
from neuralqx_struct.manifest.payload import ForeignArray
from neuralqx_struct.manifest.text import parse_manifest
from neuralqx_struct.places.checksums import write_all, write_checked
from neuralqx_struct.places.requests import Range
from neuralqx_struct.places.urls import Place

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

METADATA: Final = "__metadata__"
_METADATA_KEY: Final = "%5F_metadata__"  # of an array with that name
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
_OF_DTYPE: Final = {logical: code for code, logical in CODES.items() if logical}
_KNOWN: Final = f"a dtype among {', '.join(_OF_DTYPE.values())}"
_CONVERT: Final = "convert the array to one of these with the program that wrote the file"
_RESTORE: Final = "restore the file from a copy, or write it again with the program that made it"
_ORDER: Final = {code: place for place, code in enumerate(CODES)}


# Headers and data


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


def _write_tensors(
    file: BinaryIO, header: bytes, arrays: Iterable[Array], tick: Tick | None = None
) -> Iterator[tuple[int, int]]:
    """Writes a header and the data of arrays; yields the size and the checksum of each."""
    write_all(file, memoryview(header))
    for array in arrays:
        body = bytes_of(array)
        del array  # frees an array that is computed on access before the next one
        written = len(body), write_checked(file, body, tick)
        del body
        yield written


# The store


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


def _write_store(
    file: BinaryIO,
    arrays: Mapping[str, Array],
    compress: bool,  # noqa: ARG001 - refused before
    tick: Tick | None,
) -> Written:
    if METADATA in arrays and _METADATA_KEY in arrays:
        message = f"expected no arrays named both {METADATA} and this, got both"
        raise SerializationError(about("NQX614", _METADATA_KEY, message))
    records: Written = {}
    for name, array in arrays.items():
        logical = logical_dtype(name, array.dtype)
        shape = list(array.shape)
        records[name] = {"dtype": logical, "shape": shape, "crc32": 0, "nbytes": array.nbytes}
        del array  # frees an array that is computed on access before the next one
    order = sorted(records, key=lambda name: (-_element(records[name]["dtype"]), name))
    stored = {name: _stored(records[name]["dtype"], records[name]["shape"]) for name in order}
    keys = _keys(order)
    sizes = (records[name].pop("nbytes") for name in order)
    tensors = ((keys[name], *stored[name], size) for name, size in zip(order, sizes, strict=True))
    text = header_of(tensors, alignment=ALIGNMENT)
    position = len(text)
    written = _write_tensors(file, text, (arrays[name] for name in order), tick)
    for name, (nbytes, crc) in zip(order, written, strict=True):
        records[name] |= {"crc32": crc, "offset": position, "nbytes": nbytes}
        position += nbytes
    return records


def _keys(names: Collection[str]) -> dict[str, str]:
    """The names of arrays in a file, which has another use for one of them."""
    return {name: _METADATA_KEY if name == METADATA else name for name in names}


def _name_of(key: str) -> str:
    return METADATA if key == _METADATA_KEY else key


def _index(view: memoryview) -> dict[str, Tensor]:
    return read_header(view, len(view)).tensors


def _agreed(_: memoryview, tensor: Tensor, record: Mapping[str, Any]) -> StoredArray:
    """The array of a tensor that agrees with its record."""
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
    place = Range(tensor.start, tensor.end)
    return StoredArray(logical, tuple(shape), place, record.get("crc32"))


SAFETENSORS_STORE: Final = file_store(
    FileFormat(write=_write_store, index=_index, agreed=_agreed, keys=_keys, name=_name_of),
    name="safetensors",
    suffix="safetensors",
    compression="never",
)


# Foreign files


def _recognises(found: Candidate) -> bool:
    if found.names is not None:
        return any(name.endswith((SUFFIX, INDEX)) for name in found.names)
    if found.path.name.endswith((SUFFIX, INDEX)):
        return True
    header = int.from_bytes(found.start[:8], "little")
    return found.start[8:9] == b"{" and header <= found.size - 8


def _opened(path: Place, reading: Reading) -> ForeignFile:  # noqa: ARG001 - it has no nested names
    name, file = single_or_index(path)
    if name.endswith(INDEX):
        return _opened_shards(path, name, file)
    data, header = _header(file)

    def form() -> dict[str, Any]:
        text = _unusual(data, header)
        return {} if text is None else {"header": text}

    return ForeignFile(
        path=str(path),
        format=SAFETENSORS.name,
        arrays=_arrays(data, header),
        metadata=header.metadata,
        form=form,
        check=_unchecked,
    )


def _unchecked(_: str) -> None:
    """The damage of an array: none, as the format has no checksums, and sizes are checked by now."""


def _header(path: Place) -> tuple[Ranges, Header]:
    data = ranges_of(path)
    end = header_end(data.read(0, min(8, data.size)), data.size)
    return data, read_header(data.read(0, end), data.size)


def _opened_shards(path: Place, index_name: str, index_path: Place) -> ForeignFile:
    """The arrays of all files that an index names."""
    content = ranges_of(index_path)
    index = read_index(content.read(0, require_small(content.size)))
    folder = path if path.is_dir() else path.parent
    arrays: dict[str, ForeignArray] = {}
    metadata: dict[str, str] = {}
    read: dict[str, tuple[Ranges, Header]] = {}
    found: list[Diagnostic] = []
    for name in index.shards:
        if len(found) >= MOST_FINDINGS:
            break
        try:
            data, header = _header(beside(folder, name))
            own = _arrays(data, header)
        except StructError as error:
            found += error.in_file(str(folder / name)).diagnostics
            continue
        read[name] = data, header
        found += islice(index.differences(name, own), MOST_FINDINGS)
        arrays |= own
        metadata |= header.metadata
    raise_findings(found)

    def form() -> dict[str, Any]:
        texts = {name: _unusual(*each, metadata) for name, each in read.items()}
        return {
            "index": index.text,
            "name": index_name,
            "nbytes": sum(array.nbytes for array in arrays.values()),
            "headers": {name: text for name, text in texts.items() if text is not None},
        }

    return ForeignFile(
        path=str(path),
        format=SAFETENSORS.name,
        arrays=arrays,
        metadata=metadata,
        form=form,
        check=lambda _: (
            None
        ),  # the format has no checksums; all sizes and places are checked by now
    )


def _unusual(data: Ranges, header: Header, metadata: Mapping[str, str] | None = None) -> str | None:
    """The text of a header that differs from the one that would be written for the same arrays."""
    text = bytes(data.read(0, header.end))
    sized = ((name, t.code, t.shape, t.end - t.start) for name, t in header.tensors.items())
    if text == _usual(sized, header.metadata if metadata is None else metadata):
        return None
    return text[8:].decode()


def _usual(
    tensors: Iterable[tuple[str, str, Iterable[int], int]], metadata: Mapping[str, str]
) -> bytes:
    """The start of a file with these tensors, in the order of the package: the largest dtypes first, then by name."""
    ordered = sorted(tensors, key=lambda tensor: (-_ORDER.get(tensor[1], 0), tensor[0]))
    sized = [(name, code, [*shape], nbytes) for name, code, shape, nbytes in ordered]
    return header_of(sized, metadata=metadata)


@collector_paused()
def _arrays(data: Ranges, header: Header) -> dict[str, ForeignArray]:
    """The arrays of one file, in the order of its header.

    Raises:
        IntegrityError: The sizes of some do not agree with their dtypes and shapes: all problems.
    """
    found = Findings()
    arrays: dict[str, StoredArray] = {}
    for name, tensor in header.tensors.items():
        code, shape, start, end = tensor
        logical = CODES.get(code)
        arrays[name] = StoredArray(logical or code, tuple(shape), Range(start, end))
        try:
            if logical is not None:
                _require_size(tensor, dtype_named(logical).itemsize)
        except IntegrityError as error:
            found.add(error.code, ("arrays", name), error.diagnostics[0].message, _RESTORE)
            if found.full:
                break
    if found:
        raise IntegrityError(found)
    return arrays_of(data, arrays, _KNOWN, _CONVERT)


def _require_size(tensor: Tensor, itemsize: int) -> None:
    """Checks that the data of a tensor have the size of its shape."""
    code, shape, start, end = tensor
    held = end - start
    if held and len(shape) <= 32 and prod(shape) * itemsize == held:
        return
    require_possible(shape, itemsize)
    nbytes = prod(shape) * itemsize
    if nbytes != held:
        message = f"expected {nbytes} bytes for {code}{shape}, got {held}"
        raise IntegrityError(message, code="NQX408")


def _folder(writing: Writing) -> bool:
    return writing.max_shard_size is not None or "index" in writing.form


def _write_foreign(stage: Path, arrays: Mapping[str, ForeignArray], writing: Writing) -> None:
    _require_writable(arrays)
    if not _folder(writing):
        _write_file(stage, arrays, writing.metadata, writing.form.get("header"))
        return
    index = index_of(arrays, writing.form, writing.max_shard_size)
    headers = writing.form.get("headers")
    headers = headers if isinstance(headers, Mapping) else {}
    for name, members in index.shards.items():
        own = {member: arrays[member] for member in members}
        _write_file(stage / name, own, writing.metadata, headers.get(name))
    if index.text:
        with (stage / index.name).open("xb") as file:
            file.write(index.text.encode())
            os.fsync(file.fileno())


def _require_writable(arrays: Mapping[str, ForeignArray]) -> None:
    """Checks that the format has names for all dtypes.

    Raises:
        SerializationError: It does not: all arrays.
    """
    found: list[Diagnostic] = []
    for name, array in arrays.items():
        if name == METADATA:
            message = "expected any other array name: the format keeps this one"
            found.append(about("NQX614", name, message))
        if array.dtype not in _OF_DTYPE:
            message = f"expected a dtype among {', '.join(_OF_DTYPE)}, got {array.dtype[:60]}"
            found.append(about("NQX411", name, message, "cast the array to one of these"))
    if found:
        raise SerializationError(found)


def _write_file(
    path: Path, arrays: Mapping[str, ForeignArray], metadata: Mapping[str, str], text: Any
) -> None:
    """Writes one file, with a header of this text if that describes these arrays."""
    sized = [(name, _OF_DTYPE[a.dtype], a.shape, a.nbytes) for name, a in arrays.items()]
    head = _usual(sized, metadata)
    nbytes = sum(array.nbytes for array in arrays.values())
    header = read_header(memoryview(head), len(head) + nbytes)
    given = _described(text, nbytes) if isinstance(text, str) else None
    if given is not None and _same(given[1], header):
        head, header = given
    places = sorted(header.tensors, key=lambda name: header.tensors[name][2:])
    with path.open("wb", buffering=0) as opened:
        file = cast("BinaryIO", opened)
        found = (checked(name, arrays[name]) for name in places)
        deque(_write_tensors(file, head, found), maxlen=0)
        os.fsync(file.fileno())


def _described(text: str, nbytes: int) -> tuple[bytes, Header] | None:
    """The start of a file with a header of this text; None if it does not fit the size of the data."""
    body = text.encode()
    head = len(body).to_bytes(8, "little") + body
    try:
        return head, read_header(memoryview(head), len(head) + nbytes)
    except IntegrityError:
        return None


def _same(given: Header, header: Header) -> bool:
    """True if two headers describe the same arrays, in whatever order."""

    def described(header: Header) -> dict[str, tuple[str, list[int]]]:
        return {name: (tensor.code, tensor.shape) for name, tensor in header.tensors.items()}

    return given.metadata == header.metadata and described(given) == described(header)


SAFETENSORS: Final = Format(
    name="safetensors",
    title="a safetensors file",
    suffix=SUFFIX,
    recognises=_recognises,
    opened=_opened,
    write=_write_foreign,
    folder=_folder,
    metadata=True,
    store=SAFETENSORS_STORE,
    whole=lambda names: any(name.endswith(INDEX) for name in names),
)
