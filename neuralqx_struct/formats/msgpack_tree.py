"""The codes of msgpack, and the tree of a file of Flax: every head is read and checked, and no data.

Example:
    >>> codes = Codes(memoryview(bytes.fromhex("cd012ca17792")))
    >>> codes.head(), codes.head(), codes.skip(1), codes.head()
    (('value', 300), ('text', 1), 4, ('list', 2))
    >>> from neuralqx_struct.formats.ranges import Ranges
    >>> from neuralqx_struct.formats.table import Reading
    >>> data = bytes.fromhex("81a177c70c01939102a4696e7438c4020708")
    >>> Tree(memoryview(data), Reading()).whole()["w"].read(Ranges.of(memoryview(data)))
    array([7, 8], dtype=int8)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from struct import Struct
from typing import Any, Final, NamedTuple

from neuralqx_struct.dtypes import dtype_named
from neuralqx_struct.errors import READ_MORE, SerializationError
from neuralqx_struct.formats.archive import damaged
from neuralqx_struct.formats.ranges import StoredArray, View
from neuralqx_struct.formats.store import require_possible
from neuralqx_struct.formats.table import Reading
from neuralqx_struct.manifest import collector_paused
from neuralqx_struct.places.requests import Range
from neuralqx_struct.printing import brief_plain

_UNUSED: Final = 0xC1
_CONSTANTS: Final = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBERS: Final = {0xCA + place: Struct(f">{code}") for place, code in enumerate("fdBHIQbhiq")}
_LENGTHS: Final = (Struct(">B"), Struct(">H"), Struct(">I"))
#: The codes of kinds with a length of one, two or four bytes.
_LONG: Final = {
    "bytes": (0xC4, 0xC5, 0xC6),
    "extension": (0xC7, 0xC8, 0xC9),
    "text": (0xD9, 0xDA, 0xDB),
    "list": (None, 0xDC, 0xDD),
    "map": (None, 0xDE, 0xDF),
}
#: The codes of kinds whose length is a part of the code: that of length 0, and the largest length.
_SHORT: Final = {"map": (0x80, 15), "list": (0x90, 15), "text": (0xA0, 31)}
#: The codes of extensions of these lengths.
_FIXED: Final = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}


def _codes() -> Iterator[tuple[int, tuple[str, Any, Struct | None]]]:
    """Yields each code with the kind of its object, and the length or value, or the form of that."""
    for code in range(0x100):
        yield code, ("value", code if code < 0x80 else code - 0x100, None)
    for kind, (first, most) in _SHORT.items():
        for length in range(most + 1):
            yield first + length, (kind, length, None)
    for kind, codes in _LONG.items():
        for wide, form in zip(codes, _LENGTHS, strict=True):
            if wide is not None:
                yield wide, (kind, None, form)
    for code, form in _NUMBERS.items():
        yield code, ("value", None, form)
    for code, constant in _CONSTANTS.items():
        yield code, ("value", constant, None)
    for length, code in _FIXED.items():
        yield code, ("extension", length, None)
    yield _UNUSED, ("unused", None, None)


#: By code: the kind of the object and its length or value, or the form of that; later rows replace earlier ones.
_TABLE: Final = [facts for _, facts in sorted(dict(_codes()).items())]


class Codes:
    """Reads heads of objects one after the other.

    Args:
        view: The bytes.

    Attributes:
        at: The place of the next head.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self.at = 0

    @property
    def left(self) -> int:
        """The number of bytes that are left."""
        return len(self._view) - self.at

    def skip(self, size: int) -> int:
        """Passes over some bytes.

        Returns:
            The place of the first of them.

        Raises:
            IntegrityError: There are fewer.
        """
        if size > self.left:
            raise damaged(f"expected {size} bytes at byte {self.at}, got {self.left}")
        start = self.at
        self.at += size
        return start

    def number(self, form: Struct) -> Any:
        """The next bytes as a number."""
        start = self.skip(form.size)
        return form.unpack(self._view[start : start + form.size])[0]

    def head(self) -> tuple[str, Any]:
        """The kind of the next object and its length, or ``value`` and the value.

        Raises:
            IntegrityError: There is no code of msgpack.
        """
        kind, value, form = _TABLE[self._view[self.skip(1)]]
        if kind == "unused":
            raise damaged(f"expected an object of msgpack at byte {self.at - 1}, got byte 0xc1")
        return kind, value if form is None else self.number(form)


# The extension types of Flax.
ARRAY, COMPLEX, SCALAR = 1, 2, 3
CHUNKED: Final = "__msgpack_chunked_array__"
BOX: Final = "value"


class Raw(StoredArray):
    """Bytes of msgpack, which are an array here."""

    __slots__ = ()


class Boxed(NamedTuple):
    """A box of Flax Linen, ``{"value": array}``."""

    array: StoredArray


