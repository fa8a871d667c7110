"""Bundles from strangers: everything that a file can say to make its reader import, call, allocate, wait or write.

Each is refused with its code. What nobody must do is recorded by planted code, and memory and time are measured in child
processes with a hard limit.
"""

import io
import json
import os
import struct
import subprocess
import sys
import tracemalloc
import types
import warnings
import zipfile
import zlib
from pathlib import Path

import jax
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.formats.npz import NPZ_STORE as npz
from neuralqx_struct.manifest import Limits
from neuralqx_struct.manifest.text import format_manifest
from tests.builders import FORMS, bounded, edit, every, npy, payload_of, refused, simple
from tests.preloaded import python

READERS = {
    "load": s.load,
    "load unverified": lambda path: s.load(path, verify=False),
    "load private": lambda path: s.load(path, mmap=False),
    "abstract": lambda path: s.load(path, abstract=True),
}


def no_reader_takes(path, *codes):
    """Every reader refuses the bundle with one of the codes; verify and validate say so or have nothing to say."""
    for name, read in READERS.items():
        with pytest.raises(s.SerializationError) as caught:
            read(path)
        got = {d.code for d in caught.value.diagnostics}
        assert got & set(codes), (name, str(caught.value))
        assert all(d.file and d.file.startswith(str(path)) for d in caught.value.diagnostics), str(
            caught.value
        )
    return {d.code for d in s.verify(path)}, {d.code for d in s.validate(path)}


def node_bundle(path, node, **members):
    """A sealed bundle of one node, without arrays unless ``members`` bring some."""
    path.mkdir()
    document = {
        "version": 1,
        "manifest": node,
        "arrays": {},
        "writer": {"name": "x", "version": "1"},
        **members,
    }
    (path / "manifest.json").write_bytes(format_manifest(document))
    return path


# -- code


STRUCT = {"__kind__": "struct", "type": "", "fields": {}}
NODES = {
    "struct": STRUCT,
    "namedtuple": {**STRUCT, "__kind__": "namedtuple"},
    "pytree-dataclass": {**STRUCT, "__kind__": "pytree-dataclass"},
    "enum": {"__kind__": "enum", "type": "", "name": "A"},
    "flatten": {
        "__kind__": "registered-pytree",
        "type": "",
        "mode": "flatten",
        "children": [],
        "aux": None,
    },
    "serializer": {
        "__kind__": "registered-pytree",
        "type": "",
        "mode": "serializer",
        "payload": "id",
    },
}
REFS = [
    "os:system",
    "subprocess:Popen",
    "builtins:eval",
    "builtins:object",
    "builtins:type",
    "posix:system",
    "planted_for_hostile:Evil",
    "planted_for_hostile.sub:Evil",
    "os:path.join",
    "os:",
    ":x",
    "",
    "a:b:c",
    "os\0:system",
    "../os:system",
    "__main__:x.__class__",
    "tests.hostile.test_bundles:Fake.__init__.__globals__",
    "neuralqx_struct.params:importlib",
    "lab.x@1:State",
    "lab.x@99999999999999999999999:State",
    "x" * 100_000 + ":y",
    "é:é",
]


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """A package that can be imported, and must not be."""
    package = tmp_path / "planted_for_hostile"
    package.mkdir()
    for name in ("__init__", "sub"):
        (package / f"{name}.py").write_text(
            "raise SystemExit('imported: the reader ran what a file named')\n"
        )
    monkeypatch.syspath_prepend(tmp_path)
    yield
    assert not [name for name in sys.modules if name.startswith("planted_for_hostile")]


@pytest.mark.parametrize("kind", NODES)
def test_class_references_are_not_imported_and_not_called(tmp_path, planted, kind, monkeypatch):
    for name in ("system", "popen", "execv"):
        monkeypatch.setattr(os, name, lambda *a, **k: pytest.fail("called"))
    monkeypatch.setattr(
        subprocess, "Popen", type("Popen", (), {"__init__": lambda *a, **k: pytest.fail("called")})
    )
    before = set(sys.modules)
    for index, ref in enumerate(REFS):
        path = node_bundle(tmp_path / str(index), {**NODES[kind], "type": ref})
        no_reader_takes(path, "NQX501")
    assert {
        name
        for name in set(sys.modules) - before
        if not name.startswith(("neuralqx_struct", "jax", "pydantic"))
    } == set()


CALLS = []


