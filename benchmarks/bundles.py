"""Saving and loading arrays, against the formats that users would choose instead, side by side in one process.

Four sets: 20 arrays of 1 GiB in all, 20 of 128 MiB, 10,000 arrays of 1 KiB, and 100 mixed ones with bfloat16. The
candidates take turns in every round, each starting one place later than in the round before; printed are the median of each
and the median of the round-by-round ratios against the reference of the table, then the same of the best
rounds and of the time on the processors, which are more reliable if other programs share the machine. "raw" is one write (with fsync) or read of
the same bytes in one file, the limit of every format. Our save always ends with fsync; a peer's name with "+fsync" is the
peer followed by one. Cold means that the pages of the file were given up before (posix_fadvise), which the host below may
not know. Run it with

    python benchmarks/bundles.py [--sets 1GiB 128MiB 10k mixed] [--only save load cold read one shapes manifest]
        [--peers safetensors orbax ...] [--rounds N] [--scale 0.1] [--folder DIR] [--out FILE]

The tables also go to `benchmarks/results/bundles.json`; parts that are measured again replace the old ones.
"""

from __future__ import annotations

import argparse
import gc
import json
import mmap
import os
import pickle
import platform
import shutil
import statistics
import tempfile
import time
import warnings
from operator import truediv
from pathlib import Path

import equinox
import flax.serialization
import jax
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import safetensors
import safetensors.numpy

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.manifest.check import check_manifest
from neuralqx_struct.manifest.text import parse_manifest, read_document
from neuralqx_struct.tools import inspection

DTYPES = ("float32", "float64", "int32", "complex64", "bfloat16", "float16", "uint8", "bool")
PARTS = ("save", "load", "cold", "read", "one", "shapes", "manifest")
SLOW = {"np.savez_compressed", "orbax", "flax msgpack", "equinox", "pickle"}


