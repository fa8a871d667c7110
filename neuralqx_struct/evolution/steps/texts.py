"""The step convert for words: text, integers and booleans become each other by the text that a file has for them.

No array is read. The members of an enum and literals are such words; `map_enum` gives literal strings other names on the way.

Example:
    >>> from neuralqx_struct.types.text import parse_type
    >>> is_of_words(parse_type("literal['a', 1]"), v1), is_of_words(parse_type("literal[1.5]"), v1)
    (True, False)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from neuralqx_struct.errors import Diagnostic, did_you_mean
from neuralqx_struct.evolution.payload_tree import Place
from neuralqx_struct.evolution.steps.operations import (
    Gap,
    Scope,
    may_stop,
    refuse,
    with_named,
)
from neuralqx_struct.evolution.values import shown_node
from neuralqx_struct.fieldspec import MISSING
from neuralqx_struct.manifest.kinds import BIGINT, ENUM, NUMPY_SCALAR, elements_of
from neuralqx_struct.paths import Path
from neuralqx_struct.printing import listed, read_decimal
from neuralqx_struct.schema.migration import Convert
from neuralqx_struct.schema.model import Document
from neuralqx_struct.types import LiteralOf, Node, Type
from neuralqx_struct.types.scalars import BOOL, INT, STR
from neuralqx_struct.types.text import format_type, number_node, number_value, spelling

_WORDS = frozenset(record.meaning for record in (STR, INT, BOOL))
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,4000}")


def is_of_words(declared: Type, document: Document) -> bool:
    """True for a type whose values are text, integers or booleans, no two of one text: also for an enum and literals."""
    endless = declared in (STR, INT)
    found = declared.operands(document)
    return endless or (found <= _WORDS and declared.spelled(document) is not None)


def _is_number(declared: Type) -> bool:
    """True for int and bool, whose values convert as numbers do among themselves."""
    return declared.axes == 0


def _read(text: str, to: Type, document: Document) -> Any:
    """The value that a text means in a type; MISSING if it means none."""
    known = to.spelled(document)
    if known is not None:
        return known.get(text, MISSING)
    if not _is_number(to):
        return text
    return read_decimal(text) if _INTEGER.fullmatch(text) else MISSING


def _fits(have: Type, old: Document, to: Type, new: Document) -> bool:
    """True if every word of one type has a value in another."""
    words = have.spelled(old)
    if words is None:
        return to.spelled(new) is None and not _is_number(to)
    return all(_read(text, to, new) is not MISSING for text in words)


def _some_fit(have: Type, old: Document, to: Type, new: Document) -> bool:
    """True if a word of one type has a value in another."""
    words = have.spelled(old)
    if words is not None:
        return any(_read(text, to, new) is not MISSING for text in words)
    known = to.spelled(new)
    return known is None or any(_read(text, have, old) is not MISSING for text in known)


def convert_text(step: Convert, to: Type, scope: Scope) -> Document:
    """The declaration after texts got another type."""
    document = with_named(scope.document, to, scope.target)
    declared = scope.type(step.field)
    sources = [*text_sources(declared, document)]
    shown = format_type(declared)
    if not sources:
        refuse(
            "NQX304",
            "field",
            f"expected a field that holds text, integers or booleans, got {shown}",
        )
    if not any(_some_fit(source, document, to, document) for source in sources):
        message = f"expected a field that holds a value of {step.to}, got {shown}"
        hint = "`convert` it to literal strings first, and name them with `map_enum`"
        refuse("NQX304", "field", message, hint)
    if not step.exact:
        message = "expected a step with an effect, got exact: false for words, which nothing rounds"
        refuse("NQX306", "exact", message, "leave it out; `map_enum` gives members other names")
    if all(source == to for source in sources):
        message = f"expected a step with an effect, got one that leaves {shown} as it is"
        refuse("NQX306", "field", message)
    return scope.moved(document).with_type(step.field, lambda have: _changed(have, to, document))


def text_sources(declared: Type, document: Document) -> Iterator[Type]:
    """Yields the types inside a type that a conversion of words changes; NQX304 if one is among several options."""

    def holds_text(part: Type) -> bool:
        return len(part.branches) == 1 and is_of_words(part, document)

    return sole_types(declared, holds_text, "words of one type, or null")


def sole_types(declared: Type, wanted: Callable[[Type], bool], expected: str) -> Iterator[Type]:
    """Yields the outermost types inside a type that are wanted.

    Args:
        declared: The type.
        wanted: Returns True for them.
        expected: Where they may be, for messages.

    Raises:
        SchemaError: NQX304: one is among several options, which only values could tell apart.
    """
    if wanted(declared):
        yield declared
        return
    for part in declared.parts:
        found = [*sole_types(part, wanted, expected)]
        if found and len(declared.solid) > 1:
            message = f"expected {expected}, got {format_type(declared)}"
            refuse("NQX304", "field", message, "write a `python` step")
        yield from found


def _changed(declared: Type, to: Type, document: Document) -> Type:
    if len(declared.branches) == 1 and is_of_words(declared, document):
        return to
    return declared.with_parts(tuple(_changed(part, to, document) for part in declared.parts))


def review_text(step: Convert, to: Type, scope: Scope) -> Iterator[Diagnostic]:
    """Yields NQX320 where a word may have no value in the new type."""
    document = with_named(scope.document, to, scope.target)
    sources = text_sources(scope.type(step.field), document)
    if not all(_fits(source, document, to, document) for source in sources):
        yield may_stop(f"with a value that is none of {step.to}", "to")


def text_difference(gap: Gap) -> Type | None:
    """The type that words get first where they have another one in the wanted type.

    It is the wanted one, unless some words have other names there: they are literal strings before `map_enum` names them.
    """
    todo = [(gap.have, gap.want)]
    for have, want in todo:
        if len(have.solid) == len(want.solid) == 1 and len(have.branches) + len(want.branches) > 2:
            todo.append((have.solid[0], want.solid[0]))
        elif is_of_words(have, gap.old) and is_of_words(want, gap.new):
            if have == want or (_is_number(have) and _is_number(want)):
                continue
            kept, wanted = have.spelled(gap.old), want.spelled(gap.new)
            some = kept is None and _some_fit(have, gap.old, want, gap.new)
            if some or _fits(have, gap.old, want, gap.new):
                return want
            if (
                kept is not None
                and wanted is not None
                and not (have.texts(gap.old) and want.texts(gap.new))
            ):
                named = LiteralOf(tuple(kept))
                return None if named == have else named
        else:
            todo += zip(have.parts, want.parts, strict=False)
    return None


def convert_text_nodes(step: Convert, to: Type, place: Place) -> Node:
    """The instance with words as nodes of another type."""
    document = place.after

    def changed(node: Node, declared: Type, at: Path) -> Node:
        if len(declared.branches) > 1:
            fits = node is not None and len(declared.solid) == 1
            return changed(node, declared.solid[0], at) if fits else node
        if is_of_words(declared, place.before):
            return named(node, at)
        found = declared.children(node)
        made = [changed(each, part, (*at, key)) for key, part, each in found]
        return declared.with_children(node, made) if found else node

    def named(node: Node, at: Path) -> Node:
        text = _word(node, place, at)
        value = _read(text, to, document)
        if value is MISSING:
            known = to.spelled(document)
            shown = format_type(to) if known is None else f"one of {listed([*known])}"
            message = f"expected {shown}, got {shown_node(node)}"
            raise place.error("NQX421", message, *at, hint=did_you_mean(text, known or ()))
        return value if isinstance(value, str) else number_node(value)

    declared = place.before.structs[place.struct].fields[step.field].declared
    node = place.field(step.field)
    return place.with_fields({step.field: changed(node, declared, (step.field,))})


def _word(node: Node, place: Place, at: Path) -> str:
    """The text of a node that holds a word."""
    value: Any = node
    if ENUM.matches(node):  # a member of a Python class; schemas write its name
        value = node["name"]
    elif NUMPY_SCALAR.matches(node) and isinstance(node["value"], str):
        value = node["value"]
    elif elements_of(node) and not place.shape(node, *at):  # as jit makes it of a number
        value = place.load(node).read().item()
    elif BIGINT.matches(node):
        value = number_value(node)
    if not isinstance(value, (str, int)):
        raise place.error("NQX411", f"expected a word, got {shown_node(node)}", *at)
    return spelling(value)
