"""Pytrees: how JAX flattens and rebuilds Structs.

Other classes are registered by ``registration.py``. Everything is prepared at class definition: a flatten is one attribute
read, an unflatten one store.

An instance keeps the pair ``(children, aux)`` in the attribute ``_nqx_pair`` from the moment it is frozen, so flatten is
``operator.attrgetter`` (no Python frame), and unflatten stores the pair that it is given and runs no hook: JAX passes
tracers, None, object(), shardings and the like in place of leaves. The fields become attributes when the first of them is
read (``Struct.__getattr__`` calls :meth:`Layout.reveal`).

The pair is an attribute like the fields, and not a slot, because CPython 3.13 keeps attributes inside the object only for
classes without slots; otherwise reading a field costs three times as much. Storing into a slot would save a few hundredths
of an unflatten. Attributes are set one by one, because asking for the ``__dict__`` makes one.

``aux`` is a plain tuple, compared and hashed in C: first the exact keys of the static values, which distinguish 1 from True
and 0.0 from -0.0 (values of different types are never compared, because their keys differ), then the static values, last
references to the preserved opaque objects.

Example:
    >>> import jax
    >>> pairs, _ = jax.tree_util.tree_flatten_with_path(PathTree({("net", "w"): 1.5}))
    >>> jax.tree_util.keystr(pairs[0][0]), path_parts(pairs[0][0])
    ("['net']['w']", ('net', 'w'))
    >>> import neuralqx_struct as s
    >>> class Edge(s.Struct):
    ...     flux: float
    ...     source: int = s.field(static=True)
    >>> jax.tree.leaves(Edge(flux=1.5, source=0))
    [1.5]
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any

from jax.core import Tracer
from jax.tree_util import DictKey, GetAttrKey, SequenceKey, register_pytree_with_keys

from neuralqx_struct.documents.instances import MARK, Pair, put
from neuralqx_struct.errors import Diagnostic, ValidationError
from neuralqx_struct.fieldspec import FieldKind, FieldSpec, Hook, Names, Specs, Values, tagged
from neuralqx_struct.paths import FieldName, Path, PathTree
from neuralqx_struct.struct.equality import EXACT_TYPES, OpaqueRef, static_key

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


def peek(instance: Any, name: str) -> Any:
    """A node or static field of a frozen instance; reading it would make attributes of all fields."""
    children, aux = instance._nqx_pair  # noqa: SLF001 - the attribute exists for this module, as the places do
    place: int = type(instance).__nqx_layout__.places[name]
    return children[place] if place >= 0 else aux[-place]


class FieldKey(GetAttrKey):  # type: ignore[misc]  # JAX types its keys as Any
    """JAX's key of an attribute, with the declaration of the field."""

    def __init__(self, spec: FieldSpec, holder: type | None = None) -> None:
        super().__init__(spec.name)
        self.spec = spec
        self.holder = holder


def path_part(key: Any) -> Hashable:
    """The name, dict key or position of a key of JAX, as a part of our paths."""
    if isinstance(key, FieldKey):
        return FieldName(key.name, key.spec, key.holder)
    if isinstance(key, GetAttrKey):
        return FieldName(key.name)
    if isinstance(key, (DictKey, SequenceKey)):
        plain: Hashable = key.key if isinstance(key, DictKey) else key.idx
        return plain
    other: Hashable = getattr(key, "key", str(key))
    return other


def _getter(names: Names) -> Callable[[Values], tuple[Any, ...]]:
    """A function that fetches some values of a mapping as a tuple, in C for two or more."""
    if len(names) > 1:
        return operator.itemgetter(*names)
    return lambda values: tuple([values[name] for name in names])


