# The public names and their homes: read by type checkers and editors, and by __init__.py when a name is used.

import collections.abc
import typing

from neuralqx_struct import container as container
from neuralqx_struct import filters as filters
from neuralqx_struct.checkpoint import export as export
from neuralqx_struct.checkpoint import from_state_dict as from_state_dict
from neuralqx_struct.checkpoint import load as load
from neuralqx_struct.checkpoint import to_state_dict as to_state_dict
from neuralqx_struct.checkpoint.dicts import from_dict as from_dict
from neuralqx_struct.checkpoint.jax_export import register_jax_export as register_jax_export
from neuralqx_struct.checkpoint.meshes import shardings as shardings
from neuralqx_struct.checkpoint.replay import replay as replay
from neuralqx_struct.checkpoint.replay import replayed as replayed
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

__version__: str

def check_of_class(
    cls: type, fields: tuple[str, ...]
) -> collections.abc.Callable[[typing.Any], list[Diagnostic]]: ...
