"""Exported functions of Structs: called in this process, and their treedefs written for another one."""

import enum
import json
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.checkpoint.jax_export import aux_from_bytes, aux_to_bytes
from tests.builders import every, refused
from tests.preloaded import PROGRAMS, python


class Mode(enum.Enum):
    TRAIN = 1
    TEST = 2


class Mesh(NamedTuple):
    axis: str
    size: int


class Config(s.Struct):
    n: Any = s.field(static=True)
    note: str = s.field(static=True, compare=False, default="")


class Model(s.Struct):
    w: Any
    b: Any
    name: Any = s.field(static=True, default="a")
    cache: dict = s.field(pytree=False, reset=True, default_factory=dict)
    handle: Any = s.field(pytree=False, default=None)
    size: int = s.field(static=True, derived=lambda self: jnp.size(self.w))


class Other(s.Struct):
    w: Any


STATICS = [
    "text", 1, True, 1.0, 0.0, -0.0, float("nan"), float("inf"), 2**70, None, b"\x00", 1j, complex(-0.0, float("nan")),
    (1, (True, float("nan"))), frozenset([1.0, 2]), Mode.TRAIN, Mesh("x", 4), Config((1, -0.0), "q"), np.dtype("bfloat16"),
    np.float32("nan"), np.int64(1), np.float64(-0.0),
]  # fmt: skip


@every("value", STATICS)
def test_static_values_are_written_and_read_as_they_are(value):
    aux = jax.tree.structure(Model(1, 2, value)).node_data()[1]
    again = aux_from_bytes(Model, aux_to_bytes(Model, aux))
    assert again == aux and hash(again) == hash(aux)
    assert aux_to_bytes(Model, again) == aux_to_bytes(Model, aux)
    assert json.loads(aux_to_bytes(Model, aux))["version"] == 1


def test_an_exported_function_takes_and_gives_structs():
    model = Model(jnp.arange(3.0), Other(jnp.ones(2)))
    exported = jax.export.export(jax.jit(lambda m, x: (m.replace(w=m.w * x), m.size)))(model, 2.0)
    out, size = exported.call(model, 2.0)
    np.testing.assert_array_equal(out.w, [0.0, 2.0, 4.0])
    assert type(out) is Model and type(out.b) is Other and out.size == 3 == int(size)
    assert exported.call(model.replace(cache={"other": 1}), 1.0)[0].cache == {}
    assert "Model" in str(exported.in_tree)
    with pytest.raises(ValueError, match="Model"):
        exported.call(model.replace(name="b"), 2.0)
    shapes = jax.eval_shape(lambda: model)
    assert jax.export.export(jax.jit(lambda m: m))(shapes).call(model) == jax.jit(lambda m: m)(
        model
    )


def test_symbolic_shapes_and_gradients_of_exported_functions():
    (n,) = jax.export.symbolic_shape("n")
    shapes = Other(jax.ShapeDtypeStruct((n,), jnp.float32))
    exported = jax.export.export(jax.jit(lambda o: jnp.sum(o.w**2)))(shapes, )  # fmt: skip
    assert float(exported.call(Other(jnp.ones(5)))) == 5.0
    concrete = jax.export.export(jax.jit(lambda o: jnp.sum(o.w**2)))(Other(jnp.ones(2)))
    grad = jax.grad(concrete.call)(Other(jnp.array([1.0, 2.0])))
    assert type(grad) is Other
    np.testing.assert_array_equal(grad.w, [2.0, 4.0])


def test_what_jax_is_told(monkeypatch):
    told = {}
    monkeypatch.setattr(
        jax.export,
        "register_pytree_node_serialization",
        lambda cls, **how: told.update(how, cls=cls),
    )

    @s.register_jax_export
    class Told(s.Struct):
        n: int = s.field(static=True)

    assert told["cls"] is Told and told["serialized_name"] == s.class_ref(Told)
    aux = jax.tree.structure(Told(3)).node_data()[1]
    assert told["deserialize_auxdata"](bytearray(told["serialize_auxdata"](aux))) == aux


