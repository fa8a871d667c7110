"""A diffusion model of points in the plane, with a moving average (EMA) of its weights."""

from pathlib import Path

import jax
import jax.numpy as jnp
import optax

import neuralqx_struct as s  # +
from tests.real_programs.changes import next_version

SCHEMA = """
language: "1"
schema: lab.denoiser
version: 1
root: Train
structs:
  Layer: {fields: {kernel: "float32[i, o]", bias: "float32[o]"}}
  Denoiser: {fields: {layers: "list[Layer, depth]"}}
  Train: {fields: {net: Denoiser, opt_state: pytree, key: "prng_key[threefry2x32]", step: int}}
"""
if not Path("schemas/denoiser/v1.yaml").exists():  # +
    Path("schemas/denoiser").mkdir(parents=True)  # +
    Path("schemas/denoiser/v1.yaml").write_text(SCHEMA)  # +
lab = s.load_schema("schemas/denoiser")  # +
OPTIMIZER = optax.adamw(1e-2)
NOISE = jnp.linspace(0.05, 0.95, 20)


def create():
    keys = jax.random.split(jax.random.key(0), 3)
    sizes = [(3, 16), (16, 16), (16, 2)]
    layers = [
        lab.Layer(kernel=jax.random.normal(key, size) / size[0] ** 0.5, bias=jnp.zeros(size[1]))
        for key, size in zip(keys, sizes, strict=True)
    ]
    net = lab.Denoiser(layers=layers)
    return lab.Train(net=net, opt_state=OPTIMIZER.init(net), key=jax.random.key(1), step=0)


def denoise(net, x, level):
    x = jnp.concatenate([x, level], axis=-1)
    for layer in net.layers[:-1]:
        x = jax.nn.silu(x @ layer.kernel + layer.bias)
    return x @ net.layers[-1].kernel + net.layers[-1].bias


@jax.jit
def update(net, opt_state, key):
    key, *draws = jax.random.split(key, 4)
    angle = jax.random.uniform(draws[0], (64, 1), maxval=6.28)
    points = jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], axis=1)
    level = jax.random.choice(draws[1], NOISE, (64, 1))
    noise = jax.random.normal(draws[2], points.shape)
    mixed = jnp.sqrt(1.0 - level) * points + jnp.sqrt(level) * noise
    loss, gradient = jax.value_and_grad(lambda n: ((denoise(n, mixed, level) - noise) ** 2).mean())(
        net
    )
    updates, opt_state = OPTIMIZER.update(gradient, opt_state, net)
    return optax.apply_updates(net, updates), opt_state, key, loss


def main(until):
    run = s.Series("run", keep_last=2)  # +
    state = create() if run.latest() is None else run.load(load_cls=lab.Train)  # +
    while state.step < until:
        net, opt_state, key, loss = update(state.net, state.opt_state, state.key)
        state = state.replace(net=net, opt_state=opt_state, key=key, step=state.step + 1)
        run.save(state.step, state, {"loss": loss})  # +
    return state, denoise(state.net, jnp.ones((1, 2)), jnp.ones((1, 1)))


CHANGED = "the average is added, as a copy of the weights"
EDITS = {
    "lab.Train(net=net, ": "lab.Train(net=net, ema=net, ",
    "state.replace(net=net, ": """\
state.replace(
            ema=optax.incremental_update(net, state.ema, 0.1), net=net, """,
}


def change():
    next_version(
        "schemas/denoiser",
        {"{net: Denoiser, ": "{net: Denoiser, ema: Denoiser, "},
        "add: {field: ema, copy: net}",
    )