class Fake:
    """Everything that a Struct has, but that it is one."""

    fields = node_fields = static_fields = staticmethod(lambda *a: CALLS.append("fields") or {})
    _fields = ()
    __members__ = types.MappingProxyType({"A": 1})

    def __init__(self, *_):
        CALLS.append("init")

    @classmethod
    def tree_unflatten(cls, *_):
        CALLS.append("unflatten")

    __struct_unflatten__ = __nqx_restore__ = __nqx_assemble__ = from_state_dict = tree_unflatten

    def __setstate__(self, state):
        CALLS.append("setstate")

    def __reduce__(self):
        return os.system, ("true",)


class Trap(type):
    def __getattr__(cls, name):
        CALLS.append(name)
        raise AttributeError(name)

    def __instancecheck__(cls, instance):
        CALLS.append("instancecheck")
        return True

    def __subclasscheck__(cls, other):
        CALLS.append("subclasscheck")
        return True


class Trapped(metaclass=Trap):
    pass


@every("kind", NODES)
@every("name", ["Fake", "Trapped", "NODES", "node_bundle", "os"])
def test_what_only_looks_like_a_struct_is_refused_and_not_called(tmp_path, kind, name):
    path = node_bundle(tmp_path / "ckpt", {**NODES[kind], "type": f"{__name__}:{name}"})
    CALLS.clear()
    no_reader_takes(path, "NQX501")
    assert [call for call in CALLS if not call.startswith("_")] == []


def test_no_pickle_in_any_place(tmp_path):
    class Bomb:
        def __reduce__(self):
            return pytest.fail, ("unpickled",)

    path = bundle.write(tmp_path / "c", simple())
    edit(path, lambda d: [record.pop("offset") for record in d["arrays"].values()])
    whole = np.array([Bomb()] * 3, object)
    for name in ("w", "b"):
        with zipfile.ZipFile(path / "arrays.npz", "w") as archive:
            for member in ("w", "b"):
                good = np.zeros((2, 3), np.float32) if member == "w" else np.arange(3)
                archive.writestr(
                    f"{member}.npy", npy(whole if member == name else good, allow_pickle=True)
                )
        verified, _ = no_reader_takes(path, "NQX502")
        assert "NQX502" in verified


# -- paths


NAMES = [
    "../evil",
    "/etc/evil",
    "..",
    ".",
    "",
    "a/../../evil",
    "C:\\evil",
    "a\\..\\evil",
    "evil\0.npz",
    "evil\n",
    "~/evil",
    "é" * 300,
]


def test_member_names_that_lead_out(tmp_path):
    path = bundle.write(tmp_path / "c", simple())
    edit(path, lambda d: [record.pop("offset") for record in d["arrays"].values()])
    good = [("w.npy", npy(np.zeros((2, 3), np.float32))), ("b.npy", npy(np.arange(3)))]
    before = sorted(p for p in tmp_path.rglob("*"))
    for name in NAMES:
        with zipfile.ZipFile(path / "arrays.npz", "w") as archive:
            for member, data in [
                *good,
                (f"{name}.npy" if name not in ("", ".", "..") else name, b"x"),
            ]:
                info = zipfile.ZipInfo("x")
                info.filename = member
                archive.writestr(info, data)
        no_reader_takes(path, "NQX503", "NQX410", "NQX408")
    assert sorted(p for p in tmp_path.rglob("*")) == before


@every(
    "file",
    [*NAMES[:10], "arrays.npz/x", "manifest.json", "arrays.exe", "-rf", "x" * 201, 5, None, ["a"]],
)
def test_file_names_that_lead_out(tmp_path, file):
    (tmp_path / "evil.npz").write_bytes(b"not for you")
    path = bundle.write(tmp_path / "c", simple())
    edit(path, lambda d: d["arrays"]["w"].update(file=file))
    no_reader_takes(path, "NQX503", "NQX612", "NQX614", "NQX409")


@every("name", NAMES)
def test_array_names_lead_nowhere(tmp_path, name):
    """Names of arrays are opaque: whatever they are, they come back, and nothing is written outside."""
    for form in FORMS:
        path = bundle.write(tmp_path / form, payload_of({name: np.arange(3)}))
        held = bundle.read(path)
        assert list(held.arrays) == [name] and np.array_equal(held.arrays[name], [0, 1, 2])
        with np.load(path / "arrays.npz") if form == "ckpt" else zipfile.ZipFile(path) as archive:
            inside = archive.files if form == "ckpt" else archive.namelist()
            assert not any(part in ("..", "") for member in inside for part in member.split("/"))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == FORMS


# -- special files


