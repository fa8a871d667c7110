"""Derivations: the straight Python that computes a derived field of a schema.

Owns one function for each such field: code where the values are plain numbers, text and shapes of arrays, whose operators
do as the evaluator's do, and the evaluator (:mod:`.schema.evaluation`) for all else. What fails in the code is evaluated
again, which has the words for it: so the two differ in nothing but time.

Only operators, brackets and numbered places reach the source; names and constants of a schema come in as objects.

Example:
    >>> from types import SimpleNamespace
    >>> from neuralqx_struct.schema.expressions import parse
    >>> derivation(parse("4 * width + 1"))(SimpleNamespace(width=3))
    13
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from neuralqx_struct.agreement import UnprovableError
from neuralqx_struct.conditions import ARRAYS
from neuralqx_struct.schema.evaluation import evaluate, evaluate_tree
from neuralqx_struct.schema.expressions import Expression
from neuralqx_struct.schema.syntax import BINARY, BOOLEAN, COMPARISONS, MAX_BITS, MAX_EXPONENT, UNARY

__all__ = ["derivation"]

_LARGEST = 2**63  # of the numbers that code takes: what may become too long of such ones is known beforehand
_MOST_NODES = 190  # Python nests no more brackets than 200
_NUMBERS = frozenset({bool, int, float})
_PLAIN = _NUMBERS | {str, type(None)}  # what comparisons take as well
_INTS = frozenset({int})

#: What the functions of a shape give for one of ints.
_OF_SHAPE: Mapping[str, Callable[[tuple[int, ...]], Any]] = {
    "len": operator.itemgetter(0),
    "size": math.prod,
    "shape": tuple,
    "ndim": len,
}
#: Functions that do with numbers as Python's do.
_OF_NUMBERS: Mapping[str, Callable[..., Any]] = {"abs": abs, "min": min, "max": max}


def derivation(expression: Expression) -> Callable[[Any], Any]:
    """The function that computes a derived field of an instance, from the attributes that the expression names."""

    def evaluated(self: Any) -> Any:
        return evaluate(expression, {name: getattr(self, name) for name in expression.names})

    derived: Callable[[Any], Any] = evaluated
    with suppress(UnprovableError):
        derived = _Code(expression).function(evaluated)
    derived.__doc__ = expression.text
    derived.__nqx_pure__ = True  # type: ignore[attr-defined]
    return derived


class _Code:
    """The source of one expression in the making, and the objects that it names."""

    def __init__(self, expression: Expression) -> None:
        if not expression.names or sum(1 for _ in ast.walk(expression.tree)) > _MOST_NODES:
            raise UnprovableError(expression.text)
        self.names = sorted(expression.names)
        self.places = {name: f"v{place}" for place, name in enumerate(self.names)}
        self.namespace: dict[str, Any] = {"kind": type, "numbers": _NUMBERS, "plain": _PLAIN}
        self.namespace |= {"least": -_LARGEST, "largest": _LARGEST}
        self.guards: set[str] = set()
        tree = expression.tree
        self.text = self.called(tree) if _called(tree) == "shape" else self.number(tree)[0]

    def function(self, otherwise: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The function of an instance; what the code does not decide is left to ``otherwise``."""
        self.namespace |= {"get": operator.attrgetter(*self.names), "otherwise": otherwise, "error": Exception}
        source = (
            f"def derived(self):\n    {', '.join(self.places.values())} = get(self)\n"
            f"    try:\n        if {' and '.join(sorted(self.guards)) or True}:\n            return {self.text}\n"
            "    except error:\n        pass\n    return otherwise(self)\n"
        )
        made: dict[str, Any] = {}
        exec(compile(source, "<generated derivation of a schema>", "exec"), self.namespace, made)  # noqa: S102
        return made["derived"]  # type: ignore[no-any-return]

    def hold(self, value: Any) -> str:
        """A name for an object."""
        name = f"held{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def number(self, tree: ast.expr) -> tuple[str, int]:
        """The source of a number, and the largest whole number that it may be."""
        text, largest = self._number(tree)
        if largest.bit_length() > MAX_BITS:
            raise UnprovableError("whole numbers that may be too long")
        return text, largest

    def _number(self, tree: ast.expr) -> tuple[str, int]:
        match tree:
            case ast.Constant(value=bool() | int() | float() as value):
                return self.hold(value), abs(value) if type(value) is int else 1
            case ast.Name(id=name):
                text = self.places[name]
                self.guards.add(f"kind({text}) in numbers and least < {text} < largest")
                return text, _LARGEST
            case ast.UnaryOp(op=op, operand=operand):
                text, largest = self.number(operand)
                return f"({UNARY[type(op)].symbol}{text})", largest
            case ast.BinOp(op=ast.Pow(), left=left, right=right):
                (base, largest), exponent = self.number(left), _constant(right)
                if type(exponent) not in _NUMBERS or abs(exponent) > MAX_EXPONENT:
                    raise UnprovableError("an exponent that may be too large")
                power = max(largest, 1) ** exponent if type(exponent) is int and exponent > 0 else max(largest, 1)
                return f"({base} ** {self.hold(exponent)})", power
            case ast.BinOp(op=op, left=left, right=right):
                (first, most), (second, more) = self.number(left), self.number(right)
                largest = most * more if isinstance(op, ast.Mult) else most + more
                return f"({first} {BINARY[type(op)].symbol} {second})", largest
            case ast.BoolOp(op=op, values=values):
                texts, largests = zip(*map(self.number, values), strict=True)
                return f"({f' {BOOLEAN[type(op)].symbol} '.join(texts)})", max(largests)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                (asked, _), (first, most), (second, more) = map(self.number, (test, body, orelse))
                return f"({first} if {asked} else {second})", max(most, more)
            case ast.Compare():
                return self.comparison(tree), 1
            case ast.Call(func=ast.Name(id=name), args=args) if name in _OF_NUMBERS and (
                len(args) > 1 or name == "abs"
            ):
                texts, largests = zip(*map(self.number, args), strict=True)
                return f"{self.hold(_OF_NUMBERS[name])}({', '.join(texts)})", max(largests)
            case ast.Call() if _called(tree) != "shape":
                return self.sized(self.called(tree))
            case ast.Subscript(value=value, slice=index):
                return self.sized(f"{self.called(value)}[{self.hold(_constant(index))}]")
            case _:
                raise UnprovableError("no number")

    def comparison(self, tree: ast.Compare) -> str:
        if isinstance(tree.ops[0], ast.In | ast.NotIn) and len(tree.ops) == 1:
            (choices,) = tree.comparators
            held = self.hold(tuple(map(_constant, getattr(choices, "elts", ()))))
            return f"({self.plain(tree.left)} {COMPARISONS[type(tree.ops[0])].symbol} {held})"
        parts = [self.plain(tree.left)]
        for op, right in zip(tree.ops, tree.comparators, strict=True):
            parts += [COMPARISONS[type(op)].symbol, self.plain(right)]
        return f"({' '.join(parts)})"

    def plain(self, tree: ast.expr) -> str:
        """The source of what is compared: a number, text or None."""
        match tree:
            case ast.Constant(value=value):
                return self.hold(value)
            case ast.Name(id=name):
                self.guards.add(f"kind({self.places[name]}) in plain")
                return self.places[name]
            case _:
                return self.number(tree)[0]

    def called(self, tree: ast.expr) -> str:
        """The source of a function of the shape of a field."""
        match tree:
            case ast.Call(func=ast.Name(id=name), args=[ast.Name(id=field)]) if name in _OF_SHAPE:
                return f"{self.hold(_of_shape(tree, field, _OF_SHAPE[name]))}({self.places[field]})"
            case _:
                raise UnprovableError("no shape of a field")

    def sized(self, text: str) -> tuple[str, int]:
        """A size with a look at how large it is: of an array that nobody has made it may be anything."""
        return f"{self.hold(_size)}({text})", _LARGEST


def _called(tree: ast.expr) -> str | None:
    """The name of the function that is called, if one is."""
    return tree.func.id if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) else None


def _constant(tree: ast.expr) -> Any:
    match tree:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case _:
            raise UnprovableError("no constant")


def _size(size: int) -> int:
    if size < _LARGEST:
        return size
    raise UnprovableError("a size that is too large")


def _of_shape(tree: ast.Call, field: str, function: Callable[[tuple[int, ...]], Any]) -> Callable[[Any], Any]:
    """A function of the shape of a value: quick for arrays of JAX, tracers too, else as the evaluator has it."""

    def call(value: Any) -> Any:
        if type(value) in ARRAYS and _INTS.issuperset(map(type, shape := value.aval.shape)):
            return function(shape)
        return evaluate_tree(tree, {field: value})

    return call
