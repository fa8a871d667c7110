"""Bundles on disk: round trips, damage, hostile archives, atomic replacement, links, seals."""

import errno
import io
import json
import os
import random
import signal
import struct
import subprocess
import sys
import time
import warnings
import zipfile

import numpy as np
import pytest

from neuralqx_struct import bundle
from neuralqx_struct.errors import IntegrityError, SerializationError, StructError, UntrustedError
from neuralqx_struct.manifest import Limits, format_manifest, parse_manifest
from neuralqx_struct.payload import Payload

FORMS = ["ckpt", "ckpt.zip"]
STORES = ["npz", "safetensors"]


def payload_of(arrays, **more):
    records = {name: {"dtype": str(a.dtype), "shape": list(a.shape)} for name, a in arrays.items()}
    fields = {name: {"__kind__": "array", "name": name, **record} for name, record in records.items()}
    tree = {"__kind__": "struct", "type": "pkg:State", "fields": fields}
    return Payload({"version": 1, "manifest": tree, "arrays": records, **more}, arrays)


def simple(value=0.0, size=3):
    return payload_of({"w": np.full((2, size), value, np.float32), "b": np.arange(size)})


def everything(path, **options):
    """Read a bundle and touch every byte of every array."""
    held = bundle.read(path, **options)
    return held.document, {name: array.copy() for name, array in held.arrays.items()}


def edit(path, change):
    """Change the manifest of a folder bundle as a person would, then seal it."""
    file = path / "manifest.json"
    document = parse_manifest(file.read_bytes())
    document.pop("digest", None)
    change(document)
    file.write_bytes(format_manifest(document))
    bundle.seal(path)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("mmap", [True, False])
def test_what_is_written_is_read(tmp_path, form, store, mmap):
    arrays = {
        "params/w": np.arange(12, dtype=np.float32).reshape(3, 4),
        "none": np.zeros((0, 3)),
        "scalar": np.array(7, np.int8),
        "..": np.array([1 + 2j]),
    }
    path = bundle.write(tmp_path / form, payload_of(arrays, metadata={"run": 1}), store=store)
    document, found = everything(path, mmap=mmap)
    assert document["metadata"] == {"run": 1}
    assert document["writer"]["name"] == "neuralqx-struct"
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)
    assert bundle.verify(path) == []
    assert bundle.read_manifest(path) == document
    held = bundle.read(path, mmap=mmap)
    assert not held.arrays["params/w"].flags.writeable
    if store == "npz":
        assert held.arrays["params/w"].ctypes.data % 64 == 0


@pytest.mark.parametrize("form", FORMS)
def test_compressed_bundles(tmp_path, form):
    arrays = {"zeros": np.zeros(100_000), "n": np.arange(5)}
    path = bundle.write(tmp_path / form, payload_of(arrays), compress=True)
    document, found = everything(path, mmap=False)
    assert "offset" not in document["arrays"]["zeros"]
    assert np.array_equal(found["zeros"], arrays["zeros"])
    assert bundle.verify(path) == []
    size = path.stat().st_size if form.endswith("zip") else (path / "arrays.npz").stat().st_size
    assert size < 10_000


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


