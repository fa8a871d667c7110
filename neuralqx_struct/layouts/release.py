"""Releases: from the nodes of a payload to the arrays of a foreign file; the inverse of ``adoption.py``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from neuralqx_struct.evolution.payload_tree import computed, constant
from neuralqx_struct.layouts.coverage import claim_problems, claims_of
from neuralqx_struct.layouts.frames import Frame, layers_of, lead_axes, stacked, with_items
from neuralqx_struct.layouts.places import Leaf, Place, Values
from neuralqx_struct.layouts.plans import RULE, Plan
from neuralqx_struct.layouts.table import (
    ArrayEntry,
    ItemsEntry,
    OptionsEntry,
    PairsEntry,
    PlainEntry,
    StructEntry,
    Table,
)
from neuralqx_struct.layouts.walk import Walk
from neuralqx_struct.manifest.kinds import elements_of
from neuralqx_struct.manifest.lazy_arrays import LazyArray, Part, Sizes
from neuralqx_struct.manifest.lazy_reading import LazyArrays
from neuralqx_struct.manifest.payload import ForeignArray, Payload, StoredArrays
from neuralqx_struct.printing import array_text, listed
from neuralqx_struct.schema.conformance import conform, see_node
from neuralqx_struct.types import Node

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


class ReleasedArrays(Mapping[str, "np.ndarray[Any, Any]"]):
    """The arrays of a file by name, each computed when it is asked for, and not kept.

    Args:
        files: The arrays.

    Example:
        >>> import numpy as np
        >>> arrays = ReleasedArrays({"w": ForeignArray("float32", (2,), lambda: np.ones(2, "float32"))})
        >>> [*arrays], arrays["w"].tolist()
        (['w'], [1.0, 1.0])
    """

    def __init__(self, files: Mapping[str, ForeignArray]) -> None:
        self._files = files

    def __getitem__(self, name: str) -> Array:
        return self._files[name].read()

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __repr__(self) -> str:
        return f"<{len(self)} arrays of a file: {listed(self, 8)}>"


class PayloadWalk(Walk):
    """A walk along the nodes of a payload."""

    def plain(self, entry: PlainEntry, place: Place) -> Node:  # noqa: ARG002 - as for a file
        """The node of a value without arrays."""
        return place.node

    def nodes_of(self, entry: ItemsEntry, place: Place) -> Sequence[Any]:  # noqa: ARG002
        """The nodes of the items of a list or a tuple."""
        items: list[Any] = place.node["items"]
        return items

    def pairs_of(self, entry: PairsEntry, place: Place) -> Mapping[str, Any]:
        """The nodes of a dict, whose keys can be found again in the names that they make."""
        nodes = dict(place.node["items"])
        separator = self.table.layout.separator
        for key in nodes:
            if not key or (separator in key and not entry.ends_names):
                message = f"expected keys without {separator!r}, got {key[:100]!r}"
                self.report("NQX709", place, message, "rename the key before writing the file")
        return nodes

    def options(self, entry: OptionsEntry, place: Place) -> Node:
        """The node of a union."""
        if place.node is None:
            return None
        seen, owner = see_node(place.node), entry.row.owner
        pairs = zip(entry.declared.solid, entry.inside, strict=True)
        found = (option for declared, option in pairs if declared.accepts(owner, seen))
        return self.visit(next(found, entry.inside[0]), place)

    def layers(self, entry: StructEntry, place: Place) -> None:
        """The number of layers, which arrays show."""

    def array(self, entry: ArrayEntry, place: Place) -> dict[str, Any]:
        """The node of an array."""
        shape = place.node.get("shape", ())
        pairs = zip(stacked(place.frames), shape, strict=False)
        layers = [size for frame, size in pairs if frame.axis is None]
        count = 0 if entry.span is None else self._stacked_count(entry, tuple(shape))
        return self.leaf(entry, place, place.node, layers, count).node

    def _stacked_count(self, entry: ArrayEntry, shape: Sizes) -> int:
        """The number of arrays of the file that one of the payload is the stack of."""
        form, shape = entry.form(), shape[len(entry.row.axes) :]
        if len(shape) != len(form.declared) or form.rule.reshape is not None:
            return 0
        if form.transposition is not None:
            shape = form.transposition.inverse.shape(shape)
        return int(shape[form.rule.axis])


class ReleasePlan(Plan):
    """How the arrays of a payload become those of a file; the inverse of :class:`AdoptionPlan`.

    Args:
        table: The table of the layout.
        payload: The payload, of the version of the schema.
        values: Sizes that no array shows.
        names: The names of the file that was read, in their order.

    Attributes:
        files: The arrays of the file, which are made when they are read.
    """

    def __init__(
        self,
        table: Table,
        payload: Payload,
        values: Values | None = None,
        names: Iterable[str] = (),
    ) -> None:
        super().__init__()
        self.payload, document = payload, table.document
        root = payload.document["manifest"]
        self.found += conform(document, document.root, root, see_node)
        self.refuse_errors()
        order = dict.fromkeys(names)
        walks: list[tuple[int, PayloadWalk]] = []
        for prefix in table.layout.prefix:
            walk = PayloadWalk(table, prefix, values)
            walk.run(root)
            there = sum(name in order for leaf in walk.leaves for name in leaf.names)
            walks.append((there, walk))
        self.walk = max(walks, key=lambda each: each[0])[1]
        self.found += self.walk.found
        for leaf in self.walk.leaves:
            self._compare(leaf)
        claims = claims_of(self.walk.leaves)
        self.found += claim_problems(claims)
        self.settle(self.walk.leaves, self._made)
        self.refuse_errors()
        ordered = [name for name in order if name in claims]
        ordered += [name for name in claims if name not in order]
        files = {name: self._file(name, claims[name]) for name in ordered}
        self.refuse_errors()
        arrays = {name: array for name, array in files.items() if array is not None}
        made = LazyArrays(arrays)
        self.files = {
            name: ForeignArray(array.dtype, array.shape, partial(made.__getitem__, name))
            for name, array in arrays.items()
        }

    def _compare(self, leaf: Leaf) -> None:
        node, place = leaf.node, leaf.place
        leaf.dtype, leaf.shape = node["dtype"], tuple(node.get("shape", ()))
        declared = (*leaf.entry.row.axes, *leaf.form.declared)
        self.found += place.scope.unify(declared, leaf.shape, place.text, leaf.dtype)

    def _made(self, leaf: Leaf) -> Sequence[LazyArray] | None:
        """The arrays of the file that one of the payload becomes; None if they need an unknown size."""
        form, rule, size = leaf.form, leaf.form.rule, self.size(leaf)
        array = self._stored(leaf.node)
        if rule.cast is not None:
            array = array.cast(rule.cast, exact=rule.exact, path=leaf.place.text)
        made: list[LazyArray] = []
        for layer in layers_of(array, leaf.place.frames):
            lead = layer.shape[: lead_axes(leaf.place.frames)]
            whole = form.whole_from(layer, lead, size)
            files = None
            if whole is not None:
                files = form.files_of(whole, lead, len(form.files), size)
            if files is None:
                return None
            made += files
        return made

    def _stored(self, node: Mapping[str, Any]) -> LazyArray:
        """An array of the payload."""
        dtype, shape = node["dtype"], tuple(node.get("shape", ()))
        if elements_of(node) != "stored":
            return computed(dtype, shape, partial(constant, dtype, shape, node["value"]))
        name, arrays = node["name"], self.payload.arrays
        at_hand = not isinstance(arrays, StoredArrays) or arrays.at_hand(name)
        read = partial(arrays.__getitem__, name)
        return Part.of(ForeignArray(dtype, shape, read, cheap=at_hand))

    def _file(self, name: str, claims: Sequence[tuple[Leaf, int]]) -> LazyArray | None:
        """One array of the file, from all fields that it has; None if they do not go together."""
        items: dict[tuple[Frame, ...], list[tuple[Leaf, LazyArray]]] = {}
        for leaf, number in claims:
            frames = tuple(frame for frame in leaf.place.frames if frame.axis is not None)
            items.setdefault(frames, []).append((leaf, leaf.arrays[number]))
        made: list[tuple[tuple[Frame, ...], LazyArray]] = []
        forms: dict[tuple[str, Sizes], None] = {}
        for frames, parts in sorted(
            items.items(), key=lambda item: [f.index or 0 for f in item[0]]
        ):
            parts.sort(key=lambda part: part[0].form.rule.place)
            leaf, array = parts[0]
            if leaf.form.rule.part is not None:
                lead, size = array.shape[: lead_axes(frames)], self.size(leaf)
                shapes = [leaf.form.shape_around(part.shape, lead, size) for leaf, part in parts]
                forms |= dict.fromkeys(zip([part.dtype for _, part in parts], shapes, strict=True))
                array = leaf.form.joined([part for _, part in parts], lead, size) or array
            forms[array.dtype, array.shape] = None
            made.append((frames, array))
        if len(forms) > 1:
            shown = " and ".join(array_text(*form) for form in forms)
            message = f"expected parts of one array {name!r}, got those of {shown}"
            self.report("NQX703", claims[0][0].place.text, message, RULE)
            return None
        return with_items(made)
