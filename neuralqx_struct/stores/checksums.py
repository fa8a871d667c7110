"""CRC-32 checksums: of bytes that are read, and of bytes while they are written.

Owns the choice of the implementation: ISA-L's where its package is installed, which keeps up with memory, else zlib's; both give
the same numbers. Everything else in the package takes :data:`crc32` from here.

Example:
    >>> hex(crc32(b"hello")), checksum(b"hello") == joined(crc32(b"he"), crc32(b"llo"), 3)
    ('0x3610a686', True)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from typing import BinaryIO, Final

try:
    from isal.isal_zlib import crc32
except ImportError:  # no wheel for this machine
    from zlib import crc32

__all__ = ["checksum", "crc32", "joined", "write_all", "write_checked"]

_PIECE: Final = 4 << 20  # what a thread takes at a time
_MOST_THREADS: Final = 8
_COPIED: Final = 512 << 10  # written at a time: stays in the cache of a core between being copied, checked and written


def _times(a: int, b: int) -> int:
    """Product of two polynomials modulo the polynomial of CRC-32, in its reflected bit order."""
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = b >> 1 ^ 0xEDB88320 if b & 1 else b >> 1
    return product


@lru_cache(maxsize=64)
def _shift(length: int) -> int:
    """The polynomial x**(8 * length): what that many bytes do to the checksum of those before them."""
    shift, power = 0x80000000, 0x00800000  # 1, and x**8: one byte
    while length:
        if length & 1:
            shift = _times(shift, power)
        power = _times(power, power)
        length >>= 1
    return shift


def joined(first: int, second: int, length: int) -> int:
    """The checksum of two pieces from the checksums of each; ``length`` is that of the second."""
    return _times(_shift(length), first) ^ second


def checksum(
    data: bytes | memoryview,
    tick: Callable[[int], None] | None = None,
    fill: Callable[[memoryview, int], None] | None = None,
) -> int:
    """The CRC-32 of data; of large data worked out by several threads, piece by piece, while this one counts.

    Args:
        data: The bytes.
        tick: Called with the size of each piece that is done.
        fill: Called with each piece and its place, to put its bytes there right before they are looked at.
    """
    size = len(data)
    if size < 2 * _PIECE:
        if fill is not None:
            fill(memoryview(data), 0)
        if tick is not None:
            tick(size)
        return crc32(data)
    from concurrent.futures import ThreadPoolExecutor  # half a start-up, for those who read no large data

    view = memoryview(data)

    def found(at: int, end: int) -> int:
        piece = view[at:end]
        if fill is not None:
            fill(piece, at)
        return crc32(piece)

    starts = range(0, size, _PIECE)
    ends = [*starts[1:], size]
    threads = min(os.cpu_count() or 1, _MOST_THREADS)
    with ThreadPoolExecutor(threads) as pool:
        crc = 0
        for at, end, part in zip(starts, ends, pool.map(found, starts, ends), strict=True):
            crc = joined(crc, part, end - at)
            if tick is not None:
                tick(end - at)
    return crc


def write_checked(file: BinaryIO, body: bytes | memoryview, tick: Callable[[int], None] | None = None) -> int:
    """Write a body and give the CRC-32 of what was written, whoever changes the body meanwhile.

    Each piece is copied, and the copy is what is looked at and written.

    Args:
        file: Where, at its position.
        body: The bytes.
        tick: Called with the size of each piece that is written.
    """
    view, size, crc = memoryview(body), len(body), 0
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
    """Write all of it: a file without a buffer may take less than it is given."""
    while len(data):
        data = data[file.write(data) :]
