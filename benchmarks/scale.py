"""Saves and restores by Orbax's CheckpointManager: Structs against StandardSave, in turns.

    python -m benchmarks.scale [--mebibytes 256] [--rounds 9] [--where DIR]

Measured are the time that `save` blocks, the time until the step is complete, the time of a restore, and the time on the
processors (for the first, of the thread that calls `save`), which another load of the machine changes less. Each round runs both,
first the one, then the other in the next; reported are medians, and the medians and quartiles of the ratios of the rounds.
"""

import argparse
import functools
import logging
import shutil
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

import neuralqx_struct as s
from benchmarks.rounds import figures, written
from neuralqx_struct.integrations.orbax import StructRestore, StructSave

ARRAYS = 16
PARTS = ("blocking", "total", "restore", "cpu blocking", "cpu save", "cpu restore")


class State(s.Struct):
    params: dict[str, jax.Array]
    step: int


def state(mebibytes):
    rng = np.random.default_rng(0)
    rows = (mebibytes << 20) // (ARRAYS * 4 * 1024)
    arrays = {
        f"w{i}": jnp.asarray(rng.standard_normal((rows, 1024), np.float32)) for i in range(ARRAYS)
    }
    return jax.block_until_ready(State(params=arrays, step=1))


def timed(root, save, restore):
    """Seconds of the parts, of one save and one restore."""
    with ocp.CheckpointManager(root) as manager:
        start, cpu, thread = time.perf_counter(), time.process_time(), time.thread_time()
        manager.save(0, args=save)
        blocked, thread_blocked = time.perf_counter(), time.thread_time()
        manager.wait_until_finished()
        done, cpu_done = time.perf_counter(), time.process_time()
        found = manager.restore(0, args=restore)
        params = found["params"] if isinstance(found, dict) else found.params
        touched = [np.asarray(leaf)[-1, -1] for leaf in params.values()]
        end, cpu_end = time.perf_counter(), time.process_time()
    assert len(touched) == ARRAYS
    shutil.rmtree(root)
    return {
        "blocking": blocked - start,
        "total": done - start,
        "restore": end - done,
        "cpu blocking": thread_blocked - thread,
        "cpu save": cpu_done - cpu,
        "cpu restore": cpu_end - cpu_done,
    }


@functools.cache
def compared(mebibytes, rounds, where=None):
    """The figures of both by part; one more round comes first, to warm up."""
    logging.getLogger("absl").setLevel(logging.ERROR)
    ours = state(mebibytes)
    tree = {"params": ours.params, "step": 1}
    shapes = jax.tree.map(ocp.utils.to_shape_dtype_struct, tree)
    jobs = {
        "orbax": lambda root: timed(
            root, ocp.args.StandardSave(tree), ocp.args.StandardRestore(shapes)
        ),
        "ours": lambda root: timed(root, StructSave(ours), StructRestore(State)),
    }
    found = {name: {part: [] for part in PARTS} for name in jobs}
    with tempfile.TemporaryDirectory(dir=where) as folder:
        for number in range(rounds + 1):
            for name in sorted(jobs, reverse=bool(number % 2)):
                taken = jobs[name](Path(folder, name))
                for part in PARTS if number else ():
                    found[name][part].append(1e9 * taken[part])
    return {
        part: {name: figures(found[name][part], found["orbax"][part]) for name in jobs}
        for part in PARTS
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--where", type=Path, help="a folder on the disk to measure")
    options = parser.parse_args()
    record = compared(options.mebibytes, options.rounds, options.where)
    print(f"{options.mebibytes} MiB in {ARRAYS} arrays, {options.rounds} rounds")
    for part, by_name in record.items():
        ours, orbax = by_name["ours"], by_name["orbax"]
        print(
            f"{part:12} ours {ours['median_us'] / 1000:8.1f} ms   Orbax {orbax['median_us'] / 1000:8.1f} ms   "
            f"ratio {ours['ratio']:.2f} ({ours['low']:.2f} to {ours['high']:.2f})"
        )
    written(f"scale-{options.mebibytes}", record, ["jax", "orbax-checkpoint"])


if __name__ == "__main__":
    main()
