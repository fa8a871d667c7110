"""The complex restricted Boltzmann machine: log psi(s) = a.s + sum_j log cosh(b_j + sum_i s_i W_ij), up to a constant.

Owns the parameters, the logarithm of the amplitude and its derivatives. Knows nothing of the Hamiltonian.

Example:
    >>> params = init(jax.random.key(0), n_sites=4, alpha=2)
    >>> params.kernel.shape, log_psi(params, jnp.ones((16, 4), jnp.int8)).dtype
    ((4, 8), dtype('complex64'))
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

__all__ = ["RBMParams", "init", "log_cosh", "log_derivatives", "log_psi"]


class RBMParams(NamedTuple):
    """The parameters, all complex64; a batch of derivatives has the same fields with an axis in front."""

    kernel: Array
    visible_bias: Array
    hidden_bias: Array


@partial(jax.jit, static_argnums=(1, 2))
def init(key: Array, n_sites: int, alpha: int, stddev: float = 0.05) -> RBMParams:
    """Small normal numbers: the amplitudes are nearly equal, so uniformly random spins are fair samples of them."""
    n_hidden = alpha * n_sites
    kernel_key, visible_key, hidden_key = jax.random.split(key, 3)
    return RBMParams(
        kernel=stddev * jax.random.normal(kernel_key, (n_sites, n_hidden), jnp.complex64),
        visible_bias=stddev * jax.random.normal(visible_key, (n_sites,), jnp.complex64),
        hidden_bias=stddev * jax.random.normal(hidden_key, (n_hidden,), jnp.complex64),
    )


def _folded(z: Array) -> tuple[Array, Array]:
    """A sign such that ``sign * z`` has no negative real part, and ``1 + exp(-2 * sign * z)``, which cannot overflow."""
    sign = jnp.where(z.real < 0, -1.0, 1.0).astype(z.real.dtype)
    modulus, phase = jnp.exp(-2 * sign * z.real), -2 * sign * z.imag
    return sign, lax.complex(1 + modulus * jnp.cos(phase), modulus * jnp.sin(phase))


@jax.jit
def log_cosh(z: Array) -> Array:
    """log cosh of complex numbers of any size; the imaginary part may differ by multiples of 2 pi."""
    # Real arithmetic throughout: XLA's complex exp and log are several times slower, and whoever needs only the modulus
    # gets the phase left out.
    sign, one_plus = _folded(z)
    real, imag = one_plus.real, one_plus.imag
    return lax.complex(
        sign * z.real + 0.5 * jnp.log(real**2 + imag**2) - math.log(2.0),
        sign * z.imag + jnp.atan2(imag, real),
    )


def _linear(bias: Array, spins: Array, weights: Array) -> Array:
    """``bias + spins @ weights`` for real spins and complex weights."""
    real, imag = (
        jnp.matmul(spins, part, precision="highest") for part in (weights.real, weights.imag)
    )
    return bias + lax.complex(real, imag)


@jax.jit
def log_psi(params: RBMParams, sigma: Array) -> Array:
    """The logarithm of the amplitude.

    Args:
        params: The parameters.
        sigma: Spins of -1 and 1 in any dtype, sites last.

    Returns:
        complex64, one number per configuration.
    """
    spins = sigma.astype(params.kernel.real.dtype)
    visible = _linear(jnp.zeros((), params.visible_bias.dtype), spins, params.visible_bias)
    hidden = log_cosh(_linear(params.hidden_bias, spins, params.kernel))
    return lax.complex(visible.real + hidden.real.sum(-1), visible.imag + hidden.imag.sum(-1))


@jax.jit
def log_derivatives(params: RBMParams, sigma: Array) -> RBMParams:
    """The derivatives of :func:`log_psi` by every parameter, one row per configuration.

    Args:
        params: The parameters.
        sigma: Configurations, shape ``[n_samples, n_sites]``.
    """
    spins = sigma.astype(params.kernel.real.dtype)
    sign, one_plus = _folded(_linear(params.hidden_bias, spins, params.kernel))
    tanh = sign * (2 - one_plus) / one_plus
    return RBMParams(spins[:, :, None] * tanh[:, None, :], spins.astype(tanh.dtype), tanh)
