"""The places, schemas and classes that arguments name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuralqx_struct.errors import SchemaError, did_you_mean, has_errors

if TYPE_CHECKING:
    from neuralqx_struct.schema.model import Document
    from neuralqx_struct.schema.series import Series


def located(value: Any) -> Any:
    """A value with the URLs in it as places, whose text has no passwords."""
    if isinstance(value, list):
        return [located(each) for each in value]
    if not isinstance(value, str) or "://" not in value:
        return value
    from neuralqx_struct.places.urls import is_url, place_of

    return place_of(value) if is_url(value) else value


def existing(path: Path) -> Path:
    """The path of a schema.

    Raises:
        SchemaMissingError: It does not exist.
    """
    if not path.exists():
        from neuralqx_struct.schema.series import SchemaMissingError

        raise SchemaMissingError.at(path)
    return path


def schemas_of(schema: Any) -> Any:
    """The schemas of ``--schema``, read once: a path, those of the project file, or None."""
    if schema is None:
        return None
    from neuralqx_struct.schema.catalogue import schemas_given

    return schemas_given(existing(schema) if isinstance(schema, Path) else schema)


def sound_series(path: Path) -> Series:
    """The versions of a schema, the newest of which has no errors.

    Raises:
        SchemaError: It cannot be read, or has errors.
    """
    from neuralqx_struct.schema.series import load_series

    series = load_series(path)
    _require_sound(series.head, series.sources[series.head.version])
    return series


def _require_sound(document: Document, source: Any) -> None:
    from neuralqx_struct.tools.linting import lint_document

    found = lint_document(document, source)
    if has_errors(found):
        raise SchemaError([finding for finding in found if finding.severity == "error"])


def struct_class(name: str) -> type:
    """Imports the Struct class that ``MODULE:CLASS`` names.

    Raises:
        SchemaError: There is no such module or class.
    """
    import neuralqx_struct.struct  # noqa: F401 - without JAX the error names it
    from neuralqx_struct.fieldspec import is_struct
    from neuralqx_struct.references import import_trusted

    module_name, _, qualname = name.partition(":")
    if not module_name or not qualname:
        raise refused(f"expected MODULE:CLASS, got {name!r}", "such as lab.model:TrainState")
    if not import_trusted(module_name, SchemaError, "NQX400"):
        message = (
            f"expected a module that can be imported, got {module_name!r}, which does not exist"
        )
        raise refused(message, "install it, or run the command in the folder that has it")
    found: Any = sys.modules[module_name]
    for part in qualname.split("."):
        if not hasattr(found, part):
            members = vars(found).items()
            classes = [
                key for key, value in members if isinstance(value, type) and is_struct(value)
            ]
            message = f"expected a class in {module_name}, got {qualname!r}"
            raise refused(message, did_you_mean(part, classes))
        found = getattr(found, part)
    if not isinstance(found, type) or not is_struct(found):
        hint = "name a subclass of neuralqx_struct.Struct"
        raise refused(f"expected a Struct class, got {name}", hint)
    return found


def refused(message: str, hint: str | None) -> SchemaError:
    """The error about an argument that names nothing."""
    return SchemaError(message, code="NQX400", hint=hint)
