"""Drafts: the first file of a new schema, for its author to change.

Owns :func:`new_schema`. The file is sound as it is, shows the most used members with a comment each, and starts with
the line that tells editors which JSON Schema completes it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.schema.model import LANGUAGE_SCHEMA_ID

__all__ = ["new_schema"]

_IDENTITY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
_DRAFT = """\
# yaml-language-server: $schema={modeline}
language: "1"
schema: {identity}  # the identity: the same in every version
version: 1
doc: What checkpoints of this schema are.
root: {root}  # the struct that a checkpoint is

dims:  # sizes that several arrays share
  n_in: {{min: 1, doc: input features}}
  n_out: {{min: 1, doc: output features}}

structs:
  Layer:
    fields:
      kernel: "float32[n_in, n_out]"  # dtype and sizes
      bias: {{type: "float32[n_out]", tags: [trainable], doc: Added to the product.}}
  {root}:
    doc: Everything that training needs to go on.
    fields:
      layer: Layer
      key: "prng_key[threefry2x32]"
      step: {{type: int, default: 0, ge: 0, doc: Finished optimisation steps.}}
      loss: {{type: "float | null", default: null}}  # null: not known yet
      learning_rate: {{type: float, kind: static, default: 0.001}}  # static: no leaf, jit compiles for each value
    constraints:
      - {{expr: "learning_rate > 0", message: the learning rate must be positive}}
"""


def new_schema(identity: str, folder: str | Path = "schemas") -> Path:
    """Write the first version of a new schema: ``<folder>/<last part of the identity>/v1.yaml``.

    Args:
        identity: Such as ``lab.train_state``.
        folder: Where the folders of schemas lie.

    Returns:
        The file.

    Raises:
        SchemaError: NQX400: the identity is none; there is something at the place.
    """
    if not _IDENTITY.fullmatch(identity):
        message = f"expected an identity of names joined by dots, got {identity!r}"
        raise SchemaError(message, code="NQX400", hint="such as lab.train_state")
    name = identity.rpartition(".")[2]
    place = Path(folder) / name
    if os.path.lexists(place):
        message = "expected a new folder, got one that exists"
        hint = "choose another identity or --in; a new version is a new file, such as v2.yaml"
        raise SchemaError(message, code="NQX400", file=str(place), hint=hint)
    words = re.split(r"_+|(?<=[a-z0-9])(?=[A-Z])", name)
    root = "".join(word[:1].upper() + word[1:] for word in words) or "State"
    if not root[0].isalpha() or root == "Layer":
        root = f"{root}State" if root[0].isalpha() else f"State{root}"
    published = Path(folder) / "struct-schema" / "1.json"
    modeline = "../struct-schema/1.json" if published.is_file() else LANGUAGE_SCHEMA_ID
    place.mkdir(parents=True)
    file = place / "v1.yaml"
    file.write_text(_DRAFT.format(modeline=modeline, identity=identity, root=root), encoding="utf-8")
    return file
