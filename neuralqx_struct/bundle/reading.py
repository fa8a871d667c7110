"""Reads bundles, and checks everything before it is used: the manifest alone, or with its arrays.

``storage.py`` opens folders and zips, the array files are read by their stores. A manifest alone is read
without numpy.

Example:
    >>> import tempfile
    >>> from neuralqx_struct.bundle import write
    >>> path = write(f"{tempfile.mkdtemp()}/ckpt", Payload({"version": 1, "manifest": 5, "arrays": {}}, {}))
    >>> read_manifest(path)["manifest"], read(path).document["manifest"], verify(path)
    (5, 5, [])
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from neuralqx_struct.bundle.atomic import current
from neuralqx_struct.bundle.storage import (
    FOREIGN_MEMBERS,
    MANIFEST,
    BundleMissingError,
    Opened,
    manifest_bytes,
    opened_bundle,
    refused_reading,
)
from neuralqx_struct.errors import (
    Diagnostic,
    IntegrityError,
    SerializationError,
    StructError,
    has_errors,
)
from neuralqx_struct.manifest import DEFAULT_FILE, DEFAULT_LIMITS, Limits, collector_paused
from neuralqx_struct.manifest.payload import (
    HeldArrays,
    Payload,
    Region,
    StoredArrays,
    check_arrays,
    raise_findings,
)
from neuralqx_struct.manifest.text import check_digest, read_document
from neuralqx_struct.stores.store import (
    STORES,
    Access,
    Progress,
    Records,
    Source,
    Store,
    about,
    file_of,
    store_of_file,
    ticking,
    total_bytes,
)

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_ATTEMPTS = 16
_T = TypeVar("_T")


# The manifest


def settled(path: Path, look: Callable[[Opened], _T]) -> _T:
    """The result of ``look`` at a bundle; looks again if a writer replaced the bundle meanwhile."""
    left = _ATTEMPTS
    while True:
        left -= 1
        try:
            with opened_bundle(path) as held:
                try:
                    return look(held)
                except (StructError, OSError):
                    if not left or not _outlived(held, path):
                        raise
        except FileNotFoundError:  # between two renames there is nothing at the path
            if not left or current(path) is None:
                raise


def _outlived(held: Opened, path: Path) -> bool:
    """True if a bundle was replaced, or was the old one of a replacement that is complete: its files are being removed."""
    return held.moved() or (held.path != path and path.exists())


def _require_current(held: Opened, path: Path, found: list[Diagnostic]) -> None:
    """Raises findings that may be about files that were being removed, so that the bundle is read again."""
    if has_errors(found) and _outlived(held, path):
        raise IntegrityError(found)


def _examined(data: bytes, limits: Limits) -> tuple[dict[str, Any], list[Diagnostic]]:
    """The document, and every problem of it that can be found without the arrays."""
    try:
        document, found = read_document(data, limits=limits)
    except SerializationError as error:
        problem = check_digest(data)
        if problem is not None and b'"digest"' in data[-200:]:
            raise IntegrityError([*error.diagnostics, problem]) from error.__cause__
        raise
    if any(d.code == "NQX402" for d in found) or document.keys() == FOREIGN_MEMBERS:
        return document, found  # other formats have other digests, and neuraLQX writes none
    problem = check_digest(data)
    if problem is not None:
        found.append(problem)
    records = document.get("arrays")
    for name, record in records.items() if type(records) is dict else ():
        if type(record) is dict and not ("crc32" in record and "nbytes" in record):
            message = "expected crc32 and nbytes in the record, got a record without"
            found.append(about("NQX407", name, message))
    return document, found


def sound_document(held: Opened, limits: Limits) -> dict[str, Any]:
    """The manifest of an open bundle.

    Raises:
        SerializationError: It has problems: all that can be found without the arrays.
    """
    document, found = _examined(manifest_bytes(held, limits), limits)
    raise_findings(found)
    return document


def read_manifest(path: str | Path, *, limits: Limits | None = None) -> dict[str, Any]:
    """The checked manifest of a bundle; needs neither numpy nor the array files.

    Args:
        path: A folder, a zip, or a ``manifest.json``.
        limits: Sizes above which it is refused.

    Raises:
        SerializationError: There is no manifest, or it has problems: all of them.
        IntegrityError: Its bytes were changed.
    """
    path, limits = Path(path), limits or DEFAULT_LIMITS
    with naming(path):
        return settled(path, lambda held: sound_document(held, limits))


def survey(
    path: str | Path, *, limits: Limits | None = None
) -> tuple[dict[str, Any] | None, list[Diagnostic]]:
    """The manifest, and every problem of it and of the sizes of the array files; reads no array.

    Args:
        path: A folder, a zip, or a ``manifest.json``, whose array files are then not looked for.
        limits: Sizes above which it is refused.

    Returns:
        The document, also if only its digest is wrong; None if it is no manifest. And the findings.

    Raises:
        BundleMissingError: There is nothing at the path.
        SerializationError: There is no manifest.
    """
    path, limits = Path(path), limits or DEFAULT_LIMITS

    def look(held: Opened) -> tuple[dict[str, Any] | None, list[Diagnostic]]:
        document, found = _examined(manifest_bytes(held, limits), limits)
        if any(d.code != "NQX407" for d in found):
            raise_findings(found)
        if held.has_files:
            found += _size_findings(held, path, document)
        _require_current(held, path, found)
        return document, found

    try:
        with naming(path):
            return settled(path, look)
    except BundleMissingError:
        raise
    except StructError as error:
        return None, list(error.diagnostics)


def _size_findings(held: Opened, path: Path, document: Mapping[str, Any]) -> list[Diagnostic]:
    """Returns findings about array files that are missing or too short; reads none of them."""
    needed: dict[str, int] = {}
    for record in document["arrays"].values():
        file = file_of(record)
        nbytes = record.get("nbytes", 1)
        # Compressed arrays have no offset and may be of any size.
        least = record["offset"] + nbytes if "offset" in record else min(nbytes, 1)
        needed[file] = max(needed.get(file, 0), least)
    found: list[Diagnostic] = []
    for file, least in needed.items():
        where = str(path / file)
        try:
            size = held.size(file)
        except StructError as error:
            found += error.diagnostics
            continue
        if size is None:
            message = f"expected the array file {file}, got none"
            found.append(Diagnostic("NQX409", "error", message, file=where))
        elif size < least:
            message = f"expected a file of at least {least} bytes, got {size}"
            found.append(Diagnostic("NQX408", "error", message, file=where))
    return found


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Adds the path to errors that are raised inside."""
    try:
        yield
    except StructError as error:
        raise _named(error, path) from error.__cause__
    except OSError as error:
        raise refused_reading(error, path) from error


