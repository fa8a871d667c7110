"""A JAX program of several processes on this machine, which save and load together; driven by test_hosts.py.

Each process runs every scene at the same time as the others and prints what it saw, one JSON line for a scene.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import jax

RANK, COUNT, PORT, ROOT = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{PORT}", COUNT, RANK)

# ruff: noqa: E402 - JAX is told of the other processes before anything asks for its devices
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import neuralqx_struct as s
from neuralqx_struct.formats import orbax_store as orbax
from neuralqx_struct.formats.orbax_layout import extent

MESH = Mesh(np.array(jax.devices()).reshape(COUNT, -1), ("x", "y"))
VALUES = np.arange(64, dtype=np.float32).reshape(8, 8)


def layout(*axes):
    return NamedSharding(MESH, PartitionSpec(*axes))


def spread(values, *axes):
    return jax.make_array_from_callback(values.shape, layout(*axes), lambda region: values[region])


def state(values=VALUES):
    return {
        "w": spread(values, "x", "y"),
        "rows": spread(values, "y"),
        "copied": spread(values, None),
        "small": spread(values.astype(ml_dtypes.float8_e4m3fn), "y", "x"),
        "empty": spread(np.zeros((0, 4), np.int8), None),
        "host": np.arange(5),
        "half": np.ones(3, ml_dtypes.bfloat16),
        "local": jnp.arange(3),
        "key": jax.random.key(7),
        "step": 7,
    }


def holds(array, values):
    return all(
        np.array_equal(np.asarray(part.data), values[part.index])
        for part in array.addressable_shards
    )


def caught(call):
    """What a call raises: class, whether it is a FileExistsError, code, text."""
    try:
        call()
    except s.SerializationError as error:
        return [type(error).__name__, isinstance(error, FileExistsError), error.code, str(error)]
    return None


def saving_and_loading():
    path = s.export(state(), ROOT / "a", store="orbax", metadata={"run": 1})
    here = sorted(entry.name for entry in ROOT.iterdir())
    asked, original = [], orbax._asked
    orbax._asked = lambda store, part: asked.append(extent(part)) or original(store, part)
    loaded = s.load(
        path, shardings=lambda place, leaf: layout("x", "y") if leaf.shape == (8, 8) else None
    )
    orbax._asked = original
    return {
        "path": str(path),
        "here": here,
        "asked": asked,
        "right": [
            holds(loaded["w"], VALUES) and loaded["w"].sharding == layout("x", "y"),
            holds(loaded["rows"], VALUES) and holds(loaded["copied"], VALUES),
            holds(loaded["small"], VALUES.astype(ml_dtypes.float8_e4m3fn)),
            loaded["host"].tolist() == [0, 1, 2, 3, 4] and loaded["local"].tolist() == [0, 1, 2],
            (jax.random.key_data(loaded["key"]) == jax.random.key_data(jax.random.key(7)))
            .all()
            .item(),
        ],
        "verified": list(map(str, s.verify(path))),
    }


def what_was_local_is_placed_on_all_hosts():
    loaded = s.load(ROOT / "a", shardings=lambda place, leaf: layout())
    names = ("w", "local", "key", "empty")
    return [
        not loaded[name].is_fully_addressable and loaded[name].sharding == layout()
        for name in names
    ]


def going_on_meanwhile():
    values = state()
    pending = s.export(values, ROOT / "b", store="orbax", asynchronous=True)
    donated = jax.jit(lambda w: w * 0, donate_argnums=0)(values["w"])
    values["host"][:] = -1
    jax.block_until_ready(donated)
    there = pending.wait().is_dir()
    loaded = s.load(ROOT / "b", shardings={**dict.fromkeys(values), "w": layout("y", "x")})
    return (
        there
        and pending.done
        and holds(loaded["w"], VALUES)
        and loaded["host"].tolist() == [0, 1, 2, 3, 4]
    )


def what_stands_is_kept():
    return caught(lambda: s.export(state(VALUES + 1), ROOT / "a", store="orbax"))


def what_stands_is_replaced():
    s.export(state(VALUES + 1), ROOT / "b", store="orbax", overwrite=True)
    return holds(
        s.load(ROOT / "b", shardings={**dict.fromkeys(state()), "w": layout("x")})["w"], VALUES + 1
    )


def one_process_alone():
    if RANK:
        from neuralqx_struct.manifest.payload import HeldArrays

        with_records = {"v": np.arange(3)}
        return caught(lambda: orbax.ORBAX_STORE.write(ROOT / "d", HeldArrays(with_records)))
    s.convert(ROOT / "a", ROOT / "d", store="npz")
    s.convert(ROOT / "d", ROOT / "e", store="orbax")
    return [str(found) for found in s.verify(ROOT / "e")]


def a_folder_that_comes_late():
    """Orbax counts operations in each process, and one has saved alone; none writes before the folder is there."""
    from orbax.checkpoint._src.path import atomicity

    made = atomicity._create_tmp_directory

    async def late(*given, **options):
        await asyncio.sleep(0.5)
        return await made(*given, **options)

    atomicity._create_tmp_directory = late
    path = s.export(state(), ROOT / "late", store="orbax")
    atomicity._create_tmp_directory = made
    return [str(found) for found in s.verify(path)]


def another_store():
    return caught(lambda: s.export(state(), ROOT / "c", store="npz"))


def an_array_that_one_process_has_deleted():
    values = state()
    if RANK == 1:
        values["w"].addressable_shards[0].data.delete()
    return caught(lambda: s.export(values, ROOT / "c", store="orbax"))


def a_folder_that_one_process_does_not_see():
    real = Path.is_dir
    if RANK == 1:
        Path.is_dir = lambda self: False
    try:
        return caught(lambda: s.export(state(), ROOT / "c", store="orbax"))
    finally:
        Path.is_dir = real


def one_process_that_fails_at_the_end():
    def progress(done, total):
        if done == total and RANK == 0:
            raise s.SerializationError("expected to go on, got stopped", code="NQX406")

    pending = s.export(
        state(VALUES + 2),
        ROOT / "b",
        store="orbax",
        overwrite=True,
        asynchronous=True,
        progress=progress,
    )
    return [caught(pending.wait), caught(pending.wait)]


def something_else_that_one_process_raises():
    from neuralqx_struct.formats.hosts import agreed

    def step():
        if RANK == 1:
            raise ZeroDivisionError("nothing of ours")
        return b""

    try:
        agreed(step)
    except ZeroDivisionError:
        return "ZeroDivisionError"
    except s.SerializationError as error:
        return str(error)


class Net(s.Struct):
    kernel: jax.Array = s.field(metadata={"axes": ["inputs", "outputs"]})


def a_series_of_steps():
    series = s.Series(ROOT / "run", keep_last=1, keep_best=("energy", "min"))
    for step, energy in ((1, 2.0), (2, 1.0), (3, 4.0), (4, 3.0)):
        net = Net(kernel=spread(VALUES + step, "x", "y"))
        pending = series.save(step, net, {"energy": energy}, store="orbax", asynchronous=True)
    pending.wait()
    rules = {"inputs": "y", "outputs": "x"}
    loaded = series.load("best", load_cls=Net, mesh=MESH, rules=rules)
    right = holds(loaded.kernel, VALUES + 2) and loaded.kernel.sharding == layout("y", "x")
    return [series.steps(), series.latest(), series.best(), right]


class Loader:
    """A data loader that has a part of the data in each process."""

    def __init__(self, seen=0):
        self.seen = seen

    def get_state(self):
        return {"rank": RANK, "seen": self.seen, "part": "x" * (RANK * 1000)}

    def set_state(self, state):
        self.seen = state["rank"], state["seen"], len(state["part"])


def a_loop_with_data_loaders_that_one_process_is_told_to_end():
    series = s.Series(ROOT / "loop", save_every=4, preemption=True)
    loader, found = Loader(), []
    for step in range(1, 100):
        loader.seen = step * (RANK + 1)
        if RANK and step == 6:
            os.kill(os.getpid(), signal.SIGTERM)
        if series.should_save(step):
            net = Net(kernel=spread(VALUES + step, "x", "y"))
            series.save(step, net, data=loader, store="orbax")
            found.append(step)
        if series.preempted:
            break
    again = Loader()
    loaded = series.load("latest", data=again, shardings=lambda place, leaf: layout("x", "y"))
    return [found, again.seen, holds(loaded.kernel, VALUES + 6)]


SCENES = (
    saving_and_loading,
    what_was_local_is_placed_on_all_hosts,
    going_on_meanwhile,
    what_stands_is_kept,
    what_stands_is_replaced,
    one_process_alone,
    a_folder_that_comes_late,
    another_store,
    an_array_that_one_process_has_deleted,
    a_folder_that_one_process_does_not_see,
    one_process_that_fails_at_the_end,
    something_else_that_one_process_raises,
    a_series_of_steps,
    a_loop_with_data_loaders_that_one_process_is_told_to_end,
)

if __name__ == "__main__":
    for scene in SCENES:
        print(json.dumps({scene.__name__: scene()}), flush=True)
    print(json.dumps({"left": sorted(entry.name for entry in ROOT.iterdir())}), flush=True)
