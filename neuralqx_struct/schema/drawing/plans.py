"""Plans: the facts about a struct that drawing needs, and the limits of documents, each found once.

Example:
    >>> sorted(planned(v3, "Sampler", {}, frozenset(), frozenset({"sigma"})).fields)
    ['sigma']
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.grammar import head_of, names_in
from neuralqx_struct.expressions.operators import format_tree
from neuralqx_struct.schema.bounds import (
    Lengths,
    Limits,
    bounded,
    equalities,
    is_limited,
    lengths_in,
    limits_of,
)
from neuralqx_struct.schema.field_paths import given_values
from neuralqx_struct.schema.model import Document, FieldDeclaration, StructDeclaration, once
from neuralqx_struct.schema.sizes.scopes import given_sizes, int_fields, sizes_of_struct


class Plan(NamedTuple):
    """The facts about a struct that drawing needs.

    Attributes:
        fields: The fields with the limits of constraints.
        limits: These limits, also of what the fields hold.
        order: Their names in the order of drawing.
        limited: Those of which a value may be refused.
        read: Those on which constraints depend.
        sizes: The names of sizes.
        lengths: The sizes of axes that constraints demand.
        equal: Both sides of equalities, the first of which may be given the value of the other.
        conditions: The parts of constraints that all have to hold.
        heads: The fields that may be drawn again for each of them.
    """

    fields: Mapping[str, FieldDeclaration]
    limits: Limits
    order: Sequence[str]
    limited: frozenset[str]
    read: frozenset[str]
    sizes: frozenset[str]
    lengths: Lengths
    equal: Sequence[tuple[ast.Name, ast.expr]]
    conditions: Sequence[Expression]
    heads: Sequence[frozenset[str]]


@once
def ints_given(document: Document) -> frozenset[str]:
    """The static ints of the root that are sizes."""
    return frozenset(given_sizes(document))


@once
def plans(_: Document) -> dict[Hashable, Plan]:
    """The plans of a document that were made, by struct and by what else they depend on."""
    return {}


def planned(
    document: Document, name: str, around: Limits, counted: frozenset[str], held: frozenset[str]
) -> Plan:
    """The plan of a struct.

    Args:
        document: The declaration.
        name: The struct.
        around: Bounds from constraints of the structs around it.
        counted: The fields whose lengths constraints around it demand.
        held: The fields that are drawn.
    """
    struct = document.structs[name]
    own = lengths_in(struct)
    limits = limits_of(struct, around)
    fields = bounded(struct, limits)
    fields = {key: each for key, each in fields.items() if key in held}
    is_root = name == document.root
    given = given_values(document).values() if is_root else ()
    fixed = ints_given(document) if is_root else frozenset[str]()
    first = {head for each in given for head in each.heads}
    counted |= {path[0] for path in own}

    def turn(key: str) -> int:
        if key in fixed:
            return 1 if key in document.dims else 0
        return 0 if key in first else 1 + _turn(fields[key], key in counted)

    equal = [
        (side, other)
        for side, other in equalities(struct)
        if isinstance(side, ast.Name) and head_of(side.id) not in fixed | first
    ]
    conditions = [*_conditions(struct)]
    heads = [_heads(struct, each) for each in conditions]
    return Plan(
        fields,
        limits,
        sorted(fields, key=turn),
        frozenset(key for key, each in fields.items() if is_limited(each)),
        frozenset().union(*heads),
        frozenset(sizes_of_struct(document, name)) | {*struct.params},
        own,
        equal,
        conditions,
        [each - fixed - first for each in heads],
    )


def _turn(declaration: FieldDeclaration, counted: bool) -> int:
    """The order of drawing: plain values, as sizes may be equal to them; then what has no given length; arrays last."""
    declared = declaration.declared
    if declared.element:
        return 3 if counted else 4
    plain = not any(branch.parts or branch.refers for branch in declared.branches)
    return 0 if plain else 1 + counted


def _conditions(struct: StructDeclaration) -> Iterator[Expression]:
    """Yields the parts of constraints that are joined by ``and``."""
    for constraint in struct.constraints:
        tree = constraint.expression.tree
        if not (isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And)):
            yield constraint.expression
            continue
        for part in tree.values:
            names = frozenset(node.id for node in names_in(part))
            yield Expression(format_tree(part), names, part)


def _heads(struct: StructDeclaration, expression: Expression) -> frozenset[str]:
    """The stored fields on which an expression depends."""
    found: set[str] = set()
    waiting = [*expression.heads]
    while waiting:
        head = waiting.pop()
        declaration = struct.fields.get(head)
        if declaration is None or head in found:
            continue
        found.add(head)
        if declaration.derivation is not None:
            waiting += declaration.derivation.heads
    return frozenset(found & struct.stored.keys())


@once
def bounded_fields(document: Document) -> dict[tuple[str, str], FieldDeclaration]:
    """The fields of a document by struct and name, with the limits of constraints."""
    return {
        (name, key): each
        for name, struct in document.structs.items()
        for key, each in bounded(struct, limits_of(struct, {})).items()
    }


@once
def bounds_of(document: Document) -> frozenset[tuple[str, ...]]:
    """The limits of fields and sizes of a document, each with its place."""
    members = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length")
    found = {
        (struct, name, member, str(getattr(each, member)))
        for (struct, name), each in bounded_fields(document).items()
        for member in members
        if getattr(each, member) is not None
    }
    found |= {("", name, "", str((dim.min, dim.max))) for name, dim in document.dims.items()}
    return frozenset(found)


@once
def limits_in(document: Document) -> Limits:
    """The bounds of static ints of the root that are sizes: those of the dims that are equal to them."""
    ints = int_fields(document)
    # One that only an equation names may be negative.
    sizes = {*sizes_of_struct(document, document.root), *document.dims} & ints.keys()
    found: Limits = {(name,): {"ge": 0} for name in sorted(sizes)}
    for dim in document.dims.values():
        name = "" if dim.equation is None else dim.equation.text
        if name in ints:
            bounds = found.setdefault((name,), {"ge": 0})
            bounds["ge"] = max(bounds["ge"], dim.min or 0)
            if dim.max is not None:
                bounds["le"] = min(bounds.get("le", dim.max), dim.max)
    return found
