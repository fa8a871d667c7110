"""Scalars: the value of unquoted text, and the inverse, numbers and strings as text.

Owns the scalars of YAML 1.2's core schema and the warnings about those that YAML 1.1 tools read as another type; JSON
is a subset. Positions are added by the reader.

Example:
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

from neuralqx_struct.errors import Diagnostic, Severity
from neuralqx_struct.schema import text as limits
from neuralqx_struct.schema.text import JsonValue

_SURROGATE = re.compile("[\ud800-\udfff]")
UNPRINTABLE = re.compile(
    "[^\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)

_CORE = re.compile(
    r"(?P<null>null|Null|NULL|~|)|(?P<bool>true|True|TRUE|false|False|FALSE)"
    r"|(?P<int>[-+]?(?:0|[1-9][0-9]*))|(?P<octal>0o[0-7]+)|(?P<hex>0x[0-9a-fA-F]+)|(?P<zeros>[-+]?0[0-9]+)"
    r"|(?P<float>[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?)"
    r"|(?P<special>[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))"
)
#: YAML 1.1, as PyYAML resolves it.
_LEGACY = re.compile(
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
            message = f"expected a number without leading zeros, got {show(text)}\nYAML 1.1 reads it as octal, YAML 1.2 as decimal"
            hint = "leave the leading zeros out, write octal as 0o10, or put text in quotes"
            return 0, problem("NQX007", message, hint)
        case "special":
            return 0.0, not_finite(text)
        case _ if len(text) > limits.MAX_DIGITS:
            return 0, too_many_digits(len(text), "put text in quotes")
        case "float":
            value = float(text)
            if not math.isfinite(value):
                return 0.0, not_finite(text)
        case _:
            value = int(text, _BASES[kind])
    legacy = _LEGACY.fullmatch(text)
    here, there = _TYPES[kind], _TYPES[legacy and legacy.lastgroup]
    if here == there:
        return value, None
    message = f"expected a value that every YAML reader reads alike, got {show(text)}\nit is {here} here (YAML 1.2), but {there} to YAML 1.1 tools"
    better = quoted(text) if isinstance(value, str) else number(value)  # type: ignore[arg-type]
    return value, problem("NQX007", message, f"write {better}", "warning")


def not_finite(text: str) -> Diagnostic:
    """The finding about an infinity or NaN."""
    hint = "leave it out or use null; schemas hold finite numbers only"
    return problem("NQX013", f"expected a finite number, got {show(text)}", hint)


def too_many_digits(got: int | str, hint: str) -> Diagnostic:
    """The finding about a number that is too long."""
    return problem("NQX005", f"expected at most {limits.MAX_DIGITS} digits, got {got}", hint)


def text_problem(text: str) -> Diagnostic | None:
    """The finding about text that no file may hold: too long, or not Unicode."""
    if len(text) > limits.MAX_SCALAR:
        message = f"expected at most {limits.MAX_SCALAR} characters in one value, got {len(text)}"
        return problem("NQX005", message, limits.LARGE_DATA)
    return problem("NQX001", *LONE_SURROGATE) if lone_surrogate(text) else None


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


def show(text: str, limit: int = 60) -> str:
    """Returns text as messages quote it: shortened."""
    return repr(text) if len(text) <= limit else f"{text[:limit]!r}... ({len(text)} characters)"
