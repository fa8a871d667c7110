"""Reads the directory of a zip archive strictly: nothing of it is used before it was checked.

Every size and place is compared with the file, names are unique and harmless, members do not overlap.
``archive_writer.py`` writes such archives. Needs no numpy, so that the manifest in a zip is read without it.

Example:
    >>> import io
    >>> from neuralqx_struct.formats.archive_writer import ArchiveWriter
    >>> file = io.BytesIO()
    >>> writer = ArchiveWriter(file)
    >>> written = writer.add("hello.txt", b"hello")
    >>> writer.close()
    >>> [(m.name, m.size) for m in read_directory(memoryview(file.getvalue()))]
    [('hello.txt', 5)]
"""

from __future__ import annotations

import re
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from neuralqx_struct.errors import IntegrityError, UntrustedError

# Layouts and numbers of the zip format.
ALIGNMENT: Final = 64
STORED: Final = 0
DEFLATED: Final = 8
LOCAL: Final = struct.Struct("<4s5H3I2H")
CENTRAL: Final = struct.Struct("<4s6H3I5H2I")
END: Final = struct.Struct("<4s4H2IH")
END64: Final = struct.Struct("<4sQ2H2I4Q")
LOCATOR: Final = struct.Struct("<4sIQI")
MAX16, MAX32 = 0xFFFF, 0xFFFFFFFF
ENCRYPTED, DESCRIPTOR, UTF8 = 0x1, 0x8, 0x800

_MOST_EXPANSION = 1032  # the most bytes that one byte of deflated data can expand to
_PACKED, _EXPANDED = 256 << 10, 1 << 20  # bytes that go into and come out of one decompression step
_UNSAFE = re.compile(r"[\\:\x00-\x1f\x7f]")


