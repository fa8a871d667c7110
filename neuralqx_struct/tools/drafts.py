"""Drafts of schemas: the declarations that all instances of each struct in a tree of nodes conform to.

The types of a field are those of its values in all instances; sizes that are equal in each instance have one name.

Example:
    >>> node = {"__kind__": "struct", "type": "lab.model:State", "fields": {"step": 7}}
    >>> draft(node, None, "ckpt")[1].structs["State"].fields["step"].text
    'int'
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import indent
from typing import Any, NamedTuple

from neuralqx_struct.dtypes import DTYPES
from neuralqx_struct.errors import SchemaError
from neuralqx_struct.manifest.kinds import EXTERNAL, STRUCT
from neuralqx_struct.references import identity_like, is_schema_ref
from neuralqx_struct.schema.conformance import Seen, see_node
from neuralqx_struct.schema.language import MODELINE
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.reading import parse_document
from neuralqx_struct.schema.text.loader import dump_yaml, read_text
from neuralqx_struct.tools.linting import lint_document
from neuralqx_struct.tools.tree_structs import tree_of_structs
from neuralqx_struct.types import TYPES, Scalar, type_names

__all__ = ["draft"]

_LONGEST = 900  # characters of a type; the language takes a little more
_LONGEST_NAME = 60  # characters of the name of a size
_MOST_AXES = 3000  # axes with names of their own: a document has at most 4096 different types
#: The sizes of tables of embeddings, by words in the names of the tables.
_TABLES = {
    r"pos|wpe": ("positions", "embed"),
    r"type|segment": ("types", "embed"),
    r"embed|wte|vocab|token|word": ("vocab", "embed"),
}


def draft(root: Any, schema: str | None, name: str, version: int = 1) -> tuple[str, Document]:
    """The first schema for a tree of nodes, as text and as a document.

    Args:
        root: The node. If it is no struct, the dicts in it and the objects of other libraries are the structs.
        schema: Identity; by default from the root's class, or from ``name``.
        name: Name of the file, for comments.
        version: The version.

    Raises:
        SchemaError: A name is not possible in the language.
    """
    is_struct = STRUCT.matches(root)
    tree = root if is_struct else tree_of_structs(root)
    identity = schema or identity_like(root["type"] if is_struct else Path(name).stem)
    return draft_of_structs(tree, identity, name, version, by_class=is_struct)


def draft_of_structs(
    tree: Any, identity: str, name: str, version: int = 1, *, by_class: bool = False
) -> tuple[str, Document]:
    """The first schema for a struct; ``by_class`` if readers know its structs by their classes. See :func:`draft`."""
    text = _Draft(tree, by_class=by_class).text(identity, version, name)
    source = read_text(text)
    document = parse_document(source)
    errors = [found for found in lint_document(document, source) if found.severity == "error"]
    if errors:
        raise SchemaError(errors)
    return text, document


class _Held(NamedTuple):
    """A value of a field.

    Attributes:
        instance: The number of the instance that has it.
        node: The value.
        seen: The same as types see it.
    """

    instance: int
    node: Any
    seen: Seen


_Column = list[_Held]


def _held(instance: int, node: Any) -> _Held:
    return _Held(instance, node, see_node(node))


def _inside(column: _Column) -> _Column:
    return [_held(held.instance, item) for held in column for item in held.seen.items.values()]


class _Axis(NamedTuple):
    """One axis of the arrays of a field.

    Attributes:
        struct: The struct of the field.
        name: A name for its size.
        known: The name that sizes of such arrays have in models; empty for others.
        sizes: Instance and size of each array.
    """

    struct: str
    name: str
    known: str
    sizes: frozenset[tuple[int, int]]

    @property
    def constant(self) -> int:
        """The size of all arrays; 0 if they differ."""
        sizes = {size for _, size in self.sizes}
        return sizes.pop() if len(sizes) == 1 else 0

    @property
    def is_local(self) -> bool:
        """True if each instance has one size."""
        return len({instance for instance, _ in self.sizes}) == len(self.sizes)


class _Draft:
    """The declarations of one bundle."""

    def __init__(self, root: Any, *, by_class: bool) -> None:
        self.root: dict[str, Any] = root
        self.by_class = by_class  # whether readers know structs by their classes
        self.structs: dict[str, list[dict[str, Any]]] = {}
        self.enums: dict[str, dict[str, None]] = {}
        self.names: dict[str, str] = {}  # of structs and enums, by reference
        self.used: set[str] = set()
        self.regular: dict[str, bool] = {}  # whether all instances have the same fields
        self.axes: list[_Axis] = []
        self.struct = ""  # the struct whose field is written
        self.todo = ""
        self.collect()

    def collect(self) -> None:
        """Finds all classes with their instances, in the order of the tree, and names them."""
        todo: list[Any] = [self.root]
        while todo:
            node = todo.pop()
            seen = see_node(node)
            for reference in seen.refs:
                self.structs.setdefault(reference, []).append(node["fields"])
            if seen.type_name == "enum":
                self.enums.setdefault(node["type"], {})[node["name"]] = None
            if seen.sort not in _UNTYPED:
                todo += reversed(seen.items.values())  # type: ignore[call-overload]
        taken = {*type_names()}
        for reference in (*self.structs, *self.enums):
            name = re.split(r"[:.]", reference)[-1]
            # Classes of the same name could not be distinguished; those of another schema have its.
            if name not in taken and not is_schema_ref(reference):
                taken.add(name)
                self.names[reference] = name

    # --- types -----------------------------------------------------------------------------------------------------

    def type_of(self, column: _Column, label: str) -> str:
        """The text of the type that all values have, with a mark for each size; pytree if they have none."""
        known = [held for held in column if held.node is not None]
        if not known:
            reason = "only null was saved; add its other types, such as float | null"
            return self.unknown(reason if column else "it was empty")
        sorts = {held.seen.type_name or held.seen.sort for held in known}
        if sorts == {"int", "float"}:
            text = "float"
        elif len(sorts) > 1:
            text = self.unknown(f"it holds {_listed(sorts)}; write its type")
        else:
            (sort,) = sorts
            write = _WRITERS.get(sort)
            text = sort if write is None else write(self, known, label)
        if len(text) > _LONGEST:
            text = self.unknown("its type has no short text")
        if text == "pytree" or len(known) == len(column):
            return text
        return f"{text} | null"

    def unknown(self, reason: str) -> str:
        """The type of values that have none, with a TODO."""
        self.todo = self.todo or reason
        return "pytree"

    def untyped(self, column: _Column, _label: str) -> str:
        kinds = _listed(
            "code, such as functions" if EXTERNAL.matches(held.node) else str(held.node["__kind__"])
            for held in column
        )
        return self.unknown(f"the language has no type for {kinds}")

    def of_array(self, column: _Column, label: str) -> str:
        dtypes = {held.seen.dtype for held in column}
        if len(dtypes) > 1 or not dtypes <= DTYPES.keys():
            return self.unknown(f"arrays of {_listed(dtypes)} have no type in common")
        return f"{dtypes.pop()}[{', '.join(self.extents(column, label))}]"

    def of_key(self, column: _Column, label: str) -> str:
        impls = {held.seen.dtype for held in column}
        if len(impls) > 1:
            return self.unknown("keys of several implementations")
        return f"prng_key[{', '.join([*impls, *self.extents(column, label)])}]"

    def extents(self, column: _Column, label: str) -> list[str]:
        """A mark for each axis of arrays; the axes are named later."""
        ranks = {len(held.seen.shape) for held in column}
        if len(ranks) > 1:
            return ["..."]
        marks = []
        (rank,) = ranks
        for axis in range(rank):
            known = _known_size(label, rank, axis)
            name = known or (f"n_{label}" if rank == 1 else f"n_{label}_{axis}")
            sizes = frozenset((held.instance, held.seen.shape[axis]) for held in column)
            marks.append(f"<{len(self.axes)}>")
            self.axes.append(_Axis(self.struct, name, known, sizes))
        return marks

    def of_list(self, column: _Column, label: str) -> str:
        return f"list[{self.type_of(_inside(column), label)}]"

    def of_dict(self, column: _Column, label: str) -> str:
        return f"dict[str, {self.type_of(_inside(column), label)}]"

    def of_tuple(self, column: _Column, label: str) -> str:
        lengths = {len(held.seen.items) for held in column}
        if len(lengths) > 1:
            return f"tuple[{self.type_of(_inside(column), label)}, ...]"
        items = []
        for place in range(*lengths):
            inside = [_held(held.instance, held.seen.items[place]) for held in column]
            items.append(self.type_of(inside, f"{label}_{place}" if place else label))
        return f"tuple[{', '.join(items)}]"

    def of_structs(self, column: _Column, _label: str) -> str:
        references = {held.node["type"]: None for held in column}
        for reference in references:
            if reference not in self.names or not self.is_regular(reference):
                names = ", ".join(references)
                return self.unknown(f"the language has no name for {names} beside the others")
        kinds = {frozenset(self.structs[reference][0]) for reference in references}
        if len(kinds) < len(references) and not self.by_class:
            return self.unknown(
                "it holds structs that differ, but not in the names of their fields"
            )
        return " | ".join(self.names[reference] for reference in references)

    def is_regular(self, reference: str) -> bool:
        """True if all instances of a struct have the same fields."""
        if reference not in self.regular:
            first, *others = self.structs[reference]
            self.regular[reference] = all(each.keys() == first.keys() for each in others)
        return self.regular[reference]

    def of_enum(self, column: _Column, label: str) -> str:
        references = {held.node["type"] for held in column}
        reference = references.pop()
        # Combined flags have no identifier as their name.
        whole = all(map(str.isidentifier, self.enums[reference]))
        has_name = reference in self.names and reference not in self.structs
        if references or not has_name or not whole:
            return self.untyped(column, label)
        self.used.add(reference)
        return self.names[reference]

    # --- sizes -----------------------------------------------------------------------------------------------------

    def named_axes(self) -> tuple[list[str], dict[str, int]]:
        """The text of each axis, and the sizes to declare for the whole bundle."""
        every = [instance for instances in self.structs.values() for instance in instances]
        taken: set[Any] = set().union(*every)

        numbers = Counter[tuple[str, str]]()

        def free(name: str, struct: str) -> str:
            made = name = name[:_LONGEST_NAME]
            while made in taken or (struct, made) in taken:
                numbers[struct, name] += 1
                made = f"{name}_{numbers[struct, name]}"
            taken.add((struct, made))
            return made

        counts = Counter(axis.constant for axis in self.axes)
        repeated = sorted(size for size in counts if size > 1 and counts[size] > 1)
        names = {axis.constant: axis.known for axis in reversed(self.axes) if axis.known}
        dims = {size: free(names.get(size) or f"size_{size}", "") for size in repeated}
        taken.update(dims.values())
        local: dict[Any, str] = {}
        texts = []
        for axis in self.axes:
            text = dims.get(axis.constant, "_")
            if text == "_" and axis.is_local and len(self.axes) <= _MOST_AXES:
                key = (axis.struct, axis.sizes)  # the same size in each instance is one size
                if key not in local:
                    local[key] = free(axis.name, axis.struct)
                text = local[key]
            texts.append(text)
        return texts, {name: size for size, name in dims.items()}

    # --- text ------------------------------------------------------------------------------------------------------

    def text(self, schema: str, version: int, file: str) -> str:
        """The document, with comments."""
        root = self.root["type"]
        structs: list[str] = []
        for reference, instances in self.structs.items():
            self.struct = self.names.get(reference, "")
            if self.struct and (reference == root or self.is_regular(reference)):
                structs.append(f"  {self.struct}:")
                structs.append("    fields:" if instances[0] else "    fields: {}")
                structs += self.fields(instances)
        axes, sizes = self.named_axes()
        lines = [
            f"# A first schema, inferred from {file!r}; unknown parts are marked TODO.",
            "# TODO: mark static fields (`kind: static`), and add defaults and descriptions (`doc:`).",
            'language: "1"',
            f"schema: {schema}  # TODO: the identity, the same in every version",
            f"version: {version}",
            f"root: {self.names.get(root, 'TODO')}",
        ]
        if sizes:
            reason = "sizes that occur more than once; give them names, and other names where that is chance"
            lines.append(f"dims:  # TODO: {reason}")
            lines += map(self.dim, sizes, sizes.values())
        if self.used:
            lines.append("enums:")
        for reference in self.enums:
            if reference in self.used:
                members = dump_yaml({self.names[reference]: [*self.enums[reference]]})
                lines.append(indent(members.rstrip(), "  ") + "  # TODO: the other members")
        lines.append("structs:")
        lines += [re.sub(r"<(\d+)>", lambda found: axes[int(found[1])], line) for line in structs]
        body = "\n".join(lines)
        return f"{MODELINE}{body}\n"

    def dim(self, name: str, size: int) -> str:
        """The line of a size, with the root's number of the same value as a likely equation."""
        line = f"  {name}: {{doc: {size} in the bundle}}"
        for field, value in self.root["fields"].items():
            if type(value) is int and value == size:
                return f"{line}  # TODO: perhaps {{equals: {field}}}"
        return line

    def fields(self, instances: list[dict[str, Any]]) -> Iterator[str]:
        """Yields the line of each field of a struct."""
        for name in instances[0]:
            self.todo = ""
            # A root that is also inside itself can lack fields there.
            numbered = enumerate(instances)
            column = [_held(number, held[name]) for number, held in numbered if name in held]
            if all(EXTERNAL.matches(held.node) for held in column):
                yield f"      # {name}: left out, code is no data"
                continue
            text = self.type_of(column, name)
            record = TYPES.get(text.removesuffix(" | null"))
            is_static = isinstance(record, Scalar) and record.outside_jax(None)
            facts: dict[str, Any] = {"kind": "static"} if is_static else {}
            if text.endswith(" | null") and not self.by_class:
                facts["default"] = None  # a plain tree may lack it
            declared = {"type": text, **facts} if facts else text
            todo = f"  # TODO: {self.todo}" if self.todo else ""
            yield indent(dump_yaml({name: declared}).strip(), "      ") + todo


#: Sorts of values that have no type.
_UNTYPED = ("set", "frozenset", "other")
#: The types of values by sort; other sorts are scalars, and the name of their type.
_WRITERS = dict.fromkeys(_UNTYPED, _Draft.untyped) | {
    "array": _Draft.of_array,
    "key": _Draft.of_key,
    "list": _Draft.of_list,
    "dict": _Draft.of_dict,
    "tuple": _Draft.of_tuple,
    "struct": _Draft.of_structs,
    "enum": _Draft.of_enum,
}


def _known_size(label: str, rank: int, axis: int) -> str:
    """The name of a size of a table of embeddings; empty for other arrays.

    Example:
        >>> _known_size("wte", 2, 0), _known_size("position_embeddings", 2, 1), _known_size("kernel", 2, 0)
        ('vocab', 'embed', '')
    """
    if rank != 2:
        return ""
    found = (names for words, names in _TABLES.items() if re.search(words, label.lower()))
    return next(found, ("", ""))[axis]


def _listed(words: Iterable[str]) -> str:
    return " and ".join(sorted({*words}))
