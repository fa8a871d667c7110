"""Series: all versions of one schema, and the lock file that freezes the published ones.

Owns finding the files of a folder, the order of versions, and ``schema.lock``. Does not migrate (``evolution/``) and
does not compile (``compiler.py``).

Example:
    >>> series = load_series("schemas/vmc_state")
    >>> series.versions
    (1, 2, 3)
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from neuralqx_struct.errors import Diagnostic, SchemaError
from neuralqx_struct.schema.fingerprint import full_fingerprint, payload_fingerprint
from neuralqx_struct.schema.loader import Source, read_file, read_text
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.reading import document_from_data, parse_document
from neuralqx_struct.schema.uses import Find, among, beside, link, link_all, loaded

__all__ = [
    "LOCK_NAME",
    "SUFFIXES",
    "SchemaMissingError",
    "Series",
    "carried_series",
    "format_lock",
    "load_series",
    "lock_entry",
    "read_lock",
    "refuse_bundle",
    "series_of",
]

_MANIFEST = "manifest.json"
LOCK_NAME = "schema.lock"
#: What the files of versions end in.
SUFFIXES = (".yaml", ".yml", ".json")


class SchemaMissingError(SchemaError, FileNotFoundError):
    """There is nothing at the path of a schema."""

    default_code = "NQX404"

    @classmethod
    def at(cls, path: str | Path) -> SchemaMissingError:
        """The error for a path."""
        return cls("expected a schema file or folder, got no such path", file=str(path), hint="check the path")


@dataclass(frozen=True)
class Series:
    """The versions of one schema that are known, usually the files of one folder.

    Attributes:
        id: The identity that all documents share.
        documents: Documents by version, ascending.
        sources: The files as read, by version; empty for documents that travelled inside a bundle.
        folder: Where they were read, or None.
        carried: Versions that a bundle brought along; the reader did not vouch for them.
        earlier: Earlier versions of the schemas that these use, found beside them: payloads come by way of them.
    """

    id: str
    documents: Mapping[int, Document]
    sources: Mapping[int, Source] = field(default_factory=dict, repr=False, compare=False)
    folder: Path | None = field(default=None, compare=False)
    carried: frozenset[int] = field(default=frozenset(), compare=False)
    earlier: tuple[Document, ...] = field(default=(), repr=False, compare=False)

    @property
    def versions(self) -> tuple[int, ...]:
        """The known versions, ascending."""
        return tuple(self.documents)

    @property
    def head(self) -> Document:
        """The newest version."""
        return self.documents[self.versions[-1]]

    def at(self, version: int) -> Document:
        """The document of one version.

        Raises:
            SchemaError: NQX404: the version is not known here.
        """
        if version not in self.documents:
            raise SchemaError(
                f"expected one of the versions {', '.join(map(str, self.versions))} of {self.id}, got {version}",
                code="NQX404",
                hint="add the file of that version, or upgrade to a release that ships it",
            )
        return self.documents[version]

    @cached_property
    def fingerprints(self) -> Mapping[int, str]:
        """Payload fingerprints by version."""
        return MappingProxyType({version: payload_fingerprint(d) for version, d in self.documents.items()})

    @cached_property
    def others(self) -> Mapping[str, Series]:
        """The schemas that any version uses, by identity, with the versions that are at hand."""
        used: dict[str, dict[int, Document]] = {}
        for document in (*self.earlier, *self.documents.values()):
            for each in document.closure():
                if each.id != self.id:
                    used.setdefault(each.id, {d.version: d for d in loaded(each.id)})[each.version] = each
        return MappingProxyType({identity: series_of(versions.values()) for identity, versions in used.items()})

    def merged(self, others: Iterable[Document]) -> Series:
        """This series with documents of versions that it lacks, from a bundle; its own documents win."""
        documents = {d.version: d for d in others if d.id == self.id} | dict(self.documents)
        carried = self.carried | (documents.keys() - self.documents.keys())
        return Series(self.id, dict(sorted(documents.items())), self.sources, self.folder, carried, self.earlier)


def series_of(
    documents: Iterable[Document], sources: Mapping[int, Source] | None = None, folder: Path | None = None
) -> Series:
    """Put documents of one identity in order.

    Raises:
        SchemaError: No document, two identities, or one version twice.
    """
    ordered = sorted(documents, key=lambda d: d.version)
    sources = sources or {}
    if not ordered:
        raise SchemaError("expected at least one version, got none", code="NQX404")
    problems = []
    for earlier, later in pairwise(ordered):
        source = sources.get(later.version, Source("<document>", {}, {}))
        if later.id != earlier.id:
            problems.append(
                source.diagnostic(
                    "NQX283",
                    ("schema",),
                    f"expected schema: {earlier.id}, got {later.id}",
                    hint="one folder holds one schema",
                )
            )
        if later.version == earlier.version:
            problems.append(
                source.diagnostic(
                    "NQX303", ("version",), f"expected each version once, got version {later.version} twice"
                )
            )
    if problems:
        raise SchemaError(problems)
    return Series(ordered[0].id, {d.version: d for d in ordered}, dict(sources), folder)


def carried_series(document: Mapping[str, Any]) -> dict[str, Series]:
    """The schemas that travel inside a payload, by identity.

    Args:
        document: The members of ``manifest.json``; without ``schemas`` nothing travels.

    Raises:
        SchemaError: One of them is no schema document, or a version is there twice.

    Example:
        >>> data = {"language": "1", "schema": "a", "version": 2, "root": "A", "structs": {"A": {"fields": {}}}}
        >>> carried_series({"schemas": [data]})["a"].versions
        (2,)
    """
    held = [_carried_document(data, f"schemas[{index}]") for index, data in enumerate(document.get("schemas", ()))]
    versions: dict[str, list[Document]] = {}
    for each in link_all(held):
        versions.setdefault(each.id, []).append(each)
    known = {identity: series_of(documents) for identity, documents in versions.items()}
    return {identity: replace(series, carried=frozenset(series.documents)) for identity, series in known.items()}


def _carried_document(data: Any, name: str) -> Document:
    try:
        text = json.dumps(data)
    except (TypeError, ValueError, RecursionError):  # no plain values: reading it tells what is wrong
        return document_from_data(data, name)
    return _document_of_text(text, name)


@lru_cache(maxsize=64)  # the bundles of a run carry the same documents, and a migration looks at them more than once
def _document_of_text(text: str, name: str) -> Document:
    return document_from_data(json.loads(text), name)


def load_series(where: str | Path) -> Series:
    """Read a schema: a folder with one file per version, one file, or text.

    Args:
        where: A folder, a file, or (if it has a newline) the text of one document.

    Raises:
        SchemaMissingError: There is nothing at the path.
        SchemaError: Everything that is wrong with any of the files.

    Example:
        >>> load_series("schemas/vmc_state").head.version
        3
    """
    if isinstance(where, str) and "\n" in where:
        source = read_text(where)
        document = link(parse_document(source), among(()))
        return series_of([document], {document.version: source})
    path = Path(where)
    if not os.path.exists(path):  # noqa: PTH110 - Path.exists() fails for names that no file can have
        raise SchemaMissingError.at(where)
    refuse_bundle(path)
    if not path.is_dir():
        source = read_file(path)
        find = beside(path.parent)
        document = link(parse_document(source), find)
        return _with_earlier(series_of([document], {document.version: source}, path.parent), find)
    files = sorted(p for p in path.iterdir() if p.suffix in SUFFIXES and p.is_file())
    if not files:
        raise SchemaError(
            "expected a folder with one file per version, got a folder without .yaml, .yml or .json files",
            code="NQX404",
            file=str(where),
            hint=_nested_hint(path),
        )
    documents: list[Document] = []
    sources: dict[int, Source] = {}
    problems: list[Diagnostic] = []
    for file in files:
        try:
            source = read_file(file)
            document = parse_document(source)
        except SchemaError as error:
            problems += error.diagnostics
            continue
        if document.version in sources:
            first = sources[document.version].name
            message = f"expected each version once, got version {document.version}, which {first} has too"
            problems.append(source.diagnostic("NQX303", ("version",), message, hint="number the newer one higher"))
        documents.append(document)
        sources.setdefault(document.version, source)
    if problems:
        raise SchemaError(problems)
    find = beside(path)
    return _with_earlier(series_of([link(document, find) for document in documents], sources, path), find)


def _with_earlier(series: Series, find: Find) -> Series:
    """The series with the versions of used schemas that lie between, or before, those that its documents use."""
    newest: dict[str, int] = {}
    for document in series.documents.values():
        for used in document.closure():
            if used.id != series.id:
                newest[used.id] = max(used.version, newest.get(used.id, 0))
    earlier: list[Document] = []
    for identity, version in newest.items():
        known = version - 1
        while known and (document := find(identity, known)) is not None:  # type: ignore[assignment]
            earlier.append(link(document, find))
            known -= 1
    return replace(series, earlier=tuple(earlier)) if earlier else series


def refuse_bundle(path: Path) -> None:
    """Refuse a folder with a manifest, a manifest and a zip: none of them is a schema, whatever they hold.

    Raises:
        SchemaError: NQX010: it is one of these.
    """
    if path.suffix.lower() == ".zip" or path.name == _MANIFEST or (path / _MANIFEST).is_file():
        hint = f"`neuralqx-struct validate {path}` checks it"
        raise SchemaError("expected a schema, got a bundle", code="NQX010", file=str(path), hint=hint)


def _nested_hint(path: Path) -> str:
    inner = sorted(p.name for p in path.iterdir() if p.is_dir() and any(p.glob("v*.*")))
    return f"its folders are schemas: {', '.join(inner)}" if inner else "name the files v1.yaml, v2.yaml, ..."


def lock_entry(document: Document) -> dict[str, str]:
    """What the lock file holds of one frozen version."""
    return {"payload": payload_fingerprint(document), "full": full_fingerprint(document)}


def format_lock(series_id: str, entries: Mapping[int, Mapping[str, str]]) -> str:
    """The text of a lock file; the inverse of :func:`read_lock`."""
    lock = {"lock": 1, "schema": series_id, "versions": {str(v): dict(e) for v, e in sorted(entries.items())}}
    return json.dumps(lock, indent=2) + "\n"


def read_lock(folder: Path) -> dict[int, dict[str, str]]:
    """The frozen versions of a schema folder, empty if it has no lock file.

    Raises:
        SchemaError: NQX291: the lock file is not one.
    """
    path = folder / LOCK_NAME
    if not path.exists():
        return {}
    try:
        lock: Any = json.loads(path.read_text(encoding="utf-8"))
        return {int(v): {"payload": str(e["payload"]), "full": str(e["full"])} for v, e in lock["versions"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SchemaError(
            "expected a lock file as `schema freeze` writes it, got something else",
            code="NQX291",
            file=str(path),
            hint="restore it from version control; it is never edited by hand",
        ) from None
