"""Values of NetKet as dicts, arrays and numbers, and such parts put into values again.

NetKet saves its objects by ``flax.serialization``, which knows their fields; samplers of numpy are plain dataclasses that
it does not know. It takes parts of any shape, so they are compared with those of the value first. Needs the extra ``netket``.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Mapping
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from neuralqx_struct.errors import SerializationError
from neuralqx_struct.paths import FieldName
from neuralqx_struct.references import imported
from neuralqx_struct.trees import beside

__all__ = ["HINT", "NETKET", "filled", "numbers_of", "parts_of", "require_parts", "with_parts"]

_WORDS = "variational states of NetKet"
NETKET: Final[Any] = imported("netket", "netket", _WORDS)
_FLAX: Final[Any] = imported("flax.serialization", "netket", _WORDS)
#: What samplers compute from the other parts when they are reset; NetKet does not save it either.
_COMPUTED: Final = {"log_prob"}
HINT: Final = "the checkpoint is of another model, sampler or driver: make the one that was saved"


def parts_of(value: Any) -> Any:
    """A value of NetKet as dicts, arrays and numbers, which nobody changes."""
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    if isinstance(value, np.ndarray):
        return value.copy()  # samplers of numpy write into their arrays
    if _is_plain(value):
        names = [each.name for each in dataclasses.fields(value) if each.name not in _COMPUTED]
        return {name: parts_of(getattr(value, name)) for name in names}
    return _FLAX.to_state_dict(value)


def filled(target: Any, parts: Any, what: str) -> Any:
    """The value of NetKet that has given parts; the inverse of :func:`_parts`.

    Args:
        target: A value of the same structure.
        parts: Its parts.
        what: The field of the schema, for errors.

    Raises:
        SerializationError: The structure is another, with every difference.
    """
    require_parts(parts, parts_of(target), what)
    return with_parts(target, parts)


def with_parts(target: Any, parts: Any) -> Any:
    """As :func:`filled`, of parts that are known to have the structure."""
    if isinstance(target, np.random.Generator):
        made = copy.deepcopy(target)
        made.bit_generator.state = parts
        return made
    if isinstance(target, np.ndarray):
        return np.array(parts)
    if _is_plain(target):
        fields = {name: with_parts(getattr(target, name), part) for name, part in parts.items()}
        return dataclasses.replace(target, **fields)
    return jax.tree.map(_placed_as, target, _FLAX.from_state_dict(target, parts))


def _is_plain(value: Any) -> bool:
    """True for the dataclasses of samplers of numpy, which Flax does not know."""
    return dataclasses.is_dataclass(value) and not isinstance(value, NETKET.utils.struct.Pytree)


def _placed_as(old: Any, new: Any) -> Any:
    """An array on the devices of another."""
    if isinstance(old, jax.Array) and len(old.sharding.device_set) > 1:
        return jax.device_put(new, old.sharding)
    return jnp.asarray(new) if isinstance(old, jax.Array) else new


def require_parts(parts: Any, wanted: Any, what: str) -> None:
    """Checks that parts have the structure, the shapes and the dtypes of others.

    Raises:
        SerializationError: They have not, with every difference.
    """
    found = [
        each.finding("the program", HINT)
        for each in beside(parts, wanted, (FieldName(what),))
        if each.verdict != "fits"
    ]
    if found:
        raise SerializationError(found)


def numbers_of(log_data: Mapping[str, Any]) -> dict[str, float]:
    """The means and the numbers that a driver logged; of complex ones the real parts."""
    found = {}
    for name, value in log_data.items():
        number = value.mean if isinstance(value, NETKET.stats.Stats) else value
        with contextlib.suppress(TypeError, ValueError):  # an array, or no number
            found[name] = float(np.real(number))
    return found
