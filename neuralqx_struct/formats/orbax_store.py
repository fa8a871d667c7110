"""The store ``orbax``: arrays as an Orbax checkpoint (OCDBT, zarr), each shard written from its device.

The folder ``arrays.orbax`` is written by Orbax, so that its own tools read it, and read through
tensorstore, without JAX. Empty arrays are not stored: their record describes them. Orbax verifies nothing;
the checksums are ours, of the values or of the shard of each device, and are compared on reading.

``orbax_writing.py`` writes. Needs the extra ``orbax``.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from neuralqx_struct.dtypes import bytes_of, dtype_named
from neuralqx_struct.errors import Diagnostic, IntegrityError, StructError
from neuralqx_struct.formats.orbax_layout import (
    STEP_METADATA,
    Corner,
    Files,
    Pieces,
    extent,
    inside,
    key_of,
    package,
    region_text,
    stored_as,
)
from neuralqx_struct.formats.orbax_writing import begin
from neuralqx_struct.formats.store import (
    WHOLE,
    Access,
    Records,
    Store,
    Tick,
    Written,
    about,
    about_each,
    checksum_finding,
    require_nbytes,
    require_possible,
    unrecorded,
)
from neuralqx_struct.manifest import raise_findings
from neuralqx_struct.manifest.payload import Region, StoredArrays
from neuralqx_struct.places.checksums import checksum
from neuralqx_struct.places.disk import Source, Target

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_AHEAD: Final = 4  # parts of an array that are requested at a time
_ALIGNED: Final = 64
_ROOM: Final = 256 << 20  # and their bytes, if they are more than one


class _Arrays(StoredArrays):
    """The arrays of a checkpoint, each opened, read and verified on access."""

    __slots__ = ("_access", "_begun", "_files", "_records", "_wanted")

    def __init__(self, files: Files, records: Records, access: Access) -> None:
        super().__init__(records)
        self._files, self._records, self._access = files, records, access
        self._wanted: deque[str] = deque()
        self._begun: dict[str, tuple[Any, Array]] = {}  # requests for whole arrays

    @property
    def far(self) -> bool:
        """True: an array of one piece is unpacked by one thread, so several are requested at a time."""
        return True

    def expect(self, names: Iterable[str]) -> None:
        """Lets arrays of one piece be requested ahead; to verify one, all of it is read."""
        if self._access.verify:
            self._wanted = deque(filter(self._is_one_piece, dict.fromkeys(names)))

    def _is_one_piece(self, name: str) -> bool:
        return bool(prod(self._records[name]["shape"])) and "chunk" not in self._records[name]

    def _look_ahead(self, name: str) -> None:
        """Requests the arrays from one on that are expected, up to the limits; forgets all if that is not the next."""
        if name not in self._begun and (not self._wanted or self._wanted[0] != name):
            self._wanted.clear()
        room = _ROOM - sum(values.nbytes for _, values in self._begun.values())
        while self._wanted and (
            self._wanted[0] == name or (room > 0 and len(self._begun) <= _AHEAD)
        ):
            each = self._wanted.popleft()
            record = self._records[each]
            with suppress(StructError):  # raised when it is read
                code, shape = stored_as(record["dtype"], record["shape"])
                store = _opened(self._files, each, code, shape)
                self._begun[each] = _asked(store, tuple(slice(0, size) for size in record["shape"]))
                room -= self._begun[each][1].nbytes

    def divisible(self, name: str) -> bool:
        """True for an array of several pieces; to verify one of one piece, all of it is read."""
        return not self._access.verify or not self._is_one_piece(name)

    def __getitem__(self, name: str) -> Array:
        whole = tuple(slice(0, size) for size in self._records[name]["shape"])
        return next(self.parts(name, [whole]))

    def parts(self, name: str, regions: Iterable[Region]) -> Iterator[Array]:
        """Returns parts of an array; to verify one, all pieces that it shares elements with are read."""
        read = self._checked if self._access.verify else self._read
        for part in read(name, regions):
            part.flags.writeable = False
            yield part

    def verify(self, name: str) -> Diagnostic | None:
        """Reads one array, piece by piece, and compares the checksums."""
        pieces = Pieces.of(self._records[name])
        whole = tuple(slice(0, size) for size in pieces.shape)
        try:
            deque(self._checked(name, map(pieces.region, pieces.corners(whole))), maxlen=0)
        except StructError as error:
            return about_each(name, error)[0]
        return None

    def _read(self, name: str, regions: Iterable[Region]) -> Iterator[Array]:
        """Returns parts of an array as they are stored; a few are requested ahead."""
        import numpy as np

        record = self._records[name]
        dtype = dtype_named(record["dtype"])
        if not prod(record["shape"]) * dtype.itemsize:
            yield from (np.empty(extent(region), dtype) for region in regions)
            return
        wanted = list(regions)
        if self._is_one_piece(name):
            self._look_ahead(name)
        begun = self._begun.pop(name, None)
        if begun is not None and wanted:
            yield self._answered(name, wanted[0], begun)
            return
        store = _opened(self._files, name, *stored_as(record["dtype"], record["shape"]))
        largest = max((prod(extent(region)) for region in wanted), default=1) * dtype.itemsize
        ahead = min(max(_ROOM // max(largest, 1), 1), _AHEAD)
        requests = ((region, _asked(store, region)) for region in wanted)
        coming = deque(islice(requests, ahead))
        while coming:
            region, request = coming.popleft()
            coming.extend(islice(requests, 1))
            yield self._answered(name, region, request)

    def _answered(self, name: str, region: Region, request: tuple[Any, Array]) -> Array:
        """A part of an array that was requested."""
        answer, values = request
        dtype = dtype_named(self._records[name]["dtype"])
        with self._files.faults(name):
            answer.result()
        if values.dtype != dtype:
            values = values.reshape(-1).view(dtype)
        return values.reshape(extent(region))

    def _checked(self, name: str, regions: Iterable[Region]) -> Iterator[Array]:
        """Returns verified parts of an array.

        Each piece that they need is read once, verified, and kept until the last part that needs it.
        """
        import numpy as np

        pieces, wanted = Pieces.of(self._records[name]), list(regions)
        if not prod(pieces.shape):
            yield from self._read(name, wanted)
            return
        dtype = dtype_named(self._records[name]["dtype"])
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
                    continue
                if made is None:
                    made = np.empty(extent(region), dtype)
                made[inside(region, piece)] = values[inside(piece, region)]
            yield np.empty(extent(region), dtype) if made is None else made

    def _compare(self, name: str, values: Array, pieces: Pieces, corner: Corner) -> None:
        """Compares a piece with its checksum, if there is one."""
        if "crc32" not in self._records[name]:
            return
        found = checksum(bytes_of(values), self._access.tick)
        where = f" at {region_text(pieces.region(corner))}" if pieces.count() > 1 else ""
        problem = checksum_finding(name, found, pieces.checksum(corner), where)
        if problem is not None:
            raise IntegrityError(problem)


def _asked(store: Any, region: Region) -> tuple[Any, Array]:
    """Requests a part of an array; returns its future, and the memory that it fills, which JAX takes without a copy."""
    import numpy as np

    part = store[region]
    shape, dtype = tuple(part.shape), part.dtype.numpy_dtype
    room = np.empty(prod(shape) * dtype.itemsize + _ALIGNED, np.uint8)
    values = np.ndarray(shape, dtype, room, -room.ctypes.data % _ALIGNED)
    target = package("tensorstore").array(values)
    return target.write(part.translate_to[(0,) * len(shape)] if shape else part), values


def _opened(files: Files, name: str, code: str, shape: tuple[int, ...]) -> Any:
    """Opens one array of the checkpoint, whose own description must agree before anything is allocated."""
    tensorstore = package("tensorstore")
    with files.faults(name):
        request = {"driver": "zarr", "kvstore": files.ocdbt(f"{key_of(name)}/")}
        array = tensorstore.open(request, open=True, read=True).result()
        got = (array.dtype.name, tuple(array.shape))
        chunk = array.chunk_layout.read_chunk.shape or ()
        if got != (code, shape) or any(
            part > max(size, 1) for part, size in zip(chunk, shape, strict=True)
        ):
            message = f"expected {code}{list(shape)} in the checkpoint, got {got[0]}{list(got[1])}"
            raise IntegrityError(about("NQX412", name, message))
    return array


def _write(
    target: Target,
    arrays: Mapping[str, Array],
    *,
    compress: bool = False,  # noqa: ARG001 - Orbax always compresses
    tick: Tick | None = None,
) -> Written:
    """Writes all arrays in this process alone, and waits."""
    return begin(target, arrays, alone=True, tick=tick)()


def _read(source: Source, records: Records, access: Access = WHOLE) -> StoredArrays:
    """Opens the arrays of a checkpoint, which are never mapped."""
    files = _files(source)
    raise_findings(_survey(files, records, access), str(files))
    return _Arrays(files, records, access)


def _verify(source: Source, records: Records, access: Access = WHOLE) -> list[Diagnostic]:
    """Every problem of the arrays. Orbax's own files beside them have no checksums."""
    files = _files(source)
    found = _survey(files, records, access, whole=True)
    if any(not d.path for d in found):
        return found
    faulty = {d.path for d in found}
    arrays = _Arrays(files, records, access)
    for name in records:
        if about("NQX409", name, "").path in faulty:
            continue
        problem = arrays.verify(name)
        if problem is not None:
            found.append(problem)
    return found


