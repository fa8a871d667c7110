"""Sizes that are equal for every payload: a normal form of shape expressions, and types compared by it.

``n_bias`` and ``n_sites + n_hidden`` are the same size where a document says ``n_bias: {equals: n_sites + n_hidden}``.
Owns that comparison (:func:`same_size`, :func:`same_type`), the question whether every value of one type is a value of
another (:func:`readable_as`), and replacing names in types. Sizes of one payload are found by ``schema/dims.py``.

Example:
    >>> from neuralqx_struct.schema.expressions import parse
    >>> same_size(parse("2 * (n + 1)"), parse("n + n + 2"), {})
    True
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product

from neuralqx_struct.schema.expressions import Expression, parse
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.types import (
    Array,
    DictOf,
    Extent,
    Key,
    ListOf,
    LiteralOf,
    Named,
    Null,
    PyTree,
    Scalar,
    TupleOf,
    Type,
    Union,
    format_type,
)

__all__ = [
    "constant",
    "equations",
    "extent",
    "map_type",
    "readable_as",
    "same_size",
    "same_type",
    "substitute",
    "total",
    "union_of",
]

#: A polynomial: coefficients by the sorted tuple of the atoms that are multiplied.
_Polynomial = dict[tuple[str, ...], int]

#: Equations nest no deeper than this; a cycle of ``equals`` stops here and stays an atom.
_DEPTH = 16
#: Products of sums grow fast; a larger one is compared by its text.
_TERMS = 400


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
        known: What names stand for, as :func:`equations` gives it.

    Returns:
        False also where equality cannot be seen, as between ``n // 2 * 2`` and ``n``.

    Example:
        >>> from neuralqx_struct.schema.expressions import parse
        >>> same_size(parse("n_bias"), parse("n + m"), {"n_bias": parse("m + n")})
        True
    """
    if a is ... or b is ...:
        return a is b
    return a.text == b.text or _normal(a, known) == _normal(b, known)


def same_type(a: Type, b: Type, known: Mapping[str, Expression]) -> bool:
    """True if two types are the same but for the spelling of sizes."""
    return readable_as(a, b, known) and readable_as(b, a, known)


def readable_as(have: Type, want: Type, known: Mapping[str, Expression]) -> bool:
    """True if every stored value of type ``have`` is, untouched, a value of type ``want``."""
    if have is want or (
        have == want and format_type(have) == format_type(want)
    ):  # to Python, literal[1] equals literal[True]
        return True
    match have, want:
        case _, PyTree():
            return _any_tree(have)
        case Union(options), _:
            return all(readable_as(option, want, known) for option in options)
        case _, Union(options):
            return any(readable_as(have, option, known) for option in options)
        case Array(dtype, shape), Array(other, wanted):
            return dtype == other and _same_shape(shape, wanted, known)
        case Key(impl, shape), Key(other_impl, wanted):
            return other_impl in (None, impl) and _same_shape(shape, wanted, known)
        case Named(name, args), Named(other, others):
            return name == other and _same_shape(args, others, known)
        case LiteralOf(values), LiteralOf(others):
            return {(type(v), v) for v in values} <= {(type(v), v) for v in others}
        case LiteralOf(values), Scalar(name):
            return all(type(value).__name__ == name for value in values)
        case (ListOf(item), ListOf(wanted)) | (DictOf(item), DictOf(wanted)):
            return readable_as(item, wanted, known)
        case TupleOf(items, variadic), TupleOf(others, True):
            return all(readable_as(item, others[0], known) for item in items) and (variadic or bool(items))
        case TupleOf(items, False), TupleOf(others, False):
            return len(items) == len(others) and all(map(lambda i, o: readable_as(i, o, known), items, others))
        case _:
            return False


def _any_tree(have: Type) -> bool:
    return not isinstance(have, Union) or all(map(_any_tree, have.options))


def _same_shape(have: Sequence[Extent], want: Sequence[Extent], known: Mapping[str, Expression]) -> bool:
    if ... in want:
        # `...` stands for any axes: what is before and behind it must still agree.
        at = want.index(...)
        behind = len(want) - at - 1
        if ... in have:
            return len(have) == len(want) and all(same_size(a, b, known) for a, b in zip(have, want, strict=True))
        return len(have) >= at + behind and _same_shape(
            [*have[:at], *have[len(have) - behind :]], [*want[:at], *want[at + 1 :]], known
        )
    return len(have) == len(want) and all(same_size(a, b, known) for a, b in zip(have, want, strict=True))


