"""The foreign format ``hdf5``: groups and datasets are names and arrays; scalar attributes and texts are values.

Nothing outside the file is read: external links, external storage and virtual datasets are refused. Links inside the file are
passed over, as their targets have names of their own. Objects and references are listed and not read. Needs the extra ``hdf5``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from neuralqx_struct.bundle.urls import Place
from neuralqx_struct.dtypes import dtype_name
from neuralqx_struct.errors import Diagnostic, IntegrityError, SerializationError, UntrustedError
from neuralqx_struct.formats.names import joined
from neuralqx_struct.formats.table import (
    MOST_EXPANSION,
    Candidate,
    ForeignArray,
    ForeignFile,
    Format,
    Plain,
    Reading,
    mapped,
    on_disk,
    unreadable,
)
from neuralqx_struct.manifest.payload import Region, raise_findings
from neuralqx_struct.printing import is_unicode
from neuralqx_struct.stores.archive import damaged
from neuralqx_struct.stores.store import about, about_each, imported, require_possible

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

Keys = tuple[str, ...]

_MAGIC: Final = b"\x89HDF\r\n\x1a\n"
_PLACES: Final = (0, 512)  # where the format may begin, within the bytes by which a kind is found
_KNOWN: Final = "numbers, truth values or text of one length"
_HINT: Final = "write it with h5py as one of these, such as bfloat16 as its bits"
#: The errors that h5py raises for damaged files.
_FAULTS: Final = (OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError)


@contextmanager
def _faults_named(name: str) -> Iterator[None]:
    """Raises errors of h5py as errors about an array or a group."""
    try:
        yield
    except SerializationError:
        raise
    except _FAULTS as error:
        reason = str(error).partition("\n")[0][:300]
        message = f"expected an object that h5py reads, got: {reason}"
        raise IntegrityError(about("NQX408", name, message, "restore it from a copy")) from error


class _Walk:
    """Collects the arrays and values of a file.

    Args:
        reading: Options for reading.

    Attributes:
        arrays: The arrays by name.
        values: The values by name.
        found: The problems.
    """

    def __init__(self, reading: Reading) -> None:
        self.arrays: dict[str, ForeignArray] = {}
        self.values: dict[str, Plain] = {}
        self.found: list[Diagnostic] = []
        self._h5py = imported("h5py", "hdf5", "HDF5 files")
        self._limits, self._separator = reading.limits, reading.separator
        self._groups: set[int] = set()
        self._nodes = self._text = 0

    def file(self, path: Path) -> None:
        """Adds the members of a file, which stays open as long as its arrays."""
        try:
            root = self._h5py.File(path, "r", locking=False)
        except _FAULTS as error:
            reason = str(error).partition("\n")[0][:300]
            raise damaged(f"expected a file that h5py opens, got: {reason}") from error
        self.group(root)

    def name(self, *keys: str) -> str:
        """The name of an object; every name counts towards the limits."""
        name = joined(keys, self._separator)
        self._nodes += 1
        self._text += len(name)
        self._require(self._nodes, self._limits.nodes, "names")
        self._require(self._text, self._limits.manifest_bytes, "bytes of names and texts")
        self._require(len(keys), self._limits.depth, "levels")
        return name

    def _require(self, count: int, most: int, words: str) -> None:
        if count > most:
            message = f"expected at most {most} {words} in an HDF5 file, got more"
            raise SerializationError(message, code="NQX005", hint="pass limits= to read more")

    def group(self, group: Any, *keys: str) -> None:
        """Adds the members of a group, unless it was reached before."""
        with _faults_named(self.name(*keys)):
            address = self._h5py.h5o.get_info(group.id).addr
            if address in self._groups:
                return
            self._groups.add(address)
            self._attributes(group, keys)
            members = list(group)
        for key in members:
            name = self.name(*keys, key)
            try:
                with _faults_named(name):
                    self._member(group, keys, key)
            except SerializationError as error:
                if error.code == "NQX005":
                    raise
                self.found += [
                    d if d.path else about_each(name, error)[0] for d in error.diagnostics
                ]

    def _member(self, group: Any, keys: Keys, key: str) -> None:
        if not is_unicode(key):
            message = "expected names that are text, got other bytes"
            raise IntegrityError(message, code="NQX408")
        link = group.get(key, getlink=True)
        if isinstance(link, self._h5py.ExternalLink):
            hint = "copy the dataset into the file"
            message = "expected everything inside the file, got a link to another file"
            raise UntrustedError(message, code="NQX503", hint=hint)
        if not isinstance(link, self._h5py.HardLink):
            return
        found = group[key]
        if isinstance(found, self._h5py.Group):
            self.group(found, *keys, key)
        elif isinstance(found, self._h5py.Dataset):
            self._attributes(found, (*keys, key))
            self._dataset(joined((*keys, key), self._separator), found)

    def _attributes(self, held: Any, keys: Keys) -> None:
        """Adds the scalar attributes of an object; others are no values."""
        for key in held.attrs:
            facts = held.attrs.get_id(key)
            is_text = self._h5py.check_string_dtype(facts.dtype) is not None
            if facts.shape == () and (is_text or facts.dtype.kind in "biuf"):
                self._add(self.name(*keys, key), held.attrs[key])

    def _add(self, name: str, value: Any) -> None:
        plain = value.item() if hasattr(value, "item") else value
        if isinstance(plain, bytes):
            plain = plain.decode("utf-8", "replace")
        if type(plain) is str:
            self._text += len(plain)
            self._require(self._text, self._limits.manifest_bytes, "bytes of names and texts")
        self.values[name] = plain

    def _dataset(self, name: str, data: Any) -> None:
        if data.is_virtual or data.external:
            message = "expected data inside the file, got a dataset that is in others"
            raise UntrustedError(message, code="NQX503", hint="copy the dataset into the file")
        if data.shape is None:
            self.values[name] = None
            return
        shape, dtype = tuple(data.shape), data.dtype
        if shape == () and dtype.kind == "O" and self._h5py.check_string_dtype(dtype):
            self._add(name, data.asstr()[()])
            return
        try:
            logical = dtype_name(dtype)
        except SerializationError:
            read = unreadable(name, str(dtype), _KNOWN, _HINT)
            self.arrays[name] = ForeignArray(str(dtype), shape, read)
            return
        require_possible(shape, dtype.itemsize)
        stored = data.id.get_storage_size()
        nbytes = max(prod(shape), prod(data.chunks or ())) * dtype.itemsize
        if nbytes > self._limits.full_bytes and nbytes > MOST_EXPANSION * stored:
            message = f"expected at most {self._limits.full_bytes} bytes, got {stored} that expand to {nbytes}"
            raise UntrustedError(message, code="NQX505", hint="pass limits= to read more")
        part = _part(name, data)
        self.arrays[name] = ForeignArray(logical, shape, partial(part, ...), part)


def _part(name: str, data: Any) -> Callable[[Any], Array]:
    """The function that reads a part of a dataset."""
    import numpy as np

    def part(region: Region) -> Array:
        with _faults_named(name):
            made = np.asarray(data[region])
        made.flags.writeable = False
        return made

    return part


def _opened(path: Place, reading: Reading) -> ForeignFile:
    file, close = on_disk(path)
    mapped(file)  # a plain file, and one that the system lets us read
    walk = _Walk(reading)
    walk.file(file)
    raise_findings(walk.found)
    return ForeignFile(
        path=str(path), format=HDF5.name, arrays=walk.arrays, values=walk.values, close=close
    )


def _recognises(found: Candidate) -> bool:
    return any(found.start[place:].startswith(_MAGIC) for place in _PLACES)


HDF5: Final = Format(
    name="hdf5",
    title="an HDF5 file",
    suffix=".h5",
    extra="hdf5",
    recognises=_recognises,
    opened=_opened,
    write=None,
    folder=lambda _: False,
    metadata=False,
)
