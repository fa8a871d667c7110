"""The check of manifests: what is wrong is found, all of it, at its place."""

import json
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from neuralqx_struct import manifest as m
from neuralqx_struct.errors import SerializationError
from neuralqx_struct.manifest_rules import node_children
from neuralqx_struct.manifest_text import format_manifest, parse_manifest

ROOT = Path(__file__).parents[1]

ARRAY = {"__kind__": "array", "name": "w", "dtype": "float32", "shape": [2, 3]}
EVERY_KIND = [
    None,
    True,
    -5,
    2**63,
    1.5,
    "text",
    ARRAY,
    {**ARRAY, "leaf": "jax", "weak_type": True},
    {"__kind__": "struct", "type": "pkg:State", "fields": {"x": 1, "two words": ARRAY}},
    {"__kind__": "dict", "items": [["a", 1], [ARRAY, None]]},
    {"__kind__": "ordered-dict", "items": []},
    {"__kind__": "defaultdict", "factory": "list", "items": [["a", 1]]},
    {"__kind__": "counter", "items": [["a", 1]]},
    {"__kind__": "mapping-proxy", "items": []},
    {"__kind__": "deque", "items": [1], "maxlen": None},
    {"__kind__": "range", "start": 0, "stop": {"__kind__": "bigint", "value": "99"}, "step": -1},
    {"__kind__": "bytearray", "base64": ""},
    {"__kind__": "reference", "name": "jax.nn:relu"},
    {"__kind__": "path", "value": "a", "pure": "windows"},
    {"__kind__": "list", "items": [1, {"__kind__": "tuple", "items": []}]},
    {"__kind__": "set", "items": [1]},
    {"__kind__": "frozenset", "items": []},
    {"__kind__": "complex", "real": 1, "imag": {"__kind__": "float", "value": "nan"}},
    {"__kind__": "path", "value": "/a"},
    {"__kind__": "numpy-scalar", "dtype": "float32", "value": 1.5},
    {"__kind__": "numpy-scalar", "dtype": "complex64", "value": {"__kind__": "complex", "real": 0, "imag": 1.5}},
    {"__kind__": "registered-pytree", "type": "a:B", "mode": "flatten", "children": [1], "aux": None},
    {
        "__kind__": "registered-pytree",
        "type": "a:B",
        "mode": "serializer",
        "payload": {"__kind__": "list", "items": []},
    },
    {"__kind__": "namedtuple", "type": "a:B", "fields": {"x": 1}},
    {"__kind__": "bytes", "base64": "AAE="},
    {"__kind__": "float", "value": "-inf"},
    {"__kind__": "bigint", "value": "-123"},
    {"__kind__": "enum", "type": "a:B", "name": "X"},
    {"__kind__": "dtype", "value": "bfloat16"},
    {"__kind__": "slice", "start": None, "stop": 5, "step": None},
    {"__kind__": "datetime", "type": "date", "value": "2024-01-01"},
    {"__kind__": "prng-key", "impl": "threefry2x32", "data": ARRAY},
    {"__kind__": "pytree-dataclass", "type": "a:B", "fields": {}},
    {"__kind__": "full", "dtype": "float32", "shape": [], "value": 0.5, "leaf": "numpy"},
]
RECORD = {"dtype": "float32", "shape": [2, 3], "crc32": 7, "offset": 64, "nbytes": 24}
GOOD = {
    "$schema": m.SCHEMA_URL,
    "version": 1,
    "schema": {"id": "a.b", "version": 3, "fingerprint": "sha256:00"},
    "schemas": [{"schema": "a.b", "anything": [1, None]}],
    "manifest": {"__kind__": "list", "items": EVERY_KIND},
    "arrays": {"w": RECORD, "old": {**RECORD, "file": "arrays-1.npz", "unused": True}},
    "metadata": {"free": {"deep": [1, 2.5, None]}},
    "writer": {"name": "neuralqx-struct", "version": "0.1.0"},
    "digest": "sha256:" + "0" * 64,
    "later": {"must_understand": False, "x": [1]},
}


def document(node=None, **more):
    return {"version": 1, "manifest": node, "arrays": {}, "writer": GOOD["writer"], **more}


def test_a_good_manifest():
    assert m.check_manifest(GOOD) == []


