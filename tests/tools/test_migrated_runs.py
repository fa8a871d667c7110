"""Folders of bundles, migrated in one call: plans, resuming, bad bundles, kills, full disks, read-only folders."""

import errno
import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.bundle.runs import bundles_in, is_bundle
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.schema.series import series_of
from neuralqx_struct.tools.migration import migrate, migrate_all
from tests.builders import bounded, doc, invoke, payload, refused
from tests.preloaded import python

V1 = doc({"w": "float32[n]", "a": "int"})
V2 = doc({"w": "float32[n]", "b": "int"}, 2, [s.steps.rename(field="a", to="b")])
V3 = doc({"w": "float64[n]", "b": "int"}, 3, [s.steps.cast(field="w", dtype="float64")])
SERIES = series_of([V1, V2, V3])


def save(path, n=1, document=V1, documents=(V1, V2, V3)):
    name = "a" if document is V1 else "b"
    dtype = "float64" if document is V3 else "float32"
    return bundle.write(
        path, payload(document, {"w": np.full(5, n, dtype), name: n}, list(documents))
    )


def contents(folder):
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def run(tmp_path):
    """The checkpoints of a run: folders and zips at several depths, and things that are none."""
    folder = tmp_path / "run"
    for n in range(4):
        save(folder / f"step_{n}", n)
    save(folder / "late" / "step_4.zip", 4)
    save(folder / "late" / "step_5", 5, V2)
    (folder / "log.txt").write_text("hello")
    (folder / "latest").symlink_to("step_3")
    shutil.make_archive(str(folder / "logs"), "zip", folder, "log.txt")
    return folder


def states(done):
    return {item.path.name: item.state for item in done.items}


def version(path):
    return bundle.read_manifest(path)["schema"]["version"]


# ---------------------------------------------------------------------------------------------------------------------
# What is done.


def test_every_bundle_of_a_folder_is_migrated_and_none_is_touched(run, tmp_path):
    before, told = contents(run), []
    done = migrate_all(run, tmp_path / "out", to=2, progress=lambda *at: told.append(at))
    assert set(states(done).values()) == {"migrated"} and len(done.items) == 6 and not done.failed
    assert contents(run) == before
    assert told == [(n, 6) for n in range(7)]
    for n, name in enumerate(
        ["step_0", "step_1", "step_2", "step_3", "late/step_4.zip", "late/step_5"]
    ):
        held = bundle.read(tmp_path / "out" / name)
        assert (
            held.document["schema"]["version"] == 2
            and held.document["manifest"]["fields"]["b"] == n
        )
        assert bundle.verify(tmp_path / "out" / name) == []
    inodes = {
        (run / "step_0/arrays.npz").stat().st_ino,
        (tmp_path / "out/step_0/arrays.npz").stat().st_ino,
    }
    assert len(inodes) == 1  # linked


def test_the_plan_is_told_once_for_all_bundles_that_go_the_same_way(run, tmp_path):
    done = migrate_all(run, tmp_path / "out", dry_run=True)
    assert set(states(done).values()) == {"planned"} and not (tmp_path / "out").exists()
    text = str(done)
    assert "lab.a: version 1 -> 3, 5 bundles\nupgrade 1 -> 2 (manifest)\n  - rename" in text
    assert "lab.a: version 2 -> 3, 1 bundle\n" in text and text.endswith("6 bundles: 6 to migrate")


@pytest.mark.parametrize(
    ("to", "versions"), [(2, {2}), ("head", {3}), ("-1", {1, 2}), (-1, {1, 2})]
)
def test_versions_are_wanted_by_number_or_from_where_each_bundle_is(tmp_path, to, versions):
    save(tmp_path / "run" / "a", 1, V2)
    save(tmp_path / "run" / "b", 1, V3)
    done = migrate_all(tmp_path / "run", tmp_path / "out", to=to)
    assert not done.failed and {version(item.out) for item in done.items} == versions
    assert set(states(migrate_all(tmp_path / "run", tmp_path / "out", to=to)).values()) == {
        "skipped"
    }


def test_a_second_call_goes_on_where_the_first_stopped(run, tmp_path):
    out = tmp_path / "out"
    migrate_all(run, out, to=2)
    shutil.rmtree(out / "step_1")
    before = contents(out)
    done = migrate_all(run, out, to=2)
    assert states(done) == dict.fromkeys(states(done), "skipped") | {"step_1": "migrated"}
    assert before.items() <= contents(out).items()
    assert str(done).endswith("6 bundles: 1 migrated, 5 complete already")


def test_outputs_are_written_again_where_that_is_asked(run, tmp_path):
    out = tmp_path / "out"
    migrate_all(run, out, to=2)
    (out / "step_0" / "arrays.npz").unlink()
    done = migrate_all(run, out, to=3, overwrite=True)
    assert set(states(done).values()) == {"migrated"}
    assert {version(item.out) for item in done.items} == {3}
    assert bundle.verify(out / "step_0") == []


