"""The steps stack and unstack, inverse to each other: between a list of structs, or of arrays, and one with a leading axis.

Example:
    >>> from neuralqx_struct.types.text import format_type, parse_type
    >>> format_type(_stacked_type(parse_type("list[Layer, 3] | null"), None)[0])
    'Layer[][3] | null'
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Sequence
from functools import partial
from typing import Any

from neuralqx_struct.dtypes import KEY_WORDS
from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.evolution.payload_tree import CHOOSES, TAKES, Place, computed, constant
from neuralqx_struct.evolution.steps.operations import (
    Gap,
    Scope,
    StepKind,
    builder,
    may_stop,
    only_branch,
    refuse,
)
from neuralqx_struct.expressions import Expression
from neuralqx_struct.manifest.kinds import (
    ARRAY,
    FIELDS,
    FULL,
    LIST,
    MANY,
    ONE,
    PAIRS,
    PRNG_KEY,
    STRUCT,
    TUPLE,
    elements_of,
    iter_nodes,
    kind_of,
    marks_of,
    parts_of,
    shown_node,
)
from neuralqx_struct.manifest.lazy_arrays import Joined, Window
from neuralqx_struct.paths import FieldName, Path
from neuralqx_struct.schema.migration import Stack, Step, Unstack
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.sizes import ANY
from neuralqx_struct.schema.sizes.comparison import (
    binding,
    extent,
    plain_size,
    same_size,
    substitute,
)
from neuralqx_struct.types import Node, Type, walk_type
from neuralqx_struct.types.text import format_type

#: Nodes that unstacking may make: a manifest takes no more.
_MOST = 1_000_000
#: Structs inside structs of which an instance without layers is made.
_DEEPEST = 50

# ---------------------------------------------------------------------------------------------------------------------
# Declarations


def _size(step_size: int | str | None, listed: Type) -> Expression:
    """The number of layers: the length of the list, or the size in the step."""
    length = next((size for size in listed.extents if size is not ...), None)
    if step_size is None and length is None:
        message = f"expected `size:` beside a list of any length, got {format_type(listed)}"
        refuse("NQX304", "size", message, "write the name that the new version has for it")
    if step_size is None:
        return length or extent(ANY)
    size = extent(step_size)
    if length is not None and not same_size(size, length, {}):
        message = f"expected {length.text}, the length of the list, got {size.text}"
        refuse("NQX309", "size", message, "leave `size:` out")
    return size


def _stacked_type(declared: Type, size: int | str | None) -> tuple[Type, Type]:
    """The type after the step, and the stacked struct or array in it."""
    words = "a list of structs or arrays"
    listed, rebuilt = only_branch(declared, lambda one: one.stacked(extent(1)), words)
    made = listed.stacked(_size(size, listed))
    return rebuilt(made), made


def _stack(step: Stack, scope: Scope) -> Document:
    declared = scope.type(step.field)
    made, stacked = _stacked_type(declared, step.size)
    struct = stacked.parts[0].refers if stacked.parts else ""
    if struct and not scope.document.is_struct(struct):
        shown = format_type(declared)
        refuse("NQX304", "field", f"expected a list of structs or arrays, got {shown}")
    known = scope.target if struct in scope.target.structs else scope.document
    for reason, remedy in stacked.objections(known):
        refuse("NQX137", "field", f"expected {reason}", remedy)
    named = [
        size for size in stacked.extents[:1] if size is not ... and not size.text.isidentifier()
    ]
    scope.require_sizes(named, "size")
    return scope.with_type(step.field, lambda _: made)


def _unstack(step: Unstack, scope: Scope) -> Document:
    def listed(declared: Type) -> Type:
        words = "a stacked struct, or an array with an axis"
        stacked, rebuilt = only_branch(declared, lambda one: one.listed, words)
        return rebuilt(stacked.listed)

    return scope.with_type(step.field, listed)


def _unstack_back(step: Unstack, scope: Scope, _: Document) -> list[Step]:
    stacked, _rebuilt = only_branch(scope.type(step.field), lambda one: one.listed, "")
    return [Stack(field=step.field, size=plain_size(stacked.extents[0]))]


def _review_stack(_: Stack, __: Scope) -> Iterator[Diagnostic]:
    """Yields NQX320: layers may differ, and where there are none nothing may show their shapes."""
    where = "whose layers differ in shapes, static fields or structure, or that have none and do not show their sizes"
    yield may_stop(where, "field")


def _suggest_stack(gap: Gap) -> Iterator[Step]:
    if len(gap.have.solid) != 1 or len(gap.want.solid) != 1:
        return
    have, want = gap.have.solid[0], gap.want.solid[0]
    if want.listed is None or have.stacked(extent(1)) is None:
        return
    size = {} if have.extents else {"size": plain_size(want.extents[0])}
    yield stack(field=gap.field, within=gap.within, **size)


def _suggest_unstack(gap: Gap) -> Iterator[Step]:
    if len(gap.have.solid) == 1 and gap.have.solid[0].listed is not None:
        yield unstack(field=gap.field, within=gap.within)


# ---------------------------------------------------------------------------------------------------------------------
# Payloads: one node of several, and several of one


def _stack_payload(step: Stack, place: Place) -> Node:
    node = place.field(step.field)
    if node is None:
        return place.node
    if not LIST.matches(node):
        raise place.error("NQX411", f"expected a list, got {shown_node(node)}", step.field)
    items = node["items"]
    declared = place.before.structs[place.struct].fields[step.field].declared
    _, stacked = _stacked_type(declared, step.size)
    size = stacked.extents[0]
    known = None if size is ... else place.known_size(size)
    if known not in (None, len(items)):
        message = f"expected {known} layers, got {len(items)}"
        raise place.error("NQX412", message, step.field, hint=TAKES)
    if items:
        made = _one(items, place, (step.field,))
    else:
        (item,) = declared.solid[0].parts
        made = _without_layers(item, place, (*place.lead, 0), (step.field,))
    return place.with_fields({step.field: made})


_LISTS = {kind.tag: kind for kind in (LIST, TUPLE)}


def _without_layers(item: Type, place: Place, lead: tuple[int, ...], at: Path) -> Node:
    """The node of no layers of a type, whose arrays have no elements.

    Args:
        item: The type of a layer, or of a part of it, with sizes as the instance that holds it names them.
        place: The instance.
        lead: The sizes of the axes in front of those that the type declares, of which one is 0.
        at: The path from the instance.

    Raises:
        MigrationError: NQX432: the declaration and the payload leave open how the arrays look.
    """
    document = place.before
    sizes = [None if size is ... else place.known_size(size) for size in item.extents]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes) or min(known, default=0) < 0 or len(at) > _DEEPEST:
        raise _unknown(item, place, at)
    if item.element:
        chosen = place.sizes.chosen.get(item.element)
        dtypes = item.dtypes if chosen is None else chosen[:1]
        if len(dtypes) > 1:
            raise _unknown(item, place, at)
        return _no_elements(dtypes[0], (*lead, *known), place, at)
    if item.key_impl in KEY_WORDS:
        words = _no_elements("uint32", (*lead, *known, KEY_WORDS[item.key_impl]), place, at)
        return PRNG_KEY.node(impl=item.key_impl, data=words)
    if item.stacks:
        return _without_layers(item.parts[0], place, (*lead, *known), at)
    struct = document.structs.get(item.refers)
    if struct is not None:
        hidden = document.structs[place.struct].params
        names = {name: extent(name) for name in document.dims if name not in hidden}
        names |= binding(document, item)
        fields = {}
        for name, field in struct.stored.items():
            if not _names(field.declared) <= names.keys():
                raise _unknown(field.declared, place, (*at, FieldName(name)))
            inner = substitute(field.declared, names)
            fields[name] = _without_layers(inner, place, lead, (*at, FieldName(name)))
        return STRUCT.node(type=document.ref(item.refers), fields=fields)
    kind = _LISTS.get(item.sort)
    if kind is None or not (known or item.fixed_parts) or sum(known) > _MOST:
        raise _unknown(item, place, at)
    parts = item.parts_for(known[0]) if known else item.fixed_parts
    items = [_without_layers(part, place, lead, (*at, i)) for i, part in enumerate(parts or ())]
    return kind.node(items=items)


def _no_elements(dtype: str, shape: tuple[int, ...], place: Place, at: Path) -> Node:
    array = computed(dtype, shape, lambda: constant(dtype, shape, 0))
    return place.workspace.store(array, (Stack.name, place.at(*at)))


def _names(declared: Type) -> set[str]:
    """The names in the sizes of a type."""
    sizes = (size for inner in walk_type(declared) for size in (*inner.extents, *inner.arguments))
    return {name for size in sizes if size is not ... for name in size.names}


def _unknown(item: Type, place: Place, at: Path) -> Exception:
    message = "expected at least one layer to stack, got none"
    why = (
        f"nothing shows how the arrays of no layers look: {format_type(item)} may be any of several"
    )
    return place.error("NQX432", f"{message}\n{why}", *at, hint=CHOOSES)


def _differ(place: Place, at: Path, reason: str) -> Exception:
    hint = "a setting that differs between layers has to be an array; change it in a step before"
    return place.error("NQX432", f"expected layers that agree, got {reason}", *at, hint=hint)


def _one(nodes: Sequence[Node], place: Place, at: Path, *, setting: bool = False) -> Node:
    """One node of the nodes at the same place in each layer.

    Args:
        nodes: The nodes.
        place: The instance that holds them.
        at: Their path from there.
        setting: Whether they are in a static or opaque field, where numbers of numpy are no arrays without axes.
    """
    first = nodes[0]
    kinds = [kind_of(node) for node in nodes]
    if not setting and all(map(elements_of, nodes)):
        return _one_array(nodes, place, at)
    if any(kind is not kinds[0] for kind in kinds) or kinds[0] is None:
        if any(type(node) is not type(first) or node != first for node in nodes):
            shown = dict.fromkeys(map(shown_node, nodes))
            raise _differ(place, at, " and ".join([*shown][:3]))
        return first
    holds, settings = dict(parts_of(first)), set[str]()
    if STRUCT.matches(first):
        declared = place.before.structs.get(first["type"].rpartition(":")[2])
        if declared is None:
            message = f"expected a struct of {place.before.id}, got {shown_node(first)}"
            hint = "the schema declares no such struct: validate the bundle"
            raise place.error("NQX411", message, *at, hint=hint)
        settings = {name for name, field in declared.stored.items() if field.kind != "node"}
    made = {}
    for member, value in first.items():
        values = [node.get(member) for node in nodes]
        if member in holds:
            made[member] = _one_part(holds[member], values, place, at, settings, setting=setting)
        elif any(json.dumps(other) != json.dumps(value) for other in values):
            raise _differ(place, at, f"{shown_node(first)} and others")
        else:
            made[member] = value
    return made


def _one_part(
    holds: str,
    values: Sequence[Any],
    place: Place,
    at: Path,
    settings: Container[str],
    *,
    setting: bool,
) -> Any:
    """One member of the same member of several nodes."""
    one = partial(_one, place=place, setting=setting)
    first = values[0]
    if holds == ONE:
        return one(values, at=at)
    if holds == MANY:
        if len({len(value) for value in values}) > 1:
            raise _differ(place, at, "lists of several lengths")
        return [one(each, at=(*at, i)) for i, each in enumerate(zip(*values, strict=True))]
    named = values
    if holds == PAIRS:
        named = [{json.dumps(key): (key, item) for key, item in value} for value in values]
    if any(value.keys() != named[0].keys() for value in named):
        raise _differ(place, at, "several sets of keys")
    if holds == FIELDS:
        return {
            key: _one(
                [v[key] for v in values], place, (*at, key), setting=setting or key in settings
            )
            for key in first
        }
    return [
        [key, one([value[text][1] for value in named], at=(*at, key))]
        for text, (key, _) in named[0].items()
    ]


def _one_array(nodes: Sequence[Node], place: Place, at: Path) -> Node:
    first, count = nodes[0], len(nodes)
    forms = {(node["dtype"], *node.get("shape", ())): shown_node(node) for node in nodes}
    if len(forms) > 1:
        raise _differ(place, at, " and ".join([*forms.values()][:3]))
    lead = len(place.lead)
    whole = first.get("shape", ())
    shape = [*whole[:lead], count, *whole[lead:]]
    known = [marks_of(node) for node in nodes]
    marks = {
        mark: held
        for mark, held in known[0].items()
        if all(each.get(mark) == held for each in known)
    }
    identities = [place.identity(node) for node in nodes]
    if FULL.matches(first) and len(set(identities)) == 1:
        return {**FULL.node(dtype=first["dtype"], shape=shape, value=first["value"]), **marks}
    array = Joined([place.load(node) for node in nodes], lead, stacked=True)
    return {**place.workspace.store(array, (Stack.name, lead, *identities)), **marks}


def _unstack_payload(step: Unstack, place: Place) -> Node:
    node = place.field(step.field)
    if node is None:
        return place.node
    arrays = [
        (path, each)
        for path, each in iter_nodes(node)
        if (kind := kind_of(each)) is not None and kind.sort == "array"
    ]
    if not arrays or not any(kind.matches(node) for kind in (STRUCT, ARRAY, FULL, PRNG_KEY)):
        message = f"expected an array or a struct of arrays, got {shown_node(node)}"
        raise place.error("NQX411", message, step.field)
    counts: dict[int | None, Path] = {}
    for path, each in arrays:
        shape = place.shape(each, step.field, *path)
        counts.setdefault(shape[0] if shape else None, (step.field, *path))
    count = next(iter(counts))
    if len(counts) > 1 or count is None:
        sizes = ["no axis" if size is None else str(size) for size in counts]
        message = f"expected arrays with one leading axis, got {', '.join(sizes)}"
        raise place.error("NQX412", message, *[*counts.values()][-1])
    nodes = sum(1 for _ in iter_nodes(node))
    if count * nodes > _MOST:
        message = f"expected layers of at most {_MOST:,} values in all, got {count} of {nodes}"
        hint = "a manifest takes no more: keep it stacked"
        raise place.error("NQX412", message, step.field, hint=hint)
    made = [_layer(node, index, place) for index in range(count)]
    return place.with_fields({step.field: LIST.node(items=made)})


def _layer(node: Node, index: int, place: Place) -> Node:
    """The node of one layer."""
    kind = kind_of(node)
    if kind is None:
        return node
    if kind.sort == "array":
        return place.derive(node, Window(0, index))
    made = dict(node)
    for member, holds in parts_of(node):
        held = node[member]
        if holds == ONE:
            made[member] = _layer(held, index, place)
        elif holds == PAIRS:
            made[member] = [[key, _layer(item, index, place)] for key, item in held]
        elif holds == MANY:
            made[member] = [_layer(item, index, place) for item in held]
        else:
            made[member] = {key: _layer(item, index, place) for key, item in held.items()}
    return made


stack = builder(Stack)
STACK = StepKind(
    model=Stack,
    declare=_stack,
    rewrite=_stack_payload,
    inverse=lambda step, *_: [Unstack(field=step.field)],
    cost="streaming",
    suggest=_suggest_stack,
    review=_review_stack,
    answer="one with a leading axis",
)

unstack = builder(Unstack)
UNSTACK = StepKind(
    model=Unstack,
    declare=_unstack,
    rewrite=_unstack_payload,
    inverse=_unstack_back,
    cost="streaming",
    suggest=_suggest_unstack,
    answer="a list of its layers",
)
