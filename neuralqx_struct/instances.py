"""Instances of schema-made classes: what a schema sees of live values, and the check of each new instance.

Owns the reader of live values (:func:`see_value`) and :class:`InstanceCheck`, which decides in three ways, from the
quickest to the most thorough. Straight code shows what is usual to be sound (``soundness.py``). What it leaves open has
a *signature*: the types, dtypes and shapes of the instance, and those plain values that the schema has something to
say about; where one of equal signature was sound before, this one is. All others the schema is walked for. What a
schema says of numbers inside arrays is looked at in every instance; such verdicts are not remembered.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from neuralqx_struct.conditions import ARRAYS, dtype_name
from neuralqx_struct.errors import Diagnostic, ValidationError
from neuralqx_struct.fieldspec import is_struct
from neuralqx_struct.path_tree import PathTree
from neuralqx_struct.paths import FieldName
from neuralqx_struct.pytree import Pair, is_frozen, load_pair
from neuralqx_struct.registry import class_ref, stored_class
from neuralqx_struct.schema.conform import Seen, Shaped, conform, shown_scalar
from neuralqx_struct.schema.fingerprint import full_fingerprint
from neuralqx_struct.schema.model import Document, FieldDeclaration, StructDeclaration
from neuralqx_struct.schema.types import LiteralOf, Named, Null, PyTree, Union, walk_type
from neuralqx_struct.soundness import Proof, proof_of_arguments, proof_of_pairs

__all__ = ["InstanceCheck", "see_value"]

_SCALARS: Mapping[type, str] = {
    bool: "bool",
    int: "int",
    float: "float",
    complex: "complex",
    str: "str",
    bytes: "bytes",
}

# ---------------------------------------------------------------------------------------------------------------------
# Reading live values.


def see_value(value: Any) -> Seen:
    """Read a live value for :func:`~neuralqx_struct.schema.conform.conform`; tracers show shape and dtype only."""
    if value is None:
        return Seen("null", "null")
    found = _SCALARS.get(type(value))
    if found is not None:
        return Seen("scalar", shown_scalar(value), value=value, type_name=found)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        sort = "list" if isinstance(value, list) else "tuple"
        return Seen(sort, f"a {sort} of {len(value)}", items=dict(enumerate(value)))
    if isinstance(value, (dict, PathTree)) and all(isinstance(key, str) for key in value):
        return Seen("dict", "a dict", items=value)
    if is_struct(value) and not isinstance(value, type):
        kinds = (stored_class(type(value)), *(base for base in type(value).__mro__ if "__nqx_ref__" in base.__dict__))
        refs = tuple(dict.fromkeys(map(class_ref, kinds)))
        fields = {FieldName(n, s): getattr(value, n) for n, s in type(value).__nqx_fields__.items() if not s.is_derived}
        return Seen("struct", type(value).__name__, refs=refs, items=fields)
    if hasattr(value, "dtype") and hasattr(value, "shape") and not isinstance(value, type):
        return _see_array(value)
    if isinstance(value, Path):
        return Seen("scalar", repr(value), value=value, type_name="path")
    if isinstance(value, np.dtype):
        return Seen("scalar", repr(value), value=value, type_name="dtype")
    keys = " with keys that are not str" if isinstance(value, dict) else ""
    return Seen("other", f"a {type(value).__name__}{keys}")


def _see_array(value: Any) -> Seen:
    shape = tuple(value.shape)
    # Extended dtypes, which keys have, are no dtypes of numpy; asking that first is what most arrays need.
    if not isinstance(value.dtype, np.dtype) and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        impl = str(jax.random.key_impl(value)) if isinstance(value, jax.Array) else str(value.dtype)
        return Seen("key", f"prng_key[{impl}]", impl, shape)
    dtype = dtype_name(value.dtype)
    traced = isinstance(value, jax.core.Tracer)
    shown = value if not traced and hasattr(value, "__array__") else Shaped(dtype, shape)
    return Seen("array", f"{dtype}[{', '.join(map(str, shape))}]", dtype, shape, shown, loose=traced)


class _Apart:
    """Reads like :func:`see_value`, but keeps the numbers of arrays back, and knows whether somebody asked for them."""

    def __init__(self) -> None:
        self._shown: list[Shaped] = []

    def __call__(self, value: Any) -> Seen:
        seen = see_value(value)
        if seen.sort != "array":
            return seen
        shown = Shaped(seen.dtype, seen.shape)
        if not seen.loose:  # the numbers of tracers are nobody's
            self._shown.append(shown)
        return Seen(seen.sort, seen.text, seen.dtype, seen.shape, shown, loose=seen.loose)

    @property
    def asked(self) -> bool:
        return any(shown.asked for shown in self._shown)


# ---------------------------------------------------------------------------------------------------------------------
# Signatures. Everything in one tells its type first, so that values which merely compare equal are told apart.

_MOST_KEPT, _MOST_ITEMS, _LONGEST_TEXT, _WIDEST_INT, _DEEPEST = 128, 256, 64, 256, 16

Signature = Any  # whatever has a hash
Look = Callable[[Any, "_Room"], Signature]


class _UnseenError(Exception):
    """A value has no signature: its type is unknown, or there is too much of it to remember."""


class _Room:
    """How much one signature may still take in, and how the structs inside are looked at."""

    __slots__ = ("items", "levels", "plan_of")

    def __init__(self, plan_of: Callable[[type], _Plan | None]) -> None:
        self.plan_of = plan_of
        self.items = _MOST_ITEMS
        self.levels = _DEEPEST

    def enter(self, items: int) -> None:
        self.items -= items
        self.levels -= 1
        if self.items < 0 or self.levels < 0:
            raise _UnseenError


def _array_of(kind: type, value: Any) -> Signature:
    aval = value.aval
    return (kind, aval.dtype, aval.shape)


def _sort_of(value: Any, room: _Room) -> Signature:
    """The signature of a value of which the schema says the type alone."""
    kind = type(value)
    if kind in ARRAYS:
        return _array_of(kind, value)
    return kind if kind in _SCALARS else _inside(value, room, _sort_of)


def _value_of(value: Any, room: _Room) -> Signature:
    """The signature of a value that the schema compares with something."""
    kind = type(value)
    if kind not in _SCALARS:
        return _array_of(kind, value) if kind in ARRAYS else _inside(value, room, _value_of)
    if (kind is int and value.bit_length() > _WIDEST_INT) or (kind in (str, bytes) and len(value) > _LONGEST_TEXT):
        raise _UnseenError
    return (kind, value)


def _inside(value: Any, room: _Room, look: Look) -> Signature:
    """The signature of anything but plain scalars and the kinds of arrays that were met before."""
    kind = type(value)
    if value is None:
        return None
    if isinstance(value, jax.Array):
        ARRAYS.add(kind)
        return _array_of(kind, value)
    if kind is list or kind is tuple:
        room.enter(len(value))
        found: Signature = (kind, *[look(item, room) for item in value])
    elif kind is dict:
        room.enter(len(value))
        found = (kind, *[(_value_of(key, room), look(item, room)) for key, item in value.items()])
    elif is_struct(value) and not isinstance(value, type):
        plan = room.plan_of(kind)
        names = plan.names if plan else [n for n, s in kind.__nqx_fields__.items() if not s.is_derived]
        room.enter(len(names))
        if plan:
            found = plan.signature(value, room)
        else:
            found = (kind, *[_value_of(getattr(value, name), room) for name in names])
    elif isinstance(value, (np.ndarray, np.generic)):
        return (kind, value.dtype, value.shape)
    elif isinstance(value, (Path, np.dtype)):
        if look is _sort_of:
            return kind
        if len(str(value)) > _LONGEST_TEXT:
            raise _UnseenError
        return (kind, value)
    else:
        raise _UnseenError
    room.levels += 1
    return found


def _bounded(declaration: FieldDeclaration) -> Look:
    """For numbers with bounds alone: those within them are all alike."""
    orders = {"ge": operator.ge, "gt": operator.gt, "le": operator.le, "lt": operator.lt}
    tests = [
        (order, getattr(declaration, name)) for name, order in orders.items() if getattr(declaration, name) is not None
    ]

    def look(value: Any, room: _Room) -> Signature:
        if type(value) not in (int, float):
            return _value_of(value, room)
        for order, bound in tests:
            if not order(value, bound):
                raise _UnseenError
        return type(value)

    return look


class _Plan:
    """Which fields of a struct are looked at, and how: nodes first, then static fields, then opaque ones."""

    __slots__ = ("_get", "_picks", "names")

    def __init__(self, document: Document, declaration: StructDeclaration) -> None:
        kept = {name: d for name, d in declaration.fields.items() if d.derived is None}
        order = sorted(kept, key=lambda name: (kept[name].reset, ("node", "static", "opaque").index(kept[name].kind)))
        looks = [_look(document, kept[name], name in declaration.compared) for name in order]
        self._picks = [(place, look) for place, look in enumerate(looks) if look is not None]
        self.names = [order[place] for place, _ in self._picks]
        get: Any = operator.attrgetter(*self.names) if self.names else lambda _: ()
        self._get: Callable[[Any], tuple[Any, ...]] = (lambda value: (get(value),)) if len(self.names) == 1 else get

    def signature(self, value: Any, room: _Room) -> Signature:
        """Of an instance."""
        looks = zip(self._picks, self._get(value), strict=True)
        return (type(value), *[look(item, room) for (_, look), item in looks])

    def signature_of(self, cls: type, values: tuple[Any, ...], room: _Room) -> Signature:
        """The same from the values of all fields that are kept, in order."""
        return (cls, *[look(values[place], room) for place, look in self._picks])


def _look(document: Document, declaration: FieldDeclaration, compared: bool) -> Look | None:
    """How a field is looked at; None if nothing about it can be wrong."""
    if declaration.derived is not None:
        return None
    if compared:
        return _value_of
    declared = declaration.declared
    options = declared.options if isinstance(declared, Union) else (declared,)
    if declaration.type is None or (PyTree() in options and {*options} <= {PyTree(), Null()}):
        return None
    if declaration.kind == "static":  # static ints may be sizes
        return _value_of
    named = (declaration.multiple_of, declaration.pattern, declaration.choices)
    lengths = (declaration.min_length, declaration.max_length)
    bounds = (declaration.ge, declaration.gt, declaration.le, declaration.lt)
    by_value = any(
        isinstance(t, LiteralOf) or (isinstance(t, Named) and document.members_of(t.name)) for t in walk_type(declared)
    )
    if by_value or declaration.finite or any(each is not None for each in (*named, *lengths)):
        return _value_of
    return _bounded(declaration) if any(bound is not None for bound in bounds) else _sort_of


class InstanceCheck:
    """The check that every new instance of a schema-made class passes; called with the instance.

    Args:
        document: The schema.
        name: The struct.
    """

    __slots__ = ("_last", "_plan", "_plans", "_prove", "_sound", "document", "name")

    def __init__(self, document: Document, name: str) -> None:
        self.document = document
        self.name = name
        self._plan: _Plan | None = None
        self._plans: dict[type, _Plan | None] = {}
        self._prove: Callable[[Any], object] | None = None
        self._sound: set[Signature] = set()
        self._last: Signature = None

    def __call__(self, instance: Any) -> list[Diagnostic]:
        """Everything that is wrong with the instance."""
        if self._proves(instance):
            return []
        try:
            signature = self.plan.signature(instance, _Room(self._plan_of))
            if signature == self._last or signature in self._sound:
                self._last = signature
                return []
        except (_UnseenError, TypeError, AttributeError):  # TypeError: a dtype without a hash, of somebody else
            return self._conform(instance, see_value)
        apart = _Apart()
        if self._conform(instance, apart) or apart.asked:
            return self._conform(instance, see_value)
        if len(self._sound) >= _MOST_KEPT:
            self._sound = set()
        self._sound.add(signature)
        return []

    @property
    def proof(self) -> Proof | None:
        """The straight code that shows an instance to be sound, from its fields; it may leave the question open."""
        return proof_of_arguments(self.document, self.name, see_value)

    def sound(self, cls: type, values: tuple[Any, ...]) -> bool:
        """True if an instance with such values has been found sound before; else :meth:`__call__` has to decide.

        Args:
            cls: The class that the schema made.
            values: Of its node fields, static fields and opaque fields.
        """
        try:
            signature = self.plan.signature_of(cls, values, _Room(self._plan_of))
            return bool(signature == self._last) or signature in self._sound
        except (_UnseenError, TypeError, AttributeError):
            return False

    def sound_pair(self, cls: Any, pair: Pair) -> bool:
        """True if an instance with such a pair is known to be sound; else :meth:`__call__` has to decide.

        Args:
            cls: The class that the schema made.
            pair: What :class:`~neuralqx_struct.pytree.Layout` makes of an instance of it.
        """
        return self._shows(cls, pair) or self.sound(cls, (*pair[0], *cls.__nqx_layout__.held(pair)))

    def _shows(self, cls: Any, pair: Pair) -> bool:
        if self._prove is None:
            if "__nqx_document__" not in vars(cls):  # a subclass, whose pairs may have more in them
                return False
            self._prove = proof_of_pairs(self.document, self.name, cls.__nqx_layout__, see_value)
        try:
            return self._prove(pair) is not None
        except Exception:  # noqa: BLE001 - whatever odd values do in it, the walk will look at them
            return False

    def _proves(self, instance: Any) -> bool:
        """True if straight code shows the instance to be sound: one of the class itself, as others have other fields."""
        cls = type(instance)
        if vars(cls).get("__nqx_check__") is not self:
            return False
        values = vars(instance)
        try:
            pair = load_pair(instance) if is_frozen(instance) else cls.__nqx_layout__.pair(values, cls.__name__)
        except (KeyError, ValidationError):
            return False
        shown: bool = self._shows(cls, pair)
        return shown

    def _conform(self, instance: Any, read: Callable[[Any], Seen]) -> list[Diagnostic]:
        # Fields are all there (the constructor saw to that), but what is derived may still wait for concrete values.
        return conform(self.document, self.name, instance, read, closed=False)

    @property
    def plan(self) -> _Plan:
        """How instances are looked at; made when the first one is."""
        if self._plan is None:
            self._plan = _Plan(self.document, self.document.structs[self.name])
        return self._plan

    def _plan_of(self, cls: type) -> _Plan | None:
        """The plan of a struct inside, if the schema knows its class; None: all its values are looked at."""
        if cls not in self._plans:
            if len(self._plans) >= _MOST_KEPT:
                self._plans = {}
            check = cls.__dict__.get("__nqx_check__")
            self._plans[cls] = check.plan if isinstance(check, InstanceCheck) and self._knows(check.document) else None
        return self._plans[cls]

    def _knows(self, document: Document) -> bool:
        known = self.document.closure()
        return any(each is document for each in known) or full_fingerprint(document) in map(full_fingerprint, known)
