"""The steps of a run: retention, best and latest, readers beside it, two writers, and crashes at every call."""

import fcntl
import importlib
import inspect
import json
import logging
import math
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import neuralqx_struct as s
from neuralqx_struct.bundle import BundleBusyError, BundleMissingError, roots
from neuralqx_struct.bundle.roots import metrics_of_plain, metrics_to_plain
from neuralqx_struct.manifest import Limits
from neuralqx_struct.places import atomic, locks
from neuralqx_struct.places.urls import RemotePath
from neuralqx_struct.schema.series import series_of
from tests.builders import doc, every, payload, refused


def fill(series, steps, **metrics):
    for n, step in enumerate(steps):
        series.save(step, {"w": np.full(4, step)}, {k: values[n] for k, values in metrics.items()})
    return series


def names(root):
    return sorted(path.name for path in root.iterdir())


# -- retention


@every(
    ("options", "energies", "kept"),
    [
        ({}, range(6), [0, 10, 20, 30, 40, 50]),
        ({"keep_last": 2}, range(6), [40, 50]),
        ({"keep_last": 2, "keep_best": ("energy", "min")}, [3, 1, 2, 5, 4, 6], [10, 40, 50]),
        ({"keep_last": 2, "keep_best": ("energy", "max")}, [3, 1, 2, 5, 4, 6], [40, 50]),
        ({"keep_last": 1, "keep_best": ("energy", "max")}, [3, 9, math.nan, 5, 4, 6], [10, 50]),
        ({"keep_last": 1, "keep_best": ("other", "max")}, range(6), [50]),
        ({"keep_last": 1, "keep_every": 20}, range(6), [0, 20, 40, 50]),
        ({"keep_best": ("energy", "min"), "keep_every": 20}, range(6), [0, 10, 20, 30, 40, 50]),
    ],
)
def test_which_steps_are_kept(tmp_path, options, energies, kept):
    series = fill(s.Series(tmp_path, **options), range(0, 60, 10), energy=energies)
    assert series.steps() == kept and names(tmp_path) == sorted(map(str, kept))
    assert series.latest() == 50 and s.Series(tmp_path).steps() == kept


def test_the_best_step_changes(tmp_path):
    series = s.Series(tmp_path, keep_last=1, keep_best=("energy", "min"))
    for step, energy, best in [(1, 5, 1), (2, 7, 1), (3, 4, 3), (4, 4, 4), (5, math.inf, 4)]:
        series.save(step, step, {"energy": energy})
        assert series.best() == best and series.load("best") == best
    assert series.steps() == [4, 5]


def test_a_step_before_the_latest_is_kept_when_it_is_saved(tmp_path):
    series = fill(s.Series(tmp_path, keep_last=1), [30])
    fill(series, [10])
    assert series.steps() == [10, 30] and series.latest() == 30
    fill(series, [20])
    assert series.steps() == [20, 30]
    with refused(FileExistsError, "NQX431"):
        series.save(30, "new")
    series.save(30, "new", overwrite=True)
    assert series.load() == "new" and series.steps() == [30]


def test_other_things_in_the_folder_are_left_alone(tmp_path):
    series = s.Series(tmp_path / "run", keep_last=1)
    fill(series, [1])
    for name in ("007", "+2", "1.5", "logs", ".cache", "²"):
        (tmp_path / "run" / name).mkdir()
    (tmp_path / "run" / "3").write_text("no folder")
    before = set(names(tmp_path / "run"))
    fill(series, [4])
    assert series.steps() == [4] and set(names(tmp_path / "run")) == before - {"1"} | {"4"}


def test_limits_of_a_series_hold_for_saves_loads_and_its_steps(tmp_path):
    small = s.Series(tmp_path, limits=Limits(nodes=5))
    with refused(s.SerializationError, "NQX005", "$.manifest", 5):
        small.save(1, list(range(9)))
    large = s.Series(tmp_path, keep_last=1, keep_best=("energy", "min"))
    for step in (1, 2, 3):
        large.save(step, list(range(9)), {"energy": step})
    assert large.steps() == [1, 3] and small.steps() == []
    with refused(s.SerializationError, "NQX005", "$.manifest", 5):
        small.load(3)
    assert small.load(3, limits=Limits()) == list(range(9))
    small.save(4, list(range(9)), limits=Limits())
    assert large.steps() == [1, 3, 4]


# -- reading


def test_a_series_without_steps(tmp_path):
    for root in (tmp_path, tmp_path / "no"):
        series = s.Series(root, keep_best=("energy", "min"))
        assert (series.steps(), series.latest(), series.best()) == ([], None, None)
        for step in ("latest", "best", 3):
            with refused(BundleMissingError, "NQX401") as caught:
                series.load(step)
            assert isinstance(caught.value, FileNotFoundError)


def test_a_missing_step_lists_the_others(tmp_path):
    series = fill(s.Series(tmp_path), range(1, 8))
    with refused(BundleMissingError, "NQX401", 17, "1, 2, 3, ..., 6, 7"):
        series.load(17)


def test_options_of_loads_and_exports_are_passed_on(tmp_path):
    class State(s.Struct):
        w: jax.Array

    series = s.Series(tmp_path)
    path = series.save(
        np.int64(1),
        State(w=jnp.ones(3)),
        {"loss": jnp.float32(0.5)},
        store="safetensors",
        metadata={"run": "a"},
    )
    assert path == tmp_path / "1" and (path / "arrays.safetensors").is_file()
    assert s.inspect(path).metadata == {"run": "a", "metrics": {"loss": 0.5}}
    assert type(series.load(load_cls=State)) is State
    assert series.load(1, as_numpy=True, load_cls=State).w.tolist() == [1, 1, 1]
    assert s.inspect(series.save(2, 1)).metadata == {}


