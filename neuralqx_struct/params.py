"""Params: the state of a model apart from its structure, for code of the form ``outputs, params = model(params, inputs)``.

Three things that know little of each other. A :class:`Graph` gives names: paths such as ``("net", "mlp", "kernel")``; it
holds no state. A :class:`Module` is bound to one node of a graph and says what is computed; :class:`Rng` is the one module
that is here, layers are not ours. :class:`Params` holds all state as :class:`Param` records by path; it is a Struct, so
it is saved, loaded, filtered and migrated like any other, and shared by every model with the same paths.

Example:
    >>> graph = Graph("net")
    >>> rng = Rng(graph / "rng")
    >>> params = rng.seed(Params(), seed=42)
    >>> key, params = rng(params)
    >>> sorted(params)
    [('net', 'rng', 'counter'), ('net', 'rng', 'seed')]
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from itertools import islice
from types import MappingProxyType
from typing import Any, Literal, NoReturn, Self, cast

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from neuralqx_struct.errors import Diagnostic, SerializationError, StructError, ValidationError, did_you_mean
from neuralqx_struct.fieldspec import field
from neuralqx_struct.filters import Filter
from neuralqx_struct.identity import static_key
from neuralqx_struct.leaves import merge_leaves, split_leaves
from neuralqx_struct.paths import format_path
from neuralqx_struct.printing import brief
from neuralqx_struct.pytree import register_pytree_type
from neuralqx_struct.struct import Struct

__all__ = ["Graph", "GraphError", "Metadata", "Module", "Param", "Params", "ParamsError", "Rng"]

Path = tuple[str, ...]
Init = Callable[[Any, tuple[int, ...], Any], Any]


class GraphError(StructError, ValueError):
    """A module cannot be bound to a node of a graph, or a node cannot be made."""

    default_code = "NQX118"


class ParamsError(StructError, KeyError):
    """Params have no value at a path, and none may be made there."""

    default_code = "NQX414"


# ---------------------------------------------------------------------------------------------------------------------
# Names.


class Graph:
    """One node of the tree of names of a model. Nodes are compared by identity and never change their name or place.

    Args:
        name: The name of the root; any text that is not empty.
        metadata: Free mapping for tools.

    Example:
        >>> mlp = Graph("net") / "mlp"
        >>> mlp.child("dense1").path
        ('net', 'mlp', 'dense1')
    """

    __slots__ = ("__weakref__", "_children", "_metadata", "_module", "_parent", "_path")

    def __init__(self, name: str, *, metadata: Mapping[str, Any] | None = None) -> None:
        self._start(None, name, metadata)

    def _start(self, parent: Graph | None, name: str, metadata: Mapping[str, Any] | None) -> None:
        above = () if parent is None else parent.path
        if not isinstance(name, str) or not name:
            raise GraphError(f"expected a name that is text and not empty, got {name!r}", path=_shown(above))
        self._parent = parent
        self._path: Path = (*above, name)
        self._metadata = MappingProxyType(dict(metadata or {}))
        self._children: dict[str, Graph] = {}
        self._module: Module | None = None

    def child(self, name: str, *, metadata: Mapping[str, Any] | None = None) -> Graph:
        """Make the node ``name`` below this one.

        Raises:
            GraphError: There is a child of this name, or the name is empty; it is a ValueError.
        """
        if name in self._children:
            raise GraphError(
                f"expected a name that is free, got {name!r}, which is a child already",
                path=_shown((*self._path, name)),
                hint="two modules at one path would share their parameters; give each a name of its own",
            )
        node = object.__new__(Graph)
        node._start(self, name, metadata)
        self._children[name] = node
        return node

    def __truediv__(self, name: str) -> Graph:
        """The same as :meth:`child`."""
        return self.child(name)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self._path[-1]

    @property
    def path(self) -> Path:
        """All names from the root to here."""
        return self._path

    @property
    def parent(self) -> Graph | None:
        """The node above; None for a root."""
        return self._parent

    @property
    def root(self) -> Graph:
        """The node on top."""
        return self if self._parent is None else self._parent.root

    @property
    def children(self) -> Mapping[str, Graph]:
        """The nodes right below, by name."""
        return MappingProxyType(self._children)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The free mapping for tools."""
        return self._metadata

    @property
    def module(self) -> Module | None:
        """The module that is bound to this node, or None."""
        return self._module

    def walk(self) -> Iterator[tuple[Path, Module]]:
        """All modules below this node with their paths: parents first, siblings as they were made."""
        for node in self._children.values():
            if node.module is not None:
                yield node.path, node.module
            yield from node.walk()

    def __repr__(self) -> str:
        return f"Graph({'/'.join(self._path)!r})"


