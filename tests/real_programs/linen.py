"""A TrainState of Flax Linen with a transformation of Optax."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training.train_state import TrainState

import neuralqx_struct as s  # +
from tests.real_programs.changes import renamed

OPTIMIZERS = {
    "adamw": lambda: optax.adamw(1e-2),
    "multi_transform": lambda: optax.multi_transform(
        {"fast": optax.adam(1e-2), "slow": optax.sgd(1e-2, momentum=0.9)},
        lambda params: {name: "slow" if name == "last" else "fast" for name in params},
    ),
    "MultiSteps": lambda: optax.MultiSteps(optax.adam(1e-2), every_k_schedule=2),
    "inject_hyperparams": lambda: optax.inject_hyperparams(optax.adamw)(
        learning_rate=optax.cosine_decay_schedule(1e-2, 10)
    ),
    "schedule_free": lambda: optax.contrib.schedule_free_adamw(1e-2),
}


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(8, name="first")(x))
        return nn.Dense(1, name="last")(x)


def create(optimizer):
    net = Net()
    params = net.init(jax.random.key(0), jnp.ones((1, 3)))["params"]
    return TrainState.create(apply_fn=net.apply, params=params, tx=OPTIMIZERS[optimizer]())


@jax.jit
def update(state, key):
    x = jax.random.normal(key, (16, 3))

    def loss(params):
        return jnp.mean((state.apply_fn({"params": params}, x) - x.sum(1, keepdims=True)) ** 2)

    value, gradient = jax.value_and_grad(loss)(state.params)
    return state.apply_gradients(grads=gradient), value


def main(until, optimizer):
    state = create(optimizer)
    run = s.Series("run", keep_last=2)  # +
    if run.latest() is not None:  # +
        state = run.load("latest", like=state)  # +
    while state.step < until:
        state, loss = update(state, jax.random.fold_in(jax.random.key(1), state.step))
        run.save(state.step, state, {"loss": loss})  # +
    return state, state.apply_fn({"params": state.params}, jnp.ones((1, 3)))


CHANGED = "a module gets another name"
EDITS = {
    'name="first"': 'name="body"',
    'state = run.load("latest", like=state)  # +': """\
path, rules = run.root / str(run.latest()), {"of": "lab.linen@2"}  # +
        state, receipt = s.warm_start(path, state, rules, schema="schemas/linen")  # +
        assert not receipt.kept, receipt  # +""",
}


def change(*_):
    s.infer("run/3", schema="lab.linen").write("schemas/linen")
    renamed("schemas/linen", "first", "body")
