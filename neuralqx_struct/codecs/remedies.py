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
# What to do with values of well-known classes, by the names of the classes that they derive from. These are code in part, and
# refused although their libraries register them with JAX.
_CODE_IN_PART: Mapping[str, str] = {
    "flax.nnx.pytreelib:Pytree": "save nnx.state(module), which holds its arrays, and merge it after loading",
    "netket.vqs.base:VariationalState": "save to_struct(state) of neuralqx_struct.integrations.netket, the inverse of from_struct",
    "netket._src.driver.abstract_variational_driver:AbstractDriver": (
        "save to_struct(driver.state, driver) of neuralqx_struct.integrations.netket, or pass its SeriesCallback to driver.run"
    ),
}
_ITS_SPEC = "save tuple(spec), and make the PartitionSpec of it with a converter"
_ATTRIBUTES = "save vars(value), and make the value of them after loading"
_REMEDIES: Mapping[str, str] = {
    **_CODE_IN_PART,
    "argparse:Namespace": _ATTRIBUTES,
    "builtins:memoryview": "save bytes(value)",
    "decimal:Decimal": "save str(value) and make the number of it with a converter",
    "fractions:Fraction": "save value.as_integer_ratio() and make the number of it with a converter",
    "jax._src.core:Ref": "save ref[...], and make a Ref of it with jax.new_ref after loading",
    "jax:P": _ITS_SPEC,
    "jax:ShapeDtypeStruct": "save arrays; shapes and dtypes alone are what load(path, abstract=True) gives",
    "jax.sharding:PartitionSpec": _ITS_SPEC,  # its name before JAX 0.10.2
    "jaxlib._jax:Sharding": "give it to load(path, shardings=...), with the devices that are there then",
    "ml_collections.config_dict.config_dict:ConfigDict": "save config.to_dict(), and make the ConfigDict of it after loading",
    "numpy:void": "save the fields of the record one by one",
    "numpy.random._generator:Generator": "save value.bit_generator.state, and set it in a generator after loading",
    "numpy.random.mtrand:RandomState": "save value.get_state(), and set it after loading",
    "omegaconf.basecontainer:BaseContainer": "save OmegaConf.to_container(config), and create the config of it after loading",
    "pandas:DataFrame": "save {name: column.to_numpy() for name, column in value.items()}",
    "penzai.core.variables:AbstractVariable": (
        "save penzai.pz.unbind_variables(model, freeze=True), and bind its variables after loading"
    ),
    "pydantic.main:BaseModel": "save value.model_dump(), and validate the model of it after loading",
    "types:SimpleNamespace": _ATTRIBUTES,
    "uuid:UUID": "save str(value) and make the UUID of it with a converter",
}
_BUILTINS = (str, int, float, complex, bytes, dict, list, tuple)


def base_names(cls: type) -> list[str]:
    """The names ``module:QualName`` of a class and of those that it derives from."""
    return [f"{base.__module__}:{base.__qualname__}" for base in cls.__mro__]


def remedy_for_code(cls: type) -> str | None:
    """Returns how to save instances of a well-known class that are code in part, or None."""
    return _known(cls, _CODE_IN_PART)


def _known(cls: type, remedies: Mapping[str, str]) -> str | None:
    return next((remedies[name] for name in base_names(cls) if name in remedies), None)


def remedy_for(value: Any) -> str:
    """How to save what a value holds, where the value itself cannot be saved."""
    if type(value) is str:
        return "half of a surrogate pair is no text: save value.encode('utf-8', 'surrogatepass')"
    if type(value) is partial:
        return "make it with jax.tree_util.Partial, whose arrays are saved"
    if isinstance(value, MethodType):
        return "save the object, which holds arrays, and take its method after loading"
    if (known := _known(type(value), _REMEDIES)) is not None:
        return known
    if hasattr(type(value), "__attrs_attrs__"):
        return "register its class with register_attrs_type"
    for base in _BUILTINS:
        if isinstance(value, base):
            return _by(base, value)
    return _by(dict, value) if isinstance(value, Mapping) else REMEDY


def _by(base: type, value: Any) -> str:
    return f"save {base.__name__}(value) and make the {type(value).__name__} of it with a converter"
