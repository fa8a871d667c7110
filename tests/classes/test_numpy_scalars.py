"""Numpy scalars are values wherever arrays without axes are: construction, load, validation and JSON Schema."""

import json

import jax
import jsonschema
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.schema.export import payload_schema
from tests.builders import refused

FIELDS = {
    "i": {"type": "int", "default": 0, "ge": 0},
    "f": {"type": "float", "default": 0.0},
    "c": {"type": "complex", "default": 0},
    "b": {"type": "bool", "default": False},
    "static": {"type": "int", "kind": "static", "default": 0},
    "a": {"type": "float32[]", "default": 0},
    "any": {"type": "int8[...] | null", "default": None},
    "family": {"type": "floating[]", "default": 0},
    "o": {"type": "float | null", "default": None},
    "items": {"type": "list[float]", "default": []},
    "text": {"type": "str", "kind": "static", "default": "", "pattern": "[a-z]*"},
    "data": {"type": "bytes", "kind": "opaque", "serialize": True, "default": "", "max_length": 2},
    "share": {"type": "float", "default": 0.5, "ge": 0, "lt": 1, "finite": True},
    "size": {"type": "int", "kind": "static", "default": 1, "choices": [1, 2], "multiple_of": 1},
    "mode": {"type": "literal[1, 2.5, true, 'on', b'x']", "kind": "static", "default": 1},
    "pair": {"type": "tuple[float, complex]", "default": [0, 0]},
    "named": {"type": "dict[str, float]", "default": {}},
    "option": {"type": "Mode | float | null", "kind": "static", "default": None},
    "fast": {"type": "Mode", "kind": "static", "default": "fast"},
}
VALUES = [
    ("i", np.int32(1)),
    ("i", np.uint8(1)),
    ("f", np.float32(1.5)),
    ("f", np.float64(1.5)),
    ("f", np.float32("nan")),
    ("c", np.complex64(1j)),
    ("b", np.bool_(True)),
    ("static", np.int64(2)),
    ("a", np.float32(1)),
    ("any", np.int8(1)),
    ("family", np.float16(1)),
    ("o", np.float64(2)),
    ("items", [np.float32(1), 2.0]),
    ("text", np.str_("abc")),
    ("data", np.bytes_(b"a\0")),
    ("share", np.float64(0.25)),
    ("share", np.float16(0)),
    ("size", np.int8(2)),
    ("mode", np.uint16(1)),
    ("mode", np.float32(2.5)),
    ("mode", np.bool_(True)),
    ("mode", np.str_("on")),
    ("mode", np.bytes_(b"x")),
    ("f", np.int32(1)),
    ("f", np.array(1)),
    ("c", np.int64(1)),
    ("c", np.float32(1)),
    ("pair", (np.uint8(1), np.array(2.0))),
    ("named", {"a": np.int64(1), np.str_("b"): np.array(2)}),
    ("option", np.int64(1)),
    ("option", np.str_("slow")),
    ("fast", np.str_("slow")),
]
WRONG = [
    ("i", np.float32(1)),
    ("f", np.bool_(True)),
    ("a", np.float64(1)),
    ("any", np.int16(1)),
    ("family", np.int8(1)),
    ("b", np.int8(1)),
    ("i", np.int32(-1)),
    ("text", np.str_("A")),
    ("text", np.bytes_(b"a")),
    ("data", np.bytes_(b"abc")),
    ("share", np.float32(1)),
    ("share", np.float64("nan")),
    ("size", np.int64(3)),
    ("mode", np.int64(2)),
    ("mode", np.float32(1)),
    ("mode", np.str_("1")),
    ("mode", np.bytes_(b"on")),
    ("fast", np.str_("slo")),
    ("option", np.str_("slo")),
    ("c", np.bool_(True)),
    ("o", np.datetime64("2020-01-01")),
]


class Plain(s.Struct):
    """Any value."""

    value: object


@pytest.fixture
def schema(tmp_path):
    data = {"language": "1", "schema": "tests.scalars", "version": 1, "root": "A"}
    folder = tmp_path / "scalars"
    folder.mkdir()
    data["enums"] = {"Mode": {"members": ["fast", "slow"], "aliases": {"fast": ["quick"]}}}
    data["structs"] = {"A": {"fields": FIELDS, "constraints": [{"expr": "i < 7"}]}}
    (folder / "v1.json").write_text(json.dumps(data))
    return s.load_schema(folder)


