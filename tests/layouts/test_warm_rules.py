"""Rule files of warm starts: lint against both schemas, names in the folder of the model's schema, the JSON Schema."""

import json
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jsonschema
import pytest

import neuralqx_struct as s
from neuralqx_struct.layouts.warm_rules import warm_schema
from neuralqx_struct.schema.text.loader import read_text
from neuralqx_struct.tools.linting import lint
from tests.builders import ROOT, refused

SMALL = """
language: "1"
schema: lab.small
version: 1
root: Small
structs:
  Dense: {fields: {kernel: "float32[i, o]", bias: "float32[o] | null"}}
  Row: {fields: {w: "float32[3]"}}
  Table: {fields: {w: "float32[2, 3]"}}
  Small:
    fields:
      words: "float32[100, d]"
      layers: "list[Dense]"
      pair: "tuple[Dense, Dense]"
      heads: "dict[str, Dense]"
      deep: "Dense[][n]"
      state: pytree
      either: Row | Table
      depth: {type: int, kind: static}
"""
LARGE = """
language: "1"
schema: lab.large
version: 1
root: Large
structs:
  Dense: {fields: {kernel: "float32[i, o]", bias: "float32[o] | null"}}
  Row: {fields: {w: "float32[3]"}}
  Table: {fields: {w: "float32[2, 3]"}}
  Tree: {fields: {w: "float32[n]", left: "Tree | null", right: "Tree | null"}}
  Body: {fields: {words: "float32[120, d]", layers: "list[Dense]", pair: "tuple[Dense, Dense]", deep: "Dense[][n]"}}
  Large:
    fields:
      body: Body
      heads: "dict[str, Dense]"
      new: Dense
      state: pytree
      tree: Tree
      either: Row | Table
      depth: {type: int, kind: static}
"""
HEAD = 'language: "1"\nwarm_start: from_small\nof: lab.small@1\n'


@pytest.fixture
def folder(tmp_path):
    for name, text in (("small", SMALL), ("large", LARGE)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "v1.yaml").write_text(text)
    (tmp_path / "large" / "warm").mkdir()
    return tmp_path / "large"


def findings(folder, text, head=HEAD):
    file = folder / "warm" / "from_small.yaml"
    file.write_text(head + text)
    found = lint(file)
    assert lint(folder) == found and all(each.file == str(file) for each in found)
    assert {each.line for each in found} <= {1, 2, 3, 4, 5}
    jsonschema.validate(read_text(head + text).data, warm_schema())
    return [(each.code, each.path) for each in found]


SOUND = [
    "sizes: {either/w: cut}\n",
    "",
    "paths: {body: '', new: null, heads: heads, state: null}\n",
    "paths: {body/layers/3: layers/0, new: heads/first, heads/a/kernel: deep/kernel}\n",
    "paths: {new: pair/1, body/pair: pair, state/opt/0/mu: state/opt/1/nu, '': ''}\n",
    "paths: {body: '', tree/left/right/w: state/w}\nsizes: {body/words: pad, 'body/layers/*/bias': cut}\n",
    "paths: {body: ''}\nsizes: {'**/kernel': repeat, 'body/layers/7/bias': pad, 'bod?/pair/1/*': cut}\n",
    "paths: {tree: state}\nsizes: {'tree/**/w': pad, 'state/**': cut, '**': cut}\n",
]


@pytest.mark.parametrize("text", SOUND)
def test_sound_rules(folder, text):
    assert findings(folder, text) == []


WRONG = {
    "paths: {bdy: ''}\n": ("NQX710", "$.paths.bdy"),
    "paths: {body/layers/x: layers/0}\n": ("NQX710", "$.paths['body/layers/x']"),
    "paths: {body/layers: layers/kernel}\n": ("NQX710", "$.paths['body/layers']"),
    "paths: {body/pair/2: pair/1}\n": ("NQX710", "$.paths['body/pair/2']"),
    "paths: {new: pair/2}\n": ("NQX710", "$.paths.new"),
    "paths: {new/kernel/x: words}\n": ("NQX710", "$.paths['new/kernel/x']"),
    "paths: {depth: depth}\n": ("NQX710", "$.paths.depth"),  # a static value of the model
    "paths: {new: tree}\n": ("NQX710", "$.paths.new"),
    "sizes: {body/wrds: pad}\n": ("NQX710", "$.sizes['body/wrds']"),
    "sizes: {body: pad}\n": ("NQX710", "$.sizes.body"),  # no array
    "sizes: {body/words: pad}\n": ("NQX710", "$.sizes['body/words']"),  # the bundle has none
    "paths: {body: null}\nsizes: {body/words: pad}\n": ("NQX710", "$.sizes['body/words']"),
    "paths: {body: ''}\nsizes: {'*/words': cut}\n": ("NQX412", "$.sizes['*/words']"),
    "paths: {body: ''}\nsizes: {body/words: repeat}\n": ("NQX412", "$.sizes['body/words']"),
    "paths: {new/bias: words}\nsizes: {new/bias: cut}\n": None,  # the other branch is null
    "paths: {tree/w: words}\nsizes: {tree/w: cut}\n": ("NQX412", "$.sizes['tree/w']"),
}