BAD = [
    ({"version": 1}, {"NQX610"}, "$"),
    (document(version=2), {"NQX402"}, "$.version"),
    (document(version=0), {"NQX402"}, "$.version"),
    (document(version=True), {"NQX612"}, "$.version"),
    (document(version="1"), {"NQX612"}, "$.version"),
    (document(manifests=1), {"NQX611"}, "$.manifests"),
    (document(later={"must_understand": True}), {"NQX403"}, "$.later"),
    (document(arrays=[]), {"NQX612"}, "$.arrays"),
    (document(arrays={"w": 5}), {"NQX612"}, "$.arrays.w"),
    (document(arrays={"a/b": {**RECORD, "crc32": 2**32}}), {"NQX614"}, "$.arrays['a/b'].crc32"),
    (document(arrays={"w": {**RECORD, "chunk": [2], "chunk_crc32": [1, 2**32]}}), {"NQX612"}, "$.arrays.w.chunk_crc32"),
    (document(arrays={"w": {**RECORD, "chunk": 2}}), {"NQX612"}, "$.arrays.w.chunk"),
    (document(arrays={"w": {**RECORD, "unused": False}}), {"NQX612"}, "$.arrays.w.unused"),
    (document(arrays={"w": {**RECORD, "file": "../x.npz"}}), {"NQX503"}, "$.arrays.w.file"),
    (document(arrays={"w": {**RECORD, "offfset": 1}}), {"NQX611"}, "$.arrays.w.offfset"),
    (document(schema={"id": "a", "version": 0, "fingerprint": ""}), {"NQX614"}, "$.schema.version"),
    (document(schema=5), {"NQX612"}, "$.schema"),
    (document(schemas=[1]), {"NQX612"}, "$.schemas"),
    (document(metadata=[]), {"NQX612"}, "$.metadata"),
    (document(writer={"name": "x"}), {"NQX610"}, "$.writer"),
    (document(digest="md5:0"), {"NQX614"}, "$.digest"),
    (document(digest="sha256:" + "0" * 64 + "\n"), {"NQX614"}, "$.digest"),
    (document({"__kind__": "bytes", "base64": "AAAA\n"}), {"NQX614"}, "$.manifest.base64"),
    (document({"__kind__": "bigint", "value": "1\n"}), {"NQX614"}, "$.manifest.value"),
    (document(arrays={"w": {**RECORD, "file": "x.npz\n"}}), {"NQX503"}, "$.arrays.w.file"),
    (document(arrays={"w": {**RECORD, "shape": [1] * 65}}), {"NQX614"}, "$.arrays.w.shape"),
    (document(arrays={"w": {**RECORD, "shape": [2**63]}}), {"NQX614"}, "$.arrays.w.shape[0]"),
    (document([1]), {"NQX612"}, "$.manifest"),
    (document({"a": 1}), {"NQX610"}, "$.manifest"),
    (document({"__kind__": ["array"]}), {"NQX612"}, "$.manifest.__kind__"),
    (document({"__kind__": "arry"}), {"NQX613"}, "$.manifest.__kind__"),
    (document({"__kind__": "null"}), {"NQX613"}, "$.manifest.__kind__"),
    (document({"__kind__": "registered-pytree/flatten"}), {"NQX613"}, "$.manifest.__kind__"),
    (document({**ARRAY, "shape": [2, -3]}), {"NQX614"}, "$.manifest.shape[1]"),
    (document({**ARRAY, "shape": ["2"]}), {"NQX612"}, "$.manifest.shape[0]"),
    (document({**ARRAY, "shape": [True]}), {"NQX612"}, "$.manifest.shape[0]"),
    (document({**ARRAY, "shape": 3}), {"NQX612"}, "$.manifest.shape"),
    (document({**ARRAY, "leaf": "torch"}), {"NQX614"}, "$.manifest.leaf"),
    (document({**ARRAY, "leaf": []}), {"NQX612"}, "$.manifest.leaf"),
    (document({**ARRAY, "name": 5}), {"NQX612"}, "$.manifest.name"),
    (document({**ARRAY, "later": {"must_understand": 0}}), {"NQX611"}, "$.manifest.later"),
    (document({"__kind__": "list", "items": {}}), {"NQX612"}, "$.manifest.items"),
    (document({"__kind__": "dict", "items": [[1]]}), {"NQX612"}, "$.manifest.items[0]"),
    (document({"__kind__": "dict", "items": [["k", [1]]]}), {"NQX612"}, "$.manifest.items[0][1]"),
    (document({"__kind__": "struct", "type": "a:B", "fields": []}), {"NQX612"}, "$.manifest.fields"),
    (document({"__kind__": "complex", "real": "1", "imag": 0}), {"NQX612"}, "$.manifest.real"),
    (document({"__kind__": "complex", "real": True, "imag": 0}), {"NQX612"}, "$.manifest.real"),
    (document({"__kind__": "numpy-scalar", "dtype": "x", "value": ARRAY}), {"NQX612"}, "$.manifest.value"),
    (document({"__kind__": "prng-key", "impl": "x", "data": 5}), {"NQX612"}, "$.manifest.data"),
    (document({"__kind__": "bytes", "base64": "?"}), {"NQX614"}, "$.manifest.base64"),
    (document({"__kind__": "bigint", "value": "1e5"}), {"NQX614"}, "$.manifest.value"),
    (document({"__kind__": "registered-pytree", "type": "a:B", "mode": "x"}), {"NQX614"}, "$.manifest.mode"),
    (document({"__kind__": "registered-pytree", "type": "a:B"}), {"NQX610"}, "$.manifest"),
    (
        document({"__kind__": "registered-pytree", "type": "a:B", "mode": "serializer", "children": [], "aux": 1}),
        {"NQX610", "NQX611"},
        "$.manifest",
    ),
]


