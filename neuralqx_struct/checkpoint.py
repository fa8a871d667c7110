"""Saving and loading: objects to payloads and bundles, and back.

Owns :func:`to_state_dict`/:func:`from_state_dict` (memory) and :func:`export`/:func:`load` (disk), which share every
step but the file: encode to nodes with a schema beside them; check, bring to the reader's schema version, decode. How
values become nodes is ``codecs.py``, how files are written ``bundle/``, how versions change ``evolution/``.

Example:
    >>> import jax.numpy as jnp
    >>> payload = to_state_dict({"w": jnp.arange(3)})
    >>> from_state_dict(payload)["w"]
    Array([0, 1, 2], dtype=int32)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

import jax

from neuralqx_struct import bundle
from neuralqx_struct.codecs import Unknown
from neuralqx_struct.errors import Diagnostic, SerializationError, StructError
from neuralqx_struct.manifest import DEFAULT_LIMITS, Limits, collector_paused
from neuralqx_struct.payload import Payload, check, raise_findings
from neuralqx_struct.pending import PendingBundle, begin
from neuralqx_struct.placement import placed
from neuralqx_struct.restoration import restored, wishes
from neuralqx_struct.snapshots import snapshot

__all__ = ["ExportOptions", "LoadOptions", "ReadOptions", "export", "from_state_dict", "load", "to_state_dict"]

Progress = Callable[[int, int], None]
T = TypeVar("T")


class ReadOptions(TypedDict, total=False):
    """The options of :func:`from_state_dict` but ``load_cls``, for type checkers."""

    select: Any
    abstract: bool
    as_numpy: bool
    unknown: Unknown
    fill: Mapping[str, Any] | None
    trust: Sequence[str]
    limits: Limits | None
    report: list[Diagnostic] | None


class LoadOptions(ReadOptions, total=False):
    """The options of :func:`load` but ``load_cls``, for type checkers."""

    mmap: bool
    verify: bool
    shardings: Any
    progress: Progress | None


class ExportOptions(TypedDict, total=False):
    """The options of :func:`export`, for type checkers."""

    overwrite: bool
    store: str
    compress: bool
    metadata: Mapping[str, Any] | None
    progress: Progress | None


def to_state_dict(obj: Any) -> dict[str, Any]:
    """Turn an object into plain JSON values and numpy arrays, all copied.

    Args:
        obj: A Struct, or any tree of values that can be saved.

    Returns:
        The members of ``manifest.json`` (``version``, ``manifest``, ``arrays``, with a schema also ``schema`` and
        ``schemas``) and ``array_data``, the arrays by name.

    Raises:
        SerializationError: NQX430 with every value that cannot be saved and its path.
    """
    payload = snapshot(obj, copy=True)
    return {**payload.document, "array_data": dict(payload.arrays)}


@overload
def from_state_dict(payload: Mapping[str, Any], *, load_cls: type[T], **options: Unpack[ReadOptions]) -> T: ...
@overload
def from_state_dict(payload: Mapping[str, Any], *, load_cls: None = None, **options: Unpack[ReadOptions]) -> Any: ...
def from_state_dict(
    payload: Mapping[str, Any],
    *,
    load_cls: type | None = None,
    select: Any = None,
    abstract: bool = False,
    as_numpy: bool = False,
    unknown: Unknown = "error",
    fill: Mapping[str, Any] | None = None,
    trust: Sequence[str] = (),
    limits: Limits | None = None,
    report: list[Diagnostic] | None = None,
) -> Any:
    """The inverse of :func:`to_state_dict`; the arguments are those of :func:`load`.

    Raises:
        SerializationError: The payload is malformed or does not fit, with every problem.
    """
    if not isinstance(payload, Mapping) or not isinstance(payload.get("array_data"), Mapping):
        raise SerializationError(
            "expected a state dict with the member 'array_data', got something else",
            code="NQX401",
            hint="pass what to_state_dict returned",
        )
    document = {name: value for name, value in payload.items() if name != "array_data"}
    held = Payload(document, payload["array_data"])
    raise_findings(check(held, limits or DEFAULT_LIMITS))
    reading = wishes(
        load_cls,
        select=select,
        abstract=abstract,
        as_numpy=as_numpy,
        unknown=unknown,
        fill=fill,
        trust=trust,
        report=report,
    )
    # The caller holds the arrays of the payload: what is written into them later must not be in the result.
    return restored(held, load_cls, dataclasses.replace(reading, copies=True))


@overload
def export(
    obj: Any, path: str | Path, *, asynchronous: Literal[True], **options: Unpack[ExportOptions]
) -> PendingBundle: ...
@overload
def export(
    obj: Any, path: str | Path, *, asynchronous: Literal[False] = False, **options: Unpack[ExportOptions]
) -> Path: ...
def export(
    obj: Any,
    path: str | Path,
    *,
    overwrite: bool = False,
    store: str = "npz",
    compress: bool = False,
    metadata: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    asynchronous: bool = False,
) -> Path | PendingBundle:
    """Save an object as a bundle: a directory, or with the suffix ``.zip`` one file.

    Where a JAX program has several processes, all of them call this with ``store="orbax"`` and the same arguments: each
    writes its own shards.

    Args:
        obj: A Struct, or any tree of values that can be saved.
        path: Where; missing parents are made.
        overwrite: Replace a bundle that is there; nothing but a bundle is ever replaced.
        store: ``npz``, ``safetensors`` or ``orbax`` (in folders, with the extra ``orbax``: sharded arrays by shards, of one or many hosts).
        compress: Smaller files that cannot be mapped.
        metadata: Free JSON values, kept in the manifest.
        progress: Called with bytes written and bytes in all.
        asynchronous: Return when all arrays have been copied from their devices, and write meanwhile; with ``orbax`` only.

    Returns:
        The path; with ``asynchronous`` a :class:`~neuralqx_struct.pending.PendingBundle`, whose ``wait()`` gives it.

    Raises:
        SerializationError: A value cannot be saved (NQX430); or the target exists (then also a FileExistsError).

    Example:
        >>> import tempfile
        >>> export([1, 2], f"{tempfile.mkdtemp()}/numbers").name
        'numbers'
    """
    together = store == "orbax" and (asynchronous or jax.process_count() > 1)
    if asynchronous and not together:
        message = f"expected store='orbax' for asynchronous=True, got {store!r}"
        raise SerializationError(message, code="NQX614", hint="the other stores write files of one process, and wait")

    def payload() -> Payload:
        return snapshot(obj, copy=False, spread=together, metadata=metadata)

    if together:
        pending = begin(path, payload, overwrite=overwrite, progress=progress)
        return pending if asynchronous else pending.wait()
    return bundle.write(path, payload(), overwrite=overwrite, store=store, compress=compress, progress=progress)


@overload
def load(path: str | Path, *, load_cls: type[T], **options: Unpack[LoadOptions]) -> T: ...
@overload
def load(path: str | Path, *, load_cls: None = None, **options: Unpack[LoadOptions]) -> Any: ...
@collector_paused()  # the document is gone before the collector looks again
def load(
    path: str | Path,
    *,
    load_cls: type | None = None,
    select: Any = None,
    abstract: bool = False,
    mmap: bool = True,
    verify: bool = True,
    as_numpy: bool = False,
    shardings: Any = None,
    unknown: Unknown = "error",
    fill: Mapping[str, Any] | None = None,
    trust: Sequence[str] = (),
    limits: Limits | None = None,
    report: list[Diagnostic] | None = None,
    progress: Progress | None = None,
) -> Any:
    """Load a bundle.

    Args:
        path: The directory or zip file.
        load_cls: The class that the root must be; a payload of an older version of its schema is migrated.
        select: A filter, also in its text form ``"tag:trainable"``; array leaves that it does not
            match are None and not read. Numbers and text stand in the manifest and are kept. A filter that matches
            no array is an error that tells what there is; a part of one is told in ``report``.
        abstract: Give ``jax.ShapeDtypeStruct`` in place of arrays; no array is read, no hook runs.
        mmap: Map the arrays instead of reading them into memory.
        verify: Check every byte against its checksum.
        as_numpy: Give numpy arrays also where JAX arrays were saved.
        shardings: A sharding for all JAX arrays, a tree of them that is a prefix of the object, or a function of path and
            array that gives one; an array or a ``jax.ShapeDtypeStruct`` stands for its own sharding, None leaves an array where it is. Each shard is
            read straight to its devices. Numpy arrays and numbers stay what they are. With ``abstract`` the shardings are
            told by the ``jax.ShapeDtypeStruct``.
        unknown: What happens to stored fields that the class lacks: ``error``, ``warn`` or ``drop``.
        fill: Values by field name for fields that were not saved and have no default.
        trust: Packages whose classes may be imported.
        limits: How much to take in before refusing.
        report: A list that gets what was defaulted, dropped or cast.
        progress: Called with bytes read and bytes in all.

    Returns:
        The object.

    Raises:
        SerializationError: The path is no bundle, or what it holds does not fit, with every problem.
        IntegrityError: Stored bytes are damaged.
        UntrustedError: The bundle names a class that is not known here and not trusted.
        FilterError: ``select`` cannot be read, or matches none of the arrays; it is a ValueError.
        ValueError: ``shardings`` is no prefix of the object, or one of them does not fit its array.
    """
    try:
        held = bundle.read(path, verify=verify and not abstract, mmap=mmap, limits=limits, progress=progress)
        reading = wishes(
            load_cls,
            select=select,
            abstract=abstract,
            as_numpy=as_numpy,
            unknown=unknown,
            fill=fill,
            trust=trust,
            report=report,
        )
        value = restored(held, load_cls, reading, shardings)
        if progress is not None:  # not everything need have been read
            total = sum(record.get("nbytes", 0) for record in held.document["arrays"].values())
            progress(total, total)
    except StructError as error:
        raise error.in_file(str(path)) from error.__cause__
    return value if shardings is None else placed(value, shardings)
