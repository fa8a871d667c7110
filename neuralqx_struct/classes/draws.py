"""Random values for examples, numbers within bounds, text, arrays of any dtype and random keys, and their sizes.

Example:
    >>> draws = Draws(random=np.random.default_rng(0), reach=1)
    >>> draws.key("rbg", (2,)).shape
    (2,)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuralqx_struct.dtypes import DTYPES, FAMILIES, dtype_named, dtypes_of
from neuralqx_struct.errors import Diagnostic, SchemaError, ValidationError, did_you_mean
from neuralqx_struct.schema.bounds import Limits
from neuralqx_struct.schema.field_paths import given_values
from neuralqx_struct.schema.lint import arguments_of, extents_of, root_ints
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.types import Array

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def sequence(key: Any) -> np.random.SeedSequence:
    """The seeds that a random key, or its words, determine."""
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.key_data(key)
    return np.random.SeedSequence([int(word) for word in np.asarray(key).astype(np.uint64).ravel()])


def check_dtypes(document: Document, dtypes: Mapping[str, str]) -> None:
    """Checks names of choices and families with the dtypes that they shall have.

    Raises:
        SchemaError: NQX102: the schema has no such choice, or the dtype is none of it.
    """
    known = {name: tuple(choice.members) for name, choice in document.dtypes.items()}
    known |= {name: dtypes_of(name) for name in FAMILIES}
    for name, dtype in dtypes.items():
        names = known.get(name, tuple(known))
        got = dtype if name in known else name
        if got not in names:
            wanted = f"a dtype of {name}" if name in known else "a choice or a family of dtypes"
            hint = did_you_mean(got, names) or f"one of {', '.join(names)}"
            message = f"expected {wanted}, got {got!r}"
            raise SchemaError(message, code="NQX102", path="dtypes", hint=hint)


#: In one instance; each has its hint.
_MOST = {
    "structs": (10_000, "hold structs that repeat in a list, or make them optional"),
    "items": (200_000, "allow shorter lists and dicts"),
}
_SPARE = 190_000  # of the items, for lists and dicts of a least length; others are empty then


@dataclass(kw_only=True)
class Draws:
    """Random values of one field.

    Attributes:
        random: Source of all choices.
        reach: How large sizes and ints may be, in multiples of the usual.
        field: The field of the value; ``path`` is its struct and name.
        path: Where it is.
        dtypes: Dtypes by the names of choices and families.
        left: How many structs, and items of lists and dicts, may still be made, for all fields together.
    """

    random: np.random.Generator
    reach: int
    dtypes: Mapping[str, str] = field(default_factory=dict)
    left: dict[str, int] = field(
        default_factory=lambda: {sort: most for sort, (most, _) in _MOST.items()}
    )
    field: Any = None
    path: str = ""

    def take(self, sort: str, count: int = 1) -> int:
        """Counts structs, or items of lists and dicts; returns how many.

        Raises:
            SchemaError: NQX413: there are too many.
        """
        self.left[sort] -= count
        if self.left[sort] < 0:
            most, hint = _MOST[sort]
            message = f"expected a schema whose instances have at most {most:,} {sort}, got more"
            raise SchemaError(message, code="NQX413", path=self.path, hint=hint)
        return count

    def dtype(self, declared: Array) -> str:
        """The dtype of an array."""
        return self.dtypes.get(declared.dtype, declared.made_as)

    def near(self, low: Any, high: Any) -> int:
        """A whole number within bounds; half of those in far reaches are drawn by their logarithm."""
        if self.reach == 1 or self.random.integers(2):
            return int(self.random.integers(low, high + 1))
        return int(low + math.expm1(self.random.uniform(0, math.log1p(high - low + 1))))

    def one_of(self, values: Any) -> Any:
        """One of some values."""
        return values[int(self.random.integers(len(values)))]

    def count_up_to(self, more: int) -> int:
        """A length that the field allows, not much longer than its minimum; 0 only where others failed."""
        least = self.field.min_length or 0
        most = least + more if self.field.max_length is None else self.field.max_length
        usual = max(least, min(1, most)) if self.reach == 1 else least
        return int(self.random.integers(usual, most + 1))

    def items_up_to(self, more: int) -> int:
        """A length of a list or dict; after very many items, the least that the field allows."""
        few = self.left["items"] < _SPARE
        return self.take("items", self.field.min_length or 0 if few else self.count_up_to(more))

    def interval(self, low: float, high: float, least: float) -> tuple[float, float]:
        """The interval that bounds leave, near to [low, high]; open bounds are moved by ``least``."""
        field = self.field
        floors = [field.ge, None if field.gt is None else field.gt + least, -math.inf]
        ceilings = [field.le, None if field.lt is None else field.lt - least, math.inf]
        bottom = max(bound for bound in floors if bound is not None)
        top = min(bound for bound in ceilings if bound is not None)
        width = high - low
        start = min(max(low, bottom), top)
        if bottom == -math.inf and top < low:
            start = top - width
        return start, min(top, start + width)

    def integer(self) -> int:
        """An int."""
        low, high = self.interval(int(self.reach == 1), 9 * self.reach, 1)
        step = int(self.field.multiple_of or 1) or 1
        first = math.ceil(low / step)
        last = max(first, math.floor(high / step))
        return step * self.near(first, last)

    def floating(self) -> float:
        """A float."""
        low, high = self.interval(0.0, 1.0, 1e-6)
        step = self.field.multiple_of
        return float(step * math.ceil(low / step) if step else self.random.uniform(low, high))

    def text(self) -> str:
        """Returns text; for a pattern the default."""
        field = self.field
        if field.pattern is not None:
            if field.has_default and field.default is not None:
                return str(field.default)
            message = (
                f"expected `examples:` or a default for text like {field.pattern!r}, got neither"
            )
            hint = "list examples in the schema: `examples: [...]`"
            raise SchemaError(message, code="NQX107", path=self.path, hint=hint)
        return "".join(self.one_of(_LETTERS) for _ in range(self.count_up_to(8)))

    def array(self, dtype: str, shape: tuple[int, ...]) -> Any:
        """An array of JAX, or of numpy where JAX does not hold the dtype."""
        made = self.numbers(dtype, shape).astype(dtype_named(dtype))
        kept = jax.dtypes.canonicalize_dtype(made.dtype) == made.dtype
        return jnp.asarray(made) if kept else made

    def numbers(self, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        """Returns random numbers of a dtype's family."""
        known = DTYPES[dtype]
        if known.exponents is None:  # bool, too
            low, high = self.interval(0, min(9, 2**known.significand - 1), 1)
            return self.random.integers(int(low), int(high) + 1, shape)
        field = self.field
        if any(bound is not None for bound in (field.ge, field.gt, field.le, field.lt)):
            return np.asarray(self.random.uniform(*self.interval(0.0, 1.0, 1e-3), shape))
        drawn = np.asarray(self.random.standard_normal(shape))
        if known.family == "complex":
            return drawn + 1j * self.random.standard_normal(shape)
        return np.exp2(np.round(drawn)) if "negative" in known.lacks else drawn

    def key(self, impl: str | None, shape: tuple[int, ...]) -> Any:
        """Returns random keys."""
        key = jax.random.key(int(self.random.integers(2**31)), impl=impl or "threefry2x32")
        return key if shape == () else jax.random.split(key, math.prod(shape)).reshape(shape)


