"""Scopes of sizes: the facts by which two versions give the same sizes to the same payloads.

A name in a size is a parameter of its struct, a dim of the document (one size for the whole tree), or a size of each
struct instance. A static int of the root that is named like a size is that size. Payload fingerprints contain these facts
(:func:`size_form`), and :func:`unproved_sizes` compares those of two versions.

Example:
    >>> from neuralqx_struct.schema.series import load_series
    >>> size_form(load_series("schemas/vmc_state").head)["dims"]["n_hidden"]
    {'equals': 'alpha * n_sites'}
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from neuralqx_struct.expressions import Expression, parse
from neuralqx_struct.expressions.paths import head_of
from neuralqx_struct.expressions.polynomials import Polynomial, polynomial
from neuralqx_struct.schema.declarations import DimDeclaration
from neuralqx_struct.schema.field_paths import given_fields, given_values, once
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.sizes import ANY
from neuralqx_struct.types import Type, walk_type


@once
def reachable(document: Document) -> tuple[list[str], list[str]]:
    """The structs and enums that a payload of the document can hold, sorted by name: with a pytree, all."""
    return named_from_root(document, pytrees=True)


def named_from_root(
    document: Document, *, pytrees: bool, roots: Iterable[str] | None = None
) -> tuple[list[str], list[str]]:
    """The structs and enums that the types of fields name, from the root or other structs on; with ``pytrees`` also what these may hold."""
    structs: set[str] = set()
    enums: set[str] = set()
    todo = [document.root] if roots is None else [*roots]
    while todo:
        name = todo.pop()
        if name in document.enums:
            enums.add(name)
        elif name in document.structs and name not in structs:
            structs.add(name)
            for declaration in document.structs[name].stored.values():
                for inner in walk_type(declaration.declared):
                    todo.append(inner.refers)
                    if pytrees and inner.takes_all:
                        todo += [*document.structs, *document.enums]
    return sorted(structs), sorted(enums)


#: Path, message and hint of a size that a payload may not have.
Unproved = tuple[tuple[str, ...], str, str]


def sizes_in(declared: Type, times: int = 1) -> Iterator[tuple[str, int]]:
    """Yields the names in the sizes of a type; 2 for those that one value can show more than once."""
    for size in (*declared.extents, *declared.arguments):
        if size is not ...:
            yield from ((name, times) for name in size.names - {ANY})
    for part in declared.parts:
        yield from sizes_in(part, 2 if declared.many else times)


def sizes_of_struct(document: Document, name: str) -> Counter[str]:
    """The named sizes of a struct, without its parameters, and how often they occur."""
    struct = document.structs[name]
    found: Counter[str] = Counter()
    for declaration in struct.stored.values():
        for size, times in sizes_in(declaration.declared):
            found[size] += times
    for parameter in struct.params:
        del found[parameter]
    return found


def shared_sizes(document: Document) -> dict[str, set[str]]:
    """The dims on which payloads depend, each with the structs that name it."""
    found: dict[str, set[str]] = {}
    for struct in reachable(document)[0]:
        for name in sizes_of_struct(document, struct).keys() & document.dims.keys():
            found.setdefault(name, set()).add(struct)
    given = int_fields(document)
    for name, dim in document.dims.items():
        if name in given or dim.equation is not None or dim.min:
            found.setdefault(name, set())
    waiting = [*found]
    while waiting:
        equation = document.dims[waiting.pop()].equation
        names = equation.names & document.dims.keys() if equation else frozenset[str]()
        for name in names - found.keys():
            found[name] = set()
            waiting.append(name)
    return found


def given_sizes(document: Document) -> set[str]:
    """The static ints of the root that are sizes."""
    root = document.structs.get(document.root)
    if root is None:
        return set()
    names = {*sizes_of_struct(document, document.root)}
    for name in shared_sizes(document):
        equation = document.dims[name].equation
        names |= {name} | (equation.names if equation else frozenset())
    return names & int_fields(document).keys()


@once
def int_fields(document: Document) -> dict[str, FieldDeclaration]:
    """The static ints of the root, by name: the sizes of their names."""
    root = document.structs.get(document.root)
    found: dict[str, FieldDeclaration] = {}
    for name, field in root.stored.items() if root else ():
        meanings = {branch.meaning for branch in field.declared.branches}
        if field.kind == "static" and not meanings.isdisjoint({"int", ""}):
            found[name] = field
    return found


def size_form(document: Document) -> dict[str, Any]:
    """The facts about sizes that a reader of payloads needs, as plain values; empty without any."""
    dims: dict[str, Any] = {}
    for name in sorted(shared_sizes(document)):
        dim = document.dims[name]
        bounds = {"equals": dim.equation and dim.equation.text, "min": dim.min}
        dims[name] = {member: value for member, value in bounds.items() if value}
    given = sorted(given_sizes(document))
    return {member: fact for member, fact in (("dims", dims), ("given", given)) if fact}


# ---------------------------------------------------------------------------------------------------------------------
# Two versions.


def unproved_sizes(
    have: Document, want: Document, new: Mapping[str, Expression]
) -> Iterator[Unproved]:
    """Yields the facts about sizes of ``want`` that payloads of ``have`` may not have.

    Args:
        have: The declaration that payloads conform to.
        want: The declaration of their reader.
        new: The sizes of ``have`` that names of ``want`` alone are equal to.
    """
    equations = {name: dim.equation for name, dim in have.dims.items() if dim.equation is not None}
    known = {**equations, **new}
    once_before, once_now = held_once(have), held_once(want)
    hidden, places = hidden_dims(want), _shown_places(want)
    for name, naming in shared_sizes(want).items():
        dim, at = want.dims[name], ("dims", name)
        structs = {struct for struct in naming if (struct, name) in places}
        names = new[name].names if name in new else {name}
        is_given = name in int_fields(want)
        once = structs <= {want.root} if is_given else once_before(structs) and once_now(structs)
        if not names <= have.dims.keys() and not once:
            message = f"expected one size {name} for the whole tree, got one for each instance"
            hint = f"keep {name} a size of each instance: declare the dim under another name"
            yield at, message, hint
            continue
        equation, had = dim.equation, known.get(name)
        own = new.get(name, parse(name))
        form = polynomial(parse(name), known)
        solved = equation is None or not hidden.keys().isdisjoint({name, *equation.names})
        if equation is not None and not solved and form != polynomial(equation, known):
            got = had.text if had else "any size"
            yield at, f"expected {name} = {equation.text}, got {got}", _KEEP
        size = hidden.get(name, own)
        if size is None:
            continue  # no payload has a number for it
        if name in hidden and form == polynomial(size, known):
            size = own
        least = _least(size, have, known)
        if dim.min and dim.min > least:
            yield at, f"expected {name} >= {dim.min}, got {name} >= {least}", _KEEP
        most = _most(size, have)
        if dim.max is not None and (most is None or most > dim.max):
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


def hidden_dims(document: Document) -> dict[str, Expression | None]:
    """The dims that no payload shows and that refuse none, each with the size that an equation gives it, if one does.

    An equation with such a dim has a solution for it, whatever the other sizes are: ``a = n + 1``, not ``n = a + 1``.
    """
    forms: dict[str, Polynomial] = {}
    inside: dict[str, set[str]] = {}
    holding: dict[str, set[str]] = {}
    for name, dim in document.dims.items():
        if dim.equation is not None:
            forms[name] = polynomial(parse(f"{name} - ({dim.equation.text})"), {})
            inside[name] = {name, *dim.equation.names}
            for inner in inside[name]:
                holding.setdefault(inner, set()).add(name)
    shown = {name for _, name in _shown_places(document)} | given_values(document).keys()
    found: dict[str, Expression | None] = {}
    waiting = [name for name in document.dims if name not in shown]
    while waiting:
        name = waiting.pop()
        equations = holding.get(name, set())
        if name in found or len(equations) > 1:
            continue
        found[name] = None
        for equation in [*equations]:
            solution = _solution(forms[equation], name)
            if solution is None:
                del found[name]
                continue
            found[name] = solution
            for inner in inside[equation]:
                holding[inner].discard(equation)
                if inner not in shown:
                    waiting.append(inner)
    for name in reversed([*found]):  # a size that follows from one without a number has none
        size = found[name]
        if size is not None and any(found.get(inner, size) is None for inner in size.names):
            found[name] = None
    return found


def _solution(form: Polynomial, name: str) -> Expression | None:
    """The size of a dim for which a polynomial is zero, if every value of the others gives one."""
    sign = form.get((name,), 0)
    rest = {atoms: -sign * count for atoms, count in form.items() if atoms != (name,)}
    if abs(sign) != 1 or not _is_sum(rest) or any(name in atoms for atoms in rest):
        return None
    terms = [" * ".join([str(count), *atoms]) for atoms, count in rest.items()]
    return parse(" + ".join(terms) or "0")


@once
def _shown_places(document: Document) -> set[tuple[str, str]]:
    """The structs with the sizes that payloads show there: in shapes, and as parameters of structs with such shapes."""
    found: set[tuple[str, str]] = set()
    waiting = [(document.root, name) for name in int_fields(document)]
    passed: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for name in reachable(document)[0]:
        for field in document.structs[name].stored.values():
            for part in walk_type(field.declared):
                sizes = [size for size in part.extents if size is not ...]
                waiting += [(name, inner) for size in sizes for inner in size.names]
                struct = document.structs.get(part.refers)
                params = struct.params if struct else [""] * len(part.arguments)
                for parameter, size in zip(params, part.arguments, strict=False):
                    names = [(name, inner) for inner in size.names]
                    passed.setdefault((part.refers, parameter), []).extend(names)
                    if struct is None or not _is_sum(polynomial(size, {})):
                        waiting += names  # of another document, or a size that may not exist
    while waiting:
        place = waiting.pop()
        if place not in found:
            found.add(place)
            waiting += passed.get(place, ())
    return {(at, name) for at, name in found if name not in document.structs[at].params}


def _is_sum(form: Polynomial) -> bool:
    """True for sums of products of sizes: they are never negative, nor fractions."""
    return all(count > 0 and all(map(str.isidentifier, atoms)) for atoms, count in form.items())


_KEEP = "keep it, or put the sizes that are meant into arrays of a new name"


def single_structs(document: Document) -> set[str]:
    """The structs of which a payload holds at most one instance."""
    held: dict[str, list[str]] = {}
    times: Counter[str] = Counter()
    for name in reachable(document)[0]:
        for field in document.structs[name].stored.values():
            for inner, count in _held(field.declared):
                held.setdefault(name, []).append(inner)
                times[inner] += count
    found: set[str] = set()
    waiting = [] if times[document.root] or times["*"] else [document.root]
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting += [inner for inner in held.get(name, ()) if times[inner] == 1]
    return found


def held_once(document: Document) -> Callable[[set[str]], bool]:
    """Returns a test whether a payload holds at most one instance of several structs: alternatives of one field."""
    single = single_structs(document)
    alternatives = [
        {branch.refers for branch in field.declared.branches}
        for name in reachable(document)[0]
        for field in document.structs[name].stored.values()
    ]

    def test(structs: set[str]) -> bool:
        if len(structs) < 2:
            return structs <= single
        return structs <= single and any(structs <= each for each in alternatives)

    return test


def _held(declared: Type, times: int = 1) -> Iterator[tuple[str, int]]:
    """Yields the structs that a type names, and ``*`` for one that holds any."""
    if declared.takes_all:
        yield "*", 1
    if declared.refers:
        yield declared.refers, times
    for part in declared.parts:
        yield from _held(part, 2 if declared.many else times)


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


def start_of(old: Document, target: Document) -> Document:
    """The declaration at the start of a migration, with the dims that only the target has: its steps may name them."""
    names = {size for struct in old.structs for size in sizes_of_struct(old, struct)}
    for struct in old.structs.values():
        names.update(struct.params)
    for dim in old.dims.values():
        names |= dim.equation.names if dim.equation else frozenset()
    fresh: dict[str, DimDeclaration] = {}
    tied = {**int_fields(old), **given_fields(old)}
    for name, dim in target.dims.items():
        if name not in names and name not in old.dims:
            free = dim.equals is None and name not in tied
            bound = dim.min if free else None
            fresh[name] = DimDeclaration(equals=dim.equals, min=bound)
    return old.stage(fresh, tied)


def _least(size: Expression, have: Document, known: Mapping[str, Expression]) -> int:
    """A lower bound of a size: minima of dims hold for every dim that is computed from them."""
    least: dict[str, int] = {}
    started: set[str] = set()
    waiting = [*size.names]
    while waiting:
        name = waiting[-1]
        equation = known.get(name)
        inner = equation.names - least.keys() - started if equation else frozenset[str]()
        if inner and name not in started:
            waiting += inner
        else:
            dim = have.dims.get(waiting.pop())
            least[name] = (dim.min if dim else None) or 0
            if equation:
                form = polynomial(equation, {})
                least[name] = _next(form, max(least[name], _bound(form, least)))
        started.add(name)
    # What cancels is gone only where equations are put in.
    return max(_bound(polynomial(size, known), least), _bound(polynomial(size, {}), least))


def _next(form: Polynomial, least: int) -> int:
    """The smallest number from a lower bound on that a sum of products of sizes can be: 2 * n is even."""
    constant = form.get((), 0)
    step = math.gcd(*(count for atoms, count in form.items() if atoms))
    whole = all(atom.isidentifier() for atoms in form for atom in atoms)
    return least + (constant - least) % step if whole and step else least


def _bound(form: Polynomial, least: Mapping[str, int]) -> int:
    """A lower bound of a sum of products; 0 if something is subtracted."""
    if any(count < 0 for count in form.values()):
        return 0
    return sum(
        count * math.prod(least.get(atom, 0) for atom in atoms) for atoms, count in form.items()
    )


def _most(size: Expression, have: Document) -> int | None:
    """An upper bound of a size, if one is known."""
    if size.text.isdecimal():
        return int(size.text)
    dim = have.dims.get(size.text)
    return None if dim is None else dim.max
