r"""Schema files as text: the plain values of one file with the position of each key and value, and their scalars.

Owns :class:`Source`, and the warnings about scalars that YAML 1.1 tools read as another type. ``loader.py`` reads files, with ``yaml_reader.py`` and ``json_reader.py``; ``yaml_writer.py`` writes
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
    >>> value, problem = plain("0o10")
    >>> value, problem.hint
    (8, 'write 8')
    >>> number(1e21), quoted("1e3")
    ('1.0e+21', '"1e3"')
"""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from neuralqx_struct.errors import Diagnostic, SchemaError, Severity
from neuralqx_struct.paths import FieldName, format_path, parse_path
from neuralqx_struct.printing import brief_scalar

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
#: Message and hint about a file that is nested deeper.
TOO_DEEP = (
    f"expected at most {MAX_DEPTH} levels of nesting, got more",
    "no schema is nested like this; flatten it",
)
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


# ---------------------------------------------------------------------------------------------------------------------
# Scalars: the value of text without quotes in YAML 1.2's core schema, of which JSON is a subset, and the inverse.

_SURROGATE = re.compile("[\ud800-\udfff]")
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")

_CORE = re.compile(
    r"(?P<null>null|Null|NULL|~|)|(?P<bool>true|True|TRUE|false|False|FALSE)"
    r"|(?P<int>[-+]?(?:0|[1-9][0-9]*))|(?P<octal>0o[0-7]+)|(?P<hex>0x[0-9a-fA-F]+)|(?P<zeros>[-+]?0[0-9]+)"
    r"|(?P<float>[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?)"
    r"|(?P<special>[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))"
)
#: YAML 1.1, as PyYAML resolves it; compiled on first use, which takes as long as a small module.
_LEGACY = (
    r"(?P<null>null|Null|NULL|~|)|(?P<bool>(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF))"
    r"|(?P<int>[-+]?(?:0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|[1-9][0-9_]*(?::[0-5]?[0-9])+))"
    r"|(?P<float>[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))"
    r"|(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::[0-9]{2})?))?)"
    r"|(?P<merge><<)|(?P<value>=)"
)
#: First characters of all texts that the two patterns match.
_SUSPECT = frozenset("+-.0123456789~<=nNtTfFyYoO")
_TYPES = {
    None: "text", "null": "null", "bool": "a boolean", "int": "an integer", "octal": "an integer", "hex": "an integer",
    "float": "a number", "date": "a date", "merge": "a merge key", "value": "a default value",
}  # fmt: skip
_BASES = {"int": 10, "octal": 8, "hex": 16}


def problem(
    code: str, message: str, hint: str | None = None, severity: Severity = "error"
) -> Diagnostic:
    """A finding without a position."""
    return Diagnostic(code, severity, message, hint=hint)


def plain(text: str) -> tuple[JsonValue, Diagnostic | None]:
    """The value of a scalar without quotes, and an error or warning about it."""
    if text and text[0] not in _SUSPECT:
        return text, None
    core = _CORE.fullmatch(text)
    kind = core and core.lastgroup
    value: JsonValue = text
    match kind:
        case None:
            pass
        case "null":
            return None, None
        case "bool":
            return text in {"true", "True", "TRUE"}, None
        case "zeros":
            message = f"expected a number without leading zeros, got {brief_scalar(text)}\nYAML 1.1 reads it as octal, YAML 1.2 as decimal"
            hint = "leave the leading zeros out, write octal as 0o10, or put text in quotes"
            return 0, problem("NQX007", message, hint)
        case "special":
            return text.lower().removeprefix("+"), None  # types read it as a number
        case _ if len(text) > MAX_DIGITS:
            return 0, too_many_digits(len(text), "put text in quotes")
        case "float":
            value = float(text)
            if not math.isfinite(value):
                return 0.0, not_finite(text)
        case _:
            value = int(text, _BASES[kind])
    legacy = re.fullmatch(_LEGACY, text)
    here, there = _TYPES[kind], _TYPES[legacy and legacy.lastgroup]
    if here == there:
        return value, None
    message = f"expected a value that every YAML reader reads alike, got {brief_scalar(text)}\nit is {here} here (YAML 1.2), but {there} to YAML 1.1 tools"
    better = quoted(text) if isinstance(value, str) else number(value)  # type: ignore[arg-type]
    return value, problem("NQX007", message, f"write {better}", "warning")


def not_finite(text: str) -> Diagnostic:
    """The finding about an infinity or NaN that is no text."""
    hint = (
        'write ".inf", "-.inf" or ".nan" as the value of a float; YAML takes it without quotes too'
    )
    return problem("NQX013", f"expected a finite number, got {brief_scalar(text)}", hint)


def too_many_digits(got: int | str, hint: str) -> Diagnostic:
    """The finding about a number that is too long."""
    return problem("NQX005", f"expected at most {MAX_DIGITS} digits, got {got}", hint)


def text_problem(text: str) -> Diagnostic | None:
    """The finding about text that no file may hold: too long, or not Unicode."""
    if len(text) > MAX_SCALAR:
        message = f"expected at most {MAX_SCALAR} characters in one value, got {len(text)}"
        return problem("NQX005", message, LARGE_DATA)
    return problem("NQX001", *LONE_SURROGATE) if lone_surrogate(text) else None


_CONFLICT = re.compile(r"^(?:[<>]{7}|\|{7}|={7})(?= |$)", re.MULTILINE)


def conflict_markers(text: str, name: str, *, lone: bool = False) -> list[Diagnostic]:
    r"""The findings about lines that git leaves in a file where a merge found a conflict.

    Args:
        text: The text of a file.
        name: Its name in the findings.
        lone: True to find ``=======`` without the other markers, which can also be a line of a text.

    Example:
        >>> [found.line for found in conflict_markers("<<<<<<< HEAD\na: 1\n=======\na: 2\n>>>>>>> main\n", "v1.yaml")]
        [1, 3, 5]
    """
    found = [*_CONFLICT.finditer(text)]
    if not lone and all(marker[0][0] in "=|" for marker in found):
        return []
    hint = "choose one of the two sides, and remove the lines with markers; `git diff` shows both"
    message = "expected a merged file, got the git conflict marker {}"
    lines = Text(name, text)
    return [
        Diagnostic("NQX017", "error", message.format(m[0]), "", name, *lines.mark(m.start()), hint)
        for m in found[:MAX_PROBLEMS]
    ]


LONE_SURROGATE = (
    "expected a character, got half of a surrogate pair",
    "write the character itself, or \\U and 8 digits",
)


def number(value: float) -> str:
    """A number as YAML 1.1 and 1.2 both read it: YAML 1.1 wants a point before an exponent."""
    if isinstance(value, int):
        return int.__repr__(value)
    text = float.__repr__(value)
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


def quoted(text: str) -> str:
    """Returns text in double quotes, the same in YAML and JSON."""
    literal = json.dumps(text, ensure_ascii=False)
    return UNPRINTABLE.sub(lambda found: f"\\u{ord(found.group()):04x}", literal)


def lone_surrogate(text: str) -> re.Match[str] | None:
    """The first surrogate code point, which is no character; None if there is none."""
    return None if text.isascii() else _SURROGATE.search(text)
