"""Polynomials: a form of sizes in which equal sums and products are equal, however they are written.

Example:
    >>> from neuralqx_struct.expressions import parse
    >>> polynomial(parse("n_bias - n"), {"n_bias": parse("2 * (n + m)")}) == polynomial(parse("n + m + m"), {})
    True
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from itertools import product

from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.operators import format_tree, spine

#: A polynomial: coefficients by the sorted tuple of the atoms that are multiplied.
Polynomial = dict[tuple[str, ...], int]

# The author of a schema is not trusted, and sums of sums grow fast. A larger polynomial is one atom, compared by its text.
_TERMS = 400
_FACTORS = 64
_BITS = 256
_WORK = 1_000_000  # terms and characters for all sizes of one document


class _Forms:
    """The polynomials of all sizes that depend on the same equations, each computed once.

    Args:
        known: Expressions of names.
    """

    def __init__(self, known: Mapping[str, Expression]) -> None:
        self.known = known
        self.done: dict[str, Polynomial] = {}
        self.work = 0

    def of(self, size: Expression) -> Polynomial:
        """The polynomial of a size over the names that have no equation."""
        started: set[str] = set()
        waiting = [*size.names & self.known.keys() - self.done.keys()]
        while waiting:
            name = waiting[-1]
            inner = self.known[name].names & self.known.keys() - self.done.keys() - started
            if inner and name not in started:
                waiting += inner
            else:  # a name on a cycle is not done yet, and an atom
                self.done[waiting.pop()] = self.polynomial(self.known[name].tree)
            started.add(name)
        return self.polynomial(size.tree)

    def polynomial(self, node: ast.expr) -> Polynomial:
        """The polynomial of a tree whose names are done."""
        match node:
            case ast.Constant(value=int(number)) if not isinstance(number, bool):
                return {(): number} if number else {}
            case ast.Name(id=name):
                return self.done.get(name, {(name,): 1})
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return difference({}, self.polynomial(inner))
            case ast.BinOp() if self.work < _WORK:
                first, steps = spine(node)
                found = self.polynomial(first)
                for step in steps:
                    found = self.combined(step, found, self.polynomial(step.right))
                return found
        return self.atom(node)

    def atom(self, node: ast.expr) -> Polynomial:
        """A part that is compared by its text."""
        text = format_tree(node)
        self.work += len(text)
        return {(text,): 1}

    def combined(self, node: ast.BinOp, left: Polynomial, right: Polynomial) -> Polynomial:
        """The polynomial of one operation; a single atom if it is none, or too large."""
        found: Polynomial | None = None
        terms = len(left) + len(right)
        if isinstance(node.op, ast.Mult):
            terms = len(left) * len(right)
        self.work += terms
        if terms <= _TERMS:
            operation = _OPERATIONS.get(type(node.op))
            found = None if operation is None else operation(left, right)
        if found is None or any(map(_is_large, found.items())):
            return self.atom(node)
        return found


def _is_large(term: tuple[tuple[str, ...], int]) -> bool:
    atoms, count = term
    return len(atoms) > _FACTORS or count.bit_length() > _BITS


def _sum(left: Polynomial, right: Polynomial) -> Polynomial:
    result = dict(left)
    for atoms, count in right.items():
        result[atoms] = result.get(atoms, 0) + count
    return {atoms: count for atoms, count in result.items() if count}


def difference(left: Polynomial, right: Polynomial) -> Polynomial:
    """One polynomial less another one."""
    return _sum(left, {atoms: -count for atoms, count in right.items()})


def _product(left: Polynomial, right: Polynomial) -> Polynomial:
    result: Polynomial = {}
    for (a, m), (b, n) in product(left.items(), right.items()):
        atoms = tuple(sorted(a + b))
        result[atoms] = result.get(atoms, 0) + m * n
    return {atoms: count for atoms, count in result.items() if count}


def _quotient(left: Polynomial, right: Polynomial) -> Polynomial | None:
    """The whole quotient, if no remainder is lost: ``(a * 2) // 2`` is ``a``."""
    divisor = right.get((), 0)
    if not divisor or len(right) > 1 or any(count % divisor for count in left.values()):
        return None
    return {atoms: count // divisor for atoms, count in left.items()}


_OPERATIONS: Mapping[type[ast.operator], Callable[[Polynomial, Polynomial], Polynomial | None]] = {
    ast.Add: _sum,
    ast.Sub: difference,
    ast.Mult: _product,
    ast.FloorDiv: _quotient,
}


#: The forms of the equations that were used last: a verdict compares sizes by several sets of them in turn.
_latest: deque[_Forms] = deque(maxlen=4)


def polynomial(size: Expression, known: Mapping[str, Expression]) -> Polynomial:
    """The polynomial of a size, with names replaced by their expressions; of none that grows too large.

    Args:
        size: A size.
        known: Expressions of names. The mapping is not to be changed afterwards.
    """
    if not known:
        return _Forms(known).of(size)
    for forms in [*_latest]:
        if forms.known is known:
            return forms.of(size)
    made = _Forms(known)
    _latest.appendleft(made)
    return made.of(size)


def summed(forms: Iterable[Polynomial]) -> Polynomial:
    """The sum of some polynomials."""
    return reduce(_sum, forms, {})


def divided(left: Polynomial, right: Polynomial) -> Polynomial | None:
    """The quotient by a single term if nothing remains: ``d * h * k`` by ``d`` is ``h * k``."""
    if len(right) != 1:
        return None
    ((factors, divisor),) = right.items()
    found: Polynomial = {}
    for atoms, count in left.items():
        rest = [*atoms]
        for factor in factors:
            if factor not in rest:
                return None
            rest.remove(factor)
        if count % divisor:
            return None
        found[tuple(rest)] = count // divisor
    return found


def polynomial_text(form: Polynomial) -> str:
    """The text of an expression with this polynomial.

    Example:
        >>> polynomial_text({("h", "k"): 2, (): 1})
        '2 * h * k + 1'
    """
    terms = []
    for atoms, count in form.items():
        factors = [atom if atom.isidentifier() else f"({atom})" for atom in atoms]
        number = [] if count == 1 and factors else [str(count)]
        terms.append(" * ".join([*number, *factors]))
    return " + ".join(terms).replace("+ -", "- ") or "0"
