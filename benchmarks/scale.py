"""Saves and restores by Orbax's CheckpointManager: Structs against StandardSave, in turns.

    python benchmarks/scale.py [--mebibytes 256] [--rounds 9] [--where DIR]

Measured are the time that `save` blocks, the time until the step is complete, the time of a restore, and the time on the
processors (for the first, of the thread that calls `save`), which another load of the machine changes less. Each round runs both,
first the one, then the other in the next; reported are medians, and medians of the ratios of each round.
"""

import argparse
import json
import logging
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

import neuralqx_struct as s
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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--where", type=Path, help="a folder on the disk to measure")
    options = parser.parse_args()
    logging.getLogger("absl").setLevel(logging.ERROR)
    ours = state(options.mebibytes)
    tree = {"params": ours.params, "step": 1}
    shapes = jax.tree.map(ocp.utils.to_shape_dtype_struct, tree)
    jobs = {
        "orbax": lambda root: timed(
            root, ocp.args.StandardSave(tree), ocp.args.StandardRestore(shapes)
        ),
        "ours": lambda root: timed(root, StructSave(ours), StructRestore(State)),
    }
    found = {name: [] for name in jobs}
    with tempfile.TemporaryDirectory(dir=options.where) as folder:
        for number in range(options.rounds + 1):  # one to warm up
            for name in sorted(jobs, reverse=bool(number % 2)):
                taken = jobs[name](Path(folder, name))
                if number:
                    found[name].append(taken)
    print(f"{options.mebibytes} MiB in {ARRAYS} arrays, {options.rounds} rounds")
    record = {}
    for part in PARTS:
        ratios = [
            mine[part] / theirs[part]
            for mine, theirs in zip(found["ours"], found["orbax"], strict=True)
        ]
        medians = {
            name: statistics.median(row[part] for row in rows) for name, rows in found.items()
        }
        record[part] = {**medians, "ratio": statistics.median(ratios)}
        print(
            f"{part:12} ours {medians['ours'] * 1000:8.1f} ms   Orbax {medians['orbax'] * 1000:8.1f} ms   "
            f"ratio {record[part]['ratio']:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        )
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    place = results / f"scale-{options.mebibytes}.json"
    place.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
