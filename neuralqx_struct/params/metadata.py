"""Metadata of parameters: an immutable, hashable mapping that is saved with them.

Example:
    >>> Metadata({"sharding": ["model", None]})
    {'sharding': ('model', None)}
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

from jax.sharding import PartitionSpec

from neuralqx_struct.errors import Diagnostic, SerializationError, ValidationError
from neuralqx_struct.fieldspec import Hook, Values
from neuralqx_struct.printing import brief
from neuralqx_struct.struct.equality import static_key
from neuralqx_struct.struct.registration import register_pytree_type


class Metadata(Mapping[str, Any]):
    """Metadata of a parameter: an immutable, hashable mapping; equal to any mapping of equal items.

    Lists become tuples and inner mappings Metadata, so that every value has a hash.

    Raises:
        ValidationError: A name is not text, or a value has no hash or holds an array; with every such item.
    """

    __module__ = "neuralqx_struct.params"  # its name in bundles
    __slots__ = ("_items", "_key")
    __nqx_exact__ = True  # its items are compared exactly and hold no arrays

    def __init__(self, items: Values | Iterable[tuple[str, Any]] = (), /) -> None:
        problems: list[Diagnostic] = []
        kept: dict[str, Any] = {}
        keys: list[Hashable] = []
        for name, value in dict(items).items():
            try:
                if not isinstance(name, str):
                    raise TypeError(f"a name that is a {type(name).__name__}")
                kept[name], key = static_key(_canonical(value))
                keys.append((name, key))
            except TypeError as error:
                message = f"expected names of text and hashable values without arrays, got {error}"
                problems.append(Diagnostic("NQX110", "error", message, path=f"metadata[{name!r}]"))
        if problems:
            raise ValidationError(problems)
        self._items = dict(sorted(kept.items()))
        self._key = frozenset(keys)

    def __getitem__(self, name: str) -> Any:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Metadata):
            return self._key == other._key and self._items == other._items
        return self._items == other if isinstance(other, Mapping) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)


def _canonical(value: Any) -> Any:
    if type(value) in (list, tuple):
        return tuple(map(_canonical, value))
    if type(value) is set:
        return frozenset(value)
    return Metadata(value) if type(value) is dict else value


def _save_metadata(metadata: Metadata) -> dict[str, Any]:
    """Returns plain values; partition specs, which JAX treats as leaves of their own, as tuples and their names."""
    specs = [name for name, value in metadata.items() if isinstance(value, PartitionSpec)]
    items = {name: tuple(v) if name in specs else v for name, v in metadata.items()}
    return {"items": items, "partition_specs": specs}


def _load_metadata(saved: Any) -> Metadata:
    """Builds metadata from plain values; the inverse of :func:`_save_metadata`."""
    match saved:
        case {"items": dict(items), "partition_specs": list(specs), **rest} if (
            not rest and set(specs) <= items.keys()
        ):
            spec: Hook = PartitionSpec
            return Metadata({n: spec(*v) if n in specs else v for n, v in items.items()})
    raise SerializationError(
        f"expected the items and partition_specs of a Metadata, got {brief(saved)}"
    )


register_pytree_type(
    Metadata,
    flatten=lambda metadata: ((), metadata),
    unflatten=lambda metadata, _: metadata,
    serializer=_save_metadata,
    deserializer=_load_metadata,
)
