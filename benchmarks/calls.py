"""Counts the modules that a warm load goes through, and the calls between them.

Run from the repository root: python benchmarks/calls.py [--pairs]
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import neuralqx_struct as s

PACKAGE = "neuralqx_struct"


def calls_between_modules(action: Any) -> Counter[tuple[str, str]]:
    """Returns how often each module of the package calls each other one."""
    found: Counter[tuple[str, str]] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        caller = frame.f_back
        if event != "call" or caller is None:
            return
        names = (caller.f_globals.get("__name__", ""), frame.f_globals.get("__name__", ""))
        if names[0] != names[1] and all(name.startswith(PACKAGE) for name in names):
            found[names] += 1

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return found


def main() -> None:
    """Prints the counts for a load of version 1 as the newest, and of the newest."""
    schema = s.load_schema("schemas/vmc_state")
    with tempfile.TemporaryDirectory() as scratch:
        old = Path("tests/golden/format-1/vmc_state_1")
        new = schema.load(old).export(Path(scratch, "new"))
        for version, path in ((schema.versions[0], old), (schema.versions[-1], new)):
            for _ in range(3):
                schema.load(path)
            found = calls_between_modules(lambda path=path: schema.load(path))
            modules = {name for pair in found for name in pair}
            print(f"version {version}: {len(modules)} modules, {found.total()} calls")
            if "--pairs" in sys.argv:
                for pair, times in found.most_common():
                    print(f"{times:6} {pair[0]} -> {pair[1]}")


if __name__ == "__main__":
    main()
