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
import datetime as dt
import enum
import json
import pathlib
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from neuralqx_struct.codecs.arrays import decode_full, decode_scalar, encode_array, encode_scalar
from neuralqx_struct.codecs.nodes import Codec, Codecs, Decoder, Encoder, invalid_node, unsaveable
from neuralqx_struct.dtypes import dtype_name, dtype_named
from neuralqx_struct.manifest.kinds import KINDS
from neuralqx_struct.paths import PathTree
from neuralqx_struct.printing import MOST_BITS, brief, read_decimal, write_decimal

Node = Any
Members = Mapping[str, Node]


# ----------------------------------------------------------------------------------------------------------------------
# Containers.


def _raw_items(node: Members, decoder: Decoder) -> list[Any]:
    return decoder.all(node["items"])


def _encode_set(value: Any, encoder: Encoder) -> Members:
    # The order of a set differs from run to run: sort by the text of the nodes.
    before = len(encoder.arrays)
    items = sorted(encoder.encode_all(value), key=lambda node: json.dumps(node, sort_keys=True))
    if len(encoder.arrays) > before:
        hint = "save a tuple or a dict of them: two exports of one set would store its arrays in different orders"
        message = "expected items of a set that can be sorted, got items that hold arrays"
        raise unsaveable(message, hint)
    return {"items": items}


def _decode_set(make: Callable[[Any], Any], node: Members, decoder: Decoder) -> Any:
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
    # Text of numpy is the same key as text, by which paths and schemas find the value.
    pairs = (("".join(k) if isinstance(k, np.str_) else k, v) for k, v in value.items())
    return {"items": encoder.encode_pairs(pairs)}


def _raw_pairs(node: Members, decoder: Decoder) -> dict[Any, Any]:
    return dict(decoder.pairs(node, _raw_key))


def _raw_key(key: Any) -> Any:
    """A key of a dict without lists and dicts, which have no hash: tuples of their items."""
    if isinstance(key, dict):
        key = [*key.items()]
    return tuple(map(_raw_key, key)) if isinstance(key, (list, tuple)) else key


_FACTORIES = [list, dict, set, frozenset, tuple, int, float, complex, bool, str, bytes]
#: Factories of defaultdicts by the name in a file, which never becomes any other function.
FACTORIES: Mapping[str, Callable[[], Any] | None] = {
    "none": None,
    **{cls.__name__: cls for cls in (*_FACTORIES, OrderedDict, Counter, deque)},
}


def _encode_defaultdict(value: defaultdict[Any, Any], encoder: Encoder) -> Members:
    factory = value.default_factory
    name = next((name for name, known in FACTORIES.items() if known is factory), None)
    if name is None:
        known = ", ".join(FACTORIES)
        message = f"expected a defaultdict whose factory is one of {known}, got {brief(factory)}"
        hint = "save dict(value), and make the defaultdict of it with a converter"
        raise unsaveable(message, hint)
    return {"factory": name, **_encode_pairs(value, encoder)}


def _encode_deque(value: deque[Any], encoder: Encoder) -> Members:
    return {"items": encoder.encode_all(value), "maxlen": value.maxlen}


def _decode_deque(node: Members, decoder: Decoder) -> deque[Any]:
    items = decoder.all(node["items"])
    most = node["maxlen"]
    if most is not None and (type(most) is not int or not len(items) <= most <= sys.maxsize):
        raise invalid_node(f"expected room for {len(items)} items, got a maxlen of {brief(most)}")
    return deque(items, most)


# ----------------------------------------------------------------------------------------------------------------------
# Bytes and integers.


def _encode_bigint(value: int, _: Encoder) -> Members:
    bits = value.bit_length()
    if bits > MOST_BITS:
        message = f"expected an integer of at most {MOST_BITS} bits, got one of {bits}"
        raise unsaveable(message, "save it as bytes: value.to_bytes(length, 'little', signed=True)")
    return {"value": write_decimal(value)}


# ----------------------------------------------------------------------------------------------------------------------
# Dates and paths.


def _read_timedelta(text: str) -> dt.timedelta:
    days, seconds, microseconds = map(int, text.split())
    return dt.timedelta(days, seconds, microseconds)


_MOMENTS: Mapping[type, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    dt.datetime: (dt.datetime.isoformat, dt.datetime.fromisoformat),
    dt.date: (dt.date.isoformat, dt.date.fromisoformat),
    dt.time: (dt.time.isoformat, dt.time.fromisoformat),
    dt.timedelta: (
        lambda value: f"{value.days} {value.seconds} {value.microseconds}",
        _read_timedelta,
    ),
}
_READERS = {cls.__name__: read for cls, (_, read) in _MOMENTS.items()}


