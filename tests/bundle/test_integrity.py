"""Damage of stored bytes: whatever a bad disk, a cut download or a mixed-up copy does, no wrong value comes out.

Every test damages files of a bundle and loads it through the public API: an error that names the file (and the array, where
its bytes are hit), or the very values that were saved.
"""

import itertools
import json
import os
import random
import shutil
from contextlib import contextmanager

import jax.numpy as jnp
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.errors import has_errors
from tests.builders import every

CASES = {
    "folder": ("ckpt", {}),
    "zip": ("ckpt.zip", {}),
    "compressed": ("ckpt", {"compress": True}),
    "compressed zip": ("ckpt.zip", {"compress": True}),
    "safetensors": ("ckpt", {"store": "safetensors"}),
    "safetensors zip": ("ckpt.zip", {"store": "safetensors"}),
}
SMALL = {"w": np.array([1, -2, 3], np.int16), "n": 7, "x": 0.1}


def saved(folder, case, obj):
    form, options = CASES[case]
    return s.export(obj, folder / form, metadata={"run": 1}, **options)


def files(path):
    return [path] if path.is_file() else sorted(path.iterdir())


def same(found, wanted):
    if isinstance(wanted, dict):
        return (
            type(found) is dict
            and list(found) == list(wanted)
            and all(same(found[k], wanted[k]) for k in wanted)
        )
    if isinstance(wanted, np.ndarray):
        return (
            type(found) is np.ndarray
            and found.dtype == wanted.dtype
            and found.shape == wanted.shape
            and found.tobytes() == wanted.tobytes()
        )
    return type(found) is type(wanted) and found == wanted


def refusal(path, wanted, **options):
    """The error of a load, None if it gave what was saved; anything else fails the test."""
    try:
        found = s.load(path, **options)
    except s.SerializationError as error:
        assert error.diagnostics
        for diagnostic in error.diagnostics:
            assert diagnostic.file is not None and diagnostic.file.startswith(str(path)), str(error)
            assert diagnostic.severity == "error" and diagnostic.code.startswith("NQX")
        return error
    assert same(found, wanted)
    return None


@contextmanager
def open_file(file):
    descriptor = os.open(file, os.O_RDWR)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def flip(file, bits):
    """Flip one bit after the other, in place; the file is whole again at the end."""
    whole = file.read_bytes()
    with open_file(file) as descriptor:
        for bit in bits:
            at, mask = bit >> 3, 1 << (bit & 7)
            os.pwrite(descriptor, bytes([whole[at] ^ mask]), at)
            yield bit
            os.pwrite(descriptor, whole[at : at + 1], at)
    assert file.read_bytes() == whole


def data_of(path, file):
    """Ranges of a file that hold array data, by array."""
    base = 0
    if path.is_file():
        from neuralqx_struct.formats.archive import read_directory

        members = {
            member.name: member.start for member in read_directory(memoryview(path.read_bytes()))
        }
        base = next(start for name, start in members.items() if name != "manifest.json")
    elif file.name == "manifest.json":
        return {}
    return {
        name: range(base + record["offset"], base + record["offset"] + record["nbytes"])
        for name, record in bundle.read_manifest(path)["arrays"].items()
        if "offset" in record
    }


@pytest.mark.parametrize("case", CASES)
def test_flipped_bits_of_small_bundles(tmp_path, case):
    """One or two bits of each byte: 5 and 8 have no common divisor, so every bit of a byte has its turn."""
    check_flipped_bits(tmp_path, case, 5)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_flipped_bit_of_small_bundles(tmp_path, case):
    check_flipped_bits(tmp_path, case, 1)


def check_flipped_bits(tmp_path, case, step):
    path = saved(tmp_path, case, SMALL)
    refused = 0
    for file in files(path):
        held = data_of(path, file)
        for bit in flip(file, range(0, 8 * file.stat().st_size, step)):
            error = refusal(path, SMALL)
            refused += error is not None
            hit = [name for name, place in held.items() if bit >> 3 in place]
            if hit:
                assert isinstance(error, s.IntegrityError), (file, bit)
                assert hit[0] in str(error) and file.name in str(error), (file, bit)
            if error is not None and bit % 11 == 0:
                assert has_errors(s.verify(path)), (file, bit)
    assert refused > 4000 // step
    assert s.verify(path) == []


LARGER = {
    "many": {f"a{i}": np.arange(12.0) + i for i in range(24)},
    "one": {"w": np.random.default_rng(0).normal(size=7500)},
    "mixed": {
        "b": jnp.arange(2000, dtype=jnp.bfloat16),
        "c": np.full((20, 50), 1 + 2j),
        "u": np.array(["é", "xyz"] * 300),
        "t": (1, 2.5, "text", b"bytes", None, 2**80, float("nan")),
    },
}


