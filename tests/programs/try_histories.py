"""Compares the package with the model of random histories: python -m tests.programs.try_histories FIRST LAST [-v]

Prints each disagreement with its seed, then how many pairs of versions were compared, of which lint accepted the steps or
defaults, and the false alarms by code among all verdicts: those that a verdict may raise, as nobody knows the limits of
values that a function computes or a constraint implies. `-v` prints the documents too.
"""

import collections
import os
import sys
import tempfile
import warnings
from pathlib import Path

from tests.histories import history
from tests.histories.comparison import Comparison


def main(first, last, verbose):
    """Tries the seeds from `first` up to `last`; returns the number of histories with a disagreement."""
    counts, refusals, alarms = (collections.Counter() for _ in range(3))
    for seed in range(first, last):
        made = history(seed)
        with tempfile.TemporaryDirectory() as folder:
            verdict = Comparison(made, Path(folder)).run()
        for hop in made.hops:
            kind = "with steps" if hop.stepped else "without steps"
            counts["pairs"] += 1
            counts[f"{'refused' if verdict.findings else 'accepted'}, {kind}"] += 1
        refusals.update(finding.code for finding in verdict.findings[:1])
        counts["loads"] += verdict.loads
        counts["verdicts"] += verdict.judged_pairs
        alarms.update(verdict.alarms)
        if verdict.wrong:
            counts["wrong"] += 1
            print(made if verbose else str(made).splitlines()[0])
            for each in verdict.wrong if verbose else verdict.wrong[:1]:
                print("  " + str(each)[: 5000 if verbose else 400])
    print(dict(counts), "refused:", dict(refusals), "false alarms:", dict(alarms))
    return counts["wrong"]


if __name__ == "__main__":
    warnings.simplefilter("error")
    os.fsync = lambda file: None  # nothing here outlives the process
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    sys.exit(bool(main(int(words[0]), int(words[1]), "-v" in sys.argv)))