def test_outputs_that_are_not_what_is_wanted_are_left_and_told(run, tmp_path):
    out = tmp_path / "out"
    migrate_all(run, out, to=2)
    (out / "step_0" / "arrays.npz").unlink()
    (out / "step_0" / "arrays.npz").write_bytes(b"")
    shutil.rmtree(out / "step_1")
    (out / "step_1").write_text("mine")
    shutil.rmtree(out / "step_2")
    s.export({"x": 1}, out / "step_2")
    shutil.rmtree(out / "step_3")
    migrate(run / "step_3", out / "step_3", to=3)
    done = migrate_all(run, out, to=2)
    found = {item.path.name: item.report[0].message for item in done.failed}
    assert found.keys() == {"step_0", "step_1", "step_2", "step_3"}
    assert found["step_0"] == "expected nothing or version 2 of lab.a, got a damaged bundle"
    assert (
        found["step_2"] == "expected nothing or version 2 of lab.a, got a bundle without a schema"
    )
    assert found["step_3"] == "expected nothing or version 2 of lab.a, got version 3 of lab.a"
    assert (out / "step_1").read_text() == "mine"


def test_bad_bundles_do_not_stop_the_others(run, tmp_path):
    (run / "step_0" / "manifest.json").write_text("{")
    (run / "step_1" / "manifest.json").unlink()
    (run / "late" / "step_4.zip").write_bytes(b"PK\x03\x04 torn")
    s.export({"x": 1}, run / "plain")
    done = migrate_all(run, tmp_path / "out")
    assert {i.path.name for i in done.failed} == {"step_0", "step_1", "step_4.zip", "plain"}
    assert states(done)["step_2"] == "migrated" and not done.stopped
    assert all(d.file and d.severity == "error" for item in done.failed for d in item.report)
    assert not any(item.out.exists() for item in done.failed)


def test_what_is_wrong_with_many_is_told_once(tmp_path):
    for n in range(7):
        save(tmp_path / "run" / f"step_{n}", n, documents=[V1])
    done = migrate_all(tmp_path / "run", tmp_path / "out", to=2)
    (found,) = done.diagnostics
    assert found.code == "NQX422" and "step_1, step_2, step_3" in found.message
    assert str(done) == "7 bundles: 7 refused"


@pytest.mark.parametrize(
    ("where", "out", "code"),
    [
        ("nothing", "out", "NQX401"),
        ("empty", "out", "NQX401"),
        ("run/step_0", "out", "NQX401"),
        ("run", "run", "NQX431"),
        ("run", "run/late/new", "NQX431"),
        ("run", "link/new", "NQX431"),
    ],
)
def test_wrong_folders_are_told(run, tmp_path, where, out, code):
    (tmp_path / "empty" / ".hidden" / "manifest.json").mkdir(parents=True)
    (tmp_path / "link").symlink_to(run / "late")
    with refused(s.SerializationError, code, tmp_path / where):
        migrate_all(tmp_path / where, tmp_path / out)


def test_the_results_of_a_run_are_a_folder(run, tmp_path):
    with refused(s.SerializationError, "NQX614", tmp_path / "out.zip"):
        migrate_all(run, tmp_path / "out.zip")


def test_what_counts_as_a_bundle(run):
    assert [p.name for p in bundles_in(run)] == [
        "step_4.zip",
        "step_5",
        "step_0",
        "step_1",
        "step_2",
        "step_3",
    ]
    assert not is_bundle(run / "logs.zip") and not is_bundle(run / "log.txt") and not is_bundle(run)


# ---------------------------------------------------------------------------------------------------------------------
# What comes in between.