def test_registering_twice():
    def define():
        class Again(s.Struct):
            w: Any

        return Again

    First, Second = define(), define()
    assert s.register_jax_export(First) is First is s.register_jax_export(First)
    with refused(ValueError, "Again", "name="):
        s.register_jax_export(Second)
    with refused(ValueError, "another"):
        s.register_jax_export(First, name="another")
    assert s.register_jax_export(Second, name="test.Again2") is Second


@pytest.mark.parametrize("cls", [int, "Model", Model(1, 2), None])
def test_only_struct_classes_are_registered(cls):
    with refused(TypeError, "register_jax_export()"):
        s.register_jax_export(cls)


def test_opaque_objects_of_this_process_are_refused():
    aux = jax.tree.structure(Model(1, 2, handle=object())).node_data()[1]
    with refused(s.SerializationError, "NQX430", "Model.handle", "reset=True") as caught:
        aux_to_bytes(Model, aux)
    assert [d.code for d in caught.value.diagnostics] == ["NQX430"]


def test_static_values_that_cannot_be_saved_are_refused():
    aux = jax.tree.structure(Model(1, 2, len)).node_data()[1]
    with refused(s.SerializationError, "NQX430", "$['name']", "builtins:len"):
        aux_to_bytes(Model, aux)


@pytest.mark.parametrize(
    ("data", "code", "named"),
    [
        (b"", "NQX401", "Model"),
        (b"\xff\x00", "NQX401", "Model"),
        (b"[1]", "NQX401", "Model"),
        (b"[" * 100_000, "NQX401", "Model"),
        (b"{}", "NQX610", "'version'"),
        (b'{"version": 1, "manifest": {"__kind__": "nope"}, "arrays": {}}', "NQX613", "'nope'"),
    ],
)
def test_other_bytes_are_refused(data, code, named):
    with refused(s.SerializationError, code, named):
        aux_from_bytes(Model, data)


def test_a_class_that_has_changed_is_refused():
    data = aux_to_bytes(Config, jax.tree.structure(Config(1)).node_data()[1])
    with refused(s.SerializationError, "NQX414", "Model", "name", "n, note"):
        aux_from_bytes(Model, data)


ACROSS = """
import sys
from typing import Any

import jax
import jax.numpy as jnp

import neuralqx_struct as s


@s.register_jax_export
class Inner(s.Struct):
    w: Any
    scale: float = s.field(static=True, default=-0.0)


@s.register_jax_export
class Across(s.Struct):
    inner: Inner
    nan: Any = s.field(static=True, default=float("nan"))
    parts: Any = s.field(static=True, default=(-0.0, float("nan"), True, 1, 1.0, frozenset({"a"})))
    handle: Any = s.field(pytree=False, default=None)
    cache: dict = s.field(pytree=False, reset=True, default_factory=dict)


def double(tree):
    return tree.replace(inner=tree.inner.replace(w=tree.inner.w * 2))


tree = Across(Inner(jnp.arange(3.0)))
if sys.argv[1] == "write":
    with open(sys.argv[2], "wb") as file:
        file.write(jax.export.export(jax.jit(double))(tree).serialize())
else:
    with open(sys.argv[2], "rb") as file:
        exported = jax.export.deserialize(bytearray(file.read()))
    out = exported.call(tree)
    assert out == double(tree) and jax.tree.structure(out) == jax.tree.structure(tree), out
    for other in (
        tree.replace(nan=1.0),
        tree.replace(parts=(0.0, *tree.parts[1:])),
        tree.replace(parts=(-0.0, float("nan"), 1, 1, 1.0, frozenset({"a"}))),
        tree.replace(inner=Inner(tree.inner.w, scale=0.0)),
        tree.replace(handle=object()),
    ):
        try:
            exported.call(other)
        except ValueError as error:
            assert "structural differences" in str(error), error
        else:
            raise AssertionError(other)
    print("read", out.cache)
"""


def test_bytes_written_in_one_process_and_read_in_another(tmp_path):
    for job in ("write", "read"):
        done = python(*PROGRAMS).run("-c", ACROSS, job, str(tmp_path / "double.bin"))
        assert done.returncode == 0, done.stderr
    assert done.stdout == "read {}\n"
