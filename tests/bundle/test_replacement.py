"""Readers of a bundle that a trainer replaces all the time: never a mix of two, never a false report of damage.

Every number in a bundle is that of its step (``programs/replacing_writer.py``), so a mix shows. Writer and
readers are processes and threads of their own; every operation that reads a bundle takes part.
"""

import gc
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager

import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.bundle.conversion import convert
from tests.builders import ROOT
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


@pytest.mark.parametrize("case", CASES)
def test_readers_of_a_bundle_that_is_replaced_see_one_of_them(tmp_path, case):
    looked(tmp_path, case, 2)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_thousands_of_looks_at_a_bundle_that_is_replaced(tmp_path, case):
    assert looked(tmp_path, case, 120).total() > 2000
