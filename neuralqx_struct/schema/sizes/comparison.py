"""Comparison of sizes: shape expressions that are equal for every payload, and the names that every payload shows.

``n_bias`` and ``n_sites + n_hidden`` are the same size where a document has ``n_bias: {equals: n_sites + n_hidden}``.
Owns that comparison (:func:`same_size`, :func:`same_type`), the question whether every value of one type is a value of
another (:func:`readable_as`), and replacing names in types.

Example:
    >>> from neuralqx_struct.expressions import parse
    >>> same_size(parse("2 * (n + 1)"), parse("n + n + 2"), {})
    True

Steps may name sizes such as ``n_sites``. In a payload the solver knows their numbers, each in its
scope; :func:`shown_sizes` finds from the declaration alone which ones every payload shows.

    >>> "n_sites" in shown_sizes(v2, "VMCState"), "n_steps" in shown_sizes(v2, "VMCState")
    (True, False)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heappop, heappush
from typing import NamedTuple

from neuralqx_struct.expressions import Expression, from_ast, parse
from neuralqx_struct.expressions.functions import FUNCTIONS, with_given
from neuralqx_struct.expressions.grammar import folded, names_in, replaced
from neuralqx_struct.expressions.operators import format_tree, parse_tree
from neuralqx_struct.expressions.polynomials import polynomial
from neuralqx_struct.schema.field_paths import given_values
from neuralqx_struct.schema.model import Document, FieldDeclaration, once
from neuralqx_struct.schema.sizes import ANY
from neuralqx_struct.types import INT, Extent, Type, map_sizes, walk_type


def same_size(a: Extent, b: Extent, known: Mapping[str, Expression]) -> bool:
    """True if two extents are the same size whatever the dims are.

    Args:
        a: One extent.
        b: The other.
        known: Expressions of names, from :func:`equations`.

    Returns:
        False also where equality cannot be seen, as between ``n // 2 * 2`` and ``n``.

    Example:
        >>> from neuralqx_struct.expressions import parse
        >>> same_size(parse("n_bias"), parse("n + m"), {"n_bias": parse("m + n")})
        True
    """
    if a is ... or b is ...:
        return a is b
    return a.text == b.text or polynomial(a, known) == polynomial(b, known)


def same_type(a: Type, b: Type, known: Mapping[str, Expression]) -> bool:
    """True if two types are the same but for the spelling of sizes."""
    return readable_as(a, b, known) and readable_as(b, a, known)


def readable_as(have: Type, want: Type, known: Mapping[str, Expression]) -> bool:
    """True if every stored value of type ``have`` is, untouched, a value of type ``want``."""
    return _Comparison(known).types(have, want)


def sized_alike(old: Type, new: Type) -> bool:
    """True for types that differ in the types inside, and in the spelling of as many sizes, alone."""
    sizes = iter(new.extents)
    alike = len(old.extents) == len(new.extents)
    return alike and old.with_parts(new.parts).with_sizes(lambda _: next(sizes)) == new


class _Comparison(NamedTuple):
    """Compares types whose sizes may be spelled differently.

    Attributes:
        known: Expressions of names, from :func:`equations`.
    """

    known: Mapping[str, Expression]

    def types(self, have: Type, want: Type) -> bool:
        """True if every value of ``have`` is one of ``want``."""
        if have is want:
            return True
        if len(have.branches) > 1:
            return all(self.types(branch, want) for branch in have.branches)
        if len(want.branches) > 1:
            return any(self.types(have, branch) for branch in want.branches)
        if want.takes_all:
            return True
        if have.sort == want.sort:
            return have.readable_as(want, self)
        return have.widened() == want

    def shapes(self, have: Sequence[Extent], want: Sequence[Extent]) -> bool:
        """True if every shape of ``have`` is one of ``want``, where ``...`` is any number of axes."""
        if ... in want and ... not in have:
            front = want.index(...)
            back = len(want) - front - 1
            if len(have) < front + back:
                return False
            have = [*have[:front], *have[len(have) - back :]]
            want = [*want[:front], *want[front + 1 :]]
        if len(have) != len(want):
            return False
        pairs = zip(have, want, strict=True)
        return all(same_size(a, b, self.known) or _is_any(a, b) for a, b in pairs)


def _is_any(have: Extent, want: Extent) -> bool:
    """True if a size is wanted that may be any."""
    return have is not ... and want is not ... and want.text == ANY


@lru_cache(maxsize=1024)  # each load asks for those of its steps
def extent(size: int | str) -> Expression:
    """A size as steps write it, as an expression."""
    return parse(str(size))


def plain_size(size: Extent) -> int | str:
    """A size as a step writes it: a number, or the text of an expression."""
    text = str(size)
    return int(text) if text.isdecimal() else text


def constant(size: Extent) -> int | None:
    """The number that an extent is, or None."""
    if size is ...:
        return None
    normal = polynomial(size, {})
    return normal.get((), 0) if set(normal) <= {()} else None


def total(sizes: Sequence[Expression], operator: str = "+") -> Expression:
    """The sum (or with ``*`` the product) of sizes, a number where all of them are."""
    if not sizes:
        return parse("0" if operator == "+" else "1")
    text = f" {operator} ".join(f"({size.text})" for size in sizes)
    whole = parse(text)
    number = constant(whole)
    return whole if number is None else parse(str(number))


def _replaced(size: Expression, names: Mapping[str, Expression]) -> ast.expr:
    return replaced(size.tree, {name: expression.tree for name, expression in names.items()})


def substitute(declared: Type, names: Mapping[str, Expression]) -> Type:
    """The type with sizes in place of names, as where a struct's parameters are bound.

    Example:
        >>> from neuralqx_struct.expressions import parse
        >>> from neuralqx_struct.types.text import format_type, parse_type
        >>> format_type(substitute(parse_type("float32[a, 2]"), {"a": parse("n + 1")}))
        'float32[n + 1, 2]'

    Raises:
        SchemaError: NQX117: a size becomes too long.
    """

    def bound(size: Extent) -> Extent:
        if size is ... or not names.keys() & size.names:
            return size
        return from_ast(_replaced(size, names))

    return map_sizes(declared, bound)


def binding(document: Document, use: Type) -> dict[str, Expression]:
    """The expressions of a struct's parameters where a type uses it."""
    struct = document.structs.get(use.refers)
    return dict(zip(struct.params if struct else [], use.arguments, strict=False))


