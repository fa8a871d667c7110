"""The step inside one field: rename_path, for what a field holds by keys of the payload and not by its declaration.

Params and other pytrees of dicts are declared as ``pytree``: their paths are not in the schema, so that ``rename`` cannot
name them. What the step does to a declaration, to one struct instance of a payload, and the step that leads back stand side by
side. ``steps.py`` has the table of all steps.

Example:
    >>> RENAME_PATH.cost
    'manifest'
"""

from __future__ import annotations

from neuralqx_struct.errors import MigrationError, did_you_mean
from neuralqx_struct.evolution.edits import Operation, declared_type, refuse, shown_node
from neuralqx_struct.evolution.tree import Place, kind_of
from neuralqx_struct.evolution.values import Node
from neuralqx_struct.paths import FieldName
from neuralqx_struct.schema.migration import RenamePath, Step
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.types import DictOf, Null, PyTree, Type, Union, format_type

__all__ = ["RENAME_PATH"]

#: The struct that holds a dict of its own below its node; see ``params.py``.
_PARAMS = "neuralqx_struct.params:Params"


def _parts(path: str | list[str]) -> tuple[str, ...]:
    return tuple(path.split("/")) if isinstance(path, str) else tuple(path)


def _declare(step: RenamePath, document: Document, target: Document) -> Document:
    """The declaration stays what it is; what the paths lead to must be of one type."""
    del target
    declared = declared_type(step, document)
    ends: list[Type] = []
    for member, path in (("path", _parts(step.path)), ("to", _parts(step.to))):
        if not all(path):
            refuse("NQX304", member, "expected names between the slashes, got an empty one", "a list takes any names")
        end = _inside(declared, len(path))
        if end is None:
            refuse(
                "NQX306",
                member,
                f"expected a pytree or a dict with {len(path)} levels, got {format_type(declared)}",
                "fields of structs are renamed with `rename`",
            )
        ends.append(end)
    if _parts(step.path) == _parts(step.to):
        refuse("NQX306", "to", "expected another path, got the same", "remove the step")
    if ends[0] != ends[1]:
        refuse(
            "NQX306",
            "to",
            f"expected a path to {format_type(ends[0])}, as the other is, got one to {format_type(ends[1])}",
        )
    return document


def _inside(declared: Type, depth: int) -> Type | None:
    """The type some keys below a type, or None where it has no keys that payloads choose."""
    if isinstance(declared, Union):
        found = [option for option in declared.options if option != Null()]
        return _inside(found[0], depth) if len(found) == 1 else None
    if depth == 0 or isinstance(declared, PyTree):
        return declared
    return _inside(declared.value, depth - 1) if isinstance(declared, DictOf) else None


def _rewrite(step: RenamePath, place: Place) -> Node:
    node = place.field(step.field)
    if node is None:
        return place.node
    holder = node if kind_of(node) == "struct" and node["type"] == _PARAMS else None
    at = (step.field,) if holder is None else (step.field, FieldName("tree"))
    tree = node if holder is None else holder["fields"]["tree"]
    moved, rest = _taken(tree, _parts(step.path), place, at)
    made = _put(rest, _parts(step.to), moved, place, at)
    changed = made if holder is None else {**holder, "fields": {**holder["fields"], "tree": made}}
    return {**place.node, "fields": {**place.node["fields"], step.field: changed}}


def _items(node: Node, place: Place, at: tuple[str, ...]) -> dict[str, Node]:
    """The entries of a dict under text; no path leads to others."""
    if kind_of(node) != "dict":
        raise MigrationError(f"expected a dict or Params, got {shown_node(node)}", code="NQX414", path=place.text(*at))
    return {key: child for key, child in node["items"] if isinstance(key, str)}


def _taken(node: Node, path: tuple[str, ...], place: Place, at: tuple[str, ...]) -> tuple[Node, Node]:
    """What stands at a path, and the dict without it and without what is empty then."""
    items = _items(node, place, at)
    head, *rest = path
    if head not in items:
        raise MigrationError(
            "expected a stored entry, got none",
            code="NQX414",
            path=place.text(*at, head),
            hint=did_you_mean(head, items),
        )
    if not rest:
        return items[head], _without(node, head)
    moved, left = _taken(items[head], tuple(rest), place, (*at, head))
    return moved, _with(node, head, left) if left["items"] else _without(node, head)


def _put(node: Node, path: tuple[str, ...], moved: Node, place: Place, at: tuple[str, ...]) -> Node:
    """The dict with something at a path where nothing was."""
    items = _items(node, place, at)
    head, *rest = path
    if not rest and head in items:
        raise MigrationError("expected no stored entry there, got one", code="NQX415", path=place.text(*at, head))
    if not rest:
        return _with(node, head, moved)
    below = items.get(head, {"__kind__": "dict", "items": []})
    return _with(node, head, _put(below, tuple(rest), moved, place, (*at, head)))


def _without(node: Node, key: str) -> Node:
    return {**node, "items": [item for item in node["items"] if item[0] != key]}


def _with(node: Node, key: str, child: Node) -> Node:
    """The dict with an entry, in its place or at the end."""
    items = [[k, child if k == key else held] for k, held in node["items"]]
    return {**node, "items": items if any(k == key for k, _ in items) else [*items, [key, child]]}


def _inverse(step: RenamePath, before: Document, after: Document) -> list[Step]:
    del before, after
    return [RenamePath(within=step.within, field=step.field, path=step.to, to=step.path)]


RENAME_PATH = Operation(_declare, _rewrite, _inverse, "manifest")
