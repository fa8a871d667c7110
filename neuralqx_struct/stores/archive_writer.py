"""Writing zip archives whose members have their data on 64-byte borders, one member after the other.

Owns :class:`ArchiveWriter`; ``archive.py`` reads what it writes. Knows nothing of arrays nor of bundles.

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
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import BinaryIO, NamedTuple, TypeVar

from neuralqx_struct.errors import SerializationError
from neuralqx_struct.stores.checksums import crc32, joined, write_all, write_checked
from neuralqx_struct.stores.zip_records import (
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

__all__ = ["ArchiveWriter"]


_T = TypeVar("_T")
_DATE = 33  # 1 January 1980, the zero of zip times: the same arrays give the same bytes
_PADDING = 0xD935  # the extra field by which zipalign marks padding
_PIECE = 4 << 20  # what is deflated at a time
_LARGE = 1 << 20  # from here on data are written from where they are
_ADVISE = getattr(os, "posix_fadvise", None)


class _Written(NamedTuple):
    offset: int
    crc32: int


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
        if name in self._names or len(raw) > MAX16:
            problem = "used once" if name in self._names else "at most 65535 bytes long"
            raise SerializationError(f"expected member names to be {problem}, got {name[:80]!r}", code="NQX509")
        self._names.add(name)
        head_size, body_size = len(head), len(body)
        size = head_size + body_size
        flags = 0 if len(raw) == len(name) else UTF8
        big = size >= (0xF0000000 if compress else MAX32)
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
            shown = MAX32 if big else size
            self._gather(
                LOCAL.pack(b"PK\3\4", version, flags, 0, 0, _DATE, crc, shown, shown, len(raw), len(extra)),
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
        wide = ([*sizes] if big else []) + ([start] if start >= MAX32 else [])
        needed = 45 if wide else version
        extra = struct.pack(f"<HH{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
        size, stored = (MAX32, MAX32) if big else sizes
        ends = (len(raw), len(extra), 0, 0, 0, 0, min(start, MAX32))
        entry = CENTRAL.pack(b"PK\1\2", needed, needed, flags, method, 0, _DATE, crc, stored, size, *ends)
        self._directory.append(entry + raw + extra)

    def _add_deflated(
        self, raw: bytes, flags: int, extra: bytes, head: bytes, body: bytes | memoryview, *, big: bool
    ) -> tuple[int, int, int, int, int]:
        start, version = self._position, 45 if big else 20
        self._gather(bytes(LOCAL.size), raw, extra)
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
        shown = (MAX32, MAX32) if big else (stored, size)
        header = LOCAL.pack(b"PK\3\4", version, flags, DEFLATED, 0, _DATE, crc, *shown, len(raw), len(extra))
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
        self._gather(bytes(LOCAL.size), raw, extra)
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
        header = LOCAL.pack(b"PK\3\4", 45, UTF8, STORED, 0, _DATE, crc, MAX32, MAX32, len(raw), len(extra))
        self._patch(start, header + raw + struct.pack("<HHQQ", 1, 16, size, size))
        self._enter(raw, (45, UTF8, STORED), crc, (size, size), start, big=size >= MAX32)
        return result

    def close(self) -> None:
        """Write the directory; the file stays open."""
        begin, count = self._position, len(self._directory)
        self._gather(*self._directory)
        size = self._position - begin
        if count >= MAX16 or begin >= MAX32 or size >= MAX32:
            end = self._position
            self._gather(END64.pack(b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, begin))
            self._gather(LOCATOR.pack(b"PK\6\7", 0, end, 1))
        short = min(count, MAX16)
        self._gather(END.pack(b"PK\5\6", 0, 0, short, short, min(size, MAX32), min(begin, MAX32), 0))
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
