"""Golden payloads: a tiny bundle for each version of a schema, which every later release must be able to read.

``tools/history.py`` checks them, without JAX.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from neuralqx_struct.checkpoint import from_state_dict, to_state_dict
from neuralqx_struct.classes.examples import drawn_instance
from neuralqx_struct.classes.schemas import Schema, load_schema
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
        The new bundles, in the folder ``golden``: all that are missing, or none. Existing ones are not changed.

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
    places = {version: golden_place(folder, version) for version in versions}
    missing = {version: place for version, place in places.items() if not place.exists()}
    if not missing:
        return []
    trusted = tuple(trust)
    # Beside their places until all of them can be read: a failure leaves nothing behind.
    with tempfile.TemporaryDirectory(prefix=".golden-", dir=folder) as scratch:
        made = {version: Path(scratch) / f"v{version}" for version in missing}
        for version, new in made.items():
            _write(schema, version, new, trusted)
        for version, place in missing.items():
            place.parent.mkdir(exist_ok=True)
            made[version].rename(place)
    return [*missing.values()]


def _write(schema: Schema, version: int, new: Path, trust: tuple[str, ...]) -> None:
    found: list[Diagnostic] = []
    for key in range(_TRIES):
        made = drawn_instance(schema.at(version).root, dims={}, dtypes={}, key=key, alike=True)
        _whole(made).export(new, overwrite=key > 0)
        found = golden_findings(schema.series, version, trust, new)
        if not found:
            return
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
