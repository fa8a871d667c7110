"""A run that saves every thousandth step, and at once when it is preempted: SIGTERM arrives; driven by test_orbax.py.

Prints the step at which it was preempted.
"""

import os
import signal
import sys
import time
from pathlib import Path

import jax

ROOT, PORT = Path(sys.argv[1]), sys.argv[2]
jax.distributed.initialize(f"127.0.0.1:{PORT}", 1, 0)  # JAX listens to SIGTERM from then on

# ruff: noqa: E402 - JAX is told of its processes before anything asks for its devices
import jax.numpy as jnp
import orbax.checkpoint as ocp

from neuralqx_struct.integrations.orbax import StructSave

OPTIONS = ocp.CheckpointManagerOptions(save_interval_steps=1000, enable_async_checkpointing=True)

with ocp.CheckpointManager(ROOT, options=OPTIONS) as manager:
    for step in range(1000):
        if step == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        manager.save(step, args=StructSave({"w": jnp.arange(6.0) + step, "step": step}))
        if manager.reached_preemption(step):
            break
        time.sleep(0.05)
    manager.wait_until_finished()
print(step, flush=True)
os._exit(0)
