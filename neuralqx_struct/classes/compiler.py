"""The compiler: schema documents -> Struct classes.

Documents of one fingerprint and order of fields share their classes.

Example:
    >>> classes = classes_of(series, 3)
    >>> classes["VMCState"] is classes_of(series, 3)["VMCState"]
    True
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
import types
import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from neuralqx_struct.classes.defaults import (
    SizedDefault,
    complete,
    default_of,
    derivation,
    shaped_result,
    sized_fields,
    sizes_of_instance,
)
from neuralqx_struct.errors import SchemaError, SerializationError
from neuralqx_struct.fieldspec import field
from neuralqx_struct.manifest import collector_paused
from neuralqx_struct.references import register_ref
from neuralqx_struct.schema.graph import graph_of
from neuralqx_struct.schema.lint.document import not_free, objection_to_field
from neuralqx_struct.schema.lock import full_fingerprint
from neuralqx_struct.schema.model import Document, FieldDeclaration, once
from neuralqx_struct.schema.series import Series, series_of
from neuralqx_struct.schema.stacks import stacked_fields
from neuralqx_struct.schema.uses import link_all
from neuralqx_struct.types import walk_type
from neuralqx_struct.types.text import format_type

__all__ = ["classes_of", "register_hook"]

#: By the fingerprint of the document and the order of its fields, which is that of leaves.
_CLASSES: dict[tuple[Any, ...], dict[str, Any]] = {}
_COMPILING = threading.RLock()
_HOOKS: dict[str, Callable[..., Any]] = {}
_OURS = ("neuralqx_struct", "")  # packages; generated code has no name


def register_hook(name: str, function: Callable[..., Any]) -> None:
    """Make a function of a value available to schema files as ``converter: name`` or ``validator: name``."""
    _HOOKS[name] = function


def _hook(name: str | None) -> Callable[..., Any] | None:
    """The function of a registered name; looked up on call, so that files can be read before it is registered."""
    if name is None:
        return None

    def call(value: Any) -> Any:
        if isinstance(value, SizedDefault):
            return value  # which is not made yet
        if name not in _HOOKS:
            raise SchemaError(
                f"expected a registered hook, got {name!r}",
                code="NQX313",
                hint=f"call neuralqx_struct.classes.compiler.register_hook({name!r}, function) first",
            )
        return _HOOKS[name](value)

    call.__name__ = name
    return call


def classes_of(series: Series, version: int, *, own: bool = False) -> Mapping[str, Any]:
    """The Struct classes of one version, by name; the same ones for every document of the same fingerprint and order.

    Those of a schema that the user has loaded, with ``own``, migrate by its steps from now on, and readers find their
    references. Schemas from a bundle never override the user's.
    """
    document = series.at(version)
    key = _key(document)
    _require_jax()
    with _COMPILING:
        if key not in _CLASSES:
            with collector_paused():
                stacked = graph_of(document).stacked
                made = {
                    name: _compile(document, name, stacked=name in stacked)
                    for name in document.structs
                }
            _CLASSES[key] = made
        classes = _CLASSES[key]
        for cls in classes.values():
            if own or "__nqx_series__" not in cls.__dict__:
                type.__setattr__(cls, "__nqx_series__", series)
            if own:
                register_ref(cls)
    return MappingProxyType(classes)


@once
def _key(document: Document) -> tuple[Any, ...]:
    """The key under which classes are kept: equal for documents that have the same ones."""
    orders = ((name, *struct.fields) for name, struct in document.structs.items())
    return full_fingerprint(document), *orders


def _require_jax() -> None:
    """Raises an error that names JAX where it is not installed: without it there are no classes."""
    try:
        importlib.import_module("jax")
    except ModuleNotFoundError as error:
        if error.name not in ("jax", "jaxlib"):
            raise
        message = "expected the package jax for the classes of a schema, got none"
        hint = "pip install jax; convert, validate, inspect and infer work without it"
        raise SerializationError(message, code="NQX615", hint=hint) from error


def _compile(document: Document, name: str, *, stacked: bool) -> Any:
    from neuralqx_struct.documents.instance_checks import InstanceCheck
    from neuralqx_struct.stacking import item_of
    from neuralqx_struct.struct import Struct
    from neuralqx_struct.struct.meta import StructMeta

    declaration = document.structs[name]
    ref = document.ref(name)
    namespace: dict[str, Any] = {
        "__module__": "neuralqx_struct.classes.compiler",
        "__qualname__": name,
        "__doc__": _docstring(document, name),
        "__annotations__": {},
        "__nqx_ref__": ref,
        "__nqx_document__": document,
        "__nqx_check__": InstanceCheck(document, name),
        "__nqx_stacked__": stacked_fields(declaration),
        "__nqx_rebuild__": staticmethod(
            lambda: (_rebuild, ([d.to_data() for d in document.closure()], name))
        ),
    }
    for field_name, field_declaration in declaration.fields.items():
        if reason := objection_to_field(field_name):  # of a document that no one has linted
            message = not_free(field_name, reason)
            raise SchemaError(
                message, code="NQX118", path=f"$.structs.{name}.fields", hint="rename it"
            )
        namespace["__annotations__"][field_name] = format_type(field_declaration.declared)
        namespace[field_name] = _field(document, name, field_declaration, f"{ref}.{field_name}")
    makers = sized_fields(namespace)
    namespace["__nqx_sized__"] = (
        functools.partial(complete, document, name, makers) if makers else None
    )
    if stacked:
        # Python and numpy take an object with subscripts for a sequence, unless `__iter__` is None.
        namespace |= {"__getitem__": item_of, "__iter__": None}
    return StructMeta(name, (Struct,), namespace)


def _docstring(document: Document, name: str) -> str:
    """The docs of a struct and its fields, for ``help``."""
    declaration = document.structs[name]
    head = declaration.doc or f"Struct {name} of {document.id} version {document.version}."
    lines: list[str] = []
    for each, described in declaration.fields.items():
        if described.doc or described.unit:
            unit = f" In {described.unit}." if described.unit else ""
            lines.append(f"    {each}: {' '.join(described.doc.split())}{unit}".rstrip())
    return "\n".join([head, "", "Attributes:", *lines]) if lines else head


def _rebuild(data: Any, name: str) -> Any:
    """Unpickle a schema-made class from the documents in the pickle."""
    from neuralqx_struct.schema.reading import document_from_data

    document, *_ = link_all([document_from_data(each, "<pickle>") for each in data])
    return classes_of(series_of([document]), document.version)[name]


def _field(document: Document, struct: str, declaration: FieldDeclaration, where: str) -> Any:
    metadata: dict[str, Any] = {"tags": tuple(declaration.tags)}
    for extra in ("unit", "deprecated", "examples", "axes"):
        if getattr(declaration, extra):
            metadata[extra] = getattr(declaration, extra)
    is_derived = declaration.derivation is not None
    kind = declaration.kind
    if is_derived and kind == "node":
        parts = [] if declaration.type is None else walk_type(declaration.declared)
        kind = "opaque" if any(part.unhashable for part in parts) else "static"
    options: dict[str, Any] = {
        "static": kind == "static",
        "pytree": kind != "opaque",
        "doc": declaration.doc or None,
        "metadata": metadata,
        "aliases": declaration.aliases,
        "serialize": declaration.serialize,
        "reset": declaration.reset,
        # YAML lists the fields in the order of reading: defaults may come before required fields.
        "kw_only": True,
    }
    if declaration.derivation is not None:
        outside = declaration.derivation.heads - document.structs[struct].fields.keys()
        sizes = sizes_of_instance(document, struct, outside)
        plain, shaped = options["static"], shaped_result(document, declaration, where)
        derived = derivation(declaration.derivation, sizes, plain=plain, shaped=shaped, where=where)
        return field(**options, init=False, derived=derived)
    validators = [hook for hook in [_hook(declaration.validator)] if hook is not None]
    if declaration.has_default:
        try:
            options |= default_of(document, declaration)
        except SchemaError as error:  # lint finds it in files; bundles are not linted
            first = error.diagnostics[0]
            message = f"default of {where}: {first.message}"
            raise SchemaError(message, code=first.code, hint=first.hint) from error
        sized = isinstance(options.get("default_factory"), SizedDefault)
        if declaration.deprecated is not False and not sized:
            validators.append(_warns(where, declaration.deprecated, options))
    return field(**options, converter=_hook(declaration.converter), validator=validators)


def _warns(where: str, deprecated: bool | str, options: Mapping[str, Any]) -> Callable[[Any], bool]:
    """A validator that accepts every value, and warns of those that differ from the default."""
    from neuralqx_struct.struct.equality import same_value

    make = options.get("default_factory") or (lambda: options["default"])
    advice = f"; {deprecated}" if isinstance(deprecated, str) else ""

    def warn(value: Any) -> bool:
        default = make()
        if value is not default and not same_value(value, default):
            message = (
                f"{where}: expected the default of a deprecated field, got another value{advice}"
            )
            warnings.warn(message, DeprecationWarning, stacklevel=_frames_of_ours())
        return True

    return warn


def _frames_of_ours() -> int:
    """The number of frames of this package above the caller: the warning names the first other one."""
    frame: types.FrameType | None = sys._getframe(1)  # noqa: SLF001 - as warnings and logging do
    level = 1
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in _OURS:
        frame, level = frame.f_back, level + 1
    return level
