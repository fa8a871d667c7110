"""Checks of instances: each new instance of a schema-made class against its declaration.

The walk of the schema (``schema/conformance.py``) decides, and its verdict on a valid instance is remembered by the
instance's *signature*: the types, dtypes and shapes of the values, and those plain values that the schema constrains. An instance of a remembered
signature is valid. If its values cannot change, it gets a mark, by which it counts as one item of the struct around it.
Verdicts that depend on numbers inside arrays are not remembered.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from neuralqx_struct.classes.live_values import WithoutData, see_value
from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.fieldspec import is_struct
from neuralqx_struct.schema.conformance import Seen, conform
from neuralqx_struct.schema.lock import full_fingerprint
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.struct.equality import is_jax_array
from neuralqx_struct.struct.pytree import MARK, Pair, is_frozen, put
from neuralqx_struct.types.records import walk_type

# ---------------------------------------------------------------------------------------------------------------------
# Signatures. Each value in one comes after its type, so that 1, True and 1.0 differ.

_MOST_KEPT, _MOST_PARTS, _LONGEST_TEXT, _WIDEST_INT, _DEEPEST = 128, 512, 64, 256, 16
_SCALARS = frozenset({bool, int, float, complex, str, bytes, type(None)})
_CHANGEABLE = (list, dict, np.ndarray)

Signature = tuple[Any, ...]
#: The part of a signature that a value gives; hashable.
Part = Any
#: False for a valid instance that may change, as a list inside it may; else an object that stands for its signature.
Mark = object
#: Returns the signature of a value, given also its depth.
Look = Callable[..., Any]

_mark_of = operator.attrgetter(MARK)


class _NoSignatureError(Exception):
    """A value of an unknown type, or nested too deeply."""


_NO_SIGNATURE = (_NoSignatureError, AttributeError, TypeError, RecursionError)


def _parts(signature: Any) -> Iterator[Any]:
    if type(signature) in (tuple, list):
        for part in signature:
            yield from _parts(part)
    else:
        yield signature


def _is_small(part: Any) -> bool:
    """True if a part of a signature is short enough to be remembered."""
    if type(part) is int:
        return part.bit_length() <= _WIDEST_INT
    return not isinstance(part, (str, bytes, Path)) or len(str(part)) <= _LONGEST_TEXT


def _is_changeable(part: Any) -> bool:
    return isinstance(part, type) and issubclass(part, _CHANGEABLE)


def _takes_all(declaration: FieldDeclaration) -> bool:
    """True if every value is valid."""
    solid = declaration.declared.solid
    return declaration.type is None or (solid != () and all(t.record.takes_all for t in solid))


def _depends_on_value(document: Document, declaration: FieldDeclaration) -> bool:
    """True if the schema constrains values of a field by more than their types and bounds."""
    lengths = (declaration.min_length, declaration.max_length)
    others = (declaration.multiple_of, declaration.pattern, declaration.choices)
    if any(each is not None for each in (*lengths, *others)) or declaration.finite:
        return True
    if declaration.kind == "static":  # static ints may be sizes
        return True
    inner = walk_type(declaration.declared)
    return any(part.record.picks(part, document) for part in inner)


_ORDERS = {"ge": operator.ge, "gt": operator.gt, "le": operator.le, "lt": operator.lt}


def _tests_of(declaration: FieldDeclaration) -> list[tuple[Callable[[Any, Any], bool], Any]]:
    """The bounds of a field as functions of a value and a bound."""
    bounds = ((order, getattr(declaration, name)) for name, order in _ORDERS.items())
    return [(order, bound) for order, bound in bounds if bound is not None]


class InstanceCheck:
    """The check that every new instance of a schema-made class passes; called with the instance.

    Args:
        document: The schema.
        name: The struct.
    """

    def __init__(self, document: Document, name: str) -> None:
        self.document = document
        self.name = name
        self._last: tuple[Signature, Mark] = ((), None)
        self._marks: dict[Signature, Mark] = {}
        self._inner: dict[type, InstanceCheck | None] = {}
        self._pickers: dict[type, Callable[..., tuple[Any, ...]]] = {}
        self._quick: Callable[..., Signature] | None = None

    def __call__(self, instance: Any) -> list[Diagnostic]:
        """Returns everything that is wrong with an instance."""
        cls, values = type(instance), self._get(instance)
        mark = self.known(cls, *values)
        if mark is None:
            read = WithoutData()
            if self._walk(instance, read) or read.needed:
                return self._walk(instance, see_value)
            mark = self._remember(cls, values)
        if mark:
            put(instance, MARK, mark)
        return []

    def known(self, cls: type, *values: Any) -> Mark:
        """The mark of an instance if one like it was valid before; None if :meth:`__call__` has to decide.

        Args:
            cls: The class of the instance.
            *values: Of :attr:`fields`, in order.
        """
        last, mark = self._last
        try:
            signature = self._quick(cls, *values)  # type: ignore[misc]
            if signature == last:
                return mark
        except Exception:  # noqa: BLE001 - other values than those that the quick function is made for
            try:
                signature = self._signature(cls, values)
            except _NO_SIGNATURE:
                return None
        try:
            mark = self._marks.get(signature)
        except TypeError:  # a dtype without a hash
            return None
        if mark is not None:
            self._last = signature, mark
        return mark

    def known_pair(self, cls: Any, pair: Pair) -> Mark:
        """The same for an instance with such a pair."""
        pick = self._pickers.get(cls)
        if pick is None:
            pick = self._pickers[cls] = cls.__nqx_layout__.picker(self.fields)
        return self.known(cls, *pick(*pair))

    def _walk(self, instance: Any, read: Callable[[Any], Seen]) -> list[Diagnostic]:
        # The constructor has checked that all fields are there; derived ones may still wait for concrete values.
        return conform(self.document, self.name, instance, read, closed=False)

    def _remember(self, cls: type, values: tuple[Any, ...]) -> Mark:
        """Remember the signatures of a valid instance; returns its mark."""
        try:
            signatures = [self._signature(cls, values)]
            parts = [*_parts(signatures)]
            if len(parts) > _MOST_PARTS or not all(map(_is_small, parts)):
                return False
            if self._quick is None:
                self._quick = self._quick_signature(values)
            if all(map(self._is_trusted, values)):
                with suppress(Exception):  # a struct inside has no mark, as it holds a numpy array
                    signatures.append(self._quick(cls, *values))
            if len(self._marks) >= _MOST_KEPT:
                self._marks = {}
            mark = False if any(map(_is_changeable, parts)) else object()
            self._marks.update(dict.fromkeys(signatures, mark))
        except _NO_SIGNATURE:
            return False
        return mark

    def _is_trusted(self, value: Any) -> bool:
        """False if marks inside a value could be those of another schema."""
        items = value if type(value) in (list, tuple) else (value,)
        structs = (type(item) for item in items if is_struct(item))
        return all(self._check_of(cls) is not None for cls in structs)

    # --- signatures ------------------------------------------------------------------------------------------------

    @cached_property
    def _looks(self) -> dict[str, Look]:
        """How the signature looks at each field; fields without any constraint are left out."""
        declaration = self.document.structs[self.name]
        looks: dict[str, Look] = {}
        for name, field in declaration.fields.items():
            if field.derived is not None:
                continue
            if name in declaration.compared:
                looks[name] = self._look_at_value
            elif not _takes_all(field):
                looks[name] = self._look_of(field)
        return looks

    def _look_of(self, field: FieldDeclaration) -> Look:
        if _depends_on_value(self.document, field):
            return self._look_at_value
        tests = _tests_of(field)
        if not tests:
            return self._look_at_type

        def look_at_bounded(value: Any, depth: int = 0) -> Part:
            """All numbers within the bounds have one signature."""
            if type(value) in (int, float) and all(order(value, bound) for order, bound in tests):
                return type(value)
            return self._look_at_value(value, depth)

        return look_at_bounded

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that the schema constrains in any way."""
        return tuple(self._looks)

    def _get(self, instance: Any) -> tuple[Any, ...]:
        return tuple([getattr(instance, name) for name in self._looks])

    def _signature(self, cls: type, values: tuple[Any, ...], depth: int = 0) -> Signature:
        looks = zip(self._looks.values(), values, strict=True)
        return (cls, *[look(value, depth) for look, value in looks])

    def _quick_signature(self, values: tuple[Any, ...]) -> Callable[..., Signature]:
        """A function of a class and the values of all fields, made for values like the given ones.

        It fails for others. Where :meth:`_signature` looks into structs, it takes their marks.
        """
        declared = self.document.structs[self.name].fields
        arguments, parts = ["cls"], ["cls"]
        namespace: dict[str, Any] = {
            "kind": type,
            "scalars": _SCALARS,
            "map": map,
            "get": _mark_of,
        }
        for place, (name, value) in enumerate(zip(self._looks, values, strict=True)):
            v, look = f"v{place}", f"look{place}"
            arguments.append(v)
            namespace[look] = self._looks[name]
            is_only_option = len(declared[name].declared.branches) == 1
            if is_jax_array(value) and is_only_option:
                parts.append(f"kind({v}), {v}.aval")
            elif is_struct(value) and is_only_option:
                parts.append(f"{v}.{MARK}")
            elif type(value) is list and value and is_struct(value[0]):
                parts.append(f"kind({v}), *map(get, {v})")
            elif self._looks[name] == self._look_at_value:
                parts.append(f"kind({v}), ({v} if kind({v}) in scalars else {look}({v}))")
            elif self._looks[name] == self._look_at_type:
                parts.append(f"(kind({v}) if kind({v}) in scalars else {look}({v}))")
            else:
                parts.append(f"{look}({v})")
        source = f"lambda {', '.join(arguments)}: ({', '.join(parts)},)"
        made: Callable[..., Signature] = eval(source, namespace)  # noqa: S307 - only numbered names
        return made

    def _look_at_type(self, value: Any, depth: int = 0) -> Part:
        kind = type(value)
        return kind if kind in _SCALARS else self._look_inside(value, self._look_at_type, depth)

    def _look_at_value(self, value: Any, depth: int = 0) -> Part:
        kind = type(value)
        if kind in _SCALARS:
            return kind, value
        return self._look_inside(value, self._look_at_value, depth)

    def _look_inside(self, value: Any, look: Look, depth: int) -> Part:
        """The signature of anything but plain scalars."""
        kind = type(value)
        if kind is np.ndarray:  # before JAX's isinstance, which is slow for other arrays
            return kind, value.dtype, value.shape
        if is_jax_array(value):
            return kind, value.aval
        if depth > _DEEPEST:
            raise _NoSignatureError
        if kind is list or kind is tuple:
            return kind, *[look(item, depth + 1) for item in value]
        if kind is dict:
            items = [(look(key, depth), look(item, depth + 1)) for key, item in value.items()]
            return kind, *items
        if isinstance(value, (np.ndarray, np.generic)):
            return kind, value.dtype, value.shape
        if isinstance(value, (Path, np.dtype)):
            return kind if look == self._look_at_type else (kind, value)
        if is_struct(kind):
            return self._look_at_struct(value, depth + 1)
        raise _NoSignatureError

    def _look_at_struct(self, value: Any, depth: int) -> Part:
        """The mark of a valid struct that cannot change; else its signature."""
        cls: Any = type(value)
        inner = self._check_of(cls)
        if inner is None:
            names = [name for name, spec in cls.__nqx_fields__.items() if not spec.is_derived]
            return cls, *[self._look_at_value(getattr(value, name), depth) for name in names]
        mark: Mark = vars(value).get(MARK)
        return inner.mark_or_signature(value, depth) if mark is None else mark

    def mark_or_signature(self, value: Any, depth: int) -> Part:
        """The mark of an instance without one, if one like it was valid before; else its signature."""
        signature = self._signature(type(value), self._get(value), depth)
        mark = self._marks.get(signature)
        if mark and is_frozen(value):
            put(value, MARK, mark)
        return mark or signature

    def _check_of(self, cls: type) -> InstanceCheck | None:
        """The check of a struct inside, if this schema declares its class; else None."""
        if cls not in self._inner:
            if len(self._inner) >= _MOST_KEPT:
                self._inner = {}
            check = cls.__dict__.get("__nqx_check__")
            knows = isinstance(check, InstanceCheck) and self._knows(check.document)
            self._inner[cls] = check if knows else None
        return self._inner[cls]

    def _knows(self, document: Document) -> bool:
        known = self.document.closure()
        if any(each is document for each in known):
            return True
        return full_fingerprint(document) in map(full_fingerprint, known)
