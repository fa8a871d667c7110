"""The foreign formats ``npz`` and ``npy``: arrays as numpy saves them, compressed or not.

Stored members are mapped, deflated ones are expanded when they are read; checksums are compared. Nothing is unpickled.

Example:
    >>> import tempfile
    >>> import numpy as np
    >>> from neuralqx_struct import formats
    >>> path = Path(tempfile.mkdtemp(), "weights.npz")
    >>> np.savez(path, w=np.ones(2))
    >>> with formats.opened(path) as file:
    ...     file.format, file.arrays["w"].read()
    ('npz', array([1., 1.]))
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, cast

from neuralqx_struct.dtypes import ML_DTYPES, dtype_name, dtype_named
from neuralqx_struct.errors import Diagnostic, SerializationError, StructError, UntrustedError
from neuralqx_struct.formats.archive import STORED, Member, damaged, inflated_start, read_directory
from neuralqx_struct.formats.entries import Entry
from neuralqx_struct.formats.files import FileArrays
from neuralqx_struct.formats.npz_store import MAGIC, Parsed, parse_header, write_members
from neuralqx_struct.formats.ranges import Ranges, View, part_in
from neuralqx_struct.formats.store import WHOLE, about, about_each, require_possible
from neuralqx_struct.formats.table import (
    MOST_EXPANSION,
    Candidate,
    ForeignArray,
    ForeignFile,
    Format,
    Reading,
    Writing,
    checked,
    ranges_of,
    unreadable,
)
from neuralqx_struct.manifest import MOST_FINDINGS, Limits, raise_findings
from neuralqx_struct.manifest.payload import HeldArrays, Region, StoredArrays
from neuralqx_struct.places.urls import Place

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_SUFFIX: Final = ".npy"
_USUAL_HEADER, _MOST_HEADER = 512, 1 << 16
_LENGTHS: Final = 12  # the most bytes of a header before its text
_MOST_EXTRA: Final = 128  # bytes between the names of members and their data, as writers align them
#: The name of the array of a ``.npy`` file, which has none: that of the first array without a name in ``np.savez``.
_ONLY: Final = "arr_0"
_KNOWN: Final = "a dtype whose name is in the file"
_NAME_IT: Final = "write the array again, as safetensors; if it was bfloat16, np.load(...)[name].view('bfloat16') is the array"


class Found(NamedTuple):
    """An array in a file: its entry, and numpy's name of its dtype."""

    entry: Entry
    descr: str


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


# Reading


def _opened_npz(path: Place, reading: Reading) -> ForeignFile:
    data = ranges_of(path)
    view = data.view
    found: list[Diagnostic] = []
    arrays: dict[str, Found] = {}
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
            arrays[name] = _of_member(view, member, reading.limits)
        except StructError as error:
            found += about_each(name, error)
    if not isinstance(view, memoryview):
        view.fetch(())  # the headers are not kept
    raise_findings(found)
    return file_of(path, NPZ, data, arrays)


def _of_member(view: View, member: Member, limits: Limits) -> Found:
    _, begin, size, length, crc, method = member
    if method == STORED:
        parsed = parse_header(_header(lambda most: view[begin : begin + min(length, most)]))
        place, packed = begin + parsed.size, None
    else:

        def expanded(most: int) -> memoryview:
            data = view[begin : begin + min(length, _packed_size(most))]
            return memoryview(inflated_start(data, most))

        parsed = parse_header(_header(expanded))
        place, packed = parsed.size, (begin, length, size)
        if size > limits.full_bytes and size > MOST_EXPANSION * length:
            message = (
                f"expected at most {limits.full_bytes} bytes, got {length} that expand to {size}"
            )
            raise UntrustedError(message, code="NQX505", hint="pass limits= to read more")
    return found_array(parsed, size - parsed.size, place, crc, packed)


def _header(start: Callable[[int], memoryview]) -> memoryview:
    """The first bytes of an array with its header: as many as usual ones have, or the longest one.

    Args:
        start: Returns the first bytes, so many of them.
    """
    found = start(_USUAL_HEADER)
    if bytes(found).find(b"\n", _LENGTHS) < 0:
        found = start(_MOST_HEADER)
    return found


def _packed_size(size: int) -> int:
    """The most bytes of deflated data that hold so many."""
    return 2 * size + 1024