@pytest.mark.parametrize("name", ["manifest.json", "arrays.npz"])
def test_links_pipes_sockets_devices_and_folders_inside(tmp_path, name):
    import socket

    path = bundle.write(tmp_path / "c", simple())
    away = (path / name).rename(tmp_path / name)
    at = path / name

    def bind():
        here = Path.cwd()
        os.chdir(path)  # names of sockets are short
        try:
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(name)
        finally:
            os.chdir(here)

    makers = [
        lambda: at.symlink_to(away),
        lambda: at.symlink_to("/dev/zero"),
        lambda: at.symlink_to(at),
        lambda: at.symlink_to("nowhere"),
        lambda: os.mkfifo(at),
        bind,
        at.mkdir,
    ]
    with bounded():
        for make in makers:
            make()
            no_reader_takes(path, "NQX504")
            at.rmdir() if at.is_dir() and not at.is_symlink() else at.unlink()
    away.rename(at)
    assert s.verify(path) == []


def test_pipes_and_devices_in_the_place_of_a_bundle(tmp_path):
    pipe, loop = tmp_path / "pipe", tmp_path / "loop.zip"
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    folder = tmp_path / "manifest.json"
    folder.mkdir()
    os.mkfifo(tmp_path / "a.json")
    for path in (pipe, folder, "/dev/zero", "/dev/null", "/dev/full", tmp_path / "a.json"):
        for read in (*READERS.values(), s.inspect):
            with refused(s.SerializationError, "NQX401"):
                read(path)
        assert [d.code for d in s.verify(path)] == ["NQX401"]
    with refused(OSError, "NQX401", loop):
        s.load(loop)


def test_links_in_a_zip(tmp_path):
    for name in ("manifest.json", "arrays.npz"):
        entry = zipfile.ZipInfo(name)
        entry.create_system, entry.external_attr = 3, 0o120777 << 16
        with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
            archive.writestr(entry, "/etc/passwd")
        no_reader_takes(tmp_path / "c.zip", "NQX504")


# -- zips


def repacked(path, change):
    """Rewrite the zip file of a bundle by hand."""
    file = path / "arrays.npz"
    data = bytearray(file.read_bytes())
    change(data)
    file.write_bytes(data)


def entries(data):
    """Places of the directory entries of a zip, and of its end record."""
    end = data.rindex(b"PK\5\6")
    [at] = struct.unpack_from("<I", data, end + 16)
    found = []
    while bytes(data[at : at + 4]) == b"PK\1\2":
        found.append(at)
        at += 46 + sum(struct.unpack_from("<3H", data, at + 28))
    return found, end


def test_duplicate_members_in_the_bundle_and_in_the_array_file(tmp_path):
    path = bundle.write(tmp_path / "c", simple())
    archive_bytes = io.BytesIO()
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(archive_bytes, "w") as archive:
        for name in ("manifest.json", "arrays.npz", "manifest.json"):
            archive.writestr(name, (path / name).read_bytes())
    (tmp_path / "c.zip").write_bytes(archive_bytes.getvalue())
    no_reader_takes(tmp_path / "c.zip", "NQX509")


def test_overlapping_members(tmp_path):
    """Quines and bombs of overlapping members: one member's data inside another's."""
    path = bundle.write(tmp_path / "c", simple())

    def overlap(data):
        [first, second], _ = entries(data)
        local = struct.unpack_from("<I", data, second + 42)[0]
        [at] = struct.unpack_from("<I", data, first + 42)
        whole = local + 200 - at
        for place in (first + 20, first + 24, at + 18, at + 22):
            struct.pack_into("<I", data, place, whole)

    repacked(path, overlap)
    no_reader_takes(path, "NQX509", "NQX408")


LIES = [0, 1, 23, 25, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1]


@every("lie", LIES)
@every("both", [True, False])
@every("field", ["stored", "size", "place", "crc", "name", "extra", "method", "flags"])
def test_lies_in_the_zip(tmp_path, lie, both, field):
    path = bundle.write(tmp_path / "c", simple())
    wanted = {name: array.copy() for name, array in bundle.read(path).arrays.items()}
    central, local = {
        "stored": (20, 18),
        "size": (24, 22),
        "place": (42, None),
        "crc": (16, 14),
        "name": (28, 26),
        "extra": (30, 28),
        "method": (10, 8),
        "flags": (8, 6),
    }[field]
    code = "<I" if field in ("stored", "size", "place", "crc") else "<H"

    def change(data):
        [first, *_], _ = entries(data)
        value = lie & (0xFFFFFFFF if code == "<I" else 0xFFFF)
        struct.pack_into(code, data, first + central, value)
        if both and local is not None:
            struct.pack_into(code, data, local, value)

    repacked(path, change)
    for mmap in (True, False):
        try:
            found = dict(bundle.read(path, mmap=mmap).arrays)
        except s.SerializationError:
            continue
        assert all(np.array_equal(found[name], array) for name, array in wanted.items())


