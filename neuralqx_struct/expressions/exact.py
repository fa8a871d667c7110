"""Exact numbers in arrays: whole numbers and truth values count as in Python, whatever holds them.

Arrays of numpy and JAX wrap around at the limits of their dtype, each library in its own way. Here every whole number is
Python's:

- A single one is an ``int`` or a ``bool``, also in an array without axes and as the result of ``sum``, ``min`` and ``max``.
- A comparison of an array with a number is made in the dtype of the array; the limits of the dtype decide about a number
  beyond them.
- Arithmetic on arrays of whole numbers is made in as many bits as all results fit into, else with Python's integers; beside
  them floats are ``float64``. :class:`Exact` holds such values until the expression is evaluated.

Arrays of floats alone calculate in their own precision, and round a float beside them to it, as numpy and JAX agree to do;
their sums are those of ``float64``.

Arrays of JAX on a CPU are calculated by numpy, which reads them in place; those on other devices stay there, but for sums and
for arithmetic with whole numbers. Of traced arrays, whose values are unknown, comparisons with a number are exact, and the
rules of JAX hold for the rest.

Example:
    >>> import numpy as np
    >>> tokens = np.array([5, 100], np.int8)
    >>> total_of(tokens), compared(operator.lt, tokens, 50257), compared(operator.ge, tokens, 99.5)
    (105, array([ True,  True]), array([False,  True]))
"""

from __future__ import annotations

import math
import operator
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from neuralqx_struct.dtypes import DTYPES, dtype_named
from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions.operators import MAX_BITS, MAX_EXPONENT, Operator

#: Kinds of dtypes that numpy calculates with; those of ml_dtypes are V.
_KINDS = "biufcV"
_HALF_WORD, _WORD = 2**31, 2**63
#: Whole numbers below it are floats without rounding.
_FLOATS = 2**53
#: The most elements that are Python's integers.
_MOST_OBJECTS = 10_000_000
_NUMBERS = frozenset({bool, int, float, complex})
#: The dtypes whose numbers are Python's floats and complex numbers.
_PYTHONS = frozenset({"float64", "complex128"})
_WHOLE = re.compile(r"(u?)int(\d+)")

#: The comparison that holds for exchanged operands.
_MIRRORED: dict[Callable[..., Any], Callable[..., Any]] = {
    operator.lt: operator.gt,
    operator.gt: operator.lt,
    operator.le: operator.ge,
    operator.ge: operator.le,
    operator.eq: operator.eq,
    operator.ne: operator.ne,
}


