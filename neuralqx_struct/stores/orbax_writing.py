"""The writing half of the ``orbax`` store: arrays are handed to Orbax as they lie, and written while the program goes on.

Owns :func:`begin`, after which nothing that the caller does to the arrays changes what is written, and the checksums: an array
that devices share gets one for the shard of each, so that no process needs another's. Several processes write one checkpoint
together, each its own shards; Orbax keeps them in step, and ``hosts.py`` lets all know if one cannot begin.

Brings JAX in, which nothing else above the JAX line does. Needs the extra ``orbax``.
"""

from __future__ import annotations

import importlib
import inspect
import mmap
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from neuralqx_struct.arrays import HeldArrays
from neuralqx_struct.errors import SerializationError, StructError
from neuralqx_struct.payload import dtype_name, dtype_named
from neuralqx_struct.stores import Tick, about
from neuralqx_struct.stores.checksums import checksum, write_checked
from neuralqx_struct.stores.hosts import agreed, count, rank
from neuralqx_struct.stores.orbax_layout import bytes_of, key_of, package, stored_as
from neuralqx_struct.stores.pieces import Pieces

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

__all__ = ["begin", "folder_of"]

_PATIENCE = 3 * 60 * 60  # seconds that Orbax waits for a write; JAX ends a program that has lost a process long before
_Records = dict[str, dict[str, Any]]


@dataclass
class _Ready:
    """What is to be written.

    Attributes:
        records: A record for each array, those of shared arrays still without checksums.
        tree: What Orbax is given, by key.
        shared: The arrays that devices share.
        pieces: How many pieces these have, all together.
        sums: The checksums of those of them that this process writes, by their position among all.
    """

    records: _Records = field(default_factory=dict)
    tree: dict[str, Any] = field(default_factory=dict)
    shared: dict[str, Pieces] = field(default_factory=dict)
    pieces: int = 0
    sums: dict[int, int] = field(default_factory=dict)

    def told(self) -> bytes:
        """What the other processes must know of this one."""
        import numpy as np

        return np.array(list(self.sums.items()), "<u8").tobytes()

    def recorded(self, told: Iterable[bytes]) -> _Records:
        """The records with the checksums of all processes."""
        import numpy as np

        sums = {place: crc for each in told for place, crc in np.frombuffer(each, "<u8").reshape(-1, 2).tolist()}
        places = iter(range(self.pieces))
        for name, pieces in self.shared.items():
            record = self.records[name]
            whole = Pieces(pieces.shape, pieces.chunk, [sums[next(places)] for _ in range(pieces.count())])
            record["crc32"] = whole.whole(dtype_named(record["dtype"]).itemsize)
            if len(whole.sums) > 1:
                record |= {"chunk": list(whole.chunk), "chunk_crc32": list(whole.sums)}
        return self.records