def test_a_foreign_bundle_is_read(tmp_path):
    """The files of neuraLQX 1.1.2: no writer, no digest, deflated, Fortran order, NaN tokens, raw bfloat16."""
    import ml_dtypes

    arrays = {
        "arr_000000": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "arr_000001": np.array([1, 2], ml_dtypes.bfloat16),
        "arr_000002": np.array([1, 2], ml_dtypes.float8_e5m2),
    }
    document = payload_of(arrays).document
    document["manifest"]["fields"]["x"] = float("nan")
    npz = io.BytesIO()
    np.savez_compressed(npz, **arrays)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps(document, indent=2, sort_keys=True))
    (folder / "arrays.npz").write_bytes(npz.getvalue())
    packed = tmp_path / "packed.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", json.dumps(document, indent=2))
        archive.writestr("arrays.npz", npz.getvalue())
    for path in (folder, packed):
        _, found = everything(path)
        assert np.array_equal(found["arr_000000"], arrays["arr_000000"])
        assert found["arr_000001"].dtype == ml_dtypes.bfloat16
        assert found["arr_000002"].tobytes() == arrays["arr_000002"].tobytes()
        assert bundle.verify(path) == []
    out = bundle.write_linked(
        folder, tmp_path / "out", {**document, "manifest": payload_of(arrays).document["manifest"]}
    )
    assert "crc32" in bundle.read_manifest(out)["arrays"]["arr_000001"]
    assert np.array_equal(everything(out)[1]["arr_000000"], arrays["arr_000000"])


# -- errors about what is there


def test_nothing_there(tmp_path):
    for call in (bundle.read, bundle.read_manifest, bundle.seal):
        with pytest.raises(FileNotFoundError) as caught:
            call(tmp_path / "no")
        assert isinstance(caught.value, SerializationError)
        assert caught.value.code == "NQX401"
    assert [d.code for d in bundle.verify(tmp_path / "no")] == ["NQX401"]


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
        with pytest.raises(SerializationError, match=r"expected a bundle|NQX401") as caught:
            bundle.read(path)
        assert caught.value.code == "NQX401"
        assert str(path) in str(caught.value)


def test_a_future_version_says_to_upgrade(tmp_path):
    path = bundle.write(tmp_path / "c", simple())
    edit(path, lambda document: document.update(version=2))
    with pytest.raises(SerializationError, match="reads format version 1; upgrade") as caught:
        bundle.read(path)
    assert caught.value.code == "NQX402"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda d: d["arrays"]["w"].update(shape=[3, 2]), "NQX412"),
        (lambda d: d["arrays"]["w"].update(dtype="int32"), "NQX411"),
        (lambda d: d["arrays"]["w"].update(nbytes=25), "NQX408"),
        (lambda d: d["arrays"]["w"].update(offset=0), "NQX408"),
        (lambda d: d["arrays"]["w"].update(crc32=1), "NQX407"),
        (lambda d: d["arrays"]["w"].pop("crc32"), "NQX407"),
        (lambda d: d["arrays"].pop("w"), "NQX410"),
        (lambda d: d["manifest"]["fields"].pop("w"), "NQX410"),
        (lambda d: d["manifest"]["fields"]["w"].update(shape=[]), "NQX412"),
        (lambda d: d["manifest"]["fields"]["w"].update(name="v"), "NQX409"),
        (lambda d: d["arrays"].update(v={"dtype": "int8", "shape": [1], "crc32": 0, "nbytes": 1}), "NQX409"),
        (lambda d: d["arrays"]["w"].update(file="arrays-1.npz"), "NQX409"),
        (lambda d: d["arrays"]["w"].update(file="../arrays.npz"), "NQX503"),
        (lambda d: d["arrays"]["w"].update(file="arrays.exe"), "NQX614"),
        (lambda d: d["arrays"]["w"].update(dtype="object"), "NQX411"),
        (lambda d: d["arrays"]["w"].update(shape=[0, 2**70]), "NQX412"),
        (lambda d: d["arrays"]["w"].update(shape=[1] * 40), "NQX412"),
    ],
)
def test_a_manifest_that_does_not_fit_its_arrays(tmp_path, change, code):
    path = bundle.write(tmp_path / "c", simple())
    edit(path, change)
    with pytest.raises(SerializationError) as caught:
        everything(path)
    assert code in {d.code for d in caught.value.diagnostics}
    assert all(d.file and d.file.startswith(str(path)) for d in caught.value.diagnostics)
    assert code in {d.code for d in bundle.verify(path)}


