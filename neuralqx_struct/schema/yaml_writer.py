r"""Writing YAML: plain values as text that every YAML tool reads alike; the inverse of ``yaml_reader.py``.

Owns the layout (what stands on one line, what is folded, what is quoted) and the refusal of values that have no text.

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
from neuralqx_struct.schema import limits
from neuralqx_struct.schema.scalars import (
    LONE_SURROGATE,
    UNPRINTABLE,
    Objection,
    lone_surrogate,
    not_finite,
    number,
    plain,
    quoted,
)
from neuralqx_struct.schema.source import JsonValue, KeyPath, path_text

__all__ = ["dump_yaml"]

WIDTH, LINE = 100, 120  # of what stands in braces or brackets, and of the line around it

# Text that needs no quotes: between commas and brackets, and on a line of its own. Beyond that, the text must not mean
# anything else to a reader of YAML 1.1 or 1.2.
_BARE_IN_FLOW = re.compile(r"[^\W\d](?:[^\s:#?,\[\]{}\"'\\]|(?<=\S)#|[ ](?=[^\s#]))*")
_BARE = re.compile(r"[^\W\d](?:[^\s:#]|(?<=\S)[:#](?=\S)|[ ](?=[^\s#]))*")
_FOLDABLE = re.compile(r"\S+(?:[ ]\S+)+")


def dump_yaml(data: JsonValue) -> str:
    """Plain values as YAML that :func:`read_text` reads back to equal values; the same values give the same text.

    Mappings keep the order of their keys. Short ones without structure inside stand on one line, long text is folded,
    and text that some YAML reader would take for another value is quoted.

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
    lines = _block(data, 0) if isinstance(data, (dict, list)) and data else [_flow(data)]
    text = "\n".join(lines) + "\n"
    if len(text) > limits.MAX_BYTES:
        raise limits.too_large("<data>")
    return text


def _unwritable(data: JsonValue) -> Iterator[Diagnostic]:
    """What is wrong with the values; stops at the first thing that is too deep, such as a list inside itself."""
    pending: list[tuple[KeyPath, Any]] = [((), data)]
    nodes = 0
    while pending:
        path, value = pending.pop()
        nodes += 1
        found = _unwritable_value(path, value)
        if found is None and isinstance(value, (dict, list)):
            nodes += len(value) if isinstance(value, dict) else 0
            if nodes + len(pending) + len(value) > limits.MAX_NODES:
                found = Objection(
                    "NQX005", f"expected at most {limits.MAX_NODES} keys and values, got more", limits.LARGE_DATA
                )
            else:
                keys: Iterable[Any] = value if isinstance(value, dict) else range(len(value))
                pending += [((*path, key), value[key]) for key in reversed(list(keys))]
        if found is not None:
            yield Diagnostic(found.code, "error", found.message, path_text(path), hint=found.hint)
            if found.code == "NQX005":
                return


def _unwritable_value(path: KeyPath, value: Any) -> Objection | None:
    """What is wrong with one value, apart from what is inside it."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else not_finite(str(value))
    if isinstance(value, int):
        fits = value.bit_length() < limits.MAX_DIGITS * 3
        return (
            None
            if fits
            else Objection("NQX005", f"expected at most {limits.MAX_DIGITS} digits, got more", "write it as text")
        )
    if isinstance(value, str):
        return _unwritable_text(value)
    if isinstance(value, (dict, list)):
        if len(path) >= limits.MAX_DEPTH:
            return Objection(
                "NQX005", f"expected at most {limits.MAX_DEPTH} levels of nesting, got more", "flatten the data"
            )
        for key in value if isinstance(value, dict) else ():
            if not isinstance(key, str):
                return Objection("NQX006", f"expected text as key, got {type(key).__name__}", "turn it into text")
            if found := _unwritable_text(key):
                return found
        return None
    hint = "convert it to dict, list, str, int, float, bool or None"
    return Objection("NQX010", f"expected a plain value, got {type(value).__name__}", hint)


def _unwritable_text(text: str) -> Objection | None:
    if len(text) > limits.MAX_SCALAR:
        return Objection(
            "NQX005",
            f"expected at most {limits.MAX_SCALAR} characters in one value, got {len(text)}",
            limits.LARGE_DATA,
        )
    return Objection("NQX001", *LONE_SURROGATE) if lone_surrogate(text) else None


def _block(value: dict[str, Any] | list[Any], indent: int) -> list[str]:
    """The lines of a container, one entry below the other; ``indent`` is where the caller will put them."""
    if isinstance(value, list):
        return [line for item in value for line in _entry("-", item, indent)]
    lines: list[str] = []
    for key, item in value.items():
        head = f"{_scalar(key)}:"
        if len(head) > WIDTH:  # parsers do not look for the colon beyond 1024 characters
            lines.append(f"? {head[:-1]}")
            head = ":"
        lines += _entry(head, item, indent)
    return lines


def _entry(head: str, item: JsonValue, indent: int) -> list[str]:
    """The lines of one list item (``-``) or mapping member (``key:``, or ``:`` after a key of its own line)."""
    if isinstance(item, str):
        first, *below = _text_lines(item, LINE - indent - len(head) - 1)
    elif isinstance(item, (dict, list)) and item:
        flow = _flow(item) if _is_flat(item) else ""
        if flow and len(flow) <= min(WIDTH, LINE - indent - len(head) - 1):
            first, below = flow, []
        elif head in {"-", ":"}:
            first, *below = _block(item, indent + 2)
        else:
            return [head, *_indented(_block(item, indent + 2))]
    else:
        first, below = _flow(item), []
    return [f"{head} {first}", *_indented(below)]


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" if line else "" for line in lines]


def _is_leaf(value: JsonValue) -> bool:
    return not isinstance(value, (dict, list)) or not value


def _is_flat(value: dict[str, Any] | list[Any]) -> bool:
    """True for what reads well on one line: leaves, lists of leaves, and mappings that have leaves and at most one level more."""
    inside = list(value.values()) if isinstance(value, dict) else value
    if len(inside) > WIDTH:
        return False
    if all(map(_is_leaf, inside)):
        return True
    if isinstance(value, list):
        return all(isinstance(item, list) and all(map(_is_leaf, item)) for item in inside)
    deeper = (item.values() if isinstance(item, dict) else item for item in inside if not _is_leaf(item))
    return any(map(_is_leaf, inside)) and all(len(items) <= WIDTH and all(map(_is_leaf, items)) for items in deeper)


def _flow(value: JsonValue) -> str:
    """A value on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(key, _BARE_IN_FLOW)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _scalar(value, _BARE_IN_FLOW)


def _text_lines(text: str, width: int) -> Sequence[str]:
    """Text as the value of an entry: on one line, folded where it is too long, or literal where it has several lines."""
    if len(text) > width and _FOLDABLE.fullmatch(text) and not UNPRINTABLE.search(text):
        return [">-", *textwrap.wrap(text, width=110, break_long_words=False, break_on_hyphens=False)]
    lines = text.removesuffix("\n").split("\n")
    literal = "\n" in text and lines[0][:1].strip() and lines[-1] and all(line == line.rstrip() for line in lines)
    if literal and "\t" not in text and not UNPRINTABLE.search(text):
        return ["|" if text.endswith("\n") else "|-", *lines]
    return [_scalar(text)]


def _scalar(value: str | float | None, bare: re.Pattern[str] = _BARE) -> str:
    if isinstance(value, str):
        legible = bare.fullmatch(value) and not UNPRINTABLE.search(value) and value not in {"y", "Y", "n", "N"}
        return str(value) if legible and plain(value) == (value, None) else quoted(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return number(value)
