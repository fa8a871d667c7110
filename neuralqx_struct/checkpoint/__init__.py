"""Checkpoints: saves objects as bundles or state dicts, and loads them.

Example:
    >>> import jax.numpy as jnp
    >>> payload = to_state_dict({"w": jnp.arange(3)})
    >>> from_state_dict(payload)["w"]
    Array([0, 1, 2], dtype=int32)
"""

from neuralqx_struct.checkpoint.loading import LoadOptions, ReadOptions, from_state_dict, load
from neuralqx_struct.checkpoint.saving import ExportOptions, export, to_state_dict

__all__ = [
    "ExportOptions",
    "LoadOptions",
    "ReadOptions",
    "export",
    "from_state_dict",
    "load",
    "to_state_dict",
]
