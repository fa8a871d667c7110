r"""Schema files as text: strict YAML and JSON to plain values that know their position, and plain values to YAML.

Owns what a file may contain (YAML 1.2 core scalars; no anchors, tags, duplicate or non-string keys; bounded depth,
nodes and bytes), the position of every key and value, and the ``# nqx: ignore[...]`` comments. Does not know what a
schema is: ``model.py`` does. Values come from PyYAML's stream of events, never from its constructors: the reader stops
at the first event that is too deep, before anything recurses, and builds no Python object that a file names.

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

import json
import math
import os
import re
import stat
import textwrap
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, NoReturn

from neuralqx_struct.errors import Diagnostic, SchemaError, Severity
from neuralqx_struct.paths import FieldName, format_path

__all__ = ["JsonValue", "Mark", "Marks", "Source", "dump_yaml", "read_file", "read_text"]

JsonValue = dict[str, Any] | list[Any] | str | int | float | bool | None
KeyPath = tuple[str | int, ...]

MAX_BYTES = 16 << 20
MAX_DEPTH = 64
MAX_NODES = 250_000  # keys and values; what PyYAML parses within a second
MAX_SCALAR = 1 << 20
MAX_DIGITS = 640  # the smallest limit on int <-> str that Python can be configured to
MAX_PROBLEMS = 1000
MAX_SUPPRESSIONS = 10_000
WIDTH, LINE = 100, 120  # of what stands in braces or brackets, and of the line around it


class Mark(NamedTuple):
    """A place in a file: line and column, both counted from 1, columns in characters."""

    line: int
    column: int


class _Text:
    """A text that turns character indices into marks, at a cost that does not grow with the text."""

    __slots__ = ("_table", "name", "text")
    _CHUNK = 1 << 14

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self._table: list[tuple[int, int]] = []

    def mark(self, index: int) -> Mark:
        if not self._table:
            self._table = list(self._chunks())
        index = min(index, len(self.text))
        line, start = self._table[index // self._CHUNK]
        chunk = index - index % self._CHUNK
        if breaks := self.text.count("\n", chunk, index):
            line, start = line + breaks, self.text.rfind("\n", chunk, index) + 1
        return Mark(line, index - start + 1)

    def _chunks(self) -> Iterator[tuple[int, int]]:
        """Line number and start of the line in which each chunk begins."""
        line, start = 1, 0
        for chunk in range(0, len(self.text) + 1, self._CHUNK):
            yield line, start
            end = chunk + self._CHUNK
            if breaks := self.text.count("\n", chunk, end):
                line, start = line + breaks, self.text.rfind("\n", chunk, end) + 1


class Marks(Mapping[KeyPath, Mark]):
    """Where each value of a document stands, by path; :meth:`key` says where its key stands.

    Positions are two integers per node in document order; paths are followed through the data when asked for, so that
    a file of a million nodes does not pay for a million paths.
    """

    __slots__ = ("_children", "_data", "_ends", "_places", "_text")

    def __init__(self, data: JsonValue, text: _Text, places: array[int], ends: array[int]) -> None:
        self._data = data
        self._text = text
        self._places = places  # node -> index of its first character; a key is a node before its value
        self._ends = ends  # node -> the node after its last descendant
        self._children: dict[int, dict[str | int, int]] = {}

    def __getitem__(self, path: KeyPath) -> Mark:
        node, known = self._find(path)
        if known < len(path):
            raise KeyError(path)
        return self._mark(node)

    def __iter__(self) -> Iterator[KeyPath]:
        pending: list[tuple[KeyPath, JsonValue]] = [((), self._data)]
        while pending:
            path, value = pending.pop()
            yield path
            if isinstance(value, dict):
                pending.extend(((*path, key), item) for key, item in reversed(value.items()))
            elif isinstance(value, list):
                pending.extend(((*path, i), value[i]) for i in reversed(range(len(value))))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def key(self, path: KeyPath) -> Mark:
        """Where the key of the value at ``path`` stands; for list items and the document, the value itself.

        Raises:
            KeyError: There is no value at ``path``.
        """
        _, known = self._find(path)
        if known < len(path):
            raise KeyError(path)
        return self.nearest(path, key=True)

    def nearest(self, path: KeyPath, *, key: bool = False) -> Mark:
        """The mark of ``path``, or of its nearest ancestor that exists."""
        node, known = self._find(path)
        return self._mark(node - 1 if key and known and isinstance(path[known - 1], str) else node)

    def _mark(self, node: int) -> Mark:
        return self._text.mark(self._places[node])

    def _find(self, path: KeyPath) -> tuple[int, int]:
        """The node of the longest prefix of ``path`` that exists, and the length of that prefix."""
        inside: Any = self._data
        node = 0
        for known, part in enumerate(path):
            children = self._inside(node, inside) if isinstance(inside, (dict, list)) else {}
            if part not in children:
                return node, known
            node, inside = children[part], inside[part]
        return node, len(path)

    def _inside(self, node: int, data: dict[str, Any] | list[Any]) -> dict[str | int, int]:
        """The nodes of the values inside a container, by key; remembered."""
        found = self._children.get(node)
        if found is None:
            found = self._children[node] = {}
            skip = 1 if isinstance(data, dict) else 0
            child = node + 1
            parts: Iterable[str | int] = data if isinstance(data, dict) else range(len(data))
            for part in parts:
                found[part] = child + skip
                child = self._ends[child + skip]
        return found


@dataclass(frozen=True, slots=True)
class Source:
    """One schema file as read.

    Attributes:
        name: What diagnostics call it: the path as the user gave it, or ``<text>``.
        data: The document as plain values; not to be changed, ``marks`` follow it.
        marks: The position of each value, and of each key by ``marks.key(path)``; empty for a document without a file.
        suppressions: Line -> the codes that ``# nqx: ignore[...]`` on that line silences. Nothing here applies them.
        warnings: What can be read but will surprise somebody, such as ``NQX007``.
    """

    name: str
    data: JsonValue
    marks: Mapping[KeyPath, Mark]
    suppressions: Mapping[int, frozenset[str]] = field(default_factory=dict)
    warnings: tuple[Diagnostic, ...] = ()

    def mark(self, path: Iterable[str | int], *, key: bool = False) -> Mark | None:
        """Where the value at ``path`` (or its key) stands, or its nearest ancestor; None if no position is known."""
        path = tuple(path)
        if isinstance(self.marks, Marks):
            return self.marks.nearest(path, key=key)
        prefixes = (path[:known] for known in range(len(path), -1, -1))
        return next((self.marks[prefix] for prefix in prefixes if prefix in self.marks), None)

    def diagnostic(
        self,
        code: str,
        path: Iterable[str | int],
        message: str,
        *,
        hint: str | None = None,
        severity: Severity = "error",
        key: bool = False,
    ) -> Diagnostic:
        r"""A finding about the value at ``path``, with file, line and column filled in.

        Args:
            code: The code, such as ``NQX104``.
            path: Keys and positions from the root of the document.
            message: ``expected X, got Y``.
            hint: What to do about it.
            severity: ``error``, ``warning`` or ``info``.
            key: Point at the key rather than at the value.

        Example:
            >>> print(read_text("root: A\n").diagnostic("NQX009", ("root",), "expected B, got A"))
            <text>:1:7: NQX009 expected B, got A
        """
        path = tuple(path)
        line, column = self.mark(path, key=key) or (None, None)
        return Diagnostic(code, severity, message, _path_text(path), self.name, line, column, hint)


def _path_text(path: Iterable[str | int]) -> str:
    return format_path(FieldName(part) if isinstance(part, str) else part for part in path)


def _show(text: str, limit: int = 60) -> str:
    return repr(text) if len(text) <= limit else f"{text[:limit]!r}... ({len(text)} characters)"


# ---------------------------------------------------------------------------------------------- building the document


class _Key(Enum):
    """What a mapping waits for, where it does not wait for the value of a good key."""

    WANTED = "a key"
    COMPLEX = "the end of a key that is a list or mapping"
    DROPPED = "the value of a bad key"


class _Frame:
    """A container that is still open."""

    __slots__ = ("items", "key", "keys", "node")

    def __init__(self, items: dict[str, Any] | list[Any], node: int) -> None:
        self.items = items
        self.node = node
        self.key: str | _Key = _Key.WANTED
        self.keys: dict[str, int] = {}


class _Builder:
    """Puts together the values that a parser finds, with their places, and collects problems. Not recursive."""

    __slots__ = ("ends", "errors", "frames", "places", "root", "text", "warnings")

    def __init__(self, text: _Text) -> None:
        self.text = text
        self.errors: list[Diagnostic] = []
        self.warnings: list[Diagnostic] = []
        self.places = array("I")
        self.ends = array("I")
        self.root: list[JsonValue] = []
        self.frames = [_Frame(self.root, 0)]

    def report(self, code: str, place: int, message: str, hint: str, severity: Severity = "error") -> None:
        """Collect one problem at a character index; too many end the reading (errors) or the collecting (warnings)."""
        problems = self.errors if severity == "error" else self.warnings
        if len(problems) > MAX_PROBLEMS:
            return
        if len(problems) == MAX_PROBLEMS:
            message = f"expected at most {MAX_PROBLEMS} problems of severity {severity}, got more"
            code, hint = "NQX005", "mend these first; the others are not listed"
        keys = [len(f.items) if isinstance(f.items, list) else f.key for f in self.frames[1:]]
        path = _path_text(key for key in keys if not isinstance(key, _Key))
        line, column = self.text.mark(place)
        problems.append(Diagnostic(code, severity, message, path, self.text.name, line, column, hint))
        if len(self.errors) > MAX_PROBLEMS:
            raise SchemaError(self.errors)

    def fail(self, code: str, place: int, message: str, hint: str) -> NoReturn:
        """A problem of the whole file, after which nothing can be read."""
        del self.frames[1:]
        self.report(code, place, message, hint)
        raise SchemaError(self.errors)

    def open(self, items: dict[str, Any] | list[Any], place: int) -> None:
        if len(self.frames) > MAX_DEPTH:
            hint = "no schema is nested like this; flatten the document"
            self.fail("NQX005", place, f"expected at most {MAX_DEPTH} levels of nesting, got more", hint)
        parent = self.frames[-1]
        if parent.key is _Key.WANTED and isinstance(parent.items, dict):
            parent.key = _Key.COMPLEX
            got = "a mapping" if isinstance(items, dict) else "a list"
            self.report("NQX006", place, f"expected text as key, got {got}", "use names as keys")
        self.frames.append(_Frame(items, self._node(place)))

    def close(self) -> None:
        frame = self.frames.pop()
        self.ends[frame.node] = len(self.places)
        self._put(frame.items)

    def scalar(self, value: JsonValue, place: int) -> None:
        self._node(place)
        self._put(value)

    def wants_key(self) -> bool:
        frame = self.frames[-1]
        return frame.key is _Key.WANTED and isinstance(frame.items, dict)

    def key(self, key: str, place: int, duplicate_code: str) -> None:
        self._node(place)
        frame = self.frames[-1]
        first = frame.keys.setdefault(key, place)
        frame.key = key
        if first != place:
            line, column = self.text.mark(first)
            message = f"expected each key once, got {_show(key)} again\nit stands first at line {line}, column {column}"
            self.report(duplicate_code, place, message, "remove or rename one of the two")
            frame.key = _Key.DROPPED

    def drop(self, place: int) -> None:
        """Stand in for a key or value that has been reported."""
        if self.wants_key():
            self._node(place)
            self.frames[-1].key = _Key.DROPPED
        else:
            self.scalar(None, place)

    def _node(self, place: int) -> int:
        node = len(self.places)
        if node == MAX_NODES:
            self.fail("NQX005", place, f"expected at most {MAX_NODES} keys and values, got more", _LARGE_DATA)
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

    def finish(self, suppressions: Mapping[int, frozenset[str]]) -> Source:
        if not self.root:
            self.fail("NQX001", 0, "expected a document, got an empty file", "start with 'language: \"1\"'")
        if self.errors:
            raise SchemaError(self.errors)
        marks = Marks(self.root[0], self.text, self.places, self.ends)
        return Source(self.text.name, self.root[0], marks, MappingProxyType(suppressions), tuple(self.warnings))


# ------------------------------------------------------------------------------------------------------------ reading

Format = Literal["yaml", "json"]

_SURROGATE = re.compile("[\ud800-\udfff]")
_UNPRINTABLE = re.compile("[^\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


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
    if len(text) > MAX_BYTES:
        raise _too_large(name)
    build = _Builder(_Text(name, _decode(text, name)))
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
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise SchemaError(
            f"expected a readable file, got: {reason}", file=name, hint="check the path and its permissions"
        ) from error
    return read_text(content, name, format=_FORMATS[suffix])


def _too_large(name: str) -> SchemaError:
    message = f"expected at most {MAX_BYTES >> 20} MiB of text, got more"
    return SchemaError(message, code="NQX005", file=name, hint="no schema is this large; is this the right file?")


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
            _Builder(_Text(name, before)).fail("NQX001", len(before), message, "save the file as UTF-8")
    text = _plain_lines(text)
    if not text.isascii() and (found := _SURROGATE.search(text)):
        message = f"expected characters, got the lone surrogate {found.group()!r}"
        _Builder(_Text(name, text)).fail(
            "NQX001", found.start(), message, "decode the bytes as UTF-8, without surrogateescape"
        )
    return text


def _plain_lines(text: str) -> str:
    text = str(text).removeprefix("\ufeff")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


# --------------------------------------------------------------------------------------------------------------- YAML

# What a plain scalar means in the YAML 1.2 core schema, and what YAML 1.1 (as PyYAML reads it) makes of it.
_CORE = re.compile(
    r"(?P<null>null|Null|NULL|~|)|(?P<bool>true|True|TRUE|false|False|FALSE)"
    r"|(?P<int>[-+]?(?:0|[1-9][0-9]*))|(?P<octal>0o[0-7]+)|(?P<hex>0x[0-9a-fA-F]+)|(?P<zeros>[-+]?0[0-9]+)"
    r"|(?P<float>[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?)"
    r"|(?P<special>[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))"
)
_LEGACY = re.compile(
    r"(?P<null>null|Null|NULL|~|)|(?P<bool>(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF))"
    r"|(?P<int>[-+]?(?:0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|[1-9][0-9_]*(?::[0-5]?[0-9])+))"
    r"|(?P<float>[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))"
    r"|(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::[0-9]{2})?))?)"
    r"|(?P<merge><<)|(?P<value>=)"
)
_SUSPECT = frozenset("+-.0123456789~<=nNtTfFyYoO")  # first characters of everything that the two can match
_KINDS = {
    None: "text", "null": "null", "bool": "a boolean", "int": "an integer", "octal": "an integer", "hex": "an integer",
    "float": "a number", "date": "a date", "merge": "a merge key", "value": "a default value",
}  # fmt: skip


_LARGE_DATA = "large data belongs into arrays"


class _Finding(NamedTuple):
    code: str
    message: str
    hint: str
    severity: Severity = "error"


def _plain(text: str) -> tuple[JsonValue, _Finding | None]:
    """What a scalar without quotes means, and what is wrong or surprising with it."""
    if text and text[0] not in _SUSPECT:
        return text, None
    core = _CORE.fullmatch(text)
    kind = core and core.lastgroup
    if kind == "null":
        return None, None
    if kind == "bool":
        return text in {"true", "True", "TRUE"}, None
    if kind == "zeros":
        message = f"expected a number without leading zeros, got {_show(text)}\nYAML 1.1 reads it as octal, YAML 1.2 as decimal"
        return 0, _Finding("NQX007", message, "leave the leading zeros out, write octal as 0o10, or put text in quotes")
    if kind == "special":
        return 0.0, _not_finite(text)
    if kind is not None and len(text) > MAX_DIGITS:
        return 0, _Finding("NQX005", f"expected at most {MAX_DIGITS} digits, got {len(text)}", "put text in quotes")
    value: JsonValue = text
    if kind == "float":
        value = float(text)
        if not math.isfinite(value):
            return 0.0, _not_finite(text)
    elif kind is not None:
        value = int(text, {"int": 10, "octal": 8, "hex": 16}[kind])
    legacy = _LEGACY.fullmatch(text)
    other = _KINDS[legacy and legacy.lastgroup]
    if other == _KINDS[kind]:
        return value, None
    message = f"expected a value that every YAML reader reads alike, got {_show(text)}\nit is {_KINDS[kind]} here (YAML 1.2), but {other} to YAML 1.1 tools"
    hint = f"write {_number(value)}" if isinstance(value, (int, float)) else f"write {_quoted(text)}"
    return value, _Finding("NQX007", message, hint, "warning")


def _not_finite(text: str) -> _Finding:
    return _Finding(
        "NQX013",
        f"expected a finite number, got {_show(text)}",
        "leave it out or use null; schemas hold finite numbers only",
    )


_DIRECTIVE = re.compile(r"(?:[ ]*+(?:#[^\n]*)?\n)*+(%[^\n]*)")
_HARMLESS_DIRECTIVE = re.compile(r"%YAML[ ]+1\.2[ ]*(?:#.*)?")
_BETWEEN_DOCUMENTS = re.compile(r"(?:[ \t\n]|#[^\n]*|\.\.\.(?=[ \t\n]|\Z))*+")
_COMMENT = re.compile(r"(?:(?<=[ \t\n])|\A)#[^\n]*")
_BLOCK_HEADER = re.compile(r"[|>][-+0-9]*+(?![ ]*(?:\n|\Z)|[ ]+#)")
_TAB_AS_INDENTATION = re.compile(r"[^\n]*+\n(?:[ ]*+\n)*+[ ]*+\t")
_AFTER_BLOCK_HEADER = (
    "expected the end of the line after | or >, got more",
    "start the text on the next line, indented",
)
_TAB = ("expected spaces, got a tab", "YAML is laid out with spaces; replace the tab")


def _yaml_parser() -> Any:
    """PyYAML's parser in C where PyYAML was built with it, else the one in Python: both give the same events."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _read_yaml(build: _Builder, text: str) -> Mapping[int, frozenset[str]]:
    """Feed YAML to the builder; returns the suppressions of its comments."""
    import yaml

    _check_before_parsing(build, text)
    comments = _SUPPRESSION.search(text) is not None
    tabs = "\t" in text
    quoted: list[tuple[int, int]] = []
    done = 0  # everything before this index has been looked at for tabs
    parser = _yaml_parser()(text)
    previous: Any = None
    try:
        while not isinstance(event := parser.get_event(), yaml.StreamEndEvent):
            place: int = event.start_mark.index
            if tabs:
                done = _check_tabs(build, text, done, event)
            if isinstance(event, yaml.ScalarEvent):
                if event.anchor or event.tag:
                    _refuse_properties(build, event, place)
                if event.style:  # None or "" where there are no quotes, depending on the parser
                    if comments and "nqx:" in event.value:
                        quoted.append((place, _index(event.end_mark, text)))
                    if not event.value.isascii() and _SURROGATE.search(event.value):
                        build.report("NQX001", place, *_LONE_SURROGATE)
                    if event.style in "|>" and (header := _BLOCK_HEADER.match(text, place)):
                        build.fail("NQX001", header.end(), *_AFTER_BLOCK_HEADER)
                    _take(build, event.value, event.value, place, None)
                else:
                    if not event.value:  # the parsers put nothing at all at different ends of the space around it
                        space = text[_index(previous.end_mark, text) : place]
                        place -= len(space) - len(space.rstrip(" \t\n"))
                    value, finding = _plain(event.value)
                    _take(build, value, event.value, place, finding)
            elif isinstance(event, yaml.CollectionStartEvent):
                if event.anchor or event.tag:
                    _refuse_properties(build, event, place)
                build.open({} if isinstance(event, yaml.MappingStartEvent) else [], place)
            elif isinstance(event, yaml.CollectionEndEvent):
                build.close()
            elif isinstance(event, yaml.AliasEvent):
                message = f"expected a value, got the alias {_show(f'*{event.anchor}')}"
                build.report("NQX003", place, message, "write the value out")
                build.drop(place)
            elif isinstance(event, yaml.DocumentEndEvent):
                _check_after_document(build, text, event)
            previous = event
    except yaml.YAMLError as error:
        build.fail(*_syntax_problem(error, text))
    finally:
        parser.dispose()
    return _suppressions(build, quoted) if comments else {}


