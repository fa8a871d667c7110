"""What neuraLQX 1.1.2 does wrong with strictness, errors, safety and files, line by line, and what is done here instead."""

import errno
import importlib
import io
import json
import os
import stat
import sys
import tracemalloc
import zipfile

import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct import bundle
from tests.builders import FORMS, edit, every, npy, refused


class Other(s.Struct):
    x: object = 0


class Odd(s.Struct):
    name: object
    items: object
    type: object


def manifest_of(path):
    return json.loads((path / "manifest.json").read_text())


def strict(text):
    def refuse(token):
        raise ValueError(token)

    return json.loads(text, parse_constant=refuse)


def codes(path):
    with pytest.raises(s.SerializationError) as caught:
        s.load(path)
    return caught.value


# -- strictness and errors


def test_nan_and_infinity_are_strict_json(tmp_path):
    value = [
        float("nan"),
        float("inf"),
        float("-inf"),
        -0.0,
        complex("nan"),
        np.float64("nan"),
        {float("inf"): 1},
    ]
    path = s.export(value, tmp_path / "c")
    strict((path / "manifest.json").read_text())
    found = s.load(path)
    assert repr(found) == repr(value)


@every("version", [99, 2, 0, -1, True, 1.0, "1", None, "absent"])
def test_load_and_from_state_dict_look_at_the_version(tmp_path, version):
    path = s.export(Other(1), tmp_path / "c")
    payload = s.to_state_dict(Other(1))
    for document in (manifest := manifest_of(path), payload):
        document.pop("digest", None)
        document.pop("version") if version == "absent" else document.update(version=version)
    (path / "manifest.json").write_text(json.dumps(manifest))
    bundle.seal(path)
    wanted = "NQX402" if type(version) is int else "NQX610" if version == "absent" else "NQX612"
    assert codes(path).code == wanted
    with refused(s.SerializationError, wanted):
        s.from_state_dict(payload)


def broken_bundles(folder):
    """The inputs for which the other package says 'Struct load failed on master rank', by name."""

    def copy(name):
        return s.export({"w": np.arange(100)}, folder / name)

    truncated = copy("truncated npz")
    (truncated / "arrays.npz").write_bytes((truncated / "arrays.npz").read_bytes()[:300])
    (folder / "text.zip").write_text("hello")
    with zipfile.ZipFile(folder / "no manifest.zip", "w") as archive:
        archive.writestr("thesis.txt", "x")
    (folder / "plain file").write_text("x")
    cut = copy("truncated manifest")
    (cut / "manifest.json").write_bytes((cut / "manifest.json").read_bytes()[:50])
    latin = copy("latin manifest")
    (latin / "manifest.json").write_bytes(b'{"\xe9": 1}')
    empty = copy("empty npz")
    (empty / "arrays.npz").write_bytes(b"")
    garbage = copy("garbage npz")
    (garbage / "arrays.npz").write_bytes(b"garbage" * 100)
    missing = copy("no npz")
    (missing / "arrays.npz").unlink()
    return {
        truncated: "NQX408",
        folder / "text.zip": "NQX401",
        folder / "no manifest.zip": "NQX401",
        folder / "plain file": "NQX401",
        cut: "NQX001",
        latin: "NQX001",
        empty: "NQX408",
        garbage: "NQX408",
        missing: "NQX409",
    }


def test_broken_bundles_are_told_by_name(tmp_path):
    for path, code in broken_bundles(tmp_path).items():
        error = codes(path)
        assert error.code == code, path
        text = str(error)
        assert str(path) in text and "master rank" not in text and "pickle" not in text
        assert len(text) < 600 and all(d.remedy for d in error.diagnostics), text


@every(
    ("node", "members"),
    [
        ({"__kind__": "struct", "type": "a:B"}, None),
        ({"__kind__": "struct", "fields": {}}, None),
        ({"__kind__": "array", "dtype": "int8", "shape": []}, None),
        ({"__kind__": "dict"}, None),
        ({"__kind__": "path"}, None),
        ({"__kind__": "set", "items": [{"__kind__": "list", "items": []}]}, None),
        ({"__kind__": "dict", "items": [["a"]]}, None),
        ({"__kind__": "dict", "items": ["ab"]}, None),
        ({"__kind__": "numpy-scalar", "dtype": "int7", "value": 1}, None),
        ({"__kind__": "numpy-scalar", "dtype": 5, "value": 1}, None),
        (None, {"version": 1, "arrays": {}}),
        (None, {"manifest": None, "arrays": {}}),
    ],
)
def test_missing_and_bad_members_are_no_bare_errors(tmp_path, node, members):
    document = members or {"version": 1, "manifest": node, "arrays": {}}
    path = tmp_path / "c"
    path.mkdir()
    (path / "manifest.json").write_text(json.dumps(document))
    for call in (lambda: s.load(path), lambda: s.from_state_dict({**document, "array_data": {}})):
        with pytest.raises(s.SerializationError) as caught:
            call()
        assert caught.value.diagnostics[0].path.startswith("$")


