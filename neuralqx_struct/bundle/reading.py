"""Reads bundles, and checks everything before it is used: the manifest alone, or with its arrays.

A bundle is opened once, by :func:`opened`: its manifest and its array files belong together from then on,
whatever writers do to the path. Every operation uses these open files. A manifest alone is read without
numpy.

Example:
    >>> import tempfile
    >>> from neuralqx_struct.bundle import write
    >>> path = write(f"{tempfile.mkdtemp()}/ckpt", Payload({"version": 1, "manifest": 5, "arrays": {}}, {}))
    >>> with opened(path) as source:
    ...     source.payload().document["manifest"], source.damage()
    (5, [])
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

from neuralqx_struct.bundle.forms import form_of
from neuralqx_struct.bundle.storage import FOREIGN_MEMBERS, BundleArrays, Opened, manifest_bytes
from neuralqx_struct.errors import (
    Diagnostic,
    IntegrityError,
    SerializationError,
    StructError,
    has_errors,
)
from neuralqx_struct.formats.store import (
    STORES,
    Access,
    Progress,
    Store,
    about,
    file_of,
    store_of_file,
    ticking,
    total_bytes,
)
from neuralqx_struct.manifest import DEFAULT_FILE, DEFAULT_LIMITS, MANIFEST, Limits, raise_findings
from neuralqx_struct.manifest.check import check_manifest
from neuralqx_struct.manifest.payload import HeldArrays, Payload, StoredArrays, check_arrays
from neuralqx_struct.manifest.text import check_digest, read_document
from neuralqx_struct.places.disk import BundleReplacedError, missing, refused_reading
from neuralqx_struct.places.urls import Place, place_of

_P = ParamSpec("_P")
_T = TypeVar("_T")
_ARRAYS = "arrays."  # in front of the names of array files
_ATTEMPTS = 250
_PAUSE = 0.004  # a writer on a busy machine needs its turn


# Opening


class OpenBundle:
    """A bundle whose manifest and array files were opened once.

    Attributes:
        path: The path that was asked for.
        held: The files.
        data: The bytes of the manifest.
        document: The manifest.
        findings: Every problem of it that can be found without the arrays.
        is_sound: True if at most its digest, or checksums of arrays, are wrong.
    """

    def __init__(self, path: Place, held: Opened, limits: Limits, *, part: bool = False) -> None:
        self.path = path
        self.held = held
        self._limits = limits
        self._part = part and isinstance(path, Path) and held.is_folder
        self.data = manifest_bytes(held, limits.manifest_bytes)
        self.document, self.findings = _examined(self.data, limits, part=self._part)
        self.is_sound = all(d.code == "NQX407" for d in self.findings)
        self._records: dict[str, dict[str, Any]] = {}
        if self.is_sound and held.has_files:
            self._records = self._by_file()
        self._sizes = {file: self._size(file) for file in self._records}

    def _by_file(self) -> dict[str, dict[str, Any]]:
        """The records by array file; existing files of stores without records are included, to check them too."""
        records = self.document["arrays"]
        names = self.held.names() if self.held.exclusive else ()
        unnamed = {DEFAULT_FILE}
        if not records and any(name.startswith(_ARRAYS) for name in names):
            unnamed = {store.file for store in STORES.values()}
        files: dict[str, dict[str, Any]] = {name: {} for name in names if name in unnamed}
        if records and not any("file" in record for record in records.values()):
            return {**files, DEFAULT_FILE: records}
        for name, record in records.items():
            files.setdefault(file_of(record), {})[name] = record
        return files

    def _size(self, file: str) -> int | StructError:
        """Opens an array file; returns its size, or the reason why it cannot be read."""
        try:
            return self._required(file, self.held.hold(file, folder=store_of_file(file).folder))
        except StructError as error:
            return error
        except OSError as error:
            return refused_reading(error, self.path / file)

    def _required(self, file: str, size: int | None) -> int:
        if size is None:
            raise IntegrityError(f"expected the array file {file}, got none", code="NQX409")
        return size

    def is_complete(self) -> bool:
        """True if all files are open, and not only folders whose files a writer could remove."""
        return all(type(size) is int and size < sys.maxsize for size in self._sizes.values())

    def sound_document(self) -> dict[str, Any]:
        """The manifest.

        Raises:
            SerializationError: It has problems: all that can be found without the arrays.
        """
        self._raise(self.findings)
        return self.document

    def _raise(self, found: list[Diagnostic]) -> None:
        if found:
            with naming(self.path):
                raise_findings(found)

    def _store(self, file: str) -> Store:
        """The store of an array file that can be read."""
        size = self._sizes[file]
        if isinstance(size, StructError):
            raise size
        return store_of_file(file)

    def _most(self, file: str) -> int:
        """Twice the arrays of a file, with the largest headers and names that are possible."""
        records = self._records[file]
        named = sum(1024 + 8 * len(name) for name in records)
        return 2 * (total_bytes(records) + named) + (1 << 16)

    def payload(
        self, *, verify: bool = True, mmap: bool = True, progress: Progress | None = None
    ) -> Payload:
        """The manifest with the arrays; see :func:`read`."""
        document = self.sound_document()
        records = document["arrays"]
        whole = partial(_require_sound, self.path, document, self._limits) if self._part else None
        access = Access(verify, mmap, records.keys(), ticking(progress, records), whole)
        homes: dict[str, tuple[StoredArrays, str]] = {}
        found: list[Diagnostic] = []
        for file, own in self._records.items():
            where = str(self.path / file)
            try:
                store, most = self._store(file), partial(self._most, file)
                arrays = self.held.ranged(file, own, access)
                if arrays is None:
                    arrays = store.read(self.held.source(file, most), own, access)
                homes |= dict.fromkeys(own, (arrays, where))
            except OSError:  # it cannot be read now; it may be sound
                raise
            except StructError as error:
                # A store knows the file by its own name; a problem of another file keeps its place.
                found += (
                    replace(d, file=where) if d.file in (None, file) else d
                    for d in error.diagnostics
                )
        payload = Payload(document, BundleArrays(homes))
        found = found or check_arrays(payload, self._limits.full_bytes)
        if self._part and has_errors(found):  # a reader of all arrays states what is wrong
            self._part = False
            self.findings += check_manifest(document, limits=self._limits)
            return self.payload(verify=verify, mmap=mmap)
        self._raise(found)
        return payload

    def size_findings(self) -> list[Diagnostic]:
        """Findings about array files that are missing or too short; reads none of them."""
        found: list[Diagnostic] = []
        for file, records in self._records.items():
            where = str(self.path / file)
            held = self._sizes[file]
            try:
                if isinstance(held, StructError):
                    raise held
                size = self._required(file, self.held.measured(file, held))
            except StructError as error:
                if isinstance(error, OSError) and error is not held:
                    raise  # the server did not list the files
                found += error.in_file(where).diagnostics
                continue
            least = max(map(_least, records.values()), default=0)
            if size < least:
                message = f"expected a file of at least {least} bytes, got {size}"
                found.append(Diagnostic("NQX408", "error", message, file=where))
        return found

    def damage(self, progress: Progress | None = None) -> list[Diagnostic]:
        """Every damage, at once; see :func:`verify`."""
        if not self.is_sound:
            return self.findings
        found = list(self.findings)
        records = self.document["arrays"]
        access = Access(superseded=records.keys(), tick=ticking(progress, records))
        for file, own in self._records.items():
            try:
                store = self._store(file)
                source = self.held.source(file, partial(self._most, file))
                damage = store.verify(source, own, access)
            except BundleReplacedError:
                raise
            except StructError as error:
                damage = list(error.diagnostics)
            found += (replace(d, file=str(self.path / file)) for d in damage)
        found += check_arrays(Payload(self.document, HeldArrays(records)), self._limits.full_bytes)
        beside = (store_of_file(file).beside for file in self._records)
        known = {MANIFEST, *self._records}.union(*beside)
        for name in self.held.names():
            if name not in known:
                message = f"expected no file that the manifest does not name, got {name}"
                found.append(Diagnostic("NQX410", "warning", message))
        return found


def _require_sound(path: Place, document: dict[str, Any], limits: Limits) -> None:
    """Raises every problem of a manifest of which only a part was checked."""
    with naming(path):
        raise_findings(check_manifest(document, limits=limits))


def _least(record: Mapping[str, Any]) -> int:
    """The least size of the file of an array; compressed arrays have no offset and may be of any size."""
    nbytes: int = record.get("nbytes", 1)
    return record["offset"] + nbytes if "offset" in record else min(nbytes, 1)


#: The bundles of :func:`kept`.
_KEPT: ContextVar[Mapping[Place, OpenBundle]] = ContextVar("kept", default=MappingProxyType({}))


@contextmanager
def kept(path: Place, limits: Limits | None = None) -> Iterator[None]:
    """Makes everything inside that opens a bundle use the same open files, whatever writers do to the path."""
    with opened(path, limits) as found:
        token = _KEPT.set({**_KEPT.get(), path: found})
        try:
            yield
        finally:
            _KEPT.reset(token)


@contextmanager
def opened(
    path: str | Place, limits: Limits | None = None, *, alone: bool = False, part: bool = False
) -> Iterator[OpenBundle]:
    """Opens a bundle for all that is done inside.

    Args:
        path: The folder or zip, or the ``manifest.json`` in a folder.
        limits: Sizes above which it is refused.
        alone: Open a ``manifest.json`` without the files beside it.
        part: Only some arrays will be read, without progress: in a folder, the records of the others need not be validated.

    Raises:
        SerializationError: There is no bundle, or its manifest cannot be parsed.
    """
    path = place_of(path) if alone else around(path)
    if path in _KEPT.get():
        yield _KEPT.get()[path]
        return
    with naming(path):
        found = _settled(path, limits or DEFAULT_LIMITS, part=part)
    try:
        yield found
    finally:
        found.held.close()


def read_again(work: Callable[_P, _T]) -> Callable[_P, _T]:
    """The function, called once more if a writer replaced a bundle behind a URL that it was reading.

    A reader on a disk keeps the files that it has opened. Behind a URL they are gone, so all is read anew, by the
    new manifest; the list ``report=`` loses what the first call added.
    """

    @wraps(work)
    def called(*given: _P.args, **options: _P.kwargs) -> _T:
        report: Any = options.get("report")
        before = len(report or ())
        try:
            return work(*given, **options)
        except BundleReplacedError:
            if report is not None:
                del report[before:]
            return work(*given, **options)

    return called


def _settled(path: Place, limits: Limits, *, part: bool) -> OpenBundle:
    """Opens a bundle; again, if a writer replaced it before all files were open, and then locked from the start."""
    left = _ATTEMPTS
    form = form_of(path)
    while True:
        left -= 1
        place = form.find(path)
        if place is None:
            raise missing(path, "no file or folder")
        try:
            held = form.open(place, limits.manifest_bytes, locked=left < _ATTEMPTS - 1)
        except FileNotFoundError:  # between two renames there is nothing at the path
            if not left:
                raise
            time.sleep(_PAUSE)
            continue
        try:
            found = OpenBundle(path, held, limits, part=part)
        except (StructError, OSError):
            if not left or not _outlived(held, path):
                held.close()
                raise
        else:
            if found.is_complete() or not left or not _outlived(held, path):
                return found
        held.close()
        time.sleep(_PAUSE)


def _outlived(held: Opened, path: Place) -> bool:
    """True if a writer replaced a bundle, whose files are being removed then."""
    return held.replaced() or (held.path != path and isinstance(path, Path) and path.exists())


def _examined(
    data: bytes, limits: Limits, *, part: bool
) -> tuple[dict[str, Any], list[Diagnostic]]:
    """The document, and every problem of it that can be found without the arrays."""
    try:
        document, found = read_document(data, limits=limits, part=part)
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


@contextmanager
def naming(path: Place) -> Iterator[None]:
    """Adds the path to errors that are raised inside."""
    try:
        yield
    except StructError as error:
        raise _named(error, path) from error.__cause__
    except OSError as error:
        raise refused_reading(error, path) from error


def _named(error: StructError, path: Place) -> StructError:
    """The error with the file of its problems; those with a line are in the text of the manifest."""
    if all(d.file is not None for d in error.diagnostics):
        return error
    alone = isinstance(path, Path) and not os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises where it may not look
    text = path if alone else path / MANIFEST
    return type(error)(d.in_file(str(path if d.line is None else text)) for d in error.diagnostics)


def around(path: str | Place) -> Place:
    """The bundle that a path belongs to: for a ``manifest.json``, its folder."""
    path = place_of(path)
    inside = path.suffix == ".json" and (not isinstance(path, Path) or os.path.isfile(path))  # noqa: PTH113 - see _named
    return path.parent if inside else path
