"""Field types with a shape: arrays and typed random keys."""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, ClassVar

from neuralqx_struct.dtypes import DTYPES
from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.evaluation import evaluate
from neuralqx_struct.types.records import (
    NO_VALUE,
    Array,
    Extent,
    Key,
    Named,
    Node,
    Rule,
    Type,
    TypeRecord,
    walk_type,
)
from neuralqx_struct.types.scalars import kind_rule
from neuralqx_struct.types.text import (
    Builder,
    format_extents,
    format_type,
    not_a_value,
    numbers_in,
    parse_extent,
    wrong,
)

#: JAX without x64 holds these in half the bits.
_NARROWED = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}


def arrays_in(declared: Type) -> list[Array]:
    """The array types inside a type, itself included."""
    return [inner for inner in walk_type(declared) if isinstance(inner, Array)]


def _same_dtype(declared: str, seen: Any) -> bool:
    return bool(seen.dtype == declared or (seen.loose and seen.dtype == _NARROWED.get(declared)))


def _is_element(dtype: str, number: Any) -> bool:
    """True if a plain number is one of a dtype."""
    known = DTYPES[dtype]
    if known.family == "bool":
        return type(number) is bool
    if known.family in ("integer", "unsigned"):
        low = 0 if known.family == "unsigned" else -(2 ** (known.bits - 1))
        return type(number) is int and low <= number < low + 2**known.bits
    return type(number) in (int, float)


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


class ShapedRecord(TypeRecord):
    """A type with a shape."""

    unhashable: ClassVar[str] = "an array ({})"

    def extents(self, declared: Any) -> tuple[Extent, ...]:
        """The shape."""
        return declared.shape  # type: ignore[no-any-return]

    def annotation(
        self,
        declared: Any,
        owner: Any,
        stub: Any,
    ) -> str:
        """The array of JAX."""
        return str(stub.source("jax.Array"))


class ArrayRecord(ShapedRecord):
    """An array of one dtype."""

    meaning: ClassVar[str] = "array"

    @property
    def words(self) -> tuple[str, ...]:
        """The dtypes, and ``array`` of the long form."""
        return (self.name, *DTYPES)

    def parse(
        self,
        word: str,
        args: list[ast.expr] | None,
        text: str,
    ) -> Type:
        """The array of a dtype and its axes."""
        if word not in DTYPES:
            return Named(word).record.parse(word, args, text)
        if args is None:
            hint = f"write {word}[] for a single number, {word}[n] for a vector"
            raise wrong(text, f"expected a shape behind the dtype {word}", hint)
        return Array(word, tuple(map(parse_extent, args)))

    def format(self, declared: Array) -> str:
        """Returns dtype and axes."""
        return f"{declared.dtype}[{format_extents(declared.shape)}]"

    def element(self, declared: Array) -> str:
        """The dtype."""
        return declared.dtype

    def with_sizes(self, declared: Array, change: Callable[[Any], Any]) -> Type:
        """The array with other sizes."""
        return Array(declared.dtype, tuple(map(change, declared.shape)))

    def accepts(
        self,
        declared: Array,
        document: Any,
        seen: Any,
    ) -> bool:
        """True for an array of the dtype and the number of axes."""
        if seen.sort != "array" or not _same_dtype(declared.dtype, seen):
            return False
        return ... in declared.shape or len(declared.shape) == len(seen.shape)

    def check(
        self,
        declared: Array,
        walk: Any,
        seen: Any,
        path: Any,
        dims: Any,
    ) -> None:
        """Reports another dtype, and the sizes."""
        if seen.sort != "array":
            if seen.sort in ("list", "tuple"):
                advice = "make it an array of that dtype, or declare the type that it has"
                walk.mismatch(declared, seen, path, hint=advice)
            else:
                walk.mismatch(declared, seen, path)
            return
        if not _same_dtype(declared.dtype, seen):
            hint = f"convert it with astype({declared.dtype!r})" if seen.dtype in DTYPES else None
            message = f"expected {format_type(declared)}, got {seen.text}"
            walk.report("NQX411", path, message, hint)
        walk.unify(dims, declared.shape, seen.shape, path, seen.dtype)

    def readable_as(
        self,
        have: Array,
        want: Array,
        compare: Any,
    ) -> bool:
        """True for the same dtype and the same sizes."""
        return have.dtype == want.dtype and compare.shapes(have.shape, want.shape)

    def shown_sizes(self, declared: Array, node: Node) -> Iterator[tuple[Expression, int]]:
        """Yields the sizes of an array node of the dtype."""
        if node["__kind__"] in ("array", "full") and node["dtype"] == declared.dtype:
            yield from _aligned(declared.shape, node["shape"])

    def read(
        self,
        declared: Array,
        value: Any,
        builder: Builder,
    ) -> Any:
        """The array of the numbers in nested lists, or filled with one number."""
        if not all(_is_element(declared.dtype, number) for number in numbers_in(value)):
            raise not_a_value(value, declared)
        return builder.array(declared, value)

    def neutral(self, declared: Array, document: Any) -> Any:
        """Returns zero, which fills an array of any size."""
        if ... in declared.shape:
            return NO_VALUE
        return False if DTYPES[declared.dtype].family == "bool" else 0

    def looks_like(self, declared: Array) -> Hashable:
        """The dtype and the number of axes."""
        return declared.dtype, "..." if ... in declared.shape else len(declared.shape)

    def rule(self, declared: Array, document: Any) -> Rule:
        """The rule of arrays and constant arrays."""
        dtype = {"const": declared.dtype}
        return kind_rule("array", "full", dtype=dtype, shape=_shape_rule(declared.shape))

    def argument(
        self,
        declared: Array,
        owner: Any,
        stub: Any,
    ) -> str:
        """Returns arrays of JAX and of numpy."""
        return str(stub.array)

    def example(
        self,
        declared: Array,
        sample: Any,
        field: Any,
        local: Any,
        depth: int,
    ) -> Any:
        """Returns random numbers."""
        return sample.array(declared.dtype, sample.shape(declared.shape, local), field)


