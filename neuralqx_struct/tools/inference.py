"""Inference: a first schema from one bundle of plain Python classes.

Owns :func:`infer`. Such a bundle determines names, types, dtypes and sizes; the names of sizes, static fields and the
values of other bundles it does not. Equal sizes become a suggested dim, everything else unknown a TODO. Values without a
type in the language become ``pytree``.

Example:
    >>> from neuralqx_struct import bundle
    >>> from neuralqx_struct.manifest.payload import Payload
    >>> import tempfile
    >>> node = {"__kind__": "struct", "type": "lab.model:State", "fields": {"step": 7, "loss": None}}
    >>> path = bundle.write(f"{tempfile.mkdtemp()}/ckpt", Payload({"version": 1, "manifest": node, "arrays": {}}, {}))
    >>> print(infer(path).partition("structs:")[2], end="")
    <BLANKLINE>
      State:
        fields:
          step: int
          loss: pytree  # TODO: only null was saved; add its other types, such as float | null
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neuralqx_struct import bundle
from neuralqx_struct.dtypes import DTYPES
from neuralqx_struct.errors import SchemaError
from neuralqx_struct.references import is_schema_ref
from neuralqx_struct.schema.conformance import Seen, see_node
from neuralqx_struct.schema.language import MODELINE
from neuralqx_struct.schema.reading import parse_document
from neuralqx_struct.schema.series import carried_series
from neuralqx_struct.schema.text.loader import dump_yaml, read_text
from neuralqx_struct.tools.linting import lint_document
from neuralqx_struct.types.records import JAX_SORTS, TYPES, type_names

__all__ = ["infer"]

_LONGEST = 900  # characters of a type; the language takes a little more


def infer(path: str | Path, *, schema: str | None = None) -> str:
    """Writes a first schema for a bundle: one that has no errors, and that the bundle conforms to.

    Args:
        path: A bundle, ours or neuraLQX's, or a ``manifest.json``. No array is read.
        schema: Identity of the schema; by default from the module and name of the root's class.

    Returns:
        YAML text with a TODO for everything that the bundle does not determine. If the bundle has its schema inside, that.

    Raises:
        SerializationError: It is not a bundle.
        SchemaError: The root is not a struct, or a name is not possible in the language.
    """
    manifest = bundle.read_manifest(path)
    stored = manifest.get("schema")
    if stored is not None:
        series = carried_series(manifest).get(stored["id"])
        if series is not None:
            return MODELINE + dump_yaml(series.at(stored["version"]).to_data())
    text = _Inference(manifest["manifest"], str(path)).text(schema)
    source = read_text(text)
    errors = [d for d in lint_document(parse_document(source), source) if d.severity == "error"]
    if errors:
        raise SchemaError(errors)
    return text


@dataclass
class _Struct:
    """All instances of one class; without a name if the language has none for it."""

    name: str
    instances: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def is_regular(self) -> bool:
        """True if all instances have the same fields."""
        return len({frozenset(instance) for instance in self.instances}) == 1


@dataclass
class _Axis:
    """One axis of the arrays of a field: its sizes in each instance of the struct."""

    struct: str
    label: str
    sizes: dict[int, set[int]]
    text: str = "_"

    @property
    def constant(self) -> int | None:
        """The size, if there is only one."""
        sizes = set[int]().union(*self.sizes.values())
        return sizes.pop() if len(sizes) == 1 else None


#: A node, and the instance of the struct that it is in.
_Held = Sequence[tuple[int, Any]]


class _Inference:
    """The declarations of one bundle."""

    def __init__(self, root: Any, file: str) -> None:
        if see_node(root).sort != "struct":
            message = f"expected a bundle of a struct, got {see_node(root).text}"
            hint = "a schema describes structs: save an instance of a Struct class"
            raise SchemaError(message, code="NQX400", file=file, path="$", hint=hint)
        self.file = file
        self.root = root["type"]
        self.structs: dict[str, _Struct] = {}
        self.enums: dict[str, dict[str, None]] = {}
        self.axes: list[_Axis] = []
        self.todo = ""
        self.collect(root)
        fields = root["fields"].items()
        self.numbers = {value: name for name, value in fields if type(value) is int and value > 1}

    def collect(self, root: Any) -> None:
        """Finds the classes and their instances, in the order of the tree."""
        todo = [root]
        while todo:
            node = todo.pop()
            view = see_node(node)
            if view.refs:
                (reference,) = view.refs
                if reference not in self.structs:
                    # Classes of the same name could not be distinguished; those of another schema have its.
                    name = _class_name(reference)
                    is_free = name not in self.taken() and not is_schema_ref(reference)
                    self.structs[reference] = _Struct(name if is_free else "")
                self.structs[reference].instances.append(node["fields"])
            elif view.type_name == "enum":
                self.enums.setdefault(node["type"], {})[node["name"]] = None
            if view.sort not in _CLOSED:
                todo += reversed([*view.items.values()])

    def taken(self) -> set[str]:
        """The names that no other struct or enum can have."""
        return {struct.name for struct in self.structs.values()} | {*type_names()}

    # --- types -----------------------------------------------------------------------------------------------------

    def type_of(self, held: _Held, label: str) -> str:
        """The text of the type that all nodes have, with a mark for each size; pytree where they have none."""
        some = [(instance, node) for instance, node in held if node is not None]
        if not some:
            reason = "only null was saved; add its other types, such as float | null"
            return self.unknown(reason if held else "it was empty")
        sorts = {_sort(node) for _, node in some}
        if len(sorts) == 1:
            found = self.type_of_sort(sorts.pop(), some, label)
        elif sorts == {"int", "float"}:
            found = "float"
        else:
            found = self.unknown(f"it holds {_listed(sorts)}; write its type")
        if len(found) > _LONGEST:
            return self.unknown("its type has no short text")
        return f"{found} | null" if len(some) < len(held) and found != "pytree" else found

    def type_of_sort(self, sort: str, held: _Held, label: str) -> str:
        """The text of the type of nodes of one sort."""
        views = [(instance, see_node(node)) for instance, node in held]
        inside = [(instance, item) for instance, view in views for item in view.items.values()]
        match sort:
            case "array":
                dtypes = {view.dtype for _, view in views}
                if len(dtypes) > 1 or not dtypes & DTYPES.keys():
                    return self.unknown(f"arrays of {_listed(dtypes)} have no type in common")
                return f"{dtypes.pop()}[{self.extents(views, label)}]"
            case "key":
                impls = {view.dtype for _, view in views}
                if len(impls) > 1:
                    return self.unknown("keys of several implementations")
                extents = self.extents(views, label)
                return f"prng_key[{', '.join(filter(None, [impls.pop(), extents]))}]"
            case "list":
                return f"list[{self.type_of(inside, label)}]"
            case "dict":
                return f"dict[str, {self.type_of(inside, label)}]"
            case "tuple":
                lengths = {len(view.items) for _, view in views}
                if len(lengths) > 1:
                    return f"tuple[{self.type_of(inside, label)}, ...]"
                items = []
                for place in range(lengths.pop()):
                    column = [(instance, view.items[place]) for instance, view in views]
                    items.append(self.type_of(column, f"{label}_{place}" if place else label))
                return f"tuple[{', '.join(items)}]"
            case "struct":
                references = dict.fromkeys(node["type"] for _, node in held)
                structs = [self.structs[reference] for reference in references]
                if all(struct.name and struct.is_regular for struct in structs):
                    return " | ".join(struct.name for struct in structs)
                names = ", ".join(references)
                return self.unknown(f"the language has no name for {names} beside the others")
            case "enum":
                enums = {node["type"] for _, node in held}
                name = self.enum_name(*enums) if len(enums) == 1 else ""
                return name or self.without_type(held)
            case "set" | "frozenset" | "other":
                return self.without_type(held)
        return sort

    def unknown(self, reason: str) -> str:
        self.todo = self.todo or reason
        return "pytree"

    def without_type(self, held: _Held) -> str:
        return self.unknown(f"the language has no type for {_listed(_kind(n) for _, n in held)}")

    def extents(self, views: Sequence[tuple[int, Seen]], label: str) -> str:
        """A mark for each axis of arrays; the axes are named later."""
        ranks = {len(view.shape) for _, view in views}
        if len(ranks) > 1:
            return "..."
        rank = ranks.pop()
        struct, _, name = label.partition(".")
        marks = []
        for axis in range(rank):
            sizes: dict[int, set[int]] = {}
            for instance, view in views:
                sizes.setdefault(instance, set()).add(view.shape[axis])
            marks.append(f"<{len(self.axes)}>")
            self.axes.append(_Axis(struct, f"n_{name}" if rank == 1 else f"n_{name}_{axis}", sizes))
        return ", ".join(marks)

    def enum_name(self, reference: str) -> str:
        """The name of an Enum in the schema; empty if its name is taken, or for combined flags."""
        name = _class_name(reference)
        same = [other for other in self.enums if _class_name(other) == name]
        is_free = name not in self.taken() and same == [reference]
        return name if is_free and all(map(str.isidentifier, self.enums[reference])) else ""

    # --- sizes -----------------------------------------------------------------------------------------------------

    def name_axes(self) -> dict[str, int]:
        """Gives each axis its text; returns the sizes to declare for the whole bundle."""
        instances = (i for struct in self.structs.values() for i in struct.instances)
        fields = set[str]().union(*instances)
        shared = Counter(axis.constant for axis in self.axes)
        repeated = sorted(size for size in shared if size and size > 1 and shared[size] > 1)
        names = {size: _free(f"size_{size}", fields) for size in repeated}
        local: dict[str, dict[Any, str]] = {}
        for axis in self.axes:
            if axis.constant in names:
                axis.text = names[axis.constant]
            elif all(len(sizes) == 1 for sizes in axis.sizes.values()):
                known = local.setdefault(axis.struct, {})
                key = tuple(sorted((i, *sizes) for i, sizes in axis.sizes.items()))
                if key not in known:  # axes of the same size in each instance are one size
                    known[key] = _free(axis.label, {*fields, *names.values(), *known.values()})
                axis.text = known[key]
        return {name: size for size, name in names.items()}

    # --- text ------------------------------------------------------------------------------------------------------

    def text(self, schema: str | None) -> str:
        """The document, with comments."""
        structs: list[str] = []
        for reference, struct in self.structs.items():
            if struct.name and (struct.is_regular or reference == self.root):
                fields = struct.instances[0]
                structs += [f"  {struct.name}:", "    fields:" if fields else "    fields: {}"]
                structs += [self.field(struct, name) for name in fields]
        dims = [
            f"  {name}: {{doc: {size} in the bundle}}{self.equation(size)}"
            for name, size in self.name_axes().items()
        ]
        enums = []
        for reference, members in self.enums.items():
            name = self.enum_name(reference)
            if name and any(f" {name}" in line for line in structs):
                enums.append(f"  {name}: [{', '.join(members)}]  # TODO: the other members")
        lines = [
            f"# A first schema, inferred from {Path(self.file).name!r}; unknown parts are marked TODO.",
            "# TODO: mark static fields (`kind: static`), and add defaults and descriptions (`doc:`).",
            'language: "1"',
            f"schema: {schema or _identity(self.root)}  # TODO: the identity, the same in every version",
            "version: 1",
            f"root: {self.structs[self.root].name or 'TODO'}",
        ]
        if dims:
            reason = "sizes that occur more than once; give them names, and other names where that is chance"
            lines += [f"dims:  # TODO: {reason}", *dims]
        if enums:
            lines += ["enums:", *enums]
        lines += ["structs:", *(self.with_sizes(line) for line in structs), ""]
        return MODELINE + "\n".join(lines)

    def with_sizes(self, line: str) -> str:
        return re.sub(r"<(\d+)>", lambda found: self.axes[int(found[1])].text, line)

    def equation(self, size: int) -> str:
        return f"  # TODO: perhaps {{equals: {self.numbers[size]}}}" if size in self.numbers else ""

    def field(self, struct: _Struct, name: str) -> str:
        self.todo = ""
        # A root that is also inside itself can lack fields there.
        instances = enumerate(struct.instances)
        held = [(number, instance[name]) for number, instance in instances if name in instance]
        text = self.type_of(held, f"{struct.name}.{name}")
        record = TYPES.get(text.removesuffix(" | null"))
        is_static = record is not None and record.meaning not in {*JAX_SORTS, ""}
        line = dump_yaml({name: {"type": text, "kind": "static"} if is_static else text}).strip()
        return f"      {line}{f'  # TODO: {self.todo}' if self.todo else ''}"


#: Sorts of nodes whose items have no type in a schema.
_CLOSED = ("set", "frozenset", "other")


def _kind(node: Any) -> str:
    return str(node["__kind__"]) if isinstance(node, dict) else type(node).__name__


def _sort(node: Any) -> str:
    """The sort of a value, for scalars their type."""
    view = see_node(node)
    return view.type_name if view.sort == "scalar" else view.sort


def _class_name(reference: str) -> str:
    return re.split(r"[:.]", reference)[-1]


def _listed(words: Iterable[str]) -> str:
    return " and ".join(sorted({*words}))


def _free(name: str, taken: Container[str]) -> str:
    """The name, with as many underscores as it takes to be the only one."""
    while name in taken:
        name += "_"
    return name


def _identity(reference: str) -> str:
    """Returns ``lab.model.vmc_state`` for ``lab.model:VMCState``."""
    module, _, name = reference.rpartition(":")
    word_start = r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"
    snake = re.sub(word_start, "_", name.rpartition(".")[2]).lower()
    parts = (re.sub(r"\W", "_", part, flags=re.ASCII) for part in (*module.split("."), snake))
    return ".".join(re.sub(r"^(?=\d)", "_", part) for part in parts if part)
