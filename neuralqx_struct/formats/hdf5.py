"""The foreign format ``hdf5``: groups and datasets are names and arrays; scalar attributes and texts are values.

Nothing outside the file is read: external links, external storage and virtual datasets are refused. Links inside the file are
passed over, as their targets have names of their own. Objects and references are listed and not read. Needs the extra ``hdf5``.

The C library of HDF5 reads the file in this process. A file that was made to harm it can end the process or take any memory, so
only files from people you trust should be read (``SECURITY.md``). Elements that lie in the file as numpy has them in memory
are read from the mapped file, or from the URL, without that library.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from neuralqx_struct.dtypes import dtype_name
from neuralqx_struct.errors import (
    Diagnostic,
    IntegrityError,
    SerializationError,
    StructError,
    UntrustedError,
)
from neuralqx_struct.formats.archive import damaged
from neuralqx_struct.formats.ranges import Ranges, array_in, part_in
from neuralqx_struct.formats.store import about, about_each, require_possible
from neuralqx_struct.formats.table import (
    MOST_EXPANSION,
    Candidate,
    ForeignArray,
    ForeignFile,
    Format,
    Plain,
    Reading,
    joined,
    ranges_of,
    unreadable,
)
from neuralqx_struct.manifest import raise_findings
from neuralqx_struct.manifest.payload import Region
from neuralqx_struct.places.urls import Place
from neuralqx_struct.printing import is_unicode
from neuralqx_struct.references import imported

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

Keys = tuple[str, ...]

_MAGIC: Final = b"\x89HDF\r\n\x1a\n"
_PLACES: Final = (0, 512)  # where the format may begin, within the bytes by which a kind is found
_KNOWN: Final = "numbers, truth values or text of one length"
_HINT: Final = "write it with h5py as one of these, such as bfloat16 as its bits"
_SAME_BYTES: Final = "iufcS"  # kinds of elements that numpy has in memory as they are in a file
_LIMIT: Final = "NQX005"
#: The errors that h5py raises for damaged files.
_FAULTS: Final = (
    OSError,
    RuntimeError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    OverflowError,
    MemoryError,
)


class _Fetched(io.RawIOBase):
    """A file behind a URL, of which h5py reads ranges.

    Args:
        data: Its bytes.

    Attributes:
        fault: The error of the last read, which h5py replaces with its own.
    """

    def __init__(self, data: Ranges) -> None:
        super().__init__()
        self._data, self._at = data, 0
        self.fault: StructError | None = None

    def seek(self, offset: int, whence: int = 0) -> int:
        """Sets the position."""
        self._at = offset + (0, self._at, self._data.size)[whence]
        return self._at

    def tell(self) -> int:
        """The position."""
        return self._at

    def seekable(self) -> bool:
        """True."""
        return True

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fills a buffer with the next bytes."""
        view = memoryview(buffer).cast("B")
        try:
            found = self._data.view[self._at : self._at + len(view)]
        except StructError as error:
            self.fault = error
            raise
        view[: len(found)] = found
        self._at += len(found)
        return len(found)


