"""Steps between one array and several: split and merge, inverse to each other.

Example:
    >>> step = split(field="bias_all", into={"visible_bias": "n_sites", "hidden_bias": "n_hidden"})
    >>> SPLIT.declare(step, Scope.of(step, v2, v3)).structs["VMCState"].fields["visible_bias"].text
    'complex64[n_sites]'
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from neuralqx_struct.errors import Diagnostic, SchemaError
from neuralqx_struct.evolution.lazy_arrays import Computation, Joined, LazyArray, Window
from neuralqx_struct.evolution.payload_tree import TAKES, Place, computed
from neuralqx_struct.evolution.sizes import constant, extent, same_size, total
from neuralqx_struct.evolution.steps.arrays import plain_size
from neuralqx_struct.evolution.steps.containers import (
    CONTAINERS,
    collection_merges,
    merge_back,
    merge_fields,
    merge_nodes,
    merged_places,
    review_split_values,
    split_back,
    split_nodes,
    split_places,
    split_values,
)
from neuralqx_struct.evolution.steps.joints import array_merges
from neuralqx_struct.evolution.steps.operations import (
    Candidate,
    Edit,
    Gap,
    Scope,
    StepKind,
    array_branch,
    builder,
    may_stop,
    refuse,
)
from neuralqx_struct.evolution.values import (
    COMPLEX_OF,
    PART_OF,
    join_complex,
    marks_of,
    part_complex,
)
from neuralqx_struct.expressions import Expression
from neuralqx_struct.schema.migration import Merge, Split, Step
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.sizes import ANY
from neuralqx_struct.types import Array, Extent, Node
from neuralqx_struct.types.text import format_type


def _axis(axis: int, rank: int, *, new: bool = False) -> int:
    """An axis as a number that is not negative; ``new`` for one that does not exist yet."""
    ranks = rank + new
    if not -ranks <= axis < ranks:
        refuse("NQX304", "axis", f"expected an axis of an array with {rank} axes, got {axis}")
    return axis % ranks


def _known_shape(array: Array, member: str) -> tuple[Any, ...]:
    if ... in array.shape:
        refuse("NQX304", member, f"expected an array of known rank, got {format_type(array)}")
    return array.shape


# ---------------------------------------------------------------------------------------------------------------------
# split


def _parts(step: Split, array: Array, scope: Scope) -> dict[str, Array]:
    """The types of the parts by name."""
    names = list(step.into)
    if step.how == "complex":
        part = PART_OF.get(array.dtype)
        if part is None or len(names) != 2:
            shown = f"{format_type(array)} and {names}"
            refuse("NQX310", "into", f"expected a complex array and two names, got {shown}")
        return dict.fromkeys(names, Array(part, array.shape))
    shape = _known_shape(array, "field")
    axis = _axis(step.axis, len(shape))
    known = scope.known
    before, length, behind = shape[:axis], shape[axis], shape[axis + 1 :]
    if step.how == "stack":
        if not same_size(length, extent(len(names)), known):
            message = f"expected as many names as axis {axis} is long, {length}, got {len(names)}"
            refuse("NQX309", "into", message)
        return dict.fromkeys(names, replace(array, shape=(*before, *behind)))
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
    return {name: replace(array, shape=(*before, size, *behind)) for name, size in sizes.items()}


def _split(step: Split, scope: Scope) -> Document:
    if step.how in CONTAINERS:
        return split_values(step, scope)
    source = scope.field(step.field)
    array, rebuilt = array_branch(source.declared)
    parts = _parts(step, array, scope)
    if len(parts) != len(step.into) or not parts:
        refuse("NQX304", "into", f"expected distinct names, got {list(step.into)}")
    made = {}
    for part, declared in parts.items():
        scope.require_free(part, "into", leaving=(step.field,))
        made[part] = scope.adopt(part, rebuilt(declared), source)
    return scope.replaced((step.field,), made)


def _split_payload(step: Split, place: Place) -> Node:
    if step.how in CONTAINERS:
        return split_nodes(step, place)
    node, names = place.field(step.field), list(step.into)
    if node is None:
        made = dict.fromkeys(names)
    elif step.how == "complex":
        made = _complex_parts(step, node, place)
    else:
        made = _pieces(step, node, place)
    return place.swapped((step.field,), made)


def _complex_parts(step: Split, node: Node, place: Place) -> dict[str, Node]:
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


def _pieces(step: Split, node: Node, place: Place) -> dict[str, Node]:
    shape = place.shape(node, step.field)
    axis = _axis(step.axis, len(shape))
    # A list of names is a stack: one entry of the axis for each.
    given = step.into.values() if isinstance(step.into, dict) else [1] * len(step.into)
    sizes = _lengths([*map(extent, given)], shape[axis], place, step.field)
    if sum(sizes) != shape[axis] or min(sizes) < 0:
        wanted = " + ".join(map(str, sizes))
        message = f"expected an array whose axis {axis} is {wanted} long, got shape {shape}"
        raise place.error("NQX412", message, step.field)
    stacked = step.how == "stack"
    made, start = {}, 0
    for name, size in zip(step.into, sizes, strict=True):
        made[name] = place.derive(node, Window(axis, start, None if stacked else size))
        start += size
    return made


def _lengths(extents: Sequence[Expression], length: int, place: Place, field: str) -> list[int]:
    """The lengths of the parts of an axis; one that no other array shows is what the others leave."""
    known = [place.known_size(size) for size in extents]
    left = length - sum(size or 0 for size in known)
    if known.count(None) == 1 or left == 0:
        return [left if size is None else size for size in known]
    return [place.size(size, field) for size in extents]


def _review_split(step: Split, scope: Scope) -> Iterator[Diagnostic]:
    """Yields NQX320 where a collection may have other values than the step parts."""
    if step.how in CONTAINERS:
        yield from review_split_values(step, scope)


def _split_back(step: Split, scope: Scope, _: Document) -> list[Step]:
    if step.how in CONTAINERS:
        return [merge_back(step)]
    array, _rebuilt = array_branch(scope.type(step.field))
    if _may_differ(array):
        message = f"expected parts of one dtype to join again, got {format_type(array)}"
        refuse("NQX307", "field", message, "declare a dtype, or a choice under `dtypes:`")
    return [Merge(fields=list(step.into), into=step.field, how=step.how, axis=step.axis)]


def _may_differ(array: Array) -> bool:
    """True if two arrays of the type can differ in dtype: those of a family can, those of a choice cannot."""
    return len(array.dtypes) > 1 and not array.choice


split = builder(Split, axis=0, how="concat")
SPLIT = StepKind(
    model=Split,
    declare=_split,
    rewrite=_split_payload,
    inverse=_split_back,
    cost="streaming",
    spares_arrays=lambda step: step.how in CONTAINERS,
    places=split_places,
    review=_review_split,
)

# ---------------------------------------------------------------------------------------------------------------------
# merge


def _whole(step: Merge, arrays: Sequence[Array], known: Mapping[str, Any]) -> Array:
    """The type of the merged array."""
    first = arrays[0]
    dtypes = {array.dtype for array in arrays}
    if len(dtypes) > 1 or _may_differ(first):
        message = f"expected arrays of one dtype, got {', '.join(sorted(dtypes))}"
        refuse("NQX310", "fields", message, "cast them in a step before")
    if step.how == "complex":
        if len(arrays) != 2 or first.dtype not in COMPLEX_OF:
            shown = ", ".join(map(format_type, arrays))
            refuse("NQX310", "fields", f"expected two arrays of float32 or float64, got {shown}")
        _check_shapes(arrays, None, known)
        return Array(COMPLEX_OF[first.dtype], first.shape)
    shape, stacked = _known_shape(first, "fields"), step.how == "stack"
    axis = _axis(step.axis, len(shape), new=stacked)
    _check_shapes(arrays, None if stacked else axis, known)
    if stacked:
        return replace(first, shape=(*shape[:axis], extent(len(arrays)), *shape[axis:]))
    lengths: list[Any] = [array.shape[axis] for array in arrays]
    return replace(first, shape=(*shape[:axis], total(lengths), *shape[axis + 1 :]))


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


def _merge(step: Merge, scope: Scope) -> Document:
    if len(set(step.fields)) != len(step.fields):
        refuse("NQX304", "fields", f"expected distinct fields, got {step.fields}")
    if step.how in CONTAINERS:
        scope.require_free(step.into, "into", leaving=step.fields)
        return merge_fields(step, scope)
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
    declared = rebuilt(_whole(step, arrays, scope.known))
    made = scope.adopt(step.into, declared, sources[0])
    return scope.replaced(step.fields, {step.into: made})


def _merge_payload(step: Merge, place: Place) -> Node:
    if step.how in CONTAINERS:
        return merge_nodes(step, place)
    nodes = {name: place.field(name) for name in step.fields}
    first, leaving = step.fields[0], tuple(step.fields)
    there = [name for name, node in nodes.items() if node is not None]
    if not there:
        return place.swapped(leaving, {step.into: None})
    if len(there) < len(nodes):
        names = " and ".join(step.fields)
        message = f"expected {names} to be null together, got a value in {', '.join(there)}"
        raise place.error("NQX310", message, first, hint=TAKES)
    shapes = {name: place.shape(node, name) for name, node in nodes.items()}
    described = [
        Array(node["dtype"], tuple(map(extent, shapes[name]))) for name, node in nodes.items()
    ]
    try:
        made = _whole(step, described, {})
    except SchemaError as error:
        found = error.diagnostics[0].message
        raise place.error("NQX310", found, first, hint=TAKES) from None
    arrays = [*map(place.load, nodes.values())]
    if step.how == "complex":
        real, imaginary = arrays
        array: LazyArray = computed(
            made.dtype,
            real.shape,
            lambda: join_complex(real.read(), imaginary.read(), made.dtype),
        )
        made_of: tuple[Any, ...] = (step.name, step.how)
    else:
        stacked = step.how == "stack"
        axis = len(place.lead) + _axis(step.axis, len(shapes[first]), new=stacked)
        array = Joined(arrays, axis, stacked=stacked)
        made_of = (step.name, step.how, axis)
    node = place.workspace.store(array, (*made_of, *map(place.identity, nodes.values())))
    return place.swapped(leaving, {step.into: node | marks_of(nodes[first], ("leaf",))})


def _merge_back(step: Merge, scope: Scope, after: Document) -> list[Step]:
    if step.how in CONTAINERS:
        return [split_back(step)]
    names: dict[str, int | str] | list[str] = list(step.fields)
    if step.how == "concat":
        arrays = {name: array_branch(scope.type(name))[0] for name in step.fields}
        axis = _axis(step.axis, len(arrays[step.fields[0]].shape))
        sizes = {name: array.shape[axis] for name, array in arrays.items()}
        scope.moved(after).require_sizes(sizes.values(), "fields", "NQX307")
        names = {name: plain_size(size) for name, size in sizes.items()}
    return [Split(field=step.into, axis=step.axis, into=names, how=step.how)]


def _review_merge(step: Merge, scope: Scope) -> Iterator[Diagnostic]:
    """Yields NQX320 for optional fields, as one may be null and another not."""
    if scope.type(step.fields[0]).nullable and step.how not in CONTAINERS:
        names = " and ".join(step.fields)
        yield may_stop(f"in which some of {names} are null, but not all", "fields")


merge = builder(Merge, axis=0)


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
    yield from array_merges(edit, named=named)
    yield from collection_merges(edit, named=named)


MERGE = StepKind(
    model=Merge,
    declare=_merge,
    rewrite=_merge_payload,
    inverse=_merge_back,
    cost="streaming",
    spares_arrays=lambda step: step.how in CONTAINERS,
    suggest=_suggest_parts,
    candidates=_candidates,
    is_undone=True,
    question=lambda _: "does its axis of 2 hold the real and then the imaginary part?",
    places=merged_places,
    review=_review_merge,
)
