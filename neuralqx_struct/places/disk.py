"""The disk: errors of what the system refuses, flushes, copies, and hard links where the system has these.

Example:
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "a").mkdir()
    >>> (folder / "a" / "x").write_text("1")
    1
    >>> link_tree(folder / "a", folder / "b")
    >>> (folder / "b" / "x").read_text()
    '1'
    >>> with refusals_named(Path("ckpt")):
    ...     raise OSError(28, "No space left on device")
    Traceback (most recent call last):
    neuralqx_struct.places.disk.BundleWriteError: ckpt: expected to write the bundle, got: No space left on device [NQX406]
      the old bundle is untouched; free space or choose a folder that can be written, then retry
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TypeVar, cast

from neuralqx_struct.errors import IntegrityError, SerializationError, path_meant
from neuralqx_struct.places.checksums import write_all

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

    from neuralqx_struct.places.urls import Place  # its errors are from here

Source = os.PathLike[str] | tuple[BinaryIO, int, int] | memoryview
"""An array file: a path, a region (file, first byte, length) of an open file, or bytes in memory."""
Target = Path | BinaryIO
"""A new array file: a path, or an open file that is written from its position on."""

_E = TypeVar("_E", bound=OSError)
_CHUNK: Final = 16 << 20  # bytes that are copied at a time
_NO_SYNC: Final = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)


class BundleExistsError(SerializationError, FileExistsError):
    """The target of a write exists."""

    default_code = "NQX431"


class BundleMissingError(SerializationError, FileNotFoundError):
    """There is nothing at the path of a bundle."""

    default_code = "NQX401"


class BundleReadError(SerializationError, OSError):
    """The system refused to read a bundle, such as for a missing permission or a broken disk."""

    default_code = "NQX401"


class BundleReplacedError(BundleReadError):
    """Another program replaced or removed a bundle behind a URL before all of it had been fetched."""


class OptionsError(Exception):
    """Options of a server that another process cannot read."""


class BundleWriteError(SerializationError, OSError):
    """The system refused a write, such as for a full disk or a read-only folder."""

    default_code = "NQX406"


class BundleBusyError(BundleWriteError, TimeoutError):
    """Another process writes a series for longer than ``timeout=`` allows.

    Attributes:
        process: The number of that process, if it is known.
        host: The name of its host, if it is known.
    """

    process: int | None = None
    host: str | None = None


def numbered(error: _E, number: int | None, path: object) -> _E:
    """The error with the attributes that callers expect of an OSError."""
    error.errno, error.filename = number, str(path)
    error.strerror = None if number is None else os.strerror(number)
    return error


def missing(path: object, got: str) -> BundleMissingError:
    """The error for a path without a bundle."""
    hint = path_meant(path)
    error = BundleMissingError(f"expected a bundle, got {got}", file=str(path), hint=hint)
    return numbered(error, errno.ENOENT, path)


def refused_reading(error: OSError, path: object) -> SerializationError:
    """An error of the system as one that names the bundle."""
    if isinstance(error, FileNotFoundError):
        return missing(path, "a link that leads to nothing")
    message = f"expected to read the bundle, got: {error.strerror or error}"
    if error.filename is not None and os.fspath(error.filename) != str(path):
        message += f"\nthe system refused {os.fsdecode(error.filename)}"
    hint = "check the owner and the mode of the file, or the disk"
    return numbered(BundleReadError(message, file=str(path), hint=hint), error.errno, path)


@contextmanager
def refusals_named(target: Path, kind: str = "bundle") -> Iterator[None]:
    """Raises errors of the system, which name a temporary file or none, as errors about the target.

    Raises:
        BundleWriteError: In place of any other OSError.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, SerializationError):
            raise
        message = f"expected to write the {kind}, got: {error.strerror or error}"
        if error.filename is not None and os.fspath(error.filename) != os.fspath(target):
            message += f"\nthe system refused {os.fsdecode(error.filename)}"
        hint = f"the old {kind} is untouched; free space or choose a folder that can be written, then retry"
        refused = BundleWriteError(message, file=str(target), hint=hint)
        raise numbered(refused, error.errno, target) from error


def sync_file(path: Path) -> None:
    """Flushes the bytes of a file to the disk."""
    with path.open("r+b", buffering=0) as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Flushes the names in a folder to the disk, if the system can."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(descriptor)


def sync_place(target: Path) -> None:
    """Flushes the name of a new bundle to the disk.

    Raises:
        BundleWriteError: The system refused; the bundle is in place all the same.
    """
    try:
        sync_folder(target.parent)
    except OSError as error:
        message = f"expected to flush the name of the new bundle to the disk, got: {error.strerror or error}"
        hint = "the new bundle is in place, but a power cut may lose it: check the disk, then write it again"
        refused = BundleWriteError(message, file=str(target), hint=hint)
        raise numbered(refused, error.errno, target) from error


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


def scratch_folder() -> TemporaryDirectory[str]:
    """A new folder in the system's place for temporary files; removed when its block ends, or with the object."""
    import tempfile  # reading a bundle on a disk needs none of it

    return tempfile.TemporaryDirectory(prefix="neuralqx-struct-")


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
