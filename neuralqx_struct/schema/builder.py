"""The builder: puts together the document that a parser finds piece by piece, with its positions and problems.

Owns nesting, duplicate keys, the limits on depth and nodes, and the collecting of problems. The readers of YAML and JSON
tell it what they meet, in the order of the file; it knows neither language.

Example:
    >>> build = Builder(Text("<text>", "{a: 1}"))
    >>> build.open({}, 0)
    >>> build.key("a", 1, "NQX002")
    >>> build.scalar(1, 4)
    >>> build.close()
    >>> build.finish({}).data
    {'a': 1}
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, NoReturn

from neuralqx_struct.errors import Diagnostic, SchemaError, Severity
from neuralqx_struct.schema import limits
from neuralqx_struct.schema.scalars import show
from neuralqx_struct.schema.source import JsonValue, Marks, Source, Text, path_text

__all__ = ["Builder"]


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


class Builder:
    """Puts together the values that a parser finds, with their places, and collects problems. Not recursive."""

    __slots__ = ("ends", "errors", "frames", "places", "root", "text", "warnings")

    def __init__(self, text: Text) -> None:
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
        if len(problems) > limits.MAX_PROBLEMS:
            return
        if len(problems) == limits.MAX_PROBLEMS:
            message = f"expected at most {limits.MAX_PROBLEMS} problems of severity {severity}, got more"
            code, hint = "NQX005", "mend these first; the others are not listed"
        keys = [len(f.items) if isinstance(f.items, list) else f.key for f in self.frames[1:]]
        path = path_text(key for key in keys if not isinstance(key, _Key))
        line, column = self.text.mark(place)
        problems.append(Diagnostic(code, severity, message, path, self.text.name, line, column, hint))
        if len(self.errors) > limits.MAX_PROBLEMS:
            raise SchemaError(self.errors)

    def fail(self, code: str, place: int, message: str, hint: str) -> NoReturn:
        """A problem of the whole file, after which nothing can be read."""
        del self.frames[1:]
        self.report(code, place, message, hint)
        raise SchemaError(self.errors)

    def open(self, items: dict[str, Any] | list[Any], place: int) -> None:
        """Begin a container: what follows is inside it, until :meth:`close`."""
        if len(self.frames) > limits.MAX_DEPTH:
            hint = "no schema is nested like this; flatten the document"
            self.fail("NQX005", place, f"expected at most {limits.MAX_DEPTH} levels of nesting, got more", hint)
        parent = self.frames[-1]
        if parent.key is _Key.WANTED and isinstance(parent.items, dict):
            parent.key = _Key.COMPLEX
            got = "a mapping" if isinstance(items, dict) else "a list"
            self.report("NQX006", place, f"expected text as key, got {got}", "use names as keys")
        self.frames.append(_Frame(items, self._node(place)))

    def close(self) -> None:
        """End the innermost open container."""
        frame = self.frames.pop()
        self.ends[frame.node] = len(self.places)
        self._put(frame.items)

    def scalar(self, value: JsonValue, place: int) -> None:
        """Take a value that has nothing inside."""
        self._node(place)
        self._put(value)

    def wants_key(self) -> bool:
        """True where the next scalar is the key of a member."""
        frame = self.frames[-1]
        return frame.key is _Key.WANTED and isinstance(frame.items, dict)

    def key(self, key: str, place: int, duplicate_code: str) -> None:
        """Take a key; ``duplicate_code`` is reported where the mapping has it already."""
        self._node(place)
        frame = self.frames[-1]
        first = frame.keys.setdefault(key, place)
        frame.key = key
        if first != place:
            line, column = self.text.mark(first)
            message = f"expected each key once, got {show(key)} again\nit stands first at line {line}, column {column}"
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
        if node == limits.MAX_NODES:
            self.fail(
                "NQX005", place, f"expected at most {limits.MAX_NODES} keys and values, got more", limits.LARGE_DATA
            )
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
        """The document that was built.

        Raises:
            SchemaError: With all problems, if there were any.
        """
        if not self.root:
            self.fail("NQX001", 0, "expected a document, got an empty file", "start with 'language: \"1\"'")
        if self.errors:
            raise SchemaError(self.errors)
        marks = Marks(self.root[0], self.text, self.places, self.ends)
        return Source(self.text.name, self.root[0], marks, MappingProxyType(suppressions), tuple(self.warnings))
