"""Schemas that use other schemas: types, sizes, bundles, migrations, and what goes wrong."""

import json
import pickle

import jax.numpy as jnp
import pytest

import neuralqx_struct as s
from neuralqx_struct.errors import SchemaError, ValidationError
from neuralqx_struct.schema import uses
from neuralqx_struct.schema.conformance import conform, see_node
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.schema.series import load_series
from neuralqx_struct.schema.uses import among, link
from neuralqx_struct.tools.linting import lint
from tests.builders import refused

OPTIM = """\
language: "1"
schema: lab.optim
version: {version}
root: Adam
dims: {{k: {{max: 9}}}}
enums: {{Mode: [fast, slow]}}
structs:
  Adam:
    params: [n]
    fields: {{{mu}: "float32[n]", extra: "float32[k]", mode: {{type: Mode, kind: static, default: fast}}}}
"""
TRAIN = """\
language: "1"
schema: lab.train
version: {version}
root: State
uses: [lab.optim@{version}]
dims: {{k: {{min: 100}}}}
structs:
  State:
    fields:
      w: "float32[n, k]"
      opt: lab.optim.Adam[n]
      many: {{type: "list[lab.optim.Adam[_]]", default: []}}
      mode: {{type: lab.optim.Mode | null, kind: static, default: null}}
"""
RENAME = "migrations: [{from: 1, steps: [{rename: {field: mu, to: m}}]}]\n"


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch):
    monkeypatch.setattr(uses, "_LOADED", {})


