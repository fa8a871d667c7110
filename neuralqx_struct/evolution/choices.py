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
from neuralqx_struct.schema.sizes.proofs import Unproved
from neuralqx_struct.schema.sizes.scopes import reachable
from neuralqx_struct.types import Array, Type, map_type, walk_type


def held_arrays(have: Document, want: Document) -> dict[str, list[tuple[str, str, Type]]]:
    """The arrays of one version at the places of each choice of another, with their structs and fields."""
    found: dict[str, list[tuple[str, str, Type]]] = {}
    for name in reachable(want)[0]:
        struct = have.structs.get(name)
        stored = {} if struct is None else struct.stored
        for field, declaration in want.structs[name].stored.items():
            wanted = [inner for inner in walk_type(declaration.declared) if inner.choice]
            held = walk_type(stored[field].declared) if wanted and field in stored else ()
            for one, other in product(wanted, held):
                if not {*one.dtypes}.isdisjoint(other.dtypes):
                    found.setdefault(one.element, []).append((name, field, other))
    return found


def mixed_dtypes(have: Document, want: Document) -> Iterator[Unproved]:
    """Yields the choices of dtypes of a version whose arrays may differ in dtype in one payload of another.

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

    structs, known = dict(document.structs), {*reachable(before)[0]}
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
