"""Inspection: what is in a bundle and whether it is what its schema says, without JAX, numpy or an array byte.

Owns :func:`validate` (the manifest against the published format, then against its schema) and :func:`inspect` (its tree
as a record that prints as a table). Damage of the array files is ``bundle.verify``'s business. Start-up is a feature:
a command that validates a small bundle spends its time on Python itself.

Example:
    >>> from neuralqx_struct import bundle
    >>> from neuralqx_struct.payload import Payload
    >>> import tempfile
    >>> path = bundle.write(f"{tempfile.mkdtemp()}/ckpt", Payload({"version": 1, "manifest": 5, "arrays": {}}, {}))
    >>> validate(path), inspect(path).rows[0].type
    ([], 'int')
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuralqx_struct import bundle
from neuralqx_struct.errors import Diagnostic, SchemaError, SerializationError, has_errors
from neuralqx_struct.manifest import MOST_FINDINGS, node_children
from neuralqx_struct.param_tags import node_tags
from neuralqx_struct.paths import FieldName, format_path
from neuralqx_struct.payload import Payload, StoredArrays, check_arrays, dtype_named, iter_nodes
from neuralqx_struct.schema.types import DTYPES

if TYPE_CHECKING:
    from neuralqx_struct.fieldspec import FieldSpec
    from neuralqx_struct.leaves import Selection
    from neuralqx_struct.schema.model import Document
    from neuralqx_struct.schema.series import Series

__all__ = ["Inspection", "Row", "inspect", "validate"]

# ---------------------------------------------------------------------------------------------------------------------
# Validation.


def validate(path: str | Path, schema: Any = None) -> list[Diagnostic]:
    """Everything that is wrong with a bundle as far as its manifest tells.

    Args:
        path: A bundle (folder or zip) or a ``manifest.json``.
        schema: What it must conform to: a schema folder or file, a ``Series`` or a ``Schema``; the documents inside the
            bundle if None. A bundle of an older version is held to that version, one of plain Python classes whose root has
            the name of the schema's to the newest, by the names of the classes.

    Returns:
        All findings: the published format first, then the array files, then the schema. Array files must be there and
        long enough, their bytes are not read; ``verify`` does that. Beside a ``manifest.json`` no file is looked for.

    Raises:
        SerializationError: There is nothing at ``path`` (then also a FileNotFoundError).
        SchemaError: ``schema`` cannot be read.

    Example:
        >>> validate("missing")
        Traceback (most recent call last):
        neuralqx_struct.bundle_forms.BundleMissingError: missing: expected a bundle, got no file or folder [NQX401]...
    """
    wanted = _series_of(schema)
    document, found = bundle.survey(path)
    if document is not None:
        found += _array_findings(document)
        found += _schema_findings(document, wanted)
    return [d.in_file(str(path)) for d in found]


def _series_of(schema: Any) -> Series | None:
    """The versions that the caller means; Schema, the user's view of them, stands below this module."""
    if schema is None or hasattr(schema, "documents"):
        return schema  # type: ignore[no-any-return]
    held = getattr(schema, "series", None)
    if held is not None:
        return held  # type: ignore[no-any-return]
    from neuralqx_struct.schema.series import load_series

    return load_series(schema)


class _Listed(StoredArrays):
    """The names of the arrays that a manifest lists, in place of the arrays."""

    __slots__ = ("_names",)

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> Any:
        raise SerializationError(f"expected no array to be read, got {name!r}", code="NQX409")

    def verify(self, name: str) -> Diagnostic | None:  # noqa: ARG002
        """Nothing is read here."""
        return None


def _array_findings(document: dict[str, Any]) -> list[Diagnostic]:
    """Whether nodes and records agree, and whether their dtypes exist."""
    records = document["arrays"]
    found: list[Diagnostic] = []
    for name, record in records.items():
        if record["dtype"] not in DTYPES and len(found) < MOST_FINDINGS:
            try:
                dtype_named(record["dtype"])
            except SerializationError as error:
                where = format_path((FieldName("arrays"), name, FieldName("dtype")))
                found += [Diagnostic(d.code, "error", d.message, where, hint=d.hint) for d in error.diagnostics]
    return found or check_arrays(Payload(document, _Listed(records)))


