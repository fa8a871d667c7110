"""Reading YAML: PyYAML's events, checked, for the builder of ``loader.py``.

Owns the subset of YAML that a file may use (no anchors, aliases, tags, directives, tabs as indentation or second
documents), the ``# nqx: ignore[...]`` comments, and one message for each syntax error: PyYAML's two parsers word and
place the same mistake differently. Values come from the event stream, never from PyYAML's constructors: the reader stops
at the first event that is too deep, before anything recurses, and builds no Python object that a file names.

Example:
    >>> from neuralqx_struct.schema.text import Text
    >>> from neuralqx_struct.schema.text.loader import Builder
    >>> build = Builder(Text("<text>", "n: 1  # nqx: ignore[NQX120]"))
    >>> suppressions = read_yaml(build, build.text.text)
    >>> build.finish(suppressions).suppressions
    mappingproxy({1: frozenset({'NQX120'})})
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.printing import brief_scalar
from neuralqx_struct.schema import text as limits
from neuralqx_struct.schema.text import LONE_SURROGATE, UNPRINTABLE, Suppressions, plain

if TYPE_CHECKING:
    from neuralqx_struct.schema.text.loader import Builder

_AFTER_BLOCK_HEADER = (
    "expected the end of the line after | or >, got more",
    "start the text on the next line, indented",
)
_TAB = ("expected spaces, got a tab", "YAML is laid out with spaces; replace the tab")
_BLOCK_HEADER = re.compile(r"[|>][-+0-9]*+(?![ ]*(?:\n|\Z)|[ ]+#)")


def yaml_parser() -> Any:
    """Returns PyYAML's parser in C where PyYAML was built with it, else the one in Python."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(build: Builder, text: str) -> Suppressions:
    """Feeds YAML to the builder.

    Args:
        build: Takes the values and the problems.
        text: The text, with newlines as line breaks.

    Returns:
        Line -> codes, from the suppressions in its comments.

    Raises:
        SchemaError: After a problem that ends the reading, with those before it.
    """
    import yaml

    _check_before_parsing(build, text)
    _check_modeline(build, text)
    tabs = "\t" in text
    quoted: list[tuple[int, int]] = []
    checked = 0  # where the check for tabs continues
    parser = yaml_parser()(text)
    previous: Any = None
    try:
        while not isinstance(event := parser.get_event(), yaml.StreamEndEvent):
            place: int = event.start_mark.index
            if tabs:
                checked = _check_tabs(build, text, checked, event)
            if getattr(event, "tag", None) or getattr(event, "anchor", None):
                _refuse_properties(build, event, place)
            if isinstance(event, yaml.ScalarEvent):
                if event.style:  # None or "" without quotes, depending on the parser
                    quoted.append((place, _index(event.end_mark, text)))
                    if event.style in "|>" and (header := _BLOCK_HEADER.match(text, place)):
                        build.fail("NQX001", header.end(), *_AFTER_BLOCK_HEADER)
                    build.scalar(event.value, place)
                else:
                    if not event.value:  # the parsers place nothing at different ends of a space
                        space = text[_index(previous.end_mark, text) : place]
                        place -= len(space) - len(space.rstrip(" \t\n"))
                    _add_plain(build, event.value, place)
            elif isinstance(event, yaml.MappingStartEvent):
                build.open({}, place)
            elif isinstance(event, yaml.SequenceStartEvent):
                build.open([], place)
            elif isinstance(event, yaml.CollectionEndEvent):
                build.close()
            elif isinstance(event, yaml.AliasEvent):
                build.drop(place)
            elif isinstance(event, yaml.DocumentEndEvent):
                _check_after_document(build, text, event)
            previous = event
    except yaml.YAMLError as error:
        build.fail(*_syntax_problem(error, text))
    finally:
        parser.dispose()
    return _suppressions(build, quoted)


def _add_plain(build: Builder, text: str, place: int) -> None:
    """Adds a scalar without quotes."""
    value, problem = plain(text)
    is_merge = problem is not None and value == "<<"
    if not build.wants_key() or (isinstance(value, str) and not is_merge):
        build.scalar(value, place, problem)
        return
    got = "the merge key <<" if is_merge else brief_scalar(text)
    hint = "write the merged members out" if is_merge else "put the key in quotes"
    build.report("NQX006", place, f"expected text as key, got {got}", hint)
    build.drop(place)