class _Source:
    """A file that h5py opens when it is needed; after it was closed, again.

    Args:
        path: Its place.
        data: Its bytes.

    Attributes:
        h5py: The module.
    """

    def __init__(self, path: Place, data: Ranges) -> None:
        self.h5py = imported("h5py", "hdf5", "HDF5 files")
        self._path = path
        self._fetched = _Fetched(data)
        self._file: Any = None

    def opened(self) -> Any:
        """The file.

        Raises:
            IntegrityError: h5py does not open it.
        """
        if self._file is None:
            try:
                with self.faults():
                    self._file = self._open()
            except _FAULTS as error:
                raise damaged(f"expected a file that h5py opens, got: {_brief(error)}") from error
        return self._file

    def _open(self) -> Any:
        if isinstance(self._path, Path):
            return self.h5py.File(self._path, "r", locking=False)
        return self.h5py.File(self._fetched, "r")

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Raises the error of a server in place of that of h5py."""
        self._fetched.fault = None
        try:
            yield
        except _FAULTS:
            if self._fetched.fault is not None:
                raise self._fetched.fault from None
            raise

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


class _Contents:
    """Makes arrays and values of the objects in a file.

    Args:
        source: The file.
        data: Its bytes.
        reading: Options for reading.

    Attributes:
        arrays: The arrays by name.
        values: The values by name.
        found: The problems.
    """

    def __init__(self, source: _Source, data: Ranges, reading: Reading) -> None:
        self.arrays: dict[str, ForeignArray] = {}
        self.values: dict[str, Plain] = {}
        self.found: list[Diagnostic] = []
        self._source, self._data, self._h5py = source, data, source.h5py
        self._limits, self._separator = reading.limits, reading.separator
        self._groups: set[int] = set()
        self._names = self._text = 0

    def add_group(self, group: Any, keys: Keys = ()) -> None:
        """Adds the objects in a group, unless it was reached before."""
        self._count_name(keys)
        members: list[str] = []
        with self._findings(keys):
            address = self._h5py.h5o.get_info(group.id).addr
            if address in self._groups:
                return
            self._groups.add(address)
            self._add_attributes(group, keys)
            members += group
        for key in members:
            inner = (*keys, key)
            self._count_name(inner)
            with self._findings(inner):
                self._add_member(group, key, inner)

    # Limits and problems

    def _require(self, count: int, most: int, words: str) -> None:
        if count > most:
            message = f"expected at most {most} {words} in an HDF5 file, got more"
            raise SerializationError(message, code=_LIMIT, hint="pass limits= to read more")

    def _count_name(self, keys: Keys) -> None:
        self._names += 1
        self._require(self._names, self._limits.nodes, "names")
        self._require(len(keys), self._limits.depth, "levels")
        self._count_text(sum(map(len, keys)) + len(keys))

    def _count_text(self, size: int) -> None:
        self._text += size
        self._require(self._text, self._limits.manifest_bytes, "bytes of names and texts")

    @contextmanager
    def _findings(self, keys: Keys) -> Iterator[None]:
        """Keeps errors about an object; those about limits and servers end the walk."""
        name = joined(keys, self._separator)
        try:
            with self._source.faults():
                yield
        except StructError as error:
            problems = error.diagnostics
            if error.code == _LIMIT or any(each.file for each in problems):
                raise
            self.found += [d if d.path else about_each(name, error)[0] for d in problems]
        except _FAULTS as error:
            self.found += _unread(name, _brief(error)).diagnostics

    # Objects

    def _name_of(self, keys: Keys) -> str:
        name = joined(keys, self._separator)
        if not is_unicode(name):
            message = "expected names that are text, got other bytes"
            raise IntegrityError(message, code="NQX408")
        return name

    def _add_attributes(self, held: Any, keys: Keys) -> None:
        """Adds the scalar attributes of an object."""
        for key in held.attrs:
            facts = held.attrs.get_id(key)
            is_text = self._h5py.check_string_dtype(facts.dtype) is not None
            if facts.shape == () and (is_text or facts.dtype.kind in "biuf"):
                inner = (*keys, key)
                self._count_name(inner)
                self.values[self._name_of(inner)] = self._plain(held.attrs[key])

    def _add_member(self, group: Any, key: str, keys: Keys) -> None:
        link = group.get(key, getlink=True)
        if isinstance(link, self._h5py.ExternalLink):
            raise _outside("expected everything inside the file, got a link to another file")
        if not isinstance(link, self._h5py.HardLink):
            return
        found = group[key]
        if isinstance(found, self._h5py.Group):
            self.add_group(found, keys)
        elif isinstance(found, self._h5py.Dataset):
            self._add_attributes(found, keys)
            self._add_dataset(found, keys)

    def _add_dataset(self, data: Any, keys: Keys) -> None:
        name = self._name_of(keys)
        if data.is_virtual or data.external:
            raise _outside("expected data inside the file, got a dataset that is in others")
        is_text = data.dtype.kind == "O" and self._h5py.check_string_dtype(data.dtype)
        if data.shape is None:
            self.values[name] = None
        elif data.shape == () and is_text:
            self.values[name] = self._plain(data.asstr()[()])
        else:
            self.arrays[name] = self._array(name, data, keys)

    def _plain(self, value: Any) -> Plain:
        plain = value.item() if hasattr(value, "item") else value
        if isinstance(plain, bytes):
            plain = plain.decode("utf-8", "replace")
        if isinstance(plain, str):
            self._count_text(len(plain))
        elif plain is not None and type(plain) not in (bool, int, float):
            plain = float(plain)
        checked: Plain = plain
        return checked

    def _array(self, name: str, data: Any, keys: Keys) -> ForeignArray:
        import numpy as np

        shape, stored = tuple(data.shape), data.id.get_storage_size()
        plain = data.dtype.names is None and data.dtype.subdtype is None
        try:
            dtype = np.dtype(data.dtype.str if plain else "V")  # without the metadata of h5py
            logical = dtype_name(dtype)
        except SerializationError:
            words = str(data.dtype)
            return ForeignArray(words, shape, unreadable(name, words, _KNOWN, _HINT))
        require_possible(shape, dtype.itemsize)
        size = prod(shape) * dtype.itemsize
        nbytes = max(size, prod(data.chunks or ()) * dtype.itemsize)
        if nbytes > self._limits.full_bytes and nbytes > MOST_EXPANSION * stored:
            message = f"expected at most {self._limits.full_bytes} bytes, got {stored} that expand to {nbytes}"
            raise UntrustedError(message, code="NQX505", hint="pass limits= to read more")
        place = self._place(data)
        if place is None or stored != size:
            part = partial(_part, self._source, name, _Packed(keys, dtype, shape))
            return ForeignArray(logical, shape, partial(part, (slice(None),) * len(shape)), part)
        if place + size > self._data.size:
            message = f"expected {size} bytes at byte {place}, got a file of {self._data.size}"
            raise IntegrityError(message, code="NQX408")
        whole = partial(array_in, self._data, place, dtype, shape)
        if self._data.cheap:
            return ForeignArray(logical, shape, whole, cheap=True)
        region = partial(part_in, self._data, place, dtype, shape)
        return ForeignArray(logical, shape, whole, region)

    def _place(self, data: Any) -> int | None:
        """The place of the elements in the file, if their bytes are those of numpy, one after the other."""
        if data.dtype.kind not in _SAME_BYTES or data.file.userblock_size:
            return None
        own = self._h5py.h5t.py_create(data.dtype, logical=True)
        place = data.id.get_offset() if own.equal(data.id.get_type()) else None
        return None if place is None else int(place)


class _Packed(NamedTuple):
    """An array whose elements only the C library reads."""

    keys: Keys
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def _part(source: _Source, name: str, packed: _Packed, region: Region) -> Array:
    """A part of a packed array: h5py reads the elements between its first and its last one."""
    import numpy as np

    wanted = [range(*each.indices(n)) for each, n in zip(region, packed.shape, strict=True)]
    around = tuple(slice(min(each), max(each) + 1) if each else slice(0, 0) for each in wanted)
    extent = tuple(part.stop - part.start for part in around)
    file = source.opened()
    try:
        with source.faults():
            made: Array = np.asarray(file["/".join(packed.keys)][around])
    except StructError:
        raise
    except _FAULTS as error:
        raise _unread(name, _brief(error)) from error
    if (made.dtype, made.shape) != (packed.dtype, extent):
        raise _unread(name, "another dtype or size than before")
    steps: tuple[Any, ...] = tuple(slice(None, None, each.step) for each in wanted)
    made = made[(*steps, ...)]
    made.flags.writeable = False
    return made


def _brief(error: BaseException) -> str:
    """The first line of an error."""
    return (str(error) or type(error).__name__).partition("\n")[0][:300]


def _outside(message: str) -> UntrustedError:
    return UntrustedError(message, code="NQX503", hint="copy the dataset into the file")


def _unread(name: str, reason: str) -> IntegrityError:
    message = f"expected an object that h5py reads, got: {reason}"
    return IntegrityError(about("NQX408", name, message, "restore it from a copy"))


def _opened(path: Place, reading: Reading) -> ForeignFile:
    data = ranges_of(path)
    source = _Source(path, data)
    contents = _Contents(source, data, reading)
    try:
        contents.add_group(source.opened())
        raise_findings(contents.found)
    except BaseException:
        source.close()
        raise
    return ForeignFile(
        path=str(path),
        format=HDF5.name,
        arrays=contents.arrays,
        values=contents.values,
        close=source.close,
    )


def _recognises(found: Candidate) -> bool:
    return any(found.start[place:].startswith(_MAGIC) for place in _PLACES)


HDF5: Final = Format(
    name="hdf5",
    title="an HDF5 file",
    suffix=".h5",
    recognises=_recognises,
    opened=_opened,
    write=None,
    folder=lambda _: False,
    metadata=False,
)
