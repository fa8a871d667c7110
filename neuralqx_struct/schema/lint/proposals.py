"""Proposals: hints that name an expression, and the texts that parts of one may mean."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import NamedTuple

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import Expression, parse
from neuralqx_struct.expressions.operators import format_tree
from neuralqx_struct.expressions.paths import replaced
from neuralqx_struct.schema.lint import extents_of
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