def _take(build: _Builder, value: JsonValue, text: str, place: int, finding: _Finding | None) -> None:
    """Hand a scalar to the builder, as key or as value."""
    if len(text) > MAX_SCALAR:
        message = f"expected at most {MAX_SCALAR} characters in one value, got {len(text)}"
        build.report("NQX005", place, message, _LARGE_DATA)
    if not build.wants_key():
        if finding:
            build.report(finding.code, place, finding.message, finding.hint, finding.severity)
        build.scalar(value, place)
    elif not isinstance(value, str):
        build.report("NQX006", place, f"expected text as key, got {_show(text)}", "put the key in quotes")
        build.drop(place)
    elif finding and value == "<<":
        build.report("NQX006", place, "expected text as key, got the merge key <<", "write the merged members out")
        build.drop(place)
    else:
        build.key(value, place, "NQX002")
        if finding:
            build.report(finding.code, place, finding.message, finding.hint, finding.severity)


def _refuse_properties(build: _Builder, event: Any, place: int) -> None:
    if event.anchor:
        message = f"expected a value, got the anchor {_show(f'&{event.anchor}')}"
        build.report("NQX003", place, message, "remove it; write repeated values out")
    if event.tag:
        message = f"expected a value, got the tag {_show(event.tag)}"
        build.report("NQX004", place, message, "remove the tag; put text in quotes")


