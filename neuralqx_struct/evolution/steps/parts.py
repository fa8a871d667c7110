"""Steps between one field and several: split and merge, inverse to each other, by the ways that ``how:`` names.

Arrays are joined, stacked, or the real and the imaginary part of another one; values of any type are those of a list, a tuple or
a dict, for which no array is read. Behind the ways are the records, and the candidates: which fields may have become one.

Example:
    >>> from neuralqx_struct.types.text import format_type, parse_type
    >>> format_type(COLLECTIONS["list"].whole([parse_type("Layer")] * 3))
    'list[Layer, 3]'
    >>> step = split(field="bias_all", into={"visible_bias": "n_sites", "hidden_bias": "n_hidden"})
    >>> SPLIT.declare(step, Scope.of(step, v2, v3)).structs["VMCState"].fields["visible_bias"].text
    'complex64[n_sites]'
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import partial
from itertools import islice
from typing import Any, ClassVar, Final

from neuralqx_struct.dtypes.casts import COMPLEX_OF, PART_OF, join_complex, part_complex
from neuralqx_struct.errors import Diagnostic, SchemaError
from neuralqx_struct.evolution.payload_tree import TAKES, Place
from neuralqx_struct.evolution.steps.joints import Joint, Known, joints, subsets
from neuralqx_struct.evolution.steps.operations import (
    Candidate,
    Edit,
    Fields,
    Gap,
    Scope,
    StepKind,
    array_branch,
    builder,
    may_stop,
    refuse,
)
from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.polynomials import polynomial
from neuralqx_struct.manifest.kinds import DICT, LIST, TUPLE, NodeKind, marks_of, shown_node
from neuralqx_struct.manifest.lazy_arrays import Combined, Computation, Joined, LazyArray, Window
from neuralqx_struct.printing import listed
from neuralqx_struct.schema.field_paths import Places
from neuralqx_struct.schema.migration import Merge, Split, Step
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.sizes import ANY
from neuralqx_struct.schema.sizes.comparison import (
    constant,
    extent,
    plain_size,
    readable_as,
    same_size,
    same_type,
    total,
)
from neuralqx_struct.types import Array, DictOf, Extent, ListOf, Node, TupleOf, Type
from neuralqx_struct.types.text import format_type

# ---------------------------------------------------------------------------------------------------------------------
# Arrays.


class ArrayWay(ABC):
    """A way in which arrays are one array.

    Attributes:
        spares_arrays: True if no array is read.
        new_axis: True if the whole array has an axis that its parts do not have.
        made: How the whole array is made of its parts, in words.
    """

    spares_arrays: ClassVar[bool] = False
    new_axis: ClassVar[bool] = False
    made: ClassVar[str] = ""

    def axes(self, rank: int) -> Iterable[int]:
        """The axes of an array along which its parts may lie."""
        return range(rank)

    def words(self, whole: str, parts: Sequence[str], axis: int) -> str:
        """A sentence about the fields."""
        return f"{whole} {self.made} {' and then '.join(parts)}, along axis {axis}"

    def places(self, parts: Sequence[str], whole: str) -> Places:
        """The places in the whole of parts whose values it keeps."""
        return {}

    def review_split(self, step: Split, scope: Scope) -> Iterator[Diagnostic]:
        """Yields NQX320 where values may be others than those that are split."""
        yield from ()

    @abstractmethod
    def parts(self, step: Split, array: Array, scope: Scope) -> dict[str, Array]:
        """The types of the parts by name."""

    @abstractmethod
    def cut(self, step: Split, node: Node, place: Place) -> dict[str, Node]:
        """The nodes of the parts by name."""

    @abstractmethod
    def whole(self, step: Merge, arrays: Sequence[Array], known: Mapping[str, Any]) -> Array:
        """The type of the whole array, of arrays of one dtype."""

    @abstractmethod
    def join(self, step: Merge, made: Array, arrays: list[LazyArray], lead: int) -> LazyArray:
        """The whole array, which is of the type ``made`` behind ``lead`` axes."""

    def names(self, step: Merge, scope: Scope, after: Document) -> Any:
        """The names of the parts as the step that splits them again has them."""
        return [*step.fields]

    def split(self, step: Split, scope: Scope) -> Document:
        source = scope.field(step.field)
        array, rebuilt = array_branch(source.declared)
        parts = self.parts(step, array, scope)
        if len(parts) != len(step.into) or not parts:
            refuse("NQX304", "into", f"expected distinct names, got {list(step.into)}")
        made = {}
        for part, declared in parts.items():
            scope.require_free(part, "into", leaving=(step.field,))
            made[part] = scope.adopt(part, rebuilt(declared), source)
        return scope.replaced((step.field,), made)

    def split_nodes(self, step: Split, place: Place) -> Node:
        node = place.field(step.field)
        made = dict.fromkeys(step.into) if node is None else self.cut(step, node, place)
        return place.swapped((step.field,), made)

    def unsplit(self, step: Split, scope: Scope) -> Merge:
        array, _rebuilt = array_branch(scope.type(step.field))
        if _may_differ(array):
            message = f"expected parts of one dtype to join again, got {format_type(array)}"
            refuse("NQX307", "field", message, "declare a dtype, or a choice under `dtypes:`")
        return Merge(fields=list(step.into), into=step.field, how=step.how, axis=step.axis)

    def merge(self, step: Merge, scope: Scope) -> Document:
        sources = [scope.field(name, "fields") for name in step.fields]
        branches = [array_branch(source.declared, "fields") for source in sources]
        scope.require_free(step.into, "into", leaving=step.fields)
        arrays = [array for array, _ in branches]
        required = {s.declared == array for s, array in zip(sources, arrays, strict=True)}
        if len(required) > 1:
            shown = ", ".join(format_type(source.declared) for source in sources)
            message = f"expected fields that may all be null or none, got {shown}"
            refuse("NQX310", "fields", message, "fill the optional ones before")
        _, rebuilt = branches[0]
        declared = rebuilt(self._whole(step, arrays, scope.known))
        made = scope.adopt(step.into, declared, sources[0])
        return scope.replaced(step.fields, {step.into: made})

    def _whole(self, step: Merge, arrays: Sequence[Array], known: Mapping[str, Any]) -> Array:
        dtypes = {array.dtype for array in arrays}
        if len(dtypes) > 1 or _may_differ(arrays[0]):
            message = f"expected arrays of one dtype, got {', '.join(sorted(dtypes))}"
            refuse("NQX310", "fields", message, "cast them in a step before")
        return self.whole(step, arrays, known)

    def merge_nodes(self, step: Merge, place: Place) -> Node:
        nodes = {name: place.field(name) for name in step.fields}
        first, leaving = step.fields[0], tuple(step.fields)
        there = [name for name, node in nodes.items() if node is not None]
        if not there:
            return place.swapped(leaving, {step.into: None})
        if len(there) < len(nodes):
            names = " and ".join(step.fields)
            message = f"expected {names} to be null together, got a value in {', '.join(there)}"
            raise place.error("NQX310", message, first, hint=TAKES)
        described = [
            Array(node["dtype"], tuple(map(extent, place.shape(node, name))))
            for name, node in nodes.items()
        ]
        try:
            made = self._whole(step, described, {})
        except SchemaError as error:
            found = error.diagnostics[0].message
            raise place.error("NQX310", found, first, hint=TAKES) from None
        array = self.join(step, made, [*map(place.load, nodes.values())], len(place.lead))
        made_of = (step.name, step.how, step.axis, *map(place.identity, nodes.values()))
        node = place.workspace.store(array, made_of)
        return place.swapped(leaving, {step.into: node | marks_of(nodes[first], ("leaf",))})

    def unmerge(self, step: Merge, scope: Scope, after: Document) -> Split:
        names = self.names(step, scope, after)
        return Split(field=step.into, axis=step.axis, into=names, how=step.how)

    def review_merge(self, step: Merge, scope: Scope) -> Iterator[Diagnostic]:
        if scope.type(step.fields[0]).nullable:
            names = " and ".join(step.fields)
            yield may_stop(f"in which some of {names} are null, but not all", "fields")


class Parts(ArrayWay):
    """Two real arrays as a complex one."""

    def axes(self, rank: int) -> Iterable[int]:
        return (0,)

    def words(self, whole: str, parts: Sequence[str], axis: int) -> str:
        return f"{parts[0]} the real and {parts[1]} the imaginary part of {whole}"

    def parts(self, step: Split, array: Array, scope: Scope) -> dict[str, Array]:
        names = list(step.into)
        part = PART_OF.get(array.dtype)
        if part is None or len(names) != 2:
            shown = f"{format_type(array)} and {names}"
            refuse("NQX310", "into", f"expected a complex array and two names, got {shown}")
        return dict.fromkeys(names, Array(part, array.shape))

    def cut(self, step: Split, node: Node, place: Place) -> dict[str, Node]:
        place.shape(node, step.field)
        dtype = PART_OF.get(node["dtype"])
        if dtype is None:
            message = f"expected a complex array, got {node['dtype']}"
            raise place.error("NQX411", message, step.field)
        made = {}
        for index, name in enumerate(step.into):
            part = partial(part_complex, imaginary=index == 1)
            made[name] = place.derive(node, Computation(f"part {index}", dtype, part))
        return made

    def whole(self, step: Merge, arrays: Sequence[Array], known: Mapping[str, Any]) -> Array:
        first = arrays[0]
        if len(arrays) != 2 or first.dtype not in COMPLEX_OF:
            shown = ", ".join(map(format_type, arrays))
            refuse("NQX310", "fields", f"expected two arrays of float32 or float64, got {shown}")
        _check_shapes(arrays, None, known)
        return Array(COMPLEX_OF[first.dtype], first.shape)

    def join(self, step: Merge, made: Array, arrays: list[LazyArray], lead: int) -> LazyArray:
        return Combined(arrays, made.dtype, partial(join_complex, dtype=made.dtype))


class Stacked(ArrayWay):
    """Arrays along a new axis."""

    new_axis = True
    made = "stacked of"

    def parts(self, step: Split, array: Array, scope: Scope) -> dict[str, Array]:
        shape, axis = _shape_and_axis(step, array)
        before, length, behind = shape[:axis], shape[axis], shape[axis + 1 :]
        if not same_size(length, extent(len(step.into)), scope.known):
            message = (
                f"expected as many names as axis {axis} is long, {length}, got {len(step.into)}"
            )
            refuse("NQX309", "into", message)
        return dict.fromkeys(step.into, replace(array, shape=(*before, *behind)))

    def cut(self, step: Split, node: Node, place: Place) -> dict[str, Node]:
        shape = place.shape(node, step.field)
        axis = _axis(step.axis, len(shape))
        # A list of names is a stack: one entry of the axis for each.
        given = step.into.values() if isinstance(step.into, dict) else [1] * len(step.into)
        sizes = _lengths([*map(extent, given)], shape[axis], place, step.field)
        if sum(sizes) != shape[axis] or min(sizes) < 0:
            wanted = " + ".join(map(str, sizes))
            message = f"expected an array whose axis {axis} is {wanted} long, got shape {shape}"
            raise place.error("NQX412", message, step.field)
        made, start = {}, 0
        for name, size in zip(step.into, sizes, strict=True):
            window = Window(axis, start, None if self.new_axis else size)
            made[name] = place.derive(node, window)
            start += size
        return made

    def whole(self, step: Merge, arrays: Sequence[Array], known: Mapping[str, Any]) -> Array:
        shape, axis = _shape_and_axis(step, arrays[0], new=True)
        _check_shapes(arrays, None, known)
        return replace(arrays[0], shape=(*shape[:axis], extent(len(arrays)), *shape[axis:]))

    def join(self, step: Merge, made: Array, arrays: list[LazyArray], lead: int) -> LazyArray:
        axis = lead + _axis(step.axis, len(made.shape))
        return Joined(arrays, axis, stacked=self.new_axis)


class Concatenated(Stacked):
    """Arrays side by side along an axis."""

    new_axis = False
    made = "joined from"

    def parts(self, step: Split, array: Array, scope: Scope) -> dict[str, Array]:
        shape, axis = _shape_and_axis(step, array)
        known, length = scope.known, shape[axis]
        if not isinstance(step.into, dict):
            message = "expected a size for each name, got names alone"
            refuse("NQX309", "into", message, "write `into: {a: n, b: m}`")
        sizes = {name: extent(size) for name, size in step.into.items()}
        scope.require_sizes(sizes.values(), "into")
        whole = total(list(sizes.values()))
        if not same_size(whole, length, known):
            message = (
                f"expected sizes that sum to {length}, the length of axis {axis}, got {whole.text}"
            )
            hint = f"write sizes that sum to {length}"
            others = [at for at, size in enumerate(shape) if same_size(whole, size, known)]
            if others:
                hint = f"axis {others[0]} is that long: write `axis: {others[0]}`"
            elif (
                str(length).isidentifier()
                and str(length) not in known
                and str(length) not in whole.names
            ):
                names = sorted(whole.names - scope.document.dims.keys())
                dims = "".join(f"{name}: {{}}, " for name in names)
                line = f"{{{dims}{length}: {{equals: {whole.text}}}}}"
                hint = f"declare `{line}` under dims of both versions, if it is so"
            refuse("NQX309", "into", message, hint)
        before, behind = shape[:axis], shape[axis + 1 :]
        return {n: replace(array, shape=(*before, size, *behind)) for n, size in sizes.items()}

    def whole(self, step: Merge, arrays: Sequence[Array], known: Mapping[str, Any]) -> Array:
        shape, axis = _shape_and_axis(step, arrays[0])
        _check_shapes(arrays, axis, known)
        lengths: list[Any] = [array.shape[axis] for array in arrays]
        return replace(arrays[0], shape=(*shape[:axis], total(lengths), *shape[axis + 1 :]))

    def names(self, step: Merge, scope: Scope, after: Document) -> Any:
        arrays = {name: array_branch(scope.type(name))[0] for name in step.fields}
        axis = _axis(step.axis, len(arrays[step.fields[0]].shape))
        sizes = {name: array.shape[axis] for name, array in arrays.items()}
        scope.moved(after).require_sizes(sizes.values(), "fields", "NQX307")
        return {name: plain_size(size) for name, size in sizes.items()}


def _axis(axis: int, rank: int, *, new: bool = False) -> int:
    """An axis as a number that is not negative; ``new`` for one that does not exist yet."""
    ranks = rank + new
    if not -ranks <= axis < ranks:
        refuse("NQX304", "axis", f"expected an axis of an array with {rank} axes, got {axis}")
    return axis % ranks


def _shape_and_axis(
    step: Split | Merge, array: Array, *, new: bool = False
) -> tuple[tuple[Any, ...], int]:
    """The shape of an array of known rank, and the axis of a step in it."""
    if ... in array.shape:
        member = "field" if isinstance(step, Split) else "fields"
        refuse("NQX304", member, f"expected an array of known rank, got {format_type(array)}")
    return array.shape, _axis(step.axis, len(array.shape), new=new)


def _lengths(extents: Sequence[Expression], length: int, place: Place, field: str) -> list[int]:
    """The lengths of the parts of an axis; one that no other array shows is what the others leave."""
    known = [place.known_size(size) for size in extents]
    left = length - sum(size or 0 for size in known)
    if known.count(None) == 1 or left == 0:
        return [left if size is None else size for size in known]
    return [place.size(size, field) for size in extents]


def _may_differ(array: Array) -> bool:
    """True if two arrays of the type can differ in dtype: those of a family can, those of a choice cannot."""
    return len(array.dtypes) > 1 and not array.choice


def _check_shapes(arrays: Sequence[Array], free: int | None, known: Mapping[str, Any]) -> None:
    """Checks that arrays agree in all axes but one."""

    def same(axis: int, a: Extent, b: Extent) -> bool:
        return axis == free or (str(a) != ANY and same_size(a, b, known))

    first, *others = [array.shape for array in arrays]
    axes = range(len(first))
    for other in others:
        if len(first) != len(other) or not all(map(same, axes, first, other)):
            shown = ", ".join(map(format_type, arrays))
            but = "" if free is None else f" but for axis {free}"
            refuse("NQX310", "fields", f"expected arrays of one shape{but}, got {shown}")


# ---------------------------------------------------------------------------------------------------------------------
# Collections.


@dataclass(frozen=True, eq=False)
class Collection:
    """A list or a tuple whose values may be fields of a struct.

    Attributes:
        whole: Returns its type for the types of its values.
        kind: The kind of its nodes.
        mixed: True if the values may differ in type.
        alone: True if one field may have become all of its values.
        order: What tells its values apart, in words.
    """

    whole: Callable[[Sequence[Type]], Type]
    kind: NodeKind
    mixed: bool = False
    alone: bool = False
    order: str = "in this order"

    spares_arrays: ClassVar[bool] = True

    def places(self, parts: Sequence[str], whole: str) -> Places:
        return {(name,): (whole, index) for index, name in enumerate(parts)}

    def items(self, nodes: Mapping[str, Node]) -> list[Any]:
        """The items of its node."""
        return [*nodes.values()]

    def keys(self, names: Sequence[str]) -> Sequence[Any]:
        """The keys of values with names."""
        return range(len(names))

    def found(self, node: Node, held: Mapping[Any, Any]) -> str:
        """A node with other values, in words."""
        return shown_node(node)

    def split(self, step: Split, scope: Scope) -> Document:
        source, names = scope.field(step.field), [*step.into]
        types = self._types(step, source.declared)
        if len({*names}) < len(names) or not names:
            refuse("NQX304", "into", f"expected distinct names, got {names}")
        made = {}
        for name, declared in zip(names, types, strict=True):
            scope.require_free(name, "into", leaving=(step.field,))
            made[name] = scope.adopt(name, declared, source)
        return scope.replaced((step.field,), made)

    def _types(self, step: Split, declared: Type) -> Sequence[Type]:
        """The types of the values."""
        names = [*step.into]
        if isinstance(step.into, dict):
            message = f"expected names alone for the values of a {step.how}, got sizes"
            refuse("NQX309", "into", message, f"write `into: [{', '.join(names)}]`")
        if declared.sort != step.how:
            refuse("NQX304", "field", f"expected a {step.how}, got {format_type(declared)}")
        types = declared.parts_for(len(names))
        other = any(constant(size) not in (None, len(names)) for size in declared.extents)
        if types is None or other:
            message = (
                f"expected as many names as {format_type(declared)} has values, got {len(names)}"
            )
            refuse("NQX309", "into", message)
        return types

    def split_nodes(self, step: Split, place: Place) -> Node:
        node, names = place.field(step.field), [*step.into]
        declared = place.before.structs[place.struct].fields[step.field].declared
        held = {key: item for key, _, item in declared.children(node)}
        keys = self.keys(names)
        if held.keys() != {*keys} or isinstance(node, str):
            wanted, got = ", ".join(names), self.found(node, held)
            message = f"expected a {step.how} of {len(names)} values for {wanted}, got {got}"
            raise place.error("NQX411", message, step.field, hint=TAKES)
        made = {name: held[key] for name, key in zip(names, keys, strict=True)}
        return place.swapped((step.field,), made)

    def review_split(self, step: Split, scope: Scope) -> Iterator[Diagnostic]:
        declared, count = scope.type(step.field), extent(len(step.into))
        fixed = declared.fixed_parts
        if not fixed or any(not same_size(n, count, scope.known) for n in declared.extents):
            yield may_stop(f"with a {step.how} that has not {len(step.into)} values", "field")

    def unsplit(self, step: Split, scope: Scope) -> Merge:
        return Merge(fields=[*step.into], into=step.field, how=step.how)

    def review_merge(self, step: Merge, scope: Scope) -> Iterator[Diagnostic]:
        yield from ()

    def merge(self, step: Merge, scope: Scope) -> Document:
        scope.require_free(step.into, "into", leaving=step.fields)
        sources = [scope.field(name, "fields") for name in step.fields]
        first, *others = [source.declared for source in sources]
        unlike = [other for other in others if not same_type(first, other, scope.known)]
        if unlike and not self.mixed:
            wider = _wider(step, scope)
            if wider is None:
                shown = f"{format_type(first)} and {format_type(unlike[0])}"
                message = f"expected fields of one type for a {step.how}, got {shown}"
                hint = "change their types in steps before; `how: tuple` takes several"
                refuse("NQX310", "fields", message, hint)
            first = wider
        made = scope.adopt(step.into, self.whole([first, *others]), sources[0])
        return scope.replaced(step.fields, {step.into: made})

    def merge_nodes(self, step: Merge, place: Place) -> Node:
        nodes = {name: place.field(name) for name in step.fields}
        return place.swapped(tuple(nodes), {step.into: self.kind.node(items=self.items(nodes))})

    def unmerge(self, step: Merge, scope: Scope, after: Document) -> Split:
        return Split(field=step.into, into=[*step.fields], how=step.how)


class KeyedCollection(Collection):
    """A dict, whose keys are the names of the fields; no path reaches one value of it."""

    def places(self, parts: Sequence[str], whole: str) -> Places:
        return {}

    def items(self, nodes: Mapping[str, Node]) -> list[Any]:
        return [[name, node] for name, node in nodes.items()]

    def keys(self, names: Sequence[str]) -> Sequence[Any]:
        return names

    def found(self, node: Node, held: Mapping[Any, Any]) -> str:
        return f"the keys {listed(map(str, held))}" if held else super().found(node, held)

    def review_split(self, step: Split, scope: Scope) -> Iterator[Diagnostic]:
        yield may_stop(f"with a dict that has other keys than {', '.join(step.into)}", "field")


def _wider(step: Merge, scope: Scope) -> Type | None:
    """The type of the values in the new version, if the values of all the fields are of it as they are."""
    wanted = scope.wanted_field(step.into)
    if wanted is None or wanted.declared.sort != step.how:
        return None
    (part,) = wanted.declared.parts
    held = (scope.type(name) for name in step.fields)
    return part if all(readable_as(each, part, scope.known) for each in held) else None


#: The collections by their names, which are those of their types too.
COLLECTIONS: Final[Mapping[str, Collection]] = {
    "list": Collection(lambda types: ListOf(types[0], extent(len(types))), LIST, alone=True),
    "tuple": Collection(lambda types: TupleOf(tuple(types)), TUPLE, mixed=True),
    "dict": KeyedCollection(lambda types: DictOf(types[0]), DICT, order="under these keys"),
}
ARRAYS: Final[Mapping[str, ArrayWay]] = {
    "concat": Concatenated(),
    "stack": Stacked(),
    "complex": Parts(),
}
WAYS: Final[Mapping[str, ArrayWay | Collection]] = {**ARRAYS, **COLLECTIONS}


# ---------------------------------------------------------------------------------------------------------------------
# The records.

split = builder(Split, axis=0, how="concat")
SPLIT = StepKind(
    model=Split,
    declare=lambda step, scope: WAYS[step.how].split(step, scope),
    rewrite=lambda step, place: WAYS[step.how].split_nodes(step, place),
    inverse=lambda step, scope, _: [WAYS[step.how].unsplit(step, scope)],
    cost="streaming",
    spares_arrays=lambda step: WAYS[step.how].spares_arrays,
    places=lambda step: {
        to: path for path, to in WAYS[step.how].places([*step.into], step.field).items()
    },
    review=lambda step, scope: WAYS[step.how].review_split(step, scope),
)

merge = builder(Merge, axis=0)


def _merge(step: Merge, scope: Scope) -> Document:
    if len(set(step.fields)) != len(step.fields):
        refuse("NQX304", "fields", f"expected distinct fields, got {step.fields}")
    return WAYS[step.how].merge(step, scope)


def _suggest_parts(gap: Gap) -> Iterator[Sequence[Step]]:
    """Yields the steps from a complex array to its two parts along an axis, and back."""
    taken = gap.old.structs[gap.within or gap.old.root].fields
    names = [f"{gap.field}_{part}" for part in ("real", "imag")]
    while not taken.keys().isdisjoint(names):
        names = [f"{name}_" for name in names]
    for have, want in zip(gap.have.solid, gap.want.solid, strict=False):
        parts = have.element in PART_OF
        if not (have.element and want.element) or parts == (want.element in PART_OF):
            continue
        for axis, size in enumerate((want if parts else have).extents):
            if size is not ... and constant(size) == 2:
                split_how: Any = {"how": "complex"} if parts else {"how": "stack", "axis": axis}
                merge_how: Any = {"how": "stack", "axis": axis} if parts else {"how": "complex"}
                yield (
                    split(field=gap.field, into=names, **split_how, within=gap.within),
                    merge(fields=names, into=gap.field, **merge_how, within=gap.within),
                )


def _candidates(edit: Edit, *, named: bool) -> Iterator[Candidate]:
    yield from _array_merges(edit, named=named)
    yield from _collection_merges(edit, named=named)


MERGE = StepKind(
    model=Merge,
    declare=_merge,
    rewrite=lambda step, place: WAYS[step.how].merge_nodes(step, place),
    inverse=lambda step, scope, after: [WAYS[step.how].unmerge(step, scope, after)],
    cost="streaming",
    spares_arrays=lambda step: WAYS[step.how].spares_arrays,
    suggest=_suggest_parts,
    candidates=_candidates,
    is_undone=True,
    question=lambda _: "does its axis of 2 hold the real and then the imaginary part?",
    places=lambda step: WAYS[step.how].places(step.fields, step.into),
    review=lambda step, scope: WAYS[step.how].review_merge(step, scope),
)

# ---------------------------------------------------------------------------------------------------------------------
# Candidates: arrays.


def _array_merges(edit: Edit, *, named: bool) -> Iterator[Candidate]:
    """Yields merges of arrays into a new one: with ``named`` those of ``w_re`` and ``w_im``, else all others."""
    if not edit.is_small:
        return
    for whole, declaration in edit.come.items():
        for parts in subsets(declaration.declared, edit.gone, edit.known):
            if _are_named(parts) == named:
                yield from _merged(edit, whole, parts)


def _merged(edit: Edit, whole: str, parts: tuple[str, ...]) -> Iterator[Candidate]:
    """Yields merges of parts as they are, whose result other steps change, and of parts that are changed before."""
    wanted = edit.come[whole]
    types = [edit.gone[name].declared for name in parts]
    for joint in joints(wanted.declared, types, edit.known):
        options = [*_changed_behind(edit, whole, parts, joint)]
        options += _changed_before(edit, whole, parts, joint)
        for steps in sorted(options, key=len)[:1]:
            cost = _cost(whole, parts, len(steps) - 1)
            axis = next(step.axis for step in steps if isinstance(step, Merge))
            words = ARRAYS[joint.how].words(whole, parts, axis)
            yield Candidate(parts, (whole,), steps, cost, f": is {words}?")


def _changed_behind(
    edit: Edit, whole: str, parts: tuple[str, ...], joint: Joint
) -> Iterator[tuple[Step, ...]]:
    """Yields the merge along any axis, and steps that change the whole array without mixing its parts."""
    wanted = edit.come[whole]
    axes = ARRAYS[joint.how].axes(len(wanted.declared.extents))
    for axis in dict.fromkeys((joint.axis, *axes)):
        step = _joined(edit, whole, parts, joint, axis)
        after = edit.apply((step,))
        if after is None:
            continue
        made = after.structs[edit.name].stored[whole].declared
        if _sizes_of(made, edit.known) == _sizes_of(wanted.declared, edit.known):
            yield from ((step, *more) for more in islice(edit.change(whole, wanted, (step,)), 1))


def _sizes_of(declared: Type, known: Known) -> Counter[frozenset[Any]]:
    """The sizes of the axes in any order: other axes than these are parts of several, which a reshape mixes."""
    sizes = [size for size in declared.extents if size is not ...]
    return Counter(frozenset(polynomial(size, known).items()) for size in sizes)


def _joined(edit: Edit, whole: str, parts: tuple[str, ...], joint: Joint, axis: int) -> Merge:
    return Merge(fields=[*parts], into=whole, how=joint.how, axis=axis, **edit.place)


def _changed_before(
    edit: Edit, whole: str, parts: tuple[str, ...], joint: Joint
) -> Iterator[tuple[Step, ...]]:
    """Yields the steps that give each part the type that it has in the joint, and the merge."""
    steps: list[Step] = []
    for name, declared in zip(parts, joint.parts, strict=True):
        chain = next(edit.change(name, edit.gone[name].with_type(declared), steps), None)
        if chain is None:
            return
        steps += chain
    yield (*steps, _joined(edit, whole, parts, joint, joint.axis))


#: Words in names of the parts of a complex array.
_PART = re.compile(r"_?(re|im|real|imag)$|^(re|im|real|imag)_")


def _are_named(parts: Sequence[str]) -> bool:
    """True for ``w_re`` and ``w_im``."""
    stems = {_PART.sub("", name) for name in parts}
    return len(stems) == 1 and all(_PART.search(name) for name in parts)


def _cost(whole: str, parts: Sequence[str], changes: int) -> float:
    """Fewer steps and similar names before others; the real part before the imaginary one."""
    unlike = [1 - SequenceMatcher(None, part, whole).ratio() for part in parts]
    first = _PART.search(parts[0])
    reversed_parts = first is not None and "im" in first.group()
    base = 0.4 if _are_named(parts) else 0.5
    shown = 0.05 * (changes > 0) + 0.04 * sum(unlike) / len(unlike)
    return base + shown + 0.0005 * changes + 0.0001 * reversed_parts


# ---------------------------------------------------------------------------------------------------------------------
# Candidates: collections.


def _collection_merges(edit: Edit, *, named: bool) -> Iterator[Candidate]:
    """Yields merges of fields into a new collection: with ``named`` numbered fields, else those of one type."""
    if not named and not edit.is_small:
        return
    found: dict[tuple[bool, str], list[tuple[str, ...]]] = {}
    for whole, declaration in edit.come.items():
        for how in _hows(declaration.declared):
            # Arrays that are parts of another one are those above.
            is_array = bool(declaration.declared.element)
            if (is_array, how) not in found:
                some = {n: d for n, d in edit.gone.items() if not (is_array and d.declared.element)}
                groups = numbered(some) if named else _of_one_type(how, some, edit)
                found[is_array, how] = [*groups]
            for parts in found[is_array, how]:
                if whole not in parts:
                    yield from _collected(edit, whole, parts, how, 0.1 if named else 0.8)


def _collected(
    edit: Edit, whole: str, parts: Sequence[str], how: Any, cost: float
) -> Iterator[Candidate]:
    """Yields the steps that gather values and give the collection its type."""
    step = Merge(fields=[*parts], into=whole, how=how, **edit.place)
    question = f": are they its values, {COLLECTIONS[how].order}?"
    for more in islice(edit.change(whole, edit.come[whole], (step,)), 1):
        yield Candidate(tuple(parts), (whole,), (step, *more), cost, question)


def _hows(declared: Type) -> Iterator[str]:
    """Yields the collections that a type is, or is made of."""
    for option in declared.solid[:1]:
        if option.sort in COLLECTIONS:
            yield option.sort
        elif option.listed is not None:
            yield option.listed.sort


_NUMBERED = re.compile(r"(.*?)_?(\d{1,9})")


def numbered(names: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yields the names that differ in a number at their end alone, in the order of the numbers.

    Example:
        >>> [*numbered(["layer_1", "norm", "layer_0", "layer_10"])]
        [('layer_0', 'layer_1', 'layer_10')]
    """
    groups: dict[str, dict[int, str]] = {}
    for name in names:
        found = _NUMBERED.fullmatch(name)
        if found:
            groups.setdefault(found[1], {}).setdefault(int(found[2]), name)
    for group in groups.values():
        if len(group) > 1:
            yield tuple(group[number] for number in sorted(group))


def _of_one_type(how: str, fields: Fields, edit: Edit) -> Iterator[tuple[str, ...]]:
    """Yields the fields of one type, in the order of their declarations; all of them where types may differ."""
    groups: list[list[str]] = []
    for name, declaration in fields.items():
        for group in groups:
            first = fields[group[0]].declared
            alike = same_type(first, declaration.declared, edit.known)
            if alike or COLLECTIONS[how].mixed:
                group.append(name)
                break
        else:
            groups.append([name])
    for group in groups:
        declared = fields[group[0]].declared
        # A number or a text alone shows too little.
        shown = declared.refers or declared.axes or declared.key_impl
        if len(group) > 1 or (COLLECTIONS[how].alone and shown and len(groups) == 1):
            yield tuple(group)
