"""States: what `split` takes an object apart into, its definition and leaves by their paths.

Owns the two records, how they are shown, compared and pickled. Taking apart and putting together is ``trees.py``.

Example:
    >>> State((("w",),), (1.5,))
    State({$['w']: 1.5})
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Generic, TypeVar

from neuralqx_struct.display import Displayed
from neuralqx_struct.errors import SerializationError
from neuralqx_struct.fieldspec import FieldKind, FieldSpec
from neuralqx_struct.identity import same_value
from neuralqx_struct.path_keys import PathKey
from neuralqx_struct.paths import FieldName, Path, format_path
from neuralqx_struct.printing import Text, brief
from neuralqx_struct.pytree_types import register_pytree_type

__all__ = ["Definition", "State"]

_SHOWN = 40
T = TypeVar("T")


@dataclass(frozen=True, slots=True, repr=False)
class Definition(Generic[T]):
    """What is left of an object without its leaves; hashable, so it can be a static argument of ``jax.jit``.

    Attributes:
        treedef: The structure.
        paths: The path of each leaf, in the order of the structure.
    """

    treedef: Any
    paths: tuple[Path, ...] = field(compare=False)  # the structure fixes them

    def __repr__(self) -> str:
        return f"<Definition of {len(self.paths):,} leaves>"


class Places(tuple[Path, ...]):  # noqa: SLOT001 - a tuple has no room for slots
    """The paths of a state as the static part of its structure: equal only where filters see the same of the fields.

    So a function that is compiled for one state is not taken for another whose fields bear the same names and other tags.
    """

    _hash: int
    _fields: tuple[Any, ...]

    def _asked(self) -> tuple[Any, ...]:
        """What filters ask of the fields on the way, besides their names."""
        if not hasattr(self, "_fields"):
            fields = [key for path in self for key in path if isinstance(key, FieldName)]
            self._fields = tuple([(f.holder, *((f.spec.kind, f.spec.tags) if f.spec else ())) for f in fields])
        return self._fields

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Places) and super().__eq__(other) and self._asked() == other._asked()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        if not hasattr(self, "_hash"):  # asked for each time that a compiled function is called
            self._hash = super().__hash__()
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Places, (tuple(self),)


class State(Displayed, Mapping[Path, Any]):
    """Some leaves of an object by their paths; a pytree, and like all of them not to be changed in place.

    A state equals a mapping with equal leaves at the same paths, arrays by dtype, shape and value. They pickle, and so do
    definitions, of everything whose class and static values do. In a bundle a state is dicts of dicts.

    Attributes:
        paths: The paths of the leaves.
        leaves: The leaves, in the same order.
    """

    __slots__ = ("_by_path", "leaves", "paths")

    def __init__(self, paths: tuple[Path, ...], leaves: tuple[Any, ...]) -> None:
        self.paths = paths if isinstance(paths, Places) else Places(paths)
        self.leaves = leaves
        self._by_path: dict[Path, Any] | None = None  # made when first asked for: JAX rebuilds states and never asks

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
        return self._held().keys() == other.keys() and all(same_value(leaf, other[path]) for path, leaf in self.items())

    __hash__ = None  # type: ignore[assignment]  # as of all mappings

    def __reduce__(self) -> tuple[Any, ...]:
        return State, (tuple(self.paths), self.leaves)

    def items(self) -> ItemsView[Path, Any]:
        """The paths with their leaves, without looking each of them up."""
        return self._held().items()

    def values(self) -> ValuesView[Any]:
        """The leaves."""
        return self._held().values()

    def __nqx_shown__(self) -> tuple[str, Iterator[tuple[str, Any]]]:
        """The leaves by their paths, for ``repr`` and notebooks."""
        pairs = zip(map(format_path, self.paths), self.leaves, strict=False)
        more = len(self.paths) - _SHOWN
        return "State", chain(islice(pairs, _SHOWN), [("...", Text(f"{more:,} more"))] if more > 0 else [])

    def __repr__(self) -> str:
        shown = ", ".join(f"{path}: {brief(leaf)}" for path, leaf in self.__nqx_shown__()[1])
        return f"State({{{shown}}})"


def _save(state: State) -> dict[str, Any]:
    """The leaves as dicts of dicts, and the fields on the way to them with what filters ask of each: its kind and tags."""
    nested: Any = {}
    fields: dict[str, list[str]] = {}
    for path, leaf in zip(state.paths, state.leaves, strict=True):
        at, last = nested, len(path) - 1
        for place, key in enumerate(path):
            if isinstance(key, FieldName):
                told = [key.spec.kind.value, *sorted(key.spec.tags)] if key.spec else []
                fields[format_path(path[: place + 1])] = told
            plain = str(key) if isinstance(key, FieldName) else key
            if place == last:
                at[plain] = leaf
            else:
                at = at.setdefault(plain, {})
        if not path:
            nested = leaf
    return {"leaves": nested, "fields": fields}


def _load(saved: Any) -> State:
    """The inverse of :func:`_save`, but for the classes of what only holds a value, whose names are not kept."""
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
        told = fields.get(format_path((*path, FieldName(key)))) if isinstance(key, str) else None
        yield from _below((*path, key if told is None else _field(key, told)), inner, fields)


def _field(name: str, told: list[str]) -> FieldName:
    if not told:
        return FieldName(name)
    kind, *tags = told
    return FieldName(name, FieldSpec(name=name, kind=FieldKind(kind), metadata={"tags": tuple(tags)}))


def _unflatten(paths: tuple[Path, ...], leaves: Iterable[Any]) -> State:
    return State(paths, tuple(leaves))


register_pytree_type(
    State,
    flatten=lambda state: (state.leaves, state.paths),
    unflatten=_unflatten,
    flatten_with_keys=lambda state: (list(zip(map(PathKey, state.paths), state.leaves, strict=True)), state.paths),
    serializer=_save,
    deserializer=_load,
)
