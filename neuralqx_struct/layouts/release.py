"""Releases: from the nodes of a payload to the arrays of a foreign file; the inverse of ``adoption.py``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from neuralqx_struct.dtypes import dtype_named
from neuralqx_struct.dtypes.casts import cast
from neuralqx_struct.evolution.values import compact
from neuralqx_struct.formats.table import ForeignArray
from neuralqx_struct.layouts import Layout
from neuralqx_struct.layouts.forms import Sizes
from neuralqx_struct.layouts.places import Leaf, Values, framed, item_of, layers, lead_axes
from neuralqx_struct.layouts.plans import (
    RULE,
    KeptArrays,
    Numbers,
    Plan,
    claim_problems,
    claims_of,
    out_of_memory,
)
from neuralqx_struct.layouts.walk import Walk
from neuralqx_struct.manifest.kinds import elements_of
from neuralqx_struct.manifest.payload import Payload, StoredArrays
from neuralqx_struct.printing import listed
from neuralqx_struct.schema.conformance import conform, see_node
from neuralqx_struct.schema.model import Document
from neuralqx_struct.types.text import number_value

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


class ReleasePlan(Plan):
    """How the arrays of a payload become those of a file; the inverse of :class:`AdoptionPlan`.

    Args:
        document: The version of the schema, which the payload is of.
        layout: The layout.
        payload: The payload.
        values: Sizes that no array shows.
        names: The names of the file that was read, in their order.

    Attributes:
        files: The arrays of the file, which are made when they are read.
    """

    def __init__(
        self,
        document: Document,
        layout: Layout,
        payload: Payload,
        values: Values | None = None,
        names: Iterable[str] = (),
    ) -> None:
        super().__init__()
        self.payload = payload
        self._kept = KeptArrays()
        root = payload.document["manifest"]
        self.found += conform(document, document.root, root, see_node)
        self.refuse_errors()
        order = dict.fromkeys(names)
        walks: list[tuple[int, Walk]] = []
        for prefix in layout.prefix:
            walk = Walk(document, layout, prefix, None, values or Values())
            walk.run(root)
            there = sum(name in order for leaf in walk.leaves for name in leaf.names)
            walks.append((there, walk))
        self.walk = max(walks, key=lambda each: each[0])[1]
        self.found += self.walk.found
        for leaf in self.walk.leaves:
            self._compare(leaf)
        claims = claims_of(self.walk.leaves)
        self.found += claim_problems(claims)
        self.settle(self.walk.leaves, self._numbered)
        self.refuse_errors()
        ordered = [name for name in order if name in claims]
        ordered += [name for name in claims if name not in order]
        self.files = {name: self._file(name, claims[name]) for name in ordered}
        self.refuse_errors()

    def _compare(self, leaf: Leaf) -> None:
        node, place = leaf.node, leaf.place
        leaf.dtype, leaf.shape = node["dtype"], tuple(node.get("shape", ()))
        declared = (*place.axes, *leaf.form.declared)
        self.found += place.scope.unify(declared, leaf.shape, place.text, leaf.dtype)

    def _numbered(self, leaf: Leaf) -> Numbers | None:
        """The numbers of an array, from its shape in the payload; None if it needs an unknown size."""
        form, size = leaf.form, self.size(leaf)
        inner = form.disordered(leaf.shape[len(leaf.place.axes) :])
        whole = form.whole_from(inner, size)
        if whole is None:
            return None
        files = form.files_of(whole, len(form.files), size)
        if files is None:
            return None
        windows = form.windows(files, size)
        if windows is None:
            return None
        if form.whole_of(files, windows) != whole:
            shown = ", ".join(str([*each]) for each in files)
            message = f"expected an array that splits into {shown}, got {[*whole]}"
            self.report("NQX412", leaf.place.text, message, RULE)
        return Numbers(files, windows, whole, inner)

    def _file(self, name: str, claims: Sequence[tuple[Leaf, int]]) -> ForeignArray:
        """One array of the file."""
        forms: dict[tuple[str, Sizes], Leaf] = {}
        for leaf, place in claims:
            files = self.numbers[leaf].files
            sizes = iter(leaf.shape)
            counts = [next(sizes) if f.index is None else f.count for f in leaf.place.frames]
            shape = framed(files[place % len(files)], leaf, counts)
            forms.setdefault((leaf.place.rule.cast or leaf.dtype, shape), leaf)
        (dtype, shape), leaf = next(iter(forms.items()))
        if len(forms) > 1:
            shown = " and ".join(f"{dtype}{[*shape]}" for dtype, shape in forms)
            message = f"expected parts of one array {name!r}, got those of {shown}"
            self.report("NQX703", leaf.place.text, message, RULE)
        return ForeignArray(dtype, shape, partial(self._make, dtype, shape, claims))

    def _make(self, dtype: str, shape: Sizes, claims: Sequence[tuple[Leaf, int]]) -> Array:
        """Computes one array of the file."""
        import numpy as np

        first, place = claims[0]
        lists = [frame for frame in first.place.frames if frame.axis is not None]
        if len(claims) == 1 and not lists and first.place.rule.part is None:
            return compact(self._piece(first, place, dtype))
        result = np.empty(shape, dtype_named(dtype))
        for leaf, number in claims:
            lead = lead_axes(leaf)
            target = item_of(result, leaf.place.frames)
            if leaf.place.rule.part is not None:
                target = self.numbers[leaf].windows[0].of(target, lead)
            target[...] = self._piece(leaf, number, dtype).reshape(target.shape)
        return result

    def _piece(self, leaf: Leaf, number: int, dtype: str) -> Array:
        """The part of one array of the payload that an array of the file has."""
        numbers, lead = self.numbers[leaf], lead_axes(leaf)
        count = len(leaf.form.files)
        array = self._load(leaf)[layers(leaf)[number // count]]
        rule = leaf.place.rule
        if rule.cast is not None and dtype != leaf.dtype:
            array = cast(compact(array), dtype, exact=rule.exact, path=leaf.place.text)
        whole = leaf.form.back(array, numbers.whole, lead)
        if not leaf.form.merged:
            return whole
        part = numbers.windows[number % count].of(whole, lead)
        return part.reshape((*part.shape[:lead], *numbers.files[number % count]))

    def _load(self, leaf: Leaf) -> Array:
        """An array of the payload; one that costs reading is kept if many arrays of the file are parts of it."""
        import numpy as np

        node = leaf.node
        if elements_of(node) != "stored":
            return np.full(leaf.shape, number_value(node["value"]), dtype_named(leaf.dtype))
        name, arrays = node["name"], self.payload.arrays
        at_hand = not isinstance(arrays, StoredArrays) or arrays.at_hand(name)
        if at_hand or (len(leaf.names) == 1 and leaf.form.plain):
            return arrays[name]
        if len(leaf.names) == 1:
            return out_of_memory(arrays[name])
        if name not in self._kept:
            self._kept.keep(name, arrays[name])
        return self._kept[name]
