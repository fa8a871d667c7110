"""Writes `tests/vectors/`: bundles for readers in other languages, with their contents as JSON.

    python -m tests.programs.format_vectors FOLDER

`docs/format.md` describes the files. They were written once and are never edited, so that readers can rely on them: to add
a vector, write all of them into another folder and copy the new one.
"""

import copy
import datetime as dt
import json
import math
import pathlib
import re
import sys
import tempfile
import types
import zipfile
from collections import Counter, OrderedDict, defaultdict, deque

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

import neuralqx_struct as s
from neuralqx_struct.bundle import opened, read, write, write_linked
from neuralqx_struct.dtypes import DTYPES, ML_DTYPES, dtype_name, dtype_named
from neuralqx_struct.manifest.payload import Payload
from tests.golden_kinds import Access, Colour, Couple, Pair, Point, Serialized, State
from tests.programs.damaged_vectors import array_node, refused

# ----------------------------------------------------------------------------------------------------------------------
# Arrays as JSON.


def number(value):
    """A float as JSON."""
    if value == 0 and math.copysign(1, value) < 0:
        return "-0"
    return value if math.isfinite(value) else str(value)


def element(value, dtype):
    """An element of an array as JSON."""
    if dtype.kind in "mM":
        return int(value.view(np.int64))
    if dtype.kind in "SU":
        return value.hex() if dtype.kind == "S" else str(value)
    family = DTYPES.get(dtype.name)
    name = dtype.name if family is None else family.family
    if name == "bool":
        return bool(value)
    if name.startswith(("int", "unsigned", "uint")):
        return int(value)
    if "complex" in name:
        return [number(float(value.real)), number(float(value.imag))]
    return number(float(value))


def array(value, **more):
    """An array as JSON."""
    held = np.asarray(value)
    values = [element(item, held.dtype) for item in held.reshape(-1)]
    return {"array": dtype_name(held.dtype), "shape": list(held.shape), "values": values, **more}


def on_host(value):
    """An array of numpy, and the same as JSON."""
    return value, array(value, leaf="numpy")


# ----------------------------------------------------------------------------------------------------------------------
# Values: each with its contents as JSON.

CLASSES = "tests.golden_kinds"
WORDS = np.array([[1, 2], [3, 2**32 - 1]], np.uint32)
HALF = np.array([[1.5, -0.0], [math.nan, math.inf]], ml_dtypes.bfloat16)
SHARED = np.arange(3, dtype="int16")
ZONE = dt.timezone(dt.timedelta(hours=-3, minutes=-30))

