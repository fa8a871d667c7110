"""Fixes of operations that no values have: expressions that may be meant, by the forms of the operands."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import Expression, parse
from neuralqx_struct.expressions.functions import FUNCTIONS
from neuralqx_struct.expressions.grammar import replaced
from neuralqx_struct.expressions.operators import CALCULATED, LONG, format_tree
from neuralqx_struct.schema.lint import extents_of
from neuralqx_struct.schema.lint.operand_kinds import Form, singles_of
from neuralqx_struct.schema.model import Document

_LONGEST = 200  # characters of an expression in a hint


class Fix(NamedTuple):
    """The hint about a problem, with the expression that it proposes, if it proposes one."""

    hint: str | None
    text: str = ""


#: Words of YAML and Python, by the words that people write.
WORDS = {"true": "True", "false": "False", "null": "None", "none": "None"}


def fold_of(tree: ast.AST, node: ast.expr) -> ast.Call | None:
    """The function of all items whose argument a part is."""
    calls = (each for each in ast.walk(tree) if isinstance(each, ast.Call))
    return next((each for each in calls if len(each.args) == 1 and each.args[0] is node), None)


def written(text: str) -> Fix:
    """A hint with a whole expression."""
    return Fix(f"write `{text}`" if len(text) <= _LONGEST else "write all(...) around it", text)


def with_texts(expression: Expression, others: Mapping[str, str]) -> str | None:
    """The text of an expression with others in place of paths; None if one cannot be there."""
    try:
        trees = {path: parse(other).tree for path, other in others.items()}
        return format_tree(replaced(expression.tree, trees))
    except SchemaError:
        return None


def size_elsewhere(document: Document, name: str) -> str | None:
    """The hint about a name that is a size of another struct alone."""
    for struct, declaration in document.structs.items():
        extents = (size for field in declaration.fields.values() for size in extents_of(field))
        if any(name in size.names for size in extents):
            fix = "declare it under `dims:`, or pass it as a parameter"
            return f"{name} is a size of {struct} alone; {fix}"
    return None


def call(name: str, node: ast.expr) -> ast.Call:
    """The call of a function of one argument."""
    return ast.Call(ast.Name(name, ast.Load()), [node], [])


def around(name: str, node: ast.expr) -> Iterator[ast.expr]:
    """Yields a function of a part."""
    yield call(name, node)


def shapes_of(node: ast.expr) -> Iterator[ast.expr]:
    """Yields the comparison of the shapes of two arrays."""
    if isinstance(node, ast.Compare):
        left, right = call("shape", node.left), call("shape", node.comparators[0])
        yield ast.Compare(left, [ast.Eq()], [right])


def in_chain(
    chain: ast.Compare, place: int, tried: Callable[[], Iterator[ast.expr]]
) -> Iterator[ast.expr]:
    """Yields a chain of comparisons with one of them exchanged."""
    for each in tried():
        if isinstance(each, ast.Compare):
            operands = [chain.left, *chain.comparators]
            operands[place : place + 2] = [each.left, *each.comparators]
            relations = [*chain.ops[:place], *each.ops, *chain.ops[place + 1 :]]
            yield ast.Compare(operands[0], relations, operands[1:])


def null_check(node: ast.expr) -> Iterator[ast.expr]:
    """Yields the check that a value is not null in place of an order."""
    if isinstance(node, ast.Compare):
        yield ast.Compare(node.left, [ast.NotEq()], node.comparators)


def nearer(node: ast.expr, forms: Sequence[Form]) -> Iterator[ast.expr]:
    """Yields operations that may be meant.

    Args:
        node: The operation.
        forms: The forms of its operands.
    """
    operands = _operands(node)
    kinds = [{value.operand for value in singles_of(form)} for form in forms]
    if isinstance(node, ast.Call) and len(operands) == 1 and "struct" not in kinds[0]:
        record = FUNCTIONS[node.func.id]  # type: ignore[attr-defined]
        if record.folds or record.measures:
            yield operands[0]
    numbers = [bool(kind & CALCULATED) for kind in kinds]
    pairs = [*enumerate(zip(operands, kinds, strict=False))]
    # A name counts before a constant: `0 < name` means `0 < len(name)`, not `'0' < name`.
    for place, (operand, kind) in sorted(
        pairs, key=lambda pair: isinstance(pair[1][0], ast.Constant)
    ):
        others = numbers[:place] + numbers[place + 1 :]
        if any(others) and "text" in kind:
            yield from _with(node, place, _number_in(operand))
        if "text" in set().union(*kinds[:place], *kinds[place + 1 :]) and kind & CALCULATED:
            yield from _with(node, place, _text_of(operand))
        if kind == {"complex"}:
            yield from _with(node, place, call("abs", operand))
        counted = isinstance(node, (ast.Compare, ast.Call)) and not isinstance(
            operand, ast.Constant
        )
        if counted and kind & LONG and any(others):
            yield from _with(node, place, call("len", operand))
    if kinds and kinds[0] & LONG and _folds(node):
        yield call("len", operands[0])


def _folds(node: ast.expr) -> bool:
    """True for a function of all items of one argument."""
    one = isinstance(node, ast.Call) and len(node.args) == 1
    return one and FUNCTIONS[node.func.id].folds  # type: ignore[attr-defined]


def _operands(node: ast.expr) -> list[ast.expr]:
    match node:
        case ast.BinOp():
            return [node.left, node.right]
        case ast.Compare() if len(node.ops) == 1:
            return [node.left, node.comparators[0]]
        case ast.Call():
            return node.args
        case ast.UnaryOp():
            return [node.operand]
    return []


def _with(node: ast.expr, place: int, operand: ast.expr | None) -> Iterator[ast.expr]:
    """Yields an operation with another operand."""
    if operand is None:
        return
    made: Any = copy.copy(node)
    match made:
        case ast.BinOp():
            made.left, made.right = (operand, made.right) if place == 0 else (made.left, operand)
        case ast.Compare():
            if place == 0:
                made.left = operand
            else:
                made.comparators = [operand]
        case ast.Call():
            made.args = [*made.args[:place], operand, *made.args[place + 1 :]]
        case ast.UnaryOp():
            made.operand = operand
    yield made


def _number_in(node: ast.expr) -> ast.expr | None:
    """The number that a constant text writes."""
    value = getattr(node, "value", None)
    for read in (int, float):
        try:
            return ast.Constant(read(value)) if isinstance(value, str) else None
        except ValueError:
            continue
    return None


def _text_of(node: ast.expr) -> ast.expr | None:
    """The text of a constant number."""
    value = getattr(node, "value", None)
    return ast.Constant(str(value)) if type(value) in (int, float) else None
