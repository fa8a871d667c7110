"""Writes the store ``orbax``: hands arrays to Orbax where they are, and returns while they are written.

After :func:`begin` nothing that the caller does to the arrays changes the result. An array that devices
share gets a checksum for the shard of each, so that no process needs the shards of another. Several
processes write one checkpoint together, each its own shards; Orbax keeps them in step, and ``hosts.py``
lets all know if one cannot begin.

Imports JAX, as no other module above the JAX line does. Needs the extra ``orbax``.
"""

from __future__ import annotations

import importlib
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from neuralqx_struct.dtypes import bytes_of, dtype_named
from neuralqx_struct.errors import SerializationError, StructError
from neuralqx_struct.formats.hosts import agreed, count, rank
from neuralqx_struct.formats.orbax_layout import Pieces, key_of, package, stored_as
from neuralqx_struct.formats.store import Tick, Written, about, logical_dtype
from neuralqx_struct.manifest.payload import HeldArrays
from neuralqx_struct.places.checksums import checksum, write_checked
from neuralqx_struct.places.disk import Target
from neuralqx_struct.printing import first_line

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

# Seconds that Orbax waits for a write; JAX ends a program that has lost a process long before.
_PATIENCE = 3 * 60 * 60


@dataclass
class Ready:
    """Arrays that are ready to be written.

    Attributes:
        records: A record for each array, still without checksums.
        tree: The arrays for Orbax, by key.
        arrays: The pieces of each array that has data.
        pieces: The number of pieces, all together.
        held: The pieces that this process writes and has no checksum of yet, by position among all.
        sums: The checksums of the pieces that this process writes, by position among all.
    """

    records: Written = field(default_factory=dict)
    tree: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Pieces] = field(default_factory=dict)
    pieces: int = 0
    held: dict[int, Any] = field(default_factory=dict)
    sums: dict[int, int] = field(default_factory=dict)

    def add(self, name: str, pieces: Pieces) -> int:
        """Adds an array; returns the position of its first piece."""
        first = self.pieces
        self.arrays[name] = pieces
        self.pieces += pieces.count()
        return first

    def fetch(self) -> None:
        """Copies the pieces from their devices, if Orbax has not: JAX keeps the copy that both use."""
        import numpy as np

        with _deletions_named():
            self.held = {place: np.asarray(data) for place, data in self.held.items()}

    def sum_up(
        self,
        fetch: Callable[[Any], Array],
        summed: Callable[[bytes | memoryview], int] = checksum,
    ) -> None:
        """Computes the checksums of the pieces, one after the other, by a function for the bytes of each."""
        while self.held:
            place, data = self.held.popitem()
            self.sums[place] = summed(bytes_of(fetch(data)))
            del data  # freed before the next one is fetched

    def packed(self) -> bytes:
        """The checksums of this process as bytes for the others."""
        import numpy as np

        return np.array(list(self.sums.items()), "<u8").tobytes()

    def recorded(self, packed: Iterable[bytes]) -> Written:
        """The records with the checksums of all processes."""
        import numpy as np

        sums: dict[int, int] = {}
        for each in packed:
            pairs: Any = np.frombuffer(each, "<u8").reshape(-1, 2).tolist()
            sums.update(pairs)
        first = 0
        for name, pieces in self.arrays.items():
            record = self.records[name]
            own = [sums[first + index] for index in range(pieces.count())]
            first += len(own)
            whole = Pieces(pieces.shape, pieces.chunk, own)
            record["crc32"] = whole.whole(dtype_named(record["dtype"]).itemsize)
            if len(own) > 1:
                record |= {"chunk": list(whole.chunk), "chunk_crc32": own}
        return self.records


