"""Inspection: what is in a bundle, without JAX, numpy or an array byte.

Owns :func:`inspect`: the tree of a manifest as a record that prints as a table, with tags and kinds as its schema declares
them. Whether a bundle is what its schema says is ``validation.py``'s business.

Example:
    >>> from neuralqx_struct import bundle
    >>> from neuralqx_struct.payload import Payload
    >>> import tempfile
    >>> path = bundle.write(f"{tempfile.mkdtemp()}/ckpt", Payload({"version": 1, "manifest": 5, "arrays": {}}, {}))
    >>> inspect(path).rows[0].type
    'int'
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuralqx_struct import bundle
from neuralqx_struct.errors import Diagnostic, has_errors
from neuralqx_struct.param_tags import node_tags
from neuralqx_struct.paths import FieldName, format_path
from neuralqx_struct.payload import dtype_named, iter_nodes
from neuralqx_struct.schema.types import DTYPES
from neuralqx_struct.validation import carried_schemas

if TYPE_CHECKING:
    from neuralqx_struct.fieldspec import FieldSpec
    from neuralqx_struct.leaves import Selection

__all__ = ["Inspection", "Row", "inspect"]


@dataclass(frozen=True, slots=True)
class Row:
    """One node of the tree.

    Attributes:
        path: Its key path, such as ``$.params['w']``.
        depth: How many nodes it is inside.
        type: What it is, such as ``complex64[12, 48]``, ``int`` or ``VMCState``.
        value: Text of its value, for scalars.
        nbytes: Size of its array; 0 for everything else.
        tags: Tags of its field, as its schema declares them, and of the Param whose value it is.
        kind: ``node``, ``static`` or ``opaque``, as its schema declares it; empty where no schema does.
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
    """What is in a bundle; ``str()`` is a table.

    Attributes:
        file: The bundle, as the user named it.
        version: Of the payload format.
        schema: Identity, version and fingerprint; None for plain Python objects.
        writer: Who wrote it; None for neuraLQX's own bundles.
        metadata: Of the user.
        rows: The nodes from top to bottom: all of them, or the leaves that a filter chose.
        arrays: Number of different arrays in ``rows``.
        nbytes: Their size; an array that stands in several places counts once.
    """

    file: str
    version: int
    schema: Mapping[str, Any] | None
    writer: Mapping[str, Any] | None
    metadata: Mapping[str, Any]
    rows: tuple[Row, ...]
    arrays: int
    nbytes: int

    def __str__(self) -> str:
        written = "a neuraLQX bundle" if self.writer is None else "{name} {version}".format(**self.writer)
        lines = [f"{self.file}: format {self.version}, written by {written}"]
        if self.schema is not None:
            lines.append("schema {id} version {version} ({fingerprint})".format(**self.schema))
        lines += [f"metadata {key}: {value!r}" for key, value in self.metadata.items()]
        table = [
            (row.path, _shape(row), _size(row.nbytes) if row.nbytes else "", ", ".join(row.tags)) for row in self.rows
        ]
        widths = [max((len(cells[column]) for cells in table), default=0) for column in range(3)]
        for path, text, size, tags in table:
            lines.append(f"  {path:<{widths[0]}}  {text:<{widths[1]}}  {size:>{widths[2]}}  {tags}".rstrip())
        lines.append(f"{len(self.rows)} nodes, {self.arrays} arrays, {_size(self.nbytes)}")
        return "\n".join(lines)

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


@dataclass(frozen=True, slots=True)
class _Array:
    """What a filter sees of an array."""

    dtype: str
    shape: tuple[int, ...]


