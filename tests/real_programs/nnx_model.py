"""A module of Flax NNX with its Optimizer and its metrics."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx

import neuralqx_struct as s  # +
from tests.real_programs.changes import renamed


class Net(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(3, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.drop = nnx.Dropout(0.1, rngs=rngs)
        self.last = nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, x):
        return self.last(self.drop(nnx.relu(self.norm(self.first(x)))))


@nnx.jit
def update(net, optimizer, metrics, step):
    x = jax.random.normal(jax.random.fold_in(jax.random.key(1), step), (16, 3))

    def loss(net):
        return jnp.mean((net(x) - x.sum(1, keepdims=True)) ** 2)

    value, gradient = nnx.value_and_grad(loss)(net)
    metrics.update(loss=value)
    optimizer.update(net, gradient)


def main(until):
    net = Net(nnx.Rngs(0))
    optimizer = nnx.Optimizer(net, optax.adamw(1e-2), wrt=nnx.Param)
    metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"))
    all_of_it = {"net": net, "optimizer": optimizer, "metrics": metrics}
    run, start = s.Series("run", keep_last=2), 0  # +
    if run.latest() is not None:  # +
        start = run.latest()  # +
        nnx.update(all_of_it, run.load("latest"))  # +
    for step in range(start + 1, until + 1):
        update(net, optimizer, metrics, step)
        run.save(step, nnx.to_pure_dict(nnx.state(all_of_it)), metrics.compute())  # +
    net.eval()
    return nnx.to_pure_dict(nnx.state(all_of_it)), (net(jnp.ones((1, 3))), metrics.compute())


CHANGED = "an attribute gets another name"
EDITS = {
    "self.first": "self.body",
    'nnx.update(all_of_it, run.load("latest"))  # +': """\
found = nnx.to_pure_dict(nnx.state(all_of_it))  # +
        path, rules = run.root / str(run.latest()), {"of": "lab.nnx@2"}  # +
        found, receipt = s.warm_start(path, found, rules, schema="schemas/nnx")  # +
        assert not receipt.kept, receipt  # +
        nnx.update(all_of_it, found)  # +""",
}


def change():
    s.infer("run/3", schema="lab.nnx").write("schemas/nnx")
    renamed("schemas/nnx", "first", "body")
