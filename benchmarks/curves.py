"""Costs by size: operations on 1 to 100,000 arrays of 16 bytes, and on structs nested 1 to 100 deep, beside other formats.

    python -m benchmarks.curves [--most 100000] [--rounds 5]

The formats take turns in every round; times are those on the processors, which another load of the machine changes least. A format that took longer than three seconds is left out of the next size. The results go to
`benchmarks/results/curves.json`.
"""

from __future__ import annotations

import argparse
import itertools
import math
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import neuralqx_struct as s
from benchmarks.formats import FORMATS, PACKAGES, Format
from benchmarks.many import LIMITS, payload
from benchmarks.rounds import Job, figures, written
from neuralqx_struct import bundle

OURS = "neuralqx-struct"
LONGEST = 3.0
DEPTHS = (1, 10, 100)

Curves = dict[str, dict[str, dict[int, float]]]


def arrays(count: int) -> dict[str, np.ndarray]:
    """A dict of arrays of four floats."""
    data = np.arange(count * 4, dtype=np.float32).reshape(count, 4)
    return {f"x{i}": data[i] for i in range(count)}


def nested(depth: int) -> dict[str, Any]:
    """Dicts inside each other, of ten arrays each."""
    tree: dict[str, Any] = arrays(10)
    for _ in range(depth - 1):
        tree = {**arrays(10), "inner": tree}
    return tree


class Level(s.Struct):
    arrays: dict[str, np.ndarray]
    inner: Level | None = None


def levels(depth: int) -> Level:
    """Structs inside each other, of ten arrays each."""
    tree = None
    for _ in range(depth):
        tree = Level(arrays(10), tree)
    return tree


def timed(jobs: dict[str, Job], rounds: int) -> dict[str, list[float]]:
    """Nanoseconds on the processors of each job, in turns; the first round warms up."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(rounds + 1):
        for name, job in jobs.items():
            start = time.process_time_ns()
            job()
            if number:
                times[name].append(time.process_time_ns() - start)
    return times


def grow(
    title: str, sizes: list[int], jobs: Callable[[int, Path], dict[str, Job]], rounds: int
) -> dict[str, dict[int, float]]:
    """The median of each candidate in microseconds at each size, while it is quick enough."""
    found: dict[str, dict[int, float]] = {}
    slow: set[str] = set()
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            made = {n: job for n, job in jobs(size, Path(folder)).items() if n not in slow}
            for name, taken in timed(made, rounds).items():
                median = figures(taken, taken)["median_us"]
                found.setdefault(name, {})[size] = median
                if median > LONGEST * 1e6:
                    slow.add(name)
        shown = "  ".join(f"{name} {row[size]:.4g}" for name, row in found.items() if size in row)
        print(f"{title:16} {size:7}  {shown} us", flush=True)
    return found


def saving(tree: Any, mine: Any, folder: Path) -> dict[str, Job]:
    """Jobs that save a tree in each format; ours saves ``mine``."""

    def job(name: str, how: Format) -> Job:
        given = mine if name == OURS else tree
        return lambda: how.save(folder / name, given)

    return {name: job(name, how) for name, how in FORMATS.items()}


def loading(tree: Any, mine: Any, folder: Path) -> dict[str, Job]:
    """Jobs that load it; a format is saved when its job runs first."""

    def job(name: str, how: Format) -> Job:
        saved: list[object] = []

        def run() -> object:
            if not saved:
                how.save(folder / name, mine if name == OURS else tree)
                saved.append(name)
            return how.load(folder / name, tree)

        return run

    return {name: job(name, how) for name, how in FORMATS.items()}


def selecting(count: int, folder: Path) -> dict[str, Job]:
    """Jobs that read one array."""
    tree, wanted = arrays(count), f"x{count // 2}"

    def job(name: str, how: Format) -> Job:
        how.save(folder / name, tree)
        return lambda: how.one(folder / name, wanted)

    return {name: job(name, how) for name, how in FORMATS.items() if how.one is not None}


def judging(count: int, folder: Path) -> dict[str, Job]:
    """Validation of a bundle by its schema, and a migration that renames the field of all arrays."""
    old, new = folder / "old", folder / "new"
    bundle.write(old, payload(count), limits=LIMITS)
    source, target = folder / "hand.npz", folder / "by-hand.npz"
    np.savez(source, **arrays(count))

    def migrated() -> None:
        s.migrate(old, new, limits=LIMITS)
        shutil.rmtree(new)

    def by_hand() -> None:
        with np.load(source) as held:
            np.savez(target, **{f"y{name}": held[name] for name in held.files})

    return {
        "validate": lambda: s.validate(old, limits=LIMITS),
        "migrate": migrated,
        "np.load, rename, np.savez": by_hand,
    }


def slope(row: dict[int, float]) -> float:
    """The exponent of growth over the last decade: 1 where time grows as the size."""
    *_, (before, least), (size, most) = sorted(row.items())
    return math.log(most / least) / math.log(size / before)


def crossings(ours: dict[int, float], theirs: dict[int, float]) -> list[tuple[int, bool]]:
    """The sizes at which one becomes faster than the other; True where ours does."""
    common = sorted(ours.keys() & theirs.keys())
    logs = [math.log(ours[n] / theirs[n]) for n in common]
    found = []
    for (a, b), (small, large) in zip(
        itertools.pairwise(logs), itertools.pairwise(common), strict=True
    ):
        if (a > 0) != (b > 0):
            size = math.exp(math.log(small) + a / (a - b) * math.log(large / small))
            found.append((round(size), b <= 0))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    sizes = [10**i for i in range(int(math.log10(given.most)) + 1)]

    def flat(jobs: Callable[..., dict[str, Job]]) -> Callable[[int, Path], dict[str, Job]]:
        return lambda count, folder: jobs(tree := arrays(count), tree, folder)

    def deep(jobs: Callable[..., dict[str, Job]]) -> Callable[[int, Path], dict[str, Job]]:
        return lambda depth, folder: jobs(nested(depth), levels(depth), folder)

    cases: dict[str, tuple[list[int], Callable[[int, Path], dict[str, Job]]]] = {
        "export": (sizes, flat(saving)),
        "load": (sizes, flat(loading)),
        "select": (sizes, selecting),
        "validate and migrate": (sizes, judging),
        "export, deep": (list(DEPTHS), deep(saving)),
        "load, deep": (list(DEPTHS), deep(loading)),
    }
    curves = {title: grow(title, *case, given.rounds) for title, case in cases.items()}
    written("curves", {"curves": curves}, PACKAGES)


if __name__ == "__main__":
    main()
