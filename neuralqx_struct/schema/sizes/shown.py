"""The places at which payloads show sizes.

Example:
    >>> "n_sites" in {place.size for place in shown_places(v3)}
    True
"""

from __future__ import annotations

from typing import NamedTuple

from neuralqx_struct.expressions.polynomials import Polynomial, polynomial
from neuralqx_struct.schema.graph import graph_of
from neuralqx_struct.schema.model import Document, once
from neuralqx_struct.schema.sizes.scopes import int_fields
from neuralqx_struct.types import walk_type


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
