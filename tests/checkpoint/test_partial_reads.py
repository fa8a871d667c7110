"""Reading some arrays: what is wrong with the others is found by readers of all, and by `verify`.

With ``progress=`` a reader takes the plain path, which validates and compares everything.
"""

import json

import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.manifest.text import reseal
from tests.builders import refused

NAMES = ("a", "b", "c")


@pytest.fixture(params=[True, False], ids=["mapped", "copied"])
def options(request):
    return {"mmap": request.param}


@pytest.fixture
def path(tmp_path):
    arrays = {name: np.arange(50.0) + place for place, name in enumerate(NAMES)}
    return s.export({**arrays, "step": 3}, tmp_path / "ckpt")


def plain(path, **options):
    return s.load(path, progress=lambda done, total: None, **options)


def only(name):
    return s.filters.PathIn((name,))


def damage(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def record_of(path, name):
    return bundle.read_manifest(path)["arrays"][name]


def changed(path, change):
    """The bundle with another manifest, whose digest is right."""
    document = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    change(document)
    (path / "manifest.json").write_text(json.dumps(document, indent=2), encoding="utf-8")
    bundle.seal(path)
    return path


def codes(error):
    return [(d.code, d.path, d.message) for d in error.value.diagnostics]


def test_part_is_read_as_by_the_plain_path(path, options):
    for name in NAMES:
        found, wanted = (load(path, select=only(name), **options) for load in (s.load, plain))
        assert found.keys() == wanted.keys()
        assert {key for key in NAMES if found[key] is not None} == {name}
        np.testing.assert_array_equal(found[name], wanted[name])
        assert found["step"] == 3


@pytest.mark.parametrize("where", ["data", "header", "directory"])
def test_damage_of_other_arrays_is_found_by_readers_of_all(path, options, where):
    at = record_of(path, "a")["offset"]
    entry = (path / "arrays.npz").read_bytes().index(b"PK\1\2")
    damage(path / "arrays.npz", {"data": at, "header": at - 3, "directory": entry}[where])
    assert s.load(path, select=only("b"), **options)["b"][0] == 1
    assert s.verify(path)
    with pytest.raises(s.IntegrityError):
        s.load(path, **options)


@pytest.mark.parametrize("back", [0, 3], ids=["data", "header"])
def test_damage_of_the_array_is_found(path, options, back):
    damage(path / "arrays.npz", record_of(path, "b")["offset"] - back)
    with pytest.raises(s.IntegrityError) as found:
        s.load(path, select=only("b"), **options)
    with pytest.raises(s.IntegrityError) as wanted:
        plain(path, select=only("b"), **options)
    assert codes(found) == codes(wanted)


def test_every_damage_of_the_manifest_is_found(path):
    sound = (path / "manifest.json").read_bytes()
    for place in range(0, len(sound), 7):
        damage(path / "manifest.json", place)
        with pytest.raises(s.SerializationError):
            s.load(path, select=only("b"))
        (path / "manifest.json").write_bytes(sound)


def member(name, key, value):
    def change(document):
        document["arrays"][name][key] = value

    return change


UNREAD = {
    "checksum of another type": member("a", "crc32", "x"),
    "offset beyond the file": member("a", "offset", 1 << 40),
    "unknown member": member("a", "later", 1),
}


@pytest.mark.parametrize("change", UNREAD.values(), ids=UNREAD)
def test_record_is_validated_when_its_array_is_read(path, change):
    changed(path, change)
    assert s.load(path, select=only("b"))["b"][0] == 1
    with pytest.raises(s.SerializationError) as found:
        s.load(path, select=only("a"))
    with pytest.raises(s.SerializationError) as wanted:
        s.load(path)
    assert codes(found) == codes(wanted)


def renamed(document):
    document["arrays"]["z"] = document["arrays"].pop("a")


EVERYWHERE = {
    "dtype of its own": member("a", "dtype", "float32"),
    "dtype that is none": member("a", "dtype", 5),
    "another shape": member("a", "shape", [49]),
    "no shape": lambda document: document["arrays"]["a"].pop("shape"),
    "no checksum": lambda document: document["arrays"]["a"].pop("crc32"),
    "a file that leads elsewhere": member("a", "file", "../x.npz"),
    "a file that is not there": member("a", "file", "other.npz"),
    "no record": lambda document: document["arrays"].pop("a"),
    "another name": renamed,
    "no object": lambda document: document["arrays"].update(a=5),
    "unused": member("a", "unused", True),
}


@pytest.mark.parametrize("change", EVERYWHERE.values(), ids=EVERYWHERE)
def test_disagreement_of_nodes_and_records_is_found_by_every_reader(path, change):
    changed(path, change)
    with pytest.raises(s.SerializationError) as found:
        s.load(path, select=only("b"))
    with pytest.raises(s.SerializationError) as wanted:
        plain(path, select=only("b"))
    assert codes(found) == codes(wanted)


def test_repeated_member_of_an_unread_record_is_found(path):
    data = (path / "manifest.json").read_bytes()
    data = data.replace(b'"crc32"', b'"crc32": 1, "crc32"', 1)
    (path / "manifest.json").write_bytes(reseal(data))
    with refused(s.SerializationError, "NQX014"):
        s.load(path, select=only("c"))
