"""Containers: walking, saving and describing anything that holds arrays, one level or all levels at a time.

A container is any pytree: tuples, lists, dicts of any key, Structs, classes known to ``register_pytree_type``, types that
a library registered with JAX, and plain classes that :func:`derive` declares. Everything else is a leaf. On Structs, the
containers are the node fields and what is kept are the static fields. Owns the walks, the pair
:func:`serialize`/:func:`deserialize`, templates and comparison by them. Does not write files: ``checkpoint.py`` does, and
a derived class is saved with the fields that it declares.

Example:
    >>> @derive(containers=["mean"], keep=["name"])
    ... class Estimate:
    ...     def __init__(self, mean=0.0, name="energy"):
    ...         self.mean, self.name, self.cache = mean, name, {}
    >>> doubled, leaves = traverse(Estimate(1.5), 0, lambda x, n: (2 * x, n + 1))
    >>> doubled.mean, doubled.name, leaves
    (3.0, 'energy', 1)
"""

from __future__ import annotations

import dataclasses
import inspect
import numbers
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import jax
from jax.tree_util import GetAttrKey, keystr, tree_flatten_with_path

from neuralqx_struct.errors import Diagnostic, SerializationError, ValidationError, did_you_mean
from neuralqx_struct.fieldspec import FieldKind, FieldSpec, is_struct
from neuralqx_struct.identity import is_array
from neuralqx_struct.pytree import Layout, Pair, pytree_spec, register_pytree_type
from neuralqx_struct.registry import class_ref

__all__ = [
    "compatible",
    "derive",
    "deserialize",
    "reduce",
    "reduce_deep",
    "register_lazy",
    "serialize",
    "to_container",
    "to_template",
    "traverse",
    "traverse_deep",
]

C = TypeVar("C")
A = TypeVar("A")
Items = list[tuple[Hashable, Any]]

# ---------------------------------------------------------------------------------------------------------------------
# Plain classes.


class _Derivation:
    """What :func:`derive` was told about a class: its containers as nodes, what it keeps as statics."""

    def __init__(self, cls: type, layout: Layout) -> None:
        self.cls = cls
        self.layout = layout
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
                    self._defaults = _attributes(self.cls()) if self.has_defaults else _declared_defaults(self.cls)
            return self._defaults

    def flatten(self, obj: Any) -> Pair:
        values = _attributes(obj)
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
        # A list, dict or set of the one default instance is not shared by all that are made.
        values = {n: v.copy() if type(v) in (list, dict, set) else v for n, v in self.defaults().items()}
        values.update(self.layout.values((tuple(children), aux)))
        obj: Any = object.__new__(self.cls)
        for name, value in values.items():
            object.__setattr__(obj, name, value)
        return obj

    def save(self, obj: Any) -> dict[str, Any]:
        self.flatten(obj)
        return {name: getattr(obj, name) for name in self.named}

    def restore(self, payload: Any) -> Any:
        """The inverse of :meth:`save`; what was not saved gets its default, what is not known is refused."""
        if not isinstance(payload, Mapping):
            raise SerializationError(f"expected the fields of {self.cls.__name__}, got a {type(payload).__name__}")
        defaults = self.defaults()
        values = _complete(self.cls, payload, self.named, defaults.__contains__, defaults.__getitem__)
        return self.unflatten(self.layout.pair(values, self.cls.__name__)[1], [values[n] for n in self.layout.nodes])


_DERIVED: dict[type, _Derivation] = {}


def _attributes(obj: Any) -> dict[str, Any]:
    """The state of an instance, slots included, whatever its class says about pickling."""
    state: Any = object.__getstate__(obj)
    held, slots = state if isinstance(state, tuple) else (state, None)
    return {**(held or {}), **(slots or {})}


