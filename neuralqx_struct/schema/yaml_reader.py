"""Reading YAML: PyYAML's events, checked and handed to the builder.

Owns what YAML a file may contain (no anchors, aliases, tags, directives, tabs as indentation or second documents) and
the ``# nqx: ignore[...]`` comments. Values come from PyYAML's stream of events, never from its constructors: the reader
stops at the first event that is too deep, before anything recurses, and builds no Python object that a file names.

Example:
    >>> from neuralqx_struct.schema.source import Text
    >>> build = Builder(Text("<text>", "n: 1  # nqx: ignore[NQX120]"))
    >>> suppressions = read_yaml(build, build.text.text)
    >>> build.finish(suppressions).suppressions
    mappingproxy({1: frozenset({'NQX120'})})
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.schema import limits
from neuralqx_struct.schema.builder import Builder
from neuralqx_struct.schema.scalars import LONE_SURROGATE, UNPRINTABLE, Objection, lone_surrogate, plain, show
from neuralqx_struct.schema.source import JsonValue
from neuralqx_struct.schema.yaml_problems import AFTER_BLOCK_HEADER, TAB, end_of_line, index_of, syntax_problem

__all__ = ["read_yaml", "yaml_parser"]

_DIRECTIVE = re.compile(r"(?:[ ]*+(?:#[^\n]*)?\n)*+(%[^\n]*)")
_HARMLESS_DIRECTIVE = re.compile(r"%YAML[ ]+1\.2[ ]*(?:#.*)?")
_BETWEEN_DOCUMENTS = re.compile(r"(?:[ \t\n]|#[^\n]*|\.\.\.(?=[ \t\n]|\Z))*+")
_COMMENT = re.compile(r"(?:(?<=[ \t\n])|\A)#[^\n]*")
_BLOCK_HEADER = re.compile(r"[|>][-+0-9]*+(?![ ]*(?:\n|\Z)|[ ]+#)")
_TAB_AS_INDENTATION = re.compile(r"[^\n]*+\n(?:[ ]*+\n)*+[ ]*+\t")


def yaml_parser() -> Any:
    """PyYAML's parser in C where PyYAML was built with it, else the one in Python: both give the same events."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(build: Builder, text: str) -> Mapping[int, frozenset[str]]:
    """Feed YAML to the builder.

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
    comments = _SUPPRESSION.search(text) is not None
    tabs = "\t" in text
    quoted: list[tuple[int, int]] = []
    done = 0  # everything before this index has been looked at for tabs
    parser = yaml_parser()(text)
    previous: Any = None
    try:
        while not isinstance(event := parser.get_event(), yaml.StreamEndEvent):
            place: int = event.start_mark.index
            if tabs:
                done = _check_tabs(build, text, done, event)
            if isinstance(event, yaml.ScalarEvent):
                if event.anchor or event.tag:
                    _refuse_properties(build, event, place)
                if event.style:  # None or "" where there are no quotes, depending on the parser
                    if comments and "nqx:" in event.value:
                        quoted.append((place, index_of(event.end_mark, text)))
                    if lone_surrogate(event.value):
                        build.report("NQX001", place, *LONE_SURROGATE)
                    if event.style in "|>" and (header := _BLOCK_HEADER.match(text, place)):
                        build.fail("NQX001", header.end(), *AFTER_BLOCK_HEADER)
                    _take(build, event.value, event.value, place, None)
                else:
                    if not event.value:  # the parsers put nothing at all at different ends of the space around it
                        space = text[index_of(previous.end_mark, text) : place]
                        place -= len(space) - len(space.rstrip(" \t\n"))
                    value, finding = plain(event.value)
                    _take(build, value, event.value, place, finding)
            elif isinstance(event, yaml.CollectionStartEvent):
                if event.anchor or event.tag:
                    _refuse_properties(build, event, place)
                build.open({} if isinstance(event, yaml.MappingStartEvent) else [], place)
            elif isinstance(event, yaml.CollectionEndEvent):
                build.close()
            elif isinstance(event, yaml.AliasEvent):
                message = f"expected a value, got the alias {show(f'*{event.anchor}')}"
                build.report("NQX003", place, message, "write the value out")
                build.drop(place)
            elif isinstance(event, yaml.DocumentEndEvent):
                _check_after_document(build, text, event)
            previous = event
    except yaml.YAMLError as error:
        build.fail(*syntax_problem(error, text))
    finally:
        parser.dispose()
    return _suppressions(build, quoted) if comments else {}


def _take(build: Builder, value: JsonValue, text: str, place: int, finding: Objection | None) -> None:
    """Hand a scalar to the builder, as key or as value."""
    if len(text) > limits.MAX_SCALAR:
        message = f"expected at most {limits.MAX_SCALAR} characters in one value, got {len(text)}"
        build.report("NQX005", place, message, limits.LARGE_DATA)
    if not build.wants_key():
        if finding:
            build.report(finding.code, place, finding.message, finding.hint, finding.severity)
        build.scalar(value, place)
    elif not isinstance(value, str):
        build.report("NQX006", place, f"expected text as key, got {show(text)}", "put the key in quotes")
        build.drop(place)
    elif finding and value == "<<":
        build.report("NQX006", place, "expected text as key, got the merge key <<", "write the merged members out")
        build.drop(place)
    else:
        build.key(value, place, "NQX002")
        if finding:
            build.report(finding.code, place, finding.message, finding.hint, finding.severity)


def _refuse_properties(build: Builder, event: Any, place: int) -> None:
    if event.anchor:
        message = f"expected a value, got the anchor {show(f'&{event.anchor}')}"
        build.report("NQX003", place, message, "remove it; write repeated values out")
    if event.tag:
        message = f"expected a value, got the tag {show(event.tag)}"
        build.report("NQX004", place, message, "remove the tag; put text in quotes")


def _check_before_parsing(build: Builder, text: str) -> None:
    """Refuse what the two parsers take differently: unprintable characters and directives."""
    for found in UNPRINTABLE.finditer(text):
        code_point = f"U+{ord(found.group()):04X}"
        hint = "remove it, or write it as an escape in double quotes"
        build.report("NQX001", found.start(), f"expected printable characters, got {code_point}", hint)
    if build.errors:
        raise SchemaError(build.errors)
    after = 0
    while "%" in text and (found_at := _DIRECTIVE.match(text, after)):
        directive, after = found_at.group(1), found_at.end()
        if not _HARMLESS_DIRECTIVE.fullmatch(directive):
            code = "NQX004" if directive.startswith("%TAG") else "NQX001"
            message = f"expected a document, got the directive {show(directive)}"
            build.fail(code, found_at.start(1), message, "remove the line")


_MODELINE = re.compile(r"^#[ \t]*(?:yaml-language-server:[ \t]*\$schema=|\$schema:[ \t]*)(\S*)", re.MULTILINE)
_BEFORE_CONTENT = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*+")
_PUBLISHED = re.compile(r"(?:.*/)?struct-schema/1(?:\.draft-07)?\.json")


def _check_modeline(build: Builder, text: str) -> None:
    """The comment that tells editors where the JSON Schema of schema files is, where there is one."""
    for found in _MODELINE.finditer(text) if "$schema" in text else ():
        head = _BEFORE_CONTENT.match(text)
        if not _PUBLISHED.fullmatch(found.group(1)):
            message = f"expected the JSON Schema of schema files, got {show(found.group(1))}"
            hint = "write # yaml-language-server: $schema=../struct-schema/1.json, with the path to that file"
            build.report("NQX011", found.start(1), message, hint, "warning")
        elif head is not None and found.start() >= head.end():
            message = "expected the comment for editors above everything else, got it below"
            build.report("NQX011", found.start(), message, "make it the first line; editors ignore it here", "warning")


def _check_tabs(build: Builder, text: str, done: int, event: Any) -> int:
    """Refuse tabs outside quotes, block texts and comments, where one parser takes them and the other does not."""
    place, end = index_of(event.start_mark, text), index_of(event.end_mark, text)
    outside = place if getattr(event, "style", None) else end
    tab = text.find("\t", done, outside)
    for comment in _COMMENT.finditer(text, done, outside) if tab >= 0 else ():
        if 0 <= comment.start() < tab:
            tab = text.find("\t", max(tab, comment.end()), outside)
    if (
        tab < 0
        and getattr(event, "style", None) in {"|", ">"}
        and (found := _TAB_AS_INDENTATION.match(text, place, end))
    ):
        tab = found.end() - 1
    if tab >= 0:
        build.fail("NQX001", tab, *TAB)
    return max(done, end)


def _check_after_document(build: Builder, text: str, event: Any) -> None:
    """Refuse a second document before the parser meets it."""
    after = _BETWEEN_DOCUMENTS.match(text, min(event.end_mark.index, len(text))).end()  # type: ignore[union-attr]  # matches ""
    if after < len(text) and (event.explicit or text.startswith("---", after)):
        build.fail("NQX001", after, "expected one document in the file, got another", "write one file for each version")


_SUPPRESSION = re.compile(r"(?:(?<=[ \t\n])|\A)#[ \t]*nqx:")
_QUESTION = re.compile(r"#[ \t]*nqx:[ \t]*question\b:?[ \t]*(.*)")
_IGNORE = re.compile(r"#[ \t]*nqx:[ \t]*ignore\[[ ]*(NQX[0-9]{3}(?:[ ]*,[ ]*NQX[0-9]{3})*)[ ]*\](?:[ \t].*)?")


def _suppressions(build: Builder, quoted: list[tuple[int, int]]) -> Mapping[int, frozenset[str]]:
    """Line -> codes, from the comments that are not inside quoted text; open questions are errors."""
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
        done = end_of_line(text, place)
        if len(found) == limits.MAX_SUPPRESSIONS:
            hint = "remove those that are no longer needed"
            build.fail("NQX005", place, f"expected at most {limits.MAX_SUPPRESSIONS} suppressions, got more", hint)
        if question := _QUESTION.fullmatch(text, place, done):
            message = f"expected an answer, got the question: {question.group(1) or 'none'}"
            hint = "uncomment the steps of one answer below it, and remove this comment"
            build.report("NQX318", place, message, hint)
        elif known := _IGNORE.fullmatch(text, place, done):
            found[build.text.mark(place).line] = frozenset(re.split(r"[ ]*,[ ]*", known.group(1)))
        else:
            message = f"expected '# nqx: ignore[NQX120]', got {show(text[place:done])}"
            build.report("NQX010", place, message, "list the codes in brackets, separated by commas", "warning")
    return found
