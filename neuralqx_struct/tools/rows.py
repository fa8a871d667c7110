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
from neuralqx_struct.printing import columns, padded

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
        integer: True for integers and bools.
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
    integer: bool = False

    def plus(self, other: ArrayStatistics) -> ArrayStatistics:
        """The facts about the elements of both, without a histogram; those of the floats if one has integers.

        Source of the joined moments: Chan, Golub and LeVeque, 1979.
        """
        if self.integer != other.integer:  # counters, masks and bits of keys are no part of a mean
            return replace(other if self.integer else self, counts=())
        facts = other if self.mean is None else self
        if self.mean is not None and other.mean is not None:
            own, more = (each.size - each.nan - each.infinite for each in (self, other))
            total, apart = own + more, other.mean - self.mean
            mean = self.mean + apart * (more / total)
            if not math.isfinite(apart):
                mean = self.mean * (own / total) + other.mean * (more / total)
            widths = (self.deviation or 0.0, other.deviation or 0.0, apart)
            shares = (own / total, more / total, own / total * (more / total))
            square = sum(width * width * share for width, share in zip(widths, shares, strict=True))
            facts = replace(
                self,
                minimum=min(each.minimum or 0.0 for each in (self, other)),
                maximum=max(each.maximum or 0.0 for each in (self, other)),
                mean=mean,
                deviation=math.sqrt(square),
            )
        return replace(
            facts,
            size=self.size + other.size,
            nan=self.nan + other.nan,
            infinite=self.infinite + other.infinite,
            zeros=self.zeros + other.zeros,
            counts=(),
        )

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
    integer = DTYPES[array.dtype.name].family not in ("floating", "complex")
    found = ArrayStatistics(0, integer=integer)
    with np.errstate(all="ignore"):
        for piece in _pieces(array):
            found = found.plus(replace(_of_piece(piece), integer=integer))
    if found.minimum is None or found.maximum is None:
        return found
    return replace(found, counts=_histogram(array, found.minimum, found.maximum))


def _of_piece(piece: Array) -> ArrayStatistics:
    """The statistics of some elements, without a histogram."""
    import numpy as np

    nan, infinite = int(np.isnan(piece).sum()), int(np.isinf(piece).sum())
    zeros = int(piece.size - np.count_nonzero(piece))
    finite = piece[np.isfinite(piece)]
    if not finite.size:
        return ArrayStatistics(piece.size, nan, infinite, zeros)
    low, high = float(finite.min()) + 0.0, float(finite.max()) + 0.0  # the sum is never -0
    mean = float(finite.mean())
    deviation = math.sqrt(float(((finite - mean) ** 2).mean()))
    return ArrayStatistics(piece.size, nan, infinite, zeros, low, high, mean, deviation)


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
NARROW: Final = 80  # columns that every terminal has
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

    def plus(self, other: Row) -> Row:
        """The row with the size and the statistics of one in it."""
        known = [each.statistics for each in (self, other) if each.statistics is not None]
        found = known[0].plus(known[1]) if len(known) > 1 else next(iter(known), None)
        return replace(self, nbytes=self.nbytes + other.nbytes, statistics=found)


def places_around(rows: Sequence[Row]) -> list[int]:
    """The place of the row around each; -1 for a row in no other.

    Example:
        >>> places_around([Row("$", 0, "A"), Row("$.layers", 1, "list of 1"), Row("$.layers[0]", 2, "int")])
        [-1, 0, 1]
    """
    found: list[int] = []
    around = [-1]
    for place, row in enumerate(rows):
        while around[-1] >= 0 and not _is_below(row.path, rows[around[-1]].path):
            around.pop()
        found.append(around[-1])
        around.append(place)
    return found


def with_content(rows: Iterable[Row], around: Sequence[int]) -> list[Row]:
    """The rows, each with the size and the statistics of all that is in it."""
    made = [*rows]
    for place in reversed(range(len(made))):
        if around[place] >= 0:
            made[around[place]] = made[around[place]].plus(made[place])
    return made


def cells_of(rows: Iterable[Row]) -> Iterator[tuple[str, str, str, str, str]]:
    """Yields path, type and value, size, tags and statistics of each row, as text."""
    for row in rows:
        size = size_text(row.nbytes) if row.nbytes else ""
        found = "" if row.statistics is None else str(row.statistics)
        yield row.path, row.description, size, ", ".join(row.tags), found


def lines_of(rows: Iterable[Row], *, whole: bool = True, width: int = NARROW) -> list[str]:
    """The lines of a table of rows, with statistics on lines of their own where they do not fit beside the others.

    Args:
        rows: The rows.
        whole: False to cut long cells in the middle, so that each line fits.
        width: Columns of the terminal.
    """
    cells = [[*map(printable, each)] for each in cells_of(rows)]
    widest = [max((columns(each[place]) for each in cells), default=0) for place in range(5)]
    widths = [min(each, _WIDEST) for each in widest[:4]]
    # Two columns in front of each cell; path, type and size always have theirs.
    over = sum(widths) + 2 * (3 + bool(widths[3])) - width
    if not whole:
        for _ in range(over):
            widths[max(0, 1, 3, key=widths.__getitem__)] -= 1
    below = over + widest[4] + 2 > 0
    lines: list[str] = []
    for *four, found in cells:
        path, text, size, tags = four if whole else map(shortened, four, widths)
        line = f"  {padded(path, widths[0])}  {padded(text, widths[1])}  {size:>{widths[2]}}"
        line += f"  {padded(tags, widths[3])}" if widths[3] else ""
        lines.append((line if below else f"{line}  {found}").rstrip())
        if below and found:
            lines.append(f"      {found}")
    return lines


def shortened(text: str, most: int = _WIDEST) -> str:
    """A text as one line that fits into a column of a table.

    Example:
        >>> shortened("encoder.layers.0.weight", 12)
        'enc...weight'
    """
    text = printable(text)
    if columns(text) <= most:
        return text
    first, last = text[: most // 2 - 3], text[-(most // 2) :]
    while columns(first) > most // 2 - 3:
        first = first[:-1]
    while columns(last) > most // 2:
        last = last[1:]
    return f"{first}...{last}"


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
    """The rows down to a depth; each that holds more has their number, size and statistics.

    Args:
        rows: The rows from top to bottom.
        depth: The depth.
        foreign: True for the names of a foreign file, which have no rows for what is around them.
    """
    shown: list[Row] = []
    below: Counter[int] = Counter()
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
        shown[holder] = shown[holder].plus(row)
    for place, count in below.items():
        shown[place] = replace(shown[place], type=f"{shown[place].type}, {count} below")
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
