"""Classes with schema= check their instances when they are made, exported and loaded; classes without one do not."""

import enum

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float32

import neuralqx_struct as s
from tests.builders import every


class Phase(enum.Enum):
    WARM = 1
    DONE = 2


MATRIX = Float32[Array, "n m"]
VECTOR = Float32[Array, "m"]


class Layer(s.Struct):
    kernel: MATRIX


class Net(s.Struct, schema="lab.bound_net", version=1):
    layers: list[Layer]
    bias: VECTOR
    scale: VECTOR
    phase: Phase = s.field(static=True, default=Phase.WARM)
    steps: int = s.field(static=True, default=3)
    later: "Later | None" = None


class Later(s.Struct):
    x: float = 1.5


def net(**changes):
    values = {"layers": [Layer(jnp.ones((2, 3)))], "bias": jnp.ones(3), "scale": jnp.ones(3)}
    return Net(**(values | changes))


def problems(make):
    with pytest.raises(s.StructError) as caught:
        make()
    return {(found.code, found.path) for found in caught.value.diagnostics}


LAYER = Layer(jnp.ones((2, 3)))
WRONG = {
    "dtype": ({"bias": jnp.ones(3, int)}, {("NQX411", "$.bias")}),
    "size": ({"scale": jnp.ones(4)}, {("NQX413", "$.scale")}),
    "static": ({"steps": "x"}, {("NQX411", "$.steps")}),
    "enum": ({"phase": "LATE"}, {("NQX421", "$.phase")}),
    "struct": ({"later": Layer(jnp.ones((1, 1)))}, {("NQX411", "$.later")}),
    "inside": ({"layers": [Layer(jnp.ones(3))]}, {("NQX412", "$.layers[0].kernel")}),
    "value inside": ({"later": Later("x")}, {("NQX411", "$.later.x")}),
    "second": ({"layers": [LAYER, Layer(LAYER.kernel + 1j)]}, {("NQX411", "$.layers[1].kernel")}),
}


@every("name", WRONG)
def test_an_instance_is_checked_when_it_is_made(name):
    changes, expected = WRONG[name]
    # Also when instances like it were valid before.
    valid = [net(), net(later=Later(2.5)), net(later=Later(2.5), layers=[LAYER, LAYER])]
    for _ in range(2):
        for each in valid:
            assert problems(lambda each=each: each.replace(**changes)) == expected
        assert problems(lambda: net(**changes)) == expected
        assert net(later=Later(2.5)) == valid[1]


def test_a_valid_instance_is_saved_validated_and_loaded(tmp_path):
    made = net(later=Later(2.5), phase=Phase.DONE)
    path = made.export(tmp_path / "ckpt")
    assert s.validate(path) == [] and Net.load(path) == made
    assert jax.jit(lambda each: each.replace(bias=2 * each.bias))(made).bias.sum() == 6.0


def test_an_export_checks_what_transformations_made(tmp_path):
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), net())
    found = problems(lambda: half.export(tmp_path / "ckpt"))
    assert found == {("NQX411", f"$.{name}") for name in ("bias", "scale", "layers[0].kernel")}
    assert half.export(tmp_path / "ckpt", check=False).exists()


def test_a_load_checks_what_was_stored():
    held = net().to_state_dict()
    held["manifest"]["fields"]["steps"] = "x"
    assert problems(lambda: Net.from_state_dict(held)) == {("NQX411", "$.steps")}


class Wider(Net):
    extra: int = 0


def test_a_subclass_is_checked_as_its_base(tmp_path):
    wider = Wider(layers=[], bias=jnp.ones(3), scale=jnp.ones(3), extra=2)
    assert Wider.load(wider.export(tmp_path / "ckpt")) == wider
    assert problems(lambda: wider.replace(steps="x")) == {("NQX411", "$.steps")}


def test_a_subclass_with_fields_before_the_first_instance_of_its_base():
    class First(s.Struct, schema="lab.first"):
        x: int

    class Second(First):
        y: int = 2

    for _ in range(2):
        assert Second(1).y == 2 and First(3).x == 3
        assert problems(lambda: Second("a")) == {("NQX411", "$.x")} == problems(lambda: First("a"))


def test_hooks_and_derived_fields_are_checked_too():
    class Hooked(s.Struct, schema="lab.hooked"):
        x: int = s.field(converter=int, validator=lambda x: x < 9)
        w: VECTOR
        n: int = s.field(static=True, init=False, derived=lambda self: len(self.w))

    for _ in range(2):
        assert Hooked("3", jnp.ones(2)).n == 2
        assert problems(lambda: Hooked(3, jnp.ones(2, int))) == {("NQX411", "$.w")}
        assert problems(lambda: Hooked(9, jnp.ones(2))) == {("NQX416", "Hooked.x")}


def test_a_class_without_a_schema_is_not_checked():
    assert Layer("anything").kernel == "anything"


def test_numpy_values_are_fine_where_the_schema_allows_them():
    assert net(bias=np.ones(3, "float32"), layers=[]).steps == 3