def _check_before_parsing(build: _Builder, text: str) -> None:
    """Refuse what the two parsers take differently: unprintable characters and directives."""
    for found in _UNPRINTABLE.finditer(text):
        code_point = f"U+{ord(found.group()):04X}"
        hint = "remove it, or write it as an escape in double quotes"
        build.report("NQX001", found.start(), f"expected printable characters, got {code_point}", hint)
    if build.errors:
        raise SchemaError(build.errors)
    after = 0
    while "%" in text and (found_at := _DIRECTIVE.match(text, after)):
        directive, after = found_at.group(1), found_at.end()
        if not _HARMLESS_DIRECTIVE.fullmatch(directive):
            code = "NQX004" if directive.startswith("%TAG") else "NQX001"
            message = f"expected a document, got the directive {_show(directive)}"
            build.fail(code, found_at.start(1), message, "remove the line")


def _check_tabs(build: _Builder, text: str, done: int, event: Any) -> int:
    """Refuse tabs outside quotes, block texts and comments, where one parser takes them and the other does not."""
    place, end = _index(event.start_mark, text), _index(event.end_mark, text)
    outside = place if getattr(event, "style", None) else end
    tab = text.find("\t", done, outside)
    for comment in _COMMENT.finditer(text, done, outside) if tab >= 0 else ():
        if 0 <= comment.start() < tab:
            tab = text.find("\t", max(tab, comment.end()), outside)
    if (
        tab < 0
        and getattr(event, "style", None) in {"|", ">"}
        and (found := _TAB_AS_INDENTATION.match(text, place, end))
    ):
        tab = found.end() - 1
    if tab >= 0:
        build.fail("NQX001", tab, *_TAB)
    return max(done, end)


