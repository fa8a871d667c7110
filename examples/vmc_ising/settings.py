"""Settings of one training run, as the checkpoint stores them, and the values that work well.

Example:
    >>> Settings(h=0.5).n_sweeps
    2
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import jax

__all__ = ["DEFAULTS", "N_STEPS", "Settings"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Settings:
    """The settings of a step; the real numbers are traced, so that changing one does not recompile.

    Attributes:
        h: Transverse field in units of the coupling.
        lr: Learning rate of the natural gradient.
        diag_shift: Added to the diagonal of the quantum geometric tensor.
        exponent: Chains follow the modulus of the wave function to this power.
        n_sweeps: Metropolis sweeps between two steps.
    """

    h: float = 1.0
    lr: float = 0.05
    diag_shift: float = 0.01
    exponent: float = 2.0
    n_sweeps: int = field(default=2, metadata={"static": True})


N_STEPS = 120
"""Steps of a run with :data:`DEFAULTS`."""

DEFAULTS: MappingProxyType[str, Any] = MappingProxyType(
    {
        "n_sites": 12,
        "alpha": 2,
        "n_chains": 512,
        "seed": 0,
        "h": 1.0,
        "lr": 0.05,
        "diag_shift": 0.01,
        "n_sweeps": 2,
    }
)
"""The arguments of ``initial_fields_v1`` for a run that ends within 0.2 % of the exact energy; README.md has the numbers."""
