"""Values in payloads: changes inside of nodes, casts of arrays that lose nothing, and real arrays as complex ones.

Owns which dtypes hold every value of which others (:func:`promotes`, without numpy) and the functions that change the
elements of arrays, bit-exact in both directions. Paths for messages are handed in.

Example:
    >>> promotes("int16", "float32"), promotes("int32", "float32")
    (True, False)

:func:`map_leaves` changes the values inside of a node by its declared type, :func:`shown_node` is its text in messages.

    >>> shown_node({"__kind__": "full", "dtype": "int8", "shape": [2], "value": 7})
    'int8[2], all 7'
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from neuralqx_struct.dtypes import DTYPES, ML_DTYPES, dtype_named
from neuralqx_struct.errors import MigrationError
from neuralqx_struct.manifest.kinds import ENUM, show
from neuralqx_struct.paths import Path
from neuralqx_struct.types import Node, Type


def map_leaves(
    node: Node, declared: Type, change: Callable[[Node, Type, Path], Node], at: Path = ()
) -> Node:
    """A node with every node in it changed that contains no others.

    Args:
        node: The node.
        declared: Its type.
        change: Called with the inner node, its type and its path.
        at: The path of the node.
    """
    children = declared.children(node)
    if children:
        made = [map_leaves(each, part, change, (*at, key)) for key, part, each in children]
        return declared.with_children(node, made)
    return change(node, declared, at)


def map_texts(
    node: Node, declared: Type, change: Callable[[str, Type, Path], str], at: Path = ()
) -> Node:
    """As :func:`map_leaves`, for strings and for the names of enum members."""

    def changed(node: Node, declared: Type, at: Path) -> Node:
        if isinstance(node, str):
            return change(node, declared, at)
        if ENUM.matches(node):  # a member of a Python class; schemas write its name
            return {**node, "name": change(node["name"], declared, at)}
        return node

    return map_leaves(node, declared, changed, at)


def shown_node(node: Node) -> str:
    """A node as messages show it: the value of a scalar, the type and size of others."""
    shown = show(node)
    if shown.value and shown.array is None:
        return shown.value
    return f"{shown.text}, all {shown.value}" if shown.value else shown.text


if TYPE_CHECKING:
    import numpy as np


#: The complex dtype whose parts are of a real dtype, and back.
COMPLEX_OF = {"float32": "complex64", "float64": "complex128"}
PART_OF = {whole: part for part, whole in COMPLEX_OF.items()}

#: Elements that a cast handles at a time: bounds its temporary memory to some MiB.
_CHUNK = 1 << 18


def promotes(old: str, new: str) -> bool:
    """True if every value of one dtype is a value of another and means the same.

    Args:
        old: Name of the dtype that is stored.
        new: Name of the dtype that is wanted.

    Returns:
        False also for bool to numbers: exact, but no longer a truth value; that needs a cast step.

    Example:
        >>> promotes("uint8", "bfloat16"), promotes("bool", "int8"), promotes("float16", "bfloat16")
        (True, False, False)
    """
    if old == new:
        return True
    a, b = DTYPES.get(old), DTYPES.get(new)
    if a is None or b is None or "bool" in (a.family, b.family):
        return False
    if b.exponents is None:
        return a.family in ("unsigned", b.family) and a.significand <= b.significand
    if a.significand > b.significand or (a.family == "complex" and b.family != "complex"):
        return False
    low, high = a.range
    if a.exponents is None:
        low, high = 1, max(-low, high)
    return b.range[0] <= low and high <= b.range[1] and b.lacks <= a.lacks


def cast(array: np.ndarray, dtype: str, *, exact: bool, path: str) -> np.ndarray:
    """Change the dtype of an array.

    Args:
        array: Any array of a dtype in ``DTYPES``.
        dtype: Name of the new dtype.
        exact: Refuse a value that the new dtype cannot hold, where any NaN counts as the same as any other (no format
            promises to keep a NaN's payload).
        path: Where the array is, for messages.

    Returns:
        A new array of the same shape, C-contiguous.

    Raises:
        MigrationError: NQX213, or NQX214 for an imaginary part; names the first bad index and its value.

    Example:
        >>> import numpy as np
        >>> cast(np.array([1.0, -1.0]), "int8", exact=True, path="$.samples")
        array([ 1, -1], dtype=int8)
    """
    import numpy as np

    target = dtype_named(dtype)
    result = np.empty(array.shape, target)
    source, flat = np.ascontiguousarray(array).reshape(-1), result.reshape(-1)
    for start in range(0, source.size, _CHUNK):
        part = source[start : start + _CHUNK]
        with np.errstate(all="ignore"):
            new = _converted(part, target)
            if exact and not (same := _same(part, new)).all():
                first = start + int(np.argmin(same))
                raise _inexact(array, source[first], first, dtype, path)
        flat[start : start + _CHUNK] = new
    return result


def _inexact(array: np.ndarray, value: Any, position: int, dtype: str, path: str) -> MigrationError:
    import numpy as np

    index = (
        ", ".join(str(int(i)) for i in np.unravel_index(position, array.shape))
        if array.ndim
        else ""
    )
    to_real = array.dtype.kind == "c" and DTYPES[dtype].family != "complex"
    return MigrationError(
        f"expected a value that {dtype} holds exactly at index [{index}], got {value!s} ({array.dtype.name})"
        + ("\nthe imaginary part would be lost" if to_real and value.imag != 0 else ""),
        code="NQX214" if to_real else "NQX213",
        path=path,
        hint="a cast that may lose values needs `exact: false, lossy: true`",
    )


def _converted(part: np.ndarray, target: np.dtype[Any]) -> np.ndarray:
    if part.dtype.kind == "c" and target.kind != "c":
        part = part.real
    if part.dtype.name in ML_DTYPES:
        # float32 holds all their values; not all pairs of them have a cast of their own.
        part = part.astype("float32")
    new: np.ndarray = part.astype(target)
    return new


def _same(old: Any, new: Any) -> Any:
    """The elements that are the same number, with the same sign of zero; any NaN is the same as any other."""
    import numpy as np

    if "c" in (old.dtype.kind, new.dtype.kind):
        zeros = np.zeros(old.shape)  # float8_e8m0fnu has no zero
        parts = (each.imag if each.dtype.kind == "c" else zeros for each in (old, new))
        return _same(old.real, new.real) & _same(*parts)
    a, b = _widened(old), _widened(new)
    if a.dtype.kind == b.dtype.kind == "f":
        equal = (a == b) & (np.signbit(a) == np.signbit(b))
        return equal | (np.isnan(a) & np.isnan(b))
    if "f" not in (a.dtype.kind, b.dtype.kind):
        return (a == b) & ((a < 0) == (b < 0))
    whole, real = (b, a) if a.dtype.kind == "f" else (a, b)
    # Beyond the range the result of a cast depends on the processor; -0.0 is no integer.
    limits = np.iinfo(whole.dtype)
    fits = (real >= float(limits.min)) & (real < float(limits.max) + 1)
    fits &= ~((real == 0) & np.signbit(real))
    integer = np.where(fits, real, 0).astype(whole.dtype)
    return fits & (integer == whole) & (integer == real)


def _widened(array: Any) -> Any:
    """The numbers as a dtype with all operations."""
    family = DTYPES[array.dtype.name].family
    return array.astype({"floating": "float64", "unsigned": "uint64"}.get(family, "int64"))


def join_complex(real: np.ndarray, imaginary: np.ndarray, dtype: str) -> np.ndarray:
    """One complex array of two real ones, bit by bit; the inverse of :func:`part_complex`.

    Copied into the parts, never added: ``a + 1j * b`` would turn -0.0 into 0.0 and spread NaN and infinity.
    """
    import numpy as np

    result = np.empty(real.shape, dtype)
    result.real[...] = real
    result.imag[...] = imaginary
    return result


def part_complex(array: np.ndarray, imaginary: bool) -> np.ndarray:
    """The real or the imaginary part of a complex array, bit by bit and C-contiguous."""
    import numpy as np

    # ascontiguousarray would make a 0-d array 1-d.
    return np.array(array.imag if imaginary else array.real, order="C")


def compact(array: np.ndarray) -> np.ndarray:
    """The array in C order, itself if it is so already."""
    import numpy as np

    return np.array(array, order="C", copy=None) if array.ndim else array
