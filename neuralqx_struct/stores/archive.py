"""The zip format, as far as bundles need it: members at known places, checked before they are used.

Owns reading a zip directory strictly: every size and place is compared with the file, names are unique and harmless,
members do not overlap. ``archive_writer.py`` writes such archives. Knows nothing of
arrays (``npz.py``) nor of bundles (``bundle/``); needs no numpy, so that a manifest in a zip is read without it.

Example:
    >>> import io
    >>> from neuralqx_struct.stores.archive_writer import ArchiveWriter
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
from collections.abc import Collection, Iterator
from typing import NamedTuple

from neuralqx_struct.errors import Diagnostic, IntegrityError, StructError, UntrustedError
from neuralqx_struct.stores.zip_records import (
    CENTRAL,
    DEFLATED,
    DESCRIPTOR,
    ENCRYPTED,
    END,
    END64,
    LOCAL,
    LOCATOR,
    MAX16,
    MAX32,
    STORED,
    UTF8,
)

__all__ = ["Member", "inflate", "inflated", "inflated_start", "leave_a_folder", "read_directory"]

_MOST_EXPANSION = 1032  # what a byte of deflated data can be at most
_PACKED, _EXPANDED = 256 << 10, 1 << 20  # bytes that are unpacked at a time, and that come of them
_UNSAFE = re.compile(r"[\\:\x00-\x1f\x7f]")


class Member(NamedTuple):
    """One member, as the directory and the member's own header agree on it.

    Attributes:
        name: Its name.
        start: Where its data begin in the archive.
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


def _broken(message: str, code: str = "NQX408", kind: type[StructError] = IntegrityError) -> StructError:
    return kind(Diagnostic(code, "error", message))


def inflate(data: memoryview, size: int) -> bytes:
    """Expand deflated data to exactly ``size`` bytes, never to more; see :func:`inflated`."""
    return b"".join(inflated(data, size))


def inflated(data: memoryview, size: int) -> Iterator[bytes]:
    """The pieces that deflated data expand to, ``size`` bytes in all.

    Raises:
        UntrustedError: They expand to more.
        IntegrityError: They expand to less, or are no deflated data.
    """
    if size > _MOST_EXPANSION * len(data):
        raise _broken(f"expected data that expand to {size} bytes, got {len(data)}, which expand to fewer")
    return _inflated(data, size)


def _inflated(data: memoryview, size: int) -> Iterator[bytes]:
    unpacker, done, left = zlib.decompressobj(-15), 0, len(data)
    try:
        while left and not unpacker.eof:
            packed: bytes | memoryview = data[-left:][:_PACKED]
            left -= len(packed)
            piece = b""
            while not unpacker.eof and (packed or len(piece) == _EXPANDED):  # then there may be more of what was put in
                piece = unpacker.decompress(packed, _EXPANDED)
                packed = unpacker.unconsumed_tail
                done += len(piece)
                if done > size:
                    message = f"expected data that expand to {size} bytes, got more"
                    raise _broken(message, "NQX505", UntrustedError)
                yield piece
    except zlib.error as error:
        raise _broken(f"expected deflated data, got: {error}") from error
    if done < size or left or not unpacker.eof or unpacker.unused_data:
        raise _broken(f"expected data that expand to {size} bytes, got {done}")


def inflated_start(data: memoryview, size: int) -> bytes:
    """At most the first ``size`` bytes that deflated data expand to; fewer where they end or break off."""
    try:
        return zlib.decompressobj(-15).decompress(data[: 2 * size + 1024], size)
    except zlib.error:
        return b""


def read_directory(view: memoryview) -> list[Member]:
    """The members of an archive that is the whole of ``view``, sorted by place.

    Raises:
        IntegrityError: The archive is cut off, or its parts do not agree with each other.
        UntrustedError: Names appear twice or lead out of the archive, members overlap or are no plain files.
    """
    try:
        return _members(view)
    except (struct.error, IndexError) as error:
        raise _broken("expected a whole zip archive, got one that ends early") from error


def _end_of_directory(view: memoryview) -> tuple[int, int, int, int]:
    """Number of members, place and size of the directory, and where it must end."""
    end = len(view) - END.size
    if end < 0 or bytes(view[end : end + 4]) != b"PK\5\6":
        raise _broken("expected a zip archive, got bytes without its end record")
    _, disk, first, here, count, size, begin, comment = END.unpack_from(view, end)
    wide = end - LOCATOR.size
    if wide >= 0 and bytes(view[wide : wide + 4]) == b"PK\6\7":
        _, _, place, _ = LOCATOR.unpack_from(view, wide)
        if place != wide - END64.size:
            raise _broken("expected the wide end record right before its locator, got it elsewhere")
        mark, length, _, _, disk, first, here, wide_count, wide_size, wide_begin = END64.unpack_from(view, place)
        narrow = ((count, wide_count, MAX16), (size, wide_size, MAX32), (begin, wide_begin, MAX32))
        if mark != b"PK\6\6" or length != 44 or any(a not in (b, limit) for a, b, limit in narrow):
            raise _broken("expected both end records of the zip to agree, got different ones")
        end, count, size, begin = place, wide_count, wide_size, wide_begin
    elif here != count:
        raise _broken("expected a zip in one part, got one of several")
    if disk or first or comment or begin + size != end:
        raise _broken(f"expected the zip directory to end at byte {end}, got {begin + size}")
    return count, begin, size, end