def _check_after_document(build: _Builder, text: str, event: Any) -> None:
    """Refuse a second document before the parser meets it."""
    after = _BETWEEN_DOCUMENTS.match(text, min(event.end_mark.index, len(text))).end()  # type: ignore[union-attr]  # matches ""
    if after < len(text) and (event.explicit or text.startswith("---", after)):
        build.fail("NQX001", after, "expected one document in the file, got another", "write one file for each version")


_SUPPRESSION = re.compile(r"(?:(?<=[ \t\n])|\A)#[ \t]*nqx:")
_IGNORE = re.compile(r"#[ \t]*nqx:[ \t]*ignore\[[ ]*(NQX[0-9]{3}(?:[ ]*,[ ]*NQX[0-9]{3})*)[ ]*\](?:[ \t].*)?")


def _suppressions(build: _Builder, quoted: list[tuple[int, int]]) -> Mapping[int, frozenset[str]]:
    """Line -> codes, from the comments that are not inside quoted text."""
    found: dict[int, frozenset[str]] = {}
    text = build.text.text
    spans = iter((*quoted, (len(text), len(text) + 1)))
    start, end = next(spans)
    done = 0
    for begin in _SUPPRESSION.finditer(text):
        place = begin.start()
        while end <= place:
            start, end = next(spans)
        if start <= place or place < done:
            continue
        done = _end_of_line(text, place)
        if len(found) == MAX_SUPPRESSIONS:
            hint = "remove those that are no longer needed"
            build.fail("NQX005", place, f"expected at most {MAX_SUPPRESSIONS} suppressions, got more", hint)
        if known := _IGNORE.fullmatch(text, place, done):
            found[build.text.mark(place).line] = frozenset(re.split(r"[ ]*,[ ]*", known.group(1)))
        else:
            message = f"expected '# nqx: ignore[NQX120]', got {_show(text[place:done])}"
            build.report("NQX010", place, message, "list the codes in brackets, separated by commas", "warning")
    return found