def extent(size: int | str) -> Expression:
    """A size as steps write it, as an expression."""
    return parse(str(size))


def constant(size: Extent) -> int | None:
    """The number that an extent is, or None."""
    if size is ...:
        return None
    normal = _normal(size, {})
    return normal.get((), 0) if set(normal) <= {()} else None


def total(sizes: Sequence[Expression], operator: str = "+") -> Expression:
    """The sum (or with ``*`` the product) of sizes, a number where all of them are."""
    if not sizes:
        return parse("0" if operator == "+" else "1")
    text = f" {operator} ".join(f"({size.text})" for size in sizes)
    whole = parse(text)
    number = constant(whole)
    return whole if number is None else parse(str(number))


def _normal(size: Expression, known: Mapping[str, Expression], depth: int = _DEPTH) -> _Polynomial:
    return _polynomial(ast.parse(size.text, mode="eval").body, known, depth)


def _polynomial(node: ast.expr, known: Mapping[str, Expression], depth: int) -> _Polynomial:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return {(): number} if number else {}
        case ast.Name(id=name) if name in known and depth:
            return _normal(known[name], known, depth - 1)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return {atoms: -count for atoms, count in _polynomial(inner, known, depth).items()}
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() as op, right=right):
            return _combined(op, _polynomial(left, known, depth), _polynomial(right, known, depth), ast.unparse(node))
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            over, under = _polynomial(left, known, depth), _polynomial(right, known, depth)
            divisor = under.get((), 0) if set(under) == {()} else 0
            # (a * 2) // 2 is a: only where every coefficient divides, so that no remainder is lost.
            if divisor and all(count % divisor == 0 for count in over.values()):
                return {atoms: count // divisor for atoms, count in over.items()}
    return {(ast.unparse(node),): 1}


def _combined(op: ast.operator, left: _Polynomial, right: _Polynomial, text: str) -> _Polynomial:
    result: _Polynomial = {}
    if isinstance(op, ast.Mult):
        if len(left) * len(right) > _TERMS:
            return {(text,): 1}
        for (a, m), (b, n) in product(left.items(), right.items()):
            atoms = tuple(sorted(a + b))
            result[atoms] = result.get(atoms, 0) + m * n
    else:
        sign = -1 if isinstance(op, ast.Sub) else 1
        result = {atoms: left.get(atoms, 0) + sign * right.get(atoms, 0) for atoms in left | right}
    return {atoms: count for atoms, count in result.items() if count}


class _Replace(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, Expression]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.parse(self.names[node.id].text, mode="eval").body if node.id in self.names else node


def substitute(declared: Type, names: Mapping[str, Expression]) -> Type:
    """The type with sizes in place of names, as where a struct's parameters are bound.

    Example:
        >>> from neuralqx_struct.schema.expressions import parse
        >>> from neuralqx_struct.schema.types import parse_type
        >>> format_type(substitute(parse_type("float32[a, 2]"), {"a": parse("n + 1")}))
        'float32[n + 1, 2]'
    """

    def bound(size: Extent) -> Extent:
        if size is ... or not names.keys() & size.names:
            return size
        return parse(ast.unparse(_Replace(names).visit(ast.parse(size.text, mode="eval").body)))

    def rebound(inner: Type) -> Type:
        match inner:
            case Array(dtype, shape):
                return Array(dtype, tuple(map(bound, shape)))
            case Key(impl, shape):
                return Key(impl, tuple(map(bound, shape)))
            case Named(name, args):
                return Named(name, tuple(size for size in map(bound, args) if size is not ...))
            case _:
                return inner

    return map_type(declared, rebound)


def map_type(declared: Type, change: Callable[[Type], Type]) -> Type:
    """The type with ``change`` applied to every type inside it that holds no other, unions kept flat and unique."""
    match declared:
        case ListOf(item):
            return ListOf(map_type(item, change))
        case DictOf(value):
            return DictOf(map_type(value, change))
        case TupleOf(items, variadic):
            return TupleOf(tuple(map_type(item, change) for item in items), variadic)
        case Union(options):
            return union_of(map_type(option, change) for option in options)
        case _:
            return change(declared)


def union_of(options: Iterable[Type]) -> Type:
    """The union of some types, which is the type itself where only one is left."""
    flat: dict[Type, None] = {}
    for option in options:
        flat |= dict.fromkeys(option.options if isinstance(option, Union) else (option,))
    return next(iter(flat)) if len(flat) == 1 else Union(tuple(flat)) if flat else Null()
