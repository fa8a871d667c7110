"""Codecs of everything that needs JAX or Python classes: JAX arrays, random keys, Structs, registered types.

Extends the table of ``nodes.py``. Owns how a class reference in a file becomes a class: one that is imported already and
of the kind that the node demands, one that the caller trusts, or one that a schema describes; never an import, never a
call of what the file merely names.

Example:
    >>> import jax.numpy as jnp
    >>> encoder = StructEncoder()
    >>> encoder.encode(jnp.zeros(3))["leaf"]
    'jax'
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from neuralqx_struct.errors import (
    Diagnostic,
    SerializationError,
    Severity,
    StructError,
    UntrustedError,
    ValidationError,
    did_you_mean,
)
from neuralqx_struct.fieldspec import FieldSpec, is_struct
from neuralqx_struct.identity import is_key_array
from neuralqx_struct.nodes import PLAIN_CODECS, Codec, Decoder, Encoder
from neuralqx_struct.paths import FieldName, format_path
from neuralqx_struct.payload import ML_DTYPES, dtype_named
from neuralqx_struct.pytree import pytree_spec
from neuralqx_struct.registry import class_ref, find_class

__all__ = ["CODECS", "Reading", "StructDecoder", "StructEncoder"]

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
        build_class: Makes the class of a schema reference from the documents that travel with the payload, or None.
        report: Gets what was defaulted or dropped.
    """

    trust: Sequence[str] = ()
    abstract: bool = False
    as_numpy: bool = False
    copies: bool = False
    select: Callable[[tuple[Hashable, ...], Any], bool] | None = None
    unknown: Unknown = "error"
    fill: Mapping[str, Any] = field(default_factory=dict)
    build_class: Callable[[str], type | None] = lambda _ref: None
    report: list[Diagnostic] = field(default_factory=list)

    @property
    def runs_hooks(self) -> bool:
        """False where the leaves are not the saved values."""
        return not self.abstract and self.select is None


class StructEncoder(Encoder):
    """An encoder with the full table."""

    def __init__(self, *, copy: bool = False) -> None:
        super().__init__(CODECS, copy=copy)


class StructDecoder(Decoder):
    """A decoder with the full table, which knows what the caller asked for."""

    def __init__(self, arrays: Mapping[str, np.ndarray[Any, Any]], reading: Reading) -> None:
        super().__init__(CODECS, arrays)
        self.reading = reading
        self._shared: dict[tuple[str, Any, Any], Any] = {}

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
        raise UntrustedError(
            f"expected {demand} that is known here, got {got}",
            code="NQX501",
            hint="load it through its schema: load_schema(folder).load(path)" if "@" in module else remedy,
        )

    def leaf(self, node: Mapping[str, Node]) -> Any:
        """An array as the caller wants it: read or abstract, numpy or JAX, or None if it is not selected."""
        wanted = node.get("leaf")
        dtype = dtype_named(node["dtype"])
        shape = tuple(node["shape"])
        if self.reading.select is not None and not self.reading.select(self.path, _abstract(shape, dtype)):
            return None
        if self.reading.abstract:
            if wanted == "numpy" or dtype.kind in "USmM":
                return _abstract(shape, dtype)
            return _abstract(shape, dtype, weak_type=bool(node.get("weak_type", False)))
        foreign = not _in_jax(dtype)
        if foreign and wanted == "jax" and not self.reading.as_numpy:
            raise SerializationError(
                f"expected a dtype that JAX has, got {node['dtype']}", code="NQX411", hint="load with as_numpy=True"
            )
        narrowed = dtype.kind in "iufc" and not foreign and jax.dtypes.canonicalize_dtype(dtype) != dtype
        if self.reading.as_numpy or wanted == "numpy" or (wanted is None and (narrowed or foreign)):
            return self._array(node)
        if narrowed:
            raise SerializationError(
                f"expected 64-bit mode for a JAX array of {node['dtype']}, got x64 off, which would cut it to "
                f"{jax.dtypes.canonicalize_dtype(dtype)}",
                code="NQX417",
                hint='call jax.config.update("jax_enable_x64", True) before loading, or load with as_numpy=True',
            )
        # One array of the file stays one array, also where several nodes name it.
        sharing = (node.get("name", ""), node.get("weak_type", False), node["dtype"])
        if not sharing[0] or sharing not in self._shared:
            # Not jnp.asarray: device_put of an aligned memory map shares its pages on CPU instead of copying them. What
            # somebody can still write into must not be shared: JAX arrays never change.
            held = self._array(node)
            array = jax.device_put(held.copy() if held.flags.writeable else held)
            self._shared[sharing] = _weakened(array) if node.get("weak_type") else array
        return self._shared[sharing]

    def shared(self, key: tuple[str, Any, Any], make: Callable[[], Any]) -> Any:
        """What one thing in the file was made into: made the first time, then found again."""
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]

    def _array(self, node: Mapping[str, Node]) -> np.ndarray[Any, Any]:
        if not self.reading.copies or node["__kind__"] != "array":
            return PLAIN_CODECS.by_kind[node["__kind__"]].decode(node, self)  # type: ignore[no-any-return]
        return self.shared(("copy", node["name"], None), lambda: self.array(node).copy())  # type: ignore[no-any-return]


