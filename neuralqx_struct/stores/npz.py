"""The default store: an ordinary ``.npz`` that ``np.load`` and ``unzip`` read, with array data on 64-byte borders.

Owns ``.npy`` headers and their agreement with the records of a manifest. A dtype that ``.npy`` cannot express is stored as
unsigned integers of its size; the record has the logical dtype. Reads neuraLQX's and numpy's own files as well:
deflated, in Fortran order, with raw descriptors. Never unpickles. Zip itself is ``archive.py``'s.

Example:
    >>> import io, numpy as np
    >>> file = io.BytesIO()
    >>> records = write(file, {"w": np.arange(3.0)})
    >>> read(memoryview(file.getvalue()), records)["w"]
    array([0., 1., 2.])
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal, NamedTuple, cast

from neuralqx_struct.errors import Diagnostic, IntegrityError, SerializationError, StructError, UntrustedError
from neuralqx_struct.manifest import collector_paused
from neuralqx_struct.payload import ML_DTYPES, dtype_name, dtype_named, raise_findings, storage_dtype
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
from neuralqx_struct.stores.archive import Member, inflated_start, leave_a_folder, read_directory
from neuralqx_struct.stores.archive_writer import ArchiveWriter
from neuralqx_struct.stores.zip_records import STORED

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

__all__ = ["FILE", "FOLDER", "members", "read", "verify", "write"]

FILE: Final = "arrays.npz"
FOLDER: Final = False
_SMALL = 64 << 10
_MAGIC: Final = b"\x93NUMPY"
_HEADER: Final = re.compile(
    rb"\{'descr': '(?P<descr>[^']{1,40})', 'fortran_order': (?P<fortran>True|False), "
    rb"'shape': \((?P<shape>(?:\d{1,20}(?:, ?\d{1,20})*,?)?)\), \} *\n"  # one way to match each, whatever stands there
)
# The parts of a member's name that lead out of a folder.
_SPECIAL: Final = re.compile(r"(?:(?<=/)|^)\.{0,2}(?=/|$)|[\\:\x00-\x1f\x7f]")


@lru_cache(maxsize=4096)
def _header(descr: str, shape: tuple[int, ...]) -> bytes:
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}".encode("latin1")
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return _MAGIC + struct.pack("<BBH", 1, 0, len(text)) + text


class _Parsed(NamedTuple):
    descr: str
    shape: tuple[int, ...]
    order: Literal["C", "F"]
    size: int


def _parse_header(data: memoryview) -> _Parsed:
    """What a ``.npy`` header says; it is matched, never evaluated.

    Raises:
        IntegrityError: These are not the bytes of a ``.npy`` file.
        UntrustedError: It describes Python objects or records.
    """
    start = bytes(data[:12])
    if len(start) < 12 or start[:6] != _MAGIC or start[6] not in (1, 2, 3):
        raise IntegrityError("expected a .npy file, got other bytes", code="NQX408")
    begin = 10 if start[6] == 1 else 12
    size = begin + (struct.unpack_from("<H" if begin == 10 else "<I", start, 8)[0])
    text = bytes(data[begin : min(size, 1 << 16)])
    found = _HEADER.fullmatch(text)
    if found is None or b"O" in found["descr"]:
        if b"O'" in text or b"'descr': [" in text:
            message = "expected an array of numbers, got Python objects or records"
            raise UntrustedError(
                message, code="NQX502", hint="reading them would run what the file says; this never does"
            )
        raise IntegrityError("expected a .npy header as numpy writes it, got another", code="NQX408")
    shape = tuple(int(part) for part in found["shape"].decode().replace(",", " ").split())
    return _Parsed(found["descr"].decode("latin1"), shape, "F" if found["fortran"] == b"True" else "C", size)


def _member_names(names: Collection[str]) -> dict[str, str]:
    """The zip members of arrays: never a name that leads out of a folder where somebody unpacks the file."""
    if not leave_a_folder(names):
        return {name: f"{name}.npy" for name in names}
    return {name: f"{_SPECIAL.sub(_escaped, name)}.npy" for name in names}


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"%{ord(char):02X}" for char in found.group()) or "%00"


# ---------------------------------------------------------------------------------------------------------------------


def write(
    target: Path | BinaryIO, arrays: Mapping[str, Array], *, compress: bool = False, tick: Tick | None = None
) -> dict[str, dict[str, Any]]:
    """Write arrays one after the other; see :class:`~neuralqx_struct.stores.ArrayStore`.

    Raises:
        SerializationError: A dtype cannot be stored, or two arrays would have one name.
    """
    if isinstance(target, Path):
        with target.open("xb", buffering=0) as file:
            records = write(cast("BinaryIO", file), arrays, compress=compress, tick=tick)
            os.fsync(file.fileno())
        return records
    archive = ArchiveWriter(target, tick=tick)
    records = {}
    known: dict[np.dtype[Any], tuple[str, str]] = {}
    member_names = _member_names(arrays)
    with collector_paused():
        for name, array in arrays.items():
            dtype = array.dtype
            if dtype not in known:
                known[dtype] = _named(name, dtype)
            logical, descr = known[dtype]
            shape = array.shape
            written = archive.add(member_names[name], _body(array), _header(descr, shape), compress=compress)
            record: dict[str, Any] = {"dtype": logical, "shape": list(shape), "crc32": written.crc32}
            if not compress:
                record["offset"] = written.offset
            record["nbytes"] = array.nbytes
            records[name] = record
            del array  # it may have been computed to be written: gone before the next one is
        archive.close()
    return records


def _named(name: str, dtype: np.dtype[Any]) -> tuple[str, str]:
    try:
        logical = dtype_name(dtype)
    except SerializationError as error:
        raise SerializationError(about(d.code, name, d.message, d.hint) for d in error.diagnostics) from error
    return logical, storage_dtype(logical)


def _body(array: Array) -> bytes | memoryview:
    """The data in C order; copied only where they are small or lie otherwise."""
    if array.nbytes < _SMALL:
        return array.tobytes()
    import numpy as np

    return np.asarray(array, order="C").reshape(-1).view(np.uint8).data


# ---------------------------------------------------------------------------------------------------------------------


def read(source: Source, records: Records, access: Access = WHOLE) -> FileArrays:
    """Open the arrays of a file; see :class:`~neuralqx_struct.stores.ArrayStore`."""
    arrays, found, _ = _survey(source, records, access)
    raise_findings(found, str(source) if isinstance(source, Path) else FILE)
    return arrays


def verify(source: Source, records: Records, access: Access = WHOLE) -> list[Diagnostic]:
    """Everything that is wrong with the file; see :class:`~neuralqx_struct.stores.ArrayStore`."""
    access = replace(access, verify=True, mmap=True)
    arrays, found, found_members = _survey(source, records, access)
    if any(not d.path for d in found):
        arrays, lost = _by_records(source, records, access)
        found += lost
    for name in arrays:
        if (problem := arrays.verify(name)) is not None:
            found.append(problem)
        elif name in found_members and arrays.verify(name, found_members[name].crc32) is not None:
            message = "expected the checksum in the zip directory to be that of the member, got another"
            found.append(about("NQX407", name, message, "np.load and unzip refuse this array"))
    return found


def _by_records(source: Source, records: Records, access: Access) -> tuple[FileArrays, list[Diagnostic]]:
    """The arrays where their records say that they lie: what else is damaged in a file whose own directory is broken."""
    try:
        view, _ = opened(source, mmap=True)
    except StructError:
        view = memoryview(b"")
    entries: dict[str, Entry] = {}
    lost: list[Diagnostic] = []
    for name, record in records.items():
        if "offset" not in record or "crc32" not in record:
            continue
        try:
            kind, at = _kind(record["dtype"], tuple(record["shape"])), record["offset"]
        except StructError as error:
            lost += [about(d.code, name, d.message, d.hint) for d in error.diagnostics]
            continue
        if at + kind.nbytes <= len(view):
            entries[name] = Entry(kind.dtype, kind.shape, at, kind.nbytes, record["crc32"])
        else:
            message = f"expected {kind.nbytes} bytes at byte {at}, got a file of {len(view)}"
            lost.append(about("NQX408", name, message))
    return FileArrays(view, None, entries, access), lost


def members(source: Source) -> tuple[str, ...]:
    """The names of the zip members, as the file says by itself."""
    view, _ = opened(source, mmap=True)
    return tuple(member.name.removesuffix(".npy") for member in read_directory(view))


def _survey(source: Source, records: Records, access: Access) -> tuple[FileArrays, list[Diagnostic], dict[str, Member]]:
    """Compare the structure of a file with the records, reading no array.

    Returns:
        The arrays about which nothing is wrong, the findings, and the zip members by array name.
    """
    found: list[Diagnostic] = []
    entries: dict[str, Entry] = {}
    used: dict[str, Member] = {}
    view, private = memoryview(b""), None
    try:
        view, private = opened(source, mmap=access.mmap)
        with collector_paused():
            unclaimed = {member.name: member for member in read_directory(view)}
            member_names = _member_names(records)
            for name, record in records.items():
                member = unclaimed.pop(member_names[name], None)
                if member is None:
                    found.append(about("NQX409", name, "expected an array of this name in the file, got none"))
                    continue
                try:
                    entries[name] = _entry(view, member, record)
                    used[name] = member
                except StructError as error:
                    found += [about(d.code, name, d.message, d.hint) for d in error.diagnostics]
        for member_name in _member_names(access.superseded if unclaimed else ()).values():
            unclaimed.pop(member_name, None)
        hint = "the file was changed by hand, or the manifest belongs to another one"
        found += [
            about("NQX410", name.removesuffix(".npy"), "expected a record for every array in the file, got none", hint)
            for name in unclaimed
        ]
    except StructError as error:
        found += error.diagnostics
    return FileArrays(view, private, entries, access), found, used


class _Kind(NamedTuple):
    """What the arrays of one dtype and shape have in common."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    nbytes: int
    head: bytes


