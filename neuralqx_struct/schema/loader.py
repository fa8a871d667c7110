r"""Schema files as text: strict YAML and JSON to plain values that know their position, and plain values to YAML.

Owns the way from a file to a :class:`Source`: which files are read, how bytes become text, which reader serves. The
readers are ``yaml_reader.py`` and ``json_reader.py``, the writer is ``yaml_writer.py``, what may be in a file at most
says ``limits.py``. Does not know what a schema is: ``model.py`` does.

Example:
    >>> source = read_text("dims:\n  n_sites: {min: 2}\n")
    >>> source.data
    {'dims': {'n_sites': {'min': 2}}}
    >>> source.mark(("dims", "n_sites", "min"))
    Mark(line=2, column=18)
    >>> dump_yaml(source.data)
    'dims:\n  n_sites: {min: 2}\n'
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.schema import limits
from neuralqx_struct.schema.builder import Builder
from neuralqx_struct.schema.json_reader import read_json
from neuralqx_struct.schema.scalars import lone_surrogate
from neuralqx_struct.schema.source import JsonValue, Mark, Marks, Source, Text
from neuralqx_struct.schema.yaml_reader import read_yaml
from neuralqx_struct.schema.yaml_writer import dump_yaml

__all__ = ["JsonValue", "Mark", "Marks", "Source", "dump_yaml", "read_file", "read_text"]

Format = Literal["yaml", "json"]

_READERS: Mapping[str, Callable[[Builder, str], Mapping[int, frozenset[str]]]] = {
    "yaml": read_yaml,
    "json": read_json,
}
_FORMATS: Mapping[str, Format] = {".yaml": "yaml", ".yml": "yaml", ".json": "json"}


def read_text(text: str | bytes, name: str = "<text>", *, format: Format = "yaml") -> Source:  # noqa: A002
    """Read one schema file.

    Args:
        text: The text, or its bytes in UTF-8.
        name: What diagnostics call it.
        format: ``yaml`` or ``json``; the same schema gives the same ``data`` in both.

    Returns:
        The document with its positions.

    Raises:
        SchemaError: With every problem of the file; after one that ends the reading, with those before it.

    Example:
        >>> read_text('{"version": 3}', format="json").data
        {'version': 3}
    """
    if format not in _READERS:
        raise SchemaError(f"expected the format yaml or json, got {format!r}", file=name, hint="pass format='yaml'")
    if len(text) > limits.MAX_BYTES:
        raise limits.too_large(name)
    build = Builder(Text(name, _decode(text, name)))
    return build.finish(_READERS[format](build, build.text.text))


def read_file(path: str | os.PathLike[str]) -> Source:
    """Read a ``.yaml``, ``.yml`` or ``.json`` file; otherwise like :func:`read_text`.

    Args:
        path: A regular file of at most 16 MiB; diagnostics name it as it is given here.

    Raises:
        SchemaError: Also where there is no such file, it cannot be read, or its name has another suffix.
    """
    name = os.fspath(path)
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        known = ", ".join(_FORMATS)
        raise SchemaError(
            f"expected a file named {known}, got {suffix or 'no suffix'!r}",
            file=name,
            hint=f"rename it to one of {known}",
        )
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):  # a pipe would block, a device never end
            raise SchemaError(
                "expected a file, got a folder or device", file=name, hint="name one version's file, such as v1.yaml"
            )
        with Path(path).open("rb") as file:
            content = file.read(limits.MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise SchemaError(
            f"expected a readable file, got: {reason}", file=name, hint="check the path and its permissions"
        ) from error
    return read_text(content, name, format=_FORMATS[suffix])


def _decode(text: str | bytes, name: str) -> str:
    """The text with line breaks as newlines and without byte order mark."""
    if not isinstance(text, str):
        raw = bytes(text)
        if raw[:2] in {b"\xff\xfe", b"\xfe\xff"} or b"\0" in raw[:4]:
            message = "expected UTF-8, got UTF-16, UTF-32 or no text at all"
            raise SchemaError(message, code="NQX001", file=name, hint="save the file as UTF-8")
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            before, message = (
                _plain_lines(raw[: error.start].decode()),
                f"expected UTF-8, got the byte 0x{raw[error.start]:02x}",
            )
            Builder(Text(name, before)).fail("NQX001", len(before), message, "save the file as UTF-8")
    text = _plain_lines(text)
    if found := lone_surrogate(text):
        message = f"expected characters, got the lone surrogate {found.group()!r}"
        Builder(Text(name, text)).fail(
            "NQX001", found.start(), message, "decode the bytes as UTF-8, without surrogateescape"
        )
    return text


def _plain_lines(text: str) -> str:
    text = str(text).removeprefix("\ufeff")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
