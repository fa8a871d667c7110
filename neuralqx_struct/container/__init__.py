"""Containers: walks, saved forms and templates of anything that holds arrays, one level or all levels at a time.

A container is any pytree: tuples, lists, dicts of any key, Structs, classes of ``register_pytree_type``, types that a
library registered with JAX, and plain classes that :func:`derive` declares. Everything else is a leaf. On Structs, the
containers are the node fields and the kept attributes are the static fields. A derived class is saved in bundles with the
fields that it declares.

Example:
    >>> @derive(containers=["mean"], keep=["name"])
    ... class Estimate:
    ...     def __init__(self, mean=0.0, name="energy"):
    ...         self.mean, self.name, self.cache = mean, name, {}
    >>> doubled, leaves = traverse(Estimate(1.5), 0, lambda x, n: (2 * x, n + 1))
    >>> doubled.mean, doubled.name, leaves
    (3.0, 'energy', 1)

:func:`serialize` turns a container into its type, its contents and its metadata; :func:`deserialize` is the inverse.

    >>> deserialize(*serialize({"w": 1.0}))
    {'w': 1.0}
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import jax

from neuralqx_struct.container.derivation import (
    Items,
    complete,
    derivation_of,
    derive,
    pairs_of,
)
from neuralqx_struct.container.walks import (
    compatible,
    open_level,
    reduce,
    reduce_deep,
    register_lazy,
    to_container,
    to_template,
    traverse,
    traverse_deep,
)
from neuralqx_struct.fieldspec import FieldKind, Specs, is_struct
from neuralqx_struct.struct.registration import pytree_spec

__all__ = [
    "compatible",
    "derive",
    "deserialize",
    "reduce",
    "reduce_deep",
    "register_lazy",
    "serialize",
    "to_container",
    "to_template",
    "traverse",
    "traverse_deep",
]


def serialize(obj: Any) -> tuple[type, Items, Any]:
    """One level of a container in its saved form.

    Args:
        obj: A container.

    Returns:
        Its type; its contents, as pairs of key and container, to be serialized further; and its metadata: the kept or
        static fields by name, the ``aux`` of a registered type, or None. For types that a library registered with JAX it
        is JAX's own record of the structure.

    Raises:
        TypeError: ``obj`` is a leaf.

    Example:
        >>> serialize({"w": 1.0})
        (<class 'dict'>, [('w', 1.0)], None)
    """
    cls = type(obj)
    level = open_level(obj)
    if level is None or obj is None:
        message = f"serialize(): expected a container, got a {cls.__name__}, which is a leaf"
        for base in cls.__mro__:
            if derivation_of(base) is not None:
                message += f"\n  a subclass of {base.__name__} is a class of its own: decorate it with derive() too"
                break
        raise TypeError(message)
    if is_struct(cls):
        nodes: Items = []
        others: dict[str, Any] = {}
        specs: Specs = obj.__nqx_fields__
        for name, spec in specs.items():
            if spec.should_serialize and spec.kind is FieldKind.NODE:
                nodes.append((name, getattr(obj, name)))
            elif spec.should_serialize:
                others[name] = getattr(obj, name)
        return cls, nodes, others
    derivation = derivation_of(cls)
    if derivation is not None:
        return (cls, *derivation.parts(obj, level.items))
    if cls in _BUILTIN:
        return cls, level.items, None
    registered = pytree_spec(cls)
    if registered is not None:
        return cls, level.items, registered.flatten(obj)[1]
    structure = jax.tree_util.tree_structure(obj, is_leaf=lambda value: value is not obj)
    return cls, level.items, structure


def deserialize(cls: type, items: Iterable[tuple[Hashable, Any]], metadata: Any) -> Any:
    """Builds a container; the inverse of :func:`serialize`.

    Fields that a Struct or a derived class has gained since get their default; fields that it has lost are an error.
    Values have the type that they had when they were serialized, even if the declared type has changed since.

    Args:
        cls: The type.
        items: Pairs of key and container.
        metadata: The third value of :func:`serialize`.

    Raises:
        SerializationError: The fields are not those of ``cls``; with every one that is not.
        TypeError: ``cls`` is not a type of container.

    Example:
        >>> deserialize(*serialize((1, 2)))
        (1, 2)
    """
    pairs = pairs_of(items, cls)
    derivation = derivation_of(cls)
    by_name = is_struct(cls) or (derivation is not None and derivation.hooks is None)
    if by_name and not isinstance(metadata, Mapping):
        got = type(metadata).__name__
        raise TypeError(
            f"deserialize(): expected the kept attributes of {cls.__name__} by name as metadata, got a {got}\n"
            "  pass the three values that serialize() returned, {} where nothing was kept"
        )
    if is_struct(cls):
        struct: Any = cls
        stored: Any = {**dict(pairs), **metadata}
        known = {
            name: spec.make_default if spec.has_default else None
            for name, spec in struct.__nqx_fields__.items()
            if not spec.is_derived and not spec.reset and (spec.init or spec.should_serialize)
        }
        return struct.__nqx_restore__(complete(cls, stored, known))
    if derivation is not None:
        return derivation.whole(pairs, metadata)
    if cls in _BUILTIN:
        return _BUILTIN[cls](pairs)
    registered = pytree_spec(cls)
    if registered is not None:
        return registered.unflatten(metadata, [value for _, value in pairs])
    if isinstance(metadata, jax.tree_util.PyTreeDef):
        return metadata.unflatten([value for _, value in pairs])
    raise TypeError(
        f"deserialize(): expected a type of container and its metadata, got {cls!r} and {metadata!r}"
    )


_BUILTIN: Mapping[type, Callable[[Items], Any]] = {
    dict: dict,
    list: lambda pairs: [value for _, value in pairs],
    tuple: lambda pairs: tuple(value for _, value in pairs),
}
