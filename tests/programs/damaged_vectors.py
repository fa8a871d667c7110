"""The bundles among `tests/vectors/` that readers refuse: each has one thing that is wrong.

`format_vectors.py` writes them.
"""

import copy
import pathlib
import tempfile
import zipfile

import numpy as np

import neuralqx_struct as s
from neuralqx_struct.bundle import read
from neuralqx_struct.manifest.text import format_manifest, reseal

W = np.arange(6, dtype="float32").reshape(2, 3)
B = np.array([1, -1, 2, -2], "int8")


def plain(store):
    """A bundle in the given store, as its manifest and the bytes of its array file."""
    with tempfile.TemporaryDirectory() as folder:
        path = s.export([W, B, "end"], f"{folder}/ckpt", store=store)
        document = read(path, mmap=False).document
        return document, (path / f"arrays.{store}").read_bytes()


def array_node(name, record):
    """The node of an array."""
    return {"__kind__": "array", "name": name, "dtype": record["dtype"], "shape": record["shape"]}


def node_of(document):
    return document["manifest"]["items"][0]


def record_of(document):
    return document["arrays"]["0"]


def with_last(node):
    """Replaces the last item of the root by a node."""

    def edit(document):
        document["manifest"]["items"][2] = node

    return edit


def both(member, value):
    """Changes a member of a node and of its record."""

    def edit(document):
        node_of(document)[member] = record_of(document)[member] = value

    return edit


def member(value, *keys):
    """Sets a member of the document."""

    def edit(document):
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = value

    return edit


def without(*keys):
    """Removes a member of the document."""

    def edit(document):
        for key in keys[:-1]:
            document = document[key]
        del document[keys[-1]]

    return edit


def nested(depth):
    node = 1
    for _ in range(depth):
        node = {"__kind__": "list", "items": [node]}
    return node


def kind(tag, **members):
    return with_last({"__kind__": tag, **members})


RECORD = {"dtype": "int8", "shape": [2], "crc32": 0, "nbytes": 2}
ELSEWHERE = array_node("more", RECORD)
#: By name: the code, and a change of the document, whose digest is computed anew.
DOCUMENTS = {
    "version-2": ("NQX402", member(2, "version")),
    "version-true": ("NQX612", member(True, "version")),
    "unknown-member": ("NQX611", member(5, "later")),
    "unknown-member-of-a-record": ("NQX611", member({}, "arrays", "0", "later")),
    "must-understand": ("NQX403", member({"must_understand": True}, "later")),
    "missing-member": ("NQX610", without("manifest", "items", 0, "shape")),
    "unknown-kind": ("NQX613", kind("torch")),
    "list-as-node": ("NQX612", with_last([1])),
    "object-as-node": ("NQX610", with_last({"a": 1})),
    "negative-size": ("NQX614", both("shape", [-2, 3])),
    "axes-65": ("NQX614", both("shape", [1] * 65)),
    "label-of-marks": ("NQX614", kind("enum", type="lab:Mode", name="a\u202eb")),
    "class-with-a-wrong-version": ("NQX501", kind("struct", type="lab.a@0:State", fields={})),
    "base64-cut": ("NQX614", kind("bytes", base64="AAA")),
    "base64-of-lines": ("NQX614", kind("bytes", base64="AAAA\n")),
    "digits-with-marks": ("NQX614", kind("bigint", value="1_000")),
    "too-deep": ("NQX005", with_last(nested(199))),
    "full-too-large": ("NQX505", kind("full", dtype="int8", shape=[2**30 + 1], value=0)),
    "full-out-of-range": ("NQX612", kind("full", dtype="int8", shape=[2], value=300)),
    "full-too-small": ("NQX612", kind("full", dtype="float16", shape=[2], value=1e-9)),
    "full-of-a-truth-value": ("NQX612", kind("full", dtype="float32", shape=[2], value=True)),
    "key-twice": ("NQX612", kind("dict", items=[["a", 1], ["a", 2]])),
    "key-twice-as-a-float": ("NQX612", kind("dict", items=[[1, 1], [1.0, 2]])),
    "key-that-is-a-list": ("NQX612", kind("dict", items=[[nested(1), 1]])),
    "item-twice": ("NQX612", kind("set", items=[1, 2, 1])),
    "deque-too-long": ("NQX612", kind("deque", items=[1, 2], maxlen=1)),
    "range-without-step": ("NQX612", kind("range", start=0, stop=1, step=0)),
    "no-date": ("NQX612", kind("datetime", type="date", value="2026-02-30")),
    "pair-of-one": ("NQX612", kind("dict", items=[["a"]])),
    "no-record": ("NQX409", with_last(ELSEWHERE)),
    "no-node": ("NQX410", with_last(None), lambda d: d["manifest"]["items"].pop(0)),
    "unused-but-named": ("NQX410", member(True, "arrays", "0", "unused")),
    "no-array": ("NQX409", with_last(ELSEWHERE), lambda d: d["arrays"].update(more=RECORD)),
    "no-file": ("NQX409", member("arrays-1.npz", "arrays", "0", "file")),
    "file-outside": ("NQX503", member("../arrays.npz", "arrays", "0", "file")),
    "dtypes-differ": ("NQX411", member("int32", "arrays", "0", "dtype")),
    "shapes-differ": ("NQX412", member([3, 2], "arrays", "0", "shape")),
    "unknown-dtype": ("NQX411", both("dtype", "float17")),
    "object-dtype": ("NQX411", both("dtype", "object")),
    "file-of-another-dtype": ("NQX411", both("dtype", "int32")),
    "file-of-another-shape": ("NQX412", both("shape", [3, 2])),
    "wrong-nbytes": ("NQX408", member(20, "arrays", "0", "nbytes")),
    "wrong-offset": ("NQX408", member(64, "arrays", "0", "offset")),
    "no-checksum": ("NQX407", without("arrays", "0", "crc32")),
    "checksum-too-large": ("NQX614", member(2**32, "arrays", "0", "crc32")),
}


