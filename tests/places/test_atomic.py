"""Atomic replacement, seen through bundles: failures, killed writers, leftovers, locks."""

import errno
import fcntl
import os
import random
import signal
import stat
import subprocess
import sys
import time

import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct import bundle, formats
from neuralqx_struct.errors import SerializationError
from neuralqx_struct.places import atomic as replacement
from neuralqx_struct.schema.text.loader import replace_text
from tests.builders import FORMS, every, everything, interruptions, refused, simple, write_linked
from tests.preloaded import python


@pytest.mark.parametrize("form", FORMS)
def test_an_existing_target_needs_overwrite(tmp_path, form):
    path = bundle.write(tmp_path / "new" / "parent" / form, simple(1))
    with refused(FileExistsError, "NQX431", path) as caught:
        bundle.write(path, simple(2))
    assert isinstance(caught.value, SerializationError)
    assert caught.value.errno == errno.EEXIST
    held = bundle.read(path)
    bundle.write(path, simple(2), overwrite=True)
    assert held.arrays["w"][0, 0] == 1  # a map of the old file stays what it was
    assert everything(path)[1]["w"][0, 0] == 2
    assert [entry.name for entry in path.parent.iterdir()] == [form]


@pytest.mark.parametrize("exchange", [True, False])
def test_overwriting_may_change_store_and_works_without_an_exchange(
    tmp_path, exchange, monkeypatch
):
    if not exchange:
        monkeypatch.setattr(replacement, "_CALLS", {})
    for form in FORMS:
        path = bundle.write(tmp_path / form, simple(1))
        bundle.write(path, simple(2), overwrite=True, store="safetensors")
        assert everything(path)[1]["w"][0, 0] == 2
    assert sorted(entry.name for entry in tmp_path.iterdir()) == FORMS


@every("form", FORMS)
@every("call", range(6))
def test_a_failure_at_any_flush_leaves_the_old_bundle(tmp_path, form, call, monkeypatch):
    path = bundle.write(tmp_path / form, simple(1))
    real, calls = os.fsync, []

    def fail(descriptor):
        calls.append(descriptor)
        if len(calls) == call + 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    failed = False
    try:
        bundle.write(path, simple(2), overwrite=True)
    except OSError:
        failed = True
    monkeypatch.undo()
    assert failed or len(calls) <= call
    assert everything(path)[1]["w"][0, 0] in (1, 2)
    assert failed or everything(path)[1]["w"][0, 0] == 2
    assert [entry.name for entry in tmp_path.iterdir()] == [form]


def test_a_full_disk_leaves_nothing(tmp_path):
    script = """
import resource, signal, sys, numpy as np
from neuralqx_struct import bundle
from neuralqx_struct.manifest.payload import Payload
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
record = {"dtype": "float64", "shape": [1 << 20]}
document = {"version": 1, "manifest": {"__kind__": "array", "name": "w", **record}, "arrays": {"w": record}}
for path in sys.argv[1:]:
    try:
        bundle.write(path, Payload(document, {"w": np.zeros(1 << 20)}))
    except OSError as error:
        print(error.errno)
"""
    targets = [str(tmp_path / form) for form in FORMS]
    run = python().run("-c", script, *targets)
    assert run.stdout.split() == [str(errno.EFBIG)] * 2
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_killed_writers_are_cleared_and_those_of_living_ones_are_not(tmp_path):
    dead = tmp_path / ".ckpt.tmp-0123456789ab"
    dead.mkdir()
    living = tmp_path / ".ckpt.tmp-ba9876543210"
    living.mkdir()
    stranger = tmp_path / ".ckpt.tmp-mine"
    stranger.mkdir()
    held = os.open(living, os.O_RDONLY)
    assert replacement.lock(held)
    try:
        bundle.write(tmp_path / "ckpt", simple())
    finally:
        os.close(held)
    assert sorted(p.name for p in tmp_path.iterdir()) == [living.name, stranger.name, "ckpt"]


def test_a_writer_stopped_between_two_renames_is_recovered(tmp_path):
    path = bundle.write(tmp_path / "ckpt", simple(1))
    path.rename(tmp_path / ".ckpt.old-0123456789ab")
    assert everything(path)[1]["w"][0, 0] == 1
    with pytest.raises(FileExistsError):
        bundle.write(path, simple(2))
    bundle.write(path, simple(2), overwrite=True)
    assert everything(path)[1]["w"][0, 0] == 2
    assert [p.name for p in tmp_path.iterdir()] == ["ckpt"]


def test_a_failed_second_rename_puts_the_old_bundle_back(tmp_path, monkeypatch):
    monkeypatch.setattr(replacement, "_CALLS", {})
    path = bundle.write(tmp_path / "ckpt", simple(1))
    real = type(path).rename

    def fail(self, target):
        if ".tmp-" in self.name:
            raise OSError(errno.EIO, "no")
        return real(self, target)

    monkeypatch.setattr(type(path), "rename", fail)
    with refused(OSError, "NQX406"):
        bundle.write(path, simple(2), overwrite=True)
    assert everything(path)[1]["w"][0, 0] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["ckpt"]