@functools.cache
def _in_jax(dtype: np.dtype[Any]) -> bool:
    """Whether JAX has a dtype; which of the number formats of ml_dtypes it takes differs between its versions."""
    if dtype.kind in "USmM" or not dtype.isnative:
        return False
    if dtype.name not in ML_DTYPES:
        return True
    try:
        jax.device_put(np.zeros(1, dtype))
    except (TypeError, ValueError, RuntimeError):
        return False
    return True


def _abstract(shape: tuple[int, ...], dtype: Any, *, weak_type: bool = False) -> Any:
    make: Any = jax.ShapeDtypeStruct  # JAX leaves its constructor untyped
    return make(shape, dtype, weak_type=weak_type)


def _weakened(array: jax.Array) -> jax.Array:
    from jax._src.lax.lax import _convert_element_type  # the only way to set the weak type of a whole array

    return _convert_element_type(array, array.dtype, weak_type=True)  # type: ignore[no-any-return]


def _encode_jax(value: jax.Array, encoder: Encoder, owner: Any = None) -> dict[str, Node]:
    if isinstance(value, jax.core.Tracer):
        encoder.refuse("expected a concrete array, got a tracer", hint="export outside of jit, grad and vmap")
        return {"name": "", "dtype": "", "shape": []}
    if not value.is_fully_addressable:
        encoder.refuse(
            "expected an array of this process, got one spread over several hosts",
            hint="gather it first: jax.experimental.multihost_utils.process_allgather",
        )
        return {"name": "", "dtype": "", "shape": []}
    members = {**encoder.put_array(np.asarray(value), value if owner is None else owner), "leaf": "jax"}
    return {**members, "weak_type": True} if value.weak_type else members


def _encode_key(value: jax.Array, encoder: Encoder) -> dict[str, Node]:
    impl = str(jax.random.key_impl(value))
    words = _encode_jax(jax.random.key_data(value), encoder, owner=value)
    return {"impl": impl, "data": {"__kind__": "array", **words}}


def _decode_key(node: Mapping[str, Node], decoder: StructDecoder) -> Any:
    data = decoder.decode(node["data"])
    if data is None:
        return None
    impl: str = node["impl"]
    try:
        if isinstance(data, jax.ShapeDtypeStruct):
            return jax.eval_shape(lambda words: jax.random.wrap_key_data(words, impl=impl), data)
        return decoder.shared(
            ("key", node["data"]["name"], impl), lambda: jax.random.wrap_key_data(jnp.asarray(data), impl=impl)
        )
    except (ValueError, TypeError, AssertionError, IndexError) as error:
        raise SerializationError(
            f"expected the words of a {impl[:60]} key, got {data.dtype}{list(data.shape)}\n{error}", code="NQX420"
        ) from None


