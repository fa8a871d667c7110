"""Codecs of plain values, containers and numpy arrays: the kinds that need neither JAX nor classes of the user.

Example:
    >>> from neuralqx_struct.codecs.nodes import Decoder, Encoder
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
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from neuralqx_struct.codecs.arrays import (
    decode_full,
    decode_numpy_scalar,
    encode_array,
    encode_numpy_scalar,
)
from neuralqx_struct.codecs.nodes import Codec, Codecs, Decoder, Encoder, invalid_node
from neuralqx_struct.dtypes import dtype_name, dtype_named
from neuralqx_struct.manifest.kinds import KINDS
from neuralqx_struct.paths import PathTree
from neuralqx_struct.printing import MOST_BITS, brief, read_decimal, write_decimal

Node = Any
Members = Mapping[str, Node]


# ----------------------------------------------------------------------------------------------------------------------
# Containers.


def _encode_items(value: Any, encoder: Encoder) -> Members:
    return {"items": encoder.encode_all(value)}


def _encode_set(value: Any, encoder: Encoder) -> Members:
    # The order of a set differs from run to run: sort by the text of the nodes.
    before = len(encoder.arrays)
    items = sorted(encoder.encode_all(value), key=lambda node: json.dumps(node, sort_keys=True))
    if len(encoder.arrays) > before:
        encoder.refuse(
            "expected items of a set that can be sorted, got items that hold arrays",
            hint="save a tuple or a dict of them: two exports of one set would store its arrays in different orders",
        )
    return {"items": items}


def _decode_set(node: Members, decoder: Decoder, make: Callable[[Any], Any] = set) -> Any:
    problems = len(decoder.problems)
    items = decoder.all(node["items"])
    try:
        made = make(items)
    except TypeError as error:
        raise invalid_node("expected items that a set can hold, got others", error) from None
    # Items that cannot be read are all None.
    if len(made) < len(items) and len(decoder.problems) == problems:
        raise invalid_node(f"expected each item of a set once, got {len(items)} for {len(made)}")
    return made


def _encode_pairs(value: Any, encoder: Encoder) -> Members:
    return {"items": encoder.encode_pairs(value.items())}


#: Factories of defaultdicts by the name in a file, which never becomes any other function.
FACTORIES: Mapping[str, Callable[[], Any] | None] = {
    "none": None,
    "list": list,
    "dict": dict,
    "set": set,
    "frozenset": frozenset,
    "tuple": tuple,
    "int": int,
    "float": float,
    "complex": complex,
    "bool": bool,
    "str": str,
    "bytes": bytes,
    "OrderedDict": OrderedDict,
    "Counter": Counter,
    "deque": deque,
}


def _encode_defaultdict(value: defaultdict[Any, Any], encoder: Encoder) -> Members:
    factory = value.default_factory
    name = next((name for name, known in FACTORIES.items() if known is factory), None)
    if name is None:
        known = ", ".join(FACTORIES)
        encoder.refuse(
            f"expected a defaultdict whose factory is one of {known}, got {brief(factory)}",
            hint="save dict(value), and make the defaultdict of it with a converter",
        )
    return {"factory": name or "none", **_encode_pairs(value, encoder)}


def _encode_deque(value: deque[Any], encoder: Encoder) -> Members:
    return {"items": encoder.encode_all(value), "maxlen": value.maxlen}


def _decode_deque(node: Members, decoder: Decoder) -> deque[Any]:
    items = decoder.all(node["items"])
    most = node["maxlen"]
    if most is not None and (type(most) is not int or not len(items) <= most <= sys.maxsize):
        raise invalid_node(f"expected room for {len(items)} items, got a maxlen of {brief(most)}")
    return deque(items, most)


# ----------------------------------------------------------------------------------------------------------------------
# Values with named parts.


def _encode_parts(*names: str) -> Callable[[Any, Encoder], Members]:
    """The encoder of a value that is made of some of its attributes."""

    def encode(value: Any, encoder: Encoder) -> Members:
        return {name: encoder.encode(getattr(value, name)) for name in names}

    return encode


def _decode_parts(make: Callable[..., Any], *names: str) -> Callable[[Members, Decoder], Any]:
    def decode(node: Members, decoder: Decoder) -> Any:
        parts = [decoder.decode(node[name]) for name in names]
        try:
            return make(*parts)
        except (TypeError, ValueError, OverflowError) as error:
            message = f"expected the parts of a {make.__name__}, got others"
            raise invalid_node(message, error) from None

    return decode


_BOUNDS = ("start", "stop", "step")
_COMPLEX = ("real", "imag")


# ----------------------------------------------------------------------------------------------------------------------
# Bytes and integers.


def _encode_base64(value: bytes | bytearray, _: Encoder) -> Members:
    return {"base64": base64.b64encode(value).decode("ascii")}


def _decode_base64(node: Members, _: Decoder) -> bytes:
    try:
        return base64.b64decode(node["base64"], validate=True)
    except binascii.Error as error:
        message = f"expected base64 text, got {node['base64'][:40]!r}"
        raise invalid_node(message, error) from None


def _encode_bigint(value: int, encoder: Encoder) -> Members:
    bits = value.bit_length()
    if bits > MOST_BITS:
        encoder.refuse(
            f"expected an integer of at most {MOST_BITS} bits, got one of {bits}",
            hint="save it as bytes: value.to_bytes(length, 'little', signed=True)",
        )
        return {"value": "0"}
    return {"value": write_decimal(value)}


# ----------------------------------------------------------------------------------------------------------------------
# Dates and paths.


def _write_timedelta(value: dt.timedelta) -> str:
    return f"{value.days} {value.seconds} {value.microseconds}"


def _read_timedelta(text: str) -> dt.timedelta:
    days, seconds, microseconds = map(int, text.split())
    return dt.timedelta(days, seconds, microseconds)


_MOMENTS: Mapping[type, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    dt.datetime: (dt.datetime.isoformat, dt.datetime.fromisoformat),
    dt.date: (dt.date.isoformat, dt.date.fromisoformat),
    dt.time: (dt.time.isoformat, dt.time.fromisoformat),
    dt.timedelta: (_write_timedelta, _read_timedelta),
}
_READERS = {cls.__name__: read for cls, (_, read) in _MOMENTS.items()}


def _encode_moment(value: Any, encoder: Encoder) -> Members:
    cls = type(value)
    zone = getattr(value, "tzinfo", None)
    if getattr(value, "fold", 0) or (zone is not None and type(zone) is not dt.timezone):
        encoder.refuse(
            f"expected a {cls.__name__} without a zone or with a fixed offset, got {value!r}",
            hint="its zone would come back as an offset: save value.astimezone(datetime.UTC), and the zone's name beside it",
        )
    write, _ = _MOMENTS[cls]
    return {"type": cls.__name__, "value": write(value)}


def _decode_moment(node: Members, _: Decoder) -> Any:
    try:
        return _READERS[node["type"]](node["value"])
    except (ValueError, OverflowError, TypeError):
        raise invalid_node(f"expected a {node['type']}, got {node['value'][:60]!r}") from None


_PURE = {"posix": pathlib.PurePosixPath, "windows": pathlib.PureWindowsPath}
_SYSTEMS: Mapping[type, str] = {cls: system for system, cls in _PURE.items()}


def _encode_path(value: pathlib.PurePath, encoder: Encoder) -> Members:
    cls = type(value)
    system = _SYSTEMS.get(cls)
    if system is None and cls is not type(pathlib.Path()):
        message = f"expected a path of this system, got {cls.__module__}.{cls.__qualname__}"
        encoder.refuse(message, hint="save str(value)")
        return {"value": ""}
    # All systems read forward slashes.
    text = encoder.encode(str(value) if system == "windows" else value.as_posix())
    members = {"value": "" if text is None else text}
    return members if system is None else {**members, "pure": system}


def _decode_path(node: Members, _: Decoder) -> pathlib.PurePath:
    cls = _PURE[node["pure"]] if "pure" in node else pathlib.Path
    return cls(node["value"])


def _never_encoded(value: Any, _: Encoder) -> Members:
    raise TypeError(f"no value is written in this kind, got {value!r}")


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


# ----------------------------------------------------------------------------------------------------------------------
# The table.


def _list_codec(tag: str, cls: Callable[[Any], Any]) -> Codec:
    return Codec(KINDS[tag], (cls,), _encode_items, lambda node, d: cls(d.all(node["items"])))  # type: ignore[arg-type]


def _dict_codec(tag: str, cls: Callable[[Any], Any], *types: type) -> Codec:
    return Codec(KINDS[tag], (cls, *types), _encode_pairs, lambda node, d: cls(dict(d.pairs(node))))  # type: ignore[arg-type]


PLAIN_CODECS = Codecs(
    [
        _list_codec("list", list),
        _list_codec("tuple", tuple),
        Codec(KINDS["set"], (set,), _encode_set, _decode_set),
        Codec(
            KINDS["frozenset"],
            (frozenset,),
            _encode_set,
            lambda node, d: _decode_set(node, d, frozenset),
        ),
        _dict_codec("dict", dict, PathTree),
        _dict_codec("ordered-dict", OrderedDict),
        _dict_codec("counter", Counter),
        _dict_codec("mapping-proxy", MappingProxyType),
        Codec(
            KINDS["defaultdict"],
            (defaultdict,),
            _encode_defaultdict,
            lambda node, d: defaultdict(FACTORIES[node["factory"]], d.pairs(node)),
        ),
        Codec(KINDS["deque"], (deque,), _encode_deque, _decode_deque),
        Codec(KINDS["range"], (range,), _encode_parts(*_BOUNDS), _decode_parts(range, *_BOUNDS)),
        Codec(KINDS["slice"], (slice,), _encode_parts(*_BOUNDS), _decode_parts(slice, *_BOUNDS)),
        Codec(
            KINDS["complex"],
            (complex,),
            _encode_parts(*_COMPLEX),
            _decode_parts(complex, *_COMPLEX),
        ),
        Codec(
            KINDS["float"],
            (float,),
            lambda value, _: {"value": float.__repr__(value)},
            lambda node, _: float(node["value"]),
        ),
        Codec(KINDS["bigint"], (int,), _encode_bigint, lambda node, _: read_decimal(node["value"])),
        Codec(KINDS["bytes"], (bytes,), _encode_base64, _decode_base64),
        Codec(
            KINDS["bytearray"],
            (bytearray,),
            _encode_base64,
            lambda node, d: bytearray(_decode_base64(node, d)),
        ),
        Codec(
            KINDS["path"],
            (),
            _encode_path,
            _decode_path,
            lambda value: isinstance(value, pathlib.PurePath),
        ),
        Codec(
            KINDS["dtype"],
            (),
            lambda value, _: {"value": dtype_name(value)},
            lambda node, _: dtype_named(node["value"]),
            lambda value: isinstance(value, np.dtype),
        ),
        Codec(KINDS["datetime"], tuple(_MOMENTS), _encode_moment, _decode_moment),
        Codec(
            KINDS["numpy-scalar"],
            (),
            encode_numpy_scalar,
            decode_numpy_scalar,
            lambda value: isinstance(value, np.generic) and not isinstance(value, enum.Enum),
        ),
        Codec(
            KINDS["array"],
            (np.ndarray, np.memmap),
            encode_array,
            lambda node, d: d.array(node),
            _is_array,
        ),
        Codec(KINDS["full"], (), _never_encoded, decode_full),
    ]
)