def test_none_and_other_things_are_no_payload():
    for thing in (None, 5, "x", [], {}, {"array_data": None}):
        with refused(s.SerializationError, "NQX401"):
            s.from_state_dict(thing)


def test_one_flipped_bit_at_each_byte_is_an_integrity_error_or_harmless(tmp_path):
    path = s.export({"w": np.arange(3.0)}, tmp_path / "c")
    file = path / "arrays.npz"
    whole = file.read_bytes()
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        try:
            assert np.array_equal(s.load(path)["w"], np.arange(3.0))
        except s.SerializationError as error:
            assert isinstance(error, (s.IntegrityError, s.UntrustedError)), (at, error)


@pytest.mark.parametrize(
    "root_value", [5, "hi", None, {"a": 1}, (1, 2), [1], Odd(1, 2, 3)], ids=repr
)
def test_the_expected_class_is_checked_for_every_root(tmp_path, root_value):
    path = s.export(root_value, tmp_path / "c")
    calls = [
        lambda: Other.load(path),
        lambda: s.load(path, load_cls=Other),
        lambda: Other.from_state_dict(s.to_state_dict(root_value)),
    ]
    for call in calls:
        with refused(s.SerializationError, "NQX401", "Other"):
            call()


def test_a_missing_file_is_a_file_not_found_error_with_its_name(tmp_path):
    path = tmp_path / "no"
    for read in (s.load, s.inspect, s.validate, Other.load):
        with pytest.raises(FileNotFoundError) as caught:
            read(path)
        assert isinstance(caught.value, s.SerializationError)
        assert caught.value.errno == errno.ENOENT
        assert caught.value.filename == str(path) and str(path) in str(caught.value)


def test_messages_are_short_and_repeat_nothing(tmp_path):
    path = s.export(Other(1), tmp_path / "c")
    edit(path, lambda d: d["manifest"].pop("fields"))
    text = str(codes(path))
    assert "http" not in text and len(text) < 400
    lines = text.splitlines()
    assert len(set(lines)) == len(lines)


def test_field_names_that_are_words_of_the_format(tmp_path):
    odd = Odd(name=1, items=[2], type={"__kind__": "array", "fields": 3})
    assert Odd.load(odd.export(tmp_path / "c")) == odd
    assert s.from_state_dict(s.to_state_dict(odd)) == odd
    made = s.StructMeta(
        "Selfish", (s.Struct,), {"__annotations__": {"self": int}, "__module__": __name__}
    )
    assert made(self=5).self == 5
    for name in ("replace", "load", "export", "fields"):
        with refused(TypeError, f"Shadow.{name}"):
            s.StructMeta(
                "Shadow", (s.Struct,), {"__annotations__": {name: int}, "__module__": __name__}
            )


# -- safety


