"""Sizes and choices of dtypes that two versions declare otherwise.

A size that only one version has can be in the place of another one (:func:`new_sizes`); arrays that one version lets differ in
dtype may have to be equal in the other (:func:`mixed_dtypes`).

Example:
    >>> new_sizes(v1, v1), [*mixed_dtypes(v1, v2)]
    ({}, [])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, partial
from itertools import product, starmap

from neuralqx_struct.expressions import Expression, parse
from neuralqx_struct.expressions.polynomials import Polynomial, difference, polynomial
from neuralqx_struct.schema.graph import graph_of
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.sizes import ANY
from neuralqx_struct.schema.sizes.comparison import substitute
from neuralqx_struct.schema.sizes.scopes import (
    dims_in_use,
    hiding_params,
    int_fields,
    is_sum,
    sizes_of_params,
    sizes_of_struct,
)
from neuralqx_struct.types import Array, Type, map_type, walk_type


def held_arrays(have: Document, want: Document) -> dict[str, list[tuple[str, str, Type]]]:
    """The arrays of one version at the places of each choice of another, with their structs and fields."""
    found: dict[str, list[tuple[str, str, Type]]] = {}
    for name in graph_of(want).structs:
        struct = have.structs.get(name)
        stored = {} if struct is None else struct.stored
        for field, declaration in want.structs[name].stored.items():
            if any(inner.choice for inner in walk_type(declaration.declared)) and field in stored:
                for one, other in _facing(declaration.declared, stored[field].declared):
                    if one.choice and not {*one.dtypes}.isdisjoint(other.dtypes):
                        found.setdefault(one.element, []).append((name, field, other))
    return found


def _facing(want: Type, have: Type) -> Iterable[tuple[Type, Type]]:
    """The parts of two types that may hold the same values: those at one place, or any where they differ in form."""
    parts, others = [*walk_type(want)], [*walk_type(have)]
    alike = [part.sort for part in parts] == [part.sort for part in others]
    if alike and all(len(part.solid) <= 1 for part in parts):
        return zip(parts, others, strict=True)
    return product(parts, others)


def mixed_dtypes(have: Document, want: Document) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yields path, message and hint of the choices of dtypes whose arrays may differ in dtype in a payload of another version.

    Args:
        have: The declaration that payloads conform to.
        want: The declaration of their reader.
    """
    for name, held in held_arrays(have, want).items():
        places: dict[str, str] = {}
        for struct, field, array in held:
            places.setdefault(array.element, f"{struct}.{field}")
            if _may_differ(array):
                places.setdefault("another of them", f"{struct}.{field}")
        if len(places) > 1:
            got = " and ".join(f"{dtype} at {place}" for dtype, place in places.items())
            message = f"expected one dtype for all arrays of {name}, got {got}"
            yield ("dtypes", name), message, "cast them to one of its dtypes"


def _may_differ(array: Type) -> bool:
    return len(array.dtypes) > 1 and not array.choice


def as_held(document: Document, before: Document, want: Document) -> Document:
    """A declaration whose new arrays of a choice have the dtype of those before, where all of these have one.

    Args:
        document: The declaration after a step that adds a field.
        before: The declaration before it.
        want: The declaration that the steps lead to.
    """
    if not want.dtypes:
        return document
    held = {
        name: {(array.element, array.choice) for _, _, array in arrays if not _may_differ(array)}
        for name, arrays in held_arrays(before, want).items()
    }

    def settled(inner: Type) -> Type:
        found = held.get(inner.element, set())
        if len(found) != 1 or not isinstance(inner, Array):
            return inner
        ((dtype, choice),) = found
        return Array(dtype, inner.shape, choice)

    structs, known = dict(document.structs), {*graph_of(before).structs}
    for name, struct in document.structs.items():
        old = before.structs[name].fields if name in known else {}
        changed = dict(struct.fields)
        for field in changed.keys() - old.keys():
            declared = changed[field].declared
            made = map_type(declared, settled)
            if made != declared:
                changed[field] = changed[field].with_type(made)
        if changed != struct.fields:
            structs[name] = struct.model_copy(update={"fields": changed})
    return document.model_copy(update={"structs": structs})


