"""The two forms of a bundle, a folder and a zip of the same members, opened for reading.

Owns how members are found, named, copied and linked in either form. New bundles are ``filling.py``'s; what the members say is
told by ``manifests.py``, ``reading.py`` and the stores.

Example:
    >>> import tempfile
    >>> from neuralqx_struct.bundle.filling import new_bundle
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

from neuralqx_struct.errors import SerializationError, UntrustedError
from neuralqx_struct.manifest import Limits
from neuralqx_struct.replacement import numbered, standing, sync_folder
from neuralqx_struct.stores import FOLDERS, Source, opened
from neuralqx_struct.stores.archive import inflate, read_directory
from neuralqx_struct.stores.checksums import write_all
from neuralqx_struct.stores.zip_records import STORED

__all__ = [
    "FOREIGN_MEMBERS",
    "MANIFEST",
    "BundleMissingError",
    "BundleReadError",
    "Folder",
    "Opened",
    "Text",
    "Zip",
    "copy_region",
    "manifest_bytes",
    "opened_bundle",
    "refused_reading",
    "region_bytes",
]

MANIFEST: Final = "manifest.json"
FOREIGN_MEMBERS: Final = {"version", "manifest", "arrays"}  # all that neuraLQX writes
_CHUNK = 16 << 20


class BundleMissingError(SerializationError, FileNotFoundError):
    """There is nothing at the path of a bundle."""

    default_code = "NQX401"


class BundleReadError(SerializationError, OSError):
    """The system refused to read a bundle: it has no permission, say, or the disk is broken."""

    default_code = "NQX401"


def refused_reading(error: OSError, path: Path) -> SerializationError:
    """An error of the system as one that names the bundle."""
    if isinstance(error, FileNotFoundError):
        missing = BundleMissingError("expected a bundle, got a link that leads to nothing", file=str(path))
        return numbered(missing, errno.ENOENT, path)
    message = f"expected to read the bundle, got: {error.strerror or error}"
    if error.filename is not None and os.fspath(error.filename) != os.fspath(path):
        message += f"\nthe system refused {os.fsdecode(error.filename)}"
    hint = "look at the owner and the mode of the file, or at the disk"
    return numbered(BundleReadError(message, file=str(path), hint=hint), error.errno, path)


class Folder:
    """An open directory bundle. Its files are opened relative to the directory, whatever its name comes to mean."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: list[BinaryIO] = []
        self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)) if os.open in os.supports_dir_fd else None

    def names(self) -> list[str]:
        """The names of the files."""
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

    def folder(self, name: str) -> Path | None:
        """A member that is a folder, None if there is none."""
        path = self.path / name
        if not os.path.lexists(path):
            return None
        if path.is_symlink() or not path.is_dir():
            raise self._special(name)
        return path

    def size(self, name: str) -> int | None:
        """The size of a file, which is not opened; None if there is no such file."""
        try:
            seen = (
                (self.path / name).lstat()
                if self._fd is None
                else os.stat(name, dir_fd=self._fd, follow_symlinks=False)
            )
        except FileNotFoundError:
            return None
        if stat.S_ISDIR(seen.st_mode) and name.rpartition(".")[2] in FOLDERS:
            return sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(self.path / name))
        if not stat.S_ISREG(seen.st_mode):
            raise self._special(name)
        return seen.st_size

    def _special(self, name: str) -> UntrustedError:
        hint = "bundles hold plain files only, no links"
        return UntrustedError(
            "expected a plain file, got something else", code="NQX504", file=str(self.path / name), hint=hint
        )

    def link(self, name: str, target: Path) -> bool:
        """Give a file of the bundle a second name; False where the system cannot. A folder is made anew, of such files."""
        if (folder := self.path / name).is_dir():
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
        then = os.fstat(self._fd)
        return (now.st_dev, now.st_ino) != (then.st_dev, then.st_ino)

    def close(self) -> None:
        """Close the files; maps of them stay."""
        for file in self._files:
            file.close()
        if self._fd is not None:
            os.close(self._fd)


