"""Derivation: plain classes that become containers by naming their attributes.

Example:
    >>> @derive(containers=["mean"], keep=["name"])
    ... class Estimate:
    ...     def __init__(self, mean=0.0, name="energy"):
    ...         self.mean, self.name, self.cache = mean, name, {}
    >>> jax.tree.map(lambda x: 2 * x, Estimate(1.5)).mean
    3.0
"""

from __future__ import annotations

import dataclasses
import inspect
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeAlias, TypeVar, overload

import jax
import numpy as np
from jax.tree_util import GetAttrKey

from neuralqx_struct.documents.instances import Pair
from neuralqx_struct.errors import Diagnostic, SerializationError, ValidationError
from neuralqx_struct.fieldspec import Names, Values, is_struct
from neuralqx_struct.matching import match, unknown_field, without_value
from neuralqx_struct.references import class_ref
from neuralqx_struct.struct.pytree import Layout
from neuralqx_struct.struct.registration import Flat, names_of, register_pytree_type

C = TypeVar("C")
Items = list[tuple[Hashable, Any]]
Serialize: TypeAlias = Callable[[Any], tuple[Iterable[tuple[Hashable, Any]], Any]]
Deserialize: TypeAlias = Callable[[Items, Any], Any]


def attributes(obj: Any) -> dict[str, Any]:
    """The state of an instance, slots included, even if its class defines its own pickling."""
    state: Any = object.__getstate__(obj)
    held, slots = state if isinstance(state, tuple) else (state, None)
    return {**(held or {}), **(slots or {})}


