"""The field type of stacked structs: one instance of a struct whose arrays have a leading axis, for scan over layers.

Example:
    >>> from neuralqx_struct.types.text import parse_type
    >>> parse_type("Layer[d][n_layers]").format(), parse_type("Layer[ ][3]").format()
    ('Layer[d][n_layers]', 'Layer[][3]')

The type of a field of one layer, and of the same field of the stacked ones:
    >>> one = parse_type("list[float32[d, d]]")
    >>> one.with_axes(parse_type("int8[n]").extents).format()
    'list[float32[n, d, d]]'
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import Expression, from_ast, parse
from neuralqx_struct.types.records import TYPES, Extent, Rule, Type, walk_type
from neuralqx_struct.types.text import Builder, wrong
from neuralqx_struct.types.unions import Named

#: Axes of which JSON Schemas know; structs that are stacked inside of themselves, which lint refuses, have any number.
_MOST_AXES = 16


@dataclass(frozen=True, slots=True)
class Stacked(Type):
    """A struct whose arrays and keys all have the same leading axes; files write one, a stacked struct in it adds its own."""

    sort = "stacked"
    meaning = "struct"
    stacks = True
    item: Named
    lead: tuple[Expression, ...]

    @classmethod
    def around(cls, item: Type, args: list[ast.expr], text: str) -> Type:
        """The type for ``item[args]``.

        Raises:
            SchemaError: NQX101: ``item`` is no struct, or there is more than one axis.
        """
        if not isinstance(item, Named):
            raise _not_stacked(item, args, text)
        if len(args) != 1:
            hint = f"such as {Stacked(item, (parse('n'),)).format()}"
            raise wrong(text, "expected one size for the leading axis", hint)
        return Stacked(item, (from_ast(args[0]),))

    def format(self) -> str:
        inside = self.item.format() if self.item.arguments else f"{self.item.format()}[]"
        return f"{inside}[{', '.join(axis.text for axis in self.lead)}]"

    @property
    def parts(self) -> tuple[Type, ...]:
        return (self.item,)

    @property
    def fixed_parts(self) -> tuple[Type, ...]:
        return self.parts

    @property
    def extents(self) -> tuple[Extent, ...]:  # type: ignore[override]
        return self.lead

    @property
    def listed(self) -> Type | None:  # type: ignore[override]
        return TYPES["list"](self.item, self.lead[0]) if len(self.lead) == 1 else None

    def with_parts(self, parts: tuple[Any, ...]) -> Type:
        return Stacked(parts[0], self.lead)

    def with_sizes(self, change: Callable[[Any], Any]) -> Type:
        return Stacked(self.item, tuple(map(change, self.lead)))

    def with_axes(self, axes: tuple[Expression, ...]) -> Type:
        return Stacked(self.item, (*axes, *self.lead))

    def accepts(self, document: Any, seen: Any) -> bool:
        return self.item.accepts(document, seen)

    def check(self, walk: Any, seen: Any, path: Any, dims: Any) -> None:
        self.item.check_stacked(self.lead, walk, seen, path, dims)

    def gathered(self, node: Any, fit: Any) -> Any:
        return self.item.gathered(node, fit)

    def suits(self, node: Any, fit: Any) -> bool:
        return self.item.suits(node, fit)

    def readable_as(self, want: Stacked, compare: Any) -> bool:
        return compare.shapes(self.lead, want.lead) and compare.types(  # type: ignore[no-any-return]
            self.item, want.item
        )

    def read(self, value: Any, builder: Builder) -> Any:
        return self.item.read(value, builder.stacked(self.lead))

    def lay_out(self, table: Any, row: Any) -> Any:
        return table.struct(self.item, self.lead, row)

    def only_in_nodes(self, document: Any) -> bool:
        return True

    def ends(self, ends: Callable[[Any], bool]) -> bool:
        return ends(self.item)

    def looks_like(self) -> frozenset[Hashable]:
        return self.item.looks_like()

    def objections(self, document: Any) -> Iterator[tuple[str, str]]:
        return _objections(document, self.item)

    def rule(self, document: Any) -> Rule:
        if not document.is_struct(self.item.refers):
            return self.item.rule(document)
        return {"$ref": f"#/definitions/{stacked_ref(document, self.item.refers, len(self.lead))}"}

    def outline(self, document: Any) -> Rule:
        return self.item.outline(document)

    def annotation(self, owner: Any, stub: Any) -> str:
        return self.item.annotation(owner, stub)

    def example(self, sample: Any) -> Any:
        return sample.stacked(self.item, self.lead)


def stacked_ref(document: Any, struct: str, axes: int) -> str:
    """The name under which JSON Schemas define a struct with leading axes; without any, its reference."""
    axes = min(axes, _MOST_AXES)
    suffix = {0: "", 1: ".stacked"}.get(axes, f".stacked{axes}")
    return f"{document.ref(struct)}{suffix}"


def _not_stacked(item: Type, args: list[ast.expr], text: str) -> SchemaError:
    sizes = ", ".join(map(ast.unparse, args))
    hint = "write a struct in front of the brackets, as in Layer[d][n] or Layer[][n]"
    if item.element:
        hint = f"write the axes of an array together, such as {item.element}[{sizes}, ...]"
    elif isinstance(item, Stacked):
        hint = "stack a struct that holds a stacked one"
    elif item.parts:
        hint = f"write the length of a list behind its type, as in list[Layer, {sizes}]"
    return wrong(text, "expected a struct to stack", hint)


def _objections(document: Any, item: Type) -> Iterator[tuple[str, str]]:
    """Yields why instances of a struct cannot be stacked, and a fix."""
    if document.members_of(item.refers) is not None:
        got = f"{item.format()}, which is an enum"
        yield f"a struct to stack, got {got}", f"write list[{item.format()}, n]"
        return
    owner, name = document.place_of(item.refers)
    if owner is document and name not in owner.structs:
        return  # reported as an unknown name
    found = False
    todo, met = [(item, "", True)], set[str]()
    while todo:
        outer, where, always = todo.pop()
        if any(inner.stacks and inner.parts[0].refers == item.refers for inner in walk_type(outer)):
            yield (
                f"a struct that is not stacked inside of itself, got {item.format()}{where}",
                "write a list of it there",
            )
        for inner, sure in _leaves(outer, always):
            if inner.element or inner.key_impl:
                found = found or sure
            elif document.is_struct(inner.refers):
                owner, name = document.place_of(inner.refers)
                if owner is not document:
                    found = True  # perhaps
                    yield (
                        f"a struct of this schema, got {inner.format()}{where}",
                        "stack the struct in the schema that declares it",
                    )
                elif name not in met:
                    met.add(name)
                    todo += [
                        (field.declared, f" in {name}.{member}", sure)
                        for member, field in owner.structs[name].stored.items()
                        if field.kind == "node"
                    ]
            elif inner.sort != "null":
                yield (
                    f"a struct of arrays, got {inner.format()}{where}, which has no leading axis",
                    "write `kind: static` if it is a setting, or an array such as float32[]",
                )
    if not found:
        yield (
            f"a struct with an array in every instance, got {item.format()}",
            f"nothing else shows how many are stacked; list[{item.format()}, n] does",
        )


def _leaves(declared: Type, always: bool) -> Iterator[tuple[Type, bool]]:
    """Yields the types without others inside; with True for those of which every value has one."""
    sure = always and len(declared.branches) == 1
    if not declared.parts:
        yield declared, sure
    for part in declared.parts:
        yield from _leaves(part, sure and part in declared.fixed_parts)
