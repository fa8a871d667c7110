"""The field type of literals: one of some strings, numbers or booleans.

Example:
    >>> from neuralqx_struct.types.text import parse_type
    >>> parse_type('literal["a", 1, true]').values
    ('a', 1, True)
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from neuralqx_struct.types.records import TYPES, Rule, Type
from neuralqx_struct.types.text import Builder, not_a_value, wrong


def _is_one_of(value: Any, values: Any) -> bool:
    """True if a value is among others, where 1, True and 1.0 are three."""
    return (type(value), value) in [(type(each), each) for each in values]


@dataclass(frozen=True, slots=True)
class LiteralOf(Type):
    """One of some strings, numbers or booleans."""

    sort = "literal"
    words = (sort,)
    bounds = ("number",)
    values: tuple[str | int | float | bool, ...]

    @classmethod
    def parse(cls, word: str, args: list[ast.expr] | None, text: str) -> Type:
        hint = 'quote strings: literal["a", "b"]'
        if args is None:
            raise wrong(text, "expected literal[...]", f"list its values; {hint}")
        values = [_constant(arg) for arg in args]
        if not all(isinstance(value, (str, int, float)) for value in values):
            raise wrong(text, "expected literal[...] of strings, numbers or booleans", hint)
        return LiteralOf(tuple(values))

    def format(self) -> str:
        return f"{self.sort}[{', '.join(map(repr, self.values))}]"

    def with_texts(self, names: Mapping[str, str]) -> Type:
        values = (names.get(v, v) if isinstance(v, str) else v for v in self.values)
        return LiteralOf(tuple(dict.fromkeys(values)))

    def accepts(self, document: Any, seen: Any) -> bool:
        return seen.sort == "scalar" and _is_one_of(seen.value, self.values)

    def picks(self, document: Any) -> bool:
        return True

    def readable_as(self, want: LiteralOf, compare: Any) -> bool:
        return all(_is_one_of(value, want.values) for value in self.values)

    def widened(self) -> Type:
        names = {type(value).__name__ for value in self.values}
        return TYPES[names.pop()] if len(names) == 1 else self

    def read(self, value: Any, builder: Builder) -> Any:
        if not _is_one_of(value, self.values):
            raise not_a_value(value, self)
        return value

    def neutral(self, document: Any) -> Any:
        return self.values[0]

    def outside_jax(self, document: Any) -> bool:
        return self.texts(document) != []

    def texts(self, document: Any) -> list[str]:
        return [value for value in self.values if isinstance(value, str)]

    def rule(self, document: Any) -> Rule:
        return {"enum": list(self.values)}

    def annotation(self, owner: Any, stub: Any) -> str:
        return str(stub.literal(self.values))

    def example(self, sample: Any) -> Any:
        return sample.one_of(self.values)


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
