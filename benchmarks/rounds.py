"""Interleaved measuring: the candidates take turns in every round, so that another load of the machine slows them all.

A job is timed in short blocks of calls, about half a millisecond each, after an untimed one; reported are the median of the blocks and the
median of the round-by-round ratios against one candidate. The results go to a table and to a JSON file.
"""

from __future__ import annotations

import gc
import importlib.metadata
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
BLOCK_NS = 500_000

Job = Callable[[], object]
Result = dict[str, dict[str, float]]


def compiled(expression: str, names: Mapping[str, Any]) -> Job:
    """A function of no arguments with code of its own: CPython specialises code for the types that it meets there."""
    namespace = dict(names)
    exec(f"def job():\n    return {expression}\n", namespace)
    return namespace["job"]


def measure(
    jobs: Mapping[str, Job], against: str, rounds: int, *, calls: int | None = None
) -> Result:
    """Measures the time of every candidate for the same job, in turns.

    Args:
        jobs: The functions to call, by candidate.
        against: The candidate that the ratios are against.
        rounds: Blocks of each candidate.
        calls: Calls in a block; by default as many as fill it.
    """
    if calls is None:
        warm = [_block(jobs[against], 100) for _ in range(3)]
        calls = max(1, round(BLOCK_NS / min(warm)))
        for job in jobs.values():
            _block(job, 100)
    times: dict[str, list[float]] = {name: [] for name in jobs}
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, job in jobs.items():
                _block(
                    job, (calls + 1) // 2
                )  # the candidate before has left its own things in the caches
                times[name].append(_block(job, calls))
    finally:
        gc.enable()
    return {
        name: {
            "median_us": statistics.median(taken) / 1000,
            "ratio": statistics.median(a / b for a, b in zip(taken, times[against], strict=True)),
        }
        for name, taken in times.items()
    }


def _block(job: Job, calls: int) -> float:
    start = time.perf_counter_ns()
    for _ in range(calls):
        job()
    return (time.perf_counter_ns() - start) / calls


def report(name: str, results: Mapping[str, Result], against: str, packages: Iterable[str]) -> None:
    """Print the results and write them to ``results/NAME.json``."""
    print(f"\n{name}: median (ratio against {against}), Python {platform.python_version()}")
    for job, by_candidate in results.items():
        print(f"\n{job}")
        for candidate, figures in by_candidate.items():
            amount = (
                f"{figures['bytes']:.0f} B"
                if "bytes" in figures
                else f"{figures['median_us']:.3g} us"
            )
            print(f"    {candidate:28} {amount:>10}  ({figures['ratio']:.2f})")
    RESULTS.mkdir(exist_ok=True)
    versions = {package: version for package in packages if (version := _version(package))}
    record = {
        "python": platform.python_version(),
        "packages": versions,
        "against": against,
        "results": results,
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
