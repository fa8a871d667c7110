"""Whole runs brought under a schema: series, managers of Orbax, folders of files and of plain bundles."""

import errno
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import serialization

import neuralqx_struct as s
from neuralqx_struct import bundle, formats
from neuralqx_struct.errors import SerializationError
from neuralqx_struct.integrations.orbax import StructRestore
from tests.builders import invoke, refused

SCHEMA = """language: "1"
schema: lab.net
version: 1
root: Net
structs:
  Dense: {fields: {kernel: "float32[n, m]"}}
  Net: {fields: {layers: "list[Dense]", step: int}}
"""
LAYOUT = """language: "1"
layout: old
of: lab.net@1
structs:
  Dense: {kernel: {name: weight, transpose: true}}
  Net: {layers: "blocks.{i}", step: count}
"""
OTHER = SCHEMA.replace("lab.net", "lab.other")


def tree(n):
    layers = [{"kernel": np.full((3, 4), n + i, "float32")} for i in range(2)]
    return {"layers": layers, "step": n}


def named(n):
    return {f"layers.{i}.kernel": np.full((3, 4), n + i, "float32") for i in range(2)} | {
        "step": np.array(n)
    }


@pytest.fixture(autouse=True)
def world(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schemas/net/layouts").mkdir(parents=True)
    (tmp_path / "schemas/net/v1.yaml").write_text(SCHEMA)
    (tmp_path / "schemas/net/layouts/old.yaml").write_text(LAYOUT)
    return tmp_path


def converted(run, out="out", **options):
    return s.convert(run, out, schema="schemas/net", **options)


def states(done):
    return {item.path.name: item.state for item in done.run.items}


def check(path, n):
    net = s.load_schema("schemas/net").load(path)
    assert int(net.step) == n and s.verify(path) == []
    assert [layer.kernel[0, 0] for layer in net.layers] == [n, n + 1]


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def test_a_series_keeps_its_files_and_its_metrics():
    series = s.Series("run")
    for n in range(3):
        series.save(n, tree(n), metrics={"loss": abs(n - 1.0)})
    report = []
    done = converted("run", report=report)
    assert str(done) == "3 steps: 3 typed\nwritten to out"
    assert [d.code for d in report] == ["NQX425"]
    for n in range(3):
        check(f"out/{n}", n)
        assert Path(f"run/{n}/arrays.npz").samefile(f"out/{n}/arrays.npz")
    assert done.linked and done.store == "npz" and done.arrays == 6
    new = s.Series("out", keep_best=("loss", "min"))
    assert (new.best(), new.latest()) == (1, 2)


def test_a_folder_of_files_of_several_kinds():
    Path("run/late").mkdir(parents=True)
    Path("run/checkpoint_0").write_bytes(serialization.to_bytes(tree(0)))
    formats.write("run/step_1.npz", "npz", named(1))
    formats.write("run/step_2.safetensors", "safetensors", named(2))
    Path("run/late/step_3.msgpack").write_bytes(serialization.to_bytes(tree(3)))
    Path("run/notes.txt").write_text("lr 0.1")
    done = converted("run")
    outs = [str(item.out) for item in done.run.items]
    assert outs == ["out/checkpoint_0", "out/late/step_3", "out/step_1", "out/step_2"]
    assert set(states(done).values()) == {"typed"}
    for out, n in zip(outs, (0, 3, 1, 2), strict=True):
        check(out, n)
    assert not Path("out/notes.txt").exists()


def test_files_of_one_name_have_results_of_their_own():
    formats.write("step.npz", "npz", named(1))
    Path("run").mkdir()
    shutil.move("step.npz", "run/step.npz")
    formats.write("run/step.safetensors", "safetensors", named(2))
    converted("run")
    check("out/step-npz", 1)
    check("out/step-safetensors", 2)


def test_a_manager_of_orbax_keeps_its_other_items():
    options = ocp.CheckpointManagerOptions(best_fn=lambda metrics: metrics["loss"], best_mode="min")
    with ocp.CheckpointManager(Path("run").absolute(), options=options) as manager:
        for n in range(3):
            manager.save(n, args=ocp.args.StandardSave(tree(n)), metrics={"loss": abs(n - 1.0)})
    assert str(converted("run")).startswith("3 steps: 3 typed\n")
    for n in range(3):
        check(f"out/{n}/default", n)
        assert Path(f"run/{n}/metrics/metrics").samefile(f"out/{n}/metrics/metrics")
    with ocp.CheckpointManager(Path("out").absolute(), options=options) as manager:
        assert (manager.best_step(), manager.latest_step()) == (1, 2)
        assert manager.restore(2, args=StructRestore(schema="schemas/net")).step == 2
    assert states(converted("run")) == {"default": "skipped"}


def test_a_layout_names_what_the_schema_does_not():
    def old(n):
        return {
            "blocks": [{"weight": np.full((4, 3), n + i, "float32")} for i in range(2)],
            "count": n,
        }

    Path("run").mkdir()
    Path("run/a.msgpack").write_bytes(serialization.to_bytes(old(1)))
    s.export(old(2), "run/b")
    refused = converted("run")
    assert set(states(refused).values()) == {"failed"}
    assert "nothing was written" in str(refused) and not Path("out/a").exists()
    assert str(converted("run", layout="old")).startswith("2 steps: 2 typed\n")
    check("out/a", 1)
    check("out/b", 2)


def broken_run():
    s.export(tree(0), "run/0")
    s.export(tree(1), "run/1")
    Path("run/1/manifest.json").write_text("{")
    formats.write("run/2.npz", "npz", named(2))
    Path("run/3.npz").write_bytes(Path("run/2.npz").read_bytes()[:-40])
    s.export(tree(4) | {"extra": 1}, "run/4")
    Path("other.yaml").write_text(OTHER)
    s.convert("run/0", "run/5", schema="other.yaml")


def test_what_is_refused_does_not_stop_the_others():
    broken_run()
    report = []
    done = converted("run", report=report)
    expected = ["typed", "failed", "typed", "failed", "failed", "failed"]
    assert [item.state for item in done.run.items] == expected
    assert str(done).startswith("6 steps: 2 typed, 4 refused\n")
    check("out/0", 0)
    check("out/2", 2)
    errors = {
        Path(d.file).relative_to("run").parts[0]: d.code for d in report if d.severity == "error"
    }
    assert errors == {"1": "NQX001", "3.npz": "NQX408", "4": "NQX415", "5": "NQX404"}


def test_the_command_reports_each_step():
    broken_run()
    ran = invoke("convert", "run", "--out", "out", "--schema", "schemas/net")
    assert ran.exit_code == 1 and "6 steps: 2 typed, 4 refused\nwritten to out" in ran.stdout
    again = invoke("convert", "run", "--out", "out", "--schema", "schemas/net", "--format", "json")
    data = json.loads(again.stdout)
    assert again.exit_code == 1 and not data["ok"]
    assert data["steps"][0] == {"path": "run/0", "out": "out/0", "state": "skipped"}
    assert [step["state"] for step in data["steps"]].count("failed") == 4
    assert {d["file"] for d in data["diagnostics"]} >= {"run/3.npz", "run/4"}


def test_progress_counts_the_steps():
    for n in range(3):
        s.export(tree(n), f"run/{n}")
    told = []
    converted("run", progress=lambda *at: told.append(at))
    assert told == [(n, 3) for n in range(4)]


def test_a_call_that_was_killed_goes_on():
    Path("run").mkdir()
    for n in range(30):
        np.savez(f"run/{n}.npz", **named(n))
    code = (
        "import os, signal, neuralqx_struct as s\n"
        "tell = lambda done, total: done == 3 and os.kill(os.getpid(), signal.SIGKILL)\n"
        "s.convert('run', 'out', schema='schemas/net', progress=tell)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=False)
    there = {path.name for path in Path("out").iterdir() if path.name.isdecimal()}
    assert ran.returncode == -signal.SIGKILL and {"0", "1", "10"} <= there  # in the order of names
    before = {name: Path(f"out/{name}/manifest.json").stat().st_mtime_ns for name in there}
    Path("out/10/arrays.npz").write_bytes(b"")  # damage since then is not taken for a result
    done = converted("run")
    expected = dict.fromkeys((f"{name}.npz" for name in there), "skipped") | {"10.npz": "failed"}
    assert states(done) == dict.fromkeys((f"{n}.npz" for n in range(30)), "typed") | expected
    for name, written in before.items():
        assert Path(f"out/{name}/manifest.json").stat().st_mtime_ns == written
    assert {*states(converted("run", overwrite=True)).values()} == {"typed"}
    for n in range(30):
        check(f"out/{n}", n)


def test_a_full_disk_stops_it(monkeypatch):
    for n in range(30):
        s.export(tree(n), f"run/{n}")

    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    done = converted("run")
    states_of = [item.state for item in done.run.items]
    assert states_of.count("failed") == 1 and states_of.count("waiting") == 29 and done.run.stopped
    ran = invoke("convert", "run", "--out", "out", "--schema", "schemas/net")
    assert ran.exit_code == 2 and "30 steps: 1 refused, 29 not tried" in ran.stdout


def test_an_error_in_the_caller_ends_it():
    for n in range(30):
        s.export(tree(n), f"run/{n}")

    def tell(done, _):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        converted("run", progress=tell)
    assert {*states(converted("run")).values()} <= {"skipped", "typed"}


def test_what_is_there_and_is_something_else_stays():
    s.export(tree(0), "run/0")
    s.export({"a": 1}, "out/0")
    (found,) = converted("run").run.diagnostics
    assert found.code == "NQX431"
    assert s.load("out/0") == {"a": 1}


def test_a_step_of_several_trees_is_taken_whole_or_not_at_all():
    with ocp.CheckpointManager(Path("run").absolute()) as manager:
        args = {name: ocp.args.StandardSave(tree(1)) for name in ("net", "ema")}
        manager.save(0, args=ocp.args.Composite(**args))
        manager.save(1, args=ocp.args.Composite(**args | {"net": ocp.args.StandardSave({"a": 1})}))
    done = converted("run")
    assert [item.state for item in done.run.items] == ["typed", "typed", "failed", "waiting"]
    assert names("out") == ["0"]
    check("out/0/ema", 1)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, "NQX401"),
        ({"schema": "schemas/net", "out": "out.npz"}, "NQX614"),
        ({"schema": "schemas/net", "out": "out.zip"}, "NQX614"),
        ({"schema": "schemas/net", "out": "run/new"}, "NQX431"),
        ({"schema": "schemas/net", "out": "run"}, "NQX431"),
    ],
)
def test_calls_that_are_refused(options, code):
    s.export(tree(0), "run/0")
    out = options.pop("out", "out")
    with refused(SerializationError, code):
        s.convert("run", out, **options)
    assert names("run") == ["0"]


