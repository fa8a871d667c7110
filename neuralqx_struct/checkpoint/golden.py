"""Golden payloads: a tiny bundle for each version of a schema, which every later release must be able to read.

``tools/history.py`` checks them, without JAX.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from neuralqx_struct.checkpoint import from_state_dict, to_state_dict
from neuralqx_struct.classes.compiler import Schema, load_schema
from neuralqx_struct.classes.examples import example
from neuralqx_struct.errors import Diagnostic, SchemaError, StructError
from neuralqx_struct.schema.series import SchemaMissingError
from neuralqx_struct.tools.history import golden_findings, golden_place

__all__ = ["write_golden"]

_TRIES = 5  # how often a migration may refuse the values of an instance

_DTYPES = ("bfloat16", "float16", "float32", "float64", "complex64", "complex128")


def write_golden(path: str | Path, *, trust: Iterable[str] = ()) -> list[Path]:
    """Writes a golden payload for each version of a schema that has none, of :func:`~neuralqx_struct.example`.

    The same schema gives the same values. They are whole numbers where the schema allows it, so that exact casts of
    later versions take them.

    Args:
        path: A schema folder, or the file of one version.
        trust: Packages whose registered functions ``python`` steps may run; they are imported.

    Returns:
        The new bundles, in the folder ``golden``. Existing ones are not changed.

    Raises:
        SchemaMissingError: There is nothing at ``path``.
        SchemaError: The schema has errors, no instance of it can be made, or none that its migrations take.
    """
    where = Path(path)
    if not where.exists():
        raise SchemaMissingError.at(path)
    folder = where if where.is_dir() else where.parent
    schema = load_schema(folder)
    versions = schema.versions if where.is_dir() else load_schema(where).versions
    missing = [version for version in versions if not golden_place(folder, version).exists()]
    trusted = tuple(trust)
    return [_write(schema, version, golden_place(folder, version), trusted) for version in missing]


def _write(schema: Schema, version: int, place: Path, trust: tuple[str, ...]) -> Path:
    found: list[Diagnostic] = []
    for key in range(_TRIES):
        _whole(example(schema.at(version).root, key=key)).export(place, overwrite=key > 0)
        found = golden_findings(schema.series, version, trust)
        if not found:
            return place
    shutil.rmtree(place)
    raise SchemaError(found)


def _whole(instance: Any) -> Any:
    """The instance with whole numbers in its arrays, unless its constraints refuse them."""

    def rounded(leaf: Any) -> Any:
        holds_whole = isinstance(leaf, (jax.Array, np.ndarray)) and str(leaf.dtype) in _DTYPES
        return abs(leaf.round()).astype(leaf.dtype) if holds_whole else leaf

    try:
        return from_state_dict(
            to_state_dict(jax.tree.map(rounded, instance)), load_cls=type(instance)
        )
    except StructError:  # constraints refuse them
        return instance
