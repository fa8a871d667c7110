"""Inference: a first schema from what one bundle holds.

Owns :func:`infer`. A bundle of plain Python classes tells names, types, dtypes and sizes; it does not tell what a size
is called, what is static, or what another bundle might hold. What is told becomes declarations, of equal sizes a dim is
suggested, and what is not told becomes a TODO. What the bundle holds but the language does not know is ``pytree``.

Example:
    >>> from neuralqx_struct import bundle
    >>> from neuralqx_struct.payload import Payload
    >>> import tempfile
    >>> node = {"__kind__": "struct", "type": "lab.model:State", "fields": {"step": 7, "loss": None}}
    >>> path = bundle.write(f"{tempfile.mkdtemp()}/ckpt", Payload({"version": 1, "manifest": node, "arrays": {}}, {}))
    >>> print(infer(path).partition("structs:")[2], end="")
    <BLANKLINE>
      State:
        fields:
          step: int
          loss: pytree  # TODO: only null was saved; say what else it may be, such as float | null
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neuralqx_struct import bundle
from neuralqx_struct.errors import SchemaError, has_errors
from neuralqx_struct.lint import lint_document
from neuralqx_struct.schema.conform import see_node
from neuralqx_struct.schema.loader import dump_yaml, read_text
from neuralqx_struct.schema.model import LANGUAGE_SCHEMA_ID
from neuralqx_struct.schema.reading import parse_document
from neuralqx_struct.schema.series import carried_series
from neuralqx_struct.schema.types import DTYPES, TYPE_NAMES

__all__ = ["infer"]

_MODELINE = f"# yaml-language-server: $schema={LANGUAGE_SCHEMA_ID}\n"
_LONGEST = 900  # characters of a type; the language takes a little more


def infer(path: str | Path, *, schema: str | None = None) -> str:
    """Write a first schema for a bundle: one that has no errors, and that the bundle conforms to.

    Args:
        path: A bundle, ours or neuraLQX's, or a ``manifest.json``. No array is read.
        schema: Identity of the schema; by default from the module and name of the root's class.

    Returns:
        YAML text with a TODO wherever the bundle does not tell enough. If the bundle brings its schema along, that.

    Raises:
        SerializationError: It is no bundle.
        SchemaError: The root is no struct, or a name is none of the language.
    """
    manifest = bundle.read_manifest(path)
    if (written := manifest.get("schema")) is not None and written["id"] in (known := carried_series(manifest)):
        return _MODELINE + dump_yaml(known[written["id"]].at(written["version"]).to_data())
    text = _Inference(manifest["manifest"], str(path)).text(schema)
    source = read_text(text)
    document = parse_document(source)
    found = lint_document(document, source)
    if has_errors(found):
        raise SchemaError(d for d in found if d.severity == "error")
    return text


@dataclass
class _Struct:
    """All instances of one class."""

    name: str
    instances: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def regular(self) -> bool:
        """True if all instances have the same fields."""
        return len({frozenset(instance) for instance in self.instances}) == 1


@dataclass
class _Axis:
    """One axis of the arrays of a field: its size in each instance of the struct."""

    struct: str
    label: str
    sizes: dict[int, set[int]]
    text: str = "_"

    @property
    def constant(self) -> int | None:
        """The size, if there is only one."""
        all_sizes = {size for sizes in self.sizes.values() for size in sizes}
        return all_sizes.pop() if len(all_sizes) == 1 else None


#: A node, and the instance of the struct that it is in.
_Held = tuple[int, Any]


class _Inference:
    """One bundle."""

    def __init__(self, root: Any, file: str) -> None:
        if not isinstance(root, dict) or root.get("__kind__") != "struct":
            shown = see_node(root).text
            message = f"expected a bundle of a struct, got {shown}"
            hint = "a schema says what is in structs: save an instance of a Struct class"
            raise SchemaError(message, code="NQX400", file=file, path="$", hint=hint)
        self.file = file
        self.root = root["type"]
        self.structs: dict[str, _Struct] = {}
        self.enums: dict[str, dict[str, None]] = {}
        self.axes: list[_Axis] = []
        self.todo = ""
        self.collect(root)
        self.numbers = {value: name for name, value in root["fields"].items() if type(value) is int and value > 1}

    def collect(self, root: Any) -> None:
        """Find the classes and their instances, in the order of the tree."""
        todo = [root]
        while todo:
            node = todo.pop()
            if not isinstance(node, dict):
                continue
            if node["__kind__"] == "struct":
                reference = node["type"]
                if reference not in self.structs:
                    taken = {struct.name for struct in self.structs.values()} | {*TYPE_NAMES}
                    name = re.split(r"[:.]", reference)[-1]
                    # Two classes of one name could not be told apart; those of another schema have one of their own.
                    known = name not in taken and "@" not in reference
                    self.structs[reference] = _Struct(name if known else "")
                self.structs[reference].instances.append(node["fields"])
            elif node["__kind__"] == "enum":
                self.enums.setdefault(node["type"], {})[node["name"]] = None
            if node["__kind__"] in _OPEN:
                todo += reversed([*see_node(node).items.values()])

    # --- types -----------------------------------------------------------------------------------------------------

    def of(self, held: Sequence[_Held], label: str) -> str:
        """The text of the type that all nodes have, with a mark for each size; a TODO where they have none."""
        some = [(instance, node) for instance, node in held if node is not None]
        if not some:
            return self.unknown(
                "only null was saved; say what else it may be, such as float | null" if held else "it was empty"
            )
        sorts = {_sort(node) for _, node in some}
        found = _TYPES[sorts.pop()](self, some, label) if len(sorts) == 1 else self.mixed(sorts)
        if len(found) > _LONGEST:
            return self.unknown("its type has no short text")
        return f"{found} | null" if len(some) < len(held) and found != "pytree" else found

    def unknown(self, why: str) -> str:
        self.todo = self.todo or why
        return "pytree"

    def mixed(self, sorts: set[str]) -> str:
        if sorts == {"int", "float"}:
            return "float"
        return self.unknown(f"it holds {' and '.join(sorted(sorts))}; say what it may be")

    def array_type(self, held: Sequence[_Held], label: str) -> str:
        dtypes = {node["dtype"] for _, node in held}
        if len(dtypes) > 1 or not dtypes & DTYPES.keys():
            return self.unknown(f"arrays of {' and '.join(sorted(dtypes))} have no type in common")
        return f"{dtypes.pop()}[{self.extents([(i, node['shape']) for i, node in held], label)}]"

    def key_type(self, held: Sequence[_Held], label: str) -> str:
        impls = {node["impl"] for _, node in held}
        if len(impls) > 1:
            return self.unknown("keys of several implementations")
        shapes = self.extents([(i, node["data"]["shape"][:-1]) for i, node in held], label)
        return f"prng_key[{', '.join(filter(None, [impls.pop(), shapes]))}]"

    def extents(self, shapes: Iterable[tuple[int, Sequence[int]]], label: str) -> str:
        shapes = [*shapes]
        ranks = {len(shape) for _, shape in shapes}
        if len(ranks) > 1:
            return "..."
        rank = ranks.pop()
        marks = []
        for axis in range(rank):
            sizes: dict[int, set[int]] = {}
            for instance, shape in shapes:
                sizes.setdefault(instance, set()).add(shape[axis])
            struct, _, name = label.partition(".")
            self.axes.append(_Axis(struct, f"n_{name}" if rank == 1 else f"n_{name}_{axis}", sizes))
            marks.append(f"<{len(self.axes) - 1}>")
        return ", ".join(marks)

    def list_type(self, held: Sequence[_Held], label: str) -> str:
        return f"list[{self.of([(i, item) for i, node in held for item in node['items']], label)}]"

    def tuple_type(self, held: Sequence[_Held], label: str) -> str:
        lengths = {len(node["items"]) for _, node in held}
        if len(lengths) > 1:
            return f"tuple[{self.of([(i, item) for i, node in held for item in node['items']], label)}, ...]"
        items = [
            self.of([(i, node["items"][place]) for i, node in held], label if not place else f"{label}_{place}")
            for place in range(lengths.pop())
        ]
        return f"tuple[{', '.join(items)}]"

    def dict_type(self, held: Sequence[_Held], label: str) -> str:
        return f"dict[str, {self.of([(i, value) for i, node in held for _, value in node['items']], label)}]"

    def struct_type(self, held: Sequence[_Held], label: str) -> str:
        del label
        references = list(dict.fromkeys(node["type"] for _, node in held))
        structs = [self.structs[reference] for reference in references]
        if all(struct.name and struct.regular for struct in structs):
            return " | ".join(struct.name for struct in structs)
        return self.unknown(f"the language has no name for {', '.join(references)} beside the others")

    def enum_type(self, held: Sequence[_Held], label: str) -> str:
        references = {node["type"] for _, node in held}
        if len(references) == 1 and (name := self.enum_name(*references)):
            return name
        return self.other_type(held, label)

    def enum_name(self, reference: str) -> str:
        """What an Enum is called in the schema; nothing if its name is taken, or it is of flags that were joined."""
        name = re.split(r"[:.]", reference)[-1]
        taken = {struct.name for struct in self.structs.values()} | {*TYPE_NAMES}
        alike = [other for other in self.enums if re.split(r"[:.]", other)[-1] == name]
        free = name not in taken and alike == [reference]
        return name if free and all(member.isidentifier() for member in self.enums[reference]) else ""

    def other_type(self, held: Sequence[_Held], label: str) -> str:
        del label
        return self.unknown(f"the language has no type for {' and '.join(sorted({_kind(node) for _, node in held}))}")

    # --- sizes -----------------------------------------------------------------------------------------------------

    def name_axes(self) -> dict[str, int]:
        """Give each axis its text; the sizes that are declared for the whole bundle."""
        shared: dict[int, list[_Axis]] = {}
        for axis in self.axes:
            if axis.constant is not None and axis.constant > 1:
                shared.setdefault(axis.constant, []).append(axis)
        fields = {name for struct in self.structs.values() for instance in struct.instances for name in instance}
        names = {size: _free(f"size_{size}", fields) for size, axes in sorted(shared.items()) if len(axes) > 1}
        local: dict[str, dict[Any, str]] = {}
        for axis in self.axes:
            if axis.constant in names:
                axis.text = names[axis.constant]
            elif all(len(sizes) == 1 for sizes in axis.sizes.values()):
                # Axes that are of one size in each instance are one size.
                known = local.setdefault(axis.struct, {})
                key = tuple(sorted((i, *sizes) for i, sizes in axis.sizes.items()))
                axis.text = known.setdefault(key, _free(axis.label, {*fields, *names.values(), *known.values()}))
        return {name: size for size, name in names.items()}

    # --- text ------------------------------------------------------------------------------------------------------

    def text(self, schema: str | None) -> str:
        """The document, with comments."""
        structs: list[str] = []
        for struct in self.structs.values():
            if not struct.name or not (struct.regular or struct is self.structs[self.root]):
                continue
            structs += [f"  {struct.name}:", "    fields:" if struct.instances[0] else "    fields: {}"]
            structs += [self.field(struct, name) for name in struct.instances[0]]
        declared = self.name_axes()
        enums = [
            f"  {name}: [{', '.join(members)}]  # TODO: the other members"
            for reference, members in self.enums.items()
            if (name := self.enum_name(reference)) and any(f" {name}" in line for line in structs)
        ]
        dims = [f"  {name}: {{doc: {size} in the bundle}}{self.equation(size)}" for name, size in declared.items()]
        sized = [re.sub(r"<(\d+)>", lambda found: self.axes[int(found[1])].text, line) for line in structs]
        head = [
            f"# A first schema, from what {Path(self.file).name!r} holds; what a bundle does not tell is marked TODO.",
            "# TODO: say what is static (`kind: static`), what has a default, and what fields are for (`doc:`).",
            'language: "1"',
            f"schema: {schema or _identity(self.root)}  # TODO: the identity, the same in every version",
            "version: 1",
            f"root: {self.structs[self.root].name or 'TODO'}",
            *(
                [
                    "dims:  # TODO: sizes that occur more than once; give them names, and other names where that is chance",
                    *dims,
                ]
                if dims
                else []
            ),
            *(["enums:", *enums] if enums else []),
            "structs:",
        ]
        return _MODELINE + "\n".join([*head, *sized]) + "\n"

    def equation(self, size: int) -> str:
        return f"  # TODO: perhaps {{equals: {self.numbers[size]}}}" if size in self.numbers else ""

    def field(self, struct: _Struct, name: str) -> str:
        self.todo = ""
        # Of a root that stands inside itself too, some may lack it.
        held = [(number, instance[name]) for number, instance in enumerate(struct.instances) if name in instance]
        text = self.of(held, f"{struct.name}.{name}")
        declared: Any = {"type": text, "kind": "static"} if text.removesuffix(" | null") in _STATIC else text
        line = dump_yaml({name: declared}).strip()
        return f"      {line}{f'  # TODO: {self.todo}' if self.todo else ''}"


#: Scalars that JAX takes for no leaf.
_STATIC = ("str", "bytes", "path", "dtype")
#: Nodes that are looked into; what others hold has no type either.
_OPEN = ("struct", "list", "tuple", "dict", "ordered-dict")


def _kind(node: Any) -> str:
    return str(node["__kind__"]) if isinstance(node, dict) else type(node).__name__


def _sort(node: Any) -> str:
    """What decides how a node's type is found: the sort of value, for scalars the type itself."""
    seen = see_node(node)
    return seen.type_name if seen.sort == "scalar" else seen.sort


