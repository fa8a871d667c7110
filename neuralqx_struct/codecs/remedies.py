"""Advice about values that cannot be saved: what to save in their place.

Example:
    >>> import uuid
    >>> remedy_for(uuid.UUID(int=1))
    'save str(value) and make the UUID of it with a converter'
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MethodType
from typing import Any

REMEDY = "mark its field serialize=False, register the type with register_pytree_type, or convert it first"
# What to do with values of well-known classes, by the names of the classes that they derive from.
_REMEDIES: Mapping[str, str] = {
    "flax.nnx.pytreelib:Pytree": "save nnx.state(module), which holds its arrays, and merge it after loading",
    "netket.vqs.base:VariationalState": "save to_struct(state) of neuralqx_struct.integrations.netket, the inverse of from_struct",
    "netket._src.driver.abstract_variational_driver:AbstractDriver": (
        "save to_struct(driver.state, driver) of neuralqx_struct.integrations.netket, or pass its SeriesCallback to driver.run"
    ),
    "numpy.random._generator:Generator": "save value.bit_generator.state, and set it in a generator after loading",
    "penzai.core.variables:AbstractVariable": (
        "save penzai.pz.unbind_variables(model, freeze=True), and bind its variables after loading"
    ),
    "numpy:void": "save the fields of the record one by one",
    "jax:ShapeDtypeStruct": "save arrays; shapes and dtypes alone are what load(path, abstract=True) gives",
    "jax:P": "save tuple(spec), and make the PartitionSpec of it with a converter",
    "jax.sharding:PartitionSpec": "save tuple(spec), and make the PartitionSpec of it with a converter",  # its name before JAX 0.10.2
    "decimal:Decimal": "save str(value) and make the number of it with a converter",
    "fractions:Fraction": "save value.as_integer_ratio() and make the number of it with a converter",
    "uuid:UUID": "save str(value) and make the UUID of it with a converter",
}
_BUILTINS = (str, int, float, complex, bytes, dict, list, tuple)


def base_names(cls: type) -> list[str]:
    """The names ``module:QualName`` of a class and of those that it derives from."""
    return [f"{base.__module__}:{base.__qualname__}" for base in cls.__mro__]


def known_remedy(cls: type) -> str | None:
    """Returns how to save instances of a well-known class that cannot be saved, or None."""
    return next((_REMEDIES[name] for name in base_names(cls) if name in _REMEDIES), None)


def remedy_for(value: Any) -> str:
    """How to save what a value holds, where the value itself cannot be saved."""
    if type(value) is str:
        return "half of a surrogate pair is no text: save value.encode('utf-8', 'surrogatepass')"
    if type(value) is partial:
        return "make it with jax.tree_util.Partial, whose arrays are saved"
    if isinstance(value, MethodType):
        return "save the object, which holds arrays, and take its method after loading"
    if (known := known_remedy(type(value))) is not None:
        return known
    for base in _BUILTINS:
        if isinstance(value, base):
            return f"save {base.__name__}(value) and make the {type(value).__name__} of it with a converter"
    return REMEDY
