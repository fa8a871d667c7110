"""Patterns of text fields: regular expressions that are matched in linear time.

Schema files are not trusted, and Python's engine can need exponential time. So patterns are those of the engine of
pydantic-core, the crate ``regex`` of Rust, which has no references and no lookaround, and never tries all ways to match.

Example:
    >>> matches("[a-z]+(-[0-9]{1,4})*", "run-17"), matches("(a+)+b", "a" * 4000), occurs("[0-9]", "run-17")
    (True, False, True)
    >>> objection_to("(?=a)b")[0], objection_to("(a{1000}){1000}")[0]
    ('NQX114', 'NQX117')
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pydantic_core
from pydantic_core import SchemaValidator, core_schema

from neuralqx_struct.errors import SchemaError

_MOST_CHARACTERS = 1000
#: Texts that are longer are matched by no pattern.
LONGEST_TEXT = 4096

_REASON = re.compile(r"error: (.*)")


@lru_cache(maxsize=256)
def _engine(pattern: str) -> SchemaValidator:
    """The validator of texts in which a pattern occurs."""
    return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))


@lru_cache(maxsize=256)
def objection_to(pattern: str) -> tuple[str, str] | None:
    """Returns code and message if the engine refuses a pattern; None if it takes it."""
    if len(pattern) > _MOST_CHARACTERS:
        message = f"expected a pattern of at most {_MOST_CHARACTERS} characters, got {len(pattern)}"
        return "NQX117", message
    try:
        for text in (pattern, _whole(pattern)):  # alone, as brackets of its own could end the group
            _engine(text)
    except (pydantic_core.SchemaError, UnicodeEncodeError) as error:
        reason = _REASON.search(str(error))
        if reason is None and "size limit" in str(error):
            return "NQX117", f"expected a pattern of fewer repeats, got {pattern[:60]!r}"
        expected = f"expected a regular expression, got {pattern[:60]!r}"
        return "NQX114", f"{expected}\n{reason[1] if reason else 'it is no text'}"
    return None


def _whole(pattern: str) -> str:
    """The pattern of a whole text."""
    return rf"\A(?:{pattern})\z"


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern matches a whole text of at most 4096 characters.

    Raises:
        SchemaError: There is an objection to the pattern.
    """
    _require(pattern)
    return _engine(_whole(pattern)).isinstance_python(text)


def occurs(pattern: str, text: str) -> bool:
    """Whether a pattern matches a part of a text; raises as :func:`matches`."""
    _require(pattern)
    return _engine(pattern).isinstance_python(text)


def _require(pattern: str) -> None:
    objection = objection_to(pattern)
    if objection is not None:
        code, message = objection
        raise SchemaError(message, code=code)


# ---------------------------------------------------------------------------------------------------------------------
# Texts for samples. Python's own parser reads the pattern: most patterns mean the same to both engines, and what it makes
# of the others is no match.

_MOST_PARTS = 200
#: A character of each class of characters, and one outside of it.
_CLASSES = {"DIGIT": "0a", "WORD": "a-", "SPACE": " a"}


@lru_cache(maxsize=256)
def texts_of(pattern: str) -> tuple[str, ...]:
    """A few texts that a pattern matches, short ones first; none where it is not simple enough."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed = importlib.import_module("re._parser").parse(pattern)
        made = ["".join(_made(parsed, turn, [_MOST_PARTS])) for turn in range(4)]
        fit = [text for text in dict.fromkeys(made) if matches(pattern, text)]
    except (
        ImportError,
        AttributeError,
        re.error,
        OverflowError,
        RecursionError,
        SchemaError,
        ValueError,
    ):
        return ()
    return tuple(sorted(fit, key=len))


def _made(parts: Any, turn: int, left: list[int]) -> Iterator[str]:
    """Yields the parts of a text; ``turn`` is how often parts repeat beyond the least number, and which option they take."""
    for op, value in parts:
        left[0] -= 1
        if left[0] < 0:
            raise ValueError("expected a shorter pattern")
        match str(op):
            case "LITERAL":
                yield chr(value)
            case "NOT_LITERAL":
                yield "a" if value != ord("a") else "b"
            case "ANY":
                yield "a"
            case "IN":
                yield _character(value, turn)
            case "BRANCH":
                yield from _made(value[1][turn % len(value[1])], turn, left)
            case "SUBPATTERN":
                yield from _made(value[-1], turn, left)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, most, inner = value
                for _ in range(min(least + turn, most)):
                    yield from _made(inner, turn, left)
            case "AT":
                continue
            case _:
                raise ValueError(f"expected a simpler pattern, got one with {op}")


def _character(options: Any, turn: int) -> str:
    """A character of a set."""
    if str(options[0][0]) == "NEGATE":
        outside = "".join(map(_characters, options[1:]))
        return next((each for each in "a0-_ ~" if each not in outside), "\x00")
    op, value = options[turn % len(options)]
    if str(op) == "RANGE":
        return chr(min(value[0] + turn, value[1]))
    return _characters((op, value))[0]


def _characters(option: Any) -> str:
    op, value = option
    match str(op):
        case "RANGE":
            return "".join(map(chr, range(value[0], min(value[1], value[0] + 200) + 1)))
        case "CATEGORY":
            name = str(value).removeprefix("CATEGORY_")
            return _CLASSES[name.removeprefix("NOT_")][name.startswith("NOT_")]
        case _:
            return chr(value)
