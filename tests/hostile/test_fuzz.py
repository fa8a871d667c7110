"""The reader under hundreds of damaged bundles, in a process of its own that gets 256 MiB; see ``fuzz_reader.py``, and `.ci/nightly`."""

import json
import os
import subprocess
import sys


def fuzzed(root, cases, seed):
    done = subprocess.run(
        [
            sys.executable,
            str(root / "tests/programs/fuzz_reader.py"),
            "--cases",
            str(cases),
            "--seed",
            str(seed),
        ],
        check=False,
        capture_output=True,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "PYTHONHASHSEED": "0"},
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_damaged_bundles_end_in_errors_of_this_package(root):
    report = fuzzed(root, 700, seed=1)
    assert report["wrong"] == [], report["wrong"][0]["problem"]
    outcomes = report["outcomes"]
    assert sum(outcomes.values()) == 1_400  # each is read in two ways
    assert len(outcomes) > 15, outcomes  # it reaches deep: not only the outermost checks refuse
    assert outcomes["value"] > 35, outcomes