def _declared_defaults(cls: type) -> dict[str, Any]:
    """The defaults of a dataclass some of whose fields have none."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
        if field.default is not dataclasses.MISSING:
            found[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            found[field.name] = field.default_factory()
    return found


def derive(*, containers: Sequence[str], keep: Sequence[str] = ()) -> Callable[[type[C]], type[C]]:
    """Make a plain class a container: a pytree that is walked, saved and compared like a Struct.

    Inside transformations the containers are traced, and every other attribute is reset to its default: to what one
    instance made by ``C()`` holds. What is kept becomes part of the jit cache key: a function is compiled for
    each of its values, so keep only what is used while compiling.

    Args:
        containers: Attributes that hold arrays, numbers or containers.
        keep: Attributes that keep their value; it must be hashable and hold no array.

    Returns:
        A decorator that gives the class itself back.

    Raises:
        TypeError: ``containers`` or ``keep`` is not a sequence of names, or what is decorated is not a plain class.
        ValueError: A name stands twice, is no field of the dataclass, or the class is registered already.

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
    nodes, statics = (_names(given, what) for given, what in ((containers, "containers"), (keep, "keep")))
    twice = sorted({name for name in (*nodes, *statics) if (*nodes, *statics).count(name) > 1})
    if twice:
        raise ValueError(f"derive(): expected each attribute once, got {', '.join(twice)} twice")

    def decorate(cls: type[C]) -> type[C]:
        if not isinstance(cls, type) or is_struct(cls):
            raise TypeError(
                f"derive(): expected a plain class, got {cls!r}; the containers of a Struct are its node fields"
            )
        if dataclasses.is_dataclass(cls):
            fields = [field.name for field in dataclasses.fields(cls)]
            for name in (*nodes, *statics):
                if name not in fields:
                    hint = did_you_mean(name, fields)
                    raise ValueError(f"{class_ref(cls)}: expected a field, got {name!r}{f'; {hint}' if hint else ''}")
        derivation = _Derivation(cls, Layout(nodes, statics, ()))
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


# ---------------------------------------------------------------------------------------------------------------------
# Walks.


class _Opened(NamedTuple):
    """One level of a container: what is in it, and how to make it again from as many values."""

    items: Items
    close: Callable[[list[Any]], Any]


def _open(obj: Any) -> _Opened | None:
    """One level of a container, or None for a leaf."""
    if type(obj) is dict:  # JAX refuses keys that cannot be sorted, and gives them back in another order
        items = _in_order(obj)
        return _Opened(items, lambda values: obj | {key: v for (key, _), v in zip(items, values, strict=True)})
    structure: Any
    pairs, structure = tree_flatten_with_path(obj, is_leaf=lambda value: value is not obj)
    if len(pairs) == 1 and pairs[0][0] == ():
        return None
    return _Opened([(_plain_key(path[0]), value) for path, value in pairs], structure.unflatten)


def _in_order(mapping: Mapping[Any, Any]) -> Items:
    """The items by key, so that equal dicts are walked alike; in their own order where the keys have none."""
    try:
        return [(key, mapping[key]) for key in sorted(mapping)]
    except TypeError:
        return list(mapping.items())


def _plain_key(key: Any) -> Hashable:
    """The plain key behind one of JAX's: a position, a dict key, the name of a field."""
    for attribute in ("name", "key", "idx"):
        if hasattr(key, attribute):
            plain: Hashable = getattr(key, attribute)
            return plain
    return str(key)


def traverse(obj: Any, acc: A, fun: Callable[[Any, A], tuple[Any, A]]) -> tuple[Any, A]:
    """Change what a container holds, one level deep, and carry an accumulator along.

    Args:
        obj: The container; a leaf is handed to ``fun`` itself.
        acc: The accumulator at the start.
        fun: ``fun(value, acc) -> (new value, new acc)``, called with each leaf or container inside; None is left alone.

    Returns:
        The container with the new values, and the final accumulator.

    Example:
        >>> traverse((1, [2, 3]), 0, lambda x, n: (x, n + 1))
        ((1, [2, 3]), 2)
    """
    opened = _open(obj)
    if opened is None:
        return fun(obj, acc)
    values: list[Any] = []
    for _, value in opened.items:
        if value is not None:
            value, acc = fun(value, acc)  # noqa: PLW2901 - a fold
        values.append(value)
    return opened.close(values), acc


def reduce(obj: Any, acc: A, fun: Callable[[Any, A], A]) -> A:
    """Fold what a container holds, one level deep.

    Args:
        obj: The container; a leaf is handed to ``fun`` itself.
        acc: The accumulator at the start.
        fun: ``fun(value, acc) -> new acc``, called with each leaf or container inside; None is left out.

    Returns:
        The final accumulator.

    Example:
        >>> reduce({"a": 1, "b": 2}, 0, lambda x, total: total + x)
        3
    """
    opened = _open(obj)
    for value in [obj] if opened is None else [value for _, value in opened.items if value is not None]:
        acc = fun(value, acc)
    return acc


def traverse_deep(obj: Any, acc: A, fun: Callable[[Any, A], tuple[Any, A]]) -> tuple[Any, A]:
    """As :func:`traverse`, down to the leaves: ``fun`` never sees a container.

    Example:
        >>> traverse_deep((1, [2, 3]), 0, lambda x, total: (10 * x, total + x))
        ((10, [20, 30]), 6)
    """
    if _open(obj) is None:
        return fun(obj, acc)
    return traverse(obj, acc, lambda value, acc: traverse_deep(value, acc, fun))


