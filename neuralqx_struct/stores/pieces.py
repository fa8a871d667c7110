"""Pieces: how the values of an array are cut where several devices wrote it, each piece with a checksum of its own.

Owns what ``chunk`` and ``chunk_crc32`` of a record mean: the shape of every piece, and their checksums in C order; ``crc32`` is
then that of all pieces, one after the other. An array without them is one piece.

Example:
    >>> pieces = Pieces.of({"shape": [4, 4], "chunk": [2, 4], "chunk_crc32": [7, 8]})
    >>> list(pieces.corners((slice(1, 3), slice(0, 1)))), pieces.checksum((2, 0))
    ([(0, 0), (2, 0)], 8)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod
from typing import Any

from neuralqx_struct.arrays import Region
from neuralqx_struct.stores.checksums import joined

__all__ = ["Corner", "Pieces", "extent", "inside", "region_text"]

Corner = tuple[int, ...]
"""The place of the first element of a piece, which names the piece."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """The pieces of one array.

    Attributes:
        shape: The shape of the array.
        chunk: The shape of each piece.
        sums: Their checksums.
    """

    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    sums: Sequence[int]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Pieces:
        """The pieces that a record describes."""
        shape = tuple(record["shape"])
        return cls(shape, tuple(record.get("chunk", shape)), record.get("chunk_crc32", [record.get("crc32", 0)]))

    def corners(self, region: Region) -> Iterator[Corner]:
        """The pieces that a region has elements of."""
        steps = [(part, max(size, 1)) for part, size in zip(region, self.chunk, strict=True)]
        return product(*(range(part.start // size * size, part.stop, size) for part, size in steps))

    def region(self, corner: Corner) -> Region:
        """Where a piece is."""
        return tuple(slice(first, first + size) for first, size in zip(corner, self.chunk, strict=True))

    def index(self, corner: Corner) -> int:
        """The position of a piece among all of them."""
        position = 0
        for first, whole, size in zip(corner, self.shape, self.chunk, strict=True):
            position = position * (whole // size) + first // size
        return position

    def checksum(self, corner: Corner) -> int:
        """The checksum of a piece."""
        return self.sums[self.index(corner)]

    def count(self) -> int:
        """How many there are."""
        return prod(whole // size for whole, size in zip(self.shape, self.chunk, strict=True))

    def whole(self, itemsize: int) -> int:
        """The checksum of all pieces, one after the other."""
        nbytes = prod(self.chunk) * itemsize
        return reduce(lambda crc, own: joined(crc, own, nbytes), self.sums)

    def problem(self, itemsize: int, crc32: int | None) -> str | None:
        """Why an array of this shape, and of this checksum if one is given, has no such pieces, in words."""
        if len(self.chunk) != len(self.shape) or any(
            not 0 < size <= whole or whole % size for whole, size in zip(self.shape, self.chunk, strict=True)
        ):
            return f"expected a chunk that divides {list(self.shape)}, got {list(self.chunk)}"
        if len(self.sums) != self.count():
            return f"expected {self.count()} checksums of chunks, got {len(self.sums)}"
        if crc32 is not None and (whole := self.whole(itemsize)) != crc32:
            return f"expected checksums of chunks that make up {crc32:#010x}, got {whole:#010x}"
        return None


def extent(region: Region) -> tuple[int, ...]:
    """The shape of a region."""
    return tuple(part.stop - part.start for part in region)


def inside(region: Region, other: Region) -> Region:
    """The part of a region that another has too, counted from where the region begins."""
    return tuple(
        slice(max(own.start, part.start) - own.start, min(own.stop, part.stop) - own.start)
        for own, part in zip(region, other, strict=True)
    )


def region_text(region: Region) -> str:
    """A region as numpy writes it.

    Example:
        >>> region_text((slice(0, 2), slice(4, 8)))
        '[0:2, 4:8]'
    """
    return f"[{', '.join(f'{part.start}:{part.stop}' for part in region)}]"
