r"""Reading schema files: strict YAML and JSON as plain values with positions.

Owns the decoding of a file and :class:`Builder`, which builds the document from the events of ``yaml_reader.py`` or
``json_reader.py`` and collects the problems.

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
from array import array
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NoReturn

from neuralqx_struct.errors import Diagnostic, SchemaError, Severity
from neuralqx_struct.printing import brief_scalar
from neuralqx_struct.schema import text as limits
from neuralqx_struct.schema.text import (
    JsonValue,
    Mark,
    Marks,
    Source,
    Suppressions,
    Text,
    conflict_markers,
    lone_surrogate,
    path_text,
    text_problem,
)
from neuralqx_struct.schema.text.json_reader import read_json
from neuralqx_struct.schema.text.yaml_reader import read_yaml
from neuralqx_struct.schema.text.yaml_writer import dump_yaml

__all__ = ["JsonValue", "Mark", "Source", "dump_yaml", "read_file", "read_text", "replace_text"]

Format = Literal["yaml", "json"]
#: Feeds a text to the builder, and returns its suppressions.
_Reader = Callable[["Builder", str], Suppressions]

_READERS: Mapping[str, _Reader] = {"yaml": read_yaml, "json": read_json}
_FORMATS: Mapping[str, Format] = {".yaml": "yaml", ".yml": "yaml", ".json": "json"}
_DUPLICATE_KEY = {"yaml": "NQX002", "json": "NQX014"}


def replace_text(path: Path, text: str) -> None:
    """Writes a text file completely, with the folders above it, or leaves the old one; a link is followed.

    Raises:
        BundleWriteError: The system refused it.
    """
    from neuralqx_struct.places.atomic import staged  # readers do without

    file = Path(os.path.realpath(path))
    with staged(file, folder=False, overwrite=True, foreign=lambda _: None, kind="file") as stage:
        stage.write_text(text, encoding="utf-8")
        with suppress(FileNotFoundError):
            stage.chmod(stat.S_IMODE(file.stat().st_mode))


def read_text(text: str | bytes, name: str = "<text>", *, format: Format = "yaml") -> Source:  # noqa: A002
    """Reads one schema file.

    Args:
        text: The text, or its bytes in UTF-8.
        name: The name of the file in diagnostics.
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
        message = f"expected the format yaml or json, got {format!r}"
        raise SchemaError(message, file=name, hint="pass format='yaml'")
    if len(text) > limits.MAX_BYTES:
        raise limits.too_large(name)
    build = Builder(Text(name, _decode(text, name)), _DUPLICATE_KEY[format])
    if markers := conflict_markers(build.text.text, name):
        raise SchemaError(markers)
    try:
        suppressions = _READERS[format](build, build.text.text)
        return build.finish(suppressions)
    except SchemaError as error:
        markers = conflict_markers(build.text.text, name, lone=True)
        raise SchemaError([*markers, *error.diagnostics]) from None