KINDS = {
    "null": (None, None),
    "true": (True, True),
    "integer": (-3, -3),
    "least": (-(2**63), -(2**63)),
    "largest": (2**63 - 1, 2**63 - 1),
    "text": ('ü\n"\\\U0001f600', 'ü\n"\\\U0001f600'),
    "float": (0.1, {"float": 0.1}),
    "whole-float": (2.0, {"float": 2.0}),
    "small-float": (5e-324, {"float": 5e-324}),
    "zero": (-0.0, {"float": "-0"}),
    "nan": (math.nan, {"float": "nan"}),
    "infinity": (-math.inf, {"float": "-inf"}),
    "bigint": (-(2**70), -(2**70)),
    "complex": (complex(-0.0, math.inf), {"complex": ["-0", "inf"]}),
    "bytes": (b"\x00\xffa", {"bytes": "00ff61"}),
    "bytearray": (bytearray(b"ab"), {"bytearray": "6162"}),
    "list": ([1, [2.5, []]], {"list": [1, {"list": [{"float": 2.5}, {"list": []}]}]}),
    "tuple": ((1, ("a",)), {"tuple": [1, {"tuple": ["a"]}]}),
    "set": ({3, 1, 2}, {"set": [1, 2, 3]}),
    "frozenset": (frozenset({"b", "a"}), {"frozenset": ["a", "b"]}),
    "deque": (deque([1, "two"], maxlen=3), {"deque": [1, "two"], "maxlen": 3}),
    "endless-deque": (deque([None]), {"deque": [None], "maxlen": None}),
    "dict": (
        {(1, "a"): 1, None: 2, 2.5: 3, True: 4, b"b": 5, 7: 6, "": 7},
        {
            "dict": [
                [{"tuple": [1, "a"]}, 1],
                [None, 2],
                [{"float": 2.5}, 3],
                [True, 4],
                [{"bytes": "62"}, 5],
                [7, 6],
                ["", 7],
            ]
        },
    ),
    "ordered-dict": (OrderedDict([("z", 1), ("a", 2)]), {"ordered-dict": [["z", 1], ["a", 2]]}),
    "defaultdict": (
        defaultdict(list, {"b": [1], "a": []}),
        {"defaultdict": [["b", {"list": [1]}], ["a", {"list": []}]], "factory": "list"},
    ),
    "counter": (Counter("aba"), {"counter": [["a", 2], ["b", 1]]}),
    "mapping-proxy": (types.MappingProxyType({"k": 1}), {"mapping-proxy": [["k", 1]]}),
    "path": (pathlib.Path("a/b"), {"path": "a/b"}),
    "posix-path": (pathlib.PurePosixPath("/a/b"), {"path": "/a/b", "pure": "posix"}),
    "windows-path": (pathlib.PureWindowsPath("c:/d"), {"path": "c:\\d", "pure": "windows"}),
    "dtype": (np.dtype(">f4"), {"dtype": ">f4"}),
    "slice": (slice(1, None, 2), {"slice": 1, "stop": None, "step": 2}),
    "range": (range(2**70, 0, -3), {"range": 2**70, "stop": 0, "step": -3}),
    "reference": (jax.nn.gelu, {"reference": "jax.nn:gelu"}),
    "datetime": (
        dt.datetime(2026, 11, 21, 18, 30, tzinfo=ZONE),
        {"datetime": "datetime", "value": "2026-11-21T18:30:00-03:30"},
    ),
    "date": (dt.date(2026, 11, 21), {"datetime": "date", "value": "2026-11-21"}),
    "time": (dt.time(1, 2, 3, 4), {"datetime": "time", "value": "01:02:03.000004"}),
    "timedelta": (dt.timedelta(-1, 2, 3), {"datetime": "timedelta", "value": "-1 2 3"}),
    "enum": (Colour.RED, {"enum": f"{CLASSES}:Colour", "name": "RED"}),
    "flag": (Access.READ | Access.WRITE, {"enum": f"{CLASSES}:Access", "name": "READ|WRITE"}),
    "no-flag": (Access(0), {"enum": f"{CLASSES}:Access", "name": ""}),
    "struct": (
        State(1, 2),
        {"struct": f"{CLASSES}:State", "fields": {"w": 1, "n": 2}},
    ),
    "namedtuple": (
        Couple(1, "b"),
        {"namedtuple": f"{CLASSES}:Couple", "fields": {"a": 1, "b": "b"}},
    ),
    "dataclass": (
        Point(1.5, None),
        {"pytree-dataclass": f"{CLASSES}:Point", "fields": {"x": {"float": 1.5}, "y": None}},
    ),
    "flattened": (
        Pair(SHARED[:2], "n"),
        {
            "registered-pytree": f"{CLASSES}:Pair",
            "mode": "flatten",
            "children": [array(SHARED[:2], leaf="numpy")],
            "aux": {"tuple": ["n"]},
        },
    ),
    "serialized": (
        Serialized(["a", 1]),
        {
            "registered-pytree": f"{CLASSES}:Serialized",
            "mode": "serializer",
            "payload": {"dict": [["words", {"list": ["a", 1]}]]},
        },
    ),
    "numpy-array": on_host(np.arange(6, dtype="int32").reshape(2, 3)),
    "jax-array": (jnp.asarray(HALF), array(HALF, leaf="jax")),
    "weak-array": (jnp.asarray(2.0), array(np.float32(2), leaf="jax", weak_type=True)),
    "shared": ([SHARED, SHARED], {"list": [array(SHARED, leaf="numpy")] * 2}),
    "empty-array": on_host(np.zeros((0, 2), "float32")),
    "prng-key": (
        jax.random.wrap_key_data(WORDS, impl="threefry2x32"),
        {"prng-key": "threefry2x32", "data": array(WORDS, leaf="jax")},
    ),
    "scalar": (np.float32(1.5), {"numpy-scalar": "float32", "value": 1.5}),
    "wide-scalar": (np.uint64(2**64 - 1), {"numpy-scalar": "uint64", "value": 2**64 - 1}),
    "bool-scalar": (np.bool_(1), {"numpy-scalar": "bool", "value": True}),
    "complex-scalar": (
        np.complex64(complex(1, -0.0)),
        {"numpy-scalar": "complex64", "value": [1.0, "-0"]},
    ),
    "date-scalar": (
        np.datetime64("1970-01-03"),
        {"numpy-scalar": "datetime64[D]", "value": 2},
    ),
    "text-scalar": (np.str_("ü"), {"numpy-scalar": "<U1", "value": "ü"}),
    "bytes-scalar": (np.bytes_(b"a\x00"), {"numpy-scalar": "|S2", "value": "6100"}),
}