@pytest.mark.parametrize("damage", ["no manifest", "cut manifest", "no arrays", "cut arrays"])
def test_an_incomplete_step_is_never_the_latest(tmp_path, damage):
    series = fill(s.Series(tmp_path, keep_last=3), [10])
    step = series.save(20, {"w": np.arange(1000)})
    manifest, arrays = step / "manifest.json", step / "arrays.npz"
    if damage == "no manifest":
        manifest.unlink()
    elif damage == "cut manifest":
        manifest.write_bytes(manifest.read_bytes()[:-20])
    elif damage == "no arrays":
        arrays.unlink()
    else:
        arrays.write_bytes(arrays.read_bytes()[:3000])
    for found in (s.Series(tmp_path), series):
        if found is series and damage in {"no arrays", "cut arrays"}:
            continue  # it has written this step
        assert found.steps() == [10] and found.latest() == 10
        assert found.load()["w"].tolist() == [10] * 4
    with pytest.raises(s.SerializationError):
        series.load(20)


def test_a_step_between_two_renames_is_complete(tmp_path):
    fill(s.Series(tmp_path), [10, 20])
    (tmp_path / "20").rename(tmp_path / ".20.old-0123456789ab")
    series = s.Series(tmp_path, keep_last=1)
    assert series.steps() == [10, 20] and series.load()["w"][0] == 20
    fill(series, [30])
    assert names(tmp_path) == ["30"]


def test_a_folder_that_cannot_be_read(tmp_path):
    (tmp_path / "file").write_text("")
    with refused(s.SerializationError, "NQX401", "Not a directory"):
        s.Series(tmp_path / "file").steps()
    with refused(s.SerializationError, "NQX406"):
        s.Series(tmp_path / "file").save(1, 1)


def test_readers_of_one_bundle_list_the_steps(tmp_path):
    root = tmp_path / "run"
    fill(s.Series(root), range(0, 80, 10))
    for read in (s.load, s.inspect, lambda path: s.migrate(path, tmp_path / "out")):
        with refused(s.SerializationError, "NQX401", "0, 10, 20, ..., 60, 70") as caught:
            read(root)
        hint = caught.value.diagnostics[0].hint
        assert str(root / "70") in hint and "migrate_all" in hint
        call = f'neuralqx_struct.Series({str(root)!r}).load("latest")'
        assert call in hint and eval(call, {"neuralqx_struct": s})["w"][0] == 70
    (found,) = s.verify(root)
    assert "60, 70" in found.message


# -- arguments


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("keep_last", 0),
        ("keep_last", True),
        ("keep_every", 2.5),
        ("keep_every", timedelta(0)),
        ("save_every", 0),
        ("save_every", None),
        ("keep_best", "energy"),
        ("keep_best", ("energy", "least")),
        ("keep_best", ("energy", [])),
    ],
)
def test_arguments_without_a_meaning(tmp_path, option, value):
    with refused(ValueError, f"{option}=", repr(value)):
        s.Series(tmp_path, **{option: value})


@pytest.mark.parametrize("step", [-1, 1.0, "1", True, None, 10**18])
def test_steps_that_are_no_numbers(tmp_path, step):
    series = s.Series(tmp_path)
    with refused(ValueError, "step=", repr(step)):
        series.save(step, 1)
    with refused(ValueError, "step=", repr(step)):
        series.load(step)
    assert names(tmp_path) == []


def test_best_needs_a_metric(tmp_path):
    with refused(ValueError, "keep_best"):
        s.Series(tmp_path).best()


def test_metrics_that_are_no_real_numbers(tmp_path):
    metrics = {"a": 1j, "b": "1", "c": np.ones(1), "d": np.complex64(1), 3: 1.0, "e": None, "f": 1}
    with refused(ValueError, "metrics=", "'a'", "'b'", "'c'", "'d'", "3", "'e'") as caught:
        s.Series(tmp_path).save(1, 1, metrics)
    assert "'f'" not in str(caught.value) and names(tmp_path) == []
    with refused(TypeError, "metrics=", "[1.0]"):
        s.Series(tmp_path).save(1, 1, [1.0])
    with refused(TypeError, "metadata=", "[1.0]"):
        s.Series(tmp_path).save(1, 1, metadata=[1.0])
    with refused(ValueError, "metadata=", "metrics="):
        s.Series(tmp_path).save(1, 1, metadata={"metrics": {}})


@given(st.dictionaries(st.text(max_size=5), st.floats() | st.integers(-(2**70), 2**70), max_size=4))
@settings(max_examples=25)
def test_metrics_come_back_as_they_were(metrics):
    text = json.dumps(metrics_to_plain(metrics), allow_nan=False)
    found = metrics_of_plain(json.loads(text))
    assert repr(found) == repr({name: float(value) for name, value in metrics.items()})


@pytest.mark.parametrize(
    "plain", [None, 5, [1], {"a": "1"}, {"a": True}, {"a": [1]}, {"a": 10**400}]
)
def test_metrics_of_other_programs_are_left_out(tmp_path, plain):
    assert metrics_of_plain(plain) == {}
    s.export(1, tmp_path / "3", metadata={"metrics": plain})
    series = s.Series(tmp_path, keep_best=("a", "min"))
    assert series.steps() == [3] and series.best() is None


