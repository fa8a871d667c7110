"""Drawing: random values of declared types that keep limits and constraints, for payloads and for examples of classes.

What is drawn is neutral: arrays are :class:`~neuralqx_struct.schema.conditions.Stored`, structs are values of expressions, all
else is as in Python. ``samples.py`` makes manifests of it, ``classes/examples.py`` instances.

Fields are drawn in the order in which they depend on each other (``plans.py``). Limits come from fields and from constraints;
equalities and lengths that constraints demand are made true. Where a constraint fails all the same, the fields that it names are
drawn again, near to its other numbers (``numbers.py``).

Example:
    >>> decks = Decks()
    >>> sorted(decks.pick(random.Random(turn), "place", [1, 2]) for turn in range(2))
    [1, 2]
"""

from __future__ import annotations

import ast
import math
import random
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from neuralqx_struct.dtypes import KEY_WORDS
from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.evaluation import evaluate, evaluate_tree
from neuralqx_struct.expressions.functions import StructValue, items_of
from neuralqx_struct.expressions.grammar import head_of, is_given, steps_of
from neuralqx_struct.schema.bounds import (
    Limits,
    ends_of,
    inside,
    length_misses,
    scalar_misses,
    whole_range,
)
from neuralqx_struct.schema.conditions import Stored, failure
from neuralqx_struct.schema.drawing.numbers import WHOLE, Numbers, around, ends_within, is_empty
from neuralqx_struct.schema.drawing.plans import (
    bounded_fields,
    ints_given,
    limits_in,
    planned,
    plans,
)
from neuralqx_struct.schema.drawing.values import Drawn, DrawnKey, exchanged, mapped, with_numbers
from neuralqx_struct.schema.field_paths import given_values
from neuralqx_struct.schema.model import Document, FieldDeclaration, StructDeclaration
from neuralqx_struct.schema.patterns import texts_of
from neuralqx_struct.schema.sizes import ANY
from neuralqx_struct.schema.sizes.scopes import int_fields
from neuralqx_struct.schema.stacks import layers
from neuralqx_struct.schema.text import path_text
from neuralqx_struct.types import Array, Extent, Type, walk_type
from neuralqx_struct.types.builders import LiveBuilder
from neuralqx_struct.types.text import read_value

#: Sizes of axes by the names of the fields on the way.
Counts = Mapping[tuple[str, ...], Mapping[int, int]]

_PLAIN = frozenset({bool, int, float, complex, str, bytes})
#: Structs inside structs; deeper, lists are as short as allowed and unions have no structs.
_DEEPEST = 4
_TRIES = 20  # values of a field that its limits may refuse
_REPAIRS = 40  # fields of a struct that are drawn again for its constraints
_LONGEST_TEXT = 4096


class UnfitError(Exception):
    """No value fits.

    Attributes:
        document: The schema of the path.
        path: The place in it.
        reason: The requirement that no value met.
    """

    def __init__(self, document: Document, path: tuple[str, ...], reason: str) -> None:
        super().__init__(f"{path_text(path)}: {reason}")
        self.document, self.path, self.reason = document, path, reason


