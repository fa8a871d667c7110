"""A JAX program of several processes that saves and restores by Orbax's managers; driven by tests/integrations/test_orbax.py.

Restores the latest step, if there is one, as the newest version of its schema on a mesh of all devices, saves the next
one, and prints one JSON line.
"""

import json
import os
import sys
from pathlib import Path

import jax

RANK, COUNT, PORT, ROOT = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
if COUNT > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{PORT}", COUNT, RANK)

# ruff: noqa: E402 - JAX is told of the other processes before anything asks for its devices
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import neuralqx_struct as s
from neuralqx_struct.integrations.orbax import StructRestore, StructSave

v1 = ocp.v1
SCHEMA = s.load_schema(ROOT / "net")
MESH = Mesh(np.array(jax.devices()).reshape(2, -1), ("x", "y"))
VALUES = np.arange(16 * 16, dtype=np.float32).reshape(16, 16)
RULES = {"inputs": "x", "outputs": "y"}


def spread(values, *axes):
    sharding = NamedSharding(MESH, PartitionSpec(*axes))
    return jax.make_array_from_callback(values.shape, sharding, lambda region: values[region])


def holds(array, values):
    return all(
        np.array_equal(np.asarray(part.data), values[part.index])
        for part in array.addressable_shards
    )


def first_net(step):
    return SCHEMA.at(1).Net(
        w=spread(VALUES + step, "x", "y"),
        small=spread(VALUES.astype(ml_dtypes.float8_e4m3fn), None, "y"),
        copied=spread(VALUES[0], None),
        local=jnp.arange(4, dtype=jnp.int32),
        key=jax.random.key(7),
        step=step,
    )


def right(net, step):
    return [
        holds(net.kernel, VALUES + step),
        net.kernel.sharding == NamedSharding(MESH, PartitionSpec("x", "y")),
        holds(net.small, VALUES.astype(ml_dtypes.float8_e4m3fn)),
        holds(net.copied, VALUES[0]),
        net.local.addressable_shards[0].data.tolist() == [0, 1, 2, 3],
        net.step == step,
    ]


def with_manager():
    best = {"best_fn": lambda metrics: metrics["loss"], "best_mode": "min"}
    options = ocp.CheckpointManagerOptions(max_to_keep=3, **best)
    with ocp.CheckpointManager(ROOT / "m", options=options) as manager:
        latest = manager.latest_step()
        seen = []
        if latest is not None:
            wanted = StructRestore(SCHEMA.Net, mesh=MESH, rules=RULES)
            found = manager.restore(latest, args=ocp.args.Composite(net=wanted))["net"]
            seen = right(found, latest)
        step = 0 if latest is None else latest + 1
        args = ocp.args.Composite(
            net=StructSave(first_net(step)), at=ocp.args.JsonSave({"n": step})
        )
        manager.save(step, args=args, metrics={"loss": -step})
        manager.wait_until_finished()
        return {"latest": latest, "seen": seen, "steps": manager.all_steps()}


def one_process_that_cannot_save():
    """Every process raises the error of one, at the save."""
    with ocp.CheckpointManager(ROOT / "refused") as manager:
        value = object() if COUNT - RANK == 1 else 3
        try:
            manager.save(0, args=StructSave({"w": spread(VALUES, "x"), "value": value}))
        except s.SerializationError as error:
            return error.code
    return None


def with_v1():
    place = ROOT / f"v1-{COUNT}"
    v1.save_checkpointables(place, {"net": first_net(5)})
    wanted = StructRestore(SCHEMA.Net, mesh=MESH, rules=RULES)
    return right(v1.load_checkpointables(place, {"net": wanted})["net"], 5)


if __name__ == "__main__":
    said = {"manager": with_manager(), "v1": with_v1(), "refused": one_process_that_cannot_save()}
    print(json.dumps(said), flush=True)
    os._exit(0)  # one that ends first would be taken for a lost one
