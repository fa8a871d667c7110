"""Inference: a first schema from one bundle without a schema.

Such a bundle determines names, types, dtypes and sizes; it does not determine the names of sizes, static fields and the
values of other bundles. Equal sizes become a suggested dim, unknown parts a TODO, and values without a type in the
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

from pathlib import Path

from neuralqx_struct import bundle
from neuralqx_struct.schema.language import MODELINE
from neuralqx_struct.schema.series import carried_series
from neuralqx_struct.schema.text.loader import dump_yaml
from neuralqx_struct.tools.drafts import draft

__all__ = ["infer"]


def infer(path: str | Path, *, schema: str | None = None) -> str:
    """Writes a first schema for a bundle: one that has no errors, and that the bundle conforms to.

    Args:
        path: A bundle, ours or neuraLQX's, or a ``manifest.json``. No array is read.
        schema: Identity of the schema; by default from the module and name of the root's class.

    Returns:
        YAML text with a TODO for everything that the bundle does not determine. If the bundle has its schema inside, that.

    Raises:
        SerializationError: It is not a bundle.
        SchemaError: A name is not possible in the language.
    """
    manifest = bundle.read_manifest(path)
    stored = manifest.get("schema")
    if stored is not None:
        series = carried_series(manifest).get(stored["id"])
        if series is not None:
            return MODELINE + dump_yaml(series.at(stored["version"]).to_data())
    return draft(manifest["manifest"], schema, Path(path).name)[0]
