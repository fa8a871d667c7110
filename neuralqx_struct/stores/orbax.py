"""The ``orbax`` store: arrays as an Orbax checkpoint (OCDBT, zarr), each shard written from the device that has it.

Owns the folder ``arrays.orbax``: written by Orbax, so that its own tools read it, and read through tensorstore, without JAX.
An array is called by its name with everything but letters, digits and ``_.-~`` percent-encoded. What zarr has no name for
is stored as bytes; empty arrays are not stored at all, their record says all there is. Orbax checks nothing itself: the
checksums are ours, of the values, and compared when they are read.

The one module above the JAX line whose writing half may bring JAX in. Needs the extra ``orbax``.
"""

from __future__ import annotations

import importlib
import mmap
import os
import stat
import tempfile
from collections.abc import Collection, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast
from urllib.parse import quote

from neuralqx_struct.errors import Diagnostic, IntegrityError, SerializationError, StructError, UntrustedError
from neuralqx_struct.payload import HeldArrays, StoredArrays, dtype_name, dtype_named, raise_findings
from neuralqx_struct.stores import WHOLE, Access, Records, Source, Tick, about, checksum_finding, require_possible
from neuralqx_struct.stores.checksums import checksum, write_checked

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

__all__ = ["FILE", "FOLDER", "members", "read", "verify", "write"]

FILE: Final = "arrays.orbax"
FOLDER: Final = True
_NATIVE: Final = frozenset(
    [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ]
)
#: What tensorstore raises about files that are not what they should be.
_FAULTS: Final = (ValueError, KeyError, OSError, RuntimeError, NotImplementedError, TypeError)


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        hint = "pip install 'neuralqx-struct[orbax]'; or convert the bundle where it is installed"
        message = f"expected the package {name} for store 'orbax', got none"
        raise SerializationError(message, code="NQX615", hint=hint) from error


def _key(name: str) -> str:
    return quote(name, safe="") or "%"


def _stored(logical: str, shape: Collection[int]) -> tuple[str, tuple[int, ...]]:
    """The dtype and shape in zarr for an array; always of exactly as many bytes."""
    if logical in _NATIVE:
        return logical, tuple(shape)
    itemsize = dtype_named(logical).itemsize
    return "uint8", tuple(shape) if itemsize == 1 else (*shape, itemsize)


