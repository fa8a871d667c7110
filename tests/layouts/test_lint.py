"""Findings about layouts that need no file."""

import json

import jsonschema
import pytest

import neuralqx_struct as s
from neuralqx_struct.errors import SchemaError
from neuralqx_struct.layouts import parse_layout, read_layout
from neuralqx_struct.layouts.drafts import draft_layout, layout_schema, new_layout
from neuralqx_struct.layouts.lint import check_layout, lint_layout
from neuralqx_struct.layouts.table import Table
from neuralqx_struct.schema.series import load_series
from neuralqx_struct.schema.text.loader import read_text
from neuralqx_struct.tools.linting import lint
from tests.builders import ROOT, bounded, every, invoke, refused

SCHEMA = """
language: "1"
schema: lab.net
version: 1
root: Net
dims: {d: {}, heads: {}, k: {}}
structs:
  Dense: {params: [i, o], fields: {kernel: "float32[i, o]", bias: "float32[o] | null"}}
  Norm: {fields: {scale: "float32[d]"}}
  Layer: {fields: {up: "Dense[d, ff]", kind: {type: str, kind: static, default: a}}}
  Net:
    fields:
      n: {type: int, kind: static}
      words: "float32[v, d]"
      q: "float32[d, heads, k]"
      r: "float32[d, heads, k]"
      any: "float32[...]"
      free: "floating[_]"
      layers: list[Layer]
      blocks: Layer[][m]
      norms: dict[str, Norm]
      length: {type: int, derived: "size(words)"}
"""
HEAD = 'language: "1"\nlayout: hf\nof: lab.net@1\n'
SERIES = load_series(SCHEMA)


def findings(text):
    source = read_text(HEAD + text, "hf.yaml")
    try:
        layout = parse_layout(source)
    except SchemaError as error:
        return error.diagnostics
    found = check_layout(Table(SERIES.head, layout), source)
    return [each for each in found if each.code != "NQX707"]


NET = "structs: {{Net: {{{}}}}}\n"