# What PyYAML's two parsers say (context: problem), where to point, and what we say instead.
_LONE_SURROGATE = (
    "expected a character, got half of a surrogate pair",
    "write the character itself, or \\U and 8 digits",
)
_Explanation = tuple[str, Literal["context", "problem", "escape"], str, str, str]
_EXPLANATIONS: tuple[_Explanation, ...] = (
    ("ing a tag|undefined tag", "context", "NQX004", "expected a value, got a tag", "remove what starts with !, or put text in quotes"),
    ("scanning an a", "context", "NQX003", "expected a value, got an anchor or alias", "write the value out, or put text in quotes"),
    ("quoted.*end of stream", "context", "NQX001", "expected a closing quote, got the end of the file", "close the quote that opens here"),
    ("quoted.*document", "context", "NQX001", "expected a closing quote, got a line with --- or ...", "close the quote that opens here"),
    ("escape character|hexa?decimal", "escape", "NQX001", "expected an escape such as \\n or \\u00e9, got an unknown one", "double the backslash, or use single quotes"),
    ("Unicode|chr", "context", "NQX001", *_LONE_SURROGATE),
    ("entries are not allowed|keys are not allowed", "problem", "NQX001", "expected a value, got the start of a block", "start it on the next line, indented, or write [a, b]"),
    ("node content", "problem", "NQX001", "expected a value, got {got}", "remove it, or put text in quotes"),
    ("tab character", "problem", "NQX001", *_TAB),
    ("start any token", "problem", "NQX001", "expected a value, got {got}", "put text that starts with it in quotes"),
    ("block scalar", "problem", "NQX001", *_AFTER_BLOCK_HEADER),
)  # fmt: skip
_LAYOUT: Mapping[str, tuple[str, str]] = {
    "open bracket": ("expected a closing {closing} for this {opened}, got {got}", "close the bracket, or put a comma between the items"),
    "no comma": ("expected , or {closing}, got {got}", "put a comma between the items, and text that holds one in quotes"),
    "stray bracket": ("expected the end of the value, got {got} without its opening bracket", "remove it, or open the bracket"),
    "after value": ("expected the end of the value, got {got} after it", "double a quote inside quotes, or use the other kind of quotes"),
    "two colons": ("expected one 'key: value' on the line, got {got} again", "put a value that holds ': ' in quotes"),
    "no space": ("expected a space after the colon, got none", "write 'key: value'"),
    "no colon": ("expected ': ' after the key, got the end of the line", "add the colon, or indent the line below its key"),
    "indentation": ("expected the indentation of the lines around, got another", "align the line with those of its block; end a key with a colon"),
}  # fmt: skip
_NO_SPACE = re.compile(r"""\s*(?:- +)*(?:[\w.-]+|'[^'\n]*'|"[^"\n]*"):(?=[^\s:])""")


