"""States: the results of `split`, a definition and leaves by their paths; shown, compared, pickled and saved.

Example:
    >>> State((("w",),), (1.5,))
    State({$['w']: 1.5})
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Generic, TypeVar

from neuralqx_struct.errors import SerializationError
from neuralqx_struct.fieldspec import FieldKind, FieldSpec
from neuralqx_struct.paths import FieldName, Path, format_path
from neuralqx_struct.printing import Text, brief
from neuralqx_struct.struct.display import Displayed
from neuralqx_struct.struct.equality import same_value
from neuralqx_struct.struct.pytree import PathKey
from neuralqx_struct.struct.registration import register_pytree_type

__all__ = ["Definition", "State"]

_SHOWN = 40
T = TypeVar("T")


@dataclass(frozen=True, slots=True, repr=False)
class Definition(Generic[T]):
    """The structure of an object without its leaves; hashable, so it can be a static argument of ``jax.jit``.

    Attributes:
        treedef: The structure.
        paths: The path of each leaf, in the order of the structure.
    """

    treedef: Any
    paths: tuple[Path, ...] = field(compare=False)  # the structure fixes them

    def __repr__(self) -> str:
        return f"<Definition of {len(self.paths):,} leaves>"


class Places(tuple[Path, ...]):  # noqa: SLOT001 - a tuple has no room for slots
    """The paths of a state, equal only if filters see the same fields: kinds and tags are compared too.

    So a function compiled for one state is not used for another whose fields have the same names and other tags.
    """

    _hash: int
    _fields: tuple[Any, ...]

    def _outline(self) -> tuple[Any, ...]:
        """The properties of the fields that filters read, besides the names."""
        if not hasattr(self, "_fields"):
            fields = [key for path in self for key in path if isinstance(key, FieldName)]
            self._fields = tuple((key.holder, *_outline(key)) for key in fields)
        return self._fields

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Places) or not super().__eq__(other):
            return False
        return self._outline() == other._outline()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        if not hasattr(self, "_hash"):  # used each time that a compiled function is called
            self._hash = super().__hash__()
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Places, (tuple(self),)


def _outline(key: FieldName) -> list[Any]:
    """The kind and the tags of a field; empty if only its name is known."""
    return [] if key.spec is None else [key.spec.kind.value, *sorted(key.spec.tags)]


class State(Displayed, Mapping[Path, Any]):
    """Some leaves of an object by their paths: an immutable mapping and a pytree.

    A state equals a mapping with equal leaves at the same paths, arrays by dtype, shape and value. States and definitions
    can be pickled if the classes and static values of the object can. In a bundle a state is dicts of dicts.

    Attributes:
        paths: The paths of the leaves.
        leaves: The leaves, in the same order.
    """

    __slots__ = ("_by_path", "leaves", "paths")

    def __init__(self, paths: tuple[Path, ...], leaves: tuple[Any, ...]) -> None:
        self.paths: Places = paths if isinstance(paths, Places) else Places(paths)
        self.leaves = leaves
        self._by_path: dict[Path, Any] | None = None  # made on first use: JAX never needs it

    def _held(self) -> dict[Path, Any]:
        if self._by_path is None:
            self._by_path = dict(zip(self.paths, self.leaves, strict=True))
        return self._by_path

    def __getitem__(self, path: Path) -> Any:
        return self._held()[path]

    def __iter__(self) -> Iterator[Path]:
        return iter(self.paths)

    def __len__(self) -> int:
        return len(self.paths)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        if self._held().keys() != other.keys():
            return False
        return all(same_value(leaf, other[path]) for path, leaf in self.items())

    __hash__ = None  # type: ignore[assignment]  # as of all mappings

    def __reduce__(self) -> tuple[Any, ...]:
        return State, (tuple(self.paths), self.leaves)

    def items(self) -> ItemsView[Path, Any]:
        """The paths with their leaves."""
        return self._held().items()

    def values(self) -> ValuesView[Any]:
        """The leaves."""
        return self._held().values()

    def __nqx_shown__(self) -> tuple[str, Iterator[tuple[str, Any]]]:
        """The leaves by their paths, for ``repr`` and notebooks."""
        pairs = zip(map(format_path, self.paths), self.leaves, strict=False)
        more = len(self.paths) - _SHOWN
        rest = [("...", Text(f"{more:,} more"))] if more > 0 else []
        return "State", chain(islice(pairs, _SHOWN), rest)

    def __repr__(self) -> str:
        shown = ", ".join(f"{path}: {brief(leaf)}" for path, leaf in self.__nqx_shown__()[1])
        return f"State({{{shown}}})"


def _save(state: State) -> dict[str, Any]:
    """The leaves as dicts of dicts, and the kind and tags of each field on their paths."""
    nested: Any = {}
    fields: dict[str, list[str]] = {}
    for path, leaf in zip(state.paths, state.leaves, strict=True):
        if not path:
            nested = leaf
            break
        inner = nested
        for place, key in enumerate(path, 1):
            plain = key
            if isinstance(key, FieldName):
                plain = str(key)
                fields[format_path(path[:place])] = _outline(key)
            if place == len(path):
                inner[plain] = leaf
            else:
                inner = inner.setdefault(plain, {})
    return {"leaves": nested, "fields": fields}


def _load(saved: Any) -> State:
    """Builds a state; the inverse of :func:`_save`, except for the holders of values, whose names are not saved."""
    match saved:
        case {"leaves": leaves, "fields": dict(fields), **rest} if not rest:
            pairs = list(_below((), leaves, fields))
            return State(tuple(path for path, _ in pairs), tuple(leaf for _, leaf in pairs))
    raise SerializationError(f"expected the leaves and fields of a State, got {brief(saved)}")


def _below(path: Path, held: Any, fields: Mapping[str, list[str]]) -> Iterator[tuple[Path, Any]]:
    if type(held) is not dict:
        yield path, held
        return
    for key, inner in held.items():
        name = FieldName(key) if isinstance(key, str) else key
        outline = fields.get(format_path((*path, name))) if isinstance(key, str) else None
        if outline:
            kind, *tags = outline
            metadata = {"tags": tuple(tags)}
            name.spec = FieldSpec(name=key, kind=FieldKind(kind), metadata=metadata)
        yield from _below((*path, key if outline is None else name), inner, fields)


def _flatten_with_keys(state: State) -> tuple[list[tuple[Any, Any]], Places]:
    return list(zip(map(PathKey, state.paths), state.leaves, strict=True)), state.paths


register_pytree_type(
    State,
    flatten=lambda state: (state.leaves, state.paths),
    unflatten=lambda paths, leaves: State(paths, tuple(leaves)),
    flatten_with_keys=_flatten_with_keys,
    serializer=_save,
    deserializer=_load,
)
