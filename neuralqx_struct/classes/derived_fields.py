"""Derived fields of schema-made classes: functions that compute an expression from an instance.

The function is Python code for plain numbers, text and shapes of arrays, on which Python's operators do the same as the
evaluator (``expressions/evaluation.py``). All other values, and errors, are left to the evaluator. Names reach the code as
numbered variables, texts and functions as objects.

Example:
    >>> from types import SimpleNamespace
    >>> from neuralqx_struct.expressions import parse
    >>> derivation(parse("4 * width + 1"))(SimpleNamespace(width=3))
    13
"""

from __future__ import annotations

import ast
import copy
import math
import operator
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.evaluation import evaluate, evaluate_tree
from neuralqx_struct.expressions.operators import MAX_BITS, MAX_EXPONENT
from neuralqx_struct.struct.equality import JAX_ARRAYS


class UnprovableError(Exception):
    """There is no straight-line code for the expression."""


_LARGEST = (
    2**63
)  # of the numbers that the code takes, so that no result can have more bits than allowed
_MOST_NODES = 190  # Python nests at most 200 brackets
_NUMBERS = frozenset({bool, int, float})
_PLAIN = _NUMBERS | {str, type(None)}  # for comparisons
_INTS = frozenset({int})

#: Functions of a shape of ints.
_OF_SHAPE: Mapping[str, Callable[[tuple[int, ...]], Any]] = {
    "len": operator.itemgetter(0),
    "size": math.prod,
    "shape": tuple,
    "ndim": len,
}
#: Functions that are those of Python for numbers.
_OF_NUMBERS: Mapping[str, Callable[..., Any]] = {"abs": abs, "min": min, "max": max}
_OPERATORS = (ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context)
_COMPOSED = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.IfExp, *_OPERATORS)


def derivation(expression: Expression) -> Callable[[Any], Any]:
    """The function of an instance that computes a derived field."""

    def evaluated(self: Any) -> Any:
        return evaluate(expression, {name: getattr(self, name) for name in expression.names})

    derived: Callable[[Any], Any] = evaluated
    with suppress(UnprovableError):
        derived = _compiled(expression, evaluated)
    derived.__doc__ = expression.text
    derived.__nqx_pure__ = True  # type: ignore[attr-defined]
    return derived


def _compiled(expression: Expression, otherwise: Callable[[Any], Any]) -> Callable[[Any], Any]:
    tree = expression.tree
    if not expression.names or sum(1 for _ in ast.walk(tree)) > _MOST_NODES:
        raise UnprovableError(expression.text)
    names = sorted(expression.names)
    code = _Code({name: f"v{place}" for place, name in enumerate(names)})
    if _called(tree) == "shape":
        text = ast.unparse(code.shape_function(tree))
    else:
        _largest(tree)
        text = ast.unparse(code.visit(copy.deepcopy(tree)))
    source = (
        f"def derived(self):\n    {', '.join(code.places.values())} = get(self)\n"
        f"    try:\n        if {' and '.join(sorted(code.guards)) or True}:\n            return {text}\n"
        "    except error:\n        pass\n    return otherwise(self)\n"
    )
    namespace = {
        **code.namespace,
        "get": operator.attrgetter(*names),
        "otherwise": otherwise,
        "error": Exception,
    }
    exec(compile(source, "<generated derivation of a schema>", "exec"), namespace)  # noqa: S102
    return namespace["derived"]  # type: ignore[no-any-return]


def _largest(tree: ast.expr) -> int:
    """The largest absolute value that an int result can have.

    Raises:
        UnprovableError: A result could have more bits than the evaluator allows.
    """
    match tree:
        case ast.Constant(value=int() as value):
            largest = abs(value)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            exponent = _constant(right)
            if type(exponent) not in _NUMBERS or abs(exponent) > MAX_EXPONENT:
                raise UnprovableError("an exponent that may be too large")
            whole = exponent if type(exponent) is int and exponent > 0 else 1
            largest = max(_largest(left), 1) ** whole
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            largest = _largest(left) * _largest(right)
        case ast.BinOp(left=left, right=right):
            largest = _largest(left) + _largest(right)
        case ast.UnaryOp(operand=operand):
            largest = _largest(operand)
        case ast.BoolOp(values=values):
            largest = max(map(_largest, values))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            largest = max(map(_largest, (test, body, orelse)))
        case ast.Compare(left=left, comparators=comparators):
            others = [each for each in comparators if not isinstance(each, (ast.List, ast.Tuple))]
            largest = max(map(_largest, (left, *others)))
        case ast.Call(func=ast.Name(id=name), args=args) if name in _OF_NUMBERS:
            largest = max(map(_largest, args))
        case ast.Constant():
            largest = 1
        case _:
            largest = _LARGEST
    if largest.bit_length() > MAX_BITS:
        raise UnprovableError("whole numbers that may be too long")
    return largest


