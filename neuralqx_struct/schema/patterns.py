"""Patterns of text fields: which regular expressions a schema may hold.

Patterns come with files that nobody vouches for, and Python's engine may need exponential time for one. So a pattern may
repeat single characters only, without references, lookaround and flags, and repeats that can take the same characters
from each other are counted. ``conform.py`` matches what passed here against at most 4096 characters.

Example:
    >>> objection_to("[a-z]+-[0-9]{1,4}") is None
    True
    >>> objection_to("(a+)+")[0]
    'NQX117'
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any

__all__ = ["objection_to"]

_MOST_CHARACTERS = 1000
_MOST_TRIES = 1 << 25
_TEXT_LENGTH = 4096
_ALPHABET = tuple(map(chr, range(256)))


def objection_to(pattern: str) -> tuple[str, str] | None:
    """Code and message if a pattern is malformed or could take long; None if it is fine."""
    if len(pattern) > _MOST_CHARACTERS:
        return "NQX117", f"expected a pattern of at most {_MOST_CHARACTERS} characters, got {len(pattern)}"
    engine = importlib.import_module("re._parser")  # its tree is stable, its name is not public
    try:
        tree = engine.parse(pattern)
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return "NQX114", f"expected a regular expression, got {pattern[:60]!r}\n{error}"
    if tree.state.flags & ~re.UNICODE.value:
        return "NQX114", f"expected a pattern without flags, got {pattern[:60]!r}"
    try:
        cost = _tries(tree)
    except _CostlyError as error:
        return "NQX117", f"expected a pattern that is matched in bounded time, got {pattern[:60]!r}\n{error}"
    if cost > _MOST_TRIES:
        why = "several repeats in a row can take the same characters"
        return "NQX117", f"expected a pattern that is matched in bounded time, got {pattern[:60]!r}\n{why}"
    return None


class _CostlyError(Exception):
    """A construct whose matching time has no useful bound."""


def _tries(tree: Any) -> int:
    """In how many ways the repeats of a pattern can share out a text, at most."""
    total, here, taken = 1, 1, frozenset[str]()
    for operation, argument in _flat(tree):
        kind = str(operation)
        if kind == "BRANCH":
            here *= sum(_tries(option) for option in argument[1])
            taken = frozenset(_ALPHABET)
            continue
        if kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            low, high, body = argument
            if len(body) != 1 or str(body[0][0]) not in ("LITERAL", "NOT_LITERAL", "IN", "ANY"):
                raise _CostlyError("a group is repeated")
            chars = _characters(*body[0])
        elif kind in ("LITERAL", "NOT_LITERAL", "IN", "ANY"):
            low, high, chars = 1, 1, _characters(operation, argument)
        elif kind == "AT":
            continue
        else:
            raise _CostlyError(f"{kind.lower().replace('_', ' ')} is not available")
        if low and not chars & taken:  # the repeats before must end right here: what follows is counted anew
            total, here, taken = max(total, here), 1, frozenset()
        choices = min(int(high), _TEXT_LENGTH) - min(int(low), _TEXT_LENGTH) + 1
        if choices > 1:
            here, taken = here * choices, taken | chars
        if here > _MOST_TRIES:
            return here
    return max(total, here)


def _flat(tree: Any) -> Iterator[tuple[Any, Any]]:
    for operation, argument in tree:
        if str(operation) == "SUBPATTERN":
            if argument[1] or argument[2]:
                raise _CostlyError("flags inside a pattern are not available")
            yield from _flat(argument[3])
        else:
            yield operation, argument


def _characters(operation: Any, argument: Any) -> frozenset[str]:
    """Which of the first 256 characters an item matches; the last of them stands for all others too."""
    kind = str(operation)
    if kind == "ANY":
        return frozenset(_ALPHABET)
    if kind in ("LITERAL", "NOT_LITERAL"):
        one = frozenset({chr(min(argument, 255))})
        return one if kind == "LITERAL" else frozenset(_ALPHABET) - (one if argument < 255 else frozenset())
    found: set[str] = set()
    negated = False
    for inner, value in argument:
        match str(inner):
            case "NEGATE":
                negated = True
            case "LITERAL":
                found.add(chr(min(value, 255)))
            case "RANGE":
                found |= set(_ALPHABET[min(value[0], 255) : min(value[1], 255) + 1])
            case _:
                letter = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}[str(value).rpartition("_")[2]]
                matches = {c for c in _ALPHABET if re.match(letter, c)}
                found |= set(_ALPHABET) - matches if "_NOT_" in str(value) else matches | {_ALPHABET[-1]}
    return frozenset(_ALPHABET) - found | {_ALPHABET[-1]} if negated else frozenset(found)
