"""Saving and loading: objects to payloads and bundles, and back.

Owns :func:`to_state_dict`/:func:`from_state_dict` (memory) and :func:`export`/:func:`load` (disk), which share every
step but the file: encode to nodes with a schema beside them; check, bring to the reader's schema version, decode. How
values become nodes is ``codecs.py``, how files are written ``bundle.py``, how versions change ``evolution/``.

Example:
    >>> import jax.numpy as jnp
    >>> payload = to_state_dict({"w": jnp.arange(3)})
    >>> from_state_dict(payload)["w"]
    Array([0, 1, 2], dtype=int32)
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

import jax
import numpy as np

from neuralqx_struct import bundle
from neuralqx_struct.arrays import HeldArrays
from neuralqx_struct.codecs import Reading, StructDecoder, StructEncoder, Unknown
from neuralqx_struct.errors import Diagnostic, SerializationError, StructError, did_you_mean, has_errors
from neuralqx_struct.evolution.migrations import resolve
from neuralqx_struct.fieldspec import is_struct
from neuralqx_struct.filters import FilterError, parse
from neuralqx_struct.leaves import Selection
from neuralqx_struct.manifest import DEFAULT_LIMITS, FORMAT_VERSION, SCHEMA_URL, WRITER, Limits, collector_paused
from neuralqx_struct.payload import Payload, check, dtype_name, raise_findings
from neuralqx_struct.pending import PendingBundle, begin
from neuralqx_struct.placement import placed, targets_of
from neuralqx_struct.registry import class_ref, find_class, stored_class
from neuralqx_struct.schema.fingerprint import payload_fingerprint
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.series import Series, carried_series
from neuralqx_struct.versioned import claiming, document_of_class, series_of_class, with_fields_migrated, written

__all__ = ["ExportOptions", "LoadOptions", "ReadOptions", "export", "from_state_dict", "load", "to_state_dict"]

_LOG = logging.getLogger("neuralqx_struct")
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


def _to_payload(obj: Any, *, copy: bool, spread: bool = False, metadata: Mapping[str, Any] | None = None) -> Payload:
    encoder = StructEncoder(copy=copy, spread=spread)
    try:
        with collector_paused():
            node = encoder.encode(obj)
    except RecursionError as error:
        raise _too_deep() from error
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


def _too_deep() -> SerializationError:
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
    payload = _to_payload(obj, copy=True)
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
    reading = _reading(
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
    return _from_payload(held, load_cls, dataclasses.replace(reading, copies=True))


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
        return _to_payload(obj, copy=False, spread=together, metadata=metadata)

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
        reading = _reading(
            load_cls,
            select=select,
            abstract=abstract,
            as_numpy=as_numpy,
            unknown=unknown,
            fill=fill,
            trust=trust,
            report=report,
        )
        value = _from_payload(held, load_cls, reading, shardings)
        if progress is not None:  # not everything need have been read
            total = sum(record.get("nbytes", 0) for record in held.document["arrays"].values())
            progress(total, total)
    except StructError as error:
        raise error.in_file(str(path)) from error.__cause__
    return value if shardings is None else placed(value, shardings)


def _reading(
    load_cls: Any,
    *,
    select: Any,
    abstract: bool,
    as_numpy: bool,
    unknown: Unknown,
    fill: Mapping[str, Any] | None,
    trust: Iterable[str],
    report: list[Diagnostic] | None,
) -> Reading:
    """The caller's wishes as a record; the package of the class that is asked for is trusted."""
    if unknown not in ("error", "warn", "drop"):
        raise ValueError(f"unknown=: expected 'error', 'warn' or 'drop', got {unknown!r}")
    if load_cls is not None and not isinstance(load_cls, type):
        raise TypeError(f"load_cls=: expected a class or None, got {load_cls!r}")
    own = [load_cls.__module__.partition(".")[0]] if load_cls is not None else []
    return Reading(
        trust=(*trust, *own),
        abstract=abstract,
        as_numpy=as_numpy,
        select=None if select is None else Selection(parse(select) if isinstance(select, str) else select),
        unknown=unknown,
        fill=dict(fill or {}),
        root=load_cls,
        report=[] if report is None else report,
    )