def _syntax_problem(error: Any, text: str) -> tuple[str, int, str, str]:
    """Code, place, message and likely fix of a syntax error, the same for both parsers."""
    said = f"{getattr(error, 'context', None)}: {getattr(error, 'problem', None)}"
    place = _index(getattr(error, "problem_mark", None), text)
    context = place if getattr(error, "context_mark", None) is None else _index(error.context_mark, text)
    got = _show(text[place : place + 1]) if place < len(text) else "the end of the file"
    if text[place : place + 1] == "\t":
        return "NQX001", place, *_TAB
    if text.startswith("%", line := text.rfind("\n", 0, place) + 1):
        return "NQX001", line, "expected a key or an item, got a directive", "no line of a document starts with %"
    for pattern, where, code, message, hint in _EXPLANATIONS:
        if re.search(pattern, said):
            escape = max(context, text.rfind("\\", context, place + 1))
            return code, {"problem": place, "context": context, "escape": escape}[where], message.format(got=got), hint
    opened = text[context : context + 1]
    closing = {"[": "]", "{": "}"}.get(opened, "")
    if "flow" in said:
        unclosed = place == len(text) or "\n" in text[context:place]
        place, kind = (context, "open bracket") if unclosed else (place, "no comma")
    else:
        place, kind = _layout_problem(text, context if "could not find" in said else place)
    message, hint = _LAYOUT[kind]
    return "NQX001", place, message.format(got=got, opened=opened, closing=closing), hint


def _layout_problem(text: str, place: int) -> tuple[int, str]:
    """What is likely wrong where lines do not fit together: the place to point at, and the key in ``_LAYOUT``."""
    start = text.rfind("\n", 0, place) + 1
    before = text[start:place]
    if text[place : place + 1] in {"]", "}"}:
        return place, "stray bracket"
    if re.search(r":\s", before):
        return place, "after value" if re.search(r"[\"'\]}]", before) else "two colons"
    for line in (start, _line_above(text, start)):
        if no_space := _NO_SPACE.match(text, line, _end_of_line(text, line)):
            return no_space.end() - 1, "no space"
    colon = re.search(r"\A\s*-\s|:", text[start : _end_of_line(text, start)])
    return place, "indentation" if colon else "no colon"


def _line_above(text: str, start: int) -> int:
    """Where the nearest line above begins that is neither blank nor a comment; ``start`` if there is none."""
    above = start
    while above > 0:
        above = text.rfind("\n", 0, above - 1) + 1
        if text[above : _end_of_line(text, above)].partition("#")[0].strip():
            return above
    return start


def _end_of_line(text: str, index: int) -> int:
    end = text.find("\n", index)
    return len(text) if end < 0 else end


def _index(mark: Any, text: str) -> int:
    return min(int(mark.index), len(text)) if mark is not None else 0


# --------------------------------------------------------------------------------------------------------------- JSON

_TOKEN = re.compile(
    r"[ \t\n]*+(?:(?P<mark>[][{},:])"
    r"|(?P<text>\"(?:[^\"\\\x00-\x1f]++|\\(?:[\"\\/bfnrt]|u[0-9a-fA-F]{4}))*+\")"
    r"|(?P<float>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++(?:[eE][-+]?[0-9]++)?|[eE][-+]?[0-9]++))|(?P<int>-?(?:0|[1-9][0-9]*+))"
    r"|(?P<word>true|false|null)|(?P<special>-?Infinity|NaN)|(?P<end>\Z))"
)
_SPACE = re.compile(r"[ \t\n]*+")
_WORDS: Mapping[str, JsonValue] = {"true": True, "false": False, "null": None}

# What stands where a JSON token cannot, and what to do about it.
_JSON_HINTS: tuple[tuple[str, str], ...] = (
    (r"//|/\*|#", "JSON has no comments: remove it, or write the schema in YAML"),
    (r"'", "JSON quotes text with double quotes"),
    (r'"[^"\\\n]*(?:\\.[^"\\\n]*)*(?:\n|\Z)', "close the quote on its line; a line break in text is \\n"),
    (
        r'"',
        'escape control characters as \\u00XX; JSON knows \\\\ \\/ \\" \\b \\f \\n \\r \\t \\uXXXX and no other escape',
    ),
    (r"[]}]", "remove the comma before it, or close the bracket that it does not match"),
    (r"True|False|None", "write true, false and null"),
    (r"[-+.0-9]", "write numbers as 10, -0.5 or 1e-3: no leading zeros, + or ."),
    (r"[A-Za-z_]", "put text and keys in double quotes"),
    (r"\Z", "close the bracket"),
    (r"", "separate items by commas, keys from values by colons; a file holds one document"),
)


