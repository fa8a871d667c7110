"""Checks of the values in a document: defaults, choices and bounds that do not fit the types of their fields.

Example:
    >>> from neuralqx_struct.schema.text.loader import read_text
    >>> from neuralqx_struct.schema.reading import parse_document
    >>> text = '{"language": "1", "schema": "a", "version": 1, "root": "A", "structs": {"A": {"fields": %s}}}'
    >>> document = parse_document(read_text(text % '{"n": {"type": "int", "default": 0.5}}'))
    >>> [finding.message for check in VALUE_CHECKS for finding in check(document)]
    ['expected a default of type int, got 0.5']

Patterns of text fields are regular expressions. Schema files are not trusted, and Python's engine may need exponential
time for a pattern. So a pattern may repeat single characters only, without references, lookaround and flags, and repeats
that can match the same characters are counted. ``conformance.py`` matches the patterns accepted here against at most 4096
characters.

    >>> objection_to("[a-z]+-[0-9]{1,4}") is None
    True
    >>> objection_to("(a+)+")[0]
    'NQX117'
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from neuralqx_struct.dtypes import DTYPES
from neuralqx_struct.errors import SchemaError, did_you_mean
from neuralqx_struct.expressions import Expression
from neuralqx_struct.schema.bounds import scalar_misses
from neuralqx_struct.schema.lint import Findings, fields_of, finding
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.sizes import exact
from neuralqx_struct.types.records import Array, Type
from neuralqx_struct.types.text import Builder, format_type, numbers_in, read_value

_MOST_CHARACTERS = 1000
_MOST_TRIES = 1 << 25
_TEXT_LENGTH = 4096
#: The last character represents all others, too.
_ALPHABET = frozenset(map(chr, range(256)))
_OTHERS = chr(255)

_TOKEN = re.compile(
    r"(?P<open>\((?:\?:|\?P<\w+>|(?!\?)))|(?P<close>\))|(?P<bar>\|)|(?P<anchor>[\^$]|\\[AZbB])"
    r"|(?P<repeat>(?:[*+?]|\{(?=[\d,])(?P<low>\d*)(?:,(?P<high>\d*))?\})[?+]?)"
    r"|(?P<item>\[\^?\]?(?:\\.|[^\]\\])*\]|\\(?:x..|u.{4}|U.{8}|N\{[^}]*\}|[0-7]{3}|0[0-7]?|[^\d])|[^\\()])"
    r"|(?P<other>\\\d|\(\?.?|.)",
    re.DOTALL,
)
_BEYOND_ALPHABET = re.compile(r"[^\x00-\xff]|\\[dsWuUN]")
_REPEATS = {"*": (0, _TEXT_LENGTH), "+": (1, _TEXT_LENGTH), "?": (0, 1)}


def objection_to(pattern: str) -> tuple[str, str] | None:
    """Returns code and message if a pattern is malformed or could take long; None if it is accepted."""
    if len(pattern) > _MOST_CHARACTERS:
        message = f"expected a pattern of at most {_MOST_CHARACTERS} characters, got {len(pattern)}"
        return "NQX117", message
    try:
        flags = re.compile(pattern).flags
    except (re.error, RecursionError, OverflowError) as error:
        return "NQX114", f"expected a regular expression, got {pattern[:60]!r}\n{error}"
    if flags & ~re.UNICODE.value:
        return "NQX114", f"expected a pattern without flags, got {pattern[:60]!r}"
    reason = "several repeats in a row can take the same characters"
    try:
        options = _options(_TOKEN.finditer(pattern))
        if sum(map(_tries, options)) <= _MOST_TRIES:
            return None
    except _CostlyError as error:
        reason = str(error)
    message = f"expected a pattern that is matched in bounded time, got {pattern[:60]!r}\n{reason}"
    return "NQX117", message


class _CostlyError(Exception):
    """A construct whose matching time has no useful bound."""


#: Items with their least and largest number, and groups with several options.
_Sequence = list[Any]


def _options(tokens: Iterator[re.Match[str]]) -> list[_Sequence]:
    """The sequences between the bars of a group, up to its end."""
    options: list[_Sequence] = [[]]
    before = ""
    for token in tokens:
        kind, sequence = token.lastgroup or "repeat", options[-1]
        match kind:
            case "close":
                break
            case "bar":
                options.append([])
            case "open":
                inner = _options(tokens)
                is_set = all(len(option) == 1 and option[0][1:] == (1, 1) for option in inner)
                if len(inner) == 1:
                    sequence += inner[0]
                    kind = "item" if is_set and token.group() == "(?:" else kind
                elif is_set:
                    sequence.append(("|".join(option[0][0] for option in inner), 1, 1))
                else:
                    sequence.append(inner)
            case "item":
                sequence.append((token.group(), 1, 1))
            case "anchor":
                pass
            case "other":
                raise _CostlyError(f"{token.group()} is not available")
            case _ if before != "item":
                raise _CostlyError("a group is repeated")
            case _:
                sequence[-1] = (sequence[-1][0], *_bounds(token))
        before = kind
    return options


def _bounds(repeat: re.Match[str]) -> tuple[int, int]:
    """The least and the largest number of a repeat."""
    if repeat["low"] is None:
        return _REPEATS[repeat.group()[0]]
    low = int(repeat["low"] or 0)
    if repeat["high"] is None:
        return low, low
    return low, int(repeat["high"] or _TEXT_LENGTH)


def _tries(sequence: _Sequence) -> int:
    """An upper bound on the ways in which the repeats of a pattern can divide a text."""
    total, here, taken = 1, 1, frozenset[str]()
    for part in sequence:
        if isinstance(part, list):
            here *= sum(map(_tries, part))
            taken = _ALPHABET
            continue
        text, low, high = part
        chars = _characters(text)
        if low and not chars & taken:  # the repeats before must end here
            total, here, taken = max(total, here), 1, frozenset()
        choices = min(high, _TEXT_LENGTH) - min(low, _TEXT_LENGTH) + 1
        if choices > 1:
            here, taken = here * choices, taken | chars
        if here > _MOST_TRIES:
            return here
    return max(total, here)


@cache
def _characters(item: str) -> frozenset[str]:
    """The characters of the alphabet that an item of a pattern matches."""
    found = {char for char in _ALPHABET if re.fullmatch(item, char, re.DOTALL)}
    return frozenset(found | {_OTHERS} if _BEYOND_ALPHABET.search(item) else found)


_MANY = 1000
_MOST_BYTES = 4 << 30


def _fits(document: Document, declared: Type, value: Any) -> bool:
    """True if a value of a file is one of the type; the shapes of arrays are checked apart."""
    try:
        read_value(value, declared, Builder(document))
    except SchemaError:
        return False
    return True


def _shape_of(value: Any) -> tuple[int, ...] | None:
    """The shape of nested lists; None where they are ragged."""
    if not isinstance(value, list):
        return ()
    inner = {_shape_of(item) for item in value}
    below = next(iter(inner), ())
    return None if len(inner) > 1 or below is None else (len(value), *below)


def _check_defaults(document: Document) -> Findings:
    for path, _, _, declaration in fields_of(document):
        declared, where = declaration.declared, (*path, "default")
        if declaration.has_default and declaration.derived is None and declaration.kind != "opaque":
            arrays = [option for option in declared.branches if isinstance(option, Array)]
            value = declaration.default
            if not _fits(document, declared, value):
                hint = f'write type: "{declaration.text} | null"' if value is None else None
                if value is not None and arrays:
                    hint = "write zeros, ones, a number that fills it, {fill: 0.5}, or its numbers as [1, 2, 3]"
                texts = [option.record.texts(option, document) for option in declared.branches]
                members = [text for each in texts for text in each or ()]
                if isinstance(value, str) and members:
                    hint = did_you_mean(value, members) or f"one of {', '.join(members)}"
                message = f"expected a default of type {declaration.text}, got {_shown(value)}"
                yield finding("NQX107", where, message, hint)
            elif (
                value is not None
                and _can_be_asked(declaration)
                and (misses := scalar_misses(declaration, value))
            ):
                hint = "nobody can leave the field out: change the default or the bound"
                yield finding("NQX107", where, "; ".join(misses), hint, "warning")
            elif sum(1 for _ in numbers_in(value)) > _MANY:
                message = f"expected a default of at most {_MANY} numbers, got more"
                yield finding("NQX109", where, message, "set it in Python", "warning")
            if value is not None and arrays and not isinstance(value, (str, dict)):
                yield from _default_shape(where, arrays[0], value)
        for index, choice in enumerate(declaration.choices or ()):
            if not _fits(document, declared, choice):
                message = f"expected a choice of type {declaration.text}, got {_shown(choice)}"
                yield finding("NQX107", (*path, "choices", index), message)


def _can_be_asked(declaration: FieldDeclaration) -> bool:
    """False where a bound is itself a finding, or a pattern would take long."""
    pattern, multiple = declaration.pattern, declaration.multiple_of
    return (multiple is None or multiple > 0) and (pattern is None or not objection_to(pattern))


def _default_shape(where: tuple[str | int, ...], array: Array, value: Any) -> Findings:
    symbolic = [
        extent.text for extent in array.shape if isinstance(extent, Expression) and extent.names
    ]
    if symbolic:
        message = (
            f"expected a default only where all sizes are numbers, got one for {format_type(array)}"
        )
        hint = f"{symbolic[0]} is known only from an instance; remove the default, or allow null"
        yield finding("NQX108", where, message, hint)
    elif is_too_large(array):
        message = f"expected a default of at most {_MOST_BYTES >> 30} GiB, got one for {format_type(array)}"
        yield finding("NQX109", where, message, "check the sizes, or set it in Python")
    elif isinstance(value, list) and ... not in array.shape:
        shape = _shape_of(value)
        if shape is None or [str(size) for size in shape] != [
            e.text for e in array.shape if isinstance(e, Expression)
        ]:
            got = "lists of different lengths" if shape is None else f"shape {list(shape)}"
            yield finding(
                "NQX108", where, f"expected a default for {format_type(array)}, got {got}"
            )


def is_too_large(array: Array) -> bool:
    """True if an array without symbolic sizes is larger than any default may be: one word of a file makes it."""
    sizes = [
        exact(extent, {})
        for extent in array.shape
        if isinstance(extent, Expression) and not extent.names
    ]
    known = [abs(size) for size in sizes if size is not None]
    return array.dtype in DTYPES and math.prod(known) * DTYPES[array.dtype].bits > 8 * _MOST_BYTES


def _shown(value: Any) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


#: The group of each constraint, and the types that have it, in words.
_BOUNDS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("ge", "gt", "le", "lt", "multiple_of", "finite"), ("number", "a number")),
    "pattern": ("text", "text"),
    **dict.fromkeys(
        ("min_length", "max_length"), ("length", "text, bytes, a list, a tuple or a dict")
    ),
}
#: A bound of a number as a condition on all numbers of an array.
_CONDITIONS: Mapping[str, str] = {
    "ge": "all({name} >= {value})",
    "gt": "all({name} > {value})",
    "le": "all({name} <= {value})",
    "lt": "all({name} < {value})",
    "multiple_of": "all({name} % {value} == 0)",
    "finite": "all(isfinite({name}))",
}


def _check_bounds(document: Document) -> Findings:
    for path, _, _, declaration in fields_of(document):
        branches = declaration.declared.branches
        given = {member: getattr(declaration, member) for member in _BOUNDS}
        for member in (m for m, value in given.items() if value is not None and value is not False):
            group, wanted = _BOUNDS[member]
            if any(group in branch.record.bounds for branch in branches):
                continue
            message = f"expected {member} on {wanted}, got it on {declaration.text}"
            if group == "number" and any(isinstance(b, Array) for b in branches):
                why = "\na bound does not check the numbers of an array"
                condition = _CONDITIONS[member].format(name=path[-1], value=given[member])
                hint = f"put a condition under `constraints:` of the struct, such as `{{expr: {condition}}}`"
                yield finding("NQX131", (*path, member), message + why, hint, "warning")
            else:
                yield finding("NQX115", (*path, member), message, "remove it")
        if declaration.multiple_of is not None and declaration.multiple_of <= 0:
            message = f"expected a positive number, got {declaration.multiple_of}"
            yield finding("NQX115", (*path, "multiple_of"), message)
        lows = [bound for bound in (declaration.ge, declaration.gt) if bound is not None]
        highs = [bound for bound in (declaration.le, declaration.lt) if bound is not None]
        if lows and highs and max(lows) > min(highs):
            message = f"expected bounds that some number keeps, got {max(lows)} to {min(highs)}"
            yield finding("NQX115", path, message, "exchange the bounds")
        shortest, longest = declaration.min_length, declaration.max_length
        if shortest is not None and longest is not None and shortest > longest:
            message = f"expected lengths that some value has, got {shortest} to {longest}"
            yield finding(
                "NQX115", (*path, "min_length"), message, "exchange min_length and max_length"
            )
        if declaration.pattern is not None and (objection := objection_to(declaration.pattern)):
            code, message = objection
            hint = "use literals, character classes and one quantifier after another, each on a single character"
            yield finding(code, (*path, "pattern"), message, hint)


VALUE_CHECKS: tuple[Callable[[Document], Findings], ...] = (_check_defaults, _check_bounds)
