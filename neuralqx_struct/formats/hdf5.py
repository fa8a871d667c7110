"""The foreign format ``hdf5``: groups and datasets are names and arrays; scalar attributes and texts are values.

Nothing outside the file is read: external links, external storage and virtual datasets are refused. Links inside the file are
passed over, as their targets have names of their own. Objects and references are listed and not read. Needs the extra ``hdf5``.

The C library runs in a process of its own with limits of memory and time, as damaged files can crash or hold it. Elements
that are not packed are read from the mapped file, or from the URL, without it.
"""

from __future__ import annotations

import importlib.util
import json
import threading
import weakref
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from neuralqx_struct.dtypes import dtype_name
from neuralqx_struct.errors import (
    READ_MORE,
    Diagnostic,
    IntegrityError,
    SerializationError,
    StructError,
    UntrustedError,
)
from neuralqx_struct.formats import hdf5_reader
from neuralqx_struct.formats.archive import damaged
from neuralqx_struct.formats.ranges import Ranges, StoredArray
from neuralqx_struct.formats.store import about, about_each, require_possible
from neuralqx_struct.formats.table import (
    MOST_EXPANSION,
    Candidate,
    ForeignFile,
    Format,
    Plain,
    Reading,
    arrays_of,
    joined,
    ranges_of,
    unreadable,
)
from neuralqx_struct.manifest import raise_findings
from neuralqx_struct.manifest.payload import ForeignArray, Region
from neuralqx_struct.places.apart import started
from neuralqx_struct.places.requests import Range
from neuralqx_struct.places.urls import Place
from neuralqx_struct.printing import is_unicode
from neuralqx_struct.references import imported

if TYPE_CHECKING:
    import subprocess

    import numpy as np

    Array = np.ndarray[Any, Any]

_MAGIC: Final = b"\x89HDF\r\n\x1a\n"
_PLACES: Final = (0, 512)  # where the format may begin, within the bytes by which a kind is found
_KNOWN: Final = "numbers, truth values or text of one length"
_HINT: Final = "write it with h5py as one of these, such as bfloat16 as its bits"
_STOPPED: Final = "one that stops it"
_OUTSIDE: Final = {
    "link": "expected everything inside the file, got a link to another file",
    "data": "expected data inside the file, got a dataset that is in others",
}
#: Bytes per second that a sound file takes at least: of the list of its objects, and of packed elements.
_SLOWEST_LIST, _SLOWEST_DATA = 1 << 20, 10 << 20
_LEAST, _MOST = 10, 3600  # seconds of processor time for one request


class Reader:
    """Asks the process that reads a file; starts it when it is needed.

    Args:
        path: The path of a file on a disk; None for one behind a URL.
        data: The bytes of the file.
    """

    def __init__(self, path: Path | None, data: Ranges) -> None:
        self._path, self._data = path, data
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = started(hdf5_reader.__file__)
            weakref.finalize(self, _ended, self._process)
        return self._process

    def close(self) -> None:
        """Ends the process; a later request starts another one."""
        if self._process is not None:
            _ended(self._process)
            self._process = None

    def ask(
        self, request: dict[str, Any], memory: int, seconds: float
    ) -> tuple[dict[str, Any], bytes]:
        """Returns the answer to a request, and the bytes after it.

        Args:
            request: The request.
            memory: Bytes of memory that it may take.
            seconds: Seconds of processor time that it may take.

        Raises:
            IntegrityError: The process was stopped.
        """
        bounds = {"memory": memory, "seconds": int(min(max(seconds, _LEAST), _MOST))}
        path = None if self._path is None else str(self._path)
        whole = {**request, **bounds, "path": path, "size": self._data.size}
        with self._lock:
            try:
                return self._exchanged(self._started(), json.dumps(whole).encode())
            except (OSError, ValueError) as error:  # it ended, or its answer did
                self.close()
                if isinstance(error, StructError):
                    raise
            except BaseException:  # it still waits for bytes
                self.close()
                raise
        raise damaged(f"expected a file that h5py reads, got {_STOPPED}")

    def _exchanged(
        self, process: subprocess.Popen[bytes], request: bytes
    ) -> tuple[dict[str, Any], bytes]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(request + b"\n")
        process.stdin.flush()
        while True:
            answer: dict[str, Any] = json.loads(process.stdout.readline())
            if "fetch" not in answer:
                return answer, process.stdout.read(answer.get("nbytes", 0))
            process.stdin.write(self._data.view[slice(*answer["fetch"])])
            process.stdin.flush()


def _ended(process: subprocess.Popen[bytes]) -> None:
    """Ends a process at once: it has nothing to save."""
    process.kill()
    process.communicate()


