"""Stubs: a Python module in which editors and type checkers see the classes of a schema.

Owns :func:`stub_module`. Classes that ``load_schema`` builds are known when a program runs; a checker reads files alone.
The module therefore has both: for checkers the classes written out, fields, constructors and all, and for Python one
line for each class, which takes it from the schema. Nothing else in a program needs to know.

Example:
    >>> from neuralqx_struct.schema.series import load_series
    >>> text = stub_module(load_series("schemas/vmc_state").head, "schemas/vmc_state")
    >>> text.splitlines()[0], "    class Sampler(s.Struct):" in text.splitlines()
    ('\"\"\"Classes of the schema neuralqx.vmc_state, version 3.', True)
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Iterator
from math import isfinite
from typing import Any

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.schema.graph import graph_of
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.types import Type
from neuralqx_struct.types.builders import LiveBuilder
from neuralqx_struct.types.text import read_value

_WIDTH = 116
#: Modules that annotations name by another name than their own.
_RENAMED = {"np": "numpy"}
_LONGEST_DEFAULT = 60  # characters


def stub_module(document: Document, where: str) -> str:
    """The text of a module with the classes of one version of a schema.

    Args:
        document: The version. Structs of schemas that it uses are declared too.
        where: Path of the schema's folder or file, relative to the module, with slashes.

    Returns:
        Python source that mypy and pyright accept in their strict modes. Constructors take what the schema declares, by
        keyword; arrays may be of JAX or numpy.
    """
    return _Stub(document).module(where)


class _Stub:
    """One module in the making: its names, and the imports of its annotations."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.needed: dict[str, None] = {}
        owners = document.closure()
        self.classes: dict[tuple[str, str], str] = {}
        structs = {name: None for owner in owners for name in owner.structs}
        fields = {
            name for owner in owners for struct in owner.structs.values() for name in struct.fields
        }
        self.taken = {*structs, *fields, *dir(builtins)}
        for owner in owners:
            for name in owner.structs:
                free = (
                    name
                    if name not in self.classes.values()
                    else self.free(owner.id.replace(".", "_") + f"_{name}")
                )
                self.classes[owner.id, name] = free
        self.modules = {"s": self.free("s")}
        # Inside a class a field hides the type of the same name.
        self.hidden = fields & {*dir(builtins)}
        self.aliases = {
            name: self.free(f"_{name}") for name in sorted(fields & {*self.classes.values()})
        }
        self.given, self.array, self.schema = (
            self.free("DEFAULT"),
            self.free("ArrayLike"),
            self.free("SCHEMA"),
        )

    def free(self, name: str) -> str:
        """The name, with as many underscores as it takes to be the only one."""
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def plain(self, name: str) -> str:
        """A class or built-in type as annotations name it."""
        return (
            self.of("builtins", f".{name}") if name in self.hidden else self.aliases.get(name, name)
        )

    def of(self, module: str, rest: str) -> str:
        if module not in self.modules:
            self.modules[module] = self.free(module)
        self.needed[module] = None
        return f"{self.modules[module]}{rest}"

    # --- the module ------------------------------------------------------------------------------------------------

    def module(self, where: str) -> str:
        document = self.document
        classes = [
            line
            for owner in document.closure()
            for name in owner.structs
            for line in ("", *(f"    {line}".rstrip() for line in self.struct(owner, name)))
        ]
        path = f"{self.of('pathlib', '.Path')}(__file__).parent / {_python(where)}"
        checked = self.of("typing", ".TYPE_CHECKING")
        alias = self.of("typing", ".TypeAlias")
        aliases = [
            f"    {new}: {alias} = {_python(old)}"
            for old, new in self.aliases.items()
            if self.uses(classes, new)
        ]
        if self.uses(classes, self.given):
            never = self.of(
                "typing", ".Never"
            )  # is of every type, so that it is valid as any default
            value = f"{self.of('typing', '.cast')}({never}, None)"
            aliases.append(f"    {self.given}: {never} = {value}  # the schema has the value")
        if self.uses(classes, self.array):
            anything = self.of("typing", ".Any")
            arrays = (
                f"{self.of('jax', '.Array')} | {self.of('np', '.ndarray')}[{anything}, {anything}]"
            )
            aliases.append(f"    {self.array}: {alias} = {_python(arrays)}")
        runtime = [
            f"    {cls} = {self.schema}[{_python(name if owner == document.id else f'{owner}.{name}')}]"
            for (owner, name), cls in self.classes.items()
        ]
        used = sorted(self.needed)
        always = [self.imported(name) for name in used if name in ("pathlib", "typing")]
        checking = [
            f"    {self.imported(name)}" for name in used if name not in ("pathlib", "typing")
        ]
        lines = [
            f'"""Classes of the schema {document.id}, version {document.version}.',
            "",
            "Written by `neuralqx-struct schema stub`, and written again when the schema changes; not edited by hand.",
            '"""',
            "# What follows is declared for checkers alone: no constructor has a body.",
            "# pyright: reportMissingSuperCall=false, reportUnreachable=false",
            "",
            "from __future__ import annotations",
            "",
            *sorted(always),
            "",
            f"import neuralqx_struct as {self.modules['s']}",
            "",
            f"__all__ = [{', '.join(map(_python, sorted(self.classes.values())))}]",
            "",
            f"{self.schema} = {self.modules['s']}.load_schema({path}).at({document.version})",
            "",
            f"if {checked}:",
            *sorted(checking),
            *([""] if checking and aliases else []),
            *aliases,
            *(classes if checking or aliases else classes[1:]),
            "",
            "else:",
            *runtime,
        ]
        return "\n".join(lines) + "\n"

    @staticmethod
    def uses(lines: list[str], name: str) -> bool:
        return any(name in line for line in lines)

    def imported(self, name: str) -> str:
        module, own = _RENAMED.get(name, name), self.modules[name]
        return f"import {module}" if own == module else f"import {module} as {own}"

    # --- classes ---------------------------------------------------------------------------------------------------

    def struct(self, owner: Document, name: str) -> Iterator[str]:
        declaration = owner.structs[name]
        yield f"class {self.classes[owner.id, name]}({self.modules['s']}.Struct):"
        yield from _docstring(
            declaration.doc or f"Struct {name} of {owner.id} version {owner.version}.", 4
        )
        yield ""
        for field, member in declaration.fields.items():
            yield f"    {field}: {self.attribute(owner, member)}"
            yield from _docstring(_description(member), 4)
        arguments = [
            f"{field}: {self.argument(owner, member)}{self.default(owner, member)}"
            for field, member in declaration.fields.items()
            if member.derived is None
        ]
        receiver = "self"
        while receiver in declaration.fields:
            receiver = f"_{receiver}"
        yield "" if declaration.fields else "    # no fields"
        if name in graph_of(owner).stacked:
            index = f"{self.of('typing', '.SupportsIndex')} | {self.plain('slice')}"
            made = self.of("typing", ".Self")
            yield f"    def __getitem__({receiver}, index: {index}, /) -> {made}: ..."
        if not arguments:
            yield f"    def __init__({receiver}) -> None: ..."
            return
        one = f"    def __init__({receiver}, *, {', '.join(arguments)}) -> None: ..."
        if len(one) <= _WIDTH:
            yield one
            return
        yield "    def __init__("
        yield from (f"        {argument}," for argument in (receiver, "*", *arguments))
        yield "    ) -> None: ..."

    # --- types -----------------------------------------------------------------------------------------------------

    def attribute(self, owner: Document, field: FieldDeclaration) -> str:
        """The annotation of a field."""
        if field.derived is not None and field.type is None:
            return self.of("typing", ".Any")
        return self.type(owner, field.declared)

    def argument(self, owner: Document, field: FieldDeclaration) -> str:
        """The annotation of a constructor argument, which may be wider than that of the field."""
        if field.converter is not None:
            return self.plain("object")
        return field.declared.argument(owner, self)

    def default(self, owner: Document, field: FieldDeclaration) -> str:
        """The default of a constructor argument; a placeholder where Python writes another value."""
        if not field.has_default:
            return ""
        value = field.default
        builder = LiveBuilder(owner)
        try:
            read = read_value(value, field.declared, builder)
            plain = isfinite(read) if type(read) is float else read is value
            shown = builder.shared and plain
        except SchemaError:  # an opaque field holds any value
            read, shown = value, value is None
        text = _python(read) if shown else self.given
        return f" = {text if len(text) < _LONGEST_DEFAULT else self.given}"

    def type(self, owner: Document, declared: Type) -> str:
        """The annotation of a type."""
        return declared.annotation(owner, self)

    def source(self, name: str) -> str:
        """A builtin, or a name with its module, as annotations spell it here."""
        module, dot, rest = name.partition(".")
        if not dot:
            return self.plain(name)
        inner, bracket, argument = rest.partition("[")
        text = self.of(module, f".{inner}")
        return f"{text}[{self.source(argument[:-1])}]" if bracket else text

    def class_of(self, owner: Document, name: str) -> str:
        """The class of a struct."""
        home, inner = owner.place_of(name)
        return self.plain(self.classes[home.id, inner])

    def literal(self, values: tuple[Any, ...]) -> str:
        """Returns Literal of values; of floats and complex numbers, which it cannot hold, their type."""
        exact = [_python(value) for value in values if not isinstance(value, (float, complex))]
        texts = [f"{self.of('typing', '.Literal')}[{', '.join(exact)}]"] if exact else []
        others = [type(value).__name__ for value in values if isinstance(value, (float, complex))]
        return " | ".join([*texts, *map(self.plain, dict.fromkeys(others))])


def _python(value: Any) -> str:
    """A plain value as Python source, text in double quotes."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _description(member: FieldDeclaration) -> str:
    """The text that an editor shows for a field: the type with its sizes, and the doc."""
    kind = f" ({member.kind})" if member.kind != "node" else ""
    origin = f" = {member.derived}" if member.derived is not None else ""
    unit = f" [{member.unit}]" if member.unit else ""
    return f"{member.text}{kind}{origin}{unit}{': ' if member.doc else ''}{member.doc}"


def _docstring(text: str, indent: int) -> Iterator[str]:
    """The lines of a docstring, with quotes and backslashes escaped."""
    text = text.strip("\n").replace("\\", "\\\\")
    text = text.replace('"', '\\"') if '"""' in text or text.endswith('"') else text
    first, *rest = "".join(
        c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text
    ).split("\n")
    margin = " " * indent
    if not rest:
        yield f'{margin}"""{first}"""'
        return
    yield f'{margin}"""{first}'
    yield from (f"{margin}{line}" for line in rest)
    yield f'{margin}"""'
