"""The steps add and remove, inverse to each other, for fields and for entries inside of one. None reads an array.

The value of a new field may be made of another one, as parameters beside their moving average, and the moments of an optimiser,
are structs: no constant in a file is such a value. A copy shares the arrays of its source, and those of a filled structure are constants.

Example:
    >>> source_of(Add(field="ema", copy="params")), source_of(Add(field="m", like="params", default=0))
    ('params', 'params')
    >>> step = add(field="energy", default=None)
    >>> [step_back.name for step_back in ADD.inverse(step, Scope.of(step, v2, v3), v3)]
    ['remove']
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from neuralqx_struct.errors import Diagnostic, MigrationError, SchemaError, did_you_mean
from neuralqx_struct.evolution.declared_sizes import as_held
from neuralqx_struct.evolution.payload_tree import Place, at_each, copied, entry_at, put, taken
from neuralqx_struct.evolution.steps.operations import (
    Edit,
    Scope,
    StepKind,
    builder,
    inside,
    instances_of,
    keys_of,
    likeness,
    may_stop,
    refuse,
    type_inside,
    with_named,
)
from neuralqx_struct.manifest.kinds import (
    ARRAY,
    PRNG_KEY,
    elements_of,
    iter_nodes,
    marks_of,
    shown_node,
)
from neuralqx_struct.paths import Path
from neuralqx_struct.schema.bounds import check_limits, field_limits, is_limited, scalar_misses
from neuralqx_struct.schema.graph import fields_across, graph_of
from neuralqx_struct.schema.migration import Add, Remove, Step
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.sizes.comparison import extent, readable_as
from neuralqx_struct.types import NO_VALUE, Array, Node, Type, walk_type
from neuralqx_struct.types.text import Builder, format_type, read_value

# ---------------------------------------------------------------------------------------------------------------------
# Values that are made of another field: a copy of it, or its structure with a number in all arrays


def copied_field(step: Add | Remove) -> str | None:
    """The field that ``copy``, or ``undo_copy``, names."""
    return step.copy_of if isinstance(step, Add) else step.undo_copy


def source_of(step: Add | Remove) -> str | None:
    """The other field that the value of a field is made of; None for a value of its own, and for entries."""
    if step.like is not None and step.path is None:
        return "/".join(keys_of(step.like))
    return copied_field(step)


def check_source(step: Add | Remove, made: FieldDeclaration, scope: Scope) -> None:
    """Checks that a field can be made of the source that a step names.

    Raises:
        SchemaError: NQX304: there is no such field, one of another type, or one that holds structs of the kind that gets the field; NQX107: the number, or the copied value, may
            be beyond the limits of the field.
    """
    copies = copied_field(step) is not None
    member = _member(step, copies=copies)
    source = str(source_of(step))
    have = scope.field(source, member)
    if source == step.field or not readable_as(have.declared, made.declared, scope.known):
        wanted, got = format_type(made.declared), format_type(have.declared)
        refuse("NQX304", member, f"expected another field of type {wanted}, got {source}: {got}")
    if scope.name in graph_of(scope.document).reached(have.refers, pytrees=False)[0]:
        message = f"expected a field that holds no {scope.name}, got {source}: {format_type(have.declared)}"
        hint = f"the ones inside would lack {step.field}: write a `python` step"
        refuse("NQX304", member, message, hint)
    if copies and is_limited(made) and field_limits(made) != field_limits(have):
        message = (
            f"expected a field with the limits of {step.field}, got {source}, which has others"
        )
        refuse(
            "NQX107", member, message, "write a value as `default:`, or give both the same limits"
        )
    if not copies:
        _check_number(step, made, scope)


def _member(step: Add | Remove, *, copies: bool) -> str:
    """The member of a step that names the source, in the words of a file."""
    if not copies:
        return "like"
    return "copy" if isinstance(step, Add) else "undo_copy"


def filling_of(step: Add | Remove) -> float:
    """The number that fills arrays beside ``like``; raises NQX107 for another value."""
    member, value = (
        ("default", step.default) if isinstance(step, Add) else ("undo_default", step.undo_default)
    )
    if not isinstance(value, (bool, int, float)):
        refuse("NQX107", member, f"expected a number beside `like:`, got {json.dumps(value)}")
    return value


def _check_number(step: Add | Remove, made: FieldDeclaration, scope: Scope) -> None:
    """Checks the number beside ``like`` against every array in a field, and the limits there."""
    number = filling_of(step)
    member = "default" if isinstance(step, Add) else "undo_default"
    for owner, declaration in fields_across(scope.document, made):
        for inner in walk_type(declaration.declared):
            if inner.element:
                scope.check_value(number, inner, owner, member, sized=False)
                check_limits(declaration, number, member)


def value_from(step: Add, place: Place) -> Node:
    """The node of a field that is made of another one."""
    source = str(source_of(step))
    node = place.field(source)
    if step.copy_of is not None:
        place.note(f"was added as a copy of {source}", step.field)
        return copied([node])[0]
    number = filling_of(step)
    place.note(f"was added like {source}, its arrays filled with {json.dumps(number)}", step.field)
    return filled(node, number, place, (source,))


def filled(model: Node, number: float, place: Place, at: Path) -> Node:
    """A copy of a node with a number in all of its arrays; those of random keys stay as they are.

    Args:
        model: The node.
        number: The number.
        place: The struct instance.
        at: Where the node is in it, for errors.
    """
    tree = copied([model])
    words = {id(each["data"]) for _, each in iter_nodes(tree[0]) if PRNG_KEY.matches(each)}
    for path, each in iter_nodes(tree[0]):
        if elements_of(each) and id(each) not in words:
            constant = _constant(each, number, place, (*at, *path))
            each.clear()
            each.update(constant)
    return tree[0]


def _constant(node: Node, number: float, place: Place, at: Path) -> Node:
    """The node of an array with one number in place of its elements."""
    array = Array(node["dtype"], tuple(map(extent, place.shape(node))))
    try:
        made = place.value("", number, array)
    except MigrationError as error:
        hint = f"write a number that {node['dtype']} holds, too"
        raise place.error("NQX107", error.diagnostics[0].message, *at, hint=hint) from None
    if not ARRAY.matches(node):
        return {**node, "value": made["value"]}
    return made | marks_of(node)


# ---------------------------------------------------------------------------------------------------------------------
# Entries inside of a field


def _reaches_in(step: Add | Remove) -> bool:
    """True if the step is about an entry inside of its field."""
    if step.path is None and step.of is not None:
        hint = "name the entry that the step is about"
        refuse("NQX304", "of", "expected `path:` beside `of:`, got none", hint)
    if copied_field(step) is not None and (step.path is not None or step.like is not None):
        member = "path" if step.like is None else "like"
        message = f"expected a value of another field, or `{member}:`, got both"
        refuse("NQX304", member, message, "beside `like:` write a number, and for an entry a value")
    return step.path is not None


def _check_entry(step: Add | Remove, value: Any, scope: Scope, member: str) -> None:
    """Checks the value of an entry; beside ``like`` it is a number that fills arrays (NQX107)."""
    end = type_inside(step, scope, "path")
    if step.like is None:
        scope.check_value(value, end, scope.document, member)
        return
    type_inside(step, scope, "like")
    filling_of(step)


def _entry(step: Add, node: Node, place: Place, at: Path) -> Node:
    """The node of a new entry beside others."""
    if step.like is None:
        declared = place.before.structs[place.struct].fields[step.field].declared
        below = inside(declared, len(keys_of(step.path or ())))
        return place.value(step.field, step.default, below)
    keys = keys_of(step.like)
    model = entry_at(node, keys, place, at)
    if not isinstance(model, dict):
        return model if model is None or isinstance(model, str) else step.default
    return filled(model, step.default, place, (*at, *keys))


def _path_text(step: Add | Remove) -> str:
    return "/".join(keys_of(step.path or ()))


# ---------------------------------------------------------------------------------------------------------------------
# add and remove


def _add(step: Add, scope: Scope) -> Document:
    if _reaches_in(step):
        _require_value(step)
        _check_entry(step, step.default, scope, "default")
        return scope.document
    scope.require_free(step.field, "field")
    declaration, target = scope.wanted_field(step.field), scope.target
    if declaration is None:
        others = [other for other, inner in target.structs.items() if step.field in inner.stored]
        hint = "declare the field in the new version, under the name that it has there"
        if others:
            where = f"write `in: {others[0]}`, behind the step that makes the struct"
            hint = f"{others[0]} has it there: {where}"
        where = f"a stored field of {scope.name} in version {target.version}"
        hint = did_you_mean(step.field, scope.wanted) or hint
        refuse("NQX304", "field", f"expected {where}, got {step.field!r}", hint)
    if source_of(step) is not None:
        check_source(step, declaration, scope)
    else:
        _require_value(step)
        scope.check_value(step.default, declaration.declared, target, "default")
        check_limits(declaration, step.default, "default")
    known = with_named(scope.document, declaration.declared, target)
    made = scope.moved(known).replaced((), {step.field: declaration})
    return as_held(made, scope.document, target)


def _require_value(step: Add) -> None:
    if "default" not in step.model_fields_set:
        message = "expected `default:` or `copy:` beside the field, got neither"
        refuse("NQX304", "default", message, "`copy:` names a field of the same type in the struct")


def _add_payload(step: Add, place: Place) -> Node:
    if step.path is not None:
        return _add_entry(step, place)
    if source_of(step) is not None:
        return place.swapped((), {step.field: value_from(step, place)})
    node = place.value(step.field, step.default)
    place.note(f"was added with the default {json.dumps(step.default)}", step.field)
    return place.swapped((), {step.field: node})


def _add_entry(step: Add, place: Place) -> Node:
    keys = keys_of(step.path or ())

    def change(node: Node, at: Path) -> Node:
        made = _entry(step, node, place, at)
        place.note(f"was added with the default {json.dumps(step.default)}", *at, *keys)
        return put(node, keys, made, place, at)

    return at_each(step, place, change)


def _canonical(value: Any, declared: Type, document: Document) -> Any:
    """A value of a file without words such as ``zeros`` and ``fill``; as it is if it is none of the type."""
    try:
        return read_value(value, declared, Builder(document, structs=True))
    except SchemaError:  # an error of its own
        return value


def _review_add(step: Add, scope: Scope) -> Iterator[Diagnostic]:
    """Yields NQX320 about an entry, and NQX319 where the default of the declaration is another value."""
    if step.path is not None:
        lacking = "" if step.of is None else f"without {instances_of(step)}or "
        yield may_stop(f"{lacking}with {_path_text(step)}", "path")
        return
    declaration = scope.wanted_field(step.field)
    if declaration is None or source_of(step) is not None:
        return
    if not declaration.has_default:
        return
    values = (declaration.default, step.default)
    wanted, got = (_canonical(v, declaration.declared, scope.target) for v in values)
    if repr(wanted) != repr(got):
        message = f"expected the field's default {declaration.default!r}, got {step.default!r}"
        hint = "fine if old payloads meant another value"
        yield Diagnostic("NQX319", "warning", message, path="default", hint=hint)


def _opposite(step: Add | Remove, other: type[Step], **value: Any) -> Step:
    """The other step on the same field or entry."""
    kept = ("field", "path", "like", "of")
    same = {name: getattr(step, name) for name in kept if name in step.model_fields_set}
    return other(**same, **value)


def _add_back(step: Add, *_: Any) -> list[Step]:
    if step.copy_of is not None:
        return [_opposite(step, Remove, undo_copy=step.copy_of)]
    return [_opposite(step, Remove, undo_default=step.default)]


add = builder(Add)
ADD = StepKind(
    model=Add,
    declare=_add,
    rewrite=_add_payload,
    inverse=_add_back,
    cost="manifest",
    writes=lambda step: [step.default] if step.path is None and step.copy_of is None else [],
    copied=lambda step: step.copy_of,
    review=_review_add,
)


def _undoes(step: Remove) -> bool:
    return "undo_default" in step.model_fields_set or step.undo_copy is not None


def _remove(step: Remove, scope: Scope) -> Document:
    inside = _reaches_in(step)
    declared = scope.type(step.field)
    if not _undoes(step) and not step.lossy:
        message = f"expected undo_default or lossy: true beside the removal of {step.field!r}, got neither"
        hint = "give the value that a downgrade puts there as `undo_default: ...`; `lossy: true` gives up downgrades"
        refuse("NQX308", "field", message, hint)
    if inside:
        type_inside(step, scope, "path")
        if _undoes(step):
            _check_entry(step, step.undo_default, scope, "undo_default")
        return scope.document
    if source_of(step) is not None:
        check_source(step, scope.field(step.field), scope)
    elif _undoes(step):
        # Whether payloads of the new version show its sizes, the inverse decides.
        scope.check_value(step.undo_default, declared, scope.document, "undo_default", sized=False)
        check_limits(scope.field(step.field), step.undo_default, "undo_default")
    return scope.replaced((step.field,), {})


def _remove_payload(step: Remove, place: Place) -> Node:
    if step.path is not None:
        return _remove_entry(step, place)
    _note_dropped(step, place.field(step.field), place, step.field)
    return place.swapped((step.field,), {})


def _remove_entry(step: Remove, place: Place) -> Node:
    keys = keys_of(step.path or ())

    def change(node: Node, at: Path) -> Node:
        gone, left = taken(node, keys, place, at)
        _note_dropped(step, gone, place, *at, *keys)
        return left

    return at_each(step, place, change)


def _note_dropped(step: Remove, gone: Node, place: Place, *at: Hashable) -> None:
    known = _undoes(step) and source_of(step) is None and not isinstance(gone, dict)
    if not known or gone != step.undo_default:
        place.note(f"was dropped; it held {shown_node(gone)}", *at)


def _review_remove(step: Remove, _: Scope) -> Iterator[Diagnostic]:
    """Yields NQX320: the declaration does not have the entry."""
    if step.path is not None:
        yield may_stop(f"without {instances_of(step)}{_path_text(step)}", "path")


def _remove_back(step: Remove, scope: Scope, _: Document) -> list[Step]:
    if not _undoes(step):
        message = f"expected a value for {scope.name}.{step.field}, got a step that removed it with lossy: true"
        needs = f"needs `undo_default:` in the step that removes {step.field}"
        hint = f"a downgrade to version {scope.document.version} {needs}"
        refuse("NQX423", "field", message, hint)
    if step.undo_copy is not None:
        return [_opposite(step, Add, copy=step.undo_copy)]
    return [_opposite(step, Add, default=step.undo_default)]


remove = builder(Remove)
REMOVE = StepKind(
    model=Remove,
    declare=_remove,
    rewrite=_remove_payload,
    inverse=_remove_back,
    cost="manifest",
    review=_review_remove,
    drops_values=True,
)


# ---------------------------------------------------------------------------------------------------------------------
# Values for fields that come or go, for suggestions.


def values_for(declaration: FieldDeclaration, document: Document) -> Iterator[Any]:
    """Yields the declared default, then values of the type that the field's limits allow, a neutral one first."""
    if declaration.has_default:
        yield declaration.default
    neutral = declaration.declared.neutral(document)
    if neutral is None:
        yield None
    for value in (neutral, declaration.ge, declaration.le, *(declaration.choices or ())):
        if value is None or value is NO_VALUE:
            continue
        if not isinstance(value, (int, float, str)) or not scalar_misses(declaration, value):
            yield value


