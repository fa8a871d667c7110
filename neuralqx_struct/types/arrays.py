"""Field types with a shape: arrays and typed random keys."""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from neuralqx_struct.dtypes import DTYPES, FAMILIES, dtypes_of
from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import Expression, parse
from neuralqx_struct.expressions.evaluation import evaluate
from neuralqx_struct.paths import Path, format_path
from neuralqx_struct.types.records import NO_VALUE, TYPES, Extent, Rule, Type
from neuralqx_struct.types.scalars import kind_rule
from neuralqx_struct.types.text import (
    Builder,
    format_extents,
    not_a_value,
    number_of,
    numbers_in,
    parse_extent,
    wrong,
)

#: JAX without x64 holds these in half the bits.
_NARROWED = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}


class DtypeHint(str):
    """The fix for an array of a dtype that its type does not allow.

    Attributes:
        dtype: The dtype that it has.
        allowed: The change of the schema that allows it too, for a choice of dtypes.
    """

    __slots__ = ("allowed", "dtype")

    dtype: str
    allowed: str

    def __new__(cls, text: str, dtype: str = "", allowed: str = "") -> Self:
        """Makes the text with its facts."""
        made = super().__new__(cls, text)
        made.dtype, made.allowed = dtype, allowed
        return made


def _has_dtype(declared: Type, seen: Any) -> bool:
    if seen.dtype in declared.dtypes:
        return True
    return bool(seen.loose and seen.dtype in map(_NARROWED.get, declared.dtypes))


def _aligned(shape: Sequence[Extent], sizes: Sequence[int]) -> Iterator[tuple[Expression, int]]:
    """Yields each declared size with the stored one; nothing for another number of axes."""
    front = shape.index(...) if ... in shape else len(shape)
    back = max(len(shape) - front - 1, 0)
    if len(sizes) < front + back or (... not in shape and len(sizes) != front):
        return
    declared = [*shape[:front], *shape[len(shape) - back :]]
    stored = [*sizes[:front], *sizes[len(sizes) - back :]]
    for extent, size in zip(declared, stored, strict=True):
        if isinstance(extent, Expression):
            yield extent, size


def _shape_rule(extents: tuple[Extent, ...], more: int = 0) -> Rule:
    """The rule of a list of sizes; ``more`` axes follow those that are declared."""
    sizes = [None if size is ... or size.names else int(evaluate(size, {})) for size in extents]
    if None not in sizes and not more:
        return {"const": sizes}
    named = len(extents) - extents.count(...) + more
    rule: Rule = {"type": "array", "minItems": named}
    return rule if ... in extents else rule | {"maxItems": named}


def array_value(value: Any, *, is_bool: bool) -> Any:
    """A value of an array in a file with words such as ``zeros`` replaced by numbers."""
    match value:
        case "zeros" | "ones":
            return (value == "ones") if is_bool else int(value == "ones")
        case {"fill": inner} | {"value": inner} if len(value) == 1:
            return inner
        case _:
            return value


def _with_numbers(value: Any) -> Any:
    """Nested lists, or a single value, with the numbers that text writes."""
    return [*map(_with_numbers, value)] if isinstance(value, list) else number_of(value)


def is_identity(value: Any) -> bool:
    """True for ``{eye: n}``, the identity matrix."""
    return isinstance(value, dict) and value.keys() == {"eye"}