def _shown(path: Iterable[Hashable]) -> str:
    return format_path(path)


# ---------------------------------------------------------------------------------------------------------------------
# State.


class Metadata(Mapping[str, Any]):
    """What is noted about a parameter: an immutable, hashable mapping; equal to any mapping of equal items.

    Lists become tuples and inner mappings Metadata, so that every value has a hash.

    Raises:
        ValidationError: A name is not text, or a value has no hash or holds an array; with every such item.
    """

    __slots__ = ("_items", "_key")

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


class Param(Struct):
    """One value of a model's state.

    Example:
        >>> Param(1.0, trainable=False, metadata={"sharding": ("model", None)}).sharding
        ('model', None)
    """

    value: Any
    trainable: bool = field(static=True, default=True, converter=bool)
    metadata: Mapping[str, Any] = field(static=True, default=Metadata(), converter=Metadata)

    @property
    def sharding(self) -> Any:
        """What ``metadata["sharding"]`` says about how the value is spread over devices, or None."""
        return self.metadata.get("sharding")

    @property
    def tags(self) -> Any:
        """What ``metadata["tags"]`` says, for filters."""
        return self.metadata.get("tags", ())


_SHOWN = 60
_Tree = dict[str, Any]
#: The key of a parameter whose path is the beginning of another's; no name is empty.
_HERE = ""


def _nested(entries: Any) -> _Tree:
    """Parameters as dicts of dicts, from that or from a mapping with paths as keys; the converter of Params.

    Raises:
        ValidationError: With every path that is none, and every value that is no Param.
    """
    if not isinstance(entries, Mapping):
        raise ValidationError(f"expected a mapping from paths to Param, got a {type(entries).__name__}", path="Params")
    tree: _Tree = {}
    problems: list[Diagnostic] = []
    todo: list[tuple[tuple[Any, ...], Any]] = [((), entries)]
    while todo:
        path, value = todo.pop()
        if isinstance(value, Param) and _is_path(path):
            tree = _with(tree, path, value)
        elif isinstance(value, Mapping) and not isinstance(value, Param):
            todo += [((*path, *_parts(key)), inner) for key, inner in value.items()]
        else:
            problems.append(_no_entry(path, value))
    if problems:
        raise ValidationError(reversed(problems))
    return tree


def _no_entry(path: Any, value: Any) -> Diagnostic:
    if _is_path(path):
        message, hint = f"expected a Param, got a {type(value).__name__}", "wrap the value: Param(value)"
    else:
        message = f"expected a path of names that are text and not empty, got {path!r}"
        hint = "such as ('net', 'mlp', 'kernel')"
    return Diagnostic("NQX411", "error", message, path=_shown(path if isinstance(path, tuple) else (path,)), hint=hint)


