"""The check of manifests: what is wrong is found, all of it, at its place."""

import json
import subprocess
import sys
import tomllib
from enum import IntEnum

import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.errors import SerializationError
from neuralqx_struct.manifest import WRITER
from neuralqx_struct.manifest import check as m
from neuralqx_struct.manifest.text import format_manifest, read_document
from tests.builders import ARRAY, BAD, GOOD, RECORD, ROOT, document, every, refused, stands_in


def test_a_good_manifest():
    assert m.check_manifest(GOOD) == []


@every(("value", "codes", "path"), BAD)
def test_bad_manifests(value, codes, path):
    found = m.check_manifest(value)
    assert {d.code for d in found} == codes
    assert found[0].path == path


@pytest.mark.parametrize("value", [None, [], 5, "x"])
def test_no_object(value):
    assert [d.code for d in m.check_manifest(value)] == ["NQX612"]


def test_everything_wrong_is_said_from_top_to_bottom_with_hints():
    fields = {
        "a": {**ARRAY, "shape": [-1, "x"]},
        "b": {"__kind__": "tuble", "items": []},
        "c": {**ARRAY, "naem": 1},
    }
    found = m.check_manifest(document({"__kind__": "struct", "type": "m:A", "fields": fields}))
    assert [d.path for d in found] == [
        "$.manifest.fields.a.shape[0]",
        "$.manifest.fields.a.shape[1]",
        "$.manifest.fields.b.__kind__",
        "$.manifest.fields.c.naem",
    ]
    assert [d.hint for d in found[2:]] == ["did you mean 'tuple'?", "did you mean 'name'?"]
    assert ">= 0" in found[0].message and "-1" in found[0].message


@pytest.mark.parametrize(
    ("node", "named"),
    [
        ({"__kind__": "dict", "items": ["x"]}, "'x'"),
        (
            {"__kind__": "registered-pytree", "type": "m:A", "mode": "zip"},
            "'zip'",
        ),
        (
            {"__kind__": "full", "dtype": "int8", "shape": [], "value": {"__kind__": "set"}},
            "'set'",
        ),
        ({"__kind__": "struct", "type": 5, "fields": {}}, "5"),
    ],
)
def test_messages_name_what_is_wrong(node, named):
    (found,) = m.check_manifest(document(node))
    assert stands_in(named, found.message)


class Pairs(dict):
    pass


class Size(IntEnum):
    A = 1


class Items(list):
    pass


@pytest.mark.parametrize(
    "value", [np.float32(1), np.int64(1), np.True_, Pairs(__kind__="list", items=[])]
)
def test_nodes_in_memory_are_plain_json_values(value):
    found = m.check_values(document({"__kind__": "tuple", "items": [1, value]}))
    assert [(d.code, d.path) for d in found] == [("NQX612", "$.manifest.items[1]")]


class Word(str):
    __slots__ = ()


@every(
    ("path", "value", "code"),
    [
        (("manifest", "items", 0, "__kind__"), Word("list"), "NQX612"),
        (("manifest", "items", 0, "items"), Items([1]), "NQX612"),
        (("manifest", "items", 0, "items"), ["\ud800"], "NQX001"),
        (("manifest", "items", 0, "items"), [{1: 2}], "NQX006"),
        (("arrays", "w", "shape"), [Size.A, 3], "NQX612"),
        (("metadata",), {"x": 10**4300}, "NQX612"),
        (("metadata",), {"x": [float("inf")]}, "NQX013"),
        (("schemas",), [{"\udfff": 1}], "NQX001"),
        (("schemas",), ["\udfff"], "NQX001"),
    ],
)
def test_documents_in_memory_are_json(path, value, code):
    node = {"__kind__": "list", "items": [{"__kind__": "list", "items": []}]}
    made = document(node, arrays={"w": {**RECORD}})
    assert m.check_values(made) == []
    inside = made
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    assert [d.code for d in m.check_values(made)] == [code]
    with refused(s.SerializationError, code):
        s.from_state_dict({**made, "array_data": {}})


def test_neuralqx_may_hold_nan_in_memory():
    many = document({"__kind__": "list", "items": [float("nan")] * 2000 + [Word()]})
    many.pop("writer", None)
    assert [d.code for d in m.check_values(many)] == ["NQX612"]


def test_integers_of_any_size_are_shown():
    found = m.check_manifest(document({"__kind__": "dtype", "value": 10**5000}))
    assert ["16610" in d.message for d in found] == [True]


def test_a_node_inside_itself():
    node = {"__kind__": "list", "items": [1]}
    node["items"].append(node)
    found = m.check_manifest(document(node))
    assert [(d.code, d.path) for d in found] == [("NQX005", "$.manifest.items[1].items[1]")]


def test_findings_are_bounded():
    assert len(m.check_manifest(document({"__kind__": "list", "items": [[]] * 5000}))) == 1000


@every(
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


def test_the_writer_is_this_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert dict(WRITER) == {"name": project["name"], "version": project["version"]}


# -- imports


def test_importing_needs_neither_numpy_nor_pydantic():
    code = "import sys, neuralqx_struct.manifest.check; assert not {'numpy', 'pydantic', 'jax', 'jsonschema'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


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
NODE = {**ARRAY, "leaf": "numpy", "weak_type": True}


@pytest.mark.parametrize("place", ["fields", "items", "pairs", "records"])
def test_the_text_is_judged_as_the_document_in_memory(place):
    """Text is parsed and validated in one step; only a text that is refused is parsed by ``json``."""

    def built(node, record):
        container = {
            "fields": {"__kind__": "struct", "type": "m:A", "fields": {"a": ARRAY, "b": node}},
            "pairs": {"__kind__": "dict", "items": [[0, ARRAY], [1, node]]},
        }.get(place, {"__kind__": "list", "items": [ARRAY, node]})
        return document(container, arrays={"w": RECORD, "v": record})

    assert m.check_manifest(built(NODE, RECORD)) == []
    good = RECORD if place == "records" else NODE
    changed = [{**good, name: value} for name in [*good, "more"] for value in WRONG]
    changed += [{n: v for n, v in good.items() if n != name} for name in good]
    changed += WRONG
    bad = 0
    for part in changed:
        case = built(NODE, part) if place == "records" else built(part, RECORD)
        found = m.check_manifest(case)
        bad += bool(found)
        assert read_document(json.dumps(case).encode()) == (case, found)
    assert bad > len(changed) // 2


def test_the_depth_of_many_arrays_counts():
    nodes = [{"__kind__": "array", "name": "x", "dtype": "int8", "shape": []}] * 40
    large = {"version": 1, "manifest": {"__kind__": "list", "items": nodes}, "arrays": {}}
    assert [d.code for d in m.check_manifest(large, limits=m.Limits(depth=1))] == ["NQX005"] * 40
    assert [d.code for d in m.check_manifest(large, limits=m.Limits(nodes=40))] == ["NQX005"]
    assert m.check_manifest(large, limits=m.Limits(depth=2, nodes=41)) == []


@pytest.mark.parametrize(
    ("function", "value"),
    [("_require", GOOD), ("_refuse", document({"__kind__": "prng-key", "impl": "rbg", "data": 5}))],
)
def test_an_interrupt_is_no_wrong_value(function, value):
    def interrupt(frame, event, _):
        if event == "call" and frame.f_code.co_name == function:
            sys.setprofile(None)
            raise KeyboardInterrupt

    m.check_manifest(value)  # builds the validators
    before = sys.getprofile()
    sys.setprofile(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            m.check_manifest(value)
    finally:
        sys.setprofile(before)
