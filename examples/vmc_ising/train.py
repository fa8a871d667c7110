"""The training loop, and the fields of each version of the checkpoint that it uses.

The physics is :func:`step`, a pure function of arrays. A :class:`Layout` is the only part that knows names of fields; it
reads attributes and calls ``replace``, so any immutable record will do as a state.

Example:
    >>> from types import SimpleNamespace
    >>> state = SimpleNamespace(**initial_fields_v1(n_sites=6, alpha=1, n_chains=128, seed=0, h=0.5))
    >>> energies_of(state, V1, state.samples).shape
    (128,)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .ising import local_energies
from .optimise import estimate, importance_weights, natural_update
from .rbm import RBMParams, init, log_derivatives, log_psi
from .sampler import random_spins, sample
from .settings import Settings

__all__ = [
    "V1",
    "V3",
    "Layout",
    "Physics",
    "Step",
    "advance",
    "energies_of",
    "initial_fields_v1",
    "initial_physics",
    "step",
    "train",
]

KEY_IMPL = "threefry2x32"

Progress = Callable[[int, float], object]


class Physics(NamedTuple):
    """The input of a step, in any layout of the checkpoint."""

    params: RBMParams
    updates: RBMParams
    sigma: Array
    key: Array
    settings: Settings


class Step(NamedTuple):
    """The output of a step: the changed arrays, and the energy on the new samples of the new parameters."""

    params: RBMParams
    updates: RBMParams
    sigma: Array
    key: Array
    energy: Array
    variance: Array
    acceptance: Array


@jax.jit
def step(
    params: RBMParams, updates: RBMParams, sigma: Array, key: Array, settings: Settings
) -> Step:
    """One optimisation step: a natural-gradient update from the samples at hand, then new samples.

    Samples always belong to the parameters beside them, so a checkpoint alone suffices to measure its energy.
    """
    update = natural_update(
        log_derivatives(params, sigma),
        local_energies(log_psi, params, sigma, settings.h),
        importance_weights(log_psi(params, sigma).real, settings.exponent),
        updates,
        lr=settings.lr,
        diag_shift=settings.diag_shift,
    )
    params = jax.tree.map(jnp.add, params, update)
    sigma, key, acceptance = sample(
        log_psi, params, sigma, key, n_sweeps=settings.n_sweeps, exponent=settings.exponent
    )
    weights = importance_weights(log_psi(params, sigma).real, settings.exponent)
    measured = estimate(local_energies(log_psi, params, sigma, settings.h), weights)
    return Step(params, update, sigma, key, measured.energy, measured.variance, acceptance)


def initial_physics(
    n_sites: int, alpha: int, n_chains: int, seed: int, settings: Settings
) -> Physics:
    """Random parameters and spins, no update yet, and the key to go on with."""
    params_key, spins_key, key = jax.random.split(jax.random.key(seed, impl=KEY_IMPL), 3)
    params = init(params_key, n_sites, alpha)
    return Physics(
        params,
        jax.tree.map(jnp.zeros_like, params),
        random_spins(spins_key, n_chains, n_sites),
        key,
        settings,
    )


def advance(
    physics: Physics, n_steps: int, progress: Progress | None = None, first: int = 1
) -> tuple[Physics, np.ndarray]:
    """Repeats :func:`step`.

    Args:
        physics: Where to start.
        n_steps: How often.
        progress: Called after each step with its number and the energy.
        first: The number of the first step.

    Returns:
        Where it ended, and the energy after each step (float64).

    Raises:
        FloatingPointError: The energy is no longer finite.
    """
    energies = np.empty(n_steps, np.float64)
    settings = physics.settings
    for i in range(n_steps):
        result = step(*physics)
        energies[i] = energy = float(result.energy)
        if not math.isfinite(energy):
            raise FloatingPointError(
                f"step {first + i}: expected a finite energy, got {energy}\n"
                f"the update with lr={settings.lr} and diag_shift={settings.diag_shift} went too far\n"
                "lower lr or raise diag_shift"
            )
        physics = Physics(result.params, result.updates, result.sigma, result.key, settings)
        if progress is not None:
            progress(first + i, energy)
    return physics, energies


class Layout(NamedTuple):
    """Where one version of the checkpoint keeps things.

    Attributes:
        physics: Reads a state.
        write: ``write(state, physics, energies)``, the state after steps that had these energies.
        step_field: The field that counts finished steps.
        logger_field: The field of an object with ``write(step, energy)``, if the version has one.
    """

    physics: Callable[[Any], Physics]
    write: Callable[[Any, Physics, np.ndarray], Any]
    step_field: str
    logger_field: str | None = None


def initial_fields_v1(
    n_sites: int,
    alpha: int,
    n_chains: int,
    seed: int,
    *,
    h: float = 1.0,
    lr: float = 0.05,
    diag_shift: float = 0.01,
    n_sweeps: int = 2,
) -> dict[str, Any]:
    """A value for every field of version 1, before the first step.

    Args:
        n_sites: Length of the chain.
        alpha: Hidden units per site.
        n_chains: Markov chains.
        seed: Of parameters, spins and the key.
        h: Transverse field in units of the coupling.
        lr: Learning rate.
        diag_shift: Added to the diagonal of the quantum geometric tensor.
        n_sweeps: Metropolis sweeps between two steps.
    """
    settings = Settings(h=h, lr=lr, diag_shift=diag_shift, n_sweeps=n_sweeps)
    start = initial_physics(n_sites, alpha, n_chains, seed, settings)
    return {
        "alpha": alpha,
        **_arrays_v1(start),
        "n_iter": 0,
        "E_hist": np.empty(0, np.float64),
        "h": h,
        "lr": lr,
        "diag_shift": diag_shift,
        "n_sweeps": n_sweeps,
        "mpi_rank": 0,
        "mpi_size": 1,
    }


def _arrays_v1(physics: Physics) -> dict[str, Any]:
    params, updates = physics.params, physics.updates
    return {
        "W_re": params.kernel.real,
        "W_im": params.kernel.imag,
        "b_all": jnp.concatenate([params.visible_bias, params.hidden_bias]),
        "dW_re": updates.kernel.real,
        "dW_im": updates.kernel.imag,
        "db_all": jnp.concatenate([updates.visible_bias, updates.hidden_bias]),
        "samples": np.asarray(physics.sigma).astype(np.float64),
        "rng": jax.random.key_data(physics.key),
    }


def physics_v1(state: Any) -> Physics:
    """Reads a state of version 1."""
    n_sites = state.W_re.shape[0]

    def join(real: Any, imag: Any, biases: Any) -> RBMParams:
        # Not real + 1j * imag, which would lose the sign of zeros and add to the imaginary part of infinities.
        biases = jnp.asarray(biases)
        return RBMParams(
            lax.complex(jnp.asarray(real), jnp.asarray(imag)), biases[:n_sites], biases[n_sites:]
        )

    return Physics(
        params=join(state.W_re, state.W_im, state.b_all),
        updates=join(state.dW_re, state.dW_im, state.db_all),
        sigma=jnp.asarray(np.asarray(state.samples).astype(np.int8)),
        key=jax.random.wrap_key_data(jnp.asarray(state.rng), impl=KEY_IMPL),
        settings=Settings(
            h=float(state.h),
            lr=float(state.lr),
            diag_shift=float(state.diag_shift),
            n_sweeps=int(state.n_sweeps),
        ),
    )


def write_v1(state: Any, physics: Physics, energies: np.ndarray) -> Any:
    """A state of version 1 after more steps."""
    return state.replace(
        **_arrays_v1(physics),
        n_iter=state.n_iter + len(energies),
        E_hist=np.concatenate([np.asarray(state.E_hist, np.float64), energies]),
    )


def physics_v3(state: Any) -> Physics:
    """Reads a state of version 3."""
    return Physics(
        params=RBMParams(*map(jnp.asarray, (state.kernel, state.visible_bias, state.hidden_bias))),
        updates=RBMParams(
            *map(
                jnp.asarray,
                (
                    state.optimizer.kernel_update,
                    state.optimizer.visible_update,
                    state.optimizer.hidden_update,
                ),
            )
        ),
        sigma=jnp.asarray(state.sampler.sigma),
        key=state.sampler.key,
        settings=Settings(
            h=float(state.transverse_field),
            lr=float(state.learning_rate),
            diag_shift=float(state.diag_shift),
            exponent=float(state.exponent),
            n_sweeps=int(state.n_sweeps),
        ),
    )


def write_v3(state: Any, physics: Physics, energies: np.ndarray) -> Any:
    """A state of version 3 after more steps."""
    params, updates = physics.params, physics.updates
    return state.replace(
        kernel=params.kernel,
        visible_bias=params.visible_bias,
        hidden_bias=params.hidden_bias,
        optimizer=state.optimizer.replace(
            kernel_update=updates.kernel,
            visible_update=updates.visible_bias,
            hidden_update=updates.hidden_bias,
        ),
        sampler=state.sampler.replace(sigma=physics.sigma, key=physics.key),
        step=state.step + len(energies),
        energy_history=np.concatenate([np.asarray(state.energy_history, np.float64), energies]),
        energy=float(energies[-1]) if len(energies) else state.energy,
    )


V1 = Layout(physics_v1, write_v1, step_field="n_iter")
V3 = Layout(physics_v3, write_v3, step_field="step", logger_field="logger")


def train(state: Any, layout: Layout, n_steps: int, progress: Progress | None = None) -> Any:
    """Trains a state by ``n_steps`` steps, from its current step.

    Args:
        state: A checkpoint's state, of the version that ``layout`` reads.
        layout: :data:`V1` or :data:`V3`.
        n_steps: How many steps.
        progress: Called after each step with the number of all finished steps and the energy.

    Returns:
        The state after the last step. The same state gives the same result, bit by bit, in either layout.

    Raises:
        FloatingPointError: The energy is no longer finite.
    """
    logger = getattr(state, layout.logger_field) if layout.logger_field else None

    def report(number: int, energy: float) -> None:
        if logger is not None:
            logger.write(number, energy)
        if progress is not None:
            progress(number, energy)

    physics, energies = advance(
        layout.physics(state), n_steps, report, getattr(state, layout.step_field) + 1
    )
    return layout.write(state, physics, energies)


def energies_of(state: Any, layout: Layout, sigma: Any) -> np.ndarray:
    """The local energies of given samples under a state's parameters (complex64).

    Args:
        state: A checkpoint's state.
        layout: How to read it.
        sigma: Spins of -1 and 1 in any dtype, shape ``[n_samples, n_sites]``.
    """
    physics = layout.physics(state)
    spins = jnp.asarray(np.asarray(sigma).astype(np.int8))
    return np.asarray(local_energies(log_psi, physics.params, spins, physics.settings.h))