def _read_json(build: _Builder, text: str) -> Mapping[int, frozenset[str]]:
    """Feed JSON to the builder. There are no comments in JSON, so no suppressions."""
    expected = "a value"
    opened: list[int] = []
    place = 0
    while True:
        found = _TOKEN.match(text, place)
        kind = found.lastgroup or "" if found else ""
        word = found[kind] if found else ""
        place = found.start(kind) if found else _SPACE.match(text, place).end()  # type: ignore[union-attr]  # matches ""
        wants_value = expected in {"a value", "a value or ]"}
        if kind == "mark" and word in "[{" and wants_value:
            build.open([] if word == "[" else {}, place)
            opened.append(place)
            expected = "a value or ]" if word == "[" else "a key or }"
        elif kind == "mark" and word in "]}" and expected.endswith(word):
            build.close()
            opened.pop()
            expected = _after_value(build)
        elif kind == "mark" and word in ",:" and expected.startswith(word):
            expected = "a key" if build.wants_key() else "a value"
        elif kind == "text" and expected in {"a key", "a key or }"}:
            build.key(_json_text(build, word, place), place, "NQX014")
            expected = ":"
        elif kind not in {"", "mark", "end"} and wants_value:
            build.scalar(_json_scalar(build, kind, word, place), place)
            expected = _after_value(build)
        elif kind == "end" and expected == "the end of the file":
            return {}
        elif kind == "end" and not build.places:
            return {}  # an empty file, which finish() refuses
        else:
            got = _show(text[place : place + 1]) if place < len(text) else "the end of the file"
            rest = text[place:]
            hint = next(hint for pattern, hint in _JSON_HINTS if re.match(pattern, rest))
            build.fail("NQX001", opened[-1] if kind == "end" else place, f"expected {expected}, got {got}", hint)
        place += len(word)


def _after_value(build: _Builder) -> str:
    if len(build.frames) == 1:
        return "the end of the file"
    return ", or ]" if isinstance(build.frames[-1].items, list) else ", or }"


def _json_text(build: _Builder, word: str, place: int) -> str:
    if len(word) - 2 > MAX_SCALAR:
        message = f"expected at most {MAX_SCALAR} characters in one value, got {len(word) - 2}"
        build.report("NQX005", place, message, _LARGE_DATA)
    if "\\" not in word:
        return word[1:-1]
    text = str(json.loads(word))
    if not text.isascii() and _SURROGATE.search(text):
        build.report("NQX001", place, *_LONE_SURROGATE)
    return text


def _json_scalar(build: _Builder, kind: str, word: str, place: int) -> JsonValue:
    if kind == "text":
        return _json_text(build, word, place)
    if kind == "word":
        return _WORDS[word]
    value, finding = (None, _not_finite(word)) if kind == "special" else _plain(word)
    if finding and finding.severity == "error":
        build.report(finding.code, place, finding.message, finding.hint)
    return value


_READERS: Mapping[str, Callable[[_Builder, str], Mapping[int, frozenset[str]]]] = {
    "yaml": _read_yaml,
    "json": _read_json,
}
_FORMATS: Mapping[str, Format] = {".yaml": "yaml", ".yml": "yaml", ".json": "json"}


# ------------------------------------------------------------------------------------------------------------ writing

# Text that needs no quotes: between commas and brackets, and on a line of its own. Beyond that, the text must not mean
# anything else to a reader of YAML 1.1 or 1.2.
_BARE_IN_FLOW = re.compile(r"[^\W\d](?:[^\s:#,\[\]{}\"'\\]|(?<=\S)#|[ ](?=[^\s#]))*")
_BARE = re.compile(r"[^\W\d](?:[^\s:#]|(?<=\S)[:#](?=\S)|[ ](?=[^\s#]))*")
_FOLDABLE = re.compile(r"\S+(?:[ ]\S+)+")


def dump_yaml(data: JsonValue) -> str:
    """Plain values as YAML that :func:`read_text` reads back to equal values; the same values give the same text.

    Mappings keep the order of their keys. Short ones without structure inside stand on one line, long text is folded,
    and text that some YAML reader would take for another value is quoted.

    Args:
        data: dict, list, str, int, float, bool and None.

    Raises:
        SchemaError: For every value that has no such text: other types, NaN and infinities, keys that are not text,
            or more than the limits of :func:`read_text`.

    Example:
        >>> print(dump_yaml({"fields": {"h": {"type": "float", "default": 1.0}, "on": {"doc": "1e3"}}}), end="")
        fields:
          h: {type: float, default: 1.0}
          "on": {doc: "1e3"}
    """
    problems = list(_unwritable(data))
    if problems:
        raise SchemaError(problems)
    lines = _block(data, 0) if isinstance(data, (dict, list)) and data else [_flow(data)]
    text = "\n".join(lines) + "\n"
    if len(text) > MAX_BYTES:
        raise _too_large("<data>")
    return text


def _unwritable(data: JsonValue) -> Iterator[Diagnostic]:
    """What is wrong with the values; stops at the first thing that is too deep, such as a list inside itself."""
    pending: list[tuple[KeyPath, Any]] = [((), data)]
    nodes = 0
    while pending:
        path, value = pending.pop()
        nodes += 1
        found = _unwritable_value(path, value)
        if found is None and isinstance(value, (dict, list)):
            nodes += len(value) if isinstance(value, dict) else 0
            if nodes + len(pending) + len(value) > MAX_NODES:
                found = _Finding("NQX005", f"expected at most {MAX_NODES} keys and values, got more", _LARGE_DATA)
            else:
                keys: Iterable[Any] = value if isinstance(value, dict) else range(len(value))
                pending += [((*path, key), value[key]) for key in reversed(list(keys))]
        if found is not None:
            yield Diagnostic(found.code, "error", found.message, _path_text(path), hint=found.hint)
            if found.code == "NQX005":
                return


