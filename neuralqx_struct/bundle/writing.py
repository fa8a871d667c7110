"""Writes bundles, each completely or not at all. ``atomic.py`` replaces the target.

:func:`write` waits. :func:`begin` writes a bundle while the program goes on, or by several processes
together: the first process opens the new bundle, every process writes its shards, and when all of them are
on the disk the first one adds the manifest and lets the bundle replace its target. The store writes
(:attr:`Store.begin <neuralqx_struct.stores.store.Store>`), ``stores/hosts.py`` keeps the processes together.

Example:
    >>> import tempfile
    >>> payload = Payload({"version": 1, "manifest": 5, "arrays": {}}, {})
    >>> write(f"{tempfile.mkdtemp()}/ckpt", payload).name
    'ckpt'
    >>> pending = begin(f"{tempfile.mkdtemp()}/ckpt", lambda: payload, store_named("orbax"))
    >>> pending.wait().name, pending.done
    ('ckpt', True)
"""

from __future__ import annotations

import logging
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
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
from neuralqx_struct.stores.hosts import agreed, rank
from neuralqx_struct.stores.store import (
    Progress,
    Records,
    Store,
    Target,
    store_named,
    ticking,
    write_all,
)

_LOG = logging.getLogger("neuralqx_struct")
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


# Bundles that are written while the program goes on


class PendingBundle:
    """A bundle that is being written; :func:`~neuralqx_struct.export` returns it for ``asynchronous=True``.

    Its arrays are safe already: they may be donated, and numpy arrays written into. The bundle replaces its
    target when all of it is on the disk, whether or not anybody waits, or never.

    Attributes:
        path: The path of the bundle.
    """

    def __init__(self, path: Path, finish: Callable[[], None]) -> None:
        self.path = path
        self._failure: BaseException | None = None
        self._agreed = False
        self._thread = threading.Thread(target=self._run, args=(finish,), name=f"export to {path}")
        self._thread.start()

    def __repr__(self) -> str:
        if not self.done:
            state = "being written"
        else:
            state = "written" if self._failure is None else "failed"
        return f"<PendingBundle {str(self.path)!r}: {state}>"

    @property
    def done(self) -> bool:
        """True when this process has no more to do, whatever the result."""
        return not self._thread.is_alive()

    def wait(self) -> Path:
        """Waits until the bundle is complete.

        Every process of the program must call this, as it must call ``export``; no process returns before
        all can read the bundle.

        Returns:
            The path.

        Raises:
            SerializationError: The bundle was not written, in whichever of the processes, and the target
                is unchanged; raised again by further calls.
        """
        self._thread.join()
        if not self._agreed:
            self._agreed = True
            try:
                agreed(self._outcome)
            except Exception as failure:
                self._failure = failure
                raise
        self._outcome()
        return self.path

    def _outcome(self) -> bytes:
        if self._failure is not None:
            raise self._failure
        return b""

    def _run(self, finish: Callable[[], None]) -> None:
        try:
            finish()
        except BaseException as failure:  # noqa: BLE001 - raised by wait(), and logged if nobody waits
            self._failure = failure
            _LOG.error("%s: the bundle was not written: %s", self.path, failure)


def _folder(place: Target) -> bytes:
    assert isinstance(place, Path)
    return os.fsencode(place.absolute())


def begin(
    path: str | Path,
    make: Callable[[], Payload],
    store: Store,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> PendingBundle:
    """Begins to write a bundle; every process of the program calls this with the same arguments.

    Args:
        path: The folder, on a file system that all processes see.
        make: Returns the payload; of arrays that are spread over processes, each has its own part.
        store: A store that writes in the background.
        overwrite: Replace an existing bundle.
        progress: Called with (bytes done, bytes in all), also by the thread that writes.

    Raises:
        SerializationError: As :func:`~neuralqx_struct.bundle.write`, as far as it is known now; in all processes.
    """
    assert store.begin is not None
    path = Path(path)
    payload = Payload({}, {})
    new: NewBundle | None = None
    with ExitStack() as opened:

        def open_first() -> bytes:
            nonlocal payload, new
            payload = make()
            raise_findings(check(payload), str(path))
            store.require_form(folder=is_folder_path(path))
            if rank():
                return b""
            new = opened.enter_context(new_bundle(path, overwrite=overwrite))
            return new.put(store.file, _folder)

        target = Path(os.fsdecode(agreed(open_first)[0]))
        tick = ticking(progress, payload.document["arrays"])
        records = store.begin(target, payload.arrays, tick=tick)
        kept = opened.pop_all()

    def complete() -> None:
        with kept:
            written = records()
            if new is not None:
                new.complete(payload.document, written, store.file)

    return PendingBundle(path, complete)