class Bytes(Protocol):
    """The members of a memoryview that :func:`read_directory` uses."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: slice, /) -> memoryview: ...


class Member(NamedTuple):
    """One member, as the directory and the member's own header agree on it.

    Attributes:
        name: Its name.
        start: The first byte of its data in the archive.
        size: Bytes of data when expanded.
        stored: Bytes of data in the archive.
        crc32: Checksum of the expanded data.
        method: :data:`STORED` or :data:`DEFLATED`.
    """

    name: str
    start: int
    size: int
    stored: int
    crc32: int
    method: int


def damaged(message: str) -> IntegrityError:
    """The error for a file whose parts do not agree."""
    return IntegrityError(message, code="NQX408")


def inflate(data: memoryview, size: int) -> bytes:
    """Expands deflated data to exactly ``size`` bytes, never to more; see :func:`inflated`."""
    return b"".join(inflated(data, size))


def inflated(data: memoryview, size: int) -> Iterator[bytes]:
    """The pieces that deflated data expand to, ``size`` bytes in all.

    Raises:
        UntrustedError: They expand to more.
        IntegrityError: They expand to less, or are no deflated data.
    """
    if size > _MOST_EXPANSION * len(data):
        expected = f"expected data that expand to {size} bytes"
        raise damaged(f"{expected}, got {len(data)}, which expand to fewer")
    return _inflated(data, size)


def _inflated(data: memoryview, size: int) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(-15)
    done = 0
    left = len(data)
    expected = f"expected data that expand to {size} bytes"
    try:
        while left and not unpacker.eof:
            packed: bytes | memoryview = data[-left:][:_PACKED]
            left -= len(packed)
            piece = b""
            # A full piece can leave data in the decompressor although all input was taken.
            while not unpacker.eof and (packed or len(piece) == _EXPANDED):
                piece = unpacker.decompress(packed, _EXPANDED)
                packed = unpacker.unconsumed_tail
                done += len(piece)
                if done > size:
                    raise UntrustedError(f"{expected}, got more", code="NQX505")
                yield piece
    except zlib.error as error:
        raise damaged(f"expected deflated data, got: {error}") from error
    if done < size or left or not unpacker.eof or unpacker.unused_data:
        raise damaged(f"{expected}, got {done}")


def inflated_start(data: memoryview, size: int) -> bytes:
    """Returns at most the first ``size`` bytes of deflated data; fewer if they end or break off."""
    try:
        return zlib.decompressobj(-15).decompress(data[: 2 * size + 1024], size)
    except zlib.error:
        return b""


def read_directory(
    view: Bytes,
    *,
    any_names: bool = False,
    ahead: Callable[[Iterable[tuple[int, int]]], object] | None = None,
) -> list[Member]:
    """The members of an archive that fills ``view``, sorted by place.

    Args:
        view: The archive.
        any_names: Accept names that lead out of a folder, where nothing is unpacked by name.
        ahead: Called with the places where the members' own headers start and end before they are read, to fetch them together.

    Raises:
        IntegrityError: The archive is cut off, or its parts do not agree with each other.
        UntrustedError: Names appear twice or lead out of the archive, members overlap or are no plain files.
    """
    try:
        return _members(view, any_names=any_names, ahead=ahead)
    except (struct.error, IndexError) as error:
        raise damaged("expected a whole zip archive, got one that ends early") from error


def _end_of_directory(view: Bytes) -> tuple[int, int, int, int]:
    """The number of members, place and size of the directory, and its end."""
    end = len(view) - END.size
    if end < 0 or bytes(view[end : end + 4]) != b"PK\5\6":
        raise damaged("expected a zip archive, got bytes without its end record")
    _, disk, first, here, count, size, begin, comment = END.unpack(view[end : end + END.size])
    wide = end - LOCATOR.size
    if wide >= 0 and bytes(view[wide : wide + 4]) == b"PK\6\7":
        place = LOCATOR.unpack(view[wide:end])[2]
        if place != wide - END64.size:
            message = "expected the wide end record right before its locator, got it elsewhere"
            raise damaged(message)
        record = END64.unpack(view[place : place + END64.size])
        mark, length, _, _, disk, first, here, *wider = record
        pairs = zip((count, size, begin), wider, (MAX16, MAX32, MAX32), strict=True)
        agree = all(narrow in (value, limit) for narrow, value, limit in pairs)
        if mark != b"PK\6\6" or length != 44 or not agree:
            raise damaged("expected both end records of the zip to agree, got different ones")
        end = place
        count, size, begin = wider
    elif here != count:
        raise damaged("expected a zip in one part, got one of several")
    if disk or first or comment or begin + size != end:
        raise damaged(f"expected the zip directory to end at byte {end}, got {begin + size}")
    return count, begin, size, end


def _headers(directory: bytes, count: int) -> Iterator[tuple[int, int]]:
    """Yields where the own header of each member starts and ends; its extra field is behind that."""
    position = 0
    for _ in range(count):
        entry = CENTRAL.unpack_from(directory, position)
        sizes, (name_size, extra_size, comment), at = entry[8:10], entry[10:13], entry[16]
        position += CENTRAL.size + name_size
        if at == MAX32:
            extra = directory[position : position + extra_size]
            at = _widened(extra, (*reversed(sizes), at))[-1]
        position += extra_size + comment
        yield at, at + LOCAL.size + name_size


def _members(
    view: Bytes,
    *,
    any_names: bool,
    ahead: Callable[[Iterable[tuple[int, int]]], object] | None,
) -> list[Member]:
    count, begin, size, end = _end_of_directory(view)
    directory = bytes(view[begin:end])
    if count > size // CENTRAL.size:
        raise damaged(f"expected {count} members in the zip directory, got room for fewer")
    if ahead is not None:
        ahead(_headers(directory, count))
    found: list[tuple[int, Member]] = []
    names: list[str] = []
    position = 0
    unpack, make = CENTRAL.unpack_from, Member._make
    for _ in range(count):
        entry = unpack(directory, position)
        mark, _, _, flags, method, _, _, crc, stored, size, name_size, extra_size = entry[:12]
        comment, disk, _, mode, at = entry[12:]
        if mark != b"PK\1\2" or disk:
            place = begin + position
            message = f"expected an entry of the zip directory at byte {place}, got other bytes"
            raise damaged(message)
        tail = position + 46 + name_size
        raw = directory[position + 46 : tail]
        # Both headers hold these fields in the same order: equal bytes need no further comparison.
        same = directory[position + 6 : position + 30]
        if MAX32 in (size, stored, at):
            size, stored, at = _widened(directory[tail : tail + extra_size], (size, stored, at))
        position = tail + extra_size + comment
        if position > len(directory):
            message = (
                "expected the zip directory to hold all its entries, got one that passes its end"
            )
            raise damaged(message)
        try:
            name = raw.decode("utf-8" if flags & UTF8 or raw.isascii() else "cp437")
        except UnicodeDecodeError as error:
            raise damaged(f"expected member names in UTF-8, got {raw[:60]!r}") from error
        if mode and mode >> 28 not in (0, 8):
            message = f"expected plain files, got {name!r} that is none"
            raise UntrustedError(message, code="NQX504")
        if flags & ENCRYPTED or (size != stored if method == STORED else method != DEFLATED):
            message = f"expected members stored or deflated, got {name!r} in another way"
            raise UntrustedError(message, code="NQX508")
        head = view[at : at + 30 + name_size].tobytes()
        if head[4:28] == same and head[:4] == b"PK\3\4" and size < MAX32 and head[30:] == raw:
            start = at + 30 + name_size + head[28] + (head[29] << 8)
        else:
            start = _check_local(view, at, raw, (flags, method, crc, stored, size))
        if start + stored > begin:
            message = (
                f"expected the data of member {name!r} to end by byte {begin}, got {start + stored}"
            )
            raise damaged(message)
        names.append(name)
        found.append((at, make((name, start, size, stored, crc, method))))
    if position != len(directory):
        raise damaged(f"expected {count} entries in the zip directory, got more bytes after them")
    _check_names(names, any_names=any_names)
    found.sort()
    free = 0
    for at, member in found:
        if at < free:
            message = f"expected members apart from each other, got {member.name!r} inside another"
            raise UntrustedError(message, code="NQX509")
        free = member.start + member.stored
    return [member for _, member in found]


def leave_a_folder(names: Collection[str]) -> bool:
    """True if any of these names could lead out of the folder where they are unpacked, or is not portable."""
    text = f"/{'/'.join(names)}/"
    dots = any(part in text for part in ("//", "/./", "/../"))
    return bool(names) and (dots or _UNSAFE.search(text) is not None)


def _check_names(names: list[str], *, any_names: bool) -> None:
    if len(set(names)) < len(names):
        name, _ = Counter(names).most_common(1)[0]
        raise UntrustedError(f"expected member names once, got {name!r} twice", code="NQX509")
    if not any_names and leave_a_folder(names):
        name = next(name for name in names if leave_a_folder([name]))
        message = f"expected member names that stay inside, got {name!r}"
        raise UntrustedError(message, code="NQX503")


def _check_local(view: Bytes, at: int, raw: bytes, entry: tuple[int, int, int, int, int]) -> int:
    """Compares a member's own header with its entry in the directory; returns the place of its data."""
    record = LOCAL.unpack(view[at : at + LOCAL.size])
    mark, _, flags, method, _, _, crc, stored, size, name_size, extra_size = record
    extra = at + 30 + name_size
    start: int = extra + extra_size
    if MAX32 in (size, stored):
        size, stored = _widened(bytes(view[extra:start]), (size, stored))
    own = (flags, method, crc, stored, size)
    if flags & DESCRIPTOR:  # sizes and checksum follow the data
        own = (flags, method, *entry[2:])
    if mark != b"PK\3\4" or own != entry or view[at + 30 : extra] != raw:
        name = raw[:80].decode("utf-8", "replace")
        message = (
            f"expected the header of member {name!r} to agree with the directory, got another one"
        )
        raise damaged(message)
    return start


def _widened(extra: bytes, values: tuple[int, ...]) -> list[int]:
    """The values; those that did not fit 32 bits come from the extra field."""
    at = 0
    while at + 4 <= len(extra):
        tag, length = struct.unpack_from("<HH", extra, at)
        if tag == 1:
            field = extra[at + 4 : at + 4 + (length & ~7)]
            wide = (n for (n,) in struct.iter_unpack("<Q", field))
            return [next(wide, value) if value == MAX32 else value for value in values]
        at += 4 + length
    return list(values)
