"""Stochastic reconfiguration with momentum: the natural gradient, estimated from samples, in complex64.

With O the centred derivatives of log psi, E the centred local energies (one row per sample, both times the root of its
weight) and d' the last update, the update d minimises

    |O d + lr E|^2 + diag_shift |d - MOMENTUM d'|^2

(the SPRING method): directions that the samples do not determine keep the last update. Without momentum this is
stochastic reconfiguration, d = -lr (O^+ O + diag_shift)^-1 O^+ E.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

__all__ = [
    "MOMENTUM",
    "Estimate",
    "estimate",
    "importance_weights",
    "natural_update",
    "solve_update",
]

MOMENTUM = 0.8
"""Fraction of the last update that is kept in directions without samples."""


class Estimate(NamedTuple):
    """Mean and variance of the energy."""

    energy: Array
    variance: Array


def importance_weights(log_amplitude: Array, exponent: Any) -> Array:
    """Weights, of sum 1, that turn samples of ``|psi| ** exponent`` into samples of ``|psi| ** 2``.

    Args:
        log_amplitude: log |psi| of every sample.
        exponent: The power that the samples follow; at 2.0 all weights are equal.
    """
    return jax.nn.softmax((2.0 - exponent) * log_amplitude)


def estimate(energies: Array, weights: Array) -> Estimate:
    """Mean (real) and variance of local energies under weights of sum 1."""
    mean = jnp.sum(weights * energies)
    return Estimate(mean.real, jnp.sum(weights * jnp.abs(energies - mean) ** 2))


def solve_update(rows: Array, residual: Array, last: Array, shift: Array) -> Array:
    """The vector d that minimises ``|rows d + residual|^2 + shift |d - last|^2``.

    One Cholesky decomposition in the smaller of the two spaces: of the parameters or of the samples.

    Args:
        rows: complex64 ``[n_samples, n_parameters]``.
        residual: complex64 ``[n_samples]``.
        last: complex64 ``[n_parameters]``.
        shift: A positive number.
    """
    n_samples, n_parameters = rows.shape
    adjoint = rows.conj().T
    with jax.default_matmul_precision("highest"):
        gram = adjoint @ rows if n_parameters <= n_samples else rows @ adjoint
        # The eigenvalues of a Gram matrix in single precision are off by about eps times its trace; a shift below that
        # would leave it indefinite.
        shift = shift + 4 * jnp.finfo(jnp.float32).eps * jnp.trace(gram).real
        factor = jax.scipy.linalg.cho_factor(
            gram + shift * jnp.eye(len(gram), dtype=gram.dtype), lower=True
        )
        mismatch = rows @ last + residual
        if n_parameters <= n_samples:
            return last - jax.scipy.linalg.cho_solve(factor, adjoint @ mismatch)
        return last - adjoint @ jax.scipy.linalg.cho_solve(factor, mismatch)


def natural_update(
    derivatives: Any, energies: Array, weights: Array, last: Any, *, lr: Any, diag_shift: Any
) -> Any:
    """Returns the update of the parameters.

    Args:
        derivatives: Of log psi by the parameters: the tree of the parameters, with an axis of samples in front.
        energies: Local energies, one per sample.
        weights: Of sum 1, one per sample.
        last: The last update, a tree like the parameters.
        lr: Learning rate.
        diag_shift: Added to the diagonal of the quantum geometric tensor.
    """
    root = jnp.sqrt(weights)
    rows = jax.vmap(lambda row: ravel_pytree(row)[0])(derivatives)
    rows = root[:, None] * (rows - weights.astype(rows.dtype) @ rows)
    residual = root * (energies - jnp.sum(weights * energies))
    flat, unravel = ravel_pytree(last)
    return unravel(solve_update(rows, lr * residual, MOMENTUM * flat, diag_shift))
