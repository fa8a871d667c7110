"""The schema document that a Struct class is a version of: of a schema file, or of the class itself if it has ``schema=``.

A bound class (:mod:`.binding`) is written as a document when its first instance is made, saved or loaded, because
annotations may name classes that are defined later. The walk over classes is ``writer.py``; it is imported when it is first
needed.

Example:
    >>> from neuralqx_struct.struct import Struct
    >>> class Net(Struct, schema="lab.net", version=3):
    ...     steps: int
    >>> document_of(Net).version
    3
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from neuralqx_struct.documents.binding import ClassDocument
from neuralqx_struct.errors import SchemaError
from neuralqx_struct.references import SchemaRef, bound_classes, stored_class
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.series import Series, series_of
from neuralqx_struct.schema.uses import loaded, remember

#: The bound classes that are being written, each used by the one before it.
_OPEN: list[type] = []
_WRITING = threading.RLock()


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
    from neuralqx_struct.documents.writer import write_document

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
