"""Checks of instances: each new instance of a schema-made class against its declaration.

The walk of the schema (``schema/conformance.py``) decides, on values that ``live_values.py`` reads. Its verdict on a valid instance is remembered
by the instance's *signature*: the types, dtypes and shapes of the values, and those plain values that the schema constrains. An
instance of a remembered signature is valid. If no list or dict in it can change, it gets a mark, by which it counts as one item of
the struct around it. Verdicts that depend on numbers inside arrays are not remembered.
"""

from __future__ import annotations

import ast
import enum
import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np

from neuralqx_struct.documents.instances import (
    JAX_ARRAYS,
    MARK,
    Pair,
    is_frozen,
    is_jax_array,
    put,
)
from neuralqx_struct.documents.live_values import (
    WithoutData,
    plain_scalar,
    see_value,
    values_inside,
)
from neuralqx_struct.documents.source import block, compiled
from neuralqx_struct.errors import Diagnostic, SchemaError
from neuralqx_struct.expressions.evaluation import evaluate_tree
from neuralqx_struct.expressions.functions import Items, is_a_struct, names_read
from neuralqx_struct.expressions.grammar import head_of, steps_of
from neuralqx_struct.fieldspec import Names, is_struct
from neuralqx_struct.schema.conformance import Seen, conform
from neuralqx_struct.schema.lock import full_fingerprint
from neuralqx_struct.schema.model import Document, FieldDeclaration, StructDeclaration
from neuralqx_struct.types import type_of_class, walk_type

# ---------------------------------------------------------------------------------------------------------------------
# Signatures. Each value in one comes after its type, so that 1, True and 1.0 differ.

_MOST_KEPT = 128
_MOST_PARTS = 512  # of a signature
_MOST_BYTES = 128  # of a number or text in it
_DEEPEST = 16
_SCALARS = frozenset({bool, int, float, complex, str, bytes, type(None)})

Signature = tuple[Any, ...]
#: Returns the part of a signature that a value gives, which is hashable, at a depth.
Look = Callable[..., Any]


class Mark:
    """Stands for a signature; instances with equal ones share it."""

    __slots__ = ("document",)

    def __init__(self, document: Document) -> None:
        self.document = document


#: The mark of a valid instance; False if it may change, as a list inside it may; None if it is not known to be valid.
Verdict = Mark | bool | None

_mark_of = operator.attrgetter(MARK)


class _NoSignatureError(Exception):
    """A value of an unknown type, or nested too deeply."""


# TypeError: a dtype without a hash.
_NO_SIGNATURE = (_NoSignatureError, AttributeError, TypeError, RecursionError)


def _parts(signature: Any) -> Iterator[Any]:
    if type(signature) is tuple:
        for part in signature:
            yield from _parts(part)
    else:
        yield signature


def _is_small(part: Any) -> bool:
    """True if a part of a signature may be remembered."""
    return isinstance(part, type) or sys.getsizeof(part) <= _MOST_BYTES


def _takes_all(declaration: FieldDeclaration) -> bool:
    """True if every value is valid."""
    solid = declaration.declared.solid
    return declaration.type is None or (solid != () and all(t.takes_all for t in solid))


def _depends_on_value(document: Document, declaration: FieldDeclaration) -> bool:
    """True if the schema constrains values of a field by more than their types and bounds."""
    lengths = (declaration.min_length, declaration.max_length)
    others = (declaration.multiple_of, declaration.pattern, declaration.choices)
    if any(each is not None for each in (*lengths, *others)) or declaration.finite:
        return True
    if declaration.kind == "static":  # static ints may be sizes
        return True
    inner = walk_type(declaration.declared)
    return any(part.picks(document) for part in inner)


def _look_at_type(value: Any, depth: int = 0, *, whole: bool = False) -> Any:
    """The part of a value: its type, dtype and shape; of single values also the value if ``whole``."""
    kind: Any = type(value)
    if kind in _SCALARS:
        return (kind, value) if whole else kind
    if kind is list or kind is tuple:
        return _look_at_items(kind, value, depth, whole)
    # Before JAX's isinstance, which is slow for others.
    if isinstance(value, np.ndarray):
        return kind, value.dtype, value.shape
    if isinstance(value, np.generic):
        return (kind, value.dtype, plain_scalar(value)) if whole else (kind, value.dtype)
    if is_jax_array(value):
        return kind, value.aval
    if depth > _DEEPEST:
        raise _NoSignatureError
    if kind is dict:
        keys = _look_at_items(kind, [*value], depth, whole)
        return keys, _look_at_items(kind, [*value.values()], depth, whole)
    check = getattr(kind, "__nqx_check__", None)
    if isinstance(check, InstanceCheck):
        return check.mark_or_signature(value, depth + 1)
    if is_struct(kind):  # of Python: nothing is known of the values that count in it
        held = [getattr(value, name) for name in kind.__nqx_layout__.places]
        return kind, *[_look_at_type(each, depth + 1, whole=True) for each in held]
    if isinstance(value, enum.Enum):
        return kind, value.name
    if type_of_class(kind) is not None:
        return (kind, value) if whole else kind
    raise _NoSignatureError


