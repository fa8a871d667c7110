"""Steps on single fields: rename, add, remove, fill. None of them reads an array.

For each step three functions stand side by side: what it does to a declaration, to one struct instance of a payload,
and the steps that lead back. ``steps.py`` has the table of them all.

Example:
    >>> "field" in RENAME.declare(Rename(field="h", to="field"), v1, v2).structs["VMCState"].fields
    True
"""

from __future__ import annotations

import json

from neuralqx_struct.errors import MigrationError, did_you_mean
from neuralqx_struct.evolution.edits import (
    Operation,
    adopt,
    find_field,
    find_struct,
    fresh,
    need_sizes,
    refuse,
    replace_fields,
    shown_node,
    swap_nodes,
    target_struct,
    with_fields,
    with_nodes,
)
from neuralqx_struct.evolution.sizes import union_of
from neuralqx_struct.evolution.tree import Place
from neuralqx_struct.evolution.values import Node, Shelf, value_node
from neuralqx_struct.schema.migration import Add, Fill, Remove, Rename, Step
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.types import Array, Named, Null, Type, Union, format_type, walk_type

__all__ = ["ADD", "FILL", "REMOVE", "RENAME", "with_named"]


# ---------------------------------------------------------------------------------------------------------------------
# rename


def _rename(step: Rename, document: Document, target: Document) -> Document:
    name, struct = find_struct(document, step)
    declaration = find_field(struct, name, step.field)
    if step.field == step.to:
        refuse("NQX306", "to", f"expected another name than {step.field!r}, got the same", "remove the step")
    fresh(struct, name, step.to, "to")
    renamed = adopt(target, name, step.to, declaration.declared, declaration, document)
    return with_fields(document, name, replace_fields(struct, (step.field,), {step.to: renamed}))


def _rename_payload(step: Rename, place: Place) -> Node:
    return swap_nodes(place, (step.field,), {step.to: place.field(step.field)})


def _rename_back(step: Rename, before: Document, after: Document) -> list[Step]:
    del before, after
    return [Rename(within=step.within, field=step.to, to=step.field)]


RENAME = Operation(_rename, _rename_payload, _rename_back, "manifest")

# ---------------------------------------------------------------------------------------------------------------------
# add and remove


def _add(step: Add, document: Document, target: Document) -> Document:
    name, struct = find_struct(document, step)
    fresh(struct, name, step.field, "field")
    wanted = target.structs[name].stored if name in target.structs else {}
    if step.field not in wanted:
        others = [other for other, inner in target.structs.items() if step.field in inner.stored]
        hint = did_you_mean(step.field, wanted) or (
            f"{others[0]} has it there: write `in: {others[0]}`, behind the step that makes the struct"
            if others
            else "declare the field in the new version, under the name that it has there"
        )
        refuse(
            "NQX304",
            "field",
            f"expected a stored field of {name} in version {target.version}, got {step.field!r}",
            hint,
        )
    declaration = wanted[step.field]
    _check_value(step.default, declaration.declared, target, "default")
    if isinstance(step.default, (int, float)):  # a number fills an array
        arrays = [inner for inner in walk_type(declaration.declared) if isinstance(inner, Array)]
        need_sizes((size for array in arrays for size in array.shape), document, name, target, "field")
    known = with_named(document, declaration.declared, target)
    return with_fields(known, name, replace_fields(struct, (), {step.field: declaration}))


def with_named(document: Document, declared: Type, target: Document) -> Document:
    """The document with the structs and enums that a type names, where it lacks them or they have got more members."""
    structs, enums = dict(document.structs), dict(document.enums)
    todo = [declared]
    while todo:
        for name in [inner.name for inner in walk_type(todo.pop()) if isinstance(inner, Named)]:
            if name in target.enums and set(enums[name].members if name in enums else ()) <= set(
                target.enums[name].members
            ):
                enums[name] = target.enums[name]
            elif name in target.structs and name not in structs:
                structs[name] = target.structs[name]
                todo += [field.declared for field in structs[name].stored.values()]
    return document.model_copy(update={"structs": structs, "enums": enums})


