"""Readers of a bundle that a trainer replaces all the time: never a mix of two, never a false report of damage.

Every number in a bundle is that of its step (``programs/replacing_writer.py``), so a mix shows. Writer and
readers are processes and threads of their own; every operation that reads a bundle takes part.
"""

import errno
import fcntl
import gc
import importlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager
from unittest.mock import Mock

import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.bundle import reading, storage
from neuralqx_struct.bundle.conversion import convert
from neuralqx_struct.bundle.storage import names_at
from neuralqx_struct.places import atomic
from neuralqx_struct.places.disk import BundleReadError
from tests.builders import ROOT, bounded, every, refused
from tests.programs import replacing_writer

CASES = {
    "folder": ("ckpt", "npz", "exchange"),
    "folder by two renames": ("ckpt", "npz", "renames"),
    "zip": ("ckpt.zip", "npz", "exchange"),
    "safetensors": ("ckpt", "safetensors", "exchange"),
    "orbax": ("ckpt", "orbax", "exchange"),
    "orbax by two renames": ("ckpt", "orbax", "renames"),
}


def step_of(payload):
    """The step of a payload, all of whose numbers must be of it."""
    fields = payload.document["manifest"]["fields"]
    step = fields.get("step", fields.get("count"))
    for name, array in payload.arrays.items():
        assert (np.asarray(array) == step).all(), f"step {step}, but {name} holds {array.flat[0]}"
    return step


def read(path, _):
    return step_of(bundle.read(path))


def read_copies(path, _):
    return step_of(bundle.read(path, mmap=False))


def read_unverified(path, _):
    return step_of(bundle.read(path, verify=False))


def load(path, _):
    state = s.load(path, as_numpy=True)
    assert all((array == state.step).all() for array in (state.w, state.b, state.c))
    return state.step


def verify(path, _):
    assert [d for d in s.verify(path) if d.severity == "error"] == []


def validate(path, _):
    assert s.validate(path) == []


def look(path, _):
    s.inspect(path), s.infer(path), s.diff(path, path)


def look_at_numbers(path, _):
    record = s.inspect(path, stats=True)
    (step,) = (row.value for row in record.rows if row.path == "$.step")
    means = {row.statistics.mean for row in record.rows if row.statistics}
    assert means == {float(step)}
    return int(step)


def link(path, out):
    done = convert(path, out)
    assert done.linked == (out.suffix == "")
    return step_of(bundle.read(done.out))


def change_store(path, out):
    return step_of(bundle.read(convert(path, out, store="npz", compress=True).out))


def migrate_manifest(path, out):
    return step_of(bundle.read(s.migrate(path, out, to=2, schema=replacing_writer.series()).out))


def migrate_arrays(path, out):
    return step_of(bundle.read(s.migrate(path, out, to=3, schema=replacing_writer.series()).out))


READERS = [
    read,
    read_copies,
    read_unverified,
    load,
    verify,
    validate,
    look,
    look_at_numbers,
    link,
    change_store,
    migrate_manifest,
    migrate_arrays,
]


@contextmanager
def trainer(path, store, how, seconds):
    """A process that replaces a bundle until the end of the block."""
    program = ROOT / "tests/programs/replacing_writer.py"
    command = [sys.executable, str(program), str(path), store, how, str(seconds)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=replacing_writer.environment(), **pipes) as writer:
        assert writer.stdout.readline() == "ready\n"
        yield writer
        writer.stdin.close()
        steps = int(writer.stdout.read())
    assert writer.returncode == 0
    assert steps > 1


def looked(tmp_path, case, seconds):
    """Runs all readers for some time, each in a thread; returns how often each looked and at how many steps."""
    name, store, how = CASES[case]
    # pytest parses the modules of Orbax that hold tests; with two parsing threads, Python 3.11 may raise SystemError.
    importlib.import_module("orbax.checkpoint")
    path = tmp_path / name
    looks, failures, steps = Counter(), [], set()
    stop = threading.Event()

    def run(reader):
        out = tmp_path / f"{reader.__name__}{path.suffix}"
        while not stop.is_set():
            try:
                steps.add(reader(path, out))
            except Exception as error:  # noqa: BLE001 - shown by the assertion below
                failures.append((reader.__name__, repr(error)))
            looks[reader.__name__] += 1
            shutil.rmtree(out) if out.is_dir() else out.unlink(missing_ok=True)

    with trainer(path, store, how, 10 * seconds + 60):
        threads = [threading.Thread(target=run, args=(reader,)) for reader in READERS]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == [], f"{len(failures)} of {looks.total()} looks failed"
    assert looks.keys() == {reader.__name__ for reader in READERS}
    assert len(steps) > 2
    gc.collect()  # readers in reference cycles
    bundle.write(path, replacing_writer.payload(0), overwrite=True)
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    return looks


