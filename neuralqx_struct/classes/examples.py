"""Examples: instances made from a declaration alone, for tests, documentation and shapes to compile with.

Values are drawn as for samples of payloads (``schema/drawing``), with larger sizes and arrays of random numbers. The
constructor checks the result; where it refuses, another one is drawn, with larger numbers from time to time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from neuralqx_struct.classes.documents import classes_in, described
from neuralqx_struct.dtypes import DTYPES, FAMILIES, KEY_WORDS, dtype_named, dtypes_of
from neuralqx_struct.errors import Diagnostic, SchemaError, ValidationError, did_you_mean
from neuralqx_struct.expressions.functions import StructValue
from neuralqx_struct.fieldspec import is_struct
from neuralqx_struct.printing import brief
from neuralqx_struct.schema.bounds import ends_of
from neuralqx_struct.schema.conditions import Stored
from neuralqx_struct.schema.drawing import Decks, Draw, UnfitError
from neuralqx_struct.schema.drawing.numbers import ends_within, numbers_within
from neuralqx_struct.schema.drawing.values import DrawnKey, mapped
from neuralqx_struct.schema.lint import arguments_of, extents_of, root_ints
from neuralqx_struct.schema.lint.values import wrong_examples
from neuralqx_struct.schema.model import Document, StructDeclaration
from neuralqx_struct.schema.text import path_text
from neuralqx_struct.types import Array, Type, walk_type

_Made = TypeVar("_Made")

_TRIES = 400  # how many examples the constructor may refuse
_SIZES = (2, 5)  # of dims without bounds
_MOST_NUMBERS = 1 << 20  # in an array, for each reach
_MOST_ITEMS = 1 << 10  # in a list, for each reach
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
#: Structs and arrays, and items of collections in one instance, with the hint where there are more.
_MOST = {
    "structs": (10_000, "hold structs that repeat in a list, or make them optional"),
    "items": (200_000, "allow shorter lists and dicts"),
}
_SPARE = 190_000  # of the items, for lists and dicts of a least length; others are empty then


def example(
    cls: type[_Made],
    *,
    dims: Mapping[str, int] | None = None,
    dtypes: Mapping[str, str] | None = None,
    key: Any = 0,
) -> _Made:
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
        ValidationError: No instance met the declaration.

    Example:
        >>> from neuralqx_struct.struct import Struct
        >>> class Rate(Struct):
        ...     value: float
        ...     steps: int
        >>> example(Rate, key=1) == example(Rate, key=1), example(Rate, key=1) == example(Rate, key=2)
        (True, False)
    """
    made: _Made = drawn_instance(cls, dims=dims or {}, dtypes=dtypes or {}, key=key)
    return made