def test_a_migration_killed_at_any_bundle_leaves_whole_outputs_and_the_inputs(root, run, tmp_path):
    before, out = contents(run), tmp_path / "out"
    code = (
        "import os, signal, sys; from neuralqx_struct.tools.migration import migrate_all\n"
        "from neuralqx_struct.places import atomic as replacement\n"
        "calls = 0\n"
        "def counted(*args, original=os.{call}, **kwargs):\n"
        "    global calls; calls += 1\n"
        "    if calls == int(sys.argv[1]): os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return original(*args, **kwargs)\n"
        "os.{call} = counted\n"
        f"migrate_all({str(run)!r}, {str(out)!r}, to=int(sys.argv[2]))\n"
    )
    for call, at, to in [
        ("fsync", 1, 2),
        ("fsync", 4, 2),
        ("link", 2, 2),
        ("rename", 3, 2),
        ("fsync", 8, 2),
    ]:
        ended = python().run("-c", code.format(call=call), str(at), str(to), cwd=root)
        assert ended.returncode in (-signal.SIGKILL, 0), ended.stderr
        assert contents(run) == before
        for path in bundles_in(out) if out.exists() else ():
            assert version(path) == 2 and bundle.verify(path) == []
    done = migrate_all(run, out, to=2)
    assert not done.failed and {item.state for item in done.items} <= {"migrated", "skipped"}
    assert sorted(p.name for p in out.iterdir()) == ["late", "step_0", "step_1", "step_2", "step_3"]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "No space left"),
        (errno.EROFS, "Read-only"),
        (errno.EACCES, "Permission denied"),
    ],
)
@pytest.mark.parametrize("to", [2, 3])
def test_a_target_that_takes_nothing_more_stops_everything(  # noqa: PLR0917 - a row of the table
    run, tmp_path, monkeypatch, number, words, to
):
    before = contents(run)
    migrate_all(run, tmp_path / "out", to=to)
    for name in ("step_2", "step_3"):
        shutil.rmtree(tmp_path / "out" / name)

    def refuse(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        done = migrate_all(run, tmp_path / "out", to=to)
        with refused(bundle.BundleWriteError, "NQX406", tmp_path / "one", words) as caught:
            migrate(run / "step_2", tmp_path / "one", to=to)
    assert (
        caught.value.errno == number
        and "free space or choose a folder" in caught.value.diagnostics[0].hint
    )
    assert done.stopped and [item.path.name for item in done.failed] == ["step_2"]
    assert states(done)["step_3"] == "waiting" and "1 not tried" in str(done)
    assert (
        contents(run) == before
        and not (tmp_path / "out" / "step_2").exists()
        and not (tmp_path / "one").exists()
    )
    assert not [p for p in tmp_path.rglob("*") if p.name.startswith(".")]
    assert not migrate_all(run, tmp_path / "out", to=to).failed


def test_an_input_that_cannot_be_read_is_its_own_affair(run, tmp_path, monkeypatch):
    original = bundle.opened

    def opened(path, *_):
        if path.name == "step_1":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return original(path)

    monkeypatch.setattr(bundle, "opened", opened)
    done = migrate_all(run, tmp_path / "out")
    assert (
        [d.code for d in done.failed[0].report] == ["NQX400"]
        and len(done.failed) == 1
        and not done.stopped
    )


def test_a_missing_function_and_a_version_from_the_future_have_their_own_words(tmp_path):
    step = s.steps.python(
        function="test.missing", reads=["a"], writes=["a"], inverse="test.missing"
    )
    later = doc({"w": "float32[n]", "a": "int"}, 2, [step])
    save(tmp_path / "run" / "a", documents=[V1, later])
    fields = {"w": np.zeros(2, "float32"), "b": 1}
    future = document_from_data({**V3.to_data(), "version": 9}, "future")
    bundle.write(tmp_path / "run" / "b", payload(future, {**fields, "w": np.zeros(2)}, [V1, V2]))
    a, b = migrate_all(tmp_path / "run", tmp_path / "out", dry_run=True).failed
    assert a.report[0].code == "NQX312" and "trust=" in a.report[0].hint
    assert b.report[0].code == "NQX404" and "newer release" in b.report[0].hint
    assert all(part in b.report[0].message for part in ("1, 2", "lab.a", "9"))


# ---------------------------------------------------------------------------------------------------------------------
# The command.


def test_the_command_takes_a_folder(run, tmp_path):
    (run / "step_0" / "manifest.json").write_text("{")
    out = tmp_path / "out"
    dry = invoke("migrate", str(run), "--to", "2", "--dry-run")
    assert (
        dry.exit_code == 1 and "lab.a: version 1 -> 2, 4 bundles" in dry.stdout and not out.exists()
    )
    ran = invoke("migrate", str(run), "--to", "2", "--out", str(out))
    assert (
        ran.exit_code == 1 and f"6 bundles: 5 migrated, 1 refused\nwritten to {out}" in ran.stdout
    )
    assert f"{run}/step_0/manifest.json" in ran.stdout
    again = invoke("migrate", str(run), "--to", "2", "--out", str(out), "--format", "json")
    data = json.loads(again.stdout)
    assert (
        again.exit_code == 1 and not data["ok"] and data["plans"] == [] and data["out"] == str(out)
    )
    assert [b["state"] for b in data["bundles"]].count("skipped") == 5
    (run / "step_0" / "manifest.json").unlink()
    (run / "step_0" / "arrays.npz").unlink()
    assert invoke("migrate", str(run), "--to", "2", "--out", str(out)).exit_code == 0
    assert invoke("migrate", str(tmp_path / "no"), "--to", "2", "--out", str(out)).exit_code == 2


def test_the_command_says_that_it_could_not_write(run, tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    ran = invoke("migrate", str(run), "--to", "2", "--out", str(tmp_path / "out"))
    assert (
        ran.exit_code == 2
        and "No space left on device" in ran.stderr
        and "1 refused, 5 not tried\nnothing was written\n" in ran.stdout
    )


def test_hundreds_of_bundles_take_milliseconds_each(tmp_path):
    for n in range(200):
        save(tmp_path / "run" / f"step_{n:03}", n)
    with bounded():
        done = migrate_all(tmp_path / "run", tmp_path / "out", to=2)
        assert len(done.items) == 200 and not done.failed
    assert Path(tmp_path / "out" / "step_199").is_dir()