# ---------------------------------------------------------------------------------------------------------------------
# Names and scopes. In a payload ``Solver`` resolves names; these are its symbolic twins.

#: Marks a name of another scope; no name in a file contains it.
_OUTSIDE = "··"
_ROOT = f"root{_OUTSIDE}"
_DIM = f"dim{_OUTSIDE}"
#: Levels of structs inside structs, structs in all, and characters of a size that are looked at.
_DEEPEST, _MOST, _LONGEST = 16, 2000, 200


def _named(name: str) -> Expression:
    return Expression(name, frozenset({name}), ast.Name(name))


def equations(*documents: Document, struct: str = "") -> dict[str, Expression]:
    """``equals`` of the dims of some documents by name; the first document that has one wins.

    Args:
        documents: The documents.
        struct: The struct of the first document whose names are compared: its parameters hide dims, and the names of
            the root are not its own.
    """
    found = {
        name: dim.equation
        for document in reversed(documents)
        for name, dim in document.dims.items()
        if dim.equation is not None
    }
    first = documents[0]
    declaration = first.structs.get(struct)
    if declaration is None:
        return found
    names = _Names(first, struct)
    return {
        names.outside(name, names.root).text: names.bound(equation, {}, names.root)
        for name, equation in found.items()
    }


@once
def _shown_in(_: Document) -> dict[str, set[str]]:
    """The results of :func:`shown_sizes`, which each step that is tried on a document asks for."""
    return {}


def shown_sizes(document: Document, struct: str) -> set[str]:
    """The names whose sizes payloads show at every instance of a struct, if no list or dict is empty and no factor zero.

    Arrays in unions and in fields that may be null do not count.
    """
    shown = _shown_in(document)
    if struct not in shown:
        shown[struct] = _find_shown(document, struct)
    return shown[struct]


def _find_shown(document: Document, struct: str) -> set[str]:
    names = _Names(document, struct)
    found = [*names.sizes(struct, {}, "")]
    if names.root and names.fields:
        found += names.sizes(document.root, {}, names.root)
    forms = [[*_terms(size)] for size in found if ANY not in size.names]
    for name, size in equations(document, struct=struct).items():
        forms.append([*_terms(size, name)])
    known = set[str]()
    for name, given in names.fields.items():
        if given.kind == "static" and given.declared == INT:
            known.add(names.outside(name, names.root).text)
    known |= names.given()
    _add_solved(known, forms)
    return known


#: A term of a polynomial: the atoms that are multiplied, and the names in them.
_Term = tuple[tuple[str, ...], frozenset[str]]


@lru_cache(maxsize=4096)  # a step changes few of the sizes of a document
def _terms(size: Expression, *equal: str) -> tuple[_Term, ...]:
    """The terms of a size, and of the name that it is equal to."""
    form = dict.fromkeys((*polynomial(size, {}), *((name,) for name in equal)))
    return tuple((atoms, frozenset[str]().union(*map(_names_in, atoms))) for atoms in form)


