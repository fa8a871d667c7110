"""A model of Equinox with a BatchNorm, whose statistics are an ``eqx.nn.State``."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import neuralqx_struct as s  # +
from tests.real_programs.changes import renamed


class Net(eqx.Module):
    first: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    head: eqx.nn.MLP

    def __init__(self, key):
        first, head = jax.random.split(key)
        self.first = eqx.nn.Linear(3, 8, key=first)
        self.norm = eqx.nn.BatchNorm(8, axis_name="batch", mode="ema")
        self.head = eqx.nn.MLP(8, 1, 4, 1, key=head)

    def __call__(self, x, state):
        x, state = self.norm(self.first(x), state)
        return self.head(jax.nn.relu(x)), state


OPTIMIZER = optax.adam(1e-2)


@eqx.filter_jit
def update(net, state, moments, step):
    x = jax.random.normal(jax.random.fold_in(jax.random.key(1), step), (16, 3))

    def loss(net):
        y, new = jax.vmap(net, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(x, state)
        return jnp.mean((y - x.sum(1, keepdims=True)) ** 2), new

    (value, state), gradient = eqx.filter_value_and_grad(loss, has_aux=True)(net)
    updates, moments = OPTIMIZER.update(gradient, moments, net)
    return eqx.apply_updates(net, updates), state, moments, value


def main(until):
    net, state = eqx.nn.make_with_state(Net)(jax.random.key(0))
    moments = OPTIMIZER.init(eqx.filter(net, eqx.is_array))
    run, start = s.Series("run", keep_last=2), 0  # +
    if run.latest() is not None:  # +
        start = run.latest()  # +
        found = {"net": net, "state": state, "moments": moments}  # +
        found = run.load("latest", like=found)  # +
        net, state, moments = found["net"], found["state"], found["moments"]  # +
    for step in range(start + 1, until + 1):
        net, state, moments, loss = update(net, state, moments, step)
        run.save(step, {"net": net, "state": state, "moments": moments}, {"loss": loss})  # +
    tested = eqx.nn.inference_mode(net)
    return eqx.filter((net, state, moments), eqx.is_array), tested(jnp.ones(3), state)[0]


CHANGED = "a field gets another name"
EDITS = {
    "first: eqx.nn.Linear": "body: eqx.nn.Linear",
    "self.first": "self.body",
    'found = run.load("latest", like=found)  # +': """\
path, rules = run.root / str(run.latest()), {"of": "lab.net@2", "paths": {}}  # +
        for number, name in enumerate(STATISTICS):  # +
            rules["paths"][f"state/{number}"] = f"state/{name}"  # +
        found, receipt = s.warm_start(path, found, rules, schema="schemas/net")  # +
        assert not receipt.kept, receipt  # +""",
    "OPTIMIZER = ": """\
STATISTICS = ("Net.norm.ema_first_time_index", "Net.norm.ema_state_index")  # +
OPTIMIZER = """,
}


def change():
    s.infer("run/3", schema="lab.net").write("schemas/net")
    renamed("schemas/net", "first", "body")