@every("member", ["offset", "nbytes", "crc32"])
@every(
    "value",
    [-1, 0, 1, 2**31, 2**63 - 1, 2**63, 2**64, 2**200, 1.0, 24.0, True, "24", None, [24], {}],
)
def test_lies_in_the_records(tmp_path, member, value):
    path = bundle.write(tmp_path / "c", simple())
    edit(path, lambda d: d["arrays"]["w"].update({member: value}))
    for mmap in (True, False):
        with pytest.raises(s.SerializationError):
            dict(bundle.read(path, mmap=mmap).arrays)
    assert [d for d in s.verify(path) if d.severity == "error"]


SHAPES = [
    [-1],
    [-2, -3],
    [2**63],
    [2**62, 4],
    [2**32, 2**32],
    [2**21] * 3,
    [0, 2**63],
    [2**63, 0],
    [10**30],
    [1] * 65,
    [1] * 100_000,
    [2**64 - 1, 1],
    [6.0],
    [True, 6],
    ["6"],
    [[6]],
    [None],
    6,
    "6",
    None,
    {},
]


@every("shape", SHAPES)
@every("kind", ["array", "full"])
def test_lies_about_shapes(tmp_path, shape, kind):
    with bounded():
        if kind == "array":
            path = bundle.write(tmp_path / "c", simple())
            edit(
                path,
                lambda d: [
                    d["arrays"]["w"].update(shape=shape),
                    d["manifest"]["fields"]["w"].update(shape=shape),
                ],
            )
        else:
            node = {"__kind__": "full", "dtype": "float64", "shape": shape, "value": 0}
            path = node_bundle(tmp_path / "c", node)
        codes = ("NQX408", "NQX411", "NQX412", "NQX505", "NQX612", "NQX614", "NQX005")
        with pytest.raises(s.SerializationError) as caught:
            s.load(path) if kind == "full" else dict(bundle.read(path).arrays)
        assert {d.code for d in caught.value.diagnostics} & set(codes)


def test_counts_and_places_of_the_end_record(tmp_path):
    path = bundle.write(tmp_path / "c", simple())
    whole = (path / "arrays.npz").read_bytes()
    for place, code in (
        (4, "<H"),
        (6, "<H"),
        (8, "<H"),
        (10, "<H"),
        (12, "<I"),
        (16, "<I"),
        (20, "<H"),
    ):
        for value in (0, 1, 3, 0xFFFE, 0xFFFF, *([0xFFFFFFFE, 0xFFFFFFFF] if code == "<I" else [])):
            data = bytearray(whole)
            end = data.rindex(b"PK\5\6")
            if struct.unpack_from(code, data, end + place)[0] == value:
                continue
            struct.pack_into(code, data, end + place, value)
            (path / "arrays.npz").write_bytes(data)
            with pytest.raises(s.SerializationError):
                bundle.read(path)


# -- the text of the manifest


def written(path, data):
    (path / "manifest.json").write_bytes(data)
    return path


