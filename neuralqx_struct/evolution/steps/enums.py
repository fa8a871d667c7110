"""The step on names of choices: map_enum. Members of an enum, or literal strings of one field, get other names.

Example:
    >>> from neuralqx_struct.types.text import parse_type
    >>> _mapped(parse_type('literal["a", "b"] | null'), {"a": "c"})
    Union(options=(LiteralOf(values=('c', 'b')), Null()))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from neuralqx_struct.errors import did_you_mean
from neuralqx_struct.evolution.payload_tree import Place
from neuralqx_struct.evolution.steps.builders import builder
from neuralqx_struct.evolution.steps.operations import (
    Gap,
    StepKind,
    declared_type,
    refuse,
    refuse_same,
    with_type,
)
from neuralqx_struct.evolution.values import map_texts
from neuralqx_struct.paths import Path
from neuralqx_struct.schema.migration import MapEnum, Step
from neuralqx_struct.schema.model import Document, EnumDeclaration
from neuralqx_struct.types import LiteralOf, Named, Node, Type, map_type, walk_type
from neuralqx_struct.types.text import format_type


def _map_enum(step: MapEnum, document: Document, target: Document) -> Document:
    if (step.enum is None) == (step.field is None):
        message = "expected either `enum` or `field`, got both or neither"
        refuse("NQX304", "enum", message, "name the one that is meant")
    members = _members(step, document)
    for old, new in step.values.items():
        if old not in members:
            hint = did_you_mean(old, members) or f"members here: {', '.join(members)}"
            message = f"expected a member of {step.enum or step.field}, got {old!r}"
            refuse("NQX304", "values", message, hint)
        if old == new:
            refuse_same("values", old, "leave it out")
    origins = _origins(step, members)
    merged = [new for new, olds in origins.items() if len(olds) > 1 and new not in step.undo]
    if merged and not step.lossy:
        wanted = f"expected undo or lossy: true for {', '.join(merged)}"
        message = f"{wanted}, which more than one member becomes, got neither"
        undo = f"`undo: {{{merged[0]}: {origins[merged[0]][0]}}}`"
        refuse("NQX308", "values", message, f"write the member that a downgrade restores: {undo}")
    if step.enum is None:
        return with_type(step, document, target, lambda have: _mapped(have, step.values))
    declared = target.enums.get(step.enum)
    if declared is None or not set(origins) <= set(declared.members):
        kept = document.enums[step.enum]
        default = None if kept.default is None else step.values.get(kept.default, kept.default)
        declared = EnumDeclaration(members=list(origins), default=default, doc=kept.doc)
    return document.model_copy(update={"enums": {**document.enums, step.enum: declared}})


def _members(step: MapEnum, document: Document) -> list[str]:
    """The members of the enum, or the strings that the field may hold."""
    if step.enum is not None:
        if step.enum not in document.enums:
            hint = did_you_mean(step.enum, document.enums)
            hint = hint or "for literal strings name the field: `field: ...`"
            message = f"expected an enum of version {document.version}, got {step.enum!r}"
            refuse("NQX304", "enum", message, hint)
        return document.enums[step.enum].members
    declared = declared_type(step, document)
    if not any(isinstance(inner, LiteralOf) for inner in walk_type(declared)):
        message = f"expected a field of literal strings, got {format_type(declared)}"
        refuse("NQX304", "field", message, "for the members of an enum name it: `enum: ...`")
    return _strings(declared)


def _strings(declared: Type) -> list[str]:
    """The literal strings in a type."""
    literals = [inner for inner in walk_type(declared) if isinstance(inner, LiteralOf)]
    return [value for literal in literals for value in literal.values if isinstance(value, str)]


def _origins(step: MapEnum, members: Iterable[str]) -> dict[str, list[str]]:
    """The old members by the new name that they get."""
    found: dict[str, list[str]] = {}
    for member in members:
        found.setdefault(step.values.get(member, member), []).append(member)
    return found


def _mapped(declared: Type, values: Mapping[str, str]) -> Type:
    def change(inner: Type) -> Type:
        if not isinstance(inner, LiteralOf):
            return inner
        names = [values.get(v, v) if isinstance(v, str) else v for v in inner.values]
        return LiteralOf(tuple(dict.fromkeys(names)))

    return map_type(declared, change)


def _map_enum_payload(step: MapEnum, place: Place) -> Node:
    stored = place.before.structs[place.struct].stored

    def renamed(text: str, declared: Type, at: Path) -> str:
        del at
        if step.enum is not None:
            is_meant = Named(step.enum) in declared.branches
        else:
            is_meant = text in _strings(declared)
        return step.values.get(text, text) if is_meant else text

    names = stored if step.field is None else (step.field,)
    return place.with_fields(
        {name: map_texts(place.field(name), stored[name].declared, renamed) for name in names}
    )


def _structs(step: MapEnum, document: Document) -> Iterable[str]:
    """The structs that hold values of the enum, or the one that has the field."""
    if step.enum is None:
        return (step.within or document.root,)
    enum = Named(step.enum)
    return [
        name
        for name, struct in document.structs.items()
        if any(enum in walk_type(field.declared) for field in struct.stored.values())
    ]


def _map_enum_back(step: MapEnum, before: Document, after: Document) -> list[Step]:
    del after
    back: dict[str, str] = {}
    for new, olds in _origins(step, _members(step, before)).items():
        if len(olds) > 1 and new not in step.undo:
            wanted = f"expected one member that becomes {new!r}, got {', '.join(olds)}"
            undo = f"`undo: {{{new}: {olds[0]}}}`"
            hint = f"a downgrade to version {before.version} needs {undo} in the step"
            refuse("NQX423", "values", f"{wanted} and a step with lossy: true", hint)
        old = step.undo.get(new, olds[0])
        if old != new:
            back[new] = old
    given = {"enum": step.enum} if step.field is None else {"field": step.field}
    return [MapEnum(within=step.within, **given, values=back)] if back else []


def mappings(old: Sequence[str], new: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yields ``values`` and ``undo`` that rename members which are gone: to new ones in order, or to a kept one."""
    gone = [member for member in old if member not in new]
    come = [member for member in new if member not in old]
    kept = [member for member in old if member in new]
    if gone and len(gone) <= len(come):
        yield {"values": dict(zip(gone, come, strict=False))}
    if gone and kept:
        yield {"values": dict.fromkeys(gone, kept[0]), "undo": {kept[0]: kept[0]}}


def _suggest_map_enum(gap: Gap) -> Iterator[Step]:
    for given in mappings(_strings(gap.have), _strings(gap.want)):
        yield map_enum(field=gap.field, within=gap.within, **given)


map_enum = builder(MapEnum)
MAP_ENUM = StepKind(
    model=MapEnum,
    declare=_map_enum,
    rewrite=_map_enum_payload,
    inverse=_map_enum_back,
    cost="manifest",
    structs=_structs,
    suggest=_suggest_map_enum,
    question=lambda _: "what becomes of the strings that are gone?",
    answer="these names, or others",
)
