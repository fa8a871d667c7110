"""Conversion between foreign files and bundles."""

import filecmp
import sys
import tracemalloc
from functools import partial

import fsspec
import numpy as np
import pytest
from safetensors.numpy import save_file

import neuralqx_struct as s
from neuralqx_struct import formats
from neuralqx_struct.errors import MigrationError, SchemaError, SerializationError
from neuralqx_struct.evolution.steps.python import _FUNCTIONS as FUNCTIONS
from neuralqx_struct.formats import ForeignArray
from neuralqx_struct.layouts.conversion import convert
from neuralqx_struct.layouts.payloads import adopted, released
from neuralqx_struct.schema.series import load_series
from tests.builders import invoke, refused, report

SCHEMA = """language: "1"
schema: lab.net
version: 1
root: Net
structs:
  Layer: {fields: {q: "float32[d, h]", k: "float32[d, h]"}}
  Net: {fields: {n: {type: int, kind: static}, words: "bfloat16[v, d]", layers: "list[Layer]"}}
"""
LAYOUT = """language: "1"
layout: hf
of: lab.net@1
ignore: [position_ids]
structs:
  Layer: {q: {name: qk, part: [0, 2], transpose: true}, k: {name: qk, part: [1, 2], transpose: true}}
"""
VALUES = {"n": 3}


def arrays():
    rng = np.random.default_rng(1)
    found = {f"layers.{i}.qk": rng.standard_normal((6, 4)).astype("float32") for i in (1, 0)}
    return {"words": rng.standard_normal((5, 4)).astype("bfloat16"), **found}


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "schemas" / "net"
    (folder / "layouts").mkdir(parents=True)
    (folder / "v1.yaml").write_text(SCHEMA)
    (folder / "layouts" / "hf.yaml").write_text(LAYOUT)
    return tmp_path


@pytest.mark.parametrize("store", ["npz", "safetensors"])
@pytest.mark.parametrize("kind", ["safetensors", "npz", "msgpack"])
def test_a_file_comes_back_bit_by_bit(world, kind, store):
    source = world / f"model.{kind}"
    if kind == "safetensors":
        save_file(arrays(), source, {"format": "pt", "by": "a test"})
    else:
        found = arrays()
        found["words"] = found["words"].astype("float32")
        (world / "schemas/net/v1.yaml").write_text(SCHEMA.replace("bfloat16[", "float32["))
        formats.write(source, kind, found)
    given = {"schema": "schemas/net", "layout": "hf"}
    done = convert(source, "ckpt", **given, values=VALUES, store=store)
    assert (done.arrays, done.store) == (5, store)
    assert s.validate("ckpt") == s.verify("ckpt") == []
    model = s.load_schema("schemas/net").load("ckpt")
    assert (model.n, len(model.layers)) == (3, 2)
    back = world / f"back.{kind}"
    assert convert("ckpt", back, **given).arrays == 3
    assert filecmp.cmp(source, back, shallow=False)


def test_a_file_behind_a_url(world):
    save_file(arrays(), world / "model.safetensors")
    given = {"schema": "schemas/net", "layout": "hf", "values": VALUES}
    convert(world / "model.safetensors", world / "one", **given)
    convert((world / "model.safetensors").as_uri(), world / "two", **given)
    fsspec.filesystem("memory").pipe(
        "/convert/model.safetensors", (world / "model.safetensors").read_bytes()
    )
    convert("memory://convert/model.safetensors", world / "three", **given)
    assert s.load(world / "one") == s.load(world / "two") == s.load(world / "three")


def peak_of_conversions(count, options):
    """The most bytes in memory while `count` arrays of 2 MiB become a bundle, and a file again."""
    wide = {f"layers.{i}.qk": np.ones((512, 1024), "float32") for i in range(count)}
    save_file({"words": np.ones((1, 1024), "bfloat16"), **wide}, "model.safetensors")
    given = {"schema": "schemas/net", "layout": "hf", "overwrite": True}
    tracemalloc.start()
    try:
        convert("model.safetensors", "ckpt", values=VALUES, **given, **options)
        convert("ckpt", "again.safetensors", **given)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("options", [{}, {"compress": True}], ids=str)
def test_one_array_is_in_memory_at_a_time(world, options):
    peak_of_conversions(1, options)  # imports what it needs
    few, many = (peak_of_conversions(count, options) for count in (2, 12))
    assert many - few < 2 << 20
    assert filecmp.cmp("again.safetensors", "model.safetensors", shallow=False)


