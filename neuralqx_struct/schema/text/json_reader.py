"""Reading JSON: its tokens as events for the builder of ``loader.py``.

Owns the grammar of JSON (RFC 8259 without lone surrogates) and the likely fix where text departs from it. The standard
library's parser gives no positions and is recursive, so it cannot be used here.

Example:
    >>> from neuralqx_struct.schema.text import Text
    >>> from neuralqx_struct.schema.text.loader import Builder
    >>> build = Builder(Text("<text>", '{"n": [1, 2]}'))
    >>> build.finish(read_json(build, build.text.text)).data
    {'n': [1, 2]}
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.printing import brief_scalar
from neuralqx_struct.schema.text import JsonValue, Suppressions, not_finite, plain

if TYPE_CHECKING:
    from neuralqx_struct.schema.text.loader import Builder

_SPACE = re.compile(r"[ \t\n]*+")
_TOKEN = re.compile(
    r"(?P<mark>[][{},:])|(?P<text>\"(?:[^\"\\\x00-\x1f]++|\\(?:[\"\\/bfnrt]|u[0-9a-fA-F]{4}))*+\")"
    r"|(?P<number>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?)"
    r"|(?P<word>true|false|null)|(?P<special>-?Infinity|NaN)|(?P<end>\Z)|"
)
_WORDS: Mapping[str, JsonValue] = {"true": True, "false": False, "null": None}

_VALUE = frozenset({"[", "{", "text", "number", "word", "special"})
#: The name of an expectation in messages -> the tokens that satisfy it.
_ALLOWED: Mapping[str, frozenset[str]] = {
    "a value": _VALUE,
    "a value or ]": _VALUE | {"]"},
    "a key": frozenset({"text"}),
    "a key or }": frozenset({"text", "}"}),
    ":": frozenset({":"}),
    ", or ]": frozenset({",", "]"}),
    ", or }": frozenset({",", "}"}),
    "the end of the file": frozenset({"end"}),
}

#: Pattern of unexpected text -> the likely fix.
_HINTS: Mapping[str, str] = {
    r"//|/\*|#": "JSON has no comments: remove it, or write the schema in YAML",
    r"'": "JSON quotes text with double quotes",
    r'"[^"\\\n]*(?:\\.[^"\\\n]*)*(?:\n|\Z)': "close the quote on its line; a line break in text is \\n",
    r'"': 'escape control characters as \\u00XX; JSON knows \\\\ \\/ \\" \\b \\f \\n \\r \\t \\uXXXX and no other escape',
    r"[]}]": "remove the comma before it, or close the bracket that it does not match",
    r"True|False|None": "write true, false and null",
    r"[-+.0-9]": "write numbers as 10, -0.5 or 1e-3: no leading zeros, + or .",
    r"[A-Za-z_]": "put text and keys in double quotes",
    r"\Z": "close the bracket",
    r"": "separate items by commas, keys from values by colons; a file holds one document",
}


def read_json(build: Builder, text: str) -> Suppressions:
    """Feeds JSON to the builder.

    Args:
        build: Takes the values and the problems.
        text: The text, with newlines as line breaks.

    Returns:
        No suppressions: there are no comments in JSON.

    Raises:
        SchemaError: After a problem that ends the reading, with those before it.
    """
    expected = "a value"
    opened: list[int] = []
    place = 0
    while True:
        place = _match(_SPACE, text, place).end()
        token = _match(_TOKEN, text, place)
        word = token.group()
        kind = word if token.lastgroup == "mark" else token.lastgroup
        if kind == "end" and not build.places:
            return {}  # an empty file, which finish() refuses
        if kind not in _ALLOWED[expected]:
            got = (
                brief_scalar(text[place : place + 1])
                if place < len(text)
                else "the end of the file"
            )
            hint = next(hint for pattern, hint in _HINTS.items() if re.match(pattern, text[place:]))
            at = opened[-1] if kind == "end" else place
            build.fail("NQX001", at, f"expected {expected}, got {got}", hint)
        match kind:
            case "[" | "{":
                build.open([] if kind == "[" else {}, place)
                opened.append(place)
                expected = "a value or ]" if kind == "[" else "a key or }"
            case ",":
                expected = "a key" if build.wants_key() else "a value"
            case ":":
                expected = "a value"
            case "end":
                return {}
            case "]" | "}":
                build.close()
                opened.pop()
                expected = _after_value(build)
            case _:
                is_key = build.wants_key()
                value, problem = _scalar(kind, word)
                build.scalar(value, place, problem)
                expected = ":" if is_key else _after_value(build)
        place = token.end()


def _match(pattern: re.Pattern[str], text: str, place: int) -> re.Match[str]:
    """The match of a pattern that matches the empty text too."""
    found = pattern.match(text, place)
    assert found is not None
    return found


def _after_value(build: Builder) -> str:
    if len(build.frames) == 1:
        return "the end of the file"
    return ", or ]" if isinstance(build.frames[-1].items, list) else ", or }"


def _scalar(kind: str | None, word: str) -> tuple[JsonValue, Diagnostic | None]:
    """The value of a token, and an error about it."""
    if kind == "text":
        return (json.loads(word) if "\\" in word else word[1:-1]), None
    if kind == "word":
        return _WORDS[word], None
    if kind == "special":
        return None, not_finite(word)
    value, problem = plain(word)
    if problem and problem.severity != "error":  # the warnings are about YAML
        problem = None
    return value, problem
