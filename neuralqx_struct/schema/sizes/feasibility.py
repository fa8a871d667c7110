"""Feasibility of sizes: can the dims of a document have sizes at all, with their equations and bounds?

Owns :func:`impossible_sizes`, which lint reports. The range of each equation is computed from the ranges of the names in it,
one equation at a time: every contradiction that is found is one, and some between several equations are not found.

Example:
    >>> from neuralqx_struct.schema.model import DimDeclaration
    >>> dims = {"d": DimDeclaration(), "k": DimDeclaration(equals="d - d", min=3)}
    >>> list(impossible_sizes(dims, {}, {}))
    ['k']
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from math import gcd, inf
from typing import TypeVar

from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.polynomials import Polynomial, polynomial
from neuralqx_struct.schema.bounds import field_limits, whole_range
from neuralqx_struct.schema.model import DimDeclaration, FieldDeclaration

_Place = TypeVar("_Place", bound=Hashable)
#: The least and the greatest value of a name.
_Range = tuple[float, float]


def impossible_sizes(
    dims: Mapping[str, DimDeclaration],
    ints: Mapping[str, FieldDeclaration],
    extents: Mapping[_Place, Expression],
) -> Iterator[str | _Place]:
    """Yields the dims, then the places of sizes, that no number fits.

    Args:
        dims: The dims of the document.
        ints: The static ints of the root; they may be negative.
        extents: Sizes in shapes by place. Names that are no dims or ints are sizes too.
    """
    known = {name: dim.equation for name, dim in dims.items() if dim.equation is not None}
    ranges = _ranges_of(dims, ints, known)
    for name in dims:
        low, high = ranges.get(name, (0, inf))
        if low > high:
            yield name
            ranges[name] = 0, inf  # reported once, not with each dim that names it
    for name, equation in known.items():
        dim, form = dims[name], polynomial(equation, known)
        low, high = _range_of_sum(form, ranges)
        most = inf if dim.max is None else dim.max
        if low > most or high < (dim.min or 0) or not _has_whole(form, dim):
            yield name
    for place, extent in extents.items():
        if _range_of_sum(polynomial(extent, known), ranges)[1] < 0:
            yield place


def _ranges_of(
    dims: Mapping[str, DimDeclaration],
    ints: Mapping[str, FieldDeclaration],
    equations: Mapping[str, Expression],
) -> dict[str, _Range]:
    """The ranges of static ints, and of dims without an equation."""
    ranges = {name: whole_range(field_limits(field)) for name, field in ints.items()}
    for name, dim in dims.items():
        if name not in equations:
            low, high = ranges.get(name, (0, inf))
            most = inf if dim.max is None else dim.max
            ranges[name] = max(low, dim.min or 0), min(high, most)
    return ranges


def _range_of_sum(form: Polynomial, ranges: Mapping[str, _Range]) -> _Range:
    """The range of a polynomial; nothing is known of a part that is no name, as ``n / 2``."""
    low: float = 0
    high: float = 0
    try:
        for atoms, count in form.items():
            term: _Range = (count, count)
            for atom in atoms:
                known = ranges.get(atom, (0, inf)) if atom.isidentifier() else (-inf, inf)
                term = _product(term, known)
            low, high = low + term[0], high + term[1]
    except OverflowError:  # sizes beyond all arrays
        return -inf, inf
    return low, high


def _product(one: _Range, other: _Range) -> _Range:
    """The range of a product."""
    ends = [a * b if a and b else 0 for a in one for b in other]
    return min(ends), max(ends)


def _has_whole(form: Polynomial, dim: DimDeclaration) -> bool:
    """False if no whole numbers give the only size that a dim may have, as 3 for ``2 * m``."""
    counts = [count for atoms, count in form.items() if atoms]
    whole = all(atom.isidentifier() for atoms in form for atom in atoms)
    if dim.max is None or dim.max != (dim.min or 0) or not whole or not counts:
        return True
    return (dim.max - form.get((), 0)) % gcd(*counts) == 0
