"""A plain value that a dtype cannot hold is refused in every place of a file, with place and fix."""

import json

import pytest

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.classes.compiler import classes_of
from neuralqx_struct.schema.series import load_series
from tests.builders import every, refused

HEAD = 'language: "1"\nschema: lab.x\nversion: {}\nroot: A\nstructs:\n  A:\n    fields:\n      w: "float32[n]"\n'

#: Type, value and a part of the hint.
REFUSED = [
    ("int8[2]", "300", "-128 to 127"),
    ("int8[2]", "[1.5, 2]", "int8"),
    ("int8[1, 2]", "[[1, 300]]", "int8"),
    ("uint8[2]", "-1", "from 0 to 255"),
    ("int8[2]", "true", "int8"),
    ("bool[2]", "1", "true"),
    ("float16[2]", "1e5", "5.96046e-08 to 65504"),
    ("float16[2]", "[1e6, 1]", "float16 holds 0"),
    ("float16[2]", "1e-10", "float16 holds 0"),
    ("float4_e2m1fn[2]", "7", "0.5 to 6"),
    ("float8_e8m0fnu[2]", "0", "float8_e8m0fnu"),
    ("float32[2]", "1" + "0" * 400, "float32 holds 0"),
    ("int8[2] | null", "300", "int8"),
]
ACCEPTED = [
    ("float32[2]", "0.1"),
    ("bfloat16[2]", "[0.1, 1000001]"),
    ("uint64[2]", str(2**64 - 1)),
    ("complex64[2]", "1.5"),
    ("float8_e8m0fnu[2]", "1"),
    ("int8[2]", "[-128, 127]"),
]
#: Declared in version 1, declared in version 2, step.
STEPS = [
    ("", "{type}", "add: {{field: a, default: {value}}}"),
    ("{type} | null", "{type}", "fill: {{field: a, value: {value}}}"),
    ("{type}", "", "remove: {{field: a, undo_default: {value}}}"),
]


def field(declared):
    return f'      a: "{declared}"\n' if declared else ""


def history(folder, step, declared, value):
    """A schema of two versions with one step."""
    folder.mkdir()
    texts = [part.format(type=declared, value=value) for part in step]
    (folder / "v1.yaml").write_text(HEAD.format(1) + field(texts[0]))
    migrations = f"migrations:\n  - from: 1\n    steps:\n      - {texts[2]}\n"
    (folder / "v2.yaml").write_text(HEAD.format(2) + field(texts[1]) + migrations)
    return folder


def default(declared, value):
    return HEAD.format(1) + f'      a: {{type: "{declared}", default: {value}}}\n'


@every(("declared", "value", "hint"), REFUSED)
def test_a_default_beyond_the_dtype_does_not_lint(declared, value, hint):
    with pytest.raises(s.SchemaError) as caught:
        s.load_schema(default(declared, value))
    (found,) = caught.value.diagnostics
    assert (found.code, found.line) == ("NQX107", 9)
    assert hint in found.hint


@every("step", STEPS)
@every(("declared", "value", "hint"), REFUSED[:-1])
def test_a_step_beyond_the_dtype_does_not_lint(tmp_path, step, declared, value, hint):
    with pytest.raises(s.SchemaError) as caught:
        s.load_schema(history(tmp_path / "x", step, declared, value))
    (found,) = caught.value.diagnostics
    assert found.code == "NQX107" and found.line >= 12
    assert hint in found.hint


@pytest.mark.parametrize(("declared", "value"), ACCEPTED)
def test_a_value_of_the_dtype_lints_migrates_and_loads(tmp_path, declared, value):
    s.load_schema(default(declared, value))
    schema = s.load_schema(history(tmp_path / "x", STEPS[0], declared, value))
    old = s.example(schema.at(1).A).export(tmp_path / "old")
    s.migrate(old, tmp_path / "new", schema=schema)
    assert s.validate(tmp_path / "new", schema) == []
    assert str(schema.load(tmp_path / "new").a.dtype) == declared.partition("[")[0]


@every(
    ("declared", "value"),
    [("int8[2]", "[1, 2, 3]"), ("int8[2]", "[[1, 2]]"), ("int8[]", "[1]"), ("int8[n]", "[1, 2]")],
)
@every("step", STEPS)
def test_lists_of_other_sizes_do_not_lint(tmp_path, step, declared, value):
    with pytest.raises(s.SchemaError) as caught:
        s.load_schema(history(tmp_path / "x", step, declared, value))
    (found,) = caught.value.diagnostics
    assert (found.code, found.hint) == ("NQX107", "write one number, which fills any size")


@pytest.mark.parametrize(
    ("declared", "value"),
    [("int8[..., 2]", "[[1, 2]]"), ("int8[_, 2]", "[[1, 2]]"), ("int8[...]", "[1]")],
)
def test_lists_of_open_sizes_load(tmp_path, declared, value):
    schema = s.load_schema(history(tmp_path / "x", STEPS[0], declared, value))
    old = s.example(schema.at(1).A).export(tmp_path / "old")
    assert schema.load(old).a.tolist() == json.loads(value)


def test_lists_of_other_sizes_in_a_document_that_was_not_linted():
    classes = classes_of(load_series(default("int8[2]", "[1, 2, 3]")), 1)
    with refused(s.SchemaError, "NQX107", "int8[2]", "[3]"):
        classes["A"](w=None)


@pytest.mark.parametrize(
    ("dtype", "value"), [("float16", 1e6), ("int8", 300), ("int8", 1.0), ("float8_e8m0fnu", 0)]
)
def test_a_stored_constant_beyond_its_dtype_is_refused(tmp_path, dtype, value):
    schema = s.load_schema(HEAD.format(1) + f'      a: "{dtype}[2]"\n')
    path = s.example(schema.A).export(tmp_path / "ckpt")
    manifest = json.loads((path / "manifest.json").read_text())
    full = {"__kind__": "full", "dtype": dtype, "shape": [2], "value": value}
    manifest["manifest"]["fields"]["a"] = full
    manifest["arrays"]["a"]["unused"] = True
    (path / "manifest.json").write_text(json.dumps(manifest))
    bundle.seal(path)
    assert "NQX612" in [found.code for found in s.validate(path)]
    with refused(s.StructError, "NQX612", "$.a", dtype, value):
        s.load(path)