class Text:
    """A ``manifest.json`` by itself, whatever stands beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _plain_file(path)

    def names(self) -> list[str]:
        """The manifest's alone."""
        return [MANIFEST]

    def size(self, name: str) -> int | None:
        """The size of the manifest; there is nothing else."""
        return os.fstat(self._file.fileno()).st_size if name == MANIFEST else None

    def region(self, name: str, most: Callable[[], int]) -> Source | None:  # noqa: ARG002
        """The manifest as a region of the file; there is nothing else."""
        return (self._file, 0, os.fstat(self._file.fileno()).st_size) if name == MANIFEST else None

    def folder(self, name: str) -> Path | None:  # noqa: ARG002
        """There is nothing else."""
        return None

    def link(self, name: str, target: Path) -> bool:  # noqa: ARG002
        """Nothing is linked from here."""
        return False

    def moved(self) -> bool:
        """An open file stays what it is."""
        return False

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _plain_file(path: Path) -> BinaryIO:
    """Open a file that a path names, or a link to one; never a pipe, which would wait for a writer, nor a device."""
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _no_bundle(path, "something that is neither a file nor a folder")
    return cast("BinaryIO", os.fdopen(fd, "rb", buffering=0))


def _link_tree(folder: Path, target: Path) -> None:
    target.mkdir()
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            _link_tree(Path(entry.path), target / entry.name)
            continue
        try:
            os.link(entry.path, target / entry.name, follow_symlinks=False)
        except OSError:
            with Path(entry.path).open("rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                copy_region((cast("BinaryIO", file), 0, size), target / entry.name)
    sync_folder(target)


def copy_region(region: Source, place: Path | BinaryIO) -> None:
    """Copy the bytes of a region into a new file, or into an open one at its position."""
    if isinstance(place, Path):
        with place.open("xb", buffering=0) as out:
            copy_region(region, cast("BinaryIO", out))
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


class Zip:
    """An open zip bundle; a replaced file stays what it was when opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _plain_file(path)
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
        """The names of the members."""
        return sorted(self._members)

    def size(self, name: str) -> int | None:
        """The size of a member when expanded; None if there is no such member."""
        member = self._members.get(name)
        return None if member is None else member.size

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

    def folder(self, name: str) -> Path | None:
        """A zip of ours has files only."""
        message = f"expected {name} in a folder bundle, got it in a zip"
        raise SerializationError(message, code="NQX614", file=str(self.path), hint="unpack the zip into a folder")

    def link(self, name: str, target: Path) -> bool:  # noqa: ARG002
        """A part of a file cannot have a second name."""
        return False

    def moved(self) -> bool:
        """An open file stays what it is."""
        return False

    def close(self) -> None:
        """Close the file; maps of it stay."""
        self._file.close()


Opened = Folder | Zip | Text


def _no_bundle(path: Path, got: str, hint: str | None = None) -> SerializationError:
    message = f"expected a bundle (a folder with {MANIFEST}, or a zip of one), got {got}"
    return SerializationError(message, code="NQX401", file=str(path), hint=hint)


@contextmanager
def opened_bundle(path: Path) -> Iterator[Opened]:
    """Open what stands at a path, or would stand there if its writer had not been stopped."""
    found = standing(path)
    if found is None:
        error = BundleMissingError("expected a bundle, got no file or folder", file=str(path))
        raise numbered(error, errno.ENOENT, path)
    # One look tells what it is: between two, a writer may take it away and put the next one there.
    is_folder = stat.S_ISDIR(found.stat().st_mode)
    held: Opened = Folder(found) if is_folder else Text(found) if found.suffix == ".json" else Zip(found)
    try:
        yield held
    finally:
        held.close()


def region_bytes(source: Source, limits: Limits) -> bytes:
    """All bytes of a region that holds a manifest."""
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


def manifest_bytes(held: Opened, limits: Limits) -> bytes:
    """The bytes of the manifest of an open bundle."""
    source = held.region(MANIFEST, lambda: limits.manifest_bytes)
    if source is None:
        inside = held.path.is_dir() and any((inner / MANIFEST).is_file() for inner in held.path.iterdir())
        hint = f"it has bundles in it: name them, as in {held.path / '*'}" if inside else None
        raise _no_bundle(held.path, f"one with {', '.join(held.names()[:8]) or 'nothing'} in it", hint)
    return region_bytes(source, limits)
