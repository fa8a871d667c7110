"""Run the benchmarks, and make the tables and plots of `docs/performance.md` of their results.

    python -m benchmarks [SUITE ...] [--keep]

Each suite is a module of its own and writes `benchmarks/results/SUITE.json`. With `--keep` the results join those in `docs/performance/results.json`,
of which the page is made: runs of `goals` as a further round of this Python, those of `curves` and `memory` in place of the ones before.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from benchmarks import page
from benchmarks.rounds import RESULTS

SUITES = (
    "goals",
    "curves",
    "memory",
    "many",
    "scale",
    "python",
    "pytree",
    "schema",
    "filters",
    "evolution",
    "foreign",
    "calls",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    parser.add_argument("--keep", action="store_true", help="add the results to the documentation")
    given = parser.parse_args()
    unknown = set(given.suites) - set(SUITES)
    if unknown:
        parser.error(f"expected suites among {', '.join(SUITES)}, got {', '.join(sorted(unknown))}")
    failed = []
    for suite in given.suites or SUITES:
        print(f"\n== {suite}", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{suite}"], check=False).returncode:
            failed.append(suite)
            continue
        path = RESULTS / f"{suite}.json"
        if given.keep and suite in page.KEPT:
            page.keep(suite, json.loads(path.read_text(encoding="utf-8")))
    page.write()
    print(page.goals_table(page.kept()))
    if failed:
        sys.exit(f"these failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