def _encode_struct(value: Any, encoder: Encoder) -> dict[str, Node]:
    cls = type(value)
    fields = {
        name: encoder.encode(getattr(value, name), FieldName(name, spec))
        for name, spec in cls.__nqx_fields__.items()
        if spec.should_serialize
    }
    return {"type": class_ref(cls), "fields": fields}


def _decode_struct(node: Mapping[str, Node], decoder: StructDecoder) -> Any:
    cls: Any = decoder.resolve(node["type"], "a Struct class", is_struct)
    specs: Mapping[str, FieldSpec] = cls.__nqx_fields__
    stored = dict(node["fields"])
    problems = len(decoder.problems)
    values: dict[str, Any] = {}
    where = format_path(decoder.path)
    for name, spec in specs.items():
        if spec.is_derived:
            stored.pop(name, None)
            continue
        held = next((n for n in (name, *spec.aliases) if n in stored), None)
        if held is not None:
            values[name] = decoder.decode(stored.pop(held), FieldName(name, spec))
        else:
            _fill_in(spec, values, decoder, stored)
    for name in stored:
        _unknown_field(name, cls, decoder, where)
    if len(decoder.problems) > problems:
        return None
    if not decoder.reading.runs_hooks:
        return cls.__nqx_assemble__(values)
    try:
        return cls.__nqx_restore__(values)
    except ValidationError as error:
        # Paths of a check start at the struct that was checked: set them below the place it was read from.
        raise SerializationError(
            dataclasses.replace(d, path=f"{where}{_below(d.path)}") for d in error.diagnostics
        ) from error


def _below(path: str) -> str:
    return path[1:] if path.startswith("$") else f".{path.partition('.')[2]}" if "." in path else ""


def _fill_in(spec: FieldSpec, values: dict[str, Any], decoder: StructDecoder, stored: Mapping[str, Node]) -> None:
    """Give a field that the payload lacks the value that the caller or its default has for it."""
    name, reading, where = spec.name, decoder.reading, format_path(decoder.path)
    if name in reading.fill:
        values[name] = reading.fill[name]
    elif spec.has_default:
        values[name] = spec.make_default()
        if not spec.reset and spec.should_serialize:
            reading.report.append(
                Diagnostic("NQX425", "info", "took the default, the payload has no value", f"{where}.{name}")
            )
    else:
        hint = did_you_mean(name, stored)
        hint = f"the payload has a field that is not in the class: {hint} say aliases=({name!r},)" if hint else None
        decoder.problems.append(
            Diagnostic(
                "NQX414",
                "error",
                "expected a stored value or a default, got neither",
                path=f"{where}.{name}",
                hint=hint
                or f"give the field a default, pass fill={{{name!r}: ...}}, or write a migration that adds it",
            )
        )


_SEVERITY: Mapping[Unknown, Severity] = {"error": "error", "warn": "warning", "drop": "info"}


def _unknown_field(name: str, cls: type, decoder: StructDecoder, where: str) -> None:
    reading = decoder.reading
    severity: Severity = _SEVERITY[reading.unknown]
    diagnostic = Diagnostic(
        "NQX415",
        severity,
        f"expected a field of {cls.__name__}, got {name!r}, which it does not have",
        path=f"{where}.{name}",
        hint="write a migration that renames or removes it, or drop it with unknown='drop'",
    )
    (decoder.problems if reading.unknown == "error" else reading.report).append(diagnostic)


def _encode_named(value: Any, encoder: Encoder) -> dict[str, Node]:
    return {
        "type": class_ref(type(value)),
        "fields": {n: encoder.encode(getattr(value, n), FieldName(n)) for n in type(value)._fields},
    }


def _is_namedtuple_type(cls: type) -> bool:
    return issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def _decode_named(node: Mapping[str, Node], decoder: StructDecoder) -> Any:
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
    if value.name not in type(value).__members__:  # flags joined by |, and a flag without any
        encoder.refuse(
            f"expected a member of {type(value).__name__}, got {value!r}, which has no name of its own",
            hint="save its number, flag.value, and make the flag of it with a converter; or name the combination",
        )
        return {"type": "", "name": ""}
    return {"type": class_ref(type(value)), "name": value.name}


