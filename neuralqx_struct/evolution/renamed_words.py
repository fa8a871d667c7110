"""Strings that steps rename: what becomes of the limits that name them, in choices and in constraints.

A limit follows where the new names tell the same values apart (:func:`reworded`). Otherwise nothing is known of it.

Example:
    >>> from neuralqx_struct.expressions import parse
    >>> words = Words({"a": "c"}, {"c": "a"}, frozenset("ab"), frozenset(), frozenset("cb"), frozenset())
    >>> reworded(parse("x == 'a' or n > 1"), lambda name: [words] if name == "x" else [])
    "x == 'c' or n > 1"
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.functions import FUNCTIONS
from neuralqx_struct.expressions.operators import format_tree


@dataclass(frozen=True, slots=True)
class Words:
    """The names that a step gives the strings of one field.

    Attributes:
        values: New names by old.
        undo: Old names by new.
        before: The strings that it renames, those that keep their name among them.
        beside: The other strings of the field.
        after: As ``before``, after the step.
        beside_after: As ``beside``, after the step.
        open: Whether the field may have any other string, too.
    """

    values: Mapping[str, str]
    undo: Mapping[str, str]
    before: frozenset[str]
    beside: frozenset[str]
    after: frozenset[str]
    beside_after: frozenset[str]
    open: bool = False

    def forth(self, value: Any) -> Any:
        """What becomes of a value."""
        return self._other(value, self.values, self.before)

    def back(self, value: Any) -> Any:
        """What becomes of a value on the way back."""
        return self._other(value, self.undo, self.after)

    @staticmethod
    def _other(value: Any, names: Mapping[str, str], among: frozenset[str]) -> Any:
        is_renamed = isinstance(value, str) and value in among
        return names.get(value, value) if is_renamed else value

    @property
    def is_reversible(self) -> bool:
        """True if no two values become one, in either direction."""
        return all(self.distinct(text) is not None for text in self.before | self.beside)

    def distinct(self, text: str) -> str | None:
        """The new name of a string, if it is that of no other, in neither direction."""
        new = self.forth(text)
        known = (*self.before, *self.beside, text, *[new] * self.open)
        now = (*self.after, *self.beside_after, new, *[text] * self.open)
        olds = {each for each in known if self.forth(each) == new}
        news = {each for each in now if self.back(each) == text}
        return str(new) if (olds, news) == ({text}, {new}) else None


def reworded(
    expression: Expression,
    words_of: Callable[[str], Sequence[Words] | None],
    texts: Container[str] = (),
) -> str | None:
    """The text of a condition by the new names of strings; None if it may be another condition.

    Args:
        expression: The condition.
        words_of: The renames of the values at a path, in order; None if they are not known.
        texts: The paths that reach a string, whose length is its own.
    """
    known = {path: words_of(path) for path in expression.names}
    if not any(words is None or words for words in known.values()):
        return expression.text
    walk = _Reword(known, texts)
    tree = walk.visit(copy.deepcopy(expression.tree))
    return None if walk.is_lost else format_tree(tree)


_PLAIN = (ast.Name, ast.Constant, ast.Tuple, ast.List, ast.UnaryOp, ast.unaryop, ast.expr_context)


class _Reword(ast.NodeTransformer):
    """Gives the strings that are compared with renamed values their new names."""

    def __init__(self, known: Mapping[str, Sequence[Words] | None], texts: Container[str]) -> None:
        self.known = known
        self.texts = texts
        self.is_lost = False

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        sides = [node.left, *node.comparators]
        named = [side for side in sides if isinstance(side, ast.Name)]
        chains = [self.known.get(side.id, ()) for side in named]
        if not any(chain is None or chain for chain in chains):
            self.generic_visit(node)
            return node
        chain = chains[0]
        of_words = isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn)
        if len(node.ops) > 1 or not of_words or chain is None or chains != [chain] * len(chains):
            self.is_lost = True
            return node
        if len(chains) > 1:  # the values of two fields
            self.is_lost |= not all(words.is_reversible for words in chain)
        for side in sides:
            for each in ast.walk(side):
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    each.value = self._new(each.value, chain)
                elif not isinstance(each, _PLAIN):
                    self.is_lost = True
        return node

    def _new(self, text: str, chain: Iterable[Words]) -> str:
        for words in chain:
            new = words.distinct(text)
            if new is None:
                self.is_lost = True
                return text
            text = new
        return text

    def visit_Call(self, node: ast.Call) -> ast.expr:
        (first, *_), measures = node.args, FUNCTIONS[getattr(node.func, "id", "")].measures
        if not (measures and isinstance(first, ast.Name) and first.id not in self.texts):
            node.args = [self.visit(argument) for argument in node.args]
        return node  # the number of items is the same

    def visit_Name(self, node: ast.Name) -> ast.expr:
        chain = self.known.get(node.id, ())
        self.is_lost = self.is_lost or chain is None or bool(chain)
        return node
