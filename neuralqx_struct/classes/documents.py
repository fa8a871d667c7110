"""The schema documents of Struct classes: :func:`dump_schema`, and the versions that readers go by.

A class has a document because a schema file made it, or because it has ``schema=`` (:mod:`..struct.binding`). A bound
class is written as a document when its first instance is saved or loaded, because annotations may name classes that
are defined later. The walk over classes is ``writer.py``; it is imported when it is first needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from neuralqx_struct.documents.binding import ClassDocument, SchemaBinding
from neuralqx_struct.documents.bound import (
    bound_document,
    bound_documents,
    document_of,
    series_of_class,
)
from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.fieldspec import is_struct
from neuralqx_struct.printing import brief
from neuralqx_struct.references import identity_like, stored_class
from neuralqx_struct.schema.language import LANGUAGE_SCHEMA_ID
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.series import series_of
from neuralqx_struct.schema.text.loader import dump_yaml

if TYPE_CHECKING:
    from neuralqx_struct.classes.schemas import Schema

__all__ = ["class_schema", "dump_schema"]


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
        ...     act: str = "relu"
        >>> class_schema(Layer).structs["Layer"].fields["act"].text
        'str'
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
    from neuralqx_struct.documents.writer import write_document

    return write_document(
        cls,
        SchemaBinding(schema or identity_like(f"{cls.__module__}:{cls.__name__}"), version, ()),
        document_of,
    )


def described(cls: type) -> tuple[Document, str, Mapping[str, type]]:
    """The document of a Struct class, the name of the class in it, and the class behind each name there."""
    from neuralqx_struct.classes.compiler import classes_of
    from neuralqx_struct.documents.writer import name_in_schema

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
