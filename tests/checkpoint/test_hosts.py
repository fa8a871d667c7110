"""Several processes of one JAX program, really: they save and load one bundle together, or fail together."""

import json
import os
import socket
import subprocess
import sys

import jax
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.formats import hosts
from neuralqx_struct.places.disk import BundleExistsError
from tests.builders import ROOT, refused

COUNT = 2
VALUES = np.arange(64, dtype=np.float32).reshape(8, 8)


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What each process saw in each scene of `hosts_program.py`, and the folder that they had."""
    root = ROOT
    work = tmp_path_factory.mktemp("hosts")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "PYTHONPATH": str(root),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    }
    programs = [
        subprocess.Popen(
            [
                sys.executable,
                str(root / "tests/programs/hosts_program.py"),
                str(rank),
                str(COUNT),
                str(port),
                str(work),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(COUNT)
    ]
    try:
        told = [program.communicate(timeout=240) for program in programs]
    finally:
        for program in programs:
            program.kill()
    scenes = []
    for program, (out, err) in zip(programs, told, strict=True):
        assert program.returncode == 0, out[-2000:] + err[-6000:]
        rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        scenes.append({name: saw for row in rows for name, saw in row.items()})
    return scenes, work


def test_each_host_writes_and_reads_its_own_shards(seen):
    scenes, work = seen
    for scene in scenes:
        saw = scene["saving_and_loading"]
        assert saw["path"] == str(work / "a") and saw["here"] == ["a"]
        assert saw["verified"] == [] and all(saw["right"])
        # Half of what is in halves, and of what each device has: its own; the rest is small or was written in one piece.
        assert saw["asked"][:2] == [[4, 4], [4, 4]] and saw["asked"].count([8, 8]) == 1


def test_one_host_alone_reads_what_many_wrote(seen):
    path = seen[1] / "a"
    records = bundle.read_manifest(path)["arrays"]
    assert records["w"]["chunk"] == records["small"]["chunk"] == [4, 4] and records["rows"][
        "chunk"
    ] == [4, 8]
    assert "chunk" not in records["copied"]
    assert s.verify(path) == s.validate(path) == []
    mesh = Mesh(np.array(jax.devices()), ("x",))
    loaded = s.load(
        path,
        shardings=lambda place, leaf: (
            NamedSharding(mesh, PartitionSpec("x")) if leaf.ndim == 2 else None
        ),
    )
    for name in ("w", "rows", "copied"):
        assert np.array_equal(loaded[name], VALUES)
    assert np.array_equal(np.asarray(loaded["small"]), VALUES.astype(ml_dtypes.float8_e4m3fn))
    assert (
        loaded["host"].tolist() == [0, 1, 2, 3, 4]
        and loaded["step"] == 7
        and loaded["empty"].shape == (0, 4)
    )
    assert bundle.read_manifest(path)["metadata"] == {"run": 1}


def test_what_was_local_goes_where_all_hosts_want_it(seen):
    assert all(all(scene["what_was_local_is_placed_on_all_hosts"]) for scene in seen[0])


def test_no_host_writes_before_the_folder_is_there(seen):
    assert [scene["a_folder_that_comes_late"] for scene in seen[0]] == [[]] * COUNT


def test_a_series_that_many_hosts_save(seen):
    scenes, work = seen
    assert [scene["a_series_of_steps"] for scene in scenes] == [[[2, 4], 4, 2, True]] * COUNT
    assert sorted(entry.name for entry in (work / "run").iterdir()) == ["2", "4"]


class Loader:
    """A data loader that is not to get the state of another process."""

    def set_state(self, state):
        raise AssertionError(state)


def test_each_process_has_its_data_loader_and_all_end_at_the_same_step(seen):
    name = "a_loop_with_data_loaders_that_one_process_is_told_to_end"
    saw = [scene[name] for scene in seen[0]]
    assert saw == [[[1, 4, 6], [rank, 6 * (rank + 1), rank * 1000], True] for rank in range(COUNT)]
    with refused(s.SerializationError, "NQX414", "1", "2"):
        s.Series(seen[1] / "loop").load(data=Loader(), raw=True, as_numpy=True)


def test_the_program_goes_on_and_donates_meanwhile(seen):
    assert all(scene["going_on_meanwhile"] for scene in seen[0])


def test_what_stands_is_replaced_or_kept_for_all(seen):
    scenes = seen[0]
    assert all(scene["what_stands_is_replaced"] for scene in scenes)
    first, second = (scene["what_stands_is_kept"] for scene in scenes)
    assert first[:3] == second[:3] == ["BundleExistsError", True, "NQX431"]
    assert (
        "in process 0 of the 2 that write this bundle together" in second[3]
        and "process" not in first[3]
    )


def test_one_process_writes_alone_what_has_no_part_of_the_others(seen):
    first, second = (scene["one_process_alone"] for scene in seen[0])
    assert first == []
    assert np.array_equal(s.load(seen[1] / "e")["w"], VALUES)
    assert "expected the first of 2 processes to write a bundle alone, got process 1" in second[3]


def test_other_stores_name_orbax(seen):
    for scene in seen[0]:
        assert scene["another_store"][2] == "NQX430"
        assert "export with store='orbax'" in scene["another_store"][3]


@pytest.mark.parametrize(
    ("scene", "code", "message"),
    [
        ("an_array_that_one_process_has_deleted", "NQX430", "deleted or donated"),
        (
            "a_folder_that_one_process_does_not_see",
            "NQX406",
            "expected a path that every process sees",
        ),
    ],
)
def test_all_fail_where_one_does(seen, scene, code, message):
    first, second = (saw[scene] for saw in seen[0])
    assert first[2] == second[2] == code and message in first[3] and message in second[3]
    assert "in process 1 of the 2" in first[3] and "process 1" not in second[3]


def test_nobody_takes_a_bundle_for_written_that_one_process_could_not_finish(seen):
    scenes, work = seen
    for number, scene in enumerate(scenes):
        first, again = scene["one_process_that_fails_at_the_end"]
        assert (
            first == again and first[2] == "NQX406" and "expected to go on, got stopped" in first[3]
        )
        assert ("in process 0" in first[3]) == (number == 1)
        assert scene["left"] == ["a", "b", "d", "e", "late", "loop", "run"]
    assert np.array_equal(s.load(work / "b")["w"], VALUES + 1)
    assert s.verify(work / "b") == []


def test_errors_of_no_class_of_ours_are_told_to_the_others(seen):
    first, second = (scene["something_else_that_one_process_raises"] for scene in seen[0])
    assert second == "ZeroDivisionError"
    assert first.startswith(
        "ZeroDivisionError('nothing of ours') [NQX406]\n  in process 1 of the 2"
    )


# ---------------------------------------------------------------------------------------------------------------------


def test_one_process_agrees_with_itself(monkeypatch):
    monkeypatch.setattr(hosts, "_gathered", None)
    assert hosts.agreed(lambda: b"x") == [b"x"]
    assert (hosts.count(), hosts.rank()) == (1, 0)
    monkeypatch.delitem(sys.modules, "jax")
    assert (hosts.count(), hosts.rank()) == (1, 0)
    with pytest.raises(ZeroDivisionError):
        hosts.agreed(lambda: 1 // 0)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, *range(53, 63), 1000])
def test_what_is_told_arrives_whole_and_in_one_call_if_it_is_short(monkeypatch, size):
    told = b"\0" * size + b"end" * (size > 2)
    calls = []
    monkeypatch.setattr(hosts, "count", lambda: 2)
    monkeypatch.setattr(
        "jax.experimental.multihost_utils.process_allgather",
        lambda x: calls.append(x.size) or np.stack([x, x]),
    )
    assert hosts.agreed(lambda: told) == [told, told]
    assert len(calls) == 1 if len(told) < 60 else len(calls) == 2


def test_a_process_that_is_gone_is_told_unless_there_is_worse(monkeypatch):
    def gone(told):
        raise RuntimeError("Connection closed by peer\nand more")

    monkeypatch.setattr(hosts, "count", lambda: 2)
    monkeypatch.setattr(hosts, "_gathered", gone)
    with refused(s.SerializationError, "NQX406", "Connection closed by peer") as caught:
        hosts.agreed(lambda: b"")
    assert "and more" not in str(caught.value)
    with pytest.raises(ZeroDivisionError):
        hosts.agreed(lambda: 1 // 0)


def test_errors_of_others_are_of_their_class_and_say_where(monkeypatch):
    def elsewhere(told):
        return [
            told,
            b"-"
            + hosts._failure_text(
                BundleExistsError("expected nothing, got something", file="x", hint="go")
            ),
        ]

    monkeypatch.setattr(hosts, "count", lambda: 3)
    monkeypatch.setattr(hosts, "_gathered", elsewhere)
    with pytest.raises(BundleExistsError) as caught:
        hosts.agreed(lambda: b"")
    (found,) = caught.value.diagnostics
    assert (found.code, found.file, found.hint) == ("NQX431", "x", "go")
    assert (
        found.message
        == "expected nothing, got something\nin process 1 of the 3 that write this bundle together"
    )
