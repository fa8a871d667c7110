"""Interleaved measuring: the candidates take turns in every round, so that another load of the machine slows them all.

A job is timed in short blocks of calls, about half a millisecond each, after an untimed one; a job that takes longer is a block by itself.
Reported are the median of the blocks and, of the round-by-round ratios against one candidate, the median and the quartiles.
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
Clock = Callable[[], int]


def compiled(expression: str, names: Mapping[str, Any]) -> Job:
    """A function of no arguments with code of its own: CPython specialises code for the types that it meets there."""
    namespace = dict(names)
    exec(f"def job():\n    return {expression}\n", namespace)
    return namespace["job"]


def measure(
    jobs: Mapping[str, Job], against: str, rounds: int, *, clock: Clock = time.perf_counter_ns
) -> Result:
    """Measures the time of every candidate for the same job, in turns; each round begins one candidate later.

    Args:
        jobs: The functions to call, by candidate.
        against: The candidate that the ratios are against.
        rounds: Blocks of each candidate.
        clock: What counts, such as ``time.process_time_ns`` for the time on the processors.
    """
    calls = _calls(jobs[against])
    for job in jobs.values():
        _block(job, min(calls, 100), clock)
    times: dict[str, list[float]] = {name: [] for name in jobs}
    names = list(jobs)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            times[name].append(_timed(jobs[name], calls, clock))
    return {name: figures(taken, times[against]) for name, taken in times.items()}


def figures(taken: list[float], against: list[float]) -> dict[str, float]:
    """The median of nanoseconds, and the median and quartiles of their ratios against those of the reference."""
    ratios = [a / b for a, b in zip(taken, against, strict=True)]
    low, middle, high = quartiles(ratios)
    return {"median_us": statistics.median(taken) / 1000, "ratio": middle, "low": low, "high": high}


def quartiles(values: list[float]) -> list[float]:
    """The quartiles of values; of one value the value itself."""
    return statistics.quantiles(values, method="inclusive") if len(values) > 1 else values * 3


def _calls(job: Job) -> int:
    """How many calls fill a block."""
    job()
    once = _block(job, 1, time.perf_counter_ns)
    if once > BLOCK_NS / 2:
        return 1
    best = min(_block(job, 100, time.perf_counter_ns) for _ in range(3))
    return max(1, round(BLOCK_NS / best))


def _timed(job: Job, calls: int, clock: Clock) -> float:
    """Nanoseconds of a call. The collector runs as for users in a long job, and not in a short one, which it would hit by chance."""
    if calls == 1:
        gc.collect()
        return _block(job, 1, clock)
    gc.disable()
    try:
        _block(job, (calls + 1) // 2, clock)  # the candidate before has left its own in the caches
        return _block(job, calls, clock)
    finally:
        gc.enable()


def _block(job: Job, calls: int, clock: Clock) -> float:
    start = clock()
    for _ in range(calls):
        job()
    return (clock() - start) / calls


def report(name: str, results: Mapping[str, Result], against: str, packages: Iterable[str]) -> None:
    """Print the results and write them to ``results/NAME.json``."""
    print(f"\n{name}: median (ratio against {against}), Python {platform.python_version()}")
    for job, by_candidate in results.items():
        print(f"\n{job}")
        for candidate, found in by_candidate.items():
            amount = (
                f"{found['bytes']:.0f} B" if "bytes" in found else f"{found['median_us']:.3g} us"
            )
            print(f"    {candidate:28} {amount:>10}  ({found['ratio']:.2f})")
    written(name, {"against": against, "results": results}, packages)


def written(name: str, found: Mapping[str, Any], packages: Iterable[str]) -> None:
    """Write results to ``results/NAME.json``, with the versions that they hold for."""
    RESULTS.mkdir(exist_ok=True)
    record = {"python": platform.python_version(), "packages": versions(packages), **found}
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of the packages that are installed."""
    return {package: version for package in packages if (version := _version(package))}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
