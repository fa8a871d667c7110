"""Evaluation of expressions on sample values, by which lint judges them.

An operation is a finding if it has a value for none of the samples. A name of which nothing is known, such as one of a `pytree`,
leaves the operations on it undecided, and so does a failure that other numbers would not have: a division by zero, or unequal
numbers of items. What is undecided because samples are limited is noted (NQX139).

Example:
    >>> from neuralqx_struct.expressions import parse
    >>> samples = SampleEvaluation(v3, "VMCState", ["n_sites"])
    >>> [problem.message for problem in samples.problems(parse("alpha > 'x'"), single=True)]
    ["expected operands that fit together, got int and str in `alpha > 'x'`"]
"""

from __future__ import annotations

import ast
import math
from bisect import bisect_left
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Any

from neuralqx_struct.errors import Diagnostic, SchemaError
from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.evaluation import evaluate_tree
from neuralqx_struct.expressions.grammar import has_names, inside, names_in, steps_of
from neuralqx_struct.expressions.items import Budget, StepsError, UnequalItemsError
from neuralqx_struct.expressions.operators import shown, spine
from neuralqx_struct.schema.lint import Problem
from neuralqx_struct.schema.lint.sample_values import Choices, Sample, SampleArray, UndecidedError
from neuralqx_struct.schema.model import Document

_MOST_SAMPLES = 64
_MOST_ITEMS = 64
_MOST_STEPS = 500_000