def inspect(
    path: str | Path,
    filter: Any = None,  # noqa: A002
    *,
    report: list[Diagnostic] | None = None,
) -> Inspection:
    """Look into a bundle; no array is read.

    Args:
        path: A bundle (folder or zip) or a ``manifest.json``.
        filter: Which leaves to show: the text of a filter such as ``tag:trainable & !path:**/bias``, or any filter.
        report: A list that gets the parts of the filter that match no leaf.

    Raises:
        SerializationError: There is no bundle (then also a FileNotFoundError), or its manifest is not sound.
        FilterError: The filter cannot be read, or matches no leaf.

    Example:
        >>> [row.path for row in inspect("tests/golden/format-1/vmc_state_1", "dtype:floating").rows][-1]
        '$.E_hist'
    """
    chosen = None if filter is None else _selection(filter)
    document = bundle.read_manifest(path)
    rows: list[Row] = []
    sizes: dict[str, int] = {}
    for here, node in _with_declarations(document):
        seen = _see(node)
        if chosen is not None and not (seen.leaf and chosen(here, seen.array or node)):
            continue
        nbytes = _nbytes(document["arrays"].get(seen.name, {}), seen.array) if seen.name and seen.array else 0
        if seen.name:
            sizes[seen.name] = nbytes
        spec = here[-1].spec if here and isinstance(here[-1], FieldName) else None
        tags = () if spec is None else tuple(sorted(spec.tags))
        kind = "" if spec is None else str(spec.kind)
        rows.append(Row(format_path(here), len(here), seen.text, seen.value, nbytes, tags, kind))
    if chosen is not None:
        _tell(chosen, str(path), report, declared="schemas" in document)
    return Inspection(
        file=str(path),
        version=document["version"],
        schema=document.get("schema"),
        writer=document.get("writer"),
        metadata=document.get("metadata", {}),
        rows=tuple(rows),
        arrays=len(sizes),
        nbytes=sum(sizes.values()),
    )


def _selection(filter: Any) -> Selection:  # noqa: A002
    from neuralqx_struct.filters import parse
    from neuralqx_struct.leaves import Selection

    return Selection(parse(filter) if isinstance(filter, str) else filter)


def _tell(chosen: Selection, file: str, report: list[Diagnostic] | None, *, declared: bool) -> None:
    """What the filter looked for in vain: an error if that was all."""
    from neuralqx_struct.filters import FilterError

    found = [finding.in_file(file) for finding in chosen.findings("filter")]
    if not declared:
        found = [replace(d, hint=f"{d.hint}; {_UNDECLARED}") if d.hint in _NOTHING else d for d in found]
    if has_errors(found):
        raise FilterError(found)
    if report is not None:
        report.extend(found)


_NOTHING = ("no leaf here has a tag", "no leaf here has a kind")
_UNDECLARED = "bundles say tags and kinds of classes that have a schema (`schema=`); here choose by path: or dtype:"


