"""The format ``npz``: a zip of ``.npy`` members that ``np.load`` and ``unzip`` read; and ``npy``, one such member.

As a store it has data on 64-byte boundaries, and headers that agree with the records of a manifest. A dtype that ``.npy`` cannot
express is stored as unsigned integers of its size; the record has the logical dtype. Files of neuraLQX and numpy are read too:
deflated, in Fortran order, with raw descriptors. Stored members are mapped, deflated ones are expanded when they are
read; checksums are compared. Headers are parsed, and never evaluated; nothing is unpickled.

Example:
    >>> import io, numpy as np
    >>> file = io.BytesIO()
    >>> records = NPZ_STORE.write(file, {"w": np.arange(3.0)})
    >>> NPZ_STORE.read(memoryview(file.getvalue()), records)["w"]
    array([0., 1., 2.])
    >>> import tempfile
    >>> from neuralqx_struct import formats
    >>> path = Path(tempfile.mkdtemp(), "weights.npz")
    >>> np.savez(path, w=np.ones(2))
    >>> with formats.opened(path) as file:
    ...     file.format, file.arrays["w"].read()
    ('npz', array([1., 1.]))
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache, partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal, NamedTuple, cast

from neuralqx_struct.dtypes import ML_DTYPES, bytes_of, dtype_name, dtype_named, storage_dtype
from neuralqx_struct.errors import (
    READ_MORE,
    Diagnostic,
    IntegrityError,
    SerializationError,
    StructError,
    UntrustedError,
)
from neuralqx_struct.formats.archive import (
    STORED,
    Member,
    damaged,
    inflated_start,
    leave_a_folder,
    read_directory,
)
from neuralqx_struct.formats.archive_writer import ArchiveWriter
from neuralqx_struct.formats.entries import FileFormat
from neuralqx_struct.formats.files import FileArrays, file_store
from neuralqx_struct.formats.ranges import Ranges, StoredArray, View
from neuralqx_struct.formats.store import (
    Tick,
    Written,
    about,
    about_each,
    logical_dtype,
    require_possible,
)
from neuralqx_struct.formats.table import (
    MOST_EXPANSION,
    Candidate,
    ForeignFile,
    Format,
    Reading,
    Writing,
    arrays_of,
    checked,
    ranges_of,
)
from neuralqx_struct.manifest import MOST_FINDINGS, collector_paused, raise_findings
from neuralqx_struct.manifest.payload import ForeignArray, HeldArrays
from neuralqx_struct.places.requests import Range
from neuralqx_struct.places.urls import Place

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
_SUFFIX: Final = ".npy"
_USUAL_HEADER, _MOST_HEADER = 512, 1 << 16
_BEFORE_TEXT: Final = 12  # the most bytes of a header before its text
_MOST_EXTRA: Final = 128  # bytes between the names of members and their data, as writers align them
#: The name of the array of a ``.npy`` file, which has none: that of the first array without a name in ``np.savez``.
_ONLY: Final = "arr_0"
_KNOWN: Final = "a dtype whose name is in the file"
_NAME_IT: Final = "write the array again, as safetensors; if it was bfloat16, np.load(...)[name].view('bfloat16') is the array"


# Headers


@lru_cache(maxsize=4096)
def _header_bytes(descr: str, shape: tuple[int, ...]) -> bytes:
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


# The store


def _member_names(names: Collection[str]) -> dict[str, str]:
    """The zip members of arrays; none of them leads out of a folder where the file is unpacked."""
    if not leave_a_folder(names):
        return {name: f"{name}.npy" for name in names}
    return {name: f"{_SPECIAL.sub(_escaped, name)}.npy" for name in names}


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"%{ord(char):02X}" for char in found.group()) or "%00"


def _write_store(
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
            head = _header_bytes(descr, shape)
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
    return _Kind(dtype, shape, nbytes, _header_bytes(storage_dtype(logical), shape))


def _agreed(view: memoryview, member: Member, record: Mapping[str, Any]) -> StoredArray:
    """The array of a member whose ``.npy`` header agrees with its record."""
    logical = record["dtype"]
    kind = _kind(logical, tuple(record["shape"]))
    _, shape, nbytes, head = kind
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
    covered = lead if foreign else 0
    if stored:
        return StoredArray(logical, shape, Range(at, at + nbytes), crc, covered, order)
    packed = Range(begin, begin + length)
    return StoredArray(logical, shape, Range(lead, size), crc, covered, order, packed)


def _located(view: memoryview, record: Mapping[str, Any]) -> StoredArray | None:
    """An array of ours, right behind its header; its checksum shows that its bytes are the right ones."""
    offset = record.get("offset")
    if offset is None or "crc32" not in record:
        return None
    try:
        _, shape, nbytes, head = _kind(record["dtype"], tuple(record["shape"]))
    except SerializationError:
        return None
    lead = len(head)
    fits = record.get("nbytes") == nbytes and lead <= offset <= len(view) - nbytes
    if not fits or view[offset - lead : offset] != head:
        return None
    place = Range(offset, offset + nbytes)
    return StoredArray(record["dtype"], shape, place, record["crc32"])


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
    write=_write_store,
    index=_index,
    agreed=_agreed,
    keys=_member_names,
    name=lambda member: member.removesuffix(".npy"),
    locate=_located,
)


NPZ_STORE: Final = file_store(_FORMAT, name="npz", suffix="npz", compression="optional")

# Foreign files


def _recognises_npz(found: Candidate) -> bool:
    if found.path.name.endswith(NPZ.suffix) and found.names is None:
        return True
    length = int.from_bytes(found.start[26:28], "little")
    first = found.start[30 : 30 + length]
    return found.start[:4] == b"PK\3\4" and first.endswith(_SUFFIX.encode())


def _recognises_npy(found: Candidate) -> bool:
    if found.path.name.endswith(_SUFFIX) and found.names is None:
        return True
    return found.start.startswith(MAGIC)


def _opened_npz(path: Place, reading: Reading) -> ForeignFile:
    data = ranges_of(path)
    view = data.view
    found: list[Diagnostic] = []
    arrays: dict[str, StoredArray] = {}
    ahead = None
    if not isinstance(view, memoryview):  # the headers of arrays are behind those of members
        ahead = partial(view.fetch, behind=_MOST_EXTRA + _packed_size(_USUAL_HEADER))
    for member in read_directory(view, any_names=True, ahead=ahead):
        if len(found) >= MOST_FINDINGS:
            break
        name = member.name.removesuffix(_SUFFIX)
        if name == member.name:
            message = f"expected members that end in {_SUFFIX} alone, got another"
            found.append(about("NQX410", name, message))
            continue
        try:
            arrays[name] = _of_member(view, member, reading.limits.full_bytes)
        except StructError as error:
            found += about_each(name, error)
    if not isinstance(view, memoryview):
        view.fetch(())  # the headers are not kept
    raise_findings(found)
    return file_of(path, NPZ, data, arrays)


def _of_member(view: View, member: Member, most: int) -> StoredArray:
    _, begin, size, length, crc, method = member
    if method == STORED:
        parsed = parse_header(
            _start_with_header(lambda size: view[begin : begin + min(length, size)])
        )
        place, packed = begin + parsed.size, None
    else:

        def expanded(start: int) -> memoryview:
            data = view[begin : begin + min(length, _packed_size(start))]
            return memoryview(inflated_start(data, start))

        parsed = parse_header(_start_with_header(expanded))
        place, packed = parsed.size, Range(begin, begin + length)
        if size > most and size > MOST_EXPANSION * length:
            message = f"expected at most {most} bytes, got {length} that expand to {size}"
            raise UntrustedError(message, code="NQX505", hint=READ_MORE)
    return found_array(parsed, size - parsed.size, place, crc, packed)


def _start_with_header(start: Callable[[int], memoryview]) -> memoryview:
    """The first bytes of an array with its header: as many as usual ones have, or the longest one.

    Args:
        start: Returns the first bytes, so many of them.
    """
    found = start(_USUAL_HEADER)
    if bytes(found).find(b"\n", _BEFORE_TEXT) < 0:
        found = start(_MOST_HEADER)
    return found


def _packed_size(size: int) -> int:
    """The most bytes of deflated data that hold so many."""
    return 2 * size + 1024


def _opened_npy(path: Place, reading: Reading) -> ForeignFile:  # noqa: ARG001 - it has no nested names
    return npy_arrays(path, ranges_of(path), _ONLY)


def npy_arrays(path: Place, data: Ranges, name: str) -> ForeignFile:
    """The array of a ``.npy`` file by a name, from its bytes."""
    parsed = parse_header(data.view[:_MOST_HEADER])
    found = found_array(parsed, data.size - parsed.size, parsed.size, None, None)
    return file_of(path, NPY, data, {name: found})


def found_array(
    parsed: Parsed,
    nbytes: int,
    place: int,
    crc: int | None,
    packed: Range | None,
) -> StoredArray:
    """The array that a header describes, whose data have ``nbytes`` bytes."""
    dtype = stored_dtype(parsed.descr)
    require_possible(parsed.shape, dtype.itemsize)
    expected = prod(parsed.shape) * dtype.itemsize
    if nbytes != expected:
        shown = f"{parsed.descr}{list(parsed.shape)}"
        raise damaged(f"expected {expected} bytes for {shown}, got {max(nbytes, 0)}")
    name = parsed.descr if dtype.char == "V" else dtype_name(dtype)
    lead = 0 if crc is None else parsed.size
    where = Range(place, place + nbytes)
    return StoredArray(name, parsed.shape, where, crc, lead, parsed.order, packed)


def stored_dtype(descr: str) -> np.dtype[Any]:
    """The dtype of stored elements; of one without a name, raw bytes of its size."""
    try:
        return dtype_named(descr)
    except SerializationError:
        import numpy as np

        digits = descr.lstrip("<>=|")[1:]
        if not digits.isdecimal() or len(digits) > 9:
            raise
        return np.dtype(f"V{digits}")


def file_of(
    path: Place, kind: Format, data: Ranges, found: Mapping[str, StoredArray], hint: str = _NAME_IT
) -> ForeignFile:
    """An open file with these arrays; ``hint`` is the fix for dtypes that the file cannot name."""
    arrays = arrays_of(data, found, _KNOWN, hint)
    check = FileArrays(data, found).verify
    return ForeignFile(path=str(path), format=kind.name, arrays=arrays, check=check)


def _write_foreign(stage: Path, arrays: Mapping[str, ForeignArray], writing: Writing) -> None:  # noqa: ARG001 - it has no nested names
    found: list[Diagnostic] = []
    for name, array in arrays.items():
        if array.dtype in ML_DTYPES:
            message = f"expected a dtype that numpy names in files, got {array.dtype}"
            found.append(about("NQX411", name, message, "write safetensors, or cast the array"))
        if ".." in name.split("/") or name.startswith("/") or "\\" in name or "\0" in name:
            message = "expected a name that stays in the folder where the file is unpacked"
            found.append(about("NQX503", name, f"{message}, got another"))
    if found:
        raise SerializationError(found)
    made = {name: partial(checked, name, array) for name, array in arrays.items()}
    held = HeldArrays({}, made=made, names=arrays)
    members = {name: f"{name}{_SUFFIX}" for name in arrays}
    with stage.open("r+b", buffering=0) as file:
        write_members(cast("BinaryIO", file), held, members)
        os.fsync(file.fileno())


NPZ: Final = Format(
    name="npz",
    title="a .npz file of numpy",
    suffix=".npz",
    recognises=_recognises_npz,
    opened=_opened_npz,
    write=_write_foreign,
    folder=lambda _: False,
    metadata=False,
    store=NPZ_STORE,
)
NPY: Final = Format(
    name="npy",
    title="a .npy file of numpy",
    suffix=_SUFFIX,
    recognises=_recognises_npy,
    opened=_opened_npy,
    write=None,
    folder=lambda _: False,
    metadata=False,
)