def _from_payload(payload: Payload, load_cls: Any, reading: Reading, shardings: Any = None) -> Any:
    carried = carried_series(payload.document)
    root = None if load_cls is None else stored_class(load_cls)
    series, target = series_of_class(root), document_of_class(root)
    held = None if root is None else written(root)
    told = len(reading.report)
    # A class of Python may have got its identity after the payload was written: then it is read as it was before.
    named = "schema" in payload.document or held is None
    if target is not None and series is not None and named and not _holds_subclass(payload, root, reading):
        payload = resolve(
            payload,
            series,
            to=target.version,
            unknown=reading.unknown,
            report=reading.report,
            trust=reading.trust,
        )
    elif carried and root is not None and target is None and is_struct(root):
        payload = with_fields_migrated(
            payload, root, carried, unknown=reading.unknown, report=reading.report, trust=reading.trust
        )
    # The reader's documents win; the bundle's serve the versions that the reader lacks.
    known = (
        carried
        if series is None
        else {
            **carried,
            series.id: series.merged(carried[series.id].documents.values()) if series.id in carried else series,
        }
    )
    reading = _with_builder(reading, known, root)
    if shardings is not None and not reading.abstract and not reading.as_numpy:
        reading = dataclasses.replace(reading, targets=_targets(payload, reading, shardings))
    decoder = StructDecoder(payload.arrays, reading)
    try:
        with collector_paused():
            value = decoder.decode(payload.document["manifest"])
    except RecursionError as error:
        raise _too_deep() from error
    decoder.finish()
    if isinstance(reading.select, Selection):
        found = reading.select.findings("select=")
        if has_errors(found):
            raise FilterError(found)
        reading.report.extend(found)
    for diagnostic in reading.report[told:]:
        _LOG.log(logging.WARNING if diagnostic.severity == "warning" else logging.INFO, "%s", diagnostic)
    if load_cls is not None and not isinstance(value, load_cls):
        got = class_ref(type(value)) if is_struct(value) else f"a {type(value).__name__}"
        raise SerializationError(
            f"expected {class_ref(load_cls)} or a subclass of it, got {got}",
            path="$",
            code="NQX401",
            hint=f"{got} was defined again, and the newest definition is what is loaded; call load on that one"
            if got == class_ref(load_cls)
            else "load it with the class that wrote it, or with neuralqx_struct.load(path)",
        )
    for name in reading.fill.keys() - decoder.seen_fields:
        raise SerializationError(
            f"expected names of fields in fill=, got {name!r}, which no Struct of this payload has",
            path="$",
            code="NQX415",
            hint=did_you_mean(name, decoder.seen_fields) or "leave it out",
        )
    return value


def _targets(payload: Payload, reading: Reading, shardings: Any) -> Mapping[int, Any]:
    """Where each array goes, told before any is read; nothing where the payload is refused, which reading it tells."""
    met: dict[int, Any] = {}
    decoder = StructDecoder(payload.arrays, dataclasses.replace(reading, abstract=True, met=met, report=[]))
    try:
        shapes = decoder.decode(payload.document["manifest"])
    except (StructError, RecursionError):
        return {}
    return {} if decoder.problems else targets_of(shapes, met, shardings)


def _holds_subclass(payload: Payload, root: Any, reading: Reading) -> bool:
    """True if the root was saved as a class of Python that adds fields to the class that is asked for."""
    if "schema" in payload.document:
        return False
    node = payload.document["manifest"]
    ref = node.get("type") if isinstance(node, Mapping) and node.get("__kind__") == "struct" else None
    found = find_class(ref, trust=reading.trust) if isinstance(ref, str) else None
    return found is not None and issubclass(found, root)


def _with_builder(reading: Reading, known: Mapping[str, Series], load_cls: Any) -> Reading:
    """The wishes with what makes the class of a schema reference: a class that claims the version, or one built from it."""

    @functools.cache
    def build(ref: str) -> type | None:
        identity, _, name = ref.partition(":")
        schema_id, _, version = identity.partition("@")
        series = known.get(schema_id)
        document = None if series is None or not version.isdecimal() else series.documents.get(int(version))
        meant = None if document is None else payload_fingerprint(document)
        for own in claiming(ref, load_cls):
            if meant in (None, payload_fingerprint(own.document)):  # else it has another version of the same number
                return own.classes.get(name)
        if series is None or document is None:
            return None
        # By name, because the compiler makes Structs and so stands below them.
        compiler = importlib.import_module("neuralqx_struct.compiler")
        cls: type | None = compiler.classes_of(series, document.version).get(name)
        return cls

    @functools.cache
    def choices(ref: str, cls: type) -> Mapping[str, type[enum.Enum]]:
        return next((own.enums[cls] for own in claiming(ref, load_cls) if cls in own.enums), {})

    return dataclasses.replace(reading, build_class=build, choices=choices)
