"""Sizes of examples: the names that a caller may give, and those that an instance shows."""

from __future__ import annotations

from collections.abc import Mapping

from neuralqx_struct.errors import Diagnostic, SchemaError, ValidationError, did_you_mean
from neuralqx_struct.schema.field_paths import given_values
from neuralqx_struct.schema.lint import arguments_of, extents_of, root_ints
from neuralqx_struct.schema.model import Document


def check_dims(document: Document, dims: Mapping[str, int]) -> None:
    """Refuses names of sizes that a document does not have.

    Raises:
        SchemaError: NQX103: there is one.
    """
    known = {**dict.fromkeys(document.dims), **sizes_in(document)}
    for name in dims:
        if name not in known:
            hint = did_you_mean(name, known) or f"it has {', '.join(known) or 'none'}"
            message = f"expected a dim of {document.id}, got {name!r}"
            raise SchemaError(message, code="NQX103", path="dims", hint=hint)


def sizes_in(document: Document) -> dict[str, None]:
    """The names of sizes that arrays, lists and static ints of the root show, or that are passed to structs."""
    found = dict.fromkeys(sorted(root_ints(document)))
    for struct in document.structs.values():
        for declaration in struct.stored.values():
            passed = arguments_of(declaration, document.is_struct)
            for extent in (*extents_of(declaration), *passed):
                found |= dict.fromkeys(sorted(extent.names))
    return found


def shown_dims(document: Document) -> list[str]:
    """The declared dims that an instance determines, by its sizes or by equations."""
    shown = sizes_in(document) | dict.fromkeys(given_values(document))
    for _ in document.dims:
        for name, dim in document.dims.items():
            if dim.equation is not None and dim.equation.names <= shown.keys():
                shown[name] = None
    return [name for name in document.dims if name in shown]


def unfit(message: str) -> ValidationError:
    """The error of sizes that were drawn and do not fit."""
    return ValidationError(Diagnostic("NQX413", "error", message, path="dims"))