#: Text behind the head -> code, line and column, and what message and hint name.
WRONG = {
    "structs: {Dens: {kernel: weight}}": ("NQX701", (4, 11), "'Dense'"),
    "structs: {Dense: {kernal: weight}}": ("NQX701", (4, 19), "'kernel'"),
    "structs: {Net: {length: x}}": ("NQX701", (4, 17)),
    "structs: {Net: {words: {nam: x}}}": ("NQX009", (4, 25), "'name'"),
    "structs: {Net: {words: 3}}": ("NQX010", (4, 24), "integer 3"),
    "structs: {Net: {words: {transpose: [0, 0]}}}": ("NQX702", (4, 36)),
    "structs: {Net: {words: {transpose: false}}}": ("NQX010", (4, 36), "boolean False"),
    "structs: {Net: {words: {reshape: [v, d]}}}": ("NQX702", (4, 34)),
    "structs: {Net: {words: {reshape: [v, d, d]}}}": ("NQX702", (4, 34)),
    'structs: {Net: {words: {reshape: ["v +"]}}}': ("NQX114", (4, 34)),
    "structs: {Net: {any: {transpose: true}}}": ("NQX702", (4, 34)),
    "structs: {Net: {any: [a, b]}}": ("NQX702", (4, 22)),
    "structs: {Net: {words: {part: [0, 3], axis: 2}}}": ("NQX702", (4, 45)),
    "structs: {Net: {words: {part: [3, 3]}}}": ("NQX702", (4, 31), "from 0 to 2, got 3"),
    "structs: {Net: {words: {part: 0}}}": ("NQX702", (4, 31)),
    "structs: {Net: {words: {part: [0, 2], sizes: [v, v]}}}": ("NQX702", (4, 31)),
    "structs: {Net: {words: {part: 0, sizes: [2 * v, v]}}}": ("NQX702", (4, 41)),
    "structs: {Net: {words: {part: [0, 2], split: stack, blocks: 2}}}": (
        "NQX702",
        (4, 46),
    ),
    "structs: {Net: {words: {name: [a, b], part: [0, 2]}}}": ("NQX702", (4, 45)),
    "structs: {Net: {words: {name: [a, b], sizes: [v]}}}": ("NQX702", (4, 46)),
    "structs: {Net: {words: {sizes: [v]}}}": ("NQX702", (4, 32), "beside `sizes`"),
    "structs: {Net: {words: {axis: 1}}}": ("NQX702", (4, 31), "beside `axis`"),
    "structs: {Net: {words: {name: [a, b], blocks: 2}}}": ("NQX702", (4, 47)),
    "structs: {Net: {words: {cast: float12}}}": ("NQX102", (4, 31), "got 'float12'"),
    "structs: {Net: {free: {cast: float16}}}": ("NQX702", (4, 30), "leave `cast` out"),
    "structs: {Net: {words: {exact: false}}}": ("NQX702", (4, 32), "`cast` beside `exact`"),
    "structs: {Net: {layers: {transpose: true}}}": ("NQX702", (4, 37)),
    "structs: {Net: {words: {unstack: 0}}}": ("NQX702", (4, 34), "write `stack`"),
    "structs: {Net: {layers: {stack: 0}}}": ("NQX702", (4, 33), "write `unstack`"),
    'structs: {Layer: {up: "up.{i}"}}': ("NQX702", (4, 23)),
    'structs: {Net: {words: "w.{i}"}}': ("NQX702", (4, 24), "write `merge: stack`"),
    'structs: {Net: {words: "w.{key}"}}': ("NQX702", (4, 24)),
    'structs: {Net: {layers: "l.{i}.{i}"}}': ("NQX702", (4, 25)),
    'structs: {Net: {layers: {name: "l.{i}", unstack: 0}}}': ("NQX702", (4, 32)),
    "structs: {Net: {layers: {unstack: 3}}}": ("NQX702", (4, 26)),
    "structs: {Net: {layers: {unstack: -3}}}": ("NQX702", (4, 26), "Dense.bias"),
    "structs: {Net: {blocks: {stack: 2}}}": ("NQX702", (4, 26)),
    "structs: {Net: {words: {name: [a, b], sizes: [-1, v]}}}": ("NQX702", (4, 46), "got -1"),
    "structs: {Net: {q: {name: w, part: [0, 1], blocks: 0}}}": ("NQX702", (4, 52), "from 1 on"),
    "structs: {Net: {layers: [a, b]}}": ("NQX702", (4, 25)),
    'structs: {Net: {words: {name: "w.{i}", merge: stack, reshape: [v, d]}}}': (
        "NQX702",
        (4, 63),
        "beside {i}",
    ),
    'structs: {Net: {words: "a\\nb"}}': ("NQX702", (4, 24)),
    "structs: {Net: {words: q}}": ("NQX703", (4, 17), "Net.q"),
    "structs: {Net: {q: {name: w, part: [0, 2]}, r: {name: w, part: [0, 2]}}}": (
        "NQX703",
        (4, 45),
        "'w'",
    ),
    "structs: {Net: {q: {name: w, part: [0, 2]}}}": ("NQX703", (4, 17)),
    "structs: {Net: {words: {name: w, part: 0, sizes: [v, n_b]}, any: {name: w2}}}": (
        "NQX704",
        (4, 50),
        "got n_b",
    ),
    "structs: {Net: {words: {cast: float64, exact: false}}}": ("NQX704", (4, 31)),
    "values: {n_head: 3}": ("NQX701", (4, 10)),
    "values: {n: 1.5}": ("NQX107", (4, 13)),
    "values: {heads: -1}": ("NQX107", (4, 17)),
    "values: {words: 0}": ("NQX701", (4, 10)),
    "values: {layers.kind: 3}": ("NQX107", (4, 23)),
    "values_from: {../config.json: {n: x}}": ("NQX503", (4, 15)),
    "values_from: {config.json: {nn: x}}": ("NQX701", (4, 29), "'n'"),
    'separator: ".."': ("NQX010", (4, 12)),
    "structs: {Net: {words: {part: 0, sizes: [other, 1]}, any: {cast: int8}}}": (
        "NQX704",
        (4, 41),
        "other",
    ),
    "prefix: []": ("NQX010", (4, 9)),
    "structs: {Net: {words: []}}": ("NQX010", (4, 24)),
    "structs: {Net: {words: {part: [0, 100001]}}}": (
        "NQX702",
        (4, 31),
        "100001",
    ),
    "structs: {Net: {words: {part: [0, 0]}}}": ("NQX702", (4, 31), "1 to 65536"),
    "prefix: bert": ("NQX010", (4, 9), "a list"),
}


