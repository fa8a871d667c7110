"""Field types of collections: lists, tuples and dicts with text as keys."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.types.records import (
    NO_VALUE,
    DictOf,
    ListOf,
    Node,
    Rule,
    TupleOf,
    Type,
    TypeRecord,
)
from neuralqx_struct.types.scalars import kind_rule
from neuralqx_struct.types.text import (
    Builder,
    format_type,
    not_a_value,
    read_value,
    type_of_tree,
    wrong,
)


@dataclass(frozen=True, kw_only=True)
class CollectionRecord(TypeRecord):
    """A type whose values hold others.

    Attributes:
        kinds: Kinds of nodes in manifests.
    """

    kinds: tuple[str, ...]
    bounds: ClassVar[tuple[str, ...]] = ("length",)
    alone: ClassVar[bool] = True
    many: ClassVar[str] = '"*" '

    def parts(self, declared: Any) -> tuple[Type, ...]:
        """The type of the values inside."""
        return (self.inside(declared),)

    def inside(self, declared: Any) -> Type:
        """The type of the values inside."""
        return declared.item  # type: ignore[no-any-return]

    def parts_for(self, declared: Any, count: int) -> tuple[Type, ...] | None:
        """The type of each of so many values; None if there cannot be so many."""
        return (self.inside(declared),) * count

    def check(
        self,
        declared: Any,
        walk: Any,
        seen: Any,
        path: Any,
        dims: Any,
    ) -> None:
        """Checks each value inside."""
        parts = self.parts_for(declared, len(seen.items))
        if seen.sort != self.meaning or parts is None:
            walk.mismatch(declared, seen, path)
            return
        for (key, item), part in zip(seen.items.items(), parts, strict=True):
            walk.value(part, walk.read(item), (*path, key), dims)

    def readable_as(
        self,
        have: Any,
        want: Any,
        compare: Any,
    ) -> bool:
        """True if the values inside are readable."""
        return compare.types(self.inside(have), self.inside(want))  # type: ignore[no-any-return]

    def children(self, declared: Any, node: Node) -> list[tuple[Any, Type, Node]]:
        """Returns position, type and node of each value inside."""
        if not isinstance(node, dict) or node["__kind__"] not in self.kinds:
            return []
        parts = self.parts_for(declared, len(node["items"]))
        return [
            (place, part, item)
            for place, (part, item) in enumerate(zip(parts or (), node["items"], strict=False))
        ]

    def with_children(
        self,
        declared: Any,
        node: Node,
        made: list[Node],
    ) -> Node:
        """The node with other items."""
        return {**node, "items": made}

    def read(
        self,
        declared: Any,
        value: Any,
        builder: Builder,
    ) -> Any:
        """The values of a list."""
        parts = self.parts_for(declared, len(value)) if isinstance(value, list) else None
        if parts is None:
            raise not_a_value(value, declared)
        items = [read_value(item, part, builder) for item, part in zip(value, parts, strict=True)]
        return builder.sequence(self.name, items)

    def outline(self, declared: Any, document: Any) -> Rule:
        """The rule of the kind alone."""
        return kind_rule(*self.kinds)

    def annotation(
        self,
        declared: Any,
        owner: Any,
        stub: Any,
    ) -> str:
        """The collection of its item type."""
        return f"{stub.source(self.name)}[{stub.type(owner, self.inside(declared))}]"


class ListRecord(CollectionRecord):
    """A list."""

    meaning: ClassVar[str] = "list"
    unhashable: ClassVar[str] = "a list"
    suggestion: ClassVar[Any] = []

    def parse(
        self,
        word: str,
        args: list[ast.expr] | None,
        text: str,
    ) -> Type:
        """The list of one type."""
        if args is None:
            raise _no_brackets(word, text)
        if len(args) != 1:
            raise wrong(text, "expected list[T] with one type")
        return ListOf(type_of_tree(args[0], text))

    def format(self, declared: ListOf) -> str:
        """The list of its item type."""
        return f"{self.name}[{format_type(declared.item)}]"

    def with_parts(self, declared: ListOf, parts: tuple[Type, ...]) -> Type:
        """The list of another type."""
        return ListOf(parts[0])

    def rule(self, declared: ListOf, document: Any) -> Rule:
        """The rule of lists."""
        items = {"type": "array", "items": declared.item.record.rule(declared.item, document)}
        return kind_rule(self.name, items=items)

    def example(
        self,
        declared: ListOf,
        sample: Any,
        field: Any,
        local: Any,
        depth: int,
    ) -> Any:
        """A short list."""
        count = sample.length(field, declared.item, depth)
        return [sample.value(declared.item, field, local, depth) for _ in range(count)]


class TupleRecord(CollectionRecord):
    """A tuple: of one type for each item, or of any number of items of one type."""

    meaning: ClassVar[str] = "tuple"

    def parse(
        self,
        word: str,
        args: list[ast.expr] | None,
        text: str,
    ) -> Type:
        """The tuple of some types; ``...`` behind one type repeats it."""
        if args is None:
            raise _no_brackets(word, text)
        last = args[-1] if len(args) == 2 else None
        if isinstance(last, ast.Constant) and last.value is ...:
            return TupleOf((type_of_tree(args[0], text),), variadic=True)
        return TupleOf(tuple(type_of_tree(arg, text) for arg in args))

    def format(self, declared: TupleOf) -> str:
        """The tuple of its item types."""
        dots = ", ..." if declared.variadic else ""
        return f"{self.name}[{', '.join(map(format_type, declared.items))}{dots}]"

    def parts(self, declared: TupleOf) -> tuple[Type, ...]:
        """The types of the items."""
        return declared.items

    def inside(self, declared: TupleOf) -> Type:
        """The type of the first item."""
        return declared.items[0]

    def parts_for(self, declared: TupleOf, count: int) -> tuple[Type, ...] | None:
        """The type of each of so many items; None if there cannot be so many."""
        if declared.variadic:
            return declared.items * count
        return declared.items if len(declared.items) == count else None

    def with_parts(self, declared: TupleOf, parts: tuple[Type, ...]) -> Type:
        """The tuple of other types."""
        return TupleOf(parts, declared.variadic)

    def readable_as(
        self,
        have: TupleOf,
        want: TupleOf,
        compare: Any,
    ) -> bool:
        """True if each item is readable, and the number of items is allowed."""
        if want.variadic:
            some = have.variadic or bool(have.items)
            return some and all(compare.types(item, want.items[0]) for item in have.items)
        if have.variadic or len(have.items) != len(want.items):
            return False
        return all(map(compare.types, have.items, want.items))

    def ends(self, declared: TupleOf, ends: Callable[[Type], bool]) -> bool:
        """True if it may be empty, or every item has a finite value."""
        return declared.variadic or all(map(ends, declared.items))

    def neutral(self, declared: TupleOf, document: Any) -> Any:
        """Returns neutral values of the items."""
        if declared.variadic:
            return []
        made = [item.record.neutral(item, document) for item in declared.items]
        return NO_VALUE if NO_VALUE in made else made

    def rule(self, declared: TupleOf, document: Any) -> Rule:
        """The rule of tuples; each item may be any of them, as drafts share no keyword for more."""
        found = [item.record.rule(item, document) for item in declared.items]
        rules = list({str(rule): rule for rule in found}.values())
        items: Rule = {"type": "array"}
        if rules:
            items["items"] = rules[0] if len(rules) == 1 else {"anyOf": rules}
        if not declared.variadic:
            items |= {"minItems": len(declared.items), "maxItems": len(declared.items)}
        return kind_rule(self.name, items=items)

    def annotation(
        self,
        declared: TupleOf,
        owner: Any,
        stub: Any,
    ) -> str:
        """The tuple of its item types."""
        inside = [stub.type(owner, item) for item in declared.items]
        inside += ["..."] if declared.variadic else []
        return f"{stub.source(self.name)}[{', '.join(inside) or '()'}]"

    def example(
        self,
        declared: TupleOf,
        sample: Any,
        field: Any,
        local: Any,
        depth: int,
    ) -> Any:
        """A tuple."""
        items = declared.items
        if declared.variadic:
            items *= sample.length(field, items[0], depth)
        return tuple(sample.value(item, field, local, depth) for item in items)


class DictRecord(CollectionRecord):
    """A dict with text as keys."""

    meaning: ClassVar[str] = "dict"
    unhashable: ClassVar[str] = "a dict"
    suggestion: ClassVar[Any] = {}

    def parse(
        self,
        word: str,
        args: list[ast.expr] | None,
        text: str,
    ) -> Type:
        """The dict of one type."""
        if args is None:
            raise _no_brackets(word, text)
        if len(args) != 2 or not (isinstance(args[0], ast.Name) and args[0].id == "str"):
            raise wrong(text, "expected dict[str, T]", "keys of a dict are always str")
        return DictOf(type_of_tree(args[1], text))

    def format(self, declared: DictOf) -> str:
        """The dict of its value type."""
        return f"{self.name}[str, {format_type(declared.value)}]"

    def inside(self, declared: DictOf) -> Type:
        """The type of the values."""
        return declared.value

    def with_parts(self, declared: DictOf, parts: tuple[Type, ...]) -> Type:
        """The dict of another type."""
        return DictOf(parts[0])

    def children(self, declared: DictOf, node: Node) -> list[tuple[Any, Type, Node]]:
        """Returns key, type and node of each value, in ordered dicts too."""
        if not isinstance(node, dict) or node["__kind__"] not in self.kinds:
            return []
        return [(key, declared.value, item) for key, item in node["items"]]

    def with_children(
        self,
        declared: Any,
        node: Node,
        made: list[Node],
    ) -> Node:
        """The node with other values under the same keys."""
        keys = [key for key, _ in node["items"]]
        return {**node, "items": [[key, item] for key, item in zip(keys, made, strict=True)]}

    def read(
        self,
        declared: DictOf,
        value: Any,
        builder: Builder,
    ) -> Any:
        """The values of a dict."""
        if not isinstance(value, dict):
            raise not_a_value(value, declared)
        items = {key: read_value(item, declared.value, builder) for key, item in value.items()}
        return builder.mapping(items)

    def rule(self, declared: DictOf, document: Any) -> Rule:
        """The rule of dicts."""
        value = declared.value.record.rule(declared.value, document)
        # A pair is a key, which is text, and a value: whatever is not text has to be a value.
        items = {"if": {"type": "string"}, "else": value}
        pair = {"type": "array", "minItems": 2, "maxItems": 2, "items": items, "contains": value}
        return kind_rule(*self.kinds, items={"type": "array", "items": pair})

    def annotation(
        self,
        declared: DictOf,
        owner: Any,
        stub: Any,
    ) -> str:
        """The dict of its value type."""
        text, value = stub.source("str"), stub.type(owner, declared.value)
        return f"{stub.source(self.name)}[{text}, {value}]"

    def example(
        self,
        declared: DictOf,
        sample: Any,
        field: Any,
        local: Any,
        depth: int,
    ) -> Any:
        """A small dict."""
        count = sample.length(field, declared.value, depth)
        return {
            f"key{place}": sample.value(declared.value, field, local, depth)
            for place in range(count)
        }


def _no_brackets(word: str, text: str) -> SchemaError:
    hint = "name the types inside, as in list[Layer] or dict[str, Expert]"
    return wrong(text, f"expected {word}[...]", hint)