def declared_defaults(cls: type) -> dict[str, Any]:
    """The defaults of a dataclass in which some fields have none."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
        if field.default is not dataclasses.MISSING:
            found[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            found[field.name] = field.default_factory()
    return found


def fresh(value: Any) -> Any:
    """A default for one instance: a copy of collections and numpy arrays, other objects themselves."""
    if type(value) in (list, tuple, set):
        return type(value)(map(fresh, value))
    if type(value) is dict:
        return {key: fresh(member) for key, member in value.items()}
    return value.copy() if type(value) is np.ndarray else value


_REMOVED = "keep removed fields readable until no stored object has them"
_ADDED = "give the field a default: objects that were stored before it was added have none"


def complete(
    cls: type,
    stored: Values,
    known: Mapping[str, Callable[[], Any] | None],
) -> dict[str, Any]:
    """The values of all fields of a class: stored ones, and defaults of the others.

    Args:
        cls: The class.
        stored: The stored values.
        known: The fields, with functions that make their defaults; None for those without.

    Raises:
        SerializationError: With every stored field that is not known, and every field without a value.

    Example:
        >>> complete(complex, {"real": 1.5}, {"real": None, "imag": float})
        {'real': 1.5, 'imag': 0.0}
    """
    names = match(stored, known)
    problems: list[Diagnostic] = []
    for name in names.having("missing", "extra"):
        if known.get(name) is not None:
            continue
        path = f"{cls.__name__}.{name}"
        meant = names.meant(name, len(problems))
        if name in known:
            problems.append(without_value(path, meant or _ADDED))
        else:
            problems.append(unknown_field(path, name, cls.__name__, meant or _REMOVED))
    if problems:
        raise SerializationError(problems)
    return {
        name: stored[name] if make is None or name in stored else make()
        for name, make in known.items()
    }


class Hooks(NamedTuple):
    """Functions of a class that define its saved form."""

    serialize: Serialize
    deserialize: Deserialize


class Derivation:
    """The arguments of :func:`derive` for a class: containers as nodes, kept attributes as statics."""

    def __init__(self, cls: type, layout: Layout, hooks: Hooks | None) -> None:
        self.cls = cls
        self.layout = layout
        self.hooks = hooks
        self.named = (*layout.nodes, *layout.statics)
        self._making = threading.RLock()
        self._defaults: Values | None = None

    @cached_property
    def has_defaults(self) -> bool:
        """True if ``C()`` needs no argument."""
        with suppress(ValueError):  # a class without a readable signature: call it
            try:
                inspect.signature(self.cls).bind()
            except TypeError:
                return False
        return True

    def defaults(self) -> Values:
        """The attributes of one ``C()``, made on first use; else the defaults of a dataclass, or nothing."""
        with self._making:
            if self._defaults is None:
                # Outside of any trace: an instance that is made once must not hold a tracer of the first caller.
                with jax.ensure_compile_time_eval():
                    if self.has_defaults:
                        self._defaults = attributes(self.cls())
                    else:
                        self._defaults = declared_defaults(self.cls)
            return self._defaults

    def _missing(self, message: str, hint: str) -> ValidationError:
        return ValidationError(message, code="NQX414", path=self.cls.__name__, hint=hint)

    def flatten(self, obj: Any) -> Pair:
        """The containers and the kept attributes.

        Raises:
            ValidationError: One of them is missing, or another attribute has no default to be reset to.
        """
        values = attributes(obj)
        missing = [name for name in self.named if name not in values and not hasattr(obj, name)]
        if missing:
            names = ", ".join(map(repr, missing))
            message = f"expected the attributes that derive() names, got none of the name {names}"
            raise self._missing(message, "set them in __init__")
        if not self.has_defaults:
            others = values.keys() - set(self.named) - self.defaults().keys()
            if others:
                cls = self.cls.__name__
                raise self._missing(
                    f"expected a default for {', '.join(sorted(others))}, got none: {cls}() needs arguments\n"
                    "attributes that are neither containers nor kept are reset to their defaults",
                    "name them in containers= or keep=, or give every argument of __init__ a default",
                )
        named = {name: getattr(obj, name) for name in self.named}
        return self.layout.pair(named, self.cls.__name__)

    def unflatten(self, aux: tuple[Any, ...], children: Iterable[Any]) -> Any:
        """Builds an instance; the inverse of :meth:`flatten`. All other attributes get their defaults."""
        obj: Any = object.__new__(self.cls)
        values = {name: fresh(value) for name, value in self.defaults().items()}
        values.update(self.layout.values((tuple(children), aux)))
        for name, value in values.items():
            object.__setattr__(obj, name, value)
        return obj

    def parts(self, obj: Any, items: Items) -> tuple[Items, Any]:
        """The contents of the containers and the metadata: from the class's function, else by name."""
        if self.hooks is None:
            return items, {name: getattr(obj, name) for name in self.layout.statics}
        made: Any = self.hooks.serialize(obj)
        if not isinstance(made, tuple) or len(made) != 2:
            got = type(made).__name__
            raise SerializationError(
                f"expected (pairs of key and container, metadata) from serialize=, got a {got}",
                path=self.cls.__name__,
                code="NQX430",
                hint="return both, metadata as None where there is none",
            )
        return pairs_of(made[0], self.cls), made[1]

    def whole(self, items: Items, metadata: Any) -> Any:
        """Builds an instance; the inverse of :meth:`parts`. Fields that were not stored get their defaults.

        Raises:
            SerializationError: The fields are not those of the class.
        """
        cls = self.cls
        if self.hooks is not None:
            made = self.hooks.deserialize(items, metadata)
            if not isinstance(made, cls):
                got = type(made).__name__
                raise SerializationError(
                    f"expected an instance of {cls.__name__} from deserialize=, got a {got}",
                    path=cls.__name__,
                    code="NQX401",
                    hint="return the object that was built from the pairs and the metadata",
                )
            return made
        defaults = self.defaults()
        stored = {**dict(items), **metadata}
        known = {n: partial(defaults.get, n) if n in defaults else None for n in self.named}
        values = complete(cls, stored, known)
        children, aux = self.layout.pair(values, cls.__name__)
        return self.unflatten(aux, children)

    def save(self, obj: Any) -> dict[str, Any]:
        """The content of a bundle for an instance."""
        children, _ = self.flatten(obj)
        items, metadata = self.parts(obj, list(zip(self.layout.nodes, children, strict=True)))
        if self.hooks is None:
            return {**dict(items), **metadata}
        return {"containers": items, "metadata": metadata}

    def restore(self, payload: Any) -> Any:
        """Builds an instance; the inverse of :meth:`save`."""
        name = self.cls.__name__
        if not isinstance(payload, Mapping):
            got = type(payload).__name__
            raise SerializationError(f"expected the fields of {name}, got a {got}")
        if self.hooks is None:
            return self.whole(list(payload.items()), {})
        match payload:
            case {"containers": list(items), "metadata": metadata, **rest} if not rest:
                return self.whole(items, metadata)
        got = ", ".join(map(str, payload)) or "nothing"
        raise SerializationError(f"expected the containers and metadata of {name}, got {got}")