def plain(value):
    """A value that `same` compares bit by bit."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, tuple):
        return repr(value)
    return np.asarray(value)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("content", LARGER)
@pytest.mark.parametrize("case", ["folder", "zip"])
def test_every_flipped_bit_of_bundles_up_to_64_kib(tmp_path, case, content):
    path = saved(tmp_path, case, LARGER[content])
    wanted = plain(LARGER[content])
    for file in files(path):
        assert file.stat().st_size < 1 << 16
        for bit in flip(file, range(8 * file.stat().st_size)):
            try:
                found = s.load(path)
            except s.SerializationError as error:
                assert all(d.file and d.file.startswith(str(path)) for d in error.diagnostics), (
                    file,
                    bit,
                )
            else:
                assert same(plain(found), wanted), (file, bit)
    assert s.verify(path) == []


@contextmanager
def flipped(file, bits):
    """Some bits of a file, the other way round while the block runs."""

    def turn():
        with file.open("r+b") as opened:
            for bit in bits:
                opened.seek(bit >> 3)
                byte = opened.read(1)[0]
                opened.seek(bit >> 3)
                opened.write(bytes([byte ^ 1 << (bit & 7)]))

    turn()
    try:
        yield
    finally:
        turn()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", ["folder", "zip"])
def test_ten_thousand_flipped_bits_of_64_mib(tmp_path, case):
    """One bit in each array at a time: arrays have checksums of their own, and `verify` tells of all damage at once."""
    wanted = {f"a{i}": np.random.default_rng(i).normal(size=1 << 19) for i in range(16)}
    path = saved(tmp_path, case, wanted)
    dice = random.Random(4)
    for file in files(path):
        size = file.stat().st_size
        held = data_of(path, file)
        waiting = {name: [] for name in held}
        alone = []
        for bit in (dice.randrange(8 * size) for _ in range(10_000 if size > 1 << 20 else 500)):
            hit = next((name for name, place in held.items() if bit >> 3 in place), None)
            (alone if hit is None else waiting[hit]).append(bit)
        for bit in alone:
            with flipped(file, [bit]):
                try:
                    found = s.load(path)
                except s.SerializationError:
                    continue
                assert same(found, wanted), bit
        for bits in itertools.zip_longest(*waiting.values()):
            with flipped(file, [bit for bit in bits if bit is not None]):
                hit = {name for name, bit in zip(waiting, bits, strict=True) if bit is not None}
                told = "".join(str(d) for d in s.verify(path) if d.severity == "error")
                assert {
                    name for name in held if f"arrays.{name}:" in told or f"'{name}'" in told
                } == hit, bits
                with pytest.raises(s.IntegrityError):
                    s.load(path)
    assert s.verify(path) == []


# -- what happens to more than one bit


@pytest.mark.parametrize("case", CASES)
def test_every_truncation(tmp_path, case):
    path = saved(tmp_path, case, SMALL)
    for file in files(path):
        whole = file.read_bytes()
        for length in range(len(whole.rstrip())):
            file.write_bytes(whole[:length])
            error = refusal(path, SMALL)
            assert error is not None and str(file) in str(error), (file, length)
            if length % 16 == 0:
                assert [d for d in s.verify(path) if d.severity == "error"], (file, length)
        file.write_bytes(whole)
    assert s.verify(path) == []


@every("case", CASES)
@every("tail", [b"\0", b"x", b"\n", b"\n}", bytes(4096), b"PK\5\6" + bytes(18)])
def test_appended_bytes(tmp_path, case, tail):
    path = saved(tmp_path, case, SMALL)
    for file in files(path):
        whole = file.read_bytes()
        file.write_bytes(whole + tail)
        error = refusal(path, SMALL)
        assert error is not None or (file.name == "manifest.json" and not tail.strip())
        file.write_bytes(whole + whole)  # copied to its own end
        assert refusal(path, SMALL) is not None
        file.write_bytes(whole)


@pytest.mark.parametrize("case", ["folder", "zip", "safetensors"])
@pytest.mark.parametrize("page", [512, 4096])
def test_lost_pages(tmp_path, case, page):
    """Sectors that a disk gave back as zeros, or as what stood there before."""
    wanted = {f"a{i}": np.random.default_rng(i).normal(size=500) for i in range(10)}
    path = saved(tmp_path, case, wanted)
    other = [
        f.read_bytes()
        for f in files(saved(tmp_path / "other", case, {k: v + 1 for k, v in wanted.items()}))
    ]
    for file, older in zip(files(path), other, strict=True):
        whole = file.read_bytes()
        for at in range(0, len(whole), page):
            for junk in (bytes(page), b"\xff" * page, older[at : at + page], whole[:page]):
                damaged = (whole[:at] + junk[: len(whole) - at] + whole[at + page :])[: len(whole)]
                if len(damaged) == len(whole) and damaged != whole:
                    file.write_bytes(damaged)
                    assert refusal(path, wanted) is not None, (file, at)
        file.write_bytes(whole)
    assert s.verify(path) == []


def test_swapped_files_and_members(tmp_path):
    first = {"a": np.arange(100.0), "b": np.arange(100.0) + 1}
    one = s.export(first, tmp_path / "one")
    two = s.export({"a": first["b"], "b": first["a"]}, tmp_path / "two")
    for name in ("arrays.npz", "manifest.json"):
        mixed = tmp_path / f"mixed {name}"
        shutil.copytree(one, mixed)
        shutil.copy(two / name, mixed / name)
        error = refusal(mixed, first)
        assert isinstance(error, s.IntegrityError) and error.code == "NQX407"
        assert sorted({d.path for d in s.verify(mixed)}) == ["$.arrays.a", "$.arrays.b"]
    # The two members change places, or names, inside the file.
    whole = (one / "arrays.npz").read_bytes()
    places = [bundle.read_manifest(one)["arrays"][name]["offset"] for name in "ab"]
    data = [whole[at : at + 800] for at in places]
    swapped = bytearray(whole)
    for at, piece in zip(places, reversed(data), strict=True):
        swapped[at : at + 800] = piece
    renamed = (
        whole.replace(b"a.npy", b"?.npy").replace(b"b.npy", b"a.npy").replace(b"?.npy", b"b.npy")
    )
    for damaged in (bytes(swapped), renamed):
        (one / "arrays.npz").write_bytes(damaged)
        assert isinstance(refusal(one, first), s.IntegrityError)
        assert {d.path for d in s.verify(one)} == {"$.arrays.a", "$.arrays.b"}


# -- verify tells all of it at once


@pytest.mark.parametrize("case", ["folder", "zip", "safetensors"])
def test_verify_reports_all_damage_at_once(tmp_path, case):
    wanted = {name: np.random.default_rng(1).normal(size=64) for name in "abcdef"}
    path = saved(tmp_path, case, wanted)
    file = next(f for f in files(path) if f.name != "manifest.json")
    held = data_of(path, file)
    with open_file(file) as descriptor:
        for name in "bdf":
            at = held[name][17]
            os.pwrite(descriptor, bytes([file.read_bytes()[at] ^ 0x10]), at)
    found = s.verify(path)
    assert [(d.code, d.path, d.severity) for d in found] == [
        ("NQX407", f"$.arrays.{n}", "error") for n in "bdf"
    ]
    assert all(d.hint and d.file.startswith(str(path)) for d in found)
    error = refusal(path, wanted)
    assert isinstance(error, s.IntegrityError)
    assert {d.path for d in error.diagnostics} == {f"$.arrays.{n}" for n in "bdf"}
    # What is not hit can still be had.
    assert same(s.load(path, select="path:a", verify=True)["a"], wanted["a"])


def test_verify_reports_the_manifest_and_the_arrays_together(tmp_path):
    path = s.export(
        {"a": np.arange(9), "b": np.arange(9)}, tmp_path / "ckpt", metadata={"note": "old"}
    )
    manifest = path / "manifest.json"
    with open_file(path / "arrays.npz") as descriptor:
        os.pwrite(descriptor, b"\xff", bundle.read_manifest(path)["arrays"]["b"]["offset"])
    manifest.write_bytes(manifest.read_bytes().replace(b'"old"', b'"new"'))
    (path / "arrays-7.npz").touch()
    assert [(d.code, d.path) for d in s.verify(path)] == [
        ("NQX407", "$.digest"),
        ("NQX407", "$.arrays.b"),
        ("NQX410", ""),
    ]


def test_without_a_checksum_neuralqx_files_are_still_protected(tmp_path):
    """The other format has no digest of its manifest; its arrays have zip's checksums."""
    path = tmp_path / "ckpt"
    path.mkdir()
    node = {"__kind__": "array", "name": "arr_000000", "dtype": "int64", "shape": [3]}
    record = {"arr_000000": {"dtype": "int64", "shape": [3]}}
    text = json.dumps({"version": 1, "manifest": node, "arrays": record})
    (path / "manifest.json").write_text(text)
    np.savez_compressed(path / "arrays.npz", arr_000000=np.arange(3))
    wanted = np.asarray(s.load(path))
    for _ in flip(path / "arrays.npz", range(8 * (path / "arrays.npz").stat().st_size)):
        try:
            found = s.load(path)
        except s.SerializationError as error:
            assert all(d.file and d.file.startswith(str(path)) for d in error.diagnostics)
        else:
            assert np.array_equal(found, wanted)


@pytest.mark.parametrize(
    ("store", "place"), [("npz", 3), ("npz", 40), ("safetensors", 9), ("safetensors", 3)]
)
def test_damage_to_a_text_is_an_integrity_error_too(tmp_path, store, place):
    path = s.export({"w": np.arange(3)}, tmp_path / "c", store=store)
    file = path / ("manifest.json" if store == "npz" else "arrays.safetensors")
    data = bytearray(file.read_bytes())
    data[place] ^= 0x80
    file.write_bytes(data)
    for read in (s.load, bundle.read_manifest) if store == "npz" else (s.load,):
        with pytest.raises(s.IntegrityError) as caught:
            read(path)
        assert all(str(path) in d.file for d in caught.value.diagnostics)
    assert {d.code for d in s.verify(path)} & {"NQX001", "NQX408"}
