"""The whole table of codecs: JAX arrays, random keys and Structs here, all other kinds from the modules below.

Owns how leaves come back (numpy or JAX, abstract, selected, shared) and how a Struct is put together from its stored
fields. Plain values are ``plain_codecs.py``'s, other classes and what may be resolved ``class_codecs.py``'s.

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
from collections.abc import Callable, Mapping
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from neuralqx_struct import versioned
from neuralqx_struct.arrays import StoredArrays
from neuralqx_struct.class_codecs import CLASS_CODECS, ClassDecoder, Reading, Unknown
from neuralqx_struct.errors import Diagnostic, SerializationError, Severity, ValidationError, did_you_mean
from neuralqx_struct.fieldspec import FieldSpec, is_struct, tagged
from neuralqx_struct.identity import is_key_array
from neuralqx_struct.nodes import Codec, Encoder
from neuralqx_struct.param_tags import node_tags
from neuralqx_struct.paths import FieldName, format_path
from neuralqx_struct.payload import ML_DTYPES, dtype_named
from neuralqx_struct.plain_codecs import PLAIN_CODECS
from neuralqx_struct.pytree import holder_of
from neuralqx_struct.registry import class_ref, stored_class

__all__ = ["CODECS", "Reading", "StructDecoder", "StructEncoder", "Unknown"]

Node = Any


class StructEncoder(Encoder):
    """An encoder with the full table."""

    def __init__(self, *, copy: bool = False, spread: bool = False) -> None:
        super().__init__(CODECS, copy=copy)
        self.spread = spread  # whether arrays may be spread over several processes
        self.classes: set[type] = set()  # of all structs that were met
        self.own: versioned.Written | None = None  # the document that declares what is saved, if a class claims one


class StructDecoder(ClassDecoder):
    """A decoder with the full table, which knows what the caller asked for."""

    def __init__(self, arrays: Mapping[str, np.ndarray[Any, Any]], reading: Reading) -> None:
        super().__init__(CODECS, arrays, reading)
        self.seen_fields: set[str] = set()  # of all Structs that were read: what `fill` may name
        self._held: dict[str, np.ndarray[Any, Any]] = {}
        self.standing_for: jax.ShapeDtypeStruct | None = None  # what filters see in place of the array that is read
        self._shared: dict[tuple[str, Any, Any], Any] = {}

    def leaf(self, node: Mapping[str, Node]) -> Any:
        """An array as the caller wants it: read or abstract, numpy or JAX, or None if it is not selected."""
        wanted = node.get("leaf")
        as_numpy = self.reading.as_numpy or wanted == "numpy"
        if as_numpy and self.reading.select is None and not self.reading.abstract:
            return self._array(node)
        dtype = dtype_named(node["dtype"])
        shape = tuple(node["shape"])
        if self.reading.select is not None:
            seen = _abstract(shape, dtype) if self.standing_for is None else self.standing_for
            if not self.reading.select(self.path, seen):
                return None
        if self.reading.abstract:
            weak = bool(node.get("weak_type", False)) and wanted != "numpy" and dtype.kind not in "USmM"
            leaf = _abstract(shape, dtype, weak_type=weak)
            if self.reading.met is not None:
                self.reading.met[id(node)] = leaf
            return leaf
        if as_numpy:
            return self._array(node)
        foreign = not _in_jax(dtype)
        if foreign and wanted == "jax":
            raise SerializationError(
                f"expected a dtype that JAX has, got {node['dtype']}", code="NQX411", hint="load with as_numpy=True"
            )
        narrowed = dtype.kind in "iufc" and not foreign and jax.dtypes.canonicalize_dtype(dtype) != dtype
        if wanted is None and (narrowed or foreign):
            return self._array(node)
        if narrowed:
            raise SerializationError(
                f"expected 64-bit mode for a JAX array of {node['dtype']}, got x64 off, which would cut it to "
                f"{jax.dtypes.canonicalize_dtype(dtype)}",
                code="NQX417",
                hint='call jax.config.update("jax_enable_x64", True) before loading, or load with as_numpy=True',
            )
        # One array of the file stays one array, also where several nodes name it.
        target = self.reading.targets.get(id(node)) if node["__kind__"] == "array" else None
        sharing = (node.get("name", ""), (node.get("weak_type", False), target), node["dtype"])
        if not sharing[0] or sharing not in self._shared:
            if target is not None:
                array = _spread(self.arrays, node["name"], shape, target)
            else:
                # Not jnp.asarray: device_put of an aligned memory map shares its pages on CPU instead of copying them.
                # What somebody can still write into must not be shared: JAX arrays never change.
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
        if node["__kind__"] != "array":
            return PLAIN_CODECS.by_kind[node["__kind__"]].decode(node, self)  # type: ignore[no-any-return]
        name: str = node["name"]
        held = self._held.get(name)
        if held is None:
            held = self._held[name] = self.array(node)
        return self.shared(("copy", name, None), held.copy) if self.reading.copies else held


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


def _spread(arrays: Mapping[str, np.ndarray[Any, Any]], name: str, shape: tuple[int, ...], target: Any) -> jax.Array:
    """An array whose shards are read one after the other, each straight to the devices that have it."""
    homes: dict[tuple[tuple[int, int, int], ...], list[jax.Device]] = {}
    for device, region in target.addressable_devices_indices_map(shape).items():
        homes.setdefault(tuple(p.indices(n) for p, n in zip(region, shape, strict=True)), []).append(device)
    regions = [tuple(slice(*part) for part in region) for region in homes]
    parts = arrays.parts(name, regions) if isinstance(arrays, StoredArrays) else (arrays[name][r] for r in regions)
    shards = [
        jax.device_put(part, jax.sharding.SingleDeviceSharding(device, memory_kind=target.memory_kind))
        for part, devices in zip(parts, homes.values(), strict=True)
        for device in devices
    ]
    return jax.make_array_from_single_device_arrays(shape, target, shards)


def _weakened(array: jax.Array) -> jax.Array:
    from jax._src.lax.lax import _convert_element_type  # the only way to set the weak type of a whole array

    return _convert_element_type(array, array.dtype, weak_type=True)  # type: ignore[no-any-return]


def _encode_jax(value: jax.Array, encoder: Encoder, owner: Any = None) -> dict[str, Node]:
    if isinstance(value, jax.core.Tracer):
        encoder.refuse("expected a concrete array, got a tracer", hint="export outside of jit, grad and vmap")
        return {"name": "", "dtype": "", "shape": []}
    if not value.is_fully_addressable and not (isinstance(encoder, StructEncoder) and encoder.spread):
        encoder.refuse(
            "expected an array of this process, got one spread over several hosts",
            hint="export with store='orbax', which every host then calls, or gather it first: "
            "jax.experimental.multihost_utils.process_allgather",
        )
        return {"name": "", "dtype": "", "shape": []}
    if value.is_deleted():
        encoder.refuse(
            "expected an array with data, got one that was deleted or donated", hint="save it before donating it"
        )
        return {"name": "", "dtype": "", "shape": []}
    # Left on its device: whoever writes it fetches one after the other.
    members = {**encoder.put_array(cast("Any", value), value if owner is None else owner), "leaf": "jax"}
    return {**members, "weak_type": True} if value.weak_type else members


def _encode_key(value: jax.Array, encoder: Encoder) -> dict[str, Node]:
    impl = str(jax.random.key_impl(value))
    words = _encode_jax(jax.random.key_data(value), encoder, owner=value)
    return {"impl": impl, "data": {"__kind__": "array", **words}}


def _decode_key(node: Mapping[str, Node], decoder: StructDecoder) -> Any:
    impl: str = node["impl"]
    data = _abstract(tuple(node["data"]["shape"]), dtype_named(node["data"]["dtype"]))
    try:
        if decoder.reading.select is not None:  # filters choose keys, as in the object, not their words
            decoder.standing_for = _abstract_key(data, impl)
        data = decoder.decode(node["data"])
        if data is None:
            return None
        if isinstance(data, jax.ShapeDtypeStruct):
            return _abstract_key(data, impl)
        return decoder.shared(
            ("key", node["data"]["name"], impl), lambda: jax.random.wrap_key_data(jnp.asarray(data), impl=impl)
        )
    except (ValueError, TypeError, AssertionError, IndexError) as error:
        raise SerializationError(
            f"expected the words of a {impl[:60]} key, got {data.dtype}{list(data.shape)}\n{error}", code="NQX420"
        ) from None
    finally:
        decoder.standing_for = None


def _abstract_key(words: jax.ShapeDtypeStruct, impl: str) -> Any:
    return jax.eval_shape(lambda data: jax.random.wrap_key_data(data, impl=impl), words)


def _encode_struct(value: Any, encoder: Encoder) -> dict[str, Node]:
    fields = type(value).__nqx_fields__.items()
    cls = stored_class(type(value))
    ref = class_ref(cls)
    texts: Mapping[str, type[enum.Enum]] = {}
    outer = None
    if isinstance(encoder, StructEncoder):
        encoder.classes.add(cls)
        outer, encoder.own = encoder.own, versioned.written(cls) or encoder.own
        if encoder.own is not None:
            ref, texts = encoder.own.refs.get(cls, ref), encoder.own.enums.get(cls, {})
    members: dict[str, Node] = {}
    for name, spec in fields:
        if spec.should_serialize:
            held = getattr(value, name)
            member = held.name if name in texts and isinstance(held, texts[name]) else held
            members[name] = encoder.encode(member, FieldName(name, spec))
    if isinstance(encoder, StructEncoder):
        encoder.own = outer
    return {"type": ref, "fields": members}


def _decode_struct(node: Mapping[str, Node], decoder: StructDecoder) -> Any:
    cls: Any = decoder.resolve(node["type"], "a Struct class", is_struct)
    wanted = decoder.reading.root
    if wanted is not None and not decoder.path and stored_class(wanted) is cls:
        cls = wanted
    specs: Mapping[str, FieldSpec] = cls.__nqx_fields__
    decoder.seen_fields.update(specs)
    stored = dict(node["fields"])
    problems = len(decoder.problems)
    values: dict[str, Any] = {}
    where = format_path(decoder.path)
    tags = frozenset[str]() if decoder.reading.select is None else node_tags(node)
    holder = holder_of(cls, cls.__nqx_layout__.nodes)
    for name, spec in specs.items():
        if spec.is_derived:
            stored.pop(name, None)
            continue
        held = next((n for n in (name, *spec.aliases) if n in stored), None)
        if held is not None:
            values[name] = decoder.decode(stored.pop(held), FieldName(name, tagged(spec, tags), holder))
        else:
            _fill_in(spec, values, decoder, stored)
    for name in stored:
        _unknown_field(name, cls, decoder, where)
    if len(decoder.problems) > problems:
        return None
    if "@" in node["type"]:
        for name, choices in decoder.reading.choices(node["type"], cls).items():
            if isinstance(text := values.get(name), str) and text in choices.__members__:
                values[name] = choices[text]
    try:
        return cls.__nqx_restore__(values) if decoder.reading.runs_hooks else cls.__nqx_assemble__(values)
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
    mend = "write a migration that renames or removes it"
    if "@" not in class_ref(cls):
        mend = f"was it renamed? give the field that it is now aliases=({name!r},)"
    diagnostic = Diagnostic(
        "NQX415",
        severity,
        f"expected a field of {cls.__name__}, got {name!r}, which it does not have",
        path=f"{where}.{name}",
        hint=f"{mend}, or drop it with unknown='drop'",
    )
    (decoder.problems if reading.unknown == "error" else reading.report).append(diagnostic)


def _decode_leaf(node: Mapping[str, Node], decoder: Any) -> Any:
    return decoder.leaf(node)


CODECS = PLAIN_CODECS.extended(
    [
        Codec(
            "array",
            (np.ndarray, np.memmap),
            PLAIN_CODECS.by_kind["array"].encode,
            _decode_leaf,
            lambda v: isinstance(v, np.ndarray),
        ),
        Codec("full", (), PLAIN_CODECS.by_kind["full"].encode, _decode_leaf),
        *CLASS_CODECS,
        Codec("struct", (), _encode_struct, _decode_struct, lambda v: is_struct(v) and not isinstance(v, type)),
        Codec("array", (), _encode_jax, _decode_leaf, lambda v: isinstance(v, jax.Array)),
        Codec("prng-key", (), _encode_key, _decode_key, is_key_array),
    ]
)
