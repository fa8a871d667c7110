"""Edits of a declaration, shared by all steps: finding what a step names, and putting the result in place.

Owns :class:`Operation` (what a step is: four functions), the lookups that turn a wrong name into a diagnostic, and
:func:`adopt`, which takes docs, tags and defaults of a result from the version that a migration leads to.

Example:
    >>> from neuralqx_struct.evolution import steps
    >>> find_struct(v1, steps.rename(field="h", to="field"))[0]
    'VMCState'
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from neuralqx_struct.errors import MigrationError, SchemaError, did_you_mean
from neuralqx_struct.evolution.measure import measurable
from neuralqx_struct.evolution.sizes import equations, map_type, same_type, substitute, union_of
from neuralqx_struct.evolution.tree import Place, kind_of
from neuralqx_struct.evolution.values import Node, number_value
from neuralqx_struct.schema.expressions import Expression
from neuralqx_struct.schema.migration import Step
from neuralqx_struct.schema.model import Document, FieldDeclaration, StructDeclaration
from neuralqx_struct.schema.types import Array, Extent, Key, Named, Null, Type, Union, format_type, walk_type

__all__ = [
    "Cost",
    "Operation",
    "adopt",
    "array_branch",
    "arrays_before",
    "declared_type",
    "each_array",
    "each_node",
    "find_field",
    "find_struct",
    "fresh",
    "key_branch",
    "need_sizes",
    "refuse",
    "replace_fields",
    "retyped",
    "shown_node",
    "swap_nodes",
    "target_struct",
    "users",
    "with_fields",
    "with_nodes",
    "with_struct",
]

#: What applying a step costs: nothing but the manifest, or reading and writing the arrays it names, one at a time.
Cost = Literal["manifest", "streaming", "opaque"]


@dataclass(frozen=True, slots=True)
class Operation:
    """What a step does.

    Attributes:
        declare: The declaration behind the step, from the one before it; the third argument is the version that the
            migration leads to, which knows what a step does not say.
        rewrite: The node of one struct instance behind the step.
        inverse: The steps that lead back, from the declarations before and behind it. Raises SchemaError NQX307 or
            NQX308 where there is no way back.
        cost: Which bytes it moves.
    """

    declare: Callable[[Any, Document, Document], Document]
    rewrite: Callable[[Any, Place], Node]
    inverse: Callable[[Any, Document, Document], list[Step]]
    cost: Cost


def refuse(code: str, member: str, message: str, hint: str | None = None) -> NoReturn:
    """Raise a finding about one member of a step; ``prove`` completes the path."""
    raise SchemaError(message, code=code, path=member, hint=hint)


def target_struct(step: Step, document: Document) -> str:
    """The struct that a step applies to."""
    return step.within or document.root


def find_struct(document: Document, step: Step) -> tuple[str, StructDeclaration]:
    """The struct that a step applies to, with its name.

    Raises:
        SchemaError: NQX304: no such struct at this point of the migration.
    """
    name = target_struct(step, document)
    if name not in document.structs:
        hint = did_you_mean(name, document.structs) or f"structs here: {', '.join(document.structs)}"
        refuse("NQX304", "in", f"expected a struct of version {document.version}, got {name!r}", hint)
    return name, document.structs[name]


def find_field(struct: StructDeclaration, struct_name: str, name: str, member: str = "field") -> FieldDeclaration:
    """A stored field that a step names.

    Raises:
        SchemaError: NQX304: no such field at this point of the migration; NQX306: payloads do not hold it.
    """
    found = struct.fields.get(name)
    if found is not None and found.stored:  # `struct.stored` would be made anew for every step
        return found
    if found is not None:
        refuse(
            "NQX306", member, f"expected a stored field, got {name!r}, which payloads do not hold", "remove the step"
        )
    hint = did_you_mean(name, struct.stored) or "a step sees the names that the steps before it left"
    here = f"fields of {struct_name} at this point: {', '.join(struct.stored) or 'none'}"
    return refuse("NQX304", member, f"expected a field of {struct_name}, got {name!r}\n{here}", hint)


def fresh(struct: StructDeclaration, struct_name: str, name: str, member: str, leaving: tuple[str, ...] = ()) -> None:
    """Check that a result's name is free.

    Raises:
        SchemaError: NQX304: payloads hold a field of this name, which does not go away in the same step.
    """
    found = struct.fields.get(name)
    if found is not None and found.stored and name not in leaving:
        hint = f"rename or remove the field {name} in a step before this one"
        refuse("NQX304", member, f"expected a name that is free, got {name!r}, which {struct_name} has already", hint)


def with_struct(document: Document, name: str, struct: StructDeclaration) -> Document:
    """The document with one struct put in or replaced."""
    return document.model_copy(update={"structs": {**document.structs, name: struct}})


def with_fields(document: Document, name: str, fields: Mapping[str, FieldDeclaration]) -> Document:
    """The document with the fields of one struct replaced."""
    return with_struct(document, name, document.structs[name].model_copy(update={"fields": dict(fields)}))


def replace_fields(
    struct: StructDeclaration, leaving: tuple[str, ...], coming: Mapping[str, FieldDeclaration]
) -> dict[str, FieldDeclaration]:
    """Fields with some replaced by others, which stand where the first of the leaving ones stood."""
    fields: dict[str, FieldDeclaration] = {}
    kept = {name: d for name, d in struct.fields.items() if name not in coming or name in leaving}
    for name, declaration in kept.items():
        if leaving and name == leaving[0]:
            fields |= coming
        if name not in leaving:
            fields[name] = declaration
    return fields if leaving else {**fields, **coming}


def swap_nodes(place: Place, leaving: tuple[str, ...], coming: Mapping[str, Node]) -> Node:
    """The instance with some fields replaced by others, which stand where the first of the leaving ones stood."""
    fields: dict[str, Node] = {}
    for name, node in place.node["fields"].items():
        if leaving and name == leaving[0]:
            fields |= coming
        if name not in leaving:
            if name in coming:
                raise MigrationError(
                    f"expected no stored field of this name in version {place.before.version}, got one",
                    code="NQX415",
                    path=place.text(name),
                )
            fields[name] = node
    return {**place.node, "fields": fields if leaving else {**fields, **coming}}


def adopt(  # noqa: PLR0917 - what it is given is what a declaration is made of
    target: Document,
    struct: str,
    name: str,
    declared: Type,
    source: FieldDeclaration | None,
    document: Document,
    *,
    bind: Mapping[str, Expression] | None = None,
) -> FieldDeclaration:
    """The declaration of a field that a step made.

    Args:
        target: The version that the migration leads to.
        struct: The field's struct.
        name: The field's name.
        declared: Its type as the step computes it.
        source: The declaration that it comes from, if it comes from one.
        document: Where it comes from, for what names of dims stand for.
        bind: What the target's parameters stand for, if the struct has parameters.

    Returns:
        The target's own declaration where its type is the computed one, with the target's spelling of sizes;
        otherwise what is known of the source.
    """
    wanted = target.structs[struct].stored.get(name) if struct in target.structs else None
    if wanted is not None:
        theirs = substitute(wanted.declared, bind) if bind else wanted.declared
        if same_type(declared, theirs, equations(document, target)):
            return wanted
    if source is None:
        return FieldDeclaration.model_validate({"type": format_type(declared)})
    return source if source.declared == declared else source.with_type(declared)


def need_sizes(  # noqa: PLR0917 - a finding is made of these
    sizes: Iterable[Extent], document: Document, struct: str, target: Document, member: str, code: str = "NQX105"
) -> None:
    """Check that payloads of a declaration show the sizes that a step names.

    Raises:
        SchemaError: ``code``: nothing in them says how large a name is.
    """
    wanted = {name for size in sizes if size is not ... for name in size.names}
    missing = sorted(wanted - measurable(document, struct, target)) if wanted else []
    if missing:
        refuse(
            code,
            member,
            f"expected sizes that payloads show, got {', '.join(missing)}, which no array there fixes",
            "declare `equals:` for the dim, or write the size as a number",
        )


def each_array(declared: Type, change: Callable[[Array], Type], step: str) -> Type:
    """The type with every array in it changed, inside lists, tuples, dicts and unions too.

    Raises:
        SchemaError: NQX304: there is no array in it; NQX306: none changes.
    """
    if not any(isinstance(inner, Array) for inner in walk_type(declared)):
        refuse("NQX304", "field", f"expected a field that holds an array to {step}, got {format_type(declared)}")
    changed = map_type(declared, lambda inner: change(inner) if isinstance(inner, Array) else inner)
    if changed == declared and step != "transpose":  # the transposed of a square type is the same type
        refuse(
            "NQX306", "field", f"expected a step with an effect, got one that leaves {format_type(declared)} as it is"
        )
    return changed


def array_branch(declared: Type, member: str) -> tuple[Array, Callable[[Type], Type]]:
    """The one array of ``T`` or ``T | null``, and what puts another type in its place.

    Raises:
        SchemaError: NQX304: it is another type.
    """
    match declared:
        case Array():
            return declared, lambda other: other
        case Union(options):
            arrays = [option for option in options if isinstance(option, Array)]
            if len(arrays) == 1 and all(option in (arrays[0], Null()) for option in options):
                return arrays[0], lambda other: union_of([other, Null()])
    return refuse("NQX304", member, f"expected an array field, got {format_type(declared)}")


def key_branch(declared: Type, member: str) -> tuple[Key, Callable[[Type], Type]]:
    """As :func:`array_branch`, for a typed random key."""
    match declared:
        case Key():
            return declared, lambda other: other
        case Union(options):
            keys = [option for option in options if isinstance(option, Key)]
            if len(keys) == 1 and all(option in (keys[0], Null()) for option in options):
                return keys[0], lambda other: union_of([other, Null()])
    return refuse("NQX304", member, f"expected a field of type prng_key, got {format_type(declared)}")


def users(document: Document, struct: str) -> list[str]:
    """Where a struct is used: ``Owner.field`` for every stored field whose type names it, and ``root``."""
    found = [
        f"{owner}.{name}"
        for owner, declaration in document.structs.items()
        for name, stored in declaration.stored.items()
        for inner in walk_type(stored.declared)
        if isinstance(inner, Named) and inner.name == struct
    ]
    return [*(["root"] if document.root == struct else []), *found]


def retyped(step: Any, document: Document, target: Document, declared: Type) -> Document:
    """The document with another type for the step's field."""
    name, struct = find_struct(document, step)
    made = adopt(target, name, step.field, declared, struct.fields[step.field], document)
    return with_fields(document, name, replace_fields(struct, (step.field,), {step.field: made}))