def replaced(old, new):
    return lambda data: data.replace(old, new, 1)


#: By name: the code, and a change of the text of the manifest, whose digest is computed anew.
TEXTS = {
    "version-float": ("NQX612", replaced(b'"version": 1,', b'"version": 1.0,')),
    "member-twice": ("NQX014", replaced(b'"end"', b'{"__kind__": "list", "items": [], "items": []}')),
    "token-nan": ("NQX013", replaced(b'"end"', b"NaN")),
    "number-too-large": ("NQX013", replaced(b'"end"', b"1e999")),
    "byte-order-mark": ("NQX001", lambda data: b"\xef\xbb\xbf" + data),
    "not-utf-8": ("NQX001", replaced(b'"end"', b'"\xff"')),
    "half-of-a-pair": ("NQX001", replaced(b'"end"', b'"\\ud800"')),
    "line-break-in-text": ("NQX001", replaced(b'"end"', b'"e\nd"')),
    "comma-too-many": ("NQX001", replaced(b'"end"', b'"end",')),
    "leading-zero": ("NQX001", replaced(b'"end"', b"01")),
}  # fmt: skip
#: The same, without a new digest.
DAMAGED_TEXTS = {
    "edited": ("NQX407", replaced(b'"end"', b'"and"')),
    "no-digest": ("NQX407", lambda data: data[: data.rindex(b",\n")] + b"\n}\n"),
    "digest-not-last": ("NQX407", lambda data: data[: data.rindex(b"}")] + b', "metadata": {}}\n'),
    "cut-manifest": ("NQX001", lambda data: data[:200]),
}


def flipped(place):
    def edit(data):
        return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]

    return edit


def zipped(*members, **more):
    """A zip of these members, each with changed attributes if wanted."""

    def edit(_):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "arrays.npz")
            with zipfile.ZipFile(path, "w") as archive:
                for name, data in members:
                    info = zipfile.ZipInfo(name)
                    info.external_attr = more.get("attributes", 0)
                    archive.writestr(info, data, more.get("method", zipfile.ZIP_STORED))
            return path.read_bytes()

    return edit


