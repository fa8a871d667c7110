"""Structs as items of Orbax: of ``CheckpointManager``, and of ``orbax.checkpoint.v1``.

The folder of an item is a bundle: ``manifest.json``, and the arrays in the store ``orbax``. A save blocks until all
arrays have been copied from their devices. Then Orbax writes them, and a thread computes their checksums. The manifest is
written when every process has written its part, before Orbax gives the step its name. Needs the extra ``orbax``.

Example:
    >>> import tempfile
    >>> import orbax.checkpoint as ocp
    >>> with ocp.CheckpointManager(tempfile.mkdtemp()) as manager:
    ...     _ = manager.save(10, args=StructSave({"w": np.arange(3), "step": 10}))
    ...     manager.wait_until_finished()
    ...     manager.restore(10, args=StructRestore())
    {'w': array([0, 1, 2]), 'step': 10}
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count as numbers
from pathlib import Path
from typing import Any, ClassVar, Final, Unpack

import numpy as np

from neuralqx_struct.bundle.members import formatted, recorded, signed, write_file
from neuralqx_struct.checkpoint import (
    LoadKeywords,
    ReadKeywords,
    from_state_dict,
    load,
    to_state_dict,
)
from neuralqx_struct.checkpoint.options import ExportOptions
from neuralqx_struct.checkpoint.payloads import snapshot
from neuralqx_struct.classes.schemas import Schema, load_schema
from neuralqx_struct.errors import SerializationError
from neuralqx_struct.fieldspec import Values, is_struct
from neuralqx_struct.formats.hosts import agreed, count, rank
from neuralqx_struct.formats.orbax_layout import TREE_METADATA, package
from neuralqx_struct.formats.orbax_store import ORBAX_STORE
from neuralqx_struct.formats.orbax_writing import Ready, array_handler, handed_over
from neuralqx_struct.manifest import MANIFEST, Limits, raise_findings
from neuralqx_struct.manifest.payload import check
from neuralqx_struct.places.checksums import crc32
from neuralqx_struct.printing import brief
from neuralqx_struct.struct import Struct

__all__ = ["StructCheckpointHandler", "StructHandler", "StructRestore", "StructSave"]

_ocp: Any = package("orbax.checkpoint")
_futures: Any = package("orbax.checkpoint.future")
_AsyncHandler: Any = _ocp.AsyncCheckpointHandler
_CheckpointArgs: Any = _ocp.args.CheckpointArgs
_CheckpointableHandler: Any = _ocp.v1.handlers.CheckpointableHandler
#: The names of barriers, which every process meets in the same order.
_BARRIERS: Final = numbers()
_TRIES: Final = 1000
_PAUSE: Final = 0.01  # seconds


class _Item:
    """An item on its way to the disk.

    Args:
        obj: A Struct, or any tree of values that can be saved.
        options: How it is saved.

    Raises:
        SerializationError: A value cannot be saved, in whichever of the processes.
    """

    def __init__(self, obj: Any, options: ExportOptions) -> None:
        self._document: dict[str, Any] = {}
        self._ready = Ready()
        self._most = options.most.manifest_bytes

        def prepare() -> bytes:
            payload = snapshot(obj, options, copy=False, spread=True)
            raise_findings(check(payload, options.most))
            self._document = payload.document
            self._ready = handed_over(payload.arrays)
            return b""

        agreed(prepare)

    async def begin(self, handler: Any, place: Path) -> list[Any]:
        """Lets Orbax copy the arrays from their devices; returns the futures that write them."""
        futures: list[Any] = []
        tree = self._ready.tree
        if tree:
            save = _ocp.args.PyTreeSave(dict(tree))
            futures += await handler.async_save(_path_of_orbax(place) / ORBAX_STORE.file, args=save)
        self._ready.fetch()
        tree.clear()  # frees the arrays on their devices
        return futures

    def sum_up(self, place: Path) -> None:
        """Computes the checksums of this process, and writes them for the first one."""
        # In one thread: several would hold up those that write.
        self._ready.sum_up(np.asarray, crc32)
        if rank():
            write_file(_sums_at(place, rank()), self._ready.packed())

    def complete(self, handler: Any, place: Path) -> None:
        """Merges the parts of all processes, and writes the manifest; in the first process, when all have written."""
        arrays = place / ORBAX_STORE.file
        if self._ready.arrays:
            handler.finalize(_path_of_orbax(arrays))
        else:
            arrays.mkdir()
        files = [_sums_at(place, number) for number in range(1, count())]
        packed = [self._ready.packed(), *(file.read_bytes() for file in files)]
        records = self._ready.recorded(packed)
        for file in files:
            file.unlink()
        given = self._document["arrays"]
        named = {name: recorded(given[name], records[name], ORBAX_STORE.file) for name in given}
        write_file(place / MANIFEST, formatted(signed(self._document, named), self._most))


def _sums_at(place: Path, process: int) -> Path:
    return place / f"checksums.{process}"


def _path_of_orbax(path: Path) -> Any:
    return package("etils.epath").Path(path)


def _local(directory: Any) -> Path:
    """A path of Orbax as a path of this machine.

    Raises:
        SerializationError: It is a URL.
    """
    text = os.fspath(directory)
    if "://" in text:
        message = f"expected a folder that this machine sees, got the URL {text!r}"
        hint = "let the manager write to a file system that all hosts share, and copy the steps"
        raise SerializationError(message, code="NQX406", hint=hint)
    return Path(text).absolute()


@asynccontextmanager
async def _made(wait: Callable[[], Awaitable[Any]]) -> AsyncIterator[None]:
    """Raises an error when Orbax has made the folder of the item.

    A manager that is closed before never makes it. Threads of Orbax wait for it, and the interpreter for them: 5 minutes.
    """
    try:
        yield
    except Exception:
        await wait()
        raise


async def _seen(place: Path) -> None:
    """Waits until a folder is there, 10 seconds at most: several processes may have lost the one that makes it."""
    for _ in range(_TRIES):
        if place.is_dir():
            break
        await asyncio.sleep(_PAUSE)


class StructCheckpointHandler(_AsyncHandler):  # type: ignore[misc]
    """Saves and restores Structs, and any tree that :func:`~neuralqx_struct.export` takes, in ``CheckpointManager``.

    The manager makes it where it is given :class:`StructSave` or :class:`StructRestore`, also inside of
    ``ocp.args.Composite``.

    Args:
        limits: Sizes above which an item is refused, by ``metadata`` too; ``StructSave`` and ``StructRestore`` may
            have others. The manager takes a handler in ``handler_registry`` or ``item_handlers``.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._handler = array_handler()
        self._limits = limits
        self._items: dict[Path, _Item] = {}

    async def async_save(self, directory: Any, args: StructSave) -> list[Any]:
        """Copies the arrays from their devices; returns the futures that write the item."""
        place = _local(directory)
        async with _made(partial(_seen, place)):
            limits = args.limits or self._limits
            options = ExportOptions(metadata=args.metadata, limits=limits)
            item = self._items[place] = _Item(args.item, options)
            futures = await item.begin(self._handler, place)

        async def sum_up() -> None:
            item.sum_up(place)

        make = _futures.CommitFutureAwaitingContractedSignals  # the folder exists from then on
        return [*futures, make(sum_up(), name="struct_checksums")]

    def save(self, directory: Any, args: StructSave) -> None:
        """Writes the item, and waits."""
        for future in _run(self.async_save(directory, args)):
            future.result()

    def finalize(self, directory: Any) -> None:
        """Writes the manifest; called in the first process, when all have written."""
        place = _local(directory)
        item = self._items.pop(place, None)
        if item is not None:
            item.complete(self._handler, place)

    def restore(self, directory: Any, args: StructRestore | None = None) -> Any:
        """Loads the item."""
        return (args or StructRestore()).load(_local(directory), self._limits)

    def metadata(self, directory: Any) -> Any:
        """The item with ``jax.ShapeDtypeStruct`` in the place of its arrays."""
        return load(_local(directory), abstract=True, limits=self._limits)

    def close(self) -> None:
        """Releases what the handler of the arrays holds."""
        self._handler.close()


