"""Declarative schemas for JAX checkpoints.

A Struct is an immutable, typed container that is a JAX pytree, declared in Python or in a YAML/JSON schema file, saved
as a bundle that any tool can validate, and moved between schema versions by declared, checked migrations. Customarily
``import neuralqx_struct as s``. Names are imported when they are first used: reading and checking schemas and bundles
never imports JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from neuralqx_struct import container as container
    from neuralqx_struct import filters as filters
    from neuralqx_struct.bundle import verify as verify
    from neuralqx_struct.compiler import Schema as Schema
    from neuralqx_struct.compiler import load_schema as load_schema
    from neuralqx_struct.errors import Diagnostic as Diagnostic
    from neuralqx_struct.errors import FrozenStructError as FrozenStructError
    from neuralqx_struct.errors import IntegrityError as IntegrityError
    from neuralqx_struct.errors import MigrationError as MigrationError
    from neuralqx_struct.errors import SchemaError as SchemaError
    from neuralqx_struct.errors import SerializationError as SerializationError
    from neuralqx_struct.errors import StructError as StructError
    from neuralqx_struct.errors import UntrustedError as UntrustedError
    from neuralqx_struct.errors import ValidationError as ValidationError
    from neuralqx_struct.fieldspec import MISSING as MISSING
    from neuralqx_struct.fieldspec import FieldKind as FieldKind
    from neuralqx_struct.fieldspec import FieldSpec as FieldSpec
    from neuralqx_struct.fieldspec import field as field

# Where each public name lives. tests/test_imports.py compares this table with the imports above.
_HOME = {
    "neuralqx_struct.bundle": ("verify",),
    "neuralqx_struct.compiler": ("Schema", "load_schema"),
    "neuralqx_struct.errors": (
        "Diagnostic",
        "FrozenStructError",
        "IntegrityError",
        "MigrationError",
        "SchemaError",
        "SerializationError",
        "StructError",
        "UntrustedError",
        "ValidationError",
    ),
    "neuralqx_struct.fieldspec": ("MISSING", "FieldKind", "FieldSpec", "field"),
}
_MODULES = {"container": "neuralqx_struct.container", "filters": "neuralqx_struct.filters"}
_WHERE = {name: module for module, names in _HOME.items() for name in names}

__all__ = ["__version__", *_WHERE, *_MODULES]  # pyright: ignore[reportUnsupportedDunderAll]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        value = getattr(importlib.import_module(_WHERE[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(_MODULES[name])
    else:
        raise AttributeError(f"module 'neuralqx_struct' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