def _files(source: Source) -> Files:
    """The files of a checkpoint: a store with ``folder`` is given a path."""
    return source if isinstance(source, Files) else Files(Path(cast("Path", source)))


def _keys(files: Files) -> set[str]:
    """The keys of the arrays in a checkpoint, which must hold only files and folders."""
    with files.faults():
        _ = files.stored  # links and devices are refused before anything is opened
        if not files.has("manifest.ocdbt"):
            return set()
        tensorstore = package("tensorstore")
        keys = tensorstore.KvStore.open(files.ocdbt()).result().list().result()
        return {key.decode("utf-8", "replace").rpartition("/")[0] for key in keys}


def _survey(
    files: Files, records: Records, access: Access, *, whole: bool = False
) -> list[Diagnostic]:
    """Compares the keys in a checkpoint with the records; reads no array.

    Args:
        files: The files.
        records: All arrays that it should hold.
        access: Options for reading.
        whole: Compare the checksums of pieces with that of all of them, too.
    """
    found: list[Diagnostic] = []
    try:
        unclaimed = _keys(files)
    except StructError as error:
        return list(error.diagnostics)
    for name, record in records.items():
        try:
            itemsize = dtype_named(record["dtype"]).itemsize
            require_possible(record["shape"], itemsize)
            nbytes = prod(record["shape"]) * itemsize
        except StructError as error:
            found += about_each(name, error)
            continue
        try:
            require_nbytes(record, nbytes)
            _require_pieces(record, itemsize, whole=whole)
        except StructError as error:
            found += about_each(name, error)
        if nbytes and key_of(name) not in unclaimed:
            message = "expected an array of this name in the checkpoint, got none"
            found.append(about("NQX409", name, message))
        unclaimed.discard(key_of(name))
    if found:
        files.require_same(failed=True)
    unclaimed.difference_update(map(key_of, access.superseded))
    return found + unrecorded(sorted(unclaimed))


def _require_pieces(record: Mapping[str, Any], itemsize: int, *, whole: bool) -> None:
    if "chunk" not in record and "chunk_crc32" not in record:
        return
    problem = Pieces.of(record).problem(itemsize, record.get("crc32", 0) if whole else None)
    if problem is not None:
        raise IntegrityError(problem, code="NQX408")


ORBAX_STORE: Final = Store(
    name="orbax",
    suffix="orbax",
    folder=True,
    compression="always",
    write=_write,
    read=_read,
    verify=_verify,
    beside=frozenset({STEP_METADATA, "commit_success.txt"}),
    begin=begin,
)
