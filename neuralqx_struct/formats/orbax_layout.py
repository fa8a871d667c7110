"""Layout of an Orbax checkpoint: its folder, keys, dtypes, and pieces of arrays with a checksum each.

A key is an array's name, percent-encoded except for letters, digits and ``_.-~``. A dtype that zarr has no
name for is stored as bytes. An array that several devices wrote is cut into pieces of equal shape: its
record has their shape as ``chunk`` and their checksums in C order as ``chunk_crc32``; its ``crc32`` is then
that of all pieces, one after the other. An array without them is one piece.

Example:
    >>> key_of("layers[0]/w"), stored_as("complex64", [2]), stored_as("<U2", [3])
    ('layers%5B0%5D%2Fw', ('complex64', (2,)), ('uint8', (3, 8)))
    >>> pieces = Pieces.of({"shape": [4, 4], "chunk": [2, 4], "chunk_crc32": [7, 8]})
    >>> list(pieces.corners((slice(1, 3), slice(0, 1)))), pieces.checksum((2, 0))
    ([(0, 0), (2, 0)], 8)
    >>> Files(Path("/runs/1/arrays.orbax")).ocdbt("w/")
    {'driver': 'ocdbt', 'base': {'driver': 'file', 'path': '/runs/1/arrays.orbax/'}, 'path': 'w/'}
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from neuralqx_struct.dtypes import NUMPY_DTYPES, dtype_named
from neuralqx_struct.errors import Diagnostic, IntegrityError, StructError, UntrustedError
from neuralqx_struct.formats.store import about
from neuralqx_struct.manifest.payload import Region
from neuralqx_struct.places.checksums import joined
from neuralqx_struct.printing import first_line
from neuralqx_struct.references import imported

_NATIVE: Final = NUMPY_DTYPES | {"bfloat16"}
#: The file of each step, and of each checkpoint without a manager.
STEP_METADATA: Final = "_CHECKPOINT_METADATA"
TREE_METADATA: Final = "_METADATA"  # of a tree that handlers of Orbax wrote
Corner = tuple[int, ...]
"""The place of the first element of a piece, which identifies the piece."""


def package(name: str) -> Any:
    """A module of the extra ``orbax``.

    Raises:
        SerializationError: NQX615: it is not installed.
    """
    return imported(name, "orbax", "checkpoints of Orbax")


def key_of(name: str) -> str:
    """The key of an array in the checkpoint."""
    return quote(name, safe="") or "%"


def stored_as(logical: str, shape: Collection[int]) -> tuple[str, tuple[int, ...]]:
    """The dtype and shape in zarr for an array, of the same number of bytes."""
    if logical in _NATIVE:
        return logical, tuple(shape)
    itemsize = dtype_named(logical).itemsize
    return "uint8", tuple(shape) if itemsize == 1 else (*shape, itemsize)


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
        sums = record.get("chunk_crc32", [record.get("crc32", 0)])
        return cls(shape, tuple(record.get("chunk", shape)), sums)

    def corners(self, region: Region) -> Iterator[Corner]:
        """The pieces that share elements with a region."""
        ranges = []
        for part, size in zip(region, self.chunk, strict=True):
            step = max(size, 1)
            ranges.append(range(part.start // step * step, part.stop, step))
        return product(*ranges)

    def region(self, corner: Corner) -> Region:
        """The region of a piece."""
        pairs = zip(corner, self.chunk, strict=True)
        return tuple(slice(first, first + size) for first, size in pairs)

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
        """The number of pieces."""
        return prod(whole // size for whole, size in zip(self.shape, self.chunk, strict=True))

    def whole(self, itemsize: int) -> int:
        """The checksum of all pieces, one after the other."""
        nbytes = prod(self.chunk) * itemsize
        return reduce(lambda crc, own: joined(crc, own, nbytes), self.sums)

    def problem(self, itemsize: int, crc32: int | None) -> str | None:
        """The reason why an array of this shape, and of this checksum if given, has no such pieces."""
        shape, chunk = self.shape, self.chunk
        if len(chunk) != len(shape) or not all(
            0 < size <= whole and whole % size == 0
            for size, whole in zip(chunk, shape, strict=True)
        ):
            return f"expected a chunk that divides {list(shape)}, got {list(chunk)}"
        if len(self.sums) != self.count():
            return f"expected {self.count()} checksums of chunks, got {len(self.sums)}"
        if crc32 is not None and (whole := self.whole(itemsize)) != crc32:
            return f"expected checksums of chunks that make up {crc32:#010x}, got {whole:#010x}"
        return None


def extent(region: Region) -> tuple[int, ...]:
    """The shape of a region."""
    return tuple(part.stop - part.start for part in region)


def inside(region: Region, other: Region) -> Region:
    """The part of a region that another shares, counted from the start of the region."""
    shared = []
    for own, part in zip(region, other, strict=True):
        start, stop = max(own.start, part.start), min(own.stop, part.stop)
        shared.append(slice(start - own.start, stop - own.start))
    return tuple(shared)


def region_text(region: Region) -> str:
    """A region as numpy writes it.

    Example:
        >>> region_text((slice(0, 2), slice(4, 8)))
        '[0:2, 4:8]'
    """
    return f"[{', '.join(f'{part.start}:{part.stop}' for part in region)}]"


#: The errors that tensorstore raises for damaged files.
_FAULTS: Final = (ValueError, KeyError, OSError, RuntimeError, NotImplementedError, TypeError)


class Files(os.PathLike[str]):
    """The files of a checkpoint in a folder on a disk; ``orbax_remote.py`` has those behind URLs.

    Args:
        root: The folder.
    """

    def __init__(self, root: Path) -> None:
        self._path = root

    def __fspath__(self) -> str:
        return str(self._path)

    def __str__(self) -> str:
        return str(self._path)

    @cached_property
    def stored(self) -> int:
        """The size of all files, which are found to be files and folders only."""
        return _plain_size(self)

    def has(self, name: str) -> bool:
        """True if there is such a file."""
        return Path(self, name).is_file()

    def content(self, name: str, most: int) -> bytes:
        """The bytes of a file, of a large one the first so many."""
        with Path(self, name).open("rb") as file:
            return file.read(most)

    def driver(self, place: str) -> dict[str, Any]:
        """The description of a folder in it for tensorstore, which takes a path absolute and without ``..``."""
        path = Path(self).absolute()
        text = os.path.realpath(path) if ".." in path.parts else str(path)
        return {"driver": "file", "path": f"{text}/{place}"}

    def ocdbt(self, place: str = "") -> dict[str, Any]:
        """The description of the keys below one in its key-value store."""
        return {"driver": "ocdbt", "base": self.driver(""), "path": place}

    @contextmanager
    def faults(self, name: str | None = None) -> Iterator[None]:
        """Raises errors of tensorstore as errors about an array, or about the checkpoint."""
        fault: Exception | None = None
        try:
            yield
        except StructError:
            raise
        except _FAULTS as error:
            fault = error
        self.require_same(failed=fault is not None)
        if fault is not None:
            subject = "a checkpoint" if name is None else "an array"
            reason = first_line(str(fault).replace(os.fspath(self), str(self)))
            message = f"expected {subject} that tensorstore reads, got: {reason}"
            problem = Diagnostic("NQX408", "error", message, hint="restore it from a copy")
            if name is not None:
                problem = about(problem.code, name, message, problem.hint)
            raise IntegrityError(problem) from fault

    def require_same(self, *, failed: bool) -> None:
        """Checks that the files are still those that were opened.

        Args:
            failed: Reading failed.

        Raises:
            BundleReadError: Another program has replaced or removed them.
        """

    def close(self) -> None:
        """Ends their use."""


def _plain_size(root: os.PathLike[str]) -> int:
    """The size of all files of a checkpoint, which must hold only files and folders.

    Raises:
        UntrustedError: It holds a link or a device.
    """
    total = 0
    for folder, folders, files in os.walk(root):
        for entry in (*folders, *files):
            found = os.lstat(os.path.join(folder, entry))  # noqa: PTH118 - one call a file
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                hint = "bundles and checkpoints hold plain files only, no links"
                message = f"expected plain files, got {entry!r} that is none"
                raise UntrustedError(message, code="NQX504", hint=hint)
            total += found.st_size
    return total