def _look_at_items(kind: type, items: Any, depth: int, whole: bool = False) -> Any:
    if items and hasattr(items[0], MARK):
        try:
            return kind, *map(_mark_of, items)
        except AttributeError:
            pass
    if depth > _DEEPEST:
        raise _NoSignatureError
    return kind, *[_look_at_type(item, depth + 1, whole=whole) for item in items]


_look_at_value = partial(_look_at_type, whole=True)
_ORDERS = {"ge": operator.ge, "gt": operator.gt, "le": operator.le, "lt": operator.lt}


def _look_of(document: Document, field: FieldDeclaration) -> Look:
    if _depends_on_value(document, field):
        return _look_at_value
    bounds = ((order, getattr(field, name)) for name, order in _ORDERS.items())
    tests = [(order, bound) for order, bound in bounds if bound is not None]
    if not tests:
        return _look_at_type

    def look_at_bounded(value: Any, depth: int = 0) -> Any:
        """All numbers within the bounds have one signature."""
        if type(value) in (int, float) and all(order(value, bound) for order, bound in tests):
            return type(value)
        return _look_at_value(value, depth)

    return look_at_bounded


def _paths_by_field(declaration: StructDeclaration) -> dict[str, dict[str, bool]]:
    """The paths that the constraints read, by their fields; True for those whose shapes count."""
    found: dict[str, dict[str, bool]] = {}
    for expression in declaration.conditions:
        measured, _ = names_read(expression.tree)
        for name in expression.names:
            paths = found.setdefault(head_of(name), {})
            paths[name] = paths.get(name, False) or name in measured
    return found


def _look_at_paths(paths: Mapping[str, bool]) -> Look:
    """Looks at a field, and at the values that some paths reach in it."""
    inside = [(ast.Name(name), head_of(name), measured) for name, measured in paths.items()]
    if not any(steps_of(name) or measured for name, measured in paths.items()):
        return _look_at_value

    def look(value: Any, depth: int = 0) -> Any:
        parts = [_look_at_value(value, depth)]
        for node, head, measured in inside:
            try:
                reached = evaluate_tree(node, {head: value})
            except SchemaError:
                raise _NoSignatureError from None
            held = reached.values if type(reached) is Items else [reached]
            if measured and any(
                map(is_a_struct, held)
            ):  # signatures leave out what takes any value
                raise _NoSignatureError
            if head != node.id:
                parts.append(_look_at_items(list, held, depth, whole=True))
        return tuple(parts)

    return look