def _nbytes(record: Mapping[str, Any], array: _Array) -> int:
    if "nbytes" in record:
        return int(record["nbytes"])
    known = DTYPES.get(array.dtype)
    return prod(array.shape) * (max(known.bits, 8) // 8 if known else dtype_named(array.dtype).itemsize)


def _with_declarations(document: Mapping[str, Any]) -> Iterator[tuple[tuple[Hashable, ...], Any]]:
    """Every node that stands for a value, with a path whose field names carry their declarations."""
    specs = _specs(document)
    places: dict[tuple[Hashable, ...], tuple[Hashable, ...]] = {}
    owners: dict[tuple[Hashable, ...], str] = {}
    tags: dict[tuple[Hashable, ...], frozenset[str]] = {}
    parts: set[tuple[Hashable, ...]] = set()
    saved: set[tuple[Hashable, ...]] = set()
    for path, node in iter_nodes(document["manifest"]):
        above = path[:-1]
        if above in parts and path:
            parts.add(path)
            continue
        here = path
        if path:
            last = path[-1]
            if isinstance(last, FieldName):
                last = FieldName(last, _declared(last, specs.get((owners.get(above, ""), last)), tags.get(above)))
            here = (*places[above], last)
        if above in saved and path:  # what a class says of itself stands at its place, as for those who load it
            here = places[above]
        if type(node) is dict:
            places[path] = here
            if node.get("mode") == "serializer":
                saved.add(path)
            if node["__kind__"] == "struct":
                owners[path] = node["type"]
                tags[path] = node_tags(node)
            elif node["__kind__"] in _LEAVES:
                parts.add(path)
        if not (above in saved and path and type(node) is dict and node["__kind__"] not in _LEAVES):
            yield here, node


def _declared(name: str, spec: FieldSpec | None, tags: frozenset[str] | None) -> FieldSpec | None:
    """What is known of a field: what a schema declares, and the tags of a parameter on its value."""
    if not tags or name != "value":
        return spec
    from neuralqx_struct.fieldspec import FieldSpec, tagged

    return tagged(spec or FieldSpec(name=name), tags)


def _specs(document: Mapping[str, Any]) -> dict[tuple[str, str], Any]:
    """Declarations of fields by class reference and name, from the schemas that travel along."""
    if not document.get("schemas"):
        return {}
    from neuralqx_struct.fieldspec import FieldKind, FieldSpec

    carried, _ = carried_schemas(
        document
    )  # broken documents declare nothing here; validate() says what is wrong with them
    return {
        (held.ref(struct_name), name): FieldSpec(
            name=name, kind=FieldKind(declaration.kind), metadata={"tags": tuple(declaration.tags)}
        )
        for series in carried.values()
        for held in series.documents.values()
        for struct_name, struct in held.structs.items()
        for name, declaration in struct.fields.items()
    }


@dataclass(frozen=True, slots=True)
class _Node:
    """A node in words: its type, its value, and the array that it stands for."""

    text: str
    value: str = ""
    array: _Array | None = None
    name: str = ""
    leaf: bool = True


def _see_array(node: Mapping[str, Any]) -> _Node:
    array = _Array(node["dtype"], tuple(node["shape"]))
    text = f"{array.dtype}[{', '.join(map(str, array.shape))}]"
    return _Node(text, _brief(node["value"]) if "value" in node else "", array, node.get("name", ""))


def _see_key(node: Mapping[str, Any]) -> _Node:
    data = node["data"]
    shape = tuple(data["shape"][:-1])
    text = f"prng_key[{', '.join([node['impl'], *map(str, shape)])}]"
    return _Node(text, "", _Array(f"key<{node['impl']}>", shape), data["name"])


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


#: Nodes that stand for one value; what is below them is a part of it.
_LEAVES: Mapping[str, Callable[[Mapping[str, Any]], _Node]] = {
    "array": _see_array,
    "full": _see_array,
    "prng-key": _see_key,
    "complex": lambda node: _Node("complex", f"{_brief(node['real'])}, {_brief(node['imag'])}"),
    "path": lambda node: _Node("path", _brief(node["value"])),
    "numpy-scalar": lambda node: _Node(f"numpy {node['dtype']}", _brief(node["value"])),
    "bytes": lambda node: _Node("bytes", f"{len(node['base64']) * 3 // 4} B"),
    "bytearray": lambda node: _Node("bytearray", f"{len(node['base64']) * 3 // 4} B"),
    "reference": lambda node: _Node("reference", node["name"]),
    "range": lambda node: _Node("range", ", ".join(_brief(node[part]) for part in ("start", "stop", "step"))),
    "float": lambda node: _Node("float", node["value"]),
    "bigint": lambda node: _Node("int", _brief(node["value"]).strip("'")),
    "enum": lambda node: _Node(node["type"].rpartition(":")[2], node["name"]),
    "dtype": lambda node: _Node("dtype", node["value"]),
    "slice": lambda node: _Node("slice", ", ".join(_brief(node[part]) for part in ("start", "stop", "step"))),
    "datetime": lambda node: _Node(node["type"], node["value"]),
}


def _see(node: Any) -> _Node:
    if type(node) is not dict:
        return _Node("null") if node is None else _Node(type(node).__name__, _brief(node))
    kind = node["__kind__"]
    if kind in _LEAVES:
        return _LEAVES[kind](node)
    if "type" in node:
        return _Node(node["type"].rpartition(":")[2], leaf=False)
    return _Node(f"{kind} of {len(node['items'])}", leaf=False)