def sets(scale):
    rng = np.random.default_rng(0)

    def floats(count, total):
        size = max(int(total * scale) // count // 4, 1)
        return {f"layer{i}/kernel": rng.random(size, np.float32) for i in range(count)}

    def small():
        return {f"x{i}": rng.random(256, np.float32) for i in range(max(int(10_000 * scale), 10))}

    def mixed():
        shapes = [(64, int(rng.integers(1, 400))) for _ in range(100)]
        return {
            f"m{i}": rng.integers(0, 100, shape).astype(DTYPES[i % len(DTYPES)])
            for i, shape in enumerate(shapes)
        }

    return {
        "1GiB": lambda: floats(20, 1 << 30),
        "128MiB": lambda: floats(20, 128 << 20),
        "10k": small,
        "mixed": mixed,
    }


def synced(path):
    for file in [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]:
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def forget(path):
    """Give up the pages of a file or folder."""
    for file in [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]:
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def touch(arrays):
    """Read one number of each page."""
    total = 0
    for array in arrays.values() if isinstance(arrays, dict) else arrays:
        flat = np.asarray(array).reshape(-1)
        raw = flat.view(np.uint8)[::4096]
        total += int(raw.max(initial=0))
    return total


def write_raw(path, arrays):
    with path.open("wb", buffering=0) as file:
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        os.fsync(file.fileno())


def read_mmap(path, _):
    with path.open("rb") as file:
        view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return {"all": np.frombuffer(view, np.uint8)}


def save_safetensors(path, arrays):
    safetensors.numpy.save_file(arrays, path)


def orbax_save(path, arrays):
    with ocp.PyTreeCheckpointer() as writer:
        writer.save(path, dict(arrays))


def orbax_load(path, _):
    with ocp.PyTreeCheckpointer() as reader:
        return reader.restore(path)


def equinox_load(path, arrays):
    return equinox.tree_deserialise_leaves(path, dict(arrays))


def one_safetensors(path, name):
    with safetensors.safe_open(path, "numpy") as file:
        return {name: file.get_tensor(name)}


def one_npz(path, name):
    with np.load(path) as file:
        return {name: file[name]}


def one_of_ours(path, name, verify=True):
    key = next(k for k in bundle.read_manifest(path)["arrays"]) if name is None else name
    return {key: s.load(path, select=lambda p, _: p == (key,), verify=verify)[key]}


def npz_load(path, _):
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def pickled(path, arrays):
    with path.open("wb") as file:
        pickle.dump(arrays, file, 5)


def unpickled(path, _):
    with path.open("rb") as file:
        return pickle.load(file)


# name: (save, load, load of one); a path is a file, or a folder where the format is one
PEERS = {
    "raw": (write_raw, lambda path, _: {"all": np.fromfile(path, np.uint8)}, None),
    "np.savez": (lambda path, arrays: np.savez(path, **arrays), npz_load, one_npz),
    "np.savez_compressed": (
        lambda path, arrays: np.savez_compressed(path, **arrays),
        npz_load,
        one_npz,
    ),
    "safetensors": (
        save_safetensors,
        lambda path, _: safetensors.numpy.load_file(path),
        one_safetensors,
    ),
    "orbax": (orbax_save, orbax_load, None),
    "flax msgpack": (
        lambda path, arrays: path.write_bytes(flax.serialization.msgpack_serialize(dict(arrays))),
        lambda path, _: flax.serialization.msgpack_restore(path.read_bytes()),
        None,
    ),
    "equinox": (
        lambda path, arrays: equinox.tree_serialise_leaves(path, dict(arrays)),
        equinox_load,
        None,
    ),
    "pickle": (pickled, unpickled, None),
}
SUFFIX = {"np.savez": ".npz", "np.savez_compressed": ".npz"}


def rounds_of(jobs, rounds, before=lambda: None):
    """Seconds of each job in each round, by the clock and on the processors; a job that fails is dropped for its error."""
    times = {name: [] for name in jobs}
    failed = {}
    for number in range(rounds + 1):  # one to warm up
        names = list(jobs)
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            if name in failed:
                continue
            before()
            gc.collect()
            start, busy = time.perf_counter(), time.process_time()
            try:
                held = jobs[name]()
            except Exception as error:  # noqa: BLE001 - a failure of a peer is a result
                failed[name] = f"{type(error).__name__}: {str(error)[:120]}"
                continue
            spent = time.perf_counter() - start, time.process_time() - busy
            del held
            if number:
                times[name].append(spent)
    return times, failed


def table(title, jobs, reference, rounds, before=lambda: None):
    times, failed = rounds_of(jobs, rounds, before)
    rows = {}
    print(f"\n{title} (ratio against {reference})")
    for name, taken in times.items():
        if name in failed:
            rows[name] = {"fails": failed[name]}
            print(f"  {name:34} fails: {failed[name]}")
            continue
        (clock, busy), (against, against_busy) = (
            zip(*taken, strict=True),
            zip(*times[reference], strict=True),
        )
        rows[name] = {
            "median_ms": 1e3 * statistics.median(clock),
            "best_ms": 1e3 * min(clock),
            "cpu_ms": 1e3 * statistics.median(busy),
            "ratio": statistics.median(map(truediv, clock, against)),
            "best_ratio": min(clock) / min(against),
            "cpu_ratio": statistics.median(map(truediv, busy, against_busy)),
        }
        row = rows[name]
        print(
            f"  {name:34} {row['median_ms']:10.2f} ms {row['ratio']:8.3f}   best {row['best_ms']:10.2f} ms "
            f"{row['best_ratio']:8.3f}   cpu {row['cpu_ms']:10.2f} ms {row['cpu_ratio']:8.3f}",
            flush=True,
        )
    return rows


def saves(arrays, folder, peers, rounds):
    paths = {
        name: folder / f"save-{name.replace(' ', '-')}{SUFFIX.get(name, '')}" for name in peers
    }
    target = folder / "save-ours"

    def peer(name, sync):
        def job():
            peers[name][0](paths[name], arrays)
            if sync:
                synced(paths[name])

        return job

    def ours(**how):
        return lambda: s.export(arrays, target, **how)

    jobs = {"ours": ours(), "ours, safetensors": ours(store="safetensors")}
    for name in peers:
        jobs[name] = peer(name, sync=False)
        if name != "raw":
            jobs[f"{name} +fsync"] = peer(name, sync=True)

    def clear():
        for path in (*paths.values(), target):
            remove(path)

    if sum(a.nbytes for a in arrays.values()) > 300 << 20:
        jobs.pop("np.savez_compressed +fsync", None)
    return table("save", jobs, "np.savez", rounds, clear)


def loads(arrays, folder, peers, rounds, only):
    paths = {}
    for name, (save, _, _) in peers.items():
        paths[name] = folder / f"load-{name.replace(' ', '-')}{SUFFIX.get(name, '')}"
        try:
            save(paths[name], arrays)
        except Exception as error:  # noqa: BLE001 - as above
            print(f"  {name} does not save: {error}")
    ours = s.export(arrays, folder / "ours")
    packed = s.export(arrays, folder / "ours.zip")
    name = list(arrays)[len(arrays) // 2]

    def load(peer):
        return lambda: touch_held(peers[peer][1](paths[peer], arrays))

    def touch_held(held):
        touch(held)
        return held

    jobs = {
        "ours, verified": lambda: touch_held(s.load(ours)),
        "ours, mapped (verify=False)": lambda: touch_held(s.load(ours, verify=False)),
        "ours, verified, mmap=False": lambda: touch_held(s.load(ours, mmap=False)),
        "ours, zip, verified": lambda: touch_held(s.load(packed)),
        "raw mmap": lambda: touch_held(read_mmap(paths["raw"], None)),
        **{peer: load(peer) for peer in peers},
    }
    quick = {n: job for n, job in jobs.items() if n not in SLOW}
    files = [path for path in (*paths.values(), ours, packed) if path.exists()]
    reads = {
        "ours, verified": lambda: dict(bundle.read(ours).arrays),
        "ours, mapped (verify=False)": lambda: dict(bundle.read(ours, verify=False).arrays),
        "np.savez": lambda: npz_load(paths["np.savez"], None),
        "safetensors": lambda: safetensors.numpy.load_file(paths["safetensors"]),
    }
    ones = {
        "ours, verified": lambda: touch_held(one_of_ours(ours, name)),
        "ours, mapped (verify=False)": lambda: touch_held(one_of_ours(ours, name, verify=False)),
        "np.savez": lambda: touch_held(one_npz(paths["np.savez"], name)),
        "safetensors safe_open": lambda: touch_held(one_safetensors(paths["safetensors"], name)),
    }
    shapes = {
        "ours, abstract": lambda: s.load(ours, abstract=True),
        "ours, inspect": lambda: inspection.inspect(ours),
        "safetensors safe_open, shapes": lambda: shapes_of(paths["safetensors"]),
    }
    data = (ours / "manifest.json").read_bytes()
    document = parse_manifest(data)
    manifests = {
        "json.loads": lambda: json.loads(data),
        "parse and check": lambda: read_document(data),
        "check alone": lambda: check_manifest(document),
    }
    tables = {
        "load": ("load + touch, warm", jobs, "safetensors", rounds),
        "cold": (
            "load + touch, cold",
            quick,
            "safetensors",
            rounds,
            lambda: [forget(p) for p in files],
        ),
        "read": ("load, no touch, no decoding", reads, "np.savez", rounds),
        "one": ("one array + touch, warm", ones, "safetensors safe_open", max(rounds, 9)),
        "shapes": ("shapes alone", shapes, "safetensors safe_open, shapes", max(rounds, 9)),
        "manifest": ("manifest", manifests, "json.loads", max(rounds, 15)),
    }
    return {part: table(*how) for part, how in tables.items() if part in only}


def shapes_of(path):
    with safetensors.safe_open(path, "numpy") as file:
        return {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 - not a mapping


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    known = sets(1.0)
    parser.add_argument("--sets", nargs="+", choices=list(known), default=list(known))
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=PARTS, help="the parts to measure"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--scale", type=float, default=1.0, help="size of the sets; 0.01 for a quick run"
    )
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS))
    parser.add_argument(
        "--folder", type=Path, default=None, help="where to write; a temporary folder if left out"
    )
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results" / "bundles.json"
    )
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    chosen = {
        name: PEERS[name]
        for name in PEERS
        if name in given.peers or name in ("raw", "np.savez", "safetensors")
    }
    about = {
        "python": platform.python_version(),
        "jax": jax.__version__,
        "numpy": np.__version__,
        "safetensors": safetensors.__version__,
        "ml_dtypes": ml_dtypes.__version__,
        "cpus": os.cpu_count(),
        "rounds": given.rounds,
        "scale": given.scale,
    }
    given.out.parent.mkdir(exist_ok=True)
    old = json.loads(given.out.read_text()) if given.out.exists() else {}
    results = old["results"] if old.get("scale") == given.scale else {}
    for name in given.sets:
        arrays = sets(given.scale)[name]()
        nbytes = sum(array.nbytes for array in arrays.values())
        print(
            f"\n=== {name}: {len(arrays)} arrays, {nbytes / 2**20:.1f} MiB, {given.rounds} rounds"
        )
        peers = dict(chosen)
        if nbytes > 300 << 20:
            peers.pop("np.savez_compressed", None)  # half a minute for each GiB
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            found = results.setdefault(name, {}) | {"nbytes": nbytes, "arrays": len(arrays)}
            if "save" in given.only:
                found["save"] = saves(arrays, Path(folder), peers, given.rounds)
            if set(given.only) - {"save"}:
                found |= loads(arrays, Path(folder), peers, given.rounds, given.only)
            results[name] = found
        del arrays
        given.out.write_text(
            json.dumps({**about, "results": results}, indent=2) + "\n"
        )  # a later set may take long


if __name__ == "__main__":
    main()
