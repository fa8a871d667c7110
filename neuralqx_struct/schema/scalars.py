"""Scalars: what text without quotes means, and the text that means a number or a quoted string.

Owns the YAML 1.2 core scalars, what YAML 1.1 tools would take them for, and the characters that a file may hold; JSON
needs nothing else. Does not know where a scalar stands.

Example:
    >>> value, objection = plain("0o10")
    >>> value, objection.hint
    (8, 'write 8')
    >>> number(1e21), quoted("1e3")
    ('1.0e+21', '"1e3"')
"""

from __future__ import annotations

import json
import math
import re
from typing import NamedTuple

from neuralqx_struct.errors import Severity
from neuralqx_struct.schema import limits
from neuralqx_struct.schema.source import JsonValue

__all__ = [
    "LONE_SURROGATE",
    "UNPRINTABLE",
    "Objection",
    "lone_surrogate",
    "not_finite",
    "number",
    "plain",
    "quoted",
    "show",
]

_SURROGATE = re.compile("[\ud800-\udfff]")
UNPRINTABLE = re.compile("[^\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
LONE_SURROGATE = (
    "expected a character, got half of a surrogate pair",
    "write the character itself, or \\U and 8 digits",
)

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


class Objection(NamedTuple):
    """What is wrong or surprising with a value whose place is not known here."""

    code: str
    message: str
    hint: str
    severity: Severity = "error"


def plain(text: str) -> tuple[JsonValue, Objection | None]:
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
        message = f"expected a number without leading zeros, got {show(text)}\nYAML 1.1 reads it as octal, YAML 1.2 as decimal"
        return 0, Objection(
            "NQX007", message, "leave the leading zeros out, write octal as 0o10, or put text in quotes"
        )
    if kind == "special":
        return 0.0, not_finite(text)
    if kind is not None and len(text) > limits.MAX_DIGITS:
        return 0, Objection(
            "NQX005", f"expected at most {limits.MAX_DIGITS} digits, got {len(text)}", "put text in quotes"
        )
    value: JsonValue = text
    if kind == "float":
        value = float(text)
        if not math.isfinite(value):
            return 0.0, not_finite(text)
    elif kind is not None:
        value = int(text, {"int": 10, "octal": 8, "hex": 16}[kind])
    legacy = _LEGACY.fullmatch(text)
    other = _KINDS[legacy and legacy.lastgroup]
    if other == _KINDS[kind]:
        return value, None
    message = f"expected a value that every YAML reader reads alike, got {show(text)}\nit is {_KINDS[kind]} here (YAML 1.2), but {other} to YAML 1.1 tools"
    hint = f"write {number(value)}" if isinstance(value, (int, float)) else f"write {quoted(text)}"
    return value, Objection("NQX007", message, hint, "warning")


def not_finite(text: str) -> Objection:
    """What is said about infinities and NaN."""
    return Objection(
        "NQX013",
        f"expected a finite number, got {show(text)}",
        "leave it out or use null; schemas hold finite numbers only",
    )


def number(value: float) -> str:
    """A number as YAML 1.1 and 1.2 both read it: YAML 1.1 wants a point before an exponent."""
    if isinstance(value, int):
        return int.__repr__(value)
    text = float.__repr__(value)
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


def quoted(text: str) -> str:
    """Text in double quotes, the same in YAML and JSON."""
    return UNPRINTABLE.sub(lambda found: f"\\u{ord(found.group()):04x}", json.dumps(text, ensure_ascii=False))


def lone_surrogate(text: str) -> re.Match[str] | None:
    """The first half of a surrogate pair in the text, which is no character; None if there is none."""
    return None if text.isascii() else _SURROGATE.search(text)


def show(text: str, limit: int = 60) -> str:
    """Text as messages quote it: shortened."""
    return repr(text) if len(text) <= limit else f"{text[:limit]!r}... ({len(text)} characters)"