def _decode_enum(node: Mapping[str, Node], decoder: StructDecoder) -> Any:
    cls: Any = decoder.resolve(node["type"], "an Enum class", lambda cls: issubclass(cls, enum.Enum))
    if node["name"] not in cls.__members__:
        hint = did_you_mean(node["name"], cls.__members__)
        raise SerializationError(f"expected a member of {cls.__name__}, got {node['name']!r}", code="NQX421", hint=hint)
    return cls.__members__[node["name"]]


def _encode_dataclass(value: Any, encoder: Encoder) -> dict[str, Node]:
    names = [f.name for f in dataclasses.fields(value)]
    if _blank(type(value)) is None or not all(hasattr(value, name) for name in names):
        encoder.refuse(
            f"expected a dataclass whose instances are their fields, got a {type(value).__name__}, which is not\n"
            "it derives from a builtin type, or has fields without a value",
            hint="register the type with register_pytree_type",
        )
        return {"type": "", "fields": {}}
    return {
        "type": class_ref(type(value)),
        "fields": {n: encoder.encode(getattr(value, n), FieldName(n)) for n in names},
    }


def _decode_dataclass(node: Mapping[str, Node], decoder: StructDecoder) -> Any:
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
    assert spec is not None
    ref = class_ref(spec.cls)
    if spec.serializer is not None and not spec.deserializer_takes_children:
        return {"type": ref, "mode": "serializer", "payload": encoder.encode(spec.serializer(value))}
    children, aux = spec.flatten(value)
    if spec.serializer is not None:  # deserializer(payload, children): the payload stands for what flatten cannot save
        aux = spec.serializer(value)
    nodes = [encoder.encode(child, i) for i, child in enumerate(children)]
    return {"type": ref, "mode": "flatten", "children": nodes, "aux": encoder.encode(aux, "aux")}


def _decode_registered(node: Mapping[str, Node], decoder: StructDecoder) -> Any:
    cls = decoder.resolve(
        node["type"], "a class known to register_pytree_type", lambda cls: pytree_spec(cls) is not None
    )
    spec = pytree_spec(cls)
    assert spec is not None  # `resolve` has asked
    problems = len(decoder.problems)
    if node["mode"] == "flatten":
        children = [decoder.decode(child, i) for i, child in enumerate(node["children"])]
        aux = decoder.decode(node["aux"], "aux")
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


def _made(decoder: StructDecoder, problems: int, make: Any, *parts: Any) -> Any:
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


def _decode_leaf(node: Mapping[str, Node], decoder: Any) -> Any:
    return decoder.leaf(node)


def _is_dataclass_instance(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


CODECS = PLAIN_CODECS.extended(
    [
        Codec("array", (), PLAIN_CODECS.by_kind["array"].encode, _decode_leaf, lambda v: isinstance(v, np.ndarray)),
        Codec("full", (), PLAIN_CODECS.by_kind["full"].encode, _decode_leaf),
        Codec("pytree-dataclass", (), _encode_dataclass, _decode_dataclass, _is_dataclass_instance),
        Codec("namedtuple", (), _encode_named, _decode_named, lambda v: _is_namedtuple_type(type(v))),
        Codec("enum", (), _encode_enum, _decode_enum, lambda v: isinstance(v, enum.Enum)),
        Codec("array", (), _encode_jax, _decode_leaf, lambda v: isinstance(v, jax.Array) and not is_key_array(v)),
        Codec("prng-key", (), _encode_key, _decode_key, is_key_array),
        Codec(
            "registered-pytree", (), _encode_registered, _decode_registered, lambda v: pytree_spec(type(v)) is not None
        ),
        Codec("struct", (), _encode_struct, _decode_struct, lambda v: is_struct(v) and not isinstance(v, type)),
    ]
)
