"""Bytes of a file, which is mapped, copied or behind a URL, and the arrays that lie in it.

:class:`Ranges` reads bytes, :class:`StoredArray` says which of them are an array, and what they mean. Every kind of file whose
arrays are bytes in it describes them so.

Example:
    >>> data = Ranges.of(memoryview(bytes(range(12))))
    >>> array = StoredArray("uint8", (4, 2), Range(4, 12))
    >>> array.read(data).tolist()
    [[4, 5], [6, 7], [8, 9], [10, 11]]
    >>> array.part(data, (slice(1, 3), slice(0, 1))).tolist()
    [[6], [8]]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from neuralqx_struct.dtypes import dtype_named
from neuralqx_struct.formats.archive import inflated
from neuralqx_struct.formats.store import Tick, require_nbytes, require_possible
from neuralqx_struct.manifest.payload import Region
from neuralqx_struct.places.checksums import checksum, crc32
from neuralqx_struct.places.requests import Blocks, Range, Read

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


class Ranges(NamedTuple):
    """The bytes of a file, read in ranges.

    Attributes:
        size: Its size.
        read: Returns the bytes from one place to another, and fetches no others.
        view: The bytes for parsers, which read many short ranges side by side.
        cheap: True if a range costs nothing until its bytes are used, as in a mapped file.
        fill: Copies the bytes at a place into memory, if arrays must be private.
        expect: Announces the ranges that will be read next, if that saves time.
    """

    size: int
    read: Read
    view: memoryview | Blocks
    cheap: bool
    fill: Callable[[memoryview, int], None] | None = None
    expect: Callable[[Iterable[Range]], None] | None = None

    @classmethod
    def of(cls, view: memoryview) -> Self:
        """The ranges of a mapped file."""
        return cls(len(view), lambda start, end: view[start:end], view, cheap=True)


View = memoryview | Blocks
"""The bytes of a file for parsers."""


class StoredArray(NamedTuple):
    """An array that lies in a file: what it is, and which bytes it has; reads nothing by itself.

    Attributes:
        dtype: The name of its dtype; the format's own name of one that cannot be read.
        shape: Its shape.
        place: Its bytes in the file; in the expanded data if it is deflated.
        crc32: Their checksum; None if there is none.
        lead: Bytes right before them that ``crc32`` covers too, as zip's own checksum covers headers.
        order: Their order in memory.
        packed: The deflated data that expand to all bytes up to the end of ``place``.
        more: The places of further bytes, of an array that was written in pieces.
    """

    dtype: str
    shape: tuple[int, ...]
    place: Range
    crc32: int | None = None
    lead: int = 0
    order: Literal["C", "F"] = "C"
    packed: Range | None = None
    more: tuple[Range, ...] = ()

    @property
    def is_plain(self) -> bool:
        """True if its bytes lie in the file as they do in memory, so that it can be mapped, and divided."""
        return self.packed is None and not self.more

    def read(self, data: Ranges) -> Array:
        """The array: a view of the file if it is mapped, else a copy; its checksum is not compared."""
        return self.checked(data, verify=False)[0]

    def checked(
        self, data: Ranges, tick: Tick | None = None, *, verify: bool = True
    ) -> tuple[Array, int | None]:
        """The array, and the checksum of its bytes; None if none is wanted, or there is none to compare it with.

        Args:
            data: The bytes of the file.
            tick: Called with the number of bytes whose checksum was computed.
            verify: Compute the checksum.
        """
        dtype, shape, (start, end), crc, lead, order, packed, more = self
        verify = verify and crc is not None
        first = start - lead if verify else start
        found: int | None = None
        if packed is not None:
            room = _aligned(end - start, start)
            at = 0
            for piece in inflated(data.read(*packed), end):
                room[at : at + len(piece)] = piece
                at += len(piece)
            held = room[first:]
        elif more:
            held = memoryview(b"".join(data.read(*each) for each in (Range(first, end), *more)))
        elif data.fill is not None:
            held, fill = _aligned(end - start, start - first), data.fill
            if verify:
                found = checksum(held, tick, lambda piece, at: fill(piece, first + at))
            else:
                fill(held, first)
        else:
            held = data.read(first, end) if first < end else memoryview(b"")
        if verify and found is None:
            found = checksum(held, tick)
        lead = start - first
        if len(held) > lead:
            made: Array = _numpy().ndarray(shape, dtype_named(dtype), held, lead, order=order)
        else:
            made = _numpy().empty(shape, dtype_named(dtype))
        if made.flags.writeable:  # not in a map
            made.flags.writeable = False
        return made, found

    def checksum(self, data: Ranges, tick: Tick | None = None) -> int | None:
        """The checksum of its bytes, without keeping them; None if there is none to compare it with."""
        if self.crc32 is None:
            return None
        if self.packed is None:
            nbytes = sum(end - start for start, end in (self.place, *self.more))
            return self._replace(dtype="uint8", shape=(nbytes,)).checked(data, tick)[1]
        found, skip = 0, self.place.start - self.lead
        for piece in inflated(data.read(*self.packed), self.place.end):
            body = memoryview(piece)[skip:]
            skip = max(skip - len(piece), 0)
            found = crc32(body, found)
            if tick is not None:
                tick(len(body))
        return found

    def part(self, data: Ranges, region: Region) -> Array:
        """A part of an array; of a plain one, reads the bytes from its first to its last row alone.

        A row is an item of the first axis of which the part has more than one. The checksum is that of the whole array, so none
        is compared.
        """
        if not self.is_plain or not all(self.shape):
            return self.read(data)[region]
        if self.order == "F":
            turned = self._replace(shape=self.shape[::-1], order="C")
            return turned.part(data, region[::-1]).T
        start, itemsize = self.place.start, dtype_named(self.dtype).itemsize
        before: list[int] = []
        for size, chosen in zip(self.shape, region, strict=True):
            axis = len(before)
            indices = range(*chosen.indices(size))
            row = prod(self.shape[axis + 1 :]) * itemsize
            if len(indices) == 1:
                start += indices[0] * row
                before.append(1)
                continue
            low, high = (min(indices), max(indices) + 1) if indices else (0, 0)
            shape = (*before, high - low, *self.shape[axis + 1 :])
            rows = StoredArray(self.dtype, shape, Range(start + low * row, start + high * row))
            whole = (slice(None),) * axis
            return rows.read(data)[(*whole, slice(None, None, indices.step), *region[axis + 1 :])]
        return StoredArray(self.dtype, (*before,), Range(start, start + itemsize)).read(data)


@cache
def _numpy() -> Any:
    """The module, imported with the first array; a statement in each call would take a tenth of it."""
    import numpy as np

    return np


def recorded(record: Mapping[str, Any]) -> StoredArray:
    """The array at the place that its record in a manifest names.

    Raises:
        SerializationError: Its dtype is unknown.
        IntegrityError: The record does not agree with itself.
    """
    dtype, shape = record["dtype"], tuple(record["shape"])
    itemsize = dtype_named(dtype).itemsize
    require_possible(shape, itemsize)
    require_nbytes(record, prod(shape) * itemsize)
    start = record["offset"]
    return StoredArray(dtype, shape, Range(start, start + record["nbytes"]), record["crc32"])


def _aligned(size: int, lead: int = 0) -> memoryview:
    """Private memory whose bytes after the lead are at a 64-byte boundary, so that JAX can adopt them without a copy."""
    room = _numpy().empty(size + lead + 64, "uint8")
    skip = -(int(room.ctypes.data) + lead) % 64
    return memoryview(room.data)[skip : skip + lead + size]