def _members(view: memoryview) -> list[Member]:
    count, begin, size, end = _end_of_directory(view)
    directory = bytes(view[begin:end])
    if count > size // CENTRAL.size:
        raise _broken(f"expected {count} members in the zip directory, got room for fewer")
    found: list[tuple[int, Member]] = []
    names: list[str] = []
    position = 0
    unpack, make = CENTRAL.unpack_from, Member._make
    for _ in range(count):
        (mark, _, _, flags, method, _, _, crc, stored, size, name_size, extra_size, comment, disk, _, mode, at) = (
            unpack(directory, position)
        )
        if mark != b"PK\1\2" or disk:
            raise _broken(f"expected an entry of the zip directory at byte {begin + position}, got other bytes")
        tail = position + 46 + name_size
        raw = directory[position + 46 : tail]
        # Both headers have these fields in one order; where they are the same bytes there is nothing more to compare.
        same = directory[position + 6 : position + 30]
        if MAX32 in (size, stored, at):
            size, stored, at = _widened(directory[tail : tail + extra_size], (size, stored, at))
        position = tail + extra_size + comment
        if position > len(directory):
            raise _broken("expected the zip directory to hold all its entries, got one that passes its end")
        try:
            name = raw.decode("utf-8" if flags & UTF8 or raw.isascii() else "cp437")
        except UnicodeDecodeError as error:
            raise _broken(f"expected member names in UTF-8, got {raw[:60]!r}") from error
        if mode and mode >> 28 not in (0, 8):
            raise _broken(f"expected plain files, got {name!r} that is none", "NQX504", UntrustedError)
        if flags & ENCRYPTED or (size != stored if method == STORED else method != DEFLATED):
            raise _broken(f"expected members stored or deflated, got {name!r} in another way", "NQX508", UntrustedError)
        head = view[at : at + 30 + name_size].tobytes()
        if head[4:28] == same and head[:4] == b"PK\3\4" and size < MAX32 and head[30:] == raw:
            start = at + 30 + name_size + head[28] + (head[29] << 8)
        else:
            start = _check_local(view, at, raw, (flags, method, crc, stored, size))
        if start + stored > begin:
            raise _broken(f"expected the data of member {name!r} to end by byte {begin}, got {start + stored}")
        names.append(name)
        found.append((at, make((name, start, size, stored, crc, method))))
    if position != len(directory):
        raise _broken(f"expected {count} entries in the zip directory, got more bytes after them")
    _check_names(names)
    found.sort()
    free = 0
    for at, member in found:
        if at < free:
            message = f"expected members apart from each other, got {member.name!r} inside another"
            raise _broken(message, "NQX509", UntrustedError)
        free = member[1] + member[3]
    return [member for _, member in found]


def leave_a_folder(names: Collection[str]) -> bool:
    """True if any of these names could lead out of the folder where somebody unpacks them, or is no name everywhere."""
    text = f"/{'/'.join(names)}/"
    dots = any(part in text for part in ("//", "/./", "/../"))
    return bool(names) and (dots or _UNSAFE.search(text) is not None)


def _check_names(names: list[str]) -> None:
    if len(set(names)) < len(names):
        name = next(name for name, count in Counter(names).items() if count > 1)
        raise _broken(f"expected member names once, got {name!r} twice", "NQX509", UntrustedError)
    if leave_a_folder(names):
        name = next(name for name in names if leave_a_folder([name]))
        raise _broken(f"expected member names that stay inside, got {name!r}", "NQX503", UntrustedError)


def _check_local(view: memoryview, at: int, raw: bytes, entry: tuple[int, int, int, int, int]) -> int:
    """Where the data of a member begin, once its own header has agreed with its entry in the directory."""
    mark, _, flags, method, _, _, crc, stored, size, name_size, extra_size = LOCAL.unpack_from(view, at)
    start: int = at + 30 + name_size + extra_size
    if MAX32 in (size, stored):
        size, stored = _widened(bytes(view[at + 30 + name_size : start]), (size, stored))
    own = (flags, method, crc, stored, size)
    if flags & DESCRIPTOR:  # sizes and checksum follow the data
        own = (flags, method, *entry[2:])
    if mark != b"PK\3\4" or own != entry or view[at + 30 : at + 30 + name_size] != raw:
        name = raw[:80].decode("utf-8", "replace")
        raise _broken(f"expected the header of member {name!r} to agree with the directory, got another one")
    return start


def _widened(extra: bytes, values: tuple[int, ...]) -> list[int]:
    """The values with those that did not fit 32 bits taken from the extra field that holds them."""
    at = 0
    while at + 4 <= len(extra):
        tag, length = struct.unpack_from("<HH", extra, at)
        if tag == 1:
            wide: Iterator[int] = iter([n for (n,) in struct.iter_unpack("<Q", extra[at + 4 : at + 4 + (length & ~7)])])
            return [next(wide, value) if value == MAX32 else value for value in values]
        at += 4 + length
    return list(values)
