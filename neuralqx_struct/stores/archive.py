"""The zip format, as far as bundles need it: members at known places, checked before they are used.

Owns reading a zip directory strictly (every size and place is compared with the file, names are unique and harmless,
members do not overlap) and writing members one after the other with their data on 64-byte borders. Knows nothing of
arrays (``npz.py``) nor of bundles (``bundle.py``); needs no numpy, so that a manifest in a zip is read without it.

Example:
    >>> import io
    >>> file = io.BytesIO()
    >>> writer = ArchiveWriter(file)
    >>> written = writer.add("hello.txt", b"hello")
    >>> writer.close()
    >>> [(m.name, m.size) for m in read_directory(memoryview(file.getvalue()))]
    [('hello.txt', 5)]
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import BinaryIO, Final, NamedTuple, TypeVar

from neuralqx_struct.errors import Diagnostic, IntegrityError, SerializationError, StructError, UntrustedError
from neuralqx_struct.stores.checksums import crc32, joined, write_all, write_checked

__all__ = [
    "ALIGNMENT",
    "DEFLATED",
    "STORED",
    "ArchiveWriter",
    "Member",
    "Progress",
    "inflate",
    "inflated_start",
    "leave_a_folder",
    "read_directory",
]

ALIGNMENT: Final = 64
STORED: Final = 0
DEFLATED: Final = 8
Progress = Callable[[int, int], None]
_T = TypeVar("_T")

_LOCAL: Final = struct.Struct("<4s5H3I2H")
_CENTRAL: Final = struct.Struct("<4s6H3I5H2I")
_END: Final = struct.Struct("<4s4H2IH")
_END64: Final = struct.Struct("<4sQ2H2I4Q")
_LOCATOR: Final = struct.Struct("<4sIQI")
_MAX16, _MAX32 = 0xFFFF, 0xFFFFFFFF
_ENCRYPTED, _DESCRIPTOR, _UTF8 = 0x1, 0x8, 0x800
_DATE = 33  # 1 January 1980, the zero of zip times: the same arrays give the same bytes
_PADDING = 0xD935  # the extra field by which zipalign marks padding
_PIECE = 4 << 20  # what is deflated at a time
_LARGE = 1 << 20  # from here on data are written from where they are
_ADVISE = getattr(os, "posix_fadvise", None)
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


class _Written(NamedTuple):
    offset: int
    crc32: int


def _broken(message: str, code: str = "NQX408", kind: type[StructError] = IntegrityError) -> StructError:
    return kind(Diagnostic(code, "error", message))


class ArchiveWriter:
    """Writes a zip at the present position of ``file``; places count from there.

    Small members are gathered and written in large pieces; checksums of large ones are put into their headers afterwards.
    What is written is what the checksum is of, also where another thread writes into the data meanwhile.

    Args:
        file: A seekable binary file, opened for writing without a buffer.
        tick: Called with how many further bytes were written.
    """

    def __init__(self, file: BinaryIO, *, tick: Callable[[int], None] | None = None) -> None:
        self._file = file
        self._base = file.tell()
        self._position = 0  # of the next byte, those still gathered included
        self._gathered: list[bytes | memoryview] = []
        self._waiting = 0
        self._directory: list[bytes] = []
        self._names: set[str] = set()
        self._tick = tick

    def add(
        self, name: str, body: bytes | memoryview, head: bytes = b"", *, align: bool = True, compress: bool = False
    ) -> _Written:
        """Append one member whose data are ``head`` and then ``body``.

        Args:
            name: Its name.
            body: Data whose first byte stands on a 64-byte border, if ``align`` and not ``compress``.
            head: Data before that.
            align: Pad the member's header.
            compress: Deflate the data.

        Returns:
            Place and checksum of ``body`` (the place is meaningless in compressed data).

        Raises:
            SerializationError: The name was used before, or is too long for a zip.
        """
        raw = name.encode()
        if name in self._names or len(raw) > _MAX16:
            problem = "used once" if name in self._names else "at most 65535 bytes long"
            raise SerializationError(f"expected member names to be {problem}, got {name[:80]!r}", code="NQX509")
        self._names.add(name)
        head_size, body_size = len(head), len(body)
        size = head_size + body_size
        flags = 0 if len(raw) == len(name) else _UTF8
        big = size >= (0xF0000000 if compress else _MAX32)
        extra = struct.pack("<HHQQ", 1, 16, size, size) if big else b""
        at = self._position + 30 + len(raw) + len(extra) + head_size
        if align and not compress and (pad := -at % ALIGNMENT):
            pad += ALIGNMENT if pad < 4 else 0
            extra += struct.pack("<HH", _PADDING, pad - 4) + bytes(pad - 4)
            at += pad
        start = self._position
        if compress:
            method, version, crc, body_crc, stored = self._add_deflated(raw, flags, extra, head, body, big=big)
        else:
            method, version, stored = STORED, 45 if big else 20, size
            large = body_size >= _LARGE
            body = body if large else bytes(body)
            body_crc = 0 if large else crc32(body)
            crc = 0 if large else crc32(body, crc32(head)) if head else body_crc
            shown = _MAX32 if big else size
            self._gather(
                _LOCAL.pack(b"PK\3\4", version, flags, 0, 0, _DATE, crc, shown, shown, len(raw), len(extra)),
                raw,
                extra,
                head,
            )
            if large:
                body_crc = self._write_large(body)
                crc = joined(crc32(head), body_crc, body_size)
                self._patch(start + 14, struct.pack("<I", crc))
            else:
                self._gather(body)
                self._advance(body_size)
        self._enter(raw, (version, flags, method), crc, (size, stored), start, big=big)
        return _Written(at, body_crc)

    def _enter(
        self, raw: bytes, how: tuple[int, int, int], crc: int, sizes: tuple[int, int], start: int, *, big: bool
    ) -> None:
        """Note one member for the directory."""
        version, flags, method = how
        wide = ([*sizes] if big else []) + ([start] if start >= _MAX32 else [])
        needed = 45 if wide else version
        extra = struct.pack(f"<HH{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
        size, stored = (_MAX32, _MAX32) if big else sizes
        ends = (len(raw), len(extra), 0, 0, 0, 0, min(start, _MAX32))
        entry = _CENTRAL.pack(b"PK\1\2", needed, needed, flags, method, 0, _DATE, crc, stored, size, *ends)
        self._directory.append(entry + raw + extra)

    def _add_deflated(
        self, raw: bytes, flags: int, extra: bytes, head: bytes, body: bytes | memoryview, *, big: bool
    ) -> tuple[int, int, int, int, int]:
        start, version = self._position, 45 if big else 20
        self._gather(bytes(_LOCAL.size), raw, extra)
        packer = zlib.compressobj(6, zlib.DEFLATED, -15)
        packed = packer.compress(head)
        stored, crc, body_crc = len(packed), crc32(head), 0
        self._gather(packed)
        for piece in map(bytes, _pieces(body)):
            crc, body_crc = crc32(piece, crc), crc32(piece, body_crc)
            packed = packer.compress(piece)
            stored += len(packed)
            self._gather(packed)
            self._advance(len(piece))
        packed = packer.flush()
        stored += len(packed)
        self._gather(packed)
        size = len(head) + len(body)
        shown = (_MAX32, _MAX32) if big else (stored, size)
        header = _LOCAL.pack(b"PK\3\4", version, flags, DEFLATED, 0, _DATE, crc, *shown, len(raw), len(extra))
        if big:
            header += raw + struct.pack("<HHQQ", 1, 16, size, stored)
        self._flush()
        self._patch(start, header)
        return DEFLATED, version, crc, body_crc, stored

    def add_written(self, name: str, write: Callable[[BinaryIO], _T]) -> _T:
        """Append one stored member whose data ``write`` puts into the file; gives back what ``write`` returns.

        The file must be readable too: the checksum is taken from what was written.
        """
        raw = name.encode()
        self._names.add(name)
        start = self._position
        extra = struct.pack("<HHQQ", 1, 16, 0, 0)
        pad = -(start + 30 + len(raw) + len(extra)) % ALIGNMENT
        pad += ALIGNMENT if pad < 4 else 0
        extra += struct.pack("<HH", _PADDING, pad - 4) + bytes(pad - 4)
        self._gather(bytes(_LOCAL.size), raw, extra)
        self._flush()
        begin = self._position
        result = write(self._file)
        size = self._file.tell() - self._base - begin
        self._file.seek(self._base + begin)
        crc, left = 0, size
        while left and (piece := self._file.read(min(left, _LARGE))):
            crc = crc32(piece, crc)
            left -= len(piece)
        self._position = begin + size
        header = _LOCAL.pack(b"PK\3\4", 45, _UTF8, STORED, 0, _DATE, crc, _MAX32, _MAX32, len(raw), len(extra))
        self._patch(start, header + raw + struct.pack("<HHQQ", 1, 16, size, size))
        self._enter(raw, (45, _UTF8, STORED), crc, (size, size), start, big=size >= _MAX32)
        return result

    def close(self) -> None:
        """Write the directory; the file stays open."""
        begin, count = self._position, len(self._directory)
        self._gather(*self._directory)
        size = self._position - begin
        if count >= _MAX16 or begin >= _MAX32 or size >= _MAX32:
            end = self._position
            self._gather(_END64.pack(b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, begin))
            self._gather(_LOCATOR.pack(b"PK\6\7", 0, end, 1))
        short = min(count, _MAX16)
        self._gather(_END.pack(b"PK\5\6", 0, 0, short, short, min(size, _MAX32), min(begin, _MAX32), 0))
        self._flush()

    def _gather(self, *parts: bytes | memoryview) -> None:
        self._gathered += parts
        size = sum(map(len, parts))
        self._position += size
        self._waiting += size
        if self._waiting > 4 << 20:
            self._flush()

    def _flush(self) -> None:
        data = b"".join(self._gathered)
        self._gathered, self._waiting = [], 0
        write_all(self._file, memoryview(data))

    def _write_large(self, body: bytes | memoryview) -> int:
        def count(size: int) -> None:
            self._start_writeback(size)
            self._position += size
            self._advance(size)

        self._flush()
        return write_checked(self._file, body, count)

    def _start_writeback(self, size: int) -> None:
        """Let the disk begin with the bytes just written, while the next ones are copied: the final fsync waits less.

        Linux starts to write out the range; it drops pages only that are on the disk already.
        """
        if _ADVISE is not None and hasattr(self._file, "fileno"):
            with suppress(OSError):  # io.UnsupportedOperation is one: the file is memory
                _ADVISE(self._file.fileno(), self._base + self._position, size, os.POSIX_FADV_DONTNEED)

    def _patch(self, place: int, data: bytes) -> None:
        self._flush()
        self._file.seek(self._base + place)
        write_all(self._file, memoryview(data))
        self._file.seek(self._base + self._position)

    def _advance(self, size: int) -> None:
        if self._tick is not None:
            self._tick(size)


def _pieces(body: bytes | memoryview) -> Iterator[memoryview]:
    view = memoryview(body)
    for at in range(0, len(view), _PIECE):
        yield view[at : at + _PIECE]


def inflate(data: memoryview, size: int) -> bytes:
    """Expand deflated data to exactly ``size`` bytes, never to more.

    Raises:
        UntrustedError: They expand to more.
        IntegrityError: They expand to less, or are no deflated data.
    """
    unpacker = zlib.decompressobj(-15)
    try:
        out = unpacker.decompress(data, size + 1)
    except zlib.error as error:
        raise _broken(f"expected deflated data, got: {error}") from error
    if len(out) > size:
        raise _broken(f"expected data that expand to {size} bytes, got more", "NQX505", UntrustedError)
    if len(out) < size or not unpacker.eof or unpacker.unused_data:
        raise _broken(f"expected data that expand to {size} bytes, got {len(out)}")
    return out


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
    end = len(view) - _END.size
    if end < 0 or bytes(view[end : end + 4]) != b"PK\5\6":
        raise _broken("expected a zip archive, got bytes without its end record")
    _, disk, first, here, count, size, begin, comment = _END.unpack_from(view, end)
    wide = end - _LOCATOR.size
    if wide >= 0 and bytes(view[wide : wide + 4]) == b"PK\6\7":
        _, _, place, _ = _LOCATOR.unpack_from(view, wide)
        if place != wide - _END64.size:
            raise _broken("expected the wide end record right before its locator, got it elsewhere")
        mark, length, _, _, disk, first, here, wide_count, wide_size, wide_begin = _END64.unpack_from(view, place)
        narrow = ((count, wide_count, _MAX16), (size, wide_size, _MAX32), (begin, wide_begin, _MAX32))
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
    if count > size // _CENTRAL.size:
        raise _broken(f"expected {count} members in the zip directory, got room for fewer")
    found: list[tuple[int, Member]] = []
    names: list[str] = []
    position = 0
    unpack, make = _CENTRAL.unpack_from, Member._make
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
        if _MAX32 in (size, stored, at):
            size, stored, at = _widened(directory[tail : tail + extra_size], (size, stored, at))
        position = tail + extra_size + comment
        if position > len(directory):
            raise _broken("expected the zip directory to hold all its entries, got one that passes its end")
        try:
            name = raw.decode("utf-8" if flags & _UTF8 or raw.isascii() else "cp437")
        except UnicodeDecodeError as error:
            raise _broken(f"expected member names in UTF-8, got {raw[:60]!r}") from error
        if mode and mode >> 28 not in (0, 8):
            raise _broken(f"expected plain files, got {name!r} that is none", "NQX504", UntrustedError)
        if flags & _ENCRYPTED or (size != stored if method == STORED else method != DEFLATED):
            raise _broken(f"expected members stored or deflated, got {name!r} in another way", "NQX508", UntrustedError)
        head = view[at : at + 30 + name_size].tobytes()
        if head[4:28] == same and head[:4] == b"PK\3\4" and size < _MAX32 and head[30:] == raw:
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
    mark, _, flags, method, _, _, crc, stored, size, name_size, extra_size = _LOCAL.unpack_from(view, at)
    start: int = at + 30 + name_size + extra_size
    if _MAX32 in (size, stored):
        size, stored = _widened(bytes(view[at + 30 + name_size : start]), (size, stored))
    own = (flags, method, crc, stored, size)
    if flags & _DESCRIPTOR:  # sizes and checksum follow the data
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
            return [next(wide, value) if value == _MAX32 else value for value in values]
        at += 4 + length
    return list(values)
