"""Codecs of Structs, and of instances of classes that are registered as pytrees, with this package or with JAX alone.

Example:
    >>> import jax
    >>> _registered_with_jax(jax.tree_util.Partial)
    True
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
from jax.tree_util import PyTreeDef, default_registry

from neuralqx_struct.codecs.classes import (
    CHANGED,
    ClassDecoder,
    note_unknown,
    raw_fields,
    reachable_ref,
    refuse_code,
)
from neuralqx_struct.codecs.external import (
    AUX,
    child_keys,
    decode_member,
    given_or_default,
    tree_of,
)
from neuralqx_struct.codecs.nodes import Codec, Encoder, unsaveable
from neuralqx_struct.documents.bound import bound_document
from neuralqx_struct.errors import (
    MOST_HINTS,
    Diagnostic,
    SerializationError,
    StructError,
    ValidationError,
    did_you_mean,
)
from neuralqx_struct.fieldspec import FieldSpec, is_struct, tagged
from neuralqx_struct.filters.predicates import node_tags
from neuralqx_struct.manifest.kinds import EXTERNAL, KINDS, STRUCT
from neuralqx_struct.matching import without_value
from neuralqx_struct.paths import FieldName, format_path
from neuralqx_struct.references import class_ref, is_schema_ref, stored_class
from neuralqx_struct.struct.lifecycle import verify
from neuralqx_struct.struct.pytree import holder_of
from neuralqx_struct.struct.registration import PyTreeSpec, pytree_spec

if TYPE_CHECKING:
    from neuralqx_struct.codecs.jax import StructDecoder, StructEncoder

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
    keys = child_keys(value, len(children))
    nodes = [encoder.encode(child, key) for key, child in zip(keys, children, strict=True)]
    return {
        "type": ref,
        "mode": "flatten",
        "children": nodes,
        "aux": encoder.encode(aux, AUX),
    }


def stored_keys(spec: PyTreeSpec, count: int, aux: Any) -> Sequence[Hashable]:
    """The keys of stored children; the file lacks them, but a value without content has them."""
    if spec.names is not None and len(spec.names) == count:
        return [FieldName(name) for name in spec.names]
    if spec.deserializer_takes_children:  # the payload is no auxiliary data
        return range(count)
    try:
        return child_keys(_unflattened(spec.cls, aux, [None] * count), count)
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


def _encode_structure(value: PyTreeDef, encoder: StructEncoder) -> Members:
    try:
        tree = tree_of(value)
        kept = jax.tree_util.tree_structure(tree) == value
    except Exception:  # noqa: BLE001 - code of the user, which may refuse 0
        kept = False
    if not kept:
        message = f"expected a structure of containers that take any leaf, got {str(value)[:200]}"
        raise unsaveable(message, "save a tree of that structure instead")
    check, encoder.check = encoder.check, False
    payload = encoder.encode(tree)
    encoder.check = check
    return {"type": _STRUCTURE_REF, "mode": "serializer", "payload": payload}


#: The public name of the class of structures; its module in jaxlib has had others.
_STRUCTURE_REF = "jax.tree_util:PyTreeDef"


def registered_spec(node: Members, decoder: ClassDecoder) -> PyTreeSpec:
    """The registration of the class of a node.

    Raises:
        UntrustedError: No such class is known here.
    """
    fits = _flattens if node["mode"] == "flatten" else _is_registered
    cls = decoder.resolve(node["type"], "a class that is registered as a pytree", fits)
    spec = pytree_spec(cls)
    if spec is None:
        known = _registered_with_jax(cls)
        unflatten = functools.partial(_unflattened, cls) if known else cls.tree_unflatten
        spec = PyTreeSpec(cls, flatten=default_registry.flatten_one_level, unflatten=unflatten)
    return spec


def _decode_registered(node: Members, decoder: ClassDecoder) -> Any:
    problems = len(decoder.problems)
    if (node["type"], node["mode"]) == (_STRUCTURE_REF, "serializer"):
        make = jax.tree_util.tree_structure
        return _made(decoder, problems, make, decoder.decode(node["payload"]))
    spec = registered_spec(node, decoder)
    two = spec.deserializer is not None and spec.deserializer_takes_children
    if node["mode"] == "flatten":
        aux = decoder.decode(node["aux"], AUX)
        keys = stored_keys(spec, len(node["children"]), aux)
        pairs = zip(keys, node["children"], strict=True)
        children = [decode_member(spec.cls, key, child, decoder) for key, child in pairs]
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


# ----------------------------------------------------------------------------------------------------------------------
# Structs.


def _encode_struct(value: Any, encoder: StructEncoder) -> Members:
    cls = stored_class(type(value))
    ref = class_ref(cls)
    texts: Mapping[str, type[enum.Enum]] = {}
    encoder.classes.add(cls)
    outer = encoder.own
    encoder.own = bound_document(cls) or outer
    if encoder.own is not None:
        ref = encoder.own.refs.get(cls, ref)
        texts = encoder.own.enums.get(cls, {})
    fields: dict[str, Node] = {}
    problems, check = len(encoder.problems), encoder.check
    stacked: frozenset[str] = cls.__nqx_stacked__  # type: ignore[attr-defined]
    for name, spec in type(value).__nqx_fields__.items():
        if spec.should_serialize:
            held = getattr(value, name)
            is_text = name in texts and isinstance(held, texts[name])
            # The struct around stacked ones checks them.
            encoder.check = check and name not in stacked
            fields[name] = encoder.encode(held.name if is_text else held, FieldName(name, spec))
    encoder.own, encoder.check = outer, check
    if check and len(encoder.problems) == problems:
        try:
            verify(value)
        except (TypeError, AttributeError) as error:
            encoder.problems += _refusal(error, cls, format_path(encoder.path))
    return {"type": ref, "fields": fields}


_REMOVED = "write a migration that renames or removes it"


def _decode_struct(node: Members, decoder: StructDecoder) -> Any:
    options, hooks = decoder.options, decoder.hooks
    cls = decoder.resolve(node["type"], "a Struct class", is_struct)
    if options.root is not None and not decoder.path and stored_class(options.root) is cls:
        cls = options.root
    specs: Mapping[str, FieldSpec] = cls.__nqx_fields__
    decoder.seen_fields.update(specs)
    stored = dict(node["fields"])
    problems = len(decoder.problems)
    values: dict[str, Any] = {}
    tags = frozenset[str]() if options.select is None else node_tags(node)
    holder = holder_of(cls, cls.__nqx_layout__.nodes)
    for name, spec in specs.items():
        if spec.is_derived:
            stored.pop(name, None)
            continue
        held: str | None = name
        if name not in stored:
            held = next((alias for alias in spec.aliases if alias in stored), None)
        child = None if held is None else stored.pop(held)
        given = _given(spec, decoder) if held is None or EXTERNAL.matches(child) else ()
        if given:
            (values[name],) = given
        elif held is None:
            decoder.problems.append(_lacking(name, decoder, stored))
        else:
            key = FieldName(name, tagged(spec, tags), holder)
            decoder.hooks = hooks and name not in cls.__nqx_stacked__
            values[name] = decoder.decode(child, key)
    decoder.hooks = hooks
    is_own = not is_schema_ref(class_ref(cls))
    for name in stored:
        renamed = f"was it renamed? add aliases=({name!r},) to the renamed field"
        note_unknown(name, cls, decoder, renamed if is_own else _REMOVED)
    if len(decoder.problems) > problems:
        return None
    if is_schema_ref(node["type"]):
        for name, members in options.choices(node["type"], cls).items():
            text = values.get(name)
            if isinstance(text, str) and text in members.__members__:
                values[name] = members[text]
    try:
        runs_hooks = hooks and options.runs_hooks
        return (cls.__nqx_restore__ if runs_hooks else cls.__nqx_assemble__)(values)
    except (TypeError, AttributeError) as error:
        found = _refusal(error, cls, format_path(decoder.path))
        raise SerializationError(found) from error


def _refusal(error: Exception, cls: type, where: str) -> list[Diagnostic]:
    """The findings of an error about a struct; hooks fail in any way for values that their author did not expect."""
    if not isinstance(error, ValidationError):
        reason = "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
        message = f"expected values that the hooks of {cls.__name__} accept, got {reason}"
        return [Diagnostic("NQX416", "error", message, where)]
    found: list[Diagnostic] = []
    for each in error.diagnostics:
        _, dot, rest = each.path.partition(".")
        below = each.path[1:] if each.path.startswith("$") else dot + rest
        found.append(replace(each, path=where + below))
    return found


def _given(spec: FieldSpec, decoder: StructDecoder) -> tuple[Any, ...]:
    """The value of a field that the payload lacks, in a tuple: of the caller, or the default; empty without either."""
    make_default = spec.make_default if spec.has_default else None
    noted = spec.should_serialize and not spec.reset
    return given_or_default(FieldName(spec.name), decoder, make_default, noted=noted)


def _lacking(name: str, decoder: StructDecoder, stored: Mapping[str, Node]) -> Diagnostic:
    """The finding about a field without a value."""
    few = len(decoder.problems) < MOST_HINTS
    meant = did_you_mean(name, stored) if few else None
    hint = (
        f"give the field a default, pass fill={{{name!r}: ...}}, or write a migration that adds it"
    )
    if meant:
        hint = f"the payload has a field that is not in the class: {meant} add aliases=({name!r},)"
    return without_value(f"{format_path(decoder.path)}.{name}", hint)


def _decode_parts(node: Members, decoder: ClassDecoder) -> Any:
    """The stored parts of an instance, without its class."""
    if node["mode"] == "serializer":
        return decoder.decode(node["payload"])
    return {"children": decoder.all(node["children"]), "aux": decoder.decode(node["aux"])}


FOREIGN_CODEC = Codec(
    KINDS["registered-pytree"],
    (),
    _encode_foreign,
    _decode_registered,
    lambda value: _registered_with_jax(type(value)),
    _decode_parts,
)
STRUCTURE_CODEC = Codec(
    KINDS["registered-pytree"],
    (PyTreeDef,),
    _encode_structure,
    _decode_registered,
    None,
    _decode_parts,
)
REGISTERED_CODEC = Codec(
    KINDS["registered-pytree"],
    (),
    _encode_registered,
    _decode_registered,
    lambda value: pytree_spec(type(value)) is not None,
    _decode_parts,
)
STRUCT_CODEC = Codec(
    STRUCT,
    (),
    _encode_struct,
    _decode_struct,
    lambda value: is_struct(value) and not isinstance(value, type),
    raw_fields,
)
