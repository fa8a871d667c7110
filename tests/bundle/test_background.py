"""Bundles that are written while the program goes on: what they hold, how they fail, and what a killed program leaves."""

import errno
import gc
import logging
import os
import signal
import threading
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.bundle import writing
from neuralqx_struct.bundle.writing import PendingBundle
from neuralqx_struct.formats import orbax_writing
from tests.builders import FORMS, interruptions, refused
from tests.preloaded import PROGRAMS, python

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:orbax", "ignore::DeprecationWarning")


class Held:
    """Stands for Orbax at work; goes on when it is let go, and fails then if it has an error."""

    def __init__(self, monkeypatch, error=None):
        self.go, self.closed, self.error, original = (
            threading.Event(),
            0,
            error,
            orbax_writing._started,
        )

        def started(*given, **options):
            self.real = original(*given, **options)
            return self

        monkeypatch.setattr(orbax_writing, "_started", started)

    def wait_until_finished(self):
        assert self.go.wait(60)
        self.real.wait_until_finished()
        if self.error is not None:
            raise self.error

    def close(self):
        self.closed += 1
        self.real.close()


def test_an_interrupt_before_the_thread_runs_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(thread):
        threading._limbo[thread] = thread  # as Thread.start does first
        raise KeyboardInterrupt

    monkeypatch.setattr(threading, "_limbo", {})
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            s.export({"w": np.ones(3)}, tmp_path / "a", asynchronous=True)
    gc.collect()
    assert [*tmp_path.iterdir()] == []
    s.export({"w": np.ones(3)}, tmp_path / "a", asynchronous=True).wait()
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_an_interrupt_between_any_two_instructions_leaves_nothing(tmp_path):
    """Nothing waits for the collector, which may run late or never."""
    path, count = tmp_path / "a", 0
    gc.collect()
    gc.disable()
    try:
        for interrupted in interruptions(writing.__file__, ["__init__"]):
            with interrupted:
                s.export({"w": np.ones(3)}, path, asynchronous=True, overwrite=True)
            writing.settle(path)
            count += 1
            assert {*tmp_path.iterdir()} <= {path}, count
    finally:
        gc.enable()
    assert count > 30


def test_nothing_is_seen_before_all_is_written(tmp_path, monkeypatch):
    path = s.export({"w": jnp.zeros(3)}, tmp_path / "a", store="orbax")
    writer = Held(monkeypatch)
    state = {"w": jnp.arange(3.0), "n": np.arange(4)}
    ticks = []
    pending = s.export(
        state,
        path,
        store="orbax",
        overwrite=True,
        asynchronous=True,
        progress=lambda *done: ticks.append(done),
    )
    assert isinstance(pending, PendingBundle) and pending.path == path
    assert not pending.done and repr(pending) == f"<PendingBundle {str(path)!r}: being written>"
    assert s.load(path)["w"].tolist() == [0, 0, 0]
    assert 0 < ticks[-1][0] < ticks[-1][1] == 44
    state["n"][:] = -1
    state["w"].delete()
    writer.go.set()
    assert pending.wait() == pending.wait() == path
    assert pending.done and repr(pending).endswith(": written>") and writer.closed == 1
    loaded = s.load(path)
    assert loaded["w"].tolist() == [0, 1, 2] and loaded["n"].tolist() == [0, 1, 2, 3]
    assert ticks[-1] == (44, 44) and s.verify(path) == []
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_donating_right_away_changes_nothing(tmp_path):
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    split = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), PartitionSpec("x"))
    w = jax.device_put(jnp.arange(1 << 18), split)
    pending = s.export({"w": w}, tmp_path / "a", store="orbax", asynchronous=True)
    jax.block_until_ready(jax.jit(lambda w: w * 0, donate_argnums=0)(w))
    w.delete()  # JAX makes a copy in place of a donation where somebody still reads
    assert np.array_equal(s.load(pending.wait())["w"], np.arange(1 << 18))


def test_arrays_are_let_go(tmp_path):
    state = {"w": jnp.ones(3), "v": jax.device_put(jnp.ones(8), jax.devices()[1])}
    held = [weakref.ref(array) for array in state.values()]
    pending = s.export(state, tmp_path / "a", store="orbax", asynchronous=True)
    del state
    pending.wait()
    gc.collect()
    assert [ref() for ref in held] == [None, None]
    assert pending.done


def test_methods_of_structs_take_it_too(tmp_path):
    class Step(s.Struct):
        w: jax.Array

    pending = Step(w=jnp.ones(2)).export(tmp_path / "a", store="orbax", asynchronous=True)
    assert Step.load(pending.wait()).w.tolist() == [1, 1]
    assert (
        Step(w=jnp.ones(2)).export(tmp_path / "b", store="orbax", asynchronous=False)
        == tmp_path / "b"
    )