def _free(name: str, taken: Iterable[str]) -> str:
    """The name, with as many underscores as it takes to be the only one."""
    taken = {*taken}
    while name in taken:
        name += "_"
    return name


def _scalar(name: str) -> Callable[[_Inference, Sequence[_Held], str], str]:
    return lambda *_: name


_TYPES: Mapping[str, Callable[[_Inference, Sequence[_Held], str], str]] = {
    **{name: _scalar(name) for name in ("bool", "int", "float", "complex", "str", "bytes", "path", "dtype")},
    "array": _Inference.array_type,
    "key": _Inference.key_type,
    "list": _Inference.list_type,
    "tuple": _Inference.tuple_type,
    "dict": _Inference.dict_type,
    "enum": _Inference.enum_type,
    "struct": _Inference.struct_type,
    "set": _Inference.other_type,
    "frozenset": _Inference.other_type,
    "other": _Inference.other_type,
}


def _identity(reference: str) -> str:
    """``lab.model:VMCState`` as ``lab.model.vmc_state``."""
    module, _, name = reference.rpartition(":")
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name.rpartition(".")[2]).lower()
    parts = [re.sub(r"\W", "_", part, flags=re.ASCII) for part in (*module.split("."), snake) if part]
    return ".".join(part if re.match(r"[A-Za-z_]", part) else f"_{part}" for part in parts)
