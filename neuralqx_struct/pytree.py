"""Pytrees: how Structs are flattened and rebuilt under JAX.

Owns the fast path of Structs; classes that are not Structs are registered by ``pytree_types.py``. Everything runs at class
definition; what is left for each flatten is one attribute read, and for each unflatten one store.

The fast path: an instance keeps the pair ``(children, aux)`` in the attribute ``_nqx_pair`` from the moment it is frozen,
so flatten is ``operator.attrgetter`` (no Python frame), and unflatten stores the pair it is given and runs no hook:
JAX passes tracers, None, object(), shardings, whatever stands for a leaf. The fields become attributes when the first of
them is read (``Struct.__getattr__`` calls :meth:`Layout.reveal`).

The pair is an attribute like the fields, and not a slot beside them, because CPython 3.13 keeps attributes inside the
object only where a class adds no slot: reading a field then costs what it costs for any class, where it was three times
that. Storing into a slot would be quicker by a few hundredths of an unflatten. Attributes are set one by one, as asking
for the ``__dict__`` makes one.

``aux`` is a plain tuple, compared and hashed in C: first the exact keys of the static values, which tell 1 from True and
0.0 from -0.0 (and, standing first, keep values of different types from ever being compared), then the static values,
last references to the preserved opaque objects.

Example:
    >>> import jax
    >>> import neuralqx_struct as s
    >>> class Edge(s.Struct):
    ...     flux: float
    ...     source: int = s.field(static=True)
    >>> jax.tree.leaves(Edge(flux=1.5, source=0))
    [1.5]
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from jax.core import Tracer
from jax.tree_util import DictKey, GetAttrKey, SequenceKey, register_pytree_with_keys

from neuralqx_struct.errors import Diagnostic, ValidationError
from neuralqx_struct.fieldspec import FieldKind, FieldSpec, tagged
from neuralqx_struct.identity import EXACT_TYPES, OpaqueRef, static_key
from neuralqx_struct.paths import FieldName

__all__ = [
    "FieldKey",
    "Layout",
    "Pair",
    "holder_of",
    "is_frozen",
    "load_pair",
    "path_part",
    "peek",
    "put",
    "register_struct",
    "store_pair",
]

Pair = tuple[tuple[Any, ...], tuple[Any, ...]]


#: ``put(instance, name, value)`` sets an attribute of a frozen instance.
put: Callable[[Any, str, Any], None] = object.__setattr__
_get: Callable[[Any, str], Any] = object.__getattribute__


def store_pair(instance: Any, pair: Pair) -> None:
    """Store the pair, which freezes the instance."""
    put(instance, "_nqx_pair", pair)


def load_pair(instance: Any) -> Pair:
    """The stored pair.

    Raises:
        AttributeError: The instance is still being made.
    """
    pair: Pair = _get(instance, "_nqx_pair")
    return pair


def is_frozen(instance: Any) -> bool:
    """True once the pair is stored."""
    return "_nqx_pair" in instance.__dict__


def peek(instance: Any, name: str) -> Any:
    """A node or static field of a frozen instance, without making attributes of all the fields as reading it would."""
    children, aux = instance._nqx_pair  # noqa: SLF001 - the attribute exists for this module, as the places do
    place: int = type(instance).__nqx_layout__._places[name]  # noqa: SLF001
    return children[place] if place >= 0 else aux[-place]


class FieldKey(GetAttrKey):  # type: ignore[misc]  # JAX types its keys as Any
    """JAX's key of an attribute, which also knows the declaration of the field."""

    def __init__(self, spec: FieldSpec, holder: type | None = None) -> None:
        super().__init__(spec.name)
        self.spec = spec
        self.holder = holder


def path_part(key: Any) -> Hashable:
    """A key of JAX as a part of our paths: the name, dict key or position that it stands for."""
    if isinstance(key, FieldKey):
        return FieldName(key.name, key.spec, key.holder)
    if isinstance(key, GetAttrKey):
        return FieldName(key.name)
    if isinstance(key, (DictKey, SequenceKey)):
        plain: Hashable = key.key if isinstance(key, DictKey) else key.idx
        return plain
    other: Hashable = getattr(key, "key", str(key))
    return other