@dataclass(frozen=True, slots=True, eq=False)
class Exact:
    """The values of an array while an expression calculates with them.

    Attributes:
        values: An array of numpy; whole numbers may have more bits than the dtype, or be Python's integers or float64.
        dtype: The dtype that the arrays have together from which it was calculated.
        library: The namespace of their library; None for numpy.
        most: For whole numbers, one that no value is further from zero than.
    """

    values: Any
    dtype: Any
    library: Any = None
    most: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of its axes."""
        return self.values.shape  # type: ignore[no-any-return]

    def __bool__(self) -> bool:
        return bool(self.values)

    def delivered(self) -> Any:
        """The array of its library; refuses values that the dtype does not hold, instead of changing them."""
        if self.values.dtype.kind not in "iuO":
            return self.values if self.library is None else self.library.asarray(self.values)
        made: Any = None
        if self._fits(self.dtype):
            made = self.values.astype(self.dtype)
            made = made if self.library is None else self.library.asarray(made)
        if made is None or not self._fits(made.dtype):  # JAX may have fewer bits
            dtype = self.dtype if made is None else made.dtype
            found = f"{self.values.min()} to {self.values.max()}"
            message = f"expected whole numbers that {dtype} holds, got {found}"
            raise SchemaError(message, code="NQX115")
        return made

    def _fits(self, dtype: Any) -> bool:
        """True if a dtype holds all values."""
        low, high = limits_of(dtype) or (0, 0)
        values = self.values
        return not values.size or bool(low <= values.min() and values.max() <= high)


@lru_cache(maxsize=64)
def limits_of(dtype: Any) -> tuple[int, int] | None:
    """The least and the largest number of a dtype of whole numbers or truth values; None for another dtype.

    Example:
        >>> limits_of("int8"), limits_of("bool"), limits_of("float32")
        ((-128, 127), (0, 1), None)
    """
    name = getattr(dtype, "name", str(dtype))
    if name == "bool":
        return 0, 1
    found = _WHOLE.fullmatch(name)
    if found is None:
        return None
    bits = int(found[2])
    return (0, 2**bits - 1) if found[1] else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def settled(value: Any) -> Any:
    """The Python number of a single whole number or truth value, whatever holds it; other values as they are."""
    try:
        if getattr(value, "shape", None) != () or limits_of(value.dtype) is None:
            return value
    except TypeError:  # an object that is no array, with a dtype that has no hash
        return value
    values = _values(value)
    return value if values is None else values.item()


def plain_number(value: Any) -> Any:
    """The Python number in an array without axes; an array whose numbers are unknown, and other values, as they are."""
    values = _values(value) if getattr(value, "shape", None) == () else None
    return value if values is None else values.item()


def numbers_in(array: Any) -> list[Any]:
    """The numbers of an array, each as :func:`number_of` gives it; none where they are unknown, as under tracing."""
    values = _values(array)
    if values is None:
        return []
    return [number_of(each, array.dtype) for each in values.ravel().tolist()]


def number_of(number: Any, dtype: Any) -> Any:
    """A number that an array of a dtype holds, as comparisons take it.

    It is a number of numpy for floats of few bits, as a float beside it is rounded to them; else Python's number.

    Example:
        >>> bool(compared(operator.le, number_of(0.10000000149011612, "float32"), 0.1)), number_of(5, "int8")
        (True, 5)
    """
    name = str(dtype)
    if type(number) not in (float, complex) or name in _PYTHONS or name not in DTYPES:
        return number
    return dtype_named(name).type(number)


def compared(op: Callable[..., Any], left: Any, right: Any) -> Any:
    """Compares two values, element by element where one of them is an array."""
    if type(left) in _NUMBERS and type(right) in _NUMBERS:
        return op(left, right)
    with _without_warnings():
        return _compared(op, left, right)


def _compared(op: Callable[..., Any], left: Any, right: Any) -> Any:
    """As :func:`compared`, where one of two values is no number of Python."""
    if type(right) in _NUMBERS:
        return _beside_number(op, left, right)
    if type(left) in _NUMBERS:
        return _beside_number(_MIRRORED[op], right, left)
    if left.dtype == right.dtype and not _is_exact(left) and not _is_exact(right):
        return _of_library(op(_near(left), _near(right)), left, right)
    if not limits_of(left.dtype) and not limits_of(right.dtype):
        return op(*map(_delivered, (left, right)))
    values = [_values(value) for value in (left, right)]
    if any(value is None for value in values):  # unknown, as under a transformation of JAX
        return op(left, right)
    longest = _WORD if all(map(_is_whole, values)) else _FLOATS
    return _of_library(op(*(_with_objects(value, longest) for value in values)), left, right)


def combined(op: Callable[..., Any], left: Any, right: Any) -> Any:
    """Truth values that are both true, or one of which is."""
    return _of_library(op(_near(left), _near(right)), left, right)


def finite(array: Any) -> Any:
    """Which numbers of an array are finite; by its own library if it names one, else by comparisons."""
    return _of_library(_finite(_near(array)), array)


def _finite(array: Any) -> Any:
    if limits_of(array.dtype) or getattr(array.dtype, "kind", "") == "O":
        return array == array  # noqa: PLR0124
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__().isfinite(array)
    if getattr(array.dtype, "kind", "") == "c":
        return _finite(array.real) & _finite(array.imag)
    return (array < math.inf) & (array > -math.inf)


def _is_exact(value: Any) -> bool:
    """True for whole numbers that may be beyond the dtype, or are divided."""
    return type(value) is Exact and limits_of(value.dtype) is not None and value.dtype != "bool"


def _with_objects(values: Any, longest: int) -> Any:
    """The values, as Python's integers where some of the whole ones are as large as that."""
    is_long = _is_whole(values) and values.dtype.itemsize == 8 and _size(values) >= longest
    return _as_objects(values) if is_long else values


