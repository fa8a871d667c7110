"""Steps between one array and several: split and merge, inverse to each other.

For each step three functions stand side by side: what it does to a declaration, to one struct instance of a payload,
and the steps that lead back. ``steps.py`` has the table of them all.

Example:
    >>> split = Split(field="bias_all", into={"visible_bias": "n_sites", "hidden_bias": "n_hidden"})
    >>> SPLIT.declare(split, v2, v3).structs["VMCState"].fields["visible_bias"].text
    'complex64[n_sites]'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from neuralqx_struct.errors import MigrationError, SchemaError
from neuralqx_struct.evolution.casts import COMPLEX_OF, PART_OF, compact, join_complex, part_complex
from neuralqx_struct.evolution.edits import (
    Operation,
    adopt,
    array_branch,
    find_field,
    find_struct,
    fresh,
    need_sizes,
    refuse,
    replace_fields,
    swap_nodes,
    target_struct,
    with_fields,
)
from neuralqx_struct.evolution.sizes import constant, equations, extent, same_size, total
from neuralqx_struct.evolution.tree import Place
from neuralqx_struct.evolution.values import Node
from neuralqx_struct.schema.migration import Merge, Split, Step
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.types import Array, Extent, format_type

if TYPE_CHECKING:
    import numpy as np

__all__ = ["MERGE", "SPLIT"]

# ---------------------------------------------------------------------------------------------------------------------
# split and merge


def _axis(axis: int, rank: int, member: str = "axis", *, new: bool = False) -> int:
    """An axis with no negative number; ``new`` for one that does not exist yet."""
    ranks = rank + new
    if not -ranks <= axis < ranks:
        refuse("NQX304", member, f"expected an axis of an array with {rank} axes, got {axis}")
    return axis % ranks


def _known_rank(array: Array, member: str) -> tuple[Any, ...]:
    if ... in array.shape:
        refuse("NQX304", member, f"expected an array of known rank, got {format_type(array)}")
    return array.shape


def _split_parts(step: Split, array: Array, document: Document, target: Document) -> dict[str, Array]:
    """What an array becomes: types by name."""
    if step.how == "complex":
        part = PART_OF.get(array.dtype)
        if part is None or len(step.into) != 2:
            refuse(
                "NQX310",
                "into",
                f"expected a complex array and two names, got {format_type(array)} and {list(step.into)}",
            )
        return dict.fromkeys(step.into, Array(part, array.shape))
    shape = _known_rank(array, "field")
    axis = _axis(step.axis, len(shape))
    known = equations(document, target)
    if step.how == "stack":
        if not same_size(shape[axis], extent(len(step.into)), known):
            message = f"expected as many names as axis {axis} is long, {shape[axis]}, got {len(step.into)}"
            refuse("NQX309", "into", message)
        return dict.fromkeys(step.into, Array(array.dtype, (*shape[:axis], *shape[axis + 1 :])))
    if not isinstance(step.into, dict):
        refuse("NQX309", "into", "expected a size for each name, got names alone", "write `into: {a: n, b: m}`")
    sizes = {name: extent(size) for name, size in step.into.items()}
    need_sizes(sizes.values(), document, target_struct(step, document), target, "into")
    whole = total(list(sizes.values()))
    if not same_size(whole, shape[axis], known):
        message = f"expected sizes that sum to {shape[axis]}, the length of axis {axis}, got {whole.text}"
        hint = None
        if constant(whole) is None:
            hint = f"declare `{shape[axis]}: {{equals: {whole.text}}}` under dims, if it is so"
        refuse("NQX309", "into", message, hint)
    return {name: Array(array.dtype, (*shape[:axis], size, *shape[axis + 1 :])) for name, size in sizes.items()}


def _split(step: Split, document: Document, target: Document) -> Document:
    name, struct = find_struct(document, step)
    source = find_field(struct, name, step.field)
    array, rebuilt = array_branch(source.declared, "field")
    parts = _split_parts(step, array, document, target)
    if len(parts) != len(step.into) or not parts:
        refuse("NQX304", "into", f"expected distinct names, got {list(step.into)}")
    made = {}
    for part, declared in parts.items():
        fresh(struct, name, part, "into", leaving=(step.field,))
        made[part] = adopt(target, name, part, rebuilt(declared), source, document)
    return with_fields(document, name, replace_fields(struct, (step.field,), made))


def _split_payload(step: Split, place: Place) -> Node:
    node, names = place.field(step.field), list(step.into)
    if node is None:
        return swap_nodes(place, (step.field,), dict.fromkeys(names))
    shape = place.shape(node, place.at(step.field))
    if step.how == "complex":
        part = PART_OF.get(node["dtype"])
        if part is None:
            raise MigrationError(
                f"expected a complex array, got {node['dtype']}", code="NQX411", path=place.text(step.field)
            )
        made = {
            name: place.derive(
                node, place.at(name), ("part", i), partial(part_complex, imaginary=bool(i)), shape=shape, dtype=part
            )
            for i, name in enumerate(names)
        }
        return swap_nodes(place, (step.field,), made)
    axis = _axis(step.axis, len(shape))
    # A list of names is a stack: one entry of the axis for each.
    given = step.into.values() if isinstance(step.into, dict) else [1] * len(names)
    sizes = [place.size(extent(size)) for size in given]
    if sum(sizes) != shape[axis] or min(sizes) < 0:
        raise MigrationError(
            f"expected an array whose axis {axis} is {' + '.join(map(str, sizes))} long, got shape {shape}",
            code="NQX412",
            path=place.text(step.field),
        )
    made, start = {}, 0
    for name, size in zip(names, sizes, strict=True):
        index: tuple[Any, ...] = (slice(None),) * axis + (start if step.how == "stack" else slice(start, start + size),)
        length = [] if step.how == "stack" else [size]
        made[name] = place.derive(
            node,
            place.at(name),
            ("part", axis, start, step.how, size),
            partial(_piece, index=(*index, ...)),
            shape=[*shape[:axis], *length, *shape[axis + 1 :]],
        )
        start += size
    return swap_nodes(place, (step.field,), made)


def _piece(array: np.ndarray, index: tuple[Any, ...]) -> np.ndarray:
    return compact(array[index])


def _split_back(step: Split, before: Document, after: Document) -> list[Step]:
    del before, after
    return [Merge(within=step.within, fields=list(step.into), into=step.field, how=step.how, axis=step.axis)]


SPLIT = Operation(_split, _split_payload, _split_back, "streaming")


def _merged(step: Merge, arrays: Sequence[Array], document: Document, target: Document) -> Array:
    """What arrays become together."""
    first, known = arrays[0], equations(document, target)
    dtypes = {array.dtype for array in arrays}
    if len(dtypes) > 1:
        refuse(
            "NQX310",
            "fields",
            f"expected arrays of one dtype, got {', '.join(sorted(dtypes))}",
            "cast them in a step before",
        )
    if step.how == "complex":
        if len(arrays) != 2 or first.dtype not in COMPLEX_OF:
            refuse(
                "NQX310",
                "fields",
                f"expected two arrays of float32 or float64, got {', '.join(map(format_type, arrays))}",
            )
        _alike(arrays, None, known)
        return Array(COMPLEX_OF[first.dtype], first.shape)
    shape = _known_rank(first, "fields")
    axis = _axis(step.axis, len(shape), new=step.how == "stack")
    _alike(arrays, None if step.how == "stack" else axis, known)
    if step.how == "stack":
        return Array(first.dtype, (*shape[:axis], extent(len(arrays)), *shape[axis:]))
    length = total([a.shape[axis] for a in arrays])  # type: ignore[misc]
    return Array(first.dtype, (*shape[:axis], length, *shape[axis + 1 :]))


def _alike(arrays: Sequence[Array], free: int | None, known: Mapping[str, Any]) -> None:
    """Check that arrays agree in all axes but one."""

    def rest(array: Array) -> list[Extent]:
        return [size for axis, size in enumerate(array.shape) if axis != free]

    for other in arrays[1:]:
        a, b = rest(arrays[0]), rest(other)
        if len(arrays[0].shape) != len(other.shape) or not all(
            same_size(x, y, known) for x, y in zip(a, b, strict=True)
        ):
            shown = ", ".join(map(format_type, arrays))
            but = "" if free is None else f" but for axis {free}"
            refuse("NQX310", "fields", f"expected arrays of one shape{but}, got {shown}")


def _merge(step: Merge, document: Document, target: Document) -> Document:
    name, struct = find_struct(document, step)
    if len(set(step.fields)) != len(step.fields):
        refuse("NQX304", "fields", f"expected distinct fields, got {step.fields}")
    sources = [find_field(struct, name, field, "fields") for field in step.fields]
    branches = [array_branch(source.declared, "fields") for source in sources]
    fresh(struct, name, step.into, "into", leaving=tuple(step.fields))
    if len({source.declared == array for source, (array, _) in zip(sources, branches, strict=True)}) > 1:
        shown = ", ".join(format_type(source.declared) for source in sources)
        refuse(
            "NQX310",
            "fields",
            f"expected fields that may all be null or none, got {shown}",
            "fill the optional ones before",
        )
    declared = branches[0][1](_merged(step, [array for array, _ in branches], document, target))
    made: FieldDeclaration = adopt(target, name, step.into, declared, sources[0], document)
    return with_fields(document, name, replace_fields(struct, tuple(step.fields), {step.into: made}))


def _merge_payload(step: Merge, place: Place) -> Node:
    nodes = [place.field(name) for name in step.fields]
    if any(node is None for node in nodes):
        if any(node is not None for node in nodes):
            there = [name for name, node in zip(step.fields, nodes, strict=True) if node is not None]
            raise MigrationError(
                f"expected {' and '.join(step.fields)} to be null together, got a value in {', '.join(there)}",
                code="NQX310",
                path=place.text(step.fields[0]),
            )
        return swap_nodes(place, tuple(step.fields), {step.into: None})
    shapes = [place.shape(node, place.at(name)) for name, node in zip(step.fields, nodes, strict=True)]
    described = [Array(node["dtype"], tuple(map(extent, shape))) for node, shape in zip(nodes, shapes, strict=True)]
    try:
        made = _merged(step, described, place.before, place.after)
    except SchemaError as error:
        raise MigrationError(error.diagnostics[0].message, code="NQX310", path=place.text(step.fields[0])) from None
    shape = [int(constant(size) or 0) for size in made.shape]
    axis = 0 if step.how == "complex" else _axis(step.axis, len(shapes[0]), new=step.how == "stack")
    loads = [place.load(node) for node in nodes]
    node = place.workspace.store(
        place.at(step.into),
        made.dtype,
        shape,
        lambda: _JOIN[step.how](loads, made.dtype, shape, axis),
        ("merge", step.how, axis, *map(place.identity, nodes)),
    )
    leaf = {"leaf": nodes[0]["leaf"]} if "leaf" in nodes[0] else {}
    return swap_nodes(place, tuple(step.fields), {step.into: {**node, **leaf}})


def _join_along(loads: Sequence[Callable[[], np.ndarray]], dtype: str, shape: Sequence[int], axis: int) -> np.ndarray:
    import numpy as np

    from neuralqx_struct.payload import dtype_named

    result, start = np.empty(shape, dtype_named(dtype)), 0
    for load in loads:  # one operand in memory at a time, beside the result
        part = load()
        result[(slice(None),) * axis + (slice(start, start + part.shape[axis]),)] = part
        start += part.shape[axis]
    return result


def _stack_along(loads: Sequence[Callable[[], np.ndarray]], dtype: str, shape: Sequence[int], axis: int) -> np.ndarray:
    import numpy as np

    from neuralqx_struct.payload import dtype_named

    result = np.empty(shape, dtype_named(dtype))
    for position, load in enumerate(loads):
        result[(slice(None),) * axis + (position,)] = load()
    return result


_JOIN: Mapping[str, Callable[[Sequence[Callable[[], Any]], str, Sequence[int], int], Any]] = {
    "complex": lambda loads, dtype, _shape, _axis: join_complex(loads[0](), loads[1](), dtype),
    "concat": _join_along,
    "stack": _stack_along,
}


def _merge_back(step: Merge, before: Document, after: Document) -> list[Step]:
    names: dict[str, int | str] | list[str] = list(step.fields)
    if step.how == "concat":
        name, struct = find_struct(before, step)
        arrays = {f: array_branch(find_field(struct, name, f, "fields").declared, "fields")[0] for f in step.fields}
        axis = _axis(step.axis, len(_known_rank(arrays[step.fields[0]], "fields")))
        need_sizes((array.shape[axis] for array in arrays.values()), after, name, before, "fields", "NQX307")
        texts = {f: str(array.shape[axis]) for f, array in arrays.items()}
        names = {f: int(text) if text.isdigit() else text for f, text in texts.items()}
    return [Split(within=step.within, field=step.into, axis=step.axis, into=names, how=step.how)]


MERGE = Operation(_merge, _merge_payload, _merge_back, "streaming")
