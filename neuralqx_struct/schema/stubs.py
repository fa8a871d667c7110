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
from typing import Any

from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.types import (
    Array,
    DictOf,
    Key,
    ListOf,
    LiteralOf,
    Named,
    Null,
    PyTree,
    Scalar,
    TupleOf,
    Type,
    Union,
)

__all__ = ["stub_module"]

_WIDTH = 116
#: The modules that annotations name, with the names that they are imported by.
_IMPORTS = {
    "builtins": "import builtins",
    "jax": "import jax",
    "np": "import numpy as np",
    "pathlib": "import pathlib",
    "typing": "import typing",
}
#: Annotations of scalars, as the module that they need and what stands behind it.
_SCALARS = {"path": ("pathlib", ".Path"), "dtype": ("np", ".dtype")}


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
    """One module in the making: the names it gives, and what its annotations turned out to need."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.needed: dict[str, None] = {}
        owners = document.closure()
        self.classes: dict[tuple[str, str], str] = {}
        structs = {name: None for owner in owners for name in owner.structs}
        fields = {name for owner in owners for struct in owner.structs.values() for name in struct.fields}
        self.taken = {*structs, *fields, *dir(builtins)}
        for owner in owners:
            for name in owner.structs:
                free = name if name not in self.classes.values() else self.free(owner.id.replace(".", "_") + f"_{name}")
                self.classes[owner.id, name] = free
        self.modules = {name: self.free(name) for name in (*_IMPORTS, "s")}
        # Inside a class a field hides the type of the same name.
        self.hidden = fields & {*dir(builtins)}
        self.aliases = {name: self.free(f"_{name}") for name in sorted(fields & {*self.classes.values()})}
        self.given, self.array, self.schema = self.free("DEFAULT"), self.free("ArrayLike"), self.free("SCHEMA")

    def free(self, name: str) -> str:
        """The name, with as many underscores as it takes to be the only one."""
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def plain(self, name: str) -> str:
        """A class or built-in type as annotations name it."""
        return self.of("builtins", f".{name}") if name in self.hidden else self.aliases.get(name, name)

    def of(self, module: str, rest: str) -> str:
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
            f"    {new}: {alias} = {_python(old)}" for old, new in self.aliases.items() if self.uses(classes, new)
        ]
        if self.uses(classes, self.given):
            never = self.of("typing", ".Never")  # is of every type, so that it may stand for any default
            value = f"{self.of('typing', '.cast')}({never}, None)"
            aliases.append(f"    {self.given}: {never} = {value}  # the schema has the value")
        if self.uses(classes, self.array):
            anything = self.of("typing", ".Any")
            arrays = f"{self.of('jax', '.Array')} | {self.of('np', '.ndarray')}[{anything}, {anything}]"
            aliases.append(f"    {self.array}: {alias} = {_python(arrays)}")
        runtime = [
            f"    {cls} = {self.schema}[{_python(name if owner == document.id else f'{owner}.{name}')}]"
            for (owner, name), cls in self.classes.items()
        ]
        used = sorted(self.needed)
        always = [self.imported(name) for name in used if name in ("pathlib", "typing")]
        checking = [f"    {self.imported(name)}" for name in used if name not in ("pathlib", "typing")]
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
        statement, own = _IMPORTS[name], self.modules[name]
        return statement if own == name else f"{statement.partition(' as ')[0]} as {own}"

    # --- classes ---------------------------------------------------------------------------------------------------

    def struct(self, owner: Document, name: str) -> Iterator[str]:
        declaration = owner.structs[name]
        yield f"class {self.classes[owner.id, name]}({self.modules['s']}.Struct):"
        yield from _docstring(declaration.doc or f"Struct {name} of {owner.id} version {owner.version}.", 4)
        yield ""
        for field, said in declaration.fields.items():
            yield f"    {field}: {self.attribute(owner, said)}"
            yield from _docstring(_told(said), 4)
        arguments = [
            f"{field}: {self.argument(owner, said)}{self.default(owner, said)}"
            for field, said in declaration.fields.items()
            if said.derived is None
        ]
        receiver = "self"
        while receiver in declaration.fields:
            receiver = f"_{receiver}"
        yield "" if declaration.fields else "    # no fields"
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

    def attribute(self, owner: Document, said: FieldDeclaration) -> str:
        """What reading a field gives."""
        if said.derived is not None and said.type is None:
            return self.of("typing", ".Any")
        return self.type(owner, said.declared)

    def argument(self, owner: Document, said: FieldDeclaration) -> str:
        """What the constructor takes for a field."""
        if said.converter is not None:
            return self.plain("object")
        options = said.declared.options if isinstance(said.declared, Union) else (said.declared,)
        return self.joined([self.option(owner, option) for option in options])

    def option(self, owner: Document, declared: Type) -> str:
        """What the constructor takes for a type, where it is not inside another: wider than what reading gives."""
        match declared:
            case Array():
                return self.array
            case PyTree():
                return self.plain("object")
            case _:
                return self.type(owner, declared)

    def default(self, owner: Document, said: FieldDeclaration) -> str:
        if not said.has_default:
            return ""
        value, declared = said.default, said.declared
        options = declared.options if isinstance(declared, Union) else (declared,)
        shown = value is None or any(_is_written(owner, option, value) for option in options)
        return f" = {_python(value)}" if shown and len(_python(value)) < 60 else f" = {self.given}"

    def joined(self, texts: list[str]) -> str:
        return " | ".join(dict.fromkeys(texts))

    def type(self, owner: Document, declared: Type) -> str:
        """The annotation of a type."""
        match declared:
            case Null():
                return "None"
            case PyTree():
                return self.of("typing", ".Any")
            case Scalar(name) if name in _SCALARS:
                return self.of(*_SCALARS[name]) + (f"[{self.of('typing', '.Any')}]" if name == "dtype" else "")
            case Scalar(name):
                return self.plain(name)
            case Array() | Key():
                return self.of("jax", ".Array")
            case LiteralOf(values):
                return self.literal(values)
            case Named(name):
                home, inner = owner.place_of(name)
                if inner in home.enums:
                    return self.literal(tuple(home.enums[inner].members))
                return self.plain(self.classes[home.id, inner])
            case ListOf(item):
                return f"{self.plain('list')}[{self.type(owner, item)}]"
            case DictOf(item):
                return f"{self.plain('dict')}[{self.plain('str')}, {self.type(owner, item)}]"
            case TupleOf(items, variadic):
                inside = [*(self.type(owner, item) for item in items), *(["..."] if variadic else [])]
                return f"{self.plain('tuple')}[{', '.join(inside) or '()'}]"
            case Union(options):
                return self.joined([self.type(owner, option) for option in options])

    def literal(self, values: tuple[Any, ...]) -> str:
        # Python's Literal has no floats.
        exact = [_python(value) for value in values if not isinstance(value, float)]
        texts = [f"{self.of('typing', '.Literal')}[{', '.join(exact)}]"] if exact else []
        return self.joined([*texts, *([self.plain("float")] if len(exact) < len(values) else [])])


def _is_written(owner: Document, option: Type, value: Any) -> bool:
    """True if a default may stand in Python as the file has it."""
    match option:
        case Scalar(name):
            return type(value).__name__ == name or (name == "float" and type(value) is int)
        case Named(name):
            return isinstance(value, str) and value in (owner.members_of(name) or ())
        case LiteralOf(values):
            return (type(value), value) in [(type(known), known) for known in values] and not isinstance(value, float)
        case _:
            return False


def _python(value: Any) -> str:
    """A plain value as Python source, text in double quotes."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _told(said: FieldDeclaration) -> str:
    """What an editor shows about a field: the type in the schema's words, which knows sizes, and the doc."""
    kind = f" ({said.kind})" if said.kind != "node" else ""
    origin = f" = {said.derived}" if said.derived is not None else ""
    unit = f" [{said.unit}]" if said.unit else ""
    return f"{said.text}{kind}{origin}{unit}{': ' if said.doc else ''}{said.doc}"


def _docstring(text: str, indent: int) -> Iterator[str]:
    """Text as a docstring that is neither ended nor changed by what is in it."""
    text = text.strip("\n").replace("\\", "\\\\")
    text = text.replace('"', '\\"') if '"""' in text or text.endswith('"') else text
    first, *rest = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text).split("\n")
    margin = " " * indent
    if not rest:
        yield f'{margin}"""{first}"""'
        return
    yield f'{margin}"""{first}'
    yield from (f"{margin}{line}" for line in rest)
    yield f'{margin}"""'