class Tree:
    """Reads the tree of a file.

    Args:
        view: The bytes of the file.
        reading: Options, with the largest tree that is accepted.
    """

    def __init__(self, view: View, reading: Reading) -> None:
        self._view, self._limits = view, reading.limits
        self._codes = Codes(view)
        self._nodes = self._text = 0

    def whole(self) -> Any:
        """The only object of the file: nested dicts and lists of leaves and plain values."""
        with collector_paused():
            found = self._item(0)
        self._require_end(len(self._view))
        return found

    def _require_end(self, end: int) -> None:
        if self._codes.at != end:
            raise damaged(f"expected an object up to byte {end}, got one up to {self._codes.at}")

    def require(self, count: int, most: int, words: str) -> None:
        """Checks a number against a limit."""
        if count > most:
            message = f"expected at most {most} {words} in a msgpack file, got more"
            raise SerializationError(message, code="NQX005", hint=READ_MORE)

    def _item(self, depth: int) -> Any:
        self._nodes += 1
        self.require(self._nodes, self._limits.nodes, "objects")
        self.require(depth, self._limits.depth, "levels")
        kind, length = self._codes.head()
        return length if kind == "value" else _READERS[kind](self, length, depth)

    def _some(self, count: int, depth: int) -> Iterator[Any]:
        """The items of a container; each takes a byte at least."""
        if count > self._codes.left:
            expected = f"expected {count} items at byte {self._codes.at}"
            raise damaged(f"{expected}, got {self._codes.left} bytes")
        return (self._item(depth + 1) for _ in range(count))

    def list_(self, count: int, depth: int) -> list[Any]:
        """A list."""
        return list(self._some(count, depth))

    def map_(self, count: int, depth: int) -> Any:
        """A map, or the array that it describes."""
        items = self._some(2 * count, depth)
        made: dict[str, Any] = {}
        for key, value in zip(items, items, strict=True):
            if type(key) not in (str, int):
                message = (
                    f"expected text as keys before byte {self._codes.at}, got {brief_plain(key)}"
                )
                raise SerializationError(message, code="NQX612")
            made[str(key)] = value
        if len(made) < count:
            where = f"before byte {self._codes.at}"
            raise damaged(f"expected each key of a map once {where}, got one twice")
        if CHUNKED in made:
            return self._chunked(made)
        inner = made.get(BOX)
        if depth and len(made) == 1 and isinstance(inner, StoredArray):
            return Boxed(inner)
        return made

    def text(self, size: int, _: int) -> str:
        """Text."""
        self._text += size
        self.require(self._text, self._limits.manifest_bytes, "bytes of text")
        start = self._codes.skip(size)
        try:
            return str(self._view[start : start + size], "utf-8")
        except UnicodeDecodeError as error:
            raise damaged(f"expected UTF-8 at byte {start}, got other bytes") from error

    def bytes_(self, size: int, _: int) -> Raw:
        """Bytes, which are an array here."""
        start = self._codes.skip(size)
        return Raw("uint8", (size,), Range(start, start + size))

    def extension(self, size: int, depth: int) -> StoredArray:
        """An object of one of Flax's own types."""
        place = self._codes.skip(1 + size)
        end = self._codes.at
        code = self._view[place]
        self._codes.at = place + 1
        if code not in (ARRAY, COMPLEX, SCALAR):
            message = f"expected an extension type of Flax (1, 2 or 3) at byte {place}, got {code}"
            raise SerializationError(message, code="NQX614", hint="convert the file with Flax")
        parts = self._item(depth + 1)
        self._require_end(end)
        if code != COMPLEX:
            return _array(parts, place + 1)
        if (
            type(parts) is not list
            or [type(part) for part in parts] != [float, float]
            or size != 19
        ):
            raise damaged(f"expected two floats of eight bytes at byte {place + 1}, got others")
        halves = Range(place + 3, place + 11), Range(place + 12, place + 20)
        return StoredArray(">c16", (), halves[0], more=halves[1:])

    def _chunked(self, items: dict[str, Any]) -> StoredArray:
        """An array that Flax split, since msgpack limits the size of objects."""
        shape, chunks = (_listed(items.get(name)) for name in ("shape", "chunks"))
        flat = chunks and all(
            isinstance(part, StoredArray) and len(part.shape) == 1 and not part.more
            for part in chunks
        )
        if flat and _is_sizes(shape):
            first, *more = [chunk.place for chunk in chunks]
            size = sum(chunk.shape[0] for chunk in chunks)
            if len({chunk.dtype for chunk in chunks}) == 1 and size == prod(shape):
                return StoredArray(chunks[0].dtype, tuple(shape), first, more=(*more,))
        raise damaged(f"expected the chunks of an array before byte {self._codes.at}, got others")


_READERS: Final[Mapping[str, Callable[[Tree, int, int], Any]]] = {
    "map": Tree.map_,
    "list": Tree.list_,
    "text": Tree.text,
    "bytes": Tree.bytes_,
    "extension": Tree.extension,
}


def _is_sizes(value: Any) -> bool:
    return type(value) is list and all(type(size) is int and size >= 0 for size in value)


def _listed(items: Any) -> Any:
    """The values of a map whose keys are 0, 1, 2 and so on, as Flax writes tuples; else None."""
    if type(items) is not dict or list(items) != [str(place) for place in range(len(items))]:
        return None
    return list(items.values())


def _array(parts: Any, start: int) -> StoredArray:
    """An array: its shape, its dtype and its data."""
    if type(parts) is not list or len(parts) != 3 or not _is_sizes(parts[0]):
        raise damaged(f"expected shape, dtype and data of an array at byte {start}, got others")
    shape, name, data = tuple(parts[0]), parts[1], parts[2]
    if type(name) is not str or type(data) is not Raw:
        raise damaged(f"expected shape, dtype and data of an array at byte {start}, got others")
    itemsize = dtype_named(name).itemsize
    require_possible(shape, itemsize)
    if data.shape != (prod(shape) * itemsize,):
        expected = f"expected {prod(shape) * itemsize} bytes for {name}{list(shape)}"
        raise damaged(f"{expected} at byte {start}, got {data.shape[0]}")
    return StoredArray(name, shape, data.place)