class Layout:
    """The places of the fields of a Struct class in the pair.

    Args:
        nodes: The children, in order.
        statics: The static fields that are not derived.
        opaques: Opaque fields that are preserved by identity.

    Attributes:
        places: The place of each field: children count from zero up, the values in ``aux`` from minus one down.
    """

    __slots__ = ("_get_nodes", "_get_statics", "nodes", "opaques", "places", "statics")

    def __init__(self, nodes: Names, statics: Names, opaques: Names = ()) -> None:
        self.nodes = nodes
        self.statics = statics
        self.opaques = opaques
        self.places = {name: place for place, name in enumerate(nodes)}
        for place, name in enumerate((*statics, *opaques), start=1):
            self.places[name] = -place
        self._get_nodes = _getter(nodes)
        self._get_statics = _getter(statics)

    @classmethod
    def of(cls, fields: Specs) -> Layout:
        """The layout of a class with these fields; derived and reset fields have no place."""
        groups: dict[FieldKind, list[str]] = {kind: [] for kind in FieldKind}
        for spec in fields.values():
            if not spec.is_derived and not spec.reset:
                groups[spec.kind].append(spec.name)
        return cls(*map(tuple, groups.values()))

    def pair(self, values: Values, where: str) -> Pair:
        """The pair for these field values.

        Raises:
            ValidationError: A static value has no hash or holds an array; all such fields at once.
        """
        children = self._get_nodes(values)
        statics = self._get_statics(values)
        keys: tuple[Hashable, ...] = tuple(map(type, statics))
        if not EXACT_TYPES.issuperset(keys):
            exact = self._exact(zip(self.statics, statics, strict=True), where)
            statics, keys = zip(*exact, strict=True)
        if self.opaques:
            refs = [OpaqueRef(values[name], name) for name in self.opaques]
            return children, (keys, *statics, *refs)
        return children, (keys, *statics)

    def _exact(self, statics: Iterable[tuple[str, Any]], where: str) -> list[tuple[Any, Hashable]]:
        exact: list[tuple[Any, Hashable]] = []
        problems: list[Diagnostic] = []
        for name, value in statics:
            try:
                exact.append(static_key(value))
            except TypeError as error:
                message = f"expected a hashable value without arrays for the static field {name!r}, got {error}"
                hint = "use a tuple in place of a list, or make the field a node or opaque"
                if isinstance(value, Tracer):
                    hint = "make the field a node, or the argument of jit a static one"
                path = f"{where}.{name}"
                problems.append(Diagnostic("NQX110", "error", message, path=path, hint=hint))
        if problems:
            raise ValidationError(problems)
        return exact

    def changed(self, pair: Pair, changes: Values, where: str) -> Pair:
        """The pair with other values for some fields.

        Raises:
            ValidationError: As :meth:`pair`.
        """
        children, aux = pair
        nodes = [*children]
        keys: list[Any] = []
        held: list[Any] = []
        inexact: dict[str, Any] = {}
        for name, value in changes.items():
            place = self.places[name]
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
        if inexact:
            exact = self._exact(inexact.items(), where)
            for name, (value, key) in zip(inexact, exact, strict=True):
                place = self.places[name]
                keys[-1 - place], held[-place] = key, value
        if held:
            aux = (tuple(keys), *held[1:])
        return tuple(nodes), aux

    def values(self, pair: Pair) -> Iterator[tuple[str, Any]]:
        """The fields that ``pair`` holds, by name; the inverse of :meth:`pair`."""
        return zip(self.places, (*pair[0], *self.held(pair)), strict=True)

    def held(self, pair: Pair) -> list[Any]:
        """The values of the fields that are no children."""
        _, (_, *held) = pair
        for place in range(len(self.statics), len(held)):
            held[place] = held[place].value
        return held

    def picker(self, names: Iterable[str]) -> Hook:
        """A function of a pair, ``(children, aux)``, that returns the values of some fields."""
        parts: list[str] = []
        for name in names:
            place = self.places[name]
            part = f"children[{place}]" if place >= 0 else f"aux[{-place}]"
            parts.append(f"{part}.value, " if name in self.opaques else f"{part}, ")
        made: Hook = eval(f"lambda children, aux: ({''.join(parts)})")  # noqa: S307 - numbers only
        return made

    def reveal(self, instance: Any, pair: Pair) -> None:
        """Make attributes of the fields that ``pair`` holds; values that a caller planted stay."""
        held = vars(instance)
        for name, value in self.values(pair):
            if name not in held:
                put(instance, name, value)


def holder_of(cls: type, nodes: Sequence[str]) -> type | None:
    """The class itself if its instances only wrap one value, as variables and parameters do."""
    return cls if tuple(nodes) == ("value",) else None


def register_struct(cls: type, fields: Specs, layout: Layout) -> None:
    """Register a Struct class with JAX.

    Args:
        cls: The class; its instances have the attribute ``_nqx_pair``. A method ``__nqx_tags__`` returns the tags that
            filters see on the nodes of an instance besides those that the class declares.
        fields: Its field declarations.
        layout: The places of its fields.
    """
    known: Any = cls
    extra = () if known.__nqx_check__ is None else (MARK,)
    _share_keys(cls, ("_nqx_pair", *fields, *extra))
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
        aux: Any,
        children: Any,
        new: Callable[[type], Any] = object.__new__,
        cls: type = cls,
        put: Any = put,
    ) -> Any:
        instance = new(cls)
        put(instance, "_nqx_pair", (children, aux))
        return instance

    register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)


def _share_keys(cls: type, names: Iterable[str]) -> None:
    """Make one instance with all attributes, so that CPython stores those of later ones inside the objects.

    CPython learns the attributes from the first few dozen instances, and those may be results of ``tree.map`` that have
    only the pair. Elsewhere this has no effect.
    """
    if hasattr(cls, "__del__"):
        return
    with suppress(TypeError):  # an abstract class
        sample: Any = object.__new__(cls)
        for name in names:
            put(sample, name, None)


# ---------------------------------------------------------------------------------------------------------------------
# Trees of leaves by path: one flat node however deep the paths are, because JAX visits and sorts every level of nested
# dicts whenever it flattens them.


class PathKey(DictKey):  # type: ignore[misc]  # JAX types its keys as Any
    """JAX's key of a leaf in a :class:`~neuralqx_struct.paths.PathTree`: printed as the keys of nested dicts.

    Tools that read one name from a key get the names joined by slashes.
    """

    def __init__(self, parts: Path) -> None:
        name = "/".join(map(str, parts))
        if "%" in name or name.count("/") >= len(parts):
            name = "/".join([str(part).replace("%", "%25").replace("/", "%2F") for part in parts])
        super().__init__(name)
        self.parts = parts

    def __str__(self) -> str:
        return "".join([f"[{part!r}]" for part in self.parts])


def path_parts(keys: Iterable[Any]) -> Path:
    """Returns keys of JAX as one of our paths."""
    parts: list[Hashable] = []
    for key in keys:
        if isinstance(key, PathKey):
            parts += key.parts
        else:
            parts.append(path_part(key))
    return tuple(parts)


@lru_cache(maxsize=16)
def _keys(paths: tuple[Names, ...]) -> tuple[PathKey, ...]:
    return tuple(map(PathKey, PathTree.of(paths, paths).places()))


def _flatten_with_keys(tree: PathTree) -> tuple[Iterable[tuple[Any, Any]], Any]:
    leaves, paths = tree.pair
    return tuple(zip(_keys(paths), leaves, strict=True)), paths


register_pytree_with_keys(PathTree, _flatten_with_keys, PathTree.of, operator.attrgetter("pair"))