def _refuse_properties(build: Builder, event: Any, place: int) -> None:
    """Reports an alias, an anchor or a tag."""
    import yaml

    if isinstance(event, yaml.AliasEvent):
        message = f"expected a value, got the alias {brief_scalar(f'*{event.anchor}')}"
        build.report("NQX003", place, message, "write the value out")
        return
    if event.anchor:
        message = f"expected a value, got the anchor {brief_scalar(f'&{event.anchor}')}"
        build.report("NQX003", place, message, "remove it; write repeated values out")
    if event.tag:
        message = f"expected a value, got the tag {brief_scalar(event.tag)}"
        build.report("NQX004", place, message, "remove the tag; put text in quotes")


# ---------------------------------------------------------------------------------------------------------------------
# Checks that PyYAML's parsers do not make, or make differently.

_DIRECTIVE = re.compile(r"(?:[ ]*+(?:#[^\n]*)?\n)*+(%[^\n]*)")
_HARMLESS_DIRECTIVE = re.compile(r"%YAML[ ]+1\.2[ ]*(?:#.*)?")
_MODELINE = re.compile(
    r"^#[ \t]*(?:yaml-language-server:[ \t]*\$schema=|\$schema:[ \t]*)(\S*)", re.MULTILINE
)
_BEFORE_CONTENT = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*+")
_PUBLISHED = re.compile(r"(?:.*/)?(?:struct|layout)-schema/1(?:\.draft-07)?\.json")
_BETWEEN_DOCUMENTS = re.compile(r"(?:[ \t\n]|#[^\n]*|\.\.\.(?=[ \t\n]|\Z))*+")
_COMMENT = re.compile(r"(?:(?<=[ \t\n])|\A)#[^\n]*")
_TAB_AS_INDENTATION = re.compile(r"[^\n]*+\n(?:[ ]*+\n)*+[ ]*+\t")


def _check_before_parsing(build: Builder, text: str) -> None:
    """Refuses unprintable characters and directives."""
    for found in UNPRINTABLE.finditer(text):
        message = f"expected printable characters, got U+{ord(found.group()):04X}"
        hint = "remove it, or write it as an escape in double quotes"
        build.report("NQX001", found.start(), message, hint)
    if build.errors:
        raise SchemaError(build.errors)
    after = 0
    while "%" in text and (line := _DIRECTIVE.match(text, after)):
        directive, after = line.group(1), line.end()
        if not _HARMLESS_DIRECTIVE.fullmatch(directive):
            code = "NQX004" if directive.startswith("%TAG") else "NQX001"
            message = f"expected a document, got the directive {brief_scalar(directive)}"
            build.fail(code, line.start(1), message, "remove the line")


def _check_modeline(build: Builder, text: str) -> None:
    """Warns about a wrong or misplaced comment that names the JSON Schema for editors."""
    for found in _MODELINE.finditer(text) if "$schema" in text else ():
        if not _PUBLISHED.fullmatch(found.group(1)):
            message = f"expected the JSON Schema of schema files or layouts, got {brief_scalar(found.group(1))}"
            hint = "write # yaml-language-server: $schema=../struct-schema/1.json, with the path to that file"
        elif found.start() >= _end(_BEFORE_CONTENT, text, 0):
            message = "expected the comment for editors above everything else, got it below"
            hint = "make it the first line; editors ignore it here"
        else:
            continue
        build.report("NQX011", found.start(1), message, hint, "warning")


def _check_tabs(build: Builder, text: str, done: int, event: Any) -> int:
    """Refuses tabs outside quotes, block texts and comments; returns where the next check begins."""
    place, end = _index(event.start_mark, text), _index(event.end_mark, text)
    style = getattr(event, "style", None)
    outside = place if style else end
    tab = text.find("\t", done, outside)
    if tab >= 0:
        for comment in _COMMENT.finditer(text, done, outside):
            if comment.start() < tab:
                tab = text.find("\t", max(tab, comment.end()), outside)
    if tab < 0 and style in {"|", ">"}:
        tab = _end(_TAB_AS_INDENTATION, text, place, end) - 1
    if tab >= 0:
        build.fail("NQX001", tab, *_TAB)
    return max(done, end)


