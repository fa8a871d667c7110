"""Writes bundles, each completely or not at all: new ones, and new ones of the bytes of old ones.

:func:`write` writes all arrays, :func:`write_linked` takes over the files of another bundle, as a migration
of the manifest alone does, :func:`seal` repairs the digest after an edit by hand. ``atomic.py`` replaces
the target.

Example:
    >>> import tempfile
    >>> from neuralqx_struct.bundle import opened, read_manifest
    >>> path = write(f"{tempfile.mkdtemp()}/ckpt", Payload({"version": 1, "manifest": 5, "arrays": {}}, {}))
    >>> with opened(path) as source:
    ...     out = write_linked(source, f"{path}2", {"version": 1, "manifest": 6, "arrays": {}})
    >>> read_manifest(out)["manifest"]
    6
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self, TypeVar, cast

from neuralqx_struct.bundle.atomic import BundleExistsError, refusals_named, staged, sync_folder
from neuralqx_struct.bundle.reading import OpenBundle, around, naming, opened
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
from neuralqx_struct.manifest.check import check_manifest
from neuralqx_struct.manifest.payload import (
    HeldArrays,
    Payload,
    StoredArrays,
    check,
    check_arrays,
    raise_findings,
)
from neuralqx_struct.manifest.text import format_manifest, parse_manifest, reseal
from neuralqx_struct.stores.archive_writer import ArchiveWriter
from neuralqx_struct.stores.store import (
    Progress,
    Records,
    Store,
    Target,
    file_of,
    store_named,
    store_of,
    ticking,
    write_all,
)

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

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
        named = {name: _recorded(given[name], records[name], file) for name in given}
        self.finish(formatted(_signed(document, named), limits))

    def finish(self, manifest: bytes) -> None:
        """Writes the manifest and flushes everything to the disk."""
        if self._archive is None:
            _write_file(self._stage / MANIFEST, manifest)
            return
        self._archive.add(MANIFEST, manifest)
        self._archive.close()
        os.fsync(self._raw.fileno())


def _write_file(path: Path, data: bytes) -> None:
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
    path, limits = Path(path), limits or DEFAULT_LIMITS
    raise_findings(check(payload, limits), str(path))
    chosen = store_named(store)
    chosen.require_form(folder=is_folder_path(path))
    records, arrays = payload.document["arrays"], payload.arrays
    if not isinstance(arrays, StoredArrays) or arrays.keys() != records.keys():
        arrays = {name: arrays[name] for name in records}
    tick = ticking(progress, records)

    def fill(place: Target) -> Records:
        return chosen.write(place, arrays, compress=compress, tick=tick)

    with collector_paused(), new_bundle(path, overwrite=overwrite) as new:
        new.complete(payload.document, new.put(chosen.file, fill), chosen.file, limits)
    return path


def _recorded(old: Mapping[str, Any], new: Mapping[str, Any], file: str) -> dict[str, Any]:
    """A new record that keeps the members of the old one that are not about its stored bytes."""
    kept = {name: value for name, value in old.items() if name not in _OF_BYTES}
    record = {**kept, **new}
    if file != DEFAULT_FILE:
        record["file"] = file
    return record


def _signed(document: Mapping[str, Any], records: Mapping[str, Any]) -> dict[str, Any]:
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


# New bundles of the bytes of old ones


def write_linked(
    source: OpenBundle,
    target: str | Path,
    document: Mapping[str, Any],
    *,
    changed: Mapping[str, Array] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    limits: Limits | None = None,
) -> Path:
    """Writes a bundle of the array files of another one, without writing their bytes again.

    In folders the array files get a second name (a hard link; a copy if the system has none), so the cost
    does not depend on their size. Arrays of the source without a record in the document stay in their files
    and are recorded as unused, unless no array of the source is used any more.

    Args:
        source: The bundle that has the bytes.
        target: The new bundle.
        document: Its manifest. Arrays that are taken over keep their records.
        changed: New arrays, and those that replace one of the same name; they go into a file of their
            own, in the store of the source.
        overwrite: As for :func:`write`.
        progress: Called with (bytes done, bytes in all) of the arrays in ``changed``.
        limits: As for :func:`write`.

    Raises:
        SerializationError: The document names arrays that neither the source nor ``changed`` has, or is not sound.
    """
    target, changed, limits = Path(target), changed or {}, limits or DEFAULT_LIMITS
    given = document["arrays"]
    original = source.sound_document()["arrays"]
    if not all("crc32" in record for record in original.values()):  # of neuraLQX
        arrays = source.payload().arrays
        names = {name: name for name in given if name in arrays or name in changed}

        def fetch(name: str) -> Array:
            return changed[name] if name in changed else arrays[name]

        payload = Payload(dict(document), HeldArrays(names, fetch))
        return write(target, payload, overwrite=overwrite, progress=progress, limits=limits)
    records = _carried(document, original, changed)
    files = dict.fromkeys(map(file_of, records.values()))
    store = store_of(original)
    fresh = _free_name(store, set(map(file_of, original.values())))
    added = {name: given[name] for name in changed if name in given}
    _require_sound({**document, "arrays": {**records, **added}}, target, limits)
    require_apart(source.path, target)
    with new_bundle(target, overwrite=overwrite) as new:
        for file in files:
            new.take(source.held, file)
        if changed:
            tick = ticking(progress, added)
            written = new.put(fresh, lambda place: store.write(place, changed, tick=tick))
            for name, record in written.items():
                records[name] = _recorded(given.get(name, {}), record, fresh)
        made = _signed(document, records)
        raise_findings(check_arrays(Payload(made, HeldArrays(records)), limits), str(target))
        new.finish(formatted(made, limits))
    return target


def require_apart(source: Path, target: Path) -> None:
    """Checks that a new bundle is not written into the folder that it is made from.

    Raises:
        SerializationError: It is.
    """
    inner, outer = Path(os.path.realpath(target)), Path(os.path.realpath(source))
    if outer in inner.parents:
        message = f"expected a target outside of {source}, got one inside"
        hint = "the input is never changed: choose another path"
        raise BundleExistsError(message, file=str(target), hint=hint)


def _require_sound(document: dict[str, Any], target: Path, limits: Limits) -> None:
    found = check_manifest(document, limits=limits)
    if not found:
        found = check_arrays(Payload(document, HeldArrays(document["arrays"])), limits)
    raise_findings(found, str(target))


def _carried(
    document: Mapping[str, Any], original: Records, changed: Mapping[str, Array]
) -> dict[str, Any]:
    """The records of the arrays that are taken over; unused ones too, if any is used.

    An array that the document lacks keeps its record: its file may replace an older array of that name in
    another file, which nothing else accounts for.
    """
    given = document["arrays"]
    kept = {name: record for name, record in original.items() if name not in changed}
    if not any(name in given and "unused" not in record for name, record in kept.items()):
        return {}
    for name, record in kept.items():
        if name not in given:
            kept[name] = {**record, "unused": True}
    return kept


def _free_name(store: Store, taken: set[str]) -> str:
    """A name for a further array file of a store."""
    name, number = store.file, 0
    while name in taken:
        number += 1
        name = f"arrays-{number}.{store.suffix}"
    return name


def seal(path: str | Path) -> None:
    """Recomputes the digest of a manifest that was edited by hand; changes and checks nothing else.

    Args:
        path: A folder, a zip, or a ``manifest.json``.

    Raises:
        SerializationError: There is no manifest, or it is not even JSON.
    """
    path = around(path)
    with opened(path) as source:
        with naming(path):
            data = reseal(source.data)
        if source.held.is_folder:
            _replace_manifest(path, data)
            return
        with new_bundle(path, overwrite=True) as new:
            for name in source.held.names():
                if name != MANIFEST:
                    new.take(source.held, name)
            new.finish(data)


def _replace_manifest(folder: Path, data: bytes) -> None:
    """Replaces the manifest alone, in one step. The file of a killed writer counts as the bundle's."""
    temporary = folder / f".{MANIFEST}.tmp-{os.urandom(6).hex()}"
    with refusals_named(folder / MANIFEST):
        try:
            _write_file(temporary, data)
            temporary.replace(folder / MANIFEST)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(folder)
