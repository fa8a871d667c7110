"""Agreement as code: the straight Python that compares the sizes which one instance shows.

Owns :class:`Reading` (a size, and what is declared of it) and :func:`agreement`, which binds each name to a reading and
compares all others with it. It knows less than :mod:`.schema.dims`, which solves what can be solved and says who
disagrees: what it shows to agree does agree, and all else is left to the other. Only names, numbers and five
operators reach the source.

Example:
    >>> from neuralqx_struct.schema.expressions import parse
    >>> kernel = [Reading("s0[0]", parse("n")), Reading("s0[1]", parse("2 * n"))]
    >>> agreement(kernel).terms
    ['s0[1] == (2 * s0[0])']
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from neuralqx_struct.schema.claims import ANY, exact, is_name
from neuralqx_struct.schema.expressions import Expression
from neuralqx_struct.schema.linear import linear_form
from neuralqx_struct.schema.model import DimDeclaration
from neuralqx_struct.schema.syntax import BINARY

__all__ = ["Agreement", "Reading", "UnprovableError", "agreement", "arithmetic"]

#: What ints do as the sizes of expressions do; a quotient may be a fraction, and a power of any length.
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
_LONGEST = 200  # characters of an expression: Python nests no more than that many brackets
_LARGEST = 2**63  # no axis is longer


class UnprovableError(Exception):
    """There is no straight code for this declaration; the walk of the schema decides on each instance."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A size that a value shows.

    Attributes:
        text: Source of the size; where it is None, nothing is known of it.
        extent: What is declared of it.
        guard: Source that is true where the value is there at all; empty if it always is.
    """

    text: str
    extent: Expression
    guard: str = ""


@dataclass(slots=True)
class Agreement:
    """What the readings of an instance come to.

    Attributes:
        sizes: Source of the size of each name.
        terms: Conditions under which all readings agree, in the order in which they have to be asked.
        loose: Names whose size may turn out as None.
    """

    sizes: dict[str, str] = field(default_factory=dict)
    terms: list[str] = field(default_factory=list)
    loose: set[str] = field(default_factory=set)


def agreement(readings: Sequence[Reading], dims: Mapping[str, DimDeclaration] | None = None) -> Agreement:
    """The conditions under which sizes agree.

    Args:
        readings: All sizes that an instance shows.
        dims: The dims of the document, where nothing of the document is around the instance: their bounds and equations
            are decided here.

    Raises:
        UnprovableError: Some size has no name that is read, or is none of simple arithmetic.
    """
    made = Agreement()
    compared: list[Reading] = []
    for reading in sorted(readings, key=lambda each: bool(each.guard)):
        if ANY in reading.extent.names:
            continue
        name = reading.extent.text
        if not is_name(reading.extent) or name in made.sizes:
            compared.append(reading)
        elif reading.guard:
            made.sizes[name] = f"({reading.text} if {reading.guard} else None)"
            made.loose.add(name)
        else:
            made.sizes[name] = reading.text
    for reading in compared:  # int8[2 * n] alone
        (unknown, *more) = [*(reading.extent.names - made.sizes.keys()), None]
        if unknown is None or more != [None] or reading.guard or reading.extent.names != {unknown}:
            continue
        slope, offset = linear_form(reading.extent, frozenset({unknown}), {}) or (0, 0)
        if slope and slope.denominator == offset.denominator == 1:
            made.sizes[unknown] = f"(({reading.text} - ({offset})) // ({slope}))"
    if dims is not None:
        _equations(made, dims)
    for reading in compared:
        term = f"{reading.text} == {_size(reading.extent, made.sizes)}"
        made.terms.append(f"(not ({reading.guard}) or {term})" if reading.guard else term)
    return made


def _equations(made: Agreement, dims: Mapping[str, DimDeclaration]) -> None:
    """Equations of dims whose names are all known, and the bounds of dims."""
    waiting = {name: dim.equation for name, dim in dims.items() if dim.equation is not None}
    while ready := [name for name, equation in waiting.items() if equation.names <= made.sizes.keys()]:
        for name in ready:
            found, local = made.sizes.get(name), f"_nqx_dim_{name}"
            made.terms.append(f"0 <= ({local} := {_size(waiting.pop(name), made.sizes)}) < {_LARGEST}")
            if found is not None:
                loose = f"{found} is None or " if name in made.loose else ""
                made.terms.append(f"({loose}{found} == {local})")
            made.sizes[name] = local
            made.loose.discard(name)
    for name, equation in waiting.items():
        if len({name, *equation.names} - made.sizes.keys()) == 1:
            raise UnprovableError(f"{name} = {equation.text} is there to be solved")
    for name, dim in dims.items():
        low = f"{dim.min} <= " if dim.min else ""
        high = f" <= {dim.max}" if dim.max is not None else ""
        if name in made.sizes and (low or high):
            size = made.sizes[name]
            loose = f"{size} is None or " if name in made.loose else ""
            made.terms.append(f"({loose}{low}{size}{high})")


def _size(extent: Expression, sizes: Mapping[str, str]) -> str:
    if extent.names:
        return arithmetic(extent.tree, sizes)
    number = exact(extent, {})
    if number is None:
        raise UnprovableError(f"{extent.text} is no size")
    return str(number)


def arithmetic(tree: ast.expr, names: Mapping[str, str]) -> str:
    """The source of an expression of whole numbers.

    Args:
        tree: The expression.
        names: Source of the value of each name.

    Raises:
        UnprovableError: It is more than sums, products and whole quotients of numbers and of these names.
    """
    match tree:
        case ast.Constant(value=value) if type(value) is int:
            text = str(value)
        case ast.Name(id=name) if name in names:
            text = names[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            text = f"(-{arithmetic(operand, names)})"
        case ast.BinOp(op=op) if isinstance(op, _OPERATORS):
            text = f"({arithmetic(tree.left, names)} {BINARY[type(op)].symbol} {arithmetic(tree.right, names)})"
        case _:
            raise UnprovableError(ast.dump(tree)[:80])
    if len(text) > _LONGEST:
        raise UnprovableError("too long")
    return text