def test_a_compressed_array_and_a_transposed_one_are_not_in_memory_together():
    """The one that was read is mapped from a temporary file, as is one of a compressed bundle."""
    text = SCHEMA.replace("bfloat16[", "float32[")
    layout = LAYOUT.replace("part: [0, 2], ", "").replace("name: qk, part: [1, 2], ", "")
    series = load_series(text)
    shapes = {f"layers.{i}.{key}": (2048, 1024) for i in range(2) for key in ("qk", "k")}
    files = {
        name: ForeignArray("float32", shape, partial(np.ones, shape, "float32"))
        for name, shape in (shapes | {"words": (1, 1024)}).items()
    }
    tracemalloc.start()
    try:
        made = adopted(series, layout, files, VALUES)
        assert [made.arrays[name].shape[0] for name in made.arrays][:2] == [1024, 1024]
        back = released(made, series, layout)
        assert {name: array.read().shape for name, array in back.items()} == shapes | {
            "words": (1, 1024)
        }
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 12 << 20


def test_shards(world):
    save_file(arrays(), "model.safetensors")
    given = {"schema": s.load_schema("schemas/net"), "layout": LAYOUT}
    convert("model.safetensors", "ckpt.zip", **given, values=VALUES)
    seen = []
    convert("ckpt.zip", "shards", **given, max_shard_size=100, progress=lambda *at: seen.append(at))
    assert (world / "shards" / "model.safetensors.index.json").is_file()
    assert seen[-1][0] == seen[-1][1] > 0
    again = s.load_schema("schemas/net").from_layout("shards", LAYOUT, values=VALUES)
    assert again == s.load("ckpt.zip")


def test_older_layouts_make_bundles_of_the_newest_version(world):
    v2 = SCHEMA.replace("version: 1", "version: 2").replace("words:", "embedding:")
    steps = "migrations: [{from: 1, steps: [{rename: {field: words, to: embedding}}]}]\n"
    (world / "schemas/net/v2.yaml").write_text(v2 + steps)
    save_file(arrays(), "model.safetensors", {"format": "pt"})
    given = {"schema": "schemas/net", "layout": "hf"}
    convert("model.safetensors", "ckpt", **given, values=VALUES)
    assert s.inspect("ckpt").schema["version"] == 2
    convert("ckpt", "back.safetensors", **given)
    assert filecmp.cmp("model.safetensors", "back.safetensors", shallow=False)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("model.safetensors", "out"), ["NQX708", "schema=", "layout="]),
        (("model.safetensors", "out", {"schema": "schemas/net"}), ["NQX414", "layout="]),
        (
            ("model.safetensors", "out", {"schema": "schemas/net", "values": VALUES}),
            ["NQX708", "layout="],
        ),
        (("model.safetensors", "o.npz", {}), ["NQX614", "o.npz"]),
        (("model.safetensors", "out", {"layout": "nope"}), ["NQX708", "nope", "hf"]),
        (("model.safetensors", "out", {"values": {}}), ["NQX707", "$.n"]),
        (("ckpt", "out", {}), ["NQX614", "out"]),
        (("ckpt", "out.safetensors", {"layout": LAYOUT + "prefix: 3\n"}), ["NQX010", 3]),
        (("nothing", "out", {}), ["NQX401", "nothing"]),
    ],
)
def test_conversions_that_are_refused(world, words, named):
    save_file(arrays(), "model.safetensors")
    given = {"schema": "schemas/net", "layout": "hf", "values": VALUES}
    convert("model.safetensors", "ckpt", **given)
    source, out, *changes = words
    options = {**given, **changes[0]} if changes and "schema" not in changes[0] else dict(*changes)
    with refused((SerializationError, SchemaError), *named):
        convert(source, out, **options)
    assert not (world / out).exists()


def test_a_target_is_not_replaced(world):
    save_file(arrays(), "model.safetensors")
    given = {"schema": "schemas/net", "layout": "hf", "values": VALUES}
    convert("model.safetensors", "ckpt", **given)
    for source, out in (("model.safetensors", "ckpt"), ("ckpt", "model.safetensors")):
        with pytest.raises(FileExistsError):
            convert(source, out, **given)
        convert(source, out, **given, overwrite=True)