def _named(error: StructError, path: Path) -> StructError:
    """The error with the file of its problems; those with a line are in the text of the manifest."""
    if all(d.file is not None for d in error.diagnostics):
        return error
    text = path / MANIFEST if os.path.isdir(path) else path  # noqa: PTH112 - Path.is_dir raises where it may not look
    return type(error)(d.in_file(str(path if d.line is None else text)) for d in error.diagnostics)


def around(path: str | Path) -> Path:
    """The bundle that a path belongs to: for a ``manifest.json``, its folder."""
    path = Path(path)
    return path.parent if path.suffix == ".json" and os.path.isfile(path) else path  # noqa: PTH113 - see _named


# The arrays


class _BundleArrays(StoredArrays):
    """The arrays of all files of a bundle in one mapping; errors name the file."""

    __slots__ = ("_homes",)

    def __init__(self, homes: Mapping[str, tuple[StoredArrays, str]]) -> None:
        super().__init__(homes)
        self._homes = homes

    def __getitem__(self, name: str) -> Array:
        arrays, file = self._homes[name]
        try:
            return arrays[name]
        except SerializationError as error:
            raise error.in_file(file) from error.__cause__
        except OSError as error:  # a broken disk, where arrays are copied
            raise refused_reading(error, Path(file)) from error

    def parts(self, name: str, regions: Iterable[Region]) -> Iterator[Array]:
        arrays, file = self._homes[name]
        try:
            yield from arrays.parts(name, regions)
        except SerializationError as error:
            raise error.in_file(file) from error.__cause__

    def verify(self, name: str) -> Diagnostic | None:
        arrays, file = self._homes[name]
        problem = arrays.verify(name)
        return None if problem is None else problem.in_file(file)