def _beside_number(op: Callable[..., Any], array: Any, number: Any) -> Any:
    """Compares an array with a number."""
    near = _near(array)
    limits = limits_of(near.dtype)
    if limits is None or type(number) is complex:
        values = None if _is_held(near, number) else _values(near)
        if values is None:
            with _without_warnings():
                return _of_library(op(near, _rounded(number, near.dtype)), array)
        op, number = _float_limit(op, number)
        return _of_library(op(_in_floats(values), number), array)
    limit = _whole_limit(op, number)
    if limits[0] <= limit <= limits[1]:
        return _of_library(op(near, getattr(near.dtype, "type", int)(limit)), array)
    # All numbers of the dtype are on the same side of the limit.
    truths = near == near if op(limits[0], limit) else near != near  # noqa: PLR0124
    return _of_library(truths, array)


def _whole_limit(op: Callable[..., Any], number: Any) -> Any:
    """The whole number with which all whole numbers compare as with a number; a fraction that equals none is NaN."""
    if not isinstance(number, float) or not math.isfinite(number):
        return number
    if number.is_integer():
        return int(number)
    if op in (operator.eq, operator.ne):
        return math.nan
    return math.ceil(number) if op in (operator.lt, operator.ge) else math.floor(number)


def _rounded(number: Any, dtype: Any) -> Any:
    """A number in the dtype of floats beside it; libraries differ in the rules for those of ml_dtypes."""
    is_real = getattr(dtype, "kind", "") in ("f", "V") and type(number) is not complex
    return dtype.type(float(number)) if is_real else number


def _float_limit(op: Callable[..., Any], number: Any) -> tuple[Callable[..., Any], Any]:
    """The comparison with a float that floats of 64 bits pass exactly if they pass one with a whole number."""
    limit = _as_float(number)
    if type(number) is not int or limit == number:
        return op, number if type(number) is complex else limit
    if op in (operator.eq, operator.ne):
        return op, math.nan
    if op in (operator.lt, operator.le):
        return (operator.le if limit < number else operator.lt), limit
    return (operator.gt if limit < number else operator.ge), limit


def _as_float(number: Any) -> Any:
    """The float next to a number; complex numbers as they are."""
    try:
        return number if type(number) is complex else float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _is_held(array: Any, number: Any) -> bool:
    """True unless an array of floats has no number that is equal to a whole one, or near to another one."""
    if type(number) is complex or abs(number) < 2 or getattr(array.dtype, "kind", "c") in "cO":
        return True
    import numpy as np

    with np.errstate(all="ignore"):
        held = np.asarray(_as_float(number)).astype(array.dtype).astype(np.float64).item()
    return held == number or (type(number) is float and math.isfinite(held))


def calculated(record: Operator, *operands: Any) -> Any:
    """The result of an operator of numbers and arrays."""
    arrays = [each for each in operands if type(each) not in _NUMBERS]
    if not any(limits_of(each.dtype) for each in arrays):
        alike = all(each.dtype == arrays[0].dtype for each in arrays)  # else the library promotes
        with _without_warnings():
            result = record.apply(*map(_near if alike else _delivered, operands))
        return _of_library(result, *arrays)
    read = {id(each): each if type(each) in _NUMBERS else _values(each) for each in operands}
    values = [read[id(each)] for each in operands]
    if any(value is None for value in values):  # unknown, as under a transformation of JAX
        return record.apply(*operands)
    most = None
    if all(map(_is_whole, values)):
        values, most = _with_room(
            record, values, [getattr(each, "most", None) for each in operands]
        )
    else:
        values = [*map(_in_floats, values)]
    import numpy as np

    with np.errstate(all="ignore"):
        result = np.asarray(record.apply(*values))
    return Exact(result, _dtype_of(arrays), _library_of(*arrays), most)