@pytest.mark.parametrize(
    "case",
    [
        (ValueError("RESOURCE_EXHAUSTED: no space\nand more"), s.SerializationError, "RESOURCE_EXHAUSTED"),
        (OSError(28, "No space left on device"), OSError, "No space left on device"),
        (ZeroDivisionError("what"), ZeroDivisionError, "what"),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_raised_by_wait_and_told_in_any_case(
    tmp_path, monkeypatch, caplog, case
):
    error, kind, message = case
    path = s.export({"w": jnp.zeros(3)}, tmp_path / "a", store="orbax")
    writer = Held(monkeypatch, error)
    with caplog.at_level(logging.ERROR, "neuralqx_struct"):
        pending = s.export(
            {"w": jnp.ones(3)}, path, store="orbax", overwrite=True, asynchronous=True
        )
        writer.go.set()
        for _ in range(2):
            with pytest.raises(kind, match=message) as caught:
                pending.wait()
    if isinstance(caught.value, s.SerializationError):
        assert caught.value.code == "NQX406"
    assert repr(pending).endswith(": failed>") and pending.done and writer.closed == 1
    assert f"{path}: the bundle was not written" in caplog.text
    assert s.load(path)["w"].tolist() == [0, 0, 0]
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_what_can_be_told_at_once_is_raised_by_export(tmp_path):
    path = s.export({"w": jnp.zeros(3)}, tmp_path / "a")
    with pytest.raises(FileExistsError):
        s.export({"w": jnp.zeros(3)}, path, store="orbax", asynchronous=True)
    with refused(s.SerializationError, "NQX614", "orbax", "zip"):
        s.export({"w": jnp.zeros(3)}, tmp_path / "a.zip", store="orbax", asynchronous=True)
    with refused(s.SerializationError, "NQX430"):
        s.export({"w": object()}, tmp_path / "b", store="orbax", asynchronous=True)
    with pytest.raises(FileExistsError):
        s.export({"w": jnp.zeros(3)}, path, asynchronous=True)
    with refused(s.SerializationError, "NQX430"):
        s.export({"w": object()}, tmp_path / "b", asynchronous=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_arrays_that_are_deleted_while_they_are_looked_at(tmp_path, monkeypatch):
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    split = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), PartitionSpec("x"))
    w = jax.device_put(jnp.arange(8), split)
    original = orbax_writing._shared
    monkeypatch.setattr(
        orbax_writing, "_shared", lambda held, *rest: held.delete() or original(held, *rest)
    )
    with refused(s.SerializationError, "NQX430", "$.arrays.w"):
        s.export({"w": w}, tmp_path / "a", store="orbax", asynchronous=True)
    assert list(tmp_path.iterdir()) == []


class Gate:
    """Holds back each flush to the disk until it is opened; then flushes fail if it has an error."""

    def __init__(self, monkeypatch):
        self.open, self.error, real = threading.Event(), None, os.fsync

        def fsync(descriptor):
            assert self.open.wait(60)
            if self.error is not None:
                raise self.error
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)


@pytest.fixture
def gate(monkeypatch):
    made = Gate(monkeypatch)
    yield made
    made.open.set()


@pytest.mark.parametrize("store", ["npz", "safetensors"])
@pytest.mark.parametrize("form", FORMS)
def test_files_are_written_by_a_thread(tmp_path, gate, store, form):
    state = {"w": jnp.arange(3.0), "n": np.arange(4), "part": np.arange(6).reshape(2, 3).T}
    ticks = []
    pending = s.export(
        state,
        tmp_path / form,
        store=store,
        asynchronous=True,
        progress=lambda *done: ticks.append(done),
    )
    assert not pending.done and not (tmp_path / form).exists()
    state["n"][:] = -1
    state["part"][:] = -1
    jax.block_until_ready(jax.jit(lambda w: w * 0, donate_argnums=0)(state["w"]))
    if not state["w"].is_deleted():
        state["w"].delete()
    gate.open.set()
    assert pending.wait() == tmp_path / form and ticks[-1] == (92, 92)
    loaded = s.load(tmp_path / form)
    assert loaded["w"].tolist() == [0, 1, 2] and loaded["n"].tolist() == [0, 1, 2, 3]
    assert loaded["part"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert s.verify(tmp_path / form) == []
    assert [entry.name for entry in tmp_path.iterdir()] == [form]


@pytest.mark.parametrize("store", ["npz", "safetensors"])
def test_arrays_of_several_devices_are_copied_first(tmp_path, gate, store):
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    split = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), PartitionSpec("x"))
    w = jax.device_put(jnp.arange(1 << 12), split)
    key = jax.random.key(3)
    pending = s.export({"w": w, "key": key}, tmp_path / "a", store=store, asynchronous=True)
    words = jax.random.key_data(key).tolist()
    w.delete()
    key.delete()
    gate.open.set()
    loaded = s.load(pending.wait())
    assert np.array_equal(loaded["w"], np.arange(1 << 12))
    assert jax.random.key_data(loaded["key"]).tolist() == words


def test_compressed_arrays_are_written_by_a_thread(tmp_path):
    state = {"w": np.zeros(1 << 16)}
    s.export(state, tmp_path / "a", asynchronous=True, compress=True).wait()
    assert (tmp_path / "a" / "arrays.npz").stat().st_size < 10_000
    with refused(s.SerializationError, "NQX614", "compress=False", "safetensors"):
        s.export(state, tmp_path / "b", asynchronous=True, compress=True, store="safetensors")
    assert not (tmp_path / "b").exists()


