"""A manager whose process is killed again and again while it saves; driven by tests/integrations/test_orbax.py.

Each life opens the folder that the last one left, restores and verifies its latest step, and saves until it is killed.
Prints one JSON line for each life: the step that it found.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

import neuralqx_struct as s
from neuralqx_struct.integrations.orbax import StructRestore, StructSave

ROOT, LIVES, SEED = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
KEPT = 3
VALUES = np.arange(1 << 16, dtype=np.float32)


def state(step):
    return {"w": jnp.asarray(VALUES + step), "host": np.arange(100) + step, "step": step}


def life(tell, saves):
    """Checks the latest step, and saves further ones.

    Args:
        tell: Called with the step that was found, before the first save.
        saves: How many steps to save.
    """
    options = ocp.CheckpointManagerOptions(max_to_keep=KEPT)
    with ocp.CheckpointManager(ROOT, options=options) as manager:
        latest = manager.latest_step()
        for step in sorted(manager.all_steps())[-KEPT:]:  # Orbax removes older ones file by file
            assert s.verify(ROOT / str(step) / "default") == [], step
        if latest is not None:
            found = manager.restore(latest, args=StructRestore())
            assert found["step"] == latest and np.array_equal(found["w"], VALUES + latest)
            assert np.array_equal(found["host"], np.arange(100) + latest)
        tell(latest)
        first = 0 if latest is None else latest + 1
        for step in range(first, first + saves):
            manager.save(step, args=StructSave(state(step)))


def main():
    chance = random.Random(SEED)
    for number in range(LIVES + 1):
        last = number == LIVES
        reading, writing = os.pipe()
        child = os.fork()  # no thread runs yet: the parent computes nothing
        if not child:
            life(lambda step: os.write(writing, json.dumps(step).encode()), 1 if last else 10**6)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            told = os.read(pipe.fileno(), 100)
            if not last:
                time.sleep(chance.uniform(0.0, 2.0))
                os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        expected = 0 if last else signal.SIGKILL
        print(
            json.dumps({"found": json.loads(told), "as_expected": status == expected}), flush=True
        )


if __name__ == "__main__":
    main()