def npy(value, **options):
    """The bytes of a `.npy` file."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "value.npy")
        np.save(path, value, **options)
        return path.read_bytes()


def changed_everywhere(old, new):
    return lambda data: data.replace(old, new)


def fields(signature, at, value, members=2):
    """Changes a field of the headers of the first members of a zip."""

    def edit(data):
        held, place = bytearray(data), 0
        for _ in range(members):
            place = data.index(signature, place) + 1
            held[place - 1 + at : place - 1 + at + len(value)] = value
        return bytes(held)

    return edit


def sized(size):
    """Gives the first member of a zip another size."""
    value = size.to_bytes(4, "little")
    return in_turn(fields(b"PK\1\2", 24, value, 1), fields(b"PK\3\4", 22, value, 1))


def in_turn(*edits):
    def edit(data):
        for each in edits:
            data = each(data)
        return data

    return edit


BOTH = [("0.npy", npy(W)), ("1.npy", npy(B))]


def deflated(first):
    """A zip whose members are deflated, the first with these data."""
    return zipped(("0.npy", first), BOTH[1], method=zipfile.ZIP_DEFLATED)


#: By name: the code, and a change of the array file. Offsets of the records are left out.
FILES = {
    "bit-in-an-array": ("NQX407", flipped(128 + 64 + 5)),
    "bit-in-a-dtype": ("NQX411", replaced(b"'<f4'", b"'<i4'")),
    "cut-file": ("NQX408", lambda data: data[:-30]),
    "empty-file": ("NQX408", lambda _: b""),
    "comment": ("NQX408", lambda data: data + b"comment"),
    "pickled-objects": (
        "NQX502",
        zipped(("0.npy", npy(np.array([[None] * 3] * 2), allow_pickle=True)), BOTH[1]),
    ),
    "records-of-python": (
        "NQX502",
        zipped(("0.npy", npy(np.zeros((2, 3), [("a", "<f4")]))), BOTH[1]),
    ),
    "array-without-record": ("NQX410", zipped(*BOTH, ("2.npy", npy(B)))),
    "member-twice-in-the-file": ("NQX509", in_turn(zipped(*BOTH, ("2.npy", npy(B))), changed_everywhere(b"2.npy", b"1.npy"))),
    "member-outside": ("NQX503", zipped(*BOTH, ("../2.npy", npy(B)))),
    "link-in-the-zip": ("NQX504", zipped(*BOTH, attributes=0o120777 << 16)),
    "encrypted": ("NQX508", in_turn(fields(b"PK\1\2", 8, b"\1"), fields(b"PK\3\4", 6, b"\1"))),
    "another-method": ("NQX508", in_turn(fields(b"PK\1\2", 10, b"\x0c"), fields(b"PK\3\4", 8, b"\x0c"))),
    "headers-differ": ("NQX408", fields(b"PK\3\4", 14, b"\0\0\0\0")),
    "expands-to-more": ("NQX505", in_turn(deflated(npy(W) + bytes(5000)), sized(152))),
    "expands-to-fewer": ("NQX408", in_turn(deflated(npy(W)[:-4]), sized(152))),
    "larger-than-the-array": ("NQX505", deflated(npy(W) + bytes(5000))),
}  # fmt: skip


def header(text):
    """Replaces the header of a safetensors file."""

    def edit(data):
        start = 8 + int.from_bytes(data[:8], "little")
        return len(text).to_bytes(8, "little") + text + data[start:]

    return edit


F32 = b'"0":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}'
TENSORS = {
    "safetensors-bit": ("NQX407", flipped(-3)),
    "safetensors-cut": ("NQX408", lambda data: data[:-1]),
    "safetensors-cut-in-its-header": ("NQX408", lambda data: data[:40]),
    "safetensors-gap": ("NQX408", header(b"{" + F32 + b',"1":{"dtype":"I8","shape":[3],"data_offsets":[25,28]}}')),
    "safetensors-overlap": ("NQX408", header(b"{" + F32 + b',"1":{"dtype":"I8","shape":[4],"data_offsets":[23,27]}}')),
    "safetensors-dtype": ("NQX411", header(b"{" + F32.replace(b"F32", b"I32") + b',"1":{"dtype":"I8","shape":[4],"data_offsets":[24,28]}}')),
    "safetensors-shape": ("NQX412", header(b"{" + F32.replace(b"2,3", b"3,2") + b',"1":{"dtype":"I8","shape":[4],"data_offsets":[24,28]}}')),
    "safetensors-member": ("NQX408", header(b"{" + F32 + b',"1":{"dtype":"I8","shape":[4],"data_offsets":[24,28],"more":1}}')),
    "safetensors-member-twice": ("NQX408", header(b"{" + F32 + b"," + F32 + b',"1":{"dtype":"I8","shape":[4],"data_offsets":[24,28]}}')),
    "safetensors-no-record": ("NQX410", header(b"{" + F32 + b',"1":{"dtype":"I8","shape":[4],"data_offsets":[24,28]},"2":{"dtype":"I8","shape":[0],"data_offsets":[28,28]}}')),
}  # fmt: skip


def refused(folder):
    """Writes the bundles that readers refuse, each as a zip, and returns the codes by their names."""
    codes = {}

    def put(name, code, text, file, data):
        codes[name] = code
        with zipfile.ZipFile(folder / f"{name}.zip", "w") as archive:
            for member, content in {"manifest.json": text, file: data}.items():
                archive.writestr(zipfile.ZipInfo(member), content)

    document, data = plain("npz")
    for name, (code, *edits) in DOCUMENTS.items():
        edited = copy.deepcopy(document)
        for edit in edits:
            edit(edited)
        put(name, code, format_manifest(edited), "arrays.npz", data)
    text = format_manifest(document)
    for name, (code, edit) in TEXTS.items():
        put(name, code, reseal(edit(text)), "arrays.npz", data)
    for name, (code, edit) in DAMAGED_TEXTS.items():
        put(name, code, edit(text), "arrays.npz", data)
    for record in document["arrays"].values():
        del record["offset"]
    for name, (code, edit) in FILES.items():
        put(name, code, format_manifest(document), "arrays.npz", edit(data))
    document, data = plain("safetensors")
    for record in document["arrays"].values():
        del record["offset"]
    for name, (code, edit) in TENSORS.items():
        put(name, code, format_manifest(document), "arrays.safetensors", edit(data))
    return codes
