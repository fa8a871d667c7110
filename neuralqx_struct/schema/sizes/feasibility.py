"""Feasibility of sizes: can the dims of a document have sizes at all, with their equations and bounds?

Owns :func:`impossible_sizes`, which lint reports. Each product of names counts as an unknown number of its own, so every
contradiction that is found is one, and some are not found. Fourier-Motzkin elimination decides the rest, within a budget.
Verdicts ask :class:`PossibleSizes` whether any sizes of a writer are beyond the bounds of a reader.

Example:
    >>> from neuralqx_struct.schema.declarations import DimDeclaration
    >>> dims = {"d": DimDeclaration(), "k": DimDeclaration(equals="d - d", min=3)}
    >>> list(impossible_sizes(dims, {}, {}))
    ['k']
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import product
from typing import TypeVar

from neuralqx_struct.expressions import Expression, parse
from neuralqx_struct.expressions.polynomials import Polynomial, polynomial
from neuralqx_struct.schema.declarations import DimDeclaration
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.sizes.scopes import int_fields
from neuralqx_struct.types import Array

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


class PossibleSizes:
    """The sizes that the dims of payloads can have, with the bounds of dims and the equations that are checked."""

    def __init__(self, document: Document) -> None:
        self.equations = _checked_equations(document)
        self._document = document

    @cached_property
    def _system(self) -> _System:
        dims = self._document.dims
        made = _System(_ranges_of(dims, int_fields(self._document), self.equations))
        for name, equation in self.equations.items():
            form = polynomial(equation, self.equations)
            made.found += _between(form, dims[name].min or 0, dims[name].max)
        return made

    def include(
        self, size: Polynomial, low: int | None, high: int | None, positive: Iterable[str] = ()
    ) -> bool:
        """False if no sizes of the dims put another one into a range, where some of them are at least one."""
        forms = _between(size, low, high)
        for name in positive:
            forms += _between(polynomial(parse(name), self.equations), 1, None)
        return self._system.fits(forms)


def _checked_equations(document: Document) -> dict[str, Expression]:
    """The equations of dims that are checked wherever a payload shows one of their names.

    Where two sizes are unknown nothing is: payloads whose arrays show neither ``a`` nor ``b`` have any ``n`` for ``n = a + b``.
    """
    equations = {n: dim.equation for n, dim in document.dims.items() if dim.equation is not None}
    arrays = [field.declared for field in document.structs[document.root].stored.values()]
    extents = [size for each in arrays if isinstance(each, Array) for size in each.shape]
    always = {size.text for size in extents if size is not ...} | {*int_fields(document)}
    ranges = _ranges_of(document.dims, int_fields(document), {})
    positive = {name for name, (low, _) in ranges.items() if low is not None and low > 0}
    before = -1
    while before < len(always):
        before = len(always)
        for name, equation in equations.items():
            names = {name, *equation.names}
            if len(names - always) == 1 and _gives_others(equation, always, positive):
                always |= names
    return {n: each for n, each in equations.items() if _gives_others(each, always, positive)}


def _gives_others(equation: Expression, known: set[str], positive: set[str]) -> bool:
    """True if what an equation is equal to gives the names in it that are not known, one at most; no zero hides it."""
    unknown = equation.names - known
    if not unknown:
        return True
    form = polynomial(equation, {})
    parts = [atoms for atoms in form if not unknown.isdisjoint(atoms)]
    whole = all(atom.isidentifier() for atoms in form for atom in atoms)
    if not whole or len(unknown) != 1 or len(parts) != 1:
        return False
    factors = [atom for atom in parts[0] if atom not in unknown]
    return len(factors) == len(parts[0]) - 1 and positive.issuperset(factors)


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
