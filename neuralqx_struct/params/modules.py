"""Modules and their graph: the tree of names of a model, computations bound to its nodes, and random keys.

The state of a module is in Params, not in itself. :class:`Rng` is the only module here: layers are out of scope.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from neuralqx_struct.errors import StructError, ValidationError
from neuralqx_struct.fieldspec import Values
from neuralqx_struct.params import Param, Params, ParamsError
from neuralqx_struct.paths import TreePath, format_path
from neuralqx_struct.printing import brief

__all__ = ["Graph", "GraphError", "Module", "Rng", "SeedError"]

Init = Callable[[Any, tuple[int, ...], Any], Any]
Notes: TypeAlias = Values | None


class GraphError(StructError, ValueError):
    """A module cannot be bound to a node of a graph, or a node cannot be created."""

    default_code = "NQX118"


class SeedError(ParamsError, ValueError):
    """An Rng has no seed, and none is given."""


class Graph:
    """One node of the tree of names of a model; compared by identity, with a fixed name and place.

    Args:
        name: The name of the root; any text that is not empty.
        metadata: Free mapping for tools.

    Example:
        >>> mlp = Graph("net") / "mlp"
        >>> mlp.child("dense1").path
        ('net', 'mlp', 'dense1')
    """

    __slots__ = ("__weakref__", "_children", "_metadata", "_module", "_parent", "_path")

    def __init__(self, name: str, *, metadata: Notes = None, _parent: Graph | None = None) -> None:
        above = () if _parent is None else _parent.path
        if not isinstance(name, str) or not name:
            message = f"expected a name that is text and not empty, got {name!r}"
            raise GraphError(message, path=format_path(above))
        self._parent = _parent
        self._path: TreePath = (*above, name)
        self._metadata = dict(metadata or {})
        self._children: dict[str, Graph] = {}
        self._module: Module | None = None

    def child(self, name: str, *, metadata: Notes = None) -> Graph:
        """Creates the node ``name`` below this one.

        Raises:
            GraphError: There is a child of this name, or the name is empty; it is a ValueError.
        """
        if name in self._children:
            raise GraphError(
                f"expected a name that is free, got {name!r}, which is a child already",
                path=format_path((*self._path, name)),
                hint="two modules at one path would share their parameters; give each a name of its own",
            )
        node = self._children[name] = Graph(name, metadata=metadata, _parent=self)
        return node

    def __truediv__(self, name: str) -> Graph:
        """Creates a node, as :meth:`child`."""
        return self.child(name)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self._path[-1]

    @property
    def path(self) -> TreePath:
        """All names from the root to here."""
        return self._path

    @property
    def parent(self) -> Graph | None:
        """The node above; None for a root."""
        return self._parent

    @property
    def root(self) -> Graph:
        """The node without a parent."""
        return self if self._parent is None else self._parent.root

    @property
    def children(self) -> Mapping[str, Graph]:
        """The nodes right below, by name."""
        return MappingProxyType(self._children)

    @property
    def metadata(self) -> Values:
        """The free mapping for tools."""
        return MappingProxyType(self._metadata)

    @property
    def module(self) -> Module | None:
        """The module that is bound to this node, or None."""
        return self._module

    def walk(self) -> Iterator[tuple[TreePath, Module]]:
        """Yields all modules below this node with their paths: parents first, siblings in order of creation."""
        for node in self._children.values():
            if node.module is not None:
                yield node.path, node.module
            yield from node.walk()

    def __repr__(self) -> str:
        return f"Graph({'/'.join(self._path)!r})"


class Module:
    """A computation that is bound to one node of a graph and keeps its state in Params.

    Args:
        graph: The node; not a root, and not bound yet.
        rng: The source of keys for :meth:`get_param`; by default the only Rng of the graph.

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
        name = type(self).__name__
        if not isinstance(graph, Graph):
            raise GraphError(f"expected a Graph to bind {name} to, got a {type(graph).__name__}")
        if graph.parent is None:
            raise GraphError(
                f"expected a child node to bind {name} to, got the root",
                path=format_path(graph.path),
                hint="bind to graph.child(name)",
            )
        if graph.module is not None:
            bound = type(graph.module).__name__
            raise GraphError(
                f"expected a node that is free for {name}, got one that is bound to a {bound}",
                path=format_path(graph.path),
                hint="make a node for each module with graph.child(name)",
            )
        graph._module = self  # noqa: SLF001 - binding is the only change of a node
        self.graph = graph
        self.rng = rng

    def __getattr__(self, name: str) -> Any:
        cls = type(self).__name__
        if name not in ("graph", "rng"):
            message = f"{cls!r} object has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=self)
        # Not an AttributeError: behind a property, Python would report the property as missing.
        raise GraphError(
            f"expected a module that is bound to a graph, got one without {name!r}",
            path=cls,
            hint="call super().__init__(graph) first in its __init__",
        )

    @property
    def path(self) -> TreePath:
        """The path of the node."""
        return self.graph.path

    def param_path(self, name: str) -> TreePath:
        """The path of a parameter of this module."""
        return (*self.path, name)

    def get_param(  # noqa: PLR0917 - in the order of jax-blox
        self,
        params: Params,
        name: str,
        shape: Sequence[int] | None = None,
        init: Init | None = None,
        dtype: Any = jnp.float32,
        trainable: bool = True,
        metadata: Notes = None,
        rng: Rng | None = None,
    ) -> tuple[Any, Params]:
        """The value of a parameter of this module; the first call creates it.

        Args:
            params: All state.
            name: Name below this module's path.
            shape: The shape; may be left out for a parameter that exists.
            init: ``init(key, shape, dtype)``, as in ``jax.nn.initializers``; called on the first call only.
            dtype: The dtype for ``init``.
            trainable: Whether gradients change it.
            metadata: Notes about it, such as ``{"sharding": ("model", None)}``.
            rng: The source of the key; one is then drawn for constants too, so that another ``init`` changes no later
                key. Without it, ``init`` gets None as its key; if it needs one, it gets one from this module's Rng, else
                from the only one of the graph.

        Returns:
            The value and the params, which the first call has extended by the parameter and advanced in their counter.

        Raises:
            ParamsError: There is no such parameter, and the params are locked, no shape and init are given, or no Rng can
                give the key that ``init`` needs; it is a KeyError.
            ValidationError: The parameter has another shape.
        """
        path = self.param_path(name)
        if path in params:
            value = params[path].value
            if shape is not None and tuple(getattr(value, "shape", shape)) != tuple(shape):
                raise ValidationError(
                    f"expected shape {[*shape]}, got {brief(value)}",
                    code="NQX412",
                    path=format_path(path),
                    hint=f"the params were made for another {type(self).__name__}",
                )
            return value, params
        params._check_new(path)  # noqa: SLF001 - so that init does not run in vain
        if shape is None or init is None:
            raise ParamsError(
                "expected a parameter that exists, got none, and no shape and init to make it with",
                path=format_path(path),
                hint=f"self.get_param(params, {name!r}, shape, init)",
            )
        if rng is None:
            try:
                value = init(None, tuple(shape), dtype)
            except (TypeError, AttributeError) as error:  # it needs a key
                rng = self._rng_for(path, error)
        if rng is not None:
            key, params = rng(params)
            value = init(key, tuple(shape), dtype)
        return value, params.set(path, Param(value, trainable=trainable, metadata=metadata or {}))

    def set_param(
        self,
        params: Params,
        name: str,
        value: Any = None,
        trainable: bool | None = None,
        metadata: Notes = None,
    ) -> Params:
        """Returns params with a parameter of this module changed, such as a running mean.

        Args:
            params: All state.
            name: Name below this module's path.
            value: The new value; None keeps the old one.
            trainable: Whether gradients change it from now on; None keeps the old setting.
            metadata: More notes, besides the old ones.

        Raises:
            ParamsError: There is no such parameter; it is a KeyError.
            ValueError: Nothing is to be changed.
        """
        path = self.param_path(name)
        old = params[path]
        joined = None if metadata is None else {**old.metadata, **metadata}
        given = {"value": value, "trainable": trainable, "metadata": joined}
        changes = {member: new for member, new in given.items() if new is not None}
        if not changes:
            raise ValueError(
                f"{format_path(path)}: expected a value, trainable or metadata to set, got none of them"
            )
        return params.set(path, old.replace(**changes))

    def _rng_for(self, path: TreePath, error: Exception) -> Rng:
        if self.rng is not None:
            return self.rng
        found = [module for _, module in self.graph.root.walk() if isinstance(module, Rng)]
        if len(found) != 1:
            raise ParamsError(
                f"expected one Rng to draw the first value from, got {len(found)} in the graph",
                path=format_path(path),
                hint=f"pass it on: {type(self).__name__}(graph, rng=rng)",
            ) from error
        return found[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'/'.join(self.path)!r})"


