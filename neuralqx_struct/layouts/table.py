"""The table of a layout: every value of the schema with its rule, and every array with the patterns of its names.

It is made once of a version of a schema and a layout, without a file. The numbers of lists and the keys of dicts are open in its
patterns: ``adoption.py`` finds them in the names of a file, ``release.py`` fills them in from a payload, ``coverage.py`` compares
the patterns, and ``lint.py`` reads the paths of values. The records of types make the entries; the fields of a struct are
entered when they are asked for, as a struct may hold itself.

Example:
    >>> layout = Layout(language="1", layout="x", of="neuralqx.vmc_state@1", structs={"VMCState": {"W_im": "W/im"}})
    >>> table = Table(v1, layout)
    >>> [entry.bases for entry in table.entries if isinstance(entry, ArrayEntry)][:2]
    [('W_re',), ('W/im',)]
    >>> {"n_sites", "alpha"} <= table.value_names
    True
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple

from neuralqx_struct.dtypes import KEY_WORDS
from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import Expression
from neuralqx_struct.layouts import KEY, NUMBER, Layout, Rule
from neuralqx_struct.layouts.forms import Form, Shape
from neuralqx_struct.layouts.names import END, Pattern, joined, slot
from neuralqx_struct.paths import FieldName
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.sizes import ANY_SIZE
from neuralqx_struct.schema.sizes.comparison import extent
from neuralqx_struct.schema.sizes.scopes import sizes_in as names_in
from neuralqx_struct.schema.stacks import Axes, inner_axes, names_inside
from neuralqx_struct.types import INT, Type, walk_type
from neuralqx_struct.types.unions import Named

#: Structs that are listed without a file, and structs inside structs.
_MOST, _DEEPEST = 2_000, 16
_NO_RULE: Final = Rule()


@dataclass(frozen=True, slots=True)
class Row:
    """What the layout has for one value: of a field, or of the items of a list or dict in it.

    Attributes:
        owner: The document that declares the field.
        struct: The struct with the field.
        field: The field, as paths have it.
        declaration: Its declaration; None for the root.
        rule: Its rule.
        axes: The leading axes of the struct, if it is stacked.
        base: The name in the file, without the prefix, with slots for the numbers and keys around.
        slots: The number of these slots.
        keys: The names of fields on the way, without numbers and keys.
        frames: The lists and stacked structs around it that have one array for all items: axis, and its place in the layout.
        choices: The options of unions around it, by the path of the union.
    """

    owner: Document
    struct: str
    field: FieldName
    declaration: FieldDeclaration | None
    rule: Rule
    axes: Axes = ()
    base: str = ""
    slots: int = 0
    keys: tuple[str, ...] = ()
    frames: tuple[tuple[int, tuple[str, ...]], ...] = ()
    choices: tuple[tuple[str, int], ...] = ()

    @property
    def key(self) -> str:
        """The path of the field, as values are named."""
        return ".".join(self.keys)

    @property
    def is_static(self) -> bool:
        """True for a static field."""
        return self.declaration is not None and self.declaration.kind == "static"

    def numbered(self, mark: str, base: str) -> Row:
        """The row of what is inside a list or dict, with a slot in the place of a mark in the name."""
        return replace(self, base=base.replace(mark, slot(self.slots), 1), slots=self.slots + 1)


@dataclass(eq=False)
class Entry:
    """One value of the schema.

    Attributes:
        row: What the layout has for it.
        declared: Its type.
        inside: The entries of what is directly inside; those of the fields of a struct come later.
    """

    row: Row
    declared: Type
    inside: Sequence[Entry]


class PlainEntry(Entry):
    """A value without arrays."""

    @cached_property
    def name(self) -> Pattern:
        """The name under which a file may have it."""
        return Pattern(self.row.base)


class Span(NamedTuple):
    """The texts around the numbers of a list, or the keys of a dict, in names."""

    before: Pattern
    behind: Pattern

    @classmethod
    def around(cls, base: str, mark: str) -> Span:
        """Those around the first mark in a name, up to the next one."""
        before, _, behind = base.partition(mark)
        return cls(Pattern(before), Pattern(until_mark(behind), is_end=True))


@dataclass(eq=False)
class ArrayEntry(Entry):
    """An array.

    Attributes:
        dtypes: The dtypes that it may have.
        shape: Its declared shape, with the axes of stacked structs in front.
        bases: Its names, with slots; with ``{i}`` it is the stack of several arrays of the file.
    """

    dtypes: tuple[str, ...]
    shape: Shape
    bases: tuple[str, ...]
    _forms: dict[int, Form] = field(default_factory=dict)

    @cached_property
    def span(self) -> Span | None:
        """The texts around the numbers of the arrays of the file that it is the stack of; None for others."""
        numbered = (Span.around(base, NUMBER) for base in self.bases if NUMBER in base)
        return next(numbered, None)

    @cached_property
    def names(self) -> list[Pattern]:
        """The patterns of its names; with :attr:`span` their last slot is the number."""
        return [Pattern(base.replace(NUMBER, slot(self.row.slots), 1)) for base in self.bases]

    def form(self, count: int = 1) -> Form:
        """Its form; with :attr:`span` for so many arrays of each name.

        Raises:
            SchemaError: NQX702: an operation does not fit.
        """
        if count not in self._forms:
            merged = isinstance(self.row.rule.name, list) or self.span is not None
            several = len(self.bases) * (1 if self.span is None else count)
            declared = self.shape[len(self.row.axes) :]
            self._forms[count] = Form.of(self.row.rule, declared, several if merged else None)
        return self._forms[count]


class KeyEntry(Entry):
    """Typed random keys, with the entry of their words if the implementation is known."""


@dataclass(eq=False)
class ItemsEntry(Entry):
    """A list with one entry for all items, or a tuple with one for each.

    Attributes:
        span: The texts around the numbers of its items; None if one array has all items.
    """

    span: Span | None


@dataclass(eq=False)
class PairsEntry(Entry):
    """A dict with one entry for all values.

    Attributes:
        span: The texts around its keys.
        ends_names: True if the keys end names, so that they may have separators.
    """

    span: Span
    ends_names: bool


class OptionsEntry(Entry):
    """A union, with the entries of its options but null."""

    @cached_property
    def start(self) -> Pattern:
        """The beginning of all names of its arrays, unless they start anew."""
        return Pattern(until_mark(self.row.base))


@dataclass(eq=False)
class StructEntry(Entry):
    """A struct.

    Attributes:
        table: The table.
        owner: The document that declares it.
        name: Its name there.
        bound: The sizes of its parameters and leading axes, in names of the struct around it.
        lead: The leading axes in these names.
        axis: Of a stacked struct with one array for all layers, their axis in the file; None for others.
        span: Of a stacked struct whose layers are apart in the file, the texts around their numbers; None for others.
    """

    table: Table
    owner: Document
    name: str
    bound: Mapping[str, Expression]
    lead: Axes
    axis: int | None
    span: Span | None

    @cached_property
    def ref(self) -> str:
        """The reference of its class."""
        return self.owner.ref(self.name)

    @property
    def is_root(self) -> bool:
        """True for the root of a document; for that of the schema itself only outermost."""
        outermost = self.owner is not self.table.document or not self.row.keys
        return outermost and self.name == self.owner.root

    @cached_property
    def fields(self) -> Mapping[str, Entry]:
        """The entries of its fields."""
        return dict(self.table.fields(self))

    @cached_property
    def sizes(self) -> Mapping[str, bool]:
        """The sizes that the layout or the caller may state, by name; True for those that rules alone have."""
        rules = self.table.rules(self.owner, self.name).values()
        own, ruled = own_sizes(self.owner, self.name), frozenset[str]().union(*map(sizes_in, rules))
        others = self.owner.dims.keys() | {*self.owner.structs[self.name].params}
        return {size: size not in own for size in sorted((own | ruled) - others)}


class Table:
    """All entries of a layout.

    Args:
        document: The version of the schema.
        layout: The layout.

    Attributes:
        root: The entry of the root.
    """

    def __init__(self, document: Document, layout: Layout) -> None:
        self.document, self.layout = document, layout
        free = (ANY_SIZE,) * len(document.structs[document.root].params)
        row = Row(document, document.root, FieldName(""), None, _NO_RULE)
        self.root = self.struct(Named(document.root, free), (), row)

    def label(self, owner: Document, struct: str) -> str:
        """The name of a struct in the layout; one of another schema has its identity in front."""
        return struct if owner is self.document else f"{owner.id}.{struct}"

    def rules(self, owner: Document, struct: str) -> Mapping[str, Rule]:
        """The rules of a struct by field."""
        return self.layout.rules(self.label(owner, struct))

    # --- all of it ---------------------------------------------------------------------------------------------------

    @property
    def entries(self) -> Sequence[Entry]:
        """The entries, those nearest to the root first; of structs that hold themselves some."""
        return self._listed[0]

    @property
    def is_whole(self) -> bool:
        """False if there are more structs than are listed."""
        return len(self._listed[1]) < _MOST

    @cached_property
    def _listed(self) -> tuple[Sequence[Entry], Sequence[StructEntry]]:
        """The entries, and the structs among them whose fields are there too."""
        found: list[Entry] = [self.root]
        structs: list[StructEntry] = []
        for entry in found:  # goes on with those that are added
            found += entry.inside
            if isinstance(entry, StructEntry) and len(entry.row.keys) < _DEEPEST:
                if len(structs) == _MOST:
                    break
                structs.append(entry)
                found += entry.fields.values()
        return found, structs

    @cached_property
    def fields_by_path(self) -> Mapping[str, Sequence[tuple[FieldDeclaration, Entry]]]:
        """The fields by their paths from the root, without numbers and keys."""
        found: dict[str, list[tuple[FieldDeclaration, Entry]]] = {}
        for struct in self._listed[1]:
            for entry in struct.fields.values():
                if entry.row.declaration is not None:
                    found.setdefault(entry.row.key, []).append((entry.row.declaration, entry))
        return found

    @property
    def value_names(self) -> set[str]:
        """The keys that values may have: paths of fields, and the names of sizes."""
        found = {*self.document.dims, *self.fields_by_path}
        for owner in self.document.closure():
            for name in owner.structs:
                found |= own_sizes(owner, name)
        for rules in self.layout.structs.values():
            for rule in rules.values():
                with suppress(SchemaError):  # about its sizes, which lint reports
                    found |= sizes_in(rule)
        return found

    @property
    def missing_values(self) -> Mapping[str, FieldDeclaration]:
        """The fields without arrays that neither the layout nor a default gives a value."""
        layout = self.layout
        given = {*layout.values, *(key for keys in layout.values_from.values() for key in keys)}
        return {
            path: declaration
            for path, fields in self.fields_by_path.items()
            for declaration, entry in fields
            if isinstance(entry, PlainEntry) and path not in given
            if not (declaration.has_default or declaration.declared.nullable)
        }

    # --- structs -----------------------------------------------------------------------------------------------------

    def fields(self, entry: StructEntry) -> Iterator[tuple[str, Entry]]:
        """Yields the entries of the fields of a struct."""
        owner, row = entry.owner, entry.row
        rules = self.rules(owner, entry.name)
        for name, declaration in owner.structs[entry.name].stored.items():
            rule, base = rules.get(name, _NO_RULE), row.base
            if not isinstance(rule.name, list):
                part = name if rule.name is None else rule.name
                base = joined(base, part, self.layout.separator)
            inside = replace(
                row,
                owner=owner,
                struct=entry.name,
                field=FieldName(name),
                declaration=declaration,
                rule=rule,
                base=base,
                keys=(*row.keys, name),
            )
            declared = declaration.declared
            if declaration.type is None or declaration.kind != "node":
                yield name, PlainEntry(inside, declared, ())
            else:
                declared = declared.with_axes(row.axes) if row.axes else declared
                yield name, self.value(declared, inside)

    # --- what the records of types call ------------------------------------------------------------------------------

    def value(self, declared: Type, row: Row) -> Entry:
        """The entry of a value of a type."""
        if not holds_arrays(declared, row.owner):
            return PlainEntry(row, declared, ())
        made: Entry = declared.lay_out(self, row)
        return made

    def plain(self, declared: Type, row: Row) -> Entry:
        """The entry of a value without arrays."""
        return PlainEntry(row, declared, ())

    def array(self, declared: Type, row: Row) -> Entry:
        """The entry of an array."""
        return self._array(declared, declared.dtypes, declared.extents, row)

    def _array(self, declared: Type, dtypes: tuple[str, ...], shape: Shape, row: Row) -> ArrayEntry:
        parts = row.rule.name if isinstance(row.rule.name, list) else [""]
        bases = tuple(joined(row.base, part, self.layout.separator) for part in parts)
        return ArrayEntry(row, declared, (), dtypes, shape, bases)

    def key(self, declared: Type, row: Row) -> Entry:
        """The entry of typed random keys."""
        words = KEY_WORDS.get(declared.key_impl)
        if words is None:
            return KeyEntry(row, declared, ())
        shape = (*declared.extents, extent(words))
        return KeyEntry(row, declared, (self._array(declared, ("uint32",), shape, row),))

    def struct(self, declared: Named, lead: Axes, row: Row) -> StructEntry:
        """The entry of a struct.

        Args:
            declared: Its type, for one layer.
            lead: The leading axes of its arrays.
            row: The row of the value.
        """
        owner, name = row.owner.place_of(declared.name)
        bound = dict(zip(owner.structs[name].params, declared.args, strict=False))
        axes: Axes = ()
        if lead:
            given, axes = inner_axes(lead, names_inside(owner, name))
            bound |= given
        axis, span = None, None
        if len(lead) > len(row.axes):  # the type itself stacks it
            if NUMBER in row.base:
                span, row = Span.around(row.base, NUMBER), row.numbered(NUMBER, row.base)
            else:
                axis = row.rule.stack or 0
                row = self._framed(row, axis, "stack")
        row = replace(row, axes=axes)
        return StructEntry(row, declared, (), self, owner, name, bound, lead, axis, span)

    def _framed(self, row: Row, axis: int, member: str) -> Row:
        where = ("structs", self.label(row.owner, row.struct), row.field, member)
        return replace(row, frames=(*row.frames, (axis, where)))

    def items(self, declared: Type, row: Row) -> Entry:
        """The entry of a list or a tuple."""
        axis, inside, base = row.rule.unstack, _of_items(row), row.base
        span = None
        if axis is not None:
            rows = [self._framed(inside, axis, "unstack")] * len(declared.parts)
        else:
            if NUMBER not in base:
                base = joined(base, NUMBER, self.layout.separator)
            span = Span.around(base, NUMBER)
            numbers = map(str, range(len(declared.parts)))
            rows = [replace(inside, base=base.replace(NUMBER, number, 1)) for number in numbers]
            if len(rows) == 1:
                rows = [inside.numbered(NUMBER, base)]
        return ItemsEntry(row, declared, [*map(self.value, declared.parts, rows)], span)

    def pairs(self, declared: Type, row: Row) -> Entry:
        """The entry of a dict."""
        base, (value,) = row.base, declared.parts
        if KEY not in base:
            base = joined(base, KEY, self.layout.separator)
        ends = base.endswith(KEY) and bool(value.element)
        span = Span.around(f"{base}{END}" if ends else base, KEY)
        inside = self.value(value, _of_items(row).numbered(KEY, base))
        return PairsEntry(row, declared, (inside,), span, ends)

    def options(self, declared: Type, row: Row) -> Entry:
        """The entry of a union."""
        made = [
            self.value(option, replace(row, choices=(*row.choices, (row.key, number))))
            for number, option in enumerate(declared.solid)
        ]
        return OptionsEntry(row, declared, made)


def _of_items(row: Row) -> Row:
    """The row of the items of a list or dict: of the rule the operations alone."""
    return replace(row, rule=row.rule.model_copy(update={"name": None, "unstack": None}))


def until_mark(text: str) -> str:
    """The beginning of a name up to the place of a number or a key."""
    return text.partition(NUMBER)[0].partition(KEY)[0]


def sizes_in(rule: Rule) -> frozenset[str]:
    """The names of sizes in a rule."""
    written = [*(rule.sizes or ()), *(rule.reshape or ())]
    if rule.blocks is not None:
        written.append(rule.blocks)
    return frozenset[str]().union(*(extent(each).names for each in written))


def own_sizes(owner: Document, name: str) -> frozenset[str]:
    """The names of the sizes of a struct, without its parameters."""
    struct = owner.structs[name]
    sizes = (sized for field in struct.stored.values() for sized, _ in names_in(field.declared))
    return frozenset(sizes) - {*struct.params}


def settings_of(document: Document) -> set[str]:
    """The static ints of the root, which are sizes."""
    fields = document.structs[document.root].stored.items()
    return {name for name, each in fields if each.kind == "static" and each.declared == INT}


def holds_arrays(declared: Type, owner: Document) -> bool:
    """True if values of a type may hold arrays or structs."""
    return any(
        bool(inner.element or inner.key_impl or owner.is_struct(inner.refers))
        for inner in walk_type(declared)
    )