def reduce_deep(obj: Any, acc: A, fun: Callable[[Any, A], A]) -> A:
    """As :func:`reduce`, down to the leaves: ``fun`` never sees a container.

    Example:
        >>> reduce_deep((1, [2, 3]), 0, lambda x, total: total + x)
        6
    """
    if _open(obj) is None:
        return fun(obj, acc)
    return reduce(obj, acc, lambda value, acc: reduce_deep(value, acc, fun))


# ---------------------------------------------------------------------------------------------------------------------
# Taking apart and putting together.


def serialize(obj: Any) -> tuple[type, Items, Any]:
    """Take one level of a container apart, as it is to be saved.

    Args:
        obj: A container.

    Returns:
        Its type; what it holds, as pairs of key and container, to be serialized further; and what is needed beside
        that: the kept or static fields by name, the ``aux`` of a registered type, or None. For types that a library
        registered with JAX it is JAX's own record of the structure.

    Raises:
        TypeError: ``obj`` is a leaf.

    Example:
        >>> serialize({"w": 1.0})
        (<class 'dict'>, [('w', 1.0)], None)
    """
    cls = type(obj)
    opened = _open(obj)
    if opened is None or obj is None:
        raise TypeError(f"serialize(): expected a container, got a {cls.__name__}, which is a leaf")
    if is_struct(cls):
        saved = {name: spec for name, spec in _specs(cls).items() if spec.should_serialize}
        nodes: Items = [(name, getattr(obj, name)) for name, spec in saved.items() if spec.kind is FieldKind.NODE]
        return cls, nodes, {name: getattr(obj, name) for name, spec in saved.items() if spec.kind is not FieldKind.NODE}
    if cls in _DERIVED:
        return cls, opened.items, {name: getattr(obj, name) for name in _DERIVED[cls].layout.statics}
    if cls in _BUILTIN:
        return cls, opened.items, None
    spec = pytree_spec(cls)
    if spec is not None:
        return cls, opened.items, spec.flatten(obj)[1]
    return cls, opened.items, jax.tree_util.tree_structure(obj, is_leaf=lambda value: value is not obj)


def deserialize(cls: type, items: Iterable[tuple[Hashable, Any]], metadata: Any) -> Any:
    """The inverse of :func:`serialize`.

    Fields that a Struct or a derived class has gained since get their default; fields that it has lost are an error.
    Values come back with the type they had when they were serialized, whatever the field has become since.

    Args:
        cls: The type.
        items: Pairs of key and container.
        metadata: What :func:`serialize` gave beside them.

    Raises:
        SerializationError: The fields are not those of ``cls``; with every one that is not.
        TypeError: ``cls`` is no type of container.

    Example:
        >>> deserialize(*serialize((1, 2)))
        (1, 2)
    """
    pairs = list(items)
    if is_struct(cls):
        specs = {name: spec for name, spec in _specs(cls).items() if not spec.is_derived and not spec.reset}
        stored = {**dict(pairs), **metadata}
        values = _complete(
            cls,
            stored,
            [name for name, spec in specs.items() if spec.init or spec.should_serialize],
            lambda name: specs[name].has_default,
            lambda name: specs[name].make_default(),
        )
        struct: Any = cls
        return struct.__nqx_restore__(values)
    if cls in _DERIVED:
        return _DERIVED[cls].restore({**dict(pairs), **metadata})
    if cls in _BUILTIN:
        return _BUILTIN[cls](pairs)
    spec = pytree_spec(cls)
    if spec is not None:
        return spec.unflatten(metadata, [value for _, value in pairs])
    if isinstance(metadata, jax.tree_util.PyTreeDef):
        return metadata.unflatten([value for _, value in pairs])
    raise TypeError(f"deserialize(): expected a type of container and its metadata, got {cls!r} and {metadata!r}")


_BUILTIN: Mapping[type, Callable[[Items], Any]] = {
    dict: dict,
    list: lambda pairs: [value for _, value in pairs],
    tuple: lambda pairs: tuple(value for _, value in pairs),
}


def _specs(cls: Any) -> Mapping[str, FieldSpec]:
    specs: Mapping[str, FieldSpec] = cls.__nqx_fields__
    return specs


