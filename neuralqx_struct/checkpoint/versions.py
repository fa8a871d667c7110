"""Payloads in the versions of the reader, and the classes of their structs.

A payload of another version of a schema is migrated by ``evolution/``. The classes are those that Python has for the versions
of the schemas; the others are built from the documents.

Example:
    >>> from neuralqx_struct.checkpoint.options import ExportOptions
    >>> from neuralqx_struct.checkpoint.payloads import snapshot
    >>> held = snapshot([1, 2], ExportOptions(), copy=True)
    >>> payload, options = in_versions_of_reader(held, DecodeOptions())
    >>> payload.document["manifest"]["items"], options.build_class("lab.net@1:Net") is None
    ([1, 2], True)
"""

from __future__ import annotations

import enum
import functools
import typing
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from neuralqx_struct.codecs.classes import DecodeOptions, Unknown
from neuralqx_struct.documents.bound import (
    bound_document,
    bound_documents,
    document_of,
    series_of_class,
)
from neuralqx_struct.documents.hints import annotation_of
from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.evolution.migrations import resolve, with_hints
from neuralqx_struct.evolution.plans import apply, plan
from neuralqx_struct.fieldspec import FieldSpec, is_struct
from neuralqx_struct.manifest.kinds import STRUCT
from neuralqx_struct.manifest.payload import Payload
from neuralqx_struct.references import SchemaRef, find_class, stored_class
from neuralqx_struct.schema.bounds import unchecked_patterns
from neuralqx_struct.schema.lock import same_payloads, schema_member
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.series import Series, carried_series, series_of


def in_versions_of_reader(
    payload: Payload, options: DecodeOptions
) -> tuple[Payload, DecodeOptions]:
    """The payload in the version of the reader, and the options with the classes of its structs.

    Raises:
        MigrationError: There is no migration, or the payload does not allow it.
    """
    if options.raw:
        _note_other_version(payload, options)
        return payload, replace(options, root=None)
    payload, known = _migrated(payload, options)
    return payload, _with_classes(options, known)


def _note_other_version(payload: Payload, options: DecodeOptions) -> None:
    """Reports names of another version than that of the class, which a raw load leaves as they are."""
    target = None if options.root is None else document_of(stored_class(options.root))
    stored = payload.document.get("schema") or {"id": "no schema", "version": ""}
    if target is None or (stored["id"], stored["version"]) == (target.id, target.version):
        return
    got = f"{stored['id']} {stored['version']}".rstrip()
    message = f"expected {target.id} {target.version}, got {got}, which raw=True leaves as it is"
    hint = "load it without raw=True for the names and values of the version that was asked for"
    found = Diagnostic("NQX422", "warning", message, path="$.schema", hint=hint)
    options.report.append(found)


def _migrated(payload: Payload, options: DecodeOptions) -> tuple[Payload, Mapping[str, Series]]:
    """The payload in the version of the reader, and the schemas by identity."""
    carried = carried_series(payload.document)
    root = None if options.root is None else stored_class(options.root)
    series, target = series_of_class(root), document_of(root)
    given: dict[str, Any] = {
        "unknown": options.unknown,
        "report": options.report,
        "trust": options.trust,
    }
    if target is not None and series is not None:
        stored = payload.document.get("schema")
        # A struct can predate the schema of its Python class; it is then read without one.
        plain = not STRUCT.matches(payload.document["manifest"])
        named = stored is not None or plain or bound_document(root) is None
        current = stored is not None and stored == schema_member(target)
        if named and not current and not _holds_subclass(payload, root, options):
            payload = resolve(payload, series, to=target.version, **given)
    elif carried and root is not None and target is None and is_struct(root):
        payload = migrate_fields(payload, root, carried, **given)
    if series is None:
        return payload, carried
    # The reader's documents and those that they use take precedence; the bundle's add versions that it lacks.
    used = [] if target is None else target.closure()[1:]
    known = carried
    for own in (series, *(series_of([document]) for document in used)):
        others = carried[own.id].documents.values() if own.id in carried else ()
        known = {**known, own.id: own.merged(others)}
    return payload, known


def _holds_subclass(payload: Payload, root: Any, options: DecodeOptions) -> bool:
    """True if the root was saved as a Python class that adds fields to the requested class."""
    node = payload.document["manifest"]
    if "schema" in payload.document or not isinstance(node, Mapping):
        return False
    ref = node["type"] if STRUCT.matches(node) else None
    found = find_class(ref, trust=options.trust) if isinstance(ref, str) else None
    return found is not None and issubclass(found, root)


