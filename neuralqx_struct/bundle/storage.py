"""Bundles on disk, opened for reading: a folder, or a zip of the same members.

Finds, reads, copies and links members in either form. ``writing.py`` makes new bundles, ``reading.py``
checks the content of members.

Example:
    >>> import tempfile
    >>> from neuralqx_struct.bundle.writing import new_bundle
    >>> path = Path(tempfile.mkdtemp(), "ckpt.zip")
    >>> with new_bundle(path, overwrite=False) as new:
    ...     new.finish(b"{}")
    >>> with opened_bundle(path) as held:
    ...     held.names()
    ['manifest.json']
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, cast

from neuralqx_struct.bundle.atomic import current, numbered, sync_folder
from neuralqx_struct.errors import SerializationError, UntrustedError
from neuralqx_struct.manifest import Limits
from neuralqx_struct.stores import STORES
from neuralqx_struct.stores.archive import STORED, inflate, read_directory
from neuralqx_struct.stores.files import opened
from neuralqx_struct.stores.store import Source, Target, write_all

MANIFEST: Final = "manifest.json"
FOREIGN_MEMBERS: Final = {"version", "manifest", "arrays"}  # the members that neuraLQX writes
_CHUNK = 16 << 20
_READ: Final = os.O_RDONLY | getattr(os, "O_BINARY", 0)
_NONBLOCK: Final = getattr(os, "O_NONBLOCK", 0)  # a pipe would wait for a writer


class BundleMissingError(SerializationError, FileNotFoundError):
    """There is nothing at the path of a bundle."""

    default_code = "NQX401"


class BundleReadError(SerializationError, OSError):
    """The system refused to read a bundle, such as for a missing permission or a broken disk."""

    default_code = "NQX401"


def missing(path: Path, got: str) -> BundleMissingError:
    """The error for a path without a bundle."""
    error = BundleMissingError(f"expected a bundle, got {got}", file=str(path))
    return numbered(error, errno.ENOENT, path)


def refused_reading(error: OSError, path: Path) -> SerializationError:
    """An error of the system as one that names the bundle."""
    if isinstance(error, FileNotFoundError):
        return missing(path, "a link that leads to nothing")
    message = f"expected to read the bundle, got: {error.strerror or error}"
    if error.filename is not None and os.fspath(error.filename) != os.fspath(path):
        message += f"\nthe system refused {os.fsdecode(error.filename)}"
    hint = "check the owner and the mode of the file, or the disk"
    return numbered(BundleReadError(message, file=str(path), hint=hint), error.errno, path)


def no_bundle(path: Path, got: str, hint: str | None = None) -> SerializationError:
    """The error for a file or folder that is no bundle."""
    message = f"expected a bundle (a folder with {MANIFEST}, or a zip of one), got {got}"
    return SerializationError(message, code="NQX401", file=str(path), hint=hint)


def is_folder_path(path: Path) -> bool:
    """True if a bundle at this path is a folder, not a zip."""
    return path.suffix.lower() != ".zip"


class Opened:
    """An open bundle; this class reads a ``manifest.json`` alone, without the files beside it.

    Attributes:
        has_files: True if array files belong to it.
    """

    has_files = False

    def __init__(self, path: Path) -> None:
        self.path = path
        # A path of the user's may be a link to a file, never a pipe or a device.
        fd = os.open(path, _READ | _NONBLOCK)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            os.close(fd)
            raise no_bundle(path, "something that is neither a file nor a folder")
        self._file = cast("BinaryIO", os.fdopen(fd, "rb", buffering=0))
        self._length = found.st_size

    def names(self) -> list[str]:
        """The names of the members."""
        return [MANIFEST]

    def size(self, name: str) -> int | None:
        """The size of a member when expanded, without opening it; None if there is none."""
        return self._length if name == MANIFEST else None

    def region(self, name: str, most: Callable[[], int]) -> Source | None:  # noqa: ARG002 - for zips
        """A member as a region of an open file; None if there is none.

        Args:
            name: The member.
            most: Returns the limit of its size if it is compressed.
        """
        return (self._file, 0, self._length) if name == MANIFEST else None

    def folder(self, name: str) -> Path | None:  # noqa: ARG002
        """The path of a member that is a folder; None if there is none."""
        return None

    def link(self, name: str, target: Path) -> bool:  # noqa: ARG002
        """Gives a member a second name; False if that is impossible."""
        return False

    def moved(self) -> bool:
        """True if the bundle was replaced while it was being read; an open file stays the same."""
        return False

    def close(self) -> None:
        """Closes the files; maps of them stay."""
        self._file.close()


class Folder(Opened):
    """An open folder bundle. Files are opened relative to the folder, also if its name changes meanwhile."""

    has_files = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: list[BinaryIO] = []
        self._fd: int | None = None
        if os.open in os.supports_dir_fd:
            self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))

    def names(self) -> list[str]:
        """The names of the files."""
        return sorted(os.listdir(self.path if self._fd is None else self._fd))  # noqa: PTH208 - of a descriptor

    def _open(self, name: str) -> int:
        flags = _READ | _NONBLOCK | getattr(os, "O_NOFOLLOW", 0)
        if self._fd is not None:
            return os.open(name, flags, dir_fd=self._fd)
        if (self.path / name).is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return os.open(self.path / name, flags)

    def region(self, name: str, most: Callable[[], int]) -> Source | None:  # noqa: ARG002
        """A file as a region; None if there is no such file."""
        try:
            fd = self._open(name)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise self._special(name) from error
            raise
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            os.close(fd)
            raise self._special(name)
        file = cast("BinaryIO", os.fdopen(fd, "rb", buffering=0))
        self._files.append(file)
        return file, 0, found.st_size

    def folder(self, name: str) -> Path | None:
        """The path of a folder; None if there is none."""
        path = self.path / name
        if not os.path.lexists(path):
            return None
        if path.is_symlink() or not path.is_dir():
            raise self._special(name)
        return path

    def size(self, name: str) -> int | None:
        """The size of a file, without opening it; None if there is no such file."""
        path = self.path / name
        try:
            if self._fd is None:
                found = path.lstat()
            else:
                found = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if stat.S_ISREG(found.st_mode):
            return found.st_size
        suffix = name.rpartition(".")[2]
        folders = [store.suffix for store in STORES.values() if store.folder]
        if not stat.S_ISDIR(found.st_mode) or suffix not in folders:
            raise self._special(name)
        return sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(path))

    def _special(self, name: str) -> UntrustedError:
        where = str(self.path / name)
        hint = "bundles hold plain files only, no links"
        message = "expected a plain file, got something else"
        return UntrustedError(message, code="NQX504", file=where, hint=hint)

    def link(self, name: str, target: Path) -> bool:
        """Gives a file a second name; False if the system cannot. A folder is made anew, of such files."""
        folder = self.path / name
        if folder.is_dir():
            _link_tree(folder, target)
            return True
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
        return not os.path.samestat(now, os.fstat(self._fd))

    def close(self) -> None:
        """Closes the files; maps of them stay."""
        for file in self._files:
            file.close()
        if self._fd is not None:
            os.close(self._fd)


class Zip(Opened):
    """An open zip bundle; a replaced file stays the same as when it was opened."""

    has_files = True

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            if not self._length or self._file.read(2) != b"PK":
                raise no_bundle(path, "a file that is no zip")
            self._view, _ = opened((self._file, 0, self._length), mmap=True)
            self._members = {member.name: member for member in read_directory(self._view)}
        except BaseException:
            self._file.close()
            raise

    def names(self) -> list[str]:
        """The names of the members."""
        return sorted(self._members)

    def size(self, name: str) -> int | None:
        """The size of a member when expanded; None if there is no such member."""
        member = self._members.get(name)
        return None if member is None else member.size

    def region(self, name: str, most: Callable[[], int]) -> Source | None:
        """A stored member as a region; a deflated one, as neuraLQX writes, expanded."""
        member = self._members.get(name)
        if member is None:
            return None
        if member.method == STORED:
            return self._file, member.start, member.size
        if member.size > most():
            message = f"expected {name} to expand to at most {most()} bytes, got {member.size}"
            raise UntrustedError(message, code="NQX505", file=str(self.path))
        packed = self._view[member.start : member.start + member.stored]
        return memoryview(inflate(packed, member.size))

    def folder(self, name: str) -> Path | None:
        """Raises: a zip bundle has files only."""
        message = f"expected {name} in a folder bundle, got it in a zip"
        hint = "unpack the zip into a folder"
        raise SerializationError(message, code="NQX614", file=str(self.path), hint=hint)


def _link_tree(folder: Path, target: Path) -> None:
    """Makes a folder of hard links; copies files that cannot be linked."""
    target.mkdir()
    for entry in os.scandir(folder):
        place = target / entry.name
        if entry.is_dir(follow_symlinks=False):
            _link_tree(Path(entry.path), place)
            continue
        try:
            os.link(entry.path, place, follow_symlinks=False)
        except OSError:
            copy_region(Path(entry.path), place)
    sync_folder(target)


def copy_region(region: Source, place: Target) -> None:
    """Copies a region into a new file, or into an open one at its position."""
    if isinstance(place, Path):
        with place.open("xb", buffering=0) as out:
            copy_region(region, cast("BinaryIO", out))
            os.fsync(out.fileno())
    elif isinstance(region, memoryview):
        write_all(place, region)
    elif isinstance(region, Path):
        with region.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            copy_region((cast("BinaryIO", file), 0, size), place)
    else:
        for piece in _pieces(*region):
            write_all(place, memoryview(piece))


def _pieces(file: BinaryIO, base: int, length: int) -> Iterator[bytes]:
    file.seek(base)
    while length and (piece := file.read(min(length, _CHUNK))):
        yield piece
        length -= len(piece)


@contextmanager
def opened_bundle(path: Path) -> Iterator[Opened]:
    """Opens the bundle at a path, also one whose writer was stopped between two renames."""
    found = path if os.path.lexists(path) else current(path)
    if found is None:
        raise missing(path, "no file or folder")
    # One stat decides the form: a writer may replace the bundle between two of them.
    held: Opened
    if stat.S_ISDIR(found.stat().st_mode):
        held = Folder(found)
    elif found.suffix == ".json":
        held = Opened(found)
    else:
        held = Zip(found)
    try:
        yield held
    finally:
        held.close()


def manifest_bytes(held: Opened, limits: Limits) -> bytes:
    """The bytes of the manifest of an open bundle."""
    source = held.region(MANIFEST, lambda: limits.manifest_bytes)
    if source is None:
        hint = None
        if held.path.is_dir() and any((p / MANIFEST).is_file() for p in held.path.iterdir()):
            hint = f"it has bundles in it: name them, as in {held.path / '*'}"
        names = ", ".join(held.names()[:8]) or "nothing"
        raise no_bundle(held.path, f"one with {names} in it", hint)
    if isinstance(source, memoryview):
        return bytes(source)
    file, base, length = cast("tuple[BinaryIO, int, int]", source)  # members are never paths
    if length > limits.manifest_bytes:
        message = f"expected a manifest of at most {limits.manifest_bytes} bytes, got {length}"
        raise SerializationError(message, code="NQX005", hint="pass limits= to read more")
    return b"".join(_pieces(file, base, length))
