"""The full table of codecs: JAX arrays, random keys and Structs, with those of plain values and of classes.

Example:
    >>> import jax.numpy as jnp
    >>> encoder = StructEncoder()
    >>> encoder.encode(jnp.zeros(3))["leaf"]
    'jax'
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from neuralqx_struct.codecs.arrays import decode_full
from neuralqx_struct.codecs.classes import CLASS_CODECS, ClassDecoder, DecodeOptions
from neuralqx_struct.codecs.nodes import Codec, Codecs, Encoder, unsaveable
from neuralqx_struct.codecs.plain import PLAIN_CODECS
from neuralqx_struct.codecs.pytrees import (
    FOREIGN_CODEC,
    REGISTERED_CODEC,
    STRUCT_CODEC,
    STRUCTURE_CODEC,
    registered_spec,
    stored_keys,
)
from neuralqx_struct.documents.binding import ClassDocument
from neuralqx_struct.dtypes import DTYPES, ML_DTYPES, dtype_named
from neuralqx_struct.dtypes.casts import cast as cast_array
from neuralqx_struct.errors import Diagnostic, MigrationError, SerializationError, StructError
from neuralqx_struct.manifest import DEFAULT_LIMITS, Limits
from neuralqx_struct.manifest.kinds import ARRAY, KINDS, PRNG_KEY
from neuralqx_struct.manifest.payload import Region, StoredArrays
from neuralqx_struct.paths import format_path
from neuralqx_struct.printing import brief_array
from neuralqx_struct.struct.equality import is_key_array

Node = Any
Members = Mapping[str, Node]

_SMALL = 4096  # bytes of an array that is copied rather than shared


@contextmanager
def explicit_transfers() -> Iterator[None]:
    """Lets arrays of a file go to devices where the program guards transfers that it does not ask for, or looks for nan."""
    config: Any = jax.config
    with ExitStack() as stack:
        # Each takes longer to enter than to read, and most programs have none.
        if config.jax_transfer_guard_host_to_device not in (None, "allow"):
            stack.enter_context(jax.transfer_guard_host_to_device("allow"))
        if config.jax_debug_nans:
            stack.enter_context(jax.debug_nans(False))
        if config.jax_debug_infs:
            stack.enter_context(jax.debug_infs(False))
        yield


class StructEncoder(Encoder):
    """An encoder with the full table."""

    def __init__(
        self,
        *,
        copy: bool = False,
        spread: bool = False,
        check: bool = True,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        super().__init__(CODECS, copy=copy, limits=limits)
        self.spread = spread  # whether arrays may be spread over several processes
        self.check = check  # whether to refuse Structs that a load would refuse
        self.classes: set[type] = set()  # of all structs that were met
        self.own: ClassDocument | None = None  # the schema version that declares the current struct


class StructDecoder(ClassDecoder):
    """A decoder with the full table."""

    def __init__(self, arrays: Mapping[str, np.ndarray[Any, Any]], options: DecodeOptions) -> None:
        super().__init__(RAW_CODECS if options.raw else CODECS, arrays, options)
        self.stand_in: jax.ShapeDtypeStruct | None = None  # the leaf that filters see
        self.conversions = options.conversions
        self.target = options.target
        self._whole = options.runs_hooks
        self.hooks = True  # False in stacked structs: hooks ran when single ones were made
        self._held: dict[str, np.ndarray[Any, Any]] = {}
        self._shared: dict[tuple[str, Any, Any], Any] = {}

    def leaf(self, node: Members) -> Any:
        """An array: read or abstract, numpy or JAX, or None if it is not selected."""
        options, saved = self.options, node.get("leaf")
        as_numpy = options.as_numpy or saved == "numpy"
        if as_numpy and self._whole and not self.conversions:
            return self._array(node)
        dtype = dtype_named(node["dtype"])
        shape = tuple(node["shape"])
        if options.select is not None:
            seen = _abstract(shape, dtype) if self.stand_in is None else self.stand_in
            if not options.select(self.path, seen):
                return None
        dtype = self._converted(dtype)
        if options.abstract:
            return self._abstract_leaf(node, shape, dtype)
        if as_numpy or (saved != "jax" and not _fits_jax(dtype)):
            return self._array(node, dtype)
        _require_jax(dtype)
        if not ARRAY.matches(node):
            return self._jax_array(node, dtype, None)
        target = None
        if self.target is not None:
            weak = bool(node.get("weak_type"))
            target = self.target(self.path, _abstract(shape, dtype, weak_type=weak))
        # One array of the file stays one array, also where several nodes name it.
        key = (node["name"], (node.get("weak_type", False), target), dtype)
        return self.shared(key, lambda: self._jax_array(node, dtype, target))

    def _converted(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """The dtype that an array gets; notes it if that is another."""
        if not self.conversions:
            return dtype
        wanted = self.conversions.get(dtype.name)
        if wanted is None:
            return dtype
        message = f"was cast from {dtype.name} to {wanted}"
        found = Diagnostic("NQX425", "info", message, format_path(self.path))
        self.options.report.append(found)
        return dtype_named(wanted)

    def _abstract_leaf(self, node: Members, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        weak = "weak_type" in node and node.get("leaf") != "numpy" and dtype.kind not in "USmM"
        return _abstract(shape, dtype, weak_type=weak)

    def _jax_array(self, node: Members, dtype: np.dtype[Any], target: Any) -> jax.Array:
        homes = None if target is None else _homes(tuple(node["shape"]), target)
        if homes is None:
            held = self._array(node, dtype)
            return weakened(held) if node.get("weak_type") else self._put(held)  # both copy
        regions, places = homes
        name = node["name"]
        if isinstance(self.arrays, StoredArrays):
            parts = self.arrays.parts(name, regions)
        else:
            parts = (self.arrays[name][region] for region in regions)
        shards = []
        for part, own in zip(parts, places, strict=True):
            converted = self._convert(part, dtype)
            shards += [self._put(converted, place) for place in own]
        array = jax.make_array_from_single_device_arrays(tuple(node["shape"]), target, shards)
        return weakened(array) if node.get("weak_type") else array

    def _put(self, held: np.ndarray[Any, Any], place: Any = None) -> jax.Array:
        """An array of numpy on the device of a place; by default where JAX makes arrays."""
        # Unlike jnp.array, device_put of an aligned memory map shares its pages on CPUs, which takes longer than a copy of a
        # small array. One that can still be written must not be shared: JAX arrays never change.
        copied = held.nbytes <= _SMALL or held.flags.writeable
        if place is None or place == self._near:
            return jnp.array(held) if copied else jax.device_put(held)
        found: jax.Array = jax.device_put(held.copy() if held.flags.writeable else held, place)
        return found

    @functools.cached_property
    def _near(self) -> Any:
        """The place of arrays for which none is asked."""
        return jnp.zeros(()).sharding

    def shared(self, key: tuple[str, Any, Any], make: Callable[[], Any]) -> Any:
        """The value of something in the file, made the first time only."""
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]

    def _array(self, node: Members, dtype: Any = None) -> np.ndarray[Any, Any]:
        """An array as numpy's, converted to a dtype."""
        if dtype is not None and dtype_named(node["dtype"]) != dtype:
            key = (node.get("name", ""), id(node) if "name" not in node else None, dtype)
            made: np.ndarray[Any, Any] = self.shared(
                key, lambda: self._convert(self._array(node), dtype)
            )
            return made
        if not ARRAY.matches(node):
            return decode_full(node, self)
        name: str = node["name"]
        held = self._held.get(name)
        if held is None:
            held = self._held[name] = self.array(node)
        return self.shared(("copy", name, None), held.copy) if self.options.copies else held

    def _convert(self, array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """An array of another dtype; whole numbers have to fit."""
        if array.dtype == dtype:
            return array
        exact = DTYPES[dtype.name].exponents is None
        try:
            return cast_array(array, dtype.name, exact=exact, path=format_path(self.path))
        except MigrationError as error:
            hint = "choose a dtype that holds its values in dtype="
            raise SerializationError(replace(d, hint=hint) for d in error.diagnostics) from None


def _fits_jax(dtype: np.dtype[Any]) -> bool:
    """Returns whether JAX holds values of a dtype without a loss in its present mode."""
    return _in_jax(dtype) and (
        dtype.kind not in "iufc" or jax.dtypes.canonicalize_dtype(dtype) == dtype
    )


def _require_jax(dtype: np.dtype[Any]) -> None:
    if not _in_jax(dtype):
        message = f"expected a dtype that JAX has, got {dtype}"
        raise SerializationError(message, code="NQX411", hint="load with as_numpy=True")
    if not _fits_jax(dtype):
        narrow = jax.dtypes.canonicalize_dtype(dtype)
        expected = f"expected 64-bit mode for a JAX array of {dtype}"
        switch = 'jax.config.update("jax_enable_x64", True)'
        raise SerializationError(
            f"{expected}, got x64 off, which would cut it to {narrow}",
            code="NQX417",
            hint=f"call {switch} before loading, or load with as_numpy=True",
        )


@functools.cache
def _in_jax(dtype: np.dtype[Any]) -> bool:
    """Returns whether JAX has a dtype; for those of ml_dtypes this depends on its version."""
    if dtype.kind in "USmM" or not dtype.isnative:
        return False
    if dtype.name not in ML_DTYPES:
        return True
    try:
        jax.device_put(np.zeros(1, dtype))
    except (TypeError, ValueError, RuntimeError):
        return False
    return True


@functools.lru_cache(maxsize=4096)  # making one takes longer than all else that a leaf needs
def _abstract(shape: tuple[int, ...], dtype: Any, *, weak_type: bool = False) -> Any:
    make: Any = jax.ShapeDtypeStruct  # JAX leaves its constructor untyped
    return make(shape, dtype, weak_type=weak_type)


@functools.lru_cache(maxsize=4096)
def _homes(shape: tuple[int, ...], target: Any) -> tuple[list[Region], list[list[Any]]] | None:
    """The regions of an array that lie on devices of this process, and the places of each; None if they do not fit."""
    try:
        target.shard_shape(shape)
    except (ValueError, IndexError):  # too few dimensions are the latter
        return None
    homes: dict[Any, list[Any]] = {}
    for device, region in target.addressable_devices_indices_map(shape).items():
        bounds = (part.indices(size) for part, size in zip(region, shape, strict=True))
        place = jax.sharding.SingleDeviceSharding(device, memory_kind=target.memory_kind)
        homes.setdefault(tuple(bounds), []).append(place)
    return [tuple(slice(*bounds) for bounds in region) for region in homes], [*homes.values()]


def weakened(array: jax.Array | np.ndarray[Any, Any]) -> jax.Array:
    """An array of weak type, which follows the dtype of others."""
    from jax._src.lax.lax import (
        _convert_element_type,  # the only way to set the weak type of a whole array
    )

    return _convert_element_type(array, array.dtype, weak_type=True)  # type: ignore[no-any-return]


def _encode_jax(value: jax.Array, encoder: StructEncoder, owner: Any = None) -> Members:
    _require_saveable(value, encoder)
    # It stays on its device: whoever writes it fetches one array after the other.
    kept = encoder.put_array(cast("Any", value), value if owner is None else owner)
    members = {**kept, "leaf": "jax"}
    return {**members, "weak_type": True} if value.weak_type else members


def _require_saveable(value: jax.Array, encoder: StructEncoder) -> None:
    if isinstance(value, jax.core.Tracer):
        message = "expected a concrete array, got a tracer"
        raise unsaveable(message, "export outside of jit, grad and vmap")
    if not value.is_fully_addressable and not encoder.spread:
        hint = (
            "export with store='orbax', which every host then calls, or gather it first: "
            "jax.experimental.multihost_utils.process_allgather"
        )
        raise unsaveable(
            "expected an array of this process, got one spread over several hosts", hint
        )
    if value.is_deleted():
        message = "expected an array with data, got one that was deleted or donated"
        raise unsaveable(message, "save it before donating it")


def _encode_key(value: jax.Array, encoder: StructEncoder) -> Members:
    impl = str(jax.random.key_impl(value))
    words = _encode_jax(jax.random.key_data(value), encoder, owner=value)
    return {"impl": impl, "data": ARRAY.node(**words)}


def _decode_key(node: Members, decoder: StructDecoder) -> Any:
    impl, words = node["impl"], node["data"]
    data = _abstract(tuple(words["shape"]), dtype_named(words["dtype"]))
    kept = decoder.conversions, decoder.target
    decoder.conversions, decoder.target = {}, None  # a key is converted and divided as a whole
    try:
        if decoder.options.select is not None:  # filters select keys, not their words
            decoder.stand_in = _abstract_key(data, impl)
        data = decoder.decode(words)
        if data is None:
            return None
        if isinstance(data, jax.ShapeDtypeStruct):
            return _abstract_key(data, impl)
        return decoder.shared(
            ("key", words["name"], impl),
            lambda: jax.random.wrap_key_data(jnp.asarray(data), impl=impl),
        )
    except (ValueError, TypeError, AssertionError, IndexError) as error:
        message = f"expected the words of a {impl[:60]} key, got {brief_array(data)}\n{error}"
        raise SerializationError(message, code="NQX420") from None
    finally:
        decoder.stand_in = None
        decoder.conversions, decoder.target = kept


def _abstract_key(words: jax.ShapeDtypeStruct, impl: str) -> Any:
    return jax.eval_shape(lambda data: jax.random.wrap_key_data(data, impl=impl), words)


def abstract_leaf(node: Node) -> Any:
    """The ``jax.ShapeDtypeStruct`` of a node whose array is stored; None for others."""
    if PRNG_KEY.matches(node):
        words = abstract_leaf(node["data"])
        return None if words is None else _abstract_key(words, node["impl"])
    if not ARRAY.matches(node):
        return None
    return _abstract(tuple(node["shape"]), dtype_named(node["dtype"]))


def _decode_leaf(node: Members, decoder: StructDecoder) -> Any:
    return decoder.leaf(node)


CODECS = PLAIN_CODECS.extended(
    [
        replace(PLAIN_CODECS.by_kind["array"], decode=_decode_leaf),
        replace(PLAIN_CODECS.by_kind["full"], decode=_decode_leaf),
        FOREIGN_CODEC,  # later codecs take precedence
        *CLASS_CODECS,
        STRUCTURE_CODEC,
        REGISTERED_CODEC,
        STRUCT_CODEC,
        Codec(ARRAY, (), _encode_jax, _decode_leaf, lambda value: isinstance(value, jax.Array)),
        Codec(PRNG_KEY, (), _encode_key, _decode_key, is_key_array),
    ]
)
CODECS.require(KINDS)

#: Codecs that make no instances of classes: their parts as they are stored.
RAW_CODECS = Codecs(
    [replace(codec, decode=codec.raw or codec.decode) for codec in CODECS.by_kind.values()]
)


def _named_children(node: Members, decoder: StructDecoder) -> Any:
    """The children of an instance by the keys that JAX has for them; by their positions if its class is not known."""
    if node["mode"] == "serializer":
        return decoder.decode(node["payload"])
    children = node["children"]
    keys: Sequence[Hashable] = range(len(children))
    with suppress(StructError):
        spec = registered_spec(node, decoder)
        whole = StructDecoder(decoder.arrays, replace(decoder.options, raw=False))
        keys = stored_keys(spec, len(children), whole.decode(node["aux"]))
    return {key: decoder.decode(child, key) for key, child in zip(keys, children, strict=True)}


#: As :data:`RAW_CODECS`, with the keys of JAX for the children of registered classes, so that paths are those of objects.
NAMED_CODECS = RAW_CODECS.extended([replace(REGISTERED_CODEC, decode=_named_children)])
