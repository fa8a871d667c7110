"""Writing bundles: all of one or nothing.

Owns :func:`write`, and :func:`unfinished` for those who write the parts by themselves. Atomic replacement is
``replacement.py``'s, the files of a new bundle are ``filling.py``'s.

Example:
    >>> import tempfile
    >>> write(f"{tempfile.mkdtemp()}/ckpt", Payload({"version": 1, "manifest": 5, "arrays": {}}, {})).name
    'ckpt'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from neuralqx_struct.arrays import StoredArrays
from neuralqx_struct.bundle.filling import new_bundle
from neuralqx_struct.bundle.reading import ticking
from neuralqx_struct.errors import SerializationError
from neuralqx_struct.manifest import DEFAULT_FILE, DEFAULT_LIMITS, SCHEMA_URL, WRITER, collector_paused
from neuralqx_struct.manifest_text import format_manifest
from neuralqx_struct.payload import Payload, check, raise_findings
from neuralqx_struct.stores import Progress, Records, store_named

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

__all__ = ["OF_BYTES", "formatted", "recorded", "signed", "unfinished", "write"]

_T = TypeVar("_T")
# What a record says of the bytes of an array, not of the array.
OF_BYTES = ("crc32", "chunk", "chunk_crc32", "offset", "nbytes", "file")


def write(
    path: str | Path,
    payload: Payload,
    *,
    overwrite: bool = False,
    store: str = "npz",
    compress: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Write a bundle, all of it or nothing: a folder, or with the suffix ``.zip`` one file.

    Args:
        path: Where; missing parents are made.
        payload: What.
        overwrite: Replace a bundle that is there; nothing but a bundle is ever replaced.
        store: The store of the arrays.
        compress: Deflate the arrays; they can then not be mapped.
        progress: Called with (bytes done, bytes in all).

    Returns:
        The path.

    Raises:
        BundleExistsError: The target exists.
        BundleWriteError: The system refused a write; what stood at the path is untouched.
        SerializationError: The payload is not sound, or could not be read back with the default limits.
    """
    path = Path(path)
    raise_findings(check(payload), str(path))
    module = store_named(store)
    names = [*payload.document["arrays"]]
    arrays = {name: payload.arrays[name] for name in names} if not _lazy(payload) else payload.arrays
    tick = ticking(progress, payload.document["arrays"])
    with collector_paused(), unfinished(path, payload.document, store=store, overwrite=overwrite) as (put, finish):
        finish(put(lambda place: module.write(place, arrays, compress=compress, tick=tick)))
    return path


@contextmanager
def unfinished(
    path: Path, document: Mapping[str, Any], *, store: str, overwrite: bool
) -> Iterator[tuple[Callable[[Callable[[Any], _T]], _T], Callable[[Records], None]]]:
    """A new bundle in two steps, its array file and its manifest; it takes its place at the end.

    Args:
        path: As for :func:`write`.
        document: The manifest, its records still without what a store knows.
        store: The store of the arrays.
        overwrite: As for :func:`write`.

    Yields:
        Calls a function with the place of the array file, and gives what that gives; and writes the manifest, once there
        are records of what was written.
    """
    file = store_named(store).FILE
    with new_bundle(path, overwrite=overwrite) as new:

        def finish(records: Records) -> None:
            given = document["arrays"]
            named = {name: recorded(given[name], records[name], file) for name in given}
            new.finish(formatted(signed(document, named)))

        yield lambda fill: new.put(file, fill), finish


def _lazy(payload: Payload) -> bool:
    return isinstance(payload.arrays, StoredArrays) and payload.arrays.keys() == payload.document["arrays"].keys()


def recorded(old: Mapping[str, Any], new: Mapping[str, Any], file: str) -> dict[str, Any]:
    """A fresh record that keeps what the old one said beyond the place and checksum of the bytes."""
    kept = {name: value for name, value in old.items() if name not in OF_BYTES}
    return {**kept, **new, **({} if file == DEFAULT_FILE else {"file": file})}


def signed(document: Mapping[str, Any], records: Mapping[str, Any]) -> dict[str, Any]:
    """The document as it is written: with its records, and who wrote it."""
    return {"$schema": SCHEMA_URL, "writer": dict(WRITER), **document, "arrays": dict(records)}


def formatted(document: dict[str, Any]) -> bytes:
    """The bytes of a manifest that the default limits read."""
    data = format_manifest(document)
    if len(data) > DEFAULT_LIMITS.manifest_bytes:
        message = f"expected a manifest of at most {DEFAULT_LIMITS.manifest_bytes} bytes, got {len(data)}"
        raise SerializationError(message, code="NQX005", hint="save large values as arrays")
    return data
