"""Patterns of text fields: regular expressions that are matched in bounded time.

Schema files are not trusted, and Python's engine can need exponential time. So a pattern has no quantifiers of quantifiers,
references, lookaround or flags, and :func:`matches` tries no ways to match: it keeps the set of all positions in the text
that each part of the pattern can reach, as the bits of an integer. Python's engine decides about single characters and
anchors.

Example:
    >>> matches("[a-z]+(-[0-9]{1,4})*", "run-17"), matches("(a|aa)*b" * 4, "a" * 4000)
    (True, False)
    >>> objection_to("(a+)+")[0]
    'NQX117'
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import heappop, heappush

from neuralqx_struct.errors import SchemaError

_MOST_CHARACTERS = 1000
#: Texts that are longer are matched by no pattern.
LONGEST_TEXT = 4096
#: Parts of a pattern once repeated groups are written out, and of these the ones that a group without an end repeats.
_MOST_PARTS, _MOST_ENDLESS = 1000, 32
_DEEPEST = 100

_TOKEN = re.compile(
    r"(?P<open>\((?:\?:|\?P<\w+>|(?!\?)))|(?P<close>\))|(?P<bar>\|)|(?P<anchor>[\^$]|\\[AZbB])"
    r"|(?P<repeat>(?:[*+?]|\{(?=[\d,])(?P<low>\d*)(?:,(?P<high>\d*))?\})(?P<mode>[?+]?))"
    r"|(?P<item>\[\^?\]?(?:\\.|[^\]\\])*\]|\\(?:x..|u.{4}|U.{8}|N\{[^}]*\}|[0-7]{3}|0[0-7]?|[^\d])|[^\\()])"
    r"|(?P<other>\\\d|\(\?.?|.)",
    re.DOTALL,
)
_ANCHORS = {"^", "$", r"\A", r"\Z", r"\b", r"\B"}
_REPEATS = {"*": (0, LONGEST_TEXT), "+": (1, LONGEST_TEXT), "?": (0, 1)}


@dataclass(frozen=True, slots=True)
class _Characters:
    """Some characters of a class: from ``low`` to ``high``, all that there are if ``possessive``."""

    item: str
    low: int = 1
    high: int = 1
    possessive: bool = False

    @property
    def is_loose(self) -> bool:
        """True if their number varies."""
        return self.low != self.high

    def advance(self, text: str, reached: int) -> int:
        """The positions after the part, given those before it."""
        matching = _positions(self.item, text)
        reached = _after(self.low, reached, matching)
        if not self.is_loose or not reached:
            return reached
        within = _within(self.high - self.low, reached, matching)
        if not self.possessive:
            return within
        return within & ~matching | _after(self.high - self.low, reached, matching)


def _after(count: int, reached: int, matching: int) -> int:
    """The positions after so many characters in positions that match."""
    done, runs = (
        0,
        matching,
    )  # the positions that begin as many characters that match as a power of two
    for bit in range(count.bit_length()):
        size = 1 << bit
        if count & size:
            reached = (reached & runs) << size
            done += size
        runs &= runs >> size
    return reached


def _within(count: int, reached: int, matching: int) -> int:
    """The positions after at most so many characters in positions that match."""
    if count >= LONGEST_TEXT:  # the sum carries through each run of ones
        return reached | (matching + (reached & matching)) ^ matching
    size, runs = 1, matching
    while count:
        step = min(size, count)
        reached |= _after(step, reached, matching) if step < size else (reached & runs) << size
        count -= step
        runs &= runs >> size
        size *= 2
    return reached


@dataclass(frozen=True, slots=True)
class _Anchor:
    """A condition on a position, such as ``^``."""

    text: str
    is_loose = True

    def advance(self, text: str, reached: int) -> int:
        """The positions at which it holds."""
        return reached & _positions(self.text, text)


@dataclass(frozen=True, slots=True)
class _Group:
    """Alternatives, each a sequence of parts, from ``low`` to ``high`` times."""

    options: list[list[_Characters | _Anchor | _Group]]
    low: int = 1
    high: int = 1

    @property
    def is_loose(self) -> bool:
        """True if quantifiers, and nothing beside them, decide how much an alternative takes."""
        alone = (option and all(part.is_loose for part in option) for option in self.options)
        return self.low != self.high or any(alone)


@lru_cache(maxsize=1024)
def _positions(item: str, text: str) -> int:
    """The positions at which a single character, or an anchor, matches."""
    if item in _ANCHORS:
        return sum(1 << match.start() for match in re.finditer(item, text))
    other = dict.fromkeys(map(ord, text), "0")
    other |= {ord(each): "1" for each in {*text} if re.fullmatch(item, each)}
    return int(text[::-1].translate(other) or "0", 2)


class _CostlyError(Exception):
    """A construct whose matching time has no useful bound."""


def _group(tokens: Iterator[re.Match[str]], depth: int = 0) -> _Group:
    """The alternatives up to the end of a group."""
    if depth > _DEEPEST:
        raise _CostlyError(f"groups are nested deeper than {_DEEPEST}")
    options: list[list[_Characters | _Anchor | _Group]] = [[]]
    for token in tokens:
        kind, sequence = token.lastgroup, options[-1]
        match kind:
            case "close":
                break
            case "bar":
                options.append([])
            case "open":
                sequence.append(_group(tokens, depth + 1))
            case "item":
                sequence.append(_Characters(token.group()))
            case "anchor":
                sequence.append(_Anchor(token.group()))
            case "other":
                raise _CostlyError(f"{token.group()} is not available")
            case _:
                low, high = _bounds(token)
                repeated, mode = sequence.pop(), token["mode"]
                if isinstance(repeated, _Anchor) or (mode == "+" and isinstance(repeated, _Group)):
                    raise _CostlyError(f"{token.group()} repeats no single character")
                if high > 1 and isinstance(repeated, _Group) and repeated.is_loose:
                    raise _CostlyError("a quantifier repeats another one")
                if isinstance(repeated, _Group):
                    sequence.append(replace(repeated, low=low, high=high))
                else:
                    possessive = mode == "+"
                    sequence.append(replace(repeated, low=low, high=high, possessive=possessive))
    return _Group(options)


def _bounds(repeat: re.Match[str]) -> tuple[int, int]:
    """The least and the largest number of a repeat."""
    if repeat["low"] is None:
        return _REPEATS[repeat.group()[0]]
    low = int(repeat["low"] or 0)
    if repeat["high"] is None:
        return low, low
    return low, int(repeat["high"] or max(low, LONGEST_TEXT))


class _Parts:
    """The parts of a pattern with those that follow them; the first is its end, and parts come before what precedes them."""

    def __init__(self, pattern: str) -> None:
        self.parts: list[tuple[_Characters | _Anchor | None, tuple[int, ...]]] = [(None, ())]
        self.endless = 0
        self.start = self.add_group(_group(_TOKEN.finditer(pattern)), 0)

    def add(self, part: _Characters | _Anchor | None, *following: int) -> int:
        """Adds a part; returns its index."""
        self.parts.append((part, following))
        if len(self.parts) > _MOST_PARTS:
            raise _CostlyError(f"it has more than {_MOST_PARTS} parts")
        return len(self.parts) - 1

    def add_group(self, group: _Group, end: int) -> int:
        """Adds the alternatives of a group, once."""
        starts = [end] * len(group.options)
        for index, option in enumerate(group.options):
            for part in reversed(option):
                starts[index] = self.add_part(part, starts[index])
        return starts[0] if len(starts) == 1 else self.add(None, *starts)

    def add_part(self, part: _Characters | _Anchor | _Group, end: int) -> int:
        """Adds a part as often as it is repeated."""
        if not isinstance(part, _Group):
            return self.add(part, end)
        if part.high >= LONGEST_TEXT:
            loop = self.add(None)
            self.parts[loop] = (None, (self.add_group(part, loop), end))
            self.endless += len(self.parts) - loop
            if self.endless > _MOST_ENDLESS:
                raise _CostlyError(f"more than {_MOST_ENDLESS} parts are repeated without an end")
            end = loop
        else:
            for _ in range(part.high - part.low):
                end = self.add(None, self.add_group(part, end), end)
        for _ in range(min(part.low, LONGEST_TEXT)):
            end = self.add_group(part, end)
        return end

    def match(self, text: str) -> bool:
        """Whether they match a whole text."""
        done = [0] * len(self.parts)
        new = {self.start: 1}
        waiting = [-self.start]
        while waiting:  # the last part first: loops end before what follows them begins
            index = -heappop(waiting)
            reached = new.pop(index, 0) & ~done[index]
            if reached:
                done[index] |= reached
                part, following = self.parts[index]
                reached = reached if part is None else part.advance(text, reached)
                for each in following:
                    if reached:
                        heappush(waiting, -each)
                        new[each] = new.get(each, 0) | reached
        return done[0] >> len(text) == 1


@lru_cache(maxsize=256)
def _parsed(pattern: str) -> _Parts:
    return _Parts(pattern)


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
    return _parsed(pattern).match(text)
