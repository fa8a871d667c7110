"""Bundles behind URLs: which requests each operation makes, and that faults leave the old bundle or the new one."""

import contextlib
import functools
import sys
import threading
import traceback
from pathlib import Path

import fsspec
import jax.numpy as jnp
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import neuralqx_struct as s
from neuralqx_struct.places import requests
from tests.builders import invoke, refused

STATE = {"w": jnp.arange(4000.0), "b": np.arange(5), "e": np.zeros((0, 2)), "n": 3}
URL = "memory://bucket/run/ckpt"
REQUESTS = ("cat_file", "pipe_file", "put_file", "cp_file", "rm_file", "ls", "info", "find")


def emptied(files):
    """Removes everything, which all file systems in memory share: files, and folders that were made."""
    files.store.clear()
    files.pseudo_dirs[:] = [""]


class Server:
    """The file system in memory: lists requests; ``fault`` may answer them."""

    def __init__(self, monkeypatch):
        self.files = fsspec.filesystem("memory")
        emptied(self.files)
        self.asked = []
        self.fault = None
        self._local = threading.local()
        for name in REQUESTS:
            monkeypatch.setattr(MemoryFileSystem, name, self.counted(name))

    def counted(self, name):
        real = getattr(MemoryFileSystem, name)

        @functools.wraps(real)
        def request(files, *given, **options):
            if getattr(self._local, "busy", False):  # one request makes another
                return real(files, *given, **options)
            target = given[1] if name in ("put_file", "cp_file") else given[0]
            target = target.removesuffix("/")
            self.asked.append((name, target.rpartition("/")[2]))
            self._local.busy = True
            try:
                answer = functools.partial(real, files, *given, **options)
                return answer() if self.fault is None else self.fault(name, answer, given)
            finally:
                self._local.busy = False

        return request

    def during(self, work):
        """The requests of some work, array files by one name; and its result."""
        del self.asked[:]
        result = work()
        names = [(name, "A" if file.startswith("arrays") else file) for name, file in self.asked]
        return names, result

    def names(self):
        return sorted(self.files.store)


@pytest.fixture
def server(monkeypatch):
    yield Server(monkeypatch)
    emptied(fsspec.filesystem("memory"))


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert np.array_equal(a[name], b[name]), name


NEW = [
    ("ls", "ckpt"),
    ("put_file", "A"),
    ("info", "A"),
    ("cat_file", "manifest.json"),
    ("pipe_file", "manifest.json"),
]
MANIFEST = ("cat_file", "manifest.json")
ARRAYS = ("cat_file", "A")


def test_the_requests_of_each_operation(server):
    asked, place = server.during(lambda: s.export(STATE, URL))
    assert (asked, str(place)) == (NEW, URL)
    asked, back = server.during(lambda: s.load(URL))
    assert asked == [MANIFEST, ARRAYS]
    same(back, STATE)
    asked, one = server.during(lambda: s.load(URL, select="path:b"))
    assert asked == [MANIFEST, ARRAYS]
    assert one["w"] is None and one["b"].tolist() == [0, 1, 2, 3, 4]
    asked, shapes = server.during(lambda: s.load(URL, abstract=True))
    assert asked == [MANIFEST] and shapes["w"].shape == (4000,)
    asked, found = server.during(lambda: s.validate(URL))
    assert (asked, found) == ([MANIFEST, ("ls", "ckpt")], [])
    looked = ("info", "manifest.json")
    asked, found = server.during(lambda: s.verify(URL))
    assert (asked, found) == ([looked, MANIFEST, ("ls", "ckpt"), ARRAYS], [])
    asked, found = server.during(lambda: s.inspect(URL))
    assert asked == [looked, MANIFEST] and found.arrays == 3
    asked, _ = server.during(lambda: s.export({"w": np.ones(2)}, URL, overwrite=True))
    assert asked == [*NEW, ("rm_file", "A")]
    assert len(server.names()) == 2
    asked, _ = server.during(lambda: s.export(3, URL, overwrite=True))
    assert asked == [NEW[0], *NEW[3:], ("rm_file", "A")]
    assert server.names() == ["/bucket/run/ckpt/manifest.json"]


