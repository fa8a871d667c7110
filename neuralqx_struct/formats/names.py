r"""Names of arrays in nested files: the keys on the way to an array, joined to one name, and split again.

A separator or a backslash in a key has a backslash before it, so that each name has one list of keys.

Example:
    >>> joined(["encoder", "layers.0", "kernel"]) == r"encoder.layers\.0.kernel"
    True
    >>> split(r"encoder.layers\.0.kernel")
    ['encoder', 'layers.0', 'kernel']
"""

from __future__ import annotations

from collections.abc import Iterable

from neuralqx_struct.errors import SerializationError


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
