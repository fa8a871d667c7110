"""Codecs of plain values, containers and numpy arrays: what needs neither JAX nor classes of the user.

Owns the table :data:`PLAIN_CODECS`, encode and decode side by side for each kind. The walks that use it are in
``nodes.py``; ``codecs.py`` extends it with JAX arrays, Structs, enums, dataclasses and registered types.

Example:
    >>> from neuralqx_struct.nodes import Decoder, Encoder
    >>> node = Encoder(PLAIN_CODECS).encode((1, float("nan")))
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
import pathlib
import sys
from cmath import isfinite
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from neuralqx_struct.decimals import MOST_BITS, read_decimal, write_decimal
from neuralqx_struct.errors import SerializationError
from neuralqx_struct.nodes import Codec, Codecs, Decoder, Encoder
from neuralqx_struct.path_tree import PathTree
from neuralqx_struct.payload import ML_DTYPES, dtype_name, dtype_named
from neuralqx_struct.printing import brief

__all__ = ["FACTORIES", "PLAIN_CODECS"]

Node = Any


def _encode_items(value: Any, encoder: Encoder) -> dict[str, Node]:
    return {"items": encoder.encode_all(value)}


def _encode_set(value: Any, encoder: Encoder) -> dict[str, Node]:
    # A set has no order of its own, and Python's differs from run to run: sort by the text of the nodes.
    before = len(encoder.arrays)
    items = sorted(encoder.encode_all(value), key=lambda node: json.dumps(node, sort_keys=True))
    if len(encoder.arrays) > before:
        encoder.refuse(
            "expected items of a set whose order can be told, got items that hold arrays",
            hint="save a tuple or a dict of them: two exports of one set would store its arrays in different orders",
        )
    return {"items": items}


def _read_set(make: Callable[[list[Any]], Any], node: Mapping[str, Node], decoder: Decoder) -> Any:
    problems = len(decoder.problems)
    items = decoder.all(node["items"])
    try:
        made = make(items)
    except TypeError as error:
        raise SerializationError(f"expected items that a set can hold, got others\n{error}", code="NQX612") from None
    if len(made) < len(items) and len(decoder.problems) == problems:  # items that could not be read are all None
        raise SerializationError(f"expected each item of a set once, got {len(items)} for {len(made)}", code="NQX612")
    return made


def _encode_pairs(value: Any, encoder: Encoder) -> dict[str, Node]:
    return {"items": encoder.encode_pairs(value.items())}


#: What a defaultdict may make its missing values with. A name in a file never becomes any other function.
FACTORIES: Mapping[str, Callable[[], Any] | None] = {
    "none": None,
    **{
        factory.__name__: factory
        for factory in (
            list,
            dict,
            set,
            frozenset,
            tuple,
            int,
            float,
            complex,
            bool,
            str,
            bytes,
            OrderedDict,
            Counter,
            deque,
        )
    },
}
_FACTORY_NAMES = {factory: name for name, factory in FACTORIES.items()}


def _encode_defaultdict(value: defaultdict[Any, Any], encoder: Encoder) -> dict[str, Node]:
    factory: Any = value.default_factory
    try:
        name = _FACTORY_NAMES.get(factory)
    except TypeError:
        name = None
    if name is None:
        encoder.refuse(
            f"expected a defaultdict whose factory is one of {', '.join(FACTORIES)}, got {brief(factory)}",
            hint="save dict(value), and make the defaultdict of it with a converter",
        )
    return {"factory": name or "none", **_encode_pairs(value, encoder)}


def _encode_deque(value: deque[Any], encoder: Encoder) -> dict[str, Node]:
    return {"items": encoder.encode_all(value), "maxlen": value.maxlen}


def _decode_deque(node: Mapping[str, Node], decoder: Decoder) -> deque[Any]:
    items, most = decoder.all(node["items"]), node["maxlen"]
    if most is not None and (type(most) is not int or not len(items) <= most <= sys.maxsize):
        raise SerializationError(f"expected room for {len(items)} items, got a maxlen of {brief(most)}", code="NQX612")
    return deque(items, most)


def _encode_range(value: range, encoder: Encoder) -> dict[str, Node]:
    return {part: encoder.encode(getattr(value, part)) for part in ("start", "stop", "step")}


def _decode_range(node: Mapping[str, Node], decoder: Decoder) -> range:
    parts = [decoder.decode(node[part]) for part in ("start", "stop", "step")]
    try:
        return range(*parts)
    except (TypeError, ValueError) as error:
        raise SerializationError(
            f"expected the three integers of a range, got others\n{error}", code="NQX612"
        ) from None


def _encode_complex(value: complex, encoder: Encoder) -> dict[str, Node]:
    return {"real": encoder.encode(value.real), "imag": encoder.encode(value.imag)}


def _decode_complex(node: Mapping[str, Node], decoder: Decoder) -> complex:
    parts = [decoder.decode(node[part]) for part in ("real", "imag")]
    try:
        return complex(*parts)
    except (TypeError, OverflowError) as error:
        raise SerializationError(f"expected the two parts of a complex number\n{error}", code="NQX612") from None


def _encode_base64(value: bytes | bytearray, _: Encoder) -> dict[str, Node]:
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


# Not told by their characters: formats of ml_dtypes bear the same ones.
_LONG = (np.longdouble, np.clongdouble)


def _encode_numpy_scalar(value: np.generic, encoder: Encoder) -> dict[str, Node]:
    if value.dtype.kind in "OV" and value.dtype.name not in ML_DTYPES:
        encoder.refuse(f"expected a numpy scalar of a plain dtype, got {value.dtype}")
        return {"dtype": str(value.dtype), "value": None}
    if value.dtype.kind in "mM":
        return {"dtype": dtype_name(value.dtype), "value": int(value.view(np.int64))}
    if value.dtype.kind not in "SU" and (value.dtype.itemsize > 16 or value.dtype.type in _LONG):
        encoder.refuse(
            f"expected a dtype that all platforms have, got {value.dtype}", hint="convert it to float64 first"
        )
        return {"dtype": str(value.dtype), "value": None}
    # Not item(), which cuts trailing zeros off text.
    plain = (
        bytes(value) if isinstance(value, np.bytes_) else "".join(value) if isinstance(value, np.str_) else value.item()
    )
    return {"dtype": dtype_name(value.dtype), "value": encoder.encode(plain)}


def _decode_numpy_scalar(node: Mapping[str, Node], decoder: Decoder) -> Any:
    dtype = dtype_named(node["dtype"])
    if dtype.kind in "SU":  # as an array numpy would cut trailing zeros off
        kind = np.bytes_ if dtype.kind == "S" else np.str_
        value = decoder.decode(node["value"])
        if type(value) is not (bytes if kind is np.bytes_ else str):
            raise SerializationError(f"expected a value of dtype {node['dtype']}, got {brief(value)}", code="NQX612")
        return kind(value)
    return _number(node, decoder, dtype)[()]


_ROOM = 1 << 16  # bytes that text may take beyond its characters


def _number(node: Mapping[str, Node], decoder: Decoder, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The ``value`` of a node as an array without axes; numpy would take null for nan, or for its name."""
    value = decoder.decode(node["value"])
    try:
        if value is None:
            raise TypeError("null is no number")
        if dtype.kind in "SU" and dtype.itemsize > _ROOM + 4 * len(value):
            raise ValueError("so few characters need not take that much memory")
        if dtype.kind in "mM":
            return np.array(value, np.int64).view(dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            made = np.array(value, dtype)
        _require_same(made.item(), value)
    except (TypeError, ValueError, OverflowError) as error:
        raise SerializationError(
            f"expected a value of dtype {node['dtype']}, got {brief(value)}\n{error}", code="NQX612"
        ) from None
    return made


def _require_same(made: Any, value: Any) -> None:
    """Raise unless a dtype took a value as it is, but for digits of which a float has too few."""
    if isinstance(made, float | complex) and isinstance(value, int | float | complex):
        same = not isfinite(value) or isfinite(made)
    else:
        same = bool(made == value)
    if not same:
        raise ValueError(f"it would become {brief(made)}")


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
    kind = type(value)
    if kind not in _PATHS and kind is not type(pathlib.Path()):
        encoder.refuse(
            f"expected a path of this system, got {kind.__module__}.{kind.__qualname__}", hint="save str(value)"
        )
        return {"value": ""}
    # Paths go with forward slashes, which all systems read; what is not of one system says of which it is.
    text = encoder.encode(value.as_posix() if kind is not pathlib.PureWindowsPath else str(value))
    members = {"value": "" if text is None else text}
    return {**members, "pure": _PATHS[kind]} if kind in _PATHS else members


_PATHS: Mapping[type, str] = {pathlib.PurePosixPath: "posix", pathlib.PureWindowsPath: "windows"}
_PURE: Mapping[str, Callable[[str], pathlib.PurePath]] = {
    "posix": pathlib.PurePosixPath,
    "windows": pathlib.PureWindowsPath,
}


def _decode_path(node: Mapping[str, Node], _: Decoder) -> pathlib.PurePath:
    return _PURE[node["pure"]](node["value"]) if "pure" in node else pathlib.Path(node["value"])


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
    if type(value) not in (np.ndarray, np.memmap):
        return f"a {type(value).__module__}.{type(value).__qualname__}, which would come back as a plain array; save np.asarray(value)"
    if value.dtype.names is not None:
        return f"a structured dtype {value.dtype}; save its fields as arrays of their own"
    if value.dtype.hasobject:
        return "an array of Python objects, which only pickle could hold"
    if value.dtype.type in _LONG:
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
        Codec("list", (list,), _encode_items, lambda node, d: d.all(node["items"])),
        Codec("tuple", (tuple,), _encode_items, lambda node, d: tuple(d.all(node["items"]))),
        Codec("set", (set,), _encode_set, partial(_read_set, set)),
        Codec("frozenset", (frozenset,), _encode_set, partial(_read_set, frozenset)),
        Codec("dict", (dict, PathTree), _encode_pairs, lambda node, d: dict(d.pairs(node))),
        Codec("ordered-dict", (OrderedDict,), _encode_pairs, lambda node, d: OrderedDict(d.pairs(node))),
        Codec(
            "defaultdict",
            (defaultdict,),
            _encode_defaultdict,
            lambda node, d: defaultdict(FACTORIES[node["factory"]], d.pairs(node)),
        ),
        Codec("counter", (Counter,), _encode_pairs, lambda node, d: Counter(dict(d.pairs(node)))),
        Codec(
            "mapping-proxy", (MappingProxyType,), _encode_pairs, lambda node, d: MappingProxyType(dict(d.pairs(node)))
        ),
        Codec("deque", (deque,), _encode_deque, _decode_deque),
        Codec("range", (range,), _encode_range, _decode_range),
        Codec("complex", (complex,), _encode_complex, _decode_complex),
        Codec("float", (float,), lambda v, _: {"value": float.__repr__(v)}, lambda node, _: float(node["value"])),
        Codec("bigint", (int,), _encode_bigint, lambda node, _: read_decimal(node["value"])),
        Codec("bytes", (bytes,), _encode_base64, _decode_base64),
        Codec("bytearray", (bytearray,), _encode_base64, lambda node, d: bytearray(_decode_base64(node, d))),
        Codec("path", (), _encode_path, _decode_path, lambda v: isinstance(v, pathlib.PurePath)),
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
        Codec(
            "array",
            (np.ndarray, np.memmap),
            _encode_array,
            lambda node, d: d.array(node),
            lambda v: isinstance(v, np.ndarray),
        ),
        Codec("full", (), _never_encoded, _decode_full),
    ]
)