def _getter(names: tuple[str, ...]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Fetch some values of a mapping as a tuple, in C where itemgetter gives a tuple."""
    if len(names) > 1:
        return operator.itemgetter(*names)
    return lambda values: tuple([values[name] for name in names])


@dataclass(frozen=True, slots=True)
class Layout:
    """Which fields of a Struct class go where in the pair.

    Attributes:
        nodes: The children, in order.
        statics: The static fields that are not derived.
        opaques: Opaque fields that are preserved by identity.
    """

    nodes: tuple[str, ...]
    statics: tuple[str, ...]
    opaques: tuple[str, ...]
    _names: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _places: Mapping[str, int] = field(init=False, repr=False, compare=False)
    _get_nodes: Callable[[Mapping[str, Any]], tuple[Any, ...]] = field(init=False, repr=False, compare=False)
    _get_statics: Callable[[Mapping[str, Any]], tuple[Any, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_names", (*self.nodes, *self.statics, *self.opaques))
        # Of the children from zero up, of what is in aux behind the keys from minus one down.
        places = {name: place for place, name in enumerate(self.nodes)}
        places |= {name: -place for place, name in enumerate((*self.statics, *self.opaques), start=1)}
        object.__setattr__(self, "_places", places)
        object.__setattr__(self, "_get_nodes", _getter(self.nodes))
        object.__setattr__(self, "_get_statics", _getter(self.statics))

    @classmethod
    def of(cls, fields: Mapping[str, FieldSpec]) -> Layout:
        """The layout of a class with these fields; derived and reset fields are in none of the groups."""
        kept = [spec for spec in fields.values() if not spec.is_derived and not spec.reset]
        by_kind = {kind: tuple(spec.name for spec in kept if spec.kind is kind) for kind in FieldKind}
        return cls(by_kind[FieldKind.NODE], by_kind[FieldKind.STATIC], by_kind[FieldKind.OPAQUE])

    def pair(self, values: Mapping[str, Any], where: str) -> Pair:
        """The pair for these field values.

        Raises:
            ValidationError: A static value has no hash or holds an array; all such fields at once.
        """
        children = self._get_nodes(values)
        statics = self._get_statics(values)
        keys: tuple[Hashable, ...] = tuple(map(type, statics))
        if not EXACT_TYPES.issuperset(keys):
            statics, keys = zip(*self._exact(zip(self.statics, statics, strict=True), where), strict=True)
        if self.opaques:
            return children, (keys, *statics, *[OpaqueRef(values[name], name) for name in self.opaques])
        return children, (keys, *statics)

    def _exact(self, statics: Iterable[tuple[str, Any]], where: str) -> list[tuple[Any, Hashable]]:
        exact: list[tuple[Any, Hashable]] = []
        problems: list[Diagnostic] = []
        for name, value in statics:
            try:
                exact.append(static_key(value))
            except TypeError as error:
                problems.append(
                    Diagnostic(
                        "NQX110",
                        "error",
                        f"expected a hashable value without arrays for the static field {name!r}, got {error}",
                        path=f"{where}.{name}",
                        hint="make the field a node, or the argument of jit a static one"
                        if isinstance(value, Tracer)
                        else "use a tuple in place of a list, or make the field a node or opaque",
                    )
                )
        if problems:
            raise ValidationError(problems)
        return exact

    def changed(self, pair: Pair, changes: Mapping[str, Any], where: str) -> Pair:
        """The pair with other values for some nodes and static fields.

        Raises:
            ValidationError: As :meth:`pair`.
        """
        children, aux = pair
        nodes = [*children]
        keys: list[Any] = []
        held: list[Any] = []
        inexact: dict[str, Any] = {}
        for name, value in changes.items():
            place = self._places[name]
            if place >= 0:
                nodes[place] = value
                continue
            if not held:
                keys, held = [*aux[0]], [*aux]
            if place < -len(keys):
                held[-place] = OpaqueRef(value, name)
            elif (kind := type(value)) in EXACT_TYPES:
                keys[-1 - place], held[-place] = kind, value
            else:
                inexact[name] = value
        for name, (value, key) in zip(inexact, self._exact(inexact.items(), where), strict=True) if inexact else ():
            place = self._places[name]
            keys[-1 - place], held[-place] = key, value
        return tuple(nodes), (tuple(keys), *held[1:]) if held else aux

    def values(self, pair: Pair) -> Iterator[tuple[str, Any]]:
        """The fields that ``pair`` holds, by name; the inverse of :meth:`pair`."""
        children, (_, *rest) = pair
        for place in range(len(self.statics), len(rest)):
            rest[place] = rest[place].value
        return zip(self._names, (*children, *rest), strict=True)

    def held(self, pair: Pair) -> Iterable[Any]:
        """The values of the fields that are no children."""
        _, (_, *held) = pair
        return [*held[: len(self.statics)], *(ref.value for ref in held[len(self.statics) :])] if self.opaques else held

    def reveal(self, instance: Any, pair: Pair) -> None:
        """Make attributes of the fields that ``pair`` holds."""
        for name, value in self.values(pair):
            put(instance, name, value)


def holder_of(cls: type, nodes: Sequence[str]) -> type | None:
    """The class itself, if its instances do nothing but hold one value, as variables and parameters do."""
    return cls if tuple(nodes) == ("value",) else None


def register_struct(cls: type, fields: Mapping[str, FieldSpec], layout: Layout) -> None:
    """Register a Struct class with JAX.

    Args:
        cls: The class; its instances have the attribute ``_nqx_pair``. A method ``__nqx_tags__`` gives the tags that
            filters see on the nodes of an instance besides those that the class declares.
        fields: Its field declarations.
        layout: Where its fields go.
    """
    _share_keys(cls, ("_nqx_pair", *fields))
    flatten = operator.attrgetter("_nqx_pair")
    holder = holder_of(cls, layout.nodes)
    keys = tuple(FieldKey(fields[name], holder) for name in layout.nodes)

    tags_of: Callable[[Any], frozenset[str]] | None = getattr(cls, "__nqx_tags__", None)

    @cache
    def keys_with(tags: frozenset[str]) -> tuple[FieldKey, ...]:
        return tuple(FieldKey(tagged(fields[name], tags), holder) for name in layout.nodes)

    def flatten_with_keys(instance: Any) -> tuple[Iterable[tuple[Any, Any]], Any]:
        children, aux = instance._nqx_pair  # noqa: SLF001 - the attribute exists for this module
        own = keys if tags_of is None else keys_with(tags_of(instance))
        return tuple(zip(own, children, strict=True)), aux

    def unflatten(
        aux: Any, children: Any, new: Callable[[type], Any] = object.__new__, cls: type = cls, put: Any = put
    ) -> Any:
        instance = new(cls)
        put(instance, "_nqx_pair", (children, aux))
        return instance

    register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)


def _share_keys(cls: type, names: Iterable[str]) -> None:
    """Let CPython know the attributes of all instances in time.

    It learns them from the first few dozen instances, and never lets later ones keep others inside the object. Those few
    may well be results of ``tree.map`` that nobody reads.
    """
    if hasattr(cls, "__del__"):
        return
    with suppress(TypeError):  # an abstract class
        sample: Any = object.__new__(cls)
        for name in names:
            put(sample, name, None)
