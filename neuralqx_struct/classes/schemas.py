"""Schemas as users hold them: :func:`load_schema` reads one, and :class:`Schema` has its versions and classes.

Reading and linting import no JAX, but making the first class does.

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

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from neuralqx_struct.classes.compiler import classes_of
from neuralqx_struct.errors import SchemaError, SerializationError, did_you_mean, has_errors
from neuralqx_struct.fieldspec import Values
from neuralqx_struct.manifest.payload import Payload
from neuralqx_struct.printing import brief, escaped, notebook_table
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.series import Series, layout_files, load_series, series_of
from neuralqx_struct.schema.uses import remember
from neuralqx_struct.tools.linting import lint_series

if TYPE_CHECKING:
    from neuralqx_struct.checkpoint import LoadKeywords, ReadKeywords

__all__ = ["Schema", "load_schema"]


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

    def load(self, path: str | Path, **options: Unpack[LoadKeywords]) -> Any:
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
        **options: Unpack[ReadKeywords],
    ) -> Any:
        """Loads a foreign checkpoint as this version's root class.

        Args:
            source: The path or URL of a file or folder that another program wrote, a mapping of names to arrays, or the path
                of a bundle, whose arrays and plain values are named by their paths.
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
        saved = None if isinstance(options.get("like"), root) else options.pop("like", None)
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
            (
                escaped(name),
                escaped(field_name),
                escaped(field.text),
                escaped(field.kind),
                escaped(field.doc),
            )
            for name, struct in self.document.structs.items()
            for field_name, field in struct.fields.items()
        )
        return notebook_table(("struct", "field", "type", "kind", "meaning"), rows, repr(self))

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
