"""The transverse-field Ising chain: exact ground-state energies (numpy) and local energies (JAX).

    H = - sum_i s^z_i s^z_{i+1} - h sum_i s^x_i,    periodic, energies in units of the coupling.

Two exact energies that share no code: Lanczos on the full space of 2^n configurations, and the sum over the free
fermions to which the chain is equivalent.

Example:
    >>> round(exact_energy(4, 1.0), 6), round(free_fermion_energy(4, 1.0), 6)
    (-5.226252, -5.226252)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

__all__ = [
    "MAX_SITES",
    "apply_hamiltonian",
    "configurations",
    "exact_energy",
    "free_fermion_energy",
    "local_energies",
]

MAX_SITES = 18
"""Beyond this the vectors of the Krylov space no longer fit comfortably into memory."""


def configurations(n_sites: int) -> np.ndarray:
    """All 2^n configurations, int8 of -1 and 1; row k holds the binary digits of k, the highest first, 0 meaning 1."""
    bits = (np.arange(2**n_sites)[:, None] >> np.arange(n_sites)[::-1]) & 1
    return (1 - 2 * bits).astype(np.int8)


def apply_hamiltonian(vector: np.ndarray, h: float) -> np.ndarray:
    """H times a vector over all configurations, without building the matrix.

    Args:
        vector: The 2^n amplitudes, in the order of :func:`configurations`.
        h: Transverse field.
    """
    n_sites = vector.size.bit_length() - 1
    psi = vector.reshape((2,) * n_sites)
    out = np.zeros_like(psi)
    for site in range(n_sites):
        out -= h * np.flip(psi, site)
        out -= _spin(site, n_sites) * _spin((site + 1) % n_sites, n_sites) * psi
    return out.reshape(-1)


def _spin(site: int, n_sites: int) -> np.ndarray:
    """s^z of one site, to be broadcast over an array with one axis per site."""
    return np.array([1.0, -1.0]).reshape([2 if axis == site else 1 for axis in range(n_sites)])


def exact_energy(
    n_sites: int, h: float, *, tolerance: float = 1e-7, max_iterations: int = 400
) -> float:
    """The ground-state energy by the Lanczos method.

    Args:
        n_sites: Length of the chain, 2 to :data:`MAX_SITES`.
        h: Transverse field.
        tolerance: Largest residual of the eigenvector, relative to the energy; the error of the energy is about its square.
        max_iterations: Largest dimension of the Krylov space.

    Raises:
        ValueError: The chain is too short or too long.
        ArithmeticError: The residual is above the tolerance after the last iteration.
    """
    if not 2 <= n_sites <= MAX_SITES:
        raise ValueError(f"n_sites: expected 2 to {MAX_SITES}, got {n_sites}")
    start = np.random.default_rng(0).random(2**n_sites)
    basis = [start / np.linalg.norm(start)]
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    for _ in range(min(max_iterations, 2**n_sites)):
        vector = apply_hamiltonian(basis[-1], h)
        diagonal.append(float(basis[-1] @ vector))
        # Rounding makes Lanczos vectors lose their orthogonality, so each is made orthogonal to all before it, twice.
        for known in basis + basis:
            vector -= (known @ vector) * known
        length = float(np.linalg.norm(vector))
        energies, vectors = np.linalg.eigh(
            np.diag(diagonal) + np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1)
        )
        if length * abs(vectors[-1, 0]) <= tolerance * abs(energies[0]):
            return float(energies[0])
        off_diagonal.append(length)
        basis.append(vector / length)
    raise ArithmeticError(
        f"exact_energy: expected convergence to {tolerance} in {max_iterations} iterations, got none"
    )


def free_fermion_energy(n_sites: int, h: float) -> float:
    """The same energy from the free fermions: minus the sum of half the mode energies at antiperiodic momenta."""
    momenta = np.pi * (2 * np.arange(n_sites) + 1) / n_sites
    return -float(np.sum(np.sqrt(1 + h * h - 2 * abs(h) * np.cos(momenta))))


@partial(jax.jit, static_argnums=0)
def local_energies(
    log_psi_fn: Callable[[Any, Array], Array], params: Any, sigma: Array, h: Any
) -> Array:
    """The local energies (H psi)(sigma) / psi(sigma).

    Args:
        log_psi_fn: ``log_psi_fn(params, sigma)``, the logarithm of the amplitude for every row of ``sigma``.
        params: Passed on to ``log_psi_fn``.
        sigma: Configurations of -1 and 1, shape ``[n_samples, n_sites]``.
        h: Transverse field.

    Returns:
        One complex number per row.
    """
    n_sites = sigma.shape[-1]
    bonds = jnp.sum(sigma * jnp.roll(sigma, -1, axis=-1), axis=-1, dtype=jnp.float32)
    signs = (1 - 2 * jnp.eye(n_sites, dtype=jnp.int8)).astype(sigma.dtype)  # row i flips spin i
    flipped = jax.vmap(lambda sign: log_psi_fn(params, sigma * sign))(signs)
    return -bonds - h * jnp.sum(jnp.exp(flipped - log_psi_fn(params, sigma)), axis=0)