@pytest.mark.parametrize("text", WRONG)
def test_rules_that_cannot_match_either_declaration(folder, text):
    expected = WRONG[text] or ("NQX412", "$.sizes['new/bias']")
    assert findings(folder, text) == [expected]


def test_versions_and_names(folder):
    head = 'language: "1"\nwarm_start: from_small\n'
    assert findings(folder, "paths: {new: anything}\n", head) == [("NQX710", "$")]
    assert not s.errors.has_errors(lint(folder))
    for member, known in (("of", "lab.small@2"), ("of", "lab.other@1"), ("into", "lab.large@2")):
        assert ("NQX404", f"$.{member}") in findings(folder, f"{member}: {known}\n", head)
    assert findings(folder, "into: lab.small@1\n") == [("NQX404", "$.into")]
    assert findings(folder, "", HEAD.replace("from_small", "other")) == [("NQX710", "$.warm_start")]
    (folder / "warm" / "from_small.yaml").write_text("paths: {new: 3}\nsize: {}\n")
    assert [(each.line, each.severity) for each in lint(folder)] == [(1, "error"), (2, "error")]


def test_a_name_is_a_file_beside_the_schema_of_the_model(folder, tmp_path):
    findings(folder, "into: lab.large@1\npaths: {body: ''}\nsizes: {body/words: pad}\n")
    small = s.load_schema(tmp_path / "small").Small
    model = s.example(s.load_schema(folder).Large, dims={"d": 3})
    path = s.example(small, dims={"d": 3}).export(tmp_path / "ckpt")
    schema = s.load_schema(tmp_path / "small")
    started, receipt = s.warm_start(path, model, "from_small", schema=schema)
    assert type(started) is type(model) and receipt.resized == ("body/words",)
    with refused(s.SchemaError, "NQX708", "from_small"):
        s.warm_start(path, model, "from_smal", schema=schema)
    text = (folder / "warm" / "from_small.yaml").read_text()
    with refused(s.SchemaError, "NQX404", "$.into"):
        s.warm_start(path, s.load(path), text, schema=schema)


def test_the_schema_of_the_bundle_is_found_beside_that_of_the_model(folder, tmp_path):
    rules = {"of": "lab.small@2", "paths": {"body": ""}, "sizes": {"body/words": "pad"}}
    model = s.example(s.load_schema(folder).Large, dims={"d": 3})
    small = s.load_schema(tmp_path / "small").Small
    path = s.example(small, dims={"d": 3}).export(tmp_path / "ckpt")
    with refused(s.MigrationError, "NQX422"):
        s.warm_start(path, model, rules)
    one = (tmp_path / "small" / "v1.yaml").read_text()
    (tmp_path / "small" / "v2.yaml").write_text(
        one.replace("version: 1", "version: 2").replace("words:", "embed:")
        + "migrations: [{from: 1, steps: [{rename: {field: words, to: embed}}]}]\n"
    )
    rules["paths"] = {"body/words": "embed"}
    assert s.warm_start(path, model, rules).receipt.resized == ("body/words",)
    for other in ("lab.large@1", "lab.unknown@2"):
        with refused(s.SchemaError, "NQX404", "$.of") as caught:
            s.warm_start(path, model, {"of": other})
        assert (caught.value.code, caught.value.diagnostics[0].path) == ("NQX404", "$.of")


def test_the_published_json_schema_is_current():
    text = (ROOT / "schemas/warm-schema/1.json").read_text()
    assert json.loads(text) == warm_schema()


def test_lint_agrees_with_a_start_of_modules_of_equinox(tmp_path):
    """Rules that lint refuses are refused by the start too, and the others are not."""

    class Model(s.Struct, schema="lab.eqx_model"):
        net: object
        scale: object

    def new(width):
        return Model(eqx.nn.MLP(2, 1, width, 1, key=jax.random.key(0)), jnp.ones(width))

    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "v1.yaml").write_text(s.dump_schema(Model))
    (tmp_path / "model" / "warm").mkdir()
    file = Path(tmp_path / "model" / "warm" / "grow.yaml")
    path = new(4).export(tmp_path / "ckpt")
    head = 'language: "1"\nwarm_start: grow\nof: lab.eqx_model@1\n'
    for text, fine in [
        ("sizes: {'net/layers/*/*': pad, scale: pad}\n", True),
        ("sizes: {scales: pad}\n", False),
        ("paths: {net: nett}\n", False),
        ("paths: {net: null}\n", True),
    ]:
        file.write_text(head + text)
        assert (lint(file) == []) == fine
        if fine:
            receipt = s.warm_start(path, new(8), file).receipt
            assert ("scale" in receipt.resized) == ("pad" in text)
        else:
            with pytest.raises(s.SerializationError):
                s.warm_start(path, new(8), file)
