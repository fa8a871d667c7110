"""Field types of constants and of any value: null, literals and pytrees."""

from __future__ import annotations

import ast
from typing import Any, ClassVar

from neuralqx_struct.types.records import (
    TYPES,
    LiteralOf,
    Named,
    Null,
    PyTree,
    Rule,
    Scalar,
    Sorts,
    Type,
    TypeRecord,
)
from neuralqx_struct.types.scalars import ANY_NODE
from neuralqx_struct.types.text import Builder, not_a_value, wrong


def _is_one_of(value: Any, values: Any) -> bool:
    """True if a value is among others, where 1, True and 1.0 are three."""
    return (type(value), value) in [(type(each), each) for each in values]


class NullRecord(TypeRecord):
    """None."""

    meaning: ClassVar[str] = "null"
    suggestion: ClassVar[Any] = None

    def parse(
        self,
        word: str,
        args: list[ast.expr] | None,
        text: str,
    ) -> Type:
        """Returns null; with brackets the word is taken for the name of a struct."""
        return Null() if args is None else TYPES["struct"].parse(word, args, text)

    def format(self, declared: Null) -> str:
        """The name."""
        return self.name

    def read(
        self,
        declared: Null,
        value: Any,
        builder: Builder,
    ) -> Any:
        """None for null."""
        if value is not None:
            raise not_a_value(value, declared)

    def texts(self, declared: Null, document: Any) -> list[str]:
        """No text."""
        return []

    def rule(self, declared: Null, document: Any) -> Rule:
        """The rule of null."""
        return {"type": "null"}

    def annotation(
        self,
        declared: Null,
        owner: Any,
        stub: Any,
    ) -> str:
        """None."""
        return "None"

    def example(
        self,
        declared: Null,
        sample: Any,
        field: Any,
        local: Any,
        depth: int,
    ) -> Any:
        """None."""


class LiteralRecord(TypeRecord):
    """One of some strings, numbers or truth values."""

    bounds: ClassVar[tuple[str, ...]] = ("number",)

    def parse(
        self,
        word: str,
        args: list[ast.expr] | None,
        text: str,
    ) -> Type:
        """The literal of the constants in brackets."""
        hint = 'quote strings: literal["a", "b"]'
        if args is None:
            raise wrong(text, "expected literal[...]", f"list its values; {hint}")
        values = [_constant(arg) for arg in args]
        if not all(isinstance(value, (str, int, float)) for value in values):
            raise wrong(text, "expected literal[...] of strings, numbers or booleans", hint)
        return LiteralOf(tuple(values))

    def format(self, declared: LiteralOf) -> str:
        """The values as Python writes them."""
        return f"{self.name}[{', '.join(map(repr, declared.values))}]"

    def accepts(
        self,
        declared: LiteralOf,
        document: Any,
        seen: Any,
    ) -> bool:
        """True for one of the values, of the same Python type."""
        return seen.sort == "scalar" and _is_one_of(seen.value, declared.values)

    def picks(self, declared: LiteralOf, document: Any) -> bool:
        """True."""
        return True

    def readable_as(
        self,
        have: LiteralOf,
        want: LiteralOf,
        compare: Any,
    ) -> bool:
        """True if each value is one of the others."""
        return all(_is_one_of(value, want.values) for value in have.values)

    def widened(self, declared: LiteralOf) -> Type:
        """The scalar of which all values are."""
        names = {type(value).__name__ for value in declared.values}
        return Scalar(names.pop()) if len(names) == 1 else declared

    def read(
        self,
        declared: LiteralOf,
        value: Any,
        builder: Builder,
    ) -> Any:
        """The value."""
        if not _is_one_of(value, declared.values):
            raise not_a_value(value, declared)
        return value

    def neutral(self, declared: LiteralOf, document: Any) -> Any:
        """The first value."""
        return declared.values[0]

    def sorts(self, declared: LiteralOf, document: Any) -> Sorts:
        """The sorts of the values."""
        names = {type(value).__name__ for value in declared.values}
        return frozenset("text" if name == "str" else name for name in names)

    def texts(self, declared: LiteralOf, document: Any) -> list[str]:
        """The strings among the values."""
        return [value for value in declared.values if isinstance(value, str)]

    def rule(self, declared: LiteralOf, document: Any) -> Rule:
        """The rule of the values."""
        return {"enum": list(declared.values)}

    def annotation(
        self,
        declared: LiteralOf,
        owner: Any,
        stub: Any,
    ) -> str:
        """Returns Literal of the values; floats, which it cannot hold, as float."""
        return str(stub.literal(declared.values))

    def example(
        self,
        declared: LiteralOf,
        sample: Any,
        field: Any,
        local: Any,
        depth: int,
    ) -> Any:
        """One of the values."""
        return sample.one_of(declared.values)


#: As YAML and JSON write them; Python's words are read too.
_TRUTH = {"true": True, "false": False}


def _constant(arg: ast.expr) -> Any:
    """The constant that an expression writes, or None."""
    if isinstance(arg, ast.Name):
        return _TRUTH.get(arg.id)
    try:
        return ast.literal_eval(arg)
    except ValueError:
        return None


class PyTreeRecord(TypeRecord):
    """Any tree of values that can be stored."""

    takes_all: ClassVar[bool] = True
    suggestion: ClassVar[Any] = None
    bounds: ClassVar[tuple[str, ...]] = ("number", "text", "length")

    def parse(
        self,
        word: str,
        args: list[ast.expr] | None,
        text: str,
    ) -> Type:
        """Returns pytree; with brackets the word is taken for the name of a struct."""
        return PyTree() if args is None else Named(word).record.parse(word, args, text)

    def format(self, declared: PyTree) -> str:
        """The name."""
        return self.name

    def accepts(
        self,
        declared: PyTree,
        document: Any,
        seen: Any,
    ) -> bool:
        """True for everything."""
        return True

    def read(
        self,
        declared: PyTree,
        value: Any,
        builder: Builder,
    ) -> Any:
        """Returns lists and dicts of whatever is inside."""
        if isinstance(value, list):
            return builder.sequence("list", [self.read(declared, item, builder) for item in value])
        if isinstance(value, dict):
            items = {key: self.read(declared, item, builder) for key, item in value.items()}
            return builder.mapping(items)
        return builder.number(value)

    def rule(self, declared: PyTree, document: Any) -> Rule:
        """The rule of any node."""
        return ANY_NODE

    def annotation(
        self,
        declared: PyTree,
        owner: Any,
        stub: Any,
    ) -> str:
        """Returns Any."""
        return str(stub.source("typing.Any"))

    def argument(
        self,
        declared: PyTree,
        owner: Any,
        stub: Any,
    ) -> str:
        """Returns object."""
        return str(stub.source("object"))

    def example(
        self,
        declared: PyTree,
        sample: Any,
        field: Any,
        local: Any,
        depth: int,
    ) -> Any:
        """An array of two numbers; an int for a static field."""
        if field.kind == "static":
            return int(sample.random.integers(10))
        return sample.array("float32", (2,), field)
