"""`from_dict`, the inverse of `to_dict`."""

import jax.numpy as jnp
import pytest

import neuralqx_struct as s
from tests.builders import ROOT

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


@pytest.mark.parametrize(
    "options", [{}, {"recursive": True}, {"recursive": True, "include_opaque": False}], ids=str
)
@pytest.mark.parametrize("either", [Layer(1), Head(1, 2), 7], ids=repr)
def test_it_is_the_inverse_of_to_dict(options, either):
    value = model(either)
    again = s.from_dict(value.to_dict(**options), Model)
    assert again == value and again.size == 2


def test_params():
    params = s.Params({("net", "w"): s.Param(jnp.ones(2)), ("net",): s.Param(1, trainable=False)})
    for recursive in (False, True):
        assert s.from_dict(params.to_dict(recursive=recursive), s.Params) == params


@pytest.mark.parametrize("folder", SCHEMAS, ids=lambda folder: folder.name)
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
    with pytest.raises(s.ValidationError, match="Hooked.x"):
        s.from_dict({"x": -1}, Hooked)


def test_names_that_do_not_fit_are_refused_together():
    with pytest.raises(s.SerializationError) as caught:
        s.from_dict({"bais": 1}, Head)
    found = {(d.code, d.path) for d in caught.value.diagnostics}
    assert found == {("NQX415", "Head.bais"), ("NQX414", "Head.bias"), ("NQX414", "Head.w")}
    assert "did you mean 'bias'?" in str(caught.value)
    with pytest.raises(s.SerializationError, match="Layer.v"):
        s.from_dict({**model(1).to_dict(), "layers": [{"v": 1}]}, Model)


@pytest.mark.parametrize(("data", "target"), [({}, dict), ({}, 3), ([1], Layer), (None, Layer)])
def test_wrong_arguments(data, target):
    with pytest.raises(TypeError, match=r"from_dict\(\): expected a"):
        s.from_dict(data, target)
