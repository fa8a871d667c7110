"""Variational inference of NumPyro, with its own optimiser, whose state holds structures of trees."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

import neuralqx_struct as s  # +

X = jnp.linspace(-1.0, 1.0, 20)
Y = 2.0 * X + 0.5


def model(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    offset = numpyro.sample("offset", dist.Normal(0.0, 1.0))
    with numpyro.plate("points", x.shape[0]):
        numpyro.sample("y", dist.Normal(slope * x + offset, 0.1), obs=y)


GUIDE = AutoNormal(model)
INFERENCE = SVI(model, GUIDE, numpyro.optim.Adam(1e-2), Trace_ELBO())
update = jax.jit(INFERENCE.update)


@jax.tree_util.register_dataclass
@dataclass
class Fit:
    svi: object
    step: int = field(metadata={"static": True})


def main(until):
    run = s.Series("run", keep_last=2)  # +
    new = Fit(INFERENCE.init(jax.random.key(0), X, Y), 0)
    fit = new if run.latest() is None else run.load()  # +
    while fit.step < until:
        svi, loss = update(fit.svi, X, Y)
        fit = Fit(svi, fit.step + 1)
        run.save(fit.step, fit, {"loss": loss})  # +
    return fit, INFERENCE.get_params(fit.svi)


CHANGED = "a field is added, with a default"
EDITS = {
    '    step: int = field(metadata={"static": True})\n': (
        '    step: int = field(metadata={"static": True})\n    best: float = float("inf")\n'
    ),
    "fit = Fit(svi, fit.step + 1)": "fit = Fit(svi, fit.step + 1, jnp.minimum(fit.best, loss))",
}
