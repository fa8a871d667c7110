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

import re
from functools import lru_cache

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
