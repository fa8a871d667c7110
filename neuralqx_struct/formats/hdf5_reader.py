"""The process that reads an HDF5 file, as the C library has no bounds of its own for damaged files.

It runs apart from the package, which ``hdf5.py`` starts: it imports h5py alone, and has limits of memory and processor
time for each request. Requests and answers are lines of JSON on the standard input and output, with bytes after some.
The bytes of a file behind a URL are asked for in ranges.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from typing import Any

if sys.platform != "win32":  # which has no such limits
    import resource

Keys = tuple[str, ...]

#: The errors that h5py raises for damaged files.
FAULTS = (
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
_CONTIGUOUS = "iufcS"  # kinds of elements whose bytes are those of numpy
_START = 1 << 28  # bytes of memory that every request may take


class LimitError(Exception):
    """There is more in a file than the limits allow."""


def limited(memory: int, seconds: int) -> None:
    """Sets the limits for the next request: further bytes of memory, and seconds of processor time."""
    if sys.platform == "win32":
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    spent = int(used.ru_utime + used.ru_stime) + 1
    _limit(resource.RLIMIT_CPU, spent + seconds)
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - pathlib costs time
            pages = int(file.read().split()[0])
    except OSError:  # the kernel of macOS has no such file, nor the limit
        return
    _limit(resource.RLIMIT_AS, pages * resource.getpagesize() + memory + _START)


def _limit(kind: int, value: int) -> None:
    if sys.platform == "win32":
        return
    hard = resource.getrlimit(kind)[1]
    soft = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (soft, hard))


class Walk:
    """Lists the objects in a file.

    Args:
        h5py: The module.
        most: The largest number of names, of their bytes, and of levels.

    Attributes:
        found: The objects, each with its keys.
    """

    def __init__(self, h5py: Any, most: dict[str, int]) -> None:
        self.found: list[dict[str, Any]] = []
        self._h5py, self._most = h5py, most
        self._groups: set[int] = set()
        self._counts = {"names": 0, "bytes of names and texts": 0, "levels": 0}

    def _count(self, words: str, count: int) -> None:
        self._counts[words] = count
        if count > self._most[words]:
            raise LimitError(words)

    def _name(self, keys: Keys) -> None:
        """Counts a name; every name counts towards the limits."""
        self._count("names", self._counts["names"] + 1)
        self._text("".join(keys), len(keys))
        self._count("levels", len(keys))

    def _text(self, text: str, more: int = 0) -> None:
        words = "bytes of names and texts"
        self._count(words, self._counts[words] + len(text) + more)

    def group(self, group: Any, keys: Keys = ()) -> None:
        """Lists the members of a group, unless it was reached before."""
        self._name(keys)
        try:
            address = self._h5py.h5o.get_info(group.id).addr
            if address in self._groups:
                return
            self._groups.add(address)
            self._attributes(group, keys)
            members = list(group)
        except FAULTS as error:
            self._fault(keys, error)
            return
        for key in members:
            inner = (*keys, key)
            self._name(inner)
            try:
                self._member(group, key, inner)
            except FAULTS as error:
                self._fault(inner, error)

    def _fault(self, keys: Keys, error: BaseException) -> None:
        self.found.append({"keys": keys, "fault": brief(error)})

    def _member(self, group: Any, key: str, keys: Keys) -> None:
        link = group.get(key, getlink=True)
        if isinstance(link, self._h5py.ExternalLink):
            self.found.append({"keys": keys, "outside": "link"})
        if not isinstance(link, self._h5py.HardLink):
            return
        found = group[key]
        if isinstance(found, self._h5py.Group):
            self.group(found, keys)
        elif isinstance(found, self._h5py.Dataset):
            self._attributes(found, keys)
            self.found.append({"keys": keys, **self._dataset(found)})

    def _attributes(self, held: Any, keys: Keys) -> None:
        """Lists the scalar attributes of an object."""
        for key in held.attrs:
            facts = held.attrs.get_id(key)
            is_text = self._h5py.check_string_dtype(facts.dtype) is not None
            if facts.shape == () and (is_text or facts.dtype.kind in "biuf"):
                self._name((*keys, key))
                self.found.append({"keys": (*keys, key), "value": self._plain(held.attrs[key])})

    def _plain(self, value: Any) -> Any:
        plain = value.item() if hasattr(value, "item") else value
        if isinstance(plain, bytes):
            plain = plain.decode("utf-8", "replace")
        if isinstance(plain, str):
            self._text(plain)
        elif plain is not None and type(plain) not in (bool, int, float):
            plain = float(plain)
        return plain

    def _dataset(self, data: Any) -> dict[str, Any]:
        if data.is_virtual or data.external:
            return {"outside": "data"}
        if data.shape is None:
            return {"value": None}
        dtype = data.dtype
        if data.shape == () and dtype.kind == "O" and self._h5py.check_string_dtype(dtype):
            return {"value": self._plain(data.asstr()[()])}
        return {
            "words": str(dtype),
            "dtype": dtype.str if dtype.names is None and dtype.subdtype is None else None,
            "shape": data.shape,
            "chunks": data.chunks or (),
            "stored": data.id.get_storage_size(),
            "place": self._place(data),
        }

    def _place(self, data: Any) -> int | None:
        """The place of the elements in the file, if their bytes are those of numpy, one after the other."""
        if data.dtype.kind not in _CONTIGUOUS or data.file.userblock_size:
            return None
        own = self._h5py.h5t.py_create(data.dtype, logical=True)
        place = data.id.get_offset() if own.equal(data.id.get_type()) else None
        return None if place is None else int(place)


def brief(error: BaseException) -> str:
    """The first line of an error."""
    return (str(error) or type(error).__name__).partition("\n")[0][:300]


class Fetched(io.RawIOBase):
    """A file whose bytes are asked for on the standard output.

    Args:
        size: Its size.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size, self._at = size, 0

    def seek(self, offset: int, whence: int = 0) -> int:
        """Sets the position."""
        self._at = offset + (0, self._at, self._size)[whence]
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
        end = min(self._at + len(view), self._size)
        if end <= self._at:
            return 0
        answer({"fetch": [self._at, end]})
        data = sys.stdin.buffer.read(end - self._at)
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


