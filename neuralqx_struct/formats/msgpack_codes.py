"""The codes of msgpack: the head of each object, read and written; data after a head are passed over.

Example:
    >>> codes = Codes(memoryview(plain(300) + text("w") + head("list", 2)))
    >>> codes.head(), codes.head(), codes.skip(1), codes.head()
    (('value', 300), ('text', 1), 4, ('list', 2))
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, pack
from typing import Any, Final, cast

from neuralqx_struct.errors import SerializationError
from neuralqx_struct.formats.ranges import View
from neuralqx_struct.formats.table import Plain
from neuralqx_struct.stores.archive import damaged

_UNUSED: Final = 0xC1
_CONSTANTS: Final = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBERS: Final = {0xCA + place: Struct(f">{code}") for place, code in enumerate("fdBHIQbhiq")}
_DOUBLE, _UNSIGNED, _SIGNED = 0xCB, 0xCC, 0xD0
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


def head(kind: str, length: int) -> bytes:
    """The head of an object in the fewest bytes.

    Raises:
        SerializationError: It is longer than msgpack allows.
    """
    first, most = _SHORT.get(kind, (0, -1))
    if length <= most:
        return bytes([first + length])
    if kind == "extension" and length in _FIXED:
        return bytes([_FIXED[length]])
    for code, form in zip(_LONG[kind], _LENGTHS, strict=True):
        if code is not None and length < 1 << 8 * form.size:
            return bytes([code]) + form.pack(length)
    message = f"expected an object of less than 4 GiB for msgpack, got {length} bytes or items"
    raise SerializationError(message, code="NQX614", hint="write safetensors instead")


def text(value: str) -> bytes:
    """An object for text."""
    data = value.encode()
    return head("text", len(data)) + data


def plain(value: Plain) -> bytes:
    """An object for a plain value, in the fewest bytes.

    Raises:
        SerializationError: An integer needs more than 64 bits.
    """
    if type(value) is str:
        return text(value)
    for code, constant in _CONSTANTS.items():
        if value is constant:
            return bytes([code])
    if type(value) is float:
        return bytes([_DOUBLE]) + pack(">d", value)
    whole = cast("int", value)
    if -32 <= whole < 0x80:
        return bytes([whole % 0x100])
    first = _UNSIGNED if whole > 0 else _SIGNED
    bits = whole.bit_length() if whole > 0 else (whole + 1).bit_length() + 1
    for code in range(first, first + 4):
        form = _NUMBERS[code]
        if bits <= 8 * form.size:
            return bytes([code]) + form.pack(whole)
    message = f"expected integers of at most 64 bits for msgpack, got one of {bits}"
    raise SerializationError(message, code="NQX614", hint="store it as text")
