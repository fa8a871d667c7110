"""The walk over a schema and a layout: each array of the schema with its names in the file, and the tree around them.

The lengths of lists, the keys of dicts and which optional fields are null come from the names in a file
(``adoption.FileWalk``), from the nodes of a payload (``release.PayloadWalk``), or are one example of each
(``coverage.SchemaWalk``). The records of types call the walk back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import inf
from typing import Any, Final

from neuralqx_struct.errors import Diagnostic, Hint, Keyword, SchemaError
from neuralqx_struct.evolution.sizes import extent
from neuralqx_struct.evolution.steps.keys import KEY_WORDS
from neuralqx_struct.layouts import KEY, NUMBER, Layout, Rule
from neuralqx_struct.layouts.forms import Form
from neuralqx_struct.layouts.frames import Frame, stacked
from neuralqx_struct.layouts.names import full, joined
from neuralqx_struct.layouts.places import (
    Leaf,
    Place,
    Values,
    holds_arrays,
    of_items,
    own_sizes,
    sizes_in,
)
from neuralqx_struct.manifest.kinds import DICT, PRNG_KEY, STRUCT
from neuralqx_struct.paths import FieldName
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.sizes import ANY_SIZE
from neuralqx_struct.schema.sizes.solver import Solver
from neuralqx_struct.schema.stacks import Axes, inner_axes, names_inside
from neuralqx_struct.types import Extent, Node, Type

#: Structs inside structs.
_DEEPEST: Final = 64
_NO_RULE: Final = Rule()
#: Marks the place of a number that all layers of a stacked struct share; no text of a layout has it.
LAYER: Final = "\0"


def value_hint(name: str) -> Hint:
    """The fix for a field or a size that no array shows."""
    return Hint(
        "pass ", Keyword("values", {name: ...}), ", or write it under `values:` in the layout"
    )


class Walk(ABC):
    """One walk over a document.

    Args:
        document: The version of the schema.
        layout: The layout.
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

    def __init__(
        self, document: Document, layout: Layout, prefix: str = "", values: Values | None = None
    ) -> None:
        self.document, self.layout, self.prefix = document, layout, prefix
        self.values = values or Values()
        self.leaves: list[Leaf] = []
        self.found: list[Diagnostic] = []
        self.dims = Solver(document.dims)
        self.visits = 0
        self._sizes: dict[str, int] = {}
        self._settings: dict[str, int] = {}
        self._known: dict[tuple[int, str], dict[str, int]] = {}

    def run(self, node: Any = None) -> Node:
        """Walks from the root; returns its node."""
        root, document = self.document.root, self.document
        free = dict.fromkeys(document.structs[root].params, ANY_SIZE)
        dims = self.dims.scope(free) if free else self.dims
        self._read_sizes(node)
        for name in sorted(self._sizes.keys() & document.dims.keys()):
            self.dims.know(name, self._sizes[name], "values")
        place = Place(document, root, "", None, Rule(), dims, (), "", (), (), (), node)
        return self._struct(document, root, place, dims)

    def report(self, code: str, place: Place, message: str, hint: str | None = None) -> None:
        """Adds a problem."""
        self.found.append(Diagnostic(code, "error", message, path=place.text, hint=hint))

    def label(self, owner: Document, struct: str) -> str:
        """The name of a struct in the layout; one of another schema has its identity in front."""
        return struct if owner is self.document else f"{owner.id}.{struct}"

    # --- what is there -----------------------------------------------------------------------------------------------

    @abstractmethod
    def plain(self, declared: Type, place: Place) -> Node:
        """The node of a value without arrays."""

    @abstractmethod
    def nodes_of(self, declared: Type, place: Place, base: str) -> Sequence[Any]:
        """The nodes of the items of a list or a tuple; None for each where only their number is known.

        Args:
            declared: Its type.
            place: The place of its items.
            base: Their name; its ``{i}`` is replaced by their numbers.
        """

    @abstractmethod
    def pairs_of(self, place: Place, base: str, *, whole: bool) -> Mapping[str, Any]:
        """The nodes of the values of a dict by key.

        Args:
            place: The place of the values.
            base: Their name; its ``{key}`` is replaced by their keys.
            whole: True if the key is the end of the name, so that it may have separators.
        """

    @abstractmethod
    def options(self, declared: Type, place: Place) -> Node:
        """The node of a union."""

    @abstractmethod
    def layers(self, place: Place) -> int | None:
        """The number of layers of a stacked struct whose arrays are apart in the file; None if only payloads show it."""

    @abstractmethod
    def array(
        self, dtypes: tuple[str, ...], shape: tuple[Extent, ...], place: Place
    ) -> dict[str, Any]:
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

    def _require_end(self, place: Place) -> None:
        """Raises NQX702 for structs inside of structs without an end."""
        if len(place.keys) > _DEEPEST or self.visits > self.most_visits:
            message = "expected structs inside of structs that end, got too many"
            hint = "give optional fields names in the layout, so that the file shows where they end"
            raise SchemaError(message, code="NQX702", path=place.text[:200], hint=hint)

    def _struct(self, owner: Document, name: str, place: Place, scope: Solver) -> Node:
        self.visits += 1
        self._require_end(place)
        rules = self.layout.rules(self.label(owner, name))
        self._know_sizes(owner, name, rules, scope)
        made: dict[str, Node] = {}
        held = {} if place.node is None else place.node["fields"]
        for field, declaration in self.fields_of(owner, name, place).items():
            rule, base = rules.get(field, _NO_RULE), place.base
            if not isinstance(rule.name, list):
                (part,) = rule.names(field)
                base = joined(base, part, self.layout.separator)
            inside = Place(
                owner,
                name,
                field,
                declaration,
                rule,
                scope,
                place.axes,
                base,
                place.frames,
                (*place.path, FieldName(field)),
                (*place.keys, field),
                held.get(field),
            )
            made[field] = self._field(declaration, inside)
            if declaration.kind == "static" and type(made[field]) is int:
                outermost = owner is not self.document or not place.keys
                if outermost and name == owner.root:
                    scope.know(field, made[field], inside.text)
        return STRUCT.node(type=owner.ref(name), fields=made)

    def fields_of(
        self,
        owner: Document,
        name: str,
        place: Place,  # noqa: ARG002 - for walks that stop
    ) -> Mapping[str, FieldDeclaration]:
        """The fields of a struct."""
        return owner.structs[name].stored

    def _know_sizes(
        self, owner: Document, name: str, rules: Mapping[str, Rule], scope: Solver
    ) -> None:
        """Gives a struct the sizes that the layout or the caller states."""
        key = (id(owner), name)
        if key not in self._known:
            own = own_sizes(owner, name)
            ruled = frozenset[str]().union(*map(sizes_in, rules.values()))
            sizes = {n: self._sizes[n] for n in (own | ruled) & self._sizes.keys()}
            sizes |= {n: self._settings[n] for n in (ruled - own) & self._settings.keys()}
            others = owner.dims.keys() | {*owner.structs[name].params}
            self._known[key] = {n: sizes[n] for n in sorted(sizes.keys() - others)}
        for size, number in self._known[key].items():
            self.values.used.add(size)
            scope.know(size, number, "values")

    def _field(self, declaration: FieldDeclaration, place: Place) -> Node:
        declared = declaration.declared
        if declaration.type is None or declaration.kind != "node":
            return self.plain(declared, place)
        return self.value(declared.with_axes(place.axes) if place.axes else declared, place)

    def value(self, declared: Type, place: Place) -> Node:
        """The node of a value of a type."""
        if not holds_arrays(declared, place.owner):
            return self.plain(declared, place)
        return declared.lay_out(self, place)

    # --- what the records of types call ------------------------------------------------------------------------------

    def struct(self, name: str, arguments: Axes, lead: Axes, place: Place) -> Node:
        """The node of a struct.

        Args:
            name: The struct, as the type names it.
            arguments: The sizes of its parameters.
            lead: The leading axes of its arrays.
            place: The place of the value.
        """
        owner, inner = place.owner.place_of(name)
        bound = dict(zip(owner.structs[inner].params, arguments, strict=False))
        place = self._framed(lead, place)
        axes: Axes = ()
        if lead:
            given, axes = inner_axes(lead, names_inside(owner, inner))
            bound = {**bound, **given}
        same = owner is place.owner
        scope = place.scope.scope(bound) if same else place.scope.scope(bound, owner.dims)
        return self._struct(owner, inner, replace(place, axes=axes, owner=owner), scope)

    def _framed(self, lead: Axes, place: Place) -> Place:
        """The place inside the leading axis that a stacked struct adds."""
        if len(lead) == len(place.axes):
            return place
        if NUMBER not in place.base:
            frame = Frame(place.rule.stack or 0, None, None, self._member(place, "stack"))
            return replace(place, frames=(*place.frames, frame))
        count = self.layers(place)
        if count is not None:
            self.found += place.scope.unify(lead[-1:], (count,), place.text, "list")
        base = place.base.replace(NUMBER, LAYER, 1)
        return replace(place, base=base, frames=(*place.frames, Frame(None, None, count)))

    def _member(self, place: Place, member: str) -> tuple[str, ...]:
        return ("structs", self.label(place.owner, place.struct), place.field, member)

    def items(self, declared: Type, place: Place) -> Node:
        """The node of a list or a tuple."""
        axis, base = place.rule.unstack, place.base
        if axis is None and NUMBER not in base:
            base = joined(base, NUMBER, self.layout.separator)
        inner = replace(place, rule=of_items(place.rule))
        nodes = self.nodes_of(declared, replace(inner, rule=place.rule), base)
        count = len(nodes)
        length, kind = declared.extents, declared.sort
        self.found += place.scope.unify(length, (count,) * len(length), place.text, kind)
        parts = declared.parts_for(count)
        if parts is None:
            message = f"expected another number of items, got {count}"
            self.report("NQX412", place, message)
            return {"__kind__": kind, "items": []}
        made = []
        for index, (part, node) in enumerate(zip(parts, nodes, strict=True)):
            inside = replace(inner, path=(*place.path, index), node=node)
            if axis is None:
                inside = replace(
                    inside, base=base.replace(NUMBER, self.number(index, place, declared), 1)
                )
            else:
                frame = Frame(axis, index, count, self._member(place, "unstack"))
                inside = replace(inside, frames=(*place.frames, frame))
            made.append(self.value(part, inside))
        return {"__kind__": kind, "items": made}

    def number(self, index: int, place: Place, declared: Type) -> str:  # noqa: ARG002 - without a file
        """The number of an item in names."""
        return str(index)

    def pairs(self, value: Type, place: Place) -> Node:
        """The node of a dict."""
        base = place.base
        if KEY not in base:
            base = joined(base, KEY, self.layout.separator)
        inner = replace(place, rule=of_items(place.rule))
        whole = base.endswith(KEY) and bool(value.element)
        made = []
        for key, node in self.pairs_of(place, base, whole=whole).items():
            inside = replace(inner, path=(*place.path, key), node=node)
            inside = replace(inside, base=base.replace(KEY, key, 1))
            made.append([key, self.value(value, inside)])
        return DICT.node(items=made)

    def key(self, dtype: str, shape: tuple[Extent, ...], impl: str, place: Place) -> Node:
        """The node of typed random keys; the file has their words."""
        words = KEY_WORDS.get(impl)
        if words is None:
            message = f"expected the implementation of the keys, got {impl}"
            self.report("NQX420", place, message, "declare it, such as prng_key[threefry2x32]")
            return None
        if place.node is not None:
            place = replace(place, node=place.node["data"])
        data = self.array((dtype,), (*shape, extent(words)), place)
        return PRNG_KEY.node(impl=impl, data=data)

    def bases_of(self, place: Place) -> tuple[str, ...]:
        """The names of an array; several if the rule lists them."""
        if not isinstance(place.rule.name, list):
            return (place.base,)
        separator = self.layout.separator
        return tuple(joined(place.base, part, separator) for part in place.rule.name)

    def leaf(
        self,
        dtypes: tuple[str, ...],
        shape: tuple[Extent, ...],
        place: Place,
        node: dict[str, Any],
        count: int,
    ) -> Leaf:
        """Adds an array.

        Args:
            dtypes: The dtypes that it may have.
            shape: Its declared shape.
            place: Its place.
            node: Its node.
            count: The number of arrays in the file for each ``{i}`` in its names.
        """
        bases = self.bases_of(place)
        merged = isinstance(place.rule.name, list)
        if any(NUMBER in base for base in bases):
            merged = True
            bases = tuple(
                base.replace(NUMBER, str(number), 1) for base in bases for number in range(count)
            )
        form = Form.of(place.rule, shape[len(place.axes) :], len(bases) if merged else None)
        made = Leaf(place, form, dtypes, node, tuple(self._names(bases, place)))
        self.leaves.append(made)
        return made

    def _names(self, bases: Sequence[str], place: Place) -> Iterator[str]:
        """Yields the full names, of every layer of stacked structs."""
        counts = self.layer_counts(place)
        for numbers in product(*map(range, counts)):
            for base in bases:
                name = base
                for number in numbers:
                    name = name.replace(LAYER, str(number), 1)
                yield full(name, self.prefix)

    def layer_counts(self, place: Place) -> list[int]:
        """The numbers of layers whose arrays are apart in the file."""
        return [frame.count or 0 for frame in stacked(place.frames) if frame.axis is None]


def until_mark(text: str) -> str:
    """The beginning of a name up to the place of a number or a key."""
    for mark in (NUMBER, KEY, LAYER):
        text = text.partition(mark)[0]
    return text
