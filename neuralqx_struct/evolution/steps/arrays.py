"""Steps that change one array: cast, transpose, reshape, wrap_key, unwrap_key. New arrays are computed when they are read.

Example:
    >>> scope = Scope.of(cast(field="samples", dtype="int8"), v1, v2)
    >>> CAST.declare(Cast(field="samples", dtype="int8"), scope).structs["VMCState"].fields["samples"].text
    'int8[n_chains, n_sites]'

The steps wrap_key and unwrap_key lie between the raw words of a random key and a typed key. The words are not moved.

    >>> step = wrap_key(field="rng", impl="threefry2x32")
    >>> WRAP_KEY.declare(step, Scope.of(step, v2, v3)).structs["VMCState"].fields["rng"].text
    'prng_key[threefry2x32]'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from neuralqx_struct.dtypes import DTYPES, best_dtype, dtypes_of, promotes
from neuralqx_struct.dtypes.casts import cast as cast_array
from neuralqx_struct.errors import Diagnostic, did_you_mean
from neuralqx_struct.evolution.payload_tree import Place
from neuralqx_struct.evolution.sizes import constant, extent, same_size, total
from neuralqx_struct.evolution.steps.builders import builder
from neuralqx_struct.evolution.steps.operations import (
    Gap,
    Scope,
    StepKind,
    array_branch,
    arrays_of,
    each_array,
    may_stop,
    only_branch,
    refuse,
)
from neuralqx_struct.evolution.values import compact, shown_node
from neuralqx_struct.manifest.kinds import FULL, PRNG_KEY
from neuralqx_struct.paths import Path
from neuralqx_struct.schema.migration import (
    Cast,
    Convert,
    Reshape,
    Step,
    Transpose,
    UnwrapKey,
    WrapKey,
)
from neuralqx_struct.schema.model import Document
from neuralqx_struct.types import Array, Extent, Key, Node, Type
from neuralqx_struct.types.text import format_type

# ---------------------------------------------------------------------------------------------------------------------
# cast


def require_admission(step: Cast | Convert) -> None:
    """Checks that a step which may change values admits it (NQX308)."""
    if not step.exact and not step.lossy:
        message = "expected lossy: true beside exact: false, got nothing"
        refuse("NQX308", "exact", message, "it admits that values may change")


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
        return place.derive(
            node,
            (step.name, step.dtype, step.exact),
            lambda array: cast_array(array, step.dtype, exact=step.exact, path=where),
            shape=place.shape(node, *at),
            dtype=step.dtype,
        )

    return place.each_array(step.field, change)


def _cast_back(step: Cast, scope: Scope, _: Document) -> list[Step]:
    arrays = arrays_of(scope.type(step.field))
    dtypes = {dtype for array in arrays for dtype in array.dtypes}
    if len(dtypes) != 1:
        names = sorted({array.element for array in arrays})
        message = f"expected one dtype to go back to, got {', '.join(names)}"
        refuse("NQX307", "field", message)
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


cast = builder(Cast)
CAST = StepKind(
    model=Cast,
    declare=_cast,
    rewrite=_cast_payload,
    inverse=_cast_back,
    cost="streaming",
    suggest=_suggest_cast,
    review=_review_cast,
    checks_values=True,
)

# ---------------------------------------------------------------------------------------------------------------------
# transpose


def _permutation(axes: Sequence[int] | None, rank: int) -> tuple[int, ...] | None:
    """The order of axes without negative numbers, or None if it is no permutation."""
    if axes is None:
        return tuple(reversed(range(rank)))
    order = tuple(axis + rank if axis < 0 else axis for axis in axes)
    return order if sorted(order) == list(range(rank)) else None


def _transpose(step: Transpose, scope: Scope) -> Document:
    def change(array: Array) -> Array:
        shown = format_type(array)
        if ... in array.shape:
            if step.axes is None:
                return replace(array, shape=array.shape[::-1])
            if array.shape == (...,):
                return array
            refuse("NQX304", "axes", f"expected an array of known rank, got {shown}")
        order = _permutation(step.axes, len(array.shape))
        if order is None:
            message = f"expected the axes of {shown} in some order, got {step.axes}"
            refuse("NQX304", "axes", message)
        if order == tuple(range(len(order))):
            member = "axes" if step.axes else "field"
            refuse("NQX306", member, f"expected another order of axes, got that of {shown}")
        return replace(array, shape=tuple(array.shape[axis] for axis in order))

    return scope.with_type(step.field, lambda have: each_array(have, change, step.name))


def _transpose_payload(step: Transpose, place: Place) -> Node:
    def change(node: Node, at: Path) -> Node:
        shape = place.shape(node, *at)
        order = _permutation(step.axes, len(shape))
        if order is None:
            message = f"expected an array with {len(step.axes or ())} axes, got shape {shape}"
            raise place.error("NQX412", message, *at)
        return place.derive(
            node,
            (step.name, order),
            lambda array: compact(array.transpose(order)),
            shape=[shape[axis] for axis in order],
        )

    return place.each_array(step.field, change)


def _transpose_back(step: Transpose, *_: object) -> list[Step]:
    if step.axes is None:
        return [step]
    order = _permutation(step.axes, len(step.axes)) or ()
    return [Transpose(field=step.field, axes=[*map(order.index, range(len(order)))])]


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
    shape = [place.size(extent(size)) for size in step.shape]

    def change(node: Node, at: Path) -> Node:
        have = place.shape(node, *at)
        if prod(have) != prod(shape):
            wanted = f"{prod(shape)} elements for shape {shape}"
            raise place.error("NQX412", f"expected an array with {wanted}, got shape {have}", *at)
        how = (step.name, *shape)
        return place.derive(node, how, lambda array: array.reshape(shape), shape=shape)

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


def plain_size(size: Extent) -> int | str:
    """A size as a step writes it: a number, or the text of an expression."""
    text = str(size)
    return int(text) if text.isdecimal() else text


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
    review=lambda step, scope: scope.review_sizes(map(extent, step.shape), "shape"),
    answer="the same elements in the same order, in another shape",
)


#: How many uint32 words a key of each implementation has (jax.random.key_impl, JAX documentation "Random numbers").
KEY_WORDS: Mapping[str, int] = {"threefry2x32": 2, "rbg": 4, "unsafe_rbg": 4}


def _wrap_key(step: WrapKey, scope: Scope) -> Document:
    if step.impl not in KEY_WORDS:
        hint = did_you_mean(step.impl, KEY_WORDS) or f"known: {', '.join(KEY_WORDS)}"
        message = f"expected an implementation of random keys, got {step.impl!r}"
        refuse("NQX420", "impl", message, hint)
    words = KEY_WORDS[step.impl]

    def wrapped(declared: Type) -> Type:
        array, rebuilt = array_branch(declared)
        last = array.shape[-1] if array.shape else None
        fits = last is ... or (last is not None and constant(last) == words)
        if array.dtype != "uint32" or not fits:
            shown = f"the words of a {step.impl} key, got {format_type(array)}"
            refuse("NQX420", "field", f"expected uint32[..., {words}], {shown}")
        return rebuilt(Key(step.impl, array.shape if last is ... else array.shape[:-1]))

    return scope.with_type(step.field, wrapped)


def _wrap_key_payload(step: WrapKey, place: Place) -> Node:
    words = KEY_WORDS[step.impl]

    def change(node: Node, at: Path) -> Node:
        shape = place.shape(node, *at)
        if node["dtype"] != "uint32" or shape[-1:] != [words]:
            shown = f"the words of a {step.impl} key, got {node['dtype']}{shape}"
            raise place.error("NQX420", f"expected uint32[..., {words}], {shown}", *at)
        if FULL.matches(node):  # a key's words are an array of their own, never a constant
            load, made_of = place.load(node), ("words", place.identity(node))
            leaf = {"leaf": node["leaf"]} if "leaf" in node else {}
            made = place.workspace.store("uint32", node["shape"], load, made_of)
            node = {**made, **leaf}
        return PRNG_KEY.node(impl=step.impl, data=node)

    return place.each_array(step.field, change)


def _suggest_wrap_key(gap: Gap) -> Iterator[Step]:
    impl = gap.want.key_impl
    if impl not in ("", "_"):
        yield wrap_key(field=gap.field, impl=impl, within=gap.within)


wrap_key = builder(WrapKey)
WRAP_KEY = StepKind(
    model=WrapKey,
    declare=_wrap_key,
    rewrite=_wrap_key_payload,
    inverse=lambda step, *_: [UnwrapKey(field=step.field)],
    cost="manifest",
    suggest=_suggest_wrap_key,
)


def _key_branch(declared: Type) -> tuple[Key, Callable[[Type], Type]]:
    words = "a field of type prng_key"
    return only_branch(declared, lambda one: one.key_impl, words)


def _unwrap_key(step: UnwrapKey, scope: Scope) -> Document:
    def unwrapped(declared: Type) -> Type:
        key, rebuilt = _key_branch(declared)
        words = KEY_WORDS.get(str(key.impl))
        if words is None:
            message = f"expected a key of a known implementation, got {format_type(key)}"
            refuse("NQX420", "field", message, "declare `impl:`")
        return rebuilt(Array("uint32", (*key.shape, extent(words))))

    return scope.with_type(step.field, unwrapped)


def _unwrap_key_payload(step: UnwrapKey, place: Place) -> Node:
    node = place.field(step.field)
    if node is None:
        return place.node
    if not PRNG_KEY.matches(node):
        message = f"expected a random key, got {shown_node(node)}"
        raise place.error("NQX420", message, step.field)
    return place.with_fields({step.field: node["data"]})


def _unwrap_key_back(step: UnwrapKey, scope: Scope, _: Document) -> list[Step]:
    key, _rebuilt = _key_branch(scope.type(step.field))
    return [WrapKey(field=step.field, impl=str(key.impl))]


def _suggest_unwrap_key(gap: Gap) -> Iterator[Step]:
    if gap.have.key_impl:
        yield unwrap_key(field=gap.field, within=gap.within)


unwrap_key = builder(UnwrapKey)
UNWRAP_KEY = StepKind(
    model=UnwrapKey,
    declare=_unwrap_key,
    rewrite=_unwrap_key_payload,
    inverse=_unwrap_key_back,
    cost="manifest",
    suggest=_suggest_unwrap_key,
)