def _unwritable_value(path: KeyPath, value: Any) -> _Finding | None:
    """What is wrong with one value, apart from what is inside it."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else _not_finite(str(value))
    if isinstance(value, int):
        fits = value.bit_length() < MAX_DIGITS * 3
        return (
            None if fits else _Finding("NQX005", f"expected at most {MAX_DIGITS} digits, got more", "write it as text")
        )
    if isinstance(value, str):
        return _unwritable_text(value)
    if isinstance(value, (dict, list)):
        if len(path) >= MAX_DEPTH:
            return _Finding("NQX005", f"expected at most {MAX_DEPTH} levels of nesting, got more", "flatten the data")
        for key in value if isinstance(value, dict) else ():
            if not isinstance(key, str):
                return _Finding("NQX006", f"expected text as key, got {type(key).__name__}", "turn it into text")
            if found := _unwritable_text(key):
                return found
        return None
    hint = "convert it to dict, list, str, int, float, bool or None"
    return _Finding("NQX010", f"expected a plain value, got {type(value).__name__}", hint)


def _unwritable_text(text: str) -> _Finding | None:
    if len(text) > MAX_SCALAR:
        return _Finding(
            "NQX005", f"expected at most {MAX_SCALAR} characters in one value, got {len(text)}", _LARGE_DATA
        )
    return _Finding("NQX001", *_LONE_SURROGATE) if not text.isascii() and _SURROGATE.search(text) else None


def _block(value: dict[str, Any] | list[Any], indent: int) -> list[str]:
    """The lines of a container, one entry below the other; ``indent`` is where the caller will put them."""
    if isinstance(value, list):
        return [line for item in value for line in _entry("-", item, indent)]
    lines: list[str] = []
    for key, item in value.items():
        head = f"{_scalar(key)}:"
        if len(head) > WIDTH:  # parsers do not look for the colon beyond 1024 characters
            lines.append(f"? {head[:-1]}")
            head = ":"
        lines += _entry(head, item, indent)
    return lines


def _entry(head: str, item: JsonValue, indent: int) -> list[str]:
    """The lines of one list item (``-``) or mapping member (``key:``, or ``:`` after a key of its own line)."""
    if isinstance(item, str):
        first, *below = _text_lines(item, LINE - indent - len(head) - 1)
    elif isinstance(item, (dict, list)) and item:
        flow = _flow(item) if _is_flat(item) else ""
        if flow and len(flow) <= min(WIDTH, LINE - indent - len(head) - 1):
            first, below = flow, []
        elif head in {"-", ":"}:
            first, *below = _block(item, indent + 2)
        else:
            return [head, *_indented(_block(item, indent + 2))]
    else:
        first, below = _flow(item), []
    return [f"{head} {first}", *_indented(below)]


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" if line else "" for line in lines]


def _is_leaf(value: JsonValue) -> bool:
    return not isinstance(value, (dict, list)) or not value


def _is_flat(value: dict[str, Any] | list[Any]) -> bool:
    """True for what reads well on one line: leaves, lists of leaves, and mappings that have leaves and at most one level more."""
    inside = list(value.values()) if isinstance(value, dict) else value
    if len(inside) > WIDTH:
        return False
    if all(map(_is_leaf, inside)):
        return True
    if isinstance(value, list):
        return all(isinstance(item, list) and all(map(_is_leaf, item)) for item in inside)
    deeper = (item.values() if isinstance(item, dict) else item for item in inside if not _is_leaf(item))
    return any(map(_is_leaf, inside)) and all(len(items) <= WIDTH and all(map(_is_leaf, items)) for items in deeper)


def _flow(value: JsonValue) -> str:
    """A value on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(key, _BARE_IN_FLOW)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _scalar(value, _BARE_IN_FLOW)


def _text_lines(text: str, width: int) -> Sequence[str]:
    """Text as the value of an entry: on one line, folded where it is too long, or literal where it has several lines."""
    if len(text) > width and _FOLDABLE.fullmatch(text) and not _UNPRINTABLE.search(text):
        return [">-", *textwrap.wrap(text, width=110, break_long_words=False, break_on_hyphens=False)]
    lines = text.removesuffix("\n").split("\n")
    literal = "\n" in text and lines[0][:1].strip() and lines[-1] and all(line == line.rstrip() for line in lines)
    if literal and "\t" not in text and not _UNPRINTABLE.search(text):
        return ["|" if text.endswith("\n") else "|-", *lines]
    return [_scalar(text)]


def _scalar(value: str | float | None, bare: re.Pattern[str] = _BARE) -> str:
    if isinstance(value, str):
        legible = bare.fullmatch(value) and not _UNPRINTABLE.search(value) and value not in {"y", "Y", "n", "N"}
        return str(value) if legible and _plain(value) == (value, None) else _quoted(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _number(value)


def _number(value: float) -> str:
    """A number as YAML 1.1 and 1.2 both read it: YAML 1.1 wants a point before an exponent."""
    if isinstance(value, int):
        return int.__repr__(value)
    text = float.__repr__(value)
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


def _quoted(text: str) -> str:
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found.group()):04x}", json.dumps(text, ensure_ascii=False))
