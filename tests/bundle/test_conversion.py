"""Conversion of bundles: every form and store into every other, nothing lost, one array at a time."""

import io
import json
import subprocess
import sys
import tracemalloc
import weakref
import zipfile

import ml_dtypes
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.bundle import BundleExistsError
from neuralqx_struct.bundle.conversion import convert
from neuralqx_struct.errors import IntegrityError, SerializationError
from neuralqx_struct.manifest.payload import Payload, StoredArrays
from tests.builders import ROOT, every, invoke, refused, write_linked

FORMS = ["ckpt", "ckpt.zip"]
WAYS = [{"store": "npz"}, {"store": "npz", "compress": True}, {"store": "safetensors"}]


def payload_of(arrays, **more):
    records = {name: {"dtype": str(a.dtype), "shape": list(a.shape)} for name, a in arrays.items()}
    fields = {
        name: {"__kind__": "array", "name": name, **record} for name, record in records.items()
    }
    return Payload(
        {
            "version": 1,
            "manifest": {"__kind__": "struct", "type": "pkg:State", "fields": fields},
            "arrays": records,
            **more,
        },
        arrays,
    )


def sample():
    return payload_of(
        {
            "w": np.arange(6.0).reshape(2, 3),
            "h/x": np.array([1, 2], ml_dtypes.bfloat16),
            "e": np.zeros((0, 3), np.int8),
            "s": np.array(5, ">i4"),
        },
        metadata={"run": 1},
    )


def contents(path):
    held = bundle.read(path)
    return {n: (str(a.dtype), a.shape, a.tobytes()) for n, a in held.arrays.items()}, held.document


@every("source_form", FORMS)
@every("target_form", FORMS)
@every("first", WAYS)
@every("second", WAYS)
def test_every_form_becomes_every_other(tmp_path, source_form, target_form, first, second):
    source = bundle.write(tmp_path / "a" / source_form, sample(), **first)
    done = convert(source, tmp_path / "b" / target_form, **second)
    values, document = contents(done.out)
    wanted, original = contents(source)
    assert values == wanted
    assert {k: document[k] for k in ("manifest", "metadata", "version")} == {
        k: original[k] for k in ("manifest", "metadata", "version")
    }
    assert bundle.verify(done.out) == []
    assert (done.store, done.arrays, done.nbytes, done.dropped) == (
        second["store"],
        4,
        48 + 4 + 4,
        (),
    )
    direct = bundle.write(tmp_path / "c" / target_form, sample(), **second)
    file = {"npz": "arrays.npz", "safetensors": "arrays.safetensors"}[second["store"]]
    if target_form == "ckpt":
        assert (done.out / file).read_bytes() == (direct / file).read_bytes()
    else:
        assert done.out.read_bytes() == direct.read_bytes()


def test_the_store_stays_and_compression_is_undone_unless_asked_for(tmp_path):
    source = bundle.write(tmp_path / "a", sample(), store="safetensors")
    assert convert(source, tmp_path / "b.zip").store == "safetensors"
    packed = bundle.write(tmp_path / "packed", sample(), compress=True)
    done = convert(packed, tmp_path / "unpacked")
    assert not done.linked
    assert all("offset" in record for record in bundle.read_manifest(done.out)["arrays"].values())


def test_what_does_not_change_is_linked(tmp_path):
    source = bundle.write(tmp_path / "a", sample())
    seen = []
    done = convert(source, tmp_path / "b", compact=True, progress=lambda *a: seen.append(a))
    assert done.linked and seen == [(done.nbytes, done.nbytes)]
    assert (source / "arrays.npz").samefile(done.out / "arrays.npz")
    assert (source / "manifest.json").read_bytes() == (done.out / "manifest.json").read_bytes()
    assert not (source / "manifest.json").samefile(
        done.out / "manifest.json"
    )  # it may be edited by hand


@pytest.mark.parametrize("form", FORMS)
def test_compact_drops_what_nothing_uses_and_joins_files(tmp_path, form):
    source = bundle.write(tmp_path / "a", sample())
    small = payload_of({"w": np.zeros((2, 3)), "new": np.arange(3)})
    migrated = write_linked(source, tmp_path / "m", small.document, changed={"new": np.arange(3)})
    assert {"arrays-1.npz"} < {p.name for p in migrated.iterdir()}
    kept = convert(migrated, tmp_path / f"kept-{form}")
    assert kept.linked == (form == "ckpt")
    assert sorted(bundle.read_manifest(kept.out)["arrays"]) == ["e", "h/x", "new", "s", "w"]
    assert [d.severity for d in bundle.verify(kept.out)] == ["info"] * 3
    done = convert(migrated, tmp_path / form, compact=True)
    assert done.dropped == ("h/x", "e", "s") or sorted(done.dropped) == ["e", "h/x", "s"]
    assert bundle.verify(done.out) == []
    assert "left out" in str(done)
    values, document = contents(done.out)
    assert sorted(values) == ["new", "w"] and not any(
        "file" in r for r in document["arrays"].values()
    )
    assert values["w"] == contents(source)[0]["w"]