def _carried(document: Mapping[str, Any]) -> tuple[dict[str, Series], list[Diagnostic]]:
    """The schemas that travel inside a manifest by identity, and what is wrong with their documents."""
    from neuralqx_struct.schema.reading import document_from_data
    from neuralqx_struct.schema.series import series_of
    from neuralqx_struct.schema.uses import link_all

    documents: dict[str, list[Document]] = {}
    read: list[Document] = []
    found: list[Diagnostic] = []
    for index, data in enumerate(document.get("schemas", ())):
        try:
            held = document_from_data(data, "")
            read.append(held)
        except SchemaError as error:
            found += (_inside(d, format_path((FieldName("schemas"), index))) for d in error.diagnostics)
    try:
        for linked in link_all(read):
            documents.setdefault(linked.id, []).append(linked)
    except SchemaError as error:
        found += (_inside(d, "$.schemas") for d in error.diagnostics)
    carried: dict[str, Series] = {}
    for identity, versions in documents.items():
        try:
            carried[identity] = series_of(versions)
        except SchemaError as error:
            found += (_inside(d, "$.schemas") for d in error.diagnostics)
    return carried, found


def _inside(finding: Diagnostic, place: str) -> Diagnostic:
    """A finding about a part, as one about the whole."""
    path = place + finding.path.removeprefix("$")
    return Diagnostic(finding.code, finding.severity, finding.message, path, hint=finding.hint)


def _schema_findings(document: dict[str, Any], wanted: Series | None) -> list[Diagnostic]:
    """Compare the tree with the schema that the caller wants, or with those that travel along."""
    written, root = document.get("schema"), document["manifest"]
    if written is None and wanted is None and not document.get("schemas"):
        return _unknown_findings(root, {})
    known, found = _carried(document)
    if found:
        return found
    if wanted is not None and written is None and _class_of(root) == wanted.head.root:
        return _plain_findings(root, wanted)
    if wanted is not None:
        known[wanted.id] = wanted  # what travels along is not asked: the caller wants to know what their files say
    # A struct says by itself which schema it is of; only its fingerprint cannot be compared then.
    unnamed = written is None and (wanted is None or (_schema_of(root) or ("",))[0] == wanted.id)
    found = _unknown_findings(root, known) if unnamed else _identity_findings(written, known, wanted)
    return found or _tree_findings(root, known, expected=written)


def _unknown_findings(root: Any, known: Mapping[str, Series]) -> list[Diagnostic]:
    """Structs of schemas, or of versions, that are not at hand; within structs of known ones their schema tells."""
    found = []
    for path, _, (identity, version, _) in _outermost(root, _schema_of):
        series = known.get(identity)
        if series is None or version not in series.documents:
            versions = "none is at hand" if series is None else f"known: {', '.join(map(str, series.versions))}"
            message = f"expected a known version of {identity}, got {version} ({versions})"
            hint = "restore the members `schema` and `schemas` of the manifest, or pass the schema (--schema)"
            found.append(Diagnostic("NQX404", "error", message, format_path(path), hint=hint))
    return found


def _identity_findings(
    written: Mapping[str, Any] | None, known: Mapping[str, Series], wanted: Series | None
) -> list[Diagnostic]:
    """Whether the schema that a payload names is the wanted one, is known, and is the one it was written with."""
    if written is None:
        message = "expected a bundle that names its schema, got one without"
        hint = "it was saved from plain Python objects; save it from a class of the schema"
        return [Diagnostic("NQX404", "error", message, "$.schema", hint=hint)]
    identity, version = written["id"], written["version"]
    if wanted is not None and identity != wanted.id:
        message = f"expected a bundle of {wanted.id}, got one of {identity}"
        return [Diagnostic("NQX404", "error", message, "$.schema.id", hint="pass the schema that it was saved with")]
    series = known.get(identity)
    if series is None or version not in series.documents:
        versions = "none" if series is None else ", ".join(map(str, series.versions))
        message = f"expected a known version of {identity} ({versions}), got {version}"
        hint = (
            "pass the schema that has it (--schema), or upgrade to a release that ships it"
            if wanted is None
            else "name the folder with all versions, or a file of this one"
        )
        return [Diagnostic("NQX404", "error", message, "$.schema.version", hint=hint)]
    from neuralqx_struct.lint import lint_document

    # What a bundle brings along was never linted here, and conformance relies on it.
    source = series.sources.get(version)
    if wrong := [d for d in lint_document(series.at(version), source) if d.severity == "error"]:
        return [_inside(d, "$.schemas") if source is None else d for d in wrong]
    expected = series.fingerprints[version]
    if written["fingerprint"] != expected:
        whose = "the bundle's own document" if wanted is None else "the given schema"
        message = (
            f"expected the fingerprint {expected[:23]}... of {identity} version {version}, got "
            f"{written['fingerprint'][:23]}...\n{whose} declares something else under the same version number"
        )
        hint = "published versions are never edited: give the changed schema a new version number and a migration"
        return [Diagnostic("NQX405", "error", message, "$.schema.fingerprint", hint=hint)]
    return []


