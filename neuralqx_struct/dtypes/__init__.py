"""Dtypes of stored arrays: their properties without numpy, numpy's dtype for each name, and promotion.

Example:
    >>> DTYPES["bfloat16"].bits, dtype_named("bfloat16").itemsize
    (16, 2)

:func:`promotes` is the question which dtypes hold every value of which others; ``casts.py`` converts arrays.

    >>> promotes("int16", "float32"), promotes("int32", "float32")
    (True, False)
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from neuralqx_struct.errors import SerializationError, did_you_mean

if TYPE_CHECKING:
    import numpy as np


class Dtype(NamedTuple):
    """Family, size and range of a dtype, without numpy.

    Attributes:
        family: ``bool``, ``integer``, ``unsigned``, ``floating`` or ``complex``.
        bits: Size of one element in bits (4 for int4, although memory holds it in one byte).
        significand: Bits of precision, the hidden one included (of each part, for complex numbers).
        exponents: Smallest and largest exponent of a finite value, as powers of two; None for integers.
        lacks: Those of ``inf``, ``nan``, ``zero``, ``negative zero`` and ``negative`` that are no values.
    """

    family: str
    bits: int
    significand: int
    exponents: tuple[int, int] | None = None
    lacks: frozenset[str] = frozenset()

    @property
    def wide(self) -> bool:
        """True if JAX holds it only with ``jax_enable_x64``."""
        return self.bits == (128 if self.family == "complex" else 64)

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest number of an integer dtype; of others the sizes of the smallest and largest but zero."""
        if self.exponents is None:
            low = 0 if self.family == "unsigned" else -(2 ** (self.bits - 1))
            return low, low + 2**self.bits - 1
        smallest, largest = self.exponents
        # In float8_e4m3fn the largest significand means NaN.
        missing = 2 if "nan" not in self.lacks and self.lacks == {"inf"} else 1
        return 2.0**smallest, (2 - missing * 2.0 ** (1 - self.significand)) * 2.0**largest

    @property
    def values(self) -> str:
        """The values in words."""
        if self.family == "bool":
            return "true and false"
        low, high = self.range
        if self.exponents is None:
            return f"whole numbers from {low} to {high}"
        sign = "positive numbers" if "negative" in self.lacks else "0, and numbers"
        return f"{sign} from {low:.6g} to {high:.6g} in absolute value"

    def holds(self, number: Any) -> bool:
        """True if a plain number is a value, or is rounded to one; 1e5 is beyond float16, and 300 is beyond int8."""
        kind = type(number)
        if self.family == "bool" or kind is bool:
            return self.family == "bool" and kind is bool
        low, high = self.range
        if self.exponents is None:
            return kind is int and low <= number <= high
        if kind is complex:
            return self.family == "complex" and all(map(self.holds, (number.real, number.imag)))
        if kind not in (int, float) or (number < 0 and "negative" in self.lacks):
            return False
        if not -math.inf < number < math.inf:
            return ("nan" if number != number else "inf") not in self.lacks  # noqa: PLR0124
        return low <= abs(number) <= high if number else "zero" not in self.lacks


def _lacking(*values: str) -> frozenset[str]:
    return frozenset(values)


_WHOLE = _lacking("inf", "nan", "negative zero")


# Significands and exponent ranges: IEEE 754-2019 table 3.5, the OCP 8-bit and microscaling formats, and ml_dtypes'
# documentation of the variants; smallest exponents include subnormal numbers.
DTYPES: Mapping[str, Dtype] = {
    "bool": Dtype("bool", 8, 1),
    **{f"int{n}": Dtype("integer", n, n - 1, None, _WHOLE) for n in (2, 4, 8, 16, 32, 64)},
    **{
        f"uint{n}": Dtype("unsigned", n, n, None, _WHOLE | {"negative"})
        for n in (2, 4, 8, 16, 32, 64)
    },
    "float4_e2m1fn": Dtype("floating", 4, 2, (-1, 2), _lacking("inf", "nan")),
    "float8_e3m4": Dtype("floating", 8, 5, (-6, 3)),
    "float8_e4m3": Dtype("floating", 8, 4, (-9, 7)),
    "float8_e4m3b11fnuz": Dtype("floating", 8, 4, (-13, 4), _lacking("inf", "negative zero")),
    "float8_e4m3fn": Dtype("floating", 8, 4, (-9, 8), _lacking("inf")),
    "float8_e4m3fnuz": Dtype("floating", 8, 4, (-10, 7), _lacking("inf", "negative zero")),
    "float8_e5m2": Dtype("floating", 8, 3, (-16, 15)),
    "float8_e5m2fnuz": Dtype("floating", 8, 3, (-17, 15), _lacking("inf", "negative zero")),
    "float8_e8m0fnu": Dtype(
        "floating", 8, 1, (-127, 127), _lacking("inf", "zero", "negative zero", "negative")
    ),
    "bfloat16": Dtype("floating", 16, 8, (-133, 127)),
    "float16": Dtype("floating", 16, 11, (-24, 15)),
    "float32": Dtype("floating", 32, 24, (-149, 127)),
    "float64": Dtype("floating", 64, 53, (-1074, 1023)),
    "complex64": Dtype("complex", 64, 24, (-149, 127)),
    "complex128": Dtype("complex", 128, 53, (-1074, 1023)),
}


class Family(NamedTuple):
    """Dtypes of which an array has any one.

    Attributes:
        members: Names of the dtypes, as ``jax.numpy.issubdtype`` has them.
        usual: The dtype of arrays that are made of plain numbers.
    """

    members: tuple[str, ...]
    usual: str


