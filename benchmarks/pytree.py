"""What a Struct costs under JAX, against `jax.tree_util.register_dataclass` and flax.struct, side by side in one process.

An outer container holds four inner ones of five arrays and three statics each. The candidates take turns in every round;
printed are the median of each and the median of the round-by-round ratios against register_dataclass (constructors:
against a frozen stdlib dataclass). Run it with

    python benchmarks/pytree.py [--rounds N]

The table also goes to `benchmarks/results/pytree.json`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from pathlib import Path

import flax.struct
import jax
import jax.numpy as jnp

import neuralqx_struct as s

NODES, STATICS = tuple("abcde"), ("name", "size", "flag")


def struct_classes():
    class Inner(s.Struct):
        a: object
        b: object
        c: object
        d: object
        e: object
        name: str = s.field(static=True, default="n")
        size: int = s.field(static=True, default=3)
        flag: bool = s.field(static=True, default=True)

    class Outer(s.Struct):
        a: object
        b: object
        c: object
        d: object

    return Inner, Outer


def dataclass_classes():
    fields = [(n, object) for n in NODES] + [("name", str, "n"), ("size", int, 3), ("flag", bool, True)]
    Inner = dataclasses.make_dataclass("Inner", fields, frozen=True)
    Outer = dataclasses.make_dataclass("Outer", [(n, object) for n in "abcd"], frozen=True)
    jax.tree_util.register_dataclass(Inner, list(NODES), list(STATICS))
    jax.tree_util.register_dataclass(Outer, list("abcd"), [])
    return Inner, Outer


def flax_classes():
    class Inner(flax.struct.PyTreeNode):
        a: object
        b: object
        c: object
        d: object
        e: object
        name: str = flax.struct.field(pytree_node=False, default="n")
        size: int = flax.struct.field(pytree_node=False, default=3)
        flag: bool = flax.struct.field(pytree_node=False, default=True)

    class Outer(flax.struct.PyTreeNode):
        a: object
        b: object
        c: object
        d: object

    return Inner, Outer


CANDIDATES = {
    "neuralqx_struct": struct_classes,
    "register_dataclass": dataclass_classes,
    "flax.struct": flax_classes,
}


def jobs(make):
    Inner, Outer = make()
    arrays = [jnp.ones(2) for _ in range(20)]
    tree = Outer(*[Inner(*arrays[5 * i : 5 * i + 5]) for i in range(4)])
    leaves, treedef = jax.tree.flatten(tree)
    identity = jax.jit(lambda t: t)
    identity(tree)
    inner = Inner(1, 2, 3, 4, 5, "n", 3, True)
    replace = (lambda: inner.replace(a=2)) if hasattr(inner, "replace") else (lambda: dataclasses.replace(inner, a=2))
    return {
        "flatten": lambda: jax.tree.flatten(tree),
        "unflatten": lambda: jax.tree.unflatten(treedef, leaves),
        "tree.map": lambda: jax.tree.map(lambda x: x, tree),
        "jit identity": lambda: identity(tree),
        "construct": lambda: Inner(1, 2, 3, 4, 5, "n", 3, True),
        "replace": replace,
        "read 5": lambda: (inner.a, inner.b, inner.c, inner.d, inner.e),
    }


def seconds(job, number):
    start = time.perf_counter()
    for _ in range(number):
        job()
    return (time.perf_counter() - start) / number


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=31)
    rounds = parser.parse_args().rounds
    table = {name: jobs(make) for name, make in CANDIDATES.items()}
    results: dict[str, dict[str, dict[str, float]]] = {}
    for job in next(iter(table.values())):
        number = 200 if job == "jit identity" else 2000
        times: dict[str, list[float]] = {name: [] for name in table}
        for _ in range(rounds):
            for name, candidate in table.items():
                times[name].append(seconds(candidate[job], number))
        results[job] = {
            name: {
                "median_us": statistics.median(t) * 1e6,
                "ratio": statistics.median(a / b for a, b in zip(t, times["register_dataclass"], strict=True)),
            }
            for name, t in times.items()
        }
        shown = "  ".join(f"{name} {r['median_us']:.2f} us ({r['ratio']:.2f})" for name, r in results[job].items())
        print(f"{job:13} {shown}")
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    (folder / "pytree.json").write_text(json.dumps({"jax": jax.__version__, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