@pytest.mark.slow  # its readers need a machine of their own; single moments are tested below
@pytest.mark.parametrize("case", CASES)
def test_thousands_of_looks_at_a_bundle_that_is_replaced(tmp_path, case):
    assert looked(tmp_path, case, 120).total() > 2000


# --- one moment of the exchange -------------------------------------------------------------------------------------


def replaced_after(monkeypatch, target, name, path, store):
    """A writer replaces the bundle right after the first call of a function."""
    original, calls = getattr(target, name), []

    def call(*arguments, **options):
        result = original(*arguments, **options)
        calls.append(name)
        if len(calls) == 1:
            bundle.write(path, replacing_writer.payload(2), overwrite=True, store=store)
        return result

    monkeypatch.setattr(target, name, call)
    return calls


@pytest.mark.parametrize("store", ["npz", "orbax"])
def test_a_bundle_that_is_replaced_while_it_is_opened_is_opened_again(tmp_path, monkeypatch, store):
    path = bundle.write(tmp_path / "ckpt", replacing_writer.payload(1), store=store)
    calls = replaced_after(monkeypatch, reading, "_examined", path, store)
    assert step_of(bundle.read(path)) == 2
    assert len(calls) == 2


@pytest.mark.parametrize("store", ["npz", "safetensors", "orbax"])
def test_a_bundle_that_is_always_replaced_while_it_is_opened_is_read(tmp_path, monkeypatch, store):
    """The second time it is locked before anything is read, so that its files stay."""
    path = bundle.write(tmp_path / "ckpt", replacing_writer.payload(1), store=store)
    examined, calls = reading._examined, []

    def replace(*arguments, **options):
        calls.append(len(calls))
        bundle.write(path, replacing_writer.payload(len(calls) + 1), overwrite=True, store=store)
        return examined(*arguments, **options)

    monkeypatch.setattr(reading, "_examined", replace)
    assert step_of(bundle.read(path)) == len(calls) == 2


def test_a_locked_folder_that_is_found_by_its_name_is_opened_again(tmp_path, monkeypatch):
    """Without descriptors a lock does not help: the name leads to another folder."""
    monkeypatch.setattr(storage, "_DESCRIPTORS", str(tmp_path / "nothing"))
    path = bundle.write(tmp_path / "ckpt", replacing_writer.payload(1), store="orbax")
    examined, calls = reading._examined, []

    def replace(*arguments, **options):
        calls.append(len(calls))
        if len(calls) < 4:
            step = len(calls) + 1
            bundle.write(path, replacing_writer.payload(step), overwrite=True, store="orbax")
        return examined(*arguments, **options)

    monkeypatch.setattr(reading, "_examined", replace)
    assert step_of(bundle.read(path)) == len(calls) == 4


def test_a_new_bundle_is_unlocked_before_readers_of_the_old_one_are_waited_for(
    tmp_path, monkeypatch
):
    """Else a reader of the new one gives up its lock, and loses the files to the next writer."""
    monkeypatch.setattr(atomic, "_CALLS", {})  # two renames
    path = bundle.write(tmp_path / "ckpt", replacing_writer.payload(1), store="orbax")
    pause, looks = time.sleep, []

    def look(seconds):
        descriptor = os.open(path, os.O_RDONLY)
        looks.append(atomic.lock(descriptor, shared=True))
        os.close(descriptor)
        pause(seconds)

    held = bundle.read(path)
    with monkeypatch.context() as patch:
        patch.setattr(atomic.time, "sleep", look)
        bundle.write(path, replacing_writer.payload(2), overwrite=True, store="orbax")
    assert looks and all(looks)
    assert step_of(held) == 1


def test_an_old_bundle_that_is_read_does_not_come_back(tmp_path, monkeypatch):
    """Only the last one does, after a writer that was stopped between its two renames."""
    monkeypatch.setattr(atomic, "_CALLS", {})
    path = bundle.write(tmp_path / "ckpt", replacing_writer.payload(1), store="orbax")
    held = bundle.read(path)
    for step in (2, 3):
        bundle.write(path, replacing_writer.payload(step), overwrite=True, store="orbax")
    assert step_of(held) == 1
    path.rename(tmp_path / ".ckpt.old-ffffffffffff")
    assert step_of(bundle.read(path)) == 3
    del held
    gc.collect()
    bundle.write(path, replacing_writer.payload(4), overwrite=True, store="orbax")
    assert [entry.name for entry in tmp_path.iterdir()] == ["ckpt"]


@pytest.mark.parametrize("store", ["npz", "safetensors", "orbax"])
@pytest.mark.parametrize("mmap", [True, False])
def test_an_open_bundle_stays_what_it_was(tmp_path, store, mmap):
    path = bundle.write(tmp_path / "ckpt", replacing_writer.payload(1), store=store)
    held = bundle.read(path, mmap=mmap)
    with bundle.opened(path) as source:
        bundle.write(path, replacing_writer.payload(2), overwrite=True, store=store)
        assert step_of(held) == step_of(source.payload()) == 1
        assert source.damage() == []
        out = bundle.write_linked(source, tmp_path / "out", source.document)
    assert step_of(bundle.read(out)) == 1
    assert step_of(bundle.read(path)) == 2
    names = sorted(entry.name for entry in tmp_path.iterdir())
    assert len(names) == (3 if store == "orbax" else 2)  # the writer leaves what is read
    del held, source
    gc.collect()
    bundle.write(path, replacing_writer.payload(3), overwrite=True, store=store)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["ckpt", "out"]


