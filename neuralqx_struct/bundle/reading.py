"""Reading bundles: the manifest with its arrays, everything checked before it is used.

Owns :func:`read` and :func:`verify`. The manifest by itself is ``manifests.py``'s, folders and zips are ``forms.py``'s, the
array files are the stores'.

Example:
    >>> import tempfile
    >>> from neuralqx_struct.bundle import write
    >>> path = write(f"{tempfile.mkdtemp()}/ckpt", Payload({"version": 1, "manifest": 5, "arrays": {}}, {}))
    >>> read(path).document["manifest"], verify(path)
    (5, [])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuralqx_struct.arrays import ListedArrays, Region, StoredArrays
from neuralqx_struct.bundle.forms import MANIFEST, Opened, manifest_bytes, refused_reading
from neuralqx_struct.bundle.manifests import around, examined, naming, require_standing, settled, sound_document
from neuralqx_struct.errors import Diagnostic, IntegrityError, SerializationError, StructError
from neuralqx_struct.manifest import DEFAULT_FILE, DEFAULT_LIMITS, Limits, collector_paused
from neuralqx_struct.payload import Payload, check_arrays, raise_findings
from neuralqx_struct.stores import (
    STORES,
    Access,
    ArrayStore,
    Progress,
    Source,
    Tick,
    store_of_file,
)

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

__all__ = ["read", "ticking", "verify"]


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
    path, limits = around(Path(path)), limits or DEFAULT_LIMITS
    with collector_paused(), naming(path):
        return settled(path, lambda held: _read(held, path, verify=verify, mmap=mmap, limits=limits, progress=progress))


def _read(held: Opened, path: Path, *, verify: bool, mmap: bool, limits: Limits, progress: Progress | None) -> Payload:
    document = sound_document(manifest_bytes(held, limits), limits)
    records = document["arrays"]
    homes: dict[str, tuple[StoredArrays, str]] = {}
    found: list[Diagnostic] = []
    tick = ticking(progress, records)
    for file, own in _by_file(held, records).items():
        where = str(path / file)
        try:
            store = store_of_file(file)
            source = _array_source(held, file, own, store)
            access = Access(verify=verify, mmap=mmap, superseded=records.keys(), tick=tick)
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
    path, limits = around(Path(path)), limits or DEFAULT_LIMITS

    def look(held: Opened) -> list[Diagnostic]:
        found = _damage(held, path, limits, progress)
        require_standing(held, path, found)
        return found

    try:
        with naming(path):
            found = settled(path, look)
    except StructError as error:
        found = list(error.diagnostics)
    return [d.in_file(str(path)) for d in found]


def _damage(held: Opened, path: Path, limits: Limits, progress: Progress | None) -> list[Diagnostic]:
    document, found = examined(manifest_bytes(held, limits), limits)
    if any(d.code != "NQX407" for d in found):
        return found
    records = document["arrays"]
    files = _by_file(held, records)
    tick = ticking(progress, records)
    for file, own in files.items():
        try:
            store = store_of_file(file)
            source = _array_source(held, file, own, store)
            damage = store.verify(source, own, Access(superseded=records.keys(), tick=tick))
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
