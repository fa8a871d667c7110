"""The ``orbax`` store: arrays as an Orbax checkpoint (OCDBT, zarr), each shard written from the device that has it.

Owns the folder ``arrays.orbax``: written by Orbax, so that its own tools read it, and read through tensorstore, without JAX.
Names and dtypes are ``orbax_layout.py``'s; empty arrays are not stored at all, their record says all there is. Orbax checks
nothing itself: the checksums are ours, of the values or of the shard of each device, and compared when they are read.

Writing is the business of ``orbax_writing.py``, which alone above the JAX line may bring JAX in. Needs the extra ``orbax``.
"""

from __future__ import annotations

import os
import stat
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from neuralqx_struct.arrays import Region, StoredArrays
from neuralqx_struct.errors import Diagnostic, IntegrityError, StructError, UntrustedError
from neuralqx_struct.payload import dtype_named, raise_findings
from neuralqx_struct.stores import WHOLE, Access, Records, Source, Tick, about, checksum_finding, require_possible
from neuralqx_struct.stores.checksums import checksum
from neuralqx_struct.stores.orbax_layout import bytes_of, key_of, package, stored_as
from neuralqx_struct.stores.orbax_writing import begin
from neuralqx_struct.stores.pieces import Corner, Pieces, extent, inside, region_text

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

__all__ = ["FILE", "FOLDER", "members", "read", "verify", "write"]

FILE: Final = "arrays.orbax"
FOLDER: Final = True
_AHEAD: Final = 4  # so many parts of an array are on their way at a time,
_ROOM: Final = 256 << 20  # and so many bytes of them, if more than one
#: What tensorstore raises about files that are not what they should be.
_FAULTS: Final = (ValueError, KeyError, OSError, RuntimeError, NotImplementedError, TypeError)


class _Arrays(StoredArrays):
    """The arrays of a checkpoint, each opened, read and compared with its checksums when it is asked for."""

    __slots__ = ("_access", "_records", "_root")

    def __init__(self, root: Path, records: Records, access: Access) -> None:
        super().__init__(records)
        self._root, self._records, self._access = root, records, access

    def __getitem__(self, name: str) -> Array:
        return next(self.parts(name, [tuple(slice(0, size) for size in self._records[name]["shape"])]))

    def parts(self, name: str, regions: Iterable[Region]) -> Iterator[Array]:
        """Parts of an array; to check one, all of each piece is read that it has elements of."""
        parts = self._checked(name, regions) if self._access.verify else self._read(name, regions)
        for part in parts:
            part.flags.writeable = False
            yield part

    def verify(self, name: str) -> Diagnostic | None:
        """Read one array, piece by piece, and compare the checksums."""
        pieces = Pieces.of(self._records[name])
        whole = tuple(slice(0, size) for size in pieces.shape)
        try:
            deque(self._checked(name, map(pieces.region, pieces.corners(whole))), maxlen=0)
        except StructError as error:
            found = error.diagnostics[0]
            return about(found.code, name, found.message, found.hint)
        return None

    def _read(self, name: str, regions: Iterable[Region]) -> Iterator[Array]:
        """Parts of an array as they are stored, some of them read ahead."""
        import numpy as np

        record = self._records[name]
        dtype = dtype_named(record["dtype"])
        if not prod(record["shape"]) * dtype.itemsize:
            yield from (np.empty(extent(region), dtype) for region in regions)
            return
        store = _opened(self._root, name, *stored_as(record["dtype"], record["shape"]))
        wanted = list(regions)
        room = _ROOM // max((prod(extent(region)) * dtype.itemsize for region in wanted), default=1)
        left = iter(wanted)
        coming = deque((region, _asked(store, region)) for region in islice(left, min(max(room, 1), _AHEAD)))
        while coming:
            region, answer = coming.popleft()
            coming.extend((each, _asked(store, each)) for each in islice(left, 1))
            with _faults_told(name):
                values = np.ascontiguousarray(answer.result())
            yield (values if values.dtype == dtype else values.reshape(-1).view(dtype)).reshape(extent(region))

    def _checked(self, name: str, regions: Iterable[Region]) -> Iterator[Array]:
        """Parts of an array; each piece that they need is read once, compared, and kept until the last of them is made."""
        import numpy as np

        pieces, wanted = Pieces.of(self._records[name]), list(regions)
        if not prod(pieces.shape):
            yield from self._read(name, wanted)
            return
        uses = Counter(corner for region in wanted for corner in pieces.corners(region))
        coming = self._read(name, map(pieces.region, uses))
        kept: dict[Corner, Array] = {}
        for region in wanted:
            made: Array | None = None
            for corner in pieces.corners(region):
                if corner not in kept:
                    kept[corner] = next(coming)
                    self._compare(name, kept[corner], pieces, corner)
                uses[corner] -= 1
                values = kept[corner] if uses[corner] else kept.pop(corner)
                piece = pieces.region(corner)
                if piece == region:
                    made = values
                else:
                    made = np.empty(extent(region), values.dtype) if made is None else made
                    made[inside(region, piece)] = values[inside(piece, region)]
            if made is not None:
                yield made
            else:  # it has no elements
                yield np.empty(extent(region), dtype_named(self._records[name]["dtype"]))

    def _compare(self, name: str, values: Array, pieces: Pieces, corner: Corner) -> None:
        if "crc32" in self._records[name]:
            found = checksum(bytes_of(values), self._access.tick)
            where = f" at {region_text(pieces.region(corner))}" if pieces.count() > 1 else ""
            if (problem := checksum_finding(name, found, pieces.checksum(corner), where)) is not None:
                raise IntegrityError(problem)


