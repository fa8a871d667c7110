"""Samples: instances made from a declaration alone, for tests, documentation and shapes to compile with.

Owns :func:`example`: sizes from dims and their equations, values from types, defaults and constraints. Whether the
result is one of the declaration is for the constructor to say, which checks it like any other; where constraints on
several fields at once are not met by chance, another sample is drawn.

Example:
    >>> from neuralqx_struct.compiler import load_schema
    >>> state = example(load_schema("schemas/vmc_state").VMCState, dims={"n_sites": 6})
    >>> state.kernel.shape[0], state.sampler.sigma.shape[1]
    (6, 6)
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuralqx_struct.errors import SchemaError, ValidationError, did_you_mean
from neuralqx_struct.fieldspec import is_struct
from neuralqx_struct.payload import dtype_named
from neuralqx_struct.printing import brief
from neuralqx_struct.schema.evaluation import evaluate, evaluate_tree
from neuralqx_struct.schema.expressions import Expression
from neuralqx_struct.schema.findings import root_ints
from neuralqx_struct.schema.model import Document, FieldDeclaration, StructDeclaration
from neuralqx_struct.schema.types import (
    DTYPES,
    Array,
    DictOf,
    Extent,
    Key,
    ListOf,
    LiteralOf,
    Named,
    Null,
    PyTree,
    Scalar,
    TupleOf,
    Type,
    Union,
    walk_type,
)
from neuralqx_struct.writer import described

__all__ = ["example"]

_TRIES = 200  # how often constraints on several fields may refuse a sample
_DEEPEST = 4  # structs inside structs, before lists stay empty and what may be null is null
_SIZES = (2, 5)  # of dims about which nothing is said
_CONSTRAINED = "NQX416"


def example(cls: Any, *, dims: Mapping[str, int] | None = None, key: Any = 0) -> Any:
    """Make an instance of a Struct class from its declaration, with random values.

    Args:
        cls: A class that a schema made, or one defined in Python, whose annotations are read as by
            :func:`~neuralqx_struct.schema_of`.
        dims: Sizes by name: declared dims, static ints of the root, and names that only shapes use. The others are
            small; equations hold.
        key: An int or a key of ``jax.random``; equal keys give equal instances.

    Returns:
        An instance that passed the checks of its constructor. Arrays are JAX's; where x64 is off, those of 64 bits are
        numpy's.

    Raises:
        TypeError: ``cls`` is not a Struct class.
        SchemaError: A name in ``dims`` is no dim of the schema; nothing can be made for a field, such as text for a
            pattern, where ``examples:`` or a default would help.
        ValidationError: No sample met the constraints.

    Example:
        >>> from neuralqx_struct.struct import Struct
        >>> class Rate(Struct):
        ...     value: float
        ...     steps: int
        >>> example(Rate, key=1) == example(Rate, key=1), example(Rate, key=1) == example(Rate, key=2)
        (True, False)
    """
    if not isinstance(cls, type) or not is_struct(cls):
        root = getattr(cls, "root", type(cls))
        hint = f"; did you mean {root.__name__}?" if isinstance(root, type) and is_struct(root) else ""
        raise TypeError(f"example(): expected a Struct class, got {brief(cls)}{hint}")
    document, name, classes = described(cls)
    _check_dims(document, dims or {})
    seeds = np.random.SeedSequence(_seed(key)).spawn(_TRIES)
    for seed in seeds:
        sample = _Sample(document, classes, np.random.default_rng(seed), dict(dims or {}))
        try:
            return sample.struct(name, {}, 0)
        except ValidationError as error:
            if any(d.code != _CONSTRAINED for d in error.diagnostics):
                raise
            refused = error
    raise refused


def _seed(key: Any) -> list[int]:
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.key_data(key)
    return [int(word) for word in np.asarray(key).astype(np.uint64).ravel()]


def _check_dims(document: Document, dims: Mapping[str, int]) -> None:
    known: dict[str, None] = dict.fromkeys((*document.dims, *sorted(root_ints(document))))
    for struct in document.structs.values():
        for declaration in struct.stored.values():
            for inner in walk_type(declaration.declared):
                extents: tuple[Extent, ...] = inner.shape if isinstance(inner, (Array, Key)) else ()
                known |= dict.fromkeys(name for extent in extents if extent is not ... for name in sorted(extent.names))
    for name in dims:
        if name not in known:
            hint = did_you_mean(name, known) or f"it has {', '.join(known) or 'none'}"
            raise SchemaError(f"expected a dim of {document.id}, got {name!r}", code="NQX103", path="dims", hint=hint)


@dataclass
class _Sample:
    """One instance in the making.

    Attributes:
        document: The declaration.
        classes: Structs and Enums by name.
        random: Where all choices come from.
        sizes: Sizes of declared dims, and what the caller said about others.
    """

    document: Document
    classes: Mapping[str, Any]
    random: np.random.Generator
    sizes: dict[str, int]
    root: dict[str, Any] = field(default_factory=dict)

    # --- sizes -----------------------------------------------------------------------------------------------------

    def dim(self, name: str) -> int:
        """The size of a declared dim: as the caller says, by its equation, or small and within its bounds."""
        if name not in self.sizes:
            declared = self.document.dims[name]
            if declared.equation is not None:
                self.sizes[name] = self.number(declared.equation, {})
            else:
                low = max(declared.min or 0, _SIZES[0])
                low, high = (
                    (low, max(low, _SIZES[1])) if declared.max is None else (min(low, declared.max), declared.max)
                )
                self.sizes[name] = int(self.random.integers(low, min(high, low + _SIZES[1]) + 1))
        return self.sizes[name]

    def number(self, size: Expression, local: dict[str, int]) -> int:
        """The number that a size is, where ``local`` holds the names of one struct instance."""
        names: dict[str, Any] = {}
        for name in size.names:
            if name in local:
                names[name] = local[name]
            elif name in self.document.dims:
                names[name] = self.dim(name)
            elif name in self.sizes:
                names[name] = self.sizes[name]
            elif name in self.root:
                names[name] = self.root[name]
            else:
                names[name] = local[name] = int(self.random.integers(*_SIZES))
        return int(evaluate(size, names))

    def shape(self, extents: tuple[Extent, ...], local: dict[str, int]) -> tuple[int, ...]:
        sizes: list[int] = []
        for extent in extents:
            if extent is ...:
                sizes += [int(n) for n in self.random.integers(1, 4, self.random.integers(0, 3))]
            else:
                sizes.append(3 if extent.text == "_" else self.number(extent, local))
        return tuple(sizes)

    # --- structs ---------------------------------------------------------------------------------------------------

    def struct(self, name: str, bound: dict[str, int], depth: int) -> Any:
        """An instance of a struct whose parameters are ``bound``."""
        local = dict(bound)
        values: dict[str, Any] = {}
        fields = {n: d for n, d in _bounded(self.document.structs[name]).items() if d.derivation is None}
        # `heads: {equals: n_heads}`: who says how large heads is says what n_heads is.
        said = {n: size for n, size in self.sizes.items() if n in self.document.dims} if depth == 0 else {}
        equal = {n: self.document.dims[n].equation for n in said}
        meant = {equation.text: said[n] for n, equation in equal.items() if equation is not None}
        ints = root_ints(self.document) & self.sizes.keys() - self.document.dims.keys() if depth == 0 else set()
        counted = _lengths_in(self.document.structs[name])
        # Numbers come first: sizes may be equal to static ints of the root, and lengths to any.
        for field_name, declaration in sorted(fields.items(), key=lambda item: _turn(item[1], item[0] in counted)):
            if declaration.kind == "opaque" and declaration.has_default:
                continue
            if depth == 0 and field_name in ints:
                values[field_name] = self.root[field_name] = self.sizes[field_name]
                continue
            if depth == 0 and field_name in meant:
                values[field_name] = self.root[field_name] = meant[field_name]
                continue
            if field_name in counted:
                declaration = self.counted(declaration, counted[field_name], values, local)  # noqa: PLW2901
            try:
                values[field_name] = self.value(declaration.declared, declaration, local, depth)
            except SchemaError as error:
                found = error.diagnostics[0]
                raise SchemaError(
                    found.message, code=found.code, path=f"{name}.{field_name}", hint=found.hint
                ) from None
            if depth == 0 and isinstance(values[field_name], int):
                self.root[field_name] = values[field_name]
        return self.classes[name](**values)

    def counted(
        self, said: FieldDeclaration, length: ast.expr, values: Mapping[str, Any], local: dict[str, int]
    ) -> FieldDeclaration:
        """The declaration of a field of which a constraint says how long it is, as far as what it names is known."""
        named = {node.id for node in ast.walk(length) if isinstance(node, ast.Name)}
        sizes = {name: self.dim(name) for name in sorted(named & self.document.dims.keys())}
        try:
            found = evaluate_tree(length, {**self.sizes, **local, **sizes, **values})
        except SchemaError:
            return said
        if type(found) is not int or found < 0:
            return said
        if not isinstance(said.declared, Array):
            return said.model_copy(update={"min_length": found, "max_length": found})
        first = said.declared.shape[0] if said.declared.shape else ...
        if first is not ... and first.text in first.names - self.document.dims.keys() - self.sizes.keys():
            local.setdefault(first.text, found)
        return said

    # --- values ----------------------------------------------------------------------------------------------------

    def value(self, declared: Type, said: FieldDeclaration, local: dict[str, int], depth: int) -> Any:
        """A value of a type; ``said`` is the field's declaration, for its constraints."""
        match declared:
            case Null():
                return None
            case Union(options):
                return self.value(self.branch(options, depth), said, local, depth)
            case Scalar(name):
                return self.scalar(name, said)
            case LiteralOf(values):
                return self.one_of(values)
            case Array(dtype, shape):
                return _leaf(self.array(dtype, self.shape(shape, local), said))
            case Key(impl, shape):
                return self.key(impl, self.shape(shape, local))
            case Named(name) if name in self.document.enums:
                member = str(self.one_of(self.document.enums[name].members))
                enum = self.classes.get(name)
                return member if enum is None else enum[member]
            case Named(name, args):
                params = self.document.structs[name].params
                return self.struct(
                    name, {p: self.number(a, local) for p, a in zip(params, args, strict=False)}, depth + 1
                )
            case ListOf(item):
                return [self.value(item, said, local, depth) for _ in range(self.length(said, item, depth))]
            case TupleOf(items, variadic):
                types = items * self.length(said, items[0], depth) if variadic else items
                return tuple(self.value(item, said, local, depth) for item in types)
            case DictOf(item):
                return {f"key{i}": self.value(item, said, local, depth) for i in range(self.length(said, item, depth))}
            case PyTree() if said.kind == "static":
                return int(self.random.integers(10))
            case PyTree():
                return _leaf(self.array("float32", (2,), said))

    def one_of(self, values: Any) -> Any:
        return values[int(self.random.integers(len(values)))]

    def branch(self, options: tuple[Type, ...], depth: int) -> Type:
        simple = [o for o in options if not self.holds_structs(o)] if depth >= _DEEPEST else []
        chosen: Type = self.one_of(simple or options)
        return chosen

    def holds_structs(self, declared: Type) -> bool:
        return any(isinstance(t, Named) and t.name in self.document.structs for t in walk_type(declared))

    def length(self, said: FieldDeclaration, item: Type, depth: int) -> int:
        low = said.min_length or 0
        if depth >= _DEEPEST and self.holds_structs(item):
            return low
        high = low + 3 if said.max_length is None else said.max_length
        return int(self.random.integers(max(low, min(1, high)), high + 1))

    def scalar(self, name: str, said: FieldDeclaration) -> Any:
        given = said.choices or said.examples
        if given:
            return _as_scalar(name, self.one_of(given))
        if name == "str" and said.pattern is not None:
            if said.has_default and said.default is not None:
                return said.default
            raise SchemaError(
                f"expected `examples:` or a default for text like {said.pattern!r}, got neither",
                code="NQX107",
                hint="list examples in the schema: `examples: [...]`",
            )
        return _SCALARS[name](self, said)

    def bounds(self, said: FieldDeclaration, low: float, high: float, least: float) -> tuple[float, float]:
        """The closed interval that constraints leave, as near to [low, high] as they allow."""
        floors = [float(b) for b in (said.ge, None if said.gt is None else said.gt + least) if b is not None]
        ceilings = [float(b) for b in (said.le, None if said.lt is None else said.lt - least) if b is not None]
        bottom, top = max(floors, default=-math.inf), min(ceilings, default=math.inf)
        width = high - low
        start = min(max(low, bottom), top if math.isfinite(top) else math.inf)
        if not floors and ceilings and top < high:
            start = min(low, top - width)
        return start, min(top, start + width)

    def integer(self, said: FieldDeclaration) -> int:
        low, high = self.bounds(said, 1, 9, 1)
        step = int(said.multiple_of or 1) or 1
        first = math.ceil(low / step)
        return step * int(self.random.integers(first, max(first, math.floor(high / step)) + 1))

    def floating(self, said: FieldDeclaration) -> float:
        low, high = self.bounds(said, 0.0, 1.0, 1e-6)
        if said.multiple_of:
            return float(said.multiple_of * math.ceil(low / said.multiple_of))
        return float(self.random.uniform(low, high))

    def text(self, said: FieldDeclaration) -> str:
        low = said.min_length or 0
        high = low + 8 if said.max_length is None else said.max_length
        size = int(self.random.integers(max(low, min(1, high)), high + 1))
        return "".join(self.one_of("abcdefghijklmnopqrstuvwxyz") for _ in range(size))

    def array(self, dtype: str, shape: tuple[int, ...], said: FieldDeclaration) -> np.ndarray:
        family = DTYPES[dtype].family
        if family == "bool":
            return self.random.integers(0, 2, shape).astype(bool)
        if family in ("integer", "unsigned"):
            top = min(9, 2 ** DTYPES[dtype].significand - 1)
            low, high = self.bounds(said, 0, top, 1)
            return self.random.integers(int(low), int(high) + 1, shape).astype(dtype_named(dtype))
        if any(bound is not None for bound in (said.ge, said.gt, said.le, said.lt)):
            low, high = self.bounds(said, 0.0, 1.0, 1e-3)
            return self.random.uniform(low, high, shape).astype(dtype_named(dtype))
        drawn = self.random.standard_normal(shape)
        if family == "complex":
            drawn = drawn + 1j * self.random.standard_normal(shape)
        elif dtype == "float8_e8m0fnu":  # has no sign and no zero
            drawn = np.exp2(np.round(drawn))
        return np.asarray(drawn).astype(dtype_named(dtype))

    def key(self, impl: str | None, shape: tuple[int, ...]) -> Any:
        key = jax.random.key(int(self.random.integers(2**31)), impl=impl or "threefry2x32")
        return key if shape == () else jax.random.split(key, math.prod(shape)).reshape(shape)


