"""Peaks of memory of saving, loading and migrating, each in a process of its own, beside other formats.

    python -m benchmarks.memory [--bytes 1073741824] [--many 100000]

Counted is private memory above what the process had before, at its height; pages of mapped files belong to the system and do not count. The
ratio is to the bytes of all arrays. The results go to `benchmarks/results/memory.json`. It needs `/proc` of Linux.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import neuralqx_struct as s
from benchmarks.curves import OURS, arrays
from benchmarks.formats import FORMATS, PACKAGES, Format, Tree
from benchmarks.many import LIMITS, payload
from benchmarks.rounds import written
from neuralqx_struct import bundle

ROOT = Path(__file__).parents[1]
#: Formats that take minutes for 100,000 arrays are measured with few arrays alone.
FEW = {"orbax"}


def private() -> int:
    """Private memory of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def peak(job: Callable[[], object]) -> int:
    """Private memory above the present, at its height while a job runs and its result is held."""
    done = threading.Event()
    before = most = private()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.001):
            most = max(most, private())

    watcher = threading.Thread(target=watch)
    watcher.start()
    held = job()
    done.set()
    watcher.join()
    most = max(most, private())
    del held
    return most - before


def large(total: int) -> dict[str, np.ndarray]:
    """Twenty arrays of this many bytes in all."""
    return {f"layer{i}": np.full(total // 80, i, np.float32) for i in range(20)}


def renamed(how: Format, path: Path, template: Tree) -> object:
    """Loads a tree, renames its arrays and saves them: a migration without a schema."""
    return how.save(
        path.with_name("new"), {f"y{n}": a for n, a in how.load(path, template).items()}
    )


def child(operation: str, name: str, kind: str, size: int, folder: Path) -> int:
    """Runs in the process that is measured; a peak in bytes."""
    path = folder / name
    if operation == "migrate" and name == OURS:
        return peak(lambda: s.migrate(path, folder / "new", limits=LIMITS))
    tree = arrays(size) if kind == "many" else large(size)
    how = FORMATS[name]
    if operation == "export":
        return peak(lambda: how.save(path, tree))
    how.save(path, tree)
    template = tree if name == "equinox" else {}
    job = partial(renamed, how) if operation == "migrate" else how.load
    return peak(lambda: job(path, template))


def measured(operation: str, name: str, kind: str, size: int) -> int:
    """The peak of an operation, of a new process."""
    with tempfile.TemporaryDirectory() as folder:
        if operation == "migrate" and name == OURS:
            held = payload(size) if kind == "many" else payload(20, size // 80)
            bundle.write(Path(folder, name), held, limits=LIMITS)
            del held
        words = [operation, name, kind, str(size), folder]
        command = [sys.executable, "-m", "benchmarks.memory", "--child", *words]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        time.sleep(0.1)
        shutil.rmtree(folder, ignore_errors=True)
    return int(run.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=1 << 30)
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        operation, name, kind, size, folder = given.child
        print(child(operation, name, kind, int(size), Path(folder)))
        return
    found: dict[str, dict[str, dict[str, float]]] = {}
    for kind, size, total in (
        ("large", given.bytes, given.bytes),
        ("many", given.many, 16 * given.many),
    ):
        for operation in ("export", "load", "migrate"):
            row = found.setdefault(f"{operation}, {kind}", {})
            for name in FORMATS:
                if kind == "many" and name in FEW:
                    continue
                most = measured(operation, name, kind, size)
                row[name] = {"bytes": most, "ratio": most / total}
                print(
                    f"{operation:8} {kind:6} {name:16} {most / 2**20:9.1f} MiB  {most / total:8.3f}",
                    flush=True,
                )
    written("memory", {"memory": found}, PACKAGES)


if __name__ == "__main__":
    main()
