"""Costs of grouping leaves by filters, against flax nnx and equinox, side by side in one process.

A model of many layers is split in two and put together again, at 1,000 and at 10,000 leaves. Every candidate holds the
same arrays in a container of its own kind: Structs, nnx Modules, equinox Modules. The last lines are the costs of Params
under JAX, against those of jax-blox. The candidates take turns in every round; printed are medians and the median of the round-by-round ratios of
ours to the peer. Run it with

    python benchmarks/filters.py [--rounds N]

The table also goes to `benchmarks/results/filters.json`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import blox
import equinox as eqx
import jax
import jax.numpy as jnp
from flax import nnx

import neuralqx_struct as s


class Layer(s.Struct):
    w: object = s.field(metadata={"tags": ["trainable"]})
    b: object = s.field(metadata={"tags": ["trainable"]})
    mean: object
    var: object


class Net(s.Struct):
    layers: list


class NnxLayer(nnx.Module):
    def __init__(self, x):
        self.w, self.b = nnx.Param(x), nnx.Param(x)
        self.mean, self.var = nnx.BatchStat(x), nnx.BatchStat(x)


class NnxNet(nnx.Module):
    def __init__(self, n, x):
        self.layers = nnx.List([NnxLayer(x) for _ in range(n)])


class EqxLayer(eqx.Module):
    w: object
    b: object
    mean: object
    var: object


class EqxNet(eqx.Module):
    layers: list


def jobs(leaves):
    """Each job's name, ours and its peers, as functions without arguments."""
    n, x, y = leaves // 4, jnp.ones(2), jnp.arange(2)
    net, other = Net([Layer(x, x, y, y) for _ in range(n)]), NnxNet(n, x)
    module = EqxNet([EqxLayer(x, x, y, y) for _ in range(n)])

    def nnx_split_merge():
        return nnx.merge(*nnx.split(other, nnx.Param, ...))

    def split_merge():
        return s.merge(*s.split(net, "trainable", ...))

    def eqx_partition_combine():
        return eqx.combine(*eqx.partition(module, eqx.is_inexact_array))

    def partition_combine():
        return s.combine(*s.partition(net, s.filters.DType("floating")))

    return {
        "split + merge": (split_merge, {"nnx.split/merge": nnx_split_merge}),
        "partition + combine": (
            partition_combine,
            {"eqx.partition/combine": eqx_partition_combine},
        ),
        **params_jobs(n, x),
    }


def params_jobs(n, x):
    names = [(f"layer{i}", part) for i in range(n) for part in ("w", "b", "mean", "var")]
    ours = s.Params({("net", *path): s.Param(x, trainable=path[1] in "wb") for path in names})
    peer = blox.Params()
    for path in names:
        peer[("net", *path)] = blox.Param(x, trainable=path[1] in "wb")
    identity = jax.jit(lambda params: params)

    def candidate(params):
        leaves, structure = jax.tree.flatten(params)
        halves = params.split()

        def step():
            trainable, rest = jax.tree.unflatten(structure, leaves).split()
            return jax.tree.leaves(trainable.merge(rest))

        return {
            "flatten Params": lambda: jax.tree.flatten(params),
            "unflatten Params": lambda: jax.tree.unflatten(structure, leaves),
            "tree.map Params": lambda: jax.tree.map(lambda leaf: leaf, params),
            "jit identity of Params": lambda: identity(params),
            "unflatten, split, merge, flatten Params": step,
            "merge Params": lambda: halves[0].merge(halves[1]),
            "read all Params": lambda: [param.value for _, param in params.items()],
        }

    jobs, peers = candidate(ours.locked()), candidate(peer.locked())
    return {name: (job, {"blox.Params": peers[name]}) for name, job in jobs.items()}


def seconds(job):
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    results = {}
    for leaves in (1_000, 10_000):
        for name, (ours, peers) in jobs(leaves).items():
            times = {"ours": []} | {peer: [] for peer in peers}
            for _ in range(rounds):
                for candidate, job in {"ours": ours, **peers}.items():
                    times[candidate].append(seconds(job))
            row = {candidate: statistics.median(t) * 1e3 for candidate, t in times.items()}
            ratios = {
                p: statistics.median(a / b for a, b in zip(times["ours"], times[p], strict=True))
                for p in peers
            }
            results[f"{name}, {leaves}"] = {"ms": row, "ratio": ratios}
            shown = "  ".join(
                f"{peer} {row[peer]:.2f} ms (ratio {ratio:.2f})" for peer, ratio in ratios.items()
            )
            print(f"{leaves:6} {name:40} ours {row['ours']:.2f} ms  {shown}")
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    (folder / "filters.json").write_text(
        json.dumps({"jax": jax.__version__, "results": results}, indent=2) + "\n"
    )


if __name__ == "__main__":
    main()