def _check_after_document(build: Builder, text: str, event: Any) -> None:
    """Refuses a second document before the parser reaches it."""
    after = _end(_BETWEEN_DOCUMENTS, text, _index(event.end_mark, text))
    if after < len(text) and (event.explicit or text.startswith("---", after)):
        message = "expected one document in the file, got another"
        build.fail("NQX001", after, message, "write one file for each version")


def _end(pattern: re.Pattern[str], text: str, start: int, stop: int | None = None) -> int:
    """The end of a match; 0 if there is none."""
    found = pattern.match(text, start, len(text) if stop is None else stop)
    return found.end() if found else 0


def _index(mark: Any, text: str) -> int:
    """The character of one of PyYAML's marks; the first one if there is no mark."""
    return min(int(mark.index), len(text)) if mark is not None else 0


def _end_of_line(text: str, index: int) -> int:
    end = text.find("\n", index)
    return len(text) if end < 0 else end


# ---------------------------------------------------------------------------------------------------------------------
# Comments.

_SUPPRESSION = re.compile(r"(?:(?<=[ \t\n])|\A)#[ \t]*nqx:")
_QUESTION = re.compile(r"#[ \t]*nqx:[ \t]*question\b:?[ \t]*(.*)")
_IGNORE = re.compile(
    r"#[ \t]*nqx:[ \t]*ignore\[[ ]*(NQX[0-9]{3}(?:[ ]*,[ ]*NQX[0-9]{3})*)[ ]*\](?:[ \t].*)?"
)


def _suppressions(build: Builder, quoted: list[tuple[int, int]]) -> Suppressions:
    """Returns line -> codes, from the comments outside ``quoted`` spans; open questions are errors."""
    found: dict[int, frozenset[str]] = {}
    text = build.text.text
    spans = iter((*quoted, (len(text), len(text) + 1)))
    start, end = next(spans)
    done = 0
    for begin in _SUPPRESSION.finditer(text):
        place = begin.start()
        while end <= place:
            start, end = next(spans)
        if start <= place or place < done:
            continue
        done = _end_of_line(text, place)
        if len(found) == limits.MAX_SUPPRESSIONS:
            message = f"expected at most {limits.MAX_SUPPRESSIONS} suppressions, got more"
            build.fail("NQX005", place, message, "remove those that are no longer needed")
        if question := _QUESTION.fullmatch(text, place, done):
            message = f"expected an answer, got the question: {question.group(1) or 'none'}"
            hint = "uncomment the steps of one answer below it, and remove this comment"
            build.report("NQX318", place, message, hint)
        elif known := _IGNORE.fullmatch(text, place, done):
            found[build.text.mark(place).line] = frozenset(re.split(r"[ ]*,[ ]*", known.group(1)))
        else:
            message = f"expected '# nqx: ignore[NQX120]', got {brief_scalar(text[place:done])}"
            hint = "list the codes in brackets, separated by commas"
            build.report("NQX010", place, message, hint, "warning")
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Syntax errors.

