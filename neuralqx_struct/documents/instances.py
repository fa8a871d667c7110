"""What the check of an instance knows of it: when it is frozen, the mark of a valid one, and the classes of JAX arrays.

Example:
    >>> import jax.numpy as jnp
    >>> is_jax_array(jnp.zeros(2)), is_jax_array([0.0])
    (True, False)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax

#: The children and the auxiliary data of an instance, as JAX has them.
Pair = tuple[tuple[Any, ...], tuple[Any, ...]]

#: The attribute of an instance that passed the check of its class and cannot change; see ``instance_checks.py``.
MARK: Final = "_nqx_mark"

#: ``put(instance, name, value)`` sets an attribute of a frozen instance.
put: Callable[[Any, str, Any], None] = object.__setattr__


def is_frozen(instance: Any) -> bool:
    """True once the pair is stored."""
    return "_nqx_pair" in instance.__dict__


#: Classes of JAX arrays met so far, tracers too: isinstance is slow for them.
JAX_ARRAYS: set[type] = set()


def is_jax_array(value: Any) -> bool:
    """True for JAX arrays, tracers among them."""
    if type(value) in JAX_ARRAYS:
        return True
    if isinstance(value, jax.Array):
        JAX_ARRAYS.add(type(value))
        return True
    return False