def test_a_payload_is_migrated_while_it_is_loaded_and_behind_urls(server):
    schema = s.load_schema("schemas/vmc_state")
    old = "tests/golden/format-1/vmc_state_1"
    s.convert(old, "memory://v/one")
    assert s.diff_values("memory://v/one", old).equal
    assert type(schema.load("memory://v/one")) is schema.VMCState
    for out in ("memory://v/two", "memory://v/two.zip"):
        done = s.migrate("memory://v/one", out, schema=schema)
        assert str(done.out) == out
        assert not s.verify(out) and not s.validate(out, schema)
        assert schema.load(out) == schema.load(old)
    with refused(s.SerializationError, "NQX431", "memory://v/two"):
        s.migrate("memory://v/one", "memory://v/two", schema=schema)
    s.migrate("memory://v/one", "memory://v/two", to=2, schema=schema, overwrite=True)
    assert s.inspect("memory://v/two").schema["version"] == 2
    with refused(s.SerializationError, "NQX431", "memory://v/one"):
        s.migrate("memory://v/one", "memory://v/one", schema=schema, overwrite=True)
    with refused(s.SerializationError, "NQX431", "memory://v/one"):
        s.migrate("memory://v/one", "memory://v/one/two", schema=schema)
    assert s.diff("memory://v/one", "schemas/vmc_state/v1.yaml") == []


def test_folders_of_bundles_are_migrated_behind_urls(server, tmp_path):
    schema = s.load_schema("schemas/vmc_state")
    for name in ("runs/b/2", "runs/a", "runs/.hidden", "runs/a/inner"):
        s.convert("tests/golden/format-1/vmc_state_1", f"memory://{name}")
    s.convert("tests/golden/format-1/vmc_state_1", "memory://runs/c.zip")
    server.files.pipe_file("/runs/notes.txt", b"x")
    for out in ("memory://new", tmp_path / "new"):
        done = s.migrate_all("memory://runs", out, schema=schema)
        assert [str(item.path) for item in done.items] == [
            "memory://runs/a",
            "memory://runs/b/2",
            "memory://runs/c.zip",
        ]
        assert {item.state for item in done.items} == {"migrated"}, str(done.diagnostics)
        for item in done.items:
            assert s.verify(item.out) == [] and s.validate(item.out, schema) == []
        again = s.migrate_all("memory://runs", out, schema=schema)
        assert {item.state for item in again.items} == {"skipped"}
    done = s.migrate_all(tmp_path / "new", "memory://back", schema=schema, to=1)
    assert {item.state for item in done.items} == {"migrated"}
    for folder, out, code in (
        ("memory://nothing", "memory://x", "NQX401"),
        ("memory://runs/a", "memory://x", "NQX401"),
        ("memory://runs", "memory://runs", "NQX431"),
        ("memory://runs", "memory://runs/new", "NQX431"),
    ):
        with refused(s.SerializationError, code, folder):
            s.migrate_all(folder, out, schema=schema)
    words = ("--out", "memory://third", "--schema", "schemas/vmc_state")
    assert "3 migrated" in invoke("migrate", "memory://runs", *words).output
    assert s.verify("memory://third/b/2") == []


def test_a_series_behind_a_url_keeps_metrics_when_it_is_migrated(server):
    schema = s.load_schema("schemas/vmc_state")
    old = schema.at(1).load("tests/golden/format-1/vmc_state_1")
    series = s.Series("memory://runs/old", keep_best=("energy", "min"))
    for step, energy in enumerate([-1.0, -3.0, -2.0]):
        series.save(step, old, {"energy": energy})
    s.migrate_all("memory://runs/old", "memory://runs/new", schema=schema)
    made = s.Series("memory://runs/new", keep_best=("energy", "min"))
    assert (made.steps(), made.latest(), made.best()) == ([0, 1, 2], 2, 1)
    assert type(made.load("best")) is schema.VMCState


def test_array_files_that_stay_the_same_are_copied_on_the_server(server):
    s.export(STATE, URL)
    asked, done = server.during(lambda: s.convert(URL, "memory://v/copy"))
    assert done.linked and ("cp_file", "A") in asked and ("cat_file", "A") not in asked
    assert s.verify("memory://v/copy") == []


