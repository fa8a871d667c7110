"""Uses: the documents that a document names under ``uses:``, found and linked to it.

Owns the search for such documents (the folders beside the schema's own, then those that this process has loaded) and
cycles. Nothing is fetched, and an identity is not a path: it has neither slashes nor leading dots.

Example:
    >>> from neuralqx_struct.schema.reading import document_from_data
    >>> data = {"language": "1", "schema": "lab.a", "version": 1, "root": "A", "structs": {"A": {"fields": {}}}}
    >>> used = document_from_data(data, "a")
    >>> user = document_from_data({**data, "schema": "lab.b", "uses": ["lab.a@1"]}, "b")
    >>> link(user, among([used])).place_of("lab.a.A")[0].id
    'lab.a'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.places.names import entries
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.reading import parse_document
from neuralqx_struct.schema.text.loader import read_file

#: Suffixes of the files of versions.
SUFFIXES = (".yaml", ".yml", ".json")
_MOST_FOLDERS = 1000

#: Identity and version.
_Key = tuple[str, int]
#: Returns the document of an identity and version, or None.
Find = Callable[[str, int], Document | None]

#: The documents that this process has loaded; the newest document of an identity and version wins.
_LOADED: dict[_Key, Document] = {}


def _by_key(documents: Iterable[Document]) -> dict[_Key, Document]:
    return {(document.id, document.version): document for document in documents}


def remember(documents: Iterable[Document]) -> None:
    """Makes documents available to schemas that are loaded later."""
    _LOADED.update(_by_key(documents))


def loaded(identity: str) -> list[Document]:
    """The documents of a schema that this process has loaded."""
    return [document for (known, _), document in _LOADED.items() if known == identity]


def among(documents: Iterable[Document]) -> Find:
    """A search among given documents, then among those that were loaded."""
    known = _by_key(documents)
    return lambda *key: known.get(key) or _LOADED.get(key)


def beside(folder: Path) -> Find:
    """A search in the folders beside a schema's folder, then among the documents that were loaded.

    The file of version 2 is ``v2.yaml`` (or ``.yml``, ``.json``). A folder named as the identity, or as its last part,
    is searched first.
    """
    root = folder.parent

    def find(identity: str, version: int) -> Document | None:
        named = [root / identity, root / identity.rpartition(".")[2]]
        inner = entries(root) if root.is_dir() else ()
        others = [place for place in inner if place.is_dir()]
        for place in dict.fromkeys([*named, *others[:_MOST_FOLDERS]]):
            for suffix in SUFFIXES:
                file = place / f"v{version}{suffix}"
                document = _read(file, identity, strict=place in named) if file.is_file() else None
                if document is not None and document.version == version:
                    return document
        return _LOADED.get((identity, version))

    return find


def _read(file: Path, identity: str, *, strict: bool) -> Document | None:
    """The document of a file if it has the identity; only ``strict`` raises for an invalid file."""
    try:
        source = read_file(file)
        is_it = isinstance(source.data, dict) and source.data.get("schema") == identity
        return parse_document(source) if is_it else None
    except SchemaError:
        if strict:
            raise
        return None


def link(document: Document, find: Find) -> Document:
    """The document with all documents that it uses, directly or not.

    A document that is missing or invalid is not raised: lint reports it at its place, from ``document.unusable``.
    """
    return _link(document, find, (), {})


def link_all(documents: Iterable[Document]) -> list[Document]:
    """Returns documents of one payload, each linked to those among them that it uses.

    A missing document is not raised: most payloads do not need it, and places that do report it.
    """
    held = list(documents)
    return [link(document, among(held)) if document.uses else document for document in held]


def _link(
    document: Document, find: Find, chain: tuple[_Key, ...], done: dict[_Key, Document]
) -> Document:
    here = (*chain, (document.id, document.version))
    used: dict[str, Document] = {}
    unusable: dict[int, SchemaError] = {}
    for index, use in enumerate(document.uses_refs):
        wanted = (use.id, use.version)
        try:
            if wanted not in done:
                done[wanted] = _link(_found(wanted, here, find), find, here, done)
            inner = done[wanted]
            for error in inner.unusable.values():
                raise error
            used[use.id] = inner
        except SchemaError as error:
            unusable[index] = error
    return document.linked(used, unusable)


def _found(wanted: _Key, chain: tuple[_Key, ...], find: Find) -> Document:
    identity, version = wanted
    if identity in dict(chain):
        way = " -> ".join(f"{known}@{number}" for known, number in (*chain[-8:], wanted))
        message = f"expected schemas that end, got the cycle {way}"
        hint = "put the parts that both need into a schema of its own"
        raise SchemaError(message, code="NQX135", hint=hint)
    document = find(identity, version)
    if document is None:
        place = f"{identity.rpartition('.')[2]}/v{version}.yaml"
        message = f"expected version {version} of {identity} beside this schema, got no such file"
        hint = f"put it into a folder beside this one, as {place}, or load it first"
        raise SchemaError(message, code="NQX404", hint=hint)
    return document
