"""Field types that name others: unions, structs and enums."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from neuralqx_struct.errors import SchemaError, did_you_mean
from neuralqx_struct.expressions import Expression, from_ast
from neuralqx_struct.types.records import (
    NO_VALUE,
    Named,
    Node,
    Null,
    Rule,
    Sorts,
    Type,
    TypeRecord,
    Union,
)
from neuralqx_struct.types.scalars import kind_rule
from neuralqx_struct.types.text import Builder, format_type, not_a_value, read_value, union_of


class UnionRecord(TypeRecord):
    """One of several types. A value has the first option that accepts it."""

    @property
    def words(self) -> tuple[str, ...]:
        """No word: a union is written with ``|``."""
        return ()

    def parse(
        self,
        word: str,
        args: list[ast.expr] | None,
        text: str,
    ) -> Type:
        """Never called: no word names a union."""
        raise NotImplementedError

    def format(self, declared: Union) -> str:
        """The options."""
        return " | ".join(map(format_type, declared.options))

    def parts(self, declared: Union) -> tuple[Type, ...]:
        """The options."""
        return declared.options

    def branches(self, declared: Union) -> tuple[Type, ...]:
        """The options."""
        return declared.options

    def with_parts(self, declared: Union, parts: tuple[Type, ...]) -> Type:
        """The union of other options."""
        return union_of(parts)

    def accepts(
        self,
        declared: Union,
        document: Any,
        seen: Any,
    ) -> bool:
        """True if an option accepts the value."""
        return any(option.record.accepts(option, document, seen) for option in declared.options)

    def check(
        self,
        declared: Union,
        walk: Any,
        seen: Any,
        path: Any,
        dims: Any,
    ) -> None:
        """Reports the problems of the option that accepts the value."""
        document = walk.document
        for option in declared.options:
            if option.record.accepts(option, document, seen):
                walk.value(option, seen, path, dims)
                return
        # Text beside one enum and null is a misspelt member.
        enums = [option for option in declared.solid if document.members_of(option.refers)]
        if seen.type_name == "str" and len(enums) == 1 and enums == [*declared.solid]:
            walk.value(enums[0], seen, path, dims)
        else:
            walk.mismatch(declared, seen, path)

    def children(self, declared: Union, node: Node) -> list[tuple[Any, Type, Node]]:
        """The children under the first option that has any."""
        option = self._holder(declared, node)
        return option.record.children(option, node)

    def with_children(
        self,
        declared: Union,
        node: Node,
        made: list[Node],
    ) -> Node:
        """The node with other children."""
        option = self._holder(declared, node)
        return option.record.with_children(option, node, made)

    def _holder(self, declared: Union, node: Node) -> Type:
        """The first option under which a node has children."""
        found = (option for option in declared.options if option.record.children(option, node))
        return next(found, declared.options[0])

    def read(
        self,
        declared: Union,
        value: Any,
        builder: Builder,
    ) -> Any:
        """The value under the first option that takes it."""
        for option in declared.options:
            try:
                return read_value(value, option, builder)
            except SchemaError as error:
                if error.code != "NQX107":
                    raise
        raise not_a_value(value, declared)

    def neutral(self, declared: Union, document: Any) -> Any:
        """Returns null if it is an option, else the first neutral value."""
        if Null() in declared.options:
            return None
        values = (option.record.neutral(option, document) for option in declared.options)
        return next((value for value in values if value is not NO_VALUE), NO_VALUE)

    def texts(self, declared: Union, document: Any) -> list[str] | None:
        """The texts of all options."""
        known = [option.record.texts(option, document) for option in declared.options]
        return None if None in known else [text for texts in known for text in texts or ()]

    def ends(self, declared: Union, ends: Callable[[Type], bool]) -> bool:
        """True if an option has a finite value."""
        return any(map(ends, declared.options))

    def rule(self, declared: Union, document: Any) -> Rule:
        """The rule of the first option whose outline fits, as every reader decides."""
        rules = [option.record.rule(option, document) for option in declared.options]
        if Null() in declared.options and len(rules) == 2:
            (other,) = declared.solid
            return {"if": {"type": "null"}, "else": other.record.rule(other, document)}
        whole: Rule = {"anyOf": rules}
        for option, rule in zip(reversed(declared.options), reversed(rules), strict=True):
            outline = option.record.outline(option, document)
            whole = {"if": outline, "then": rule, "else": whole}
        return whole

    def annotation(
        self,
        declared: Union,
        owner: Any,
        stub: Any,
    ) -> str:
        """The union of the options."""
        return " | ".join(dict.fromkeys(stub.type(owner, each) for each in declared.options))

    def argument(
        self,
        declared: Union,
        owner: Any,
        stub: Any,
    ) -> str:
        """The union of the arguments."""
        found = (option.record.argument(option, owner, stub) for option in declared.options)
        return " | ".join(dict.fromkeys(found))

    def example(
        self,
        declared: Union,
        sample: Any,
        field: Any,
        local: Any,
        depth: int,
    ) -> Any:
        """A value of one option."""
        return sample.value(sample.branch(declared.options, depth), field, local, depth)


class NamedRecord(TypeRecord):
    """A struct or an enum; the document knows which."""

    @property
    def words(self) -> tuple[str, ...]:
        """No word: every name that is no built-in type may be one."""
        return ()

    def parse(
        self,
        word: str,
        args: list[ast.expr] | None,
        text: str,
    ) -> Type:
        """The name with sizes for its parameters."""
        return Named(word, tuple(map(from_ast, args or ())))

    def format(self, declared: Named) -> str:
        """The name with its arguments."""
        if not declared.args:
            return declared.name
        return f"{declared.name}[{', '.join(arg.text for arg in declared.args)}]"

    def arguments(self, declared: Named) -> tuple[Expression, ...]:
        """The arguments."""
        return declared.args

    def with_sizes(self, declared: Named, change: Callable[[Any], Any]) -> Type:
        """The name with other arguments."""
        return Named(declared.name, tuple(map(change, declared.args)))

    def refers(self, declared: Named) -> str:
        """The name."""
        return declared.name

    def accepts(
        self,
        declared: Named,
        document: Any,
        seen: Any,
    ) -> bool:
        """True for a member of the enum, or an instance of the struct."""
        members = document.members_of(declared.name)
        if members is not None:
            return seen.sort == "scalar" and seen.value in members
        return document.ref(declared.name) in seen.refs[:1]

    def picks(self, declared: Named, document: Any) -> bool:
        """True for enums."""
        return document.members_of(declared.name) is not None

    def check(
        self,
        declared: Named,
        walk: Any,
        seen: Any,
        path: Any,
        dims: Any,
    ) -> None:
        """Checks the member or the instance."""
        owner, name = walk.document.place_of(declared.name)
        if name in owner.structs:
            bound = dict(zip(owner.structs[name].params, declared.args, strict=False))
            walk.inner_struct(owner, name, seen, path, dims, bound)
        elif name not in owner.enums:
            message = f"expected a schema that declares {name}, got none"
            walk.report("NQX404", path, message, "pass the folder it lies in")
        elif not self.accepts(declared, walk.document, seen):
            members = owner.enums[name].members
            hint = did_you_mean(str(seen.value), members)
            message = f"expected one of {', '.join(members)}, got {seen.text}"
            walk.report("NQX421", path, message, hint)

    def readable_as(
        self,
        have: Named,
        want: Named,
        compare: Any,
    ) -> bool:
        """True for the same name and arguments."""
        return have.name == want.name and compare.shapes(have.args, want.args)

    def read(
        self,
        declared: Named,
        value: Any,
        builder: Builder,
    ) -> Any:
        """A member of the enum, or a struct of the values in a dict."""
        members = builder.document.members_of(declared.name)
        if members is not None:
            if value not in members:
                raise not_a_value(value, declared)
            return value
        if not builder.structs and not builder.document.is_struct(declared.name):
            return value  # lint reports the unknown name itself; no payload gets such a value
        structs = builder.document.structs if builder.structs else {}
        if not isinstance(value, dict) or declared.name not in structs:
            raise not_a_value(value, declared)
        stored = structs[declared.name].stored
        missing = [name for name in stored if name not in value and not stored[name].has_default]
        if missing or value.keys() - stored.keys():
            raise not_a_value(value, declared)
        given = {name: value.get(name, field.default) for name, field in stored.items()}
        fields = {
            name: read_value(given[name], field.declared, builder) for name, field in stored.items()
        }
        return builder.struct(declared.name, fields)

    def neutral(self, declared: Named, document: Any) -> Any:
        """The first member of the enum."""
        members = document.members_of(declared.name)
        return members[0] if members else NO_VALUE

    def sorts(self, declared: Named, document: Any) -> Sorts:
        """Returns struct or text; None for an unknown name."""
        if document.is_struct(declared.name):
            return frozenset({"struct"})
        return None if self.texts(declared, document) is None else frozenset({"text"})

    def texts(self, declared: Named, document: Any) -> list[str] | None:
        """The members of the enum."""
        return document.members_of(declared.name)  # type: ignore[no-any-return]

    def ends(self, declared: Named, ends: Callable[[Type | str], bool]) -> bool:
        """True if the struct has a finite instance."""
        return ends(declared.name)

    def rule(self, declared: Named, document: Any) -> Rule:
        """The rule of the struct, or of text and members of Python's Enum."""
        members = document.members_of(declared.name)
        if members is None:
            return {"$ref": f"#/definitions/{document.ref(declared.name)}"}
        member = {"enum": list(members)}
        return {"if": {"type": "object"}, "then": kind_rule("enum", name=member), "else": member}

    def outline(self, declared: Named, document: Any) -> Rule:
        """The rule of the class of the struct alone."""
        if not document.is_struct(declared.name):
            return self.rule(declared, document)
        return kind_rule("struct", type={"const": document.ref(declared.name)})

    def annotation(
        self,
        declared: Named,
        owner: Any,
        stub: Any,
    ) -> str:
        """The class, or Literal of the members."""
        members = owner.members_of(declared.name)
        if members is not None:
            return str(stub.literal(tuple(members)))
        return str(stub.class_of(owner, declared.name))

    def example(
        self,
        declared: Named,
        sample: Any,
        field: Any,
        local: Any,
        depth: int,
    ) -> Any:
        """A member, or an instance."""
        members = sample.document.members_of(declared.name)
        if members is not None:
            return sample.member(declared.name, sample.one_of(members))
        return sample.inner_struct(declared, local, depth + 1)
