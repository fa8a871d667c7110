"""Copies of files of bundles, and hard links to them where the system has these.

Example:
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "a").mkdir()
    >>> (folder / "a" / "x").write_text("1")
    1
    >>> link_tree(folder / "a", folder / "b")
    >>> (folder / "b" / "x").read_text()
    '1'
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from neuralqx_struct.bundle.disk import refused_reading, sync_folder
from neuralqx_struct.bundle.urls import Place
from neuralqx_struct.errors import IntegrityError
from neuralqx_struct.stores.checksums import write_all
from neuralqx_struct.stores.store import Source, Target

_CHUNK = 16 << 20


def linked(
    source: str | Path, target: Path, seen: os.stat_result, folder: int | None = None
) -> bool:
    """Gives a file a second name; False if the system cannot, or if another file has the name by now."""
    try:
        os.link(source, target, src_dir_fd=folder, follow_symlinks=False)
    except (OSError, NotImplementedError):
        return False
    if os.path.samestat(target.lstat(), seen):
        return True
    target.unlink()
    return False


def link_tree(folder: Path, target: Path, without: Collection[str] = ()) -> None:
    """Fills a new or empty folder with hard links, but for some names in it; copies files that cannot be linked."""
    target.mkdir(exist_ok=True)
    with os.scandir(folder) as entries:
        for entry in entries:
            path = Path(entry.path)
            place = target / entry.name
            if entry.name in without:
                continue
            if entry.is_dir(follow_symlinks=False):
                link_tree(path, place)
            elif not linked(path, place, entry.stat(follow_symlinks=False)):
                with path.open("rb", buffering=0) as file:
                    region = cast("BinaryIO", file), 0, os.fstat(file.fileno()).st_size
                    copy_region(path, region, place)
    sync_folder(target)


def copy_region(path: Place, region: Source, place: Target) -> None:
    """Copies a region of a file of the bundle at a path into a new file, or into an open one at its position."""
    if isinstance(place, Path):
        with place.open("xb", buffering=0) as out:
            copy_region(path, region, cast("BinaryIO", out))
            os.fsync(out.fileno())
        return
    if isinstance(region, memoryview):
        write_all(place, region)
        return
    for piece in pieces_of(path, region):
        write_all(place, memoryview(piece))


def pieces_of(path: Place, region: Source) -> Iterator[bytes]:
    """Yields the bytes of a region of a file of the bundle at a path.

    Raises:
        BundleReadError: The system refuses to read it.
        IntegrityError: The file ends before.
    """
    file, base, length = cast("tuple[BinaryIO, int, int]", region)
    file.seek(base)
    while length:
        try:
            piece = file.read(min(length, _CHUNK))
        except OSError as error:
            raise refused_reading(error, path) from error
        if not piece:
            message = f"expected {length} more bytes in the file, got its end"
            raise IntegrityError(message, code="NQX408", file=str(path))
        yield piece
        length -= len(piece)