def _written(declared: Type, document: Document) -> Any:
    """The values of the fields of a struct as a file writes them; no value where one of them has none."""
    if declared.refers in document.structs:
        inside = {n: other for n, other in document.structs.items() if n != declared.refers}
        others = document.model_copy(update={"structs": inside})  # a struct in itself ends here
        fields = document.structs[declared.refers].stored
        found = {name: next(_values(each, others), NO_VALUE) for name, each in fields.items()}
        return NO_VALUE if NO_VALUE in found.values() else found
    if declared.listed is not None and declared.fixed_parts:  # stacked structs: one value for all
        return _written(declared.fixed_parts[0], document)
    return NO_VALUE


def _values(declaration: FieldDeclaration, document: Document) -> Iterator[Any]:
    """Yields the values of a field, those of structs, too."""
    yield from values_for(declaration, document)
    value = _written(declaration.declared, document)
    if value is not NO_VALUE:
        yield value


def additions(edit: Edit, name: str) -> Iterator[tuple[str, Add]]:
    """Yields the steps that add a field, with words: a value, and what another field of the type has."""
    declaration = edit.want.structs[edit.name].stored[name]
    other = _sibling(edit, name, declaration, edit.have.structs[edit.name].stored)
    # Another field of the type shows sizes that no value of a struct has.
    values = [*(_values if other is None else values_for)(declaration, edit.want)]
    for value in values:
        yield "this value, or another", add(field=name, default=value, **edit.place)
    if other is not None and not values:
        words = f"as {other}, with 0 or another number in its arrays"
        yield words, add(field=name, like=other, default=0, **edit.place)
    if other is not None:
        yield f"a copy of {other}", add(field=name, copy_of=other, **edit.place)