def _parts(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else () if key == _HERE else (key,)


def _is_path(path: Any) -> bool:
    return isinstance(path, tuple) and bool(path) and all(isinstance(part, str) and part for part in path)


def _with(tree: _Tree, path: Path, param: Any) -> _Tree:
    """A tree with one more parameter; what lies beside the path is shared with the old one."""
    head, rest = path[0], path[1:]
    inner = tree.get(head)
    if not rest and not isinstance(inner, dict):
        return {**tree, head: param}
    below: _Tree = inner if isinstance(inner, dict) else {} if inner is None else {_HERE: inner}
    return {**tree, head: _with(below, rest, param) if rest else {**below, _HERE: param}}


def _find(tree: _Tree, path: tuple[Any, ...]) -> Any:
    """What stands at a path, or None."""
    here: Any = tree
    for part in path:
        here = here.get(part) if isinstance(here, dict) else None
    return here.get(_HERE) if isinstance(here, dict) else here


def _entries(tree: _Tree) -> Iterator[tuple[Path, Any]]:
    """Paths and parameters, sorted by path."""
    todo: list[tuple[Path, Any]] = [((), tree)]
    while todo:
        path, here = todo.pop()
        if isinstance(here, dict):
            todo += [((*path, key) if key else path, here[key]) for key in sorted(here, reverse=True)]
        else:
            yield path, here


class Params(Struct):
    """All state of a model: a flat, immutable mapping from paths to :class:`Param`, in sorted order.

    A change gives new Params; what has not changed is shared. Once locked, values may still change, but no path may
    appear: a misspelt name is an error instead of a fresh parameter.

    Args:
        tree: Parameters by path; kept as nested dicts, which is how they are saved: ``$.tree['net']['mlp']['kernel']``.
        is_locked: Whether new paths are refused.

    Raises:
        ValidationError: Something is no path, or no Param.

    Example:
        >>> params = Params({("net", "w"): Param(1.0), ("net", "n"): Param(0, trainable=False)}).locked()
        >>> trainable, other = params.split()
        >>> jax.tree.map(lambda w: w - 0.5, trainable).merge(other)[("net", "w")].value
        0.5
    """

    tree: Mapping[Any, Any] = field(default_factory=dict, converter=_nested, doc="Parameters, as dicts of dicts.")
    is_locked: bool = field(static=True, default=False, converter=bool, doc="Whether new paths are refused.")

    @property
    def _tree(self) -> _Tree:
        return cast("_Tree", self.tree)

    def _made_of(self, tree: _Tree, *, is_locked: bool | None = None) -> Self:
        # The parameters have been checked when they came in; checking them all again would make n changes cost n * n.
        locked = self.is_locked if is_locked is None else is_locked
        return type(self).__nqx_assemble__({"tree": tree, "is_locked": locked})

    def __getitem__(self, path: Path) -> Param:
        found = _find(self._tree, path) if _is_path(path) else None
        if found is None:
            self._missing(path, "expected a path that has a parameter, got one without")
        param: Param = found
        return param

    def _missing(self, path: Any, message: str) -> NoReturn:
        known = ["/".join(known) for known in self]
        wanted = "/".join(map(str, path)) if isinstance(path, tuple) else str(path)
        hint = did_you_mean(wanted, known) if _is_path(path) else "paths are tuples of names: ('net', 'mlp', 'kernel')"
        raise ParamsError(message, path=_shown(path if isinstance(path, tuple) else (path,)), hint=hint)

    def __iter__(self) -> Iterator[Path]:
        return (path for path, _ in _entries(self._tree))

    def __len__(self) -> int:
        return sum(1 for _ in _entries(self._tree))

    def __contains__(self, path: object) -> bool:
        return _is_path(path) and _find(self._tree, path) is not None  # type: ignore[arg-type]

    def keys(self) -> KeysView[Path]:
        """Paths, sorted."""
        return dict(_entries(self._tree)).keys()

    def values(self) -> ValuesView[Param]:
        """Parameters, sorted by path."""
        return dict(_entries(self._tree)).values()

    def items(self) -> ItemsView[Path, Param]:
        """Paths and parameters, sorted by path."""
        return dict(_entries(self._tree)).items()

    def get(self, path: Path, default: Any = None) -> Any:
        """The parameter at ``path``, or ``default``."""
        found = _find(self._tree, path) if _is_path(path) else None
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
        if not _is_path(path) or not isinstance(param, Param):
            raise ValidationError(_no_entry(path, param))
        if self.is_locked and path not in self:
            self._refuse_new(path)
        return self._made_of(_with(self._tree, path, param))

    def _refuse_new(self, path: Path) -> NoReturn:
        self._missing(path, "expected the path of a parameter, because the params are locked, got a new path")

    def locked(self) -> Self:
        """The same params, which refuse new paths."""
        return self._made_of(self._tree, is_locked=True)

    def unlocked(self) -> Self:
        """The same params, which accept new paths."""
        return self._made_of(self._tree, is_locked=False)

    def split(self, *filters: Filter) -> tuple[Self, ...]:
        """Params sorted into groups; :meth:`merge` puts them together again.

        Args:
            *filters: Filters as in :func:`neuralqx_struct.split`, asked about each path and Param, one group for each;
                ``...`` takes the rest. Without filters the groups are what is trainable and what is not.

        Raises:
            FilterError: A parameter matches no filter; it is a ValueError.
        """
        groups = split_leaves(_entries(self._tree), *(filters or (_is_trainable, ...)))
        return tuple(self._made_of(_nested_of(group)) for group in groups)

    def merge(self, other: Params, *, on_conflict: Literal["override", "error"] = "override") -> Self:
        """These params and others; locked if these are.

        Args:
            other: More params. The lock does not keep them out: nothing is created, two groups become one.
            on_conflict: What becomes of a path that both have: ``override`` takes the other's, ``error`` refuses.

        Raises:
            FilterError: With ``on_conflict="error"``: both have a path; it is a ValueError.
            ValueError: Another word.
            TypeError: ``other`` is not Params.
        """
        if not isinstance(other, Params):
            raise TypeError(f"merge(): expected Params, got a {type(other).__name__}")
        if on_conflict not in ("override", "error"):
            raise ValueError(f"on_conflict=: expected 'override' or 'error', got {on_conflict!r}")
        if on_conflict == "error":
            merge_leaves(self.items(), other.items())
        tree = self._tree
        for path, param in _entries(other._tree):
            tree = _with(tree, path, param)
        return self._made_of(tree)

    def __repr__(self) -> str:
        lines = [
            f"    {'/'.join(path)}: {brief(getattr(p, 'value', p))}{'' if getattr(p, 'trainable', True) else ' (frozen)'},\n"
            for path, p in islice(_entries(self._tree), _SHOWN)
        ]
        more = len(self) - len(lines)
        lines += [f"    ... {more:,} more,\n"] if more else []
        body = f"\n{''.join(lines)}" if lines else ""
        return f"Params({body}{'locked' if self.is_locked else 'unlocked'})"


Mapping.register(Params)


def _is_trainable(_: tuple[Hashable, ...], param: Any) -> bool:
    return bool(param.trainable)


def _nested_of(entries: Iterable[tuple[Any, Any]]) -> _Tree:
    tree: _Tree = {}
    for path, param in entries:
        tree = _with(tree, path, param)
    return tree


# ---------------------------------------------------------------------------------------------------------------------
# Computation.


class Module:
    """A computation that is bound to one node of a graph and keeps its state in Params, not in itself.

    Args:
        graph: The node; not a root, and not bound yet.
        rng: Where :meth:`get_param` draws keys from; by default the only Rng of the graph.

    Raises:
        GraphError: The node is a root or bound already; it is a ValueError.

    Example:
        >>> class Scale(Module):
        ...     def __call__(self, params, x):
        ...         w, params = self.get_param(params, "w", (), jax.nn.initializers.ones)
        ...         return w * x, params
        >>> graph = Graph("net")
        >>> rng, scale = Rng(graph / "rng"), Scale(graph / "scale")
        >>> y, params = scale(rng.seed(Params(), 0), 3.0)
        >>> float(y)
        3.0
    """

    graph: Graph
    rng: Rng | None

    def __init__(self, graph: Graph, rng: Rng | None = None) -> None:
        if not isinstance(graph, Graph):
            raise GraphError(f"expected a Graph to bind {type(self).__name__} to, got a {type(graph).__name__}")
        if graph.parent is None:
            raise GraphError(
                f"expected a child node to bind {type(self).__name__} to, got the root",
                path=_shown(graph.path),
                hint="bind to graph.child(name)",
            )
        if graph.module is not None:
            raise GraphError(
                f"expected a node that is free for {type(self).__name__}, got one that is bound to a "
                f"{type(graph.module).__name__}",
                path=_shown(graph.path),
                hint="make a node for each module with graph.child(name)",
            )
        graph._module = self  # noqa: SLF001 - binding is the one thing that happens to a node
        self.graph = graph
        self.rng = rng

    @property
    def path(self) -> Path:
        """The path of the node."""
        return self.graph.path

    def get_param(
        self,
        params: Params,
        name: str,
        shape: Sequence[int],
        init: Init,
        dtype: Any = jnp.float32,
        *,
        trainable: bool = True,
        metadata: Mapping[str, Any] | None = None,
    ) -> tuple[Any, Params]:
        """The value of a parameter of this module; the first call makes it.

        Args:
            params: All state.
            name: Name below this module's path.
            shape: The shape.
            init: ``init(key, shape, dtype)``, as in ``jax.nn.initializers``; called on the first call only.
            dtype: The dtype that ``init`` is asked for.
            trainable: Whether gradients change it.
            metadata: What to note about it, such as ``{"sharding": ("model", None)}``.

        Returns:
            The value and the params, which the first call has extended by the parameter and advanced in their counter.

        Raises:
            ParamsError: There is no such parameter, and the params are locked or no Rng can give a key; it is a KeyError.
            ValidationError: The parameter is there and has another shape.
        """
        path = (*self.path, name)
        wanted = tuple(shape)
        if path in params:
            value = params[path].value
            got = getattr(value, "shape", wanted)
            if tuple(got) != wanted:
                raise ValidationError(
                    f"expected shape {list(wanted)}, got {brief(value)}",
                    code="NQX412",
                    path=_shown(path),
                    hint=f"the params were made for another {type(self).__name__}",
                )
            return value, params
        if params.is_locked:
            params._refuse_new(path)  # noqa: SLF001 - so that init does not run in vain
        key, params = self._rng_for(path)(params)
        value = init(key, wanted, dtype)
        return value, params.set(path, Param(value, trainable=trainable, metadata=metadata or {}))

    def set_param(self, params: Params, name: str, value: Any) -> Params:
        """Params with another value of a parameter of this module, such as a running mean.

        Raises:
            ParamsError: There is no such parameter; it is a KeyError.
        """
        path = (*self.path, name)
        return params.set(path, params[path].replace(value=value))

    def _rng_for(self, path: Path) -> Rng:
        found = [self.rng] if self.rng is not None else [m for _, m in self.graph.root.walk() if isinstance(m, Rng)]
        if len(found) != 1:
            raise ParamsError(
                f"expected one Rng to draw the first value from, got {len(found)} in the graph",
                path=_shown(path),
                hint=f"pass it on: {type(self).__name__}(graph, rng=rng)",
            )
        return found[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'/'.join(self.path)!r})"


