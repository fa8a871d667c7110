"""Choices of dtypes in the text of types: a name before sizes that stands for one of several dtypes.

Only a document knows its choices, so whoever parses a type hands them in; the parser then finds marked names.

Example:
    >>> tree = ast.parse("list[compute[n]]", mode="eval").body
    >>> name = with_choices(tree, (("compute", ("float32", "bfloat16")),)).slice.value
    >>> name.id, name.dtypes
    ('compute', ('float32', 'bfloat16'))
"""

from __future__ import annotations

import ast

#: Choices of dtypes by name.
Choices = tuple[tuple[str, tuple[str, ...]], ...]


class ChoiceName(ast.Name):
    """The name of a choice of dtypes."""

    def __init__(self, name: str, dtypes: tuple[str, ...]) -> None:
        super().__init__(name)
        self.dtypes = dtypes


class _Marking(ast.NodeTransformer):
    def __init__(self, choices: Choices) -> None:
        self.choices = dict(choices)

    def visit_Subscript(self, node: ast.Subscript) -> ast.Subscript:
        name = node.value
        if isinstance(name, ast.Name) and name.id in self.choices:
            node.value = ChoiceName(name.id, self.choices[name.id])
        node.slice = self.visit(node.slice)
        return node


def with_choices(tree: ast.expr, choices: Choices) -> ast.expr:
    """The parsed text of a type with the names of choices before sizes marked."""
    marked: ast.expr = _Marking(choices).visit(tree) if choices else tree
    return marked