def removals(edit: Edit, name: str) -> Iterator[tuple[str, Remove]]:
    """Yields the steps that remove a field, with words: those that keep the downgrade first."""
    declaration = edit.have.structs[edit.name].stored[name]
    values = [*values_for(declaration, edit.have)]
    words = "the value that a downgrade puts in its place"
    for value in values:
        yield words, remove(field=name, undo_default=value, **edit.place)
    other = (
        None if values else _sibling(edit, name, declaration, edit.want.structs[edit.name].stored)
    )
    if other is not None:
        shown = f"a downgrade puts the structure of {other} in its place, with 0 in its arrays"
        yield shown, remove(field=name, like=other, undo_default=0, **edit.place)
        shown = f"a downgrade puts a copy of {other} in its place"
        yield shown, remove(field=name, undo_copy=other, **edit.place)
    elif not values:
        value = _written(declaration.declared, edit.have)
        if value is not NO_VALUE:
            step = remove(field=name, undo_default=value, **edit.place)
            if _is_undone(step, edit):
                yield words, step
    yield "no downgrade", remove(field=name, lossy=True, **edit.place)


def _is_undone(step: Remove, edit: Edit) -> bool:
    """True if a downgrade can write the value: its sizes have to be those that other arrays show."""
    after = edit.apply([step])
    back = add(field=step.field, default=step.undo_default, **edit.place)
    try:
        return after is not None and _add(back, Scope.of(back, after, edit.have)) is not None
    except SchemaError:
        return False


def _sibling(
    edit: Edit, name: str, declaration: FieldDeclaration, names: Iterable[str]
) -> str | None:
    """The field, of some names, with the type of another one that holds a struct or an array; the one named most alike."""
    wanted = declaration.declared
    if not any(inner.refers in edit.have.structs or inner.axes for inner in walk_type(wanted)):
        return None
    stored = edit.have.structs[edit.name].stored
    others = [
        other
        for other in names
        if other in stored
        and other != name
        and readable_as(stored[other].declared, wanted, edit.known)
    ]
    # Fields that stay come before those that go: nobody has to know these any longer.
    kept = [other for other in others if other not in edit.gone] or others
    return max(
        kept, key=lambda other: likeness(other, stored[other], name, declaration), default=None
    )
