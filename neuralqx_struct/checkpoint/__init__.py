"""Checkpoints: saves objects as bundles (:func:`export`) and as state dicts (:func:`to_state_dict`), and loads them.

Owns saving: an object is encoded to nodes, with the schemas of its structs beside them. ``codecs/`` encodes values,
``bundle/`` writes files, ``loading.py`` is the inverse.

Example:
    >>> import numpy as np
    >>> payload = to_state_dict({"w": np.arange(3)})
    >>> from_state_dict(payload)["w"]
    array([0, 1, 2])
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import jax

import neuralqx_struct.formats.npz  # noqa: F401 - the default store: a save in a handler shall not find it half imported
from neuralqx_struct.bundle.writing import (
    PendingBundle,
    begin,
    inside_a_save,
    saving,
    settle,
    written,
)
from neuralqx_struct.checkpoint.loading import from_state_dict, load
from neuralqx_struct.checkpoint.options import (
    ExportKeywords,
    ExportOptions,
    LoadKeywords,
    ReadKeywords,
)
from neuralqx_struct.checkpoint.payloads import snapshot, to_state_dict
from neuralqx_struct.fieldspec import Values
from neuralqx_struct.formats.store import Progress, store_named
from neuralqx_struct.manifest import Limits
from neuralqx_struct.manifest.payload import Payload
from neuralqx_struct.places.urls import Options, Place, place_of

if TYPE_CHECKING:
    from neuralqx_struct.checkpoint.replay import Replay

__all__ = [
    "ExportKeywords",
    "LoadKeywords",
    "ReadKeywords",
    "export",
    "from_state_dict",
    "load",
    "to_state_dict",
]


@overload
def export(
    obj: Any, path: str | Place, *, asynchronous: Literal[True], **options: Unpack[ExportKeywords]
) -> PendingBundle: ...
@overload
def export(
    obj: Any,
    path: str | Place,
    *,
    asynchronous: Literal[False] = False,
    **options: Unpack[ExportKeywords],
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
    options = ExportOptions(
        overwrite=overwrite,
        store=store,
        compress=compress,
        metadata=metadata,
        progress=progress,
        asynchronous=asynchronous,
        check=check,
        limits=limits,
        storage_options=storage_options,
        replay=replay,
    )
    return save(obj, path, options)


def save(
    obj: Any,
    path: str | Place,
    options: ExportOptions,
    around: AbstractContextManager[object] | None = None,
) -> Path | PendingBundle:
    """As :func:`export`; ``around`` is left when the bundle is complete, and entered by one process only."""
    path = place_of(path, options.storage_options)
    chosen = store_named(options.store)
    asynchronous = options.asynchronous
    together = chosen.begin is not None and (asynchronous or jax.process_count() > 1)
    alone = not inside_a_save()

    def payload() -> Payload:
        if alone:
            settle(path)
        held = snapshot(obj, options, copy=asynchronous and not together, spread=together)
        if not options.replay:
            return held
        from neuralqx_struct.checkpoint.replay import with_replays  # few saves keep functions

        return replace(held, document=with_replays(held, obj, options))

    with saving():
        if not (asynchronous or together):
            held = payload()
            with around or nullcontext():
                return written(path, held, options)
        pending = begin(path, payload, options, around)
    return pending if asynchronous else pending.wait()
