"""Bundles on disk, opened for reading: a folder, or a zip of the same members; finds, reads, copies and links members.

``remote.py`` does so behind URLs, ``members.py`` makes new members, ``reading.py`` checks their content. The arrays of all files
of a bundle are one mapping, :class:`BundleArrays`.

Example:
    >>> import tempfile
    >>> from neuralqx_struct.bundle.forms import new_bundle
    >>> path = Path(tempfile.mkdtemp(), "ckpt.zip")
    >>> with new_bundle(path, overwrite=False) as new:
    ...     new.finish(b"{}")
    >>> held = open_bundle(path)
    >>> held.names()
    ['manifest.json']
    >>> held.close()
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from neuralqx_struct.errors import (
    READ_MORE,
    Diagnostic,
    SerializationError,
    UntrustedError,
    shell_word,
)
from neuralqx_struct.formats.archive import STORED, inflate, read_directory
from neuralqx_struct.formats.files import opened
from neuralqx_struct.formats.orbax_layout import Files
from neuralqx_struct.formats.store import Access, Records
from neuralqx_struct.manifest import MANIFEST
from neuralqx_struct.manifest.payload import Region, StoredArrays
from neuralqx_struct.places.atomic import current
from neuralqx_struct.places.disk import (
    BundleReadError,
    Source,
    link_tree,
    linked,
    missing,
    pieces_of,
    refused_reading,
)
from neuralqx_struct.places.locks import lock
from neuralqx_struct.places.names import shown_names
from neuralqx_struct.places.steps import Contents, contents
from neuralqx_struct.places.urls import Place

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

FOREIGN_MEMBERS: Final = {"version", "manifest", "arrays"}  # the members that neuraLQX writes
_LOOKS = 16
_PAUSE = 0.01
_READ: Final = os.O_RDONLY | getattr(os, "O_BINARY", 0)
_DESCRIPTORS: Final = "/proc/self/fd"
_NONBLOCK: Final = getattr(os, "O_NONBLOCK", 0)  # a pipe would wait for a writer


def no_bundle(path: Place, got: str, hint: str | None = None) -> SerializationError:
    """The error for a file or folder that is no bundle."""
    message = f"expected a bundle (a folder with {MANIFEST}, or a zip of one), got {got}"
    return SerializationError(message, code="NQX401", file=str(path), hint=hint)


class Opened:
    """An open bundle; this class reads a ``manifest.json`` alone, without the files beside it.

    Whatever writers do to its path, an open bundle stays the same: files are opened by :meth:`hold` and
    kept open.

    Attributes:
        path: Its path.
        has_files: True if array files belong to it.
        is_folder: True if these are files of their own.
        exclusive: True if all files that are beside them belong to it, too.
    """

    path: Place
    has_files = False
    is_folder = False
    exclusive = True

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

    def hold(self, name: str, *, folder: bool = False) -> int | None:  # noqa: ARG002
        """Opens a member for later; returns its size when expanded, None if there is none.

        Args:
            name: The member.
            folder: It is a folder, whose size is not known.
        """
        return self._length if name == MANIFEST else None

    def measured(self, name: str, held: int) -> int | None:  # noqa: ARG002
        """The size of a member, of which :meth:`hold` returned ``held``; None if there is none."""
        return held

    def ranged(self, file: str, records: Records, access: Access) -> StoredArrays | None:  # noqa: ARG002
        """The arrays of a member that are fetched one by one; None where a store reads them from :meth:`source`."""
        return None

    def source(self, name: str, most: Callable[[], int]) -> Source:  # noqa: ARG002
        """A member that :meth:`hold` has found.

        Args:
            name: The member.
            most: Returns the limit of its size if it is compressed.
        """
        return self._file, 0, self._length

    def link(self, name: str, target: Path) -> bool:  # noqa: ARG002
        """Gives a member a second name; False if that is impossible."""
        return False

    def replaced(self) -> bool:
        """True if files may be missing because a writer has replaced the bundle."""
        return False

    def contents(self) -> Contents | None:
        """The bundles in it, of a folder that is none itself."""
        return None

    def close(self) -> None:
        """Closes the files; maps of them stay."""
        self._file.close()


class Folder(Opened):
    """An open folder bundle, whose files are found whatever its name is; ``locked``: writers keep them from now on."""

    has_files = True
    is_folder = True

    def __init__(self, path: Path, *, locked: bool = False) -> None:
        self.path: Path = path
        self._held: dict[str, Source] = {}
        self._fd: int | None = None
        self._was_locked = False
        if os.open in os.supports_dir_fd:
            self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
            self._was_locked = locked and _locked(self._fd)

    def names(self) -> list[str]:
        """The names of the files."""
        return shown_names(os.listdir(self.path if self._fd is None else self._fd))  # noqa: PTH208 - of a descriptor

    def hold(self, name: str, *, folder: bool = False) -> int | None:
        """Opens a file or folder for later; returns the size of a file, None if there is none."""
        flags = _READ | _NONBLOCK | getattr(os, "O_NOFOLLOW", 0)
        place: str | Path = name
        if self._fd is None:
            place = self.path / name
            if place.is_symlink():
                raise self._special(name)
        try:
            fd = os.open(place, flags, dir_fd=self._fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise self._special(name) from error
            raise
        found = os.fstat(fd)
        if stat.S_ISREG(found.st_mode) and not folder:
            file = cast("BinaryIO", os.fdopen(fd, "rb", buffering=0))
            self._held[name] = file, 0, found.st_size
            return found.st_size
        os.close(fd)
        if not folder or not stat.S_ISDIR(found.st_mode):
            raise self._special(name)
        self._held[name] = self._folder(name)
        return sys.maxsize

    def _folder(self, name: str) -> Source:
        """A folder in the bundle, which is locked: its files are opened when they are read."""
        place = self.path / name
        if self._fd is None:
            return place
        found = OpenFolder(self._fd, place, locked=self._was_locked or _locked(self._fd))
        self._was_locked = self._was_locked and found.stable
        return found

    def source(self, name: str, most: Callable[[], int]) -> Source:  # noqa: ARG002
        """A file as a region, or a folder."""
        return self._held[name]

    def _special(self, name: str) -> UntrustedError:
        where = str(self.path / name)
        hint = "bundles hold plain files only, no links"
        message = "expected a plain file, got something else"
        return UntrustedError(message, code="NQX504", file=where, hint=hint)

    def link(self, name: str, target: Path) -> bool:
        """Gives a file a second name; False if the system cannot. A folder is made anew, of such files."""
        source = self._held[name]
        if isinstance(source, os.PathLike):
            link_tree(Path(source), target)
            return True
        file = cast("tuple[BinaryIO, int, int]", source)[0]
        return linked(name, target, os.fstat(file.fileno()), self._fd)

    def replaced(self) -> bool:
        """True if a writer has replaced the bundle, whose files are then removed unless they are locked."""
        if self._fd is None or (self._was_locked and MANIFEST in self._held):
            return False
        try:
            now = os.stat(self.path)  # noqa: PTH116 - as fstat below
        except FileNotFoundError:
            return True
        return not os.path.samestat(now, os.fstat(self._fd))

    def contents(self) -> Contents | None:
        """The bundles in it, and in the folders in it."""
        return contents(self.path, MANIFEST)

    def close(self) -> None:
        """Closes the files; maps of them stay."""
        for source in self._held.values():
            if isinstance(source, tuple):
                source[0].close()
        self._held.clear()
        if self._fd is not None:
            os.close(self._fd)


class OpenFolder(Files):
    """A folder in an open bundle, found again by the descriptor of the bundle while the bundle changes its name.

    Args:
        bundle: The descriptor of the bundle, of which this object keeps a copy, and so its lock.
        place: The path of the folder in it.
        locked: No writer removes its files.

    Attributes:
        stable: Its files are found, and those of the bundle, whatever writers do.
    """

    def __init__(self, bundle: int, place: Path, *, locked: bool) -> None:
        self._place = place
        self._descriptor = os.dup(bundle)
        path = Path(_DESCRIPTORS, str(self._descriptor), place.name)
        by_descriptor = path.is_dir()
        super().__init__(path if by_descriptor else place)
        self.stable = by_descriptor and locked

    def __str__(self) -> str:
        return str(self._place)

    def require_same(self, *, failed: bool) -> None:
        """Checks that the files are still those of the bundle; found by descriptor, under a lock, they are."""
        if self.stable and not failed:
            return
        with suppress(FileNotFoundError):
            if os.path.samestat(self._place.parent.stat(), os.fstat(self._descriptor)):
                return
        message = "expected the bundle to stay while it is read, got it replaced or removed"
        raise BundleReadError(message, file=str(self._place.parent), hint="read it again")

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)


def _locked(folder: int) -> bool:
    """Locks an open folder; False if the system has no locks, or if a writer does not unlock it."""
    for _ in range(_LOOKS):
        if (done := lock(folder, shared=True)) is not False:
            return bool(done)
        time.sleep(_PAUSE)  # its writer is about to unlock it
    return False


class Zip(Opened):
    """An open zip bundle; a replaced file stays the same as when it was opened."""

    has_files = True

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            if not self._length or self._file.read(2) != b"PK":
                hint = "neuralqx-struct inspect recognises files of other programs"
                raise no_bundle(path, "a file that is no zip", hint)
            self._view = cast("memoryview", opened((self._file, 0, self._length), mmap=True).view)
            self._members = {member.name: member for member in read_directory(self._view)}
        except BaseException:
            self._file.close()
            raise

    def names(self) -> list[str]:
        """The names of the members."""
        return sorted(self._members)

    def hold(self, name: str, *, folder: bool = False) -> int | None:
        """The size of a member when expanded; None if there is no such member."""
        if folder:
            message = f"expected {name} in a folder bundle, got it in a zip"
            hint = "unpack the zip into a folder"
            raise SerializationError(message, code="NQX614", file=str(self.path), hint=hint)
        member = self._members.get(name)
        return None if member is None else member.size

    def source(self, name: str, most: Callable[[], int]) -> Source:
        """A stored member as a region; a deflated one, as neuraLQX writes, expanded."""
        member = self._members[name]
        if member.method == STORED:
            return self._file, member.start, member.size
        if member.size > most():
            message = f"expected {name} to expand to at most {most()} bytes, got {member.size}"
            raise UntrustedError(message, code="NQX505", file=str(self.path))
        packed = self._view[member.start : member.start + member.stored]
        return memoryview(inflate(packed, member.size))


def open_bundle(path: Path, *, locked: bool = False) -> Opened:
    """Opens the file or folder of a bundle; ``locked``: writers keep the files of a folder meanwhile."""
    # One stat decides the form: a writer may replace the bundle between two of them.
    if stat.S_ISDIR(path.stat().st_mode):
        return Folder(path, locked=locked)
    return Opened(path) if path.suffix == ".json" else Zip(path)


def names_at(path: Path) -> list[str]:
    """The names in the folder of a bundle, also while a writer replaces it; empty if there is no folder."""
    for _ in range(_LOOKS):
        try:
            held = Folder(current(path) or path)
        except FileNotFoundError:
            time.sleep(_PAUSE / 10)  # a writer without an exchange is between its two renames
            continue
        except OSError:
            continue
        names, replaced = held.names(), held.replaced()
        held.close()
        if MANIFEST in names or not replaced:
            return names
    return []


def manifest_bytes(held: Opened, most: int) -> bytes:
    """The bytes of the manifest of an open bundle, at most so many."""
    length = held.hold(MANIFEST)
    if length is None:
        raise _without_manifest(held)
    source = held.source(MANIFEST, lambda: most)
    if length > most:
        message = f"expected a manifest of at most {most} bytes, got {length}"
        raise SerializationError(message, code="NQX005", hint=READ_MORE)
    return (
        bytes(source) if isinstance(source, memoryview) else b"".join(pieces_of(held.path, source))
    )


def _without_manifest(held: Opened) -> SerializationError:
    """The error for an open folder or zip that is no bundle; names the bundles that are in it."""
    path = held.path
    names = held.names()
    if not names and not held.exclusive:
        return missing(path, "nothing")
    found = held.contents()
    if found is None:
        got = f"one with {', '.join(names[:8]) or 'nothing'} in it"
        return no_bundle(path, got, _foreign_inside(held, names))
    call = f', or call neuralqx_struct.Series({str(path)!r}).load("latest")' if found.series else ""
    whole = "migrate_all, and convert with a schema, take the whole folder"
    hint = f"name one, such as {shell_word(found.last)}{call}; {whole}"
    return no_bundle(path, found.text, hint)


def _foreign_inside(held: Opened, names: list[str]) -> str | None:
    """The fix for a folder or zip with a file of another program in it, as ``.keras`` files are; None without one."""
    from neuralqx_struct.formats import has_suffix  # only for this message

    others = (name for name in names if not name.startswith("arrays"))  # of a lost manifest
    inside = next(filter(has_suffix, others), None)
    if inside is None:
        return None
    first = "" if held.is_folder else "unpack it; "
    path = f"{held.path}/{inside}" if held.is_folder else inside
    return f"{first}`neuralqx-struct infer {shell_word(path)}` drafts a schema for the file of another program in it"


class BundleArrays(StoredArrays):
    """The arrays of all files of a bundle in one mapping; errors name the file."""

    __slots__ = ("_homes",)

    def __init__(self, homes: Mapping[str, tuple[StoredArrays, str]]) -> None:
        super().__init__(homes)
        self._homes = homes

    @property
    def far(self) -> bool:
        """True if an array is far."""
        return any(arrays.far for arrays in self._files())

    def expect(self, names: Iterable[str]) -> None:
        """Announces arrays to their files."""
        wanted = [name for name in names if name in self._homes]
        for each in self._files():
            each.expect(name for name in wanted if self._homes[name][0] is each)

    def _files(self) -> Iterable[StoredArrays]:
        return {id(arrays): arrays for arrays, _ in self._homes.values()}.values()

    def __getitem__(self, name: str) -> Array:
        arrays, file = self._homes[name]
        try:
            return arrays[name]
        except SerializationError as error:
            raise error.in_file(file) from error.__cause__
        except OSError as error:  # a broken disk, where arrays are copied
            raise refused_reading(error, Path(file)) from error

    def at_hand(self, name: str) -> bool:
        """True for an array that its file has at hand."""
        return self._homes[name][0].at_hand(name)

    def divisible(self, name: str) -> bool:
        """True for an array that its file divides."""
        return self._homes[name][0].divisible(name)

    def parts(self, name: str, regions: Iterable[Region]) -> Iterator[Array]:
        """Yields parts of one array."""
        arrays, file = self._homes[name]
        try:
            yield from arrays.parts(name, regions)
        except SerializationError as error:
            raise error.in_file(file) from error.__cause__

    def verify(self, name: str) -> Diagnostic | None:
        """Compares the stored bytes of one array with its checksum."""
        arrays, file = self._homes[name]
        problem = arrays.verify(name)
        return None if problem is None else problem.in_file(file)