@pytest.mark.parametrize(("value", "codes", "path"), BAD)
def test_bad_manifests(value, codes, path):
    found = m.check_manifest(value)
    assert {d.code for d in found} == codes
    assert found[0].path == path


@pytest.mark.parametrize("value", [None, [], 5, "x"])
def test_no_object(value):
    assert [d.code for d in m.check_manifest(value)] == ["NQX612"]


def test_everything_wrong_is_said_from_top_to_bottom_with_hints():
    fields = {"a": {**ARRAY, "shape": [-1, "x"]}, "b": {"__kind__": "tuble", "items": []}, "c": {**ARRAY, "naem": 1}}
    found = m.check_manifest(document({"__kind__": "struct", "type": "m:A", "fields": fields}))
    assert [d.path for d in found] == [
        "$.manifest.fields.a.shape[0]",
        "$.manifest.fields.a.shape[1]",
        "$.manifest.fields.b.__kind__",
        "$.manifest.fields.c.naem",
    ]
    assert [d.hint for d in found[2:]] == ["did you mean 'tuple'?", "did you mean 'name'?"]
    assert found[0].message == "expected an integer >= 0, got -1"


def test_findings_are_bounded():
    assert len(m.check_manifest(document({"__kind__": "list", "items": [[]] * 5000}))) == 1000


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (document({1: 2, "__kind__": "struct", "type": "a:B", "fields": {}}), "NQX006"),
        (document({"__kind__": "struct", "type": "a:B", "fields": {1: 2}}), "NQX006"),
        (document(metadata={1: 2}), "NQX006"),
        (document(metadata={"x": {1}}), "NQX612"),
        (document(metadata={"x": float("inf")}), "NQX013"),
        (document(float("nan")), "NQX013"),
        (document(arrays={1: RECORD}), "NQX006"),
        (document(object()), "NQX612"),
    ],
)
def test_documents_made_in_memory(value, code):
    assert code in {d.code for d in m.check_manifest(value)}
    with pytest.raises(SerializationError):
        format_manifest({**value, "metadata": {"x": object()}})


def test_without_a_writer_nan_is_a_number():
    value = {
        "version": 1,
        "manifest": {"__kind__": "complex", "real": float("nan"), "imag": float("inf")},
        "arrays": {},
    }
    assert m.check_manifest(value) == []
    assert [d.code for d in m.check_manifest({**value, "writer": GOOD["writer"]})] == ["NQX013"] * 2


def test_limits():
    wide = document({"__kind__": "list", "items": [1] * 100})
    deep = document(5)
    for _ in range(60):
        deep["manifest"] = {"__kind__": "list", "items": [deep["manifest"]]}
    assert m.check_manifest(wide) == m.check_manifest(deep) == []
    for value, limits in ((wide, m.Limits(nodes=100)), (deep, m.Limits(depth=60))):
        assert [d.code for d in m.check_manifest(value, limits=limits)] == ["NQX005"]
    free = []
    for _ in range(700):
        free = [free]
    assert [d.code for d in m.check_manifest(document(metadata={"x": free}))] == ["NQX005"]


def test_node_children():
    node = {"__kind__": "dict", "items": [["k", ARRAY]]}
    assert list(node_children(node)) == [("items", (0, 0), "k"), ("items", (0, 1), ARRAY)]
    assert list(node_children(5)) == list(node_children(ARRAY)) == []
    key = {"__kind__": "prng-key", "impl": "x", "data": ARRAY}
    assert list(node_children(key)) == [("data", None, ARRAY)]
    struct = {"__kind__": "struct", "type": "a:B", "fields": {"x": 1}}
    assert list(node_children(struct)) == [("fields", "x", 1)]


