"""Saves a step of a series, and is killed, refused or interrupted at each call to the system; driven by test_series.py.

Prints a row for each call and each way, as crash_writer.py, whose calls these are.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np

import neuralqx_struct as s
from neuralqx_struct.series import Series
from tests.programs.crash_writer import CALLS, in_child, install

KEEP = {"keep_last": 1, "keep_best": ("energy", "min")}


def state(step):
    return {"w": np.full(3000, float(step)), "step": step}


def fresh(root):
    """Steps 10 (the best), 20 and 30, and the remains of writers that were killed."""
    shutil.rmtree(root, ignore_errors=True)
    for step in (5, 10, 20, 30):
        Series(root).save(step, state(step), {"energy": abs(step - 10)})
    (root / "5").rename(root / ".5.gone-0123456789ab")
    (root / ".7.tmp-0123456789ab").mkdir()


def seen(root):
    """The steps, each read; and the names in the folder."""
    series = Series(root, **KEEP)
    for step in series.steps():
        held = series.load(step)
        assert held["step"] == step and (held["w"] == step).all()
    return {
        "steps": series.steps(),
        "latest": series.latest(),
        "best": series.best(),
        "names": sorted(path.name for path in root.iterdir()),
    }


def attempt(root, result, at=None, how=None):
    CALLS.reset(at, how)
    row = {"error": None}
    try:
        Series(root, **KEEP).save(40, state(40), {"energy": 99})
    except KeyboardInterrupt:
        row["error"] = "interrupted"
    except s.SerializationError as error:
        row |= {"error": str(error), "code": error.code}
    row["calls"] = CALLS.names
    CALLS.reset()
    result.write_text(json.dumps(row))


def main():
    root = Path(sys.argv[1])
    result = root.with_name("result.json")

    def run(at=None, how=None):
        result.unlink(missing_ok=True)
        ended = in_child(lambda: attempt(root, result, at, how))
        return {"signal": ended, **(json.loads(result.read_text()) if result.exists() else {})}

    install(exchange=sys.argv[2] == "yes")
    in_child(lambda: fresh(root))  # forks must not find JAX at work
    saved = root.with_name("saved")
    shutil.copytree(root, saved)
    names = run()["calls"]
    for how in ("kill", "full", "interrupt"):
        for at, name in enumerate(names):
            shutil.rmtree(root)
            shutil.copytree(saved, root)
            row = {"at": at, "call": name, "how": how, **run(at, how), **seen(root)}
            row["calls"] = names
            if how == "kill":
                in_child(lambda: Series(root, **KEEP).save(50, state(50)))
                after = seen(root)
                row["after"] = {"steps": after["steps"], "names": after["names"]}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
