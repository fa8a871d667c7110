"""Fingerprints of documents, the lock file that holds those of the published versions, and edits of these.

A fingerprint is the SHA-256 of a canonical form. Two documents with the same *payload* fingerprint read each other's
payloads without a step: names, types, dtypes, symbolic shapes with the scope, equations and minima of their sizes,
nullability, union branches, enum members, choices of dtypes and stored fields are the same. Docs, tags, defaults, kinds (as long as they do not change what is stored) and constraints are
outside it, as defaults are outside Avro's parsing canonical form (Apache Avro specification, "Parsing Canonical Form for
Schemas"). The *full* fingerprint covers everything, that of the *meaning* everything but the members that only explain.

Example:
    >>> payload_fingerprint(v1).startswith("sha256:"), payload_fingerprint(v1) == payload_fingerprint(v2)
    (True, False)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.schema.graph import graph_of
from neuralqx_struct.schema.model import TYPE_MEMBERS, Document, once
from neuralqx_struct.schema.sizes.scopes import size_form
from neuralqx_struct.schema.text import conflict_markers
from neuralqx_struct.types import walk_type
from neuralqx_struct.types.text import format_type

LOCK_NAME = "schema.lock"
#: The file of accepted findings, beside the folders of schemas.
WAIVERS_NAME = "waivers.yaml"

#: Members that describe and mark. Payloads are read the same whatever they hold, so a frozen version may correct them.
EXPLAINING = ("doc", "unit", "examples", "tags", "axes")
#: The fingerprints of one version, by ``payload``, ``meaning``, ``full`` and the explaining members that it has.
LockEntry = dict[str, str]


def payload_form(document: Document) -> dict[str, Any]:
    """Returns everything that a reader needs to read payloads, as plain values, with types in text form."""
    return {
        **_form(document, graph_of(document).reached(), payload_fingerprint),
        **size_form(document),
    }


def _form(
    document: Document, held: tuple[list[str], list[str]], fingerprint: Callable[[Document], str]
) -> dict[str, Any]:
    names, enums = held
    structs: dict[str, Any] = {}
    choices: dict[str, list[str]] = {}
    for name in names:
        struct = document.structs[name]
        fields = {n: format_type(d.declared) for n, d in sorted(struct.stored.items())}
        structs[name] = {"params": struct.params, "fields": fields}
        inside = (inner for d in struct.stored.values() for inner in walk_type(d.declared))
        choices |= {inner.element: sorted(inner.choice) for inner in inside if inner.choice}
    return {
        "schema": document.id,
        "root": document.root,
        "structs": structs,
        "enums": {name: sorted(document.enums[name].members) for name in enums},
        **({"dtypes": choices} if choices else {}),
        **_used(document, fingerprint),
    }


def _used(document: Document, fingerprint: Callable[[Document], str]) -> dict[str, Any]:
    """The fingerprints of used documents; no member if there are none, as in documents of earlier releases."""
    used = {f"{d.id}@{d.version}": fingerprint(d) for d in document.used.values()}
    return {"uses": used} if used else {}


@once
def payload_fingerprint(document: Document) -> str:
    """Returns ``sha256:`` and the digest of :func:`payload_form`."""
    return _digest(payload_form(document))


def same_payloads(first: Document, second: Document) -> bool:
    """True if two documents declare the same payloads."""
    return first is second or payload_fingerprint(first) == payload_fingerprint(second)


@once
def _earlier_fingerprint(document: Document) -> str:
    """The payload fingerprint of release 0.1.0, which knew no scopes of sizes and no structs inside pytrees."""
    held = graph_of(document).reached(pytrees=False)
    return _digest(_form(document, held, _earlier_fingerprint))


def schema_member(document: Document) -> dict[str, Any]:
    """The member ``schema`` of a payload of this version."""
    fingerprint = payload_fingerprint(document)
    return {"id": document.id, "version": document.version, "fingerprint": fingerprint}


def payload_fingerprints(document: Document) -> list[str]:
    """The payload fingerprint of a document, and that of release 0.1.0 if it is another."""
    return [*dict.fromkeys([payload_fingerprint(document), _earlier_fingerprint(document)])]


@once
def full_fingerprint(document: Document) -> str:
    """Returns ``sha256:`` and the digest of the whole document, migrations included.

    A file in YAML and the same in JSON have one fingerprint, and so have the long and the short form of a field.
    """
    return _digest({**_whole(document), **_used(document, full_fingerprint)})


@once
def meaning_fingerprint(document: Document) -> str:
    """Returns the fingerprint of everything but :data:`EXPLAINING`."""
    data = _whole(document)
    for holder in _explained(data):
        for member in EXPLAINING:
            holder.pop(member, None)
    return _digest({**data, **_used(document, meaning_fingerprint)})


def _whole(document: Document) -> dict[str, Any]:
    """Returns everything in a document as plain values."""
    data: dict[str, Any] = document.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for struct, plain in zip(document.structs.values(), data["structs"].values(), strict=True):
        fields = plain["fields"]
        for name, declaration in struct.fields.items():
            fields[name] = {k: v for k, v in fields[name].items() if k not in TYPE_MEMBERS}
            fields[name]["type"] = format_type(declaration.declared)
            fields[name]["null"] = declaration.has_default
    return data


def _explained(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the declarations of a document that can have explaining members, always in the same order."""
    yield data
    for group in ("dims", "enums", "structs"):
        for _, declaration in sorted(data.get(group, {}).items()):
            yield declaration
            yield from (field for _, field in sorted(declaration.get("fields", {}).items()))


