"""Scopes of sizes: the facts by which two versions give the same sizes to the same payloads.

A name in a size is a parameter of its struct, a dim of the document (one size for the whole tree), or a size of each
struct instance. A static int of the root that is named like a size is that size. Payload fingerprints contain these facts
(:func:`size_form`), and ``evolution/differences.py`` compares those of two versions.

Example:
    >>> from neuralqx_struct.schema.series import load_series
    >>> size_form(load_series("schemas/vmc_state").head)["dims"]["n_hidden"]
    {'equals': 'alpha * n_sites'}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.polynomials import Polynomial, polynomial
from neuralqx_struct.schema.field_paths import given_fields
from neuralqx_struct.schema.graph import graph_of
from neuralqx_struct.schema.model import DimDeclaration, Document, FieldDeclaration, once
from neuralqx_struct.schema.sizes import ANY
from neuralqx_struct.types import Type, walk_type


def sizes_in(declared: Type, times: int = 1) -> Iterator[tuple[str, int]]:
    """Yields the names in the sizes of a type; 2 for those that one value can show more than once."""
    for size in (*declared.extents, *declared.arguments):
        if size is not ...:
            yield from ((name, times) for name in sorted(size.names - {ANY}))
    for part in declared.parts:
        yield from sizes_in(part, 2 if declared.many else times)


def sizes_of_struct(document: Document, name: str) -> Counter[str]:
    """The named sizes of a struct, without its parameters, and how often they occur."""
    struct = document.structs[name]
    found: Counter[str] = Counter()
    for declaration in struct.stored.values() if struct.sizes else ():
        for size, times in sizes_in(declaration.declared):
            found[size] += times
    for parameter in struct.params:
        del found[parameter]
    return found


@once
def sizes_of_params(document: Document) -> dict[str, dict[str, Expression]]:
    """The parameters of structs that are one size, of numbers and dims, or any size wherever a payload holds the struct."""
    found: dict[str, dict[str, Expression]] = {}
    for holder in graph_of(document).structs:
        declared = document.structs[holder]
        for field in declared.stored.values():
            for part in walk_type(field.declared):
                if part.takes_all:
                    return {}
                struct = document.structs.get(part.refers)
                params = struct.params if struct and part.refers != document.root else ()
                dims = document.dims.keys() - {*declared.params}
                known = {ANY, *dims} - {*params}
                given = {
                    name: size
                    for name, size in zip(params, part.arguments, strict=False)
                    if size.names <= known or (size.text == name and name in dims)
                }
                before = found.setdefault(part.refers, given)
                found[part.refers] = {n: s for n, s in given.items() if before.get(n) == s}
    return found


def hiding_params(document: Document, struct: str) -> set[str]:
    """The parameters of a struct that hide what their names are outside of it: all but those that are always just that."""
    given = sizes_of_params(document).get(struct, {})
    params = document.structs[struct].params
    return {name for name in params if name not in given or given[name].text != name}


def shared_sizes(document: Document) -> dict[str, set[str]]:
    """The dims on which payloads depend, each with the structs that name it."""
    found: dict[str, set[str]] = {}
    for struct in graph_of(document).structs:
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


@once
def dims_in_use(document: Document) -> frozenset[str]:
    """The dims on which payloads depend, with the names in their equations; not those that only a reader declares."""
    names = shared_sizes(document).keys() - document.fresh
    equations = [document.dims[name].equation for name in names]
    return frozenset(names).union(*(each.names for each in equations if each))


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
    return {name: field for name, field in root.fields.items() if field.is_int} if root else {}


def int_field(document: Document, name: str) -> FieldDeclaration | None:
    """One of :func:`int_fields`, which each step of a migration would compute again."""
    root = document.structs.get(document.root)
    field = None if root is None else root.held(name)
    return field if field is not None and field.is_int else None


def size_form(document: Document) -> dict[str, Any]:
    """The facts about sizes that a reader of payloads needs, as plain values; empty without any."""
    dims: dict[str, Any] = {}
    for name in sorted(shared_sizes(document)):
        dim = document.dims[name]
        bounds = {"equals": dim.equation and dim.equation.text, "min": dim.min}
        dims[name] = {member: value for member, value in bounds.items() if value}
    given = sorted(given_sizes(document))
    return {member: fact for member, fact in (("dims", dims), ("given", given)) if fact}


def start_of(old: Document, target: Document) -> Document:
    """The declaration at the start of a migration, with the dims that only the target has: its steps may name them."""
    names = {size for struct in old.structs for size in sizes_of_struct(old, struct)}
    for struct in old.structs.values():
        names.update(struct.params)
    for dim in old.dims.values():
        names |= dim.equation.names if dim.equation else frozenset()
    fresh: dict[str, DimDeclaration] = {}
    tied = {**int_fields(old), **given_fields(old)} if old.tied is None else old.tied
    for name, dim in target.dims.items():
        if name not in names and name not in old.dims:
            free = dim.equals is None and name not in tied
            bound = dim.min if free else None
            fresh[name] = DimDeclaration(equals=dim.equals, min=bound)
    return old.stage(fresh, tied)


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
    for name in graph_of(document).structs:
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
