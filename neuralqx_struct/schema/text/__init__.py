r"""Schema files as text: the plain values of one file with the position of each key and value.

Owns :class:`Source`. ``loader.py`` reads files, with ``yaml_reader.py`` and ``json_reader.py``; ``yaml_writer.py`` writes
them. The meaning of a schema file is in ``schema/model.py``.

Example:
    >>> from neuralqx_struct.schema.text.loader import read_text
    >>> source = read_text("dims:\n  n_sites: {min: 2}\n")
    >>> source.mark(("dims", "n_sites", "min"))
    Mark(line=2, column=18)

The limits on the size of a schema file are shared by the readers and the writer, which read them as ``limits.MAX_NODES``,
so that tests can lower one of them. Limits of expressions are in ``expressions/``.

    >>> MAX_BYTES >> 20
    16
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from neuralqx_struct.errors import Diagnostic, SchemaError, Severity
from neuralqx_struct.paths import FieldName, format_path, parse_path

MAX_BYTES = 16 << 20
MAX_DEPTH = 64
#: Keys and values of about 20,000 lines; a busy machine checks them within two seconds.
MAX_NODES = 65_536
#: Different texts of types and expressions; reading one takes as long as reading a line.
MAX_EXPRESSIONS = 4096
MAX_SCALAR = 1 << 20
#: The smallest limit on int <-> str that Python can be configured to.
MAX_DIGITS = 640
MAX_PROBLEMS = 1000
MAX_SUPPRESSIONS = 10_000
#: Bytes of a malformed file whose well-formed fields are still checked.
MAX_SECOND_LOOK = 256 << 10

LARGE_DATA = "large data belongs into arrays"
FIX_THESE_FIRST = "fix these first; the others are not listed"


def too_large(name: str) -> SchemaError:
    """The error about a text of more than :data:`MAX_BYTES`."""
    message = f"expected at most {MAX_BYTES >> 20} MiB of text, got more"
    hint = "no schema is this large; is this the right file?"
    return SchemaError(message, code="NQX005", file=name, hint=hint)


JsonValue = dict[str, Any] | list[Any] | str | int | float | bool | None
KeyPath = tuple[str | int, ...]
#: Line -> the codes that a comment on it silences.
Suppressions = Mapping[int, frozenset[str]]


class Mark(NamedTuple):
    """A position in a file: line and column, both counted from 1, columns in characters."""

    line: int
    column: int


class Text:
    """A text that converts character indices to marks, at a cost that does not grow with the text."""

    _CHUNK = 1 << 14

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self._starts: list[tuple[int, int]] = []  # the line of each chunk, and its first character

    def mark(self, index: int) -> Mark:
        """The line and column of a character."""
        if not self._starts:
            line, start = 1, 0
            for chunk in range(0, len(self.text) + 1, self._CHUNK):
                self._starts.append((line, start))
                line, start = self._advance(line, start, chunk, chunk + self._CHUNK)
        index = min(index, len(self.text))
        number = index // self._CHUNK
        line, start = self._advance(*self._starts[number], number * self._CHUNK, index)
        return Mark(line, index - start + 1)

    def _advance(self, line: int, start: int, begin: int, end: int) -> tuple[int, int]:
        """The line at ``end``, and its first character, given those at ``begin``."""
        breaks = self.text.count("\n", begin, end)
        if breaks:
            start = self.text.rfind("\n", begin, end) + 1
        return line + breaks, start


class Marks:
    """The position of each key and value of a document.

    Positions are two integers per node in document order; paths are resolved on demand, so that a large file does not
    need a tuple for each node.
    """

    def __init__(self, data: JsonValue, text: Text, places: array[int], ends: array[int]) -> None:
        self._data = data
        self._text = text
        self._places = places  # node -> its first character; a key is the node before its value
        self._ends = ends  # node -> the node after its last descendant
        self._children: dict[int, dict[str | int, int]] = {}

    def nearest(self, path: KeyPath, *, key: bool = False) -> Mark:
        """The mark of ``path``, or of its nearest ancestor that exists."""
        inside: Any = self._data
        node, in_dict = 0, False
        for part in path:
            children = self._inside(node, inside)
            if part not in children:
                break
            in_dict = isinstance(inside, dict)
            node, inside = children[part], inside[part]
        return self._text.mark(self._places[node - (key and in_dict)])

    def _inside(self, node: int, data: JsonValue) -> dict[str | int, int]:
        """The nodes of the values inside a container, by key; cached."""
        found = self._children.get(node)
        if found is None:
            found = self._children[node] = {}
            parts: Iterable[str | int] = ()
            if isinstance(data, dict):
                parts = data
            elif isinstance(data, list):
                parts = range(len(data))
            following = node + 1
            for part in parts:
                child = following + isinstance(data, dict)
                found[part] = child
                following = self._ends[child]
        return found


@dataclass(frozen=True, slots=True)
class Source:
    """One schema file as read.

    Attributes:
        name: The file as the user named it, or ``<text>``; diagnostics name it.
        data: The document as plain values; not to be changed, ``marks`` depend on it.
        marks: The positions; None for a document without a file.
        suppressions: Line -> the codes of its ``# nqx: ignore[...]`` comment, which ``tools/linting.py`` applies.
        warnings: Findings about text that other readers take differently, such as ``NQX007``.
    """

    name: str
    data: JsonValue = None
    marks: Marks | None = None
    suppressions: Suppressions = field(default_factory=dict)
    warnings: tuple[Diagnostic, ...] = ()

    def mark(self, path: Iterable[str | int], *, key: bool = False) -> Mark | None:
        """The position of a value (or its key) or of its nearest ancestor; None if no position is known."""
        return self.marks.nearest(tuple(path), key=key) if self.marks else None

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
        r"""Returns a finding about the value at ``path``, with file, line and column filled in.

        Args:
            code: The code, such as ``NQX104``.
            path: Keys and positions from the root of the document.
            message: ``expected X, got Y``.
            hint: The likely fix.
            severity: ``error``, ``warning`` or ``info``.
            key: Point at the key rather than at the value.

        Example:
            >>> from neuralqx_struct.schema.text.loader import read_text
            >>> print(read_text("root: A\n").diagnostic("NQX009", ("root",), "expected B, got A"))
            <text>:1:7: NQX009 expected B, got A
        """
        path = tuple(path)
        line, column = self.mark(path, key=key) or (None, None)
        return Diagnostic(code, severity, message, path_text(path), self.name, line, column, hint)

    def located(self, finding: Diagnostic, *, key: bool = False) -> Diagnostic:
        """A finding with the file, line and column of its path, unless it has a line."""
        if finding.line is not None:
            return finding
        line, column = self.mark(path_keys(finding.path), key=key) or (None, None)
        return replace(finding, file=self.name, line=line, column=column)


def path_text(path: Iterable[str | int]) -> str:
    """A path through a document in the form of diagnostics: ``$.structs.A``; the inverse of :func:`path_keys`."""
    return format_path(FieldName(part) if isinstance(part, str) else part for part in path)


def path_keys(path: str) -> KeyPath:
    """The keys of a path in the form of diagnostics; an empty one is the document."""
    return tuple(part if isinstance(part, int) else str(part) for part in parse_path(path or "$"))
