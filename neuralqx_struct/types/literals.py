"""The field type of literals: one of some strings, bytes, numbers or booleans.

Example:
    >>> from neuralqx_struct.types.text import parse_type
    >>> parse_type('literal["a", 1, true]').values
    ('a', 1, True)
"""

from __future__ import annotations

import ast
import cmath
import contextlib
import io
import math
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.types.records import TYPES, Node, Rule, Type
from neuralqx_struct.types.scalars import kind_rule
from neuralqx_struct.types.text import Builder, not_a_value, spelling, wrong


def _is_one_of(value: Any, values: Any) -> bool:
    """True if a value is among others, where 1, True and 1.0 are three, and NaN is equal to itself."""
    alike = [each for each in values if type(each) is type(value)]
    return value in alike or (value != value and any(each != each for each in alike))  # noqa: PLR0124


@dataclass(frozen=True, slots=True)
class LiteralOf(Type):
    """One of some strings, bytes, numbers or booleans."""

    sort = "literal"
    words = (sort,)
    bounds = ("number",)
    values: tuple[str | bytes | complex | bool, ...]

    @classmethod
    def parse(cls, word: str, args: list[ast.expr] | None, text: str) -> Type:
        hint = 'quote strings: literal["a", "b"]'
        if not args:
            raise wrong(text, "expected literal[...] of at least one value", hint)
        if _joins_strings(text):
            raise wrong(text, "expected a comma between two strings", hint)
        if any(map(_is_too_large, args)):
            wanted = "expected numbers that a float can hold"
            raise wrong(text, wanted, "write `inf` or `-inf` for an infinity")
        values = [_constant(arg) for arg in args]
        if not all(isinstance(value, (str, bytes, int, float, complex)) for value in values):
            wanted = "expected literal[...] of strings, bytes, numbers or booleans"
            raise wrong(text, wanted, hint)
        return LiteralOf(tuple(values))

    def format(self) -> str:
        return f"{self.sort}[{', '.join(map(repr, self.values))}]"

    def with_texts(self, names: Mapping[str, str]) -> Type:
        values = (names.get(v, v) if isinstance(v, str) else v for v in self.values)
        return LiteralOf(tuple(dict.fromkeys(values)))

    def accepts(self, document: Any, seen: Any) -> bool:
        return _is_one_of(seen.held, self.values)

    def operands(self, document: Any) -> frozenset[str]:
        return frozenset(TYPES[type(value).__name__].meaning for value in self.values)

    def picks(self, document: Any) -> bool:
        return True

    def readable_as(self, want: LiteralOf, compare: Any) -> bool:
        return all(_is_one_of(value, want.values) for value in self.values)

    def widened(self) -> Type:
        names = {type(value).__name__ for value in self.values}
        return TYPES[names.pop()] if len(names) == 1 else self

    def read(self, value: Any, builder: Builder) -> Any:
        records: dict[Any, list[Any]] = {}
        for each in self.values:
            records.setdefault(TYPES[type(each).__name__], []).append(each)
        # Text is text before it is bytes or a number, if it is one of the values.
        for record in sorted(records, key=lambda record: not record.is_class(type(value))):
            with contextlib.suppress(SchemaError):
                record.read(value, Builder(None))
                if _is_one_of(record.live(value), records[record]):
                    return builder.scalar(record, value)
        is_word = value in ("inf", "-inf", "nan") and TYPES["float"] in records
        raise not_a_value(value, self, TYPES["float"].spelling if is_word else None)

    def neutral(self, document: Any) -> Any:
        return TYPES[type(self.values[0]).__name__].to_plain(self.values[0])

    def outside_jax(self, document: Any) -> bool:
        return any(isinstance(value, (str, bytes)) for value in self.values)

    def texts(self, document: Any) -> list[str]:
        return [value for value in self.values if isinstance(value, str)]

    def spelled(self, document: Any) -> Mapping[str, Any] | None:
        texts = {spelling(v): v for v in self.values if isinstance(v, (str, int))}
        return texts if len(texts) == len(self.values) else None

    def rule(self, document: Any) -> Rule:
        nodes: dict[Any, list[Node]] = {}
        for value in self.values:
            record: Any = TYPES[type(value).__name__]
            nodes.setdefault(record, []).append(record.node(record.to_plain(value)))
        rules: list[Rule] = [{"enum": [*chain.from_iterable(nodes.values())]}]
        for record, written in nodes.items():
            among: Rule = {"enum": written}
            rules.append(kind_rule("numpy-scalar", dtype=record.own_dtypes, value=among))
        return {"anyOf": rules}

    def annotation(self, owner: Any, stub: Any) -> str:
        return str(stub.literal(self.values))

    def example(self, sample: Any) -> Any:
        return sample.one_of(self.values)


#: Words of constants: booleans as YAML and JSON write them, and numbers as Python prints them.
_WORDS: Mapping[str, Any] = {
    "true": True,
    "false": False,
    "inf": math.inf,
    "nan": math.nan,
    "infj": complex(0, math.inf),
    "nanj": complex(0, math.nan),
}


class _Words(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_WORDS[node.id]) if node.id in _WORDS else node


def _joins_strings(text: str) -> bool:
    """True if two strings follow each other, which Python would join."""
    read = io.StringIO(text.strip()).readline
    kinds = [token.type for token in tokenize.generate_tokens(read) if token.string.strip()]
    return any(pair == (tokenize.STRING, tokenize.STRING) for pair in pairwise(kinds))


def _is_too_large(arg: ast.expr) -> bool:
    """True if a number is written with digits and too large for a float."""
    numbers = (node.value for node in ast.walk(arg) if isinstance(node, ast.Constant))
    return any(isinstance(n, (float, complex)) and not cmath.isfinite(n) for n in numbers)


def _constant(arg: ast.expr) -> Any:
    """The constant that an expression writes, or None."""
    if isinstance(arg, ast.Constant):
        return arg.value
    text = ast.unparse(arg).replace(" ", "")
    try:
        value = ast.literal_eval(_Words().visit(arg))
    except (ValueError, OverflowError):
        return None
    return complex(text) if type(value) is complex else value  # a sum loses the signs of zeros