def _by_file(held: Opened, records: Records) -> dict[str, dict[str, Any]]:
    """The records by array file; existing files of stores without records are included, to check them too."""
    unnamed = {DEFAULT_FILE} if records else {store.file for store in STORES.values()}
    files: dict[str, dict[str, Any]] = {name: {} for name in held.names() if name in unnamed}
    for name, record in records.items():
        files.setdefault(file_of(record), {})[name] = record
    return files


def _opened_file(held: Opened, file: str, records: Records) -> tuple[Store, Source]:
    """The store and the place of an array file."""

    def most() -> int:
        """Twice the arrays, with the largest headers and names that are possible."""
        return 2 * (total_bytes(records) + sum(1024 + 8 * len(name) for name in records)) + (
            1 << 16
        )

    store = store_of_file(file)
    source = held.folder(file) if store.folder else held.region(file, most)
    if source is None:
        raise IntegrityError(f"expected the array file {file}, got none", code="NQX409")
    return store, source


def read(
    path: str | Path,
    *,
    verify: bool = True,
    mmap: bool = True,
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> Payload:
    """Reads a bundle: the manifest now, each array on access.

    Args:
        path: The folder or zip, or the ``manifest.json`` in a folder.
        verify: Check every byte of an array when it is read.
        mmap: Map the arrays; otherwise they are copied into private memory.
        limits: Sizes above which it is refused.
        progress: Called with bytes verified and bytes in all, now and when arrays are read.

    Raises:
        SerializationError: There is no bundle, or its manifest has problems: all of them.
        IntegrityError: Its parts do not agree with each other.
        UntrustedError: It holds pickles, links, or sizes that readers refuse.
    """
    path, limits = around(path), limits or DEFAULT_LIMITS

    def look(held: Opened) -> Payload:
        document = sound_document(held, limits)
        records = document["arrays"]
        access = Access(verify, mmap, records.keys(), ticking(progress, records))
        return _read(held, path, document, access)

    with collector_paused(), naming(path):
        payload = settled(path, look)
        raise_findings(check_arrays(payload, limits))
        return payload


def _read(held: Opened, path: Path, document: dict[str, Any], access: Access) -> Payload:
    homes: dict[str, tuple[StoredArrays, str]] = {}
    found: list[Diagnostic] = []
    for file, own in _by_file(held, document["arrays"]).items():
        where = str(path / file)
        try:
            store, source = _opened_file(held, file, own)
            homes |= dict.fromkeys(own, (store.read(source, own, access), where))
        except StructError as error:
            # A store knows the file by its own name; a problem of another file keeps its place.
            found += (
                replace(d, file=where) if d.file in (None, file) else d for d in error.diagnostics
            )
    raise_findings(found)
    return Payload(document, _BundleArrays(homes))


def verify(
    path: str | Path, *, limits: Limits | None = None, progress: Progress | None = None
) -> list[Diagnostic]:
    """Every damage in a bundle, at once; reads every byte.

    Args:
        path: The folder or zip, or the ``manifest.json`` in a folder.
        limits: Sizes above which it is refused.
        progress: Called with bytes verified and bytes in all.

    Returns:
        The findings: ``info`` for unused arrays, ``warning`` for files that the manifest does not name.
    """
    path, limits = around(path), limits or DEFAULT_LIMITS

    def look(held: Opened) -> list[Diagnostic]:
        found = _damage(held, path, limits, progress)
        _require_current(held, path, found)
        return found

    try:
        with naming(path):
            found = settled(path, look)
    except StructError as error:
        found = list(error.diagnostics)
    return [d.in_file(str(path)) for d in found]


def _damage(
    held: Opened, path: Path, limits: Limits, progress: Progress | None
) -> list[Diagnostic]:
    document, found = _examined(manifest_bytes(held, limits), limits)
    if any(d.code != "NQX407" for d in found):
        return found
    records = document["arrays"]
    files = _by_file(held, records)
    access = Access(superseded=records.keys(), tick=ticking(progress, records))
    for file, own in files.items():
        try:
            store, source = _opened_file(held, file, own)
            damage = store.verify(source, own, access)
        except StructError as error:
            damage = list(error.diagnostics)
        found += (replace(d, file=str(path / file)) for d in damage)
    found += check_arrays(Payload(document, HeldArrays(records)), limits)
    for name in held.names():
        if name not in files and name != MANIFEST:
            message = f"expected no file that the manifest does not name, got {name}"
            found.append(Diagnostic("NQX410", "warning", message))
    return found
