"""Codecs of plain values and numpy arrays: Python value <-> manifest node.

Owns the :class:`Codec` record, the table of the kinds that need no JAX, and the two walks that use a table:
:class:`Encoder` and :class:`Decoder`. ``codecs.py`` extends the table with JAX arrays, Structs and registered types. A
new kind of value is one codec: the tag, the types it takes, encode and decode side by side (and a row in
``manifest_grammar.NODE_KINDS``, which says what its node looks like).

Example:
    >>> encoder = Encoder(PLAIN_CODECS)
    >>> node = encoder.encode((1, float("nan")))
    >>> node
    {'__kind__': 'tuple', 'items': [1, {'__kind__': 'float', 'value': 'nan'}]}
    >>> Decoder(PLAIN_CODECS, {}).decode(node)
    (1, nan)
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import enum
import json
import math
import pathlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ml_dtypes  # registers bfloat16 and its kin with numpy
import numpy as np

from neuralqx_struct.decimals import MOST_BITS, read_decimal, write_decimal
from neuralqx_struct.errors import Diagnostic, SerializationError, StructError
from neuralqx_struct.manifest import DEFAULT_LIMITS
from neuralqx_struct.paths import FieldName, Path, array_name, format_path
from neuralqx_struct.payload import dtype_name, dtype_named
from neuralqx_struct.printing import brief

__all__ = ["PLAIN_CODECS", "Codec", "Codecs", "Decoder", "Encoder"]

Node = Any


@dataclass(frozen=True, slots=True)
class Codec:
    """How one kind of value is written and read.

    Attributes:
        kind: The tag ``__kind__``.
        types: Exact types that it takes.
        accepts: For values whose type is not known beforehand: whether the codec takes this one.
        encode: ``encode(value, encoder)`` gives the members of the node.
        decode: ``decode(node, decoder)`` gives the value back.
    """

    kind: str
    types: tuple[type, ...]
    encode: Callable[[Any, Encoder], Mapping[str, Node]]
    decode: Callable[[Mapping[str, Node], Any], Any]  # the decoder is of the kind that the codec's table is made for
    accepts: Callable[[Any], bool] | None = None


class Codecs:
    """An immutable table of codecs; later ones win over earlier ones of the same type or tag."""

    def __init__(self, codecs: Sequence[Codec]) -> None:
        self._all = tuple(codecs)
        self.by_type: Mapping[type, Codec] = {t: c for c in codecs for t in c.types}
        self.by_kind: Mapping[str, Codec] = {c.kind: c for c in codecs}
        self._accepting = tuple(c for c in reversed(codecs) if c.accepts is not None)

    def extended(self, codecs: Sequence[Codec]) -> Codecs:
        """A new table with more codecs."""
        return Codecs((*self._all, *codecs))

    def find(self, value: Any) -> Codec | None:
        """The codec for a value: by its exact type, else the newest one that accepts it."""
        found = self.by_type.get(type(value))
        if found is not None:
            return found
        return next((c for c in self._accepting if c.accepts is not None and c.accepts(value)), None)


class Encoder:
    """One walk from values to nodes; collects the arrays beside the tree.

    Args:
        codecs: The table.
        copy: Copy numpy arrays, so that what the caller writes into them later is not in the result.

    Attributes:
        arrays: Arrays by the name that their nodes use. An array that is met twice has one name.
    """

    def __init__(self, codecs: Codecs, *, copy: bool = False) -> None:
        self.codecs = codecs
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        self.problems: list[Diagnostic] = []
        self._copy = copy
        self._path: list[Hashable] = []
        self._open: set[int] = set()
        self._names: dict[int, str] = {}
        self._alive: list[Any] = []  # keeps ids unique while the walk lasts

    @contextmanager
    def at(self, key: Hashable) -> Iterator[None]:
        """While the block runs, problems are reported below ``key``."""
        self._path.append(key)
        yield
        self._path.pop()

    @property
    def path(self) -> Path:
        """Where the walk is."""
        return tuple(self._path)

    def encode(self, value: Any, *keys: Hashable) -> Node:
        """The node of ``value``, which stands at ``keys`` below the current place."""
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if kind is int and -(2**63) <= value < 2**63:
            return value
        if kind is float and math.isfinite(value):
            return value
        codec = self.codecs.find(value)
        self._path.extend(keys)
        try:
            if codec is None:
                self.refuse(f"expected a value that can be saved, got a {kind.__module__}.{kind.__qualname__}")
                return None
            if id(value) in self._open:
                self.refuse(f"expected a tree, got a {kind.__name__} that contains itself", hint=None)
                return None
            if len(self._open) >= DEFAULT_LIMITS.depth:
                self.refuse(f"expected at most {DEFAULT_LIMITS.depth} levels, got more", hint=None)
                return None
            self._open.add(id(value))
            try:
                return {"__kind__": codec.kind, **codec.encode(value, self)}
            finally:
                self._open.discard(id(value))
        finally:
            if keys:
                del self._path[-len(keys) :]

    _REMEDY = "mark its field serialize=False, register the type with register_pytree_type, or convert it first"

    def refuse(self, message: str, *, hint: str | None = _REMEDY, code: str = "NQX430") -> None:
        """Note that the value at the current place cannot be saved; the walk goes on to find the others."""
        self.problems.append(Diagnostic(code, "error", message, path=format_path(self._path), hint=hint))

    def put_array(self, array: np.ndarray[Any, Any], owner: Any) -> dict[str, Node]:
        """Keep an array beside the tree and give the members that refer to it.

        Args:
            array: The data.
            owner: The object the user had; two nodes of one owner share the array.
        """
        name = self._names.get(id(owner))
        if name is None:
            base = name = array_name(self._path)
            suffix = 1
            while name in self.arrays:
                suffix += 1
                name = f"{base}~{suffix}"
            self._names[id(owner)] = name
            self._alive.append(owner)
            self.arrays[name] = array.copy() if self._copy and array is owner else array
        return {"name": name, "dtype": dtype_name(array.dtype), "shape": list(array.shape)}

    def finish(self) -> None:
        """Raise if anything could not be saved.

        Raises:
            SerializationError: With every such value and its path.
        """
        if self.problems:
            raise SerializationError(self.problems)


class Decoder:
    """One walk from nodes to values.

    Args:
        codecs: The table.
        arrays: The arrays by name; read when a node asks for them.

    Attributes:
        problems: What did not fit; the walk goes on, :meth:`finish` raises them together.
    """

    def __init__(self, codecs: Codecs, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self.codecs = codecs
        self.arrays = arrays
        self.problems: list[Diagnostic] = []
        self._path: list[Hashable] = []
        self._raised: set[type[StructError]] = set()
        self._cause: BaseException | None = None

    @property
    def path(self) -> Path:
        """Where the walk is."""
        return tuple(self._path)

    def decode(self, node: Node, *keys: Hashable) -> Any:
        """The value of ``node``, which stands at ``keys`` below the current place."""
        if type(node) is not dict:
            return [self.decode(item, i) for i, item in enumerate(node)] if type(node) is list else node
        self._path.extend(keys)
        try:
            return self.codecs.by_kind[node["__kind__"]].decode(node, self)
        except StructError as error:
            self._raised.add(type(error))
            self._cause = self._cause or error.__cause__
            self.problems += [
                d
                if d.path.startswith("$")
                else Diagnostic(d.code, d.severity, d.message, format_path(self._path), hint=d.hint)
                for d in error.diagnostics
            ]
            return None
        finally:
            if keys:
                del self._path[-len(keys) :]

    def array(self, node: Mapping[str, Node]) -> np.ndarray[Any, Any]:
        """The array that a node names."""
        return self.arrays[node["name"]]

    def items(self, node: Mapping[str, Node]) -> list[Any]:
        """The values of the ``items`` of a sequence node."""
        return [self.decode(item, i) for i, item in enumerate(node["items"])]

    def pairs(self, node: Mapping[str, Node]) -> list[tuple[Any, Any]]:
        """The keys and values of the ``items`` of a dict node."""
        found: list[tuple[Any, Any]] = []
        seen: set[Any] = set()
        problems = len(self.problems)
        for key_node, value_node in node["items"]:
            key = self.decode(key_node)
            try:
                twice = key in seen
                seen.add(key)
            except TypeError:
                raise SerializationError(
                    f"expected hashable dict keys, got a {type(key).__name__}", code="NQX401"
                ) from None
            if twice and len(self.problems) == problems:  # keys that could not be read are all None
                raise SerializationError(
                    f"expected each dict key once, got {brief(key)} twice",
                    code="NQX612",
                    hint="which of the values is meant? leave the others out",
                )
            found.append((key, self.decode(value_node, key)))
        return found

    def fields(self, node: Mapping[str, Node]) -> dict[str, Any]:
        """The values of the ``fields`` of a node."""
        return {name: self.decode(child, FieldName(name)) for name, child in node["fields"].items()}

    def finish(self) -> None:
        """Raise if anything did not fit.

        Raises:
            SerializationError: With every problem and its path; of the kind that all of them are, if they are of one.
        """
        if self.problems:
            kinds = {kind if issubclass(kind, SerializationError) else SerializationError for kind in self._raised}
            raise (kinds.pop() if len(kinds) == 1 else SerializationError)(self.problems) from self._cause


# ---------------------------------------------------------------------------------------------------------------------
# Encode and decode, side by side for each kind.


def _encode_items(value: Any, encoder: Encoder) -> dict[str, Node]:
    return {"items": [encoder.encode(item, i) for i, item in enumerate(value)]}


def _encode_set(value: Any, encoder: Encoder) -> dict[str, Node]:
    # A set has no order of its own, and Python's differs from run to run: sort by the text of the nodes.
    return {"items": sorted(_encode_items(value, encoder)["items"], key=lambda node: json.dumps(node, sort_keys=True))}


def _read_set(make: Callable[[list[Any]], Any], node: Mapping[str, Node], decoder: Decoder) -> Any:
    items = decoder.items(node)
    try:
        return make(items)
    except TypeError as error:
        raise SerializationError(f"expected items that a set can hold, got others\n{error}", code="NQX612") from None


def _encode_pairs(value: Any, encoder: Encoder) -> dict[str, Node]:
    return {"items": [[encoder.encode(key), encoder.encode(item, key)] for key, item in value.items()]}


def _encode_complex(value: complex, encoder: Encoder) -> dict[str, Node]:
    return {"real": encoder.encode(value.real), "imag": encoder.encode(value.imag)}


def _decode_complex(node: Mapping[str, Node], decoder: Decoder) -> complex:
    return complex(decoder.decode(node["real"]), decoder.decode(node["imag"]))


def _encode_base64(value: bytes, _: Encoder) -> dict[str, Node]:
    return {"base64": base64.b64encode(value).decode("ascii")}


def _decode_base64(node: Mapping[str, Node], _: Decoder) -> bytes:
    try:
        return base64.b64decode(node["base64"], validate=True)
    except binascii.Error as error:
        raise SerializationError(f"expected base64 text, got {node['base64'][:40]!r}\n{error}", code="NQX612") from None


def _encode_bigint(value: int, encoder: Encoder) -> dict[str, Node]:
    if value.bit_length() > MOST_BITS:
        encoder.refuse(
            f"expected an integer of at most {MOST_BITS} bits, got one of {value.bit_length()}",
            hint="save it as bytes: value.to_bytes(length, 'little', signed=True)",
        )
        return {"value": "0"}
    return {"value": write_decimal(value)}


def _encode_numpy_scalar(value: np.generic, encoder: Encoder) -> dict[str, Node]:
    if value.dtype.kind in "OV" and value.dtype.name not in ml_dtypes.__dict__:
        encoder.refuse(f"expected a numpy scalar of a plain dtype, got {value.dtype}")
        return {"dtype": str(value.dtype), "value": None}
    if value.dtype.kind in "mM":
        return {"dtype": dtype_name(value.dtype), "value": int(value.view(np.int64))}
    if value.dtype.kind not in "SU" and (value.dtype.itemsize > 16 or value.dtype.char in "gG"):
        encoder.refuse(
            f"expected a dtype that all platforms have, got {value.dtype}", hint="convert it to float64 first"
        )
        return {"dtype": str(value.dtype), "value": None}
    return {"dtype": dtype_name(value.dtype), "value": encoder.encode(value.item())}


def _decode_numpy_scalar(node: Mapping[str, Node], decoder: Decoder) -> Any:
    dtype = dtype_named(node["dtype"])
    return _number(node, decoder, dtype)[()]


def _number(node: Mapping[str, Node], decoder: Decoder, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The ``value`` of a node as an array without axes; numpy would take null for nan, or for its name."""
    value = decoder.decode(node["value"])
    try:
        if value is None:
            raise TypeError("null is no number")
        if dtype.kind in "mM":
            return np.array(value, np.int64).view(dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            return np.array(value, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise SerializationError(
            f"expected a value of dtype {node['dtype']}, got {brief(value)}\n{error}", code="NQX612"
        ) from None


def _read_timedelta(text: str) -> dt.timedelta:
    days, seconds, microseconds = map(int, text.split())
    return dt.timedelta(days, seconds, microseconds)


_MOMENTS: Mapping[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "datetime": (dt.datetime, dt.datetime.isoformat, dt.datetime.fromisoformat),
    "date": (dt.date, dt.date.isoformat, dt.date.fromisoformat),
    "time": (dt.time, dt.time.isoformat, dt.time.fromisoformat),
    "timedelta": (
        dt.timedelta,
        lambda d: f"{d.days} {d.seconds} {d.microseconds}",
        _read_timedelta,
    ),
}


def _encode_path(value: pathlib.PurePath, encoder: Encoder) -> dict[str, Node]:
    if not isinstance(value, type(pathlib.PurePath())):
        encoder.refuse(f"expected a path of this system, got a {type(value).__name__}", hint="save str(value)")
    return {"value": str(value)}


def _encode_moment(value: Any, encoder: Encoder) -> dict[str, Node]:
    name = type(value).__name__
    zone = getattr(value, "tzinfo", None)
    if getattr(value, "fold", 0) or (zone is not None and type(zone) is not dt.timezone):
        encoder.refuse(
            f"expected a {name} without a zone or with a fixed offset, got {value!r}",
            hint="its zone would come back as an offset: save value.astimezone(datetime.UTC), and the zone's name beside it",
        )
    return {"type": name, "value": _MOMENTS[name][1](value)}


def _decode_moment(node: Mapping[str, Node], _: Decoder) -> Any:
    try:
        return _MOMENTS[node["type"]][2](node["value"])
    except (ValueError, OverflowError, TypeError):
        raise SerializationError(f"expected a {node['type']}, got {node['value'][:60]!r}", code="NQX612") from None


def _encode_array(value: np.ndarray[Any, Any], encoder: Encoder) -> dict[str, Node]:
    reason = _unsaveable(value)
    if reason:
        encoder.refuse(f"expected an array that can be saved exactly, got {reason}")
        return {"name": "", "dtype": "", "shape": []}
    return {**encoder.put_array(value, value), "leaf": "numpy"}


def _unsaveable(value: np.ndarray[Any, Any]) -> str | None:
    if isinstance(value, np.ma.MaskedArray):
        return "a masked array, whose mask would be lost; save value.data and value.mask as two arrays"
    if value.dtype.names is not None:
        return f"a structured dtype {value.dtype}; save its fields as arrays of their own"
    if value.dtype.hasobject:
        return "an array of Python objects, which only pickle could hold"
    if value.dtype.char in "gG":
        return f"{value.dtype}, which differs between platforms; convert it to float64 or complex128"
    return None


def _decode_full(node: Mapping[str, Node], decoder: Decoder) -> np.ndarray[Any, Any]:
    """One number seen from every place, read-only: no memory is taken for what the file does not hold."""
    number = _number(node, decoder, dtype_named(node["dtype"]))
    try:
        return np.broadcast_to(number, tuple(node["shape"]))
    except (ValueError, OverflowError) as error:
        raise SerializationError(
            f"expected a shape that an array can have, got {brief(node['shape'])}\n{error}", code="NQX612"
        ) from None


def _encode_slice(value: slice, encoder: Encoder) -> dict[str, Node]:
    return {
        "start": encoder.encode(value.start),
        "stop": encoder.encode(value.stop),
        "step": encoder.encode(value.step),
    }


def _decode_slice(node: Mapping[str, Node], decoder: Decoder) -> slice:
    return slice(decoder.decode(node["start"]), decoder.decode(node["stop"]), decoder.decode(node["step"]))


def _never_encoded(value: Any, _: Encoder) -> Mapping[str, Node]:
    raise TypeError(f"no value is written in this kind, got {value!r}")


PLAIN_CODECS = Codecs(
    [
        Codec("list", (list,), _encode_items, lambda node, d: d.items(node)),
        Codec("tuple", (tuple,), _encode_items, lambda node, d: tuple(d.items(node))),
        Codec("set", (set,), _encode_set, lambda node, d: _read_set(set, node, d)),
        Codec("frozenset", (frozenset,), _encode_set, lambda node, d: _read_set(frozenset, node, d)),
        Codec("dict", (dict,), _encode_pairs, lambda node, d: dict(d.pairs(node))),
        Codec("ordered-dict", (OrderedDict,), _encode_pairs, lambda node, d: OrderedDict(d.pairs(node))),
        Codec("complex", (complex,), _encode_complex, _decode_complex),
        Codec("float", (float,), lambda v, _: {"value": repr(v)}, lambda node, _: float(node["value"])),
        Codec("bigint", (int,), _encode_bigint, lambda node, _: read_decimal(node["value"])),
        Codec("bytes", (bytes,), _encode_base64, _decode_base64),
        Codec(
            "path",
            (),
            _encode_path,
            lambda node, _: pathlib.Path(node["value"]),
            lambda v: isinstance(v, pathlib.PurePath),
        ),
        Codec(
            "dtype",
            (),
            lambda v, _: {"value": dtype_name(v)},
            lambda node, _: dtype_named(node["value"]),
            lambda v: isinstance(v, np.dtype),
        ),
        Codec("slice", (slice,), _encode_slice, _decode_slice),
        Codec("datetime", tuple(row[0] for row in _MOMENTS.values()), _encode_moment, _decode_moment),
        Codec(
            "numpy-scalar",
            (),
            _encode_numpy_scalar,
            _decode_numpy_scalar,
            lambda v: isinstance(v, np.generic) and not isinstance(v, enum.Enum),
        ),
        Codec("array", (), _encode_array, lambda node, d: d.array(node), lambda v: isinstance(v, np.ndarray)),
        Codec("full", (), _never_encoded, _decode_full),
    ]
)