def test_the_command(world):
    save_file(arrays() | {"position_ids": np.arange(3)}, "model.safetensors")
    line = ("--schema", "lab.net", "--layout", "hf")
    result, data = report("convert", "model.safetensors", "--out", "ckpt", *line, "--value", "n=3")
    assert result.exit_code == 0, result.output
    assert (data["arrays"], data["store"]) == (5, "npz")
    assert [each["code"] for each in data["diagnostics"]] == ["NQX425"]
    assert invoke("convert", "ckpt", "--out", "back.safetensors", *line).exit_code == 0
    done = invoke("convert", "ckpt", "--out", "shards", *line, "--max-shard-size", "1KB")
    assert done.exit_code == 0, done.output
    checked = ("schema", "lint", "schemas/net/layouts/hf.yaml", "--file", "model.safetensors")
    assert invoke(*checked).exit_code == 1
    result, data = report(*checked, "--value", "n=3")
    assert result.exit_code == 0
    assert [each["code"] for each in data["diagnostics"]] == ["NQX425"]
    assert invoke("schema", "lint", "schemas/net", "--file", "model.safetensors").exit_code == 1


@pytest.mark.parametrize(
    "option", [("--value", "n"), ("--max-shard-size", "5 GB"), ("--max-shard-size", "0")]
)
def test_wrong_options(world, option):
    assert invoke("convert", "a", "--out", "b", *option).exit_code == 2


@pytest.mark.parametrize("form", [3, {"index": 3}, {"header": 3}, {"tree": {}}, None])
def test_facts_about_the_file_in_a_bundle_are_not_trusted(world, form):
    save_file(arrays(), "model.safetensors")
    given = {"schema": "schemas/net", "layout": "hf"}
    model = s.load_schema("schemas/net").from_layout("model.safetensors", "hf", VALUES)
    for names in (["words"], 5, [3]):
        facts = {"format": "safetensors", "names": names, "metadata": {"a": 1}, "form": form}
        model.export("ckpt", metadata={"foreign": facts}, overwrite=True)
        convert("ckpt", "back.safetensors", **given, overwrite=True)
        assert s.load_schema("schemas/net").from_layout("back.safetensors", "hf", VALUES) == model


def test_schemas_of_a_project(world):
    from neuralqx_struct.schema.catalogue import Catalogue

    save_file(arrays(), "model.safetensors")
    found = Catalogue(world / "schemas")
    (world / "other.yaml").write_text(LAYOUT.replace("lab.net@1", "lab.other@1"))
    (world / "hf.yaml").write_text(LAYOUT)
    assert (
        convert("model.safetensors", "c", schema=found, layout="hf.yaml", values=VALUES).arrays == 5
    )
    with refused(SerializationError, "NQX404", "lab.other"):
        convert("model.safetensors", "d", schema=found, layout="other.yaml", values=VALUES)


def test_python_steps_between_the_layout_and_the_head(world, monkeypatch):
    """Each function that changes the version takes `trust`, as its command takes `--trust`."""
    step = "python: {function: lab.net_count, reads: [n], writes: [count]}"
    new = SCHEMA.replace("version: 1", "version: 2").replace("n: {type", "count: {type")
    migration = f"migrations:\n  - {{from: 1, steps: [{{{step}}}, {{remove: {{field: n, undo_default: 3}}}}]}}\n"
    (world / "schemas/net/v2.yaml").write_text(new + migration)
    code = "import neuralqx_struct as s\n@s.steps.function('lab.net_count')\ndef count(values): return {'count': values['n']}\n"
    (world / "lab_net_steps.py").write_text(code)
    monkeypatch.syspath_prepend(world)
    save_file(arrays(), world / "model.safetensors")
    schema = s.load_schema("schemas/net")
    given = {"schema": schema, "layout": "hf", "values": VALUES}
    loads = [
        lambda **trust: convert("model.safetensors", "ckpt", **given, **trust),
        lambda **trust: schema.from_layout("model.safetensors", "hf", VALUES, **trust),
    ]
    for load in loads:
        with refused(MigrationError, "NQX312", "lab.net_count", "trust=['lab.migrations']"):
            load()
    convert("model.safetensors", "ckpt", **given, trust=["lab_net_steps"])
    assert schema.from_layout("model.safetensors", "hf", VALUES).count == 3
    layout = LAYOUT.replace("@1", "@2")
    old = schema.at(1).from_layout("model.safetensors", "hf", VALUES)
    monkeypatch.delitem(FUNCTIONS, "lab.net_count")
    monkeypatch.delitem(sys.modules, "lab_net_steps")
    with refused(MigrationError, "NQX312", "lab.net_count", "trust="):
        schema.at(1).to_layout(old, layout)
    names = schema.at(1).to_layout(old, layout, trust=["lab_net_steps"])
    assert names.keys() == {"words", "layers.0.qk", "layers.1.qk"}
