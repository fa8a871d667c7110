"""Steps that change one array: cast, transpose, reshape. New arrays are computed when they are asked for.

For each step three functions stand side by side: what it does to a declaration, to one struct instance of a payload,
and the steps that lead back. ``steps.py`` has the table of them all.

Example:
    >>> CAST.declare(Cast(field="samples", dtype="int8"), v1, v2).structs["VMCState"].fields["samples"].text
    'int8[n_chains, n_sites]'
"""

from __future__ import annotations

from collections.abc import Sequence

from neuralqx_struct.errors import MigrationError, did_you_mean
from neuralqx_struct.evolution.casts import cast, compact
from neuralqx_struct.evolution.edits import (
    Operation,
    arrays_before,
    declared_type,
    each_array,
    each_node,
    need_sizes,
    refuse,
    retyped,
    target_struct,
)
from neuralqx_struct.evolution.sizes import equations, extent, same_size, total
from neuralqx_struct.evolution.tree import Place
from neuralqx_struct.evolution.values import Node
from neuralqx_struct.schema.migration import Cast, Reshape, Step, Transpose
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.types import DTYPES, Array, format_type

__all__ = ["CAST", "RESHAPE", "TRANSPOSE"]

# ---------------------------------------------------------------------------------------------------------------------
# cast


def _cast(step: Cast, document: Document, target: Document) -> Document:
    if step.dtype not in DTYPES:
        refuse("NQX102", "dtype", f"expected a dtype, got {step.dtype!r}", did_you_mean(step.dtype, DTYPES))
    if not step.exact and not step.lossy:
        refuse(
            "NQX308",
            "exact",
            "expected lossy: true beside exact: false, got nothing",
            "it admits that values may change",
        )
    declared = each_array(declared_type(step, document), lambda a: Array(step.dtype, a.shape), "cast")
    return retyped(step, document, target, declared)


def _cast_payload(step: Cast, place: Place) -> Node:
    def change(node: Node, at: tuple[str | int, ...]) -> Node:
        if node["dtype"] == step.dtype:
            return node
        where = place.text(*at)
        place.workspace.note("NQX425", f"was cast from {node['dtype']} to {step.dtype}", where)
        return place.derive(
            node,
            place.at(*at),
            ("cast", step.dtype, step.exact),
            lambda array: cast(array, step.dtype, exact=step.exact, path=where),
            shape=place.shape(node, place.at(*at)),
            dtype=step.dtype,
        )

    return each_node(place, step.field, change)


def _cast_back(step: Cast, before: Document, after: Document) -> list[Step]:
    del after
    dtypes = {array.dtype for array in arrays_before(step, before)}
    if len(dtypes) != 1:
        refuse("NQX307", "field", f"expected one dtype to go back to, got {', '.join(sorted(dtypes))}")
    return [Cast(within=step.within, field=step.field, dtype=dtypes.pop())]


CAST = Operation(_cast, _cast_payload, _cast_back, "streaming")

# ---------------------------------------------------------------------------------------------------------------------
# transpose and reshape


def _permutation(axes: Sequence[int] | None, rank: int) -> tuple[int, ...] | None:
    """The order of axes with no negative number, or None if it is no permutation."""
    if axes is None:
        return tuple(reversed(range(rank)))
    order = tuple(axis + rank if axis < 0 else axis for axis in axes)
    return order if sorted(order) == list(range(rank)) else None


def _transpose(step: Transpose, document: Document, target: Document) -> Document:
    def change(array: Array) -> Array:
        if ... in array.shape:
            if step.axes is None:
                return Array(array.dtype, array.shape[::-1])
            if array.shape == (...,):
                return array
            return refuse("NQX304", "axes", f"expected an array of known rank, got {format_type(array)}")
        order = _permutation(step.axes, len(array.shape))
        if order is None:
            return refuse("NQX304", "axes", f"expected the axes of {format_type(array)} in some order, got {step.axes}")
        if order == tuple(range(len(order))):
            refuse(
                "NQX306",
                "axes" if step.axes else "field",
                f"expected another order of axes, got that of {format_type(array)}",
            )
        return Array(array.dtype, tuple(array.shape[axis] for axis in order))

    declared = each_array(declared_type(step, document), change, "transpose")
    return retyped(step, document, target, declared)


def _transpose_payload(step: Transpose, place: Place) -> Node:
    def change(node: Node, at: tuple[str | int, ...]) -> Node:
        shape = place.shape(node, place.at(*at))
        order = _permutation(step.axes, len(shape))
        if order is None:
            raise MigrationError(
                f"expected an array with {len(step.axes or ())} axes, got shape {shape}",
                code="NQX412",
                path=place.text(*at),
            )
        return place.derive(
            node,
            place.at(*at),
            ("transpose", order),
            lambda array: compact(array.transpose(order)),
            shape=[shape[i] for i in order],
        )

    return each_node(place, step.field, change)


def _transpose_back(step: Transpose, before: Document, after: Document) -> list[Step]:
    del after
    if step.axes is None:
        return [step]
    ranks = {len(array.shape) for array in arrays_before(step, before) if ... not in array.shape} or {len(step.axes)}
    order = _permutation(step.axes, ranks.pop()) or ()
    back = [order.index(axis) for axis in range(len(order))]
    return [Transpose(within=step.within, field=step.field, axes=back)]


TRANSPOSE = Operation(_transpose, _transpose_payload, _transpose_back, "streaming")


def _reshape(step: Reshape, document: Document, target: Document) -> Document:
    shape = tuple(extent(size) for size in step.shape)
    known = equations(document, target)
    need_sizes(shape, document, target_struct(step, document), target, "shape")

    def change(array: Array) -> Array:
        if ... not in array.shape:
            have, want = (total([e for e in extents if e is not ...], "*") for extents in (array.shape, shape))
            if not same_size(have, want, known):
                message = f"expected a shape with as many elements as {format_type(array)}, got {step.shape}"
                refuse("NQX305", "shape", f"{message}\n{have.text} and {want.text} are not the same for all dims")
        return Array(array.dtype, shape)

    return retyped(step, document, target, each_array(declared_type(step, document), change, "reshape"))


def _reshape_payload(step: Reshape, place: Place) -> Node:
    shape = [place.size(extent(size)) for size in step.shape]

    def change(node: Node, at: tuple[str | int, ...]) -> Node:
        have = place.shape(node, place.at(*at))
        if _elements(have) != _elements(shape):
            raise MigrationError(
                f"expected an array with {_elements(shape)} elements for shape {shape}, got shape {have}",
                code="NQX412",
                path=place.text(*at),
            )
        return place.derive(node, place.at(*at), ("reshape", *shape), lambda array: array.reshape(shape), shape=shape)

    return each_node(place, step.field, change)


def _elements(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _reshape_back(step: Reshape, before: Document, after: Document) -> list[Step]:
    shapes = {array.shape for array in arrays_before(step, before)}
    for shape in shapes:
        need_sizes(shape, after, target_struct(step, before), before, "field", "NQX307")
    texts = [[str(e) for e in shape if e is not ...] for shape in shapes if ... not in shape]
    if len(shapes) != 1 or not texts:
        refuse(
            "NQX307",
            "field",
            "expected one declared shape to go back to, got any",
            "declare the shape in the old version",
        )
    return [Reshape(within=step.within, field=step.field, shape=[int(t) if t.isdigit() else t for t in texts[0]])]


RESHAPE = Operation(_reshape, _reshape_payload, _reshape_back, "streaming")
