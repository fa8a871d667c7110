"""Bundles: a folder, or a zip of the same members, that holds ``manifest.json`` and the array files.

Owns reading that checks everything before it is used, writing all or nothing, :func:`verify`, :func:`seal` and the
manifest-only migration (:func:`write_linked`). The two forms are ``bundle_forms.py``'s, atomic replacement is
``replacement.py``'s, what a manifest may hold ``manifest.py``'s, the array files are the stores'. Reads manifests without
numpy.

Example:
    >>> import tempfile
    >>> path = write(f"{tempfile.mkdtemp()}/ckpt", Payload({"version": 1, "manifest": 5, "arrays": {}}, {}))
    >>> read(path).document["manifest"], verify(path)
    (5, [])
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from neuralqx_struct.arrays import HeldArrays, ListedArrays, Region, StoredArrays
from neuralqx_struct.bundle_forms import (
    FOREIGN_MEMBERS,
    MANIFEST,
    BundleMissingError,
    Opened,
    Text,
    Zip,
    manifest_bytes,
    new_bundle,
    opened_bundle,
    refused_reading,
    replace_manifest,
)
from neuralqx_struct.errors import Diagnostic, IntegrityError, SerializationError, StructError, has_errors
from neuralqx_struct.manifest import (
    DEFAULT_FILE,
    DEFAULT_LIMITS,
    SCHEMA_URL,
    WRITER,
    Limits,
    check_manifest,
    collector_paused,
)
from neuralqx_struct.manifest_text import check_digest, format_manifest, parse_manifest, reseal
from neuralqx_struct.payload import Payload, check, check_arrays, raise_findings
from neuralqx_struct.replacement import BundleExistsError, BundleWriteError, standing
from neuralqx_struct.stores import (
    STORES,
    Access,
    ArrayStore,
    Progress,
    Records,
    Source,
    Tick,
    about,
    store_named,
    store_of_file,
)

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

__all__ = [
    "BundleExistsError",
    "BundleMissingError",
    "BundleWriteError",
    "read",
    "read_manifest",
    "seal",
    "survey",
    "ticking",
    "unfinished",
    "verify",
    "write",
    "write_linked",
]

_ATTEMPTS = 16
# What a record says of the bytes of an array, not of the array.
_OF_BYTES = ("crc32", "chunk", "chunk_crc32", "offset", "nbytes", "file")
_T = TypeVar("_T")


def _settled(path: Path, look: Callable[[Opened], _T]) -> _T:
    """What ``look`` makes of a bundle; looked at again if a writer put another in its place meanwhile."""
    for left in reversed(range(_ATTEMPTS)):
        try:
            with opened_bundle(path) as held:
                try:
                    return look(held)
                except (StructError, OSError):
                    if not left or not _outlived(held, path):
                        raise
        except FileNotFoundError:  # between two renames nothing stands at the path
            if not left or standing(path) is None:
                raise
    raise AssertionError("the last attempt returns or raises")  # pragma: no cover


def _outlived(held: Opened, path: Path) -> bool:
    """True if a bundle was replaced, or kept from a replacement that is done by now: its files are being removed."""
    return held.moved() or (held.path != path and path.exists())


def _require_standing(held: Opened, path: Path, found: list[Diagnostic]) -> None:
    """Raise findings that may be about files that were just being removed: they call for another look."""
    if has_errors(found) and _outlived(held, path):
        raise IntegrityError(found)


def _examined(data: bytes, limits: Limits) -> tuple[dict[str, Any], list[Diagnostic]]:
    """The document, and everything wrong with it that can be told without the arrays."""
    try:
        document = parse_manifest(data, limits=limits)
    except SerializationError as error:
        if (problem := check_digest(data)) is not None and b'"digest"' in data[-200:]:
            raise IntegrityError([*error.diagnostics, problem]) from error.__cause__
        raise
    found = check_manifest(document, limits=limits)
    if any(d.code == "NQX402" for d in found) or document.keys() == FOREIGN_MEMBERS:
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
    path, limits = Path(path), limits or DEFAULT_LIMITS
    with _naming(path):
        return _settled(path, lambda held: _sound_document(manifest_bytes(held, limits), limits))


def survey(path: str | Path, *, limits: Limits | None = None) -> tuple[dict[str, Any] | None, list[Diagnostic]]:
    """The manifest and everything wrong with it and with the sizes of the array files, in one look; no array is read.

    Args:
        path: A folder, a zip, or a ``manifest.json``, beside which no file is looked for.
        limits: How much to take in.

    Returns:
        The document, also where only its digest is wrong, as after an edit by hand; None if it is no manifest. And the
        findings.

    Raises:
        BundleMissingError: There is nothing at the path.
        SerializationError: There is no manifest.
    """
    path, limits = Path(path), limits or DEFAULT_LIMITS

    def look(held: Opened) -> tuple[dict[str, Any] | None, list[Diagnostic]]:
        document, found = _examined(manifest_bytes(held, limits), limits)
        if any(d.code != "NQX407" for d in found):
            raise_findings(found)
        if not isinstance(held, Text):
            found += _size_findings(held, path, document)
        _require_standing(held, path, found)
        return document, found

    try:
        with _naming(path):
            return _settled(path, look)
    except BundleMissingError:
        raise
    except StructError as error:
        return None, list(error.diagnostics)


def _named(error: StructError, path: Path) -> StructError:
    """The error with the file that its problems are in: those that have a line are about the text of the manifest."""
    if all(d.file is not None for d in error.diagnostics):
        return error
    text = path / MANIFEST if os.path.isdir(path) else path  # noqa: PTH112 - Path.is_dir raises where it may not look
    return type(error)(d.in_file(str(path if d.line is None else text)) for d in error.diagnostics)


def _size_findings(held: Opened, path: Path, document: Mapping[str, Any]) -> list[Diagnostic]:
    """Whether the array files are there and long enough for what the manifest says; none of them is read."""
    needed: dict[str, int] = {}
    for record in document["arrays"].values():
        file = record.get("file", DEFAULT_FILE)
        nbytes = record.get("nbytes", 1)
        least = record["offset"] + nbytes if "offset" in record else min(nbytes, 1)  # compressed ones have no place
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
            found.append(Diagnostic("NQX409", "error", f"expected the array file {file}, got none", file=where))
        elif size < least:
            message = f"expected a file of at least {least} bytes, got {size}"
            found.append(Diagnostic("NQX408", "error", message, file=where))
    return found


# ---------------------------------------------------------------------------------------------------------------------


class _BundleArrays(StoredArrays):
    """The arrays of all files of a bundle, one mapping; errors name the file."""

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
        except OSError as error:  # where arrays are copied, a bad disk is met here
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


def _by_file(held: Opened, records: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The records by array file; the default file also where no record is in it, so that nothing in it goes unseen.

    Where there are no arrays at all, the file that a store wrote nevertheless is named by no record either.
    """
    unnamed = {DEFAULT_FILE} if records else {f"arrays.{store}" for store in STORES}
    files: dict[str, dict[str, Any]] = {name: {} for name in held.names() if name in unnamed}
    for name, record in records.items():
        files.setdefault(record.get("file", DEFAULT_FILE), {})[name] = record
    return files


