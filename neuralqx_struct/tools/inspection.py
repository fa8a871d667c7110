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

import pathlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from neuralqx_struct import bundle
from neuralqx_struct.dtypes import DTYPES, dtype_named
from neuralqx_struct.errors import Diagnostic, SchemaError, has_errors, printable
from neuralqx_struct.filters.predicates import node_tags
from neuralqx_struct.formats import FORMATS, ForeignArray, is_foreign, opened, split
from neuralqx_struct.manifest.kinds import (
    ONE,
    STRUCT,
    ArrayType,
    iter_nodes,
    kind_of,
    parts_of,
    show,
)
from neuralqx_struct.paths import FieldName, Path, format_path
from neuralqx_struct.printing import brief, brief_array, brief_scalar

if TYPE_CHECKING:
    from neuralqx_struct.fieldspec import FieldSpec
    from neuralqx_struct.filters.partition import Selection

__all__ = ["Inspection", "Row", "inspect"]

_MOST_CHARACTERS = 50_000_000  # of all paths


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
    """

    path: str
    depth: int
    type: str
    value: str = ""
    nbytes: int = 0
    tags: tuple[str, ...] = ()
    kind: str = ""


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
        lines = [f"{self.file}: {self._origin()}"]
        if self.schema is not None:
            lines.append("schema {id} version {version} ({fingerprint})".format(**self.schema))
        lines += [f"metadata {key}: {brief(value)}" for key, value in self.metadata.items()]
        table = [
            (row.path, _shape(row), _size(row.nbytes) if row.nbytes else "", ", ".join(row.tags))
            for row in self.rows
        ]
        widths = [max((len(cells[column]) for cells in table), default=0) for column in range(3)]
        for path, text, size, tags in table:
            lines.append(
                f"  {path:<{widths[0]}}  {text:<{widths[1]}}  {size:>{widths[2]}}  {tags}".rstrip()
            )
        more = f" (and {self.omitted} that are not listed)" if self.omitted else ""
        total = f"{len(self.rows)} nodes{more}, {self.arrays} arrays, {_size(self.nbytes)}"
        lines.append(total)
        return "\n".join(map(printable, lines))

    def _origin(self) -> str:
        if self.format is not None:
            return FORMATS[self.format].title
        if self.writer is None:
            return f"format {self.version}, written by a neuraLQX bundle"
        return "format {0}, written by {name} {version}".format(self.version, **self.writer)

    def to_json(self) -> dict[str, Any]:
        """The record as plain JSON values."""
        return asdict(self)


def _shape(row: Row) -> str:
    text = f"{row.type} = {row.value}" if row.value else row.type
    return f"{text} ({row.kind})" if row.kind not in ("", "node") else text


def _size(nbytes: int) -> str:
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{nbytes} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def inspect(
    path: str | pathlib.Path,
    filter: Any = None,  # noqa: A002
    *,
    report: list[Diagnostic] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Inspection:
    """The content of a bundle or a foreign file; reads no array.

    Args:
        path: A bundle (folder or zip), a ``manifest.json``, or a file of another program such as ``model.safetensors``.
        filter: The leaves to show: the text of a filter such as ``tag:trainable & !path:**/bias``, or any filter.
        report: A list to which parts of the filter that match no leaf are added.
        storage_options: Options of fsspec for a URL, such as keys.

    Raises:
        SerializationError: There is nothing (then also a FileNotFoundError), or it cannot be read.
        FilterError: The filter cannot be read, or matches no leaf.

    Example:
        >>> [row.path for row in inspect("tests/golden/format-1/vmc_state_1", "dtype:floating").rows][-1]
        '$.E_hist'
    """
    chosen = None if filter is None else _selection(filter)
    if is_foreign(path):
        return _foreign(path, chosen, report, storage_options)
    document = bundle.read_manifest(path)
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
    path: str | pathlib.Path,
    chosen: Selection | None,
    report: list[Diagnostic] | None,
    storage_options: Mapping[str, Any] | None,
) -> Inspection:
    """The content of a foreign file; filters see the keys of nested names as a path."""
    with opened(path, storage_options=storage_options) as file:
        leaves = [*file.arrays.items(), *file.values.items()]
        rows: list[Row] = []
        for name, leaf in leaves:
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


class _Above(NamedTuple):
    """Facts about a node that the nodes directly below it need.

    Attributes:
        path: Its path with declarations.
        owner: The class reference, of structs.
        tags: The tags of a parameter.
        inlined: True if the node below takes its place.
    """

    path: Path = ()
    owner: str = ""
    tags: frozenset[str] = frozenset()
    inlined: bool = True


def nodes_with_declarations(document: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Yields every node that represents a value, with a path whose field names have their declarations."""
    specs = _specs(document)
    places: dict[Path, _Above] = {}
    top = _Above()
    for path, node in iter_nodes(document["manifest"]):
        above = places.get(path[:-1]) if path else top
        if above is None:  # a part of a value
            continue
        here = above.path
        if not above.inlined:
            last = path[-1]
            if isinstance(last, FieldName):
                last = FieldName(last, _declared(last, specs.get((above.owner, last)), above.tags))
            here = (*here, last)
        kind = kind_of(node)
        if kind is None or kind.leaf:
            yield here, node
            continue
        inlined = (kind.inline, ONE) in parts_of(node)
        if kind is STRUCT:
            places[path] = _Above(here, node["type"], node_tags(node), inlined)
        else:
            places[path] = _Above(here, inlined=inlined)
        if above is top or not above.inlined:
            yield here, node


def _declared(name: str, spec: FieldSpec | None, tags: frozenset[str]) -> FieldSpec | None:
    """The declaration of a field in a schema, with the tags of a parameter for its value."""
    if not tags or name != "value":
        return spec
    from neuralqx_struct.fieldspec import FieldSpec, tagged

    return tagged(spec or FieldSpec(name=name), tags)


def _specs(document: Mapping[str, Any]) -> dict[tuple[str, str], Any]:
    """The declarations of fields by class reference and name, from the schemas in the manifest."""
    if not document.get("schemas"):
        return {}
    from neuralqx_struct.fieldspec import FieldKind, FieldSpec
    from neuralqx_struct.schema.series import carried_series

    try:
        carried = carried_series(document)
    except SchemaError:  # validate() reports the problems of documents
        return {}
    return {
        (held.ref(struct_name), name): FieldSpec(
            name=name, kind=FieldKind(declaration.kind), metadata={"tags": tuple(declaration.tags)}
        )
        for series in carried.values()
        for held in series.documents.values()
        for struct_name, struct in held.structs.items()
        for name, declaration in struct.fields.items()
    }
