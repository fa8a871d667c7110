"""The schema documents of Struct classes: :func:`dump_schema`, and the versions that readers go by.

A class has a document because a schema file made it, or because it has ``schema=`` (:mod:`..struct.binding`). A bound
class is written as a document when its first instance is saved or loaded, because annotations may name classes that
are defined later. The walk over classes is ``writer.py``; it is imported when it is first needed.
"""

from __future__ import annotations

import threading
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from neuralqx_struct.errors import Diagnostic, SchemaError
from neuralqx_struct.evolution.plans import Unknown, apply, plan
from neuralqx_struct.fieldspec import FieldSpec, is_struct
from neuralqx_struct.manifest.kinds import STRUCT
from neuralqx_struct.manifest.payload import Payload
from neuralqx_struct.printing import brief
from neuralqx_struct.references import SchemaRef, bound_classes, identity_like, stored_class
from neuralqx_struct.schema.language import LANGUAGE_SCHEMA_ID
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.series import Series, series_of
from neuralqx_struct.schema.text.loader import dump_yaml
from neuralqx_struct.schema.uses import loaded, remember
from neuralqx_struct.struct.binding import ClassDocument, SchemaBinding
from neuralqx_struct.struct.declarations import annotation_of

if TYPE_CHECKING:
    from neuralqx_struct.classes.schemas import Schema

__all__ = ["class_schema", "dump_schema"]

#: The bound classes that are being written, each used by the one before it.
_OPEN: list[type] = []
_WRITING = threading.RLock()


def dump_schema(schema: Document | Schema | type) -> str:
    """A schema as YAML text that :func:`~neuralqx_struct.load_schema` reads back to an equal document.

    Args:
        schema: A document, one version of a schema, or a Struct class.

    Raises:
        TypeError: It is something else.
        SchemaError: A value in it has no YAML text.

    Example:
        >>> from neuralqx_struct.classes.schemas import load_schema
        >>> schema = load_schema("schemas/vmc_state")
        >>> load_schema(dump_schema(schema)).document == schema.document
        True
    """
    from neuralqx_struct.classes.schemas import Schema

    if isinstance(schema, Document):
        document = schema
    elif isinstance(schema, Schema):
        document = schema.document
    elif isinstance(schema, type) and is_struct(schema):
        document = class_schema(schema)
    else:
        raise TypeError(
            f"dump_schema(): expected a Document, a Schema or a Struct class, got {brief(schema)}"
        )
    text = dump_yaml(document.to_shorthand())
    return f"# yaml-language-server: $schema={LANGUAGE_SCHEMA_ID}\n{text}"


def class_schema(
    cls: type,
    *,
    schema: str | None = None,
    version: int = 1,
    report: list[Diagnostic] | None = None,
) -> Document:
    """The schema document of a Struct class, see :func:`~neuralqx_struct.schema_of`.

    Raises:
        TypeError: ``cls`` is not a Struct class.
        SchemaError: The document is not valid, such as for a name with letters outside of ASCII; with every problem.

    Example:
        >>> from neuralqx_struct.struct import Struct
        >>> class Layer(Struct):
        ...     w: object
        ...     act: typing.Literal["relu", "tanh"] = "relu"
        >>> class_schema(Layer).structs["Layer"].fields["act"].text
        "literal['relu', 'tanh']"
    """
    if not isinstance(cls, type) or not is_struct(cls):
        raise TypeError(f"schema_of(): expected a Struct class or a tree, got {brief(cls)}")
    own = None if schema else document_of(cls)
    if own is None:
        written = _written(cls, schema, version)
        own, notes = written.document, written.notes
    else:
        bound = bound_document(stored_class(cls))
        notes = () if bound is None else bound.notes
    if report is not None:
        report += notes
    return own


def _written(cls: type, schema: str | None, version: int = 1) -> ClassDocument:
    from neuralqx_struct.classes.writer import write_document

    return write_document(
        cls,
        SchemaBinding(schema or identity_like(f"{cls.__module__}:{cls.__name__}"), version, ()),
        document_of,
    )


def described(cls: type) -> tuple[Document, str, Mapping[str, type]]:
    """The document of a Struct class, the name of the class in it, and the class behind each name there."""
    from neuralqx_struct.classes.compiler import classes_of
    from neuralqx_struct.classes.writer import name_in_schema

    bound = bound_document(stored_class(cls))
    own = document_of(cls)
    if own is None:
        bound = _written(cls, None)
    if bound is not None:
        return bound.document, bound.document.root, bound.classes
    assert own is not None
    series: Any = series_of_class(cls)
    name = name_in_schema(cls)
    return series.at(own.version), name, {**classes_of(series, own.version), name: cls}


def classes_in(document: Document) -> Mapping[str, Any]:
    """The classes behind the names of a document: those that are bound to it, else those made of it."""
    from neuralqx_struct.classes.compiler import classes_of

    for bound in bound_documents(document.ref(document.root)):
        return bound.classes
    return classes_of(series_of([document]), document.version)


