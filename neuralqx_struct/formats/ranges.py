"""Ranges of bytes of a file, which is mapped or behind a URL, and the arrays in them.

Example:
    >>> data = Ranges.of(memoryview(bytes(range(12))))
    >>> array_in(data, 4, "uint8", (4, 2)).tolist()
    [[4, 5], [6, 7], [8, 9], [10, 11]]
    >>> part_in(data, 4, "uint8", (4, 2), (slice(1, 3), slice(0, 1))).tolist()
    [[6], [8]]
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from math import prod
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from neuralqx_struct.manifest.payload import Region

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike

    Array = np.ndarray[Any, Any]

_BLOCK: Final = 64 << 10  # bytes that are fetched for a shorter range
_MOST_BLOCKS: Final = 64  # blocks that are kept
_AT_ONCE: Final = 8  # requests for ranges that are fetched ahead
_MOST_AHEAD: Final = 64 << 20  # bytes of these
_GAP: Final = 4 << 10  # bytes between two of them that are fetched too
_TOGETHER: Final = 1 << 20  # bytes of a request that takes no further range


class Ranges(NamedTuple):
    """The bytes of a file, read in ranges.

    Attributes:
        size: Its size.
        read: Returns the bytes from one place to another, and fetches no others.
        view: The bytes for parsers, which read many short ranges side by side.
        cheap: True if a range costs nothing until its bytes are used, as in a mapped file.
    """

    size: int
    read: Callable[[int, int], memoryview]
    view: memoryview | Blocks
    cheap: bool

    @classmethod
    def of(cls, view: memoryview) -> Self:
        """The ranges of a mapped file."""
        return cls(len(view), lambda start, end: view[start:end], view, cheap=True)


class Blocks:
    """The bytes behind a URL with the members of a memoryview that parsers use; short ranges are fetched in blocks.

    Args:
        size: The number of bytes.
        read: Returns the bytes from one place to another.

    Example:
        >>> asked = []
        >>> blocks = Blocks(10, lambda start, end: asked.append((start, end)) or memoryview(bytes(end - start)))
        >>> len(blocks), len(blocks[2:5]), blocks[9], len(blocks[8:99]), asked
        (10, 3, 0, 2, [(0, 10)])
    """

    def __init__(self, size: int, read: Callable[[int, int], memoryview]) -> None:
        self._size, self._read = size, read
        self._held: OrderedDict[int, memoryview] = OrderedDict()
        self._ahead: list[tuple[int, memoryview]] = []

    def fetch(self, ranges: Iterable[tuple[int, int]], before: int = 0, behind: int = 0) -> None:
        """Fetches ranges that will be asked for, several at a time; near ones together. Forgets earlier ones.

        Args:
            ranges: Where they start and end; ends behind the file are taken as its end. Those behind a limit are left out.
            before: Bytes in front of each that are fetched too.
            behind: Bytes behind each.
        """
        from concurrent.futures import ThreadPoolExecutor

        wider = ((max(start - before, 0), end + behind) for start, end in ranges)
        wanted = [*_together(wider, self._size)]
        self._ahead = []
        if wanted:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                fetched = [*pool.map(self._read, *zip(*wanted, strict=True))]
            self._ahead = [(start, data) for (start, _), data in zip(wanted, fetched, strict=True)]

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, slice):
            return self._block(key // _BLOCK)[key % _BLOCK]
        start, end, _ = key.indices(self._size)
        if end <= start:
            return memoryview(b"")
        near = bisect_right(self._ahead, start, key=itemgetter(0))
        for at, data in self._ahead[max(near - 1, 0) : near]:
            if end <= at + len(data):
                return data[start - at : end - at]
        first, last = start // _BLOCK, (end - 1) // _BLOCK
        if last - first > 1:
            return self._read(start, end)
        inside = slice(start - first * _BLOCK, end - first * _BLOCK)
        if first == last:
            return self._block(first)[inside]
        return memoryview(b"".join((self._block(first), self._block(last))))[inside]

    def _block(self, number: int) -> memoryview:
        if number not in self._held:
            start = number * _BLOCK
            self._held[number] = self._read(start, min(start + _BLOCK, self._size))
            if len(self._held) > _MOST_BLOCKS:
                self._held.popitem(last=False)
        return self._held[number]


def _together(ranges: Iterable[tuple[int, int]], size: int) -> Iterator[tuple[int, int]]:
    """Yields ranges of a file of a size in their order, near ones as one; up to a limit."""
    first = last = -_GAP
    left = _MOST_AHEAD
    for start, stop in sorted(ranges):
        end = min(stop, size)
        if start >= end or left < 0:
            continue
        if start - last >= _GAP or last - first >= _TOGETHER:
            if first >= 0:
                yield first, last
            left -= last - first
            first, last = start, end
        last = max(last, end)
    if first >= 0:
        yield first, last


View = memoryview | Blocks
"""The bytes of a file for parsers."""


def array_in(data: Ranges, start: int, dtype: DTypeLike, shape: tuple[int, ...]) -> Array:
    """The array whose elements begin at a place, in C order."""
    import numpy as np

    kind = np.dtype(dtype)
    end = start + prod(shape) * kind.itemsize
    if start < end:
        return np.ndarray(shape, kind, data.read(start, end))
    made = np.empty(shape, kind)
    made.flags.writeable = False
    return made


def part_in(
    data: Ranges, start: int, dtype: DTypeLike, shape: tuple[int, ...], region: Region
) -> Array:
    """A part of such an array; reads the bytes from its first to its last row alone.

    A row is an item of the first axis of which the part has more than one.
    """
    import numpy as np

    kind = np.dtype(dtype)
    if not all(shape):
        return array_in(data, start, kind, shape)[region]
    before: list[int] = []
    for size, part in zip(shape, region, strict=True):
        axis = len(before)
        chosen = range(*part.indices(size))
        row = prod(shape[axis + 1 :]) * kind.itemsize
        if len(chosen) == 1:
            start += chosen[0] * row
            before.append(1)
            continue
        low, high = (min(chosen), max(chosen) + 1) if chosen else (0, 0)
        inner = (*before, high - low, *shape[axis + 1 :])
        held = array_in(data, start + low * row, kind, inner)
        whole = (slice(None),) * axis
        return held[(*whole, slice(None, None, chosen.step), *region[axis + 1 :])]
    return array_in(data, start, kind, tuple(before))