def test_how_it_is_shown(tmp_path):
    series = s.Series(tmp_path, keep_last=3, keep_best=("<b>", "min"))
    assert eval(repr(series), {"Series": s.Series}).steps() == []
    assert repr(s.Series("run")) == "Series('run')"
    assert repr(s.Series("run", save_every=5)) == "Series('run', save_every=5)"
    assert ">step</th>" in series._repr_html_()
    series.save(1, 1, {"<b>": 0.25})
    series.save(2, 1)
    page = series._repr_html_()
    assert "&lt;b&gt;</th>" in page and "<b>" not in page
    assert "<td>1</td><td>0.25</td><td>best</td>" in page
    assert "<td>2</td><td></td><td>latest</td>" in page


# -- when to save


def saved(series, steps, **options):
    """The steps of a loop that the series saved."""
    found = []
    for step in steps:
        if series.should_save(step, **options):
            series.save(step, step)
            found.append(step)
    assert set(series.steps()) >= set(found)
    return found


def test_steps_are_saved_by_their_numbers_and_the_first_and_the_last_too(tmp_path):
    series = s.Series(tmp_path, save_every=5)
    assert saved(series, range(1, 13), last=12) == [1, 5, 10, 12]
    assert not series.should_save(12, last=12)  # is saved
    assert saved(s.Series(tmp_path, save_every=5), range(13, 22)) == [15, 20]
    assert saved(s.Series(tmp_path), [30, 31]) == [30, 31]
    assert series.should_save(np.int64(40)) is True
    with refused(ValueError, "step=", "-1"):
        series.should_save(-1)


def test_the_first_step_is_asked_for_until_it_is_saved(tmp_path):
    series = s.Series(tmp_path, save_every=100)
    assert series.should_save(1) and series.should_save(2)
    pending = series.save(2, 2, asynchronous=True)
    assert not series.should_save(3)
    pending.wait()


