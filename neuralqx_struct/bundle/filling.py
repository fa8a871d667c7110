"""The files of a new bundle, in either form, put in one after the other.

Owns :func:`new_bundle`, :func:`replace_manifest`, and what may be replaced by a bundle. What is in the files is told by
``writing.py``; atomic replacement is ``replacement.py``'s.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, Self, cast

from neuralqx_struct.bundle.forms import FOREIGN_MEMBERS, MANIFEST, Folder, Opened, copy_region
from neuralqx_struct.errors import IntegrityError, StructError
from neuralqx_struct.manifest import DEFAULT_LIMITS
from neuralqx_struct.manifest_text import parse_manifest
from neuralqx_struct.replacement import refusals_named, staged, sync_folder
from neuralqx_struct.stores.archive_writer import ArchiveWriter
from neuralqx_struct.stores.checksums import write_all

__all__ = ["NewBundle", "new_bundle", "replace_manifest"]


_OURS: Final = re.compile(r"manifest\.json|arrays[A-Za-z0-9_.-]*|\.manifest\.json\.tmp-[0-9a-f]+|\.DS_Store")


@contextmanager
def new_bundle(path: Path, *, overwrite: bool) -> Iterator[NewBundle]:
    """A new bundle to be filled, of the form that the path names; it takes the path's place when all is written.

    Args:
        path: The folder, or with the suffix ``.zip`` the file; a link to one is followed.
        overwrite: Replace a bundle that is there; nothing but a bundle is ever replaced.
    """
    target = Path(os.path.realpath(path)) if os.path.islink(path) else path  # noqa: PTH114 - Path.is_symlink raises for long names
    folder = target.suffix.lower() != ".zip"
    with (
        staged(target, folder=folder, overwrite=overwrite, foreign=_foreign) as stage,
        NewBundle(stage, folder=folder) as new,
    ):
        yield new


class NewBundle:
    """The files of a new bundle in either form, put in one after the other; the manifest comes last."""

    def __init__(self, stage: Path, *, folder: bool) -> None:
        self._stage = stage
        self._raw = None if folder else cast("BinaryIO", stage.open("r+b", buffering=0))
        self._archive = ArchiveWriter(self._raw) if self._raw is not None else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._raw is not None:
            self._raw.close()

    def take(self, held: Opened, file: str) -> None:
        """Take a file of another bundle over, byte by byte the same."""
        if isinstance(held, Folder) and self._archive is None and (held.path / file).is_dir():
            held.link(file, self._stage / file)
            return
        region = held.region(file, lambda: DEFAULT_LIMITS.manifest_bytes)
        if region is None:
            raise IntegrityError(f"expected the array file {file}, got none", code="NQX409")
        if self._archive is not None or not held.link(file, self._stage / file):
            self.put(file, lambda place: copy_region(region, place))

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


def replace_manifest(folder: Path, data: bytes) -> None:
    """Replace the manifest alone, in one step. A writer that is killed leaves a file that counts as the bundle's."""
    temporary = folder / f".{MANIFEST}.tmp-{os.urandom(6).hex()}"
    with refusals_named(folder / MANIFEST):
        try:
            _write_file(temporary, data)
            temporary.replace(folder / MANIFEST)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(folder)


def _write_file(path: Path, data: bytes) -> None:
    with path.open("xb", buffering=0) as file:
        write_all(cast("BinaryIO", file), memoryview(data))
        os.fsync(file.fileno())


def _foreign(path: Path) -> str | None:
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
            if not document.keys() >= FOREIGN_MEMBERS:
                return f"a folder with some other program's {MANIFEST}"
        return None
    if not stat.S_ISREG(path.lstat().st_mode):
        return "something that is no plain file"
    with path.open("rb") as file:
        head = file.read(512)
    named = head[30 : 30 + int.from_bytes(head[26:28], "little")].decode("latin1")
    return None if head[:4] == b"PK\3\4" and _OURS.fullmatch(named) else "a file that is no bundle"