def _listed(declared: Array | Key) -> Type | None:
    """The type of the entries along the first axis, as a list of them."""
    if not declared.shape or declared.shape[0] is ...:
        return None
    return TYPES["list"](replace(declared, shape=declared.shape[1:]), declared.shape[0])  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Array(Type):
    """An array; the shape ``(...,)`` is any shape, ``()`` an array without axes.

    Attributes:
        dtype: A dtype, a family, or the name of a choice.
        shape: The sizes.
        choice: The dtypes of the choice.
    """

    sort = "array"
    words = (sort, *DTYPES, *FAMILIES)
    meaning = "array"
    unhashable = "an array ({})"
    dtype: str
    shape: tuple[Extent, ...] = (...,)
    choice: tuple[str, ...] = ()

    @classmethod
    def parse(cls, word: str, args: list[ast.expr] | None, text: str) -> Type:
        if not dtypes_of(word):
            return Type.parse(word, args, text)
        return cls.of(word, args, text)

    @classmethod
    def of(cls, word: str, args: list[ast.expr] | None, text: str) -> Array:
        """The type for ``word[args]``, where the word is a dtype, a family or a choice."""
        if args is None:
            hint = f"write {word}[] for a single number, {word}[n] for a vector"
            raise wrong(text, f"expected a shape behind the dtype {word}", hint)
        return Array(word, tuple(map(parse_extent, args)))

    def format(self) -> str:
        return f"{self.dtype}[{format_extents(self.shape)}]"

    @property
    def extents(self) -> tuple[Extent, ...]:  # type: ignore[override]
        return self.shape

    @property
    def element(self) -> str:  # type: ignore[override]
        return self.dtype

    @property
    def families(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(dict.fromkeys(DTYPES[dtype].family for dtype in self.dtypes))

    @property
    def axes(self) -> int | None:  # type: ignore[override]
        return None if ... in self.shape else len(self.shape)

    @property
    def bounds(self) -> tuple[str, ...]:  # type: ignore[override]
        is_number = not self.shape and {"integer", "unsigned", "floating"}.issuperset(self.families)
        return ("number",) if is_number else ()

    @property
    def dtypes(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.choice or dtypes_of(self.dtype)

    @property
    def made_as(self) -> str:
        """The dtype of arrays that plain numbers make; of a choice, the first."""
        if self.choice:
            return self.choice[0]
        return FAMILIES[self.dtype].usual if self.dtype in FAMILIES else self.dtype

    def as_chosen(self, chosen: Mapping[str, tuple[str, Path]]) -> Array:
        """The type with the dtype that an instance tree has for the choice; the first of the choice if it has none."""
        if not self.choice:
            return self
        dtype, _ = chosen.get(self.dtype, (self.made_as, ()))
        return replace(self, dtype=dtype, choice=())

    def with_sizes(self, change: Callable[[Any], Any]) -> Type:
        return replace(self, shape=tuple(map(change, self.shape)))

    def with_axes(self, axes: tuple[Expression, ...]) -> Type:
        return replace(self, shape=(*axes, *self.shape))

    @property
    def listed(self) -> Type | None:  # type: ignore[override]
        return _listed(self)

    def accepts(self, document: Any, seen: Any) -> bool:
        if seen.sort != "array" or not _has_dtype(self, seen):
            return False
        return ... in self.shape or len(self.shape) == len(seen.shape)

    def check(self, walk: Any, seen: Any, path: Any, dims: Any) -> None:
        if seen.sort != "array":
            if seen.sort in ("list", "tuple"):
                advice = "make it an array of that dtype, or declare the type that it has"
                walk.mismatch(self, seen, path, hint=advice)
            else:
                walk.mismatch(self, seen, path)
            return
        if not _has_dtype(self, seen):
            hint = self._conversion(seen.dtype) if seen.dtype in DTYPES else None
            message = f"expected {self.format()}, got {seen.text}"
            why = f"\n{self.dtype} is one of {', '.join(self.choice)}" if self.choice else ""
            walk.report("NQX411", path, message + why, hint)
        elif self.choice:
            self._check_choice(walk, seen, path)
        walk.unify(dims, self.shape, seen.shape, path, seen.dtype)

    def _conversion(self, dtype: str) -> DtypeHint:
        """The fix for an array of another dtype."""
        text = f"convert it with astype({self.made_as!r})"
        if not self.choice:
            return DtypeHint(text, dtype)
        allowed = f"add the dtype: {self.widened_text(dtype)}"
        return DtypeHint(f"{text}; or {allowed}", dtype, allowed)

    def widened_text(self, dtype: str) -> str:
        """The declaration of the choice with one more dtype."""
        return f"`dtypes: {{{self.dtype}: [{', '.join((*self.choice, dtype))}]}}`"

    def _check_choice(self, walk: Any, seen: Any, path: Any) -> None:
        """Compares the dtype with that of the first array that names the choice."""
        dtype, first = walk.chosen.setdefault(self.dtype, (seen.dtype, path))
        if seen.dtype != dtype:
            message = f"expected {dtype}, got {seen.text}\n"
            why = f"{self.dtype} is one dtype, and {format_path(first)} is of {dtype}"
            text = f"convert one of the two with astype: {dtype!r} or {seen.dtype!r}"
            walk.report("NQX411", path, message + why, DtypeHint(text, seen.dtype))

    def readable_as(self, want: Array, compare: Any) -> bool:
        return {*self.dtypes} <= {*want.dtypes} and compare.shapes(self.shape, want.shape)

    def read(self, value: Any, builder: Builder) -> Any:
        value = array_value(value, is_bool=self.made_as == "bool")
        if is_identity(value):
            self._check_identity(value)
            return builder.array(self, value)
        value = _with_numbers(value)
        numbers = [*numbers_in(value)]
        for dtype in self.choice or (self.made_as,):
            known = DTYPES[dtype]
            if not all(map(known.holds, numbers)):
                plain = all(isinstance(number, (int, float, complex)) for number in numbers)
                hint = f"{dtype} holds {known.values}; change the value, or the dtype"
                raise not_a_value(value, self, hint if plain else None)
        return builder.array(self, value)

    def _check_identity(self, value: dict[str, Any]) -> None:
        """Checks that ``{eye: n}`` is for an array of the axes ``[n, n]``."""
        size = value["eye"]
        if type(size) is int or isinstance(size, str):
            axis = parse(str(size))
            if self.shape == (axis, axis):
                return
        raise not_a_value(value, self, "write {eye: n} for an array of the axes [n, n]")

    def check_shape(self, sizes: Sequence[int]) -> None:
        """Checks the sizes of nested lists.

        Raises:
            SchemaError: NQX107: they differ, or only a payload knows the sizes of the type.
        """
        axes = [*_aligned(self.shape, sizes)]
        is_open = ... in self.shape
        fits = len(axes) == len(self.shape) - is_open and (is_open or len(sizes) == len(axes))
        fixed = [(axis, size) for axis, size in axes if axis.text != "_"]
        if fits and all(not axis.names and evaluate(axis, {}) == size for axis, size in fixed):
            return
        message = f"expected lists of the sizes of {self.format()}, got {[*sizes]}"
        hint = "write one number, which fills any size" if not is_open else None
        raise SchemaError(message, code="NQX107", hint=hint)

    def lay_out(self, table: Any, row: Any) -> Any:
        return table.array(self, row)

    def neutral(self, document: Any) -> Any:
        if ... in self.shape:
            return NO_VALUE
        records = [DTYPES[dtype] for dtype in self.choice or (self.made_as,)]
        found = (v for v in (0, 1, False) if all(record.holds(v) for record in records))
        return next(found, NO_VALUE)

    def only_in_nodes(self, document: Any) -> bool:
        return True

    def looks_like(self) -> frozenset[Hashable]:
        rank = "..." if ... in self.shape else len(self.shape)
        return frozenset((dtype, rank) for dtype in self.dtypes)

    def rule(self, document: Any) -> Rule:
        names = self.dtypes
        dtype: Rule = {"const": names[0]} if len(names) == 1 else {"enum": [*names]}
        rule = kind_rule("array", "full", dtype=dtype, shape=_shape_rule(self.shape))
        if self.shape not in ((), (...,)):
            return rule
        return {"anyOf": [rule, kind_rule("numpy-scalar", dtype=dtype)]}

    def annotation(self, owner: Any, stub: Any) -> str:
        return str(stub.source("jax.Array"))

    def argument(self, owner: Any, stub: Any) -> str:
        return str(stub.array)

    def example(self, sample: Any) -> Any:
        return sample.array(sample.dtype(self), sample.shape(self.shape))


@dataclass(frozen=True, slots=True)
class Key(Type):
    """Typed random keys of one implementation (None: any), usually a single one."""

    sort = "prng_key"
    words = (sort,)
    meaning = "key"
    unhashable = "an array ({})"
    alone = True
    impl: str | None = None
    shape: tuple[Extent, ...] = ()

    @classmethod
    def parse(cls, word: str, args: list[ast.expr] | None, text: str) -> Type:
        if args is None:
            return Key()
        if not args or not isinstance(args[0], ast.Name):
            raise wrong(
                text,
                "expected prng_key[impl] or prng_key[impl, axes]",
                "such as prng_key[threefry2x32]",
            )
        impl = None if args[0].id == "_" else args[0].id
        return Key(impl, tuple(map(parse_extent, args[1:])))

    def format(self) -> str:
        if self == Key():
            return self.sort
        inside = [self.key_impl, format_extents(self.shape)]
        return f"{self.sort}[{', '.join(filter(None, inside))}]"

    @property
    def key_impl(self) -> str:  # type: ignore[override]
        return self.impl or "_"

    @property
    def extents(self) -> tuple[Extent, ...]:  # type: ignore[override]
        return self.shape

    def with_sizes(self, change: Callable[[Any], Any]) -> Type:
        return replace(self, shape=tuple(map(change, self.shape)))

    def with_axes(self, axes: tuple[Expression, ...]) -> Type:
        return replace(self, shape=(*axes, *self.shape))

    @property
    def listed(self) -> Type | None:  # type: ignore[override]
        return _listed(self)

    def check(self, walk: Any, seen: Any, path: Any, dims: Any) -> None:
        if seen.sort != "key" or self.impl not in (None, seen.dtype):
            walk.mismatch(self, seen, path, "NQX420")
            return
        walk.unify(dims, self.shape, seen.shape, path, self.sort)

    def readable_as(self, want: Key, compare: Any) -> bool:
        return want.impl in (None, self.impl) and compare.shapes(self.shape, want.shape)

    def read(self, value: Any, builder: Builder) -> Any:
        raise not_a_value(value, self)

    def lay_out(self, table: Any, row: Any) -> Any:
        return table.key(self, row)

    def only_in_nodes(self, document: Any) -> bool:
        return True

    def advice(self) -> tuple[str, str, str] | None:
        if self.impl is not None:
            return None
        message = (
            "expected prng_key with its implementation, got prng_key\n"
            "its words mean nothing without it"
        )
        return "NQX126", message, "write prng_key[threefry2x32]"

    def rule(self, document: Any) -> Rule:
        impl: Rule = {"type": "string"} if self.impl is None else {"const": self.impl}
        shape = _shape_rule(self.shape, more=1)
        data = kind_rule("array", dtype={"const": "uint32"}, shape=shape)
        return kind_rule("prng-key", impl=impl, data=data)

    def outline(self, document: Any) -> Rule:
        return kind_rule("prng-key")

    def annotation(self, owner: Any, stub: Any) -> str:
        return str(stub.source("jax.Array"))

    def example(self, sample: Any) -> Any:
        return sample.key(self.impl, sample.shape(self.shape))
