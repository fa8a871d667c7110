"""Examples: instances made from a declaration alone, for tests, documentation and shapes to compile with.

Sizes follow from dims and their equations, values from types, defaults and constraints. The constructor checks the
result; where it refuses, another instance is drawn, with larger numbers from time to time.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from neuralqx_struct.classes.documents import classes_in, described
from neuralqx_struct.classes.draws import (
    Draws,
    check_dims,
    check_dtypes,
    exchanged,
    limits_in,
    sequence,
    shown_dims,
    turn,
    unfit,
)
from neuralqx_struct.errors import Diagnostic, SchemaError, ValidationError
from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.evaluation import evaluate, evaluate_tree
from neuralqx_struct.expressions.functions import items_of
from neuralqx_struct.expressions.grammar import head_of, is_given, steps_of
from neuralqx_struct.fieldspec import is_struct
from neuralqx_struct.printing import brief
from neuralqx_struct.schema.bounds import (
    Lengths,
    Limits,
    bounded,
    equalities,
    inside,
    lengths_in,
    limits_of,
)
from neuralqx_struct.schema.field_paths import given_values
from neuralqx_struct.schema.lint import root_ints
from neuralqx_struct.schema.lint.values import wrong_examples
from neuralqx_struct.schema.model import Document, StructDeclaration
from neuralqx_struct.schema.sizes.scopes import given_sizes, sizes_of_struct
from neuralqx_struct.types import Extent, Type, walk_type
from neuralqx_struct.types.builders import LiveBuilder
from neuralqx_struct.types.text import read_value

#: Sizes of axes by the names of the fields on the way.
Counts = dict[tuple[str, ...], dict[int, int]]

_PLAIN = frozenset({bool, int, float, complex, str})
_TRIES = 400  # how many examples the constructor may refuse
_DEEPEST = 4  # structs inside structs; deeper, lists are as short as allowed and optional structs are absent
_SIZES = (2, 5)  # of dims without bounds
_MOST_NUMBERS = 1 << 20  # in an array, for each reach
_MOST_ITEMS = 1 << 10  # in a list, for each reach


def example(
    cls: Any,
    *,
    dims: Mapping[str, int] | None = None,
    dtypes: Mapping[str, str] | None = None,
    key: Any = 0,
) -> Any:
    """Make an instance of a Struct class from its declaration, with random values.

    Args:
        cls: A class that a schema made, or one defined in Python, whose annotations are read as by
            :func:`~neuralqx_struct.schema_of`.
        dims: Sizes by name: declared dims, static ints of the root, and names that only shapes use. The others are
            small; equations hold.
        dtypes: Dtypes by the name of a choice or a family of dtypes. The others are the first of a choice, float32
            for ``floating`` and ``number``, int32 for ``integer``.
        key: An int or a key of ``jax.random``; equal keys give equal instances.

    Returns:
        An instance that passed the checks of its constructor. Arrays are JAX's; of 64 bits numpy's where x64 is off.

    Raises:
        TypeError: ``cls`` is not a Struct class.
        SchemaError: A name in ``dims`` or ``dtypes`` is not of the schema, a field refuses one of its ``examples:``, or
            nothing can be made for it, such as text for a pattern.
        ValidationError: No sample met the declaration.

    Example:
        >>> from neuralqx_struct.struct import Struct
        >>> class Rate(Struct):
        ...     value: float
        ...     steps: int
        >>> example(Rate, key=1) == example(Rate, key=1), example(Rate, key=1) == example(Rate, key=2)
        (True, False)
    """
    if not isinstance(cls, type) or not is_struct(cls):
        meant = getattr(cls, "root", type(cls))
        known = isinstance(meant, type) and is_struct(meant)
        hint = f"; did you mean {meant.__name__}?" if known else ""
        raise TypeError(f"example(): expected a Struct class, got {brief(cls)}{hint}")
    document, name, classes = described(cls)
    check_dims(document, dims or {})
    check_dtypes(document, dtypes or {})
    seeds = sequence(key).spawn(_TRIES)
    for number, seed in enumerate(seeds):
        reach = 2 ** (number // 50)
        sample = _Sample(
            document=document,
            classes=classes,
            random=np.random.default_rng(seed),
            dtypes=dtypes or {},
            sizes=dict(dims or {}),
            root={},
            shown=shown_dims(document),
            reach=reach,
            smallest=_SIZES[0] if reach == 1 else 0,
            most=math.inf if dims else _MOST_NUMBERS * reach,
        )
        try:
            return sample.struct(name, {})
        except ValidationError as error:
            refused = error
    raise refused


@dataclass(kw_only=True)
class _Sample(Draws):
    """One struct instance in the making; types draw their values from it.

    Attributes:
        document: The declaration.
        classes: Structs and Enums by name.
        sizes: Sizes of declared dims, and those that the caller gives.
        root: The fields of the root that are drawn, by name.
        shown: Dims that an instance determines.
        smallest: The smallest size.
        most: The largest number of elements of an array.
        local: Sizes of this instance.
        depth: The number of structs around it.
        lead: The sizes of the axes in front of those that arrays declare.
        name: The name of the field.
        limits: Bounds from constraints, by the fields on their paths.
        lengths: Sizes of axes from constraints, by the fields on the paths to arrays and lists.
    """

    document: Document
    classes: Mapping[str, Any]
    sizes: dict[str, int]
    root: dict[str, Any]
    shown: list[str]
    smallest: int
    most: float
    local: dict[str, int] = field(default_factory=dict)
    depth: int = -1
    lead: tuple[int, ...] = ()
    name: str = ""
    limits: Limits = field(default_factory=dict)
    lengths: Counts = field(default_factory=dict)

    def dim(self, name: str) -> int:
        """The size of a declared dim: the caller's, that of its equation, or a small one."""
        if name not in self.sizes:
            declared = self.document.dims[name]
            least, most = declared.min or 0, math.inf if declared.max is None else declared.max
            if declared.equation is None:
                start = min(max(least, self.smallest), most)
                self.sizes[name] = self.near(start, min(start + _SIZES[1] * self.reach, most))
            else:
                found = replace(self, local={}).number(declared.equation)
                if not least <= found <= most:
                    raise unfit(f"expected {least} <= {name} <= {most}, got {found}")
                self.sizes[name] = found
        return self.sizes[name]

    def number(self, size: Expression) -> int:
        """The number of a size."""
        try:
            found = evaluate(size, {name: self.named(name) for name in size.names})
        except SchemaError as error:
            raise unfit(error.diagnostics[0].message) from None
        if found < 0 or found != int(found):
            raise unfit(f"expected a size, got {size.text} = {found}")
        return int(found)

    def named(self, name: str) -> int:
        """The number of a name; the first time, a small one."""
        if name not in self.local and name in self.document.dims:
            return self.dim(name)
        for known in (self.local, self.sizes, self.root):
            if isinstance(known.get(name), int):
                return known[name]
        if is_given(name):
            return self.given_value(name)
        self.local[name] = self.near(self.smallest, _SIZES[1] * self.reach - 1)
        return self.local[name]

    def given_value(self, name: str) -> int:
        """The value that fields of the root have for an equation; a small one before they are drawn."""
        try:
            found = evaluate(given_values(self.document)[name], self.root)
        except SchemaError:  # what such a field holds needs the size itself
            return self.near(self.smallest, _SIZES[1] * self.reach - 1)
        if type(found) is not int:
            raise unfit(f"expected a size, got {name} = {found}")
        return found

    def shape(self, extents: Sequence[Extent]) -> tuple[int, ...]:
        """The sizes of a shape."""
        sizes: list[int] = [*self.lead]
        for extent in extents:
            if extent is ...:
                sizes += [int(n) for n in self.random.integers(1, 4, self.random.integers(0, 3))]
            else:
                sizes.append(3 if extent.text == "_" else self.number(extent))
        if math.prod(sizes) > self.most:
            raise unfit(f"expected at most {self.most} numbers, got sizes {sizes}")
        return tuple(sizes)

    # --- structs ---------------------------------------------------------------------------------------------------

    def struct(self, name: str, bound: dict[str, int]) -> Any:
        """An instance of a struct whose parameters are ``bound``."""
        self.take("structs")
        made = replace(self, local=dict(bound), depth=self.depth + 1, name="")
        made.limits = inside(self.limits, self.name)
        made.lengths = inside(self.lengths, self.name)
        cls, values = self.classes[name], made.values(name)
        if not self.lead:
            return cls(**values)
        # A class checks one instance; the struct around stacked ones checks them.
        others = {n: spec for n, spec in cls.__nqx_fields__.items() if spec.has_default}
        return cls.__nqx_assemble__({n: s.make_default() for n, s in others.items()} | values)

    def values(self, name: str) -> dict[str, Any]:
        """The values of the fields of the struct."""
        values: dict[str, Any] = {} if self.depth else self.given()
        declaration = self.document.structs[name]
        own, wanted = lengths_in(declaration), self.equalities(declaration)
        equated = set[str]()
        counted = {path[0] for path in (*own, *self.lengths)}
        around = self.limits if self.depth else limits_in(self.document)
        self.limits = limits_of(declaration, around)
        fields = bounded(declaration, self.limits)
        fields = {n: d for n, d in fields.items() if d.derivation is None}
        turns = {each: turn(fields[each], each in counted) for each in fields}
        for given in given_values(self.document).values() if self.depth == 0 else ():
            turns |= dict.fromkeys(given.heads & turns.keys(), 0)
        for field_name in sorted(fields, key=turns.__getitem__):
            self.field, self.path = fields[field_name], f"{name}.{field_name}"
            self.name = field_name
            if self.depth == 0 and turns[field_name]:
                for dim in self.shown:  # sizes that do not fit are found before arrays are made
                    self.dim(dim)
            if self.field.kind == "opaque" and self.field.has_default:
                continue
            if field_name in counted:
                self.count(name, own, values)
            if field_name not in values:
                values[field_name] = self.value()
            for side, other in wanted:
                if side.id not in equated and head_of(side.id) in values:
                    equated |= self.equate(name, values, side, other)
            if self.depth == 0:
                self.root[field_name] = values[field_name]
        return values

    def value(self) -> Any:
        """The value of the field: one of its examples or choices, or a random one.

        Raises:
            SchemaError: NQX107: the field refuses an example, with every one.
        """
        declared = self.field.declared
        wrong = [
            Diagnostic("NQX107", "error", message, f"{self.path}.examples[{index}]", hint=hint)
            for index, message, hint in wrong_examples(self.document, self.field)
        ]
        if wrong:
            raise SchemaError(wrong)
        given = self.field.examples or self.field.choices
        parts = [*walk_type(declared)]
        plain = not any(inner.element or inner.refers in self.classes for inner in parts)
        if given and plain:
            return read_value(self.one_of(given), declared, LiveBuilder(self.document))
        return declared.example(self)

    def equalities(self, declaration: StructDeclaration) -> list[tuple[ast.Name, ast.expr]]:
        """The equalities of a struct, each with a path whose value may be that of the other side."""
        if self.lead:
            return []
        fixed = given_sizes(self.document) if self.depth == 0 else set()
        fixed |= {head for each in given_values(self.document).values() for head in each.heads}
        return [
            (side, other)
            for side, other in equalities(declaration)
            if isinstance(side, ast.Name) and head_of(side.id) not in fixed
        ]

    def equate(
        self, name: str, values: dict[str, Any], side: ast.Name, other: ast.expr
    ) -> set[str]:
        """Gives the path on one side of an equality the value of the other; returns the paths that have theirs now."""
        names = {**self.known_sizes(name, other), **values}
        try:
            held, found = evaluate_tree(side, names), evaluate_tree(other, names)
            equal = evaluate_tree(ast.Compare(side, [ast.Eq()], [other]), names)
        except SchemaError:
            return set()
        replaced = items_of(held) or [held]
        if not all(type(each) in _PLAIN for each in (found, *replaced)):
            return set()
        if equal is not True:
            head = head_of(side.id)
            values[head] = exchanged(values[head], steps_of(side.id), found)
        return {side.id, *([other.id] if isinstance(other, ast.Name) else [])}

    def known_sizes(self, name: str, expression: ast.expr) -> dict[str, int]:
        """The numbers of the sizes that an expression of a struct names."""
        named = {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}
        sizes = {*self.document.dims, *sizes_of_struct(self.document, name)}
        named = (named & sizes) - self.document.structs[name].fields.keys()
        return {size: self.named(size) for size in sorted(named)}

    def given(self) -> dict[str, int]:
        """The fields of the root that the sizes of the caller determine."""
        ints = root_ints(self.document)
        given = {name: size for name, size in self.sizes.items() if name in ints}
        for name, dim in self.document.dims.items():
            # `heads: {equals: n_heads}`: heads determines n_heads
            if name in self.sizes and dim.equation is not None and dim.equation.text in ints:
                given[dim.equation.text] = self.sizes[name]
        return given

    def count(self, name: str, demanded: Lengths, values: Mapping[str, Any]) -> None:
        """Gives the field, and those inside of it, the lengths that constraints demand, if they are known."""
        for path, axes in demanded.items():
            for axis, length in axes.items() if path[0] == self.name else ():
                sizes = self.known_sizes(name, length)
                try:
                    found = evaluate_tree(length, {**sizes, **values})
                except SchemaError:
                    continue
                if type(found) is int and found >= 0:
                    counts = {**self.lengths.get(path, {}), axis: found}
                    self.lengths = {**self.lengths, path: counts}
        for axis, found in self.lengths.get((self.name,), {}).items():
            extents = self.field.declared.extents
            if not extents:
                lengths = {"min_length": found, "max_length": found}
                self.field = self.field.model_copy(update=lengths)
            elif axis < len(extents) and ... not in extents[: axis + 1]:
                size = extents[axis].text
                if size.isidentifier() and size not in {**self.document.dims, **self.sizes}:
                    self.local.setdefault(size, found)

    def branch(self, options: tuple[Type, ...]) -> Type:
        """One option of a union; deep inside one without structs."""
        deep = self.depth >= _DEEPEST
        simple = [option for option in options if deep and not self.holds_structs(option)]
        chosen: Type = self.one_of(simple or options)
        return chosen

    def holds_structs(self, declared: Type) -> bool:
        """True if a type names a struct."""
        return any(self.document.is_struct(inner.refers) for inner in walk_type(declared))

    def inner_struct(self, declared: Type) -> Any:
        """An instance of the struct that a type names."""
        owner, name = self.document.place_of(declared.refers)
        sizes = map(self.number, declared.arguments)
        bound = dict(zip(owner.structs[name].params, sizes, strict=False))
        if owner is self.document:
            return self.struct(name, bound)
        inside = replace(
            self, document=owner, classes=classes_in(owner), sizes={}, root={}, depth=-1
        )
        inside.shown = shown_dims(owner)
        return inside.struct(name, bound)

    def stacked(self, declared: Type, axes: Sequence[Expression]) -> Any:
        """Instances of the struct that a type names, stacked along some axes."""
        lead = (*self.lead, *map(self.number, axes))
        return replace(self, lead=lead).inner_struct(declared)

    def count_of(self, size: Expression) -> int:
        """The length of a list of a declared length."""
        count = self.number(size)
        if count > _MOST_ITEMS * self.reach:
            raise unfit(f"expected at most {_MOST_ITEMS} items, got {count}")
        return self.take("items", count)

    def length(self, item: Type) -> int:
        """The length of a collection."""
        if self.depth >= _DEEPEST and self.holds_structs(item):
            return self.field.min_length or 0
        return self.items_up_to(3)