GOOD = b'{"version": 1, "manifest": 5, "arrays": {}}'
TEXTS = {
    "empty": (b"", "NQX001"),
    "no json": (b"hello", "NQX001"),
    "cut": (GOOD[:-1], "NQX001"),
    "two": (GOOD + GOOD, "NQX001"),
    "bom": (b"\xef\xbb\xbf" + GOOD, "NQX001"),
    "utf-16": (GOOD.decode().encode("utf-16"), "NQX001"),
    "invalid utf-8": (GOOD.replace(b"5", b'"\xff"'), "NQX001"),
    "overlong utf-8": (GOOD.replace(b"5", b'"\xc0\xaf"'), "NQX001"),
    "surrogate": (GOOD.replace(b"5", b'"\xed\xa0\x80"'), "NQX001"),
    "escaped surrogate": (GOOD.replace(b"5", b'"\\ud800"'), "NQX001"),
    "nul": (GOOD + b"\0", "NQX001"),
    "control": (GOOD.replace(b"5", b'"\x01"'), "NQX001"),
    "comment": (b"// x\n" + GOOD, "NQX001"),
    "trailing comma": (GOOD[:-1] + b",}", "NQX001"),
    "single quotes": (GOOD.replace(b'"', b"'"), "NQX001"),
    "a list": (b"[" + GOOD + b"]", "NQX612"),
    "a number": (b"5", "NQX612"),
    "null": (b"null", "NQX612"),
    "nan": (
        GOOD[:-1] + b', "writer": {"name": "x", "version": "1"}, "metadata": {"x": NaN}}',
        "NQX013",
    ),
    "infinity": (
        GOOD[:-1] + b', "writer": {"name": "x", "version": "1"}, "metadata": {"x": -Infinity}}',
        "NQX013",
    ),
    "1e999": (
        GOOD[:-1] + b', "writer": {"name": "x", "version": "1"}, "metadata": {"x": 1e999}}',
        "NQX013",
    ),
    "duplicate": (b'{"version": 1, "version": 1, "manifest": 5, "arrays": {}}', "NQX014"),
    "duplicate below": (GOOD.replace(b"{}", b'{"w": {"shape": [], "shape": []}}'), "NQX014"),
    "duplicate and cut": (b'{"version": 1, "version": 1, "manifest": 5, ', "NQX001"),
    "duplicate and more": (b'{"version": 1, "version": 1, "manifest": 5, "arrays": {}}{', "NQX001"),
    "duplicate and long number": (b'{"a": {"a": 1, "a": 2}, "b": ' + b"9" * 5000 + b"}", "NQX612"),
    "escaped duplicate": (
        b'{"version": 1, "\\u0076ersion": 1, "manifest": 5, "arrays": {}}',
        "NQX014",
    ),
    "long number": (GOOD.replace(b"5", b"9" * 100_000), "NQX612"),
    "deep list": (b"[" * 100_000 + b"]" * 100_000, "NQX005"),
    "deep open": (b"[" * 1_000_000, "NQX005"),
    "deep objects": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "NQX005"),
    "version 0": (GOOD.replace(b": 1", b": 0"), "NQX402"),
    "version 2": (GOOD.replace(b": 1", b": 2"), "NQX402"),
    "version -1": (GOOD.replace(b": 1", b": -1"), "NQX402"),
    "version true": (GOOD.replace(b": 1", b": true"), "NQX612"),
    "version 1.0": (GOOD.replace(b": 1", b": 1.0"), "NQX612"),
    "version '1'": (GOOD.replace(b": 1", b': "1"'), "NQX612"),
    "version null": (GOOD.replace(b": 1", b": null"), "NQX612"),
    "no version": (GOOD.replace(b'"version": 1, ', b""), "NQX610"),
    "no manifest": (GOOD.replace(b'"manifest": 5, ', b""), "NQX610"),
    "no arrays": (GOOD.replace(b', "arrays": {}', b""), "NQX610"),
    "unknown kind": (GOOD.replace(b"5", b'{"__kind__": "exec"}'), "NQX613"),
    "kind 5": (GOOD.replace(b"5", b'{"__kind__": 5}'), "NQX612"),
    "no kind": (GOOD.replace(b"5", b"{}"), "NQX610"),
    "unknown member": (GOOD[:-1] + b', "exec": "x"}', "NQX611"),
    "to be understood": (GOOD[:-1] + b', "exec": {"must_understand": true}}', "NQX403"),
    "a bare list": (GOOD.replace(b"5", b"[1]"), "NQX612"),
}


@every("name", TEXTS)
def test_texts_that_are_no_manifest(tmp_path, name):
    text, code = TEXTS[name]
    with bounded():
        (tmp_path / "c").mkdir()
        verified, validated = no_reader_takes(written(tmp_path / "c", text), code)
        assert code in verified and code in validated
        with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
            archive.writestr("manifest.json", text)
        no_reader_takes(tmp_path / "c.zip", code)