def _asked(store: Any, region: Region) -> Any:
    """A part that is on its way."""
    return store[region].read()


def _opened(root: Path, name: str, code: str, shape: tuple[int, ...]) -> Any:
    """One array of the checkpoint, whose own description must agree before anything is allocated."""
    tensorstore = package("tensorstore")
    where = {"driver": "ocdbt", "base": {"driver": "file", "path": f"{root}/"}, "path": f"{key_of(name)}/"}
    with _faults_told(name):
        array = tensorstore.open({"driver": "zarr", "kvstore": where}, open=True, read=True).result()
        got = f"{array.dtype.name}{list(array.shape)}"
        chunk = array.chunk_layout.read_chunk.shape or ()
        if (array.dtype.name, tuple(array.shape)) != (code, shape) or any(
            part > max(size, 1) for part, size in zip(chunk, shape, strict=True)
        ):
            raise IntegrityError(about("NQX412", name, f"expected {code}{list(shape)} in the checkpoint, got {got}"))
    return array


@contextmanager
def _faults_told(name: str) -> Iterator[None]:
    try:
        yield
    except _FAULTS as error:
        if isinstance(error, StructError):
            raise
        first = str(error).partition("\n")[0][:300]
        message = f"expected an array that tensorstore reads, got: {first}"
        raise IntegrityError(about("NQX408", name, message, "restore it from a copy")) from error


def write(
    target: Path | BinaryIO, arrays: Mapping[str, Array], *, compress: bool = False, tick: Tick | None = None
) -> dict[str, dict[str, Any]]:
    """Write all arrays, in this process alone, and wait; see :class:`~neuralqx_struct.stores.ArrayStore` and :func:`~.orbax_writing.begin`.

    Orbax compresses always, so ``compress`` changes nothing.
    """
    del compress
    return begin(target, arrays, alone=True, tick=tick)()


def read(source: Source, records: Records, access: Access = WHOLE) -> StoredArrays:
    """Open the arrays of a checkpoint; see :class:`~neuralqx_struct.stores.ArrayStore`. They are never mapped."""
    raise_findings(_survey(source, records, access), str(source))
    return _Arrays(_root(source), records, access)


def verify(source: Source, records: Records, access: Access = WHOLE) -> list[Diagnostic]:
    """Everything that is wrong with the arrays; see :class:`~neuralqx_struct.stores.ArrayStore`.

    What Orbax keeps beside them for itself is not covered by any checksum.
    """
    found = _survey(source, records, access, whole=True)
    missing = {d.path for d in found}
    if any(not d.path for d in found):
        return found
    arrays = _Arrays(_root(source), records, access)
    for name in records:
        if about("NQX409", name, "").path not in missing and (problem := arrays.verify(name)) is not None:
            found.append(problem)
    return found


def members(source: Source) -> tuple[str, ...]:
    """The keys of the stored arrays, as the checkpoint says by itself."""
    return tuple(sorted(_keys(_root(source))))


def _root(source: Source) -> Path:
    assert isinstance(source, Path)  # a store that is a folder is given one
    return source


def _keys(root: Path) -> set[str]:
    """The keys of the arrays in a checkpoint that holds nothing but files and folders."""
    for folder, folders, files in os.walk(root):
        for entry in (*folders, *files):
            mode = os.lstat(os.path.join(folder, entry)).st_mode  # noqa: PTH118 - one call a file
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                hint = "bundles hold plain files only, no links"
                message = f"expected plain files, got {entry!r} that is none"
                raise UntrustedError(message, code="NQX504", hint=hint)
    if not (root / "manifest.ocdbt").exists():
        return set()
    tensorstore = package("tensorstore")
    try:
        store = tensorstore.KvStore.open({"driver": "ocdbt", "base": {"driver": "file", "path": f"{root}/"}}).result()
        return {key.decode("utf-8", "replace").rpartition("/")[0] for key in store.list().result()}
    except _FAULTS as error:
        first = str(error).partition("\n")[0][:300]
        message = f"expected a checkpoint that tensorstore reads, got: {first}"
        raise IntegrityError(message, code="NQX408", hint="restore it from a copy") from error


def _survey(source: Source, records: Records, access: Access, *, whole: bool = False) -> list[Diagnostic]:
    """Compare what is there with the records, reading no array; ``whole`` also compares checksums of pieces with those of all."""
    found: list[Diagnostic] = []
    try:
        unclaimed = _keys(_root(source))
    except StructError as error:
        return list(error.diagnostics)
    for name, record in records.items():
        try:
            itemsize = dtype_named(record["dtype"]).itemsize
            require_possible(record["shape"], itemsize)
        except StructError as error:
            found += [about(d.code, name, d.message, d.hint) for d in error.diagnostics]
            continue
        nbytes = prod(record["shape"]) * itemsize
        if record.get("nbytes", nbytes) != nbytes:
            message = (
                f"expected {nbytes} bytes for {record['dtype']}{record['shape']}, got {record['nbytes']} in the record"
            )
            found.append(about("NQX408", name, message))
        elif "chunk" in record or "chunk_crc32" in record:
            problem = Pieces.of(record).problem(itemsize, record.get("crc32", 0) if whole else None)
            found += [] if problem is None else [about("NQX408", name, problem)]
        if nbytes and key_of(name) not in unclaimed:
            found.append(about("NQX409", name, "expected an array of this name in the checkpoint, got none"))
        unclaimed.discard(key_of(name))
    unclaimed -= {key_of(name) for name in access.superseded}
    hint = "the checkpoint was changed by hand, or the manifest belongs to another one"
    message = "expected a record for every array in the checkpoint, got none"
    return found + [about("NQX410", key, message, hint) for key in sorted(unclaimed)]
