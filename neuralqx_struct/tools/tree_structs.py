"""The structs in a tree that has none: dicts with names as keys, namedtuples, dataclasses, objects of registered classes.

Dicts of the same names, whose values have the same form, are one struct. Its name is the key under which the first of them is.
``layers_0``, ``layers_1``, ... of the same form are one list, also if some lack a few of the names, which are optional
then: null in the nodes. :mod:`neuralqx_struct.schema.fitting` reads such a tree by a schema.

Example:
    >>> dense = {"__kind__": "dict", "items": [["kernel", 1.5], ["bias", 0.5]]}
    >>> tree = {"__kind__": "dict", "items": [["layers_0", dense], ["layers_1", dense]]}
    >>> made = tree_of_structs(tree)
    >>> made["type"], made["fields"]["layers"]["items"][0]
    ('tree:State', {'__kind__': 'struct', 'type': 'tree:Layer', 'fields': {'kernel': 1.5, 'bias': 0.5}})
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from neuralqx_struct.manifest.kinds import DICT, LIST, STRUCT, TUPLE, Node, kind_of
from neuralqx_struct.schema.conformance import see_node
from neuralqx_struct.schema.fitting import class_name, entries, numbered, numbered_names, unboxed
from neuralqx_struct.schema.lint.document import objection_to_field
from neuralqx_struct.types import type_names

#: Deeper dicts stay dicts: checks of nested structs need the stack of the interpreter.
_DEEPEST = 40
#: Dicts with more keys stay dicts: no model has so many names in one place.
_MOST_FIELDS = 1000
#: Longer sequences of different values stay lists.
_LONGEST_TUPLE = 32
_NONE: Mapping[str, Any] = MappingProxyType({})
#: The module in references to the structs, which have no class.
_MODULE = "tree"


class Form(NamedTuple):
    """The form of a node.

    Attributes:
        id: Equal for equal forms: the same names inside, and the same dtypes and numbers of axes.
        sort: ``struct``, ``list``, ``tuple``, ``dict``, or ``value``.
        node: The node, for values.
        inside: The forms inside.
        name: The name of its class, if it has one.
        labels: The names of the fields in a foreign file, where they are others.
    """

    id: int
    sort: str
    node: Node
    inside: Mapping[Any, Form]
    name: str = ""
    labels: Mapping[str, str] = _NONE


def tree_of_structs(root: Node) -> dict[str, Node]:
    """The nodes of a plain tree with struct nodes for its structs; a root without names is the field ``value`` of one."""
    forms = Forms()
    form = forms.of(root)
    if form.sort != "struct":
        form = Form(-1, "struct", None, {"value": form}, "State")
    return StructNames(forms.classes).tree(form, "State")


class Forms:
    """The forms of the nodes of one tree.

    Attributes:
        classes: The forms of the structs of each Python class, by its name in lower case.
    """

    def __init__(self) -> None:
        self.ids: dict[Hashable, int] = {}
        self.classes: dict[str, set[int]] = {}

    def form(self, sort: str, key: Hashable, inside: Mapping[Any, Form], node: Node = None) -> Form:
        """A form, which equals others of its sort with the same key."""
        return Form(self.ids.setdefault((sort, key), len(self.ids)), sort, node, inside)

    def of(self, node: Node, depth: int = 0) -> Form:
        """The form of a node and of those inside."""
        node = unboxed(node)
        found = entries(node) if depth < _DEEPEST else None
        if found is None:
            return self.value(node)
        inside = {key: self.of(child, depth + 1) for key, child in found.items()}
        keys = numbered(inside)
        if keys is not None or see_node(node).sort in ("list", "tuple"):
            return self.sequence([inside[key] for key in keys or ()], see_node(node).sort)
        if not all(isinstance(key, str) for key in inside):
            return self.value(node)
        kind = kind_of(node)
        is_keyed = kind is not None and kind.keys is not None
        reference = "" if is_keyed else str(node.get("type", ""))
        fields = inside if reference else self.folded(inside)
        some = bool(reference) or 0 < len(fields) <= _MOST_FIELDS
        if some and all(map(is_field, fields)):
            form = self.struct(fields, reference)
            if name := class_name(node):
                self.classes.setdefault(name.lower(), set()).add(form.id)
            return form
        return self.form("dict", frozenset(form.id for form in inside.values()), inside)

    def value(self, node: Node) -> Form:
        """The form of an array or a plain value."""
        seen = see_node(node)
        label = seen.type_name or (seen.text if seen.sort == "other" else "")
        key = (seen.sort, seen.dtype, len(seen.shape), label)
        return self.form("value", key, {}, node)

    def sequence(self, items: Sequence[Form], sort: str) -> Form:
        """The form of items in an order: a list if they have one form."""
        items = items if sort == "tuple" else self.merged(items) or items
        numbers = {item.id: item for item in items if item.node is not None or item.sort != "value"}
        inside = dict(enumerate(items))
        mixed = len(numbers) > 1 and any(not _is_scalar(item) for item in numbers.values())
        structs = all(item.sort == "struct" for item in numbers.values())
        if len(items) > _LONGEST_TUPLE or (not mixed and (sort != "tuple" or (items and structs))):
            return self.form("list", frozenset(numbers), inside)
        return self.form("tuple", tuple(item.id for item in items), inside)

    def folded(self, inside: dict[str, Form]) -> dict[str, Form]:
        """Numbered names of structs of one form as one list."""
        made = dict(inside)
        for prefix, names in numbered_names(inside).items():
            items = self.merged([inside[name] for name in names])
            is_list = len(names) > 1 and prefix not in inside and is_field(prefix)
            if is_list and items and items[0].sort == "struct":
                made[names[0]] = self.form("list", frozenset([items[0].id]), dict(enumerate(items)))
                for name in names[1:]:
                    del made[name]
                made = {prefix if key == names[0] else key: form for key, form in made.items()}
        return made

    def merged(self, forms: Sequence[Form]) -> list[Form] | None:
        """The forms as one: structs that share most of their names have the others as optional ones; None if they differ."""
        if len({form.id for form in forms}) <= 1:
            return list(forms)
        first, *_ = forms
        if first.sort not in ("struct", "tuple"):
            return None
        if any(form.sort != first.sort or form.name for form in forms):
            return None
        names = list(dict.fromkeys(name for form in forms for name in form.inside))
        shared = [name for name in names if all(name in form.inside for form in forms)]
        if len(shared) < (len(names) if first.sort == "tuple" else len(names) / 2):
            return None
        columns: dict[Any, list[Form]] = {}
        for name in names:
            column = self.merged([form.inside[name] for form in forms if name in form.inside])
            if column is None:
                return None
            columns[name] = column
        key = tuple((name, column[0].id, name in shared) for name, column in columns.items())
        absent = self.value(None)
        taken = {name: iter(column) for name, column in columns.items()}
        return [
            self.form(
                first.sort,
                key,
                {name: next(taken[name]) if name in form.inside else absent for name in names},
            )
            for form in forms
        ]

    def struct(
        self, fields: Mapping[str, Form], reference: str = "", labels: Mapping[str, str] = _NONE
    ) -> Form:
        """The form of a struct; those of one class have one form, whatever is in their fields."""
        key: Hashable = (reference, tuple(fields))
        if not reference:
            key = frozenset((name, labels.get(name), form.id) for name, form in fields.items())
        form = self.form("struct", key, fields)
        return form._replace(name=re.split("[:.]", reference)[-1], labels=labels)


def is_field(name: str) -> bool:
    """True if a field can have a name."""
    return name.isascii() and name.isidentifier() and not objection_to_field(name)


def _is_scalar(form: Form) -> bool:
    return form.sort == "value" and see_node(form.node).sort == "scalar"


class StructNames:
    """The names of the structs, which are written from the root on.

    Args:
        classes: The forms of the objects of each class by which readers know them.
    """

    def __init__(self, classes: Mapping[str, set[int]] = _NONE) -> None:
        self.types = {*type_names()}
        self.classes = classes
        self.taken: set[str] = set()
        self.names: dict[int, str] = {}

    def tree(self, root: Form, label: str) -> dict[str, Node]:
        """The nodes of a root that is a struct."""
        self.struct(root, label)
        made: dict[str, Node] = self.written(root, label)
        return made

    def struct(self, form: Form, label: str) -> str:
        """The name of a struct: that of its class, or one like its key."""
        if form.id not in self.names:
            words = re.findall(r"[A-Za-z0-9]+", form.name or re.sub(r"(?<=.)_?\d+$", "", label))
            name = "".join(word[:1].upper() + word[1:] for word in words)
            if not is_field(name) or name[:1].isdigit():
                name = "Part"
            made, count = name, 1
            while made in self.types or made.lower() in self.taken or not self.tells(made, form):
                count += 1
                made = f"{name}{count}"
            self.taken.add(made.lower())
            self.names[form.id] = made
        return self.names[form.id]

    def tells(self, name: str, form: Form) -> bool:
        """True if a name is that of no class, or of one whose structs all have this form: readers go by their class."""
        return self.classes.get(name.lower(), {form.id}) == {form.id}

    def written(self, form: Form, label: str) -> Any:
        """The nodes of a form, which has a key or is an item of a list with one."""
        if form.sort == "value":
            return form.node
        inside = form.inside
        if form.sort == "struct":
            name = self.struct(form, label)
            fields = {key: self.written(each, key) for key, each in inside.items()}
            return STRUCT.node(type=f"{_MODULE}:{name}", fields=fields)
        one = label[:-1] if re.search(r"[^s]s$", label) else label  # `layer` of `layers`
        if form.sort == "dict":
            return DICT.node(items=[[key, self.written(each, one)] for key, each in inside.items()])
        kind = LIST if form.sort == "list" else TUPLE
        return kind.node(items=[self.written(each, one) for each in inside.values()])
