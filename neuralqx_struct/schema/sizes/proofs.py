"""Proofs of sizes: the facts by which payloads of one version have the sizes that another one wants.

Example:
    >>> from neuralqx_struct.schema.sizes.scopes import start_of
    >>> list(unproved_sizes(start_of(v3, v3), v3, {}))
    []
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping

from neuralqx_struct.expressions import Expression, parse
from neuralqx_struct.expressions.grammar import head_of
from neuralqx_struct.expressions.polynomials import Polynomial, polynomial
from neuralqx_struct.schema.field_paths import given_fields, given_values
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.sizes.feasibility import PossibleSizes
from neuralqx_struct.schema.sizes.scopes import (
    given_sizes,
    held_once,
    int_fields,
    reachable,
    shared_sizes,
)
from neuralqx_struct.schema.sizes.shown import (
    hidden_from,
    is_solved,
    is_sum,
    lower_bound,
    shown_places,
)
from neuralqx_struct.types import Type, walk_type

#: Path, message and hint of a size that a payload may not have.
Unproved = tuple[tuple[str, ...], str, str]


def unproved_sizes(
    have: Document, want: Document, new: Mapping[str, Expression]
) -> Iterator[Unproved]:
    """Yields the facts about sizes of ``want`` that payloads of ``have`` may not have.

    Args:
        have: The declaration that payloads conform to.
        want: The declaration of their reader.
        new: The sizes of ``have`` that names of ``want`` alone are equal to.
    """
    equations = {
        name: dim.equation  # of other sizes than those that have the name of one now
        for name, dim in have.dims.items()
        if dim.equation is not None and new.keys().isdisjoint(dim.equation.names)
    }
    known = {**equations, **new}
    at_most_once = held_once(have)
    shown = shown_places(want)
    places = {(place.struct, place.size) for place in shown}
    filled: dict[str, set[frozenset[str]]] | None = None
    minima: dict[frozenset[str], dict[str, int]] = defaultdict(dict)
    sizes = PossibleSizes(have)
    checked = {**sizes.equations, **new}
    hidden = hidden_from(have, want, checked)
    for name, naming in shared_sizes(want).items():
        dim, at = want.dims[name], ("dims", name)
        structs = {struct for struct in naming if (struct, name) in places}
        names = new[name].names if name in new else {name}
        is_given = name in int_fields(want)
        once = structs <= {want.root} if is_given else at_most_once(structs)
        if not names <= have.dims.keys() and not once:
            message = f"expected one size {name} for the whole tree, got one for each instance"
            hint = f"keep {name} a size of each instance: declare the dim under another name"
            yield at, message, hint
            continue
        equation, had = dim.equation, known.get(name)
        own = new.get(name, parse(name))
        form = polynomial(parse(name), known)
        if (
            equation is not None
            and not is_solved(want, name, hidden)
            and form != polynomial(equation, known)
        ):
            got = had.text if had else "any size"
            yield at, f"expected {name} = {equation.text}, got {got}", _KEEP
        size = hidden.get(name, own)
        if size is None:
            continue  # no payload has a number for it
        if name in hidden and form == polynomial(size, known):
            size = own
        least = _least(size, have, checked, minima)
        at_least_one = [frozenset[str]()]
        if dim.min and dim.min > least:
            filled = _filled(have, want, known) if filled is None else filled
            at_least_one = [*filled[name]] or at_least_one
            least = min(_least(size, have, checked, minima, sure) for sure in at_least_one)
        number = polynomial(size, checked)
        if dim.min and dim.min > least:
            below = [sizes.include(number, None, dim.min - 1, sure) for sure in at_least_one]
        else:
            below = []
        if any(below):
            yield at, f"expected {name} >= {dim.min}, got {name} >= {least}", _KEEP
        most = _most(size, have)
        if (
            dim.max is not None
            and (most is None or most > dim.max)
            and sizes.include(number, dim.max + 1, None)
        ):
            got = "any size" if most is None else f"{name} <= {most}"
            yield at, f"expected {name} <= {dim.max}, got {got}", _KEEP
    tied, now = have.tied or {}, given_fields(have, want)
    for name, expression in given_values(want).items():
        paths = {path for path in given_fields(want) if head_of(path) in expression.heads}
        if any(path not in now or tied.get(path) is not now[path] for path in paths):
            message = f"expected {name} to have the value that it had, got another field"
            hint = "keep the names on its way, or give the dim another name"
            yield ("structs", want.root, "fields", head_of(name)), message, hint
    for name in sorted(given_sizes(want) - _given_to(have, new)):
        message = f"expected {name} to be the size of that name, got any int"
        hint = "rename the field or the size: a static int of the root gives the size of its name"
        yield ("structs", want.root, "fields", name), message, hint


_KEEP = "keep it, or put the sizes that are meant into arrays of a new name"


def _given_to(have: Document, new: Mapping[str, Expression]) -> set[str]:
    """The static ints of the root that are the sizes of their names, once sizes have their new names."""
    tied = (have.tied or {}).items()
    sizes = {id(field): size for size, field in tied if size.isidentifier()}
    found: set[str] = set()
    for name, field in have.structs[have.root].stored.items():
        size = new[name].text if name in new else name
        if sizes.get(id(field)) == size:
            found.add(name)
    return found


#: Different places of a dim above which only what is sure at all of them counts.
_MOST = 8


def _filled(
    have: Document, want: Document, known: Mapping[str, Expression]
) -> dict[str, set[frozenset[str]]]:
    """The dims that are at least one wherever a payload shows a dim of ``want``, as a set for each of the places.

    An empty list shows nothing, so the length of a list around a place is at least one. Other places of a dim are those
    of the dims that equations join with it; it has none where a field gives one of them.

    Args:
        have: The declaration that payloads conform to: of its lists these are the lengths.
        want: The declaration of the reader.
        known: Expressions of the dims of ``have``.
    """
    around: dict[tuple[str, str, str], frozenset[str]] = {}
    holding: dict[str, list[tuple[str, frozenset[str]]]] = {}
    for struct in reachable(want)[0]:
        for field, declaration in want.structs[struct].stored.items():
            sure = _in_field(have, struct, field, known)
            for part in walk_type(declaration.declared):
                around[struct, field, part.sort] = own = sure.get(part.sort, frozenset())
                held = {*want.structs} if part.takes_all else {part.refers} & want.structs.keys()
                holding.setdefault(struct, []).extend((name, own) for name in held)
    inside = {want.root: frozenset[str]()}
    waiting = [want.root]
    while waiting:
        struct = waiting.pop()
        for inner, own in holding.get(struct, ()):
            before, now = inside.get(inner), inside[struct] | own
            inside[inner] = now if before is None else now & before
            if inside[inner] != before:
                waiting.append(inner)
    found: dict[str, set[frozenset[str]]] = {name: set() for name in want.dims}
    for place in shown_places(want):
        own = around.get((place.struct, place.field, place.sort), frozenset())
        found.setdefault(place.size, set()).add(inside[place.struct] | own)
    for joined in _joined(want):
        every = set[frozenset[str]]().union(*(found.get(name, ()) for name in joined))
        found.update(dict.fromkeys(joined, every if joined <= want.dims.keys() else set()))
    for name, places in found.items():
        if len(places) > _MOST:
            found[name] = {frozenset[str].intersection(*places)}
    return found


def _in_field(
    have: Document, struct: str, field: str, known: Mapping[str, Expression]
) -> dict[str, frozenset[str]]:
    """The dims that are at least one wherever values of a field have parts, by the sort of the part."""
    declaration = have.structs[struct].stored.get(field) if struct in have.structs else None
    if declaration is None:
        return {}
    dims = have.dims.keys() - {*have.structs[struct].params}
    found: dict[str, frozenset[str]] = {}
    for part, lengths in _in_lists(declaration.declared, ()):
        sure = dims & {name for size in lengths for name in _factors(size, known)}
        found[part.sort] = frozenset(sure & found.get(part.sort, sure))
    return found


def _joined(document: Document) -> Iterator[set[str]]:
    """Yields the names that equations of dims join with each other."""
    beside: dict[str, list[frozenset[str]]] = {}
    for name, dim in document.dims.items():
        if dim.equation is not None:
            names = dim.equation.names | {name}
            for each in names:
                beside.setdefault(each, []).append(names)
    while beside:
        found, waiting = set[str](), [next(iter(beside))]
        while waiting:
            name = waiting.pop()
            found.add(name)
            for names in beside.pop(name, ()):
                waiting += names
        yield found


def _in_lists(
    declared: Type, lengths: tuple[Expression, ...]
) -> Iterator[tuple[Type, tuple[Expression, ...]]]:
    """Yields the types in a type, with the lengths of the lists around them."""
    yield declared, lengths
    own = () if declared.stacks else [size for size in declared.extents if size is not ...]
    for part in declared.parts:
        yield from _in_lists(part, (*lengths, *own))


def _factors(size: Expression, known: Mapping[str, Expression]) -> set[str]:
    """The names that are at least one where a size is."""
    forms = [polynomial(size, {}), polynomial(size, known)]
    sums = [[{*atoms} for atoms in form] for form in forms if form and is_sum(form)]
    return set[str]().union(*(set[str].intersection(*atoms) for atoms in sums))


def _least(
    size: Expression,
    have: Document,
    known: Mapping[str, Expression],
    minima: dict[frozenset[str], dict[str, int]],
    positive: frozenset[str] = frozenset(),
) -> int:
    """A lower bound of a size: minima of dims hold for every dim that is computed from them; ``positive`` are at least one.

    ``minima`` keeps those of the names for the next size.
    """
    least = minima[positive]
    started: set[str] = set()
    waiting = [*size.names - least.keys()]
    while waiting:
        name = waiting[-1]
        equation = known.get(name)
        inner = equation.names - least.keys() - started if equation else frozenset[str]()
        if inner and name not in started:
            waiting += inner
        else:
            dim = have.dims.get(waiting.pop())
            given = dim is None and (name in given_values(have) or name in int_fields(have))
            low = -1 if given else (dim.min if dim else None) or 0  # an int may be negative
            least[name] = max(low, 1) if name in positive else low
            if equation:
                form = polynomial(equation, {})
                least[name] = _next(form, max(least[name], lower_bound(form, least)))
        started.add(name)
    # What cancels is gone only where equations are put in.
    return max(
        lower_bound(polynomial(size, known), least), lower_bound(polynomial(size, {}), least)
    )


def _next(form: Polynomial, least: int) -> int:
    """The smallest number from a lower bound on that a sum of products of sizes can be: 2 * n is even."""
    constant = form.get((), 0)
    step = math.gcd(*(count for atoms, count in form.items() if atoms))
    whole = all(atom.isidentifier() for atoms in form for atom in atoms)
    return least + (constant - least) % step if whole and step else least


def _most(size: Expression, have: Document) -> int | None:
    """An upper bound of a size, if one is known."""
    if size.text.isdecimal():
        return int(size.text)
    dim = have.dims.get(size.text)
    return None if dim is None else dim.max
