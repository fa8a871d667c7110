"""Writes bundles, each completely or not at all. ``atomic.py`` replaces the target, ``background.py`` writes meanwhile.

Example:
    >>> import tempfile
    >>> payload = Payload({"version": 1, "manifest": 5, "arrays": {}}, {})
    >>> write(f"{tempfile.mkdtemp()}/ckpt", payload).name
    'ckpt'
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, Self, TypeVar, cast

from neuralqx_struct.bundle.atomic import staged
from neuralqx_struct.bundle.storage import (
    FOREIGN_MEMBERS,
    MANIFEST,
    Opened,
    copy_region,
    is_folder_path,
)
from neuralqx_struct.errors import SerializationError, StructError
from neuralqx_struct.manifest import (
    DEFAULT_FILE,
    DEFAULT_LIMITS,
    SCHEMA_URL,
    WRITER,
    Limits,
    collector_paused,
)
from neuralqx_struct.manifest.payload import Payload, StoredArrays, check, raise_findings
from neuralqx_struct.manifest.text import format_manifest, parse_manifest
from neuralqx_struct.stores.archive_writer import ArchiveWriter
from neuralqx_struct.stores.store import (
    Progress,
    Records,
    Store,
    Target,
    store_named,
    ticking,
    write_all,
)

_T = TypeVar("_T")
# Members of a record about the stored bytes of an array, not about the array.
_OF_BYTES: Final = ("crc32", "chunk", "chunk_crc32", "offset", "nbytes", "file")
_OURS: Final = re.compile(
    r"manifest\.json|arrays[A-Za-z0-9_.-]*|\.manifest\.json\.tmp-[0-9a-f]+|\.DS_Store"
)


# The files of a new bundle


@contextmanager
def new_bundle(path: Path, *, overwrite: bool) -> Iterator[NewBundle]:
    """Yields a new bundle in the form that the path names; it replaces the path when all is written.

    Args:
        path: The folder, or with the suffix ``.zip`` the file; a link to one is followed.
        overwrite: Replace an existing bundle; nothing but a bundle is ever replaced.
    """
    target = Path(os.path.realpath(path)) if os.path.islink(path) else path  # noqa: PTH114 - Path.is_symlink raises for long names
    folder = is_folder_path(target)
    with (
        staged(target, folder=folder, overwrite=overwrite, foreign=_foreign) as stage,
        NewBundle(stage, folder=folder) as new,
    ):
        yield new


class NewBundle:
    """The files of a new bundle in either form, added one after the other; the manifest is last."""

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

    def take(self, held: Opened, file: str) -> None:
        """Takes over an open file of another bundle, byte by byte the same."""
        if self._archive is None and held.link(file, self._stage / file):
            return
        region = held.source(file, lambda: DEFAULT_LIMITS.manifest_bytes)
        self.put(file, lambda place: copy_region(held.path / file, region, place))

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
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """Writes the manifest of a bundle whose arrays are all in one file.

        Args:
            document: The manifest, its records still without the members of the store.
            records: The records of the store.
            file: The array file.
            limits: Sizes above which the manifest is refused.
        """
        given = document["arrays"]
        named = {name: recorded(given[name], records[name], file) for name in given}
        self.finish(formatted(signed(document, named), limits))

    def finish(self, manifest: bytes) -> None:
        """Writes the manifest and flushes everything to the disk."""
        if self._archive is None:
            write_file(self._stage / MANIFEST, manifest)
            return
        self._archive.add(MANIFEST, manifest)
        self._archive.close()
        os.fsync(self._raw.fileno())


def write_file(path: Path, data: bytes) -> None:
    """Writes a new file and flushes it to the disk."""
    with path.open("xb", buffering=0) as file:
        write_all(cast("BinaryIO", file), memoryview(data))
        os.fsync(file.fileno())


def _foreign(path: Path) -> str | None:
    """The reason why a path is more than a bundle and must not be replaced; damaged bundles may be."""
    if path.is_dir():
        names = sorted(os.listdir(path))  # noqa: PTH208 - names alone
        if MANIFEST not in names:
            return f"a folder without {MANIFEST}"
        other = [name for name in names if not _OURS.fullmatch(name)]
        if other:
            return f"a folder that also holds {', '.join(other[:5])}"
        if len(names) == 1 and not _is_manifest(path / MANIFEST):
            return f"a folder with some other program's {MANIFEST}"
        return None
    if not stat.S_ISREG(path.lstat().st_mode):
        return "something that is no plain file"
    with path.open("rb") as file:
        head = file.read(512)
    first = head[30 : 30 + int.from_bytes(head[26:28], "little")].decode("latin1")
    return None if head[:4] == b"PK\3\4" and _OURS.fullmatch(first) else "a file that is no bundle"


def _is_manifest(path: Path) -> bool:
    try:
        return parse_manifest(path.read_bytes()).keys() >= FOREIGN_MEMBERS
    except (StructError, OSError):
        return False


# Bundles


def write(
    path: str | Path,
    payload: Payload,
    *,
    overwrite: bool = False,
    store: str = "npz",
    compress: bool = False,
    progress: Progress | None = None,
    limits: Limits | None = None,
) -> Path:
    """Writes a bundle, completely or not at all: a folder, or with the suffix ``.zip`` one file.

    Args:
        path: The target; missing parents are made.
        payload: The manifest and the arrays.
        overwrite: Replace an existing bundle; nothing but a bundle is ever replaced.
        store: The store of the arrays.
        compress: Compress the arrays; they can then not be mapped.
        progress: Called with (bytes done, bytes in all).
        limits: Sizes above which it is refused; readers of a larger one need them too.

    Returns:
        The path.

    Raises:
        BundleExistsError: The target exists.
        BundleWriteError: The system refused a write; the target is unchanged.
        SerializationError: The payload is not sound, or could not be read back within the limits.
    """
    path = Path(path)
    fill = filling(
        path, payload, store_named(store), compress=compress, progress=progress, limits=limits
    )
    with collector_paused(), new_bundle(path, overwrite=overwrite) as new:
        fill(new)
    return path


def filling(
    path: Path,
    payload: Payload,
    store: Store,
    *,
    compress: bool = False,
    progress: Progress | None = None,
    limits: Limits | None = None,
) -> Callable[[NewBundle], None]:
    """A function that writes a payload into a new bundle; the arguments are those of :func:`write`.

    Raises:
        SerializationError: The payload is not sound, or could not be read back within the limits.
    """
    limits = limits or DEFAULT_LIMITS
    raise_findings(check(payload, limits), str(path))
    store.require_form(folder=is_folder_path(path))
    records, arrays = payload.document["arrays"], payload.arrays
    if not isinstance(arrays, StoredArrays) or arrays.keys() != records.keys():
        arrays = {name: arrays[name] for name in records}
    tick = ticking(progress, records)

    def write_arrays(place: Target) -> Records:
        return store.write(place, arrays, compress=compress, tick=tick)

    def fill(new: NewBundle) -> None:
        written = new.put(store.file, write_arrays)
        new.complete(payload.document, written, store.file, limits)

    return fill


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


def formatted(document: dict[str, Any], limits: Limits = DEFAULT_LIMITS) -> bytes:
    """The bytes of a manifest; refuses one above the limits."""
    data = format_manifest(document)
    most = limits.manifest_bytes
    if len(data) > most:
        message = f"expected a manifest of at most {most} bytes, got {len(data)}"
        raise SerializationError(message, code="NQX005", hint="save large values as arrays")
    return data