def _encode_moment(value: Any, _: Encoder) -> Members:
    cls = type(value)
    zone = getattr(value, "tzinfo", None)
    if getattr(value, "fold", 0) or (zone is not None and type(zone) is not dt.timezone):
        message = f"expected a {cls.__name__} without a zone or with a fixed offset, got {value!r}"
        hint = "its zone would come back as an offset: save value.astimezone(datetime.UTC), and the zone's name beside it"
        raise unsaveable(message, hint)
    write = _MOMENTS[cls][0]
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
        raise unsaveable(message, "save str(value)")
    # All systems read forward slashes.
    text = encoder.encode(str(value) if system == "windows" else value.as_posix())
    return {"value": text} if system is None else {"value": text, "pure": system}


def _decode_path(node: Members, _: Decoder) -> pathlib.PurePath:
    cls = _PURE[node["pure"]] if "pure" in node else pathlib.Path
    return cls(node["value"])


def _never_encoded(value: Any, _: Encoder) -> Members:
    raise TypeError(f"no value is written in this kind, got {value!r}")


# ----------------------------------------------------------------------------------------------------------------------
# The table.


def _list_codec(tag: str, cls: Any) -> Codec:
    return Codec(
        KINDS[tag],
        (cls,),
        lambda value, encoder: {"items": encoder.encode_all(value)},
        lambda node, d: cls(d.all(node["items"])),
        raw=_raw_items,
    )


def _set_codec(tag: str, cls: Any) -> Codec:
    return Codec(
        KINDS[tag],
        (cls,),
        _encode_set,
        partial(_decode_set, cls),
        raw=_raw_items,
    )


def _dict_codec(tag: str, cls: Any, *types: type) -> Codec:
    return Codec(
        KINDS[tag],
        (cls, *types),
        _encode_pairs,
        lambda node, d: cls(dict(d.pairs(node))),
        raw=_raw_pairs,
    )


def _bytes_codec(tag: str, cls: Any) -> Codec:
    return Codec(
        KINDS[tag],
        (cls,),
        lambda value, _: {"base64": base64.b64encode(value).decode("ascii")},
        lambda node, _: cls(base64.b64decode(node["base64"])),
    )


def _parts_codec(tag: str, cls: type, *names: str) -> Codec:
    """The codec of values that are made of some of their attributes."""

    def encode(value: Any, encoder: Encoder) -> Members:
        return {name: encoder.encode(getattr(value, name)) for name in names}

    def decode(node: Members, decoder: Decoder) -> Any:
        parts = [decoder.decode(node[name]) for name in names]
        try:
            return cls(*parts)
        except (TypeError, ValueError, OverflowError) as error:
            raise invalid_node(f"expected the parts of a {tag}, got others", error) from None

    return Codec(KINDS[tag], (cls,), encode, decode)


_BOUNDS = ("start", "stop", "step")
PLAIN_CODECS = Codecs(
    [
        _list_codec("list", list),
        _list_codec("tuple", tuple),
        _set_codec("set", set),
        _set_codec("frozenset", frozenset),
        _dict_codec("dict", dict, PathTree),
        _dict_codec("ordered-dict", OrderedDict),
        _dict_codec("counter", Counter),
        _dict_codec("mapping-proxy", MappingProxyType),
        Codec(
            KINDS["defaultdict"],
            (defaultdict,),
            _encode_defaultdict,
            lambda node, d: defaultdict(FACTORIES[node["factory"]], d.pairs(node)),
            raw=_raw_pairs,
        ),
        Codec(KINDS["deque"], (deque,), _encode_deque, _decode_deque, raw=_raw_items),
        _parts_codec("range", range, *_BOUNDS),
        _parts_codec("slice", slice, *_BOUNDS),
        _parts_codec("complex", complex, "real", "imag"),
        Codec(
            KINDS["float"],
            (float,),
            lambda value, _: {"value": float.__repr__(value)},
            lambda node, _: float(node["value"]),
        ),
        Codec(KINDS["bigint"], (int,), _encode_bigint, lambda node, _: read_decimal(node["value"])),
        _bytes_codec("bytes", bytes),
        _bytes_codec("bytearray", bytearray),
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
            encode_scalar,
            decode_scalar,
            lambda value: isinstance(value, np.generic) and not isinstance(value, enum.Enum),
        ),
        Codec(
            KINDS["array"],
            (np.ndarray, np.memmap),
            encode_array,
            lambda node, d: d.array(node),
            lambda value: isinstance(value, np.ndarray),
        ),
        Codec(KINDS["full"], (), _never_encoded, decode_full),
    ]
)