def drawn_instance(
    cls: Any,
    *,
    dims: Mapping[str, int],
    dtypes: Mapping[str, str],
    key: Any,
    alike: bool = False,
) -> Any:
    """As :func:`example`; with ``alike``, the structs in a list have equal sizes, so that they can be stacked."""
    if not isinstance(cls, type) or not is_struct(cls):
        meant = getattr(cls, "root", type(cls))
        known = isinstance(meant, type) and is_struct(meant)
        hint = f"; did you mean {meant.__name__}?" if known else ""
        raise TypeError(f"example(): expected a Struct class, got {brief(cls)}{hint}")
    document, name, classes = described(cls)
    _check_dims(document, dims)
    _check_dtypes(document, dtypes)
    for number, seed in enumerate(_seeds(key)):
        reach = 2 ** (number // 50)
        draw = _Example(
            document=document,
            classes=classes,
            random=random.Random(seed),  # noqa: S311
            decks=Decks(),
            left=[most for most, _ in _MOST.values()],
            alike=alike,
            lenient=True,
            dtypes=dtypes,
            given_sizes=dims,
            reach=reach,
            most_numbers=math.inf if dims else _MOST_NUMBERS * reach,
            most_items=_MOST_ITEMS * reach,
        )
        try:
            return _live(draw.struct(name, {}), classes)
        except UnfitError as error:
            problem = Diagnostic("NQX413", "error", error.reason, path=path_text(error.path))
            refused = ValidationError(problem)
        except ValidationError as error:
            refused = error
    raise refused


def _seeds(key: Any) -> list[int]:
    """The starts of random choices that a random key, or its words, determine."""
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.key_data(key)
    words = [int(word) for word in np.asarray(key).astype(np.uint64).ravel()]
    state = np.random.SeedSequence(words).generate_state(_TRIES, np.uint64)
    return [int(word) for word in state]


@dataclass(kw_only=True)
class _Example(Draw):
    """One struct instance in the making.

    Attributes:
        reach: How large sizes and ints may be, in multiples of the usual.
        dtypes: The dtypes of the caller, by the names of choices and families.
    """

    reach: int
    dtypes: Mapping[str, str] = field(default_factory=dict)

    def take(self, count: int = 1, sort: int = 0) -> None:
        self.left[sort] -= count
        if self.left[sort] < 0:
            name, (most, hint) = [*_MOST.items()][sort]
            message = f"expected a schema whose instances have at most {most:,} {name}, got more"
            path = f"{self.struct_name}.{self.name}"
            raise SchemaError(message, code="NQX413", path=path, hint=hint)

    def held(self, struct: StructDeclaration) -> frozenset[str]:
        """All fields that a constructor takes, but handles that have a default."""
        return frozenset(
            name
            for name, each in struct.fields.items()
            if each.derivation is None and not (each.kind == "opaque" and each.has_default)
        )

    # --- sizes -----------------------------------------------------------------------------------------------------

    def any_size(self, least: int = 0, most: int | None = None, name: str = "") -> int:
        """A size: a small one, where smaller ones were refused also a larger one."""
        smallest = _SIZES[0] if self.reach == 1 else 0
        start = max(least, smallest) if most is None else min(max(least, smallest), most)
        is_dim = name in self.document.dims
        end = start + _SIZES[1] * self.reach if is_dim else max(start, _SIZES[1] * self.reach - 1)
        return self.near_to(start, end if most is None else min(end, most))

    def open_size(self) -> int:
        return self.between(1, 3)

    def near_to(self, low: int, high: int) -> int:
        """A whole number within bounds; half of those in far reaches are drawn by their logarithm."""
        if self.reach == 1 or self.between(0, 1):
            return self.between(low, high)
        return int(low + math.expm1(self.random.uniform(0, math.log1p(high - low))))

    def length(self, item: Type) -> int:
        least = self.field.min_length or 0
        deep = self.depth > 4 and self.holds_structs(item)
        if deep or self.left[1] < _SPARE:
            return least
        return self.length_up_to(3)

    def length_up_to(self, more: int) -> int:
        """A length that the field allows, not much longer than its minimum; 0 only where others failed."""
        least = self.field.min_length or 0
        most = least + more if self.field.max_length is None else self.field.max_length
        usual = max(least, min(1, most)) if self.reach == 1 else least
        if usual > most:
            raise self.unfit(f"no length between {least} and {most} could be drawn")
        return self.between(usual, most)

    # --- values ----------------------------------------------------------------------------------------------------

    def given(self) -> Sequence[Any]:
        """The examples of the field, or its choices.

        Raises:
            SchemaError: NQX107: the field refuses an example, with every one.
        """
        path = f"{self.struct_name}.{self.name}"
        wrong = [
            Diagnostic("NQX107", "error", message, f"{path}.examples[{index}]", hint=hint)
            for index, message, hint in wrong_examples(self.document, self.field)
        ]
        if wrong:
            raise SchemaError(wrong)
        given = self.field.examples or self.field.choices
        return given if given and self.is_plain(self.field.declared) else ()

    def is_plain(self, declared: Type) -> bool:
        of_python = any(part.refers in self.classes for part in walk_type(declared))
        return super().is_plain(declared) and not of_python

    def other(self, owner: Document) -> Draw:
        return super().other(owner).changed(classes=classes_in(owner))

    def dtype(self, declared: Array) -> str:
        return self.dtypes.get(declared.dtype, declared.made_as)

    def integer(self) -> int:
        if self.hints:
            return super().integer()
        low, high = self.near_interval(int(self.reach == 1), 9 * self.reach, 1)
        step = int(self.field.multiple_of or 1) or 1
        first = math.ceil(low / step)
        return step * self.near_to(first, max(first, math.floor(high / step)))

    def floating(self) -> float:
        if self.hints:
            return super().floating()
        low, high = self.near_interval(0.0, 1.0, 1e-6)
        step = self.field.multiple_of
        return float(step * math.ceil(low / step) if step else self.random.uniform(low, high))

    def near_interval(self, low: float, high: float, least: float) -> tuple[float, float]:
        """The interval that the limits of the field leave, near to another one; open ends are moved by ``least``."""
        bottom, top = ends_within(self.field, least)
        width = high - low
        start = min(max(low, bottom), top)
        if bottom == -math.inf and top < low:
            start = top - width
        return start, min(top, start + width)

    def text(self) -> str:
        if self.field.pattern is None:
            return "".join(self.random.choice(_LETTERS) for _ in range(self.length_up_to(8)))
        if isinstance(self.field.default, str):
            return self.field.default
        try:
            return super().text()
        except UnfitError:
            message = f"expected `examples:` or a default for text like {self.field.pattern!r}, got neither"
            hint = "list examples in the schema: `examples: [...]`"
            path = f"{self.struct_name}.{self.name}"
            raise SchemaError(message, code="NQX107", path=path, hint=hint) from None

    def array(self, dtype: str, shape: Sequence[int]) -> Stored:
        self.take()
        seed = self.random.getrandbits(64)
        # A copy, as the field of this draw changes before the array is read.
        return Stored(dtype, shape, partial(self.changed().numbers_in, dtype, tuple(shape), seed))

    def numbers_in(self, dtype: str, shape: tuple[int, ...], seed: int) -> Any:
        """Random numbers of a dtype's family within the limits of the field; few different ones for a constraint that failed."""
        made, known, field = np.random.default_rng(seed), DTYPES[dtype], self.field
        numbers: Any
        if self.hints:
            few = numbers_within(field, dtype, self.hints, is_read=False)
            numbers = made.choice(np.array(few), shape)
        elif known.exponents is None:  # bool, too
            low, high = self.near_interval(0, min(9, 2**known.significand - 1), 1)
            numbers = made.integers(int(low), int(high) + 1, shape)
        elif ends_of(field):
            numbers = made.uniform(*self.near_interval(0.0, 1.0, 1e-3), shape)
        else:
            numbers = np.asarray(made.standard_normal(shape))
            if known.family == "complex":
                numbers = numbers + 1j * made.standard_normal(shape)
            elif "negative" in known.lacks:
                numbers = np.exp2(np.round(numbers))
        return np.asarray(numbers).astype(dtype_named(dtype))

    def key(self, impl: str | None, shape: Sequence[int]) -> DrawnKey:
        impl = impl or "threefry2x32"
        words = (*shape, KEY_WORDS.get(impl, 4))
        made = np.random.default_rng(self.random.getrandbits(64))
        numbers = made.integers(0, 2**32, words, np.uint32)
        return DrawnKey(impl, Stored("uint32", words, lambda: numbers))


def _live(value: Any, classes: Mapping[str, Any]) -> Any:
    """The Python value of what was drawn."""
    if isinstance(value, Stored):
        return _array(value.read())
    if isinstance(value, DrawnKey):
        return jax.random.wrap_key_data(jnp.asarray(value.words.read()), impl=value.impl)
    if type(value) is not StructValue:
        inside = partial(_live, classes=classes)
        return mapped(inside, value) if isinstance(value, (list, tuple, dict)) else value
    held: Any = value.fields
    cls = held.draw.classes[held.ref[1]]
    values = {name: _live(each, classes) for name, each in held.stored.items()}
    if not held.draw.lead:
        return cls(**values)
    # A class checks one instance; the struct around stacked ones checks them.
    others = {n: spec for n, spec in cls.__nqx_fields__.items() if spec.has_default}
    return cls.__nqx_assemble__({n: s.make_default() for n, s in others.items()} | values)


def _array(made: Any) -> Any:
    """An array of JAX, or of numpy where JAX does not hold the dtype."""
    kept = jax.dtypes.canonicalize_dtype(made.dtype) == made.dtype
    return jnp.asarray(made) if kept else made


# ---------------------------------------------------------------------------------------------------------------------
# Arguments.


def _check_dtypes(document: Document, dtypes: Mapping[str, str]) -> None:
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


def _check_dims(document: Document, dims: Mapping[str, int]) -> None:
    """Refuses names of sizes that a document does not have.

    Raises:
        SchemaError: NQX103: there is one.
    """
    known = {**dict.fromkeys(document.dims), **_sizes_in(document)}
    for name in dims:
        if name not in known:
            hint = did_you_mean(name, known) or f"it has {', '.join(known) or 'none'}"
            message = f"expected a dim of {document.id}, got {name!r}"
            raise SchemaError(message, code="NQX103", path="dims", hint=hint)


def _sizes_in(document: Document) -> dict[str, None]:
    """The names of sizes that arrays, lists and static ints of the root show, or that are passed to structs."""
    found = dict.fromkeys(sorted(root_ints(document)))
    for struct in document.structs.values():
        for declaration in struct.stored.values():
            passed = arguments_of(declaration, document.is_struct)
            for extent in (*extents_of(declaration), *passed):
                found |= dict.fromkeys(sorted(extent.names))
    return found
