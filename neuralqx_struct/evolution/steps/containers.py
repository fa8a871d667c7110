"""The steps split and merge between fields and the list, tuple or dict that holds their values; no array is read.

Example:
    >>> from neuralqx_struct.types.text import format_type, parse_type
    >>> format_type(whole_type("list", [parse_type("Layer")] * 3))
    'list[Layer, 3]'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.evolution.payload_tree import TAKES, Place
from neuralqx_struct.evolution.sizes import constant, extent, readable_as, same_size, same_type
from neuralqx_struct.evolution.steps.operations import (
    Candidate,
    Edit,
    Fields,
    Scope,
    may_stop,
    refuse,
)
from neuralqx_struct.evolution.values import shown_node
from neuralqx_struct.manifest.kinds import DICT, LIST, TUPLE, NodeKind
from neuralqx_struct.printing import listed
from neuralqx_struct.schema.field_paths import Places
from neuralqx_struct.schema.migration import Merge, Split
from neuralqx_struct.schema.model import Document
from neuralqx_struct.types import DictOf, ListOf, Node, TupleOf, Type
from neuralqx_struct.types.text import format_type


class Container(NamedTuple):
    """A collection whose values may be fields of a struct.

    Attributes:
        whole: Returns its type for the types of its values.
        mixed: True if the values may differ in type.
        kind: The kind of its nodes.
        alone: True if one field may have become all of its values.
        order: What tells its values apart, in words.
    """

    whole: Callable[[Sequence[Type]], Type]
    kind: NodeKind
    mixed: bool = False
    alone: bool = False
    order: str = "in this order"


#: The collections by their names in ``how:``, which are those of their types too.
CONTAINERS = {
    "list": Container(lambda types: ListOf(types[0], extent(len(types))), LIST, alone=True),
    "tuple": Container(lambda types: TupleOf(tuple(types)), TUPLE, mixed=True),
    "dict": Container(lambda types: DictOf(types[0]), DICT, order="under these keys"),
}


def whole_type(how: str, types: Sequence[Type]) -> Type:
    """The type of a collection of values of some types."""
    return CONTAINERS[how].whole(types)


# ---------------------------------------------------------------------------------------------------------------------
# merge


def merge_fields(step: Merge, scope: Scope) -> Document:
    """The declaration after fields became the values of a collection."""
    sources = [scope.field(name, "fields") for name in step.fields]
    first, *others = [source.declared for source in sources]
    unlike = [other for other in others if not same_type(first, other, scope.known)]
    if unlike and not CONTAINERS[step.how].mixed:
        wider = _wider(step, scope)
        if wider is None:
            shown = f"{format_type(first)} and {format_type(unlike[0])}"
            message = f"expected fields of one type for a {step.how}, got {shown}"
            hint = "change their types in steps before; `how: tuple` takes several"
            refuse("NQX310", "fields", message, hint)
        first = wider
    declared = whole_type(step.how, [first, *others])
    made = scope.adopt(step.into, declared, sources[0])
    return scope.replaced(step.fields, {step.into: made})


def _wider(step: Merge, scope: Scope) -> Type | None:
    """The type of the values in the new version, if the values of all the fields are of it as they are."""
    wanted = scope.wanted_field(step.into)
    if wanted is None or wanted.declared.sort != step.how:
        return None
    (part,) = wanted.declared.parts
    held = (scope.type(name) for name in step.fields)
    return part if all(readable_as(each, part, scope.known) for each in held) else None


def merge_nodes(step: Merge, place: Place) -> Node:
    """The instance with the nodes of fields in one of a collection."""
    nodes = {name: place.field(name) for name in step.fields}
    keyed = step.how == DICT.tag
    items = [[name, node] for name, node in nodes.items()] if keyed else [*nodes.values()]
    made = CONTAINERS[step.how].kind.node(items=items)
    return place.swapped(tuple(nodes), {step.into: made})


def merged_places(step: Merge) -> Places:
    """The places of the fields in a list or tuple; no path reaches one value of a dict."""
    if step.how == DICT.tag or step.how not in CONTAINERS:
        return {}
    return {(name,): (step.into, index) for index, name in enumerate(step.fields)}


# ---------------------------------------------------------------------------------------------------------------------
# split


def split_values(step: Split, scope: Scope) -> Document:
    """The declaration after the values of a collection became fields."""
    source, names = scope.field(step.field), [*step.into]
    types = _types(step, source.declared)
    if len({*names}) < len(names) or not names:
        refuse("NQX304", "into", f"expected distinct names, got {names}")
    made = {}
    for name, declared in zip(names, types, strict=True):
        scope.require_free(name, "into", leaving=(step.field,))
        made[name] = scope.adopt(name, declared, source)
    return scope.replaced((step.field,), made)


def _types(step: Split, declared: Type) -> Sequence[Type]:
    """The types of the values."""
    names = [*step.into]
    if isinstance(step.into, dict):
        message = f"expected names alone for the values of a {step.how}, got sizes"
        refuse("NQX309", "into", message, f"write `into: [{', '.join(names)}]`")
    if declared.sort != step.how:
        refuse("NQX304", "field", f"expected a {step.how}, got {format_type(declared)}")
    types = declared.parts_for(len(names))
    if types is None or any(constant(size) not in (None, len(names)) for size in declared.extents):
        message = f"expected as many names as {format_type(declared)} has values, got {len(names)}"
        refuse("NQX309", "into", message)
    return types


def split_nodes(step: Split, place: Place) -> Node:
    """The instance with the nodes in one of a collection as fields."""
    node, names = place.field(step.field), [*step.into]
    declared = place.before.structs[place.struct].fields[step.field].declared
    held = {key: item for key, _, item in declared.children(node)}
    keys = names if step.how == DICT.tag else [*range(len(names))]
    if held.keys() != {*keys} or isinstance(node, str):
        got = shown_node(node)
        if step.how == DICT.tag and held:
            got = f"the keys {listed(map(str, held))}"
        message = f"expected a {step.how} of {len(names)} values for {', '.join(names)}, got {got}"
        raise place.error("NQX411", message, step.field, hint=TAKES)
    made = {name: held[key] for name, key in zip(names, keys, strict=True)}
    return place.swapped((step.field,), made)


def split_places(step: Split) -> Places:
    """The inverse of :func:`merged_places`."""
    if step.how == DICT.tag or step.how not in CONTAINERS:
        return {}
    return {(step.field, index): (name,) for index, name in enumerate(step.into)}


def review_split_values(step: Split, scope: Scope) -> Iterator[Diagnostic]:
    """Yields NQX320 where a type does not show the number of values, or their keys."""
    declared = scope.type(step.field)
    if step.how == DICT.tag:
        yield may_stop(f"with a dict that has other keys than {', '.join(step.into)}", "field")
    elif not declared.fixed_parts or any(
        not same_size(size, extent(len(step.into)), scope.known) for size in declared.extents
    ):
        yield may_stop(f"with a {step.how} that has not {len(step.into)} values", "field")


def merge_back(step: Split) -> Merge:
    """The step that undoes a split."""
    return Merge(fields=[*step.into], into=step.field, how=step.how)


def split_back(step: Merge) -> Split:
    """The step that undoes a merge."""
    return Split(field=step.into, into=[*step.fields], how=step.how)


# ---------------------------------------------------------------------------------------------------------------------
# Candidates.


def collection_merges(edit: Edit, *, named: bool) -> Iterator[Candidate]:
    """Yields merges of fields into a new collection: with ``named`` numbered fields, else those of one type."""
    if not named and not edit.is_small:
        return
    found: dict[tuple[bool, str], list[tuple[str, ...]]] = {}
    for whole, declaration in edit.come.items():
        for how in _hows(declaration.declared):
            # Arrays that are parts of another one are those of `joints.py`.
            is_array = bool(declaration.declared.element)
            if (is_array, how) not in found:
                some = {n: d for n, d in edit.gone.items() if not (is_array and d.declared.element)}
                groups = numbered(some) if named else _of_one_type(how, some, edit)
                found[is_array, how] = [*groups]
            for parts in found[is_array, how]:
                if whole not in parts:
                    yield from _collected(edit, whole, parts, how, 0.1 if named else 0.8)


def _collected(
    edit: Edit, whole: str, parts: Sequence[str], how: Any, cost: float
) -> Iterator[Candidate]:
    """Yields the steps that gather values and give the collection its type."""
    step = Merge(fields=[*parts], into=whole, how=how, **edit.place)
    question = f": are they its values, {CONTAINERS[how].order}?"
    for more in islice(edit.change(whole, edit.come[whole], (step,)), 1):
        yield Candidate(tuple(parts), (whole,), (step, *more), cost, question)


def _hows(declared: Type) -> Iterator[str]:
    """Yields the collections that a type is, or is made of."""
    for option in declared.solid[:1]:
        if option.sort in CONTAINERS:
            yield option.sort
        elif option.listed is not None:
            yield option.listed.sort


_NUMBERED = re.compile(r"(.*?)_?(\d{1,9})")


def numbered(names: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yields the names that differ in a number at their end alone, in the order of the numbers.

    Example:
        >>> [*numbered(["layer_1", "norm", "layer_0", "layer_10"])]
        [('layer_0', 'layer_1', 'layer_10')]
    """
    groups: dict[str, dict[int, str]] = {}
    for name in names:
        found = _NUMBERED.fullmatch(name)
        if found:
            groups.setdefault(found[1], {}).setdefault(int(found[2]), name)
    for group in groups.values():
        if len(group) > 1:
            yield tuple(group[number] for number in sorted(group))


def _of_one_type(how: str, fields: Fields, edit: Edit) -> Iterator[tuple[str, ...]]:
    """Yields the fields of one type, in the order of their declarations; all of them where types may differ."""
    groups: list[list[str]] = []
    for name, declaration in fields.items():
        for group in groups:
            first = fields[group[0]].declared
            alike = same_type(first, declaration.declared, edit.known)
            if alike or CONTAINERS[how].mixed:
                group.append(name)
                break
        else:
            groups.append([name])
    for group in groups:
        declared = fields[group[0]].declared
        # A number or a text alone shows too little.
        shown = declared.refers or declared.axes or declared.key_impl
        if len(group) > 1 or (CONTAINERS[how].alone and shown and len(groups) == 1):
            yield tuple(group)
