"""Feasibility of sizes: can the dims of a document have sizes at all, with their equations and bounds?

Owns :func:`impossible_sizes`, which lint reports. Each product of names counts as an unknown number of its own, so every
contradiction that is found is one, and some are not found. Fourier-Motzkin elimination decides the rest, within a budget.

Example:
    >>> from neuralqx_struct.schema.declarations import DimDeclaration
    >>> dims = {"d": DimDeclaration(), "k": DimDeclaration(equals="d - d", min=3)}
    >>> list(impossible_sizes(dims, {}, {}))
    ['k']
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import product
from typing import TypeVar

from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.polynomials import Polynomial, polynomial
from neuralqx_struct.schema.declarations import DimDeclaration
from neuralqx_struct.schema.model import FieldDeclaration

_WORK = 300_000  # terms for all sizes of one document, whose author is not trusted
_FACTORS = 4  # of a product whose bounds are known

_Place = TypeVar("_Place", bound=Hashable)
#: The least and the greatest value of a name, None for none.
_Range = tuple[int | None, int | None]


def impossible_sizes(
    dims: Mapping[str, DimDeclaration],
    ints: Mapping[str, FieldDeclaration],
    extents: Mapping[_Place, Expression],
) -> Iterator[str | _Place]:
    """Yields the dims, then the places of sizes, that no number fits beside those before them.

    Args:
        dims: The dims of the document.
        ints: The static ints of the root; they may be negative.
        extents: Sizes in shapes by place. Names that are no dims or ints are sizes too.
    """
    known = {name: dim.equation for name, dim in dims.items() if dim.equation is not None}
    system = _System(_ranges_of(dims, ints, known))
    for name in dims:
        low, high = system.ranges.get(name, (None, None))
        if low is not None and high is not None and low > high:
            yield name
            system.ranges[name] = 0, None  # reported once, not with each dim that names it
    for name, equation in known.items():
        dim, form = dims[name], polynomial(equation, known)
        bounds = _between(form, dim.min or 0, dim.max)
        if not system.fits(bounds) or not _has_whole(form, dim):
            yield name
        else:
            system.found += bounds
    for place, extent in extents.items():
        form = polynomial(extent, known)
        if min(form.values(), default=0) < 0 and not system.fits([form]):
            yield place


def _ranges_of(
    dims: Mapping[str, DimDeclaration],
    ints: Mapping[str, FieldDeclaration],
    equations: Mapping[str, Expression],
) -> dict[str, _Range]:
    """The ranges of static ints, and of dims without an equation."""
    ranges = {name: _range_of(field) for name, field in ints.items()}
    for name, dim in dims.items():
        if name not in equations:
            least, most = ranges.get(name, (None, None))
            high = min((each for each in (most, dim.max) if each is not None), default=None)
            ranges[name] = max(least or 0, dim.min or 0), high
    return ranges


def _range_of(field: FieldDeclaration) -> _Range:
    """The least and the greatest int that the bounds of a field allow."""
    lows = [] if field.ge is None else [math.ceil(field.ge)]
    lows += [] if field.gt is None else [math.floor(field.gt) + 1]
    highs = [] if field.le is None else [math.floor(field.le)]
    highs += [] if field.lt is None else [math.ceil(field.lt) - 1]
    return max(lows, default=None), min(highs, default=None)


def _between(form: Polynomial, low: int | None, high: int | None) -> list[Polynomial]:
    """The inequalities ``low <= form <= high``, each as a polynomial that is not negative."""
    found = []
    if low is not None:
        found.append(_combined(form, 1, {(): 1}, -low))
    if high is not None:
        found.append(_combined(form, -1, {(): 1}, high))
    return found


def _combined(a: Polynomial, times: int, b: Polynomial, others: int) -> Polynomial:
    """``times * a + others * b``."""
    found = {atoms: times * count for atoms, count in a.items()}
    for atoms, count in b.items():
        found[atoms] = found.get(atoms, 0) + others * count
    return {atoms: count for atoms, count in found.items() if count}


def _has_whole(form: Polynomial, dim: DimDeclaration) -> bool:
    """False if no whole numbers give the only size that a dim may have, as 3 for ``2 * m``."""
    counts = [count for atoms, count in form.items() if atoms]
    whole = all(atom.isidentifier() for atoms in form for atom in atoms)
    if dim.max is None or dim.max != (dim.min or 0) or not whole or not counts:
        return True
    return (dim.max - form.get((), 0)) % math.gcd(*counts) == 0


class _System:
    """Inequalities between products of names, each a polynomial that is not negative.

    Args:
        ranges: The ranges of names; one that is not there is a size, from 0 on.
    """

    def __init__(self, ranges: dict[str, _Range]) -> None:
        self.ranges = ranges
        self.work = _WORK
        self.found: list[Polynomial] = []

    def fits(self, more: Iterable[Polynomial]) -> bool:
        """False if some more inequalities contradict each other or those found."""
        if self.work < 0:
            return True
        forms = [*self.found, *more]
        names = {atoms for form in forms for atoms in form if atoms}
        for atoms in sorted(names):
            forms += self.bounds(atoms)
        return not self.contradict(forms)

    def range_of(self, atoms: tuple[str, ...]) -> _Range:
        """The range of a product; nothing is known of a part that is no name, as ``n / 2``."""
        ranges = [
            self.ranges.get(atom, (0, None)) if atom.isidentifier() else (None, None)
            for atom in atoms
        ]
        if len(ranges) == 1:
            return ranges[0]
        lows = [low for low, _ in ranges if low is not None and low >= 0]
        highs = [high for _, high in ranges if high is not None]
        if len(lows) < len(atoms):
            return None, None
        return math.prod(lows), math.prod(highs) if len(highs) == len(atoms) else None

    def bounds(self, atoms: tuple[str, ...]) -> Iterator[Polynomial]:
        """Yields the range of a product, and the ranges of its factors times the others."""
        yield from _between({atoms: 1}, *self.range_of(atoms))
        for place in range(len(atoms)) if 1 < len(atoms) <= _FACTORS else ():
            rest = atoms[:place] + atoms[place + 1 :]
            least, most = self.range_of(rest)
            if least is None or least < 0:
                continue
            yield from _between({rest: 1}, least, most)
            low, high = self.range_of((atoms[place],))
            if low is not None:
                yield _combined({atoms: 1}, 1, {rest: 1}, -low)
            if high is not None:
                yield _combined({atoms: 1}, -1, {rest: 1}, high)

    def contradict(self, forms: Iterable[Polynomial]) -> bool:
        """True if inequalities contradict each other; False also where the budget is too small to find out."""
        while True:
            tightest: dict[frozenset[tuple[tuple[str, ...], int]], int] = {}
            for form in filter(None, forms):
                self.work -= len(form)
                whole = all(atom.isidentifier() for atoms in form for atom in atoms)
                # Sums of whole numbers are rounded: from 2 * k >= 7 follows k >= 4.
                step = math.gcd(*(n for atoms, n in form.items() if atoms or not whole)) or 1
                sums = frozenset((atoms, n // step) for atoms, n in form.items() if atoms)
                constant = form.get((), 0) // step
                tightest[sums] = min(tightest.get(sums, constant), constant)
            if tightest.pop(frozenset(), 0) < 0:
                return True
            if not tightest or self.work < 0:
                return False
            forms = self.eliminated([{**dict(sums), (): n} for sums, n in tightest.items()])

    def eliminated(self, forms: Iterable[Polynomial]) -> list[Polynomial]:
        """The inequalities that follow for all names but one, which the fewest combinations eliminate."""
        above: dict[tuple[str, ...], list[Polynomial]] = {}
        below: dict[tuple[str, ...], list[Polynomial]] = {}
        for form in forms:
            for atoms, count in form.items():
                if atoms:
                    (above if count > 0 else below).setdefault(atoms, []).append(form)

        def combinations(atoms: tuple[str, ...]) -> int:
            return len(above.get(atoms, ())) * len(below.get(atoms, ()))

        chosen = min(sorted(above.keys() | below.keys()), key=combinations)
        found = [form for form in forms if chosen not in form]
        for a, b in product(above.get(chosen, ()), below.get(chosen, ())):
            self.work -= len(a) + len(b)
            if self.work < 0:
                break
            found.append(_combined(a, -b[chosen], b, a[chosen]))
        return found