_DERIVED: dict[type, Derivation] = {}


def pairs_of(items: Iterable[Any], cls: type) -> Items:
    """The contents of a container as pairs of key and container.

    Raises:
        TypeError: One of them is not a pair.
    """
    pairs = list(items)
    wrong = [item for item in pairs if not isinstance(item, (tuple, list)) or len(item) != 2]
    if wrong:
        raise TypeError(
            f"{cls.__name__}: expected pairs of key and container, got {wrong[0]!r} among them"
        )
    return pairs


def derivation_of(cls: type) -> Derivation | None:
    """The record of a class that :func:`derive` has decorated, or None."""
    return _DERIVED.get(cls)


@overload
def derive(
    *, containers: Sequence[str], keep: Sequence[str] = ...
) -> Callable[[type[C]], type[C]]: ...
@overload
def derive(
    *,
    containers: Sequence[str],
    keep: Sequence[str] = ...,
    serialize: Serialize,
    deserialize: Deserialize,
) -> Callable[[type[C]], type[C]]: ...
def derive(
    cls: Any = None,
    /,
    *,
    containers: Sequence[str] | None = None,
    keep: Sequence[str] = (),
    serialize: Serialize | None = None,
    deserialize: Deserialize | None = None,
) -> Callable[[type[C]], type[C]]:
    """Makes a plain class a container: a pytree that is walked, saved and compared like a Struct.

    Inside transformations the containers are traced, and every other attribute is reset to its default, its value in one
    instance made by ``C()``. Kept attributes are part of the jit cache key: a function is compiled for each of their
    values, so keep only those that are used while compiling.

    Args:
        cls: Only for the error message of ``@derive`` without arguments.
        containers: Attributes that hold arrays, numbers or containers.
        keep: Attributes that keep their value; it must be hashable and hold no array.
        serialize: ``serialize(obj) -> (pairs of key and container, metadata)``: the saved form of an instance, unless that is
            simply the containers and the kept attributes.
        deserialize: ``deserialize(pairs, metadata) -> obj``, the inverse.

    Returns:
        A decorator that returns the class itself.

    Raises:
        TypeError: ``containers`` is missing, it or ``keep`` is not a sequence of names, or the decorated object is not
            a plain class.
        ValueError: One of ``serialize`` and ``deserialize`` is given, a name is given twice or is nowhere in the class, or the
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
    nodes = names_of("derive()", "containers", containers)
    statics = names_of("derive()", "keep", keep)
    named = (*nodes, *statics)
    twice = sorted({name for name in named if named.count(name) > 1})
    if twice:
        raise ValueError(f"derive(): expected each attribute once, got {', '.join(twice)} twice")
    if (serialize is None) != (deserialize is None):
        raise ValueError(
            "derive(): expected serialize and deserialize, or neither, got one of them"
        )
    hooks = None if serialize is None or deserialize is None else Hooks(serialize, deserialize)
    for name, hook in zip(Hooks._fields, hooks or (), strict=False):
        if not callable(hook):
            raise TypeError(f"derive(): expected a function as {name}, got {hook!r}")

    def decorate(cls: type[C]) -> type[C]:
        if not isinstance(cls, type) or is_struct(cls):
            raise TypeError(
                f"derive(): expected a plain class, got {cls!r}; the containers of a Struct are its node fields"
            )
        _check_names(cls, named)
        derivation = Derivation(cls, Layout(nodes, statics), hooks)
        keys = tuple(map(GetAttrKey, nodes))

        def flatten_with_keys(obj: Any) -> Flat:
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


def _check_names(cls: type, names: Names) -> None:
    """Checks that a dataclass has fields of these names; those of other classes are known from their instances."""
    if not dataclasses.is_dataclass(cls):
        return
    found = match(names, [field.name for field in dataclasses.fields(cls)])
    unknown = found.having("extra")
    if unknown:
        hint = found.meant(unknown[0]) or "check the spelling"
        got = ", ".join(map(repr, unknown))
        raise ValueError(f"{class_ref(cls)}: expected fields, got {got}; {hint}")