class Rng(Module):
    """Random keys as explicit state: a seed and a counter in the params; the n-th key is ``fold_in(seed, n)``.

    Under vmap and shard_map all lanes draw the same keys, unless the seed has the lane's index folded in.

    Example:
        >>> rng = Rng(Graph("net") / "rng")
        >>> key, params = rng(rng.seed(Params(), seed=42))
        >>> sorted(params), int(rng.get_counter(params))
        ([('net', 'rng', 'counter'), ('net', 'rng', 'seed')], 1)
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)

    def seed(self, params: Params, seed: Any = None, *, counter: Any = None) -> Params:
        """Sets the seed. The counter is kept, so that a seed that is folded and restored repeats no key.

        Args:
            params: All state.
            seed: An integer, or a key as ``jax.random.key`` and ``fold_in`` make it; None keeps the old one.
            counter: The number of keys already drawn; by default 0 at first, and unchanged later.

        Raises:
            SeedError: There is no seed yet and none is given, or neither is given; it is a ValueError and a KeyError.
            ValidationError: The seed is neither an integer nor a key.
        """
        if seed is not None:
            params = self._put(params, "seed", _as_key(seed, self.path))
        elif counter is None or self.param_path("seed") not in params:
            expected = (
                "a seed or a counter to set" if counter is None else "a seed beside the counter"
            )
            raise _unset(SeedError, expected, self.param_path("seed"))
        if counter is None and self.param_path("counter") in params:
            return params
        return self._put(params, "counter", jnp.uint32(0 if counter is None else counter))

    def _put(self, params: Params, name: str, value: Any) -> Params:
        path = self.param_path(name)
        if path in params:
            return params.set(path, params[path].replace(value=value))
        return params.set(path, Param(value, trainable=False, metadata={"tag": f"rng_{name}"}))

    def get_seed(self, params: Params) -> Any:
        """The seed, as a key; raises ParamsError if it was not set."""
        return self._state(params, "seed")

    def get_counter(self, params: Params) -> Any:
        """The number of keys already drawn; raises ParamsError if the seed was not set."""
        return self._state(params, "counter")

    def _state(self, params: Params, name: str) -> Any:
        path = self.param_path(name)
        if path not in params:
            raise _unset(ParamsError, f"a {name} in the params", path)
        return params[path].value

    def __call__(self, params: Params) -> tuple[Any, Params]:
        """Draws a key.

        Returns:
            The key, and the params with the counter advanced.

        Raises:
            ParamsError: The seed was not set; it is a KeyError.
        """
        counter = self.get_counter(params)
        key = jax.random.fold_in(self.get_seed(params), counter)
        return key, self._put(params, "counter", counter + 1)


def _unset(error: type[ParamsError], expected: str, path: TreePath) -> ParamsError:
    return error(
        f"expected {expected}, got none: the seed must be set first",
        path=format_path(path),
        hint="params = rng.seed(params, seed=42)",
    )


def _as_key(seed: Any, path: TreePath) -> Any:
    if type(seed) is int:
        return jax.random.key(seed)
    dtype = getattr(seed, "dtype", None)
    if dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return seed
    if dtype is not None and seed.shape == () and jnp.issubdtype(dtype, jnp.integer):
        return jax.random.key(seed)
    raise ValidationError(
        f"expected an integer or a key of jax.random.key, got {brief(seed)}",
        code="NQX420",
        path=format_path((*path, "seed")),
        hint="wrap the words of an old key with jax.random.wrap_key_data",
    )