@pytest.mark.parametrize("form", FORMS)
def test_a_bundle_of_neuralqx_becomes_ours(tmp_path, form):
    arrays = {
        "arr_000000": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "arr_000001": np.array([1], "bfloat16"),
    }
    document = payload_of(arrays).document
    items = [float("nan"), {"__kind__": "complex", "real": float("inf"), "imag": 1.0}, 2.5]
    document["manifest"]["fields"]["x"] = {"__kind__": "list", "items": items}
    npz = io.BytesIO()
    np.savez_compressed(npz, **arrays)
    source = tmp_path / "theirs.zip"
    with zipfile.ZipFile(source, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", json.dumps(document))
        archive.writestr("arrays.npz", npz.getvalue())
    done = convert(source, tmp_path / form)
    assert bundle.verify(done.out) == []
    written = bundle.read_manifest(done.out)
    assert written["manifest"]["fields"]["x"]["items"] == [
        {"__kind__": "float", "value": "nan"},
        {"__kind__": "complex", "real": {"__kind__": "float", "value": "inf"}, "imag": 1.0},
        2.5,
    ]
    assert written["writer"]["name"] == "neuralqx-struct"
    assert all(
        {"crc32", "offset", "nbytes"} <= record.keys() for record in written["arrays"].values()
    )
    assert contents(done.out)[0] == contents(source)[0]


def test_targets(tmp_path):
    source = bundle.write(tmp_path / "a", sample())
    with pytest.raises(BundleExistsError):
        convert(source, source, compress=True)
    done = convert(
        source, source, compress=True, overwrite=True
    )  # onto itself: the old files are still mapped
    assert bundle.verify(done.out) == [] and not done.linked
    (tmp_path / "other/inner").mkdir(parents=True)
    with pytest.raises(BundleExistsError):
        convert(source, tmp_path / "other", overwrite=True)
    with pytest.raises(FileNotFoundError):
        convert(tmp_path / "none", tmp_path / "b")
    with refused(SerializationError, "NQX614", "hdf5"):
        convert(source, tmp_path / "b", store="hdf5")
    assert not (tmp_path / "b").exists()


def test_damage_stops_it_and_leaves_nothing(tmp_path):
    source = bundle.write(tmp_path / "a", sample())
    offset = bundle.read_manifest(source)["arrays"]["w"]["offset"]
    data = bytearray((source / "arrays.npz").read_bytes())
    data[offset] ^= 1
    (source / "arrays.npz").write_bytes(data)
    with refused(IntegrityError, "NQX407", source / "arrays.npz"):
        convert(source, tmp_path / "b.zip")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("way", WAYS)
def test_never_more_than_one_array_in_memory(tmp_path, way):
    arrays = {f"x{i}": np.full(1 << 18, i, np.float64) for i in range(12)}  # 2 MiB each
    source = bundle.write(tmp_path / "a", payload_of(arrays), compress=True)
    seen = []
    tracemalloc.start()
    convert(source, tmp_path / "b", **way, progress=lambda *a: seen.append(a))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * (2 << 20) + (
        5 << 20
    )  # an array, expanded and its copies, and the writer's buffer; not twelve
    assert seen[-1] == (24 << 20, 24 << 20) and len(seen) >= 12 and seen == sorted(seen)


# ---------------------------------------------------------------------------------------------------------------------
# The command


def test_the_command(tmp_path):
    source = s.export({"w": np.arange(3.0)}, tmp_path / "a")
    result = invoke(
        "convert", source, "--out", tmp_path / "b.zip", "--store", "safetensors", "--format", "json"
    )
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "version": 1,
        "command": "convert",
        "ok": True,
        "diagnostics": [],
        "out": str(tmp_path / "b.zip"),
        "store": "safetensors",
        "arrays": 1,
        "nbytes": 24,
        "dropped": [],
        "linked": False,
    }
    assert s.load(tmp_path / "b.zip")["w"].tolist() == [0, 1, 2]
    for style in ("text", "github"):
        result = invoke("convert", source, "--out", tmp_path / f"c-{style}", "--format", style)
        assert result.exit_code == 0
        assert result.stdout.startswith(f"written to {tmp_path / f'c-{style}'}: 1 array, 24 bytes")


