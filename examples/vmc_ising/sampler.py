"""Metropolis sampling: many independent chains of single spin flips, in one jitted loop.

Example:
    >>> key = jax.random.key(0, impl="threefry2x32")
    >>> random_spins(key, n_chains=3, n_sites=4).shape
    (3, 4)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

__all__ = ["random_spins", "sample"]


def random_spins(key: Array, n_chains: int, n_sites: int) -> Array:
    """Uniformly random spins, int8 of -1 and 1."""
    return jax.random.rademacher(key, (n_chains, n_sites), dtype=jnp.int8)


@partial(jax.jit, static_argnums=0, static_argnames="n_sweeps")
def sample(
    log_psi_fn: Callable[[Any, Array], Array],
    params: Any,
    sigma: Array,
    key: Array,
    *,
    n_sweeps: int,
    exponent: Any = 2.0,
) -> tuple[Array, Array, Array]:
    """Moves every chain by ``n_sweeps`` sweeps of ``n_sites`` proposed flips each.

    Args:
        log_psi_fn: ``log_psi_fn(params, sigma)``, the logarithm of the amplitude for every row of ``sigma``.
        params: Passed on to ``log_psi_fn``.
        sigma: The states of the chains, int8 ``[n_chains, n_sites]``.
        key: A typed random key.
        n_sweeps: Number of sweeps.
        exponent: The chains follow ``|psi| ** exponent``.

    Returns:
        The new states of the chains, the next key, and the fraction of accepted flips.
    """
    n_chains, n_sites = sigma.shape
    chains = jnp.arange(n_chains)

    def log_weight(spins: Array) -> Array:
        return exponent * log_psi_fn(params, spins).real

    def propose(
        carry: tuple[Array, Array], draw: tuple[Array, Array]
    ) -> tuple[tuple[Array, Array], Array]:
        spins, weight = carry
        site, log_uniform = draw
        flipped = spins.at[chains, site].multiply(-1)
        new_weight = log_weight(flipped)
        accept = log_uniform < new_weight - weight
        return (
            jnp.where(accept[:, None], flipped, spins),
            jnp.where(accept, new_weight, weight),
        ), jnp.mean(accept)

    def sweep(carry: tuple[Array, Array], sweep_key: Array) -> tuple[tuple[Array, Array], Array]:
        site_key, accept_key = jax.random.split(sweep_key)
        # A site at random, not one after the other: flips that are always accepted would make the order deterministic.
        sites = jax.random.randint(site_key, (n_sites, n_chains), 0, n_sites)
        uniforms = jax.random.uniform(accept_key, (n_sites, n_chains))
        carry, accepted = lax.scan(propose, carry, (sites, jnp.log(uniforms)))
        return carry, jnp.mean(accepted)

    next_key, sample_key = jax.random.split(key)
    (sigma, _), accepted = lax.scan(
        sweep, (sigma, log_weight(sigma)), jax.random.split(sample_key, n_sweeps)
    )
    return sigma, next_key, jnp.mean(accepted)
