"""Static typing of expressions: the sorts that a value may have before any of its names has one.

Example:
    >>> from neuralqx_struct.expressions import parse
    >>> sorted(infer(parse("n / 2 if n > 3 else 0").tree, {"n": frozenset({"int"})}, []))
    ['float', 'int']
    >>> problems = []
    >>> infer(parse("n + 'a'").tree, {"n": frozenset({"int"})}, problems)
    >>> problems[0].message
    "expected operands that fit together, got an int and text in `n + 'a'`"
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions.evaluation import evaluate_tree
from neuralqx_struct.expressions.functions import (
    FUNCTIONS,
    NUMBERS,
    SEQUENCES,
    Problem,
    Sorts,
    either,
    kept,
    unfit,
)
from neuralqx_struct.expressions.operators import (
    OPERATORS,
    Operator,
    TreeWalk,
    operator_of,
    shown,
    spine,
)

_CONSTANTS = {"str": "text", "NoneType": "null"}
_SIGNED = {"bool": "int", "int": "int", "float": "float", "complex": "complex"}
_BOOL: Sorts = frozenset({"bool"})
_UNORDERED = ("struct", "key", "dict")


def infer(node: ast.expr, names: Mapping[str, Sorts], problems: list[Problem]) -> Sorts:
    """The sorts that an expression may have.

    Args:
        node: The tree of a checked expression.
        names: The sorts of its names; missing names are unknown.
        problems: Receives the errors.

    Returns:
        The sorts; None where they are unknown, or after a problem.
    """
    return _Inference(names, problems).visit(node)


def _sort_of(value: object) -> Sorts:
    name = type(value).__name__
    return frozenset({_CONSTANTS.get(name, name)})


def _names_in(node: ast.expr) -> bool:
    """True if the value depends on a name; names of functions do not count."""
    called = {id(inner.func) for inner in ast.walk(node) if isinstance(inner, ast.Call)}
    names = (inner for inner in ast.walk(node) if isinstance(inner, ast.Name))
    return any(id(name) not in called for name in names)


class _Inference(TreeWalk):
    """One run over a tree."""

    def __init__(self, names: Mapping[str, Sorts], problems: list[Problem]) -> None:
        self.names = names
        self.problems = problems

    def visit(self, node: ast.AST) -> Sorts:
        if isinstance(node, (ast.BinOp, ast.Call)) and not _names_in(node):
            return self.computed(node)
        found: Sorts = super().visit(node)
        return found

    def computed(self, node: ast.expr) -> Sorts:
        """The sort of a part without names, whose errors are certain."""
        try:
            return _sort_of(evaluate_tree(node, {}))
        except SchemaError as error:
            for found in error.diagnostics:
                code = "NQX117" if found.code == "NQX507" else found.code
                self.problems.append(Problem(code, found.message.replace("\n", " "), found.hint))
            return None

    def constant(self, node: ast.Constant) -> Sorts:
        return _sort_of(node.value)

    def name(self, node: ast.Name) -> Sorts:
        return self.names.get(node.id)

    def operation(self, node: ast.BinOp) -> Sorts:
        first, steps = spine(node)
        left = self.visit(first)
        for step in steps:
            right = self.visit(step.right)
            left = None if self.is_impossible(step) else self.combined(step, left, right)
        return left

    def is_impossible(self, step: ast.BinOp) -> bool:
        """True for a division by zero and for a tower of powers, whatever the values of the names are."""
        record = operator_of(step)
        if record.divides and _is_zero(step.right):
            problem = Problem("NQX115", "expected a divisor other than zero, got 0")
        elif record.powers and _has_open_power(step.right):
            message = "expected an exponent without a power in it, got a tower"
            problem = Problem("NQX117", message, "nobody can compute numbers of that size")
        else:
            return False
        message = f"{problem.message} in `{shown(step)}`"
        self.problems.append(problem._replace(message=message))
        return True

    def combined(self, node: ast.BinOp, left: Sorts, right: Sorts) -> Sorts:
        if left is None or right is None:
            return None
        record = operator_of(node)
        pairs = {_pair(record, node.right, a, b) for a in left for b in right}
        known = frozenset(sort for sort in pairs if sort is not None)
        if known:
            return known
        unfit(node, "operands that fit together", left, right, problems=self.problems)
        return None

    def unary(self, node: ast.UnaryOp) -> Sorts:
        inner = self.visit(node.operand)
        if operator_of(node).negates:
            return _BOOL
        return kept(node, inner, _SIGNED, self.problems)

    def boolean(self, node: ast.BoolOp) -> Sorts:
        return either([self.visit(value) for value in node.values])

    def comparison(self, node: ast.Compare) -> Sorts:
        sorts = [self.visit(part) for part in (node.left, *node.comparators)]
        for relation, left, right in zip(node.ops, sorts, sorts[1:], strict=False):
            record = OPERATORS[type(relation)]
            if left is not None and right is not None and not record.member:
                self.compared(node, record, left, right)
        if any(part is not None and "array" in part for part in sorts):
            return frozenset({"array"})
        return None if None in sorts else _BOOL  # an unknown part may be an array

    def compared(
        self, node: ast.Compare, record: Operator, left: frozenset[str], right: frozenset[str]
    ) -> None:
        if any(_comparable(a, b, ordered=record.ordered) for a in left for b in right):
            return
        hint = f"they are never equal: `{record.symbol}` has one answer whatever the values are"
        wanted = "values that have an order" if record.ordered else "values that can be equal"
        advice = None if record.ordered else hint
        unfit(node, wanted, left, right, problems=self.problems, hint=advice)

    def choice(self, node: ast.IfExp) -> Sorts:
        self.visit(node.test)
        return either([self.visit(node.body), self.visit(node.orelse)])

    def sequence(self, node: ast.Tuple | ast.List) -> Sorts:
        for element in node.elts:
            self.visit(element)
        return frozenset({"tuple" if isinstance(node, ast.Tuple) else "list"})

    def call(self, node: ast.Call) -> Sorts:
        found = [self.visit(argument) for argument in node.args]
        return FUNCTIONS[node.func.id].sorts(node, found, self.problems)  # type: ignore[attr-defined]

    def item(self, node: ast.Subscript) -> Sorts:
        self.visit(node.value)
        return frozenset({"int"})


def _is_zero(node: ast.expr) -> bool:
    if _names_in(node):
        return False
    try:
        return bool(evaluate_tree(node, {}) == 0)
    except SchemaError:  # reported with the part itself
        return False


def _has_open_power(node: ast.expr) -> bool:
    """True if an exponent inside depends on a name."""
    powers = (inner for inner in ast.walk(node) if isinstance(inner, ast.BinOp))
    return any(operator_of(power).powers and _names_in(power.right) for power in powers)


def _pair(record: Operator, operand: ast.expr, left: str, right: str) -> str | None:
    """The sort of one operation, or None where there is no such operation."""
    if record.joins and left == right and left in SEQUENCES:
        return left
    if not {left, right} <= {*NUMBERS, "array"}:
        return None
    if "array" in (left, right):
        return "array"
    wider = NUMBERS[max(NUMBERS.index(left), NUMBERS.index(right), 1)]
    if wider == "complex" and record.real:
        return None
    return "float" if wider == "int" and record.fractions(operand) else wider


def _comparable(left: str, right: str, *, ordered: bool) -> bool:
    if not ordered and "null" in (left, right):
        return True
    numbers = {*NUMBERS, "array"} - ({"complex"} if ordered else set())
    if left in numbers and right in numbers:
        return True
    alone = ("array", "null", "complex", *(_UNORDERED if ordered else ()))
    return left == right and left not in alone
