"""Writes bundles, each completely or not at all. ``forms.py`` has the places, ``background.py`` writes meanwhile.

Example:
    >>> import tempfile
    >>> payload = Payload({"version": 1, "manifest": 5, "arrays": {}}, {})
    >>> write(f"{tempfile.mkdtemp()}/ckpt", payload).name
    'ckpt'
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

from neuralqx_struct.bundle.forms import form_of, new_bundle
from neuralqx_struct.bundle.members import NewBundle
from neuralqx_struct.bundle.urls import Place, place_of
from neuralqx_struct.manifest import DEFAULT_LIMITS, Limits, collector_paused
from neuralqx_struct.manifest.arrays import StoredArrays
from neuralqx_struct.manifest.payload import Payload, check, raise_findings
from neuralqx_struct.stores.store import Progress, Records, Store, Target, store_named, ticking


def write(
    path: str | Place,
    payload: Payload,
    *,
    overwrite: bool = False,
    store: str = "npz",
    compress: bool = False,
    progress: Progress | None = None,
    limits: Limits | None = None,
) -> Path:
    """Writes a bundle, completely or not at all: a folder, or with the suffix ``.zip`` one file.

    Args:
        path: The target, a path or a URL; missing parents are made.
        payload: The manifest and the arrays.
        overwrite: Replace an existing bundle; nothing but a bundle is ever replaced.
        store: The store of the arrays.
        compress: Compress the arrays; they can then not be mapped.
        progress: Called with (bytes done, bytes in all).
        limits: Sizes above which it is refused; readers of a larger one need them too.

    Returns:
        The path.

    Raises:
        BundleExistsError: The target exists.
        BundleWriteError: The system refused a write; the target is unchanged.
        SerializationError: The payload is not sound, or could not be read back within the limits.
    """
    path = place_of(path)
    fill = filling(
        path, payload, store_named(store), compress=compress, progress=progress, limits=limits
    )
    with collector_paused(), new_bundle(path, overwrite=overwrite) as new:
        fill(new)
    return cast("Path", path)  # of a URL a RemotePath, whose users are few


def filling(
    path: Place,
    payload: Payload,
    store: Store,
    *,
    compress: bool = False,
    progress: Progress | None = None,
    limits: Limits | None = None,
) -> Callable[[NewBundle], None]:
    """A function that writes a payload into a new bundle; the arguments are those of :func:`write`.

    Raises:
        SerializationError: The payload is not sound, or could not be read back within the limits.
    """
    limits = limits or DEFAULT_LIMITS
    raise_findings(check(payload, limits), str(path))
    form_of(path).require(store)
    records, arrays = payload.document["arrays"], payload.arrays
    if not isinstance(arrays, StoredArrays) or arrays.keys() != records.keys():
        arrays = {name: arrays[name] for name in records}
    if isinstance(arrays, StoredArrays) and arrays.far:
        arrays.expect(records)
    tick = ticking(progress, records)

    def write_arrays(place: Target) -> Records:
        return store.write(place, arrays, compress=compress, tick=tick)

    def fill(new: NewBundle) -> None:
        file = new.named(store.file)
        written = new.put(file, write_arrays)
        new.complete(payload.document, written, file, limits)

    return fill