class KeyRecord(ShapedRecord):
    """Typed random keys."""

    meaning: ClassVar[str] = "key"
    alone: ClassVar[bool] = True

    def parse(
        self,
        word: str,
        args: list[ast.expr] | None,
        text: str,
    ) -> Type:
        """Returns keys of an implementation, with axes behind it."""
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

    def format(self, declared: Key) -> str:
        """Returns implementation and axes."""
        if declared == Key():
            return self.name
        inside = [declared.impl or "_", format_extents(declared.shape)]
        return f"{self.name}[{', '.join(filter(None, inside))}]"

    def with_sizes(self, declared: Key, change: Callable[[Any], Any]) -> Type:
        """The keys with other sizes."""
        return Key(declared.impl, tuple(map(change, declared.shape)))

    def check(
        self,
        declared: Key,
        walk: Any,
        seen: Any,
        path: Any,
        dims: Any,
    ) -> None:
        """Reports another implementation, and the sizes."""
        if seen.sort != "key" or declared.impl not in (None, seen.dtype):
            walk.mismatch(declared, seen, path, "NQX420")
            return
        walk.unify(dims, declared.shape, seen.shape, path, self.name)

    def readable_as(
        self,
        have: Key,
        want: Key,
        compare: Any,
    ) -> bool:
        """True for an accepted implementation and the same sizes."""
        return want.impl in (None, have.impl) and compare.shapes(have.shape, want.shape)

    def shown_sizes(self, declared: Key, node: Node) -> Iterator[tuple[Expression, int]]:
        """Yields the sizes of a node of keys; the last axis of its data is the key itself."""
        if node["__kind__"] == "prng-key":
            yield from _aligned(declared.shape, node["data"]["shape"][:-1])

    def read(
        self,
        declared: Key,
        value: Any,
        builder: Builder,
    ) -> Any:
        """Refuses every value: files cannot write keys."""
        raise not_a_value(value, declared)

    def advice(self, declared: Key) -> tuple[str, str, str] | None:
        """A warning about keys without an implementation."""
        if declared.impl is not None:
            return None
        message = (
            "expected prng_key with its implementation, got prng_key\n"
            "its words mean nothing without it"
        )
        return "NQX126", message, "write prng_key[threefry2x32]"

    def rule(self, declared: Key, document: Any) -> Rule:
        """The rule of keys."""
        impl: Rule = {"type": "string"} if declared.impl is None else {"const": declared.impl}
        shape = _shape_rule(declared.shape, more=1)
        data = kind_rule("array", dtype={"const": "uint32"}, shape=shape)
        return kind_rule("prng-key", impl=impl, data=data)

    def outline(self, declared: Key, document: Any) -> Rule:
        """The rule of the kind alone."""
        return kind_rule("prng-key")

    def example(
        self,
        declared: Key,
        sample: Any,
        field: Any,
        local: Any,
        depth: int,
    ) -> Any:
        """Returns random keys."""
        return sample.key(declared.impl, sample.shape(declared.shape, local))
