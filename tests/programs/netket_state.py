"""A variational state of NetKet put into the schema ``mc_state``, saved, loaded and sampled on; started by test_models.py.

Prints two lists of energies: of the state in memory, and of the one that was saved in the middle.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import netket as nk

import neuralqx_struct as s

N_SITES, N_STEPS = 6, 5


def fresh(seed):
    graph = nk.graph.Chain(N_SITES)
    hilbert = nk.hilbert.Spin(0.5, N_SITES)
    hamiltonian = nk.operator.IsingJax(hilbert, graph, h=1.0)
    sampler = nk.sampler.MetropolisLocal(hilbert, n_chains=16)
    model = nk.models.RBM(alpha=2, param_dtype=complex)
    state = nk.vqs.MCState(sampler, model, n_samples=256, seed=seed, sampler_seed=seed + 1)
    return state, hamiltonian


def to_struct(mc, state, energies):
    """What a checkpoint keeps of a state of NetKet."""
    weights, sampling, rule = state.parameters, state.sampler_state, state.sampler
    return mc.MCState(
        parameters=mc.RBM(
            kernel=weights["Dense"]["kernel"],
            hidden_bias=weights["Dense"]["bias"],
            visible_bias=weights["visible_bias"],
        ),
        sampler=mc.Sampler(
            sigma=sampling.σ,
            key=sampling.rng,
            n_steps=sampling.n_steps_proc,
            n_accepted=sampling.n_accepted_proc,
            sweep_size=rule.sweep_size,
            machine_pow=int(rule.machine_pow),
        ),
        sr=mc.StochasticReconfiguration(diag_shift=0.01),
        optimizer=mc.Optimizer(learning_rate=0.02),
        n_samples=state.n_samples,
        n_discard_per_chain=state.n_discard_per_chain,
        chunk_size=state.chunk_size,
        step=len(energies),
        energy_history=jnp.asarray(energies, complex),
    )


def into_netket(held, state):
    """The inverse: a fresh state of NetKet goes on where the checkpoint ends."""
    rbm, sampler = held.parameters, held.sampler
    state.parameters = {
        "Dense": {"kernel": rbm.kernel, "bias": rbm.hidden_bias},
        "visible_bias": rbm.visible_bias,
    }
    state.n_samples, state.n_discard_per_chain = held.n_samples, held.n_discard_per_chain
    state.chunk_size = held.chunk_size
    state.sampler_state = state.sampler_state.replace(
        σ=sampler.sigma,
        rng=sampler.key,
        n_steps_proc=sampler.n_steps,
        n_accepted_proc=sampler.n_accepted,
        log_prob=2 * state.log_value(sampler.sigma).real,
    )
    return state


def trained(state, hamiltonian, steps):
    """Energies of some steps of stochastic reconfiguration."""
    optimiser = nk.optimizer.Sgd(0.02)
    driver = nk.driver.VMC(
        hamiltonian,
        optimiser,
        variational_state=state,
        preconditioner=nk.optimizer.SR(diag_shift=0.01, holomorphic=True),
    )
    log = nk.logging.RuntimeLog()
    driver.run(steps, out=log, show_progress=False)
    return [complex(mean) for mean in log.data["Energy"]["Mean"]]


def main(schema, folder):
    mc = s.load_schema(schema)
    state, hamiltonian = fresh(3)
    energies = trained(state, hamiltonian, 20)
    assert energies[-1].real < energies[0].real - 0.5
    state.reset()
    held = to_struct(mc, state, energies)
    assert held.n_parameters == state.n_parameters
    held.export(folder / "ckpt")
    assert s.validate(folder / "ckpt") == []
    loaded = mc.load(folder / "ckpt")
    assert loaded == held and jax.tree.structure(loaded) == jax.tree.structure(held)
    other, _ = fresh(77)
    runs = [trained(into_netket(held, state), hamiltonian, N_STEPS)]
    runs.append(trained(into_netket(loaded, other), hamiltonian, N_STEPS))
    print(json.dumps([[repr(energy) for energy in run] for run in runs]))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
