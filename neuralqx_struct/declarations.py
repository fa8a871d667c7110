"""What a Python field or class says of itself, as a schema file holds it: defaults, docs, tags.

Owns the values and the names, not the types, which are ``writer.py``'s. Code of the user does not run for any of it.

Example:
    >>> plain_value((1, "a")), plain_value(object()) is MISSING
    ([1, 'a'], True)
"""

from __future__ import annotations

import enum
import inspect
import math
import re
from pathlib import PurePath
from typing import Any

import numpy as np

from neuralqx_struct.fieldspec import MISSING, FieldSpec
from neuralqx_struct.schema.types import DTYPES

__all__ = ["described_field", "documented_fields", "identity_of", "plain_default", "plain_value", "written_doc"]


def plain_default(spec: FieldSpec) -> Any:
    """The default as a file can hold it, or MISSING; code of the user does not run for it."""
    if spec.default_factory is MISSING:
        return plain_value(spec.default)
    makers: tuple[Any, ...] = (dict, list)
    return spec.default_factory() if spec.default_factory in makers else MISSING


def plain_value(value: Any) -> Any:
    """A value as a file can hold it, or MISSING."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else MISSING
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, np.dtype):
        return value.name if value.name in DTYPES else MISSING
    if type(value) in (list, tuple):
        items = [plain_value(item) for item in value]
        return MISSING if MISSING in items else items
    if type(value) is dict and all(type(key) is str for key in value):
        members = {key: plain_value(item) for key, item in value.items()}
        return MISSING if MISSING in members.values() else members
    return MISSING


def described_field(spec: FieldSpec, doc: str = "") -> dict[str, Any]:
    """What a field says for people and tools; ``doc`` is for those that say nothing themselves."""
    metadata = spec.metadata
    said = {
        "doc": spec.doc or doc,
        "unit": metadata.get("unit"),
        "tags": sorted(spec.tags),
        "aliases": list(spec.aliases),
        "deprecated": metadata.get("deprecated"),
        "examples": plain_value(list(metadata.get("examples", ()))),
    }
    return {name: value for name, value in said.items() if value and value is not MISSING}


def written_doc(cls: type) -> dict[str, str]:
    """The docstring that somebody wrote, not one that was generated or inherited."""
    written = cls.__dict__.get("__doc__")
    if not isinstance(written, str) or written.startswith(f"{cls.__name__}(") or written == "An enumeration.":
        return {}
    text = inspect.cleandoc(written)
    return {"doc": text} if text else {}


def documented_fields(cls: type) -> dict[str, str]:
    """What the section ``Attributes:`` of a docstring says of each field, as Google's style and napoleon have it."""
    _, _, section = f"\n{written_doc(cls).get('doc', '')}\n".partition("\nAttributes:\n")
    found: dict[str, str] = {}
    name, margin = "", ""
    for line in section.splitlines():
        if line.strip() and not line[0].isspace():
            break  # the next section, or text
        entry = re.match(r"(\s+)(\w+)(?: \([^)]*\))?:(?: +|$)(.*)", line)
        if entry and (not margin or entry[1] == margin):
            margin, name, found[entry[2]] = entry[1], entry[2], entry[3].strip()
        elif name and line.strip():
            found[name] = f"{found[name]} {line.strip()}".strip()
    return {field: text for field, text in found.items() if text}


def identity_of(cls: type) -> str:
    """``lab.model:VMCState`` as ``lab.model.vmc_state``."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", cls.__name__).lower()
    parts = (re.sub(r"\W", "_", part, flags=re.ASCII) for part in (*cls.__module__.split("."), snake))
    return ".".join(part if re.match(r"[A-Za-z_]", part) else f"_{part}" for part in parts)