@lru_cache(maxsize=4096)
def _names_in(text: str) -> frozenset[str]:
    tree = with_given(folded(parse_tree(text)))
    return frozenset(node.id for node in names_in(tree)) - FUNCTIONS.keys()


def _add_solved(known: set[str], forms: list[list[_Term]]) -> None:
    """Adds the names whose sizes follow from those that are known, as polynomials, the ``forms``, are known.

    Each gives the one name of its only unknown term, if it is linear in it. One that gives none is looked at again once one of
    two names is known, without which it stays so.
    """
    watching: dict[str, list[int]] = {}
    waiting = [(0, index) for index in range(len(forms))]  # round by round, in order
    while waiting:
        turn, index = heappop(waiting)
        form = forms[index]
        unknown: list[_Term] = []
        while form and len(unknown) < 2:
            term = form.pop()
            if not term[1] <= known:
                unknown.append(term)
        form += unknown
        watched = [min(names - known) for _, names in unknown]
        if len(unknown) == 1:
            atoms = unknown[0][0]
            watched = sorted({atom for atom in atoms if atom not in known})[:2]
            factors = {atom for atom in atoms if atom in known}
            if len(watched) == 1 and len(factors) == len(atoms) - 1:
                known.update(watched)
                for other in watching.pop(watched[0], ()):
                    heappush(waiting, (turn + (other <= index), other))
        for name in watched:
            watching.setdefault(name, []).append(index)


@dataclass(frozen=True, slots=True, eq=False)
class _Names:
    """Names of sizes as one struct of a document sees them.

    Attributes:
        document: The declaration.
        struct: The struct.
        budget: Bounds the structs inside structs that are looked at.
    """

    document: Document
    struct: str
    budget: Iterator[int] = field(default_factory=lambda: iter(range(_MOST)))

    @property
    def root(self) -> str:
        """The mark of names of the root."""
        return "" if self.struct == self.document.root else _ROOT

    @property
    def fields(self) -> Mapping[str, FieldDeclaration]:
        """The stored fields of the root."""
        root = self.document.structs.get(self.document.root)
        return {} if root is None else root.stored

    def given(self) -> set[str]:
        """The values that fields of the root give to equations."""
        return {self.outside(name, self.root).text for name in given_values(self.document)}

    def outside(self, name: str, mark: str) -> Expression:
        """A name of another scope of the document."""
        if name not in self.document.dims:
            return _named(mark + name)
        hidden = name in self.document.structs[self.struct].params
        return _named(_DIM + name if hidden else name)

    def bound(self, size: Expression, names: Mapping[str, Expression], mark: str) -> Expression:
        """A size of another scope, with the expressions of its parameters."""
        if not mark:
            return size
        known = {name: names.get(name) or self.outside(name, mark) for name in size.names}
        if all(each.text == name for name, each in known.items()):
            return size
        if max((len(each.text) for each in known.values()), default=0) > _LONGEST:
            return _named(ANY)  # sums of sums grow fast
        tree = _replaced(size, known)
        given = (each.names for each in known.values())
        return Expression(format_tree(tree), frozenset[str]().union(*given), tree)

    def sizes(
        self, struct: str, names: Mapping[str, Expression], mark: str
    ) -> Iterator[Expression]:
        """Yields the sizes that every instance of a struct shows, also inside the structs that it always has."""
        if mark.count(_OUTSIDE) > _DEEPEST or next(self.budget, None) is None:
            return  # a struct inside itself, or each of many inside each of many
        seen = set[int]()
        for name, declaration in self.document.structs[struct].stored.items():
            declared = declaration.declared
            if id(declared) in seen:  # hundreds of fields share a few types, and so their sizes
                continue
            if not any(inner.refers for inner in walk_type(declared)):
                seen.add(id(declared))
            for part in _held(declared):
                if next(part.objections(self.document), None) is not None:
                    continue  # between two steps a stacked struct may have no array
                sizes = (*part.extents, *part.arguments)
                given = [self.bound(size, names, mark) for size in sizes if size is not ...]
                inner = self.document.structs.get(part.refers)
                if inner is None:
                    yield from given
                else:
                    inside = dict(zip(inner.params, given, strict=False))
                    yield from self.sizes(part.refers, inside, f"{mark}{name}{_OUTSIDE}")


def _held(declared: Type) -> Iterator[Type]:
    """Yields the types with sizes, and structs, of which every value of a type that is not empty has one."""
    if not declared.parts or (declared.extents and len(declared.branches) == 1):
        yield declared
    if len(declared.branches) == 1:
        for part in declared.parts:
            yield from _held(part)
