"""Steps on structs: move and inline, inverse to each other, and rename_struct. None of them reads an array.

For each step three functions stand side by side: what it does to a declaration, to one struct instance of a payload,
and the steps that lead back. ``steps.py`` has the table of them all.

Example:
    >>> sorted(MOVE.declare(Move(fields=["sigma"], into="sampler", struct="Sampler"), v2, v3).structs)
    ['Sampler', 'VMCState']
"""

from __future__ import annotations

from collections.abc import Mapping

from neuralqx_struct.errors import MigrationError, did_you_mean
from neuralqx_struct.evolution.edits import (
    Operation,
    adopt,
    find_field,
    find_struct,
    fresh,
    refuse,
    replace_fields,
    shown_node,
    swap_nodes,
    users,
    with_fields,
    with_nodes,
    with_struct,
)
from neuralqx_struct.evolution.sizes import equations, map_type, same_type, substitute
from neuralqx_struct.evolution.tree import Place, kind_of
from neuralqx_struct.evolution.values import Node
from neuralqx_struct.schema.expressions import Expression
from neuralqx_struct.schema.migration import Inline, Move, RenameStruct, Step
from neuralqx_struct.schema.model import Document, FieldDeclaration, StructDeclaration
from neuralqx_struct.schema.types import Named, Type, format_type, walk_type

__all__ = ["INLINE", "MOVE", "RENAME_STRUCT"]

# ---------------------------------------------------------------------------------------------------------------------
# move and inline


def _move(step: Move, document: Document, target: Document) -> Document:
    name, struct = find_struct(document, step)
    moved = {field: find_field(struct, name, field, "fields") for field in step.fields}
    into = struct.stored.get(step.into)
    if into is not None and step.into not in moved and into.declared != Named(step.struct):
        refuse(
            "NQX304", "into", f"expected a field of type {step.struct}, got {step.into}: {format_type(into.declared)}"
        )
    if into is not None and step.into not in moved:
        return _move_into(step, document, target, moved)
    declaration = target.structs[name].stored.get(step.into) if name in target.structs else None
    bind: dict[str, Expression] = {}
    if declaration is not None and isinstance(declaration.declared, Named) and declaration.declared.name == step.struct:
        bind = _binding(target, declaration.declared)
    else:
        declaration = FieldDeclaration.model_validate({"type": step.struct})
    inner = {
        field: adopt(target, step.struct, field, moved[field].declared, moved[field], document, bind=bind)
        for field in moved
    }
    if step.struct in document.structs:
        _same_fields(step, document, target, inner)
    else:
        known = target.structs.get(step.struct)
        params = {"params": known.params, "doc": known.doc} if known else {}
        document = with_struct(document, step.struct, StructDeclaration(fields=inner, **params))
    fields = replace_fields(document.structs[name], tuple(step.fields), {step.into: declaration})
    return with_fields(document, name, fields)


def _binding(document: Document, use: Named) -> dict[str, Expression]:
    """What the parameters of a struct stand for where it is used."""
    params = document.structs[use.name].params if use.name in document.structs else []
    return dict(zip(params, use.args, strict=False))


def _same_fields(step: Move, document: Document, target: Document, moved: Mapping[str, FieldDeclaration]) -> None:
    """A struct that exists already must hold just the fields that are moved into a new instance of it."""
    have = document.structs[step.struct].stored
    known = equations(document, target)
    differ = [f for f in moved.keys() & have.keys() if not same_type(moved[f].declared, have[f].declared, known)]
    for field in sorted({*(moved.keys() ^ have.keys()), *differ}):
        refuse(
            "NQX304",
            "struct",
            f"expected a struct with just the fields {', '.join(moved)}, got {step.struct}, which differs in {field!r}",
            "name a struct that does not exist yet, or one with these fields",
        )


def _sole_user(document: Document, struct: str, member: str) -> None:
    """A struct whose fields a step changes must not be used anywhere else: other instances would not follow."""
    places = users(document, struct)
    if len(places) > 1:
        refuse(
            "NQX304",
            member,
            f"expected a struct used in one place, got {struct}, used in {', '.join(places)}",
            "the step would leave the other instances without the fields",
        )


def _move_into(step: Move, document: Document, target: Document, moved: Mapping[str, FieldDeclaration]) -> Document:
    if step.struct not in document.structs:
        refuse("NQX304", "struct", f"expected a struct of version {document.version}, got {step.struct!r}")
    _sole_user(document, step.struct, "struct")
    inner = document.structs[step.struct]
    for field in moved:
        fresh(inner, step.struct, field, "fields")
    made = {f: adopt(target, step.struct, f, d.declared, d, document) for f, d in moved.items()}
    document = with_fields(document, step.struct, replace_fields(inner, (), made))
    name, struct = find_struct(document, step)
    return with_fields(document, name, replace_fields(struct, tuple(step.fields), {}))