def new_sizes(have: Document, want: Document, struct: str = "") -> dict[str, Expression]:
    """The names of sizes that only ``want`` has, with the size of ``have`` that is in all their places.

    Only names that are new: ``[n, m]`` and ``[m, n]`` stay different. Parameters count as the sizes that all payloads give them.

    Args:
        have: The declaration that payloads conform to.
        want: The declaration of their reader.
        struct: The struct whose own names, and parameters, are compared, which others may use for other sizes; by default
            the names that no parameter hides.
    """
    names = {struct} if struct else have.structs.keys() & want.structs.keys()
    hidden = {name: set[str]() if struct else hiding_params(want, name) for name in names}
    shared = set[str]()
    if struct:
        shared = (want.dims.keys() | int_fields(want).keys()) - {*want.structs[struct].params}
    wanted = frozenset[str]().union(*(want.structs[name].sizes - hidden[name] for name in names))
    taken = _taken(have, struct)
    # The name of a dim of the reader may be that of a size of each instance before.
    own_names = have.structs[struct].sizes - have.dims.keys() if struct else frozenset[str]()
    given = _given(want, struct).items()
    found = {name: size for name, size in given if size.names.isdisjoint(own_names)}
    if wanted <= taken:
        return found
    facing: dict[str, list[str]] = {}
    times = cache(partial(sizes_of_struct, want))
    for name in names:
        old, new = have.structs[name].stored, want.structs[name].stored
        binds = [_given(document, name) for document in (have, want)]
        params = sizes_of_params(want).get(name, {}).items()
        free = {parameter for parameter, size in params if size.text == ANY}
        for field in old.keys() & new.keys():
            types = zip((old[field].declared, new[field].declared), binds, strict=True)
            for a, b in facing_sizes(*starmap(substitute, types)):
                if b in shared or b in taken or b in hidden[name]:
                    continue
                if a.text == b:  # no payload has a number for that
                    continue
                # One size for all instances cannot be one that each has to itself.
                own = b in want.dims and name != have.root and not a.names <= have.dims.keys()
                own |= a.text == ANY and times(name)[b] != 1
                own |= not a.names.isdisjoint(have.structs[name].params)
                own |= struct == name and b in want.structs[name].params and b not in free
                facing.setdefault(b, []).append("" if own else a.text)
    for name, (size, *others) in facing.items():
        same = {*others} <= {size} and not (size == ANY and others)
        if same and size:
            found[name] = parse(size)
    return found


def _taken(have: Document, struct: str) -> frozenset[str]:
    """The names that sizes of a version have in its payloads."""
    if struct:
        own = have.structs[struct]
        return dims_in_use(have) - {*own.params} | own.sizes
    return dims_in_use(have).union(*(each.sizes - {*each.params} for each in have.structs.values()))


def _given(document: Document, struct: str) -> dict[str, Expression]:
    """The parameters of a struct that all payloads give one size."""
    sizes = sizes_of_params(document).get(struct, {})
    return {name: size for name, size in sizes.items() if size.text not in (ANY, name)}


def size_names(document: Document) -> set[str]:
    """The names of all sizes of a document."""
    return set(document.dims).union(*(struct.sizes for struct in document.structs.values()))


def facing_sizes(have: Type, want: Type) -> Iterator[tuple[Expression, str]]:
    """Yields sizes, and the names that have them in another type: those at the same place, alone or in ``2 * n``."""
    for a, b in zip(walk_type(have), walk_type(want), strict=False):
        sizes = [(*each.extents, *each.arguments) for each in (a, b)]
        if a.sort == b.sort and a.refers == b.refers and len(sizes[0]) == len(sizes[1]):
            for x, y in zip(*sizes, strict=True):
                if x is ... or y is ... or len(y.names) != 1 or y.text == ANY:
                    continue
                (name,) = y.names
                size: Expression | None = x
                if y.text != name:
                    form = difference(polynomial(y, {}), polynomial(x, {}))
                    size = _solution_of(form, name) if x.text != ANY else None
                if size is not None:
                    yield size, name


def _solution_of(form: Polynomial, name: str) -> Expression | None:
    """The size of a name for which a polynomial is zero, if every value of the others gives one."""
    factor = form.get((name,), 0)
    others = {atoms: -count for atoms, count in form.items() if atoms != (name,)}
    if not factor or any(count % factor for count in others.values()):
        return None
    rest = {atoms: count // factor for atoms, count in others.items()}
    if not is_sum(rest) or any(name in atoms for atoms in rest):
        return None
    terms = [" * ".join([str(count), *atoms]) for atoms, count in rest.items()]
    return parse(" + ".join(term.removeprefix("1 * ") for term in terms) or "0")
