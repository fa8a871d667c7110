"""A chain of BlackJAX's NUTS, whose state and draws go on from where they were."""

from pathlib import Path

import blackjax
import jax
import jax.numpy as jnp

import neuralqx_struct as s  # +
from tests.real_programs.changes import next_version

SCHEMA = """
language: "1"
schema: lab.chain
version: 1
root: Chain
structs:
  Chain: {fields: {nuts: pytree, draws: "float32[many, 2]", key: "prng_key[threefry2x32]", step: int}}
"""
if not Path("schemas/chain/v1.yaml").exists():  # +
    Path("schemas/chain").mkdir(parents=True)  # +
    Path("schemas/chain/v1.yaml").write_text(SCHEMA)  # +
lab = s.load_schema("schemas/chain")  # +


def log_density(x):
    return -jnp.sum((x["angle"] - 1.0) ** 2) - 0.5 * jnp.sum(x["angle"]) ** 2


NUTS = blackjax.nuts(log_density, step_size=0.2, inverse_mass_matrix=jnp.ones(2))
step = jax.jit(NUTS.step)


def create():
    nuts = NUTS.init({"angle": jnp.zeros(2)})
    return lab.Chain(nuts=nuts, draws=jnp.zeros((0, 2)), key=jax.random.key(0), step=0)


def main(until):
    run = s.Series("run", keep_last=2)  # +
    chain = create() if run.latest() is None else run.load(load_cls=lab.Chain)  # +
    while chain.step < until:
        key, here = jax.random.split(chain.key)
        nuts, _ = step(here, chain.nuts)
        draws = jnp.concatenate([chain.draws, nuts.position["angle"][None]])
        chain = chain.replace(nuts=nuts, draws=draws, key=key, step=chain.step + 1)
        run.save(chain.step, chain)  # +
    return chain, chain.draws.mean(axis=0)


CHANGED = "a field gets another name"
EDITS = {
    "lab.Chain(nuts=": "lab.Chain(sampler=",
    "chain.replace(nuts=": "chain.replace(sampler=",
    "chain.nuts)": "chain.sampler)",
}


def change():
    next_version(
        "schemas/chain", {"{nuts: pytree": "{sampler: pytree"}, "rename: {field: nuts, to: sampler}"
    )