#: Nodes that migrations write, or that only other programs write.
NODES = {
    "full": (
        {"__kind__": "full", "dtype": "float32", "shape": [2, 1], "value": 0.1, "leaf": "jax"},
        array(np.full((2, 1), 0.1, "float32"), leaf="jax"),
    ),
    "rounded": (
        {"__kind__": "full", "dtype": "bfloat16", "shape": [], "value": 3.14159},
        array(np.array(3.14159, ml_dtypes.bfloat16)),
    ),
    "full-nan": (
        {
            "__kind__": "full",
            "dtype": "complex128",
            "shape": [1],
            "value": {
                "__kind__": "complex",
                "real": 1,
                "imag": {"__kind__": "float", "value": "nan"},
            },
        },
        array(np.array([complex(1, math.nan)])),
    ),
    "plain-bigint": (2**64, 2**64),
    "small-bigint": ({"__kind__": "bigint", "value": "-007"}, -7),
    "exponent": (1e3, {"float": 1000.0}),
}

CODES = [">i2", ">u8", ">f4", ">c8", "<U3", ">U2", "|S3", "datetime64[ns]", "timedelta64[25s]", ">M8[D]"]  # fmt: skip


def samples(name):
    """An array of a dtype: all patterns of small dtypes, and limits of others."""
    dtype = dtype_named(name)
    if name in ML_DTYPES and dtype.itemsize == 1:
        bits = 8 if "int" in name else int(name[5])
        return np.arange(2**bits, dtype=np.uint8).view(dtype).reshape(4, -1)
    if name in ML_DTYPES:
        parts = [0x0000, 0x8000, 0x3FC0, 0xC0A0, 0x0001, 0x8001, 0x7F80, 0xFF80, 0x7FC0, 0x7BFF]
        return np.array(parts, np.uint16).view(dtype)
    if dtype.kind == "b":
        return np.array([True, False])
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return np.array([limits.min, limits.max, 1, 0], dtype).reshape(2, 2)
    if dtype.kind == "f":
        limits = np.finfo(dtype)
        values = [0.1, -0.0, limits.max, limits.smallest_subnormal, -math.inf, math.nan]
        return np.array(values, dtype)
    if dtype.kind == "c":
        return np.array([complex(0.1, -0.0), complex(math.nan, -math.inf)], dtype)
    if dtype.kind == "U":
        return np.array([["ü\U0001f600", ""], ["a", "bc"]], dtype)
    if dtype.kind == "S":
        return np.array([b"a\x00b", b"\xff", b""], dtype)
    return (
        np.array([0, -1, 2**40, -(2**63)], np.int64).astype(dtype.newbyteorder("=")).astype(dtype)
    )


ARRAYS = {name: samples(name) for name in [*DTYPES, *sorted(ML_DTYPES - DTYPES.keys()), *CODES]}
NAMES = ["", ".", "..", "a/b", "%", "%2F", "a b", "ü", "\U0001f600", "\\", "c:", "\x1f", "~", "a~2"]


# ----------------------------------------------------------------------------------------------------------------------
# Bundles.


def dict_of(described, kind="dict"):
    """A dict with names as JSON."""
    return {kind: [[name, value] for name, value in described.items()]}


def with_nodes(path, nodes):
    """Adds nodes to a bundle whose root is a dict."""
    payload = read(path)
    payload.document["manifest"]["items"] += [[name, node] for name, node in nodes.items()]
    write(path, payload, overwrite=True)


def sound(folder):
    """Writes the bundles that readers read, and returns their contents by their names."""
    contents = {}
    values = {name: value for name, (value, _) in KINDS.items()}
    described = {name: text for name, (_, text) in (KINDS | NODES).items()}
    s.export(values, folder / "kinds", metadata={"free": [1, 2.5, {"deep": None}]})
    with_nodes(folder / "kinds", {name: node for name, (node, _) in NODES.items()})
    contents["kinds"] = dict_of(described)
    described = {name: array(held, leaf="numpy") for name, held in ARRAYS.items()}
    for name, options in {
        "dtypes": {},
        "dtypes.zip": {},
        "dtypes-deflated": {"compress": True},
        "dtypes-safetensors": {"store": "safetensors"},
        "dtypes-safetensors.zip": {"store": "safetensors"},
    }.items():
        s.export(ARRAYS, folder / name, **options)
        contents[name] = dict_of(described)
    contents["names.zip"] = names(folder / "names.zip")
    contents["empty"] = None
    s.export(None, folder / "empty")
    contents["external"] = {"list": [{"external": f"{__name__}:number"}]}
    s.export([number], folder / "external")
    contents["schema"] = with_schema(folder / "schema")
    contents["files"] = of_several_files(folder / "files")
    contents["extensions"] = extended(folder / "extensions")
    contents["neuralqx.zip"] = of_neuralqx(folder / "neuralqx.zip")
    return contents


