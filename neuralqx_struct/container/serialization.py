"""Serialization: a container taken apart into its type, what it holds and what is needed beside that, and put together again.

Example:
    >>> deserialize(*serialize({"w": 1.0}))
    {'w': 1.0}
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import jax

from neuralqx_struct.container.completion import complete
from neuralqx_struct.container.derivation import derivation_of, pairs_of
from neuralqx_struct.container.walks import open_level
from neuralqx_struct.fieldspec import FieldKind, FieldSpec, is_struct
from neuralqx_struct.pytree_types import pytree_spec

__all__ = ["deserialize", "serialize"]

Items = list[tuple[Hashable, Any]]


def serialize(obj: Any) -> tuple[type, Items, Any]:
    """Take one level of a container apart, as it is to be saved.

    Args:
        obj: A container.

    Returns:
        Its type; what it holds, as pairs of key and container, to be serialized further; and what is needed beside
        that: the kept or static fields by name, the ``aux`` of a registered type, or None. For types that a library
        registered with JAX it is JAX's own record of the structure.

    Raises:
        TypeError: ``obj`` is a leaf.

    Example:
        >>> serialize({"w": 1.0})
        (<class 'dict'>, [('w', 1.0)], None)
    """
    cls = type(obj)
    opened = open_level(obj)
    if opened is None or obj is None:
        base = next((base.__name__ for base in cls.__mro__ if derivation_of(base) is not None), None)
        why = "" if base is None else f"\n  a subclass of {base} is a class of its own: decorate it with derive() too"
        raise TypeError(f"serialize(): expected a container, got a {cls.__name__}, which is a leaf{why}")
    if is_struct(cls):
        saved = {name: spec for name, spec in _specs(cls).items() if spec.should_serialize}
        nodes: Items = [(name, getattr(obj, name)) for name, spec in saved.items() if spec.kind is FieldKind.NODE]
        return cls, nodes, {name: getattr(obj, name) for name, spec in saved.items() if spec.kind is not FieldKind.NODE}
    derivation = derivation_of(cls)
    if derivation is not None:
        return (cls, *derivation.parts(obj, opened.items))
    if cls in _BUILTIN:
        return cls, opened.items, None
    spec = pytree_spec(cls)
    if spec is not None:
        return cls, opened.items, spec.flatten(obj)[1]
    return cls, opened.items, jax.tree_util.tree_structure(obj, is_leaf=lambda value: value is not obj)


def deserialize(cls: type, items: Iterable[tuple[Hashable, Any]], metadata: Any) -> Any:
    """The inverse of :func:`serialize`.

    Fields that a Struct or a derived class has gained since get their default; fields that it has lost are an error.
    Values come back with the type they had when they were serialized, whatever the field has become since.

    Args:
        cls: The type.
        items: Pairs of key and container.
        metadata: What :func:`serialize` gave beside them.

    Raises:
        SerializationError: The fields are not those of ``cls``; with every one that is not.
        TypeError: ``cls`` is no type of container.

    Example:
        >>> deserialize(*serialize((1, 2)))
        (1, 2)
    """
    pairs = pairs_of(items, cls)
    if (is_struct(cls) or getattr(derivation_of(cls), "hooks", ()) is None) and not isinstance(metadata, Mapping):
        raise TypeError(
            f"deserialize(): expected what {cls.__name__} keeps by name as metadata, got a {type(metadata).__name__}\n"
            "  give the three values that serialize() gave, {} where nothing was kept"
        )
    if is_struct(cls):
        specs = {name: spec for name, spec in _specs(cls).items() if not spec.is_derived and not spec.reset}
        stored = {**dict(pairs), **metadata}
        values = complete(
            cls,
            stored,
            [name for name, spec in specs.items() if spec.init or spec.should_serialize],
            lambda name: specs[name].has_default,
            lambda name: specs[name].make_default(),
        )
        struct: Any = cls
        return struct.__nqx_restore__(values)
    derivation = derivation_of(cls)
    if derivation is not None:
        return derivation.whole(pairs, metadata)
    if cls in _BUILTIN:
        return _BUILTIN[cls](pairs)
    spec = pytree_spec(cls)
    if spec is not None:
        return spec.unflatten(metadata, [value for _, value in pairs])
    if isinstance(metadata, jax.tree_util.PyTreeDef):
        return metadata.unflatten([value for _, value in pairs])
    raise TypeError(f"deserialize(): expected a type of container and its metadata, got {cls!r} and {metadata!r}")


_BUILTIN: Mapping[type, Callable[[Items], Any]] = {
    dict: dict,
    list: lambda pairs: [value for _, value in pairs],
    tuple: lambda pairs: tuple(value for _, value in pairs),
}


def _specs(cls: Any) -> Mapping[str, FieldSpec]:
    specs: Mapping[str, FieldSpec] = cls.__nqx_fields__
    return specs
