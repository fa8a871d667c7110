"""Static types of expressions: what can be said about an expression before any of its names has a value.

Owns the sorts of values that expressions know and the rules by which operators and functions combine them. Only what
fails for every value that the names may have is a problem: ``x > 0`` where ``x`` is ``int | null`` is none, because an
expression is not evaluated while a name of it is null. What an expression is equal to is ``evaluation.py``; where
expressions stand in a document, and what is expected there, is ``expression_checks.py``.

Example:
    >>> from neuralqx_struct.schema.expressions import parse
    >>> sorted(infer(parse("n / 2 if n > 3 else 0").tree, {"n": frozenset({"int"})}, []))
    ['float', 'int']
    >>> problems = []
    >>> infer(parse("n + 'a'").tree, {"n": frozenset({"int"})}, problems)
    >>> problems[0].message
    "expected operands that fit together, got an int and text in `n + 'a'`"
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.schema.evaluation import evaluate_tree
from neuralqx_struct.schema.syntax import COMPARISONS, format_tree, spine
from neuralqx_struct.schema.types import (
    Array,
    DictOf,
    Key,
    ListOf,
    LiteralOf,
    Named,
    Null,
    Scalar,
    TupleOf,
    Type,
    Union,
)

__all__ = ["SORT_NAMES", "Problem", "Sorts", "infer", "sorts_of"]

#: The sorts that a value may be of; None where nothing is known.
Sorts = frozenset[str] | None

SORT_NAMES: Mapping[str, str] = {
    "bool": "a bool",
    "int": "an int",
    "float": "a float",
    "complex": "a complex number",
    "text": "text",
    "bytes": "bytes",
    "null": "null",
    "tuple": "a tuple",
    "list": "a list",
    "dict": "a dict",
    "array": "an array",
    "key": "a random key",
    "struct": "a struct",
    "path": "a path",
    "dtype": "a dtype",
}

_NUMBERS = ("bool", "int", "float", "complex")
_SEQUENCES = frozenset({"text", "bytes", "tuple", "list"})
_SIZED = frozenset({*_SEQUENCES, "dict", "array", "key"})
_SCALARS = {"str": "text"}
_CONSTANTS = {bool: "bool", int: "int", float: "float", str: "text", type(None): "null"}


class Problem(NamedTuple):
    """Something that fails whatever the values are."""

    code: str
    message: str
    hint: str | None = None


def sorts_of(declared: Type, is_struct: Callable[[str], bool]) -> Sorts:
    """The sorts of the values of a type, null left out: nothing is computed with it.

    Args:
        declared: The type.
        is_struct: Whether a name is that of a struct; other names are enums.

    Example:
        >>> from neuralqx_struct.schema.types import parse_type
        >>> sorted(sorts_of(parse_type("float32[n] | int | null"), bool))
        ['array', 'int']
    """
    match declared:
        case Scalar(name):
            return frozenset({_SCALARS.get(name, name)})
        case Array():
            return frozenset({"array"})
        case Key():
            return frozenset({"key"})
        case ListOf():
            return frozenset({"list"})
        case TupleOf():
            return frozenset({"tuple"})
        case DictOf():
            return frozenset({"dict"})
        case Named(name):
            return frozenset({"struct" if is_struct(name) else "text"})
        case LiteralOf(values):
            return frozenset(_CONSTANTS[type(value)] for value in values)
        case Union(options):
            known = [sorts_of(option, is_struct) for option in options if not isinstance(option, Null)]
            return None if None in known else frozenset().union(*(sorts for sorts in known if sorts is not None))
        case _:
            return None


def named(sorts: Iterable[str]) -> str:
    """Sorts in words: ``an int or text``."""
    return " or ".join(SORT_NAMES[sort] for sort in sorted(sorts))


def infer(node: ast.expr, names: Mapping[str, Sorts], problems: list[Problem]) -> Sorts:
    """The sorts that an expression may have.

    Args:
        node: The tree of a checked expression.
        names: The sorts of its names; names that are missing are not known.
        problems: Takes what cannot work.

    Returns:
        The sorts; None where they are not known, or after a problem.
    """
    if isinstance(node, (ast.BinOp, ast.Call)) and not _names_in(node):
        return _constant(node, problems)
    match node:
        case ast.Constant(value=value):
            return frozenset({_CONSTANTS[type(value)]})
        case ast.Name(id=name):
            return names.get(name)
        case ast.BinOp():
            first, steps = spine(node)
            left = infer(first, names, problems)
            for step in steps:
                right = infer(step.right, names, problems)
                left = None if _is_impossible(step, problems) else _binary(step, left, right, problems)
            return left
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            infer(operand, names, problems)
            return frozenset({"bool"})
        case ast.UnaryOp(operand=operand):
            inner = infer(operand, names, problems)
            return _kept(node, inner, {"bool": "int", "int": "int", "float": "float", "complex": "complex"}, problems)
        case ast.BoolOp(values=values):
            return _either(infer(value, names, problems) for value in values)
        case ast.Compare():
            return _chain(node, names, problems)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            infer(test, names, problems)
            return _either([infer(body, names, problems), infer(orelse, names, problems)])
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            for element in elements:
                infer(element, names, problems)
            return frozenset({"tuple" if isinstance(node, ast.Tuple) else "list"})
        case ast.Call(func=ast.Name(id=name), args=args):
            return _FUNCTIONS[name](node, [infer(arg, names, problems) for arg in args], problems)
        case ast.Subscript(value=value):
            infer(value, names, problems)
            return frozenset({"int"})
    raise AssertionError(ast.dump(node))  # pragma: no cover - expressions.py lets no other through


def _is_impossible(step: ast.BinOp, problems: list[Problem]) -> bool:
    """True for a division by zero and for a tower of powers, whatever the values of the names are."""
    if isinstance(step.op, (ast.Div, ast.FloorDiv, ast.Mod)):
        objection = _is_zero(step.right) and Problem("NQX115", "expected a divisor other than zero, got 0", None)
    else:
        tower = isinstance(step.op, ast.Pow) and any(
            isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Pow) and _names_in(inner.right)
            for inner in ast.walk(step.right)
        )
        hint = "nobody can compute numbers of that size"
        objection = tower and Problem("NQX117", "expected an exponent without a power in it, got a tower", hint)
    if objection:
        text = format_tree(step)
        shown = text if len(text) <= 80 else f"{text[:77]}..."
        problems.append(objection._replace(message=f"{objection.message} in `{shown}`"))
    return bool(objection)


def _is_zero(node: ast.expr) -> bool:
    if _names_in(node):
        return False
    try:
        return bool(evaluate_tree(node, {}) == 0)
    except SchemaError:  # told of where the part is looked at
        return False


def _names_in(node: ast.expr) -> bool:
    """True if the value depends on a name; the names of functions are none."""
    todo: list[ast.AST] = [node]
    while todo:
        match todo.pop():
            case ast.Name():
                return True
            case ast.BinOp(left=left, right=right):
                todo += left, right
            case ast.Call(args=args):
                todo += args
            case other:
                todo += ast.iter_child_nodes(other)
    return False


def _constant(node: ast.expr, problems: list[Problem]) -> Sorts:
    """A part without names has one value; what goes wrong with it always will."""
    try:
        value = evaluate_tree(node, {})
    except SchemaError as error:
        for found in error.diagnostics:
            code = "NQX117" if found.code == "NQX507" else found.code
            problems.append(Problem(code, found.message.replace("\n", " "), found.hint))
        return None
    return frozenset({_CONSTANTS.get(type(value), type(value).__name__)})


def _fail(node: ast.AST, wanted: str, *found: Sorts, problems: list[Problem], hint: str | None = None) -> None:
    text = format_tree(node)
    shown = text if len(text) <= 80 else f"{text[:77]}..."
    got = " and ".join(named(sorts or ()) for sorts in found)
    problems.append(Problem("NQX115", f"expected {wanted}, got {got} in `{shown}`", hint))


def _either(options: Iterable[Sorts]) -> Sorts:
    known = list(options)
    return None if None in known else frozenset().union(*(sorts for sorts in known if sorts is not None))


def _kept(node: ast.AST, inner: Sorts, numbers: Mapping[str, str], problems: list[Problem]) -> Sorts:
    """The sort of an operation on one number, or on each number of an array."""
    if inner is None:
        return None
    rules = {**numbers, "array": "array"}
    if not inner & rules.keys():
        _fail(node, "a number or an array", inner, problems=problems)
        return None
    return frozenset(rules[sort] for sort in inner if sort in rules)


def _binary(node: ast.BinOp, left: Sorts, right: Sorts, problems: list[Problem]) -> Sorts:
    if left is None or right is None:
        return None
    pairs = [_combined(node, a, b) for a in sorted(left) for b in sorted(right)]
    known = frozenset(sort for sort in pairs if sort is not None)
    if not known:
        _fail(node, "operands that fit together", left, right, problems=problems)
        return None
    return known


def _combined(node: ast.BinOp, left: str, right: str) -> str | None:
    """The sort of one operation, or None where there is no such operation."""
    if isinstance(node.op, ast.Add) and left == right and left in _SEQUENCES:
        return left
    if not {left, right} <= {*_NUMBERS, "array"}:
        return None
    if "array" in (left, right):
        return "array"
    wider = _NUMBERS[max(_NUMBERS.index(left), _NUMBERS.index(right), 1)]
    if wider == "complex" and isinstance(node.op, (ast.FloorDiv, ast.Mod)):
        return None
    whole = isinstance(node.op, ast.Div) or (isinstance(node.op, ast.Pow) and not isinstance(node.right, ast.Constant))
    return "float" if whole and wider == "int" else wider


def _chain(node: ast.Compare, names: Mapping[str, Sorts], problems: list[Problem]) -> Sorts:
    sorts = [infer(part, names, problems) for part in (node.left, *node.comparators)]
    for index, relation in enumerate(node.ops):
        left, right = sorts[index], sorts[index + 1]
        if left is None or right is None or isinstance(relation, (ast.In, ast.NotIn)):
            continue
        ordered = COMPARISONS[type(relation)].apply not in (operator.eq, operator.ne)
        if not any(_comparable(a, b, ordered=ordered) for a in left for b in right):
            symbol = COMPARISONS[type(relation)].symbol
            hint = None if ordered else f"they are never equal: `{symbol}` has one answer whatever the values are"
            wanted = "values that have an order" if ordered else "values that can be equal"
            _fail(node, wanted, left, right, problems=problems, hint=hint)
    if any(part is not None and "array" in part for part in sorts):
        return frozenset({"array"})
    return None if None in sorts else frozenset({"bool"})  # what is not known may be an array


def _comparable(left: str, right: str, *, ordered: bool) -> bool:
    if not ordered and "null" in (left, right):
        return True
    numbers = {*_NUMBERS, "array"} - ({"complex"} if ordered else set())
    if left in numbers and right in numbers:
        return True
    return left == right and left not in ("array", "null", "complex", *(("struct", "key", "dict") if ordered else ()))


# ---------------------------------------------------------------------------------------------------------------------
# Functions: (node, sorts of the arguments, problems) -> sorts.

_Rule = Callable[[ast.Call, list[Sorts], list[Problem]], Sorts]


def _takes(accepted: frozenset[str], words: str, result: str) -> _Rule:
    """A function of one argument whose result has one sort."""

    def rule(node: ast.Call, found: list[Sorts], problems: list[Problem]) -> Sorts:
        (inner,) = found
        if inner is not None and not inner & accepted:
            _fail(node, words, inner, problems=problems)
        return frozenset({result})

    return rule


def _reduces(number: str | None) -> _Rule:
    """A function of the items of one sequence or array: ``number`` is the sort of the result for a sequence."""

    def rule(node: ast.Call, found: list[Sorts], problems: list[Problem]) -> Sorts:
        (inner,) = found
        if inner is None:
            return None
        if not inner & {"tuple", "list", "array"}:
            _fail(node, "an array, a tuple or a list", inner, problems=problems)
            return None
        if number is None and inner - {"array"}:
            return None
        return frozenset(number or "array" if sort != "array" else "array" for sort in inner)

    return rule


def _extreme(node: ast.Call, found: list[Sorts], problems: list[Problem]) -> Sorts:
    if len(found) == 1:
        return _reduces(None)(node, found, problems)
    for inner in found:
        if inner is not None and not inner & {"bool", "int", "float", "text", "bytes", "tuple", "list", "array"}:
            _fail(node, "values that have an order", inner, problems=problems)
            return None
    return _either(found)


def _finite(node: ast.Call, found: list[Sorts], problems: list[Problem]) -> Sorts:
    return _kept(node, found[0], dict.fromkeys(_NUMBERS, "bool"), problems)


def _absolute(node: ast.Call, found: list[Sorts], problems: list[Problem]) -> Sorts:
    rules = {"bool": "int", "int": "int", "float": "float", "complex": "float"}
    return _kept(node, found[0], rules, problems)


_MEASURED = frozenset({*_SIZED, *_NUMBERS})
_FUNCTIONS: Mapping[str, _Rule] = {
    "len": _takes(_SIZED, "something with a length", "int"),
    "size": _takes(_MEASURED | {"struct"}, "an array, a struct, a sequence or a number", "int"),
    "shape": _takes(_MEASURED, "an array, a sequence or a number", "tuple"),
    "ndim": _takes(_MEASURED, "an array, a sequence or a number", "int"),
    "min": _extreme,
    "max": _extreme,
    "abs": _absolute,
    "sum": _reduces(None),
    "all": _reduces("bool"),
    "any": _reduces("bool"),
    "isfinite": _finite,
}
