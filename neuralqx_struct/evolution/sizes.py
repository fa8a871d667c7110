"""Sizes in steps: shape expressions that are equal for every payload, and the sizes that one payload shows.

``n_bias`` and ``n_sites + n_hidden`` are the same size where a document has ``n_bias: {equals: n_sites + n_hidden}``.
Owns that comparison (:func:`same_size`, :func:`same_type`), the question whether every value of one type is a value of
another (:func:`readable_as`), and replacing names in types.

Example:
    >>> from neuralqx_struct.expressions import parse
    >>> same_size(parse("2 * (n + 1)"), parse("n + n + 2"), {})
    True

Steps may name sizes such as ``n_sites``, the numbers behind the dims of a declaration: :func:`measure` reads them from a
payload that conforms, :func:`measurable` finds from the declaration alone which ones payloads show. Conflicts between
fields are errors of ``schema/sizes``.

    >>> from neuralqx_struct import bundle
    >>> measure(v1, bundle.read("tests/golden/format-1/vmc_state_1").document["manifest"], v1)["n_sites"]
    2
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neuralqx_struct.expressions import Expression, from_ast, parse
from neuralqx_struct.expressions.evaluation import evaluate
from neuralqx_struct.expressions.polynomials import polynomial
from neuralqx_struct.manifest.kinds import STRUCT
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.sizes import linear_unknown
from neuralqx_struct.types import INT, Extent, Type, map_type


def equations(*documents: Document) -> dict[str, Expression]:
    """``equals`` of the dims of some documents by name; the first document that has one wins."""
    return {
        name: dim.equation
        for document in reversed(documents)
        for name, dim in document.dims.items()
        if dim.equation is not None
    }


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


@dataclass(frozen=True, slots=True)
class _Comparison:
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
        return all(same_size(a, b, self.known) for a, b in zip(have, want, strict=True))


def extent(size: int | str) -> Expression:
    """A size as steps write it, as an expression."""
    return parse(str(size))


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


class _Replace(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, Expression]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.names[node.id].tree if node.id in self.names else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        node.args = [self.visit(argument) for argument in node.args]
        return node


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
        return from_ast(_Replace(names).visit(copy.deepcopy(size.tree)))

    return map_type(declared, lambda inner: inner.with_sizes(bound))


_Equation = tuple[Expression, int]


def measure(
    document: Document, tree: Any, target: Document, known: Mapping[str, int] | None = None
) -> dict[str, int]:
    """The sizes of dims and, inside one instance, of its local names.

    Args:
        document: The declaration of the tree.
        tree: The whole manifest, or with ``known`` one struct node.
        target: Another version, for dims that only it declares.
        known: The dims of the whole tree, once they are known.
    """
    dims = {**target.dims, **document.dims}
    sizes: dict[str, int] = dict(known or {})
    found: list[_Equation] = []
    instances = STRUCT.within(tree) if known is None else [((), tree)]
    for _, node in instances:
        struct = _struct_of(document, node)
        if struct is None:
            continue
        for name, declaration in document.structs[struct].stored.items():
            value = node["fields"].get(name)
            if struct == document.root and type(value) is int:
                sizes.setdefault(name, value)
            found += _shown(declaration.declared, value)
    if known is None:
        shared = dims.keys() | sizes.keys()
        found = [(extent, size) for extent, size in found if extent.names <= shared]
    equations = {name: dim.equation for name, dim in dims.items() if dim.equation is not None}
    while _learn(sizes, found, equations):
        pass
    return sizes


def _struct_of(document: Document, node: Any) -> str | None:
    if not STRUCT.matches(node):
        return None
    reference, _, name = node["type"].partition(":")
    return (
        name
        if reference == f"{document.id}@{document.version}" and name in document.structs
        else None
    )


def _shown(declared: Type, node: Any) -> Iterator[_Equation]:
    """Yields the sizes that a stored value shows, each with its declaration."""
    if not isinstance(node, dict):
        return
    for branch in declared.branches:
        yield from branch.shown_sizes(node)
    for _, part, child in declared.children(node):
        yield from _shown(part, child)


def _learn(
    sizes: dict[str, int], found: list[_Equation], equations: Mapping[str, Expression]
) -> bool:
    """Solves equations with one unknown; True if a new size was found."""
    before = len(sizes)
    for extent, size in found:
        _solve(sizes, extent, size)
    for name, equation in equations.items():
        if name in sizes:
            _solve(sizes, equation, sizes[name])
        elif equation.names <= sizes.keys():
            sizes[name] = solved_size(equation, sizes)
    return len(sizes) > before


def _solve(sizes: dict[str, int], extent: Expression, size: int) -> None:
    unknown = extent.names - sizes.keys()
    if len(unknown) == 1:
        (name,) = unknown
        solution = linear_unknown(extent, name, sizes, size)
        if solution is not None:
            sizes[name] = solution


def solved_size(extent: Expression, sizes: Mapping[str, int]) -> int:
    """The number that an extent is.

    Raises:
        SchemaError: It reads a name without a size.
    """
    return int(evaluate(extent, sizes))


def measurable(document: Document, struct: str, target: Document) -> set[str]:
    """The names whose sizes payloads show at an instance of a struct: the symbolic twin of :func:`measure`.

    Args:
        document: The declaration of the payloads.
        struct: The struct.
        target: Another version, for dims that only it declares.
    """
    dims = {**target.dims, **document.dims}
    root = document.structs.get(document.root)
    fields = root.stored if root else {}
    whole = INT
    known = {name for name, field in fields.items() if field.declared == whole}
    shared = dims.keys() | known
    extents = {
        names
        for name, declaration in document.structs.items()
        for names in declaration.sizes
        if name == struct or names <= shared
    }
    equations = {name: dim.equation.names for name, dim in dims.items() if dim.equation is not None}
    before = -1
    while len(known) > before:
        before = len(known)
        for names in extents:
            known |= names if len(names - known) == 1 else set()
        for name, names in equations.items():
            if name in known:
                known |= names if len(names - known) == 1 else set()
            elif names <= known:
                known.add(name)
    return known