class InstanceCheck:
    """The check that every new instance of a schema-made class passes; called with the instance.

    Args:
        document: The schema.
        name: The struct.
        see: Reads a live value.
        fields: The fields whose values :attr:`known` gets; by default those that the schema constrains in any way.
    """

    def __init__(
        self,
        document: Document,
        name: str,
        see: Callable[[Any], Seen] = see_value,
        fields: Names | None = None,
    ) -> None:
        self.document = document
        self.name = name
        self._see = see
        self._fields = fields
        self._any = Mark(document)
        self.last: tuple[Signature, Verdict] = ((), None)
        self._marks: dict[Signature, Verdict] = {}
        self._pickers: dict[type, Callable[..., tuple[Any, ...]]] = {}

    def __call__(self, instance: Any) -> list[Diagnostic]:
        """Returns everything that is wrong with an instance."""
        cls, values = type(instance), self._get(instance)
        mark = self.known(cls, *values)
        if mark is None:
            read = WithoutData(self._see)
            if self._walk(instance, read) or read.needed:
                return self._walk(instance, self._see)
            mark = self._remember(cls, values)
        if mark:
            put(instance, MARK, mark)
        return []

    @cached_property
    def known(self) -> Callable[..., Verdict]:
        """A function of a class and the values of :attr:`fields`, in order.

        It returns the mark of an instance if one like it was valid before; None if :meth:`__call__` has to decide.
        """
        return self._generated[1]

    def _found(self, signature: Signature) -> Verdict:
        mark = self._marks.get(signature)
        if mark is not None:
            self.last = signature, mark
        return mark

    def known_pair(self, cls: Any, pair: Pair) -> Verdict:
        """The same for an instance with such a pair."""
        pick = self._pickers.get(cls)
        if pick is None:
            pick = self._pickers[cls] = cls.__nqx_layout__.picker(self.fields)
        return self.known(cls, *pick(*pair))

    def mark_or_signature(self, value: Any, depth: int) -> Any:
        """The mark of an instance if one like it was valid before; else its signature."""
        mark = vars(value).get(MARK)
        if mark is not None:
            return mark
        signature = self._signature(depth, type(value), *self._get(value))
        mark = self._marks.get(signature)
        if mark and is_frozen(value):
            put(value, MARK, mark)
        return mark or (self._any, *signature)

    def _walk(self, instance: Any, read: Callable[[Any], Seen]) -> list[Diagnostic]:
        # The constructor has checked that all fields are there; derived ones may still wait for concrete values.
        document, name = self.document, self.name
        return conform(document, name, instance, read, closed=False, inside=values_inside)

    def _remember(self, cls: type, values: tuple[Any, ...]) -> Verdict:
        """Remember the signature of a valid instance; returns its mark."""
        try:
            signature = self._signature(0, cls, *values)
        except _NO_SIGNATURE:
            return False
        parts = [*_parts(signature)]
        if len(parts) > _MOST_PARTS or not all(map(_is_small, parts)):
            return False
        # Structs of another schema do not count as valid here: their signatures may leave out what this schema compares.
        if not all(self._knows(part.document) for part in parts if type(part) is Mark):
            return False
        if len(self._marks) >= _MOST_KEPT:
            self._marks = {}
        mark = False if list in parts or dict in parts else Mark(self.document)
        self._marks[signature] = mark
        return mark

    def _knows(self, document: Document) -> bool:
        known = self.document.closure()
        if any(each is document for each in known):
            return True
        return full_fingerprint(document) in map(full_fingerprint, known)

    @cached_property
    def _looks(self) -> dict[str, Look]:
        """How the signature looks at each field; fields without any constraint are left out."""
        declaration = self.document.structs[self.name]
        compared = _paths_by_field(declaration)
        looks: dict[str, Look] = {}
        for name, field in declaration.fields.items():
            if field.derived is not None:
                continue
            if name in compared:
                looks[name] = _look_at_paths(compared[name])
            elif not _takes_all(field):
                looks[name] = _look_of(self.document, field)
        return looks

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields whose values :attr:`known` gets."""
        return tuple(self._looks) if self._fields is None else self._fields

    def _get(self, instance: Any) -> tuple[Any, ...]:
        return tuple([getattr(instance, name) for name in self.fields])

    @property
    def _signature(self) -> Callable[..., Signature]:
        """A function of a depth, a class and the values of :attr:`fields`."""
        return self._generated[0]

    @cached_property
    def _generated(self) -> tuple[Callable[..., Signature], Callable[..., Verdict]]:
        """The functions :attr:`_signature` and :attr:`known`."""
        names = [f"v{place}" for place in range(len(self.fields))]
        parts = ["cls"]
        namespace: dict[str, Any] = {**_NAMESPACE, "check": self}
        for name, field in zip(names, self.fields, strict=True):
            look = self._looks.get(field)
            if look is None:
                continue
            namespace[f"look_{name}"] = look
            part = f"look_{name}({name}, depth)"
            if look is _look_at_type:
                part = (
                    f"k if k in scalars else look_items(k, {name}, depth) if k is list else {part}"
                )
            jax_array = f"(k, {name}.aval) if (k := kind({name})) in jax_arrays"
            numpy_array = f"(k, {name}.dtype, {name}.shape) if k is ndarray"
            parts.append(f"({jax_array} else {numpy_array} else {part})")
        arguments, made = ", ".join(["cls", *names]), f"({', '.join(parts)},)"
        heads = f"signature(depth, {arguments})", f"known({arguments}, depth=0)"
        bodies = [f"return {made}"], [*block("try", [f"found = {made}", *_KNOWN]), *_UNKNOWN]
        signature, known = (
            compiled(head, body, namespace, title=f"check of {self.name}")
            for head, body in zip(heads, bodies, strict=True)
        )
        return signature, known


_NAMESPACE = {
    "kind": type,
    "jax_arrays": JAX_ARRAYS,
    "ndarray": np.ndarray,
    "scalars": _SCALARS,
    "look_items": _look_at_items,
    "unknown": _NO_SIGNATURE,
}
_KNOWN = ["last, mark = check.last", "return mark if found == last else check._found(found)"]
_UNKNOWN = block("except unknown", ["return None"])