@pytest.mark.parametrize(("field", "value"), VALUES)
def test_numpy_scalars_are_values(schema, tmp_path, field, value):
    made = schema.A(**{field: value})
    path = made.export(tmp_path / "ckpt")
    assert s.validate(path) == []
    loaded = schema.load(path)
    assert loaded == made
    assert type(getattr(loaded, field)) is type(value)
    manifest = json.loads((path / "manifest.json").read_text())
    jsonschema.validate(manifest, payload_schema(schema.document))


def test_former_names_of_members_lead_to_the_new_ones(schema):
    with refused(s.ValidationError, "NQX421", "quick", "fast"):
        schema.A(fast=np.str_("quick"))


@pytest.mark.parametrize(("field", "value"), WRONG)
def test_numpy_scalars_of_other_families_are_refused(schema, tmp_path, field, value):
    with pytest.raises(s.ValidationError) as error:
        schema.A(**{field: value})
    built = [(each.code, each.path) for each in error.value.diagnostics]
    path = Plain(value).export(tmp_path / "plain")
    node = json.loads((path / "manifest.json").read_text())["manifest"]["fields"]["value"]
    state = schema.A().to_state_dict()
    state["manifest"]["fields"][field] = node
    for held in ("arrays", "array_data"):
        state[held].pop(field, None)
    with pytest.raises(s.SerializationError) as error:
        s.from_state_dict(state, load_cls=schema.A)
    read = [(each.code, each.path) for each in error.value.diagnostics]
    assert read == built and {path for _, path in read} == {f"$.{field}"}  # they are judged alike
    if field == "data":  # a JSON Schema cannot count the bytes of base64
        return
    with pytest.raises(jsonschema.ValidationError):
        rules = payload_schema(schema.document)
        jsonschema.validate({"manifest": state["manifest"]}, {**rules, "required": []})


def test_verdicts_on_numpy_scalars_are_of_their_values(schema):
    for values, bad, code in (
        ({"share": np.float64(0.25)}, {"share": np.float64(2.5)}, "NQX416"),
        ({"mode": np.int64(1)}, {"mode": np.int64(7)}, "NQX411"),
        ({"i": np.int64(1)}, {"i": np.int64(8)}, "NQX416"),
    ):
        schema.A(**values)
        with refused(s.ValidationError, code):
            schema.A(**bad)
        schema.A(**values)


def test_members_that_are_text_of_numpy_get_their_new_names(schema, tmp_path):
    path = schema.A(fast=np.str_("fast"), option=np.str_("slow")).export(tmp_path / "ckpt")
    data = json.loads((tmp_path / "scalars" / "v1.json").read_text())
    steps = [{"map_enum": {"enum": "Mode", "values": {"fast": "immediate"}}}]
    data |= {"version": 2, "migrations": [{"from": 1, "steps": steps}]}
    data["enums"] = {"Mode": ["immediate", "slow"]}
    data["structs"]["A"]["fields"]["fast"]["default"] = "immediate"
    (tmp_path / "scalars" / "v2.json").write_text(json.dumps(data))
    loaded = s.load_schema(tmp_path / "scalars").load(path)
    assert (loaded.fast, loaded.option) == ("immediate", "slow")
    assert type(loaded.fast) is np.str_


def test_static_ints_of_numpy_are_sizes():
    fields = {"heads": {"type": "int", "kind": "static"}, "w": "float32[n]"}
    fields["twice"] = {"type": "int", "derived": "2 * heads"}
    data = {"language": "1", "schema": "tests.sizes", "version": 1, "root": "A"}
    data["dims"] = {"n": {"equals": "heads"}}
    made = s.load_schema(json.dumps(data | {"structs": {"A": {"fields": fields}}}, indent=1))
    assert type(made.A(heads=np.int64(3), w=np.ones(3, "float32")).twice) is int
    with refused(s.ValidationError, "NQX413"):
        made.A(heads=np.int64(3), w=np.ones(2, "float32"))


def test_constraints_see_numpy_scalars(schema):
    with refused(s.ValidationError, "NQX416", "i < 7"):
        schema.A(i=np.int64(8))
    made = schema.A(f=np.float64("nan"))
    state = made.to_state_dict()
    assert s.from_state_dict(state, load_cls=schema.A) == made


@s.steps.function("tests.scalars.results")
def results(values):
    assert type(values["f"]) is np.float32
    return {"f": np.float64(values["f"]) * 2, "i": np.int64(3), "text": np.str_("ab")}