# Forks a writer that overwrites one path for ever, whenever it is told to: a fork is ready at once.
FORKER = """
import os, sys
import numpy as np
from neuralqx_struct import bundle
from neuralqx_struct.manifest.payload import Payload

def payload(value):
    record = {"dtype": "float64", "shape": [20000]}
    document = {"version": 1, "manifest": {"__kind__": "array", "name": "w", **record}, "arrays": {"w": record}}
    return Payload(document, {"w": np.full(20000, value)})

path = sys.argv[1]
for _ in range(2):
    bundle.write(path, payload(1.0), overwrite=True)
for line in sys.stdin:
    child = os.fork()
    if not child:
        value = 1.0
        while True:
            value += 1
            bundle.write(path, payload(value), overwrite=True)
    print(child, flush=True)
    os.waitpid(child, 0)
    print("dead", flush=True)
"""


@pytest.mark.parametrize("form", FORMS)
def test_a_killed_writer_leaves_an_old_or_a_new_bundle(tmp_path, form):
    path = tmp_path / form
    moments = random.Random(7)
    seen = set()

    def look():
        values = everything(path)[1]["w"]
        assert (values == values[0]).all()
        seen.add(float(values[0]))

    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", FORKER, str(path)], **pipes) as forker:
        for _ in range(25):
            print("go", file=forker.stdin, flush=True)
            writer = int(forker.stdout.readline())
            until = time.monotonic() + moments.uniform(0, 0.1)
            while time.monotonic() < until:
                look()  # readers meanwhile see one or the other
            os.kill(writer, signal.SIGKILL)
            assert forker.stdout.readline() == "dead\n"
            look()
        forker.stdin.close()
    assert len(seen) > 2
    bundle.write(path, simple(0.0), overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == [form]


def no_locks(*_):
    raise OSError(errno.ENOLCK, "No locks available")


def blocked(*_):
    raise BlockingIOError(errno.EWOULDBLOCK, "Resource temporarily unavailable")


@every("missing", ["locks", "module"])
@every("form", FORMS)
@every("exchange", [True, False])
def test_a_system_without_locks_can_export(tmp_path, monkeypatch, missing, form, exchange):
    """Nobody knows there whether a temporary is in use: only one's own are removed."""
    if missing == "locks":
        monkeypatch.setattr(fcntl, "flock", no_locks)
    else:
        monkeypatch.setitem(sys.modules, "fcntl", None)
    if not exchange:
        monkeypatch.setattr(replacement, "_CALLS", {})
    other = tmp_path / f".{form}.tmp-0123456789ab"
    other.mkdir()
    path = bundle.write(tmp_path / form, simple(1))
    with refused(FileExistsError, "NQX431", path):
        bundle.write(path, simple(2))
    bundle.write(path, simple(2), overwrite=True)
    assert everything(path)[1]["w"][0, 0] == 2
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [other.name, form]


def test_a_lock_that_another_process_takes_first_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", blocked)
    with refused(SerializationError, "NQX406"):
        bundle.write(tmp_path / "ckpt", simple())
    monkeypatch.undo()
    bundle.write(tmp_path / "ckpt", simple())
    assert [entry.name for entry in tmp_path.iterdir()] == ["ckpt"]


def test_an_interrupt_between_any_two_instructions_leaves_no_lock(tmp_path):
    """A descriptor that an interrupt loses would keep its lock as long as the process lives."""
    target = tmp_path / "notes"
    count = 0
    for interrupted in interruptions(replacement.__file__, ["_locked", "make"]):
        with (
            interrupted,
            replacement.staged(target, folder=True, overwrite=True, foreign=lambda _: None),
        ):
            pass
        count += 1
        assert {*tmp_path.iterdir()} <= {target}, count
    assert count > 50


@pytest.mark.parametrize("overwrite", [True, False])
def test_what_comes_to_stand_at_the_target_meanwhile_is_judged_too(tmp_path, overwrite):
    target = tmp_path / "notes"

    def foreign(path):
        return "the notes of somebody else" if path.read_text() == "theirs" else None

    with (
        refused(FileExistsError, "NQX431", target),
        replacement.staged(target, folder=False, overwrite=overwrite, foreign=foreign) as stage,
    ):
        stage.write_text("mine")
        target.write_text("theirs")
    assert target.read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [target]


def test_a_name_taken_at_the_last_moment_is_not_replaced(tmp_path):
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.write_text("mine")
    theirs.write_text("theirs")
    if replacement._rename(tmp_path / "mine", tmp_path / "free", "new"):  # else: the system cannot
        with pytest.raises(FileExistsError):
            replacement._rename(tmp_path / "free", theirs, "new")
    assert theirs.read_text() == "theirs"


def test_a_rename_that_fails_says_of_what(tmp_path):
    if sys.platform in replacement._CALLS:
        with pytest.raises(FileNotFoundError) as caught:
            replacement._rename(tmp_path / "no", tmp_path / "target", "new")
        assert (caught.value.filename, caught.value.filename2) == (
            str(tmp_path / "no"),
            str(tmp_path / "target"),
        )


def test_a_target_that_another_writer_replaces_meanwhile_is_looked_at_again(tmp_path):
    target, fresh = tmp_path / "ckpt", tmp_path / "fresh"
    for folder in (target, fresh):
        folder.mkdir()
        (folder / "old").touch()
    seen = []

    def foreign(path):
        seen.append(path)
        if len(seen) > 1:
            return None
        target.rename(tmp_path / "gone")
        fresh.rename(target)
        return "a folder without manifest.json"

    with replacement.staged(target, folder=True, overwrite=True, foreign=foreign) as stage:
        (stage / "new").touch()
    assert (target / "new").exists() and len(seen) >= 2


def test_a_writer_that_is_overtaken_after_its_last_look_overwrites_nothing(tmp_path, monkeypatch):
    path, looks, look = tmp_path / "ckpt", [], replacement._refuse

    def overtaken(*arguments, **options):
        look(*arguments, **options)
        looks.append(arguments)
        if len(looks) == 2:  # the first is before anything is written
            monkeypatch.setattr(replacement, "_refuse", look)
            bundle.write(path, simple(1.0))

    monkeypatch.setattr(replacement, "_refuse", overtaken)
    with pytest.raises(FileExistsError):
        bundle.write(path, simple(2.0))
    assert len(looks) == 2
    assert (bundle.read(path).arrays["w"] == 1.0).all()
    assert [entry.name for entry in tmp_path.iterdir()] == ["ckpt"]


def test_a_writer_whose_look_is_at_a_replaced_folder_takes_nothing_from_the_new_one(
    tmp_path, monkeypatch
):
    """At each look in turn another writer replaces the bundle, whose folder is empty for the look then."""
    path, listed, overtakings = tmp_path / "ckpt", os.listdir, 0
    bundle.write(path, simple(1.0))
    for last in range(20):
        looks, removed = [], []
        with monkeypatch.context() as during:

            def look(place, last=last, looks=looks, removed=removed, during=during):
                looks.append(place)
                if looks.count(path) <= last or place != path:
                    return listed(place)
                during.setattr(os, "listdir", listed)
                folder = os.open(path, os.O_RDONLY)
                bundle.write(path, simple(2.0), overwrite=True)
                during.setattr(replacement, "_remove", removed.append)
                try:
                    return listed(folder)
                finally:
                    os.close(folder)

            during.setattr(os, "listdir", look)
            bundle.write(path, simple(3.0), overwrite=True)
        assert [place for place in removed if place.parent == path] == []
        assert (bundle.read(path).arrays["w"] == 3.0).all()
        if looks.count(path) <= last:
            break
        overtakings += 1
    assert 0 < overtakings < 20


def seal(path):
    manifest = path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"step"', '"epoch"'))
    bundle.seal(path)


def convert_run(path):
    """A run of one step, at whose end its name is flushed."""
    run = path.with_name("run")
    run.mkdir()
    np.savez(run / "1.npz", w=np.ones(3, "float32"))
    schema = s.load_schema("""
    {language: "1", schema: lab.net, version: 1, root: Net, structs: {Net: {fields: {w: "float32[n]"}}}}""")
    assert [item.state for item in s.convert(run, path, schema=schema).run.items] == ["typed"]


WRITERS = {
    "run": convert_run,
    "npz": lambda path: s.export({"w": np.ones(3)}, path),
    "safetensors": lambda path: s.export({"w": np.ones(3)}, path, store="safetensors"),
    "zip": lambda path: s.export({"w": np.ones(3)}, path.with_suffix(".zip")),
    "background": lambda path: s.export({"w": np.ones(3)}, path, asynchronous=True).wait(),
    "over": lambda path: s.export({"w": np.ones(3)}, path.with_name("old"), overwrite=True),
    "seal": lambda path: seal(path.with_name("old")),
    "linked": lambda path: write_linked(
        path.with_name("old"), path, {"version": 1, "manifest": 5, "arrays": {}}
    ),
    "text": lambda path: replace_text(path.with_suffix(".yaml"), "a: 1"),
    "foreign": lambda path: formats.write(path.with_suffix(".npz"), "npz", {"w": np.ones(3)}),
}


@every("writer", WRITERS)
def test_all_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch, writer):
    """A power cut after the rename finds the bytes of every file, and its name in the folder."""
    s.export({"step": 1}, tmp_path / "old")
    flushed, places, real, place = set(), [], os.fsync, replacement._place

    def fsync(descriptor):
        found = os.fstat(descriptor)
        flushed.add((found.st_ino, found.st_size if stat.S_ISREG(found.st_mode) else None))
        real(descriptor)

    def placed(stage, *given, **options):
        made = [stage.path, *stage.path.rglob("*")]
        for path in made:
            found = path.stat()
            size = found.st_size if path.is_file() else None
            assert (found.st_ino, size) in flushed, path
        places.append(stage.target.parent.stat().st_ino)
        flushed.clear()
        place(stage, *given, **options)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(replacement, "_place", placed)
    WRITERS[writer](tmp_path / "new")
    assert len(places) == 1 and (places[0], None) in flushed