def bound_document(cls: Any) -> ClassDocument | None:
    """The document of a class that is bound to a schema itself; None for all others.

    Raises:
        SchemaError: The class has no valid document, such as for a field whose name is not ASCII, or the classes that
            it uses use it.
    """
    if "__nqx_binding__" not in cls.__dict__:
        return None
    held: ClassDocument | None = cls.__dict__.get("__nqx_class_document__")
    if held is None:
        held = _bound_document(cls)
        type.__setattr__(cls, "__nqx_class_document__", held)
        remember([held.document])
    return held


def _bound_document(cls: Any) -> ClassDocument:
    from neuralqx_struct.classes.writer import write_document

    with _WRITING:
        if cls in _OPEN:
            chain = " -> ".join(vars(each)["__nqx_binding__"].id for each in (*_OPEN, cls))
            raise SchemaError(
                f"expected schemas that end, got the cycle {chain}",
                code="NQX135",
                hint="give only the outermost of these classes schema=",
            )
        _OPEN.append(cls)
        try:
            return write_document(cls, cls.__nqx_binding__, document_of)
        finally:
            _OPEN.pop()


def document_of(cls: Any) -> Document | None:
    """The document of the schema version that a class is, from its schema file or from the class itself."""
    if not isinstance(cls, type):
        return None
    known = stored_class(cls)
    bound = bound_document(known)
    if bound is not None:
        return bound.document
    document: Document | None = vars(known).get("__nqx_document__")
    return document


def series_of_class(cls: Any) -> Series | None:
    """All known versions of the schema that a class is a version of, its own included.

    Earlier versions are classes with the same ``schema=``, and schema files that were loaded.
    """
    if not isinstance(cls, type):
        return None
    known = stored_class(cls)
    bound = bound_document(known)
    if bound is None:
        series: Series | None = vars(known).get("__nqx_series__")
        return series
    own = bound.document
    for other in bound_classes(own.id).values():
        bound_document(other)
    documents = {document.version: document for document in loaded(own.id)}
    return series_of({**documents, own.version: own}.values())


def bound_documents(ref: str, preferred: Any = None) -> Iterator[ClassDocument]:
    """The documents of the classes that are bound to the version of a reference such as ``lab.state@2:Layer``.

    Args:
        ref: The reference.
        preferred: The class that the caller asked for, which comes first.
    """
    wanted = SchemaRef.parse(ref)
    if wanted is None:
        return
    for cls in (preferred, bound_classes(wanted.id).get(wanted.version)):
        found = bound_document(cls) if isinstance(cls, type) else None
        if found is not None and (found.document.id, found.document.version) == wanted[:2]:
            yield found


# ---------------------------------------------------------------------------------------------------------------------
# Versions inside plain classes.


def migrate_fields(
    payload: Payload,
    cls: type,
    carried: Mapping[str, Series],
    *,
    unknown: Unknown,
    report: list[Diagnostic],
    trust: Iterable[str],
) -> Payload:
    """Bring the structs inside a plain Struct, which has no version itself, to the versions that its fields name.

    Args:
        payload: The payload, whose root is the plain Struct.
        cls: Its class.
        carried: The schemas in the payload; they serve the versions that are not known here.
        unknown: As for loading.
        report: As for loading.
        trust: As for loading.

    Returns:
        The payload itself where all versions match. A schema of which two versions are named stays as it is.

    Raises:
        MigrationError: There is no migration, or the payload does not allow it.
    """
    wanted = _named_versions(cls)
    known = dict(carried)
    for identity, classes in wanted.items():
        candidates = (series_of_class(each) for each in classes.values() if each is not None)
        series = next((each for each in candidates if each is not None), None)
        if series is not None and identity in carried:
            series = series.merged(carried[identity].documents.values())
        if series is not None:
            known[identity] = series
    for identity, classes in wanted.items():
        if len(classes) != 1 or identity not in known:
            continue
        (target,) = classes
        for version in sorted(_versions_in(payload, identity) - {target}):
            steps = plan(known[identity], version, target, unknown=unknown)
            payload = apply(payload, steps, others=known, report=report, trust=trust)
    return payload


def _named_versions(cls: type) -> dict[str, dict[int, Any]]:
    """Schema versions, with their classes, that annotations of a plain Struct name, directly and indirectly."""
    found: dict[str, dict[int, Any]] = {}
    todo: list[Any] = [cls]
    seen: set[type] = set()
    while todo:
        hint = todo.pop()
        todo += typing.get_args(hint)
        if not isinstance(hint, type) or hint in seen or not is_struct(hint):
            continue
        seen.add(hint)
        document = document_of(hint)
        if document is None:
            specs: Mapping[str, FieldSpec] = vars(hint)["__nqx_fields__"]
            todo += [annotation_of(hint, spec) for spec in specs.values()]
            continue
        found.setdefault(document.id, {})[document.version] = hint
        for used in document.closure():
            found.setdefault(used.id, {}).setdefault(used.version, None)
    return found


def _versions_in(payload: Payload, identity: str) -> set[int]:
    """The versions of one schema among the structs of a payload."""
    versions: set[int] = set()
    for _, node in STRUCT.within(payload.document["manifest"]):
        ref = SchemaRef.parse(node["type"])
        if ref is not None and ref.id == identity:
            versions.add(ref.version)
    return versions