def test_values_need_a_layout():
    Path("run").mkdir()
    formats.write("run/0.npz", "npz", named(0))
    (found,) = converted("run", values={"n": 1}).run.diagnostics
    assert found.code == "NQX708"


def test_a_folder_of_one_model_is_no_run():
    formats.write("model", "safetensors", named(1), max_shard_size=50)
    assert converted("model", "a").run is None
    check("a", 1)
    Path("single").mkdir()
    formats.write("single/model.safetensors", "safetensors", named(2))
    assert converted("single", "b").run is None
    check("b", 2)


def test_names_that_go_on_from_others_need_a_layout():
    Path("run").mkdir()
    arrays = {"a": np.ones(1), "a.b": np.ones(1)}
    for n in range(2):
        formats.write(f"run/{n}.npz", "npz", arrays)
    found = converted("run").run.items[0].report[0]
    assert found.code == "NQX614" and "layout" in str(found.hint)


def test_a_name_of_thousands_of_parts_is_refused():
    np.savez("deep.npz", **{".".join("a" * 5000): np.ones(1)})
    with refused(SerializationError, "NQX005"):
        converted("deep.npz")


def test_bundles_of_the_schema_are_taken_as_they_are():
    s.export(tree(0), "plain/0")
    s.convert("plain/0", "run/0", schema="schemas/net")
    bundle.write("run/1.zip", bundle.read("run/0"))
    assert [*states(converted("run")).values()] == ["typed", "typed"]
    check("out/0", 0)
    check("out/1.zip", 0)