def names(path):
    """Names that are percent-encoded in paths, and names in records that no path has."""
    held = {name: np.array([at], "int8") for at, name in enumerate(NAMES)}
    s.export(held, path)
    payload = read(path)
    document, arrays = payload.document, dict(payload.arrays)
    for name in ["../up", "a//b", "/", "a/.", "c:\\d", "line\n", "..\n"]:
        arrays[name] = held[name] = np.array([len(held)], "int8")
        record = document["arrays"][name] = {"dtype": "int8", "shape": [1]}
        node = {**array_node(name, record), "leaf": "numpy"}
        document["manifest"]["items"].append([f"raw {name}", node])
    write(path, Payload(document, arrays), overwrite=True)
    keys = [key for key, _ in document["manifest"]["items"]]
    return dict_of(
        {key: array(a, leaf="numpy") for key, a in zip(keys, arrays.values(), strict=True)}
    )


def with_schema(path):
    """A bundle of a struct that a schema declares."""
    text = """
        language: "1"
        schema: lab.point
        version: 2
        root: Point
        structs: {Point: {fields: {x: "float32[2]", n: {type: int, kind: static}}}}
    """
    point = s.load_schema(text).Point(x=np.array([1, 2], "float32"), n=3)
    point.export(path)
    fields = {"x": array(np.array([1, 2], "float32"), leaf="numpy"), "n": 3}
    return {"struct": "lab.point@2:Point", "fields": fields}


def of_several_files(path):
    """A bundle after a migration of its manifest: a new file, a replaced array, one that is left over."""
    with tempfile.TemporaryDirectory() as folder:
        source = s.export({name: np.arange(2, dtype="int8") for name in "abc"}, f"{folder}/old")
        document = copy.deepcopy(read(source).document)
        del document["manifest"]["items"][1]
        del document["arrays"]["b"]
        with opened(source) as held:
            changed = {"a": np.array([7, 8], "int8")}
            write_linked(held, path, document, changed=changed)
    described = {"a": array(changed["a"], leaf="numpy")}
    return dict_of({**described, "c": array(np.arange(2, dtype="int8"), leaf="numpy")})


def extended(path):
    """A bundle with members that readers ignore, in each object that may have them."""
    more = {"later": {"must_understand": False, "facts": [{"__kind__": "unknown"}]}}
    record = {"dtype": "int8", "shape": [2]}
    node = {"__kind__": "list", "items": [{**array_node("w", record), **more}], **more}
    document = {"version": 1, "manifest": node, "arrays": {"w": {**record, **more}}, **more}
    document["writer"] = {"name": "another", "version": "3", **more}
    document["schema"] = {"id": "lab.w", "version": 1, "fingerprint": "sha256:0", **more}
    write(path, Payload(document, {"w": np.array([1, 2], "int8")}))
    return {"list": [array(np.array([1, 2], "int8"))]}


def of_neuralqx(path):
    """A bundle as neuraLQX writes it: deflated, without checksums, NaN as a token, raw dtypes, Fortran order."""
    bits = np.array([0x3FC0, 0xC0A0], np.uint16)
    held = {
        "arr_000000": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "arr_000001": bits.view("V2"),
    }
    with tempfile.TemporaryDirectory() as folder:
        np.savez_compressed(f"{folder}/arrays.npz", **held)
        inner = pathlib.Path(folder, "arrays.npz").read_bytes()
    wide = {"dtype": "float64", "shape": [2, 3]}
    half = {"dtype": "bfloat16", "shape": [2]}
    items = [array_node("arr_000000", wide), array_node("arr_000001", half), math.nan]
    fields = {"items": {"__kind__": "list", "items": items}, "z": -math.inf}
    root = {"__kind__": "struct", "type": "lab.model:State", "fields": fields}
    document = {
        "version": 1,
        "manifest": root,
        "arrays": {"arr_000000": wide, "arr_000001": half},
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {"manifest.json": json.dumps(document), "arrays.npz": inner}.items():
            member = zipfile.ZipInfo(name)
            archive.writestr(member, data, zipfile.ZIP_DEFLATED)
    values = [array(held["arr_000000"]), array(bits.view(ml_dtypes.bfloat16)), {"float": "nan"}]
    fields = {"items": {"list": values}, "z": {"float": "-inf"}}
    return {"struct": "lab.model:State", "fields": fields}


def as_text(contents):
    """JSON with each item of a dict on a line of its own."""
    if not isinstance(contents, dict) or "dict" not in contents:
        return json.dumps(contents, ensure_ascii=False) + "\n"
    lines = [json.dumps(item, ensure_ascii=False) for item in contents["dict"]]
    return '{"dict": [\n' + ",\n".join(lines) + "\n]}\n"


def main(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    for name, contents in sound(folder).items():
        about = re.split("[-.]", name)[0]
        (folder / f"{about}.json").write_text(as_text(contents), encoding="utf-8")
    (folder / "refused").mkdir()
    text = json.dumps(refused(folder / "refused"), indent=2)
    (folder / "refused.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
