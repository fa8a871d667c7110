"""Plans: from a layout and the header of a file, or the nodes of a payload, to the arrays of the other side.

A plan knows dtype and shape of every array on both sides before any is read; all problems are found then. Its arrays are
made one at a time, when they are asked for.

Example:
    >>> import numpy as np
    >>> from neuralqx_struct.schema.series import load_series
    >>> from neuralqx_struct.layouts import read_layout
    >>> net = load_series('''
    ... {language: "1", schema: lab.net, version: 1, root: Net, structs: {Net: {fields: {kernel: "float32[n, m]"}}}}''')
    >>> layout, _ = read_layout('''
    ... {language: "1", layout: hf, of: lab.net@1, structs: {Net: {kernel: {name: x.w, transpose: true}}}}''')
    >>> files = {"x.w": ForeignArray("float32", (3, 2), lambda: np.arange(6, dtype="float32").reshape(3, 2))}
    >>> plan = AdoptionPlan(Table(net.head, layout), files)
    >>> plan.node["fields"]["kernel"]["shape"], plan.arrays["kernel"].tolist()
    ([2, 3], [[0.0, 2.0, 4.0], [1.0, 3.0, 5.0]])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from neuralqx_struct.dtypes import DTYPES, promotes
from neuralqx_struct.errors import Diagnostic, Hint, SchemaError, has_errors
from neuralqx_struct.evolution.payload_tree import free_name
from neuralqx_struct.layouts import NUMBER
from neuralqx_struct.layouts.coverage import claim_problems, claims_of
from neuralqx_struct.layouts.frames import (
    Frame,
    framed,
    item_of,
    lead_axes,
    length_of,
    stacked,
    with_layers,
)
from neuralqx_struct.layouts.names import ABSOLUTE, Ignored, Names
from neuralqx_struct.layouts.places import NOTHING, Leaf, Place, Values
from neuralqx_struct.layouts.plans import RULE, Plan
from neuralqx_struct.layouts.table import (
    ArrayEntry,
    Entry,
    ItemsEntry,
    OptionsEntry,
    PairsEntry,
    PlainEntry,
    Span,
    StructEntry,
    Table,
)
from neuralqx_struct.layouts.walk import Walk, value_hint
from neuralqx_struct.manifest.kinds import ARRAY
from neuralqx_struct.manifest.lazy_arrays import LazyArray, Part
from neuralqx_struct.manifest.lazy_reading import LazyArrays
from neuralqx_struct.manifest.payload import ForeignArray
from neuralqx_struct.matching import match, unfit
from neuralqx_struct.paths import array_name
from neuralqx_struct.printing import brief_array, brief_scalar
from neuralqx_struct.schema.conformance import conform, see_node
from neuralqx_struct.schema.sizes import ANY
from neuralqx_struct.schema.sizes.comparison import extent
from neuralqx_struct.schema.text import MAX_PROBLEMS
from neuralqx_struct.types import Extent, Node
from neuralqx_struct.types.builders import NodeBuilder
from neuralqx_struct.types.text import read_value

#: Structs that one walk may visit, also for each array of the file.
_MOST, _MOST_PER_NAME = 20_000, 20


class FileWalk(Walk):
    """A walk along the names in a file.

    Args:
        table: The table of the layout.
        prefix: The text in front of all names.
        names: The names in the file.
        files: The arrays of the file.
        values: The values that no array shows.

    Attributes:
        missing: The arrays that the file lacks.
        misplaced: The arrays that it has in place of plain values.
        notes: The defaults that were taken.
        present: The number of arrays that were found.
    """

    def __init__(
        self,
        table: Table,
        prefix: str,
        names: Names,
        files: Mapping[str, ForeignArray],
        values: Values,
    ) -> None:
        super().__init__(table, prefix, values)
        self.names, self.files = names, files
        self.missing: list[tuple[Place, str]] = []
        self.misplaced: set[str] = set()
        self.notes: list[Diagnostic] = []
        self.present = 0
        self.most_visits = _MOST + _MOST_PER_NAME * len(names)
        rules = (rule for each in table.layout.structs.values() for rule in each.values())
        self._anew = any(name[:1] == ABSOLUTE for rule in rules for name in rule.names(""))

    def plain(self, entry: PlainEntry, place: Place) -> Node:
        """The node of a value without arrays."""
        declared, declaration = entry.declared, entry.row.declaration
        value = self.values.of(entry.row.key)
        if value is NOTHING:
            value = self.values.named(entry.name.name(self.prefix, place.numbers))
        if value is NOTHING and declaration is not None and declaration.has_default:
            value = declaration.default
            message = f"took its default {brief_scalar(value)}"
            self.notes.append(Diagnostic("NQX425", "info", message, path=place.text))
        if value is NOTHING and declared.nullable:
            return None
        if value is NOTHING:
            self._without_value(entry, place)
            return None
        try:
            return read_value(value, declared, NodeBuilder(entry.row.owner))
        except SchemaError as error:
            first = error.diagnostics[0]
            self.report(first.code, place, first.message, first.hint)
            return None

    def _without_value(self, entry: PlainEntry, place: Place) -> None:
        """Reports a field that nothing gives a value; the file may have an array in its place."""
        got = "none: no array shows it"
        hint = value_hint(entry.row.key)
        name = entry.name.name(self.prefix, place.numbers)
        array = self.files.get(name)
        if array is not None:
            self.misplaced.add(name)
            shape = brief_array(array)
            got = f"the array {name!r} of type {shape}"
            start = f"declare the field as `{shape}` in the schema; else list the array under `ignore:`, and "
            hint = Hint(start, hint)
        message = f"expected a value of type {entry.declared.format()}, got {got}"
        self.report("NQX707", place, message, hint)

    def nodes_of(self, entry: ItemsEntry, place: Place) -> Sequence[Any]:
        """None for each item of a list: as many as the names have numbers, or one array is long."""
        if entry.span is None:
            return [None] * self._length(entry, place)
        return [None] * self._count(entry.span, place)

    def _count(self, span: Span, place: Place) -> int:
        """The number of items whose numbers are in names."""
        start = span.before.name(self.prefix, place.numbers)
        fixed = span.behind.name(keys=place.numbers)
        numbers = self.names.numbers(start, fixed)
        missing = {*range(len(numbers))} - numbers
        if missing:
            shown = f"{start}{min(missing)}{fixed}"
            message = f"expected numbers from 0 on without a gap, got no {shown!r}"
            hint = "the file lacks arrays, or numbers them otherwise"
            self.report("NQX705", place, message, hint)
        return len(numbers)

    def _length(self, entry: ItemsEntry, place: Place) -> int:
        """The number of items whose arrays are one array each in the file, from the first of these."""
        state, axis = self._state(), entry.row.rule.unstack
        frame = Frame(axis, 0, None)
        for item in entry.inside if entry.declared.parts_for(1) else ():
            frames, path = (*place.frames, frame), (*place.path, 0)
            self.visit(item, Place(place.numbers, place.scope, frames, path))
        leaves = self.leaves[state[0] :]
        self._reset(state)
        names = (name for leaf in leaves for name in leaf.names if name in self.names)
        name = next(names, None)
        if name is None:
            return 0
        shape = self.files[name].shape
        length = length_of(frame, shape, place.frames)
        if length is None:
            message = f"expected an array {name!r} with the axis {axis} of the items, got shape {[*shape]}"
            self.report("NQX412", place, message)
        return length or 0

    def pairs_of(self, entry: PairsEntry, place: Place) -> Mapping[str, Any]:
        """None for each key in the names."""
        start = entry.span.before.name(self.prefix, place.numbers)
        fixed = entry.span.behind.name(keys=place.numbers)
        return dict.fromkeys(self.names.keys(start, fixed, self.table.layout.separator))

    def options(self, entry: OptionsEntry, place: Place) -> Node:
        """The node of the first option whose arrays are all in the file; null if none has one."""
        given = self.values.of(entry.row.key)
        nullable = entry.declared.nullable
        if nullable and (given is None or not self._any_below(entry, place)):
            return None
        best: tuple[int, Entry] | None = None
        for option in entry.inside:
            state = self._state()
            node = self.visit(option, place)
            present = self.present - state[3]
            lost = len(self.missing) - state[1] + len(self.found) - state[2]
            if not lost and (present or not nullable):
                return node
            self._reset(state)
            if present and (best is None or lost < best[0]):
                best = (lost, option)
        if best is None and nullable:
            return None
        return self.visit(entry.inside[0] if best is None else best[1], place)

    def _any_below(self, entry: OptionsEntry, place: Place) -> bool:
        """True if the file may have arrays of a place: names that start anew can be anywhere."""
        return self._anew or self.names.any_below(entry.start.name(self.prefix, place.numbers))

    def _state(self) -> tuple[int, int, int, int]:
        return len(self.leaves), len(self.missing), len(self.found), self.present

    def _reset(self, state: tuple[int, int, int, int]) -> None:
        leaves, missing, found, self.present = state
        del self.leaves[leaves:], self.missing[missing:], self.found[found:]

    def layers(self, entry: StructEntry, place: Place) -> int:
        """The number of layers whose numbers are in names."""
        assert entry.span is not None  # they are apart
        return self._count(entry.span, place)

    def array(self, entry: ArrayEntry, place: Place) -> dict[str, Any]:
        """The node of an array, which gets its dtype and shape later."""
        count = 0 if entry.span is None else self._count(entry.span, place)
        node = ARRAY.node(name=array_name(place.path), dtype="", shape=[])
        layers = [frame.count or 0 for frame in stacked(place.frames) if frame.axis is None]
        leaf = self.leaf(entry, place, node, layers, count)
        absent = [name for name in leaf.names if name not in self.names]
        self.present += len(leaf.names) - len(absent)
        if not leaf.names:
            absent = [entry.names[0].name(self.prefix, [*place.numbers, NUMBER])]
        self.missing += [(place, name) for name in absent]
        return node


class AdoptionPlan(Plan):
    """How the arrays of a file become those of a schema.

    Args:
        table: The table of the layout.
        files: The arrays of the file.
        values: The values that no array shows.

    Attributes:
        node: The node of the root.
        arrays: The arrays of the payload, which are made when they are asked for.
        unused: The names of the arrays that the layout ignores.
    """

    walk: FileWalk

    def __init__(
        self,
        table: Table,
        files: Mapping[str, ForeignArray],
        values: Values | None = None,
    ) -> None:
        super().__init__()
        self.document, self.files = table.document, files
        self.walk, self.node = self._walked(table, values or Values())
        self.found += self.walk.found
        leaves = self.walk.leaves
        claims = claims_of(leaves)
        ignored = Ignored(table.layout.ignore, self.walk.prefix)
        self.unused = [name for name in files if name not in claims and name in ignored]
        self._report_names(claims)
        whole = [leaf for leaf in leaves if all(name in files for name in leaf.names)]
        for leaf in whole:
            self._compare(leaf)
        if not has_errors(self.found):
            self.found += claim_problems(claims)
        self._sources: dict[str, LazyArray] = {}
        self.settle(whole, self._made)
        if not has_errors(self.found):
            self.found += self._finished(leaves)
        self.refuse_errors()

    def _walked(self, table: Table, values: Values) -> tuple[FileWalk, Any]:
        """The walk with the prefix under which most arrays are found, the first one of these."""
        names = Names(self.files)
        best: tuple[FileWalk, Any] | None = None
        for prefix in table.layout.prefix:
            walk = FileWalk(table, prefix, names, self.files, values)
            node = walk.run()
            if best is None or walk.present > best[0].present:
                best = walk, node
        assert best is not None  # a layout has a prefix
        return best

    def _report_names(self, claims: Mapping[str, Any]) -> None:
        """Reports the arrays that the file lacks, and those that no field takes."""
        unused = {*self.unused, *self.walk.misplaced}
        missing = self.walk.missing
        names = match(
            dict.fromkeys(name for name in self.files if name not in unused),
            [*claims, *(name for _, name in missing)],
        )
        for number, (place, name) in enumerate(missing[: MAX_PROBLEMS + 1]):
            hint = (
                names.meant(name, number)
                or "correct the name in the layout, or declare the field `| null`"
            )
            wanted = f"an array {name!r} in the file"
            self.found.append(unfit("missing", place.text, wanted, hint=hint, code="NQX705"))
        for number, name in enumerate(names.having("extra")[: MAX_PROBLEMS + 1]):
            hint = names.meant(name, number) or "name it in the layout, or list it under `ignore:`"
            got = f"{name!r}, which it does not have\nit is {brief_array(self.files[name])}"
            wanted = "an array of the layout"
            self.found.append(unfit("extra", "$", wanted, got, hint=hint, code="NQX706"))

    def _compare(self, leaf: Leaf) -> None:
        """Compares dtypes and shapes in the file with those of a form."""
        form, place = leaf.form, leaf.place
        counts = self._counts(leaf)
        shapes = [framed(shape, place.frames, counts) for shape in form.files]
        dtypes = {self.files[name].dtype: name for name in leaf.names}
        self._check_dtype(leaf, dtypes)
        for index, name in enumerate(leaf.names):
            array, declared = self.files[name], shapes[index % len(shapes)]
            if place.scope.confirms(declared, array.shape):
                continue  # most arrays show sizes that others have shown
            self.found += [
                replace(each, message=f"{each.message}\n{place.text} has it by its rule", hint=RULE)
                for each in place.scope.unify(declared, array.shape, name, array.dtype)
            ]

    def _counts(self, leaf: Leaf) -> list[Extent]:
        """The lengths of the axes of lists and stacked structs, as expressions."""
        axes = iter(leaf.entry.row.axes)
        counts: list[Extent] = []
        for frame in leaf.place.frames:
            if frame.index is None:
                counts.append(next(axes))
            else:
                counts.append(extent(ANY if frame.count is None else frame.count))
        return counts

    def _check_dtype(self, leaf: Leaf, dtypes: Mapping[str, str]) -> None:
        rule = leaf.entry.row.rule
        allowed = leaf.entry.dtypes if rule.cast is None else (rule.cast,)
        for dtype, name in dtypes.items():
            if dtype in allowed:
                continue
            known = dtype in DTYPES
            hint = f"write `cast: {dtype}` in its rule" if known else None
            if known and not any(promotes(dtype, each) for each in leaf.entry.dtypes):
                hint = f"{hint}, with `exact: false` if values may change"
            listed = " or ".join(allowed)
            message = f"expected {listed}, got {dtype} in the array {name!r}"
            self.report("NQX411", leaf.place.text, message, hint)
        if len(dtypes) > 1:
            listed = " and ".join(dtypes)
            message = f"expected arrays of one dtype, got {listed}"
            self.report("NQX411", leaf.place.text, message, RULE)
        leaf.dtype = leaf.entry.dtypes[0] if rule.cast is not None else next(iter(dtypes), "")

    def _made(self, leaf: Leaf) -> Sequence[LazyArray] | None:
        """An array of the schema, from those in the file; None if it needs an unknown size."""
        count, frames = len(leaf.form.files), leaf.place.frames
        files = [item_of(self._file(name), frames) for name in leaf.names]
        shapes = [None if file is None else file.shape for file in files]
        if any(shape is None or shape != shapes[at % count] for at, shape in enumerate(shapes)):
            message = "expected layers of one shape, got several"
            self.report("NQX412", leaf.place.text, message, RULE)
            return None
        if not files:  # no layer at all
            return None
        items = [file for file in files if file is not None]
        layers = []
        for first in range(0, len(items), count):
            made = self._layer(leaf, items[first : first + count], is_first=first == 0)
            if made is None:
                return None
            layers.append(made)
        array = with_layers(layers, frames)
        leaf.shape = array.shape
        return [array]

    def _layer(self, leaf: Leaf, files: Sequence[LazyArray], *, is_first: bool) -> LazyArray | None:
        """The array of one layer; the first shows the sizes."""
        form, rule, size = leaf.form, leaf.form.rule, self.size(leaf)
        lead = files[0].shape[: lead_axes(leaf.place.frames)]
        shapes = dict.fromkeys(file.shape for file in files)
        if form.merged and rule.merge == "concat" and rule.sizes is None and len(shapes) > 1:
            shown = " and ".join(str([*shape]) for shape in shapes)
            message = f"expected arrays of one shape to merge, got {shown}"
            hint = "write their `sizes` in the rule, so that they can be split again"
            self.report("NQX702", leaf.place.text, message, hint)
            return None
        whole = form.whole_of(files, lead, size)
        inner = None if whole is None else form.inner_of(whole, lead, size)
        if whole is None or inner is None:
            return None
        if is_first and not form.same:
            for declared, array in ((form.whole, whole), (form.inner, inner)):
                sizes = array.shape[len(lead) :]
                found = leaf.place.scope.unify(declared, sizes, leaf.place.text, leaf.dtype)
                self.found += [replace(each, hint=RULE) for each in found]
        made = form.declared_of(inner, lead)
        if rule.cast is None:
            return made
        return made.cast(leaf.dtype, exact=rule.exact, path=leaf.place.text)

    def _file(self, name: str) -> LazyArray:
        """All of an array of the file; fields that are parts of one share its source."""
        if name not in self._sources:
            self._sources[name] = Part.of(self.files[name])
        return self._sources[name]

    def _finished(self, leaves: Sequence[Leaf]) -> list[Diagnostic]:
        """Gives the nodes their names and shapes, and checks the result against the schema."""
        order = {name: place for place, name in enumerate(self.files)}
        made: dict[str, LazyArray] = {}
        for leaf in sorted(leaves, key=lambda each: min(map(order.__getitem__, each.names))):
            name = free_name(leaf.node["name"], made)
            (made[name],) = leaf.arrays
            leaf.node.update(name=name, dtype=leaf.dtype, shape=[*leaf.shape])
        self.arrays = LazyArrays(made)
        return conform(self.document, self.document.root, self.node, see_node)
