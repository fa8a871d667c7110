"""Costs of a Struct under JAX, against its peers, side by side in one process.

An outer container holds four inner ones of five arrays and three statics each. Run it from the top of the repository with

    python -m benchmarks.pytree [--rounds N]

Ratios are against `jax.tree_util.register_dataclass`. The table also goes to `benchmarks/results/pytree.json`.
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp

from benchmarks import peers
from benchmarks.rounds import Job, compiled, measure, report

CANDIDATES = {
    "neuralqx-struct": peers.ours,
    "register_dataclass": peers.register_dataclass,
    "flax.struct": peers.flax,
    "equinox.Module": peers.equinox,
    "chex.dataclass (no static)": peers.chex,
    "jax_dataclasses": peers.jax_dataclasses,
    "neuraLQX 1.1.2": peers.neuralqx,
}

JOBS = {
    "flatten": "flatten(tree)",
    "unflatten": "unflatten(structure, leaves)",
    "tree.map": "tree_map(same, tree)",
    "tree.map of two": "tree_map(first, tree, tree)",
    "flatten_with_path": "flatten_with_path(tree)",
    "unflatten and read": "unflatten(structure, leaves).a.b",
    "jit identity": "jitted(tree)",
    "jit(grad)": "gradient(tree)",
    "jit(vmap)": "mapped(tree)",
}


def total(tree):
    return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(tree))


def jobs(Inner: type, Outer: type) -> dict[str, Job]:
    arrays = [jnp.full(2, float(i)) for i in range(20)]
    inner = [dict(zip(peers.NODES, arrays[5 * i : 5 * i + 5], strict=True)) for i in range(4)]
    tree = Outer(**{name: Inner(**values) for name, values in zip(peers.OUTER, inner, strict=True)})
    leaves, structure = jax.tree.flatten(tree)
    names = {
        "tree": tree,
        "leaves": leaves,
        "structure": structure,
        "flatten": jax.tree.flatten,
        "unflatten": jax.tree.unflatten,
        "tree_map": jax.tree.map,
        "flatten_with_path": jax.tree_util.tree_flatten_with_path,
        "same": lambda x: x,
        "first": lambda x, _: x,
        "jitted": jax.jit(lambda t: t),
        "gradient": jax.jit(jax.grad(total)),
        "mapped": jax.jit(jax.vmap(lambda t: t)),
    }
    return {job: compiled(expression, names) for job, expression in JOBS.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=301)
    rounds = parser.parse_args().rounds
    table = {name: jobs(*classes) for name, classes in peers.present(CANDIDATES).items()}
    against = "register_dataclass"
    results = {
        job: measure({name: candidate[job] for name, candidate in table.items()}, against, rounds)
        for job in JOBS
    }
    report("pytree", results, against, peers.PACKAGES)


if __name__ == "__main__":
    main()