def test_python_steps_take_and_give_numpy_scalars(schema, tmp_path):
    path = schema.A(f=np.float32(1.5)).export(tmp_path / "ckpt")
    data = json.loads((tmp_path / "scalars" / "v1.json").read_text())
    python = {"function": "tests.scalars.results", "reads": ["f"], "lossy": True}
    python["writes"] = ["f", "i", "text"]
    data |= {"version": 2, "migrations": [{"from": 1, "steps": [{"python": python}]}]}
    (tmp_path / "scalars" / "v2.json").write_text(json.dumps(data))
    loaded = s.load_schema(tmp_path / "scalars").load(path)
    assert (loaded.f, loaded.i, loaded.text) == (3, 3, "ab")
    assert type(loaded.f) is np.float64
    s.steps.function("tests.scalars.results")(
        lambda _: {**results({"f": np.float32(0)}), "i": np.int8(-1)}
    )
    with refused(s.MigrationError, "NQX416", "i", ">= 0", "-1"):
        s.load_schema(tmp_path / "scalars").load(path)


def test_values_of_fill_may_be_numpy_scalars(tmp_path):
    data = {"language": "1", "schema": "tests.filled", "version": 1, "root": "A"}
    fields = {"x": {"type": "float", "serialize": False, "le": 1}}
    text = json.dumps(data | {"structs": {"A": {"fields": fields}}}, indent=1)
    filled = s.load_schema(text)
    path = filled.A(x=0.5).export(tmp_path / "ckpt")
    assert filled.load(path, fill={"x": np.float32(0.25)}).x == 0.25
    with refused(s.SerializationError, "NQX416", "<= 1", "2"):
        filled.load(path, fill={"x": np.float32(2)})


LAYER = {
    "x": "float32[]",
    "by_name": "dict[str, int8[]]",
    "rate": {"type": "float", "kind": "static"},
}


def versions(tmp_path, *layers):
    """A schema whose struct holds layers of one type in version 1, and of another in version 2, if there is one."""
    folder = tmp_path / "layers"
    folder.mkdir()
    steps = [{"stack": {"field": "layers", "size": "n"}}]
    more = [{}, {"migrations": [{"from": 1, "steps": steps}]}]
    for version, (declared, migrations) in enumerate(zip(layers, more, strict=False), 1):
        data = {"language": "1", "schema": "tests.layers", "version": version, "root": "A"}
        data["structs"] = {"A": {"fields": {"layers": declared}}, "Layer": {"fields": LAYER}}
        (folder / f"v{version}.json").write_text(json.dumps(data | migrations))
    return s.load_schema(folder)


@pytest.mark.parametrize("values", [(0, 1), (1, 1)])
def test_scalars_in_array_fields_are_stacked_and_settings_are_not(tmp_path, values):
    schema = versions(tmp_path, "list[Layer]", "Layer[][n]")
    old = schema.at(1)
    layers = [
        old.Layer(x=np.float32(x), by_name={"a": np.int8(x)}, rate=np.float64(0.5)) for x in values
    ]
    new = schema.load(old.A(layers=layers).export(tmp_path / "ckpt")).layers
    assert isinstance(new.x, np.ndarray) and new.x.tolist() == [*values]
    assert new.by_name["a"].tolist() == [*values]
    assert new.rate == 0.5 and np.ndim(new.rate) == 0
    assert [each.x for each in s.unstack(new)] == [*values]


def test_scalars_in_stacked_structs_have_no_leading_axis(tmp_path):
    schema = versions(tmp_path, "Layer[][n]")
    layer = schema.Layer(x=np.float32(0), by_name={"a": np.int8(0)}, rate=0.5)
    good = schema.A(layers=s.stack([layer, layer]))
    leaves, tree = jax.tree.flatten(good)
    assert len(leaves) == 2
    for place, number in ((0, np.float32(1)), (1, np.int8(1))):
        changed = jax.tree.unflatten(tree, [*leaves[:place], number, *leaves[place + 1 :]])
        with refused(s.ValidationError, "NQX412"):
            good.replace(layers=changed.layers)
        with refused(s.SerializationError, "NQX412"):
            changed.export(tmp_path / "ckpt")
        path = changed.export(tmp_path / f"kept{place}", check=False)
        assert {each.code for each in s.validate(path)} == {"NQX412"}
        with refused(s.SerializationError, "NQX412"):
            schema.A.load(path)
