"""Live values for the walk of a schema (``schema/conformance.py``): instances, arrays, tracers and plain values.

Example:
    >>> see_value([1.5, None]).text
    'a list of 2'
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from neuralqx_struct.dtypes import DTYPES
from neuralqx_struct.expressions.exact import plain_number
from neuralqx_struct.fieldspec import is_struct
from neuralqx_struct.paths import FieldName, PathTree
from neuralqx_struct.printing import brief_scalar
from neuralqx_struct.references import class_ref, stored_class
from neuralqx_struct.schema.conditions import Shaped
from neuralqx_struct.schema.conformance import Seen
from neuralqx_struct.types import type_of_class


@lru_cache(maxsize=256)
def _dtype_name(dtype: Any) -> str:
    return str(dtype)  # slow in numpy


def see_value(value: Any) -> Seen:
    """Reads a live value for the walk of a schema; tracers have shape and dtype only."""
    if value is None:
        return Seen("null", "null")
    if isinstance(value, type):
        return Seen("other", f"a {type(value).__name__}")
    kind: Any = type(value)
    record = type_of_class(kind)
    if record is not None:
        return Seen("scalar", "", value=value, type_name=record.sort)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        sort = "list" if isinstance(value, list) else "tuple"
        return Seen(sort, f"a {sort} of {len(value)}", items=dict(enumerate(value)))
    if isinstance(value, (dict, PathTree)) and all(isinstance(key, str) for key in value):
        return Seen("dict", "a dict", items=value)
    if is_struct(value):
        return _see_struct(value)
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return _see_array(value)
    keys = " with keys that are not str" if isinstance(value, dict) else ""
    return Seen("other", f"a {type(value).__name__}{keys}", value=value)


def _see_struct(value: Any) -> Seen:
    cls = type(value)
    bases = (base for base in cls.__mro__ if "__nqx_ref__" in base.__dict__)
    refs = dict.fromkeys(map(class_ref, (stored_class(cls), *bases)))
    specs = cls.__nqx_fields__.items()
    fields = {FieldName(n, s): getattr(value, n) for n, s in specs if not s.is_derived}
    return Seen("struct", cls.__name__, refs=tuple(refs), items=fields)


def _see_array(value: Any) -> Seen:
    shape = tuple(value.shape)
    # Keys have extended dtypes, which are none of numpy's; that is cheap to see.
    extended = not isinstance(value.dtype, np.dtype)
    if extended and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        impl = str(jax.random.key_impl(value)) if isinstance(value, jax.Array) else str(value.dtype)
        return Seen("key", f"prng_key[{impl}]", impl, shape)
    dtype = _dtype_name(value.dtype)
    traced = isinstance(value, jax.core.Tracer)
    has_data = not traced and hasattr(value, "__array__")
    data = value if has_data else Shaped(dtype, shape)
    single = plain_scalar(value) if isinstance(value, np.generic) else None
    text = brief_scalar(single) if isinstance(single, (str, bytes)) else ""
    return Seen("array", text, dtype, shape, data, single, loose=traced)


def plain_scalar(value: np.generic) -> Any:
    """The number or text of a scalar of numpy as Python has it; None for others, such as dates."""
    if isinstance(value, np.str_):
        return "".join(value)
    if isinstance(value, np.bytes_):
        return bytes(value)  # item() would cut trailing zeros off
    return value.item() if _dtype_name(value.dtype) in DTYPES else None


def number_of_array(value: Any) -> Any:
    """The Python number of an array without axes; tracers and other values as they are."""
    number = plain_number(value)
    return number if type(number) in (bool, int, float, complex) else value


def values_inside(value: Any) -> list[Any] | None:
    """The values inside an object that is registered with JAX; None for others, and for null, which JAX takes for empty."""
    if value is None:
        return None
    try:
        leaves = jax.tree.leaves(value, is_leaf=lambda inner: inner is not value)
    except TypeError:  # the function of its class fails, or has no order of keys
        return None
    return None if len(leaves) == 1 and leaves[0] is value else leaves


class LiveNames(dict[str, Any]):
    """The values of names in an expression about an instance."""

    inside = staticmethod(values_inside)


class WithoutData:
    """Reads like another reader, but without the numbers in arrays, and records whether a constraint needs them."""

    def __init__(self, see: Callable[[Any], Seen] = see_value) -> None:
        self._see = see
        self._arrays: list[Shaped] = []

    def __call__(self, value: Any) -> Seen:
        """A value without the numbers in it."""
        seen = self._see(value)
        if seen.sort != "array":
            return seen
        hidden = Shaped(seen.dtype, seen.shape)
        if not seen.loose:  # tracers have no numbers
            self._arrays.append(hidden)
        return seen._replace(value=hidden)

    @property
    def needed(self) -> bool:
        """True if a constraint asked for numbers."""
        return any(array.asked for array in self._arrays)
