r"""The record of a kind of foreign file, and an open file of any kind: named arrays that are read on access.

Each kind is one :class:`Format` in a module of its own; ``formats/__init__.py`` has the rows.
In the names of nested files, a separator or a backslash in a key has a backslash before it, so that each name has one list of keys.

Example:
    >>> joined(["encoder", "layers.0", "kernel"]) == r"encoder.layers\.0.kernel"
    True
    >>> split(r"encoder.layers\.0.kernel")
    ['encoder', 'layers.0', 'kernel']
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, Self, cast

from neuralqx_struct.dtypes import DTYPES, dtype_name, dtype_named
from neuralqx_struct.errors import (
    Diagnostic,
    IntegrityError,
    SerializationError,
    UntrustedError,
    path_meant,
)
from neuralqx_struct.formats.files import FileArrays
from neuralqx_struct.formats.files import opened as opened_source
from neuralqx_struct.formats.ranges import Ranges, StoredArray
from neuralqx_struct.formats.store import STORES, Rows, Store, about
from neuralqx_struct.manifest import DEFAULT_LIMITS, Limits
from neuralqx_struct.manifest.payload import ForeignArray, Region
from neuralqx_struct.places.disk import BundleMissingError, BundleReadError, numbered
from neuralqx_struct.places.names import shown_names
from neuralqx_struct.places.requests import Blocks, downloaded
from neuralqx_struct.places.urls import Place, RemotePath

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

Plain = bool | int | float | str | None
"""A plain value beside the arrays of a file."""
#: Compressed arrays that expand to more than the limit may be at most so many times as large as their data.
MOST_EXPANSION: Final = 100
#: The first character of a dtype with another byte order, and of text and dates.
_ORDERS: Final = ("<", ">")
_START = 1024  # bytes of a file by which its kind is found
_READ: Final = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)


def described(array: Any) -> ForeignArray:
    """An array in memory, or any object that numpy makes one of, as an array of a file; in native byte order."""
    import numpy as np

    known = isinstance(getattr(array, "dtype", None), np.dtype) and hasattr(array, "shape")
    given = array if known else np.asarray(array)
    dtype = given.dtype.newbyteorder("=")
    return ForeignArray(
        dtype_name(dtype),
        tuple(given.shape),
        lambda: np.asarray(given).astype(dtype, copy=False),
        cheap=isinstance(given, np.ndarray) and given.dtype == dtype,
    )


def native(array: ForeignArray) -> ForeignArray:
    """An array with its numbers in the byte order of this machine; they are swapped when they are read."""
    if array.dtype[:1] not in _ORDERS:
        return array
    try:
        dtype = dtype_named(array.dtype).newbyteorder("=")
        name = dtype_name(dtype)
    except SerializationError:  # one that cannot be read
        return array
    if name not in DTYPES:
        return array

    def swapped(read: Callable[..., Array], *region: Region) -> Array:
        made = read(*region).astype(dtype)
        made.flags.writeable = False
        return made

    slices = None if array.slices is None else partial(swapped, array.slices)
    return ForeignArray(name, array.shape, partial(swapped, array.read), slices)


def arrays_of(
    data: Ranges,
    found: Mapping[str, StoredArray],
    reason: str = "a dtype of numpy or ml_dtypes",
    hint: str = "convert it with the program that wrote the file",
) -> dict[str, ForeignArray]:
    """The arrays that lie in one file, each read when it is asked for; checksums are compared.

    Args:
        data: The bytes of the file.
        found: The arrays by name.
        reason: The dtypes that can be read.
        hint: The fix for others.
    """
    held = FileArrays(data, found)
    made: dict[str, ForeignArray] = {}
    for name, array in found.items():
        dtype, shape, _, crc, _, _, packed, more = array
        plain = packed is None and not more
        slices = partial(array.part, data) if plain and not data.cheap else None
        read = partial(array.read, data) if crc is None else partial(held.__getitem__, name)
        each = ForeignArray(dtype, shape, read, slices, plain and data.cheap)
        if dtype not in DTYPES and not each.readable:
            each = ForeignArray(dtype, shape, unreadable(name, dtype, reason, hint))
        made[name] = each
    return made


def unreadable(name: str, got: str, reason: str, hint: str) -> Callable[[], Array]:
    """The ``read`` of an array whose dtype cannot be read.

    Args:
        name: The array.
        got: Its dtype in the words of the format.
        reason: The dtypes that can be read.
        hint: The fix.
    """

    def read() -> Array:
        message = f"expected {reason}, got {got[:60]}"
        raise SerializationError(about("NQX411", name, message, hint))

    return read


def checked(name: str, array: ForeignArray) -> Array:
    """Reads an array, and compares it with its description.

    Raises:
        IntegrityError: It has another dtype or shape.
    """
    made = array.read()
    if (str(made.dtype), made.shape) == (array.dtype, array.shape):
        return made
    expected = f"{array.dtype}{list(array.shape)}"
    message = f"expected {expected}, got {made.dtype}{list(made.shape)} when the array was read"
    raise IntegrityError(about("NQX412", name, message))


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignFile:
    """An open foreign file. A context manager; arrays that were read stay valid after it is closed.

    Attributes:
        path: The path that was opened.
        format: The name of its :class:`Format`.
        arrays: The arrays by name, in the order of the file.
        values: Plain values beside the arrays, by the same kind of name.
        metadata: Free text of the file, such as ``{"format": "pt"}``.
        form: Returns JSON by which :func:`~neuralqx_struct.formats.write` makes the same bytes again; empty if
            it makes them without.
        check: Returns the damage of one array, without keeping its bytes; None reads it.
        close: Closes the file.
        place: The place of a file behind a URL, or of its folder; None for others.
    """

    path: str
    format: str
    arrays: Mapping[str, ForeignArray]
    values: Mapping[str, Plain] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    form: Callable[[], dict[str, Any]] = dict
    check: Callable[[str], Diagnostic | None] | None = None
    close: Callable[[], object] = lambda: None
    place: RemotePath | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Candidate(NamedTuple):
    """A file or folder whose kind is looked for.

    Attributes:
        path: Its place.
        names: The names in a folder that are not hidden; None for a file.
        start: The first bytes of a file.
        size: The size of a file.
    """

    path: Place
    names: frozenset[str] | None
    start: bytes
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Options for opening a foreign file.

    Attributes:
        separator: The character between the keys of nested files.
        limits: Sizes above which a file is refused.
        like: An object of the structure of the file, for formats that have none of their own.
    """

    separator: str = "."
    limits: Limits = DEFAULT_LIMITS
    like: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """Options for writing a foreign file.

    Attributes:
        separator: The character between the keys of nested files.
        metadata: Free text of the file.
        form: The form of the file that is written again; see :class:`ForeignFile`.
        max_shard_size: Bytes of arrays in one file of a folder; None for one file.
    """

    separator: str = "."
    metadata: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, Any] = field(default_factory=dict)
    max_shard_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One kind of foreign file: its operations, and the facts that other code needs about it.

    Attributes:
        name: Its name, for ``write`` and in results.
        title: The words for such a file in messages, such as ``a safetensors file``.
        suffix: The suffix of such files; empty for folders.
        recognises: Returns whether a file or folder is of this kind, by its names and first bytes alone.
        opened: Opens a file, on a disk or behind a URL; reads only what describes its arrays.
        write: Writes arrays to an empty file, or into an empty folder; None if files of this kind are only read.
        folder: Returns whether these options make a folder.
        metadata: True if files of this kind have free text.
        store: How bundles use such files for their arrays; None if they do not.
        whole: Returns whether a folder with these names is one checkpoint, so that no file in it is one.
    """

    name: str
    title: str
    suffix: str
    recognises: Callable[[Candidate], bool]
    opened: Callable[[Place, Reading], ForeignFile]
    write: Callable[[Path, Mapping[str, ForeignArray], Writing], None] | None
    folder: Callable[[Writing], bool]
    metadata: bool
    store: Store | None = None
    whole: Callable[[Collection[str]], bool] = bool


#: All kinds by name, in the order in which they are tried; ``formats/__init__.py`` has the rows.
FORMATS: Final[Rows[Format]] = Rows()


def register(formats: Iterable[Format]) -> None:
    """Adds kinds to the table.

    Raises:
        ValueError: One has the name of another one.
    """
    for each in formats:
        if each.name in FORMATS:
            message = f"expected formats of different names, got {each.name!r} twice"
            raise ValueError(message)
        FORMATS[each.name] = each
        if each.store is not None:
            STORES[each.store.name] = each.store


def candidate(path: Path) -> Candidate:
    """The facts about a file or folder by which its kind is found.

    Raises:
        BundleMissingError: There is nothing at the path.
        BundleReadError: The system refuses to read it.
    """
    try:
        if path.is_dir():
            return Candidate(path, frozenset(shown_names(os.listdir(path))), b"", 0)  # noqa: PTH208 - names alone
        fd, size = _opened(path)
        with os.fdopen(fd, "rb", buffering=0) as file:
            return Candidate(path, None, file.read(_START) or b"", size)
    except OSError as error:
        raise _refused(error, path) from error
    except ValueError as error:  # a path with a zero byte
        message = f"expected a path that the system takes, got {str(path)!r}"
        raise BundleReadError(message) from error


def remote_candidate(path: RemotePath) -> Candidate:
    """The facts about a file or folder behind a URL."""
    if path.is_dir():
        return Candidate(path, path.names(), b"", 0)
    return Candidate(path, None, bytes(path.start[:_START]), path.size)


def _opened(path: Path) -> tuple[int, int]:
    """Opens a plain file; a pipe or a device is refused without waiting for it."""
    fd = os.open(path, _READ)
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode):
        return fd, found.st_size
    os.close(fd)
    message = "expected a plain file, got something else"
    raise UntrustedError(message, code="NQX504", file=str(path))


def _refused(error: OSError, path: Path) -> SerializationError:
    """An error of the system as one that names the file."""
    if isinstance(error, SerializationError):
        return error
    if isinstance(error, FileNotFoundError):
        hint = path_meant(path)
        none = BundleMissingError("expected a file or folder, got none", file=str(path), hint=hint)
        return numbered(none, errno.ENOENT, path)
    message = f"expected to read the file, got: {error.strerror or error}"
    hint = "check the owner and the mode of the file, or the disk"
    return numbered(BundleReadError(message, file=str(path), hint=hint), error.errno, path)


def ranges_of(path: Place) -> Ranges:
    """The bytes of a file: mapped, or fetched when they are read."""
    if isinstance(path, RemotePath):
        return Ranges(path.size, path.read, Blocks(path.size, path.read), cheap=False)
    return Ranges.of(mapped(path))


def on_disk(path: Place) -> tuple[Path, Callable[[], object]]:
    """A file on this disk for programs that read nothing else, and the function that ends its use."""
    return downloaded(path, folder=False) if isinstance(path, RemotePath) else (path, lambda: None)


def mapped(path: Path) -> memoryview:
    """The bytes of a file, mapped: only those that are used are read.

    Raises:
        IntegrityError: The file is empty.
        SerializationError: There is no plain file, or the system refuses to read it.
    """
    try:
        fd, size = _opened(path)
        with os.fdopen(fd, "rb", buffering=0) as file:
            view = opened_source((cast("BinaryIO", file), 0, size), mmap=True).view
    except OSError as error:
        raise _refused(error, path) from error
    except IntegrityError as error:
        raise error.in_file(str(path)) from None
    return cast("memoryview", view)


def require_separator(separator: str) -> None:
    """Checks that keys can be joined with a separator.

    Raises:
        SerializationError: It is not one character, or a backslash.
    """
    if len(separator) != 1 or separator == "\\":
        message = f"expected one character but the backslash as separator, got {separator!r}"
        raise SerializationError(message, code="NQX614", hint="use '.' or '/'")


def joined(keys: Iterable[str], separator: str = ".") -> str:
    """The name of an array from its keys, of which there is at least one; the inverse of :func:`split`."""
    escaped = f"\\{separator}"
    return separator.join(key.replace("\\", "\\\\").replace(separator, escaped) for key in keys)


def split(name: str, separator: str = ".") -> list[str]:
    """The keys of an array from its name; the inverse of :func:`joined`."""
    keys = [""]
    characters = iter(name)
    for character in characters:
        if character == separator:
            keys.append("")
        else:
            keys[-1] += next(characters, "\\") if character == "\\" else character
    return keys