class Rng(Module):
    """Random keys as explicit state: a seed and a counter in the params; the n-th key is ``fold_in(seed, n)``.

    Under vmap and shard_map all lanes draw the same keys, unless the seed has the lane's index folded in.

    Example:
        >>> rng = Rng(Graph("net") / "rng")
        >>> params = rng.seed(Params(), seed=42)
        >>> first, params = rng(params)
        >>> second, params = rng(params)
        >>> int(rng.get_counter(params))
        2
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)

    def seed(self, params: Params, seed: Any) -> Params:
        """Set the seed. The counter goes on where it is, so that a seed that is folded and restored repeats no key.

        Args:
            params: All state.
            seed: An integer, or a key as ``jax.random.key`` and ``fold_in`` make it.

        Raises:
            ValidationError: It is neither.
        """
        params = params.set((*self.path, "seed"), Param(_as_key(seed, self.path), trainable=False))
        counter = (*self.path, "counter")
        return params if counter in params else params.set(counter, Param(jnp.uint32(0), trainable=False))

    def get_seed(self, params: Params) -> Any:
        """The seed, as a key.

        Raises:
            ParamsError: The seed was not set; it is a KeyError.
        """
        return self._state(params, "seed")

    def get_counter(self, params: Params) -> Any:
        """How many keys have been drawn.

        Raises:
            ParamsError: The seed was not set; it is a KeyError.
        """
        return self._state(params, "counter")

    def _state(self, params: Params, name: str) -> Any:
        path = (*self.path, name)
        if path not in params:
            raise ParamsError(
                f"expected a {name} in the params, got none: the seed must be set first",
                path=_shown(path),
                hint="params = rng.seed(params, seed=42)",
            )
        return params[path].value

    def __call__(self, params: Params) -> tuple[Any, Params]:
        """Draw a key.

        Returns:
            The key, and the params with the counter advanced.

        Raises:
            ParamsError: The seed was not set; it is a KeyError.
        """
        counter = self.get_counter(params)
        key = jax.random.fold_in(self.get_seed(params), counter)
        return key, self.set_param(params, "counter", counter + 1)


def _as_key(seed: Any, path: Path) -> Any:
    dtype = getattr(seed, "dtype", None)
    if dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return seed
    if (type(seed) is int) or (dtype is not None and seed.shape == () and jnp.issubdtype(dtype, jnp.integer)):
        return jax.random.key(seed)
    raise ValidationError(
        f"expected an integer or a key of jax.random.key, got {brief(seed)}",
        code="NQX420",
        path=_shown((*path, "seed")),
        hint="wrap the words of an old key with jax.random.wrap_key_data",
    )
