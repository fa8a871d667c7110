"""Steps on structs: move and inline, inverse to each other, and rename_struct. None reads an array.

Example:
    >>> step = move(fields=["sigma"], into="sampler", struct="Sampler")
    >>> sorted(MOVE.declare(step, Scope.of(step, v2, v3)).structs)
    ['Sampler', 'VMCState']
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from neuralqx_struct.evolution.declared_sizes import facing_sizes
from neuralqx_struct.evolution.payload_tree import Place
from neuralqx_struct.evolution.steps.operations import (
    Gap,
    Scope,
    StepKind,
    builder,
    find_struct,
    refuse,
    refuse_same,
)
from neuralqx_struct.expressions import Expression, parse
from neuralqx_struct.manifest.kinds import STRUCT
from neuralqx_struct.schema.graph import graph_of
from neuralqx_struct.schema.migration import Inline, Move, RenameStruct, Step
from neuralqx_struct.schema.model import Document, FieldDeclaration, StructDeclaration
from neuralqx_struct.schema.sizes.comparison import binding, same_type, substitute
from neuralqx_struct.schema.sizes.scopes import int_fields, sizes_of_struct
from neuralqx_struct.types import Named, Node, Type, map_type, walk_type
from neuralqx_struct.types.text import format_type


def _apart(scope: Scope, destination: str, bind: Mapping[str, Expression]) -> dict[str, Expression]:
    """New names for the sizes of a struct that would get another meaning beside those of another.

    Args:
        scope: The struct that fields leave.
        destination: The struct that they come to, if it exists.
        bind: Expressions that the parameters of ``destination`` are equal to.
    """
    document = scope.document
    taken = {name for name, size in bind.items() if size.text != name}
    if destination in document.structs:
        taken |= sizes_of_struct(document, destination).keys() - document.dims.keys()
        taken.update({*document.structs[destination].params} - bind.keys())
    if destination == document.root:
        taken |= int_fields(document).keys() - document.dims.keys()
    names = (*sizes_of_struct(document, scope.name), *scope.struct.params)
    return {name: parse(f"{name}_of_{scope.name}") for name in names if name in taken}


def _require_one_user(document: Document, struct: str, member: str) -> None:
    """Checks that a struct whose fields a step changes is used once, as other instances would not follow."""
    places = ["root"] if document.root == struct else []
    places += [f"{use.struct}.{use.field}" for use in graph_of(document).users(struct)]
    if len(places) > 1:
        message = f"expected a struct used in one place, got {struct}, used in {', '.join(places)}"
        hint = "the step would leave the other instances without the fields"
        refuse("NQX304", member, message, hint)


# ---------------------------------------------------------------------------------------------------------------------
# move


def _move(step: Move, scope: Scope) -> Document:
    document, target = scope.document, scope.target
    moved = {name: scope.field(name, "fields") for name in step.fields}
    into = None if step.into in moved else scope.struct.held(step.into)
    if into is not None:
        return _move_into(step, scope, moved, into)
    declaration = scope.wanted_field(step.into)
    bind: dict[str, Expression] = {}
    if declaration is not None and declaration.declared.refers == step.struct:
        bind = binding(target, declaration.declared)
    else:
        declaration = None
    known = target.structs.get(step.struct)
    params: dict[str, Any] = {"params": known.params, "doc": known.doc} if known else {}
    empty = StructDeclaration(fields={}, **params)
    there = scope.within(step.struct, document.structs.get(step.struct, empty))
    apart = _apart(scope, step.struct, bind)
    inner = {
        name: there.adopt(name, substitute(d.declared, apart), d, bind) for name, d in moved.items()
    }
    if step.struct in document.structs:
        _require_same_fields(there, inner)
    else:
        document = there.with_fields(inner)
    made = declaration or FieldDeclaration.model_validate({"type": step.struct})
    return scope.moved(document).replaced(step.fields, {step.into: made})


def _require_same_fields(scope: Scope, moved: Mapping[str, FieldDeclaration]) -> None:
    """Checks that a struct which exists already has just the fields that are moved into a new instance of it."""
    have = scope.struct.stored
    both = moved.keys() & have.keys()
    # A new instance has its own sizes: those of the fields that it gets.
    own = {*sizes_of_struct(scope.document, scope.name)}
    own -= {*scope.document.dims, *scope.struct.params, *int_fields(scope.document)}
    known = {**scope.known}
    for field in sorted(both):
        for size, name in facing_sizes(moved[field].declared, have[field].declared):
            if name in own:
                known.setdefault(name, size)
    for field in sorted(moved.keys() | have.keys()):
        if field in both and same_type(moved[field].declared, have[field].declared, known):
            continue
        wanted = f"expected a struct with just the fields {', '.join(moved)}"
        message = f"{wanted}, got {scope.name}, which differs in {field!r}"
        hint = "name a struct that does not exist yet, or one with these fields"
        refuse("NQX304", "struct", message, hint)


def _move_into(
    step: Move, scope: Scope, moved: Mapping[str, FieldDeclaration], into: FieldDeclaration
) -> Document:
    """The declaration after a move into a struct that the field already holds."""
    if into.declared.refers != step.struct:
        shown = f"{step.into}: {format_type(into.declared)}"
        refuse("NQX304", "into", f"expected a field of type {step.struct}, got {shown}")
    inner = scope.within(step.struct, find_struct(scope.document, step.struct, "struct"))
    _require_one_user(scope.document, step.struct, "struct")
    for field in moved:
        inner.require_free(field, "fields")
    bind = binding(scope.document, into.declared)
    apart = _apart(scope, step.struct, bind)
    made = {
        name: inner.adopt(name, substitute(d.declared, apart), d, bind) for name, d in moved.items()
    }
    return scope.moved(inner.replaced((), made)).replaced(step.fields, {})


def _move_payload(step: Move, place: Place) -> Node:
    moved = {field: place.field(field) for field in step.fields}
    leaving = tuple(step.fields)
    if step.into in moved or step.into not in place.node["fields"]:
        made = STRUCT.node(type=place.before.ref(step.struct), fields=moved)
        return place.swapped(leaving, {step.into: made})
    made = place.swapped(leaving, {})
    made["fields"][step.into] = place.inside(step.into).swapped((), moved)
    return made


move = builder(Move)
MOVE = StepKind(
    model=Move,
    declare=_move,
    rewrite=_move_payload,
    inverse=lambda step, *_: [Inline(field=step.into, fields=list(step.fields))],
    cost="manifest",
    carried=lambda step: step.fields,
    places=lambda step: {(field,): (step.into, field) for field in step.fields},
)

# ---------------------------------------------------------------------------------------------------------------------
# inline


def _nested(scope: Scope, step: Inline) -> Type:
    declared = scope.type(step.field)
    if declared.refers in scope.document.structs:
        return declared
    message = f"expected a field that holds a struct, got {format_type(declared)}"
    return refuse("NQX304", "field", message)


def _inline(step: Inline, scope: Scope) -> Document:
    use = _nested(scope, step)
    inner = scope.within(use.refers)
    leaving = (step.field,) if set(inner.struct.stored) <= set(step.fields) else ()
    if not leaving:
        _require_one_user(scope.document, use.refers, "field")
    bind = {**_apart(inner, scope.name, {}), **binding(scope.document, use)}
    coming: dict[str, FieldDeclaration] = {}
    for field in step.fields:
        declaration = inner.field(field, "fields")
        scope.require_free(field, "fields", leaving)
        coming[field] = scope.adopt(field, substitute(declaration.declared, bind), declaration)
    if not leaving:
        scope = scope.moved(inner.replaced(step.fields, {}))
    return scope.replaced(leaving, coming)


def _inline_payload(step: Inline, place: Place) -> Node:
    inner = place.inside(step.field)
    coming = {name: inner.field(name) for name in step.fields}
    rest = inner.swapped(tuple(coming), {})
    if not rest["fields"]:
        return place.swapped((step.field,), coming)
    made = place.swapped((), coming)
    made["fields"][step.field] = rest
    return made


def _inline_back(step: Inline, scope: Scope, _: Document) -> list[Step]:
    struct = _nested(scope, step).refers
    return [Move(fields=list(step.fields), into=step.field, struct=struct)]


inline = builder(Inline)
INLINE = StepKind(
    model=Inline,
    declare=_inline,
    rewrite=_inline_payload,
    inverse=_inline_back,
    cost="manifest",
    carried=lambda step: (step.field,),
    places=lambda step: {(step.field, field): (field,) for field in step.fields},
)

# ---------------------------------------------------------------------------------------------------------------------
# rename_struct


def _rename_struct(step: RenameStruct, scope: Scope) -> Document:
    document = scope.document
    find_struct(document, step.struct, "struct")
    if step.to == step.struct:
        refuse_same("to", step.struct)
    if step.to in document.structs or step.to in document.enums:
        message = f"expected a name that is free, got {step.to!r}, which version {document.version} has already"
        refuse("NQX304", "to", message)

    def renamed(declared: Type) -> Type:
        return Named(step.to, declared.arguments) if declared.refers == step.struct else declared

    def field(declaration: FieldDeclaration) -> FieldDeclaration:
        if declaration.type is None:
            return declaration
        declared = map_type(declaration.declared, renamed)
        return declaration if declared == declaration.declared else declaration.with_type(declared)

    def struct(declaration: StructDeclaration) -> StructDeclaration:
        if step.struct not in declaration.refers:
            return declaration
        fields = {name: field(each) for name, each in declaration.fields.items()}
        return declaration.model_copy(update={"fields": fields})

    structs = {
        step.to if name == step.struct else name: struct(declaration)
        for name, declaration in document.structs.items()
    }
    root = step.to if document.root == step.struct else document.root
    return document.model_copy(update={"structs": structs, "root": root})


def is_renamed(old: str, new: str, before: Document, after: Document) -> bool:
    """True if one struct is gone and another one is new; a struct of another schema cannot be renamed."""
    gone = old in before.structs and old not in after.structs
    return gone and new in after.structs and new not in before.structs


def _suggest_rename_struct(gap: Gap) -> Iterator[Step]:
    for a, b in zip(walk_type(gap.have), walk_type(gap.want), strict=False):
        if is_renamed(a.refers, b.refers, gap.old, gap.new):
            yield rename_struct(struct=a.refers, to=b.refers)


rename_struct = builder(RenameStruct)
RENAME_STRUCT = StepKind(
    model=RenameStruct,
    declare=_rename_struct,
    rewrite=lambda step, place: {**place.node, "type": place.before.ref(step.to)},
    inverse=lambda step, *_: [RenameStruct(struct=step.to, to=step.struct)],
    cost="manifest",
    structs=lambda step, _: (step.struct,),
    suggest=_suggest_rename_struct,
    question=lambda _: "was the struct renamed?",
    answer="yes",
    renames_struct=True,
)