def _class_of(node: Any) -> str | None:
    """The name of the plain Python class that a struct is of."""
    if (
        type(node) is not dict or node["__kind__"] != "struct" or "@" in node["type"]
    ):  # of a schema, or of none there can be
        return None
    name: str = node["type"].rpartition(":")[2].rpartition(".")[2]
    return name


def _plain_findings(root: Any, wanted: Series) -> list[Diagnostic]:
    """Hold structs of plain Python classes to the newest version of a schema, by the names of their classes."""
    from neuralqx_struct.lint import lint_document
    from neuralqx_struct.schema.conform import conform, see_node

    head = wanted.head
    if wrong := [d for d in lint_document(head, wanted.sources.get(head.version)) if d.severity == "error"]:
        return wrong

    def see(node: Any) -> Any:
        seen, name = see_node(node), _class_of(node)
        return seen if name is None or name not in head.structs else replace(seen, refs=(head.ref(name),))

    return conform(head, head.root, root, see)


def _tree_findings(root: Any, known: Mapping[str, Series], expected: Mapping[str, Any] | None) -> list[Diagnostic]:
    """Hold every outermost struct of a known schema to its declaration."""
    from neuralqx_struct.lint import lint_document
    from neuralqx_struct.schema.conform import conform, see_node

    if expected is not None:
        reference = _reference(root, known)
        if reference is None or reference[:2] != (expected["id"], expected["version"]):
            document = known[expected["id"]].at(expected["version"])
            return conform(document, document.root, root, see_node)
    linted: dict[tuple[str, int], list[Diagnostic]] = {}
    found: list[Diagnostic] = []
    for path, node, (identity, version, name) in _outermost(root, lambda node: _reference(node, known)):
        document = known[identity].at(version)
        key = (identity, version)
        if key not in linted:
            linted[key] = [_inside(d, "$.schemas") for d in lint_document(document) if d.severity == "error"]
            found += linted[key]
        if linted[key]:
            continue
        if name not in document.structs:
            message = f"expected a struct of {identity} version {version}, got {name!r}"
            found.append(Diagnostic("NQX411", "error", message, format_path(path)))
            continue
        found += (_inside(d, format_path(path)) for d in conform(document, name, node, see_node))
    return found


def _reference(node: Any, known: Mapping[str, Series]) -> tuple[str, int, str] | None:
    """Schema, version and name of the struct that a node is, if its schema is known."""
    found = _schema_of(node)
    return found if found is not None and found[0] in known and found[1] in known[found[0]].documents else None


def _schema_of(node: Any) -> tuple[str, int, str] | None:
    """Schema, version and name of the struct that a node says it is; None for nodes of plain Python classes."""
    if type(node) is not dict or node["__kind__"] != "struct":
        return None
    identity, _, name = node["type"].partition(":")
    schema_id, _, version = identity.partition("@")
    # Nobody counts to versions of so many digits, and int() refuses to read them.
    return (schema_id, int(version), name) if version.isdecimal() and len(version) < 19 else None


def _outermost(
    root: Any, reference_of: Callable[[Any], tuple[str, int, str] | None]
) -> Iterator[tuple[tuple[Hashable, ...], Any, tuple[str, int, str]]]:
    """Structs that have a reference and stand in no other one that has, with their paths."""
    inside: set[int] = set()
    for path, node in iter_nodes(root):
        if type(node) is not dict:
            continue
        if id(node) in inside:
            inside |= {id(child) for _, _, child in node_children(node)}
        elif (reference := reference_of(node)) is not None:
            inside |= {id(child) for _, _, child in node_children(node)}
            yield path, node, reference


# ---------------------------------------------------------------------------------------------------------------------
# Inspection.


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
        if type(node) is dict:
            places[path] = here
            if node["__kind__"] == "struct":
                owners[path] = node["type"]
                tags[path] = node_tags(node)
            elif node["__kind__"] in _LEAVES:
                parts.add(path)
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

    carried, _ = _carried(document)  # broken documents declare nothing here; validate() says what is wrong with them
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
