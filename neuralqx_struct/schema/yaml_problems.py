"""YAML problems: what PyYAML says about malformed text, as one code, place, message and likely fix.

Owns the translation alone; ``yaml_reader.py`` reads. PyYAML has two parsers, which word and place the same mistake
differently: everything here gives the same answer for both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from neuralqx_struct.schema.scalars import LONE_SURROGATE, show

__all__ = ["AFTER_BLOCK_HEADER", "TAB", "end_of_line", "index_of", "syntax_problem"]

AFTER_BLOCK_HEADER = (
    "expected the end of the line after | or >, got more",
    "start the text on the next line, indented",
)
TAB = ("expected spaces, got a tab", "YAML is laid out with spaces; replace the tab")

# What PyYAML's two parsers say (context: problem), where to point, and what we say instead.
_Explanation = tuple[str, Literal["context", "problem", "escape"], str, str, str]
_EXPLANATIONS: tuple[_Explanation, ...] = (
    ("ing a tag|undefined tag", "context", "NQX004", "expected a value, got a tag", "remove what starts with !, or put text in quotes"),
    ("scanning an a", "context", "NQX003", "expected a value, got an anchor or alias", "write the value out, or put text in quotes"),
    ("quoted.*end of stream", "context", "NQX001", "expected a closing quote, got the end of the file", "close the quote that opens here"),
    ("quoted.*document", "context", "NQX001", "expected a closing quote, got a line with --- or ...", "close the quote that opens here"),
    ("escape character|hexa?decimal", "escape", "NQX001", "expected an escape such as \\n or \\u00e9, got an unknown one", "double the backslash, or use single quotes"),
    ("Unicode|chr", "context", "NQX001", *LONE_SURROGATE),
    ("entries are not allowed|keys are not allowed", "problem", "NQX001", "expected a value, got the start of a block", "start it on the next line, indented, or write [a, b]"),
    ("node content", "problem", "NQX001", "expected a value, got {got}", "remove it, or put text in quotes"),
    ("tab character", "problem", "NQX001", *TAB),
    ("start any token", "problem", "NQX001", "expected a value, got {got}", "put text that starts with it in quotes"),
    ("block scalar", "problem", "NQX001", *AFTER_BLOCK_HEADER),
)  # fmt: skip
_LAYOUT: Mapping[str, tuple[str, str]] = {
    "open bracket": ("expected a closing {closing} for this {opened}, got {got}", "close the bracket, or put a comma between the items"),
    "no comma": ("expected , or {closing}, got {got}", "put a comma between the items, and text that holds one in quotes"),
    "open type": ("expected , or {closing}, got {got}", "inside {...} put a type that holds brackets in quotes, such as \"float32[n, 3]\""),
    "stray bracket": ("expected the end of the value, got {got} without its opening bracket", "remove it, or open the bracket"),
    "after value": ("expected the end of the value, got {got} after it", "double a quote inside quotes, or use the other kind of quotes"),
    "two colons": ("expected one 'key: value' on the line, got {got} again", "put a value that holds ': ' in quotes"),
    "no space": ("expected a space after the colon, got none", "write 'key: value'"),
    "no colon": ("expected ': ' after the key, got the end of the line", "add the colon, or indent the line below its key"),
    "indentation": ("expected the indentation of the lines around, got another", "align the line with those of its block; end a key with a colon"),
}  # fmt: skip
_NO_SPACE = re.compile(r"""\s*(?:- +)*(?:[\w.-]+|'[^'\n]*'|"[^"\n]*"):(?=[^\s:])""")


def syntax_problem(error: Any, text: str) -> tuple[str, int, str, str]:
    """Code, place, message and likely fix of a syntax error, the same for both parsers."""
    said = f"{getattr(error, 'context', None)}: {getattr(error, 'problem', None)}"
    place = index_of(getattr(error, "problem_mark", None), text)
    context = place if getattr(error, "context_mark", None) is None else index_of(error.context_mark, text)
    got = show(text[place : place + 1]) if place < len(text) else "the end of the file"
    if text[place : place + 1] == "\t":
        return "NQX001", place, *TAB
    if text.startswith("%", line := text.rfind("\n", 0, place) + 1):
        return "NQX001", line, "expected a key or an item, got a directive", "no line of a document starts with %"
    if "flow node" in said and place >= len(text):
        return "NQX001", place, f"expected a value or a closing bracket, got {got}", "close the bracket"
    for pattern, where, code, message, hint in _EXPLANATIONS:
        if re.search(pattern, said):
            escape = max(context, text.rfind("\\", context, place + 1))
            return code, {"problem": place, "context": context, "escape": escape}[where], message.format(got=got), hint
    opened = text[context : context + 1]
    closing = {"[": "]", "{": "}"}.get(opened, "")
    if "flow" in said:
        unclosed = place == len(text) or "\n" in text[context:place]
        place, kind = (context, "open bracket") if unclosed else (place, "open type" if got == "'['" else "no comma")
    else:
        place, kind = _layout_problem(text, context if "could not find" in said else place)
    message, hint = _LAYOUT[kind]
    return "NQX001", place, message.format(got=got, opened=opened, closing=closing), hint


def _layout_problem(text: str, place: int) -> tuple[int, str]:
    """What is likely wrong where lines do not fit together: the place to point at, and the key in ``_LAYOUT``."""
    start = text.rfind("\n", 0, place) + 1
    before = text[start:place]
    if text[place : place + 1] in {"]", "}"}:
        return place, "stray bracket"
    if re.search(r":\s", before):
        return place, "after value" if re.search(r"[\"'\]}]", before) else "two colons"
    for line in (start, _line_above(text, start)):
        if no_space := _NO_SPACE.match(text, line, end_of_line(text, line)):
            return no_space.end() - 1, "no space"
    colon = re.search(r"\A\s*-\s|:", text[start : end_of_line(text, start)])
    return place, "indentation" if colon else "no colon"


def _line_above(text: str, start: int) -> int:
    """Where the nearest line above begins that is neither blank nor a comment; ``start`` if there is none."""
    above = start
    while above > 0:
        above = text.rfind("\n", 0, above - 1) + 1
        if text[above : end_of_line(text, above)].partition("#")[0].strip():
            return above
    return start


def end_of_line(text: str, index: int) -> int:
    """Where the line ends that holds a character."""
    end = text.find("\n", index)
    return len(text) if end < 0 else end


def index_of(mark: Any, text: str) -> int:
    """The character that one of PyYAML's marks stands at."""
    return min(int(mark.index), len(text)) if mark is not None else 0