@dataclass(frozen=True)
class SampleEvaluation:
    """Evaluates the expressions of a struct on sample values.

    Attributes:
        document: The document.
        struct: The struct.
        sizes: Names of sizes.
        budget: The steps that all evaluations share; what is left then is undecided.
        limits: The limits of samples that leave operations of an expression undecided.
    """

    document: Document
    struct: str
    sizes: Container[str]
    budget: Budget = field(default_factory=lambda: Budget(_MOST_STEPS))
    limits: dict[str, None] = field(default_factory=dict)

    def value(self, tree: ast.expr, choices: Choices | None = None, axis: int = 1) -> Any:
        """The value of an expression for one sample.

        Args:
            tree: The expression.
            choices: The options of unions that the sample has; the first ones if left out.
            axis: The size of all axes that have names.

        Raises:
            SchemaError: It has none.
            UndecidedError: It is not known whether it has one.
        """
        steps = [steps_of(name.id) for name in names_in(tree)]
        indices = [abs(step) for path in steps for step in path if isinstance(step, int)]
        length = 1 + max(indices, default=0)
        if length > _MOST_ITEMS:
            raise UndecidedError(
                f"it reads item {length - 1}, and samples have {_MOST_ITEMS} items"
            )
        levels = 2 + max(map(len, steps), default=0)
        chosen = choices or Choices()
        sample = Sample(self.document, self.struct, chosen, self.sizes, axis, length, levels)
        try:
            return evaluate_tree(tree, sample, budget=self.budget)
        except StepsError as error:
            raise UndecidedError(
                f"samples of {self.struct} take more steps than lint has"
            ) from error
        except SchemaError as error:
            arithmetic = isinstance(error.__context__, ArithmeticError)
            if arithmetic or isinstance(error, UnequalItemsError) or error.code == "NQX507":
                raise UndecidedError from error
            raise

    def problems(self, expression: Expression, *, single: bool) -> Iterator[Problem]:
        """Yields the problems of the operations of an expression whose names reach something.

        Args:
            expression: The expression.
            single: Whether its value has to be one truth value.
        """
        self.limits.clear()
        yield from self._problems_of(expression.tree, single=single)
        for limit in self.limits:
            message = f"expected an expression that lint can try on samples, got one that is not judged as a whole\n{limit}"
            hint = "split it into derived fields or several constraints; loads evaluate it"
            yield Problem("NQX139", message, hint, "info")

    def _problems_of(self, node: ast.expr, *, single: bool = False) -> Iterator[Problem]:
        """Yields the problems of a part: those of the parts inside, else its own."""
        if not has_names(node):
            return  # lint computes parts without names
        wrong, decided = self._failure(node, single=single)
        if wrong is None and decided and not _hides_parts(node):
            if single and self._has_elements(node):
                message = f"expected one truth value, got one for each element in `{shown(node)}`"
                hint = "say which elements must hold: all(...) or any(...)"
                yield Problem("NQX115", message, hint, "warning")
            return
        found = [
            problem
            for part, is_single in _parts_of(node, single=single, is_fine=wrong is None)
            for problem in self._problems_of(part, single=is_single)
        ]
        yield from found
        if wrong is not None and not found:
            yield self._problem_of(node, wrong)

    def _problem_of(self, node: ast.expr, wrong: Diagnostic) -> Problem:
        """The problem of a part; of a sum of several the first one that has it."""
        if isinstance(node, ast.BinOp):
            _, steps = spine(node)
            place = bisect_left(steps, True, key=lambda step: self._wrong(step) is not None)
            if place < len(steps):  # else its truth value alone is wrong
                node = steps[place]
                wrong = self._wrong(node) or wrong
        message = wrong.message.partition("\n")[0]
        return Problem("NQX115", f"{message} in `{shown(node)}`", wrong.hint)

    def _wrong(self, node: ast.expr) -> Diagnostic | None:
        """Why an operation has no value for any sample."""
        return self._failure(node, single=False)[0]

    def _failure(self, node: ast.expr, *, single: bool) -> tuple[Diagnostic | None, bool]:
        """Why a part has no value for any sample, and whether that is known."""
        tree = ast.UnaryOp(ast.Not(), node) if single else node
        choices, wrong = Choices(), None
        for _ in range(_MOST_SAMPLES):
            try:
                self.value(tree, choices)
            except UndecidedError as error:
                if error.limit:
                    self.limits[error.limit] = None
                return None, False
            except SchemaError as error:
                wrong = wrong or error.diagnostics[0]
            else:
                return None, True
            if not choices.advance():
                return wrong, True
        limit = f"the unions in it have more than {_MOST_SAMPLES} combinations of options"
        self.limits[limit] = None
        return None, False

    def _has_elements(self, node: ast.expr) -> bool:
        """True for an array with several elements where named sizes are not 1."""
        try:
            value = self.value(node, axis=2)
        except (SchemaError, UndecidedError):
            return False
        return type(value) is SampleArray and math.prod(value.shape) > 1


def _parts_of(node: ast.expr, *, single: bool, is_fine: bool) -> Iterator[tuple[ast.expr, bool]]:
    """Yields the parts of an operation, and whether each has to be one truth value.

    Args:
        node: The operation.
        single: Whether its own value has to be one.
        is_fine: Whether it has a value; several arguments are then compared as one value each.
    """
    match node:
        case ast.BoolOp():
            yield from ((value, True) for value in node.values)
        case ast.IfExp():
            yield from ((node.test, True), (node.body, single), (node.orelse, single))
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand, True
        case ast.Call() if is_fine and len(node.args) > 1:
            yield from ((argument, True) for argument in node.args)
        case ast.Compare() if len(node.ops) > 1:
            operands = [node.left, *node.comparators]
            yield from ((operand, False) for operand in operands)
            for left, relation, right in zip(operands, node.ops, operands[1:], strict=False):
                yield ast.Compare(left, [relation], [right]), False
        case _:
            yield from ((part, False) for part in inside(node)[1] if isinstance(part, ast.expr))


def _hides_parts(tree: ast.expr) -> bool:
    """True if the value of an expression may not need all of its parts, or compares arrays as one value."""
    for node in ast.walk(tree):
        match node:
            case ast.BoolOp() | ast.IfExp():
                return True
            case ast.Compare(ops=several) | ast.Call(args=several) if len(several) > 1:
                return True
    return False
