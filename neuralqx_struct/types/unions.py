"""Field types that others give their meaning: null, unions, structs and enums."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import Expression, from_ast
from neuralqx_struct.printing import listed
from neuralqx_struct.types.records import NO_VALUE, TYPES, Node, Rule, Type
from neuralqx_struct.types.scalars import kind_rule
from neuralqx_struct.types.text import Builder, not_a_value, union_of


@dataclass(frozen=True, slots=True)
class Null(Type):
    """None."""

    sort = "null"
    words = (sort,)
    meaning = "null"
    suggestion = None

    @classmethod
    def parse(cls, word: str, args: list[ast.expr] | None, text: str) -> Type:
        return Null() if args is None else Type.parse(word, args, text)

    def format(self) -> str:
        return self.sort

    def read(self, value: Any, builder: Builder) -> Any:
        if value is not None:
            raise not_a_value(value, self)

    def texts(self, document: Any) -> list[str]:
        return []

    def rule(self, document: Any) -> Rule:
        return {"type": "null"}

    def annotation(self, owner: Any, stub: Any) -> str:
        return "None"

    def example(self, sample: Any) -> None:
        """None."""


@dataclass(frozen=True, slots=True)
class Union(Type):
    """One of several types; ``T | null`` is optional. A value has the first option that accepts it."""

    sort = "union"
    options: tuple[Type, ...]

    def format(self) -> str:
        return " | ".join(option.format() for option in self.options)

    @property
    def parts(self) -> tuple[Type, ...]:
        return self.options

    @property
    def branches(self) -> tuple[Type, ...]:
        return self.options

    def with_parts(self, parts: tuple[Type, ...]) -> Type:
        return union_of(parts)

    def accepts(self, document: Any, seen: Any) -> bool:
        return any(option.accepts(document, seen) for option in self.options)

    def check(self, walk: Any, seen: Any, path: Any, dims: Any) -> None:
        document = walk.document
        for option in self.options:
            if option.accepts(document, seen):
                walk.value(option, seen, path, dims)
                return
        # Text beside one enum and null is a misspelt member.
        enums = [option for option in self.solid if document.members_of(option.refers)]
        if isinstance(seen.held, str) and len(enums) == 1 and enums == [*self.solid]:
            walk.value(enums[0], seen, path, dims)
        else:
            walk.mismatch(self, seen, path)

    def children(self, node: Node) -> list[tuple[Any, Type, Node]]:
        option = self._holder(node)
        return option.children(node)

    def with_children(self, node: Node, made: list[Node]) -> Node:
        option = self._holder(node)
        return option.with_children(node, made)

    def _holder(self, node: Node) -> Type:
        found = (option for option in self.options if option.children(node))
        return next(found, self.options[0])

    def fitted(self, node: Node, fit: Any) -> Node:
        option = next((each for each in self.options if each.suits(node, fit)), None)
        if option is None and node is not None and len(self.solid) == 1:
            option = self.solid[0]
        return node if option is None else option.fitted(node, fit)

    def read(self, value: Any, builder: Builder) -> Any:
        hint = None
        for option in self.options:
            try:
                return option.read(value, builder)
            except SchemaError as error:
                if error.code != "NQX107":
                    raise
                hint = hint or error.diagnostics[0].hint
        raise not_a_value(value, self, hint)

    def lay_out(self, table: Any, row: Any) -> Any:
        return table.options(self, row)

    def neutral(self, document: Any) -> Any:
        if self.nullable:
            return None
        values = (option.neutral(document) for option in self.options)
        return next((value for value in values if value is not NO_VALUE), NO_VALUE)

    def texts(self, document: Any) -> list[str] | None:
        known = [option.texts(document) for option in self.options]
        return None if None in known else [text for texts in known for text in texts or ()]

    def meant(self, text: str, document: Any) -> str | None:
        hints = (option.meant(text, document) for option in self.options)
        return next(filter(None, hints), None)

    def ends(self, ends: Callable[[Type], bool]) -> bool:
        return any(map(ends, self.options))

    def rule(self, document: Any) -> Rule:
        rules = [option.rule(document) for option in self.options]
        if self.nullable and len(rules) == 2:
            (other,) = self.solid
            return {"if": {"type": "null"}, "else": other.rule(document)}
        whole: Rule = {"anyOf": rules}
        for option, rule in zip(reversed(self.options), reversed(rules), strict=True):
            outline = option.outline(document)
            whole = {"if": outline, "then": rule, "else": whole}
        return whole

    def annotation(self, owner: Any, stub: Any) -> str:
        return " | ".join(dict.fromkeys(stub.type(owner, each) for each in self.options))

    def argument(self, owner: Any, stub: Any) -> str:
        found = (option.argument(owner, stub) for option in self.options)
        return " | ".join(dict.fromkeys(found))

    def example(self, sample: Any) -> Any:
        return sample.branch(self.options).example(sample)


@dataclass(frozen=True, slots=True)
class Named(Type):
    """A struct or an enum, with sizes for the struct's parameters; of another schema with its identity before it."""

    sort = "struct"
    name: str
    args: tuple[Expression, ...] = ()

    @classmethod
    def parse(cls, word: str, args: list[ast.expr] | None, text: str) -> Type:
        return Named(word, tuple(map(from_ast, args or ())))

    def format(self) -> str:
        if not self.args:
            return self.name
        return f"{self.name}[{', '.join(arg.text for arg in self.args)}]"

    @property
    def arguments(self) -> tuple[Expression, ...]:  # type: ignore[override]
        return self.args

    def with_sizes(self, change: Callable[[Any], Any]) -> Type:
        return Named(self.name, tuple(map(change, self.args)))

    @property
    def refers(self) -> str:  # type: ignore[override]
        return self.name

    def accepts(self, document: Any, seen: Any) -> bool:
        members = document.members_of(self.name)
        if members is not None:
            return seen.held in members
        return document.ref(self.name) in seen.refs[:1]

    def picks(self, document: Any) -> bool:
        return document.members_of(self.name) is not None

    def operands(self, document: Any) -> frozenset[str]:
        return frozenset({"struct" if self.texts(document) is None else "text"})

    def with_axes(self, axes: tuple[Expression, ...]) -> Type:
        stacked: Type = TYPES["stacked"](self, axes)
        return stacked

    def check(self, walk: Any, seen: Any, path: Any, dims: Any) -> None:
        self.check_stacked((), walk, seen, path, dims)

    def check_stacked(
        self, axes: tuple[Expression, ...], walk: Any, seen: Any, path: Any, dims: Any
    ) -> None:
        """As :meth:`check`, for a struct whose arrays have axes in front."""
        owner, name = walk.document.place_of(self.name)
        if name in owner.structs:
            bound = dict(zip(owner.structs[name].params, self.args, strict=False))
            walk.inner_struct(owner, name, seen, path, dims, bound, axes)
        elif name not in owner.enums:
            message = f"expected a schema that declares {name}, got none"
            walk.report("NQX404", path, message, "pass the folder it lies in")
        elif not self.accepts(walk.document, seen):
            message = f"expected one of {listed(owner.enums[name].members)}, got {seen.text}"
            walk.report("NQX421", path, message, self.meant(str(seen.held), walk.document))

    def gathered(self, node: Node, fit: Any) -> Node:
        return fit.struct(self.name, node)

    def suits(self, node: Node, fit: Any) -> bool:
        exact: bool | None = fit.has_fields_of(self.name, node)
        return Type.suits(self, node, fit) if exact is None else exact

    def readable_as(self, want: Named, compare: Any) -> bool:
        return self.name == want.name and compare.shapes(self.args, want.args)

    def read(self, value: Any, builder: Builder) -> Any:
        members = builder.document.members_of(self.name)
        if members is not None:
            if value not in members:
                raise not_a_value(value, self, self.meant(str(value), builder.document))
            return value
        if not builder.structs and not builder.document.is_struct(self.name):
            return value  # lint reports the unknown name itself; no payload gets such a value
        structs = builder.document.structs if builder.structs else {}
        if not isinstance(value, dict) or self.name not in structs:
            raise not_a_value(value, self)
        stored = structs[self.name].stored
        missing = [name for name in stored if name not in value and not stored[name].has_default]
        if missing or value.keys() - stored.keys():
            raise not_a_value(value, self)
        given = {name: value.get(name, field.default) for name, field in stored.items()}
        inside = builder.inside(self.name)
        fields = {name: field.declared.read(given[name], inside) for name, field in stored.items()}
        return builder.struct(self.name, fields)

    def lay_out(self, table: Any, row: Any) -> Any:
        return table.struct(self, (), row)

    def neutral(self, document: Any) -> Any:
        members = document.members_of(self.name)
        return members[0] if members else NO_VALUE

    def outside_jax(self, document: Any) -> bool:
        return document.members_of(self.name) is not None

    def only_in_nodes(self, document: Any) -> bool:
        return not self.outside_jax(document)

    def texts(self, document: Any) -> list[str] | None:
        return document.members_of(self.name)  # type: ignore[no-any-return]

    def meant(self, text: str, document: Any) -> str | None:
        owner, name = document.place_of(self.name)
        now = owner.enums[name].former.get(text) if name in owner.enums else None
        return Type.meant(self, text, document) if now is None else f"{text} is called {now} now"

    def ends(self, ends: Callable[[Type | str], bool]) -> bool:
        return ends(self.name)

    def rule(self, document: Any) -> Rule:
        members = document.members_of(self.name)
        if members is None:
            return {"$ref": f"#/definitions/{document.ref(self.name)}"}
        member = {"enum": list(members)}
        text = kind_rule("numpy-scalar", dtype=TYPES["str"].own_dtypes, value=member)
        other = kind_rule("enum", name=member)
        nodes = {"if": kind_rule("numpy-scalar"), "then": text, "else": other}
        return {"if": {"type": "object"}, "then": nodes, "else": member}

    def outline(self, document: Any) -> Rule:
        if not document.is_struct(self.name):
            return self.rule(document)
        return kind_rule("struct", type={"const": document.ref(self.name)})

    def annotation(self, owner: Any, stub: Any) -> str:
        members = owner.members_of(self.name)
        if members is not None:
            return str(stub.literal(tuple(members)))
        return str(stub.class_of(owner, self.name))

    def example(self, sample: Any) -> Any:
        members = sample.document.members_of(self.name)
        if members is not None:
            name = sample.one_of(members)
            enum = sample.classes.get(self.name)  # of Python
            return name if enum is None else enum[name]
        return sample.inner_struct(self)