#: Pattern of PyYAML's "context: problem" -> the place to point at, code, message, hint.
_ERRORS: Mapping[str, tuple[str, str, str, str]] = {
    "ing a tag|undefined tag": ("context", "NQX004", "expected a value, got a tag", "remove what starts with !, or put text in quotes"),
    "scanning an a": ("context", "NQX003", "expected a value, got an anchor or alias", "write the value out, or put text in quotes"),
    "quoted.*end of stream": ("context", "NQX001", "expected a closing quote, got the end of the file", "close the quote that opens here"),
    "quoted.*document": ("context", "NQX001", "expected a closing quote, got a line with --- or ...", "close the quote that opens here"),
    "escape character|hexa?decimal": ("escape", "NQX001", "expected an escape such as \\n or \\u00e9, got an unknown one", "double the backslash, or use single quotes"),
    "nesting depth": ("problem", "NQX005", *limits.TOO_DEEP),  # before any event, since libyaml has a limit
    "Unicode|chr": ("context", "NQX001", *LONE_SURROGATE),
    "entries are not allowed|keys are not allowed": ("problem", "NQX001", "expected a value, got the start of a block", "start it on the next line, indented, or write [a, b]"),
    "node content": ("problem", "NQX001", "expected a value, got {got}", "remove it, or put text in quotes"),
    "tab character": ("problem", "NQX001", *_TAB),
    "start any token": ("problem", "NQX001", "expected a value, got {got}", "put text that starts with it in quotes"),
    "block scalar": ("problem", "NQX001", *_AFTER_BLOCK_HEADER),
}  # fmt: skip
#: Kind of layout error -> message, hint.
_LAYOUT: Mapping[str, tuple[str, str]] = {
    "open bracket": ("expected a closing {closing} for this {opened}, got {got}", "close the bracket, or put a comma between the items"),
    "no comma": ("expected , or {closing}, got {got}", "put a comma between the items, and text that holds one in quotes"),
    "open type": ("expected , or {closing}, got {got}", "inside {...} put text that holds brackets in quotes, such as \"float32[n, 3]\""),
    "stray bracket": ("expected the end of the value, got {got} without its opening bracket", "remove it, or open the bracket"),
    "after value": ("expected the end of the value, got {got} after it", "double a quote inside quotes, or use the other kind of quotes"),
    "two colons": ("expected one 'key: value' on the line, got {got} again", "put a value that holds ': ' in quotes"),
    "no space": ("expected a space after the colon, got none", "write 'key: value'"),
    "no colon": ("expected ': ' after the key, got the end of the line", "add the colon, or indent the line below its key"),
    "indentation": ("expected the indentation of the lines around, got another", "align the line with those of its block; end a key with a colon"),
}  # fmt: skip
_NO_SPACE = re.compile(r"""\s*(?:- +)*(?:[\w.-]+|'[^'\n]*'|"[^"\n]*"):(?=[^\s:])""")
_CLOSING = {"[": "]", "{": "}"}


def _syntax_problem(error: Any, text: str) -> tuple[str, int, str, str]:
    """Returns code, place, message and likely fix of a syntax error, the same for both parsers."""
    reason = f"{getattr(error, 'context', None)}: {getattr(error, 'problem', None)}"
    place = _index(getattr(error, "problem_mark", None), text)
    context_mark = getattr(error, "context_mark", None)
    context = place if context_mark is None else _index(context_mark, text)
    at_end = place >= len(text)
    got = "the end of the file" if at_end else brief_scalar(text[place])
    line = text.rfind("\n", 0, place) + 1
    if text.startswith("\t", place):
        return "NQX001", place, *_TAB
    if text.startswith("%", line):
        message = "expected a key or an item, got a directive"
        return "NQX001", line, message, "no line of a document starts with %"
    if "flow node" in reason and at_end:
        message = f"expected a value or a closing bracket, got {got}"
        return "NQX001", place, message, "close the bracket"
    for pattern, (where, code, message, hint) in _ERRORS.items():
        if re.search(pattern, reason):
            escape = max(context, text.rfind("\\", context, place + 1))
            places = {"problem": place, "context": context, "escape": escape}
            return code, places[where], message.format(got=got), hint
    if "flow" not in reason:
        place, kind = _layout_problem(text, context if "could not find" in reason else place)
    elif at_end or "\n" in text[context:place]:
        place, kind = context, "open bracket"
    else:
        kind = "open type" if got == "'['" else "no comma"
    opened = text[context : context + 1]
    message, hint = _LAYOUT[kind]
    message = message.format(got=got, opened=opened, closing=_CLOSING.get(opened, ""))
    return "NQX001", place, message, hint


def _layout_problem(text: str, place: int) -> tuple[int, str]:
    """The place of an error in the layout of lines, and its kind, a key of ``_LAYOUT``."""
    start = text.rfind("\n", 0, place) + 1
    before = text[start:place]
    if text[place : place + 1] in {"]", "}"}:
        return place, "stray bracket"
    if re.search(r":\s", before):
        return place, "after value" if re.search(r"[\"'\]}]", before) else "two colons"
    for line in (start, _line_above(text, start)):
        if no_space := _NO_SPACE.match(text, line, _end_of_line(text, line)):
            return no_space.end() - 1, "no space"
    colon = re.search(r"\A\s*-\s|:", text[start : _end_of_line(text, start)])
    return place, "indentation" if colon else "no colon"


def _line_above(text: str, start: int) -> int:
    """The nearest line above that is neither blank nor a comment; ``start`` if there is none."""
    above = start
    while above > 0:
        above = text.rfind("\n", 0, above - 1) + 1
        if text[above : _end_of_line(text, above)].partition("#")[0].strip():
            return above
    return start
