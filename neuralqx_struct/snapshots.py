"""Snapshots: an object as a payload, its manifest with the schemas of what it holds and its arrays where they are.

Owns :func:`snapshot`. How values become nodes is ``codecs.py``; what is done with a payload ``checkpoint.py``.

Example:
    >>> payload = snapshot({"w": np.arange(3)}, copy=True)
    >>> payload.document["manifest"]["items"][0][0], payload.arrays["w"]
    ('w', array([0, 1, 2]))
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import jax
import numpy as np

from neuralqx_struct.arrays import HeldArrays
from neuralqx_struct.codecs import StructEncoder
from neuralqx_struct.errors import SerializationError
from neuralqx_struct.manifest import FORMAT_VERSION, SCHEMA_URL, WRITER, collector_paused
from neuralqx_struct.payload import Payload, dtype_name
from neuralqx_struct.registry import class_ref
from neuralqx_struct.schema.fingerprint import payload_fingerprint
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.series import Series
from neuralqx_struct.versioned import document_of_class, series_of_class

__all__ = ["snapshot", "too_deep"]


def snapshot(obj: Any, *, copy: bool, spread: bool = False, metadata: Mapping[str, Any] | None = None) -> Payload:
    """The payload of an object.

    Args:
        obj: A Struct, or any tree of values that can be saved.
        copy: Copy the arrays; otherwise they stay where they are.
        spread: Leave arrays of several devices or processes as they are.
        metadata: Free JSON values.

    Raises:
        SerializationError: NQX430 with every value that cannot be saved and its path.
    """
    encoder = StructEncoder(copy=copy, spread=spread)
    try:
        with collector_paused():
            node = encoder.encode(obj)
    except RecursionError as error:
        raise too_deep() from error
    encoder.finish()
    document: dict[str, Any] = {"$schema": SCHEMA_URL, "version": FORMAT_VERSION}
    series, own = series_of_class(type(obj)), document_of_class(type(obj))
    if own is not None:
        document["schema"] = {"id": own.id, "version": own.version, "fingerprint": payload_fingerprint(own)}
    if carried := _travelling(series, encoder.classes):
        document["schemas"] = carried
    document["manifest"] = node
    document["arrays"] = {
        name: {"dtype": dtype_name(array.dtype), "shape": list(array.shape)} for name, array in encoder.arrays.items()
    }
    # What lies in this memory already is looked at now, so that nothing can take it away; the rest stays on its devices.
    arrays = {name: array if _elsewhere(array) else _fetched(array) for name, array in encoder.arrays.items()}
    held = HeldArrays(arrays, _fetched)
    if metadata is not None:
        document["metadata"] = _plain_metadata(metadata)
    document["writer"] = dict(WRITER)
    return Payload(document, dict(held) if copy else held)


def _elsewhere(array: Any) -> bool:
    """True unless the array is numpy's, or shows numpy its data where they are."""
    return not isinstance(array, np.ndarray) and (
        len(array.devices()) > 1 or next(iter(array.devices())).platform != "cpu"
    )


def _fetched(array: Any) -> np.ndarray[Any, Any]:
    """An array as numpy's; JAX keeps no second copy of what lies on other devices."""
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
        raise SerializationError(message, code="NQX430", hint="donate them after the export has returned") from error
    return whole


def _on_host(array: jax.Array) -> np.ndarray[Any, Any]:
    if next(iter(array.devices())).platform != "cpu":
        with suppress(RuntimeError):  # the process has no CPU device: JAX then keeps the copy beside the array
            array = jax.device_put(array, jax.local_devices(backend="cpu")[0])
    return np.asarray(array)


def _travelling(series: Series | None, classes: Iterable[type]) -> list[dict[str, Any]]:
    """The documents of every schema that a payload holds structs of, the root's first."""
    others = map(series_of_class, sorted(classes, key=class_ref))
    found: dict[tuple[str, int], Document] = {}
    for known in [series, *others]:
        for document in (*known.documents.values(), *known.earlier) if known is not None else ():
            for each in document.closure():
                found.setdefault((each.id, each.version), each)
    return [document.to_data() for document in found.values()]


def too_deep() -> SerializationError:
    """The error for a nest that the stack of this thread is too small for."""
    message = "expected a nest that fits the stack of this thread, got a deeper one"
    hint = "save and load at a lower level of calls, or raise sys.setrecursionlimit"
    return SerializationError(message, code="NQX005", path="$", hint=hint)


def _plain_metadata(metadata: Mapping[str, Any]) -> Any:
    """Check that the user's metadata is strict JSON, so that the manifest stays readable by any tool."""
    try:
        return json.loads(json.dumps(dict(metadata), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise SerializationError(
            f"expected metadata of plain JSON values, got something else\n{error}",
            code="NQX430",
            path="metadata",
            hint="use str, numbers, booleans, None, lists and dicts with str keys",
        ) from None
