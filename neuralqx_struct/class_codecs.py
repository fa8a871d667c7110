"""Codecs of values that are instances of somebody's classes: enums, namedtuples, dataclasses, pytrees registered with JAX.

Owns how a reference in a file becomes a class: one that is imported already and of the kind that the node demands, one
that the caller trusts, or one that a schema describes; never an import, never a call of what the file merely names. Structs
and arrays are ``codecs.py``'s, which makes one table of all.

Example:
    >>> from neuralqx_struct.nodes import Codecs, Encoder
    >>> import enum
    >>> Encoder(Codecs(CLASS_CODECS)).encode(enum.FlagBoundary.KEEP)
    {'__kind__': 'enum', 'type': 'enum:FlagBoundary', 'name': 'KEEP'}
"""

from __future__ import annotations

import builtins
import dataclasses
import enum
import functools
import operator
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import numpy as np
from jax.tree_util import PyTreeDef, default_registry

from neuralqx_struct.errors import Diagnostic, SerializationError, StructError, UntrustedError, did_you_mean
from neuralqx_struct.nodes import Codec, Codecs, Decoder, Encoder, known_remedy
from neuralqx_struct.paths import FieldName
from neuralqx_struct.pytree import path_part
from neuralqx_struct.pytree_types import PyTreeSpec, pytree_spec
from neuralqx_struct.registry import class_ref, find_class

__all__ = ["CLASS_CODECS", "ClassDecoder", "Reading", "Unknown"]