def old_names(arrays):
    """The same as the layout names it."""
    renamed = {
        name.replace("layers", "blocks").replace("kernel", "weight"): np.asarray(value).T
        for name, value in arrays.items()
        if name != "step"
    }
    return renamed | {"count": arrays[name] for name in arrays if name == "step"}


def write_msgpack(path, arrays):
    root = {}
    for name, value in arrays.items():
        *outer, last = name.split(".")
        inner = root
        for key in outer:
            inner = inner.setdefault(key, {})
        inner[last] = value
    path.write_bytes(serialization.to_bytes(root))


def write_plain(path, arrays):
    root = {"layers": [{"kernel": a} for name, a in sorted(arrays.items()) if name != "step"]}
    root |= {name: arrays[name] for name in arrays if name == "step"}
    s.export(root, path, metadata={"first": float(arrays["layers.0.kernel"][0, 0])})


FILES = {
    "npz": lambda path, arrays: np.savez(path, **arrays),
    "safetensors": lambda path, arrays: formats.write(path, "safetensors", arrays),
    "msgpack": write_msgpack,
}
#: What differs from step to step.
DIFFERENT = {
    "elements": named,
    "a value": lambda n: named(n) | {"step": n},
    "values that are equal": lambda n: named(0) | {"step": [1, True, 1.0][n % 3]},
    "a dtype": lambda n: named(n) | {"step": np.array(n, ["int32", "int64", "float32"][n % 3])},
    "an order": lambda n: dict(sorted(named(n).items(), reverse=n % 2 == 1)),
    "the number of layers": lambda n: (
        named(n) if n % 2 else {"step": n, **dict([*named(n).items()][:1])}
    ),
    "a shape": lambda n: named(n) | {"layers.1.kernel": np.ones((3, 4 + n % 2), "float32")},
}


