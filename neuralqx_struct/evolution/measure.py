"""Sizes that a payload shows: the numbers behind the dims of its declaration.

Owns reading them off a payload that conforms, so that a step may say ``n_sites``, and telling beforehand which ones a
declaration lets be read (:func:`measurable`). Whether a payload conforms, and which
two fields are in conflict if it does not, is said by ``schema/dims.py`` for every payload that is loaded.

Example:
    >>> from neuralqx_struct import bundle
    >>> measure(v1, bundle.read("tests/golden/format-1/vmc_state_1").document["manifest"], v1)["n_sites"]
    2
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from neuralqx_struct.payload import iter_nodes
from neuralqx_struct.schema.evaluation import evaluate
from neuralqx_struct.schema.expressions import Expression
from neuralqx_struct.schema.linear import linear_unknown
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.types import (
    Array,
    DictOf,
    Extent,
    Key,
    ListOf,
    Scalar,
    TupleOf,
    Type,
    Union,
)

__all__ = ["measurable", "measure", "solved_size"]

_Equation = tuple[Expression, int]


def measure(document: Document, tree: Any, target: Document, known: Mapping[str, int] | None = None) -> dict[str, int]:
    """The sizes of dims and, inside one instance, of its local names.

    Args:
        document: What the tree conforms to.
        tree: The whole manifest, or with ``known`` one struct node.
        target: Another version, for dims that only it declares.
        known: The dims of the whole tree, once they are known.
    """
    dims = {**target.dims, **document.dims}
    sizes: dict[str, int] = dict(known or {})
    found: list[_Equation] = []
    instances = iter_nodes(tree) if known is None else [((), tree)]
    for _, node in instances:
        struct = _struct_of(document, node)
        if struct is None:
            continue
        for name, declaration in document.structs[struct].stored.items():
            value = node["fields"].get(name)
            if struct == document.root and type(value) is int:
                sizes.setdefault(name, value)
            found += _extents(declaration.declared, value)
    if known is None:
        shared = dims.keys() | sizes.keys()
        found = [(extent, size) for extent, size in found if extent.names <= shared]
    equations = {name: dim.equation for name, dim in dims.items() if dim.equation is not None}
    while _learn(sizes, found, equations):
        pass
    return sizes


def _struct_of(document: Document, node: Any) -> str | None:
    if not isinstance(node, dict) or node["__kind__"] != "struct":
        return None
    reference, _, name = node["type"].partition(":")
    return name if reference == f"{document.id}@{document.version}" and name in document.structs else None


def _extents(declared: Type, node: Any) -> Iterator[_Equation]:
    if not isinstance(node, dict):
        return
    kind = node["__kind__"]
    match declared:
        case Array(dtype, shape) if kind in ("array", "full") and node["dtype"] == dtype:
            yield from _aligned(shape, node["shape"])
        case Key(_, shape) if kind == "prng-key":
            yield from _aligned(shape, node["data"]["shape"][:-1])
        case Union(options):
            for option in options:
                yield from _extents(option, node)
        case ListOf(item) if kind == "list":
            for child in node["items"]:
                yield from _extents(item, child)
        case TupleOf(items, variadic) if kind == "tuple" and (variadic or len(items) == len(node["items"])):
            for position, child in enumerate(node["items"]):
                yield from _extents(items[0 if variadic else position], child)
        case DictOf(value) if kind == "dict":
            for _, child in node["items"]:
                yield from _extents(value, child)
        case _:
            pass


def _aligned(shape: Sequence[Extent], sizes: Sequence[int]) -> Iterator[_Equation]:
    front = shape.index(...) if ... in shape else len(shape)
    back = len(shape) - front - 1 if ... in shape else 0
    if len(sizes) < front + back or (... not in shape and len(sizes) != front):
        return  # another option of a union, of another rank
    pairs = [
        *zip(shape[:front], sizes, strict=False),
        *zip(shape[len(shape) - back :], sizes[len(sizes) - back :], strict=True),
    ]
    yield from ((extent, size) for extent, size in pairs if extent is not ...)


def _learn(sizes: dict[str, int], found: list[_Equation], equations: Mapping[str, Expression]) -> bool:
    """Solve what has one unknown; True if that told something new."""
    before = len(sizes)
    for extent, size in found:
        _solve(sizes, extent, size)
    for name, equation in equations.items():
        if name in sizes:
            _solve(sizes, equation, sizes[name])
        elif equation.names <= sizes.keys():
            sizes[name] = solved_size(equation, sizes)
    return len(sizes) > before


def _solve(sizes: dict[str, int], extent: Expression, size: int) -> None:
    unknown = extent.names - sizes.keys()
    if len(unknown) == 1:
        (name,) = unknown
        solution = linear_unknown(extent, name, sizes, size)
        if solution is not None:
            sizes[name] = solution


def solved_size(extent: Expression, sizes: Mapping[str, int]) -> int:
    """The number that an extent is.

    Raises:
        SchemaError: It reads a name without a size.
    """
    return int(evaluate(extent, sizes))


def measurable(document: Document, struct: str, target: Document) -> set[str]:
    """The names whose sizes payloads show at an instance of a struct: the symbolic twin of :func:`measure`.

    Args:
        document: What payloads conform to.
        struct: The struct.
        target: Another version, for dims that only it declares.
    """
    dims = {**target.dims, **document.dims}
    root = document.structs[document.root].stored
    whole = Scalar("int")
    known = {name for name, field in root.items() if isinstance(field.declared, Scalar) and field.declared == whole}
    shared = dims.keys() | known
    extents = {
        names
        for name, declaration in document.structs.items()
        for names in declaration.sizes
        if name == struct or names <= shared
    }
    equations = {name: dim.equation.names for name, dim in dims.items() if dim.equation is not None}
    before = -1
    while len(known) > before:
        before = len(known)
        for names in extents:
            known |= names if len(names - known) == 1 else set()
        for name, names in equations.items():
            if name in known:
                known |= names if len(names - known) == 1 else set()
            elif names <= known:
                known.add(name)
    return known
