"""Uses: the documents that a document names under ``uses:``, found and linked to it.

Owns where such documents are looked up (the folders beside the schema's own, then what this process has loaded) and
cycles. What their structs are called is ``types.py``'s, what a type of theirs means in a value ``conform.py``'s. Nothing
is fetched, and an identity is no path: it has neither slashes nor leading dots.

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
from neuralqx_struct.schema.loader import read_file
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.reading import parse_document

__all__ = ["Find", "among", "beside", "link", "link_all", "loaded", "remember"]

_SUFFIXES = (".yaml", ".yml", ".json")
_MOST_FOLDERS = 1000

#: From identity and version to a document, or None.
Find = Callable[[str, int], Document | None]

#: What this process has loaded by hand; the newest document of an identity and version wins.
_LOADED: dict[tuple[str, int], Document] = {}


def remember(documents: Iterable[Document]) -> None:
    """Let later schemas use these documents, wherever they were read from."""
    _LOADED.update({(document.id, document.version): document for document in documents})


def loaded(identity: str) -> list[Document]:
    """The documents of a schema that this process has loaded."""
    return [document for (known, _), document in _LOADED.items() if known == identity]


def among(documents: Iterable[Document]) -> Find:
    """Look documents up among given ones, then among those that were loaded."""
    known = {(document.id, document.version): document for document in documents}
    return lambda identity, version: known.get((identity, version)) or _LOADED.get((identity, version))


def beside(folder: Path) -> Find:
    """Look documents up in the folders beside a schema's folder, then among those that were loaded.

    The file of version 2 is ``v2.yaml`` (or ``.yml``, ``.json``). A folder named as the identity, or as its last part,
    is asked first.
    """

    def find(identity: str, version: int) -> Document | None:
        root = folder.parent
        named = [root / identity, root / identity.rpartition(".")[2]]
        others = sorted(inner for inner in root.iterdir() if inner.is_dir()) if root.is_dir() else []
        for place in dict.fromkeys([*named, *others[:_MOST_FOLDERS]]):
            for file in (place / f"v{version}{suffix}" for suffix in _SUFFIXES):
                if file.is_file() and (document := _read(file, identity, version, strict=place in named)) is not None:
                    return document
        return _LOADED.get((identity, version))

    return find


def _read(file: Path, identity: str, version: int, *, strict: bool) -> Document | None:
    """The document of a file if it is the one that is wanted; a broken file matters only where it was expected."""
    try:
        source = read_file(file)
        named = source.data.get("schema") if isinstance(source.data, dict) else None
        if named != identity:
            return None
        document = parse_document(source)
    except SchemaError:
        if strict:
            raise
        return None
    return document if document.version == version else None


def link(document: Document, find: Find) -> Document:
    """The document with all documents that it uses, directly or not.

    What cannot be found or read is not raised: lint reports it at its place, from ``document.unusable``.
    """
    return _link(document, find, (), {})


def link_all(documents: Iterable[Document]) -> list[Document]:
    """Documents that travelled together, each linked to those among them that it uses.

    What is missing is not raised: a payload may do without, and where it does not, the place says so.
    """
    all_of_them = list(documents)
    return [link(document, among(all_of_them)) if document.uses else document for document in all_of_them]


_Chain = tuple[tuple[str, int], ...]


def _link(document: Document, find: Find, chain: _Chain, done: dict[tuple[str, int], Document]) -> Document:
    here = (*chain, (document.id, document.version))
    used: dict[str, Document] = {}
    unusable: dict[int, SchemaError] = {}
    for index, use in enumerate(document.uses):
        identity, _, number = use.partition("@")
        wanted = (identity, int(number))
        try:
            if wanted not in done:
                done[wanted] = _link(_found(wanted, here, find), find, here, done)
            inner = done[wanted]
            for error in inner.unusable.values():
                raise error
            used[identity] = inner
        except SchemaError as error:
            unusable[index] = error
    return document.linked(used, unusable)


def _found(wanted: tuple[str, int], chain: _Chain, find: Find) -> Document:
    identity, version = wanted
    if identity in (known for known, _ in chain):
        way = " -> ".join(f"{known}@{number}" for known, number in (*chain[-8:], wanted))
        raise SchemaError(
            f"expected schemas that end, got the cycle {way}",
            code="NQX135",
            hint="put what both need into a schema of its own",
        )
    document = find(identity, version)
    if document is None:
        raise SchemaError(
            f"expected version {version} of {identity} beside this schema, got no such file",
            code="NQX404",
            hint=f"put it into a folder beside this one, as {identity.rpartition('.')[2]}/v{version}.yaml, or load it first",
        )
    return document