def _check_value(value: object, declared: Type, document: Document, member: str) -> None:
    """Check that a value in a step is one of the field's type, as far as that can be told without a payload."""
    try:
        value_node(value, declared, Shelf(document, size=lambda _: -1))
    except MigrationError as error:
        found = error.diagnostics[0]
        refuse(found.code, member, found.message, found.hint)


def _add_payload(step: Add, place: Place) -> Node:
    declared = place.after.structs[place.struct].fields[step.field].declared
    node = value_node(step.default, declared, place.shelf(step.field))
    place.workspace.note("NQX425", f"was added with the default {json.dumps(step.default)}", place.text(step.field))
    return swap_nodes(place, (), {step.field: node})


def _add_back(step: Add, before: Document, after: Document) -> list[Step]:
    del before, after
    return [Remove(within=step.within, field=step.field, undo_default=step.default)]


ADD = Operation(_add, _add_payload, _add_back, "manifest")


def _remove(step: Remove, document: Document, target: Document) -> Document:
    del target
    name, struct = find_struct(document, step)
    declaration = find_field(struct, name, step.field)
    if "undo_default" in step.model_fields_set:
        _check_value(step.undo_default, declaration.declared, document, "undo_default")
    elif not step.lossy:
        refuse(
            "NQX308",
            "field",
            f"expected undo_default or lossy: true beside the removal of {step.field!r}, got neither",
            "give the value that a downgrade puts there as `undo_default: ...`; `lossy: true` gives up downgrades",
        )
    return with_fields(document, name, replace_fields(struct, (step.field,), {}))


def _remove_payload(step: Remove, place: Place) -> Node:
    gone = place.field(step.field)
    kept = "undo_default" in step.model_fields_set and not isinstance(gone, dict) and gone == step.undo_default
    if not kept:
        place.workspace.note("NQX425", f"was dropped; it held {shown_node(gone)}", place.text(step.field))
    return swap_nodes(place, (step.field,), {})


def _remove_back(step: Remove, before: Document, after: Document) -> list[Step]:
    del after
    if "undo_default" not in step.model_fields_set:
        refuse(
            "NQX423",
            "field",
            f"expected a value for {target_struct(step, before)}.{step.field}, got a step that removed it with lossy: true",
            f"a downgrade to version {before.version} needs `undo_default:` in the step that removes {step.field}",
        )
    return [Add(within=step.within, field=step.field, default=step.undo_default)]


REMOVE = Operation(_remove, _remove_payload, _remove_back, "manifest")

# ---------------------------------------------------------------------------------------------------------------------
# fill: what was null gets a value. The way back is no step at all: T is stored as `T | null` is.


def _fill(step: Fill, document: Document, target: Document) -> Document:
    name, struct = find_struct(document, step)
    declaration = find_field(struct, name, step.field)
    if not (isinstance(declaration.declared, Union) and Null() in declaration.declared.options):
        refuse("NQX306", "field", f"expected a field that may be null, got {format_type(declaration.declared)}")
    filled = union_of(option for option in declaration.declared.options if option != Null())
    _check_value(step.value, filled, document, "value")
    made = adopt(target, name, step.field, filled, declaration, document)
    return with_fields(document, name, replace_fields(struct, (step.field,), {step.field: made}))


def _fill_payload(step: Fill, place: Place) -> Node:
    node = place.field(step.field)
    if node is None:
        declared = place.after.structs[place.struct].fields[step.field].declared
        node = value_node(step.value, declared, place.shelf(step.field))
        place.workspace.note("NQX425", f"was null and became {json.dumps(step.value)}", place.text(step.field))
    return with_nodes(place, {**place.node["fields"], step.field: node})


def _fill_back(step: Fill, before: Document, after: Document) -> list[Step]:
    del step, before, after
    return []


FILL = Operation(_fill, _fill_payload, _fill_back, "manifest")