@pytest.mark.parametrize("different", DIFFERENT)
@pytest.mark.parametrize(
    ("kind", "layout"), [("plain", None), *itertools.product(FILES, [None, "old"])]
)
def test_a_step_is_what_its_file_alone_becomes(kind, layout, different):
    """Byte for byte, with the same report: what steps have in common is made once, and nothing else."""
    Path("run").mkdir()
    for n in range(7):
        arrays = DIFFERENT[different](n)
        write = FILES.get(kind, write_plain)
        write(Path(f"run/{n}.{kind}"), old_names(arrays) if layout else arrays)
    done = converted("run", layout=layout)
    for item in done.run.items:
        report, alone = [], Path("alone", item.out.name)
        try:
            converted(item.path, alone, layout=layout, report=report)
        except SerializationError as error:
            report, alone = error.diagnostics, None
        found = {(d.code, d.path, d.message) for d in item.report}
        assert found == {(d.code, d.path, d.message) for d in report}
        assert (item.state == "failed") == (alone is None) == (not item.out.exists())
        for file in ("manifest.json", "arrays.npz") if alone else ():
            assert (alone / file).read_bytes() == (item.out / file).read_bytes()


def test_values_beside_a_file_are_those_of_its_own_folder():
    layout = (
        LAYOUT.replace("step: count", 'step: ""') + "values_from: {config.json: {step: epoch}}\n"
    )
    for n in range(3):
        Path(f"run/{n}").mkdir(parents=True)
        Path(f"run/{n}/config.json").write_text(json.dumps({"epoch": n}))
        formats.write(
            f"run/{n}/net.npz",
            "npz",
            {name: array for name, array in old_names(named(n)).items() if name != "count"},
        )
    assert {*states(converted("run", layout=layout)).values()} == {"typed"}
    for n in range(3):
        check(f"out/{n}/net", n)


def test_the_folder_of_a_run_is_looked_over_once(monkeypatch):
    """However many steps it has, or the time of a step would grow with their number; and its names are flushed once."""
    Path("run").mkdir()
    for n in range(6):
        np.savez(f"run/{n}.npz", **named(n))
    Path("out/.3.tmp-0123456789ab").mkdir(parents=True)
    (looks, listed), (flushes, flush) = ([], os.listdir), ([], os.fsync)
    there = Path("out").stat().st_ino

    def look(place="."):
        looks.extend([1] if not isinstance(place, int) and Path(place) == Path("out") else [])
        return listed(place)

    def flushed(descriptor):
        flushes.extend([len(listed("out"))] if os.fstat(descriptor).st_ino == there else [])
        flush(descriptor)

    monkeypatch.setattr(os, "listdir", look)
    monkeypatch.setattr(os, "fsync", flushed)
    converted("run")
    assert len(looks) == 1 and flushes == [6]
    assert names("out") == [f"{n}" for n in range(6)]
