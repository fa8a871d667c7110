"""The store ``npz``: a plain ``.npz`` file that ``np.load`` and ``unzip`` read, with data on 64-byte boundaries.

Handles ``.npy`` headers and compares them with the records of a manifest. A dtype that ``.npy`` cannot
express is stored as unsigned integers of its size; the record has the logical dtype. Files of neuraLQX
and numpy are read too: deflated, in Fortran order, with raw descriptors. Nothing is unpickled.

Example:
    >>> import io, numpy as np
    >>> file = io.BytesIO()
    >>> records = NPZ.write(file, {"w": np.arange(3.0)})
    >>> NPZ.read(memoryview(file.getvalue()), records)["w"]
    array([0., 1., 2.])
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Mapping
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal, NamedTuple

from neuralqx_struct.dtypes import ML_DTYPES, dtype_named, storage_dtype
from neuralqx_struct.errors import IntegrityError, SerializationError, UntrustedError
from neuralqx_struct.formats.archive import (
    STORED,
    Member,
    damaged,
    inflated_start,
    leave_a_folder,
    read_directory,
)
from neuralqx_struct.formats.archive_writer import ArchiveWriter
from neuralqx_struct.formats.entries import Entry, FileFormat
from neuralqx_struct.formats.files import file_store
from neuralqx_struct.formats.store import (
    Tick,
    Written,
    bytes_of,
    logical_dtype,
    require_possible,
)
from neuralqx_struct.manifest import collector_paused

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_SMALL = 64 << 10
MAGIC: Final = b"\x93NUMPY"
#: Where the text of a header begins, by version, and the format of its length, which is at byte 8.
_LENGTHS: Final = {1: (10, "<H"), 2: (12, "<I"), 3: (12, "<I")}
# Each part matches in one way only, so that no input makes the match slow.
_HEADER: Final = re.compile(
    rb"\{'descr': '(?P<descr>[^']{1,40})', 'fortran_order': (?P<fortran>True|False), "
    rb"'shape': \((?P<shape>(?:\d{1,20}(?:, ?\d{1,20})*,?)?)\), \} *\n"
)
# The parts of a member's name that lead out of a folder.
_SPECIAL: Final = re.compile(r"(?:(?<=/)|^)\.{0,2}(?=/|\Z)|[\\:\x00-\x1f\x7f]")


@lru_cache(maxsize=4096)
def _header(descr: str, shape: tuple[int, ...]) -> bytes:
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}".encode("latin1")
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return MAGIC + struct.pack("<BBH", 1, 0, len(text)) + text


class Parsed(NamedTuple):
    """The header of a ``.npy`` file; ``size`` is the place of the data after it."""

    descr: str
    shape: tuple[int, ...]
    order: Literal["C", "F"]
    size: int


def header_size(data: memoryview) -> int:
    """The size of the ``.npy`` header that begins some bytes.

    Raises:
        IntegrityError: These are not the bytes of a ``.npy`` file.
    """
    start = bytes(data[:12])
    if len(start) < 12 or start[:6] != MAGIC or start[6] not in (1, 2, 3):
        raise damaged("expected a .npy file, got other bytes")
    begin, length = _LENGTHS[start[6]]
    return begin + int(struct.unpack_from(length, start, 8)[0])


def parse_header(data: memoryview) -> Parsed:
    """Parses a ``.npy`` header by a pattern; never evaluates it.

    Raises:
        IntegrityError: These are not the bytes of a ``.npy`` file.
        UntrustedError: It describes Python objects or records.
    """
    size = header_size(data)
    begin, _ = _LENGTHS[data[6]]
    text = bytes(data[begin : min(size, 1 << 16)])
    found = _HEADER.fullmatch(text)
    if found is None or b"O" in found["descr"]:
        if found is not None or b"O'" in text or b"'descr': [" in text:
            message = "expected an array of numbers, got Python objects or records"
            hint = "reading them would run code of the file, which this library never does"
            raise UntrustedError(message, code="NQX502", hint=hint)
        message = "expected a .npy header as numpy writes it, got another"
        raise damaged(message)
    shape = tuple(map(int, re.findall(rb"\d+", found["shape"])))
    order: Literal["C", "F"] = "F" if found["fortran"] == b"True" else "C"
    return Parsed(found["descr"].decode("latin1"), shape, order, size)


def _member_names(names: Collection[str]) -> dict[str, str]:
    """The zip members of arrays; none of them leads out of a folder where the file is unpacked."""
    if not leave_a_folder(names):
        return {name: f"{name}.npy" for name in names}
    return {name: f"{_SPECIAL.sub(_escaped, name)}.npy" for name in names}


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"%{ord(char):02X}" for char in found.group()) or "%00"


def _write(
    file: BinaryIO, arrays: Mapping[str, Array], compress: bool, tick: Tick | None
) -> Written:
    return write_members(file, arrays, _member_names(arrays), compress=compress, tick=tick)


def write_members(
    file: BinaryIO,
    arrays: Mapping[str, Array],
    members: Mapping[str, str],
    *,
    compress: bool = False,
    tick: Tick | None = None,
) -> Written:
    """Writes a zip of ``.npy`` members and returns the records of the arrays.

    Args:
        file: The new file.
        arrays: The arrays by name, each taken once.
        members: The name of the member of each array.
        compress: Deflate the members.
        tick: Called with the number of further bytes that were written.
    """
    archive = ArchiveWriter(file, tick=tick)
    records: Written = {}
    known: dict[np.dtype[Any], tuple[str, str]] = {}
    with collector_paused():
        for name, array in arrays.items():
            dtype = array.dtype
            if dtype not in known:
                logical = logical_dtype(name, dtype)
                known[dtype] = logical, storage_dtype(logical)
            logical, descr = known[dtype]
            shape = array.shape
            head = _header(descr, shape)
            offset, crc = archive.add(members[name], _body(array), head, compress=compress)
            record = {"dtype": logical, "shape": list(shape), "crc32": crc}
            if not compress:
                record["offset"] = offset
            record["nbytes"] = array.nbytes
            records[name] = record
            del array  # frees an array that was computed for this write before the next one
        archive.close()
    return records


def _body(array: Array) -> bytes | memoryview:
    """The data in C order; copies small arrays, which are gathered, and those in another order."""
    return array.tobytes() if array.nbytes < _SMALL else bytes_of(array)


def _index(view: memoryview) -> dict[str, Member]:
    return {member.name: member for member in read_directory(view)}


class _Kind(NamedTuple):
    """Facts shared by the arrays of one dtype and shape."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    nbytes: int
    head: bytes


