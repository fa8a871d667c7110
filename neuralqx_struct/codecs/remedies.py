"""Advice about values that cannot be saved: what to save in their place.

Example:
    >>> import uuid
    >>> remedy_for(uuid.UUID(int=1))
    'save str(value) and make the UUID of it with a converter'
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

REMEDY = "mark its field serialize=False, register the type with register_pytree_type, or convert it first"
_CODE = (
    "functions and classes are code and not saved by their definition: give them names at the top level of a module, mark "
    "the field serialize=False and load with fill=, or keep the arrays alone, as equinox.partition(module, "
    "equinox.is_array) and flax's state.params do"
)
# What to do with values of well-known classes, by the names of the classes that they derive from.
_REMEDIES: Mapping[str, str] = {
    "flax.nnx.pytreelib:Pytree": "save nnx.state(module), which holds its arrays, and merge it after loading",
    "flax.nnx.graphlib:GraphDef": "save the state alone, and make the graph anew with nnx.split",
    "flax.linen.module:Module": "save its params alone; the module is code",
    "netket.vqs.base:VariationalState": "save to_struct(state) of neuralqx_struct.integrations.netket, the inverse of from_struct",
    "netket._src.driver.abstract_variational_driver:AbstractDriver": (
        "save to_struct(driver.state, driver) of neuralqx_struct.integrations.netket, or pass its SeriesCallback to driver.run"
    ),
    "numpy:void": "save the fields of the record one by one",
    "jax:ShapeDtypeStruct": "save arrays; shapes and dtypes alone are what load(path, abstract=True) gives",
    "jax:P": "save tuple(spec), and make the PartitionSpec of it with a converter",
    "jax.sharding:PartitionSpec": "save tuple(spec), and make the PartitionSpec of it with a converter",  # its name before JAX 0.10.2
    "optax._src.base:GradientTransformation": "save the optimiser's state alone; the transformation is code",
    "flax.training.train_state:TrainState": "save its step, params and opt_state; the transformation and the functions are code",
    "decimal:Decimal": "save str(value) and make the number of it with a converter",
    "fractions:Fraction": "save value.as_integer_ratio() and make the number of it with a converter",
    "uuid:UUID": "save str(value) and make the UUID of it with a converter",
}


def known_remedy(cls: type) -> str | None:
    """Returns how to save instances of a well-known class that cannot be saved, or None."""
    names = (f"{base.__module__}:{base.__qualname__}" for base in cls.__mro__)
    return next((_REMEDIES[name] for name in names if name in _REMEDIES), None)


_FUNCTIONS = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)


def remedy_for(value: Any) -> str:
    """How to save what a value holds, where the value itself cannot be saved."""
    if isinstance(value, str):
        return "half of a surrogate pair is no text: save value.encode('utf-8', 'surrogatepass')"
    if isinstance(value, _FUNCTIONS):
        return _CODE
    return known_remedy(type(value)) or (_CODE if callable(value) else REMEDY)
