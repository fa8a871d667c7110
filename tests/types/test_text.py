"""Plain values in files and stored values of collections: every reader of them agrees."""

from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.types.builders import LiveBuilder, NodeBuilder
from neuralqx_struct.types.text import parse_type, plain_value, read_value

HEAD = 'language: "1"\nschema: lab.values\nversion: %d\nroot: A\n'


def series(tmp_path, old, new, steps, enums=("", "")):
    """The schema with two versions of the fields of one struct."""
    folder = tmp_path / "values"
    folder.mkdir()
    for version, fields, declared in ((1, old, enums[0]), (2, new, enums[1])):
        text = HEAD % version + declared + f"structs:\n  A:\n    fields: {{{fields}}}\n"
        text += f"migrations:\n  - from: 1\n    steps: [{steps}]\n" if version == 2 else ""
        (folder / f"v{version}.yaml").write_text(text)
    return s.load_schema(folder)


@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_map_enum_in_dicts_of_both_kinds(tmp_path, kind):
    fields = 'modes: {type: "dict[str, Mode]", kind: opaque, serialize: true}'
    enums = ("enums: {Mode: [slow, fast]}\n", "enums: {Mode: [careful, fast]}\n")
    step = "map_enum: {enum: Mode, values: {slow: careful}}"
    schema = series(tmp_path, fields, fields, f"{{{step}}}", enums)
    path = schema.at(1).A(modes=kind(a="slow", b="fast")).export(tmp_path / "ckpt")
    loaded = schema.load(path).modes
    assert type(loaded) is kind and loaded == {"a": "careful", "b": "fast"}
    s.migrate(path, tmp_path / "new", schema=schema)
    s.migrate(tmp_path / "new", tmp_path / "back", schema=schema, to=1)
    assert s.load(tmp_path / "back", load_cls=schema.at(1).A).modes == {"a": "slow", "b": "fast"}


@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_cast_and_sizes_in_dicts_of_both_kinds(tmp_path, kind):
    old = 'tables: "dict[str, float64[n]]"'
    new = 'tables: "dict[str, float32[n]]", bias: "float32[n]"'
    steps = "{cast: {field: tables, dtype: float32}}, {add: {field: bias, default: 0}}"
    schema = series(tmp_path, old, new, steps)
    path = schema.at(1).A(tables=kind(a=np.ones(3))).export(tmp_path / "ckpt")
    loaded = schema.load(path)
    assert loaded.tables["a"].dtype == "float32" and loaded.bias.shape == (3,)


def test_the_default_of_an_enum_in_an_ordered_dict(tmp_path):
    fields = 'modes: {type: "dict[str, Mode]", kind: opaque, serialize: true}'
    other = fields + ", n: {type: int, default: 0}"
    enums = ("enums: {Mode: [slow, fast]}\n", "enums: {Mode: {members: [fast], default: fast}}\n")
    schema = series(tmp_path, fields, other, "{add: {field: n, default: 1}}", enums[:1] * 2)
    (tmp_path / "values" / "v2.yaml").write_text(
        (tmp_path / "values" / "v2.yaml").read_text().replace(enums[0], enums[1])
    )
    old = schema.at(1)
    path = old.A(modes=OrderedDict(a="slow", b="fast")).export(tmp_path / "ckpt")
    try:
        new = s.load_schema(tmp_path / "values")
    except s.SchemaError as error:  # members may not go without a step
        assert error.code == "NQX305"
        return
    assert new.load(path).modes == {"a": "fast", "b": "fast"}


@pytest.mark.parametrize(
    ("declared", "value", "message"),
    [
        ("dtype", "nonsense", "expected a value of type dtype"),
        ("int8[2]", "[300, 1]", "expected a value of type int8"),
        ("int8[2]", "[1.5, 1]", "expected a value of type int8"),
        ("bytes", "3", "expected a value of type bytes"),
    ],
)
def test_a_default_of_another_type_does_not_lint(tmp_path, declared, value, message):
    fields, steps = "n: int", f"{{add: {{field: d, default: {value}}}}}"
    with pytest.raises(s.SchemaError, match=message):
        series(
            tmp_path,
            fields,
            f'n: int, d: {{type: "{declared}", kind: opaque, serialize: true}}',
            steps,
        )
    text = (
        HEAD % 1 + f'structs:\n  A:\n    fields: {{d: {{type: "{declared}", default: {value}}}}}\n'
    )
    with pytest.raises(s.SchemaError, match="expected a default of type"):
        s.load_schema(text)


@pytest.mark.parametrize(
    ("declared", "value", "live"),
    [("bytes", "grün", "grün".encode()), ("dtype", "bfloat16", None), ("path", "a/b", None)],
)
def test_a_default_means_the_same_in_a_class_and_in_a_step(tmp_path, declared, value, live):
    old, new = "n: int", f"n: int, d: {{type: {declared}, kind: static, default: {value}}}"
    schema = series(tmp_path, old, new, f"{{add: {{field: d, default: {value}}}}}")
    path = schema.at(1).A(n=1).export(tmp_path / "ckpt")
    loaded, made = schema.load(path), schema.A(n=1)
    assert loaded == made and type(loaded.d) is type(made.d)
    assert live is None or made.d == live
    s.migrate(path, tmp_path / "new", schema=schema)
    assert s.validate(tmp_path / "new", schema) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("tuple[int, path]", [1, "a"]),
        ("dict[str, list[float]]", {"a": [1.5]}),
        ("dtype | null", "int8"),
        ('literal["a", 1] | null', 1),
        ("pytree", {"a": [1, {"b": 0.5}]}),
    ],
)
def test_plain_values_are_read_and_written(text, value):
    declared = parse_type(text)
    assert plain_value(read_value(value, declared, LiveBuilder(None))) == value
    assert read_value(value, declared, NodeBuilder(None)) is not None


def test_validate_refuses_a_dtype_that_load_refuses(tmp_path):
    schema = s.load_schema(
        HEAD % 1 + "structs:\n  A:\n    fields: {d: {type: dtype, kind: static}}\n"
    )
    path = schema.A(d=np.dtype("int8")).export(tmp_path / "ckpt")
    manifest = path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"int8"', '"nonsense"'))
    bundle.seal(path)
    assert [found.code for found in s.validate(path, schema)] == ["NQX411"]
    with pytest.raises(s.SerializationError):
        s.load(path, load_cls=schema.A)


def test_choices_of_paths_are_text(tmp_path):
    schema = s.load_schema(
        HEAD % 1 + "structs:\n  A:\n    fields: {d: {type: path, kind: static, choices: [a, b]}}\n"
    )
    made = schema.A(d=Path("a"))
    assert s.validate(made.export(tmp_path / "ckpt"), schema) == []
    with pytest.raises(s.ValidationError, match="expected one of 'a', 'b'"):
        schema.A(d=Path("c"))
