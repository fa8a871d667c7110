"""Constraints on all elements of a value: they hold for each part of it, and for a value whose parts they all hold for.

Example:
    >>> from neuralqx_struct.expressions import parse
    >>> sorted(passed_on([parse("all(w >= 0)"), parse("sum(w) == 1")], ["w"], ["a", "b"], v1.structs["VMCState"]))
    ['all(a >= 0)', 'all(b >= 0)']
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from neuralqx_struct.evolution.moved_values import renamed_text
from neuralqx_struct.expressions import Expression, parse
from neuralqx_struct.expressions.functions import FUNCTIONS
from neuralqx_struct.expressions.operators import format_tree
from neuralqx_struct.expressions.paths import head_of, path_of, steps_of
from neuralqx_struct.schema.model import StructDeclaration

_ALL = "all"


def passed_on(
    conditions: Iterable[Expression],
    sources: Sequence[str],
    results: Sequence[str],
    struct: StructDeclaration,
    *,
    items: bool = False,
) -> set[str]:
    """The texts of conditions that hold for the results of a step, as they held for what it was made of.

    Args:
        conditions: The conditions of the struct before the step.
        sources: The fields before the step; one of them, or one result, is the whole.
        results: The fields after it.
        struct: The struct of these conditions.
        items: Whether the parts are the items of a collection, and not arrays.
    """
    known = [*conditions]
    texts = {condition.text for condition in known}
    found: set[str] = set()
    if len(sources) == 1:
        for condition in known:
            if _is_everywhere(condition, sources[0], struct):
                for text in _plain(condition) if items else (condition.text,):
                    found |= {_of(parse(text), sources[0], result) for result in results}
        return found
    for condition in known:
        wrapped = parse(f"{_ALL}({condition.text})") if items else condition
        if not _is_everywhere(wrapped, sources[0], struct):
            continue
        if all(_of(condition, sources[0], source) in texts for source in sources):
            found |= {_of(wrapped, sources[0], result) for result in results}
    return found


def _plain(condition: Expression) -> tuple[str, ...]:
    """The condition, and without ``all`` around it, as one item needs no more."""
    call = condition.tree
    inside = format_tree(call.args[0]) if isinstance(call, ast.Call) else condition.text
    return condition.text, inside


def _is_everywhere(condition: Expression, name: str, struct: StructDeclaration) -> bool:
    """True for a condition that looks at each element of a field alone: ``all(...)`` of it and of single numbers."""
    tree = condition.tree
    outer = isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == _ALL
    if not outer or not isinstance(tree, ast.Call):
        return False
    for node in ast.walk(tree.args[0]):
        if isinstance(node, ast.Call):
            function = FUNCTIONS.get(getattr(node.func, "id", ""))
            if function is None or function.folds or function.measures:
                return False
    own = [path for path in condition.names if head_of(path) == name]
    whole = all(not isinstance(step, int) for path in own for step in steps_of(path)[:1])
    return bool(own) and whole and all(_is_single(p, struct) for p in condition.names - {*own})


def _is_single(path: str, struct: StructDeclaration) -> bool:
    """True for a dim, or a field that is one number."""
    field = struct.fields.get(path)
    if field is None or field.type is None:
        return field is None and path == head_of(path)
    return field.declared.axes == 0


def _of(condition: Expression, name: str, other: str) -> str:
    """The text of a condition on another field."""
    paths = {
        path: path_of(other, steps_of(path)) for path in condition.names if head_of(path) == name
    }
    return renamed_text(condition, paths)
