"""Trees of the names in a foreign file: names are split at their separator, and arrays and values are the leaves.

Example:
    >>> arrays = {f"h.{i}.w": ForeignArray("float32", (2,), lambda: None) for i in range(2)}
    >>> separator_of(arrays), [*name_tree(arrays, {}, ".")["h"]]
    ('.', ['0', '1'])
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from neuralqx_struct.formats import ForeignArray
from neuralqx_struct.layouts.names import ABSOLUTE
from neuralqx_struct.manifest.kinds import ARRAY

#: The separator with which files are opened, if no other is asked for.
DEFAULT_SEPARATOR = "."
#: Characters that separate the parts of names; the last one only where all names have it.
_SEPARATORS = (".", "/", "-")
#: The last parts of a longer name stay together: walks of structs end at some depth.
_DEEPEST = 40


class Branch(dict[str, Any]):
    """The parts of names below one part: branches, and the nodes of arrays and values.

    Attributes:
        likes: Facts about each part that equal parts share; made by :func:`compare`.
        like: A number that branches with equal parts share, in this order.
    """

    likes: Mapping[str, Hashable]
    like: int


def separator_of(names: Iterable[str]) -> str:
    """The character that separates the parts of names."""
    known = [*names]
    counts = {each: sum(each in name for name in known) for each in _SEPARATORS}
    *usual, rare = _SEPARATORS
    best = max(usual, key=counts.__getitem__)
    return rare if known and counts[best] == 0 and counts[rare] == len(known) else best


def name_tree(
    arrays: Mapping[str, ForeignArray], values: Mapping[str, Any], separator: str
) -> Branch:
    """The tree of the parts of names, whose leaves are nodes."""
    tree = Branch()
    for name, array in arrays.items():
        node = ARRAY.node(name=name, dtype=array.dtype, shape=[*array.shape])
        _insert(tree, _parts(name, separator), node)
    for name, value in values.items():
        if name not in arrays:
            _insert(tree, _parts(name, separator), value)
    return tree


def compare(tree: Branch) -> None:
    """Numbers the branches of a tree, so that those with the same names, dtypes, shapes and values have one number."""
    _compare(tree, {})


def _compare(tree: Branch, known: dict[Hashable, int]) -> int:
    likes: dict[str, Hashable] = {}
    for part, inside in tree.items():
        if isinstance(inside, Branch):
            likes[part] = _compare(inside, known)
        elif ARRAY.matches(inside):
            likes[part] = (inside["dtype"], *inside["shape"])
        else:
            likes[part] = (type(inside), inside)
    tree.likes = likes
    tree.like = known.setdefault(tuple(likes.items()), len(known))
    return tree.like


def _parts(name: str, separator: str) -> list[str]:
    """The parts of a name; the whole name as one absolute part where it has an empty one."""
    parts = name.split(separator, _DEEPEST)
    some = "" in parts or ABSOLUTE in name
    if some and any(not part or part.startswith(ABSOLUTE) for part in parts):
        return [f"{ABSOLUTE}{name}"]
    return parts


def _insert(tree: Branch, parts: list[str], node: Any) -> None:
    *outer, last = parts
    for part in outer:
        inside = tree.setdefault(part, Branch())
        if not isinstance(inside, Branch):  # the name of another array
            inside = tree[part] = Branch({"": inside})
        tree = inside
    if isinstance(tree.get(last), Branch):
        tree, last = tree[last], ""
    tree[last] = node