def begin(
    target: Target,
    arrays: Mapping[str, Array],
    *,
    alone: bool = False,
    tick: Tick | None = None,
) -> Callable[[], Written]:
    """Begins to write a checkpoint; every process of the program calls this, or one with ``alone``.

    Numpy arrays and arrays of a compressed bundle pass through a temporary file: memory never holds a
    second copy of all of them, and no one writes into it. Shards pass through the memory of their process.

    Args:
        target: The new folder, the same for all.
        arrays: The arrays.
        alone: The other processes have no part in it.
        tick: Called with bytes prepared and, at the end, written; both add up to the bytes of all arrays.

    Returns:
        A function that waits until all is on the disk and returns a record for each array. It may be
        called in another thread.

    Raises:
        SerializationError: There is no folder, the extra is not installed, an array was deleted, or a
            dtype cannot be stored; in whichever of the processes.
    """
    ready = Ready()
    writer: Any = None

    def prepare() -> bytes:
        if alone and rank():
            message = f"expected the first of {count()} processes to write a bundle alone, got process {rank()}"
            hint = "call this where jax.process_index() is 0"
            raise SerializationError(message, code="NQX406", hint=hint)
        _prepare(ready, target, arrays, tick)
        return ready.packed()

    def start() -> bytes:
        nonlocal writer
        with _faults_named():
            writer = _started(cast("Path", target), ready.tree, alone=alone)
        ready.tree.clear()  # frees the arrays on their devices
        return b""

    if alone:
        packed = [prepare()]
        start()
    else:
        packed = agreed(prepare)
        agreed(start)

    def finish() -> Written:
        with _faults_named():
            if writer is not None:
                try:
                    writer.wait_until_finished()
                finally:
                    writer.close()
        if tick is not None:
            sizes = [record["nbytes"] for record in ready.records.values()]
            tick(sum(size - size // 2 for size in sizes))
        return ready.recorded(packed)

    return finish


def _prepare(ready: Ready, target: Target, arrays: Mapping[str, Array], tick: Tick | None) -> None:
    """Computes the checksums of this process, and copies each array that the caller could change to a file."""
    import tempfile

    import numpy as np

    assert isinstance(target, Path)  # a store with ``folder`` is given a path
    if not target.parent.is_dir():
        message = f"expected a path that every process sees, got {str(target.parent)!r}, which this one does not"
        hint = "write to a file system that all hosts share"
        raise SerializationError(message, code="NQX406", hint=hint)
    with tempfile.TemporaryFile(dir=target.parent, buffering=0) as spill:
        spilled: dict[str, int] = {}

        def keep(name: str, place: int, array: Array) -> None:
            spilled[name] = spill.tell()
            ready.sums[place] = write_checked(spill, bytes_of(array))

        hand_over(ready, arrays, keep, tick)
        room = mmap.mmap(spill.fileno(), 0, access=mmap.ACCESS_READ) if spill.tell() else b""
    for name, at in spilled.items():
        code, shape = stored_as(ready.records[name]["dtype"], ready.records[name]["shape"])
        ready.tree[key_of(name)] = np.ndarray(shape, dtype_named(code), room, at)


def hand_over(
    ready: Ready,
    arrays: Mapping[str, Array],
    keep: Callable[[str, int, Array], None],
    tick: Tick | None = None,
    *,
    later: bool = False,
) -> None:
    """Fills the tree for Orbax.

    Args:
        ready: Receives the arrays.
        arrays: The arrays.
        keep: Copies a numpy array that the caller could change. Arguments: name, position of its piece, array.
        tick: Called with half of the bytes of each array.
        later: Leave the checksums of pieces on devices to :meth:`Ready.sum_up`.
    """
    import numpy as np

    package("orbax.checkpoint")
    fetch = arrays.fetch if isinstance(arrays, HeldArrays) else np.asarray
    for name in arrays:
        held: Any = arrays.original(name) if isinstance(arrays, HeldArrays) else arrays[name]
        logical = logical_dtype(name, held.dtype)
        code, shape = stored_as(logical, held.shape)
        ready.records[name] = {
            "dtype": logical,
            "shape": list(held.shape),
            "crc32": 0,
            "nbytes": held.nbytes,
        }
        if not held.nbytes:
            pass  # an empty array needs its record only
        elif _is_shared(held):
            with _deletions_named(name):
                ready.tree[key_of(name)] = _shared(held, name, code, fetch, ready)
                if not later:
                    ready.sum_up(fetch)
        else:
            place = ready.add(name, Pieces(held.shape, held.shape, ()))
            if rank():  # the first process writes it
                ready.tree[key_of(name)] = np.broadcast_to(np.zeros((), dtype_named(code)), shape)
            elif _is_map(held):
                data = bytes_of(held)
                ready.sums[place] = checksum(data)
                ready.tree[key_of(name)] = held
                if code != logical:
                    ready.tree[key_of(name)] = np.frombuffer(data, np.uint8).reshape(shape)
            else:
                keep(name, place, held if isinstance(held, np.ndarray) else arrays[name])
        if tick is not None:
            tick(held.nbytes // 2)
        del held  # freed before the next one is computed


def handed_over(arrays: Mapping[str, Array]) -> Ready:
    """Arrays that Orbax can copy from their devices, and copies of those in host memory; without checksums."""
    import numpy as np

    ready = Ready()

    def keep(name: str, place: int, array: Array) -> None:
        record = ready.records[name]
        code, shape = stored_as(record["dtype"], record["shape"])
        ready.held[place] = kept = np.array(array, order="C")
        same = code == record["dtype"]
        data = kept if same else np.frombuffer(bytes_of(kept), np.uint8).reshape(shape)
        ready.tree[key_of(name)] = data

    hand_over(ready, arrays, keep, later=True)
    return ready


def _is_shared(held: Any) -> bool:
    """True for JAX arrays, unless this process has all of one that it does not write alone."""
    import numpy as np

    return not isinstance(held, np.ndarray) and (count() == 1 or not held.is_fully_addressable)


def _shared(held: Any, name: str, code: str, fetch: Callable[[Any], Array], ready: Ready) -> Any:
    """A JAX array as Orbax takes it; notes the pieces that this process writes."""
    pieces = Pieces(held.shape, held.sharding.shard_shape(held.shape), ())
    position = ready.add(name, pieces)
    for shard in held.addressable_shards:
        if shard.replica_id == 0:
            index = zip(shard.index, held.shape, strict=True)
            first = tuple(part.indices(size)[0] for part, size in index)
            ready.held[position + pieces.index(first)] = shard.data
    return held if code == str(held.dtype) else _as_bytes(held, fetch)


@contextmanager
def _deletions_named(name: str | None = None) -> Iterator[None]:
    """Raises the error of JAX for deleted data as one about an array."""
    try:
        yield
    except RuntimeError as error:  # raised by JAX alone
        message = f"expected an array that keeps its data until it is written, got: {error}"
        hint = "donate it after the export has returned"
        if name is None:
            raise SerializationError(message, code="NQX430", hint=hint) from error
        raise SerializationError(about("NQX430", name, message, hint)) from error


def _as_bytes(held: Any, fetch: Callable[[Any], Array]) -> Any:
    """A JAX array of a dtype that zarr has no name for, as bytes on the same devices."""
    import numpy as np

    jax: Any = importlib.import_module("jax")
    memory = held.sharding.memory_kind
    shards = []
    for shard in held.addressable_shards:
        place = jax.sharding.SingleDeviceSharding(shard.device, memory_kind=memory)
        shards.append(jax.device_put(fetch(shard.data).view(np.uint8), place))
    return jax.make_array_from_single_device_arrays(held.shape, held.sharding, shards)


def _is_map(array: Any) -> bool:
    """True for views of a bundle's file, which never changes; a map of the user's may be written into."""
    base: Any = array
    while isinstance(getattr(base, "base", None), type(array)):
        base = base.base
    view = getattr(base, "base", None)
    return isinstance(view, memoryview) and isinstance(view.obj, mmap.mmap)


def _started(target: Path, tree: Mapping[str, Any], *, alone: bool) -> Any:
    """Starts Orbax, which copies the tree to host memory first; returns None if there is nothing to write."""
    if not tree:
        if not rank():
            target.mkdir()
        return None
    checkpoint = package("orbax.checkpoint")
    handler = array_handler()
    # The parent folder has a new name each time, which keeps the barriers of two exports apart.
    together = checkpoint.options.MultiprocessingOptions(
        barrier_sync_key_prefix=target.parent.name, active_processes={0} if alone else None
    )
    # A folder that is made in the background is announced under a number that each process counts for itself: where one has
    # saved alone, others would write before it is there, and the first would remove what they wrote.
    patience = checkpoint.options.AsyncOptions(
        timeout_secs=_PATIENCE, create_directories_asynchronously=False
    )
    writer = checkpoint.AsyncCheckpointer(
        handler, async_options=patience, multiprocessing_options=together
    )
    # No other arguments are accepted.
    writer.save(Path(os.path.realpath(target)), args=checkpoint.args.PyTreeSave(dict(tree)))
    return writer


def array_handler() -> Any:
    """The handler of Orbax that writes the tree of :class:`Ready`."""
    import inspect

    import numpy as np

    checkpoint = package("orbax.checkpoint")
    handlers = checkpoint.type_handlers
    known = inspect.signature(handlers.NumpyHandler).parameters
    # The arrays are private already. Orbax before 0.12.5 always copies.
    no_copy = {"deepcopy_host_arrays": False} if "deepcopy_host_arrays" in known else {}
    registry = handlers.create_type_handler_registry(
        (np.ndarray, handlers.NumpyHandler(**no_copy)),
        (importlib.import_module("jax").Array, handlers.ArrayHandler()),
    )
    return checkpoint.PyTreeCheckpointHandler(
        use_ocdbt=True, use_zarr3=False, type_handler_registry=registry
    )


@contextmanager
def _faults_named() -> Iterator[None]:
    """Raises the many errors of Orbax and tensorstore as one about the write.

    Raises:
        SerializationError: In the place of anything but errors of the system, which name the file.
    """
    try:
        yield
    except (StructError, OSError):
        raise
    except (ValueError, RuntimeError, KeyError, TypeError, NotImplementedError) as error:
        reason = first_line(error)
        message = f"expected Orbax to write the arrays, got: {reason}"
        raise SerializationError(message, code="NQX406") from error
