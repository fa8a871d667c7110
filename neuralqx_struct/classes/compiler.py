"""The compiler: schema documents -> Struct classes, and :class:`Schema`, the users' handle of a schema.

Reading and linting import no JAX, but making the first class does. Documents of one fingerprint share their classes.

Example:
    >>> schema = load_schema('''
    ... language: "1"
    ... schema: lab.point
    ... version: 1
    ... root: Point
    ... structs:
    ...   Point: {fields: {x: "float32[n]", label: {type: str, kind: static, default: here}}}
    ... ''')
    >>> import jax.numpy as jnp
    >>> schema.Point(x=jnp.zeros(2))
    Point(x=float32[2]([0.0, 0.0]), label='here')
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Unpack

from neuralqx_struct.classes.defaults import SizedDefault, default_of, sized_fields
from neuralqx_struct.classes.derivations import derivation, sizes_of_instance
from neuralqx_struct.errors import SchemaError, SerializationError, did_you_mean, has_errors
from neuralqx_struct.fieldspec import Values, field
from neuralqx_struct.manifest import collector_paused
from neuralqx_struct.manifest.payload import Payload
from neuralqx_struct.markup import table, text
from neuralqx_struct.printing import brief
from neuralqx_struct.references import register_ref
from neuralqx_struct.schema.lock import full_fingerprint
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.series import Series, layout_files, load_series, series_of
from neuralqx_struct.schema.stacks import stacked_fields
from neuralqx_struct.schema.uses import link_all, remember
from neuralqx_struct.tools.linting import lint_series
from neuralqx_struct.types.text import format_type

if TYPE_CHECKING:
    from neuralqx_struct.checkpoint import LoadOptions, ReadOptions

__all__ = ["Schema", "classes_of", "load_schema", "register_hook"]

_CLASSES: dict[str, dict[str, Any]] = {}
_COMPILING = threading.RLock()
_HOOKS: dict[str, Callable[..., Any]] = {}
_OURS = ("neuralqx_struct", "")  # packages; generated code has no name


class Schema:
    """One schema with all its versions; the classes of the newest are attributes and items.

    Made by :func:`load_schema`. Classes are built when they are first asked for.

    Example:
        >>> schema = load_schema("schemas/vmc_state")
        >>> schema.versions, schema.root.__name__
        ((1, 2, 3), 'VMCState')
    """

    def __init__(self, series: Series, version: int) -> None:
        self._series = series
        self._version = version

    @property
    def document(self) -> Document:
        """The document of this version."""
        return self._series.at(self._version)

    @property
    def series(self) -> Series:
        """All versions, as documents."""
        return self._series

    @property
    def id(self) -> str:
        """The identity."""
        return self._series.id

    @property
    def version(self) -> int:
        """The version of the classes."""
        return self._version

    @property
    def versions(self) -> tuple[int, ...]:
        """The known versions, ascending."""
        return self._series.versions

    @property
    def root(self) -> type[Any]:
        """The class of the root struct."""
        root: type[Any] = self[self.document.root]
        return root

    def at(self, version: int) -> Schema:
        """The same schema at another version.

        Raises:
            SchemaError: NQX404: the version is not known.
        """
        self._series.at(version)
        return Schema(self._series, version)

    def load(self, path: str | Path, **options: Unpack[LoadOptions]) -> Any:
        """Load a bundle of any version as this version's root class; see :func:`neuralqx_struct.load`."""
        return self.root.load(path, **options)

    @property
    def layouts(self) -> tuple[str, ...]:
        """The names of the layouts in the folder of the schema, for :meth:`from_layout`."""
        return tuple(layout_files(self._series.folder))

    def from_layout(
        self,
        source: Any,
        layout: Any,
        values: Values | None = None,
        *,
        storage_options: Values | None = None,
        **options: Unpack[ReadOptions],
    ) -> Any:
        """Loads a foreign checkpoint as this version's root class.

        Args:
            source: The path or URL of a file or folder that another program wrote, or a mapping of names to arrays.
            layout: The name of one of :attr:`layouts`, or the path or the text of a layout.
            values: Values and sizes that the file does not show, by name or path; they win over those of the layout.
            storage_options: Options of fsspec for a URL, such as keys.
            **options: As for :func:`neuralqx_struct.from_state_dict`; ``report`` also receives the defaults, and the
                arrays that the layout ignores. ``like`` may also be the object that was saved, such as the model of a
                file of Equinox, which has no names, or a mapping of names to its leaves in their order.

        Raises:
            SchemaError: The layout has errors.
            SerializationError: The file does not fit, with every missing, extra and misshapen array.
        """
        from neuralqx_struct.layouts.payloads import adopted

        root = self.root  # the error without JAX names it
        from neuralqx_struct.trees import leaves_with_paths

        saved = None if isinstance(options.get("like"), root) else options.pop("like", None)
        if saved is not None and not isinstance(saved, Mapping):
            saved = leaves_with_paths(saved)
        payload = adopted(
            self._series,
            layout,
            source,
            values,
            report=options.get("report"),
            like=saved,
            storage_options=storage_options,
            order="all" if options.get("select") is None else "some",
        )
        held = {**payload.document, "array_data": payload.arrays}
        return root.from_state_dict(held, **options)

    def to_layout(
        self,
        obj: Any,
        layout: Any,
        values: Values | None = None,
        like: Any = None,
        trust: Iterable[str] = (),
    ) -> Mapping[str, Any]:
        """The numpy arrays of a foreign checkpoint by name; the inverse of :meth:`from_layout`.

        Each array is computed when it is asked for, and not kept: ``dict(arrays)`` keeps all.

        Args:
            obj: An instance of the root class. Arrays that the layout ignores are left out.
            layout: As for :meth:`from_layout`.
            values: Sizes that no array shows.
            like: The foreign file, or its mapping, whose order of names the result has.
            trust: Modules with the functions of ``python`` steps that lead to the version of the layout.

        Raises:
            SerializationError: The instance does not fit the layout, with every problem. An exact cast that the values of
                an array do not allow is an error when that is asked for.
        """
        from neuralqx_struct.layouts.payloads import released
        from neuralqx_struct.layouts.release import ReleasedArrays

        if not isinstance(obj, self.root):
            wanted = self.document.ref(self.document.root)
            message = f"expected an instance of {wanted}, got {brief(obj)}"
            raise SerializationError(message, code="NQX401", hint="pass what from_layout returned")
        held = obj.to_state_dict(copy=False)
        payload = Payload(held, held.pop("array_data"))
        found = released(payload, self._series, layout, values, like=like, trust=trust)
        return ReleasedArrays(found)

    def __getitem__(self, name: str) -> Any:
        classes = classes_of(self._series, self._version, own=True)
        owner, inner = self.document.place_of(name)
        if owner is not self.document and inner in owner.structs:
            return classes_of(series_of([owner]), owner.version)[inner]
        if name not in classes:
            hint = did_you_mean(name, classes)
            raise SchemaError(
                f"expected a struct of {self.id} version {self._version}, got {name!r}",
                code="NQX280",
                hint=hint or f"it has {', '.join(classes)}",
            )
        return classes[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.document.structs:
            hint = did_you_mean(name, [*self.document.structs])
            message = f"schema {self._series.id} version {self._version} has no struct {name!r}"
            raise AttributeError(f"{message}; {hint}" if hint else message, name=name, obj=self)
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.document.structs)

    def __contains__(self, name: object) -> bool:
        return name in self.document.structs

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.document.structs]

    def _repr_html_(self) -> str:
        rows = (
            (text(name), text(field_name), text(field.text), text(field.kind), text(field.doc))
            for name, struct in self.document.structs.items()
            for field_name, field in struct.fields.items()
        )
        return table(("struct", "field", "type", "kind", "meaning"), rows, repr(self))

    def __repr__(self) -> str:
        return f"<Schema {self.id} version {self._version} of {', '.join(map(str, self.versions))}>"


