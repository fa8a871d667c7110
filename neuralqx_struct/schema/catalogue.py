"""Catalogues: the schemas of a folder by identity, and the paths that schema arguments of commands name.

Owns the forms of a schema argument (a path, ``id``, ``id@3``, ``path@3``) and the choice of a bundle's schema among
several. ``series.py`` reads the files.

Example:
    >>> Catalogue(Path("schemas")).find("neuralqx.vmc_state@2").as_posix()
    'schemas/vmc_state/v2.yaml'
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from neuralqx_struct.errors import SchemaError, closest_version, did_you_mean
from neuralqx_struct.references import IDENTITY
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.series import (
    SchemaMissingError,
    Series,
    load_series,
    schema_folders,
    series_of,
    version_files,
)
from neuralqx_struct.schema.text.loader import read_file

_MOST_FOLDERS = 1000
_MOST_LISTED = 10
_AT_VERSION = re.compile(r"(.+)@([1-9][0-9]{0,17})", re.DOTALL)


class Catalogue:
    """The schemas in the folders below one folder, or the schema that it is itself.

    A schema is read when it is asked for, so that errors in others do not matter.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read = cache(load_series)

    @cached_property
    def places(self) -> Mapping[str, Path]:
        """The folders of the schemas by identity.

        Raises:
            SchemaError: NQX283: two folders have the same identity.
        """
        found: dict[str, Path] = {}
        folders = schema_folders(self.folder) if self.folder.is_dir() else []
        for folder in folders[:_MOST_FOLDERS]:
            identity = next(filter(None, (_member(f, "schema") for f in version_files(folder))), "")
            if identity in found:
                message = (
                    f"expected one folder of {identity}, got another in {found[identity].name}"
                )
                hint = "give one of the two another identity"
                raise SchemaError(message, code="NQX283", file=str(folder), hint=hint)
            if identity:
                found[identity] = folder
        return found

    def get(self, identity: str) -> Series | None:
        """The versions of a schema, or None if no folder has its identity.

        Raises:
            SchemaError: All errors in its files.
        """
        place = self.places.get(identity)
        return None if place is None else self._read(place)

    def find(self, name: str | Path) -> Path:
        """The path that a schema argument names: of a file or folder, or that of ``id``, ``id@3`` or ``path@3``.

        A version means the file of that version. A path that exists is preferred to an identity, and text that has the
        form of neither is returned as a path: the reader of the schema reports that there is nothing.

        Raises:
            SchemaError: NQX400: no schema has the identity; NQX404: the schema has no such version.
        """
        text = str(name)
        if os.path.lexists(text):
            return Path(text)
        parts = _AT_VERSION.fullmatch(text)
        where = text if parts is None else parts[1]
        place = Path(where)
        if parts is None or not place.exists():
            if not IDENTITY.fullmatch(where):
                return Path(text)
            if where not in self.places:
                raise self._unknown(text, where)
            place = self.places[where]
        return place if parts is None else _file_of(place, where, int(parts[2]))

    def _unknown(self, text: str, identity: str) -> SchemaError:
        known = [*self.places]
        hint = f"known identities: {', '.join(known[:_MOST_LISTED])}"
        if not known:
            hint = "name the folder of all schemas in neuralqx-struct.toml: schemas = 'FOLDER'"
        message = f"expected a path that exists, or the identity of a schema in {self.folder.as_posix()}/, got {text!r}"
        return SchemaError(message, code="NQX400", hint=did_you_mean(identity, known) or hint)


def _member(file: Path, name: str) -> Any:
    """A member of a schema file, or None if the file has errors or no such member."""
    try:
        data = read_file(file).data
    except SchemaError:
        return None
    return data.get(name) if isinstance(data, dict) else None


def _file_of(place: Path, where: str, version: int) -> Path:
    """The file of one version of a schema folder; a broken one is known by its name."""
    files = version_files(place) if place.is_dir() else [place]
    by_version: dict[int, Path] = {}
    for file in files:
        named = re.fullmatch(r"v(\d{1,18})(\.struct)?", file.stem)
        held = _member(file, "version")
        number = int(named[1]) if held is None and named else held
        if type(number) is int:
            by_version.setdefault(number, file)
    if version not in by_version:
        known = ", ".join(map(str, sorted(by_version))) or "none"
        message = f"expected one of the versions {known} of {where}, got {version}"
        hint = None
        if by_version:
            hint = f"did you mean {where}@{closest_version(version, by_version)}?"
        raise SchemaMissingError(message, hint=hint)
    return by_version[version]


def schemas_given(schema: Any) -> Series | Catalogue | None:
    """The schemas of an argument: a Series, a Catalogue, that of a Schema, a Document or a path; None for None."""
    if schema is None or isinstance(schema, (Series, Catalogue)):
        return schema
    if isinstance(schema, Document):
        return series_of([schema])
    series: Series | None = getattr(schema, "series", None)
    return load_series(schema) if series is None else series


def series_for(document: Mapping[str, Any], given: Series | Catalogue | None) -> Series | None:
    """The series that a manifest is read with: of a catalogue the one that the manifest names, if it is there."""
    if not isinstance(given, Catalogue):
        return given
    written = document.get("schema")
    return given.get(written["id"]) if isinstance(written, Mapping) else None