def _with_room(
    record: Operator, values: list[Any], most: Sequence[int | None]
) -> tuple[list[Any], int]:
    """Whole numbers in 32 or 64 bits if all results of an operator fit into them, else Python's integers.

    Args:
        record: The operator.
        values: Its operands.
        most: For each, a number that no value is further from zero than, if one is known.

    Returns:
        The operands, and a number that no result is further from zero than.

    Raises:
        ZeroDivisionError: A divisor is zero.
        SchemaError: NQX507: results may be too long.
    """
    last = values[-1]
    if record.divides and not (last if type(last) in _NUMBERS else last.all()):
        raise ZeroDivisionError
    unknown = [None] * len(values)
    sizes = _sizes(values, unknown if record.powers else most)
    if record.powers and sizes[1] > MAX_EXPONENT:
        message = f"expected exponents of at most {MAX_EXPONENT}, got a larger one"
        raise SchemaError(message, code="NQX507")
    size = max(1, *sizes, record.magnitude(*sizes))
    if size >= _HALF_WORD:  # more than half a word only if it must be
        sizes = _sizes(values, unknown)
        size = max(1, *sizes, record.magnitude(*sizes))
    if size.bit_length() > MAX_BITS:
        message = f"expected whole numbers of at most {MAX_BITS} bits, got {size.bit_length()} bits"
        raise SchemaError(message, code="NQX507")
    is_fraction = record.powers and (last if type(last) in _NUMBERS else last.min(initial=0)) < 0
    if is_fraction or size >= (_FLOATS if record.divides else _WORD):
        return [value if type(value) in _NUMBERS else _as_objects(value) for value in values], size
    dtype = "int32" if size < _HALF_WORD else "int64"
    return [v if type(v) in _NUMBERS else v.astype(dtype, copy=False) for v in values], size


def _sizes(values: list[Any], most: Sequence[int | None]) -> list[int]:
    """How far the values of each operand are from zero at most; arrays whose number is not known are read once."""
    read: dict[int, int] = {}
    for value, known in zip(values, most, strict=True):
        if id(value) not in read:
            read[id(value)] = _size(value) if known is None else known
    return [read[id(value)] for value in values]


def total_of(array: Any) -> Any:
    """The sum of an array; None if its values are unknown."""
    values = _values(array)
    if values is None:
        return None
    if not _is_whole(values):
        with _without_warnings():
            if values.dtype.kind != "f" or values.dtype.itemsize == 8:
                return values.sum(dtype="complex128" if values.dtype.kind == "c" else None).item()
            import numpy as np

            # Converts in the registers, where sum() converts in a buffer.
            return np.einsum("i->", values.ravel(), dtype="float64").item()
    if values.dtype.kind == "O":
        return sum(values.ravel().tolist())
    if (
        2 ** (8 * values.dtype.itemsize) * values.size < _WORD
        or _size(values) * values.size < _WORD
    ):
        return int(values.sum())
    # The sums of 32 bits each are exact for up to 2**31 elements.
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())


def reduced(array: Any, method: str) -> Any:
    """The result of a method of an array, such as ``min``."""
    if method == "sum" and (total := total_of(array)) is not None:
        return total
    if not _is_exact(array):
        reduce = getattr(_near(array), method, None)
        if reduce is None:  # a random key
            raise TypeError(f"it has no {method}")
        with _without_warnings():
            return _of_library(settled(reduce()), array)
    values = array.values != 0 if method in ("all", "any") else array.values
    return (
        getattr(values, method)() if values.dtype.kind == "O" else getattr(values, method)().item()
    )