def exchanged(value: Any, steps: Sequence[str | int], new: Any) -> Any:
    """A value with another one where a path leads: in each item, where it names all items."""
    items = value.values() if isinstance(value, dict) else value
    step = steps[0] if steps else ""
    if isinstance(step, int):
        step = range(len(items))[step]
        return type(value)(
            exchanged(item, steps[1:], new) if place == step else item
            for place, item in enumerate(items)
        )
    if isinstance(value, dict):
        return {key: exchanged(item, steps, new) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(exchanged(item, steps, new) for item in value)
    if step:
        return value.replace(**{step: exchanged(getattr(value, step), steps[1:], new)})
    return float(new) if isinstance(value, float) and type(new) is int else new


def turn(declaration: FieldDeclaration, counted: bool) -> int:
    """The order of drawing: plain values, as sizes may be equal to them; then what has no given length; arrays last."""
    declared = declaration.declared
    if declared.element:
        return 3 if counted else 4
    plain = not any(branch.parts or branch.refers for branch in declared.branches)
    return 0 if plain else 1 + counted


def check_dims(document: Document, dims: Mapping[str, int]) -> None:
    """Refuses names of sizes that a document does not have.

    Raises:
        SchemaError: NQX103: there is one.
    """
    known = {**dict.fromkeys(document.dims), **sizes_in(document)}
    for name in dims:
        if name not in known:
            hint = did_you_mean(name, known) or f"it has {', '.join(known) or 'none'}"
            message = f"expected a dim of {document.id}, got {name!r}"
            raise SchemaError(message, code="NQX103", path="dims", hint=hint)


def sizes_in(document: Document) -> dict[str, None]:
    """The names of sizes that arrays, lists and static ints of the root show, or that are passed to structs."""
    found = dict.fromkeys(sorted(root_ints(document)))
    for struct in document.structs.values():
        for declaration in struct.stored.values():
            passed = arguments_of(declaration, document.is_struct)
            for extent in (*extents_of(declaration), *passed):
                found |= dict.fromkeys(sorted(extent.names))
    return found


def shown_dims(document: Document) -> list[str]:
    """The declared dims that an instance determines, by its sizes or by equations."""
    shown = sizes_in(document) | dict.fromkeys(given_values(document))
    for _ in document.dims:
        for name, dim in document.dims.items():
            if dim.equation is not None and dim.equation.names <= shown.keys():
                shown[name] = None
    return [name for name in document.dims if name in shown]


def limits_in(document: Document) -> Limits:
    """The bounds of fields of the root that dims are equal to, which chance rarely meets: those of the dims."""
    found: Limits = {}
    ints = root_ints(document)
    for dim in document.dims.values():
        name = "" if dim.equation is None else dim.equation.text
        if name in ints:
            bounds = found.setdefault((name,), {"ge": 0})
            bounds["ge"] = max(bounds["ge"], dim.min or 0)
            if dim.max is not None:
                bounds["le"] = min(bounds.get("le", dim.max), dim.max)
    return found


def unfit(message: str) -> ValidationError:
    """The error of sizes that were drawn and do not fit."""
    return ValidationError(Diagnostic("NQX413", "error", message, path="dims"))
