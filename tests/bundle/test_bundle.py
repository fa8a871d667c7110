"""Bundles: round trips, damage, hostile archives, seals, migrations without copies."""

import io
import json
import struct
import subprocess
import sys
import warnings
import zipfile

import numpy as np
import pytest

from neuralqx_struct import bundle
from neuralqx_struct.bundle.conversion import convert
from neuralqx_struct.errors import IntegrityError, SerializationError, StructError, UntrustedError
from neuralqx_struct.manifest import Limits
from neuralqx_struct.manifest.payload import Payload
from tests.builders import (
    FORMS,
    edit,
    every,
    everything,
    files,
    npy,
    payload_of,
    refused,
    simple,
    write_linked,
)

STORES = ["npz", "safetensors"]


@every("form", FORMS)
@every("store", STORES)
@every("mmap", [True, False])
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
    out = convert(folder, tmp_path / "out").out
    assert "crc32" in bundle.read_manifest(out)["arrays"]["arr_000001"]
    assert np.array_equal(everything(out)[1]["arr_000000"], arrays["arr_000000"])


# -- errors about what is there


def test_a_file_of_another_program_beside_its_settings(tmp_path):
    names = ["config.json", "arrays.npz"]
    folder = tmp_path / "run"
    folder.mkdir()
    for name in names:
        (folder / name).write_text("{}")
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as archive:
        for name in [*names, "model.weights.h5"]:
            archive.writestr(name, "{}")
    with refused(SerializationError, "NQX401") as lost:
        bundle.read(folder)
    assert lost.value.diagnostics[0].hint is None
    (folder / "model.weights.h5").touch()
    for path, inside in [
        (folder, folder / "model.weights.h5"),
        (tmp_path / "model.keras", "infer model.weights.h5"),
    ]:
        with refused(SerializationError, "NQX401") as caught:
            bundle.read(path)
        assert str(inside) in caught.value.diagnostics[0].hint


def test_nothing_there(tmp_path):
    for call in (bundle.read, bundle.read_manifest, bundle.seal):
        with pytest.raises(FileNotFoundError) as caught:
            call(tmp_path / "no")
        assert isinstance(caught.value, SerializationError)
        assert caught.value.code == "NQX401"
    assert [d.code for d in bundle.verify(tmp_path / "no")] == ["NQX401"]


def test_a_future_version_says_to_upgrade(tmp_path):
    path = bundle.write(tmp_path / "c", simple())
    edit(path, lambda document: document.update(version=2))
    with refused(SerializationError, "NQX402", "$.version", "2"):
        bundle.read(path)


