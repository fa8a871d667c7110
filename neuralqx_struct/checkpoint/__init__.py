"""Checkpoints: saves objects as bundles (:func:`export`) and as state dicts (:func:`to_state_dict`), and loads them.

Owns saving: an object is encoded to nodes, with the schemas of its structs beside them. ``codecs/`` encodes values,
``bundle/`` writes files, ``loading.py`` is the inverse.

Example:
    >>> payload = to_state_dict({"w": np.arange(3)})
    >>> from_state_dict(payload)["w"]
    array([0, 1, 2])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, overload

import jax
import numpy as np

import neuralqx_struct.formats.npz  # noqa: F401 - the default store: a save in a handler shall not find it half imported
from neuralqx_struct import bundle
from neuralqx_struct.bundle.writing import (
    PendingBundle,
    begin,
    inside_a_save,
    saving,
    settle,
)
from neuralqx_struct.checkpoint.loading import (
    LoadOptions,
    ReadOptions,
    from_state_dict,
    load,
)
from neuralqx_struct.checkpoint.metadata import plain_metadata
from neuralqx_struct.checkpoint.replay import Replay, with_replays
from neuralqx_struct.classes.documents import document_of, series_of_class
from neuralqx_struct.codecs.jax import StructEncoder
from neuralqx_struct.dtypes import dtype_name
from neuralqx_struct.errors import SerializationError, within_stack
from neuralqx_struct.fieldspec import Values
from neuralqx_struct.formats.store import Progress, store_named
from neuralqx_struct.manifest import (
    DEFAULT_LIMITS,
    FORMAT_VERSION,
    SCHEMA_URL,
    WRITER,
    Limits,
    collector_paused,
)
from neuralqx_struct.manifest.payload import HeldArrays, Payload
from neuralqx_struct.places.urls import Options, Place, place_of
from neuralqx_struct.references import class_ref
from neuralqx_struct.schema.lock import schema_member
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.series import Series

__all__ = [
    "ExportOptions",
    "LoadOptions",
    "ReadOptions",
    "export",
    "from_state_dict",
    "load",
    "to_state_dict",
]


class ExportOptions(TypedDict, total=False):
    """The options of :func:`export`, for type checkers."""

    overwrite: bool
    store: str
    compress: bool
    metadata: Values | None
    progress: Progress | None
    check: bool
    limits: Limits | None
    storage_options: Options | None
    replay: Mapping[str, Replay] | None


def to_state_dict(
    obj: Any, *, check: bool = True, copy: bool = True, limits: Limits | None = None
) -> dict[str, Any]:
    """An object as plain JSON values and numpy arrays, all copied.

    Args:
        obj: A Struct, or any tree of values that can be saved.
        check: Refuse Structs that a load would refuse, as :func:`export` does.
        copy: Copy the arrays. Without it each is fetched when ``array_data`` is asked for it.
        limits: Sizes above which the object is refused, as for :func:`export`.

    Returns:
        The members of ``manifest.json`` (``version``, ``manifest``, ``arrays``, with a schema also ``schema`` and
        ``schemas``) and ``array_data``, the arrays by name.

    Raises:
        SerializationError: NQX430 with every value that cannot be saved and its path; or the findings of a load.

    Example:
        >>> sorted(to_state_dict({"w": np.arange(3)})["array_data"])
        ['w']
    """
    payload = snapshot(obj, copy=copy, check=check, limits=limits)
    return {**payload.document, "array_data": payload.arrays}


@overload
def export(
    obj: Any, path: str | Place, *, asynchronous: Literal[True], **options: Unpack[ExportOptions]
) -> PendingBundle: ...
@overload
def export(
    obj: Any,
    path: str | Place,
    *,
    asynchronous: Literal[False] = False,
    **options: Unpack[ExportOptions],
) -> Path: ...
def export(
    obj: Any,
    path: str | Place,
    *,
    overwrite: bool = False,
    store: str = "npz",
    compress: bool = False,
    metadata: Values | None = None,
    progress: Progress | None = None,
    asynchronous: bool = False,
    check: bool = True,
    limits: Limits | None = None,
    storage_options: Options | None = None,
    replay: Mapping[str, Replay] | None = None,
) -> Path | PendingBundle:
    """Saves an object as a bundle: a directory, or with the suffix ``.zip`` one file.

    If a JAX program has several processes, all of them call this with ``store="orbax"`` and the same
    arguments: each writes its own shards.

    Args:
        obj: A Struct, or any tree of values that can be saved.
        path: The target, a path or a URL such as ``s3://bucket/ckpt`` (with the extra ``remote``); missing parents are made.
        overwrite: Replace an existing bundle; nothing but a bundle is ever replaced.
        store: ``npz``, ``safetensors`` or ``orbax`` (in folders, with the extra ``orbax``: sharded arrays by
            shards, of one or many hosts).
        compress: Smaller files that cannot be mapped.
        metadata: Free JSON values, kept in the manifest.
        progress: Called with bytes written and bytes in all.
        asynchronous: Return when all arrays have been copied from their devices, and write in a thread. The
            interpreter waits for that before it exits.
        check: Refuse Structs that a load would refuse, such as those that ``tree.map`` has cast or stacked. Without it they
            are saved anyway, and ``load(path, raw=True)`` reads them.
        limits: Sizes above which the object is refused; a bundle above the default ones needs them in every reader too.
        storage_options: Options of fsspec for a URL, such as keys.
        replay: Functions of the object by name, made by :func:`~neuralqx_struct.replay`, which are kept in the metadata.

    Returns:
        The path, of a URL an object that ``load`` takes and whose text is the URL without passwords; with ``asynchronous`` a :class:`~neuralqx_struct.bundle.writing.PendingBundle`, whose
        ``wait()`` returns it.

    Raises:
        SerializationError: A value cannot be saved (NQX430), or not be loaded again; or the target exists (then also a
            FileExistsError); or an earlier export in the background failed, and nobody waited for it.

    Example:
        >>> import tempfile
        >>> export([1, 2], f"{tempfile.mkdtemp()}/numbers").name
        'numbers'
    """
    return save(
        obj,
        path,
        asynchronous=asynchronous,
        overwrite=overwrite,
        store=store,
        compress=compress,
        metadata=metadata,
        progress=progress,
        check=check,
        limits=limits,
        storage_options=storage_options,
        replay=replay,
    )


def save(
    obj: Any,
    path: str | Place,
    *,
    asynchronous: bool,
    overwrite: bool = False,
    store: str = "npz",
    compress: bool = False,
    metadata: Values | None = None,
    progress: Progress | None = None,
    check: bool = True,
    limits: Limits | None = None,
    storage_options: Options | None = None,
    replay: Mapping[str, Replay] | None = None,
    around: AbstractContextManager[object] | None = None,
) -> Path | PendingBundle:
    """As :func:`export`; ``around`` is left when the bundle is complete, and entered by one process only."""
    path = place_of(path, storage_options)
    chosen = store_named(store)
    together = chosen.begin is not None and (asynchronous or jax.process_count() > 1)
    copy = asynchronous and not together
    alone = not inside_a_save()

    def payload() -> Payload:
        if alone:
            settle(path)
        held = snapshot(
            obj, copy=copy, spread=together, metadata=metadata, check=check, limits=limits
        )
        if not replay:
            return held
        return replace(held, document=with_replays(held, obj, replay, limits))

    with saving():
        if not (asynchronous or together):
            held = payload()
            with around or nullcontext():
                return bundle.write(
                    path,
                    held,
                    overwrite=overwrite,
                    store=store,
                    compress=compress,
                    progress=progress,
                    limits=limits,
                )
        pending = begin(
            path,
            payload,
            chosen,
            overwrite=overwrite,
            compress=compress,
            progress=progress,
            limits=limits,
            around=around,
        )
    return pending if asynchronous else pending.wait()


@within_stack
def snapshot(
    obj: Any,
    *,
    copy: bool,
    check: bool = True,
    spread: bool = False,
    metadata: Values | None = None,
    limits: Limits | None = None,
) -> Payload:
    """The payload of an object: its manifest with the schemas of its structs, and its arrays.

    Args:
        obj: A Struct, or any tree of values that can be saved.
        copy: Copy the arrays; otherwise they stay on their devices.
        check: Refuse Structs that a load would refuse.
        spread: Leave JAX arrays as they are, for a store that writes them from their devices.
        metadata: Free JSON values.
        limits: Sizes above which the object is refused.

    Raises:
        SerializationError: NQX430 with every value that cannot be saved and its path.
    """
    encoder = StructEncoder(copy=copy, spread=spread, check=check, limits=limits or DEFAULT_LIMITS)
    with collector_paused():
        node = encoder.encode(obj)
    encoder.finish()
    document: dict[str, Any] = {"$schema": SCHEMA_URL, "version": FORMAT_VERSION}
    own = document_of(type(obj))
    if own is not None:
        document["schema"] = schema_member(own)
    schemas = _schemas(series_of_class(type(obj)), encoder.classes)
    if schemas:
        document["schemas"] = schemas
    document["manifest"] = node
    document["arrays"] = {
        name: {"dtype": dtype_name(array.dtype), "shape": list(array.shape)}
        for name, array in encoder.arrays.items()
    }
    # Arrays in host memory are viewed now, so that deleting them cannot lose data; others stay on their devices.
    arrays = {
        name: array if spread or _on_device(array) else _fetched(array)
        for name, array in encoder.arrays.items()
    }
    held = HeldArrays(arrays, _fetched)
    if metadata is not None:
        document["metadata"] = plain_metadata(metadata)
    document["writer"] = dict(WRITER)
    return Payload(document, dict(held) if copy else held)


def _on_device(array: Any) -> bool:
    """True for JAX arrays whose data numpy cannot view."""
    if isinstance(array, np.ndarray):
        return False
    devices = array.devices()
    return len(devices) > 1 or next(iter(devices)).platform != "cpu"


def _fetched(array: Any) -> np.ndarray[Any, Any]:
    """An array as a numpy array; JAX keeps no second copy of data from other devices."""
    if isinstance(array, np.ndarray):
        return array
    try:
        if len(array.devices()) == 1:
            return _on_host(array)
        whole = np.empty(array.shape, array.dtype)
        for shard in array.addressable_shards:
            if shard.replica_id == 0:
                whole[shard.index] = _on_host(shard.data)
    except RuntimeError as error:  # raised by JAX alone
        message = f"expected arrays that keep their data until they are written, got: {error}"
        hint = "donate them after the export has returned"
        raise SerializationError(message, code="NQX430", hint=hint) from error
    return whole


def _on_host(array: jax.Array) -> np.ndarray[Any, Any]:
    if _on_device(array):
        # Without a CPU device in this process JAX keeps the copy beside the array.
        with suppress(RuntimeError):
            array = jax.device_put(array, jax.local_devices(backend="cpu")[0])
    found = np.asarray(array)
    if found.dtype != array.dtype:  # int1 and uint1 come as truth values, and cannot be made again
        message = f"expected numbers of {array.dtype}, got {found.dtype} from this release of JAX"
        raise SerializationError(message, code="NQX430", hint="convert the array before saving it")
    return found


def _schemas(series: Series | None, classes: Iterable[type]) -> list[dict[str, Any]]:
    """The documents of every schema that a payload holds structs of, those of the root first."""
    found: dict[tuple[str, int], Document] = {}
    for known in (series, *map(series_of_class, sorted(classes, key=class_ref))):
        if known is None:
            continue
        for document in (*known.documents.values(), *known.earlier):
            for each in document.closure():
                found.setdefault((each.id, each.version), each)
    return [document.to_data() for document in found.values()]