def test_every_problem_at_once(tmp_path):
    path = bundle.write(tmp_path / "c", payload_of({name: np.arange(4) for name in "abcd"}))
    edit(
        path,
        lambda d: [
            d["arrays"]["a"].update(crc32=0),
            d["arrays"]["b"].update(shape=[5]),
            d["arrays"]["c"].update(crc32=9),
        ],
    )
    assert sorted(d.path for d in bundle.verify(path) if d.code == "NQX407") == ["$.arrays.a", "$.arrays.c"]
    assert "NQX412" in {d.code for d in bundle.verify(path)}
    with pytest.raises(IntegrityError, match="crc32"):
        everything(_damaged(tmp_path))


def _damaged(tmp_path):
    path = bundle.write(tmp_path / "damaged", simple(1))
    at = bundle.read_manifest(path)["arrays"]["w"]["offset"]
    data = bytearray((path / "arrays.npz").read_bytes())
    data[at] ^= 1
    (path / "arrays.npz").write_bytes(data)
    return path


def test_without_verification_damage_goes_unseen_and_verify_sees_it(tmp_path):
    path = _damaged(tmp_path)
    everything(path, verify=False)
    [problem] = bundle.verify(path)
    assert (problem.code, problem.path) == ("NQX407", "$.arrays.w")
    assert problem.file == str(path / "arrays.npz")


def test_unused_arrays_and_stray_files_are_listed(tmp_path):
    path = bundle.write(tmp_path / "c", simple())
    edit(path, lambda d: [d["manifest"]["fields"].pop("w"), d["arrays"]["w"].update(unused=True)])
    (path / "arrays-9.npz").touch()
    assert "w" in bundle.read(path).arrays
    assert [(d.code, d.severity) for d in bundle.verify(path)] == [("NQX410", "info"), ("NQX410", "warning")]


def test_limits(tmp_path):
    path = bundle.write(tmp_path / "c", simple())
    for limits in (Limits(manifest_bytes=100), Limits(nodes=2), Limits(depth=1)):
        with pytest.raises(SerializationError) as caught:
            bundle.read(path, limits=limits)
        assert caught.value.code == "NQX005"
    deep = 5
    for _ in range(250):
        deep = {"__kind__": "list", "items": [deep]}
    with pytest.raises(SerializationError, match="200 deep"):
        bundle.write(tmp_path / "deep", Payload({"version": 1, "manifest": deep, "arrays": {}}, {}))
    assert not (tmp_path / "deep").exists()


# -- damage


def _files(path):
    return [path] if path.is_file() else sorted(path.iterdir())


@pytest.mark.parametrize("form", FORMS)
def test_a_flipped_bit_is_an_error_or_has_no_effect(tmp_path, form):
    path = bundle.write(tmp_path / form, payload_of({"w": np.array([1, 2, 3], np.int16)}))
    document, arrays = everything(path)
    for file in _files(path):
        whole = file.read_bytes()
        for bit in range(0, 8 * len(whole), 7):  # coprime to 8: every bit of a byte has its turn
            data = bytearray(whole)
            data[bit >> 3] ^= 1 << (bit & 7)
            file.write_bytes(data)
            try:
                seen, found = everything(path)
            except StructError:
                continue
            assert (seen, found.keys()) == (document, arrays.keys()), (file, bit)
            assert np.array_equal(found["w"], arrays["w"]), (file, bit)
        file.write_bytes(whole)
    assert bundle.verify(path) == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("store", STORES)
def test_every_truncation_is_an_error(tmp_path, form, store):
    path = bundle.write(tmp_path / form, payload_of({"w": np.array([1, 2, 3], np.int16)}), store=store)
    for file in _files(path):
        whole = file.read_bytes()
        end = len(whole.rstrip())
        for length in range(end):
            file.write_bytes(whole[:length])
            with pytest.raises(StructError):
                everything(path)
        file.write_bytes(whole)


# -- hostile files


