"""Entries inside one field, which the schema does not name: in dicts, Params, optimiser states, modules of other libraries.

A path leads through dicts by key, through namedtuples and dataclasses by field, and through sequences and the children of
registered classes by position. It starts at the field, or with ``of`` at every instance of a class in it. Contains the step
rename_path, and the parts of ``add`` and ``remove`` that reach into a field.

Example:
    >>> keys_of("net/enc"), keys_of(["a/b"])
    (('net', 'enc'), ('a/b',))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from neuralqx_struct.errors import Diagnostic, did_you_mean
from neuralqx_struct.evolution.payload_tree import TAKES, Place, copied
from neuralqx_struct.evolution.steps.operations import Scope, StepKind, builder, may_stop, refuse
from neuralqx_struct.evolution.values import shown_node
from neuralqx_struct.manifest.kinds import (
    DICT,
    FIELDS,
    MANY,
    ONE,
    PAIRS,
    STRUCT,
    iter_nodes,
    kind_of,
    parts_of,
)
from neuralqx_struct.paths import FieldName, Path
from neuralqx_struct.references import is_schema_ref
from neuralqx_struct.schema.migration import Add, Remove, RenamePath
from neuralqx_struct.schema.model import Document
from neuralqx_struct.types import Node, Type
from neuralqx_struct.types.text import format_type

#: The struct that has a dict of its own below its node; see ``params``.
_PARAMS = "neuralqx_struct.params:Params"

Keys = tuple[str, ...]
Change = Callable[[Node, Path], Node]


def keys_of(path: str | Sequence[str]) -> Keys:
    """The keys of a path: text with slashes between them, or a list of any names."""
    return tuple(path.split("/")) if isinstance(path, str) else tuple(path)


# ---------------------------------------------------------------------------------------------------------------------
# Declarations


def type_inside(step: RenamePath | Add | Remove, scope: Scope, member: str) -> Type:
    """The type at a path inside of the field of a step; the path is a member of the step.

    Raises:
        SchemaError: NQX304: a key is empty; NQX306: the schema names the values there.
    """
    declared = scope.type(step.field)
    keys = keys_of(getattr(step, member))
    if not all(keys):
        message = "expected names between the slashes, got an empty one"
        refuse("NQX304", member, message, "a list takes any names")
    if step.of is not None and declared.below != declared:
        shown = format_type(declared)
        message = f"expected a pytree, which may hold instances of {step.of}, got {shown}"
        refuse("NQX306", "of", message, "for structs of the schema write `in: ...`")
    end = inside(declared, len(keys))
    if end is None:
        shown = format_type(declared)
        message = f"expected a pytree or a dict with {len(keys)} levels, got {shown}"
        refuse("NQX306", member, message, "`in:` names a struct, whose fields need no path")
    return end


def inside(declared: Type, depth: int) -> Type | None:
    """The type some keys below a type, or None where payloads cannot choose keys."""
    if len(declared.branches) > 1:
        return inside(declared.solid[0], depth) if len(declared.solid) == 1 else None
    below = declared.below
    if depth == 0 or below == declared:
        return declared
    return None if below is None else inside(below, depth - 1)


# ---------------------------------------------------------------------------------------------------------------------
# Nodes with entries


class Entry(NamedTuple):
    """The place of an entry: a member of a node, how that holds nodes, and the key in it."""

    member: str
    holds: str
    key: Any


def _entries(node: Node) -> dict[str, Entry]:
    """The entries of a node by their names in paths; none of a node that the schema describes."""
    found: dict[str, Entry] = {}
    for member, holds in _parts(node):
        held = node[member]
        if holds == ONE:
            found[member] = Entry(member, holds, None)
        elif holds == PAIRS:
            for at, (key, _) in enumerate(held):
                if isinstance(key, str):
                    found[key] = Entry(member, holds, at)
        else:
            keys = range(len(held)) if holds == MANY else held
            found |= {str(key): Entry(member, holds, key) for key in keys}
    return found


def _parts(node: Node) -> Sequence[tuple[str, str]]:
    kind = kind_of(node)
    if kind is None or kind.leaf or (STRUCT.matches(node) and is_schema_ref(node["type"])):
        return ()
    return parts_of(node)


def _child(node: Node, entry: Entry) -> Node:
    held = node[entry.member]
    if entry.holds == ONE:
        return held
    return held[entry.key][1] if entry.holds == PAIRS else held[entry.key]


def _replaced(node: Node, entry: Entry, child: Node) -> Node:
    if entry.holds == ONE:
        return {**node, entry.member: child}
    held = node[entry.member].copy()
    held[entry.key] = [held[entry.key][0], child] if entry.holds == PAIRS else child
    return {**node, entry.member: held}


def _without(node: Node, entry: Entry) -> Node:
    held = node[entry.member].copy()
    del held[entry.key]
    return {**node, entry.member: held}


def _extended(node: Node, key: str, child: Node) -> Node | None:
    """The node with one entry more; None if it takes none of that name."""
    for member, holds in _parts(node):
        held = node[member]
        if holds == PAIRS:
            return {**node, member: [*held, [key, child]]}
        if holds == FIELDS:
            return {**node, member: {**held, key: child}}
        if holds == MANY and key.isdecimal() and len(key) < 9 and int(key) <= len(held):
            return {**node, member: [*held[: int(key)], child, *held[int(key) :]]}
    return None


def _is_params(node: Node) -> bool:
    return STRUCT.matches(node) and bool(node["type"] == _PARAMS)


def _open(node: Node, at: Path, change: Change) -> Node:
    """The node with a change to the one that has its entries, which may be one right below it."""
    if _is_params(node):
        inner = change(node["fields"]["tree"], (*at, FieldName("tree")))
        return {**node, "fields": {**node["fields"], "tree": inner}}
    kind = kind_of(node)
    inline = "" if kind is None else kind.inline
    if inline and (inline, ONE) in _parts(node):
        return {**node, inline: change(node[inline], at)}
    return change(node, at)


def _found(node: Node, key: str, place: Place, at: Path) -> Entry:
    """An entry of a node.

    Raises:
        EntryError: NQX414: it has none of that name.
    """
    entries = _entries(node)
    if not entries and not _parts(node):
        message = f"expected a dict, a list or an instance of a class, got {shown_node(node)}"
        raise place.entry_error("NQX414", message, *at, hint=TAKES)
    if key not in entries:
        hint = did_you_mean(key, entries) or TAKES
        raise place.entry_error("NQX414", "expected a stored entry, got none", *at, key, hint=hint)
    return entries[key]


def entry_at(node: Node, keys: Keys, place: Place, at: Path) -> Node:
    """The node at a path; raises EntryError NQX414 if there is none."""
    found: list[Node] = []

    def look(node: Node, at: Path) -> Node:
        found.append(_child(node, _found(node, keys[0], place, at)))
        return node

    _open(node, at, look)
    return found[0] if len(keys) == 1 else entry_at(found[0], keys[1:], place, (*at, keys[0]))


def taken(
    node: Node, keys: Keys, place: Place, at: Path, *, flat: bool = False
) -> tuple[Node, Node]:
    """The value at a path, and the node without it.

    Args:
        node: The node.
        keys: The path.
        place: The struct instance.
        at: The path of the node.
        flat: Drop the dicts that the value leaves empty: inside of Params, whose parameters alone have paths.
    """
    moved: list[Node] = []
    flat = flat or _is_params(node)

    def take(node: Node, at: Path) -> Node:
        head, *rest = keys
        entry = _found(node, head, place, at)
        child = _child(node, entry)
        if not rest:
            moved.append(child)
            return _without(node, entry)
        inner, left = taken(child, tuple(rest), place, (*at, head), flat=flat)
        moved.append(inner)
        if flat and _holds_only(left, ()):
            return _without(node, entry)
        return _replaced(node, entry, left)

    left = _open(node, at, take)
    return moved[0], left


def _holds_only(node: Node, keys: Keys) -> bool:
    """True for a plain dict that holds nothing but dicts, one in another, under these keys."""
    if not DICT.matches(node) or len(node["items"]) != len(keys[:1]):
        return False
    return not keys or _holds_only(node["items"][0][1], keys[1:])


def put(node: Node, keys: Keys, child: Node, place: Place, at: Path) -> Node:
    """The node with a value at a path where there was none; raises NQX414 and NQX415."""

    def insert(node: Node, at: Path) -> Node:
        head, *rest = keys
        entries = _entries(node)
        entry = entries.get(head)
        if rest and entry is not None:
            made = put(_child(node, entry), tuple(rest), child, place, (*at, head))
            return _replaced(node, entry, made)
        if entry is not None and entry.holds != MANY:
            raise place.entry_error(
                "NQX415", "expected no stored entry there, got one", *at, head, hint=TAKES
            )
        made = child
        if rest:
            if not any(holds == PAIRS for _, holds in _parts(node)):
                _found(node, head, place, at)
            made = put(DICT.node(items=[]), tuple(rest), child, place, (*at, head))
        extended = _extended(node, head, made)
        if extended is None:
            _found(node, head, place, at)
        return extended

    return _open(node, at, insert)


def at_each(step: RenamePath | Add | Remove, place: Place, change: Change) -> Node:
    """The instance with a change to the value of the step's field, or to every instance of a class in it."""
    held = place.field(step.field)
    if held is None:
        return place.node
    if step.of is None:
        return place.with_fields({step.field: change(held, (step.field,))})
    tree = [copied(held)] if isinstance(held, dict) else [held]
    inside = [*iter_nodes(tree[0])]
    instances = [(path, node) for path, node in inside if _is_instance(node, step.of)]
    if not instances:
        classes = dict.fromkeys(
            node["type"].rpartition(":")[2] for _, node in inside if _has_class(node)
        )
        got = ", ".join([*classes][:8]) or "none"
        hint = did_you_mean(step.of, classes) or "name one of the classes of the values"
        message = f"expected instances of {step.of}, got {got}"
        raise place.entry_error("NQX414", message, step.field, hint=hint)
    for path, node in reversed(instances):
        made = change(node, (step.field, *path))
        node.clear()
        node.update(made)
    return place.with_fields({step.field: tree[0]})