@pytest.fixture
def folder(tmp_path):
    files = {
        "optim/v1.yaml": OPTIM.format(version=1, mu="mu"),
        "optim/v2.yaml": OPTIM.format(version=2, mu="m") + RENAME,
        "train/v1.yaml": TRAIN.format(version=1),
        "train/v2.yaml": TRAIN.format(version=2) + "migrations: [{from: 1, steps: []}]\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def state(schema, **changes):
    adam = schema["lab.optim.Adam"]
    mu = "mu" if schema.version == 1 else "m"
    make = lambda n, k: adam(**{mu: jnp.zeros(n), "extra": jnp.zeros(k)})  # noqa: E731
    values = {"w": jnp.zeros((3, 100)), "opt": make(3, 4), "many": [make(7, 2)], "mode": "slow"}
    return schema.State(
        **{**values, **{n: v(make) if callable(v) else v for n, v in changes.items()}}
    )


def test_types_of_another_schema_are_checked_with_its_own_dims(folder):
    assert lint(folder / "train") == []
    schema = s.load_schema(folder / "train")
    assert schema["lab.optim.Adam"] is s.load_schema(folder / "optim").at(2).Adam
    value = state(schema)
    assert value.opt.extra.shape == (4,)  # its k is not the k of lab.train
    with refused(ValidationError, "NQX413", "$.opt.m", "float32[n=3]", "float32[5]"):
        state(schema, opt=lambda make: make(5, 1))
    with refused(ValidationError, "NQX421", "$.mode", "'slo'", "'slow'"):
        state(schema, mode="slo")
    with refused(ValidationError, "NQX411", "lab.optim@2:Adam", "3"):
        state(schema, opt=3)


def test_a_dim_of_the_used_schema_keeps_its_bounds_inside_an_instance(folder):
    schema = s.load_schema(folder / "train")
    with refused(ValidationError, "NQX413", "k <= 9", "12"):
        schema["lab.optim.Adam"](m=jnp.zeros(1), extra=jnp.zeros(12))


def test_everything_travels_in_bundles_and_pickles(folder, tmp_path):
    schema = s.load_schema(folder / "train")
    value = state(schema)
    assert pickle.loads(pickle.dumps(value)) == value
    value.export(tmp_path / "ckpt")
    manifest = json.loads((tmp_path / "ckpt" / "manifest.json").read_text())
    travelled = {(d["schema"], d["version"]) for d in manifest["schemas"]}
    assert travelled == {("lab.train", 1), ("lab.train", 2), ("lab.optim", 1), ("lab.optim", 2)}
    assert s.validate(tmp_path / "ckpt") == s.verify(tmp_path / "ckpt") == []
    assert schema.load(tmp_path / "ckpt") == s.load(tmp_path / "ckpt") == value


def test_structs_of_several_schemas_in_one_python_struct(folder, tmp_path):
    class Both(s.Struct):
        a: object
        b: object

    optim, train = s.load_schema(folder / "optim"), s.load_schema(folder / "train")
    both = Both(a=optim.Adam(m=jnp.zeros(2), extra=jnp.zeros(1)), b=state(train))
    both.export(tmp_path / "both")
    assert s.validate(tmp_path / "both") == []
    assert Both.load(tmp_path / "both") == both


def test_the_chain_of_the_used_schema_runs_when_it_moves(folder, tmp_path):
    schema = s.load_schema(folder / "train")
    old = state(schema.at(1))
    old.export(tmp_path / "old")
    assert schema.load(tmp_path / "old") == state(schema)
    s.migrate(tmp_path / "old", tmp_path / "new", schema=folder / "train")
    assert s.validate(tmp_path / "new", schema=folder / "train") == []
    assert schema.load(tmp_path / "new") == state(schema)


def test_text_finds_what_was_loaded(folder):
    text = TRAIN.format(version=2)
    with refused(SchemaError, "NQX404", "2", "lab.optim"):
        s.load_schema(text)
    s.load_schema(folder / "optim")
    assert s.load_schema(text)["lab.optim.Adam"]


def test_a_single_file_finds_what_is_beside_its_folder(folder):
    assert s.load_schema(folder / "train" / "v1.yaml")["lab.optim.Adam"].__name__ == "Adam"


def test_what_is_used_is_part_of_the_meaning(folder):
    before = load_series(folder / "train").fingerprints[2]
    file = folder / "optim" / "v2.yaml"
    file.write_text(file.read_text().replace("float32[n]", "float64[n]"))
    assert load_series(folder / "train").fingerprints[2] != before


WRONG = {
    "no such struct": (
        "lab.optim.Adam[n]",
        "lab.optim.Adm[n]",
        "NQX101",
        11,
        "'Adam'",
    ),
    "not under uses": (
        "lab.optim.Adam[n]",
        "lab.optm.Adam[n]",
        "NQX101",
        11,
        "'lab.optim'",
    ),
    "no parameter": ("lab.optim.Adam[n]", "lab.optim.Adam", "NQX103", 11, "1 parameters"),
    "the bare name": (
        "lab.optim.Adam[n]",
        "Adam[n]",
        "NQX101",
        11,
        "'lab.optim.Adam'",
    ),
    "no such version": ("lab.optim@2", "lab.optim@7", "NQX404", 5, "optim/v7.yaml"),
    "twice": ("[lab.optim@2]", "[lab.optim@2, lab.optim@1]", "NQX002", 5, "once"),
    "itself": (
        "[lab.optim@2]",
        "[lab.optim@2, lab.train@1]",
        "NQX135",
        5,
        "lab.train@2 -> lab.train@1",
    ),
    "never named": ("[lab.optim@2]", "[lab.optim@2, lab.other@1]", "NQX104", 5, "lab.other"),
    "no name at all": (
        "[lab.optim@2]",
        "[lab.optim@2, ../x@1]",
        "NQX010",
        5,
        "lab.optim@2",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_goes_wrong_is_told_at_its_place(case, folder):
    old, new, code, line, words = WRONG[case]
    (folder / "other").mkdir()
    other = OPTIM.format(version=1, mu="mu").replace("lab.optim", "lab.other")
    (folder / "other" / "v1.yaml").write_text(other)
    text = TRAIN.format(version=2)
    assert old in text
    (folder / "train" / "v2.yaml").write_text(text.replace(old, new))
    found = lint(folder / "train" / "v2.yaml")
    assert [(d.code, d.line) for d in found] == [(code, line)]
    assert words in str(found[0])


def test_schemas_that_use_each_other(folder):
    file = folder / "optim" / "v2.yaml"
    file.write_text(file.read_text() + "uses: [lab.train@2]\n")
    (found,) = (d for d in lint(folder / "train" / "v2.yaml") if d.severity == "error")
    assert found.code == "NQX135"
    assert "lab.train@2 -> lab.optim@2 -> lab.train@2" in found.message


def test_a_broken_file_where_one_is_expected(folder):
    (folder / "optim" / "v2.yaml").write_text(
        "language: '1'\nschema: lab.optim\nversion: 2\nroot: itn\nstructs: 3\n"
    )
    (found,) = lint(folder / "train" / "v2.yaml")
    assert found.code == "NQX010"
    assert f"{folder / 'optim' / 'v2.yaml'}:5" in found.hint


def test_errors_in_a_used_schema_are_reported_where_it_is_named(folder):
    file = folder / "optim" / "v2.yaml"
    text = file.read_text().replace("fields: {", "fields: {bad: {type: 'int32[]', kind: static}, ")
    file.write_text(text)
    (found,) = (d for d in lint(folder / "train" / "v2.yaml") if d.severity == "error")
    assert (found.code, found.path) == ("NQX110", "$.uses[0]")
    assert "bad.type of lab.optim@2" in found.message
    assert found.file == str(folder / "train" / "v2.yaml")


def test_a_diamond_is_followed_once(folder):
    for i in range(30):
        data = f'language: "1"\nschema: lab.d{i}\nversion: 1\nroot: A\nstructs: {{A: {{fields: {{x: int}}}}}}\n'
        data += f"uses: [lab.d{i + 1}@1, lab.d{min(i + 2, 30)}@1]\n" if i < 29 else ""
        (folder / f"d{i}").mkdir()
        (folder / f"d{i}" / "v1.yaml").write_text(data)
    (folder / "d30").mkdir()
    (folder / "d30" / "v1.yaml").write_text(data.replace("d29", "d30"))
    assert len(load_series(folder / "d0").head.closure()) == 31


HOLDERS = {
    "lab.u.U": lambda item: item,
    "list[lab.u.U]": lambda item: [item],
    "dict[str, lab.u.U]": lambda item: {"k": item},
    "lab.u.U | null": lambda item: item,
    "tuple[int, lab.u.U]": lambda item: (1, item),
}


@pytest.mark.parametrize("held", HOLDERS)
def test_static_ints_of_a_used_root_are_sizes_wherever_it_is_held(held):
    fields = {"n": {"type": "int", "kind": "static"}, "w": "int8[n]", "v": "int8[2 * n]"}
    inner = {"language": "1", "schema": "lab.u", "version": 1, "root": "U"}
    used = document_from_data({**inner, "structs": {"U": {"fields": fields}}}, "u")
    outer = {"language": "1", "schema": "lab.t", "version": 1, "root": "T", "uses": ["lab.u@1"]}
    structs = {"T": {"fields": {"n": "int8[n]", "x": held, "y": held}}}
    user = link(document_from_data({**outer, "structs": structs}, "t"), among([used]))

    def judged(*numbers):
        array = {"__kind__": "array", "dtype": "int8", "leaf": "numpy"}
        items = []
        for n, w in numbers:
            arrays = {
                key: {**array, "name": key, "shape": [size]}
                for key, size in (("w", w), ("v", 2 * n))
            }
            items.append({"__kind__": "struct", "type": "lab.u@1:U", "fields": {"n": n, **arrays}})
        wrapped = [node(HOLDERS[held](item)) for item in items]
        root = {"n": {**array, "name": "n", "shape": [9]}}
        tree = {"__kind__": "struct", "type": "lab.t@1:T", "fields": root}
        root |= dict(zip("xy", wrapped, strict=True))
        return [d.code for d in conform(user, "T", tree, see_node)]

    def node(value):
        match value:
            case {"__kind__": _}:
                return value
            case dict():
                return {"__kind__": "dict", "items": [[key, item] for key, item in value.items()]}
            case list():
                return {"__kind__": "list", "items": value}
            case tuple():
                return {"__kind__": "tuple", "items": [*value]}

    assert judged((3, 3), (4, 4)) == []  # each instance has its own
    assert judged((3, 3), (4, 5)) == ["NQX413"]


def test_a_plain_struct_around_a_state_is_migrated_with_what_the_state_uses(folder):
    new = s.load_schema(folder / "train")
    old = new.at(1)

    def around(cls):
        members = {"__annotations__": {"inner": cls, "step": int}, "__module__": __name__}
        return type("Run", (s.Struct,), members)

    payload = around(old.State)(inner=state(old), step=3).to_state_dict()
    run = around(new.State)
    again = s.from_state_dict(payload, load_cls=run)
    assert again == run(inner=state(new), step=3)