@every(
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
        (
            lambda d: d["arrays"].update(
                v={"dtype": "int8", "shape": [1], "crc32": 0, "nbytes": 1}
            ),
            "NQX409",
        ),
        (lambda d: d["arrays"]["w"].update(file="arrays-1.npz"), "NQX409"),
        (lambda d: d["arrays"]["w"].update(file="../arrays.npz"), "NQX503"),
        (lambda d: d["arrays"]["w"].update(file="arrays.exe"), "NQX614"),
        (lambda d: d["arrays"]["w"].update(dtype="object"), "NQX411"),
        (lambda d: d["arrays"]["w"].update(shape=[0, 2**62, 4]), "NQX412"),
        (lambda d: d["arrays"]["w"].update(shape=[0, 2**70]), "NQX614"),
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
    assert sorted(d.path for d in bundle.verify(path) if d.code == "NQX407") == [
        "$.arrays.a",
        "$.arrays.c",
    ]
    assert "NQX412" in {d.code for d in bundle.verify(path)}
    with refused(IntegrityError, "NQX407", "$.arrays.w", "crc32"):
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
    assert [(d.code, d.severity) for d in bundle.verify(path)] == [
        ("NQX410", "info"),
        ("NQX410", "warning"),
    ]


def test_limits(tmp_path):
    path = bundle.write(tmp_path / "c", simple())
    for limits in (Limits(manifest_bytes=100), Limits(nodes=2), Limits(depth=1)):
        with refused(SerializationError, "NQX005"):
            bundle.read(path, limits=limits)
    deep = 5
    for _ in range(250):
        deep = {"__kind__": "list", "items": [deep]}
    with refused(SerializationError, "NQX005", "200"):
        bundle.write(tmp_path / "deep", Payload({"version": 1, "manifest": deep, "arrays": {}}, {}))
    assert not (tmp_path / "deep").exists()


# -- damage


@pytest.mark.parametrize("form", FORMS)
def test_a_flipped_bit_is_an_error_or_has_no_effect(tmp_path, form):
    path = bundle.write(tmp_path / form, payload_of({"w": np.array([1, 2, 3], np.int16)}))
    document, arrays = everything(path)
    for file in files(path):
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
    path = bundle.write(
        tmp_path / form, payload_of({"w": np.array([1, 2, 3], np.int16)}), store=store
    )
    for file in files(path):
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


GOOD = [("w.npy", npy(np.zeros((2, 3), np.float32))), ("b.npy", npy(np.arange(3)))]


def test_a_rebuilt_array_file_is_read(tmp_path):
    assert np.array_equal(everything(hostile(tmp_path, GOOD))[1]["b"], [0, 1, 2])


@every(
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
    with refused(UntrustedError, "NQX505"):
        everything(path, limits=Limits(manifest_bytes=1 << 20))


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
    with refused(UntrustedError, "NQX505"):
        everything(path)


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
    with refused(SerializationError, "NQX614", "npzz"):
        bundle.write(tmp_path / "c", simple(), store="npzz")


def test_progress(tmp_path):
    for form in FORMS:
        for options in ({}, {"store": "safetensors"}, {"compress": True}):
            seen = []
            big = payload_of({"w": np.zeros(3 << 20), "b": np.arange(3)})
            bundle.write(
                tmp_path / form,
                big,
                overwrite=True,
                progress=lambda *a, seen=seen: seen.append(a),
                **options,
            )
            assert seen[-1] == (8 * (3 << 20) + 24,) * 2
            assert seen == sorted(seen)


def test_the_manifest_in_a_folder_stands_for_the_folder(tmp_path):
    path = bundle.write(tmp_path / "ckpt", payload_of({"w": np.arange(3)}))
    assert bundle.read(path / "manifest.json").arrays["w"].tolist() == [0, 1, 2]


# -- seals and links


@pytest.mark.parametrize("form", [*FORMS, "ckpt/manifest.json"])
def test_seal(tmp_path, form):
    path = bundle.write(
        tmp_path / form.partition("/")[0],
        payload_of({"w": np.arange(3)}, metadata={"note": "colour"}),
    )
    if path.is_dir():
        old = (path / "manifest.json").read_bytes()
        (path / "manifest.json").write_bytes(old.replace(b"colour", b"color"))
    else:
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data.replace(b"colour", b"color"))
    with refused(IntegrityError, "NQX407", "$.digest", "seal"):
        bundle.read_manifest(tmp_path / form)
    bundle.seal(tmp_path / form)
    assert everything(path)[0]["metadata"] == {"note": "color"}
    assert bundle.verify(path) == []


@pytest.mark.parametrize("source_form", FORMS)
@pytest.mark.parametrize("target_form", FORMS)
def test_a_migration_writes_only_what_changes(tmp_path, source_form, target_form):
    source = bundle.write(
        tmp_path / "a" / source_form, payload_of({n: np.arange(4.0) for n in ("w", "b", "old")})
    )
    document = bundle.read_manifest(source)
    fields = document["manifest"]["fields"]
    fields["kernel"] = fields.pop("w")
    fields.pop("old")
    document["arrays"].pop("old")
    fields["b"].update(dtype="int8", shape=[2])
    document["arrays"]["b"].update(dtype="int8", shape=[2])
    target = write_linked(
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
    again = write_linked(target, tmp_path / "c" / target_form, read)
    assert everything(again)[1].keys() == arrays.keys()
    assert np.array_equal(everything(source)[1]["b"], np.arange(4.0))


def test_files_of_which_nothing_is_used_are_left_behind(tmp_path):
    source = bundle.write(tmp_path / "a", simple())
    document = bundle.read_manifest(source)
    new = {"w": np.ones((2, 3), np.float32), "b": np.arange(3)}
    target = write_linked(source, tmp_path / "b", document, changed=new)
    assert sorted(p.name for p in target.iterdir()) == ["arrays-1.npz", "manifest.json"]
    assert bundle.verify(target) == []


def test_a_linked_document_must_fit(tmp_path):
    source = bundle.write(tmp_path / "a", simple())
    document = bundle.read_manifest(source)
    record = {"dtype": "int8", "shape": []}
    document["arrays"]["x"] = record
    document["manifest"]["fields"]["x"] = {"__kind__": "array", "name": "x", **record}
    with refused(SerializationError, "NQX409"):
        write_linked(source, tmp_path / "b", document)
    document = bundle.read_manifest(source)
    document["arrays"]["w"]["shape"] = document["manifest"]["fields"]["w"]["shape"] = [6]
    with refused(SerializationError, "NQX412"):
        write_linked(source, tmp_path / "b", document)
    document = bundle.read_manifest(source)
    with refused(IntegrityError, "NQX412"):
        write_linked(source, tmp_path / "b", document, changed={"w": np.ones(9, np.float32)})
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_manifests_are_read_without_numpy(tmp_path):
    for form in FORMS:
        path = bundle.write(tmp_path / form, simple())
        code = f"import sys; from neuralqx_struct import bundle; bundle.read_manifest({str(path)!r}); assert not {{'numpy', 'jax', 'jsonschema'}} & set(sys.modules)"
        subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("name", "store"),
    [("b", "npz"), ("b", "safetensors"), ("b.zip", "safetensors"), ("b", "orbax")],
)
def test_a_bundle_without_arrays_is_sound_in_every_store(name, store, tmp_path):
    import neuralqx_struct as s

    path = s.export({"step": 1}, tmp_path / name, store=store)
    assert s.verify(path) == []
    assert s.load(path) == {"step": 1}


def test_an_array_that_replaced_another_of_its_name_is_taken_away(tmp_path):
    """The old bytes of `a` are still in the first file, and only the record of the new ones accounts for them."""
    first = bundle.write(
        tmp_path / "1", payload_of({"a": np.arange(4.0), "w": np.zeros(9), "b": np.ones(2)})
    )
    second = payload_of({"a": np.arange(4), "w": np.zeros(9), "b": np.ones(2)}).document
    third = payload_of({"w": np.zeros(9), "b": np.ones(2)}).document
    fourth = payload_of({"w": np.zeros(9), "b": np.arange(3)}).document
    steps = [
        (second, {"a": np.arange(4)}, ["arrays-1.npz", "arrays.npz"]),
        (third, {}, ["arrays-1.npz", "arrays.npz"]),
        (fourth, {"b": np.arange(3)}, ["arrays-1.npz", "arrays-2.npz", "arrays.npz"]),
        (third | {"arrays": {**third["arrays"]}}, {"b": np.ones(2)}, None),
        (second, {"a": np.arange(4)}, None),
    ]
    path = first
    for number, (document, changed, names) in enumerate(steps):
        path = write_linked(path, tmp_path / f"step-{number}", document, changed=changed)
        assert {d.severity for d in bundle.verify(path)} <= {"info"}, number
        held = everything(path)[1]
        for name, array in changed.items():
            assert np.array_equal(held[name], array)
        if names is not None:
            assert sorted(p.name for p in path.iterdir()) == [*names, "manifest.json"]
