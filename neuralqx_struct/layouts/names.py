"""Names of arrays in a file, joined along the nesting of structs, and the leaves: arrays of a schema with such names.

A name is counted where a rule has ``{i}`` or ``{key}``.

Example:
    >>> names = Names(["h.0.w", "h.1.w", "h.1.b", "norm.w"])
    >>> names.numbers("h.", ""), names.keys("", "", "."), names.any_below("norm")
    ({0, 1}, ['h', 'norm'], True)
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import product
from typing import Any, Final

from neuralqx_struct.errors import Diagnostic, SchemaError
from neuralqx_struct.evolution.sizes import extent
from neuralqx_struct.evolution.steps.keys import KEY_WORDS
from neuralqx_struct.formats.table import ForeignArray
from neuralqx_struct.layouts import KEY, NUMBER, Layout, Rule
from neuralqx_struct.layouts.forms import Form
from neuralqx_struct.layouts.places import (
    Leaf,
    Place,
    Values,
)
from neuralqx_struct.manifest.kinds import ARRAY, PRNG_KEY
from neuralqx_struct.paths import array_name
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.sizes.solver import Solver
from neuralqx_struct.types import Extent, Node

#: Starts a name that the prefix and the names around it are not part of.
ABSOLUTE = "/"
#: Ends a name.
END = "\n"
#: Names that one file may be searched for.
_MOST_LOOKS = 20_000_000
#: Characters that make a name a pattern.
_MAGIC = frozenset("*?[")
_DIGITS = re.compile(r"(0|[1-9][0-9]{0,8})(?![0-9A-Za-z_])")


def joined(base: str, part: str, separator: str) -> str:
    """The name of a part inside of another one.

    Example:
        >>> joined("encoder", "layer.{i}", "."), joined("encoder", "/head", "."), joined("encoder", "", ".")
        ('encoder.layer.{i}', '/head', 'encoder')
    """
    if part.startswith(ABSOLUTE) or not base:
        return part
    if not part:
        return base
    return f"{base}{part}" if base == ABSOLUTE else f"{base}{separator}{part}"


def full(name: str, prefix: str) -> str:
    """The name in the file."""
    return name[1:] if name.startswith(ABSOLUTE) else f"{prefix}{name}"


def _over_budget(what: str, hint: str) -> SchemaError:
    message = f"expected names that are found within the budget, got too many {what}"
    return SchemaError(message, code="NQX507", hint=hint)


class Ignored:
    """The names that a layout ignores.

    Args:
        patterns: Names, or patterns, behind the prefix; those that start with / are whole names.
        prefix: The prefix.
    """

    def __init__(self, patterns: Iterable[str], prefix: str) -> None:
        self._left = _MOST_LOOKS
        self._prefix = prefix
        self._exact: dict[bool, set[str]] = {True: set(), False: set()}
        self._patterns: dict[bool, list[str]] = {True: [], False: []}
        for each in dict.fromkeys(patterns):
            whole = each.startswith(ABSOLUTE)
            text = each[1:] if whole else each
            if _MAGIC.isdisjoint(text):
                self._exact[whole].add(text)
            else:
                self._patterns[whole].append(text)

    def __contains__(self, name: str) -> bool:
        forms = ((True, name), (False, name.removeprefix(self._prefix)))
        if any(text in self._exact[whole] for whole, text in forms):
            return True
        return any(
            self._matches(text, each) for whole, text in forms for each in self._patterns[whole]
        )

    def _matches(self, text: str, pattern: str) -> bool:
        self._left -= 1 + len(text) * len(pattern) // 100  # the work that the worst pattern makes
        if self._left < 0:
            raise _over_budget(
                "patterns under `ignore:`", "ignore fewer patterns, such as pooler.*"
            )
        return fnmatchcase(text, pattern)


class Names:
    """The names of the arrays in a file, which are searched by their beginnings."""

    def __init__(self, names: Iterable[str]) -> None:
        self._left = _MOST_LOOKS
        self._sorted = sorted(names)
        self._known = frozenset(self._sorted)

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __len__(self) -> int:
        return len(self._sorted)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sorted)

    def below(self, start: str) -> Iterator[str]:
        """Yields the names that start with a text, without it."""
        for place in range(bisect_left(self._sorted, start), len(self._sorted)):
            name = self._sorted[place]
            if not name.startswith(start):
                return
            self._left -= 1
            if self._left < 0:
                hint = "give lists and dicts names of their own in the layout"
                raise _over_budget("lists", hint)
            yield name[len(start) :]

    def any_below(self, start: str) -> bool:
        """True if a name starts with a text."""
        return next(self.below(start), None) is not None

    def numbers(self, before: str, behind: str) -> set[int]:
        """The numbers between two texts."""
        found = set[int]()
        for rest in self.below(before):
            match = _DIGITS.match(rest)
            if match is not None and rest.startswith(behind, match.end()):
                found.add(int(match[1]))
        return found

    def keys(self, before: str, behind: str, separator: str) -> list[str]:
        """The texts without a separator between two others; with ``END`` behind, whole names."""
        found = dict[str, None]()
        for rest in self.below(before):
            if behind == END:
                found[rest] = None
                continue
            key, found_separator, tail = rest.partition(separator)
            if not behind or (found_separator + tail).startswith(behind):
                found[key] = None
        return [*found]


#: Marks the place of a number that all layers of a stacked struct share; no text of a layout has it.
LAYER: Final = "\0"


@dataclass(eq=False)
class Leaves:
    """The arrays that a walk has found, those that the file lacks, and those that it has in place of plain values.

    Attributes:
        document: The version of the schema.
        layout: The layout.
        prefix: The text in front of all names.
        names: The names in the file; None when a file is written.
        values: The values that no array shows.
        files: The arrays of the file.
    """

    document: Document
    layout: Layout
    prefix: str = ""
    names: Names | None = None
    values: Values = field(default_factory=Values)
    files: Mapping[str, ForeignArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.leaves: list[Leaf] = []
        self.missing: list[tuple[Place, str]] = []
        self.misplaced: set[str] = set()
        self.found: list[Diagnostic] = []
        self.notes: list[Diagnostic] = []
        self.present = 0
        self.dims = Solver(self.document.dims)
        self._visits = 0
        self._sizes: dict[str, int] = {}
        self._settings: dict[str, int] = {}
        self._known: dict[tuple[int, str], dict[str, int]] = {}
        rules = (rule for each in self.layout.structs.values() for rule in each.values())
        self._anew = any(name[:1] == ABSOLUTE for rule in rules for name in rule.names(""))

    def report(self, code: str, place: Place, message: str, hint: str | None = None) -> None:
        """Adds a problem."""
        self.found.append(Diagnostic(code, "error", message, path=place.text, hint=hint))

    def count(self, before: str, behind: str, place: Place) -> int:
        """The number of items whose names have numbers between two texts."""
        assert self.names is not None
        start = full(before.replace(LAYER, "0"), self.prefix)
        fixed = until_mark(behind)
        numbers = self.names.numbers(start, fixed)
        missing = {*range(len(numbers))} - numbers
        if missing:
            shown = f"{start}{min(missing)}{fixed}"
            message = f"expected numbers from 0 on without a gap, got no {shown!r}"
            self.report(
                "NQX705", place, message, "the file lacks arrays, or numbers them otherwise"
            )
        return len(numbers)

    def array(
        self, dtypes: tuple[str, ...], shape: tuple[Extent, ...], place: Place
    ) -> dict[str, Any]:
        """The node of an array, with a leaf that gives it a shape."""
        rule, separator = place.rule, self.layout.separator
        bases: tuple[str, ...] = (place.base,)
        merged = isinstance(rule.name, list)
        if merged:
            outer = place.base
            bases = tuple(joined(outer, part, separator) for part in rule.names(place.field))
        declared = shape[len(place.axes) :]
        if any(NUMBER in base for base in bases):
            bases = tuple(self._numbered(bases, rule, declared, place))
            merged = True
        form = Form.of(rule, declared, len(bases) if merged else None)
        node: dict[str, Any] = place.node
        if self.names is not None:
            node = ARRAY.node(name=array_name(place.path), dtype="", shape=[])
        leaf = Leaf(place, form, dtypes, node)
        leaf.names = tuple(self._expanded(bases, place))
        self.leaves.append(leaf)
        if self.names is not None:
            absent = [name for name in leaf.names if name not in self.names]
            if not leaf.names:
                absent = [full(place.base.replace(LAYER, NUMBER), self.prefix)]
            self.missing += [(place, name) for name in absent]
            self.present += max(len(leaf.names) - len(absent), 0)
        return node

    def _numbered(
        self, bases: tuple[str, ...], rule: Rule, declared: tuple[Extent, ...], place: Place
    ) -> Iterator[str]:
        """Yields the names of arrays that are stacked by their numbers."""
        for base in bases:
            before, _, behind = base.partition(NUMBER)
            if self.names is not None:
                count = self.count(before, behind, place)
            else:
                count = self._stacked_count(rule, declared, place)
            for index in range(count):
                yield f"{before}{index}{behind}"

    def _stacked_count(self, rule: Rule, declared: tuple[Extent, ...], place: Place) -> int:
        """The number of arrays of the file that one of the payload is the stack of."""
        form = Form.of(rule, declared, 1)
        shape = tuple(place.node.get("shape", ()))[len(place.axes) :]
        if len(shape) != len(form.declared):
            return 0
        if form.transposition is not None:
            shape = form.transposition.inverse.shape(shape)
        return shape[rule.axis] if rule.reshape is None else 0

    def _expanded(self, bases: tuple[str, ...], place: Place) -> Iterator[str]:
        """Yields the full names, of every layer of stacked structs."""
        counts = self._layer_counts(place)
        for numbers in product(*map(range, counts)):
            for base in bases:
                name = base
                for number in numbers:
                    name = name.replace(LAYER, str(number), 1)
                yield full(name, self.prefix)

    def _layer_counts(self, place: Place) -> list[int]:
        """The numbers of layers whose arrays are apart in the file."""
        stacked = [frame for frame in place.frames if frame.index is None]
        counts = [frame.count for frame in stacked]
        if self.names is None:
            counts = list(place.node.get("shape", ()))[: len(stacked)]
        return [n or 0 for frame, n in zip(stacked, counts, strict=False) if frame.axis is None]

    def key(self, dtype: str, shape: tuple[Extent, ...], impl: str, place: Place) -> Node:
        """The node of typed random keys; the file has their words."""
        words = KEY_WORDS.get(impl)
        if words is None:
            message = f"expected the implementation of the keys, got {impl}"
            self.report("NQX420", place, message, "declare it, such as prng_key[threefry2x32]")
            return None
        if self.names is None:
            place = replace(place, node=place.node["data"])
        data = self.array((dtype,), (*shape, extent(words)), place)
        return PRNG_KEY.node(impl=impl, data=data)


def until_mark(text: str) -> str:
    """The beginning of a name up to the place of a number or a key."""
    for mark in (NUMBER, KEY, LAYER):
        text = text.partition(mark)[0]
    return text
