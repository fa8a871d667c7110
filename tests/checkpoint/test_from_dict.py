"""`from_dict`, the inverse of `to_dict`."""

import jax.numpy as jnp
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.errors import SchemaError
from tests.builders import ROOT, every, refused

SCHEMAS = sorted(path.parent for path in ROOT.glob("schemas/*/v1.yaml"))


class Layer(s.Struct):
    w: object
    n: int = s.field(static=True, default=3)


class Head(s.Struct):
    w: object
    bias: object


class Model(s.Struct):
    layers: list[Layer]
    pair: tuple[Layer, int, Head]
    by_name: dict[str, Layer]
    either: Layer | Head | int
    rest: object = None
    size: int = s.field(static=True, derived=lambda self: len(self.layers))
    handle: object = s.field(pytree=False, default=None)
    lock: object = s.field(pytree=False, reset=True, default_factory=object)


def model(either):
    layers = [Layer(1.0), Layer(jnp.ones(2), n=4)]
    return Model(layers, (Layer(3), 4, Head(1, 2)), {"a": Layer(5)}, either, rest={"x": (1, [2])})


@every("options", [{}, {"recursive": True}, {"recursive": True, "include_opaque": False}])
@every("either", [Layer(1), Head(1, 2), 7])
def test_it_is_the_inverse_of_to_dict(options, either):
    value = model(either)
    again = s.from_dict(value.to_dict(**options), Model)
    assert again == value and again.size == 2


def test_what_is_empty_keeps_its_kind():
    text = """
        language: "1"
        schema: lab.empty
        version: 1
        root: Net
        structs:
          Net: {fields: {a: "dict[str, Net]", b: "list[Net]", c: "pytree", d: "dict[str, int] | null"}}
    """
    schema = s.load_schema(text)
    for rest in ({}, [], {0: {1: 2}, 1: []}):
        value = schema.Net(a={}, b=[], c=rest, d={})
        assert s.from_dict(value.to_dict(recursive=True), schema) == value, rest


def test_params():
    params = s.Params({("net", "w"): s.Param(jnp.ones(2)), ("net",): s.Param(1, trainable=False)})
    for recursive in (False, True):
        assert s.from_dict(params.to_dict(recursive=recursive), s.Params) == params


@every("folder", SCHEMAS)
def test_instances_of_schemas(folder):
    schema = s.load_schema(folder)
    value = s.example(schema.root, key=3)
    data = value.to_dict(recursive=True)
    assert s.from_dict(data, schema) == s.from_dict(data, schema.root) == value


def test_hooks_and_defaults_are_those_of_a_load():
    class Hooked(s.Struct):
        x: int = s.field(converter=int, validator=lambda x: x > 0)
        y: int = 2

        def __post_init__(self):
            raise AssertionError

    assert s.from_dict({"x": "3"}, Hooked).to_dict() == {"x": 3, "y": 2}
    with refused(s.ValidationError, "NQX416", "Hooked.x", "-1"):
        s.from_dict({"x": -1}, Hooked)


def test_names_that_do_not_fit_are_refused_together():
    with pytest.raises(s.SerializationError) as caught:
        s.from_dict({"bais": 1}, Head)
    found = {(d.code, d.path) for d in caught.value.diagnostics}
    assert found == {("NQX415", "Head.bais"), ("NQX414", "Head.bias"), ("NQX414", "Head.w")}
    hints = {d.path: d.hint for d in caught.value.diagnostics}
    assert hints["Head.bais"] == "did you mean 'bias'?"
    assert hints["Head.bias"] == "did you mean 'bais'?"
    wrong = {"layers": [{"v": 1}], "by_name": {"a": {"w": 1}, "b": {}}, "handel": 1}
    with refused(s.SerializationError, "NQX414", "Layer", "v") as caught:
        s.from_dict({**model(1).to_dict(), **wrong}, Model)
    assert {(d.code, d.path) for d in caught.value.diagnostics} == {
        ("NQX415", "$.layers[0].v"),
        ("NQX414", "$.layers[0].w"),
        ("NQX414", "$.by_name['b'].w"),
        ("NQX415", "Model.handel"),
    }


SCHEMA = """
language: "1"
schema: lab.net
version: 3
root: Net
structs:
  Dense: {fields: {kernel: "float32[i, o]", bias: "float32[o] | null"}}
  Net: {fields: {layers: "list[Dense]", table: "dict[str, Dense]", n: int}}
"""


def dense(i, o, dtype="float32"):
    return {"kernel": np.ones((i, o), dtype), "bias": None if o == 1 else np.ones(3, dtype)}


@pytest.fixture
def target(request, tmp_path, monkeypatch):
    """The schema in each form that a target may have."""
    (tmp_path / "schemas" / "net").mkdir(parents=True)
    (tmp_path / "schemas" / "net" / "v3.yaml").write_text(SCHEMA)
    monkeypatch.chdir(tmp_path)
    schema = s.load_schema(SCHEMA)
    forms = {"schema": schema, "document": schema.document, "class": schema.root, "text": SCHEMA}
    return forms.get(request.param, request.param)


FORMS = [
    "schema",
    "document",
    "class",
    "text",
    "lab.net",
    "lab.net@3",
    "schemas/net",
    "schemas/net@3",
]


@pytest.mark.parametrize("target", FORMS, indirect=True)
def test_targets(target):
    data = {"layers": [dense(2, 3), dense(5, 3)], "table": {"a": dense(2, 1)}, "n": 4}
    made = s.from_dict(data, target)
    assert type(made).__name__ == "Net" and type(made.table["a"]).__name__ == "Dense"
    assert made.layers[1].kernel is data["layers"][1]["kernel"] and made.n == 4
    assert made.to_dict(recursive=True).keys() == data.keys()


@pytest.mark.parametrize("target", ["schema"], indirect=True)
def test_wrong_values_of_all_structs_are_refused_together(target):
    data = {"layers": [dense(2, 3), dense(2, 4)], "table": {"a": dense(2, 3, "float64")}, "n": 4}
    with pytest.raises(s.ValidationError) as caught:
        s.from_dict(data, target)
    assert {(d.code, d.path) for d in caught.value.diagnostics} == {
        ("NQX413", "$.layers[1].bias"),
        ("NQX411", "$.table['a'].kernel"),
        ("NQX411", "$.table['a'].bias"),
    }


def test_schemas_that_are_not_there():
    with refused(SchemaError, "NQX400", "lab.nothing@3"):
        s.from_dict({}, "lab.nothing@3")
    with refused(SchemaError, "NQX404", "nothing/there"):
        s.from_dict({}, ROOT / "nothing" / "there")


@pytest.mark.parametrize(("data", "target"), [({}, dict), ({}, 3), ([1], Layer), (None, Layer)])
def test_wrong_arguments(data, target):
    with refused(TypeError, "from_dict()"):
        s.from_dict(data, target)