def hostile(tmp_path, members, document=None):
    """A folder bundle of the right manifest whose array file is made of the given zip members."""
    path = bundle.write(tmp_path / "c", simple())
    with (
        warnings.catch_warnings(action="ignore"),
        zipfile.ZipFile(path / "arrays.npz", "w") as archive,
    ):  # of duplicates
        for name, data in members:
            archive.writestr(name, data)

    def loosen(d):
        for record in d["arrays"].values():
            record.pop("offset")

    edit(path, loosen)
    return path


def npy(array, **options):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **options)
    return file.getvalue()


GOOD = [("w.npy", npy(np.zeros((2, 3), np.float32))), ("b.npy", npy(np.arange(3)))]


def test_a_rebuilt_array_file_is_read(tmp_path):
    assert np.array_equal(everything(hostile(tmp_path, GOOD))[1]["b"], [0, 1, 2])


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ([*GOOD, GOOD[0]], "NQX509"),
        ([*GOOD, ("../evil.npy", b"x")], "NQX503"),
        ([*GOOD, ("/evil.npy", b"x")], "NQX503"),
        ([*GOOD, ("a\\b.npy", b"x")], "NQX503"),
        ([*GOOD, ("more.npy", b"x")], "NQX410"),
        (GOOD[:1], "NQX409"),
        ([GOOD[0], ("b.npy", npy(np.array([{}, {}, {}], object), allow_pickle=True))], "NQX502"),
        ([GOOD[0], ("b.npy", npy(np.zeros(3, "i4,i4")))], "NQX502"),
        ([GOOD[0], ("b.npy", npy(np.arange(3.0)))], "NQX411"),
        ([GOOD[0], ("b.npy", npy(np.arange(4)))], "NQX412"),
        ([GOOD[0], ("b.npy", npy(np.arange(3))[:-1])], "NQX408"),
        ([GOOD[0], ("b.npy", b"no array")], "NQX408"),
        ([GOOD[0], ("b.npy", b"\x93NUMPY\1\0\6\0{'x':}" + bytes(24))], "NQX408"),
    ],
)
def test_hostile_members(tmp_path, members, code):
    path = hostile(tmp_path, members)
    with pytest.raises(UntrustedError if code.startswith("NQX5") else IntegrityError) as caught:
        bundle.read(path)
    assert code in {d.code for d in caught.value.diagnostics}
    assert str(path / "arrays.npz") in str(caught.value)


def test_overlapping_members(tmp_path):
    path = hostile(tmp_path, GOOD)
    data = bytearray((path / "arrays.npz").read_bytes())
    end = data.rindex(b"PK\5\6")
    [begin] = struct.unpack_from("<I", data, end + 16)
    second = data.index(b"PK\1\2", begin + 4)
    data[second:end] = data[begin:second]  # both entries now lead to one place
    data[second + 46 : second + 47] = b"b"
    data[30:31] = b"b"
    struct.pack_into("<I", data, end + 12, 2 * (second - begin))
    (path / "arrays.npz").write_bytes(data)
    with pytest.raises(StructError):
        bundle.read(path)


