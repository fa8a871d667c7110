"""What the members of a manifest must be: the grammar's rules, told of one node or, at the speed of C, of columns of many.

Owns the tests behind the words of ``manifest_grammar.py`` and :func:`node_children`. Walks no tree and words no finding:
``manifest.py`` does.

Example:
    >>> node = {"__kind__": "array", "name": "w", "dtype": "float32", "shape": [2]}
    >>> sound(node, LAYOUTS["array"]), sound({**node, "shape": [-1]}, LAYOUTS["array"])
    (True, False)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from neuralqx_struct.manifest_grammar import (
    CHOICES,
    LENGTHS,
    MODES,
    MOST_DIMS,
    NODE_KINDS,
    PATTERNS,
    RANGES,
    RECORDS,
)

__all__ = [
    "LAYOUTS",
    "RULES",
    "Layout",
    "ignorable",
    "is_size",
    "layout_of",
    "node_children",
    "sound",
    "sound_all",
    "sound_arrays",
]

_MOST_PLANS = 500


def _range_rule(low: int, high: int | None) -> Callable[[Any], bool]:
    if high is None:
        return lambda value: type(value) is int and value >= low
    return lambda value: type(value) is int and low <= value <= high


def _choice_rule(known: tuple[str, ...]) -> Callable[[Any], bool]:
    return lambda value: type(value) is str and value in known


def _pattern_rule(pattern: str, most: int | None) -> Callable[[Any], bool]:
    compiled = re.compile(pattern[1:-1])
    if most is not None:
        return lambda value: type(value) is str and len(value) <= most and compiled.fullmatch(value) is not None
    return lambda value: type(value) is str and compiled.fullmatch(value) is not None


def _is_text(value: Any) -> bool:
    return type(value) is str


_LARGEST = RANGES["size"][1] or 0


def is_size(value: Any) -> bool:
    """True for an integer that an axis can be long."""
    return type(value) is int and 0 <= value <= _LARGEST


def _is_shape(value: Any) -> bool:
    if type(value) is not list or len(value) > MOST_DIMS:
        return False
    for size in value:  # noqa: SIM110 - twice as fast as all(), and this runs once an array
        if type(size) is not int or not 0 <= size <= _LARGEST:
            return False
    return True


def _are_checksums(value: Any) -> bool:
    return type(value) is list and (
        not value or (set(map(type, value)) == {int} and min(value) >= 0 and max(value) < 2**32)
    )


# What a member's value must be: the words of the message, and the test.
RULES: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "text": ("a string", _is_text),
    "true": ("true", lambda value: value is True),
    "shape": (f"a list of at most {MOST_DIMS} integers from 0 to 2**63 - 1", _is_shape),
    "checksums": ("a list of integers from 0 to 4294967295", _are_checksums),
    "object": ("an object", lambda value: type(value) is dict),
    "documents": ("a list of objects", lambda v: type(v) is list and all(type(item) is dict for item in v)),
    **{name: (" or ".join(map(repr, known)), _choice_rule(known)) for name, known in CHOICES.items()},
    **{name: (words, _pattern_rule(pattern, LENGTHS.get(name))) for name, (words, pattern) in PATTERNS.items()},
    **{
        name: (f"an integer >= {low}" if high is None else f"an integer from {low} to {high}", _range_rule(low, high))
        for name, (low, high) in RANGES.items()
    },
}


class Layout:
    """The members of one kind, sorted for the checking pass: rules to test, structures to descend into."""

    __slots__ = ("descent", "known", "places", "plans", "required", "rules")

    def __init__(self, members: Mapping[str, str], *, tagged: bool) -> None:
        names = {name.rstrip("?"): rule for name, rule in members.items()}
        self.rules = {name: RULES[rule][1] for name, rule in names.items() if rule in RULES}
        self.places = {name: rule for name, rule in names.items() if rule not in RULES}
        self.descent = tuple(reversed(self.places.items()))  # onto a stack: the last member first
        self.plans: dict[tuple[Any, ...], tuple[Callable[[Any], bool] | None, ...]] = {}
        self.required = tuple(name for name in members if not name.endswith("?"))
        self.known = {**({"__kind__": "text"} if tagged else {}), **names}
        if tagged:
            self.rules["__kind__"] = RULES["text"][1]


LAYOUTS: Final = {
    **{kind: Layout(members, tagged=True) for kind, members in NODE_KINDS.items()},
    **{
        f"registered-pytree/{mode}": Layout({**NODE_KINDS["registered-pytree"], **members}, tagged=True)
        for mode, members in MODES.items()
    },
    **{name: Layout(members, tagged=False) for name, members in RECORDS.items()},
}


def ignorable(member: Any) -> bool:
    """True if whoever wrote a member says that readers may pass it over."""
    return type(member) is dict and member.get("must_understand") is False


def sound(value: dict[str, Any], layout: Layout) -> bool:
    """True if the members are the known ones and satisfy their rules; places are not looked into."""
    names = tuple(value)
    plan = layout.plans.get(names)
    if plan is None:
        plan = _plan(names, layout)
        if plan is None:
            return False
        if len(layout.plans) < _MOST_PLANS:
            layout.plans[names] = plan
    for rule, member in zip(plan, value.values(), strict=True):
        if rule is _is_text:  # the most frequent one, without a call
            if type(member) is not str:
                return False
        elif rule is not None and not rule(member):
            return False
    return True


def _plan(names: tuple[Any, ...], layout: Layout) -> tuple[Callable[[Any], bool] | None, ...] | None:
    """The rules for members in this order, None for a place; no plan at all if a required one is missing.

    The nodes of a large manifest have few different orders of members, so that plans are made once and found again.
    """
    if not set(layout.required) <= set(names):
        return None
    return tuple(
        None if name in layout.places else layout.rules.get(name, ignorable if type(name) is str else _never)
        for name in names
    )


def _never(_: Any) -> bool:
    return False


_MANY = 16  # from here on columns are faster than rows


def sound_all(values: Collection[dict[str, Any]], layout: Layout) -> bool:
    """True if every one is :func:`sound`, told column by column at the speed of C; false also where that is not clear."""
    orders = set(map(tuple, values))  # of members: mostly one
    groups: dict[tuple[Any, ...], Collection[dict[str, Any]]] = dict.fromkeys(orders, values)
    if len(orders) > 1:
        sorted_out: dict[tuple[Any, ...], list[dict[str, Any]]] = {names: [] for names in orders}
        for value in values:
            sorted_out[tuple(value)].append(value)
        groups |= sorted_out
    for names, group in groups.items():
        if not set(layout.required) <= set(names):
            return False
        for name, column in zip(names, zip(*map(dict.values, group), strict=True), strict=True):
            rule = layout.known.get(name)
            if rule is None or rule not in RULES or not _column_sound(column, rule):
                return False
    return True


def _column_sound(column: Sequence[Any], rule: str) -> bool:
    types = set(map(type, column))
    if rule == "shape":
        if types != {list} or max(map(len, column)) > MOST_DIMS:
            return False
        column = list(chain.from_iterable(column))
        return not column or (set(map(type, column)) == {int} and min(column) >= 0 and max(column) <= _LARGEST)
    if rule in RANGES:
        low, high = RANGES[rule]
        return types == {int} and min(column) >= low and (high is None or max(column) <= high)
    if rule == "text":
        return types == {str}
    return types <= {str, bool} and all(map(RULES[rule][1], set(column)))


def sound_arrays(nodes: Iterable[Any]) -> int:
    """How many array nodes are among these, if they are many and nothing is wrong with any; else 0."""
    arrays = [node for node in nodes if type(node) is dict and node.get("__kind__") == "array"]
    return len(arrays) if len(arrays) >= _MANY and sound_all(arrays, LAYOUTS["array"]) else 0


def layout_of(node: dict[str, Any]) -> Layout | None:
    """The layout of a node by its kind, None if that is not known."""
    kind = node.get("__kind__")
    if kind == "registered-pytree":
        mode = node.get("mode")
        return LAYOUTS[f"{kind}/{mode}" if type(mode) is str and mode in MODES else kind]
    return LAYOUTS[kind] if type(kind) is str and kind in NODE_KINDS else None


def node_children(node: Any) -> Iterator[tuple[str, Any, Any]]:
    """The nodes right below a sound node: member, key inside the member (None for a single node), child.

    Pairs of a dict give two children each, with keys ``(index, 0)`` and ``(index, 1)``.

    Example:
        >>> list(node_children({"__kind__": "list", "items": [7]}))
        [('items', 0, 7)]
    """
    layout = layout_of(node) if type(node) is dict else None
    for member, place in layout.places.items() if layout is not None else ():
        value = node[member]
        if place == "fields":
            yield from ((member, key, child) for key, child in value.items())
        elif place == "nodes":
            yield from ((member, index, child) for index, child in enumerate(value))
        elif place == "pairs":
            yield from ((member, (index, side), pair[side]) for index, pair in enumerate(value) for side in (0, 1))
        else:
            yield member, None, value