def write(
    target: Path | BinaryIO, arrays: Mapping[str, Array], *, compress: bool = False, tick: Tick | None = None
) -> dict[str, dict[str, Any]]:
    """Write all arrays; see :class:`~neuralqx_struct.stores.ArrayStore`.

    Orbax compresses always, so ``compress`` changes nothing. Sharded JAX arrays are written shard by shard; for their
    checksums each passes through the memory of this process once. Orbax takes all arrays at once, so that what is neither
    JAX's nor a map of a file passes through a temporary file: no second copy is in memory, and nobody writes into it.

    Raises:
        SerializationError: The bundle is a zip, the extra is not installed, or a dtype cannot be stored.
    """
    del compress
    import numpy as np

    if not isinstance(target, Path):
        message = "expected a folder for store 'orbax', got a zip"
        raise SerializationError(message, code="NQX614", hint="leave the suffix .zip out, or use store='npz'")
    checkpoint = _package("orbax.checkpoint")
    records: dict[str, dict[str, Any]] = {}
    tree: dict[str, Any] = {}
    total = 0
    with tempfile.TemporaryFile(dir=target.parent, buffering=0) as spill:
        spilled: dict[str, int] = {}
        for name in arrays:
            held = arrays.original(name) if isinstance(arrays, HeldArrays) else arrays[name]
            array = held if isinstance(held, np.ndarray) else arrays[name]
            try:
                logical = dtype_name(array.dtype)
            except SerializationError as error:
                raise SerializationError(about(d.code, name, d.message, d.hint) for d in error.diagnostics) from error
            crc = 0
            if not array.nbytes:
                pass  # its record says all there is
            elif not isinstance(held, np.ndarray) or _is_map(held):
                crc = checksum(_bytes(array))
                code, shape = _stored(logical, array.shape)
                tree[_key(name)] = held if code == logical else np.frombuffer(_bytes(array), np.uint8).reshape(shape)
            else:
                spilled[name] = spill.tell()
                crc = write_checked(cast("BinaryIO", spill), _bytes(array))
            records[name] = {"dtype": logical, "shape": list(array.shape), "crc32": crc, "nbytes": array.nbytes}
            total += array.nbytes
            if tick is not None:
                tick(array.nbytes // 2)
            del array, held  # gone before the next one is computed
        room = mmap.mmap(spill.fileno(), 0, access=mmap.ACCESS_READ) if spill.tell() else b""
    for name, at in spilled.items():
        code, shape = _stored(records[name]["dtype"], records[name]["shape"])
        tree[_key(name)] = np.ndarray(shape, dtype_named(code), room, at)
    if tree:
        handlers = checkpoint.type_handlers
        registry = handlers.create_type_handler_registry(
            (np.ndarray, handlers.NumpyHandler(deepcopy_host_arrays=False)),  # nobody writes into them
            (importlib.import_module("jax").Array, handlers.ArrayHandler()),
        )
        handler = checkpoint.PyTreeCheckpointHandler(use_ocdbt=True, use_zarr3=False, type_handler_registry=registry)
        with checkpoint.Checkpointer(handler) as writer:
            writer.save(target.absolute(), args=checkpoint.args.PyTreeSave(tree))  # no other will do
    else:
        target.mkdir()
    if tick is not None:
        tick(total - sum(record["nbytes"] // 2 for record in records.values()))
    return records


def _is_map(array: Array) -> bool:
    """True for views of a bundle's file, which never changes; what a user maps may be written into."""
    base: Any = array
    while isinstance(getattr(base, "base", None), type(array)):
        base = base.base
    return isinstance(base.base, memoryview) and isinstance(base.base.obj, mmap.mmap)


def _bytes(array: Array) -> memoryview | bytes:
    import numpy as np

    return np.asarray(array, order="C").reshape(-1).view(np.uint8).data if array.nbytes else b""


# ---------------------------------------------------------------------------------------------------------------------


class _Arrays(StoredArrays):
    """The arrays of a checkpoint, each opened, read and compared with its checksum when it is asked for."""

    __slots__ = ("_access", "_records", "_root")

    def __init__(self, root: Path, records: Records, access: Access) -> None:
        self._root, self._records, self._access = root, records, access

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __contains__(self, name: object) -> bool:
        return name in self._records

    def __getitem__(self, name: str) -> Array:
        array, problem = self._read(name, check=self._access.verify)
        if problem is not None:
            raise IntegrityError(problem)
        return array

    def verify(self, name: str) -> Diagnostic | None:
        """Read one array and compare its values with the checksum."""
        try:
            return self._read(name, check=True)[1]
        except StructError as error:
            found = error.diagnostics[0]
            return about(found.code, name, found.message, found.hint)

    def _read(self, name: str, *, check: bool) -> tuple[Array, Diagnostic | None]:
        import numpy as np

        record = self._records[name]
        dtype, shape = dtype_named(record["dtype"]), tuple(record["shape"])
        if not prod(shape) * dtype.itemsize:
            array = np.empty(shape, dtype)
        else:
            code, stored = _stored(record["dtype"], shape)
            values = _values(self._root, name, code, stored)
            array = values if values.dtype == dtype else values.reshape(-1).view(dtype).reshape(shape)
        array.flags.writeable = False
        problem = (
            checksum_finding(name, checksum(_bytes(array), self._access.tick), record.get("crc32")) if check else None
        )
        return array, problem


def _values(root: Path, name: str, code: str, shape: tuple[int, ...]) -> Array:
    """The values of one array of the checkpoint, whose own description must agree before anything is allocated."""
    import numpy as np

    tensorstore = _package("tensorstore")
    where = {"driver": "ocdbt", "base": {"driver": "file", "path": f"{root}/"}, "path": f"{_key(name)}/"}
    try:
        array = tensorstore.open({"driver": "zarr", "kvstore": where}, open=True, read=True).result()
        got = f"{array.dtype.name}{list(array.shape)}"
        chunk = array.chunk_layout.read_chunk.shape or ()
        if (array.dtype.name, tuple(array.shape)) != (code, shape) or any(
            part > max(size, 1) for part, size in zip(chunk, shape, strict=True)
        ):
            raise IntegrityError(about("NQX412", name, f"expected {code}{list(shape)} in the checkpoint, got {got}"))
        return np.ascontiguousarray(array.read().result()).reshape(shape)
    except _FAULTS as error:
        if isinstance(error, StructError):
            raise
        first = str(error).partition("\n")[0][:300]
        message = f"expected an array that tensorstore reads, got: {first}"
        raise IntegrityError(about("NQX408", name, message, "restore it from a copy")) from error


def read(source: Source, records: Records, access: Access = WHOLE) -> StoredArrays:
    """Open the arrays of a checkpoint; see :class:`~neuralqx_struct.stores.ArrayStore`. They are never mapped."""
    raise_findings(_survey(source, records, access), str(source))
    return _Arrays(_root(source), records, access)


def verify(source: Source, records: Records, access: Access = WHOLE) -> list[Diagnostic]:
    """Everything that is wrong with the arrays; see :class:`~neuralqx_struct.stores.ArrayStore`.

    What Orbax keeps beside them for itself is not covered by any checksum.
    """
    found = _survey(source, records, access)
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
    tensorstore = _package("tensorstore")
    try:
        store = tensorstore.KvStore.open({"driver": "ocdbt", "base": {"driver": "file", "path": f"{root}/"}}).result()
        return {key.decode("utf-8", "replace").rpartition("/")[0] for key in store.list().result()}
    except _FAULTS as error:
        first = str(error).partition("\n")[0][:300]
        message = f"expected a checkpoint that tensorstore reads, got: {first}"
        raise IntegrityError(message, code="NQX408", hint="restore it from a copy") from error


def _survey(source: Source, records: Records, access: Access) -> list[Diagnostic]:
    """Compare what is there with the records, reading no array."""
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
        if nbytes and _key(name) not in unclaimed:
            found.append(about("NQX409", name, "expected an array of this name in the checkpoint, got none"))
        unclaimed.discard(_key(name))
    unclaimed -= {_key(name) for name in access.superseded}
    hint = "the checkpoint was changed by hand, or the manifest belongs to another one"
    message = "expected a record for every array in the checkpoint, got none"
    return found + [about("NQX410", key, message, hint) for key in sorted(unclaimed)]
