"""A search over learning rates in a pool of spawned workers, which load and save states themselves."""

import multiprocessing

import jax
import jax.numpy as jnp
import optax

import neuralqx_struct as s  # +


class Trial(s.Struct, schema="lab.trial", version=1):  # +
    weights: jax.Array
    opt_state: object
    rate: float
    step: int


def loss(weights, key):
    x = jax.random.normal(key, (16, 3))
    return jnp.mean((x @ weights - x.sum(1)) ** 2)


def work(job):
    """Trains one trial in a worker; the state comes and goes with pickle."""
    trial, until = job
    run = s.Series(f"run/{trial.rate}", keep_last=2)  # +
    trial = trial if run.latest() is None else run.load(load_cls=Trial)  # +
    optimizer = optax.adam(trial.rate)
    while trial.step < until:
        gradient = jax.grad(loss)(trial.weights, jax.random.key(trial.step))
        updates, opt_state = optimizer.update(gradient, trial.opt_state)
        weights = optax.apply_updates(trial.weights, updates)
        trial = trial.replace(weights=weights, opt_state=opt_state, step=trial.step + 1)
        run.save(trial.step, trial)  # +
    return trial


def create(rate):
    weights = jnp.zeros(3)
    return Trial(weights=weights, opt_state=optax.adam(rate).init(weights), rate=rate, step=0)


def main(until):
    jobs = [(create(rate), until) for rate in (0.1, 0.01)]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        trials = pool.map(work, jobs)
    return trials, jnp.stack([trial.weights for trial in trials])


CHANGED = "a field gets another name"
EDITS = {
    "class Trial(": """\
MIGRATION = s.steps.migration(1, [s.steps.rename(field="weights", to="kernel")])  # +


class Trial(""",
    'schema="lab.trial", version=1': 'schema="lab.trial", version=2, migrations=[MIGRATION]',
    "    weights: jax.Array": "    kernel: jax.Array",
    "trial.weights": "trial.kernel",
    "trial.replace(weights=": "trial.replace(kernel=",
    "Trial(weights=": "Trial(kernel=",
}
