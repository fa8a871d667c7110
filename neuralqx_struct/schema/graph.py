"""The graph of a document: which struct holds which other structs and enums in its fields.

Every question about who holds whom is answered here, from one graph that is kept with its document.

Example:
    >>> graph = graph_of(v3)
    >>> graph.structs, [(use.struct, use.field) for use in graph.uses["Sampler"]]
    (['Optimizer', 'Sampler', 'VMCState'], [('VMCState', 'sampler')])
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from neuralqx_struct.schema.model import Document, FieldDeclaration, StructDeclaration, once
from neuralqx_struct.types import Type, walk_type

#: Returns the fields of a struct that count.
_Fields = Callable[[StructDeclaration], Iterable[FieldDeclaration]]


def _stored(struct: StructDeclaration) -> Iterable[FieldDeclaration]:
    return struct.stored.values()


def _all(struct: StructDeclaration) -> Iterable[FieldDeclaration]:
    return struct.fields.values()


def _nodes(struct: StructDeclaration) -> Iterable[FieldDeclaration]:
    return (field for field in struct.stored.values() if field.kind == "node")


class Use(NamedTuple):
    """One place in the type of a field that names a struct or an enum.

    Attributes:
        struct: The struct that holds it.
        field: The name of the field.
        declaration: The field.
        type: The type that names it, which may be a part of the field's.
    """

    struct: str
    field: str
    declaration: FieldDeclaration
    type: Type


class Graph:
    """Which struct of a document holds which; names of other documents lead nowhere.

    Args:
        document: The document. The graph does not keep it, as it is kept as long as the document exists.
    """

    def __init__(self, document: Document) -> None:
        self._root: str = document.root
        self._structs: Mapping[str, StructDeclaration] = document.structs
        self._enums = document.enums

    @cached_property
    def _held(self) -> tuple[list[str], list[str]]:
        return self.reached()

    @property
    def structs(self) -> list[str]:
        """The structs that payloads can hold, sorted by name: with a pytree, all."""
        return self._held[0]

    @property
    def enums(self) -> list[str]:
        """The enums that payloads can hold, likewise."""
        return self._held[1]

    def reached(
        self, roots: Iterable[str] | None = None, *, pytrees: bool = True
    ) -> tuple[list[str], list[str]]:
        """The structs and enums that payloads of the root, or other structs, can hold, sorted by name.

        Args:
            roots: Where to start; by default the root.
            pytrees: Whether those that pytrees may hold count, which are all.
        """
        names = [*self._walk(roots, _stored, pytrees=pytrees)]
        structs = sorted(name for name in names if name in self._structs)
        return structs, sorted(name for name in names if name not in self._structs)

    def outside_in(self) -> list[str]:
        """The structs that types of fields name from the root on, each behind one that holds it."""
        return [name for name in self._walk(None, _stored) if name in self._structs]

    def inside(self, struct: str) -> list[str]:
        """A struct, and those that instances of it hold, also in fields that payloads do not have."""
        return [name for name in self._walk([struct], _all) if name in self._structs]

    def _walk(
        self, roots: Iterable[str] | None, fields: _Fields, *, pytrees: bool = False
    ) -> Iterator[str]:
        """Yields structs and enums, each once and behind one that holds it."""
        todo = [self._root] if roots is None else [*roots]
        seen: set[str] = set()
        for name in todo:
            if name in seen:
                continue
            seen.add(name)
            if name in self._enums:
                yield name
            elif name in self._structs:
                yield name
                for declaration in fields(self._structs[name]):
                    todo += declaration.refers
                    if pytrees and declaration.is_open:
                        todo += [*self._structs, *self._enums]

    @cached_property
    def uses(self) -> Mapping[str, list[Use]]:
        """The places that name a struct or an enum, by its name; no key for those that nothing names."""
        found: dict[str, list[Use]] = {}
        for struct, declaration in self._structs.items():
            for field, each in declaration.fields.items():
                for inner in each.named:
                    found.setdefault(inner.refers, []).append(Use(struct, field, each, inner))
        return found

    def users(self, name: str) -> list[Use]:
        """The places in stored fields that name a struct or an enum."""
        return [use for use in self.uses.get(name, ()) if use.declaration.stored]

    @cached_property
    def stacked(self) -> frozenset[str]:
        """The structs of which payloads may hold stacked instances, also inside other stacked ones."""
        fields = (field for name in self.structs for field in _nodes(self._structs[name]))
        found = {struct for field in fields for struct in stacked_in(field)}
        return frozenset(self._walk(found, _nodes) if found else ()) & self._structs.keys()

    @cached_property
    def single(self) -> frozenset[str]:
        """The structs of which a payload holds at most one instance."""
        held: dict[str, list[str]] = {}
        times: Counter[str] = Counter()
        for name in self.structs:
            for field in self._structs[name].stored.values():
                for inner, count in _counted(field.declared, field.max_length):
                    held.setdefault(name, []).append(inner)
                    times[inner] += count
        found: set[str] = set()
        waiting = [] if times[self._root] or times["*"] else [self._root]
        while waiting:
            name = waiting.pop()
            found.add(name)
            waiting += [inner for inner in held.get(name, ()) if times[inner] == 1]
        return frozenset(found)

    @cached_property
    def _alternatives(self) -> list[set[str]]:
        """The names in the options of each stored field."""
        return [
            {branch.refers for branch in field.declared.branches}
            for name in self.structs
            for field in self._structs[name].stored.values()
        ]

    def holds_once(self, structs: set[str]) -> bool:
        """True if a payload holds at most one instance of several structs: alternatives of one field."""
        if len(structs) < 2:
            return structs <= self.single
        return structs <= self.single and any(structs <= each for each in self._alternatives)


def _counted(declared: Type, most: int | None, times: int = 1) -> Iterator[tuple[str, int]]:
    """Yields the structs that a type names, and ``*`` for one that holds any; at most ``most`` if it holds several."""
    if declared.takes_all:
        yield "*", 1
    if declared.refers:
        yield declared.refers, times
    several = declared.many and most not in (0, 1)
    for part in declared.parts:
        yield from _counted(part, None if declared.many else most, 2 if several else times)


@once
def graph_of(document: Document) -> Graph:
    """The graph of a document, made once."""
    return Graph(document)


def stacked_in(declaration: FieldDeclaration) -> Iterator[str]:
    """Yields the structs that the type of a field stacks."""
    for inner in walk_type(declaration.declared):
        if inner.stacks:
            yield inner.parts[0].refers


def structs_across(document: Document, names: Iterable[str]) -> Iterator[tuple[Document, str]]:
    """Yields structs, and those that payloads of them hold, of this document and of those that it uses.

    Args:
        document: The document in which the names have their meaning.
        names: Names of structs; others are left out.
    """
    todo, seen = [document.place_of(name) for name in names], set[tuple[str, str]]()
    for owner, name in todo:
        if name in owner.structs and (owner.id, name) not in seen:
            seen.add((owner.id, name))
            yield owner, name
            for field in owner.structs[name].stored.values():
                todo += map(owner.place_of, field.refers)


def types_across(document: Document, declared: Type) -> Iterator[tuple[Document, Type]]:
    """Yields the types inside a type, and in the structs that it names, each struct once, with their documents."""
    inside = [*walk_type(declared)]
    yield from ((document, inner) for inner in inside)
    for owner, name in structs_across(document, (inner.refers for inner in inside)):
        for field in owner.structs[name].stored.values():
            yield from ((owner, inner) for inner in walk_type(field.declared))


def fields_across(
    document: Document, field: FieldDeclaration
) -> Iterator[tuple[Document, FieldDeclaration]]:
    """Yields a field, and those in the structs that it holds, each struct once, with their documents."""
    yield document, field
    for owner, name in structs_across(document, field.refers):
        yield from ((owner, each) for each in owner.structs[name].stored.values())
