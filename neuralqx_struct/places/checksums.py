"""Checksums of arrays: the CRC-32 of bytes that are read, and of bytes while they are written.

:data:`crc32` is ISA-L's implementation if its package is installed, since it keeps up with memory, else zlib's; both give
the same numbers.

Example:
    >>> hex(crc32(b"hello")), checksum(b"hello") == joined(crc32(b"he"), crc32(b"llo"), 3)
    ('0x3610a686', True)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from typing import BinaryIO, Final

__all__ = ["checksum", "crc32", "joined", "write_all", "write_checked"]

try:
    from isal.isal_zlib import crc32
except ImportError:  # no wheel for this machine
    from zlib import crc32


_PIECE: Final = 4 << 20  # bytes for one thread at a time
_MOST_THREADS: Final = 8
# Bytes written at a time: they stay in the cache of a core between being copied, checked and written.
_COPIED: Final = 512 << 10


def _times(a: int, b: int) -> int:
    """The product of two polynomials modulo that of CRC-32, in its reflected bit order."""
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = b >> 1 ^ 0xEDB88320 if b & 1 else b >> 1
    return product


@lru_cache(maxsize=64)
def _shift(length: int) -> int:
    """The polynomial x**(8 * length), by which ``length`` further bytes multiply a checksum."""
    shift, power = 0x80000000, 0x00800000  # 1, and x**8: one byte
    while length:
        if length & 1:
            shift = _times(shift, power)
        power = _times(power, power)
        length >>= 1
    return shift


def joined(first: int, second: int, length: int) -> int:
    """The checksum of two pieces from those of each; ``length`` is that of the second piece."""
    return _times(_shift(length), first) ^ second


def checksum(
    data: bytes | memoryview,
    tick: Callable[[int], None] | None = None,
    fill: Callable[[memoryview, int], None] | None = None,
) -> int:
    """The CRC-32 of data; large data are split among several threads.

    Args:
        data: The bytes.
        tick: Called with the size of each piece that is done.
        fill: Called with each piece and its place, to fill it right before its checksum is computed.
    """
    size = len(data)
    if size < 2 * _PIECE:
        if fill is not None:
            fill(memoryview(data), 0)
        if tick is not None:
            tick(size)
        return crc32(data)
    # Half of a start-up, so it is imported for large data only.
    from concurrent.futures import ThreadPoolExecutor

    view = memoryview(data)

    def found(at: int, end: int) -> int:
        piece = view[at:end]
        if fill is not None:
            fill(piece, at)
        return crc32(piece)

    starts = range(0, size, _PIECE)
    ends = [*starts[1:], size]
    crc = 0
    with ThreadPoolExecutor(min(os.cpu_count() or 1, _MOST_THREADS)) as pool:
        for at, end, part in zip(starts, ends, pool.map(found, starts, ends), strict=True):
            crc = joined(crc, part, end - at)
            if tick is not None:
                tick(end - at)
    return crc


def write_checked(
    file: BinaryIO, body: bytes | memoryview, tick: Callable[[int], None] | None = None
) -> int:
    """Writes data and returns the CRC-32 of the bytes written, also if the data change meanwhile.

    Each piece is copied first; checksum and write use the copy.

    Args:
        file: Written from its position on.
        body: The bytes.
        tick: Called with the size of each piece that is written.
    """
    view = memoryview(body)
    size = len(view)
    crc = 0
    room = memoryview(bytearray(min(size, _COPIED)))
    for at in range(0, size, _COPIED):
        piece = room[: min(_COPIED, size - at)]
        piece[:] = view[at : at + _COPIED]
        crc = crc32(piece, crc)
        write_all(file, piece)
        if tick is not None:
            tick(len(piece))
    return crc


def write_all(file: BinaryIO, data: memoryview) -> None:
    """Writes all of the data: a file without a buffer may take a part only."""
    while len(data):
        data = data[file.write(data) :]
