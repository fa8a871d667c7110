"""Names and strings that steps rename: the expressions that name them, with the new names.

Example:
    >>> from neuralqx_struct.expressions import parse
    >>> renamed_text(parse("4 * config.n_heads"), {"config.n_heads": "settings.n_heads"})
    '4 * settings.n_heads'
    >>> words = Words({"a": "c"}, frozenset("ab"))
    >>> reworded(parse("x == 'a' or n > 1"), {"x": words})
    "x == 'c' or n > 1"
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping
from typing import NamedTuple

from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.grammar import replaced
from neuralqx_struct.expressions.operators import format_tree


def renamed_text(expression: Expression, names: Mapping[str, str]) -> str:
    """The text of an expression with other names and paths."""
    if not names.keys() & expression.names:
        return expression.text
    trees: dict[str, ast.expr] = {name: ast.Name(other) for name, other in names.items()}
    return format_tree(replaced(expression.tree, trees))


class Words(NamedTuple):
    """The names that a step gives the strings of one field.

    Attributes:
        values: New names by old.
        strings: All strings of the field before the step; None if that is not known.
    """

    values: Mapping[str, str]
    strings: frozenset[str] | None

    def renamed(self, text: str) -> str:
        """The new name of a string."""
        return self.values.get(text, text)

    def distinct(self, text: str) -> str | None:
        """The new name of a string, if no other string has it."""
        new = self.renamed(text)
        same = {each for each in self.strings or () if self.renamed(each) == new}
        return new if self.strings is not None and same <= {text} else None


def reworded(condition: Expression, words: Mapping[str, Words]) -> str | None:
    """The text of a constraint by the new names of strings; None if it may be another constraint.

    It follows where renamed strings are compared with constants, or with each other, for equality.

    Args:
        condition: The constraint.
        words: The new names of the strings at a path.
    """
    walk = _Reword(words)
    tree = walk.visit(copy.deepcopy(condition.tree))
    return None if walk.is_lost else format_tree(tree)


_PLAIN = (ast.Name, ast.Constant, ast.Tuple, ast.List, ast.expr_context)


class _Reword(ast.NodeTransformer):
    """Gives the strings that are compared with renamed ones their new names."""

    def __init__(self, words: Mapping[str, Words]) -> None:
        self.words = words
        self.is_lost = False

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        sides = [node.left, *node.comparators]
        names = [side.id for side in sides if isinstance(side, ast.Name)]
        renames = [self.words.get(name) for name in names]
        equality = all(isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for op in node.ops)
        plain = all(isinstance(each, _PLAIN) for side in sides for each in ast.walk(side))
        words = renames[0] if renames else None
        if words is None or not (equality and plain) or renames != [words] * len(renames):
            return self.generic_visit(node)  # type: ignore[return-value]
        parts = [each for side in sides for each in ast.walk(side)]
        constants = [each for each in parts if isinstance(each, ast.Constant)]
        texts = [each.value for each in constants if isinstance(each.value, str)]
        known = words.strings or () if len(names) > 1 else texts
        self.is_lost |= any(words.distinct(text) is None for text in known)
        for each in constants:
            if isinstance(each.value, str):
                each.value = words.renamed(each.value)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        self.is_lost |= node.id in self.words
        return node
