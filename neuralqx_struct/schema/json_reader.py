"""Reading JSON: its tokens, checked and handed to the builder.

Owns the grammar of JSON (RFC 8259 without duplicate keys and lone surrogates) and the likely fix where text departs
from it. The standard library's reader tells no positions and calls itself for each level, so it cannot serve here.

Example:
    >>> from neuralqx_struct.schema.source import Text
    >>> build = Builder(Text("<text>", '{"n": [1, 2]}'))
    >>> build.finish(read_json(build, build.text.text)).data
    {'n': [1, 2]}
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from neuralqx_struct.schema import limits
from neuralqx_struct.schema.builder import Builder
from neuralqx_struct.schema.scalars import LONE_SURROGATE, lone_surrogate, not_finite, plain, show
from neuralqx_struct.schema.source import JsonValue

__all__ = ["read_json"]

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


def read_json(build: Builder, text: str) -> Mapping[int, frozenset[str]]:
    """Feed JSON to the builder.

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
            got = show(text[place : place + 1]) if place < len(text) else "the end of the file"
            rest = text[place:]
            hint = next(hint for pattern, hint in _JSON_HINTS if re.match(pattern, rest))
            build.fail("NQX001", opened[-1] if kind == "end" else place, f"expected {expected}, got {got}", hint)
        place += len(word)


def _after_value(build: Builder) -> str:
    if len(build.frames) == 1:
        return "the end of the file"
    return ", or ]" if isinstance(build.frames[-1].items, list) else ", or }"


def _json_text(build: Builder, word: str, place: int) -> str:
    if len(word) - 2 > limits.MAX_SCALAR:
        message = f"expected at most {limits.MAX_SCALAR} characters in one value, got {len(word) - 2}"
        build.report("NQX005", place, message, limits.LARGE_DATA)
    if "\\" not in word:
        return word[1:-1]
    text = str(json.loads(word))
    if lone_surrogate(text):
        build.report("NQX001", place, *LONE_SURROGATE)
    return text


def _json_scalar(build: Builder, kind: str, word: str, place: int) -> JsonValue:
    if kind == "text":
        return _json_text(build, word, place)
    if kind == "word":
        return _WORDS[word]
    value, finding = (None, not_finite(word)) if kind == "special" else plain(word)
    if finding and finding.severity == "error":
        build.report(finding.code, place, finding.message, finding.hint)
    return value
