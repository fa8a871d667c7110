"""Patterns of text fields: regular expressions that are matched in bounded time.

Schema files are not trusted, and Python's engine can need exponential time. So a pattern has no repeated groups, references,
lookaround or flags, and :func:`matches` tries no ways to match: it keeps the set of all positions in the text that the parts
of the pattern can reach, as the bits of an integer. Python's engine decides about single characters and anchors.

Example:
    >>> matches("[a-z]+-[0-9]{1,4}", "run-17"), matches("a*a*b" * 100, "a" * 4000)
    (True, False)
    >>> objection_to("(a+)+")[0]
    'NQX117'
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from neuralqx_struct.errors import SchemaError

_MOST_CHARACTERS = 1000
#: Texts that are longer are matched by no pattern.
LONGEST_TEXT = 4096

_TOKEN = re.compile(
    r"(?P<open>\((?:\?:|\?P<\w+>|(?!\?)))|(?P<close>\))|(?P<bar>\|)|(?P<anchor>[\^$]|\\[AZbB])"
    r"|(?P<repeat>(?:[*+?]|\{(?=[\d,])(?P<low>\d*)(?:,(?P<high>\d*))?\})(?P<mode>[?+]?))"
    r"|(?P<item>\[\^?\]?(?:\\.|[^\]\\])*\]|\\(?:x..|u.{4}|U.{8}|N\{[^}]*\}|[0-7]{3}|0[0-7]?|[^\d])|[^\\()])"
    r"|(?P<other>\\\d|\(\?.?|.)",
    re.DOTALL,
)
_REPEATS = {"*": (0, LONGEST_TEXT), "+": (1, LONGEST_TEXT), "?": (0, 1)}


@dataclass(frozen=True, slots=True)
class _Characters:
    """Some characters of a class: from ``low`` to ``high``, all that there are if ``possessive``."""

    item: str
    low: int = 1
    high: int = 1
    possessive: bool = False

    def advance(self, text: str, reached: int) -> int:
        """The positions after the part, given those before it."""
        matching = _positions(self.item, text)
        found = 0
        for count in range(self.high + 1):
            if count >= self.low and self.possessive and count < self.high:
                found |= reached & ~matching
            elif count >= self.low:
                reached &= ~found
                found |= reached
            reached = (reached & matching) << 1
            if not reached:
                break
        return found


@dataclass(frozen=True, slots=True)
class _Anchor:
    """A condition on a position, such as ``^``."""

    text: str

    def advance(self, text: str, reached: int) -> int:
        return reached & _positions(self.text, text)


@dataclass(frozen=True, slots=True)
class _Group:
    """Alternatives, each a sequence of parts."""

    options: list[list[_Characters | _Anchor | _Group]]

    def advance(self, text: str, reached: int) -> int:
        found = 0
        for option in self.options:
            here = reached
            for part in option:
                here = part.advance(text, here) if here else 0
            found |= here
        return found


@lru_cache(maxsize=1024)
def _positions(item: str, text: str) -> int:
    """The positions at which a single character, or an anchor, matches."""
    found = 0
    for match in re.finditer(item, text):
        found |= 1 << match.start()
    return found


class _CostlyError(Exception):
    """A construct whose matching time has no useful bound."""


def _group(tokens: Iterator[re.Match[str]]) -> _Group:
    """The alternatives up to the end of a group."""
    options: list[list[_Characters | _Anchor | _Group]] = [[]]
    before = ""
    for token in tokens:
        kind, sequence = token.lastgroup, options[-1]
        match kind:
            case "close":
                break
            case "bar":
                options.append([])
            case "open":
                inner = _group(tokens)
                sequence.append(inner)
                if token.group() == "(?:" and _is_class(inner):  # may be repeated like the class
                    sequence[-1] = inner.options[0][0]
                    kind = "item"
            case "item":
                sequence.append(_Characters(token.group()))
            case "anchor":
                sequence.append(_Anchor(token.group()))
            case "other":
                raise _CostlyError(f"{token.group()} is not available")
            case _:
                repeated = sequence.pop()
                if before != "item" or not isinstance(repeated, _Characters):
                    raise _CostlyError("a group is repeated")
                low, high = _bounds(token)
                mode = token["mode"]
                sequence.append(replace(repeated, low=low, high=high, possessive=mode == "+"))
        before = kind or ""
    return _Group(options)


def _is_class(group: _Group) -> bool:
    """True for a group that consists of one class of characters, once."""
    parts = [part for option in group.options for part in option]
    return len(parts) == 1 and isinstance(parts[0], _Characters) and parts[0].high == 1


def _bounds(repeat: re.Match[str]) -> tuple[int, int]:
    """The least and the largest number of a repeat."""
    if repeat["low"] is None:
        return _REPEATS[repeat.group()[0]]
    low = int(repeat["low"] or 0)
    if repeat["high"] is None:
        return low, low
    return low, int(repeat["high"] or max(low, LONGEST_TEXT))


@lru_cache(maxsize=256)
def _parsed(pattern: str) -> _Group:
    return _group(_TOKEN.finditer(pattern))


@lru_cache(maxsize=256)
def objection_to(pattern: str) -> tuple[str, str] | None:
    """Returns code and message if a pattern is malformed or has no useful bound on its time; None if it is accepted."""
    if len(pattern) > _MOST_CHARACTERS:
        message = f"expected a pattern of at most {_MOST_CHARACTERS} characters, got {len(pattern)}"
        return "NQX117", message
    try:
        flags = re.compile(pattern).flags
    except (re.error, RecursionError, OverflowError) as error:
        return "NQX114", f"expected a regular expression, got {pattern[:60]!r}\n{error}"
    if flags & ~re.UNICODE.value:
        return "NQX114", f"expected a pattern without flags, got {pattern[:60]!r}"
    try:
        _parsed(pattern)
    except _CostlyError as error:
        expected = "expected a pattern that is matched in bounded time"
        return "NQX117", f"{expected}, got {pattern[:60]!r}\n{error}"
    return None


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern matches a whole text of at most 4096 characters; the same as ``re.fullmatch``.

    Raises:
        SchemaError: There is an objection to the pattern.
    """
    objection = objection_to(pattern)
    if objection is not None:
        code, message = objection
        raise SchemaError(message, code=code)
    reached = _parsed(pattern).advance(text, 1)
    return reached >> len(text) == 1
