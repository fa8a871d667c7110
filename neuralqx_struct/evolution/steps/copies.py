"""Values of new fields that are made of another field: a copy of it, or its structure with a number in all arrays.

Parameters beside their moving average, and the moments of an optimiser, are structs: no constant in a file is such a value.
A copy shares the arrays of its source, and the arrays of a filled structure are constants, so no array is read.

Example:
    >>> from neuralqx_struct.schema.migration import Add
    >>> source_of(Add(field="ema", copy="params")), source_of(Add(field="m", like="params", default=0))
    ('params', 'params')
"""

from __future__ import annotations

import json

from neuralqx_struct.errors import MigrationError
from neuralqx_struct.evolution.payload_tree import Place, copied
from neuralqx_struct.evolution.sizes import extent, readable_as
from neuralqx_struct.evolution.steps.entries import keys_of
from neuralqx_struct.evolution.steps.operations import Scope, refuse
from neuralqx_struct.evolution.values import marks_of
from neuralqx_struct.manifest.kinds import ARRAY, PRNG_KEY, elements_of, iter_nodes
from neuralqx_struct.paths import Path
from neuralqx_struct.schema.bounds import check_limits, field_limits, is_limited
from neuralqx_struct.schema.graph import fields_across
from neuralqx_struct.schema.migration import Add, Remove
from neuralqx_struct.schema.model import FieldDeclaration
from neuralqx_struct.types import Array, Node, walk_type
from neuralqx_struct.types.text import format_type


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
        SchemaError: NQX304: there is no such field, or one of another type; NQX107: the number, or the copied value, may
            be beyond the limits of the field.
    """
    copies = copied_field(step) is not None
    member = _member(step, copies=copies)
    source = str(source_of(step))
    have = scope.field(source, member)
    if source == step.field or not readable_as(have.declared, made.declared, scope.known):
        wanted, got = format_type(made.declared), format_type(have.declared)
        refuse("NQX304", member, f"expected another field of type {wanted}, got {source}: {got}")
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
