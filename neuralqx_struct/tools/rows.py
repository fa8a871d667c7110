"""Rows of an inspection: the record of a node, the table, and the choice of rows that fit on a screen.

Example:
    >>> rows = [Row("$", 0, "list of 2"), Row("$[0]", 1, "float32[3]", nbytes=12), Row("$[1]", 1, "int", "5")]
    >>> for line in lines_of(folded(rows, 0, foreign=False)):
    ...     print(line.strip())
    $  list of 2, 2 below  12 B
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from neuralqx_struct.formats import joined, split
from neuralqx_struct.tools.statistics import ArrayStatistics

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


def lines_of(rows: Iterable[Row]) -> list[str]:
    """The lines of a table of rows."""
    cells = [*cells_of(rows)]
    widths = [max((len(each[column]) for each in cells), default=0) for column in range(4)]
    lines = []
    for path, text, size, tags, found in cells:
        line = f"  {path:<{widths[0]}}  {text:<{widths[1]}}  {size:>{widths[2]}}"
        more = f"  {tags:<{widths[3]}}" if widths[3] else ""
        lines.append(f"{line}{more}  {found}".rstrip())
    return lines


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