def read_file(path: str | os.PathLike[str]) -> Source:
    """Reads a ``.yaml``, ``.yml`` or ``.json`` file; otherwise like :func:`read_text`.

    Args:
        path: A regular file of at most 16 MiB; diagnostics name it as it is given here.

    Raises:
        SchemaError: Also where there is no such file, it cannot be read, or its name has another suffix.
    """
    name = os.fspath(path)
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        known = ", ".join(_FORMATS)
        message = f"expected a file named {known}, got {suffix or 'no suffix'!r}"
        raise SchemaError(message, file=name, hint="pass the path of a schema, such as v1.yaml")
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):  # opening a pipe would block
            message = "expected a file, got a folder or device"
            hint = "name one version's file, such as v1.yaml"
            raise SchemaError(message, file=name, hint=hint)
        with Path(path).open("rb") as file:
            content = file.read(limits.MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or str(error)
        message = f"expected a readable file, got: {reason}"
        hint = "check the path and its permissions"
        raise SchemaError(message, file=name, hint=hint) from error
    return read_text(content, name, format=_FORMATS[suffix])


def _decode(text: str | bytes, name: str) -> str:
    """The text with newlines as line breaks and without a byte order mark."""
    if not isinstance(text, str):
        raw = bytes(text)
        if raw[:2] in {b"\xff\xfe", b"\xfe\xff"} or b"\0" in raw[:4]:
            message = "expected UTF-8, got UTF-16, UTF-32 or no text at all"
            raise SchemaError(message, code="NQX001", file=name, hint="save the file as UTF-8")
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            before = _plain_lines(raw[: error.start].decode())
            message = f"expected UTF-8, got the byte 0x{raw[error.start]:02x}"
            build = Builder(Text(name, before))
            build.fail("NQX001", len(before), message, "save the file as UTF-8")
    text = _plain_lines(text)
    if found := lone_surrogate(text):
        message = f"expected characters, got the lone surrogate {found.group()!r}"
        hint = "decode the bytes as UTF-8, without surrogateescape"
        Builder(Text(name, text)).fail("NQX001", found.start(), message, hint)
    return text


def _plain_lines(text: str) -> str:
    text = str(text).removeprefix("\ufeff")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


class _Key(Enum):
    """The state of a mapping that is not between a valid key and its value."""

    WANTED = "before a key"
    COMPLEX = "inside a key that is a list or mapping"
    DROPPED = "after an invalid key"


class _Frame:
    """A container that is still open."""

    __slots__ = ("items", "key", "keys", "node")

    def __init__(self, items: dict[str, Any] | list[Any], node: int) -> None:
        self.items = items
        self.node = node
        self.key: str | _Key = _Key.WANTED
        self.keys: dict[str, int] = {}


class Builder:
    """Builds the document from the events of a parser, with positions, and collects the problems. Not recursive.

    The events, in the order of the file, are :meth:`open`, :meth:`close` and :meth:`scalar`.

    Args:
        text: The text that the events are positions in.
        duplicate_key: The code of a key that is given twice.

    Example:
        >>> build = Builder(Text("<text>", "{a: 1}"))
        >>> build.open({}, 0)
        >>> build.scalar("a", 1)
        >>> build.scalar(1, 4)
        >>> build.close()
        >>> build.finish({}).data
        {'a': 1}
    """

    def __init__(self, text: Text, duplicate_key: str = "NQX002") -> None:
        self.text = text
        self.errors: list[Diagnostic] = []
        self.warnings: list[Diagnostic] = []
        self.places = array("I")
        self.ends = array("I")
        self.root: list[JsonValue] = []
        self.frames = [_Frame(self.root, 0)]
        self._duplicate_key = duplicate_key

    def report(
        self,
        code: str,
        place: int,
        message: str,
        hint: str | None,
        severity: Severity = "error",
    ) -> None:
        """Collects one problem at a character index; too many end the reading (errors) or the collecting (warnings)."""
        problems = self.errors if severity == "error" else self.warnings
        most = limits.MAX_PROBLEMS
        if len(problems) > most:
            return
        if len(problems) == most:
            code, hint = "NQX005", limits.FIX_THESE_FIRST
            message = f"expected at most {most} problems of severity {severity}, got more"
        keys = [len(f.items) if isinstance(f.items, list) else f.key for f in self.frames[1:]]
        path = path_text(key for key in keys if not isinstance(key, _Key))
        mark = self.text.mark(place)
        problems.append(Diagnostic(code, severity, message, path, self.text.name, *mark, hint))
        if len(self.errors) > most:
            raise SchemaError(self.errors)

    def fail(self, code: str, place: int, message: str, hint: str) -> NoReturn:
        """Reports a problem of the whole file that ends the reading."""
        del self.frames[1:]
        self.report(code, place, message, hint)
        raise SchemaError(self.errors)

    def open(self, items: dict[str, Any] | list[Any], place: int) -> None:
        """Begins a container."""
        if len(self.frames) > limits.MAX_DEPTH:
            self.fail("NQX005", place, *limits.TOO_DEEP)
        if self.wants_key():
            self.frames[-1].key = _Key.COMPLEX
            got = "a mapping" if isinstance(items, dict) else "a list"
            self.report("NQX006", place, f"expected text as key, got {got}", "use names as keys")
        self.frames.append(_Frame(items, self._node(place)))

    def close(self) -> None:
        """Ends the innermost open container."""
        frame = self.frames.pop()
        self.ends[frame.node] = len(self.places)
        self._put(frame.items)

    def scalar(self, value: JsonValue, place: int, problem: Diagnostic | None = None) -> None:
        """Adds a scalar as value or as key; a key is text.

        Args:
            value: The value.
            place: Its first character.
            problem: An error or warning about it, without a position.
        """
        if isinstance(value, str) and (bad := text_problem(value)):
            self.report(bad.code, place, bad.message, bad.hint)
        is_key = self.wants_key()
        self._node(place)
        if is_key:
            self._key(str(value), place)
        if problem:
            self.report(problem.code, place, problem.message, problem.hint, problem.severity)
        if not is_key:
            self._put(value)

    def wants_key(self) -> bool:
        """True if the next scalar is the key of a member."""
        frame = self.frames[-1]
        return frame.key is _Key.WANTED and isinstance(frame.items, dict)

    def drop(self, place: int) -> None:
        """Adds a placeholder for a key or value that has been reported."""
        self._node(place)
        if self.wants_key():
            self.frames[-1].key = _Key.DROPPED
        else:
            self._put(None)

    def _key(self, key: str, place: int) -> None:
        frame = self.frames[-1]
        first = frame.keys.setdefault(key, place)
        frame.key = key
        if first != place:
            line, column = self.text.mark(first)
            message = f"expected each key once, got {brief_scalar(key)} again\nthe first one is at line {line}, column {column}"
            self.report(self._duplicate_key, place, message, "remove or rename one of the two")
            frame.key = _Key.DROPPED

    def _node(self, place: int) -> int:
        node = len(self.places)
        if node == limits.MAX_NODES:
            message = f"expected at most {limits.MAX_NODES} keys and values, got more"
            self.fail("NQX005", place, message, limits.LARGE_DATA)
        self.places.append(place)
        self.ends.append(node + 1)
        return node

    def _put(self, value: JsonValue) -> None:
        frame = self.frames[-1]
        if isinstance(frame.items, list):
            frame.items.append(value)
        elif frame.key is _Key.COMPLEX:
            frame.key = _Key.DROPPED
        else:
            if isinstance(frame.key, str):
                frame.items[frame.key] = value
            frame.key = _Key.WANTED

    def finish(self, suppressions: Suppressions) -> Source:
        """The document.

        Raises:
            SchemaError: With all problems, if there were any.
        """
        if not self.root:
            message = "expected a document, got an empty file"
            self.fail("NQX001", 0, message, "start with 'language: \"1\"'")
        if self.errors:
            raise SchemaError(self.errors)
        data, name = self.root[0], self.text.name
        marks = Marks(data, self.text, self.places, self.ends)
        return Source(name, data, marks, MappingProxyType(suppressions), tuple(self.warnings))
