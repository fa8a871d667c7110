"""The sizes that payloads show, and the dims that none shows.

Example:
    >>> hidden_dims(v3)
    {}
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from neuralqx_struct.expressions import Expression, from_ast, parse
from neuralqx_struct.expressions.grammar import replaced
from neuralqx_struct.expressions.polynomials import Polynomial, polynomial
from neuralqx_struct.schema.field_paths import given_values, once
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.sizes.scopes import int_fields, reachable
from neuralqx_struct.types import walk_type

_LONGEST = 200  # characters of sizes that follow from others: sums of sums grow fast

#: Dims with the size that an equation gives each, if one does.
Hidden: TypeAlias = Mapping[str, Expression | None]


@once
def hidden_dims(document: Document) -> Hidden:
    """The dims that no payload shows and that refuse none, each with the size that an equation gives it, if one does.

    An equation with such a dim has a solution for it, whatever the other sizes are: ``a = n + 1``, not ``n = a + 1``.
    """
    apart: dict[str, Expression] = {}
    inside: dict[str, set[str]] = {}
    holding: dict[str, set[str]] = {}
    for name, dim in document.dims.items():
        if dim.equation is not None:
            apart[name] = parse(f"{name} - ({dim.equation.text})")
            inside[name] = {name, *dim.equation.names}
            for inner in inside[name]:
                holding.setdefault(inner, set()).add(name)
    shown = {place.size for place in shown_places(document)} | given_values(document).keys()
    least = {name: dim.min or 0 for name, dim in document.dims.items()}
    found: dict[str, Expression | None] = {}
    waiting = [name for name in document.dims if name not in shown]
    while waiting:
        name = waiting.pop()
        equations = holding.get(name, set())
        if name in found or len(equations) > 1:
            continue
        found[name] = None
        for equation in [*equations]:
            solution = solution_of(polynomial(apart[equation], {}), name, least)
            if solution is None:
                del found[name]
                continue
            found[name] = solution
            for inner in inside[equation]:
                holding[inner].discard(equation)
                if inner not in shown:
                    waiting.append(inner)
    # A size follows from those that others follow from, or has no number.
    for name in reversed([*found]):
        size = found[name]
        if size is None:
            continue
        given = {each: found[each] for each in size.names & found.keys()}
        trees = {each: other.tree for each, other in given.items() if other is not None}
        if len(trees) < len(given):
            found[name] = None
        elif trees and sum(len(other.text) for other in given.values() if other) < _LONGEST:
            found[name] = from_ast(replaced(size.tree, trees))
    return found


def solution_of(
    form: Polynomial, name: str, least: Mapping[str, int] | None = None
) -> Expression | None:
    """The size of a name for which a polynomial is zero, if every value of the others gives one; some have a least value."""
    factor = form.get((name,), 0)
    others = {atoms: -count for atoms, count in form.items() if atoms != (name,)}
    if not factor or any(count % factor for count in others.values()):
        return None
    rest = {atoms: count // factor for atoms, count in others.items()}
    sums = {atoms: count for atoms, count in rest.items() if atoms}
    smallest = rest.get((), 0) + lower_bound(sums, least or {})
    if not is_sum(sums) or smallest < 0 or any(name in atoms for atoms in rest):
        return None
    terms = [" * ".join([str(count), *atoms]) for atoms, count in rest.items()]
    return parse(" + ".join(term.removeprefix("1 * ") for term in terms) or "0")


class Place(NamedTuple):
    """Where payloads show a size: the struct and field, and the sort of the type there."""

    struct: str
    field: str
    sort: str
    size: str


@once
def shown_places(document: Document) -> set[Place]:
    """The places of sizes that payloads show: in shapes, and as parameters of structs with such shapes."""
    found: set[Place] = set()
    waiting = [Place(document.root, name, "", name) for name in int_fields(document)]
    passed: dict[tuple[str, str], list[Place]] = {}
    for name in reachable(document)[0]:
        for key, field in document.structs[name].stored.items():
            for part in walk_type(field.declared):
                at = (name, key, part.sort)
                sizes = [size for size in part.extents if size is not ...]
                waiting += [Place(*at, inner) for size in sizes for inner in size.names]
                struct = document.structs.get(part.refers)
                params = struct.params if struct else [""] * len(part.arguments)
                for parameter, size in zip(params, part.arguments, strict=False):
                    names = [Place(*at, inner) for inner in size.names]
                    passed.setdefault((part.refers, parameter), []).extend(names)
                    if struct is None or not is_sum(polynomial(size, {})):
                        waiting += names  # of another document, or a size that may not exist
    while waiting:
        place = waiting.pop()
        if place not in found:
            found.add(place)
            waiting += passed.get((place.struct, place.size), ())
    return {place for place in found if place.size not in document.structs[place.struct].params}


def is_sum(form: Polynomial) -> bool:
    """True for sums of products of sizes: they are never negative, nor fractions."""
    return all(count > 0 and all(map(str.isidentifier, atoms)) for atoms, count in form.items())


def lower_bound(form: Polynomial, least: Mapping[str, int]) -> int:
    """A lower bound of a sum of products; 0 if something is subtracted, or may be negative."""
    atoms = {atom for atoms in form for atom in atoms}
    names = {name for atom in atoms for name in re.findall(r"[\w.]+", atom)}
    negative = [count for count in (*form.values(), *(least.get(n, 0) for n in names)) if count < 0]
    if negative or any("-" in atom for atom in atoms):
        return 0
    return sum(
        count * math.prod(least.get(atom, 0) for atom in atoms) for atoms, count in form.items()
    )
