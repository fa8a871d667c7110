"""The step on names of choices: map_enum. Members of an enum, or literal strings of one field, get other names.

Three functions stand side by side: what the step does to a declaration, to one struct instance of a payload, and the
steps that lead back. ``steps.py`` has the table of them all.

Example:
    >>> from neuralqx_struct.schema.types import parse_type
    >>> _mapped(parse_type('literal["a", "b"] | null'), {"a": "c"})
    Union(options=(LiteralOf(values=('c', 'b')), Null()))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from neuralqx_struct.errors import did_you_mean
from neuralqx_struct.evolution.edits import Operation, declared_type, refuse, retyped, with_nodes
from neuralqx_struct.evolution.sizes import map_type
from neuralqx_struct.evolution.tree import Place, kind_of
from neuralqx_struct.evolution.values import Node
from neuralqx_struct.schema.migration import MapEnum, Step
from neuralqx_struct.schema.model import Document, EnumDeclaration
from neuralqx_struct.schema.types import DictOf, ListOf, LiteralOf, Named, TupleOf, Type, Union, format_type, walk_type

__all__ = ["MAP_ENUM", "structs_with"]


def structs_with(enum: str, document: Document) -> list[str]:
    """The structs that hold values of an enum."""
    return [
        name
        for name, struct in document.structs.items()
        if any(Named(enum) in walk_type(field.declared) for field in struct.stored.values())
    ]


def _map_enum(step: MapEnum, document: Document, target: Document) -> Document:
    if (step.enum is None) == (step.field is None):
        refuse("NQX304", "enum", "expected either `enum` or `field`, got both or neither", "name the one that is meant")
    members = _members(step, document)
    for old, new in step.values.items():
        if old not in members:
            hint = did_you_mean(old, members) or f"members here: {', '.join(members)}"
            refuse("NQX304", "values", f"expected a member of {step.enum or step.field}, got {old!r}", hint)
        if old == new:
            refuse("NQX306", "values", f"expected another name than {old!r}, got the same", "leave it out")
    merged = [new for new, olds in _origins(step, members).items() if len(olds) > 1 and new not in step.undo]
    if merged and not step.lossy:
        refuse(
            "NQX308",
            "values",
            f"expected undo or lossy: true for {', '.join(merged)}, which more than one member becomes, got neither",
            f"say what a downgrade makes of it: `undo: {{{merged[0]}: {_origins(step, members)[merged[0]][0]}}}`",
        )
    if step.enum is None:
        return retyped(step, document, target, _mapped(declared_type(step, document), step.values))
    renamed = list(_origins(step, members))
    declared = target.enums.get(step.enum)
    if declared is None or not set(renamed) <= set(declared.members):
        kept = document.enums[step.enum]
        default = None if kept.default is None else step.values.get(kept.default, kept.default)
        declared = EnumDeclaration(members=renamed, default=default, doc=kept.doc)
    return document.model_copy(update={"enums": {**document.enums, step.enum: declared}})


def _members(step: MapEnum, document: Document) -> tuple[str, ...]:
    if step.enum is not None:
        if step.enum not in document.enums:
            hint = did_you_mean(step.enum, document.enums) or "for literal strings name the field: `field: ...`"
            refuse("NQX304", "enum", f"expected an enum of version {document.version}, got {step.enum!r}", hint)
        return tuple(document.enums[step.enum].members)
    declared = declared_type(step, document)
    found = [t for t in walk_type(declared) if isinstance(t, LiteralOf)]
    if not found:
        refuse(
            "NQX304",
            "field",
            f"expected a field of literal strings, got {format_type(declared)}",
            "for the members of an enum name it: `enum: ...`",
        )
    return tuple(value for literal in found for value in literal.values if isinstance(value, str))


def _origins(step: MapEnum, members: Iterable[str]) -> dict[str, list[str]]:
    """For each name behind the step the members that become it."""
    found: dict[str, list[str]] = {}
    for member in members:
        found.setdefault(step.values.get(member, member), []).append(member)
    return found


def _mapped(declared: Type, values: Mapping[str, str]) -> Type:
    def change(inner: Type) -> Type:
        if not isinstance(inner, LiteralOf):
            return inner
        return LiteralOf(tuple(dict.fromkeys(values.get(v, v) if isinstance(v, str) else v for v in inner.values)))

    return map_type(declared, change)


def _map_enum_payload(step: MapEnum, place: Place) -> Node:
    stored = place.before.structs[place.struct].stored
    meant: Type | None = None if step.enum is None else Named(step.enum)
    fields = dict(place.node["fields"])
    for name in stored if step.enum is not None else (str(step.field),):
        fields[name] = _renamed(place.field(name), stored[name].declared, meant, step.values)
    return with_nodes(place, fields)


def _renamed(node: Node, declared: Type, meant: Type | None, values: Mapping[str, str]) -> Node:
    """A node with the members in it renamed: those of the enum ``meant``, or of every literal."""
    kind = kind_of(node)
    if kind == "enum":  # a member of a Python class: its name is what a schema writes as text
        return {**node, "name": _renamed(node["name"], declared, meant, values)}
    match declared:
        case Named() | LiteralOf() if isinstance(node, str):
            return values.get(node, node) if declared == meant or (meant is None and _is_of(declared, node)) else node
        case Union(options) if isinstance(node, str):
            chosen = [o for o in options if o == meant or (meant is None and _is_of(o, node))]
            return values.get(node, node) if chosen else node
        case Union(options):
            for option in options:
                node = _renamed(node, option, meant, values) if isinstance(option, (ListOf, TupleOf, DictOf)) else node
            return node
        case ListOf(item) if kind == "list":
            return {**node, "items": [_renamed(n, item, meant, values) for n in node["items"]]}
        case TupleOf(items, variadic) if kind == "tuple":
            types = items * len(node["items"]) if variadic else items
            return {
                **node,
                "items": [_renamed(n, t, meant, values) for n, t in zip(node["items"], types, strict=True)],
            }
        case DictOf(item) if kind == "dict":
            return {**node, "items": [[k, _renamed(n, item, meant, values)] for k, n in node["items"]]}
        case _:
            return node


def _is_of(declared: Type, value: str) -> bool:
    return isinstance(declared, LiteralOf) and value in declared.values


def _map_enum_back(step: MapEnum, before: Document, after: Document) -> list[Step]:
    del after
    back: dict[str, str] = {}
    for new, olds in _origins(step, _members(step, before)).items():
        if len(olds) > 1 and new not in step.undo:
            refuse(
                "NQX423",
                "values",
                f"expected one member that becomes {new!r}, got {', '.join(olds)} and a step with lossy: true",
                f"a downgrade to version {before.version} needs `undo: {{{new}: {olds[0]}}}` in the step",
            )
        old = step.undo.get(new, olds[0])
        if old != new:
            back[new] = old
    given = {"enum": step.enum} if step.enum is not None else {"field": step.field}
    return [MapEnum(within=step.within, **given, values=back)] if back else []


MAP_ENUM = Operation(_map_enum, _map_enum_payload, _map_enum_back, "manifest")