def test_the_writer_is_this_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert dict(m.WRITER) == {"name": project["name"], "version": project["version"]}


# -- speed


def test_importing_needs_neither_numpy_nor_pydantic():
    code = (
        "import sys, neuralqx_struct.manifest; assert not {'numpy', 'pydantic', 'jax', 'jsonschema'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_checking_a_large_manifest_costs_little_more_than_parsing_it():
    names = [f"params/layer_{i}/kernel" for i in range(5_000)]
    fields = {name: {**ARRAY, "name": name} for name in names}
    large = document({"__kind__": "struct", "type": "a:B", "fields": fields}, arrays=dict.fromkeys(names, RECORD))
    data = format_manifest(large)

    ratios = []
    for _ in range(5):  # side by side, so that a busy machine slows both
        begin = time.perf_counter()
        json.loads(data)
        parsed = time.perf_counter()
        m.check_manifest(parse_manifest(data))
        ratios.append((time.perf_counter() - parsed) / (parsed - begin))
    assert min(ratios) < 4  # the goal is 2.5, measured in benchmarks/; this guards against a slip to another order


WRONG = [
    None,
    True,
    -1,
    2**70,
    1.5,
    "x",
    "jax",
    [],
    [1, -2],
    [True],
    ["a"],
    {},
    {"must_understand": False},
    {"must_understand": True},
]


@pytest.mark.parametrize("place", ["fields", "items", "pairs", "records"])
def test_many_arrays_are_checked_as_each_alone(place, monkeypatch):
    """They are checked column by column; what is found is what the check of each by itself finds."""

    def built(node, record):
        nodes = [
            {"__kind__": "array", "name": f"x{i}", "dtype": "int8", "shape": [i], "leaf": "jax"} for i in range(40)
        ]
        nodes[30:35] = [{"__kind__": "array", "name": "x", "dtype": "int8", "shape": []}, *nodes[:3], node]
        container = {
            "fields": {"__kind__": "struct", "type": "m:A", "fields": {f"f{i}": node for i, node in enumerate(nodes)}},
            "pairs": {"__kind__": "dict", "items": [[i, node] for i, node in enumerate(nodes)]},
        }.get(place, {"__kind__": "list", "items": nodes})
        records = {
            f"x{i}": {"dtype": "int8", "shape": [i], "crc32": i, "offset": 64 * i, "nbytes": i} for i in range(40)
        }
        return {"version": 1, "manifest": container, "arrays": {**records, "x31": record}, "writer": dict(m.WRITER)}

    node = {"__kind__": "array", "name": "x", "dtype": "int8", "shape": [2], "leaf": "numpy", "weak_type": True}
    record = {"dtype": "int8", "shape": [2], "crc32": 1, "offset": 64, "nbytes": 2, "file": "a.npz", "unused": True}
    assert m.check_manifest(built(node, record)) == []
    cases = []
    for name in [*(record if place == "records" else node), "more"]:
        for value in WRONG:
            changed = {**(record if place == "records" else node), name: value}
            cases.append(built(node, changed) if place == "records" else built(changed, record))
    cases += [built(value, value) for value in WRONG]
    cases += [built({n: v for n, v in node.items() if n != name}, record) for name in node]
    cases += [built(node, {n: v for n, v in record.items() if n != name}) for name in record]
    quick = [m.check_manifest(case) for case in cases]
    monkeypatch.setattr(m, "sound_arrays", lambda *_: 0)
    monkeypatch.setattr(m, "sound_all", lambda *_: False)
    assert quick == [m.check_manifest(case) for case in cases]
    assert sum(map(bool, quick)) > len(cases) // 2


def test_the_depth_of_many_arrays_counts():
    nodes = [{"__kind__": "array", "name": "x", "dtype": "int8", "shape": []}] * 40
    large = {"version": 1, "manifest": {"__kind__": "list", "items": nodes}, "arrays": {}}
    assert [d.code for d in m.check_manifest(large, limits=m.Limits(depth=1))] == ["NQX005"] * 40
    assert [d.code for d in m.check_manifest(large, limits=m.Limits(nodes=40))] == ["NQX005"]
    assert m.check_manifest(large, limits=m.Limits(depth=2, nodes=41)) == []