@every(
    "node",
    [
        {"__kind__": "set", "items": [{"__kind__": "list", "items": []}]},
        {"__kind__": "dict", "items": [[{"__kind__": "list", "items": []}, 1]]},
        {"__kind__": "dict", "items": [["a", 1], ["a", 2]]},
        {"__kind__": "dict", "items": [["a"]]},
        {"__kind__": "datetime", "type": "datetime", "value": "9" * 1000},
        {"__kind__": "datetime", "type": "timedelta", "value": "9 9"},
        {"__kind__": "datetime", "type": "timedelta", "value": f"{10**12} 0 0"},
        {"__kind__": "bigint", "value": "9" * 200_000},
        {"__kind__": "bigint", "value": "0x10"},
        {"__kind__": "bigint", "value": "١"},
        {"__kind__": "float", "value": "1e5"},
        {"__kind__": "bytes", "base64": "A"},
        {"__kind__": "complex", "real": "1", "imag": 0},
        {"__kind__": "complex", "real": 10**400, "imag": 0},
        {
            "__kind__": "numpy-scalar",
            "dtype": "complex64",
            "value": {"__kind__": "complex", "real": 10**400, "imag": 0},
        },
        {"__kind__": "deque", "items": [], "maxlen": 10**30},
        {"__kind__": "deque", "items": [1, 2], "maxlen": 1},
        {"__kind__": "deque", "items": [], "maxlen": 2.0},
        {"__kind__": "set", "items": [1, 2, 1]},
        {"__kind__": "frozenset", "items": [1, True]},
        {"__kind__": "dtype", "value": "O"},
        {"__kind__": "dtype", "value": "i4,i4"},
        {"__kind__": "dtype", "value": "(1000000000,)f8"},
        {"__kind__": "numpy-scalar", "dtype": "object", "value": 1},
        {"__kind__": "numpy-scalar", "dtype": "int8", "value": 1000},
        {"__kind__": "numpy-scalar", "dtype": "int8", "value": 1.5},
        {"__kind__": "numpy-scalar", "dtype": "int4", "value": 100},
        {"__kind__": "numpy-scalar", "dtype": "bool", "value": 5},
        {"__kind__": "numpy-scalar", "dtype": "float64", "value": "1.5"},
        {"__kind__": "numpy-scalar", "dtype": "float16", "value": 1e300},
        {"__kind__": "numpy-scalar", "dtype": "float8_e4m3fn", "value": 1e300},
        {"__kind__": "full", "dtype": "<U1", "shape": [2], "value": "ab"},
        {"__kind__": "full", "dtype": "<U99999", "shape": [2], "value": "x"},
        {"__kind__": "full", "dtype": "|S99999999", "shape": [10**6], "value": "x"},
        {"__kind__": "full", "dtype": "int8", "shape": [2], "value": None},
        {"__kind__": "array", "name": "missing", "dtype": "int8", "shape": []},
        {
            "__kind__": "prng-key",
            "impl": "os:system",
            "data": {"__kind__": "array", "name": "x", "dtype": "uint32", "shape": [2]},
        },
        {"__kind__": "registered-pytree", "type": "a:b", "mode": "exec"},
        {"__kind__": "struct", "type": 5, "fields": {}},
        {"__kind__": "struct", "type": "a:b", "fields": []},
        {"__kind__": "slice", "start": {"__kind__": "nope"}, "stop": None, "step": None},
    ],
)
def test_nodes_that_lie(tmp_path, node):
    path = tmp_path / "c"
    path.mkdir()
    document = {
        "version": 1,
        "manifest": node,
        "arrays": {},
        "writer": {"name": "x", "version": "1"},
    }
    (path / "manifest.json").write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    bundle.seal(path)
    with bounded():
        with pytest.raises(s.SerializationError):
            s.load(path)
        for look in (s.validate, s.verify):
            assert isinstance(look(path), list)


def test_huge_counts(tmp_path):
    many = {"__kind__": "list", "items": [0] * 50_000}
    path = node_bundle(tmp_path / "c", {"__kind__": "list", "items": [many] * 25})
    for options in ({}, {"limits": Limits(manifest_bytes=1000)}):
        with refused(s.SerializationError, "NQX005"):
            s.load(path, **options)


# -- memory and time, in a process that may have little of either


MEASURED = """
import resource, sys, time, json
import numpy as np
import neuralqx_struct as s
from neuralqx_struct import bundle
s.load, s.verify, s.validate
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20),) * 2)
for path in sys.argv[1:]:
    before, started = peak(), time.monotonic()
    codes = []
    for work in (s.load, s.verify, s.validate):
        try:
            found = work(path)
            codes.append(sorted({d.code for d in found}) if isinstance(found, list) else "value")
        except s.SerializationError as error:
            codes.append(sorted({d.code for d in error.diagnostics}))
    print(json.dumps([codes, peak() - before, time.monotonic() - started]))
"""


