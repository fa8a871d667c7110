"""Crashes: whenever a writer is killed or the disk is full, the old bundle stands, or the new one, whole.

The writers are real processes (`crash_writer.py`), ended by SIGKILL at random moments and once at every call by which
something reaches the disk.
"""

import errno
import json
import os
import signal
import subprocess
import sys

import pytest

import neuralqx_struct as s
from neuralqx_struct import bundle
from tests.builders import FORMS, everything, refused, simple

PLACES = [(form, exchange) for form in FORMS for exchange in (True, False)]  # False: by two renames


@pytest.fixture(scope="module")
def rows(root):
    """Runs a job of the driver, which starts once; returns one row for each writer."""
    command = [sys.executable, str(root / "tests/programs/crash_writer.py")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": root}
    env = {**os.environ, "PYTHONPATH": str(root)}
    with subprocess.Popen(command, env=env, **pipes) as driver:

        def run(path, exchange, action, how):
            job = {"path": str(path), "exchange": exchange, "action": action, "how": str(how)}
            driver.stdin.write(json.dumps(job) + "\n")
            driver.stdin.flush()
            lines = []
            for line in driver.stdout:
                if line == "end\n":
                    return [json.loads(line) for line in lines]
                lines.append(line)
            raise AssertionError("the driver ended")

        yield run
        driver.stdin.close()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("action", ["write", "first", "compress", "store", "link"])
def test_a_writer_killed_at_each_call_leaves_the_old_or_the_new_bundle(rows, work, place, action):
    form, exchange = place
    found = rows(work / "work" / form, exchange, action, "kill,half")
    made = {row["call"] for row in found}
    assert made >= {"write", "fsync", "exchange" if exchange else "rename"}
    assert "link" in made or (action, form) != ("link", "ckpt")
    assert {row["how"] for row in found} == {"kill", "half"}
    old = None if action == "first" else 1
    for row in found:
        where = f"killed at call {row['at']}, {row['call']} of {row['calls']}: {row}"
        assert row["signal"] == signal.SIGKILL, where
        assert row["value"] in (old, 2), where
        assert len(row["left"]) <= (1 if exchange else 2), where
        assert all(name.startswith(f".{form}.") for name in row["left"]), where
        assert (row["next"], row["after"]) == (3, []), where
    assert {row["value"] for row in found} == {old, 2}
    # Bytes are on the disk before the name leads to them, and the name before the export returns.
    names = found[0]["calls"]
    placed = (
        names.index("exchange")
        if exchange
        else max(i for i, name in enumerate(names) if name == "rename")
    )
    assert "fsync" in names[max(i for i, name in enumerate(names) if name == "write") : placed]
    assert "fsync" in names[placed:]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("action", ["write", "first", "link"])
def test_an_interrupt_at_any_call_leaves_nothing_beside_the_bundle(rows, work, place, action):
    """The process lives on, as a notebook does: a temporary that it left would be locked."""
    form, exchange = place
    found = rows(work / "work" / form, exchange, action, "interrupt,interrupt after")
    old = None if action == "first" else 1
    for row in found:
        where = f"interrupted at call {row['at']}, {row['call']} of {row['calls']}: {row}"
        assert row["error"] == "interrupted" or row["at"] == 0, where  # a parent that exists
        assert row["value"] in (old, 2), where
        assert row["left"] == [], where
        assert (row["next"], row["after"]) == (3, []), where


@pytest.mark.parametrize("place", PLACES)
def test_two_hundred_writers_killed_at_random_moments(rows, work, place):
    form, exchange = place
    *killed, end = rows(work / "work" / form, exchange, "random", 200 // len(PLACES))
    assert len(killed) == 50
    assert all(
        row["value"] is not None and len(row["left"]) <= (1 if exchange else 2) for row in killed
    )
    assert len({row["value"] for row in killed}) > 1
    assert (end["next"], end["after"]) == (3, [])


# -- a full disk


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("action", ["write", "first", "compress", "link"])
def test_a_disk_that_is_full_at_any_call_leaves_the_old_bundle(rows, work, place, action):
    form, exchange = place
    path = work / "work" / form
    old = None if action == "first" else 1
    found = rows(path, exchange, action, "full,full half")
    assert found
    for row in found:
        where = f"refused at call {row['at']}, {row['call']} of {row['calls']}: {row}"
        last = row["at"] > max(
            i for i, name in enumerate(row["calls"]) if name in ("exchange", "rename")
        )
        assert row["value"] == old or last or row["error"] is None, where
        assert row["value"] in (old, 2), where
        if row["error"] is not None:
            assert (row["errno"], row["code"]) == (errno.ENOSPC, "NQX406"), where
            assert "No space left on device" in row["error"] and str(path) in row["error"], where
            placed = last and row["call"] == "fsync"
            assert ("in place" in row["error"]) == (row["value"] == 2) == placed, where
            assert ("untouched" in row["error"]) == (not placed), where
        else:
            assert row["call"] in ("link", "rmdir", "unlink") or row["at"] == 0, (
                where
            )  # a copy serves as well; leftovers are cleared later
        assert row["left"] == [] or row["call"] in ("rmdir", "unlink"), where
        assert (row["next"], row["after"]) == (3, []), where


@pytest.mark.parametrize("form", FORMS)
def test_a_limit_on_the_size_of_files_is_told_as_such(rows, work, form):
    (row,) = rows(work / form, True, "limit", "")
    assert (row["code"], row["errno"]) == ("NQX406", errno.EFBIG)
    assert str(work / form) in row["error"] and "File too large" in row["error"]
    assert (row["value"], row["left"]) == (1, [])


# -- several writers, and places that cannot be written


@pytest.mark.parametrize("form", FORMS)
def test_writers_to_one_path_leave_one_whole_bundle(rows, work, form):
    *looks, end = rows(work / form, True, "beside", "1,2,3")
    assert {row["value"] for row in looks} <= {1, 2, 3}
    assert end["codes"] == [0, 0, 0] and end["value"] in (1, 2, 3) and end["left"] == []


@pytest.mark.parametrize("place", PLACES)
def test_readers_of_a_path_that_is_written_see_a_whole_bundle(rows, work, place):
    form, exchange = place
    *looks, end = rows(work / form, exchange, "beside", "1")
    for row in looks:
        assert (row["value"], row["version"]) == (1, 1) and {*row["found"]} <= {"NQX404"}
    assert (end["codes"], end["value"], end["left"]) == ([0], 1, [])
    assert s.verify(work / form) == []


@pytest.mark.parametrize("form", FORMS)
def test_two_first_exports_of_one_path_make_one_bundle(rows, work, form):
    """Without overwrite one wins, and the others are told that the path is taken."""
    (end,) = rows(work / form, True, "firsts", 3)
    assert sorted(end["codes"]) == [0, 1, 1] and end["left"] == []
    assert end["value"] == end["codes"].index(0)
    everything(work / form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("at", ["mkdir", "open"])
def test_a_folder_that_cannot_be_written(tmp_path, form, at, monkeypatch):
    """Tests may run as root, whom no mode stops: the system's answer is given in its place."""
    path = bundle.write(tmp_path / form, simple(1))

    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / ".tmp-x"))

    with monkeypatch.context() as patched:
        patched.setattr(os, "mkdir", refuse)
        patched.setattr("io.open", refuse)
        with refused(OSError, "NQX406", "Permission denied") as caught:
            bundle.write(tmp_path / f"new {form}" / form, simple(2))
        assert isinstance(caught.value, s.SerializationError)
        assert caught.value.errno == errno.EACCES and caught.value.filename.endswith(form)
        if form == "ckpt" and at == "mkdir":
            with refused(s.SerializationError, "NQX406"):
                bundle.write(path, simple(2), overwrite=True)
    assert everything(path)[1]["w"][0, 0] == 1
    assert [entry.name for entry in tmp_path.iterdir()] == [form]


def test_paths_that_no_system_takes(tmp_path):
    file = tmp_path / "file"
    file.write_text("not a folder")
    for path in (tmp_path / "a\0b", file / "ckpt", "x" * 300):
        with refused(s.SerializationError, "NQX406") as caught:
            s.export([1], path)
        assert isinstance(caught.value, OSError)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_long_names_are_written_and_do_not_take_each_others_leftovers(tmp_path):
    long = "状" * 80  # 240 bytes; the system takes 255
    for name in (f"{long}a", f"{long}b", "n" * 200 + "a", "n" * 200 + "b.zip"):
        s.export(name, tmp_path / name)
        s.export(name, tmp_path / name, overwrite=True)
        assert s.load(tmp_path / name) == name
    # Another bundle that a writer had moved away when it was stopped is not this one.
    from neuralqx_struct.places import atomic as replacement

    first, second = tmp_path / f"{long}a", tmp_path / f"{long}c"
    kept = replacement._sibling(first, "old")
    first.rename(kept)
    with pytest.raises(FileNotFoundError):
        s.load(second)
    s.export("c", second)
    assert s.load(first) == f"{long}a"


def test_files_of_other_programs_beside_a_bundle_are_left_alone(tmp_path):
    names = [
        ".ckpt.tmp-interesting1",
        ".ckpt.old-my_favourite",
        ".ckpt.tmp-0123456789abc",
        "xckpt.tmp-0123456789ab",
    ]
    for name in names:
        (tmp_path / name).write_text("mine")
    s.export([1], tmp_path / "ckpt")
    s.export([2], tmp_path / "ckpt", overwrite=True)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted([*names, "ckpt"])