def _digest(data: Any) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def lock_entry(document: Document) -> LockEntry:
    """The entry of the lock file for a version.

    The fingerprints of explaining members, each by its name, show which of them a later edit corrects.
    """
    data = _whole(document)
    entry = {
        "payload": payload_fingerprint(document),
        "meaning": meaning_fingerprint(document),
        "full": full_fingerprint(document),
    }
    for member in EXPLAINING:
        values = [holder.get(member) for holder in _explained(data)]
        if any(value is not None for value in values):
            entry[member] = _digest(values)
    return entry


class Edit(NamedTuple):
    """The difference between a frozen version and its entry in the lock file.

    Attributes:
        parts: The parts that differ; empty if there is no difference.
        corrects: True if these are explaining members only, which a frozen version may correct.
    """

    parts: tuple[str, ...] = ()
    corrects: bool = True


def edit_since(document: Document, entry: Mapping[str, str]) -> Edit:
    """The edit of a version since it was frozen.

    Entries of release 0.1.0 lack the fingerprint of the meaning: every edit of their versions is refused.
    """
    now = lock_entry(document)
    if now["full"] == entry["full"]:
        return Edit()
    if now["payload"] != entry["payload"]:
        return Edit(("payloads",), corrects=False)
    if now["meaning"] != entry.get("meaning"):
        return Edit(("other parts",), corrects=False)
    return Edit(tuple(m for m in EXPLAINING if now.get(m) != entry.get(m)) or ("used schemas",))


def format_lock(series_id: str, entries: Mapping[int, LockEntry]) -> str:
    """The text of a lock file; the inverse of :func:`read_lock`."""
    versions = {str(version): dict(entry) for version, entry in sorted(entries.items())}
    return json.dumps({"lock": 1, "schema": series_id, "versions": versions}, indent=2) + "\n"


def read_lock(folder: Path) -> dict[int, LockEntry]:
    """The frozen versions of a schema folder; none if it has no lock file.

    Raises:
        SchemaError: NQX291: the lock file is malformed; NQX017: it has git conflict markers.
    """
    path = folder / LOCK_NAME
    if not path.exists():
        return {}
    text = path.read_text(encoding="utf-8", errors="replace")
    if markers := conflict_markers(text, str(path)):
        raise SchemaError(markers)
    try:
        versions = json.loads(text)["versions"].items()
        entries = {int(version): dict(entry) for version, entry in versions}
        if any({"payload", "full"} - entry.keys() for entry in entries.values()):
            raise KeyError
        return {v: {str(k): str(x) for k, x in e.items()} for v, e in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        message = "expected a lock file as `schema freeze` writes it, got something else"
        hint = "restore it from version control; it is never edited by hand"
        raise SchemaError(message, code="NQX291", file=str(path), hint=hint) from None
