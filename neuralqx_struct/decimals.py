"""Integers of any size as decimal digits, and back: Python's own conversion refuses more than 4300 digits at once.

Owns the conversion and how many digits are stored (:data:`MOST_BITS`); ``nodes.py`` and ``schema/conform.py`` share it.

Example:
    >>> read_decimal(write_decimal(-(10**5000))) == -(10**5000)
    True
"""

from __future__ import annotations

from typing import Final

__all__ = ["MOST_BITS", "brief_integer", "read_decimal", "write_decimal"]

MOST_BITS: Final = 332_192  # integers of so many bits have at most 100,000 digits
_CHUNK = 4000


def write_decimal(value: int) -> str:
    """The decimal digits of an integer."""
    sign, value = ("-", -value) if value < 0 else ("", value)
    chunks: list[str] = []
    while value >= 10**_CHUNK:
        value, low = divmod(value, 10**_CHUNK)
        chunks.append(f"{low:0{_CHUNK}d}")
    return sign + "".join([str(value), *reversed(chunks)])


def read_decimal(text: str) -> int:
    """The inverse of :func:`write_decimal`, for text that is known to be digits after an optional minus."""
    digits = text.removeprefix("-")
    value = 0
    for start in range(0, len(digits), _CHUNK):
        chunk = digits[start : start + _CHUNK]
        value = value * 10 ** len(chunk) + int(chunk)
    return -value if text.startswith("-") else value


def brief_integer(value: int) -> str:
    """An integer as messages show it: its digits, or how many bits it has if they would not fit on a line."""
    return int.__repr__(value) if value.bit_length() <= 190 else f"an int of {value.bit_length()} bits"
