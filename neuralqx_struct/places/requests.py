r"""Requests for ranges of remote bytes: neighbours together, several at a time, within bounds of memory.

All that is fetched ahead of its use is fetched by :func:`in_order`: arrays of bundles, headers of foreign files, and the
pieces of files that are downloaded.

Example:
    >>> data = bytes(range(100))
    >>> near = [Range(0, 4), Range(8, 12), Range(90_000, 90_004)]
    >>> [*grouped(near)]
    [Range(start=0, end=12), Range(start=90000, end=90004)]
    >>> read = lambda start, end: memoryview(data)[start:end]
    >>> [bytes(piece) for piece in in_order(read, [Range(1, 3), Range(6, 7)])]
    [b'\x01\x02', b'\x06']
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, cast

from neuralqx_struct.errors import UntrustedError
from neuralqx_struct.places.checksums import write_all
from neuralqx_struct.places.disk import BundleReadError, scratch_folder
from neuralqx_struct.places.urls import RemotePath

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

Read = Callable[[int, int], memoryview]
"""Returns the bytes from one place to another, in one request."""

_AT_ONCE: Final = 8  # requests
_AHEAD: Final = 256 << 20  # bytes that are fetched before anybody asks for them
_GROUP: Final = 8 << 20  # bytes of neighbouring ranges that one request fetches
_GAP: Final = 4 << 10  # bytes between two of them, such as headers, that are fetched too
_PIECE: Final = 16 << 20  # bytes of a whole file in one request
_BLOCK: Final = 64 << 10  # bytes that are fetched for a shorter range
_MOST_BLOCKS: Final = 64  # blocks that are kept
_MOST_HEADERS: Final = 64 << 20  # bytes of ranges that are kept
_ELSEWHERE: Final = {"", ".", ".."}


class Range(NamedTuple):
    """The bytes of a file from one place to another."""

    start: int
    end: int

    def has(self, other: Range) -> bool:
        """True if it has all bytes of another one."""
        return self.start <= other.start and other.end <= self.end


@cache
def _pool() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(_AT_ONCE, "requests")


def in_order(read: Read, ranges: Iterable[Range]) -> Iterator[memoryview]:
    """Yields the bytes of ranges in their order; several are requested at a time."""
    begun: deque[tuple[int, Future[memoryview]]] = deque()
    waiting = 0
    for start, end in ranges:
        size = end - start
        while begun and (len(begun) == _AT_ONCE or waiting + size > _AHEAD):
            first, future = begun.popleft()
            waiting -= first
            yield future.result()
        begun.append((size, _pool().submit(read, start, end)))
        waiting += size
    for _, future in begun:
        yield future.result()


def grouped(ranges: Iterable[Range]) -> Iterator[Range]:
    """Yields ranges in their order, neighbours as one, and no empty ones."""
    group: Range | None = None
    for each in ranges:
        if each.start >= each.end:
            continue
        if group is not None:
            end = max(group.end, each.end)
            near = group.start <= each.start <= group.end + _GAP
            if near and end - group.start <= _GROUP:
                group = Range(group.start, end)
                continue
            yield group
        group = each
    if group is not None:
        yield group


class Ahead:
    """Reads ranges; those that are announced are fetched ahead in their order, neighbours together.

    Args:
        read: Returns the bytes from one place to another.

    Example:
        >>> asked = []
        >>> ahead = Ahead(lambda start, end: asked.append((start, end)) or memoryview(bytes(end - start)))
        >>> ahead.expect([Range(0, 4), Range(8, 12)])
        >>> len(ahead.read(0, 4)), len(ahead.read(8, 12)), asked
        (4, 4, [(0, 12)])
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._groups: deque[Range] = deque()  # that are announced
        self._coming: Iterator[memoryview] = iter(())  # their bytes
        self._group: tuple[Range, memoryview] = Range(0, 0), memoryview(b"")  # the newest of them

    def expect(self, ranges: Iterable[Range]) -> None:
        """Announces the ranges that will be read next."""
        self._groups = deque(grouped(ranges))
        self._coming = in_order(self._read, tuple(self._groups))

    def read(self, start: int, end: int) -> memoryview:
        """The bytes from one place to another."""
        wanted = Range(start, end)
        if not self._group[0].has(wanted) and any(each.has(wanted) for each in self._groups):
            self._advance(wanted)
        group, data = self._group
        if group.has(wanted):
            return data[start - group.start : end - group.start]
        return self._read(start, end)

    def _advance(self, wanted: Range) -> None:
        """Takes announced groups up to the one with these bytes; after a fault none is expected."""
        while self._groups:
            group = self._groups.popleft()
            try:
                self._group = group, next(self._coming)
            except BaseException:
                self._groups.clear()
                raise
            if group.has(wanted):
                return


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

    def __init__(self, size: int, read: Read) -> None:
        self._size, self._read = size, read
        self._held: OrderedDict[int, memoryview] = OrderedDict()
        self._ahead: list[tuple[int, memoryview]] = []

    def fetch(self, ranges: Iterable[tuple[int, int]], before: int = 0, behind: int = 0) -> None:
        """Fetches ranges that will be asked for, and keeps them; forgets earlier ones.

        Args:
            ranges: Where they start and end; ends behind the file are taken as its end. Those behind a limit are left out.
            before: Bytes in front of each that are fetched too.
            behind: Bytes behind each.
        """
        wider = (
            Range(max(start - before, 0), min(end + behind, self._size)) for start, end in ranges
        )
        wanted = [*_up_to(_MOST_HEADERS, grouped(sorted(wider)))]
        self._ahead = []
        for (start, _), data in zip(wanted, in_order(self._read, wanted), strict=True):
            self._ahead.append((start, data))

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