def test_convert_between_disks_and_urls(server, tmp_path):
    local = s.export(STATE, tmp_path / "ckpt")
    for source, out in (
        (local, URL),
        (URL, tmp_path / "back"),
        (URL, "memory://bucket/again.zip"),
        ("memory://bucket/again.zip", tmp_path / "last"),
        (URL, URL),
    ):
        done = s.convert(source, out, store="safetensors", overwrite=True)
        assert s.verify(out) == [] and done.arrays == 3
        same(s.load(out), STATE)
    assert server.names() == [
        "/bucket/again.zip",
        next(name for name in server.names() if "arrays" in name),
        "/bucket/run/ckpt/manifest.json",
    ]


@pytest.mark.parametrize("options", [{"compress": True}, {"store": "safetensors"}], ids=str)
def test_other_forms_of_arrays(server, options):
    s.export(STATE, URL, **options)
    same(s.load(URL), STATE)
    assert s.verify(URL) == []
    s.bundle.seal(URL)
    assert s.verify(URL) == []


def test_many_arrays_are_fetched_together_and_large_ones_several_at_a_time(server):
    many = {f"{n:03}": np.full(3, n) for n in range(200)}
    s.export(many, URL)
    asked, back = server.during(lambda: s.load(URL))
    assert asked == [MANIFEST, ARRAYS] and all(back[name][0] == int(name) for name in many)
    large = {str(n): np.full(1200, float(n)) for n in range(6)}
    s.export(large, URL, overwrite=True)
    met = threading.Barrier(6, timeout=20)

    def together(name, answer, given):
        if "arrays" in given[0]:
            met.wait()
        return answer()

    server.fault = together
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(requests, "_GROUP", 1000)
        asked, back = server.during(lambda: s.load(URL))
    assert asked == [MANIFEST] + [ARRAYS] * 6
    same(back, large)


# Errors


@pytest.mark.parametrize(
    ("work", "code", "named"),
    [
        (lambda: s.load(URL), "NQX401", URL),
        (lambda: s.load("memory://bucket"), "NQX401", "2"),
        (lambda: s.load("memory://run"), "NQX401", "9, 10"),
        (lambda: s.inspect("memory://run"), "NQX621", "9, 10"),
        (lambda: s.load("memory://run/10"), "NQX401", "memory://run/10/net"),
        (lambda: s.migrate("memory://run", "x"), "NQX401", "migrate_all"),
        (lambda: s.load("memory://bucket/1"), "NQX401", "notes.txt"),
        (lambda: s.export(1, "memory://bucket/1"), "NQX431", "memory://bucket/1"),
        (lambda: s.export(1, "memory://bucket/1", overwrite=True), "NQX431", "memory://bucket/1"),
        (lambda: s.export(1, "memory://bucket/2", overwrite=True), "NQX431", "memory://bucket/2"),
        (
            lambda: s.export(1, "memory://bucket/f.zip", overwrite=True),
            "NQX431",
            "memory://bucket/f.zip",
        ),
        (lambda: s.export(1, "memory://bucket/f.zip"), "NQX431", "memory://bucket/f.zip"),
        (lambda: s.export(1, URL, store="orbax"), "NQX614", "orbax"),
        (lambda: s.export(1, Path("s3://bucket/x")), "NQX401", "s3:/bucket/x"),
    ],
)
def test_errors(server, work, code, named):
    server.files.pipe_file("/bucket/1/notes.txt", b"x")
    server.files.pipe_file("/bucket/2/manifest.json", b"{}")
    server.files.pipe_file("/bucket/f.zip", b"xy")
    for step in (9, 10):
        server.files.pipe_file(f"/run/{step}/_CHECKPOINT_METADATA", b"{}")
    for item in ("9/opt", "10/net", ".11/net", "12.orbax-checkpoint-tmp/net", "10/net/deep"):
        server.files.pipe_file(f"/run/{item}/manifest.json", b"{}")
    before = server.names()
    with refused(s.SerializationError, code, named):
        work()
    assert server.names() == before


