"""neuralqx_struct.schema.fitting: plain trees read by a schema that was written by hand."""

import json

import pytest

import neuralqx_struct as s
from neuralqx_struct.schema.fitting import entries, numbered, numbered_names, unboxed
from neuralqx_struct.schema.series import load_series
from tests.builders import bounded

SCHEMA = """
language: "1"
schema: lab.net
version: 1
root: Net
structs:
  Dense: {fields: {kernel: "float32[i, o]", bias: "float32[o] | null"}}
  Norm: {fields: {scale: "float32[n]"}}
  Net:
    fields:
      layers: list[Dense]
      last: Dense | Norm | null
      table: "dict[str, Norm]"
      pair: tuple[Norm, int]
      rest: pytree
"""


def node(kind, **members):
    return {"__kind__": kind, **members}


def array(*shape, dtype="float32"):
    return node("full", dtype=dtype, shape=list(shape), value=0)


def plain(**items):
    return node("dict", items=[[key, value] for key, value in items.items()])


def flat(children, aux=None):
    return node("registered-pytree", type="m:R", mode="flatten", children=children, aux=aux)


def box(child):
    return flat([child])


def dense(i, o):
    return plain(kernel=array(i, o), bias=array(o))


def norm(n):
    return plain(scale=array(n))


NET = {
    "layers": node("tuple", items=[dense(2, 3), dense(3, 4)]),
    "last": norm(4),
    "table": plain(a=norm(2)),
    "pair": node("list", items=[norm(1), 3]),
    "rest": node("set", items=[1]),
}


@pytest.fixture
def found(tmp_path):
    def validate(root, schema=SCHEMA):
        path = tmp_path / "manifest.json"
        path.write_text(json.dumps({"version": 1, "manifest": root, "arrays": {}}))
        return [(d.code, d.path) for d in s.validate(path, load_series(schema))]

    return validate


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"layers": plain(**{"1": dense(3, 4), "0": dense(2, 3)})},
        {"layers": node("dict", items=[[1, dense(3, 4)], [0, dense(2, 3)]])},
        {"layers": node("list", items=[])},
        {"layers": flat([dense(2, 3)], node("tuple", items=[0]))},
        {"last": None},
        {"last": dense(1, 1)},
        {"last": node("namedtuple", type="m:Other", fields={"scale": box(array(2))})},
        {"last": flat([array(2)], node("tuple", items=["scale"]))},
        {"last": plain(kernel=box(box(array(2, 3))), bias=None)},
        {"table": node("defaultdict", factory="none", items=[["a", norm(3)]])},
        {"pair": flat([norm(1), box(7)])},
        {"pair": node("registered-pytree", type="m:R", mode="serializer", payload=NET["pair"])},
        {"rest": {"__kind__": "list", "items": [array(2), "a"]}},
    ],
    ids=str,
)
def test_trees_that_conform(found, changes):
    root = plain(**NET | changes)
    assert found(root) == []
    assert found(box(root)) == []


def test_numbered_names_are_a_list(found):
    layers = {"layers_1": dense(3, 4), "layers_0": dense(2, 3)}
    rest = {name: value for name, value in NET.items() if name != "layers"}
    assert found(plain(**layers, **rest)) == []
    assert found(plain(layers0=dense(1, 1), **rest)) == []
    missing = [("NQX415", "$.layers_1"), ("NQX414", "$.layers")]
    assert sorted(found(plain(layers_1=dense(1, 1), **rest))) == sorted(missing)


@pytest.mark.parametrize(
    ("changes", "code", "path"),
    [
        ({"layers": node("list", items=[norm(2)])}, "NQX414", "$.layers[0].kernel"),
        ({"last": plain(kernel=array(2, 3), bias=array(2))}, "NQX413", "$.last.bias"),
        ({"last": plain(a=1)}, "NQX411", "$.last"),
        ({"extra": 1}, "NQX415", "$.extra"),
        ({"table": node("list", items=[])}, "NQX411", "$.table"),
        ({"pair": node("set", items=[])}, "NQX411", "$.pair"),
        ({"layers": 5}, "NQX411", "$.layers"),
    ],
    ids=str,
)
def test_trees_that_do_not(found, changes, code, path):
    assert (code, path) in found(plain(**NET | changes))


def test_a_root_without_names_is_the_only_field(found):
    schema = 'language: "1"\nschema: a\nversion: 1\nroot: A\nstructs: {A: {fields: {value: "list[int]"}}}\n'
    assert found(node("list", items=[1, 2]), schema) == []
    assert found(plain(value=node("list", items=[1])), schema) == []
    assert found(node("list", items=["a"]), schema) == [("NQX411", "$.value[0]")]
    assert found(5) == [("NQX404", "$.schema")]


def test_structs_of_other_schemas(found, tmp_path):
    for name, fields in [("inner", "{w: int}"), ("outer", "{inner: lab.inner.Inner}")]:
        (tmp_path / name).mkdir()
        uses = "uses: [lab.inner@1]\n" if name == "outer" else ""
        text = f'language: "1"\nschema: lab.{name}\nversion: 1\nroot: {name.title()}\n{uses}'
        structs = f"structs: {{{name.title()}: {{fields: {fields}}}}}\n"
        (tmp_path / name / "v1.yaml").write_text(text + structs)
    assert found(plain(inner=plain(w=1)), tmp_path / "outer") == []
    assert found(plain(inner=plain(w="a")), tmp_path / "outer") == [("NQX411", "$.inner.w")]


def test_deep_trees_are_one_finding(found):
    text = 'language: "1"\nschema: a\nversion: 1\nroot: A\nstructs: {A: {fields: {a: A | null}}}\n'
    deep = None
    for _ in range(198):
        deep = plain(a=deep)
    with bounded():
        assert found(deep, text) in ([("NQX005", "$.manifest")], [])


def test_keys():
    assert numbered([0, 1, 2]) == [0, 1, 2] and numbered([0, 2]) is numbered([]) is None
    assert numbered(["0", 1]) is numbered([False, True]) is numbered(["00"]) is None
    assert numbered_names(["0", "a_1", "b_01", "c_0", "c0"]) == {"c": ["c_0"]}
    assert entries(5) is entries(node("set", items=[])) is None
    twice = node("dict", items=[[1, 2], [True, 3]])
    listed = node("dict", items=[[node("tuple", items=[1]), 2]])
    assert entries(twice) is entries(listed) is None
    assert entries(flat([1, 2], node("tuple", items=["a", "a"]))) == {0: 1, 1: 2}
    assert unboxed(box(box(3))) == 3 and unboxed(flat([1, 2])) == flat([1, 2])
