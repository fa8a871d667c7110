"""Trees without Struct classes, read by a schema: dicts, lists, and objects of other libraries become the structs that it declares.

A bundle of a plain tree names no struct. Its values are matched by their keys: a dict, a namedtuple or an object of a registered
class is a struct if the schema declares one there; keys ``0``, ``1``, ... or ``layers_0``, ``layers_1``, ... are a list; an object
that wraps one value, such as a variable of Flax, is that value.

Example:
    >>> numbered(["1", "0"]), numbered(["a"]), numbered_names(["l_0", "l_1", "w"])
    (['0', '1'], None, {'l': ['l_0', 'l_1']})
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from neuralqx_struct.manifest.kinds import (
    EXTERNAL,
    FIELDS,
    LIST,
    MANY,
    PAIRS,
    STRUCT,
    Node,
    NodeKind,
    children,
    kind_of,
    parts_of,
)
from neuralqx_struct.paths import FieldName
from neuralqx_struct.references import is_schema_ref
from neuralqx_struct.schema.conformance import Seen, see_node
from neuralqx_struct.schema.model import Document, FieldDeclaration

Entries = Mapping[Any, Node]

#: Sorts of values with an order.
_SEQUENCES = ("list", "tuple")
_NUMBERED = re.compile(r"(.*?)(_?)(0|[1-9][0-9]{0,6})", re.DOTALL)


def entries(node: Node) -> Entries | None:
    """The nodes inside a container by their names, keys or positions; None for values and for sets."""
    kind = kind_of(node)
    if kind is None or kind.leaf:
        return None
    for member, holds in parts_of(node):
        value = node[member]
        if holds == FIELDS:
            return value  # type: ignore[no-any-return]
        if holds == PAIRS:
            return _by_key(value)
        if holds == MANY:
            return _by_position(kind, node, value)
    return None


def _by_key(pairs: list[tuple[Node, Node]]) -> Entries | None:
    """The values of a dict, unless a key is no plain value or two are equal."""
    if not all(isinstance(key, Hashable) for key, _ in pairs):
        return None
    found = dict(pairs)
    return found if len(found) == len(pairs) else None


def _by_position(kind: NodeKind, node: dict[str, Node], nodes: list[Node]) -> Entries | None:
    """The items of a list or tuple, or the children of a registered object by the keys that it holds."""
    if kind.keys is None:
        return dict(enumerate(nodes)) if kind.sort in _SEQUENCES else None
    named = _by_held_keys(node[kind.keys], nodes)
    return dict(enumerate(nodes)) if named is None else named


def _by_held_keys(keys: Node, nodes: list[Node]) -> Entries | None:
    """The children of a registered object by key; none if its other data are no keys."""
    held = see_node(keys)
    given = [*held.items.values()] if held.sort in _SEQUENCES else []
    if len(given) != len(nodes) or not all(type(key) in (int, str) for key in given):
        return None
    return _by_key([*zip(given, nodes, strict=True)])


def unboxed(node: Node) -> Node:
    """The one value that objects of other libraries wrap; other nodes stay."""
    while (kind := kind_of(node)) is not None and kind.keys is not None:
        inside = [child for (member, *_), child in children(node) if member != kind.keys]
        if len(inside) != 1 or _by_held_keys(node.get(kind.keys), inside) is not None:
            break
        (node,) = inside
    return node


def numbered(keys: Iterable[Any]) -> list[Any] | None:
    """Keys ``0``, ``1``, ... in their order, as numbers or as text; None for others and for no keys."""
    known = [*keys]
    for kind in (int, str):
        wanted = [kind(number) for number in range(len(known))]
        if known and {*known} == {*wanted} and all(type(key) is kind for key in known):
            return wanted
    return None


def numbered_names(names: Iterable[str]) -> dict[str, list[str]]:
    """The names ``layers_0``, ``layers_1``, ... or ``layers0``, ``layers1``, ... by the part before the number."""
    groups: dict[tuple[str, str], dict[int, str]] = {}
    for name in names:
        parts = _NUMBERED.fullmatch(name)
        if parts is not None and parts[1]:
            groups.setdefault((parts[1], parts[2]), {})[int(parts[3])] = name
    found: dict[str, list[str]] = {}
    for (prefix, _), group in groups.items():
        if {*group} == {*range(len(group))} and prefix not in found:
            found[prefix] = [group[number] for number in range(len(group))]
    return found


class Fit:
    """The view of a plain tree that the types of a document have.

    Attributes:
        document: The document whose names the types use.
        optional: Whether optional fields that the tree lacks are null.
    """

    def __init__(self, document: Document, *, optional: bool = False) -> None:
        self.document = document
        self.optional = optional

    def read(self, node: Node) -> Seen:
        """A node as types see it."""
        return see_node(node)

    def unboxed(self, node: Node) -> Node:
        """See :func:`unboxed`."""
        return unboxed(node)

    def positions(self, node: Node) -> list[Node] | None:
        """The items of a list, a tuple, or a container with the keys ``0``, ``1``, ...; None for others."""
        found = entries(unboxed(node))
        if not found:
            return None if found is None or see_node(unboxed(node)).sort == "dict" else []
        keys = numbered(found)
        return None if keys is None else [found[key] for key in keys]

    def named(self, node: Node) -> Entries | None:
        """The values of a container whose keys are text; None for others."""
        inside = unboxed(node)
        found = None if see_node(inside).sort in _SEQUENCES else entries(inside)
        return None if found is None or not all(isinstance(key, str) for key in found) else found

    def fields(self, struct: str, node: Node) -> dict[str, Node] | None:
        """The nodes of a container by the fields that a struct declares, then the rest; None if it has no names.

        Code for which there is no field is left out: it is no data.
        """
        found = self.named(node)
        if found is None:
            return None
        rest = dict(found)
        groups: Mapping[str, list[str]] | None = None
        made: dict[str, Node] = {}
        for field in self.document.structs[struct].stored:
            if field in rest:
                made[field] = rest.pop(field)
                continue
            groups = numbered_names(found) if groups is None else groups
            if field in groups:
                items = [rest.pop(name) for name in groups[field] if name in rest]
                made[field] = LIST.node(items=items)
        return made | {name: each for name, each in rest.items() if not EXTERNAL.matches(each)}

    def has_fields_of(self, name: str, node: Node) -> bool | None:
        """True if a container has the fields of a struct and no others; None if the name is that of no struct."""
        owner, struct = self.document.place_of(name)
        if struct not in owner.structs:
            return None
        if class_name(node) in owner.structs:
            return class_name(node) == struct
        fields = Fit(owner).fields(struct, node)
        return fields is not None and fields.keys() == owner.structs[struct].stored.keys()

    def struct(self, name: str, node: Node) -> Node:
        """A container as a struct of the document or of one that it uses; other nodes stay."""
        owner, struct = self.document.place_of(name)
        fit = self if owner is self.document else Fit(owner, optional=self.optional)
        fields = None if struct not in owner.structs else fit.fields(struct, node)
        return unboxed(node) if fields is None else fit.made(struct, fields)

    def made(self, struct: str, fields: Mapping[str, Node]) -> Node:
        """The node of a struct with its fields."""
        declared = self.document.structs[struct].stored
        made: dict[str, Node] = {}
        for name, node in fields.items():
            known = name in declared
            made[FieldName(name)] = declared[name].declared.fitted(node, self) if known else node
        for name, field in declared.items() if self.optional else ():
            if name not in made and is_optional(field):
                made[FieldName(name)] = None
        return STRUCT.node(type=self.document.ref(struct), fields=made)


def class_name(node: Node) -> str | None:
    """The name of the plain Python class of a struct; None for other nodes."""
    if not STRUCT.matches(node) or is_schema_ref(node["type"]):
        return None
    return re.split("[:.]", node["type"])[-1]


def is_optional(field: FieldDeclaration) -> bool:
    """True for fields whose default is null."""
    return field.has_default and field.default is None


def fitted(document: Document, root: Node, *, optional: bool = False) -> Node:
    """The root of a plain tree as the root struct of a document.

    A struct of a plain Python class has to have the name of the root. A struct with one field, such as ``value``, takes a
    root without names, such as a list or an array.

    Args:
        document: The version.
        root: The tree.
        optional: Optional fields that the tree lacks are null.
    """
    if STRUCT.matches(root) and class_name(root) != document.root:
        return root
    fit = Fit(document, optional=optional)
    declared = document.structs[document.root].stored
    fields = fit.fields(document.root, root)
    if len(declared) == 1 and (fields is None or not declared.keys() & fields.keys()):
        fields = dict.fromkeys(declared, root)
    return root if fields is None else fit.made(document.root, fields)
