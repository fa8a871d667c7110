"""Variational Monte Carlo with NetKet: states of four kinds, and the drivers that train them."""

import jax
import netket as nk
import numpy as np

import neuralqx_struct as s  # +
from neuralqx_struct.integrations.netket import from_struct, to_struct  # +


class Run(s.Struct, schema="lab.run", version=1):  # +
    state: object  # +


HILBERT = nk.hilbert.Spin(0.5, 4)
HAMILTONIAN = nk.operator.IsingJax(HILBERT, nk.graph.Chain(4), h=1.0)
MODELS = {
    "Jastrow": lambda: nk.models.Jastrow(param_dtype=complex),
    "RBM": lambda: nk.models.RBM(alpha=1, param_dtype=complex),
    "autoregressive": lambda: nk.models.ARNNDense(
        hilbert=HILBERT, layers=2, features=4, param_dtype=float
    ),
    "infidelity": lambda: nk.models.RBM(alpha=1, param_dtype=complex),
}


def create(name, seed=1):
    if name == "autoregressive":
        sampler = nk.sampler.ARDirectSampler(HILBERT)
    else:
        sampler = nk.sampler.MetropolisLocal(HILBERT, n_chains=8)
    return nk.vqs.MCState(sampler, MODELS[name](), n_samples=64, seed=seed, sampler_seed=seed)


def driver_of(name):
    state = create(name)
    if name == "infidelity":
        return nk.driver.Infidelity_SR(
            create(name, 2), nk.optimizer.Sgd(0.05), variational_state=state, diag_shift=0.01
        )
    return nk.driver.VMC_SR(
        HAMILTONIAN, nk.optimizer.Adam(0.02), variational_state=state, diag_shift=0.01
    )


def main(until, name):
    driver = driver_of(name)
    run = s.Series("run", keep_last=2)  # +
    if run.latest() is not None:  # +
        from_struct(run.load(load_cls=Run).state, driver.state, driver)  # +
    while driver.step_count < until:
        driver.run(1, show_progress=False)
        run.save(driver.step_count, Run(state=to_struct(driver.state, driver)))  # +
    state = driver.state
    values = state.log_value(HILBERT.all_states())
    return jax.tree.map(np.asarray, (state.variables, state.samples)), np.asarray(values)


CHANGED = "a field gets another name, one is added"
EDITS = {
    'class Run(s.Struct, schema="lab.run", version=1)': """\
MIGRATION = s.steps.migration(  # +
    1, [s.steps.rename(field="state", to="quantum"), s.steps.add(field="note", default="")]  # +
)  # +


class Run(s.Struct, schema="lab.run", version=2, migrations=[MIGRATION])""",
    "    state: object": "    quantum: object",
    "Run(state=to_struct(driver.state, driver))": 'Run(quantum=to_struct(driver.state, driver), note="new")',
    "load_cls=Run).state": "load_cls=Run).quantum",
    "    quantum: object  # +\n": "    quantum: object  # +\n    note: str  # +\n",
}