def begin(
    target: Path | BinaryIO, arrays: Mapping[str, Array], *, alone: bool = False, tick: Tick | None = None
) -> Callable[[], dict[str, dict[str, Any]]]:
    """Begin to write a checkpoint; every process of the program calls this, or one that does so alone.

    Numpy arrays and arrays of a compressed bundle pass through a temporary file: no second copy of all of them is in
    memory, and nobody writes into it. Shards pass through the memory of the process that has them.

    Args:
        target: The new folder, the same for all.
        arrays: What is written.
        alone: The other processes have no part in it.
        tick: Called with bytes looked at and, at the end, written; both add up to the bytes of all arrays.

    Returns:
        Waits until all is on the disk, and gives a record for each array; it may be called in another thread.

    Raises:
        SerializationError: There is no folder, the extra is not installed, an array was deleted, or a dtype cannot be
            stored; in whichever of the processes.
    """
    ready = _Ready()

    def prepare() -> bytes:
        if alone and rank():
            message = f"expected the first of {count()} processes to write a bundle alone, got process {rank()}"
            raise SerializationError(message, code="NQX406", hint="call this where jax.process_index() is 0")
        _prepare(ready, target, arrays, tick)
        return ready.told()

    writer: Any = None

    def start() -> bytes:
        nonlocal writer
        with _faults_told():
            writer = _started(folder_of(target), ready.tree, alone=alone)
        ready.tree.clear()  # from here on nothing keeps the arrays on their devices
        return b""

    told, _ = ([prepare()], start()) if alone else (agreed(prepare), agreed(start))

    def finish() -> dict[str, dict[str, Any]]:
        with _faults_told():
            if writer is not None:
                try:
                    writer.wait_until_finished()
                finally:
                    writer.close()
        if tick is not None:
            tick(sum(record["nbytes"] - record["nbytes"] // 2 for record in ready.records.values()))
        return ready.recorded(told)

    return finish


def folder_of(target: Path | BinaryIO) -> Path:
    """The place of a new checkpoint, which is a folder.

    Raises:
        SerializationError: The bundle is a zip, which has none.
    """
    if not isinstance(target, Path):
        message = "expected a folder for store 'orbax', got a zip"
        raise SerializationError(message, code="NQX614", hint="leave the suffix .zip out, or use store='npz'")
    return target


def _prepare(ready: _Ready, target: Path | BinaryIO, arrays: Mapping[str, Array], tick: Tick | None) -> None:
    """Look at all arrays: what this process has of them gets its checksums, and nobody can change it any more."""
    import numpy as np

    target = folder_of(target)
    package("orbax.checkpoint")
    if not target.parent.is_dir():
        message = f"expected a path that every process sees, got {str(target.parent)!r}, which this one does not"
        raise SerializationError(message, code="NQX406", hint="write to a file system that all hosts share")
    with tempfile.TemporaryFile(dir=target.parent, buffering=0) as spill:
        spilled: dict[str, int] = {}
        for name in arrays:
            held: Any = arrays.original(name) if isinstance(arrays, HeldArrays) else arrays[name]
            try:
                logical = dtype_name(held.dtype)
            except SerializationError as error:
                raise SerializationError(about(d.code, name, d.message, d.hint) for d in error.diagnostics) from error
            code, shape = stored_as(logical, held.shape)
            crc = 0
            if not held.nbytes:
                pass  # its record says all there is
            elif not isinstance(held, np.ndarray) and (count() == 1 or not held.is_fully_addressable):
                assert isinstance(arrays, HeldArrays)  # nobody else has what is not numpy's
                ready.tree[key_of(name)] = _shared(held, name, code, arrays.fetch, ready)
            elif rank():  # the first process writes it
                ready.tree[key_of(name)] = np.broadcast_to(np.zeros((), dtype_named(code)), shape)
            elif _is_map(held):
                crc = checksum(bytes_of(held))
                ready.tree[key_of(name)] = (
                    held if code == logical else np.frombuffer(bytes_of(held), np.uint8).reshape(shape)
                )
            else:
                spilled[name] = spill.tell()
                array = held if isinstance(held, np.ndarray) else arrays[name]
                crc = write_checked(cast("BinaryIO", spill), bytes_of(array))
                del array
            ready.records[name] = {"dtype": logical, "shape": list(held.shape), "crc32": crc, "nbytes": held.nbytes}
            if tick is not None:
                tick(held.nbytes // 2)
            del held  # gone before the next one is computed
        room = mmap.mmap(spill.fileno(), 0, access=mmap.ACCESS_READ) if spill.tell() else b""
    for name, at in spilled.items():
        code, shape = stored_as(ready.records[name]["dtype"], ready.records[name]["shape"])
        ready.tree[key_of(name)] = np.ndarray(shape, dtype_named(code), room, at)


def _shared(held: Any, name: str, code: str, fetch: Callable[[Any], Array], ready: _Ready) -> Any:
    """A JAX array as Orbax takes it, the checksums of the pieces that this process writes noted."""
    pieces = Pieces(held.shape, held.sharding.shard_shape(held.shape), ())
    try:
        for shard in held.addressable_shards:
            if shard.replica_id == 0:
                first = tuple(part.indices(size)[0] for part, size in zip(shard.index, held.shape, strict=True))
                ready.sums[ready.pieces + pieces.index(first)] = checksum(bytes_of(fetch(shard.data)))
        ready.shared[name] = pieces
        ready.pieces += pieces.count()
        return held if code == str(held.dtype) else _as_bytes(held, fetch)
    except RuntimeError as error:  # raised by JAX alone
        message = f"expected an array that keeps its data until it is written, got: {error}"
        raise SerializationError(about("NQX430", name, message, "donate it after the export has returned")) from error


def _as_bytes(held: Any, fetch: Callable[[Any], Array]) -> Any:
    """A JAX array of a dtype that zarr has no name for, as bytes that lie on the same devices."""
    import numpy as np

    jax, memory = importlib.import_module("jax"), held.sharding.memory_kind
    shards = [
        jax.device_put(
            fetch(shard.data).view(np.uint8), jax.sharding.SingleDeviceSharding(shard.device, memory_kind=memory)
        )
        for shard in held.addressable_shards
    ]
    return jax.make_array_from_single_device_arrays(held.shape, held.sharding, shards)


def _is_map(array: Any) -> bool:
    """True for views of a bundle's file, which never changes; what a user maps may be written into."""
    base: Any = array
    while isinstance(getattr(base, "base", None), type(array)):
        base = base.base
    view = getattr(base, "base", None)
    return isinstance(view, memoryview) and isinstance(view.obj, mmap.mmap)


def _started(target: Path, tree: Mapping[str, Any], *, alone: bool) -> Any:
    """Orbax at work on a tree, of which it has its own copy in host memory by now; None if there is nothing to write."""
    import numpy as np

    if not tree:
        if not rank():
            target.mkdir()
        return None
    checkpoint = package("orbax.checkpoint")
    handlers = checkpoint.type_handlers
    known = inspect.signature(handlers.NumpyHandler).parameters  # Orbax before 0.12 always copies
    no_copy = {"deepcopy_host_arrays": False} if "deepcopy_host_arrays" in known else {}  # nobody writes into them
    registry = handlers.create_type_handler_registry(
        (np.ndarray, handlers.NumpyHandler(**no_copy)),
        (importlib.import_module("jax").Array, handlers.ArrayHandler()),
    )
    handler = checkpoint.PyTreeCheckpointHandler(use_ocdbt=True, use_zarr3=False, type_handler_registry=registry)
    # The folder that the target is in has a new name each time: barriers must not be taken for those of other exports.
    together = checkpoint.options.MultiprocessingOptions(
        barrier_sync_key_prefix=target.parent.name, active_processes={0} if alone else None
    )
    patience = checkpoint.options.AsyncOptions(timeout_secs=_PATIENCE)
    writer = checkpoint.AsyncCheckpointer(handler, async_options=patience, multiprocessing_options=together)
    writer.save(target.absolute(), args=checkpoint.args.PyTreeSave(dict(tree)))  # no other will do
    return writer


@contextmanager
def _faults_told() -> Iterator[None]:
    """What Orbax and tensorstore raise, which is of many classes, as what could not be written.

    Raises:
        SerializationError: In the place of anything but errors of the system, which name what was refused.
    """
    try:
        yield
    except (StructError, OSError):
        raise
    except (ValueError, RuntimeError, KeyError, TypeError, NotImplementedError) as error:
        first = str(error).partition("\n")[0][:300]
        raise SerializationError(f"expected Orbax to write the arrays, got: {first}", code="NQX406") from error