def declared_type(step: Any, document: Document) -> Type:
    """The type of a step's field."""
    name, struct = find_struct(document, step)
    return find_field(struct, name, step.field).declared


def arrays_before(step: Any, before: Document) -> list[Array]:
    """The array types inside the type of a step's field."""
    return [inner for inner in walk_type(declared_type(step, before)) if isinstance(inner, Array)]


def each_node(place: Place, name: str, change: Callable[[Node, tuple[str | int, ...]], Node]) -> Node:
    """The instance with every array inside one field changed; null stays, lists, tuples and dicts are looked into."""

    def changed(node: Node, at: tuple[str | int, ...]) -> Node:
        kind = kind_of(node)
        if kind in ("list", "tuple"):
            return {**node, "items": [changed(child, (*at, i)) for i, child in enumerate(node["items"])]}
        if kind == "dict":
            return {**node, "items": [[key, changed(child, (*at, key))] for key, child in node["items"]]}
        return change(node, at) if kind in ("array", "full", "numpy-scalar") else node

    return {**place.node, "fields": {**place.node["fields"], name: changed(place.field(name), (name,))}}


def with_nodes(place: Place, fields: Mapping[str, Node]) -> Node:
    """The instance with other fields."""
    return {**place.node, "fields": dict(fields)}


def shown_node(node: Node) -> str:
    """A node in a message: a value as it is, what holds others by its type and size."""
    if not isinstance(node, dict):
        return _short(json.dumps(node))
    match kind_of(node):
        case "array":
            return f"{node['dtype']}{node['shape']}"
        case "full":
            value = number_value(node["value"])
            held = "all zeros" if value == 0 else f"all {value}"
            return f"{node['dtype']}{node['shape']}, {held}"
        case "struct":
            return f"a struct {node['type'].rpartition(':')[2]}"
        case "list" | "tuple" | "dict" as kind:
            return f"a {kind} of {len(node['items'])}"
        case "path" | "dtype":
            return _short(json.dumps(node["value"]))
        case "bigint":
            return _short(node["value"])
        case "complex" | "float":
            return str(number_value(node))
        case kind:
            return f"a node of kind {kind}"


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"


_SHOWN = 80
