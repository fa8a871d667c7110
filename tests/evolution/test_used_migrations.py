"""Migrations through lists, nested structs and shared documents, up and down by number, from files."""

import json

import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct import bundle
from tests.builders import invoke

LAYER = [
    """language: "1"
schema: lab.layer
version: 1
root: Layer
structs:
  Layer: {fields: {w: "float32[n, m]", act: str}}
""",
    """language: "1"
schema: lab.layer
version: 2
root: Layer
structs:
  Layer: {fields: {kernel: "float32[m, n]", act: str}}
migrations:
  - from: 1
    steps:
      - rename: {field: w, to: kernel}
      - transpose: {field: kernel}
""",
    """language: "1"
schema: lab.layer
version: 3
root: Layer
structs:
  Layer: {fields: {kernel: "float32[m, n]", act: str, rate: {type: float, default: 0.5}}}
migrations:
  - {from: 2, steps: [{add: {field: rate, default: 0.25}}]}
""",
]


def net(version, uses, migrations=""):
    return f"""language: "1"
schema: lab.net
version: {version}
root: Net
uses: [lab.layer@{uses}]
structs:
  Block: {{fields: {{inner: "list[lab.layer.Layer]", skip: "lab.layer.Layer | null"}}}}
  Net: {{fields: {{head: lab.layer.Layer, blocks: "list[Block]", table: "dict[str, lab.layer.Layer]"}}}}
{migrations}"""


@pytest.fixture
def folder(tmp_path):
    for name, texts in {
        "layer": LAYER,
        "net": [
            net(1, 1),
            net(2, 3, "migrations: [{from: 1, steps: []}]\n"),
            net(3, 3, "migrations: [{from: 2, steps: []}]\n"),
        ],
    }.items():
        (tmp_path / "schemas" / name).mkdir(parents=True)
        for number, text in enumerate(texts, 1):
            (tmp_path / "schemas" / name / f"v{number}.yaml").write_text(text)
    return tmp_path


def instance(schema, version):
    at = schema.at(version)
    layer = at["lab.layer.Layer"]

    def make(n):
        w = np.full((2, 3), n, "float32")
        w[0, 1] = -n
        return (
            layer(w=w, act="relu")
            if version == 1
            else layer(kernel=w.T.copy(), act="relu", rate=0.25)
        )

    shared = make(2)
    blocks = [at.Block(inner=[shared, make(3)], skip=None), at.Block(inner=[], skip=shared)]
    return at.Net(head=make(1), blocks=blocks, table={"a": shared, "b": make(5)})


@pytest.mark.parametrize("to", [2, 3, "head"])
def test_the_chain_of_a_used_document_runs_first_wherever_it_is_held(folder, to):
    schema = s.load_schema(folder / "schemas" / "net")
    old = instance(schema, 1)
    path = old.export(folder / "ckpt")
    done = s.migrate(path, folder / "new", to=to, schema=schema)
    version = 3 if to == "head" else to
    assert done.plan.to_version == version
    assert schema.at(version).root.load(folder / "new") == instance(schema, version)
    assert s.validate(folder / "new") == [] and s.verify(folder / "new") == []
    arrays = bundle.read_manifest(folder / "new")["arrays"]
    assert len(arrays) == 4  # what was shared is stored once still
    types = {
        name
        for name in str(bundle.read_manifest(folder / "new")["manifest"]).split("'")
        if name.startswith("lab.")
    }
    assert types == {f"lab.net@{version}:Net", f"lab.net@{version}:Block", "lab.layer@3:Layer"}


def test_down_again_by_the_documents_in_the_bundle(folder):
    schema = s.load_schema(folder / "schemas" / "net")
    instance(schema, 3).export(folder / "ckpt")
    assert invoke("migrate", folder / "ckpt", "--to", "-1", "--out", folder / "two").exit_code == 0
    assert schema.at(2).root.load(folder / "two") == instance(schema, 2)
    ran = invoke("migrate", folder / "two", "--to", "1", "--out", folder / "one")
    assert ran.exit_code == 0, ran.output
    assert schema.at(1).root.load(folder / "one") == instance(schema, 1)
    assert (
        bundle.read_manifest(folder / "one")["manifest"]["fields"]["head"]["type"]
        == "lab.layer@1:Layer"
    )


def test_loading_and_state_dicts_take_the_same_way(folder):
    schema = s.load_schema(folder / "schemas" / "net")
    old, new = instance(schema, 1), instance(schema, 3)
    report = []
    assert schema.load(old.export(folder / "ckpt"), report=report) == new
    assert {d.code for d in report} == {"NQX425"} and len(
        report
    ) == 6  # the rate of each layer; two are shared
    assert schema.root.from_state_dict(old.to_state_dict()) == new
    assert schema.at(1).root.load(new.export(folder / "three")) == old


PART = """language: "1"
schema: lab.part
version: {version}
root: Part
enums: {{M: [{members}]}}
structs: {{Part: {{fields: {{mode: M}}}}}}
{more}"""
RENAMES = [
    {"off": "spare", "on": "off"},
    {"spare": "on"},
]


@pytest.fixture
def owners(tmp_path):
    """A schema whose own fields have the enum of a used one, whose two members swap their names."""
    steps = ", ".join(
        f"{{map_enum: {{enum: M, values: {json.dumps(values)}}}}}" for values in RENAMES
    )
    files = {
        "part/v1": PART.format(version=1, members="'on', 'off'", more=""),
        "part/v2": PART.format(
            version=2, members="'off', 'on'", more=f"migrations: [{{from: 1, steps: [{steps}]}}]\n"
        ),
    }
    for version in (1, 2):
        files[f"owner/v{version}"] = f"""language: "1"
schema: lab.owner
version: {version}
root: Owner
uses: [lab.part@{version}]
structs:
  Owner: {{fields: {{own: lab.part.M, many: "list[lab.part.M | null]", part: "lab.part.Part | null"}}}}
"""
    files["owner/v2"] += "migrations: [{from: 1, steps: []}]\n"
    for name, text in files.items():
        file = tmp_path / f"{name}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return tmp_path / "owner"


@pytest.mark.parametrize("held", [True, False])
def test_members_of_used_enums_are_renamed_in_the_fields_of_the_user(owners, tmp_path, held):
    schema = s.load_schema(owners)
    old = schema.at(1)
    part = old["lab.part.Part"](mode="off") if held else None
    before = old.Owner(own="on", many=["off", None, "on"], part=part)
    before.export(tmp_path / "old")
    after = schema.load(tmp_path / "old")
    assert (after.own, after.many) == ("off", ["on", None, "off"])
    assert after.part is None or after.part.mode == "on"
    new = s.migrate(tmp_path / "old", tmp_path / "new", schema=owners).out
    assert schema.load(new) == after
    back = s.migrate(new, tmp_path / "back", to=1, schema=owners).out
    assert s.load_schema(owners).at(1).load(back) == before