Node = Any
Unknown = Literal["error", "warn", "drop"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What the caller of a load has asked for.

    Attributes:
        trust: Packages whose classes may be imported.
        abstract: Give ``jax.ShapeDtypeStruct`` in place of arrays, and run no hook.
        as_numpy: Give numpy arrays also where JAX arrays were saved.
        select: Predicate ``(path, leaf)``: leaves that it refuses are None and are not read.
        copies: Give copies of numpy arrays, because the caller holds the arrays that are read.
        unknown: What to do with stored fields that the class lacks: ``error``, ``warn`` or ``drop``.
        fill: Values for fields that were not saved and have no default.
        root: The class that is asked for. Where it is a subclass in Python of the schema's, the root comes as that.
        build_class: Makes the class of a schema reference from the documents that travel with the payload, or None.
        met: Gets the abstract leaf that is given for a node, by the identity of the node.
        targets: Shardings by the identity of the node of a leaf: its shards are then read one by one.
        choices: For a schema reference and its class, the Enum classes of fields whose members are saved as text.
        report: Gets what was defaulted or dropped.
    """

    trust: Sequence[str] = ()
    abstract: bool = False
    as_numpy: bool = False
    copies: bool = False
    select: Callable[[tuple[Hashable, ...], Any], bool] | None = None
    unknown: Unknown = "error"
    fill: Mapping[str, Any] = field(default_factory=dict)
    root: type | None = None
    build_class: Callable[[str], type | None] = lambda _ref: None
    met: dict[int, Any] | None = None
    targets: Mapping[int, Any] = field(default_factory=dict)
    choices: Callable[[str, type], Mapping[str, type[enum.Enum]]] = lambda _ref, _cls: {}
    report: list[Diagnostic] = field(default_factory=list)

    @property
    def runs_hooks(self) -> bool:
        """False where the leaves are not the saved values."""
        return not self.abstract and self.select is None


class ClassDecoder(Decoder):
    """A decoder that knows which classes the caller allows."""

    def __init__(self, codecs: Codecs, arrays: Mapping[str, np.ndarray[Any, Any]], reading: Reading) -> None:
        super().__init__(codecs, arrays)
        self.reading = reading

    def resolve(self, ref: str, demand: str, fits: Callable[[type], bool]) -> type:
        """The class behind a reference of the file, if it may be used.

        Args:
            ref: The reference.
            demand: What the node says it is, for the message.
            fits: Whether a class really is that.

        Raises:
            UntrustedError: No known class of that kind has the reference.
        """
        # A schema's reference means what the documents of this payload say, whatever else has that name here.
        found = self.reading.build_class(ref) or find_class(ref, trust=(*self.reading.trust, "neuralqx_struct.params"))
        if found is not None and fits(found):
            return found
        module = ref.partition(":")[0]
        got = f"{ref!r}, which is not imported" if found is None else f"{ref!r}, which is something else"
        remedy = f"import {module} first, or pass trust=[{module.partition('.')[0]!r}]; was it renamed? alias_class() says so"
        if module == "__main__":  # of a program that is not this one: nothing can be imported by that name
            remedy = f"a script saved it: neuralqx_struct.registry.alias_class({ref[:100]!r}, cls) says which class that is now"
        raise UntrustedError(
            f"expected {demand} that is known here, got {got}",
            code="NQX501",
            hint="load it through its schema: load_schema(folder).load(path)" if "@" in module else remedy,
        )


def _reachable(cls: type, encoder: Encoder) -> bool:
    """Refuse a class that no reader could find again; true if there is nothing to refuse."""
    found = find_class(class_ref(cls))
    if found is cls:
        return True
    if found is None:
        got, hint = "is not", "define the class at the top level of its module, under the name that it bears"
    else:
        got, hint = "is another class by now", "it was defined anew, as when a cell runs again: make the value anew too"
    encoder.refuse(f"expected a class that is found under its name, got {class_ref(cls)}, which {got}", hint=hint)
    return False


def _encode_fields(value: Any, names: Sequence[str], encoder: Encoder) -> dict[str, Node]:
    """The fields of a value that is nothing but its fields."""
    cls = type(value)
    fields: dict[str, Node] = {}
    if _is_code(value, encoder) or not _reachable(cls, encoder):
        return {"type": "", "fields": fields}
    if more := [n for n in getattr(value, "__dict__", ()) if n not in names and not _incidental(cls, n)]:
        encoder.refuse(
            f"expected a {cls.__name__} with its fields alone, got one that has also {', '.join(more)[:200]}",
            hint="declare them as fields, or register the type with register_pytree_type",
        )
        return {"type": "", "fields": fields}
    for name in names:
        fields[name] = encoder.encode(getattr(value, name), FieldName(name))
    return {"type": class_ref(cls), "fields": fields}


def _is_code(value: Any, encoder: Encoder) -> bool:
    """Refuse objects of libraries that are known to be made of functions, in one message instead of one for each function."""
    remedy = known_remedy(type(value))
    if remedy is not None:
        encoder.refuse(
            f"expected a value that can be saved, got a {type(value).__qualname__}, which is code in part", hint=remedy
        )
    return remedy is not None


def _incidental(cls: type, name: str) -> bool:
    """True for attributes that instances get without anybody's asking: what is computed again, and what typing leaves."""
    return name.startswith("__") or isinstance(getattr(cls, name, None), functools.cached_property)


def _encode_named(value: Any, encoder: Encoder) -> dict[str, Node]:
    return _encode_fields(value, type(value)._fields, encoder)


def _is_namedtuple_type(cls: type) -> bool:
    return issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def _decode_named(node: Mapping[str, Node], decoder: ClassDecoder) -> Any:
    cls: Any = decoder.resolve(node["type"], "a namedtuple class", _is_namedtuple_type)
    values = decoder.fields(node)
    _require_fields(cls, cls._fields, values)
    return tuple.__new__(cls, [values[name] for name in cls._fields])


def _require_fields(cls: type, expected: Sequence[str], values: Mapping[str, Any]) -> None:
    if set(expected) != set(values):
        raise SerializationError(
            f"expected the fields {', '.join(expected)} of {cls.__name__}, got {', '.join(values)}",
            code="NQX414",
            hint="the class has changed since the payload was written",
        )


def _encode_enum(value: enum.Enum, encoder: Encoder) -> dict[str, Node]:
    cls = type(value)
    if not _reachable(cls, encoder):
        return {"type": "", "name": ""}
    if value.name in cls.__members__:
        return {"type": class_ref(cls), "name": value.name}
    parts = list(value) if isinstance(value, enum.Flag) else []  # flags joined by |, or none of them
    if not isinstance(value, enum.Flag) or _joined(cls, parts) != value:
        encoder.refuse(
            f"expected members of {cls.__name__}, got {value!r}, which has bits without a name",
            hint="save its number, flag.value, and make the flag of it with a converter",
        )
    return {"type": class_ref(cls), "name": "|".join(str(m.name) for m in parts)}


def _joined(cls: Any, members: Sequence[Any]) -> Any:
    return functools.reduce(operator.or_, members, cls(0))


def _decode_enum(node: Mapping[str, Node], decoder: ClassDecoder) -> Any:
    cls: Any = decoder.resolve(node["type"], "an Enum class", lambda cls: issubclass(cls, enum.Enum))
    name, members = node["name"], cls.__members__
    if name in members:
        return members[name]
    parts = name.split("|") if name else []
    if issubclass(cls, enum.Flag) and all(part in members for part in parts):
        return _joined(cls, [members[part] for part in parts])
    hint = did_you_mean(name, members)
    raise SerializationError(f"expected a member of {cls.__name__}, got {name[:60]!r}", code="NQX421", hint=hint)


def _encode_dataclass(value: Any, encoder: Encoder) -> dict[str, Node]:
    names = [f.name for f in dataclasses.fields(value)]
    if _blank(type(value)) is None or not all(hasattr(value, name) for name in names):
        encoder.refuse(
            f"expected a dataclass whose instances are their fields, got a {type(value).__name__}, which is not\n"
            "it derives from a builtin type, or has fields without a value",
            hint="register the type with register_pytree_type",
        )
        return {"type": "", "fields": {}}
    return _encode_fields(value, names, encoder)


def _decode_dataclass(node: Mapping[str, Node], decoder: ClassDecoder) -> Any:
    cls: Any = decoder.resolve(node["type"], "a dataclass", dataclasses.is_dataclass)
    values = decoder.fields(node)
    _require_fields(cls, [f.name for f in dataclasses.fields(cls)], values)
    # Not the constructor: it may convert or refuse what was valid when it was saved.
    instance = _blank(cls)
    if instance is None:
        raise SerializationError(
            f"expected a dataclass whose instances are their fields, got {node['type']}, which derives from a builtin type",
            code="NQX414",
            hint="register the type with register_pytree_type, and save it again",
        )
    for name, value in values.items():
        object.__setattr__(instance, name, value)
    return instance


def _blank(cls: type) -> Any:
    """An instance without fields, or None where Python allows none: for exceptions, say, or abstract classes."""
    try:
        return object.__new__(cls)
    except TypeError:
        return None


def _encode_registered(value: Any, encoder: Encoder) -> dict[str, Node]:
    spec = pytree_spec(type(value))
    assert spec is not None  # the table has asked
    ref = class_ref(spec.cls)
    if spec.serializer is not None and not spec.deserializer_takes_children:
        return {"type": ref, "mode": "serializer", "payload": encoder.encode(spec.serializer(value))}
    children, aux = spec.flatten(value)
    if spec.serializer is not None:  # deserializer(payload, children): the payload stands for what flatten cannot save
        aux = spec.serializer(value)
    return {"type": ref, "mode": "flatten", **_encode_parts(value, children, aux, encoder)}


def _encode_parts(value: Any, children: Iterable[Any], aux: Any, encoder: Encoder) -> dict[str, Node]:
    children = list(children)
    keys = _child_keys(value, len(children))
    nodes = [encoder.encode(child, key) for key, child in zip(keys, children, strict=True)]
    return {"children": nodes, "aux": encoder.encode(aux, "aux")}


def _child_keys(value: Any, count: int) -> Sequence[Hashable]:
    """Where the children of a registered value are, as JAX has it: their keys, or positions for types without keys."""
    pairs = (default_registry.flatten_one_level_with_keys(value) or ((), None))[0]
    keys = [position if key is None else path_part(key) for position, (key, _) in enumerate(pairs)]
    return keys if len(keys) == count else range(count)


def _stored_keys(spec: PyTreeSpec, count: int, aux: Any) -> Sequence[Hashable]:
    """The keys of children that are still to be read; the file does not say them, but a value with nothing in it does."""
    if spec.names is not None and len(spec.names) == count:
        return [FieldName(name) for name in spec.names]
    if spec.deserializer_takes_children:  # what is stored is no auxiliary data, but what the deserializer makes them of
        return range(count)
    try:
        build: Any = PyTreeDef.from_node_data_and_children
        leaf = jax.tree_util.tree_structure(0)
        return _child_keys(build(default_registry, (spec.cls, aux), [leaf] * count).unflatten([None] * count), count)
    except Exception:  # noqa: BLE001 - code of the user, which need not take None: then the positions must do
        return range(count)


def _encode_foreign(value: Any, encoder: Encoder) -> dict[str, Node]:
    """A value of a type that some library has registered with JAX, as JAX takes it apart."""
    cls = type(value)
    children, aux = default_registry.flatten_one_level(value) or ((), None)
    members: dict[str, Node] = {"type": class_ref(cls), "mode": "flatten", "children": [], "aux": None}
    if aux is value:
        encoder.refuse(
            f"expected a pytree with parts, got a {cls.__name__}, which is registered with JAX as a static whole",
            hint="make it a dataclass, or register it with register_pytree_type instead",
        )
    elif not _is_code(value, encoder) and _reachable(cls, encoder):
        members |= _encode_parts(value, children, aux, encoder)
    return members


def _registered_with_jax(cls: type) -> bool:
    from jax._src.tree_util import _registry  # JAX has no public question for a class, only for its instances

    return cls in _registry and cls.__module__ not in ("builtins", "collections")  # those have kinds of their own


def _is_registered(cls: type) -> bool:
    return pytree_spec(cls) is not None or _registered_with_jax(cls)


def _foreign_spec(cls: type) -> PyTreeSpec:
    """The registration of a class that only JAX knows."""

    def unflatten(aux: Any, children: Sequence[Any]) -> Any:
        leaf = jax.tree_util.tree_structure(0)
        build: Any = PyTreeDef.from_node_data_and_children
        return build(default_registry, (cls, aux), [leaf] * len(children)).unflatten(children)

    return PyTreeSpec(cls, flatten=default_registry.flatten_one_level, unflatten=unflatten)


def _decode_registered(node: Mapping[str, Node], decoder: ClassDecoder) -> Any:
    cls = decoder.resolve(node["type"], "a class that is registered as a pytree", _is_registered)
    spec = pytree_spec(cls) or _foreign_spec(cls)
    problems = len(decoder.problems)
    if node["mode"] == "flatten":
        aux = decoder.decode(node["aux"], "aux")
        keys = _stored_keys(spec, len(node["children"]), aux)
        children = [decoder.decode(child, key) for key, child in zip(keys, node["children"], strict=True)]
        two = spec.deserializer is not None and spec.deserializer_takes_children
        return _made(decoder, problems, spec.deserializer if two else spec.unflatten, aux, children)
    if spec.deserializer is None or spec.deserializer_takes_children:
        raise SerializationError(
            f"expected a deserializer(payload) for {node['type']}, got "
            f"{'one that wants children, which were not stored' if spec.deserializer else 'none'}",
            code="NQX414",
            hint="pass deserializer= to register_pytree_type beside serializer=",
        )
    return _made(decoder, problems, spec.deserializer, decoder.decode(node["payload"]))


def _made(decoder: ClassDecoder, problems: int, make: Any, *parts: Any) -> Any:
    """Call what the user registered, unless a part could not be read: it need not expect the None in its place."""
    if len(decoder.problems) > problems:
        return None
    try:
        return make(*parts)
    except StructError:
        raise
    except Exception as error:  # code of the user, which may fail in any way on data that it did not expect
        name = getattr(make, "__qualname__", repr(make))
        raise SerializationError(
            f"expected parts that {name} accepts, got {type(error).__name__}: {error}",
            code="NQX414",
            hint="the class has changed since the payload was written, or the payload is not of it",
        ) from error


def _is_dataclass_instance(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


# ---------------------------------------------------------------------------------------------------------------------
# References: the few functions and classes that are values of models everywhere. No others are saved: a function is called by
# whoever finds it, with what else the file says, so that a file must not choose among all that is imported.

# Calling one of these computes a value and does nothing else.
_PURE: Mapping[str, tuple[str, ...]] = {
    "builtins": tuple(k.__name__ for k in (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset)),
    "numpy": tuple(kind.__name__ for kind in np.sctypeDict.values() if kind.__name__ in vars(np)),
    "jax.nn": tuple(name for name in sorted(vars(jax.nn)) if callable(getattr(jax.nn, name)) and name[0] != "_"),
    "jax.numpy": (
        *(kind.__name__ for kind in np.sctypeDict.values() if kind.__name__ in vars(jax.numpy)),
        *(
            "bfloat16",
            "tanh",
            "sin",
            "cos",
            "exp",
            "log",
            "sqrt",
            "square",
            "abs",
            "add",
            "subtract",
            "multiply",
            "divide",
        ),
        *("maximum", "minimum", "sum", "mean"),
    ),
}


@functools.cache
def _references() -> Mapping[str, Any]:
    modules: dict[str, Any] = {"builtins": builtins, "numpy": np, "jax.nn": jax.nn, "jax.numpy": jax.numpy}
    return {f"{place}:{name}": getattr(modules[place], name) for place, names in _PURE.items() for name in names}


@functools.cache
def _names() -> Mapping[int, str]:
    return {id(value): ref for ref, value in _references().items()}


def _is_reference(value: Any) -> bool:
    return callable(value) and id(value) in _names()


def _decode_reference(node: Mapping[str, Node], _: ClassDecoder) -> Any:
    if node["name"] in _references():
        return _references()[node["name"]]
    raise UntrustedError(
        f"expected one of the functions and classes that files may name, got {node['name'][:100]!r}",
        code="NQX501",
        hint="leave the field out with serialize=False, and give its value with fill=",
    )


CLASS_CODECS = (
    Codec(
        "reference",
        (),
        lambda v, _: {"name": _names()[id(v)]},
        _decode_reference,
        _is_reference,
    ),
    Codec("registered-pytree", (), _encode_foreign, _decode_registered, lambda v: _registered_with_jax(type(v))),
    Codec("pytree-dataclass", (), _encode_dataclass, _decode_dataclass, _is_dataclass_instance),
    Codec("namedtuple", (), _encode_named, _decode_named, lambda v: _is_namedtuple_type(type(v))),
    Codec("enum", (), _encode_enum, _decode_enum, lambda v: isinstance(v, enum.Enum)),
    Codec("registered-pytree", (), _encode_registered, _decode_registered, lambda v: pytree_spec(type(v)) is not None),
)