@every("text", WRONG)
def test_each_finding_has_its_place(text):
    code, place, *named = WRONG[text]
    found = [each for each in findings(text) if each.code == code]
    assert found, [str(each) for each in findings(text)]
    shown = [f"{each.message}\n{each.hint}" for each in found]
    assert place in [(each.line, each.column) for each in found], [str(each) for each in found]
    assert all(any(each in text for text in shown) for each in named), shown


GOOD = [
    "",
    "structs: {Dense: {kernel: {name: weight, transpose: true}}}",
    "structs: {Net: {layers: h, blocks: {name: b, stack: 1}}}",
    'structs: {Net: {layers: {name: h, unstack: -1}, blocks: "b.{i}", norms: "n.{key}.x"}}',
    "structs: {Net: {q: {name: w, part: [0, 2]}, r: {name: w, part: [1, 2]}}}",
    "structs: {Net: {q: {reshape: [d, heads * k]}, words: {cast: bfloat16}}}",
    "structs: {Net: {q: {name: w, axis: 1, part: [0, 2], reshape: [d, inner]}, r: {name: w, axis: 1, part: [1, 2], reshape: [d, inner]}}}",
    "values: {n: 1, heads: 2, ff: 3, layers.kind: b, layers.up.bias: null}",
    "values_from: {config.json: {n: a.b, heads: c}}",
    "separator: /\nprefix: [params/, '']\nignore: ['*.x']",
]


@every("text", GOOD)
def test_sound_layouts(text):
    assert [str(each) for each in findings(text)] == []
    jsonschema.validate(read_text(HEAD + text).data, layout_schema())


def test_a_value_without_a_source_is_an_info():
    found = check_layout(
        Table(SERIES.head, parse_layout(read_text(HEAD))), read_text(HEAD, "hf.yaml")
    )
    assert [(each.code, each.severity) for each in found] == [("NQX707", "info")]


def test_the_published_schema_is_the_generated_one():
    text = (ROOT / "schemas/layout-schema/1.json").read_text()
    assert json.loads(text) == layout_schema()


# ---------------------------------------------------------------------------------------------------------------------
# Folders.


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "schemas" / "net"
    (place / "layouts").mkdir(parents=True)
    (place / "v1.yaml").write_text(SCHEMA.lstrip())
    return place


def test_lint_finds_the_layouts_of_a_folder(folder):
    (folder / "layouts" / "hf.yaml").write_text(
        HEAD + "values: {n: 1}\nstructs: {Net: {wrds: x}}\n"
    )
    for path in (folder, folder.parent, folder / "layouts" / "hf.yaml"):
        (found,) = [each for each in lint(path) if each.severity == "error"]
        assert (found.code, found.line, found.column) == ("NQX701", 5, 17)
        assert found.file.endswith("hf.yaml")
    assert s.load_schema(folder).layouts == (
        "hf",
    )  # a layout with errors stops no load of the schema


@pytest.mark.parametrize(
    ("of", "code"), [("lab.other@1", "NQX404"), ("lab.net@7", "NQX404"), ("lab.net", "NQX010")]
)
def test_a_layout_is_of_a_known_version(folder, of, code):
    file = folder / "layouts" / "hf.yaml"
    file.write_text(HEAD.replace("lab.net@1", of))
    assert [each.code for each in lint_layout(file, load_series(folder))] == [code]


def test_a_layout_has_the_name_of_its_file(folder):
    file = folder / "layouts" / "flax.yaml"
    file.write_text(HEAD + "values: {n: 1}\n")
    (found,) = lint(folder)
    assert "flax" in found.message and "hf" in found.message


