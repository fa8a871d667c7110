"""Steps on the values of single fields: fill and map_enum. None of them reads an array.

Example:
    >>> [*mappings(["fast", "slow"], ["quick", "slow"])][0]
    {'values': {'fast': 'quick'}}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from neuralqx_struct.errors import did_you_mean
from neuralqx_struct.evolution.payload_tree import Place, map_texts
from neuralqx_struct.evolution.steps.operations import (
    Gap,
    Scope,
    StepKind,
    builder,
    refuse,
    refuse_same,
)
from neuralqx_struct.expressions.renamed_words import Words
from neuralqx_struct.paths import Path
from neuralqx_struct.printing import listed
from neuralqx_struct.schema.bounds import check_limits
from neuralqx_struct.schema.conformance import see_node
from neuralqx_struct.schema.migration import Fill, MapEnum, Step
from neuralqx_struct.schema.model import Document, EnumDeclaration
from neuralqx_struct.types import Named, Node, Type, map_type, walk_type
from neuralqx_struct.types.text import format_type, union_of

# ---------------------------------------------------------------------------------------------------------------------
# fill: null becomes a value. The inverse is no step at all, because T is stored as `T | null` is.


def _fill(step: Fill, scope: Scope) -> Document:
    declaration = scope.field(step.field)
    declared = declaration.declared
    if not declared.nullable or not declared.solid:
        message = f"expected a field that may be null, got {format_type(declared)}"
        refuse("NQX306", "field", message)
    filled = union_of(declared.solid)
    scope.check_value(step.value, filled, scope.document, "value")
    made = scope.adopt(step.field, filled, declaration)
    check_limits(made, step.value, "value")
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
    writes=lambda step: [step.value],
    question=lambda wanted: "" if wanted.has_default else "what becomes of null?",
    answer="this value, or another",
)

# ---------------------------------------------------------------------------------------------------------------------
# map_enum: members of an enum, or literal strings of one field, get other names.


def _texts(declared: Type) -> list[str]:
    """The literal strings of a type without others inside; those of an enum are its own."""
    return [] if declared.refers else declared.texts(None) or []


def _strings(declared: Type) -> list[str]:
    """The literal strings in a type."""
    return [text for inner in walk_type(declared) if not inner.parts for text in _texts(inner)]


def _is_meant(step: MapEnum, option: Type) -> bool:
    """True if the step renames the values of an option of a union."""
    return option == Named(step.enum) if step.enum is not None else bool(_texts(option))


def _map_enum(step: MapEnum, scope: Scope) -> Document:
    document = scope.document
    if (step.enum is None) == (step.field is None):
        message = "expected either `enum` or `field`, got both or neither"
        refuse("NQX304", "enum", message, "name the one that is meant")
    members = _members(step, scope)
    known = {*members}
    for old, new in step.values.items():
        if old not in known:
            hint = did_you_mean(old, members) or f"members here: {listed(members)}"
            message = f"expected a member of {step.enum or step.field}, got {old!r}"
            refuse("NQX304", "values", message, hint)
        if old == new:
            refuse_same("values", old, "leave it out")
    merged = _merged(step, scope)
    left = [new for new in merged if new not in step.undo]
    if left and not step.lossy:
        wanted = f"expected undo or lossy: true for {', '.join(left)}"
        message = f"{wanted}, which more than one member becomes, got neither"
        undo = f"`undo: {{{left[0]}: {merged[left[0]][0]}}}`"
        refuse("NQX308", "values", message, f"write the member that a downgrade restores: {undo}")
    if step.field is not None:
        return scope.with_type(
            step.field,
            lambda have: map_type(have, lambda inner: inner.with_texts(step.values)),
        )
    enum = str(step.enum)
    names = [*_origins(step, members)]
    declared = scope.target.enums.get(enum)
    if declared is None or not set(names) <= set(declared.members):
        kept = document.enums[enum]
        default = None if kept.default is None else step.values.get(kept.default, kept.default)
        declared = EnumDeclaration(members=names, default=default, doc=kept.doc)
    return document.model_copy(update={"enums": {**document.enums, enum: declared}})


def _members(step: MapEnum, scope: Scope) -> list[str]:
    """The members of the enum, or the strings that the field may hold."""
    document = scope.document
    if step.field is None:
        if step.enum not in document.enums:
            hint = did_you_mean(str(step.enum), document.enums)
            hint = hint or "for literal strings name the field: `field: ...`"
            message = f"expected an enum of version {document.version}, got {step.enum!r}"
            refuse("NQX304", "enum", message, hint)
        return document.enums[str(step.enum)].members
    declared = scope.type(step.field)
    found = _strings(declared)
    if not found:
        message = f"expected a field of literal strings, got {format_type(declared)}"
        refuse("NQX304", "field", message, "for the members of an enum name it: `enum: ...`")
    return found


def _origins(step: MapEnum, members: Iterable[str]) -> dict[str, list[str]]:
    """The old members by the new name that they get."""
    found: dict[str, list[str]] = {}
    for member in dict.fromkeys(members):
        found.setdefault(step.values.get(member, member), []).append(member)
    return found


def _merged(step: MapEnum, scope: Scope) -> dict[str, list[str]]:
    """The new names that several values become, with those values; other options of a union may have them too."""
    found = _origins(step, _members(step, scope))
    for declared in _declared(step, scope):
        others = [option for option in declared.branches if not _is_meant(step, option)]
        for new in {*step.values.values()} if len(others) < len(declared.branches) else ():
            seen = see_node(new)
            if any(option.accepts(scope.document, seen) for option in others):
                found[new].append(new)
    return {new: olds for new, olds in found.items() if len(olds) > 1}


def _declared(step: MapEnum, scope: Scope) -> Iterator[Type]:
    """Yields the types, unions whole, of the fields whose values the step renames."""
    if step.field is not None:
        yield from _wholes(scope.type(step.field))
        return
    for name in _structs(step, scope.document):
        for field in scope.document.structs[name].stored.values():
            yield from _wholes(field.declared)


def _wholes(declared: Type) -> Iterator[Type]:
    yield declared
    for option in declared.branches:
        for part in option.parts:
            yield from _wholes(part)


def _map_enum_payload(step: MapEnum, place: Place) -> Node:
    document = place.before
    stored = document.structs[place.struct].stored

    def renamed(text: str, declared: Type, _: Path) -> str:
        seen = see_node(text)
        options = (o for o in declared.branches if o.accepts(document, seen))
        option = next(options, None)
        return step.values.get(text, text) if option and _is_meant(step, option) else text

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


def _map_enum_back(step: MapEnum, scope: Scope, _: Document) -> list[Step]:
    for new, olds in _merged(step, scope).items():
        if new not in step.undo:
            wanted = f"expected one member that becomes {new!r}, got {', '.join(olds)}"
            undo = f"`undo: {{{new}: {olds[0]}}}`"
            hint = f"a downgrade to version {scope.document.version} needs {undo} in the step"
            refuse("NQX423", "values", f"{wanted} and a step with lossy: true", hint)
    origins = _origins(step, _members(step, scope))
    back = {new: step.undo.get(new, olds[0]) for new, olds in origins.items()}
    back = {new: old for new, old in back.items() if new != old}
    if not back:
        return []
    named: dict[str, Any] = {"enum": step.enum} if step.field is None else {"field": step.field}
    return [MapEnum(**named, values=back, undo={old: new for new, old in back.items()})]


def _renamed_words(step: MapEnum, document: Document) -> Iterator[tuple[tuple[str, str], Words]]:
    for struct in _structs(step, document):
        stored = document.structs[struct].stored
        for name, field in (
            stored.items() if step.field is None else [(step.field, stored[step.field])]
        ):
            if any(_is_meant(step, inner) for inner in walk_type(field.declared)):
                strings = _known_strings(step, document, field.declared)
                yield (struct, name), Words(step.values, strings)


def _known_strings(step: MapEnum, document: Document, declared: Type) -> frozenset[str] | None:
    """All strings of a type; None if there are any others, or the step renames one at one place alone."""
    known: dict[bool, set[str]] = {True: set(), False: set()}
    for inner in walk_type(declared):
        if inner.parts:
            continue
        texts = inner.texts(document)
        if texts is None and inner.accepts(document, see_node("")):
            return None
        known[_is_meant(step, inner)].update(texts or ())
    kept = known[False] & step.values.keys()
    return None if kept else frozenset(known[True] | known[False])


def mappings(old: Sequence[str], new: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yields ``values`` and ``undo`` that rename members which are gone: to new ones in order, or to a kept one."""
    before, after = {*old}, {*new}
    gone = [member for member in old if member not in after]
    come = [member for member in new if member not in before]
    kept = [member for member in old if member in after]
    if gone and len(gone) <= len(come):
        yield {"values": dict(zip(gone, come, strict=False))}
    if gone and kept:
        yield {"values": dict.fromkeys(gone, kept[0]), "undo": {kept[0]: kept[0]}}


def _suggest_map_enum(gap: Gap) -> Iterator[Step]:
    if gap.have.refers:
        return
    wanted = [text for inner in walk_type(gap.want) for text in inner.spelled(gap.new) or ()]
    for given in mappings(_strings(gap.have), [*dict.fromkeys(wanted)]):
        yield map_enum(field=gap.field, within=gap.within, **given)


def _elsewhere(step: MapEnum, schema: str) -> MapEnum | None:
    """The step for the fields of a schema that uses this one; None if it is not about an enum."""
    if step.enum is None:
        return None
    # A name with the schema before it, which no file may write here.
    return step.model_copy(update={"enum": f"{schema}.{step.enum}"})


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
    words=_renamed_words,
    in_enum=_elsewhere,
)
