"""Charts: bars of a histogram, and areas of a tree of sizes.

Example:
    >>> bars((1, 2)).count("<path")
    1
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isqrt
from typing import Final, NamedTuple

from neuralqx_struct.printing import escaped, tag
from neuralqx_struct.tools.rows import Row, size_text

_WIDTH: Final = 1000  # pixels of a wide window
_HEIGHT: Final = 420
_SMALLEST: Final = 60  # square units of an area that is divided further
_COLOURS: Final = (
    "#4464ad",
    "#2f7f6f",
    "#8a5a2b",
    "#8d4a8f",
    "#a23b4a",
    "#5c7a29",
    "#3d6f8e",
    "#6a5acd",
)


def bars(counts: Sequence[int]) -> str:
    """A histogram as bars, the highest of which fills the height; empty without counts."""
    if not counts:
        return ""
    most = max(counts)
    # Square roots keep rare values visible.
    heights = [isqrt(1_000_000 * count // most) / 1000 for count in counts]
    path = "".join(
        f"M{at} 1v-{height:.3g}h.9v{height:.3g}z" for at, height in enumerate(heights) if height
    )
    box = f"0 0 {len(counts)} 1"
    return tag("svg", f'<path d="{path}"/>', class_="bars", viewBox=box, preserveAspectRatio="none")


# Areas


@dataclass(slots=True)
class _Node:
    """A name with its size, and the parts of it."""

    path: str
    size: int = 0
    parts: list[_Node] = field(default_factory=list)


class _Area(NamedTuple):
    x: float
    y: float
    width: float
    height: float


def areas(rows: Iterable[Row]) -> str:
    """A treemap: the sizes of arrays as areas, those of one node beside each other; empty without sizes.

    Source of the division: Bruls, Huizing and van Wijk, Squarified Treemaps, 2000.

    Args:
        rows: The nodes from top to bottom, with their depths.
    """
    root = _tree(rows)
    if not root.size:
        return ""
    colours = {id(part): _COLOURS[at % len(_COLOURS)] for at, part in enumerate(_groups(root))}
    drawn = (_drawn(*each) for each in _leaves(root, _Area(0, 0, _WIDTH, _HEIGHT), colours))
    label = f"sizes of arrays, {size_text(root.size)} in all"
    return tag("div", "".join(drawn), class_="areas", role="img", aria_label=label)


def _tree(rows: Iterable[Row]) -> _Node:
    root = _Node("")
    around = [(-1, root)]
    for row in rows:
        while around[-1][0] >= row.depth:
            around.pop()
        node = _Node(row.path)
        around[-1][1].parts.append(node)
        around.append((row.depth, node))
        for _, each in around:
            each.size += row.nbytes
    return root


def _groups(root: _Node) -> list[_Node]:
    """The nodes that get colours: the parts of the tree, of which one with more than half of it is divided further."""
    found = [root]
    while found[0].parts and found[0].size * 2 > root.size:
        found = sorted((*found[1:], *found[0].parts), key=lambda part: -part.size)
    return found


def _leaves(
    root: _Node, area: _Area, colours: Mapping[int, str]
) -> Iterator[tuple[_Node, _Area, str]]:
    """Yields the areas that are drawn: those of nodes without parts, and those too small to divide."""
    todo = [(root, area, _COLOURS[0])]
    while todo:
        each, inside, outer = todo.pop()
        colour = colours.get(id(each), outer)
        whole = not any(part.size for part in each.parts)
        if whole or inside.width * inside.height < _SMALLEST:
            yield each, inside, colour
        else:
            todo += ((part, place, colour) for part, place in _divided(each, inside))


def _divided(node: _Node, area: _Area) -> Iterator[tuple[_Node, _Area]]:
    """Yields the parts of a node with their areas: strips along the shorter side, of parts as square as possible."""
    parts = sorted((part for part in node.parts if part.size), key=lambda part: -part.size)
    if not parts:
        yield node, area
        return
    scale = area.width * area.height / sum(part.size for part in parts)
    strip: list[_Node] = []
    total = 0.0
    for part in parts:
        side = min(area.width, area.height)
        longer = total + part.size * scale
        if strip and _worst(strip, scale, total, side) < _worst(
            [*strip[-1:], part], scale, longer, side, strip[0]
        ):
            yield from _strip(strip, scale, total, area)
            area = _rest(area, total)
            strip, longer = [], part.size * scale
        strip.append(part)
        total = longer
    yield from _strip(strip, scale, total, area)


def _worst(
    strip: Sequence[_Node], scale: float, total: float, side: float, first: _Node | None = None
) -> float:
    """The largest ratio of the sides of the areas in a strip; parts are sorted by size."""
    largest = (first or strip[0]).size * scale
    smallest = strip[-1].size * scale
    square = (total / side) ** 2 if side else 1.0
    return max(square and largest / square, square / smallest)


def _strip(
    strip: Sequence[_Node], scale: float, total: float, area: _Area
) -> Iterator[tuple[_Node, _Area]]:
    upright = area.width >= area.height
    thick = total / (area.height if upright else area.width)
    at = 0.0
    for part in strip:
        long = part.size * scale / thick if thick else 0.0
        if upright:
            yield part, _Area(area.x, area.y + at, thick, long)
        else:
            yield part, _Area(area.x + at, area.y, long, thick)
        at += long


def _rest(area: _Area, total: float) -> _Area:
    """The area beside a strip."""
    if area.width >= area.height:
        thick = total / area.height
        return _Area(area.x + thick, area.y, max(area.width - thick, 0.0), area.height)
    thick = total / area.width
    return _Area(area.x, area.y + thick, area.width, max(area.height - thick, 0.0))


def _drawn(node: _Node, area: _Area, colour: str) -> str:
    """An element in shares of the picture, which is as wide as the window; with its name if that may have room."""
    shares = {
        "left": area.x / _WIDTH,
        "top": area.y / _HEIGHT,
        "width": area.width / _WIDTH,
        "height": area.height / _HEIGHT,
    }
    style = ";".join(f"{name}:{share:.3%}" for name, share in shares.items())
    room = area.width > 30 and area.height > 16
    return tag(
        "div",
        tag("bdi", escaped(node.path)) if room else "",
        title=f"{node.path}  {size_text(node.size)}",
        style=f"{style};background:{colour}",
    )