def load_schema(where: str | Path) -> Schema:
    """Read a schema: a folder (all versions), a file (that version alone), or text (if it has a newline).

    Args:
        where: Such as ``"schemas/vmc_state"``.

    Raises:
        SchemaError: Everything that is wrong, each with file, line and column.

    Example:
        >>> load_schema("schemas/vmc_state/v2.yaml").version
        2
    """
    if not isinstance(where, (str, os.PathLike)):
        raise TypeError(f"load_schema(): expected a folder, a file or text, got {brief(where)}")
    series = load_series(where)
    problems = lint_series(series)
    if has_errors(problems):
        raise SchemaError(d for d in problems if d.severity == "error")
    remember(series.documents.values())
    return Schema(series, series.head.version)


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
    """The Struct classes of one version, by name; the same ones for every document of the same fingerprint.

    Those of a schema that the user has loaded, with ``own``, migrate by its steps from now on, and readers find their
    references. Schemas from a bundle never override the user's.
    """
    document = series.at(version)
    fingerprint = full_fingerprint(document)
    _require_jax()
    with _COMPILING:
        if fingerprint not in _CLASSES:
            with collector_paused():
                made = {name: _compile(document, name) for name in document.structs}
            _CLASSES[fingerprint] = made
        classes = _CLASSES[fingerprint]
        for cls in classes.values():
            if own or "__nqx_series__" not in cls.__dict__:
                type.__setattr__(cls, "__nqx_series__", series)
            if own:
                register_ref(cls)
    return MappingProxyType(classes)


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


def _compile(document: Document, name: str) -> Any:
    from neuralqx_struct.classes.instance_checks import InstanceCheck
    from neuralqx_struct.classes.sized_defaults import complete
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
        namespace["__annotations__"][field_name] = format_type(field_declaration.declared)
        namespace[field_name] = _field(document, name, field_declaration, f"{ref}.{field_name}")
    makers = sized_fields(namespace)
    namespace["__nqx_sized__"] = (
        functools.partial(complete, document, name, makers) if makers else None
    )
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
    kind = "static" if is_derived and declaration.kind == "node" else declaration.kind
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
        derived = derivation(declaration.derivation, sizes, plain=options["static"])
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
