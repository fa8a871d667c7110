"""The step convert for text: between str, the members of an enum and literal strings; no array is read.

Example:
    >>> from neuralqx_struct.types.text import parse_type
    >>> is_text(parse_type("literal['a', 'b']"), v1), is_text(parse_type("literal['a', 1]"), v1)
    (True, False)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from neuralqx_struct.errors import Diagnostic, did_you_mean
from neuralqx_struct.evolution.payload_tree import Place
from neuralqx_struct.evolution.steps.additions import with_named
from neuralqx_struct.evolution.steps.operations import (
    Gap,
    Scope,
    may_stop,
    refuse,
)
from neuralqx_struct.evolution.values import shown_node
from neuralqx_struct.manifest.kinds import ENUM, elements_of
from neuralqx_struct.paths import Path
from neuralqx_struct.printing import listed
from neuralqx_struct.schema.migration import Convert
from neuralqx_struct.schema.model import Document
from neuralqx_struct.types import STR, Node, Type
from neuralqx_struct.types.text import format_type


def is_text(declared: Type, document: Document) -> bool:
    """True for a type whose values are strings: str, an enum, or literals that are all strings."""
    return declared.operands(document) == STR.operands(document)


def convert_text(step: Convert, to: Type, scope: Scope) -> Document:
    """The declaration after texts got another type."""
    document = with_named(scope.document, to, scope.target)
    declared = scope.type(step.field)
    sources = [*text_sources(declared, document)]
    shown = format_type(declared)
    if not sources:
        refuse("NQX304", "field", f"expected a field that holds text, got {shown}")
    if not step.exact:
        message = "expected a step with an effect, got exact: false for text, which nothing rounds"
        refuse("NQX306", "exact", message, "leave it out; `map_enum` gives members other names")
    if all(source == to for source in sources):
        message = f"expected a step with an effect, got one that leaves {shown} as it is"
        refuse("NQX306", "field", message)
    return scope.moved(document).with_type(step.field, lambda have: _changed(have, to, document))


def text_sources(declared: Type, document: Document) -> Iterator[Type]:
    """Yields the types inside a type that a conversion of text changes; NQX304 if one is among several options."""

    def holds_text(part: Type) -> bool:
        return len(part.branches) == 1 and is_text(part, document)

    return sole_types(declared, holds_text, "text, or `text | null`")


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
    if len(declared.branches) == 1 and is_text(declared, document):
        return to
    return declared.with_parts(tuple(_changed(part, to, document) for part in declared.parts))


def review_text(step: Convert, to: Type, scope: Scope) -> Iterator[Diagnostic]:
    """Yields NQX320 where a text may be none of those that the new type has."""
    document = with_named(scope.document, to, scope.target)
    wanted = to.texts(document)
    if wanted is None:
        return
    for source in text_sources(scope.type(step.field), document):
        texts = source.texts(document)
        if texts is None or not set(texts) <= set(wanted):
            yield may_stop(f"with a text that is none of {step.to}", "to")
            return


def text_difference(gap: Gap) -> Type | None:
    """The type that text has in the wanted type, where it has another one in the stored type, of whose words none is gone."""
    todo = [(gap.have, gap.want)]
    for have, want in todo:
        if len(have.solid) == len(want.solid) == 1 and len(have.branches) + len(want.branches) > 2:
            todo.append((have.solid[0], want.solid[0]))
        elif is_text(have, gap.old) and is_text(want, gap.new):
            kept, wanted = have.texts(gap.old), want.texts(gap.new)
            fits = kept is None or wanted is None or set(kept) <= set(wanted)
            if have != want and fits:
                return want
        else:
            todo += zip(have.parts, want.parts, strict=False)
    return None


def convert_text_nodes(step: Convert, to: Type, place: Place) -> Node:
    """The instance with texts as nodes of another type."""
    document = place.after
    texts = to.texts(document)

    def changed(node: Node, declared: Type, at: Path) -> Node:
        if len(declared.branches) > 1:
            fits = node is not None and len(declared.solid) == 1
            return changed(node, declared.solid[0], at) if fits else node
        if is_text(declared, place.before):
            return _text(node, at)
        found = declared.children(node)
        made = [changed(each, part, (*at, key)) for key, part, each in found]
        return declared.with_children(node, made) if found else node

    def _text(node: Node, at: Path) -> Node:
        text: Node = node
        if ENUM.matches(node):  # a member of a Python class; schemas write its name
            text = node["name"]
        elif elements_of(node):  # a string of numpy
            text = node["value"]
        if not isinstance(text, str):
            raise place.error("NQX411", f"expected text, got {shown_node(node)}", *at)
        if texts is not None and text not in texts:
            message = f"expected one of {listed(texts)}, got {shown_node(node)}"
            raise place.error("NQX421", message, *at, hint=did_you_mean(text, texts))
        return text

    declared = place.before.structs[place.struct].fields[step.field].declared
    node = place.field(step.field)
    return place.with_fields({step.field: changed(node, declared, (step.field,))})
