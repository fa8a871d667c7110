"""The tables and plots of `docs/performance.md`, made of the results that are kept beside it.

The text of the page is written by hand. A table is between a line `<!-- table: NAME -->` and the next `<!-- end -->`.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.curves import OURS, crossings, slope
from neuralqx_struct.printing import escaped, tag

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
FOLDER = PAGE.with_suffix("")
KEPT = ("goals", "curves", "memory")
COLOURS = ("#d1495b", "#3d6f8e", "#2f7f6f", "#8d4a8f", "#b07d2b", "#6a5acd", "#808080")

Results = dict[str, Any]


def kept() -> Results:
    """The results of the documentation."""
    path = FOLDER / "results.json"
    found: Results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def keep(suite: str, found: Mapping[str, Any]) -> None:
    """Adds a run to the results: another round of the goals, or new curves and memory."""
    results = kept()
    if suite == "goals":
        results.setdefault("goals", []).append(found)
    else:
        results[suite] = found
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps(results, indent=1) + "\n"
    (FOLDER / "results.json").write_text(text, encoding="utf-8")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    lines = [list(head)]
    lines += [["---"] * len(lines[0]), *map(list, rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def goals_table(results: Results) -> str:
    """Medians of the ratios on each Python, with the least and the most of the rounds; in bold what misses its goal."""
    pythons, cases = rounds_of(results)
    rows = []
    for case, by_python in cases.items():
        row = []
        for python in pythons:
            own = by_python.get(python)
            row += [_goal(own), _ratios(own)] if own else ["", ""]
        name, _, against = case.partition(" / ")
        rows.append([name, f"`{against}`", *row])
    heads = [head for python in pythons for head in (f"goal, {python}", f"Python {python}")]
    return table(["case", "against", *heads], rows)


def rounds_of(results: Results) -> tuple[list[str], dict[str, dict[str, list[dict[str, float]]]]]:
    """The Pythons, and the rounds of each case on each of them."""
    cases: dict[str, dict[str, list[dict[str, float]]]] = {}
    runs = results.get("goals", [])
    for run in runs:
        for case, found in run["goals"].items():
            cases.setdefault(case, {}).setdefault(minor(run), []).append(found)
    return sorted({minor(run) for run in runs}), cases


def missed(results: Results) -> set[str]:
    """The names of the cases whose median misses its goal on some Python."""
    _, cases = rounds_of(results)
    return {
        case.partition(" / ")[0]
        for case, by_python in cases.items()
        if any(map(_misses, by_python.values()))
    }


def minor(run: Mapping[str, Any]) -> str:
    """The Python of a run, such as 3.13."""
    return ".".join(run["python"].split(".")[:2])


def _goal(rounds: list[dict[str, float]]) -> str:
    return f"{rounds[-1]['goal']:g}"


def _misses(rounds: list[dict[str, float]]) -> bool:
    return statistics.median(each["ratio"] for each in rounds) > rounds[-1]["goal"]


def _ratios(rounds: list[dict[str, float]]) -> str:
    ratios = [each["ratio"] for each in rounds]
    shown = f"{statistics.median(ratios):.3g}"
    if _misses(rounds):
        shown = f"**{shown}**"
    return f"{shown} ({min(ratios):.3g} to {max(ratios):.3g})" if len(ratios) > 1 else shown


def growth_table(results: Results) -> str:
    """For each operation, how it grows, and where it crosses the other formats."""
    rows = []
    for title, row in curves_of(results).items():
        for name, own in row.items():
            if name not in (OURS, "validate", "migrate"):
                continue
            met = []
            for other, theirs in row.items():
                for size, faster in crossings(own, theirs) if other != name else ():
                    met.append(f"{'faster' if faster else 'slower'} than {other} from {size:,} on")
            what = title if name == OURS else name
            rows.append([what, f"{slope(own):.2f}", "; ".join(met) or "none"])
    return table(["operation", "exponent of the last decade", "crosses"], rows)


def curves_of(results: Results) -> dict[str, dict[str, dict[int, float]]]:
    """The curves, with sizes as numbers."""
    return {
        title: {name: {int(n): t for n, t in own.items()} for name, own in row.items()}
        for title, row in results["curves"]["curves"].items()
    }


def memory_table(results: Results) -> str:
    """Peaks of private memory in MiB."""
    found = results["memory"]["memory"]
    names = list(dict.fromkeys(name for row in found.values() for name in row))

    def cell(row: Mapping[str, Any], name: str) -> str:
        return f"{row[name]['bytes'] / 2**20:,.0f}" if name in row else ""

    rows = [[title, *(cell(row, name) for name in names)] for title, row in found.items()]
    return table(["MiB", *names], rows)


TABLES = {"goals": goals_table, "growth": growth_table, "memory": memory_table}


# Plots


def plot(row: Mapping[str, Mapping[int, float]], unit: str) -> str:
    """A plot of microseconds by size as SVG, both axes logarithmic."""
    sizes = [size for own in row.values() for size in own]
    times = [time for own in row.values() for time in own.values()]
    left, right = math.log10(min(sizes)), math.log10(max(sizes))
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    wide, tall, x0, y0 = 460, 300, 60, 16

    def place(size: float, time: float) -> tuple[float, float]:
        x = x0 + wide * (math.log10(size) - left) / (right - left)
        return x, y0 + tall * (high - math.log10(time)) / (high - low)

    parts = []
    for power in range(low, high + 1):
        _, y = place(10**left, 10**power)
        parts.append(tag("path", "", class_="grid", d=f"M{x0} {y:.1f}h{wide}"))
        parts.append(tag("text", _seconds(power), x=x0 - 6, y=f"{y + 4:.1f}", text_anchor="end"))
    for power in range(math.ceil(left), math.floor(right) + 1):
        x, _ = place(10**power, 10**low)
        parts.append(tag("path", "", class_="grid", d=f"M{x:.1f} {y0}v{tall}"))
        parts.append(
            tag("text", f"{10**power:,}", x=f"{x:.1f}", y=y0 + tall + 18, text_anchor="middle")
        )
    parts.append(tag("text", unit, x=x0 + wide / 2, y=y0 + tall + 36, text_anchor="middle"))
    for index, (name, own) in enumerate(row.items()):
        points = [place(*point) for point in sorted(own.items())]
        line = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        colour = COLOURS[index % len(COLOURS)]
        width = 3 if index == 0 else 1.5
        parts.append(tag("path", "", d=line, fill="none", stroke=colour, stroke_width=width))
        y = y0 + 12 + 20 * index
        parts.append(
            tag("path", "", d=f"M{x0 + wide + 14} {y - 4}h22", stroke=colour, stroke_width=width)
        )
        parts.append(tag("text", escaped(name), x=x0 + wide + 42, y=y))
    style = ".grid{stroke:#8884}text{font:13px system-ui,sans-serif;fill:#808080}"
    box = f"0 0 {x0 + wide + 210} {y0 + tall + 46}"
    inside = tag("style", style) + "".join(parts)
    return tag("svg", inside, xmlns="http://www.w3.org/2000/svg", viewBox=box, role="img") + "\n"


def _seconds(power: int) -> str:
    """A power of ten microseconds in the unit that suits it."""
    unit = ("µs", "ms", "s")[min(max(power, 0) // 3, 2)]
    return f"{10.0 ** (power - 3 * ('µs', 'ms', 's').index(unit)):g} {unit}"


def plots(results: Results) -> dict[str, str]:
    """The plots by the names of their files."""
    return {
        f"{re.sub(r'[^a-z]+', '-', title)}.svg": plot(
            row, "structs" if "deep" in title else "arrays"
        )
        for title, row in curves_of(results).items()
    }


def page(results: Results, old: str) -> str:
    """The text of the page with its tables made anew."""
    for name, make in TABLES.items():
        found = f"<!-- table: {name} -->\n\n{make(results)}\n\n<!-- end -->"
        pattern = rf"<!-- table: {name} -->.*?<!-- end -->"
        old = re.sub(pattern, lambda _, found=found: found, old, flags=re.DOTALL)
    return old


def write() -> None:
    """Writes the page and the plots of the results that are kept."""
    results = kept()
    if not set(KEPT) <= results.keys():
        return
    PAGE.write_text(page(results, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for name, drawn in plots(results).items():
        (FOLDER / name).write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    write()