def _run(coroutine: Any) -> Any:
    """The result of a coroutine, also where an event loop runs, as in notebooks."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


@_ocp.args.register_with_handler(StructCheckpointHandler, for_save=True)
@dataclasses.dataclass
class StructSave(_CheckpointArgs):  # type: ignore[misc]
    """What to save as an item.

    Attributes:
        item: A Struct, or any tree of values that :func:`~neuralqx_struct.export` takes.
        metadata: Free JSON values, kept in the manifest.
        limits: Sizes above which the item is refused, as for :func:`~neuralqx_struct.export`.
    """

    item: Any
    metadata: Values | None = None
    limits: Limits | None = None


@_ocp.args.register_with_handler(StructCheckpointHandler, for_restore=True)
class StructRestore(_CheckpointArgs):  # type: ignore[misc]
    """How to restore an item.

    Args:
        load_cls: The class that the root must be; an item of an older version of its schema is migrated. An item that
            Orbax's ``StandardSave`` wrote is restored too, with ``like`` or under the schema.
        schema: In place of ``load_cls``, a Schema, or the folder, file or text of one.
        **options: The other options of :func:`~neuralqx_struct.load`, such as ``mesh``, ``rules``, ``select``.

    Raises:
        ValueError: Both a class and a schema were given.
    """

    def __init__(
        self,
        load_cls: type | None = None,
        *,
        schema: Schema | str | os.PathLike[str] | None = None,
        **options: Unpack[LoadKeywords],
    ) -> None:
        if schema is not None:
            if load_cls is not None:
                raise ValueError("schema=: expected either load_cls= or schema=, got both")
            known = schema if isinstance(schema, Schema) else load_schema(schema)  # type: ignore[arg-type]
            load_cls = known.root
        self._load_cls = load_cls
        self._options = options

    def load(self, path: Path, limits: Limits | None = None) -> Any:
        """Loads a bundle with these options, and with other limits if they have none."""
        options: LoadKeywords = {"limits": limits, **self._options}
        if not (path / MANIFEST).exists() and (path / TREE_METADATA).exists():
            return self._load_tree(path, options)
        return load(path, load_cls=self._load_cls, **options)

    def _load_tree(self, path: Path, options: LoadKeywords) -> Any:
        """Loads an item of a run that began with ``StandardSave`` or ``PyTreeSave``, which names no classes.

        Raises:
            SerializationError: No option determines what the tree becomes; or it does not fit the class.
        """
        like = options.get("like")
        if like is None and self._load_cls is None and not options.get("raw"):
            message = (
                "expected like= or a schema for an item that Orbax's own handler wrote, got neither"
            )
            hint = "such an item names no classes: pass like=, a new state, or schema=, or raw=True for nested dicts"
            raise SerializationError(message, code="NQX401", file=str(path), hint=hint)
        handler = _ocp.StandardCheckpointHandler()
        tree = handler.restore(_path_of_orbax(path), args=_ocp.args.StandardRestore(like))
        if like is not None or options.get("raw"):
            return tree
        given: Any = options
        read = {name: given[name] for name in ReadKeywords.__annotations__ if name in given}
        return from_state_dict(to_state_dict(tree, copy=False), load_cls=self._load_cls, **read)


class StructHandler(_CheckpointableHandler):  # type: ignore[misc]
    """Saves and loads Structs in ``orbax.checkpoint.v1``, which knows it once this module is imported.

    The abstract form, by which a Struct is loaded, is its class or schema; or an object with
    ``jax.ShapeDtypeStruct`` in the place of arrays, whose shardings it gets; or a :class:`StructRestore`, which has
    all options. Without one, the Struct is loaded as it was saved.

    Attributes:
        limits: Sizes above which an item is refused, of a subclass that is registered for the item.
    """

    limits: ClassVar[Limits | None] = None

    async def save(self, directory: Any, checkpointable: Any) -> Awaitable[None]:
        """Copies the arrays from their devices; returns what writes the item."""
        place = _local(directory.path)
        handler = array_handler()
        async with _made(directory.await_creation):
            item = _Item(checkpointable, ExportOptions(limits=self.limits))
            futures = await item.begin(handler, place)
        barrier = f"{place}:{next(_BARRIERS)}"

        def write() -> None:
            item.sum_up(place)
            for future in futures:
                future.result()
            _ocp.multihost.sync_global_processes(barrier, processes=set(range(count())))
            if not rank():
                item.complete(handler, place)
            handler.close()

        async def finish() -> None:
            await directory.await_creation()
            await asyncio.to_thread(write)

        return finish()

    async def load(self, directory: Any, abstract_checkpointable: Any = None) -> Awaitable[Any]:
        """Returns what loads the item."""
        place = _local(directory)
        wanted = _restore_of(abstract_checkpointable)

        async def read() -> Any:
            return wanted.load(place, self.limits)

        return read()

    async def metadata(self, directory: Any) -> Any:
        """The item with ``jax.ShapeDtypeStruct`` in the place of its arrays."""
        return load(_local(directory), abstract=True, limits=self.limits)

    def is_handleable(self, checkpointable: Any) -> bool:
        """True for Structs."""
        return is_struct(checkpointable) and not isinstance(checkpointable, type)

    def is_abstract_handleable(self, abstract_checkpointable: Any) -> bool:
        """True for schemas, Structs and their classes, and StructRestore."""
        kinds = (Schema, StructRestore)
        return isinstance(abstract_checkpointable, kinds) or is_struct(abstract_checkpointable)


def _restore_of(abstract: Any) -> StructRestore:
    """The options of a load by an abstract form.

    Raises:
        TypeError: It is no abstract form.
    """
    if isinstance(abstract, StructRestore):
        return abstract
    if isinstance(abstract, Schema):
        return StructRestore(schema=abstract)
    if abstract is None or isinstance(abstract, type):
        return StructRestore(abstract)
    if is_struct(abstract):
        return StructRestore(like=abstract)
    message = "expected a Struct, its class or schema, or a StructRestore"
    raise TypeError(f"abstract form: {message}, got {brief(abstract)}")


# Here, and not where it is used: Orbax refuses to register a handler twice, as a cell of a notebook would.
_ocp.v1.handlers.register_handler(StructHandler)
# Under the name `state` Orbax takes its own handler of trees, but not for such objects. The registration takes no methods.
if hasattr(_ocp.v1, "StatefulCheckpointable"):
    _ocp.v1.StatefulCheckpointable.register(Struct)