def instances_of(step: RenamePath | Add | Remove) -> str:
    """The words for payloads that lack the instances that a step reaches, before those for the entry."""
    return "" if step.of is None else f"instances of {step.of}, "


def _has_class(node: Node) -> bool:
    """True if a node is an instance of a class that the schema does not describe."""
    return kind_of(node) is not None and bool(_parts(node)) and "type" in node


def _is_instance(node: Node, name: str) -> bool:
    """True if a node is an instance of a class, named with or without its module."""
    return _has_class(node) and name in (node["type"], node["type"].rpartition(":")[2])


# ---------------------------------------------------------------------------------------------------------------------
# rename_path


def _rename_path(step: RenamePath, scope: Scope) -> Document:
    """The declaration itself: the types at both paths must be equal."""
    first, second = (type_inside(step, scope, member) for member in ("path", "to"))
    if keys_of(step.path) == keys_of(step.to):
        refuse("NQX306", "to", "expected another path, got the same", "remove the step")
    if first != second:
        message = f"expected a path to {format_type(first)}, as the other is, got one to {format_type(second)}"
        refuse("NQX306", "to", message)
    return scope.document


def _rename_path_payload(step: RenamePath, place: Place) -> Node:
    path, to = keys_of(step.path), keys_of(step.to)

    def change(node: Node, at: Path) -> Node:
        moved, rest = taken(node, path, place, at)
        if path[: len(to)] == to and not _is_params(node):
            around, left = taken(rest, to, place, at)
            if _holds_only(around, path[len(to) : -1]):  # the value takes its place
                rest = left
        return put(rest, to, moved, place, at)

    return at_each(step, place, change)


def _review_path(step: RenamePath, _: Scope) -> Iterator[Diagnostic]:
    """Yields NQX320: the declaration does not have the paths."""
    path, to = ("/".join(keys_of(each)) for each in (step.path, step.to))
    where = f"without {instances_of(step)}{path}, or with {to}"
    yield may_stop(where, "path")


rename_path = builder(RenamePath)
RENAME_PATH = StepKind(
    model=RenamePath,
    declare=_rename_path,
    rewrite=_rename_path_payload,
    inverse=lambda step, *_: [step.model_copy(update={"path": step.to, "to": step.path})],
    cost="manifest",
    review=_review_path,
)
