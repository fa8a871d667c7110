"""The two forms of a bundle: what is one, what may be replaced, links and special files."""

import errno
import io
import json
import os
import resource
import sys
import tracemalloc
import zipfile

import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.bundle import storage as forms
from neuralqx_struct.errors import SerializationError, UntrustedError
from neuralqx_struct.formats import files as store_files
from neuralqx_struct.manifest import Limits
from neuralqx_struct.places.disk import BundleMissingError, BundleReadError
from tests.builders import FORMS, everything, files, refused, simple, write_linked


def test_other_tools_read_a_zip_bundle(tmp_path):
    path = bundle.write(tmp_path / "c.zip", simple(2))
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        with np.load(io.BytesIO(archive.read("arrays.npz"))) as arrays:
            assert np.array_equal(arrays["w"], np.full((2, 3), 2, np.float32))
        assert json.loads(archive.read("manifest.json"))["version"] == 1


@pytest.mark.parametrize("form", FORMS)
def test_the_same_payload_gives_the_same_bytes(tmp_path, form):
    first, second = (bundle.write(tmp_path / side / form, simple()) for side in "ab")
    if form.endswith("zip"):
        assert first.read_bytes() == second.read_bytes()
    else:
        for name in ("manifest.json", "arrays.npz"):
            assert (first / name).read_bytes() == (second / name).read_bytes()


def test_no_bundles(tmp_path):
    text = tmp_path / "a.zip"
    text.write_text("hello")
    empty = tmp_path / "empty.zip"
    empty.touch()
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "thesis.txt").touch()
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("thesis.txt", "x")
    for path in (text, empty, folder, other):
        with refused(SerializationError, "NQX401", path):
            bundle.read(path)


def test_links_and_special_files_inside_are_refused(tmp_path):
    path = bundle.write(tmp_path / "c", simple())
    for name in ("arrays.npz", "manifest.json"):
        away = (path / name).rename(tmp_path / name)
        for make in (
            lambda here: here.symlink_to(away),
            lambda here: os.mkfifo(here),
            lambda here: here.mkdir(),
        ):
            make(path / name)
            with refused(UntrustedError, "NQX504"):
                bundle.read(path)
            (path / name).rmdir() if (path / name).is_dir() and not (
                path / name
            ).is_symlink() else (path / name).unlink()
        away.rename(path / name)
    entry = zipfile.ZipInfo("manifest.json")
    entry.create_system, entry.external_attr = 3, 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        archive.writestr(entry, "/etc/passwd")
    with refused(UntrustedError, "NQX504"):
        bundle.read(tmp_path / "c.zip")


def test_a_link_to_a_bundle_is_followed(tmp_path):
    bundle.write(tmp_path / "step_1", simple(1))
    (tmp_path / "latest").symlink_to("step_1")
    bundle.write(tmp_path / "latest", simple(2), overwrite=True)
    assert (tmp_path / "latest").is_symlink()
    assert everything(tmp_path / "step_1")[1]["w"][0, 0] == 2


def test_only_bundles_are_overwritten(tmp_path):
    thesis = bundle.write(tmp_path / "thesis", simple())
    (thesis / "thesis.txt").write_text("years")
    extension = tmp_path / "extension"
    extension.mkdir()
    (extension / "manifest.json").write_text('{"manifest_version": 3, "name": "x"}')
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "notes").touch()
    text = tmp_path / "text.zip"
    text.write_text("hello")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (thesis, extension, folder, text, pipe):
        with refused(FileExistsError, "NQX431", path):
            bundle.write(path, simple(), overwrite=True)
        assert path.exists()
    damaged = bundle.write(tmp_path / "damaged", simple())
    (damaged / "manifest.json").write_text("{")
    bundle.write(damaged, simple(), overwrite=True)
    assert bundle.verify(damaged) == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_the_umask_is_obeyed(tmp_path, form, mask):
    before = os.umask(mask)
    try:
        path = bundle.write(tmp_path / form, simple())
    finally:
        os.umask(before)
    for file in [path, *(files(path) if path.is_dir() else [])]:
        assert file.stat().st_mode & 0o777 == (0o777 if file.is_dir() else 0o666) & ~mask


