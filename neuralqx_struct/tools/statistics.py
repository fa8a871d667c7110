"""Statistics of the values of an array: range, mean, deviation, NaN, zeros and a histogram, computed in pieces.

Example:
    >>> import numpy as np
    >>> found = statistics_of(np.array([1.0, 3.0, np.nan, 0.0]))
    >>> found.minimum, found.maximum, found.nan, found.zeros
    (0.0, 3.0, 1, 1)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from neuralqx_struct.dtypes import DTYPES

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

__all__ = ["ArrayStatistics", "statistics_of"]

_PIECE: Final = 1 << 20  # elements that are looked at at a time
_BINS: Final = 32


@dataclass(frozen=True, slots=True)
class ArrayStatistics:
    """Facts about the elements of one array; of complex ones, about their absolute values.

    Attributes:
        size: Number of elements.
        nan: Number of NaN.
        infinite: Number of infinite elements.
        zeros: Number of zeros.
        minimum: The smallest finite element; None without any.
        maximum: The largest finite element; None without any.
        mean: The mean of the finite elements; None without any.
        deviation: Their standard deviation, with the mean taken as known; None without any.
        counts: Numbers of finite elements in bins of the same width between minimum and maximum.
    """

    size: int
    nan: int = 0
    infinite: int = 0
    zeros: int = 0
    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    deviation: float | None = None
    counts: tuple[int, ...] = ()

    def __str__(self) -> str:
        parts: list[str] = []
        if self.mean is not None:
            parts.append(f"{self.minimum:.4g} to {self.maximum:.4g}")
            parts.append(f"mean {self.mean:.4g} ± {self.deviation:.3g}")
        counted = {"NaN": self.nan, "infinite": self.infinite, "zeros": self.zeros}
        parts += [f"{name}: {count}" for name, count in counted.items() if count]
        return ", ".join(parts)


def statistics_of(array: Array) -> ArrayStatistics | None:
    """The statistics of an array; None if its elements are no numbers.

    Args:
        array: An array of any shape, also a mapped one: at most a million elements are in memory at a time.

    Example:
        >>> import numpy as np
        >>> print(statistics_of(np.arange(5)))
        0 to 4, mean 2 ± 1.41, zeros: 1
    """
    import numpy as np

    if array.dtype.name not in DTYPES:
        return None
    nan = infinite = zeros = count = 0
    mean = squares = 0.0
    low, high = math.inf, -math.inf
    with np.errstate(all="ignore"):
        for piece in _pieces(array):
            nan += int(np.isnan(piece).sum())
            infinite += int(np.isinf(piece).sum())
            zeros += int(piece.size - np.count_nonzero(piece))
            finite = piece[np.isfinite(piece)]
            if not finite.size:
                continue
            low = min(low, float(finite.min()) + 0.0)  # the sum is never -0
            high = max(high, float(finite.max()) + 0.0)
            own, total = float(finite.mean()), count + finite.size
            squares += float(((finite - own) ** 2).sum())
            if count:  # joins the moments of two sets: Chan, Golub and LeVeque, 1979
                apart = own - mean
                squares += apart * apart * (count * finite.size / total)
                own = mean + apart * (finite.size / total)
            mean, count = own, total
    if not count:
        return ArrayStatistics(array.size, nan, infinite, zeros)
    deviation = math.sqrt(squares / count) if math.isfinite(squares) else math.inf
    counts = _histogram(array, low, high)
    return ArrayStatistics(array.size, nan, infinite, zeros, low, high, mean, deviation, counts)


def _pieces(array: Array) -> Iterator[Array]:
    """Yields the elements as float64, in parts of bounded size."""
    import numpy as np

    flat = array.reshape(-1)
    is_complex = DTYPES[array.dtype.name].family == "complex"
    for start in range(0, flat.size, _PIECE):
        piece = flat[start : start + _PIECE]
        yield np.abs(piece.astype("complex128")) if is_complex else piece.astype("float64")


def _histogram(array: Array, low: float, high: float) -> tuple[int, ...]:
    """Counts of the finite elements in bins between two values."""
    import numpy as np

    counts = np.zeros(_BINS, "int64")
    half = high / 2 - low / 2  # halves, as the width of the range may be no float
    for piece in _pieces(array):
        finite = piece[np.isfinite(piece)]
        places = (finite / 2 - low / 2) / half if half else np.zeros(finite.size)
        bins = np.minimum((places * _BINS).astype("int64"), _BINS - 1)
        counts += np.bincount(bins, minlength=_BINS)
    return tuple(counts.tolist())