def test_a_failure_is_raised_by_the_next_export(tmp_path, gate, caplog):
    path = s.export({"w": np.zeros(3)}, tmp_path / "other", asynchronous=True)
    gate.error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with caplog.at_level(logging.ERROR, "neuralqx_struct"):
        pending = s.export({"w": np.ones(3)}, tmp_path / "a", asynchronous=True)
        gate.open.set()
        for earlier in (path, pending):
            earlier.settle()
    assert "the bundle was not written" in caplog.text
    gate.error = None
    for _ in range(2):  # one for each failure
        with refused(s.SerializationError, "NQX406", "No space left") as caught:
            s.export([1], tmp_path / "b")
        assert "earlier export" in caught.value.__notes__[0]
    assert s.export([1], tmp_path / "b") == tmp_path / "b"
    with refused(s.SerializationError, "NQX406", "No space left"):
        pending.wait()
    assert [entry.name for entry in tmp_path.iterdir()] == ["b"]


def test_a_failure_that_was_seen_is_not_raised_again(tmp_path, gate):
    gate.error = OSError(errno.EIO, os.strerror(errno.EIO))
    gate.open.set()
    pending = s.export({"w": np.ones(3)}, tmp_path / "a", asynchronous=True)
    with refused(s.SerializationError, "NQX406", "Input/output"):
        pending.wait()
    gate.error = None
    s.export([1], tmp_path / "a", asynchronous=True).wait()


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_second_export_to_a_path_waits_for_the_first(tmp_path, gate, asynchronous):
    (tmp_path / "link").symlink_to("a")
    s.export({"w": np.zeros(3)}, tmp_path / "a", asynchronous=True)
    threading.Timer(0.05, gate.open.set).start()
    second = s.export(
        {"w": np.ones(3)}, tmp_path / "link", overwrite=True, asynchronous=asynchronous
    )
    if asynchronous:
        second.wait()
    assert s.load(tmp_path / "a")["w"].tolist() == [1, 1, 1]
    s.export({"w": np.zeros(3)}, tmp_path / "a", overwrite=True, asynchronous=True)
    with pytest.raises(FileExistsError):
        s.export({"w": np.ones(3)}, tmp_path / "a", asynchronous=asynchronous)


AT_EXIT = """
import sys, time, threading
import numpy as np
import neuralqx_struct as s
from neuralqx_struct.bundle import writing
complete = writing.NewBundle.complete
def slow(*given, **options):
    time.sleep(0.3)
    complete(*given, **options)
writing.NewBundle.complete = slow
s.export({"w": np.arange(3 << 20)}, sys.argv[1], asynchronous=True)
raise SystemExit(3)
"""


def test_the_interpreter_waits_for_the_thread_before_it_exits(tmp_path):
    ended = python(*PROGRAMS).run("-c", AT_EXIT, str(tmp_path / "a"))
    assert ended.returncode == 3
    assert np.array_equal(s.load(tmp_path / "a")["w"], np.arange(3 << 20))
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


PROGRAM = """
import os, signal, sys
import jax.numpy as jnp, numpy as np
import neuralqx_struct as s
from neuralqx_struct.places import atomic as replacement
from neuralqx_struct.bundle import members
from neuralqx_struct.formats import orbax_writing
from tests.builders import FORMS, interruptions

path, moment = sys.argv[1:]
def stop(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
if moment == "while Orbax writes":
    started = orbax_writing._started
    orbax_writing._started = lambda *given, **options: started(*given, **options) and stop()
if moment == "before the manifest":
    members.formatted = stop
if moment == "before its place is taken":
    replacement._place = stop
state = {"w": jnp.ones((256, 256)), "n": np.ones(1000)}
pending = s.export(state, path, store="orbax", overwrite=True, asynchronous=True)
if moment == "at once":
    stop()
pending.wait()
if moment == "afterwards":
    stop()
"""
MOMENTS = [
    "at once",
    "while Orbax writes",
    "before the manifest",
    "before its place is taken",
    "afterwards",
]


def test_a_program_killed_at_any_moment_leaves_the_old_bundle_or_the_new_one(tmp_path):
    paths = {moment: tmp_path / moment.replace(" ", "-") / "ckpt" for moment in MOMENTS}
    for path in paths.values():
        s.export({"w": jnp.zeros(3)}, path, store="orbax")
    interpreter = python(*PROGRAMS, "orbax.checkpoint", "tests.builders")
    for moment, path in paths.items():
        killed = interpreter.run("-c", PROGRAM, str(path), moment)
        assert killed.returncode == -signal.SIGKILL, (moment, killed.stderr[-3000:])
    for moment, path in paths.items():
        new = moment == "afterwards"
        assert s.load(path)["w"].shape == ((256, 256) if new else (3,)), moment
        assert s.verify(path) == []
        assert (len(list(path.parent.iterdir())) == 1) == new
        s.export({"w": jnp.zeros(2)}, path, store="orbax", overwrite=True)
        assert [entry.name for entry in path.parent.iterdir()] == ["ckpt"] and s.load(path)[
            "w"
        ].shape == (2,)
