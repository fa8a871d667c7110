"""Params: the state of a model apart from its structure, for code of the form ``outputs, params = model(params, inputs)``.

:class:`Params` holds all state as :class:`Param` records by path. It is a Struct, so it is saved, loaded, filtered and
migrated like any other, and every model with the same paths can share it.

Example:
    >>> params = Params({("net", "w"): Param(1.5), ("net", "n"): Param(0, trainable=False)})
    >>> params[("net", "w")].value
    1.5
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from itertools import islice
from typing import Any, Literal, NoReturn, Self, cast

import numpy as np

from neuralqx_struct.errors import Diagnostic, StructError, ValidationError, did_you_mean
from neuralqx_struct.fieldspec import Values, field
from neuralqx_struct.filters.partition import match_leaves, merge_leaves
from neuralqx_struct.filters.predicates import param_tags
from neuralqx_struct.filters.records import Filter, to_predicate
from neuralqx_struct.params.metadata import Metadata
from neuralqx_struct.paths import HERE, PathTree, TreePath, format_path, is_tree_path
from neuralqx_struct.printing import brief
from neuralqx_struct.struct import Struct
from neuralqx_struct.struct.pytree import load_pair, peek, store_pair

__all__ = ["Metadata", "Param", "Params", "ParamsError"]


class ParamsError(StructError, KeyError):
    """Params have no value at a path, and none can be created there."""

    default_code = "NQX414"


def _refused(message: str, name: str, hint: str) -> ValidationError:
    return ValidationError(message, code="NQX411", path=f"Param.{name}", hint=hint)


def _bool(value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    hint = "other words for groups of parameters are tags: metadata={'tags': [...]}"
    raise _refused(f"expected True or False, got {brief(value)}", "trainable", hint)


def _metadata(items: Any) -> Metadata:
    if items is None:
        return Metadata()
    if isinstance(items, Mapping):
        return Metadata(items)
    message = f"expected a mapping from names to values, got {brief(items)}"
    raise _refused(message, "metadata", "such as {'tag': 'lora', 'sharding': ('model', None)}")


class Param(Struct):
    """One value of a model's state.

    Args:
        value: An array, or any pytree of arrays.
        trainable: Whether gradients change it.
        metadata: Notes for tools: ``sharding``, ``tag`` or ``tags``, and any others.

    Example:
        >>> param = Param(1.0, metadata={"sharding": ("model", None), "tag": "lora"})
        >>> param.sharding, sorted(param.tags)
        (('model', None), ['lora', 'trainable'])
    """

    __nqx_unwritten__ = True  # a schema-made struct would lack the methods

    value: Any
    trainable: bool = field(static=True, default=True, converter=_bool)
    metadata: Values = field(static=True, default=Metadata(), converter=_metadata)

    @property
    def sharding(self) -> Any:
        """The member ``sharding`` of the metadata, for devices; empty if there is none."""
        return self.metadata.get("sharding", ())

    @property
    def tags(self) -> frozenset[str]:
        """The tags for filters: ``metadata["tag"]``, ``metadata["tags"]``, and ``trainable``."""
        return param_tags(trainable=peek(self, "trainable"), metadata=peek(self, "metadata"))

    def __nqx_tags__(self) -> frozenset[str]:
        return self.tags


_PRINTED = 60


def _by_path(given: Any) -> PathTree:
    """Converts nested dicts, or a mapping with paths as keys, to parameters by path.

    Raises:
        ValidationError: With every key that is not a path or is given twice, and every value that is not a Param.
    """
    if not isinstance(given, Mapping):
        message = f"expected a mapping from paths to Param, got a {type(given).__name__}"
        raise ValidationError(message, path="Params")
    if isinstance(given, PathTree) and given.find(()) is None:
        leaves, _ = given.pair
        if all(isinstance(param, Param) for param in leaves):
            return given
    found: dict[TreePath, Any] = {}
    problems: list[Diagnostic] = []
    todo: list[tuple[tuple[Any, ...], Any]] = [((), given)]
    while todo:
        path, value = todo.pop()
        if type(value) is dict and value.keys() == Param.__nqx_fields__.keys():  # of to_dict
            value = Param(**value)
        if isinstance(value, Mapping) and not isinstance(value, Param):
            todo += [((*path, *_parts(key)), inner) for key, inner in value.items()]
        elif not isinstance(value, Param) or not is_tree_path(path):
            problems.append(_no_entry(path, value))
        elif path in found:
            message = "expected one Param, got two for the same path, which may be written as a tuple and as nested mappings"
            problems.append(_problem(path, message, "leave one of them out"))
        else:
            found[path] = value
    if problems:
        raise ValidationError(reversed(problems))
    return PathTree(found)


def _problem(path: Any, message: str, hint: str) -> Diagnostic:
    return Diagnostic("NQX411", "error", message, path=_path_text(path), hint=hint)


def _no_entry(path: Any, value: Any) -> Diagnostic:
    if is_tree_path(path):
        message = f"expected a Param, got a {type(value).__name__}"
        return _problem(path, message, "wrap the value: Param(value)")
    message = f"expected a path of names that are text and not empty, got {path!r}"
    return _problem(path, message, "such as ('net', 'mlp', 'kernel')")


def _path_text(path: Any) -> str:
    return format_path(path if isinstance(path, tuple) else (path,))


def _parts(key: Any) -> tuple[Any, ...]:
    if isinstance(key, tuple):
        return key
    return () if key == HERE else (key,)


class Params(Struct):
    """All state of a model: a flat, immutable mapping from paths to :class:`Param`, in sorted order.

    A change returns new Params; unchanged parameters are shared. In locked params values can change, but no path can be
    added: a misspelt name is an error instead of a new parameter.

    Args:
        tree: Parameters by path, or as nested dicts. As an attribute it is nested dicts, which is how they are saved and how
            JAX prints their keys: ``$.tree['net']['mlp']['kernel']``.
        is_locked: Whether new paths are refused.

    Raises:
        ValidationError: A key is not a path, or a value is not a Param.

    Example:
        >>> import jax
        >>> params = Params({("net", "w"): Param(1.0), ("net", "n"): Param(0, trainable=False)}).locked()
        >>> trainable, other = params.split()
        >>> jax.tree.map(lambda w: w - 0.5, trainable).merge(other)[("net", "w")].value
        0.5
    """

    __nqx_unwritten__ = True  # a schema-made struct would lack the methods

    tree: Mapping[Any, Any] = field(
        default_factory=PathTree, converter=_by_path, doc="Parameters, as dicts of dicts."
    )
    is_locked: bool = field(
        static=True, default=False, converter=bool, doc="Whether new paths are refused."
    )

    @property
    def _tree(self) -> PathTree:
        return cast("PathTree", peek(self, "tree"))

    def _with(self, **changes: Any) -> Self:
        # Without another check of all parameters, which would make n changes cost n * n.
        cls = type(self)
        new = object.__new__(cls)
        store_pair(new, cls.__nqx_layout__.changed(load_pair(self), changes, cls.__name__))
        return new

    @classmethod
    def __nqx_assemble__(cls, values: Values) -> Self:
        # Nested dicts come from files that are read without values, and from pickles of earlier versions.
        tree = values["tree"]
        if not isinstance(tree, PathTree):
            values = {**values, "tree": _by_path(tree)}
        return super().__nqx_assemble__(values)

    def __getitem__(self, path: TreePath) -> Param:
        found = self._tree.find(path)
        if found is None:
            self._missing(path, "expected a path that has a parameter, got one without")
        param: Param = found
        return param

    def _missing(self, path: Any, message: str) -> NoReturn:
        hint: str | None = "paths are tuples of names: ('net', 'mlp', 'kernel')"
        if is_tree_path(path):
            hint = did_you_mean("/".join(path), ["/".join(known) for known in self])
        raise ParamsError(message, path=_path_text(path), hint=hint)

    def __iter__(self) -> Iterator[TreePath]:
        return iter(self._tree.pair[1])

    def __len__(self) -> int:
        return len(self._tree.pair[1])

    def __contains__(self, path: object) -> bool:
        return self._tree.find(cast("TreePath", path)) is not None

    def keys(self) -> KeysView[TreePath]:
        """The paths, sorted."""
        return dict(self._tree.entries()).keys()

    def values(self) -> ValuesView[Param]:
        """The parameters, sorted by path."""
        return dict(self._tree.entries()).values()

    def items(self) -> ItemsView[TreePath, Param]:
        """Returns paths and parameters, sorted by path."""
        return dict(self._tree.entries()).items()

    def get(self, path: TreePath, default: Any = None) -> Any:
        """The parameter at ``path``, or ``default``."""
        found = self._tree.find(path)
        return default if found is None else found

    def set(self, path: TreePath, param: Param) -> Self:
        """Returns params with another parameter at ``path``.

        Args:
            path: The path, new or not.
            param: The parameter.

        Raises:
            ParamsError: The path is new and the params are locked; it is a KeyError.
            ValidationError: ``path`` is not a path, or ``param`` is not a Param.
        """
        if not is_tree_path(path) or not isinstance(param, Param):
            raise ValidationError(_no_entry(path, param))
        self._check_new(path)
        return self._with(tree=self._tree.with_entry(path, param))

    def _check_new(self, path: TreePath) -> None:
        """Raises ParamsError if a path is new and the params are locked."""
        if self.is_locked and path not in self:
            message = (
                "expected the path of a parameter, because the params are locked, got a new path"
            )
            self._missing(path, message)

    def locked(self) -> Self:
        """The same params, locked: they refuse new paths."""
        return self._with(is_locked=True)

    def unlocked(self) -> Self:
        """The same params, unlocked: they accept new paths."""
        return self._with(is_locked=False)

    def split(self, *filters: Filter) -> tuple[Self, ...]:
        """Splits the params into groups; the inverse is :meth:`merge`.

        Args:
            *filters: Filters as in :func:`neuralqx_struct.split`, called with each path and Param. One makes two groups, the
                parameters that match and the rest; none, the trainable ones and the rest. Several make one group each;
                ``...`` takes the rest.

        Raises:
            FilterError: A parameter matches none of several filters; it is a ValueError.
        """
        tree = self._tree
        if len(filters) > 1:
            which = match_leaves(tree.entries(), *filters)
        elif filters:
            matches = to_predicate(filters[0])
            which = [0 if matches(path, param) else 1 for path, param in tree.entries()]
        else:
            which = [0 if peek(param, "trainable") else 1 for param in tree.pair[0]]
        groups = range(max(len(filters), 2))
        return tuple(self._with(tree=tree.where([i == n for i in which])) for n in groups)

    def merge(
        self, other: Params, *, on_conflict: Literal["override", "error"] = "override"
    ) -> Self:
        """Joins these params and others.

        Args:
            other: More params, locked if these are. Locked params can be joined too, for no parameter is created.
                Parameters without a value, as a partial load makes them, replace none of these.
            on_conflict: For a path that both have: ``override`` takes the other's parameter, ``error`` refuses.

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
            own, others = ("locked" if params.is_locked else "unlocked" for params in (self, other))
            raise ValueError(
                f"merge(): expected two that are locked, or two that are not, got {own} and {others} params; "
                f"use other.{own}()"
            )
        mine = dict(self._tree.entries())
        theirs = dict(other._tree.entries())
        shared = sorted(mine.keys() & theirs.keys())
        kept = {path: mine[path] for path in shared if _is_hole(theirs[path])}
        if on_conflict == "error":
            clashes = [path for path in shared if path not in kept and not _is_hole(mine[path])]
            merge_leaves(*([(path, group[path]) for path in clashes] for group in (mine, theirs)))
        return self._with(tree=PathTree(mine | theirs | kept))

    def __repr__(self) -> str:
        lines: list[str] = []
        for path, param in islice(self._tree.entries(), _PRINTED):
            frozen = "" if getattr(param, "trainable", True) else " (frozen)"
            value = brief(getattr(param, "value", param))
            lines.append(f"    {'/'.join(path)}: {value}{frozen},\n")
        if len(self) > len(lines):
            lines.append(f"    ... {len(self) - len(lines):,} more,\n")
        body = "".join(["\n", *lines]) if lines else ""
        return f"{type(self).__name__}({body}{'locked' if self.is_locked else 'unlocked'})"


Mapping.register(Params)


def _is_hole(param: Any) -> bool:
    """True for a parameter whose value a filter has left out."""
    return isinstance(param, Param) and peek(param, "value") is None
