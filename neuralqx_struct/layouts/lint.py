"""Lint of layouts: every finding about a layout and its schema that needs no file.

Example:
    >>> "n_sites" in value_names(v1, Layout(language="1", layout="x", of="neuralqx.vmc_state@1"))
    True
"""

from __future__ import annotations

from collections.abc import Iterator

from neuralqx_struct.layouts.model import Layout
from neuralqx_struct.layouts.places import sizes_in
from neuralqx_struct.schema.model import Document
from neuralqx_struct.types import walk_type

#: Levels of structs whose paths are values.
_DEEPEST, _MOST = 12, 20_000


def value_names(document: Document, layout: Layout) -> set[str]:
    """The keys that values may have: paths of fields, and the names of sizes."""
    found = {*document.dims}
    for each in document.closure():
        for struct in each.structs.values():
            found |= frozenset[str]().union(*struct.sizes)
    for rules in layout.structs.values():
        found |= frozenset[str]().union(*map(sizes_in, rules.values()))
    for path in field_paths(document):
        found.add(path)
    return found


def field_paths(document: Document) -> Iterator[str]:
    """Yields the paths of fields from the root, without numbers and keys."""
    level = [(document, document.root, "")]
    for _ in range(_DEEPEST):
        deeper = []
        for owner, name, before in level[:_MOST]:
            for field, declaration in owner.structs[name].stored.items():
                yield f"{before}{field}"
                for inner in walk_type(declaration.declared):
                    place, struct = owner.place_of(inner.refers)
                    if struct in place.structs:
                        deeper.append((place, struct, f"{before}{field}."))
        level = deeper