def _family(usual: str, *families: str) -> Family:
    members = [name for name, dtype in DTYPES.items() if dtype.family in families]
    return Family(tuple(members), usual)


#: The families that declarations and ``load(dtype=)`` may name; truth values are no numbers.
FAMILIES: Final[Mapping[str, Family]] = {
    "floating": _family("float32", "floating"),
    "integer": _family("int32", "integer", "unsigned"),
    "number": _family("float32", "integer", "unsigned", "floating", "complex"),
}


def dtypes_of(name: str) -> tuple[str, ...]:
    """The dtypes that a name means: those of a family, one for a dtype, none for other names.

    Example:
        >>> dtypes_of("int8"), len(dtypes_of("integer")), dtypes_of("bfloat17")
        (('int8',), 12, ())
    """
    if name in FAMILIES:
        return FAMILIES[name].members
    return (name,) if name in DTYPES else ()


# The number formats that ml_dtypes adds to numpy. Several bear a numpy kind that .npy files cannot express.
ML_DTYPES: Final = frozenset(
    [
        "bfloat16",
        "float8_e3m4",
        "float8_e4m3",
        "float8_e4m3b11fnuz",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
        "float6_e2m3fn",
        "float6_e3m2fn",
        "float4_e2m1fn",
        "int1",
        "uint1",
        "int2",
        "uint2",
        "int4",
        "uint4",
        "complex32",
        "bcomplex32",
    ]
)
#: The dtypes that numpy has without an extension.
NUMPY_DTYPES: Final = frozenset(
    [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ]
)
#: The dtypes of a byte order, of text and of dates, as numpy writes them.
CODED_DTYPES: Final = re.compile(
    r"[<>=](?:[iu][248]|f[248]|c8|c16|U\d{1,8})|[|<>=]?(?:b1|[iu]1|S\d{1,8})"
    r"|(?:datetime64|timedelta64|[<>=]?[mM]8)(?:\[\d{0,9}(?:Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?"
)


@lru_cache(maxsize=4096)
def dtype_named(name: str) -> np.dtype[Any]:
    """The dtype that a manifest names, numpy's and ml_dtypes' alike.

    Knows full names (``float32``, ``bfloat16``, ``int4``), names with a byte order (``>f4``), text (``<U5``, ``|S3``) and
    dates; nothing else, whatever numpy would make of it.

    Raises:
        SerializationError: The name is unknown, or names objects, records or a platform's long double.

    Example:
        >>> dtype_named(">f4").newbyteorder("=") == dtype_named("float32")
        True
    """
    import numpy as np

    if name in NUMPY_DTYPES or CODED_DTYPES.fullmatch(name):
        found: np.dtype[Any] = np.dtype(name)
        return found
    if name in ML_DTYPES:
        import ml_dtypes

        if (scalar := getattr(ml_dtypes, name, None)) is not None:
            extended: np.dtype[Any] = np.dtype(scalar)
            return extended
    refused = (
        "object",
        "void",
        "float96",
        "float128",
        "complex192",
        "complex256",
        "longdouble",
        "clongdouble",
    )
    why = (
        "it differs between platforms or holds Python objects"
        if name in refused
        else "no such dtype is stored"
    )
    hint = (
        did_you_mean(name, NUMPY_DTYPES | ML_DTYPES)
        if name not in refused
        else "convert the array before saving it"
    )
    raise SerializationError(
        f"expected a dtype that can be stored, got {name[:60]!r}\n{why}", code="NQX411", hint=hint
    )


@lru_cache(maxsize=4096)
def dtype_name(dtype: np.dtype[Any]) -> str:
    """The name of a dtype in a manifest; the byte order stays in it. The inverse of :func:`dtype_named`.

    Raises:
        SerializationError: Arrays of this dtype cannot be stored.
    """
    name = str(dtype)
    if dtype_named(name) != dtype:
        raise SerializationError(
            f"expected a dtype that can be stored, got {name[:60]!r}", code="NQX411"
        )
    return name


def bytes_of(array: np.ndarray[Any, Any]) -> memoryview | bytes:
    """The values as bytes in C order, over which checksums are computed."""
    import numpy as np

    if not array.nbytes:
        return b""
    return np.asarray(array, order="C").reshape(-1).view(np.uint8).data


@lru_cache(maxsize=4096)
def storage_dtype(name: str) -> str:
    """How the bytes of a logical dtype are described in a file that knows only numpy's own: a ``.npy`` descriptor."""
    dtype = dtype_named(name)
    if name in ML_DTYPES:
        return "|u1" if dtype.itemsize == 1 else f"<u{dtype.itemsize}"
    return dtype.str


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


def rounds(source: str, target: str) -> bool:
    """True if a cast changes most numbers with fractions, as the target has fewer bits for them.

    Example:
        >>> rounds("float32", "bfloat16"), rounds("int64", "int8"), rounds("float32", "float64")
        (True, False, False)
    """
    return DTYPES[source].family in {"floating", "complex"} and not promotes(source, target)


def best_dtype(dtypes: Sequence[str], old: Sequence[str]) -> str:
    """The first of some dtypes that holds all values of others; the first of all if none does."""
    return next((new for new in dtypes if all(promotes(each, new) for each in old)), dtypes[0])


#: How many uint32 words a key of each implementation has (jax.random.key_impl, JAX documentation "Random numbers").
KEY_WORDS: Mapping[str, int] = {"threefry2x32": 2, "rbg": 4, "unsafe_rbg": 4}
