"""Examples: instances made from a declaration alone, for tests, documentation and shapes to compile with.

Sizes follow from dims and their equations, values from types, defaults and constraints. The constructor checks the
result; where it refuses because of constraints on several fields, another instance is drawn.

Example:
    >>> from neuralqx_struct.classes.compiler import load_schema
    >>> state = example(load_schema("schemas/vmc_state").VMCState, dims={"n_sites": 6})
    >>> state.kernel.shape[0], state.sampler.sigma.shape[1]
    (6, 6)
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuralqx_struct.classes.documents import described
from neuralqx_struct.dtypes import DTYPES, dtype_named
from neuralqx_struct.errors import SchemaError, ValidationError, did_you_mean
from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.evaluation import evaluate, evaluate_tree
from neuralqx_struct.fieldspec import is_struct
from neuralqx_struct.printing import brief
from neuralqx_struct.schema.bounds import bounded, lengths_in
from neuralqx_struct.schema.lint import extents_of, root_ints
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.types.records import Extent, Type, walk_type

_TRIES = 200  # how many examples the constraints on several fields may refuse
_DEEPEST = 4  # structs inside structs; deeper, lists are as short as allowed and optional structs are absent
_SIZES = (2, 5)  # of dims without bounds
_CONSTRAINED = "NQX416"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


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
        hint = (
            f"; did you mean {root.__name__}?" if isinstance(root, type) and is_struct(root) else ""
        )
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
            for extent in extents_of(declaration):
                known |= dict.fromkeys(sorted(extent.names))
    for name in dims:
        if name not in known:
            hint = did_you_mean(name, known) or f"it has {', '.join(known) or 'none'}"
            message = f"expected a dim of {document.id}, got {name!r}"
            raise SchemaError(message, code="NQX103", path="dims", hint=hint)


@dataclass
class _Sample:
    """One instance in the making; the records of types draw their values from it.

    Attributes:
        document: The declaration.
        classes: Structs and Enums by name.
        random: Source of all choices.
        sizes: Sizes of declared dims, and those that the caller gives.
        root: Static ints of the root, by name.
    """

    document: Document
    classes: Mapping[str, Any]
    random: np.random.Generator
    sizes: dict[str, int]
    root: dict[str, Any] = field(default_factory=dict)

    # --- sizes -----------------------------------------------------------------------------------------------------

    def dim(self, name: str) -> int:
        """The size of a declared dim: the caller's, that of its equation, or a small one."""
        if name not in self.sizes:
            declared = self.document.dims[name]
            if declared.equation is not None:
                self.sizes[name] = self.number(declared.equation, {})
            else:
                self.sizes[name] = self.small(declared.min or 0, declared.max)
        return self.sizes[name]

    def small(self, least: int, most: int | None) -> int:
        """A small size within bounds."""
        low, high = max(least, _SIZES[0]), max(least, *_SIZES)
        if most is not None:
            low, high = min(low, most), most
        return int(self.random.integers(low, min(high, low + _SIZES[1]) + 1))

    def number(self, size: Expression, local: dict[str, int]) -> int:
        """The number of a size; ``local`` has the names of one struct instance."""
        return int(evaluate(size, {name: self.named(name, local) for name in size.names}))

    def named(self, name: str, local: dict[str, int]) -> int:
        """The number of a name; the first time, a small one."""
        if name not in local and name in self.document.dims:
            return self.dim(name)
        for known in (local, self.sizes, self.root):
            if name in known:
                return known[name]
        local[name] = int(self.random.integers(*_SIZES))
        return local[name]

    def shape(self, extents: Sequence[Extent], local: dict[str, int]) -> tuple[int, ...]:
        """The sizes of a shape."""
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
        local, values = dict(bound), dict[str, Any]()
        given = self.given() if depth == 0 else {}
        declaration = self.document.structs[name]
        counted = lengths_in(declaration)
        fields = {n: d for n, d in bounded(declaration).items() if d.derivation is None}
        # Numbers come first: sizes may be equal to static ints of the root, and lengths to any.
        for field_name in sorted(fields, key=lambda n: _turn(fields[n], n in counted)):
            current = fields[field_name]
            if current.kind == "opaque" and current.has_default:
                continue
            if field_name in counted:
                current = self.counted(current, counted[field_name], values, local)
            if field_name in given:
                values[field_name] = given[field_name]
            else:
                values[field_name] = self.field(f"{name}.{field_name}", current, local, depth)
            if depth == 0 and isinstance(values[field_name], int):
                self.root[field_name] = values[field_name]
        return self.classes[name](**values)

    def given(self) -> dict[str, int]:
        """The fields of the root that the sizes of the caller determine."""
        dims = self.document.dims
        given = {
            n: self.sizes[n] for n in root_ints(self.document) & self.sizes.keys() - dims.keys()
        }
        for name in dims.keys() & self.sizes.keys():
            equation = dims[name].equation
            if equation is not None:  # `heads: {equals: n_heads}`: heads determines n_heads
                given[equation.text] = self.sizes[name]
        return given

    def field(
        self, path: str, declaration: FieldDeclaration, local: dict[str, int], depth: int
    ) -> Any:
        """The value of a field; errors name it."""
        try:
            return self.value(declaration.declared, declaration, local, depth)
        except SchemaError as error:
            found = error.diagnostics[0]
            raise SchemaError(found.message, code=found.code, path=path, hint=found.hint) from None

    def counted(
        self,
        declaration: FieldDeclaration,
        length: ast.expr,
        values: Mapping[str, Any],
        local: dict[str, int],
    ) -> FieldDeclaration:
        """The declaration of a field with the length that a constraint demands, if it is known."""
        named = {node.id for node in ast.walk(length) if isinstance(node, ast.Name)}
        sizes = {name: self.dim(name) for name in sorted(named & self.document.dims.keys())}
        try:
            found = evaluate_tree(length, {**self.sizes, **local, **sizes, **values})
        except SchemaError:
            return declaration
        if type(found) is not int or found < 0:
            return declaration
        extents = declaration.declared.extents
        if not extents:
            return declaration.model_copy(update={"min_length": found, "max_length": found})
        name = "" if extents[0] is ... else extents[0].text
        if name.isidentifier() and name not in {**self.document.dims, **self.sizes}:
            local.setdefault(name, found)
        return declaration

    # --- values ----------------------------------------------------------------------------------------------------

    def value(
        self, declared: Type, field: FieldDeclaration, local: dict[str, int], depth: int
    ) -> Any:
        """A value of a type that keeps the constraints of a field."""
        return declared.record.example(declared, self, field, local, depth)

    def one_of(self, values: Any) -> Any:
        """One of some values."""
        return values[int(self.random.integers(len(values)))]

    def branch(self, options: tuple[Type, ...], depth: int) -> Type:
        """One option of a union; deep inside one without structs."""
        simple = [o for o in options if not self.holds_structs(o)] if depth >= _DEEPEST else []
        chosen: Type = self.one_of(simple or options)
        return chosen

    def holds_structs(self, declared: Type) -> bool:
        """True if a type names a struct."""
        return any(self.document.is_struct(inner.refers) for inner in walk_type(declared))

    def inner_struct(self, declared: Any, local: dict[str, int], depth: int) -> Any:
        """An instance of the struct that a type names."""
        name = declared.refers
        pairs = zip(self.document.structs[name].params, declared.arguments, strict=False)
        return self.struct(name, {param: self.number(size, local) for param, size in pairs}, depth)

    def member(self, enum: str, name: str) -> Any:
        """A member: of a Python Enum, or its name."""
        cls = self.classes.get(enum)
        return name if cls is None else cls[name]

    def length(self, field: FieldDeclaration, item: Type, depth: int) -> int:
        """The length of a collection."""
        least = field.min_length or 0
        if depth >= _DEEPEST and self.holds_structs(item):
            return least
        most = least + 3 if field.max_length is None else field.max_length
        return int(self.random.integers(max(least, min(1, most)), most + 1))

    def interval(
        self, field: FieldDeclaration, low: float, high: float, least: float
    ) -> tuple[float, float]:
        """The interval that bounds leave, near to [low, high]; open bounds are moved by ``least``."""
        floors = [-math.inf if field.ge is None else field.ge]
        floors += [] if field.gt is None else [field.gt + least]
        ceilings = [math.inf if field.le is None else field.le]
        ceilings += [] if field.lt is None else [field.lt - least]
        bottom, top = max(floors), min(ceilings)
        width = high - low
        start = min(max(low, bottom), top)
        if bottom == -math.inf and top < high:
            start = min(low, top - width)
        return start, min(top, start + width)

    def integer(self, field: FieldDeclaration) -> int:
        """An int."""
        low, high = self.interval(field, 1, 9, 1)
        step = int(field.multiple_of or 1) or 1
        first = math.ceil(low / step)
        last = max(first, math.floor(high / step))
        return step * int(self.random.integers(first, last + 1))

    def floating(self, field: FieldDeclaration) -> float:
        """A float."""
        low, high = self.interval(field, 0.0, 1.0, 1e-6)
        if field.multiple_of:
            return float(field.multiple_of * math.ceil(low / field.multiple_of))
        return float(self.random.uniform(low, high))

    def text(self, field: FieldDeclaration) -> str:
        """Returns text; for a pattern the default."""
        if field.pattern is not None:
            if field.has_default and field.default is not None:
                return str(field.default)
            raise SchemaError(
                f"expected `examples:` or a default for text like {field.pattern!r}, got neither",
                code="NQX107",
                hint="list examples in the schema: `examples: [...]`",
            )
        least = field.min_length or 0
        most = least + 8 if field.max_length is None else field.max_length
        size = int(self.random.integers(max(least, min(1, most)), most + 1))
        return "".join(self.one_of(_LETTERS) for _ in range(size))

    def array(self, dtype: str, shape: tuple[int, ...], field: FieldDeclaration) -> Any:
        """An array of JAX, or of numpy where JAX does not hold the dtype."""
        made = self.numbers(dtype, shape, field).astype(dtype_named(dtype))
        kept = jax.dtypes.canonicalize_dtype(made.dtype) == made.dtype
        return jnp.asarray(made) if kept else made

    def numbers(self, dtype: str, shape: tuple[int, ...], field: FieldDeclaration) -> np.ndarray:
        """Returns random numbers of a dtype's family."""
        family = DTYPES[dtype].family
        if family == "bool":
            return self.random.integers(0, 2, shape)
        if family in ("integer", "unsigned"):
            most = min(9, 2 ** DTYPES[dtype].significand - 1)
            low, high = self.interval(field, 0, most, 1)
            return self.random.integers(int(low), int(high) + 1, shape)
        if any(bound is not None for bound in (field.ge, field.gt, field.le, field.lt)):
            return np.asarray(self.random.uniform(*self.interval(field, 0.0, 1.0, 1e-3), shape))
        drawn = np.asarray(self.random.standard_normal(shape))
        if family == "complex":
            return drawn + 1j * self.random.standard_normal(shape)
        # A dtype of powers of two alone has no sign and no zero.
        return np.exp2(np.round(drawn)) if dtype == "float8_e8m0fnu" else drawn

    def key(self, impl: str | None, shape: tuple[int, ...]) -> Any:
        """Returns random keys."""
        key = jax.random.key(int(self.random.integers(2**31)), impl=impl or "threefry2x32")
        return key if shape == () else jax.random.split(key, math.prod(shape)).reshape(shape)


def _turn(declaration: FieldDeclaration, counted: bool) -> tuple[int, bool]:
    """The order of drawing: numbers, collections with a given length, arrays; those that fix a size first."""
    if declaration.declared.record.element(declaration.declared):
        return 2, not counted
    return int(counted), False
