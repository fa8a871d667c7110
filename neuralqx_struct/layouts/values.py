"""Values of layouts: the names that they may have, and the fields that need one.

Example:
    >>> layout = Layout(language="1", layout="x", of="neuralqx.vmc_state@1")
    >>> {"n_sites", "alpha"} <= value_names(v1, layout)
    True
"""

from __future__ import annotations

from collections.abc import Mapping

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.layouts.model import Layout, Rule
from neuralqx_struct.layouts.places import holds_arrays, own_sizes, sizes_in
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.types import INT, walk_type

#: Levels of structs whose paths are values, and structs in all.
_DEEPEST, _MOST = 12, 2000


def value_names(document: Document, layout: Layout) -> set[str]:
    """The keys that values may have: paths of fields, and the names of sizes."""
    found = {*document.dims, *field_types(document)}
    for each in document.closure():
        for name in each.structs:
            found |= own_sizes(each, name)
    for rules in layout.structs.values():
        found |= frozenset[str]().union(*map(_sizes_in, rules.values()))
    return found


def field_types(document: Document) -> dict[str, list[tuple[Document, FieldDeclaration]]]:
    """The fields by their paths from the root, without numbers and keys."""
    found: dict[str, list[tuple[Document, FieldDeclaration]]] = {}
    level = [(document, document.root, "")]
    for _ in range(_DEEPEST):
        deeper = []
        for owner, name, before in level[:_MOST]:
            for field, declaration in owner.structs[name].stored.items():
                path = f"{before}{field}"
                found.setdefault(path, []).append((owner, declaration))
                for inner in walk_type(declaration.declared):
                    place, struct = owner.place_of(inner.refers)
                    if struct in place.structs:
                        deeper.append((place, struct, f"{path}."))
        level = deeper
    return found


def settings_of(document: Document) -> set[str]:
    """The static ints of the root, which are sizes."""
    fields = document.structs[document.root].stored.items()
    return {name for name, field in fields if field.kind == "static" and field.declared == INT}


def _sizes_in(rule: Rule) -> frozenset[str]:
    try:
        return sizes_in(rule)
    except SchemaError:
        return frozenset()


def missing_values(layout: Layout, document: Document) -> Mapping[str, FieldDeclaration]:
    """The fields without arrays that neither the layout nor a default gives a value."""
    given = {*layout.values, *(key for keys in layout.values_from.values() for key in keys)}
    found: dict[str, FieldDeclaration] = {}
    for path, fields in field_types(document).items():
        for owner, declaration in fields:
            plain = declaration.kind != "node" or not holds_arrays(declaration.declared, owner)
            optional = declaration.has_default or declaration.declared.nullable
            if plain and path not in given and not optional:
                found[path] = declaration
    return found
