"""Field types of values that hold others: lists, tuples, dicts with text as keys, and any tree."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import Expression, from_ast
from neuralqx_struct.types.records import NO_VALUE, Extent, Node, Rule, Type, type_names
from neuralqx_struct.types.scalars import ANY_NODE, kind_rule
from neuralqx_struct.types.text import (
    Builder,
    constant_size,
    is_nonfinite,
    not_a_value,
    type_of_tree,
    wrong,
)


class Collection(Type):
    """A type whose values hold others."""

    __slots__ = ()
    #: Kinds of nodes in manifests.
    kinds: tuple[str, ...]
    bounds = ("length",)
    alone = True
    many = '"*" '

    def parts_for(self, count: int) -> tuple[Type, ...] | None:
        return self.parts * count

    def check(self, walk: Any, seen: Any, path: Any, dims: Any) -> None:
        parts = self.parts_for(len(seen.items))
        if seen.sort != self.meaning or parts is None:
            walk.mismatch(self, seen, path)
            return
        for (key, item), part in zip(seen.items.items(), parts, strict=True):
            walk.value(part, walk.read(item), (*path, key), dims)

    def readable_as(self, want: Any, compare: Any) -> bool:
        return compare.types(self.parts[0], want.parts[0])  # type: ignore[no-any-return]

    def gathered(self, node: Node, fit: Any) -> Node:
        items = fit.positions(node)
        return node if items is None else {"__kind__": self.kinds[0], "items": items}

    def children(self, node: Node) -> list[tuple[Any, Type, Node]]:
        if not isinstance(node, dict) or node["__kind__"] not in self.kinds:
            return []
        parts = self.parts_for(len(node["items"]))
        return [
            (place, part, item)
            for place, (part, item) in enumerate(zip(parts or (), node["items"], strict=False))
        ]

    def with_children(self, node: Node, made: list[Node]) -> Node:
        return {**node, "items": made}

    def lay_out(self, table: Any, row: Any) -> Any:
        return table.items(self, row)

    def read(self, value: Any, builder: Builder) -> Any:
        parts = self.parts_for(len(value)) if isinstance(value, list) else None
        if parts is None:
            raise not_a_value(value, self)
        items = [part.read(item, builder) for item, part in zip(value, parts, strict=True)]
        return builder.sequence(self.sort, items)

    def outline(self, document: Any) -> Rule:
        return kind_rule(*self.kinds)

    def annotation(self, owner: Any, stub: Any) -> str:
        return f"{stub.source(self.sort)}[{stub.type(owner, self.parts[0])}]"


@dataclass(frozen=True, slots=True)
class ListOf(Collection):
    """A list; its length is a size, or any number."""

    sort = "list"
    words = (sort,)
    kinds = ("list",)
    meaning = "list"
    unhashable = "a list"
    hashable_form = "a tuple"
    item: Type
    length: Expression | None = None

    @property
    def parts(self) -> tuple[Type, ...]:
        return (self.item,)

    @property
    def families(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.item.families if self.axes else ()

    @property
    def axes(self) -> int | None:  # type: ignore[override]
        plain = self.item.axes == 0 and not self.item.element
        return 1 if plain else None

    @classmethod
    def parse(cls, word: str, args: list[ast.expr] | None, text: str) -> Type:
        if args is None:
            raise _no_brackets(word, text)
        if len(args) not in (1, 2):
            raise wrong(text, "expected list[T], or list[T, n] with the length n")
        item, *length = args
        if any(isinstance(each, ast.Name) and each.id in type_names() for each in length):
            raise wrong(text, "expected list[T] with one type, and its length behind it")
        sizes = [size for size in map(from_ast, length) if size.text != "_"]  # any length
        return ListOf(type_of_tree(item, text), *sizes)

    def format(self) -> str:
        length = "" if self.length is None else f", {self.length.text}"
        return f"{self.sort}[{self.item.format()}{length}]"

    @property
    def extents(self) -> tuple[Extent, ...]:  # type: ignore[override]
        return () if self.length is None else (self.length,)

    @property
    def count(self) -> int | None:  # type: ignore[override]
        return None if self.length is None else constant_size(self.length)

    def stacked(self, size: Expression) -> Type | None:
        layered = self.item.refers or self.item.element or self.item.key_impl
        return self.item.with_axes((size,)) if layered else None

    @property
    def fixed_parts(self) -> tuple[Type, ...]:
        return self.parts if self.count else ()

    def with_parts(self, parts: tuple[Type, ...]) -> Type:
        return ListOf(parts[0], self.length)

    def with_sizes(self, change: Callable[[Any], Any]) -> Type:
        return self if self.length is None else ListOf(self.item, change(self.length))

    def check(self, walk: Any, seen: Any, path: Any, dims: Any) -> None:
        Collection.check(self, walk, seen, path, dims)
        if seen.sort == self.meaning:
            walk.unify(dims, self.extents, (len(seen.items),) * len(self.extents), path, self.sort)

    def readable_as(self, want: ListOf, compare: Any) -> bool:
        as_long = want.length is None or compare.shapes(self.extents, want.extents)
        return as_long and bool(compare.types(self.item, want.item))

    def read(self, value: Any, builder: Builder) -> Any:
        if self.length is not None and isinstance(value, list) and len(value) != self.count:
            fix = "write a list of that length" if self.count is not None else None
            why = fix or f"{self.length.text} is known only from an instance"
            raise not_a_value(value, self, why)
        return Collection.read(self, value, builder)

    def ends(self, ends: Callable[[Type], bool]) -> bool:
        return self.length is None or self.count == 0 or ends(self.item)

    def neutral(self, document: Any) -> Any:
        return [] if self.length is None else NO_VALUE

    def item_at(self, index: int) -> Type:
        return self.item

    def rule(self, document: Any) -> Rule:
        items: Rule = {"type": "array", "items": self.item.rule(document)}
        if self.count is not None:
            items |= {"minItems": self.count, "maxItems": self.count}
        return kind_rule(self.sort, items=items)

    def example(self, sample: Any) -> Any:
        count = sample.length(self.item) if self.length is None else sample.count_of(self.length)
        return sample.items([self.item] * count)


@dataclass(frozen=True, slots=True)
class TupleOf(Collection):
    """A tuple: one type for each item, or with ``variadic`` one type for any number of items."""

    sort = "tuple"
    words = (sort,)
    kinds = ("tuple",)
    meaning = "tuple"
    items: tuple[Type, ...]
    variadic: bool = False

    @property
    def parts(self) -> tuple[Type, ...]:
        return self.items

    @classmethod
    def parse(cls, word: str, args: list[ast.expr] | None, text: str) -> Type:
        if args is None:
            raise _no_brackets(word, text)
        last = args[-1] if len(args) == 2 else None
        if isinstance(last, ast.Constant) and last.value is ...:
            return TupleOf((type_of_tree(args[0], text),), variadic=True)
        return TupleOf(tuple(type_of_tree(arg, text) for arg in args))

    def format(self) -> str:
        dots = ", ..." if self.variadic else ""
        return f"{self.sort}[{', '.join(item.format() for item in self.items)}{dots}]"

    def parts_for(self, count: int) -> tuple[Type, ...] | None:
        if self.variadic:
            return self.items * count
        return self.items if len(self.items) == count else None

    @property
    def count(self) -> int | None:  # type: ignore[override]
        return None if self.variadic else len(self.items)

    @property
    def fixed_parts(self) -> tuple[Type, ...]:
        return () if self.variadic else self.items

    def with_parts(self, parts: tuple[Type, ...]) -> Type:
        return TupleOf(parts, self.variadic)

    def item_at(self, index: int) -> Type | None:
        if self.variadic:
            return self.items[0]
        count = len(self.items)
        return self.items[index] if -count <= index < count else None

    def readable_as(self, want: TupleOf, compare: Any) -> bool:
        if want.variadic:
            some = self.variadic or bool(self.items)
            return some and all(compare.types(item, want.items[0]) for item in self.items)
        if self.variadic or len(self.items) != len(want.items):
            return False
        return all(map(compare.types, self.items, want.items))

    def ends(self, ends: Callable[[Type], bool]) -> bool:
        return self.variadic or all(map(ends, self.items))

    def neutral(self, document: Any) -> Any:
        if self.variadic:
            return []
        made = [item.neutral(document) for item in self.items]
        return NO_VALUE if NO_VALUE in made else made

    def rule(self, document: Any) -> Rule:
        found = [item.rule(document) for item in self.items]
        rules = list({str(rule): rule for rule in found}.values())
        items: Rule = {"type": "array"}
        if rules:
            items["items"] = rules[0] if len(rules) == 1 else {"anyOf": rules}
        if not self.variadic:
            items |= {"minItems": len(self.items), "maxItems": len(self.items)}
        return kind_rule(self.sort, items=items)

    def annotation(self, owner: Any, stub: Any) -> str:
        inside = [stub.type(owner, item) for item in self.items]
        inside += ["..."] if self.variadic else []
        return f"{stub.source(self.sort)}[{', '.join(inside) or '()'}]"

    def example(self, sample: Any) -> Any:
        count = sample.length(self.items[0]) if self.variadic else 1
        return tuple(sample.items(self.items * count))


@dataclass(frozen=True, slots=True)
class DictOf(Collection):
    """A dict with str keys."""

    sort = "dict"
    words = (sort,)
    kinds = ("dict", "ordered-dict")
    meaning = "dict"
    unhashable = "a dict"
    suggestion = {}
    value: Type

    @property
    def parts(self) -> tuple[Type, ...]:
        return (self.value,)

    @classmethod
    def parse(cls, word: str, args: list[ast.expr] | None, text: str) -> Type:
        if args is None:
            raise _no_brackets(word, text)
        if len(args) != 2 or not (isinstance(args[0], ast.Name) and args[0].id == "str"):
            raise wrong(text, "expected dict[str, T]", "keys of a dict are always str")
        return DictOf(type_of_tree(args[1], text))

    def format(self) -> str:
        return f"{self.sort}[str, {self.value.format()}]"

    @property
    def below(self) -> Type:  # type: ignore[override]
        return self.value

    def with_parts(self, parts: tuple[Type, ...]) -> Type:
        return DictOf(parts[0])

    def gathered(self, node: Node, fit: Any) -> Node:
        items = fit.named(node)
        return node if items is None else {"__kind__": self.kinds[0], "items": [*items.items()]}

    def children(self, node: Node) -> list[tuple[Any, Type, Node]]:
        if not isinstance(node, dict) or node["__kind__"] not in self.kinds:
            return []
        return [(key, self.value, item) for key, item in node["items"]]

    def with_children(self, node: Node, made: list[Node]) -> Node:
        keys = [key for key, _ in node["items"]]
        return {**node, "items": [[key, item] for key, item in zip(keys, made, strict=True)]}

    def lay_out(self, table: Any, row: Any) -> Any:
        return table.pairs(self, row)

    def read(self, value: Any, builder: Builder) -> Any:
        if not isinstance(value, dict):
            raise not_a_value(value, self)
        items = {key: self.value.read(item, builder) for key, item in value.items()}
        return builder.mapping(items)

    def rule(self, document: Any) -> Rule:
        value = self.value.rule(document)
        # A pair is a key, which is text, and a value: whatever is not text has to be a value.
        items = {"if": {"type": "string"}, "else": value}
        pair = {"type": "array", "minItems": 2, "maxItems": 2, "items": items, "contains": value}
        return kind_rule(*self.kinds, items={"type": "array", "items": pair})

    def annotation(self, owner: Any, stub: Any) -> str:
        text, value = stub.source("str"), stub.type(owner, self.value)
        return f"{stub.source(self.sort)}[{text}, {value}]"

    def example(self, sample: Any) -> Any:
        count = sample.length(self.value)
        items = sample.items([self.value] * count)
        return {f"key{place}": item for place, item in enumerate(items)}


@dataclass(frozen=True, slots=True)
class PyTree(Type):
    """Any tree of values that can be stored."""

    sort = "pytree"
    words = (sort,)
    takes_all = True
    suggestion = None
    bounds = ("number", "text", "length")

    @classmethod
    def parse(cls, word: str, args: list[ast.expr] | None, text: str) -> Type:
        return PyTree() if args is None else Type.parse(word, args, text)

    def gathered(self, node: Node, fit: Any) -> Node:
        return node

    @property
    def below(self) -> Type:  # type: ignore[override]
        return self

    def format(self) -> str:
        return self.sort

    def accepts(self, document: Any, seen: Any) -> bool:
        return True

    def read(self, value: Any, builder: Builder) -> Any:
        if isinstance(value, list):
            return builder.sequence("list", [self.read(item, builder) for item in value])
        if isinstance(value, dict):
            items = {key: self.read(item, builder) for key, item in value.items()}
            return builder.mapping(items)
        if is_nonfinite(value):  # without quotes it is a number to YAML, and text to JSON
            raise not_a_value(value, self, "declare the type of the number: float")
        return builder.number(value)

    def only_in_nodes(self, document: Any) -> bool:
        return True

    def rule(self, document: Any) -> Rule:
        return ANY_NODE

    def annotation(self, owner: Any, stub: Any) -> str:
        return str(stub.source("typing.Any"))

    def argument(self, owner: Any, stub: Any) -> str:
        return str(stub.source("object"))

    def example(self, sample: Any) -> Any:
        if sample.field.kind == "static":
            return sample.between(0, 9)
        return sample.array("float32", (2,))


def _no_brackets(word: str, text: str) -> SchemaError:
    hint = "name the types inside, as in list[Layer] or dict[str, Expert]"
    return wrong(text, f"expected {word}[...]", hint)
