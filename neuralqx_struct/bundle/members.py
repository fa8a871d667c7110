"""The files of a new bundle: added one after the other, the manifest last.

``forms.py`` makes one in each place where bundles lie, ``writing.py`` fills it.

Example:
    >>> import tempfile
    >>> stage = Path(tempfile.mkdtemp())
    >>> with NewBundle(stage, folder=True) as new:
    ...     new.finish(b"{}")
    >>> [path.name for path in stage.iterdir()]
    ['manifest.json']
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, Self, TypeVar, cast

from neuralqx_struct.bundle.storage import FOREIGN_MEMBERS, Opened
from neuralqx_struct.errors import LIMITS, Diagnostic, Hint, SerializationError, StructError
from neuralqx_struct.formats.archive_writer import ArchiveWriter
from neuralqx_struct.formats.store import Records, about
from neuralqx_struct.manifest import (
    DEFAULT_FILE,
    DEFAULT_LIMITS,
    MANIFEST,
    SCHEMA_URL,
    WRITER,
    Limits,
    raise_findings,
)
from neuralqx_struct.manifest.text import format_manifest, parse_manifest
from neuralqx_struct.places.checksums import write_all
from neuralqx_struct.places.disk import Target, copy_region
from neuralqx_struct.places.names import KEPT, shown_names

_T = TypeVar("_T")
# Members of a record about the stored bytes of an array, not about the array.
_LARGE_HINT: Final = Hint("save large values as arrays, or pass ", LIMITS, " for more")
_OF_BYTES: Final = ("crc32", "chunk", "chunk_crc32", "offset", "nbytes", "file")
#: The names of files that a bundle can have.
OURS: Final = re.compile(r"manifest\.json|arrays[A-Za-z0-9_.-]*")


class NewBundle:
    """The files of a new folder or zip, added one after the other; the manifest is last."""

    def __init__(self, stage: Path, *, folder: bool) -> None:
        self._stage = stage
        self._archive: ArchiveWriter | None = None
        if not folder:
            self._raw = cast("BinaryIO", stage.open("r+b", buffering=0))
            self._archive = ArchiveWriter(self._raw)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._archive is not None:
            self._raw.close()

    def named(self, file: str) -> str:
        """The name that an array file gets."""
        return file

    def take(self, held: Opened, file: str) -> str:
        """Takes over an open file of another bundle, byte by byte the same; returns the name that it gets."""
        named = self.named(file)
        if self._archive is None and held.link(file, self._stage / named):
            return named
        region = held.source(file, lambda: DEFAULT_LIMITS.manifest_bytes)
        self.put(named, lambda place: copy_region(held.path / file, region, place))
        return named

    def put(self, file: str, fill: Callable[[Target], _T]) -> _T:
        """Writes a file by calling ``fill`` with its place; returns the result."""
        if self._archive is None:
            return fill(self._stage / file)
        return self._archive.add_written(file, fill)

    def complete(
        self,
        document: Mapping[str, Any],
        records: Records,
        file: str,
        most: int,
        shared: dict[str, str] | None = None,
    ) -> None:
        """Writes the manifest of a bundle whose arrays are all in one file.

        Args:
            document: The manifest, its records still without the members of the store.
            records: The records of the store.
            file: The array file.
            most: The bytes of the largest manifest that is accepted.
            shared: As for ``format_manifest``.

        Raises:
            SerializationError: An array was written as another one than the manifest describes, or sizes are
                above the limits.
        """
        given = document["arrays"]
        raise_findings(_unlike(given, records))
        named = {name: recorded(given[name], records[name], file) for name in given}
        self.finish(formatted(signed(document, named), most, shared))

    def finish(self, manifest: bytes) -> None:
        """Writes the manifest, the last file, and flushes it to the disk; a zip is flushed where it is placed."""
        if self._archive is None:
            write_file(self._stage / MANIFEST, manifest)
            return
        self._archive.add(MANIFEST, manifest)
        self._archive.close()


def _unlike(given: Mapping[str, Any], written: Records) -> Iterator[Diagnostic]:
    """Yields a finding for each array that a store has written as another one than the manifest describes."""
    for name, record in given.items():
        found = written[name]
        if found["dtype"] == record["dtype"] and [*found["shape"]] == [*record["shape"]]:
            continue
        described, made = (f"{each['dtype']}{[*each['shape']]}" for each in (record, found))
        message = f"expected an array of {described}, got {made} when it was written"
        yield about("NQX430", name, message, "convert the array before saving it")


def write_file(path: Path, data: bytes) -> None:
    """Writes a new file and flushes it to the disk."""
    with path.open("xb", buffering=0) as file:
        write_all(cast("BinaryIO", file), memoryview(data))
        os.fsync(file.fileno())


def foreign_reason(path: Path) -> str | None:
    """The reason why a path is more than a bundle and must not be replaced; damaged bundles may be."""
    if path.is_dir():
        names = os.listdir(path)  # noqa: PTH208 - names alone
        return foreign_names(names, (path / MANIFEST).read_bytes)
    if not stat.S_ISREG(path.lstat().st_mode):
        return "something that is no plain file"
    with path.open("rb") as file:
        head = file.read(512)
    first = head[30 : 30 + int.from_bytes(head[26:28], "little")].decode("latin1")
    return None if head[:4] == b"PK\3\4" and OURS.fullmatch(first) else "a file that is no bundle"


def foreign_names(names: Iterable[str], manifest: Callable[[], bytes]) -> str | None:
    """The reason why a folder with these names is more than a bundle; ``manifest`` returns the bytes of the manifest."""
    given = {*names}
    present = shown_names(given)
    if MANIFEST not in present:
        return f"a folder without {MANIFEST}"
    other = [name for name in present if not OURS.fullmatch(name)] + sorted(KEPT & given)
    if other:
        return f"a folder that also holds {', '.join(other[:5])}"
    if len(present) == 1 and not _is_manifest(manifest):
        return f"a folder with some other program's {MANIFEST}"
    return None


def _is_manifest(read: Callable[[], bytes]) -> bool:
    try:
        data = read()
        return (
            parse_manifest(data, limits=Limits(manifest_bytes=len(data))).keys() >= FOREIGN_MEMBERS
        )
    except (StructError, OSError):
        return False


def recorded(old: Mapping[str, Any], new: Mapping[str, Any], file: str) -> dict[str, Any]:
    """A new record that keeps the members of the old one that are not about its stored bytes."""
    kept = {name: value for name, value in old.items() if name not in _OF_BYTES}
    record = {**kept, **new}
    if file != DEFAULT_FILE:
        record["file"] = file
    return record


def signed(document: Mapping[str, Any], records: Mapping[str, Any]) -> dict[str, Any]:
    """The document with its records and its writer."""
    return {"$schema": SCHEMA_URL, "writer": dict(WRITER), **document, "arrays": dict(records)}


def formatted(
    document: dict[str, Any],
    most: int,
    shared: dict[str, str] | None = None,
) -> bytes:
    """The bytes of a manifest; refuses more than some. ``shared`` is as for ``format_manifest``."""
    data = format_manifest(document, shared)
    if len(data) > most:
        message = f"expected a manifest of at most {most} bytes, got {len(data)}"
        raise SerializationError(message, code="NQX005", hint=_LARGE_HINT)
    return data