def _move_payload(step: Move, place: Place) -> Node:
    moved = {field: place.field(field) for field in step.fields}
    into = None if step.into in moved else place.node["fields"].get(step.into)
    if into is None:
        made = {"__kind__": "struct", "type": place.before.ref(step.struct), "fields": moved}
        return swap_nodes(place, tuple(step.fields), {step.into: made})
    if kind_of(into) != "struct":
        raise MigrationError(
            f"expected a struct {step.struct}, got {shown_node(into)}", code="NQX414", path=place.text(step.into)
        )
    taken = sorted(into["fields"].keys() & moved.keys())
    if taken:
        raise MigrationError(
            f"expected no stored field of this name in version {place.before.version}, got one",
            code="NQX415",
            path=place.text(step.into, taken[0]),
        )
    kept = {name: node for name, node in place.node["fields"].items() if name not in moved}
    return with_nodes(place, {**kept, step.into: {**into, "fields": {**into["fields"], **moved}}})


def _move_back(step: Move, before: Document, after: Document) -> list[Step]:
    del before, after
    return [Inline(within=step.within, field=step.into, fields=list(step.fields))]


MOVE = Operation(_move, _move_payload, _move_back, "manifest")


def _nested(struct: StructDeclaration, name: str, step: Inline, document: Document) -> Named:
    declared = find_field(struct, name, step.field).declared
    if not isinstance(declared, Named) or declared.name not in document.structs:
        refuse("NQX304", "field", f"expected a field that holds a struct, got {format_type(declared)}")
    return declared


def _inline(step: Inline, document: Document, target: Document) -> Document:
    name, struct = find_struct(document, step)
    use = _nested(struct, name, step, document)
    inner = document.structs[use.name]
    whole = set(inner.stored) <= set(step.fields)
    if not whole:
        _sole_user(document, use.name, "field")
    bind = _binding(document, use)
    coming: dict[str, FieldDeclaration] = {}
    for field in step.fields:
        declaration = find_field(inner, use.name, field, "fields")
        fresh(struct, name, field, "fields", leaving=(step.field,) if whole else ())
        declared = substitute(declaration.declared, bind) if bind else declaration.declared
        coming[field] = adopt(target, name, field, declared, declaration, document)
    if whole:
        return with_fields(document, name, replace_fields(struct, (step.field,), coming))
    document = with_fields(document, use.name, replace_fields(inner, tuple(step.fields), {}))
    return with_fields(document, name, replace_fields(document.structs[name], (), coming))


def _inline_payload(step: Inline, place: Place) -> Node:
    inner = place.field(step.field)
    if kind_of(inner) != "struct":
        raise MigrationError(f"expected a struct, got {shown_node(inner)}", code="NQX414", path=place.text(step.field))
    missing = [name for name in step.fields if name not in inner["fields"]]
    if missing:
        raise MigrationError(
            "expected a stored field, got none", code="NQX414", path=place.text(step.field, *map(str, missing[:1]))
        )
    coming = {name: inner["fields"][name] for name in step.fields}
    rest = {name: node for name, node in inner["fields"].items() if name not in coming}
    if not rest:
        return swap_nodes(place, (step.field,), coming)
    place.node["fields"][step.field] = {**inner, "fields": rest}
    return swap_nodes(place, (), coming)


def _inline_back(step: Inline, before: Document, after: Document) -> list[Step]:
    del after
    name, struct = find_struct(before, step)
    return [
        Move(
            within=step.within,
            fields=list(step.fields),
            into=step.field,
            struct=_nested(struct, name, step, before).name,
        )
    ]


INLINE = Operation(_inline, _inline_payload, _inline_back, "manifest")

# ---------------------------------------------------------------------------------------------------------------------
# rename_struct


def _rename_struct(step: RenameStruct, document: Document, target: Document) -> Document:
    del target
    if step.struct not in document.structs:
        hint = did_you_mean(step.struct, document.structs)
        refuse("NQX304", "struct", f"expected a struct of version {document.version}, got {step.struct!r}", hint)
    if step.to == step.struct:
        refuse("NQX306", "to", f"expected another name than {step.struct!r}, got the same", "remove the step")
    if step.to in {*document.structs, *document.enums}:
        refuse(
            "NQX304",
            "to",
            f"expected a name that is free, got {step.to!r}, which version {document.version} has already",
        )

    def renamed(declared: Type) -> Type:
        match declared:
            case Named(name, args) if name == step.struct:
                return Named(step.to, args)
            case _:
                return declared

    structs = {
        step.to if name == step.struct else name: struct.model_copy(
            update={
                "fields": {
                    field: d.with_type(map_type(d.declared, renamed)) if _mentions(d, step.struct) else d
                    for field, d in struct.fields.items()
                }
            }
        )
        for name, struct in document.structs.items()
    }
    root = step.to if document.root == step.struct else document.root
    return document.model_copy(update={"structs": structs, "root": root})


def _mentions(declaration: FieldDeclaration, struct: str) -> bool:
    if declaration.type is None:
        return False
    return any(isinstance(inner, Named) and inner.name == struct for inner in walk_type(declaration.declared))


def _rename_struct_payload(step: RenameStruct, place: Place) -> Node:
    return {**place.node, "type": place.before.ref(step.to)}


def _rename_struct_back(step: RenameStruct, before: Document, after: Document) -> list[Step]:
    del before, after
    return [RenameStruct(within=step.within, struct=step.to, to=step.struct)]


RENAME_STRUCT = Operation(_rename_struct, _rename_struct_payload, _rename_struct_back, "manifest")
