"""Stacked structs, as ``Layer[d][n]`` declares them: the names of their leading axes, and the values of one layer.

Every array of a stacked struct has the shape that its declaration states behind the leading axes. All else is declared
once for all layers: static fields, the lengths of lists, the keys of dicts, and which optional fields are null.

Example:
    >>> from neuralqx_struct.expressions import parse
    >>> {name: size.text for name, size in inner_axes((parse("n"), parse("2")), {"n"})[0].items()}
    {"n'": 'n'}
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.functions import StructValue
from neuralqx_struct.schema.graph import graph_of, stacked_in
from neuralqx_struct.schema.model import Document, StructDeclaration
from neuralqx_struct.schema.sizes.scopes import sizes_in

Axes = tuple[Expression, ...]

#: The layers of which conditions on numbers are checked: each costs an evaluation.
_MOST_LAYERS = 10_000


def inner_axes(axes: Axes, taken: Container[str]) -> tuple[dict[str, Expression], Axes]:
    """The leading axes of a stacked struct as it sees them.

    Args:
        axes: The axes in names of the struct around it.
        taken: Names that mean another size inside.

    Returns:
        The sizes by the names that they have inside, like parameters; and the axes in these names.
    """
    given: dict[str, Expression] = {}
    inside: list[Expression] = []
    for axis in axes:
        if not axis.names:
            inside.append(axis)
            continue
        name = "layers" if axis.text == "_" else axis.text
        while name in taken or name in given:
            name += "'"
        given[name] = axis
        inside.append(Expression(name, frozenset({name}), ast.Name(name)))
    return given, tuple(inside)


def names_inside(document: Document, struct: str) -> set[str]:
    """The names that sizes of a struct have, whatever they mean."""
    declaration = document.structs[struct]
    found = {*declaration.params, *document.dims, *declaration.fields}
    for field in declaration.stored.values():
        found.update(name for name, _ in sizes_in(field.declared))
    return found


def layers(values: Mapping[str, Any], sizes: Sequence[int]) -> Iterator[Mapping[str, Any]]:
    """Yields the values of the fields of each layer; of one if no numbers of arrays are known, as all look the same.

    Args:
        values: The values of the stacked fields, as expressions see them.
        sizes: The sizes of the leading axes.

    Raises:
        SchemaError: NQX507: there are too many layers.
    """
    shown = any(map(_has_numbers, values.values()))
    places = [range(size if shown else min(size, 1)) for size in sizes]
    for count, index in enumerate(itertools.product(*places)):
        if count == _MOST_LAYERS:
            message = (
                f"expected conditions on the numbers of at most {_MOST_LAYERS} layers, got more"
            )
            raise SchemaError(message, code="NQX507", hint="check them in Python")
        yield {name: _layer(value, index) for name, value in values.items()}


def _has_numbers(value: Any) -> bool:
    if type(value) is StructValue:
        return any(_has_numbers(value.fields[name]) for name in value.nodes)
    if isinstance(value, (list, tuple, dict)):
        return any(map(_has_numbers, value.values() if isinstance(value, dict) else value))
    return getattr(value, "shape", ()) != () and not hasattr(value, "layer")


def _layer(value: Any, index: tuple[int, ...]) -> Any:
    if type(value) is StructValue:
        names = value.fields
        return StructValue({name: _layer(names[name], index) for name in names}, value.nodes)
    if isinstance(value, dict):
        return {key: _layer(item, index) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_layer(item, index) for item in value)
    if hasattr(value, "layer"):
        return value.layer(len(index))
    return value.__array__()[(*index, ...)] if getattr(value, "shape", ()) else value


def require_single(document: Document, struct: str, member: str) -> None:
    """Refuses a step for a struct of which payloads may hold stacked instances.

    Raises:
        SchemaError: NQX304: there may be some; its path is ``member``.
    """
    if struct in graph_of(document).stacked:
        message = f"expected a struct of which all instances are single ones, got {struct}, which some type stacks"
        hint = "unstack it in a step before"
        raise SchemaError(message, code="NQX304", path=member, hint=hint)


def stacked_fields(declaration: StructDeclaration) -> frozenset[str]:
    """The names of the fields that may hold a stacked struct."""
    return frozenset(name for name, each in declaration.stored.items() if any(stacked_in(each)))