def _with_classes(options: DecodeOptions, known: Mapping[str, Series]) -> DecodeOptions:
    """The options with functions that find the class of a schema reference, or build it.

    Args:
        options: The load options.
        known: The schemas by identity.
    """
    root = None if options.root is None else stored_class(options.root)
    noted = set[str]()

    def note(document: Document) -> None:
        """Reports the patterns of a document that are not checked; one in a file has none."""
        if (ref := document.ref(document.root)) not in noted:
            noted.add(ref)
            for each in unchecked_patterns(document):
                place = f"$.schemas{each.path.removeprefix('$')}"
                options.report.append(replace(each, path=place))

    @functools.cache
    def build(ref: str) -> type | None:
        wanted = SchemaRef.parse(ref)
        if wanted is None:
            return None
        series = known.get(wanted.id)
        document = None if series is None else series.documents.get(wanted.version)
        for own in bound_documents(ref, root):
            # A class with another meaning of this version number is passed over.
            if document is None or same_payloads(own.document, document):
                note(own.document)
                return own.classes.get(wanted.name)
        if series is None or document is None:
            return None
        from neuralqx_struct.classes.compiler import classes_of

        note(document)
        cls: type | None = classes_of(series, document.version).get(wanted.name)
        return cls

    @functools.cache
    def choices(ref: str, cls: type) -> Mapping[str, type[enum.Enum]]:
        return next((own.enums[cls] for own in bound_documents(ref, root) if cls in own.enums), {})

    return replace(options, build_class=build, choices=choices)


# Versions inside plain classes


def migrate_fields(
    payload: Payload,
    cls: type,
    carried: Mapping[str, Series],
    *,
    unknown: Unknown,
    report: list[Diagnostic],
    trust: Iterable[str],
) -> Payload:
    """Bring the structs inside a plain Struct, which has no version itself, to the versions that its fields name.

    Args:
        payload: The payload, whose root is the plain Struct.
        cls: Its class.
        carried: The schemas in the payload; they serve the versions that are not known here.
        unknown: As for loading.
        report: As for loading.
        trust: As for loading.

    Returns:
        The payload itself where all versions match. A schema of which two versions are named stays as it is.

    Raises:
        MigrationError: There is no migration, or the payload does not allow it.
    """
    wanted = _named_versions(cls)
    known = dict(carried)
    for identity, classes in wanted.items():
        candidates = (series_of_class(each) for each in classes.values() if each is not None)
        series = next((each for each in candidates if each is not None), None)
        if series is not None and identity in carried:
            series = series.merged(carried[identity].documents.values())
        if series is not None:
            known[identity] = series
    for identity, classes in wanted.items():
        if len(classes) != 1 or identity not in known:
            continue
        (target,) = classes
        for version in sorted(_versions_in(payload, identity) - {target}):
            ends = version, target
            steps = plan(known[identity], *ends, unknown=unknown, explain=with_hints)
            payload = apply(payload, steps, others=known, report=report, trust=trust)
    return payload


def _named_versions(cls: type) -> dict[str, dict[int, Any]]:
    """Schema versions, with their classes, that annotations of a plain Struct name, directly and indirectly."""
    found: dict[str, dict[int, Any]] = {}
    todo: list[Any] = [cls]
    seen: set[type] = set()
    while todo:
        hint = todo.pop()
        todo += typing.get_args(hint)
        if not isinstance(hint, type) or hint in seen or not is_struct(hint):
            continue
        seen.add(hint)
        document = document_of(hint)
        if document is None:
            specs: Mapping[str, FieldSpec] = vars(hint)["__nqx_fields__"]
            todo += [annotation_of(hint, spec) for spec in specs.values()]
            continue
        found.setdefault(document.id, {})[document.version] = hint
        for used in document.closure():
            found.setdefault(used.id, {}).setdefault(used.version, None)
    return found


def _versions_in(payload: Payload, identity: str) -> set[int]:
    """The versions of one schema among the structs of a payload."""
    versions: set[int] = set()
    for _, node in STRUCT.within(payload.document["manifest"]):
        ref = SchemaRef.parse(node["type"])
        if ref is not None and ref.id == identity:
            versions.add(ref.version)
    return versions
