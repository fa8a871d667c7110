"""Series: all versions of one schema, from a folder, a file, text or a bundle.

Owns finding the files of a folder and the order of versions. ``lock.py`` freezes published versions, ``uses.py`` finds
the documents that they use; ``evolution/`` migrates between them.

Example:
    >>> series = load_series("schemas/vmc_state")
    >>> series.versions
    (1, 2, 3)
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from neuralqx_struct.errors import Diagnostic, SchemaError, closest_version, path_meant, shell_word
from neuralqx_struct.places.names import entries
from neuralqx_struct.schema import text as limits
from neuralqx_struct.schema.lock import WAIVERS_NAME, payload_fingerprint, payload_fingerprints
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.reading import document_from_data, parse_document
from neuralqx_struct.schema.text import Source
from neuralqx_struct.schema.text.loader import read_file, read_text
from neuralqx_struct.schema.uses import SUFFIXES, Find, among, beside, link, link_all, loaded

__all__ = [
    "SUFFIXES",
    "SchemaMissingError",
    "Series",
    "carried_series",
    "layout_files",
    "load_series",
    "refuse_bundle",
    "series_of",
    "undo_hint",
    "version_files",
    "warm_files",
]

_MANIFEST = "manifest.json"
#: The folder of layouts beside the versions of a schema.
_LAYOUTS = "layouts"
#: That of the rules of warm starts of its models.
_WARM = "warm"
#: A member that all schemas have: in YAML at the start of a line, in JSON anywhere.
_MEMBERS = re.compile(
    rb"""^(?:\{[ \t]*)?(?:schema|structs)[ \t]*:|["'](?:schema|structs)["'][ \t]*:""", re.MULTILINE
)
_NO_SOURCES: Mapping[int, Source] = MappingProxyType({})


class SchemaMissingError(SchemaError, FileNotFoundError):
    """There is nothing at the path of a schema."""

    default_code = "NQX404"

    @classmethod
    def at(cls, path: str | Path) -> SchemaMissingError:
        """The error for a path."""
        message = "expected a schema file or folder, got no such path"
        return cls(message, file=str(path), hint=path_meant(path) or "check the path")


@dataclass(frozen=True)
class Series:
    """The known versions of one schema, usually the files of one folder.

    Attributes:
        id: The identity that all documents share.
        documents: Documents by version, ascending.
        sources: The files as read, by version; empty for documents from a bundle.
        folder: The folder of the files, or None.
        carried: Versions from a bundle, which the reader has no file of.
        earlier: Earlier versions of the schemas that these use, found beside them, for migrations of their payloads.
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
            known = ", ".join(map(str, self.versions))
            message = f"expected one of the versions {known} of {self.id}, got {version}"
            near = closest_version(version, self.versions)
            hint = f"did you mean {near}? Otherwise add the file of {version}, or upgrade"
            raise SchemaError(message, code="NQX404", hint=hint)
        return self.documents[version]

    @cached_property
    def fingerprints(self) -> Mapping[int, str]:
        """Payload fingerprints by version."""
        found = {version: payload_fingerprint(d) for version, d in self.documents.items()}
        return MappingProxyType(found)

    def wrote(self, version: int, fingerprint: str) -> bool:
        """True if payloads with a fingerprint are of a known version."""
        return fingerprint in payload_fingerprints(self.documents[version])

    @cached_property
    def others(self) -> Mapping[str, Series]:
        """The schemas that any version uses, by identity, with their available versions."""
        used: dict[str, dict[int, Document]] = {}
        for document in (*self.earlier, *self.documents.values()):
            for each in document.closure():
                if each.id != self.id:
                    if each.id not in used:
                        used[each.id] = {d.version: d for d in loaded(each.id)}
                    used[each.id][each.version] = each
        found = {identity: series_of(versions.values()) for identity, versions in used.items()}
        return MappingProxyType(found)

    def merged(self, others: Iterable[Document]) -> Series:
        """Returns this series with documents of versions that it lacks, from a bundle; its own take precedence."""
        documents = {d.version: d for d in others if d.id == self.id} | dict(self.documents)
        carried = self.carried | (documents.keys() - self.documents.keys())
        return replace(self, documents=dict(sorted(documents.items())), carried=carried)


def series_of(
    documents: Iterable[Document],
    sources: Mapping[int, Source] = _NO_SOURCES,
    folder: Path | None = None,
) -> Series:
    """The documents of one identity in order.

    Raises:
        SchemaError: No document, two identities, or one version twice.
    """
    ordered = sorted(documents, key=lambda d: d.version)
    if not ordered:
        raise SchemaError("expected at least one version, got none", code="NQX404")
    problems: list[Diagnostic] = []
    for earlier, later in pairwise(ordered):
        source = sources.get(later.version, Source("<document>"))
        if later.id != earlier.id:
            message = f"expected schema: {earlier.id}, got {later.id}"
            hint = "one folder holds one schema"
            problems.append(source.diagnostic("NQX283", ("schema",), message, hint=hint))
        if later.version == earlier.version:
            message = f"expected each version once, got version {later.version} twice"
            problems.append(source.diagnostic("NQX303", ("version",), message))
    if problems:
        raise SchemaError(problems)
    return Series(ordered[0].id, {d.version: d for d in ordered}, dict(sources), folder)


def carried_series(document: Mapping[str, Any]) -> dict[str, Series]:
    """The schemas inside a payload, by identity.

    Args:
        document: The members of ``manifest.json``, of which ``schemas`` holds them.

    Raises:
        SchemaError: One of them is not a schema document, or a version is there twice.

    Example:
        >>> data = {"language": "1", "schema": "a", "version": 2, "root": "A", "structs": {"A": {"fields": {}}}}
        >>> carried_series({"schemas": [data]})["a"].versions
        (2,)
    """
    held = list(document.get("schemas", ()))
    try:
        known = _carried(tuple(map(json.dumps, held)))
    except (TypeError, ValueError, RecursionError):  # not plain: reading one finds the problem
        known = _by_identity(held)
    # A series keeps the schemas that others have loaded, so each caller gets one of its own.
    return {s.id: replace(s, carried=frozenset(s.documents)) for s in known}


# The bundles of a run carry the same documents, and a migration reads them more than once.
@lru_cache(maxsize=16)
def _carried(texts: tuple[str, ...]) -> list[Series]:
    return _by_identity(map(json.loads, texts))


def _by_identity(held: Iterable[Any]) -> list[Series]:
    """The series of documents that travel together."""
    documents: list[Document] = []
    problems: list[Diagnostic] = []
    for place, data in enumerate(held):
        try:
            documents.append(document_from_data(data, f"schemas[{place}]"))
        except SchemaError as error:
            problems += error.diagnostics
    if problems:
        raise SchemaError(problems)
    versions: dict[str, list[Document]] = {}
    for each in link_all(documents):
        versions.setdefault(each.id, []).append(each)
    return [series_of(same) for same in versions.values()]


def load_series(where: str | Path) -> Series:
    """Reads a schema: a folder with one file per version, one file, or text.

    Args:
        where: A folder, a file, or (if it has a newline) the text of one document.

    Raises:
        SchemaMissingError: There is nothing at the path.
        SchemaError: Every error of any of the files.

    Example:
        >>> load_series("schemas/vmc_state").head.version
        3
    """
    if isinstance(where, str) and "\n" in where:
        return _series_from([read_text(where)], None, among(()))
    path = Path(where)
    if not os.path.exists(path):  # noqa: PTH110 - Path.exists() fails for names that no file can have
        raise SchemaMissingError.at(where)
    refuse_bundle(path)
    if not path.is_dir():
        return _series_from([read_file(path)], path.parent, beside(path.parent))
    files = version_files(path)
    if not files:
        message = "expected a folder with one file per version, got a folder without any"
        hint = _nested_hint(path)
        raise SchemaError(message, code="NQX404", file=str(where), hint=hint)
    sources: list[Source] = []
    problems: list[Diagnostic] = []
    for file in files:
        try:
            sources.append(read_file(file))
        except SchemaError as error:
            problems += error.diagnostics
    return _series_from(sources, path, beside(path), problems)


def _series_from(
    sources: Iterable[Source], folder: Path | None, find: Find, problems: Iterable[Diagnostic] = ()
) -> Series:
    """The series of files; ``problems`` are the errors of other files."""
    documents: dict[int, Document] = {}
    by_version: dict[int, Source] = {}
    found = [*problems]
    for source in sources:
        try:
            document = parse_document(source)
        except SchemaError as error:
            found += error.diagnostics
            continue
        version = document.version
        if version in by_version:
            message = f"expected each version once, got version {version}, which {by_version[version].name} has too"
            hint = "number the newer one higher"
            found.append(source.diagnostic("NQX303", ("version",), message, hint=hint))
        documents.setdefault(version, document)
        by_version.setdefault(version, source)
    if found:
        raise SchemaError(found)
    linked = [link(document, find) for document in documents.values()]
    series = series_of(linked, by_version, folder)
    earlier = [*_earlier(series, find)]
    return replace(series, earlier=tuple(earlier)) if earlier else series


def _earlier(series: Series, find: Find) -> Iterable[Document]:
    """Yields the versions of used schemas that are between, or before, those that the documents use."""
    newest: dict[str, int] = {}
    for document in series.documents.values():
        for used in document.closure():
            if used.id != series.id:
                newest[used.id] = max(used.version, newest.get(used.id, 0))
    for identity, version in newest.items():
        for known in range(version - 1, 0, -1):
            earlier = find(identity, known)
            if earlier is None:
                break
            yield link(earlier, find)


def version_files(folder: Path) -> list[Path]:
    """The files of a folder that are versions of a schema, sound or not: by their names, or by a member that each has."""
    files = [path for path in entries(folder) if path.suffix in SUFFIXES and path.is_file()]
    found = (path for path in files if path.name != WAIVERS_NAME)
    return sorted(path for path in found if _is_version(path) or _has_members(path))


def _has_members(file: Path) -> bool:
    """True for a text with a member of schemas at its top, and for a file that cannot be read; False for a package.json."""
    try:
        with file.open("rb") as opened:
            return _MEMBERS.search(opened.read(limits.MAX_BYTES)) is not None
    except OSError:
        return True


def layout_folder(folder: Path) -> Path:
    """The folder of the layouts of a schema folder."""
    return folder / _LAYOUTS


def layout_files(folder: Path | None) -> dict[str, Path]:
    """The layouts of a schema folder, by the names of their files."""
    return {} if folder is None else _files_by_name(layout_folder(folder))


def warm_files(folder: Path | None) -> dict[str, Path]:
    """The rules of warm starts of a schema folder, by the names of their files."""
    return {} if folder is None else _files_by_name(folder / _WARM)


def _files_by_name(place: Path) -> dict[str, Path]:
    if not place.is_dir():
        return {}
    files = [file for file in entries(place) if file.suffix in SUFFIXES]
    return {file.stem: file for file in files if file.is_file()}


def schema_folders(path: Path) -> list[Path]:
    """The schema folders directly below a folder without versions; else the path alone.

    Folders with other files, such as published JSON Schemas, are left out, and so are files beside the folders.
    """
    if not path.is_dir() or any(map(_is_version, version_files(path))):
        return [path]
    inner = [folder for folder in entries(path) if folder.is_dir()]
    named = [folder for folder in inner if any(map(_is_version, version_files(folder)))]
    return named or [path]


def _is_version(file: Path) -> bool:
    return re.fullmatch(r"v\d+(\.struct)?", file.stem) is not None


def refuse_bundle(path: Path) -> None:
    """Refuses a folder with a manifest, a manifest and a zip: none of them is a schema.

    Raises:
        SchemaError: NQX010: it is one of these.
    """
    if path.suffix.lower() == ".zip" or path.name == _MANIFEST or (path / _MANIFEST).is_file():
        hint = f"`neuralqx-struct validate {shell_word(path)}` checks it"
        message = "expected a schema, got a bundle"
        raise SchemaError(message, code="NQX010", file=str(path), hint=hint)


def _nested_hint(path: Path) -> str:
    inner = [p.name for p in entries(path) if p.is_dir() and any(p.glob("v*.*"))]
    if not inner:
        return "name the files v1.yaml, v2.yaml, ..."
    return f"its folders are schemas: {', '.join(inner)}"


def undo_hint(series: Series) -> str:
    """The fix for a published version that was edited."""
    following = f"undo the edit, and give the changed schema the version {series.head.version + 1}"
    if series.folder is None:
        return following
    command = f"neuralqx-struct schema revision {shell_word(series.folder)} --against PUBLISHED"
    return f"{following}; `{command}` does both, where PUBLISHED is the former schema"
