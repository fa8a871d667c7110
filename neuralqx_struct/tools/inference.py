"""Inference: a first schema from one bundle without a schema, or from a file of another program with a layout.

Such a file determines names, types, dtypes and sizes; it does not determine the names of sizes, static fields and the
values of other files. Equal sizes become a suggested dim, unknown parts a TODO, and values without a type in the
language ``pytree``. The text is written in :mod:`neuralqx_struct.tools.drafts`.

Example:
    >>> from neuralqx_struct import bundle
    >>> from neuralqx_struct.manifest.payload import Payload
    >>> import tempfile
    >>> node = {"__kind__": "struct", "type": "lab.model:State", "fields": {"step": 7, "loss": None}}
    >>> path = bundle.write(f"{tempfile.mkdtemp()}/ckpt", Payload({"version": 1, "manifest": node, "arrays": {}}, {}))
    >>> print(infer(path).partition("structs:")[2], end="")
    <BLANKLINE>
      State:
        fields:
          step: int
          loss: pytree  # TODO: only null was saved; add its other types, such as float | null
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from neuralqx_struct import bundle
from neuralqx_struct.bundle.urls import Place, place_of
from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.formats import is_foreign
from neuralqx_struct.manifest import Limits
from neuralqx_struct.schema.language import MODELINE
from neuralqx_struct.schema.series import carried_series
from neuralqx_struct.schema.text.loader import dump_yaml, read_text
from neuralqx_struct.tools.drafts import draft

__all__ = ["Inferred", "infer"]


class Inferred(str):
    """The text of a first schema, with the layout of a foreign file.

    Attributes:
        layout: The text of a layout that reads the file under the schema; empty for bundles.
        findings: Warnings about the arrays that the layout ignores, as no schema declares their dtype.

    Example:
        >>> found = Inferred("schema: lab.net", "layout: hf")
        >>> found.upper(), found.layout, found.schema
        ('SCHEMA: LAB.NET', 'layout: hf', 'schema: lab.net')
    """

    __slots__ = ("findings", "layout")
    layout: str
    findings: tuple[Diagnostic, ...]

    def __new__(cls, schema: str, layout: str = "", findings: Iterable[Diagnostic] = ()) -> Self:
        """Makes the text of a schema, with that of a layout."""
        made = super().__new__(cls, schema)
        made.layout, made.findings = layout, tuple(findings)
        return made

    @property
    def schema(self) -> str:
        """The text of the schema, as plain text."""
        return str(self)

    def write(self, folder: str | Path, *, overwrite: bool = False) -> list[Path]:
        """Writes ``v1.yaml``, and beside it ``layouts/NAME.yaml``; returns the files.

        Raises:
            BundleExistsError: One of them exists, and ``overwrite`` is false.
        """
        place = Path(folder)
        document: Any = read_text(self.schema).data
        texts = {place / f"v{document['version']}.yaml": self.schema}
        if self.layout:
            layout: Any = read_text(self.layout).data
            texts[place / "layouts" / f"{layout['layout']}.yaml"] = self.layout
        for path in texts:
            if os.path.lexists(path) and not overwrite:
                hint = "pass overwrite=True, or name another folder"
                message = "expected a new file, got one that exists"
                raise bundle.BundleExistsError(message, file=str(path), hint=hint)
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return [*texts]


def infer(
    path: str | Place,
    *,
    schema: str | None = None,
    like: Any = None,
    limits: Limits | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Inferred:
    """Writes a first schema for a bundle or a foreign file: one that has no errors, and that the file conforms to.

    Args:
        path: A bundle, ours or neuraLQX's, a ``manifest.json``, or a file of another program such as
            ``model.safetensors``. No array is read.
        schema: Identity of the schema; by default from the module and name of the root's class, or the name of the file.
        like: An object of the structure of a foreign file, for formats that have none of their own.
        limits: Sizes above which it is refused.
        storage_options: Options of fsspec for a URL, such as keys.

    Returns:
        YAML text with a TODO for everything that the file does not determine. If the bundle has its schema inside, that.
        For a foreign file, ``layout`` is the text of a layout by which the schema reads it, and ``findings`` names the
        arrays that it leaves out: text, dates and objects have no type in schemas.

    Raises:
        SerializationError: It is no bundle and no foreign file of a known kind, or damaged.
        SchemaError: A name is not possible in the language.
    """
    path = place_of(path, storage_options)
    if is_foreign(path):
        # Imported late: bundles need no layouts.
        from neuralqx_struct.tools.foreign_drafts import draft_foreign

        left: list[Diagnostic] = []
        texts = draft_foreign(
            path, schema, like=like, limits=limits, storage_options=storage_options, report=left
        )
        return Inferred(*texts, left)
    manifest = bundle.read_manifest(path, limits=limits)
    stored = manifest.get("schema")
    if stored is not None:
        series = carried_series(manifest).get(stored["id"])
        if series is not None:
            return Inferred(MODELINE + dump_yaml(series.at(stored["version"]).to_data()))
    return Inferred(draft(manifest["manifest"], schema, path.name)[0])
