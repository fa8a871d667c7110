"""Conversions of arrays to other dtypes: exact ones, which refuse a value that the new dtype lacks, and rounding ones.

Also real arrays as a complex one, bit-exact in both directions.

Example:
    >>> import numpy as np
    >>> cast(np.array([1.0, 0.1]), "bfloat16", exact=False, path="$").tolist()
    [1.0, 0.10009765625]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuralqx_struct.dtypes import DTYPES, ML_DTYPES, dtype_named
from neuralqx_struct.errors import MigrationError

if TYPE_CHECKING:
    import numpy as np

#: Elements that a cast handles at a time: bounds its temporary memory to some MiB.
_CHUNK = 1 << 18

#: The hint about a value that a conversion would change.
LOSES = "a cast that may lose values needs `exact: false, lossy: true`"


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
        hint=LOSES,
    )


def _converted(part: np.ndarray, target: np.dtype[Any]) -> np.ndarray:
    if part.dtype.kind == "c" and target.kind != "c":
        part = part.real
    if part.dtype.name in ML_DTYPES:
        # float32 holds all their values; not all pairs of them have a cast of their own.
        part = part.astype("float32")
    if DTYPES[target.name].family in ("integer", "unsigned") and part.dtype.kind == "f":
        return _whole(part, target)
    new: np.ndarray = part.astype(target)
    return new


def _whole(part: np.ndarray, target: np.dtype[Any]) -> np.ndarray:
    """The integers towards zero: the nearest of the dtype beyond its range, and 0 for NaN, as XLA has them on all processors."""
    import ml_dtypes
    import numpy as np

    limits: Any = ml_dtypes.iinfo(target)  # type: ignore[no-untyped-call]
    low, high = int(limits.min), int(limits.max)
    above, below = part >= float(high) + 1, part < low
    wide = "uint64" if low == 0 else "int64"
    new = np.where(above | below | np.isnan(part), 0, part).astype(wide)
    new[above], new[below] = high, low
    return new.astype(target)


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


# ---------------------------------------------------------------------------------------------------------------------
# Complex arrays of real ones, and back.

#: The complex dtype whose parts are of a real dtype, and back.
COMPLEX_OF = {"float32": "complex64", "float64": "complex128"}
PART_OF = {whole: part for part, whole in COMPLEX_OF.items()}


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