def test_steps_are_saved_by_time(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("neuralqx_struct.series.time", SimpleNamespace(monotonic=lambda: now[0]))
    series, found = s.Series(tmp_path, save_every=timedelta(minutes=10)), []
    for step, minutes in enumerate([1, 2, 9, 11, 12, 30, 31, 39.9, 40], start=1):
        now[0] = 60.0 * minutes
        found += saved(series, [step])
    assert found == [1, 4, 6, 9]
    again = s.Series(tmp_path, save_every=timedelta(minutes=10))
    now[0] += 599
    assert not again.should_save(20) and again.should_save(20, last=20)


# -- one step of each hour


@pytest.fixture
def clock(monkeypatch):
    """The hours of the clock that saves read."""
    hours = [0.0]
    start = datetime(2030, 1, 1, tzinfo=UTC)
    now = lambda zone: (start + timedelta(hours=hours[0])).astimezone(zone)  # noqa: E731
    monkeypatch.setattr("neuralqx_struct.series.datetime", SimpleNamespace(now=now))
    return hours


@given(
    st.lists(st.integers(1, 200), min_size=1, max_size=12),
    st.sampled_from([timedelta(minutes=30), timedelta(hours=1), timedelta(days=1)]),
    st.integers(1, 3),
)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_first_step_of_each_hour_is_kept(clock, minutes, every, last):
    with tempfile.TemporaryDirectory() as root:
        series = s.Series(root, keep_last=last, keep_every=every)
        clock[0], periods = 0.0, {}
        for step, pause in enumerate(minutes):
            clock[0] += pause / 60
            periods.setdefault(clock[0] * 3600 // every.total_seconds(), step)
            series.save(step, step)
            latest = range(max(0, step - last + 1), step + 1)
            assert series.steps() == sorted({*periods.values(), *latest})
        assert s.Series(root, keep_last=last, keep_every=every).steps() == series.steps()


def test_steps_of_unknown_time_are_kept(tmp_path, clock):
    fill(s.Series(tmp_path), [1, 2])
    for step, record in ((3, 5), (4, {"saved": "soon"}), (5, {"saved": "2030-01-01"})):
        s.export(step, tmp_path / str(step), metadata={"series": record})
    hourly = s.Series(tmp_path, keep_last=1, keep_every=timedelta(hours=1))
    for step in (6, 7, 8):
        clock[0] += 0.1
        hourly.save(step, step)
    assert hourly.steps() == [1, 2, 3, 4, 5, 6, 8]
    fill(s.Series(tmp_path, keep_last=1), [9])  # a policy without time
    assert hourly.steps() == [9] and s.inspect(tmp_path / "9").metadata == {}


# -- data loaders


class Shuffled:
    """Numbers in a random order that goes on from a state."""

    def __init__(self):
        self.generator = np.random.Generator(np.random.MT19937(5))
        self.seen = 0

    def __next__(self):
        self.seen += 1
        return self.generator.integers(10**6)

    def get_state(self):
        return {"seen": self.seen, "generator": self.generator.bit_generator.state}

    def set_state(self, state):
        self.seen, self.generator.bit_generator.state = state["seen"], state["generator"]


class Held:
    """A loader whose state is any value."""

    def __init__(self, state=None):
        self.state = state

    def get_state(self):
        return self.state

    def set_state(self, state):
        self.state = state


STATES = [
    b"\x00\xff",
    '{"last_seen_indices": {"0": 7}}',
    "",
    0,
    {},
    {"shard": (1, 2), 3: [None, True, math.inf], "buffer": b"", "big": 2**90},
]


@pytest.mark.parametrize("root", ["disk", "memory://loaders/run"])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_data_loader_goes_on_from_a_step(tmp_path, root, asynchronous):
    pytest.importorskip("fsspec")
    root = tmp_path if root == "disk" else f"{root}{asynchronous}"
    series, loader = s.Series(root, keep_last=3), Shuffled()
    for step in range(1, 6):
        next(loader)
        written = series.save(step, {"w": np.ones(3)}, data=loader, asynchronous=asynchronous)
    ahead = [next(loader) for _ in range(5)]
    if asynchronous:
        written.wait()
    again = Shuffled()
    assert s.Series(root).load("latest", data=again)["w"].tolist() == [1, 1, 1]
    assert again.seen == 5 and [next(again) for _ in range(5)] == ahead
    s.Series(root).load(3, data=again)
    assert again.seen == 3 and series.steps() == [3, 4, 5]


@every("state", STATES)
def test_states_come_back_as_they_were(tmp_path, state):
    series, again = s.Series(tempfile.mkdtemp(dir=tmp_path), keep_best=("a", "min")), Held()
    path = series.save(1, {"w": np.ones(3)}, {"a": 1.0}, data=Held(state), metadata={"run": 1})
    assert series.load("best", data=again) is not None
    assert again.state == state and type(again.state) is type(state)
    assert s.verify(path) == s.validate(path) == []
    assert s.inspect(path).metadata["run"] == 1


def test_a_state_goes_along_with_migrations_and_conversions(tmp_path, clock):
    first = doc({"w": "float32[n]", "a": "int"})
    second = doc({"w": "float32[n]", "b": "int"}, 2, [s.steps.rename(field="a", to="b")])
    hourly = s.Series(tmp_path / "plain", keep_last=1, keep_every=timedelta(hours=1))
    hourly.save(1, {"w": np.ones(3, "float32"), "a": 7}, data=Held(b"x"))
    facts = s.inspect(tmp_path / "plain/1").metadata
    held = payload(first, {"w": np.ones(3, "float32"), "a": 7}, [first, second])
    held.document["metadata"] = facts
    s.bundle.write(tmp_path / "old/1", held)
    assert not s.migrate_all(tmp_path / "old", tmp_path / "new", to=2).failed
    s.convert(tmp_path / "new/1", tmp_path / "other/1", store="safetensors")
    s.convert(tmp_path / "plain", tmp_path / "typed", schema=series_of([first, second]))
    for name in ("plain", "old", "new", "other", "typed"):
        series, again = s.Series(tmp_path / name), Held()
        series.load(1, data=again, raw=True)
        assert again.state == b"x", name
        assert series._complete()[1].saved == hourly._complete()[1].saved is not None


def test_a_step_without_a_state_leaves_the_loader_as_it_is(tmp_path):
    series, loader = s.Series(tmp_path), Held("old")
    series.save(1, 1)
    series.save(2, 2, data=Held("new"))
    with refused(s.SerializationError, "NQX414") as caught:
        series.load(1, data=loader)
    assert caught.value.diagnostics[0].path == "metadata.series.data"
    with pytest.raises(s.SerializationError):
        series.load(2, load_cls=Held, data=loader)
    with pytest.raises(BundleMissingError):
        series.load(3, data=loader)
    assert loader.state == "old" and series.load(2) == 2


def test_state_and_object_are_of_one_save(tmp_path, monkeypatch):
    series, loader = s.Series(tmp_path), Held()
    series.save(1, "old", data=Held("old"))
    original, loads = s.series.load, []

    def load(*arguments, **options):
        if not loads:
            series.save(1, "new", data=Held("new"), overwrite=True)
        loads.append(1)
        return original(*arguments, **options)

    monkeypatch.setattr(s.series, "load", load)
    assert (s.Series(tmp_path).load(1, data=loader), loader.state) == ("new", "new")
    assert len(loads) == 2


@every("damage", [5, {}, {"arrays": {}}, {"arrays": {}, "array_data": {"w": "%"}}, [1]])
def test_a_state_that_was_edited_is_refused(tmp_path, damage):
    path = Path(tempfile.mkdtemp(dir=tmp_path)) / "1"
    s.export(1, path, metadata={"series": {"data": [damage]}})
    loader = Held("old")
    with pytest.raises(s.SerializationError) as caught:
        s.Series(path.parent).load(1, data=loader)
    assert caught.value.diagnostics[0].file == str(path) and loader.state == "old"


def test_objects_that_are_no_data_loaders(tmp_path):
    series = s.Series(tmp_path)
    with refused(TypeError, "data=", "get_state"):
        series.save(1, 1, data=iter([]))
    with refused(s.SerializationError, "NQX430"):
        series.save(1, 1, data=Held(object()))
    assert names(tmp_path) == []
    series.save(1, 1, data=Held(1))
    with refused(TypeError, "data=", "set_state"):
        series.load(1, data=iter([]))
    with refused(ValueError, "metadata=", "series"):
        series.save(2, 2, metadata={"series": 1})


# -- preemption


@pytest.fixture
def terminated():
    """Sends SIGTERM to this process; the handler is set back after the test."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield lambda: os.kill(os.getpid(), signal.SIGTERM)
    signal.signal(signal.SIGTERM, before)


def test_a_signal_asks_for_one_last_step(tmp_path, terminated):
    series = s.Series(tmp_path, save_every=10, preemption=True)
    other = s.Series(tmp_path / "other", save_every=10, preemption=True)
    assert saved(series, range(1, 5)) == [1] and not series.preempted
    terminated()
    assert not series.preempted  # until it has been asked, so that no step ends unsaved
    assert series.should_save(5) and series.preempted
    series.save(5, 5)
    assert not series.should_save(5) and series.preempted
    assert other.should_save(7) and other.preempted
    assert not s.Series(tmp_path, save_every=10).should_save(7)


def test_a_handler_that_was_there_before_is_called_too(tmp_path, terminated):
    calls = []
    signal.signal(signal.SIGTERM, lambda *given: calls.append(given[0]))
    series = [s.Series(tmp_path, save_every=10, preemption=True) for _ in range(2)]
    terminated()
    assert calls == [signal.SIGTERM] and all(each.should_save(1) for each in series)


def test_a_series_sets_no_handler_unless_it_is_asked(tmp_path, terminated):
    s.Series(tmp_path).save(1, 1)
    with refused(ValueError, "keep_last=", "0"):
        s.Series(tmp_path, keep_last=0, preemption=True)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_handlers_are_set_in_the_main_thread_alone(tmp_path, terminated):
    found = []

    def work():
        with refused(ValueError, "preemption=") as caught:
            s.Series(tmp_path, preemption=True)
        found.append(caught.value)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


PREEMPTED = f"""
import sys
import numpy as np
import neuralqx_struct as s
{inspect.getsource(Shuffled)}
series = s.Series(sys.argv[1], save_every=10**6, keep_last=2, preemption=True)
loader, step, total = Shuffled(), 0, 0.0
if series.latest() is not None:
    step, total = series.load("latest", data=loader)
while step < 2_000:
    step, total = step + 1, total + np.sin(next(loader))
    if step == int(sys.argv[2]):
        print("ready", flush=True)
        sys.stdin.readline()
    if series.should_save(step, last=2_000):
        series.save(step, (step, total), data=loader, asynchronous=True)
    if series.preempted:
        break
"""


def test_a_run_that_is_preempted_goes_on_bit_by_bit(tmp_path, root):
    environment = {**os.environ, "PYTHONPATH": str(root)}

    def run(folder, stop):
        command = [sys.executable, "-c", PREEMPTED, str(tmp_path / folder), str(stop)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, env=environment, **pipes) as process:
            if stop:
                assert process.stdout.readline() == "ready\n"
                process.send_signal(signal.SIGTERM)
                time.sleep(0.1)
            process.communicate("go\n")
        assert process.returncode == 0
        return s.Series(tmp_path / folder)

    stopped = run("stopped", 700)
    assert stopped.latest() < 2_000
    assert stopped.latest() >= 700
    assert run("stopped", 0).load() == run("whole", 0).load()


# -- saves in the background


@pytest.fixture
def held_back(monkeypatch):
    """An event before which no flush to the disk returns."""
    opened, real = threading.Event(), os.fsync

    def fsync(descriptor):
        assert opened.wait(60)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    yield opened
    opened.set()


def test_saves_in_the_background(tmp_path, held_back):
    series = s.Series(tmp_path, keep_last=1)
    state = {"w": np.zeros(3)}
    pending = series.save(1, state, asynchronous=True)
    state["w"][:] = 7
    assert series.steps() == [] and series.latest() is None
    threading.Timer(0.05, held_back.set).start()
    second = series.save(2, state, asynchronous=True)  # waits for the first
    assert pending.done and pending.wait() == tmp_path / "1"
    second.wait()
    assert series.steps() == [2] and series.load()["w"].tolist() == [7, 7, 7]


def test_a_failed_save_is_raised_by_the_next(tmp_path, monkeypatch):
    series = fill(s.Series(tmp_path, keep_last=1), [1])

    def full(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        series.save(2, 2, asynchronous=True).settle()
    with refused(s.SerializationError, "NQX406", "No space left"):
        series.save(3, 3)
    assert series.steps() == [1] and names(tmp_path) == ["1"]
    fill(series, [3])
    assert series.steps() == [3]


# -- readers and other writers


@pytest.mark.parametrize("store", ["npz", "safetensors"])
def test_retention_leaves_a_reader_its_data(tmp_path, store):
    series = s.Series(tmp_path, keep_last=1)
    series.save(1, {"w": np.arange(1 << 16)}, store=store)
    held = series.load(1, verify=False)
    with s.bundle.opened(tmp_path / "1") as reader:
        fill(series, [2])
        assert names(tmp_path) == ["2"]
        assert reader.payload().arrays["w"][-1] == 65535
    assert held["w"][-1] == 65535


@pytest.mark.filterwarnings("ignore::UserWarning:orbax", "ignore::DeprecationWarning")
def test_a_folder_that_a_reader_has_locked_stays_until_it_is_free(tmp_path):
    series = s.Series(tmp_path, keep_last=1)
    series.save(1, {"w": np.arange(64)}, store="orbax")
    with s.bundle.opened(tmp_path / "1") as reader:
        held = reader.payload()
    fill(series, [2])
    assert series.steps() == [2] and len(names(tmp_path)) == 2
    assert held.arrays["w"][-1] == 63
    del held, reader
    fill(series, [3])
    assert names(tmp_path) == ["3"]


@pytest.mark.parametrize("store", ["npz", "orbax"])
@pytest.mark.filterwarnings("ignore::UserWarning:orbax", "ignore::DeprecationWarning")
def test_a_step_that_is_removed_while_it_is_opened(tmp_path, monkeypatch, store):
    """The reader of a number has one clear error; the reader of the latest goes on to the next."""
    series = s.Series(tmp_path, keep_last=1)
    original = s.bundle.reading.OpenBundle._by_file

    def removed(self):
        if self.path == tmp_path / "1" and not (tmp_path / "2").exists():
            fill(series, [2])
        return original(self)

    for step in (1, "latest"):
        shutil.rmtree(tmp_path / "2", ignore_errors=True)
        series.save(1, {"w": np.arange(64)}, store=store)
        reader = s.Series(tmp_path)
        assert reader.latest() == 1
        with monkeypatch.context() as patched:
            patched.setattr(s.bundle.reading.OpenBundle, "_by_file", removed)
            if step == 1:
                with refused(BundleMissingError, "NQX401", "2"):
                    reader.load(step)
            else:
                assert reader.load(step)["w"][0] == 2
    assert names(tmp_path) == ["2"]


def test_steps_that_cannot_be_removed_are_logged(tmp_path, monkeypatch, caplog):
    series = fill(s.Series(tmp_path, keep_last=1), [1])

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, "neuralqx_struct"):
        patched.setattr(Path, "rename", refuse)
        patched.setattr(atomic, "_CALLS", atomic._CALLS)
        fill(series, [2])
    assert f"{tmp_path / '1'}: expected to remove it, got: Permission denied" in caplog.text
    assert series.steps() == [1, 2]
    fill(series, [3])
    assert series.steps() == [3]


def test_another_writer_waits(tmp_path):
    fill(s.Series(tmp_path), [1])
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    writer = threading.Thread(target=fill, args=(s.Series(tmp_path, keep_last=1), [2]))
    writer.start()
    time.sleep(0.1)
    assert writer.is_alive() and s.Series(tmp_path).steps() == [1]
    os.close(descriptor)
    writer.join(60)
    assert s.Series(tmp_path).steps() == [2]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_step_that_is_a_link_is_not_written_through(tmp_path, overwrite):
    elsewhere = s.export("precious", tmp_path / "best")
    run = s.Series(tmp_path / "run", keep_last=1)
    run.save(1, 1)
    run.save(2, 2)
    (run.root / "5").symlink_to(elsewhere)
    with refused(FileExistsError, "NQX431"):
        run.save(5, 5, overwrite=overwrite)
    assert run.steps() == [2, 5] and run.load(5) == s.load(elsewhere) == "precious"
    run.save(7, 7)
    assert names(run.root) == ["7"] and s.load(elsewhere) == "precious"


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("another", [False, True])
def test_a_save_inside_a_save_does_not_wait(tmp_path, asynchronous, another):
    """As in the handler of a signal, which may come at any place of a save."""
    run, waiting, begun = s.Series(tmp_path, keep_last=9), [2, 3], []

    def progress(*_):
        while waiting:
            step = waiting.pop(0)
            inner = s.Series(tmp_path) if another else run
            begun.append(inner.save(step, step, asynchronous=step == 3))

    written = run.save(1, {"w": np.ones(3)}, progress=progress, asynchronous=asynchronous)
    if asynchronous:
        written.wait()
    begun[1].wait()
    run.save(4, 4, asynchronous=True).wait()
    assert run.steps() == [1, 2, 3, 4] and run.load(3) == 3
    assert names(tmp_path) == ["1", "2", "3", "4"]


def test_a_save_of_the_step_that_is_being_saved(tmp_path):
    run, waiting = s.Series(tmp_path), [1]

    def progress(*_):
        if waiting:
            run.save(waiting.pop(), "inner", overwrite=True)

    with refused(FileExistsError, "NQX431"):
        run.save(1, {"w": np.ones(3)}, progress=progress)
    assert run.load(1) == "inner" and names(tmp_path) == ["1"]
    waiting.append(1)
    run.save(1, {"w": np.ones(3)}, progress=progress, overwrite=True)
    assert run.load(1)["w"].tolist() == [1, 1, 1] and names(tmp_path) == ["1"]


def test_a_save_in_the_background_cannot_wait_for_itself(tmp_path):
    run, found = s.Series(tmp_path), []

    def progress(*_):
        while not found:
            time.sleep(0.001)
        with refused(s.SerializationError, "NQX406"):
            found[0].wait()

    found.append(run.save(1, {"w": np.ones(3)}, progress=progress, asynchronous=True))
    assert found[0].wait() == tmp_path / "1"


@pytest.mark.parametrize("tries", [6, pytest.param(100, marks=pytest.mark.slow)])
def test_a_handler_of_a_signal_saves_at_any_moment(tmp_path, root, tries):
    program = [sys.executable, str(root / "tests/programs/signalled_saver.py"), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    ended = subprocess.run(
        [*program, str(tries)], env=environment, capture_output=True, text=True, timeout=600
    )
    assert (ended.stdout, ended.stderr) == (f"{tries}\n", "")


HOLDER = """
import os, signal, sys, time
import numpy as np
import neuralqx_struct as s

def stop(*_):
    if sys.argv[2] == "fork" and os.fork():
        os.kill(os.getpid(), signal.SIGKILL)
    print(os.getpid(), flush=True)
    time.sleep(600)

s.Series(sys.argv[1]).save(1, {"w": np.ones(3)}, progress=stop, asynchronous=sys.argv[2] == "fork")
"""


def holder(folder, root, how):
    """A program that is in the middle of a save."""
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-W", "ignore", "-c", HOLDER, str(folder), how]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_a_wait_for_another_process_names_it_and_ends(tmp_path, root, monkeypatch, caplog):
    monkeypatch.setattr(locks, "_SAID_AFTER", 0.1)
    with holder(tmp_path, root, "stop") as process:
        try:
            assert int(process.stdout.readline()) == process.pid
            os.kill(process.pid, signal.SIGSTOP)
            with refused(TimeoutError, "NQX406") as info:
                s.Series(tmp_path).save(2, 2, timeout=0.3)
            assert isinstance(info.value, BundleBusyError)
            assert (info.value.process, info.value.host) == (process.pid, socket.gethostname())
            assert [str(process.pid) in line for line in caplog.messages] == [True]
            with pytest.raises(TimeoutError):
                s.Series(tmp_path, timeout=0).save(2, 2, asynchronous=True)
            assert s.Series(tmp_path).steps() == []
        finally:
            process.kill()
    s.Series(tmp_path).save(2, 2, timeout=60)
    assert names(tmp_path) == ["2"]


def test_a_forked_child_does_not_keep_the_turn(tmp_path, root):
    with holder(tmp_path, root, "fork") as process:
        child = int(process.stdout.readline())
        try:
            assert process.wait(60) == -signal.SIGKILL
            s.Series(tmp_path).save(2, 2, timeout=10)
            assert names(tmp_path) == ["2"]
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_forked_child_does_not_wait_for_the_threads_of_its_parent(tmp_path):
    held = threading.Event()
    pending = s.Series(tmp_path).save(
        1, {"w": np.ones(3)}, progress=lambda *_: held.wait(60), asynchronous=True
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX, and newer releases of Python, warn of forks
        child = os.fork()
    if not child:
        code = 1
        try:
            assert pending.done
            with refused(s.SerializationError, "NQX406"):
                pending.wait()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    held.set()
    assert pending.wait() == tmp_path / "1"


@pytest.mark.parametrize("missing", ["locks", "module"])
def test_a_system_without_locks(tmp_path, monkeypatch, missing):
    def no_locks(*_):
        raise OSError(37, "No locks available")

    if missing == "locks":
        monkeypatch.setattr(fcntl, "flock", no_locks)
    else:
        monkeypatch.setitem(sys.modules, "fcntl", None)
    fill(s.Series(tmp_path, keep_last=1), [1, 2])
    assert names(tmp_path) == ["2"]


WRITER = """
import sys
import neuralqx_struct as s
series = s.Series(sys.argv[1], keep_last=2, keep_best=("energy", "min"))
print("ready", flush=True)
sys.stdin.readline()
for step in range(0, 40, 2):
    series.save(step, {"step": step}, {"energy": abs(step - 11)})
"""


def test_two_processes_write_one_series(tmp_path, root):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    environment = {**os.environ, "PYTHONPATH": str(root)}
    series = s.Series(tmp_path / "run", keep_last=2, keep_best=("energy", "min"))
    command = [sys.executable, "-c", WRITER, str(series.root)]
    with subprocess.Popen(command, env=environment, **pipes) as writer:
        assert writer.stdout.readline() == "ready\n"
        print("go", file=writer.stdin, flush=True)
        for step in range(1, 40, 2):
            series.save(step, {"step": step}, {"energy": abs(step - 11)})
            latest = series.latest()
            assert latest >= step and series.load()["step"] >= latest
        writer.communicate()
    assert writer.returncode == 0
    assert {38, 39, 11} <= set(series.steps()) and len(series.steps()) <= 4
    assert names(tmp_path / "run") == sorted(map(str, series.steps()))


@pytest.mark.parametrize(
    ("where", "owner", "name"),
    [
        ("disk", roots, "step_paths"),
        ("disk", importlib.import_module("neuralqx_struct.series"), "facts_at"),
        ("server", RemotePath, "files_below"),
        ("server", importlib.import_module("neuralqx_struct.series"), "facts_at"),
    ],
)
def test_a_reader_finds_a_step_while_a_writer_goes_on(tmp_path, monkeypatch, where, owner, name):
    """All that the reader has listed may be removed before it is read."""
    root = tmp_path if where == "disk" else f"memory://{tmp_path.name}/meanwhile"
    writer, reader = (s.Series(root, keep_last=1, keep_best=("loss", "min")) for _ in range(2))
    writer.save(1, {"w": 1}, {"loss": -1})
    original, left, saving = getattr(owner, name), [2, 3], False

    def call(*args):
        nonlocal saving
        found = None if name == "facts_at" else original(*args)
        if left and not saving:
            saving, step = True, left.pop(0)
            writer.save(step, {"w": step}, {"loss": -step})
            saving = False
        return original(*args) if name == "facts_at" else found

    monkeypatch.setattr(owner, name, call)
    assert reader.latest() == 3 and not left
    assert (reader.best(), reader.steps(), reader.load()) == (3, [3], {"w": 3})


# -- crashes


@pytest.fixture
def work(tmp_path):
    """A folder in memory where there is one: flushes to a disk take long."""
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(dir=place) as folder:
        yield Path(folder)


@pytest.mark.parametrize("exchange", ["yes", pytest.param("no", marks=pytest.mark.slow)])
def test_a_crash_at_each_call_leaves_a_complete_latest_step(work, root, exchange):
    program = root / "tests" / "programs" / "crash_series.py"
    done = subprocess.run(
        [sys.executable, str(program), str(work / "run"), exchange],
        check=False,
        capture_output=True,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    calls = rows[0]["calls"]
    placed = calls.index("exchange" if exchange == "yes" else "rename")
    assert {"mkdir", "write", "fsync", "unlink", "rmdir", "rename"} <= set(calls)
    assert len(rows) == 3 * len(calls)
    for row in rows:
        where = f"{row['how']} at call {row['at']}, {row['call']}: {row}"
        # A folder that exists need not be made.
        saved = row["at"] > placed or (row["how"] == "full" and row["error"] is None)
        assert row["latest"] == (40 if saved else 30) and row["best"] == 10, where
        assert {10, row["latest"]} <= set(row["steps"]) <= {10, 20, 30, 40}, where
        assert (row["signal"] == signal.SIGKILL) == (row["how"] == "kill"), where
        if row["how"] == "full" and row["error"] is not None:
            assert row["code"] == "NQX406" and row["at"] <= placed + 1, where
        if row["how"] == "kill":
            assert row["after"] == {"steps": [10, 50], "names": ["10", "50"]}, where


# Forks a run that goes on from the latest step whenever it is told to: a fork is ready at once.
FORKER = """
import os, sys
import numpy as np
import neuralqx_struct as s
s.Series
def run():
    series = s.Series(sys.argv[1], keep_last=2, keep_best=("energy", "min"))
    step = (series.latest() or 0) + 1
    while True:
        state = {"w": np.full(20_000, step)}
        series.save(step, state, {"energy": abs(step - 5)}, asynchronous=bool(step % 2))
        step += 1
        if step % 10 == 0:
            print(step, flush=True)
for line in sys.stdin:
    child = os.fork()
    if not child:
        run()
    print(child, flush=True)
    os.waitpid(child, 0)
    print("dead", flush=True)
"""


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again(work, root):
    moments = random.Random(3)
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", FORKER, str(work / "run")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    latest = 0
    with subprocess.Popen(command, env=environment, **pipes) as forker:
        for _ in range(25):
            print("go", file=forker.stdin, flush=True)
            run = int(forker.stdout.readline())
            assert int(forker.stdout.readline()) > latest
            time.sleep(moments.uniform(0, 0.2))
            os.kill(run, signal.SIGKILL)
            while forker.stdout.readline() != "dead\n":
                pass
            series = s.Series(work / "run", keep_best=("energy", "min"))
            assert series.latest() >= latest
            latest = series.latest()
            assert (series.load()["w"] == latest).all() and series.best() == 5
            assert s.verify(work / "run" / str(latest)) == []
        forker.stdin.close()
    fill(s.Series(work / "run", keep_last=1), [latest + 1])
    assert names(work / "run") == [str(latest + 1)]


# -- migrations


def test_a_migrated_series_keeps_metrics_best_and_latest(tmp_path):
    first = doc({"w": "float32[n]", "a": "int"})
    second = doc({"w": "float32[n]", "b": "int"}, 2, [s.steps.rename(field="a", to="b")])
    energies = {10: 1.5, 20: -2.0, 30: math.nan, 40: 0.5}
    for step, energy in energies.items():
        held = payload(first, {"w": np.full(5, step, "float32"), "a": step}, [first, second])
        held.document["metadata"] = {"metrics": metrics_to_plain({"energy": energy}), "run": "x"}
        s.bundle.write(tmp_path / "run" / str(step), held)
    done = s.migrate_all(tmp_path / "run", tmp_path / "out", to=2)
    assert not done.failed
    old, new = (s.Series(tmp_path / name, keep_best=("energy", "min")) for name in ("run", "out"))
    assert old.steps() == new.steps() == [10, 20, 30, 40]
    assert (new.latest(), new.best()) == (old.latest(), old.best()) == (40, 20)
    assert repr(old._complete()) == repr(new._complete())
    assert s.inspect(tmp_path / "out" / "20").metadata["run"] == "x"
    assert new.load("best", raw=True)["b"] == 20


@pytest.mark.slow
@pytest.mark.parametrize("place", ["disk", "memory"])
@pytest.mark.parametrize("kind", ["loader", "workers", "dataset"])
def test_iterators_of_grain_go_on_with_the_series(kind, place, tmp_path):
    grain = pytest.importorskip("grain")
    flags = pytest.importorskip("absl.flags").FLAGS
    if not flags.is_parsed():  # grain asks for one of its flags where it starts workers
        flags(["pytest"])

    def batches():
        if kind == "dataset":
            return iter(grain.MapDataset.range(100).shuffle(seed=0).batch(4).to_iter_dataset())
        return iter(
            grain.DataLoader(
                data_source=range(100),
                sampler=grain.samplers.IndexSampler(
                    100, shuffle=True, seed=0, shard_options=grain.sharding.NoSharding()
                ),
                operations=[grain.transforms.Batch(4)],
                worker_count=2 if kind == "workers" else 0,
            )
        )

    def train(root, until):
        series, data, step, seen = s.Series(root), batches(), 0, np.zeros(4, int)
        if series.latest() is not None:
            step = series.latest()
            seen = series.load(data=data)
        for number in range(step + 1, until + 1):
            seen = 3 * seen + next(data)
            series.save(number, seen, data=data)
        return seen

    root = str(tmp_path) if place == "disk" else f"memory://grain-{kind}"
    whole = train(f"{root}/whole", 8)
    train(f"{root}/run", 5)
    assert (train(f"{root}/run", 8) == whole).all()