def test_a_failed_seal_leaves_no_file(tmp_path, monkeypatch):
    path = bundle.write(tmp_path / "c", simple())
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "no")))
    with refused(OSError, "NQX406"):
        bundle.seal(path)
    monkeypatch.undo()
    assert sorted(p.name for p in path.iterdir()) == ["arrays.npz", "manifest.json"]
    assert bundle.verify(path) == []


def test_where_links_are_impossible_bytes_are_copied(tmp_path, monkeypatch):
    source = bundle.write(tmp_path / "a", simple(3))

    def refuse(*_, **__):
        raise OSError(errno.EXDEV, "no")

    monkeypatch.setattr(os, "link", refuse)
    target = write_linked(source, tmp_path / "b", bundle.read_manifest(source))
    assert (source / "arrays.npz").stat().st_ino != (target / "arrays.npz").stat().st_ino
    assert everything(target)[1]["w"][0, 0] == 3


READERS = [bundle.read, bundle.read_manifest, bundle.seal]


@pytest.mark.parametrize("read", READERS)
def test_links_that_lead_nowhere_or_in_a_circle(tmp_path, read):
    (tmp_path / "lost").symlink_to(tmp_path / "nothing")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with refused(BundleMissingError, "NQX401") as caught:
        read(tmp_path / "lost")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, str(tmp_path / "lost"))
    with refused(BundleReadError, "NQX401") as told:
        read(tmp_path / "circle")
    assert (told.value.errno, told.value.filename) == (errno.ELOOP, str(tmp_path / "circle"))
    assert [d.code for d in bundle.verify(tmp_path / "circle")] == ["NQX401"]


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_link_in_a_circle_is_not_written(tmp_path, overwrite):
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(SerializationError) as caught:
        bundle.write(tmp_path / "circle", simple(), overwrite=overwrite)
    assert isinstance(caught.value, OSError)
    assert (tmp_path / "circle").is_symlink()


def test_what_the_system_refuses_names_the_bundle_and_the_file(tmp_path, monkeypatch):
    path = bundle.write(tmp_path / "c", simple(size=100_000))

    def refuse(name, *_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)

    with monkeypatch.context() as patched:
        patched.setattr(forms.os, "open", refuse)
        with pytest.raises(BundleReadError) as caught:
            bundle.read(path)
    assert (caught.value.errno, caught.value.filename) == (errno.EACCES, str(path))
    arrays = bundle.read(path, mmap=False).arrays
    monkeypatch.setattr(store_files, "_PREADV", lambda *_: refuse(None))
    with refused(BundleReadError, "NQX401", "arrays.npz", "Permission denied"):
        arrays["w"]


@pytest.mark.parametrize(
    ("store", "size"), [("npz", 8), ("npz", 100_000), ("safetensors", 100_000)]
)
def test_loads_with_few_descriptors(tmp_path, store, size):
    """Small files are copied, and larger ones where the process has no descriptor left for a map."""
    path = s.export({"w": np.arange(size)}, tmp_path / "a", store=store)
    s.load(path)  # imports all
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(map(int, os.listdir("/proc/self/fd" if sys.platform == "linux" else "/dev/fd")))  # noqa: PTH208
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, before[1]))
        kept = [s.load(path) for _ in range(60)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert all(np.array_equal(each["w"], np.arange(size)) for each in kept)


def test_a_manifest_above_the_limit_is_not_read(tmp_path):
    path = bundle.write(tmp_path / "ckpt", simple())
    with (path / "manifest.json").open("r+b") as file:
        file.truncate(64 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(SerializationError) as caught:
            bundle.read(path, limits=Limits(manifest_bytes=1 << 20))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.code == "NQX005" and peak < 32 << 20