def bomb(path, kind):
    """A small file that wants to be large."""
    zeros = 300 << 20
    if kind == "manifest":
        squeezer = zlib.compressobj(1, zlib.DEFLATED, -15)
        packed = b"".join(squeezer.compress(bytes(1 << 20)) for _ in range(300)) + squeezer.flush()
        size, name = zeros, b"manifest.json"
        local = struct.pack(
            "<4s5H3I2H", b"PK\3\4", 20, 0, 8, 0, 33, 0, len(packed), size, len(name), 0
        )
        ends = (len(name), 0, 0, 0, 0, 0, 0)
        central = struct.pack(
            "<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, 8, 0, 33, 0, len(packed), size, *ends
        )
        begin = len(local) + len(name) + len(packed)
        end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, len(central) + len(name), begin, 0)
        path.write_bytes(local + name + packed + central + name + end)
        return
    bundle.write(path, simple())
    edit(path, lambda d: [record.pop("offset") for record in d["arrays"].values()])
    with zipfile.ZipFile(
        path / "arrays.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1
    ) as archive:
        archive.writestr("b.npy", npy(np.arange(3)))
        with archive.open("w.npy", "w", force_zip64=True) as member:
            member.write(npy(np.zeros((2, 3), np.float32)))
            for _ in range(1 << 7):
                member.write(bytes(1 << 20))
    if kind == "lying array":  # it says that it is small
        data = bytearray((path / "arrays.npz").read_bytes())
        truth = struct.pack("<Q", (1 << 27) + 152)
        assert truth in data
        (path / "arrays.npz").write_bytes(data.replace(truth, struct.pack("<Q", 152)))


def test_bombs_take_no_memory(tmp_path):
    kinds = ["manifest", "array", "lying array"]
    paths = [tmp_path / (f"{kind}.zip" if kind == "manifest" else kind) for kind in kinds]
    for path, kind in zip(paths, kinds, strict=True):
        bomb(path, kind)
    described = node_bundle(
        tmp_path / "described",
        {"__kind__": "full", "dtype": "float64", "shape": [1 << 40], "value": 0},
    )
    out = python().run("-c", MEASURED, *map(str, [*paths, described])).stdout.splitlines()
    assert len(out) == 4
    for path, line in zip([*paths, described], out, strict=True):
        codes, grown, seconds = json.loads(line)
        size = (
            path.stat().st_size if path.is_file() else sum(f.stat().st_size for f in path.iterdir())
        )
        assert all(set(found) & {"NQX505", "NQX408", "NQX005"} for found in codes[:2]), (
            path,
            codes,
        )
        assert grown < 2 * size + (32 << 20), (path, grown)
        assert seconds < 60, path


def test_compressed_zeros_are_no_bomb(tmp_path):
    """There is no ratio that makes a bomb: what the manifest declares may be large, and is what is given."""
    path = s.export({"w": np.zeros(2_000_000)}, tmp_path / "c", compress=True)
    assert sum(f.stat().st_size for f in path.iterdir()) < 100_000
    assert s.load(path)["w"].shape == (2_000_000,)


# -- while it is open


@pytest.mark.parametrize("form", FORMS)
def test_a_bundle_replaced_while_it_is_mapped(tmp_path, form):
    path = s.export({"w": np.full(5000, 1.0)}, tmp_path / form)
    held = bundle.read(path)
    first = s.load(path)
    s.export({"w": np.full(7, 2.0)}, path, overwrite=True)
    assert np.array_equal(
        held.arrays["w"], np.full(5000, 1.0)
    )  # read after the replacement, from the old file
    assert np.array_equal(first["w"], np.full(5000, 1.0))
    assert np.array_equal(s.load(path)["w"], np.full(7, 2.0))
    assert not first["w"].flags.writeable


def test_nothing_is_written_by_readers(tmp_path):
    path = s.export({"w": np.arange(3)}, tmp_path / "c")
    before = {f.name: (f.stat().st_mtime_ns, f.read_bytes()) for f in path.iterdir()}
    for read in (*READERS.values(), s.verify, s.validate, s.inspect):
        read(path)
    assert {f.name: (f.stat().st_mtime_ns, f.read_bytes()) for f in path.iterdir()} == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["c"]


def test_jax_is_not_asked_about_what_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(
        jax,
        "device_put",
        lambda *a, **k: pytest.fail("data were handed over before they were checked"),
    )
    path = bundle.write(tmp_path / "c", simple())
    edit(path, lambda d: d["arrays"]["w"].update(crc32=1))
    no_reader_takes(path, "NQX407", "NQX501")
    assert npz.file == "arrays.npz"


# -- many wrong things: what is said about them is bounded, so that a small file cannot keep its reader busy


