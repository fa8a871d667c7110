"""The walk over a schema and a layout: each array of the schema with its names in the file, and the tree around them.

Reading a file, the names decide the lengths of lists, the keys of dicts and which optional fields are null. Writing one,
the nodes of the payload do. The records of types call back :class:`Walk`, which knows both.

Example:
    >>> from neuralqx_struct.layouts import Layout
    >>> from neuralqx_struct.layouts.names import Names
    >>> layout = Layout(language="1", layout="x", of="neuralqx.vmc_state@1", prefix=["rbm."])
    >>> walk = Walk(v1, layout, "rbm.", names=Names(["rbm.W_re"]))
    >>> walk.run()["type"], walk.leaves[0].names
    ('neuralqx.vmc_state@1:VMCState', ('rbm.W_re',))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from neuralqx_struct.errors import Diagnostic, Hint, Keyword, SchemaError
from neuralqx_struct.expressions import parse
from neuralqx_struct.layouts import KEY, NUMBER, Rule
from neuralqx_struct.layouts.names import END, LAYER, Leaves, full, joined, until_mark
from neuralqx_struct.layouts.places import (
    NOTHING,
    Frame,
    Place,
    holds_arrays,
    length_of,
    of_items,
    own_sizes,
    sizes_in,
)
from neuralqx_struct.manifest.kinds import DICT, STRUCT
from neuralqx_struct.paths import FieldName
from neuralqx_struct.printing import brief_scalar
from neuralqx_struct.schema.conformance import see_node
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.sizes import ANY
from neuralqx_struct.schema.sizes.solver import Solver
from neuralqx_struct.schema.stacks import Axes, inner_axes, names_inside
from neuralqx_struct.types import Extent, Node, Type
from neuralqx_struct.types.builders import NodeBuilder
from neuralqx_struct.types.text import read_value

#: Structs that one walk may visit, also for each array of the file, and structs inside structs.
_MOST, _MOST_PER_NAME, _DEEPEST = 20_000, 20, 64


def value_hint(name: str) -> Hint:
    """The fix for a field or a size that no array shows."""
    return Hint(
        "pass ", Keyword("values", {name: ...}), ", or write it under `values:` in the layout"
    )


class Walk(Leaves):
    """One walk over a document."""

    def run(self, node: Any = None) -> Node:
        """Walks from the root; returns its node."""
        root, document = self.document.root, self.document
        free = dict.fromkeys(document.structs[root].params, parse(ANY))
        dims = self.dims.scope(free) if free else self.dims
        self._read_sizes(node)
        for name in sorted(self._sizes.keys() & document.dims.keys()):
            self.dims.know(name, self._sizes[name], "values")
        place = Place(document, root, "", None, Rule(), dims, (), "", (), (), (), node, 0)
        return self._struct(document, root, place, dims)

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

    # --- structs ---------------------------------------------------------------------------------------------------

    def _struct(self, owner: Document, name: str, place: Place, scope: Solver) -> Node:
        self._visits += 1
        most = _MOST + _MOST_PER_NAME * len(self.names or ())
        if (self._visits > most and self.names is not None) or place.depth > _DEEPEST:
            message = "expected structs inside of structs that end, got too many"
            hint = "give optional fields names in the layout, so that the file shows where they end"
            raise SchemaError(message, code="NQX702", path=place.text[:200], hint=hint)
        struct = owner.structs[name]
        rules = self.layout.rules(self._name_of(owner, name))
        self._know_sizes(owner, name, rules, scope)
        fields: dict[str, Node] = {}
        held = {} if place.node is None else place.node["fields"]
        for each, declaration in struct.stored.items():
            rule = rules.get(each) or Rule()
            inside = replace(
                place,
                owner=owner,
                struct=name,
                field=each,
                declaration=declaration,
                rule=rule,
                scope=scope,
                path=(*place.path, FieldName(each)),
                keys=(*place.keys, each),
                node=held.get(each),
                depth=place.depth + 1,
            )
            fields[each] = made = self._field(declaration, inside)
            if declaration.kind == "static" and type(made) is int:
                outermost = owner is not self.document or place.depth == 0
                if outermost and name == owner.root:
                    scope.know(each, made, inside.text)
        return STRUCT.node(type=owner.ref(name), fields=fields)

    def _name_of(self, owner: Document, name: str) -> str:
        """The name of a struct in the layout; one of another schema has its identity in front."""
        return name if owner is self.document else f"{owner.id}.{name}"

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
        if len(place.rule.names(place.field)) == 1 and not isinstance(place.rule.name, list):
            (part,) = place.rule.names(place.field)
            place = replace(place, base=joined(place.base, part, self.layout.separator))
        if declaration.type is None or declaration.kind != "node":
            return self.plain(declaration.declared, place)
        declared = declaration.declared
        if place.axes:
            declared = declared.with_axes(place.axes)
        return self.value(declared, place)

    def value(self, declared: Type, place: Place) -> Node:
        """The node of a value of a type."""
        if not holds_arrays(declared, place.owner):
            return self.plain(declared, place)
        return declared.lay_out(self, place)

    def plain(self, declared: Type, place: Place) -> Node:
        """The node of a value without arrays."""
        if self.names is None:
            return place.node
        key, declaration = ".".join(place.keys), place.declaration
        value = self.values.of(key)
        if value is NOTHING:
            value = self.values.named(full(place.base, self.prefix))
        if value is NOTHING and declaration is not None and declaration.has_default:
            value = declaration.default
            message = f"took its default {brief_scalar(value)}"
            self.notes.append(Diagnostic("NQX425", "info", message, path=place.text))
        if value is NOTHING and declared.nullable:
            return None
        if value is NOTHING:
            self._without_value(declared, place, key)
            return None
        builder = NodeBuilder(place.owner)
        try:
            return read_value(value, declared, builder)
        except SchemaError as error:
            first = error.diagnostics[0]
            self.report(first.code, place, first.message, first.hint)
            return None

    def _without_value(self, declared: Type, place: Place, key: str) -> None:
        """Reports a field that nothing gives a value; the file may have an array in its place."""
        got = "none: no array shows it"
        hint = value_hint(key)
        name = full(place.base, self.prefix)
        array = self.files.get(name)
        if array is not None:
            self.misplaced.add(name)
            shape = f"{array.dtype}[{', '.join(map(str, array.shape))}]"
            got = f"the array {name!r} of type {shape}"
            start = f"declare the field as `{shape}` in the schema; else list the array under `ignore:`, and "
            hint = Hint(start, hint)
        message = f"expected a value of type {declared.format()}, got {got}"
        self.report("NQX707", place, message, hint)

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
        new = len(lead) - len(place.axes)
        if new == 0:
            return place
        if NUMBER not in place.base:
            return replace(place, frames=(*place.frames, Frame(place.rule.stack or 0, None, None)))
        before, _, behind = place.base.partition(NUMBER)
        count = None
        if self.names is not None:
            count = self.count(before, behind, place)
            self.found += place.scope.unify(lead[-1:], (count,), place.text, "list")
        base = f"{before}{LAYER}{behind}"
        return replace(place, base=base, frames=(*place.frames, Frame(None, None, count)))

    def items(
        self,
        kind: str,
        parts_for: Callable[[int], tuple[Type, ...] | None],
        length: tuple[Extent, ...],
        place: Place,
    ) -> Node:
        """The node of a list or a tuple.

        Args:
            kind: The tag of its node.
            parts_for: Returns the type of each of so many items.
            length: The declared length, if there is one.
            place: Its place.
        """
        axis = place.rule.unstack
        base = place.base
        if axis is None and NUMBER not in base:
            base = joined(base, NUMBER, self.layout.separator)
        before, _, behind = base.partition(NUMBER)
        inner = replace(place, rule=of_items(place.rule))
        nodes: list[Any]
        if self.names is None:
            nodes = place.node["items"]
        elif axis is None:
            nodes = [None] * self.count(before, behind, place)
        else:
            nodes = [None] * self._length(axis, parts_for, inner)
        count = len(nodes)
        self.found += place.scope.unify(length, (count,) * len(length), place.text, kind)
        parts = parts_for(count)
        if parts is None:
            message = f"expected another number of items, got {count}"
            self.report("NQX412", place, message)
            return {"__kind__": kind, "items": []}
        made = []
        for index, (part, node) in enumerate(zip(parts, nodes, strict=True)):
            inside = replace(inner, path=(*place.path, index), node=node)
            if axis is None:
                inside = replace(inside, base=f"{before}{index}{behind}")
            else:
                frame = Frame(axis, index, count)
                inside = replace(inside, frames=(*place.frames, frame))
            made.append(self.value(part, inside))
        return {"__kind__": kind, "items": made}

    def _length(
        self, axis: int, parts_for: Callable[[int], tuple[Type, ...] | None], place: Place
    ) -> int:
        """The number of items whose arrays are one array each in the file, from the first of these."""
        parts = parts_for(1) or ()
        frame = Frame(axis, 0, None)
        state = self._state()
        for part in parts:
            self.value(part, replace(place, frames=(*place.frames, frame), path=(*place.path, 0)))
        leaves = self.leaves[state[0] :]
        self._reset(state)
        for leaf in leaves:
            for name in leaf.names:
                if name in (self.names or ()):
                    shape = self.files[name].shape
                    length = length_of(frame, shape, leaf.place.frames)
                    if length is None:
                        message = f"expected an array {name!r} with the axis {axis} of the items, got shape {[*shape]}"
                        self.report("NQX412", place, message)
                    return length or 0
        return 0

    def pairs(self, value: Type, place: Place) -> Node:
        """The node of a dict."""
        base = place.base
        if KEY not in base:
            base = joined(base, KEY, self.layout.separator)
        before, _, behind = base.partition(KEY)
        inner = replace(place, rule=of_items(place.rule))
        if self.names is None:
            nodes = dict(place.node["items"])
            self._check_keys(nodes, place, whole=not behind and bool(value.element))
        else:
            start = full(before.replace(LAYER, "0"), self.prefix)
            whole = not behind and bool(value.element)
            fixed = END if whole else until_mark(behind)
            keys = self.names.keys(start, fixed, self.layout.separator)
            nodes = dict.fromkeys(keys)
        made = []
        for key, node in nodes.items():
            inside = replace(
                inner, path=(*place.path, key), node=node, base=f"{before}{key}{behind}"
            )
            made.append([key, self.value(value, inside)])
        return DICT.node(items=made)

    def _check_keys(self, keys: Iterable[str], place: Place, *, whole: bool) -> None:
        """Checks that keys can be found again in the names that they make."""
        separator = self.layout.separator
        for key in keys:
            if not key or (separator in key and not whole):
                message = f"expected keys without {separator!r}, got {key[:100]!r}"
                self.report("NQX709", place, message, "rename the key before writing the file")

    def options(self, declared: Type, place: Place) -> Node:
        """The node of a union: of the first option whose arrays are all in the file; null if none has one."""
        if self.names is None:
            if place.node is None:
                return None
            seen = see_node(place.node)
            options = (each for each in declared.solid if each.accepts(place.owner, seen))
            option = next(options, declared.solid[0])
            return self.value(option, place)
        given = self.values.of(".".join(place.keys))
        if given is None and declared.nullable:
            return None
        best: tuple[int, Type] | None = None
        if declared.nullable and not self._any_below(place):
            return None
        for option in declared.solid:
            state = self._state()
            node = self.value(option, place)
            present = self.present - state[3]
            lost = len(self.missing) - state[1] + len(self.found) - state[2]
            if not lost and (present or not declared.nullable):
                return node
            self._reset(state)
            if present and (best is None or lost < best[0]):
                best = (lost, option)
        if best is None and declared.nullable:
            return None
        return self.value(declared.solid[0] if best is None else best[1], place)

    def _any_below(self, place: Place) -> bool:
        """True if the file may have arrays of a place: names that start anew can be anywhere."""
        if self._anew or self.names is None:
            return True
        start = full(until_mark(place.base), self.prefix)
        return self.names.any_below(start)

    def _state(self) -> tuple[int, int, int, int]:
        return len(self.leaves), len(self.missing), len(self.found), self.present

    def _reset(self, state: tuple[int, int, int, int]) -> None:
        leaves, missing, found, self.present = state
        del self.leaves[leaves:], self.missing[missing:], self.found[found:]
