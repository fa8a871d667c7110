"""Declarative schemas for JAX checkpoints.

A Struct is an immutable, typed container that is a JAX pytree, declared in Python or in a YAML/JSON schema file, saved
as a bundle that any tool can validate, and moved between schema versions by declared, checked migrations. Customarily
``import neuralqx_struct as s``. Names are imported when they are first used: reading and checking schemas and bundles
never imports JAX.
"""

from __future__ import annotations

import importlib
import sys
import threading
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from neuralqx_struct import container as container
    from neuralqx_struct import filters as filters
    from neuralqx_struct.checkpoint import export as export
    from neuralqx_struct.checkpoint import from_state_dict as from_state_dict
    from neuralqx_struct.checkpoint import load as load
    from neuralqx_struct.checkpoint import to_state_dict as to_state_dict
    from neuralqx_struct.checkpoint.dicts import from_dict as from_dict
    from neuralqx_struct.checkpoint.jax_export import register_jax_export as register_jax_export
    from neuralqx_struct.checkpoint.meshes import shardings as shardings
    from neuralqx_struct.checkpoint.schemas import schema_of as schema_of
    from neuralqx_struct.checkpoint.warm_start import warm_start as warm_start
    from neuralqx_struct.classes.documents import dump_schema as dump_schema
    from neuralqx_struct.classes.examples import example as example
    from neuralqx_struct.classes.schemas import Schema as Schema
    from neuralqx_struct.classes.schemas import load_schema as load_schema
    from neuralqx_struct.errors import Diagnostic as Diagnostic
    from neuralqx_struct.errors import FrozenStructError as FrozenStructError
    from neuralqx_struct.errors import IntegrityError as IntegrityError
    from neuralqx_struct.errors import MigrationError as MigrationError
    from neuralqx_struct.errors import SchemaError as SchemaError
    from neuralqx_struct.errors import SerializationError as SerializationError
    from neuralqx_struct.errors import StructError as StructError
    from neuralqx_struct.errors import UntrustedError as UntrustedError
    from neuralqx_struct.errors import ValidationError as ValidationError
    from neuralqx_struct.evolution import steps as steps
    from neuralqx_struct.evolution.compatibility import breaking as breaking
    from neuralqx_struct.evolution.diff import diff as diff
    from neuralqx_struct.evolution.folders import migrate_all as migrate_all
    from neuralqx_struct.evolution.migrations import migrate as migrate
    from neuralqx_struct.evolution.revision import revise as revise
    from neuralqx_struct.fieldspec import MISSING as MISSING
    from neuralqx_struct.fieldspec import FieldKind as FieldKind
    from neuralqx_struct.fieldspec import FieldSpec as FieldSpec
    from neuralqx_struct.fieldspec import field as field
    from neuralqx_struct.layouts.conversion import convert as convert
    from neuralqx_struct.pages import report as report
    from neuralqx_struct.params import Param as Param
    from neuralqx_struct.params import Params as Params
    from neuralqx_struct.params.modules import Graph as Graph
    from neuralqx_struct.params.modules import Module as Module
    from neuralqx_struct.params.modules import Rng as Rng
    from neuralqx_struct.references import alias_class as alias_class
    from neuralqx_struct.references import class_ref as class_ref
    from neuralqx_struct.references import resolve_class as resolve_class
    from neuralqx_struct.series import Series as Series
    from neuralqx_struct.stacking import stack as stack
    from neuralqx_struct.stacking import unstack as unstack
    from neuralqx_struct.struct import Struct as Struct
    from neuralqx_struct.struct import derived_fields as derived_fields
    from neuralqx_struct.struct import fields as fields
    from neuralqx_struct.struct import node_fields as node_fields
    from neuralqx_struct.struct import opaque_fields as opaque_fields
    from neuralqx_struct.struct import static_fields as static_fields
    from neuralqx_struct.struct.meta import StructABCMeta as StructABCMeta
    from neuralqx_struct.struct.meta import StructMeta as StructMeta
    from neuralqx_struct.struct.registration import dataclass as dataclass
    from neuralqx_struct.struct.registration import (
        is_registered_pytree_type as is_registered_pytree_type,
    )
    from neuralqx_struct.struct.registration import register_attrs_type as register_attrs_type
    from neuralqx_struct.struct.registration import register_class as register_class
    from neuralqx_struct.struct.registration import register_pytree_type as register_pytree_type
    from neuralqx_struct.struct.registration import resolve_pytree_spec as resolve_pytree_spec
    from neuralqx_struct.tools.inference import infer as infer
    from neuralqx_struct.tools.inspection import inspect as inspect
    from neuralqx_struct.tools.validation import validate as validate
    from neuralqx_struct.tools.validation import verify as verify
    from neuralqx_struct.tools.value_differences import diff_values as diff_values
    from neuralqx_struct.trees import combine as combine
    from neuralqx_struct.trees import map_where as map_where
    from neuralqx_struct.trees import merge as merge
    from neuralqx_struct.trees import partition as partition
    from neuralqx_struct.trees import split as split