@pytest.mark.parametrize("missing", ["locks", "descriptors"])
def test_where_a_folder_cannot_be_held_a_replaced_one_is_reported(tmp_path, monkeypatch, missing):
    """Without locks the writer removes the files; without descriptors they have no name any more."""
    path = bundle.write(tmp_path / "ckpt", replacing_writer.payload(1), store="orbax")
    if missing == "locks":
        monkeypatch.setattr(fcntl, "flock", no_locks)
    else:
        monkeypatch.setattr(storage, "_DESCRIPTORS", str(tmp_path / "nothing"))
    for verify in (True, False):
        assert step_of(bundle.read(path, verify=verify)) == 1
        held = bundle.read(path, verify=verify)
        bundle.write(path, replacing_writer.payload(1), overwrite=True, store="orbax")
        with refused(BundleReadError, "NQX401", path):
            step_of(held)


def no_locks(*_):
    raise OSError(errno.ENOLCK, "No locks available")


def test_a_lock_that_a_writer_holds_too_long_is_not_waited_for(tmp_path, monkeypatch):
    path = bundle.write(tmp_path / "ckpt", replacing_writer.payload(1), store="orbax")
    descriptor = os.open(path, os.O_RDONLY)
    assert atomic.lock(descriptor)
    with bounded():
        assert step_of(bundle.read(path)) == 1
    os.close(descriptor)


def test_a_name_that_another_file_has_by_now_is_not_linked(tmp_path):
    path = bundle.write(tmp_path / "ckpt", replacing_writer.payload(1))
    with bundle.opened(path) as source:
        other = bundle.write(tmp_path / "other", replacing_writer.payload(2))
        (other / "arrays.npz").replace(path / "arrays.npz")
        out = bundle.write_linked(source, tmp_path / "out", source.document)
    assert step_of(bundle.read(out)) == 1


def test_a_source_that_is_cut_off_is_not_copied(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EXDEV, "no")

    monkeypatch.setattr(os, "link", refuse)
    path = bundle.write(tmp_path / "ckpt", replacing_writer.payload(1))
    with bundle.opened(path) as source:
        os.truncate(path / "arrays.npz", 1000)
        with refused(s.IntegrityError, "NQX408", path / "arrays.npz"):
            bundle.write_linked(source, tmp_path / "out", source.document)
    assert [entry.name for entry in tmp_path.iterdir()] == ["ckpt"]


@pytest.mark.parametrize("work", [convert, s.migrate])
def test_a_bundle_is_not_written_into_its_own_source(tmp_path, work):
    path = bundle.write(tmp_path / "ckpt", replacing_writer.payload(1))
    (tmp_path / "link").symlink_to(path)
    for out in (path / "sub", tmp_path / "link" / "deep" / "sub", path / ".." / "ckpt" / "x.zip"):
        with refused(FileExistsError, "NQX431"):
            work(path, out)
    with refused(FileExistsError, "NQX431"):
        work(tmp_path / "link", path / "sub")
    assert sorted(entry.name for entry in path.iterdir()) == ["arrays.npz", "manifest.json"]


def test_names_in_a_folder_are_those_of_one_bundle(tmp_path, monkeypatch):
    path = bundle.write(tmp_path / "ckpt", replacing_writer.payload(1))
    assert names_at(path) == ["arrays.npz", "manifest.json"]
    assert names_at(tmp_path / "nothing") == names_at(path / "manifest.json") == []
    path.rename(tmp_path / ".ckpt.old-0123456789ab")
    assert names_at(path) == ["arrays.npz", "manifest.json"]


@every("others", [[], ["ckpt"], ["other"]])
@every("name", ["ckpt", "ckpt.zip", "ckpt/manifest.json"])
def test_a_report_is_about_one_bundle(tmp_path, monkeypatch, name, others):
    for path in ("ckpt", "ckpt.zip", "other"):
        bundle.write(tmp_path / path, replacing_writer.payload(7))
    opened = Mock(wraps=reading._settled)
    monkeypatch.setattr(reading, "_settled", opened)
    s.report(tmp_path / name, *(tmp_path / other for other in others))
    paths = [call.args[0] for call in opened.call_args_list]
    assert len(paths) == len({*paths}) == 1 + len({*others} - {name.split("/")[0]})
    with bundle.opened(tmp_path / "other") as held:  # it is no longer kept
        assert held.path == opened.call_args.args[0] == tmp_path / "other"