def test_an_array_file_that_is_missing_or_replaced(server):
    s.export({"a": np.ones(2)}, URL)
    held = s.bundle.read(URL)
    s.export({"a": np.zeros(2)}, URL, overwrite=True)
    with refused(s.SerializationError, "NQX401"):
        held.arrays["a"]
    [file] = [name for name in server.names() if "arrays" in name]
    server.files.rm_file(file)
    with refused(s.IntegrityError, "NQX409", "$['a']"):
        s.load(URL)
    assert {d.code for d in s.verify(URL)} == {d.code for d in s.validate(URL)} == {"NQX409"}


def replacing(server, state, times):
    """Lets another program replace the bundle before its array file is fetched, so many times."""
    left = [times]

    def fault(name, answer, given):
        if name in ("cat_file", "cp_file") and "arrays" in given[0] and left[0]:
            left[0] -= 1
            server.fault, server._local.busy = None, False
            s.export(state, URL, overwrite=True)
            server.fault, server._local.busy = fault, True
        return answer()

    server.fault = fault


READERS = {
    "load": lambda out: s.load(URL),
    "select": lambda out: s.load(URL, select="path:w"),
    "verify": lambda out: raised(s.verify(URL)) or s.load(URL),
    "convert": lambda out: s.load(s.convert(URL, out, store="safetensors").out),
    "copy": lambda out: s.load(s.convert(URL, f"memory://{out.name}").out),
    "inspect": lambda out: s.inspect(URL, stats=True) and s.load(URL),
    "diff": lambda out: s.diff_values(URL, out.parent / "new").old and s.load(URL),
}


def raised(found):
    if found:
        raise s.SerializationError(found)


@pytest.mark.parametrize("reader", READERS)
def test_a_bundle_that_is_replaced_during_a_read_is_read_again_once(server, tmp_path, reader):
    old, new = {"w": np.zeros(3), "n": 1}, {"w": np.ones(4), "n": 2}
    s.export(new, tmp_path / "new")
    s.export(old, URL)
    replacing(server, new, 1)
    found = READERS[reader](tmp_path / "out")
    server.fault = None
    same(found, new)
    before = server.names()
    replacing(server, new, 2)
    with refused(s.SerializationError, "NQX401") as caught:
        READERS[reader](tmp_path / "second")
    assert len(caught.value.diagnostics) == 1
    server.fault = None
    assert server.names()[-1:] == before[-1:] and not (tmp_path / "second").exists()


def test_a_bundle_that_is_removed_during_a_read(server):
    series = s.Series("memory://runs/a", keep_last=1)
    series.save(1, np.zeros(3))

    def fault(name, answer, given):
        if name == "cat_file" and "arrays" in given[0]:
            server.fault, server._local.busy = None, False
            s.Series("memory://runs/a", keep_last=1).save(2, np.ones(3))
            server._local.busy = True
        return answer()

    server.fault = fault
    assert series.load().tolist() == [1, 1, 1]
    server.fault = fault
    with refused(s.SerializationError, "NQX401", "2"):
        series.load(1)


def test_an_array_file_that_another_program_overwrites(server):
    s.export({"w": np.zeros(3)}, URL)
    [file] = [name for name in server.names() if "arrays" in name]
    manifest = server.files.cat_file("/bucket/run/ckpt/manifest.json")

    def fault(name, answer, given):
        if name == "cat_file" and "arrays" in given[0]:
            server.fault, server._local.busy = None, False
            s.export({"w": np.ones(4)}, "memory://b/other")
            [other] = [each for each in server.names() if "/b/other/arrays" in each]
            server.files.pipe_file(file, server.files.cat_file(other))
            changed = manifest.replace(b"}", b" }")
            server.files.pipe_file("/bucket/run/ckpt/manifest.json", changed)
            server._local.busy = True
        return answer()

    server.fault = fault
    with pytest.raises(s.SerializationError) as caught:  # by the new manifest it is damaged
        s.load(URL)
    assert "replaced" not in str(caught.value)