# Where each public name lives. tests/test_imports.py compares this table with the imports above.
_HOME = {
    "neuralqx_struct.checkpoint": (
        "export",
        "from_state_dict",
        "load",
        "to_state_dict",
    ),
    "neuralqx_struct.classes.schemas": (
        "Schema",
        "load_schema",
    ),
    "neuralqx_struct.layouts.conversion": ("convert",),
    "neuralqx_struct.struct.meta": ("StructABCMeta", "StructMeta"),
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
    "neuralqx_struct.evolution.compatibility": ("breaking",),
    "neuralqx_struct.evolution.revision": ("revise",),
    "neuralqx_struct.evolution.diff": ("diff",),
    "neuralqx_struct.evolution.folders": ("migrate_all",),
    "neuralqx_struct.evolution.migrations": ("migrate",),
    "neuralqx_struct.fieldspec": ("MISSING", "FieldKind", "FieldSpec", "field"),
    "neuralqx_struct.tools.inference": ("infer",),
    "neuralqx_struct.tools.inspection": ("inspect",),
    "neuralqx_struct.pages": ("report",),
    "neuralqx_struct.params.modules": ("Graph", "Module", "Rng"),
    "neuralqx_struct.params": ("Param", "Params"),
    "neuralqx_struct.struct.registration": (
        "dataclass",
        "is_registered_pytree_type",
        "register_attrs_type",
        "register_class",
        "register_pytree_type",
        "resolve_pytree_spec",
    ),
    "neuralqx_struct.references": (
        "alias_class",
        "class_ref",
        "resolve_class",
    ),
    "neuralqx_struct.classes.examples": ("example",),
    "neuralqx_struct.struct": (
        "Struct",
        "derived_fields",
        "fields",
        "node_fields",
        "opaque_fields",
        "static_fields",
    ),
    "neuralqx_struct.checkpoint.jax_export": ("register_jax_export",),
    "neuralqx_struct.checkpoint.meshes": ("shardings",),
    "neuralqx_struct.series": ("Series",),
    "neuralqx_struct.stacking": ("stack", "unstack"),
    "neuralqx_struct.trees": ("combine", "map_where", "merge", "partition", "split"),
    "neuralqx_struct.tools.validation": ("validate", "verify"),
    "neuralqx_struct.tools.value_differences": ("diff_values",),
    "neuralqx_struct.checkpoint.dicts": ("from_dict",),
    "neuralqx_struct.checkpoint.schemas": ("schema_of",),
    "neuralqx_struct.checkpoint.warm_start": ("warm_start",),
    "neuralqx_struct.classes.documents": ("dump_schema",),
}
_MODULES = {
    "container": "neuralqx_struct.container",
    "filters": "neuralqx_struct.filters",
    "steps": "neuralqx_struct.evolution.steps",
}
_PUBLIC = {name: module for module, names in _HOME.items() for name in names}
#: What the classes of the user call of the layers above them.
_INTERNAL = {"check_of_class": "neuralqx_struct.classes.bound_checks"}
_WHERE = {**_PUBLIC, **_INTERNAL}

__all__ = ["__version__", *_PUBLIC, *_MODULES]  # pyright: ignore[reportUnsupportedDunderAll]  # noqa: PLE0604

# JAX has circular imports: two threads that begin them at different ends would wait for each other.
_importing = threading.RLock()


def __getattr__(name: str) -> Any:
    if name not in _WHERE and name not in _MODULES:
        message = f"module 'neuralqx_struct' has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=sys.modules[__name__])
    try:
        with _importing:
            module = importlib.import_module(_WHERE.get(name) or _MODULES[name])
    except ModuleNotFoundError as error:
        if error.name not in ("jax", "jaxlib"):
            raise
        message = (
            f"neuralqx_struct.{name} needs {error.name}, which is not installed: pip install jax"
        )
        raise ModuleNotFoundError(message, name=error.name) from error
    value = getattr(module, name) if name in _WHERE else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
