"""The names of sizes that only one of two versions has, and the sizes of the other one that are in their places.

Example:
    >>> new_sizes(v1, v1)
    {}
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial

from neuralqx_struct.expressions import Expression, parse
from neuralqx_struct.expressions.polynomials import difference, polynomial
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.sizes import ANY
from neuralqx_struct.schema.sizes.proofs import hidden_dims, solution_of
from neuralqx_struct.schema.sizes.scopes import dims_in_use, int_fields, sizes_of_struct
from neuralqx_struct.types import Type, walk_type


def new_sizes(have: Document, want: Document, struct: str = "") -> dict[str, Expression]:
    """The names of sizes that only ``want`` has, with the size of ``have`` that is in all their places.

    Only names that are new: ``[n, m]`` and ``[m, n]`` stay different.

    Args:
        have: The declaration that payloads conform to.
        want: The declaration of their reader.
        struct: The struct whose own names are compared, which others may use for other sizes; by default all names.
    """
    shared = want.dims.keys() | int_fields(want).keys() if struct else set[str]()
    names = {struct} if struct else have.structs.keys() & want.structs.keys()
    wanted = frozenset[str]().union(*(want.structs[name].sizes for name in names))
    inside = [have.structs[struct]] if struct else have.structs.values()
    taken = dims_in_use(have).union(*(each.sizes for each in inside))
    if not wanted <= taken - have.dims.keys():
        # No payload shows these, and no size follows from one.
        dims = (dim.equation for dim in have.dims.values())
        taken -= hidden_dims(have).keys() - {name for each in dims if each for name in each.names}
    if wanted <= taken:
        return {}
    facing: dict[str, list[str]] = {}
    times = cache(partial(sizes_of_struct, want))
    for name in names:
        old, new = have.structs[name].stored, want.structs[name].stored
        for field in old.keys() & new.keys():
            for a, b in facing_sizes(old[field].declared, new[field].declared):
                if b in shared or b in taken:
                    continue
                # One size for all instances cannot be one that each has to itself.
                own = b in want.dims and name != have.root and not a.names <= have.dims.keys()
                own |= a.text == ANY and times(name)[b] != 1
                own |= not a.names.isdisjoint(have.structs[name].params)
                own |= b in want.structs[name].params
                facing.setdefault(b, []).append("" if own else a.text)
    found: dict[str, Expression] = {}
    for name, (size, *others) in facing.items():
        same = {*others} <= {size} and not (size == ANY and others)
        if same and size:
            found[name] = parse(size)
    return found


def size_names(document: Document) -> set[str]:
    """The names of all sizes of a document."""
    return set(document.dims).union(*(struct.sizes for struct in document.structs.values()))


def facing_sizes(have: Type, want: Type) -> Iterator[tuple[Expression, str]]:
    """Yields sizes, and the names that have them in another type: those at the same place, alone or in ``2 * n``."""
    for a, b in zip(walk_type(have), walk_type(want), strict=False):
        if a.sort == b.sort and len(a.extents) == len(b.extents):
            for x, y in zip(a.extents, b.extents, strict=True):
                if x is ... or y is ... or len(y.names) != 1 or y.text == ANY:
                    continue
                (name,) = y.names
                size: Expression | None = x
                if y.text != name:
                    form = difference(polynomial(y, {}), polynomial(x, {}))
                    size = solution_of(form, name) if x.text != ANY else None
                if size is not None:
                    yield size, name