def test_the_exit_codes(tmp_path):
    source = s.export({"w": np.arange(3.0)}, tmp_path / "a")
    target = tmp_path / "b"
    assert invoke("convert", source, "--out", target, "--compress").exit_code == 0
    taken = invoke("convert", source, "--out", target)
    assert taken.exit_code == 2 and "--overwrite" in taken.stderr
    assert invoke("convert", source, "--out", target, "--overwrite").exit_code == 0
    assert invoke("convert", tmp_path / "none", "--out", tmp_path / "c").exit_code == 2
    ran = invoke("convert", source, "--out", tmp_path / "c", "--store", "safetensors", "--compress")
    assert ran.exit_code == 1 and "NQX614" in ran.stdout
    offset = bundle.read_manifest(source)["arrays"]["w"]["offset"]
    data = bytearray((source / "arrays.npz").read_bytes())
    data[offset] ^= 1
    (source / "arrays.npz").write_bytes(data)
    damaged = invoke("convert", source, "--out", tmp_path / "d.zip", "--format", "github")
    assert (
        damaged.exit_code == 1
        and damaged.stdout.startswith("::error")
        and "NQX407" in damaged.stdout
    )


def test_the_command_imports_no_jax(tmp_path):
    source = s.export({"w": np.arange(3.0)}, tmp_path / "a")
    code = (
        "import sys; from neuralqx_struct.cli import main\n"
        f"sys.argv = ['x', 'convert', {str(source)!r}, '--out', {str(tmp_path / 'b.zip')!r}, '--compress']\n"
        "try: main()\nexcept SystemExit as end: assert not end.code\n"
        "assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_validate_takes_compressed_bundles_that_are_smaller_than_their_arrays(tmp_path):
    path = s.export(
        {"w": np.zeros(1 << 16)[::-1] + np.arange(1 << 16) // 9999}, tmp_path / "a", compress=True
    )
    assert s.validate(path) == []


@pytest.mark.parametrize(
    "words", [("verify", "{a}"), ("convert", "{a}", "--out", "{b}", "--store", "safetensors")]
)
def test_a_bar_is_shown_on_a_terminal_and_the_results_stay_clean(tmp_path, monkeypatch, words):
    import contextlib
    import importlib

    source = s.export({"w": np.arange(3.0)}, tmp_path / "a")
    seen = []

    @contextlib.contextmanager
    def bar(title):
        seen.append(title)
        yield lambda done, total: seen.append((done, total))

    command = importlib.import_module(f"neuralqx_struct.cli.commands.{words[0]}")
    monkeypatch.setattr(command, "progress_bar", bar)
    result = invoke(*(word.format(a=source, b=tmp_path / "b.zip") for word in words))
    assert result.exit_code == 0
    assert seen == ["verifying a" if words[0] == "verify" else "converting", (24, 24)]


def test_migrations_that_write_arrays_tell_their_progress(tmp_path):
    source = s.export({"w": np.arange(3.0)}, tmp_path / "a")
    document = bundle.read_manifest(source)
    seen = []
    write_linked(
        source,
        tmp_path / "b",
        document,
        changed={"w": np.ones(3)},
        progress=lambda *a: seen.append(a),
    )
    assert seen == [(24, 24)]
    assert s.load(tmp_path / "b")["w"].tolist() == [1, 1, 1]


class _Computed(StoredArrays):
    """Arrays that are made when they are asked for; knows how many of them live at most."""

    def __init__(self, names):
        super().__init__(names)
        self.names, self.living, self.most = names, 0, 0

    def __getitem__(self, name):
        made = np.full(100_000, self.names.index(name), "f4")
        self.living += 1
        self.most = max(self.most, self.living)
        weakref.finalize(made, self._gone)
        return made

    def _gone(self):
        self.living -= 1

    def __iter__(self):
        return iter(self.names)

    def __len__(self):
        return len(self.names)

    def verify(self, name):
        return None


@pytest.mark.parametrize("store", ["npz", "safetensors", "orbax"])
def test_stores_hold_one_computed_array_at_a_time(tmp_path, store):
    names = ["a", "b", "c", "d"]
    arrays = _Computed(names)
    record = {"dtype": "float32", "shape": [100_000]}
    nodes = [{"__kind__": "array", "name": name, **record} for name in names]
    document = {
        "version": 1,
        "manifest": {"__kind__": "list", "items": nodes},
        "arrays": dict.fromkeys(names, record),
    }
    bundle.write(tmp_path / "b", Payload(document, arrays), store=store)
    assert arrays.most == 1
    held = bundle.read(tmp_path / "b").arrays
    assert [held[name][0] for name in names] == [0, 1, 2, 3]