def _without_warnings() -> AbstractContextManager[Any]:
    """Numpy's floats overflow to infinity, and are compared with nan, without a warning, as those of JAX."""
    numpy: Any = sys.modules.get("numpy")
    return nullcontext() if numpy is None else numpy.errstate(all="ignore")


# --- values ----------------------------------------------------------------------------------------------------------


def _values(array: Any) -> Any:
    """The values of an array in a dtype of numpy's own; None where they are unknown, or on other machines."""
    if type(array) is Exact:
        return array.values
    if not hasattr(type(array), "__array__"):
        return None
    import numpy as np

    try:
        values = np.asarray(array)
    except (TypeError, RuntimeError):  # a tracer; an array of several hosts
        return None
    if values.dtype.kind != "V":
        return values
    return values.astype("float64" if limits_of(values.dtype) is None else "int8")  # of ml_dtypes


def _near(value: Any) -> Any:
    """The numbers of an array of JAX on a CPU as an array of numpy in place; other values as they are."""
    if type(value) is Exact:
        return value.values
    device = getattr(value, "device", None)
    if getattr(device, "platform", "") != "cpu" or getattr(value.dtype, "kind", "O") not in _KINDS:
        return value
    import numpy as np

    return np.asarray(value)


def _delivered(value: Any) -> Any:
    """The array of its library."""
    return value.delivered() if type(value) is Exact else value


def _in_floats(value: Any) -> Any:
    """The values beside numbers that are not whole."""
    if type(value) in _NUMBERS:
        return value
    return value.astype("complex128" if value.dtype.kind == "c" else "float64")


def _as_objects(values: Any) -> Any:
    """The values as Python's integers."""
    if values.size > _MOST_OBJECTS:
        message = f"expected at most {_MOST_OBJECTS:,} whole numbers beyond 64 bits, got an array of {values.size:,}"
        raise SchemaError(message, code="NQX507")
    return values.astype(object)


def _is_whole(value: Any) -> bool:
    """True for whole numbers and truth values."""
    if type(value) in _NUMBERS:
        return type(value) in (bool, int)
    return bool(value.dtype.kind in "biuO")


def _size(value: Any) -> int:
    """The largest magnitude of whole numbers."""
    if type(value) in _NUMBERS:
        return abs(int(value))
    return max(abs(int(value.min())), abs(int(value.max()))) if value.size else 0


def _dtype_of(arrays: list[Any]) -> Any:
    """The dtype of whole numbers that holds those of all arrays; that of truth values counts as int64."""
    dtypes = {each.dtype for each in arrays if limits_of(each.dtype)}
    lows, highs = zip(*map(limits_of, dtypes), strict=True)
    if max(highs) == 1:
        return "int64"
    return dtypes.pop() if len(dtypes) == 1 else _narrowest(min(lows), max(highs))


def _narrowest(least: int, largest: int) -> str:
    """The name of the narrowest dtype between two numbers; int64 if there is none."""
    for bits in (8, 16, 32, 64):
        for name in (f"int{bits}", f"uint{bits}"):
            low, high = limits_of(name) or (0, 0)
            if low <= least and largest <= high:
                return name
    return "int64"


def _library_of(*operands: Any) -> Any:
    """The namespace of the library of the first array that is not numpy's; None for numpy."""
    for each in operands:
        if type(each) is Exact and each.library is not None:
            return each.library
        if hasattr(each, "__array_namespace__") and type(each).__module__ != "numpy":
            return each.__array_namespace__()
    return None


def _of_library(result: Any, *operands: Any) -> Any:
    """A result of numpy that becomes an array of the library of the operands when it is delivered."""
    if not type(result).__module__.startswith(("numpy", "ml_dtypes")):
        return result
    library = _library_of(*operands)
    if library is None:
        return result
    return Exact(sys.modules["numpy"].asarray(result), result.dtype, library)