@lru_cache(maxsize=4096)
def _kind(logical: str, shape: tuple[int, ...]) -> _Kind:
    dtype = dtype_named(logical)
    nbytes = prod(shape) * dtype.itemsize
    if nbytes == 0 or len(shape) > 32:  # any other shape is limited by the size of the file
        require_possible(shape, dtype.itemsize)
    return _Kind(dtype, shape, nbytes, _header(storage_dtype(logical), shape))


def _entry(view: memoryview, member: Member, record: Mapping[str, Any]) -> Entry:
    """The entry of a member whose ``.npy`` header agrees with its record."""
    logical = record["dtype"]
    kind = _kind(logical, tuple(record["shape"]))
    dtype, shape, nbytes, head = kind
    lead = len(head)
    order: Literal["C", "F"] = "C"
    _, begin, size, length, crc, method = member
    stored = method == STORED
    if stored:
        start = view[begin : begin + lead].tobytes()
    else:
        start = inflated_start(view[begin : begin + length], lead)
    if start != head:
        data = view[begin : begin + length]
        if not stored:
            data = memoryview(inflated_start(data, 1 << 16))
        parsed = parse_header(data)
        _compare(parsed, logical, kind)
        lead, order = parsed.size, parsed.order
    declared = record.get("nbytes", nbytes)
    if size != lead + nbytes or declared != nbytes:
        message = f"expected {nbytes} bytes for {logical}{list(shape)}, got {size - lead} in the file and {declared} in the record"
        if not stored and size > lead + nbytes:
            raise UntrustedError(message, code="NQX505")
        raise damaged(message)
    at = begin + lead
    offset = record.get("offset")
    if offset is not None and (offset != at or not stored):
        where = f"at byte {at}" if stored else "deflated"
        raise damaged(f"expected data at byte {offset}, got them {where}")
    foreign = "crc32" not in record  # zip's own checksum covers the header too
    crc = record.get("crc32", crc)
    if stored:
        return Entry(dtype, shape, at, nbytes, crc, lead, foreign, order)
    packed = (begin, length, size)
    return Entry(dtype, shape, lead, nbytes, crc, lead, foreign, order, packed)


def _located(view: memoryview, record: Mapping[str, Any]) -> Entry | None:
    """The entry of an array of ours, right behind its header; its checksum shows that its bytes are the right ones."""
    offset = record.get("offset")
    if offset is None or "crc32" not in record:
        return None
    try:
        dtype, shape, nbytes, head = _kind(record["dtype"], tuple(record["shape"]))
    except SerializationError:
        return None
    lead = len(head)
    fits = record.get("nbytes") == nbytes and lead <= offset <= len(view) - nbytes
    if not fits or view[offset - lead : offset] != head:
        return None
    return Entry(dtype, shape, offset, nbytes, record["crc32"], lead)


def _compare(parsed: Parsed, logical: str, kind: _Kind) -> None:
    """Checks a header that differs from ours: it may be the same in other words, or neuraLQX's raw form."""
    dtype = kind.dtype
    stored = storage_dtype(logical)
    known = {stored, dtype.str}
    if logical in ML_DTYPES:
        known |= {f"{order}{char}{dtype.itemsize}" for order in "<|" for char in "Vfiuc"}
    if parsed.descr not in known:
        message = f"expected {logical} stored as {stored}, got {parsed.descr}"
        raise IntegrityError(message, code="NQX411")
    if parsed.shape != kind.shape:
        message = f"expected {logical}{list(kind.shape)}, got {logical}{list(parsed.shape)}"
        raise IntegrityError(message, code="NQX412")


_FORMAT: Final = FileFormat(
    write=_write,
    index=_index,
    entry=_entry,
    keys=_member_names,
    name=lambda member: member.removesuffix(".npy"),
    locate=_located,
)


NPZ: Final = file_store(_FORMAT, name="npz", suffix="npz", compression="optional", streams=True)
