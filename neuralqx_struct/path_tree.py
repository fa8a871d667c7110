"""Trees by path: leaves that are named by tuples of text, held as dicts of dicts.

``{"net": {"w": 1}}`` holds 1 at ``("net", "w")``. A path may be the beginning of another one: the leaf of the shorter stands
under :data:`HERE` then. Trees are never changed once they are made, so that what two of them have in common is shared. Knows
nothing of what the leaves are, but that they are no dicts.

Example:
    >>> tree = tree_of([(("net", "w"), 1), (("net",), 2)])
    >>> tree
    {'net': {'': 2, 'w': 1}}
    >>> list(entries(with_entry(tree, ("a",), 3)))
    [(('a',), 3), (('net',), 2), (('net', 'w'), 1)]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

__all__ = ["HERE", "Tree", "entries", "find", "is_path", "overlaid", "tree_of", "with_entry"]

Path = tuple[str, ...]
Tree = dict[str, Any]

#: The key of a leaf whose path is the beginning of another's; no name is empty.
HERE: Final = ""


def is_path(path: object) -> bool:
    """True for a tuple of names that are text and not empty."""
    return isinstance(path, tuple) and bool(path) and all(isinstance(part, str) and part for part in path)


def find(tree: Tree, path: tuple[Any, ...]) -> Any:
    """What stands at a path, or None."""
    here: Any = tree
    for part in path:
        here = here.get(part) if isinstance(here, dict) else None
    return here.get(HERE) if isinstance(here, dict) else here


def with_entry(tree: Tree, path: Path, leaf: Any) -> Tree:
    """A tree with one more leaf; what lies beside the path is shared with the old one."""
    head, rest = path[0], path[1:]
    inner = tree.get(head)
    if not rest and not isinstance(inner, dict):
        return {**tree, head: leaf}
    below: Tree = inner if isinstance(inner, dict) else {} if inner is None else {HERE: inner}
    return {**tree, head: with_entry(below, rest, leaf) if rest else {**below, HERE: leaf}}


def tree_of(pairs: Iterable[tuple[Path, Any]]) -> Tree:
    """The tree of these leaves, in sorted order, which is the order that JAX wants dicts in; inverse of :func:`entries`."""
    tree: Tree = {}
    for path, leaf in sorted(pairs, key=lambda pair: pair[0]):
        here = tree
        for part in path[:-1]:
            inner = here.setdefault(part, {})
            if not isinstance(inner, dict):
                inner = here[part] = {HERE: inner}
            here = inner
        here[path[-1]] = leaf  # sorted: nothing below it has been seen yet
    return tree


def entries(tree: Tree) -> Iterator[tuple[Path, Any]]:
    """Paths and leaves, sorted by path."""
    todo: list[tuple[Path, Any]] = [((), tree)]
    while todo:
        path, here = todo.pop()
        if isinstance(here, dict):
            todo += [((*path, key) if key else path, here[key]) for key in sorted(here, reverse=True)]
        else:
            yield path, here


def overlaid(below: Tree, above: Tree) -> Tree:
    """The leaves of both trees; where both have one, that of ``above``."""
    merged = dict(below)
    for key, value in above.items():
        held = merged.get(key)
        if held is None or not (isinstance(held, dict) or isinstance(value, dict)):
            merged[key] = value
        else:
            trees: list[Tree] = [part if isinstance(part, dict) else {HERE: part} for part in (held, value)]
            merged[key] = overlaid(*trees)
    return dict(sorted(merged.items()))