@pytest.mark.parametrize("level", ["array", "manifest"])
def test_bombs(tmp_path, level):
    bomb = bytes(5_000_000)
    if level == "array":
        path = hostile(tmp_path, GOOD)
        with zipfile.ZipFile(path / "arrays.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(*GOOD[0])
            archive.writestr("b.npy", GOOD[1][1] + bomb)
    else:
        path = tmp_path / "c.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("manifest.json", bomb)
    with pytest.raises(UntrustedError) as caught:
        everything(path, limits=Limits(manifest_bytes=1 << 20))
    assert caught.value.code == "NQX505"


def test_a_lie_about_the_expanded_size(tmp_path):
    """A member that says it is small and expands to much is stopped at what it said."""
    path = hostile(tmp_path, GOOD)
    with zipfile.ZipFile(path / "arrays.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(*GOOD[0])
        archive.writestr("b.npy", GOOD[1][1] + bytes(1_000_000))
    data = bytearray((path / "arrays.npz").read_bytes())
    lie, truth = struct.pack("<I", len(GOOD[1][1])), struct.pack("<I", len(GOOD[1][1]) + 1_000_000)
    assert data.count(truth) == 2
    (path / "arrays.npz").write_bytes(data.replace(truth, lie))
    with pytest.raises(UntrustedError) as caught:
        everything(path)
    assert caught.value.code == "NQX505"


def test_links_and_special_files_inside_are_refused(tmp_path):
    path = bundle.write(tmp_path / "c", simple())
    for name in ("arrays.npz", "manifest.json"):
        away = (path / name).rename(tmp_path / name)
        for make in (lambda here: here.symlink_to(away), lambda here: os.mkfifo(here), lambda here: here.mkdir()):
            make(path / name)
            with pytest.raises(UntrustedError) as caught:
                bundle.read(path)
            assert caught.value.code == "NQX504"
            (path / name).rmdir() if (path / name).is_dir() and not (path / name).is_symlink() else (
                path / name
            ).unlink()
        away.rename(path / name)
    entry = zipfile.ZipInfo("manifest.json")
    entry.create_system, entry.external_attr = 3, 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        archive.writestr(entry, "/etc/passwd")
    with pytest.raises(UntrustedError) as caught:
        bundle.read(tmp_path / "c.zip")
    assert caught.value.code == "NQX504"


def test_a_link_to_a_bundle_is_followed(tmp_path):
    bundle.write(tmp_path / "step_1", simple(1))
    (tmp_path / "latest").symlink_to("step_1")
    bundle.write(tmp_path / "latest", simple(2), overwrite=True)
    assert (tmp_path / "latest").is_symlink()
    assert everything(tmp_path / "step_1")[1]["w"][0, 0] == 2


# -- writing


@pytest.mark.parametrize("form", FORMS)
def test_an_existing_target_needs_overwrite(tmp_path, form):
    path = bundle.write(tmp_path / "new" / "parent" / form, simple(1))
    with pytest.raises(FileExistsError, match="overwrite=True") as caught:
        bundle.write(path, simple(2))
    assert isinstance(caught.value, SerializationError)
    assert caught.value.errno == errno.EEXIST
    held = bundle.read(path)
    bundle.write(path, simple(2), overwrite=True)
    assert held.arrays["w"][0, 0] == 1  # a map of the old file stays what it was
    assert everything(path)[1]["w"][0, 0] == 2
    assert [entry.name for entry in path.parent.iterdir()] == [form]


@pytest.mark.parametrize("exchange", [True, False])
def test_overwriting_may_change_store_and_works_without_an_exchange(tmp_path, exchange, monkeypatch):
    if not exchange:
        monkeypatch.setattr(bundle, "_CALLS", {})
    for form in FORMS:
        path = bundle.write(tmp_path / form, simple(1))
        bundle.write(path, simple(2), overwrite=True, store="safetensors")
        assert everything(path)[1]["w"][0, 0] == 2
    assert sorted(entry.name for entry in tmp_path.iterdir()) == FORMS


def test_only_bundles_are_overwritten(tmp_path):
    thesis = bundle.write(tmp_path / "thesis", simple())
    (thesis / "thesis.txt").write_text("years")
    extension = tmp_path / "extension"
    extension.mkdir()
    (extension / "manifest.json").write_text('{"manifest_version": 3, "name": "x"}')
    folder = tmp_path / "folder"
    folder.mkdir()
    text = tmp_path / "text.zip"
    text.write_text("hello")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (thesis, extension, folder, text, pipe):
        with pytest.raises(FileExistsError, match="expected a bundle to overwrite"):
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
    for file in [path, *(_files(path) if path.is_dir() else [])]:
        assert file.stat().st_mode & 0o777 == (0o777 if file.is_dir() else 0o666) & ~mask


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("call", range(6))
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
from neuralqx_struct.payload import Payload
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
    run = subprocess.run([sys.executable, "-c", script, *targets], check=True, capture_output=True, text=True)
    assert run.stdout.split() == [str(errno.EFBIG)] * 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (Payload({"version": 1, "manifest": None, "arrays": {}}, {"w": np.zeros(1)}), "NQX410"),
        (payload_of({"w": np.array([None])}), "NQX411"),
        (payload_of({"w": np.ma.masked_array([1.0])}), "NQX612"),
        (payload_of({"w": np.zeros(2, np.longdouble)}), "NQX411"),
        (payload_of({}, metadata={"x": {1, 2}}), "NQX612"),
        (payload_of({}, metadata={1: 2}), "NQX006"),
        (payload_of({}, metadata={"x": float("nan")}), None),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path, payload, code):
    with pytest.raises(SerializationError) as caught:
        bundle.write(tmp_path / "c", payload)
    assert caught.value.code == (code or "NQX013")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_store(tmp_path):
    with pytest.raises(SerializationError, match="did you mean 'npz'"):
        bundle.write(tmp_path / "c", simple(), store="npzz")


def test_progress(tmp_path):
    for form in FORMS:
        for options in ({}, {"store": "safetensors"}, {"compress": True}):
            seen = []
            big = payload_of({"w": np.zeros(3 << 20), "b": np.arange(3)})
            bundle.write(tmp_path / form, big, overwrite=True, progress=lambda *a, seen=seen: seen.append(a), **options)
            assert seen[-1] == (8 * (3 << 20) + 24,) * 2
            assert seen == sorted(seen)


def test_leftovers_of_killed_writers_are_cleared_and_those_of_living_ones_are_not(tmp_path):
    dead = tmp_path / ".ckpt.tmp-0123456789ab"
    dead.mkdir()
    living = tmp_path / ".ckpt.tmp-ba9876543210"
    living.mkdir()
    stranger = tmp_path / ".ckpt.tmp-mine"
    stranger.mkdir()
    lock = bundle._lock(living)
    try:
        bundle.write(tmp_path / "ckpt", simple())
    finally:
        os.close(lock)
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
    monkeypatch.setattr(bundle, "_CALLS", {})
    path = bundle.write(tmp_path / "ckpt", simple(1))
    real = type(path).rename

    def fail(self, target):
        if ".tmp-" in self.name:
            raise OSError(errno.EIO, "no")
        return real(self, target)

    monkeypatch.setattr(type(path), "rename", fail)
    with pytest.raises(OSError, match="no"):
        bundle.write(path, simple(2), overwrite=True)
    assert everything(path)[1]["w"][0, 0] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["ckpt"]


# Forks a writer that overwrites one path for ever, whenever it is told to: a fork is ready at once.
FORKER = """
import os, sys
import numpy as np
from neuralqx_struct import bundle
from neuralqx_struct.payload import Payload

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


# -- seals and links


@pytest.mark.parametrize("form", [*FORMS, "ckpt/manifest.json"])
def test_seal(tmp_path, form):
    path = bundle.write(tmp_path / form.partition("/")[0], payload_of({"w": np.arange(3)}, metadata={"note": "colour"}))
    if path.is_dir():
        old = (path / "manifest.json").read_bytes()
        (path / "manifest.json").write_bytes(old.replace(b"colour", b"color"))
    else:
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data.replace(b"colour", b"color"))
    with pytest.raises(IntegrityError, match="seal") as caught:
        bundle.read_manifest(tmp_path / form)
    assert caught.value.code == "NQX407"
    bundle.seal(tmp_path / form)
    assert everything(path)[0]["metadata"] == {"note": "color"}
    assert bundle.verify(path) == []


def test_a_failed_seal_leaves_no_file(tmp_path, monkeypatch):
    path = bundle.write(tmp_path / "c", simple())
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "no")))
    with pytest.raises(OSError, match="no"):
        bundle.seal(path)
    monkeypatch.undo()
    assert sorted(p.name for p in path.iterdir()) == ["arrays.npz", "manifest.json"]
    assert bundle.verify(path) == []


@pytest.mark.parametrize("source_form", FORMS)
@pytest.mark.parametrize("target_form", FORMS)
def test_a_migration_writes_only_what_changes(tmp_path, source_form, target_form):
    source = bundle.write(tmp_path / "a" / source_form, payload_of({n: np.arange(4.0) for n in ("w", "b", "old")}))
    document = bundle.read_manifest(source)
    fields = document["manifest"]["fields"]
    fields["kernel"] = fields.pop("w")
    fields.pop("old")
    document["arrays"].pop("old")
    fields["b"].update(dtype="int8", shape=[2])
    document["arrays"]["b"].update(dtype="int8", shape=[2])
    target = bundle.write_linked(
        source, tmp_path / "b" / target_form, document, changed={"b": np.array([1, 2], np.int8)}
    )
    read, arrays = everything(target)
    assert np.array_equal(arrays["b"], [1, 2])
    assert np.array_equal(arrays["w"], np.arange(4.0))
    assert read["arrays"]["b"]["file"] == "arrays-1.npz"
    assert read["arrays"]["old"]["unused"] is True
    assert [(d.code, d.severity) for d in bundle.verify(target)] == [("NQX410", "info")]
    if source_form == target_form == "ckpt":
        assert (source / "arrays.npz").stat().st_ino == (target / "arrays.npz").stat().st_ino
    again = bundle.write_linked(target, tmp_path / "c" / target_form, read)
    assert everything(again)[1].keys() == arrays.keys()
    assert np.array_equal(everything(source)[1]["b"], np.arange(4.0))


def test_files_of_which_nothing_is_used_are_left_behind(tmp_path):
    source = bundle.write(tmp_path / "a", simple())
    document = bundle.read_manifest(source)
    new = {"w": np.ones((2, 3), np.float32), "b": np.arange(3)}
    target = bundle.write_linked(source, tmp_path / "b", document, changed=new)
    assert sorted(p.name for p in target.iterdir()) == ["arrays-1.npz", "manifest.json"]
    assert bundle.verify(target) == []


def test_where_links_are_impossible_bytes_are_copied(tmp_path, monkeypatch):
    source = bundle.write(tmp_path / "a", simple(3))

    def refuse(*_, **__):
        raise OSError(errno.EXDEV, "no")

    monkeypatch.setattr(os, "link", refuse)
    target = bundle.write_linked(source, tmp_path / "b", bundle.read_manifest(source))
    assert (source / "arrays.npz").stat().st_ino != (target / "arrays.npz").stat().st_ino
    assert everything(target)[1]["w"][0, 0] == 3


def test_a_linked_document_must_fit(tmp_path):
    source = bundle.write(tmp_path / "a", simple())
    document = bundle.read_manifest(source)
    document["arrays"]["x"] = {"dtype": "int8", "shape": []}
    with pytest.raises(IntegrityError, match="neither"):
        bundle.write_linked(source, tmp_path / "b", document)
    document = bundle.read_manifest(source)
    document["arrays"]["w"]["shape"] = document["manifest"]["fields"]["w"]["shape"] = [6]
    with pytest.raises(IntegrityError, match="changed="):
        bundle.write_linked(source, tmp_path / "b", document)
    document = bundle.read_manifest(source)
    with pytest.raises(IntegrityError, match="NQX412"):
        bundle.write_linked(source, tmp_path / "b", document, changed={"w": np.ones(9, np.float32)})
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_manifests_are_read_without_numpy(tmp_path):
    for form in FORMS:
        path = bundle.write(tmp_path / form, simple())
        code = f"import sys; from neuralqx_struct import bundle; bundle.read_manifest({str(path)!r}); assert 'numpy' not in sys.modules"
        subprocess.run([sys.executable, "-c", code], check=True)