def test_a_comment_silences_a_warning(folder):
    rule = (
        "structs:\n  Net:\n    words: {name: w, part: 0, sizes: [v, other]} # nqx: ignore[NQX704]\n"
    )
    rest = "    any: {name: w2}\nvalues: {n: 1}\n"
    (folder / "layouts" / "hf.yaml").write_text(HEAD + rule + rest)
    codes = [each.code for each in lint(folder)]
    assert "NQX704" not in codes


def test_drafts_are_sound(folder):
    file = new_layout(load_series(folder), "hf")
    assert [each.code for each in lint(folder)] == ["NQX707"]
    text = file.read_text()
    assert 'layers: "layers.{i}"' in text and 'norms: "norms.{key}"' in text
    jsonschema.validate(read_text(text).data, layout_schema())
    with refused(SchemaError, "NQX400", "hf.yaml"):
        new_layout(load_series(folder), "hf")
    with refused(SchemaError, "NQX400", "../x"):
        new_layout(load_series(folder), "../x")
    with refused(SchemaError, "NQX400", "lab.net"):
        new_layout(SERIES, "hf")


@pytest.mark.parametrize("name", ["vmc_state", "transformer", "gpt2", "diffusion_unet"])
def test_drafts_of_shipped_schemas_are_sound(name):
    series = load_series(ROOT / "schemas" / name)
    source = read_text(draft_layout(series.head, "hf"), "hf.yaml")
    found = check_layout(Table(series.head, parse_layout(source)), source)
    assert not [str(each) for each in found if each.severity != "info"]


def test_the_command_writes_a_draft(folder, monkeypatch):
    monkeypatch.chdir(folder.parent.parent)
    result = invoke("schema", "new", "lab.net", "--layout", "hf", "--in", "schemas")
    assert result.exit_code == 0, result.output
    assert (folder / "layouts" / "hf.yaml").is_file()
    assert invoke("schema", "lint", "schemas").exit_code == 0


@pytest.mark.parametrize(
    ("where", "code", "named"),
    [
        ("h", "NQX708", "'hf'"),
        ("nope", "NQX708", "hf"),
        (3, "NQX708", "int"),
        ("a.yaml", "NQX010", "a.yaml"),
    ],
)
def test_layouts_that_are_not_there(folder, where, code, named):
    (folder / "layouts" / "hf.yaml").write_text(HEAD)
    with refused(SchemaError, code, named):
        read_layout(where, load_series(folder))


# ---------------------------------------------------------------------------------------------------------------------
# Hostile files.

DEEP = """
language: "1"
schema: lab.net
version: 1
root: S0
structs:
""" + "".join(
    f"  S{i}: {{fields: {{a: 'S{i + 1} | null', b: 'S{i + 1} | null'}}}}\n" for i in range(40)
)


def test_structs_that_branch_without_end_are_bounded():
    series = load_series(DEEP + '  S40: {fields: {x: "float32[n]"}}\n')
    rules = ", ".join(f'S{i}: {{a: "", b: /x}}' for i in range(40))
    layout = f"{HEAD}structs: {{{rules}}}\n"
    with bounded():
        source = read_text(layout, "hf.yaml")
        check_layout(Table(series.head, parse_layout(source)), source)
        with refused(SchemaError, "NQX702"):
            s.Schema(series, 1).from_layout({}, layout)


def test_very_many_prefixes_are_refused():
    """The whole schema is looked for with each of them."""
    (found,) = findings("prefix: [" + ", ".join(f"p{i}" for i in range(101)) + "]")
    assert "100" in found.message and "101" in found.message


@pytest.mark.parametrize(
    "text",
    [
        "structs: {Net: {q: {reshape: [" + "d * " * 400 + "d]}}}",
        "structs: {Net: {q: {part: [0, 99999999999]}}}",
        "structs: {Net: {words: {sizes: [" + "v, " * 5000 + "v], part: 0}}}",
        "ignore: ['" + "*a" * 5000 + "']",
        "structs: {" + ", ".join(f"A{i}: {{}}" for i in range(3000)) + "}",
        "structs: {Net: {words: '" + "{i}" * 5000 + "'}}",
        "structs: {Net: {words: 'n{i:>999999999}{i.__class__}{'}}",
    ],
)
def test_hostile_layouts_end(text):
    with bounded():
        found = findings(text)
        assert len(found) <= 3001
