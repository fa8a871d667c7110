"""The payload of an object: its manifest, the documents of its schemas, and its arrays, copied or on their devices.

Example:
    >>> import numpy as np
    >>> sorted(snapshot({"w": np.arange(3)}, ExportOptions(), copy=True).arrays)
    ['w']
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import jax
import numpy as np

from neuralqx_struct.checkpoint.metadata import plain_metadata
from neuralqx_struct.checkpoint.options import ExportOptions
from neuralqx_struct.codecs.jax import StructEncoder
from neuralqx_struct.documents.bound import document_of, series_of_class
from neuralqx_struct.dtypes import dtype_name
from neuralqx_struct.errors import SerializationError, within_stack
from neuralqx_struct.manifest import (
    FORMAT_VERSION,
    SCHEMA_URL,
    WRITER,
    Limits,
    collector_paused,
)
from neuralqx_struct.manifest.payload import HeldArrays, Payload
from neuralqx_struct.references import class_ref
from neuralqx_struct.schema.lock import schema_member
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.series import Series


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
    payload = snapshot(obj, ExportOptions(check=check, limits=limits), copy=copy)
    return {**payload.document, "array_data": payload.arrays}


@within_stack
def snapshot(obj: Any, options: ExportOptions, *, copy: bool, spread: bool = False) -> Payload:
    """The payload of an object: its manifest with the schemas of its structs, and its arrays.

    Args:
        obj: A Struct, or any tree of values that can be saved.
        options: How it is saved: the metadata, the check and the limits.
        copy: Copy the arrays; otherwise they stay on their devices.
        spread: Leave JAX arrays as they are, for a store that writes them from their devices.

    Raises:
        SerializationError: NQX430 with every value that cannot be saved and its path.
    """
    encoder = StructEncoder(copy=copy, spread=spread, check=options.check, limits=options.most)
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
    if options.metadata is not None:
        document["metadata"] = plain_metadata(options.metadata)
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
