"""Codecs of instances of classes that are registered as pytrees, with this package or with JAX alone.

Example:
    >>> import jax
    >>> _registered_with_jax(jax.tree_util.Partial)
    True
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import jax
from jax.tree_util import PyTreeDef, default_registry

from neuralqx_struct.codecs.classes import CHANGED, ClassDecoder, reachable_ref, refuse_code
from neuralqx_struct.codecs.nodes import Codec, Encoder, unsaveable
from neuralqx_struct.errors import SerializationError, StructError
from neuralqx_struct.manifest.kinds import KINDS
from neuralqx_struct.paths import FieldName
from neuralqx_struct.references import class_ref
from neuralqx_struct.struct.pytree import path_part
from neuralqx_struct.struct.registration import PyTreeSpec, pytree_spec

Node = Any
Members = Mapping[str, Node]


def _encode_registered(value: Any, encoder: Encoder) -> Members:
    spec = pytree_spec(type(value))
    assert spec is not None  # the table has asked
    ref = class_ref(spec.cls)
    if spec.serializer is not None and not spec.deserializer_takes_children:
        payload = encoder.encode(spec.serializer(value))
        return {"type": ref, "mode": "serializer", "payload": payload}
    children, aux = spec.flatten(value)
    if spec.serializer is not None:  # its payload takes the place of auxiliary data
        aux = spec.serializer(value)
    return _encode_parts(ref, value, children, aux, encoder)


def _encode_parts(
    ref: str, value: Any, children: Iterable[Any], aux: Any, encoder: Encoder
) -> Members:
    children = list(children)
    keys = _child_keys(value, len(children))
    nodes = [encoder.encode(child, key) for key, child in zip(keys, children, strict=True)]
    return {
        "type": ref,
        "mode": "flatten",
        "children": nodes,
        "aux": encoder.encode(aux, "aux"),
    }


def _child_keys(value: Any, count: int) -> Sequence[Hashable]:
    """The keys that JAX has for the children of a registered value, or their positions."""
    pairs = (default_registry.flatten_one_level_with_keys(value) or ((), None))[0]
    keys = [position if key is None else path_part(key) for position, (key, _) in enumerate(pairs)]
    return keys if len(keys) == count else range(count)


def _stored_keys(spec: PyTreeSpec, count: int, aux: Any) -> Sequence[Hashable]:
    """The keys of stored children; the file lacks them, but a value without content has them."""
    if spec.names is not None and len(spec.names) == count:
        return [FieldName(name) for name in spec.names]
    if spec.deserializer_takes_children:  # the payload is no auxiliary data
        return range(count)
    try:
        return _child_keys(_unflattened(spec.cls, aux, [None] * count), count)
    except Exception:  # noqa: BLE001 - code of the user, which may refuse None
        return range(count)


def _unflattened(cls: type, aux: Any, children: Sequence[Any]) -> Any:
    """A value of a class that is registered with JAX."""
    leaf = jax.tree_util.tree_structure(0)
    build: Any = PyTreeDef.from_node_data_and_children
    return build(default_registry, (cls, aux), [leaf] * len(children)).unflatten(children)


def _encode_foreign(value: Any, encoder: Encoder) -> Members:
    """Encodes a value of a type that some library has registered with JAX."""
    cls = type(value)
    children, aux = default_registry.flatten_one_level(value) or ((), None)
    if aux is value:
        got = f"a {cls.__name__}, which is registered with JAX as a static whole"
        hint = "make it a dataclass, or register it with register_pytree_type instead"
        raise unsaveable(f"expected a pytree with parts, got {got}", hint)
    refuse_code(value)
    return _encode_parts(reachable_ref(cls), value, children, aux, encoder)


def _registered_with_jax(cls: type) -> bool:
    # JAX has no public question for a class, only for its instances.
    from jax._src.tree_util import _registry

    # Builtins and collections have kinds of their own.
    return cls in _registry and cls.__module__ not in ("builtins", "collections")


def _is_registered(cls: type) -> bool:
    return pytree_spec(cls) is not None or _registered_with_jax(cls)


def _flattens(cls: type) -> bool:
    """True for registered classes, and for those with the methods of JAX's decorator, which neuraLQX saves too."""
    names = set[str]().union(*map(vars, cls.__mro__))
    return _is_registered(cls) or {"tree_flatten", "tree_unflatten"} <= names


def _decode_registered(node: Members, decoder: ClassDecoder) -> Any:
    fits = _flattens if node["mode"] == "flatten" else _is_registered
    cls = decoder.resolve(node["type"], "a class that is registered as a pytree", fits)
    spec = pytree_spec(cls)
    if spec is None:
        known = _registered_with_jax(cls)
        unflatten = functools.partial(_unflattened, cls) if known else cls.tree_unflatten
        spec = PyTreeSpec(cls, flatten=default_registry.flatten_one_level, unflatten=unflatten)
    problems = len(decoder.problems)
    two = spec.deserializer is not None and spec.deserializer_takes_children
    if node["mode"] == "flatten":
        aux = decoder.decode(node["aux"], "aux")
        keys = _stored_keys(spec, len(node["children"]), aux)
        pairs = zip(keys, node["children"], strict=True)
        children = [decoder.decode(child, key) for key, child in pairs]
        return _made(decoder, problems, spec.deserializer if two else spec.unflatten, aux, children)
    if spec.deserializer is None or two:
        got = "one that wants children, which were not stored" if two else "none"
        message = f"expected a deserializer(payload) for {node['type']}, got {got}"
        hint = "pass deserializer= to register_pytree_type beside serializer="
        raise SerializationError(message, code="NQX414", hint=hint)
    return _made(decoder, problems, spec.deserializer, decoder.decode(node["payload"]))


def _made(decoder: ClassDecoder, problems: int, make: Any, *parts: Any) -> Any:
    """Calls a function of the user, unless a part could not be read: it may not expect the None in its place."""
    if len(decoder.problems) > problems:
        return None
    try:
        return make(*parts)
    except StructError:
        raise
    except Exception as error:  # code of the user
        name = getattr(make, "__qualname__", repr(make))
        got = f"{type(error).__name__}: {error}"
        message = f"expected parts that {name} accepts, got {got}"
        hint = f"{CHANGED}, or the payload is not of it"
        raise SerializationError(message, code="NQX414", hint=hint) from error


FOREIGN_CODEC = Codec(
    KINDS["registered-pytree"],
    (),
    _encode_foreign,
    _decode_registered,
    lambda value: _registered_with_jax(type(value)),
)
REGISTERED_CODEC = Codec(
    KINDS["registered-pytree"],
    (),
    _encode_registered,
    _decode_registered,
    lambda value: pytree_spec(type(value)) is not None,
)
