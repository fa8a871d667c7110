"""Validation: whether a bundle is what its schema says, as far as its manifest tells; without JAX, numpy or an array byte.

Owns :func:`validate`: the manifest against the published format, then against the schema that it names, the one that travels
inside, or the one that the caller has. Damage of the array files is ``bundle.verify``'s business. Start-up is a feature:
a command that validates a small bundle spends its time on Python itself.

Example:
    >>> from neuralqx_struct import bundle
    >>> from neuralqx_struct.payload import Payload
    >>> import tempfile
    >>> path = bundle.write(f"{tempfile.mkdtemp()}/ckpt", Payload({"version": 1, "manifest": 5, "arrays": {}}, {}))
    >>> validate(path)
    []
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuralqx_struct import bundle
from neuralqx_struct.arrays import ListedArrays
from neuralqx_struct.errors import Diagnostic, SchemaError, SerializationError
from neuralqx_struct.manifest import MOST_FINDINGS
from neuralqx_struct.manifest_rules import node_children
from neuralqx_struct.paths import FieldName, format_path
from neuralqx_struct.payload import Payload, check_arrays, dtype_named, iter_nodes
from neuralqx_struct.schema.types import DTYPES

if TYPE_CHECKING:
    from neuralqx_struct.schema.model import Document
    from neuralqx_struct.schema.series import Series

__all__ = ["carried_schemas", "validate"]


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
        neuralqx_struct.bundle.forms.BundleMissingError: missing: expected a bundle, got no file or folder [NQX401]...
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
    return found or check_arrays(Payload(document, ListedArrays(records)))


def carried_schemas(document: Mapping[str, Any]) -> tuple[dict[str, Series], list[Diagnostic]]:
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
    known, found = carried_schemas(document)
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