def _array_source(held: Opened, file: str, records: Mapping[str, Any], store: ArrayStore) -> Source:
    def most() -> int:
        """Twice the arrays, with the largest headers and names there can be."""
        from math import prod

        from neuralqx_struct.payload import dtype_named

        sizes: Iterator[int] = (
            prod(r["shape"]) * dtype_named(r["dtype"]).itemsize + 1024 + 8 * len(n) for n, r in records.items()
        )
        return 2 * sum(sizes) + (1 << 16)

    source = held.folder(file) if store.FOLDER else held.region(file, most)
    if source is None:
        raise IntegrityError(f"expected the array file {file}, got none", code="NQX409")
    return source


def read(
    path: str | Path,
    *,
    verify: bool = True,
    mmap: bool = True,
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> Payload:
    """Read a bundle: the manifest now, each array when it is asked for.

    Args:
        path: The folder or zip, or the ``manifest.json`` in a folder, which stands for the folder.
        verify: Check every byte of an array when it is read.
        mmap: Map the arrays; otherwise they are copied into private memory.
        limits: How much to take in.
        progress: Called with bytes verified and bytes in all, now and when arrays are asked for.

    Raises:
        SerializationError: There is no bundle, or what it says is wrong: every problem.
        IntegrityError: Its parts do not agree with each other.
        UntrustedError: It asks for something that reading must not do.
    """
    path, limits = _around(Path(path)), limits or DEFAULT_LIMITS
    with collector_paused(), _naming(path):
        return _settled(
            path, lambda held: _read(held, path, verify=verify, mmap=mmap, limits=limits, progress=progress)
        )


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except StructError as error:
        raise _named(error, path) from error.__cause__
    except OSError as error:
        raise refused_reading(error, path) from error


def _read(held: Opened, path: Path, *, verify: bool, mmap: bool, limits: Limits, progress: Progress | None) -> Payload:
    document = _sound_document(manifest_bytes(held, limits), limits)
    records = document["arrays"]
    homes: dict[str, tuple[StoredArrays, str]] = {}
    found: list[Diagnostic] = []
    tick = ticking(progress, records)
    for file, own in _by_file(held, records).items():
        where = str(path / file)
        try:
            store = store_of_file(file)
            source = _array_source(held, file, own, store)
            access = Access(verify=verify, mmap=mmap, superseded=records.keys() - own.keys(), tick=tick)
            arrays = store.read(source, own, access)
            homes |= dict.fromkeys(own, (arrays, where))
        except StructError as error:
            found += (d if d.file is not None and d.file != file else _in(d, where) for d in error.diagnostics)
    raise_findings(found)
    payload = Payload(document, _BundleArrays(homes))
    raise_findings(check_arrays(payload, limits))
    return payload


def _bytes_in_all(records: Mapping[str, Any]) -> int:
    from math import prod

    from neuralqx_struct.payload import dtype_named

    return sum(prod(record["shape"]) * dtype_named(record["dtype"]).itemsize for record in records.values())


def ticking(progress: Progress | None, records: Mapping[str, Any]) -> Tick | None:
    """Adds up what the stores tell piece by piece; never to more than all, though arrays may be read twice."""
    if progress is None:
        return None
    total, done = _bytes_in_all(records), 0

    def tick(size: int) -> None:
        nonlocal done
        done = min(done + size, total)
        progress(done, total)

    return tick


def _in(finding: Diagnostic, file: str) -> Diagnostic:
    from dataclasses import replace

    return replace(finding, file=file)


def verify(path: str | Path, *, limits: Limits | None = None, progress: Progress | None = None) -> list[Diagnostic]:
    """Everything that is damaged in a bundle, at once; every byte is read.

    Args:
        path: The folder or zip, or the ``manifest.json`` in a folder, which stands for the folder.
        limits: How much to take in.
        progress: Called with bytes verified and bytes in all.

    Returns:
        The findings; arrays that a migration left unused come as ``info``, files that nothing names as ``warning``.
    """
    path, limits = _around(Path(path)), limits or DEFAULT_LIMITS

    def look(held: Opened) -> list[Diagnostic]:
        found = _damage(held, path, limits, progress)
        _require_standing(held, path, found)
        return found

    try:
        with _naming(path):
            found = _settled(path, look)
    except StructError as error:
        found = list(error.diagnostics)
    return [d.in_file(str(path)) for d in found]


def _damage(held: Opened, path: Path, limits: Limits, progress: Progress | None) -> list[Diagnostic]:
    document, found = _examined(manifest_bytes(held, limits), limits)
    if any(d.code != "NQX407" for d in found):
        return found
    records = document["arrays"]
    files = _by_file(held, records)
    tick = ticking(progress, records)
    for file, own in files.items():
        try:
            store = store_of_file(file)
            source = _array_source(held, file, own, store)
            damage = store.verify(source, own, Access(superseded=records.keys() - own.keys(), tick=tick))
        except StructError as error:
            damage = list(error.diagnostics)
        found += (_in(d, str(path / file)) for d in damage)
    found += check_arrays(Payload(document, ListedArrays(records)), limits)
    found += (
        Diagnostic("NQX410", "warning", f"expected no file that the manifest does not name, got {name}")
        for name in held.names()
        if name not in files and name != MANIFEST
    )
    return found


def _around(path: Path) -> Path:
    """The bundle that a path means: a ``manifest.json`` stands for the folder that it is in."""
    return path.parent if path.suffix == ".json" and os.path.isfile(path) else path  # noqa: PTH113 - see _named


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
        BundleWriteError: The system refused a write; what stood at the path is untouched.
        SerializationError: The payload is not sound, or could not be read back with the default limits.
    """
    path = Path(path)
    raise_findings(check(payload), str(path))
    module = store_named(store)
    names = [*payload.document["arrays"]]
    arrays = {name: payload.arrays[name] for name in names} if not _lazy(payload) else payload.arrays
    tick = ticking(progress, payload.document["arrays"])
    with collector_paused(), unfinished(path, payload.document, store=store, overwrite=overwrite) as (put, finish):
        finish(put(lambda place: module.write(place, arrays, compress=compress, tick=tick)))
    return path


@contextmanager
def unfinished(
    path: Path, document: Mapping[str, Any], *, store: str, overwrite: bool
) -> Iterator[tuple[Callable[[Callable[[Any], _T]], _T], Callable[[Records], None]]]:
    """A new bundle in two steps, its array file and its manifest; it takes its place at the end.

    Args:
        path: As for :func:`write`.
        document: The manifest, its records still without what a store knows.
        store: The store of the arrays.
        overwrite: As for :func:`write`.

    Yields:
        Calls a function with the place of the array file, and gives what that gives; and writes the manifest, once there
        are records of what was written.
    """
    file = store_named(store).FILE
    with new_bundle(path, overwrite=overwrite) as new:

        def finish(records: Records) -> None:
            given = document["arrays"]
            named = {name: _recorded(given[name], records[name], file) for name in given}
            new.finish(_formatted(_signed(document, named)))

        yield lambda fill: new.put(file, fill), finish


def _lazy(payload: Payload) -> bool:
    return isinstance(payload.arrays, StoredArrays) and payload.arrays.keys() == payload.document["arrays"].keys()


def _recorded(old: Mapping[str, Any], new: Mapping[str, Any], file: str) -> dict[str, Any]:
    """A fresh record that keeps what the old one said beyond the place and checksum of the bytes."""
    kept = {name: value for name, value in old.items() if name not in _OF_BYTES}
    return {**kept, **new, **({} if file == DEFAULT_FILE else {"file": file})}


def _signed(document: Mapping[str, Any], records: Mapping[str, Any]) -> dict[str, Any]:
    return {"$schema": SCHEMA_URL, "writer": dict(WRITER), **document, "arrays": dict(records)}


def _formatted(document: dict[str, Any]) -> bytes:
    data = format_manifest(document)
    if len(data) > DEFAULT_LIMITS.manifest_bytes:
        message = f"expected a manifest of at most {DEFAULT_LIMITS.manifest_bytes} bytes, got {len(data)}"
        raise SerializationError(message, code="NQX005", hint="save large values as arrays")
    return data


def write_linked(
    source: str | Path,
    target: str | Path,
    document: Mapping[str, Any],
    *,
    changed: Mapping[str, Array] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
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
        progress: Called with (bytes done, bytes in all) of the arrays in ``changed``.

    Raises:
        SerializationError: The document names arrays that neither the source nor ``changed`` has, or is not sound.
    """
    source, target, changed = Path(source), Path(target), changed or {}
    with _naming(source), opened_bundle(source) as held:
        original = _sound_document(manifest_bytes(held, DEFAULT_LIMITS), DEFAULT_LIMITS)["arrays"]
        if not all("crc32" in record for record in original.values()):
            return _write_rest(source, target, document, changed, overwrite=overwrite, progress=progress)
        records, files = _carried(document, original, changed)
        fresh = _free_name({record.get("file", DEFAULT_FILE) for record in original.values()})
        probe = {**records, **{name: document["arrays"][name] for name in changed if name in document["arrays"]}}
        judged = {**document, "arrays": probe}
        raise_findings(check_manifest(judged) or check_arrays(Payload(judged, ListedArrays(probe))), str(target))
        with new_bundle(target, overwrite=overwrite) as new:
            for file in files:
                new.take(held, file)
            if changed:
                tick = ticking(progress, {name: probe[name] for name in changed if name in probe})
                written = new.put(fresh, lambda place: store_of_file(fresh).write(place, changed, tick=tick))
                given = document["arrays"]
                records |= {name: _recorded(given.get(name, {}), own, fresh) for name, own in written.items()}
            signed = _signed(document, records)
            raise_findings(check_arrays(Payload(signed, ListedArrays(records))), str(target))
            new.finish(_formatted(signed))
    return target


def _write_rest(
    source: Path,
    target: Path,
    document: Mapping[str, Any],
    changed: Mapping[str, Array],
    *,
    overwrite: bool,
    progress: Progress | None,
) -> Path:
    """Write everything: neuraLQX's bundles have no checksums to carry over."""
    arrays = read(source).arrays
    names = {name: name for name in document["arrays"] if name in arrays or name in changed}
    wanted = HeldArrays(names, lambda name: changed[name] if name in changed else arrays[name])  # one at a time
    return write(target, Payload(dict(document), wanted), overwrite=overwrite, progress=progress)


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
        place = {key: original[name][key] for key in _OF_BYTES if key in original[name]}
        kept = {key: value for key, value in record.items() if key not in _OF_BYTES}
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


def seal(path: str | Path) -> None:
    """Recompute the digest of a manifest that was edited by hand. Nothing else is changed, and nothing else is checked.

    Args:
        path: A folder, a zip, or a ``manifest.json``.

    Raises:
        SerializationError: There is no manifest, or it is not even JSON.
    """
    path = Path(path)
    with _naming(path):
        path = _around(path)
        with opened_bundle(path) as held:
            data = reseal(manifest_bytes(held, DEFAULT_LIMITS))
            if isinstance(held, Zip):
                with new_bundle(path, overwrite=True) as new:
                    for name in held.names():
                        if name != MANIFEST:
                            new.take(held, name)
                    new.finish(data)
                return
        replace_manifest(path, data)