def _complete(
    cls: type,
    stored: Mapping[str, Any],
    known: Sequence[str],
    has_default: Callable[[str], bool],
    default: Callable[[str], Any],
) -> dict[str, Any]:
    """The values of the known fields: stored or default.

    Raises:
        SerializationError: With every stored field that is not known, and every field without a value.
    """
    problems = [
        Diagnostic(
            "NQX415",
            "error",
            f"expected a field of {cls.__name__}, got {name!r}, which it does not have",
            path=f"{cls.__name__}.{name}",
            hint=did_you_mean(str(name), known) or "keep removed fields readable until no stored object has them",
        )
        for name in stored
        if name not in known
    ]
    problems += [
        Diagnostic(
            "NQX414",
            "error",
            "expected a stored value or a default, got neither",
            path=f"{cls.__name__}.{name}",
            hint="give the field a default: objects that were stored before it was added have none",
        )
        for name in known
        if name not in stored and not has_default(name)
    ]
    if problems:
        raise SerializationError(problems)
    return {name: stored[name] if name in stored else default(name) for name in known}


# ---------------------------------------------------------------------------------------------------------------------
# Lazy containers.

_LAZY: dict[type, Callable[[Any], Any]] = {}


def register_lazy(cls: type, convert: Callable[[Any], Any]) -> type:
    """Say how a type that is not meant to work inside transformations becomes a container on the way in.

    Args:
        cls: The type; its subclasses are converted too, unless they have a conversion of their own.
        convert: ``convert(obj)`` gives a container or an array. All containers convert to themselves already.

    Returns:
        ``cls``.

    Raises:
        ValueError: The type has another conversion already.

    Example:
        >>> _ = register_lazy(range, list)
        >>> to_container({"sites": range(3)})
        {'sites': [0, 1, 2]}
    """
    if _LAZY.setdefault(cls, convert) is not convert:
        raise ValueError(f"{class_ref(cls)}: expected a type without a conversion, got one that register_lazy knows")
    return cls


def to_container(obj: Any) -> Any:
    """The object with every lazy container in it converted, to be handed to a transformation.

    Raises:
        TypeError: A conversion gives its own type back.
    """
    convert = next((_LAZY[base] for base in type(obj).__mro__ if base in _LAZY), None)
    if convert is None:
        return obj if _open(obj) is None else traverse(obj, None, lambda value, acc: (to_container(value), acc))[0]
    converted = convert(obj)
    if type(converted) is type(obj):
        raise TypeError(f"to_container(): expected a conversion into another type, got {type(obj).__name__} again")
    return to_container(converted)


# ---------------------------------------------------------------------------------------------------------------------
# Templates.


def to_template(obj: Any) -> Any:
    """The container with its arrays and numbers replaced by their shapes and dtypes.

    Args:
        obj: A container of arrays, numbers and templates.

    Returns:
        The same structure with ``jax.ShapeDtypeStruct`` leaves; Python numbers have the dtype that JAX gives them.

    Raises:
        TypeError: A leaf is neither an array nor a number; names every such leaf.

    Example:
        >>> to_template({"n": 1})
        {'n': ShapeDtypeStruct(shape=(), dtype=int32, weak_type=True)}
    """
    structure: Any
    pairs, structure = tree_flatten_with_path(obj)
    wrong = [f"${keystr(path)} is a {type(leaf).__name__}" for path, leaf in pairs if not _has_template(leaf)]
    if wrong:
        raise TypeError(f"to_template(): expected arrays and numbers, got others: {', '.join(wrong)}")
    return structure.unflatten([_template(leaf) for _, leaf in pairs])


def _has_template(leaf: Any) -> bool:
    return isinstance(leaf, (jax.ShapeDtypeStruct, numbers.Number)) or is_array(leaf)


def _template(leaf: Any) -> jax.ShapeDtypeStruct:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    if hasattr(leaf, "dtype"):
        weak_type = getattr(leaf, "weak_type", False)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=weak_type)  # type: ignore[no-untyped-call]
    template: jax.ShapeDtypeStruct = jax.eval_shape(lambda value: value, leaf)
    return template


def compatible(a: Any, b: Any) -> bool:
    """True if two containers have one structure, and the same shapes and dtypes in it.

    The structure includes what is kept and static, so that a function compiled for the one serves the other.

    Args:
        a: A container, or its template.
        b: Another one.

    Raises:
        TypeError: A leaf is neither an array nor a number.

    Example:
        >>> compatible((1, 2.0), (3, 4.0)), compatible((1, 2.0), (1, 2))
        (True, False)
    """
    a, b = to_template(a), to_template(b)
    structures: list[Any] = [jax.tree_util.tree_structure(tree) for tree in (a, b)]
    if structures[0] != structures[1]:
        return False
    leaves = zip(jax.tree_util.tree_leaves(a), jax.tree_util.tree_leaves(b), strict=True)
    return all(x.shape == y.shape and x.dtype == y.dtype for x, y in leaves)