def _opened_npy(path: Place, reading: Reading) -> ForeignFile:  # noqa: ARG001 - it has no nested names
    data = ranges_of(path)
    parsed = parse_header(data.view[:_MOST_HEADER])
    found = found_array(parsed, data.size - parsed.size, parsed.size, None, None)
    return file_of(path, NPY, data, {_ONLY: found})


def found_array(
    parsed: Parsed,
    nbytes: int,
    place: int,
    crc: int | None,
    packed: tuple[int, int, int] | None,
) -> Found:
    """The array that a header describes, whose data have ``nbytes`` bytes."""
    dtype = stored_dtype(parsed.descr)
    require_possible(parsed.shape, dtype.itemsize)
    expected = prod(parsed.shape) * dtype.itemsize
    if nbytes != expected:
        shown = f"{parsed.descr}{list(parsed.shape)}"
        raise damaged(f"expected {expected} bytes for {shown}, got {max(nbytes, 0)}")
    lead, with_lead = parsed.size, crc is not None
    entry = Entry(dtype, parsed.shape, place, nbytes, crc, lead, with_lead, parsed.order, packed)
    return Found(entry, parsed.descr)


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
    path: Place, kind: Format, data: Ranges, found: Mapping[str, Found], hint: str = _NAME_IT
) -> ForeignFile:
    """An open file with these arrays; ``hint`` is the fix for dtypes that the file cannot name."""
    entries = {name: entry for name, (entry, _) in found.items()}
    held = _held(data, entries)
    arrays: dict[str, ForeignArray] = {}
    for name, (entry, descr) in found.items():
        if entry.dtype.char == "V":
            read = unreadable(name, descr, _KNOWN, hint)
            arrays[name] = ForeignArray(descr, entry.shape, read)
        else:
            read = partial(held.__getitem__, name)
            packed = entry.packed is not None
            slices = None if data.cheap or packed else partial(_part, data, entry)
            dtype = dtype_name(entry.dtype)
            cheap = data.cheap and not packed
            arrays[name] = ForeignArray(dtype, entry.shape, read, slices, cheap)
    return ForeignFile(path=str(path), format=kind.name, arrays=arrays, check=held.verify)


def _held(data: Ranges, entries: Mapping[str, Entry]) -> StoredArrays:
    """The arrays of a file, whose checksums are compared when they are read."""
    if isinstance(data.view, memoryview):
        return FileArrays(data.view, None, entries, WHOLE)

    def fetched(name: str) -> FileArrays:
        """One array, of whose file no other bytes are fetched."""
        entry = entries[name]
        if entry.packed is not None:
            start, stored, size = entry.packed
            own, entry = data.read(start, start + stored), entry._replace(packed=(0, stored, size))
        else:
            start = entry.start - entry.lead
            own = data.read(start, entry.start + entry.nbytes)
            entry = entry._replace(start=entry.lead)
        return FileArrays(own, None, {name: entry}, WHOLE)

    return FetchedArrays(entries, fetched)


class FetchedArrays(StoredArrays):
    """Arrays of a file behind a URL; each is fetched on access, and not kept.

    Args:
        names: The names.
        fetched: Returns the arrays of a file that has one of them alone.
    """

    __slots__ = ("_fetched",)

    def __init__(self, names: Collection[str], fetched: Callable[[str], FileArrays]) -> None:
        super().__init__(names)
        self._fetched = fetched

    def __getitem__(self, name: str) -> Array:
        return self._fetched(name)[name]

    def verify(self, name: str) -> Diagnostic | None:
        """Compares the bytes of one array with its checksum."""
        return self._fetched(name).verify(name)


def _part(data: Ranges, entry: Entry, region: Region) -> Array:
    """A part of an array that is not compressed; its checksum is that of the whole, so none is compared."""
    if entry.order == "C":
        return part_in(data, entry.start, entry.dtype, entry.shape, region)
    return part_in(data, entry.start, entry.dtype, entry.shape[::-1], region[::-1]).T


# Writing


def _write_npz(stage: Path, arrays: Mapping[str, ForeignArray], writing: Writing) -> None:  # noqa: ARG001 - it has no nested names
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
    extra=None,
    recognises=_recognises_npz,
    opened=_opened_npz,
    write=_write_npz,
    folder=lambda _: False,
    metadata=False,
)
NPY: Final = Format(
    name="npy",
    title="a .npy file of numpy",
    suffix=_SUFFIX,
    extra=None,
    recognises=_recognises_npy,
    opened=_opened_npy,
    write=None,
    folder=lambda _: False,
    metadata=False,
)
