"""Choices of dtypes in two versions: arrays that one version lets differ in dtype, and another does not.

Example:
    >>> [*mixed_dtypes(v1, v2)]
    []
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from neuralqx_struct.evolution.changes import Changes
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.sizes.scopes import Unproved, reachable
from neuralqx_struct.types import walk_type


def mixed_dtypes(have: Document, want: Document) -> Iterator[Unproved]:
    """Yields the choices of dtypes of a version whose arrays may differ in dtype in one payload of another.

    Args:
        have: The declaration that payloads conform to.
        want: The declaration of their reader.
    """
    found: dict[str, dict[str, str]] = {}
    for name in reachable(want)[0]:
        struct = have.structs.get(name)
        stored = {} if struct is None else struct.stored
        for field, declaration in want.structs[name].stored.items():
            wanted = [inner for inner in walk_type(declaration.declared) if inner.choice]
            held = walk_type(stored[field].declared) if wanted and field in stored else ()
            for one, other in product(wanted, held):
                if {*one.dtypes}.isdisjoint(other.dtypes):
                    continue
                places = found.setdefault(one.element, {})
                places.setdefault(other.element, f"{name}.{field}")
                if len(other.dtypes) > 1 and not other.choice:
                    places.setdefault("another of them", f"{name}.{field}")
    for name, places in found.items():
        if len(places) > 1:
            got = " and ".join(f"{dtype} at {place}" for dtype, place in places.items())
            message = f"expected one dtype for all arrays of {name}, got {got}"
            yield ("dtypes", name), message, "cast them to one of its dtypes"


def compare_choices(found: Changes, old: Document, new: Document) -> None:
    """Adds changes of choices of dtypes; fields that name one change with its members."""
    for name in {**new.dtypes, **old.dtypes}:
        at, a, b = ("dtypes", name), old.dtypes.get(name), new.dtypes.get(name)
        if a is None or b is None:
            how = "declared" if a is None else "removed"
            found.add(
                "NQX284", at, f"the choice of dtypes {name} was {how}", a and name, b and name
            )
            continue
        found.members(at, a, b, "members", "doc")
    for path, message, _ in mixed_dtypes(old, new):
        found.add("NQX260", path, message)
    for path, message, _ in mixed_dtypes(new, old):
        found.add("NQX261", path, message)