class _Code(ast.NodeTransformer):
    """Turns an expression of numbers into Python code, and collects the conditions under which it is valid.

    Args:
        places: The variable of each name.
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self.places = places
        self.guards: set[str] = set()
        self.namespace: dict[str, Any] = {
            **_OF_NUMBERS,
            "kind": type,
            "numbers": _NUMBERS,
            "plain": _PLAIN,
            "least": -_LARGEST,
            "largest": _LARGEST,
            "sized": _sized,
        }

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if not isinstance(node, _COMPOSED):
            raise UnprovableError("no number")
        return super().generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if type(node.value) not in _NUMBERS:
            raise UnprovableError("no number")
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        place = self.places[node.id]
        self.guards.add(f"kind({place}) in numbers and least < {place} < largest")
        return ast.Name(place, ast.Load())

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if isinstance(node.ops[0], ast.In | ast.NotIn) and len(node.ops) == 1:
            (choices,) = node.comparators
            values = self._held(tuple(map(_constant, getattr(choices, "elts", ()))))
            return ast.Compare(self._plain(node.left), node.ops, [values])
        return ast.Compare(
            self._plain(node.left), node.ops, [self._plain(each) for each in node.comparators]
        )

    def _plain(self, node: Any) -> Any:
        """An operand of a comparison: a number, text or None."""
        if isinstance(node, ast.Name):
            place = self.places[node.id]
            self.guards.add(f"kind({place}) in plain")
            return ast.Name(place, ast.Load())
        return self._held(node.value) if isinstance(node, ast.Constant) else self.visit(node)

    def _held(self, value: Any) -> ast.Name:
        """The name of an object in the namespace."""
        name = f"held{len(self.namespace)}"
        self.namespace[name] = value
        return ast.Name(name, ast.Load())

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = _called(node)
        if name in _OF_NUMBERS and (len(node.args) > 1 or name == "abs"):
            node.args = [self.visit(arg) for arg in node.args]
            return node
        if name == "shape":
            raise UnprovableError("no number")
        return _call("sized", self.shape_function(node))

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        index = ast.Constant(_constant(node.slice))
        return _call("sized", ast.Subscript(self.shape_function(node.value), index, ast.Load()))

    def shape_function(self, node: ast.expr) -> ast.expr:
        """The call of a function of the shape of a field."""
        match node:
            case ast.Call(func=ast.Name(id=name), args=[ast.Name(id=field)]) if name in _OF_SHAPE:
                held = self._held(_of_shape(copy.deepcopy(node), field, _OF_SHAPE[name]))
                return _call(held.id, ast.Name(self.places[field], ast.Load()))
        raise UnprovableError("no shape of a field")


def _call(function: str, argument: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(function, ast.Load()), [argument], [])


def _called(tree: ast.expr) -> str:
    """The name of the function that is called, if one is."""
    return tree.func.id if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) else ""


def _constant(tree: ast.expr) -> Any:
    match tree:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
    raise UnprovableError("no constant")


def _sized(size: int) -> int:
    """A size; arrays that were never allocated may have any."""
    if size < _LARGEST:
        return size
    raise UnprovableError("a size that is too large")


def _of_shape(
    tree: ast.Call, field: str, function: Callable[[tuple[int, ...]], Any]
) -> Callable[[Any], Any]:
    """A function of the shape of a value: quick for JAX arrays, tracers too, else by the evaluator."""

    def call(value: Any) -> Any:
        if type(value) in JAX_ARRAYS and _INTS.issuperset(map(type, shape := value.aval.shape)):
            return function(shape)
        return evaluate_tree(tree, {field: value})

    return call
