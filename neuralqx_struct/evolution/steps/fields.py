"""Steps on single fields: rename, rename_path, add, remove, fill. None of them reads an array.

Example:
    >>> "field" in RENAME.declare(Rename(field="h", to="field"), v1, v2).structs["VMCState"].fields
    True
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from neuralqx_struct.errors import Diagnostic, SchemaError, did_you_mean
from neuralqx_struct.evolution.payload_tree import Place
from neuralqx_struct.evolution.steps.builders import builder
from neuralqx_struct.evolution.steps.operations import (
    Gap,
    Scope,
    StepKind,
    arrays_of,
    declared_type,
    refuse,
    refuse_same,
    with_named,
)
from neuralqx_struct.evolution.values import shown_node
from neuralqx_struct.manifest.kinds import DICT, PAIRS, STRUCT, parts_of
from neuralqx_struct.paths import FieldName
from neuralqx_struct.schema.migration import Add, Fill, Remove, Rename, RenamePath, Step
from neuralqx_struct.schema.model import Document
from neuralqx_struct.types import DictOf, Node, PyTree, Type
from neuralqx_struct.types.text import NodeBuilder, format_type, read_value, union_of

# ---------------------------------------------------------------------------------------------------------------------
# rename


def _rename(step: Rename, document: Document, target: Document) -> Document:
    scope = Scope.of(step, document, target)
    declaration = scope.field(step.field)
    if step.field == step.to:
        refuse_same("to", step.field)
    scope.require_free(step.to, "to")
    renamed = scope.adopt(step.to, declaration.declared, declaration)
    return scope.replaced((step.field,), {step.to: renamed})


rename = builder(Rename)
RENAME = StepKind(
    model=Rename,
    declare=_rename,
    rewrite=lambda step, place: place.swapped((step.field,), {step.to: place.field(step.field)}),
    inverse=lambda step, *_: [Rename(within=step.within, field=step.to, to=step.field)],
    cost="manifest",
    carried=lambda step: (step.field, step.to),
    renames_field=True,
)

# ---------------------------------------------------------------------------------------------------------------------
# rename_path: Params and other pytrees of dicts are declared as `pytree`, so the schema does not have their paths.

#: The struct that has a dict of its own below its node; see ``params``.
_PARAMS = "neuralqx_struct.params:Params"


def _keys(path: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(path.split("/")) if isinstance(path, str) else tuple(path)


def _rename_path(step: RenamePath, document: Document, target: Document) -> Document:
    """The declaration itself: the types at both paths must be equal."""
    del target
    declared = declared_type(step, document)
    ends: list[Type] = []
    for member, path in (("path", _keys(step.path)), ("to", _keys(step.to))):
        if not all(path):
            message = "expected names between the slashes, got an empty one"
            refuse("NQX304", member, message, "a list takes any names")
        end = _inside(declared, len(path))
        if end is None:
            shown = format_type(declared)
            message = f"expected a pytree or a dict with {len(path)} levels, got {shown}"
            refuse("NQX306", member, message, "fields of structs are renamed with `rename`")
        ends.append(end)
    if _keys(step.path) == _keys(step.to):
        refuse("NQX306", "to", "expected another path, got the same", "remove the step")
    if ends[0] != ends[1]:
        first, second = map(format_type, ends)
        message = f"expected a path to {first}, as the other is, got one to {second}"
        refuse("NQX306", "to", message)
    return document


def _inside(declared: Type, depth: int) -> Type | None:
    """The type some keys below a type, or None where payloads cannot choose keys."""
    if len(declared.branches) > 1:
        return _inside(declared.solid[0], depth) if len(declared.solid) == 1 else None
    if depth == 0 or isinstance(declared, PyTree):
        return declared
    return _inside(declared.value, depth - 1) if isinstance(declared, DictOf) else None


def _rename_path_payload(step: RenamePath, place: Place) -> Node:
    node = place.field(step.field)
    if node is None:
        return place.node
    is_params = STRUCT.matches(node) and node["type"] == _PARAMS
    at = (step.field, FieldName("tree")) if is_params else (step.field,)
    tree = node["fields"]["tree"] if is_params else node
    moved, rest = _taken(tree, _keys(step.path), place, at)
    made = _put(rest, _keys(step.to), moved, place, at)
    if is_params:
        made = {**node, "fields": {**node["fields"], "tree": made}}
    return place.with_fields({step.field: made})


def _items(node: Node, place: Place, at: tuple[str, ...]) -> dict[str, Node]:
    """The entries of a dict whose keys are text; no path leads to others."""
    if not isinstance(node, dict) or ("items", PAIRS) not in parts_of(node):
        raise place.error("NQX414", f"expected a dict or Params, got {shown_node(node)}", *at)
    return {key: child for key, child in node["items"] if isinstance(key, str)}


def _taken(
    node: Node, path: tuple[str, ...], place: Place, at: tuple[str, ...]
) -> tuple[Node, Node]:
    """The value at a path, and the dict without it and without the dicts that it leaves empty."""
    items = _items(node, place, at)
    head, *rest = path
    if head not in items:
        hint = did_you_mean(head, items)
        raise place.error("NQX414", "expected a stored entry, got none", *at, head, hint=hint)
    moved = items[head]
    if rest:
        moved, left = _taken(moved, tuple(rest), place, (*at, head))
        if left["items"]:
            return moved, _with(node, head, left)
    kept = [item for item in node["items"] if item[0] != head]
    return moved, {**node, "items": kept}


def _put(node: Node, path: tuple[str, ...], moved: Node, place: Place, at: tuple[str, ...]) -> Node:
    """The dict with a value at a path where there was none."""
    items = _items(node, place, at)
    head, *rest = path
    if rest:
        below = items.get(head, DICT.node(items=[]))
        moved = _put(below, tuple(rest), moved, place, (*at, head))
    elif head in items:
        raise place.error("NQX415", "expected no stored entry there, got one", *at, head)
    return _with(node, head, moved)


def _with(node: Node, key: str, child: Node) -> Node:
    """The dict with an entry, at its old position or at the end."""
    items = [[k, child if k == key else held] for k, held in node["items"]]
    if all(k != key for k, _ in items):
        items.append([key, child])
    return {**node, "items": items}


rename_path = builder(RenamePath)
RENAME_PATH = StepKind(
    model=RenamePath,
    declare=_rename_path,
    rewrite=_rename_path_payload,
    inverse=lambda step, *_: [
        RenamePath(within=step.within, field=step.field, path=step.to, to=step.path)
    ],
    cost="manifest",
)

# ---------------------------------------------------------------------------------------------------------------------
# add and remove


def _check_value(value: object, declared: Type, document: Document, member: str) -> None:
    """Checks that a value in a step is of a type, as far as this is known without a payload."""
    try:
        read_value(value, declared, NodeBuilder(document))
    except SchemaError as error:
        found = error.diagnostics[0]
        refuse(found.code, member, found.message, found.hint)


def _add(step: Add, document: Document, target: Document) -> Document:
    scope = Scope.of(step, document, target)
    scope.require_free(step.field, "field")
    wanted = scope.wanted
    if step.field not in wanted:
        others = [other for other, inner in target.structs.items() if step.field in inner.stored]
        hint = "declare the field in the new version, under the name that it has there"
        if others:
            where = f"write `in: {others[0]}`, behind the step that makes the struct"
            hint = f"{others[0]} has it there: {where}"
        version = target.version
        message = (
            f"expected a stored field of {scope.name} in version {version}, got {step.field!r}"
        )
        refuse("NQX304", "field", message, did_you_mean(step.field, wanted) or hint)
    declaration = wanted[step.field]
    _check_value(step.default, declaration.declared, target, "default")
    if isinstance(step.default, (int, float)):  # a number fills an array
        for array in arrays_of(declaration.declared):
            scope.require_sizes(array.shape, "field")
    known = with_named(document, declaration.declared, target)
    return Scope.of(step, known, target).replaced((), {step.field: declaration})


def _add_payload(step: Add, place: Place) -> Node:
    node = place.value(step.field, step.default)
    place.note(f"was added with the default {json.dumps(step.default)}", step.field)
    return place.swapped((), {step.field: node})


def _other_default(step: Add, old: Document, new: Document) -> Iterator[Diagnostic]:
    """Yields NQX319 where the default of the declaration is another value."""
    del old
    struct = new.structs.get(step.within or new.root)
    declaration = struct.fields.get(step.field) if struct else None
    if declaration is None or not declaration.has_default:
        return
    wanted, got = (json.dumps(v, sort_keys=True) for v in (declaration.default, step.default))
    if wanted != got:
        message = f"expected the field's default {declaration.default!r}, got {step.default!r}"
        hint = "fine if old payloads meant another value"
        yield Diagnostic("NQX319", "warning", message, path="default", hint=hint)


add = builder(Add)
ADD = StepKind(
    model=Add,
    declare=_add,
    rewrite=_add_payload,
    inverse=lambda step, *_: [
        Remove(within=step.within, field=step.field, undo_default=step.default)
    ],
    cost="manifest",
    review=_other_default,
)


def _remove(step: Remove, document: Document, target: Document) -> Document:
    scope = Scope.of(step, document, target)
    declaration = scope.field(step.field)
    if "undo_default" in step.model_fields_set:
        _check_value(step.undo_default, declaration.declared, document, "undo_default")
    elif not step.lossy:
        message = f"expected undo_default or lossy: true beside the removal of {step.field!r}, got neither"
        hint = "give the value that a downgrade puts there as `undo_default: ...`; `lossy: true` gives up downgrades"
        refuse("NQX308", "field", message, hint)
    return scope.replaced((step.field,), {})


def _remove_payload(step: Remove, place: Place) -> Node:
    gone = place.field(step.field)
    given = "undo_default" in step.model_fields_set
    if not given or isinstance(gone, dict) or gone != step.undo_default:
        place.note(f"was dropped; it held {shown_node(gone)}", step.field)
    return place.swapped((step.field,), {})


def _remove_back(step: Remove, before: Document, after: Document) -> list[Step]:
    del after
    if "undo_default" not in step.model_fields_set:
        field = f"{step.within or before.root}.{step.field}"
        message = f"expected a value for {field}, got a step that removed it with lossy: true"
        hint = f"a downgrade to version {before.version} needs `undo_default:` in the step that removes {step.field}"
        refuse("NQX423", "field", message, hint)
    return [Add(within=step.within, field=step.field, default=step.undo_default)]


remove = builder(Remove)
REMOVE = StepKind(
    model=Remove,
    declare=_remove,
    rewrite=_remove_payload,
    inverse=_remove_back,
    cost="manifest",
    drops_values=True,
)

# ---------------------------------------------------------------------------------------------------------------------
# fill: null becomes a value. The inverse is no step at all, because T is stored as `T | null` is.


def _fill(step: Fill, document: Document, target: Document) -> Document:
    scope = Scope.of(step, document, target)
    declaration = scope.field(step.field)
    declared = declaration.declared
    if not declared.nullable or not declared.solid:
        message = f"expected a field that may be null, got {format_type(declared)}"
        refuse("NQX306", "field", message)
    filled = union_of(declared.solid)
    _check_value(step.value, filled, document, "value")
    made = scope.adopt(step.field, filled, declaration)
    return scope.replaced((step.field,), {step.field: made})


def _fill_payload(step: Fill, place: Place) -> Node:
    if place.field(step.field) is not None:
        return place.node
    node = place.value(step.field, step.value)
    place.note(f"was null and became {json.dumps(step.value)}", step.field)
    return place.with_fields({step.field: node})


def _suggest_fill(gap: Gap) -> Iterator[Step]:
    if gap.have.nullable:
        for value in gap.values:
            yield fill(field=gap.field, value=value, within=gap.within)


fill = builder(Fill)
FILL = StepKind(
    model=Fill,
    declare=_fill,
    rewrite=_fill_payload,
    inverse=lambda *_: [],
    cost="manifest",
    suggest=_suggest_fill,
    question=lambda wanted: "" if wanted.has_default else "what becomes of null?",
    answer="this value, or another",
)
