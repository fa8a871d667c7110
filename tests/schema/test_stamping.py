"""Bundles that name no schema come under one, by each of the ways in."""

import json

import numpy as np
import pytest
from flax import nnx

import neuralqx_struct as s
from tests.builders import refused

V1 = """
language: "1"
schema: lab.net
version: 1
root: Net
structs:
  Net:
    fields:
      layers: list[Dense]
      step: {type: int, kind: static}
  Dense:
    fields: {kernel: "float32[n, m]", bias: "float32[m]"}
"""
V2 = """
language: "1"
schema: lab.net
version: 2
root: Net
structs:
  Net:
    fields:
      blocks: list[Dense]
      step: {type: int, kind: static}
  Dense:
    fields: {kernel: "float32[n, m]", bias: "float32[m]"}
migrations:
  - from: 1
    steps:
      - rename: {field: layers, to: blocks}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "net").mkdir()
    for version, text in enumerate((V1, V2), 1):
        (tmp_path / "net" / f"v{version}.yaml").write_text(text)
    return tmp_path / "net"


def dense():
    return {"kernel": np.ones((2, 3), "float32"), "bias": np.zeros(3, "float32")}


#: Trees of version 1 and of version 2.
PLAIN = {
    "list": {"layers": [dense(), dense()], "step": 3},
    "integers": {"layers": {0: dense(), 1: dense()}, "step": 3},
    "texts": {"layers": {"0": dense(), "1": dense()}, "step": 3},
    "numbered names": {"layers_0": dense(), "layers_1": dense(), "step": 3},
    "newer": {"blocks": [dense(), dense()], "step": 3},
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_bundle_loads_under_a_schema_and_is_migrated(name, folder, tmp_path):
    path, report = s.export(PLAIN[name], tmp_path / "plain"), []
    net = s.load_schema(folder).load(path, report=report)
    assert type(net) is s.load_schema(folder).root and len(net.blocks) == 2 and net.step == 3
    version = 2 if name == "newer" else 1
    message = f"the payload names no schema, it was read as lab.net@{version}:Net"
    assert [found.message for found in report] == [message]
    assert s.validate(path, folder) == []


def test_a_raw_load_under_a_schema_warns_of_names_of_another_version(folder, tmp_path):
    schema, report = s.load_schema(folder), []
    paths = [s.export(PLAIN["list"], tmp_path / "plain"), tmp_path / "typed", tmp_path / "new"]
    s.convert(paths[0], paths[1], schema=folder)
    s.migrate(paths[0], paths[2], schema=folder)
    for path in paths:
        assert schema.load(path, raw=True, report=report).keys() == s.load(path, raw=True).keys()
    assert [(d.code, d.severity, d.path) for d in report] == 2 * [("NQX422", "warning", "$.schema")]


@pytest.mark.parametrize("name", PLAIN)
def test_convert_and_migrate_write_what_names_the_schema(name, folder, tmp_path):
    path = s.export(PLAIN[name], tmp_path / "plain")
    assert s.convert(path, tmp_path / "typed", schema=folder).linked
    document = json.loads((tmp_path / "typed" / "manifest.json").read_text())
    assert document["schema"]["version"] == (2 if name == "newer" else 1)
    s.migrate(path, tmp_path / "new", schema=folder)
    for written in ("typed", "new"):
        assert s.validate(tmp_path / written, folder) == [] == s.verify(tmp_path / written)
        assert s.load_schema(folder).load(tmp_path / written).step == 3
    assert "schema" not in json.loads((path / "manifest.json").read_text())


def test_a_folder_of_plain_bundles_is_migrated_and_again_skipped(folder, tmp_path):
    for name in ("list", "newer"):
        s.export(PLAIN[name], tmp_path / "runs" / name)
    for state in ("migrated", "skipped"):
        done = s.migrate_all(tmp_path / "runs", tmp_path / "new", schema=folder)
        assert [item.state for item in done.items] == [state, state]


class Dense(s.Struct):
    kernel: object
    bias: object


class Net(s.Struct):
    layers: list
    step: int = s.field(static=True)


def test_structs_of_plain_classes_are_known_by_the_names_of_their_classes(folder, tmp_path):
    path = Net([Dense(**dense())], 3).export(tmp_path / "plain")
    assert len(s.load_schema(folder).load(path).blocks) == 1
    other = Dense(**dense()).export(tmp_path / "other")
    with refused(s.MigrationError, "NQX404", "$.manifest", "lab.net@2:Net"):
        s.load_schema(folder).load(other)


def test_a_class_with_a_schema_loads_plain_bundles_too(tmp_path):
    class Bound(s.Struct, schema="lab.bound", version=1):
        w: object

    path = s.export({"w": 1.5}, tmp_path / "plain")
    assert Bound.load(path) == Bound(1.5)


def test_all_that_does_not_conform_is_named(folder, tmp_path):
    wrong = {"blocks": [dense() | {"bias": np.zeros(4, "float32")}], "step": "x"}
    path = s.export(wrong, tmp_path / "plain")
    with pytest.raises(s.MigrationError) as caught:
        s.load_schema(folder).load(path)
    assert {d.path for d in caught.value.diagnostics} == {"$.step", "$.blocks[0].bias"}
    assert [d.message for d in s.validate(path, folder)] == [
        d.message for d in caught.value.diagnostics
    ]


def test_a_bundle_that_no_version_describes_has_a_way_on(folder, tmp_path):
    path, out = s.export({"blocks": [], "more": 1}, tmp_path / "plain"), tmp_path / "typed"
    for read in (s.load_schema(folder).load, lambda path: s.convert(path, out, schema=folder)):
        with pytest.raises(s.MigrationError) as caught:
            read(path)
        found = caught.value.diagnostics
        assert {(d.code, d.path) for d in found} == {("NQX414", "$.step"), ("NQX415", "$.more")}
        assert {d.file for d in found} == {str(path)} and not out.exists()
        assert all("declare an earlier version" in d.hint for d in found)
    assert [d.hint for d in s.validate(path, folder)] == [d.hint for d in found]
    earlier = V1.replace("layers:", "blocks:").replace(
        "step: {type: int, kind: static}", "more: int"
    )
    steps = "- add: {field: step, default: 0}\n      - remove: {field: more, undo_default: 0}"
    (folder / "v1.yaml").write_text(earlier)
    (folder / "v2.yaml").write_text(V2.replace("- rename: {field: layers, to: blocks}", steps))
    assert s.load_schema(folder).load(path).step == 0


def test_optional_fields_may_be_left_out_unless_an_earlier_version_lacks_them(folder, tmp_path):
    optional = V2.replace(
        "step: {type: int", 'more: {type: "int | null", default: null}\n      step: {type: int'
    )
    rename = "- rename: {field: layers, to: blocks}"
    (folder / "v2.yaml").write_text(
        optional.replace(rename, f"{rename}\n      - add: {{field: more, default: 7}}")
    )
    report = []
    written = s.export({"blocks": [dense()], "step": 3}, tmp_path / "plain")
    loaded = s.load_schema(folder).load(written, report=report)
    assert loaded.more is None and loaded.step == 3
    assert [d.code for d in report] == ["NQX425"] and "are null" in report[0].message
    assert s.validate(written, folder) == []
    s.convert(written, tmp_path / "typed", schema=folder)
    assert s.validate(tmp_path / "typed") == []
    earlier = s.export({"layers": [dense()], "step": 3}, tmp_path / "earlier")
    assert s.load_schema(folder).load(earlier).more == 7
    wrong = s.export({"blocks": [dense()], "step": "x"}, tmp_path / "wrong")
    assert [d.path for d in s.validate(wrong, folder)] == ["$.step"]


def test_a_layout_reads_a_bundle_with_other_names(folder, tmp_path):
    old = {"net": {"0": {"w": np.ones((3, 2), "float32"), "b": np.zeros(3, "float32")}}, "t": 3}
    layout = """
language: "1"
layout: old
of: lab.net@2
separator: "/"
structs:
  Net: {blocks: "net/{i}", step: t}
  Dense: {kernel: {name: w, transpose: true}, bias: b}
"""
    net = s.load_schema(folder).from_layout(s.export(old, tmp_path / "old"), layout)
    assert net.blocks[0].kernel.shape == (2, 3) and net.step == 3


class Model(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.List([nnx.Linear(3, 3, rngs=rngs), nnx.Linear(3, 3, rngs=rngs)])
        self.head = nnx.Linear(3, 1, rngs=rngs)


def test_a_state_of_nnx_loads_under_its_inferred_schema(tmp_path):
    state = nnx.to_pure_dict(nnx.state(Model(nnx.Rngs(0))))
    path = s.export(state, tmp_path / "model")
    s.infer(path, schema="lab.model").write(tmp_path / "schema")
    schema = s.load_schema(tmp_path / "schema")
    loaded = schema.load(path)
    assert loaded == s.from_dict(state, schema) and len(loaded.layers) == 2
