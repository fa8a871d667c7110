"""Writes zip archives whose members have their data on 64-byte boundaries.

Example:
    >>> import io
    >>> file = io.BytesIO()
    >>> writer = ArchiveWriter(file)
    >>> writer.add("hello.txt", b"hello").offset
    64
    >>> writer.close()
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import current_thread, main_thread
from typing import BinaryIO, NamedTuple, TypeVar

from neuralqx_struct.errors import SerializationError
from neuralqx_struct.formats.archive import (
    ALIGNMENT,
    CENTRAL,
    DEFLATED,
    END,
    END64,
    LOCAL,
    LOCATOR,
    MAX16,
    MAX32,
    STORED,
    UTF8,
)
from neuralqx_struct.places.checksums import crc32, joined, write_all, write_checked

_T = TypeVar("_T")
_DATE = 33  # 1 January 1980, the zero of zip times: the same arrays give the same bytes
_PADDING = 0xD935  # the extra field by which zipalign marks padding
_PIECE = 4 << 20  # bytes that are deflated or gathered at a time
_LARGE = 128 << 10  # data from this size on are written without a copy of all of them
_ADVISE = getattr(os, "posix_fadvise", None)


class _Written(NamedTuple):
    offset: int
    crc32: int


@dataclass(slots=True)
class _Entry:
    """The fields of a member that its header and the directory share."""

    raw: bytes
    start: int
    method: int = STORED
    flags: int = 0
    size: int = 0
    stored: int = 0
    crc: int = 0
    big: bool = False
    version: int = 20

    def wide(self) -> bytes:
        """The extra field of the header for sizes of more than 32 bits."""
        return struct.pack("<HHQQ", 1, 16, self.size, self.stored) if self.big else b""

    def header(self, extra: int) -> bytes:
        """The fixed part of the header; ``extra`` is the length of all extra fields."""
        shown = (MAX32, MAX32) if self.big else (self.stored, self.size)
        how = (self.version, self.flags, self.method, 0, _DATE, self.crc)
        return LOCAL.pack(b"PK\3\4", *how, *shown, len(self.raw), extra)

    def central(self) -> bytes:
        """The entry in the directory."""
        version, start, extra = self.version, self.start, b""
        shown = (self.stored, self.size)
        if self.big or start >= MAX32:
            wide = [self.size, self.stored] if self.big else []
            wide += [start] if start >= MAX32 else []
            extra = struct.pack(f"<HH{len(wide)}Q", 1, 8 * len(wide), *wide)
            version, start = 45, min(start, MAX32)
            shown = (MAX32, MAX32) if self.big else shown
        how = (version, version, self.flags, self.method, 0, _DATE, self.crc)
        ends = (len(self.raw), len(extra), 0, 0, 0, 0, start)
        return CENTRAL.pack(b"PK\1\2", *how, *shown, *ends) + self.raw + extra


def _padding(size: int) -> bytes:
    """An extra field of this size; one of less than 4 bytes is impossible and gets 64 more."""
    if not size:
        return b""
    size += ALIGNMENT if size < 4 else 0
    return struct.pack("<HH", _PADDING, size - 4) + bytes(size - 4)


# By the place modulo 64: extra fields after which that place is on a 64-byte boundary.
_PADDINGS = [_padding(-place % ALIGNMENT) for place in range(ALIGNMENT)]


class ArchiveWriter:
    """Writes a zip at the present position of ``file``; places count from there.

    Small members are gathered and written in large pieces; the checksum of a large one is put into its
    header afterwards. The checksum is of the bytes that were written, also if another thread changes the
    data meanwhile.

    Args:
        file: A seekable binary file, opened for writing without a buffer.
        tick: Called with the number of further bytes that were written.
    """

    def __init__(self, file: BinaryIO, *, tick: Callable[[int], None] | None = None) -> None:
        self._file = file
        self._base = file.tell()
        self._position = 0  # of the next byte, gathered ones included
        self._gathered: list[bytes | memoryview] = []
        self._waiting = 0
        self._directory: list[bytes] = []
        self._names: set[str] = set()
        self._tick = tick

    def add(
        self,
        name: str,
        body: bytes | memoryview,
        head: bytes = b"",
        *,
        compress: bool = False,
    ) -> _Written:
        """Appends one member whose data are ``head`` and then ``body``.

        Args:
            name: Its name.
            body: Data whose first byte is put on a 64-byte boundary, unless ``compress``.
            head: Data before that.
            compress: Deflate the data.

        Returns:
            Place and checksum of ``body`` (the place is meaningless in compressed data).

        Raises:
            SerializationError: The name was used before, or is too long for a zip.
        """
        raw = name.encode()
        if name in self._names or len(raw) > MAX16:
            problem = "used once" if name in self._names else "at most 65535 bytes long"
            message = f"expected member names to be {problem}, got {name[:80]!r}"
            raise SerializationError(message, code="NQX509")
        self._names.add(name)
        size = len(head) + len(body)
        entry = _Entry(raw, self._position, size=size, stored=size)
        entry.flags = 0 if len(raw) == len(name) else UTF8
        if size >= (0xF0000000 if compress else MAX32):
            entry.big = True
            entry.version = 45
        wide = entry.wide() if entry.big else b""
        at = self._position + 30 + len(raw) + len(wide) + len(head)
        if compress:
            crc = self._add_deflated(entry, head, body)
        else:
            padding = _PADDINGS[at % ALIGNMENT]
            at += len(padding)
            crc = self._add_stored(entry, wide + padding, head, body)
        self._directory.append(entry.central())
        return _Written(at, crc)

    def _add_stored(
        self, entry: _Entry, extra: bytes, head: bytes, body: bytes | memoryview
    ) -> int:
        """Writes the header and the data of a member; returns the checksum of ``body``."""
        if len(body) >= _LARGE:
            self._gather(entry.header(len(extra)), entry.raw, extra, head)
            crc = self._write_large(body)
            entry.crc = joined(crc32(head), crc, len(body))
            self._patch(entry.start + 14, struct.pack("<I", entry.crc))
            return crc
        body = bytes(body)
        crc = crc32(body)
        entry.crc = crc32(body, crc32(head)) if head else crc
        self._gather(entry.header(len(extra)), entry.raw, extra, head, body)
        if self._tick is not None:
            self._tick(len(body))
        return crc

    def _add_deflated(self, entry: _Entry, head: bytes, body: bytes | memoryview) -> int:
        """Writes the header and the deflated data of a member; returns the checksum of ``body``."""
        entry.method = DEFLATED
        wide = entry.wide()
        self._gather(bytes(LOCAL.size), entry.raw, wide)
        start = self._position
        packer = zlib.compressobj(6, zlib.DEFLATED, -15)
        self._gather(packer.compress(head))
        entry.crc = crc32(head)
        crc = 0
        view = memoryview(body)
        for at in range(0, len(view), _PIECE):
            piece = bytes(view[at : at + _PIECE])
            entry.crc = crc32(piece, entry.crc)
            crc = crc32(piece, crc)
            self._gather(packer.compress(piece))
            self._advance(len(piece))
        self._gather(packer.flush())
        entry.stored = self._position - start
        self._patch(entry.start, entry.header(len(wide)) + entry.raw + entry.wide())
        return crc

    def add_written(self, name: str, write: Callable[[BinaryIO], _T]) -> _T:
        """Appends one stored member whose data ``write`` puts into the file; returns the result of ``write``.

        The file must be readable too: the checksum is taken from the bytes that were written.
        """
        self._names.add(name)
        entry = _Entry(name.encode(), self._position, flags=UTF8, big=True, version=45)
        wide = entry.wide()
        padding = _PADDINGS[(entry.start + 30 + len(entry.raw) + len(wide)) % ALIGNMENT]
        self._gather(bytes(LOCAL.size), entry.raw, wide, padding)
        self._flush()
        begin = self._position
        result = write(self._file)
        entry.size = entry.stored = self._file.tell() - self._base - begin
        self._file.seek(self._base + begin)
        left = entry.size
        while left and (piece := self._file.read(min(left, _PIECE))):
            entry.crc = crc32(piece, entry.crc)
            left -= len(piece)
        self._position = begin + entry.size
        header = entry.header(len(wide) + len(padding))
        self._patch(entry.start, header + entry.raw + entry.wide())
        entry.big = entry.size >= MAX32
        self._directory.append(entry.central())
        return result

    def close(self) -> None:
        """Writes the directory; the file stays open."""
        begin, count = self._position, len(self._directory)
        self._gather(*self._directory)
        size = self._position - begin
        if count >= MAX16 or begin >= MAX32 or size >= MAX32:
            end = self._position
            self._gather(END64.pack(b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, begin))
            self._gather(LOCATOR.pack(b"PK\6\7", 0, end, 1))
        short = min(count, MAX16)
        where = (min(size, MAX32), min(begin, MAX32), 0)
        self._gather(END.pack(b"PK\5\6", 0, 0, short, short, *where))
        self._flush()

    def _gather(self, *parts: bytes | memoryview) -> None:
        self._gathered += parts
        size = sum(map(len, parts))
        self._position += size
        self._waiting += size
        if self._waiting > _PIECE:
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
        """Starts writing the last bytes to the disk while the next ones are copied, so that fsync waits less.

        Linux starts to write out the range; it drops only pages that are on the disk already. That costs as much as a write, so
        other threads than the main one, whose flushes overlap with the work of others, leave a small file to fsync.
        """
        if self._position < _PIECE and current_thread() is not main_thread():
            return
        if _ADVISE is not None and hasattr(self._file, "fileno"):
            place = self._base + self._position
            with suppress(OSError):  # io.UnsupportedOperation is one: the file is memory
                _ADVISE(self._file.fileno(), place, size, os.POSIX_FADV_DONTNEED)

    def _patch(self, place: int, data: bytes) -> None:
        self._flush()
        self._file.seek(self._base + place)
        write_all(self._file, memoryview(data))
        self._file.seek(self._base + self._position)

    def _advance(self, size: int) -> None:
        if self._tick is not None:
            self._tick(size)