def _up_to(most: int, ranges: Iterable[Range]) -> Iterator[Range]:
    """Yields ranges of so many bytes in all."""
    for each in ranges:
        most -= each.end - each.start
        if most < 0:
            return
        yield each


# Whole files


def download(place: RemotePath, file: BinaryIO, size: int) -> None:
    """Writes the bytes of a file of this size to an open one; never more."""
    pieces = (Range(start, min(start + _PIECE, size)) for start in range(0, size, _PIECE))
    for piece in in_order(place.fetched, pieces):
        write_all(file, piece)


def downloaded_region(place: RemotePath, size: int) -> tuple[BinaryIO, int, int]:
    """A region of a temporary file with the bytes of a whole file."""
    from tempfile import TemporaryFile

    file = cast("BinaryIO", TemporaryFile(buffering=0))  # noqa: SIM115 - the caller closes it
    try:
        download(place, file, size)
    except BaseException:
        file.close()
        raise
    return file, 0, size


def downloaded(place: RemotePath, *, folder: bool) -> tuple[Path, Callable[[], None]]:
    """A temporary copy of a file or folder, for programs that read nothing else; and the function that removes it.

    Args:
        place: The file or folder.
        folder: It is a folder, which servers of http do not tell.

    Raises:
        BundleReadError: The disk has no room for it.
    """
    holder = scratch_folder()
    target = Path(holder.name, Path(place.name).name or "folder")
    try:
        if folder:
            download_tree(place, target)
        else:
            _require_room(place, place.size, target.parent)
            with target.open("xb", buffering=0) as file:
                download(place, cast("BinaryIO", file), place.size)
    except BaseException:
        holder.cleanup()
        raise
    return target, holder.cleanup


def _require_room(place: RemotePath, size: int, folder: Path) -> None:
    """Checks that a disk has room for a download, whatever size a server claims."""
    import shutil

    free = shutil.disk_usage(folder).free
    if size > free:
        message = f"expected at most {free} bytes, which the disk of {folder.parent} has room for, got {size}"
        hint = "download it to another disk, or set TMPDIR to a folder there"
        raise BundleReadError(message, file=str(place), hint=hint)


def download_tree(place: RemotePath, target: Path, without: Collection[str] = ()) -> None:
    """Downloads the files of a folder into a new or empty one, but for those at or below some names in it.

    Raises:
        UntrustedError: The name of a file leads elsewhere.
        BundleReadError: The disk has no room for them.
    """
    target.mkdir(exist_ok=True)
    sizes: dict[str, int] = {}
    for name, facts in place.files_below().items():
        parts = name.split("/")
        if not _ELSEWHERE.isdisjoint(parts) or any(Path(part).name != part for part in parts):
            message = f"expected the name of a file in the folder, got {name!r}"
            raise UntrustedError(message, code="NQX503", file=str(place))
        if parts[0] not in without:
            size = facts.get("size")
            sizes[name] = ((place / name).known_size if size is None else size) or 0
    _require_room(place, sum(sizes.values()), target)
    for name, size in sizes.items():
        path = target.joinpath(*name.split("/"))
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb", buffering=0) as out:
            download(place / name, cast("BinaryIO", out), size)
            os.fsync(out.fileno())