class Contents:
    """Makes arrays and values of the objects in a file.

    Args:
        reader: The process that reads the file.
        data: The bytes of the file.
        reading: Options for reading.

    Attributes:
        arrays: The arrays by name.
        values: The values by name.
        found: The problems.
    """

    def __init__(self, reader: Reader, data: Ranges, reading: Reading) -> None:
        self.arrays: dict[str, ForeignArray] = {}
        self.values: dict[str, Plain] = {}
        self.found: list[Diagnostic] = []
        self._reader, self._data = reader, data
        self._limits, self._separator = reading.limits, reading.separator

    def read(self) -> None:
        """Reads the list of objects."""
        limits = {
            "names": self._limits.nodes,
            "bytes of names and texts": self._limits.manifest_bytes,
            "levels": self._limits.depth,
        }
        memory, seconds = 8 * self._limits.manifest_bytes, self._data.size / _SLOWEST_LIST
        answer, _ = self._reader.ask({"limits": limits}, memory, seconds)
        if "limit" in answer:
            words = answer["limit"]
            message = f"expected at most {limits[words]} {words} in an HDF5 file, got more"
            raise SerializationError(message, code="NQX005", hint=READ_MORE)
        reason = answer.get("unopened", answer.get("fault"))
        if reason is not None:
            raise damaged(f"expected a file that h5py opens, got: {reason}")
        for each in answer["objects"]:
            name = joined(each["keys"], self._separator)
            try:
                self._add(name, each)
            except StructError as error:
                problems = error.diagnostics
                self.found += [d if d.path else about_each(name, error)[0] for d in problems]

    def _add(self, name: str, item: dict[str, Any]) -> None:
        if "fault" in item:
            raise _fault(name, item["fault"])
        if not is_unicode(name):
            message = "expected names that are text, got other bytes"
            raise IntegrityError(message, code="NQX408")
        if "outside" in item:
            hint = "copy the dataset into the file"
            raise UntrustedError(_OUTSIDE[item["outside"]], code="NQX503", hint=hint)
        if "value" in item:
            self.values[name] = item["value"]
            return
        self.arrays[name] = self._array(name, item)

    def _array(self, name: str, item: dict[str, Any]) -> ForeignArray:
        import numpy as np

        shape, stored = tuple(item["shape"]), item["stored"]
        try:
            dtype = np.dtype(item["dtype"] or "V")
            logical = dtype_name(dtype)
        except SerializationError:
            read = unreadable(name, item["words"], _KNOWN, _HINT)
            return ForeignArray(item["words"], shape, read)
        require_possible(shape, dtype.itemsize)
        size = prod(shape) * dtype.itemsize
        chunk = prod(item["chunks"]) * dtype.itemsize
        nbytes = max(size, chunk)
        if nbytes > self._limits.full_bytes and nbytes > MOST_EXPANSION * stored:
            message = f"expected at most {self._limits.full_bytes} bytes, got {stored} that expand to {nbytes}"
            raise UntrustedError(message, code="NQX505", hint=READ_MORE)
        place = item["place"]
        if place is None or stored != size:
            part = partial(self._part, name, _Packed(tuple(item["keys"]), dtype, shape, chunk))
            return ForeignArray(logical, shape, partial(part, (slice(None),) * len(shape)), part)
        if place + size > self._data.size:
            message = f"expected {size} bytes at byte {place}, got a file of {self._data.size}"
            raise IntegrityError(message, code="NQX408")
        stored = StoredArray(logical, shape, Range(place, place + size))
        return arrays_of(self._data, {name: stored})[name]

    def _part(self, name: str, packed: _Packed, region: Region) -> Array:
        """A part of an array of which the process reads the elements."""
        import numpy as np

        wanted = [range(*each.indices(n)) for each, n in zip(region, packed.shape, strict=True)]
        around = [(min(each), max(each) + 1) if each else (0, 0) for each in wanted]
        shape = tuple(end - start for start, end in around)
        size = prod(shape) * packed.dtype.itemsize
        request = {"keys": packed.keys, "region": around}
        memory = 4 * size + 4 * packed.chunk
        seconds = max(size, packed.chunk) / _SLOWEST_DATA
        try:
            answer, data = self._reader.ask(request, memory, seconds)
        except IntegrityError as error:
            if error.diagnostics[0].file is not None:  # the bytes behind a URL
                raise
            raise _fault(name, _STOPPED) from error
        if "dtype" not in answer:
            raise _fault(name, answer.get("fault", answer.get("unopened", "")))
        if (answer["dtype"], len(data)) != (packed.dtype.str, size):
            raise _fault(name, "another dtype or size than before")
        made = np.frombuffer(data, packed.dtype) if size else np.empty(0, packed.dtype)
        steps: tuple[Any, ...] = tuple(slice(None, None, each.step) for each in wanted)
        made = made.reshape(shape)[(*steps, ...)]
        made.flags.writeable = False
        return made


class _Packed(NamedTuple):
    """An array whose elements need the C library: its keys, dtype and shape, and the bytes of one chunk."""

    keys: tuple[str, ...]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    chunk: int


def _fault(name: str, reason: str) -> IntegrityError:
    message = f"expected an object that h5py reads, got: {reason}"
    return IntegrityError(about("NQX408", name, message, "restore it from a copy"))


def _opened(path: Place, reading: Reading) -> ForeignFile:
    if (
        importlib.util.find_spec("h5py") is None
    ):  # to import it takes longer, and only the process needs it
        imported("h5py", "hdf5", "HDF5 files")
    data = ranges_of(path)
    reader = Reader(path if isinstance(path, Path) else None, data)
    contents = Contents(reader, data, reading)
    try:
        contents.read()
        raise_findings(contents.found)
    except BaseException:
        reader.close()
        raise
    return ForeignFile(
        path=str(path),
        format=HDF5.name,
        arrays=contents.arrays,
        values=contents.values,
        close=reader.close,
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