def test_damage_is_found(server):
    s.export(STATE, URL)
    [file] = [name for name in server.names() if "arrays" in name]
    data = bytearray(server.files.cat_file(file))
    data[300] ^= 1
    server.files.pipe_file(file, bytes(data))
    with refused(s.IntegrityError, "NQX407", "$.arrays.w", "crc32"):
        s.load(URL)
    assert [d.code for d in s.verify(URL)] == ["NQX407"]
    server.files.pipe_file("/bucket/run/ckpt/arrays-0.npz", b"")
    assert [d.severity for d in s.verify(URL)] == ["error", "warning"]


def test_credentials_are_in_no_message_and_no_manifest(server):
    given = {
        "storage_options": {"key": "AKID1234", "secret": "hunter22", "nested": {"token": "tok55"}}
    }
    url = "memory://me:pass4321@bucket/ckpt?sig=sig98765"
    s.export({"a": np.ones(2)}, url, **given)
    stored = b"".join(file.getvalue() for file in server.files.store.values())

    def refuse(name, answer, given):
        raise OSError(f"AKID1234 hunter22 tok55 pass4321 {url}")

    secrets = ("AKID1234", "hunter22", "tok55", "pass4321", "sig98765")
    assert not any(secret.encode() in stored for secret in secrets)
    server.fault = refuse
    for work in (s.load, s.inspect, functools.partial(s.export, 1)):
        with pytest.raises(s.SerializationError) as caught:
            work(url, **given)
        shown = "".join(traceback.format_exception(caught.value))
        own = [line for line in shown.splitlines() if "raise OSError" not in line]
        assert not [line for line in own if any(secret in line for secret in secrets)]
        assert "memory://bucket/ckpt" in str(caught.value)


def test_without_fsspec_an_error_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    monkeypatch.chdir(tmp_path)
    for work in (functools.partial(s.export, 1), s.load, s.verify, s.validate, s.inspect, s.Series):
        with refused(s.SerializationError, "NQX615", "[remote]"):
            work("s3://bucket/ckpt")
    assert list(tmp_path.iterdir()) == []


# Faults


def timeout(name, answer, given):
    raise TimeoutError("the server did not answer")


def failing(name, answer, given):
    raise OSError("500 Internal Server Error")


def lost(name, answer, given):
    answer()
    raise ConnectionResetError("the connection was lost after the request")


