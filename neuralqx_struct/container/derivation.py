"""Derivation: plain classes that become containers by naming their attributes.

Owns :func:`derive` and what is known of each class that was derived. Walks and saves nothing itself: that a derived class is a
pytree is enough for the modules beside it.

Example:
    >>> @derive(containers=["mean"], keep=["name"])
    ... class Estimate:
    ...     def __init__(self, mean=0.0, name="energy"):
    ...         self.mean, self.name, self.cache = mean, name, {}
    >>> jax.tree.map(lambda x: 2 * x, Estimate(1.5)).mean
    3.0
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, overload

import jax
from jax.tree_util import GetAttrKey

from neuralqx_struct.container.attributes import attributes, check_names, declared_defaults, fresh
from neuralqx_struct.container.completion import complete
from neuralqx_struct.errors import SerializationError, ValidationError
from neuralqx_struct.fieldspec import is_struct
from neuralqx_struct.pytree import Layout, Pair
from neuralqx_struct.pytree_types import register_pytree_type

__all__ = ["Derivation", "derivation_of", "derive", "pairs_of"]

C = TypeVar("C")
Items = list[tuple[Hashable, Any]]


class Hooks(NamedTuple):
    """How a class says itself what is saved of it."""

    serialize: Callable[[Any], tuple[Iterable[tuple[Hashable, Any]], Any]]
    deserialize: Callable[[Items, Any], Any]


class Derivation:
    """What :func:`derive` was told about a class: its containers as nodes, what it keeps as statics."""

    def __init__(self, cls: type, layout: Layout, hooks: Hooks | None) -> None:
        self.cls = cls
        self.layout = layout
        self.hooks = hooks
        self.named = (*layout.nodes, *layout.statics)
        self._making = threading.RLock()
        self._defaults: Mapping[str, Any] | None = None

    @cached_property
    def has_defaults(self) -> bool:
        """True if ``C()`` needs no argument."""
        try:
            inspect.signature(self.cls).bind()
        except TypeError:
            return False
        except ValueError:  # a class without a readable signature; calling it will tell
            return True
        return True

    def defaults(self) -> Mapping[str, Any]:
        """The attributes of one ``C()``, made when first needed; without it what a dataclass declares, or nothing."""
        with self._making:
            if self._defaults is None:
                # Outside of any trace: what is made once must not hold a tracer of the first caller.
                with jax.ensure_compile_time_eval():
                    self._defaults = attributes(self.cls()) if self.has_defaults else declared_defaults(self.cls)
            return self._defaults

    def flatten(self, obj: Any) -> Pair:
        """The containers and what is kept.

        Raises:
            ValidationError: One of them is not there, or something else could not be reset to a default.
        """
        values = attributes(obj)
        missing = [name for name in self.named if name not in values and not hasattr(obj, name)]
        if missing:
            raise ValidationError(
                f"expected the attributes that derive() names, got none of the name {', '.join(map(repr, missing))}",
                path=self.cls.__name__,
                code="NQX414",
                hint="set them in __init__",
            )
        if not self.has_defaults:
            others = values.keys() - set(self.named) - self.defaults().keys()
            if others:
                raise ValidationError(
                    f"expected a default for {', '.join(sorted(others))}, got none: {self.cls.__name__}() needs arguments\n"
                    "attributes that are neither containers nor kept are reset to their defaults",
                    path=self.cls.__name__,
                    code="NQX414",
                    hint="name them in containers= or keep=, or give every argument of __init__ a default",
                )
        return self.layout.pair({name: getattr(obj, name) for name in self.named}, self.cls.__name__)

    def unflatten(self, aux: tuple[Any, ...], children: Iterable[Any]) -> Any:
        """The inverse of :meth:`flatten`; all other attributes have their defaults."""
        values = {name: fresh(value) for name, value in self.defaults().items()}
        values.update(self.layout.values((tuple(children), aux)))
        obj: Any = object.__new__(self.cls)
        for name, value in values.items():
            object.__setattr__(obj, name, value)
        return obj

    def parts(self, obj: Any, items: Items) -> tuple[Items, Any]:
        """What the containers hold, and what is needed beside that: as the class says, else what it keeps by name."""
        if self.hooks is None:
            return items, {name: getattr(obj, name) for name in self.layout.statics}
        made: Any = self.hooks.serialize(obj)
        if not isinstance(made, tuple) or len(made) != 2:
            raise SerializationError(
                f"expected (pairs of key and container, metadata) from serialize=, got a {type(made).__name__}",
                path=self.cls.__name__,
                code="NQX430",
                hint="return both, metadata as None where there is none",
            )
        return pairs_of(made[0], self.cls), made[1]

    def whole(self, items: Items, metadata: Any) -> Any:
        """The inverse of :meth:`parts`; what was not stored gets its default, what is not known is refused.

        Raises:
            SerializationError: The fields are not those of the class.
        """
        if self.hooks is not None:
            made = self.hooks.deserialize(items, metadata)
            if not isinstance(made, self.cls):
                raise SerializationError(
                    f"expected an instance of {self.cls.__name__} from deserialize=, got a {type(made).__name__}",
                    path=self.cls.__name__,
                    code="NQX401",
                    hint="return what was made of the pairs and the metadata",
                )
            return made
        defaults = self.defaults()
        stored = {**dict(items), **metadata}
        values = complete(self.cls, stored, self.named, defaults.__contains__, defaults.__getitem__)
        return self.unflatten(self.layout.pair(values, self.cls.__name__)[1], [values[n] for n in self.layout.nodes])

    def save(self, obj: Any) -> dict[str, Any]:
        """What a bundle holds of an instance."""
        children, _ = self.flatten(obj)
        items, metadata = self.parts(obj, list(zip(self.layout.nodes, children, strict=True)))
        if self.hooks is None:
            return {**dict(items), **metadata}
        return {"containers": items, "metadata": metadata}

    def restore(self, payload: Any) -> Any:
        """The inverse of :meth:`save`."""
        if not isinstance(payload, Mapping):
            raise SerializationError(f"expected the fields of {self.cls.__name__}, got a {type(payload).__name__}")
        if self.hooks is None:
            return self.whole(list(payload.items()), {})
        match payload:
            case {"containers": list(items), "metadata": metadata, **rest} if not rest:
                return self.whole(items, metadata)
        raise SerializationError(
            f"expected the containers and metadata of {self.cls.__name__}, got {', '.join(map(str, payload)) or 'nothing'}"
        )


_DERIVED: dict[type, Derivation] = {}


def pairs_of(items: Iterable[Any], cls: type) -> Items:
    """What a container holds, as pairs of key and container.

    Raises:
        TypeError: One of them is no pair.
    """
    pairs = list(items)
    wrong = [item for item in pairs if not isinstance(item, (tuple, list)) or len(item) != 2]
    if wrong:
        raise TypeError(f"{cls.__name__}: expected pairs of key and container, got {wrong[0]!r} among them")
    return pairs


def derivation_of(cls: type) -> Derivation | None:
    """What is known of a class that :func:`derive` has decorated."""
    return _DERIVED.get(cls)


@overload
def derive(*, containers: Sequence[str], keep: Sequence[str] = ...) -> Callable[[type[C]], type[C]]: ...
@overload
def derive(
    *,
    containers: Sequence[str],
    keep: Sequence[str] = ...,
    serialize: Callable[[Any], tuple[Iterable[tuple[Hashable, Any]], Any]],
    deserialize: Callable[[Items, Any], Any],
) -> Callable[[type[C]], type[C]]: ...
def derive(
    cls: Any = None,
    /,
    *,
    containers: Sequence[str] | None = None,
    keep: Sequence[str] = (),
    serialize: Callable[[Any], tuple[Iterable[tuple[Hashable, Any]], Any]] | None = None,
    deserialize: Callable[[Items, Any], Any] | None = None,
) -> Callable[[type[C]], type[C]]:
    """Make a plain class a container: a pytree that is walked, saved and compared like a Struct.

    Inside transformations the containers are traced, and every other attribute is reset to its default: to what one
    instance made by ``C()`` holds. What is kept becomes part of the jit cache key: a function is compiled for
    each of its values, so keep only what is used while compiling.

    Args:
        cls: Nothing: that ``@derive`` alone is refused in words.
        containers: Attributes that hold arrays, numbers or containers.
        keep: Attributes that keep their value; it must be hashable and hold no array.
        serialize: ``serialize(obj) -> (pairs of key and container, metadata)``: what is saved of an instance, where that is
            not simply the containers and what is kept.
        deserialize: ``deserialize(pairs, metadata) -> obj``, the inverse.

    Returns:
        A decorator that gives the class itself back.

    Raises:
        TypeError: ``containers`` is missing, it or ``keep`` is not a sequence of names, or what is decorated is not a
            plain class.
        ValueError: One of ``serialize`` and ``deserialize`` is given, a name stands twice or nowhere in the class, or the
            class is registered already.

    Example:
        >>> @derive(containers=["w"])
        ... class Layer:
        ...     def __init__(self, w=None):
        ...         self.w, self.calls = w, 0
        >>> layer = Layer(1.0)
        >>> layer.calls = 7
        >>> jax.tree.map(lambda x: x + 1, layer).calls
        0
    """
    if cls is not None or containers is None:
        got = "neither" if cls is None else f"{cls!r} in their place"
        raise TypeError(
            f"derive(): expected the containers by keyword, got {got}\n"
            '  name the attributes that hold arrays: @derive(containers=["mean"]); @derive alone has none to go by'
        )
    nodes, statics = (_names(given, what) for given, what in ((containers, "containers"), (keep, "keep")))
    twice = sorted({name for name in (*nodes, *statics) if (*nodes, *statics).count(name) > 1})
    if twice:
        raise ValueError(f"derive(): expected each attribute once, got {', '.join(twice)} twice")

    if (serialize is None) != (deserialize is None):
        raise ValueError("derive(): expected serialize and deserialize, or neither, got one of them")
    for name, hook in (("serialize", serialize), ("deserialize", deserialize)):
        if hook is not None and not callable(hook):
            raise TypeError(f"derive(): expected a function as {name}, got {hook!r}")
    hooks = None if serialize is None or deserialize is None else Hooks(serialize, deserialize)

    def decorate(cls: type[C]) -> type[C]:
        if not isinstance(cls, type) or is_struct(cls):
            raise TypeError(
                f"derive(): expected a plain class, got {cls!r}; the containers of a Struct are its node fields"
            )
        check_names(cls, (*nodes, *statics))
        derivation = Derivation(cls, Layout(nodes, statics, ()), hooks)
        keys = tuple(map(GetAttrKey, nodes))

        def flatten_with_keys(obj: Any) -> tuple[Iterable[tuple[Any, Any]], Any]:
            children, aux = derivation.flatten(obj)
            return tuple(zip(keys, children, strict=True)), aux

        register_pytree_type(
            cls,
            flatten=derivation.flatten,
            unflatten=derivation.unflatten,
            flatten_with_keys=flatten_with_keys,
            serializer=derivation.save,
            deserializer=derivation.restore,
        )
        _DERIVED[cls] = derivation
        return cls

    return decorate


def _names(given: Any, what: str) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable) or not all(isinstance(n, str) for n in (*given,)):
        raise TypeError(f"derive(): expected a list of attribute names as {what}, got {given!r}")
    return tuple(given)
