"""A model of haliax: Equinox with named axes."""

import equinox as eqx
import haliax as hax
import jax
import optax

import neuralqx_struct as s  # +
from tests.real_programs.changes import renamed

In, Mid, Out, Batch = hax.make_axes(In=3, Mid=8, Out=1, Batch=16)


class Net(eqx.Module):
    first: hax.nn.Linear
    last: hax.nn.Linear

    @classmethod
    def init(cls, key):
        one, two = jax.random.split(key)
        return cls(hax.nn.Linear.init(In, Mid, key=one), hax.nn.Linear.init(Mid, Out, key=two))

    def __call__(self, x):
        return self.last(hax.nn.relu(self.first(x)))


OPTIMIZER = optax.adamw(1e-2)


@eqx.filter_jit
def update(net, moments, step):
    x = hax.random.normal(jax.random.fold_in(jax.random.key(1), step), (Batch, In))

    def loss(net):
        return hax.mean((net(x) - hax.sum(x, In)) ** 2).scalar()

    value, gradient = eqx.filter_value_and_grad(loss)(net)
    updates, moments = OPTIMIZER.update(gradient, moments, net)
    return eqx.apply_updates(net, updates), moments, value


def main(until):
    net = Net.init(jax.random.key(0))
    moments = OPTIMIZER.init(eqx.filter(net, eqx.is_array))
    run, start = s.Series("run", keep_last=2), 0  # +
    if run.latest() is not None:  # +
        start = run.latest()  # +
        found = run.load("latest", like={"net": net, "moments": moments})  # +
        net, moments = found["net"], found["moments"]  # +
    for step in range(start + 1, until + 1):
        net, moments, loss = update(net, moments, step)
        run.save(step, {"net": net, "moments": moments}, {"loss": loss})  # +
    return eqx.filter((net, moments), eqx.is_array), net(hax.ones(In)).array


CHANGED = "a field gets another name"
EDITS = {
    "first: hax.nn.Linear": "body: hax.nn.Linear",
    "self.first": "self.body",
    'found = run.load("latest", like={"net": net, "moments": moments})  # +': """\
path, rules = run.root / str(run.latest()), {"of": "lab.net@2"}  # +
        found = {"net": net, "moments": moments}  # +
        found, receipt = s.warm_start(path, found, rules, schema="schemas/net")  # +
        assert not receipt.kept, receipt  # +""",
}


def change():
    s.infer("run/3", schema="lab.net").write("schemas/net")
    renamed("schemas/net", "first", "body")
