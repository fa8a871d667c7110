"""Steps that change one array: cast, transpose, reshape. New arrays are computed when they are read.

Example:
    >>> scope = Scope.of(cast(field="samples", dtype="int8"), v1, v2)
    >>> CAST.declare(Cast(field="samples", dtype="int8"), scope).structs["VMCState"].fields["samples"].text
    'int8[n_chains, n_sites]'
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from neuralqx_struct.dtypes import DTYPES, best_dtype, dtypes_of, promotes, rounds
from neuralqx_struct.errors import Diagnostic, did_you_mean
from neuralqx_struct.evolution.payload_tree import TAKES, Place
from neuralqx_struct.evolution.steps.operations import (
    Gap,
    Scope,
    StepKind,
    arrays_of,
    builder,
    each_array,
    may_stop,
    refuse,
    require_admission,
    rounded,
)
from neuralqx_struct.manifest.lazy_arrays import Casting, Reshaping, Transposition
from neuralqx_struct.paths import Path
from neuralqx_struct.schema.migration import (
    Cast,
    Reshape,
    Step,
    Transpose,
)
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.sizes.comparison import constant, extent, plain_size, same_size, total
from neuralqx_struct.types import Array, Extent, Node, Type
from neuralqx_struct.types.text import format_type

# ---------------------------------------------------------------------------------------------------------------------
# cast


def _cast(step: Cast, scope: Scope) -> Document:
    if step.dtype not in DTYPES:
        hint = did_you_mean(step.dtype, DTYPES)
        if dtypes_of(step.dtype) or step.dtype in scope.target.dtypes:
            hint = f"cast to one of the dtypes of {step.dtype}: it takes each of them as it is"
        refuse("NQX102", "dtype", f"expected a dtype, got {step.dtype!r}", hint)
    require_admission(step)

    def change(array: Array) -> Array:
        return Array(step.dtype, array.shape)

    return scope.with_type(step.field, lambda have: each_array(have, change, step.name))


def _cast_payload(step: Cast, place: Place) -> Node:
    def change(node: Node, at: Path) -> Node:
        if node["dtype"] == step.dtype:
            return node
        where = place.note(f"was cast from {node['dtype']} to {step.dtype}", *at)
        place.shape(node, *at)
        return place.derive(node, Casting(step.dtype, step.exact, where))

    return place.each_array(step.field, change)


def _cast_back(step: Cast, scope: Scope, _: Document) -> list[Step]:
    arrays = arrays_of(scope.type(step.field))
    dtypes = {dtype for array in arrays for dtype in array.dtypes}
    if len(dtypes) != 1:
        names = sorted({array.element for array in arrays})
        message = f"expected one dtype to go back to, got {', '.join(names)}"
        refuse("NQX307", "field", message, "fine if no payload goes back")
    return [Cast(field=step.field, dtype=dtypes.pop())]


def _review_cast(step: Cast, scope: Scope) -> Iterator[Diagnostic]:
    """Yields NQX320 where the new dtype does not hold all values of the old one."""
    arrays = arrays_of(scope.type(step.field))
    dtypes = dict.fromkeys(dtype for array in arrays for dtype in array.dtypes)
    if step.exact and not all(promotes(dtype, step.dtype) for dtype in dtypes):
        yield may_stop(
            f"with a value of {', '.join(dtypes)} that {step.dtype} does not hold", "dtype"
        )


def _suggest_cast(gap: Gap) -> Iterator[Step]:
    wanted = {array.dtypes for array in arrays_of(gap.want)}
    if len(wanted) == 1:
        dtype = best_dtype(wanted.pop(), gap.have.dtypes)
        yield cast(field=gap.field, dtype=dtype, within=gap.within)
        stored = [each for array in arrays_of(gap.have) for each in array.dtypes]
        if any(rounds(each, dtype) for each in stored):
            yield rounded(Cast(field=gap.field, dtype=dtype, within=gap.within))


cast = builder(Cast)
CAST = StepKind(
    model=Cast,
    declare=_cast,
    rewrite=_cast_payload,
    inverse=_cast_back,
    cost="streaming",
    suggest=_suggest_cast,
    answer="the same values",
    review=_review_cast,
    checks_values=True,
    rounded=rounded,
)

# ---------------------------------------------------------------------------------------------------------------------
# transpose


def _transpose(step: Transpose, scope: Scope) -> Document:
    def change(array: Array) -> Array:
        shown = format_type(array)
        if ... in array.shape:
            if step.axes is None:
                return replace(array, shape=array.shape[::-1])
            if array.shape == (...,):
                return array
            refuse("NQX304", "axes", f"expected an array of known rank, got {shown}")
        made = Transposition.of_axes(step.axes, len(array.shape))
        if made is None:
            message = f"expected the axes of {shown} in some order, got {step.axes}"
            refuse("NQX304", "axes", message)
        if made.order == tuple(range(len(made.order))):
            member = "axes" if step.axes else "field"
            refuse("NQX306", member, f"expected another order of axes, got that of {shown}")
        return replace(array, shape=made.shape(array.shape))

    def changed(have: Type) -> Type:  # a square array keeps its type
        return each_array(have, change, step.name, moves=True)

    return scope.with_type(step.field, changed)


def _transpose_payload(step: Transpose, place: Place) -> Node:
    def change(node: Node, at: Path) -> Node:
        shape = place.shape(node, *at)
        made = Transposition.of_axes(step.axes, len(shape))
        if made is None:
            message = f"expected an array with {len(step.axes or ())} axes, got shape {shape}"
            raise place.error("NQX412", message, *at)
        return place.derive(node, made)

    return place.each_array(step.field, change)


def _transpose_back(step: Transpose, *_: object) -> list[Step]:
    if step.axes is None:
        return [step]
    made = Transposition.of_axes(step.axes, len(step.axes))
    return [Transpose(field=step.field, axes=[*made.inverse.order] if made else [])]


def _shapes(gap: Gap) -> tuple[tuple[Extent, ...], tuple[Extent, ...]] | None:
    """Both shapes where both types are arrays of known rank."""
    have, want = gap.have, gap.want
    if not all(each.element for each in (have, want)):
        return None
    return None if ... in (*have.extents, *want.extents) else (have.extents, want.extents)


def _suggest_transpose(gap: Gap) -> Iterator[Step]:
    have, want = _shapes(gap) or ((), ())
    if len(have) != len(want) or len(want) < 2:
        return
    left, order = list(range(len(have))), []
    for size in want:
        same = [axis for axis in left if same_size(have[axis], size, gap.known)]
        order.append((same or left)[0])
        left.remove(order[-1])
    yield transpose(field=gap.field, axes=order, within=gap.within)


transpose = builder(Transpose)
TRANSPOSE = StepKind(
    model=Transpose,
    declare=_transpose,
    rewrite=_transpose_payload,
    inverse=_transpose_back,
    cost="streaming",
    suggest=_suggest_transpose,
    answer="axes in another order",
)

# ---------------------------------------------------------------------------------------------------------------------
# reshape


def _reshape(step: Reshape, scope: Scope) -> Document:
    shape = tuple(map(extent, step.shape))
    scope.require_sizes(shape, "shape")
    known = scope.known
    want = total(shape, "*")

    def change(array: Array) -> Array:
        have = total([size for size in array.shape if size is not ...], "*")
        if ... not in array.shape and not same_size(have, want, known):
            shown = f"{format_type(array)}, got {step.shape}"
            message = f"expected a shape with as many elements as {shown}"
            why = f"{have.text} and {want.text} are not the same for all dims"
            refuse("NQX305", "shape", f"{message}\n{why}")
        return replace(array, shape=shape)

    return scope.with_type(step.field, lambda have: each_array(have, change, step.name))


def _reshape_payload(step: Reshape, place: Place) -> Node:
    def change(node: Node, at: Path) -> Node:
        # Not before there is an array: a list may be empty, and then nothing else may show the sizes.
        shape = tuple(place.size(extent(size), *at) for size in step.shape)
        have = place.shape(node, *at)
        if prod(have) != prod(shape):
            wanted = f"{prod(shape)} elements for shape {[*shape]}"
            message = f"expected an array with {wanted}, got shape {have}"
            raise place.error("NQX412", message, *at, hint=TAKES)
        return place.derive(node, Reshaping(shape))

    return place.each_array(step.field, change)


def _reshape_back(step: Reshape, scope: Scope, after: Document) -> list[Step]:
    shapes = {array.shape for array in arrays_of(scope.type(step.field))}
    for shape in shapes:
        scope.moved(after).require_sizes(shape, "field", "NQX307")
    first, *others = shapes
    if others or ... in first:
        message = "expected one declared shape to go back to, got any"
        refuse("NQX307", "field", message, "declare the shape in the old version")
    return [Reshape(field=step.field, shape=[*map(plain_size, first)])]


def _suggest_reshape(gap: Gap) -> Iterator[Step]:
    shapes = _shapes(gap)
    if shapes is not None:
        numbers = [constant(size) for size in shapes[1]]
        pairs = zip(numbers, shapes[1], strict=True)
        shape = [str(size) if number is None else number for number, size in pairs]
        yield reshape(field=gap.field, shape=shape, within=gap.within)


reshape = builder(Reshape)
RESHAPE = StepKind(
    model=Reshape,
    declare=_reshape,
    rewrite=_reshape_payload,
    inverse=_reshape_back,
    cost="streaming",
    suggest=_suggest_reshape,
    answer="the same elements in the same order, in another shape",
)
