"""Codecs of numpy arrays and scalars, and of arrays that repeat one number.

Example:
    >>> from neuralqx_struct.codecs.nodes import Encoder
    >>> from neuralqx_struct.codecs.plain import PLAIN_CODECS
    >>> Encoder(PLAIN_CODECS).encode(np.float32(0.5))
    {'__kind__': 'numpy-scalar', 'dtype': 'float32', 'value': 0.5}
"""

from __future__ import annotations

from cmath import isfinite
from collections.abc import Mapping
from typing import Any

import numpy as np

from neuralqx_struct.codecs.nodes import Decoder, Encoder, invalid_node, unsaveable
from neuralqx_struct.dtypes import dtype_name, dtype_named
from neuralqx_struct.errors import SerializationError
from neuralqx_struct.printing import brief

Members = Mapping[str, Any]


def _stored_name(dtype: np.dtype[Any]) -> str:
    """The name of a dtype in a manifest."""
    try:
        return dtype_name(dtype)
    except SerializationError as error:
        problem = error.diagnostics[0]
        raise unsaveable(problem.message, problem.hint) from None


def encode_scalar(value: np.generic, encoder: Encoder) -> Members:
    """The members of the node of a numpy scalar."""
    dtype = value.dtype
    name = _stored_name(dtype)
    plain: Any
    if dtype.kind in "mM":
        plain = int(value.view(np.int64))
    elif isinstance(value, np.bytes_):  # item() would cut trailing zeros off text
        plain = bytes(value)
    elif isinstance(value, np.str_):
        plain = "".join(value)
    else:
        plain = value.item()
    return {"dtype": name, "value": encoder.encode(plain)}


def decode_scalar(node: Members, decoder: Decoder) -> Any:
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
    cls = type(value)
    reason = None
    if isinstance(value, np.ma.MaskedArray):
        reason = (
            "a masked array, whose mask would be lost; save value.data and value.mask as two arrays"
        )
    elif cls not in (np.ndarray, np.memmap):
        reason = f"a {cls.__module__}.{cls.__qualname__}, which would come back as a plain array; save np.asarray(value)"
    elif value.dtype.names is not None:
        reason = f"a structured dtype {value.dtype}; save its fields as arrays of their own"
    if reason is not None:
        raise unsaveable(f"expected an array that can be saved exactly, got {reason}")
    _stored_name(value.dtype)
    return {**encoder.put_array(value, value), "leaf": "numpy"}


def decode_full(node: Members, decoder: Decoder) -> np.ndarray[Any, Any]:
    """A read-only array that takes the memory of one number."""
    number = _number(node, decoder, dtype_named(node["dtype"]))
    try:
        return np.broadcast_to(number, tuple(node["shape"]))
    except (ValueError, OverflowError) as error:
        message = f"expected a shape that an array can have, got {brief(node['shape'])}"
        raise invalid_node(message, error) from None
