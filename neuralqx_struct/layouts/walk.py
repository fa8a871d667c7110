"""The walk over a table: each array of a file or of a payload with its names in the file, and the tree around them.

The lengths of lists, the keys of dicts and which optional fields are null come from the names in a file
(``adoption.FileWalk``), or from the nodes of a payload (``release.PayloadWalk``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import inf
from typing import Any, Final

from neuralqx_struct.errors import Diagnostic, Hint, Keyword, SchemaError
from neuralqx_struct.layouts.frames import Frame, stacked
from neuralqx_struct.layouts.places import Leaf, Place, Values
from neuralqx_struct.layouts.table import (
    ArrayEntry,
    Entry,
    ItemsEntry,
    KeyEntry,
    OptionsEntry,
    PairsEntry,
    PlainEntry,
    StructEntry,
    Table,
)
from neuralqx_struct.manifest.kinds import DICT, PRNG_KEY, STRUCT
from neuralqx_struct.schema.sizes.solver import Solver
from neuralqx_struct.types import Node

#: Structs inside structs.
_DEEPEST: Final = 64


def value_hint(name: str) -> Hint:
    """The fix for a field or a size that no array shows."""
    return Hint(
        "pass ", Keyword("values", {name: ...}), ", or write it under `values:` in the layout"
    )


class Walk(ABC):
    """One walk over a table.

    Args:
        table: The table.
        prefix: The text in front of all names.
        values: The values that no array shows.

    Attributes:
        leaves: The arrays.
        found: The problems.
        dims: The sizes that all structs see.
        visits: The structs that were visited.
        most_visits: The structs that may be visited.
    """

    most_visits: float = inf

    def __init__(self, table: Table, prefix: str = "", values: Values | None = None) -> None:
        self.table, self.prefix = table, prefix
        self.document = table.document
        self.values = values or Values()
        self.leaves: list[Leaf] = []
        self.found: list[Diagnostic] = []
        self.dims = Solver(self.document.dims)
        self.visits = 0
        self._sizes: dict[str, int] = {}
        self._settings: dict[str, int] = {}
        self._ways: dict[type[Entry], Callable[[Any, Place], Node]] = {
            PlainEntry: self.plain,
            ArrayEntry: self.array,
            KeyEntry: self.key,
            StructEntry: self.struct,
            ItemsEntry: self.items,
            PairsEntry: self.pairs,
            OptionsEntry: self.options,
        }

    def run(self, node: Any = None) -> Node:
        """Walks from the root; returns its node."""
        root = self.table.root
        dims = self.dims.scope(root.bound) if root.bound else self.dims
        self._read_sizes(node)
        for name in sorted(self._sizes.keys() & self.document.dims.keys()):
            self.dims.know(name, self._sizes[name], "values")
        return self._fields(root, Place((), dims, (), (), node))

    def visit(self, entry: Entry, place: Place) -> Node:
        """The node of a value."""
        return self._ways[type(entry)](entry, place)

    def report(self, code: str, place: Place, message: str, hint: str | None = None) -> None:
        """Adds a problem."""
        self.found.append(Diagnostic(code, "error", message, path=place.text, hint=hint))

    # --- what is there -----------------------------------------------------------------------------------------------

    @abstractmethod
    def plain(self, entry: PlainEntry, place: Place) -> Node:
        """The node of a value without arrays."""

    @abstractmethod
    def nodes_of(self, entry: ItemsEntry, place: Place) -> Sequence[Any]:
        """The nodes of the items of a list or a tuple; None for each where only their number is known."""

    @abstractmethod
    def pairs_of(self, entry: PairsEntry, place: Place) -> Mapping[str, Any]:
        """The nodes of the values of a dict by key."""

    @abstractmethod
    def options(self, entry: OptionsEntry, place: Place) -> Node:
        """The node of a union."""

    @abstractmethod
    def layers(self, entry: StructEntry, place: Place) -> int | None:
        """The number of layers of a stacked struct whose arrays are apart in the file; None if only payloads show it."""

    @abstractmethod
    def array(self, entry: ArrayEntry, place: Place) -> dict[str, Any]:
        """The node of an array."""

    # --- structs -----------------------------------------------------------------------------------------------------

    def _read_sizes(self, node: Node) -> None:
        """Finds the sizes that the layout or the caller states, and the static numbers of the root."""
        fields = self.document.structs[self.document.root].stored
        sizes = self.values.sizes
        self._sizes = {name: size for name, size in sizes.items() if name not in fields}
        for name, declaration in fields.items():
            held = node["fields"].get(name) if node is not None else sizes.get(name)
            if held is None and node is None and declaration.has_default:
                held = declaration.default
            if declaration.kind == "static" and type(held) is int:
                self._settings[name] = held

    def struct(self, entry: StructEntry, place: Place) -> Node:
        """The node of a struct."""
        frames, numbers = place.frames, place.numbers
        if entry.axis is not None:
            frames = (*frames, Frame(entry.axis, None, None))
        elif entry.span is not None:
            count = self.layers(entry, place)
            if count is not None:
                length = entry.lead[-1:]
                self.found += place.scope.unify(length, (count,), place.text, "list")
            frames, numbers = (*frames, Frame(None, None, count, len(numbers))), (*numbers, "0")
        dims = None if entry.owner is entry.row.owner else entry.owner.dims
        scope = place.scope.scope(entry.bound, dims)
        return self._fields(entry, Place(numbers, scope, frames, place.path, place.node))

    def _fields(self, entry: StructEntry, place: Place) -> Node:
        self.visits += 1
        self._require_end(entry, place)
        if self._sizes or self._settings:
            self._know_sizes(entry, place.scope)
        made: dict[str, Node] = {}
        held = {} if place.node is None else place.node["fields"]
        for name, inside in entry.fields.items():
            path, node = (*place.path, inside.row.field), held.get(name)
            here = Place(place.numbers, place.scope, place.frames, path, node)
            node = made[name] = self.visit(inside, here)
            if type(node) is int and entry.is_root and inside.row.is_static:
                place.scope.know(name, node, here.text)
        return STRUCT.node(type=entry.ref, fields=made)

    def _require_end(self, entry: StructEntry, place: Place) -> None:
        """Raises NQX702 for structs inside of structs without an end."""
        if len(entry.row.keys) > _DEEPEST or self.visits > self.most_visits:
            message = "expected structs inside of structs that end, got too many"
            hint = "give optional fields names in the layout, so that the file shows where they end"
            raise SchemaError(message, code="NQX702", path=place.text[:200], hint=hint)

    def _know_sizes(self, entry: StructEntry, scope: Solver) -> None:
        """Gives a struct the sizes that the layout or the caller states."""
        for name, is_ruled in entry.sizes.items():
            given = self._settings if is_ruled and name in self._settings else self._sizes
            if name in given:
                self.values.used.add(name)
                scope.know(name, given[name], "values")

    # --- lists, dicts, keys ------------------------------------------------------------------------------------------

    def items(self, entry: ItemsEntry, place: Place) -> Node:
        """The node of a list or a tuple."""
        nodes, declared = self.nodes_of(entry, place), entry.declared
        count, length = len(nodes), declared.extents
        self.found += place.scope.unify(length, (count,) * len(length), place.text, declared.sort)
        if declared.parts_for(count) is None:
            message = f"expected another number of items, got {count}"
            self.report("NQX412", place, message)
            return {"__kind__": declared.sort, "items": []}
        same, axis = len(entry.inside) == 1, entry.row.rule.unstack
        made = []
        for index, node in enumerate(nodes):
            item = entry.inside[0 if same else index]
            frames, numbers = place.frames, place.numbers
            if axis is not None:
                frames = (*frames, Frame(axis, index, count))
            elif same:
                numbers = (*numbers, str(index))
            inside = Place(numbers, place.scope, frames, (*place.path, index), node)
            made.append(self.visit(item, inside))
        return {"__kind__": declared.sort, "items": made}

    def pairs(self, entry: PairsEntry, place: Place) -> Node:
        """The node of a dict."""
        made, (value,) = [], entry.inside
        for key, node in self.pairs_of(entry, place).items():
            numbers, path = (*place.numbers, key), (*place.path, key)
            inside = Place(numbers, place.scope, place.frames, path, node)
            made.append([key, self.visit(value, inside)])
        return DICT.node(items=made)

    def key(self, entry: KeyEntry, place: Place) -> Node:
        """The node of typed random keys; the file has their words."""
        impl = entry.declared.key_impl
        if not entry.inside:
            message = f"expected the implementation of the keys, got {impl}"
            self.report("NQX420", place, message, "declare it, such as prng_key[threefry2x32]")
            return None
        if place.node is not None:
            place = replace(place, node=place.node["data"])
        return PRNG_KEY.node(impl=impl, data=self.visit(entry.inside[0], place))

    # --- arrays ------------------------------------------------------------------------------------------------------

    def leaf(
        self,
        entry: ArrayEntry,
        place: Place,
        node: dict[str, Any],
        layers: Sequence[int],
        count: int,
    ) -> Leaf:
        """Adds an array.

        Args:
            entry: Its entry.
            place: Its place.
            node: Its node.
            layers: The numbers of layers whose arrays are apart in the file.
            count: The number of arrays in the file for each ``{i}`` in its names.
        """
        count = count if entry.span is not None else 1
        names = tuple(self._names(entry, place, layers, count))
        made = Leaf(place, entry, entry.form(count), node, names)
        self.leaves.append(made)
        return made

    def _names(
        self, entry: ArrayEntry, place: Place, layers: Sequence[int], count: int
    ) -> Iterator[str]:
        """Yields the names in the file: of every layer, and in it of every name of the rule."""
        slots = [frame.slot for frame in stacked(place.frames) if frame.slot is not None]
        numbers = [*place.numbers, ""]
        for places in product(*map(range, layers)):
            for slot, number in zip(slots, places, strict=True):
                numbers[slot] = str(number)
            for pattern in entry.names:
                for number in range(count):
                    numbers[-1] = str(number)
                    yield pattern.name(self.prefix, numbers)
