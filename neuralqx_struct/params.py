"""Params: the state of a model apart from its structure, for code of the form ``outputs, params = model(params, inputs)``.

:class:`Params` holds all state as :class:`Param` records by path; it is a Struct, so it is saved, loaded, filtered and
migrated like any other, and shared by every model with the same paths. Names come from ``graph.py``, what is
computed is said by ``modules.py``; neither is known here.

Example:
    >>> params = Params({("net", "w"): Param(1.5), ("net", "n"): Param(0, trainable=False)})
    >>> params[("net", "w")].value
    1.5
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from itertools import islice
from typing import Any, Literal, NoReturn, Self, cast

import numpy as np
from jax.sharding import PartitionSpec

import neuralqx_struct.path_keys  # noqa: F401 - tells JAX of path trees
from neuralqx_struct.errors import Diagnostic, SerializationError, StructError, ValidationError, did_you_mean
from neuralqx_struct.fieldspec import field
from neuralqx_struct.filters import Filter, to_predicate
from neuralqx_struct.identity import static_key
from neuralqx_struct.leaves import match_leaves, merge_leaves
from neuralqx_struct.param_tags import param_tags
from neuralqx_struct.path_tree import HERE, Path, PathTree, is_path
from neuralqx_struct.paths import format_path
from neuralqx_struct.printing import brief
from neuralqx_struct.pytree import peek, store_pair
from neuralqx_struct.pytree_types import register_pytree_type
from neuralqx_struct.struct import Struct

__all__ = ["Metadata", "Param", "Params", "ParamsError"]


class ParamsError(StructError, KeyError):
    """Params have no value at a path, and none may be made there."""

    default_code = "NQX414"


class Metadata(Mapping[str, Any]):
    """What is noted about a parameter: an immutable, hashable mapping; equal to any mapping of equal items.

    Lists become tuples and inner mappings Metadata, so that every value has a hash.

    Raises:
        ValidationError: A name is not text, or a value has no hash or holds an array; with every such item.
    """

    __slots__ = ("_items", "_key")
    __nqx_exact__ = True  # its own items are compared exactly, and have been looked through for arrays

    def __init__(self, items: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), /) -> None:
        given = dict(items)
        problems: list[Diagnostic] = []
        kept: list[tuple[str, Any]] = []
        keys: list[Hashable] = []
        for name, value in given.items():
            try:
                if not isinstance(name, str):
                    raise TypeError(f"a name that is a {type(name).__name__}")
                canonical, key = static_key(_canonical(value))
                kept.append((name, canonical))
                keys.append((name, key))
            except TypeError as error:
                message = f"expected names of text and hashable values without arrays, got {error}"
                problems.append(Diagnostic("NQX110", "error", message, path=f"metadata[{name!r}]"))
        if problems:
            raise ValidationError(problems)
        self._items = dict(sorted(kept))
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
    """Metadata as plain values; partition specs, which JAX treats as leaves of their own, as tuples and their names."""
    specs = [name for name, value in metadata.items() if isinstance(value, PartitionSpec)]
    return {"items": {n: tuple(v) if n in specs else v for n, v in metadata.items()}, "partition_specs": specs}


def _load_metadata(saved: Any) -> Metadata:
    """The inverse of :func:`_save_metadata`."""
    match saved:
        case {"items": dict(items), "partition_specs": list(specs), **rest} if not rest and set(specs) <= items.keys():
            spec: Callable[..., Any] = PartitionSpec
            return Metadata({n: spec(*v) if n in specs else v for n, v in items.items()})
    raise SerializationError(f"expected the items and partition_specs of a Metadata, got {brief(saved)}")


register_pytree_type(
    Metadata,
    flatten=lambda metadata: ((), metadata),
    unflatten=lambda metadata, _: metadata,
    serializer=_save_metadata,
    deserializer=_load_metadata,
)


def _truth(value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise ValidationError(
        f"expected True or False, got {brief(value)}",
        code="NQX411",
        path="Param.trainable",
        hint="other words for groups of parameters are tags: metadata={'tags': [...]}",
    )


def _noted(items: Any) -> Metadata:
    if items is None:
        return Metadata()
    if not isinstance(items, Mapping):
        raise ValidationError(
            f"expected a mapping from names to values, got {brief(items)}",
            code="NQX411",
            path="Param.metadata",
            hint="such as {'tag': 'lora', 'sharding': ('model', None)}",
        )
    return Metadata(items)


class Param(Struct):
    """One value of a model's state.

    Args:
        value: An array, or any pytree of arrays.
        trainable: Whether gradients change it.
        metadata: What tools are to know about it: ``sharding``, ``tag`` or ``tags``, and whatever else.

    Example:
        >>> param = Param(1.0, metadata={"sharding": ("model", None), "tag": "lora"})
        >>> param.sharding, sorted(param.tags)
        (('model', None), ['lora', 'trainable'])
    """

    value: Any
    trainable: bool = field(static=True, default=True, converter=_truth)
    metadata: Mapping[str, Any] = field(static=True, default=Metadata(), converter=_noted)

    @property
    def sharding(self) -> Any:
        """What ``metadata["sharding"]`` says about how the value is spread over devices; empty if it says nothing."""
        return self.metadata.get("sharding", ())

    @property
    def tags(self) -> frozenset[str]:
        """The tags by which filters know it: those of ``metadata["tag"]`` and ``["tags"]``, and ``trainable``."""
        return param_tags(trainable=peek(self, "trainable"), metadata=peek(self, "metadata"))

    def __nqx_tags__(self) -> frozenset[str]:
        return self.tags


_SHOWN = 60


def _by_path(given: Any) -> PathTree:
    """Parameters by path, from nested dicts or from a mapping with paths as keys; the converter of Params.

    Raises:
        ValidationError: With every path that is none or is given twice, and every value that is no Param.
    """
    if not isinstance(given, Mapping):
        raise ValidationError(f"expected a mapping from paths to Param, got a {type(given).__name__}", path="Params")
    if isinstance(given, PathTree) and given.find(()) is None and all(isinstance(p, Param) for p in given.pair[0]):
        return given
    found: dict[Path, Any] = {}
    problems: list[Diagnostic] = []
    todo: list[tuple[tuple[Any, ...], Any]] = [((), given)]
    while todo:
        path, value = todo.pop()
        if isinstance(value, Param) and is_path(path):
            if path in found:
                problems.append(_given_twice(path))
            found[path] = value
        elif isinstance(value, Mapping) and not isinstance(value, Param):
            todo += [((*path, *_parts(key)), inner) for key, inner in value.items()]
        else:
            problems.append(_no_entry(path, value))
    if problems:
        raise ValidationError(reversed(problems))
    return PathTree(found)


def _given_twice(path: Path) -> Diagnostic:
    message = "expected one Param, got two for the same path, which may be written as a tuple and as nested mappings"
    return Diagnostic("NQX411", "error", message, path=format_path(path), hint="leave one of them out")


def _no_entry(path: Any, value: Any) -> Diagnostic:
    if is_path(path):
        message, hint = f"expected a Param, got a {type(value).__name__}", "wrap the value: Param(value)"
    else:
        message = f"expected a path of names that are text and not empty, got {path!r}"
        hint = "such as ('net', 'mlp', 'kernel')"
    return Diagnostic(
        "NQX411", "error", message, path=format_path(path if isinstance(path, tuple) else (path,)), hint=hint
    )


def _parts(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else () if key == HERE else (key,)


class Params(Struct):
    """All state of a model: a flat, immutable mapping from paths to :class:`Param`, in sorted order.

    A change gives new Params; what has not changed is shared. Once locked, values may still change, but no path may
    appear: a misspelt name is an error instead of a fresh parameter.

    Args:
        tree: Parameters by path, or as nested dicts. It reads as the latter, which is how they are saved and how JAX prints
            their keys: ``$.tree['net']['mlp']['kernel']``.
        is_locked: Whether new paths are refused.

    Raises:
        ValidationError: Something is no path, or no Param.

    Example:
        >>> import jax
        >>> params = Params({("net", "w"): Param(1.0), ("net", "n"): Param(0, trainable=False)}).locked()
        >>> trainable, other = params.split()
        >>> jax.tree.map(lambda w: w - 0.5, trainable).merge(other)[("net", "w")].value
        0.5
    """

    tree: Mapping[Any, Any] = field(default_factory=PathTree, converter=_by_path, doc="Parameters, as dicts of dicts.")
    is_locked: bool = field(static=True, default=False, converter=bool, doc="Whether new paths are refused.")

    @property
    def _tree(self) -> PathTree:
        return cast("PathTree", peek(self, "tree"))

    def _with(self, **changes: Any) -> Self:
        # The parameters have been checked when they came in; checking them all again would make n changes cost n * n.
        cls = type(self)
        new = object.__new__(cls)
        store_pair(new, cls.__nqx_layout__.changed(getattr(self, "_nqx_pair"), changes, cls.__name__))  # noqa: B009
        return new

    @classmethod
    def __nqx_assemble__(cls, values: Mapping[str, Any]) -> Self:
        # Nested dicts come from files that are read without values, and from pickles of earlier versions.
        tree = values["tree"]
        return super().__nqx_assemble__({**values, "tree": tree if isinstance(tree, PathTree) else _by_path(tree)})

    def __getitem__(self, path: Path) -> Param:
        found = self._tree.find(path)
        if found is None:
            self._missing(path, "expected a path that has a parameter, got one without")
        param: Param = found
        return param

    def _missing(self, path: Any, message: str) -> NoReturn:
        known = ["/".join(known) for known in self]
        wanted = "/".join(map(str, path)) if isinstance(path, tuple) else str(path)
        hint = did_you_mean(wanted, known) if is_path(path) else "paths are tuples of names: ('net', 'mlp', 'kernel')"
        raise ParamsError(message, path=format_path(path if isinstance(path, tuple) else (path,)), hint=hint)

    def __iter__(self) -> Iterator[Path]:
        return iter(self._tree.pair[1])

    def __len__(self) -> int:
        return len(self._tree.pair[1])

    def __contains__(self, path: object) -> bool:
        return self._tree.find(cast("Path", path)) is not None

    def keys(self) -> KeysView[Path]:
        """Paths, sorted."""
        return dict(self._tree.entries()).keys()

    def values(self) -> ValuesView[Param]:
        """Parameters, sorted by path."""
        return dict(self._tree.entries()).values()

    def items(self) -> ItemsView[Path, Param]:
        """Paths and parameters, sorted by path."""
        return dict(self._tree.entries()).items()

    def get(self, path: Path, default: Any = None) -> Any:
        """The parameter at ``path``, or ``default``."""
        found = self._tree.find(path)
        return default if found is None else found

    def set(self, path: Path, param: Param) -> Self:
        """Params with another parameter at ``path``.

        Args:
            path: The path, new or not.
            param: What stands there from now on.

        Raises:
            ParamsError: The path is new and the params are locked; it is a KeyError.
            ValidationError: ``path`` is no path, or ``param`` is no Param.
        """
        if not is_path(path) or not isinstance(param, Param):
            raise ValidationError(_no_entry(path, param))
        if self.is_locked and path not in self:
            self._refuse_new(path)
        return self._with(tree=self._tree.with_entry(path, param))

    def _refuse_new(self, path: Path) -> NoReturn:
        self._missing(path, "expected the path of a parameter, because the params are locked, got a new path")

    def locked(self) -> Self:
        """The same params, which refuse new paths."""
        return self._with(is_locked=True)

    def unlocked(self) -> Self:
        """The same params, which accept new paths."""
        return self._with(is_locked=False)

    def split(self, *filters: Filter) -> tuple[Self, ...]:
        """Params sorted into groups; :meth:`merge` puts them together again.

        Args:
            *filters: Filters as in :func:`neuralqx_struct.split`, asked about each path and Param. One makes two groups:
                what matches it, and the rest; none, what is trainable and the rest. Several make one group each; ``...``
                takes the rest.

        Raises:
            FilterError: A parameter matches none of several filters; it is a ValueError.
        """
        tree = self._tree
        if not filters:
            which = [0 if peek(param, "trainable") else 1 for param in tree.pair[0]]
        elif len(filters) == 1:
            matches = to_predicate(filters[0])
            which = [0 if matches(path, param) else 1 for path, param in tree.entries()]
        else:
            which = match_leaves(tree.entries(), *filters)
        return tuple(self._with(tree=tree.where([i == n for i in which])) for n in range(max(len(filters), 2)))

    def merge(self, other: Params, *, on_conflict: Literal["override", "error"] = "override") -> Self:
        """These params and others.

        Args:
            other: More params, locked if these are. The lock does not keep them out: nothing is created, two groups
                become one. Parameters without a value, as a partial load leaves them, take nothing away from these.
            on_conflict: What becomes of a path that both have: ``override`` takes the other's, ``error`` refuses.

        Raises:
            FilterError: With ``on_conflict="error"``: both have a path; it is a ValueError.
            ValueError: Another word, or one is locked and the other is not.
            TypeError: ``other`` is not Params.
        """
        if not isinstance(other, Params):
            raise TypeError(f"merge(): expected Params, got a {type(other).__name__}")
        if on_conflict not in ("override", "error"):
            raise ValueError(f"on_conflict=: expected 'override' or 'error', got {on_conflict!r}")
        if self.is_locked != other.is_locked:
            words = ["locked" if params.is_locked else "unlocked" for params in (self, other)]
            raise ValueError(
                f"merge(): expected two that are locked, or two that are not, got {words[0]} and {words[1]} params; "
                f"say which it is to be: other.{words[0]}()"
            )
        mine, others = dict(self._tree.entries()), dict(other._tree.entries())
        shared = mine.keys() & others.keys()
        kept = {path: mine[path] for path in shared if _is_hole(others[path])}
        if on_conflict == "error":
            clashes = [path for path in shared if path not in kept and not _is_hole(mine[path])]
            merge_leaves(*([(path, group[path]) for path in sorted(clashes)] for group in (mine, others)))
        return self._with(tree=PathTree(mine | others | kept))

    def __repr__(self) -> str:
        lines = [
            f"    {'/'.join(path)}: {brief(getattr(p, 'value', p))}{'' if getattr(p, 'trainable', True) else ' (frozen)'},\n"
            for path, p in islice(self._tree.entries(), _SHOWN)
        ]
        more = len(self) - len(lines)
        lines += [f"    ... {more:,} more,\n"] if more else []
        body = f"\n{''.join(lines)}" if lines else ""
        return f"{type(self).__name__}({body}{'locked' if self.is_locked else 'unlocked'})"


Mapping.register(Params)


def _is_hole(param: Any) -> bool:
    """True for a parameter whose value a filter has left out."""
    return isinstance(param, Param) and peek(param, "value") is None