class Decks:
    """The options of each place that were not drawn yet, so that all are drawn before one of them is drawn again."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[Any, list[Any]]] = {}
        self._new: dict[Hashable, tuple[Any, list[Any]]] = {}

    def pick(
        self,
        source: random.Random,
        place: Hashable,
        options: Sequence[Any],
        allowed: Sequence[Any] | None = None,
    ) -> Any:
        """One of the options of a place, of those that are ``allowed`` if not all are."""
        _, left = self._new.get(place) or self._kept.get(place) or (options, [*options])
        fit = [n for n, each in enumerate(left) if allowed is None or each in allowed]
        at = source.choice(fit) if fit else len(left)
        found = left[at] if fit else source.choice(allowed or options)
        rest = [each for n, each in enumerate(left) if n != at]
        # It keeps the options: their identity may be a part of the place.
        self._new[place] = options, rest or [*options]
        return found

    def keep(self) -> None:
        """Takes the options that were drawn since the last call as drawn."""
        self._kept |= self._new
        self.drop()

    def drop(self) -> None:
        """Forgets the options that were drawn since the last call of either."""
        self._new = {}


@dataclass(kw_only=True, eq=False)
class Draw:
    """One struct in the making; types draw their values from it.

    Attributes:
        document: The declaration.
        random: Source of all choices.
        decks: The options that were not drawn yet.
        left: How many structs and arrays, and items of collections, may still be made.
        most_numbers: The most elements of an array.
        most_items: The most items of a list of a declared length.
        near: Another version, whose limits are tried as well.
        given_sizes: Sizes by name that are demanded from outside.
        small: The number that all numbers, sizes and lengths shall be, as far as they may; None for random ones.
        alike: Whether the structs in a list are the same but for the numbers in arrays.
        classes: Structs and enums of Python by name; none for payloads.
        dims: Sizes of declared dims.
        ints: Sizes of the root, and its static ints, which equations of dims name.
        root: The fields of the root that are drawn.
        solving: The dims whose equations are being computed, which may name them.
        chosen: Dtypes of choices.
        local: Other sizes of the instance.
        values: The fields of the instance that are drawn.
        struct_name: Its struct.
        name: The field.
        field: Its declaration.
        lead: The sizes of the axes in front of those that arrays declare.
        depth: The number of structs around it.
        outermost: Whether no struct of the document is around it.
        limits: Bounds from constraints of the structs around it, by the fields on the paths.
        lengths: Sizes of axes from constraints, likewise.
        hints: Numbers near to which a number may satisfy a constraint.
        plan: The facts about its struct.
        nested: The number of collections around the value in its field.
        lenient: Whether a value may violate limits and constraints where none was found that does not: others tell it.
    """

    document: Document
    random: random.Random
    decks: Decks
    left: list[int]
    most_numbers: float
    most_items: int
    near: Document | None = None
    given_sizes: Mapping[str, int] = field(default_factory=dict)
    small: int | None = None
    alike: bool = False
    classes: Mapping[str, Any] = field(default_factory=dict)
    dims: dict[str, int] = field(default_factory=dict)
    ints: dict[str, int] = field(default_factory=dict)
    root: dict[str, Any] = field(default_factory=dict)
    solving: frozenset[str] = frozenset()
    chosen: dict[str, str] = field(default_factory=dict)
    local: dict[str, int] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    struct_name: str = ""
    name: str = ""
    lead: tuple[int, ...] = ()
    depth: int = 0
    outermost: bool = True
    limits: Limits = field(default_factory=dict)
    lengths: Counts = field(default_factory=dict)
    hints: Sequence[float] = ()
    plan: Any = None
    nested: int = 0
    lenient: bool = False
    field: Any = None

    def changed(self, **members: Any) -> Self:
        """The same with other members; ``dataclasses.replace`` takes ten times as long."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.__dict__.update(members)
        return made

    # --- choices ---------------------------------------------------------------------------------------------------

    def between(self, low: int, high: int) -> int:
        """A whole number."""
        return self.random.randint(low, high)

    def one_of(self, values: Sequence[Any]) -> Any:
        """One of some values; each is drawn before one is drawn again."""
        return self.pick(id(values), values)

    def pick(
        self, what: Hashable, values: Sequence[Any], allowed: Sequence[Any] | None = None
    ) -> Any:
        """As :meth:`one_of`, for values that are made anew each time."""
        place = (self.document.id, self.struct_name, self.name, what)
        return self.decks.pick(self.random, place, values, allowed)

    def unfit(self, reason: str) -> UnfitError:
        """The error of a field for which no value fits."""
        path = ("structs", self.struct_name, "fields", self.name)
        return UnfitError(self.document, path if self.name else path[:2], reason)

    def take(self, count: int = 1, sort: int = 0) -> None:
        """Counts structs and arrays, or items of collections (sort 1)."""
        self.left[sort] -= count
        if self.left[sort] < 0:
            raise self.unfit("nothing that is small enough could be drawn")

    # --- sizes -----------------------------------------------------------------------------------------------------

    def any_size(self, least: int = 0, most: int | None = None, name: str = "") -> int:
        """A size within bounds; of a name, or of none."""
        raise NotImplementedError

    def open_size(self) -> int:
        """A size without a name."""
        return self.any_size()

    def named(self, name: str) -> int:
        """The number of a name in this instance; the first time, a new one."""
        if name in self.local:
            return self.local[name]
        if name in self.given_sizes:
            return self.given_sizes[name]
        if name in self.document.dims:
            return self.dim(name)
        if is_given(name):
            return self.given_value(name)
        least, most = self.bounds_of_size(name)
        return self.local.setdefault(name, self.any_size(least, most, name))

    def bounds_of_size(
        self, name: str, least: int = 0, most: int | None = None
    ) -> tuple[int, int | None]:
        """The bounds of a size with those that constraints give it."""
        low, high = whole_range(self.limits.get((name,), {}))
        high = min(high, math.inf if most is None else most)
        return int(max(least, low, 0)), None if high == math.inf else int(high)

    def given_value(self, name: str) -> int:
        """The value that fields of the root have for an equation; a new one before they are drawn."""
        try:
            found = evaluate(given_values(self.document)[name], self.root)
        except SchemaError:  # what such a field holds needs the size itself
            return self.any_size()
        if type(found) is not int:
            raise self.unfit(f"no size {name} could be drawn")
        return found

    def dim(self, name: str) -> int:
        """The size of a declared dim."""
        if name not in self.dims:
            dim = self.document.dims[name]
            least, most = self.bounds_of_size(name, dim.min or 0, dim.max)
            if dim.equation is None or name in self.solving or self.is_loose:
                self.dims[name] = self.any_size(least, most, name)
            elif len(self.solving) < 24:
                solving = self.solving | {name}
                root = self.changed(local=self.ints, solving=solving)
                found = root.number(dim.equation)
                if found < least or (most is not None and found > most):
                    raise UnfitError(
                        self.document, ("dims", name), "no size within its bounds could be drawn"
                    )
                self.dims[name] = found
            else:
                raise UnfitError(self.document, ("dims", name), "it depends on too many other dims")
        return self.dims[name]

    @property
    def is_loose(self) -> bool:
        """Whether equations of dims are left out."""
        return False

    def number(self, size: Expression) -> int:
        """The number of a size."""
        if size.text == ANY:
            return self.open_size()
        if size.text in size.names:
            return self.checked(size, self.named(size.text))
        try:
            found = evaluate(size, {name: self.named(name) for name in sorted(size.names)})
        except SchemaError as error:
            raise self.unfit(
                f"no size {size.text} could be drawn: {error.diagnostics[0].message}"
            ) from None
        return self.checked(size, found)

    def checked(self, size: Expression, found: Any) -> int:
        """The number of a size if it is one."""
        if found < 0 or found != int(found):
            raise self.unfit(f"no size {size.text} could be drawn, one was {found}")
        return int(found)

    def shape(self, extents: Sequence[Extent]) -> tuple[int, ...]:
        """The sizes of a shape."""
        sizes: list[int] = []
        for extent in extents:
            if extent is ...:
                sizes += [self.open_size() for _ in range(self.between(0, 2))]
            else:
                sizes.append(self.number(extent))
        self.show(extents, sizes)
        whole = (*self.lead, *sizes)
        if math.prod(whole) > self.most_numbers:
            raise self.unfit(
                f"no array of at most {self.most_numbers} numbers could be drawn, one had sizes {[*whole]}"
            )
        return whole

    def show(self, sizes: Sequence[Extent], numbers: Sequence[int]) -> None:
        """Notes the sizes in a type with their numbers."""

    def count_of(self, size: Expression) -> int:
        """The length of a list of a declared length."""
        found = self.number(size)
        self.show([size], [found])
        if found > self.most_items:
            raise self.unfit(
                f"no list of at most {self.most_items} items could be drawn, one had {found}"
            )
        return found

    def length(self, item: Type) -> int:
        """The length of a list or dict, of which only the outermost has limits."""
        raise NotImplementedError

    def size_named(self, name: str) -> int:
        """A size that expressions of the struct may name.

        Raises:
            KeyError: There is none.
        """
        if name in self.document.dims or name in self.plan.sizes:
            return self.named(name)
        raise KeyError(name)

    # --- structs ---------------------------------------------------------------------------------------------------

    def struct(self, name: str, bound: Mapping[str, int]) -> StructValue:
        """A struct whose parameters are ``bound``."""
        self.take()
        is_root = self.outermost and name == self.document.root
        made = self.changed(
            local=self.ints if is_root else {**bound},
            values={},
            struct_name=name,
            name="",
            depth=self.depth + 1,
            outermost=False,
            limits=inside(self.limits, self.name),
            lengths=inside(self.lengths, self.name),
            hints=(),
            nested=0,
        )
        made.local |= bound
        if is_root:
            made.root = made.values
        made.draw_fields(is_root=is_root)
        struct = self.document.structs[name]
        nodes = [key for key, each in struct.stored.items() if each.kind == "node"]
        return StructValue(Drawn(made.values, made, ref=(self.document, name)), nodes)

    def held(self, struct: StructDeclaration) -> frozenset[str]:
        """The names of the fields that are drawn."""
        return frozenset(struct.stored)

    def draw_fields(self, *, is_root: bool) -> None:
        """Draws all fields of the struct."""
        struct = self.document.structs[self.struct_name]
        counted = frozenset(path[0] for path in self.lengths)
        around = limits_in(self.document) if is_root else self.limits
        place = (self.struct_name, is_root, counted, type(self))
        plan = plans(self.document).get(place) if is_root or not around else None
        if plan is None:
            plan = planned(self.document, self.struct_name, around, counted, self.held(struct))
            if is_root or not around:
                plans(self.document)[place] = plan
        self.limits, self.plan = plan.limits, plan
        for name in plan.order:
            self.draw_field(name, is_root=is_root)
        self.repair(struct)

    def draw_field(self, name: str, *, is_root: bool = False) -> None:
        """Draws one field, and others that are equal to it."""
        self.name, self.field = name, self.plan.fields[name]
        ints = int_fields(self.document) if is_root else {}
        self.count()
        demanded = self.demanded_int() if name in ints else None
        if demanded is not None:
            self.values[name] = demanded
        elif is_root and name in ints_given(self.document):
            self.values[name] = self.given_int()
        else:
            self.values[name] = self.fitting()
        if name in ints and type(self.values[name]) is int:
            self.ints.setdefault(name, self.values[name])
        if self.plan.equal and not self.lead:
            self.equate()

    def demanded_int(self) -> int | None:
        """The value of a static int of the root that sizes from outside determine: its own, or that of a dim equal to it."""
        for name, dim in self.document.dims.items():
            equal = "" if dim.equation is None else dim.equation.text
            if name in self.given_sizes and equal == self.name:
                return self.given_sizes[name]
        return self.given_sizes.get(self.name)

    def given_int(self) -> int | None:
        """The value of a static int of the root that is the size of its name."""
        name = self.name
        if name not in self.ints and name not in self.document.dims:
            drawn: int | None = self.fitting()
            return drawn
        if self.field.declared.nullable and self.small is None and self.between(0, 3) == 0:
            return None
        found = self.named(name)
        misses = scalar_misses(self.field, found)
        if misses:
            raise self.unfit(f"no number could be drawn: {misses[0]}")
        return found

    def fitting(self) -> Any:
        """A value that keeps the limits of the field."""
        if self.name not in self.plan.limited:
            return self.value()
        misses: list[str] = []
        value = None
        for turn in range(1 if is_empty(self.field) else _TRIES):
            value = self.value() if turn == 0 else self.changed(small=None).value()
            misses = self.misses(self.field, value)
            if not misses:
                return value
        if self.lenient:
            return value
        raise self.unfit(f"no value within its limits could be drawn: {misses[0]}")

    @staticmethod
    def misses(declaration: FieldDeclaration, value: Any) -> list[str]:
        """The limits of a field that a value violates."""
        if isinstance(value, (list, dict)):
            return length_misses(declaration, len(value), "items")
        return scalar_misses(declaration, value) if type(value) in _PLAIN else []

    def value(self) -> Any:
        """A value of the field."""
        given = self.given()
        if not given:
            return self.field.declared.example(self)
        allowed = given
        if self.small is not None:  # null first, and then no null
            allowed = [each for each in given if (each is None) is (self.small == 0)] or given
        found = self.pick("given", given, allowed)
        return read_value(found, self.field.declared, LiveBuilder(self.document))

    def given(self) -> Sequence[Any]:
        """The values that the field names, one of which it shall have."""
        choices = self.field.choices
        if not choices or not self.is_plain(self.field.declared):
            return ()
        return [*choices, None] if self.field.declared.nullable else choices

    def is_plain(self, declared: Type) -> bool:
        """True for a type without arrays and structs."""
        parts = walk_type(declared)
        return not any(part.element or self.document.is_struct(part.refers) for part in parts)

    # --- constraints -----------------------------------------------------------------------------------------------

    def count(self) -> None:
        """Gives the field, and those inside of it, the lengths that constraints demand, if they are known."""
        for path, axes in self.plan.lengths.items():
            for axis, length in axes.items() if path[0] == self.name else ():
                try:
                    found = evaluate_tree(length, self.known())
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
            elif axis < len(extents) and extents[axis] is not ... and ... not in extents[:axis]:
                size = extents[axis].text
                if size.isidentifier() and size not in {**self.document.dims, **self.given_sizes}:
                    self.local.setdefault(size, found)

    def known(self) -> Drawn:
        """The values and sizes that expressions of the struct may name."""
        made = Drawn(self.values, self, ref=(self.document, self.struct_name), sizes=True)
        # A field that is not drawn yet is no name: what needs it waits.
        made.ref = None if self.name else made.ref
        return made

    def equate(self) -> None:
        """Makes equalities true: the path on one side gets the value of the other one."""
        done: set[str] = set()
        for side, other in self.plan.equal:
            head = head_of(side.id)
            if side.id in done or head not in self.values:
                continue
            names = self.known()
            try:
                held, found = evaluate_tree(side, names), evaluate_tree(other, names)
                equal = evaluate_tree(ast.Compare(side, [ast.Eq()], [other]), names)
            except (KeyError, SchemaError):
                continue
            replaced = items_of(held) or [held]
            if not all(type(each) in _PLAIN for each in (found, *replaced)):
                continue
            if equal is not True:
                made = exchanged(self.values[head], steps_of(side.id), found)
                if self.misses(self.plan.fields[head], made):
                    continue
                self.values[head] = made
            done |= {side.id, *([other.id] if isinstance(other, ast.Name) else [])}

    def repair(self, struct: StructDeclaration) -> None:
        """Draws fields again until all constraints hold."""
        if not struct.constraints:
            return
        self.name = ""
        for turn in range(_REPAIRS):
            broken = self.broken()
            if broken is None:
                return
            heads = sorted(self.plan.heads[broken])
            if not heads or turn == _REPAIRS - 1:
                break
            self.hints = self.numbers_near(self.plan.conditions[broken])
            name = heads[(turn + self.between(0, 1)) % len(heads)]
            self.values.pop(name)
            self.draw_field(name)
            self.hints, self.name = (), ""
        text = self.plan.conditions[broken].text
        if not self.lenient:
            raise self.unfit(f"no values with {text} could be drawn")

    def broken(self) -> int | None:
        """The position of the first condition that fails."""
        names = self.known()
        if self.lead:
            held = {name: with_numbers(value) for name, value in self.values.items()}
            every = [
                Drawn({**self.values, **layer}, self, ref=names.ref, sizes=True)
                for layer in layers(held, self.lead)
            ]
        else:
            every = [names]
        for place, condition in enumerate(self.plan.conditions):
            if any(failure(condition, each) is not None for each in every):
                return place
        return None

    def numbers_near(self, expression: Expression) -> list[float]:
        """The numbers in an expression and of the names in it."""
        names = self.known()
        found: list[float] = []
        for node in ast.walk(expression.tree):
            if isinstance(node, (ast.Constant, ast.Name)):
                value = None
                try:
                    value = evaluate_tree(node, names)
                except (KeyError, SchemaError):
                    continue
                if type(value) in (int, float) and abs(value) < WHOLE:
                    found.append(value)
        return found

    # --- types -----------------------------------------------------------------------------------------------------

    def inner_struct(self, declared: Type) -> Any:
        """A struct that a type names."""
        owner, name = self.document.place_of(declared.refers)
        if name not in owner.structs:
            raise self.unfit(f"the schema has no struct {declared.refers}")
        sizes = [*map(self.number, declared.arguments)]
        self.show(declared.arguments, sizes)
        bound = dict(zip(owner.structs[name].params, sizes, strict=False))
        if owner is self.document:
            return self.struct(name, bound)
        return self.other(owner).struct(name, bound)

    def other(self, owner: Document) -> Draw:
        """The draw of a struct of another document, whose sizes are its own."""
        return self.changed(
            document=owner, near=None, dims={}, ints={}, chosen={}, given_sizes={}, outermost=True
        )

    def stacked(self, item: Type, axes: Sequence[Expression]) -> Any:
        """The struct that a type names, with axes in front of those of its arrays."""
        return self.changed(lead=self.shape(axes)).inner_struct(item)

    def items(self, types: Sequence[Type]) -> list[Any]:
        """The items of a collection, one of each type; only the outermost collection has the lengths of the field."""
        self.take(len(types), 1)
        inner = self.changed(nested=self.nested + 1)
        if self.field.min_length is not None or self.field.max_length is not None:
            free = self.field.model_copy(update={"min_length": None, "max_length": None})
            inner.field = free
        if self.alike and len(types) > 1 and self.holds_structs(types[0]):
            first = types[0].example(inner)
            others = (
                self.again(first) if each is types[0] else each.example(inner) for each in types[1:]
            )
            return [first, *others]
        return [each.example(inner) for each in types]

    def again(self, value: Any) -> Any:
        """A value with other arrays of the same dtypes and shapes."""
        if isinstance(value, DrawnKey):
            return DrawnKey(value.impl, self.again(value.words))
        if isinstance(value, Stored):
            self.take()
            return Stored(value.dtype, value.shape, value.read)
        if type(value) is StructValue:
            self.take()
            held: Any = value.fields
            made = Drawn(mapped(self.again, held.stored), held.draw, ref=held.ref)
            return StructValue(made, value.nodes)
        return mapped(self.again, value) if isinstance(value, (list, tuple, dict)) else value

    def branch(self, options: tuple[Type, ...]) -> Type:
        """One option of a union; deep inside one without structs."""
        allowed: Sequence[Type] | None = None
        if self.depth >= _DEEPEST:
            allowed = [option for option in options if not self.holds_structs(option)]
        if not allowed and self.small is not None:
            allowed = [option for option in options if option.nullable is (self.small == 0)]
        found: Type = self.pick(("branch", options), options, allowed or None)
        return found

    def holds_structs(self, declared: Type) -> bool:
        """True if a type names a struct."""
        return any(self.document.is_struct(inner.refers) for inner in walk_type(declared))

    def dtype(self, declared: Array) -> str:
        """The dtype of an array: one of its family, or that of its choice in the payload."""
        if not declared.choice:
            dtypes = declared.dtypes
            return dtypes[0] if len(dtypes) == 1 else self.pick(("dtype", dtypes), dtypes)
        if declared.element not in self.chosen:
            self.chosen[declared.element] = self.pick(("dtype", declared.choice), declared.choice)
        return self.chosen[declared.element]

    def array(self, dtype: str, shape: Sequence[int]) -> Stored:
        """An array."""
        self.take()
        seed = self.random.getrandbits(32)
        hints = (*self.hints, *self.near_numbers())
        is_read = self.name in self.plan.read
        read = Numbers(self.field, dtype, tuple(shape), seed, self.small, hints, is_read)
        return Stored(dtype, shape, read)

    def key(self, impl: str | None, shape: Sequence[int]) -> DrawnKey:
        """Random keys."""
        impl = impl or "threefry2x32"
        return DrawnKey(impl, self.array("uint32", (*shape, KEY_WORDS.get(impl, 4))))

    # --- numbers and text ------------------------------------------------------------------------------------------

    def integer(self) -> int:
        """An int within the limits of the field."""
        step = int(self.field.multiple_of or 1) or 1
        low, high = self.interval(1)
        first, last = math.ceil(low / step), math.floor(high / step)
        if self.small is not None and not self.hints:
            return step * min(max(first, math.ceil(self.small / step)), max(first, last))
        options = [int(each) for each in self.numbers(low, high, 1) if each == int(each)]
        found = self.drawn("int", options)
        return step * self.between(first, max(first, last)) if found is None else int(found)

    def floating(self) -> float:
        """A float within the limits of the field."""
        low, high = self.interval(0.25)
        step = self.field.multiple_of
        if step:
            low, high = step * math.ceil(low / step), step * math.floor(high / step)
        if self.small is not None and not self.hints:
            least = step * math.ceil(self.small / step) if step else self.small
            return float(min(max(low, least), max(low, high)))
        found = self.drawn("float", self.numbers(low, high, 0.25))
        if found is None:
            if step:
                return float(low + step * self.between(0, max(0, int((high - low) / step))))
            found = self.random.uniform(low, high)
            near = round(found * 8) / 8  # such numbers are exact in all dtypes
            found = near if low <= near <= high else found
        return float(found)

    def drawn(self, what: str, options: Sequence[float]) -> float | None:
        """One of the numbers that matter, or None for any other."""
        if self.hints:
            if self.small is not None:
                options = sorted(options, key=lambda each: abs(each - (self.small or 0)))[:4]
            return self.random.choice([*options, *options, None])
        every = [*options, *[None] * (len(options) + 1)]
        found: float | None = self.pick(what, every, every)
        return found

    def interval(self, least: float) -> tuple[float, float]:
        """Bounds of random numbers; open ones are moved by ``least``, or to the middle."""
        low, high = ends_within(self.field, least)
        low = min(-3, high - 6) if low == -math.inf else low
        high = max(3, low + 6) if high == math.inf else high
        if not -WHOLE < low <= high < WHOLE:
            raise self.unfit(f"no number between {-WHOLE} and {WHOLE} could be drawn")
        return low, high

    def numbers(self, low: float, high: float, least: float) -> list[float]:
        """The numbers that matter: small ones, limits of the field, those of the other version, and hints."""
        declaration: FieldDeclaration = self.field
        if self.hints:
            found = [n for each in self.hints for n in (each, each - 1, each + 1, 2 * each)]
        else:
            found = [0, 1, -1, low, high, low + least, high - least, declaration.default]
            found += [n for each in ends_of(declaration) for n in around(each, least)]
            found += self.near_numbers(least)
        fit = dict.fromkeys(
            each
            for each in found
            if type(each) in (int, float)
            and -WHOLE < each < WHOLE
            and (low <= each <= high or not scalar_misses(declaration, each))
        )
        return [*fit]

    def near_field(self) -> FieldDeclaration | None:
        """The declaration of the field in the other version."""
        struct = self.near.structs.get(self.struct_name) if self.near else None
        if struct is None:
            return None
        return bounded_fields(self.near).get((self.struct_name, self.name))  # type: ignore[arg-type]

    def near_numbers(self, least: float = 1) -> list[float]:
        """The limits of the field in the other version, with the numbers beside them."""
        other = self.near_field()
        if other is None:
            return []
        ends = [*ends_of(other), *([] if other.multiple_of is None else [other.multiple_of])]
        return [n for each in ends for n in around(each, least)]

    def lengths_near(self, least: int, most: int, few: int) -> list[int]:
        """Lengths that matter: the shortest, the longest up to some, and those of the other version."""
        other = self.near_field()
        ends = [] if other is None else [other.min_length, other.max_length]
        found = [least, least + 1, most, *range(least, least + few + 1)]
        found += [n for each in ends if each is not None for n in (each - 1, each, each + 1)]
        return [*dict.fromkeys(each for each in found if least <= each <= most)]

    def text(self) -> str:
        """Text within the limits of the field."""
        declaration: FieldDeclaration = self.field
        if declaration.pattern is not None:
            given = [declaration.default, *declaration.examples, *(declaration.choices or ())]
            made = [*given, *texts_of(declaration.pattern)]
            fit = [
                each
                for each in dict.fromkeys(each for each in made if isinstance(each, str))
                if not scalar_misses(declaration, each)
            ]
            if not fit:
                raise self.unfit(
                    f"no text that matches the pattern {declaration.pattern!r} could be drawn"
                )
            if self.small is not None:
                return min(fit, key=len)
            return str(self.pick("text", fit, fit))
        return "x" * self.text_length(_LONGEST_TEXT)

    def text_length(self, longest: int) -> int:
        """A length that the field allows."""
        least = self.field.min_length or 0
        most = longest if self.field.max_length is None else min(longest, self.field.max_length)
        if least > most:
            raise self.unfit(f"no text of {least} characters could be drawn")
        if self.small is not None:
            return max(least, min(self.small, most))
        most = min(most, least + 3) if self.field.max_length is None else most
        lengths = self.lengths_near(least, most, 3)
        return int(self.pick("length", lengths, lengths))
