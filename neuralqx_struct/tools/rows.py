"""Rows of an inspection: nodes with the statistics of their values, the table, and the rows that fit on a screen.

Example:
    >>> import numpy as np
    >>> found = statistics_of(np.array([1.0, 3.0, np.nan, 0.0]))
    >>> found.minimum, found.maximum, found.nan, found.zeros
    (0.0, 3.0, 1, 1)
    >>> rows = [Row("$", 0, "list of 2"), Row("$[0]", 1, "float32[3]", nbytes=12), Row("$[1]", 1, "int", "5")]
    >>> for line in lines_of(folded(rows, 0, foreign=False)):
    ...     print(line.strip())
    $  list of 2, 2 below  12 B
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from neuralqx_struct.dtypes import DTYPES
from neuralqx_struct.errors import printable
from neuralqx_struct.formats import joined, split

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


_WIDEST: Final = 100  # columns of a cell beside which others are aligned
_LAST: Final = 5  # rows at the end of a list that is cut


@dataclass(frozen=True, slots=True)
class Row:
    """One node of the tree.

    Attributes:
        path: Its key path, such as ``$.params['w']``; in a foreign file its name there.
        depth: Number of nodes around it.
        type: Its type, such as ``complex64[12, 48]``, ``int`` or ``VMCState``.
        value: Text of its value, for scalars.
        nbytes: Size of its array; 0 for everything else.
        tags: Tags of its field in the schema, and of its Param.
        kind: ``node``, ``static`` or ``opaque`` if a schema declares it, else empty.
        statistics: Facts about the values of its array, where they were asked for.
    """

    path: str
    depth: int
    type: str
    value: str = ""
    nbytes: int = 0
    tags: tuple[str, ...] = ()
    kind: str = ""
    statistics: ArrayStatistics | None = None

    @property
    def description(self) -> str:
        """The type with the value and the kind."""
        text = f"{self.type} = {self.value}" if self.value else self.type
        return f"{text} ({self.kind})" if self.kind not in ("", "node") else text


def short_names(rows: Iterable[Row]) -> list[str]:
    """The part of each path that the row around it does not have.

    Example:
        >>> short_names([Row("$", 0, "A"), Row("$.layers", 1, "list of 1"), Row("$.layers[0]", 2, "int")])
        ['$', '.layers', '[0]']
    """
    found: list[str] = []
    around: list[Row] = []
    for row in rows:
        while around and not _is_below(row.path, around[-1].path):
            around.pop()
        found.append(row.path[len(around[-1].path) :] if around else row.path)
        around.append(row)
    return found


def cells_of(rows: Iterable[Row]) -> Iterator[tuple[str, str, str, str, str]]:
    """Yields path, type and value, size, tags and statistics of each row, as text."""
    for row in rows:
        size = size_text(row.nbytes) if row.nbytes else ""
        found = "" if row.statistics is None else str(row.statistics)
        yield row.path, row.description, size, ", ".join(row.tags), found


def lines_of(rows: Iterable[Row], *, whole: bool = True) -> list[str]:
    """The lines of a table of rows; unless they are wanted whole, long cells are cut in the middle."""
    shown = printable if whole else shortened
    cells = [[*map(shown, each)] for each in cells_of(rows)]
    widths = [
        min(max((len(each[column]) for each in cells), default=0), _WIDEST) for column in range(4)
    ]
    lines = []
    for path, text, size, tags, found in cells:
        line = f"  {path:<{widths[0]}}  {text:<{widths[1]}}  {size:>{widths[2]}}"
        more = f"  {tags:<{widths[3]}}" if widths[3] else ""
        lines.append(f"{line}{more}  {found}".rstrip())
    return lines


def shortened(text: str) -> str:
    """A text as one line that fits into a column of a table."""
    text = printable(text)
    half = _WIDEST // 2
    return text if len(text) <= _WIDEST else f"{text[: half - 3]}...{text[-half:]}"


def size_text(nbytes: int) -> str:
    """A number of bytes in the largest fitting unit.

    Example:
        >>> size_text(512), size_text(3 * 2**20)
        ('512 B', '3.0 MiB')
    """
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{nbytes} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


# Folding


def depth_within(rows: Sequence[Row], most: int, *, foreign: bool) -> int:
    """The greatest depth at which at most a number of rows are shown; 1 if there is none."""
    ending = Counter(row.depth for row in rows)
    at = ending
    if foreign:
        names = (split(row.path) for row in rows)
        prefixes = {tuple(keys[:depth]) for keys in names for depth in range(1, len(keys) + 1)}
        at = Counter(map(len, prefixes))
    depth, above = 1, 0
    for each in sorted(at):
        if above + at[each] > most:
            break
        depth = max(each, 1)
        above += ending[each]
    return depth


def folded(rows: Iterable[Row], depth: int, *, foreign: bool) -> list[Row]:
    """The rows down to a depth; each that holds more has their number and size.

    Args:
        rows: The rows from top to bottom.
        depth: The depth.
        foreign: True for the names of a foreign file, which have no rows for what is around them.
    """
    shown: list[Row] = []
    below: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    groups: dict[str, int] = {}  # a name can be that of an array, and of what is around others
    holder = -1
    for row in rows:
        if row.depth > depth and foreign:
            prefix = joined(split(row.path)[:depth])
            if prefix not in groups:
                groups[prefix] = len(shown)
                shown.append(Row(prefix, depth, "names"))
            holder = groups[prefix]
        elif row.depth <= depth or not _inside(row, shown, holder):
            holder = groups[row.path] = len(shown)
            shown.append(row)
            continue
        below[holder] += 1
        sizes[holder] += row.nbytes
    for place, count in below.items():
        row = shown[place]
        shown[place] = replace(
            row, type=f"{row.type}, {count} below", nbytes=row.nbytes + sizes[place]
        )
    return shown


def _inside(row: Row, shown: Sequence[Row], holder: int) -> bool:
    """True if a row is below the last one that is shown; of those that a filter chose, none is."""
    if holder < 0:
        return False
    return _is_below(row.path, shown[holder].path)


def _is_below(path: str, around: str) -> bool:
    """True for the path of a node inside another."""
    return path.startswith(around) and path[len(around) :][:1] in (".", "[")


def cut(rows: Sequence[Row], most: int) -> list[Row]:
    """The first and the last rows, if there are more than a number."""
    if len(rows) <= most:
        return [*rows]
    first = max(most - _LAST - 1, 1)
    left = len(rows) - first - _LAST
    return [*rows[:first], Row("...", 0, f"{left} more"), *rows[-_LAST:]]