def answer(found: dict[str, Any], data: Any = b"") -> None:
    """Writes an answer, and bytes after it."""
    out = sys.stdout.buffer
    out.write(json.dumps(found).encode() + b"\n")
    out.write(data)
    out.flush()


def requests() -> Iterator[dict[str, Any]]:
    """Yields the requests."""
    while line := sys.stdin.buffer.readline():
        yield json.loads(line)


def listing(h5py: Any, file: Any, request: dict[str, Any]) -> None:
    """Answers with the objects in a file."""
    walk = Walk(h5py, request["limits"])
    try:
        walk.group(file)
    except LimitError as error:
        answer({"limit": str(error)})
        return
    answer({"objects": walk.found})


def reading(_: Any, file: Any, request: dict[str, Any]) -> None:
    """Answers with a part of an array."""
    import numpy as np

    region = tuple(slice(*each) for each in request["region"])
    made = np.ascontiguousarray(file["/".join(request["keys"])][region])
    answer({"dtype": made.dtype.str, "nbytes": made.nbytes}, made.data if made.nbytes else b"")


def main() -> None:
    """Opens the file of the first request, and answers each."""
    import h5py

    file: Any = None
    for request in requests():
        limited(request["memory"], request["seconds"])
        try:
            if file is None:
                source = request["path"] or Fetched(request["size"])
                options = {"locking": False} if request["path"] else {}
                file = h5py.File(source, "r", **options)
        except FAULTS as error:
            answer({"unopened": brief(error)})
            continue
        try:
            (listing if "limits" in request else reading)(h5py, file, request)
        except FAULTS as error:
            answer({"fault": brief(error)})


if __name__ == "__main__":
    sys.path[:] = json.loads(sys.argv[1])
    main()