def _arrays(count):
    return [
        {"__kind__": "array", "name": f"a{i}", "dtype": "int8", "shape": [1]} for i in range(count)
    ]


def _records(count, dtype="int8", name="b"):
    return {
        f"{name}{i}": {"dtype": dtype.format(i), "shape": [1], "crc32": 0, "nbytes": 1}
        for i in range(count)
    }


def _items(nodes):
    return {"__kind__": "list", "items": nodes}


MANY = {
    "kinds": lambda: node_manifest(_items([{"__kind__": f"lst{i}"} for i in range(30_000)])),
    "members": lambda: node_manifest(
        _items([{"__kind__": "set", f"itms{i}": 1} for i in range(15_000)])
    ),
    "members of one": lambda: node_manifest(
        {"__kind__": "set", **{f"items{'s' * 99}{i}": 1 for i in range(15_000)}}
    ),
    "missing records": lambda: node_manifest(_items(_arrays(15_000)), arrays=_records(1000)),
    "dtypes": lambda: node_manifest(_items(_arrays(6_000)), arrays=_records(6_000, "floot{}", "a")),
    "dimensions": lambda: node_manifest(
        {"__kind__": "full", "dtype": "int8", "shape": [2] * 100_000, "value": 0}
    ),
    "digits": lambda: node_manifest(
        {"__kind__": "full", "dtype": "int8", "shape": [10**4000] * 100, "value": 0}
    ),
}


def node_manifest(node, **members):
    return {
        "version": 1,
        "manifest": node,
        "arrays": {},
        "writer": {"name": "x", "version": "1"},
        **members,
    }


@every(
    ("look", "case"),
    [
        *((look, case) for look in ("load", "validate") for case in MANY),
        ("verify", "missing records"),  # past the manifest, where these two go their own ways
        ("inspect", "missing records"),
    ],
)
def test_thousands_of_wrong_things_are_answered_soon(tmp_path, look, case):
    path = tmp_path / "c"
    path.mkdir()
    (path / "manifest.json").write_bytes(format_manifest(MANY[case]()))
    npz.write(path / "arrays.npz", {})
    with bounded(8):
        try:
            getattr(s, look)(path)
        except s.SerializationError as error:
            assert len(str(error)) < 100_000


def test_a_name_twice_among_very_many(tmp_path):
    names = [f"n{i}" for i in range(20_000)]
    local, central, position = [], [], 0
    for name in [*names, names[-1]]:
        raw = name.encode()
        local.append(
            struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 0, 0, 33, 0, 0, 0, len(raw), 0) + raw
        )
        ends = (len(raw), 0, 0, 0, 0, 0, position)
        central.append(
            struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, 0, 0, 33, 0, 0, 0, *ends) + raw
        )
        position += len(local[-1])
    directory = b"".join(central)
    count = len(central)
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, len(directory), position, 0)
    (tmp_path / "c.zip").write_bytes(b"".join(local) + directory + end)
    with bounded(8):
        no_reader_takes(tmp_path / "c.zip", "NQX509")


@pytest.mark.parametrize(
    "shape", [b"1" * 200 + b"x", b"1, " * 2000 + b"x", b"1" * 5000, b"1,1" * 2000]
)
def test_headers_of_arrays_that_take_long_to_match(tmp_path, shape):
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + shape
    member = b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header
    path = bundle.write(tmp_path / "c", simple())
    with zipfile.ZipFile(path / "arrays.npz", "w") as archive:
        archive.writestr("b.npy", npy(np.arange(3)))
        archive.writestr("w.npy", member)
    with bounded():
        no_reader_takes(path, "NQX408")


def test_very_many_array_files_take_no_more_than_they_are(tmp_path):
    """What is known of all of them is kept once, not once a file."""
    names = [f"a{i}" for i in range(500)]
    node = _items(
        [{"__kind__": "array", "name": name, "dtype": "int8", "shape": [1]} for name in names]
    )
    records, files = {}, {}
    for number, name in enumerate(names):
        file = io.BytesIO()
        records[name] = npz.write(file, {name: np.zeros(1, np.int8)})[name] | {
            "file": f"arrays-{number}.npz"
        }
        files[f"arrays-{number}.npz"] = file.getvalue()
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        archive.writestr("manifest.json", format_manifest(node_manifest(node, arrays=records)))
        for name, data in files.items():
            archive.writestr(name, data)
    s.verify(tmp_path / "c.zip")
    tracemalloc.start()
    try:
        held = bundle.read(tmp_path / "c.zip")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert len(held.arrays) == 500
