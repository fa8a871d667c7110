"""Encoders and decoders of numpy arrays and scalars.

Example:
    >>> from neuralqx_struct.codecs.nodes import Codecs
    >>> decode_numpy_scalar({"dtype": "int8", "value": 5}, Decoder(Codecs([]), {})).dtype
    dtype('int8')
"""

from __future__ import annotations

from cmath import isfinite
from collections.abc import Mapping
from typing import Any

import numpy as np

from neuralqx_struct.codecs.nodes import Decoder, Encoder, invalid_node
from neuralqx_struct.dtypes import ML_DTYPES, dtype_name, dtype_named
from neuralqx_struct.printing import brief

Node = Any
Members = Mapping[str, Node]

# They have the characters of formats of ml_dtypes.
_LONG = (np.longdouble, np.clongdouble)


def encode_numpy_scalar(value: np.generic, encoder: Encoder) -> Members:
    """The members of the node of a numpy scalar."""
    dtype = value.dtype
    refused = {"dtype": str(dtype), "value": None}
    if dtype.kind in "OV" and dtype.name not in ML_DTYPES:
        encoder.refuse(f"expected a numpy scalar of a plain dtype, got {dtype}")
        return refused
    if dtype.type in _LONG:
        message = f"expected a dtype that all platforms have, got {dtype}"
        encoder.refuse(message, hint="convert it to float64 first")
        return refused
    plain: Any
    if dtype.kind in "mM":
        plain = int(value.view(np.int64))
    elif isinstance(value, np.bytes_):  # item() would cut trailing zeros off text
        plain = bytes(value)
    elif isinstance(value, np.str_):
        plain = "".join(value)
    else:
        plain = value.item()
    return {"dtype": dtype_name(dtype), "value": encoder.encode(plain)}


def decode_numpy_scalar(node: Members, decoder: Decoder) -> Any:
    """The numpy scalar of a node."""
    dtype = dtype_named(node["dtype"])
    if dtype.kind not in "SU":
        return _number(node, decoder, dtype)[()]
    # An array would cut trailing zeros off text.
    value = decoder.decode(node["value"])
    if type(value) is not (bytes if dtype.kind == "S" else str):
        raise invalid_node(f"expected a value of dtype {node['dtype']}, got {brief(value)}")
    return dtype.type(value)


_ROOM = 1 << 16  # bytes that text may take beyond its characters


def _number(node: Members, decoder: Decoder, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The ``value`` of a node as an array without axes."""
    value = decoder.decode(node["value"])
    try:
        if value is None:  # numpy would make nan of it, or text
            raise TypeError("null is no number")
        if dtype.kind in "SU" and dtype.itemsize > _ROOM + 4 * len(value):
            raise ValueError("so few characters need not take that much memory")
        if dtype.kind in "mM":
            return np.array(value, np.int64).view(dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            made = np.array(value, dtype)
        _require_same(made.item(), value)
    except (TypeError, ValueError, OverflowError) as error:
        message = f"expected a value of dtype {node['dtype']}, got {brief(value)}"
        raise invalid_node(message, error) from None
    return made


def _require_same(made: Any, value: Any) -> None:
    """Raises ValueError if a dtype changed a value, rounding apart."""
    if isinstance(made, float | complex) and isinstance(value, int | float | complex):
        same = not isfinite(value) or isfinite(made)
    else:
        same = bool(made == value)
    if not same:
        raise ValueError(f"it would become {brief(made)}")


def encode_array(value: np.ndarray[Any, Any], encoder: Encoder) -> Members:
    """The members of the node of a numpy array."""
    reason = _unsaveable(value)
    if reason:
        encoder.refuse(f"expected an array that can be saved exactly, got {reason}")
        return {"name": "", "dtype": "", "shape": []}
    return {**encoder.put_array(value, value), "leaf": "numpy"}


def _unsaveable(value: np.ndarray[Any, Any]) -> str | None:
    cls, dtype = type(value), value.dtype
    if isinstance(value, np.ma.MaskedArray):
        return (
            "a masked array, whose mask would be lost; save value.data and value.mask as two arrays"
        )
    if cls not in (np.ndarray, np.memmap):
        return f"a {cls.__module__}.{cls.__qualname__}, which would come back as a plain array; save np.asarray(value)"
    if dtype.names is not None:
        return f"a structured dtype {dtype}; save its fields as arrays of their own"
    if dtype.hasobject:
        return "an array of Python objects, which only pickle could hold"
    if dtype.type in _LONG:
        return f"{dtype}, which differs between platforms; convert it to float64 or complex128"
    return None


def decode_full(node: Members, decoder: Decoder) -> np.ndarray[Any, Any]:
    """A read-only array that takes the memory of one number."""
    number = _number(node, decoder, dtype_named(node["dtype"]))
    try:
        return np.broadcast_to(number, tuple(node["shape"]))
    except (ValueError, OverflowError) as error:
        message = f"expected a shape that an array can have, got {brief(node['shape'])}"
        raise invalid_node(message, error) from None
