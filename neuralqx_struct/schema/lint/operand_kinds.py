"""The kinds of operands in expressions: what a part may be, by the types that a document declares, and what fits together."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from neuralqx_struct.expressions.operators import ALIKE, COMPARED, KINDS
from neuralqx_struct.schema.field_paths import Reached
from neuralqx_struct.schema.model import Document
from neuralqx_struct.types import Type
from neuralqx_struct.types.text import constant_size

#: The sizes of axes, where they are numbers; None where not even their number is known.
Axes = tuple[int | None, ...] | None


MOST = 64  # kinds of one part that are told apart


@dataclass(frozen=True, slots=True)
class Value:
    """One kind of value that a part may have.

    Attributes:
        kind: The sort in views, as types name it; empty for a value of which nothing is known.
        axes: Of arrays and keys.
        items: Of collections: the kinds of values inside.
    """

    kind: str
    axes: Axes = ()
    items: tuple[Value, ...] = ()

    @property
    def is_unknown(self) -> bool:
        """True for a value of which nothing is known."""
        return not self.kind

    @property
    def operand(self) -> str:
        """The name of its kind in the tables of operators, where one without axes is a kind of its own."""
        alone = self.kind in ("array", "key") and self.axes == ()
        return f"single {self.kind}" if alone else self.kind

    @property
    def text(self) -> str:
        """Its description in messages."""
        return _TEXTS.get(self.kind, self.kind)

    def singles(self) -> Iterator[Value]:
        """Yields the single values in collections at any depth."""
        if self.kind not in COLLECTIONS:
            yield self
        for item in self.items:
            yield from item.singles()


COLLECTIONS = frozenset({"list", "tuple", "dict"})


#: Operands of which functions of all items take the elements.
WHOLE = frozenset({"", "array", "single array", "list", "tuple", "text"})


_TEXTS = {
    "": "any value",
    "mixed": "items of several types",
    "array": "an array",
    "key": "a random key",
}


_TEXTS |= {kind: f"a {kind}" for kind in ("struct", "list", "tuple", "dict")}


ANY = Value("", None)


BOOL = Value("bool")


INT = Value("int")


class Form(NamedTuple):
    """What a part of an expression may be.

    Attributes:
        values: The kinds of its values, or with ``many`` of the values for the items.
        many: True if it has a value for each item.
        is_path: True for a collection that a path names, of which operators take the items.
    """

    values: tuple[Value, ...]
    many: bool = False
    is_path: bool = False

    @property
    def is_collection(self) -> bool:
        """True if it is a list, a tuple or a dict as a whole."""
        return not self.many and all(value.kind in COLLECTIONS for value in self.values)

    def spread(self) -> Form:
        """The items of a collection that a path names; other forms as they are."""
        if not self.is_path:
            return self
        return Form(tuple(item for value in self.values for item in value.items), many=True)

    @property
    def text(self) -> str:
        """Its description in messages."""
        return " or ".join(dict.fromkeys(value.text for value in self.values)) or "nothing"


UNKNOWN = Form((ANY,))


#: The form of a size.
COUNT = Form((INT,))


def form_of(found: Reached) -> Form:
    """The form of the values that a path reaches."""
    values = tuple(_values(found.options, whole=not found.stacked))
    form = Form(values or (ANY,), found.many)
    return form._replace(is_path=bool(values) and form.is_collection)


def _values(options: Iterable[tuple[Document, Type]], *, whole: bool) -> Iterator[Value]:
    for owner, option in options:
        kinds = option.operands(owner) & KINDS
        items: tuple[Value, ...] = ()
        if kinds & COLLECTIONS:
            items = _items(owner, option, whole=whole)
        axes: Axes = ()
        if kinds & {"array", "key"}:
            sizes = [constant_size(size) for size in option.extents if size is not ...]
            axes = tuple(sizes) if whole and len(sizes) == len(option.extents) else None
        for kind in sorted(kinds):
            yield Value(kind, axes, items)
        if not kinds:
            yield ANY


def _items(owner: Document, option: Type, *, whole: bool) -> tuple[Value, ...]:
    """The kinds of the items of a collection; of a tuple whose items no operator takes together, a kind for such ones."""
    parts = [
        [*_values([(owner, branch) for branch in part.branches], whole=whole)]
        for part in option.parts
    ]
    groups = [{ALIKE.get(value.operand, "") for value in values} for values in parts]
    known = bool(option.fixed_parts) and not any("" in group for group in groups)
    if known and not set.intersection(*groups):
        return (Value("mixed"),)
    return tuple(dict.fromkeys(value for values in parts for value in values))


def singles_of(form: Form) -> Iterator[Value]:
    """Yields the values, and of items that are collections those inside."""
    for value in form.values:
        if form.many:
            yield from value.singles()
        else:
            yield value


def made_by(value: Value, makes: str) -> Value:
    """The result of a function of one value; of arrays it is one, and of unknown values unknown."""
    return Value(makes) if makes and value.kind not in ("array", "") else value


def fits(value: Value, takes: frozenset[str]) -> bool:
    """True if an operator takes a value of the kind."""
    return value.is_unknown or value.operand in takes


def fit_together(one: Value, other: Value, takes: frozenset[str], *, alike: bool = False) -> bool:
    """True if an operator takes two values together; with ``alike`` no values that are never equal."""
    for value in (one, other):
        inside = [*value.singles()] if value.kind in COLLECTIONS else []
        if not fits(value, takes) or (inside and not any(fits(each, takes) for each in inside)):
            return False
    if one.is_unknown or other.is_unknown:
        return True
    arrays = "array" in (one.kind, other.kind)
    if ALIKE[one.operand] == ALIKE[other.operand]:
        return True
    either = alike and not one.kind == other.kind == "mixed"
    sequences = {one.kind, other.kind} == {"list", "tuple"}
    return takes == COMPARED and not arrays and (not either or sequences)


def can_be(form: Form, declared: Type, document: Document) -> bool:
    """True if a value of a form may be one of a declared type."""
    wanted = [branch.operands(document) & KINDS for branch in declared.solid]
    groups = {_SORTS.get(kind, ALIKE[kind]) for kinds in wanted for kind in kinds}
    groups |= {"null"} if declared.nullable else set()
    found = (
        {"list"}
        if form.many
        else {_SORTS.get(v.kind, ALIKE.get(v.operand, "")) for v in form.values}
    )
    return not all(wanted) or "" in found or "mixed" in found or not found.isdisjoint(groups)


#: Kinds of operands that derived fields make of others, by those.
_SORTS = {"tuple": "list", "bytes": "text", "path": "text", "dtype": "text"}


def joins(left: Form, right: Form) -> bool:
    """True if ``+`` may join two sequences."""
    joined = ("text", "bytes", "list", "tuple")
    pairs = [(a, b) for a in left.values for b in right.values]
    return not left.many and any(a.kind in joined and b.kind in (a.kind, "") for a, b in pairs)


def joined(one: Value, other: Value, made: Value | None) -> Value | None:
    """The result for two values; None if their shapes do not fit together."""
    if one.is_unknown or other.is_unknown:
        return ANY
    if "array" not in (one.kind, other.kind):
        return made or (other if other.kind == "complex" else one)
    if one.axes is None or other.axes is None:
        return Value("array", None)
    sizes: list[int | None] = []
    for a, b in zip_longest(reversed(one.axes), reversed(other.axes), fillvalue=1):
        if a not in (None, 1) and b not in (None, 1) and a != b:
            return None
        known = [size for size in (a, b) if size not in (None, 1)]
        sizes.append(known[0] if known else 1 if a == b == 1 else None)
    return Value("array", tuple(reversed(sizes)))


def axes_of(value: Value) -> Axes:
    """The axes that ``shape`` shows."""
    if value.kind in (*COLLECTIONS, "text", "bytes"):
        return (None,)
    return value.axes


def has_elements(value: Value) -> bool:
    """True if an array has several elements, unless all its sizes are 1."""
    return value.axes is not None and any(size != 1 for size in value.axes)


def lists_items(items: Form, other: ast.expr) -> bool:
    """True if single values, one for each item, are compared with a list of all."""
    plain = not any(value.kind in (*COLLECTIONS, "") for value in items.values)
    return items.many and plain and isinstance(other, (ast.Tuple, ast.List))


def listed_kinds(kinds: frozenset[str]) -> str:
    """Kinds of operands in words."""
    words = dict.fromkeys(_WORDS[kind] for kind in sorted(kinds) if kind in _WORDS)
    return " or ".join(words)


_WORDS = {
    "array": "arrays",
    "int": "numbers",
    "list": "lists",
    "text": "text",
    "struct": "structs",
}