# --- what constraints say of one field ---------------------------------------------------------------------------------

_BOUNDS: Mapping[type[ast.cmpop], str] = {ast.GtE: "ge", ast.Gt: "gt", ast.LtE: "le", ast.Lt: "lt"}
_MIRRORED: Mapping[str, str] = {"ge": "le", "gt": "lt", "le": "ge", "lt": "gt"}


def _bounded(struct: StructDeclaration) -> dict[str, FieldDeclaration]:
    """The fields with the bounds that constraints such as ``all(0 <= x <= 1)`` give them: chance would rarely meet those."""
    fields = dict(struct.fields)
    for constraint in struct.constraints:
        for name, bound, value in _bounds_in(constraint.expression.tree):
            if name in fields and getattr(fields[name], bound) is None:
                fields[name] = fields[name].model_copy(update={bound: value})
    return fields


def _bounds_in(node: ast.expr) -> Iterator[tuple[str, str, float]]:
    """Names, bounds and their values, as far as a condition that must hold compares a name with a number."""
    match node:
        case ast.BoolOp(op=ast.And(), values=values):
            for inner in values:
                yield from _bounds_in(inner)
        case ast.Call(func=ast.Name(id="all"), args=[inner]):
            yield from _bounds_in(inner)
        case ast.Compare(left=left, ops=ops, comparators=others):
            for op, (a, b) in zip(ops, pairwise([left, *others]), strict=True):
                bound = _BOUNDS.get(type(op))
                if bound is not None:
                    yield from _bound(a, bound, b)
                    yield from _bound(b, _MIRRORED[bound], a)


