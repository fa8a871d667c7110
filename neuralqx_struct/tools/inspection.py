"""Inspection of bundles and foreign files: their content as a table, with tags and kinds of the schema of a bundle.

Needs no JAX, for bundles no numpy either, and reads no array.

Example:
    >>> from neuralqx_struct import bundle
    >>> from neuralqx_struct.manifest.payload import Payload
    >>> import tempfile
    >>> path = bundle.write(f"{tempfile.mkdtemp()}/ckpt", Payload({"version": 1, "manifest": 5, "arrays": {}}, {}))
    >>> inspect(path).rows[0].type
    'int'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

from neuralqx_struct import bundle
from neuralqx_struct.dtypes import DTYPES, dtype_named
from neuralqx_struct.errors import Diagnostic, StructError, has_errors, printable
from neuralqx_struct.formats import (
    FORMATS,
    ForeignArray,
    ForeignFile,
    is_foreign,
    opened,
    split,
)
from neuralqx_struct.manifest import Limits
from neuralqx_struct.manifest.kinds import ArrayType, kind_of, show
from neuralqx_struct.paths import FieldName, format_path
from neuralqx_struct.places.urls import Options, Place, place_of
from neuralqx_struct.printing import brief, brief_array, brief_scalar, escaped, notebook_table
from neuralqx_struct.tools.leaves import (
    Leaf,
    foreign_name,
    leaves_in,
    leaves_of,
    nodes_with_declarations,
)
from neuralqx_struct.tools.rows import (
    NARROW,
    Row,
    cells_of,
    cut,
    depth_within,
    folded,
    lines_of,
    shortened,
    size_text,
)

if TYPE_CHECKING:
    from neuralqx_struct.filters.partition import Selection
    from neuralqx_struct.tools.rows import ArrayStatistics

__all__ = ["Inspection", "Row", "inspect"]

_MOST_SHOWN = 1000  # rows in a notebook
_MOST_METADATA = 4  # lines of a table with some rows left out
_MOST_CHARACTERS = 50_000_000  # of all paths


@dataclass(frozen=True, slots=True)
class Inspection:
    """Content of a bundle or a foreign file; ``str()`` is a table.

    Attributes:
        file: The path.
        version: Of the payload format; None for foreign files.
        schema: Identity, version and fingerprint; None for plain Python objects.
        writer: The program that wrote it; None for neuraLQX's own bundles.
        metadata: Metadata of the user, or of the foreign file.
        rows: The nodes from top to bottom: all of them, or the leaves that a filter chose.
        arrays: Number of different arrays in ``rows``.
        nbytes: Their size; an array in several places counts once.
        omitted: Number of nodes that are not listed, because the paths of the others are very long.
        format: The kind of a foreign file, such as ``safetensors``; None for bundles.
    """

    file: str
    version: int | None
    schema: Mapping[str, Any] | None
    writer: Mapping[str, Any] | None
    metadata: Mapping[str, Any]
    rows: tuple[Row, ...]
    arrays: int
    nbytes: int
    omitted: int = 0
    format: str | None = None

    def __str__(self) -> str:
        return self.outline()

    def outline(
        self, depth: int | None = None, most: int | None = None, width: int = NARROW
    ) -> str:
        """The table with some rows left out.

        Args:
            depth: Nodes with more nodes than this around them are counted in the row of the one that holds them.
            most: A number of rows that the table shall have: the depth is the greatest that fits, and of more rows than
                that the first and the last are shown, with long cells cut. Rows that a filter chose are not folded.
            width: Columns that a line shall have; with ``most``, no line of the table has more.

        Example:
            >>> print(inspect("tests/golden/format-1/vmc_state_1").outline(depth=0).splitlines()[-1])
            18 nodes, 9 arrays, 296 B; down to depth 0
        """
        rows, foreign, note = self.rows, self.format is not None, ""
        metadata = [
            f"metadata {shortened(key)}: {brief(value)}" for key, value in self.metadata.items()
        ]
        if most is not None and depth is None and len(rows) > most:
            depth = depth_within(rows, most, foreign=foreign)
        if depth is not None:
            rows = (*folded(rows, depth, foreign=foreign),)
            note = f"; down to depth {depth}" if len(rows) < len(self.rows) else ""
        if most is not None and len(rows) > most:
            rows = (*cut(rows, most),)
            note = note or f"; {most} rows of them"
        lines = [f"{self.file}: {self._origin()}"]
        if self.schema is not None:
            known = {**self.schema, "fingerprint": f"{self.schema['fingerprint'][:19]}..."}
            lines.append("schema {id} version {version} ({fingerprint})".format(**known))
        if most is not None and len(metadata) > _MOST_METADATA:
            left = len(metadata) - _MOST_METADATA + 1
            metadata[_MOST_METADATA - 1 :] = [f"metadata: {left} more"]
        lines += metadata
        lines += lines_of(rows, whole=most is None, width=width)
        more = f" (and {self.omitted} that are not listed)" if self.omitted else ""
        total = f"{len(self.rows)} nodes{more}, {self.arrays} arrays, {size_text(self.nbytes)}"
        lines.append(f"{total}{note}")
        return "\n".join(map(printable, lines))

    def _repr_html_(self) -> str:
        head = ("path", "type", "size", "tags", "values")
        cells = ([escaped(cell) for cell in row] for row in cells_of(self.rows[:_MOST_SHOWN]))
        left = len(self.rows) - _MOST_SHOWN
        more = f"; {left} more rows" if left > 0 else ""
        return notebook_table(head, cells, f"{self.file}: {self._origin()}{more}")

    def _origin(self) -> str:
        if self.format is not None:
            return FORMATS[self.format].title
        if self.writer is None:
            return f"format {self.version}, written by a neuraLQX bundle"
        return "format {0}, written by {name} {version}".format(self.version, **self.writer)

    def to_json(self) -> dict[str, Any]:
        """The record as plain JSON values."""
        return asdict(self)


@bundle.read_again
def inspect(
    path: str | Place,
    filter: Any = None,  # noqa: A002
    *,
    report: list[Diagnostic] | None = None,
    limits: Limits | None = None,
    storage_options: Options | None = None,
    stats: bool = False,
) -> Inspection:
    """The content of a bundle or a foreign file; reads no array unless statistics are asked for.

    Args:
        path: A bundle (folder or zip), a ``manifest.json``, or a file of another program such as ``model.safetensors``.
        filter: The leaves to show: the text of a filter such as ``tag:trainable & !path:**/bias``, or any filter.
        report: A list to which parts of the filter that match no leaf are added, and arrays that cannot be read.
        limits: Sizes above which it is refused.
        storage_options: Options of fsspec for a URL, such as keys.
        stats: Reads every array that is shown, one at a time, for the statistics of its values.

    Raises:
        SerializationError: There is nothing (then also a FileNotFoundError), or it cannot be read.
        FilterError: The filter cannot be read, or matches no leaf.

    Example:
        >>> [row.path for row in inspect("tests/golden/format-1/vmc_state_1", "dtype:floating").rows][-1]
        '$.E_hist'
    """
    chosen = None if filter is None else _selection(filter)
    path = place_of(path, storage_options)
    if is_foreign(path):
        with opened(path, limits=limits) as file:
            record = _foreign(path, file, chosen, report)
            return _with_statistics(record, leaves_in(file), report) if stats else record
    if not stats:
        return _bundle(path, bundle.read_manifest(path, limits=limits), chosen, report)
    path = bundle.around(path)
    with bundle.kept(path, limits), leaves_of(path, limits) as leaves:
        document = bundle.read_manifest(path, limits=limits)
        return _with_statistics(_bundle(path, document, chosen, report), leaves, report)


def _bundle(
    path: Place,
    document: dict[str, Any],
    chosen: Selection | None,
    report: list[Diagnostic] | None,
) -> Inspection:
    """The content of a bundle."""
    rows: list[Row] = []
    sizes: dict[str, int] = {}
    characters = omitted = 0
    for here, node in nodes_with_declarations(document):
        text, value, array, name = show(node)
        if chosen is not None:
            kind = kind_of(node)
            is_leaf = kind is None or kind.leaf
            if not is_leaf or not chosen(here, array or node):
                continue
        if characters > _MOST_CHARACTERS:
            omitted += 1
            continue
        row = Row(format_path(here), len(here), text, value)
        characters += len(row.path)
        if name and array:
            sizes[name] = _nbytes(document["arrays"].get(name, {}), array)
            row = replace(row, nbytes=sizes[name])
        if here and isinstance(here[-1], FieldName) and here[-1].spec is not None:
            spec = here[-1].spec
            row = replace(row, tags=tuple(sorted(spec.tags)), kind=str(spec.kind))
        rows.append(row)
    if chosen is not None:
        _report_unmatched(chosen, str(path), report, declared="schemas" in document)
    return Inspection(
        file=str(path),
        version=document["version"],
        schema=document.get("schema"),
        writer=document.get("writer"),
        metadata=document.get("metadata", {}),
        rows=tuple(rows),
        arrays=len(sizes),
        nbytes=sum(sizes.values()),
        omitted=omitted,
    )


def _foreign(
    path: Place, file: ForeignFile, chosen: Selection | None, report: list[Diagnostic] | None
) -> Inspection:
    """The content of a foreign file; filters see the keys of nested names as a path."""
    rows: list[Row] = []
    for name, leaf in (*file.arrays.items(), *file.values.items()):
        keys = tuple(split(name))
        if chosen is not None and not chosen(keys, leaf):
            continue
        if isinstance(leaf, ForeignArray):
            rows.append(Row(name, len(keys), brief_array(leaf), nbytes=leaf.nbytes))
        else:
            rows.append(Row(name, len(keys), type(leaf).__name__, brief_scalar(leaf)))
    if chosen is not None:
        _report_unmatched(chosen, str(path), report, declared=False)
    return Inspection(
        file=file.path,
        version=None,
        schema=None,
        writer=None,
        metadata=dict(file.metadata),
        rows=tuple(rows),
        arrays=sum(row.path in file.arrays for row in rows),
        nbytes=sum(row.nbytes for row in rows),
        format=file.format,
    )


def _selection(filter: Any) -> Selection:  # noqa: A002
    from neuralqx_struct.filters import parse
    from neuralqx_struct.filters.partition import Selection

    return Selection(parse(filter) if isinstance(filter, str) else filter)


def _report_unmatched(
    chosen: Selection, file: str, report: list[Diagnostic] | None, *, declared: bool
) -> None:
    """Reports parts of the filter that match nothing; raises if the whole filter does."""
    from neuralqx_struct.filters import FilterError

    found = []
    for each in chosen.findings("filter"):
        hint = (
            f"{each.hint}; {_UNDECLARED}" if each.hint in _NOTHING and not declared else each.hint
        )
        found.append(replace(each, file=file, hint=hint))
    if has_errors(found):
        raise FilterError(found)
    if report is not None:
        report.extend(found)


_NOTHING = ("no leaf here has a tag", "no leaf here has a kind")
_UNDECLARED = "bundles have tags and kinds of classes that have a schema (`schema=`); here choose by path: or dtype:"


def _nbytes(record: Mapping[str, Any], array: ArrayType) -> int:
    if "nbytes" in record:
        return int(record["nbytes"])
    known = DTYPES.get(array.dtype)
    itemsize = max(known.bits, 8) // 8 if known else dtype_named(array.dtype).itemsize
    return prod(array.shape) * itemsize


def _with_statistics(
    record: Inspection,
    leaves: Iterable[tuple[tuple[Any, ...], Leaf]],
    report: list[Diagnostic] | None,
) -> Inspection:
    """The record with the statistics of each array that it shows; reads the arrays one at a time."""
    from neuralqx_struct.tools.rows import statistics_of

    shown = format_path if record.format is None else foreign_name
    wanted = {row.path for row in record.rows}
    found: dict[str, ArrayStatistics | None] = {}
    for keys, leaf in leaves:
        name = shown(keys)
        if leaf.array is None or name not in wanted:
            continue
        try:
            elements = leaf.array.read()
            found[name] = None if leaf.random else statistics_of(elements)
        except OSError:  # of the disk or the server, which will not read the others either
            raise
        except StructError as error:
            if report is not None:
                report += [d if d.path else replace(d, path=name) for d in error.diagnostics]
    rows = (replace(row, statistics=found.get(row.path)) for row in record.rows)
    return replace(record, rows=(*rows,))