def half(name, answer, given):
    """Half a body: of a download silently, of an upload the server keeps what it got."""
    if name == "cat_file":
        data = answer()
        return data[: len(data) // 2]
    if name == "put_file":
        files = fsspec.filesystem("memory")
        answer()
        files.store[given[1]].seek(0)
        files.store[given[1]].truncate(files.store[given[1]].size // 2)
        return None
    raise ConnectionResetError("half of the body was sent")


BEFORE = {"w": np.arange(50.0), "n": 1}
AFTER = {"w": np.arange(60.0), "n": 2}
OTHER, OLD, TARGET = "memory://bucket/other", "memory://bucket/v1", "memory://bucket/v3"
SCHEMA = s.load_schema("schemas/vmc_state")


FAULTS = [timeout, failing, lost, half]
#: Each returns, or raises one error; the last argument is a new path on the disk.
WORKS = {
    "export": lambda _: s.export(AFTER, URL, overwrite=True),
    "new export": lambda _: s.export(AFTER, TARGET),
    "zip": lambda _: s.export(AFTER, f"{TARGET}.zip"),
    "convert": lambda _: s.convert(OTHER, URL, overwrite=True, store="safetensors"),
    "copy": lambda _: s.convert(OTHER, URL, overwrite=True),
    "download": lambda out: s.convert(URL, out, store="safetensors"),
    "migrate": lambda _: s.migrate(OLD, TARGET, schema=SCHEMA),
    "load": lambda _: same(s.load(URL), BEFORE),
    "migrating load": lambda _: SCHEMA.load(OLD),
    "select": lambda _: same(s.load(URL, select="path:w"), BEFORE),
    "verify": lambda _: raised(s.verify(URL)),
    "inspect": lambda _: s.inspect(URL),
    "diff": lambda _: raised(s.diff_values(URL, URL).unread),
    "seal": lambda _: s.bundle.seal(URL),
}


@pytest.fixture(scope="module")
def stored():
    """The files of the bundles that each case begins with."""
    s.export(BEFORE, URL)
    s.export(AFTER, OTHER)
    s.convert("tests/golden/format-1/vmc_state_1", OLD)
    files = fsspec.filesystem("memory")
    found = {name: file.getvalue() for name, file in files.store.items()}
    files.store.clear()
    return found


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("work", WORKS)
def test_a_fault_at_any_request_leaves_the_old_bundle_or_the_new_one(
    server, stored, tmp_path, work, fault
):
    failed = 0
    for at in range(40):
        server.fault = None
        server.files.store.clear()
        for name, data in stored.items():
            server.files.pipe_file(name, data)
        left = [at]

        def once(name, answer, given):
            left[0] -= 1
            return fault(name, answer, given) if left[0] == -1 else answer()

        server.fault, out = once, tmp_path / str(at)
        try:
            WORKS[work](out)
        except s.SerializationError as error:
            failed += 1
            assert len(error.diagnostics) == 1, str(error)
        server.fault = None
        found = s.load(URL)
        same(found, AFTER if found["n"] == 2 else BEFORE)
        assert not [d for d in s.verify(URL) if d.severity == "error"]
        names = [name for name in server.names() if name.startswith("/bucket/v3")]
        if names and names[-1].endswith(("json", "zip")):  # array files alone are no bundle
            assert s.verify(TARGET if names[-1].endswith("json") else f"{TARGET}.zip") == []
        assert not out.exists() or s.verify(out) == []
        if left[0] >= 0:
            break
    assert left[0] >= 0 and failed


# Series


def test_a_series_behind_a_url(server):
    root = "memory://runs/a"
    series = s.Series(root, keep_last=2, keep_best=("energy", "min"))
    for step, energy in enumerate([-1.0, -3.0, -2.0, -1.5, -1.4]):
        series.save(step, {"w": np.full(3, energy)}, {"energy": energy})
    assert (series.steps(), series.latest(), series.best()) == ([1, 3, 4], 4, 1)
    assert series.load("best")["w"][0] == -3 and series.load()["w"][0] == -1.4
    assert len(server.names()) == 6
    series.save(9, {"w": np.zeros(2)}, asynchronous=True).wait()
    assert s.Series(root).steps() == [1, 4, 9]
    with refused(s.SerializationError, "NQX401", "1", "4", "9"):
        series.load(3)
    asked, _ = server.during(series.latest)
    assert asked == [("find", "a")]
    with refused(s.SerializationError, "NQX401"):
        s.load(root)


def test_of_two_writers_of_one_step_one_is_refused(server):
    first, second = s.Series("memory://runs/a"), s.Series("memory://runs/a")

    def meet(name, answer, given):
        if name == "pipe_file" and server.fault is not None:  # the other one is faster
            server.fault = None
            server._local.busy = False
            second.save(1, "second")
        return answer()

    server.fault = meet
    with refused(s.SerializationError, "NQX431"):
        first.save(1, "first")
    assert first.load(1) == "second"
    first.save(2, "first")
    second.save(3, "second")
    assert first.steps() == second.steps() == [1, 2, 3]


def test_a_client_that_asks_again_finds_its_own_manifest(server):
    def twice(name, answer, given):
        if name == "pipe_file":  # the answer to the first request is lost
            answer()
        return answer()

    server.fault = twice
    s.export(BEFORE, "memory://b/new")
    server.fault = None
    same(s.load("memory://b/new"), BEFORE)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_request_leaves_whole_steps(server, fault):
    for at in range(60):
        server.fault = None
        server.files.store.clear()
        series = s.Series("memory://runs/a", keep_last=2)
        for step in (1, 2):
            series.save(step, np.full(3, step))
        left = [at]

        def once(name, answer, given):
            left[0] -= 1
            return fault(name, answer, given) if left[0] == -1 else answer()

        server.fault = once
        with contextlib.suppress(s.SerializationError):
            series.save(3, np.full(3, 3))
        server.fault = None
        steps = s.Series("memory://runs/a").steps()
        assert steps in ([1, 2], [1, 2, 3], [2, 3])
        assert all(series.load(step)[0] == step for step in steps)
        series.save(4, np.full(3, 4))
        assert series.load("latest")[0] == 4
        if left[0] >= 0:
            return
    pytest.fail("the work never ended without a fault")
