"""Node kinds of a manifest: one record for each, the nodes below a node, and key paths of all nodes.

A record names the model of its nodes, from which the places of child nodes follow, and how ``inspect`` shows a node. Codecs
(``codecs/``) convert between nodes and Python values.

Example:
    >>> node = LIST.node(items=[7, ARRAY.node(name="w", dtype="float32", shape=[2])])
    >>> node["__kind__"], [child for _, child in children(node)][0]
    ('list', 7)
    >>> ARRAY.matches(node), kind_of(node["items"][1]).show(node["items"][1]).text
    (False, 'float32[2]')
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any, Final, Literal, NamedTuple

from neuralqx_struct.manifest import models as m
from neuralqx_struct.manifest.constraints import NODE_MODELS, mode_of, tag_of, validator
from neuralqx_struct.paths import FieldName, Path
from neuralqx_struct.printing import array_text, brief_scalar

Node = Any
Keys = tuple[Any, ...]


class ArrayType(NamedTuple):
    """Dtype and shape of an array that is not read, as filters see them."""

    dtype: str
    shape: tuple[int, ...]


class Shown(NamedTuple):
    """A node as ``inspect`` shows it.

    Attributes:
        text: Its type, such as ``complex64[12, 48]``, ``int`` or ``VMCState``.
        value: Text of its value, for scalars.
        array: Dtype and shape, for arrays.
        name: The name of its stored array.
    """

    text: str
    value: str = ""
    array: ArrayType | None = None
    name: str = ""


# How a member holds child nodes.
ONE: Final = "node"
MANY: Final = "nodes"
PAIRS: Final = "pairs"
FIELDS: Final = "fields"
_HOLDS: Final[dict[Any, str]] = {
    m.Node: ONE,
    m.Part: ONE,
    m.Integer: ONE,
    m.Scalar: ONE,
    m.Length: ONE,
    m.KeyData: ONE,
    list[m.Node]: MANY,
    list[m.Pair]: PAIRS,
    dict[str, m.Node]: FIELDS,
}
Parts = tuple[tuple[str, str], ...]


def _parts(model: type) -> Parts:
    members = model.__annotations__.items()
    return tuple((name, _HOLDS[kind]) for name, kind in members if kind in _HOLDS)


@dataclass(frozen=True, slots=True, eq=False)
class NodeKind:
    """One kind of node.

    Attributes:
        model: Class of its nodes; several that differ by their member ``mode``.
        show: How ``inspect`` shows a node.
        leaf: Whether a node represents one value, so that nodes below it are parts of that.
        inline: A member whose node takes the place of this one in key paths.
        keys: A member whose node may hold the keys of the nodes inside.
        sort: Which values schemas see in it: ``array``, ``number``, ``key``, ``name``, ``list``, ``tuple``, ``dict``,
            ``struct`` or ``other``.
        elements: Where an array has its elements: ``stored`` in a file, or ``constant``, all the same; empty for others.
        tag: The value of ``__kind__``.
        parts: Members with child nodes, and how they hold them; by mode if there are several models.
    """

    model: type | tuple[type, ...]
    show: Callable[[Mapping[str, Any]], Shown]
    leaf: bool
    inline: str | None = None
    keys: str | None = None
    sort: str = "other"
    elements: Literal["", "stored", "constant"] = ""
    tag: str = field(init=False)
    parts: Parts = field(init=False)
    modes: Mapping[str, Parts] = field(init=False)

    def __post_init__(self) -> None:
        models = self.models
        modes = {} if len(models) == 1 else {mode_of(model): _parts(model) for model in models}
        object.__setattr__(self, "tag", tag_of(models[0]))
        object.__setattr__(self, "parts", _parts(models[0]))
        object.__setattr__(self, "modes", modes)

    @property
    def models(self) -> tuple[type, ...]:
        """All models of the kind."""
        return self.model if isinstance(self.model, tuple) else (self.model,)

    def matches(self, node: Node) -> bool:
        """Returns whether a node is of this kind."""
        return type(node) is dict and node["__kind__"] == self.tag

    def within(self, root: Node) -> list[tuple[Path, dict[str, Node]]]:
        """All nodes of this kind in a valid tree with their key paths, from top to bottom; callers may change them."""
        nodes = iter_nodes(root, self.leads_to)
        return [(path, node) for path, node in nodes if self.matches(node)]

    def leads_to(self, node: Node) -> bool:
        """True if a node is of this kind or has children: paths of the others would cost more than the walk."""
        if type(node) is not dict:
            return False
        kind = KINDS[node["__kind__"]]
        return kind is self or bool(kind.parts or kind.modes)

    def node(self, **members: Node) -> dict[str, Node]:
        """A node of this kind."""
        return {"__kind__": self.tag, **members}


# ----------------------------------------------------------------------------------------------------------------------
# How inspect shows nodes.


def _show_array(node: Mapping[str, Any]) -> Shown:
    shape = tuple(node["shape"])
    text = array_text(node["dtype"], shape)
    value = brief_scalar(node["value"]) if "value" in node else ""
    return Shown(text, value, ArrayType(node["dtype"], shape), node.get("name", ""))


def _show_key(node: Mapping[str, Any]) -> Shown:
    data, impl = node["data"], node["impl"]
    shape = tuple(data["shape"][:-1])
    text = f"prng_key[{', '.join([impl, *map(str, shape)])}]"
    return Shown(text, "", ArrayType(f"key<{impl}>", shape), data["name"])


def _show_class(node: Mapping[str, Any]) -> Shown:
    return Shown(node["type"].rpartition(":")[2])


def _show_container(node: Mapping[str, Any]) -> Shown:
    return Shown(f"{node['__kind__']} of {len(node['items'])}")


def _show_bytes(node: Mapping[str, Any]) -> Shown:
    return Shown(node["__kind__"], f"{len(node['base64']) * 3 // 4} B")


def _show_parts(*members: str) -> Callable[[Mapping[str, Any]], Shown]:
    def show(node: Mapping[str, Any]) -> Shown:
        return Shown(node["__kind__"], ", ".join(brief_scalar(node[name]) for name in members))

    return show


def _show_plain(node: Node) -> Shown:
    if node is None:
        return Shown("null")
    return Shown(type(node).__name__, brief_scalar(node))


# ----------------------------------------------------------------------------------------------------------------------
# The table.


def _container(model: type, sort: str = "other") -> NodeKind:
    return NodeKind(model, _show_container, leaf=False, sort=sort)


STRUCT: Final = NodeKind(m.StructNode, _show_class, leaf=False, sort="struct")
ARRAY: Final = NodeKind(m.ArrayNode, _show_array, leaf=True, sort="array", elements="stored")
DICT: Final = _container(m.DictNode, "dict")
LIST: Final = _container(m.ListNode, "list")
TUPLE: Final = _container(m.TupleNode, "tuple")
COMPLEX: Final = NodeKind(m.ComplexNode, _show_parts("real", "imag"), leaf=True)
NUMPY_SCALAR: Final = NodeKind(
    m.NumpyScalarNode,
    lambda node: Shown(f"numpy {node['dtype']}", brief_scalar(node["value"])),
    sort="number",
    leaf=True,
    elements="constant",
)
BYTES: Final = NodeKind(m.BytesNode, _show_bytes, leaf=True)
BYTEARRAY: Final = NodeKind(m.BytearrayNode, _show_bytes, leaf=True)
FLOAT: Final = NodeKind(m.FloatNode, lambda node: Shown("float", node["value"]), leaf=True)
BIGINT: Final = NodeKind(
    m.BigintNode, lambda node: Shown("int", brief_scalar(node["value"]).strip("'")), leaf=True
)
ENUM: Final = NodeKind(
    m.EnumNode,
    lambda node: Shown(node["type"].rpartition(":")[2], node["name"]),
    leaf=True,
    sort="name",
)
PRNG_KEY: Final = NodeKind(m.PrngKeyNode, _show_key, leaf=True, sort="key")
EXTERNAL: Final = NodeKind(m.ExternalNode, lambda node: Shown("external", node["name"]), leaf=True)
FULL: Final = NodeKind(m.FullNode, _show_array, leaf=True, sort="array", elements="constant")

#: All kinds by tag, in the order of the published schema.
KINDS: Final[dict[str, NodeKind]] = {}


def register_kind(kind: NodeKind) -> None:
    """Adds a kind to the table; the same one may be added again.

    Raises:
        ValueError: Another kind has this tag.
    """
    if KINDS.setdefault(kind.tag, kind) is not kind:
        raise ValueError(f"node kind {kind.tag!r}: expected a new tag, got one that is taken")
    NODE_MODELS[kind.tag] = kind.models
    validator.cache_clear()


def unregister_kind(kind: NodeKind) -> None:
    """Removes a kind from the table."""
    KINDS.pop(kind.tag, None)
    NODE_MODELS.pop(kind.tag, None)
    validator.cache_clear()


for _kind in (
    STRUCT,
    ARRAY,
    DICT,
    _container(m.OrderedDictNode, "dict"),
    _container(m.DefaultdictNode),
    _container(m.CounterNode),
    _container(m.MappingProxyNode),
    LIST,
    TUPLE,
    _container(m.SetNode),
    _container(m.FrozensetNode),
    _container(m.DequeNode),
    COMPLEX,
    NodeKind(m.PathNode, _show_parts("value"), leaf=True),
    NUMPY_SCALAR,
    NodeKind(
        (m.RegisteredPytreeFlattenNode, m.RegisteredPytreeSerializerNode),
        _show_class,
        leaf=False,
        inline="payload",
        keys="aux",
    ),
    NodeKind(m.NamedtupleNode, _show_class, leaf=False),
    BYTES,
    BYTEARRAY,
    NodeKind(m.ReferenceNode, lambda node: Shown("reference", node["name"]), leaf=True),
    NodeKind(m.RangeNode, _show_parts("start", "stop", "step"), leaf=True),
    FLOAT,
    BIGINT,
    ENUM,
    NodeKind(m.DtypeNode, lambda node: Shown("dtype", node["value"]), leaf=True),
    NodeKind(m.SliceNode, _show_parts("start", "stop", "step"), leaf=True),
    NodeKind(m.DatetimeNode, lambda node: Shown(node["type"], node["value"]), leaf=True),
    PRNG_KEY,
    NodeKind(m.PytreeDataclassNode, _show_class, leaf=False),
    FULL,
    EXTERNAL,
):
    register_kind(_kind)


# ----------------------------------------------------------------------------------------------------------------------
# Walks over valid nodes.


def kind_of(node: Node) -> NodeKind | None:
    """The kind of a node, or None for a plain JSON value."""
    return KINDS[node["__kind__"]] if type(node) is dict else None


def elements_of(node: Node) -> str:
    """Where an array has its elements, see :class:`NodeKind`; empty for any other node."""
    kind = kind_of(node)
    return "" if kind is None else kind.elements


def show(node: Node) -> Shown:
    """A node as ``inspect`` shows it."""
    kind = kind_of(node)
    return _show_plain(node) if kind is None else kind.show(node)


def shown_node(node: Node) -> str:
    """A node as messages show it: the value of a scalar, the type and size of others.

    Example:
        >>> shown_node({"__kind__": "full", "dtype": "int8", "shape": [2], "value": 7})
        'int8[2], all 7'
    """
    shown = show(node)
    if shown.value and shown.array is None:
        return shown.value
    return f"{shown.text}, all {shown.value}" if shown.value else shown.text


def marks_of(node: Node, marks: Iterable[str] = ("leaf", "weak_type")) -> dict[str, Node]:
    """Those of the marks of an array that its node has; a scalar of numpy is an array of numpy."""
    held = {"leaf": "numpy"} if NUMPY_SCALAR.matches(node) else node
    return {mark: held[mark] for mark in marks if mark in held}


def parts_of(node: dict[str, Node]) -> Parts:
    """The members of a node that hold child nodes, and how they hold them."""
    kind = KINDS[node["__kind__"]]
    return kind.modes[node["mode"]] if kind.modes else kind.parts


def children(node: Node) -> Iterator[tuple[Keys, Node]]:
    """Yields the nodes right below a node, each with its JSON path from there.

    Example:
        >>> list(children(LIST.node(items=[7]))), list(children(DICT.node(items=[["k", 7]])))
        ([(('items', 0), 7)], [(('items', 0, 0), 'k'), (('items', 0, 1), 7)])
    """
    for member, holds in parts_of(node) if type(node) is dict else ():
        value = node[member]
        if holds == ONE:
            yield (member,), value
        elif holds == PAIRS:
            for index, (key, item) in enumerate(value):
                yield (member, index, 0), key
                yield (member, index, 1), item
        else:
            items = value.items() if holds == FIELDS else enumerate(value)
            for key, child in items:
                yield (member, key), child


def nodes_below(nodes: Iterable[Node]) -> tuple[list[Node], int]:
    """All nodes right below some nodes, at the least cost, and how many members the objects between them have."""
    below: list[Node] = []
    members = 0
    for node in nodes:
        if type(node) is not dict:
            continue
        members += len(node)
        kind = KINDS[node["__kind__"]]  # a call of parts_of would cost as much as the rest
        for member, holds in kind.modes[node["mode"]] if kind.modes else kind.parts:
            value = node[member]
            if holds == MANY:
                below += value
            elif holds == FIELDS:
                members += len(value)
                below += value.values()
            elif holds == PAIRS:
                below += chain.from_iterable(value)
            else:
                below.append(value)
    return below, members


def _plain_key(node: Node) -> Hashable:
    """A dict key as a part of a path: itself if it is plain, a tuple of plain keys, else its JSON."""
    if not isinstance(node, dict):
        return node  # type: ignore[no-any-return]
    if TUPLE.matches(node) and not any(isinstance(item, dict) for item in node["items"]):
        return tuple(node["items"])
    return json.dumps(node, sort_keys=True)


_field_name = lru_cache(maxsize=4096)(FieldName)  # the same few names in all nodes


def _named_children(node: Node) -> list[tuple[Hashable, Node]]:
    """The nodes right below a node, each with its part of a key path; keys that are plain values apart."""
    below: list[tuple[Hashable, Node]] = []
    for member, holds in parts_of(node) if type(node) is dict else ():
        value = node[member]
        if holds == FIELDS:
            below += [(_field_name(name), child) for name, child in value.items()]
        elif holds == MANY:
            below += enumerate(value)
        elif holds == ONE:
            below.append((_field_name(member), value))
        else:
            for index, (key, item) in enumerate(value):
                if isinstance(key, dict):
                    below.append((("key", index), key))
                below.append((_plain_key(key), item))
    return below


def iter_nodes(
    node: Node, leads_to: Callable[[Node], bool] = lambda _: True
) -> Iterator[tuple[Path, Node]]:
    """Yields every node of a valid tree with its key path, from top to bottom; without recursion.

    Fields of structs, namedtuples and dataclasses are :class:`~neuralqx_struct.paths.FieldName` parts, items of dicts
    have their key, items of sequences and children of pytrees their position. A key that is itself a node comes with
    the path of its dict and ``('key', position)``. Nodes below the first for which ``leads_to`` is false are left out.

    Example:
        >>> [path for path, _ in iter_nodes(STRUCT.node(type="m:A", fields={"x": 1}))]
        [(), ('x',)]
    """
    stack: list[tuple[Path, Node]] = [((), node)]
    while stack:
        here, node = stack.pop()
        yield here, node
        below = _named_children(node)
        below.reverse()
        stack += [((*here, part), child) for part, child in below if leads_to(child)]
