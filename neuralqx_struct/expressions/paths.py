"""Paths: the names of values inside fields, such as ``optimizer.step``, ``extent[0]`` and ``layers[-1].width``.

The parser makes each whole path one ``ast.Name`` with its canonical text as ``id``, so that everything that reads, compares,
solves or replaces names does so with paths. This module alone looks inside that text.

Example:
    >>> head_of("layers[-1].width"), steps_of("layers[-1].width")
    ('layers', (-1, 'width'))
    >>> path_of("layers", (-1, "width"))
    'layers[-1].width'
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, cast

from neuralqx_struct.expressions.operators import format_tree

#: The name of a field, or the position of an item.
PathStep = str | int

_STEP = re.compile(r"\.([^.\[]+)|\[(-?\d+)\]")


@lru_cache(maxsize=4096)
def _parts(path: str) -> tuple[str, tuple[PathStep, ...]]:
    end = min((place for place in map(path.find, ".[") if place > 0), default=len(path))
    steps = _STEP.findall(path, end)
    return path[:end], tuple(name or int(item) for name, item in steps)


def head_of(path: str) -> str:
    """The first name of a path: a field or a dim."""
    return _parts(path)[0]


def steps_of(path: str) -> tuple[PathStep, ...]:
    """The steps behind the first name; empty for a plain name."""
    return _parts(path)[1]


def path_of(head: str, steps: Iterable[PathStep]) -> str:
    """The text of a path; the inverse of :func:`head_of` and :func:`steps_of`."""
    texts = [f".{step}" if isinstance(step, str) else f"[{step}]" for step in steps]
    return "".join([head, *texts])


def is_given(name: str) -> bool:
    """True for a name in an equation that only fields give a value: a path, or a function such as ``sum(sizes)``."""
    return not {*name}.isdisjoint(".[(")


def is_path(node: ast.AST) -> bool:
    """True for a name with any number of fields and items behind it."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return isinstance(node, ast.Name)


class _Fold(ast.NodeTransformer):
    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return ast.copy_location(ast.Name(format_tree(node), ast.Load()), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if is_path(node):
            return ast.copy_location(ast.Name(format_tree(node), ast.Load()), node)
        node.value = self.visit(node.value)  # a shape
        return node


def folded(tree: ast.expr) -> ast.expr:
    """The tree of a checked expression with one name in place of each path."""
    made: ast.expr = _Fold().visit(tree)
    return made


def names_in(tree: ast.AST) -> Iterator[ast.Name]:
    """Yields the names and paths of a folded tree, without those of functions."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            yield node
        elif isinstance(node, ast.Call):
            waiting += node.args
        else:
            waiting += ast.iter_child_nodes(node)


class _Replace(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, ast.expr]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.names.get(node.id, node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        node.args = [self.visit(argument) for argument in node.args]
        return node


class _Exchange(ast.NodeTransformer):
    def __init__(self, old: ast.expr, new: ast.expr) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else super().visit(node)


def exchanged(tree: ast.expr, old: ast.expr, new: ast.expr) -> ast.expr:
    """A copy of a tree with another one in place of one of its parts."""
    known: dict[int, Any] = {}
    copied = copy.deepcopy(tree, known)
    return cast("ast.expr", _Exchange(known.get(id(old), old), new).visit(copied))


def replaced(tree: ast.expr, names: Mapping[str, ast.expr]) -> ast.expr:
    """A folded tree with other trees in place of some names and paths; names of functions stay."""
    made: ast.expr = _Replace(names).visit(copy.deepcopy(tree))
    return made
