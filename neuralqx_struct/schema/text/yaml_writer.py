r"""Writing YAML: plain values as text that every YAML tool reads alike; the inverse of ``yaml_reader.py``.

Owns the layout (one line or several, folding, quotes) and the refusal of values that have no text.

Example:
    >>> dump_yaml({"dims": {"n_sites": {"min": 2}}})
    'dims:\n  n_sites: {min: 2}\n'
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from neuralqx_struct.errors import Diagnostic, SchemaError
from neuralqx_struct.schema import text as limits
from neuralqx_struct.schema.text import (
    UNPRINTABLE,
    JsonValue,
    KeyPath,
    not_finite,
    number,
    path_text,
    plain,
    problem,
    quoted,
    text_problem,
    too_many_digits,
)

#: Characters inside braces or brackets, and of the whole line around them.
_WIDTH, _LINE = 100, 120
_FOLDED = 110

# Text that needs no quotes: between commas and brackets, and on a line of its own. Beyond that, the text must not have
# another meaning to a reader of YAML 1.1 or 1.2.
_BARE_IN_FLOW = re.compile(r"[^\W\d](?:[^\s:#?,\[\]{}\"'\\]|(?<=\S)#|[ ](?=[^\s#]))*")
_BARE = re.compile(r"[^\W\d](?:[^\s:#]|(?<=\S)[:#](?=\S)|[ ](?=[^\s#]))*")
_FOLDABLE = re.compile(r"\S+(?:[ ]\S+)+")


class Block(dict[str, Any]):
    """A mapping that is written one member below the other, however short it is."""


def dump_yaml(data: JsonValue) -> str:
    """Returns plain values as YAML that :func:`read_text` reads back to equal values; equal values give the same text.

    Mappings keep the order of their keys. Short ones without structure inside go on one line, long text is folded,
    and text that some YAML reader would read as another value is quoted.

    Args:
        data: dict, list, str, int, float, bool and None.

    Raises:
        SchemaError: For every value that has no such text: other types, NaN and infinities, keys that are not text,
            or more than the limits of :func:`read_text`.

    Example:
        >>> print(dump_yaml({"fields": {"h": {"type": "float", "default": 1.0}, "on": {"doc": "1e3"}}}), end="")
        fields:
          h: {type: float, default: 1.0}
          "on": {doc: "1e3"}
    """
    problems = list(_unwritable(data))
    if problems:
        raise SchemaError(problems)
    lines = _block(data, 0) if isinstance(data, (dict, list)) and data else [flow(data)]
    text = "\n".join(lines) + "\n"
    if len(text) > limits.MAX_BYTES:
        raise limits.too_large("<data>")
    return text


def _unwritable(data: JsonValue) -> Iterator[Diagnostic]:
    """Yields the problems of the values; stops at the first one of size, such as a list inside itself."""
    pending: list[tuple[KeyPath, Any]] = [((), data)]
    nodes = 0
    while pending:
        path, value = pending.pop()
        nodes += 1
        found = _value_problem(path, value)
        if found is None and isinstance(value, (dict, list)):
            keys = list(value) if isinstance(value, dict) else range(len(value))
            nodes += len(value) if isinstance(value, dict) else 0
            if nodes + len(pending) + len(value) > limits.MAX_NODES:
                message = f"expected at most {limits.MAX_NODES} keys and values, got more"
                found = problem("NQX005", message, limits.LARGE_DATA)
            else:
                pending += [((*path, key), value[key]) for key in reversed(keys)]
        if found is not None:
            yield Diagnostic(found.code, "error", found.message, path_text(path), hint=found.hint)
            if found.code == "NQX005":
                return


def _value_problem(path: KeyPath, value: Any) -> Diagnostic | None:
    """The problem of one value, apart from those of the values inside it."""
    match value:
        case None | bool():
            return None
        case float():
            return None if math.isfinite(value) else not_finite(str(value))
        case int():
            fits = value.bit_length() < limits.MAX_DIGITS * 3
            return None if fits else too_many_digits("more", "write it as text")
        case str():
            return text_problem(value)
        case dict() | list() if len(path) >= limits.MAX_DEPTH:
            return problem("NQX005", limits.TOO_DEEP[0], "flatten the data")
        case dict():
            return next(filter(None, map(_key_problem, value)), None)
        case list():
            return None
    hint = "convert it to dict, list, str, int, float, bool or None"
    return problem("NQX010", f"expected a plain value, got {type(value).__name__}", hint)


def _key_problem(key: Any) -> Diagnostic | None:
    if isinstance(key, str):
        return text_problem(key)
    message = f"expected text as key, got {type(key).__name__}"
    return problem("NQX006", message, "turn it into text")


def _block(value: dict[str, Any] | list[Any], indent: int) -> list[str]:
    """The lines of a container, one entry below the other; the caller indents them by ``indent``."""
    lines: list[str] = []
    if isinstance(value, list):
        for item in value:
            lines += _entry("-", item, indent)
        return lines
    for key, item in value.items():
        head = f"{_scalar(key)}:"
        if len(head) > _WIDTH:  # parsers do not look for the colon beyond 1024 characters
            lines.append(f"? {head[:-1]}")
            head = ":"
        lines += _entry(head, item, indent)
    return lines


def _entry(head: str, item: JsonValue, indent: int) -> list[str]:
    """The lines of one list item (``-``) or mapping member (``key:``, or ``:`` after a key of its own line)."""
    width = _LINE - indent - len(head) - 1
    below: list[str] = []
    if isinstance(item, str):
        first, *below = _text_lines(item, width)
    elif _is_leaf(item) or (_is_flat(item) and len(flow(item)) <= min(_WIDTH, width)):
        first = flow(item)
    else:
        below = _block(item, indent + 2)  # type: ignore[arg-type]  # a container
        if head not in {"-", ":"}:
            return [head, *_indented(below)]
        first, *below = below
    return [f"{head} {first}", *_indented(below)]


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" if line else "" for line in lines]


def _is_leaf(value: JsonValue) -> bool:
    return not isinstance(value, (dict, list)) or not value


def _items(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value


def _is_flat(value: JsonValue) -> bool:
    """True for containers that are readable on one line: of leaves, lists of leaf lists, mappings with some leaves."""
    if isinstance(value, Block):
        return False
    inside = _items(value)
    deeper = [item for item in inside if not _is_leaf(item)]
    short = all(len(item) <= _WIDTH for item in (inside, *deeper))
    if not short or not all(_is_leaf(leaf) for item in deeper for leaf in _items(item)):
        return False
    if isinstance(value, list):
        return not deeper or all(isinstance(item, list) for item in inside)
    return len(deeper) < len(inside)


def flow(value: JsonValue) -> str:
    """A plain value as YAML on one line."""
    if isinstance(value, dict):
        members = (f"{_scalar(key, _BARE_IN_FLOW)}: {flow(item)}" for key, item in value.items())
        return f"{{{', '.join(members)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(flow, value))}]"
    return _scalar(value, _BARE_IN_FLOW)


def _text_lines(text: str, width: int) -> Sequence[str]:
    """Returns text as the value of an entry: on one line, folded if it is too long, literal if it has several lines."""
    if UNPRINTABLE.search(text):
        return [quoted(text)]
    if len(text) > width and _FOLDABLE.fullmatch(text):
        lines = textwrap.wrap(text, width=_FOLDED, break_long_words=False, break_on_hyphens=False)
        return [">-", *lines]
    lines = text.removesuffix("\n").split("\n")
    stripped = all(line == line.rstrip() for line in lines)
    if "\n" in text and "\t" not in text and stripped and lines[0][:1].strip() and lines[-1]:
        return ["|" if text.endswith("\n") else "|-", *lines]
    return [_scalar(text)]


def _scalar(value: JsonValue, bare: re.Pattern[str] = _BARE) -> str:
    match value:
        case str():
            legible = bare.fullmatch(value) and value not in {"y", "Y", "n", "N"}
            if legible and not UNPRINTABLE.search(value) and plain(value) == (value, None):
                return str(value)
            return quoted(value)
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
    return number(value)  # type: ignore[arg-type]
