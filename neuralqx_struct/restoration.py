"""Restoration: the object of a payload, in the version and with the classes of whoever reads it.

Owns :func:`restored` and the record of the caller's wishes (:func:`wishes`). Bringing a payload to another version is
``evolution/``'s, making values of nodes ``codecs.py``'s; where the payload comes from ``checkpoint.py``'s.

Example:
    >>> from neuralqx_struct.snapshots import snapshot
    >>> restored(snapshot([1, 2.5], copy=True), None, wishes(None))
    [1, 2.5]
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from neuralqx_struct.codecs import Reading, StructDecoder, Unknown
from neuralqx_struct.errors import Diagnostic, SerializationError, StructError, did_you_mean, has_errors
from neuralqx_struct.evolution.migrations import resolve
from neuralqx_struct.fieldspec import is_struct
from neuralqx_struct.filters import FilterError, parse
from neuralqx_struct.leaves import Selection
from neuralqx_struct.manifest import collector_paused
from neuralqx_struct.payload import Payload
from neuralqx_struct.placement import targets_of
from neuralqx_struct.registry import class_ref, find_class, stored_class
from neuralqx_struct.schema.fingerprint import payload_fingerprint
from neuralqx_struct.schema.series import Series, carried_series
from neuralqx_struct.snapshots import too_deep
from neuralqx_struct.versioned import claiming, document_of_class, series_of_class, with_fields_migrated, written

__all__ = ["restored", "wishes"]

_LOG = logging.getLogger("neuralqx_struct")


def wishes(
    load_cls: Any,
    *,
    select: Any = None,
    abstract: bool = False,
    as_numpy: bool = False,
    unknown: Unknown = "error",
    fill: Mapping[str, Any] | None = None,
    trust: Iterable[str] = (),
    report: list[Diagnostic] | None = None,
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


def restored(payload: Payload, load_cls: Any, reading: Reading, shardings: Any = None) -> Any:
    """The object of a sound payload, as the caller wants it.

    Args:
        payload: What was read.
        load_cls: The class that the root must be, or None.
        reading: The caller's wishes.
        shardings: As for ``load``.

    Raises:
        SerializationError: The payload does not fit, with every problem.
    """
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
        raise too_deep() from error
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