def _lengths_in(struct: StructDeclaration) -> dict[str, ast.expr]:
    """Fields whose length is equal to something by a condition such as ``len(layers) == n_layers``, and to what."""
    found: dict[str, ast.expr] = {}
    todo = [constraint.expression.tree for constraint in struct.constraints]
    while todo:
        match todo.pop():
            case ast.BoolOp(op=ast.And(), values=values):
                todo += values
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
                for side, other in ((left, right), (right, left)):
                    match side:
                        case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)]):
                            found[name] = other
                        case _:
                            pass
            case _:
                pass
    return found


def _turn(declaration: FieldDeclaration, counted: bool) -> tuple[int, bool]:
    """When a field is drawn: what is counted after all numbers, arrays last, those that give a size first."""
    if isinstance(declaration.declared, Array):
        return 2, not counted
    return int(counted), False


def _bound(side: ast.expr, bound: str, other: ast.expr) -> Iterator[tuple[str, str, float]]:
    if any(isinstance(inner, (ast.Name, ast.Tuple)) for inner in ast.walk(other)):
        return
    value = evaluate_tree(other, {})
    match side, value:
        case ast.Name(id=name), int() | float():
            yield name, bound, value
        case ast.Call(func=ast.Name(id="abs"), args=[ast.Name(id=name)]), int() | float() if bound in ("le", "lt"):
            yield name, bound, value
            yield name, _MIRRORED[bound], -value


_SCALARS: Mapping[str, Callable[[_Sample, FieldDeclaration], Any]] = {
    "bool": lambda sample, _: bool(sample.random.integers(2)),
    "int": _Sample.integer,
    "float": _Sample.floating,
    "complex": lambda sample, said: complex(sample.floating(said), sample.floating(said)),
    "str": _Sample.text,
    "bytes": lambda sample, said: sample.text(said).encode(),
    "path": lambda sample, said: Path(sample.text(said)),
    "dtype": lambda sample, _: dtype_named(sample.one_of(("float32", "int32", "complex64"))),
}


def _as_scalar(name: str, value: Any) -> Any:
    """A choice as YAML writes it, as the value of its type."""
    made: Mapping[str, Callable[[Any], Any]] = {"path": Path, "dtype": dtype_named, "float": float}
    return made[name](value) if name in made and value is not None else value


def _leaf(array: np.ndarray) -> Any:
    """As a JAX array, where JAX holds the dtype."""
    return jnp.asarray(array) if jax.dtypes.canonicalize_dtype(array.dtype) == array.dtype else array