@lru_cache(maxsize=4096)
def _kind(logical: str, shape: tuple[int, ...]) -> _Kind:
    dtype = dtype_named(logical)
    nbytes = prod(shape) * dtype.itemsize
    if nbytes == 0 or len(shape) > 32:  # else its bytes would have to be in the file
        require_possible(shape, dtype.itemsize)
    return _Kind(dtype, shape, nbytes, _header(storage_dtype(logical), shape))


def _entry(view: memoryview, member: Member, record: Mapping[str, Any]) -> Entry:
    """Where the array of one member lies, once its header agrees with its record."""
    logical = record["dtype"]
    dtype, shape, nbytes, head = _kind(logical, tuple(record["shape"]))
    lead = len(head)
    order: Literal["C", "F"] = "C"
    _, begin, size, length, crc, method = member
    stored = method == STORED
    if (view[begin : begin + lead].tobytes() if stored else inflated_start(view[begin : begin + length], lead)) != head:
        data = view[begin : begin + length]
        parsed = _parse_header(data if stored else memoryview(inflated_start(data, 1 << 16)))
        _compare(parsed, logical, dtype, shape)
        lead, order = parsed.size, parsed.order
    if size != lead + nbytes or record.get("nbytes", nbytes) != nbytes:
        declared = record.get("nbytes", nbytes)
        got = f"{size - lead} in the file and {declared} in the record"
        grown = not stored and size > lead + nbytes
        raise (UntrustedError if grown else IntegrityError)(
            f"expected {nbytes} bytes for {logical}{list(shape)}, got {got}", code="NQX505" if grown else "NQX408"
        )
    at = begin + lead
    if record.get("offset", at) != at or (not stored and "offset" in record):
        where = f"at byte {at}" if stored else "deflated"
        raise IntegrityError(f"expected data at byte {record['offset']}, got them {where}", code="NQX408")
    own = record.get("crc32")
    known = own is not None
    packed = None if stored else (begin, length, size)
    start = at if stored else lead
    return Entry._make((dtype, shape, start, nbytes, own if known else crc, lead, not known, order, packed))


def _compare(parsed: _Parsed, logical: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Raise unless a header that differs from ours says the same in other words, or is neuraLQX's raw form of it."""
    known = {storage_dtype(logical), dtype.str}
    if logical in ML_DTYPES:
        known |= {f"{order}{kind}{dtype.itemsize}" for order in "<|" for kind in "Vfiuc"}
    if parsed.descr not in known:
        raise IntegrityError(
            f"expected {logical} stored as {storage_dtype(logical)}, got {parsed.descr}", code="NQX411"
        )
    if parsed.shape != shape:
        raise IntegrityError(f"expected {logical}{list(shape)}, got {logical}{list(parsed.shape)}", code="NQX412")
