"""Structs as items of Orbax's managers: every item is a bundle, and restores with all options of a load."""

import asyncio
import contextlib
import functools
import inspect
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import fsspec
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax.training.train_state import TrainState
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from orbax.checkpoint import v1

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.integrations import orbax
from neuralqx_struct.integrations.orbax import (
    StructCheckpointHandler,
    StructHandler,
    StructRestore,
    StructSave,
)
from neuralqx_struct.manifest import Limits
from tests.builders import ROOT, refused

v1 = ocp.v1

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning:orbax", "ignore::DeprecationWarning", "ignore::ResourceWarning"
)

FIRST = """
language: "1"
schema: lab.orbax_net
version: 1
root: Net
structs:
  Net:
    fields:
      w: {type: "float32[n, m]", axes: [inputs, outputs]}
      bias: "bfloat16[m]"
      counts: "int32[n]"
      key: prng_key
      step: {type: int, kind: static}
"""
SECOND = (
    FIRST.replace("version: 1", "version: 2")
    .replace("      w:", "      kernel:")
    .replace('{type: "float32[n, m]"', '{type: "floating[n, m]"')
    + """migrations:
  - from: 1
    steps:
      - rename: {field: w, to: kernel}
"""
)
VALUES = np.arange(32, dtype=np.float32).reshape(8, 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of a schema with two versions."""
    place = tmp_path_factory.mktemp("schemas") / "orbax_net"
    place.mkdir()
    (place / "v1.yaml").write_text(FIRST)
    (place / "v2.yaml").write_text(SECOND)
    return place


@pytest.fixture
def schema(folder):
    return s.load_schema(folder)


def mesh(*shape):
    return Mesh(np.array(jax.devices()[: int(np.prod(shape))]).reshape(shape), ("x", "y"))


def spread(values, *axes, shape=(2, 2)):
    return jax.device_put(values, NamedSharding(mesh(*shape), PartitionSpec(*axes)))


def old_net(folder, step=0):
    net = s.load_schema(folder).at(1).Net
    return net(
        w=spread(VALUES + step, "x", "y"),
        bias=jnp.arange(4, dtype=jnp.bfloat16),
        counts=jnp.arange(8, dtype=jnp.int32),
        key=jax.random.key(7),
        step=step,
    )


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    """The folder of a manager that saved four steps and kept the best and the latest."""
    root = tmp_path_factory.mktemp("run") / "m"
    options = ocp.CheckpointManagerOptions(
        max_to_keep=2, best_fn=lambda metrics: metrics["energy"], best_mode="min"
    )
    with ocp.CheckpointManager(root, options=options) as manager:
        for step, energy in enumerate([3.0, 1.0, 2.0, 4.0]):
            args = ocp.args.Composite(
                state=StructSave(old_net(folder, step), metadata={"run": 5}),
                config=ocp.args.JsonSave({"rate": 0.1}),
            )
            assert manager.save(step, args=args, metrics={"energy": energy})
        manager.wait_until_finished()
    return root


def manager_of(root, **options):
    return ocp.CheckpointManager(root, options=ocp.CheckpointManagerOptions(**options))


def small(step=0):
    return {"w": jnp.arange(6.0) + step, "host": np.arange(3), "step": step}


# -- the manager


def test_the_manager_keeps_best_and_latest_beside_json(run, folder):
    best = {"best_fn": lambda metrics: metrics["energy"], "best_mode": "min", "max_to_keep": 2}
    with manager_of(run, **best) as manager:
        assert (manager.all_steps(), manager.best_step(), manager.latest_step()) == ([1, 2], 1, 2)
        wanted = ocp.args.Composite(
            state=StructRestore(schema=folder), config=ocp.args.JsonRestore()
        )
        found = manager.restore(1, args=wanted)
        assert found["config"] == {"rate": 0.1} and manager.metrics(1) == {"energy": 1.0}
        assert found["state"].step == 1 and found["state"].key == jax.random.key(7)
        assert np.array_equal(found["state"].kernel, VALUES + 1)
        shapes = manager.item_metadata(2)["state"]
        assert shapes.w == jax.ShapeDtypeStruct((8, 4), jnp.float32) and shapes.step == 2


def test_each_item_is_a_bundle(run, folder, tmp_path):
    item = run / "2" / "state"
    assert s.validate(item, folder) == s.verify(item) == []
    assert {"arrays.orbax", "manifest.json"} <= {path.name for path in item.iterdir()}
    assert bundle.read_manifest(item)["metadata"] == {"run": 5}
    record = bundle.read_manifest(item)["arrays"]["w"]
    assert record["chunk"] == [4, 2] and len(record["chunk_crc32"]) == 4
    done = s.migrate(item, tmp_path / "new", schema=folder)
    assert s.load(done.out).kernel.shape == (8, 4)
    assert np.array_equal(s.load(item, raw=True)["w"], VALUES + 2)


def test_a_changed_byte_is_found(run, tmp_path):
    item = tmp_path / "item"
    shutil.copytree(run / "2" / "state", item)
    for file in (item / "arrays.orbax").rglob("d/*"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2 :: 16] = bytes(len(data[len(data) // 2 :: 16]))
        file.write_bytes(data)
    assert s.verify(item)


RESTORES = {
    "class": (lambda schema: StructRestore(schema.Net), ()),
    "schema": (lambda schema: StructRestore(schema=schema), ()),
    "mesh": (
        lambda schema: StructRestore(
            schema.Net, mesh=mesh(1, 4), rules={"inputs": "y", "outputs": None}
        ),
        (PartitionSpec("y", None), (1, 4)),
    ),
    "shardings": (
        lambda schema: StructRestore(
            schema.Net,
            shardings=lambda path, leaf: (
                NamedSharding(mesh(4, 1), PartitionSpec(None, "x"))
                if leaf.shape == (8, 4)
                else None
            ),
        ),
        (PartitionSpec(None, "x"), (4, 1)),
    ),
}


@pytest.mark.parametrize("name", RESTORES)
def test_an_old_step_is_migrated_and_resharded(run, schema, name):
    make, placed = RESTORES[name]
    with ocp.CheckpointManager(run) as manager:
        net = manager.restore(2, args=ocp.args.Composite(state=make(schema)))["state"]
    assert type(net) is schema.Net and np.array_equal(net.kernel, VALUES + 2)
    assert net.bias.dtype == jnp.bfloat16
    if placed:
        spec, shape = placed
        assert net.kernel.sharding.is_equivalent_to(NamedSharding(mesh(*shape), spec), 2)


def test_options_of_a_load(run, schema):
    def restored(**options):
        wanted = ocp.args.Composite(state=StructRestore(schema.Net, **options))
        with ocp.CheckpointManager(run) as manager:
            return manager.restore(2, args=wanted)["state"]

    assert restored(abstract=True).kernel == jax.ShapeDtypeStruct((8, 4), jnp.float32)
    part = restored(select="path:bias")
    assert part.kernel is None and part.bias.shape == (4,)
    report = []
    assert restored(dtype={"float32": "bfloat16"}, report=report).kernel.dtype == jnp.bfloat16
    assert [found.code for found in report] == ["NQX425"]


def test_the_only_item_of_a_step(tmp_path):
    with ocp.CheckpointManager(tmp_path / "m") as manager:
        manager.save(3, args=StructSave(small(3)))
        manager.wait_until_finished()
        assert manager.restore(3, args=StructRestore())["step"] == 3
    assert s.load(tmp_path / "m/3/default")["host"].tolist() == [0, 1, 2]


def test_an_item_without_arrays(tmp_path):
    with ocp.CheckpointManager(tmp_path / "m") as manager:
        manager.save(0, args=StructSave({"step": 3, "empty": np.zeros((0, 2))}))
        manager.wait_until_finished()
        assert manager.restore(0, args=StructRestore())["empty"].shape == (0, 2)
    assert s.verify(tmp_path / "m/0/default") == []


def test_the_program_goes_on_while_checksums_are_computed(tmp_path, monkeypatch):
    """No checksum is computed before `save` returns, and what happens to the arrays then has no effect."""
    begun, go_on, real = threading.Event(), threading.Event(), orbax.crc32

    def waiting(*arguments):
        begun.set()
        assert go_on.wait(60)
        return real(*arguments)

    monkeypatch.setattr(orbax, "crc32", waiting)
    state = {"w": jnp.arange(4096.0), "half": jnp.ones(8, jnp.float8_e4m3fn), "host": np.arange(4)}
    with ocp.CheckpointManager(tmp_path / "m") as manager:
        manager.save(0, args=StructSave(state))
        jax.block_until_ready(jax.jit(lambda w: w * 0, donate_argnums=0)(state["w"]))
        state["half"].delete()
        state["host"][:] = -1
        assert begun.wait(60) and manager.is_saving_in_progress()
        assert not (tmp_path / "m/0").exists()
        go_on.set()
        manager.wait_until_finished()
    found = s.load(tmp_path / "m/0/default")
    assert s.verify(tmp_path / "m/0/default") == []
    assert np.array_equal(found["w"], np.arange(4096.0)) and found["host"].tolist() == [0, 1, 2, 3]
    assert found["half"].dtype == jnp.float8_e4m3fn


def test_a_preempted_program_saves_at_once(tmp_path, monkeypatch):
    with manager_of(tmp_path / "m", save_interval_steps=10) as manager:
        assert manager.save(0, args=StructSave(small()))
        assert not manager.save(3, args=StructSave(small(3)))
        monkeypatch.setattr(type(manager), "reached_preemption", lambda self, step: step == 4)
        assert manager.save(4, args=StructSave(small(4)))
        manager.wait_until_finished()
        assert manager.all_steps() == [0, 4]
    assert s.verify(tmp_path / "m/4/default") == []


@pytest.mark.slow
def test_sigterm_makes_the_manager_save_at_once(tmp_path):
    """The signal of a scheduler, as JAX and Orbax learn of it: the step that they agree on is saved, and is whole."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = str(ROOT / "tests/programs/orbax_preempted.py")
    ran = subprocess.run(
        [sys.executable, program, str(tmp_path / "m"), str(port)],
        capture_output=True,
        text=True,
        timeout=250,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    step = int(ran.stdout)
    with ocp.CheckpointManager(tmp_path / "m") as manager:
        assert manager.all_steps() == [0, step] and step >= 3
        assert manager.restore(step, args=StructRestore())["step"] == step
    assert s.verify(tmp_path / f"m/{step}/default") == []


def test_a_refused_value_leaves_a_manager_that_goes_on(tmp_path):
    with ocp.CheckpointManager(tmp_path / "m") as manager:
        manager.save(0, args=StructSave(small()))
        with refused(s.SerializationError, "NQX430", "$['bad']"):
            manager.save(1, args=StructSave({"w": jnp.ones(2), "bad": object()}))
        manager.save(2, args=StructSave(small(2)))
        manager.wait_until_finished()
        assert manager.all_steps() == [0, 2]


def test_a_failed_write_is_raised_and_leaves_no_step(tmp_path, monkeypatch):
    def broken(*_):
        raise OSError(28, "No space left on device")

    with ocp.CheckpointManager(tmp_path / "m") as manager:
        with monkeypatch.context() as patched:
            patched.setattr("neuralqx_struct.integrations.orbax.write_file", broken)
            manager.save(0, args=StructSave(small()))
            with pytest.raises(OSError, match="No space left"):
                manager.wait_until_finished()
        manager.reload()
        assert manager.all_steps() == []
        manager.save(1, args=StructSave(small(1)))
        manager.wait_until_finished()
        assert manager.all_steps() == [1]


def test_a_checkpointer_without_a_manager(tmp_path):
    place = tmp_path / "one"
    with ocp.Checkpointer(StructCheckpointHandler()) as writer:
        writer.save(place, args=StructSave(small()))
        assert writer.restore(place, args=StructRestore())["step"] == 0
        assert writer.restore(place)["step"] == 0
    assert s.verify(place) == [] and s.load(place)["step"] == 0


def test_misuse(folder, schema):
    with refused(ValueError, "load_cls=", "schema="):
        StructRestore(schema.Net, schema=folder)
    with refused(s.SerializationError, "NQX406", "gs://bucket/m/0"):
        StructCheckpointHandler().metadata("gs://bucket/m/0")


def test_without_the_extra_an_error_names_it(monkeypatch):
    code = """
import sys
sys.modules["orbax.checkpoint"] = None
import neuralqx_struct.integrations.orbax
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "NQX615" in ran.stderr and "neuralqx-struct[orbax]" in ran.stderr


def test_an_array_without_data_is_refused(tmp_path):
    state = {"w": spread(VALUES, "x"), "v": jnp.ones(3)}
    state["w"].addressable_shards[0].data.delete()
    manager = ocp.CheckpointManager(tmp_path / "m")
    with manager, pytest.raises((s.SerializationError, RuntimeError), match="deleted|donated"):
        manager.save(0, args=StructSave(state))
    wait_for_threads()


def wait_for_threads():
    """Waits for the threads of Orbax; some that nothing can end any more live 5 minutes."""
    for thread in threading.enumerate():
        if "_target_setting_result" in thread.name:
            thread.join(60)
            assert not thread.is_alive()


def test_a_save_that_v1_refuses_leaves_no_thread(folder, tmp_path):
    net = old_net(folder)
    net.w.delete()
    with v1.training.Checkpointer(tmp_path / "m") as manager, pytest.raises(s.SerializationError):
        manager.save_checkpointables_async(0, {"net": net})
    wait_for_threads()


# -- folders


def test_readers_of_one_bundle_list_the_items(run):
    for read, code in ((s.load, "NQX401"), (s.inspect, "NQX621")):
        with refused(s.SerializationError, code, "1, 2", run / "2/state"):
            read(run)
        with refused(s.SerializationError, code, "state", run / "1/state"):
            read(run / "1")
    for check in (s.verify, s.validate):
        (found,) = check(run)
        assert "1, 2" in found.message and str(run / "2/state") in found.hint


def test_steps_of_any_name_are_listed_and_unfinished_ones_are_not(run, tmp_path):
    for name in ("ckpt_002", "ckpt_0010", "5.orbax-checkpoint-tmp"):
        (tmp_path / name).symlink_to(run / "1")
    with refused(s.SerializationError, "NQX401", "ckpt_002, ckpt_0010"):
        s.load(tmp_path)


@pytest.mark.parametrize("form", ["{0}/sub/../ck", "sub/../ck", "ck"])
def test_relative_paths_and_parents(form, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    path = form.format(tmp_path)
    s.export(small(), path, store="orbax")
    assert s.verify(path) == [] and s.load(path)["host"].tolist() == [0, 1, 2]
    s.export(small(1), path, store="orbax", overwrite=True)
    assert s.load(path)["step"] == 1
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["ck", "sub"]


def test_a_migrated_folder_of_a_manager_keeps_metrics_and_other_items(
    run, folder, schema, tmp_path
):
    out = tmp_path / "new" / "m"
    planned = s.migrate_all(run, out, schema=folder, dry_run=True)
    assert [item.state for item in planned.items] == ["planned"] * 2 and not out.exists()
    done = s.migrate_all(run, out, schema=folder)
    assert [item.state for item in done.items] == ["migrated"] * 2
    assert [item.out for item in done.items] == [out / "1/state", out / "2/state"]
    best = {"best_fn": lambda metrics: metrics["energy"], "best_mode": "min", "max_to_keep": 2}
    with manager_of(out, **best) as manager:
        assert (manager.all_steps(), manager.best_step(), manager.latest_step()) == ([1, 2], 1, 2)
        wanted = ocp.args.Composite(state=StructRestore(schema.Net), config=ocp.args.JsonRestore())
        found = manager.restore(1, args=wanted)
        assert np.array_equal(found["state"].kernel, VALUES + 1) and found["config"] == {
            "rate": 0.1
        }
    assert bundle.read_manifest(out / "1/state")["schema"]["version"] == 2
    assert (out / "1/config/metadata").samefile(run / "1/config/metadata")
    assert s.verify(out / "2/state") == []
    again = s.migrate_all(run, out, schema=folder)
    assert [item.state for item in again.items] == ["skipped"] * 2


def test_a_step_that_cannot_be_migrated_does_not_appear(run, folder, tmp_path):
    root, out = tmp_path / "m", tmp_path / "new"
    shutil.copytree(run, root)
    shutil.copytree(root / "1/state", root / "1/state_2")
    shutil.copytree(root / "1/config", root / "7")
    (root / "2/state/manifest.json").write_text("{}")
    done = s.migrate_all(root, out, schema=folder)
    assert [item.state for item in done.items] == ["migrated", "migrated", "failed"]
    assert sorted(path.name for path in out.iterdir()) == ["1", "7"]
    (root / "1/state/manifest.json").write_text("{}")
    done = s.migrate_all(root, tmp_path / "other", schema=folder)
    assert [item.state for item in done.items] == ["failed", "waiting", "failed"]


def test_one_step_of_a_manager_is_migrated(run, folder, tmp_path):
    done = s.migrate_all(run / "1", tmp_path / "new", schema=folder)
    assert [item.out for item in done.items] == [tmp_path / "new/state"]
    assert (tmp_path / "new/config/metadata").samefile(run / "1/config/metadata")


# -- behind a URL


@pytest.fixture
def far(run):
    """The URL of a copy of the folder, and its file system."""
    files = fsspec.filesystem("memory")
    files.put(str(run), "/bucket/m", recursive=True)
    files.pipe_file("/bucket/m/notes/a/b", b"x")
    yield "memory://bucket/m", files
    files.store.clear()
    files.pseudo_dirs[:] = [""]


def test_an_item_behind_a_url(run, far, schema, tmp_path):
    near, url = run / "2/state", f"{far[0]}/2/state"
    assert s.verify(url) == s.validate(url, schema) == []
    assert schema.load(url) == schema.load(near)
    net = schema.load(url, mesh=mesh(2, 2), rules={"inputs": "x", "outputs": "y"})
    assert net.kernel.sharding.spec == PartitionSpec("x", "y")
    assert np.array_equal(net.kernel, VALUES + 2)
    part = schema.load(url, select="path:counts")
    assert part.kernel is None and part.counts.tolist() == [*range(8)]
    assert schema.load(url, abstract=True).kernel.shape == (8, 4)
    assert s.inspect(url).arrays == s.inspect(near).arrays
    assert s.diff_values(url, near).equal
    for out in (tmp_path / "copy", tmp_path / "new"):
        done = s.convert if out.name == "copy" else functools.partial(s.migrate, schema=schema)
        done(url, out)
        assert (out / "arrays.orbax").is_dir() and s.verify(out) == []
    assert schema.load(tmp_path / "new") == schema.load(near)
    s.migrate(url, "memory://bucket/new", schema=schema)
    assert schema.load("memory://bucket/new") == schema.load(near)


def test_damage_and_faults_behind_a_url(far, schema, monkeypatch):
    url, files = f"{far[0]}/2/state", far[1]
    held = {name: files.cat_file(name) for name in files.find("/bucket/m/2/state/arrays.orbax")}
    for name, data in held.items():
        half = len(data) // 2
        files.pipe_file(name, data[:half] + bytes(len(data) - half))
    assert s.verify(url)
    with pytest.raises(s.IntegrityError):
        schema.load(url)
    for name, data in held.items():
        files.pipe_file(name, data)

    def load_while(fault):
        real = type(files).cat_file

        def request(self, path, *given, **options):
            if not path.endswith("manifest.json"):
                fault()
            return real(self, path, *given, **options)

        with monkeypatch.context() as patch:
            patch.setattr(type(files), "cat_file", request)
            return schema.load(url)

    def refuse():
        raise TimeoutError("no answer")

    with refused(s.SerializationError, "NQX401", "TimeoutError") as caught:
        load_while(refuse)
    assert len(caught.value.diagnostics) == 1 and "127.0.0.1" not in str(caught.value)
    with refused(s.SerializationError, "NQX401"):
        load_while(
            lambda: files.rm("/bucket/m/2", recursive=True) if files.exists("/bucket/m/2") else None
        )


@pytest.mark.parametrize("way", ["far to far", "far to near", "near to far"])
def test_a_folder_of_a_manager_is_migrated_from_and_to_urls(run, far, folder, tmp_path, way):
    url, files = far
    start, _, end = way.partition(" to ")
    source = run if start == "near" else url
    out = tmp_path / "new" if end == "near" else "memory://bucket/new"
    if end == "far":  # stopped before a step is complete, and called again
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(files), "cp_file", None)
            patch.setattr(type(files), "put_file", None)
            with contextlib.suppress(s.SerializationError):
                stopped = s.migrate_all(source, out, schema=folder)
                assert {item.state for item in stopped.items} == {"failed"}
        assert not files.exists("/bucket/new/1/_CHECKPOINT_METADATA")
    done = s.migrate_all(source, out, schema=folder)
    assert [item.state for item in done.items] == ["migrated"] * 2, str(done.diagnostics)
    again = s.migrate_all(source, out, schema=folder)
    assert [item.state for item in again.items] == ["skipped"] * 2
    if end == "far":
        assert s.verify(f"{out}/1/state") == []
        files.get("/bucket/new/", str(tmp_path / "new"), recursive=True)
    assert (tmp_path / "new/notes/a/b").exists() == (start == "far")
    best = {"best_fn": lambda metrics: metrics["energy"], "best_mode": "min", "max_to_keep": 2}
    with manager_of(tmp_path / "new", **best) as manager:
        assert (manager.all_steps(), manager.best_step(), manager.latest_step()) == ([1, 2], 1, 2)
        wanted = ocp.args.Composite(
            state=StructRestore(schema=folder), config=ocp.args.JsonRestore()
        )
        found = manager.restore(1, args=wanted)
    assert np.array_equal(found["state"].kernel, VALUES + 1) and found["config"] == {"rate": 0.1}


def test_files_of_other_folders_are_not_downloaded(far, folder, tmp_path, monkeypatch):
    find = type(far[1]).find

    def more(self, path, **options):
        return {**find(self, path, **options), f"{path}/../up": {"size": 1, "type": "file"}}

    monkeypatch.setattr(type(far[1]), "find", more)
    with refused(s.UntrustedError, "NQX503", "../up"):
        s.migrate(f"{far[0]}/2/state", tmp_path / "copy", schema=folder)
    assert not (tmp_path / "up").exists()


# -- orbax.checkpoint.v1


def test_a_struct_in_v1(folder, schema, tmp_path):
    net = old_net(folder, 3)
    v1.save_checkpointables(tmp_path / "ck", {"net": net, "config": {"rate": 0.1}})
    assert s.verify(tmp_path / "ck/net") == []
    found = v1.load_checkpointables(tmp_path / "ck", {"net": schema.Net, "config": None})
    assert type(found["net"]) is schema.Net and found["config"] == {"rate": 0.1}
    assert np.array_equal(found["net"].kernel, VALUES + 3) and found["net"].step == 3
    found = v1.load_checkpointables(tmp_path / "ck", {"net": schema})
    assert type(found["net"]) is schema.Net
    part = v1.load_checkpointables(tmp_path / "ck", {"net": StructRestore(select="path:bias")})[
        "net"
    ]
    assert part.w is None and part.bias.shape == (4,)
    shapes = jax.eval_shape(lambda: net)
    sharded = shapes.replace(
        w=jax.ShapeDtypeStruct(
            (8, 4), jnp.float32, sharding=spread(VALUES, "y", shape=(1, 4)).sharding
        )
    )
    placed = v1.load_checkpointables(tmp_path / "ck", {"net": sharded})["net"]
    assert placed.w.sharding == sharded.w.sharding and np.array_equal(placed.w, VALUES + 3)
    assert v1.load_checkpointables(tmp_path / "ck")["net"].step == 3
    metadata = v1.checkpointables_metadata(tmp_path / "ck").metadata["net"]
    assert metadata.w == jax.ShapeDtypeStruct((8, 4), jnp.float32)
    handler = StructHandler()
    assert handler.is_handleable(net) and not handler.is_handleable(schema.Net)
    assert not handler.is_handleable({"w": 1}) and not handler.is_abstract_handleable({"w": 1})


def test_steps_in_v1(folder, schema, tmp_path):
    training = v1.training
    policy = training.preservation_policies.LatestN(2)
    with training.Checkpointer(tmp_path / "m", preservation_policy=policy) as manager:
        for step in range(3):
            manager.save_checkpointables_async(step, {"net": old_net(folder, step)}).result()
        assert [each.step for each in manager.checkpoints] == [1, 2]
        net = manager.load_checkpointables(abstract_checkpointables={"net": schema.Net})["net"]
    assert net.step == 2 and np.array_equal(net.kernel, VALUES + 2)
    with refused(s.SerializationError, "NQX401", "1, 2", "net"):
        s.load(tmp_path / "m")


@pytest.mark.parametrize("wrong", [3, {"w": 1}])
def test_other_abstract_forms_are_refused(wrong, tmp_path):
    with refused(TypeError, wrong):
        asyncio.run(StructHandler().load(tmp_path, wrong))


def test_the_manifest_is_the_last_file(run):
    """Readers of the folder of an unfinished step find no bundle in it."""
    item = run / "2" / "state"
    arrays = [
        path.stat().st_mtime_ns for path in (item / "arrays.orbax").rglob("*") if path.is_file()
    ]
    assert (item / "manifest.json").stat().st_mtime_ns >= max(arrays)
    assert json.loads((item / "manifest.json").read_text())["version"] == 1


# -- several processes, and killed ones


NET = """
language: "1"
schema: lab.orbax_hosts
version: 1
root: Net
structs:
  Net:
    fields:
      w: {type: "float32[n, m]", axes: [inputs, outputs]}
      small: {type: "float8_e4m3fn[n, m]", axes: [rows, outputs]}
      copied: "float32[m]"
      local: "int32[k]"
      key: prng_key
      step: {type: int, kind: static}
"""


def together(root, count):
    """What each of several processes with four devices prints."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
    }
    program = str(ROOT / "tests/programs/orbax_hosts.py")
    programs = [
        subprocess.Popen(
            [sys.executable, program, str(rank), str(count), str(port), str(root)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(count)
    ]
    try:
        told = [each.communicate(timeout=400) for each in programs]
    finally:
        for each in programs:
            each.kill()
    for each, (out, err) in zip(programs, told, strict=True):
        assert each.returncode == 0, out[-2000:] + err[-6000:]
    return [json.loads(out.splitlines()[-1]) for out, _ in told]


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_two_processes_then_one_then_four(work):
    (work / "net").mkdir()
    (work / "net/v1.yaml").write_text(NET)
    second = NET.replace("version: 1", "version: 2").replace("      w:", "      kernel:")
    steps = "migrations:\n  - from: 1\n    steps:\n      - rename: {field: w, to: kernel}\n"
    (work / "net/v2.yaml").write_text(second + steps)
    for step, count in enumerate([2, 1, 4]):
        for saw in together(work, count):
            latest = step - 1 if step else None
            assert saw["manager"]["latest"] == latest and all(saw["manager"]["seen"])
            assert saw["manager"]["steps"] == list(range(step + 1))
            assert all(saw["v1"]) and saw["refused"] == "NQX430"
        item = work / "m" / str(step) / "net"
        assert s.verify(item) == s.verify(work / f"v1-{count}/net") == []
        assert not list(item.glob("checksums*"))


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_killed_process_leaves_a_usable_step(work):
    program = str(ROOT / "tests/programs/orbax_killed.py")
    ran = subprocess.run(
        [sys.executable, program, str(work / "m"), "50", "3"],
        capture_output=True,
        text=True,
        timeout=1400,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    lives = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert len(lives) == 51 and all(life["as_expected"] for life in lives)
    found = [-1 if life["found"] is None else life["found"] for life in lives]
    assert found == sorted(found) and found[-1] > 0


def test_limits_of_an_item(tmp_path):
    tree = {"a": jnp.arange(3), "b": [1, 2, 3]}
    with ocp.CheckpointManager(tmp_path) as manager:
        with refused(s.SerializationError, "NQX005", "$.manifest", "4"):
            manager.save(0, args=StructSave(tree, limits=Limits(nodes=4)))
        manager.save(1, args=StructSave(tree, limits=Limits(nodes=10)))
        manager.wait_until_finished()
        with refused(s.SerializationError, "NQX005", "$.manifest", "limits="):
            manager.restore(1, args=StructRestore(limits=Limits(nodes=4)))
        assert manager.restore(1, args=StructRestore(limits=Limits(nodes=10)))["b"] == [1, 2, 3]


class Tight(StructHandler):
    limits = Limits(nodes=4)


def test_limits_of_a_handler(folder, tmp_path):
    """``metadata`` takes no options: its limits are those of the handler, as those of saves and restores without others."""
    tree = {"a": jnp.arange(3), "b": [1, 2, 3]}
    place = tmp_path / "one"
    with ocp.Checkpointer(StructCheckpointHandler()) as writer:
        writer.save(place, args=StructSave(tree))
    handler = StructCheckpointHandler(limits=Limits(nodes=4))
    for read in (handler.metadata, handler.restore):
        with refused(s.SerializationError, "NQX005", "$.manifest", "limits="):
            read(place)
    assert handler.restore(place, StructRestore(limits=Limits(nodes=10)))["b"] == [1, 2, 3]
    with refused(s.SerializationError, "NQX005", "$.manifest", "4"):
        handler.save(tmp_path, StructSave(tree))
    handler.close()

    v1.save_checkpointables(tmp_path / "ck", {"net": old_net(folder)})

    async def done(first):
        awaited = await first
        return await awaited if inspect.isawaitable(awaited) else awaited

    async def created():
        """Nothing is made."""

    new = SimpleNamespace(path=tmp_path, await_creation=created)
    v1_handler, item = Tight(), tmp_path / "ck/net"
    for work in (
        v1_handler.metadata(item),
        v1_handler.load(item),
        v1_handler.save(new, old_net(folder)),
    ):
        with pytest.raises(s.SerializationError, match="limits="):
            asyncio.run(done(work))
    wide = StructRestore(limits=Limits(nodes=500))
    assert asyncio.run(done(v1_handler.load(item, wide))).step == 0


# --- runs that began with Orbax's own handlers ------------------------------------------------------------------------------


class Plain(s.Struct):
    w: object


def train_state():
    params = {"w": jnp.ones((2, 3)), "b": jnp.zeros(3)}
    return TrainState.create(apply_fn=len, params=params, tx=optax.adam(1e-3))


@pytest.mark.parametrize("save", [ocp.args.StandardSave, ocp.args.PyTreeSave])
def test_a_run_goes_on_that_began_without_us(save, tmp_path):
    old = train_state().apply_gradients(grads=train_state().params)
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        manager.save(0, args=save(old))
    fresh = train_state()
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        found = manager.restore(0, args=StructRestore(like=fresh))
        assert found.tx is fresh.tx and jax.tree.structure(found) == jax.tree.structure(fresh)
        manager.save(1, args=StructSave(found))
        manager.wait_until_finished()
        again = manager.restore(1, args=StructRestore(like=fresh))
    for ours, theirs in zip(jax.tree.leaves(again), jax.tree.leaves(old), strict=True):
        assert np.array_equal(ours, theirs)


def test_an_item_of_orbax_comes_under_a_schema(tmp_path):
    schema = s.load_schema("""
        language: "1"
        schema: lab.begun
        version: 1
        root: Net
        structs: {Net: {fields: {w: "float32[n, m]", step: {type: int, kind: static}}}}
    """)
    tree = {"w": np.ones((4, 8), "float32"), "step": 3}
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        manager.save(0, args=ocp.args.StandardSave(tree))
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        net = manager.restore(0, args=StructRestore(schema=schema))
        assert type(net) is schema.root and net.step == 3
        assert manager.restore(0, args=StructRestore(raw=True))["step"] == 3
        with refused(s.SerializationError, "NQX401", "like="):
            manager.restore(0, args=StructRestore())


def test_an_item_named_state_in_v1(tmp_path):
    """Orbax has this name for its own trees."""
    net = Plain(w=jnp.ones(2))
    v1.save_checkpointables(tmp_path / "ckpt", {"state": net})
    assert s.verify(tmp_path / "ckpt" / "state") == []
    for abstract in (Plain, net):
        found = v1.load_checkpointables(tmp_path / "ckpt", {"state": abstract})
        assert found["state"] == net


def test_trees_of_v1_that_are_no_structs_stay_trees_of_orbax(tmp_path):
    tree = {"a": jnp.ones(2), "b": Plain(w=jnp.ones(3))}
    v1.save_checkpointables(tmp_path / "ckpt", {"state": tree})
    assert not (tmp_path / "ckpt" / "state" / "manifest.json").exists()
    abstract = {"state": jax.eval_shape(lambda: tree)}
    assert v1.load_checkpointables(tmp_path / "ckpt", abstract)["state"]["b"] == tree["b"]