@pytest.mark.parametrize("ref", ["os:system", "subprocess:Popen", "planted_by_the_peer:X"])
def test_a_file_makes_nobody_import_or_call(tmp_path, ref, monkeypatch):
    (tmp_path / "planted_by_the_peer.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    path = Other(1).export(tmp_path / "c")
    edit(path, lambda d: d["manifest"].update(type=ref))
    for read in (s.load, Other.load, lambda p: s.load(p, load_cls=Other)):
        with refused(s.UntrustedError, "NQX501", ref):
            read(path)
    assert "planted_by_the_peer" not in sys.modules


CALLED = []


class Unregistered:
    fields = {}

    @classmethod
    def __struct_unflatten__(cls, aux, children):
        CALLED.append((aux, children))


class WithTreeMethods:
    def __init__(self, w, name):
        self.w, self.name = w, name

    def tree_flatten(self):
        return (self.w,), self.name

    @classmethod
    def tree_unflatten(cls, aux, children):
        return cls(*children, aux)


def test_a_class_with_the_methods_of_the_decorator_of_jax():
    node = {"__kind__": "registered-pytree", "mode": "flatten", "children": [1.5], "aux": "n"}
    node["type"] = f"{__name__}:WithTreeMethods"
    payload = {"version": 1, "manifest": node, "arrays": {}, "array_data": {}}
    loaded = s.from_state_dict(payload)
    assert (type(loaded), loaded.w, loaded.name) == (WithTreeMethods, 1.5, "n")
    payload["manifest"] = {**node, "children": []}
    with refused(s.SerializationError, "NQX414"):
        s.from_state_dict(payload)


def test_duck_typing_is_not_enough(tmp_path):
    ref = f"{__name__}:Unregistered"
    for node in (
        {
            "__kind__": "registered-pytree",
            "type": ref,
            "mode": "flatten",
            "children": [1],
            "aux": "evil",
        },
        {"__kind__": "registered-pytree", "type": ref, "mode": "serializer", "payload": "evil"},
        {"__kind__": "struct", "type": ref, "fields": {}},
    ):
        with pytest.raises(s.UntrustedError):
            s.from_state_dict(
                {"version": 1, "manifest": node, "arrays": {}, "array_data": {}}, trust=["tests"]
            )
    assert CALLED == []


def test_a_small_zip_that_declares_little_takes_little(tmp_path):
    node = {"__kind__": "array", "name": "w", "dtype": "float64", "shape": [3]}
    document = {"version": 1, "manifest": node, "arrays": {"w": {"dtype": "float64", "shape": [3]}}}
    arrays = io.BytesIO()
    with zipfile.ZipFile(arrays, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("w.npy", npy(np.zeros(8_000_000)))
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", json.dumps(document))
        archive.writestr("arrays.npz", arrays.getvalue())
    tracemalloc.start()
    try:
        error = codes(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert error.code in ("NQX412", "NQX505")
    assert peak < 8 << 20


def test_object_arrays_are_refused_on_both_sides(tmp_path):
    with refused(s.SerializationError, "NQX430", "$['w']"):
        s.export({"w": np.array([{}, None])}, tmp_path / "c")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", FORMS)
def test_overwrite_replaces_bundles_only(tmp_path, form):
    path = tmp_path / form
    path.mkdir()
    (path / "thesis.txt").write_text("years of work")
    with refused(FileExistsError, "NQX431", path):
        s.export([1], path, overwrite=True)
    assert (path / "thesis.txt").read_text() == "years of work"


# -- files


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_modes_follow_the_umask(tmp_path, mask):
    before = os.umask(mask)
    try:
        paths = [s.export([np.arange(3)], tmp_path / form) for form in FORMS]
    finally:
        os.umask(before)
    for path in (*paths, *paths[0].iterdir()):
        base = 0o777 if path.is_dir() else 0o666
        assert stat.S_IMODE(path.stat().st_mode) == base & ~mask


@pytest.mark.parametrize("form", FORMS)
def test_a_full_disk_keeps_the_old_bundle(tmp_path, form, monkeypatch):
    path = s.export([np.arange(3)], tmp_path / form)
    real = os.fsync

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with refused(s.SerializationError, "NQX406", "No space left"):
        s.export([np.arange(4)], path, overwrite=True)
    monkeypatch.setattr(os, "fsync", real)
    assert np.array_equal(s.load(path)[0], [0, 1, 2])
    assert [entry.name for entry in tmp_path.iterdir()] == [form]


@pytest.mark.parametrize("form", FORMS)
def test_missing_parents_are_made_for_both_forms(tmp_path, form):
    path = s.export([1], tmp_path / "a" / "b" / form)
    assert s.load(path) == [1]


def test_a_folder_that_stands_where_a_zip_is_wanted(tmp_path):
    """A bundle may change its form; a folder that is none stays."""
    path = tmp_path / "target.zip"
    path.mkdir()
    with refused(FileExistsError, "NQX431", "manifest.json"):
        s.export([1], path, overwrite=True)
    path.rmdir()
    s.export([2], tmp_path / "folder").rename(path)
    s.export([3], path, overwrite=True)
    assert path.is_file() and s.load(path) == [3]


@pytest.mark.parametrize("name", ["x.zip", "X.ZIP", "x.Zip"])
def test_the_suffix_in_any_case_means_a_file(tmp_path, name):
    path = s.export([1], tmp_path / name)
    assert path.is_file() and s.load(path) == [1]


def test_overwrite_through_a_link_replaces_what_it_leads_to(tmp_path):
    for form in FORMS:
        s.export([1], tmp_path / form)
        link = tmp_path / f"latest-{form}"
        link.symlink_to(form)
        s.export([2], link, overwrite=True)
        assert link.is_symlink() and s.load(tmp_path / form) == [2] == s.load(link)


def test_a_renamed_zip_is_still_a_bundle(tmp_path):
    path = s.export([np.arange(3)], tmp_path / "c.zip").rename(tmp_path / "c.bundle")
    assert np.array_equal(s.load(path)[0], [0, 1, 2])
    assert s.verify(path) == [] and s.validate(path) == []


def test_a_class_of_a_script_is_found_by_who_says_which_it_is(tmp_path):
    ref = "__main__:OfAScript"
    path = Other(1).export(tmp_path / "c")
    edit(path, lambda d: d["manifest"].update(type=ref))
    with refused(s.UntrustedError, "NQX501", f's.alias_class("{ref}", OfAScript)'):
        s.load(path)
    s.alias_class(ref, Other)
    assert Other.load(path) == Other(1)
