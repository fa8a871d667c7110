"""Fingerprints: SHA-256 over a canonical form of a document, one for what payloads hold and one for everything.

Two documents with the same payload fingerprint read each other's payloads without a step: names, types, dtypes,
symbolic shapes, nullability, union branches, enum members and what is stored are the same. Docs, tags, defaults, kinds
(as long as they do not change what is stored) and constraints are outside it, as defaults are outside Avro's parsing
canonical form (Apache Avro specification, "Parsing Canonical Form for Schemas").

Example:
    >>> payload_fingerprint(v1).startswith("sha256:"), payload_fingerprint(v1) == payload_fingerprint(v2)
    (True, False)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.types import Named, format_type, walk_type

__all__ = ["full_fingerprint", "payload_fingerprint", "payload_form", "reachable"]


def reachable(document: Document) -> tuple[list[str], list[str]]:
    """The structs and enums that a payload of the document can hold, sorted by name."""
    structs: set[str] = set()
    enums: set[str] = set()
    todo = [document.root]
    while todo:
        name = todo.pop()
        if name in structs or name not in document.structs:
            continue
        structs.add(name)
        for declaration in document.structs[name].stored.values():
            for inner in walk_type(declaration.declared):
                if isinstance(inner, Named):
                    (enums.add if inner.name in document.enums else todo.append)(inner.name)
    return sorted(structs), sorted(enums)


def payload_form(document: Document) -> dict[str, Any]:
    """What a reader must know to read payloads, as plain values: stored fields with their types in text form."""
    structs, enums = reachable(document)
    return {
        "schema": document.id,
        "root": document.root,
        "structs": {
            name: {
                "params": document.structs[name].params,
                "fields": {
                    field: format_type(d.declared) for field, d in sorted(document.structs[name].stored.items())
                },
            }
            for name in structs
        },
        "enums": {name: sorted(document.enums[name].members) for name in enums},
        **_used(document, payload_fingerprint),
    }


def _used(document: Document, fingerprint: Callable[[Document], str]) -> dict[str, Any]:
    """What the documents mean that a document uses; nothing for one that uses none, so that it says what it said."""
    used = {f"{d.id}@{d.version}": fingerprint(d) for d in document.used.values()}
    return {"uses": used} if used else {}


def payload_fingerprint(document: Document) -> str:
    """``sha256:`` and the digest of :func:`payload_form`."""
    return _digest(payload_form(document))


def full_fingerprint(document: Document) -> str:
    """``sha256:`` and the digest of everything that the document says, migrations included.

    A file in YAML and the same in JSON have one fingerprint, and so have the long and the short form of a field.
    """
    data = document.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for struct, plain in zip(document.structs.values(), data["structs"].values(), strict=True):
        for name, declaration in struct.fields.items():
            kept = {k: v for k, v in plain["fields"][name].items() if k not in ("type", "dtype", "shape", "impl")}
            plain["fields"][name] = {**kept, "type": format_type(declaration.declared), "null": declaration.has_default}
    return _digest({**data, **_used(document, full_fingerprint)})


def _digest(data: Any) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
