"""Validation of bundles: the manifest against the published format and its schema, without JAX, numpy or an array byte.

:func:`verify` finds damage of array files and of files of other programs: it reads their bytes.

Example:
    >>> from neuralqx_struct import bundle
    >>> from neuralqx_struct.manifest.payload import Payload
    >>> import tempfile
    >>> path = bundle.write(f"{tempfile.mkdtemp()}/ckpt", Payload({"version": 1, "manifest": 5, "arrays": {}}, {}))
    >>> validate(path)
    []
    >>> import numpy as np
    >>> path = f"{tempfile.mkdtemp()}/weights.npz"
    >>> np.savez(path, w=np.ones(2))
    >>> verify(path)
    []
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from neuralqx_struct import bundle
from neuralqx_struct.dtypes import DTYPES, dtype_named
from neuralqx_struct.errors import (
    Diagnostic,
    Hint,
    Keyword,
    SchemaError,
    SerializationError,
    did_you_mean,
    has_errors,
)
from neuralqx_struct.manifest import DEFAULT_LIMITS, MOST_FINDINGS, Limits, collector_paused
from neuralqx_struct.manifest.kinds import STRUCT, iter_nodes
from neuralqx_struct.manifest.payload import HeldArrays, Payload, check_arrays
from neuralqx_struct.paths import FieldName, Path, format_path
from neuralqx_struct.places.urls import Options, Place, place_of
from neuralqx_struct.references import SchemaRef

if TYPE_CHECKING:
    from neuralqx_struct.formats.store import Progress
    from neuralqx_struct.schema.series import Series

__all__ = ["validate", "verify"]

Findings = list[Diagnostic]

_TOO_DEEP = "expected structs that fit the stack of this thread, got a deeper nest"
_FLATTER = "validate at a lower level of calls, or raise sys.setrecursionlimit"


@collector_paused()
def validate(
    path: str | Place,
    schema: Any = None,
    *,
    json_schema: str | pathlib.Path | None = None,
    limits: Limits | None = None,
    storage_options: Options | None = None,
) -> Findings:
    """Checks the manifest of a bundle: the published format, the array files, then the schema.

    Args:
        path: A path or a URL, of a bundle (folder or zip) or a ``manifest.json``.
        schema: The schema that it must match: a schema folder or file, a ``Series`` or a ``Schema``, or a ``Catalogue``
            that has it, or a ``Document``; the documents inside the bundle if None. A bundle of an older version is compared with that version, one of
            plain Python classes whose root has the name of the schema's root with the newest, by the names of the classes. So is a tree
            without a class of ours as its root, such as dicts, lists and the states of other libraries, by the names in it.
        json_schema: A JSON Schema file that the manifest must match as well: the published one, or one made by
            ``neuralqx-struct schema json-schema``. The messages are those of the package jsonschema.
        limits: Sizes above which the manifest is refused.
        storage_options: Options of fsspec for a URL, such as keys.

    Returns:
        All findings. Array files must exist and be long enough, their bytes are not read; ``verify`` does that. Beside a
        ``manifest.json`` no file is looked for.

    Raises:
        SerializationError: There is nothing at ``path`` (then also a FileNotFoundError).
        SchemaError: ``schema`` or ``json_schema`` cannot be read.

    Example:
        >>> validate("missing")
        Traceback (most recent call last):
        neuralqx_struct.places.disk.BundleMissingError: missing: expected a bundle, got no file or folder [NQX401]...
    """
    path = place_of(path, storage_options)
    given = None if schema is None else _schemas_given(schema)
    document, found, data = bundle.survey(path, limits=limits)
    if document is not None:
        held = Payload(document, HeldArrays(document["arrays"]))
        found += _wrong_dtypes(document) or check_arrays(
            held, (limits or DEFAULT_LIMITS).full_bytes
        )
        try:
            found += _schema_findings(document, given and given(document))
        except RecursionError:
            found.append(Diagnostic("NQX005", "error", _TOO_DEEP, "$.manifest", hint=_FLATTER))
    if json_schema is not None:
        from neuralqx_struct.tools.json_schemas import check

        found += check(data, pathlib.Path(json_schema))
    return [d.in_file(str(path)) for d in found]


def _schemas_given(schema: Any) -> Callable[[Mapping[str, Any]], Series | None]:
    """The choice of the series that a manifest is compared with."""
    # Imported late: most bundles are compared with the documents that they hold.
    from neuralqx_struct.schema.catalogue import schemas_given, series_for

    given = schemas_given(schema)
    return lambda document: series_for(document, given)


def _wrong_dtypes(document: dict[str, Any]) -> Findings:
    """Checks the dtypes of records."""
    found: Findings = []
    for name, record in document["arrays"].items():
        if record["dtype"] not in DTYPES and len(found) < MOST_FINDINGS:
            try:
                dtype_named(record["dtype"])
            except SerializationError as error:
                where = format_path((FieldName("arrays"), name, FieldName("dtype")))
                found += [replace(d, path=where) for d in error.diagnostics]
    return found


def _carried(document: Mapping[str, Any]) -> tuple[dict[str, Series], Findings]:
    """The schemas in a manifest by identity, or all problems of their documents."""
    from neuralqx_struct.schema.series import carried_series

    try:
        return carried_series(document), []
    except SchemaError as error:
        return {}, [_in_document(d) for d in error.diagnostics]


def _in_document(found: Diagnostic) -> Diagnostic:
    """A finding about one of the documents, which readers of series name ``schemas[0]``, as one of the bundle."""
    file = str(found.file)
    return _inside(found, f"$.{file}" if file.startswith("schemas[") else "$.schemas")


def _inside(finding: Diagnostic, place: str) -> Diagnostic:
    """A finding about a part as one about the whole."""
    return replace(finding, path=place + finding.path.removeprefix("$"), file=None, line=None)


def _schema_findings(document: dict[str, Any], wanted: Series | None) -> Findings:
    """Compares the tree with the schema of the caller, or with those in the manifest."""
    written, root = document.get("schema"), document["manifest"]
    if written is None and wanted is None and not document.get("schemas"):
        return _tree_findings(root, {}, None)
    known, found = _carried(document)
    if found:
        return found
    own = dict(known)
    if wanted is not None:
        plain = _plain_findings(root, wanted) if written is None else None
        if plain is not None:
            return plain
        known[wanted.id] = wanted  # takes precedence over the bundle's own
    # Without the member `schema`, structs name their schema; only its fingerprint is unknown then.
    root_ref = _schema_of(root)
    named = wanted is None or (root_ref is not None and root_ref.id == wanted.id)
    if written is not None or not named:
        found = _identity_findings(written, known, wanted, own)
    return found or _tree_findings(root, known, expected=written)


def _lint_errors(series: Series, version: int) -> Findings:
    """The errors of a document, which comparisons with it rely on; bundles carry documents without lint.

    Patterns that the engine refuses are warnings in those of bundles, which nobody can edit.
    """
    from neuralqx_struct.schema.bounds import unchecked_patterns
    from neuralqx_struct.tools.linting import lint_document

    document, source = series.at(version), series.sources.get(version)
    errors = [d for d in lint_document(document, source) if d.severity == "error"]
    if source is not None:
        return errors
    unchecked = {d.path: d for d in unchecked_patterns(document)}
    return [_inside(unchecked.get(d.path, d), "$.schemas") for d in errors]


def _identity_findings(
    written: Mapping[str, Any] | None,
    known: Mapping[str, Series],
    wanted: Series | None,
    own: Mapping[str, Series],
) -> Findings:
    """Checks that the schema of a payload is the requested one, known, and unchanged."""

    def error(code: str, message: str, member: str, hint: str) -> Findings:
        return [Diagnostic(code, "error", message, f"$.schema{member}", hint=hint)]

    if written is None:
        message = "expected a bundle that names its schema, got one without"
        hint = "it was saved from plain Python objects; save it from a class of the schema"
        return error("NQX404", message, "", hint)
    identity, version = written["id"], written["version"]
    if wanted is not None and identity != wanted.id:
        message = f"expected a bundle of {wanted.id}, got one of {identity}"
        return error("NQX404", message, ".id", "pass the schema that it was saved with")
    series = known.get(identity)
    if series is None and known:
        message = f"expected the identity of a known schema, got {identity!r}"
        fix = Hint("pass the schema that it was saved with: ", Keyword("schema"))
        return error("NQX404", message, ".id", did_you_mean(identity, known) or fix)
    if series is None or version not in series.documents:
        versions = "none" if series is None else ", ".join(map(str, series.versions))
        message = f"expected a known version of {identity} ({versions}), got {version}"
        fix = Hint("pass the schema that has it: ", Keyword("schema"))
        if wanted is not None:
            fix = Hint("name the folder with all versions, or a file of this one")
        return error("NQX404", message, ".version", fix)
    wrong = _lint_errors(series, version)
    if has_errors(wrong) or series.wrote(version, written["fingerprint"]):
        return wrong if has_errors(wrong) else []  # a comparison of the tree repeats warnings
    from neuralqx_struct.evolution.diff import edited_version

    return [edited_version(written, series, own.get(identity))]


def _plain_findings(root: Any, wanted: Series) -> Findings | None:
    """Compares a tree without a schema with the version of one that it conforms to, else with the newest.

    None if the root is nothing like the root of the schema. Structs of plain Python classes are matched by the names of
    their classes, other trees by the names in them.
    """
    from neuralqx_struct.schema.stamping import read_plain

    reading = read_plain(root, wanted)
    if reading.findings is None:
        return None
    return _lint_errors(wanted, reading.document.version) or reading.findings


def _tree_findings(
    root: Any, known: Mapping[str, Series], expected: Mapping[str, Any] | None
) -> Findings:
    """Compares every outermost struct of a schema with its declaration."""
    if not known:  # spares a plain bundle the modules of schemas
        return [_unknown(path, ref, None) for path, _, ref in _outermost(root)]
    from neuralqx_struct.schema.conformance import conform, conform_node, see_node

    root_ref = _schema_of(root)
    if expected is not None and (root_ref is None or not _is_of(root_ref, expected)):
        document = known[expected["id"]].at(expected["version"])
        return conform(document, document.root, root, see_node)
    wrong: dict[tuple[str, int], Findings] = {}
    found: Findings = []
    for path, node, ref in _outermost(root):
        series = known.get(ref.id)
        if series is None or ref.version not in series.documents:
            if expected is None:
                found.append(_unknown(path, ref, series))
            continue
        key = (ref.id, ref.version)
        if key not in wrong:
            wrong[key] = _lint_errors(series, ref.version)
            found += wrong[key]
        document = series.at(ref.version)
        if has_errors(wrong[key]):
            continue
        found += (_inside(d, format_path(path)) for d in conform_node(document, node))
    return found


def _is_of(ref: SchemaRef, expected: Mapping[str, Any]) -> bool:
    return (ref.id, ref.version) == (expected["id"], expected["version"])


def _unknown(path: Path, ref: SchemaRef, series: Series | None) -> Diagnostic:
    """The finding about a struct of an unknown schema or version."""
    versions = "none is known"
    if series is not None:
        versions = f"known: {', '.join(map(str, series.versions))}"
    message = f"expected a known version of {ref.id}, got {ref.version} ({versions})"
    restore = "restore the members `schema` and `schemas` of the manifest, or pass "
    hint = Hint(restore, Keyword("schema"))
    return Diagnostic("NQX404", "error", message, format_path(path), hint=hint)


def _schema_of(node: Any) -> SchemaRef | None:
    """The schema reference of a struct; None for plain Python classes and other nodes."""
    return SchemaRef.parse(node["type"]) if STRUCT.matches(node) else None


def _outermost(root: Any) -> Iterator[tuple[Path, Any, SchemaRef]]:
    """Yields structs of schemas that are in no other such struct, with their paths."""
    outer: Path | None = None
    for path, node in iter_nodes(root):
        if outer is not None and path[: len(outer)] == outer:
            continue
        ref = _schema_of(node)
        if ref is not None:
            yield path, node, ref
            outer = path
        if outer == ():
            return


def verify(
    path: str | Place,
    *,
    limits: Limits | None = None,
    progress: Progress | None = None,
    storage_options: Options | None = None,
) -> list[Diagnostic]:
    """Every damage in a bundle or a foreign file, at once; reads every byte that has a checksum.

    Args:
        path: A path or a URL: of a bundle (folder or zip), the ``manifest.json`` in a folder, or a file of another program such as
            ``model.safetensors``, of which sizes and places are checked too.
        limits: Sizes above which it is refused.
        progress: Called with bytes verified and bytes in all.
        storage_options: Options of fsspec for a URL, such as keys.

    Returns:
        The findings: ``info`` for unused arrays, ``warning`` for files that the manifest does not name and for arrays
        of dtypes that cannot be read.
    """
    from neuralqx_struct import formats  # checks of manifests need none of them

    path = place_of(path, storage_options)
    if formats.is_foreign(path):
        return formats.verify(
            path, limits=limits, progress=progress, storage_options=storage_options
        )
    return bundle.verify(path, limits=limits, progress=progress)
