"""Bundles: a folder, or a zip of the same members, that holds ``manifest.json`` and the array files.

Owns the two forms, atomic writing (a temporary sibling, fsync, an exchange of names), reading that checks everything
before it is used, :func:`verify`, :func:`seal` and the manifest-only migration (:func:`write_linked`). What a manifest may
hold is ``manifest.py``'s, the array files are the stores'. Reads manifests without numpy.

Example:
    >>> import tempfile
    >>> path = write(f"{tempfile.mkdtemp()}/ckpt", Payload({"version": 1, "manifest": 5, "arrays": {}}, {}))
    >>> read(path).document["manifest"], verify(path)
    (5, [])
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self, cast

from neuralqx_struct.errors import (
    Diagnostic,
    IntegrityError,
    SerializationError,
    StructError,
    UntrustedError,
)
from neuralqx_struct.manifest import (
    DEFAULT_FILE,
    DEFAULT_LIMITS,
    SCHEMA_URL,
    WRITER,
    Limits,
    check_digest,
    check_manifest,
    collector_paused,
    format_manifest,
    parse_manifest,
    reseal,
)
from neuralqx_struct.payload import Payload, StoredArrays, check, check_arrays, raise_findings
from neuralqx_struct.stores import Source, about, opened, store_named, store_of_file
from neuralqx_struct.stores.archive import STORED, ArchiveWriter, Member, Progress, inflate, read_directory, write_all

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

__all__ = [
    "BundleExistsError",
    "BundleMissingError",
    "read",
    "read_manifest",
    "seal",
    "verify",
    "write",
    "write_linked",
]

MANIFEST: Final = "manifest.json"
_ATTEMPTS = 16
_CHUNK = 16 << 20
_OURS: Final = re.compile(r"manifest\.json|arrays[A-Za-z0-9_.-]*|\.manifest\.json\.tmp-[0-9a-f]+|\.DS_Store")
_FOREIGN_MEMBERS: Final = {"version", "manifest", "arrays"}


class BundleExistsError(SerializationError, FileExistsError):
    """The target of a write exists."""

    default_code = "NQX431"


class BundleMissingError(SerializationError, FileNotFoundError):
    """There is nothing at the path of a bundle."""

    default_code = "NQX401"


# ---------------------------------------------------------------------------------------------------------------------
# The two forms of a bundle, opened for reading.


class _Folder:
    """An open directory bundle. Its files are opened relative to the directory, whatever its name comes to mean."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: list[BinaryIO] = []
        self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)) if os.open in os.supports_dir_fd else None

    def names(self) -> list[str]:
        return sorted(os.listdir(self.path if self._fd is None else self._fd))  # noqa: PTH208 - of a descriptor

    def region(self, name: str, most: Callable[[], int]) -> Source | None:  # noqa: ARG002 - nothing to expand here
        """A member as a region of an open file; None if there is no such file."""
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        try:
            if self._fd is None:
                if (self.path / name).is_symlink():
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                fd = os.open(self.path / name, flags)
            else:
                fd = os.open(name, flags, dir_fd=self._fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise self._special(name) from error
            raise
        file = os.fdopen(fd, "rb", buffering=0) if stat.S_ISREG(os.fstat(fd).st_mode) else None
        if file is None:
            os.close(fd)
            raise self._special(name)
        self._files.append(cast("BinaryIO", file))
        return cast("BinaryIO", file), 0, os.fstat(fd).st_size

    def _special(self, name: str) -> UntrustedError:
        hint = "bundles hold plain files only, no links"
        return UntrustedError(
            "expected a plain file, got something else", code="NQX504", file=str(self.path / name), hint=hint
        )

    def link(self, name: str, target: Path) -> bool:
        """Give a file of the bundle a second name; False where the system cannot."""
        try:
            os.link(name, target, src_dir_fd=self._fd, follow_symlinks=False)
        except (OSError, NotImplementedError):
            return False
        return True

    def moved(self) -> bool:
        """True if the bundle was replaced while it was being read."""
        if self._fd is None:
            return False
        try:
            now = os.stat(self.path)  # noqa: PTH116 - as fstat below
        except FileNotFoundError:
            return True
        then = os.fstat(self._fd)
        return (now.st_dev, now.st_ino) != (then.st_dev, then.st_ino)

    def close(self) -> None:
        for file in self._files:
            file.close()
        if self._fd is not None:
            os.close(self._fd)


class _Zip:
    """An open zip bundle; a replaced file stays what it was when opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO = cast("BinaryIO", path.open("rb", buffering=0))
        try:
            size = os.fstat(self._file.fileno()).st_size
            if not size or self._file.read(2) != b"PK":
                raise _no_bundle(path, "a file that is no zip")
            self._view, _ = opened((self._file, 0, size), mmap=True)
            self._members = {member.name: member for member in read_directory(self._view)}
        except BaseException:
            self._file.close()
            raise

    def names(self) -> list[str]:
        return sorted(self._members)

    def member(self, name: str) -> Member | None:
        return self._members.get(name)

    def region(self, name: str, most: Callable[[], int]) -> Source | None:
        """A stored member as a region of the file; a deflated one, as neuraLQX writes, expanded to at most ``most()``."""
        member = self._members.get(name)
        if member is None:
            return None
        if member.method == STORED:
            return self._file, member.start, member.size
        if member.size > most():
            message = f"expected {name} to expand to at most {most()} bytes, got {member.size}"
            raise UntrustedError(message, code="NQX505", file=str(self.path))
        return memoryview(inflate(self._view[member.start : member.start + member.stored], member.size))

    def link(self, name: str, target: Path) -> bool:  # noqa: ARG002
        """A part of a file cannot have a second name."""
        return False

    def moved(self) -> bool:
        return False

    def close(self) -> None:
        self._file.close()


_Opened = _Folder | _Zip


def _no_bundle(path: Path, got: str) -> SerializationError:
    message = f"expected a bundle (a folder with {MANIFEST}, or a zip of one), got {got}"
    return SerializationError(message, code="NQX401", file=str(path))


def _present(path: Path) -> Path:
    """The path; or what stood there, if a writer was stopped between the two renames that replace a bundle."""
    if os.path.lexists(path):
        return path
    for kept in _siblings(path, "old"):
        return kept
    raise BundleMissingError("expected a bundle, got no file or folder", file=str(path))


@contextmanager
def _opened_bundle(path: Path) -> Iterator[_Opened]:
    path = _present(path)
    held = _Folder(path) if path.is_dir() else _Zip(path)
    try:
        yield held
    finally:
        held.close()


def _bytes(source: Source, limits: Limits) -> bytes:
    if isinstance(source, memoryview):
        return bytes(source)
    if isinstance(source, Path):
        return source.read_bytes()
    file, base, length = source
    if length > limits.manifest_bytes:
        message = f"expected a manifest of at most {limits.manifest_bytes} bytes, got {length}"
        raise SerializationError(message, code="NQX005", hint="pass limits= to read more")
    file.seek(base)
    parts = []
    while length and (part := file.read(length)):
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _manifest_bytes(held: _Opened, limits: Limits) -> bytes:
    source = held.region(MANIFEST, lambda: limits.manifest_bytes)
    if source is None:
        raise _no_bundle(held.path, f"one with {', '.join(held.names()[:8]) or 'nothing'} in it")
    return _bytes(source, limits)


def _examined(data: bytes, limits: Limits) -> tuple[dict[str, Any], list[Diagnostic]]:
    """The document, and everything wrong with it that can be told without the arrays."""
    document = parse_manifest(data, limits=limits)
    found = check_manifest(document, limits=limits)
    if any(d.code == "NQX402" for d in found) or document.keys() == _FOREIGN_MEMBERS:
        return document, found  # another format's digest is its own affair, and neuraLQX writes none
    if (problem := check_digest(data)) is not None:
        found.append(problem)
    records = document.get("arrays")
    for name, record in records.items() if type(records) is dict else ():
        if type(record) is dict and not ("crc32" in record and "nbytes" in record):
            found.append(about("NQX407", name, "expected crc32 and nbytes in the record, got a record without"))
    return document, found


def _sound_document(data: bytes, limits: Limits) -> dict[str, Any]:
    document, found = _examined(data, limits)
    raise_findings(found)
    return document


def read_manifest(path: str | Path, *, limits: Limits | None = None) -> dict[str, Any]:
    """The manifest of a bundle, checked by itself; neither numpy nor an array file is touched.

    Args:
        path: A folder, a zip, or a ``manifest.json``.
        limits: How much to take in.

    Raises:
        SerializationError: There is no manifest, or something is wrong with it: every problem.
        IntegrityError: Its bytes are not those that were written.
    """
    path = Path(path)
    limits = limits or DEFAULT_LIMITS
    try:
        if path.suffix == ".json" and path.is_file():
            with path.open("rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                return _sound_document(_bytes((cast("BinaryIO", file), 0, size), limits), limits)
        with _opened_bundle(path) as held:
            return _sound_document(_manifest_bytes(held, limits), limits)
    except StructError as error:
        raise error.in_file(str(path)) from error.__cause__


# ---------------------------------------------------------------------------------------------------------------------


class _BundleArrays(StoredArrays):
    """The arrays of all files of a bundle, one mapping; errors name the file."""

    __slots__ = ("_homes",)

    def __init__(self, homes: Mapping[str, tuple[StoredArrays, str]]) -> None:
        self._homes = homes

    def __len__(self) -> int:
        return len(self._homes)

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __contains__(self, name: object) -> bool:
        return name in self._homes

    def __getitem__(self, name: str) -> Array:
        arrays, file = self._homes[name]
        try:
            return arrays[name]
        except SerializationError as error:
            raise error.in_file(file) from error.__cause__

    def verify(self, name: str) -> Diagnostic | None:
        arrays, file = self._homes[name]
        problem = arrays.verify(name)
        return None if problem is None else problem.in_file(file)


class _Names(StoredArrays):
    """Stands for arrays that are looked at elsewhere, where only the agreement of nodes and records matters."""

    __slots__ = ("_names",)

    def __init__(self, names: Iterable[str]) -> None:
        self._names = dict.fromkeys(names)

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> Array:
        raise IntegrityError(about("NQX409", name, "expected a stored array, got its name alone"))

    def verify(self, name: str) -> Diagnostic | None:  # noqa: ARG002
        return None


def _by_file(held: _Opened, records: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The records by array file; the default file also where no record is in it, so that nothing in it goes unseen."""
    files: dict[str, dict[str, Any]] = {}
    if DEFAULT_FILE in held.names():
        files[DEFAULT_FILE] = {}
    for name, record in records.items():
        files.setdefault(record.get("file", DEFAULT_FILE), {})[name] = record
    return files


def _array_source(held: _Opened, file: str, records: Mapping[str, Any]) -> Source:
    def most() -> int:
        """Twice the arrays, with the largest headers and names there can be."""
        from math import prod

        from neuralqx_struct.payload import dtype_named

        sizes = (prod(r["shape"]) * dtype_named(r["dtype"]).itemsize + 1024 + 8 * len(n) for n, r in records.items())
        return 2 * sum(sizes) + (1 << 16)

    source = held.region(file, most)
    if source is None:
        raise IntegrityError(f"expected the array file {file}, got none", code="NQX409")
    return source


def read(path: str | Path, *, verify: bool = True, mmap: bool = True, limits: Limits | None = None) -> Payload:
    """Read a bundle: the manifest now, each array when it is asked for.

    Args:
        path: The folder or zip.
        verify: Check every byte of an array when it is read.
        mmap: Map the arrays; otherwise they are copied into private memory.
        limits: How much to take in.

    Raises:
        SerializationError: There is no bundle, or what it says is wrong: every problem.
        IntegrityError: Its parts do not agree with each other.
        UntrustedError: It asks for something that reading must not do.
    """
    path = Path(path)
    for attempt in range(_ATTEMPTS):
        with collector_paused(), _naming(path), _opened_bundle(path) as held:
            try:
                return _read(held, path, verify=verify, mmap=mmap, limits=limits or DEFAULT_LIMITS)
            except (StructError, OSError):
                if attempt == _ATTEMPTS - 1 or not held.moved():  # else: replaced, its old files are being removed
                    raise
    raise AssertionError("the last attempt returns or raises")  # pragma: no cover


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except StructError as error:
        raise error.in_file(str(path)) from error.__cause__


def _read(held: _Opened, path: Path, *, verify: bool, mmap: bool, limits: Limits) -> Payload:
    document = _sound_document(_manifest_bytes(held, limits), limits)
    records = document["arrays"]
    homes: dict[str, tuple[StoredArrays, str]] = {}
    found: list[Diagnostic] = []
    for file, own in _by_file(held, records).items():
        where = str(path / file)
        try:
            store = store_of_file(file)
            source = _array_source(held, file, own)
            elsewhere = records.keys() - own.keys()
            arrays = store.read(source, own, verify=verify, mmap=mmap, superseded=elsewhere)
            homes |= dict.fromkeys(own, (arrays, where))
        except StructError as error:
            found += (d if d.file is not None and d.file != file else _in(d, where) for d in error.diagnostics)
    raise_findings(found)
    payload = Payload(document, _BundleArrays(homes))
    raise_findings(check_arrays(payload))
    return payload


def _in(finding: Diagnostic, file: str) -> Diagnostic:
    from dataclasses import replace

    return replace(finding, file=file)


def verify(path: str | Path, *, limits: Limits | None = None) -> list[Diagnostic]:
    """Everything that is damaged in a bundle, at once; every byte is read.

    Args:
        path: The folder or zip.
        limits: How much to take in.

    Returns:
        The findings; arrays that a migration left unused come as ``info``, files that nothing names as ``warning``.
    """
    path = Path(path)
    limits = limits or DEFAULT_LIMITS
    found: list[Diagnostic] = []
    try:
        with _opened_bundle(path) as held:
            document, found = _examined(_manifest_bytes(held, limits), limits)
            if any(d.code != "NQX407" for d in found):
                return [d.in_file(str(path)) for d in found]
            records = document["arrays"]
            files = _by_file(held, records)
            for file, own in files.items():
                try:
                    store = store_of_file(file)
                    source = _array_source(held, file, own)
                    damage = store.verify(source, own, superseded=records.keys() - own.keys())
                except StructError as error:
                    damage = list(error.diagnostics)
                found += (_in(d, str(path / file)) for d in damage)
            found += check_arrays(Payload(document, _Names(records)))
            found += (
                Diagnostic("NQX410", "warning", f"expected no file that the manifest does not name, got {name}")
                for name in held.names()
                if name not in files and name != MANIFEST
            )
    except StructError as error:
        found += error.diagnostics
    return [d.in_file(str(path)) for d in found]


# ---------------------------------------------------------------------------------------------------------------------
# Writing.


def write(
    path: str | Path,
    payload: Payload,
    *,
    overwrite: bool = False,
    store: str = "npz",
    compress: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Write a bundle, all of it or nothing: a folder, or with the suffix ``.zip`` one file.

    Args:
        path: Where; missing parents are made.
        payload: What.
        overwrite: Replace a bundle that is there; nothing but a bundle is ever replaced.
        store: The store of the arrays.
        compress: Deflate the arrays; they can then not be mapped.
        progress: Called with (bytes done, bytes in all).

    Returns:
        The path.

    Raises:
        BundleExistsError: The target exists.
        SerializationError: The payload is not sound, or could not be read back with the default limits.
    """
    path = Path(path)
    raise_findings(check(payload), str(path))
    module = store_named(store)
    names = [*payload.document["arrays"]]
    arrays = {name: payload.arrays[name] for name in names} if not _lazy(payload) else payload.arrays

    def fill(target: Path | BinaryIO) -> dict[str, Any]:
        return module.write(target, arrays, compress=compress, progress=progress)

    def documented(records: Mapping[str, Any]) -> dict[str, Any]:
        named = {
            name: _recorded(payload.document["arrays"].get(name, {}), records[name], module.FILE) for name in names
        }
        return _signed(payload.document, named)

    with collector_paused(), _staged(path, overwrite=overwrite) as (target, stage):
        _fill(stage, target, module.FILE, fill, documented)
    return path


def _lazy(payload: Payload) -> bool:
    return isinstance(payload.arrays, StoredArrays) and payload.arrays.keys() == payload.document["arrays"].keys()


def _recorded(old: Mapping[str, Any], new: Mapping[str, Any], file: str) -> dict[str, Any]:
    """A fresh record that keeps what the old one said beyond the place and checksum of the bytes."""
    kept = {name: value for name, value in old.items() if name not in ("crc32", "offset", "nbytes", "file")}
    return {**kept, **new, **({} if file == DEFAULT_FILE else {"file": file})}


def _signed(document: Mapping[str, Any], records: Mapping[str, Any]) -> dict[str, Any]:
    return {"$schema": SCHEMA_URL, "writer": dict(WRITER), **document, "arrays": dict(records)}


def _formatted(document: dict[str, Any]) -> bytes:
    data = format_manifest(document)
    if len(data) > DEFAULT_LIMITS.manifest_bytes:
        message = f"expected a manifest of at most {DEFAULT_LIMITS.manifest_bytes} bytes, got {len(data)}"
        raise SerializationError(message, code="NQX005", hint="save large values as arrays")
    return data


def _fill(
    stage: Path,
    target: Path,
    file: str,
    fill: Callable[[Path | BinaryIO], dict[str, Any]],
    documented: Callable[[Mapping[str, Any]], dict[str, Any]],
) -> None:
    """Put one array file and the manifest into a new bundle."""
    if not _is_zip(target):
        _write_file(stage / MANIFEST, _formatted(documented(fill(stage / file))))
        return
    with stage.open("r+b", buffering=0) as raw:
        archive = ArchiveWriter(cast("BinaryIO", raw))
        records = archive.add_written(file, fill)
        archive.add(MANIFEST, _formatted(documented(records)))
        archive.close()
        os.fsync(raw.fileno())


def _is_zip(path: Path) -> bool:
    return path.suffix.lower() == ".zip"


def _write_file(path: Path, data: bytes) -> None:
    with path.open("xb", buffering=0) as file:
        write_all(cast("BinaryIO", file), memoryview(data))
        os.fsync(file.fileno())


def write_linked(
    source: str | Path,
    target: str | Path,
    document: Mapping[str, Any],
    *,
    changed: Mapping[str, Array] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a bundle whose arrays are mostly those of another one, without writing their bytes again.

    In folders the array files get a second name (a hard link; a copy where the system has none), so the cost does not
    depend on their size. Arrays of the source that the document has no record for stay in the file and are recorded as
    unused, unless nothing in their file is used any more.

    Args:
        source: The bundle that has the bytes.
        target: The new bundle.
        document: Its manifest. Records of arrays taken over need only ``dtype`` and ``shape``.
        changed: New arrays, and those that replace one of the same name; they go into a file of their own.
        overwrite: As for :func:`write`.

    Raises:
        SerializationError: The document names arrays that neither the source nor ``changed`` has, or is not sound.
    """
    source, target, changed = Path(source), Path(target), changed or {}
    with _naming(source), _opened_bundle(source) as held:
        original = _sound_document(_manifest_bytes(held, DEFAULT_LIMITS), DEFAULT_LIMITS)["arrays"]
        if not all("crc32" in record for record in original.values()):
            return _write_rest(source, target, document, changed, overwrite=overwrite)
        records, files = _carried(document, original, changed)
        fresh = _free_name({record.get("file", DEFAULT_FILE) for record in original.values()})
        probe = {**records, **{name: document["arrays"][name] for name in changed if name in document["arrays"]}}
        judged = {**document, "arrays": probe}
        raise_findings(check_manifest(judged) or check_arrays(Payload(judged, _Names(probe))), str(target))
        with _staged(target, overwrite=overwrite) as (final, stage), _Parts(stage, final) as parts:
            for file in files:
                parts.take(held, file)
            if changed:
                written = parts.put(fresh, lambda place: store_of_file(fresh).write(place, changed))
                given = document["arrays"]
                records |= {name: _recorded(given.get(name, {}), new, fresh) for name, new in written.items()}
            signed = _signed(document, records)
            raise_findings(check_arrays(Payload(signed, _Names(records))), str(target))
            parts.finish(_formatted(signed))
    return target


def _write_rest(
    source: Path, target: Path, document: Mapping[str, Any], changed: Mapping[str, Array], *, overwrite: bool
) -> Path:
    """Write everything: neuraLQX's bundles have no checksums to carry over."""
    arrays = read(source).arrays
    wanted = {
        name: changed[name] if name in changed else arrays[name]
        for name in document["arrays"]
        if name in arrays or name in changed
    }
    return write(target, Payload(dict(document), wanted), overwrite=overwrite)


def _carried(
    document: Mapping[str, Any], original: Mapping[str, Any], changed: Mapping[str, Array]
) -> tuple[dict[str, Any], list[str]]:
    """Records of the arrays taken over, those left unused included, and the files that hold the used ones."""
    records: dict[str, Any] = {}
    found = []
    for name, record in document["arrays"].items():
        if name in changed:
            continue
        if name not in original:
            found.append(about("NQX409", name, "expected an array of the source or a changed one, got neither"))
            continue
        place = {key: original[name][key] for key in ("crc32", "offset", "nbytes", "file") if key in original[name]}
        kept = {key: value for key, value in record.items() if key not in ("crc32", "offset", "nbytes", "file")}
        records[name] = {**kept, **place}
        if (kept.get("dtype"), kept.get("shape")) != (original[name]["dtype"], original[name]["shape"]):
            message = (
                f"expected {original[name]['dtype']}{original[name]['shape']} as in the source, got another record"
            )
            found.append(about("NQX412", name, message, "an array whose bytes change belongs into changed="))
    raise_findings(found)
    files = list(dict.fromkeys(r.get("file", DEFAULT_FILE) for r in records.values() if "unused" not in r))
    rest = {n: {**r, "unused": True} for n, r in original.items() if n not in records and n not in changed}
    held = {n: r for n, r in {**records, **rest}.items() if r.get("file", DEFAULT_FILE) in files}
    return held, files


def _free_name(taken: set[str]) -> str:
    if DEFAULT_FILE not in taken:
        return DEFAULT_FILE
    number = 1
    while f"arrays-{number}.npz" in taken:
        number += 1
    return f"arrays-{number}.npz"


class _Parts:
    """The files of a new bundle in either form, put in one after the other; the manifest comes last."""

    def __init__(self, stage: Path, target: Path) -> None:
        self._stage = stage
        self._raw = cast("BinaryIO", stage.open("r+b", buffering=0)) if _is_zip(target) else None
        self._archive = ArchiveWriter(self._raw) if self._raw is not None else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._raw is not None:
            self._raw.close()

    def take(self, held: _Opened, file: str) -> None:
        """Take a file of another bundle over, byte by byte the same."""
        region = held.region(file, lambda: DEFAULT_LIMITS.manifest_bytes)
        if region is None:
            raise IntegrityError(f"expected the array file {file}, got none", code="NQX409")
        if self._archive is not None or not held.link(file, self._stage / file):
            self.put(file, lambda place: _copy(region, place))

    def put(self, file: str, fill: Callable[[Path | BinaryIO], Any]) -> Any:
        """Write a file."""
        return fill(self._stage / file) if self._archive is None else self._archive.add_written(file, fill)

    def finish(self, manifest: bytes) -> None:
        """Write the manifest and flush everything to the disk."""
        if self._archive is None or self._raw is None:
            _write_file(self._stage / MANIFEST, manifest)
            return
        self._archive.add(MANIFEST, manifest)
        self._archive.close()
        os.fsync(self._raw.fileno())


def _copy(region: Source, place: Path | BinaryIO) -> None:
    if isinstance(place, Path):
        with place.open("xb", buffering=0) as out:
            _copy(region, cast("BinaryIO", out))
            os.fsync(out.fileno())
        return
    if isinstance(region, Path | memoryview):
        write_all(place, memoryview(region) if isinstance(region, memoryview) else memoryview(region.read_bytes()))
        return
    file, base, length = region
    file.seek(base)
    while length and (piece := file.read(min(length, _CHUNK))):
        write_all(place, memoryview(piece))
        length -= len(piece)


def seal(path: str | Path) -> None:
    """Recompute the digest of a manifest that was edited by hand. Nothing else is changed, and nothing else is checked.

    Args:
        path: A folder, a zip, or a ``manifest.json``.

    Raises:
        SerializationError: There is no manifest, or it is not even JSON.
    """
    path = Path(path)
    with _naming(path):
        if path.suffix == ".json" and path.is_file():
            path = path.parent
        with _opened_bundle(path) as held:
            data = reseal(_manifest_bytes(held, DEFAULT_LIMITS))
            if isinstance(held, _Zip):
                with _staged(path, overwrite=True) as (final, stage), _Parts(stage, final) as parts:
                    for name in held.names():
                        if name != MANIFEST:
                            parts.take(held, name)
                    parts.finish(data)
                return
        temporary = path / f".{MANIFEST}.tmp-{os.urandom(6).hex()}"
        try:
            _write_file(temporary, data)
            temporary.replace(path / MANIFEST)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path)


# ---------------------------------------------------------------------------------------------------------------------
# Atomic replacement. A new bundle is made beside the target under a name of its own, locked as long as its writer lives,
# then takes the target's name. What a writer that was killed left behind is unlocked, and the next one removes it.


@contextmanager
def _staged(target: Path, *, overwrite: bool) -> Iterator[tuple[Path, Path]]:
    """The target with links resolved, and a new empty folder or file to be filled; on success it becomes the target."""
    if target.is_symlink():
        target = target.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    _clean_up(target)
    _refuse(target, overwrite=overwrite)
    stage, lock = _new_stage(target)
    try:
        yield target, stage
        if not _is_zip(target):
            _sync_folder(stage)
        _refuse(target, overwrite=overwrite)
        _publish(stage, target, overwrite=overwrite)
        _sync_folder(target.parent)
    finally:
        _remove(stage)  # after an exchange, this is what stood at the target before
        os.close(lock)


def _refuse(target: Path, *, overwrite: bool) -> None:
    """Raise if the target may not be written."""
    if not os.path.lexists(target):
        return
    if not overwrite:
        hint = "pass overwrite=True to replace it"
        error = BundleExistsError("expected a path where nothing is, got an existing one", file=str(target), hint=hint)
        error.errno, error.filename = errno.EEXIST, str(target)
        raise error
    if (why := _not_ours(target)) is not None:
        message = f"expected a bundle to overwrite, got {why}"
        raise BundleExistsError(message, file=str(target), hint="choose another path, or remove it yourself")


def _not_ours(path: Path) -> str | None:
    """Why removing what stands at a path would remove more than a bundle; damaged bundles may go."""
    if path.is_dir():
        names = sorted(entry.name for entry in os.scandir(path))
        if MANIFEST not in names:
            return f"a folder without {MANIFEST}"
        if other := [name for name in names if not _OURS.fullmatch(name)]:
            return f"a folder that also holds {', '.join(other[:5])}"
        if len(names) == 1:
            try:
                document = parse_manifest((path / MANIFEST).read_bytes())
            except (StructError, OSError):
                document = {}
            if not document.keys() >= _FOREIGN_MEMBERS:
                return f"a folder with some other program's {MANIFEST}"
        return None
    if not stat.S_ISREG(path.lstat().st_mode):
        return "something that is no plain file"
    with path.open("rb") as file:
        head = file.read(512)
    named = head[30 : 30 + int.from_bytes(head[26:28], "little")].decode("latin1")
    return None if head[:4] == b"PK\3\4" and _OURS.fullmatch(named) else "a file that is no bundle"


def _siblings(target: Path, kind: str) -> list[Path]:
    prefix = f".{target.name[:100]}.{kind}-"
    length = len(prefix) + 12
    try:
        names = [e.name for e in os.scandir(target.parent) if e.name.startswith(prefix) and len(e.name) == length]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [target.parent / name for name in sorted(names)]


def _sibling(target: Path, kind: str) -> Path:
    return target.parent / f".{target.name[:100]}.{kind}-{os.urandom(6).hex()}"


def _lock(path: Path) -> int | None:
    """A descriptor that holds the lock on ``path``; None if somebody else has it or the path is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    if sys.platform == "win32":  # no locks on folders there: nothing is ever cleaned up
        return descriptor
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found, own = path.stat(), os.fstat(descriptor)
        if (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _new_stage(target: Path) -> tuple[Path, int]:
    for _ in range(100):  # another writer's cleaning may take a stage away before it is locked
        stage = _sibling(target, "tmp")
        if _is_zip(target):
            stage.open("xb").close()
        else:
            stage.mkdir()
        if (lock := _lock(stage)) is not None:
            return stage, lock
        _remove(stage)
    raise SerializationError("expected to lock a temporary file, got refused", code="NQX406", file=str(target))


def _clean_up(target: Path) -> None:
    """Remove what killed writers left, and finish or undo what they were at."""
    if sys.platform == "win32":
        return
    busy = False
    for stage in _siblings(target, "tmp"):
        lock = _lock(stage)
        if lock is None:
            busy = True
            continue
        _remove(stage)
        os.close(lock)
    for kept in () if busy else _siblings(target, "old"):
        if os.path.lexists(target):
            _remove(kept)
        else:
            kept.rename(target)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        import shutil

        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _sync_folder(path: Path) -> None:
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _publish(stage: Path, target: Path, *, overwrite: bool) -> None:
    """Give the stage the name of the target; what stood there is left at the stage's name, or removed."""
    if not os.path.lexists(target):
        if not _rename(stage, target, "new"):
            stage.rename(target)
        return
    if not overwrite:
        _refuse(target, overwrite=False)
    if _rename(stage, target, "exchange"):
        return
    kept = _sibling(target, "old")
    target.rename(kept)
    try:
        stage.rename(target)
    except BaseException:
        kept.rename(target)
        raise
    _remove(kept)


# System, its call, whether it takes folder descriptors, and the flags.
_CALLS: Final[Mapping[str, tuple[str, bool, Mapping[str, int]]]] = {
    "linux": ("renameat2", True, {"new": 1, "exchange": 2}),
    "darwin": ("renamex_np", False, {"new": 4, "exchange": 2}),
}


def _rename(source: Path, target: Path, how: str) -> bool:
    """Rename to a name that must be free, or exchange two names, in one step; False where the system cannot.

    Raises:
        OSError: It can, but this time it could not.
    """
    if sys.platform not in _CALLS:
        return False
    import ctypes

    name, at, flags = _CALLS[sys.platform]
    call = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if call is None:
        return False
    here = [-100] if at else []  # AT_FDCWD
    if call(*here, os.fsencode(source), *here, os.fsencode(target), flags[how]) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM):
        return False
    if number == errno.EEXIST:
        _refuse(target, overwrite=False)
    raise OSError(number, os.strerror(number), str(source), None, str(target))
