"""Sends SIGTERM at random moments to programs that save, and checks that the save of the handler is done.

Usage: python signalled_saver.py FOLDER TRIES
"""

import os
import random
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

import neuralqx_struct as s

LAST = 10**6
PATIENCE = 60  # seconds


def train(root: str, *, asynchronous: bool) -> None:
    """Saves steps for ever; the handler saves one more by another object of the same series."""
    state = {f"w{n}": np.full(64, n) for n in range(8)}

    def stop(*_: object) -> None:
        s.Series(root, keep_last=2).save(LAST, state)
        os._exit(0)

    run = s.Series(root, keep_last=2)
    run.save(0, state)
    signal.signal(signal.SIGTERM, stop)
    Path(f"{root}.ready").touch()
    for step in range(1, LAST):
        run.save(step, state, asynchronous=asynchronous)


def ended(child: int) -> bool:
    """True if a program ended well; one that does not end is killed."""
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        process, status = os.waitpid(child, os.WNOHANG)
        if process:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def main() -> None:
    """Prints the number of tries whose last step is complete."""
    folder, tries = sys.argv[1], int(sys.argv[2])
    warnings.simplefilter("ignore")  # JAX, and newer releases of Python, warn of forks
    s.Series(folder).save(0, {"w": np.ones(1)})  # imports all
    chance, good = random.Random(5), 0
    for number in range(tries):
        root = tempfile.mkdtemp(dir=folder)
        child = os.fork()
        if not child:
            train(root, asynchronous=number % 2 == 1)
        while not Path(f"{root}.ready").exists():
            time.sleep(0.001)
        time.sleep(chance.random() * 0.04)
        os.kill(child, signal.SIGTERM)
        if not ended(child):
            print(f"try {number} failed", file=sys.stderr)
        elif s.Series(root).load(LAST)["w7"][0] == 7:
            good += 1
    print(good)


if __name__ == "__main__":
    main()
