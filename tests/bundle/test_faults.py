"""Faults of the system during each command: one clear error, exit 2, no leftovers, and the old bundle as it was.

A full disk, a limit on the size of files, a disk that can only be read, and a source that is removed while it
is read. ``test_crash.py`` has writers that are stopped at every call.
"""

import os
import resource
import shutil
import subprocess

import pytest

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.bundle import reading
from neuralqx_struct.bundle.reading import OpenBundle
from tests.builders import invoke, refused
from tests.programs import replacing_writer

WRITERS = {
    "convert": ("convert", "SRC", "--out", "OUT"),
    "convert to zip": ("convert", "SRC", "--out", "OUT.zip"),
    "convert to safetensors": ("convert", "SRC", "--out", "OUT", "--store", "safetensors"),
    "convert compressed": ("convert", "SRC", "--out", "OUT", "--compress"),
    "convert to orbax": ("convert", "SRC", "--out", "OUT", "--store", "orbax"),
    "convert from orbax": ("convert", "ORBAX", "--out", "OUT"),
    "migrate the manifest": ("migrate", "SRC", "--out", "OUT", "--schema", "SCHEMA", "--to", "2"),
    "migrate arrays": ("migrate", "SRC", "--out", "OUT", "--schema", "SCHEMA"),
    "migrate to zip": ("migrate", "SRC", "--out", "OUT.zip", "--schema", "SCHEMA"),
    "migrate a folder": ("migrate", "RUN", "--out", "OUT", "--schema", "SCHEMA"),
    "infer": ("infer", "SRC", "--out", "OUT.yaml"),
}
READERS = {
    "validate": ("validate", "SRC", "--schema", "SCHEMA"),
    "inspect": ("inspect", "SRC"),
    "verify": ("verify", "SRC"),
    "verify orbax": ("verify", "ORBAX"),
    "diff": ("diff", "SRC", "SRC"),
    "infer": ("infer", "SRC"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Bundles to read, and the schema of their versions."""
    top = tmp_path_factory.mktemp("made")
    (top / "schema").mkdir()
    for version in (1, 2, 3):
        text = s.dump_schema(replacing_writer.document(version))
        (top / "schema" / f"v{version}.yaml").write_text(text)
    bundle.write(top / "run" / "src", replacing_writer.payload(4))
    bundle.write(top / "orbax", replacing_writer.payload(4), store="orbax")
    return top


@pytest.fixture
def places(made, tmp_path):
    """The paths that words of a command stand for."""
    work = tmp_path / "work"
    shutil.copytree(made, work)
    return {
        "SRC": work / "run" / "src",
        "RUN": work / "run",
        "ORBAX": work / "orbax",
        "SCHEMA": work / "schema",
    }


@pytest.fixture
def disk(tmp_path):
    """A disk with room for little more than a manifest."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this user cannot mount a disk")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def run(words, places, out):
    given = {**places, **{f"OUT{suffix}": f"{out}{suffix}" for suffix in ("", ".zip", ".yaml")}}
    return invoke(*(given.get(word, word) for word in words))


def require_failure(done, places, message):
    assert done.exit_code == 2, done.output
    assert done.output.count("NQX4") == 1
    assert message in done.output
    assert "NQX000" not in done.output
    assert s.verify(places["SRC"]) == []


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk(places, disk, name):
    (disk / "fill").write_bytes(b"x" * (64 << 10))
    done = run(WRITERS[name], places, disk / "out")
    require_failure(done, places, "No space left on device")
    assert [entry.name for entry in disk.iterdir() if not is_empty(entry)] == ["fill"]


@pytest.mark.parametrize("name", WRITERS)
def test_a_disk_that_can_only_be_read(places, disk, name):
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    require_failure(run(WRITERS[name], places, disk / "out"), places, "Read-only file system")


@pytest.mark.parametrize("name", WRITERS)
def test_a_limit_on_the_size_of_files(places, tmp_path, name):
    (tmp_path / "target").mkdir()
    if name in ("convert", "convert from orbax", "migrate the manifest", "migrate a folder"):
        least = 500  # of the manifest: files of arrays get a second name
    else:
        least = 100 if name == "infer" else 800
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (least, before[1]))
    try:
        done = run(WRITERS[name], places, tmp_path / "target" / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    require_failure(done, places, "File too large")
    assert all(map(is_empty, (tmp_path / "target").iterdir()))


def contents(path):
    return {file: file.read_bytes() for file in (path, *path.rglob("*")) if file.is_file()}


def is_empty(path):
    """True for the folder of outputs of a folder that has none."""
    return path.is_dir() and not any(path.iterdir())


@pytest.mark.parametrize(
    ("form", "store"),
    [
        ("ckpt", "npz"),
        ("ckpt", "safetensors"),
        ("ckpt", "orbax"),
        ("ckpt.zip", "npz"),
        ("ckpt.zip", "safetensors"),
    ],
)
def test_the_old_bundle_stays_on_a_full_disk(places, disk, form, store):
    old = {"w": replacing_writer.payload(1).arrays["b"]}
    path = s.export(old, disk / form, store=store)
    before = contents(path)
    new = {"w": replacing_writer.payload(2).arrays["w"]}
    with refused(s.SerializationError, "NQX406"):
        s.export(new, path, overwrite=True, store=store)
    assert contents(path) == before
    assert [entry.name for entry in disk.iterdir()] == [form]
    done = run(("convert", "SRC", "--out", "OUT", "--overwrite"), places, path)
    require_failure(done, places, "No space left on device")
    assert contents(path) == before
    assert [entry.name for entry in disk.iterdir()] == [form]


@pytest.mark.parametrize("name", [*WRITERS, *READERS])
@pytest.mark.parametrize("moment", ["before", "between manifest and arrays", "open"])
def test_a_source_that_is_removed(places, tmp_path, monkeypatch, name, moment):
    """What is open stays readable; otherwise the bundle is missing."""
    words = {**WRITERS, **READERS}[name]
    source = places[words[1]]

    def remove():
        shutil.rmtree(source, ignore_errors=True)

    examined, payload = reading._examined, OpenBundle.payload
    if moment == "before":
        remove()
    elif moment == "open":
        monkeypatch.setattr(OpenBundle, "payload", lambda *a, **k: remove() or payload(*a, **k))
    else:
        monkeypatch.setattr(reading, "_examined", lambda *a, **k: remove() or examined(*a, **k))
    (tmp_path / "target").mkdir()
    done = run(words, places, tmp_path / "target" / "out")
    assert "NQX000" not in done.output
    if done.exit_code:
        folder = words[1] == "RUN" and moment != "before"  # others of a folder may be sound
        assert done.exit_code == (1 if folder else 2), done.output
        assert done.output.count("NQX4") == 1
        assert all(map(is_empty, (tmp_path / "target").iterdir()))
    else:
        assert moment == "open" or words[1] == "ORBAX" or "diff" in words
    if moment == "before":
        assert done.exit_code == 2
