r"""Sources: a schema file as read, which is plain values that know their position.

Owns :class:`Source` and the marks (line and column) of its keys and values. Does not read files (``loader.py``) and
does not know what a schema is (``model.py``).

Example:
    >>> from neuralqx_struct.schema.loader import read_text
    >>> source = read_text("dims:\n  n_sites: {min: 2}\n")
    >>> source.mark(("dims", "n_sites", "min"))
    Mark(line=2, column=18)
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from neuralqx_struct.errors import Diagnostic, Severity
from neuralqx_struct.paths import FieldName, format_path

__all__ = ["JsonValue", "KeyPath", "Mark", "Marks", "Source", "Text", "path_text"]

JsonValue = dict[str, Any] | list[Any] | str | int | float | bool | None
KeyPath = tuple[str | int, ...]


class Mark(NamedTuple):
    """A place in a file: line and column, both counted from 1, columns in characters."""

    line: int
    column: int


class Text:
    """A text that turns character indices into marks, at a cost that does not grow with the text."""

    __slots__ = ("_table", "name", "text")
    _CHUNK = 1 << 14

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self._table: list[tuple[int, int]] = []

    def mark(self, index: int) -> Mark:
        """The line and column of a character."""
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

    def __init__(self, data: JsonValue, text: Text, places: array[int], ends: array[int]) -> None:
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
            >>> from neuralqx_struct.schema.loader import read_text
            >>> print(read_text("root: A\n").diagnostic("NQX009", ("root",), "expected B, got A"))
            <text>:1:7: NQX009 expected B, got A
        """
        path = tuple(path)
        line, column = self.mark(path, key=key) or (None, None)
        return Diagnostic(code, severity, message, path_text(path), self.name, line, column, hint)


def path_text(path: Iterable[str | int]) -> str:
    """A path through a document as diagnostics write it: ``$.structs.A``."""
    return format_path(FieldName(part) if isinstance(part, str) else part for part in path)
