"""Modules: what computes, bound to one node of a graph; its state is in Params, not in itself.

Owns how a module finds and makes its parameters, and :class:`Rng`, random keys as explicit state, which is the one module that
is here: layers are not ours. What state is says ``params.py``.

Example:
    >>> graph = Graph("net")
    >>> rng = Rng(graph / "rng")
    >>> params = rng.seed(Params(), seed=42)
    >>> key, params = rng(params)
    >>> sorted(params)
    [('net', 'rng', 'counter'), ('net', 'rng', 'seed')]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from neuralqx_struct.errors import ValidationError
from neuralqx_struct.graph import Graph, GraphError
from neuralqx_struct.params import Param, Params, ParamsError
from neuralqx_struct.paths import format_path
from neuralqx_struct.printing import brief

__all__ = ["Module", "Rng", "SeedError"]

Path = tuple[str, ...]
Init = Callable[[Any, tuple[int, ...], Any], Any]


class SeedError(ParamsError, ValueError):
    """An Rng is to be seeded, and nothing says with what."""


class Module:
    """A computation that is bound to one node of a graph and keeps its state in Params, not in itself.

    Args:
        graph: The node; not a root, and not bound yet.
        rng: Where :meth:`get_param` draws keys from if it is not told; by default the only Rng of the graph.

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
                path=format_path(graph.path),
                hint="bind to graph.child(name)",
            )
        if graph.module is not None:
            raise GraphError(
                f"expected a node that is free for {type(self).__name__}, got one that is bound to a "
                f"{type(graph.module).__name__}",
                path=format_path(graph.path),
                hint="make a node for each module with graph.child(name)",
            )
        graph._module = self  # noqa: SLF001 - binding is the one thing that happens to a node
        self.graph = graph
        self.rng = rng

    def __getattr__(self, name: str) -> Any:
        if name not in ("graph", "rng"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        # No AttributeError: behind a property, Python would report that one as missing.
        raise GraphError(
            f"expected a module that is bound to a graph, got one without {name!r}",
            path=type(self).__name__,
            hint="call super().__init__(graph) first in its __init__",
        )

    @property
    def path(self) -> Path:
        """The path of the node."""
        return self.graph.path

    def param_path(self, name: str) -> Path:
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
        metadata: Mapping[str, Any] | None = None,
        rng: Rng | None = None,
    ) -> tuple[Any, Params]:
        """The value of a parameter of this module; the first call makes it.

        Args:
            params: All state.
            name: Name below this module's path.
            shape: The shape; may be left out where the parameter is known to be there.
            init: ``init(key, shape, dtype)``, as in ``jax.nn.initializers``; called on the first call only.
            dtype: The dtype that ``init`` is asked for.
            trainable: Whether gradients change it.
            metadata: What to note about it, such as ``{"sharding": ("model", None)}``.
            rng: Where to draw the key from; then one is drawn for constants too, so that another ``init`` changes no key
                that is drawn later. If nothing is said, ``init`` gets None as its key; where it needs one, it gets one
                from this module's Rng, else from the only one of the graph.

        Returns:
            The value and the params, which the first call has extended by the parameter and advanced in their counter.

        Raises:
            ParamsError: There is no such parameter, and the params are locked, no shape and init are given, or no Rng can
                give the key that ``init`` needs; it is a KeyError.
            ValidationError: The parameter is there and has another shape.
        """
        path = self.param_path(name)
        if path in params:
            value = params[path].value
            if shape is not None:
                self._check_shape(path, value, tuple(shape))
            return value, params
        if params.is_locked:
            params._refuse_new(path)  # noqa: SLF001 - so that init does not run in vain
        if shape is None or init is None:
            raise ParamsError(
                "expected a parameter that is there, got none, and no shape and init to make it with",
                path=format_path(path),
                hint=f"self.get_param(params, {name!r}, shape, init)",
            )
        value, params = self._first_value(params, path, lambda key: init(key, tuple(shape), dtype), rng)
        return value, params.set(path, Param(value, trainable=trainable, metadata=metadata or {}))

    def _first_value(
        self, params: Params, path: Path, init: Callable[[Any], Any], rng: Rng | None
    ) -> tuple[Any, Params]:
        if rng is None:
            try:
                return init(None), params
            except (TypeError, AttributeError) as error:  # it needs a key
                rng = self._rng_for(path, error)
        key, params = rng(params)
        return init(key), params

    def _check_shape(self, path: Path, value: Any, wanted: tuple[int, ...]) -> None:
        if tuple(getattr(value, "shape", wanted)) != wanted:
            raise ValidationError(
                f"expected shape {list(wanted)}, got {brief(value)}",
                code="NQX412",
                path=format_path(path),
                hint=f"the params were made for another {type(self).__name__}",
            )

    def set_param(
        self,
        params: Params,
        name: str,
        value: Any = None,
        trainable: bool | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Params:
        """Params with a parameter of this module changed, such as a running mean.

        Args:
            params: All state.
            name: Name below this module's path.
            value: The new value; None keeps the old one.
            trainable: Whether gradients change it from now on; None keeps what it is.
            metadata: What to note besides what is noted already.

        Raises:
            ParamsError: There is no such parameter; it is a KeyError.
            ValueError: Nothing is to be changed.
        """
        path = self.param_path(name)
        old = params[path]
        given = {"value": value, "trainable": trainable}
        changes = {what: change for what, change in given.items() if change is not None}
        if metadata is not None:
            changes["metadata"] = {**old.metadata, **metadata}
        if not changes:
            raise ValueError(f"{format_path(path)}: expected a value, trainable or metadata to set, got none of them")
        return params.set(path, old.replace(**changes))

    def _rng_for(self, path: Path, error: Exception) -> Rng:
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
        >>> params = rng.seed(Params(), seed=42)
        >>> first, params = rng(params)
        >>> second, params = rng(params)
        >>> int(rng.get_counter(params))
        2
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)

    def seed(self, params: Params, seed: Any = None, *, counter: Any = None) -> Params:
        """Set the seed. The counter goes on where it is, so that a seed that is folded and restored repeats no key.

        Args:
            params: All state.
            seed: An integer, or a key as ``jax.random.key`` and ``fold_in`` make it; None keeps the old one.
            counter: How many keys are to count as drawn; by default none at first, and what it is later.

        Raises:
            SeedError: There is no seed yet and none is given, or neither is given; it is a ValueError and a KeyError.
            ValidationError: The seed is neither an integer nor a key.
        """
        if seed is not None:
            params = self._put(params, "seed", _as_key(seed, self.path))
        elif counter is None or self.param_path("seed") not in params:
            what = "a seed or a counter to set" if counter is None else "a seed beside the counter"
            raise SeedError(
                f"expected {what}, got none: the seed must be set first",
                path=format_path(self.param_path("seed")),
                hint="params = rng.seed(params, seed=42)",
            )
        if counter is None and self.param_path("counter") in params:
            return params
        return self._put(params, "counter", jnp.uint32(0 if counter is None else counter))

    def _put(self, params: Params, name: str, value: Any) -> Params:
        path = self.param_path(name)
        held = params.get(path)
        made = (
            Param(value, trainable=False, metadata={"tag": f"rng_{name}"})
            if held is None
            else held.replace(value=value)
        )
        return params.set(path, made)

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
        path = self.param_path(name)
        if path not in params:
            raise ParamsError(
                f"expected a {name} in the params, got none: the seed must be set first",
                path=format_path(path),
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
        return key, self._put(params, "counter", counter + 1)


def _as_key(seed: Any, path: Path) -> Any:
    dtype = getattr(seed, "dtype", None)
    if dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return seed
    if (type(seed) is int) or (dtype is not None and seed.shape == () and jnp.issubdtype(dtype, jnp.integer)):
        return jax.random.key(seed)
    raise ValidationError(
        f"expected an integer or a key of jax.random.key, got {brief(seed)}",
        code="NQX420",
        path=format_path((*path, "seed")),
        hint="wrap the words of an old key with jax.random.wrap_key_data",
    )
