"""Places: the values of a schema with their names in a file, the lists around them, and values that no array shows.

Example:
    >>> sizes_in(Rule.model_validate({"name": "w", "reshape": ["d", "heads * hd"]})) == {"d", "heads", "hd"}
    True
    >>> layout = Layout(language="1", layout="x", of="neuralqx.vmc_state@1")
    >>> {"n_sites", "alpha"} <= value_names(v1, layout)
    True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.evolution.lazy_arrays import LazyArray
from neuralqx_struct.evolution.sizes import extent
from neuralqx_struct.layouts import Layout, Rule
from neuralqx_struct.layouts.forms import Form
from neuralqx_struct.layouts.frames import Frame
from neuralqx_struct.paths import Path, format_path
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.sizes.scopes import sizes_in as names_in
from neuralqx_struct.schema.sizes.solver import Solver
from neuralqx_struct.schema.stacks import Axes
from neuralqx_struct.types import INT, Type, walk_type

#: A value that nothing gives.
NOTHING: Final[Any] = object()


@dataclass(frozen=True, slots=True)
class Place:
    """A value of the schema, and its names in the file.

    Attributes:
        owner: The document that declares the field around the value.
        struct: The struct with the field.
        field: The name of the field.
        declaration: Its declaration.
        rule: Its rule; of values inside lists and dicts, one without a name.
        scope: The sizes that the struct sees.
        axes: The leading axes of the struct, if it is stacked.
        base: The name in the file, without the prefix.
        frames: The lists and stacked structs around it that have one array for all items, and stacked ones.
        path: The path.
        keys: The names of fields on the way, without numbers and keys.
        node: The node of the payload, when a file is written.
    """

    owner: Document
    struct: str
    field: str
    declaration: FieldDeclaration | None
    rule: Rule
    scope: Solver
    axes: Axes
    base: str
    frames: tuple[Frame, ...]
    path: Path
    keys: tuple[str, ...]
    node: Any

    @property
    def text(self) -> str:
        """The path in messages."""
        return format_path(self.path)


@dataclass(slots=True, eq=False)
class Leaf:
    """One array of the schema.

    Attributes:
        place: Its place.
        form: Its form in the file.
        dtypes: The dtypes that it may have.
        dtype: Its dtype.
        node: Its node, which gets the shape.
        names: The names in the file, of all arrays that it is made of, by layer and then by name of the rule.
        shape: Its shape, once known.
        arrays: The array itself when a file is read; when one is written, those of the file, by name.
    """

    place: Place
    form: Form
    dtypes: tuple[str, ...]
    node: dict[str, Any]
    names: tuple[str, ...] = ()
    dtype: str = ""
    shape: tuple[int, ...] = ()
    arrays: Sequence[LazyArray] = ()


class Values:
    """The values that no array shows: of the caller, of the layout, and those that the file has beside its arrays.

    Args:
        given: Values by the path of their field, without numbers and keys; the first mapping that has one wins.
        shown: The values of the file by name.
    """

    def __init__(
        self,
        given: Sequence[Mapping[str, Any]] = (),
        shown: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._given, self._shown = given, shown
        self.used: set[str] = set()

    def of(self, key: str) -> Any:
        """The value that the caller or the layout has for a path or a size, or NOTHING."""
        self.used.add(key)
        return next((known[key] for known in self._given if key in known), NOTHING)

    def named(self, name: str) -> Any:
        """The value that the file has under a name, or NOTHING."""
        return self._shown.get(name, NOTHING)

    @property
    def sizes(self) -> dict[str, int]:
        """The whole numbers whose key is one name, which may be sizes."""
        found: dict[str, int] = {}
        for known in reversed(self._given):
            found |= {key: n for key, n in known.items() if type(n) is int and key.isidentifier()}
        return found


def sizes_in(rule: Rule) -> frozenset[str]:
    """The names of sizes in a rule."""
    written = [*(rule.sizes or ()), *(rule.reshape or ())]
    if rule.blocks is not None:
        written.append(rule.blocks)
    return frozenset[str]().union(*(extent(each).names for each in written))


def own_sizes(owner: Document, name: str) -> frozenset[str]:
    """The names of the sizes of a struct, without its parameters."""
    struct = owner.structs[name]
    sizes = (sized for field in struct.stored.values() for sized, _ in names_in(field.declared))
    return frozenset(sizes) - {*struct.params}


def holds_arrays(declared: Type, owner: Document) -> bool:
    """True if values of a type may hold arrays or structs."""
    return any(
        bool(inner.element or inner.key_impl or owner.is_struct(inner.refers))
        for inner in walk_type(declared)
    )


def of_items(rule: Rule) -> Rule:
    """The rule of the items of a list or dict: the operations alone."""
    return rule.model_copy(update={"name": None, "unstack": None})


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
