"""Pages of reports and their sections: content, sizes, dims, damage, declarations, history of versions, differences.

The policy in a page lets it load nothing.

Example:
    >>> page("a < b", "", [Section("First part", "text")]).count('id="first-part"')
    1
    >>> from neuralqx_struct.schema.series import load_series
    >>> [section.title for section in declarations(load_series("schemas/vmc_state").head)][:2]
    ['Dims', 'Structs']
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from typing import Any, Final

from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.evolution.changes import Change
from neuralqx_struct.evolution.diff import diff
from neuralqx_struct.evolution.steps import step_text
from neuralqx_struct.pages.charts import areas, bars
from neuralqx_struct.printing import brief, escaped, items, table, tag
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.series import Series
from neuralqx_struct.tools.inspection import Inspection
from neuralqx_struct.tools.rows import ArrayStatistics, Row, places_around, size_text, with_content
from neuralqx_struct.tools.value_differences import ComparedLeaf, ValueDifferences

_PLACE: Final = files(__package__)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page.

    Attributes:
        title: Its heading.
        content: Its HTML.
    """

    title: str
    content: str

    @property
    def anchor(self) -> str:
        """The name that links use."""
        return self.title.lower().replace(" ", "-")


def page(title: str, lead: str, sections: Iterable[Section]) -> str:
    """The document.

    Args:
        title: Its title, as text.
        lead: HTML below the title.
        sections: Its parts, which the navigation lists.
    """
    parts = [*sections]
    style = _PLACE.joinpath("page.css").read_text(encoding="utf-8")
    script = _PLACE.joinpath("page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    links = "".join(tag("a", escaped(each.title), href=f"#{each.anchor}") for each in parts)
    body = "".join(
        tag("section", tag("h2", escaped(each.title)) + each.content, id=each.anchor)
        for each in parts
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escaped(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escaped(title)}</title><style>{style}</style></head>\n"
        f"<body><header><h1>{escaped(title)}</h1>{lead}<nav>{links}</nav></header>\n"
        f"<main>{body}</main>\n<script>{script}</script></body></html>\n"
    )


_MOST_ROWS: Final = 20_000  # browsers take seconds for more


def facts(given: Mapping[str, object]) -> str:
    """Short facts side by side."""
    cells = (
        tag("div", tag("b", escaped(value)) + tag("span", escaped(name)), class_="fact")
        for name, value in given.items()
    )
    return tag("div", "".join(cells), class_="facts")


def soft(line: str) -> str:
    """A remark."""
    return tag("p", escaped(line), class_="soft")


# Checkpoints


def content(record: Inspection) -> Iterator[Section]:
    """The sizes of the arrays, and all nodes with the statistics of their values."""
    drawn = areas(record.rows)
    if drawn:
        yield Section("Sizes", drawn)
    search = '<input type="search" placeholder="Filter by path" aria-label="Filter by path">'
    head = ("path", "type", "size", "tags", "range", "mean ± deviation", "remarks", "values")
    rows = table(head, islice(_tree(record.rows), _MOST_ROWS))
    left = len(record.rows) - _MOST_ROWS
    more = (
        soft(f"{left} more nodes are not listed; inspect --filter shows them") if left > 0 else ""
    )
    yield Section("Content", search + rows + more)


def _tree(rows: Sequence[Row]) -> Iterator[list[str]]:
    """Yields the cells of each row, under the name that it has in the one around it."""
    around = places_around(rows)
    depths: list[int] = []
    for row, place in zip(with_content(rows, around), around, strict=True):
        depths.append(depths[place] + 1 if place >= 0 else 0)
        style = f"--depth:{depths[-1]}" if depths[-1] else None
        name = row.path[len(rows[place].path) if place >= 0 else 0 :]
        yield [tag("span", escaped(name), title=row.path, style=style), *_cells(row)]


def _cells(row: Row) -> list[str]:
    size = size_text(row.nbytes) if row.nbytes else ""
    found = row.statistics or ArrayStatistics(0)
    return [
        escaped(row.description),
        size,
        escaped(", ".join(row.tags)),
        "" if found.mean is None else f"{found.minimum:.4g} … {found.maximum:.4g}",
        "" if found.mean is None else f"{found.mean:.4g} ± {found.deviation:.3g}",
        _remarks(found),
        bars(found.counts),
    ]


def _remarks(found: ArrayStatistics) -> str:
    parts = []
    for count, name, kind in (
        (found.nan, "NaN", "error"),
        (found.infinite, "infinite", "error"),
        (found.zeros, "zeros", "soft"),
    ):
        if count:
            parts.append(tag("span", f"{name} {count / found.size:.3%}", class_=kind))
    return ", ".join(parts)


def findings(title: str, found: Sequence[Diagnostic], good: str) -> Section:
    """Findings about an input, or a line that there are none."""
    if not found:
        return Section(title, tag("p", escaped(good), class_="good"))
    return Section(title, items(_finding(each) for each in found))


def _finding(found: Diagnostic) -> str:
    where = tag("code", escaped(found.path)) + " " if found.path else ""
    lines = found.message.split("\n")
    more = "".join(
        tag("p", escaped(line), class_="soft") for line in (*lines[1:], found.hint) if line
    )
    return f"{where}{tag('span', escaped(lines[0]), class_=found.severity)} [{escaped(found.code)}]{more}"


# Schemas


def declarations(document: Document, sizes: Mapping[str, int] | None = None) -> Iterator[Section]:
    """The dims and structs of a version; with the sizes that a payload has."""
    if document.dims:
        head = ("dim", "equals", "least", "most", *(("size",) if sizes else ()), "meaning")
        yield Section("Dims", table(head, _dims(document, sizes)))
    tables = (
        tag("h3", escaped(name))
        + (tag("p", escaped(struct.doc)) if struct.doc else "")
        + table(
            ("field", "type", "kind", "default", "unit", "tags", "meaning"), _fields(struct.fields)
        )
        + items(tag("code", escaped(each.expression.text)) for each in struct.constraints)
        for name, struct in document.structs.items()
    )
    enums = (
        tag("h3", escaped(name)) + tag("p", escaped(", ".join(enum.members)))
        for name, enum in document.enums.items()
    )
    yield Section("Structs", "".join((*tables, *enums)))


def _dims(document: Document, sizes: Mapping[str, int] | None) -> Iterator[list[str]]:
    for name, dim in document.dims.items():
        least, most = ("" if each is None else str(each) for each in (dim.min, dim.max))
        equals = "" if dim.equals is None else escaped(dim.equals)
        own = [str(sizes.get(name, ""))] if sizes else []
        yield [escaped(name), equals, least, most, *own, escaped(dim.doc)]


def _fields(fields: Mapping[str, FieldDeclaration]) -> Iterator[list[str]]:
    for name, field in fields.items():
        default = escaped(brief(field.default)) if field.has_default else ""
        derived = f"= {escaped(field.derived)}" if field.derived is not None else ""
        yield [
            escaped(name),
            escaped(field.text) or derived,
            escaped(field.kind),
            default,
            escaped(field.unit or ""),
            escaped(", ".join(field.tags)),
            tag("span", escaped(field.doc), class_="long"),
        ]


def versions(series: Series, now: int | None = None) -> Section:
    """The versions of a schema, each with its steps and the changes from the one before it.

    Args:
        series: The schema.
        now: The version that a payload has.
    """
    parts: list[str] = []
    before: Document | None = None
    for version, document in series.documents.items():
        mark = " (this checkpoint)" if version == now else ""
        part = tag("h3", escaped(f"Version {version}{mark}"))
        if document.doc:
            part += tag("p", escaped(document.doc))
        if before is not None:
            part += _hop(before, document)
        parts.append(part)
        before = document
    return Section("Versions", "".join(reversed(parts)))


def _hop(before: Document, document: Document) -> str:
    migration = document.migration_from(before.version)
    steps = "\n".join(step_text(item.step) for item in migration.steps) if migration else ""
    return (tag("pre", text_lines(steps)) if steps else "") + changes(diff(before, document))


def text_lines(lines: str) -> str:
    """Several lines of text as HTML."""
    return "\n".join(map(escaped, lines.split("\n")))


def changes(found: Iterable[Change]) -> str:
    """Changes between two versions."""
    lines = [
        f"{tag('code', escaped(each.path))} {tag('span', escaped(each.message), class_=each.severity)} [{each.code}]"
        for each in found
    ]
    return items(lines) if lines else soft("no changes")


# Two checkpoints


def differences(found: ValueDifferences) -> Section:
    """The leaves of two checkpoints that differ."""
    apart = found.apart
    said = [*(each.message.partition("\n")[0] for each in found.brought), found.summary]
    line = "".join(tag("p", escaped(each)) for each in said)
    if not apart:
        return Section("Values", line)
    head = ("path", "state", "first", "second", "elements", "largest", "relative", "NaN")
    search = '<input type="search" placeholder="Filter by path" aria-label="Filter by path">'
    return Section("Values", line + search + table(head, map(_leaf, apart[:_MOST_ROWS])))


def _leaf(leaf: ComparedLeaf) -> list[str]:
    kind = "warning" if leaf.state == "changed" else "error"
    share = f"{leaf.different / leaf.size:.3%}" if leaf.different and leaf.size else ""
    nan = f"{leaf.old_nan}, now {leaf.new_nan}" if leaf.old_nan or leaf.new_nan else ""
    return [
        escaped(leaf.path),
        tag("span", leaf.state, class_=kind),
        escaped(leaf.old or ""),
        escaped(leaf.new or ""),
        share,
        _number(leaf.absolute),
        _number(leaf.relative),
        nan,
    ]


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.4g}"
